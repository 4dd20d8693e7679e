//! Many clients miss one object at once: how often is the origin asked, how long does each wait for its first
//! byte, are all bodies right, and how much memory does it take?
//!
//! The origin is ours: it answers only when every client has asked, so that what is measured is the way from its
//! first byte to theirs. Bodies follow a law that costs a comparison.

use crate::lab::{self, Lab};
use crate::results;
use crate::shell::{self, Trouble};
use rustix::event::epoll;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How many, and how much.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, default_value_t = 1_000)]
    clients: usize,
    /// Length of the object in MB.
    #[arg(long, default_value_t = 50)]
    megabytes: usize,
    /// The binary to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

const BLOCK_BYTES: usize = 64 * 1024;
/// Bytes that are read at once while others wait for their first byte.
const PIECE_BYTES: usize = 2 * 1024;
const WITHIN: Duration = Duration::from_secs(120);
const STACK_BYTES: usize = 160 * 1024;
/// How long the uncachable answer takes at the origin.
const THINK: Duration = Duration::from_millis(50);
/// The backlog of a listener of the standard library is 128.
const FREED_CLIENTS: usize = 100;

/// Plays both parts and prints the table.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    raise_descriptors()?;
    let program = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    let shared = play(&program, args.clients, args.megabytes * 1_000_000, Kind::Shared)?;
    let passing = play(&program, 2, 1_000_000_000, Kind::Passing)?;
    let freed = play(&program, FREED_CLIENTS, 600, Kind::Freed)?;
    let table = table(&[&shared, &freed, &passing]);
    print!("{table}");
    if !args.dry {
        results::publish(&root, "crowd", &format!("# A crowd misses one object\n\n{ABOUT}\n{table}"))?;
    }
    match (shared.wrong + freed.wrong + passing.wrong, shared.origin_requests) {
        (0, 1) => Ok(()),
        (wrong, asked) => {
            Err(format!("{wrong} clients got wrong bodies; the origin was asked {asked} times for the shared object"))
        }
    }
}

const ABOUT: &str = "`cargo xtask crowd`; two shared virtual cores, loopback, Larder with two workers, the clients (one thread for the crowd) and the origin on the same two cores.
A first byte counts when it can be read; until every client has one, bodies are read in pieces of 2 KB. That keeps the load's own reading out of the figure, and holds bodies back for those milliseconds.
The times are from the origin's first byte to each client's first byte. `shared`: one cachable object; `freed`: the answer is uncachable and takes the origin 50 ms, so the
last client has its answer long before clients x 50 ms; `passing`: a body longer than the store takes, a client that reads at full speed and one that pauses.
";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Cachable: one request, everybody streams.
    Shared,
    /// Uncachable: everybody is set free at once.
    Freed,
    /// Too long to be kept: it passes through, held back by a slow reader.
    Passing,
}

struct Outcome {
    kind: Kind,
    clients: usize,
    bytes: usize,
    origin_requests: usize,
    wrong: usize,
    /// Sorted.
    first_bytes: Vec<Duration>,
    wall: Duration,
    resident_kb: u64,
}

fn play(program: &Path, clients: usize, bytes: usize, kind: Kind) -> Result<Outcome, Trouble> {
    let origin = Arc::new(Origin::new(clients, bytes, kind));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no free port: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let accepting = Arc::clone(&origin);
    std::thread::spawn(move || accepting.accept(&listener));
    let mut lab = Lab::new()?;
    let (proxy, id) = start(program, &mut lab, port, kind)?;
    let gate = Arc::clone(&origin);
    std::thread::spawn(move || gate.open_when_all_asked());
    let block = Arc::new(block());
    let began = Instant::now();
    // One thread for a crowd: a thread each would measure the scheduler. A slow client has one of its own.
    let crowds = if kind == Kind::Passing { vec![1; clients] } else { vec![clients] };
    let handles: Vec<_> = crowds
        .into_iter()
        .enumerate()
        .map(|(number, many)| {
            let (origin, block) = (Arc::clone(&origin), Arc::clone(&block));
            let slow = kind == Kind::Passing && number == 1;
            std::thread::spawn(move || crowd(proxy, many, &origin, &block, slow))
        })
        .collect();
    let mut results: Vec<Result<Instant, String>> = Vec::new();
    for handle in handles {
        results.extend(handle.join().unwrap_or_else(|_| Err("the clients panicked".into()))?);
    }
    let wall = began.elapsed();
    for trouble in results.iter().filter_map(|result| result.as_ref().err()).take(3) {
        eprintln!("xtask: {trouble}");
    }
    let start = origin.first_byte.get().copied().unwrap_or(began);
    let mut first_bytes: Vec<Duration> =
        results.iter().flatten().map(|first| first.saturating_duration_since(start)).collect();
    first_bytes.sort();
    Ok(Outcome {
        kind,
        clients,
        bytes,
        origin_requests: origin.requests.load(Ordering::Relaxed),
        wrong: results.iter().filter(|result| result.is_err()).count(),
        first_bytes,
        wall,
        resident_kb: resident_kb_max(id)?,
    })
}

fn start(program: &Path, lab: &mut Lab, origin: u16, kind: Kind) -> Result<(SocketAddr, u32), Trouble> {
    let port = lab::free_port()?;
    let memory = if kind == Kind::Passing { "64MB" } else { "512MB" };
    let mut command = Command::new(program);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--admin", "none", "--memory", memory, "--workers", "2"]);
    command.args(["--origin", &format!("http://127.0.0.1:{origin}")]).arg("--store").arg(lab.folder("store")?);
    let id = lab.start("larder", &mut command, port)?;
    Ok((SocketAddr::from((Ipv4Addr::LOCALHOST, port)), id))
}

/// One client of a crowd.
struct Client {
    stream: TcpStream,
    head: Vec<u8>,
    /// Body bytes that came and were right; `None` before the end of the head.
    at: Option<usize>,
    first: Option<Instant>,
    result: Option<Result<Instant, String>>,
}

/// Connects all, lets all ask, and reads all to their ends.
fn crowd(
    proxy: SocketAddr,
    many: usize,
    origin: &Origin,
    block: &[u8],
    slow: bool,
) -> Result<Vec<Result<Instant, String>>, Trouble> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("no epoll: {error}"))?;
    let mut clients = Vec::with_capacity(many);
    for number in 0..many {
        let stream = ask(proxy, origin).map_err(|error| format!("client {number} cannot ask: {error}"))?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&poll, &stream, data, epoll::EventFlags::IN).map_err(|error| format!("no epoll: {error}"))?;
        clients.push(Client { stream, head: Vec::new(), at: None, first: None, result: None });
    }
    let (mut buffer, mut left, mut waiting) = (vec![0; BLOCK_BYTES], many, many);
    let mut events = Vec::with_capacity(256);
    let began = Instant::now();
    while left > 0 && began.elapsed() < WITHIN {
        events.clear();
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&second))
            .map_err(|error| format!("epoll: {error}"))?;
        // A first byte counts when it can be read. As long as some wait for theirs, bodies are read in small
        // pieces, or the reading of one client's body would be measured as the waiting of another.
        let now = Instant::now();
        for event in &events {
            waiting -= usize::from(clients[event.data.u64() as usize].arrived(now));
        }
        let piece = if waiting > 0 { PIECE_BYTES } else { BLOCK_BYTES };
        for event in &events {
            let client = &mut clients[event.data.u64() as usize];
            client.read(&mut buffer[..piece], origin.bytes, block);
            if client.result.is_some() {
                epoll::delete(&poll, &client.stream).map_err(|error| format!("epoll: {error}"))?;
                left -= 1;
            }
        }
        if slow {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(clients.into_iter().map(|client| client.result.unwrap_or_else(|| Err("not done in time".into()))).collect())
}

fn ask(proxy: SocketAddr, origin: &Origin) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.write_all(b"GET /object HTTP/1.1\r\nHost: crowd.test\r\nConnection: close\r\n\r\n")?;
    stream.set_nonblocking(true)?;
    origin.asked.fetch_add(1, Ordering::Relaxed);
    Ok(stream)
}

impl Client {
    /// True for the first call.
    fn arrived(&mut self, now: Instant) -> bool {
        let first = self.first.is_none();
        self.first.get_or_insert(now);
        first
    }

    fn read(&mut self, buffer: &mut [u8], length: usize, block: &[u8]) {
        let outcome = match self.stream.read(buffer) {
            Ok(0) if self.at == Some(length) => self.first.map(Ok),
            Ok(0) => Some(Err(format!("closed after {:?} of {length} bytes", self.at))),
            Ok(read) => self.take(&buffer[..read], block).err().map(Err),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => None,
            Err(error) => Some(Err(format!("reading: {error}"))),
        };
        self.result = outcome;
    }

    fn take(&mut self, got: &[u8], block: &[u8]) -> Result<(), String> {
        if let Some(at) = self.at {
            self.at = Some(compare(block, at, got)?);
            return Ok(());
        }
        self.head.extend_from_slice(got);
        let Some(end) = self.head.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(()) };
        if !self.head.starts_with(b"HTTP/1.1 200 ") {
            return Err(String::from_utf8_lossy(&self.head[..end]).into_owned());
        }
        self.at = Some(compare(block, 0, &self.head[end + 4..])?);
        Ok(())
    }
}

fn compare(block: &[u8], mut at: usize, mut got: &[u8]) -> Result<usize, String> {
    while !got.is_empty() {
        let wanted = &block[at % BLOCK_BYTES..];
        let len = got.len().min(wanted.len());
        if got[..len] != wanted[..len] {
            return Err(format!("wrong bytes in the block at {at}"));
        }
        at += len;
        got = &got[len..];
    }
    Ok(at)
}

/// The law: one block without a short period, again and again.
fn block() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..BLOCK_BYTES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

struct Origin {
    clients: usize,
    bytes: usize,
    kind: Kind,
    asked: AtomicUsize,
    requests: AtomicUsize,
    first_byte: OnceLock<Instant>,
    open: Mutex<bool>,
    opening: Condvar,
}

impl Origin {
    fn new(clients: usize, bytes: usize, kind: Kind) -> Origin {
        Origin {
            clients,
            bytes,
            kind,
            asked: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            first_byte: OnceLock::new(),
            open: Mutex::new(false),
            opening: Condvar::new(),
        }
    }

    fn accept(self: &Arc<Origin>, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            let origin = Arc::clone(self);
            let answer = move || origin.answer(stream);
            if std::thread::Builder::new().stack_size(STACK_BYTES).spawn(answer).is_err() {
                return;
            }
        }
    }

    fn answer(&self, mut stream: TcpStream) {
        let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            match stream.read(&mut buffer) {
                Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
                _ => return,
            }
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.wait_for_all();
        let control = if self.kind == Kind::Freed { "no-store" } else { "max-age=600" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.bytes
        );
        let block = block();
        let _ = self.first_byte.set(Instant::now());
        let mut left = self.bytes;
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        while left > 0 {
            let len = left.min(BLOCK_BYTES);
            if stream.write_all(&block[..len]).is_err() {
                return;
            }
            left -= len;
        }
    }

    fn wait_for_all(&self) {
        if self.kind == Kind::Freed {
            return std::thread::sleep(THINK);
        }
        if let Ok(open) = self.open.lock() {
            drop(self.opening.wait_timeout_while(open, WITHIN, |open| !*open));
        }
    }

    /// All have asked, and Larder has had a moment to read it.
    fn open_when_all_asked(&self) {
        let began = Instant::now();
        while self.asked.load(Ordering::Relaxed) < self.clients && began.elapsed() < WITHIN {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(500));
        if let Ok(mut open) = self.open.lock() {
            *open = true;
            self.opening.notify_all();
        }
    }
}

pub fn raise_descriptors() -> Result<(), Trouble> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("cannot raise the limit of descriptors: {error}"))
}

fn resident_kb_max(id: u32) -> Result<u64, Trouble> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))
        .map_err(|error| format!("reading the memory of larder: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).ok_or_else(|| "no VmHWM of larder".to_owned())
}

fn table(outcomes: &[&Outcome]) -> String {
    let mut text = String::from(
        "| play | clients | bytes each | origin requests | wrong bodies | first byte median ms | p99 ms | max ms | wall s | peak resident MB |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for outcome in outcomes {
        let kind = match outcome.kind {
            Kind::Shared => "shared",
            Kind::Freed => "freed",
            Kind::Passing => "passing",
        };
        let at = |share: usize| {
            let place = outcome.first_bytes.len().saturating_sub(1) * share / 100;
            outcome.first_bytes.get(place).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
        };
        text += &format!(
            "| {kind} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} |\n",
            outcome.clients,
            outcome.bytes,
            outcome.origin_requests,
            outcome.wrong,
            at(50),
            at(99),
            at(100),
            outcome.wall.as_secs_f64(),
            outcome.resident_kb as f64 / 1024.0,
        );
    }
    text
}
