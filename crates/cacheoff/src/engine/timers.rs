//! Timers: a heap of times with their actions. A timer is never cancelled; its owner checks whether it still matters
//! when it fires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Timers of one worker. Times count from the start of the run.
#[derive(Debug)]
pub struct Timers<T: Ord> {
    heap: BinaryHeap<Reverse<(Duration, u64, T)>>,
    set: u64,
}

impl<T: Ord> Default for Timers<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), set: 0 }
    }
}

impl<T: Ord> Timers<T> {
    /// Sets a timer. Of those for the same time, the one set first is due first.
    pub fn set(&mut self, at: Duration, what: T) {
        self.set += 1;
        self.heap.push(Reverse((at, self.set, what)));
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next one that is due.
    pub fn due(&mut self, now: Duration) -> Option<(Duration, T)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, what))| (at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_the_order_of_time_then_of_setting() {
        let mut timers = Timers::default();
        let at = Duration::from_millis;
        timers.set(at(2), "c");
        timers.set(at(1), "a");
        timers.set(at(1), "b");
        assert_eq!(timers.due(Duration::ZERO), None);
        let order: Vec<_> = std::iter::from_fn(|| timers.due(at(5)).map(|(_, what)| what)).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }
}
