//! Codes bodies on their way into the store (docs/compression.md): the coders, and how many work at once. Which response is
//! coded decides `fetch::compressed`.

mod coder;

pub use coder::{Coder, Step};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Counts the bodies that are being coded, and has their coders take turns.
#[derive(Debug)]
pub struct UnderWay {
    bodies: Arc<AtomicUsize>,
    turns: Semaphore,
}

/// A place among the bodies that are being coded at once. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl UnderWay {
    /// For a server with so many workers. Half as many coders work at the same moment: however many bodies are coded, the workers have
    /// half of the processors.
    pub fn new(workers: usize) -> UnderWay {
        UnderWay { bodies: Arc::default(), turns: Semaphore::new(workers.div_ceil(2).max(1)) }
    }

    /// Waits for the turn of one step, which lasts until the result is dropped; first come, first served.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // The error is that of a closed semaphore, and nobody closes this one.
        self.turns.acquire().await.ok()
    }

    /// A place, while fewer bodies than that are being coded.
    pub fn begin(&self, codings_max: usize) -> Option<Place> {
        let more = |count: usize| (count < codings_max).then_some(count + 1);
        self.bodies.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(Arc::clone(&self.bodies)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.bodies.load(Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_and_come_back() {
        let under_way = UnderWay::new(1);
        let first = under_way.begin(2).unwrap();
        let second = under_way.begin(2).unwrap();
        assert!(under_way.begin(2).is_none());
        drop(first);
        assert_eq!(under_way.count(), 1);
        assert!(under_way.begin(2).is_some());
        drop(second);
        assert_eq!(under_way.count(), 0);
        assert!(under_way.begin(0).is_none());
    }
}
