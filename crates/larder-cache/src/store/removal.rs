//! A removal that several folders carry out: it is told when the last of them has, and durable if all were.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::fetching::{Fetching, Promise};

/// A removal that is in force and may be undone by the next start: a folder does not have it on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDurable;

impl std::fmt::Display for NotDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the removal is in force but not on disk in every folder: check the disks and repeat it")
    }
}

impl std::error::Error for NotDurable {}

struct Removal {
    heads: AtomicUsize,
    failed: AtomicBool,
    waiting: Option<Promise<Result<usize, NotDurable>>>,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let Some(waiting) = self.waiting.take() else { return };
        let heads = *self.heads.get_mut();
        waiting.give(if *self.failed.get_mut() { Err(NotDurable) } else { Ok(heads) });
    }
}

/// One folder's part in a removal. Dropped without a word, it failed.
pub(super) struct Share {
    removal: Arc<Removal>,
    told: bool,
}

impl Share {
    /// A first share, and what all of them will say together: how many heads went.
    pub(super) fn first() -> (Fetching<Result<usize, NotDurable>>, Share) {
        let (fetching, waiting) = Fetching::pair(Err(NotDurable));
        let removal = Removal { heads: AtomicUsize::new(0), failed: AtomicBool::new(false), waiting: Some(waiting) };
        (fetching, Share { removal: Arc::new(removal), told: false })
    }

    /// One more share of the same removal.
    pub(super) fn another(&self) -> Share {
        Share { removal: Arc::clone(&self.removal), told: false }
    }

    /// The part is done.
    pub(super) fn tell(mut self, outcome: Result<usize, NotDurable>) {
        self.told = outcome.is_ok();
        self.removal.heads.fetch_add(outcome.unwrap_or(0), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.told {
            self.removal.failed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_must_do_their_part() {
        let cases = [([Ok(1), Ok(2)], Ok(3)), ([Ok(1), Err(NotDurable)], Err(NotDurable)), ([Ok(0), Ok(0)], Ok(0))];
        for (parts, expected) in cases {
            let (fetching, first) = Share::first();
            parts.into_iter().for_each(|part| first.another().tell(part));
            first.tell(Ok(0));
            assert_eq!(fetching.wait(), expected, "{parts:?}");
        }
        let (fetching, first) = Share::first();
        drop(first.another());
        first.tell(Ok(5));
        assert_eq!(fetching.wait(), Err(NotDurable), "one was lost");
    }
}
