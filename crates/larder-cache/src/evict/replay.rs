//! Plays a trace through a policy, as a cache of a given size would; golden hit counts and
//! comparisons of policies are made with it.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Evict, Evictable, EvictionMark};

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which object is asked for.
    pub id: u64,
    /// Its size; one that differs from the last time is a changed object, and a miss.
    pub bytes: u64,
}

/// The hits that a cache would have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Requests in the trace.
    pub requests: u64,
    /// Of these, the ones whose object was there.
    pub hits: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Of these, the ones of hits.
    pub hit_bytes: u64,
}

/// Plays the trace through the policy (made by the caller, who may look at it afterwards). An object
/// larger than the capacity is not taken in. The bytes never exceed the capacity after a request.
pub fn replay<P: Evict<Sample>>(policy: &mut P, trace: &[Request], capacity_bytes: u64) -> Hits {
    let mut present: HashMap<u64, Arc<Sample>> = HashMap::new();
    let mut sum = Hits::default();
    for request in trace {
        sum.requests += 1;
        sum.bytes += request.bytes;
        if let Some(item) = present.get(&request.id) {
            if item.bytes == request.bytes {
                sum.hits += 1;
                sum.hit_bytes += request.bytes;
                policy.hit(item);
                continue;
            }
            policy.remove(item);
            present.remove(&request.id);
        }
        if request.bytes > capacity_bytes {
            continue;
        }
        let item = Arc::new(Sample { id: request.id, bytes: request.bytes, mark: EvictionMark::new() });
        present.insert(request.id, item.clone());
        policy.insert(item);
        while policy.bytes() > capacity_bytes {
            let Some(gone) = policy.evict() else { break };
            present.remove(&gone.id);
        }
    }
    sum
}

/// An object of a replay.
#[derive(Debug)]
pub struct Sample {
    id: u64,
    bytes: u64,
    mark: EvictionMark,
}

impl Evictable for Sample {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn mark(&self) -> &EvictionMark {
        &self.mark
    }

    fn id_hash(&self) -> u64 {
        self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
