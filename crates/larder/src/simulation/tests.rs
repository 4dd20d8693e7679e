//! The seeds that are played, and the faults that the simulation must find.

use super::plan::Plan;
use super::run::{Outcome, run};
use super::shrink::shrink;
use crate::planted::{self, Planted};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Seeds that are played with the unit tests.
const SEEDS: u64 = 200;

/// Later seeds that have shown a fault, which they go on to look for.
const RED_ONCE: [u64; 8] = [2_224, 2_744, 5_756, 7_286, 9_770, 24_656, 48_123, 4_251];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The report of a red run: its seed, what is left of its plan when all is taken away that is not needed, and the trace of that.
fn report(seed: u64, outcome: &Outcome) -> String {
    let violation = outcome.violation.as_ref().expect("the run is red");
    let plan = shrink(&Plan::of(seed), violation.law);
    let small = run(&plan);
    let mut text = format!("seed {seed}: {}: {}\n", violation.law, violation.seen);
    let _ = writeln!(text, "again: cargo xtask simulate --seed {seed}\nwhat is left of it:\n{}", plan.described());
    for line in &small.trace {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// `LARDER_SEEDS` says how many seeds, `LARDER_SEED` the first one.
#[test]
fn all_laws_hold_for_all_seeds() {
    let first = number("LARDER_SEED").unwrap_or(0);
    let many = number("LARDER_SEEDS").unwrap_or(if first > 0 { 1 } else { SEEDS });
    let (mut answers, mut reports, mut red) = (0, BTreeMap::new(), 0);
    let others = RED_ONCE.into_iter().filter(|_| number("LARDER_SEEDS").is_none());
    for seed in (first..first + many).chain(others) {
        let outcome = run(&Plan::of(seed));
        answers += outcome.answers;
        if let Some(violation) = &outcome.violation {
            red += 1;
            reports.entry(violation.law).or_insert_with(|| report(seed, &outcome));
        }
    }
    println!("{many} seeds, {answers} answers, {red} seeds are red");
    assert!(red == 0, "{}", reports.into_values().collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..20 {
        let plan = Plan::of(seed);
        assert_eq!(run(&plan).trace, run(&plan).trace, "seed {seed}");
    }
}

/// How many seeds it takes until a planted fault is found, and by which law.
fn found(fault: Planted) -> Option<(u64, &'static str)> {
    planted::plant(Some(fault));
    let found = (0..SEEDS).find_map(|seed| Some((seed + 1, run(&Plan::of(seed)).violation?.law)));
    planted::plant(None);
    found
}

#[test]
fn a_lost_wakeup_is_found() {
    let found = found(Planted::LostWakeup);
    println!("{found:?}");
    assert!(found.is_some());
}

#[test]
fn a_swapped_body_is_found() {
    let found = found(Planted::SwappedBody);
    println!("{found:?}");
    assert!(found.is_some());
}

#[test]
fn a_leaked_permit_is_found() {
    let found = found(Planted::LeakedPermit);
    println!("{found:?}");
    assert!(found.is_some());
}
