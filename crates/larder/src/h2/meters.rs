//! Limits of what one connection may make the server do for nothing. Each has a word, which is in the log and labels its metric.

use crate::clock;
use crate::meter::Meter;
use std::time::Instant;

/// A limit that a client has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Streams that the client opened and reset (CVE-2023-44487).
    RapidReset,
    /// Streams that the client made Larder reset.
    MadeReset,
    /// PING, SETTINGS, PRIORITY, unknown and empty frames.
    Control,
    /// Small DATA frames.
    SmallData,
    /// WINDOW_UPDATE frames beyond those that DATA explains.
    WindowUpdate,
    /// A field block in too many frames, or of too many bytes.
    FieldBlock,
}

impl Flood {
    /// All of them.
    pub const ALL: [Flood; 6] =
        [Flood::RapidReset, Flood::MadeReset, Flood::Control, Flood::SmallData, Flood::WindowUpdate, Flood::FieldBlock];

    /// The word of the log and the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Flood::RapidReset => "http2-rapid-reset",
            Flood::MadeReset => "http2-made-reset",
            Flood::Control => "http2-control-frames",
            Flood::SmallData => "http2-small-data",
            Flood::WindowUpdate => "http2-window-updates",
            Flood::FieldBlock => "http2-field-block",
        }
    }

    /// So many within [`METER_TIME`](crate::meter::METER_TIME) are too many.
    fn events_max(self) -> u32 {
        match self {
            Flood::RapidReset => 300,
            Flood::MadeReset => 100,
            Flood::Control => 1_000,
            Flood::SmallData | Flood::WindowUpdate => 20_000,
            Flood::FieldBlock => 0,
        }
    }
}

/// Counts of one connection.
#[derive(Default)]
pub struct Meters([Meter; Flood::ALL.len()]);

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
        for kind in [Flood::RapidReset, Flood::MadeReset, Flood::Control, Flood::SmallData, Flood::WindowUpdate] {
            let mut meters = Meters::default();
            let max = kind.events_max();
            assert!((0..max).all(|_| meters.note_at(kind, || begin).is_ok()), "{kind:?}");
            assert_eq!(meters.note_at(kind, || begin), Err(kind));
            // Another time begins with its first event.
            assert_eq!(meters.note_at(kind, || begin + METER_TIME), Ok(()));
            assert!((1..max).all(|_| meters.note_at(kind, || begin + METER_TIME).is_ok()), "{kind:?}");
            assert_eq!(meters.note_at(kind, || begin + METER_TIME), Err(kind));
        }
    }

    #[test]
    fn work_explains_events() {
        let begin = clock::instant();
        let mut meters = Meters::default();
        for _ in 0..100_000 {
            assert_eq!(meters.note_at(Flood::WindowUpdate, || begin), Ok(()));
            meters.forgive(Flood::WindowUpdate, 1);
        }
    }
}
