//! Values to bytes. Everything is appended to a buffer that the caller writes in one go.
//!
//! Nothing here can be made to end a line early: field values are clean by construction ([`Fields::push`]), a
//! target's control bytes are percent-encoded, a reason phrase's become spaces.

use crate::{Fields, Method, ResponseHead, Version};
use std::net::IpAddr;

pub use crate::decimal::{Decimal, decimal};

/// The line end after the content of each chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// A request head. `target` is written as it is given: origin form to an origin, absolute form to a proxy.
pub fn request_head(out: &mut Vec<u8>, method: &Method, target: &str, version: Version, fields: &Fields) {
    out.reserve(method.as_str().len() + target.len() + fields.wire_len() + 16);
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    push_target(out, target);
    out.push(b' ');
    out.extend_from_slice(version.as_str().as_bytes());
    out.extend_from_slice(b"\r\n");
    fields.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// A status line, always as HTTP/1.1: the version is ours, not that of the peer whose answer is passed on
/// (RFC 9110 section 2.5).
pub fn status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    debug_assert!((100..=999).contains(&status), "status {status}");
    if (status, reason) == (200, "OK") {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    let digit = |value: u16| b'0' + (value % 10) as u8;
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    let is_bad = |byte: u8| byte != b'\t' && byte.is_ascii_control();
    match reason.bytes().any(is_bad) {
        false => out.extend_from_slice(reason.as_bytes()),
        true => out.extend(reason.bytes().map(|byte| if is_bad(byte) { b' ' } else { byte })),
    }
    out.extend_from_slice(b"\r\n");
}

/// A response head with the empty line that ends it.
pub fn response_head(out: &mut Vec<u8>, head: &ResponseHead) {
    out.reserve(head.reason.len() + head.fields.wire_len() + 17);
    status_line(out, head.status, &head.reason);
    head.fields.write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends an address as the standard library shows it. Nearly all are of version 4, for which its formatting costs more
/// than the digits.
pub fn address(out: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else { return out.extend_from_slice(address.to_string().as_bytes()) };
    let mut text = [b'.'; "255.255.255.255".len()];
    let mut len = 0;
    for (at, part) in address.octets().into_iter().enumerate() {
        len += usize::from(at > 0);
        let digits = [part / 100, part / 10 % 10, part % 10];
        let zeros = if part >= 100 { 0 } else { 1 + usize::from(part < 10) };
        for digit in &digits[zeros..] {
            text[len] = b'0' + digit;
            len += 1;
        }
    }
    out.extend_from_slice(&text[..len]);
}

/// The line before `len` bytes of content; [`CHUNK_END`] comes after them. `len` must not be 0, which
/// would be the end of the body.
pub fn chunk_head(out: &mut Vec<u8>, len: usize) {
    debug_assert!(len > 0, "an empty chunk ends the body");
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[len >> (4 * place) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// The end of a chunked body.
pub fn last_chunk(out: &mut Vec<u8>, trailers: &Fields) {
    out.extend_from_slice(b"0\r\n");
    trailers.write_to(out);
    out.extend_from_slice(b"\r\n");
}

fn push_target(out: &mut Vec<u8>, target: &str) {
    for byte in target.bytes() {
        if matches!(byte, 0x21..=0x7e) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789ABCDEF"[usize::from(value & 15)]
}
