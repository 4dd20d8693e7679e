//! The names that were evicted last: fingerprints only, a first-in first-out list of bounded length.
//!
//! A fingerprint is 32 bits, so one name in some thousands of millions is taken for another; the price
//! is an object that is kept a little longer than it deserves. An entry costs between 15 and 45 bytes,
//! by how full its tables are.

use std::collections::VecDeque;
use std::mem::size_of;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Remembers the last names that were evicted unpopular.
pub(super) struct Ghost {
    /// In order of arrival; the front is number `first`.
    order: VecDeque<u32>,
    first: u32,
    table: HashTable<Remembered>,
}

#[derive(Clone, Copy)]
struct Remembered {
    fingerprint: u32,
    /// Which arrival this is; numbers wrap around, long after the list has moved on.
    number: u32,
}

impl Ghost {
    pub(super) fn new() -> Ghost {
        Ghost { order: VecDeque::new(), first: 0, table: HashTable::new() }
    }

    /// Remembers a name, and forgets the oldest ones beyond `names_max`.
    pub(super) fn remember(&mut self, id_hash: u64, names_max: usize) {
        let fingerprint = fingerprint(id_hash);
        let number = self.first.wrapping_add(self.order.len() as u32);
        self.order.push_back(fingerprint);
        match self.table.entry(
            spread(fingerprint),
            |there| there.fingerprint == fingerprint,
            |it| spread(it.fingerprint),
        ) {
            Entry::Occupied(mut there) => there.get_mut().number = number,
            Entry::Vacant(free) => {
                free.insert(Remembered { fingerprint, number });
            }
        }
        while self.order.len() > names_max {
            self.forget_oldest();
        }
    }

    /// Whether the name is remembered; it no longer is afterwards.
    pub(super) fn recall(&mut self, id_hash: u64) -> bool {
        let fingerprint = fingerprint(id_hash);
        match self.table.find_entry(spread(fingerprint), |there| there.fingerprint == fingerprint) {
            Ok(there) => {
                there.remove();
                true
            }
            Err(_) => false,
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.order.capacity() * size_of::<u32>() + self.table.allocation_size()
    }

    /// The oldest arrival goes; its name too, unless it was recalled or has arrived again since.
    fn forget_oldest(&mut self) {
        let Some(fingerprint) = self.order.pop_front() else { return };
        let number = self.first;
        self.first = self.first.wrapping_add(1);
        let same = |there: &Remembered| there.fingerprint == fingerprint && there.number == number;
        if let Ok(there) = self.table.find_entry(spread(fingerprint), same) {
            there.remove();
        }
    }
}

fn fingerprint(id_hash: u64) -> u32 {
    (id_hash >> 32) as u32 ^ id_hash as u32
}

/// The table takes its tag from the top bits and its bucket from the lowest.
fn spread(fingerprint: u32) -> u64 {
    u64::from(fingerprint).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_forgotten_first() {
        let mut ghost = Ghost::new();
        (0..10).for_each(|id| ghost.remember(id, 4));
        let remembered: Vec<u64> = (0..10).filter(|&id| ghost.recall(id)).collect();
        assert_eq!(remembered, [6, 7, 8, 9]);
        assert!(!ghost.recall(9), "a name is recalled once");
    }

    #[test]
    fn a_name_that_came_again_outlives_its_first_arrival() {
        let mut ghost = Ghost::new();
        for id in [1, 2, 1, 3] {
            ghost.remember(id, 3);
        }
        assert!(ghost.recall(1));
        ghost.remember(1, 3);
        for id in [4, 5] {
            ghost.remember(id, 3);
        }
        assert!(ghost.recall(1), "the node of the earlier arrival was forgotten, not the name");
    }

    #[test]
    fn it_never_holds_more_than_its_limit() {
        let mut ghost = Ghost::new();
        for id in 0..100_000u64 {
            ghost.remember(id.wrapping_mul(0x9E37_79B9_7F4A_7C15), 1000);
        }
        assert!(ghost.order.len() <= 1000 && ghost.table.len() <= 1000);
        assert!(ghost.heap_bytes() < 45_000, "{}", ghost.heap_bytes());
        ghost.remember(1, 0);
        assert_eq!((ghost.order.len(), ghost.table.len()), (0, 0));
    }
}
