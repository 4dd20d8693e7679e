//! How often a key was asked for of late, in a few bits each: what decides whether an object is worth a write.
//!
//! A count-min sketch of 4-bit counters with four rows, conservative update and halving (the ageing of TinyLFU, Einziger
//! and others, 2017). It may say too much of a key, never too little but for the halving.

use crate::zeros::zeros;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts keys by their hashes. Callers on several threads may lose a count, never more.
pub struct Sketch {
    /// Sixteen counters a word. The number of words is a power of two.
    words: Box<[AtomicU64]>,
    /// Counts since the last halving.
    counted: AtomicU64,
    counted_max: u64,
}

/// The highest count.
const COUNT_MAX: u64 = 15;
const ROWS: u32 = 4;
const SEEDS: [u64; ROWS as usize] =
    [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0xd6e8_feb8_6659_fd93];

impl Sketch {
    /// A sketch that tells some `keys` apart; it takes between 8 and 16 bytes a key and at least 8 KiB.
    pub fn new(keys: usize) -> Sketch {
        let words = keys.clamp(1_024, 1 << 26).next_power_of_two();
        Sketch { words: zeros(words), counted: AtomicU64::new(0), counted_max: words as u64 * 10 }
    }

    /// Counts a key; gives how often it was counted before, 15 at most.
    pub fn seen(&self, hash: u64) -> u8 {
        let before = self.estimate(hash);
        if before < COUNT_MAX as u8 {
            for row in 0..ROWS {
                self.raise(hash, row, before);
            }
        }
        if self.counted.fetch_add(1, Ordering::Relaxed) >= self.counted_max {
            self.halve();
        }
        before
    }

    /// How often a key was counted.
    pub fn estimate(&self, hash: u64) -> u8 {
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = self.place(hash, row);
            (self.words[word].load(Ordering::Relaxed) >> shift & COUNT_MAX) as u8
        });
        counts.min().unwrap_or(0)
    }

    /// Bytes that the sketch holds on the heap.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Each row has its own place for a key.
    fn place(&self, hash: u64, row: u32) -> (usize, u32) {
        let mixed = (hash ^ SEEDS[row as usize]).wrapping_mul(SEEDS[row as usize]).rotate_left(29);
        let word = (mixed >> 8) as usize & (self.words.len() - 1);
        // A quarter of the word's counters for each row.
        (word, (row * 4 + (mixed & 3) as u32) * 4)
    }

    /// Only counters that say no more than the key had (conservative update).
    fn raise(&self, hash: u64, row: u32, before: u8) {
        let (word, shift) = self.place(hash, row);
        let held = self.words[word].load(Ordering::Relaxed);
        if (held >> shift & COUNT_MAX) as u8 == before {
            self.words[word].store(held + (1 << shift), Ordering::Relaxed);
        }
    }

    /// Halves all counts. [`Sketch::seen`] does so by itself after ten counts for each key that the sketch tells apart; a caller whose counts
    /// are about a span of time does so at its end.
    pub fn halve(&self) {
        self.counted.store(self.counted_max / 2, Ordering::Relaxed);
        for word in &self.words {
            word.store(word.load(Ordering::Relaxed) >> 1 & 0x7777_7777_7777_7777, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0xa076_1d64_78bd_642f).rotate_left(31).wrapping_mul(0xe703_7ed1_a0b4_28db)
    }

    #[test]
    fn a_key_is_counted_up_to_fifteen() {
        let sketch = Sketch::new(1_000);
        for expected in (0..15).chain([15, 15, 15]) {
            assert_eq!(sketch.seen(hash(7)), expected);
        }
        assert_eq!(sketch.estimate(hash(8)), 0);
    }

    #[test]
    fn few_keys_are_mistaken_for_seen_ones() {
        let sketch = Sketch::new(10_000);
        for key in 0..10_000 {
            sketch.seen(hash(key));
        }
        let mistaken = (10_000..20_000).filter(|&key| sketch.estimate(hash(key)) > 0).count();
        assert!(mistaken < 500, "{mistaken} of 10,000");
        assert!((0..10_000).all(|key| sketch.estimate(hash(key)) > 0), "none is forgotten");
    }

    #[test]
    fn what_was_popular_long_ago_fades() {
        let sketch = Sketch::new(1_024);
        for _ in 0..15 {
            sketch.seen(hash(1));
        }
        for key in 0..40_000 {
            sketch.seen(hash(key % 2_000 + 10));
        }
        assert!(sketch.estimate(hash(1)) < 15);
        assert_eq!(sketch.heap_bytes(), 8_192);
    }
}
