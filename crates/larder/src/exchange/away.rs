//! Requests of a `larder run` while the network is away, which nobody has told it: no connection to the origin comes about
//! (decision 040). Clients of other listeners are judged by RFC 9111 alone.

use crate::env::{Env, PeerFacts};
use crate::rules::Ask;
use crate::upstream::Outage;
use larder_cache::policy::Asked;
use std::time::Duration;

/// How long a connection may take where others hosts are out of reach, or this one was: a far origin answers within that time.
pub const DOUBTED_WAIT: Duration = Duration::from_millis(300);

/// The demands of a request, and what is known of the way to its origin. A run that does not use the network, or whose origin was
/// out of reach a moment ago, takes what is stored at any age.
pub fn asked(env: &Env, peer: &PeerFacts, asked: Asked, ask: &Ask) -> (Asked, Outage) {
    if peer.listener.is_offline() {
        return (asked.offline(), Outage::None);
    }
    if peer.listener.online_run().is_none() {
        return (asked, Outage::None);
    }
    match env.upstreams.outage(ask.connects_to()) {
        Outage::Known => (asked.without_network(), Outage::Known),
        outage => (asked, outage),
    }
}
