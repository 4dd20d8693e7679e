//! Zipf's law with an exponent: ranks 1 to n with weights `rank ^ -alpha`, drawn by rejection-inversion (Hörmann and
//! Derflinger 1996) in constant time and memory, and its sums.

use crate::random::Stream;

/// Ranks that are summed one by one; beyond them the Euler-Maclaurin formula is exact to the last digits.
const SUMMED: u64 = 256;

/// Draws a rank.
pub(super) fn draw(limit: f64, alpha: f64, stream: &mut Stream) -> f64 {
    let low = integral(1.5, alpha) - 1.0;
    let high = integral(limit + 0.5, alpha);
    loop {
        let area = high + stream.unit() * (low - high);
        let rank = inverse(area, alpha).round().clamp(1.0, limit);
        if area >= integral(rank + 0.5, alpha) - rank.powf(-alpha) {
            return rank;
        }
    }
}

/// `∫ x^-alpha` from 1.
fn integral(x: f64, alpha: f64) -> f64 {
    let rest = 1.0 - alpha;
    if rest.abs() < 1e-9 { x.ln() } else { (rest * x.ln()).exp_m1() / rest }
}

fn inverse(area: f64, alpha: f64) -> f64 {
    let rest = 1.0 - alpha;
    if rest.abs() < 1e-9 { area.exp() } else { ((rest * area).ln_1p() / rest).exp() }
}

/// The sum of `rank ^ -alpha` over ranks 1 to `limit`.
pub(super) fn harmonic(limit: f64, alpha: f64) -> f64 {
    let limit = limit.floor().max(0.0);
    let summed = limit.min(SUMMED as f64);
    let head: f64 = (1..=summed as u64).map(|rank| (rank as f64).powf(-alpha)).sum();
    if limit <= summed {
        return head;
    }
    let ends = (limit.powf(-alpha) - summed.powf(-alpha)) / 2.0;
    let slopes = alpha * (summed.powf(-alpha - 1.0) - limit.powf(-alpha - 1.0)) / 12.0;
    head + integral(limit, alpha) - integral(summed, alpha) + ends + slopes
}

/// The smallest rank with this share of the weight up to it.
pub(super) fn quantile(limit: f64, alpha: f64, share: f64) -> f64 {
    let goal = share * harmonic(limit, alpha);
    let (mut low, mut high) = (1.0, limit.floor());
    while low < high {
        let middle = ((low + high) / 2.0).floor();
        match harmonic(middle, alpha) >= goal {
            true => high = middle,
            false => low = middle + 1.0,
        }
    }
    low
}
