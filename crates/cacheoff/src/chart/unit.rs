//! Numbers as people read them: a unit, three digits, no more.

/// The meaning of a number, from which its written form follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Things per second.
    PerSecond,
    /// A duration in microseconds.
    Micros,
    /// Time since the start in seconds.
    Elapsed,
    /// Bytes, in steps of 1,000, as axes are divided.
    Bytes,
    /// Bits per second, in steps of 1,000.
    Bits,
    /// A share between 0 and 1, written in percent.
    Share,
    /// Processor cores.
    Cores,
    /// A ratio to something else.
    Ratio,
}

impl Unit {
    /// The number with its unit.
    pub fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        match self {
            Self::Count => grouped(value),
            Self::PerSecond => format!("{}/s", grouped(value)),
            Self::Micros => stepped(value, &[(1.0, "µs"), (1e3, "ms"), (1e6, "s")]),
            Self::Elapsed => elapsed(value),
            Self::Bytes => stepped(value, &[(1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")]),
            Self::Bits => stepped(value, &[(1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s")]),
            Self::Share => format!("{} %", share(value * 100.0)),
            Self::Cores => three_digits(value),
            Self::Ratio => format!("{}×", three_digits(value)),
        }
    }

    /// The number as a tick says it: short.
    pub(super) fn tick(self, value: f64) -> String {
        match self {
            // The other ticks of the axis say in which steps of the unit it is.
            Self::Micros | Self::Bytes | Self::Bits if value == 0.0 => "0".to_owned(),
            Self::Count | Self::PerSecond => {
                stepped(value, &[(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")]).replace(' ', "")
            }
            Self::Share => format!("{}%", share(value * 100.0)),
            unit => unit.text(value),
        }
    }
}

fn stepped(value: f64, steps: &[(f64, &str)]) -> String {
    let fits = |size: f64| value.abs() >= size * 0.9995;
    let (size, name) = steps.iter().rev().find(|(size, _)| fits(*size)).or(steps.first()).copied().unwrap_or((1.0, ""));
    format!("{} {name}", three_digits(value / size)).trim_end().to_owned()
}

/// Three significant digits without trailing zeros; all digits of a large number.
pub fn three_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Percent with one place, with more where it is close to 0 or 100.
fn share(percent: f64) -> String {
    let edge = percent.abs().min((100.0 - percent).abs());
    let places = match edge {
        0.0 => 0,
        edge if edge < 0.01 => 4,
        edge if edge < 1.0 => 2,
        _ => 1,
    };
    let text = format!("{percent:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Digits in groups of three; small numbers with their fraction.
pub fn grouped(value: f64) -> String {
    if value.abs() < 1_000.0 {
        return three_digits(value);
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn elapsed(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 if seconds.fract() != 0.0 => format!("{} s", three_digits(seconds)),
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3_600, whole % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        for (unit, value, text) in [
            (Unit::Count, 0.0, "0"),
            (Unit::Count, 1_234_567.0, "1,234,567"),
            (Unit::Count, 0.125, "0.125"),
            (Unit::PerSecond, 39_715.4, "39,715/s"),
            (Unit::Micros, 953.0, "953 µs"),
            (Unit::Micros, 1_234.0, "1.23 ms"),
            (Unit::Micros, 999_900.0, "1 s"),
            (Unit::Micros, 2_500_000.0, "2.5 s"),
            (Unit::Elapsed, 4.0, "4 s"),
            (Unit::Elapsed, 90.0, "1:30"),
            (Unit::Elapsed, 50_640.0, "14:04 h"),
            (Unit::Bytes, 10_720.0, "10.7 kB"),
            (Unit::Bits, 980e6, "980 Mbit/s"),
            (Unit::Share, 0.548, "54.8 %"),
            (Unit::Share, 0.00004, "0.004 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Share, 0.9999, "99.99 %"),
            (Unit::Ratio, 1.5, "1.5×"),
            (Unit::Ratio, f64::NAN, "–"),
        ] {
            assert_eq!(unit.text(value), text);
        }
        assert_eq!(Unit::PerSecond.tick(12_000.0), "12k");
        assert_eq!(Unit::Bytes.tick(50e6), "50 MB");
    }
}
