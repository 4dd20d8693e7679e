//! Golden hit counts: small traces through each policy at three sizes.
//!
//! A trace is a seed and the generator below; its checksum stands in the expected file. The arithmetic
//! is integers and those floating-point operations that IEEE 754 rounds exactly (no `powf`, no `ln`), so a
//! trace is the same everywhere. `UPDATE_GOLDEN=1 cargo test -p larder-cache --test evict_golden` writes
//! the expected file anew; look at the difference before it is committed.
//!
//! The columns `farthest` (Belady: the object whose next request is the farthest away goes, or is not
//! taken in) and `infinite` (a cache without a limit) say what can be had. With objects of one size no
//! policy has more hits than `farthest`; with differing sizes it is a landmark only.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

use larder_cache::evict::{Evict, Hits, Lru, Request, S3Fifo, Sample, replay};

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/evict_hits.txt");

#[test]
fn hits_are_the_golden_ones() {
    let measured = table();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(EXPECTED, &measured).expect("the expected file can be written");
    }
    let expected = std::fs::read_to_string(EXPECTED).expect("tests/data/evict_hits.txt is there");
    assert!(
        measured == expected,
        "hits have changed; UPDATE_GOLDEN=1 accepts them\n\nmeasured:\n{measured}\nexpected:\n{expected}"
    );
}

#[test]
fn s3_fifo_beats_lru_where_it_should_and_nobody_beats_the_optimum() {
    for trace in traces() {
        for percent in SIZES_PERCENT {
            let capacity = trace.distinct_bytes() * percent / 100;
            let fifo = replay(&mut S3Fifo::new(), &trace.requests, capacity);
            let lru = replay(&mut Lru::new(), &trace.requests, capacity);
            let what = format!("{} at {percent} %: {fifo:?} {lru:?}", trace.name);
            assert_eq!((fifo.requests, fifo.bytes), (lru.requests, lru.bytes), "{what}");
            if trace.name != "zipf-sizes" {
                let optimum = farthest(&trace.requests, capacity);
                assert!(fifo.hits <= optimum.hits && lru.hits <= optimum.hits, "{what} {optimum:?}");
                assert!(fifo.hits >= lru.hits, "{what}");
            }
        }
    }
}

/// Capacities in percent of the bytes of all distinct objects of the trace.
const SIZES_PERCENT: [u64; 3] = [1, 5, 20];

fn table() -> String {
    let mut out = String::from("# trace, requests, distinct objects, checksum; then hits and bytes of hits\n");
    for trace in traces() {
        let (count, distinct) = (trace.requests.len(), trace.distinct().len());
        writeln!(out, "\n{} requests={count} distinct={distinct} checksum={:016x}", trace.name, trace.checksum())
            .unwrap();
        line(&mut out, "infinite", "-", farthest(&trace.requests, u64::MAX));
        for percent in SIZES_PERCENT {
            let capacity = trace.distinct_bytes() * percent / 100;
            let size = format!("{percent}%");
            line(&mut out, "farthest", &size, farthest(&trace.requests, capacity));
            line(&mut out, "s3-fifo", &size, checked_replay(&mut S3Fifo::new(), &trace, capacity));
            line(&mut out, "lru", &size, checked_replay(&mut Lru::new(), &trace, capacity));
        }
    }
    out
}

fn line(out: &mut String, policy: &str, size: &str, hits: Hits) {
    let ratio = 100.0 * hits.hits as f64 / hits.requests as f64;
    writeln!(out, "  {policy:<9} {size:>4} {:>6} hits ({ratio:4.1} %) {:>12} bytes", hits.hits, hits.hit_bytes)
        .unwrap();
}

fn checked_replay(policy: &mut impl Evict<Sample>, trace: &Trace, capacity_bytes: u64) -> Hits {
    let hits = replay(policy, &trace.requests, capacity_bytes);
    assert!(policy.bytes() <= capacity_bytes);
    hits
}

struct Trace {
    name: &'static str,
    requests: Vec<Request>,
}

impl Trace {
    fn distinct(&self) -> HashSet<(u64, u64)> {
        self.requests.iter().map(|request| (request.id, request.bytes)).collect()
    }

    fn distinct_bytes(&self) -> u64 {
        self.distinct().iter().map(|&(_, bytes)| bytes).sum()
    }

    /// FNV-1a over ids and sizes.
    fn checksum(&self) -> u64 {
        let bytes = self.requests.iter().flat_map(|request| [request.id.to_le_bytes(), request.bytes.to_le_bytes()]);
        bytes.flatten().fold(0xCBF2_9CE4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
    }
}

fn traces() -> Vec<Trace> {
    vec![
        Trace { name: "zipf", requests: zipf(1, 50_000, |_| OBJECT_BYTES) },
        Trace { name: "zipf-scans", requests: with_scans(zipf(2, 40_000, |_| OBJECT_BYTES)) },
        Trace { name: "loop", requests: looping(50_000, 2_000) },
        Trace { name: "zipf-sizes", requests: zipf(4, 50_000, log_normal_bytes) },
    ]
}

const OBJECT_BYTES: u64 = 1000;
const OBJECTS: u64 = 10_000;

/// Requests for objects whose popularity falls with rank to the power of 0.8984 (as near to 0.9 as six square roots come).
fn zipf(seed: u64, count: usize, bytes_of: impl Fn(u64) -> u64) -> Vec<Request> {
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
fn with_scans(requests: Vec<Request>) -> Vec<Request> {
    let mut next_id = 1_000_000;
    let mut mixed = Vec::new();
    for part in requests.chunks(4_000) {
        mixed.extend_from_slice(part);
        mixed.extend((next_id..next_id + 1_000).map(|id| Request { id, bytes: OBJECT_BYTES }));
        next_id += 1_000;
    }
    mixed
}

fn looping(count: u64, objects: u64) -> Vec<Request> {
    (0..count).map(|turn| Request { id: turn % objects, bytes: OBJECT_BYTES }).collect()
}

/// Sizes with a median of 8 KiB and a long tail: two to the power of a nearly normal number (twelve
/// uniform draws added up, centred), times two. The same object always has the same size.
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
fn farthest(trace: &[Request], capacity_bytes: u64) -> Hits {
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
