//! The disclosure rules: what a result must tell so that others can judge it and measure it again. Each has a name, a
//! sentence, and a check over ledgers.

use crate::ledger::{Entry, Ledger, Outcome, Stage};
use crate::report::{Summary, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds that a comparison has at least.
const ROUNDS_MIN: usize = 3;

/// A rule.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// The rule, in a sentence.
    pub sentence: &'static str,
    /// Why the ledgers break it, with the label of the first that does.
    pub broken: fn(&[Ledger]) -> Option<String>,
}

/// All rules over ledgers, in the order of the documentation.
pub const RULES: [Rule; 10] = [
    Rule {
        name: "ended",
        sentence: "Every ledger has its end: no run was killed, and none was stopped by hand.",
        broken: |all| {
            first(all, |ledger| match ledger.end.outcome {
                Outcome::Unfinished => Some("has no end".to_owned()),
                Outcome::Interrupted => Some("was stopped by hand".to_owned()),
                Outcome::Complete | Outcome::Failed(_) => None,
            })
        },
    },
    Rule {
        name: "valid",
        sentence: "No run is invalid for a reason that lies with the referee or the machine.",
        broken: |all| {
            first(all, |ledger| {
                let found = Summary::of(ledger).findings.into_iter().find(|found| found.weight == Weight::Invalid)?;
                Some(format!("is invalid: {}", found.text))
            })
        },
    },
    Rule {
        name: "workload",
        sentence: "The workload is there to the letter, with peak, scale and seed.",
        broken: |all| {
            first(all, |ledger| {
                (is_load(ledger) && ledger.run.workload.text.is_empty()).then(|| "has no workload".to_owned())
            })
        },
    },
    Rule {
        name: "standard-length",
        sentence: "Phases have the length of the standard: a scaled play is no result.",
        broken: |all| {
            first(all, |ledger| {
                let scale = ledger.run.workload.scale;
                (is_load(ledger) && scale != 1.0).then(|| format!("was played at scale {scale}"))
            })
        },
    },
    Rule {
        name: "versions",
        sentence: "Product and version of every cache are named, and those of the referee.",
        broken: |all| {
            first(all, |ledger| {
                // A number of a version, not the digit of a name such as H2O.
                let has_version = ledger
                    .run
                    .target
                    .product
                    .as_bytes()
                    .windows(2)
                    .any(|two| two[0].is_ascii_digit() && two[1] == b'.');
                let nameless = entry(ledger).is_some() && !has_version;
                (nameless || ledger.run.cacheoff.is_empty()).then(|| "names no version".to_owned())
            })
        },
    },
    Rule {
        name: "configuration",
        sentence: "Every cache was started by an entry, whose commands and files are there as they were rendered.",
        broken: |all| {
            first(all, |ledger| {
                let asked = is_load(ledger) && !ledger.run.target.address.is_empty();
                let is_told = entry(ledger).is_some_and(|entry| !entry.commands.is_empty());
                (asked && !is_told).then(|| "does not tell how the cache was started".to_owned())
            })
        },
    },
    Rule {
        name: "reasons",
        sentence: "Every entry says why it is tuned so.",
        broken: |all| {
            first(all, |ledger| {
                entry(ledger).filter(|entry| entry.notes.is_empty()).map(|_| "gives no reasons".to_owned())
            })
        },
    },
    Rule {
        name: "machine",
        sentence: "Processor, cores, memory and kernel are named.",
        broken: |all| {
            first(all, |ledger| {
                let machine = &ledger.run.machine;
                let told = !machine.processor.is_empty() && machine.cores > 0 && machine.memory > 0;
                let is_told = told && !machine.kernel.is_empty();
                (is_load(ledger) && !is_told).then(|| "does not tell on which machine".to_owned())
            })
        },
    },
    Rule {
        name: "rounds",
        sentence: "A comparison has at least three rounds of each entry, and as many of each; an official sequence is one.",
        broken: rounds,
    },
    Rule {
        name: "seeds",
        sentence: "Rounds have different seeds, and in a round all entries have the same.",
        broken: seeds,
    },
];

/// The rule over the first ledger that breaks it.
fn first(ledgers: &[Ledger], broken: impl Fn(&Ledger) -> Option<String>) -> Option<String> {
    ledgers.iter().find_map(|ledger| {
        let reason = broken(ledger)?;
        let run = &ledger.run;
        let round = if run.round > 0 { format!(", round {}", run.round) } else { String::new() };
        Some(format!("{} ({}{round}) {reason}", run.label, run.workload.name))
    })
}

fn entry(ledger: &Ledger) -> Option<&Entry> {
    ledger.run.target.entry.as_ref()
}

/// Whether robots asked for a workload, in contrast to a kill, a calibration or a watch of TIME-WAIT.
fn is_load(ledger: &Ledger) -> bool {
    let special = matches!(ledger.run.stage, Some(Stage::Ceiling | Stage::TimeWait | Stage::Kill));
    !special && ledger.downtimes.is_empty() && !matches!(ledger.end.outcome, Outcome::Failed(_))
}

/// The plays of a contest by workload.
fn contests(ledgers: &[Ledger]) -> BTreeMap<&str, Vec<&Ledger>> {
    let mut all: BTreeMap<&str, Vec<&Ledger>> = BTreeMap::new();
    for ledger in ledgers.iter().filter(|ledger| ledger.run.stage.is_none() && is_load(ledger)) {
        all.entry(&ledger.run.workload.name).or_default().push(ledger);
    }
    all
}

fn rounds(ledgers: &[Ledger]) -> Option<String> {
    contests(ledgers).into_iter().find_map(|(workload, plays)| {
        let mut of: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        let mut played: BTreeMap<&str, usize> = BTreeMap::new();
        for play in &plays {
            of.entry(&play.run.label).or_default().insert(play.run.round);
            *played.entry(&play.run.label).or_default() += 1;
        }
        let often = played.iter().find(|(label, plays)| of.get(**label).is_none_or(|rounds| rounds.len() < **plays));
        if let Some((label, _)) = often {
            return Some(format!("{label} has more than one play of {workload} in a round"));
        }
        let most = of.values().map(BTreeSet::len).max().unwrap_or(0);
        let (label, fewest) = of.iter().min_by_key(|(_, rounds)| rounds.len())?;
        let counted = |count: usize| if count == 1 { "1 round".to_owned() } else { format!("{count} rounds") };
        (fewest.len() < ROUNDS_MIN || fewest.len() < most).then(|| {
            format!(
                "{label} has {} of {workload}; {} are asked for, and others have {most}",
                counted(fewest.len()),
                ROUNDS_MIN
            )
        })
    })
}

fn seeds(ledgers: &[Ledger]) -> Option<String> {
    contests(ledgers).into_iter().find_map(|(workload, plays)| {
        let mut of: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for play in &plays {
            of.entry(play.run.round).or_default().insert(play.run.seed);
        }
        if let Some((round, _)) = of.iter().find(|(_, seeds)| seeds.len() > 1) {
            return Some(format!("entries had different seeds in round {round} of {workload}"));
        }
        let distinct: BTreeSet<u64> = of.values().flatten().copied().collect();
        (distinct.len() < of.len()).then(|| format!("two rounds of {workload} had the same seed"))
    })
}
