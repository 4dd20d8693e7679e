//! `cacheoff agent`: waits for a coordinator that has the token, and plays what it says. One run at a time.

use super::SILENCE_MAX;
use super::message::{ToAgent, ToCoordinator};
use super::part::{Part, Prepared};
use super::probe::{Responder, probe};
use super::time::RunClock;
use crate::control::{Channel, Received, Token, accept};
use crate::ledger::{End, Record, Writer};
use crate::proc::machine;
use crate::stop;
use rustls::ServerConfig;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Plays a part of a run on several machines.
#[derive(clap::Args, Debug)]
pub struct AgentArgs {
    /// Where the coordinator connects
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// The file with the token that the coordinator has too; nobody else may read it
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Where the ledger of the part is written, for cacheoff merge
    #[arg(long, value_name = "FOLDER")]
    ledger_dir: Option<PathBuf>,
    /// Cores of the workers, such as 0,1
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Microseconds by which the agent lies about its clock
    #[arg(long, hide = true, default_value_t = 0, allow_hyphen_values = true)]
    clock_shift_us: i64,
}

/// Connections that have not shown the token yet; more are closed.
const HANDSHAKES_MAX: usize = 8;
/// How often the agent looks for messages, and for what its workers counted.
const LOOK: Duration = Duration::from_millis(5);
/// Before a run and after it the coordinator is busy with other agents for so long at most.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// How often a listener looks for connections.
const ACCEPT: Duration = Duration::from_millis(20);
/// How often notes and the state are told.
const TELL: Duration = Duration::from_millis(50);
/// A run begins so soon after it was prepared.
const START_MAX: Duration = Duration::from_secs(60);

impl AgentArgs {
    /// Serves coordinators until a signal comes.
    pub fn run(&self) -> Result<ExitCode, String> {
        let token = Token::read(&self.token_file)?;
        let listener = TcpListener::bind(self.listen).map_err(|error| format!("--listen {}: {error}", self.listen))?;
        let agent = Agent::new(token, self.clock_shift_us)?;
        let agent = Agent { cores: self.cores.clone(), folder: self.ledger_dir.clone(), stop: stop::flag(), ..agent };
        eprintln!("the agent waits for its coordinator on {}", self.listen);
        Arc::new(agent).serve(&listener).map_err(|error| format!("--listen {}: {error}", self.listen))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// An agent.
pub(super) struct Agent {
    token: Token,
    config: Arc<ServerConfig>,
    clock: RunClock,
    cores: Vec<usize>,
    pub(super) folder: Option<PathBuf>,
    /// A coordinator has it.
    is_taken: AtomicBool,
    handshakes: AtomicUsize,
    pub(super) stop: Arc<AtomicBool>,
    /// Set by a test to end it as a kill would: without a word.
    pub(super) dies: Arc<AtomicBool>,
}

impl Agent {
    /// One that nobody has asked for anything yet.
    pub fn new(token: Token, clock_shift_us: i64) -> Result<Self, String> {
        Ok(Self {
            token,
            config: Channel::listening()?,
            clock: RunClock::new(clock_shift_us),
            cores: Vec::new(),
            folder: None,
            is_taken: AtomicBool::new(false),
            handshakes: AtomicUsize::new(0),
            stop: Arc::default(),
            dies: Arc::default(),
        })
    }

    /// Serves until it is told to stop.
    pub fn serve(self: Arc<Self>, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        while !self.stop.load(Relaxed) {
            match listener.accept() {
                Ok((socket, peer)) => self.clone().take(socket, peer),
                // Out of descriptors, or a peer that is gone again: the next look may find another.
                Err(_) => std::thread::sleep(ACCEPT),
            }
        }
        // A play under way ends in order.
        while self.is_taken.load(Relaxed) && !self.dies.load(Relaxed) {
            std::thread::sleep(ACCEPT);
        }
        Ok(())
    }

    fn take(self: Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        if self.handshakes.fetch_add(1, Relaxed) >= HANDSHAKES_MAX {
            self.handshakes.fetch_sub(1, Relaxed);
            return;
        }
        std::thread::spawn(move || {
            let met = accept(socket, self.config.clone(), &self.token);
            self.handshakes.fetch_sub(1, Relaxed);
            let channel = match met {
                Ok(channel) => channel,
                Err(reason) => return eprintln!("{peer} is not let in: {reason}"),
            };
            if self.is_taken.swap(true, Relaxed) {
                let _ = channel.send(&ToCoordinator::Refused("another coordinator has this agent".to_owned()));
                return;
            }
            if let Err(error) = self.follow(&channel) {
                eprintln!("the coordinator at {peer} is gone: {error}");
            }
            self.is_taken.store(false, Relaxed);
        });
    }

    /// Does what a coordinator says until it goes.
    fn follow(&self, channel: &Channel) -> io::Result<()> {
        let (mut prepared, mut responder, mut ledger, mut heard) = (None, None, None, Instant::now());
        while !self.stop.load(Relaxed) {
            let Received::Message(message) = channel.receive(LOOK * 4)? else {
                if heard.elapsed() > IDLE_MAX {
                    return Err(ErrorKind::TimedOut.into());
                }
                continue;
            };
            heard = Instant::now();
            match message {
                ToAgent::Clock(asked) => channel.send(&ToCoordinator::Clock(asked, self.clock.now_us()))?,
                ToAgent::Prepare(assignment) => {
                    (prepared, responder) = (None, None);
                    let found = Prepared::new(*assignment).and_then(|part| {
                        let answers = Responder::start(&part.sockets).map_err(|error| error.to_string())?;
                        Ok((part, answers))
                    });
                    let answer = match found {
                        Ok((part, answers)) => {
                            (prepared, responder) = (Some(part), Some(answers));
                            ToCoordinator::Ready(Box::new(machine("")))
                        }
                        Err(reason) => ToCoordinator::Refused(reason),
                    };
                    channel.send(&answer)?;
                }
                ToAgent::Probe(origins) => {
                    let way = |origin| prepared.as_ref().map(|part: &Prepared| probe(part.route(), origin));
                    // One at a time: the coordinator asks for few at once, and waits.
                    let found = origins.into_iter().take(1).filter_map(way).collect();
                    channel.send(&ToCoordinator::Probed(found))?;
                    heard = Instant::now();
                }
                ToAgent::Start(at_us) => {
                    let Some(part) = prepared.take() else { return Err(ErrorKind::InvalidData.into()) };
                    if let Some(responder) = responder.take() {
                        Responder::end(responder);
                    }
                    ledger = self.play(channel, part, at_us)?;
                    heard = Instant::now();
                }
                ToAgent::Stop => return Ok(()),
                ToAgent::Verdict(end) => {
                    let written = ledger.take().map_or(Ok(()), |path: PathBuf| write_verdict(&path, *end));
                    channel.send(&ToCoordinator::Done(written.err().map(|error| error.to_string())))?;
                }
                ToAgent::Steer(_) | ToAgent::Notes { .. } | ToAgent::Through => {}
            }
        }
        Ok(())
    }

    /// Plays a part; gives where its ledger is.
    fn play(&self, channel: &Channel, part: Prepared, at_us: u64) -> io::Result<Option<PathBuf>> {
        let refuse = |reason: String| channel.send(&ToCoordinator::Done(Some(reason))).map(|()| None);
        if at_us.saturating_sub(self.clock.now_us()) > START_MAX.as_micros() as u64 {
            return refuse("the run is to begin too late".to_owned());
        }
        if self.clock.now_us() > at_us {
            return refuse("the start came too late".to_owned());
        }
        let start = self.clock.moment(at_us);
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
        let mut part = match part.begin(start, at_us / 1_000_000, &self.cores, self.folder.as_deref()) {
            Ok(part) => part,
            Err(reason) => return refuse(reason),
        };
        let ledger = part.ledger.clone();
        let broken = self.steered(channel, &mut part).err();
        if broken.is_some() {
            part.orphaned();
            while part.intervals().is_some() {
                std::thread::sleep(LOOK);
            }
        }
        let (last, failure) = part.end();
        if let Some(error) = broken {
            return Err(error);
        }
        for interval in last {
            channel.send(&ToCoordinator::Interval(Box::new(interval)))?;
        }
        channel.send(&ToCoordinator::Done(failure))?;
        Ok(ledger)
    }

    /// Plays on until the workers are done.
    fn steered(&self, channel: &Channel, part: &mut Part) -> io::Result<()> {
        let (mut heard, mut told) = (Instant::now(), Instant::now());
        loop {
            if self.dies.load(Relaxed) {
                channel.close();
            }
            if self.stop.load(Relaxed) {
                part.stop_by_signal();
            }
            match channel.receive(LOOK)? {
                Received::Nothing if heard.elapsed() > SILENCE_MAX => return Err(ErrorKind::TimedOut.into()),
                Received::Nothing => {}
                Received::Message(message) => {
                    heard = Instant::now();
                    match message {
                        ToAgent::Clock(asked) => channel.send(&ToCoordinator::Clock(asked, self.clock.now_us()))?,
                        ToAgent::Steer(steer) => part.steer(&steer),
                        ToAgent::Notes { from, until_us, notes } => part.hear(from, until_us, &notes),
                        ToAgent::Through => part.all_through(),
                        ToAgent::Stop => part.stop(),
                        ToAgent::Prepare(_) | ToAgent::Probe(_) | ToAgent::Start(_) | ToAgent::Verdict(_) => {
                            return Err(ErrorKind::InvalidData.into());
                        }
                    }
                }
            }
            let Some(intervals) = part.intervals() else { return Ok(()) };
            for interval in intervals {
                channel.send(&ToCoordinator::Interval(Box::new(interval)))?;
            }
            if told.elapsed() >= TELL {
                told = Instant::now();
                for notes in part.notes() {
                    channel.send(&notes)?;
                }
                channel.send(&ToCoordinator::Status(part.status()))?;
            }
        }
    }
}

fn write_verdict(ledger: &Path, end: End) -> io::Result<()> {
    let file = File::options().append(true).open(ledger)?;
    Writer::resume(file).append(&Record::Verdict(end))
}
