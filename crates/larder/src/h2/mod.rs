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
use crate::wakers::Changes;
use state::State;
use std::cell::RefCell;
use std::rc::Rc;

/// The state of a connection, which its task and the tasks of its streams share.
struct Link {
    space: Rc<Workspace>,
    /// The facts of this connection that its requests are judged by.
    peer: PeerFacts,
    state: RefCell<State>,
    /// Those that requests have made, for the task of the connection.
    changes: Changes,
}

impl Link {
    /// Has the task of the connection look at the state.
    fn wake(&self) {
        self.changes.note();
    }
}
