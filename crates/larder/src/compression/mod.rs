//! Codes bodies on their way into the store (docs/compression.md): the coders, and how many work at once. Which response is
//! coded decides `fetch::compressed`.

mod coder;

pub use coder::{Coder, Step};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bodies that are being coded.
#[derive(Debug, Default)]
pub struct UnderWay(Arc<AtomicUsize>);

/// A place among the bodies that are being coded at once. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl UnderWay {
    /// A place, while fewer bodies than that are being coded.
    pub fn begin(&self, codings_max: usize) -> Option<Place> {
        let more = |count: usize| (count < codings_max).then_some(count + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(Arc::clone(&self.0)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
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
        let under_way = UnderWay::default();
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
