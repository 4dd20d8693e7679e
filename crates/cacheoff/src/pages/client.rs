//! One client: its connection, and the request that is under way on it. It does not wait: the poll says when to go on.

use super::ask::Ask;
use crate::ledger::Trouble;
use crate::robot::trouble_of;
use crate::wire::HEAD_LIMITS;
use larder_wire::body::{Decoder, Event};
use larder_wire::framing::{self, Framing};
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{ResponseHead, Side};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No page is longer.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Connections come from so many addresses in turn, so that closed ones do not use up the ports of one.
const ADDRESSES: u32 = 16;

/// A client.
#[derive(Debug, Default)]
pub struct Client {
    stream: Option<TcpStream>,
    /// Requests that the connection has carried.
    served: u64,
    /// Number of the connection, by which events of an earlier one are told from its own.
    pub generation: u32,
    job: Option<Box<Job>>,
}

/// A request under way.
#[derive(Debug)]
pub struct Job {
    /// The request.
    pub ask: Ask,
    /// When it was due.
    pub due: Instant,
    /// When it was sent: the beginning of the connection, if it has one of its own.
    pub sent: Instant,
    /// When its first byte came.
    pub first_byte: Option<Instant>,
    /// Whether it was sent on a connection that had carried another one.
    pub reused: bool,
    /// Whether it was sent again because such a connection had ended.
    pub retried: bool,
    request: Vec<u8>,
    written: usize,
    closes: bool,
    inbox: Vec<u8>,
    scan: HeadScan,
    decoder: Option<Decoder>,
    /// The head of the reply and its length in bytes, once it is whole.
    pub head: Option<(ResponseHead, usize)>,
    /// The body.
    pub body: Vec<u8>,
}

/// How a client goes on.
#[derive(Debug)]
pub enum Step {
    /// With the next event.
    Wait,
    /// The reply is whole.
    Whole(Box<Job>),
    /// There will be none.
    Failed(Box<Job>, Trouble, String),
    /// The kept connection had ended before the request came: it is to be sent again on a new one.
    Again(Box<Job>),
}

impl Job {
    /// A request that is due, or was; `closes` says that it is the last one of its connection.
    pub fn new(ask: Ask, due: Instant, request: Vec<u8>, closes: bool) -> Box<Self> {
        Box::new(Self {
            ask,
            due,
            sent: due,
            first_byte: None,
            reused: false,
            retried: false,
            request,
            written: 0,
            closes,
            inbox: Vec::new(),
            scan: HeadScan::new(),
            decoder: None,
            head: None,
            body: Vec::new(),
        })
    }

    /// As it was before it was sent.
    fn begin_again(mut self: Box<Self>) -> Box<Self> {
        (self.written, self.retried) = (0, true);
        self
    }

    /// Takes in what has come. Says whether the reply is whole.
    fn take(&mut self) -> Result<bool, String> {
        while self.head.is_none() {
            match self.scan.response(&self.inbox, &HEAD_LIMITS).map_err(|fault| fault.to_string())? {
                Parsed::Partial => return Ok(false),
                Parsed::Complete { head, len } => {
                    self.inbox.drain(..len);
                    if head.is_interim() {
                        continue;
                    }
                    let framing = framing::of_response(&head, &self.ask.method()).map_err(|fault| fault.to_string())?;
                    self.closes |= !head.keeps_alive() || framing == Framing::UntilClose;
                    self.decoder = Some(Decoder::new(framing, Side::Origin));
                    self.head = Some((head, len));
                }
            }
        }
        let Some(decoder) = &mut self.decoder else { return Ok(false) };
        let mut at = 0;
        let is_whole = loop {
            let decoded = decoder.decode(&self.inbox[at..]).map_err(|fault| fault.to_string())?;
            match decoded.event {
                Event::Data(range) => self.body.extend_from_slice(&self.inbox[at..][range]),
                Event::End(_) => {
                    at += decoded.consumed;
                    break true;
                }
                Event::NeedMore => {
                    at += decoded.consumed;
                    break false;
                }
            }
            at += decoded.consumed;
        };
        self.inbox.drain(..at);
        match self.body.len() > BODY_BYTES_MAX {
            true => Err(format!("a page of more than {BODY_BYTES_MAX} bytes")),
            false => Ok(is_whole),
        }
    }
}

impl Client {
    /// Whether a request is under way.
    pub fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// When the request that is under way was sent.
    pub fn busy_since(&self) -> Option<Instant> {
        self.job.as_ref().map(|job| job.sent)
    }

    /// Requests that its connection has carried; 0 without one.
    pub fn served(&self) -> u64 {
        if self.stream.is_some() { self.served } else { 0 }
    }

    /// Begins a request, on a new connection if there is none; `watch` has the poll look at a new one. Bytes that cannot be
    /// sent yet are sent at the next event.
    pub fn begin(
        &mut self,
        mut job: Box<Job>,
        to: SocketAddr,
        number: u64,
        watch: impl FnOnce(&TcpStream, u32) -> io::Result<()>,
    ) -> Step {
        job.sent = Instant::now();
        job.reused = self.stream.is_some();
        if self.stream.is_none() {
            self.generation = self.generation.wrapping_add(1);
            self.served = 0;
            let generation = self.generation;
            match dial(to, number).and_then(|stream| watch(&stream, generation).map(|()| stream)) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => return Step::Failed(job, trouble_of(&error), error.to_string()),
            }
        }
        self.served += 1;
        let step = self.send(&mut job);
        match step {
            Ok(()) => {
                self.job = Some(job);
                Step::Wait
            }
            Err(error) => self.broken(job, &error),
        }
    }

    /// Goes on with the request that is under way, as far as the socket lets it; `now` is when the event came.
    pub fn go_on(&mut self, now: Instant, buffer: &mut [u8]) -> Step {
        let Some(mut job) = self.job.take() else { return Step::Wait };
        if let Err(error) = self.send(&mut job) {
            return self.broken(job, &error);
        }
        loop {
            let Some(stream) = &mut self.stream else { return self.ended(job) };
            match stream.read(buffer) {
                Ok(0) => return self.ended(job),
                Ok(length) => {
                    job.first_byte.get_or_insert(now);
                    job.inbox.extend_from_slice(&buffer[..length]);
                    match job.take() {
                        Ok(true) => return self.whole(job),
                        Ok(false) => {}
                        Err(reason) => return self.fail(job, Trouble::Malformed, reason),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.job = Some(job);
                    return Step::Wait;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.broken(job, &error),
            }
        }
    }

    /// Gives up the request that is under way, and the connection with it.
    pub fn give_up(&mut self, after: Duration) -> Option<Step> {
        let job = self.job.take()?;
        let reason = format!("no whole reply after {} s", after.as_secs());
        Some(self.fail(job, Trouble::Timeout, reason))
    }

    fn send(&mut self, job: &mut Job) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        while job.written < job.request.len() {
            match stream.write(&job.request[job.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => job.written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn whole(&mut self, job: Box<Job>) -> Step {
        if !job.inbox.is_empty() {
            let shown = String::from_utf8_lossy(&job.inbox[..job.inbox.len().min(40)]).into_owned();
            let reason = format!("{} bytes came after the end of the reply: {shown:?}", job.inbox.len());
            return self.fail(job, Trouble::SurplusBytes, reason);
        }
        if job.closes {
            self.stream = None;
        }
        Step::Whole(job)
    }

    /// The other end has closed: the end of a reply without a length, or of one that is not whole.
    fn ended(&mut self, mut job: Box<Job>) -> Step {
        self.stream = None;
        match job.decoder.as_mut().map(Decoder::finish) {
            Some(Ok(())) => Step::Whole(job),
            Some(Err(fault)) => self.fail(job, Trouble::Truncated, fault.to_string()),
            None if job.first_byte.is_some() => self.fail(job, Trouble::Reset, "closed within a head".to_owned()),
            None if job.may_be_repeated() => Step::Again(job.begin_again()),
            None => self.fail(job, Trouble::Reset, "closed without an answer".to_owned()),
        }
    }

    fn broken(&mut self, job: Box<Job>, error: &io::Error) -> Step {
        let is_lost = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        if is_lost && job.first_byte.is_none() && job.may_be_repeated() {
            self.stream = None;
            return Step::Again(job.begin_again());
        }
        self.fail(job, trouble_of(error), error.to_string())
    }

    fn fail(&mut self, job: Box<Job>, trouble: Trouble, reason: String) -> Step {
        self.stream = None;
        Step::Failed(job, trouble, reason)
    }
}

impl Job {
    /// A kept connection may end while a request is on its way. Any request but a POST is sent once more then (RFC 9110 section
    /// 9.2.2).
    fn may_be_repeated(&self) -> bool {
        self.reused && !self.retried && !matches!(self.ask, Ask::Post { .. })
    }
}

fn dial(to: SocketAddr, number: u64) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if to.ip().is_loopback() {
        let last = 2 + (number % u64::from(ADDRESSES)) as u8;
        socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))))?;
    }
    match socket.connect(&SockAddr::from(to)) {
        Ok(()) => Ok(socket.into()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(socket.into()),
        Err(error) => Err(error),
    }
}
