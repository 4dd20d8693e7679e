//! Requests by outcome, with their times and bytes: cells of one worker, and their sums.

use super::{Cause, Outcome, Record};
use crate::latency::{BUCKETS, bucket_of};
use std::array::from_fn;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter of one worker; no other thread touches it.
#[derive(Debug, Default)]
pub struct Count(Cell<u64>);

impl Count {
    /// Counts.
    pub fn add(&self, many: u64) {
        self.0.set(self.0.get() + many);
    }

    /// The count since the last call of this.
    pub fn take(&self) -> u64 {
        self.0.take()
    }
}

/// Names of the classes of outcomes; a fixed set, whatever clients and origins send.
pub const CLASSES: [&str; 10] =
    ["hit", "hit-stale", "hit-revalidating", "hit-error", "validated", "collapsed", "miss", "tunnel", "own", "failed"];

impl Outcome {
    /// The number of its name among [`CLASSES`].
    pub(super) fn class(self) -> usize {
        match self {
            Outcome::Hit => 0,
            Outcome::HitStale => 1,
            Outcome::HitRevalidating => 2,
            Outcome::HitError => 3,
            Outcome::Validated => 4,
            Outcome::Collapsed => 5,
            Outcome::Miss(_) => 6,
            Outcome::Tunnel | Outcome::Opened => 7,
            Outcome::Own(_) => 8,
            Outcome::Failed(_) => 9,
        }
    }
}

/// Measurements of the requests with one outcome. `C` is a worker's cell or a shared sum.
#[derive(Debug)]
struct Measure<C> {
    buckets: [C; BUCKETS],
    micros: C,
    bytes: C,
}

impl<C: Default> Default for Measure<C> {
    fn default() -> Measure<C> {
        Measure { buckets: from_fn(|_| C::default()), micros: C::default(), bytes: C::default() }
    }
}

/// Measurements of all requests.
#[derive(Debug)]
pub struct Measures<C> {
    classes: [Measure<C>; CLASSES.len()],
    causes: [C; Cause::ALL.len()],
}

impl<C: Default> Default for Measures<C> {
    fn default() -> Measures<C> {
        Measures { classes: from_fn(|_| Measure::default()), causes: from_fn(|_| C::default()) }
    }
}

impl Measures<Count> {
    /// Counts one request.
    pub fn count(&self, record: &Record) {
        let micros = record.micros();
        let measure = &self.classes[record.outcome.class()];
        measure.buckets[bucket_of(micros)].add(1);
        measure.micros.add(micros);
        measure.bytes.add(record.bytes);
        if let Outcome::Miss(cause) = record.outcome {
            self.causes[cause as usize].add(1);
        }
    }
}

/// The sums of one outcome at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The outcome.
    pub class: &'static str,
    /// Requests in each latency bucket, the last one without a bound.
    pub buckets: [u64; BUCKETS],
    /// Microseconds together.
    pub micros: u64,
    /// Body bytes sent.
    pub bytes: u64,
}

impl Sums {
    /// Requests with this outcome.
    pub fn requests(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Measures<AtomicU64> {
    /// Adds the counts of a worker.
    pub fn add(&self, tally: &Measures<Count>) {
        for (sum, cells) in self.classes.iter().zip(&tally.classes) {
            sum.buckets.iter().zip(&cells.buckets).for_each(|(sum, cell)| move_over(sum, cell));
            move_over(&sum.micros, &cells.micros);
            move_over(&sum.bytes, &cells.bytes);
        }
        self.causes.iter().zip(&tally.causes).for_each(|(sum, cell)| move_over(sum, cell));
    }

    /// All outcomes, in the order of `CLASSES`.
    pub fn by_outcome(&self) -> Vec<Sums> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sums = self.classes.iter().zip(CLASSES).map(|(sum, class)| Sums {
            class,
            buckets: from_fn(|bucket| load(&sum.buckets[bucket])),
            micros: load(&sum.micros),
            bytes: load(&sum.bytes),
        });
        sums.collect()
    }

    /// Misses by cause.
    pub fn by_cause(&self) -> Vec<(&'static str, u64)> {
        let each = Cause::ALL.iter().zip(&self.causes);
        each.map(|(cause, count)| (cause.as_str(), count.load(Ordering::Relaxed))).collect()
    }
}

fn move_over(sum: &AtomicU64, cell: &Count) {
    match cell.take() {
        0 => {}
        some => {
            sum.fetch_add(some, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Page;
    use crate::record::Number;

    #[test]
    fn what_a_worker_counted_is_told_once() {
        let tally = Measures::default();
        let mut record = Record::refused(
            "127.0.0.1:1".parse().unwrap(),
            &Page::new(400, "word", "what", "remedy"),
            Number::default(),
        );
        tally.count(&record);
        (record.outcome, record.bytes) = (Outcome::Miss(Cause::Vary), 7);
        tally.count(&record);
        let sums = Measures::default();
        sums.add(&tally);
        sums.add(&tally);
        let by_outcome = sums.by_outcome();
        let found: Vec<_> =
            by_outcome.iter().filter(|sums| sums.requests() > 0).map(|sums| (sums.class, sums.bytes)).collect();
        assert_eq!(found, [("miss", 7), ("own", 0)]);
        assert_eq!(sums.by_cause().into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [("vary-miss", 1)]);
    }

    #[test]
    fn causes_stand_at_their_numbers() {
        assert!(Cause::ALL.iter().enumerate().all(|(number, &cause)| cause as usize == number));
    }
}
