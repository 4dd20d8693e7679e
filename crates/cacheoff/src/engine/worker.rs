//! One worker thread: its poll loop, its connections, its robots, its share of the origins.

mod connections;
mod streams;

pub(super) use streams::PASSED_OVER_MAX;

use super::Settings;
use super::attribution::{Closed, Moment};
use super::crowd::{Crowd, Due, Wake};
use super::held::{Held, HeldReplies};
use super::poll::{Poll, Ready};
use super::seat::Seat;
use super::slots::{Slot, Slots};
use super::timers::Timers;
use crate::journal::Journal;
use crate::ledger::{Exhibit, Interval, Levels, Recorder, Side, Trouble};
use crate::origin::{Next, Serve, Site, server_number};
use crate::random::Stream;
use crate::robot::{
    After, Ask, Bench, Desk, Job, Kindred, Multiplexed, Outcome, Report, Wish, server_name, trouble_of,
};
use crate::schedule::Schedule;
use crate::tls::{Channel, Tls};
use crate::wire::Clock;
use rustls::ClientConfig;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The counts of one worker in one interval.
#[derive(Debug)]
pub struct Piece {
    /// The worker.
    pub worker: u16,
    /// The counts; `None` when the worker is done.
    pub interval: Option<Interval>,
}

/// The action of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimerEvent {
    Robot {
        robot: u32,
        life: u32,
    },
    Serve(Slot),
    Ask(Slot),
    Link(Slot),
    /// Connections to origins are accepted again.
    Listen,
    /// A robot that could not connect tries again.
    Dispatch(u32),
    Populate,
    Sweep,
}

const LISTENER: u64 = 1;
const SERVE: u64 = 2;
const ASK: u64 = 3;
const LINK: u64 = 4;
const BUFFER_BYTES: usize = 64 * 1024;
const TICK: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
const TRIES_MAX: u8 = 10;
/// A robot that asks as fast as it can waits so long after a failure; a referee without descriptors or ports, before it needs the next one.
const PAUSE: Duration = Duration::from_millis(100);

/// A worker thread's all.
pub struct Worker {
    number: u16,
    settings: Arc<Settings>,
    schedule: Arc<Schedule>,
    journal: Arc<Journal>,
    /// Workers whose robots are through, and how many there are.
    through: Arc<AtomicUsize>,
    partners: usize,
    held: HeldReplies,
    poll: Poll,
    timers: Timers<TimerEvent>,
    listener: Option<TcpListener>,
    serves: Slots<Serve>,
    asks: Slots<Ask>,
    /// Connections of robots that speak HTTP/2.
    links: Slots<Multiplexed>,
    /// Those that have something to send.
    stirred: Vec<Slot>,
    /// Connections of robots that can read on, once the kernel was asked what else has come.
    /// Each once, however many events it has meanwhile: others would wait for as many turns.
    readers: BTreeSet<TimerEvent>,
    crowd: Crowd,
    /// How each robot speaks TLS, once it has.
    speakers: HashMap<u32, Arc<ClientConfig>>,
    recorder: Recorder,
    stream: Stream,
    clock: Clock,
    start: Instant,
    now: Duration,
    buffer: Box<[u8]>,
    xacts: u64,
    /// The robot whose waiting requests are given connections just now.
    dispatching: Option<u32>,
    /// Start of the interval that is being counted, and its phase.
    interval: (Duration, usize),
    under_way: u64,
    said_through: bool,
    /// Connections of its robots that the limit of open files has room for, each with the origin's side.
    connections_max: usize,
}

impl Worker {
    /// A worker that begins with the run.
    pub fn new(
        seat: Seat,
        settings: Arc<Settings>,
        schedule: Arc<Schedule>,
        journal: Arc<Journal>,
        start: Instant,
    ) -> io::Result<Self> {
        let Seat { number, listener, through, partners } = seat;
        let poll = Poll::new()?;
        if let Some(listener) = &listener {
            poll.listen(listener, LISTENER << 56)?;
        }
        // The limit is that of the process, whose workers have equal shares.
        let files = if listener.is_some() && settings.origins.are_asked { 2 } else { 1 };
        let connections_max = crate::proc::connections_max(files) as usize / usize::from(settings.workers.max(1));
        Ok(Self {
            number,
            crowd: Crowd::new(&settings, number),
            stream: Stream::named(settings.law.seed, &format!("worker {number}")),
            clock: Clock::at(settings.law.epoch),
            settings,
            schedule,
            journal,
            through,
            partners,
            held: HeldReplies::default(),
            poll,
            timers: Timers::default(),
            listener,
            serves: Slots::default(),
            asks: Slots::default(),
            links: Slots::default(),
            stirred: Vec::new(),
            readers: BTreeSet::new(),
            speakers: HashMap::new(),
            recorder: Recorder::new(),
            start,
            now: Duration::ZERO,
            buffer: vec![0; BUFFER_BYTES].into(),
            xacts: 0,
            dispatching: None,
            interval: (Duration::ZERO, 0),
            under_way: 0,
            said_through: false,
            connections_max,
        })
    }

    /// Plays all phases, and hands over what it counts.
    pub fn run(mut self, pieces: &Sender<Piece>) -> io::Result<()> {
        self.timers.set(Duration::ZERO, TimerEvent::Populate);
        self.timers.set(SECOND, TimerEvent::Sweep);
        let mut ready = Vec::new();
        let mut through_at = None;
        loop {
            self.read_clock();
            // First, or what is due in the next interval would count for this one.
            self.cut(pieces);
            while let Some((at, what)) = self.timers.due(self.now) {
                self.due(at, what);
            }
            self.turn_stirred();
            self.release(false);
            if self.schedule.phase_at(self.now).is_none() {
                let since = *through_at.get_or_insert(self.now);
                if self.is_through(since) {
                    break;
                }
            }
            let wait = self.timers.next().map_or(TICK, |next| next.saturating_sub(self.elapsed())).min(TICK);
            self.poll.wait(if self.readers.is_empty() { wait } else { Duration::ZERO }, &mut ready)?;
            for reader in std::mem::take(&mut self.readers) {
                self.read_clock();
                self.due(self.now, reader);
                self.turn_stirred();
            }
            for event in ready.drain(..) {
                self.read_clock();
                self.event(event);
                self.turn_stirred();
            }
        }
        self.give_up();
        self.release(true);
        self.take_shown();
        self.hand_over(pieces, self.now);
        let _ = pieces.send(Piece { worker: self.number, interval: None });
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn read_clock(&mut self) {
        self.now = self.elapsed();
        self.clock.set(self.settings.law.epoch + self.now.as_secs());
    }

    /// After the last phase: whether nothing is under way any more, here and in the other workers.
    fn is_through(&mut self, since: Duration) -> bool {
        let waited = self.now - since;
        let mine = self.under_way == 0 && self.held.is_empty() || waited > self.settings.drain;
        if mine && !std::mem::replace(&mut self.said_through, true) {
            self.through.fetch_add(1, Relaxed);
        }
        self.through.load(Relaxed) >= self.partners || waited > self.settings.drain + SECOND
    }

    fn due(&mut self, at: Duration, event: TimerEvent) {
        match event {
            TimerEvent::Robot { robot, life } => self.robot_due(&Wake { robot, life, at }),
            TimerEvent::Serve(slot) => self.serve(slot, |serve, site| serve.step(site)),
            TimerEvent::Ask(slot) => self.ask(slot, |ask, desk| ask.step(desk)),
            TimerEvent::Link(slot) => self.stirred.push(slot),
            TimerEvent::Listen => self.listen(),
            TimerEvent::Dispatch(robot) => self.dispatch(robot),
            TimerEvent::Populate => {
                for wake in self.crowd.populate(&self.settings, &self.schedule, at) {
                    self.wake(wake);
                }
                self.timers.set(at + TICK, TimerEvent::Populate);
            }
            TimerEvent::Sweep => {
                self.sweep();
                self.timers.set(at + SECOND, TimerEvent::Sweep);
            }
        }
    }

    fn wake(&mut self, wake: Wake) {
        self.timers.set(wake.at, TimerEvent::Robot { robot: wake.robot, life: wake.life });
    }

    fn event(&mut self, event: Ready) {
        let (kind, slot) = Slot::of_token(event.token);
        match kind {
            LISTENER => self.accept(),
            SERVE => self.serve(slot, |serve, site| serve.ready(event.read, event.write, event.ended, site)),
            LINK => {
                if let Some(link) = self.links.at(slot) {
                    link.ready(event.read, event.write, event.ended);
                    self.stirred.push(slot);
                }
            }
            _ => self.ask(slot, |ask, desk| ask.ready(event.read, event.write, event.ended, desk)),
        }
    }

    // The origins.

    fn accept(&mut self) {
        loop {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, peer)) if self.is_for_origins(&stream, peer) => {
                    if stream.set_nonblocking(true).is_err() || stream.set_nodelay(true).is_err() {
                        continue;
                    }
                    let channel = match self.channel(stream) {
                        Ok(channel) => channel,
                        Err(detail) => {
                            self.trouble(Trouble::Tls, String::new(), &detail);
                            continue;
                        }
                    };
                    let mut site = site(
                        &self.settings,
                        &self.journal,
                        &mut self.recorder,
                        &mut self.stream,
                        &self.clock,
                        self.now,
                        &mut self.buffer,
                    );
                    let slot = self.serves.insert(Serve::new(channel, &mut site));
                    let watched = self.serves.at(slot).map(|serve| self.poll.watch(serve.socket(), slot.token(SERVE)));
                    if !matches!(watched, Some(Ok(()))) {
                        self.serves.remove(slot);
                    }
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.trouble(trouble_of(&error), String::new(), &format!("an origin cannot accept: {error}"));
                    // The connection still waits, so the poll would say so at once, again and again.
                    if self.listener.as_ref().is_some_and(|listener| self.poll.ignore(listener).is_ok()) {
                        self.timers.set(self.now + PAUSE, TimerEvent::Listen);
                    }
                    return;
                }
            }
        }
    }

    /// Accepts connections again that had no room.
    fn listen(&mut self) {
        let Some(listener) = &self.listener else { return };
        if self.poll.listen(listener, LISTENER << 56).is_err() {
            self.timers.set(self.now + PAUSE, TimerEvent::Listen);
        }
    }

    /// Whether a connection is to an address of the origins.
    fn is_for_origins(&self, stream: &TcpStream, peer: SocketAddr) -> bool {
        let given = &self.settings.origins.listens;
        match stream.local_addr() {
            _ if given.is_empty() => peer.ip().is_loopback(),
            Ok(SocketAddr::V4(address)) => given.contains(*address.ip()),
            _ => false,
        }
    }

    /// The channel of an accepted connection: TLS, where the origin has a certificate for the address that was asked.
    fn channel(&self, stream: TcpStream) -> Result<Channel, String> {
        let Some(authority) = self.settings.tls.as_ref().and_then(Tls::origins) else {
            return Ok(Channel::clear(stream));
        };
        let address = stream.local_addr().map_err(|error| error.to_string())?.ip();
        let number = match address {
            IpAddr::V4(address) => server_number(address),
            IpAddr::V6(_) => None,
        };
        let config = authority.server(address, &number.map_or_else(|| "localhost".to_owned(), server_name))?;
        Channel::server(stream, config).map_err(|error| error.to_string())
    }

    fn serve(&mut self, slot: Slot, act: impl FnOnce(&mut Serve, &mut Site<'_>) -> Next) {
        let Some(serve) = self.serves.at(slot) else { return };
        let mut site = site(
            &self.settings,
            &self.journal,
            &mut self.recorder,
            &mut self.stream,
            &self.clock,
            self.now,
            &mut self.buffer,
        );
        match act(serve, &mut site) {
            Next::Poll => {}
            Next::Wake(at) => self.timers.set(at, TimerEvent::Serve(slot)),
            Next::Close => {
                self.recorder.side(Side::Server).closed += 1;
                self.serves.remove(slot);
            }
        }
    }

    // The robots.

    fn robot_due(&mut self, wake: &Wake) {
        // A robot that comes too late for the time before a cut asks no more; the phase after it wakes all anew.
        if self.schedule.is_dark(self.now) {
            return;
        }
        let (due, next) = self.crowd.due(&self.settings, &self.schedule, wake);
        if let Some(next) = next {
            self.wake(next);
        }
        match due {
            Due::Nothing => {}
            Due::Paid => self.recorder.due(),
            Due::Asks(mut wish) => {
                self.recorder.due();
                for part in std::mem::take(&mut wish.parts) {
                    self.queue(wake.robot, wish.part(part));
                }
                self.queue(wake.robot, wish);
                self.dispatch(wake.robot);
            }
        }
    }

    fn queue(&mut self, robot: u32, wish: Wish) {
        self.recorder.issued();
        let queue = &mut self.crowd.robots[robot as usize].queue;
        if queue.len() >= self.settings.robots.waiting_max {
            self.drop_wish(&wish, Trouble::GaveUp, "too many requests wait for a connection");
            return;
        }
        queue.push_back(wish);
    }

    fn ask(&mut self, slot: Slot, act: impl FnOnce(&mut Ask, &mut Desk<'_>) -> Outcome) {
        let mut goes_on = self.turn(slot, act);
        // Replies that came together are taken one after the other, not within each other.
        while goes_on {
            self.read_clock();
            goes_on = self.turn(slot, |ask, desk| ask.step(desk));
        }
    }

    /// One turn of a connection; says whether another may follow at once.
    fn turn(&mut self, slot: Slot, act: impl FnOnce(&mut Ask, &mut Desk<'_>) -> Outcome) -> bool {
        let Some(ask) = self.asks.at(slot) else { return false };
        let mut desk = desk(&self.settings, &self.journal, &self.clock, self.now, &mut self.buffer);
        let outcome = act(ask, &mut desk);
        let (robot, end, used) = (ask.robot, ask.end, ask.used);
        if let Some(took) = ask.connected.take() {
            self.recorder.connected(Side::Client, Some(took));
        }
        if let Some((shaken, took)) = ask.shaken.take() {
            self.recorder.shaken(Side::Client, shaken.resumed, Some(took));
        }
        match outcome {
            Outcome::Poll => {}
            Outcome::Wake(at) => self.timers.set(at, TimerEvent::Ask(slot)),
            Outcome::Read => _ = self.readers.insert(TimerEvent::Ask(slot)),
            Outcome::Done(report, after) => {
                match after {
                    After::Idle => self.crowd.robots[robot as usize].idle.push((end, slot)),
                    After::Ends => self.close(slot),
                    After::Busy => {}
                }
                self.done(robot, report);
                return after == After::Busy;
            }
            Outcome::Failed(job, trouble, detail) => {
                let behind = self.asks.remove(slot).map(|ask| ask.abandon().1);
                self.gone(robot);
                self.queue_again(robot, behind.unwrap_or_default());
                self.failed(robot, job, trouble, detail, used);
            }
            Outcome::Ended(wrong) => {
                if let Some((trouble, detail)) = wrong {
                    self.trouble(trouble, String::new(), &detail);
                }
                self.recorder.side(Side::Client).closed_by_cache += 1;
                self.crowd.robots[robot as usize].idle.retain(|(_, idle)| *idle != slot);
                self.asks.remove(slot);
                self.gone(robot);
            }
        }
        false
    }

    fn close(&mut self, slot: Slot) {
        if let Some(ask) = self.asks.remove(slot) {
            self.recorder.side(Side::Client).closed += 1;
            let robot = ask.robot;
            self.gone(robot);
            self.queue_again(robot, ask.abandon().1);
        }
    }

    /// The connection ended before the turn of these requests; they are sent again, which is no failure of theirs (RFC 9112
    /// section 9.3.2).
    fn queue_again(&mut self, robot: u32, behind: VecDeque<Box<Job>>) {
        for job in behind.into_iter().rev() {
            self.finished(robot);
            self.recorder.side(Side::Client).retried += 1;
            self.crowd.pending.take_back(job.wish.name.fingerprint());
            self.crowd.robots[robot as usize].queue.push_front(job.wish);
        }
    }

    /// A connection of a robot is no more.
    fn gone(&mut self, robot: u32) {
        let found = &mut self.crowd.robots[robot as usize];
        found.open = found.open.saturating_sub(1);
    }

    fn done(&mut self, robot: u32, report: Box<Report>) {
        let moment = Moment { settings: &self.settings, journal: &self.journal, now: self.now, unix: self.clock.unix };
        let closed = moment.close(&report, &mut self.crowd.pending);
        self.finished(robot);
        self.lead_on(robot, &report);
        match self.journal.is_linked() {
            false => self.record(&report, closed, (self.now, self.clock.unix)),
            true => self.held.push(Held { report, closed, at: self.now, unix: self.clock.unix }),
        }
        self.dispatch(robot);
        match self.crowd.again(&self.settings, robot, self.now) {
            Some(wake) if wake.at <= self.now => self.robot_due(&wake),
            Some(wake) => self.wake(wake),
            None => {}
        }
    }

    /// Records the replies of which all origins have told what they did; at the very end all of them.
    fn release(&mut self, all: bool) {
        while let Some(mut held) = self.held.take_next(&self.journal, all) {
            let Settings { law, robots: settings, route, .. } = &*self.settings;
            held.report.judge_again(&Bench { law, settings, route, journal: &self.journal });
            self.record(&held.report, held.closed, (held.at, held.unix));
        }
    }

    /// The reply to a page leads to what it embeds.
    fn lead_on(&mut self, robot: u32, report: &Report) {
        let wish = &report.job.wish;
        let redirected = wish.facts.redirects && report.verdict.findings.status == 302;
        let status = report.verdict.findings.status;
        let page_is_here = redirected || wish.kind.brings(status, self.settings.robots.embeds_of_304);
        if page_is_here && report.verdict.findings.wrong.is_none() {
            self.crowd.arrived(&self.settings, robot, wish);
        }
        if page_is_here {
            for child in self.crowd.children(&self.settings, wish, self.now) {
                self.queue(robot, child);
            }
        } else {
            self.crowd.forgo(robot, wish);
        }
    }

    fn finished(&mut self, robot: u32) {
        let found = &mut self.crowd.robots[robot as usize];
        found.under_way = found.under_way.saturating_sub(1);
        self.under_way = self.under_way.saturating_sub(1);
    }

    fn record(&mut self, report: &Report, closed: Closed, (now, unix): (Duration, u64)) {
        let moment = Moment { settings: &self.settings, journal: &self.journal, now, unix };
        let found = moment.attribute(report, closed);
        if let Some((trouble, detail)) = found.wrong {
            self.trouble(*trouble, url(&self.settings, &report.job.wish), detail);
        }
        if let Some(remark) = report.verdict.findings.remark {
            let (trouble, at_us) = (remark.trouble(), self.now.as_micros() as u64);
            let (settings, wish) = (&self.settings, &report.job.wish);
            let exhibit = || Exhibit { trouble, at_us, url: url(settings, wish), detail: remark.detail() };
            self.recorder.error(trouble, exhibit);
        }
        self.recorder.origin().bytes_again += found.bytes_again;
        match &found.reply {
            Some(reply) => self.recorder.reply(reply),
            None => self.recorder.incomplete(),
        }
        self.schedule.count(now, 1, found.fill_bytes);
    }

    fn failed(&mut self, robot: u32, mut job: Box<Job>, trouble: Trouble, detail: String, used: u32) {
        self.finished(robot);
        if trouble == Trouble::Reset && used > 1 && job.wish.tries < TRIES_MAX {
            self.send_again(robot, job);
            return;
        }
        self.crowd.forgo(robot, &job.wish);
        job.wish.children.clear();
        self.drop_wish(&job.wish, trouble, &detail);
        if trouble.is_own() {
            // The next connection would fail at once as well, and take the time in which others end.
            self.rest(robot);
        }
        self.dispatch(robot);
        if let Some(wake) = self.crowd.again(&self.settings, robot, self.now + PAUSE) {
            self.wake(wake);
        }
    }

    /// A request that was not begun goes to the head of the queue.
    fn send_again(&mut self, robot: u32, mut job: Box<Job>) {
        self.recorder.side(Side::Client).retried += 1;
        job.wish.tries += 1;
        if job.wish.kind != Kindred::Purge {
            self.crowd.pending.take_back(job.wish.name.fingerprint());
        }
        self.crowd.robots[robot as usize].queue.push_front(job.wish);
        self.dispatch(robot);
    }

    /// A request gets no reply.
    fn drop_wish(&mut self, wish: &Wish, trouble: Trouble, detail: &str) {
        self.trouble(trouble, url(&self.settings, wish), detail);
        match wish.kind {
            Kindred::Purge => self.crowd.pending.leave(wish.name.fingerprint()),
            _ => self.crowd.pending.done(wish.name.fingerprint(), false, !wish.repeat),
        }
        for child in &wish.children {
            self.crowd.pending.leave(child.fingerprint());
        }
    }

    fn trouble(&mut self, trouble: Trouble, url: String, detail: &str) {
        let at_us = self.now.as_micros() as u64;
        self.recorder.error(trouble, || Exhibit { trouble, at_us, url, detail: detail.to_owned() });
    }

    /// The faults that notes of origins on other machines showed.
    fn take_shown(&mut self) {
        for (trouble, number) in self.journal.take_shown() {
            self.trouble(
                trouble,
                String::new(),
                &format!("transaction {number:x}, as an origin on another machine tells"),
            );
        }
    }

    /// Each second: replies that take too long, connections of origins that nobody uses.
    fn sweep(&mut self) {
        self.take_shown();
        let (now, robots) = (self.now, &self.settings.robots);
        let late: Vec<Slot> = self
            .asks
            .iter()
            .filter(|(_, ask)| ask.is_busy() && ask.active + robots.timeout < now)
            .map(|(slot, _)| slot)
            .collect();
        let idle = self.settings.origins.idle;
        let unused: Vec<Slot> = self
            .serves
            .iter()
            .filter(|(_, serve)| serve.is_idle() && serve.active + idle < now)
            .map(|(slot, _)| slot)
            .collect();
        self.expire_links();
        for slot in late {
            let Some(ask) = self.asks.remove(slot) else { continue };
            let robot = ask.robot;
            self.gone(robot);
            let (job, behind) = ask.abandon();
            self.queue_again(robot, behind);
            let Some(job) = job else { continue };
            let detail = format!("no whole reply within {} s", self.settings.robots.timeout.as_secs());
            match job.cut((Trouble::Timeout, detail), now) {
                Ok(report) => self.done(robot, report),
                Err((job, (trouble, detail))) => self.failed(robot, job, trouble, detail, 0),
            }
        }
        for slot in unused {
            self.serves.remove(slot);
            self.recorder.side(Side::Server).closed += 1;
        }
    }

    /// At the very end: requests that never left the queue.
    fn give_up(&mut self) {
        let waiting: Vec<Wish> = self.crowd.robots.iter_mut().flat_map(|robot| robot.queue.drain(..)).collect();
        for wish in waiting {
            self.drop_wish(&wish, Trouble::GaveUp, "not sent before the end of the run");
        }
    }

    // Intervals.

    /// Hands over an interval at the end of each second and of each phase.
    fn cut(&mut self, pieces: &Sender<Piece>) {
        loop {
            let (from, phase) = self.interval;
            let second = Duration::from_secs(from.as_secs() + 1);
            let end = self.schedule.end(phase).map_or(second, |end| end.max(from).min(second));
            // Replies after the last phase belong to its last interval, which is handed over at the very end.
            let over = self.schedule.phase_at(self.now).is_none() && from >= end;
            if self.now < end || over {
                return;
            }
            self.hand_over(pieces, end);
            if self.interval.1 == phase && self.schedule.end(phase).is_some_and(|phase_end| phase_end <= end) {
                let Some(next) = self.schedule.phase_at(self.now) else { return };
                self.interval.1 = next;
            }
            if self.schedule.phase_at(self.now).is_none() {
                return;
            }
        }
    }

    fn hand_over(&mut self, pieces: &Sender<Piece>, end: Duration) {
        let (from, phase) = self.interval;
        let length = end.saturating_sub(from);
        let factors = self.schedule.factors(from);
        let waiting: usize = self.crowd.robots.iter().map(|robot| robot.queue.len()).sum();
        let idle: usize = self.crowd.robots.iter().map(|robot| robot.idle.len()).sum();
        self.recorder.set_levels(Levels {
            robots: u64::from(self.crowd.alive()),
            under_way: self.under_way,
            waiting: waiting as u64,
            working_set: self.crowd.working_set(),
            worlds: self.crowd.worlds(),
            populus: factors.populus as f32,
            load: factors.load as f32,
            recurrence: factors.recurrence as f32,
            special: factors.special as f32,
        });
        let client = self.recorder.side(Side::Client);
        let linked = self.links.iter().filter(|(_, link)| link.is_idle()).count();
        (client.open, client.idle) = ((self.asks.len() + self.links.len()) as u64, (idle + linked) as u64);
        let served = self.serves.len() as u64;
        let idle = self.serves.iter().filter(|(_, serve)| serve.is_idle()).count() as u64;
        let server = self.recorder.side(Side::Server);
        (server.open, server.idle) = (served, idle);
        let interval = self.recorder.take(phase as u16, from, length);
        self.interval.0 = end;
        let _ = pieces.send(Piece { worker: self.number, interval: Some(interval) });
    }
}

/// The URL that a wish asks for.
fn url(settings: &Settings, wish: &Wish) -> String {
    let mut path = Vec::new();
    settings.law.path(&wish.name, &wish.facts, &mut path);
    let server = settings.route.server(wish.name.server);
    let scheme = if settings.route.tls { "https" } else { "http" };
    format!("{scheme}://{server}:{}{}", settings.route.origin_port, String::from_utf8_lossy(&path))
}

fn site<'a>(
    settings: &'a Settings,
    journal: &'a Journal,
    recorder: &'a mut Recorder,
    stream: &'a mut Stream,
    clock: &'a Clock,
    now: Duration,
    buffer: &'a mut [u8],
) -> Site<'a> {
    Site { law: &settings.law, settings: &settings.origins, journal, recorder, stream, clock, now, buffer }
}

fn desk<'a>(
    settings: &'a Settings,
    journal: &'a Journal,
    clock: &'a Clock,
    now: Duration,
    buffer: &'a mut [u8],
) -> Desk<'a> {
    Desk { law: &settings.law, settings: &settings.robots, route: &settings.route, journal, clock, now, buffer }
}
