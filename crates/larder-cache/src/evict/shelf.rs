//! Where policies keep their items: queues as doubly linked lists in one table, so that taking out any
//! item costs the same as taking the oldest, and nothing that was taken out lingers.
//!
//! A place costs 32 bytes and is used again. Links are numbers of places, not pointers.

use std::mem::size_of;
use std::sync::Arc;

use super::{NOWHERE, Weighed};

/// `QUEUES` queues of items over one table of places.
pub(super) struct Shelf<T, const QUEUES: usize> {
    places: Vec<Place<T>>,
    /// First of the free places, linked by `older`.
    free: u32,
    queues: [Queue; QUEUES],
}

struct Place<T> {
    /// `None` in a free place.
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

impl<T: Weighed, const QUEUES: usize> Shelf<T, QUEUES> {
    pub(super) fn new() -> Self {
        let empty = Queue { newest: NOWHERE, oldest: NOWHERE, len: 0, bytes: 0 };
        Shelf { places: Vec::new(), free: NOWHERE, queues: [empty; QUEUES] }
    }

    pub(super) fn len(&self, queue: usize) -> usize {
        self.queues[queue].len
    }

    pub(super) fn bytes(&self, queue: usize) -> u64 {
        self.queues[queue].bytes
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place<T>>()
    }

    /// The item's place, if it has one on this shelf: a mark left by another policy does not fit.
    pub(super) fn place_of(&self, item: &Arc<T>) -> Option<u32> {
        let place = item.seat().place();
        let here = self.places.get(place as usize)?.item.as_ref()?;
        Arc::ptr_eq(here, item).then_some(place)
    }

    /// Puts the item in front of the queue.
    pub(super) fn push(&mut self, queue: usize, item: Arc<T>) {
        let place = self.free_place();
        let bytes = item.bytes();
        item.seat().set_place(place);
        let slot = &mut self.places[place as usize];
        slot.item = Some(item);
        slot.bytes = bytes;
        self.link(queue, place);
    }

    /// The oldest item of the queue.
    pub(super) fn oldest(&self, queue: usize) -> Option<(u32, &Arc<T>)> {
        let place = self.queues[queue].oldest;
        Some((place, self.places.get(place as usize)?.item.as_ref()?))
    }

    /// Moves the item in this place to the front of a queue.
    pub(super) fn move_to(&mut self, queue: usize, place: u32) {
        self.unlink(place);
        self.link(queue, place);
    }

    /// Takes the item in this place off the shelf.
    pub(super) fn take(&mut self, place: u32) -> Option<Arc<T>> {
        let item = self.places[place as usize].item.take()?;
        self.unlink(place);
        item.seat().set_place(NOWHERE);
        self.places[place as usize].older = self.free;
        self.free = place;
        self.shrink_if_empty();
        Some(item)
    }

    /// Counts the bytes that the item has now.
    pub(super) fn resize(&mut self, place: u32) {
        let slot = &mut self.places[place as usize];
        let Some(item) = &slot.item else { return };
        let (before, now) = (slot.bytes, item.bytes());
        slot.bytes = now;
        let queue = &mut self.queues[usize::from(slot.queue)];
        queue.bytes = queue.bytes - before + now;
    }

    fn free_place(&mut self) -> u32 {
        if self.free != NOWHERE {
            let place = self.free;
            self.free = self.places[place as usize].older;
            return place;
        }
        let place = u32::try_from(self.places.len()).unwrap_or(NOWHERE);
        assert!(place != NOWHERE, "a shelf has fewer than {NOWHERE} places");
        self.places.push(Place { item: None, bytes: 0, newer: NOWHERE, older: NOWHERE, queue: 0 });
        place
    }

    fn link(&mut self, queue: usize, place: u32) {
        let list = &mut self.queues[queue];
        let next = std::mem::replace(&mut list.newest, place);
        list.len += 1;
        list.bytes += self.places[place as usize].bytes;
        match self.places.get_mut(next as usize) {
            Some(neighbour) => neighbour.newer = place,
            None => list.oldest = place,
        }
        let slot = &mut self.places[place as usize];
        (slot.newer, slot.older, slot.queue) = (NOWHERE, next, queue as u8);
    }

    fn unlink(&mut self, place: u32) {
        let Place { bytes, newer, older, queue, .. } = self.places[place as usize];
        let list = &mut self.queues[usize::from(queue)];
        list.len -= 1;
        list.bytes -= bytes;
        match self.places.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => list.newest = older,
        }
        match self.places.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => list.oldest = newer,
        }
    }

    /// An emptied shelf gives its table back; one in use is as large as it once had to be.
    fn shrink_if_empty(&mut self) {
        if self.queues.iter().all(|queue| queue.len == 0) && self.places.len() > 1024 {
            self.places = Vec::new();
            self.free = NOWHERE;
        }
    }
}
