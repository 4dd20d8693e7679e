//! Totals over the last hour, from which rates are computed.

use super::Admin;
use super::api;
use super::proc_files::cpu_time;
use crate::clock;
use crate::latency::BOUNDS_MICROS;
use crate::record::OutcomeSums;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the totals are noted.
pub(super) const EVERY: Duration = Duration::from_secs(15);

/// An hour and one.
const SAMPLES_MAX: usize = 241;

/// The totals at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) requests: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) errors: u64,
    pub(super) bytes_from_store: u64,
    pub(super) bytes_fetched: u64,
    pub(super) bytes_sent: u64,
    pub(super) upstream_requests: u64,
    pub(super) cpu_seconds: f64,
    outcomes: Vec<OutcomeSums>,
}

/// Which requests a median is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    All,
    Hits,
    Misses,
    Validated,
}

impl Of {
    fn holds(self, class: &str) -> bool {
        match self {
            Of::All => class != "tunnel",
            Of::Hits => class.starts_with("hit"),
            Of::Misses => class == "miss",
            Of::Validated => class == "validated",
        }
    }
}

impl Sample {
    /// The totals now.
    pub(super) fn now(admin: &Admin) -> Sample {
        let counters = &admin.common.counters;
        let outcomes = counters.measures.by_outcome();
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let upstream = api::origins(admin).iter().map(|origin| origin.opened + origin.reused).sum();
        Sample {
            at: clock::wall(),
            requests: of(&counters.requests),
            hits: of(&counters.hits),
            misses: of(&counters.misses),
            errors: of(&counters.failures),
            bytes_from_store: of(&counters.bytes_from_store),
            bytes_fetched: of(&counters.bytes_fetched),
            bytes_sent: outcomes.iter().map(|sums| sums.bytes).sum(),
            upstream_requests: upstream,
            cpu_seconds: cpu_seconds(),
            outcomes,
        }
    }

    /// The counts between `earlier` and here.
    pub(super) fn since(&self, earlier: &Sample) -> Sample {
        let outcomes = self.outcomes.iter().zip(&earlier.outcomes).map(|(now, then)| OutcomeSums {
            buckets: std::array::from_fn(|bucket| now.buckets[bucket].saturating_sub(then.buckets[bucket])),
            ..now.clone()
        });
        Sample {
            at: self.at.saturating_sub(earlier.at),
            requests: self.requests.saturating_sub(earlier.requests),
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            errors: self.errors.saturating_sub(earlier.errors),
            bytes_from_store: self.bytes_from_store.saturating_sub(earlier.bytes_from_store),
            bytes_fetched: self.bytes_fetched.saturating_sub(earlier.bytes_fetched),
            bytes_sent: self.bytes_sent.saturating_sub(earlier.bytes_sent),
            upstream_requests: self.upstream_requests.saturating_sub(earlier.upstream_requests),
            cpu_seconds: (self.cpu_seconds - earlier.cpu_seconds).max(0.0),
            outcomes: outcomes.collect(),
        }
    }

    /// The upper bound of the bucket that holds the median, in seconds; 0 when there was nothing.
    pub(super) fn median_seconds(&self, of: Of) -> f64 {
        self.quantile_seconds(of, 50)
    }

    /// The upper bound of the bucket below which so many percent end, in seconds; 0 when there was nothing.
    pub(super) fn quantile_seconds(&self, of: Of, percent: u64) -> f64 {
        let mut buckets = vec![0; BOUNDS_MICROS.len() + 1];
        for sums in self.outcomes.iter().filter(|sums| of.holds(sums.class)) {
            buckets.iter_mut().zip(sums.buckets).for_each(|(sum, many)| *sum += many);
        }
        let all: u64 = buckets.iter().sum();
        let mut below = 0;
        let bucket = buckets.iter().position(|many| {
            below += many;
            all > 0 && below * 100 >= all * percent
        });
        let last = BOUNDS_MICROS[BOUNDS_MICROS.len() - 1];
        bucket.map_or(0.0, |bucket| *BOUNDS_MICROS.get(bucket).unwrap_or(&last) as f64 / 1e6)
    }

    /// Hits among requests, in percent.
    pub(super) fn hit_percent(&self) -> f64 {
        percent(self.hits, self.requests)
    }

    /// Bytes from the store among all that were sent, in percent.
    pub(super) fn byte_percent(&self) -> f64 {
        percent(self.bytes_from_store, self.bytes_sent)
    }
}

pub(super) fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

/// User and system time of the process; 0 where it is not known.
fn cpu_seconds() -> f64 {
    cpu_time(None).unwrap_or_default().as_secs_f64()
}

/// The samples of the last hour.
#[derive(Debug, Default)]
pub struct History {
    samples: Mutex<VecDeque<Sample>>,
}

impl History {
    /// Notes the totals of this moment.
    pub(super) fn note(&self, admin: &Admin) {
        let sample = Sample::now(admin);
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// The counts of the last `span`, or since the first sample when that is less.
    pub(super) fn last(&self, span: Duration, admin: &Admin) -> Sample {
        let now = Sample::now(admin);
        let samples = self.samples.lock();
        let from = now.at.saturating_sub(span);
        let first = samples.iter().find(|sample| sample.at >= from).or(samples.back());
        first.map_or_else(|| now.clone(), |first| now.since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_bound_of_its_bucket() {
        let mut sums = OutcomeSums { class: "hit", ..OutcomeSums::default() };
        (sums.buckets[0], sums.buckets[6]) = (2, 3);
        let sample = Sample { outcomes: vec![sums], ..Sample::default() };
        assert_eq!(sample.median_seconds(Of::Hits), 0.001);
        assert_eq!(sample.median_seconds(Of::All), 0.001);
        assert_eq!(sample.median_seconds(Of::Misses), 0.0);
        assert_eq!(sample.since(&sample).median_seconds(Of::All), 0.0);
    }
}
