//! The homes of keys as requests see them: which node is asked for a response, from which number of purges on it may answer, and
//! whether the answer is kept here, too (decisions 119, 120). The thread of the cluster writes this, workers read it, a miss at a time.
//!
//! No purge may be undone by a response of another node. A node asks only while every purge that it has in force is one that the home
//! can be measured by: [`Homes::about_to_apply`] is called before a purge of the stream comes into force, and a [`Hold`] is taken before
//! one that is made here, until the stream has brought it back.

use super::node_key::NodeKey;
use larder_balance::{Homed, Rendezvous, hash};
use larder_wire::Url;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nodes that are asked for one response before its origin is.
const HOMES_ASKED_MAX: usize = 2;

/// A node that gave no answer is not asked for so long; heartbeats tell of one that is dead within two seconds.
const PAUSE: Duration = Duration::from_secs(1);

/// A key that was asked of its home so often within some ten seconds is hot: its response is kept here, too.
const HOT_ASKS: u8 = 4;

/// Counters of keys; two keys in one slot make both look hotter.
const HOT_SLOTS: usize = 1 << 16;

/// After this time all counters are halved.
const HOT_WINDOW: Duration = Duration::from_secs(10);

/// Keys of which a table's shares are drawn.
const SHARE_KEYS: u64 = 4_096;

/// The homes of keys.
#[derive(Debug)]
pub struct Homes {
    /// The name of this node.
    pub name: String,
    /// Proves questions and answers.
    pub key: NodeKey,
    /// Counts for the metrics.
    pub counts: HomeCounts,
    table: Mutex<Option<Arc<HomeTable>>>,
    /// Whether this node asks others. It answers them while there is a table.
    asks: AtomicBool,
    /// The last purge of the stream that is in force here, or is about to be.
    asking: AtomicU64,
    holds: Arc<AtomicU64>,
    hot: Mutex<HotKeys>,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct HomeCounts {
    /// Answers of homes that were taken.
    pub answered: AtomicU64,
    /// Homes that lacked purges.
    pub behind: AtomicU64,
    /// Homes that refused: they have other rules, or no answer of the origin.
    pub refused: AtomicU64,
    /// Homes that could not be reached, or whose answer was none.
    pub failed: AtomicU64,
    /// Homes that took so long that the origin was asked beside them.
    pub hedged: AtomicU64,
    /// Answers that were given to other nodes.
    pub served: AtomicU64,
    /// Questions of other nodes that purges were missing for.
    pub served_behind: AtomicU64,
    /// Questions of other nodes that were refused.
    pub served_refused: AtomicU64,
    /// Requests at the address for nodes that no node made.
    pub strangers: AtomicU64,
}

/// The nodes that answer questions, as of one moment.
#[derive(Debug)]
pub struct HomeTable {
    /// The incarnation of the stream by whose numbers purges are compared.
    pub stream: Arc<str>,
    homes: Vec<Home>,
    order: Rendezvous,
}

/// A node that answers questions.
#[derive(Debug)]
pub struct Home {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is asked; `None`: this node.
    pub url: Option<Url>,
    homed: Homed,
    instance: String,
    /// Milliseconds of the clock of the boot until which it is not asked.
    paused_until: AtomicU64,
}

/// The facts about a node that answers questions, of a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeFacts {
    /// The process.
    pub instance: String,
    /// Where it is asked; `None`: this node.
    pub url: Option<Url>,
    /// Name, weight, zone and spill.
    pub homed: Homed,
}

/// A question that may be asked now.
pub struct MayAsk {
    /// The nodes.
    pub table: Arc<HomeTable>,
    /// The number of purges that the home must have.
    pub applied: u64,
}

/// While one is held, this node asks no other one: a purge was made here of which others know nothing yet.
#[derive(Debug)]
pub struct Hold(Arc<AtomicU64>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Homes {
    /// No table yet: nobody is asked.
    pub fn new(name: String, secret: &[u8]) -> Homes {
        Homes {
            name,
            key: NodeKey::new(secret),
            counts: HomeCounts::default(),
            table: Mutex::default(),
            asks: AtomicBool::new(false),
            asking: AtomicU64::new(0),
            holds: Arc::default(),
            hot: Mutex::default(),
        }
    }

    /// A purge is about to be made here.
    pub fn hold(&self) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(Arc::clone(&self.holds))
    }

    /// Purges of the stream up to this one are about to come into force here.
    pub fn about_to_apply(&self, number: u64) {
        self.asking.fetch_max(number, Ordering::SeqCst);
    }

    /// Nobody is asked or answered until there is a table again: purges may be missing here, or numbers have another meaning.
    pub fn close(&self) {
        self.asks.store(false, Ordering::SeqCst);
        *self.table.lock() = None;
    }

    /// The state of the moment. `asks`: every purge that is in force here has a number of this stream, and others can be asked for it.
    pub fn publish(&self, stream: &str, facts: &[HomeFacts], applied: u64, asks: bool) {
        let mut held = self.table.lock();
        let before = held.as_deref();
        if before.is_none_or(|table| &*table.stream != stream || !table.is_of(facts)) {
            let is_other_stream = before.is_none_or(|table| &*table.stream != stream);
            if is_other_stream {
                self.asking.store(applied, Ordering::SeqCst);
            }
            *held = Some(Arc::new(HomeTable::new(stream, facts, before)));
        }
        drop(held);
        self.asks.store(asks, Ordering::SeqCst);
    }

    /// Whether a question may be asked now. To be called after the entry was begun that the answer goes into.
    pub fn may_ask(&self) -> Option<MayAsk> {
        if !self.asks.load(Ordering::SeqCst) || self.holds.load(Ordering::SeqCst) != 0 {
            return None;
        }
        let table = self.table()?;
        // Of the same stream as the table: a number of another one is never asked for with this one's name, for `close` comes between.
        Some(MayAsk { table, applied: self.asking.load(Ordering::SeqCst) })
    }

    /// The table, while this node answers.
    pub fn table(&self) -> Option<Arc<HomeTable>> {
        self.table.lock().clone()
    }

    /// Counts that a key was asked of its home; gives whether it is hot.
    pub fn is_hot(&self, key: u64, now: Instant) -> bool {
        self.hot.lock().count(key, now)
    }
}

/// How often keys were asked of their homes, about.
#[derive(Debug, Default)]
struct HotKeys {
    /// Empty until the first question.
    slots: Vec<u8>,
    halved: Option<Instant>,
}

impl HotKeys {
    fn count(&mut self, key: u64, now: Instant) -> bool {
        if self.slots.is_empty() {
            self.slots = vec![0; HOT_SLOTS];
        }
        let halved = *self.halved.get_or_insert(now);
        if now.saturating_duration_since(halved) >= HOT_WINDOW {
            self.slots.iter_mut().for_each(|slot| *slot /= 2);
            self.halved = Some(now);
        }
        let Some(slot) = self.slots.get_mut((key % HOT_SLOTS as u64) as usize) else { return false };
        *slot = slot.saturating_add(1);
        *slot >= HOT_ASKS
    }
}

impl HomeTable {
    fn new(stream: &str, facts: &[HomeFacts], before: Option<&HomeTable>) -> HomeTable {
        let homes = facts.iter().map(|facts| {
            let known = before.and_then(|table| table.homes.iter().find(|home| home.instance == facts.instance));
            let paused_until = known.map_or(0, |home| home.paused_until.load(Ordering::Relaxed));
            Home {
                name: facts.homed.name.as_str().into(),
                url: facts.url.clone(),
                homed: facts.homed.clone(),
                instance: facts.instance.clone(),
                paused_until: AtomicU64::new(paused_until),
            }
        });
        let homed: Vec<Homed> = facts.iter().map(|facts| facts.homed.clone()).collect();
        HomeTable { stream: stream.into(), homes: homes.collect(), order: Rendezvous::new(&homed) }
    }

    fn is_of(&self, facts: &[HomeFacts]) -> bool {
        let is_same = |(home, facts): (&Home, &HomeFacts)| {
            home.instance == facts.instance && home.url == facts.url && home.homed == facts.homed
        };
        self.homes.len() == facts.len() && self.homes.iter().zip(facts).all(is_same)
    }

    /// The nodes that are asked for a key, its home first: none where this node is its home. One that gave no answer a moment ago is
    /// passed over.
    pub fn homes_of(&self, key: u64, now: Duration) -> Vec<&Home> {
        let mut asked = Vec::new();
        for home in self.order.order(key).filter_map(|place| self.homes.get(place)) {
            if home.url.is_none() || asked.len() == HOMES_ASKED_MAX {
                break;
            }
            if home.paused_until.load(Ordering::Relaxed) <= millis(now) {
                asked.push(home);
            }
        }
        asked
    }

    /// The home of a key, be it this node.
    pub fn home_of(&self, key: u64) -> Option<&Home> {
        self.order.order(key).find_map(|place| self.homes.get(place))
    }

    /// The share of the keys that each node is the home of, as this node sees it, in thousandths.
    pub fn shares(&self) -> Vec<(Arc<str>, u32)> {
        let mut counts = vec![0_u64; self.homes.len()];
        for number in 0..SHARE_KEYS {
            if let Some(count) = self.order.order(hash(&number.to_le_bytes())).next().and_then(|at| counts.get_mut(at))
            {
                *count += 1;
            }
        }
        let share = |count: u64| u32::try_from(count * 1_000 / SHARE_KEYS).unwrap_or(0);
        self.homes.iter().zip(counts).map(|(home, count)| (Arc::clone(&home.name), share(count))).collect()
    }
}

impl Home {
    /// It gave no answer: it is not asked for a while.
    pub fn pause(&self, now: Duration) {
        self.paused_until.store(millis(now + PAUSE), Ordering::Relaxed);
    }
}

/// The number by which a key is placed: of its text, so that all nodes place it alike.
pub fn place_of(key: &[u8]) -> u64 {
    hash(key)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, is_own: bool) -> HomeFacts {
        let homed = Homed { name: name.to_owned(), weight: 1, is_near: true, spill: 0 };
        let url = (!is_own).then(|| Url::parse("http://127.0.0.1:4830/").unwrap());
        HomeFacts { instance: format!("i-{name}"), url, homed }
    }

    fn homes() -> Homes {
        let homes = Homes::new("a".to_owned(), &[1; 32]);
        homes.publish("x", &[facts("a", true), facts("b", false), facts("c", false)], 5, true);
        homes
    }

    fn place(number: u64) -> u64 {
        hash(&number.to_le_bytes())
    }

    #[test]
    fn a_key_of_this_node_is_asked_of_nobody() {
        let homes = homes();
        let table = homes.table().unwrap();
        let mut own = 0;
        for number in 0..3_000 {
            let (asked, home) = (table.homes_of(place(number), Duration::ZERO), table.home_of(place(number)).unwrap());
            assert_eq!(asked.is_empty(), home.url.is_none());
            assert!(asked.iter().all(|home| home.url.is_some()) && asked.len() <= 2);
            own += u32::from(asked.is_empty());
        }
        assert!((900..1_100).contains(&own), "{own}");
        assert!(table.shares().iter().all(|(_, share)| (300..370).contains(share)), "{:?}", table.shares());
    }

    #[test]
    fn a_node_that_gave_no_answer_is_passed_over_for_a_while() {
        let homes = homes();
        let table = homes.table().unwrap();
        let number = (0..).find(|number| table.homes_of(place(*number), Duration::ZERO).len() == 2).unwrap();
        let first = table.homes_of(place(number), Duration::ZERO)[0];
        first.pause(Duration::from_secs(9));
        let later = |table: &HomeTable, millis| {
            let asked = table.homes_of(place(number), Duration::from_millis(millis));
            asked.iter().map(|home| home.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(later(&table, 9_999).len(), 1);
        assert_eq!(later(&table, 10_000).len(), 2);
        // A table with one more node knows it, too.
        homes.publish("x", &[facts("a", true), facts("b", false), facts("c", false), facts("d", false)], 5, true);
        let found = homes.table().unwrap();
        assert!(!later(&found, 9_999).contains(&first.name.to_string()));
    }

    #[test]
    fn nobody_is_asked_while_a_purge_of_this_node_is_on_its_way() {
        let homes = homes();
        assert_eq!(homes.may_ask().map(|it| it.applied), Some(5));
        let (one, other) = (homes.hold(), homes.hold());
        drop(one);
        assert!(homes.may_ask().is_none());
        drop(other);
        homes.about_to_apply(7);
        homes.about_to_apply(6);
        assert_eq!(homes.may_ask().map(|it| it.applied), Some(7), "before it is in force");
        homes.publish("x", &[facts("a", true)], 6, false);
        assert!(homes.may_ask().is_none() && homes.table().is_some(), "it answers all the same");
        homes.publish("x", &[facts("a", true)], 6, true);
        assert_eq!(homes.may_ask().map(|it| it.applied), Some(7), "the table has another number than requests");
        homes.close();
        assert!(homes.may_ask().is_none() && homes.table().is_none());
        homes.publish("y", &[facts("a", true)], 2, true);
        assert_eq!(homes.may_ask().map(|it| it.applied), Some(2), "another stream has other numbers");
    }

    #[test]
    fn a_key_that_is_asked_for_again_and_again_is_hot() {
        let (homes, now) = (homes(), Instant::now());
        let asked = [1, 2, 3, 4].map(|_| homes.is_hot(3, now));
        assert_eq!(asked, [false, false, false, true]);
        assert!(!homes.is_hot(4, now));
        assert!(!homes.is_hot(3, now + HOT_WINDOW), "four are halved to two");
        assert!(homes.is_hot(3, now + HOT_WINDOW));
        (0..1_000).for_each(|_| _ = homes.is_hot(3, now));
    }
}
