//! The thread of a node: what comes from NATS, from the rest of the server and from the clock, one after the other.

mod own_purges;
mod shown;

use super::files::{Outbox, PositionFile};
use super::members::{BEAT_EVERY, Members};
use super::message::{Heartbeat, MESSAGE_VERSION, PurgeMessage, Refusal};
use super::nats::{self, Arrived, News, NotTaken, Numbers};
use super::replica::{GATE_AFTER, Replica, Seen, StreamFacts};
use super::waiting::Waiting;
use super::{Cluster, Order, Orders, Spread, mark};
use crate::clock;
use crate::config::{Apart, ClusterSettings};
use async_nats::jetstream::Context;
use async_nats::{Client, connection::State};
use futures_util::StreamExt;
use larder_cache::cache::Cache;
use larder_cache::store::rules::{Force, Scope};
use larder_wire::date::Stamp;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// How often the gate is looked after.
const TICK: Duration = Duration::from_millis(100);

/// How often the place in the stream is written down.
const POSITION_EVERY: Duration = Duration::from_secs(1);

/// How often digests are compared, and the shortest time between two readings of the whole stream.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// The longest time between two readings, where a difference stays.
const READ_AGAIN_MAX: Duration = Duration::from_secs(600);

/// A reader that brings nothing for so long, though the stream has more, is begun anew.
const READER_STALLS_AFTER: Duration = Duration::from_secs(2);

/// Purges that are being published at a time.
const PUBLISHING_MAX: usize = 1_024;

/// Purges that are applied together, with one sync of the disk.
const BATCH_PURGES: usize = 1_024;

/// Results of tasks that wait to be looked at.
const EVENTS_MAX: usize = PUBLISHING_MAX + 16;

/// A kind of refused message is logged so often at most.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The parts of the server that a node meets.
pub struct Surroundings {
    /// The settings of the start.
    pub settings: ClusterSettings,
    /// The name of the node.
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    /// The folder of the store.
    pub folder: PathBuf,
    /// The cache.
    pub cache: Arc<Cache>,
    /// `cluster.apart`, which a reload may change.
    pub apart: Box<dyn Fn() -> Apart + Send>,
    /// Requests since the start, and how often the settings were read.
    pub load: Box<dyn Fn() -> (u64, u64) + Send>,
}

/// The result of a task.
enum Event {
    /// When the stream was asked, what was applied then, and what it says.
    Looked((Instant, u64), Result<StreamFacts, String>),
    Published {
        purges: Vec<PurgeMessage>,
        /// The newest number that was known to any node when publishing began.
        newest: u64,
        reply: oneshot::Sender<Spread>,
        result: Result<Numbers, NotTaken>,
    },
    Replayed {
        count: usize,
        result: Result<Numbers, NotTaken>,
    },
    ReaderEnded(u64, String),
}

struct Node {
    cluster: Arc<Cluster>,
    around: Surroundings,
    /// The name of this process.
    instance: String,
    client: Client,
    context: Context,
    events: Sender<Event>,
    members: Members,
    replica: Replica,
    position: PositionFile,
    /// Whether the place may be written down: all purges up to it are on disk.
    is_durable: bool,
    outbox: Option<Outbox>,
    waiting: Waiting,
    /// Purges of this process that are in force here already, until they come back from the stream.
    own: HashSet<String>,
    messages: u64,
    /// How often a connection was made, and when the last one was seen.
    connected: (u64, Instant),
    publishing: usize,
    is_replaying: bool,
    is_looking: bool,
    reader: Option<Reader>,
    readers: u64,
    /// All of the stream was read, so that only new purges are missing and the digest means something.
    has_whole: bool,
    /// The stream as it was seen last.
    facts: Option<StreamFacts>,
    trouble: Option<String>,
    gate: GateState,
    requests: Rate,
    began: Instant,
    compared: Instant,
    read_again: (Instant, Duration),
    written: Instant,
    logged: [Option<Instant>; Refusal::ALL.len()],
}

/// A task that reads the stream.
struct Reader {
    number: u64,
    task: JoinHandle<()>,
    purges: Receiver<Arrived>,
    /// The end of the stream when it was begun.
    until: u64,
    /// The last number that came, and when one came.
    last: (u64, Instant),
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GateState {
    Open,
    Shut,
    Off,
}

/// Requests a second, between two heartbeats.
struct Rate {
    at: Instant,
    requests: u64,
    per_second: u64,
}

/// Is a node until told to stop.
pub fn run(cluster: Arc<Cluster>, orders: Orders, around: Surroundings, stop: impl Future<Output = ()>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(cluster, orders, around, stop)),
        Err(error) => tracing::error!(%error, "no runtime for the cluster: raise the open file limit"),
    }
}

async fn serve(
    cluster: Arc<Cluster>,
    Orders(mut orders): Orders,
    around: Surroundings,
    stop: impl Future<Output = ()>,
) {
    let (tell, mut news) = channel(64);
    let client = match nats::connect(&around.settings, &around.name, tell).await {
        Ok(client) => client,
        Err(error) => return tracing::error!("this node is in no cluster: {error}"),
    };
    let members = client.subscribe(format!("{}.members.*", around.settings.subjects)).await;
    let mut beats = match members {
        Ok(beats) => beats,
        Err(error) => return tracing::error!(%error, "this node is in no cluster"),
    };
    let (events, mut done) = channel(EVENTS_MAX);
    let mut node = Node::new(cluster, around, client, events);
    let mut beat = tokio::time::interval(BEAT_EVERY);
    let mut tick = tokio::time::interval(TICK);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return node.leave(&mut orders).await,
            Some(event) = done.recv() => node.finish(event).await,
            Some(message) = beats.next() => node.hear(&message.subject, &message.payload),
            Some(arrived) = next_purge(&mut node.reader) => node.take(arrived).await,
            Some(order) = orders.recv(), if node.publishing < PUBLISHING_MAX => node.obey(order),
            Some(news) = news.recv() => node.learn(news),
            _ = beat.tick() => node.beat(Leaves::No).await,
            _ = tick.tick() => node.tick(),
        }
        node.settle();
    }
}

async fn next_purge(reader: &mut Option<Reader>) -> Option<Arrived> {
    match reader {
        Some(reader) => match reader.purges.recv().await {
            Some(arrived) => Some(arrived),
            // Its end is told by an event.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Yes,
    No,
}

impl Node {
    fn new(cluster: Arc<Cluster>, around: Surroundings, client: Client, events: Sender<Event>) -> Node {
        let now = clock::instant();
        let position = PositionFile::open(&around.folder);
        let outbox = Outbox::open(&around.folder, &around.name);
        let outbox = outbox.inspect_err(|error| tracing::error!(%error, "there is no outbox for purges")).ok();
        // A place is one of the disk store: without it, what was applied here is not known to what comes back with it later.
        let is_durable = around.cache.disk().is_some();
        let known = position.position().filter(|_| is_durable);
        Node {
            replica: Replica::of(known),
            instance: mark(),
            context: nats::jetstream(&client),
            members: Members::default(),
            waiting: Waiting::default(),
            own: HashSet::new(),
            messages: 0,
            connected: (0, now),
            publishing: 0,
            is_replaying: false,
            is_looking: false,
            reader: None,
            readers: 0,
            has_whole: false,
            facts: None,
            trouble: Some("NATS was not reached yet".to_owned()),
            gate: GateState::Shut,
            requests: Rate { at: now, requests: (around.load)().0, per_second: 0 },
            began: now,
            compared: now,
            read_again: (now, COMPARE_EVERY),
            written: now,
            logged: [None; Refusal::ALL.len()],
            cluster,
            around,
            client,
            events,
            position,
            is_durable,
            outbox,
        }
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Notes when a connection was made, which the client may tell late.
    fn note_connection(&mut self, now: Instant) {
        let count = self.client.statistics().connects.load(Ordering::Relaxed);
        if count != self.connected.0 {
            self.connected = (count, now);
            // Its consumer is gone with the connection.
            self.reader = None;
        }
    }

    /// Runs a task whose result comes back as an event.
    fn spawn(&self, task: impl Future<Output = Event> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let event = task.await;
            let _ = events.send(event).await;
        });
    }

    fn learn(&mut self, news: News) {
        match news {
            News::Connected => {
                tracing::info!("connected to NATS");
                self.trouble = None;
            }
            News::Disconnected => {
                tracing::warn!("the connection to NATS is lost");
                self.trouble = Some("the connection to NATS is lost".to_owned());
            }
            News::Trouble(text) => self.is_troubled(format!("NATS: {text}")),
        }
    }

    /// Ten times a second: what is late, and the gate.
    fn tick(&mut self) {
        let now = clock::instant();
        self.members.tick(now);
        if self.position_is_due(now) {
            self.write_position();
        }
        if now.saturating_duration_since(self.compared) >= COMPARE_EVERY {
            self.compared = now;
            self.compare(now);
        }
        let has = |reader: &Reader, facts: &StreamFacts| facts.messages == 0 || reader.last.0 >= facts.last;
        let lacks_purges = |reader: &Reader| self.facts.as_ref().is_some_and(|facts| !has(reader, facts));
        let stalls = |reader: &Reader| now.saturating_duration_since(reader.last.1) >= READER_STALLS_AFTER;
        if self.reader.as_ref().is_some_and(|reader| lacks_purges(reader) && stalls(reader)) {
            self.reader = None;
        }
    }

    /// After each event: answers those whose purge is applied, and the state of the gate.
    fn settle(&mut self) {
        let now = clock::instant();
        self.note_connection(now);
        self.waiting.settle(&self.replica, &self.members, now);
        self.keep_gate(now);
        self.count(now);
    }

    fn keep_gate(&mut self, now: Instant) {
        let apart = (self.around.apart)();
        let gate = self.around.cache.gate();
        let state = match (apart, self.replica.contact()) {
            (Apart::Serve, _) => GateState::Off,
            (_, Some(contact)) if !self.replica.is_apart(now) => {
                let until = clock::wall().saturating_sub(now.saturating_duration_since(contact)) + GATE_AFTER;
                gate.open_until(Stamp(until.as_secs()));
                GateState::Open
            }
            _ => GateState::Shut,
        };
        match state {
            GateState::Off => gate.open(),
            GateState::Shut => gate.shut(),
            GateState::Open => {}
        }
        if state != self.gate {
            self.gate = state;
            match state {
                GateState::Open => tracing::info!("all purges of the cluster are known here"),
                GateState::Shut => {
                    add(&self.cluster.counts.gate_shuts, 1);
                    tracing::warn!("purges of other nodes may not be known here: {} (cluster.apart)", apart.as_str());
                }
                GateState::Off => {
                    tracing::info!("stored responses are used whatever other nodes purge (cluster.apart)")
                }
            }
        }
        let was_ready = self.cluster.is_ready();
        let ready = match state {
            GateState::Open => was_ready || self.has_whole,
            GateState::Off => true,
            GateState::Shut => was_ready && apart != Apart::Refuse,
        };
        self.cluster.is_ready.store(ready, Ordering::Relaxed);
    }

    fn count(&self, now: Instant) {
        let counts = &self.cluster.counts;
        counts.members.store(self.members.alive(now).count() as u64 + 1, Ordering::Relaxed);
        counts.gate_shut.store(u64::from(self.gate == GateState::Shut), Ordering::Relaxed);
        counts.applied.store(self.replica.applied(), Ordering::Relaxed);
        counts.behind.store(self.last().saturating_sub(self.replica.applied()), Ordering::Relaxed);
        counts.outbox.store(self.outbox.as_ref().map_or(0, |outbox| outbox.len() as u64), Ordering::Relaxed);
    }

    /// The newest purge that the stream had when it was asked last.
    fn last(&self) -> u64 {
        self.facts.as_ref().map_or(0, |facts| facts.last)
    }

    // Members.

    fn hear(&mut self, subject: &str, body: &[u8]) {
        let name = subject.rsplit('.').next().unwrap_or_default();
        let heard = Heartbeat::parse(body, name, wall_millis()).and_then(|beat| {
            if beat.instance == self.instance {
                return Ok(());
            }
            if beat.name == self.around.name {
                return Err(Refusal::NameTaken);
            }
            self.members.take(beat, clock::instant())
        });
        if let Err(why) = heard {
            self.refuse(why, subject);
        }
    }

    fn refuse(&mut self, why: Refusal, subject: &str) {
        add(&self.cluster.counts.refused[why as usize], 1);
        let now = clock::instant();
        let logged = &mut self.logged[why as usize];
        if logged.is_none_or(|at| now.saturating_duration_since(at) >= LOG_EVERY) {
            *logged = Some(now);
            let subject: String = subject.chars().take(200).flat_map(char::escape_default).collect();
            tracing::warn!("a message under {subject} is refused: {} (docs/cluster.md)", why.as_str());
        }
    }

    fn heartbeat(&self, leaves: Leaves) -> Heartbeat {
        Heartbeat {
            v: MESSAGE_VERSION,
            name: self.around.name.clone(),
            instance: self.instance.clone(),
            address: self.around.address.clone(),
            zone: self.around.settings.zone.clone(),
            requests_per_second: self.requests.per_second,
            stream: self.replica.incarnation().unwrap_or_default().to_owned(),
            applied: self.replica.applied(),
            // Half a digest would differ from that of all others.
            digest: if self.has_whole { self.replica.digest() } else { 0 },
            apart: (self.around.apart)().as_str().to_owned(),
            settings: (self.around.load)().1,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sent_millis: wall_millis(),
            leaves: leaves == Leaves::Yes,
        }
    }

    /// Twice a second: tells the others, and asks the stream about itself.
    async fn beat(&mut self, leaves: Leaves) {
        self.requests.count((self.around.load)().0);
        if !self.is_connected() {
            return;
        }
        self.tell(leaves).await;
        self.look();
    }

    /// Asks the stream about itself, unless it is being asked.
    fn look(&mut self) {
        if !self.is_looking {
            self.is_looking = true;
            let look = nats::look(self.context.clone(), self.around.settings.clone());
            let applied = self.replica.applied();
            self.spawn(async move {
                let (asked, result) = look.await;
                Event::Looked((asked, applied), result)
            });
        }
    }

    async fn tell(&mut self, leaves: Leaves) {
        if self.is_connected() {
            let subject = format!("{}.members.{}", self.around.settings.subjects, self.around.name);
            // The connection may just have been lost: the next heartbeat is soon.
            let _ = self.client.publish(subject, self.heartbeat(leaves).to_bytes().into()).await;
        }
    }

    async fn leave(&mut self, orders: &mut tokio::sync::mpsc::Receiver<Order>) {
        orders.close();
        self.write_position();
        self.tell(Leaves::Yes).await;
        let _ = tokio::time::timeout(BEAT_EVERY, self.client.flush()).await;
    }

    // The stream.

    async fn finish(&mut self, event: Event) {
        match event {
            Event::Looked(asked, looked) => {
                self.is_looking = false;
                match looked {
                    Ok(facts) => self.see(facts, asked).await,
                    Err(error) => self.is_troubled(error),
                }
            }
            Event::Published { purges, newest, reply, result } => {
                self.publishing -= purges.len();
                self.has_published(purges, newest, reply, result);
            }
            Event::Replayed { count, result } => self.has_replayed(count, result),
            Event::ReaderEnded(number, why) => {
                if self.reader.as_ref().is_some_and(|reader| reader.number == number) {
                    tracing::debug!("{why}");
                    self.reader = None;
                }
            }
        }
    }

    fn is_troubled(&mut self, error: String) {
        if self.trouble.as_ref() != Some(&error) {
            tracing::warn!("{error}");
        }
        self.trouble = Some(error);
    }

    async fn see(&mut self, facts: StreamFacts, asked: (Instant, u64)) {
        self.trouble = None;
        match self.replica.look(&facts, asked) {
            Seen::Same => {}
            Seen::First => self.join().await,
            Seen::Anew => self.begin_anew().await,
        }
        if facts.messages == 0 {
            self.has_whole = true;
            self.replica.has_read();
        }
        self.facts = Some(facts);
        if self.reader.is_none() {
            self.read();
        }
        self.replay();
    }

    /// Responses that were stored before this store was in the cluster may have been purged elsewhere.
    async fn join(&mut self) {
        let cache = &self.around.cache;
        let stored = cache.stats().objects + cache.disk().map_or(0, |disk| disk.stats().heads);
        if stored > 0 {
            tracing::info!("what is stored is validated before its next use: the cluster may have purged it before");
            self.apply(vec![(Scope::All, Force::Validate)]).await;
        }
    }

    async fn begin_anew(&mut self) {
        add(&self.cluster.counts.streams_anew, 1);
        tracing::warn!("the stream of purges is another one or has lost purges: everything that is stored is purged");
        (self.reader, self.has_whole) = (None, false);
        self.apply(vec![(Scope::All, Force::Hard)]).await;
        if let Err(error) = self.position.forget() {
            tracing::warn!(%error, "the place in the stream cannot be forgotten");
        }
        self.publish_everything();
    }

    /// Begins to read: all of the stream where its digest is not known, else what is not applied.
    fn read(&mut self) {
        let before = if self.has_whole { self.replica.applied() } else { 0 };
        let (to, purges) = channel(BATCH_PURGES);
        self.readers += 1;
        let number = self.readers;
        let read = nats::read(self.context.clone(), nats::stream_name(&self.around.settings), before + 1, to);
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let why = read.await;
            let _ = events.send(Event::ReaderEnded(number, why)).await;
        });
        self.reader = Some(Reader { number, task, purges, until: self.last(), last: (before, clock::instant()) });
    }

    /// Applies what has come.
    async fn take(&mut self, first: Arrived) {
        let mut arrived = vec![first];
        if let Some(reader) = &mut self.reader {
            while arrived.len() < BATCH_PURGES
                && let Ok(more) = reader.purges.try_recv()
            {
                arrived.push(more);
            }
        }
        let mut rules = Vec::new();
        let mut last = 0;
        let mut is_foreign = false;
        for each in &arrived {
            last = each.number.max(last);
            match PurgeMessage::parse(&each.body, &each.subject) {
                Ok(purge) => {
                    let subject = u128::from_str_radix(&purge.hash(), 16).unwrap_or_default();
                    let is_new = self.replica.note(subject, each.number, purge.is_everything());
                    let is_own = self.own.remove(&purge.id);
                    is_foreign |= !is_own;
                    if is_new && !is_own {
                        rules.push((purge.scope, purge.force));
                    }
                }
                Err(why) => {
                    self.refuse(why, &each.subject);
                    if why == Refusal::Version {
                        // A later version knows purges that this one does not.
                        rules.push((Scope::All, Force::Validate));
                    }
                }
            }
        }
        add(&self.cluster.counts.purges_applied, rules.len() as u64);
        self.apply(rules).await;
        self.replica.apply(last);
        let now = clock::instant();
        if let Some(reader) = &mut self.reader {
            reader.last = (last, now);
            if last >= reader.until {
                self.has_whole = true;
                self.replica.has_read();
            }
        }
        if is_foreign {
            // The caller of the purge waits for it.
            self.tell(Leaves::No).await;
        }
    }

    /// Puts rules in force and waits until they are on disk.
    async fn apply(&mut self, rules: Vec<(Scope, Force)>) {
        let mut purging = Vec::new();
        for rules in rules.chunk_by(|one, other| one.1 == other.1) {
            let scopes = rules.iter().map(|(scope, _)| scope.clone());
            purging.push(self.around.cache.purge(scopes, rules[0].1));
        }
        for purging in purging {
            let purged = purging.finish().await;
            if !purged.durable && self.is_durable {
                self.is_durable = false;
                tracing::warn!("a purge of the cluster is not on disk: the next start reads all of them again");
            }
        }
    }

    fn position_is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.written) >= POSITION_EVERY
    }

    fn write_position(&mut self) {
        self.written = clock::instant();
        let Some(incarnation) = self.replica.incarnation().filter(|_| self.is_durable) else { return };
        if self.replica.contact().is_none() {
            return;
        }
        if let Err(error) = self.position.write(incarnation, self.replica.applied()) {
            tracing::warn!(%error, "the place in the stream of purges cannot be written down");
        }
    }

    /// Compares digests; a difference means that one of the two lacks purges, and nobody knows which.
    fn compare(&mut self, now: Instant) {
        if !self.has_whole || self.replica.reads_again() {
            return;
        }
        let differs = self.members.alive(now).find(|member| agrees(&member.beat, &self.replica) == Some(false));
        let Some(name) = differs.map(|member| member.beat.name.clone()) else {
            self.read_again.1 = COMPARE_EVERY;
            return;
        };
        let (at, rest) = self.read_again;
        if now.saturating_duration_since(at) < rest {
            return;
        }
        tracing::warn!("{name} knows other purges with the same numbers: the stream is read again");
        add(&self.cluster.counts.readings_again, 1);
        self.read_again = (now, (rest * 2).min(READ_AGAIN_MAX));
        self.replica.read_again();
        (self.reader, self.has_whole) = (None, false);
        self.read();
    }
}

/// Whether a node knows the same purges, where both are at the same place of the same stream.
fn agrees(beat: &Heartbeat, replica: &Replica) -> Option<bool> {
    let is_comparable =
        Some(beat.stream.as_str()) == replica.incarnation() && beat.applied == replica.applied() && beat.digest != 0;
    is_comparable.then(|| beat.digest == replica.digest())
}

impl Rate {
    fn count(&mut self, requests: u64) {
        let now = clock::instant();
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        if seconds > 0.0 {
            self.per_second = (requests.saturating_sub(self.requests) as f64 / seconds).round() as u64;
            (self.at, self.requests) = (now, requests);
        }
    }
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn wall_millis() -> u64 {
    u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX)
}
