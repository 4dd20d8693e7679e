//! Least recently used: the order that everyone knows, kept as the yardstick for others.

use std::sync::Arc;

use super::queues::Queues;
use super::{Evict, Evictable};

/// Evicts the item whose last hit is the longest ago. A hit moves the item, under the policy's lock.
pub struct Lru<T> {
    queues: Queues<T, 1>,
}

const ALL: usize = 0;

impl<T: Evictable> Lru<T> {
    /// An empty order.
    pub fn new() -> Lru<T> {
        Lru { queues: Queues::new() }
    }
}

impl<T: Evictable> Default for Lru<T> {
    fn default() -> Lru<T> {
        Lru::new()
    }
}

impl<T: Evictable + Send + Sync> Evict<T> for Lru<T> {
    fn insert(&mut self, item: Arc<T>) {
        if self.queues.node_of(&item).is_none() {
            self.queues.push(ALL, item);
        }
    }

    fn hit(&mut self, item: &Arc<T>) {
        if let Some(node) = self.queues.node_of(item) {
            self.queues.move_to(ALL, node);
        }
    }

    fn remove(&mut self, item: &Arc<T>) -> bool {
        self.queues.node_of(item).and_then(|node| self.queues.take(node)).is_some()
    }

    fn resized(&mut self, item: &Arc<T>) {
        if let Some(node) = self.queues.node_of(item) {
            self.queues.resize(node);
        }
    }

    fn evict(&mut self) -> Option<Arc<T>> {
        let (node, _) = self.queues.oldest(ALL)?;
        self.queues.take(node)
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(ALL)
    }

    fn len(&self) -> usize {
        self.queues.len(ALL)
    }

    fn heap_bytes(&self) -> usize {
        self.queues.heap_bytes()
    }
}
