//! Field lists of HTTP/2 as messages of HTTP/1.1 (RFC 9113 section 8.2): the checks that come before a list is written down as a head
//! and read by the parser of [`parse`](crate::parse), so that one judge decides about all versions. They are about bytes that would mean
//! something else to a reader of HTTP/1.1, and about fields that only a connection of HTTP/1.1 has.

use crate::body::{Decoded, Decoder, Event};
use crate::fields::is_token;
use crate::framing::Framing;
use crate::h2::hpack::FieldList;
use crate::{Fault, FaultKind, Fields, Side};

/// A value that would end a line, or that a reader of HTTP/1.1 would shorten (RFC 9113 section 8.2.1), is refused with the reason.
pub fn check_value(value: &[u8]) -> Result<(), &'static str> {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_blank(value.first()) || is_blank(value.last()) || value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err("a value with CR, LF or NUL, or with blanks around it");
    }
    Ok(())
}

/// A name that is no token in lower case, and a field that is about a connection (RFC 9113 section 8.2), are refused with the reason.
pub fn check_field(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    if !is_token(name) || name.iter().any(u8::is_ascii_uppercase) {
        return Err("a name that is no token in lower case");
    }
    match name {
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
            Err("a field that is about a connection")
        }
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => Err("a TE other than trailers"),
        _ => Ok(()),
    }
}

/// Appends a field line of HTTP/1.1.
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The trailer fields that a list makes, read as those behind the last chunk of HTTP/1.1 are.
pub fn trailers(list: &FieldList, side: Side) -> Result<Fields, Fault> {
    let fault = |detail| Fault { side, kind: FaultKind::Trailer, detail };
    if list.is_too_long() {
        return Err(fault("trailer fields longer than head_bytes_max"));
    }
    let mut text = b"0\r\n".to_vec();
    for (name, value) in list.iter() {
        check_value(value).map_err(fault)?;
        // A pseudo-field is no token, for its colon.
        check_field(name, value).map_err(fault)?;
        write_line(&mut text, name, value);
    }
    text.extend_from_slice(b"\r\n");
    let mut decoder = Decoder::new(Framing::Chunked, side);
    match decoder.decode(&text)? {
        Decoded { event: Event::End(trailers), consumed } if consumed == text.len() => Ok(trailers),
        _ => Err(fault("trailer fields that end elsewhere than they say")),
    }
}
