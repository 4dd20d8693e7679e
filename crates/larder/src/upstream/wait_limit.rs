//! The time limits of waits for an origin: on the worker's coarse clock, where a wait that ends soon costs nothing, or exactly,
//! where there is no worker.

use crate::ticker::{Ticker, Timer, Wait};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// The clock that limits are measured by.
pub(super) enum LimitClock {
    /// A timer of the runtime for each wait.
    Exact,
    /// The worker's clock: limits are exact to one tick, upwards.
    Coarse(Rc<Ticker>),
}

/// The limit of one wait after the other.
pub(super) enum WaitLimit {
    Exact,
    Coarse(Timer),
}

/// The time is up.
pub(super) struct TimeIsUp;

impl LimitClock {
    pub fn wait_limit(&self) -> WaitLimit {
        match self {
            LimitClock::Exact => WaitLimit::Exact,
            LimitClock::Coarse(ticker) => WaitLimit::Coarse(ticker.timer()),
        }
    }
}

impl WaitLimit {
    /// Waits for `work`, at most `limit`.
    pub async fn limit<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, TimeIsUp> {
        match self {
            WaitLimit::Exact => timeout(limit, work).await.map_err(|_| TimeIsUp),
            WaitLimit::Coarse(timer) => timer.limit(limit, Wait::Busy, work).await.map_err(|_| TimeIsUp),
        }
    }
}
