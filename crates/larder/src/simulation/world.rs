//! The state that clients, origins and the observer of a run share: the state of the origins, the trace, and the first law that was broken.

use super::law::Body;
use super::plan::Plan;
use crate::in_memory::Observer;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// A law that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The law.
    pub law: &'static str,
    /// The observation.
    pub seen: String,
}

/// A request that an origin has read and not answered to its end.
#[derive(Clone, Debug)]
pub struct OpenFetch {
    /// The object.
    pub object: usize,
    /// Since when.
    pub since: Instant,
    /// The head of the answer was sent.
    pub has_head: bool,
    /// The response may be stored.
    pub may_be_stored: bool,
}

/// The state of a run.
pub struct World {
    /// The plan.
    pub plan: Rc<Plan>,
    /// The present version of each object.
    pub versions: RefCell<Vec<u32>>,
    /// All answers of the origins, by their serial number.
    pub sent: RefCell<Vec<Body>>,
    /// Turns that were taken, by object.
    pub turns: RefCell<Vec<usize>>,
    /// Requests that are under way at origins.
    pub fetches: RefCell<BTreeMap<u64, OpenFetch>>,
    fetches_begun: Cell<u64>,
    /// Clients that wait for an answer, by object, and when the last one did.
    pub waiting: RefCell<Vec<(usize, Instant)>>,
    /// When an origin last did something, by object.
    pub active: RefCell<Vec<Instant>>,
    /// The serial number from which on answers may be used, by object: there was a purge.
    pub purged: RefCell<Vec<usize>>,
    /// Final answers that clients got.
    pub answers: Cell<usize>,
    /// Requests of which a client sent a part.
    pub begun: Cell<usize>,
    /// The server stops.
    pub is_draining: Cell<bool>,
    /// The server's ends of its clients' connections.
    accepted: RefCell<Vec<Observer>>,
    violation: RefCell<Option<Violation>>,
    trace: RefCell<Vec<String>>,
    start: Instant,
}

impl World {
    /// The beginning of a run.
    pub fn new(plan: Rc<Plan>) -> Rc<World> {
        let (now, many) = (Instant::now(), plan.objects.len());
        Rc::new(World {
            plan,
            versions: RefCell::new(vec![1; many]),
            sent: RefCell::default(),
            turns: RefCell::new(vec![0; many]),
            fetches: RefCell::default(),
            fetches_begun: Cell::new(0),
            waiting: RefCell::new(vec![(0, now); many]),
            active: RefCell::new(vec![now; many]),
            purged: RefCell::new(vec![0; many]),
            answers: Cell::new(0),
            begun: Cell::new(0),
            is_draining: Cell::new(false),
            accepted: RefCell::default(),
            violation: RefCell::default(),
            trace: RefCell::default(),
            start: now,
        })
    }

    /// The time since the beginning.
    pub fn time(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes an event.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        let millis = self.time().as_millis();
        self.trace.borrow_mut().push(format!("{millis:>6} ms  {}", what()));
    }

    /// Takes the trace.
    pub fn take_trace(&self) -> Vec<String> {
        self.trace.take()
    }

    /// A law was broken; the first one counts.
    pub fn broken(&self, law: &'static str, seen: impl Into<String>) {
        let seen = seen.into();
        self.trace(|| format!("BROKEN {law}: {seen}"));
        self.violation.borrow_mut().get_or_insert(Violation { law, seen });
    }

    /// The first law that was broken.
    pub fn violation(&self) -> Option<Violation> {
        self.violation.borrow().clone()
    }

    /// The server accepts a connection.
    pub fn accepts(&self, end: Observer) {
        self.accepted.borrow_mut().push(end);
    }

    /// Connections of clients that the server has not closed.
    pub fn open_clients(&self) -> usize {
        self.accepted.borrow().iter().filter(|end| end.is_open()).count()
    }

    /// An origin does something about an object.
    pub fn acts(&self, object: usize) {
        self.active.borrow_mut()[object] = Instant::now();
    }

    /// An object changes.
    pub fn change(&self, object: usize) {
        self.versions.borrow_mut()[object] += 1;
    }

    /// An origin begins to answer: the serial number of its answer.
    pub fn sends(&self, body: Body) -> usize {
        let mut sent = self.sent.borrow_mut();
        sent.push(body);
        sent.len() - 1
    }

    /// An origin has read a request.
    pub fn fetch_begins(&self, fetch: OpenFetch) -> u64 {
        let number = self.fetches_begun.get() + 1;
        self.fetches_begun.set(number);
        self.fetches.borrow_mut().insert(number, fetch);
        number
    }

    /// A client waits for an answer about an object until the guard is dropped.
    pub fn waits(self: &Rc<World>, object: usize) -> Waits {
        self.waiting.borrow_mut()[object].0 += 1;
        Waits { world: Rc::clone(self), object }
    }
}

/// A client waits for an answer for as long as this lives.
pub struct Waits {
    world: Rc<World>,
    object: usize,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut waiting = self.world.waiting.borrow_mut();
        let (many, last) = &mut waiting[self.object];
        *many -= 1;
        *last = Instant::now();
    }
}
