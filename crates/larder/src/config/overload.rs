//! When a queue counts as overloaded.

use std::time::Duration;

/// The delays from which on requests of low priority are refused, and others wait no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overload {
    /// How long the oldest request may wait for its origin.
    pub origin_delay: Duration,
    /// How late a worker may come to its work.
    pub worker_delay: Duration,
    /// Whether answers pass by a disk that is behind; else they wait for it.
    pub pass_by_disk: bool,
}

impl Default for Overload {
    fn default() -> Overload {
        Overload { origin_delay: Duration::from_secs(3), worker_delay: Duration::from_millis(50), pass_by_disk: true }
    }
}
