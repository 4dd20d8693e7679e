//! Whether a client is still there while its answer is awaited.
//!
//! To wait for the end of a client's socket, the socket would have to be registered in the runtime's poll: that costs two system
//! calls for each miss, and such a connection can't be parked among the idle ones again. So the socket is checked once a second
//! instead, and an answer that comes sooner costs a timer only.

use super::stream::ClientStream;
use crate::clock;
use crate::env::Env;
use crate::socket::OtherSide;
use crate::ticker::{Timer, Wait};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often the client's socket is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A client that waits for its answer.
pub struct Presence {
    timer: Timer,
    /// When the client was first seen to have closed its direction of the connection.
    ended: Option<Instant>,
}

/// The client does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Presence {
    /// A client that begins to wait.
    pub fn new(env: &Rc<Env>) -> Presence {
        Presence { timer: env.ticker.timer(), ended: None }
    }

    /// Runs `work`, which does not need the stream, until it is done or the client is gone.
    pub async fn wait<T, S: ClientStream>(&mut self, stream: &S, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = std::pin::pin!(work);
        loop {
            match self.until_look(work.as_mut()).await {
                Some(done) => return Ok(done),
                None if self.is_gone(stream) => return Err(Gone),
                None => {}
            }
        }
    }

    /// Runs `work` until it is done (`Some`), `limit` is over (`None`) or the client is gone.
    pub async fn wait_within<T, S: ClientStream>(
        &mut self,
        stream: &S,
        limit: Option<Duration>,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, Gone> {
        let Some(limit) = limit else { return self.wait(stream, work).await.map(Some) };
        let timer = stream.env().ticker.timer();
        match timer.limit(limit, Wait::Busy, self.wait(stream, work)).await {
            Ok(done) => done.map(Some),
            Err(_) if self.is_gone(stream) => Err(Gone),
            Err(_) => Ok(None),
        }
    }

    /// Runs `work`, which may use the stream, until the next check is due (`None`); the caller then calls [`Presence::is_gone`].
    pub async fn until_look<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.timer.limit(LOOK_EVERY, Wait::Busy, work).await.ok()
    }

    /// Whether the client is gone. A client that closed only its own direction may still wait for the answer, or may have left:
    /// both look the same. So it counts as gone after `timeouts.half_closed`.
    pub fn is_gone<S: ClientStream>(&mut self, stream: &S) -> bool {
        match stream.other_side() {
            OtherSide::Open => false,
            OtherSide::Closed => true,
            OtherSide::HalfClosed => {
                let since = *self.ended.get_or_insert_with(clock::instant);
                clock::instant().saturating_duration_since(since) >= stream.env().config().timeouts.half_closed
            }
        }
    }
}
