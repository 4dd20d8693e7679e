//! How many requests may be under way at one origin, whose they are, and which of them wait.
//!
//! Each request has a [`Permit`] until its response is over; a tunnel has one until it ends. A permit that comes back goes to a
//! request that waits and whose client may have one more, never to a newcomer (decisions 026, 035): to which one is known in
//! [`waiting`](super::waiting). While requests have waited for too long, those of the lowest class do not wait, and others wait for
//! no longer than that (decision 069). Connections are not counted here. One that can serve again goes along with its permit, so that
//! the next request need not look for one.

use super::fault::{UpstreamFault, UpstreamFaultKind};
use super::h2::Connections;
use super::idle::{ConnectionChoice, IdleConnection, IdleConnections};
use super::waiting::{Ticket, Waiting, WaitingRequests};
use super::wanted::Wanted;
use super::{Counts, Origin, OriginStats, Settings};
use crate::client::Client;
use crate::overload::StandingDelay;
#[cfg(test)]
use crate::planted::{self, Planted};
use larder_rules::rule::Priority;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// The limits of one origin, per worker.
#[derive(Clone, Copy)]
pub(super) struct PermitLimits {
    /// Requests under way.
    pub requests_max: usize,
    /// Requests that wait.
    waiting_max: usize,
    /// Requests under way for one client.
    client_requests_max: usize,
    /// Requests of one client that wait.
    client_waiting_max: usize,
    /// How long a request waits.
    waiting_time: Duration,
    /// How long the oldest one may wait before the origin counts as behind.
    delay_target: Duration,
}

impl PermitLimits {
    pub fn of(settings: &Settings) -> PermitLimits {
        let share = |max| share(max, settings.client_share_percent);
        PermitLimits {
            requests_max: settings.connections_per_origin_max,
            waiting_max: settings.waiting_max,
            client_requests_max: share(settings.connections_per_origin_max),
            client_waiting_max: share(settings.waiting_max),
            waiting_time: settings.connect_timeout,
            delay_target: settings.delay_target,
        }
    }
}

/// A part of a limit, rounded up and never nothing.
fn share(max: usize, percent: u32) -> usize {
    let part = max.saturating_mul(usize::try_from(percent).unwrap_or(100)).div_ceil(100);
    part.clamp(max.min(1), max)
}

/// The permits of one origin.
pub(super) struct Permits {
    limits: PermitLimits,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    holders: Holders,
    waiting: WaitingRequests<oneshot::Sender<Turn>>,
    delay: StandingDelay,
}

/// The end of a wait: a permit, or the reason why there is none.
type Turn = Result<Grant, GivesWay>;

/// Why a request waits no longer.
#[derive(Clone, Copy, Debug)]
enum GivesWay {
    /// A request of a client that has fewer, or of a higher class, has its place.
    ToAnother,
    /// It has waited for longer than requests may while the origin is behind.
    Overdue,
}

/// A permit, and the connection that came back with it.
pub(super) struct Grant {
    pub permit: Permit,
    pub connection: Option<IdleConnection>,
}

impl Permits {
    fn new(limits: PermitLimits) -> Permits {
        Permits { limits, state: RefCell::default() }
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.state.borrow().holders.len()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.state.borrow().waiting.len()
    }

    /// Whether one more request of this client may be under way.
    pub fn has_room(&self, client: Option<Client>) -> bool {
        let holders = &self.state.borrow().holders;
        holders.len() < self.limits.requests_max && !holders.has(client, self.limits.client_requests_max)
    }

    /// Whether one more request that nobody waits for may be under way: a quarter of all permits stays free.
    pub fn has_room_to_spare(&self, client: Client) -> bool {
        let kept_free = self.limits.requests_max / 4;
        self.under_way() + kept_free < self.limits.requests_max && self.has_room(Some(client))
    }

    /// Whether requests have waited for too long, and still do.
    pub fn is_behind(&self) -> bool {
        self.state.borrow().delay.is_behind()
    }

    fn queue_up(
        &self,
        (client, priority): (Option<Client>, Priority),
        origin: &Origin,
    ) -> Result<Place<'_>, UpstreamFault> {
        let now = Instant::now();
        self.end_overdue(now);
        let mut state = self.state.borrow_mut();
        if priority == Priority::Low && state.delay.is_behind() {
            return Err(UpstreamFault::shed(format!("requests wait for {origin} for too long")));
        }
        let share = self.limits.client_waiting_max;
        if client.is_some() && share > 0 && state.waiting.len() >= share && state.waiting.of_client(client) >= share {
            let detail = format!("{share} requests of this client wait for {origin} already");
            return Err(UpstreamFault::new(UpstreamFaultKind::ClientBusy, detail));
        }
        if state.waiting.len() >= self.limits.waiting_max {
            let other = state.waiting.gives_way_to(client, priority).and_then(|ticket| state.waiting.remove(ticket));
            let Some(other) = other else { return Err(self.busy(origin, "too many others wait already")) };
            drop(other.grant.send(Err(GivesWay::ToAnother)));
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = state.waiting.push(Waiting { client, priority, since: now, grant: sender });
        self.note_delay(&mut state, now);
        drop(state);
        Ok(Place { permits: self, ticket, turn: receiver })
    }

    fn busy(&self, origin: &Origin, why: &str) -> UpstreamFault {
        let max = self.limits.requests_max;
        let detail = format!("{max} requests of this worker are under way at {origin}, as many as may be, and {why}");
        UpstreamFault::new(UpstreamFaultKind::Busy, detail)
    }

    /// Takes the next request out of the queue whose client has not its share of permits.
    fn next_waiting(&self) -> Option<Waiting<oneshot::Sender<Turn>>> {
        if self.state.borrow().waiting.is_empty() {
            return None;
        }
        let now = Instant::now();
        self.end_overdue(now);
        let mut state = self.state.borrow_mut();
        let State { holders, waiting, .. } = &mut *state;
        let share = self.limits.client_requests_max;
        let next = match holders.len() < share {
            true => waiting.next(|_| true),
            false => {
                let counts = holders.by_client();
                waiting.next(|client| client.and_then(|client| counts.get(&client)).is_none_or(|&held| held < share))
            }
        };
        if next.is_none() {
            self.note_delay(&mut state, now);
        }
        next
    }

    /// While the origin is behind, a request that has waited for longer than the target gives up its place: those behind it would wait
    /// for as long, and all answers would come late.
    fn end_overdue(&self, now: Instant) {
        let mut state = self.state.borrow_mut();
        self.note_delay(&mut state, now);
        while state.delay.is_behind()
            && let Some(overdue) = state.waiting.take_overdue(self.limits.delay_target, now)
        {
            drop(overdue.grant.send(Err(GivesWay::Overdue)));
        }
    }

    /// A request that waits although permits are free waits for its own client, and says nothing of the origin.
    fn note_delay(&self, state: &mut State, now: Instant) {
        let is_full = state.holders.len() >= self.limits.requests_max;
        let oldest = if is_full { state.waiting.oldest_for(now) } else { None };
        let target = self.limits.delay_target;
        state.delay.note(oldest.unwrap_or_default(), (target, target), now);
    }
}

/// The right to have one request under way at an origin. Dropped, it goes to the next request that waits.
pub(super) struct Permit {
    origin: Rc<OriginState>,
    /// The place among the holders; `None` once it was given back.
    place: Option<usize>,
}

impl Permit {
    /// A permit, unless all are taken or this client has its share of them.
    pub fn try_take(origin: &Rc<OriginState>, client: Option<Client>) -> Option<Permit> {
        origin.permits.has_room(client).then(|| Permit::begin(origin, client))
    }

    /// Waits in the queue for a permit.
    pub async fn wait(origin: &Rc<OriginState>, asked_by: (Option<Client>, Priority)) -> Result<Grant, UpstreamFault> {
        let permits = &origin.permits;
        let mut place = permits.queue_up(asked_by, origin.origin())?;
        match timeout(permits.limits.waiting_time, &mut place.turn).await {
            Ok(Ok(Ok(grant))) => Ok(grant),
            Ok(Ok(Err(GivesWay::ToAnother))) => {
                let detail = format!("a request of another client has its place before {}", origin.origin());
                Err(UpstreamFault::new(UpstreamFaultKind::ClientBusy, detail))
            }
            Ok(Ok(Err(GivesWay::Overdue))) => {
                let target = permits.limits.delay_target.as_millis();
                Err(permits.busy(origin.origin(), &format!("it has waited for {target} ms, as others do")))
            }
            _ if permits.state.borrow().holders.len() < permits.limits.requests_max => {
                let share = permits.limits.client_requests_max;
                let detail = format!(
                    "{share} requests of this client are under way at {}, and none ended in time",
                    origin.origin()
                );
                Err(UpstreamFault::new(UpstreamFaultKind::ClientBusy, detail))
            }
            _ => Err(permits.busy(origin.origin(), "none ended in time")),
        }
    }

    fn begin(origin: &Rc<OriginState>, client: Option<Client>) -> Permit {
        let place = origin.permits.state.borrow_mut().holders.begin(client);
        Permit { origin: Rc::clone(origin), place: Some(place) }
    }

    /// The origin that it is for.
    pub fn origin(&self) -> &Rc<OriginState> {
        &self.origin
    }

    /// Gives the permit back together with a connection that can serve again. The next request that waits gets both; where
    /// none does, the connection is returned.
    pub fn give_back_with(mut self, connection: IdleConnection) -> Option<IdleConnection> {
        self.end();
        let Some(first) = self.origin.permits.next_waiting() else { return Some(connection) };
        self.grant(first, Some(connection));
        None
    }

    /// Ends it; false where it was given back before.
    fn end(&mut self) -> bool {
        let Some(place) = self.place.take() else { return false };
        self.origin.permits.state.borrow_mut().holders.end(place);
        true
    }

    /// A request that has just given up drops the grant, and its permit goes to the next one.
    fn grant(&self, next: Waiting<oneshot::Sender<Turn>>, connection: Option<IdleConnection>) {
        let permit = Permit::begin(&self.origin, next.client);
        self.origin.permits.note_delay(&mut self.origin.permits.state.borrow_mut(), Instant::now());
        drop(next.grant.send(Ok(Grant { permit, connection })));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.end()
            && let Some(first) = self.origin.permits.next_waiting()
        {
            self.grant(first, None);
        }
    }
}

/// One origin: its permits, its idle connections, and what is remembered of it.
pub(super) struct OriginState {
    origin: Origin,
    pub permits: Permits,
    pub idle: IdleConnections,
    /// Its connections of HTTP/2.
    pub http2: Rc<Connections>,
    /// Connections, idle ones included.
    connections_max: usize,
    /// Fetches that go on although nobody reads them.
    pub unread: Cell<usize>,
    counts: Cell<Counts>,
    favourite: Cell<Option<IpAddr>>,
    pub used_at: Cell<Instant>,
}

impl OriginState {
    pub fn new(origin: Origin, limits: PermitLimits, idle: IdleConnections) -> OriginState {
        OriginState {
            origin,
            permits: Permits::new(limits),
            idle,
            http2: Rc::default(),
            connections_max: limits.requests_max,
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

    pub fn counts(&self) -> Counts {
        Counts { http2_faults: self.http2.faults(), ..self.counts.get() }
    }

    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Connections: one for each request under way by HTTP/1.1, the idle ones, and those of HTTP/2.
    pub fn open(&self) -> usize {
        let by_http11 = self.permits.under_way().saturating_sub(self.http2.streams());
        by_http11 + self.idle.len() + self.http2.len()
    }

    /// The connection that came with the permit or, where that can't serve the request, the idle one that was used last and can;
    /// `None` where a new one has to be opened.
    pub fn idle_for(
        self: &Rc<OriginState>,
        choice: ConnectionChoice,
        wanted: Wanted<'_>,
        handed_on: Option<IdleConnection>,
        now: Instant,
    ) -> Option<IdleConnection> {
        if choice == ConnectionChoice::NewOnly {
            return None;
        }
        if let Some(idle) = handed_on.and_then(|idle| idle.for_request(wanted)) {
            return Some(idle);
        }
        #[cfg(test)]
        let idle_before = self.idle.len();
        let taken = self.idle.take(wanted, now);
        #[cfg(test)]
        if planted::is(Planted::LeakedPermit) && taken.is_none() && self.idle.len() < idle_before {
            Box::leak(Box::new(Permit::try_take(self, None)));
        }
        taken
    }

    /// Closes idle connections where the one that a request with a permit opens would be one too many.
    pub fn make_room(&self) {
        while self.open() > self.connections_max && self.idle.close_oldest() {}
    }

    pub fn stats(&self) -> OriginStats {
        OriginStats {
            origin: self.origin.clone(),
            open: self.open(),
            idle: self.idle.len(),
            http2_connections: self.http2.len(),
            http2_streams: self.http2.streams(),
            waiting: self.permits.waiting(),
            is_behind: self.permits.is_behind(),
            counts: self.counts(),
        }
    }
}

/// The clients whose requests are under way. A permit costs no lookup; clients are counted only where the share of one may be
/// reached.
#[derive(Default)]
struct Holders {
    places: Vec<Option<Client>>,
    free: Vec<usize>,
}

impl Holders {
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

/// A place in an origin's queue, free again when this is dropped.
struct Place<'a> {
    permits: &'a Permits,
    ticket: Ticket,
    turn: oneshot::Receiver<Turn>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.permits.state.borrow_mut();
        if state.waiting.remove(self.ticket).is_some() {
            self.permits.note_delay(&mut state, Instant::now());
        }
    }
}
