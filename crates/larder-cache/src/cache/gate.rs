//! The gate: whether purges that were made elsewhere are known here up to now.
//!
//! A cache whose purges come from a log that it shares with others opens the gate for a while each time it has heard all of that
//! log. While the gate is shut, nothing stored is used before its origin has validated it, so that a purge which this cache could
//! not hear of is never passed over. A cache without such a log never shuts it, and a hit pays for one relaxed load.

use larder_wire::date::Stamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// The gate of a cache; open for good until [`Gate::open_until`] is called.
#[derive(Debug)]
pub struct Gate {
    /// Seconds of the wall clock.
    shut_from: AtomicU64,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { shut_from: AtomicU64::new(u64::MAX) }
    }
}

impl Gate {
    /// Open before that time, shut from then on. The time is a part of the gate so that it shuts also where nobody comes to shut it:
    /// in a process that was stopped for a while.
    pub fn open_until(&self, shut_from: Stamp) {
        self.shut_from.store(shut_from.0, Ordering::Relaxed);
    }

    /// Shut until it is opened again.
    pub fn shut(&self) {
        self.shut_from.store(0, Ordering::Relaxed);
    }

    /// Open for good: this cache hears of all purges by itself, or what is stored is to be used whatever others purged.
    pub fn open(&self) {
        self.shut_from.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether nothing stored may be used at `now` without its origin.
    #[inline]
    pub fn is_shut(&self, now: Stamp) -> bool {
        now.0 >= self.shut_from.load(Ordering::Relaxed)
    }
}
