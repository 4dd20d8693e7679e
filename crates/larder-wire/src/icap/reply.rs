//! Replies of a service, from bytes. As strict as the parser of HTTP: a reply that could be read in two ways is a fault, and the
//! heads within it pass through that parser.

use crate::parse::{self, HeadLimits, Parsed, tokenise};
use crate::{Fault, FaultKind, Fields, RequestHead, ResponseHead};
use std::borrow::Cow;

/// The reply of a service, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 100, 200, 204, or that of a failure (RFC 3507 section 4.3.3).
    pub status: u16,
    /// The fields of the ICAP head.
    pub fields: Fields,
    /// The head of HTTP in it.
    pub subject: Subject,
    /// Whether a body follows, in chunks.
    pub has_body: bool,
}

/// The head of HTTP that a reply encloses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// None: the message is left as it is, or it is no reply to a message.
    None,
    /// The request as it is to go on.
    Request(Box<RequestHead>),
    /// The response as it is to go on, or the answer to a request that does not go on.
    Response(Box<ResponseHead>),
}

/// Reads the reply at the start of `buf`; the length covers the ICAP head and the heads of HTTP in it. The limits hold for each
/// of these heads.
pub fn reply(buf: &[u8], limits: &HeadLimits) -> Result<Parsed<Reply>, Fault> {
    let Some(len) = head_len(buf, limits)? else { return Ok(Parsed::Partial) };
    let head = buf.get(..len).unwrap_or_default();
    let line_len = memchr::memchr(b'\n', head).map_or(len, |at| at + 1);
    let (line, block) = head.split_at(line_len);
    let status = status_of(line)?;
    let block = &*unfolded(block);
    let lines = memchr::memchr_iter(b'\n', block).count().saturating_sub(1);
    if lines > limits.fields_max {
        return Err(Fault::origin(FaultKind::TooManyFields, "more fields than fields_max"));
    }
    let fields = tokenise(block, lines).map_err(|(kind, detail)| Fault::origin(kind, detail))?;
    let parts = Parts::of(&fields)?;
    // An answer to OPTIONS may have a body of its own kind, which no client needs.
    let heads_len = parts.body_at.unwrap_or(0);
    if heads_len > limits.head_bytes_max.saturating_mul(2) {
        return Err(Fault::origin(FaultKind::HeadTooLong, "the heads in the reply are longer than head_bytes_max"));
    }
    let Some(heads) = buf.get(len..len + heads_len) else { return Ok(Parsed::Partial) };
    let subject = parts.subject(heads, limits)?;
    Ok(Parsed::Complete { head: Reply { status, fields, subject, has_body: parts.has_body }, len: len + heads_len })
}

/// The field lines of the ICAP head with each folded line put behind the one before it. Services fold `X-Violations-Found`, as RFC 3507
/// permits with RFC 2616; the heads of HTTP within the reply may not have that.
fn unfolded(block: &[u8]) -> Cow<'_, [u8]> {
    let is_fold = |at: usize| block.get(at..at + 2) == Some(b"\r\n") && matches!(block.get(at + 2), Some(b' ' | b'\t'));
    if !memchr::memchr_iter(b'\r', block).any(is_fold) {
        return Cow::Borrowed(block);
    }
    let mut block_of_lines = block.to_vec();
    for at in memchr::memchr_iter(b'\r', block).filter(|at| is_fold(*at)) {
        for byte in block_of_lines.iter_mut().skip(at).take(2) {
            *byte = b' ';
        }
    }
    Cow::Owned(block_of_lines)
}

/// The length of the ICAP head, if it is whole.
fn head_len(buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Fault> {
    if buf.iter().zip(b"ICAP/1.").any(|(found, wanted)| found != wanted) {
        return Err(Fault::origin(FaultKind::StatusLine, "the reply does not begin with ICAP/1."));
    }
    let window = buf.get(..limits.head_bytes_max).unwrap_or(buf);
    let mut line_at = 0;
    for end in memchr::memchr_iter(b'\n', window) {
        if end == line_at || window.get(end - 1) != Some(&b'\r') {
            return Err(Fault::origin(FaultKind::LineEnd, "a line ends in LF without CR"));
        }
        if end == line_at + 1 {
            return Ok(Some(end + 1));
        }
        line_at = end + 1;
    }
    match window.len() < limits.head_bytes_max {
        true => Ok(None),
        false => Err(Fault::origin(FaultKind::HeadTooLong, "the head of the reply is longer than head_bytes_max")),
    }
}

/// The status in `ICAP/1.0 200 OK`.
fn status_of(line: &[u8]) -> Result<u16, Fault> {
    let digits = match line {
        [b'I', b'C', b'A', b'P', b'/', b'1', b'.', b'0'..=b'9', b' ', a, b, c, b' ' | b'\r', ..] => [*a, *b, *c],
        _ => return Err(Fault::origin(FaultKind::StatusLine, "the line is not `ICAP/1.0 status reason`")),
    };
    if digits[0] == b'0' || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::origin(FaultKind::StatusLine, "the status is not a number from 100 to 999"));
    }
    Ok(digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
}

/// The parts that `Encapsulated` names (section 4.4.1). A request's head beside a response's is not needed, and is passed over.
#[derive(Default)]
struct Parts {
    request_at: Option<usize>,
    response_at: Option<usize>,
    body_at: Option<usize>,
    has_body: bool,
}

impl Parts {
    fn of(fields: &Fields) -> Result<Parts, Fault> {
        let refuse = |detail| Err(Fault::origin(FaultKind::FieldLine, detail));
        let mut parts = Parts::default();
        if fields.count("Encapsulated") > 1 {
            return refuse("two Encapsulated fields");
        }
        let mut before = None;
        for member in fields.members("Encapsulated") {
            let Some((name, offset)) = std::str::from_utf8(member).ok().and_then(|it| it.split_once('=')) else {
                return refuse("an entry of Encapsulated is not `name=offset`");
            };
            let offset = match offset.trim() {
                digits if digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
                _ => None,
            };
            let Some(offset) = offset else { return refuse("an offset of Encapsulated is no number") };
            if parts.body_at.is_some() {
                return refuse("a part of Encapsulated stands behind the body");
            }
            if before.map_or(offset != 0, |before| offset <= before) {
                return refuse("the offsets of Encapsulated do not begin at 0 and ascend");
            }
            before = Some(offset);
            match name.trim() {
                "req-hdr" if parts.request_at.is_none() && parts.response_at.is_none() => {
                    parts.request_at = Some(offset);
                }
                "res-hdr" if parts.response_at.is_none() => parts.response_at = Some(offset),
                "req-body" | "res-body" | "opt-body" => (parts.body_at, parts.has_body) = (Some(offset), true),
                "null-body" => parts.body_at = Some(offset),
                _ => return refuse("a part of Encapsulated is unknown, doubled or not in order"),
            }
        }
        match (before.is_some(), parts.body_at) {
            (true, None) => refuse("Encapsulated names no body, not even a null-body"),
            _ => Ok(parts),
        }
    }

    fn subject(&self, heads: &[u8], limits: &HeadLimits) -> Result<Subject, Fault> {
        let part = |at: usize, to: Option<usize>| heads.get(at..to.unwrap_or(heads.len())).unwrap_or_default();
        let whole = |len: usize, part: &[u8]| match len == part.len() {
            true => Ok(()),
            false => {
                Err(Fault::origin(FaultKind::FieldLine, "a head in the reply ends where Encapsulated does not say"))
            }
        };
        let short = || Fault::origin(FaultKind::Truncated, "a head in the reply is not whole");
        if let Some(at) = self.response_at {
            let part = part(at, None);
            let Parsed::Complete { head, len } = parse::response(part, limits)? else { return Err(short()) };
            whole(len, part)?;
            return Ok(Subject::Response(Box::new(head)));
        }
        let Some(at) = self.request_at else { return Ok(Subject::None) };
        let part = part(at, None);
        // The fault is that of the service, not of the client.
        let parsed = parse::request(part, limits).map_err(|fault| Fault::origin(fault.kind, fault.detail))?;
        let Parsed::Complete { head, len } = parsed else { return Err(short()) };
        whole(len, part)?;
        Ok(Subject::Request(Box::new(head)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 512, target_bytes_max: 128, fields_max: 8 };

    fn in_words(text: &str) -> String {
        match reply(text.as_bytes(), &LIMITS) {
            Ok(Parsed::Partial) => "partial".to_owned(),
            Err(fault) => format!("{} {}", fault.side.as_str(), fault.kind.as_str()),
            Ok(Parsed::Complete { head: reply, len }) => {
                let subject = match &reply.subject {
                    Subject::None => "nothing".to_owned(),
                    Subject::Request(head) => format!("{} {:?}", head.method, head.target),
                    Subject::Response(head) => head.status.to_string(),
                };
                let body = if reply.has_body { ", body" } else { "" };
                format!("{}: {subject}{body}, {} left", reply.status, text.len() - len)
            }
        }
    }

    #[test]
    fn replies() {
        let response = "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\n";
        let at = response.len();
        for (text, wanted) in [
            ("ICAP/1.0 204 No Content\r\nISTag: \"a\"\r\n\r\n".to_owned(), "204: nothing, 0 left"),
            ("ICAP/1.0 204 Unmodified\r\nEncapsulated: null-body=0\r\n\r\nICAP".to_owned(), "204: nothing, 4 left"),
            ("ICAP/1.0 100 Continue\r\n\r\n".to_owned(), "100: nothing, 0 left"),
            ("ICAP/1.0 204\r\n\r\n".to_owned(), "204: nothing, 0 left"),
            (
                format!("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, res-body={at}\r\n\r\n{response}3\r\nno!\r\n"),
                "200: 403, body, 8 left",
            ),
            (format!("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body={at}\r\n\r\n{response}"), "200: 403, 0 left"),
            (
                "ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, null-body=40\r\n\r\nGET http://a/b HTTP/1.1\r\nHost: a.bc\r\n\r\n"
                    .to_owned(),
                "partial",
            ),
            (
                "ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, null-body=38\r\n\r\nGET http://a/ HTTP/1.1\r\nHost: a.b\r\n\r\nX"
                    .to_owned(),
                "origin field-line",
            ),
            ("ICAP/1.0 200 OK\r\nEncapsulated: req-hdr=0, null-body=10\r\n\r\nGET / HTTP".to_owned(), "origin truncated"),
            ("ICAP/1.0 200 OK\r\n".to_owned(), "partial"),
            ("ICAP/1.0 204 No\r\nX-Violations-Found: 1\r\n\t-\r\n Eicar\r\n\r\n".to_owned(), "204: nothing, 0 left"),
            ("ICAP/1.0 204 No\r\n X-Violations-Found: 1\r\n\r\n".to_owned(), "origin field-line"),
            ("IC".to_owned(), "partial"),
            (String::new(), "partial"),
            ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), "origin status-line"),
            ("ICAP/1.0 20 OK\r\n\r\n".to_owned(), "origin status-line"),
            ("ICAP/1.0 099 OK\r\n\r\n".to_owned(), "origin status-line"),
            ("ICAP/1.0 200 OK\nISTag: a\r\n\r\n".to_owned(), "origin line-end"),
            ("ICAP/1.0 200 OK\r\nno colon\r\n\r\n".to_owned(), "origin field-line"),
            ("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=5, null-body=9\r\n\r\n".to_owned(), "origin field-line"),
            ("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0\r\n\r\n".to_owned(), "origin field-line"),
            ("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, res-body=0\r\n\r\n".to_owned(), "origin field-line"),
            ("ICAP/1.0 200 OK\r\nEncapsulated: null-body=0, res-hdr=9\r\n\r\n".to_owned(), "origin field-line"),
            ("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body=-1\r\n\r\n".to_owned(), "origin field-line"),
            ("ICAP/1.0 200 OK\r\nEncapsulated: some-hdr=0, null-body=1\r\n\r\n".to_owned(), "origin field-line"),
            (
                "ICAP/1.0 200 OK\r\nEncapsulated: null-body=0\r\nEncapsulated: null-body=0\r\n\r\n".to_owned(),
                "origin field-line",
            ),
            ("ICAP/1.0 200 OK\r\nEncapsulated: res-hdr=0, null-body=99999\r\n\r\n".to_owned(), "origin head-too-long"),
            (format!("ICAP/1.0 200 {}", "x".repeat(600)), "origin head-too-long"),
            (format!("ICAP/1.0 200 OK\r\n{}\r\n", "A: b\r\n".repeat(9)), "origin too-many-fields"),
        ] {
            assert_eq!(in_words(&text), wanted, "{text:?}");
        }
    }

    /// A reply in pieces is the same reply: nothing is found out too early.
    #[test]
    fn a_part_of_a_reply_is_partial() {
        let request = "POST http://www.example/a HTTP/1.1\r\nHost: www.example\r\n\r\n";
        let response = "HTTP/1.1 200 OK\r\n\r\n";
        let (at, end) = (request.len(), request.len() + response.len());
        let both = format!(
            "ICAP/1.0 200 OK\r\nISTag: \"1\"\r\nEncapsulated: req-hdr=0, res-hdr={at}, res-body={end}\r\n\r\n{request}{response}"
        );
        let alone =
            format!("ICAP/1.0 200 OK\r\nISTag: \"1\"\r\nEncapsulated: req-hdr=0, req-body={at}\r\n\r\n{request}");
        for (text, wanted) in [(both, "200: 200, body, 0 left"), (alone, "200: POST ")] {
            for len in 0..text.len() {
                assert_eq!(in_words(&text[..len]), "partial", "{len} of {text:?}");
            }
            assert!(in_words(&text).starts_with(wanted), "{text:?}");
        }
    }
}
