//! One row of the table of knobs: how its value is read from text, checked and shown.

use super::units::{DISTRIBUTION_FORMS, Unit, distribution, number, show_distribution, show_share};
use crate::distribution::Distribution;
use std::time::Duration;
use toml::de::DeValue;

/// A knob of a `T`.
pub(super) struct Knob<T: 'static> {
    /// The key in its TOML table.
    pub(super) name: &'static str,
    /// A sentence or two, for people.
    pub(super) about: &'static str,
    /// Must it be given?
    pub(super) required: bool,
    field: Field<T>,
    low: f64,
    high: f64,
}

/// The kind of value, and where in `T` it is stored.
pub(super) enum Field<T: 'static> {
    /// 0 to 1.
    Share(fn(&mut T) -> &mut f64),
    /// 0 to 1, if said.
    ShareIfAny(fn(&mut T) -> &mut Option<f64>),
    /// Any number.
    Number(fn(&mut T) -> &mut f64),
    /// Any number, if said.
    NumberIfAny(fn(&mut T) -> &mut Option<f64>),
    /// A whole number.
    Count(fn(&mut T) -> &mut u64),
    /// A whole number, if said.
    CountIfAny(fn(&mut T) -> &mut Option<u64>),
    /// A whole number of moderate size.
    Few(fn(&mut T) -> &mut u32),
    /// Bytes or bits per second.
    Amount(Unit, fn(&mut T) -> &mut u64),
    /// Bytes, if said.
    SizeIfAny(fn(&mut T) -> &mut Option<u64>),
    /// A length of time.
    Time(fn(&mut T) -> &mut Duration),
    /// A length of time, if said.
    TimeIfAny(fn(&mut T) -> &mut Option<Duration>),
    /// true or false.
    Flag(fn(&mut T) -> &mut bool),
    /// Any text.
    Text(fn(&mut T) -> &mut String),
    /// A distribution.
    Drawn(Unit, fn(&mut T) -> &mut Distribution),
    /// A distribution, if said.
    DrawnIfAny(Unit, fn(&mut T) -> &mut Option<Distribution>),
    /// Names with shares.
    Shares(fn(&mut T) -> &mut Vec<(String, f64)>),
    /// A text of a form of its own.
    Word {
        /// The form.
        form: &'static str,
        /// Shows it.
        read: fn(&T) -> String,
        /// Takes it; says whether it has the form.
        write: fn(&mut T, &str) -> bool,
    },
}

/// Why a value was not taken.
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl<T: Clone> Knob<T> {
    pub(super) const fn new(name: &'static str, field: Field<T>, about: &'static str) -> Self {
        Self { name, about, required: false, field, low: 0.0, high: f64::MAX }
    }

    pub(super) const fn between(mut self, low: f64, high: f64) -> Self {
        (self.low, self.high) = (low, high);
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Takes a value of a file.
    pub(super) fn take(&self, to: &mut T, value: &DeValue<'_>) -> Result<(), Refusal> {
        match (&self.field, value) {
            (Field::Shares(of), DeValue::Table(table)) => {
                let pairs = table.iter().map(|(key, value)| {
                    let text = text_of(value.get_ref());
                    let share = text.as_deref().and_then(number).filter(|share| (0.0..=1.0).contains(share));
                    share.map(|share| (key.get_ref().to_string(), share)).ok_or_else(|| self.refusal(&text))
                });
                *of(to) = pairs.collect::<Result<_, _>>()?;
                Ok(())
            }
            _ => match text_of(value) {
                Some(text) => self.take_text(to, &text),
                None => Err(self.refusal(&None)),
            },
        }
    }

    /// Takes a value as text.
    pub(super) fn take_text(&self, to: &mut T, text: &str) -> Result<(), Refusal> {
        let refused = || self.refusal(&Some(text.to_owned()));
        match &self.field {
            Field::Share(of) => {
                *of(to) = self.in_range(number(text).filter(|share| (0.0..=1.0).contains(share)), text)?
            }
            Field::ShareIfAny(of) => {
                *of(to) = Some(self.in_range(number(text).filter(|share| (0.0..=1.0).contains(share)), text)?);
            }
            Field::Number(of) => *of(to) = self.in_range(number(text), text)?,
            Field::NumberIfAny(of) => *of(to) = Some(self.in_range(number(text), text)?),
            Field::Count(of) => *of(to) = self.in_range(whole(text), text)? as u64,
            Field::CountIfAny(of) => *of(to) = Some(self.in_range(whole(text), text)? as u64),
            Field::Few(of) => *of(to) = self.in_range(whole(text).filter(|few| *few <= 4e9), text)? as u32,
            Field::Amount(unit, of) => *of(to) = self.in_range(unit.parse(text), text)? as u64,
            Field::SizeIfAny(of) => *of(to) = Some(self.in_range(Unit::Size.parse(text), text)? as u64),
            Field::Time(of) => *of(to) = self.time(text)?,
            Field::TimeIfAny(of) => *of(to) = Some(self.time(text)?),
            Field::Flag(of) => *of(to) = text.parse().map_err(|_| refused())?,
            Field::Text(of) => *of(to) = text.to_owned(),
            Field::Drawn(unit, of) => *of(to) = self.drawn(text, *unit)?,
            Field::DrawnIfAny(unit, of) => *of(to) = Some(self.drawn(text, *unit)?),
            Field::Shares(_) => return Err(refused()),
            Field::Word { write, .. } => return if write(to, text) { Ok(()) } else { Err(refused()) },
        }
        Ok(())
    }

    fn in_range(&self, value: Option<f64>, text: &str) -> Result<f64, Refusal> {
        let value = value.filter(|value| *value >= 0.0).ok_or_else(|| self.refusal(&Some(text.to_owned())))?;
        if value < self.low || value > self.high {
            let limits = self.limits().unwrap_or_default();
            return Err(Refusal {
                message: format!("{text} is out of range"),
                hint: Some(format!("it goes {limits}")),
            });
        }
        Ok(value)
    }

    fn time(&self, text: &str) -> Result<Duration, Refusal> {
        let seconds = self.in_range(Unit::Time.parse(text).filter(|seconds| *seconds < 1e12), text)?;
        Ok(Duration::from_secs_f64(seconds))
    }

    fn drawn(&self, text: &str, unit: Unit) -> Result<Distribution, Refusal> {
        let drawn = distribution(text, unit)
            .map_err(|reason| Refusal { message: reason.into_owned(), hint: Some(DISTRIBUTION_FORMS.to_owned()) })?;
        self.in_range(Some(drawn.mean()), &format!("a mean of {}", unit.show(drawn.mean())))?;
        Ok(drawn)
    }

    fn refusal(&self, text: &Option<String>) -> Refusal {
        let message = match text {
            Some(text) => format!("{text:?} is not a {}", self.form()),
            None => format!("it takes a {}", self.form()),
        };
        Refusal { message, hint: self.hint() }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self.field {
            Field::Share(_) | Field::ShareIfAny(_) => "write it as \"55%\" or 0.55, from 0 to 1",
            Field::Time(_) | Field::TimeIfAny(_) => "write it with a unit: us, ms, s, min, h, d or y",
            Field::Amount(Unit::Rate, _) => "write it as 10Mbps: bps, kbps, Mbps or Gbps; 0 is no limit",
            Field::Amount(..) | Field::SizeIfAny(_) => "write it with a unit: B, KB (1,024 B), MB, GB or TB",
            Field::Shares(_) => "write it as { name = \"40%\", other = \"60%\" }",
            Field::Flag(_) => "write true or false",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// The form of its values, for people.
    pub(super) fn form(&self) -> &'static str {
        match &self.field {
            Field::Share(_) | Field::ShareIfAny(_) => "share",
            Field::Number(_) | Field::NumberIfAny(_) => "number",
            Field::Count(_) | Field::CountIfAny(_) | Field::Few(_) => "whole number",
            Field::Amount(unit, _) => unit.form(),
            Field::SizeIfAny(_) => "size",
            Field::Time(_) | Field::TimeIfAny(_) => "time",
            Field::Flag(_) => "true or false",
            Field::Text(_) => "text",
            Field::Drawn(Unit::Time, _) | Field::DrawnIfAny(Unit::Time, _) => "distribution of times",
            Field::Drawn(Unit::Size, _) | Field::DrawnIfAny(Unit::Size, _) => "distribution of sizes",
            Field::Drawn(..) | Field::DrawnIfAny(..) => "distribution of numbers",
            Field::Shares(_) => "table of names with shares",
            Field::Word { form, .. } => form,
        }
    }

    /// Its limits in words, if it has any but those of its kind.
    pub(super) fn limits(&self) -> Option<String> {
        let unit = match &self.field {
            Field::Amount(unit, _) | Field::Drawn(unit, _) | Field::DrawnIfAny(unit, _) => *unit,
            Field::SizeIfAny(_) => Unit::Size,
            Field::Time(_) | Field::TimeIfAny(_) => Unit::Time,
            _ => Unit::Count,
        };
        match (self.low > 0.0, self.high < f64::MAX) {
            (false, false) => None,
            (true, false) => Some(format!("from {}", unit.show(self.low))),
            (_, true) => Some(format!("from {} to {}", unit.show(self.low), unit.show(self.high))),
        }
    }

    /// Its value, as workloads write it.
    pub(super) fn show(&self, of: &T) -> String {
        let mut copy = of.clone();
        let of_copy = &mut copy;
        let none = || "none".to_owned();
        match &self.field {
            Field::Share(at) => show_share(*at(of_copy)),
            Field::ShareIfAny(at) => at(of_copy).map_or_else(none, show_share),
            Field::Number(at) => Unit::Count.show(*at(of_copy)),
            Field::NumberIfAny(at) => at(of_copy).map_or_else(none, |value| Unit::Count.show(value)),
            Field::Count(at) => at(of_copy).to_string(),
            Field::CountIfAny(at) => at(of_copy).map_or_else(none, |value| value.to_string()),
            Field::Few(at) => at(of_copy).to_string(),
            Field::Amount(unit, at) => unit.show(*at(of_copy) as f64),
            Field::SizeIfAny(at) => at(of_copy).map_or_else(none, |value| Unit::Size.show(value as f64)),
            Field::Time(at) => Unit::Time.show(at(of_copy).as_secs_f64()),
            Field::TimeIfAny(at) => at(of_copy).map_or_else(none, |value| Unit::Time.show(value.as_secs_f64())),
            Field::Flag(at) => at(of_copy).to_string(),
            Field::Text(at) => at(of_copy).clone(),
            Field::Drawn(unit, at) => show_distribution(at(of_copy), *unit),
            Field::DrawnIfAny(unit, at) => {
                at(of_copy).as_ref().map_or_else(none, |drawn| show_distribution(drawn, *unit))
            }
            Field::Shares(at) => {
                let pairs = at(of_copy).iter().map(|(name, share)| format!("{name} {}", show_share(*share)));
                pairs.collect::<Vec<_>>().join(", ")
            }
            Field::Word { read, .. } => read(of),
        }
    }
}

fn whole(text: &str) -> Option<f64> {
    number(text).filter(|value| value.fract() == 0.0 && *value <= 9e15)
}

/// The table that a knob stands in.
pub(super) fn section_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(section, _)| section)
}

/// A plain value as text; `None` if it is a list or a table.
pub(super) fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(integer) if integer.radix() == 10 => Some(integer.as_str().to_owned()),
        DeValue::Float(float) => Some(float.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}
