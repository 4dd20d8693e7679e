//! Hashes and random numbers. Both are the same in every version and on every machine: a ring that changed with an update would
//! send each key to another member.

/// FNV-1a, with its bits mixed at the end so that each of them depends on all bytes.
pub fn hash(bytes: &[u8]) -> u64 {
    hash_with(0, bytes)
}

/// [`hash`] of bytes behind others whose hash is `before`.
pub fn hash_with(before: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ before;
    mix(bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)))
}

/// The last steps of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// SplitMix64: enough for choosing members, and nothing that anybody may rely on as a secret.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 up to 1, 1 not included.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_stay_what_they_are() {
        // A change of these numbers sends keys to other members after an update.
        for (found, number) in [
            (hash(b""), 0xf52a_15e9_a9b5_e89b),
            (hash(b"a"), 0x02c0_bdbf_4814_20f8),
            (hash(b"/index.html?page=2"), 0xd570_b667_184b_474e),
            (hash_with(1, b"a"), 0x270a_eb36_a957_26cf),
            (hash_with(hash(b"a"), b"b"), 0x4ff5_a342_d4a1_8867),
        ] {
            assert_eq!(found, number, "{found:#x}");
        }
    }

    #[test]
    fn shares_are_spread_evenly() {
        let mut random = Random::new(7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[(random.share() * 10.0) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
