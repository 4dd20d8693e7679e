//! The life cycle of objects: when each version began, when it ends, and what its reply says of that.

use crate::distribution::Distribution;
use crate::random::Stream;

/// How objects of a type change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Life {
    /// Never within a run: modified a year before it, expires a year after it.
    Static,
    /// Replaced again and again.
    Cycle {
        /// Length of an object's cycle in seconds.
        length: Distribution,
        /// How far a change strays from its place in the cycle, as a share of the cycle.
        variance: f64,
        /// Share of the replies that say `Last-Modified`.
        with_modified: f64,
        /// Seconds after the next change at which a version expires.
        expires_after: f64,
    },
}

/// A version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub generation: u64,
    /// When it began, in seconds since 1970.
    pub modified: u64,
    /// When the next one begins.
    pub replaced: u64,
    /// When it expires, as its reply says.
    pub expires: u64,
    /// Whether its reply says when it was modified.
    pub says_modified: bool,
}

const YEAR_S: u64 = 365 * 24 * 3600;

impl Life {
    /// The version of an object at a time, in seconds since 1970.
    pub fn version(&self, seed: u64, epoch: u64, now: u64) -> Version {
        match *self {
            Self::Static => {
                let (modified, replaced) = (epoch.saturating_sub(YEAR_S), epoch + YEAR_S);
                Version { generation: 0, modified, replaced, expires: replaced, says_modified: true }
            }
            Self::Cycle { length, variance, with_modified, expires_after } => {
                let cycle = Cycle::of(&length, variance, seed);
                let generation = cycle.generation(now as f64);
                let replaced = cycle.change(generation + 1).ceil() as u64;
                Version {
                    generation,
                    modified: cycle.change(generation).ceil().max(0.0) as u64,
                    replaced,
                    expires: (replaced as f64 + expires_after).max(0.0) as u64,
                    says_modified: Stream::new(seed, 6).chance(with_modified),
                }
            }
        }
    }

    /// When a version is replaced, in seconds since 1970.
    pub fn replaced(&self, seed: u64, epoch: u64, generation: u64) -> u64 {
        match *self {
            Self::Static => epoch + YEAR_S,
            Self::Cycle { length, variance, .. } => {
                Cycle::of(&length, variance, seed).change(generation.saturating_add(1)).ceil() as u64
            }
        }
    }
}

/// The changes of one object: the n-th is at `birth + n · length`, give or take the variance.
struct Cycle {
    length: f64,
    birth: f64,
    variance: f64,
    seed: u64,
}

impl Cycle {
    fn of(length: &Distribution, variance: f64, seed: u64) -> Self {
        let mut stream = Stream::new(seed, 5);
        let length = length.draw(&mut stream).max(1.0);
        Self { length, birth: stream.unit() * length, variance, seed }
    }

    fn change(&self, number: u64) -> f64 {
        let stray = match self.variance {
            0.0 => 0.0,
            variance => variance * self.length * (Stream::new(self.seed ^ number, 7).unit() - 0.5),
        };
        self.birth + number as f64 * self.length + stray
    }

    /// The last change that is not after `now`. The variance moves a change by at most half a cycle.
    fn generation(&self, now: f64) -> u64 {
        let about = ((now - self.birth) / self.length).floor().max(0.0) as u64;
        (about.saturating_sub(1)..=about + 1).rev().find(|number| self.change(*number).ceil() <= now).unwrap_or(0)
    }
}
