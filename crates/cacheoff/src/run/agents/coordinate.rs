//! The coordinator: prepares agents, compares their clocks, begins the run, steers it, and gathers one ledger.

use super::super::Keeper;
use super::fleet::Fleet;
use super::message::{Assignment, Discipline, Status, Steer, ToAgent, ToCoordinator};
use super::outgoing::Outgoing;
use super::time::RunClock;
use super::{SILENCE_MAX, message};
use crate::control::{Channel, OFFSET_MAX_US, Offset, Received, Samples, connect};
use crate::engine::{Piece, Settings};
use crate::journal::Note;
use crate::ledger::{AgentPart, End, Ledger, Machine, Note as Remark, Record, Run};
use crate::origin::AddressRange;
use crate::progress::Progress;
use crate::schedule::{Phase, Schedule};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// A run on several machines.
pub struct Campaign {
    /// The agents.
    pub fleet: Fleet,
    /// The workload.
    pub discipline: Discipline,
    /// Requests per second at peak.
    pub peak: Option<f64>,
    /// Bytes of the cache, for phases that fill it.
    pub cache_bytes: Option<u64>,
    /// The settings of the whole.
    pub settings: Settings,
    /// The phases.
    pub phases: Vec<Phase>,
    /// The head of the ledger.
    pub head: Run,
    /// Where it is written.
    pub ledger: Option<PathBuf>,
    /// Whether progress is shown.
    pub shows: bool,
    /// Set to end the run early.
    pub stop: Arc<AtomicBool>,
}

/// How long an agent may take to prepare its part.
const PREPARE_MAX: Duration = Duration::from_secs(30);
/// How long one probe may take, with both its time-outs.
const PROBE_MAX: Duration = Duration::from_secs(15);
/// Exchanges of clocks before and after the run.
const EXCHANGES: usize = 24;
/// A single exchange that takes longer is lost.
const EXCHANGE_MAX: Duration = Duration::from_secs(2);
/// Agents hear of the start at least so long before.
const LEAD_US: u64 = 1_000_000;
/// How often messages are looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How often the state of all is told, and clocks are asked.
const TELL: Duration = Duration::from_millis(100);
/// A phase that ends by counts ends so long after they are reached, so that each agent has heard of it.
const PHASE_LEAD: Duration = Duration::from_millis(250);
/// In the run a clock is judged by the quickest of so many exchanges.
const WINDOW: usize = 30;
/// Messages of agents that wait to be heard; the connections hold what follows.
const HEARD_MAX: usize = 256;
/// Agents may take so long to end after they were told.
const END_MAX: Duration = Duration::from_secs(20);

/// Plays it. `Err` is what keeps it from beginning; what breaks later is in the ledger.
pub fn coordinate(campaign: Campaign) -> Result<Ledger, String> {
    refuse(&campaign)?;
    let clock = RunClock::new(0);
    let mut links = connected(&campaign.fleet)?;
    for link in &mut links {
        let offset =
            link.measure(&clock).map_err(|error| format!("agent {}: its clock was not told: {error}", link.name))?;
        link.refuse(offset)?;
    }
    let mut head = campaign.head.clone();
    let firsts = campaign.fleet.firsts();
    prepare(&campaign, &mut links, &firsts, &mut head)?;
    let ways = probe(&campaign.fleet, &links)?;
    let start_us = (clock.now_us() + LEAD_US).div_ceil(1_000_000) * 1_000_000;
    head.started_unix = start_us / 1_000_000;
    let mut keeper = Keeper::new(&head, campaign.ledger.as_deref(), links.len())?;
    keeper.progress = campaign.shows.then(|| Progress::on_stderr(&head));
    for link in &links {
        link.send(&ToAgent::Start(start_us)).map_err(|error| format!("agent {} is gone: {error}", link.name))?;
    }
    let before = links.iter().map(|link| clock_words(&link.name, "before", link.before));
    ways.into_iter().chain(before).for_each(|text| keeper.append(Record::Note(Remark { at_us: 0, text })));
    let schedule = Schedule::new(campaign.phases, campaign.settings.workers);
    let mut play = Play {
        clock,
        start: clock.moment(start_us),
        links,
        keeper,
        schedule,
        firsts,
        workers: campaign.fleet.agents.iter().map(|agent| agent.workers).collect(),
        invalid: Vec::new(),
        told_through: false,
        ending: None,
    };
    let interrupted = play.keep(&campaign.stop);
    Ok(play.end(interrupted))
}

/// Refuses workloads that a run on several machines cannot play.
fn refuse(campaign: &Campaign) -> Result<(), String> {
    let cannot = [
        (campaign.settings.route.tls, "robots that speak TLS (the origins of all agents would need one authority)"),
        (campaign.phases.iter().any(|phase| phase.dark), "phases without power (use cacheoff kill)"),
        (!campaign.settings.log.is_empty(), "a log that is replayed"),
    ];
    match cannot.iter().find(|(asked, _)| *asked) {
        Some((_, what)) => Err(format!("agents do not play {what}: run it on one machine")),
        None => Ok(()),
    }
}

/// The connection with one agent.
struct Link {
    name: String,
    channel: Arc<Channel>,
    /// In the run, the messages that wait to be written; before and after it the coordinator writes itself.
    outgoing: Option<Outgoing>,
    samples: Samples,
    before: Offset,
    /// The farthest in the run.
    during: Option<Offset>,
    /// When the clock was asked, if it has not answered.
    asked_us: Option<u64>,
    heard: Instant,
    status: Status,
    is_done: bool,
    is_dead: bool,
    has_robots: bool,
}

impl Link {
    fn send(&self, message: &ToAgent) -> io::Result<()> {
        match &self.outgoing {
            Some(outgoing) => outgoing.send(message),
            None => self.channel.send(message),
        }
    }

    /// The next message of a kind that is waited for.
    fn await_answer(&self, wait: Duration) -> Result<ToCoordinator, String> {
        match self.channel.receive(wait) {
            Ok(Received::Message(ToCoordinator::Refused(reason))) => Err(format!("agent {}: {reason}", self.name)),
            Ok(Received::Message(message)) => Ok(message),
            Ok(Received::Nothing) => Err(format!("agent {} does not answer within {} s", self.name, wait.as_secs())),
            Err(error) => Err(format!("agent {} is gone: {error}", self.name)),
        }
    }

    /// Compares clocks while nothing else is said.
    fn measure(&mut self, clock: &RunClock) -> Result<Offset, String> {
        self.samples.clear();
        for _ in 0..EXCHANGES {
            let left = clock.now_us();
            self.send(&ToAgent::Clock(left)).map_err(|error| error.to_string())?;
            // An answer to an earlier question may come first.
            let theirs = (0..WINDOW).find_map(|_| match self.await_answer(EXCHANGE_MAX) {
                Ok(ToCoordinator::Clock(asked, theirs)) => (asked == left).then_some(Ok(theirs)),
                Ok(_) => None,
                Err(reason) => Some(Err(reason)),
            });
            self.samples.add(left, theirs.ok_or("it says other things")??, clock.now_us());
        }
        let best = self.samples.best().ok_or("no exchange")?;
        self.samples.clear();
        Ok(best)
    }

    /// Has the agent write down how the whole run ended.
    fn tell_verdict(&self, end: &End) -> Result<(), String> {
        self.send(&ToAgent::Verdict(Box::new(end.clone()))).map_err(|error| error.to_string())?;
        // Answers about its clock may come first.
        let answers = (0..WINDOW).map(|_| self.await_answer(EXCHANGE_MAX));
        let done = answers.into_iter().find_map(|answer| match answer {
            Ok(ToCoordinator::Done(failure)) => Some(failure.map_or(Ok(()), Err)),
            Ok(_) => None,
            Err(reason) => Some(Err(reason)),
        });
        done.unwrap_or_else(|| Err("it says other things".to_owned()))
    }

    fn refuse(&mut self, offset: Offset) -> Result<(), String> {
        self.before = offset;
        match offset.is_too_far() {
            false => Ok(()),
            true => Err(format!(
                "{}; {OFFSET_MAX_US} µs are permitted: let chrony or ptp4l set both clocks",
                clock_words(&self.name, "now", offset)
            )),
        }
    }
}

fn clock_words(name: &str, when: &str, offset: Offset) -> String {
    let Offset { us, round_us } = offset;
    let side = if us < 0 { "behind" } else { "ahead of" };
    format!(
        "the clock of agent {name} is {} µs {side} the coordinator's {when} (round trip {round_us} µs)",
        us.unsigned_abs()
    )
}

fn connected(fleet: &Fleet) -> Result<Vec<Link>, String> {
    let link = |agent: &super::fleet::Member| {
        let channel = connect(agent.control, &fleet.token)
            .map_err(|reason| format!("agent {} at {}: {reason}", agent.name, agent.control))?;
        Ok(Link {
            name: agent.name.clone(),
            channel: Arc::new(channel),
            outgoing: None,
            samples: Samples::default(),
            before: Offset::default(),
            during: None,
            asked_us: None,
            heard: Instant::now(),
            status: Status::default(),
            is_done: false,
            is_dead: false,
            has_robots: !agent.robots.is_empty(),
        })
    };
    fleet.agents.iter().map(link).collect()
}

/// Gives each agent its part.
fn prepare(campaign: &Campaign, links: &mut [Link], firsts: &[u16], head: &mut Run) -> Result<(), String> {
    let (fleet, settings) = (&campaign.fleet, &campaign.settings);
    let all = fleet.agents.iter().map(|agent| agent.workers).fold(0, u16::saturating_add);
    let parts = fleet.agents.iter().zip(firsts).map(|(agent, first)| AgentPart {
        name: agent.name.clone(),
        run: settings.law.tag,
        first: *first,
        own: agent.workers,
        of: fleet.robot_workers(),
        all,
        origins: agent.origins.iter().map(AddressRange::count).fold(0, u32::saturating_add),
        machine: Machine::default(),
    });
    head.agents = parts.collect();
    for (place, (agent, link)) in fleet.agents.iter().zip(links.iter()).enumerate() {
        let own_head = Run { agents: vec![head.agents[place].clone()], ..head.clone() };
        let others =
            fleet.agents.iter().enumerate().filter(|(other, found)| *other != place && !found.origins.is_empty());
        let assignment = Assignment {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            discipline: campaign.discipline.clone(),
            peak: campaign.peak,
            cache_bytes: campaign.cache_bytes,
            seed: settings.law.seed,
            tag: settings.law.tag,
            seal: settings.seal.keys(),
            mode: settings.route.mode,
            address: settings.route.address,
            host: settings.route.host.clone(),
            purge: settings.route.purge.clone(),
            port: fleet.origin_port,
            hosts: fleet.hosts(),
            listens: agent.origins.clone(),
            robots: agent.robots.clone(),
            first: firsts[place],
            own: agent.workers,
            of: fleet.robot_workers(),
            sources: others.map(|(other, _)| other as u16).collect(),
            head: Box::new(own_head),
        };
        let gone = |error| format!("agent {} is gone: {error}", link.name);
        link.send(&ToAgent::Prepare(Box::new(assignment))).map_err(gone)?;
    }
    for (place, link) in links.iter_mut().enumerate() {
        match link.await_answer(PREPARE_MAX)? {
            ToCoordinator::Ready(machine) => head.agents[place].machine = *machine,
            _ => return Err(format!("agent {} did not say that it is ready", link.name)),
        }
    }
    Ok(())
}

/// Tries the way from each agent with robots to each with origins, one after the other.
fn probe(fleet: &Fleet, links: &[Link]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for (agent, link) in fleet.agents.iter().zip(links).filter(|(agent, _)| !agent.robots.is_empty()) {
        for other in &fleet.agents {
            let Some(range) = other.origins.first() else { continue };
            let origin = SocketAddr::from((range.first(), fleet.origin_port));
            let way = format!("from the robots of agent {} to the origins of agent {}", agent.name, other.name);
            link.send(&ToAgent::Probe(vec![origin]))
                .map_err(|error| format!("agent {} is gone: {error}", link.name))?;
            let ToCoordinator::Probed(ways) = link.await_answer(PROBE_MAX)? else {
                return Err(format!("agent {} did not try its ways", link.name));
            };
            match ways.first() {
                Some(Ok(message::Way { connect_us, bytes_per_s })) => {
                    found.push(format!("{way}: connected in {connect_us} µs, {:.1} MB/s", bytes_per_s / 1e6));
                }
                Some(Err(reason)) => return Err(format!("there is no way {way} ({origin}): {reason}")),
                None => return Err(format!("agent {} did not try its ways", link.name)),
            }
        }
    }
    Ok(found)
}

/// A message of an agent, and when it came.
struct Heard {
    agent: usize,
    at: Instant,
    message: io::Result<ToCoordinator>,
}

/// A run under way.
struct Play {
    clock: RunClock,
    start: Instant,
    links: Vec<Link>,
    keeper: Keeper,
    schedule: Schedule,
    firsts: Vec<u16>,
    workers: Vec<u16>,
    invalid: Vec<String>,
    told_through: bool,
    /// Since when the agents have been told to end, or should have.
    ending: Option<Instant>,
}

impl Play {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Steers until all agents are done or dead; says whether the run was stopped by hand.
    fn keep(&mut self, stop: &AtomicBool) -> bool {
        let heard = listen(&mut self.links);
        // Nobody says anything before the start.
        let from = self.start.max(Instant::now());
        self.links.iter_mut().for_each(|link| link.heard = from);
        let (mut told, mut interrupted) = (Instant::now(), false);
        while self.links.iter().any(|link| !link.is_done) {
            match heard.recv_timeout(LOOK) {
                Ok(first) => self.hear(first),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // All that has come is heard before anybody is called silent. The channel is bounded, and so is this loop.
            heard.try_iter().take(HEARD_MAX).for_each(|next| self.hear(next));
            if !interrupted && stop.load(Relaxed) {
                interrupted = true;
                self.stop();
            }
            if self.keeper.failure.is_some() && self.ending.is_none() {
                self.stop();
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                self.steer();
                self.bury();
            }
        }
        self.keeper.flush_all(&self.schedule);
        interrupted
    }

    fn hear(&mut self, Heard { agent, at, message }: Heard) {
        self.links[agent].heard = at;
        if self.links[agent].is_done {
            return;
        }
        match message {
            Ok(ToCoordinator::Clock(asked, theirs)) => self.compare(agent, (asked, theirs), at),
            Ok(ToCoordinator::Status(status)) => self.links[agent].status = status,
            Ok(ToCoordinator::Interval(interval)) if usize::from(interval.phase) >= self.schedule.phases().len() => {
                self.died(agent, "it counts for a phase that does not exist");
            }
            Ok(ToCoordinator::Interval(interval)) => {
                let piece = Piece { worker: agent as u16, interval: Some(*interval) };
                self.keeper.take(piece, &self.schedule);
            }
            Ok(ToCoordinator::Notes { until_us, notes, lost }) => self.carry(agent, until_us, notes, lost),
            Ok(ToCoordinator::Done(None)) if self.ending.is_none() && self.schedule.phase_at(self.now()).is_some() => {
                self.died(agent, "it ended before the run");
            }
            Ok(ToCoordinator::Done(failure)) => {
                if let Some(reason) = failure {
                    self.keeper.failure.get_or_insert(format!("agent {}: {reason}", self.links[agent].name));
                }
                self.done(agent);
            }
            Ok(ToCoordinator::Refused(reason)) => self.died(agent, &reason),
            Ok(ToCoordinator::Ready(_) | ToCoordinator::Probed(_)) => {}
            Err(error) => self.died(agent, &error.to_string()),
        }
    }

    /// An exchange of clocks in the run.
    fn compare(&mut self, agent: usize, (asked, theirs): (u64, u64), at: Instant) {
        let came = self.clock.at_us(at);
        let link = &mut self.links[agent];
        let Some(left) = link.asked_us.take_if(|left| *left == asked) else { return };
        link.samples.add(left, theirs, came);
        if link.samples.len() < WINDOW {
            return;
        }
        let Some(best) = link.samples.best() else { return };
        link.samples.clear();
        if link.during.is_none_or(|known| known.us.unsigned_abs() < best.us.unsigned_abs()) {
            link.during = Some(best);
        }
        if best.is_too_far() {
            let text = clock_words(&link.name, "in the run", best);
            self.mark(format!("{text}; {OFFSET_MAX_US} µs are permitted"));
        }
    }

    /// Takes answers of origins to where the robots are.
    fn carry(&mut self, from: usize, until_us: u64, notes: Vec<Note>, lost: u64) {
        if lost > 0 {
            let name = &self.links[from].name;
            self.mark(format!("agent {name} could not tell of {lost} answers of its origins"));
        }
        let mut sorted: BTreeMap<usize, Vec<Note>> = BTreeMap::new();
        for note in notes {
            let owner = self.firsts.partition_point(|first| *first <= note.worker()).checked_sub(1);
            let is_there = |owner: &usize| note.worker() - self.firsts[*owner] < self.workers[*owner];
            if let Some(owner) = owner.filter(is_there) {
                sorted.entry(owner).or_default().push(note);
            }
        }
        for place in 0..self.links.len() {
            let link = &self.links[place];
            if place == from || link.is_done || !link.has_robots {
                continue;
            }
            let notes = sorted.remove(&place).unwrap_or_default();
            let sent = link.send(&ToAgent::Notes { from: from as u16, until_us, notes });
            if let Err(error) = sent.or_else(told_by_writer) {
                self.died(place, &error.to_string());
            }
        }
    }

    /// Tells all agents the state of all, and asks their clocks.
    fn steer(&mut self) {
        let now = self.now();
        let phase = self.schedule.phase_at(now);
        let number = phase.unwrap_or(usize::from(u16::MAX)) as u16;
        let counting = self.links.iter().filter(|link| link.status.phase == number);
        let counts = counting
            .fold([0_u64; 2], |sum, link| [0, 1].map(|place| sum[place].saturating_add(link.status.counts[place])));
        let frozen = self.links.iter().map(|link| link.status.frozen).fold(0, usize::saturating_add);
        self.schedule.tell(usize::from(number), counts, Some(frozen));
        self.schedule.advance_by(now, now + PHASE_LEAD);
        let through = phase.is_none() && self.links.iter().all(|link| link.is_done || link.status.is_through);
        let tells_through = through && !std::mem::replace(&mut self.told_through, through);
        if phase.is_none() {
            self.ending.get_or_insert_with(Instant::now);
        }
        let steer = Steer { ends: self.schedule.ends(), phase: number, counts, heat: self.schedule.warmth() };
        for place in 0..self.links.len() {
            let asked_us = self.clock.now_us();
            let link = &mut self.links[place];
            if link.is_done {
                continue;
            }
            let mut sent = Ok(());
            if link.asked_us.is_none() {
                link.asked_us = Some(asked_us);
                sent = link.send(&ToAgent::Clock(asked_us));
            }
            let sent = sent.and_then(|()| link.send(&ToAgent::Steer(steer.clone())));
            let sent = sent.and_then(|()| if tells_through { link.send(&ToAgent::Through) } else { Ok(()) });
            if let Err(error) = sent.or_else(told_by_writer) {
                self.died(place, &error.to_string());
            }
        }
    }

    /// Agents that have said nothing for long are dead.
    fn bury(&mut self) {
        let late = self.ending.is_some_and(|since| since.elapsed() > END_MAX);
        for place in 0..self.links.len() {
            let link = &self.links[place];
            if !link.is_done && (link.heard.elapsed() > SILENCE_MAX || late) {
                self.died(place, if late { "it does not end" } else { "it says nothing any more" });
            }
        }
    }

    fn died(&mut self, agent: usize, reason: &str) {
        if self.links[agent].is_done {
            return;
        }
        let seconds = self.now().as_secs_f64();
        let name = self.links[agent].name.clone();
        let text =
            format!("agent {name} died {seconds:.1} s after the start ({reason}): its part is missing from then on");
        self.keeper.failure.get_or_insert(text.clone());
        self.mark(text);
        self.links[agent].channel.close();
        self.links[agent].is_dead = true;
        self.done(agent);
    }

    fn done(&mut self, agent: usize) {
        self.links[agent].is_done = true;
        self.keeper.take(Piece { worker: agent as u16, interval: None }, &self.schedule);
        // Others wait for the notes of this one no more.
        for place in 0..self.links.len() {
            let link = &self.links[place];
            if place != agent && !link.is_done && link.has_robots {
                let _ = link.send(&ToAgent::Notes { from: agent as u16, until_us: u64::MAX, notes: Vec::new() });
            }
        }
    }

    /// The figures must not be used, for this reason.
    fn mark(&mut self, reason: String) {
        if self.invalid.len() < 100 && !self.invalid.contains(&reason) {
            self.invalid.push(reason);
        }
    }

    fn stop(&mut self) {
        self.ending.get_or_insert_with(Instant::now);
        self.schedule.stop(self.now());
        for link in self.links.iter().filter(|link| !link.is_done) {
            let _ = link.send(&ToAgent::Stop);
        }
    }

    /// Compares clocks once more, and ends the ledger.
    fn end(mut self, interrupted: bool) -> Ledger {
        let at_us = self.now().as_micros() as u64;
        self.links.iter_mut().filter_map(|link| link.outgoing.take()).for_each(|mut outgoing| outgoing.end());
        for place in 0..self.links.len() {
            let link = &mut self.links[place];
            let mut found: Vec<(&str, Offset)> =
                link.during.map(|offset| ("at most in the run", offset)).into_iter().collect();
            if let Ok(after) = link.measure(&self.clock) {
                found.push(("after the run", after));
            }
            let name = link.name.clone();
            for (when, offset) in found {
                let text = clock_words(&name, when, offset);
                if offset.is_too_far() {
                    self.mark(format!("{text}; {OFFSET_MAX_US} µs are permitted"));
                }
                self.keeper.append(Record::Note(Remark { at_us, text }));
            }
        }
        let at = self.now();
        let links = self.links;
        let ledger = self.keeper.end_marked(at, interrupted, self.invalid);
        for link in links.iter().filter(|link| !link.is_dead) {
            if let Err(reason) = link.tell_verdict(&ledger.end) {
                eprintln!("agent {} has no verdict in its ledger: {reason}", link.name);
            }
            let _ = link.send(&ToAgent::Stop);
        }
        ledger
    }
}

/// How long the last words of an agent may take that closes its connection.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// A connection that is broken was or will be told by the thread that writes to it, after the last words of the agent.
fn told_by_writer(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

/// Two threads for each agent: one waits for its messages until it is done, the other writes to it.
fn listen(links: &mut [Link]) -> Receiver<Heard> {
    let (sender, receiver) = mpsc::sync_channel(HEARD_MAX);
    for (agent, link) in links.iter_mut().enumerate() {
        let (channel, to): (Arc<Channel>, SyncSender<Heard>) = (link.channel.clone(), sender.clone());
        std::thread::spawn(move || {
            loop {
                let message = match channel.receive(SILENCE_MAX) {
                    Ok(Received::Nothing) => continue,
                    Ok(Received::Message(message)) => Ok(message),
                    Err(error) => Err(error),
                };
                let ends = matches!(message, Err(_) | Ok(ToCoordinator::Done(_)));
                if to.send(Heard { agent, at: Instant::now(), message }).is_err() || ends {
                    return;
                }
            }
        });
        let to = sender.clone();
        let broken = move |error: io::Error| {
            let reason = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "it does not read what it is told".to_owned(),
                _ => {
                    // An agent that ends says why and closes; a write may fail before its last words are heard.
                    std::thread::sleep(LAST_WORDS_MAX);
                    error.to_string()
                }
            };
            let _ = to.send(Heard { agent, at: Instant::now(), message: Err(io::Error::new(error.kind(), reason)) });
        };
        link.outgoing = Some(Outgoing::start(link.channel.clone(), broken));
    }
    receiver
}
