//! Counts of the calls of each hook since the start, with their times. They go on when its file is loaded anew: a hook is the function
//! of this name in this file, at this stage.

use super::stage::Stage;
use crate::latency::{BUCKETS, bucket_of};
use parking_lot::Mutex;
use std::array::from_fn;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Hooks of one application whose counts are kept; beyond that those of hooks that no file has any more are forgotten.
const HOOKS_MAX: usize = 1_024;

/// A hook, whatever version of its file it is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookName {
    /// The name of its file.
    pub script: String,
    /// The name of the function.
    pub name: String,
    /// When it is called.
    pub stage: Stage,
}

/// Counts of one hook.
#[derive(Debug, Default)]
pub struct HookCounts {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    /// Calls that raised an exception, or decided what can't be done.
    pub failed: AtomicU64,
    /// Calls that took longer than `hook_time`, so that the process was ended.
    pub late: AtomicU64,
    /// Calls in which the process ended by itself.
    pub ended: AtomicU64,
}

/// The times of one hook, or of the same hook in several applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HookSums {
    /// Calls in the buckets of their times; of those that were late and of those in which the process ended, the time until then.
    pub buckets: [u64; BUCKETS],
    /// Nanoseconds together.
    pub nanos: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were late, so that their process was ended.
    pub late: u64,
    /// Calls in which the process ended by itself.
    pub ended: u64,
}

impl HookCounts {
    /// Counts a call that ended.
    pub fn took(&self, nanos: u64) {
        self.buckets[bucket_of(nanos.div_ceil(1_000))].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts a call that was late, or in which the process ended, after this time.
    pub fn was_cut(&self, time: Duration, is_late: bool) {
        self.took(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let count = if is_late { &self.late } else { &self.ended };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts at this moment.
    pub fn sums(&self) -> HookSums {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        HookSums {
            buckets: from_fn(|bucket| load(&self.buckets[bucket])),
            nanos: load(&self.nanos),
            failed: load(&self.failed),
            late: load(&self.late),
            ended: load(&self.ended),
        }
    }
}

impl HookSums {
    /// Calls, whatever came of them.
    pub fn calls(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The mean time of a call; nothing before the first.
    pub fn mean(&self) -> Option<Duration> {
        self.nanos.checked_div(self.calls()).map(Duration::from_nanos)
    }

    /// Adds those of the same hook in another application.
    pub fn add(&mut self, other: &HookSums) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, many)| *sum += many);
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.failed += other.failed;
        self.late += other.late;
        self.ended += other.ended;
    }
}

/// The counts of all hooks of one application, those of earlier versions of its files included.
#[derive(Debug, Default)]
pub struct HookBook(Mutex<BTreeMap<HookName, Arc<HookCounts>>>);

impl HookBook {
    /// The counts of a hook, which go on where it was counted before.
    pub fn counts_of(&self, hook: HookName) -> Arc<HookCounts> {
        let mut known = self.0.lock();
        if known.len() >= HOOKS_MAX && !known.contains_key(&hook) {
            known.retain(|_, counts| Arc::strong_count(counts) > 1);
        }
        Arc::clone(known.entry(hook).or_default())
    }

    /// All of them.
    pub fn all(&self) -> Vec<(HookName, HookSums)> {
        self.0.lock().iter().map(|(hook, counts)| (hook.clone(), counts.sums())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: impl ToString) -> HookName {
        HookName { script: "policy.py".to_owned(), name: name.to_string(), stage: Stage::Request }
    }

    #[test]
    fn times_are_in_the_buckets_that_bound_them() {
        let counts = HookCounts::default();
        for nanos in [1, 10_000, 10_001, 25_000, 61_000_000_000] {
            counts.took(nanos);
        }
        let sums = counts.sums();
        assert_eq!((sums.buckets[0], sums.buckets[1], sums.buckets[BUCKETS - 1], sums.calls()), (2, 2, 1, 5));
        assert_eq!(sums.mean(), Some(Duration::from_nanos(61_000_045_002 / 5)));
        assert_eq!(HookSums::default().mean(), None);
    }

    #[test]
    fn counts_go_on_in_a_new_version_and_are_bounded() {
        let book = HookBook::default();
        let living = book.counts_of(named("living"));
        living.took(5_000);
        for number in 0..3 * HOOKS_MAX {
            book.counts_of(named(number));
        }
        assert!(book.all().len() <= HOOKS_MAX);
        assert_eq!(book.counts_of(named("living")).sums().calls(), 1);
    }
}
