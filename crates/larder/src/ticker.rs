//! Time limits that cost a hit nothing: one coarse clock per worker instead of a timer per wait.
//!
//! A worker ticks every [`TICK`]. A wait that ends before the next tick never touches a timer; one that
//! lasts notes when it ends, and the tick wakes those that are over. Limits are therefore exact to
//! one tick, upwards.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How often limits are looked at.
pub const TICK: Duration = Duration::from_millis(100);

/// The coarse clock of a worker.
#[derive(Default)]
pub struct Ticker {
    now: Cell<u64>,
    draining: Cell<bool>,
    seats: RefCell<Vec<Seat>>,
    free: RefCell<Vec<usize>>,
}

#[derive(Default)]
struct Seat {
    /// The tick at which the wait is over; 0 when nobody waits.
    deadline: u64,
    idle: bool,
    waker: Option<Waker>,
}

/// What a wait came to when it was not what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The time is up.
    Late,
    /// The server is going down and this wait is for nothing in particular.
    Draining,
}

/// Whether a wait may be ended because the server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For the next request: nothing is lost when it ends.
    Idle,
    /// In the middle of something.
    Busy,
}

impl Ticker {
    /// A clock that stands still until somebody calls [`Ticker::tick`].
    pub fn new() -> Rc<Ticker> {
        Rc::new(Ticker::default())
    }

    /// Runs the clock for as long as the worker lives.
    pub async fn run(self: Rc<Ticker>) {
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.tick();
        }
    }

    /// Lets one tick pass and wakes the waits that are over.
    pub fn tick(&self) {
        self.now.set(self.now.get() + 1);
        for seat in self.seats.borrow_mut().iter_mut() {
            let over = seat.deadline != 0 && seat.deadline <= self.now.get();
            if (over || (seat.idle && self.draining.get()))
                && let Some(waker) = seat.waker.take()
            {
                waker.wake();
            }
        }
    }

    /// Ends all idle waits, now and from now on.
    pub fn drain(&self) {
        self.draining.set(true);
    }

    /// Whether the server is going down.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// A timer on this clock; one for each task, used again for each of its waits.
    pub fn timer(self: &Rc<Ticker>) -> Timer {
        let seat = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.seats.borrow_mut().push(Seat::default());
            self.seats.borrow().len() - 1
        });
        Timer { ticker: Rc::clone(self), seat }
    }
}

/// A task's place on its worker's clock.
pub struct Timer {
    ticker: Rc<Ticker>,
    seat: usize,
}

impl Timer {
    /// Waits for `future`, at most `limit`.
    pub async fn limit<T>(&self, limit: Duration, wait: Wait, future: impl Future<Output = T>) -> Result<T, Over> {
        let mut future = pin!(future);
        let mut deadline = 0;
        let result = poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            if deadline == 0 {
                deadline = self.ticker.now.get().saturating_add(ticks(limit));
            } else if deadline <= self.ticker.now.get() {
                return Poll::Ready(Err(Over::Late));
            }
            if wait == Wait::Idle && self.ticker.draining.get() {
                return Poll::Ready(Err(Over::Draining));
            }
            self.arm(deadline, wait, cx);
            Poll::Pending
        })
        .await;
        self.disarm();
        result
    }

    fn arm(&self, deadline: u64, wait: Wait, cx: &Context<'_>) {
        let mut seats = self.ticker.seats.borrow_mut();
        let seat = &mut seats[self.seat];
        seat.deadline = deadline;
        seat.idle = wait == Wait::Idle;
        match &mut seat.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
    }

    fn disarm(&self) {
        self.ticker.seats.borrow_mut()[self.seat] = Seat::default();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.disarm();
        self.ticker.free.borrow_mut().push(self.seat);
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

    async fn over(ticks: u32, wait: Wait, drain: bool) -> Result<(), Over> {
        let ticker = Ticker::new();
        let timer = ticker.timer();
        let wait = timer.limit(TICK * 3, wait, pending::<()>());
        let clock = async {
            for _ in 0..ticks {
                tokio::task::yield_now().await;
                ticker.tick();
            }
            if drain {
                ticker.drain();
                ticker.tick();
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
            assert_eq!(over(4, Wait::Busy, false).await, Err(Over::Late));
        });
    }

    #[test]
    fn draining_ends_idle_waits_only() {
        run(async {
            assert_eq!(over(1, Wait::Idle, true).await, Err(Over::Draining));
            assert_eq!(over(1, Wait::Busy, true).await, Ok(()));
        });
    }

    #[test]
    fn seats_are_used_again() {
        let ticker = Ticker::new();
        drop(ticker.timer());
        let (first, second) = (ticker.timer(), ticker.timer());
        assert_eq!((first.seat, second.seat), (0, 1));
    }
}
