//! Golden hit counts of memory and disk together: a trace through the real log of the disk store (on a simulated device)
//! under a memory tier of a tenth of its size, beside plain LRU and the offline best with the bytes of both.
//!
//! `UPDATE_GOLDEN=1 cargo test -p larder-cache --test all tier_golden` writes the expected file anew; look at the difference
//! before it is committed.

use super::traces;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_cache::evict::{Evict, Evictable, EvictionMark, Lru, Request, S3Fifo, replay};
use larder_cache::store::log;
use larder_cache::store::segment_reader::{Patience, ReadOutcome};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::sketch::Sketch;
use larder_cache::store::{HeadToStore, ObjectId, Putting};
use traces::{Trace, farthest, with_scans, zipf};

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tier_hits.txt");
const OBJECT_BYTES: u64 = 8_000;
/// The disk in percent of the bytes of all distinct popular objects.
const SIZES_PERCENT: [u64; 3] = [5, 20, 50];

#[test]
fn hits_are_the_golden_ones() {
    let measured = table();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(EXPECTED, &measured).expect("the expected file can be written");
    }
    let expected = std::fs::read_to_string(EXPECTED).expect("tests/data/tier_hits.txt is there");
    assert!(
        measured == expected,
        "hits have changed; UPDATE_GOLDEN=1 accepts them\n\nmeasured:\n{measured}\nexpected:\n{expected}"
    );
}

fn table() -> String {
    let mut out = String::from(
        "# Hits of memory and disk together: of requests, in percent; and bytes written to disk over bytes of misses.\n# The disk is that part of the popular objects' bytes, the memory a tenth of the disk.\n",
    );
    let popular = traces::OBJECTS * OBJECT_BYTES;
    let of_size = |_| OBJECT_BYTES;
    let all = [
        Trace { name: "zipf", requests: zipf(11, 50_000, of_size) },
        Trace { name: "zipf-scans", requests: with_scans(zipf(12, 40_000, of_size), OBJECT_BYTES) },
    ];
    for trace in all {
        let (count, distinct) = (trace.requests.len(), trace.distinct().len());
        writeln!(out, "\n{} requests={count} distinct={distinct} checksum={:016x}", trace.name, trace.checksum())
            .unwrap();
        for percent in SIZES_PERCENT {
            let disk = popular * percent / 100;
            let both = disk + disk / 10;
            let requests = &trace.requests;
            let share = |hits: u64| 100.0 * hits as f64 / count as f64;
            let best = farthest(requests, both).hits;
            let lru = replay(&mut Lru::new(), requests, both).hits;
            writeln!(out, "  farthest    {percent:>3}% {best:>6} hits ({:4.1} %)", share(best)).unwrap();
            writeln!(out, "  lru         {percent:>3}% {lru:>6} hits ({:4.1} %)", share(lru)).unwrap();
            for (name, admission) in [("all", Admits::All), ("seen-twice", Admits::SeenTwice)] {
                let (hits, written) = Tiers::new(disk, admission).play(requests);
                assert!(hits <= best);
                writeln!(
                    out,
                    "  {name:<11} {percent:>3}% {hits:>6} hits ({:4.1} %), written {written:.2}",
                    share(hits)
                )
                .unwrap();
            }
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Admits {
    All,
    SeenTwice,
}

struct Tiers {
    memory: S3Fifo<Item>,
    memory_bytes: u64,
    present: HashMap<u64, Arc<Item>>,
    writer: SegmentWriter,
    sketch: Sketch,
    admits: Admits,
    next_id: u64,
}

struct Item {
    id: u64,
    bytes: u64,
    mark: EvictionMark,
}

impl Evictable for Item {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn mark(&self) -> &EvictionMark {
        &self.mark
    }

    fn id_hash(&self) -> u64 {
        hash(self.id)
    }
}

fn hash(id: u64) -> u64 {
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn key(id: u64) -> Bytes {
    format!("http://h.example/{id}").into()
}

impl Tiers {
    fn new(disk_bytes: u64, admits: Admits) -> Tiers {
        let settings =
            LogSettings { disk_bytes, free_bytes_min: 0, index_bytes_max: 8 << 20, write_block_bytes: 64 << 10 };
        let device = SimDevice::new(disk_bytes * 2);
        let opened = log::open(Arc::new(device), settings, Path::new("device")).expect("it opens");
        Tiers {
            memory: S3Fifo::new(),
            memory_bytes: disk_bytes / 10,
            present: HashMap::new(),
            writer: opened.recovery.run(1, || ()),
            sketch: Sketch::new(20_000),
            admits,
            next_id: 1,
        }
    }

    /// How many hits, and how much was written for each byte that missed.
    fn play(mut self, requests: &[Request]) -> (u64, f64) {
        let (mut hits, mut missed) = (0, 0);
        for request in requests {
            if let Some(item) = self.present.get(&request.id) {
                hits += 1;
                self.memory.hit(item);
                continue;
            }
            if self.is_on_disk(request.id) {
                hits += 1;
            } else {
                missed += request.bytes;
                let seen = self.sketch.seen(hash(request.id)) > 0;
                if seen || self.admits == Admits::All {
                    self.write(request.id, request.bytes);
                }
            }
            self.remember(request);
        }
        let mut stats = larder_cache::store::Stats::default();
        self.writer.reader().add_to(&mut stats);
        (hits, stats.written_bytes as f64 / missed as f64)
    }

    fn is_on_disk(&self, id: u64) -> bool {
        match self.writer.reader().heads(&key(id), Patience::Waits) {
            ReadOutcome::Ended(heads) => !heads.is_empty(),
            ReadOutcome::WouldWait | ReadOutcome::Recovering => panic!("a read that waits ends"),
        }
    }

    fn remember(&mut self, request: &Request) {
        let item = Arc::new(Item { id: request.id, bytes: request.bytes, mark: EvictionMark::new() });
        self.present.insert(request.id, Arc::clone(&item));
        self.memory.insert(item);
        while self.memory.bytes() > self.memory_bytes {
            let Some(gone) = self.memory.evict() else { break };
            self.present.remove(&gone.id);
            if gone.mark.hits() == 0 {
                continue;
            }
            if self.is_on_disk(gone.id) {
                self.writer.reader().used(&key(gone.id));
            } else {
                self.write(gone.id, gone.bytes);
            }
        }
    }

    fn write(&mut self, id: u64, bytes: u64) {
        let head = HeadToStore {
            key: key(id),
            variant: 0,
            id: ObjectId(self.next_id),
            epoch: 0,
            length: Some(bytes),
            tags: Vec::new(),
            meta: Bytes::from_static(&[0; 200]),
            body: Some(vec![Bytes::from(vec![id as u8; bytes as usize])]),
        };
        self.next_id += 1;
        let (putting, waiting) = Putting::pair();
        self.writer.append_head(head, waiting);
        self.writer.flush().expect("the device takes it");
        drop(putting);
    }
}
