//! Hits while the store is being filled: how much later the late ones are, and whether anything stands still. Hits come
//! at a fixed rate on one connection and are counted from the time they were due, so that a pause counts for all that
//! it holds up; new objects come meanwhile at a rate of their own, and push older ones out of memory and off the disk.

use crate::lab::Lab;
use crate::law::{self, Origin};
use crate::load::Load;
use crate::peers::{self, Kind, Peer, Play};
use crate::results;
use crate::shell::{self, Trouble};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of filling.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// New objects per second, each of 11 KB.
    #[arg(long, default_value_t = 1_500)]
    fills: u64,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

const LENGTH: u64 = 11_000;
/// Objects that are asked for again and again: half as much again as the memory tier.
const HOT_OBJECTS: u64 = 2_700;
const MEMORY_BYTES: u64 = 20_000_000;
/// Filled several times over.
const DISK_BYTES: u64 = 500_000_000;
const HITS_PER_SECOND: u64 = 1_000;
const QUIET_SECONDS_MAX: u64 = 60;
/// Numbers of objects that nobody asked for before begin here.
const FIRST_NEW: u64 = 1 << 40;
/// The bounds of the aim: times the quiet p99.9, and the longest of all.
const RATIO_MAX: f64 = 3.0;
const LONGEST_MAX: Duration = Duration::from_millis(100);

/// Plays it, prints the table, and says whether the bounds hold.
pub fn run(args: &Args) -> Result<(), Trouble> {
    shell::need_program("taskset")?;
    let root = shell::workspace()?;
    peers::build(&root)?;
    let (_origin, port) = Origin::start()?;
    let mut lab = Lab::new()?;
    let play = Play { memory_bytes: MEMORY_BYTES, disk_bytes: DISK_BYTES, core: Some(0), is_small: false };
    let peer = Peer::start(Kind::Larder, &root, &mut lab, port, &play)?;
    let mut warm = 0..HOT_OBJECTS;
    Load { port: peer.port, length: LENGTH, connections: 8, next: &mut || warm.next() }.play()?;
    let quiet = args.seconds.min(QUIET_SECONDS_MAX);
    let phases = [("quiet", quiet, 0), ("fill", args.seconds, args.fills), ("quiet again", quiet, 0)];
    let mut rows = Vec::new();
    for (name, seconds, fills) in phases {
        let row = phase(peer.port, name, Duration::from_secs(seconds), fills)?;
        print!("{}", row.line());
        rows.push(row);
    }
    let page = page(&rows, args, &peers::version(Kind::Larder, &root)?);
    println!("\n{page}");
    if !args.dry {
        results::publish(&root, "stall", &page)?;
    }
    judge(&rows)
}

/// The results of one phase.
struct Row {
    name: &'static str,
    seconds: f64,
    filled: u64,
    misses: u64,
    /// Sorted, in microseconds.
    hits: Vec<u32>,
}

impl Row {
    fn part(&self, share: f64) -> f64 {
        let at = ((self.hits.len() as f64 * share) as usize).min(self.hits.len().saturating_sub(1));
        f64::from(self.hits.get(at).copied().unwrap_or(0))
    }

    fn line(&self) -> String {
        format!(
            "| {} | {:.0} | {:.0} | {} | {} | {:.0} | {:.0} | {:.0} | {:.1} |\n",
            self.name,
            self.seconds,
            self.filled as f64 / self.seconds,
            self.hits.len(),
            self.misses,
            self.part(0.5),
            self.part(0.99),
            self.part(0.999),
            self.part(1.0) / 1e3,
        )
    }
}

fn phase(port: u16, name: &'static str, time: Duration, fills: u64) -> Result<Row, Trouble> {
    static NEW: AtomicU64 = AtomicU64::new(FIRST_NEW);
    let (began, ended) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| {
            let mut filled = 0;
            let mut next = || {
                let due = began + Duration::from_micros(filled * 1_000_000 / fills);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                filled += 1;
                (!ended.load(Ordering::Relaxed)).then(|| NEW.fetch_add(1, Ordering::Relaxed))
            };
            match fills {
                0 => Ok(0),
                _ => Load { port, length: LENGTH, connections: 4, next: &mut next }.play().and_then(|outcome| {
                    if outcome.wrong == 0 { Ok(outcome.right) } else { Err(format!("{} wrong answers", outcome.wrong)) }
                }),
            }
        });
        let asked = ask_steadily(port, began, time);
        ended.store(true, Ordering::Relaxed);
        let filled = filling.join().map_err(|_| "the filling ended in a panic".to_owned())??;
        let (mut hits, misses) = asked?;
        hits.sort_unstable();
        Ok(Row { name, seconds: began.elapsed().as_secs_f64(), filled, misses, hits })
    })
}

/// One connection, one request after the other, each when it is due; latency is counted from then.
fn ask_steadily(port: u16, began: Instant, time: Duration) -> Result<(Vec<u32>, u64), Trouble> {
    let trouble = |error: std::io::Error| format!("asking port {port}: {error}");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(trouble)?;
    stream.set_nodelay(true).map_err(trouble)?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(trouble)?;
    let (mut hits, mut misses, mut number) = (Vec::new(), 0, 0_u64);
    let mut answer = Vec::with_capacity(LENGTH as usize + 2_000);
    while began.elapsed() < time {
        let due = began + Duration::from_nanos(number * (1_000_000_000 / HITS_PER_SECOND));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // Some are asked for far more often than others.
        let drawn = (law::mix(number) >> 11) as f64 / (1_u64 << 53) as f64;
        let object = (drawn * drawn * HOT_OBJECTS as f64) as u64;
        let request = format!("GET /{object}/{LENGTH} HTTP/1.1\r\nHost: objects.test\r\n\r\n");
        stream.write_all(request.as_bytes()).map_err(trouble)?;
        let head = read_answer(&mut stream, &mut answer).map_err(trouble)?;
        let took = Instant::now().saturating_duration_since(due);
        if answer[head..] != law::bytes(object, 0, 0..LENGTH)[..] {
            return Err(format!("object {object} came with other bytes"));
        }
        match answer[..head].windows(5).any(|window| window == b"; hit") {
            true => hits.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX)),
            false => misses += 1,
        }
        number += 1;
    }
    Ok((hits, misses))
}

/// Gives the length of the head.
fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) -> std::io::Result<usize> {
    answer.clear();
    let mut buffer = [0; 16 * 1024];
    loop {
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head.filter(|head| answer.len() as u64 >= *head as u64 + LENGTH) {
            return Ok(head);
        }
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => answer.extend_from_slice(&buffer[..read]),
        }
    }
}

fn page(rows: &[Row], args: &Args, version: &str) -> String {
    let lines: String = rows.iter().map(Row::line).collect();
    format!(
        "# Hits while the store is filled\n\n`cargo xtask stall --seconds {} --fills {}`: {version} with one worker on core 0, {} MB of memory and {} MB of disk. \
         {HITS_PER_SECOND} requests a second on one connection, spread over {HOT_OBJECTS} objects of 11 KB ({:.0} MB: more than memory holds), counted from when they were due; \
         meanwhile {} new objects of 11 KB a second are fetched, stored, and push others out of memory and off the disk. The load and the origin share core 1, so their own delays are in all rows. \
         Every answer of a hit is compared with the law.\n\n\
         | phase | seconds | fills/s | hits | misses | p50 µs | p99 µs | p99.9 µs | longest ms |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n{lines}",
        args.seconds,
        args.fills,
        MEMORY_BYTES / 1_000_000,
        DISK_BYTES / 1_000_000,
        (HOT_OBJECTS * LENGTH) as f64 / 1e6,
        args.fills,
    )
}

fn judge(rows: &[Row]) -> Result<(), Trouble> {
    let (quiet, fill) = (&rows[0], &rows[1]);
    let ratio = fill.part(0.999) / quiet.part(0.999).max(1.0);
    if ratio > RATIO_MAX {
        return Err(format!("p99.9 is {ratio:.1} times that without filling; the aim is {RATIO_MAX}"));
    }
    if fill.part(1.0) > LONGEST_MAX.as_micros() as f64 {
        return Err(format!("the longest took {:.0} ms; the aim is {LONGEST_MAX:?}", fill.part(1.0) / 1e3));
    }
    Ok(())
}
