//! One answer of a cache: whether its status fits the request, and of which version its bytes are.

use super::{Case, Finding, weak, wrong};
use crate::http::Answer;
use crate::model::date::{self, Read};
use crate::model::head::{Asked, Fields, Tag, content_range, names_tag, ranges};
use crate::model::origin::{Exchange, Rep};
use std::ops::Range;

/// One answer, explained by the answer of the origin that its head is of.
pub(super) struct Verdict<'a> {
    pub(super) case: &'a Case<'a>,
    pub(super) answer: &'a Answer,
    pub(super) fields: Fields,
    pub(super) head: &'a Exchange,
}

impl Verdict<'_> {
    pub(super) fn all(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(self.status());
        if !self.case.is_read() {
            if !self.case.is_own(self.head) {
                let what = format!("answer {}", self.head.serial);
                findings.push(wrong("RFC 9111 section 4", "a method that is not answered from a store was", what));
            }
            return findings;
        }
        match self.places() {
            Err(finding) => findings.push(finding),
            Ok(places) => findings.extend(self.of_bytes(&places)),
        }
        findings.extend(self.of_fields());
        findings
    }

    pub(super) fn is_fresh_from_origin(&self) -> bool {
        self.case.is_own(self.head) && self.head.status == self.answer.status
    }

    /// Whether this status may be made of that answer for this request.
    fn status(&self) -> Option<Finding> {
        let (status, made_of) = (self.answer.status, self.head.status);
        let ask = &self.case.now.ask;
        let at = self.case.now.began as i64;
        if !self.case.is_read() {
            return (status != made_of).then(|| wrong("RFC 9110 section 15", "another status", format!("{status}")));
        }
        match status {
            304 => self.not_modified(ask, at),
            206 => self.partial(ask, at),
            416 => {
                let length =
                    self.fields.get("content-range").and_then(|text| text.strip_prefix("bytes */")?.parse().ok());
                let is_none = ranges(ask.get("range"), length.unwrap_or(self.head.rep.length)) == Asked::None;
                (!is_none && made_of != 416)
                    .then(|| wrong("RFC 9110 section 15.5.17", "a range that is there was refused", ""))
            }
            412 => {
                let has = ask.get("if-match").is_some() || ask.get("if-unmodified-since").is_some();
                (!has || made_of != 412)
                    .then(|| wrong("RFC 9110 section 15.5.13", "412 without a condition that fails", ""))
            }
            _ if status == made_of => self.whole_though_known(ask),
            200 if matches!(made_of, 206 | 304) => None,
            203 | 204 | 299 if made_of == 304 => None,
            _ if made_of == 304 && self.head.rep.status == status => None,
            _ => Some(wrong("RFC 9110 section 15", "another status", format!("{status} made of a {made_of}"))),
        }
    }

    /// A client that has it gets it again: right, but dear.
    fn whole_though_known(&self, ask: &Fields) -> Option<Finding> {
        let list = ask.joined("if-none-match")?;
        let tag = self.fields.get("etag").and_then(Tag::read);
        let is_known = self.answer.status == 200 && names_tag(&list, Some(&tag?), false);
        let is_precise = ask.get("if-match").is_none() && ask.get("if-unmodified-since").is_none();
        let is_stored = !self.case.is_own(self.head);
        (is_known && is_precise && is_stored).then(|| {
            weak(
                "RFC 9111 section 4.3.2",
                "the whole was sent to a client that has it",
                format!("If-None-Match: {list}"),
            )
        })
    }

    fn not_modified(&self, ask: &Fields, at: i64) -> Option<Finding> {
        let time = |fields: &Fields, name: &str| match fields.get(name).map(|text| date::read(text, at)) {
            Some(Read::Valid(when) | Read::Either(when)) => Some(when),
            _ => None,
        };
        // The origin's answer to the client's own condition is right.
        let asked = |name: &str| self.head.request.joined(name) == ask.joined(name);
        if self.is_fresh_from_origin() && asked("if-none-match") && asked("if-modified-since") {
            return None;
        }
        let tag = self.fields.get("etag").and_then(Tag::read).or_else(|| self.head.tag.clone());
        let is_right = match ask.joined("if-none-match") {
            Some(list) => names_tag(&list, tag.as_ref(), false),
            None => time(ask, "if-modified-since").is_some_and(|since| {
                let modified = time(&self.fields, "last-modified").or_else(|| time(&self.head.fields, "last-modified"));
                // Without a time of change that of the answer counts (RFC 9111 section 4.3.2).
                let dated = || time(&self.head.fields, "date").unwrap_or(self.head.at as i64);
                modified.unwrap_or_else(dated) <= since
            }),
        };
        let what = || format!("entity tag {:?}", self.fields.get("etag"));
        (!is_right).then(|| wrong("RFC 9110 section 13.1.2", "304 for a client that does not have it", what()))
    }

    fn partial(&self, ask: &Fields, at: i64) -> Option<Finding> {
        let wrong = |what: &str| Some(wrong("RFC 9110 section 14.2", "206 that was not asked for", what));
        if ask.get("range").is_none() || self.case.now.method != "GET" {
            return wrong("there is no Range in the request");
        }
        let condition = ask.get("if-range")?;
        let tag = self.fields.get("etag").and_then(Tag::read);
        let applies = match Tag::read(condition) {
            Some(asked) => tag.is_some_and(|tag| tag.is_strongly(&asked)),
            None => {
                let read = |text: &str| match date::read(text, at) {
                    Read::Valid(when) | Read::Either(when) => Some(when),
                    Read::Invalid => None,
                };
                read(condition).is_some() && read(condition) == self.fields.get("last-modified").and_then(read)
            }
        };
        if applies { None } else { wrong("If-Range does not name what is sent") }
    }

    /// Which bytes of which representation the answer has, by its framing and its content.
    fn places(&self) -> Result<Vec<(Range<u64>, Rep)>, Finding> {
        let (case, body) = (self.case, &self.answer.body);
        let mut reps: Vec<Rep> = Vec::new();
        let mut candidates: Vec<&Exchange> =
            case.exchanges.iter().filter(|exchange| !matches!(exchange.status, 0 | 304)).collect();
        candidates.sort_by_key(|exchange| case.usable(exchange).is_err());
        for exchange in candidates {
            if !reps.contains(&exchange.rep) {
                reps.push(exchange.rep.clone());
            }
        }
        if case.now.method == "HEAD" || matches!(self.answer.status, 204 | 304) {
            return Ok(Vec::new());
        }
        let mut places = Vec::new();
        for (place, length, bytes) in self.parts(body)? {
            let is_it = |rep: &&Rep| {
                let range = place.clone().unwrap_or(0..rep.length);
                let fits = range.end <= rep.length && length.is_none_or(|length| length == rep.length);
                fits && range.end - range.start == bytes.len() as u64 && rep.bytes(case.nonce, range) == bytes
            };
            // The head says which one is likely; an empty one fits several.
            let confirmed = reps.iter().filter(|rep| case.confirms(self.head, rep)).find(is_it);
            let Some(rep) = confirmed.or_else(|| reps.iter().find(is_it)) else {
                return Err(self.strange(&reps, place, bytes));
            };
            places.push((place.unwrap_or(0..rep.length), rep.clone()));
        }
        Ok(places)
    }

    /// Bytes that are of no representation: cut, or mixed.
    fn strange(&self, reps: &[Rep], place: Option<Range<u64>>, bytes: &[u8]) -> Finding {
        let start = place.map_or(0, |place| place.start);
        let is_begin = |rep: &&Rep| {
            let range = start..start + bytes.len() as u64;
            rep.length >= range.end && rep.bytes(self.case.nonce, range) == bytes
        };
        let what = format!("{} bytes from {start}", bytes.len());
        match reps.iter().find(is_begin) {
            Some(rep) => wrong(
                "RFC 9111 section 3.3",
                "a part is given out as a whole, or with another length",
                format!("{what} of {}", rep.length),
            ),
            None => wrong("RFC 9110 section 15.3.7.3", "bytes of no version: mixed, or moved", what),
        }
    }

    /// The parts of a body: place, length of the whole, bytes.
    #[allow(clippy::type_complexity)]
    fn parts<'b>(&self, body: &'b [u8]) -> Result<Vec<(Option<Range<u64>>, Option<u64>, &'b [u8])>, Finding> {
        if self.answer.status != 206 {
            return Ok(vec![(None, None, body)]);
        }
        let malformed = |what: &str| wrong("RFC 9110 section 15.3.7", "a 206 that can't be read", what);
        if let Some(text) = self.fields.get("content-range") {
            let (place, length) = content_range(text).ok_or_else(|| malformed(text))?;
            return Ok(vec![(Some(place), length, body)]);
        }
        let kind = self.fields.get("content-type").unwrap_or_default();
        let boundary = kind.split_once("boundary=").map(|(_, text)| text.trim_matches('"'));
        let boundary = boundary.ok_or_else(|| malformed("neither Content-Range nor a boundary"))?;
        let (mut parts, mut at) = (Vec::new(), 0);
        let line = format!("--{boundary}");
        loop {
            at += find(&body[at..], line.as_bytes()).ok_or_else(|| malformed("no boundary"))? + line.len();
            if body[at..].starts_with(b"--") {
                return Ok(parts);
            }
            let end = find(&body[at..], b"\r\n\r\n").ok_or_else(|| malformed("a part without a head"))?;
            let head = String::from_utf8_lossy(&body[at..at + end]).to_ascii_lowercase();
            let range = head.lines().find_map(|line| line.strip_prefix("content-range: "));
            let (place, length) = range.and_then(content_range).ok_or_else(|| malformed("a part without a place"))?;
            at += end + 4;
            let stop = at + (place.end - place.start) as usize;
            let bytes = body.get(at..stop).ok_or_else(|| malformed("a part that is too short"))?;
            parts.push((Some(place), length, bytes));
            at = stop;
        }
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}
