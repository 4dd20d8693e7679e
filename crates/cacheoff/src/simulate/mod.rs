//! A log or trace replayed without a network through reference policies at many sizes.

mod stack;

pub use stack::Stack;
