//! Seeded streams of random numbers: one seed, a stream for each name. The same seed gives the same numbers on every
//! machine; golden numbers hold it. And the one secret that must not follow from the seed.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// A stream: PCG-XSH-RR with 64 bits of state (O'Neill 2014).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    state: u64,
    step: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Stream {
    /// The stream with this number, of this seed.
    pub fn new(seed: u64, number: u64) -> Self {
        Self::seeded(mix(seed), mix(number))
    }

    /// The stream with this name, of this seed.
    pub fn named(seed: u64, name: &str) -> Self {
        Self::new(seed, name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte))))
    }

    /// As the reference implementation seeds it.
    fn seeded(state: u64, sequence: u64) -> Self {
        let mut stream = Self { state: 0, step: (sequence << 1) | 1 };
        stream.next_u32();
        stream.state = stream.state.wrapping_add(state);
        stream.next_u32();
        stream
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.step);
        let shifted = (((old >> 18) ^ old) >> 27) as u32;
        shifted.rotate_right((old >> 59) as u32)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

/// A secret of the run and what it signs: SipHash-2-4 (Aumasson, Bernstein 2012) of three words. It is drawn from the
/// system and not from the seed, which everybody may know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    keys: [u64; 2],
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// A new secret.
    pub fn random() -> Self {
        // The standard library keys its hash tables from the system's random numbers.
        let draw = || RandomState::new().hash_one(0x5EA1_u64);
        Self { keys: [draw(), draw()] }
    }

    /// The secret itself, for another process of the run.
    pub(crate) fn keys(&self) -> [u64; 2] {
        self.keys
    }

    /// The secret that another process of the run has drawn.
    pub(crate) fn of(keys: [u64; 2]) -> Self {
        Self { keys }
    }

    /// A short digest of bytes, never 0, that only those who know the secret can aim at.
    pub fn digest(&self, bytes: &[u8]) -> u16 {
        let mut sum = self.keys[0] ^ bytes.len() as u64;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = mix(sum ^ u64::from_le_bytes(word));
        }
        (mix(sum ^ self.keys[1]) >> 48) as u16 | 1
    }

    /// The signature on three words.
    pub fn sign(&self, words: [u64; 3]) -> u64 {
        let [first, second] = self.keys;
        let mut state = [
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ];
        // The last word holds the length of the message in its upper byte.
        for word in words.into_iter().chain([24 << 56]) {
            state[3] ^= word;
            sip_round(&mut state);
            sip_round(&mut state);
            state[0] ^= word;
        }
        state[2] ^= 0xff;
        (0..4).for_each(|_| sip_round(&mut state));
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

#[inline(always)]
fn sip_round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

/// Spreads the bits of a number over all 64 (the finaliser of splitmix64).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut stream = Stream::seeded(42, 54);
        let drawn: Vec<u32> = (0..6).map(|_| stream.next_u32()).collect();
        assert_eq!(drawn, [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e]);
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF, "first output of splitmix64 with seed 0");
    }

    #[test]
    fn names_make_streams_that_differ_and_repeat() {
        let drawn = |seed, name: &str| Stream::named(seed, name).next_u64();
        assert_eq!(drawn(42, "robot 7"), drawn(42, "robot 7"));
        assert_ne!(drawn(42, "robot 7"), drawn(42, "robot 8"));
        assert_ne!(drawn(42, "robot 7"), drawn(43, "robot 7"));
    }

    #[test]
    fn the_signature_is_the_published_one() {
        // The reference vector of SipHash-2-4 for the key 00..0f and the message 00..17 (24 bytes).
        let word = |from: u8| u64::from_le_bytes(std::array::from_fn(|place| from + place as u8));
        let seal = Seal { keys: [word(0), word(8)] };
        assert_eq!(seal.sign([word(0), word(8), word(16)]).to_le_bytes(), REFERENCE_24);
        assert_ne!(Seal::random(), Seal::random());
    }

    /// Row 24 of the vectors that come with the reference implementation.
    const REFERENCE_24: [u8; 8] = [0x94, 0xaf, 0x49, 0xf6, 0xc6, 0x50, 0xad, 0xb8];

    #[test]
    fn units_are_uniform() {
        let mut stream = Stream::new(1, 1);
        let mean = (0..100_000).map(|_| stream.unit()).sum::<f64>() / 100_000.0;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        assert!((0..1000).all(|_| stream.below(7) < 7));
        assert_eq!(stream.below(0), 0);
    }
}
