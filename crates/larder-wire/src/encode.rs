//! Values to bytes. Everything is appended to a buffer that the caller writes in one go.
//!
//! Nothing here can be made to end a line early: field values are clean by construction ([`Fields::push`]), a
//! target's control bytes are percent-encoded, a reason phrase's become spaces.

use crate::{Fields, Method, ResponseHead, Version};
use std::net::IpAddr;

/// What stands after the content of each chunk.
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

/// A number in decimal digits. Heads and log lines have several each, and the formatting of the standard library costs
/// each of them more than its digits.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; 20],
    first: usize,
}

impl Decimal {
    /// The digits of a number.
    pub fn of(mut value: u64) -> Decimal {
        let mut decimal = Decimal { digits: [b'0'; 20], first: 20 };
        // Two at a time: the division is what takes the time.
        while value >= 10 {
            decimal.first -= 2;
            let pair = PAIRS[(value % 100) as usize];
            decimal.digits[decimal.first..decimal.first + 2].copy_from_slice(&pair);
            value /= 100;
        }
        if value > 0 || decimal.first == 20 {
            decimal.first -= 1;
            decimal.digits[decimal.first] = b'0' + value as u8;
        }
        decimal
    }

    /// They are ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.first..]
    }

    /// Appends them to a text.
    pub fn push_to(&self, out: &mut String) {
        self.as_bytes().iter().for_each(|&digit| out.push(char::from(digit)));
    }
}

/// All numbers of two digits.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Appends a number in decimal digits. Most are short: a status, an age, a part of an address.
pub fn decimal(out: &mut Vec<u8>, value: u64) {
    match u32::try_from(value) {
        Ok(value @ 0..100_000_000) => {
            let (digits, len) = up_to_eight(value);
            // A copy of a known length is an instruction, any other a call.
            out.extend_from_slice(&digits);
            out.truncate(out.len() - digits.len() + len);
        }
        _ => many_digits(out, value),
    }
}

#[cold]
fn many_digits(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(Decimal::of(value).as_bytes());
}

/// The digits of a number below 100,000,000, and how many they are.
fn up_to_eight(mut value: u32) -> ([u8; 8], usize) {
    let (mut digits, mut len) = (0, 0);
    while value >= 10 {
        digits = digits << 16 | u64::from(u16::from_le_bytes(PAIRS[(value % 100) as usize]));
        value /= 100;
        len += 2;
    }
    if value > 0 || len == 0 {
        digits = digits << 8 | u64::from(b'0' + value as u8);
        len += 1;
    }
    (digits.to_le_bytes(), len)
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
