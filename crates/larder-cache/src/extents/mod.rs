//! Which bytes of an object are present: pieces of its body, in order, with holes between them.
//!
//! A body that streams in is appended piece by piece; a range that was fetched on its own fills the
//! hole it belongs to. All pieces belong to one representation: whoever inserts has compared the
//! validators. Reading clones references to pieces, never bytes. [`Extents::compact`] makes what is
//! held equal to what is counted, once a body is complete. Most bodies are one piece then, and take no list.

mod pieces;

use bytes::Bytes;
use pieces::Pieces;
use std::ops::Range;

/// The size of the pieces that [`Extents::compact`] makes of small ones, at most; an object up to this size becomes one piece. Most of the
/// cache in allocations of one size leaves no room unused between them, which large ones of all sizes do.
pub const CHUNK_BYTES: usize = pieces::CHUNK_BYTES;

/// The present bytes of one object.
#[derive(Clone, Debug, Default)]
pub struct Extents(Form);

#[derive(Clone, Debug)]
enum Form {
    /// All from the start on, in an allocation of exactly its length. Never empty.
    Whole(Bytes),
    /// Anything else.
    Pieces(Option<Box<Pieces>>),
}

impl Default for Form {
    fn default() -> Form {
        Form::Pieces(None)
    }
}

impl Extents {
    /// Nothing present.
    pub fn new() -> Extents {
        Extents::default()
    }

    /// Adds the bytes from offset `at` on. Where bytes are present already they stay; only holes are
    /// filled. Bytes past the last offset that 64 bits can name are left out. Returns how many bytes
    /// became present.
    pub fn insert(&mut self, at: u64, piece: Bytes) -> u64 {
        let buffer_bytes = piece.len();
        self.insert_part_of(at, piece, buffer_bytes)
    }

    /// [`Extents::insert`] of a piece that keeps an allocation of so many bytes alive alone.
    pub fn insert_part_of(&mut self, at: u64, piece: Bytes, buffer_bytes: usize) -> u64 {
        if piece.is_empty() {
            return 0;
        }
        if at == 0 && self.is_empty() {
            let bytes = piece.len() as u64;
            self.0 = Form::Pieces(Some(Box::new(Pieces::of_one(piece, buffer_bytes, false))));
            return bytes;
        }
        self.change(|pieces| pieces.insert_part_of(at, piece, buffer_bytes))
    }

    /// The present bytes from `offset` on, up to the end of their piece and `bytes_max`; `None` in a hole.
    pub fn slice_at(&self, offset: u64, bytes_max: usize) -> Option<Bytes> {
        match &self.0 {
            Form::Whole(bytes) => {
                let skip = usize::try_from(offset).ok().filter(|&skip| skip < bytes.len())?;
                Some(bytes.slice(skip..skip.saturating_add(bytes_max).min(bytes.len())))
            }
            Form::Pieces(pieces) => pieces.as_ref()?.slice_at(offset, bytes_max),
        }
    }

    /// Puts the contiguous present bytes from `range.start` on, not past `range.end`, into `out` as
    /// slices, and returns how many bytes that are.
    pub fn slices(&self, range: Range<u64>, out: &mut Vec<Bytes>) -> u64 {
        self.each(range, |bytes, part| out.push(bytes.slice(part)))
    }

    /// Shows the bytes of a range without cloning them: each block of bytes, and which part of it.
    pub fn each(&self, range: Range<u64>, mut show: impl FnMut(&Bytes, Range<usize>)) -> u64 {
        match &self.0 {
            Form::Whole(bytes) => {
                let end = range.end.min(bytes.len() as u64);
                if range.start >= end {
                    return 0;
                }
                show(bytes, range.start as usize..end as usize);
                end - range.start
            }
            Form::Pieces(pieces) => pieces.as_ref().map_or(0, |pieces| pieces.each(range, show)),
        }
    }

    /// How many bytes are present without a hole from `offset` on.
    pub fn present_from(&self, offset: u64) -> u64 {
        match &self.0 {
            Form::Whole(bytes) => (bytes.len() as u64).saturating_sub(offset),
            Form::Pieces(pieces) => pieces.as_ref().map_or(0, |pieces| pieces.present_from(offset)),
        }
    }

    /// Whether every byte of the range is present. An empty range is always covered.
    pub fn covers(&self, range: Range<u64>) -> bool {
        match &self.0 {
            _ if range.is_empty() => true,
            Form::Whole(bytes) => range.end <= bytes.len() as u64,
            Form::Pieces(pieces) => pieces.as_ref().is_some_and(|pieces| pieces.covers(range)),
        }
    }

    /// The holes within the range, in order: what is still to be fetched.
    pub fn holes(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let (after, pieces) = match &self.0 {
            Form::Whole(bytes) => (Some(range.start.max(bytes.len() as u64)..range.end), None),
            Form::Pieces(None) => (Some(range), None),
            Form::Pieces(Some(pieces)) => (None, Some(pieces.holes(range))),
        };
        after.into_iter().filter(|hole| !hole.is_empty()).chain(pieces.into_iter().flatten())
    }

    /// Frees every piece that ends at or before `offset` (the window of a stream that is not kept slides
    /// on) and returns how many bytes those were. A piece that reaches past `offset` stays whole.
    pub fn drop_before(&mut self, offset: u64) -> u64 {
        let here = match &mut self.0 {
            Form::Whole(bytes) if bytes.len() as u64 > offset => return 0,
            Form::Whole(bytes) => bytes.len() as u64,
            Form::Pieces(None) => return 0,
            Form::Pieces(Some(pieces)) => return pieces.drop_before(offset),
        };
        *self = Extents::default();
        here
    }

    /// Frees the bytes of the range. A piece that reaches out of it keeps its buffer alive for the rest. Returns how
    /// many bytes went.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if self.is_empty() { 0 } else { self.change(|pieces| pieces.remove(range)) }
    }

    /// The offset after the last present byte.
    pub fn end(&self) -> u64 {
        match &self.0 {
            Form::Whole(bytes) => bytes.len() as u64,
            Form::Pieces(pieces) => pieces.as_ref().map_or(0, |pieces| pieces.end()),
        }
    }

    /// How many bytes are present, in all pieces together.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Form::Whole(bytes) => bytes.len() as u64,
            Form::Pieces(pieces) => pieces.as_ref().map_or(0, |pieces| pieces.bytes()),
        }
    }

    /// In how many pieces.
    pub fn pieces(&self) -> usize {
        match &self.0 {
            Form::Whole(_) => 1,
            Form::Pieces(pieces) => pieces.as_ref().map_or(0, |pieces| pieces.pieces()),
        }
    }

    /// Whether no byte is present.
    pub fn is_empty(&self) -> bool {
        self.pieces() == 0
    }

    /// Bytes that are held on the heap: the list, every piece and the reference count that a shared piece gets.
    /// Exact for pieces that [`Extents::compact`] has built. Any other piece counts as if it were one,
    /// though it may keep a larger read buffer alive that it shares with its neighbours.
    pub fn heap_bytes(&self) -> u64 {
        match &self.0 {
            Form::Whole(bytes) => pieces::allocated_bytes(bytes.len()) + pieces::SHARED_HEADER_BYTES as u64,
            Form::Pieces(pieces) => {
                pieces.as_ref().map_or(0, |pieces| size_of::<Pieces>() as u64 + pieces.heap_bytes())
            }
        }
    }

    /// Copies stretches of pieces into chunks of [`CHUNK_BYTES`] and frees the read buffers they came in, so that a complete
    /// object holds what [`Extents::heap_bytes`] says and a hit writes few vectors. An object of up to
    /// that size becomes one exact allocation; pieces that fill most of a read buffer stay where they are. Doing it
    /// again costs a walk over the pieces and copies nothing.
    pub fn compact(&mut self) {
        let Form::Pieces(Some(pieces)) = &mut self.0 else { return };
        pieces.compact();
        match pieces.take_whole() {
            Some(bytes) => self.0 = Form::Whole(bytes),
            None if pieces.pieces() == 0 => *self = Extents::default(),
            None => {}
        }
    }

    /// Changes it as a list.
    fn change<T>(&mut self, change: impl FnOnce(&mut Pieces) -> T) -> T {
        let mut pieces = match std::mem::take(&mut self.0) {
            Form::Pieces(pieces) => pieces.unwrap_or_default(),
            Form::Whole(bytes) => {
                let len = bytes.len();
                Box::new(Pieces::of_one(bytes, len, true))
            }
        };
        let changed = change(&mut pieces);
        self.0 = Form::Pieces((pieces.pieces() > 0).then_some(pieces));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_one_piece_takes_no_list() {
        assert_eq!(size_of::<Extents>(), size_of::<Bytes>());
        let mut extents = Extents::new();
        extents.insert(0, Bytes::from_static(b"he"));
        extents.insert(2, Bytes::from_static(b"llo"));
        extents.compact();
        assert_eq!((extents.pieces(), extents.heap_bytes()), (1, 5 + 24));
        assert!(extents.covers(0..5) && !extents.covers(0..6));
        assert_eq!(extents.holes(3..9).next(), Some(5..9));
        extents.insert(7, Bytes::from_static(b"x"));
        assert_eq!(extents.holes(3..9).collect::<Vec<_>>(), [5..7, 8..9]);
    }
}
