//! The counters of one worker thread: no lock, no allocation per reply.

use super::interval::{
    Class, Connections, Errors, Exhibit, Figures, Interval, Levels, OriginFigures, Service, Streams,
};
use super::{Bucket, Kind, MissCause, Side, Tally, Trouble};
use std::time::Duration;

/// Statuses and content types that get a class of their own; what is above is counted in the other classes only.
const CLASSES_MAX: usize = 64;

/// One reply as the robot judged it.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The kind of request.
    pub kind: Kind,
    /// Content type, by its number in [`super::Run::contents`].
    pub content: u8,
    /// Status of the reply.
    pub status: u16,
    /// Whether a store may keep it.
    pub cachable: bool,
    /// Whether an ideal cache would have answered it.
    pub offered: bool,
    /// Whether the cache or the origin answered it.
    pub served: Served,
    /// Whether one side broke it off on purpose.
    pub aborted: bool,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the body that arrived.
    pub body_bytes: u64,
    /// From the intended start to the last byte.
    pub response: Duration,
    /// From the first byte sent to the last byte.
    pub service: Duration,
    /// Of that, what the modelled link between robot and cache took: until all of the request was there, and its last byte back.
    pub across: Duration,
    /// Whether somebody else was asking for the same object when it was sent.
    pub behind: bool,
    /// From the first byte sent to the first byte received.
    pub first_byte: Duration,
    /// Time spent waiting for a connection.
    pub wait: Duration,
    /// Why an offered hit was not given.
    pub missing: Option<MissCause>,
    /// The requests beside it on a connection of HTTP/2, where that tells of the fairness between streams.
    pub beside: Option<Beside>,
}

/// The requests beside that for a small object, on a connection of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// None was under way, from its first byte to its last.
    Nothing,
    /// A large reply was under way when it was sent.
    Large,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The cache's store.
    Hit,
    /// A fetch for an earlier request that was under way.
    Collapsed,
    /// The origin, through the cache or without one.
    Miss,
}

/// Counts of one worker since it was last asked.
#[derive(Debug, Default)]
pub struct Recorder {
    named: [ClassTally; NAMED],
    contents: Vec<ClassTally>,
    statuses: Vec<(u16, ClassTally)>,
    service: [Tally; 6],
    streams: [Tally; 2],
    first_byte: Tally,
    wait: Tally,
    connect: Tally,
    handshake: Tally,
    lateness: Tally,
    think: Tally,
    origin_service: Tally,
    plain: Interval,
    connections: [Connections; 2],
}

const NAMED: usize = 18;

const ALL: usize = 0;
const BASIC: usize = 1;
const HIT: usize = 2;
const MISS: usize = 3;
const CACHABLE: usize = 4;
const UNCACHABLE: usize = 5;
const FILL: usize = 6;
const ABORTED: usize = 15;
const COLLAPSED: usize = 16;

impl Recorder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request became due by the schedule.
    pub fn due(&mut self) {
        self.plain.due += 1;
    }

    /// A robot wants to send a request: it goes out as soon as a connection may carry it.
    pub fn issued(&mut self) {
        self.plain.issued += 1;
    }

    /// A request was sent. `repeat`: it had been asked for before. `private`: one robot alone asks for it. `late`: from its
    /// intended start to now, unless it had to wait for a connection.
    pub fn sent(&mut self, repeat: bool, private: bool, late: Option<Duration>) {
        self.plain.sent += 1;
        self.plain.private += u64::from(private);
        match repeat {
            true => self.plain.repeats += 1,
            false => {
                self.plain.fresh_urls += 1;
                self.plain.fresh_private += u64::from(private);
            }
        }
        if let Some(late) = late {
            self.lateness.add(micros(late));
        }
    }

    /// A reply ended before it was whole. Its error is told by [`Self::error`], unless the workload made it so.
    pub fn incomplete(&mut self) {
        self.plain.incomplete += 1;
    }

    /// A reply was read to its end and judged. Its trouble, if any, is counted by [`Self::error`] besides.
    pub fn reply(&mut self, reply: &Reply) {
        let sample = Sample::of(reply);
        self.named[ALL].add(reply, &sample);
        self.kinds(reply, &sample);
        let content = usize::from(reply.content);
        if content < CLASSES_MAX {
            if content >= self.contents.len() {
                self.contents.resize_with(content + 1, ClassTally::default);
            }
            self.contents[content].add(reply, &sample);
        }
        if let Some(tally) = self.status(reply.status) {
            tally.add(reply, &sample);
        }
        self.service[0].add(micros(reply.service));
        if let Some(beside) = reply.beside.filter(|_| reply.served == Served::Hit) {
            self.streams[beside as usize].add(micros(reply.service));
        }
        self.first_byte.add(micros(reply.first_byte));
        self.wait.add(micros(reply.wait));
        if let Some(cause) = reply.missing {
            *self.plain.missing.entry(cause).or_default() += 1;
        }
    }

    fn kinds(&mut self, reply: &Reply, sample: &Sample) {
        let basic = reply.kind == Kind::Basic && !reply.aborted;
        let (class, service) = match reply.served {
            Served::Hit => (HIT, 1),
            Served::Collapsed => (COLLAPSED, 4),
            Served::Miss => (MISS, 2),
        };
        let missed = reply.served == Served::Miss;
        if reply.aborted {
            self.named[ABORTED].add(reply, sample);
        }
        if !basic {
            if let Some(place) = place_of(reply.kind) {
                self.named[place].add(reply, sample);
            }
            return;
        }
        self.named[BASIC].add(reply, sample);
        self.named[class].add(reply, sample);
        self.named[if reply.cachable { CACHABLE } else { UNCACHABLE }].add(reply, sample);
        if reply.cachable && missed {
            self.named[FILL].add(reply, sample);
        }
        self.service[service].add(micros(reply.service));
        if missed && !reply.behind {
            self.service[3].add(micros(reply.service));
            if !reply.across.is_zero() {
                self.service[5].add(micros(reply.across));
            }
        }
    }

    fn status(&mut self, status: u16) -> Option<&mut ClassTally> {
        let index = match self.statuses.iter().position(|(each, _)| *each == status) {
            Some(index) => index,
            None if self.statuses.len() < CLASSES_MAX => {
                self.statuses.push((status, ClassTally::default()));
                self.statuses.len() - 1
            }
            None => return None,
        };
        Some(&mut self.statuses[index].1)
    }

    /// Something went wrong; `exhibit` is called only while examples of its kind are still wanted.
    pub fn error(&mut self, trouble: Trouble, exhibit: impl FnOnce() -> Exhibit) {
        self.plain.errors.add(trouble, exhibit);
    }

    /// A connection was made (client side: in how much time) or accepted (server side).
    pub fn connected(&mut self, side: Side, took: Option<Duration>) {
        self.side(side).opened += 1;
        if let Some(took) = took {
            self.connect.add(micros(took));
        }
    }

    /// A TLS handshake succeeded; on the client side, in how much time.
    pub fn shaken(&mut self, side: Side, resumed: bool, took: Option<Duration>) {
        let counts = self.side(side);
        counts.handshakes += 1;
        counts.resumed += u64::from(resumed);
        if let Some(took) = took {
            self.handshake.add(micros(took));
        }
    }

    /// Counters of the connections on a side, to be added to; `open` and `idle` are set, not added.
    pub fn side(&mut self, side: Side) -> &mut Connections {
        &mut self.connections[side as usize]
    }

    /// The figures of this worker's origins, to be added to.
    pub fn origin(&mut self) -> &mut OriginFigures {
        &mut self.plain.origin
    }

    /// An origin drew a think time.
    pub fn thought(&mut self, think: Duration) {
        self.think.add(micros(think));
    }

    /// An origin's answer has left.
    pub fn answered(&mut self, after: Duration) {
        self.origin_service.add(micros(after));
    }

    /// Errors so far in this interval.
    pub fn errors(&self) -> &Errors {
        &self.plain.errors
    }

    /// Sets the levels of this worker at the end of the interval.
    pub fn set_levels(&mut self, levels: Levels) {
        self.plain.levels = levels;
    }

    /// Hands over what was counted, and starts from nothing. Levels and open connections stay as they were.
    pub fn take(&mut self, phase: u16, at: Duration, length: Duration) -> Interval {
        let levels = self.plain.levels;
        let mut interval = std::mem::take(&mut self.plain);
        self.plain.levels = levels;
        (interval.phase, interval.at_us, interval.length_us) = (phase, micros(at), micros(length));
        for ((class, _), tally) in Class::NAMED.into_iter().zip(&mut self.named) {
            tally.give(class, &mut interval);
        }
        for (number, tally) in self.contents.iter_mut().enumerate() {
            tally.give(Class::Content(number as u8), &mut interval);
        }
        for (status, tally) in &mut self.statuses {
            tally.give(Class::Status(*status), &mut interval);
        }
        let [all, hit, miss, alone, collapsed, alone_links] = self.service.each_mut().map(Tally::take);
        interval.service = Service { all, hit, collapsed, miss, alone, alone_links };
        let [alone, beside_large] = self.streams.each_mut().map(Tally::take);
        interval.streams = Streams { alone, beside_large };
        interval.first_byte = self.first_byte.take();
        interval.wait = self.wait.take();
        interval.connect = self.connect.take();
        interval.handshake = self.handshake.take();
        interval.lateness = self.lateness.take();
        interval.origin.think = self.think.take();
        interval.origin.service = self.origin_service.take();
        for side in Side::ALL {
            let counts = &mut self.connections[*side as usize];
            let (open, idle) = (counts.open, counts.idle);
            if *counts != Connections::default() {
                interval.connections.insert(*side, std::mem::take(counts));
            }
            (counts.open, counts.idle) = (open, idle);
        }
        interval
    }
}

/// Where the class of a kind stands in [`Class::NAMED`]. An aborted basic request is in no class of its kind.
fn place_of(kind: Kind) -> Option<usize> {
    Some(match kind {
        Kind::Basic => return None,
        Kind::Validation => 7,
        Kind::Reload => 8,
        Kind::Range => 9,
        Kind::Upload => 10,
        Kind::Head => 11,
        Kind::Redirect => 12,
        Kind::Purge => 13,
        Kind::Tunnel => 14,
        Kind::Page => 17,
    })
}

/// Values of a reply with their buckets, computed once for all its classes.
struct Sample {
    response: u64,
    response_bucket: Bucket,
    size_bucket: Bucket,
}

impl Sample {
    fn of(reply: &Reply) -> Self {
        let response = micros(reply.response);
        Self { response, response_bucket: Bucket::of(response), size_bucket: Bucket::of(reply.body_bytes) }
    }
}

#[derive(Debug, Default)]
struct ClassTally {
    figures: Figures,
    response: Tally,
    size: Tally,
}

impl ClassTally {
    fn add(&mut self, reply: &Reply, sample: &Sample) {
        let bytes = reply.head_bytes + reply.body_bytes;
        self.figures.replies += 1;
        self.figures.bytes += bytes;
        if reply.served != Served::Miss {
            self.figures.hits += 1;
            self.figures.collapsed += u64::from(reply.served == Served::Collapsed);
            self.figures.hit_bytes += bytes;
        }
        if reply.offered {
            self.figures.offered += 1;
            self.figures.offered_bytes += bytes;
        }
        self.response.add_at(sample.response_bucket, sample.response);
        self.size.add_at(sample.size_bucket, reply.body_bytes);
    }

    fn give(&mut self, class: Class, interval: &mut Interval) {
        if self.figures.replies == 0 {
            return;
        }
        let mut figures = std::mem::take(&mut self.figures);
        figures.response = self.response.take();
        figures.size = self.size.take();
        interval.classes.insert(class, figures);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
