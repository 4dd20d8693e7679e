//! Limits of the work that an origin may make for nothing. Each has a word, which stands in the fault and the log.

use crate::clock;
use crate::meter::Meter;
use std::time::Instant;

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

    /// So many within [`METER_TIME`](crate::meter::METER_TIME) are too many. A hundred streams of small messages are a lawful load of an origin.
    fn events_max(self) -> u32 {
        match self {
            Flood::Control => 1_000,
            Flood::SmallData => 100_000,
            Flood::WindowUpdate => 20_000,
            Flood::FieldBlock => 0,
        }
    }
}

/// Counts of one connection.
#[derive(Default)]
pub struct Meters([Meter; 4]);

impl Meters {
    /// Counts an event; the flood that it makes, where it is one too many.
    pub fn note(&mut self, kind: Flood) -> Result<(), Flood> {
        self.note_at(kind, clock::instant)
    }

    fn note_at(&mut self, kind: Flood, now: impl FnOnce() -> Instant) -> Result<(), Flood> {
        match self.0[kind as usize].is_one_too_many(kind.events_max(), now) {
            true => Err(kind),
            false => Ok(()),
        }
    }

    /// Takes events back, because work was done that explains them.
    pub fn forgive(&mut self, kind: Flood, events: u32) {
        self.0[kind as usize].forgive(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::METER_TIME;

    #[test]
    fn one_too_many_within_the_time_is_a_flood() {
        let begin = clock::instant();
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
