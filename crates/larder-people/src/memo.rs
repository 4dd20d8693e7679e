//! A table of values that hold for a time, with a limit of entries and of bytes. The oldest entry goes first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Instant;

/// The table.
#[derive(Debug)]
pub struct Memo<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Keys in the order in which they came, each with the number of its entry.
    order: VecDeque<(K, u64)>,
    bytes: usize,
    next: u64,
    entries_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    until: Instant,
    bytes: usize,
    number: u64,
}

impl<K: Hash + Eq + Clone, V> Memo<K, V> {
    /// An empty table.
    pub fn new(entries_max: usize, bytes_max: usize) -> Memo<K, V> {
        Memo { entries: HashMap::new(), order: VecDeque::new(), bytes: 0, next: 0, entries_max, bytes_max }
    }

    /// The value for a key, and until when it holds; `None` where there is none that still does.
    pub fn find<Q>(&self, key: &Q, now: Instant) -> Option<(&V, Instant)>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let entry = self.entries.get(key).filter(|entry| now < entry.until)?;
        Some((&entry.value, entry.until))
    }

    /// Keeps a value of so many bytes until then. One that is larger than the table is not kept.
    pub fn keep(&mut self, key: K, value: V, bytes: usize, until: Instant) {
        self.drop_entry(&key);
        if bytes > self.bytes_max || self.entries_max == 0 {
            return;
        }
        self.next += 1;
        let entry = Entry { value, until, bytes, number: self.next };
        self.order.push_back((key.clone(), self.next));
        self.entries.insert(key, entry);
        self.bytes += bytes;
        while self.bytes > self.bytes_max || self.entries.len() > self.entries_max {
            let Some((key, number)) = self.order.pop_front() else { return };
            if self.entries.get(&key).is_some_and(|entry| entry.number == number) {
                self.drop_entry(&key);
            }
        }
        // Keys of entries that were replaced stay in the order until their turn comes.
        if self.order.len() > 2 * self.entries.len() + 16 {
            let entries = &self.entries;
            self.order.retain(|(key, number)| entries.get(key).is_some_and(|entry| entry.number == *number));
        }
    }

    fn drop_entry(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// The number of entries, those that hold no longer included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_value_holds_until_its_time() {
        let (mut memo, now) = (Memo::new(10, 100), Instant::now());
        memo.keep("a", 1, 10, now + Duration::from_secs(5));
        let later = |seconds| memo.find(&"a", now + Duration::from_secs(seconds)).map(|(value, _)| *value);
        assert_eq!((later(0), later(4), later(5)), (Some(1), Some(1), None));
    }

    #[test]
    fn the_oldest_go_first() {
        let (mut memo, now) = (Memo::new(10, 25), Instant::now());
        let until = now + Duration::from_secs(1);
        memo.keep("a", 1, 10, until);
        memo.keep("b", 2, 10, until);
        memo.keep("a", 3, 10, until);
        memo.keep("c", 4, 10, until);
        assert!(memo.find(&"b", now).is_none(), "the entry for `a` came again after it");
        assert_eq!(memo.find(&"a", now).map(|found| *found.0), Some(3));
        memo.keep("d", 5, 26, until);
        assert!(memo.find(&"d", now).is_none() && memo.len() == 2);
        memo.clear();
        assert!(memo.is_empty() && memo.bytes() == 0);
    }

    proptest! {
        #[test]
        fn limits_hold(keys in proptest::collection::vec((0_u8..20, 0_usize..40), 0..200)) {
            let (mut memo, now) = (Memo::new(5, 100), Instant::now());
            for (key, bytes) in keys {
                memo.keep(key, (), bytes, now);
                prop_assert!(memo.len() <= 5 && memo.bytes() <= 100);
                prop_assert!(memo.order.len() <= 2 * memo.len() + 17);
            }
        }
    }
}
