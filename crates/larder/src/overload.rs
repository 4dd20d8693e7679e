//! Whether something is behind with its work, by how long the work waits (decision 069).
//!
//! A queue that is long for a moment does its work; one whose oldest request has waited for too long, and goes on to, only makes all
//! wait. So a delay counts once it has stood above its target for a whole interval, and until it has fallen to half of it: a delay that
//! is held at its target changes nothing from one second to the next.

use std::time::Duration;
use tokio::time::Instant;

/// A delay and its target.
#[derive(Debug, Default)]
pub struct StandingDelay {
    above_since: Option<Instant>,
    is_behind: bool,
}

impl StandingDelay {
    /// Notes the delay at this moment. It stands once it has been above `target` for `interval`.
    pub fn note(&mut self, delay: Duration, (target, interval): (Duration, Duration), now: Instant) {
        if delay >= target {
            let since = *self.above_since.get_or_insert(now);
            self.is_behind |= now.saturating_duration_since(since) >= interval;
        } else if !self.is_behind || delay < target / 2 {
            *self = StandingDelay::default();
        }
    }

    /// Whether the delay stands.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_counts_when_it_stands_and_until_it_has_fallen_to_half() {
        let start = Instant::now();
        let limits = (Duration::from_millis(100), Duration::from_millis(1000));
        // Milliseconds since the start, delay, whether it is behind then.
        let table = [
            (0, 90, false),
            (500, 100, false),
            (1000, 5000, false),
            (1400, 99, false), // a short queue: begins anew
            (1500, 100, false),
            (2400, 300, false),
            (2500, 100, true),
            (2600, 60, true), // held near its target
            (2700, 100, true),
            (2800, 50, true),
            (2900, 49, false),
            (3000, 500, false), // one long wait
        ];
        let mut standing = StandingDelay::default();
        for (at, delay, expected) in table {
            standing.note(Duration::from_millis(delay), limits, start + Duration::from_millis(at));
            assert_eq!(standing.is_behind(), expected, "at {at} ms");
        }
    }
}
