//! The index against a `HashMap`, and what it promises to many threads at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_cache::index::Index;
use larder_cache::key::Key;
use proptest::prelude::*;

fn key(number: u16) -> Key {
    Key::from_text(format!("http://host{}.example/{number}", number % 7).into_bytes())
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16),
    Find(u16),
    Remove(u16),
    RemoveUnless(u16),
    RemoveAnother(u16),
    Retain(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..60u16;
    let step = prop_oneof![
        5 => number.clone().prop_map(Step::Insert),
        3 => number.clone().prop_map(Step::Find),
        3 => number.clone().prop_map(Step::Remove),
        1 => number.clone().prop_map(Step::RemoveUnless),
        1 => number.clone().prop_map(Step::RemoveAnother),
        1 => (2..20u16).prop_map(Step::Retain),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_index_is_a_map(steps in steps(), shards in 0..9usize, seed in any::<u64>()) {
        let index: Index<u16> = Index::new(shards, seed);
        let mut model: HashMap<Key, u16> = HashMap::new();
        for (turn, step) in steps.into_iter().enumerate() {
            let turn = turn as u16;
            match step {
                Step::Insert(number) => {
                    let (value, inserted) = index.find_or_insert_with(&key(number), || turn);
                    prop_assert_eq!(inserted, !model.contains_key(&key(number)));
                    prop_assert_eq!(**value, *model.entry(key(number)).or_insert(turn));
                }
                Step::Find(number) => {
                    let found = index.find(key(number).text());
                    prop_assert_eq!(found.map(|found| **found), model.get(&key(number)).copied());
                }
                Step::Remove(number) => {
                    if let Some(value) = index.find(key(number).text()) {
                        prop_assert!(index.remove_if(key(number).text(), &value, |_| true));
                        prop_assert!(!index.remove_if(key(number).text(), &value, |_| true), "gone already");
                    }
                    model.remove(&key(number));
                }
                Step::RemoveUnless(number) => {
                    if let Some(value) = index.find(key(number).text()) {
                        prop_assert!(!index.remove_if(key(number).text(), &value, |_| false));
                    }
                }
                Step::RemoveAnother(number) => {
                    let other: Index<u16> = Index::new(1, seed);
                    let (another, _) = other.find_or_insert_with(&key(number), || turn);
                    prop_assert!(!index.remove_if(key(number).text(), &another, |_| panic!("not asked about another")));
                }
                Step::Retain(modulus) => {
                    let before = model.len();
                    model.retain(|_, value| *value % modulus != 0);
                    prop_assert_eq!(index.retain(|_, value| *value % modulus != 0), before - model.len());
                }
            }
            prop_assert_eq!(index.len(), model.len());
            prop_assert_eq!(index.is_empty(), model.is_empty());
        }
        let mut seen = Vec::new();
        index.for_each(|value| seen.push(***value));
        let mut expected: Vec<u16> = model.values().copied().collect();
        seen.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn of_many_simultaneous_callers_one_makes_the_value() {
    let index: Index<usize> = Index::new(4, 7);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in 0..200 {
                    let (value, _) = index.find_or_insert_with(&key(number), || made.fetch_add(1, Ordering::Relaxed));
                    assert!(Arc::ptr_eq(&value, &index.find(key(number).text()).expect("just inserted")));
                }
            });
        }
    });
    assert_eq!((made.load(Ordering::Relaxed), index.len()), (200, 200));
}

#[test]
fn whoever_walks_the_index_may_change_it() {
    let index: Index<Key> = Index::new(4, 7);
    (0..100).for_each(|number| drop(index.find_or_insert_with(&key(number), || key(number))));
    index.for_each(|value| assert!(index.remove_if(value.text(), value, |_| true)));
    assert!(index.is_empty());
}

#[test]
fn heap_bytes_follow_the_objects_up_and_down() {
    let index: Index<()> = Index::new(16, 7);
    let empty = index.heap_bytes();
    let keys: Vec<Key> =
        (0..20_000).map(|number| Key::from_text(format!("http://a.example/{number:05}").into_bytes())).collect();
    keys.iter().for_each(|key| drop(index.find_or_insert_with(key, || ())));
    let texts: usize = keys.iter().map(Key::heap_bytes).sum();
    let per_object = (index.heap_bytes() - empty - texts) as f64 / keys.len() as f64;
    assert!((19.0..=40.0).contains(&per_object), "{per_object} bytes an object");

    index.retain(|_, _| false);
    assert!(index.heap_bytes() <= empty + 16 * 1024, "{} of {empty}", index.heap_bytes());
}
