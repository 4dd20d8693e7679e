//! The part of a run that one agent plays: prepared, begun at a given time, steered from outside.

use super::super::{Keeper, Wanted, bind_to, derive, route};
use super::message::{Assignment, Status, Steer, ToCoordinator};
use crate::engine::{Piece, Seat, Settings, Worker, listeners};
use crate::journal::{Journal, Note};
use crate::ledger::{AgentPart, Interval, Outcome};
use crate::origin::Hosts;
use crate::proc::{Sampler, Watched, machine};
use crate::random::Seal;
use crate::robot::{RobotAddresses, Route};
use crate::schedule::{Phase, Schedule};
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A part that can begin.
pub(super) struct Prepared {
    assignment: Assignment,
    settings: Settings,
    phases: Vec<Phase>,
    /// A socket for each worker, if there are origins here.
    pub sockets: Vec<TcpListener>,
}

/// Notes that go in one message.
const NOTES_MAX: usize = 20_000;

impl Prepared {
    /// Checks what is asked for, and opens the port of the origins.
    pub fn new(assignment: Assignment) -> Result<Self, String> {
        let own = env!("CARGO_PKG_VERSION");
        if assignment.version != own {
            return Err(format!("the coordinator is version {}, and this agent {own}", assignment.version));
        }
        if assignment.own == 0 || assignment.of == 0 || assignment.first.checked_add(assignment.own).is_none() {
            return Err("the coordinator gives no workers".to_owned());
        }
        let scaled = assignment.discipline.load()?;
        let (mode, address, host) = (assignment.mode, assignment.address, assignment.host.clone());
        let hosts = Hosts::new(&assignment.hosts);
        let purge = assignment.purge.clone();
        let route = Route { mode, address, host, hosts, purge, ..route(None, None, assignment.port) };
        let wanted = Wanted {
            peak: assignment.peak,
            seed: assignment.seed,
            epoch: 0,
            workers: assignment.of,
            cache_bytes: assignment.cache_bytes,
            log: None,
            tls: None,
            route,
        };
        let (mut settings, phases) = derive(&scaled.workload, &wanted)?;
        settings.law.tag = assignment.tag;
        settings.seal = Seal::of(assignment.seal);
        settings.origins.listens = Hosts::new(&assignment.listens);
        settings.robots.addresses = RobotAddresses {
            hosts: Hosts::new(&assignment.robots),
            first: assignment.first,
            own: assignment.own,
            of: assignment.of,
        };
        let sockets = match assignment.listens.is_empty() {
            true => Vec::new(),
            false => listeners(assignment.port, assignment.own, settings.origins.listens.only())
                .map_err(|error| format!("the origins cannot listen on port {}: {error}", assignment.port))?,
        };
        Ok(Self { assignment, settings, phases, sockets })
    }

    /// Whom its robots speak to.
    pub fn route(&self) -> &Route {
        &self.settings.route
    }

    /// Begins, at a moment that is now; `epoch` is its second since 1970.
    pub fn begin(mut self, start: Instant, epoch: u64, cores: &[usize], folder: Option<&Path>) -> Result<Part, String> {
        let Assignment { first, own, ref sources, .. } = self.assignment;
        self.settings.law.epoch = epoch;
        let mut head = self.assignment.head.clone();
        head.started_unix = epoch;
        let agent = head.agents.first().cloned().unwrap_or_default();
        head.machine = machine(&cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","));
        head.agents = vec![AgentPart { machine: head.machine.clone(), ..agent }];
        // Both are numbers: what a coordinator says cannot lead to another folder.
        let ledger = folder.map(|folder| folder.join(format!("{:08x}-{first}.ledger", self.assignment.tag)));
        let mut keeper = Keeper::new(&head, ledger.as_deref(), usize::from(own))?;
        (keeper.first, keeper.passed_on) = (first, Some(Vec::new()));
        keeper.sampler = Some(Sampler::new(Watched::Nobody));
        let seal = self.settings.seal;
        let journal = Arc::new(Journal::linked(seal, first..first + own, self.settings.robots.may_invalidate()));
        let waits = self.assignment.has_robots();
        let known = sources.iter().filter(|_| waits).map(|source| (*source, 0)).collect::<BTreeMap<u16, u64>>();
        if !known.is_empty() {
            journal.known_until(0);
        }
        let schedule = Arc::new(Schedule::new(self.phases, self.settings.workers));
        let (sender, pieces) = mpsc::channel();
        let mut part = Part {
            ledger,
            keeper,
            schedule,
            journal,
            through: Arc::new(AtomicUsize::new(0)),
            own: usize::from(own),
            known,
            pieces,
            threads: Vec::new(),
            start,
            lost: 0,
            is_cut: false,
            by_signal: false,
            invalid: Vec::new(),
        };
        let settings = Arc::new(self.settings);
        let mut sockets = self.sockets.into_iter();
        for place in 0..own {
            let seat = Seat {
                number: first + place,
                listener: sockets.next(),
                through: part.through.clone(),
                // The coordinator is the last one: origins answer until all robots of all agents are through.
                partners: usize::from(own) + 1,
            };
            let (settings, schedule, journal) = (settings.clone(), part.schedule.clone(), part.journal.clone());
            let (sender, core) = (sender.clone(), cores.get(usize::from(place)).copied());
            part.threads.push(std::thread::spawn(move || {
                bind_to(core);
                Worker::new(seat, settings, schedule, journal, start)?.run(&sender)
            }));
        }
        Ok(part)
    }
}

/// A part that is being played.
pub(super) struct Part {
    /// Where its ledger is written, if anywhere.
    pub ledger: Option<PathBuf>,
    keeper: Keeper,
    schedule: Arc<Schedule>,
    journal: Arc<Journal>,
    through: Arc<AtomicUsize>,
    own: usize,
    /// For each agent with origins, until when its notes are here.
    known: BTreeMap<u16, u64>,
    pieces: Receiver<Piece>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    start: Instant,
    lost: u64,
    /// It ended before the phases did, because somebody said so.
    is_cut: bool,
    /// A signal did.
    by_signal: bool,
    invalid: Vec<String>,
}

impl Part {
    /// Takes what workers have counted. `None` when all of them are done.
    pub fn intervals(&mut self) -> Option<Vec<Interval>> {
        loop {
            match self.pieces.try_recv() {
                Ok(piece) => self.keeper.take(piece, &self.schedule),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(self.keeper.passed_on.as_mut().map(std::mem::take).unwrap_or_default())
    }

    /// The deeds of its origins for robots elsewhere, in messages of a limited size.
    pub fn notes(&mut self) -> Vec<ToCoordinator> {
        // Read before the notes are taken: all that happened before is among them.
        let until_us = self.start.elapsed().as_micros() as u64;
        let (notes, lost) = self.journal.take_notes();
        self.lost += lost;
        let mut pieces: Vec<Vec<Note>> = notes.chunks(NOTES_MAX).map(<[Note]>::to_vec).collect();
        let last = pieces.pop().unwrap_or_default();
        let early = pieces.into_iter().map(|notes| ToCoordinator::Notes { until_us: 0, notes, lost: 0 });
        early.chain([ToCoordinator::Notes { until_us, notes: last, lost }]).collect()
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        let phase = self.schedule.phase_at(self.start.elapsed()).unwrap_or(usize::from(u16::MAX));
        let (counts, frozen) = self.schedule.counted(phase);
        Status { phase: phase as u16, counts, frozen, is_through: self.through.load(Relaxed) >= self.own }
    }

    /// All parts together are so far.
    pub fn steer(&self, steer: &Steer) {
        self.schedule.learn_ends(&steer.ends);
        self.schedule.tell(usize::from(steer.phase), steer.counts, None);
        self.schedule.warm(steer.heat);
    }

    /// Another agent's origins did this for robots here.
    pub fn hear(&mut self, from: u16, until_us: u64, notes: &[Note]) {
        notes.iter().for_each(|note| self.journal.hear(note));
        if let Some(known) = self.known.get_mut(&from) {
            *known = until_us.max(*known);
            self.journal.known_until(self.known.values().copied().min().unwrap_or(u64::MAX));
        }
    }

    /// The robots of all agents are through.
    pub fn all_through(&self) {
        self.through.fetch_add(self.own + 1, Relaxed);
    }

    /// Ends now.
    pub fn stop(&mut self) {
        let now = self.start.elapsed();
        self.is_cut |= self.schedule.phase_at(now).is_some();
        self.schedule.stop(now);
    }

    /// Ends now, for the agent's process was told to end: its figures are missing from here on, and nobody else's.
    pub fn stop_by_signal(&mut self) {
        if !std::mem::replace(&mut self.by_signal, true) {
            let seconds = self.start.elapsed().as_secs_f64();
            let name = self.keeper.ledger.run.agents.first().map_or("", |agent| &agent.name);
            self.invalid.push(format!(
                "agent {name} was stopped by a signal {seconds:.1} s after the start: its part is missing from then on"
            ));
            self.stop();
            self.is_cut = true;
        }
    }

    /// The coordinator is gone: nothing more comes from anybody.
    pub fn orphaned(&mut self) {
        let reason = "the coordinator was lost".to_owned();
        if !self.invalid.contains(&reason) {
            self.invalid.push(reason);
        }
        self.stop();
        self.journal.known_until(u64::MAX);
        self.all_through();
    }

    /// Waits for the workers, and ends the ledger. Gives the last intervals, and what went wrong.
    pub fn end(mut self) -> (Vec<Interval>, Option<String>) {
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.keeper.failure = Some(format!("a worker ended: {error}")),
                Err(_) => self.keeper.failure = Some("a worker panicked".to_owned()),
            }
        }
        self.keeper.flush_all(&self.schedule);
        let last = self.keeper.passed_on.take().unwrap_or_default();
        if self.lost > 0 {
            let lost = self.lost;
            self.invalid.push(format!("{lost} answers of origins here could not be told to robots elsewhere"));
        }
        let by_echo = self.journal.replies_judged_by_echo();
        if by_echo > 0 {
            self.invalid.push(format!(
                "{by_echo} replies were judged by their echoes alone, for the notes of origins came too late"
            ));
        }
        let at = self.start.elapsed().min(Duration::from_secs(u64::from(u32::MAX)));
        let ledger = self.keeper.end_marked(at, self.is_cut, self.invalid);
        let failure = match ledger.end.outcome {
            Outcome::Failed(reason) => Some(reason),
            _ => self.by_signal.then(|| "it was stopped by a signal".to_owned()),
        };
        (last, failure)
    }
}
