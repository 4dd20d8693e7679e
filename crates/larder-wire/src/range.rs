//! Byte ranges: what `Range` asks and what `Content-Range` says (RFC 9110 section 14).

use std::fmt;
use std::ops::Range;

use crate::date::digits;
use crate::fields::trim;

/// How many ranges one request may ask for; more, and the field is ignored (RFC 9110 sections 14.2 and 17.15).
pub const RANGES_MAX: usize = 64;

/// One range as asked, before the length is known (RFC 9110 section 14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `2-5`: both ends included.
    Between {
        /// The first byte.
        first: u64,
        /// The last byte; never before the first.
        last: u64,
    },
    /// `2-`: to the end.
    From(u64),
    /// `-5`: so many bytes at the end.
    Suffix(u64),
}

impl RangeSpec {
    /// The bytes of a representation of that length; `None` when there are none.
    pub fn within(self, len: u64) -> Option<Range<u64>> {
        let range = match self {
            RangeSpec::Between { first, last } => first..last.saturating_add(1).min(len),
            RangeSpec::From(first) => first..len,
            RangeSpec::Suffix(count) => len.saturating_sub(count)..len,
        };
        (range.start < range.end).then_some(range)
    }

    fn parse(text: &[u8]) -> Option<RangeSpec> {
        let dash = memchr::memchr(b'-', text)?;
        match (&text[..dash], &text[dash + 1..]) {
            ([], count) => digits(count).map(RangeSpec::Suffix),
            (first, []) => digits(first).map(RangeSpec::From),
            (first, last) => {
                let (first, last) = (digits(first)?, digits(last)?);
                (first <= last).then_some(RangeSpec::Between { first, last })
            }
        }
    }
}

/// Reads the value of a `Range` field. `None` means that the field is to be ignored: another unit, nothing
/// asked, one member malformed, or more than [`RANGES_MAX`] of them.
pub fn parse_range(value: &[u8]) -> Option<Vec<RangeSpec>> {
    let equals = memchr::memchr(b'=', value)?;
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for member in value[equals + 1..].split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty()) {
        if specs.len() == RANGES_MAX {
            return None;
        }
        specs.push(RangeSpec::parse(member)?);
    }
    (!specs.is_empty()).then_some(specs)
}

/// The bytes that the ranges mean in a representation of that length; `None` when they mean none (416).
///
/// Ranges that overlap or touch become one at the place of the first of them (RFC 9110 section 15.3.7.2), so
/// whatever was asked, no byte is sent twice and there are never more parts than bytes. Otherwise the order
/// is the client's. Nothing satisfies a range of an empty representation.
pub fn resolve(specs: &[RangeSpec], len: u64) -> Option<Vec<Range<u64>>> {
    let mut ranges: Vec<Range<u64>> = Vec::with_capacity(specs.len());
    for mut range in specs.iter().filter_map(|spec| spec.within(len)) {
        let mut place = ranges.len();
        while let Some(at) = ranges.iter().position(|held| held.start <= range.end && range.start <= held.end) {
            let held = ranges.remove(at);
            range = held.start.min(range.start)..held.end.max(range.end);
            place = place.min(at);
        }
        ranges.insert(place.min(ranges.len()), range);
    }
    (!ranges.is_empty()).then_some(ranges)
}

/// The value of `Content-Range` in a 206: `bytes 0-99/1000`, or `/*` while the length is unknown (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, included.
    pub last: u64,
    /// The length of the whole, when it is known.
    pub len: Option<u64>,
}

impl ContentRange {
    /// Reads a value; `None` when it is malformed, impossible, of another unit, or the unsatisfied form.
    pub fn parse(value: &[u8]) -> Option<ContentRange> {
        let (range, len) = split(value)?;
        let dash = memchr::memchr(b'-', range)?;
        let (first, last) = (digits(&range[..dash])?, digits(&range[dash + 1..])?);
        let len = match len {
            b"*" => None,
            len => Some(digits(len)?),
        };
        let possible = first <= last && last < u64::MAX && len.is_none_or(|len| last < len);
        possible.then_some(ContentRange { first, last, len })
    }

    /// The bytes as a half-open range.
    pub fn range(&self) -> Range<u64> {
        self.first..self.last.saturating_add(1)
    }

    /// The value for a non-empty range of a representation.
    pub fn of(range: &Range<u64>, len: Option<u64>) -> ContentRange {
        ContentRange { first: range.start, last: range.end.saturating_sub(1), len }
    }

    /// Reads the form of a 416, `bytes */1000`: the length of the whole.
    pub fn parse_unsatisfied(value: &[u8]) -> Option<u64> {
        let (range, len) = split(value)?;
        digits(len).filter(|_| range == b"*")
    }

    /// Writes the form of a 416.
    pub fn unsatisfied(len: u64) -> String {
        format!("bytes */{len}")
    }
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}-{}/", self.first, self.last)?;
        match self.len {
            Some(len) => write!(f, "{len}"),
            None => f.write_str("*"),
        }
    }
}

/// The parts before and after the `/` of a value in bytes.
fn split(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (unit, rest) = value.split_at_checked(6)?;
    let slash = memchr::memchr(b'/', rest)?;
    unit.eq_ignore_ascii_case(b"bytes ").then_some((&rest[..slash], &rest[slash + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `ignored`, `416`, or the ranges with both ends included.
    fn answer(value: &str, len: u64) -> String {
        let Some(specs) = parse_range(value.as_bytes()) else { return "ignored".to_owned() };
        let Some(ranges) = resolve(&specs, len) else { return "416".to_owned() };
        ranges.iter().map(|range| format!("{}-{}", range.start, range.end - 1)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn resolves() {
        // Field value, length, answer; RFC 9110 sections in the comments.
        let rows = [
            // 14.1.2: the examples for a length of 10,000.
            ("bytes=0-499", 10_000, "0-499"),
            ("bytes=500-999", 10_000, "500-999"),
            ("bytes=-500", 10_000, "9500-9999"),
            ("bytes=9500-", 10_000, "9500-9999"),
            ("bytes=0-0,-1", 10_000, "0-0 9999-9999"),
            ("bytes= 0-999, 4500-5499, -1000", 10_000, "0-999 4500-5499 9000-9999"),
            ("bytes=500-600,601-999", 10_000, "500-999"),
            ("bytes=500-700,601-999", 10_000, "500-999"),
            ("bytes=0-99999999999999999999999", 10, "0-9"),
            ("bytes=-99", 10, "0-9"),
            ("bytes=10-", 10, "416"),
            ("bytes=10-20,0-1", 10, "0-1"),
            ("bytes=-0", 10, "416"),
            ("bytes=0-", 0, "416"),
            ("bytes=-1", 0, "416"),
            ("bytes=99999999999999999999999-", 10, "416"),
            // 14.1: units without case, unknown units.
            ("BYTES=0-1", 10, "0-1"),
            ("lines=0-1", 10, "ignored"),
            // 14.1.1, 14.2: malformed.
            ("bytes=5-4", 10, "ignored"),
            ("bytes=0-1,5-4", 10, "ignored"),
            ("bytes=", 10, "ignored"),
            ("bytes=,", 10, "ignored"),
            ("bytes", 10, "ignored"),
            ("bytes=-", 10, "ignored"),
            ("bytes=a-b", 10, "ignored"),
            ("bytes=1-2-3", 10, "ignored"),
            ("bytes=--1", 10, "ignored"),
            ("bytes=+1-2", 10, "ignored"),
            ("bytes=0 - 1", 10, "ignored"),
            ("", 10, "ignored"),
            // 15.3.7.2: the client's order; what overlaps becomes one.
            ("bytes=7-8,0-1", 10, "7-8 0-1"),
            ("bytes=7-8,0-1,1-7", 10, "0-8"),
            ("bytes=0-,0-,0-,-10", 10, "0-9"),
        ];
        for (value, len, expected) in rows {
            assert_eq!(answer(value, len), expected, "{value} of {len}");
        }
    }

    #[test]
    fn a_flood_of_ranges_is_ignored() {
        // RFC 9110 section 17.15.
        let asked = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert_eq!(answer(&asked(RANGES_MAX), 10), "0-0");
        assert_eq!(answer(&asked(RANGES_MAX + 1), 10), "ignored");
    }

    #[test]
    fn reads_content_ranges() {
        // RFC 9110 section 14.4.
        let rows = [
            ("bytes 42-1233/1234", "bytes 42-1233/1234"),
            ("bytes 42-1233/*", "bytes 42-1233/*"),
            ("Bytes 0-0/1", "bytes 0-0/1"),
            ("bytes */1234", "none"),
            ("bytes 5-4/10", "none"),
            ("bytes 0-10/10", "none"),
            ("bytes 0-/10", "none"),
            ("bytes 0-1", "none"),
            ("bytes=0-1/10", "none"),
            ("items 0-1/10", "none"),
            ("bytes 0-1/x", "none"),
            ("bytes 0-1/10, bytes 2-3/10", "none"),
            ("", "none"),
        ];
        for (value, expected) in rows {
            let read = ContentRange::parse(value.as_bytes()).map_or("none".to_owned(), |range| range.to_string());
            assert_eq!(read, expected, "{value}");
        }
        assert_eq!(ContentRange::parse_unsatisfied(ContentRange::unsatisfied(7).as_bytes()), Some(7));
        assert_eq!(ContentRange::parse_unsatisfied(b"bytes 0-1/7"), None);
    }

    fn spec() -> impl Strategy<Value = RangeSpec> {
        let number = prop_oneof![0u64..100, Just(u64::MAX)];
        prop_oneof![
            (number.clone(), number.clone()).prop_map(|(a, b)| RangeSpec::Between { first: a.min(b), last: a.max(b) }),
            number.clone().prop_map(RangeSpec::From),
            number.prop_map(RangeSpec::Suffix),
        ]
    }

    proptest! {
        #[test]
        fn parts_are_inside_apart_and_cover_what_was_asked(
            specs in proptest::collection::vec(spec(), 0..20), len in 0u64..120
        ) {
            let ranges = resolve(&specs, len).unwrap_or_default();
            for range in &ranges {
                prop_assert!(range.start < range.end && range.end <= len);
            }
            for byte in 0..len {
                let sent = ranges.iter().filter(|range| range.contains(&byte)).count();
                let asked = specs.iter().filter_map(|spec| spec.within(len)).any(|range| range.contains(&byte));
                prop_assert_eq!(sent, usize::from(asked), "byte {}", byte);
            }
        }

        #[test]
        fn content_ranges_come_back(first in any::<u32>(), more in any::<u32>(), rest in any::<Option<u32>>()) {
            let last = u64::from(first) + u64::from(more);
            let range = ContentRange { first: first.into(), last, len: rest.map(|rest| last + 1 + u64::from(rest)) };
            prop_assert_eq!(ContentRange::parse(range.to_string().as_bytes()), Some(range));
        }

        #[test]
        fn never_panics(value in "(bytes[= ])?[0-9,/*= -]{0,30}") {
            answer(&value, 7);
            ContentRange::parse(value.as_bytes());
            ContentRange::parse_unsatisfied(value.as_bytes());
        }
    }
}
