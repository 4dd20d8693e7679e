//! How long a connection is waited for: on the worker's coarse clock, where waits that end soon cost nothing, or exactly,
//! for those who have no worker.

use crate::ticker::{Ticker, Timer, Wait};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// Where the limits of all connections of a worker are kept.
pub(super) enum Clock {
    /// A timer of the runtime for each wait.
    Exact,
    /// The worker's clock: limits are exact to one tick, upwards.
    Coarse(Rc<Ticker>),
}

/// The limit of one wait after the other.
pub(super) enum Patience {
    Exact,
    Coarse(Timer),
}

/// The time is up.
pub(super) struct Late;

impl Clock {
    pub fn patience(&self) -> Patience {
        match self {
            Clock::Exact => Patience::Exact,
            Clock::Coarse(ticker) => Patience::Coarse(ticker.timer()),
        }
    }
}

impl Patience {
    pub async fn limit<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, Late> {
        match self {
            Patience::Exact => timeout(limit, work).await.map_err(|_| Late),
            Patience::Coarse(timer) => timer.limit(limit, Wait::Busy, work).await.map_err(|_| Late),
        }
    }
}
