//! A fetch in the hands of the client that began it: until the head of the answer is here it has no task of its own, so
//! that a short answer takes one turn of one task from the origin's socket to the client's.

use crate::worker::Worker;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// A fetch that goes on while its client waits in [`Led::beside`]. Dropped before its end it becomes a task: others may
/// follow it, and what is left of a body comes at its own pace.
#[must_use]
pub struct Led {
    run: Option<Pin<Box<dyn Future<Output = ()>>>>,
    worker: Rc<Worker>,
}

impl Led {
    pub(super) fn new(run: Pin<Box<dyn Future<Output = ()>>>, worker: Rc<Worker>) -> Led {
        Led { run: Some(run), worker }
    }

    /// Does something for the client while the fetch goes on. The fetch has the first turn: `work` sees what it brought.
    pub async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.advance(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// A fetch that meets a broken invariant ends as one that is given up: its readers are told, its client among them.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let Some(mut run) = self.run.take() else { return };
        match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
            Ok(Poll::Pending) => self.run = Some(run),
            Ok(Poll::Ready(())) => {}
            Err(_) => self.worker.tally.panics.add(1),
        }
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        // A worker that ends takes its fetches with it.
        if let Some(run) = self.run.take()
            && Handle::try_current().is_ok()
        {
            tokio::task::spawn_local(run);
        }
    }
}
