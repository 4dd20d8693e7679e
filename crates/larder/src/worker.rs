//! A worker: one thread, one runtime, its own sockets. A connection lives and dies on its worker.

mod guard;

pub use guard::RecordGuard;

use crate::allocator;
use crate::caught;
use crate::clock::Carried;
use crate::config::Config;
use crate::heads::Heads;
use crate::listen::{self, Door};
use crate::live::{self, Held};
use crate::lobby::{self, Lobby};
use crate::outbox::Outbox;
use crate::page::Page;
use crate::partial_heads::HeadsUnderWay;
use crate::reach::{Asker, OwnAddresses, Reach};
use crate::record::{Number, Query, Readers, Record, Run, Tally};
use crate::server::{Command, Shared, StartError};
use crate::ticker::Ticker;
use crate::upstream::{self, Upstreams};
use crate::visitors::Visitors;
use bytes::{Bytes, BytesMut};
use larder_wire::RequestHead;
use larder_wire::date::Stamp;
use larder_wire::parse::HeadLimits;
use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::UnboundedReceiver;

/// What one thread has for itself.
pub struct Worker {
    /// What all workers have together.
    pub shared: Arc<Shared>,
    /// The coarse clock.
    pub ticker: Rc<Ticker>,
    /// The way to origins.
    pub upstreams: Upstreams,
    /// Limits of a head, in the form the parser takes.
    pub head_limits: HeadLimits,
    /// The wall clock.
    pub clock: Carried,
    /// What clients said last.
    pub heads: Heads,
    /// Heads that are not whole.
    pub heads_under_way: HeadsUnderWay,
    /// Where sockets are read into first.
    pub scratch: RefCell<Box<[u8]>>,
    /// Where connections wait between two requests.
    pub lobby: Rc<Lobby>,
    /// The room of inboxes whose connections wait; empty.
    pub inbox: RefCell<Vec<BytesMut>>,
    /// The same of outboxes.
    pub outbox: RefCell<Vec<Outbox>>,
    /// Where the key of a quick look-up is written.
    pub keys: RefCell<Vec<u8>>,
    /// Where the pieces of a whole body are gathered.
    pub pieces: RefCell<Vec<Bytes>>,
    /// What was counted here.
    pub tally: Tally,
    /// Who came here.
    pub visitors: Visitors,
    /// Which one of the workers this is, from 0.
    number: usize,
    settings: live::Copy<Config>,
    own_addresses: live::Copy<OwnAddresses>,
    /// Connections that are open here.
    pub sessions: Cell<usize>,
}

const SCRATCH_BYTES: usize = 64 * 1024;

/// After how many ticks it is told how the ways to origins are, and who came.
const UPSTREAM_TICKS: u64 = 10;

/// How often the end of all connections is looked for while draining.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// What answers take to go out that were cut short by the end of the drain.
const FAREWELL: Duration = Duration::from_secs(1);

impl Worker {
    /// Prepares what a worker needs; opens nothing.
    pub fn new(shared: Arc<Shared>, number: usize, settings: upstream::Settings) -> Result<Rc<Worker>, StartError> {
        let ticker = Ticker::new();
        let upstreams = Upstreams::on(settings, &ticker).map_err(StartError::Upstream)?;
        let limits = &shared.config.limits;
        let head_limits = HeadLimits {
            head_bytes_max: limits.head_bytes_max,
            target_bytes_max: limits.target_bytes_max.min(limits.head_bytes_max),
            fields_max: limits.fields_max,
        };
        let tally = Tally::default();
        let records = &shared.config.records;
        let query = if records.hide_query { Query::Hidden } else { Query::Kept };
        tally.ring.begin(number, shared.config.requests_kept_max().div_ceil(shared.config.workers.max(1)), query);
        Ok(Rc::new(Worker {
            ticker,
            upstreams,
            head_limits,
            clock: Carried::default(),
            heads: Heads::default(),
            heads_under_way: HeadsUnderWay::default(),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into()),
            lobby: Lobby::new().map_err(StartError::Worker)?,
            inbox: RefCell::default(),
            outbox: RefCell::default(),
            keys: RefCell::default(),
            pieces: RefCell::default(),
            tally,
            visitors: Visitors::default(),
            number,
            settings: live::Copy::default(),
            own_addresses: live::Copy::default(),
            sessions: Cell::new(0),
            shared,
        }))
    }

    /// The settings that hold at this moment.
    pub fn config(&self) -> Rc<Held<Config>> {
        self.settings.of(&self.shared.live)
    }

    /// Where this server listens at this moment.
    pub fn own_addresses(&self) -> Rc<Held<OwnAddresses>> {
        self.own_addresses.of(&self.shared.own_addresses)
    }

    /// How far a request may go that came by this route; `None`: it goes to an origin of the configuration.
    pub fn reach(&self, asker: Option<Asker>) -> Reach {
        match asker {
            None => Reach::Configured,
            Some(asker) => Reach::Asked { asker, config: self.config(), own: self.own_addresses() },
        }
    }

    /// The record of a request that was just read at a door.
    pub fn begin_record(&self, request: &RequestHead, peer: SocketAddr, door: &Door) -> Box<Record> {
        let readers = Readers { logged: self.shared.logs(&self.tally.lines), kept: self.tally.ring.is_on() };
        let mut record =
            Record::begin(request, peer, readers, self.next_number(), &self.clock, self.tally.ring.spare());
        record.trail.listener = door.address;
        if let Some(traces) = &self.shared.traces {
            record.sampled = traces.begin(request, self.config().tracing.sample, &self.tally.spans);
        }
        record
    }

    /// The same for a request that is not answered on the spot, in the charge of who serves it.
    pub fn begin_guarded(self: &Rc<Self>, request: &RequestHead, peer: SocketAddr, door: &Door) -> RecordGuard {
        RecordGuard::new(self, door.run.as_ref(), self.begin_record(request, peer, door))
    }

    /// Puts the record of a request that is over where its readers look.
    pub fn tell(&self, run: Option<&Run>, mut record: Box<Record>) {
        record.ends(self.clock.ends());
        self.shared.tell(&self.tally, run, record);
    }

    /// Tells the record of what was no request, and was answered with this page.
    pub fn tell_refused(&self, door: &Door, peer: SocketAddr, page: &Page) {
        self.tell_at(door, Record::refused(peer, page, self.next_number()));
    }

    /// Tells the record of what was no request, or of which no more is known, and could not be answered.
    pub fn tell_unanswered(&self, door: &Door, peer: SocketAddr, word: &'static str) {
        self.tell_at(door, Record::unanswered(peer, word, self.next_number()));
    }

    fn tell_at(&self, door: &Door, mut record: Record) {
        record.trail.listener = door.address;
        self.tell(door.run.as_deref(), Box::new(record));
    }

    /// The wall clock at a moment that is now.
    pub fn stamp_at(&self, now: Instant) -> Stamp {
        Stamp(self.clock.wall_at(now).as_secs())
    }

    /// The number of a request that was just read.
    pub fn next_number(&self) -> Number {
        self.tally.ring.number()
    }

    /// Which edition of the settings was looked at last.
    pub fn edition(&self) -> u64 {
        self.settings.edition()
    }

    /// Serves until told to stop.
    pub fn run(self: Rc<Worker>, doors: Vec<(TcpListener, Arc<Door>)>, commands: UnboundedReceiver<Command>) {
        let runtime =
            match tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "a worker has no runtime: raise the open file limit"),
            };
        runtime.block_on(Rc::clone(&self).serve(doors, commands));
        // What was not over by then is told as it stands when its task goes.
        drop(runtime);
        self.shared.counters.add(&self.tally);
        self.shared.log_out(&self.tally);
    }

    async fn serve(self: Rc<Worker>, doors: Vec<(TcpListener, Arc<Door>)>, mut commands: UnboundedReceiver<Command>) {
        let worker = Rc::clone(&self);
        tokio::task::spawn_local(async move {
            caught::again(&worker.shared.worker_restarts, || Rc::clone(&worker).keep_time()).await;
        });
        if let Err(error) = lobby::open(&self) {
            return tracing::error!(%error, "a worker has no lobby: raise the open file limit");
        }
        self.publish_upstream();
        for (socket, door) in doors {
            tokio::task::spawn_local(listen::accept(Rc::clone(&self), socket, door));
        }
        while let Some(command) = commands.recv().await {
            match command {
                Command::Open(socket, door) => {
                    tokio::task::spawn_local(listen::accept(Rc::clone(&self), socket, door));
                }
                Command::Look(look) => caught::at_once(&self.shared.worker_restarts, || look(&self.tally.ring)),
                Command::Drain => {
                    self.ticker.drain();
                    break;
                }
            }
        }
        self.wait_for_clients(self.config().timeouts.drain).await;
        // Whose time is up is told so.
        self.ticker.end();
        self.wait_for_clients(FAREWELL).await;
    }

    async fn wait_for_clients(&self, at_most: Duration) {
        let deadline = tokio::time::Instant::now() + at_most;
        while self.sessions.get() > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Runs the clock, and with each tick hands counters and log lines over, so that a request costs no shared write.
    async fn keep_time(self: Rc<Worker>) {
        let (mut ticks, mut accounted) = (0, 0);
        loop {
            ticks += self.ticker.next().await;
            self.shared.counters.add(&self.tally);
            self.shared.log_out(&self.tally);
            self.shared.cache.account_for_disk();
            let heads = self.heads_under_way.bytes() as u64;
            self.shared.cache.account_for_others(accounted, heads);
            accounted = heads;
            allocator::give_back(self.shared.config.memory_bytes);
            if ticks >= UPSTREAM_TICKS {
                ticks = 0;
                self.publish_upstream();
            }
        }
    }

    fn publish_upstream(&self) {
        self.shared.upstream.lock().insert(self.number, self.upstreams.stats());
        self.shared.visitor_lists.lock().insert(self.number, self.visitors.list());
    }
}
