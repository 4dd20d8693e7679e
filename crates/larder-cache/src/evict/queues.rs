//! The queues of policies: doubly linked lists in one table, so that removing any item costs the same as
//! removing the oldest, and its memory is used again at once.
//!
//! A node costs 32 bytes and is used again. Links are numbers of nodes, not pointers.

use std::mem::size_of;
use std::sync::Arc;

use super::{Evictable, NOWHERE};

/// `QUEUES` queues of items over one table of nodes.
pub(super) struct Queues<T, const QUEUES: usize> {
    nodes: Vec<Node<T>>,
    /// First of the free nodes, linked by `older`.
    free: u32,
    queues: [Queue; QUEUES],
}

struct Node<T> {
    /// `None` in a free node.
    item: Option<Arc<T>>,
    /// As counted, whatever the item says by now.
    bytes: u64,
    newer: u32,
    older: u32,
    queue: u8,
}

#[derive(Clone, Copy)]
struct Queue {
    newest: u32,
    oldest: u32,
    len: usize,
    bytes: u64,
}

impl<T: Evictable, const QUEUES: usize> Queues<T, QUEUES> {
    pub(super) fn new() -> Self {
        let empty = Queue { newest: NOWHERE, oldest: NOWHERE, len: 0, bytes: 0 };
        Queues { nodes: Vec::new(), free: NOWHERE, queues: [empty; QUEUES] }
    }

    pub(super) fn len(&self, queue: usize) -> usize {
        self.queues[queue].len
    }

    pub(super) fn bytes(&self, queue: usize) -> u64 {
        self.queues[queue].bytes
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<T>>()
    }

    /// The item's node, if it is in one of these queues: a mark left by another policy does not fit.
    pub(super) fn node_of(&self, item: &Arc<T>) -> Option<u32> {
        let node = item.mark().node();
        let here = self.nodes.get(node as usize)?.item.as_ref()?;
        Arc::ptr_eq(here, item).then_some(node)
    }

    /// Puts the item in front of the queue.
    pub(super) fn push(&mut self, queue: usize, item: Arc<T>) {
        let node = self.free_node();
        let bytes = item.bytes();
        item.mark().set_node(node);
        let slot = &mut self.nodes[node as usize];
        slot.item = Some(item);
        slot.bytes = bytes;
        self.link(queue, node);
    }

    /// The oldest item of the queue.
    pub(super) fn oldest(&self, queue: usize) -> Option<(u32, &Arc<T>)> {
        let node = self.queues[queue].oldest;
        Some((node, self.nodes.get(node as usize)?.item.as_ref()?))
    }

    /// Moves the item in this node to the front of a queue.
    pub(super) fn move_to(&mut self, queue: usize, node: u32) {
        self.unlink(node);
        self.link(queue, node);
    }

    /// Takes the item in this node out of its queue.
    pub(super) fn take(&mut self, node: u32) -> Option<Arc<T>> {
        let item = self.nodes[node as usize].item.take()?;
        self.unlink(node);
        item.mark().set_node(NOWHERE);
        self.nodes[node as usize].older = self.free;
        self.free = node;
        self.shrink_if_empty();
        Some(item)
    }

    /// Counts the bytes that the item has now.
    pub(super) fn resize(&mut self, node: u32) {
        let slot = &mut self.nodes[node as usize];
        let Some(item) = &slot.item else { return };
        let (before, now) = (slot.bytes, item.bytes());
        slot.bytes = now;
        let queue = &mut self.queues[usize::from(slot.queue)];
        queue.bytes = queue.bytes - before + now;
    }

    fn free_node(&mut self) -> u32 {
        if self.free != NOWHERE {
            let node = self.free;
            self.free = self.nodes[node as usize].older;
            return node;
        }
        let node = u32::try_from(self.nodes.len()).unwrap_or(NOWHERE);
        assert!(node != NOWHERE, "a table has fewer than {NOWHERE} nodes");
        self.nodes.push(Node { item: None, bytes: 0, newer: NOWHERE, older: NOWHERE, queue: 0 });
        node
    }

    fn link(&mut self, queue: usize, node: u32) {
        let list = &mut self.queues[queue];
        let next = std::mem::replace(&mut list.newest, node);
        list.len += 1;
        list.bytes += self.nodes[node as usize].bytes;
        match self.nodes.get_mut(next as usize) {
            Some(neighbour) => neighbour.newer = node,
            None => list.oldest = node,
        }
        let slot = &mut self.nodes[node as usize];
        (slot.newer, slot.older, slot.queue) = (NOWHERE, next, queue as u8);
    }

    fn unlink(&mut self, node: u32) {
        let Node { bytes, newer, older, queue, .. } = self.nodes[node as usize];
        let list = &mut self.queues[usize::from(queue)];
        list.len -= 1;
        list.bytes -= bytes;
        match self.nodes.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => list.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => list.oldest = newer,
        }
    }

    /// Gives the table back when all queues are empty; one in use is as large as it once had to be.
    fn shrink_if_empty(&mut self) {
        if self.queues.iter().all(|queue| queue.len == 0) && self.nodes.len() > 1024 {
            self.nodes = Vec::new();
            self.free = NOWHERE;
        }
    }
}
