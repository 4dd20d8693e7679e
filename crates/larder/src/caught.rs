//! Panics are caught here. A request that panics is answered 500 (`exchange`); the tasks and threads that last as long as the
//! server (its clock, its listeners) are restarted, and `larder_thread_restarts_total` counts that.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// The pause before a restart, so that a task which breaks at once does not keep a core busy.
const REST: Duration = Duration::from_millis(100);

/// Awaits a future; `None` when it met a broken invariant.
pub async fn caught<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Awaits what `work` makes, and again each time it met a broken invariant.
pub async fn again<F: Future>(restarts: &AtomicU64, mut work: impl FnMut() -> F) -> F::Output {
    loop {
        if let Some(done) = caught(work()).await {
            return done;
        }
        restarts.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(REST).await;
    }
}

/// Calls `work`, which needs no wait; counts when it met a broken invariant.
pub fn call(restarts: &AtomicU64, work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        restarts.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_begins_anew_and_is_counted() {
        let restarts = AtomicU64::new(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut turns = 0;
        let done = runtime.block_on(again(&restarts, || {
            turns += 1;
            let turn = turns;
            async move {
                tokio::task::yield_now().await;
                assert!(turn == 3, "a test asks for this");
                turn
            }
        }));
        call(&restarts, || panic!("a test asks for this"));
        assert_eq!((done, restarts.into_inner()), (3, 3));
    }
}
