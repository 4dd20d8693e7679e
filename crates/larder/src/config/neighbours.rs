//! Neighbouring caches that may ask by datagram what is stored here, and how long others are waited for that are asked.

use super::Networks;
use std::net::SocketAddr;
use std::time::Duration;

/// The answers to neighbouring caches, and the wait for theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// Where ICP is answered (RFC 2186).
    pub icp: Option<SocketAddr>,
    /// Where HTCP is answered (RFC 2756).
    pub htcp: Option<SocketAddr>,
    /// The neighbours; datagrams from elsewhere get no answer.
    pub from: Networks,
    /// A request waits no longer for the answers of siblings and parents.
    pub wait_max: Duration,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours { icp: None, htcp: None, from: Networks::default(), wait_max: Duration::from_secs(2) }
    }
}
