//! Whether a client is still there while its answer is awaited.
//!
//! A socket that is waited for would have to join the runtime's poll, which costs each miss two calls and the connection its
//! slot among the idle ones. So it is looked at once a second instead: an answer that comes sooner pays for a timer only.

use super::stream::ClientStream;
use crate::env::Env;
use crate::socket::OtherSide;
use crate::ticker::{Timer, Wait};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often a client is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A client that waits.
pub struct Presence {
    timer: Timer,
    /// When it was first seen to have ended its direction.
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

    /// Waits for something that does not need the session, for as long as the client waits too.
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

    /// The same for at most so long; `None` when that is over.
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

    /// Waits for something until it is time to look at the client, which is for the caller to do: `work` has the session.
    pub async fn until_look<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.timer.limit(LOOK_EVERY, Wait::Busy, work).await.ok()
    }

    /// Looks at the client. One that only ended its direction may be one that said all it had to say; programs that leave
    /// look the same, so it is believed for `timeouts.half_closed` only.
    pub fn is_gone<S: ClientStream>(&mut self, stream: &S) -> bool {
        match stream.other_side() {
            OtherSide::Open => false,
            OtherSide::Closed => true,
            OtherSide::HalfClosed => {
                let since = *self.ended.get_or_insert_with(Instant::now);
                since.elapsed() >= stream.env().config().timeouts.half_closed
            }
        }
    }
}
