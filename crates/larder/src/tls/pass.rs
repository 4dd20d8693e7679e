//! Hosts whose tunnels are not opened: those of the configuration, and those whose clients refused a
//! certificate of the local CA a while ago.

use super::recent::Recent;
use crate::config::HostPattern;
use larder_wire::Host;
use larder_wire::date::Stamp;
use parking_lot::{Mutex, RwLock};

/// Hosts that are remembered at most.
pub const LEARNED_MAX: usize = 4_096;

/// How long a client's refusal is remembered: a tool that got the CA meanwhile is tried again after an hour.
pub const LEARNED_SECONDS: u64 = 3_600;

/// Why a host is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// The configuration says so (`intercept.pass`).
    Configured,
    /// A client did not accept a certificate of the local CA.
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
    learned: Mutex<Recent<Stamp>>,
}

impl PassList {
    /// Begins with what is configured.
    pub fn new(patterns: Vec<HostPattern>) -> PassList {
        PassList { patterns: RwLock::new(patterns), learned: Mutex::new(Recent::new(LEARNED_MAX)) }
    }

    /// Goes on with other patterns; what was learned stays.
    pub fn configure(&self, patterns: Vec<HostPattern>) {
        *self.patterns.write() = patterns;
    }

    /// Whether tunnels to `host` stay closed, and why.
    pub fn find(&self, host: &Host, now: Stamp) -> Option<PassReason> {
        if self.patterns.read().iter().any(|pattern| pattern.matches(host)) {
            return Some(PassReason::Configured);
        }
        let mut learned = self.learned.lock();
        let since = learned.find(host)?;
        if now.since(since) < LEARNED_SECONDS {
            return Some(PassReason::Learned);
        }
        learned.remove(host);
        None
    }

    /// Remembers that a client refused a certificate for `host`
    /// ([`HandshakeTrouble::ClientRejectsCa`](super::HandshakeTrouble::ClientRejectsCa)).
    pub fn learn(&self, host: &Host, now: Stamp) {
        self.learned.lock().insert(host.clone(), now);
    }

    /// Hosts remembered now.
    pub fn learned(&self) -> usize {
        self.learned.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_and_learned_hosts_pass() {
        let list = PassList::new(vec![HostPattern::parse("*.bank.example").unwrap()]);
        let bank = Host::parse("www.bank.example").unwrap();
        let pinned = Host::parse("pinned.example").unwrap();
        assert_eq!(list.find(&bank, Stamp(0)), Some(PassReason::Configured));
        assert_eq!(list.find(&pinned, Stamp(0)), None);
        list.learn(&pinned, Stamp(100));
        assert_eq!(list.find(&pinned, Stamp(99)), Some(PassReason::Learned), "a clock that went back");
        assert_eq!(list.find(&pinned, Stamp(100 + LEARNED_SECONDS - 1)), Some(PassReason::Learned));
        assert_eq!(list.find(&pinned, Stamp(100 + LEARNED_SECONDS)), None);
        assert_eq!(list.learned(), 0);
    }

    #[test]
    fn what_is_learned_is_bounded() {
        let list = PassList::new(Vec::new());
        for n in 0..3 * LEARNED_MAX {
            list.learn(&Host::parse(&format!("h{n}")).unwrap(), Stamp(1));
        }
        assert!(list.learned() <= LEARNED_MAX);
    }
}
