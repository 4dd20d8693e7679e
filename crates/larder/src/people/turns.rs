//! Failed logins of clients, and the turns of their checks: no more are under way for a client than it may still fail.

use crate::clock;
use larder_people::attempts::{Attempts, Begin, ClientKey};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A check waits so long for the end of others of its client.
const TURN_WITHIN: Duration = Duration::from_secs(10);

/// The failed logins and the checks of all clients of a login.
#[derive(Debug)]
pub(super) struct Turns {
    attempts: Mutex<Attempts>,
    /// Wakes checks that wait for the end of others.
    ended: Notify,
}

/// A check that has begun, or a handshake; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    client: ClientKey,
}

/// There is no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTurn {
    /// The client has failed too often, and has to wait.
    Limited(Duration),
    /// Other checks of the client take too long.
    Busy,
}

impl Turns {
    pub fn new(attempts: Attempts) -> Turns {
        Turns { attempts: Mutex::new(attempts), ended: Notify::new() }
    }

    /// How long a client has to wait before its next attempt; `None` where it need not.
    pub fn wait(&self, client: &ClientKey) -> Option<Duration> {
        self.attempts.lock().wait(client, clock::instant())
    }

    /// Notes that a client has failed; a check of it ends after that.
    pub fn failed(&self, client: &ClientKey) {
        self.attempts.lock().failed(client, clock::instant());
    }

    /// A turn for a check. A client that has as many as it may still fail, or as these, waits until one of them has ended.
    pub async fn begin(self: &Arc<Self>, client: ClientKey, turns_max: u32) -> Result<Turn, NoTurn> {
        let turn = async {
            loop {
                let mut ended = std::pin::pin!(self.ended.notified());
                ended.as_mut().enable();
                let begin = self.attempts.lock().begin(&client, turns_max, clock::instant());
                match begin {
                    Begin::Turn => return Ok(Turn { turns: Arc::clone(self), client }),
                    Begin::Wait(wait) => return Err(NoTurn::Limited(wait)),
                    Begin::Full => ended.await,
                }
            }
        };
        tokio::time::timeout(TURN_WITHIN, turn).await.unwrap_or(Err(NoTurn::Busy))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.attempts.lock().end(&self.client);
        self.turns.ended.notify_waiters();
    }
}
