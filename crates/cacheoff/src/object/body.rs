//! The bytes of a body: words that are computed from the object's seed and their place, so that any range can be made
//! and checked alone, and a byte of another object, of another version or from another place is told apart.
//!
//! Layout: eight little-endian words of a header that says whose bytes these are (mark, seed, generation, size and four
//! pattern words), then pattern words to the end; the last word is cut where the body ends. The pattern of word `i` is a
//! Weyl sequence of the seed, folded once: two shifts, a multiplication and two additions.

use super::Body;

/// The first word of every body.
const MARK: u64 = u64::from_le_bytes(*b"cacheoff");
/// Bytes of the header.
pub const HEADER_BYTES: u64 = 64;
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const FOLD: u64 = 0xD6E8_FEB8_6659_FD93;

#[inline(always)]
fn pattern(seed: u64, index: u64) -> u64 {
    let value = seed.wrapping_add(index.wrapping_mul(STEP));
    (value ^ (value >> 32)).wrapping_mul(FOLD)
}

impl Body {
    /// The word at this place.
    #[inline(always)]
    fn word(&self, index: u64) -> u64 {
        match index {
            0 => MARK,
            1 => self.seed,
            2 => self.generation,
            3 => self.size,
            _ => pattern(self.key(), index),
        }
    }

    #[inline(always)]
    fn key(&self) -> u64 {
        self.seed ^ self.generation.wrapping_mul(FOLD)
    }

    /// Writes the bytes from `at` on into the whole of `out`. Bytes behind the end of the body are pattern too.
    pub fn fill(&self, at: u64, out: &mut [u8]) {
        let (lead, rest) = self.split(at, out.len());
        let (first, out) = out.split_at_mut(lead);
        copy_part(self.word(at / 8), (at % 8) as usize, first);
        let mut index = rest / 8;
        let mut words = out.chunks_exact_mut(8);
        let key = self.key();
        while index < HEADER_BYTES / 8 {
            let Some(chunk) = words.next() else { break };
            chunk.copy_from_slice(&self.word(index).to_le_bytes());
            index += 1;
        }
        for chunk in &mut words {
            chunk.copy_from_slice(&pattern(key, index).to_le_bytes());
            index += 1;
        }
        copy_part(self.word(index), 0, words.into_remainder());
    }

    /// Whether `bytes` are those of the body from `at` on.
    pub fn check(&self, at: u64, bytes: &[u8]) -> bool {
        if at + bytes.len() as u64 > self.size {
            return false;
        }
        let (lead, rest) = self.split(at, bytes.len());
        let (first, bytes) = bytes.split_at(lead);
        if !same_part(self.word(at / 8), (at % 8) as usize, first) {
            return false;
        }
        let mut index = rest / 8;
        let mut words = bytes.chunks_exact(8);
        let key = self.key();
        let mut wrong = 0;
        while index < HEADER_BYTES / 8 {
            let Some(chunk) = words.next() else { break };
            wrong |= self.word(index) ^ word_of(chunk);
            index += 1;
        }
        for chunk in &mut words {
            wrong |= pattern(key, index) ^ word_of(chunk);
            index += 1;
        }
        wrong == 0 && same_part(self.word(index), 0, words.remainder())
    }

    /// How many bytes come before the next whole word, and where that word begins.
    fn split(&self, at: u64, len: usize) -> (usize, u64) {
        let lead = ((8 - at % 8) % 8).min(len as u64);
        (lead as usize, at + lead)
    }
}

#[inline(always)]
fn word_of(chunk: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(chunk);
    u64::from_le_bytes(bytes)
}

fn copy_part(word: u64, from: usize, out: &mut [u8]) {
    let len = out.len();
    out.copy_from_slice(&word.to_le_bytes()[from..from + len]);
}

fn same_part(word: u64, from: usize, bytes: &[u8]) -> bool {
    word.to_le_bytes()[from..from + bytes.len()] == *bytes
}

/// The body that its first bytes name: seed, generation, size; `None` if they name none.
pub fn whose(first: &[u8]) -> Option<Body> {
    let mut words = first.chunks_exact(8).map(word_of);
    if words.next()? != MARK {
        return None;
    }
    Some(Body { seed: words.next()?, generation: words.next()?, size: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(body: &Body) -> Vec<u8> {
        let mut bytes = vec![0; body.size as usize];
        body.fill(0, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_range_is_a_slice_of_the_body(seed: u64, size in 1u64..3000, a in 0u64..3000, b in 0u64..3000) {
            let body = Body { seed, generation: 3, size };
            let (from, to) = (a.min(b).min(size), a.max(b).min(size));
            let mut part = vec![0; (to - from) as usize];
            body.fill(from, &mut part);
            prop_assert_eq!(&part[..], &whole(&body)[from as usize..to as usize]);
            prop_assert!(body.check(from, &part));
        }

        #[test]
        fn one_wrong_byte_is_seen(seed: u64, size in 1u64..3000, place in 0u64..3000, flip in 1u8..) {
            let body = Body { seed, generation: 0, size };
            let mut bytes = whole(&body);
            let place = (place % size) as usize;
            bytes[place] ^= flip;
            prop_assert!(!body.check(0, &bytes));
        }

        #[test]
        fn bytes_of_another_object_version_or_place_are_seen(seed: u64, size in 200u64..3000, at in 64u64..100) {
            let body = Body { seed, generation: 1, size };
            let other = Body { seed: seed ^ 1, generation: 1, size };
            let older = Body { seed, generation: 0, size };
            let mut mixed = whole(&body);
            mixed[at as usize + 8..at as usize + 40].copy_from_slice(&whole(&other)[at as usize + 8..at as usize + 40]);
            prop_assert!(!body.check(0, &mixed));
            prop_assert!(!body.check(0, &whole(&older)));
            prop_assert!(!body.check(at + 8, &whole(&body)[at as usize..at as usize + 16]));
        }
    }

    #[test]
    fn a_body_says_whose_it_is() {
        let body = Body { seed: 7, generation: 2, size: 500 };
        assert_eq!(whose(&whole(&body)), Some(body));
        assert_eq!(whose(b"<html>nothing of ours, and long enough to hold it"), None);
    }
}
