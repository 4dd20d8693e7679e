//! Time limits that cost a hit nothing: one coarse clock per worker instead of a timer per wait.
//!
//! A worker ticks every [`TICK`]. A wait that ends before the next tick never touches a timer; one that
//! lasts notes when it ends, and the tick wakes those that are over. Limits are therefore exact to
//! one tick, upwards. When no wait began for a while the clock pauses for several ticks at a time, so that an
//! idle process lets its core sleep; the next wait that begins wakes it.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// How often limits are checked.
pub const TICK: Duration = Duration::from_millis(100);

/// After so many ticks without a new wait the clock pauses.
const QUIET_TICKS: u64 = 10;

/// The longest rest.
const REST_TICKS_MAX: u64 = 5;

/// The coarse clock of a worker.
#[derive(Default)]
pub struct Ticker {
    now: Cell<u64>,
    draining: Cell<bool>,
    ending: Cell<bool>,
    slots: RefCell<Vec<WaitSlot>>,
    free: RefCell<Vec<usize>>,
    /// Ticks since a wait began.
    quiet: Cell<u64>,
    rest: Cell<Option<Rest>>,
    stirred: Notify,
}

/// A pause of several ticks that is under way.
#[derive(Clone, Copy)]
struct Rest {
    since: Instant,
    ticks: u64,
}

#[derive(Default)]
struct WaitSlot {
    /// The tick at which the wait is over; 0 when nobody waits.
    deadline: u64,
    wait: Wait,
    waker: Option<Waker>,
}

/// How a wait ended when the awaited event did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The time is up.
    Late,
    /// The server is going down, and this was an idle wait.
    Draining,
    /// The server does not wait for requests any longer.
    Ending,
}

/// Whether a wait may be ended because the server goes down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// For the next request: nothing is lost when it ends.
    Idle,
    /// In the middle of something.
    #[default]
    Busy,
    /// For a request as a whole: it ends when the server waits for none any longer.
    Request,
}

impl Ticker {
    /// A clock that stands still until somebody calls [`Ticker::next`].
    pub fn new() -> Rc<Ticker> {
        Rc::new(Ticker::default())
    }

    /// Waits for the next tick and gives the number of ticks that have passed: more than one after a pause. Only one
    /// task calls this, again and again for as long as the worker lives.
    pub async fn next(&self) -> u64 {
        let before = self.now.get();
        match self.rest_ticks() {
            0 | 1 => {
                tokio::time::sleep(TICK).await;
                self.now.set(before + 1);
            }
            ticks => {
                self.rest.set(Some(Rest { since: Instant::now(), ticks }));
                if timeout(TICK * u32::try_from(ticks).unwrap_or(1), self.stirred.notified()).await.is_err() {
                    self.catch_up();
                }
            }
        }
        let passed = self.now.get() - before;
        self.quiet.set(self.quiet.get() + passed);
        self.wake_those_over();
        passed
    }

    /// The number of ticks in which no limit has to be checked.
    fn rest_ticks(&self) -> u64 {
        if self.quiet.get() < QUIET_TICKS || self.draining.get() {
            return 1;
        }
        let deadlines = self.slots.borrow();
        let first = deadlines.iter().map(|slot| slot.deadline).filter(|&deadline| deadline != 0).min();
        first.map_or(REST_TICKS_MAX, |first| first.saturating_sub(self.now.get()).min(REST_TICKS_MAX))
    }

    /// Ends a pause of the clock, because a wait begins that counts from now.
    fn stir(&self) {
        self.quiet.set(0);
        if self.rest.get().is_some() {
            self.catch_up();
            self.stirred.notify_one();
        }
    }

    /// Ends the pause. At most as many ticks pass as it was to last: when the whole process stood still, its clients
    /// did not have that time either.
    fn catch_up(&self) {
        let Some(rest) = self.rest.take() else { return };
        let passed = u64::try_from(rest.since.elapsed().as_millis() / TICK.as_millis()).unwrap_or(u64::MAX);
        self.now.set(self.now.get() + passed.min(rest.ticks));
    }

    fn wake_those_over(&self) {
        for slot in self.slots.borrow_mut().iter_mut() {
            let over = slot.deadline <= self.now.get() || self.ends(slot.wait).is_some();
            if slot.deadline != 0
                && over
                && let Some(waker) = slot.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// The tick at which a wait begins whose limit the caller checks itself.
    pub fn wait_begins(&self) -> u64 {
        self.stir();
        self.now.get()
    }

    /// How long it is since a tick.
    pub fn since(&self, tick: u64) -> Duration {
        // The first of them had partly passed.
        let ticks = self.now.get().saturating_sub(tick).saturating_sub(1);
        TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Ends all idle waits, now and from now on.
    pub fn drain(&self) {
        self.draining.set(true);
        self.stir();
    }

    /// Ends all waits for requests as a whole, now and from now on: the time to drain is over.
    pub fn end(&self) {
        self.ending.set(true);
        self.stir();
    }

    /// Whether such a wait ends because the server goes down.
    fn ends(&self, wait: Wait) -> Option<WaitEnd> {
        match wait {
            Wait::Idle => self.draining.get().then_some(WaitEnd::Draining),
            Wait::Busy => None,
            Wait::Request => self.ending.get().then_some(WaitEnd::Ending),
        }
    }

    /// Whether the server is going down.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// A timer on this clock; one for each task, used again for each of its waits.
    pub fn timer(self: &Rc<Ticker>) -> Timer {
        self.stir();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.slots.borrow_mut().push(WaitSlot::default());
            self.slots.borrow().len() - 1
        });
        Timer { ticker: Rc::clone(self), slot }
    }
}

/// A task's place on its worker's clock.
pub struct Timer {
    ticker: Rc<Ticker>,
    slot: usize,
}

impl Timer {
    /// Waits for `future`, at most `limit`.
    pub async fn limit<T>(&self, limit: Duration, wait: Wait, future: impl Future<Output = T>) -> Result<T, WaitEnd> {
        let mut future = pin!(future);
        let mut deadline = 0;
        let result = poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            if deadline == 0 {
                self.ticker.stir();
                deadline = self.ticker.now.get().saturating_add(ticks(limit));
            } else if deadline <= self.ticker.now.get() {
                return Poll::Ready(Err(WaitEnd::Late));
            }
            if let Some(over) = self.ticker.ends(wait) {
                return Poll::Ready(Err(over));
            }
            self.arm(deadline, wait, cx);
            Poll::Pending
        })
        .await;
        self.disarm();
        result
    }

    fn arm(&self, deadline: u64, wait: Wait, cx: &Context<'_>) {
        let mut slots = self.ticker.slots.borrow_mut();
        let slot = &mut slots[self.slot];
        slot.deadline = deadline;
        slot.wait = wait;
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
    }

    /// The waker stays: most often the next wait of the same task takes it again.
    fn disarm(&self) {
        self.ticker.slots.borrow_mut()[self.slot].deadline = 0;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.ticker.slots.borrow_mut()[self.slot] = WaitSlot::default();
        self.ticker.free.borrow_mut().push(self.slot);
    }
}

/// Rounded up, and one more because the current tick has partly passed.
fn ticks(limit: Duration) -> u64 {
    let ticks = limit.as_millis().div_ceil(TICK.as_millis()) + 1;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    fn tick(ticker: &Ticker) {
        ticker.now.set(ticker.now.get() + 1);
        ticker.wake_those_over();
    }

    async fn over(ticks: u32, wait: Wait, drain: bool) -> Result<(), WaitEnd> {
        let ticker = Ticker::new();
        let timer = ticker.timer();
        let wait = timer.limit(TICK * 3, wait, pending::<()>());
        let clock = async {
            for _ in 0..ticks {
                tokio::task::yield_now().await;
                tick(&ticker);
            }
            if drain {
                ticker.drain();
                tick(&ticker);
            }
            pending::<()>().await;
        };
        tokio::select! {
            result = wait => result,
            _ = clock => Ok(()),
            _ = tokio::time::sleep(TICK) => Ok(()),
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_wait_ends_after_its_limit_and_not_before() {
        run(async {
            assert_eq!(over(3, Wait::Busy, false).await, Ok(()));
            assert_eq!(over(4, Wait::Busy, false).await, Err(WaitEnd::Late));
        });
    }

    #[test]
    fn draining_ends_idle_waits_only() {
        run(async {
            assert_eq!(over(1, Wait::Idle, true).await, Err(WaitEnd::Draining));
            assert_eq!(over(1, Wait::Busy, true).await, Ok(()));
            assert_eq!(over(1, Wait::Request, true).await, Ok(()));
        });
    }

    #[test]
    fn requests_end_when_the_time_to_drain_is_over() {
        run(async {
            let ticker = Ticker::new();
            let timer = ticker.timer();
            let mut wait = pin!(timer.limit(Duration::MAX, Wait::Request, pending::<()>()));
            ticker.drain();
            assert!(poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await.is_pending());
            ticker.end();
            assert_eq!(poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await, Poll::Ready(Err(WaitEnd::Ending)));
        });
    }

    #[test]
    fn a_clock_that_nobody_needs_takes_long_steps() {
        run(async {
            let ticker = Ticker::new();
            assert_eq!(ticker.next().await, 1);
            ticker.quiet.set(QUIET_TICKS);
            assert_eq!(ticker.next().await, REST_TICKS_MAX);
            ticker.drain();
            assert_eq!(ticker.rest_ticks(), 1, "the end is not slept through");
        });
    }

    #[test]
    fn a_wait_that_begins_during_a_rest_stirs_the_clock_and_gets_its_whole_time() {
        run(async {
            let ticker = Ticker::new();
            let timer = ticker.timer();
            ticker.quiet.set(QUIET_TICKS);
            let wait = async {
                tokio::time::sleep(TICK * 2).await;
                let since = Instant::now();
                let over = timer.limit(TICK, Wait::Busy, pending::<()>()).await;
                (over, since.elapsed())
            };
            let steps = RefCell::new(Vec::new());
            let clock = async {
                loop {
                    let step = ticker.next().await;
                    steps.borrow_mut().push(step);
                }
            };
            let (over, waited) = tokio::select! {
                result = wait => result,
                () = clock => unreachable!("it goes on for ever"),
            };
            assert_eq!(over, Err(WaitEnd::Late));
            assert!(waited >= TICK, "{waited:?}");
            assert!(steps.borrow()[0] < REST_TICKS_MAX && steps.borrow()[1] == 1, "{steps:?}");
        });
    }

    #[test]
    fn a_rest_ends_with_the_first_wait() {
        run(async {
            let ticker = Ticker::new();
            let timer = ticker.timer();
            let mut wait = pin!(timer.limit(TICK * 2, Wait::Idle, pending::<()>()));
            let begun = poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
            assert!(begun.is_pending());
            ticker.quiet.set(QUIET_TICKS);
            assert_eq!(ticker.rest_ticks(), 3);
        });
    }

    #[test]
    fn seats_are_used_again() {
        let ticker = Ticker::new();
        drop(ticker.timer());
        let (first, second) = (ticker.timer(), ticker.timer());
        assert_eq!((first.slot, second.slot), (0, 1));
    }
}
