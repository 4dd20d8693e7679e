//! Golden hit counts: small traces through each policy at three sizes.
//!
//! A trace is a seed and its generator; its checksum stands in the expected file. `UPDATE_GOLDEN=1 cargo test -p larder-cache --test all evict_golden` writes
//! the expected file anew; look at the difference before it is committed.
//!
//! The columns `farthest` (Belady: the object whose next request is the farthest away goes, or is not
//! taken in) and `infinite` (a cache without a limit) say what can be had. With objects of one size no
//! policy has more hits than `farthest`; with differing sizes it is a landmark only.

use super::traces;

use std::fmt::Write as _;

use larder_cache::evict::{Evict, Hits, Lru, S3Fifo, Sample, replay};
use traces::{Trace, farthest, traces};

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
