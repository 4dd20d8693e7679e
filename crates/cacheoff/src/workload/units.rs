//! How workloads spell numbers, times, sizes and distributions, and back.

use crate::distribution::{Distribution, Quantiles};
use std::borrow::Cow;

/// Units of time in seconds.
const TIMES: &[(&str, f64)] =
    &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3_600.0), ("d", 86_400.0), ("y", 365.0 * 86_400.0)];

/// Units of size in bytes; KB is 1,024 bytes as in all workloads of Web Polygraph.
const SIZES: &[(&str, f64)] =
    &[("B", 1.0), ("KB", 1024.0), ("MB", 1048576.0), ("GB", 1073741824.0), ("TB", 1099511627776.0)];

/// Units of bandwidth in bits per second.
const RATES: &[(&str, f64)] = &[("bps", 1.0), ("kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9)];

/// The quantity that numbers of a distribution or a knob measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Things.
    Count,
    /// Seconds.
    Time,
    /// Bytes.
    Size,
    /// Bits per second.
    Rate,
}

impl Unit {
    fn table(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Count => &[],
            Self::Time => TIMES,
            Self::Size => SIZES,
            Self::Rate => RATES,
        }
    }

    /// How values are written, for people.
    pub(super) fn form(self) -> &'static str {
        match self {
            Self::Count => "number",
            Self::Time => "time",
            Self::Size => "size",
            Self::Rate => "bits per second",
        }
    }

    /// Reads a value. A number alone is 0 or a count.
    pub(super) fn parse(self, text: &str) -> Option<f64> {
        let text = text.trim();
        if self == Self::Count {
            return number(text);
        }
        let digits = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
        let (value, unit) = (number(&text[..digits])?, &text[digits..]);
        if unit.is_empty() {
            return (value == 0.0 || self == Self::Size).then_some(value);
        }
        let (_, factor) = self.table().iter().find(|(name, _)| *name == unit)?;
        Some(value * factor)
    }

    /// Writes a value in the largest unit that makes it a short number.
    pub(super) fn show(self, value: f64) -> String {
        if value == 0.0 || self == Self::Count {
            return plain(value);
        }
        let short = |factor: f64| value.abs() >= factor && (value / factor * 1_000.0).fract().abs() < 1e-6;
        let unit = self.table().iter().rev().find(|(_, factor)| short(*factor)).or_else(|| self.table().first());
        unit.map_or_else(|| plain(value), |(name, factor)| format!("{}{name}", plain(value / factor)))
    }
}

/// A number with at most six places behind the point.
fn plain(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// Bytes of a size such as `64MB`.
pub fn parse_size(text: &str) -> Option<u64> {
    Unit::Size.parse(text).filter(|bytes| *bytes >= 0.0).map(|bytes| bytes as u64)
}

/// A number, a percentage, or a quotient of such: `0.55`, `55%`, `55% / 80%`.
pub(super) fn number(text: &str) -> Option<f64> {
    let mut parts = text.split('/').map(|part| {
        let part = part.trim().replace('_', "");
        match part.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().ok().map(|value| value / 100.0),
            None => part.parse::<f64>().ok(),
        }
    });
    let first = parts.next()??;
    let value = parts.try_fold(first, |value, part| Some(value / part?))?;
    value.is_finite().then_some(value)
}

/// A share as a percentage.
pub(super) fn show_share(share: f64) -> String {
    format!("{}%", plain(share * 100.0))
}

/// `name(argument, argument)` or a name alone; arguments may have brackets of their own.
pub(super) struct Call<'t> {
    pub(super) name: &'t str,
    pub(super) arguments: Vec<&'t str>,
}

impl<'t> Call<'t> {
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        let text = text.trim();
        let Some((name, rest)) = text.split_once('(') else {
            return Some(Self { name: text, arguments: Vec::new() });
        };
        let inside = rest.strip_suffix(')')?;
        let (mut arguments, mut depth, mut from) = (Vec::new(), 0i32, 0);
        for (at, letter) in inside.char_indices() {
            match letter {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => {
                    arguments.push(inside[from..at].trim());
                    from = at + 1;
                }
                _ => {}
            }
            if depth < 0 {
                return None;
            }
        }
        arguments.push(inside[from..].trim());
        (depth == 0).then_some(Self { name: name.trim(), arguments })
    }
}

/// The forms of distributions, for hints.
pub(super) const DISTRIBUTION_FORMS: &str = "write a constant, const(x), unif(low, high), exp(mean), norm(mean, deviation), \
     logn(mean, deviation), zipf(n), zipf(n, alpha), pareto(low, high, alpha) or quantiles(0%: x, 50%: y, 100%: z)";

/// Reads a distribution whose values have this unit. `Err` says what is wrong with it.
pub(super) fn distribution(text: &str, unit: Unit) -> Result<Distribution, Cow<'static, str>> {
    if let Some(value) = unit.parse(text) {
        return Ok(Distribution::Constant(value));
    }
    let call = Call::parse(text).ok_or("brackets that do not match")?;
    if call.name == "quantiles" {
        return quantiles(&call.arguments, unit)
            .ok_or("quantiles begin at 0%, end at 100%, never fall, 8 at most".into());
    }
    let values = call.arguments.iter().enumerate().map(|(place, argument)| match is_bare(call.name, place) {
        true => number(argument),
        false => unit.parse(argument),
    });
    let values: Vec<f64> =
        values.collect::<Option<_>>().ok_or_else(|| Cow::from(format!("{text:?} has no {} in it", unit.form())))?;
    make(call.name, &values)
}

/// Arguments without a unit: the exponents, and the n of zipf.
fn is_bare(name: &str, place: usize) -> bool {
    name == "zipf" || (name == "pareto" && place == 2)
}

fn make(name: &str, values: &[f64]) -> Result<Distribution, Cow<'static, str>> {
    if values.iter().any(|value| *value < 0.0) {
        return Err("negative numbers have no meaning here".into());
    }
    match (name, values) {
        ("const", &[value]) => Ok(Distribution::Constant(value)),
        ("unif", &[low, high]) if low <= high => Ok(Distribution::Uniform(low, high)),
        ("exp", &[mean]) if mean > 0.0 => Ok(Distribution::Exponential(mean)),
        ("norm", &[mean, deviation]) => Ok(Distribution::Normal(mean, deviation)),
        ("logn", &[mean, deviation]) if mean > 0.0 => Ok(Distribution::LogNormal(mean, deviation)),
        ("zipf", &[limit]) if (1.0..=1e9).contains(&limit) => Ok(Distribution::Zipf(limit.floor())),
        ("zipf", &[limit, alpha]) if (1.0..=1e12).contains(&limit) => Ok(Distribution::ZipfAlpha(limit.floor(), alpha)),
        ("pareto", &[low, high, alpha]) if 0.0 < low && low < high && alpha > 0.0 => {
            Ok(Distribution::Pareto { low, high, alpha })
        }
        ("const" | "unif" | "exp" | "norm" | "logn" | "zipf" | "pareto", _) => {
            Err(format!("these are no numbers for {name}").into())
        }
        _ => Err(format!("there is no distribution {name}").into()),
    }
}

fn quantiles(arguments: &[&str], unit: Unit) -> Option<Distribution> {
    let point = |argument: &&str| {
        let (share, value) = argument.split_once(':')?;
        Some((number(share)?, unit.parse(value)?))
    };
    let points: Vec<(f64, f64)> = arguments.iter().map(point).collect::<Option<_>>()?;
    Quantiles::new(&points).map(Distribution::Empirical)
}

/// Writes a distribution as workloads do.
pub(super) fn show_distribution(distribution: &Distribution, unit: Unit) -> String {
    let show = |value| unit.show(value);
    match *distribution {
        Distribution::Constant(value) => show(value),
        Distribution::Uniform(low, high) => format!("unif({}, {})", show(low), show(high)),
        Distribution::Exponential(mean) => format!("exp({})", show(mean)),
        Distribution::Normal(mean, deviation) => format!("norm({}, {})", show(mean), show(deviation)),
        Distribution::LogNormal(mean, deviation) => format!("logn({}, {})", show(mean), show(deviation)),
        Distribution::Zipf(limit) => format!("zipf({limit})"),
        Distribution::ZipfAlpha(limit, alpha) => format!("zipf({limit}, {alpha})"),
        Distribution::Pareto { low, high, alpha } => format!("pareto({}, {}, {alpha})", show(low), show(high)),
        Distribution::Empirical(quantiles) => {
            let point = |(share, value): &(f64, f64)| format!("{}: {}", show_share(*share), show(*value));
            format!("quantiles({})", quantiles.points().iter().map(point).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_times_and_sizes() {
        assert_eq!(number("55% / 80%"), Some(0.55 / 0.8));
        assert_eq!(number("5/55"), Some(5.0 / 55.0));
        assert_eq!(number("1/0"), None);
        assert_eq!(Unit::Time.parse("2.5s"), Some(2.5));
        assert_eq!(Unit::Time.parse("4h"), Some(14_400.0));
        assert_eq!(Unit::Time.parse("4"), None);
        assert_eq!(Unit::Size.parse("4.5KB"), Some(4_608.0));
        assert_eq!(Unit::Size.parse("191"), Some(191.0));
        assert_eq!(Unit::Rate.parse("10Mbps"), Some(1e7));
    }

    #[test]
    fn distributions_are_read_and_written_alike() {
        for text in [
            "exp(4.5KB)",
            "logn(300KB, 300KB)",
            "unif(0, 8KB)",
            "pareto(1KB, 1GB, 1.2)",
            "quantiles(0%: 100B, 50%: 4KB, 100%: 1MB)",
            "16KB",
        ] {
            let read = distribution(text, Unit::Size).unwrap();
            assert_eq!(show_distribution(&read, Unit::Size), text);
        }
        assert_eq!(distribution("zipf(64)", Unit::Count), Ok(Distribution::Zipf(64.0)));
        assert_eq!(distribution("norm(2.5s, 1s)", Unit::Time), Ok(Distribution::Normal(2.5, 1.0)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["exp(4.5s)", "exp(-1KB)", "exp(1KB", "gauss(1KB)", "unif(2KB, 1KB)", "logn(1KB)", "exp()", ""] {
            assert!(distribution(text, Unit::Size).is_err(), "{text}");
        }
    }
}
