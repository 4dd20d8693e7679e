//! Heads of answers in the code of a version, by their text: the head of a popular response is the same for a whole second.

use xxhash_rust::xxh3::xxh3_64;

/// Heads that were coded, of which those that came twice are kept. A worker has one for each version.
#[derive(Default)]
pub struct CodedHeads(Vec<CodedHead>);

#[derive(Clone, Default)]
struct CodedHead {
    /// The hash of the last head that has this place.
    seen: u64,
    text: Vec<u8>,
    block: Vec<u8>,
    list_bytes: u64,
}

/// Places of heads. The hash of a text decides which one it has.
const HEADS: usize = 128;

/// Bytes of the longest text that is kept. Its code is no longer.
const HEAD_BYTES_MAX: usize = 1024;

impl CodedHeads {
    /// Appends the block of the head with this text, and gives the size of its list of fields as limits count it: `code` does both, and
    /// depends on the text alone.
    pub fn write(&mut self, out: &mut Vec<u8>, text: &[u8], code: impl FnOnce(&mut Vec<u8>) -> u64) -> u64 {
        // A place that nothing has yet has the empty text.
        if text.is_empty() || text.len() > HEAD_BYTES_MAX {
            return code(out);
        }
        if self.0.is_empty() {
            self.0.resize(HEADS, CodedHead::default());
        }
        let hash = xxh3_64(text);
        let kept = &mut self.0[hash as usize % HEADS];
        if kept.text == text {
            out.extend_from_slice(&kept.block);
            return kept.list_bytes;
        }
        let begins = out.len();
        let list_bytes = code(out);
        // Heads that come once are not worth a copy.
        if std::mem::replace(&mut kept.seen, hash) == hash && out.len() - begins <= HEAD_BYTES_MAX {
            kept.text.clear();
            kept.text.extend_from_slice(text);
            kept.block.clear();
            kept.block.extend_from_slice(&out[begins..]);
            kept.list_bytes = list_bytes;
        }
        list_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    /// Codes a text as itself, each letter small, and counts.
    fn coded(heads: &mut CodedHeads, text: &[u8], count: &Cell<u32>) -> (Vec<u8>, u64) {
        let mut out = b"before".to_vec();
        let list_bytes = heads.write(&mut out, text, |out| {
            count.set(count.get() + 1);
            out.extend(text.to_ascii_lowercase());
            text.len() as u64 + 32
        });
        (out, list_bytes)
    }

    #[test]
    fn a_head_that_came_twice_is_coded_no_more() {
        let (mut heads, count) = (CodedHeads::default(), Cell::new(0));
        for _ in 0..5 {
            assert_eq!(coded(&mut heads, b"Age: 7", &count), (b"beforeage: 7".to_vec(), 38));
        }
        assert_eq!(count.get(), 2);
        coded(&mut heads, b"", &count);
        coded(&mut heads, &[b'x'; HEAD_BYTES_MAX + 1], &count);
        coded(&mut heads, &[b'x'; HEAD_BYTES_MAX + 1], &count);
        coded(&mut heads, &[b'x'; HEAD_BYTES_MAX + 1], &count);
        let kept: usize = heads.0.iter().map(|head| head.text.len() + head.block.len()).sum();
        assert_eq!(kept, 12, "a long one is not kept");
    }

    proptest! {
        /// A head gets the block of its own text after any others.
        #[test]
        fn blocks_are_those_of_their_texts(texts in prop::collection::vec("[A-Z]{0,2}", 1..2_000)) {
            let (mut heads, count) = (CodedHeads::default(), Cell::new(0));
            for text in texts {
                let (block, list_bytes) = coded(&mut heads, text.as_bytes(), &count);
                prop_assert_eq!(block, format!("before{}", text.to_ascii_lowercase()).into_bytes());
                prop_assert_eq!(list_bytes, text.len() as u64 + 32);
            }
        }
    }
}
