//! Streams, names and connections in memory, in the place of sockets and name servers, for the simulation of a whole server
//! (docs/simulation.md). This exists in unit tests only.

#![cfg(test)]

pub mod network;
pub mod readiness;
pub mod stream;

pub use readiness::Readiness;
pub use stream::{MemoryStream, Observer, StreamSettings};
