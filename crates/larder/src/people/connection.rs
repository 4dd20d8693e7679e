//! The login of a connection, for schemes that authenticate connections by a handshake (NTLM, and Negotiate with NTLM in it).

use super::User;
use super::turns::Turn;
use crate::helper::Conversation;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The login of a connection.
#[derive(Debug, Default)]
pub struct ConnectionLogin {
    handshake: Mutex<State>,
    /// Steps of handshakes that wait, or have waited, for a further one.
    steps: AtomicU64,
    tunnel_user: Option<Arc<User>>,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody has begun.
    #[default]
    Open,
    /// A process of the helper of this login waits for the next token.
    Handshake(Arc<str>, Conversation, Turn, u64),
    /// The user counts for all further requests, as long as nothing new is known of people.
    Done(Arc<User>, u64),
}

impl ConnectionLogin {
    /// That of a connection inside a tunnel, which this user has opened.
    pub fn in_tunnel_of(user: Arc<User>) -> ConnectionLogin {
        ConnectionLogin { tunnel_user: Some(user), ..ConnectionLogin::default() }
    }

    /// The user who has opened the tunnel inside which the connection is.
    pub fn tunnel_user(&self) -> Option<&Arc<User>> {
        self.tunnel_user.as_ref()
    }

    /// The user of this connection by this login, if what was known then still is.
    pub fn user(&self, login: &str, edition: u64) -> Option<Arc<User>> {
        match &*self.handshake.lock() {
            State::Done(user, of) if *of == edition && &*user.login == login => Some(Arc::clone(user)),
            _ => None,
        }
    }

    /// Takes the process of a handshake that has begun with this login. One with another login ends: no other login goes on with it.
    pub(super) fn take_conversation(&self, login: &str) -> Option<(Conversation, Turn)> {
        let mut state = self.handshake.lock();
        match std::mem::take(&mut *state) {
            State::Handshake(of, conversation, turn, _) if &*of == login => Some((conversation, turn)),
            _ => None,
        }
    }

    /// The handshake waits for the client's next token. The number is that of this step.
    pub(super) fn continues(&self, login: &Arc<str>, conversation: Conversation, turn: Turn) -> u64 {
        let number = self.steps.fetch_add(1, Ordering::Relaxed);
        *self.handshake.lock() = State::Handshake(Arc::clone(login), conversation, turn, number);
        number
    }

    /// Ends the handshake if it still waits after this step.
    pub(super) fn leaves(&self, number: u64) -> bool {
        let mut state = self.handshake.lock();
        let waits = matches!(&*state, State::Handshake(_, _, _, of) if *of == number);
        if waits {
            *state = State::Open;
        }
        waits
    }

    pub(super) fn done(&self, user: Arc<User>, edition: u64) {
        *self.handshake.lock() = State::Done(user, edition);
    }
}
