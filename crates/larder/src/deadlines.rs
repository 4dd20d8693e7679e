//! Limits of waits that are exact and cost no timer of the runtime each. A timer that is due before all others has the runtime write to a
//! descriptor of its own and look for events once more, and a request to an application has two of them, which most often end long
//! before their time. Here one timer stands for all waits of a worker: it is set for the first that is due, and stays where that wait
//! ends before, so that it is set again once for many waits.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The waits of one worker that have an exact limit. There are no more of them than requests under way.
#[derive(Default)]
pub struct Deadlines {
    /// In the order in which they are due.
    waits: RefCell<VecDeque<Due>>,
    /// The number of the last wait.
    last: Cell<u64>,
    /// For when the timer is set.
    set_for: Cell<Option<Instant>>,
    /// A wait began that is due before that.
    is_earlier: Notify,
    /// The task with the timer was begun.
    has_task: Cell<bool>,
}

struct Due {
    at: Instant,
    number: u64,
    waker: Waker,
}

/// The time of a wait is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeIsUp;

/// A wait whose work was not ready at once; it counts until this is dropped.
struct Waits<'a> {
    deadlines: &'a Deadlines,
    at: Instant,
    number: u64,
}

impl Deadlines {
    /// Waits for `work`, at most `limit`. Work that is ready at once sets no limit.
    pub async fn limit<T>(
        self: &Rc<Deadlines>,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, TimeIsUp> {
        let mut work = pin!(work);
        let mut waits: Option<Waits<'_>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            let now = Instant::now();
            match &waits {
                None => waits = Some(self.begin(now + limit, cx)),
                Some(waits) if waits.at <= now => return Poll::Ready(Err(TimeIsUp)),
                Some(waits) => waits.wake_by(cx),
            }
            Poll::Pending
        })
        .await
    }

    fn begin(self: &Rc<Deadlines>, at: Instant, cx: &Context<'_>) -> Waits<'_> {
        let number = self.last.get() + 1;
        self.last.set(number);
        let mut waits = self.waits.borrow_mut();
        let place = waits.partition_point(|due| due.at <= at);
        waits.insert(place, Due { at, number, waker: cx.waker().clone() });
        drop(waits);
        if !self.has_task.replace(true) {
            tokio::task::spawn_local(wake_in_time(Rc::clone(self)));
        }
        if self.set_for.get().is_none_or(|set_for| at < set_for) {
            self.is_earlier.notify_one();
        }
        Waits { deadlines: self, at, number }
    }

    /// Waits until the first wait is due, or until one begins that is due before it.
    async fn first_is_due(&self) {
        let first = self.waits.borrow().front().map(|due| due.at);
        self.set_for.set(first);
        match first {
            None => self.is_earlier.notified().await,
            Some(at) => tokio::select! {
                () = sleep_until(at) => {}
                () = self.is_earlier.notified() => {}
            },
        }
    }

    /// Wakes the waits that are due.
    fn wake_due(&self) {
        let now = Instant::now();
        let mut waits = self.waits.borrow_mut();
        let many = waits.partition_point(|due| due.at <= now);
        let due: Vec<Due> = waits.drain(..many).collect();
        drop(waits);
        due.into_iter().for_each(|due| due.waker.wake());
    }
}

/// Ends with the worker.
async fn wake_in_time(deadlines: Rc<Deadlines>) {
    loop {
        deadlines.first_is_due().await;
        deadlines.wake_due();
    }
}

impl Waits<'_> {
    fn wake_by(&self, cx: &Context<'_>) {
        let mut waits = self.deadlines.waits.borrow_mut();
        if let Some(due) = self.place(&waits).and_then(|place| waits.get_mut(place)) {
            due.waker.clone_from(cx.waker());
        }
    }

    fn place(&self, waits: &VecDeque<Due>) -> Option<usize> {
        waits.binary_search_by(|due| (due.at, due.number).cmp(&(self.at, self.number))).ok()
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut waits = self.deadlines.waits.borrow_mut();
        if let Some(place) = self.place(&waits) {
            waits.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::{advance, sleep};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_when_its_time_is_up_whatever_the_others_have() {
        LocalSet::new()
            .run_until(async {
                let (deadlines, began) = (Rc::new(Deadlines::default()), Instant::now());
                assert_eq!(deadlines.limit(Duration::ZERO, ready(7)).await, Ok(7), "work that is ready is done");
                // Longer ones first, so that each next one has to be set before those.
                let waits = [30, 3, 9, 3, 1].map(|seconds| {
                    let deadlines = Rc::clone(&deadlines);
                    spawn_local(async move {
                        assert_eq!(deadlines.limit(SECOND * seconds, pending::<()>()).await, Err(TimeIsUp));
                        began.elapsed().as_secs()
                    })
                });
                let mut over = Vec::new();
                for wait in waits {
                    over.push(wait.await.unwrap());
                }
                assert_eq!(over, [30, 3, 9, 3, 1]);
                assert!(deadlines.waits.borrow().is_empty());
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn waits_that_end_before_their_time_leave_nothing_behind() {
        LocalSet::new()
            .run_until(async {
                let deadlines = Rc::new(Deadlines::default());
                for _ in 0..100 {
                    let work = sleep(SECOND / 1_000);
                    assert_eq!(deadlines.limit(SECOND, work).await, Ok(()));
                    assert!(deadlines.waits.borrow().is_empty());
                }
                // Dropped in the middle.
                let waits = spawn_local({
                    let deadlines = Rc::clone(&deadlines);
                    async move { deadlines.limit(SECOND, pending::<()>()).await }
                });
                advance(SECOND / 2).await;
                assert_eq!(deadlines.waits.borrow().len(), 1);
                waits.abort();
                assert!(waits.await.is_err_and(|error| error.is_cancelled()));
                assert!(deadlines.waits.borrow().is_empty());
                let began = Instant::now();
                assert_eq!(deadlines.limit(SECOND, pending::<()>()).await, Err(TimeIsUp));
                assert_eq!(began.elapsed().as_secs(), 1, "the timer that was set for others is no end of this one");
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_is_set_once_for_many_waits() {
        LocalSet::new()
            .run_until(async {
                let deadlines = Rc::new(Deadlines::default());
                let began = Instant::now();
                let mut set_for = Vec::new();
                for _ in 0..10 {
                    assert_eq!(deadlines.limit(SECOND, sleep(SECOND / 10)).await, Ok(()));
                    set_for.extend(deadlines.set_for.get().map(|at| (at - began).as_millis()));
                }
                set_for.dedup();
                assert_eq!(set_for, [1_000], "the first wait's end, though nine others began and ended meanwhile");
            })
            .await;
    }
}
