//! The name of an object: the text of its key, and how that text is hashed.
//!
//! Two keys are equal when their texts are equal, byte by byte; a hash only finds the place to
//! compare. So no collision, by chance or by design, answers one object's bytes for another
//! (invariant 1 of the design). Hashes are seeded by whoever owns the table, so nobody outside
//! can prepare URLs that crowd one bucket; there is no seed in this module.

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use larder_wire::Url;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// The name of an object in the cache. Cloning shares the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    text: Arc<[u8]>,
}

/// Reference counts that stand before the text of a key on the heap.
const SHARED_HEADER_BYTES: usize = 2 * size_of::<usize>();

impl Key {
    /// The key of a URL ([`Url::key_text`]).
    pub fn of_url(url: &Url) -> Key {
        let mut text = Vec::with_capacity(url.host.as_str().len() + url.path.len() + "https://:65535".len());
        url.key_text(&mut text);
        Key::from_text(text)
    }

    /// A key with this very text, for example a URL's text with a user or a variant after it.
    pub fn from_text(text: Vec<u8>) -> Key {
        Key { text: text.into() }
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Bytes that the text holds on the heap, once for all clones.
    pub fn heap_bytes(&self) -> usize {
        (SHARED_HEADER_BYTES + self.text.len()).next_multiple_of(size_of::<usize>())
    }
}

/// For logs: printable ASCII as it is, everything else (and the backslash) escaped, so that two keys
/// never print alike and no key breaks a log line.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.escape_ascii().fmt(f)
    }
}

/// The seed of a table's or a store's hashes. A server draws it at random when it starts; a test
/// chooses it; a store on disk remembers the one it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySeed(u64);

impl KeySeed {
    /// A seed of this value.
    pub fn new(seed: u64) -> KeySeed {
        KeySeed(seed)
    }

    /// The hash of a key's text for a table in memory (xxh3, 64 bits).
    pub fn hash(self, key_text: &[u8]) -> u64 {
        xxh3_64_with_seed(key_text, self.0)
    }

    /// The hash of a key's text where the text itself is far away (xxh3, 128 bits).
    pub fn fingerprint(self, key_text: &[u8]) -> u128 {
        xxh3_128_with_seed(key_text, self.0)
    }
}

#[cfg(test)]
mod tests {
    use larder_wire::{Host, Scheme};

    use super::*;

    #[test]
    fn a_url_is_kept_under_the_spelling_in_which_it_is_asked_for() {
        let url = |host: &str, port, path: &str| Url {
            scheme: Scheme::Https,
            host: Host::parse(host).unwrap(),
            port,
            path: path.into(),
        };
        let key = Key::of_url(&url("A.example", 443, "/%7Ea"));
        assert_eq!(key.text(), b"https://a.example/%7Ea");
        assert_eq!(key, Key::of_url(&url("a.EXAMPLE", 443, "/%7Ea")));
        assert_ne!(key, Key::of_url(&url("a.example", 443, "/~a")));
        assert_ne!(key, Key::of_url(&url("a.example", 444, "/%7Ea")));
    }

    #[test]
    fn keys_print_without_loss_and_on_one_line() {
        let print = |text: &[u8]| Key::from_text(text.to_vec()).to_string();
        assert_eq!(print(b"http://a/b?c=d"), "http://a/b?c=d");
        assert_eq!(print(b"a\nb\\n\xff\0"), "a\\nb\\\\n\\xff\\x00");
    }

    #[test]
    fn a_seed_changes_every_hash_and_a_clone_shares_the_text() {
        let key = Key::from_text(b"http://a.example/".to_vec());
        let (one, two) = (KeySeed::new(1), KeySeed::new(2));
        assert_ne!(one.hash(key.text()), two.hash(key.text()));
        assert_ne!(one.fingerprint(key.text()), two.fingerprint(key.text()));
        assert_eq!(one.hash(key.text()), KeySeed::new(1).hash(b"http://a.example/"));
        assert!(std::ptr::eq(key.text(), key.clone().text()));
        assert_eq!(key.heap_bytes(), 40);
    }
}
