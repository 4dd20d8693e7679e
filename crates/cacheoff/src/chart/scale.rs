//! From values to places on an axis, and where its ticks are.

use super::Unit;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By powers of ten.
    Log,
    /// Shares by their nines: 0, 90, 99, 99.9, 99.99 % stand at equal distances.
    Nines,
}

/// An axis that knows its ends.
#[derive(Clone, Debug)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Span {
    /// An axis that shows all `values`.
    pub fn over(scale: Scale, values: impl Iterator<Item = f64>, fixed: (Option<f64>, Option<f64>)) -> Self {
        let shown = values.filter(|value| value.is_finite() && (scale != Scale::Log || *value > 0.0));
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        let (low, high) = match scale {
            Scale::Linear => (low.min(0.0), high),
            Scale::Log => (low, high),
            Scale::Nines => (0.0, high),
        };
        let (low, high) = (fixed.0.unwrap_or(low), fixed.1.unwrap_or(high));
        Self { scale, low, high: high.max(low) }.rounded(fixed)
    }

    /// Moves ends that are not fixed outwards to a round number.
    fn rounded(mut self, fixed: (Option<f64>, Option<f64>)) -> Self {
        match self.scale {
            Scale::Linear => {
                if self.high <= self.low {
                    self.high = self.low + 1.0;
                }
                if fixed.1.is_none() {
                    let step = nice_step((self.high - self.low) / 4.0) / 2.0;
                    self.high = (self.high / step - 1e-9).ceil() * step;
                }
            }
            Scale::Log => {
                if fixed.0.is_none() {
                    self.low = half_decade(self.low, f64::floor);
                }
                if fixed.1.is_none() {
                    self.high = half_decade(self.high, f64::ceil);
                }
                if self.high <= self.low {
                    self.high = self.low * 10.0;
                }
            }
            Scale::Nines => self.high = self.high.clamp(0.9, 0.999_999),
        }
        self
    }

    /// Place of a value between 0 (low end) and 1 (high end).
    pub fn place(&self, value: f64) -> f64 {
        let bend = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.low).ln(),
            Scale::Nines => -(1.0 - value.min(self.high)).log10(),
        };
        ((bend(value) - bend(self.low)) / (bend(self.high) - bend(self.low))).clamp(0.0, 1.0)
    }

    /// The low end.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Values that get a tick, with their text.
    pub fn ticks(&self, unit: Unit) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear if unit == Unit::Elapsed => {
                evenly(self.low, self.high, clock_step((self.high - self.low) / 5.0))
            }
            Scale::Linear => evenly(self.low, self.high, nice_step((self.high - self.low) / 4.0)),
            Scale::Log => self.decades(),
            Scale::Nines => {
                [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999].into_iter().filter(|v| *v <= self.high).collect()
            }
        };
        values.into_iter().map(|value| (value, unit.tick(value))).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let count = last - first;
        let inside = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        // Between the ends there may be one power of ten, or none.
        let powers = (first..=last).filter(|power| inside(&10_f64.powi(*power))).count();
        let steps: &[f64] = match powers {
            ..=2 if self.high < self.low * 30.0 => &[1.0, 2.0, 5.0],
            ..=2 => &[1.0, 3.0],
            _ if count <= 2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = (count / 7 + 1) as usize;
        let all =
            (first..=last).step_by(every).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(inside).collect()
    }
}

fn evenly(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil();
    (0..50)
        .map(|index| (first + f64::from(index)) * step)
        .take_while(|value| *value <= high * (1.0 + 1e-9) + 1e-12)
        .collect()
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10_f64.powf(rough.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|step| step * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0)
}

/// A round number of seconds, minutes or hours, at least `rough` seconds.
fn clock_step(rough: f64) -> f64 {
    const STEPS: [f64; 14] =
        [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0];
    if rough < 1.0 {
        return nice_step(rough);
    }
    STEPS.into_iter().find(|step| *step >= rough).unwrap_or_else(|| nice_step(rough / 3_600.0) * 3_600.0)
}

/// The next 1, 2 or 5 of a decade, outwards.
fn half_decade(value: f64, outwards: fn(f64) -> f64) -> f64 {
    let power = 10_f64.powf(value.max(1e-9).log10().floor());
    let mantissa = value.max(1e-9) / power;
    let steps = [1.0, 2.0, 5.0, 10.0];
    let down = outwards(0.5) == 0.0;
    let step = match down {
        true => steps.into_iter().rev().find(|step| *step <= mantissa * 1.000_001),
        false => steps.into_iter().find(|step| *step >= mantissa * 0.999_999),
    };
    step.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, unit: Unit, values: &[f64]) -> String {
        let span = Span::over(scale, values.iter().copied(), (None, None));
        span.ticks(unit).into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn ticks_are_round() {
        for (scale, unit, values, expected) in [
            (Scale::Linear, Unit::Count, &[3.0, 97.0][..], "0 | 50 | 100"),
            (Scale::Linear, Unit::PerSecond, &[0.0, 40_000.0], "0 | 10k | 20k | 30k | 40k"),
            (Scale::Linear, Unit::Elapsed, &[0.0, 840.0], "0 s | 5:00 | 10:00 | 15:00"),
            (Scale::Linear, Unit::Share, &[0.2, 0.55], "0% | 20% | 40% | 60%"),
            (Scale::Log, Unit::Micros, &[80.0, 3_000_000.0], "100 µs | 1 ms | 10 ms | 100 ms | 1 s"),
            (Scale::Log, Unit::Micros, &[300_000.0, 13_000_000.0], "300 ms | 1 s | 3 s | 10 s"),
            (Scale::Linear, Unit::Bytes, &[0.0, 37_000_000.0], "0 | 10 MB | 20 MB | 30 MB | 40 MB"),
            (Scale::Linear, Unit::Micros, &[0.0, 7_900_000.0], "0 | 2 s | 4 s | 6 s | 8 s"),
            (Scale::Log, Unit::Micros, &[120.0, 800.0], "100 µs | 200 µs | 500 µs | 1 ms"),
            (Scale::Nines, Unit::Share, &[0.0, 0.9999], "0% | 50% | 90% | 99% | 99.9% | 99.99%"),
            (Scale::Linear, Unit::Count, &[], "0 | 0.5 | 1"),
            (Scale::Log, Unit::Count, &[0.0, -1.0], "1 | 2 | 5 | 10"),
        ] {
            assert_eq!(ticks(scale, unit, values), expected, "{values:?}");
        }
    }

    #[test]
    fn places_run_from_end_to_end() {
        let log = Span::over(Scale::Log, [1.0, 100.0].into_iter(), (None, None));
        assert_eq!([log.place(1.0), log.place(10.0), log.place(100.0), log.place(0.0)], [0.0, 0.5, 1.0, 0.0]);
        let nines = Span::over(Scale::Nines, [0.99].into_iter(), (None, None));
        assert!((nines.place(0.9) - 0.5).abs() < 1e-9);
    }
}
