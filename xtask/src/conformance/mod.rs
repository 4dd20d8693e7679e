//! Conformance with the RFCs, case by case: every case of `conformance/` is played against Larder, and with `--peers`
//! against packaged caches beside it, each with an origin of its own on raw sockets.

mod caches;
mod cases;
mod client;
#[cfg(test)]
mod double;
mod expect;
mod judge;
mod origin;
mod page;
mod text;
mod wire;

use crate::lab::Lab;
use crate::results;
use crate::shell::{self, Trouble};
use crate::tally::Tally;
use caches::Kind;
use cases::{Case, Level, Set};
use judge::Outcome;
use origin::Origin;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use text::Attempt;

/// The cases to play, and the caches to play them against.
#[derive(clap::Args)]
pub struct Args {
    /// Packaged caches too, and docs/results/conformance.md is written.
    #[arg(long)]
    peers: bool,
    /// Leaves docs/results/conformance.md as it is.
    #[arg(long)]
    dry: bool,
    /// Only cases whose id begins so; what was seen is printed.
    #[arg(long)]
    case: Option<String>,
    /// Only this cache.
    #[arg(long)]
    cache: Option<Kind>,
    /// The Larder that is judged, instead of the one of the workspace.
    #[arg(long)]
    larder: Option<PathBuf>,
}

/// The results of one cache, by id of the case.
pub struct Results {
    kind: Kind,
    version: String,
    outcomes: BTreeMap<String, Outcome>,
    seconds: f64,
}

/// Cases under way at a time: most of them wait for a clock or for silence.
const CASES_AT_ONCE: usize = 48;
/// How long a program may take to stand up again.
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Plays what is asked for, prints it, and writes the page when everything was played.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    let mut sets = cases::load(&root)?;
    if let Some(prefix) = &args.case {
        sets.iter_mut().for_each(|set| set.cases.retain(|case| case.id.starts_with(prefix.as_str())));
        sets.retain(|set| !set.cases.is_empty());
    }
    if sets.is_empty() {
        return Err("there is no such case".to_owned());
    }
    let kinds = chosen(args)?;
    let program = args.larder.clone().unwrap_or_else(|| shell::built_larder(&root));
    if kinds.contains(&Kind::Larder) && args.larder.is_none() {
        build(&root)?;
    }
    let mut all = Vec::new();
    for kind in kinds {
        let results = play(kind, &program, &sets)?;
        print(&results, &sets, args.case.is_some());
        all.push(results);
    }
    if args.peers && !args.dry && args.case.is_none() && args.cache.is_none() {
        results::publish(&root, "conformance", &page::write(&sets, &all))?;
    }
    match all.iter().find(|results| results.kind == Kind::Larder) {
        Some(larder) => judge_larder(larder, &sets),
        None => Ok(()),
    }
}

/// All cases against the Larder that the tests built, as one test.
pub fn play_larder() -> Result<Tally, Trouble> {
    let root = shell::workspace()?;
    let sets = cases::load(&root)?;
    let results = play(Kind::Larder, &shell::built_larder(&root), &sets)?;
    print(&results, &sets, false);
    let outcome = judge_larder(&results, &sets);
    if let Err(trouble) = &outcome {
        println!("{trouble}");
    }
    Ok(Tally::of(&outcome))
}

fn chosen(args: &Args) -> Result<Vec<Kind>, Trouble> {
    let mut kinds = match args.cache {
        Some(kind) => vec![kind],
        None if args.peers => Kind::ALL.to_vec(),
        None => vec![Kind::Larder],
    };
    for kind in kinds.iter().filter(|kind| !kind.is_installed()) {
        println!("{} is not installed", kind.as_str());
    }
    kinds.retain(|kind| kind.is_installed());
    if kinds.is_empty() { Err("there is no cache to judge".to_owned()) } else { Ok(kinds) }
}

fn build(root: &Path) -> Result<(), Trouble> {
    let mut cargo = Command::new("cargo");
    shell::call(cargo.current_dir(root).args(["build", "--quiet", "-p", "larder", "--bin", "larder"]))
}

fn play(kind: Kind, larder: &Path, sets: &[Set]) -> Result<Results, Trouble> {
    let (mut lab, origin) = (Lab::new()?, Origin::start()?);
    let port = kind.start(larder, &mut lab, origin.port)?;
    let version = kind.version(larder)?;
    let began = Instant::now();
    let cases: Vec<&Case> = sets.iter().flat_map(|set| &set.cases).collect();
    let (mut outcomes, lost) = play_all(&cases, port, &origin);
    // A program that fell over took the cases of its neighbours with it. Larder has no such excuse.
    if kind != Kind::Larder {
        for case in cases.iter().filter(|case| lost.contains(&case.id)) {
            wait_until_it_listens(port);
            outcomes.insert(case.id.clone(), play_one(case, port, &origin, Attempt::Second).0);
        }
    }
    Ok(Results { kind, version, outcomes, seconds: began.elapsed().as_secs_f64() })
}

/// The outcome of a case, and whether that may be so because the cache ended connections.
fn play_one(case: &Case, port: u16, origin: &Origin, attempt: Attempt) -> (Outcome, bool) {
    let (scene, seen) = client::play(case, port, origin, attempt);
    let outcome = judge::judge(case, &seen, scene.variables());
    let is_lost = outcome.reason().is_some() && seen.iter().any(|seen| seen.trouble.is_some());
    (outcome, is_lost)
}

fn wait_until_it_listens(port: u16) {
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() && began.elapsed() < RESTART_MAX {
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Plays cases through the proxy at a port, many at a time, those with pauses first; gives also the lost ones.
fn play_all(cases: &[&Case], port: u16, origin: &Origin) -> (BTreeMap<String, Outcome>, BTreeSet<String>) {
    let mut order = cases.to_vec();
    order.sort_by_key(|case| case.pauses());
    let (queue, results) = (Mutex::new(order), Mutex::new((BTreeMap::new(), BTreeSet::new())));
    std::thread::scope(|scope| {
        for _ in 0..CASES_AT_ONCE.min(cases.len()) {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop() else { return };
                    let (outcome, is_lost) = play_one(case, port, origin, Attempt::First);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.0.insert(case.id.clone(), outcome);
                    if is_lost {
                        results.1.insert(case.id.clone());
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn print(results: &Results, sets: &[Set], in_full: bool) {
    for case in sets.iter().flat_map(|set| &set.cases) {
        let Some(outcome) = results.outcomes.get(&case.id) else { continue };
        let word = page::word(case.level, outcome);
        let is_red = matches!(outcome, Outcome::Failed(_)) || (case.level.binds() && outcome.reason().is_some());
        if in_full || is_red {
            println!("{:9} {word:11} {}: {}", case.level.as_str(), case.id, outcome.reason().unwrap_or(&case.says));
        }
    }
    let count = |wanted: fn(&Outcome) -> bool| results.outcomes.values().filter(|outcome| wanted(outcome)).count();
    println!(
        "{}: {} passed, {} failed, {} without premise, {} optional yes, {} no, in {:.1} s",
        results.version,
        count(|outcome| matches!(outcome, Outcome::Passed)),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::NoPremise(_))),
        count(|outcome| matches!(outcome, Outcome::Yes)),
        count(|outcome| matches!(outcome, Outcome::No(_))),
        results.seconds
    );
}

/// A MUST of Larder that is red, or that was not put to the test, is a fault; so is a SHOULD, unless the case says where
/// the choice is documented.
fn judge_larder(results: &Results, sets: &[Set]) -> Result<(), Trouble> {
    let mut wrong = Vec::new();
    for case in sets.iter().flat_map(|set| &set.cases).filter(|case| case.level.binds()) {
        let is_right = matches!(results.outcomes.get(&case.id), Some(Outcome::Passed));
        let may_differ = case.level == Level::Should && case.choice.is_some();
        if !is_right && !may_differ {
            wrong.push(case.id.as_str());
        }
        if is_right && case.choice.is_some() {
            wrong.push(case.id.as_str());
            println!("{} passes: take out its `choice`", case.id);
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("Larder does not conform in {}", wrong.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(level: Level, choice: Option<&str>, outcome: Outcome) -> Result<(), Trouble> {
        let case = Case {
            id: "a".to_owned(),
            section: "1".to_owned(),
            level,
            says: "It holds.".to_owned(),
            choice: choice.map(str::to_owned),
            steps: Vec::new(),
        };
        let outcomes = BTreeMap::from([("a".to_owned(), outcome)]);
        let results = Results { kind: Kind::Larder, version: String::new(), outcomes, seconds: 0.0 };
        judge_larder(&results, &[Set { title: "RFC 1".to_owned(), sections: Vec::new(), cases: vec![case] }])
    }

    #[test]
    fn a_red_must_and_one_that_was_not_put_to_the_test_are_faults_of_larder() {
        let (failed, unmet) = (Outcome::Failed("x".to_owned()), Outcome::NoPremise("x".to_owned()));
        assert!(verdict(Level::Must, None, Outcome::Passed).is_ok());
        for outcome in [&failed, &unmet] {
            assert!(verdict(Level::Must, None, outcome.clone()).is_err());
            assert!(verdict(Level::Must, Some("docs"), outcome.clone()).is_err());
            assert!(verdict(Level::Should, None, outcome.clone()).is_err());
            assert!(verdict(Level::Should, Some("docs"), outcome.clone()).is_ok());
        }
        assert!(verdict(Level::Should, Some("docs"), Outcome::Passed).is_err());
        assert!(verdict(Level::May, None, Outcome::No("x".to_owned())).is_ok());
    }
}
