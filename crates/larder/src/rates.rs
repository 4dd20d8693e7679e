//! Requests counted by rules with a rate, and bytes under limits of bandwidth. All workers share the counts: a client's connections
//! lie on several of them.

use crate::clock;
use larder_rules::bandwidth::{Bandwidth, Buckets};
use larder_rules::rate::{RateLimit, RateTable};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The counted requests and bytes of all clients.
#[derive(Debug)]
pub struct Rates {
    table: RateTable,
    buckets: Buckets,
    begun: Instant,
}

impl Default for Rates {
    fn default() -> Rates {
        let seed = |name: &str| RandomState::new().hash_one(name);
        Rates {
            table: RateTable::new(seed("rates")),
            buckets: Buckets::new(seed("bandwidth")),
            begun: clock::instant(),
        }
    }
}

impl Rates {
    /// Counts a request of `key` under the rule of this name. `Err` has the seconds after which another one is permitted.
    pub fn count(&self, limit: &RateLimit, (rule, key): (&str, &[u8]), now: Instant) -> Result<(), u64> {
        let micros = now.saturating_duration_since(self.begun).as_micros();
        self.table.count(limit, (rule, key), u64::try_from(micros).unwrap_or(u64::MAX / 2))
    }

    /// Takes bytes out of the bucket that `key` has under a limit; gives how long it is until they may be sent.
    pub fn take(&self, limit: &Bandwidth, key: &[u8], bytes: u64, now: Instant) -> Duration {
        let nanos = now.saturating_duration_since(self.begun).as_nanos();
        // A bucket that nobody took from is full from the start on.
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX / 4).saturating_add(1 << 50);
        Duration::from_nanos(self.buckets.take(limit, key, bytes, nanos))
    }
}
