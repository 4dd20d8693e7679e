//! The sequence of a cache-off: what the generator can do, the load without a cache, and for each entry one cache that
//! lives through everything: TIME-WAIT, its store filled twice, PolyMix through all phases, and a kill at the end. Nothing
//! is restarted in between, so that the figures are those of a cache with an age.
//!
//! Every stage is a ledger with its [`Stage`]; the report with the pages of the 2000 cache-off is made of these alone
//! (`report::official`).

pub mod command;

use crate::ceiling;
use crate::contest::{Discipline, EntrySpec, Heat, Post, Prepared, Running, in_file_name};
use crate::kill::origin::Origin;
use crate::kill::{self, Means, Subject, failed, outage};
use crate::ledger::{End, Ledger, Mode, Note, Outcome, Price, Run, Stage, Target, WorkloadFacts};
use crate::proc::own_command;
use crate::report::Summary;
use crate::run::command::{heat, read};
use crate::{msl, stop};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// At full length, the load without a cache lasts this share of the load with one: there is no store whose state would build up. A
/// shortened one is not shortened again: its phases would be too short for their replies.
const NO_PROXY_SHARE: f64 = 0.25;
/// The phase of PolyFill-2 that fills.
const FILL_PHASE: &str = "meas";

/// The stages of an entry before its kill.
const LIFE: [Stage; 3] = [Stage::TimeWait, Stage::Fill, Stage::Load];

/// The choices of a sequence.
pub struct Sequence {
    /// The entries in the order of the report.
    pub entries: Vec<EntrySpec>,
    /// Where and how the caches run; the mode is a wish.
    pub post: Post,
    /// Cores of the referee.
    pub cores: Vec<usize>,
    /// Requests per second at peak.
    pub peak: f64,
    /// Phases are so many times as long.
    pub scale: f64,
    /// Seed of all that is random.
    pub seed: u64,
    /// Rate at which the store is filled; as fast as it goes if nothing is said, which is the standard.
    pub fill_peak: Option<f64>,
    /// A fill ends after this time even if it is not through.
    pub fill_max: Duration,
    /// How long TIME-WAIT is watched.
    pub time_wait: Duration,
    /// Seconds of the calibration.
    pub ceiling_s: u64,
    /// An entry whose fill or load the machine spoilt lives anew so often.
    pub repeats_max: usize,
    /// How the kill is played.
    pub kill: kill::Settings,
    /// Folder for the ledgers.
    pub folder: PathBuf,
    /// The maker, in their own words; empty if nobody said so.
    pub by: String,
}

/// A cache that lives through the sequence.
struct Living<'a> {
    spec: &'a EntrySpec,
    post: Post,
    prepared: Prepared,
    running: Running,
    since: Instant,
    /// Why its earlier lives were ended.
    repeats: Vec<String>,
}

impl Sequence {
    /// Plays everything and gives the ledgers in order. An entry that fails has a ledger with the reason.
    pub fn play(&self, tell: &mut dyn FnMut(&str)) -> Result<Vec<Ledger>, String> {
        fs::create_dir_all(&self.folder)
            .map_err(|error| format!("the folder {} cannot be made: {error}", self.folder.display()))?;
        let mut ledgers = Vec::new();
        tell("the generator alone");
        ledgers.push(self.keep("1-ceiling", Stage::Ceiling, self.ceiling()?));
        if !stop::is_asked() {
            tell("the load without a cache");
            ledgers.push(self.no_proxy()?);
        }
        for spec in &self.entries {
            if stop::is_asked() {
                tell("stopped: the entries that are left are not played");
                break;
            }
            self.lives(spec, tell, &mut ledgers);
        }
        Ok(ledgers)
    }

    fn ceiling(&self) -> Result<Ledger, String> {
        let core = |cores: &[usize]| cores.first().copied().unwrap_or(0);
        let load = read(&self.load(self.scale), self.scale)?.workload;
        let cores = (core(&self.cores), core(&self.post.cores));
        ceiling::of_generator(&load, self.peak, self.ceiling_s, cores, self.post.port)
    }

    fn no_proxy(&self) -> Result<Ledger, String> {
        let discipline = self.load(self.no_proxy_scale());
        let target = Target { mode: Mode::NoProxy, ..Target::default() };
        let play = Heat {
            discipline: &discipline,
            round: 0,
            repeats: Vec::new(),
            label: "no proxy",
            target,
            address: self.post.origin,
            origin: self.post.origin,
            pid: None,
            purge: None,
            ledger: self.file("2-no-proxy"),
            cache_bytes: None,
            price: None,
            watts: None,
            processes: None,
            authority: None,
        };
        let ledger = heat(&play, Some(self.peak), self.no_proxy_scale(), self.seed, &self.cores)?;
        Ok(self.keep("2-no-proxy", Stage::NoProxy, ledger))
    }

    fn no_proxy_scale(&self) -> f64 {
        if self.scale < 1.0 { self.scale } else { self.scale * NO_PROXY_SHARE }
    }

    /// One entry, from its start again where the machine spoilt its fill or its load: a stage alone cannot be played again, for
    /// the store would hold what the stage asks for. Ledgers of a spoilt life stay under another name.
    fn lives(&self, spec: &EntrySpec, tell: &mut dyn FnMut(&str), ledgers: &mut Vec<Ledger>) {
        let (first, mut repeats) = (ledgers.len(), Vec::new());
        while let Some(reason) = self.entry(spec, &repeats, tell, ledgers) {
            tell(&format!("{} lives anew: {reason}", spec.name));
            repeats.push(reason);
            ledgers.truncate(first);
            for stage in LIFE {
                let path = self.file(&name(spec, stage));
                // One that cannot be moved is written over.
                let _ = fs::rename(&path, path.with_extension(format!("spoilt-{}", repeats.len())));
            }
        }
    }

    /// One life of an entry, to its end; a stage that could not be played ends it. Gives the reason to play it anew.
    fn entry(
        &self,
        spec: &EntrySpec,
        repeats: &[String],
        tell: &mut dyn FnMut(&str),
        ledgers: &mut Vec<Ledger>,
    ) -> Option<String> {
        tell(&format!("{} is started", spec.name));
        let mut living = match self.start(spec, repeats) {
            Ok(living) => living,
            Err(reason) => {
                ledgers.push(self.lost(spec, (Stage::Fill, repeats), reason));
                return None;
            }
        };
        for stage in LIFE {
            if stop::is_asked() {
                return None;
            }
            tell(&format!("{}: {}", spec.name, words(stage)));
            let played = match stage {
                Stage::TimeWait => Ok(self.time_wait(&living)),
                Stage::Fill => self.stage(&living, stage, &self.fill()),
                _ => self.stage(&living, stage, &self.load(self.scale)),
            };
            let played = played.and_then(|ledger| match living.running.ended() {
                Some(status) => Err(format!("the cache ended while it was tested ({status})")),
                None => Ok(ledger),
            });
            let ledger = match played {
                Ok(ledger) => self.keep(&name(spec, stage), stage, ledger),
                Err(reason) => {
                    ledgers.push(self.lost(spec, (stage, repeats), reason));
                    return None;
                }
            };
            let is_whole = ledger.end.outcome == Outcome::Complete;
            let may_repeat = is_whole && repeats.len() < self.repeats_max && !stop::is_asked();
            let spoilt = Summary::of(&ledger).repeatable().filter(|_| may_repeat);
            ledgers.push(ledger);
            if spoilt.is_some() {
                living.running.stop();
                return spoilt;
            }
        }
        if !stop::is_asked() {
            tell(&format!("{}: {}", spec.name, words(Stage::Kill)));
            let mut ledger = self.kill(living);
            ledger.run.repeats = repeats.to_vec();
            ledgers.push(self.keep(&name(spec, Stage::Kill), Stage::Kill, ledger));
        }
        None
    }

    fn start<'a>(&self, spec: &'a EntrySpec, repeats: &[String]) -> Result<Living<'a>, String> {
        let mut post = self.post.clone();
        if !spec.mode.contains_key(&post.mode) {
            post.mode = if post.mode == "forward" { "reverse" } else { "forward" }.to_owned();
        }
        if !spec.store.is_empty() && !spec.store.contains_key(&post.store) {
            post.store = "memory".to_owned();
        }
        let prepared = Prepared::new(spec.clone(), post.clone())?;
        prepared.prepare()?;
        let running = prepared.start()?;
        Ok(Living { spec, post, prepared, running, since: Instant::now(), repeats: repeats.to_vec() })
    }

    fn time_wait(&self, living: &Living<'_>) -> Ledger {
        let begun = Instant::now();
        let (text, outcome) = match msl::observe(living.running.address, self.time_wait) {
            Ok(observed) if stop::is_asked() => (observed.verdict(), Outcome::Interrupted),
            Ok(observed) => (observed.verdict(), Outcome::Complete),
            Err(reason) => (reason.clone(), Outcome::Failed(reason)),
        };
        let run = Run {
            workload: WorkloadFacts { name: "TIME-WAIT".to_owned(), scale: 1.0, ..WorkloadFacts::default() },
            ..head(living)
        };
        let at_us = begun.elapsed().as_micros() as u64;
        let end = End { at_us, outcome, invalid: Vec::new() };
        Ledger { run, notes: vec![Note { at_us, text }], end, ..Ledger::default() }
    }

    /// A workload against the living cache.
    fn stage(&self, living: &Living<'_>, stage: Stage, discipline: &Discipline) -> Result<Ledger, String> {
        let run = head(living);
        let play = Heat {
            discipline,
            round: 0,
            repeats: living.repeats.clone(),
            label: &living.spec.name,
            target: run.target,
            address: living.running.address,
            origin: living.post.origin,
            pid: living.running.pid(),
            purge: living.spec.purge.as_deref(),
            ledger: self.file(&name(living.spec, stage)),
            cache_bytes: run.cache_bytes,
            price: run.price,
            watts: run.watts,
            processes: None,
            authority: None,
        };
        let alive = living.since.elapsed();
        let mut ledger = heat(&play, Some(self.peak), self.scale, self.seed, &self.cores)?;
        ledger.notes.insert(0, Note { at_us: 0, text: age(&living.running, alive) });
        Ok(ledger)
    }

    fn kill(&self, living: Living<'_>) -> Ledger {
        let Living { spec, post, prepared, running, since, .. } = living;
        let origin = match Origin::start(post.origin) {
            Ok(origin) => origin,
            Err(error) => {
                let reason = format!("the origin cannot listen on {}: {error}", post.origin);
                return failed(Means::KILL, &spec.name, reason);
            }
        };
        let remark = Note { at_us: 0, text: age(&running, since.elapsed()) };
        let (forward, label) = (post.mode == "forward", spec.name.as_str());
        let subject = Subject { entry: &prepared, running: Some(running), forward, origin: &origin, label };
        let mut ledger = Means::with_kill(None, |means| outage(subject, means, &self.kill, &mut |_| {}));
        ledger.notes.insert(0, remark);
        (ledger.run.price, ledger.run.watts) = (price(spec), spec.watts);
        ledger
    }

    /// PolyMix-2.
    fn load(&self, scale: f64) -> Discipline {
        Discipline { scale: Some(scale), ..Discipline::of("polymix-2") }
    }

    /// PolyFill-2, with an end for a cache that takes nothing.
    fn fill(&self) -> Discipline {
        let limit = format!("{}s", self.fill_max.as_secs_f64() / self.scale);
        Discipline {
            variant: self.fill_peak.map(|_| "paced".to_owned()),
            peak: self.fill_peak,
            changes: vec![(format!("phase.{FILL_PHASE}.length"), limit)],
            ..Discipline::of("polyfill-2")
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ledger"))
    }

    /// Writes the ledger with its stage. One that cannot be kept is still in the report that is made now.
    fn keep(&self, name: &str, stage: Stage, mut ledger: Ledger) -> Ledger {
        (ledger.run.stage, ledger.run.by) = (Some(stage), self.by.clone());
        // The limit of the fill is no knob that somebody turned.
        if stage == Stage::Fill {
            ledger.run.workload.name = "polyfill-2".to_owned();
        }
        let _ = File::create(self.file(name)).and_then(|file| ledger.write(file));
        ledger
    }

    /// The ledger of a stage that could not be played. It tells of earlier lives too.
    fn lost(&self, spec: &EntrySpec, (stage, repeats): (Stage, &[String]), reason: String) -> Ledger {
        let workload = match stage {
            Stage::Load => "polymix-2",
            _ => "polyfill-2",
        };
        let mut ledger = failed(workload, &spec.name, reason);
        ledger.run.repeats = repeats.to_vec();
        self.keep(&name(spec, stage), stage, ledger)
    }
}

/// The facts of an entry that each of its ledgers has.
fn head(living: &Living<'_>) -> Run {
    Run {
        cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
        label: living.spec.name.clone(),
        command: own_command(),
        target: Target {
            mode: if living.post.mode == "forward" { Mode::Forward } else { Mode::Reverse },
            address: living.running.address.to_string(),
            product: living.prepared.product(),
            entry: Some(living.running.entry.clone()),
        },
        cache_bytes: living.prepared.cache_bytes(),
        price: price(living.spec),
        watts: living.spec.watts,
        ..Run::default()
    }
}

fn price(spec: &EntrySpec) -> Option<Price> {
    let currency = spec.currency.clone().unwrap_or_default();
    spec.price.map(|amount| Price { amount, currency })
}

/// The proof that a cache lives through the sequence: its process and how long it runs.
fn age(running: &Running, alive: Duration) -> String {
    let process = running.pid().map_or_else(|| "somebody else's process".to_owned(), |pid| format!("process {pid}"));
    format!("the cache is {process}, started {:.1} s before", alive.as_secs_f64())
}

fn words(stage: Stage) -> &'static str {
    match stage {
        Stage::Ceiling => "the generator alone",
        Stage::NoProxy => "the load without a cache",
        Stage::TimeWait => "TIME-WAIT",
        Stage::Fill => "its store is filled twice",
        Stage::Load => "the load through all phases",
        Stage::Kill => "it is killed and started again",
    }
}

/// The name of an entry's ledger: files in the order of their names are in the order of the sequence.
fn name(spec: &EntrySpec, stage: Stage) -> String {
    let safe = in_file_name(&spec.name);
    let word = match stage {
        Stage::Ceiling | Stage::NoProxy => "bench",
        Stage::TimeWait => "1-time-wait",
        Stage::Fill => "2-fill",
        Stage::Load => "3-load",
        Stage::Kill => "4-kill",
    };
    format!("3-{safe}-{word}")
}
