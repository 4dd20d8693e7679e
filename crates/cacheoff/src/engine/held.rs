//! Replies that wait.

use super::attribution::Closed;
use crate::robot::Report;
use std::time::Duration;

/// A reply that waits for the notes of origins on other machines.
pub(super) struct Held {
    /// The reply.
    pub report: Box<Report>,
    /// Its meaning for others.
    pub closed: Closed,
    /// When it was whole.
    pub at: Duration,
    /// The second, since 1970.
    pub unix: u64,
}
