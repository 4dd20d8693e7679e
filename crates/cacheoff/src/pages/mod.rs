//! The workloads of application servers: clients ask for pages that nobody else makes, and hold each page against what the
//! application must answer, to the byte. There are no origins, no objects and no hits here; the ledger is the same.
//!
//! [`Forum`] knows the board as it must be, `judge` holds a reply against it, `client` speaks HTTP on one connection,
//! `play` keeps all clients busy and counts.

mod ask;
mod client;
pub mod command;
mod forum;
mod judge;
mod play;
#[cfg(test)]
mod tests;

pub use crate::workload::{PageKind, PagePlan, PageWorkload};
pub use ask::Ask;
pub use forum::Forum;
pub use play::{Order, play};
