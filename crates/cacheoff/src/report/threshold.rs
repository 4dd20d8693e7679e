//! `--threshold 'p99<20ms,dhr>0.5'`: a run as pass or fail.

use super::metric::{METRICS, Metric};
use super::summary::Summary;
use crate::chart::Unit;

/// One condition on a metric.
pub struct Threshold {
    metric: &'static Metric,
    wants: Wants,
    limit: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Wants {
    Below,
    Above,
}

impl Threshold {
    /// Reads conditions separated by commas.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let form = || format!("{text:?} is not a threshold: write a metric, < or >, and a number, such as p99<20ms");
        let sign = text.find(['<', '>']).ok_or_else(form)?;
        let (key, rest) = (text[..sign].trim(), text[sign + 1..].trim_start_matches('=').trim());
        let metric = Metric::named(key).ok_or_else(|| unknown(key))?;
        let limit = number(rest, metric.unit)
            .ok_or_else(|| format!("{rest:?} in the threshold {text:?} is not a number{}", hint(metric.unit)))?;
        let wants = if text[sign..].starts_with('<') { Wants::Below } else { Wants::Above };
        Ok(Self { metric, wants, limit })
    }

    /// The fault of a run by this condition, if there is one. A run without the metric does not pass.
    pub fn broken_by(&self, summary: &Summary<'_>) -> Option<String> {
        let name = format!("{} {}", summary.ledger.run.label, self.metric.key);
        let limit = self.metric.unit.text(self.limit);
        let Some(value) = self.metric.of(summary) else {
            return Some(format!("{name} was not measured"));
        };
        let (holds, word) = match self.wants {
            Wants::Below => (value <= self.limit, "above"),
            Wants::Above => (value >= self.limit, "below"),
        };
        (!holds).then(|| format!("{name} is {}, {word} {limit}", self.metric.unit.text(value)))
    }
}

fn unknown(key: &str) -> String {
    let keys: Vec<&str> = METRICS.iter().map(|metric| metric.key).collect();
    format!("unknown metric {key:?} in a threshold; there are {}", keys.join(", "))
}

fn hint(unit: Unit) -> &'static str {
    match unit {
        Unit::Micros => " with us, ms or s",
        Unit::Share => " such as 0.5 or 50%",
        Unit::Bytes => " with B, kB, MB or GB",
        _ => "",
    }
}

fn number(text: &str, unit: Unit) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !".+-".contains(c)).unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    let factor = match (unit, text[end..].trim()) {
        (Unit::Micros, "us" | "µs") => 1.0,
        (Unit::Micros, "ms") => 1e3,
        (Unit::Micros, "s") => 1e6,
        (Unit::Micros, _) => return None,
        (Unit::Share, "%") => 0.01,
        (Unit::Bytes, "kB" | "KB") => 1e3,
        (Unit::Bytes, "MB") => 1e6,
        (Unit::Bytes, "GB") => 1e9,
        (Unit::PerSecond | Unit::Count | Unit::Bits, "k") => 1e3,
        (Unit::PerSecond | Unit::Count | Unit::Bits, "M") => 1e6,
        (Unit::Bytes, "B") | (_, "") => 1.0,
        _ => return None,
    };
    Some(value * factor)
}
