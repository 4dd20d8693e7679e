//! The bytes that one application may write into the log of the server, over all of its processes.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// Bytes a second that are passed on.
pub const LOG_BYTES_PER_SECOND_MAX: u64 = 64 << 10;

/// Bytes that are passed on at once after a pause: some tracebacks, and the stacks of a process that hung.
pub const LOG_BURST_BYTES_MAX: u64 = 256 << 10;

/// A bucket of bytes, which fills by the second.
#[derive(Debug)]
pub struct LogBudget {
    bucket: Mutex<Bucket>,
    left_out: AtomicU64,
}

#[derive(Debug)]
struct Bucket {
    bytes: u64,
    filled_at: Instant,
}

impl Default for LogBudget {
    fn default() -> LogBudget {
        let bucket = Bucket { bytes: LOG_BURST_BYTES_MAX, filled_at: Instant::now() };
        LogBudget { bucket: Mutex::new(bucket), left_out: AtomicU64::new(0) }
    }
}

impl LogBudget {
    /// Takes so many bytes; `false`, and nothing is taken, where there are not so many.
    pub fn take(&self, bytes: u64, now: Instant) -> bool {
        let mut bucket = self.bucket.lock();
        let millis = u64::try_from(now.saturating_duration_since(bucket.filled_at).as_millis()).unwrap_or(u64::MAX);
        let more = millis.saturating_mul(LOG_BYTES_PER_SECOND_MAX) / 1_000;
        if more > 0 {
            bucket.bytes = bucket.bytes.saturating_add(more).min(LOG_BURST_BYTES_MAX);
            bucket.filled_at = now;
        }
        let is_enough = bucket.bytes >= bytes;
        if is_enough {
            bucket.bytes -= bytes;
        }
        is_enough
    }

    /// Counts bytes that were not passed on.
    pub fn leave_out(&self, bytes: u64) {
        self.left_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that were not passed on since the start.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
}
