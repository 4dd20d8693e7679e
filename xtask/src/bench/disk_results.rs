//! The objects of the comparison of stores, and the results of a server with them.

use crate::peers::Kind;

/// Objects of one length, together the working set.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The words in the table.
    pub name: &'static str,
    /// Bytes of each.
    pub length: u64,
}

/// The memory tier.
pub const MEMORY_BYTES: u64 = 20_000_000;
/// All bodies together.
pub const SET_BYTES: u64 = 5 * MEMORY_BYTES;
/// Connections of the load.
pub const CONNECTIONS: usize = 32;

impl Size {
    /// How many objects there are.
    pub fn objects(self) -> u64 {
        SET_BYTES / self.length
    }
}

/// One run of a load against a server.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// CPU of the server's processes per answer, what it did soon after included.
    pub cpu_micros: f64,
    /// Answers per second as the load saw them.
    pub rate: f64,
    /// Requests that reached the origin, per answer.
    pub origin_share: f64,
    /// Answers that were not right.
    pub wrong: u64,
    /// Answers whose bytes were compared.
    pub compared: u64,
}

/// The results of a server with objects of one size.
pub struct Row {
    /// The server.
    pub kind: Kind,
    /// By round, each with its part of the set.
    pub fills: Vec<Sample>,
    /// By round, over the whole set.
    pub hits: Vec<Sample>,
    /// Bytes written per byte of the bodies.
    pub written: f64,
    /// Bytes allocated in the folder per byte of the bodies, beyond those at the start.
    pub space: f64,
    /// Bytes allocated in the folder by an empty store.
    pub space_at_start: u64,
}
