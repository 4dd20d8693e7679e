//! Several parts of a body in one answer (RFC 9110 section 14.6), any piece of which can be written alone.

use crate::object::Body;
use larder_wire::range::ContentRange;
use std::ops::Range;

/// A body of `multipart/byteranges`.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    body: Body,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(Vec<u8>),
    Bytes(Range<u64>),
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Bytes(range) => range.end - range.start,
        }
    }
}

impl Parts {
    /// These parts of a body, each with its media type.
    pub fn of(body: Body, ranges: &[Range<u64>], media: &str, boundary: &str) -> Self {
        let mut pieces = Vec::with_capacity(2 * ranges.len() + 1);
        for (number, range) in ranges.iter().enumerate() {
            let begin = if number == 0 { "" } else { "\r\n" };
            let place = ContentRange::of(range, Some(body.size));
            let head = format!("{begin}--{boundary}\r\nContent-Type: {media}\r\nContent-Range: {place}\r\n\r\n");
            pieces.extend([Piece::Text(head.into_bytes()), Piece::Bytes(range.clone())]);
        }
        pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into_bytes()));
        Self { body, pieces }
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// Writes the bytes from `at` on into the whole of `out`.
    pub fn fill(&self, mut at: u64, mut out: &mut [u8]) {
        for piece in &self.pieces {
            let len = piece.len();
            if at >= len {
                at -= len;
                continue;
            }
            let room = usize::try_from(len - at).map_or(out.len(), |left| left.min(out.len()));
            let (now, later) = out.split_at_mut(room);
            match piece {
                Piece::Text(text) => now.copy_from_slice(&text[at as usize..at as usize + room]),
                Piece::Bytes(range) => self.body.fill(range.start + at, now),
            }
            (out, at) = (later, 0);
            if out.is_empty() {
                return;
            }
        }
    }
}
