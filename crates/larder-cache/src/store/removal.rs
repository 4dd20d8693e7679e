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

/// One folder's part in a removal. A part that is dropped before it is reported has failed.
pub(super) struct RemovalPart {
    removal: Arc<Removal>,
    is_done: bool,
}

impl RemovalPart {
    /// The first part, and the outcome of all parts together: how many heads were removed.
    pub(super) fn first() -> (Fetching<Result<usize, NotDurable>>, RemovalPart) {
        let (fetching, waiting) = Fetching::pair(Err(NotDurable));
        let removal = Removal { heads: AtomicUsize::new(0), failed: AtomicBool::new(false), waiting: Some(waiting) };
        (fetching, RemovalPart { removal: Arc::new(removal), is_done: false })
    }

    /// One more part of the same removal.
    pub(super) fn another(&self) -> RemovalPart {
        RemovalPart { removal: Arc::clone(&self.removal), is_done: false }
    }

    /// The part is done.
    pub(super) fn report(mut self, outcome: Result<usize, NotDurable>) {
        self.is_done = outcome.is_ok();
        self.removal.heads.fetch_add(outcome.unwrap_or(0), Ordering::Relaxed);
    }
}

impl Drop for RemovalPart {
    fn drop(&mut self) {
        if !self.is_done {
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
            let (fetching, first) = RemovalPart::first();
            parts.into_iter().for_each(|part| first.another().report(part));
            first.report(Ok(0));
            assert_eq!(fetching.wait(), expected, "{parts:?}");
        }
        let (fetching, first) = RemovalPart::first();
        drop(first.another());
        first.report(Ok(5));
        assert_eq!(fetching.wait(), Err(NotDurable), "one was lost");
    }
}
