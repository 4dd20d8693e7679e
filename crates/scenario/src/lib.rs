//! Plays scripted clients and origins around any proxy, malformed bytes included. A script is a short text
//! (`docs/scenarios.md` is its language); [`Script::load`] reads it, [`Script::open`] binds its origins, and
//! [`Stage::play`] plays it against a proxy that is named by its address alone. Nothing here knows the inside of
//! any proxy, and nothing here trusts what a proxy sends: messages are read tolerantly and judged aloud.

mod check;
mod client;
mod failure;
mod lines;
mod message;
mod origin;
mod parse;
mod ranges;
mod script;
mod stage;
mod steps;
mod target;
mod text;
mod traffic;
mod world;

pub use failure::{Failure, ScriptError};
pub use script::Script;
pub use stage::{Setting, Stage};
pub use target::{Target, Way};
