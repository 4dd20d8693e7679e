//! Reference policies, small and plain: what each keeps in so many bytes.

use super::queues::{Fifo, Keep, Lfu, Lru, S3Fifo};
use super::trace::Request;
use std::collections::BTreeSet;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used goes first.
    Lru,
    /// First in, first out.
    Fifo,
    /// Three queues: a small one for what is new, a main one, and a memory of what left the small one (Yang 2023).
    S3Fifo,
    /// Least often used while in the cache goes first, of these the one used longest ago.
    Lfu,
    /// Evicts the object whose next use is furthest in the future, which needs knowledge of the future. The best there
    /// is for objects of one size, and near it for others.
    Belady,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Lru, Self::Fifo, Self::S3Fifo, Self::Lfu, Self::Belady];

    /// The word of flags and figures.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Fifo => "fifo",
            Self::S3Fifo => "s3-fifo",
            Self::Lfu => "lfu",
            Self::Belady => "belady",
        }
    }
}

/// Hits of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Requests that hit.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Replays requests through a policy with so many bytes.
pub fn replay(policy: Policy, capacity_bytes: u64, requests: &[Request]) -> Hits {
    match policy {
        Policy::Lru => through(&mut Lru::new(capacity_bytes), requests),
        Policy::Fifo => through(&mut Fifo::new(capacity_bytes), requests),
        Policy::S3Fifo => through(&mut S3Fifo::new(capacity_bytes), requests),
        Policy::Lfu => through(&mut Lfu::new(capacity_bytes), requests),
        Policy::Belady => through(&mut Belady::new(capacity_bytes, requests), requests),
    }
}

fn through(keep: &mut impl Keep, requests: &[Request]) -> Hits {
    let mut hits = Hits::default();
    for request in requests {
        if keep.ask(*request) {
            hits.requests += 1;
            hits.bytes += request.bytes;
        }
    }
    hits
}

/// Knows when each object is asked for next.
struct Belady {
    capacity: u64,
    bytes: u64,
    /// For each request, the place of the next one for the same object.
    next: Vec<u32>,
    at: usize,
    /// Bytes of each object, 0 if it is not there.
    sizes: Vec<u64>,
    /// Next uses of what is there.
    uses: BTreeSet<(u32, u32)>,
}

impl Belady {
    fn new(capacity: u64, requests: &[Request]) -> Self {
        let objects = requests.iter().map(|request| request.object as usize + 1).max().unwrap_or(0);
        let mut seen = vec![u32::MAX; objects];
        let mut next = vec![u32::MAX; requests.len()];
        for (place, request) in requests.iter().enumerate().rev() {
            next[place] = std::mem::replace(&mut seen[request.object as usize], place as u32);
        }
        Self { capacity, bytes: 0, next, at: 0, sizes: vec![0; objects], uses: BTreeSet::new() }
    }
}

impl Keep for Belady {
    fn ask(&mut self, request: Request) -> bool {
        let (now, next) = (self.at as u32, self.next[self.at]);
        self.at += 1;
        let size = &mut self.sizes[request.object as usize];
        let hit = *size > 0;
        if hit {
            self.uses.remove(&(now, request.object));
        } else if next == u32::MAX || request.bytes > self.capacity {
            return false;
        } else {
            *size = request.bytes;
            self.bytes += request.bytes;
        }
        self.uses.insert((next, request.object));
        while self.bytes > self.capacity {
            let Some((_, object)) = self.uses.pop_last() else { break };
            self.bytes -= std::mem::take(&mut self.sizes[object as usize]);
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Form, Trace};
    use super::*;

    /// Hits that a second program, written for this test alone in another language, counted on the same trace.
    const GOLDEN: &[(Policy, [u64; 3])] = &[
        (Policy::Lru, [768, 1637, 2567]),
        (Policy::Fifo, [676, 1469, 2455]),
        (Policy::S3Fifo, [893, 1718, 2555]),
        (Policy::Lfu, [916, 1601, 2605]),
        (Policy::Belady, [1627, 2366, 2763]),
    ];

    fn small() -> Trace {
        let text = include_bytes!("../../tests/data/small.trace");
        Trace::read(Form::Columns, &text[..], 1_000_000).unwrap()
    }

    #[test]
    fn hits_on_a_small_trace_are_known() {
        let trace = small();
        for (policy, hits) in GOLDEN {
            for (size, wanted) in [20_000, 100_000, 500_000].into_iter().zip(hits) {
                let found = replay(*policy, size, &trace.requests).requests;
                assert_eq!(found, *wanted, "{} with {size} bytes", policy.as_str());
            }
        }
    }

    #[test]
    fn nothing_beats_the_one_who_knows_the_future() {
        let one_size: Vec<Request> = small().requests.iter().map(|each| Request { bytes: 1, ..*each }).collect();
        for size in [1, 10, 100] {
            let best = replay(Policy::Belady, size, &one_size).requests;
            for policy in Policy::ALL {
                let hits = replay(policy, size, &one_size).requests;
                assert!(hits <= best, "{} has {hits} of {best} with {size}", policy.as_str());
            }
        }
    }

    #[test]
    fn with_room_for_all_every_policy_misses_each_object_once() {
        let trace = small();
        let repeats = trace.requests.len() as u64 - u64::from(trace.objects);
        for policy in Policy::ALL {
            let hits = replay(policy, u64::MAX / 4, &trace.requests).requests;
            assert_eq!(hits, repeats, "{}", policy.as_str());
            assert_eq!(replay(policy, 0, &trace.requests), Hits::default(), "{}", policy.as_str());
        }
    }
}
