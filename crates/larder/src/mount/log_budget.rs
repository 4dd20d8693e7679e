//! The bytes that one application or helper may write into the log of the server, over all of its processes.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes a second that are passed on.
pub const LOG_BYTES_PER_SECOND_MAX: u64 = 64 << 10;

/// Bytes that are passed on at once after a pause: some tracebacks, and the stacks of a process that hung.
pub const LOG_BURST_BYTES_MAX: u64 = 256 << 10;

/// How often it is told that bytes were left out.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A bucket of bytes, which fills by the second.
#[derive(Debug)]
pub struct LogBudget {
    bucket: Mutex<Bucket>,
    left_out: AtomicU64,
    untold: AtomicU64,
    told_at: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Bucket {
    bytes: u64,
    filled_at: Instant,
}

impl Default for LogBudget {
    fn default() -> LogBudget {
        let bucket = Bucket { bytes: LOG_BURST_BYTES_MAX, filled_at: Instant::now() };
        LogBudget {
            bucket: Mutex::new(bucket),
            left_out: AtomicU64::new(0),
            untold: AtomicU64::new(0),
            told_at: Mutex::default(),
        }
    }
}

impl LogBudget {
    /// Takes so many bytes; `false`, and nothing is taken, where there are not so many.
    pub fn take(&self, bytes: u64, now: Instant) -> bool {
        let mut bucket = self.bucket.lock();
        let millis = u64::try_from(now.saturating_duration_since(bucket.filled_at).as_millis()).unwrap_or_default();
        let more = millis.saturating_mul(LOG_BYTES_PER_SECOND_MAX) / 1_000;
        bucket.bytes = bucket.bytes.saturating_add(more).min(LOG_BURST_BYTES_MAX);
        // Not `now`: the part of a millisecond that is over counts next time.
        bucket.filled_at += Duration::from_millis(millis);
        let is_enough = bucket.bytes >= bytes;
        if is_enough {
            bucket.bytes -= bytes;
        }
        is_enough
    }

    /// Counts bytes that were not passed on, of which people are to be told.
    pub fn leave_out(&self, bytes: u64) {
        self.cut_off(bytes);
        self.untold.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were not passed on, and stand beside the rest of their line.
    pub fn cut_off(&self, bytes: u64) {
        self.left_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether people are to be told of bytes that were not passed on.
    pub fn has_to_tell(&self) -> bool {
        self.untold.load(Ordering::Relaxed) > 0
    }

    /// The bytes of which people are to be told now, and the next ones not before a second has passed.
    pub fn to_tell(&self, now: Instant) -> Option<u64> {
        if !self.has_to_tell() {
            return None;
        }
        let mut told_at = self.told_at.lock();
        if told_at.is_some_and(|at| now.saturating_duration_since(at) < TELL_EVERY) {
            return None;
        }
        *told_at = Some(now);
        self.rest_to_tell()
    }

    /// The bytes of which people are to be told, at the end of a log.
    pub fn rest_to_tell(&self) -> Option<u64> {
        Some(self.untold.swap(0, Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Bytes that were not passed on since the start.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_so_much_a_second() {
        let budget = LogBudget::default();
        let now = Instant::now();
        assert!(budget.take(LOG_BURST_BYTES_MAX, now) && !budget.take(1, now));
        let later = now + Duration::from_millis(500);
        assert!(!budget.take(LOG_BYTES_PER_SECOND_MAX / 2 + 64, later));
        assert!(budget.take(LOG_BYTES_PER_SECOND_MAX / 2, later) && !budget.take(64, later));
        // However often it is asked, and whatever the clock says.
        (0..1_000).for_each(|_| assert!(!budget.take(LOG_BURST_BYTES_MAX, later)));
        assert!(!budget.take(64, now));
        let rested = later + Duration::from_secs(3_600);
        assert!(!budget.take(LOG_BURST_BYTES_MAX + 1, rested) && budget.take(LOG_BURST_BYTES_MAX, rested));
    }

    #[test]
    fn the_rate_is_kept_however_the_questions_lie() {
        // Each of these periods has a part of a millisecond, which is nearly one in the second.
        for micros in [1_000, 1_990, 2_500, 333] {
            let (budget, begin) = (LogBudget::default(), Instant::now());
            assert!(budget.take(LOG_BURST_BYTES_MAX, begin));
            let times = (1..).map(|number| begin + Duration::from_micros(micros * number));
            let within = times.take_while(|at| *at <= begin + Duration::from_secs(10));
            let taken: u64 = within.map(|at| (0..).take_while(|_| budget.take(1, at)).count() as u64).sum();
            let permitted = 10 * LOG_BYTES_PER_SECOND_MAX;
            assert!(taken <= permitted && taken * 100 >= permitted * 98, "every {micros} µs: {taken} of {permitted}");
        }
    }

    #[test]
    fn bytes_left_out_are_told_once_a_second() {
        let (budget, now) = (LogBudget::default(), Instant::now());
        assert_eq!(budget.to_tell(now), None);
        budget.cut_off(5);
        assert!(!budget.has_to_tell());
        budget.leave_out(10);
        assert_eq!((budget.to_tell(now), budget.to_tell(now)), (Some(10), None));
        budget.leave_out(20);
        budget.leave_out(30);
        assert_eq!(budget.to_tell(now + Duration::from_millis(999)), None);
        assert!(budget.has_to_tell());
        assert_eq!(budget.to_tell(now + TELL_EVERY), Some(50));
        assert_eq!((budget.to_tell(now + 2 * TELL_EVERY), budget.left_out()), (None, 65));
    }
}
