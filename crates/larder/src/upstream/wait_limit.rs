//! The time limits of waits for an origin: on the worker's coarse clock, where a wait that ends soon costs nothing, or exactly: by the
//! worker's one timer for such waits, or by one for each, where there is no worker.

use crate::deadlines::Deadlines;
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
    ExactOf(Rc<Deadlines>),
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

    /// A limit that is exact, for all waits of the worker.
    pub fn exact_limit(&self) -> WaitLimit {
        match self {
            LimitClock::Exact => WaitLimit::Exact,
            LimitClock::Coarse(_) => WaitLimit::ExactOf(Rc::default()),
        }
    }
}

impl WaitLimit {
    /// Waits for `work`, at most `limit`.
    pub async fn limit<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Result<T, TimeIsUp> {
        match self {
            WaitLimit::Exact => timeout(limit, work).await.map_err(|_| TimeIsUp),
            WaitLimit::ExactOf(deadlines) => deadlines.limit(limit, work).await.map_err(|_| TimeIsUp),
            WaitLimit::Coarse(timer) => timer.limit(limit, Wait::Busy, work).await.map_err(|_| TimeIsUp),
        }
    }
}
