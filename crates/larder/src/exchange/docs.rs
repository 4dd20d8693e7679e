//! The place of the documentation for readers of error pages.

use crate::env::{Env, PeerFacts};
use std::net::SocketAddr;

/// The admin listener, where this client can open it: a client of this machine, at a server for programs of this machine alone. No other
/// client is told of it by this; one behind a proxy on this machine reads the address and can not open it.
pub(super) fn address(env: &Env, peer: &PeerFacts) -> Option<SocketAddr> {
    if !peer.address.ip().is_loopback() {
        return None;
    }
    let config = env.config();
    config.admin.filter(|admin| admin.ip().is_loopback() && admin.port() != 0 && config.is_of_this_machine())
}
