//! Origins to which no connection could be made of late, and whether the network as a whole seems to be away. One table for all
//! workers; only requests of a `larder run` ask it (decision 040).
//!
//! [`Unreachable`](super::unreachable::Unreachable) knows addresses and spares attempts. This table knows origins: a refusal counts here,
//! which there is an answer. Faults behind the connection (a certificate, a malformed answer, a full queue) never come here.

use super::Origin;
use larder_wire::Host;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Origins remembered, all workers together.
const ORIGINS_MAX: usize = 1024;
/// The time until a request tries again, which doubles with each failure up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// After this long without a new failure an entry says nothing any more.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// So many different hosts out of reach are not the fault of one of them.
const HOSTS_MIN: usize = 2;

/// The knowledge about the way to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Nothing speaks against asking it.
    None,
    /// Other hosts are out of reach, and none that is not this machine answered since; nothing is known of this one. Or its pause
    /// is over: this request may try.
    Doubtful,
    /// It was out of reach a moment ago.
    Known,
}

/// The origins that were out of reach, of all workers.
#[derive(Default)]
pub(super) struct Outages {
    table: Mutex<Table>,
    /// How many there are, to be read without the lock: mostly none.
    count: AtomicUsize,
}

#[derive(Default)]
struct Table {
    origins: HashMap<Origin, Lost>,
    /// When a host other than this machine answered last, since something is in the table.
    answered_at: Option<Instant>,
}

struct Lost {
    failures: u32,
    failed_at: Instant,
    retry_at: Instant,
    /// A captive portal answers in its place.
    is_portal: bool,
}

impl Outages {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The knowledge about an origin. After the pause of an origin that was out of reach a request may try.
    pub fn look(&self, origin: &Origin, now: Instant) -> Outage {
        if self.is_empty() {
            return Outage::None;
        }
        let table = self.table.lock();
        if let Some(lost) = table.origins.get(origin).filter(|lost| lost.is_recent(now)) {
            return if now < lost.retry_at { Outage::Known } else { Outage::Doubtful };
        }
        if is_here(&origin.host) || !table.is_network_away(now) { Outage::None } else { Outage::Doubtful }
    }

    /// A request tries now: others do after a pause.
    pub fn tries(&self, origin: &Origin, now: Instant) {
        if self.is_empty() {
            return;
        }
        if let Some(lost) = self.table.lock().origins.get_mut(origin) {
            lost.retry_at = now + lost.pause();
        }
    }

    /// Somebody is there who may not be the origin: it is not out of reach, and that says nothing of the network.
    pub fn forget(&self, origin: &Origin) {
        if self.is_empty() {
            return;
        }
        let table = &mut *self.table.lock();
        table.origins.remove(origin);
        self.count.store(table.origins.len(), Ordering::Relaxed);
    }

    /// Whether the origin was out of reach a moment ago. Nobody is told to try by this question.
    pub fn is_known(&self, origin: &Origin, now: Instant) -> bool {
        !self.is_empty() && self.table.lock().origins.get(origin).is_some_and(|lost| lost.is_recent(now))
    }

    /// Whether a captive portal answered in the place of this origin a moment ago.
    pub fn is_portal(&self, origin: &Origin, now: Instant) -> bool {
        !self.is_empty()
            && self.table.lock().origins.get(origin).is_some_and(|lost| lost.is_portal && lost.is_recent(now))
    }

    /// No connection to this origin comes about.
    pub fn failed(&self, origin: &Origin, now: Instant) {
        self.lose(origin, now, false);
    }

    /// A captive portal answers in the place of this origin.
    pub fn behind_portal(&self, origin: &Origin, now: Instant) {
        self.lose(origin, now, true);
    }

    fn lose(&self, origin: &Origin, now: Instant, is_portal: bool) {
        let table = &mut *self.table.lock();
        if !table.origins.contains_key(origin) {
            make_room(&mut table.origins, now);
        }
        let fresh = Lost { failures: 0, failed_at: now, retry_at: now, is_portal };
        let lost = table.origins.entry(origin.clone()).or_insert(fresh);
        if !lost.is_recent(now) {
            lost.failures = 0;
        }
        // Attempts side by side are one failure.
        if lost.failures == 0 || now >= lost.retry_at || now.saturating_duration_since(lost.failed_at) >= lost.pause() {
            lost.failures = lost.failures.saturating_add(1);
        }
        (lost.failed_at, lost.retry_at, lost.is_portal) = (now, now + lost.pause(), is_portal);
        self.count.store(table.origins.len(), Ordering::Relaxed);
    }

    /// The origin answered, from this address; true when the network seemed to be away until then.
    pub fn answered(&self, origin: &Origin, from: IpAddr, now: Instant) -> bool {
        if self.is_empty() {
            return false;
        }
        let table = &mut *self.table.lock();
        let was_away = table.is_network_away(now);
        if !from.to_canonical().is_loopback() {
            table.answered_at = Some(now);
        }
        table.origins.remove(origin);
        self.count.store(table.origins.len(), Ordering::Relaxed);
        was_away && !table.is_network_away(now)
    }
}

impl Lost {
    fn pause(&self) -> Duration {
        PAUSE.0.saturating_mul(1 << self.failures.saturating_sub(1).min(8)).min(PAUSE.1)
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.failed_at) < FORGET_AFTER
    }
}

impl Table {
    /// Several hosts are out of reach, and none answered since. One broken host says nothing of others, and this machine answers
    /// and refuses without any network.
    fn is_network_away(&self, now: Instant) -> bool {
        let since = |lost: &Lost| self.answered_at.is_none_or(|answered| lost.failed_at > answered);
        let lost =
            self.origins.iter().filter(|(origin, lost)| lost.is_recent(now) && since(lost) && !is_here(&origin.host));
        lost.map(|(origin, _)| &origin.host).collect::<HashSet<_>>().len() >= HOSTS_MIN
    }
}

/// Whether the host is this machine by its name or address.
fn is_here(host: &Host) -> bool {
    host.as_str() == "localhost" || host.ip().is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// Room for one more: entries that say nothing any more go, else the one that failed longest ago.
fn make_room(origins: &mut HashMap<Origin, Lost>, now: Instant) {
    if origins.len() < ORIGINS_MAX {
        return;
    }
    origins.retain(|_, lost| lost.is_recent(now));
    if origins.len() >= ORIGINS_MAX
        && let Some(oldest) = origins.iter().min_by_key(|(_, lost)| lost.failed_at).map(|(origin, _)| origin.clone())
    {
        origins.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Url;

    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn origin(host: &str) -> Origin {
        Origin::of(&Url::parse(&format!("http://{host}/")).unwrap())
    }

    /// Events, as `name!` (out of reach), `name.` (answers), `name-` (is there, perhaps not as itself), `name~` (tries) and `name?` (a
    /// look), and the results of the looks.
    fn play(events: &str) -> Vec<Outage> {
        let (outages, mut now) = (Outages::default(), Instant::now());
        let mut looks = Vec::new();
        for event in events.split(' ') {
            now += Duration::from_millis(100);
            let (name, what) = event.split_at(event.len() - 1);
            let at = origin(&format!("{name}.example"));
            match what {
                "!" => outages.failed(&at, now),
                "~" => outages.tries(&at, now),
                "-" => outages.forget(&at),
                "." => _ = outages.answered(&at, ELSEWHERE, now),
                "+" => now += Duration::from_secs(name.parse().unwrap()),
                _ => looks.push(outages.look(&at, now)),
            }
        }
        looks
    }

    #[test]
    fn one_broken_host_says_nothing_of_others_and_two_do_until_somebody_answers() {
        use Outage::{Doubtful, Known, None};
        for (events, looks) in [
            ("a?", &[None][..]),
            ("a! a? b?", &[Known, None]),
            ("a! a! a! b?", &[None]),
            ("a! b! c? a?", &[Doubtful, Known]),
            ("a! b! c. c? d? a?", &[None, None, Known]),
            ("a! b! a. a? b? c?", &[None, Known, None]),
            ("c. a! b! d?", &[Doubtful]),
            // After the pause one request tries.
            ("a! 1+ a? a? a~ a?", &[Doubtful, Doubtful, Known]),
            ("a! a? a- a?", &[Known, None]),
            ("a! b! a- a? c?", &[None, None]),
            ("a! 61+ a? a?", &[None, None]),
            ("a! b! 61+ c?", &[None]),
        ] {
            assert_eq!(play(events), looks, "{events}");
        }
    }

    #[test]
    fn this_machine_says_nothing_of_the_network() {
        let (outages, now) = (Outages::default(), Instant::now());
        for host in ["localhost", "127.0.0.1", "127.0.0.2", "[::1]"] {
            outages.failed(&origin(host), now);
            assert_eq!(outages.look(&origin(host), now), Outage::Known);
        }
        assert_eq!(outages.look(&origin("a.example"), now), Outage::None);
        outages.failed(&origin("a.example"), now);
        outages.failed(&origin("b.example"), now);
        outages.answered(&origin("localhost"), "127.0.0.1".parse().unwrap(), now + Duration::from_millis(1));
        assert_eq!(outages.look(&origin("c.example"), now), Outage::Doubtful, "an answer of this machine");
        assert_eq!(outages.look(&origin("localhost"), now), Outage::None, "but localhost itself is there");
    }

    #[test]
    fn the_table_has_a_limit() {
        let (outages, mut now) = (Outages::default(), Instant::now());
        for number in 0..2 * ORIGINS_MAX {
            now += Duration::from_millis(1);
            outages.failed(&origin(&format!("h{number}.example")), now);
            assert!(outages.table.lock().origins.len() <= ORIGINS_MAX);
        }
        assert_eq!(outages.look(&origin(&format!("h{}.example", 2 * ORIGINS_MAX - 1)), now), Outage::Known);
    }
}
