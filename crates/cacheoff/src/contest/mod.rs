//! A contest: entries are started, played against and ended in alternation, several rounds, and every attempt is a ledger.
//!
//! The player is a function that is handed in ([`Heat`] to ledger), so that this module knows nothing of robots. An
//! entry that cannot be started has a ledger too, with the reason: the report lists it.

mod applications;
pub mod bench;
pub mod command;
mod discipline;
mod entry;
pub mod hold;
pub mod names;
mod post;
mod process;
mod programs;
mod servers;
mod stand_in;
#[cfg(test)]
mod tests;
mod tuning;

use crate::ledger::{End, Ledger, Mode, Outcome, Price, Run, Target, TlsFacts, WorkloadFacts};
use crate::random::Stream;
use crate::report::Summary;
use crate::stop;
use crate::tls::Authority;
pub use discipline::Discipline;
pub use entry::{EntrySpec, FileSpec, Stop, Variation};
pub use post::{Post, Servers};
pub use process::{Prepared, Running};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
pub use tuning::{Advantage, Setting};

/// The plan of a contest.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The entries in the order of the report.
    pub entries: Vec<EntrySpec>,
    /// The disciplines, played one after the other.
    pub disciplines: Vec<Discipline>,
    /// Rounds of each, if it does not say.
    pub rounds: u32,
    /// Where and how the caches run; the mode is that of the workload where [`Plan::any_mode`] is set.
    pub post: Post,
    /// Whether the workload says how entries are asked, and one that cannot be asked so is asked in the other way.
    pub any_mode: bool,
    /// Where ledgers are kept.
    pub folder: PathBuf,
    /// No round begins after this time.
    pub time_max: Option<Duration>,
}

/// One play of one entry.
pub struct Heat<'a> {
    /// The discipline.
    pub discipline: &'a Discipline,
    /// Number of the round, counted from 1.
    pub round: u32,
    /// Why earlier plays of this round were not valid.
    pub repeats: Vec<String>,
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
    /// The method by which the entry forgets a URL, if it has one.
    pub purge: Option<&'a str>,
    /// Where the ledger is to be written.
    pub ledger: PathBuf,
    /// Budget of the store, for workloads that fill it.
    pub cache_bytes: Option<u64>,
    /// Price and watts of the entry, if it has them.
    pub price: Option<Price>,
    /// Power in watts, if the entry says so.
    pub watts: Option<f64>,
    /// Processes of the application that it was told to have, if it makes pages.
    pub processes: Option<u32>,
    /// The authority that signed for the entry, where its listener speaks TLS.
    pub authority: Option<&'a Authority>,
}

/// The progress of a contest.
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
    /// A play was not valid for a reason that may pass; it is repeated.
    Repeated {
        /// The entry.
        label: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// Stopped by hand; what is left is not played.
    Stopped,
    /// Time is over; rounds that did not begin are left out.
    TimeIsOver,
}

/// The functions that play a heat, handed in by the command line.
pub struct Players<'a> {
    /// Gets a running cache and returns the ledger of one run.
    pub play: &'a mut dyn FnMut(&Heat<'_>) -> Result<Ledger, String>,
    /// Gets the test, an entry that is not running, where it runs, and the round; starts the entry and kills it.
    pub kill: &'a mut dyn FnMut(&Discipline, &EntrySpec, &Post, u32) -> Ledger,
    /// The facts about the workload in the ledger of an entry that never began, so that it is listed beside the others.
    pub facts: &'a dyn Fn(&Discipline) -> WorkloadFacts,
}

/// Bytes of a workload's or an entry's name in the name of a file.
const NAME_BYTES_MAX: usize = 100;

/// A play that the machine spoilt is repeated so often.
const REPEATS_MAX: usize = 2;

/// Plays everything.
pub fn contest(plan: &Plan, players: &mut Players<'_>, tell: &mut dyn FnMut(Event<'_>)) -> Result<Vec<Ledger>, String> {
    std::fs::create_dir_all(&plan.folder)
        .map_err(|error| format!("the folder {} for ledgers cannot be made: {error}", plan.folder.display()))?;
    let begun = Instant::now();
    let mut ledgers = Vec::new();
    for discipline in &plan.disciplines {
        let title = discipline.title();
        for round in 1..=discipline.rounds.unwrap_or(plan.rounds) {
            for place in 0..plan.entries.len() {
                // Each round begins with another entry, so that none is always first on a cold machine.
                let spec = &plan.entries[(place + round as usize - 1) % plan.entries.len()];
                if stop::is_asked() {
                    tell(Event::Stopped);
                    return Ok(in_order(plan, ledgers));
                }
                if plan.time_max.is_some_and(|limit| begun.elapsed() > limit) {
                    tell(Event::TimeIsOver);
                    return Ok(in_order(plan, ledgers));
                }
                tell(Event::Begins { label: &spec.name, workload: &title, round });
                let ledger = attempt(plan, spec, discipline, round, players, tell);
                let stopped = ledger.end.outcome == Outcome::Interrupted;
                ledgers.push(ledger);
                if stopped {
                    tell(Event::Stopped);
                    return Ok(in_order(plan, ledgers));
                }
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
    discipline: &Discipline,
    round: u32,
    players: &mut Players<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Ledger {
    let path = plan.folder.join(file_name(&discipline.title(), &spec.name, round));
    let facts = (players.facts)(discipline);
    let mut post = post(plan, spec, discipline, !facts.names.is_empty());
    // A forward proxy makes tunnels: TLS is spoken through it, not to it.
    if post.mode == "reverse" || !facts.listener.is_secure() {
        post.listener = facts.listener;
    }
    let played = match discipline.kills() {
        true => Ok(keep(&path, (players.kill)(discipline, spec, &post, round), round)),
        false => valid_heat(spec, &post, discipline, round, &path, players, tell),
    };
    let ledger = played.unwrap_or_else(|reason| keep(&path, failed(spec, (players.facts)(discipline), reason), round));
    if let Outcome::Failed(reason) = &ledger.end.outcome {
        tell(Event::Failed { label: &spec.name, reason });
    }
    ledger
}

/// Plays until a play is valid, or often enough. Ledgers of spoilt plays stay beside the last one under another name.
fn valid_heat(
    spec: &EntrySpec,
    post: &Post,
    discipline: &Discipline,
    round: u32,
    path: &Path,
    players: &mut Players<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Ledger, String> {
    let mut repeats = Vec::new();
    loop {
        let ledger = heat(spec, post, discipline, round, repeats.clone(), path, players)?;
        let is_over = repeats.len() == REPEATS_MAX || stop::is_asked() || ledger.end.outcome != Outcome::Complete;
        let Some(reason) = Summary::of(&ledger).repeatable().filter(|_| !is_over) else { return Ok(ledger) };
        tell(Event::Repeated { label: &spec.name, reason: &reason });
        repeats.push(reason);
        // A ledger that cannot be moved is written over.
        let _ = std::fs::rename(path, path.with_extension(format!("spoilt-{}", repeats.len())));
    }
}

/// Starts the entry, plays, ends it.
fn heat(
    spec: &EntrySpec,
    post: &Post,
    discipline: &Discipline,
    round: u32,
    repeats: Vec<String>,
    path: &Path,
    players: &mut Players<'_>,
) -> Result<Ledger, String> {
    let named = (players.facts)(discipline).names;
    let prepared = Prepared::new(EntrySpec { hosts: named, ..spec.clone() }, post.clone())?;
    prepared.prepare()?;
    let running = prepared.start()?;
    let target = Target {
        mode: mode(&post.mode),
        address: running.address.to_string(),
        product: prepared.product(),
        entry: Some(running.entry.clone()),
    };
    let heat = Heat {
        discipline,
        round,
        repeats,
        label: &spec.name,
        target,
        address: running.address,
        origin: post.origin,
        pid: running.pid(),
        purge: spec.purge.as_deref(),
        ledger: path.to_owned(),
        cache_bytes: prepared.cache_bytes(),
        price: price(spec),
        watts: spec.watts,
        processes: post.makes_pages().then_some(post.servers.processes),
        authority: prepared.authority(),
    };
    let ledger = (players.play)(&heat);
    running.stop();
    ledger
}

/// The discipline's store, and the mode that the entry knows.
fn post(plan: &Plan, spec: &EntrySpec, discipline: &Discipline, has_names: bool) -> Post {
    let mut post = plan.post.clone();
    if plan.any_mode || discipline.asks_for_pages() {
        discipline.usual_mode().clone_into(&mut post.mode);
    }
    let is_lost = post.mode == "forward" && has_names && spec.ignores_hosts;
    if plan.any_mode && !post.makes_pages() && (is_lost || !spec.mode.contains_key(&post.mode)) {
        post.mode = if post.mode == "forward" { "reverse" } else { "forward" }.to_owned();
    }
    match &discipline.store {
        Some(store) => post.store.clone_from(store),
        // A store in memory has nothing to keep.
        None if discipline.kills() => "disk".clone_into(&mut post.store),
        None => {}
    }
    post
}

fn mode(word: &str) -> Mode {
    match word {
        "forward" => Mode::Forward,
        Post::PAGES => Mode::Pages,
        _ => Mode::Reverse,
    }
}

fn price(spec: &EntrySpec) -> Option<Price> {
    let currency = spec.currency.clone().unwrap_or_default();
    spec.price.map(|amount| Price { amount, currency })
}

/// Writes a ledger that nobody else has written. One that cannot be kept is still in the report that is made now.
fn keep(path: &Path, mut ledger: Ledger, round: u32) -> Ledger {
    ledger.run.round = round;
    let _ = std::fs::File::create(path).and_then(|file| ledger.write(file));
    ledger
}

/// The ledger of an entry that never began. It says what robots would have spoken: runs over TLS or HTTP/2 have tables of their own.
fn failed(spec: &EntrySpec, workload: WorkloadFacts, reason: String) -> Ledger {
    let run = Run {
        cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
        label: spec.name.clone(),
        started_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        protocol: workload.protocol.clone(),
        tls: workload.listener.is_secure().then_some(TlsFacts::Verified),
        workload,
        ..Run::default()
    };
    Ledger { run, end: End { outcome: Outcome::Failed(reason), ..End::default() }, ..Ledger::default() }
}

/// The name of a ledger.
fn file_name(title: &str, label: &str, round: u32) -> String {
    format!("{}-{}-{round}.ledger", in_file_name(title), in_file_name(label))
}

/// A name as part of the name of a file. A long one ends in a hash of the whole: file systems take 255 bytes, and two
/// disciplines that differ in their last knob alone must not write over each other.
pub fn in_file_name(name: &str) -> String {
    let safe = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    if safe.len() <= NAME_BYTES_MAX {
        return safe;
    }
    let hash = Stream::named(0, name).next_u64();
    format!("{}-{hash:016x}", &safe[..NAME_BYTES_MAX - 17])
}
