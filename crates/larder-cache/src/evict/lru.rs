//! Least recently used: the order that everyone knows, kept as the yardstick for others.

use std::sync::Arc;

use super::shelf::Shelf;
use super::{Evict, Weighed};

/// Evicts the item whose last hit is the longest ago. A hit moves the item, under the policy's lock.
pub struct Lru<T> {
    shelf: Shelf<T, 1>,
}

const ALL: usize = 0;

impl<T: Weighed> Lru<T> {
    /// An empty order.
    pub fn new() -> Lru<T> {
        Lru { shelf: Shelf::new() }
    }
}

impl<T: Weighed> Default for Lru<T> {
    fn default() -> Lru<T> {
        Lru::new()
    }
}

impl<T: Weighed + Send + Sync> Evict<T> for Lru<T> {
    fn insert(&mut self, item: Arc<T>) {
        if self.shelf.place_of(&item).is_none() {
            self.shelf.push(ALL, item);
        }
    }

    fn hit(&mut self, item: &Arc<T>) {
        if let Some(place) = self.shelf.place_of(item) {
            self.shelf.move_to(ALL, place);
        }
    }

    fn remove(&mut self, item: &Arc<T>) -> bool {
        self.shelf.place_of(item).and_then(|place| self.shelf.take(place)).is_some()
    }

    fn resized(&mut self, item: &Arc<T>) {
        if let Some(place) = self.shelf.place_of(item) {
            self.shelf.resize(place);
        }
    }

    fn evict(&mut self) -> Option<Arc<T>> {
        let (place, _) = self.shelf.oldest(ALL)?;
        self.shelf.take(place)
    }

    fn bytes(&self) -> u64 {
        self.shelf.bytes(ALL)
    }

    fn len(&self) -> usize {
        self.shelf.len(ALL)
    }

    fn heap_bytes(&self) -> usize {
        self.shelf.heap_bytes()
    }
}
