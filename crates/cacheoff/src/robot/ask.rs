//! One connection of a robot: requests at a time or one behind the other (RFC 9112 section 9.3.2), and replies, judged as they arrive.

use super::dial::{open, trouble_of};
use super::job::CONTINUE_MAX;
use super::{Desk, Job, Kindred, Report, Turn, Wrong, write_connect, write_request};
use crate::distribution::Distribution;
use crate::ledger::Trouble;
use crate::link::Lane;
use crate::random::Stream;
use crate::tls::{Channel, Shaken};
use crate::wire::HEAD_LIMITS;
use larder_wire::ResponseHead;
use larder_wire::body::{Decoder, Event};
use larder_wire::framing::Framing;
use larder_wire::parse::{HeadScan, Parsed};
use rustls::ClientConfig;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A robot that reads slowly looks again after so long.
const TRICKLE: Duration = Duration::from_millis(50);
/// Bytes that an exhibit shows.
const SHOWN_BYTES: usize = 32;
/// Bytes of a head that such a robot reads at once, so that not the whole body comes along.
const HEAD_PIECE_BYTES: usize = 256;

/// The state of a connection after a turn.
#[derive(Debug)]
pub enum Outcome {
    /// Waits for the kernel's word.
    Poll,
    /// Wants to be called at a time.
    Wake(Duration),
    /// More can be read at once; others have their turn first, and the clock is read again.
    Read,
    /// The reply is here.
    Done(Box<Report>, After),
    /// The request failed before any byte of a reply; the connection is gone.
    Failed(Box<Job>, Trouble, String),
    /// The connection ended while nothing was under way; perhaps by bytes that were not asked for.
    Ended(Option<Wrong>),
}

/// The state of a connection after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It ends.
    Ends,
    /// It waits for a request.
    Idle,
    /// Other requests are under way on it.
    Busy,
}

/// One connection of a robot.
#[derive(Debug)]
pub struct Ask {
    channel: Channel,
    /// The robot that owns it, by its number in the worker.
    pub robot: u32,
    /// Whom it speaks with.
    pub end: SocketAddr,
    opened: Duration,
    /// How long it took to be connected; told once.
    pub connected: Option<Duration>,
    /// Its handshake and how long that took; told once.
    pub shaken: Option<(Shaken, Duration)>,
    /// When something was last asked on it.
    pub active: Duration,
    /// Requests that it carried.
    pub used: u32,
    uses_left: u32,
    /// Whether the last request was a HEAD.
    asked_head: bool,
    inbox: Vec<u8>,
    scan: HeadScan,
    state: State,
    /// Requests behind the one whose reply is awaited.
    behind: VecDeque<Box<Job>>,
    /// Requests of late, also those that are answered, if robots send several at once.
    turns: Vec<Turn>,
    readable: bool,
    writable: bool,
    /// The other end sends no more than what can be read now.
    ended: bool,
    lanes: Option<Box<(Lane, Lane, Duration)>>,
}

#[derive(Debug)]
enum State {
    Connecting(Box<Job>),
    /// A tunnel is asked for.
    Tunnelling(Box<Job>),
    /// The TLS handshake that began at the time.
    Shaking(Duration, Box<Job>),
    Idle,
    /// The request crosses the link until the time.
    Leaving(Duration, Box<Job>),
    Sending(Box<Job>),
    Receiving(Box<Job>),
    /// The reply is whole, and crosses the link until the time.
    Arriving(Duration, Box<Report>, After),
}

impl Ask {
    /// Begins to connect, from the robot's own address.
    pub fn connect(
        robot: u32,
        from: Ipv4Addr,
        secure: Option<Arc<ClientConfig>>,
        job: Box<Job>,
        desk: &Desk<'_>,
        stream: &mut Stream,
    ) -> Result<Self, (Box<Job>, io::Error)> {
        let server = job.wish.name.server;
        let channel = match open(from, secure, server, desk.route) {
            Ok(channel) => channel,
            Err(error) => return Err((job, error)),
        };
        let uses_left = Distribution::draw_uses(desk.settings.uses.as_ref(), stream);
        let link = desk.settings.link;
        let lanes = (!link.is_plain()).then(|| {
            let [out, back] = [0, 1].map(|_| Lane::new(link, Stream::new(stream.next_u64(), 0)));
            Box::new((out, back, desk.now + link.handshake(stream)))
        });
        Ok(Self {
            channel,
            robot,
            end: desk.route.end(server),
            opened: desk.now,
            connected: None,
            shaken: None,
            active: desk.now,
            used: 0,
            uses_left,
            asked_head: false,
            inbox: Vec::new(),
            scan: HeadScan::new(),
            state: State::Connecting(job),
            behind: VecDeque::new(),
            turns: Vec::new(),
            readable: false,
            writable: false,
            ended: false,
            lanes,
        })
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.channel.socket()
    }

    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Gives an idle connection its next request.
    pub fn begin(&mut self, job: Box<Job>, desk: &mut Desk<'_>) -> Outcome {
        self.send(job, desk);
        self.step(desk)
    }

    /// Whether a request may be sent behind those that are under way: fewer than so many, all of which may be sent again if
    /// the connection ends.
    pub fn has_room(&self, depth: u32) -> bool {
        let (State::Sending(job) | State::Receiving(job)) = &self.state else { return false };
        let stays = job.reply.is_none() || job.keeps_alive;
        let repeatable = |job: &Job| job.wish.kind.is_repeatable();
        let under_way = self.behind.len() as u32 + 1;
        under_way < depth && stays && self.uses_left > 0 && !self.ended && self.lanes.is_none() && repeatable(job)
    }

    /// Sends a request behind those that are under way.
    pub fn follow(&mut self, mut job: Box<Job>, desk: &mut Desk<'_>) -> Outcome {
        self.write(&mut job, desk);
        self.behind.push_back(job);
        self.step(desk)
    }

    /// Gives up; says what was under way, and what was behind that.
    pub fn abandon(self) -> (Option<Box<Job>>, VecDeque<Box<Job>>) {
        let first = match self.state {
            State::Idle => None,
            State::Connecting(job) | State::Tunnelling(job) | State::Shaking(_, job) => Some(job),
            State::Leaving(_, job) | State::Sending(job) | State::Receiving(job) => Some(job),
            State::Arriving(_, report, _) => Some(report.job),
        };
        (first, self.behind)
    }

    /// The kernel says that something is ready.
    pub fn ready(&mut self, read: bool, write: bool, ended: bool, desk: &mut Desk<'_>) -> Outcome {
        self.ended |= ended;
        self.readable |= read;
        self.writable |= write;
        self.step(desk)
    }

    /// Goes on as far as it can.
    pub fn step(&mut self, desk: &mut Desk<'_>) -> Outcome {
        loop {
            let outcome = match std::mem::replace(&mut self.state, State::Idle) {
                State::Connecting(job) => self.connecting(job, desk),
                State::Tunnelling(job) => self.tunnelling(job, desk),
                State::Shaking(begun, job) => self.shaking(begun, job, desk),
                State::Idle => return self.idle(desk),
                State::Leaving(until, job) if until > desk.now => {
                    self.state = State::Leaving(until, job);
                    return Outcome::Wake(until);
                }
                State::Leaving(_, job) => {
                    self.state = State::Sending(job);
                    continue;
                }
                State::Sending(job) => self.sending(job),
                State::Receiving(job) => self.receiving(job, desk),
                State::Arriving(until, report, after) if until > desk.now => {
                    self.state = State::Arriving(until, report, after);
                    return Outcome::Wake(until);
                }
                State::Arriving(_, report, after) => return self.arrived(report, after),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    fn connecting(&mut self, mut job: Box<Job>, desk: &mut Desk<'_>) -> Option<Outcome> {
        if !self.readable && !self.writable {
            self.state = State::Connecting(job);
            return Some(Outcome::Poll);
        }
        match self.channel.socket().take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Some(failed(job, &error)),
        }
        self.connected = Some(desk.now.saturating_sub(self.opened));
        if !self.channel.is_secured() {
            self.send(job, desk);
            return None;
        }
        job.started = desk.now;
        self.state = match desk.route.tunnels() {
            true => {
                write_connect(desk.route, &job.wish, &mut job.out);
                State::Tunnelling(job)
            }
            false => State::Shaking(desk.now, job),
        };
        None
    }

    /// Asks the proxy for a tunnel, and reads its answer; nothing may follow that before the robot speaks.
    fn tunnelling(&mut self, mut job: Box<Job>, desk: &mut Desk<'_>) -> Option<Outcome> {
        let tunnel = match self.tunnel(&mut job, desk) {
            Ok(tunnel) => tunnel,
            Err((trouble, detail)) => return Some(Outcome::Failed(job, trouble, format!("CONNECT: {detail}"))),
        };
        if !tunnel {
            self.state = State::Tunnelling(job);
            return Some(Outcome::Poll);
        }
        self.delay(1, desk);
        self.inbox.clear();
        job.out.clear();
        job.out_at = 0;
        self.state = State::Shaking(desk.now, job);
        None
    }

    /// Whether the tunnel is there.
    fn tunnel(&mut self, job: &mut Job, desk: &mut Desk<'_>) -> Result<bool, (Trouble, String)> {
        let broken = |error: io::Error| (trouble_of(&error), error.to_string());
        let below = self.channel.below();
        while job.out_at < job.out.len() {
            match below.write(&job.out[job.out_at..]) {
                Ok(len) => job.out_at += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(broken(error)),
            }
        }
        loop {
            match below.read(desk.buffer) {
                Ok(0) => return Err((Trouble::Reset, "closed without an answer".to_owned())),
                Ok(len) => self.inbox.extend_from_slice(&desk.buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(error)),
            }
            match HeadScan::new().response(&self.inbox, &HEAD_LIMITS) {
                Err(fault) => return Err((Trouble::Malformed, fault.to_string())),
                Ok(Parsed::Partial) => {}
                Ok(Parsed::Complete { head, len }) => return is_tunnel(&head, len == self.inbox.len()).map(|()| true),
            }
        }
    }

    fn shaking(&mut self, begun: Duration, job: Box<Job>, desk: &mut Desk<'_>) -> Option<Outcome> {
        match self.channel.shake() {
            Ok(None) => {
                self.state = State::Shaking(begun, job);
                Some(Outcome::Poll)
            }
            Ok(Some(shaken)) => {
                let across = self.delay(shaken.rounds, desk);
                self.shaken = Some((shaken, desk.now.saturating_sub(begun) + across));
                (self.readable, self.writable) = (true, true);
                self.send(job, desk);
                None
            }
            Err(error) => Some(Outcome::Failed(job, Trouble::Tls, format!("the handshake failed: {error}"))),
        }
    }

    /// So many round trips cross the link before the robot may send; says how long they take.
    fn delay(&mut self, rounds: u32, desk: &Desk<'_>) -> Duration {
        let Some(lanes) = &mut self.lanes else { return Duration::ZERO };
        let across = desk.settings.link.delay * 2 * rounds;
        lanes.2 = lanes.2.max(desk.now) + across;
        across
    }

    /// A reply is here; the connection goes on with the next request.
    fn arrived(&mut self, report: Box<Report>, after: After) -> Outcome {
        if after == After::Busy
            && let Some(next) = self.behind.pop_front()
        {
            self.asked_head = next.wish.kind == Kindred::Head;
            self.state = State::Receiving(next);
        }
        Outcome::Done(report, after)
    }

    /// Writes the request and lets it leave.
    fn send(&mut self, mut job: Box<Job>, desk: &mut Desk<'_>) {
        self.write(&mut job, desk);
        self.asked_head = job.wish.kind == Kindred::Head;
        self.state = match &mut self.lanes {
            None => State::Sending(job),
            Some(lanes) => {
                let leaves = desk.now.max(lanes.2);
                let last = lanes.0.send(leaves, job.out.len() as u64).last().map_or(leaves, |last| last.at);
                (job.sent, job.link.0) = (last, last.saturating_sub(desk.now));
                State::Leaving(last, job)
            }
        };
    }

    /// Writes the request down.
    fn write(&mut self, job: &mut Job, desk: &mut Desk<'_>) {
        // The first byte of the first request over TLS left with the handshake.
        if self.used > 0 || !self.channel.is_secured() {
            job.started = desk.now;
        }
        (self.used, self.uses_left, self.active) = (self.used + 1, self.uses_left.saturating_sub(1), desk.now);
        job.asked = desk.clock.unix;
        let (version, sender) = (desk.settings.version, (desk.route, &desk.journal.seal));
        write_request(desk.law, sender, version, &job.wish, job.xact, desk.clock.unix, &mut job.out);
        let body = job.wish.kind.upload_bytes().filter(|_| job.wish.expects);
        job.held = body.map(|bytes| (job.out.len() - bytes as usize, desk.now + CONTINUE_MAX));
        job.sent = desk.now;
        let depth = desk.settings.pipeline as usize;
        if depth > 1 {
            let body = desk.law.body(&job.wish.facts, 0, job.wish.user(desk.law));
            self.turns.drain(..self.turns.len().saturating_sub(2 * depth));
            self.turns.push(Turn { number: job.xact.number, seed: body.seed });
        }
    }

    fn sending(&mut self, mut job: Box<Job>) -> Option<Outcome> {
        let end = job.held.map_or(job.out.len(), |(body, _)| body);
        while job.out_at < end {
            if !self.writable {
                self.state = State::Sending(job);
                return Some(Outcome::Poll);
            }
            match self.channel.write(&job.out[job.out_at..end]) {
                Ok(len) => job.out_at += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Some(failed(job, &error)),
            }
        }
        match self.channel.flush_some() {
            Ok(true) => {}
            Ok(false) => {
                self.state = State::Sending(job);
                return Some(Outcome::Poll);
            }
            Err(error) => return Some(failed(job, &error)),
        }
        self.state = State::Receiving(job);
        None
    }

    fn idle(&mut self, desk: &mut Desk<'_>) -> Outcome {
        if !self.readable {
            return Outcome::Poll;
        }
        match self.channel.read(desk.buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Outcome::Poll
            }
            // No further request goes here.
            Ok(len) if len > 0 => Outcome::Ended(Some(surplus(&desk.buffer[..len], self.asked_head))),
            _ => Outcome::Ended(None),
        }
    }

    /// Sends what is behind the request whose reply is awaited.
    fn send_behind(&mut self) -> io::Result<()> {
        for job in &mut self.behind {
            while job.out_at < job.out.len() {
                if !self.writable {
                    return Ok(());
                }
                match self.channel.write(&job.out[job.out_at..]) {
                    Ok(len) => job.out_at += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.channel.flush_some().map(|_| ())
    }

    fn receiving(&mut self, mut job: Box<Job>, desk: &mut Desk<'_>) -> Option<Outcome> {
        // Requests that cannot be sent any more are sent again on another connection; replies may have come all the same.
        if !self.behind.is_empty() && self.send_behind().is_err() {
            self.uses_left = 0;
        }
        // The reply before this one came with the beginning of it.
        let mut len = (!self.inbox.is_empty() && job.first_byte.is_none()).then_some(0);
        let mut came = 0;
        loop {
            if let Some(len) = len.take() {
                let at = self.crossed(len, desk.now);
                job.link.1 = at.saturating_sub(desk.now);
                job.first_byte.get_or_insert(at);
                match self.take(&mut job, len, desk) {
                    // The rest is left to the one who sends it.
                    Ok(whole) if whole || job.aborted => return self.finish(job, at, true),
                    Ok(_) if job.may_go_on() => {
                        self.state = State::Sending(job);
                        return None;
                    }
                    Ok(_) => {}
                    Err(detail) => return Some(Outcome::Failed(job, Trouble::Malformed, detail)),
                }
            }
            if !self.readable {
                return self.await_reply(job, desk.now);
            }
            // All that is read in a turn counts as read at one time.
            if came >= desk.buffer.len() {
                self.state = State::Receiving(job);
                return Some(Outcome::Read);
            }
            let Some(room) = self.room(&job, desk) else {
                self.state = State::Receiving(job);
                return Some(Outcome::Wake(desk.now + TRICKLE));
            };
            match self.channel.read(&mut desk.buffer[..room]) {
                Ok(0) => return self.closed(job, desk),
                Ok(read) => {
                    self.readable = self.ended || self.channel.may_have_more(read, room);
                    self.active = desk.now;
                    len = Some(read);
                    came += read;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => return Some(failed(job, &error)),
                Err(_) if job.reply.is_some() => return self.closed(job, desk),
                Err(error) => return Some(failed(job, &error)),
            }
        }
    }

    /// Nothing can be read now. A body that is held back is sent after a while in any case (RFC 9110 section 10.1.1).
    fn await_reply(&mut self, mut job: Box<Job>, now: Duration) -> Option<Outcome> {
        let Some((_, until)) = job.held else {
            self.state = State::Receiving(job);
            return Some(Outcome::Poll);
        };
        if until > now {
            self.state = State::Receiving(job);
            return Some(Outcome::Wake(until));
        }
        job.held = None;
        self.state = State::Sending(job);
        None
    }

    /// How much may be read now, if the robot reads slowly.
    fn room(&self, job: &Job, desk: &Desk<'_>) -> Option<usize> {
        let rate = desk.settings.read_bytes_per_s;
        if rate == 0 {
            return Some(desk.buffer.len());
        }
        if job.reply.is_none() {
            return Some(HEAD_PIECE_BYTES);
        }
        let since = desk.now.saturating_sub(job.started).as_secs_f64();
        let left = (since * rate as f64) as u64;
        let left = left.saturating_sub(job.body_bytes).min(desk.buffer.len() as u64);
        (left > 0).then_some(left as usize)
    }

    /// When bytes that came out of the socket now have crossed the link.
    fn crossed(&mut self, len: usize, now: Duration) -> Duration {
        let lanes = self.lanes.as_deref_mut();
        lanes.and_then(|lanes| lanes.1.send(now, len as u64).last().map(|last| last.at)).unwrap_or(now)
    }

    /// Takes bytes in; says whether the reply is whole. Bytes behind the last reply that is awaited are nobody's.
    fn take(&mut self, job: &mut Job, len: usize, desk: &mut Desk<'_>) -> Result<bool, String> {
        let is_last = self.behind.is_empty();
        if self.inbox.is_empty() {
            let (taken, whole) = take(&mut self.scan, job, &desk.buffer[..len], (desk, &self.turns))?;
            match whole && is_last {
                true => job.end_at(&desk.buffer[taken..len]),
                false => self.inbox.extend_from_slice(&desk.buffer[taken..len]),
            }
            return Ok(whole);
        }
        self.inbox.extend_from_slice(&desk.buffer[..len]);
        let inbox = std::mem::take(&mut self.inbox);
        let (taken, whole) = take(&mut self.scan, job, &inbox, (desk, &self.turns))?;
        if whole && is_last {
            job.end_at(&inbox[taken..]);
        }
        self.inbox = inbox;
        self.inbox.drain(..if whole && is_last { self.inbox.len() } else { taken });
        Ok(whole)
    }

    /// The peer closed: the end of a reply without a length, a truncated one, or none.
    fn closed(&mut self, mut job: Box<Job>, desk: &mut Desk<'_>) -> Option<Outcome> {
        let Some(decoder) = &mut job.decoder else {
            let begun = job.head_bytes + self.inbox.len() as u64 > 0;
            let detail = if begun { "closed within a head" } else { "closed without an answer" };
            return Some(Outcome::Failed(job, Trouble::Reset, detail.into()));
        };
        let complete = decoder.finish().is_ok();
        job.keeps_alive = false;
        self.finish(job, desk.now, complete)
    }

    fn finish(&mut self, job: Box<Job>, at: Duration, complete: bool) -> Option<Outcome> {
        // A connection whose request was not sent to its end carries no other.
        let whole = job.out_at == job.out.len();
        let after = match job.keeps_alive && complete && whole {
            true if !self.behind.is_empty() => After::Busy,
            true if self.uses_left > 0 && !self.ended => After::Idle,
            _ => After::Ends,
        };
        self.state = State::Arriving(at, job.finish(at, complete)?, after);
        None
    }
}

/// Reads what can be read of a reply. Says how many bytes are dealt with, and whether it is whole.
fn take(
    scan: &mut HeadScan,
    job: &mut Job,
    bytes: &[u8],
    (desk, turns): (&Desk<'_>, &[Turn]),
) -> Result<(usize, bool), String> {
    let mut at = 0;
    while job.reply.is_none() {
        match scan.response(&bytes[at..], &HEAD_LIMITS).map_err(|fault| fault.to_string())? {
            Parsed::Partial => return Ok((at, false)),
            Parsed::Complete { head, len } => {
                (at, job.head_bytes) = (at + len, job.head_bytes + len as u64);
                if head.status == 100 {
                    job.held = None;
                }
                if !head.is_interim() {
                    job.begin_framed(&head, desk, turns)?;
                }
            }
        }
    }
    loop {
        let Some(decoder) = &mut job.decoder else { return Ok((at, false)) };
        let step = decoder.decode(&bytes[at..]).map_err(|fault| fault.to_string())?;
        match step.event {
            Event::Data(range) => {
                if job.take_body(&bytes[at + range.start..at + range.end]) {
                    return Ok((bytes.len(), false));
                }
            }
            Event::End(_) => return Ok((at + step.consumed, true)),
            Event::NeedMore => return Ok((at + step.consumed, false)),
        }
        at += step.consumed;
    }
}

impl Job {
    /// Whether a body that was held back may be sent now.
    fn may_go_on(&self) -> bool {
        self.reply.is_none() && self.held.is_none() && self.out_at < self.out.len()
    }

    /// The reply is whole, and this came behind it.
    fn end_at(&mut self, rest: &[u8]) {
        let after_head = self.wish.kind == Kindred::Head;
        if let (Some((judge, _)), false) = (&mut self.reply, rest.is_empty()) {
            judge.accuse(surplus(rest, after_head));
            self.keeps_alive = false;
        }
    }

    /// The head of the reply is here, over HTTP/1.1.
    fn begin_framed(&mut self, head: &ResponseHead, desk: &Desk<'_>, turns: &[Turn]) -> Result<(), String> {
        let framing = self.begin_reply(head, desk, turns)?;
        self.keeps_alive = head.keeps_alive() && framing != Framing::UntilClose;
        self.decoder = Some(Decoder::new(framing, larder_wire::Side::Origin));
        Ok(())
    }
}

/// Bytes after the end of a reply.
fn surplus(rest: &[u8], after_head: bool) -> Wrong {
    let trouble = match rest.starts_with(b"HTTP/") {
        true => Trouble::UnaskedReply,
        false if after_head => Trouble::HeadBody,
        false => Trouble::SurplusBytes,
    };
    let shown = String::from_utf8_lossy(&rest[..rest.len().min(SHOWN_BYTES)]);
    (trouble, format!("{} bytes came after the end of the reply: {shown:?}", rest.len()))
}

/// An answer to CONNECT opens a tunnel if it is a 2xx with nothing behind it.
fn is_tunnel(head: &ResponseHead, is_all: bool) -> Result<(), (Trouble, String)> {
    match head.status {
        200..300 if is_all => Ok(()),
        200..300 => Err((Trouble::Malformed, "bytes that nobody asked for follow the answer".to_owned())),
        status => Err((Trouble::Refused, format!("answered by {status}"))),
    }
}

fn failed(job: Box<Job>, error: &io::Error) -> Outcome {
    Outcome::Failed(job, trouble_of(error), error.to_string())
}
