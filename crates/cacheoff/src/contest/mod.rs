//! A contest: entries are started, played against and ended in alternation, several rounds, and every attempt is a ledger.
//!
//! What plays is a function that is handed in ([`Heat`] to ledger), so that this module knows nothing of robots. An
//! entry that cannot be started has a ledger too, with the reason: the report lists it.

pub mod command;
mod entry;
mod process;
#[cfg(test)]
mod tests;

use crate::ledger::{End, Ledger, Mode, Outcome, Price, Run, Target, WorkloadFacts};
pub use entry::{EntrySpec, FileSpec, Stop, Variation};
pub use process::{Post, Prepared, Running};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The entries in the order of the report.
    pub entries: Vec<EntrySpec>,
    /// Workloads by name or file.
    pub workloads: Vec<String>,
    /// Rounds per workload.
    pub rounds: u32,
    /// Where and how the caches run; the mode is a wish where [`Plan::any_mode`] is set.
    pub post: Post,
    /// Whether an entry that cannot be asked in the wished mode may be asked in the other one.
    pub any_mode: bool,
    /// Where ledgers are kept.
    pub folder: PathBuf,
    /// No round begins after this time.
    pub time_max: Option<Duration>,
}

/// One play of one entry.
pub struct Heat<'a> {
    /// The workload by name or file.
    pub workload: &'a str,
    /// Number of the round, counted from 1.
    pub round: u32,
    /// The entry's name.
    pub label: &'a str,
    /// How and where it is asked, and how it was configured.
    pub target: Target,
    /// Where the robots connect.
    pub address: SocketAddr,
    /// Where the origins must listen if it is a reverse proxy.
    pub origin: SocketAddr,
    /// The first process of the cache, if it was started here.
    pub pid: Option<u32>,
    /// Where the ledger is to be written.
    pub ledger: PathBuf,
    /// Price and watts of the entry, if it has them.
    pub price: Option<Price>,
    /// Power in watts, if the entry says so.
    pub watts: Option<f64>,
}

/// What a contest tells while it goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A play begins.
    Begins {
        /// The entry.
        label: &'a str,
        /// The workload.
        workload: &'a str,
        /// The round.
        round: u32,
    },
    /// An entry failed.
    Failed {
        /// The entry.
        label: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// Time is over; rounds that did not begin are left out.
    TimeIsOver,
}

/// Plays everything. `play` gets a running cache and returns the ledger of one run.
pub fn contest(
    plan: &Plan,
    play: &mut dyn FnMut(&Heat<'_>) -> Result<Ledger, String>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Ledger>, String> {
    std::fs::create_dir_all(&plan.folder)
        .map_err(|error| format!("the folder {} for ledgers cannot be made: {error}", plan.folder.display()))?;
    let begun = Instant::now();
    let mut ledgers = Vec::new();
    for workload in &plan.workloads {
        for round in 1..=plan.rounds {
            for place in 0..plan.entries.len() {
                // Each round begins with another entry, so that none is always first on a cold machine.
                let spec = &plan.entries[(place + round as usize - 1) % plan.entries.len()];
                if plan.time_max.is_some_and(|limit| begun.elapsed() > limit) {
                    tell(Event::TimeIsOver);
                    return Ok(in_order(plan, ledgers));
                }
                tell(Event::Begins { label: &spec.name, workload, round });
                ledgers.push(attempt(plan, spec, workload, round, play, tell));
            }
        }
    }
    Ok(in_order(plan, ledgers))
}

/// The order of the report: by workload, then as the entries were given, then by round.
fn in_order(plan: &Plan, mut ledgers: Vec<Ledger>) -> Vec<Ledger> {
    let place = |ledger: &Ledger| plan.entries.iter().position(|spec| spec.name == ledger.run.label);
    let mut workloads: Vec<String> = Vec::new();
    for ledger in &ledgers {
        if !workloads.contains(&ledger.run.workload.name) {
            workloads.push(ledger.run.workload.name.clone());
        }
    }
    let workload = |ledger: &Ledger| workloads.iter().position(|name| *name == ledger.run.workload.name);
    ledgers.sort_by_key(|ledger| (workload(ledger), place(ledger), ledger.run.round));
    ledgers
}

fn attempt(
    plan: &Plan,
    spec: &EntrySpec,
    workload: &str,
    round: u32,
    play: &mut dyn FnMut(&Heat<'_>) -> Result<Ledger, String>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Ledger {
    let path = plan.folder.join(file_name(workload, &spec.name, round));
    let played = started(plan, spec).and_then(|(prepared, running, post)| {
        let target = Target {
            mode: mode(&post.mode),
            address: running.address.to_string(),
            product: prepared.product(),
            entry: Some(running.entry.clone()),
        };
        let heat = Heat {
            workload,
            round,
            label: &spec.name,
            target,
            address: running.address,
            origin: post.origin,
            pid: running.pid(),
            ledger: path.clone(),
            price: price(spec),
            watts: spec.watts,
        };
        let ledger = play(&heat);
        running.stop();
        ledger
    });
    played.unwrap_or_else(|reason| {
        tell(Event::Failed { label: &spec.name, reason: &reason });
        let ledger = failed(spec, workload, round, reason);
        // A ledger that cannot be kept is still in the report that is made now.
        let _ = std::fs::File::create(&path).and_then(|file| ledger.write(file));
        ledger
    })
}

fn started(plan: &Plan, spec: &EntrySpec) -> Result<(Prepared, Running, Post), String> {
    let mut post = plan.post.clone();
    if plan.any_mode && !spec.mode.contains_key(&post.mode) {
        post.mode = if post.mode == "forward" { "reverse" } else { "forward" }.to_owned();
    }
    let prepared = Prepared::new(spec.clone(), post.clone())?;
    prepared.prepare()?;
    let running = prepared.start()?;
    Ok((prepared, running, post))
}

fn mode(word: &str) -> Mode {
    if word == "forward" { Mode::Forward } else { Mode::Reverse }
}

fn price(spec: &EntrySpec) -> Option<Price> {
    let currency = spec.currency.clone().unwrap_or_default();
    spec.price.map(|amount| Price { amount, currency })
}

fn failed(spec: &EntrySpec, workload: &str, round: u32, reason: String) -> Ledger {
    let run = Run {
        cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
        label: spec.name.clone(),
        round,
        started_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        workload: WorkloadFacts { name: stem(workload), ..WorkloadFacts::default() },
        ..Run::default()
    };
    Ledger { run, end: End { outcome: Outcome::Failed(reason), ..End::default() }, ..Ledger::default() }
}

/// The name of a workload that may be given as a file.
fn stem(workload: &str) -> String {
    std::path::Path::new(workload).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

fn file_name(workload: &str, label: &str, round: u32) -> String {
    let safe = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    format!("{}-{}-{round}.ledger", safe(&stem(workload)), safe(label))
}
