//! Where clients wait between two requests: one descriptor of the kernel's for all of them instead of a task for each.
//!
//! Those who speak are heard together: each one's request is read and, if the store has the answer at hand, answered into its
//! outbox; then all the answers are written. So the processor does the same thing many times in a row, and a hit costs
//! no turn of the runtime. What needs a wait (a fetch, a client that reads slowly, half a head) leaves with a task of its own and
//! comes back when it is over; a connection whose socket had to join the runtime's poll meanwhile stays a task.

use crate::journey::{self, First, Step};
use crate::session::Session;
use crate::socket::Socket;
use crate::ticker::{Over, Wait};
use crate::worker::Worker;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// So many are heard before the first answer is written, and before others get a turn.
const ROUND_CONNECTIONS: usize = 32;

/// A worker's clients that wait.
pub struct Lobby {
    poll: OwnedFd,
    seats: RefCell<Vec<Seat>>,
    free: RefCell<Vec<u32>>,
    /// Nobody has waited for longer than since this tick.
    round: RefCell<Round>,
    /// The last time of all.
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
    events: Vec<epoll::Event>,
    heard: Vec<Heard>,
}

/// One that has spoken, and what becomes of it.
struct Heard {
    session: Box<Session>,
    step: Step,
}

/// A connection's seat; it is free again when this goes.
pub struct Place {
    lobby: Rc<Lobby>,
    number: u32,
    registered: bool,
}

impl Place {
    /// Nothing that comes for this socket is of interest here any more.
    pub fn give_up(self, socket: &Socket) {
        if self.registered
            && let Ok(socket) = socket.descriptor()
        {
            // It was added, so it is there.
            let _ = epoll::delete(&self.lobby.poll, socket);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.seats.borrow_mut()[self.number as usize] = Seat::Free;
        self.lobby.free.borrow_mut().push(self.number);
    }
}

impl Lobby {
    /// An empty one.
    pub fn new() -> io::Result<Rc<Lobby>> {
        let round =
            Round { events: Vec::with_capacity(ROUND_CONNECTIONS), heard: Vec::with_capacity(ROUND_CONNECTIONS) };
        Ok(Rc::new(Lobby {
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            seats: RefCell::default(),
            free: RefCell::default(),
            round: RefCell::new(round),
            closed: Cell::new(false),
        }))
    }

    /// A seat for a connection that was let in.
    fn place(self: &Rc<Self>) -> Place {
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut seats = self.seats.borrow_mut();
            seats.push(Seat::Free);
            u32::try_from(seats.len() - 1).expect("fewer connections than descriptors")
        });
        self.seats.borrow_mut()[number as usize] = Seat::Away { stirred: false };
        Place { lobby: Rc::clone(self), number, registered: false }
    }

    /// Lets somebody wait who has nothing under way. If the client has spoken meanwhile, it is heard at once.
    fn sit(&self, mut session: Box<Session>) {
        let worker = Rc::clone(&session.worker);
        if !self.is_registered(&mut session) || self.closed.get() {
            session.place = None;
            return go(session, First::Rest);
        }
        let Some(place) = &session.place else { return go(session, First::Rest) };
        let seat = place.number as usize;
        if let Seat::Away { stirred: stirred @ true } = &mut self.seats.borrow_mut()[seat] {
            *stirred = false;
        } else {
            session.rest();
            self.seats.borrow_mut()[seat] = Seat::Here(session, worker.ticker.wait_begins());
            return;
        }
        self.attend(session);
    }

    fn is_registered(&self, session: &mut Session) -> bool {
        let Some(place) = &session.place else { return false };
        if place.registered {
            return true;
        }
        let number = epoll::EventData::new_u64(place.number.into());
        let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let added = session.free().is_some_and(|socket| {
            socket.free().is_ok_and(|socket| epoll::add(&self.poll, socket, number, flags).is_ok())
        });
        if let Some(place) = &mut session.place {
            place.registered = added;
        }
        added
    }

    /// Hears one alone.
    fn attend(&self, session: Box<Session>) {
        if let Some(heard) = hear(session, false) {
            self.answer(heard);
        }
    }

    /// Writes what one is answered, and shows it its way.
    fn answer(&self, Heard { mut session, step }: Heard) {
        let first = match step {
            Step::Goes(first) => first,
            Step::Waits | Step::Closes => match session.flush_now() {
                Err(_) => return session.leave(),
                Ok(false) if step.closes() => First::Close,
                Ok(false) => First::Rest,
                Ok(true) if !step.closes() => return self.sit(session),
                Ok(true) if session.is_over() => return session.leave(),
                Ok(true) => First::Close,
            },
        };
        go(session, first);
    }

    /// Hears all who have spoken and answers them; says whether there may be more.
    fn round(&self) -> io::Result<bool> {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut round = self.round.borrow_mut();
        let Round { events, heard } = &mut *round;
        match epoll::wait(&self.poll, spare_capacity(events), Some(&AT_ONCE)) {
            Err(rustix::io::Errno::INTR) => return Ok(true),
            told => told?,
        };
        let full = events.len() == events.capacity();
        for event in events.drain(..) {
            let (number, flags) = (event.data.u64(), event.flags);
            let gone = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            if let Some(session) = self.call(number) {
                heard.extend(hear(session, gone));
            }
        }
        for one in heard.drain(..) {
            self.answer(one);
        }
        Ok(full)
    }

    /// Takes one from its seat.
    fn call(&self, number: u64) -> Option<Box<Session>> {
        let mut seats = self.seats.borrow_mut();
        let seat = seats.get_mut(usize::try_from(number).ok()?)?;
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
        let mut next = shortest;
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

/// Reads what a client said and answers what can be answered at once; nothing where there is nobody to answer.
fn hear(mut session: Box<Session>, gone: bool) -> Option<Heard> {
    let worker = Rc::clone(&session.worker);
    let mut room = worker.scratch.borrow_mut();
    let step = match session.read_now(&mut room) {
        Ok(0) => {
            session.leave();
            return None;
        }
        Ok(bytes) => {
            let more = gone || bytes == room.len();
            session.borrow_outbox();
            // A broken invariant ends one connection, not the worker (invariant 12).
            match catch_unwind(AssertUnwindSafe(|| journey::at_once(&mut session, &room[..bytes]))) {
                // What else there is to read is read by a task: the end of the connection, or a flood.
                Ok(Step::Waits) if more => Step::Goes(First::Rest),
                Ok(step) => step,
                Err(_) => {
                    worker.tally.panics.add(1);
                    session.leave();
                    return None;
                }
            }
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Step::Waits,
        Err(_) => {
            session.leave();
            return None;
        }
    };
    Some(Heard { session, step })
}

/// Gives a connection a task until it can wait here again.
fn go(session: Box<Session>, first: First) {
    // Boxed: the runtime moves a task's future three times from place to place.
    tokio::task::spawn_local(Box::pin(serve(session, first)));
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
    lobby.attend(session);
}

/// Opens the lobby of a worker.
pub fn open(worker: &Rc<Worker>) -> io::Result<()> {
    // One of the runtime's streams tells of readiness alone, which is all that is asked of it here.
    let poll = std::net::TcpStream::from(worker.lobby.poll.try_clone()?);
    poll.set_nonblocking(true)?;
    let poll = TcpStream::from_std(poll)?;
    tokio::task::spawn_local(keep(Rc::clone(worker), poll));
    Ok(())
}

async fn keep(worker: Rc<Worker>, poll: TcpStream) {
    let timer = worker.ticker.timer();
    let lobby = &worker.lobby;
    let mut limit = lobby.look_around(&worker, false);
    loop {
        let spoken = poll_fn(|cx| {
            loop {
                ready!(poll.poll_read_ready(cx))?;
                let round = poll.try_io(Interest::READABLE, || match lobby.round()? {
                    true => Ok(()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                });
                match round {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    done => return Poll::Ready(done),
                }
            }
        });
        match timer.limit(limit, Wait::Idle, spoken).await {
            Ok(Ok(())) => tokio::task::yield_now().await,
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot wait for clients");
                break;
            }
            Err(Over::Late) => limit = lobby.look_around(&worker, false),
            Err(Over::Draining) => break,
        }
    }
    lobby.closed.set(true);
    lobby.look_around(&worker, true);
}
