//! Distributions that workloads draw from, exactly as Web Polygraph defines them, and their means.

use crate::random::Stream;

/// A distribution of sizes, times or counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always this.
    Constant(f64),
    /// Uniform between two bounds.
    Uniform(f64, f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Normal, mean and standard deviation: the sum of twelve uniforms.
    Normal(f64, f64),
    /// Log-normal, mean and standard deviation of the result.
    LogNormal(f64, f64),
    /// Web Polygraph's zipf(n): `floor((n + 1) ^ U)`.
    Zipf(f64),
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
                let variance = (1.0 + (deviation / mean).powi(2)).ln();
                (mean.ln() - variance / 2.0 + variance.sqrt() * standard(stream)).exp()
            }
            Self::Zipf(limit) => (limit + 1.0).powf(stream.unit()).floor(),
        }
    }
}

/// A standard normal value by the sum of twelve uniforms.
fn standard(stream: &mut Stream) -> f64 {
    (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0
}
