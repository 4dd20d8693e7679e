//! A fetch that runs within the task of the client that began it. It has no task of its own until the response's head is here,
//! so that a short response takes one poll of one task from the origin's socket to the client's (decision 015).

use crate::env::Env;
use crate::upstream::{AskedOrigin, Unread};
use larder_cache::entry::{Wanted, Watch};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

/// A fetch that goes on while its client waits in [`AttachedFetch::beside`]. If it is dropped before its end it becomes a task,
/// which goes on while others follow it, the client still reads the body, or the store wants it.
#[must_use]
pub struct AttachedFetch {
    run: Option<Run>,
    unattended: Option<Unattended>,
    env: Rc<Env>,
}

pub(super) type Run = Pin<Box<dyn Future<Output = ()>>>;

impl AttachedFetch {
    pub(super) fn new(run: Run, watch: Watch, asks: AskedOrigin, env: Rc<Env>) -> AttachedFetch {
        AttachedFetch { run: Some(run), unattended: Some(Unattended { watch, asks, permit: None }), env }
    }

    /// Runs `work` for the client while the fetch goes on. The fetch is polled first, so that `work` sees its news at once.
    pub async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.advance(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Polls the fetch. One that meets a broken invariant ends as if it had been given up: dropping its writer tells all readers.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let Some(mut run) = self.run.take() else { return };
        match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
            Ok(Poll::Pending) => self.run = Some(run),
            Ok(Poll::Ready(())) => {}
            Err(_) => self.env.tally.panics.add(1),
        }
    }
}

impl Drop for AttachedFetch {
    fn drop(&mut self) {
        let (Some(mut run), Some(mut fetch)) = (self.run.take(), self.unattended.take()) else { return };
        // A worker that ends takes its fetches with it.
        if fetch.goes_on(&Context::from_waker(Waker::noop())) && Handle::try_current().is_ok() {
            tokio::task::spawn_local(poll_fn(move |cx| match fetch.goes_on(cx) {
                true => run.as_mut().poll(cx),
                false => Poll::Ready(()),
            }));
        }
    }
}

/// A fetch without the client that began it.
struct Unattended {
    watch: Watch,
    asks: AskedOrigin,
    /// The permit to go on although nobody reads the response.
    permit: Option<Unread>,
}

impl Unattended {
    /// Whether a client still wants the response, or the store does and not too many fetches go on for the store alone.
    fn goes_on(&mut self, cx: &Context<'_>) -> bool {
        match self.watch.wanted(cx) {
            Wanted::Read => {
                self.permit = None;
                true
            }
            Wanted::No => false,
            Wanted::Stored => {
                self.permit = self.permit.take().or_else(|| self.asks.unread());
                self.permit.is_some()
            }
        }
    }
}
