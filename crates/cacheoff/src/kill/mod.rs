//! The test of a stop: a cache is filled, stopped from one moment to the next, started again; how long until the first
//! connection, the first miss, the first hit on what was stored before? [`Means`] says how it is stopped: `cacheoff kill`
//! sends SIGKILL, which loses what the processes had in memory and nothing that they had handed to the system.
//!
//! One robot at a constant gap, as in Downtime-2, but with a gap of ten milliseconds after the restart instead of
//! statistics of five seconds. It keeps a load of its own and a small origin, so that it runs against any cache.

pub mod command;
pub mod origin;
pub mod probe;
#[cfg(test)]
mod tests;

use crate::contest::{Prepared, Running, in_file_name};
use crate::ledger::{
    Downtime, End, Errors, Exhibit, Interval, Kind, Ledger, Mode, Note, Outcome, PhasePlan, PhaseStart, Recorder,
    Reply, Run, Served, Target, Trouble, WorkloadFacts,
};
use crate::proc::{Sampler, Watched, machine, own_command, system_tuning};
use crate::stop;
use origin::Origin;
use probe::{Found, Probe};
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Words of the phases, in order.
const PHASES: [&str; 3] = ["load", "dark", "meas"];
const SECOND: Duration = Duration::from_secs(1);
/// A cache takes an origin for dead for this long at most.
const ORIGIN_DEAD_MAX: Duration = Duration::from_secs(15);
/// Objects that were asked for the first time so shortly before the stop are counted apart.
const LATE: Duration = Duration::from_secs(5);

/// How the test is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Objects that are stored before the stop.
    pub objects: u32,
    /// How long the load lasts before the stop.
    pub load: Duration,
    /// How long the cache stays stopped.
    pub dark: Duration,
    /// Gap between two probes after the restart.
    pub gap: Duration,
    /// Longest time that is waited for the first hit.
    pub meas_max: Duration,
    /// The objects that were kept are counted so long after the start: some stores answer at once and read their index behind
    /// these answers, and until then do not know what they have.
    pub settle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            objects: 2_000,
            load: Duration::from_secs(30),
            dark: Duration::from_secs(5),
            gap: Duration::from_millis(10),
            meas_max: Duration::from_secs(60),
            settle: Duration::from_secs(30),
        }
    }
}

/// How the cache is stopped.
pub struct Means<'a> {
    /// The name of the test: `kill` or `power-cut`.
    pub test: &'static str,
    /// The means in words.
    pub words: String,
    /// Stops it at once, and leaves its folder as the next start finds it. The sentences go into the ledger.
    pub stop: &'a mut dyn FnMut(Running) -> Result<Vec<String>, String>,
}

impl Means<'_> {
    /// The name of the test that sends SIGKILL.
    pub const KILL: &'static str = "kill";
    const SIGKILL: &'static str = "SIGKILL to every process of the cache";

    /// SIGKILL, after a command of the user's if there is one.
    pub fn with_kill<T>(command: Option<&str>, test: impl FnOnce(Means<'_>) -> T) -> T {
        let words = command.map_or_else(|| Self::SIGKILL.to_owned(), str::to_owned);
        let mut stop = |running: Running| {
            command.map_or(Ok(()), stop_by)?;
            running.kill();
            Ok(Vec::new())
        };
        test(Means { test: Self::KILL, words, stop: &mut stop })
    }
}

/// The entry that is tested and how it is asked.
pub struct Subject<'a> {
    /// Its files; its folder keeps what the store writes between two starts.
    pub entry: &'a Prepared,
    /// The cache, if it runs already; else it is prepared and started.
    pub running: Option<Running>,
    /// Whether it is asked as a forward proxy.
    pub forward: bool,
    /// The origin of the test.
    pub origin: &'a Origin,
    /// The entry's name.
    pub label: &'a str,
}

/// The counters and clocks of a test that goes on.
struct Test<'a> {
    begun: Instant,
    ledger: Ledger,
    recorder: Recorder,
    sampler: Sampler,
    phase: u16,
    interval_from: Duration,
    /// Answers with wrong bytes since the start.
    wrong: u64,
    settings: &'a Settings,
    tell: &'a mut dyn FnMut(&str),
}

/// Runs the test; the cache is ended afterwards.
pub fn outage(subject: Subject<'_>, means: Means<'_>, settings: &Settings, tell: &mut dyn FnMut(&str)) -> Ledger {
    let mut test = Test {
        begun: Instant::now(),
        ledger: Ledger { run: head(&subject, &means, settings), ..Ledger::default() },
        recorder: Recorder::new(),
        sampler: Sampler::new(Watched::Nobody),
        phase: 0,
        interval_from: Duration::ZERO,
        wrong: 0,
        settings,
        tell,
    };
    let outcome = match test.play(subject, means) {
        _ if stop::is_asked() => Outcome::Interrupted,
        Ok(()) => Outcome::Complete,
        Err(reason) => Outcome::Failed(reason),
    };
    let at_us = test.now_us();
    test.ledger.end = End { at_us, outcome, invalid: Vec::new() };
    test.ledger
}

/// An error when a signal came: what is running is stopped on the way out.
fn go_on() -> Result<(), String> {
    if stop::is_asked() { Err("stopped by hand".to_owned()) } else { Ok(()) }
}

impl Test<'_> {
    fn play(&mut self, subject: Subject<'_>, means: Means<'_>) -> Result<(), String> {
        let Subject { entry, running, forward, origin, .. } = subject;
        let running = match running {
            Some(running) => running,
            None => {
                entry.prepare()?;
                entry.start()?
            }
        };
        self.ledger.run.target.address = running.address.to_string();
        self.ledger.run.target.entry = Some(running.entry.clone());
        let ask = Probe { cache: running.address, forward, origin, timeout: Duration::from_secs(2) };
        self.watch(&running);
        self.enter(0);
        (self.tell)("load");
        let (stored, late) = self.load(&ask)?;
        self.enter(1);
        (self.tell)(&format!("stopped: {}", means.words));
        let stopped_at = Instant::now();
        for remark in (means.stop)(running)? {
            self.note(remark);
        }
        stop::pause(self.settings.dark.saturating_sub(stopped_at.elapsed()));
        go_on()?;
        let dark = stopped_at.elapsed();
        self.enter(2);
        (self.tell)("started again");
        let again = Instant::now();
        let running = entry.launch()?;
        self.watch(&running);
        let short = Probe { timeout: Duration::from_millis(250), ..ask };
        // Probing stores objects anew, so that every other one is left alone for the count.
        let (probed, untouched): (Vec<u32>, Vec<u32>) = stored.iter().partition(|number| *number % 2 == 0);
        let mut found = Downtime { cut: means.words, dark_us: micros(dark), ..Downtime::default() };
        self.measure(&short, again, &probed, &mut found);
        stop::pause(self.settings.settle.saturating_sub(again.elapsed()));
        go_on()?;
        self.flush();
        (found.probed, found.kept) = self.count_kept(&ask, untouched.iter().map(|number| stored_path(*number)));
        (found.late_probed, found.late_kept) = self.count_kept(&ask, late.iter().map(|number| late_path(*number)));
        found.wrong = self.wrong;
        self.flush();
        self.ledger.downtimes.push(found);
        running.stop();
        Ok(())
    }

    /// Stores the objects, then asks at a constant gap for one of them and for a new one in turn until the load is over.
    /// Returns those that were hits the second time, and the new ones of the last seconds.
    fn load(&mut self, ask: &Probe<'_>) -> Result<(Vec<u32>, Vec<u32>), String> {
        await_origin(ask);
        let mut misses = 0;
        for number in 0..self.settings.objects {
            go_on()?;
            misses += u32::from(self.ask(ask, &stored_path(number)) == Found::Miss);
        }
        if misses == 0 {
            return Err("not one object went through the cache".to_owned());
        }
        let again: Vec<u32> = (0..self.settings.objects).collect();
        let stored: Vec<u32> = again.into_iter().filter(|n| self.ask(ask, &stored_path(*n)) == Found::Hit).collect();
        let until = Instant::now() + self.settings.load;
        let mut late: VecDeque<(u32, Instant)> = VecDeque::new();
        for turn in 0_u32.. {
            if Instant::now() >= until {
                break;
            }
            go_on()?;
            match stored.get((turn as usize / 2) % stored.len().max(1)).filter(|_| turn % 2 == 0) {
                Some(number) => drop(self.ask(ask, &stored_path(*number))),
                None if self.ask(ask, &late_path(turn)) == Found::Miss => late.push_back((turn, Instant::now())),
                None => {}
            }
            while late.front().is_some_and(|(_, at)| at.elapsed() > LATE) {
                late.pop_front();
            }
            std::thread::sleep(self.settings.gap);
        }
        if stored.is_empty() {
            self.note("the cache stored nothing, so there can be no hit after the start".to_owned());
        }
        Ok((stored, late.into_iter().map(|(number, _)| number).collect()))
    }

    /// Probes at the gap until there was a miss and a hit, or it took too long.
    fn measure(&mut self, ask: &Probe<'_>, again: Instant, stored: &[u32], found: &mut Downtime) {
        found.resolution_us = micros(self.settings.gap);
        // An object is asked for once: the second time it would be a hit on what the probe itself stored.
        let mut left = stored.iter().peekable();
        let growth = growth(self.settings, stored.len());
        let (mut accepted, mut next) = (None, again);
        for turn in 0_u32.. {
            let due = again + self.settings.gap * turn;
            if due.duration_since(again) > self.settings.meas_max || stop::is_asked() {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let is_due = turn % 2 == 0 && due >= next;
            let wanted = left.peek().filter(|_| is_due && found.first_hit_us.is_none()).copied();
            let answer = match wanted {
                Some(number) => self.ask(ask, &stored_path(*number)),
                None => self.ask(ask, &format!("/new/{turn}")),
            };
            let at = Some(micros(again.elapsed()));
            if answer != Found::NoConnection && found.first_accept_us.is_none() {
                (found.first_accept_us, accepted) = (at, Some(due));
            }
            if let Some(since) = accepted.filter(|_| wanted.is_some() && answer != Found::NoConnection) {
                left.next();
                let pause = (due - since).mul_f64(growth);
                if answer == Found::Hit {
                    found.resolution_us = found.resolution_us.max(micros(pause));
                }
                next = due + pause;
            }
            match answer {
                Found::Miss if found.first_miss_us.is_none() => found.first_miss_us = at,
                Found::Hit if found.first_hit_us.is_none() => found.first_hit_us = at,
                _ => {}
            }
            if found.first_miss_us.is_some() && (found.first_hit_us.is_some() || stored.is_empty()) {
                break;
            }
        }
    }

    /// Asks once for each of some objects that nobody asked for since the stop: how many there were, how many were hits.
    fn count_kept(&mut self, ask: &Probe<'_>, paths: impl Iterator<Item = String>) -> (u64, u64) {
        paths.fold((0, 0), |(probed, kept), path| (probed + 1, kept + u64::from(self.ask(ask, &path) == Found::Hit)))
    }

    /// One request, counted.
    fn ask(&mut self, ask: &Probe<'_>, path: &str) -> Found {
        let begun = Instant::now();
        self.recorder.sent(path.starts_with("/old"), false, None);
        let found = ask.ask(path);
        let took = begun.elapsed();
        match &found {
            Found::Hit => self.recorder.reply(&reply(Served::Hit, path, took)),
            Found::Miss => self.recorder.reply(&reply(Served::Miss, path, took)),
            Found::NoConnection => self.error(Trouble::ConnectRefused, path, "no connection"),
            Found::WrongBytes => {
                self.wrong += u64::from(self.phase == 2);
                self.error(Trouble::WrongBytes, path, "bytes that are not those of the object");
            }
            Found::NoAnswer(reason) if reason.contains("body") => self.error(Trouble::Truncated, path, reason),
            Found::NoAnswer(reason) => self.error(Trouble::Reset, path, reason),
        }
        if self.begun.elapsed() - self.interval_from >= SECOND {
            self.flush();
        }
        found
    }

    fn error(&mut self, trouble: Trouble, path: &str, detail: &str) {
        let at_us = self.now_us();
        let exhibit = || Exhibit { trouble, at_us, url: path.to_owned(), detail: detail.to_owned() };
        self.recorder.error(trouble, exhibit);
    }

    fn watch(&mut self, running: &Running) {
        self.sampler.watch(running.pid().map_or(Watched::Port(running.address.port()), Watched::Tree));
    }

    fn enter(&mut self, phase: u16) {
        if phase > 0 {
            self.flush();
        }
        self.phase = phase;
        let at_us = self.now_us();
        self.ledger.phases.push(PhaseStart { phase, at_us });
        self.interval_from = self.begun.elapsed();
    }

    /// Ends the interval under way.
    fn flush(&mut self) {
        let now = self.begun.elapsed();
        let mut interval: Interval = self.recorder.take(self.phase, self.interval_from, now - self.interval_from);
        interval.load = Some(self.sampler.sample());
        // A stopped cache answers nothing: that is the test and no error.
        if self.phase == 1 || (self.phase == 2 && self.ledger.downtimes.is_empty()) {
            interval.errors = lies_of(&interval.errors);
        }
        self.ledger.intervals.push(interval);
        self.interval_from = now;
    }

    fn note(&mut self, text: String) {
        let at_us = self.now_us();
        self.ledger.notes.push(Note { at_us, text });
    }

    fn now_us(&self) -> u64 {
        micros(self.begun.elapsed())
    }
}

/// Probes for stored objects come at the gap first, then each after so large a share of the time since the first connection
/// that the objects last for as long as a hit is waited for.
fn growth(settings: &Settings, objects: usize) -> f64 {
    let gaps = settings.meas_max.as_secs_f64() / settings.gap.as_secs_f64().max(1e-3);
    gaps.max(1.0).powf(1.0 / objects.max(1) as f64) - 1.0
}

/// A cache that lost its origins a moment ago, between two stages, may take them for dead for some seconds.
fn await_origin(ask: &Probe<'_>) {
    let begun = Instant::now();
    let answered = |turn: u32| matches!(ask.ask(&format!("/ready/{turn}")), Found::Miss | Found::Hit);
    let mut turns = 0_u32..;
    while !stop::is_asked() && begun.elapsed() < ORIGIN_DEAD_MAX && !turns.next().is_some_and(answered) {
        std::thread::sleep(SECOND / 10);
    }
}

fn stop_by(command: &str) -> Result<(), String> {
    let fail = |reason: String| format!("the command that stops the cache failed: {command:?}: {reason}");
    match std::process::Command::new("/bin/sh").args(["-c", command]).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(fail(status.to_string())),
        Err(error) => Err(fail(error.to_string())),
    }
}

/// Writes the ledger of an entry into a folder.
pub fn keep(folder: &Path, test: &str, label: &str, ledger: &Ledger) -> Result<(), String> {
    // Another tuning of an entry is called NAME/TUNING.
    let file = folder.join(format!("{test}-{}.ledger", in_file_name(label)));
    std::fs::create_dir_all(folder)
        .and_then(|()| File::create(&file))
        .and_then(|file| ledger.write(file))
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

/// The ledger of a cache that could not be prepared.
pub fn failed(test: &str, label: &str, reason: String) -> Ledger {
    let workload = WorkloadFacts { name: test.to_owned(), scale: 1.0, ..WorkloadFacts::default() };
    let run = Run { label: label.to_owned(), workload, ..Run::default() };
    Ledger { run, end: End { outcome: Outcome::Failed(reason), ..End::default() }, ..Ledger::default() }
}

/// Only the wrong answers among some errors.
fn lies_of(errors: &Errors) -> Errors {
    Errors {
        counts: errors.counts.iter().filter(|(trouble, _)| trouble.is_lie()).map(|(t, n)| (*t, *n)).collect(),
        exhibits: errors.exhibits.iter().filter(|exhibit| exhibit.trouble.is_lie()).cloned().collect(),
    }
}

fn late_path(number: u32) -> String {
    format!("/late/{number}")
}

fn stored_path(number: u32) -> String {
    format!("/old/{number}")
}

fn reply(served: Served, path: &str, took: Duration) -> Reply {
    Reply {
        kind: Kind::Basic,
        content: 0,
        status: 200,
        cachable: true,
        offered: path.starts_with("/old"),
        served,
        aborted: false,
        across: Duration::ZERO,
        behind: false,
        head_bytes: 0,
        body_bytes: origin::OBJECT_BYTES as u64,
        response: took,
        service: took,
        first_byte: took,
        wait: Duration::ZERO,
        missing: None,
        beside: None,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn head(subject: &Subject<'_>, means: &Means<'_>, settings: &Settings) -> Run {
    let plan =
        |name: &str, goal: String| PhasePlan { name: name.to_owned(), logged: true, goal, ..PhasePlan::default() };
    let goals = [
        format!(
            "{} objects stored; then one of them and a new one in turn for {} s",
            settings.objects,
            settings.load.as_secs_f64()
        ),
        format!("stopped for {} s", settings.dark.as_secs_f64()),
        format!(
            "a probe each {} ms until the first hit; objects kept counted {} s after the start",
            settings.gap.as_millis(),
            settings.settle.as_secs_f64()
        ),
    ];
    Run {
        cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
        label: subject.label.to_owned(),
        started_unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: own_command(),
        workload: WorkloadFacts {
            name: means.test.to_owned(),
            scale: 1.0,
            report_phase: PHASES[2].to_owned(),
            ..WorkloadFacts::default()
        },
        target: Target {
            mode: if subject.forward { Mode::Forward } else { Mode::Reverse },
            product: subject.entry.product(),
            ..Target::default()
        },
        cache_bytes: subject.entry.cache_bytes(),
        contents: vec!["object".to_owned()],
        phases: PHASES.into_iter().zip(goals).map(|(name, goal)| plan(name, goal)).collect(),
        tuning: system_tuning(),
        machine: machine(""),
        ..Run::default()
    }
}
