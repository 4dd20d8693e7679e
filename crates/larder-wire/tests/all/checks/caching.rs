//! The checks of what a cache reads: dates, directives, entity tags, ranges, structured fields.

use larder_wire::date::{Stamp, format_date, parse_date, parse_date_at};
use larder_wire::directives::CacheControl;
use larder_wire::etag::{ETag, ETagList};
use larder_wire::range::{ContentRange, RANGES_MAX, parse_range, resolve};
use larder_wire::structured::{no_vary_search, quoted, targeted, token_or_quoted};
use larder_wire::{Fields, fields::trim};

/// Any bytes as a date.
pub fn date(bytes: &[u8]) {
    let last_second = 253_402_300_799;
    if let Some(stamp) = parse_date(bytes)
        && stamp.0 <= last_second
    {
        assert_eq!(parse_date(&format_date(stamp)), Some(stamp));
    }
    let now = Stamp(bytes.iter().fold(0, |sum: u64, byte| sum << 7 ^ u64::from(*byte)));
    parse_date_at(bytes, now);
    let clamped = Stamp(now.0.min(last_second));
    assert_eq!(parse_date(&format_date(now)), Some(clamped));
}

/// Any lines as the values of `Cache-Control`.
pub fn directives(bytes: &[u8]) {
    let fields = lines("Cache-Control", bytes);
    let read = CacheControl::of(&fields);
    let most = 1 << 31;
    let seconds = [read.max_age, read.s_maxage, read.min_fresh, read.stale_while_revalidate, read.stale_if_error];
    assert!(seconds.iter().flatten().all(|&seconds| seconds <= most));
    let mut stricter = fields.clone();
    stricter.push("Cache-Control", "no-store");
    assert!(CacheControl::of(&stricter).no_store, "no line can hide the next one");
    targeted(&fields, &["Cache-Control"]);
}

/// Any bytes as an entity tag, any lines as a list of them.
pub fn etag(bytes: &[u8]) {
    if let Some(tag) = ETag::parse(trim(bytes)) {
        let mut out = Vec::new();
        tag.write_to(&mut out);
        assert_eq!(out, trim(bytes));
        assert!(tag.weak_eq(&tag));
        assert!(
            ETagList::of(&lines("If-None-Match", &out), "If-None-Match")
                .is_some_and(|list| list.matches_weak(Some(&tag)))
        );
    }
    if let Some(list) = ETagList::of(&lines("If-Match", bytes), "If-Match") {
        let tag = ETag::parse(b"\"a\"").expect("an entity tag");
        assert!(!list.matches_strong(Some(&tag)) || list.matches_weak(Some(&tag)));
    }
}

/// Any bytes as `Range` and as `Content-Range`. The first byte is the length of the representation.
pub fn range(bytes: &[u8]) {
    let [len, value @ ..] = bytes else { return };
    let len = u64::from(*len);
    if let Some(specs) = parse_range(value) {
        assert!((1..=RANGES_MAX).contains(&specs.len()));
        for len in [0, 1, len, u64::MAX] {
            satisfied(&resolve(&specs, len).unwrap_or_default(), len);
        }
    }
    if let Some(range) = ContentRange::parse(value) {
        assert!(range.range().start < range.range().end);
        assert_eq!(ContentRange::parse(range.to_string().as_bytes()), Some(range));
        assert_eq!(ContentRange::of(&range.range(), range.len), range);
        assert_eq!(ContentRange::parse_unsatisfied(value), None);
    }
    if let Some(len) = ContentRange::parse_unsatisfied(value) {
        assert_eq!(ContentRange::parse_unsatisfied(ContentRange::unsatisfied(len).as_bytes()), Some(len));
    }
}

/// Any lines as structured fields: the first as `No-Vary-Search`, the others as queries it is asked about.
pub fn structured(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (value, queries) = text.split_once('\n').unwrap_or((&text, ""));
    for text in text.lines() {
        assert!(quoted(text).is_ascii() && token_or_quoted(text).is_ascii());
    }
    targeted(&lines("CDN-Cache-Control", bytes), &["CDN-Cache-Control"]);
    let Some(law) = no_vary_search(&lines("No-Vary-Search", value.as_bytes())) else { return };
    let queries: Vec<&str> = queries.split('\n').take(4).collect();
    for a in &queries {
        assert!(law.same(a, &law.normalise(a)), "{a}");
        for b in &queries {
            assert_eq!(law.same(a, b), law.normalise(a) == law.normalise(b), "{a} {b}");
        }
    }
}

/// Ranges lie inside, are not empty, and neither overlap nor touch.
fn satisfied(ranges: &[std::ops::Range<u64>], len: u64) {
    for (at, range) in ranges.iter().enumerate() {
        assert!(range.start < range.end && range.end <= len, "{ranges:?} of {len}");
        assert!(ranges[at + 1..].iter().all(|other| other.end < range.start || range.end < other.start), "{ranges:?}");
    }
}

fn lines(name: &str, bytes: &[u8]) -> Fields {
    let mut fields = Fields::new();
    bytes.split(|&byte| byte == b'\n').for_each(|line| fields.push(name, line));
    fields
}
