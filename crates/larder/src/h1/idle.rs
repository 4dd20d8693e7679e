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
use super::serve::{self, Asking, NextState, Start};
use super::slot::{Slot, Slots};
use crate::caught;
use crate::clock::Carried;
use crate::hook::CallEnd;
use crate::ticker::{TICK, Wait, WaitEnd};
use mio::{Events, Poll as Descriptor};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
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
    slots: Rc<Slots<Box<Connection>>>,
    batch: RefCell<Batch>,
    /// Set when the worker drains: no connection is parked any more.
    closed: Cell<bool>,
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

impl IdleConnections {
    /// A new descriptor without connections.
    pub fn new() -> io::Result<IdleConnections> {
        let descriptor = Descriptor::new()?;
        let registry = descriptor.registry().try_clone()?;
        let (events, served) = (Events::with_capacity(BATCH_CONNECTIONS), Vec::with_capacity(BATCH_CONNECTIONS));
        Ok(IdleConnections {
            slots: Slots::new(registry),
            batch: RefCell::new(Batch { descriptor, events, served }),
            closed: Cell::new(false),
        })
    }

    /// Parks a connection on which nothing is under way. If its socket became readable meanwhile, it is served at once.
    fn park(&self, mut connection: Box<Connection>) {
        if !connection.join_idle_poll() || self.closed.get() {
            return promote_for_good(connection, Start::NextRequest);
        }
        let Some(number) = connection.slot.as_ref().map(Slot::number) else {
            return promote_to_task(connection, Start::NextRequest);
        };
        if self.slots.became_readable(number) {
            return self.serve_one(connection, READS_MAX);
        }
        connection.park();
        let since = connection.space.env.ticker.wait_begins();
        self.slots.park(number, connection, since);
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
            NextState::Asks(asking) => match ask(connection, asking, more) {
                Some((back, start)) => {
                    connection = back;
                    start
                }
                None => return,
            },
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
            && let Some((number, is_ended)) = self.slots.simulated.next()
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
        let Some(connection) = self.slots.take(number) else { return };
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
                if self.slots.simulated.poll(cx).is_ready() {
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

    /// Closes connections that were idle for too long, or all of them; gives the time for which none of the others expires.
    fn expire(&self, space: &Workspace, all: bool) -> Duration {
        let env = &space.env;
        let shortest = {
            let timeouts = &env.config().timeouts;
            timeouts.idle.min(timeouts.head)
        };
        let mut next = shortest.max(TICK);
        let expired = self.slots.take_expired(|connection, since| {
            let left = connection.silence_max().saturating_sub(env.ticker.since(since));
            if all || left.is_zero() {
                return true;
            }
            next = next.min(left);
            false
        });
        expired.into_iter().for_each(Connection::drop_now);
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

/// Asks the hooks of a request; the connection goes on with their reply, and has no task until then. Gives it back with its first step
/// in a task, where it needs one: that a client leaves is seen when the connection is parked again, if all was read that had come.
fn ask(mut connection: Box<Connection>, mut asking: Box<Asking>, more: bool) -> Option<(Box<Connection>, Start)> {
    // The answers to earlier requests of the connection do not wait for a process.
    let may_wait = !more && matches!(connection.write_now(), Ok(true));
    let call = may_wait.then(|| asking.call(&connection.space.env, &connection.peer)).flatten();
    let Some(call) = call else {
        let (request, begun) = asking.into_begun();
        return Some((connection, Start::Request(request, begun)));
    };
    connection.give_back_buffers();
    call.then(move |end| go_on(connection, *asking, end));
    None
}

/// Goes on with a request whose call of hooks has ended.
fn go_on(mut connection: Box<Connection>, asking: Asking, end: CallEnd) {
    let space = Rc::clone(&connection.space);
    connection.borrow_outbox();
    // A broken invariant ends one connection, not the worker.
    let state = match catch_unwind(AssertUnwindSafe(|| serve::answer_asked(&mut connection, asking, end))) {
        Ok(Ok(next)) => serve::state_after(&connection, next),
        Ok(Err((request, begun))) => NextState::NeedsTask(Box::new(Start::Request(request, begun))),
        Err(_) => {
            serve::broken(&mut connection);
            NextState::Closes
        }
    };
    space.idle.write(Served { connection, state, more: false }, READS_MAX);
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
    // A header of the PROXY protocol stood before them, and some bytes were read with it.
    if connection.was_read_from() {
        return promote_to_task(connection, Start::NextRequest);
    }
    let space = Rc::clone(&connection.space);
    connection.slot = Some(space.idle.slots.slot());
    if let Some(served) = read_ready(connection, false) {
        space.idle.write(served, READS_MAX);
    }
}

/// Begins to serve the idle connections of a worker.
pub fn start(space: &Rc<Workspace>) -> io::Result<()> {
    // The descriptor is no TCP socket. It stands in a `TcpStream` because that is how the runtime reports readiness; nothing
    // is ever read from the stream or written to it.
    let poll = std::net::TcpStream::from(space.idle.slots.registry.as_fd().try_clone_to_owned()?);
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
