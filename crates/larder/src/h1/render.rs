//! Heads of answers as HTTP/1.1 writes them (RFC 9112).

use crate::exchange::stream::{AnswerBody, AnswerFields, AnswerHead, CacheStatus, Dynamic};
use crate::record::{Id, Outcome};
use larder_wire::date::format_date;
use larder_wire::{Version, encode, head};
use std::io::Write as _;

/// How the body of an answer is framed (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed {
    /// The answer has no body.
    NoBody,
    /// By `Content-Length`.
    ByLength,
    /// In chunks.
    Chunked,
    /// By the end of the connection: for HTTP/1.0.
    UntilClose,
}

/// How a connection goes on after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It serves another request.
    Continue,
    /// It is closed once the answer is written.
    Close,
    /// It is cut, so that the client sees that the answer is incomplete.
    Cut,
}

/// The facts of the connection that decide about framing fields and `Connection`.
#[derive(Clone, Copy, Debug)]
pub struct AnswerFrame<'a> {
    /// The version of the request.
    pub version: Version,
    /// How the body is framed.
    pub framed: Framed,
    /// How the connection goes on.
    pub next: Next,
    /// The line that tells the client of HTTP/3, where it is served beside (RFC 7838).
    pub alt_svc: Option<&'a str>,
}

/// Room for most pages, head and body.
const PAGE_BYTES: usize = 2_048;

/// Appends the head of an answer. `answered_by` has the lines `Via` and the beginning of `Cache-Status`, for a response that
/// came in HTTP/1.0 and in HTTP/1.1.
#[inline]
pub fn answer_head(out: &mut Vec<u8>, answer: &AnswerHead<'_>, frame: AnswerFrame<'_>, answered_by: &[String; 2]) {
    if let AnswerFields::Page(_) = answer.fields {
        out.reserve(PAGE_BYTES);
    }
    encode::status_line(out, answer.status, reason(answer));
    match answer.fields {
        AnswerFields::Response(head) => head.fields.write_to(out),
        AnswerFields::Own(fields) => fields.write_to(out),
        AnswerFields::Page(page) => page.each_field(|name, value| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }),
    }
    match answer.body {
        AnswerBody::Known(length) | AnswerBody::None(Some(length)) => number(out, b"Content-Length: ", length),
        AnswerBody::None(None) => {}
        AnswerBody::Unknown if frame.framed == Framed::Chunked => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        AnswerBody::Unknown => {}
    }
    match &answer.dynamic {
        Dynamic::Response { age, received, status, name } => {
            if let Some(age) = age {
                number(out, b"Age: ", *age);
            }
            let by = match received {
                Version::Http10 => &answered_by[0],
                Version::Http11 | Version::Http2 | Version::Http3 => &answered_by[1],
            };
            out.extend_from_slice(by.as_bytes());
            cache_status(out, status);
            request_name(out, *name);
        }
        Dynamic::Page { now, word, name } => {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(&format_date(*now));
            out.extend_from_slice(b"\r\nCache-Status: larder; detail=");
            out.extend_from_slice(word.as_bytes());
            out.extend_from_slice(b"\r\n");
            request_name(out, *name);
        }
    }
    if let Some(line) = frame.alt_svc {
        out.extend_from_slice(line.as_bytes());
    }
    // The state of the connection, where the version does not say it (RFC 9112 section 9.3).
    match (frame.next, frame.version) {
        (Next::Continue, Version::Http11 | Version::Http2 | Version::Http3) => {}
        (Next::Continue, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        _ => out.extend_from_slice(b"Connection: close\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

fn reason<'a>(answer: &'a AnswerHead<'_>) -> &'a str {
    match answer.fields {
        AnswerFields::Response(head) if head.status == answer.status => &head.reason,
        _ => head::reason(answer.status),
    }
}

/// The rest of `Cache-Status` (RFC 9211): what this cache did, in the words of the record.
fn cache_status(out: &mut Vec<u8>, status: &CacheStatus<'_>) {
    let CacheStatus { outcome, stored, ttl } = status;
    match outcome {
        Outcome::Hit | Outcome::HitStale | Outcome::HitRevalidating => out.extend_from_slice(b"; hit"),
        Outcome::HitError => out.extend_from_slice(b"; hit; detail=stale-if-error"),
        Outcome::Validated => out.extend_from_slice(b"; fwd=stale; fwd-status=304"),
        Outcome::Collapsed => out.extend_from_slice(b"; fwd=uri-miss; collapsed"),
        Outcome::Miss(cause) => {
            out.extend_from_slice(b"; fwd=");
            out.extend_from_slice(cause.forward_reason().as_bytes());
            out.extend_from_slice(b"; fwd-status=");
            encode::decimal(out, stored.head.status.into());
            if stored.terms.is_some() {
                out.extend_from_slice(b"; stored");
            }
            // The detail says what `fwd` does not: why the response was not stored, or else the cause.
            let detail = stored.not_stored().map(|why| why.as_str()).unwrap_or(cause.as_str());
            if detail != cause.forward_reason() {
                out.extend_from_slice(b"; detail=");
                out.extend_from_slice(detail.as_bytes());
            }
        }
        other => {
            let _ = write!(out, "; detail={}", other.as_str());
        }
    }
    if let Some(ttl) = ttl {
        out.extend_from_slice(b"; ttl=");
        if *ttl < 0 {
            out.push(b'-');
        }
        encode::decimal(out, ttl.unsigned_abs());
    }
    out.extend_from_slice(b"\r\n");
}

fn request_name(out: &mut Vec<u8>, name: Option<Id>) {
    if let Some(name) = name {
        out.extend_from_slice(b"Larder-Request: ");
        name.write_to(out);
        out.extend_from_slice(b"\r\n");
    }
}

fn number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    out.extend_from_slice(name);
    encode::decimal(out, value);
    out.extend_from_slice(b"\r\n");
}
