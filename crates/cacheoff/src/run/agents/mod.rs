//! Runs on several machines: agents play parts of one run, and a coordinator tells them what, when, and gathers what they
//! count (`docs/agents.md`).
//!
//! The workers of all agents are numbered through as those of one machine are. A worker's robots and worlds follow from its
//! number and the seed, so that the union of the parts is what one machine with so many workers would ask. The address of a
//! visible server follows from its number, and an origin answers by the URL alone.

mod coordinate;
mod fleet;
mod message;
mod outgoing;
mod part;
mod probe;
mod serve;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod tests;
mod time;

pub use coordinate::{Campaign, coordinate};
pub use fleet::Fleet;
pub use message::Discipline;
pub use serve::AgentArgs;

use std::time::Duration;

/// An end that says nothing for so long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(5);
