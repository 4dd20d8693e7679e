//! A set of 64-bit hashes as lines of 64 bytes: a lookup reads one line, rarely two.
//!
//! A line has ten slots of 48 bits (0: empty) and at its 61st byte a flag that says whether entries went on to the next line. The line
//! of a hash is its place in the order of all hashes (`hash * lines / 2^64`), so sorted hashes are written line by line, and a
//! slot has the low 48 bits of its hash. With 65,536 lines or more, line and slot together are all 64 bits.
//!
//! Eight entries for each line on average give 8.0 bytes an entry; one line in six then spills into the next.

use std::collections::VecDeque;
use std::io::{self, Write};

/// A line is a cache line of the processor.
pub const LINE_BYTES: usize = 64;
const SLOTS: usize = 10;
const SLOT_BYTES: usize = 6;
const SLOT_MASK: u64 = (1 << 48) - 1;
/// Where the flag is.
const SPILLED_AT: usize = 60;
/// Entries of a line on average.
const FILL: usize = 8;

/// So many lines have these many hashes as their own; those that spill out of the last one follow.
fn lines_for(hashes: usize) -> usize {
    hashes.div_ceil(FILL)
}

fn line_of(hash: u64, lines: usize) -> usize {
    // Less than `lines`, so it fits.
    ((u128::from(hash) * lines as u128) >> 64) as usize
}

fn slot_of(hash: u64) -> u64 {
    (hash & SLOT_MASK).max(1)
}

/// Whether so many bytes may be a table of so many hashes: all lines that hashes have as their own are there.
pub fn may_hold(bytes: usize, hashes: usize) -> bool {
    bytes.is_multiple_of(LINE_BYTES) && bytes / LINE_BYTES >= lines_for(hashes)
}

/// Writes the lines of these hashes, which are sorted and of which no two are equal; says how many bytes that were.
pub fn write(hashes: &[u64], out: &mut impl Write) -> io::Result<u64> {
    let lines = lines_for(hashes.len());
    let mut hashes = hashes.iter().copied().peekable();
    let mut waiting: VecDeque<u64> = VecDeque::with_capacity(SLOTS * 4);
    let mut bytes = 0;
    for line in 0.. {
        while let Some(hash) = hashes.next_if(|&hash| line_of(hash, lines) == line) {
            waiting.push_back(slot_of(hash));
        }
        if line >= lines && waiting.is_empty() {
            break;
        }
        let mut text = [0; LINE_BYTES];
        for slot in text.chunks_exact_mut(SLOT_BYTES).take(SLOTS) {
            let Some(value) = waiting.pop_front() else { break };
            slot.copy_from_slice(&value.to_le_bytes()[..SLOT_BYTES]);
        }
        text[SPILLED_AT] = u8::from(!waiting.is_empty());
        out.write_all(&text)?;
        bytes += LINE_BYTES as u64;
    }
    Ok(bytes)
}

/// Whether a table of so many hashes, whose bytes these are, has this hash.
pub fn has(table: &[u8], hashes: usize, hash: u64) -> bool {
    let slot = slot_of(hash);
    let first = line_of(hash, lines_for(hashes)) * LINE_BYTES;
    let Some(lines) = table.get(first..) else { return false };
    for line in lines.chunks_exact(LINE_BYTES) {
        let Some(line) = line.first_chunk::<LINE_BYTES>() else { return false };
        if has_slot(line, slot) {
            return true;
        }
        if line[SPILLED_AT] == 0 {
            return false;
        }
    }
    false
}

/// Without a branch for each slot: the processor compares them while the next label's line is on its way.
fn has_slot(line: &[u8; LINE_BYTES], wanted: u64) -> bool {
    let mut found = false;
    for slot in 0..SLOTS {
        let at = slot * SLOT_BYTES;
        let mut eight = [0; 8];
        eight.copy_from_slice(&line[at..at + 8]);
        found |= u64::from_le_bytes(eight) & SLOT_MASK == wanted;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn table(hashes: &mut Vec<u64>) -> Vec<u8> {
        hashes.sort_unstable();
        hashes.dedup();
        let mut bytes = Vec::new();
        let written = write(hashes, &mut bytes).unwrap();
        assert_eq!(written, bytes.len() as u64);
        bytes
    }

    #[test]
    fn an_empty_table_has_nothing() {
        assert!(table(&mut Vec::new()).is_empty() && !has(&[], 0, 0) && !has(&[], 0, u64::MAX));
    }

    #[test]
    fn a_damaged_table_ends() {
        let all_spilled = [1; LINE_BYTES * 3];
        assert!(!has(&all_spilled, 24, u64::MAX) && !has(&all_spilled[..10], 1_000, u64::MAX));
    }

    proptest! {
        /// Draws from few places make lines that spill over many others, up to the last one and beyond.
        #[test]
        fn a_table_has_what_was_put_in(
            spread in 1u64..40,
            hashes in prop::collection::vec((any::<u64>(), any::<u64>()), 0..400),
            others in prop::collection::vec(any::<u64>(), 50),
        ) {
            let crowded = |high: u64| u64::MAX - (high % spread) * (u64::MAX / 40);
            let mut hashes: Vec<u64> = hashes.iter().map(|(high, low)| crowded(*high) - (low >> 20)).collect();
            let model: HashSet<u64> = hashes.iter().copied().collect();
            let bytes = table(&mut hashes);
            for &hash in &model {
                prop_assert!(has(&bytes, model.len(), hash));
            }
            for other in others {
                for other in [other, crowded(other) - (other >> 20)] {
                    prop_assert_eq!(has(&bytes, model.len(), other), model.contains(&other));
                }
            }
        }
    }
}
