//! The clock of a process in a run on several machines: the wall clock as it was once, and monotonic from there, so that no
//! adjustment in the midst of a run moves it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    base: Instant,
    base_us: u64,
}

impl RunClock {
    /// Reads the wall clock; `shift_us` is a test's lie about it.
    pub fn new(shift_us: i64) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let base = Instant::now();
        Self { base, base_us: (unix.as_micros() as u64).saturating_add_signed(shift_us) }
    }

    /// Now.
    pub fn now_us(&self) -> u64 {
        self.base_us.saturating_add(self.base.elapsed().as_micros() as u64)
    }

    /// The time of a moment.
    pub fn at_us(&self, at: Instant) -> u64 {
        self.base_us.saturating_add(at.saturating_duration_since(self.base).as_micros() as u64)
    }

    /// The moment of a time; now, if it lies in the past.
    pub fn moment(&self, us: u64) -> Instant {
        let now = self.now_us();
        Instant::now() + Duration::from_micros(us.saturating_sub(now))
    }
}
