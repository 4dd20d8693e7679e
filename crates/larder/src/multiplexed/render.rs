//! Heads of answers as HTTP/2 and HTTP/3 write them (RFC 9113 section 8.3.2, RFC 9114 section 4.3.2): the lines that HTTP/1.1 would send,
//! as a field block. The encoder of fields is that of the version.

use crate::coded_heads::CodedHeads;
use crate::exchange::stream::AnswerHead;
use crate::h1::render::{self, AnswerFrame, Framed, Next};
use larder_wire::h2::hpack::LINE_OVERHEAD_BYTES;
use larder_wire::{ResponseHead, Version};

/// Appends the field block of an answer's head; gives the size of its list. `text` is a buffer for the head as HTTP/1.1 writes it, which
/// has all lines but those that are about a connection; `write` appends a field by name, value, and whether it is to be kept out of tables.
pub fn answer_head(
    out: &mut Vec<u8>,
    write: impl Fn(&mut Vec<u8>, &[u8], &[u8], bool) + Copy,
    answer: &AnswerHead<'_>,
    (text, coded): (&mut Vec<u8>, &mut CodedHeads),
    answered_by: &[String; 2],
    alt_svc: Option<&str>,
) -> u64 {
    text.clear();
    let frame = AnswerFrame { version: Version::Http11, framed: Framed::NoBody, next: Next::Continue, alt_svc };
    render::answer_head(text, answer, frame, answered_by);
    coded.write(out, text, |out| {
        let mut list_bytes = status(out, write, answer.status);
        let mut rest = &text[..];
        let mut is_status_line = true;
        while let Some(end) = memchr::memchr(b'\r', rest) {
            let (line, behind) = rest.split_at(end);
            rest = behind.get(2..).unwrap_or_default();
            if !std::mem::take(&mut is_status_line)
                && let Some(colon) = memchr::memchr(b':', line)
            {
                list_bytes += field(out, write, &line[..colon], line[colon + 1..].trim_ascii());
            }
        }
        list_bytes
    })
}

/// Appends the field block of an interim head; gives the size of its list.
pub fn interim_head(
    out: &mut Vec<u8>,
    write: impl Fn(&mut Vec<u8>, &[u8], &[u8], bool) + Copy,
    head: &ResponseHead,
) -> u64 {
    let begins = status(out, write, head.status);
    head.fields.iter().fold(begins, |bytes, (name, value)| bytes + field(out, write, name.as_bytes(), value))
}

/// Appends `:status` alone, as of a tunnel that opens; gives the size of its line.
pub fn status(out: &mut Vec<u8>, write: impl Fn(&mut Vec<u8>, &[u8], &[u8], bool), status: u16) -> u64 {
    let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
    write(out, b":status", &digits, false);
    line_bytes(b":status", &digits)
}

/// The size of a line as limits of a list count it (RFC 9113 section 6.5.2, RFC 9114 section 4.2.2).
fn line_bytes(name: &[u8], value: &[u8]) -> u64 {
    (name.len() + value.len() + LINE_OVERHEAD_BYTES) as u64
}

/// Fields that no message of these versions has (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
const OF_CONNECTION: [&[u8]; 5] = [b"connection", b"transfer-encoding", b"keep-alive", b"proxy-connection", b"upgrade"];

/// Appends a field, unless it is about a connection; gives the size of its line.
pub fn field(out: &mut Vec<u8>, write: impl Fn(&mut Vec<u8>, &[u8], &[u8], bool), name: &[u8], value: &[u8]) -> u64 {
    if OF_CONNECTION.iter().any(|other| name.eq_ignore_ascii_case(other)) {
        return 0;
    }
    write(out, name, value, name.eq_ignore_ascii_case(b"set-cookie"));
    line_bytes(name, value)
}
