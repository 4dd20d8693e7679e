//! HTTP/2 with clients (RFC 9113): a transport of exchanges.
//!
//! A connection is a task that reads and writes (`connection`); each of its streams is an exchange in a task of its own on the same
//! worker (`stream`). They meet in the `state` of the connection, which knows no socket. Answers of one turn are written together.

mod connection;
mod meters;
mod request;
mod state;
mod stream;
mod tunnel;
mod websocket;

pub use connection::serve;
pub use meters::Flood;

use crate::env::PeerFacts;
use crate::h1::Workspace;
use state::State;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

/// The state of a connection, which its task and the tasks of its streams share.
struct Link {
    space: Rc<Workspace>,
    /// The facts of this connection that its requests are judged by.
    peer: PeerFacts,
    state: RefCell<State>,
    /// Wakes the task of the connection.
    waker: RefCell<Option<Waker>>,
    /// A stream has changed the state since the task of the connection looked at it.
    is_changed: Cell<bool>,
}

impl Link {
    /// Has the task of the connection look at the state.
    fn wake(&self) {
        if !self.is_changed.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Whether the state has changed; if not, the task is woken once it has.
    fn take_change(&self, cx: &Context<'_>) -> bool {
        if self.is_changed.take() {
            return true;
        }
        match &mut *self.waker.borrow_mut() {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        false
    }
}
