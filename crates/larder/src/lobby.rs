//! Where clients wait between two requests: one descriptor of the kernel's for all of them instead of a task for each.
//!
//! Those who speak are heard together: each one's request is read and, if the store has the answer at hand, answered into its
//! outbox; then all the answers are written. So the processor does the same thing many times in a row, and a hit costs
//! no turn of the runtime (decision 020). What needs a wait (a fetch, a client that reads slowly, half a head) leaves with a
//! task of its own and comes back when that is over; a connection whose socket had to join the runtime's poll stays a task.
//!
//! The descriptor tells of each socket once, when something comes (`EPOLLET`). So a read that takes all there is needs no
//! second one to find that out; and what comes for somebody who is away is noted at its seat.

use crate::caught;
use crate::journey::{self, First, Step};
use crate::session::{HEAD_READ_BYTES_MAX, Session};
use crate::socket::Socket;
use crate::ticker::{Over, TICK, Wait};
use crate::worker::Worker;
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

/// So many are heard before the first answer is written.
const ROUND_CONNECTIONS: usize = 32;

/// So many are answered before other tasks get a turn, with those of the last round.
const TURN_CONNECTIONS: usize = 64;

/// Who has more to say than so many reads take gets a task, so that others have their turn.
const READS_MAX: u8 = 4;

/// A worker's clients that wait.
pub struct Lobby {
    registry: Registry,
    seats: RefCell<Vec<Seat>>,
    free: RefCell<Vec<usize>>,
    round: RefCell<Round>,
    /// Nobody waits here any more.
    closed: Cell<bool>,
}

enum Seat {
    /// Nobody's.
    Free,
    /// Of one that waits since this tick.
    Here(Box<Session>, u64),
    /// Of one that is busy; whether something came for it since.
    Away { stirred: bool },
}

/// What is used again for each round.
struct Round {
    descriptor: Descriptor,
    events: Events,
    heard: Vec<Heard>,
}

/// One that has spoken, and what becomes of it.
struct Heard {
    session: Box<Session>,
    step: Step,
    /// There may be more to read of which nothing will be told.
    more: bool,
}

/// A connection's seat; it is free again when this goes.
pub struct Place {
    lobby: Rc<Lobby>,
    number: usize,
    registered: bool,
}

impl Place {
    /// Nothing that comes for this socket is of interest here any more.
    pub fn give_up(self, socket: &Socket) {
        if self.registered
            && let Ok(socket) = socket.descriptor()
        {
            // It was added, so it is there.
            let _ = self.lobby.registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.seats.borrow_mut()[self.number] = Seat::Free;
        self.lobby.free.borrow_mut().push(self.number);
    }
}

impl Lobby {
    /// An empty one.
    pub fn new() -> io::Result<Rc<Lobby>> {
        let descriptor = Descriptor::new()?;
        let registry = descriptor.registry().try_clone()?;
        let (events, heard) = (Events::with_capacity(ROUND_CONNECTIONS), Vec::with_capacity(ROUND_CONNECTIONS));
        Ok(Rc::new(Lobby {
            registry,
            seats: RefCell::default(),
            free: RefCell::default(),
            round: RefCell::new(Round { descriptor, events, heard }),
            closed: Cell::new(false),
        }))
    }

    /// A seat for a connection that was let in.
    fn place(self: &Rc<Self>) -> Place {
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut seats = self.seats.borrow_mut();
            seats.push(Seat::Free);
            seats.len() - 1
        });
        self.seats.borrow_mut()[number] = Seat::Away { stirred: false };
        Place { lobby: Rc::clone(self), number, registered: false }
    }

    /// Lets somebody wait who has nothing under way. If the client has spoken meanwhile, it is heard at once.
    fn sit(&self, mut session: Box<Session>) {
        if !self.is_registered(&mut session) || self.closed.get() {
            return go_for_good(session, First::Rest);
        }
        let Some(seat) = session.place.as_ref().map(|place| place.number) else { return go(session, First::Rest) };
        if let Seat::Away { stirred: stirred @ true } = &mut self.seats.borrow_mut()[seat] {
            *stirred = false;
        } else {
            session.rest();
            let since = session.worker.ticker.wait_begins();
            self.seats.borrow_mut()[seat] = Seat::Here(session, since);
            return;
        }
        self.attend(session, READS_MAX);
    }

    fn is_registered(&self, session: &mut Session) -> bool {
        let Some(place) = &session.place else { return false };
        if place.registered {
            return true;
        }
        let number = Token(place.number);
        let added = session.free().and_then(|socket| socket.descriptor().ok()).is_some_and(|socket| {
            self.registry.register(&mut SourceFd(&socket.as_raw_fd()), number, Interest::READABLE).is_ok()
        });
        if let Some(place) = &mut session.place {
            place.registered = added;
        }
        added
    }

    /// Hears one alone for whom more may have come than one read takes.
    fn attend(&self, session: Box<Session>, reads_left: u8) {
        if let Some(heard) = hear(session, true) {
            self.answer(heard, reads_left);
        }
    }

    /// Writes what one is answered, and shows it its way.
    fn answer(&self, heard: Heard, reads_left: u8) {
        let Heard { mut session, step, more } = heard;
        let first = match step {
            Step::Goes(first) => *first,
            Step::Waits | Step::Closes => match session.flush_now() {
                Err(_) => return session.leave(),
                Ok(false) if step.closes() => First::Close,
                Ok(true) if step.closes() && session.is_over() => return session.leave(),
                Ok(true) if step.closes() => First::Close,
                Ok(true) if !more => return self.sit(session),
                Ok(true) if reads_left > 0 => return self.attend(session, reads_left - 1),
                Ok(_) => First::Rest,
            },
        };
        // Of what is there to be read, nothing is told again here.
        if more { go_for_good(session, first) } else { go(session, first) }
    }

    /// Hears those who have spoken and answers them; says how many they were.
    fn round(&self, worker: &Worker) -> io::Result<usize> {
        let mut round = self.round.borrow_mut();
        let Round { descriptor, events, heard } = &mut *round;
        match descriptor.poll(events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(ROUND_CONNECTIONS),
            told => told?,
        }
        let mut many = 0;
        worker.clock.row_begins();
        for event in events.iter() {
            many += 1;
            let Some(session) = self.call(event.token().0) else { continue };
            let Some(one) = hear(session, event.is_read_closed() || event.is_error()) else { continue };
            if one.session.hurries {
                self.answer(one, READS_MAX);
                worker.clock.row_begins();
            } else {
                heard.push(one);
            }
        }
        worker.clock.row_ends();
        for one in heard.drain(..) {
            self.answer(one, READS_MAX);
        }
        Ok(many)
    }

    /// Hears those who speak, until so many did that others should have a turn first.
    async fn rounds(&self, worker: &Worker, poll: &TcpStream) -> io::Result<()> {
        poll_fn(|cx| {
            loop {
                ready!(poll.poll_read_ready(cx))?;
                match poll.try_io(tokio::io::Interest::READABLE, || self.turn(worker)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return Poll::Ready(done),
                }
            }
        })
        .await
    }

    /// Rounds one after the other, as long as somebody speaks: while many are answered the next ones come, and to look for
    /// them here again costs one call where the runtime needs two. Who is alone is not looked for again. `WouldBlock` once
    /// nobody speaks: of the next one the runtime's poll will tell.
    fn turn(&self, worker: &Worker) -> io::Result<()> {
        let mut heard = 0;
        loop {
            let many = self.round(worker)?;
            heard += many;
            match heard {
                TURN_CONNECTIONS.. => return Ok(()),
                _ if many == 0 || heard == 1 => return Err(io::ErrorKind::WouldBlock.into()),
                _ => {}
            }
        }
    }

    /// Takes one from its seat.
    fn call(&self, number: usize) -> Option<Box<Session>> {
        let mut seats = self.seats.borrow_mut();
        let seat = seats.get_mut(number)?;
        match seat {
            Seat::Here(..) => match std::mem::replace(seat, Seat::Away { stirred: false }) {
                Seat::Here(session, _) => Some(session),
                Seat::Free | Seat::Away { .. } => None,
            },
            Seat::Away { stirred } => {
                *stirred = true;
                None
            }
            Seat::Free => None,
        }
    }

    /// Ends the waits that took too long, or all of them; says for how long none of the others has to end.
    fn look_around(&self, worker: &Worker, all: bool) -> Duration {
        let shortest = {
            let timeouts = &worker.config().timeouts;
            timeouts.idle.min(timeouts.head)
        };
        let mut over = Vec::new();
        let mut next = shortest.max(TICK);
        for seat in self.seats.borrow_mut().iter_mut() {
            let Seat::Here(session, since) = seat else { continue };
            let left = session.silence_max().saturating_sub(worker.ticker.since(*since));
            if !all && !left.is_zero() {
                next = next.min(left);
            } else if let Seat::Here(session, _) = std::mem::replace(seat, Seat::Away { stirred: false }) {
                over.push(session);
            }
        }
        over.into_iter().for_each(Session::leave);
        next
    }
}

/// Reads what a client said and answers what can be answered at once; nothing where there is nobody to answer. After the
/// bytes there may be `more` to read, such as the end of the connection.
fn hear(mut session: Box<Session>, more: bool) -> Option<Heard> {
    let worker = Rc::clone(&session.worker);
    let mut room = worker.scratch.borrow_mut();
    let room = &mut room[..HEAD_READ_BYTES_MAX];
    let bytes = match session.read_now(room) {
        Ok(bytes @ 1..) => bytes,
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => return Some(Heard { session, step: Step::Waits, more: false }),
            io::ErrorKind::Interrupted => return Some(Heard { session, step: Step::Waits, more: true }),
            _ => {
                session.leave();
                return None;
            }
        },
        Ok(0) => {
            session.leave();
            return None;
        }
    };
    session.borrow_outbox();
    // A broken invariant ends one connection, not the worker (invariant 12).
    match catch_unwind(AssertUnwindSafe(|| journey::at_once(&mut session, &room[..bytes]))) {
        Ok(step) => Some(Heard { session, step, more: more || bytes == room.len() }),
        Err(_) => {
            journey::broken(&mut session);
            Some(Heard { session, step: Step::Closes, more: false })
        }
    }
}

/// Gives a connection a task until it can wait here again.
fn go(session: Box<Session>, first: First) {
    // Boxed: the runtime moves a task's future three times from place to place.
    tokio::task::spawn_local(Box::pin(serve(session, first)));
}

/// The same for one that does not come back.
fn go_for_good(mut session: Box<Session>, first: First) {
    session.give_up_place();
    go(session, first);
}

/// Serves a connection of which this came first, until it ends or waits in the lobby.
async fn serve(mut session: Box<Session>, first: First) {
    let (worker, guest) = (Rc::clone(&session.worker), session.guest.take());
    if let Some(mut session) = journey::serve(session, first).await {
        session.guest = guest;
        worker.lobby.sit(session);
    }
}

/// Lets somebody in. What he has to say was heard before a task or a place in a poll was made for it.
pub fn enter(mut session: Box<Session>) {
    let lobby = Rc::clone(&session.worker.lobby);
    session.place = Some(lobby.place());
    if let Some(heard) = hear(session, false) {
        lobby.answer(heard, READS_MAX);
    }
}

/// Opens the lobby of a worker.
pub fn open(worker: &Rc<Worker>) -> io::Result<()> {
    // One of the runtime's streams tells of readiness alone, which is all that is asked of it here.
    let poll = std::net::TcpStream::from(worker.lobby.registry.as_fd().try_clone_to_owned()?);
    poll.set_nonblocking(true)?;
    let poll = TcpStream::from_std(poll)?;
    let (worker, poll) = (Rc::clone(worker), Rc::new(poll));
    tokio::task::spawn_local(async move {
        let restarts = &worker.shared.worker_restarts;
        caught::again(restarts, || keep(Rc::clone(&worker), Rc::clone(&poll))).await;
    });
    Ok(())
}

async fn keep(worker: Rc<Worker>, poll: Rc<TcpStream>) {
    let (timer, lobby) = (worker.ticker.timer(), &worker.lobby);
    let (mut looked, mut limit) = (worker.ticker.wait_begins(), Duration::ZERO);
    loop {
        let left = limit.saturating_sub(worker.ticker.since(looked));
        if left.is_zero() {
            (looked, limit) = (worker.ticker.wait_begins(), lobby.look_around(&worker, false));
            continue;
        }
        match timer.limit(left, Wait::Idle, lobby.rounds(&worker, &poll)).await {
            // Others first: many have spoken.
            Ok(Ok(())) => tokio::task::yield_now().await,
            Err(Over::Late) => {}
            Err(Over::Draining | Over::Ending) => break,
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot wait for clients");
                break;
            }
        }
    }
    lobby.closed.set(true);
    lobby.look_around(&worker, true);
}
