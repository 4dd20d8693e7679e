//! A block of a body that came in many small pieces is written anew as few.

use std::ops::Range;

use bytes::Bytes;

use super::segment_reader::{Patience, ReadOutcome, count};
use super::segment_writer::SegmentWriter;
use super::{BLOCK_BYTES, ObjectId, Refusal, record};

/// Pieces of one block that are merged; with holes between them they stay apart, and the next eight are waited for.
const PIECES_MERGED_MIN: usize = 8;
/// Pieces of one block beyond this: the shortest go.
const PIECES_MAX: usize = 32;

impl SegmentWriter {
    /// Whether one more piece of a block is one too many.
    pub(super) fn has_many_pieces(&mut self, id: ObjectId, block: u64) -> bool {
        let pieces = self.reader.piece_locations(id, block).len();
        pieces >= PIECES_MERGED_MIN && (pieces.is_multiple_of(PIECES_MERGED_MIN) || pieces >= PIECES_MAX)
    }

    /// Writes a new piece and all that are there as one record for each run of bytes without a hole.
    pub(super) fn merge_pieces(
        &mut self,
        id: ObjectId,
        key_hash: u64,
        at: u64,
        bytes: &[Bytes],
    ) -> Result<(), Refusal> {
        self.flush()?;
        let block = at / BLOCK_BYTES;
        let old = self.reader.piece_locations(id, block);
        let mut sheet = Sheet::new(block * BLOCK_BYTES);
        for location in &old {
            if let ReadOutcome::Ended(Some(found)) = self.reader.read(*location, Patience::Waits)
                && found.header.id == id.0
            {
                sheet.lay(found.header.offset, &found.body());
            }
        }
        let mut end = at;
        for piece in bytes {
            sheet.lay(end, piece);
            end += piece.len() as u64;
        }
        for (start, run) in sheet.into_runs() {
            let header = record::extent_header(id, key_hash, start, run.len()).ok_or(Refusal::TooLarge)?;
            self.append_body(header, None, &[run])?;
            count(&self.reader.counters.puts_extent, 1);
        }
        self.flush()?;
        // Those of the same name were replaced; the others are covered by a longer one, or were the shortest.
        let segments_now = self.reader.piece_locations(id, block);
        for location in old.into_iter().filter(|each| segments_now.iter().any(|now| now.same_record(*each))) {
            self.reader.remove(location);
        }
        Ok(())
    }
}

/// One block being put together.
struct Sheet {
    start: u64,
    bytes: Vec<u8>,
    /// The runs that are laid: sorted, apart from each other.
    runs: Vec<Range<usize>>,
}

impl Sheet {
    fn new(start: u64) -> Sheet {
        Sheet { start, bytes: vec![0; BLOCK_BYTES as usize], runs: Vec::new() }
    }

    /// Lays a piece where it belongs; what is not of this block is left out.
    fn lay(&mut self, at: u64, piece: &[u8]) {
        let Some(from) = at.checked_sub(self.start).map(|from| from as usize) else { return };
        let Some(place) = self.bytes.get_mut(from..from + piece.len()) else { return };
        place.copy_from_slice(piece);
        let mut run = from..from + piece.len();
        self.runs.retain(|other| {
            let apart = other.end < run.start || run.end < other.start;
            if !apart {
                run = run.start.min(other.start)..run.end.max(other.end);
            }
            apart
        });
        self.runs.push(run);
        self.runs.sort_by_key(|run| run.start);
    }

    fn into_runs(mut self) -> Vec<(u64, Bytes)> {
        self.runs.sort_by_key(|run| std::cmp::Reverse(run.len()));
        self.runs.truncate(PIECES_MAX);
        let bytes = Bytes::from(self.bytes);
        self.runs.into_iter().map(|run| (self.start + run.start as u64, bytes.slice(run))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_runs() {
        let mut sheet = Sheet::new(BLOCK_BYTES);
        sheet.lay(BLOCK_BYTES + 10, b"klm");
        sheet.lay(BLOCK_BYTES, b"abc");
        sheet.lay(BLOCK_BYTES + 3, b"defghij");
        sheet.lay(2 * BLOCK_BYTES - 2, b"yz");
        sheet.lay(BLOCK_BYTES + 12, b"mn");
        sheet.lay(2 * BLOCK_BYTES - 1, b"beyond");
        sheet.lay(3, b"before");
        let runs = sheet.into_runs();
        assert_eq!(runs, [(BLOCK_BYTES, Bytes::from("abcdefghijklmn")), (2 * BLOCK_BYTES - 2, Bytes::from("yz"))]);
    }
}
