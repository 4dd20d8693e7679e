//! A request head in, the answer out: a function of the object law and the time.

use crate::object::{Body, Facts, Law, Name, Version};
use crate::wire::{CALIBRATE, Clock, ECHO, FAULT, Tag, decimal, field};
use larder_wire::date::{Stamp, format_date, parse_date};
use larder_wire::etag::{ETag, ETagList};
use larder_wire::range::{ContentRange, RangeSpec, parse_range};
use larder_wire::{Method, RequestHead, Target, Version as Http};
use std::ops::Range;

/// What an origin sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// The body and which bytes of it; `None` for none.
    pub body: Option<(Body, Range<u64>)>,
    /// Whether the connection stays, as far as the request says.
    pub keeps_alive: bool,
    /// Whether the body goes in chunks.
    pub chunked: bool,
}

/// What an origin does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Half of the body, then the end of the connection.
    Truncate,
    /// Half of the body, then a reset.
    Reset,
    /// Half of the body, then silence until the connection's idle limit.
    Stall,
    /// The declared length is larger than the body.
    LongLength,
    /// 503 instead of an answer.
    Unavailable,
    /// The origin breaks off anywhere in the body.
    Abort,
}

/// How an answer is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// Whether the connection ends after it.
    pub close: bool,
    /// Whether it has no length.
    pub chunked: bool,
}

impl Fault {
    /// The word in the reply's field and in workloads.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Truncate => "truncate",
            Self::Reset => "reset",
            Self::Stall => "stall",
            Self::LongLength => "long-length",
            Self::Unavailable => "unavailable",
            Self::Abort => "abort",
        }
    }
}

/// Answers a request: writes the head to `out` and says what follows it.
pub fn answer(request: &RequestHead, law: &Law, clock: &Clock, manner: Manner, out: &mut Vec<u8>) -> Answer {
    let fault = manner.fault.filter(|fault| *fault == Fault::Unavailable || request.method == Method::Get);
    let path = match &request.target {
        Target::Origin(path) => path.as_bytes(),
        Target::Absolute(url) => url.path.as_bytes(),
        Target::Authority(..) | Target::Asterisk => b"",
    };
    // Without a length, the end of the connection is the only end that HTTP/1.0 knows.
    let endless = manner.chunked && request.version == Http::Http10;
    let keeps_alive = request.keeps_alive() && !manner.close && !endless;
    let reply = Reply { request, clock, keeps_alive, chunked: manner.chunked };
    if path == CALIBRATE.as_bytes() {
        return reply.short(204, out);
    }
    let Some(name) = law.parse(path) else { return reply.short(404, out) };
    if fault == Some(Fault::Unavailable) {
        return reply.short(503, out);
    }
    reply.object(law, &name, fault, out)
}

struct Reply<'a> {
    request: &'a RequestHead,
    clock: &'a Clock,
    keeps_alive: bool,
    chunked: bool,
}

impl Reply<'_> {
    fn short(&self, status: u16, out: &mut Vec<u8>) -> Answer {
        self.begin(status, out);
        if status != 204 {
            field("Content-Length", b"0", out);
        }
        if status == 503 {
            field("Cache-Control", b"no-store", out);
            field(FAULT, Fault::Unavailable.as_str().as_bytes(), out);
        }
        self.end(out);
        Answer { status, body: None, keeps_alive: self.keeps_alive, chunked: false }
    }

    fn object(&self, law: &Law, name: &Name, fault: Option<Fault>, out: &mut Vec<u8>) -> Answer {
        let facts = law.facts(name);
        let version = law.version(name, &facts, self.clock.unix);
        let content = law.content(name);
        let variant = if content.variants > 1 && self.accepts_gzip() { 1 } else { 0 };
        let tag = Tag { seed: facts.seed, generation: version.generation, variant };
        let body = law.body(&facts, version.generation, variant);
        let safe = matches!(self.request.method, Method::Get | Method::Head);
        if safe && self.is_current(&tag, &version, content.etag) {
            self.begin(304, out);
            self.labels(law, name, &facts, &version, &tag, out);
            self.end(out);
            return Answer { status: 304, body: None, keeps_alive: self.keeps_alive, chunked: false };
        }
        if facts.redirects {
            self.begin(302, out);
            let moved = law.moved(name);
            out.extend_from_slice(b"Location: ");
            law.path(&moved, &law.facts(&moved), out);
            out.extend_from_slice(b"\r\nContent-Length: 0\r\n");
            self.labels(law, name, &facts, &version, &tag, out);
            self.end(out);
            return Answer { status: 302, body: None, keeps_alive: self.keeps_alive, chunked: false };
        }
        let part = self.part(facts.size);
        // `Content-Range` says how long a part is, so that a length that is too large spoils nothing of it.
        let fault = fault.filter(|fault| *fault != Fault::LongLength || part.is_none());
        self.begin(if part.is_some() { 206 } else { 200 }, out);
        let range = part.clone().unwrap_or(0..facts.size);
        let surplus = if fault == Some(Fault::LongLength) { 1 + facts.size / 2 } else { 0 };
        self.lengths(&range, part.is_some(), facts.size, surplus, out);
        let chunked = self.chunked && self.request.version == Http::Http11;
        if chunked {
            field("Transfer-Encoding", b"chunked", out);
        }
        field("Content-Type", content.media.as_bytes(), out);
        self.labels(law, name, &facts, &version, &tag, out);
        if let Some(fault) = fault {
            field(FAULT, fault.as_str().as_bytes(), out);
        }
        self.end(out);
        let body = (self.request.method != Method::Head).then_some((body, range));
        let chunked = chunked && body.is_some();
        Answer { status: if part.is_some() { 206 } else { 200 }, body, keeps_alive: self.keeps_alive, chunked }
    }

    fn begin(&self, status: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(self.request.version.as_str().as_bytes());
        out.push(b' ');
        decimal(u64::from(status), out);
        out.push(b' ');
        out.extend_from_slice(larder_wire::head::reason(status).as_bytes());
        out.extend_from_slice(b"\r\n");
        field("Date", &self.clock.date, out);
        if let Some(echo) = self.request.fields.get(ECHO) {
            field(ECHO, echo, out);
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
            field("Cache-Control", b"private,no-cache,no-store", out);
            field("Pragma", b"no-cache", out);
        }
        if content.etag {
            out.extend_from_slice(b"ETag: ");
            tag.write(out);
            out.extend_from_slice(b"\r\n");
        }
        if content.variants > 1 {
            field("Vary", b"Accept-Encoding", out);
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

    /// The part that is asked for; several at once are answered with the whole.
    fn part(&self, size: u64) -> Option<Range<u64>> {
        if self.request.method != Method::Get || self.request.fields.contains("If-Range") {
            return None;
        }
        let specs: Vec<RangeSpec> = parse_range(self.request.fields.get("Range")?)?;
        let [spec] = specs[..] else { return None };
        spec.within(size)
    }
}

fn etag(tag: &Tag) -> ETag {
    let mut text = Vec::new();
    tag.write(&mut text);
    ETag::parse(&text).expect("our own tags are well-formed")
}
