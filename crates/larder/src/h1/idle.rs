//! Idle connections: one descriptor of the kernel for all of them instead of a task for each.
//!
//! Connections that became readable are served together, in a batch: the requests of each one are read and, if the store has
//! the answer at hand, answered into its outbox; then all the outboxes are written. So the processor repeats one step many
//! times in a row, and a hit costs no turn of the runtime (decision 020). A connection that needs a wait (a fetch, a client
//! that reads slowly, half a head) moves to a task of its own and is parked again when that is over; a connection whose socket
//! had to join the runtime's poll stays a task.
//!
//! The descriptor reports each socket once when something comes (`EPOLLET`), so a read that takes all there is needs no second
//! one to find that out; bytes that come for a connection that is not parked are noted at its slot.

use super::Workspace;
use super::connection::{Connection, HEAD_READ_BYTES_MAX};
use super::serve::{self, NextState, Start};
use crate::caught;
use crate::clock::Carried;
#[cfg(test)]
use crate::in_memory::Readiness;
#[cfg(test)]
use crate::planted::{self, Planted};
use crate::socket::Socket;
use crate::ticker::{TICK, Wait, WaitEnd};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll as Descriptor, Registry, Token};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;

/// Connections in a batch: so many are served before the first answer is written.
const BATCH_CONNECTIONS: usize = 32;

/// After so many connections other tasks get a turn.
const TURN_CONNECTIONS: usize = 64;

/// After so many reads a connection moves to its own task, so that one client can't starve the others.
const READS_MAX: u8 = 4;

/// The idle connections of a worker.
pub struct IdleConnections {
    registry: Registry,
    slots: RefCell<Vec<SlotState>>,
    free: RefCell<Vec<usize>>,
    batch: RefCell<Batch>,
    /// Set when the worker drains: no connection is parked any more.
    closed: Cell<bool>,
    /// Simulated connections that became readable.
    #[cfg(test)]
    simulated: Readiness,
}

enum SlotState {
    /// No connection has this slot.
    Free,
    /// Its connection is idle since this tick.
    Parked(Box<Connection>, u64),
    /// Its connection is being served; whether its socket became readable since.
    Served { is_readable: bool },
}

/// The buffers of a batch, used again by the next one.
struct Batch {
    descriptor: Descriptor,
    events: Events,
    served: Vec<Served>,
}

/// A connection whose requests were answered as far as that needs no wait.
struct Served {
    connection: Box<Connection>,
    state: NextState,
    /// There may be more to read that the descriptor will not report again.
    more: bool,
}

/// The slot of a connection; it is free again when this is dropped.
pub struct Slot {
    idle: Rc<IdleConnections>,
    number: usize,
    registered: bool,
}

impl Slot {
    /// Removes the socket from the descriptor: the connection will not be parked any more.
    pub fn give_up(self, socket: &Socket) {
        #[cfg(test)]
        socket.unwatch();
        if self.registered
            && let Ok(socket) = socket.descriptor()
        {
            // It was added, so it is there.
            let _ = self.idle.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.idle.slots.borrow_mut()[self.number] = SlotState::Free;
        self.idle.free.borrow_mut().push(self.number);
    }
}

impl IdleConnections {
    /// A new descriptor without connections.
    pub fn new() -> io::Result<Rc<IdleConnections>> {
        let descriptor = Descriptor::new()?;
        let registry = descriptor.registry().try_clone()?;
        let (events, served) = (Events::with_capacity(BATCH_CONNECTIONS), Vec::with_capacity(BATCH_CONNECTIONS));
        Ok(Rc::new(IdleConnections {
            registry,
            slots: RefCell::default(),
            free: RefCell::default(),
            batch: RefCell::new(Batch { descriptor, events, served }),
            closed: Cell::new(false),
            #[cfg(test)]
            simulated: Readiness::default(),
        }))
    }

    /// A slot for a connection that was accepted.
    fn slot(self: &Rc<Self>) -> Slot {
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut slots = self.slots.borrow_mut();
            slots.push(SlotState::Free);
            slots.len() - 1
        });
        self.slots.borrow_mut()[number] = SlotState::Served { is_readable: false };
        Slot { idle: Rc::clone(self), number, registered: false }
    }

    /// Parks a connection on which nothing is under way. If its socket became readable meanwhile, it is served at once.
    fn park(&self, mut connection: Box<Connection>) {
        if !self.is_registered(&mut connection) || self.closed.get() {
            return promote_for_good(connection, Start::NextRequest);
        }
        let Some(number) = connection.slot.as_ref().map(|slot| slot.number) else {
            return promote_to_task(connection, Start::NextRequest);
        };
        if let SlotState::Served { is_readable: is_readable @ true } = &mut self.slots.borrow_mut()[number] {
            *is_readable = false;
        } else {
            connection.park();
            let since = connection.space.env.ticker.wait_begins();
            self.slots.borrow_mut()[number] = SlotState::Parked(connection, since);
            return;
        }
        self.serve_one(connection, READS_MAX);
    }

    fn is_registered(&self, connection: &mut Connection) -> bool {
        let Some(slot) = &connection.slot else { return false };
        if slot.registered {
            return true;
        }
        let number = slot.number;
        let added = connection.free().is_some_and(|socket| self.register(socket, number));
        if let Some(slot) = &mut connection.slot {
            slot.registered = added;
        }
        added
    }

    /// Has the descriptor report this socket by the number of its slot.
    fn register(&self, socket: &Socket, number: usize) -> bool {
        #[cfg(test)]
        if socket.watch(&self.simulated, number) {
            return true;
        }
        socket.descriptor().is_ok_and(|socket| {
            self.registry.register(&mut SourceFd(&socket.as_raw_fd()), Token(number), Interest::READABLE).is_ok()
        })
    }

    /// Serves a connection outside of a batch, because more may have come than one read takes.
    fn serve_one(&self, connection: Box<Connection>, reads_left: u8) {
        if let Some(served) = read_ready(connection, true) {
            self.write(served, reads_left);
        }
    }

    /// Writes the answers of a connection, and parks it, closes it or moves it to a task.
    fn write(&self, served: Served, reads_left: u8) {
        let Served { mut connection, state, more } = served;
        let start = match state {
            NextState::NeedsTask(start) => *start,
            NextState::Waits | NextState::Closes => match connection.write_now() {
                Err(_) => return connection.drop_now(),
                Ok(false) if state.closes() => Start::Close,
                Ok(true) if state.closes() && connection.is_over() => return connection.drop_now(),
                Ok(true) if state.closes() => Start::Close,
                Ok(true) if !more => return self.park(connection),
                Ok(true) if reads_left > 0 => return self.serve_one(connection, reads_left - 1),
                Ok(_) => Start::NextRequest,
            },
        };
        // Bytes that are there already are not reported again.
        if more { promote_for_good(connection, start) } else { promote_to_task(connection, start) }
    }

    /// Serves the connections that are readable; gives their number.
    fn batch(&self, space: &Workspace) -> io::Result<usize> {
        let mut batch = self.batch.borrow_mut();
        let Batch { descriptor, events, served } = &mut *batch;
        match descriptor.poll(events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(BATCH_CONNECTIONS),
            polled => polled?,
        }
        let mut many = 0;
        let clock = &space.env.clock;
        clock.begin_batch();
        for event in events.iter() {
            many += 1;
            self.serve_ready(event.token().0, event.is_read_closed() || event.is_error(), clock, served);
        }
        #[cfg(test)]
        while many < BATCH_CONNECTIONS
            && let Some((number, is_ended)) = self.simulated.next()
        {
            many += 1;
            self.serve_ready(number, is_ended, clock, served);
        }
        clock.end_batch();
        for one in served.drain(..) {
            self.write(one, READS_MAX);
        }
        Ok(many)
    }

    /// Serves a connection of a batch that is readable; its answers are written with those of the others.
    #[inline]
    fn serve_ready(&self, number: usize, is_ended: bool, clock: &Carried, served: &mut Vec<Served>) {
        let Some(connection) = self.take(number) else { return };
        let Some(one) = read_ready(connection, is_ended) else { return };
        if one.connection.flush_now {
            self.write(one, READS_MAX);
            clock.begin_batch();
        } else {
            served.push(one);
        }
    }

    /// Serves batches, until so many connections had a turn that other tasks should have one first.
    async fn batches(&self, space: &Workspace, poll: &TcpStream) -> io::Result<()> {
        poll_fn(|cx| {
            loop {
                #[cfg(test)]
                if self.simulated.poll(cx).is_ready() {
                    match self.turn(space) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        done => return Poll::Ready(done),
                    }
                }
                ready!(poll.poll_read_ready(cx))?;
                match poll.try_io(tokio::io::Interest::READABLE, || self.turn(space)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return Poll::Ready(done),
                }
            }
        })
        .await
    }

    /// Batches one after the other, as long as connections are readable: while one batch is answered the next requests come,
    /// and to poll for them here again costs one call where the runtime needs two. After a batch of one connection there is no
    /// further poll. `WouldBlock` once none is readable: the runtime's poll reports the next one.
    fn turn(&self, space: &Workspace) -> io::Result<()> {
        let mut served = 0;
        loop {
            let many = self.batch(space)?;
            served += many;
            match served {
                TURN_CONNECTIONS.. => return Ok(()),
                _ if many == 0 || served == 1 => return Err(io::ErrorKind::WouldBlock.into()),
                _ => {}
            }
        }
    }

    /// Takes a connection that became readable from its slot.
    fn take(&self, number: usize) -> Option<Box<Connection>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(number)?;
        match slot {
            SlotState::Parked(..) => match std::mem::replace(slot, SlotState::Served { is_readable: false }) {
                SlotState::Parked(connection, _) => Some(connection),
                SlotState::Free | SlotState::Served { .. } => None,
            },
            SlotState::Served { is_readable } => {
                *is_readable = true;
                #[cfg(test)]
                if planted::is(Planted::LostWakeup) {
                    *is_readable = false;
                }
                None
            }
            SlotState::Free => None,
        }
    }

    /// Closes connections that were idle for too long, or all of them; gives the time for which none of the others expires.
    fn expire(&self, space: &Workspace, all: bool) -> Duration {
        let env = &space.env;
        let shortest = {
            let timeouts = &env.config().timeouts;
            timeouts.idle.min(timeouts.head)
        };
        let mut over = Vec::new();
        let mut next = shortest.max(TICK);
        for slot in self.slots.borrow_mut().iter_mut() {
            let SlotState::Parked(connection, since) = slot else { continue };
            let left = connection.silence_max().saturating_sub(env.ticker.since(*since));
            if !all && !left.is_zero() {
                next = next.min(left);
            } else if let SlotState::Parked(connection, _) =
                std::mem::replace(slot, SlotState::Served { is_readable: false })
            {
                over.push(connection);
            }
        }
        over.into_iter().for_each(Connection::drop_now);
        next
    }
}

/// Reads the bytes of a client and answers the requests that can be answered without a wait; `None` where the connection is over.
/// After the bytes there may be `more` to read, such as the end of the connection.
fn read_ready(mut connection: Box<Connection>, more: bool) -> Option<Served> {
    let space = Rc::clone(&connection.space);
    let mut room = space.scratch.borrow_mut();
    let room = &mut room[..HEAD_READ_BYTES_MAX];
    let bytes = match connection.read_now(room) {
        Ok(bytes @ 1..) => bytes,
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => return Some(Served { connection, state: NextState::Waits, more: false }),
            io::ErrorKind::Interrupted => return Some(Served { connection, state: NextState::Waits, more: true }),
            _ => {
                connection.drop_now();
                return None;
            }
        },
        Ok(0) => {
            connection.drop_now();
            return None;
        }
    };
    connection.borrow_outbox();
    // A broken invariant ends one connection, not the worker.
    match catch_unwind(AssertUnwindSafe(|| serve::serve_without_wait(&mut connection, &room[..bytes]))) {
        Ok(state) => Some(Served { connection, state, more: more || bytes == room.len() }),
        Err(_) => {
            serve::broken(&mut connection);
            Some(Served { connection, state: NextState::Closes, more: false })
        }
    }
}

/// Moves a connection to a task of its own until it can be parked again.
fn promote_to_task(connection: Box<Connection>, start: Start) {
    // Boxed: the runtime moves a task's future three times from place to place.
    tokio::task::spawn_local(Box::pin(serve_task(connection, start)));
}

/// Moves a connection to a task of its own for good.
fn promote_for_good(mut connection: Box<Connection>, start: Start) {
    connection.give_up_slot();
    promote_to_task(connection, start);
}

/// Serves a connection until it ends or is parked.
async fn serve_task(mut connection: Box<Connection>, start: Start) {
    let (space, permit) = (Rc::clone(&connection.space), connection.permit.take());
    if let Some(mut connection) = serve::serve(connection, start).await {
        connection.permit = permit;
        space.idle.park(connection);
    }
}

/// Serves a connection that was just accepted. Its first bytes are read before it gets a task or is registered in a poll.
pub fn serve_accepted(mut connection: Box<Connection>) {
    let idle = Rc::clone(&connection.space.idle);
    connection.slot = Some(idle.slot());
    if let Some(served) = read_ready(connection, false) {
        idle.write(served, READS_MAX);
    }
}

/// Begins to serve the idle connections of a worker.
pub fn start(space: &Rc<Workspace>) -> io::Result<()> {
    // The descriptor is no TCP socket. It stands in a `TcpStream` because that is how the runtime reports readiness; nothing
    // is ever read from the stream or written to it.
    let poll = std::net::TcpStream::from(space.idle.registry.as_fd().try_clone_to_owned()?);
    poll.set_nonblocking(true)?;
    let poll = TcpStream::from_std(poll)?;
    let (space, poll) = (Rc::clone(space), Rc::new(poll));
    tokio::task::spawn_local(async move {
        let restarts = &space.env.common.worker_restarts;
        caught::again(restarts, || run(Rc::clone(&space), Rc::clone(&poll))).await;
    });
    Ok(())
}

async fn run(space: Rc<Workspace>, poll: Rc<TcpStream>) {
    let (ticker, idle) = (&space.env.ticker, &space.idle);
    let timer = ticker.timer();
    let (mut looked, mut limit) = (ticker.wait_begins(), Duration::ZERO);
    loop {
        let left = limit.saturating_sub(ticker.since(looked));
        if left.is_zero() {
            (looked, limit) = (ticker.wait_begins(), idle.expire(&space, false));
            continue;
        }
        match timer.limit(left, Wait::Idle, idle.batches(&space, &poll)).await {
            // `TURN_CONNECTIONS` were served: other tasks run first.
            Ok(Ok(())) => tokio::task::yield_now().await,
            Err(WaitEnd::Late) => {}
            Err(WaitEnd::Draining | WaitEnd::Ending) => break,
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot wait for clients");
                break;
            }
        }
    }
    idle.closed.set(true);
    idle.expire(&space, true);
}
