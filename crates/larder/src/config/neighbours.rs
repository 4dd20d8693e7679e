//! Neighbouring caches that may ask by datagram what is stored here.

use super::Networks;
use std::net::SocketAddr;

/// The answers to neighbouring caches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Where ICP is answered (RFC 2186).
    pub icp: Option<SocketAddr>,
    /// Where HTCP is answered (RFC 2756).
    pub htcp: Option<SocketAddr>,
    /// The neighbours; datagrams from elsewhere get no answer.
    pub from: Networks,
}
