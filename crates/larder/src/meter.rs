//! Counts of events that cost the server more than the far end, within a time.

use std::time::{Duration, Instant};

/// Events are counted over this time.
pub const METER_TIME: Duration = Duration::from_secs(10);

/// Counts events of one kind on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    events: u32,
    /// The beginning of the time that is counted; the clock is read when it begins and when the limit is reached.
    since: Option<Instant>,
}

impl Meter {
    /// Counts an event, and says whether it is one more than so many within [`METER_TIME`].
    pub fn is_one_too_many(&mut self, events_max: u32, now: impl FnOnce() -> Instant) -> bool {
        if events_max == 0 {
            return true;
        }
        self.events += 1;
        let since = match self.since {
            Some(_) if self.events <= events_max => return false,
            since => since,
        };
        let now = now();
        match since {
            Some(since) if now.saturating_duration_since(since) < METER_TIME => true,
            _ => {
                *self = Meter { events: 1, since: Some(now) };
                false
            }
        }
    }

    /// Takes events back, because work was done that explains them.
    pub fn forgive(&mut self, events: u32) {
        self.events = self.events.saturating_sub(events);
    }
}
