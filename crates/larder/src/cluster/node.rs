//! The thread of a node: what comes from NATS, from the rest of the server and from the clock, one after the other.

mod home_table;
mod own_purges;
mod reading;
mod shown;

use super::files::{Outbox, PositionFile};
use super::members::{BEAT_EVERY, Members};
use super::message::{Heartbeat, MESSAGE_VERSION, PurgeMessage, Refusal};
use super::nats::{self, News, NotTaken, Numbers};
use super::replica::{Question, Replica, Seen, StreamFacts};
use super::waiting::Waiting;
use super::{Cluster, Counts, Order, Orders, Spread, mark};
use crate::caught::caught;
use crate::clock;
use crate::config::{Apart, ClusterSettings};
use async_nats::jetstream::Context;
use async_nats::{Client, connection::State};
use futures_util::{FutureExt, StreamExt};
use home_table::HomeState;
use larder_cache::cache::{Cache, Purging};
use larder_cache::store::rules::{Force, Scope};
use reading::{Reader, next_purge};
use std::collections::HashSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
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

/// Results of tasks that wait to be looked at.
const EVENTS_MAX: usize = PUBLISHING_MAX + 16;

/// The shortest and the longest rest before a node that ended by itself begins again.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

/// A kind of refused message is logged so often at most.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Gives the purges of all keys that a URL has here.
pub type PurgeKeys = Box<dyn Fn(&[u8]) -> Vec<Purging> + Send>;

/// The parts of the server that a node meets.
pub struct Surroundings {
    /// The settings of the start.
    pub settings: ClusterSettings,
    /// The name of the node.
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    /// Where other nodes ask this one for responses, if they do.
    pub home: Option<String>,
    /// The bytes that this node can store.
    pub capacity: u64,
    /// The folder of the store.
    pub folder: PathBuf,
    /// The cache.
    pub cache: Arc<Cache>,
    /// Begins to purge a URL by the keys that this node has for it; the text is that of a rule (`rules::whole`).
    pub purge_keys: PurgeKeys,
    /// `cluster.apart`, which a reload may change.
    pub apart: Box<dyn Fn() -> Apart + Send>,
    /// Requests since the start, and how often the settings were read.
    pub load: Box<dyn Fn() -> (u64, u64) + Send>,
}

/// The result of a task.
enum Event {
    /// The question to the stream, what it says, and for how long that holds no more.
    Looked(Question, Result<(StreamFacts, Duration), String>),
    Published {
        purges: Vec<PurgeMessage>,
        /// The newest number that was known to any node when publishing began.
        newest: u64,
        reply: oneshot::Sender<Spread>,
        result: Result<Numbers, NotTaken>,
    },
    Replayed {
        purges: Vec<PurgeMessage>,
        result: Result<Numbers, NotTaken>,
    },
    ReaderEnded(u64, String),
}

struct Node {
    cluster: Arc<Cluster>,
    around: Rc<Surroundings>,
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
    /// The last number that the stream gave to a purge of this node.
    acknowledged: u64,
    /// How often a connection was made, and when the last one was seen.
    connected: (u64, Instant),
    publishing: usize,
    is_replaying: bool,
    is_looking: bool,
    reader: Option<Reader>,
    readers: u64,
    /// The stream as it was seen last.
    facts: Option<StreamFacts>,
    trouble: Option<String>,
    gate: GateState,
    requests: Rate,
    home_state: HomeState,
    began: Instant,
    compared: Instant,
    read_again: (Instant, Duration),
    written: Instant,
    logged: [Option<Instant>; Refusal::ALL.len()],
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

/// Is a node until told to stop. A node that ends by itself begins again after a rest.
pub fn run(cluster: Arc<Cluster>, orders: Orders, around: Surroundings, stop: impl Future<Output = ()>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve_on(cluster, orders, Rc::new(around), stop)),
        Err(error) => tracing::error!(%error, "no runtime for the cluster: raise the open file limit"),
    }
}

async fn serve_on(
    cluster: Arc<Cluster>,
    Orders(mut orders): Orders,
    around: Rc<Surroundings>,
    stop: impl Future<Output = ()>,
) {
    let stop = stop.shared();
    let mut rest = REST_MIN;
    loop {
        let began = clock::instant();
        let served = caught(serve(Arc::clone(&cluster), &mut orders, Rc::clone(&around), stop.clone())).await;
        let why = match served {
            Some(Ok(())) => return,
            Some(Err(why)) => why,
            None => {
                add(&cluster.restarts, 1);
                "its thread met a broken invariant".to_owned()
            }
        };
        tracing::error!("this node is in no cluster: {why}; the next try is in {} s", rest.as_secs());
        if let Some(homes) = &cluster.homes {
            homes.close();
        }
        let end = tokio::time::sleep(rest);
        let rested = answer_without_node(&mut orders, (&around, &cluster.counts), &why, end, stop.clone()).await;
        if rested == Rested::Stopped {
            return;
        }
        let lasted = clock::instant().saturating_duration_since(began) >= REST_MAX;
        rest = if lasted { REST_MIN } else { (rest * 2).min(REST_MAX) };
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rested {
    Enough,
    Stopped,
}

/// Queues purges while there is no node, and keeps the gate shut.
async fn answer_without_node(
    orders: &mut Receiver<Order>,
    (around, counts): (&Surroundings, &Counts),
    why: &str,
    end: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> Rested {
    let (mut end, mut stop) = (std::pin::pin!(end), std::pin::pin!(stop));
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut outbox = Outbox::open(&around.folder, &around.name).map_err(|error| error.to_string());
    loop {
        tokio::select! {
            () = &mut stop => return Rested::Stopped,
            () = &mut end => return Rested::Enough,
            // A reload may change `cluster.apart`.
            _ = tick.tick() => if (around.apart)() != Apart::Serve {
                around.cache.gate().shut();
            },
            Some(order) = orders.recv() => if let Order::Spread { scopes, force, reply, .. } = order {
                let outbox = outbox.as_mut().map_err(|error| error.as_str());
                // The caller may have gone.
                let _ = reply.send(super::queue(outbox, counts, &super::messages(scopes, force, &around.name), why));
            },
        }
    }
}

async fn serve(
    cluster: Arc<Cluster>,
    orders: &mut Receiver<Order>,
    around: Rc<Surroundings>,
    stop: impl Future<Output = ()>,
) -> Result<(), String> {
    let (tell, mut news) = channel(64);
    let client = nats::connect(&around.settings, &around.name, tell).await?;
    let beats = client.subscribe(format!("{}.members.*", around.settings.subjects)).await;
    let mut beats = beats.map_err(|error| error.to_string())?;
    let (events, mut done) = channel(EVENTS_MAX);
    let mut node = Node::new(cluster, around, client, events);
    let mut beat = tokio::time::interval(BEAT_EVERY);
    let mut tick = tokio::time::interval(TICK);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => {
                node.leave(orders).await;
                return Ok(());
            }
            Some(event) = done.recv() => node.finish(event).await,
            Some(message) = beats.next() => node.hear(&message.subject, &message.payload),
            Some(arrived) = next_purge(&mut node.reader) => node.take(arrived).await,
            Some(order) = orders.recv(), if node.publishing < PUBLISHING_MAX => node.obey(order),
            Some(news) = news.recv() => node.learn(news),
            _ = beat.tick() => node.beat(Leaves::No).await,
            _ = tick.tick() => node.tick().await,
        }
        node.settle();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Yes,
    No,
}

impl Node {
    fn new(cluster: Arc<Cluster>, around: Rc<Surroundings>, client: Client, events: Sender<Event>) -> Node {
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
            acknowledged: 0,
            connected: (0, now),
            publishing: 0,
            is_replaying: false,
            is_looking: false,
            reader: None,
            readers: 0,
            facts: None,
            trouble: Some("NATS was not reached yet".to_owned()),
            gate: GateState::Shut,
            requests: Rate { at: now, requests: (around.load)().0, per_second: 0 },
            home_state: HomeState::new(),
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
    async fn tick(&mut self) {
        let now = clock::instant();
        self.members.tick(now);
        self.publish_homes();
        if self.position_is_due(now) {
            self.write_position();
        }
        if now.saturating_duration_since(self.compared) >= COMPARE_EVERY {
            self.compared = now;
            if self.compare(now) && self.homes().is_some() {
                // A node that lacked a purge may have answered a question of this one, which had it.
                self.apply(vec![(Scope::All, Force::Validate)]).await;
            }
        }
        let has = |reader: &Reader, facts: &StreamFacts| facts.messages == 0 || reader.last.0 >= facts.last.applied;
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
        self.forget_own();
        self.keep_gate();
        self.count(now);
        self.settle_homes();
        // Callers come last: a purge that was answered as applied is one that this node answers others by.
        self.waiting.settle(&self.replica, &self.members, now);
    }

    fn keep_gate(&mut self) {
        let apart = (self.around.apart)();
        let gate = self.around.cache.gate();
        // A process that is stopped between these two shuts its gate earlier; in the other order it would open it for longer.
        let wall = clock::wall();
        let now = clock::since_boot();
        let state = match (apart, self.replica.open_until(wall, now)) {
            (Apart::Serve, _) => GateState::Off,
            (_, Some(until)) => {
                gate.open_until(until);
                GateState::Open
            }
            (_, None) => GateState::Shut,
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
        if state == GateState::Open && self.replica.is_whole() {
            self.cluster.has_caught_up.store(true, Ordering::Relaxed);
        }
    }

    fn count(&self, now: Instant) {
        let counts = &self.cluster.counts;
        counts.members.store(self.members.alive(now).count() as u64 + 1, Ordering::Relaxed);
        counts.applied.store(self.replica.applied(), Ordering::Relaxed);
        counts.behind.store(self.last().saturating_sub(self.replica.applied()), Ordering::Relaxed);
        counts.outbox.store(self.outbox.as_ref().map_or(0, |outbox| outbox.len() as u64), Ordering::Relaxed);
    }

    /// The newest purge that the stream had when it was asked last.
    fn last(&self) -> u64 {
        self.facts.as_ref().map_or(0, |facts| facts.last.applied)
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
            // A node is behind these, which may serve what it has.
            if matches!(why, Refusal::Clock | Refusal::NameTaken | Refusal::Version | Refusal::Full) {
                self.members.note_refused(name, clock::instant());
            }
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
            digest: if self.replica.is_whole() { self.replica.digest() } else { 0 },
            apart: (self.around.apart)().as_str().to_owned(),
            settings: (self.around.load)().1,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sent_millis: wall_millis(),
            leaves: leaves == Leaves::Yes,
            home: self.told_home(),
            capacity: self.around.capacity,
            spill: self.home_state.spill.parts(),
            answers_per_second: self.home_state.answers.per_second,
        }
    }

    /// Twice a second: tells the others, and asks the stream about itself.
    async fn beat(&mut self, leaves: Leaves) {
        self.requests.count((self.around.load)().0);
        self.note_answers();
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
            let question = self.replica.question(clock::since_boot());
            self.spawn(async move { Event::Looked(question, look.await) });
        }
    }

    async fn tell(&mut self, leaves: Leaves) {
        if self.is_connected() {
            let subject = format!("{}.members.{}", self.around.settings.subjects, self.around.name);
            // The connection may just have been lost: the next heartbeat is soon.
            let _ = self.client.publish(subject, self.heartbeat(leaves).to_bytes().into()).await;
        }
    }

    async fn leave(&mut self, orders: &mut Receiver<Order>) {
        orders.close();
        if let Some(homes) = self.homes() {
            homes.close();
        }
        self.write_position();
        // The others wait for this node no more once they know, and it answers requests until it has drained.
        if (self.around.apart)() != Apart::Serve {
            self.around.cache.gate().shut();
        }
        self.tell(Leaves::Yes).await;
        let _ = tokio::time::timeout(BEAT_EVERY, self.client.flush()).await;
    }

    // The stream.

    async fn finish(&mut self, event: Event) {
        match event {
            Event::Looked(asked, looked) => {
                self.is_looking = false;
                match looked {
                    Ok((facts, age)) => {
                        let at = asked.at.saturating_sub(age);
                        self.see(facts, Question { at, ..asked }).await;
                    }
                    Err(error) => self.is_troubled(error),
                }
            }
            Event::Published { purges, newest, reply, result } => {
                self.publishing -= purges.len();
                self.has_published(purges, newest, reply, result);
            }
            Event::Replayed { purges, result } => self.has_replayed(&purges, result),
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

    async fn see(&mut self, facts: StreamFacts, asked: Question) {
        self.trouble = None;
        let seen = self.replica.look(&facts, asked);
        self.facts = Some(facts);
        match seen {
            Seen::Same => {}
            Seen::First => self.join().await,
            Seen::Anew => self.begin_anew().await,
        }
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
        if let Some(homes) = self.homes() {
            homes.close();
        }
        tracing::warn!("the stream of purges is another one or has lost purges: everything that is stored is purged");
        self.reader = None;
        self.acknowledged = 0;
        self.apply(vec![(Scope::All, Force::Hard)]).await;
        self.forget_position();
        self.publish_everything();
    }

    /// Puts rules in force and waits until they are on disk.
    async fn apply(&mut self, rules: Vec<(Scope, Force)>) {
        let mut purging = Vec::new();
        for rules in rules.chunk_by(|one, other| one.1 == other.1) {
            let scopes = rules.iter().map(|(scope, _)| scope.clone());
            purging.push(self.around.cache.purge(scopes, rules[0].1));
        }
        // A key need not have all of its URL (`No-Vary-Search`), so that no rule about the URL matches it.
        for (scope, force) in &rules {
            if let (Scope::Prefix(text), Force::Hard) = (scope, force) {
                purging.extend((self.around.purge_keys)(text));
            }
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
        if self.replica.contact().is_none() || !self.replica.is_whole() {
            return;
        }
        if let Err(error) = self.position.write(incarnation, self.replica.place()) {
            tracing::warn!(%error, "the place in the stream of purges cannot be written down");
        }
    }

    /// Compares digests; a difference means that one of the two lacks purges, and nobody knows which. Gives whether the stream is read
    /// again for one.
    fn compare(&mut self, now: Instant) -> bool {
        if !self.replica.is_whole() {
            return false;
        }
        let differs = self.members.alive(now).find(|member| agrees(&member.beat, &self.replica) == Some(false));
        let Some(name) = differs.map(|member| member.beat.name.clone()) else {
            self.read_again.1 = COMPARE_EVERY;
            return false;
        };
        let (at, rest) = self.read_again;
        if now.saturating_duration_since(at) < rest {
            return false;
        }
        tracing::warn!("{name} knows other purges with the same numbers: the stream is read again");
        self.read_again = (now, (rest * 2).min(READ_AGAIN_MAX));
        self.read_again();
        true
    }

    fn forget_position(&mut self) {
        if let Err(error) = self.position.forget() {
            tracing::warn!(%error, "the place in the stream cannot be forgotten");
        }
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
