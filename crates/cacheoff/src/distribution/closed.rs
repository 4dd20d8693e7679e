//! Means and quantiles of distributions, without drawing.

use super::{Distribution, log_parameters, zipf};

/// Most points that a distribution by quantiles has.
const POINTS_MAX: usize = 8;

/// Shares and the values below which they lie; between two points the value goes geometrically, or evenly from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    points: [(f64, f64); POINTS_MAX],
    len: usize,
}

impl Quantiles {
    /// From points `(share, value)` that begin at share 0, end at 1 and never fall; `None` if they do not.
    pub fn new(given: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (given.first()?, given.last()?);
        let ends = first.0 == 0.0 && first.1 >= 0.0 && last.0 == 1.0;
        let rising = given.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        if !ends || !rising || !(2..=POINTS_MAX).contains(&given.len()) || !last.1.is_finite() {
            return None;
        }
        let mut points = [(1.0, last.1); POINTS_MAX];
        points[..given.len()].copy_from_slice(given);
        Some(Self { points, len: given.len() })
    }

    /// The points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points[..self.len]
    }

    fn at(&self, share: f64) -> f64 {
        let pair = self.points().windows(2).find(|pair| share <= pair[1].0);
        let Some(&[(from, low), (to, high)]) = pair else { return self.points[self.len - 1].1 };
        let part = (share - from) / (to - from);
        if low > 0.0 { low * (high / low).powf(part) } else { low + (high - low) * part }
    }

    fn mean(&self) -> f64 {
        let piece = |pair: &[(f64, f64)]| {
            let (low, high) = (pair[0].1, pair[1].1);
            let middle = match low > 0.0 && high / low > 1.0 + 1e-9 {
                true => (high - low) / (high / low).ln(),
                false => (low + high) / 2.0,
            };
            (pair[1].0 - pair[0].0) * middle
        };
        self.points().windows(2).map(piece).sum()
    }
}

impl Distribution {
    /// The mean, as declared.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform(low, high) => (low + high) / 2.0,
            Self::Exponential(mean) | Self::Normal(mean, _) | Self::LogNormal(mean, _) => mean,
            // The weights telescope: n - ln(n!) / ln(n + 1).
            Self::Zipf(limit) => limit - log_factorial(limit) / (limit + 1.0).ln(),
            Self::ZipfAlpha(limit, alpha) => zipf::harmonic(limit, alpha - 1.0) / zipf::harmonic(limit, alpha),
            Self::Pareto { low, high, alpha } => pareto_mean(low, high, alpha),
            Self::Empirical(quantiles) => quantiles.mean(),
        }
    }

    /// The mean of what is drawn if all above `limit` counts as `limit`.
    pub fn mean_up_to(&self, limit: f64) -> f64 {
        const STEPS: u32 = 4_000;
        if self.quantile(1.0 - 1e-9) <= limit {
            return self.mean();
        }
        let cut = |step| self.quantile((f64::from(step) + 0.5) / f64::from(STEPS)).min(limit);
        (0..STEPS).map(cut).sum::<f64>() / f64::from(STEPS)
    }

    /// The value below which this share of what is drawn lies.
    pub fn quantile(&self, share: f64) -> f64 {
        let share = share.clamp(0.0, 1.0);
        match *self {
            Self::Constant(value) => value,
            Self::Uniform(low, high) => low + (high - low) * share,
            Self::Exponential(mean) => -mean * (1.0 - share).ln(),
            Self::Normal(mean, deviation) => mean + deviation * standard_quantile(share),
            Self::LogNormal(mean, deviation) => {
                let (mu, sigma) = log_parameters(mean, deviation);
                (mu + sigma * standard_quantile(share)).exp()
            }
            Self::Zipf(limit) => (limit + 1.0).powf(share).floor().min(limit),
            Self::ZipfAlpha(limit, alpha) => zipf::quantile(limit, alpha, share),
            Self::Pareto { low, high, alpha } => {
                let tail = 1.0 - share * (1.0 - (low / high).powf(alpha));
                (low * tail.powf(-1.0 / alpha)).min(high)
            }
            Self::Empirical(quantiles) => quantiles.at(share),
        }
    }
}

/// `ln(n!)`: summed while that is short, then by Stirling's series.
fn log_factorial(n: f64) -> f64 {
    if n < 256.0 {
        return (2..=n as u64).map(|each| (each as f64).ln()).sum();
    }
    n * n.ln() - n + (std::f64::consts::TAU * n).ln() / 2.0 + 1.0 / (12.0 * n)
}

fn pareto_mean(low: f64, high: f64, alpha: f64) -> f64 {
    if high <= low {
        return low;
    }
    if (alpha - 1.0).abs() < 1e-9 {
        return low * high / (high - low) * (high / low).ln();
    }
    let weight = low.powf(alpha) / (1.0 - (low / high).powf(alpha));
    weight * alpha / (alpha - 1.0) * (low.powf(1.0 - alpha) - high.powf(1.0 - alpha))
}

/// Quantile of the sum of twelve uniforms less six, by halving.
fn standard_quantile(share: f64) -> f64 {
    if share > 0.5 {
        return -standard_quantile(1.0 - share);
    }
    let (mut low, mut high) = (0.0, 6.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match irwin_hall(middle) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0 - 6.0
}

/// How likely the sum of twelve uniforms is at most `x`; good for `x` up to 6, the middle.
fn irwin_hall(x: f64) -> f64 {
    const FACTORIAL_12: f64 = 479_001_600.0;
    let (mut sum, mut choose) = (0.0, 1.0);
    for k in 0..=(x.floor() as u32).min(12) {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        sum += sign * choose * (x - f64::from(k)).powi(12);
        choose = choose * f64::from(12 - k) / f64::from(k + 1);
    }
    sum / FACTORIAL_12
}
