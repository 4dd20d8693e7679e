//! What both roles need of messages: dates once a second, the echo by which a hit is told from a miss, entity tags.

use crate::object::{hex, unhex};
use larder_wire::date::{Stamp, format_date};
use larder_wire::parse::HeadLimits;

/// How large a head may be.
pub const HEAD_LIMITS: HeadLimits =
    HeadLimits { head_bytes_max: 64 * 1024, target_bytes_max: 16 * 1024, fields_max: 128 };

/// The field in which a robot names its transaction, and in which an origin repeats that name.
pub const ECHO: &str = "X-Xact";
/// The field in which an origin says that it spoils the answer on purpose, and how.
pub const FAULT: &str = "X-Fault";
/// The path that calibrates a link: answered at once, with no body.
pub const CALIBRATE: &str = "/calibrate";

/// The `Date` of now, written anew when the second changes.
#[derive(Debug)]
pub struct Clock {
    /// Seconds since 1970.
    pub unix: u64,
    /// As a field value.
    pub date: [u8; 29],
}

impl Clock {
    /// At a time in seconds since 1970.
    pub fn at(unix: u64) -> Self {
        Self { unix, date: format_date(Stamp(unix)) }
    }

    /// Goes on to a time.
    pub fn set(&mut self, unix: u64) {
        if unix != self.unix {
            *self = Self::at(unix);
        }
    }
}

/// Names a transaction: the tag of the run and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xact {
    /// Tag of the run.
    pub tag: u32,
    /// Number of the transaction.
    pub number: u64,
}

impl Xact {
    /// As a field value.
    pub fn write(&self, out: &mut Vec<u8>) {
        hex(u64::from(self.tag), out);
        out.push(b'-');
        hex(self.number, out);
    }

    /// Reads a field value.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (tag, rest) = unhex(value)?;
        let (number, rest) = unhex(rest.strip_prefix(b"-")?)?;
        rest.is_empty().then_some(Self { tag: u32::try_from(tag).ok()?, number })
    }
}

/// A strong entity tag: which object, which version, which variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Seed of the object.
    pub seed: u64,
    /// The version.
    pub generation: u64,
    /// The variant.
    pub variant: u8,
}

impl Tag {
    /// As a field value, with its quotes.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        hex(self.seed, out);
        out.push(b'-');
        hex(self.generation, out);
        out.push(b'-');
        hex(u64::from(self.variant), out);
        out.push(b'"');
    }

    /// Reads a field value; one that a cache made weak (because it compressed, for one) is none of ours.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (seed, rest) = unhex(value.strip_prefix(b"\"")?)?;
        let (generation, rest) = unhex(rest.strip_prefix(b"-")?)?;
        let (variant, rest) = unhex(rest.strip_prefix(b"-")?)?;
        (rest == b"\"").then_some(Self { seed, generation, variant: u8::try_from(variant).ok()? })
    }
}

/// Writes a number in decimal.
pub fn decimal(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut place, mut rest) = (20, value);
    loop {
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[place..]);
}

/// Writes a field line.
pub fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn echoes_and_tags_come_back(tag: u32, number: u64, seed: u64, generation: u64, variant: u8) {
            let (xact, etag) = (Xact { tag, number }, Tag { seed, generation, variant });
            let (mut one, mut two, mut three) = (Vec::new(), Vec::new(), Vec::new());
            xact.write(&mut one);
            etag.write(&mut two);
            decimal(number, &mut three);
            prop_assert_eq!(Xact::parse(&one), Some(xact));
            prop_assert_eq!(Tag::parse(&two), Some(etag));
            prop_assert_eq!(three, number.to_string().into_bytes());
        }
    }
}
