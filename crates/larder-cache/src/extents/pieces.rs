//! Pieces of a body in order, with holes between them: what [`super::Extents`] is while it is not one piece alone.

use std::collections::VecDeque;
use std::mem::size_of;
use std::ops::Range;

use bytes::Bytes;

/// The present bytes of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    /// Sorted by offset, none empty, none overlapping. Neighbours may touch.
    pieces: VecDeque<Piece>,
    /// The sum of all pieces' lengths.
    bytes: u64,
    /// The sum of what is allocated for them.
    held: u64,
}

/// The size of the pieces that [`Pieces::compact`] makes of small ones, at most; an object up to this size becomes one piece. Most of the
/// cache in allocations of one size leaves no room unused between them, which large ones of all sizes do.
pub(super) const CHUNK_BYTES: usize = 32 * 1024;

/// A piece this long fills most of the read buffer that it keeps alive.
const FILLING_BYTES_MIN: usize = 56 * 1024;

impl Pieces {
    /// One piece from the start on, that keeps an allocation of so many bytes alive alone.
    pub(super) fn of_one(bytes: Bytes, buffer_bytes: usize, exact: bool) -> Pieces {
        let piece = Piece { buffer_bytes: held_bytes(buffer_bytes), ..Piece::new(0, bytes, exact) };
        let (bytes, held) = (piece.bytes.len() as u64, piece.allocated_bytes());
        Pieces { pieces: VecDeque::from(vec![piece]), bytes, held }
    }

    /// Takes the body out, if it is one piece from the start on in an allocation of its own length.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        if self.pieces.len() != 1 || self.pieces[0].at != 0 || !self.pieces[0].exact {
            return None;
        }
        (self.bytes, self.held) = (0, 0);
        self.pieces.pop_front().map(|piece| piece.bytes)
    }

    /// See [`super::Extents::insert_part_of`].
    pub(super) fn insert_part_of(&mut self, at: u64, mut piece: Bytes, buffer_bytes: usize) -> u64 {
        piece.truncate(usize::try_from(u64::MAX - at).unwrap_or(usize::MAX));
        if at >= self.end() {
            return self.append(at, piece, buffer_bytes);
        }
        let offered = at..at + piece.len() as u64;
        let holes: Vec<_> = self.holes(offered).collect();
        for hole in &holes {
            let part = piece.slice((hole.start - at) as usize..(hole.end - at) as usize);
            let place = self.first_ending_after(hole.start);
            let part = Piece::new(hole.start, part, false);
            self.held += part.allocated_bytes();
            self.pieces.insert(place, part);
        }
        let filled = holes.iter().map(|hole| hole.end - hole.start).sum();
        self.bytes += filled;
        filled
    }

    /// The present bytes from `offset` on, up to the end of their piece and `bytes_max`; `None` in a hole.
    pub(super) fn slice_at(&self, offset: u64, bytes_max: usize) -> Option<Bytes> {
        let piece = self.pieces.get(self.first_ending_after(offset))?;
        let skip = usize::try_from(offset.checked_sub(piece.at)?).ok()?;
        let end = skip.saturating_add(bytes_max).min(piece.bytes.len());
        Some(piece.bytes.slice(skip..end))
    }

    /// Shows the contiguous present bytes from `range.start` on, not past `range.end`: each piece, and which part of it. Returns
    /// how many bytes that are.
    pub(super) fn each(&self, range: Range<u64>, mut show: impl FnMut(&Bytes, Range<usize>)) -> u64 {
        let mut next = range.start;
        for piece in self.pieces.range(self.first_ending_after(range.start)..) {
            if piece.at > next || next >= range.end {
                break;
            }
            let end = piece.end().min(range.end);
            show(&piece.bytes, (next - piece.at) as usize..(end - piece.at) as usize);
            next = end;
        }
        next - range.start
    }

    /// How many bytes are present without a hole from `offset` on.
    pub(super) fn present_from(&self, offset: u64) -> u64 {
        self.present_up_to(offset, u64::MAX)
    }

    /// Whether every byte of the range is present. An empty range is always covered.
    pub(super) fn covers(&self, range: Range<u64>) -> bool {
        range.is_empty() || self.present_up_to(range.start, range.end) >= range.end - range.start
    }

    /// The holes within the range, in order: what is still to be fetched.
    pub(super) fn holes(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut pieces = self.pieces.range(self.first_ending_after(range.start)..);
        let mut next = range.start;
        std::iter::from_fn(move || {
            while next < range.end {
                let start = next;
                let (hole_end, after) = match pieces.next() {
                    Some(piece) if piece.at < range.end => (piece.at, piece.end()),
                    _ => (range.end, range.end),
                };
                next = after;
                if hole_end > start {
                    return Some(start..hole_end);
                }
            }
            None
        })
    }

    /// Frees every piece that ends at or before `offset` (the window of a stream that is not kept slides
    /// on) and returns how many bytes those were. A piece that reaches past `offset` stays whole.
    pub(super) fn drop_before(&mut self, offset: u64) -> u64 {
        let before = self.bytes;
        let kept_from = self.first_ending_after(offset);
        for piece in self.pieces.drain(..kept_from) {
            self.bytes -= piece.bytes.len() as u64;
            self.held -= piece.allocated_bytes();
        }
        before - self.bytes
    }

    /// Frees the bytes of the range. A piece that reaches out of it keeps its buffer alive for the rest. Returns how
    /// many bytes went.
    pub(super) fn remove(&mut self, range: Range<u64>) -> u64 {
        let before = self.bytes;
        let first = self.first_ending_after(range.start);
        let after = self.pieces.partition_point(|piece| piece.at < range.end);
        if first >= after || range.is_empty() {
            return 0;
        }
        let gone: Vec<Piece> = self.pieces.drain(first..after).collect();
        let (head, tail) = (&gone[0], &gone[gone.len() - 1]);
        let head = (head.at < range.start).then(|| head.part(head.at..range.start));
        let tail = (tail.end() > range.end).then(|| tail.part(range.end..tail.end()));
        self.bytes -= gone.iter().map(|piece| piece.bytes.len() as u64).sum::<u64>();
        self.held -= gone.iter().map(Piece::allocated_bytes).sum::<u64>();
        for (place, kept) in head.into_iter().chain(tail).enumerate() {
            self.bytes += kept.bytes.len() as u64;
            self.held += kept.allocated_bytes();
            self.pieces.insert(first + place, kept);
        }
        before - self.bytes
    }

    /// The offset after the last present byte.
    pub(super) fn end(&self) -> u64 {
        self.pieces.back().map_or(0, Piece::end)
    }

    /// How many bytes are present, in all pieces together.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// In how many pieces.
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes that are held on the heap: the list, every piece and the reference count that a shared piece gets.
    /// Exact for pieces that [`Pieces::compact`] has built. Any other piece counts as if it were one,
    /// though it may keep a larger read buffer alive that it shares with its neighbours.
    pub(super) fn heap_bytes(&self) -> u64 {
        let list = self.pieces.capacity() * size_of::<Piece>() + self.pieces.len() * SHARED_HEADER_BYTES;
        list as u64 + self.held
    }

    /// Copies stretches of pieces into chunks of [`CHUNK_BYTES`] and frees the read buffers they came in, so that a complete
    /// object holds what [`Pieces::heap_bytes`] says and a hit writes few vectors. An object of up to
    /// that size becomes one exact allocation; pieces that fill most of a read buffer stay where they are. Doing it
    /// again costs a walk over the pieces and copies nothing.
    pub(super) fn compact(&mut self) {
        let mut compacted = VecDeque::new();
        let mut stretch = Vec::new();
        for piece in std::mem::take(&mut self.pieces) {
            if stretch.last().is_some_and(|last: &Piece| last.end() != piece.at || piece.fills_its_buffer()) {
                pack(&mut stretch, &mut compacted);
            }
            let stays = piece.fills_its_buffer() || (piece.exact && piece.bytes.len() == CHUNK_BYTES);
            match stretch.is_empty() && stays {
                true => compacted.push_back(piece),
                false => stretch.push(piece),
            }
        }
        pack(&mut stretch, &mut compacted);
        compacted.shrink_to_fit();
        self.held = compacted.iter().map(Piece::allocated_bytes).sum();
        self.pieces = compacted;
    }

    fn append(&mut self, at: u64, bytes: Bytes, buffer_bytes: usize) -> u64 {
        let added = bytes.len() as u64;
        if added > 0 {
            let piece = Piece { buffer_bytes: held_bytes(buffer_bytes), ..Piece::new(at, bytes, false) };
            self.held += piece.allocated_bytes();
            self.pieces.push_back(piece);
            self.bytes += added;
        }
        added
    }

    /// The place of the first piece with a byte after `offset - 1`: the one that holds `offset`, or else the next.
    /// Reading mostly happens at the front of a small object or at the end of a growing one.
    fn first_ending_after(&self, offset: u64) -> usize {
        self.pieces.partition_point(|piece| piece.end() <= offset)
    }

    /// Contiguous present bytes from `offset`, counted piece by piece until at least `enough_end` is reached.
    fn present_up_to(&self, offset: u64, enough_end: u64) -> u64 {
        let mut next = offset;
        for piece in self.pieces.range(self.first_ending_after(offset)..) {
            if piece.at > next || next >= enough_end {
                break;
            }
            next = piece.end();
        }
        next - offset
    }
}

/// Bytes that `Bytes` allocates beside its content when a piece gets its second reference.
pub(super) const SHARED_HEADER_BYTES: usize = 3 * size_of::<usize>();

#[derive(Clone, Debug)]
struct Piece {
    at: u64,
    bytes: Bytes,
    /// Copied here into an allocation of exactly its length.
    exact: bool,
    /// The allocation that it keeps alive, as far as that is known.
    buffer_bytes: u32,
}

/// Bytes that an allocator takes for so many bytes: the common ones know four sizes between a power of two and the next.
pub(super) fn allocated_bytes(len: usize) -> u64 {
    let step = (len.saturating_sub(1).checked_ilog2().unwrap_or(0)).saturating_sub(2);
    len.next_multiple_of(1 << step) as u64
}

/// A length in the four bytes that a piece has for it.
fn held_bytes(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Piece {
    fn new(at: u64, bytes: Bytes, exact: bool) -> Piece {
        Piece { at, buffer_bytes: held_bytes(bytes.len()), bytes, exact }
    }

    fn allocated_bytes(&self) -> u64 {
        allocated_bytes(self.buffer_bytes as usize)
    }

    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn fills_its_buffer(&self) -> bool {
        self.bytes.len() >= FILLING_BYTES_MIN
    }

    fn part(&self, range: Range<u64>) -> Piece {
        let bytes = self.bytes.slice((range.start - self.at) as usize..(range.end - self.at) as usize);
        Piece::new(range.start, bytes, false)
    }
}

/// Copies touching pieces into exact chunks, as few as can be.
fn pack(stretch: &mut Vec<Piece>, into: &mut VecDeque<Piece>) {
    if stretch.len() == 1 && stretch[0].exact && stretch[0].bytes.len() <= CHUNK_BYTES {
        return into.extend(stretch.drain(..));
    }
    let mut left: usize = stretch.iter().map(|piece| piece.bytes.len()).sum();
    let mut chunk = Vec::with_capacity(left.min(CHUNK_BYTES));
    let mut at = stretch.first().map_or(0, |piece| piece.at);
    for Piece { bytes, .. } in stretch.drain(..) {
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            let part = bytes.len().min(CHUNK_BYTES.min(left) - chunk.len());
            chunk.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            if chunk.len() == CHUNK_BYTES.min(left) {
                let full = std::mem::take(&mut chunk);
                left -= full.len();
                chunk = Vec::with_capacity(left.min(CHUNK_BYTES));
                let end = at + full.len() as u64;
                into.push_back(Piece::new(at, Bytes::from(full.into_boxed_slice()), true));
                at = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_rounded_up_to_a_quarter_of_its_power_of_two() {
        let sizes = [(0, 0), (1, 1), (8, 8), (9, 10), (1000, 1024), (1025, 1280), (3392, 3584), (65_536, 65_536)];
        for (len, allocated) in sizes.into_iter().chain([(65_616, 81_920), (CHUNK_BYTES, CHUNK_BYTES as u64)]) {
            assert_eq!(allocated_bytes(len), allocated, "{len}");
        }
    }

    #[test]
    fn what_is_held_follows_every_change() {
        let mut extents = Pieces::default();
        extents.insert_part_of(0, Bytes::from(vec![1; 1000]), 1400);
        extents.insert_part_of(2000, Bytes::from(vec![2; 1000]), 1000);
        extents.insert_part_of(500, Bytes::from(vec![3; 2000]), 2000);
        assert_eq!(extents.held, 1536 + 1024 + 1024);
        extents.remove(2100..2200);
        assert_eq!(extents.held, 1536 + 1024 + 112 + 896, "100 and 800 bytes are left of the second one");
        extents.compact();
        assert_eq!((extents.pieces(), extents.held), (2, 2560 + 896));
        extents.drop_before(2100);
        assert_eq!(extents.held, 896);
        extents.remove(0..5000);
        assert_eq!((extents.held, extents.bytes()), (0, 0));
    }
}
