//! Robots that speak HTTP/2 (RFC 9113): one connection to a host carries many requests at once, each on a stream of its own, as
//! browsers have it.
//!
//! Read in this order: [`head`], heads as field blocks; [`state`], streams and frames without a socket; [`receive`], frames of
//! the other end; [`multiplexed`], the connection.

mod head;
mod multiplexed;
mod receive;
mod state;
#[cfg(test)]
mod tests;

pub use multiplexed::{Multiplexed, Room, StreamOutcome};

/// Limits of robots that speak HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Requests that a connection carries at once, if the other end permits as many.
    pub streams_max: u32,
    /// Bytes of a body that may come before the robot has read any of it (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window_bytes: u32,
    /// Bytes of all bodies of a connection that may come so.
    pub connection_window_bytes: u32,
}

impl Default for StreamSettings {
    /// As Chromium has them (`net/spdy`): 100 streams unless the server says otherwise, 6 MB, 15 MB.
    fn default() -> Self {
        Self { streams_max: 100, stream_window_bytes: 6 << 20, connection_window_bytes: 15 << 20 }
    }
}
