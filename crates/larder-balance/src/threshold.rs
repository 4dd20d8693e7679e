//! The time that so many percent of requests do not exceed, by a histogram that forgets.

use std::time::Duration;

/// The upper bound of the first bucket, in seconds, and the ratio of each bound to the one before: about 10 % of error, up to more than
/// an hour.
const FIRST: f64 = 0.000_1;
const RATIO: f64 = 1.2;
const BUCKETS: usize = 96;
/// After so many samples all counts are halved.
const SAMPLES_MAX: u32 = 2_000;
/// With fewer samples nothing is known.
const SAMPLES_MIN: u32 = 50;

/// Counts of response times.
#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    counts: [u32; BUCKETS],
    samples: u32,
}

impl Default for Threshold {
    fn default() -> Threshold {
        Threshold { counts: [0; BUCKETS], samples: 0 }
    }
}

impl Threshold {
    pub fn add(&mut self, time: Duration) {
        let bucket = (time.as_secs_f64() / FIRST).max(1.0).log(RATIO).ceil() as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.samples += 1;
        if self.samples >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.samples = self.counts.iter().sum();
        }
    }

    /// The time that this part of requests did not exceed; `None` where too few are known.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        let wanted = u64::from(self.samples) * u64::from(percent.min(100));
        let mut below = 0_u64;
        let bucket = self.counts.iter().position(|count| {
            below += u64::from(*count) * 100;
            below >= wanted
        })?;
        Some(Duration::from_secs_f64(FIRST * RATIO.powi(i32::try_from(bucket).unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_within_a_fifth() {
        let mut threshold = Threshold::default();
        assert_eq!(threshold.percentile(95), None);
        for at in 0..10_000_u64 {
            let millis = if at % 20 == 0 { 500 } else { 5 };
            threshold.add(Duration::from_millis(millis));
        }
        let near = |percent, millis: f64| {
            let found = threshold.percentile(percent).unwrap().as_secs_f64() * 1e3;
            assert!((millis..millis * 1.21).contains(&found), "{percent}: {found}");
        };
        near(50, 5.0);
        near(90, 5.0);
        near(99, 500.0);
    }

    #[test]
    fn it_forgets_what_was_long_ago() {
        let mut threshold = Threshold::default();
        (0..10_000).for_each(|_| threshold.add(Duration::from_secs(1)));
        (0..20_000).for_each(|_| threshold.add(Duration::from_millis(1)));
        assert!(threshold.percentile(99).unwrap() < Duration::from_millis(2));
    }

    #[test]
    fn any_time_has_its_bucket() {
        let mut threshold = Threshold::default();
        [Duration::ZERO, Duration::from_nanos(1), Duration::MAX].into_iter().for_each(|time| threshold.add(time));
    }
}
