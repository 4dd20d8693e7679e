//! A request head in, the answer out: a function of the object law and the time, signed.

use super::Parts;
use crate::gzip::Encoded;
use crate::object::{Body, Facts, Law, Name, Version, hex};
use crate::random::Seal;
use crate::wire::{CALIBRATE, Clock, ECHO, Echo, FAULT, Fault, Tag, UNCACHABLE, Xact, decimal, field, user_of};
use crate::workload::RangeManner;
use larder_wire::date::{Stamp, format_date, parse_date};
use larder_wire::etag::{ETag, ETagList};
use larder_wire::range::{ContentRange, RangeSpec, parse_range};
use larder_wire::{Method, RequestHead, Target, Version as Http};
use std::ops::Range;
use std::time::Duration;

/// The answer of an origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// The body and which bytes of it; `None` for none.
    pub body: Option<(Payload, Range<u64>)>,
    /// Whether the connection stays, as far as the request says.
    pub keeps_alive: bool,
    /// Whether the body goes in chunks.
    pub chunked: bool,
    /// The fault that spoils it.
    pub fault: Option<Fault>,
    /// The object that it is of; `None` for none.
    pub object: Option<Name>,
}

/// The bytes that a variant sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// The body.
    Plain(Body),
    /// The body as gzip.
    Coded(Encoded),
    /// Several parts of the body.
    Parts(Parts),
}

impl Payload {
    /// Writes the bytes from `at` on into the whole of `out`.
    pub fn fill(&self, at: u64, out: &mut [u8]) {
        match self {
            Self::Plain(body) => body.fill(at, out),
            Self::Coded(encoded) => encoded.fill(at, out),
            Self::Parts(parts) => parts.fill(at, out),
        }
    }
}

/// When an answer leaves, and the secret that signs it.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// The wall clock then.
    pub clock: &'a Clock,
    /// Since the run began.
    pub at: Duration,
    /// The secret of the run.
    pub seal: &'a Seal,
}

/// How an answer is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// The injected fault.
    pub fault: Option<Fault>,
    /// Whether the connection ends after it.
    pub close: bool,
    /// Whether it has no length.
    pub chunked: bool,
    /// How a request for a range is answered.
    pub ranges: RangeManner,
}

/// Answers a request: writes the head to `out` and says what follows it.
pub fn answer(request: &RequestHead, law: &Law, departure: Departure<'_>, manner: Manner, out: &mut Vec<u8>) -> Answer {
    let fault = manner.fault.filter(|fault| *fault == Fault::Unavailable || request.method == Method::Get);
    let path = match &request.target {
        Target::Origin(path) => path.as_bytes(),
        Target::Absolute(url) => url.path.as_bytes(),
        Target::Authority(..) | Target::Asterisk => b"",
    };
    // Without a length, the end of the connection is the only end that HTTP/1.0 knows.
    let endless = manner.chunked && request.version == Http::Http10;
    let keeps_alive = request.keeps_alive() && !manner.close && !endless;
    let reply = Reply { request, departure, keeps_alive, chunked: manner.chunked, ranges: manner.ranges };
    if manner.ranges == RangeManner::Refused && request.fields.contains("Range") {
        return reply.short(403, None, out);
    }
    if path == CALIBRATE.as_bytes() {
        return reply.short(204, None, out);
    }
    let Some(name) = law.parse(path) else { return reply.short(404, None, out) };
    if fault == Some(Fault::Unavailable) {
        return reply.short(503, fault, out);
    }
    reply.object(law, &name, fault, out)
}

struct Reply<'a> {
    request: &'a RequestHead,
    departure: Departure<'a>,
    keeps_alive: bool,
    chunked: bool,
    ranges: RangeManner,
}

impl Reply<'_> {
    fn short(&self, status: u16, fault: Option<Fault>, out: &mut Vec<u8>) -> Answer {
        self.begin(status, fault, out);
        if status != 204 {
            field("Content-Length", b"0", out);
        }
        if status == 503 {
            field("Cache-Control", b"no-store", out);
        }
        self.end(out);
        self.bare(status, fault)
    }

    /// An answer without a body.
    fn bare(&self, status: u16, fault: Option<Fault>) -> Answer {
        Answer { status, body: None, keeps_alive: self.keeps_alive, chunked: false, fault, object: None }
    }

    fn object(&self, law: &Law, name: &Name, fault: Option<Fault>, out: &mut Vec<u8>) -> Answer {
        let facts = law.facts(name);
        let version = law.version(name, &facts, self.departure.clock.unix);
        let content = law.content(name);
        let variant = if content.variants > 1 && self.accepts_gzip() { 1 } else { 0 };
        let user = if content.personal { user_of(self.request.fields.get("Cookie")) } else { 0 };
        let body = law.body(&facts, version.generation, user);
        let tag = Tag { seed: body.seed, generation: version.generation, variant };
        let size = if variant == 1 { Encoded::len_of(facts.size) } else { facts.size };
        let safe = matches!(self.request.method, Method::Get | Method::Head);
        if safe && self.is_current(&tag, &version, content.etag) {
            self.begin(304, None, out);
            self.labels(law, name, &facts, &version, &tag, out);
            self.end(out);
            return Answer { object: Some(*name), ..self.bare(304, None) };
        }
        if facts.redirects {
            self.begin(302, None, out);
            let moved = law.moved(name);
            out.extend_from_slice(b"Location: ");
            law.path(&moved, &law.facts(&moved), out);
            out.extend_from_slice(b"\r\nContent-Length: 0\r\n");
            self.labels(law, name, &facts, &version, &tag, out);
            self.end(out);
            return Answer { object: Some(*name), ..self.bare(302, None) };
        }
        let ranges = if self.range_applies(&tag, &version, content.etag) { self.ranges(size) } else { None };
        let several = ranges.clone().filter(|ranges| ranges.len() > 1 && variant == 0);
        if let Some(ranges) = several {
            return self.parts((law, name, &facts, &version, &tag), body, &ranges, fault, out);
        }
        let part = ranges.and_then(|ranges| <[_; 1]>::try_from(ranges).ok()).map(|[range]| range);
        // `Content-Range` says how long a part is, so that a length that is too large spoils nothing of it.
        let fault = fault.filter(|fault| *fault != Fault::LongLength || part.is_none());
        let status = if part.is_some() { 206 } else { 200 };
        self.begin(status, fault, out);
        let range = part.clone().unwrap_or(0..size);
        let surplus = if fault == Some(Fault::LongLength) { 1 + size / 2 } else { 0 };
        self.lengths(&range, part.is_some(), size, surplus, out);
        if variant == 1 {
            field("Content-Encoding", b"gzip", out);
        }
        let chunked = self.chunked && self.request.version == Http::Http11;
        if chunked {
            field("Transfer-Encoding", b"chunked", out);
        }
        field("Content-Type", content.media.as_bytes(), out);
        if self.ranges != RangeManner::Quiet && variant == 0 {
            field("Accept-Ranges", b"bytes", out);
        }
        self.labels(law, name, &facts, &version, &tag, out);
        self.end(out);
        let payload = || if variant == 1 { Payload::Coded(Encoded::of(body)) } else { Payload::Plain(body) };
        let body = (self.request.method != Method::Head).then(|| (payload(), range));
        let chunked = chunked && body.is_some();
        Answer { status, body, keeps_alive: self.keeps_alive, chunked, fault, object: Some(*name) }
    }

    /// Several parts in one answer.
    fn parts(
        &self,
        (law, name, facts, version, tag): (&Law, &Name, &Facts, &Version, &Tag),
        body: Body,
        ranges: &[Range<u64>],
        fault: Option<Fault>,
        out: &mut Vec<u8>,
    ) -> Answer {
        let boundary = format!("cacheoff-{:x}", body.seed);
        let parts = Parts::of(body, ranges, &law.content(name).media, &boundary);
        let fault = fault.filter(|fault| *fault != Fault::LongLength);
        self.begin(206, fault, out);
        let chunked = self.chunked && self.request.version == Http::Http11;
        if chunked {
            field("Transfer-Encoding", b"chunked", out);
        }
        self.lengths(&(0..parts.bytes()), false, 0, 0, out);
        field("Content-Type", format!("multipart/byteranges; boundary={boundary}").as_bytes(), out);
        self.labels(law, name, facts, version, tag, out);
        self.end(out);
        let range = 0..parts.bytes();
        let body = Some((Payload::Parts(parts), range));
        Answer { status: 206, body, keeps_alive: self.keeps_alive, chunked, fault, object: Some(*name) }
    }

    fn begin(&self, status: u16, fault: Option<Fault>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.request.version.as_str().as_bytes());
        out.push(b' ');
        decimal(u64::from(status), out);
        out.push(b' ');
        out.extend_from_slice(larder_wire::head::reason(status).as_bytes());
        out.extend_from_slice(b"\r\n");
        field("Date", &self.departure.clock.date, out);
        if let Some((xact, _)) = self.request.fields.get(ECHO).and_then(Xact::parse) {
            let at_us = u64::try_from(self.departure.at.as_micros()).unwrap_or(u64::MAX);
            out.extend_from_slice(ECHO.as_bytes());
            out.extend_from_slice(b": ");
            Echo { xact, at_us, fault }.write(self.departure.seal, out);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(fault) = fault {
            field(FAULT, fault.as_str().as_bytes(), out);
        }
    }

    fn lengths(&self, range: &Range<u64>, partial: bool, size: u64, surplus: u64, out: &mut Vec<u8>) {
        if !self.chunked {
            out.extend_from_slice(b"Content-Length: ");
            decimal(range.end - range.start + surplus, out);
            out.extend_from_slice(b"\r\n");
        }
        if partial {
            field("Content-Range", ContentRange::of(range, Some(size)).to_string().as_bytes(), out);
        }
    }

    /// Cachability, life cycle, validators, variants.
    fn labels(&self, law: &Law, name: &Name, facts: &Facts, version: &Version, tag: &Tag, out: &mut Vec<u8>) {
        let content = law.content(name);
        if facts.cachable {
            field("Cache-Control", content.cache_control.as_bytes(), out);
            field("Expires", &format_date(Stamp(version.expires)), out);
            if version.says_modified {
                field("Last-Modified", &format_date(Stamp(version.modified)), out);
            }
        } else {
            field("Cache-Control", UNCACHABLE.as_bytes(), out);
            field("Pragma", b"no-cache", out);
        }
        if content.etag {
            out.extend_from_slice(b"ETag: ");
            tag.write(out);
            out.extend_from_slice(b"\r\n");
        }
        let vary = match (content.variants > 1, content.personal && !content.is_private()) {
            (true, true) => "Accept-Encoding, Cookie",
            (true, false) => "Accept-Encoding",
            (false, true) => "Cookie",
            (false, false) => "",
        };
        if !vary.is_empty() {
            field("Vary", vary.as_bytes(), out);
        }
        if facts.cachable && content.is_private() {
            out.extend_from_slice(b"Set-Cookie: for=");
            hex(user_of(self.request.fields.get("Cookie")), out);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        match (self.request.version, self.keeps_alive) {
            (Http::Http10, true) => field("Connection", b"keep-alive", out),
            (Http::Http11, false) => field("Connection", b"close", out),
            _ => {}
        }
        out.extend_from_slice(b"\r\n");
    }

    fn accepts_gzip(&self) -> bool {
        self.request.fields.has_member("Accept-Encoding", "gzip")
    }

    /// Whether the client's copy is still right (RFC 9110 section 13.2.2: the tag counts before the date).
    fn is_current(&self, tag: &Tag, version: &Version, tagged: bool) -> bool {
        if let Some(list) = ETagList::of(&self.request.fields, "If-None-Match") {
            return tagged && list.matches_weak(Some(&etag(tag)));
        }
        let since = self.request.fields.get("If-Modified-Since").and_then(parse_date);
        since.is_some_and(|since| version.modified <= since.0)
    }

    /// Whether the client wants a part of this very representation (RFC 9110 section 13.1.5): by a strong tag or the exact date.
    fn range_applies(&self, tag: &Tag, version: &Version, tagged: bool) -> bool {
        let Some(of) = self.request.fields.get("If-Range") else { return true };
        match ETag::parse(of) {
            Some(held) => tagged && held.strong_eq(&etag(tag)),
            None => version.says_modified && parse_date(of).is_some_and(|date| date.0 == version.modified),
        }
    }

    /// The parts that are asked for, those that there are.
    fn ranges(&self, size: u64) -> Option<Vec<Range<u64>>> {
        if self.request.method != Method::Get || self.ranges == RangeManner::Ignored {
            return None;
        }
        let specs: Vec<RangeSpec> = parse_range(self.request.fields.get("Range")?)?;
        Some(specs.into_iter().filter_map(|spec| spec.within(size)).collect())
    }
}

fn etag(tag: &Tag) -> ETag {
    let mut text = Vec::new();
    tag.write(&mut text);
    ETag::parse(&text).expect("our own tags are well-formed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;
    use crate::object::{Content, World};
    use larder_wire::parse::{self, Parsed};

    const NOW: u64 = 1_800_000_000;

    /// A file of 1,000 bytes, as the origin has it.
    fn law() -> (Law, Name) {
        let content = Content {
            endings: vec![(".bin".into(), 1.0)],
            ..Content::plain("file", "application/octet-stream", Distribution::Constant(1_000.0), 1_000)
        };
        let law = Law { seed: 1, epoch: NOW, contents: vec![content], ..Law::default() };
        let name = Name { server: 0, content: 0, world: World::Public { worker: 0 }, number: 1, embedded: false };
        (law, name)
    }

    /// The status, the head and the bytes of the body for a GET with these fields.
    fn asked(fields: &str) -> (u16, String, Option<Range<u64>>) {
        asked_of(RangeManner::Quiet, fields)
    }

    fn asked_of(ranges: RangeManner, fields: &str) -> (u16, String, Option<Range<u64>>) {
        let (law, name) = law();
        let mut path = Vec::new();
        law.path(&name, &law.facts(&name), &mut path);
        let path = String::from_utf8(path).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        let parsed = parse::request(request.as_bytes(), &Default::default());
        let Ok(Parsed::Complete { head: request, .. }) = parsed else { panic!("{parsed:?}") };
        let (clock, seal) = (Clock::at(NOW), Seal::random());
        let departure = Departure { clock: &clock, at: Duration::ZERO, seal: &seal };
        let mut head = Vec::new();
        let answer = answer(&request, &law, departure, Manner { ranges, ..Manner::default() }, &mut head);
        (answer.status, String::from_utf8(head).unwrap(), answer.body.map(|(_, range)| range))
    }

    fn field_of(head: &str, name: &str) -> String {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("{name} in {head}")).to_string()
    }

    #[test]
    fn an_origin_may_say_that_it_takes_ranges_and_not_take_them() {
        let (status, head, _) = asked("Range: bytes=0-9\r\n");
        assert!(status == 206 && !head.contains("Accept-Ranges"), "{head}");
        for (manner, expected) in [(RangeManner::Stated, 206), (RangeManner::Ignored, 200), (RangeManner::Refused, 403)]
        {
            assert_eq!(field_of(&asked_of(manner, "").1, "Accept-Ranges"), "bytes");
            assert_eq!(asked_of(manner, "Range: bytes=0-9\r\n").0, expected, "{manner:?}");
        }
    }

    #[test]
    fn a_range_beside_if_range_is_sent_of_the_same_representation_alone() {
        let (status, head, body) = asked("");
        assert_eq!((status, body), (200, Some(0..1_000)));
        let (tag, modified) = (field_of(&head, "ETag"), field_of(&head, "Last-Modified"));
        let part = |condition: &str| {
            let (status, head, body) = asked(&format!("Range: bytes=100-199\r\nIf-Range: {condition}\r\n"));
            (status == 206).then(|| assert_eq!(field_of(&head, "Content-Range"), "bytes 100-199/1000"));
            (status, body)
        };
        assert_eq!(part(&tag), (206, Some(100..200)));
        assert_eq!(part(&modified), (206, Some(100..200)));
        for other in [&format!("W/{tag}"), "\"other\"", "Thu, 01 Jan 1970 00:00:00 GMT", "nonsense"] {
            assert_eq!(part(other), (200, Some(0..1_000)), "{other}");
        }
        let (status, head, _) = asked(&format!("Range: bytes=0-9, 20-29\r\nIf-Range: {tag}\r\n"));
        assert!(status == 206 && field_of(&head, "Content-Type").starts_with("multipart/byteranges"), "{head}");
    }
}
