//! How many connections an origin may have, which idle ones are kept, and who waits for one.
//!
//! Every open connection of an origin holds one [`Permit`]; an idle one's permit lies in its [`Slot`]. A
//! permit or connection that comes back goes to the first who waits and may have one more, never to a newcomer. While
//! somebody waits nothing is idle, unless all who wait have their client's share (decision 026).

use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::h1::ConnectionChoice;
use super::{Counts, Origin, OriginStats, Settings, Stats};
use crate::client::Client;
use crate::hashing::HashState;
#[cfg(test)]
use crate::planted::{self, Planted};
use crate::reach::Reach;
use crate::wire::Wire;
use larder_wire::Url;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Origins remembered (counts, last winner) after their last connection has gone.
const ORIGINS_REMEMBERED_MAX: usize = 1024;
/// How often a request may trigger a sweep.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// All origins of a worker.
pub(super) struct Pool {
    limits: Limits,
    slots: RefCell<HashMap<Origin, Rc<Slot>, HashState>>,
    /// The slot that was asked for last: most workers talk to few origins.
    recent: RefCell<Option<Rc<Slot>>>,
    idle_total: Rc<Cell<usize>>,
    unread_total: Rc<Cell<usize>>,
    forgotten: Cell<Counts>,
    sweep_at: Cell<Instant>,
}

#[derive(Clone, Copy)]
struct Limits {
    connections_per_origin_max: usize,
    idle_per_origin_max: usize,
    idle_max: usize,
    waiting_max: usize,
    client_connections_max: usize,
    client_waiting_max: usize,
    unread_per_origin_max: usize,
    unread_max: usize,
    waiting_time: Duration,
    keep_alive: Duration,
}

impl Pool {
    pub fn new(settings: &Settings) -> Pool {
        Pool {
            limits: Limits {
                connections_per_origin_max: settings.connections_per_origin_max,
                idle_per_origin_max: settings.idle_per_origin_max,
                idle_max: settings.idle_max,
                waiting_max: settings.waiting_max,
                client_connections_max: share(settings.connections_per_origin_max, settings.client_share_percent),
                client_waiting_max: share(settings.waiting_max, settings.client_share_percent),
                unread_per_origin_max: settings.unread_per_origin_max,
                unread_max: settings.unread_max,
                waiting_time: settings.connect_timeout,
                keep_alive: settings.keep_alive,
            },
            slots: RefCell::default(),
            recent: RefCell::default(),
            idle_total: Rc::default(),
            unread_total: Rc::default(),
            forgotten: Cell::default(),
            sweep_at: Cell::new(Instant::now() + SWEEP_EVERY),
        }
    }

    /// The slot of a URL's origin, made when there is none.
    pub fn slot(&self, url: &Url, now: Instant) -> Rc<Slot> {
        if now >= self.sweep_at.get() {
            self.sweep();
        }
        if let Some(slot) = self.recent.borrow().as_ref().filter(|slot| slot.origin.serves(url)) {
            slot.used_at.set(now);
            return slot.clone();
        }
        let slot = self.look_up(&Origin::of(url));
        slot.used_at.set(now);
        self.recent.replace(Some(slot.clone()));
        slot
    }

    fn look_up(&self, origin: &Origin) -> Rc<Slot> {
        if let Some(slot) = self.slots.borrow().get(origin) {
            return slot.clone();
        }
        if self.slots.borrow().len() >= ORIGINS_REMEMBERED_MAX {
            self.forget_oldest();
        }
        let slot = Rc::new(Slot::new(origin.clone(), self.limits, self.idle_total.clone()));
        self.slots.borrow_mut().insert(origin.clone(), slot.clone());
        slot
    }

    /// The origin of a URL, for a fetch that may go on when its clients have left.
    pub fn asked(&self, url: &Url) -> AskedOrigin {
        let recent = self.recent.borrow().as_ref().filter(|slot| slot.origin.serves(url)).cloned();
        let slot = recent.unwrap_or_else(|| self.look_up(&Origin::of(url)));
        AskedOrigin { slot, unread_total: Rc::clone(&self.unread_total) }
    }

    /// Gives a connection back: to the first who waits, or to the idle ones.
    pub fn put(&self, idle: Idle, permit: Permit) {
        let slot = permit.slot.clone();
        let Some((idle, permit)) = slot.hand_over(idle, permit) else { return };
        if self.limits.idle_per_origin_max == 0 || self.limits.idle_max == 0 {
            return;
        }
        if slot.is_full_of_idle() {
            slot.close_oldest_idle();
        } else if self.idle_total.get() >= self.limits.idle_max {
            self.close_longest_idle();
        }
        slot.keep(idle, permit);
    }

    /// Closes what is idle for too long or has been closed from the other side.
    pub fn sweep(&self) {
        self.sweep_at.set(Instant::now() + SWEEP_EVERY);
        let slots: Vec<Rc<Slot>> = self.slots.borrow().values().cloned().collect();
        slots.iter().for_each(|slot| slot.sweep());
    }

    fn close_longest_idle(&self) {
        let slots = self.slots.borrow();
        let oldest =
            slots.values().filter_map(|slot| Some((slot.oldest_idle()?, slot))).min_by_key(|(since, _)| *since);
        if let Some((_, slot)) = oldest {
            slot.close_oldest_idle();
        }
    }

    /// Forgets the origin that was not asked for the longest time, if one is wholly unused.
    fn forget_oldest(&self) {
        self.recent.take();
        let mut slots = self.slots.borrow_mut();
        let unused = slots.iter().filter(|(_, slot)| Rc::strong_count(slot) == 1 && slot.state.borrow().open == 0);
        let Some(origin) = unused.min_by_key(|(_, slot)| slot.used_at.get()).map(|(origin, _)| origin.clone()) else {
            return;
        };
        if let Some(slot) = slots.remove(&origin) {
            self.forgotten.set(self.forgotten.get().plus(slot.counts.get()));
        }
    }

    /// Fetches that go on although nobody reads them.
    #[cfg(test)]
    pub fn unread(&self) -> usize {
        self.unread_total.get()
    }

    pub fn stats(&self) -> Stats {
        let slots = self.slots.borrow();
        Stats { origins: slots.values().map(|slot| slot.stats()).collect(), forgotten: self.forgotten.get() }
    }
}

/// An idle connection: the stream and nothing else.
pub(super) struct Idle {
    pub wire: Wire,
    pub peer: SocketAddr,
    /// How long the origin said it keeps an idle connection.
    pub origin_keeps: Option<Duration>,
    /// See [`Connection::acknowledge_within`](super::h1::Connection::acknowledge_within).
    pub acknowledged_within: Option<Duration>,
}

struct Kept {
    idle: Idle,
    since: Instant,
    until: Instant,
}

/// What a lease gives: a connection to use again, or the right to open one.
pub(super) enum Grant {
    Reuse(Idle, Permit),
    Open(Permit),
}

impl Grant {
    /// A connection that was handed over may have been closed since, or may lead where this asker may not go.
    fn checked(self, reach: &Reach) -> Grant {
        let Grant::Reuse(mut idle, permit) = self else { return self };
        let is_good = reach.permits(idle.peer) && is_quiet(&mut idle.wire);
        if is_good { Grant::Reuse(idle, permit) } else { Grant::Open(permit) }
    }
}

/// A part of a limit, rounded up and never nothing.
fn share(max: usize, percent: u32) -> usize {
    let part = max.saturating_mul(usize::try_from(percent).unwrap_or(100)).div_ceil(100);
    part.clamp(max.min(1), max)
}

/// An origin that is asked, where fetches that nobody reads are counted.
pub struct AskedOrigin {
    slot: Rc<Slot>,
    unread_total: Rc<Cell<usize>>,
}

impl AskedOrigin {
    /// Leave for a fetch to go on although nobody reads it; `None` when so many do already.
    pub fn unread(&self) -> Option<Unread> {
        let (of_origin, total, limits) = (&self.slot.unread, &self.unread_total, &self.slot.limits);
        if of_origin.get() >= limits.unread_per_origin_max || total.get() >= limits.unread_max {
            return None;
        }
        of_origin.set(of_origin.get() + 1);
        total.set(total.get() + 1);
        Some(Unread { slot: Rc::clone(&self.slot), total: Rc::clone(total) })
    }
}

/// A fetch that nobody reads, as long as this lives.
pub struct Unread {
    slot: Rc<Slot>,
    total: Rc<Cell<usize>>,
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.slot.unread.set(self.slot.unread.get() - 1);
        self.total.set(self.total.get() - 1);
    }
}

/// The right to have one connection open; coming back (by drop) it goes to the first who waits.
pub(super) struct Permit {
    slot: Rc<Slot>,
    /// Where its client stands among those that have one; nowhere while it lies with an idle connection.
    lease: Option<usize>,
}

impl Permit {
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    /// No client has it any more.
    fn end_lease(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.slot.state.borrow_mut().leases.end(lease);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.end_lease();
        self.slot.permit_back();
    }
}

/// Whose requests have an origin's connections. A lease costs no look-up; only where a client's share may be reached are
/// they counted.
#[derive(Default)]
struct Leases {
    places: Vec<Option<Client>>,
    free: Vec<usize>,
}

impl Leases {
    fn begin(&mut self, client: Option<Client>) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = client;
                place
            }
            None => {
                self.places.push(client);
                self.places.len() - 1
            }
        }
    }

    fn end(&mut self, place: usize) {
        self.places[place] = None;
        self.free.push(place);
    }

    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn has(&self, client: Option<Client>, many: usize) -> bool {
        client.is_some() && self.len() >= many && self.places.iter().filter(|held| **held == client).count() >= many
    }

    /// How many each client has.
    fn by_client(&self) -> HashMap<Client, usize> {
        let mut counts = HashMap::new();
        self.places.iter().flatten().for_each(|client| *counts.entry(*client).or_default() += 1);
        counts
    }
}

/// One origin's connections, waiters and counts.
pub(super) struct Slot {
    origin: Origin,
    limits: Limits,
    state: RefCell<SlotState>,
    idle_total: Rc<Cell<usize>>,
    /// Fetches that go on although nobody reads them.
    unread: Cell<usize>,
    counts: Cell<Counts>,
    favourite: Cell<Option<IpAddr>>,
    used_at: Cell<Instant>,
}

#[derive(Default)]
struct SlotState {
    /// Leased, idle and being opened.
    open: usize,
    /// The one used last is at the end and is used first: the others may grow old and go.
    idle: Vec<Kept>,
    waiting: VecDeque<Waiting>,
    tickets: u64,
    leases: Leases,
}

struct Waiting {
    ticket: u64,
    client: Option<Client>,
    choice: ConnectionChoice,
    grant: oneshot::Sender<Grant>,
}

impl Slot {
    fn new(origin: Origin, limits: Limits, idle_total: Rc<Cell<usize>>) -> Slot {
        Slot {
            origin,
            limits,
            state: RefCell::default(),
            idle_total,
            unread: Cell::default(),
            counts: Cell::default(),
            favourite: Cell::new(None),
            used_at: Cell::new(Instant::now()),
        }
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The address that accepted the last connection.
    pub fn favourite(&self) -> Option<IpAddr> {
        self.favourite.get()
    }

    pub fn prefer(&self, ip: IpAddr) {
        self.favourite.set(Some(ip));
    }

    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Waits in the queue for a connection, or for the right to open one.
    pub async fn lease(
        self: &Rc<Slot>,
        choice: ConnectionChoice,
        reach: &Reach,
        client: Option<Client>,
    ) -> Result<Grant, UpstreamFault> {
        let mut place = self.queue_up(choice, client)?;
        match timeout(self.limits.waiting_time, &mut place.grant).await {
            Ok(Ok(grant)) => Ok(grant.checked(reach)),
            _ => Err(self.busy("none became free in time")),
        }
    }

    /// An idle connection, or the right to open one, unless all are taken or this client has its share of them.
    pub fn at_once(
        self: &Rc<Slot>,
        choice: ConnectionChoice,
        reach: &Reach,
        now: Instant,
        client: Option<Client>,
    ) -> Option<Grant> {
        if self.state.borrow().leases.has(client, self.limits.client_connections_max) {
            return None;
        }
        let grant = self.free_at_once(choice, reach, now)?;
        Some(self.leased(grant, client))
    }

    /// Notes whose the connection is for now.
    fn leased(&self, mut grant: Grant, client: Option<Client>) -> Grant {
        let (Grant::Reuse(_, permit) | Grant::Open(permit)) = &mut grant;
        permit.lease = Some(self.state.borrow_mut().leases.begin(client));
        grant
    }

    fn free_at_once(self: &Rc<Slot>, choice: ConnectionChoice, reach: &Reach, now: Instant) -> Option<Grant> {
        if choice == ConnectionChoice::IdleAllowed
            && let Some(grant) = self.reuse(reach, now)
        {
            return Some(grant);
        }
        if let Some(permit) = self.new_permit() {
            return Some(Grant::Open(permit));
        }
        // All are open, but some are idle: the oldest makes room.
        self.take_idle(|idle| (!idle.is_empty()).then(|| idle.remove(0))).map(|(_, permit)| Grant::Open(permit))
    }

    /// One name may have led one client to an address where another may not go.
    fn reuse(self: &Rc<Slot>, reach: &Reach, now: Instant) -> Option<Grant> {
        let last = |idle: &mut Vec<Kept>| {
            let at = idle.iter().rposition(|kept| reach.permits(kept.idle.peer))?;
            Some(idle.remove(at))
        };
        while let Some((mut kept, permit)) = self.take_idle(last) {
            if now < kept.until && is_quiet(&mut kept.idle.wire) {
                return Some(Grant::Reuse(kept.idle, permit));
            }
            #[cfg(test)]
            if planted::is(Planted::LeakedPermit) {
                Box::leak(Box::new(permit));
            }
        }
        None
    }

    fn take_idle(self: &Rc<Slot>, take: impl FnOnce(&mut Vec<Kept>) -> Option<Kept>) -> Option<(Kept, Permit)> {
        let kept = take(&mut self.state.borrow_mut().idle)?;
        self.idle_total.set(self.idle_total.get() - 1);
        Some((kept, Permit { slot: self.clone(), lease: None }))
    }

    fn new_permit(self: &Rc<Slot>) -> Option<Permit> {
        let mut state = self.state.borrow_mut();
        if state.open >= self.limits.connections_per_origin_max {
            return None;
        }
        state.open += 1;
        Some(Permit { slot: self.clone(), lease: None })
    }

    fn queue_up(self: &Rc<Slot>, choice: ConnectionChoice, client: Option<Client>) -> Result<Place, UpstreamFault> {
        let mut state = self.state.borrow_mut();
        if state.waiting.len() >= self.limits.waiting_max {
            return Err(self.busy("too many requests wait for one already"));
        }
        let share = self.limits.client_waiting_max;
        if client.is_some()
            && state.waiting.len() >= share
            && state.waiting.iter().filter(|waiting| waiting.client == client).count() >= share
        {
            let detail = format!("{share} requests of this client wait for a connection to {} already", self.origin);
            return Err(UpstreamFault::new(UpstreamFaultKind::Busy, detail));
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.push_back(Waiting { ticket, client, choice, grant: sender });
        Ok(Place { slot: self.clone(), ticket, grant: receiver })
    }

    fn busy(&self, why: &str) -> UpstreamFault {
        let max = self.limits.connections_per_origin_max;
        let detail = format!("all {max} connections of this worker to {} are in use and {why}", self.origin);
        UpstreamFault::new(UpstreamFaultKind::Busy, detail)
    }

    /// Gives a returned connection to the first who waits; hands it back when nobody does.
    fn hand_over(&self, idle: Idle, mut permit: Permit) -> Option<(Idle, Permit)> {
        permit.end_lease();
        let Some(first) = self.next_waiting() else { return Some((idle, permit)) };
        let grant = match first.choice {
            ConnectionChoice::IdleAllowed => Grant::Reuse(idle, permit),
            ConnectionChoice::NewOnly => Grant::Open(permit),
        };
        let grant = self.leased(grant, first.client);
        // One who has just left drops the grant, and its permit goes to the next.
        let _ = first.grant.send(grant);
        None
    }

    /// The first in the queue whose client has not its share of connections; its place is free again.
    fn next_waiting(&self) -> Option<Waiting> {
        let mut state = self.state.borrow_mut();
        let share = self.limits.client_connections_max;
        if state.waiting.is_empty() || state.leases.len() < share {
            return state.waiting.pop_front();
        }
        let counts = state.leases.by_client();
        let may_have = |waiting: &Waiting| {
            waiting.client.is_none_or(|client| counts.get(&client).is_none_or(|&leased| leased < share))
        };
        let first = state.waiting.iter().position(may_have)?;
        state.waiting.remove(first)
    }

    fn permit_back(self: &Rc<Slot>) {
        match self.next_waiting() {
            // The permit lives on in other hands.
            Some(first) => {
                let grant = Grant::Open(Permit { slot: self.clone(), lease: None });
                drop(first.grant.send(self.leased(grant, first.client)));
            }
            None => self.state.borrow_mut().open -= 1,
        }
    }

    fn keep(&self, idle: Idle, permit: Permit) {
        // Its permit now lies here: `open` goes on counting it.
        let now = Instant::now();
        let time = idle.origin_keeps.map_or(self.limits.keep_alive, |keeps| keeps.min(self.limits.keep_alive));
        let mut state = self.state.borrow_mut();
        state.open += 1;
        state.idle.push(Kept { idle, since: now, until: now + time });
        drop(state);
        drop(permit);
        self.idle_total.set(self.idle_total.get() + 1);
    }

    fn is_full_of_idle(&self) -> bool {
        self.state.borrow().idle.len() >= self.limits.idle_per_origin_max
    }

    fn oldest_idle(&self) -> Option<Instant> {
        self.state.borrow().idle.first().map(|kept| kept.since)
    }

    fn close_oldest_idle(&self) {
        self.retain_idle(|at, _| at > 0);
    }

    fn sweep(&self) {
        let now = Instant::now();
        self.retain_idle(|_, kept| now < kept.until && is_quiet(&mut kept.idle.wire));
    }

    fn retain_idle(&self, mut keep: impl FnMut(usize, &mut Kept) -> bool) {
        let mut state = self.state.borrow_mut();
        let before = state.idle.len();
        let mut at = 0;
        state.idle.retain_mut(|kept| {
            at += 1;
            keep(at - 1, kept)
        });
        let closed = before - state.idle.len();
        state.open -= closed;
        self.idle_total.set(self.idle_total.get() - closed);
    }

    fn stats(&self) -> OriginStats {
        let state = self.state.borrow();
        OriginStats {
            origin: self.origin.clone(),
            open: state.open,
            idle: state.idle.len(),
            waiting: state.waiting.len(),
            counts: self.counts.get(),
        }
    }
}

/// A place in an origin's queue; leaving it (by drop) frees it.
struct Place {
    slot: Rc<Slot>,
    ticket: u64,
    grant: oneshot::Receiver<Grant>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.slot.state.borrow_mut();
        if let Ok(at) = state.waiting.binary_search_by_key(&self.ticket, |waiting| waiting.ticket) {
            state.waiting.remove(at);
        }
    }
}

/// False when the origin has closed the connection or has sent bytes that nobody asked for.
fn is_quiet(wire: &mut Wire) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    match wire {
        // Asking the kernel, not the reactor: that one may not have heard of the end yet.
        Wire::Tcp(stream) => {
            let mut peek = || SockRef::from(&*stream).peek(&mut byte).map(|_| ());
            let would_block =
                |looked: io::Result<()>| looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            // Where the reactor believes that there is something, it is told better, which spares the next read.
            match stream.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(_) => would_block(stream.try_io(Interest::READABLE, peek)),
                Poll::Pending => would_block(peek()),
            }
        }
        // TLS has records of its own (session tickets) that mean nothing here: let it read them.
        wire => {
            let mut context = Context::from_waker(Waker::noop());
            Pin::new(wire).poll_read(&mut context, &mut ReadBuf::uninit(&mut byte)).is_pending()
        }
    }
}
