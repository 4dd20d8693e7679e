//! How long a body waits for the disk before it passes by.

use crate::store::Store;
use std::task::Context;

/// A body waits for so long in all, and for a quarter of the time since its first wait: the disk makes it a third slower at most.
const WAIT_MILLIS: u64 = 500;
const WAIT_SHARE: u64 = 4;

/// The waits of one body for the disk, in milliseconds of [`Store::watched_at`].
#[derive(Debug, Default)]
pub(super) struct Patience {
    first: Option<u64>,
    since: Option<u64>,
    waited: u64,
}

impl Patience {
    /// There is no room: whether it goes on waiting, and is woken to ask again.
    pub(super) fn waits(&mut self, store: &Store, cx: &Context<'_>) -> bool {
        if !self.waits_at(store.watched_at()) {
            return false;
        }
        store.wake_at_watch(cx);
        true
    }

    /// There is room again.
    pub(super) fn goes_on(&mut self, store: &Store) {
        if let Some(since) = self.since.take() {
            self.waited += store.watched_at().saturating_sub(since);
        }
    }

    fn waits_at(&mut self, now: u64) -> bool {
        let (first, since) = (*self.first.get_or_insert(now), *self.since.get_or_insert(now));
        let waited = self.waited + now.saturating_sub(since);
        waited <= WAIT_MILLIS + now.saturating_sub(first) / WAIT_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_wait_ends() {
        let mut patience = Patience::default();
        assert!(patience.waits_at(10_000) && patience.waits_at(10_600));
        assert!(!patience.waits_at(10_700), "700 ms are more than 500 ms and a quarter");
    }

    #[test]
    fn a_long_body_waits_for_a_quarter_of_its_time() {
        let mut patience = Patience::default();
        for second in 0..1_000 {
            let begins = second * 1_000;
            assert!(patience.waits_at(begins) && patience.waits_at(begins + 240), "{second} s");
            patience.waited += 240;
            patience.since = None;
        }
        let gives_up = (1_000..2_000).find(|second| {
            patience.waited += 500;
            patience.since = None;
            !patience.waits_at(second * 1_000)
        });
        assert_eq!(gives_up, Some(1_041), "what it did not wait before counts");
    }
}
