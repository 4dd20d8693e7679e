//! Decoding a body: bytes as they come from the connection in, ranges of content and trailers out.
//!
//! The decoder copies no content: an event names a range of the bytes it was given. It takes nothing that lies
//! behind the end of the message, so what is left belongs to the next one. How the bytes were cut
//! into pieces does not change the content, the trailers or the fault.

use std::ops::Range;

use crate::framing::Framing;
use crate::parse::tokenise;
use crate::{Fault, FaultKind, Fields, Side};

/// Decodes the body of one message.
///
/// Call [`Decoder::decode`] with what has been read, drop [`Decoded::consumed`] bytes, and go on until
/// [`Event::NeedMore`] (read more) or [`Event::End`]. When the peer closes, call [`Decoder::finish`].
#[derive(Clone, Debug)]
pub struct Decoder {
    framing: Framing,
    side: Side,
    state: State,
    extension_bytes_left: u64,
    /// Field lines of the trailer section as received, until it is complete.
    trailer: Vec<u8>,
    trailer_lines: usize,
}

/// The result of one call: how far it came, and what it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the input that are dealt with, also when more are needed: do not give them again.
    pub consumed: usize,
    /// The event that those bytes amount to.
    pub event: Event,
}

/// A piece of a decoded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing yet; call again with the bytes that come next.
    NeedMore,
    /// Content, as a range of the input that lies within the consumed bytes; never empty.
    Data(Range<usize>),
    /// The message is over; with its trailer fields, if any, each of which is safe to pass on. Later calls
    /// give an end without trailers.
    End(Fields),
}

/// Bytes of chunk extensions that may come before any content. Each byte of content earns one more, up
/// to this many: a chunked body cannot cost much more than twice its content.
pub const EXTENSION_BYTES_MAX: u64 = 4 * 1024;
/// Bytes of a trailer section.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;
/// Field lines of a trailer section.
pub const TRAILER_FIELDS_MAX: usize = 32;

/// Sixteen hexadecimal digits just fit a `u64`.
const SIZE_DIGITS_MAX: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Of a body with a length: bytes still to come. 0 is the end.
    Length(u64),
    UntilClose,
    /// In the digits of a chunk size.
    Size {
        size: u64,
        digits: u8,
    },
    /// In a chunk extension, from its semicolon to its CR.
    Extension {
        size: u64,
    },
    /// Between CR and LF after a chunk size.
    SizeLf {
        size: u64,
    },
    /// In the content of a chunk: bytes still to come.
    Data(u64),
    DataCr,
    DataLf,
    Trailer,
    Done,
    Broken(FaultKind, &'static str),
}

impl Decoder {
    /// For a body framed like this, sent by that side.
    pub fn new(framing: Framing, side: Side) -> Decoder {
        let state = match framing {
            Framing::None => State::Done,
            Framing::Length(left) => State::Length(left),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        let extension_bytes_left = EXTENSION_BYTES_MAX;
        Decoder { framing, side, state, extension_bytes_left, trailer: Vec::new(), trailer_lines: 0 }
    }

    /// Deals with the next bytes of the body. A fault stays: later calls repeat it.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        match self.state {
            State::Done | State::Length(0) => Ok(Decoded { consumed: 0, event: Event::End(Fields::new()) }),
            State::Broken(kind, detail) => Err(Fault { side: self.side, kind, detail }),
            _ if input.is_empty() => Ok(Decoded { consumed: 0, event: Event::NeedMore }),
            State::UntilClose => Ok(data(0..input.len())),
            State::Length(left) => {
                let taken = at_most(input.len(), left);
                self.state = State::Length(left - taken as u64);
                Ok(data(0..taken))
            }
            _ => self.chunked(input),
        }
    }

    /// The peer has closed: the regular end of a body that lasts until then, otherwise a truncation.
    pub fn finish(&mut self) -> Result<(), Fault> {
        match self.state {
            State::UntilClose => self.state = State::Done,
            State::Broken(kind, detail) => return Err(Fault { side: self.side, kind, detail }),
            _ if self.is_done() => {}
            _ => return Err(self.broken(FaultKind::Truncated, "the connection was closed inside the body")),
        }
        Ok(())
    }

    /// True when every byte of the body has been consumed. The end of a body without trailers may be seen
    /// here before [`Event::End`] is asked for.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done | State::Length(0))
    }

    /// The framing that this decoder was made for.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// How many bytes are still to come, where the framing says.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(left) => Some(left),
            _ => None,
        }
    }

    fn chunked(&mut self, input: &[u8]) -> Result<Decoded, Fault> {
        let mut at = 0;
        while let Some(&byte) = input.get(at) {
            match self.state {
                State::Data(left) => {
                    let taken = at_most(input.len() - at, left);
                    self.took_content(left, taken);
                    return Ok(data(at..at + taken));
                }
                State::Trailer => return self.trailer(input, at),
                state => match self.after(state, byte) {
                    Ok(next) => self.state = next,
                    Err(detail) => return Err(self.broken(FaultKind::Chunk, detail)),
                },
            }
            at += 1;
        }
        Ok(Decoded { consumed: at, event: Event::NeedMore })
    }

    /// One byte of what stands around the chunks (RFC 9112 section 7.1). White space, signs and `0x` have no
    /// place there, and what an extension says is dropped.
    fn after(&mut self, state: State, byte: u8) -> Result<State, &'static str> {
        match (state, byte) {
            (State::Size { digits: 0, .. }, b'\r' | b';') => Err("a chunk without a size"),
            (State::Size { size, .. }, b'\r') => Ok(State::SizeLf { size }),
            (State::Size { size, .. }, b';') => self.in_extension(size),
            (State::Size { size, digits }, _) => match char::from(byte).to_digit(16) {
                None => Err("a chunk size with a byte that is no hexadecimal digit"),
                Some(_) if digits == SIZE_DIGITS_MAX => Err("a chunk size of more than 16 digits"),
                Some(digit) => Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }),
            },
            (State::Extension { size }, b'\r') => Ok(State::SizeLf { size }),
            (State::Extension { .. }, 0..=8 | 10..=31 | 127) => Err("a control byte in a chunk extension"),
            (State::Extension { size }, _) => self.in_extension(size),
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::Trailer),
            (State::SizeLf { size }, b'\n') => Ok(State::Data(size)),
            (State::SizeLf { .. }, _) => Err("CR without LF after a chunk size"),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { size: 0, digits: 0 }),
            _ => Err("a chunk is longer than its size says"),
        }
    }

    fn in_extension(&mut self, size: u64) -> Result<State, &'static str> {
        self.extension_bytes_left =
            self.extension_bytes_left.checked_sub(1).ok_or("chunk extensions of more than 4 KiB")?;
        Ok(State::Extension { size })
    }

    fn took_content(&mut self, left: u64, taken: usize) {
        let earned = self.extension_bytes_left.saturating_add(taken as u64);
        self.extension_bytes_left = earned.min(EXTENSION_BYTES_MAX);
        self.state = match left - taken as u64 {
            0 => State::DataCr,
            left => State::Data(left),
        };
    }

    /// Collects the lines of the trailer section until its empty one.
    fn trailer(&mut self, input: &[u8], mut at: usize) -> Result<Decoded, Fault> {
        loop {
            let rest = &input[at..];
            let line_end = memchr::memchr(b'\n', rest).map(|lf| lf + 1);
            let piece = &rest[..line_end.unwrap_or(rest.len())];
            at += piece.len();
            if self.trailer.len() + piece.len() > TRAILER_BYTES_MAX {
                return Err(self.broken(FaultKind::Trailer, "trailers of more than 8 KiB"));
            }
            self.trailer.extend_from_slice(piece);
            if line_end.is_none() {
                return Ok(Decoded { consumed: at, event: Event::NeedMore });
            }
            if !self.trailer.ends_with(b"\r\n") {
                return Err(self.broken(FaultKind::Trailer, "a trailer line ends in LF without CR"));
            }
            if self.trailer == b"\r\n" || self.trailer.ends_with(b"\r\n\r\n") {
                return self.end(at);
            }
            self.trailer_lines += 1;
            if self.trailer_lines > TRAILER_FIELDS_MAX {
                return Err(self.broken(FaultKind::Trailer, "more than 32 trailer fields"));
            }
        }
    }

    fn end(&mut self, consumed: usize) -> Result<Decoded, Fault> {
        let block = std::mem::take(&mut self.trailer);
        let mut trailers = match tokenise(&block, self.trailer_lines) {
            Ok(fields) => fields,
            Err((_, detail)) => return Err(self.broken(FaultKind::Trailer, detail)),
        };
        trailers.retain(|name, _| may_be_trailer(name));
        self.state = State::Done;
        Ok(Decoded { consumed, event: Event::End(trailers) })
    }

    fn broken(&mut self, kind: FaultKind, detail: &'static str) -> Fault {
        self.state = State::Broken(kind, detail);
        Fault { side: self.side, kind, detail }
    }
}

/// False for a field that must be known before the body: framing, routing, authentication, how to process
/// the content, how to cache it (RFC 9110 section 6.5.1). A receiver that merged such a trailer into the head
/// would act on what nobody checked, so they are dropped.
pub fn may_be_trailer(name: &str) -> bool {
    const HEAD_ONLY: [&str; 44] = [
        "Accept-Ranges",
        "Age",
        "Authorization",
        "Cache-Control",
        "CDN-Cache-Control",
        "Clear-Site-Data",
        "Connection",
        "Content-Encoding",
        "Content-Length",
        "Content-Location",
        "Content-Range",
        "Content-Type",
        "Cookie",
        "Date",
        "Expect",
        "Expires",
        "Host",
        "If-Match",
        "If-Modified-Since",
        "If-None-Match",
        "If-Range",
        "If-Unmodified-Since",
        "Keep-Alive",
        "Location",
        "Max-Forwards",
        "Pragma",
        "Proxy-Authenticate",
        "Proxy-Authentication-Info",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Range",
        "Retry-After",
        "Set-Cookie",
        "Strict-Transport-Security",
        "Surrogate-Control",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Vary",
        "Via",
        "Warning",
        "WWW-Authenticate",
        "X-Forwarded-For",
    ];
    !HEAD_ONLY.iter().any(|other| other.eq_ignore_ascii_case(name))
}

fn data(range: Range<usize>) -> Decoded {
    Decoded { consumed: range.end, event: Event::Data(range) }
}

/// The smaller one, which fits the type of the first.
fn at_most(available: usize, left: u64) -> usize {
    usize::try_from(left).map_or(available, |left| left.min(available))
}
