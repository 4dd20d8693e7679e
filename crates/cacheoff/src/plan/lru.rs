//! The hits of an ideal cache, and the size at which LRU has 99 % of them.

use super::sample::{Sample, sample};
use super::{Basis, WorkingSetSize, is_uniform_window};
use crate::object::Lifetime;
use crate::workload::{Popularity, WorkingSet, Workload};

/// The share of the hits that the stated size gives.
const SHARE: f64 = 0.99;

/// How a figure was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// By a formula.
    Formula,
    /// From so many requests drawn without a network.
    Sampling {
        /// Requests.
        requests: u64,
    },
    /// A log decides.
    Unknown,
}

impl How {
    /// In words.
    pub fn as_words(self) -> String {
        match self {
            Self::Formula => "by formula".to_owned(),
            Self::Sampling { requests } => {
                format!("from a sample of {} requests", crate::chart::grouped(requests as f64))
            }
            Self::Unknown => "the log decides: see cacheoff simulate".to_owned(),
        }
    }
}

pub(super) struct Found {
    pub(super) dhr: Option<f64>,
    pub(super) bhr: Option<f64>,
    pub(super) lru_99_bytes: Option<f64>,
    /// Share of the requests that ask again.
    pub(super) repeats: f64,
    pub(super) how: How,
}

pub(super) fn found(
    workload: &Workload,
    basis: &Basis,
    set: Option<&WorkingSetSize>,
    rate: Option<f64>,
    (requests, robots): (Option<f64>, u64),
) -> Found {
    if workload.replay.is_some() {
        return Found { dhr: None, bhr: None, lru_99_bytes: None, repeats: 0.0, how: How::Unknown };
    }
    if let Popularity::Live { segment_s, window } = workload.interest.popularity {
        return live(workload, basis, segment_s, window, rate.unwrap_or(1.0));
    }
    if is_uniform_window(workload) {
        let bhr = basis.recurrence * basis.offerable * basis.cachable_size / basis.size.max(1e-9);
        let sliding = !matches!(workload.interest.working_set, WorkingSet::Unlimited);
        let lru = set.filter(|_| sliding).map(|set| set.cachable_bytes * uniform_window_99(basis.recurrence));
        return Found {
            dhr: Some(basis.recurrence * basis.offerable),
            bhr: Some(bhr),
            lru_99_bytes: lru,
            repeats: basis.recurrence,
            how: How::Formula,
        };
    }
    // Where no interest is shared, each robot has a set of its own, and one of them is drawn.
    let own = if workload.interest.public == 0.0 { robots.max(1) as f64 } else { 1.0 };
    let Sample { dhr, bhr, repeats, lru_bytes, requests } =
        sample(workload, basis, set, (requests.map(|requests| requests / own), rate.map(|rate| rate / own)), SHARE);
    let lru_99_bytes = match workload.interest.working_set {
        WorkingSet::Fixed(_) => lru_bytes.map(|bytes| bytes * own),
        _ => lru_bytes,
    };
    Found { dhr: Some(dhr), bhr: Some(bhr), lru_99_bytes, repeats, how: How::Sampling { requests } }
}

/// Each channel makes a playlist and a segment per segment's length; all else is a repeat.
fn live(workload: &Workload, basis: &Basis, segment_s: f64, window: u32, peak: f64) -> Found {
    let channels = match workload.interest.working_set {
        WorkingSet::Fixed(channels) => channels as f64,
        _ => 1.0,
    };
    // A list is fetched again when it has expired, a segment once.
    let list = workload.contents.first().and_then(|content| Lifetime::of(&content.cache_control));
    let list_s = list.map_or(segment_s, |lifetime| (lifetime.fresh_s as f64).max(1.0));
    let new = (channels * (1.0 / list_s + 1.0 / segment_s) / peak).min(1.0);
    let dhr = (1.0 - new) * basis.offerable;
    let bytes =
        channels * f64::from(window) * workload.contents.iter().map(|content| content.size_mean()).fold(0.0, f64::max);
    let bhr = dhr * basis.cachable_size / basis.size.max(1e-9);
    Found { dhr: Some(dhr), bhr: Some(bhr), lru_99_bytes: Some(bytes), repeats: 1.0 - new, how: How::Formula }
}

/// Size at which LRU has 99 % of the hits of a sliding window with uniform popularity, in windows.
///
/// Time is counted in lives of an object, so an object is made at 0, asked for at random times at the rate Λ = r/(1 − r), and
/// leaves the window at 1. With the characteristic time T of an LRU cache (Che 2002) a repeat misses if the object was made, and asked
/// for last, more than T ago: share (1 − T)·e^(−ΛT). The objects in the cache are those used within T, alive or gone.
fn uniform_window_99(recurrence: f64) -> f64 {
    let (time, rate) = characteristic_time(recurrence);
    window_share(time, rate)
}

fn characteristic_time(recurrence: f64) -> (f64, f64) {
    let rate = recurrence / (1.0 - recurrence).max(1e-9);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle: f64 = (low + high) / 2.0;
        match (1.0 - middle) * (-rate * middle).exp() > 1.0 - SHARE {
            true => low = middle,
            false => high = middle,
        }
    }
    (high, rate)
}

fn window_share(time: f64, rate: f64) -> f64 {
    let missed = (-rate * time).exp();
    let alive = time + (1.0 - time) * (1.0 - missed);
    let gone = if rate > 0.0 { time - (1.0 - missed) / rate } else { 0.0 };
    alive + gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;
    use crate::simulate::Stack;

    #[test]
    fn the_formula_is_what_a_drawn_window_shows() {
        for recurrence in [0.6875, 0.95] {
            let (window, mut made) = (5_000u64, 0u64);
            let mut stream = Stream::named(1, "window");
            let (mut stack, mut distances) = (Stack::with_capacity(0), Vec::new());
            for step in 0..600_000 {
                let repeat = made >= window && stream.chance(recurrence);
                let name = if repeat { made - stream.below(window) } else { made + 1 };
                made = made.max(name);
                match stack.touch(name, 1) {
                    Some(distance) if step > 300_000 => distances.push(distance),
                    _ => {}
                }
            }
            distances.sort_unstable();
            let found = distances[(distances.len() as f64 * SHARE) as usize] as f64 / window as f64;
            let formula = uniform_window_99(recurrence);
            assert!((found / formula - 1.0).abs() < 0.02, "{recurrence}: {found} by drawing, {formula} by formula");
        }
    }
}
