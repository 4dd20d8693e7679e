//! The random generator of a worker: for names of traces and spans, and for the choice of requests that are sampled.

use super::ids::{SpanId, TraceId};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A worker's generator, begun from the system's randomness: names must be unique among all servers.
#[derive(Debug)]
pub struct Draws {
    high: u64,
    state: Cell<u64>,
}

impl Default for Draws {
    fn default() -> Draws {
        let draw = |what: &str| RandomState::new().hash_one(what);
        Draws { high: draw("trace"), state: Cell::new(draw("span")) }
    }
}

impl Draws {
    fn next(&self) -> u64 {
        self.state.set(self.state.get().wrapping_add(STEP));
        mixed(self.state.get())
    }

    /// The name of a trace.
    pub fn trace(&self) -> TraceId {
        let (left, right) = (self.next(), self.next());
        TraceId((u128::from(left ^ self.high) << 64 | u128::from(right)).max(1))
    }

    /// The name of a span.
    pub fn span(&self) -> SpanId {
        SpanId(self.next().max(1))
    }

    /// Draws whether a request is sampled, with this probability.
    pub fn is_among(&self, share: f64) -> bool {
        // 53 bits are what a double holds.
        share >= 1.0 || ((self.next() >> 11) as f64) < share * (1u64 << 53) as f64
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of SplitMix64: each bit of the input moves about half of the output, and no two inputs meet.
pub(super) fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_about_that_share() {
        let draws = Draws { high: 1, state: Cell::new(2) };
        for (share, expected) in [(0.0, 0..=0), (0.1, 900..=1_100), (0.5, 4_850..=5_150), (1.0, 10_000..=10_000)] {
            let many = (0..10_000).filter(|_| draws.is_among(share)).count();
            assert!(expected.contains(&many), "{share}: {many} of 10000 with seeds 1 and 2");
        }
    }

    #[test]
    fn names_are_unique() {
        let draws = Draws::default();
        let mut seen = std::collections::HashSet::new();
        assert!((0..10_000).all(|_| seen.insert(draws.span().0) && seen.insert(draws.trace().0 as u64)), "{draws:?}");
    }
}
