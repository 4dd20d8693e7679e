//! The cost of each part of the hit path in nanoseconds: `cargo bench -p larder-cache`.
//!
//! Keys are drawn at random from all that are present, so large counts show cache misses of the
//! processor, as a server under many different URLs would.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use larder_cache::evict::{Evict, Evictable, EvictionMark, S3Fifo};
use larder_cache::extents::Extents;
use larder_cache::index::Index;
use larder_cache::key::Key;

fn main() {
    println!("objects      find ns   find none ns   insert ns   index B/object   evict+insert ns   policy B/object");
    for objects in [10_000, 100_000, 1_000_000] {
        index_and_policy(objects);
    }
    println!("\npieces       append ns   slice_at ns");
    for pieces in [1, 1_000, 100_000] {
        extents(pieces);
    }
}

const LOOK_UPS: usize = 1_000_000;

fn index_and_policy(objects: usize) {
    let texts = |host: &str| -> Vec<Vec<u8>> {
        (0..objects).map(|number| format!("http://{host}.example/path/to/object-{number}.bin").into_bytes()).collect()
    };
    let present = texts("present");
    let absent = texts("absent");
    let keys: Vec<Key> = present.iter().map(|text| Key::from_text(text.clone())).collect();
    let index: Index<Arc<Item>> = Index::new(64, 0x1A2B_3C4D);
    let insert = nanos_each(objects, || {
        keys.iter()
            .for_each(|key| drop(index.find_or_insert_with(key, || Arc::new(Item::new(index.hash_of(key.text()))))));
    });
    let order = shuffled(objects);
    let find = nanos_each(LOOK_UPS, || find_all(&index, &present, &order));
    let find_none = nanos_each(LOOK_UPS, || find_all(&index, &absent, &order));
    let key_bytes: usize = keys.iter().map(Key::heap_bytes).sum();
    let index_bytes = (index.heap_bytes() - key_bytes) / objects;

    let mut policy = S3Fifo::new();
    index.for_each(|item| policy.insert(Arc::clone(&***item)));
    let fresh: Vec<_> =
        (0..objects as u64).map(|id| Arc::new(Item::new(id.wrapping_mul(0x9E37_79B9_7F4A_7C15)))).collect();
    let evict = nanos_each(objects, || {
        for item in &fresh {
            black_box(policy.evict());
            policy.insert(item.clone());
        }
    });
    let policy_bytes = policy.heap_bytes() / objects;
    println!(
        "{objects:<10} {find:>9.1} {find_none:>14.1} {insert:>11.1} {index_bytes:>16} {evict:>17.1} {policy_bytes:>17}"
    );
}

fn find_all(index: &Index<Arc<Item>>, texts: &[Vec<u8>], order: &[usize]) {
    for which in order.iter().cycle().take(LOOK_UPS) {
        black_box(index.find(&texts[*which]));
    }
}

fn extents(pieces: u64) {
    const PIECE_BYTES: u64 = 16 * 1024;
    let piece = Bytes::from(vec![7; PIECE_BYTES as usize]);
    let mut extents = Extents::new();
    let append = nanos_each(pieces as usize, || {
        for number in 0..pieces {
            black_box(extents.insert(number * PIECE_BYTES, piece.clone()));
        }
    });
    let order = shuffled(pieces as usize);
    let slice_at = nanos_each(LOOK_UPS, || {
        for which in order.iter().cycle().take(LOOK_UPS) {
            black_box(extents.slice_at(*which as u64 * PIECE_BYTES + 5, 1 << 20));
        }
    });
    println!("{pieces:<10} {append:>11.1} {slice_at:>13.1}");
}

fn nanos_each(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// All numbers below `count`, in an order that no prefetcher follows.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = 1u64;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

struct Item {
    id_hash: u64,
    mark: EvictionMark,
}

impl Item {
    fn new(id_hash: u64) -> Item {
        Item { id_hash, mark: EvictionMark::new() }
    }
}

impl Evictable for Item {
    fn bytes(&self) -> u64 {
        1000
    }

    fn mark(&self) -> &EvictionMark {
        &self.mark
    }

    fn id_hash(&self) -> u64 {
        self.id_hash
    }
}
