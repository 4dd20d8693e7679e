//! The promises of every policy under any order of calls, and the differences between S3-FIFO and LRU.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_cache::evict::{Evict, Evictable, EvictionMark, Lru, S3Fifo};
use proptest::prelude::*;

#[derive(Debug)]
struct Item {
    id: u64,
    bytes: AtomicU64,
    mark: EvictionMark,
}

impl Evictable for Item {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn mark(&self) -> &EvictionMark {
        &self.mark
    }

    fn id_hash(&self) -> u64 {
        self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

fn item(id: u64, bytes: u64) -> Arc<Item> {
    Arc::new(Item { id, bytes: AtomicU64::new(bytes), mark: EvictionMark::new() })
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Again(usize),
    Hit(usize),
    Remove(usize),
    Resize(usize, u64),
    ChangeUnannounced(usize, u64),
    Evict,
    EvictTo(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = any::<usize>();
    let step = prop_oneof![
        8 => (0..50u64, 0..1000u64).prop_map(|(id, bytes)| Step::Insert(id, bytes)),
        1 => which.prop_map(Step::Again),
        8 => which.prop_map(Step::Hit),
        2 => which.prop_map(Step::Remove),
        2 => (which, 0..5000u64).prop_map(|(which, bytes)| Step::Resize(which, bytes)),
        1 => (which, 0..5000u64).prop_map(|(which, bytes)| Step::ChangeUnannounced(which, bytes)),
        3 => Just(Step::Evict),
        1 => (0..20_000u64).prop_map(Step::EvictTo),
    ];
    prop::collection::vec(step, 1..200)
}

/// Plays the steps with a list beside the policy: each item with the bytes it must be counted with.
fn keeps_every_item_once(policy: &mut impl Evict<Item>, steps: Vec<Step>) {
    let mut held: Vec<(Arc<Item>, u64)> = Vec::new();
    for step in steps {
        let at = |which: usize| which % held.len().max(1);
        match step {
            Step::Insert(id, bytes) => {
                let new = item(id, bytes);
                policy.insert(new.clone());
                held.push((new, bytes));
            }
            Step::Again(which) => held.get(at(which)).into_iter().for_each(|(item, _)| policy.insert(item.clone())),
            Step::Hit(which) => held.get(at(which)).into_iter().for_each(|(item, _)| policy.hit(item)),
            Step::Remove(which) if !held.is_empty() => {
                let (item, _) = held.swap_remove(at(which));
                assert!(policy.remove(&item));
                assert!(!policy.remove(&item), "removed once");
                policy.hit(&item);
                policy.resized(&item);
            }
            Step::Resize(which, bytes) if !held.is_empty() => {
                let at = at(which);
                held[at].0.bytes.store(bytes, Ordering::Relaxed);
                policy.resized(&held[at].0);
                held[at].1 = bytes;
            }
            Step::ChangeUnannounced(which, bytes) => {
                held.get(at(which)).into_iter().for_each(|(item, _)| item.bytes.store(bytes, Ordering::Relaxed));
            }
            Step::Evict => evict_one(policy, &mut held),
            Step::EvictTo(budget_bytes) => {
                while policy.bytes() > budget_bytes {
                    evict_one(policy, &mut held);
                }
            }
            Step::Remove(_) | Step::Resize(..) => {}
        }
        assert_eq!(policy.len(), held.len());
        assert_eq!(policy.is_empty(), held.is_empty());
        assert_eq!(policy.bytes(), held.iter().map(|(_, bytes)| bytes).sum::<u64>());
    }
    while !held.is_empty() {
        evict_one(policy, &mut held);
    }
    assert!(policy.evict().is_none());
    assert_eq!((policy.len(), policy.bytes()), (0, 0));
}

/// A policy with items gives a victim, and it is one that was there.
fn evict_one(policy: &mut impl Evict<Item>, held: &mut Vec<(Arc<Item>, u64)>) {
    match policy.evict() {
        None => assert!(held.is_empty(), "a policy with items has a victim"),
        Some(gone) => {
            let at = held.iter().position(|(item, _)| Arc::ptr_eq(item, &gone)).expect("the victim was here, once");
            held.swap_remove(at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn s3_fifo_keeps_every_item_once(steps in steps()) {
        keeps_every_item_once(&mut S3Fifo::new(), steps);
    }

    #[test]
    fn lru_keeps_every_item_once(steps in steps()) {
        keeps_every_item_once(&mut Lru::new(), steps);
    }
}

/// The ids of the items in the order in which they go.
fn order(policy: &mut impl Evict<Item>) -> Vec<u64> {
    std::iter::from_fn(|| policy.evict()).map(|gone| gone.id).collect()
}

#[test]
fn lru_evicts_what_was_not_asked_for_longest() {
    let mut lru = Lru::new();
    let items: Vec<_> = (0..5).map(|id| item(id, 10)).collect();
    items.iter().for_each(|item| lru.insert(item.clone()));
    lru.hit(&items[0]);
    lru.hit(&items[3]);
    assert_eq!(order(&mut lru), [1, 2, 4, 0, 3]);
}

#[test]
fn s3_fifo_evicts_what_was_never_hit_before_what_was() {
    let mut fifo = S3Fifo::new();
    let items: Vec<_> = (0..6).map(|id| item(id, 10)).collect();
    items.iter().for_each(|item| fifo.insert(item.clone()));
    for which in [0, 0, 0, 2, 2] {
        items[which].mark().hit();
    }
    assert_eq!(order(&mut fifo)[..4], [1, 3, 4, 5]);
}

#[test]
fn s3_fifo_welcomes_back_what_it_let_go_too_early() {
    let mut fifo = S3Fifo::new();
    (0..10).for_each(|id| fifo.insert(item(id, 10)));
    assert_eq!(fifo.evict().map(|gone| gone.id), Some(0));
    fifo.insert(item(0, 10));
    (10..18).for_each(|id| fifo.insert(item(id, 10)));
    let first_nine: Vec<u64> = (0..9).filter_map(|_| fifo.evict()).map(|gone| gone.id).collect();
    assert!(!first_nine.contains(&0), "the returned item is in the main queue: {first_nine:?}");
}

#[test]
fn a_scan_does_not_drive_out_what_is_popular() {
    let mut fifo = S3Fifo::new();
    let popular: Vec<_> = (0..90).map(|id| item(id, 10)).collect();
    for item in &popular {
        fifo.insert(item.clone());
        item.mark().hit();
        item.mark().hit();
    }
    for id in 1000..11_000 {
        fifo.insert(item(id, 10));
        if id % 10 == 0 {
            popular[(id / 10 % 90) as usize].mark().hit();
        }
        while fifo.bytes() > 1000 {
            fifo.evict();
        }
    }
    let kept = popular.iter().filter(|item| fifo.remove(item)).count();
    assert!(kept >= 85, "{kept} of 90 kept");
}

#[test]
fn a_flood_of_hits_cannot_keep_an_eviction_busy() {
    let mut fifo = S3Fifo::new();
    let items: Vec<_> = (0..10_000).map(|id| item(id, 10)).collect();
    for item in &items {
        fifo.insert(item.clone());
        (0..5).for_each(|_| item.mark().hit());
    }
    assert!(fifo.evict().is_some());
    let untouched = items.iter().filter(|item| item.mark().hits() == 3).count();
    assert!(untouched >= 8_000, "one eviction looked at {} items", 10_000 - untouched);
}

#[test]
fn a_budget_that_shrinks_while_running_is_kept() {
    let mut fifo = S3Fifo::new();
    for budget_bytes in [100_000u64, 10_000, 500, 0] {
        for id in 0..2000 {
            let new = item(id, id % 300);
            fifo.insert(new.clone());
            (0..id % 4).for_each(|_| new.mark().hit());
            while fifo.bytes() > budget_bytes {
                assert!(fifo.evict().is_some());
            }
        }
        assert!(fifo.bytes() <= budget_bytes);
    }
}

#[test]
fn an_item_of_another_policy_has_no_place_here() {
    let (mut here, mut there) = (S3Fifo::new(), Lru::new());
    let (ours, theirs) = (item(1, 10), item(2, 20));
    here.insert(ours.clone());
    there.insert(theirs.clone());
    assert!(!here.remove(&theirs));
    here.resized(&theirs);
    assert_eq!((here.bytes(), here.len(), there.bytes()), (10, 1, 20));
}

#[test]
fn what_a_policy_holds_for_an_item_is_bounded() {
    let mut fifo = S3Fifo::new();
    for id in 0..200_000 {
        fifo.insert(item(id, 10));
        while fifo.len() > 10_000 {
            fifo.evict();
        }
    }
    let per_item = fifo.heap_bytes() / fifo.len();
    assert!(per_item <= 110, "{per_item} bytes an item");
}
