//! The keyed hash under which names and URLs are kept.

use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// The key of a compilation's hashes: 128 bits that are drawn at random and that no client learns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; 16]);

impl HashKey {
    /// A key of these bytes, which come from the system's source of randomness.
    pub fn of(bytes: [u8; 16]) -> HashKey {
        HashKey(bytes)
    }

    /// Its bytes, for the file.
    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The hash of a text.
    pub(crate) fn hash(&self, text: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(text);
        hasher.finish()
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(hidden)")
    }
}
