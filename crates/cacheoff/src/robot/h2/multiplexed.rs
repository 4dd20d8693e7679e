//! A connection of a robot that speaks HTTP/2: it connects, shakes hands, and carries many requests at once.

use super::state::{End, Event, State};
use crate::distribution::Distribution;
use crate::ledger::Trouble;
use crate::random::Stream;
use crate::robot::dial::{open, trouble_of};
use crate::robot::{Desk, Job, Report, Wrong};
use crate::tls::{Channel, Shaken};
use rustls::ClientConfig;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The protocol by ALPN (RFC 9113 section 3.2).
const ALPN: &[u8] = b"h2";

/// The result of a turn.
pub enum StreamOutcome {
    /// Waits for the kernel's word.
    Poll,
    /// Wants to be called at a time.
    Wake(Duration),
    /// It takes requests from now on, or more of them.
    Open,
    /// More can be read at once; others have their turn first, and the clock is read again.
    Read,
    /// A reply is over.
    Done(Box<Report>),
    /// A request failed.
    Failed(Box<Job>, Trouble, String),
    /// A request was not begun by the other end and may be sent again; the trouble that it is if it can't.
    Again(Box<Job>, Trouble, String),
    /// Something came that belongs to no request.
    Accused(Wrong),
    /// The connection is gone; whether the cache ended it.
    Ended(bool),
}

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// At once.
    Free,
    /// Later.
    Full,
    /// Never: another connection has to be opened.
    Gone,
}

enum Phase {
    Connecting(Box<Job>),
    /// The TLS handshake that began at the time.
    Shaking(Duration, Box<Job>),
    Open,
    /// Over, by the cache or not, once the events are taken.
    Over(bool),
}

/// One connection of a robot.
pub struct Multiplexed {
    channel: Channel,
    /// The robot that owns it, by its number in the worker.
    pub robot: u32,
    /// Whom it speaks with: an address, and the server if each has a name of its own.
    pub end: (SocketAddr, u32),
    opened: Duration,
    was_made: bool,
    /// How long it took to be connected; told once.
    pub connected: Option<Duration>,
    /// Its handshake and how long that took; told once.
    pub shaken: Option<(Shaken, Duration)>,
    active: Duration,
    uses_left: u32,
    phase: Phase,
    state: State,
    /// Bytes of `state.out` that are written.
    written: usize,
    readable: bool,
    writable: bool,
    /// The other end sends no more than what can be read now.
    ended: bool,
    /// Room has come that nobody was told of.
    was_full: bool,
}

impl Multiplexed {
    /// Begins to connect, from the robot's own address, for a first request.
    pub fn connect(
        robot: u32,
        from: Ipv4Addr,
        secure: Option<Arc<ClientConfig>>,
        job: Box<Job>,
        desk: &Desk<'_>,
        stream: &mut Stream,
    ) -> Result<Self, (Box<Job>, io::Error)> {
        let server = job.wish.name.server;
        let is_secure = secure.is_some();
        let channel = match open(from, secure, server, desk.route) {
            Ok(channel) => channel,
            Err(error) => return Err((job, error)),
        };
        Ok(Self {
            channel,
            robot,
            end: desk.route.authority(server),
            opened: desk.now,
            was_made: false,
            connected: None,
            shaken: None,
            active: desk.now,
            uses_left: Distribution::draw_uses(desk.settings.uses.as_ref(), stream),
            phase: Phase::Connecting(job),
            state: State::new(desk.settings.streams.unwrap_or_default(), is_secure),
            written: 0,
            readable: false,
            writable: false,
            ended: false,
            was_full: false,
        })
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.channel.socket()
    }

    /// Whether it ever was connected.
    pub fn was_made(&self) -> bool {
        self.was_made
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Open) && self.state.streams.is_empty() && self.state.events.is_empty()
    }

    /// Whether a request may be sent on it.
    pub fn room(&mut self) -> Room {
        let room = match self.phase {
            Phase::Over(_) => Room::Gone,
            Phase::Open if !self.state.is_open() || self.uses_left == 0 || self.ended => Room::Gone,
            Phase::Open if self.state.has_room() => Room::Free,
            _ => Room::Full,
        };
        self.was_full = room == Room::Full;
        room
    }

    /// Sends a request; it leaves with the next [`Multiplexed::step`].
    pub fn begin(&mut self, mut job: Box<Job>, desk: &Desk<'_>) {
        job.started = desk.now;
        self.send(job, desk);
    }

    fn send(&mut self, job: Box<Job>, desk: &Desk<'_>) {
        self.uses_left = self.uses_left.saturating_sub(1);
        self.state.begin(job, desk);
    }

    /// Gives up a connection that was not made yet.
    pub fn abandon(self) -> Option<Box<Job>> {
        match self.phase {
            Phase::Connecting(job) | Phase::Shaking(_, job) => Some(job),
            Phase::Open | Phase::Over(_) => None,
        }
    }

    /// The kernel says that something is ready.
    pub fn ready(&mut self, read: bool, write: bool, ended: bool) {
        self.ended |= ended;
        self.readable |= read;
        self.writable |= write;
    }

    /// Requests that have waited for too long fail; a connection that can't be made does.
    pub fn expire(&mut self, now: Duration, timeout: Duration) {
        let Some(before) = now.checked_sub(timeout) else { return };
        if matches!(self.phase, Phase::Open) {
            return self.state.expire(before, timeout);
        }
        if self.active < before
            && let Phase::Connecting(job) | Phase::Shaking(_, job) =
                std::mem::replace(&mut self.phase, Phase::Over(false))
        {
            let detail = format!("no connection within {} s", timeout.as_secs_f64());
            self.state.events.push_back(Event::Failed(job, Trouble::Timeout, detail));
        }
    }

    /// Goes on until something has come of a request, or the kernel must be waited for.
    pub fn step(&mut self, desk: &mut Desk<'_>) -> StreamOutcome {
        let mut came = 0;
        loop {
            if let Some(event) = self.state.events.pop_front() {
                return match event {
                    Event::Done(report) => StreamOutcome::Done(report),
                    Event::Failed(job, trouble, detail) => StreamOutcome::Failed(job, trouble, detail),
                    Event::Again(job, trouble, detail) => StreamOutcome::Again(job, trouble, detail),
                    Event::Accused(wrong) => StreamOutcome::Accused(wrong),
                };
            }
            let outcome = match std::mem::replace(&mut self.phase, Phase::Open) {
                Phase::Connecting(job) => self.connecting(job, desk),
                Phase::Shaking(begun, job) => self.shaking(begun, job, desk),
                Phase::Open => self.go_on(&mut came, desk),
                Phase::Over(by_cache) => {
                    self.phase = Phase::Over(by_cache);
                    return StreamOutcome::Ended(by_cache);
                }
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    fn connecting(&mut self, mut job: Box<Job>, desk: &Desk<'_>) -> Option<StreamOutcome> {
        if !self.readable && !self.writable {
            self.phase = Phase::Connecting(job);
            return Some(StreamOutcome::Poll);
        }
        match self.channel.socket().take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => {
                self.phase = Phase::Over(false);
                return Some(StreamOutcome::Failed(job, trouble_of(&error), error.to_string()));
            }
        }
        self.was_made = true;
        self.connected = Some(desk.now.saturating_sub(self.opened));
        (job.started, self.active) = (desk.now, desk.now);
        if self.channel.is_secured() {
            self.phase = Phase::Shaking(desk.now, job);
            return None;
        }
        self.send(job, desk);
        Some(StreamOutcome::Open)
    }

    fn shaking(&mut self, begun: Duration, job: Box<Job>, desk: &Desk<'_>) -> Option<StreamOutcome> {
        let detail = match self.channel.shake() {
            Ok(None) => {
                self.phase = Phase::Shaking(begun, job);
                return Some(StreamOutcome::Poll);
            }
            Ok(Some(shaken)) if self.channel.protocol() == Some(ALPN) => {
                self.shaken = Some((shaken, desk.now.saturating_sub(begun)));
                (self.readable, self.writable) = (true, true);
                self.send(job, desk);
                return Some(StreamOutcome::Open);
            }
            Ok(Some(_)) => "the other end did not choose h2 by ALPN".to_owned(),
            Err(error) => format!("the handshake failed: {error}"),
        };
        self.phase = Phase::Over(false);
        Some(StreamOutcome::Failed(job, Trouble::Tls, detail))
    }

    /// Writes and reads what can be, at most a buffer's worth in a turn: all that is read in it counts as read at one time.
    fn go_on(&mut self, came: &mut usize, desk: &mut Desk<'_>) -> Option<StreamOutcome> {
        let wakes = self.state.pump(desk.now);
        if let Err(error) = self.write() {
            // Bytes that have come all the same are read first.
            self.ended |= self.readable;
            if !self.readable {
                self.over(&broken(&error), desk.now, true);
                return None;
            }
        }
        if !self.readable {
            return self.rest(wakes, desk.now);
        }
        match self.channel.read(desk.buffer) {
            Ok(0) => {
                let detail = "the connection was closed".to_owned();
                self.over(&End { trouble: Trouble::Reset, detail, code: None }, desk.now, true);
            }
            Ok(len) => {
                self.readable = self.ended || self.channel.may_have_more(len, desk.buffer.len());
                let shared = &*desk;
                *came += len;
                if let Err(end) = self.state.receive(&shared.buffer[..len], shared) {
                    self.over(&end, desk.now, false);
                } else if self.readable && *came >= shared.buffer.len() && self.state.events.is_empty() {
                    return Some(StreamOutcome::Read);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => self.over(&broken(&error), desk.now, true),
        }
        None
    }

    /// Nothing can be done now.
    fn rest(&mut self, wakes: Option<Duration>, now: Duration) -> Option<StreamOutcome> {
        let takes_none = self.uses_left == 0 || !self.state.is_open();
        if takes_none && self.state.streams.is_empty() {
            let by_cache = self.state.leaving.is_some();
            self.over(&End { trouble: Trouble::Reset, detail: String::new(), code: None }, now, by_cache);
            return None;
        }
        if self.was_full && (takes_none || self.state.has_room()) {
            self.was_full = false;
            return Some(StreamOutcome::Open);
        }
        Some(wakes.map_or(StreamOutcome::Poll, StreamOutcome::Wake))
    }

    fn over(&mut self, end: &End, now: Duration, by_cache: bool) {
        self.state.end(end, now);
        // The other end learns why, if the socket takes it.
        let _ = self.write();
        self.phase = Phase::Over(by_cache);
    }

    fn write(&mut self) -> io::Result<()> {
        while self.writable && self.written < self.state.out.len() {
            match self.channel.write(&self.state.out[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.written == self.state.out.len() {
            self.state.out.clear();
            self.written = 0;
        }
        self.channel.flush_some().map(|_| ())
    }
}

fn broken(error: &io::Error) -> End {
    End { trouble: trouble_of(error), detail: error.to_string(), code: None }
}
