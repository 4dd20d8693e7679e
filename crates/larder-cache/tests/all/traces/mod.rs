//! Traces of requests that are the same everywhere, and what can be had of them: shared by the golden tests.
//!
//! The arithmetic is integers and those floating-point operations that IEEE 754 rounds exactly (no `powf`, no `ln`).

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeSet, HashMap, HashSet};

use larder_cache::evict::{Hits, Request};

/// A trace.
pub struct Trace {
    pub name: &'static str,
    pub requests: Vec<Request>,
}

impl Trace {
    pub fn distinct(&self) -> HashSet<(u64, u64)> {
        self.requests.iter().map(|request| (request.id, request.bytes)).collect()
    }

    pub fn distinct_bytes(&self) -> u64 {
        self.distinct().iter().map(|&(_, bytes)| bytes).sum()
    }

    /// FNV-1a over ids and sizes.
    pub fn checksum(&self) -> u64 {
        let bytes = self.requests.iter().flat_map(|request| [request.id.to_le_bytes(), request.bytes.to_le_bytes()]);
        bytes.flatten().fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
    }
}

/// The traces of the policies.
pub fn traces() -> Vec<Trace> {
    vec![
        Trace { name: "zipf", requests: zipf(1, 50_000, |_| OBJECT_BYTES) },
        Trace { name: "zipf-scans", requests: with_scans(zipf(2, 40_000, |_| OBJECT_BYTES), OBJECT_BYTES) },
        Trace { name: "loop", requests: looping(50_000, 2_000) },
        Trace { name: "zipf-sizes", requests: zipf(4, 50_000, log_normal_bytes) },
    ]
}

const OBJECT_BYTES: u64 = 1000;
pub const OBJECTS: u64 = 10_000;

/// Requests for objects whose popularity falls with rank to the power of 0.8984 (as near to 0.9 as six square roots come).
pub fn zipf(seed: u64, count: usize, bytes_of: impl Fn(u64) -> u64) -> Vec<Request> {
    let mut sum = 0;
    let cumulated: Vec<u64> = (1..=OBJECTS)
        .map(|rank| {
            let root = |turns: u32| (0..turns).fold(rank as f64, |value, _| value.sqrt());
            sum += (1e12 / (root(1) * root(2) * root(3) * root(6) * root(7))) as u64;
            sum
        })
        .collect();
    let mut draw = Draw(seed);
    let mut one = || {
        let ticket = draw.next() % sum;
        let id = cumulated.partition_point(|&bound| bound <= ticket) as u64;
        Request { id, bytes: bytes_of(id) }
    };
    (0..count).map(|_| one()).collect()
}

/// After each 4,000 requests a scan over 1,000 objects that nobody asks for again.
pub fn with_scans(requests: Vec<Request>, bytes: u64) -> Vec<Request> {
    let mut next_id = 1_000_000;
    let mut mixed = Vec::new();
    for part in requests.chunks(4_000) {
        mixed.extend_from_slice(part);
        mixed.extend((next_id..next_id + 1_000).map(|id| Request { id, bytes }));
        next_id += 1_000;
    }
    mixed
}

fn looping(count: u64, objects: u64) -> Vec<Request> {
    (0..count).map(|turn| Request { id: turn % objects, bytes: OBJECT_BYTES }).collect()
}

/// Sizes with a median of 8 KiB and a long tail: two to the power of a nearly normal number (twelve
/// uniform draws added up, centred), times two. An object always has one size.
fn log_normal_bytes(id: u64) -> u64 {
    let mut draw = Draw(id ^ 0x5EED);
    let centred = (0..12).map(|_| draw.next() >> 48).sum::<u64>() as i64 - 6 * 65_536; // one is 65,536
    let exponent = 13 * 65_536 + 2 * centred;
    let mut bytes = (1u64 << (exponent >> 16).clamp(0, 40)) as f64;
    let mut root = 2f64;
    for bit in (0..16).rev() {
        root = root.sqrt();
        if exponent >> bit & 1 == 1 {
            bytes *= root;
        }
    }
    bytes as u64
}

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

/// Belady's rule, knowing the future.
pub fn farthest(trace: &[Request], capacity_bytes: u64) -> Hits {
    let mut next_use = vec![usize::MAX; trace.len()];
    let mut later = HashMap::new();
    for (turn, request) in trace.iter().enumerate().rev() {
        next_use[turn] = later.insert(request.id, turn).unwrap_or(usize::MAX);
    }
    let mut present: HashMap<u64, usize> = HashMap::new(); // id to next use
    let mut by_next_use: BTreeSet<(usize, u64, u64)> = BTreeSet::new();
    let mut held_bytes = 0;
    let mut sum = Hits::default();
    for (turn, request) in trace.iter().enumerate() {
        sum.requests += 1;
        sum.bytes += request.bytes;
        if let Some(due) = present.remove(&request.id) {
            sum.hits += 1;
            sum.hit_bytes += request.bytes;
            held_bytes -= request.bytes;
            by_next_use.remove(&(due, request.id, request.bytes));
        }
        present.insert(request.id, next_use[turn]);
        by_next_use.insert((next_use[turn], request.id, request.bytes));
        held_bytes += request.bytes;
        while held_bytes > capacity_bytes {
            let (_, id, bytes) = by_next_use.pop_last().expect("what is held is listed");
            present.remove(&id);
            held_bytes -= bytes;
        }
    }
    sum
}
