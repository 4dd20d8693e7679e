//! HTTP/2 to origins (RFC 9113): a connection carries many requests at once.
//!
//! A connection is a task that reads and writes (`connection`); a request is a [`Stream`], which its fetch holds. They meet in the
//! `state` of the connection, which knows no socket. Which connections there are, and when one more is opened, is known in `by_h2`.

mod connection;
mod connections;
mod head;
mod meters;
mod state;
mod stream;
mod upload;

pub(super) use connection::open;
pub(super) use connections::{Connections, Protocol};
pub(super) use stream::{Stream, ask};

use super::Shared;
use crate::reach::Reach;
use crate::wakers::Changes;
use state::State;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// The state of a connection, which its task and its requests share.
pub(super) struct Link {
    shared: Rc<Shared>,
    peer: SocketAddr,
    opened_at: Instant,
    state: RefCell<State>,
    /// Those that requests have made, for the task of the connection.
    changes: Changes,
    /// Requests that have a stream of it, or are about to.
    leases: Cell<usize>,
    /// Requests that have had one.
    served: Cell<u64>,
    /// When the last bytes of the origin came.
    heard_at: Cell<Instant>,
    /// By when a PING has to be answered, where one is under way.
    answer_by: Cell<Instant>,
}

/// A connection that brought nothing for so long is asked by PING whether the origin is there, beside the next request.
const QUIET: Duration = Duration::from_secs(1);

impl Link {
    fn new(shared: Rc<Shared>, peer: SocketAddr, state: State) -> Link {
        let now = Instant::now();
        Link {
            shared,
            peer,
            opened_at: now,
            state: RefCell::new(state),
            changes: Changes::default(),
            leases: Cell::new(0),
            served: Cell::new(0),
            heard_at: Cell::new(now),
            answer_by: Cell::new(now),
        }
    }

    /// Whether it has served a request.
    pub fn has_served(&self) -> bool {
        self.served.get() > 0
    }

    /// Whether a request that may reach so far can have a stream of it.
    fn has_room(&self, reach: &Reach) -> bool {
        self.leases.get() < self.state.borrow().streams_max()
            && !matches!(reach, Reach::Through(_))
            && reach.permits(self.peer)
    }

    /// Has the origin show within this time that it is there, unless it did so just now: a network that went away since the last request
    /// looks like a slow origin otherwise.
    fn ask_for_life(&self, within: Duration) {
        let now = Instant::now();
        let by = now + within;
        let mut state = self.state.borrow_mut();
        if state.ping.is_some() {
            self.answer_by.set(self.answer_by.get().min(by));
        } else if now.saturating_duration_since(self.heard_at.get()) >= QUIET {
            state.ask_for_life();
            self.answer_by.set(by);
        }
    }

    /// Has the task of the connection look at the state.
    fn wake(&self) {
        self.changes.note();
    }
}
