//! How long a body waits for the disk before it passes by.

use crate::store::Store;
use std::task::Context;

/// How long a body waits: so many milliseconds in all, and so many quarters of the time since its first wait.
#[derive(Clone, Copy)]
struct Allowed {
    millis: u64,
    quarters: u64,
}

/// The disk is behind, or does nothing: it makes a body a third slower at most.
const PRESSED: Allowed = Allowed { millis: 500, quarters: 1 };

/// The disk gets on, and is slower than the origin of this one body, which is worth to be stored: it makes it four times slower at most.
const USUAL: Allowed = Allowed { millis: 2_000, quarters: 3 };

/// The waits of one body for the disk, in milliseconds of [`Store::watched_at`].
#[derive(Debug, Default)]
pub(super) struct Patience {
    first: Option<u64>,
    since: Option<u64>,
    waited: u64,
}

impl Patience {
    /// There is no room: whether it goes on waiting, and is woken to ask again.
    pub(super) fn waits(&mut self, store: &Store, key: &[u8], cx: &Context<'_>) -> bool {
        let allowed = if store.is_behind(key) || store.is_stalled(key) { PRESSED } else { USUAL };
        if !self.waits_at(store.watched_at(), allowed) {
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

    fn waits_at(&mut self, now: u64, allowed: Allowed) -> bool {
        let (first, since) = (*self.first.get_or_insert(now), *self.since.get_or_insert(now));
        let waited = self.waited + now.saturating_sub(since);
        waited <= allowed.millis + now.saturating_sub(first) / 4 * allowed.quarters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_wait_ends() {
        let mut patience = Patience::default();
        assert!(patience.waits_at(10_000, PRESSED) && patience.waits_at(10_600, PRESSED));
        assert!(!patience.waits_at(10_700, PRESSED), "700 ms are more than 500 ms and a quarter");
        assert!(patience.waits_at(17_900, USUAL) && !patience.waits_at(18_100, USUAL));
    }

    #[test]
    fn a_long_body_waits_for_a_quarter_of_its_time() {
        let mut patience = Patience::default();
        for second in 0..1_000 {
            let begins = second * 1_000;
            assert!(patience.waits_at(begins, PRESSED) && patience.waits_at(begins + 240, PRESSED), "{second} s");
            patience.waited += 240;
            patience.since = None;
        }
        let gives_up = (1_000..2_000).find(|second| {
            patience.waited += 500;
            patience.since = None;
            !patience.waits_at(second * 1_000, PRESSED)
        });
        assert_eq!(gives_up, Some(1_041), "what it did not wait before counts");
    }
}
