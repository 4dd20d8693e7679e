//! Clocks across a control connection: how far the one of the other end is ahead, by exchanges of which the quickest is
//! believed. The error of that is at most half its round trip, and far less where both directions take equally long.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An agent whose clock is further off does not play.
pub const OFFSET_MAX_US: i64 = 1_000;
/// Exchanges of late among which the quickest is looked for.
const SAMPLES_MAX: usize = 64;

/// How far a clock is ahead of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// Microseconds; below 0 if it is behind.
    pub us: i64,
    /// Round trip of the exchange that told it, in microseconds.
    pub round_us: u64,
}

impl Offset {
    /// Whether the clock is too far off for a run.
    pub fn is_too_far(self) -> bool {
        self.us.unsigned_abs() > OFFSET_MAX_US.unsigned_abs()
    }
}

/// The last exchanges with one clock.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    all: VecDeque<Offset>,
}

impl Samples {
    /// A question left at the first time, the other clock said the second one, the answer came at the third.
    pub fn add(&mut self, left_us: u64, theirs_us: u64, came_us: u64) {
        let round_us = came_us.saturating_sub(left_us);
        let middle = i128::from(left_us) + i128::from(round_us / 2);
        let us = i64::try_from(i128::from(theirs_us) - middle).unwrap_or(i64::MAX);
        if self.all.len() == SAMPLES_MAX {
            self.all.pop_front();
        }
        self.all.push_back(Offset { us, round_us });
    }

    /// The offset that the quickest exchange tells.
    pub fn best(&self) -> Option<Offset> {
        self.all.iter().min_by_key(|sample| sample.round_us).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets them, so that what follows is measured anew.
    pub fn clear(&mut self) {
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_exchange_tells_the_offset() {
        let mut samples = Samples::default();
        assert_eq!(samples.best(), None);
        // 5 ms ahead; the slow answer came back late and would say less.
        samples.add(1_000, 26_000, 81_000);
        samples.add(100_000, 125_000, 140_000);
        assert_eq!(samples.best(), Some(Offset { us: 5_000, round_us: 40_000 }));
        assert!(samples.best().unwrap().is_too_far());
        (0..SAMPLES_MAX as u64).for_each(|at| samples.add(at * 10, at * 10 + 1, at * 10 + 2));
        assert_eq!((samples.len(), samples.best().unwrap()), (SAMPLES_MAX, Offset { us: 0, round_us: 2 }));
    }

    #[test]
    fn nonsense_of_the_other_end_is_an_offset_like_any() {
        let mut samples = Samples::default();
        samples.add(10, u64::MAX, 5);
        assert!(samples.best().unwrap().is_too_far());
        assert!(Offset { us: i64::MIN, round_us: 0 }.is_too_far());
    }
}
