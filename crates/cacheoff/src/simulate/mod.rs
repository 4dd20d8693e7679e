//! A log or trace replayed without a network through reference policies at many sizes: "what would my hit ratio be with
//! so many gigabytes?"
//!
//! Policies are small and plain, with golden hit counts. Objects never expire here, and one whose size changes is still
//! the same object: the figures are those of an ideal log, an upper bound for a cache that must also be fresh.

pub mod command;
mod curve;
mod lines;
mod policy;
mod queues;
mod stack;
mod trace;

pub use curve::{csv, curves, figure, sizes, text};
pub use lines::Form;
pub use policy::Policy;
pub use stack::Stack;
pub use trace::Trace;
