//! A run: from settings to a ledger. Worker threads play; this thread merges what they count each second, writes it
//! down, shows it, and ends phases whose goal is not a time.

pub mod agents;
mod calibrate;
pub mod command;
mod derive;
#[cfg(test)]
mod features_tests;
pub mod peak;
mod power;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;

pub use calibrate::{CALIBRATION, calibrate};
pub use derive::{Wanted, derive, robot_count, route};
pub use power::Power;
use power::Switch;
pub use table::{Row, logged, rows, table};

use crate::engine::{Piece, Seat, Settings, Worker, listeners};
use crate::journal::Journal;
use crate::ledger::{self, Class, Coarse, End, Interval, Ledger, Outcome, PhaseStart, Record, Run};
use crate::proc::{Sampler, Watched};
use crate::progress::Progress;
use crate::schedule::{Phase, Schedule};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A run to be played.
pub struct Order {
    /// The engine's settings; the port of the origins may be 0.
    pub settings: Settings,
    /// The phases.
    pub phases: Vec<Phase>,
    /// The head of the ledger, known beforehand.
    pub head: Run,
    /// Where the ledger is written, if anywhere.
    pub ledger: Option<PathBuf>,
    /// The cache's processes.
    pub watched: Watched,
    /// Cores for the workers, one after the other; empty for any.
    pub cores: Vec<usize>,
    /// How the power is cut in dark phases.
    pub power: Option<Power>,
    /// Whether progress is shown.
    pub shows: bool,
    /// Set to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// How often phases and the stop flag are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often a link is calibrated before there is no run.
const CALIBRATIONS_MAX: u32 = 4;

/// Plays it all. Figures that were measured until something broke are in the ledger; only what keeps a run from
/// beginning is an error.
pub fn run(order: Order) -> Result<Ledger, String> {
    run_since(order, None)
}

/// [`run`] with origins that date by this second since 1970, for a server whose replies were made by it: one that is given by a
/// clock a second later has other dates than its robots expect.
pub fn run_since(mut order: Order, epoch: Option<u64>) -> Result<Ledger, String> {
    if let (Some(dark), None) = (order.phases.iter().find(|phase| phase.dark), &order.power) {
        let name = &dark.name;
        return Err(format!(
            "phase {name} is dark: say with --cut and --again how the power goes and comes, or use cacheoff kill"
        ));
    }
    let (port, workers) = (order.settings.origins.port, order.settings.workers.max(1));
    order.settings.workers = workers;
    let sockets = listeners(port, workers, None).map_err(|error| {
        format!("the origins cannot listen on port {port}: {error}; choose another with --origin-port, or 0 for any")
    })?;
    let port = sockets[0].local_addr().map_err(|error| error.to_string())?.port();
    order.settings.origins.port = port;
    order.settings.route.origin_port = port;
    let found = calibrated(&order.settings, &sockets)?;
    order.head.links.extend(found);
    // The calibration took seconds: robots and origins date what they send by this clock, caches by the real one.
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    order.settings.law.epoch = epoch.unwrap_or_else(now);
    order.head.started_unix = order.settings.law.epoch;
    let keeper = Keeper::new(&order.head, order.ledger.as_deref(), usize::from(workers))?;
    let keeper = Keeper {
        progress: order.shows.then(|| Progress::on_stderr(&order.head)),
        sampler: Some(Sampler::new(order.watched.clone())),
        switch: order.power.clone().map(Switch::new),
        ..keeper
    };
    Ok(play(order, sockets, keeper))
}

/// A machine that was busy for a moment gets another chance.
fn calibrated(settings: &Settings, sockets: &[TcpListener]) -> Result<Vec<ledger::Link>, String> {
    let mut found = calibrate(settings, sockets);
    for _ in 1..CALIBRATIONS_MAX {
        if found.is_err() {
            std::thread::sleep(Duration::from_secs(1));
            found = calibrate(settings, sockets);
        }
    }
    found
}

fn play(order: Order, sockets: Vec<TcpListener>, mut keeper: Keeper) -> Ledger {
    let settings = Arc::new(order.settings);
    let schedule = Arc::new(Schedule::new(order.phases, settings.workers));
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    let (through, partners) = (Arc::new(AtomicUsize::new(0)), sockets.len());
    let journal = Arc::new(Journal::new(settings.seal, settings.workers, settings.robots.may_invalidate()));
    let threads: Vec<_> = sockets
        .into_iter()
        .enumerate()
        .map(|(number, socket)| {
            let (settings, schedule, journal) = (settings.clone(), schedule.clone(), journal.clone());
            let (through, sender) = (through.clone(), sender.clone());
            let core = (!order.cores.is_empty()).then(|| order.cores[number % order.cores.len()]);
            std::thread::spawn(move || -> io::Result<()> {
                bind_to(core);
                let seat = Seat { number: number as u16, listener: Some(socket), through, partners };
                Worker::new(seat, settings, schedule, journal, start)?.run(&sender)
            })
        })
        .collect();
    drop(sender);
    let interrupted = keeper.keep(&receiver, &schedule, &order.stop, start);
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => keeper.failure = Some(format!("a worker ended: {error}")),
            Err(_) => keeper.failure = Some("a worker panicked".to_owned()),
        }
    }
    keeper.end(start.elapsed(), interrupted)
}

/// Binds this thread, and what it starts, to a core.
pub fn bind_to(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

/// Merges, writes, shows.
struct Keeper {
    ledger: Ledger,
    writer: Option<ledger::Writer<BufWriter<File>>>,
    progress: Option<Progress<io::Stderr>>,
    /// Looks at processes and machine; the intervals of agents bring their own load.
    sampler: Option<Sampler>,
    /// Makes the intervals of the ledger of seconds.
    coarse: Coarse,
    /// Intervals that not all workers have handed over, by phase and second.
    waiting: BTreeMap<(u16, u64), Interval>,
    /// The latest interval of each worker.
    reached: Vec<(u16, u64)>,
    failure: Option<String>,
    /// A phase, and its errors and replies so far.
    errors: (usize, u64, u64),
    switch: Option<Switch>,
    /// The first of the workers.
    first: u16,
    /// Intervals that are passed on to a coordinator, which steers.
    passed_on: Option<Vec<Interval>>,
}

impl Keeper {
    /// Of a run with this head, played by so many.
    fn new(head: &Run, ledger: Option<&Path>, parts: usize) -> Result<Self, String> {
        let writer = ledger.map(|path| {
            let file =
                File::create(path).map_err(|error| format!("the ledger {} cannot be made: {error}", path.display()))?;
            ledger::Writer::begin(BufWriter::new(file), head)
                .map_err(|error| format!("the ledger {} cannot be written: {error}", path.display()))
        });
        Ok(Self {
            ledger: Ledger { run: head.clone(), ..Ledger::default() },
            writer: writer.transpose()?,
            progress: None,
            sampler: None,
            coarse: Coarse::new(&head.phases),
            waiting: BTreeMap::new(),
            reached: vec![(0, 0); parts],
            failure: None,
            errors: (0, 0, 0),
            switch: None,
            first: 0,
            passed_on: None,
        })
    }

    /// Gathers intervals until all workers are done; gives whether the run was stopped by hand.
    fn keep(&mut self, pieces: &Receiver<Piece>, schedule: &Schedule, stop: &AtomicBool, start: Instant) -> bool {
        let mut interrupted = false;
        loop {
            schedule.advance(start.elapsed());
            if let Some(Err(reason)) = self.switch.as_mut().map(|switch| switch.look(schedule, start.elapsed())) {
                self.failure = Some(reason);
            }
            if !interrupted && (stop.load(Relaxed) || self.failure.is_some()) {
                interrupted = stop.load(Relaxed);
                schedule.stop(start.elapsed());
            }
            match pieces.recv_timeout(LOOK) {
                Ok(piece) => self.take(piece, schedule),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.flush_all(schedule);
        interrupted
    }

    /// Writes down all that waits: nothing follows.
    fn flush_all(&mut self, schedule: &Schedule) {
        self.reached.iter_mut().for_each(|reached| *reached = (u16::MAX, u64::MAX));
        self.flush(schedule);
        self.coarse.finish().into_iter().for_each(|record| self.append(record));
    }

    fn take(&mut self, piece: Piece, schedule: &Schedule) {
        let place = usize::from(piece.worker.saturating_sub(self.first));
        match piece.interval {
            None => self.reached[place] = (u16::MAX, u64::MAX),
            Some(interval) => {
                let key = (interval.phase, interval.at_us / 1_000_000);
                self.reached[place] = self.reached[place].max(key);
                match self.waiting.get_mut(&key) {
                    // A worker's next piece of the same second follows; another's lies beside it.
                    Some(known) => {
                        let length = known.length_us.max(interval.length_us);
                        known.merge(&interval);
                        known.length_us = length;
                    }
                    None => drop(self.waiting.insert(key, interval)),
                }
            }
        }
        self.flush(schedule);
    }

    /// Writes down the intervals that all workers have left behind.
    fn flush(&mut self, schedule: &Schedule) {
        let all_reached = self.reached.iter().min().copied().unwrap_or_default();
        while let Some(first) = self.waiting.first_entry() {
            // With one worker, an interval is complete when it is handed over.
            if *first.key() >= all_reached && !(self.reached.len() == 1 && *first.key() == all_reached) {
                return;
            }
            let mut interval = first.remove();
            if let Some(sampler) = &mut self.sampler {
                interval.load = Some(sampler.sample());
            }
            let over = self.coarse.leave(interval.phase, interval.at_us);
            over.into_iter().for_each(|record| self.append(record));
            if self.ledger.phases.last().is_none_or(|last| last.phase != interval.phase) {
                self.append(Record::Phase(PhaseStart { phase: interval.phase, at_us: interval.at_us }));
            }
            if let Some(progress) = &mut self.progress {
                progress.show(&interval);
            }
            if let Some(switch) = &mut self.switch {
                switch.see(&interval);
            }
            match &mut self.passed_on {
                Some(passed_on) => passed_on.push(interval.clone()),
                None => self.steer(&interval, schedule),
            }
            if let Some(record) = self.coarse.enter(interval) {
                self.append(record);
            }
        }
    }

    /// Lets the schedule see what came of an interval: the load may follow it, and errors may end the run.
    fn steer(&mut self, interval: &Interval, schedule: &Schedule) {
        let phase = usize::from(interval.phase);
        if self.errors.0 != phase {
            self.errors = (phase, 0, 0);
        }
        self.errors.1 += interval.errors.total();
        self.errors.2 += interval.replies();
        if let Some(reason) = schedule.broken(phase, self.errors.1, self.errors.2) {
            self.failure.get_or_insert(reason);
        }
        if let Some(mean) = interval.class(Class::All).response.mean() {
            schedule.feel(phase, Duration::from_micros(mean as u64));
        }
    }

    /// Into memory, and into the file as long as that works.
    fn append(&mut self, record: Record) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.append(&record)
        {
            self.failure = Some(format!("the ledger cannot be written any more: {error}"));
            self.writer = None;
        }
        self.ledger.push(record);
    }

    fn end(self, at: Duration, interrupted: bool) -> Ledger {
        self.end_marked(at, interrupted, Vec::new())
    }

    /// Ends a run whose figures must not be used, for these reasons.
    fn end_marked(mut self, at: Duration, interrupted: bool, invalid: Vec<String>) -> Ledger {
        if let Some(progress) = &mut self.progress {
            progress.finish();
        }
        if let Some(found) = self.switch.take().and_then(Switch::end) {
            self.append(Record::Downtime(found));
        }
        let outcome = match (self.failure.take(), interrupted) {
            (Some(reason), _) => Outcome::Failed(reason),
            (None, true) => Outcome::Interrupted,
            (None, false) => Outcome::Complete,
        };
        self.append(Record::End(End { at_us: at.as_micros() as u64, outcome, invalid }));
        self.ledger
    }
}
