//! The connections of HTTP/2 to one origin, and what is remembered of the protocol that it speaks.

use super::super::fault::UpstreamFault;
use super::Link;
use crate::reach::Reach;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long an origin that has chosen HTTP/1.1 is asked by it before it is offered HTTP/2 again.
const HTTP_1_1_FOR: Duration = Duration::from_secs(600);

/// The protocol by which an origin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: it has chosen that, or wants it.
    Http11,
    /// HTTP/2, or the one that a new connection shows.
    Open,
}

/// The end of an attempt to connect, for the requests that wait for it.
pub type Dialled = Option<Result<(), UpstreamFault>>;

/// The connections of HTTP/2 to one origin.
#[derive(Default)]
pub struct Connections {
    links: RefCell<Vec<Rc<Link>>>,
    /// Until then the origin is asked by HTTP/1.1.
    http11_until: Cell<Option<Instant>>,
    /// The attempt to connect that is under way.
    dial: RefCell<Option<watch::Receiver<Dialled>>>,
    faults: Cell<u64>,
}

/// The right to open a connection, which one request at a time has.
pub struct Dial<'a> {
    connections: &'a Connections,
    sender: watch::Sender<Dialled>,
}

impl Connections {
    /// Connections that are open.
    pub fn len(&self) -> usize {
        self.links.borrow().len()
    }

    /// Requests on them.
    pub fn streams(&self) -> usize {
        self.links.borrow().iter().map(|link| link.leases.get()).sum()
    }

    /// Connections that were ended for a fault of the origin, or at a limit.
    pub fn faults(&self) -> u64 {
        self.faults.get()
    }

    pub(super) fn note_fault(&self) {
        self.faults.set(self.faults.get() + 1);
    }

    /// The protocol by which a request is sent now.
    pub fn protocol(&self, now: Instant) -> Protocol {
        match self.http11_until.get() {
            Some(until) if now < until => Protocol::Http11,
            _ => Protocol::Open,
        }
    }

    /// The origin has chosen HTTP/1.1, or wants it.
    pub fn speaks_http11(&self, now: Instant) {
        self.http11_until.set(Some(now + HTTP_1_1_FOR));
    }

    /// The connection with the most requests that has room for one more that may reach so far: the others may grow idle and go. One that
    /// is `opened_since` that moment, where a request is sent again because an older one broke.
    pub(in crate::upstream) fn with_room(&self, reach: &Reach, opened_since: Option<Instant>) -> Option<Rc<Link>> {
        let links = self.links.borrow();
        let may_serve =
            |link: &&Rc<Link>| opened_since.is_none_or(|since| link.opened_at >= since) && link.has_room(reach);
        links.iter().filter(may_serve).max_by_key(|link| link.leases.get()).cloned()
    }

    pub(super) fn add(&self, link: &Rc<Link>) {
        self.links.borrow_mut().push(Rc::clone(link));
    }

    pub(super) fn remove(&self, link: &Rc<Link>) {
        self.links.borrow_mut().retain(|other| !Rc::ptr_eq(other, link));
    }

    /// The right to open a connection; where another request has it, the end of its attempt.
    pub fn dial(&self) -> Result<Dial<'_>, watch::Receiver<Dialled>> {
        let mut dial = self.dial.borrow_mut();
        if let Some(under_way) = &*dial {
            return Err(under_way.clone());
        }
        let (sender, receiver) = watch::channel(None);
        *dial = Some(receiver);
        Ok(Dial { connections: self, sender })
    }
}

impl Dial<'_> {
    /// The attempt has ended; those that wait for it are told. Without this they learn that it was given up.
    pub fn ended(self, end: Result<(), UpstreamFault>) {
        self.sender.send_replace(Some(end));
    }
}

impl Drop for Dial<'_> {
    fn drop(&mut self) {
        self.connections.dial.replace(None);
    }
}
