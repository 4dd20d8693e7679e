//! The observations of one interval: classes of replies, connections, errors, and what the machine did meanwhile.
//!
//! All of it adds up: the intervals of several workers, and those of a whole phase, merge into one of the same type.

use super::{Histogram, MissCause, Side, Trouble};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Examples kept per kind of error and interval; the count goes on.
pub const EXHIBITS_MAX: usize = 3;

/// Figures of one interval (a second, if nothing else is said), of one worker or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Number of the phase that it belongs to, counted from 0.
    pub phase: u16,
    /// Start, in microseconds since the run began.
    pub at_us: u64,
    /// Length in microseconds.
    pub length_us: u64,
    /// Requests that were due in this interval by the schedule.
    pub due: u64,
    /// Requests that robots wanted to send: those that were due, and what the pages that arrived embed. Ledgers of before
    /// do not say.
    #[serde(skip_serializing_if = "is_none")]
    pub issued: u64,
    /// Requests that were sent.
    pub sent: u64,
    /// Of those, the ones that repeat an earlier request of any cachability.
    pub repeats: u64,
    /// Distinct URLs asked for the first time.
    pub fresh_urls: u64,
    /// Of those, the ones that one robot alone asks for.
    #[serde(skip_serializing_if = "is_none")]
    pub fresh_private: u64,
    /// Requests that were sent for what one robot alone asks for.
    #[serde(skip_serializing_if = "is_none")]
    pub private: u64,
    /// Replies that ended before they were whole: they are in no class.
    #[serde(skip_serializing_if = "is_none")]
    pub incomplete: u64,
    /// Replies by class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<Class, Figures>,
    /// From the first byte sent to the last byte received: all, hits, misses.
    #[serde(skip_serializing_if = "Service::is_empty")]
    pub service: Service,
    /// Times of small hits on connections of HTTP/2, from the first byte sent to the last received.
    #[serde(skip_serializing_if = "Streams::is_empty")]
    pub streams: Streams,
    /// From the first byte sent to the first byte received.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub first_byte: Histogram,
    /// How long a request waited for a connection.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub wait: Histogram,
    /// How long a connection took to be made.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub connect: Histogram,
    /// How long a TLS handshake of a robot took.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub handshake: Histogram,
    /// Lateness of the referee itself: from the intended to the real start of a request that had nothing to wait for.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub lateness: Histogram,
    /// Connections on both sides of the cache.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<Side, Connections>,
    /// The figures of the origins.
    pub origin: OriginFigures,
    /// Errors by kind.
    #[serde(skip_serializing_if = "Errors::is_empty")]
    pub errors: Errors,
    /// Missing hits by cause.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<MissCause, u64>,
    /// Levels at the end of the interval.
    pub levels: Levels,
    /// Processes and machine over the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

impl Interval {
    /// Adds what another worker observed in the same interval: levels add up.
    pub fn merge(&mut self, other: &Self) {
        self.count(other);
        self.levels.merge(&other.levels);
        for (side, connections) in &other.connections {
            let mine = self.connections.entry(*side).or_default();
            (mine.open, mine.idle) = (mine.open + connections.open, mine.idle + connections.idle);
        }
        self.load = match (self.load, other.load) {
            (Some(mine), Some(other)) => Some(mine.beside(&other)),
            (mine, other) => mine.or(other),
        };
    }

    /// Adds a later interval: its levels replace the ones before.
    pub fn extend(&mut self, later: &Self) {
        self.length_us += later.length_us;
        self.count(later);
        self.levels = later.levels;
        for (side, connections) in &later.connections {
            let mine = self.connections.entry(*side).or_default();
            (mine.open, mine.idle) = (connections.open, connections.idle);
        }
        self.load = later.load.or(self.load);
    }

    fn count(&mut self, other: &Self) {
        self.due += other.due;
        self.issued += other.issued;
        self.sent += other.sent;
        self.repeats += other.repeats;
        self.fresh_urls += other.fresh_urls;
        self.fresh_private += other.fresh_private;
        self.private += other.private;
        self.incomplete += other.incomplete;
        for (class, figures) in &other.classes {
            self.classes.entry(*class).or_default().merge(figures);
        }
        self.service.merge(&other.service);
        self.streams.merge(&other.streams);
        self.first_byte.merge(&other.first_byte);
        self.wait.merge(&other.wait);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.lateness.merge(&other.lateness);
        for (side, connections) in &other.connections {
            self.connections.entry(*side).or_default().count(connections);
        }
        self.origin.merge(&other.origin);
        self.errors.merge(&other.errors);
        for (cause, count) in &other.missing {
            *self.missing.entry(*cause).or_default() += count;
        }
    }

    /// Adds a later interval of the same phase: like [`Self::extend`], and the load is that of both.
    pub fn follow(&mut self, later: &Self) {
        let load = match (self.load, later.load) {
            (Some(before), Some(after)) => Some(before.then(&after, self.length_us, later.length_us)),
            (before, after) => before.or(after),
        };
        self.extend(later);
        self.load = load;
    }

    /// Keeps times to one part in 32, and no sizes: an interval beside a total that has all of it.
    pub(super) fn roughen(&mut self) {
        let change = |histogram: &mut Histogram| *histogram = histogram.thinned();
        for figures in self.classes.values_mut() {
            change(&mut figures.response);
            figures.size = Histogram::NONE;
        }
        let Service { all, hit, collapsed, miss, alone, alone_links } = &mut self.service;
        let Streams { alone: small_alone, beside_large } = &mut self.streams;
        let Self { first_byte, wait, connect, handshake, lateness, origin, .. } = self;
        let OriginFigures { think, service, .. } = origin;
        let times = [all, hit, collapsed, miss, alone, alone_links, think, service];
        let others = [small_alone, beside_large, first_byte, wait, connect, handshake, lateness];
        times.into_iter().chain(others).for_each(change);
    }

    /// Figures of a class; empty ones where nothing was observed.
    pub fn class(&self, class: Class) -> &Figures {
        static NONE: Figures = Figures::NONE;
        self.classes.get(&class).unwrap_or(&NONE)
    }

    /// Replies of any kind.
    pub fn replies(&self) -> u64 {
        self.class(Class::All).replies
    }
}

/// A class of replies. A reply belongs to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Every reply.
    All,
    /// Basic requests that were answered whole: what DHR and BHR are computed from.
    Basic,
    /// Basic, and answered from the store: no origin transaction answered it, or was under way to do so.
    Hit,
    /// Basic, and answered by a fetch for an earlier request that was under way: the cache made it wait.
    Collapsed,
    /// Basic, and answered by the origin.
    Miss,
    /// Basic, and a store may keep it.
    Cachable,
    /// Basic, and no store may keep it.
    Uncachable,
    /// Basic, cachable and not a hit: what fills the cache.
    Fill,
    /// Conditional requests.
    Validation,
    /// Reloads.
    Reload,
    /// Requests for a range.
    Range,
    /// Requests with a body.
    Upload,
    /// HEAD requests.
    Head,
    /// Requests that were redirected.
    Redirect,
    /// Invalidations.
    Purge,
    /// CONNECT requests.
    Tunnel,
    /// Pages that an application made.
    Page,
    /// Replies that one side broke off on purpose.
    Aborted,
    /// A content type, by its number in [`super::Run::contents`].
    Content(u8),
    /// A status.
    Status(u16),
}

impl Class {
    /// Those with a word of their own; the recorder's places are in the same order.
    pub(super) const NAMED: [(Self, &'static str); 18] = [
        (Self::All, "all"),
        (Self::Basic, "basic"),
        (Self::Hit, "hit"),
        (Self::Miss, "miss"),
        (Self::Cachable, "cachable"),
        (Self::Uncachable, "uncachable"),
        (Self::Fill, "fill"),
        (Self::Validation, "validation"),
        (Self::Reload, "reload"),
        (Self::Range, "range"),
        (Self::Upload, "upload"),
        (Self::Head, "head"),
        (Self::Redirect, "redirect"),
        (Self::Purge, "purge"),
        (Self::Tunnel, "tunnel"),
        (Self::Aborted, "aborted"),
        (Self::Collapsed, "collapsed"),
        (Self::Page, "page"),
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(number) => write!(f, "content:{number}"),
            Self::Status(status) => write!(f, "status:{status}"),
            named => f.write_str(Self::NAMED.iter().find(|(class, _)| class == named).map_or("", |(_, word)| word)),
        }
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("unknown class {text:?}");
        match text.split_once(':') {
            Some(("content", number)) => number.parse().map(Self::Content).map_err(|_| unknown()),
            Some(("status", status)) => status.parse().map(Self::Status).map_err(|_| unknown()),
            _ => Self::NAMED.iter().find(|(_, word)| *word == text).map(|(class, _)| *class).ok_or_else(unknown),
        }
    }
}

impl Serialize for Class {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Class {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The figures of a class of replies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Replies.
    pub replies: u64,
    /// Of those, answered without an origin transaction of their own: from the store or by a fetch that was under way.
    pub hits: u64,
    /// Of those, the latter.
    #[serde(skip_serializing_if = "is_none")]
    pub collapsed: u64,
    /// Of those, the ones an ideal cache of unlimited size would have answered.
    pub offered: u64,
    /// Bytes received, heads included.
    pub bytes: u64,
    /// Bytes of the hits, heads included, collapsed ones too.
    pub hit_bytes: u64,
    /// Bytes of the offered hits, heads included.
    pub offered_bytes: u64,
    /// From the intended start to the last byte, in microseconds.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub response: Histogram,
    /// Size of the bodies received, in bytes.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub size: Histogram,
}

impl Figures {
    const NONE: Self = Self {
        replies: 0,
        hits: 0,
        collapsed: 0,
        offered: 0,
        bytes: 0,
        hit_bytes: 0,
        offered_bytes: 0,
        response: Histogram::NONE,
        size: Histogram::NONE,
    };

    fn merge(&mut self, other: &Self) {
        self.replies += other.replies;
        self.hits += other.hits;
        self.collapsed += other.collapsed;
        self.offered += other.offered;
        self.bytes += other.bytes;
        self.hit_bytes += other.hit_bytes;
        self.offered_bytes += other.offered_bytes;
        self.response.merge(&other.response);
        self.size.merge(&other.size);
    }
}

/// Times of small hits on connections of HTTP/2, from the first byte sent: whether they wait for large replies beside them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streams {
    /// Nothing else was under way on the connection.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub alone: Histogram,
    /// A large reply was under way when the request was sent.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub beside_large: Histogram,
}

impl Streams {
    fn is_empty(&self) -> bool {
        self.alone.is_empty() && self.beside_large.is_empty()
    }

    fn merge(&mut self, other: &Self) {
        self.alone.merge(&other.alone);
        self.beside_large.merge(&other.beside_large);
    }
}

/// Times that count from the first byte sent instead of the intended start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// All replies.
    pub all: Histogram,
    /// Basic hits from the store.
    pub hit: Histogram,
    /// Basic replies that waited for a fetch under way.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub collapsed: Histogram,
    /// Basic misses.
    pub miss: Histogram,
    /// Of those, the ones that nobody was asking for when they were sent: no cache has a reason to hold them back.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub alone: Histogram,
    /// Of the times of those, what the modelled link between robot and cache took.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub alone_links: Histogram,
}

impl Service {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn merge(&mut self, other: &Self) {
        self.all.merge(&other.all);
        self.hit.merge(&other.hit);
        self.collapsed.merge(&other.collapsed);
        self.miss.merge(&other.miss);
        self.alone.merge(&other.alone);
        self.alone_links.merge(&other.alone_links);
    }
}

/// Connections on one side of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Made (client side) or accepted (server side).
    pub opened: u64,
    /// Ended by us because the use limit was reached or the client was done.
    pub closed: u64,
    /// Ended by the cache.
    pub closed_by_cache: u64,
    /// Requests sent on a connection that had carried one before.
    pub reused: u64,
    /// Requests that were sent again because a re-used connection had died.
    pub retried: u64,
    /// TLS handshakes that succeeded.
    #[serde(skip_serializing_if = "is_none")]
    pub handshakes: u64,
    /// Of those, the ones that resumed an earlier session.
    #[serde(skip_serializing_if = "is_none")]
    pub resumed: u64,
    /// Open at the end of the interval.
    pub open: u64,
    /// Of those, without a request under way.
    pub idle: u64,
}

impl Connections {
    fn count(&mut self, other: &Self) {
        self.opened += other.opened;
        self.closed += other.closed;
        self.closed_by_cache += other.closed_by_cache;
        self.reused += other.reused;
        self.retried += other.retried;
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
    }
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// The figures of the origins: the requests that reached them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginFigures {
    /// Requests received.
    pub requests: u64,
    /// Bytes of replies sent, heads included.
    pub bytes: u64,
    /// Answers without a body because the cache's copy was still right.
    pub not_modified: u64,
    /// Partial answers.
    pub partial: u64,
    /// Answers that a fault of the workload spoilt on purpose.
    pub faults: u64,
    /// Bytes sent of objects that had been sent whole before and had not changed.
    pub bytes_again: u64,
    /// Think times in microseconds, as drawn.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub think: Histogram,
    /// From a whole request to the last byte of its answer, in microseconds: think time and link.
    #[serde(skip_serializing_if = "Histogram::is_empty")]
    pub service: Histogram,
}

impl OriginFigures {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.not_modified += other.not_modified;
        self.partial += other.partial;
        self.faults += other.faults;
        self.bytes_again += other.bytes_again;
        self.think.merge(&other.think);
        self.service.merge(&other.service);
    }
}

/// Levels, read at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Levels {
    /// Robots alive.
    pub robots: u64,
    /// Requests under way.
    pub under_way: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Objects in the working set.
    pub working_set: u64,
    /// Worlds that these belong to: public ones of a server and a content type, private ones of a robot and a content type.
    pub worlds: u64,
    /// Share of the robots that the schedule wants alive.
    pub populus: f32,
    /// Multiplier of the rate.
    pub load: f32,
    /// Multiplier of the recurrence.
    pub recurrence: f32,
    /// Multiplier of the share of requests that are not basic.
    pub special: f32,
}

impl Levels {
    /// Numbers add up over workers; factors are the same for all.
    fn merge(&mut self, other: &Self) {
        self.robots += other.robots;
        self.under_way += other.under_way;
        self.waiting += other.waiting;
        self.working_set += other.working_set;
        self.worlds += other.worlds;
        self.populus = self.populus.max(other.populus);
        self.load = self.load.max(other.load);
        self.recurrence = self.recurrence.max(other.recurrence);
        self.special = self.special.max(other.special);
    }
}

/// The load of processes and of the machine in an interval. CPU is in cores: 1 is one core busy all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// CPU of the referee.
    pub own_cpu: f32,
    /// CPU of the busiest thread of the referee.
    pub own_thread_cpu: f32,
    /// CPU of the cache under test, if its processes are known.
    pub cache_cpu: f32,
    /// Of that, what programs other than the cache's own used: helpers, and cleaners of its store.
    pub cache_helpers: f32,
    /// Of the CPU of the cache, the share spent in the kernel.
    pub cache_kernel: f32,
    /// Memory of the cache in bytes: proportional set size where the kernel tells it, else resident set size.
    pub cache_memory: u64,
    /// Open files of the cache.
    pub cache_descriptors: u64,
    /// Processes of the cache.
    pub cache_processes: u64,
    /// Threads of the cache.
    pub cache_threads: u64,
    /// Bytes that the cache wrote to a device.
    pub cache_written: u64,
    /// Bytes that the cache read from a device.
    pub cache_read: u64,
    /// CPU of all other processes.
    pub others_cpu: f32,
    /// CPU that the hypervisor gave to somebody else.
    pub steal: f32,
    /// Open files of the referee.
    pub own_descriptors: u64,
    /// Resident memory of the referee in bytes.
    pub own_memory: u64,
    /// Energy of the machine's processors and their memory in microjoules; absent where no counter can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_uj: Option<u64>,
}

impl Load {
    /// The load of a time and of the one after it: CPU is the mean over both, bytes to and from devices add up, and of what was
    /// held the most counts.
    fn then(self, later: &Self, length_us: u64, later_us: u64) -> Self {
        let share = later_us as f32 / (length_us + later_us).max(1) as f32;
        let mean = |before: f32, after: f32| before + (after - before) * share;
        Self {
            own_cpu: mean(self.own_cpu, later.own_cpu),
            own_thread_cpu: mean(self.own_thread_cpu, later.own_thread_cpu),
            cache_cpu: mean(self.cache_cpu, later.cache_cpu),
            cache_helpers: mean(self.cache_helpers, later.cache_helpers),
            cache_kernel: mean(self.cache_kernel, later.cache_kernel),
            cache_memory: self.cache_memory.max(later.cache_memory),
            cache_descriptors: self.cache_descriptors.max(later.cache_descriptors),
            cache_processes: self.cache_processes.max(later.cache_processes),
            cache_threads: self.cache_threads.max(later.cache_threads),
            cache_written: self.cache_written + later.cache_written,
            cache_read: self.cache_read + later.cache_read,
            others_cpu: mean(self.others_cpu, later.others_cpu),
            steal: mean(self.steal, later.steal),
            own_descriptors: self.own_descriptors.max(later.own_descriptors),
            own_memory: self.own_memory.max(later.own_memory),
            energy_uj: sum(self.energy_uj, later.energy_uj),
        }
    }

    /// The load of two machines: what was used adds up, and of what disturbs or limits one of them the larger counts.
    fn beside(self, other: &Self) -> Self {
        Self {
            own_cpu: self.own_cpu + other.own_cpu,
            own_thread_cpu: self.own_thread_cpu.max(other.own_thread_cpu),
            cache_cpu: self.cache_cpu + other.cache_cpu,
            cache_helpers: self.cache_helpers + other.cache_helpers,
            cache_kernel: self.cache_kernel.max(other.cache_kernel),
            cache_memory: self.cache_memory + other.cache_memory,
            cache_descriptors: self.cache_descriptors + other.cache_descriptors,
            cache_processes: self.cache_processes + other.cache_processes,
            cache_threads: self.cache_threads + other.cache_threads,
            cache_written: self.cache_written + other.cache_written,
            cache_read: self.cache_read + other.cache_read,
            others_cpu: self.others_cpu.max(other.others_cpu),
            steal: self.steal.max(other.steal),
            own_descriptors: self.own_descriptors + other.own_descriptors,
            own_memory: self.own_memory + other.own_memory,
            energy_uj: sum(self.energy_uj, other.energy_uj),
        }
    }
}

/// A part of the energy is no figure: both, or none.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one?.checked_add(other?)
}

/// Errors by kind, with a few examples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Errors {
    /// How many.
    pub counts: BTreeMap<Trouble, u64>,
    /// The first ones of each kind.
    pub exhibits: Vec<Exhibit>,
}

impl Errors {
    /// Counts one error; `exhibit` is called only while examples of its kind are still wanted.
    pub fn add(&mut self, trouble: Trouble, exhibit: impl FnOnce() -> Exhibit) {
        let count = self.counts.entry(trouble).or_default();
        *count += 1;
        if *count <= EXHIBITS_MAX as u64 {
            self.exhibits.push(exhibit());
        }
    }

    /// How many there were of a kind.
    pub fn of(&self, trouble: Trouble) -> u64 {
        self.counts.get(&trouble).copied().unwrap_or(0)
    }

    /// All errors; remarks are none.
    pub fn total(&self) -> u64 {
        self.counts.iter().filter(|(trouble, _)| !trouble.is_remark()).map(|(_, count)| count).sum()
    }

    /// Wrong answers.
    pub fn lies(&self) -> u64 {
        self.counts.iter().filter(|(trouble, _)| trouble.is_lie()).map(|(_, count)| count).sum()
    }

    /// Remarks: they are told, and are no errors.
    pub fn remarks(&self) -> u64 {
        self.counts.iter().filter(|(trouble, _)| trouble.is_remark()).map(|(_, count)| count).sum()
    }

    /// Whether there were none, and no remarks either.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    fn merge(&mut self, other: &Self) {
        for (trouble, count) in &other.counts {
            *self.counts.entry(*trouble).or_default() += count;
        }
        for exhibit in &other.exhibits {
            if self.exhibits.iter().filter(|kept| kept.trouble == exhibit.trouble).count() < EXHIBITS_MAX {
                self.exhibits.push(exhibit.clone());
            }
        }
    }
}

/// One error in full, so that it can be reproduced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhibit {
    /// Its kind.
    pub trouble: Trouble,
    /// Microseconds since the run began.
    pub at_us: u64,
    /// The requested URL.
    pub url: String,
    /// The expected and the actual value.
    pub detail: String,
}
