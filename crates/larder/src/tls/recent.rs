//! A bounded map that keeps what was used lately, in constant time for each operation.

use std::collections::HashMap;
use std::hash::Hash;

/// Two generations of entries: what is used moves into the young one; when that is half of `max`, the old
/// one is dropped and the young one becomes old. Nothing is ever scanned.
pub(super) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    max: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    /// Keeps at most `max` entries.
    pub(super) fn new(max: usize) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), max: max.max(2) }
    }

    /// The value of `key`.
    pub(super) fn find(&mut self, key: &K) -> Option<&mut V> {
        if !self.young.contains_key(key) {
            let (key, value) = self.old.remove_entry(key)?;
            self.insert(key, value);
        }
        self.young.get_mut(key)
    }

    /// Remembers `value` for `key`.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.max / 2 && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Forgets `key`.
    pub(super) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.young.values().chain(self.old.values())
    }

    /// Entries kept now.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Host;

    #[test]
    fn the_bound_holds_and_what_is_used_stays() {
        let mut recent = Recent::new(8);
        let host = |n: usize| Host::parse(&format!("h{n}.example")).unwrap();
        recent.insert(host(0), 0);
        for n in 1..1_000 {
            recent.insert(host(n), n);
            assert_eq!(recent.find(&host(0)), Some(&mut 0), "after {n}");
            assert!(recent.len() <= 8, "{} entries", recent.len());
        }
        assert_eq!(recent.find(&host(500)), None);
        recent.remove(&host(0));
        assert_eq!(recent.find(&host(0)), None);
    }
}
