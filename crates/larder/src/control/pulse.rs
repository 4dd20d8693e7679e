//! The last five minutes, second by second: what the page draws and `larder top` shows.

use super::{Admin, overload};
use crate::clock;
use crate::latency::{BUCKETS, quantile};
use crate::record::Cause;
use crate::tally::Counters;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;

/// How often the totals are read.
pub(super) const EVERY: Duration = Duration::from_secs(1);

/// Five minutes.
const SECONDS_MAX: usize = 300;

const CAUSES: usize = Cause::ALL.len();

/// The live figures: the last second, the last minutes, the totals and how full the store is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Now {
    /// The version of the server.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// The last second.
    pub second: Second,
    /// The last minutes.
    pub window: Window,
    /// Since the start: requests answered.
    pub requests: u64,
    /// Since the start: requests answered from the store.
    pub hits: u64,
    /// Since the start: body bytes sent that came from the store.
    pub bytes_from_store: u64,
    /// Since the start: body bytes sent that were fetched for their request.
    pub bytes_fetched: u64,
    /// Since the start: stored responses that made room for others.
    pub evictions: u64,
    /// Client connections that are open.
    pub connections: u64,
    /// Keys with something in memory or under way.
    pub objects: u64,
    /// Stored responses on disk.
    pub disk_objects: u64,
    /// Bytes that the memory store holds.
    pub memory_bytes: u64,
    /// Its budget.
    pub memory_bytes_max: u64,
    /// Bytes on disk that can be served.
    pub disk_bytes: u64,
    /// The budget of the disk store; 0 without one.
    pub disk_bytes_max: u64,
    /// A sentence for each thing that is behind with its work; none while all is well.
    #[serde(default)]
    pub behind: Vec<String>,
}

/// Requests, bytes and latency of one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// Requests answered from the store.
    pub from_store: u64,
    /// Requests for which an origin was asked.
    pub fetched: u64,
    /// Requests answered by Larder itself, and tunnels.
    pub other: u64,
    /// Requests whose origin could not be had.
    pub failed: u64,
    /// Body bytes that came from the store.
    pub bytes_from_store: u64,
    /// Body bytes that were fetched.
    pub bytes_fetched: u64,
    /// Half of the requests were answered within this; 0 when there were none.
    pub median_micros: u64,
    /// 99 in 100 were.
    pub p99_micros: u64,
}

/// The last minutes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// How long they are.
    pub seconds: u64,
    /// Requests answered.
    pub requests: u64,
    /// Of these from the store.
    pub from_store: u64,
    /// Requests whose origin could not be had.
    pub failed: u64,
    /// Body bytes that came from the store.
    pub bytes_from_store: u64,
    /// Body bytes that were fetched.
    pub bytes_fetched: u64,
    /// Half of the requests were answered within this.
    pub median_micros: u64,
    /// 9 in 10 were.
    pub p90_micros: u64,
    /// 99 in 100 were.
    pub p99_micros: u64,
    /// Misses by cause.
    pub causes: BTreeMap<String, u64>,
}

/// Counts, in all or between two moments.
#[derive(Clone, Debug)]
struct Counted {
    at: Duration,
    from_store: u64,
    fetched: u64,
    other: u64,
    failed: u64,
    bytes_from_store: u64,
    bytes_fetched: u64,
    buckets: [u64; BUCKETS],
    causes: [u64; CAUSES],
}

impl Default for Counted {
    fn default() -> Counted {
        Counted {
            at: Duration::ZERO,
            from_store: 0,
            fetched: 0,
            other: 0,
            failed: 0,
            bytes_from_store: 0,
            bytes_fetched: 0,
            buckets: [0; BUCKETS],
            causes: [0; CAUSES],
        }
    }
}

impl Counted {
    fn read(counters: &Counters, at: Duration) -> Counted {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let mut buckets = [0; BUCKETS];
        for sums in counters.measures.by_outcome().iter().filter(|sums| sums.class != "tunnel") {
            buckets.iter_mut().zip(sums.buckets).for_each(|(sum, many)| *sum += many);
        }
        let mut causes = [0; CAUSES];
        causes.iter_mut().zip(counters.measures.by_cause()).for_each(|(cell, (_, many))| *cell = many);
        Counted {
            at,
            from_store: of(&counters.hits),
            fetched: of(&counters.misses),
            other: of(&counters.refusals) + of(&counters.tunnels),
            failed: of(&counters.failures),
            bytes_from_store: of(&counters.bytes_from_store),
            bytes_fetched: of(&counters.bytes_fetched),
            buckets,
            causes,
        }
    }

    fn since(&self, earlier: &Counted) -> Counted {
        // Workers hand their counts over one by one, so sums may be read in between: never below zero.
        let less = u64::saturating_sub;
        Counted {
            at: self.at.saturating_sub(earlier.at),
            from_store: less(self.from_store, earlier.from_store),
            fetched: less(self.fetched, earlier.fetched),
            other: less(self.other, earlier.other),
            failed: less(self.failed, earlier.failed),
            bytes_from_store: less(self.bytes_from_store, earlier.bytes_from_store),
            bytes_fetched: less(self.bytes_fetched, earlier.bytes_fetched),
            buckets: std::array::from_fn(|at| less(self.buckets[at], earlier.buckets[at])),
            causes: std::array::from_fn(|at| less(self.causes[at], earlier.causes[at])),
        }
    }

    /// The same as rates of one second.
    fn second(&self, at: Duration) -> Second {
        let millis = u64::try_from(self.at.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = |many: u64| many.saturating_mul(1000).saturating_add(millis / 2) / millis;
        Second {
            at: at.as_secs(),
            from_store: rate(self.from_store),
            fetched: rate(self.fetched),
            other: rate(self.other),
            failed: rate(self.failed),
            bytes_from_store: rate(self.bytes_from_store),
            bytes_fetched: rate(self.bytes_fetched),
            median_micros: quantile(&self.buckets, 500),
            p99_micros: quantile(&self.buckets, 990),
        }
    }

    fn window(&self) -> Window {
        let causes = Cause::ALL.iter().zip(self.causes).filter(|(_, many)| *many > 0);
        Window {
            seconds: self.at.as_secs(),
            requests: self.from_store + self.fetched + self.other + self.failed,
            from_store: self.from_store,
            failed: self.failed,
            bytes_from_store: self.bytes_from_store,
            bytes_fetched: self.bytes_fetched,
            median_micros: quantile(&self.buckets, 500),
            p90_micros: quantile(&self.buckets, 900),
            p99_micros: quantile(&self.buckets, 990),
            causes: causes.map(|(cause, many)| (cause.as_str().to_owned(), many)).collect(),
        }
    }
}

/// The seconds of the last minutes.
#[derive(Debug, Default)]
pub struct Pulse {
    minutes: Mutex<LastMinutes>,
    beats: Notify,
}

#[derive(Debug, Default)]
struct LastMinutes {
    /// Totals at the start of each second that is kept, the newest at the back.
    totals: VecDeque<Counted>,
    seconds: VecDeque<Second>,
}

impl Pulse {
    /// Closes a second.
    pub(super) fn beat(&self, admin: &Admin) {
        self.note(Counted::read(&admin.common.counters, clock::wall()));
        self.beats.notify_waiters();
    }

    /// Waits for the next second.
    pub(super) async fn next(&self) {
        self.beats.notified().await;
    }

    fn note(&self, counted: Counted) {
        let mut minutes = self.minutes.lock();
        if let Some(last) = minutes.totals.back() {
            let second = counted.since(last).second(counted.at);
            minutes.seconds.push_back(second);
        }
        minutes.totals.push_back(counted);
        if minutes.seconds.len() > SECONDS_MAX {
            minutes.seconds.pop_front();
            minutes.totals.pop_front();
        }
    }

    /// The seconds that are kept, the oldest first.
    pub fn seconds(&self) -> Vec<Second> {
        self.minutes.lock().seconds.iter().cloned().collect()
    }

    /// The live figures.
    pub fn now(&self, admin: &Admin) -> Now {
        let (second, window) = {
            let minutes = self.minutes.lock();
            let window = match (minutes.totals.front(), minutes.totals.back()) {
                (Some(first), Some(last)) => last.since(first).window(),
                _ => Window::default(),
            };
            (minutes.seconds.back().cloned().unwrap_or_default(), window)
        };
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (cache, disk) =
            (admin.common.cache.stats(), admin.common.cache.disk().map(|disk| disk.stats()).unwrap_or_default());
        Now {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: clock::wall().saturating_sub(admin.started).as_secs(),
            second,
            window,
            requests: of(&admin.common.counters.requests),
            hits: of(&admin.common.counters.hits),
            bytes_from_store: of(&admin.common.counters.bytes_from_store),
            bytes_fetched: of(&admin.common.counters.bytes_fetched),
            evictions: cache.evictions,
            connections: admin.connections.count() as u64,
            objects: cache.objects,
            disk_objects: disk.heads,
            memory_bytes: cache.memory_bytes,
            memory_bytes_max: admin.common.config.memory_bytes,
            disk_bytes: disk.live_bytes,
            disk_bytes_max: admin.common.cache.disk().and(admin.common.config.disk_bytes).unwrap_or(0),
            behind: overload::behind(admin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(at: u64, hits: u64, bucket: usize) -> Counted {
        let mut counted = Counted { at: Duration::from_secs(at), from_store: hits, ..Counted::default() };
        counted.buckets[bucket] = hits;
        counted
    }

    #[test]
    fn seconds_are_differences_and_their_number_is_bounded() {
        let pulse = Pulse::default();
        for at in 0..1_000 {
            pulse.note(counted(at, at * 7, 2));
        }
        let seconds = pulse.seconds();
        assert_eq!(seconds.len(), SECONDS_MAX);
        assert!(seconds.iter().all(|second| second.from_store == 7 && second.fetched == 0));
        assert_eq!(seconds.last().map(|second| second.at), Some(999));
        assert_eq!(pulse.minutes.lock().totals.len(), SECONDS_MAX + 1);
    }

    #[test]
    fn a_late_beat_is_spread_over_its_time() {
        let pulse = Pulse::default();
        pulse.note(counted(10, 0, 0));
        pulse.note(counted(14, 40, 0));
        assert_eq!(pulse.seconds()[0].from_store, 10);
    }
}
