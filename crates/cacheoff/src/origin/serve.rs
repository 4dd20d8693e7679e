//! One connection of an origin: a request at a time, thought about, answered through the link.

use super::{Answer, Departure, Fault, Manner, OriginSettings, Payload, answer, chunks};
use crate::distribution::Distribution;
use crate::journal::{Answered, Journal};
use crate::ledger::{Exhibit, Recorder, Side, Trouble};
use crate::link::{Arrival, Lane};
use crate::object::{Body, Law, Name};
use crate::random::Stream;
use crate::tls::Channel;
use crate::wire::{CALIBRATE, Clock, ECHO, HEAD_LIMITS, Xact};
use larder_wire::body::{Decoder, Event};
use larder_wire::framing;
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{Method, RequestHead, Target, Version};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

/// The surroundings of a connection: everything that belongs to its worker.
pub struct Site<'a> {
    /// The object law.
    pub law: &'a Law,
    /// The origins.
    pub settings: &'a OriginSettings,
    /// The journal in which the robots read what origins answered.
    pub journal: &'a Journal,
    /// Counts.
    pub recorder: &'a mut Recorder,
    /// Think times, faults, losses.
    pub stream: &'a mut Stream,
    /// The wall clock.
    pub clock: &'a Clock,
    /// Time since the run began.
    pub now: Duration,
    /// Room to read and write.
    pub buffer: &'a mut [u8],
}

/// The event that a connection waits for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The kernel's word.
    Poll,
    /// To be called at a time.
    Wake(Duration),
    /// To be dropped.
    Close,
}

/// One connection of an origin.
#[derive(Debug)]
pub struct Serve {
    channel: Channel,
    inbox: Vec<u8>,
    scan: HeadScan,
    /// The request whose body is being read.
    upload: Option<Box<Upload>>,
    state: State,
    readable: bool,
    writable: bool,
    /// The cache sends no more than what can be read now.
    ended: bool,
    uses_left: u32,
    lanes: Option<Box<Lanes>>,
    /// When it last did something.
    pub active: Duration,
}

/// A request with a body.
#[derive(Debug)]
struct Upload {
    head: RequestHead,
    decoder: Decoder,
    /// The body that the robot said it sends.
    expected: Option<Body>,
    /// How much of it came, and whether it was right.
    bytes: u64,
    right: bool,
}

/// The link of this connection.
#[derive(Debug)]
struct Lanes {
    inward: Lane,
    outward: Lane,
    /// When the other end knows that it is connected.
    open_at: Duration,
}

#[derive(Debug)]
enum State {
    Reading,
    /// A request is on its way or thought about until the time.
    Waiting(Duration, Box<Reply>),
    Sending(Box<Reply>),
    Stalled,
    Shaking,
}

/// A reply as the journal is told of it.
#[derive(Clone, Copy, Debug)]
struct Deed {
    /// The number of the transaction that it answers.
    number: u64,
    answer: Answered,
    posts: bool,
    object: Option<Name>,
}

#[derive(Debug)]
struct Reply {
    head: Vec<u8>,
    body: Option<(Payload, Range<u64>)>,
    /// Whether the body goes in chunks, and whether it has its last one.
    chunks: Option<bool>,
    fault: Option<Fault>,
    keeps_alive: bool,
    deed: Option<Deed>,
    /// When its request was whole.
    asked: Duration,
    /// Bytes of head and body that the socket took.
    sent: u64,
    /// Bytes that have crossed the link, so that they may be sent.
    crossed: u64,
    /// Bytes that were given to the link.
    entered: u64,
    arrivals: VecDeque<Arrival>,
}

/// The answer before the answer.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bytes that are given to the link at once.
const LANE_BYTES: u64 = 1 << 20;

impl Serve {
    /// A connection that was accepted.
    pub fn new(channel: Channel, site: &mut Site<'_>) -> Self {
        let uses_left = Distribution::draw_uses(site.settings.uses.as_ref(), site.stream);
        let link = site.settings.link;
        let lanes = (!link.is_plain()).then(|| {
            let [inward, outward] = [0, 1].map(|_| Lane::new(link, Stream::new(site.stream.next_u64(), 0)));
            Box::new(Lanes { inward, outward, open_at: site.now + link.handshake(site.stream) })
        });
        site.recorder.connected(Side::Server, None);
        Self {
            state: if channel.is_secured() { State::Shaking } else { State::Reading },
            channel,
            inbox: Vec::new(),
            scan: HeadScan::new(),
            upload: None,
            readable: true,
            writable: true,
            ended: false,
            uses_left,
            lanes,
            active: site.now,
        }
    }

    /// The kernel says that something is ready.
    pub fn ready(&mut self, read: bool, write: bool, ended: bool, site: &mut Site<'_>) -> Next {
        self.ended |= ended;
        self.readable |= read;
        self.writable |= write;
        self.step(site)
    }

    /// Whether it waits for a request.
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Reading) && self.inbox.is_empty()
    }

    /// Goes on as far as it can.
    pub fn step(&mut self, site: &mut Site<'_>) -> Next {
        self.active = site.now;
        loop {
            let next = match std::mem::replace(&mut self.state, State::Reading) {
                State::Reading => self.read(site),
                State::Waiting(until, reply) if until > site.now => {
                    self.state = State::Waiting(until, reply);
                    return Next::Wake(until);
                }
                State::Waiting(_, reply) => {
                    note(&reply, site);
                    self.state = State::Sending(reply);
                    continue;
                }
                State::Sending(reply) => self.send(reply, site),
                State::Shaking => self.shake(site),
                State::Stalled => {
                    self.state = State::Stalled;
                    return Next::Poll;
                }
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// Goes on with the handshake. A client that speaks clear text, or does not believe the certificate, gets no
    /// answer.
    fn shake(&mut self, site: &mut Site<'_>) -> Option<Next> {
        match self.channel.shake() {
            Ok(None) => {
                self.state = State::Shaking;
                Some(Next::Poll)
            }
            Ok(Some(shaken)) => {
                site.recorder.shaken(Side::Server, shaken.resumed, None);
                if let Some(lanes) = &mut self.lanes {
                    lanes.open_at = lanes.open_at.max(site.now) + site.settings.link.delay * 2 * shaken.rounds;
                }
                (self.readable, self.writable) = (true, true);
                None
            }
            // A probe of the port connects and closes without a handshake.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Some(Next::Close),
            Err(error) => {
                let at_us = site.now.as_micros() as u64;
                let detail = format!("the handshake with an origin failed: {error}");
                let trouble = Trouble::Tls;
                site.recorder.error(trouble, || Exhibit { trouble, at_us, url: String::new(), detail });
                Some(Next::Close)
            }
        }
    }

    fn read(&mut self, site: &mut Site<'_>) -> Option<Next> {
        loop {
            match self.take_request(site) {
                Ok(true) => return None,
                Ok(false) => {}
                Err(()) => return Some(Next::Close),
            }
            if !self.readable {
                return Some(Next::Poll);
            }
            match self.channel.read(site.buffer) {
                Ok(0) => return Some(Next::Close),
                Ok(len) => {
                    self.readable = self.ended || self.channel.may_have_more(len, site.buffer.len());
                    self.inbox.extend_from_slice(&site.buffer[..len]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(Next::Close),
            }
        }
    }

    /// Takes a whole request out of what was read, if there is one.
    fn take_request(&mut self, site: &mut Site<'_>) -> Result<bool, ()> {
        if self.upload.is_none() {
            if self.inbox.is_empty() {
                return Ok(false);
            }
            let Parsed::Complete { head, len } = self.scan.request(&self.inbox, &HEAD_LIMITS).map_err(|_| ())? else {
                return Ok(false);
            };
            self.inbox.drain(..len);
            let framing = framing::of_request(&head).map_err(|_| ())?;
            let upload = Upload::new(head, framing, site);
            if framing == framing::Framing::None {
                self.begin_whole(&upload, site);
                return Ok(true);
            }
            self.go_on(&upload.head)?;
            self.upload = Some(Box::new(upload));
        }
        let Some(mut upload) = self.upload.take() else { return Ok(false) };
        loop {
            let step = upload.decoder.decode(&self.inbox).map_err(|_| ())?;
            if let Event::Data(range) = &step.event {
                upload.take(&self.inbox[range.clone()]);
            }
            self.inbox.drain(..step.consumed);
            match step.event {
                Event::End(_) => break,
                Event::Data(_) => {}
                Event::NeedMore => {
                    self.upload = Some(upload);
                    return Ok(false);
                }
            }
        }
        self.begin_whole(&upload, site);
        Ok(true)
    }

    /// Tells a client that holds its body back to send it (RFC 9110 section 10.1.1). It waits for no link: few bytes, that
    /// nothing is ahead of.
    fn go_on(&mut self, head: &RequestHead) -> Result<(), ()> {
        let holds = head.version == Version::Http11 && head.fields.has_member("Expect", "100-continue");
        if !holds || !self.inbox.is_empty() {
            return Ok(());
        }
        let sent = self.channel.write(CONTINUE).map_err(|_| ())?;
        let flushed = self.channel.flush_some().map_err(|_| ())?;
        if sent == CONTINUE.len() && flushed { Ok(()) } else { Err(()) }
    }

    /// A request is whole, its body too.
    fn begin_whole(&mut self, upload: &Upload, site: &mut Site<'_>) {
        if let Some(detail) = upload.wrong() {
            accuse(Trouble::AlteredBody, &upload.head, detail, site);
        }
        self.begin(&upload.head, site);
    }

    /// A request is whole: decides the answer and when it leaves.
    fn begin(&mut self, request: &RequestHead, site: &mut Site<'_>) {
        self.uses_left = self.uses_left.saturating_sub(1);
        credentials(request, site);
        // An injected fault is named in the head, and only answers to GET have one; the others come whole.
        let spoils = |fault: &Fault| *fault == Fault::Unavailable || request.method == Method::Get;
        let fault = fault_of_now(site).filter(spoils);
        let cut = if fault == Some(Fault::Abort) { site.stream.unit() } else { 0.5 };
        let heard = match &mut self.lanes {
            Some(lanes) => lanes.inward.send(site.now.max(lanes.open_at), 1).last().map_or(site.now, |last| last.at),
            None => site.now,
        };
        let thinks = !is_calibration(request);
        let think = site.settings.think.as_ref().filter(|_| thinks).map_or(Duration::ZERO, |think| {
            let think = Duration::from_secs_f64(think.draw(site.stream).clamp(0.0, 3600.0));
            site.recorder.thought(think);
            think
        });
        // The answer is of the time at which it leaves, not of the time at which it was asked for.
        let unix = site.clock.unix + ((heard + think).as_secs() - site.now.as_secs());
        let later = (unix != site.clock.unix).then(|| Clock::at(unix));
        let mut head = Vec::with_capacity(512);
        let breaks = matches!(fault, Some(Fault::Truncate | Fault::Reset | Fault::LongLength | Fault::Abort));
        let manner = Manner {
            fault,
            close: self.uses_left == 0 || breaks,
            chunked: site.settings.chunked,
            ranges: site.settings.ranges,
        };
        let clock = later.as_ref().unwrap_or(site.clock);
        let departure = Departure { clock, at: heard + think, seal: &site.journal.seal };
        let answer = answer(request, site.law, departure, manner, &mut head);
        let deed = deed(request, &answer, site.law);
        let reply = Reply { deed, ..Reply::new(head, answer, cut, site.now, site.recorder) };
        self.state = State::Waiting(heard + think, Box::new(reply));
    }

    fn send(&mut self, mut reply: Box<Reply>, site: &mut Site<'_>) -> Option<Next> {
        loop {
            if reply.sent == reply.len() {
                match self.channel.flush_some() {
                    Ok(true) => {}
                    Ok(false) => {
                        self.state = State::Sending(reply);
                        return Some(Next::Poll);
                    }
                    Err(_) => return Some(Next::Close),
                }
                site.recorder.answered(site.now.saturating_sub(reply.asked));
                close(&reply, site);
                return self.sent(&reply);
            }
            if let Err(wake) = reply.cross(self.lanes.as_deref_mut(), site.now) {
                self.state = State::Sending(reply);
                return Some(Next::Wake(wake));
            }
            if !self.writable {
                self.state = State::Sending(reply);
                return Some(Next::Poll);
            }
            let piece = reply.piece(site.buffer);
            match self.channel.write(&site.buffer[..piece]) {
                Ok(len) => {
                    reply.sent += len as u64;
                    self.writable = !self.channel.is_full(len, piece);
                    site.recorder.origin().bytes += len as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(Next::Close),
            }
        }
    }

    /// An answer has left.
    fn sent(&mut self, reply: &Reply) -> Option<Next> {
        match reply.fault {
            Some(Fault::Stall) => {
                self.state = State::Stalled;
                Some(Next::Poll)
            }
            Some(Fault::Reset) => {
                let _ = socket2::SockRef::from(self.channel.socket()).set_linger(Some(Duration::ZERO));
                Some(Next::Close)
            }
            _ if !reply.keeps_alive => Some(Next::Close),
            _ => None,
        }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.channel.socket()
    }
}

/// An answer as the journal will be told of it, if it answers a robot's transaction.
fn deed(request: &RequestHead, answer: &Answer, law: &Law) -> Option<Deed> {
    let (xact, _) = request.fields.get(ECHO).and_then(Xact::parse).filter(|(xact, _)| xact.tag == law.tag)?;
    let kind = match answer.status {
        200 if answer.fault.is_none() && answer.body.is_some() => Answered::Whole,
        206 => Answered::Part,
        304 => Answered::NotModified,
        _ => Answered::Otherwise,
    };
    let posts = request.method == Method::Post;
    Some(Deed { number: xact.number, answer: kind, posts, object: answer.object })
}

/// A reply is about to leave.
fn note(reply: &Reply, site: &mut Site<'_>) {
    let Some(deed) = reply.deed else { return };
    if site.journal.is_linked() && tell(&deed, site) {
        return;
    }
    let before = site.journal.answers(deed.number, deed.posts, deed.answer);
    let Some(object) = deed.object else { return };
    if deed.posts && before.is_posted() {
        remember(Trouble::RepeatedPost, &object, "the POST of one request came twice", site);
    }
    if deed.answer != Answered::NotModified {
        return;
    }
    site.journal.validates(object.fingerprint(), site.clock.unix);
    if is_fresh(&object, site) && before.is_plain() && !site.journal.lets_invalidate {
        remember(
            Trouble::NeedlessValidation,
            &object,
            "the answer is fresh, and the client did not ask for this",
            site,
        );
    }
}

/// Notes for another machine what an origin answers; says whether the robot is there.
fn tell(deed: &Deed, site: &Site<'_>) -> bool {
    let fresh = deed.answer == Answered::NotModified && deed.object.is_some_and(|object| is_fresh(&object, site));
    let object = deed.object.map_or(0, |object| object.fingerprint());
    site.journal.tells(deed.number, (deed.posts, deed.answer, fresh), object, site.clock.unix)
}

/// Whether nobody needs to ask about an answer.
fn is_fresh(object: &Name, site: &Site<'_>) -> bool {
    let content = site.law.content(object);
    let version = site.law.version(object, &site.law.facts(object), site.clock.unix);
    content.variants == 1 && content.is_surely_fresh(site.now.as_secs() + 1, &version, site.clock.unix)
}

/// A reply has left.
fn close(reply: &Reply, site: &mut Site<'_>) {
    let Some(deed) = reply.deed else { return };
    let whole = deed.answer == Answered::Whole;
    if site.journal.is_linked() && site.journal.tells_end(deed.number, site.now, whole, deed.posts) {
        return;
    }
    let again = site.journal.ended(deed.number, site.now, whole);
    if let (true, Some(object)) = (again && !deed.posts, deed.object) {
        remember(Trouble::DoubledFetch, &object, "one request made the origin send all of it twice", site);
    }
}

/// Whether the request has the credentials of its robot, and no others.
fn credentials(request: &RequestHead, site: &mut Site<'_>) {
    let named = request.fields.get(ECHO).and_then(Xact::parse).filter(|(xact, _)| xact.tag == site.law.tag);
    let Some((_, burden)) = named else { return };
    for (name, sent) in [("Cookie", burden.cookie), ("Authorization", burden.authorization)] {
        let found = request.fields.get(name).map_or(0, |value| site.journal.seal.digest(value));
        let trouble = match (sent, found) {
            _ if sent == found => continue,
            (_, 0) => Trouble::LostCredentials,
            _ => Trouble::MixedCredentials,
        };
        let detail =
            if found == 0 { format!("{name} did not come") } else { format!("{name} is not what the client sent") };
        accuse(trouble, request, detail, site);
    }
}

/// Something about a request is wrong.
fn accuse(trouble: Trouble, request: &RequestHead, detail: String, site: &mut Site<'_>) {
    let at_us = site.now.as_micros() as u64;
    site.recorder.error(trouble, || Exhibit { trouble, at_us, url: request.target.to_string(), detail });
}

/// Something about the way to an object is wrong.
fn remember(trouble: Trouble, object: &Name, detail: &str, site: &mut Site<'_>) {
    let (law, at_us) = (site.law, site.now.as_micros() as u64);
    site.recorder.error(trouble, || {
        let mut path = Vec::new();
        law.path(object, &law.facts(object), &mut path);
        Exhibit { trouble, at_us, url: String::from_utf8_lossy(&path).into_owned(), detail: detail.to_owned() }
    });
}

impl Upload {
    fn new(head: RequestHead, framing: framing::Framing, site: &Site<'_>) -> Self {
        let named = head.fields.get(ECHO).and_then(Xact::parse).filter(|(xact, _)| xact.tag == site.law.tag);
        let expected =
            named.and_then(|(xact, burden)| Some(Body::of_upload(xact.number, u64::from(burden.body_bytes?))));
        let decoder = Decoder::new(framing, larder_wire::Side::Client);
        Self { head, decoder, expected, bytes: 0, right: true }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.right &= self.expected.is_none_or(|body| body.check(self.bytes, bytes));
        self.bytes += bytes.len() as u64;
    }

    /// Says how the body differs from the one that was sent, now that it is over.
    fn wrong(&self) -> Option<String> {
        let expected = self.expected?;
        let same = self.right && self.bytes == expected.size;
        (!same).then(|| format!("{} bytes came of {}, or other ones", self.bytes, expected.size))
    }
}

/// The fault to inject into the answer to a request that comes now.
fn fault_of_now(site: &mut Site<'_>) -> Option<Fault> {
    let (settings, now) = (site.settings, site.now.as_secs_f64());
    let burst = settings.burst.as_secs_f64();
    for (fault, share) in &settings.faults {
        let strikes = match fault {
            // As long as they last, bursts refuse everything; they come as often as makes the share, first when half
            // such a time has passed.
            Fault::Unavailable if burst > 0.0 => (now + burst / share / 2.0) % (burst / share) < burst,
            _ => site.stream.chance(*share),
        };
        if strikes {
            return Some(*fault);
        }
    }
    None
}

fn is_calibration(request: &RequestHead) -> bool {
    matches!(&request.target, Target::Origin(path) if **path == *CALIBRATE)
}

impl Reply {
    /// `cut`: where a body is broken off that is.
    fn new(head: Vec<u8>, answer: Answer, cut: f64, asked: Duration, recorder: &mut Recorder) -> Self {
        let fault = answer.fault;
        let figures = recorder.origin();
        figures.requests += 1;
        figures.not_modified += u64::from(answer.status == 304);
        figures.partial += u64::from(answer.status == 206);
        figures.faults += u64::from(fault.is_some());
        let halved = matches!(fault, Some(Fault::Truncate | Fault::Reset | Fault::Stall | Fault::Abort));
        let body = answer.body.map(|(body, range)| {
            let len = range.end - range.start;
            (body, range.start..range.start + if halved { (len as f64 * cut) as u64 } else { len })
        });
        Self {
            head,
            body,
            chunks: answer.chunked.then_some(!halved),
            fault,
            keeps_alive: answer.keeps_alive,
            deed: None,
            asked,
            sent: 0,
            crossed: 0,
            entered: 0,
            arrivals: VecDeque::new(),
        }
    }

    fn len(&self) -> u64 {
        let body = self.body.as_ref().map_or(0, |(_, range)| range.end - range.start);
        self.head.len() as u64 + self.chunks.map_or(body, |whole| chunks::framed_len(body, whole))
    }

    /// Lets bytes cross the link; `Err` says when the next ones arrive.
    fn cross(&mut self, lanes: Option<&mut Lanes>, now: Duration) -> Result<(), Duration> {
        let Some(lanes) = lanes else {
            self.crossed = self.len();
            return Ok(());
        };
        if self.arrivals.is_empty() && self.crossed == self.entered {
            let bytes = (self.len() - self.entered).min(LANE_BYTES);
            self.arrivals.extend(lanes.outward.send(now, bytes));
            self.entered += bytes;
        }
        while let Some(arrival) = self.arrivals.pop_front_if(|arrival| arrival.at <= now) {
            self.crossed += arrival.bytes;
        }
        match self.arrivals.front() {
            Some(arrival) if self.crossed == self.sent => Err(arrival.at),
            _ => Ok(()),
        }
    }

    /// Writes what may be sent next into the buffer.
    fn piece(&self, buffer: &mut [u8]) -> usize {
        let len = ((self.crossed - self.sent) as usize).min(buffer.len());
        let head_len = self.head.len() as u64;
        let from_head = (head_len.saturating_sub(self.sent) as usize).min(len);
        let head_at = self.sent.min(head_len) as usize;
        buffer[..from_head].copy_from_slice(&self.head[head_at..head_at + from_head]);
        if let Some((body, range)) = &self.body {
            let (at, room) = (self.sent.saturating_sub(head_len), &mut buffer[from_head..len]);
            match self.chunks {
                None => body.fill(range.start + at, room),
                Some(_) => {
                    chunks::write(range.end - range.start, at, room, |at, out| body.fill(range.start + at, out));
                }
            }
        }
        len
    }
}
