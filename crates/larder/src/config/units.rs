//! Sizes and durations as people write them.
//!
//! `kB`, `MB`, `GB` and `TB` are powers of 1000, `KiB`, `MiB`, `GiB` and `TiB` powers of 1024, as disks
//! and the standards have it. Durations take `ms`, `s`, `m`, `h`, `d`.

use std::time::Duration;

const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

const DURATIONS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Bytes of `400kB`, `64 MiB`, `1.5GB` or `0`; `None` when it is no size or too large for 64 bits. The
/// letters' case does not matter, `k`, `M`, `G`, `T` alone are the powers of 1000.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let bare = ["k", "m", "g", "t"].iter().any(|letter| unit.eq_ignore_ascii_case(letter));
    let unit = if bare { format!("{unit}B") } else { unit.to_owned() };
    let factor = match unit.is_empty() {
        true => 1,
        false => SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&unit))?.1,
    };
    scale(number, factor)
}

/// The duration of `30s`, `5m`, `1.5h`, `250ms` or `0`; a number without a unit is refused, for nobody
/// knows what it meant.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    if unit.is_empty() {
        return (number == "0").then_some(Duration::ZERO);
    }
    let factor = DURATIONS.iter().find(|(name, _)| *name == unit)?.1;
    scale(number, factor).map(Duration::from_millis)
}

/// The shortest exact spelling: what [`parse_size`] reads back.
pub fn show_size(bytes: u64) -> String {
    let exact = SIZES.iter().filter(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    match exact.min_by_key(|(_, factor)| bytes / factor) {
        Some((unit, factor)) if bytes > 0 => format!("{}{unit}", bytes / factor),
        _ => format!("{bytes}B"),
    }
}

/// Bytes rounded to one decimal, as people read them.
pub fn rounded_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// The shortest exact spelling: what [`parse_duration`] reads back.
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match DURATIONS.iter().find(|(_, factor)| millis > 0 && millis.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", millis / factor),
        None => "0s".to_owned(),
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    number.starts_with(|c: char| c.is_ascii_digit()).then(|| (number, unit.trim()))
}

/// Whole numbers stay exact over the full range; a fraction is cut at the ninth digit.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let number = number.replace('_', "");
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(factor);
    };
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let part = u128::from(digits.parse::<u64>().ok()?) * u128::from(factor) / 10u128.pow(digits.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("400kB", 400_000),
            ("64MB", 64_000_000),
            ("64 MiB", 64 << 20),
            ("10GB", 10_000_000_000),
            ("1.5GB", 1_500_000_000),
            ("16k", 16_000),
            ("2TiB", 2 << 40),
            ("123", 123),
            ("1_000", 1_000),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes), "{text}");
        }
        for bad in ["", "MB", "-1MB", "1XB", "1.MB", "1.2.3MB", "99999999TB", "1 2MB", "_1"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
        assert_eq!(show_size(256_000_000), "256MB");
        assert_eq!(show_size(65_536), "64KiB");
        assert_eq!(show_size(0), "0B");
    }

    #[test]
    fn durations() {
        for (text, millis) in
            [("30s", 30_000), ("5m", 300_000), ("1.5h", 5_400_000), ("250ms", 250), ("1d", 86_400_000)]
        {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(text), Some(duration), "{text}");
            assert_eq!(parse_duration(&show_duration(duration)), Some(duration), "{text}");
        }
        for bad in ["", "30", "s", "-1s", "1y", "1e3s", "99999999999999d"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(show_duration(Duration::ZERO), "0s");
    }
}
