//! Limits of the work that an origin may make for nothing. Each has a word, which stands in the fault and the log.

use std::time::Duration;
use tokio::time::Instant;

/// A limit that an origin has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// PING, SETTINGS, GOAWAY, PRIORITY, unknown and empty frames, and frames on streams that are over.
    Control,
    /// Small DATA frames.
    SmallData,
    /// WINDOW_UPDATE frames beyond those that DATA explains.
    WindowUpdate,
    /// A field block in too many frames, or of too many bytes.
    FieldBlock,
}

impl Flood {
    /// The word of the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Flood::Control => "http2-control-frames",
            Flood::SmallData => "http2-small-data",
            Flood::WindowUpdate => "http2-window-updates",
            Flood::FieldBlock => "http2-field-block",
        }
    }

    /// So many within [`METER_TIME`] are too many. A hundred streams of small messages are a lawful load of an origin.
    fn events_max(self) -> u32 {
        match self {
            Flood::Control => 1_000,
            Flood::SmallData => 100_000,
            Flood::WindowUpdate => 20_000,
            Flood::FieldBlock => 0,
        }
    }
}

/// Events are counted over this time.
pub const METER_TIME: Duration = Duration::from_secs(10);

/// Counts of one connection.
#[derive(Default)]
pub struct Meters([Meter; 4]);

#[derive(Clone, Copy, Default)]
struct Meter {
    events: u32,
    /// The beginning of the time that is counted; the clock is read when it begins and when the limit is reached.
    since: Option<Instant>,
}

impl Meters {
    /// Counts an event; the flood that it makes, where it is one too many.
    pub fn note(&mut self, kind: Flood) -> Result<(), Flood> {
        self.note_at(kind, Instant::now)
    }

    fn note_at(&mut self, kind: Flood, now: impl FnOnce() -> Instant) -> Result<(), Flood> {
        let meter = &mut self.0[kind as usize];
        meter.events += 1;
        if meter.since.is_some() && meter.events <= kind.events_max() {
            return Ok(());
        }
        let now = now();
        match meter.since {
            Some(since) if now.saturating_duration_since(since) < METER_TIME => Err(kind),
            None if kind.events_max() == 0 => Err(kind),
            _ => {
                *meter = Meter { events: 1, since: Some(now) };
                Ok(())
            }
        }
    }

    /// Takes events back, because work was done that explains them.
    pub fn forgive(&mut self, kind: Flood, events: u32) {
        let meter = &mut self.0[kind as usize];
        meter.events = meter.events.saturating_sub(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_within_the_time_is_a_flood() {
        let begin = Instant::now();
        for kind in [Flood::Control, Flood::SmallData, Flood::WindowUpdate] {
            let mut meters = Meters::default();
            let max = kind.events_max();
            assert!((0..max).all(|_| meters.note_at(kind, || begin).is_ok()), "{kind:?}");
            assert_eq!(meters.note_at(kind, || begin), Err(kind));
            // Another time begins with its first event.
            assert_eq!(meters.note_at(kind, || begin + METER_TIME), Ok(()));
            meters.forgive(kind, 1);
            assert!((0..max).all(|_| meters.note_at(kind, || begin + METER_TIME).is_ok()), "{kind:?}");
            assert_eq!(meters.note_at(kind, || begin + METER_TIME), Err(kind));
        }
        assert_eq!(Meters::default().note_at(Flood::FieldBlock, || begin), Err(Flood::FieldBlock));
    }
}
