//! The idle connections to one origin: which of them serve again, and when the others are closed.

use super::parents::ThroughParent;
use super::wanted::Wanted;
use crate::mount::Process;
use crate::reach::Reach;
use crate::record::Peer;
use crate::wire::Wire;
use larder_wire::proxy_protocol::SentHeader;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::time::Instant;

/// A connection that no request has.
pub(super) struct IdleConnection {
    pub wire: Wire,
    pub peer: Peer,
    /// How long the origin said it keeps an idle connection.
    pub origin_keeps: Option<Duration>,
    /// See [`Connection::acknowledge_within`](super::h1::Connection::acknowledge_within).
    pub acknowledged_within: Option<Duration>,
    /// The parent through which it leads, where one does.
    pub parent: Option<ThroughParent>,
    /// The header of the PROXY protocol with which it began: the origin takes it for that client's as long as it lives.
    pub header: Option<Box<SentHeader>>,
}

impl IdleConnection {
    /// Itself, if it can serve a request that may reach so far: one name may have led one client to an address where another
    /// may not go, and the origin may have closed the connection.
    pub fn for_request(mut self, wanted: Wanted<'_>) -> Option<IdleConnection> {
        (is_wanted(wanted, &self) && is_quiet(&mut self.wire, Look::AtSocket)).then_some(self)
    }
}

/// Whether an idle connection will do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionChoice {
    /// It will, and the request may be taken back: it may wait for its turn in a process of an application.
    InTurn,
    /// It will.
    IdleAllowed,
    /// The connection must be new: the request is a retry, or must not be sent twice.
    NewOnly,
}

/// So long a connection stays that is one too many: where many requests are under way at once, the next one needs it, and opening
/// another costs as much as the request.
const SURPLUS_KEPT: Duration = Duration::from_secs(1);

/// The idle connections to one origin.
pub(super) struct IdleConnections {
    /// The one used last is at the end and is used first: the others may grow old and go.
    parked: RefCell<Vec<Parked>>,
    /// The idle connections of the worker, to all origins.
    total: Rc<Cell<usize>>,
    keep_alive: Duration,
}

struct Parked {
    connection: IdleConnection,
    since: Instant,
    until: Instant,
}

impl IdleConnections {
    /// None yet. `total` counts those to all origins.
    pub fn new(total: &Rc<Cell<usize>>, keep_alive: Duration) -> IdleConnections {
        IdleConnections { parked: RefCell::default(), total: Rc::clone(total), keep_alive }
    }

    pub fn len(&self) -> usize {
        self.parked.borrow().len()
    }

    /// Takes the one that was used last and can serve a request that may reach so far.
    pub fn take(&self, wanted: Wanted<'_>, now: Instant) -> Option<IdleConnection> {
        loop {
            let mut parked = {
                let mut all = self.parked.borrow_mut();
                let at = all.iter().rposition(|parked| is_wanted(wanted, &parked.connection))?;
                all.remove(at)
            };
            self.total.set(self.total.get() - 1);
            if now < parked.until && is_quiet(&mut parked.connection.wire, Look::AtSocket) {
                return Some(parked.connection);
            }
        }
    }

    /// Takes the one to this process that was used last and can serve. The kernel is not asked: a process closes no connection that
    /// is idle before it ends, and then the request goes to another one.
    pub fn take_of(&self, process: &Arc<Process>, now: Instant) -> Option<IdleConnection> {
        let is_to = |wire: &Wire| matches!(wire, Wire::Mount(stream) if Arc::ptr_eq(stream.process(), process));
        loop {
            let mut parked = {
                let mut all = self.parked.borrow_mut();
                let at = all.iter().rposition(|parked| is_to(&parked.connection.wire))?;
                all.remove(at)
            };
            self.total.set(self.total.get() - 1);
            if now < parked.until && is_quiet(&mut parked.connection.wire, Look::AtEvents) {
                return Some(parked.connection);
            }
        }
    }

    /// Keeps a connection for as long as this side and the origin permit.
    pub fn park(&self, connection: IdleConnection) {
        let since = Instant::now();
        let time = connection.origin_keeps.map_or(self.keep_alive, |keeps| keeps.min(self.keep_alive));
        self.parked.borrow_mut().push(Parked { connection, since, until: since + time });
        self.total.set(self.total.get() + 1);
    }

    /// Since when each of them is idle.
    pub fn ages(&self) -> Vec<Instant> {
        self.parked.borrow().iter().map(|parked| parked.since).collect()
    }

    /// Closes those that are idle since then or longer.
    pub fn close_older(&self, newest: Instant) {
        let mut all = self.parked.borrow_mut();
        let closed = all.partition_point(|parked| parked.since <= newest);
        drop(all.drain(..closed));
        self.total.set(self.total.get() - closed);
    }

    /// Closes the oldest of those beyond `max`, as far as they are idle for a second already.
    pub fn close_surplus(&self, max: usize) {
        let surplus = self.len().saturating_sub(max);
        if surplus == 0 {
            return;
        }
        let now = Instant::now();
        let mut all = self.parked.borrow_mut();
        let closed = all[..surplus].partition_point(|parked| now.duration_since(parked.since) >= SURPLUS_KEPT);
        drop(all.drain(..closed));
        self.total.set(self.total.get() - closed);
    }

    /// Closes the oldest one; false where there is none.
    pub fn close_oldest(&self) -> bool {
        let mut all = self.parked.borrow_mut();
        if all.is_empty() {
            return false;
        }
        drop(all.remove(0));
        self.total.set(self.total.get() - 1);
        true
    }

    /// Closes those beyond `max`, those whose time is over and those of which it is known that the origin has closed them. The kernel is not asked:
    /// there may be thousands, and each is looked at again before it serves.
    pub fn sweep(&self, max: usize) {
        self.close_surplus(max);
        let now = Instant::now();
        let mut all = self.parked.borrow_mut();
        let before = all.len();
        all.retain_mut(|parked| now < parked.until && is_quiet(&mut parked.connection.wire, Look::AtEvents));
        self.total.set(self.total.get() - (before - all.len()));
    }
}

/// Whether a connection is one of those that a request may have.
fn is_wanted(wanted: Wanted<'_>, connection: &IdleConnection) -> bool {
    connection.header.as_deref() == wanted.header && is_within(wanted.reach, connection)
}

/// Whether a request that may reach so far may use a connection. Origins without an address are those of the configuration.
fn is_within(reach: &Reach, connection: &IdleConnection) -> bool {
    match (reach, &connection.parent) {
        // Compared by value: after a reload the same place may be another proxy's.
        (Reach::Through(parents), Some(through)) => parents.iter().any(|parent| **parent == *through.parent),
        (Reach::Through(_), None) | (_, Some(_)) => false,
        (_, None) => match connection.peer.address() {
            Some(address) => reach.permits(address),
            None => matches!(reach, Reach::Configured),
        },
    }
}

/// How well an idle connection is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The kernel is asked: the reactor may not have heard of the end yet.
    AtSocket,
    /// Only where the reactor has heard of something.
    AtEvents,
}

/// False when the origin has closed the connection or has sent bytes that nobody asked for.
fn is_quiet(wire: &mut Wire, look: Look) -> bool {
    let context = &mut Context::from_waker(Waker::noop());
    match wire {
        Wire::Tcp(stream) => {
            let is_seen = stream.poll_read_ready(context).is_ready();
            has_nothing(&SockRef::from(&*stream), (look, is_seen), |peek| stream.try_io(Interest::READABLE, peek))
        }
        Wire::Unix(stream) => {
            let is_seen = stream.poll_read_ready(context).is_ready();
            has_nothing(&SockRef::from(&*stream), (look, is_seen), |peek| stream.try_io(Interest::READABLE, peek))
        }
        Wire::Mount(stream) => stream.socket().is_some_and(|stream| {
            let is_seen = stream.poll_read_ready(context).is_ready();
            has_nothing(&SockRef::from(stream), (look, is_seen), |peek| stream.try_io(Interest::READABLE, peek))
        }),
        // TLS has records of its own (session tickets) that mean nothing here: let it read them.
        wire => {
            let mut byte = [MaybeUninit::uninit()];
            Pin::new(wire).poll_read(context, &mut ReadBuf::uninit(&mut byte)).is_pending()
        }
    }
}

/// Whether a socket is open and has nothing to read. Where the reactor believes that there is something, it is told better by
/// `try_io`, which spares the next read.
fn has_nothing(
    socket: &SockRef<'_>,
    (look, is_seen): (Look, bool),
    try_io: impl FnOnce(&mut dyn FnMut() -> io::Result<()>) -> io::Result<()>,
) -> bool {
    if look == Look::AtEvents && !is_seen {
        return true;
    }
    let mut peek = || socket.peek(&mut [MaybeUninit::uninit()]).map(|_| ());
    let looked = if is_seen { try_io(&mut peek) } else { peek() };
    looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}
