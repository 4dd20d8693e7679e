//! A bounded map that keeps what was used lately, in constant time for each operation.

use larder_wire::Host;
use std::collections::HashMap;

/// Two generations of entries: what is used moves into the young one; when that is half of `max`, the old
/// one is dropped and the young one becomes old. Nothing is ever scanned.
pub(super) struct Recent<V> {
    young: HashMap<Host, V>,
    old: HashMap<Host, V>,
    max: usize,
}

impl<V: Clone> Recent<V> {
    /// Keeps at most `max` entries.
    pub(super) fn new(max: usize) -> Recent<V> {
        Recent { young: HashMap::new(), old: HashMap::new(), max: max.max(2) }
    }

    /// What is known of `host`.
    pub(super) fn find(&mut self, host: &Host) -> Option<V> {
        if let Some(value) = self.young.get(host) {
            return Some(value.clone());
        }
        let (host, value) = self.old.remove_entry(host)?;
        self.insert(host, value.clone());
        Some(value)
    }

    /// Remembers `value` for `host`.
    pub(super) fn insert(&mut self, host: Host, value: V) {
        self.old.remove(&host);
        if self.young.len() >= self.max / 2 && !self.young.contains_key(&host) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(host, value);
    }

    /// Forgets `host`.
    pub(super) fn remove(&mut self, host: &Host) {
        self.young.remove(host);
        self.old.remove(host);
    }

    /// Entries kept now.
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_what_is_used_stays() {
        let mut recent = Recent::new(8);
        let host = |n: usize| Host::parse(&format!("h{n}.example")).unwrap();
        recent.insert(host(0), 0);
        for n in 1..1_000 {
            recent.insert(host(n), n);
            assert_eq!(recent.find(&host(0)), Some(0), "after {n}");
            assert!(recent.len() <= 8, "{} entries", recent.len());
        }
        assert_eq!(recent.find(&host(500)), None);
        recent.remove(&host(0));
        assert_eq!(recent.find(&host(0)), None);
    }
}
