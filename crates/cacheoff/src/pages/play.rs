//! The play: all clients are kept busy through both phases, replies are judged and counted, and a ledger comes of it.

use super::ask::Ask;
use super::client::{Client, Job, Step};
use super::forum::Forum;
use super::judge::judge;
use crate::board::Board;
use crate::engine::{Poll, Ready};
use crate::ledger::{End, Exhibit, Ledger, Levels, Outcome, PhaseStart, Recorder, Reply, Run, Served, Side, Trouble};
use crate::proc::{Sampler, Watched};
use crate::random::Stream;
use crate::workload::{PageKind, PagePlan};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// A reply that is not whole after this time is none.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked for such replies, and for the wish to stop.
const LOOK: Duration = Duration::from_millis(50);
/// A client whose request failed waits for so long, so that a server which refuses all is not asked without end.
const REST: Duration = Duration::from_millis(100);
/// Requests that are due and wait for a connection, at most; what is due beyond is given up.
const WAITING_MAX: usize = 100_000;
const BUFFER_BYTES: usize = 64 * 1024;

/// A play to be made.
pub struct Order {
    /// How.
    pub plan: PagePlan,
    /// The server.
    pub address: SocketAddr,
    /// Seed of the requests.
    pub seed: u64,
    /// The head of the ledger.
    pub head: Run,
    /// The server's processes.
    pub watched: Watched,
    /// Set to end the play early.
    pub stop: Arc<AtomicBool>,
}

/// Plays it. The figures until something broke are in the ledger; the error is what keeps a play from beginning.
pub fn play(order: Order) -> Result<Ledger, String> {
    let poll = Poll::new().map_err(|error| format!("the referee has no poll: {error}"))?;
    let mut play = Play::new(&order, poll);
    let mut outcome = Outcome::Complete;
    for (phase, length) in [order.plan.warm, order.plan.measure].into_iter().enumerate() {
        let until = play.enter(phase as u16) + length;
        if let Err(error) = play.until(until) {
            outcome = Outcome::Failed(format!("the poll of the referee failed: {error}"));
            break;
        }
        if order.stop.load(Relaxed) {
            outcome = Outcome::Interrupted;
            break;
        }
        if phase == 1 {
            play.drain();
        }
        play.flush();
    }
    let at_us = micros(play.begun.elapsed());
    play.ledger.end = End { at_us, outcome, invalid: Vec::new() };
    Ok(play.ledger)
}

struct Play<'o> {
    order: &'o Order,
    forum: Option<Forum>,
    poll: Poll,
    ready: Vec<Ready>,
    clients: Vec<Client>,
    draws: Vec<Stream>,
    /// The page to which a client's post led.
    follow: Vec<Option<(u32, u32)>>,
    idle: Vec<usize>,
    resting: VecDeque<(Instant, usize)>,
    /// In an open loop: when the next request is due, the draws of these times, and what is due and waits.
    next_due: Instant,
    times: Stream,
    waiting: VecDeque<Instant>,
    recorder: Recorder,
    sampler: Sampler,
    ledger: Ledger,
    begun: Instant,
    phase: u16,
    from: Instant,
    /// The end of the interval under way, if it lies before now: replies after it belong to it, and its rate does not count their time.
    closed: Option<Closed>,
    /// Connections that were opened, by which each gets its address.
    opened: u64,
    buffer: Vec<u8>,
    page: Vec<u8>,
}

/// An interval whose time is over while its last replies are awaited.
struct Closed {
    length: Duration,
    load: crate::ledger::Load,
}

impl<'o> Play<'o> {
    fn new(order: &'o Order, poll: Poll) -> Self {
        let (plan, now) = (&order.plan, Instant::now());
        let count = plan.connections as usize;
        Self {
            forum: (plan.asks == PageKind::Board).then(|| Forum::new(Board::new())),
            poll,
            ready: Vec::new(),
            clients: (0..count).map(|_| Client::default()).collect(),
            draws: (0..count).map(|number| Stream::new(order.seed, number as u64)).collect(),
            follow: vec![None; count],
            idle: (0..count).rev().collect(),
            resting: VecDeque::new(),
            next_due: now,
            times: Stream::named(order.seed, "due"),
            waiting: VecDeque::new(),
            recorder: Recorder::new(),
            sampler: Sampler::new(order.watched.clone()),
            ledger: Ledger { run: order.head.clone(), ..Ledger::default() },
            begun: now,
            phase: 0,
            from: now,
            closed: None,
            opened: 0,
            buffer: vec![0; BUFFER_BYTES],
            page: Vec::new(),
            order,
        }
    }

    fn enter(&mut self, phase: u16) -> Instant {
        self.phase = phase;
        let now = Instant::now();
        self.from = now;
        self.ledger.phases.push(PhaseStart { phase, at_us: micros(now - self.begun) });
        now
    }

    /// Keeps all clients busy until then.
    fn until(&mut self, until: Instant) -> std::io::Result<()> {
        let mut looked = Instant::now();
        loop {
            let now = Instant::now();
            if now >= until || self.order.stop.load(Relaxed) {
                return Ok(());
            }
            if now - self.from >= SECOND {
                self.flush();
            }
            if now - looked >= LOOK {
                self.time_out(now);
                looked = now;
            }
            while self.resting.front().is_some_and(|(until, _)| *until <= now) {
                self.idle.extend(self.resting.pop_front().map(|(_, client)| client));
            }
            self.fall_due(now);
            self.begin_all();
            let mut wake = until.min(self.from + SECOND).min(now + LOOK);
            if self.order.plan.rate_per_s.is_some() {
                wake = wake.min(self.next_due);
            }
            self.poll(wake.saturating_duration_since(Instant::now()))?;
        }
    }

    /// Waits for events, and lets the clients that have one go on.
    fn poll(&mut self, timeout: Duration) -> std::io::Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        let waited = self.poll.wait(timeout, &mut ready);
        let now = Instant::now();
        for Ready { token, .. } in ready.drain(..) {
            let (number, generation) = ((token >> 32) as usize, token as u32);
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.generation == generation {
                let step = client.go_on(now, &mut self.buffer);
                self.step(number, step, now);
            }
        }
        self.ready = ready;
        waited
    }

    /// In an open loop, requests fall due at their times, whatever the replies do.
    fn fall_due(&mut self, now: Instant) {
        let Some(rate) = self.order.plan.rate_per_s else { return };
        while self.next_due <= now {
            self.recorder.due();
            self.recorder.issued();
            match self.waiting.len() < WAITING_MAX {
                true => self.waiting.push_back(self.next_due),
                false => self.error(Trouble::GaveUp, "", &format!("{WAITING_MAX} requests waited for a connection")),
            }
            let gap = -(1.0 - self.times.unit()).ln() / rate;
            self.next_due += Duration::from_secs_f64(gap.clamp(1e-9, 3_600.0));
        }
    }

    fn begin_all(&mut self) {
        while let Some(number) = self.idle.pop() {
            if !self.begin_next(number) {
                self.idle.push(number);
                return;
            }
        }
    }

    /// Begins the next request of a client; false if none is due.
    fn begin_next(&mut self, number: usize) -> bool {
        let is_open = self.order.plan.rate_per_s.is_some();
        let due = if is_open { self.waiting.pop_front() } else { Some(Instant::now()) };
        let Some(due) = due else { return false };
        let follow = self.follow[number].take();
        let ask = match (&mut self.forum, follow) {
            (None, _) => Ask::Hello,
            (Some(forum), Some((thread, user))) => forum.thread(thread, Some(user), true),
            (Some(forum), None) => forum.draw(&mut self.draws[number]),
        };
        let uses = self.order.plan.connection_uses;
        let closes = uses.is_some_and(|uses| self.clients[number].served() + 1 >= uses);
        let board = self.forum.as_ref().map(Forum::board);
        let request = ask.bytes(board, self.order.address, closes);
        // A request that waited for a connection was not late by the referee's fault.
        let late = (is_open && self.waiting.is_empty()).then(|| due.elapsed());
        self.recorder.sent(true, false, late.filter(|late| *late < LOOK));
        self.begin(number, Job::new(ask, due, request, closes));
        true
    }

    fn begin(&mut self, number: usize, job: Box<Job>) {
        let opened = self.opened;
        let client = &mut self.clients[number];
        let is_new = client.served() == 0;
        let poll = &self.poll;
        let watch = |stream: &std::net::TcpStream, generation: u32| {
            poll.watch(stream, (number as u64) << 32 | u64::from(generation))
        };
        let step = client.begin(job, self.order.address, opened, watch);
        if is_new {
            self.opened += 1;
            self.recorder.connected(Side::Client, None);
        } else {
            self.recorder.side(Side::Client).reused += 1;
        }
        self.step(number, step, Instant::now());
    }

    fn step(&mut self, number: usize, step: Step, now: Instant) {
        match step {
            Step::Wait => {}
            Step::Whole(job) => self.whole(number, &job, now),
            Step::Again(job) => {
                self.recorder.side(Side::Client).retried += 1;
                self.begin(number, job);
            }
            Step::Failed(job, trouble, reason) => {
                self.error(trouble, &job.ask.path(), &reason);
                self.resting.push_back((now + REST, number));
            }
        }
    }

    /// Judges a reply and counts it; the client's next request begins at once.
    fn whole(&mut self, number: usize, job: &Job, now: Instant) {
        let Some((head, head_bytes)) = &job.head else { return };
        let judged = judge(self.forum.as_ref(), &job.ask, head, &job.body, &mut self.page);
        let is_done = judged.is_ok();
        if let (Ask::Post { thread, user, .. }, Some(forum), true) = (&job.ask, &mut self.forum, is_done) {
            forum.acknowledge(*thread);
            self.follow[number] = Some((*thread, *user));
        }
        let (first, sent) = (job.first_byte.unwrap_or(now), job.sent);
        self.recorder.reply(&Reply {
            kind: job.ask.kind(),
            content: job.ask.content(),
            status: head.status,
            cachable: false,
            offered: false,
            served: Served::Miss,
            aborted: false,
            head_bytes: *head_bytes as u64,
            body_bytes: job.body.len() as u64,
            response: now.saturating_duration_since(job.due),
            service: now.saturating_duration_since(sent),
            across: Duration::ZERO,
            behind: false,
            first_byte: first.saturating_duration_since(sent),
            wait: sent.saturating_duration_since(job.due),
            missing: None,
            beside: None,
        });
        if let Err((trouble, reason)) = judged {
            self.error(trouble, &job.ask.path(), &reason);
            if !trouble.is_lie() {
                self.resting.push_back((now + REST, number));
                return;
            }
        }
        if self.closed.is_some() || !self.begin_next(number) {
            self.idle.push(number);
        }
    }

    fn time_out(&mut self, now: Instant) {
        for number in 0..self.clients.len() {
            let is_over = self.clients[number].busy_since().is_some_and(|since| now - since > TIMEOUT);
            if let Some(step) = is_over.then(|| self.clients[number].give_up(TIMEOUT)).flatten() {
                self.step(number, step, now);
            }
        }
    }

    /// Waits for the replies that are under way when the last phase is over, so that the slowest ones are not left out. They
    /// belong to the last interval, which has its length and its load already.
    fn drain(&mut self) {
        let now = Instant::now();
        self.closed = Some(Closed { length: now - self.from, load: self.sampler.sample() });
        for _ in 0..std::mem::take(&mut self.waiting).len() {
            self.error(Trouble::GaveUp, "", "due, and no connection was free before the phase ended");
        }
        while self.clients.iter().any(Client::is_busy) && !self.order.stop.load(Relaxed) {
            self.time_out(Instant::now());
            if self.poll(LOOK).is_err() {
                return;
            }
        }
    }

    /// Ends the interval under way.
    fn flush(&mut self) {
        let now = Instant::now();
        let closed = self.closed.take();
        let length = closed.as_ref().map_or(now - self.from, |closed| closed.length);
        let load = closed.map_or_else(|| self.sampler.sample(), |closed| closed.load);
        let under_way = self.clients.iter().filter(|client| client.is_busy()).count() as u64;
        let (robots, waiting) = (self.clients.len() as u64, self.waiting.len() as u64);
        self.recorder.set_levels(Levels { robots, under_way, waiting, ..Levels::default() });
        let mut interval = self.recorder.take(self.phase, self.from - self.begun, length);
        interval.load = Some(load);
        self.ledger.intervals.push(interval);
        self.from = now;
    }

    fn error(&mut self, trouble: Trouble, path: &str, detail: &str) {
        let at_us = micros(self.begun.elapsed());
        let exhibit = || Exhibit { trouble, at_us, url: path.to_owned(), detail: detail.to_owned() };
        self.recorder.error(trouble, exhibit);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
