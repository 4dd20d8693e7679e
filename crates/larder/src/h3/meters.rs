//! Limits of what one connection may make the server do for nothing. Each has a word, which is in the log and labels its metric.

use crate::clock;
use crate::meter::Meter;

/// A limit that a client has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Streams that the client opened and gave up.
    RapidReset,
    /// Streams that the client made Larder reset.
    MadeReset,
    /// Frames and streams that mean nothing, DATA without bytes, changes of priority.
    Control,
    /// Small DATA frames.
    SmallData,
}

impl Flood {
    /// All of them.
    pub const ALL: [Flood; 4] = [Flood::RapidReset, Flood::MadeReset, Flood::Control, Flood::SmallData];

    /// The word of the log and the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Flood::RapidReset => "http3-rapid-reset",
            Flood::MadeReset => "http3-made-reset",
            Flood::Control => "http3-control-frames",
            Flood::SmallData => "http3-small-data",
        }
    }

    /// So many within the time of a meter are permitted.
    fn events_max(self) -> u32 {
        match self {
            Flood::RapidReset => 300,
            Flood::MadeReset => 100,
            Flood::Control => 1_000,
            Flood::SmallData => 20_000,
        }
    }
}

/// Counts of one connection.
#[derive(Debug, Default)]
pub struct Meters([Meter; Flood::ALL.len()]);

impl Meters {
    /// Counts an event, and says whether it is one too many.
    pub fn is_flooded_by(&mut self, kind: Flood) -> bool {
        self.0[kind as usize].is_one_too_many(kind.events_max(), clock::instant)
    }
}
