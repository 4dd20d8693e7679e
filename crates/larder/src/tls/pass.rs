//! Hosts whose tunnels are not opened: those of the configuration for everybody, and for each client those for which
//! it refused a certificate of the local CA a while ago.

use super::recent::Recent;
use crate::client::has_address;
use crate::config::HostPattern;
use larder_wire::Host;
use larder_wire::date::Stamp;
use parking_lot::{Mutex, RwLock};
use std::net::IpAddr;

/// Clients whose refusals are remembered at most.
pub const CLIENTS_MAX: usize = 256;

/// Hosts that are remembered of one client at most. A client that refuses a certificate for ever more hosts displaces its
/// own refusals, not those of others.
pub const HOSTS_PER_CLIENT_MAX: usize = 32;

/// How long a client's refusal is remembered: a tool that got the CA meanwhile is tried again after an hour.
pub const LEARNED_SECONDS: u64 = 3_600;

/// Why a host is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The configuration says so (`intercept.pass`).
    Configured,
    /// This client did not accept a certificate of the local CA.
    Learned,
}

impl PassReason {
    /// The word in records and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            PassReason::Configured => "pass-configured",
            PassReason::Learned => "pass-learned",
        }
    }
}

/// The list, shared by all workers.
pub struct PassList {
    patterns: RwLock<Vec<HostPattern>>,
    learned: Mutex<Recent<IpAddr, Recent<Host, Stamp>>>,
}

impl PassList {
    /// A list with the configured patterns.
    pub fn new(patterns: Vec<HostPattern>) -> PassList {
        PassList { patterns: RwLock::new(patterns), learned: Mutex::new(Recent::new(CLIENTS_MAX)) }
    }

    /// Replaces the configured patterns; refusals that were learned stay.
    pub fn configure(&self, patterns: Vec<HostPattern>) {
        *self.patterns.write() = patterns;
    }

    /// Whether this client's tunnels to `host` stay closed, and why.
    pub fn find(&self, client: IpAddr, host: &Host, now: Stamp) -> Option<PassReason> {
        if self.patterns.read().iter().any(|pattern| pattern.matches(host)) {
            return Some(PassReason::Configured);
        }
        let mut learned = self.learned.lock();
        let hosts = learned.find(&client.to_canonical())?;
        let since = *hosts.find(host)?;
        if now.since(since) < LEARNED_SECONDS {
            return Some(PassReason::Learned);
        }
        hosts.remove(host);
        None
    }

    /// Remembers that this client refused a certificate for `host`
    /// ([`HandshakeTrouble::ClientRejectsCa`](super::HandshakeTrouble::ClientRejectsCa)).
    pub fn learn(&self, client: IpAddr, host: &Host, now: Stamp) {
        // Clients without an address can't be told apart, and one of them does not speak for the others.
        if !has_address(client) {
            return;
        }
        let (mut learned, client) = (self.learned.lock(), client.to_canonical());
        match learned.find(&client) {
            Some(hosts) => hosts.insert(host.clone(), now),
            None => {
                let mut hosts = Recent::new(HOSTS_PER_CLIENT_MAX);
                hosts.insert(host.clone(), now);
                learned.insert(client, hosts);
            }
        }
    }

    /// Pairs of a client and a host that are remembered now.
    pub fn learned(&self) -> usize {
        self.learned.lock().values().map(Recent::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn configured_and_learned_hosts_pass() {
        let list = PassList::new(vec![HostPattern::parse("*.bank.example").unwrap()]);
        let bank = Host::parse("www.bank.example").unwrap();
        let pinned = Host::parse("pinned.example").unwrap();
        let (one, other) = (client(1), client(2));
        assert_eq!(list.find(one, &bank, Stamp(0)), Some(PassReason::Configured));
        assert_eq!(list.find(one, &pinned, Stamp(0)), None);
        list.learn(one, &pinned, Stamp(100));
        assert_eq!(list.find(one, &pinned, Stamp(99)), Some(PassReason::Learned), "a clock that went back");
        assert_eq!(list.find(other, &pinned, Stamp(101)), None, "another client");
        assert_eq!(list.find(one, &bank, Stamp(101)), Some(PassReason::Configured));
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().into();
        assert_eq!(list.find(mapped, &pinned, Stamp(101)), Some(PassReason::Learned), "one address in two forms");
        assert_eq!(list.find(one, &pinned, Stamp(100 + LEARNED_SECONDS - 1)), Some(PassReason::Learned));
        assert_eq!(list.find(one, &pinned, Stamp(100 + LEARNED_SECONDS)), None);
        assert_eq!(list.learned(), 0);
    }

    #[test]
    fn what_is_learned_is_bounded_for_each_client_and_for_all() {
        let list = PassList::new(Vec::new());
        let host = |number: usize| Host::parse(&format!("h{number}")).unwrap();
        list.learn(client(0), &host(0), Stamp(1));
        for number in 0..3 * CLIENTS_MAX * HOSTS_PER_CLIENT_MAX {
            list.learn(client(1), &host(number), Stamp(1));
        }
        assert!(list.learned() <= 1 + HOSTS_PER_CLIENT_MAX);
        assert_eq!(
            list.find(client(0), &host(0), Stamp(2)),
            Some(PassReason::Learned),
            "one client displaces no other"
        );
        for number in 0..(3 * CLIENTS_MAX * HOSTS_PER_CLIENT_MAX) as u32 {
            list.learn(client(number % 1_000), &host(number as usize / 1_000), Stamp(1));
        }
        assert!(list.learned() <= CLIENTS_MAX * HOSTS_PER_CLIENT_MAX);
    }
}
