//! Distributions that workloads draw from. Those of Web Polygraph are exactly its own; the bounded Pareto, the Zipf
//! with an exponent and the one by quantiles are newer. Means and quantiles are here too, for plans.

mod closed;
mod zipf;

pub use closed::Quantiles;

use crate::random::Stream;

/// A distribution of sizes in bytes, times in seconds, or counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always this.
    Constant(f64),
    /// Uniform between two bounds.
    Uniform(f64, f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Normal, mean and standard deviation: the sum of twelve uniforms, so never further than six deviations away.
    Normal(f64, f64),
    /// Log-normal, mean and standard deviation of the result.
    LogNormal(f64, f64),
    /// Web Polygraph's zipf(n): `floor((n + 1) ^ U)`.
    Zipf(f64),
    /// Ranks 1 to n with weights `rank ^ -exponent`.
    ZipfAlpha(f64, f64),
    /// Pareto between two bounds, with this exponent.
    Pareto {
        /// Smallest value.
        low: f64,
        /// Largest value.
        high: f64,
        /// Exponent of the tail.
        alpha: f64,
    },
    /// By its quantiles.
    Empirical(Quantiles),
}

impl Distribution {
    /// Draws a value.
    pub fn draw(&self, stream: &mut Stream) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform(low, high) => low + (high - low) * stream.unit(),
            Self::Exponential(mean) => -mean * (1.0 - stream.unit()).ln(),
            Self::Normal(mean, deviation) => mean + deviation * standard(stream),
            Self::LogNormal(mean, deviation) => {
                let (mu, sigma) = log_parameters(mean, deviation);
                (mu + sigma * standard(stream)).exp()
            }
            Self::Zipf(limit) => (limit + 1.0).powf(stream.unit()).floor().min(limit),
            Self::ZipfAlpha(limit, alpha) => zipf::draw(limit, alpha, stream),
            Self::Pareto { .. } | Self::Empirical(_) => self.quantile(stream.unit()),
        }
    }

    /// Draws how many requests a connection carries: one at least, and any number where nothing is said.
    pub fn draw_uses(uses: Option<&Self>, stream: &mut Stream) -> u32 {
        uses.map_or(u32::MAX, |uses| uses.draw(stream).max(1.0) as u32)
    }
}

/// A standard normal value by the sum of twelve uniforms.
fn standard(stream: &mut Stream) -> f64 {
    (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0
}

/// Mean and standard deviation of the logarithm, from those of the value.
fn log_parameters(mean: f64, deviation: f64) -> (f64, f64) {
    let variance = (1.0 + (deviation / mean).powi(2)).ln();
    (mean.ln() - variance / 2.0, variance.sqrt())
}

#[cfg(test)]
mod tests;
