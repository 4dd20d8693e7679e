//! Eviction policies: which object is evicted when the budget is full.
//!
//! A policy orders items and adds up their bytes; it holds no budget and starts nothing. Its owner calls
//! [`Evict::evict`] until [`Evict::bytes`] (and whatever else the budget counts) fits, so a budget can
//! change while the cache runs. An item that must not go (it is being written) is simply not inserted yet.
//! Two policies: [`S3Fifo`], where a hit takes no lock, and [`Lru`], the yardstick. [`replay`] plays a
//! trace through either.

mod ghost;
mod lru;
mod queues;
mod replay;
mod s3_fifo;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

pub use lru::Lru;
pub use replay::{Hits, Request, Sample, replay};
pub use s3_fifo::S3Fifo;

/// The facts of an item that a policy needs.
pub trait Evictable {
    /// Bytes that the item counts against the budget, overhead included. A policy reads it when the item is
    /// inserted and when it is [`Evict::resized`], and counts that figure until then.
    fn bytes(&self) -> u64;

    /// The field of the item in which policies keep their mark.
    fn mark(&self) -> &EvictionMark;

    /// A hash of the item's name, the same when it comes back ([`crate::index::Index::hash_of`]): by it
    /// a policy remembers what it has let go.
    fn id_hash(&self) -> u64;
}

/// An order of eviction. An item has a place in at most one policy at a time.
pub trait Evict<T: Evictable>: Send {
    /// Takes the item in. One that has its place here already stays there.
    fn insert(&mut self, item: Arc<T>);

    /// The item was asked for. [`S3Fifo`] needs only [`EvictionMark::hit`], which takes no lock: callers that
    /// know they use it call that and leave the policy's lock alone.
    fn hit(&mut self, item: &Arc<T>);

    /// Takes the item out, now and wholly; says whether it had a place here.
    fn remove(&mut self, item: &Arc<T>) -> bool;

    /// The item's [`Evictable::bytes`] have changed: counts the new figure. Nothing happens when the item
    /// has no place here.
    fn resized(&mut self, item: &Arc<T>);

    /// Lets one item go; `None` only when there is none. Its bytes are no longer counted.
    fn evict(&mut self) -> Option<Arc<T>>;

    /// The bytes of all items here.
    fn bytes(&self) -> u64;

    /// How many items are here.
    fn len(&self) -> usize;

    /// Whether no item is here.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the policy itself holds on the heap, without the items.
    fn heap_bytes(&self) -> usize;
}

/// A policy's mark in an item: how often it was hit of late, and where its place is. Eight bytes.
#[derive(Debug)]
pub struct EvictionMark {
    hits: AtomicU8,
    /// The number of a node in the policy's queues, written under the policy's lock only; [`NOWHERE`] without one.
    node: AtomicU32,
}

/// More hits than this are not told apart: two bits.
const HITS_MAX: u8 = 3;

/// No node. A table never has so many.
const NOWHERE: u32 = u32::MAX;

impl EvictionMark {
    /// The mark of an item that is in no policy.
    pub fn new() -> EvictionMark {
        EvictionMark { hits: AtomicU8::new(0), node: AtomicU32::new(NOWHERE) }
    }

    /// The item was asked for. No lock, and no write at all once the item counts as popular, so a hot
    /// object's cache line stays shared between cores. Two hits at the same instant may count as one.
    pub fn hit(&self) {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits < HITS_MAX {
            self.hits.store(hits + 1, Ordering::Relaxed);
        }
    }

    /// The hits since the item was inserted or last given another chance, 3 at most.
    pub fn hits(&self) -> u8 {
        self.hits.load(Ordering::Relaxed)
    }

    fn set_hits(&self, hits: u8) {
        self.hits.store(hits, Ordering::Relaxed);
    }

    fn node(&self) -> u32 {
        self.node.load(Ordering::Relaxed)
    }

    fn set_node(&self, node: u32) {
        self.node.store(node, Ordering::Relaxed);
    }
}

impl Default for EvictionMark {
    fn default() -> EvictionMark {
        EvictionMark::new()
    }
}
