//! The time that a client lets pass within one request: silent within its body, or taking nothing of the answer. Each pause has a limit,
//! and all pauses together have one that grows with what was carried.

use crate::clock;
use crate::config::Config;
use std::time::{Duration, Instant};

/// The pauses of one request.
#[derive(Default)]
pub struct Pauses {
    /// For how long the client was silent within this request's body.
    silent_millis: u32,
    /// For how long the client took nothing of its answer, less the time that bytes taken since then have earned.
    stalled_millis: u32,
}

impl Pauses {
    /// For how long a client that has sent so many bytes may be silent now within its request's body.
    pub fn silence_left(&self, config: &Config, uploaded: u64) -> Duration {
        let earned = time_for(uploaded, config.limits.upload_bytes_per_second_min);
        let silent = Duration::from_millis(self.silent_millis.into());
        config.timeouts.upload_silence.saturating_add(earned).saturating_sub(silent).min(config.timeouts.body)
    }

    /// For how long a client may take nothing of its answer now.
    pub fn stall_left(&self, config: &Config) -> Duration {
        let stalled = Duration::from_millis(self.stalled_millis.into());
        config.timeouts.download_stall.saturating_sub(stalled).min(config.timeouts.write)
    }

    /// Counts a write that waited this long and then wrote this many bytes.
    pub fn note_stall(&mut self, config: &Config, waited: Duration, written: usize) {
        if self.stalled_millis == 0 && waited.is_zero() {
            return;
        }
        let earned = time_for(written as u64, config.limits.download_bytes_per_second_min);
        let stalled = Duration::from_millis(self.stalled_millis.into()) + waited;
        self.stalled_millis = millis(stalled.saturating_sub(earned));
    }

    /// A wait for the client's body begins, which ends with the value that this gives.
    pub fn silence(&mut self) -> Silence<'_> {
        Silence { began: clock::instant(), millis: &mut self.silent_millis }
    }
}

/// Adds what a wait for a client's body took to its silence, also when the wait is given up.
pub struct Silence<'a> {
    began: Instant,
    millis: &'a mut u32,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        *self.millis = self.millis.saturating_add(millis(clock::instant().saturating_duration_since(self.began)));
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The time that so many bytes may take at this rate; no end of it where there is no rate.
fn time_for(bytes: u64, per_second: u64) -> Duration {
    bytes.saturating_mul(1000).checked_div(per_second).map_or(Duration::MAX, Duration::from_millis)
}
