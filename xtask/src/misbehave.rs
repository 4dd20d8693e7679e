//! A script that hangs, crashes, eats memory or forks without an end, and a healthy one beside it: does the healthy one's client notice,
//! what does the request of the culprit become, when does the next one get an answer, how many processes and how much memory does it take?

use crate::lab::{self, Lab};
use crate::processes::{count_of_tree, resident_kb_of_tree};
use crate::results;
use crate::shell::{self, Trouble};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long.
#[derive(clap::Args)]
pub struct Args {
    /// The binary to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Rounds, in each of which every kind of script has its turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a turn in seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

const APPLICATION: &str = r#"
import ctypes, os

def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/hang":
        while True:
            pass
    if path == "/crash":
        ctypes.string_at(0)
    if path == "/memory":
        held = []
        while True:
            held.append(bytearray(1 << 24))
    if path == "/fork":
        while True:
            if os.fork() == 0:
                os.setsid()
    start_response("200 OK", [("Content-Length", "2"), ("Cache-Control", "no-store")])
    return [b"ok"]
"#;

/// The kinds of scripts, by the paths that they are asked by; the first one is none.
const KINDS: [&str; 5] = ["none", "hang", "crash", "memory", "fork"];

/// The healthy one is asked so often.
const EVERY: Duration = Duration::from_millis(3);

/// Between two requests for the other one, so that its standby is there again.
const PAUSE: Duration = Duration::from_millis(1500);

const REQUEST_MILLIS: u64 = 200;

/// Figures of the turns of one kind.
#[derive(Default)]
struct Turns {
    /// Times of the healthy one's answers, in milliseconds.
    healthy: Vec<f64>,
    /// Its answers that were no 200.
    wrong: u64,
    /// Status and time of the misbehaving script's requests.
    own: Vec<(u16, f64)>,
    /// Status and time of the request that follows each of these at once: the time until the script serves again.
    next: Vec<(u16, f64)>,
    processes_max: usize,
    resident_kb_max: u64,
}

/// Plays all, and publishes the page.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    shell::need_program("python3")?;
    let program = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    let kinds = if forks_are_bounded(&program)? { &KINDS[..] } else { &KINDS[..4] };
    let mut turns: Vec<Turns> = kinds.iter().map(|_| Turns::default()).collect();
    for round in 1..=args.rounds {
        for at in 0..kinds.len() {
            let at = if round % 2 == 0 { kinds.len() - 1 - at } else { at };
            play(&program, kinds[at], Duration::from_secs(args.seconds), &mut turns[at])?;
        }
        println!("round {round} of {}", args.rounds);
    }
    let version = shell::ask(Command::new(&program).arg("--version"))?;
    let page = page((args, version.trim()), kinds, &turns);
    println!("{page}");
    if args.dry { Ok(()) } else { results::publish(&root, "misbehave", &page) }
}

/// Whether the runtime bounds forks on this machine: else a fork bomb would be one for this machine.
fn forks_are_bounded(program: &Path) -> Result<bool, Trouble> {
    let stand = Stand::start(program)?;
    let text = std::fs::read_to_string(stand.lab.path().join("larder.log")).unwrap_or_default();
    let lacks = text.contains("a bound of children before they begin");
    if lacks {
        println!("the fork bomb is left out: {}", shell::last_lines(&text, 3));
    }
    Ok(!lacks)
}

/// A server with both applications.
struct Stand {
    lab: Lab,
    id: u32,
    port: u16,
}

impl Stand {
    fn start(program: &Path) -> Result<Stand, Trouble> {
        let mut lab = Lab::new()?;
        let folder = lab.folder("scripts")?;
        lab.write("scripts/app.py", APPLICATION)?;
        let port = lab::free_port()?;
        let (store, folder) = (lab.path().join("store").display().to_string(), folder.display().to_string());
        let site =
            |name: &str| format!("[[site]]\nhosts = [\"{name}.test\"]\norigin = \"wsgi:app\"\npython = \"{name}\"\n");
        let text = format!(
            "store = \"{store}\"\nadmin = \"none\"\nworkers = 1\ndisk = \"0\"\nmemory = \"64MB\"\n\
             [[listen]]\naddress = \"127.0.0.1:{port}\"\n{}{}[[python]]\nname = \"healthy\"\nfolder = \"{folder}\"\nprocesses = 1\n\
             [[python]]\nname = \"other\"\nfolder = \"{folder}\"\nprocesses = 1\nstandby = 1\nrequest_time = \"{REQUEST_MILLIS}ms\"\n\
             memory = \"256MiB\"\n",
            site("healthy"),
            site("other"),
        );
        let file = lab.write("larder.toml", text)?;
        let id = lab.start("larder", Command::new(program).arg("--config").arg(file), port)?;
        let stand = Stand { lab, id, port };
        for host in ["healthy.test", "other.test"] {
            let end = Instant::now() + Duration::from_secs(30);
            while stand.ask(host, "/")?.0 != 200 {
                if Instant::now() > end {
                    return Err(format!("{host} has no page"));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        // The standby has loaded the application by then.
        std::thread::sleep(Duration::from_millis(500));
        Ok(stand)
    }

    /// Status and milliseconds of one request on a connection of its own.
    fn ask(&self, host: &str, path: &str) -> Result<(u16, f64), Trouble> {
        let mut client = Client::to(self.port)?;
        let began = Instant::now();
        let status = client.ask(host, path)?;
        Ok((status, millis(began.elapsed())))
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn to(port: u16) -> Result<Client, Trouble> {
        let trouble = |error: std::io::Error| format!("connecting: {error}");
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(trouble)?;
        stream.set_nodelay(true).map_err(trouble)?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(trouble)?;
        Ok(Client(BufReader::new(stream)))
    }

    fn ask(&mut self, host: &str, path: &str) -> Result<u16, Trouble> {
        let trouble = |error: std::io::Error| format!("asking {host}{path}: {error}");
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.0.get_mut().write_all(head.as_bytes()).map_err(trouble)?;
        let (mut first, mut length) = (String::new(), 0);
        self.0.read_line(&mut first).map_err(trouble)?;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).map_err(trouble)? == 0 || line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or_default();
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).map_err(trouble)?;
        first.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(|| format!("{host}{path}: {first:?}"))
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// One turn of a kind, at a server of its own.
fn play(program: &Path, kind: &str, time: Duration, turns: &mut Turns) -> Result<(), Trouble> {
    let stand = Stand::start(program)?;
    let is_over = AtomicBool::new(false);
    let (processes, resident) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (healthy, asked) = std::thread::scope(|scope| {
        let (id, port, is_over, processes, resident) = (stand.id, stand.port, &is_over, &processes, &resident);
        let healthy = scope.spawn(move || ask_steadily(port, is_over));
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                processes.fetch_max(count_of_tree(id).unwrap_or_default(), Ordering::Relaxed);
                resident.fetch_max(resident_kb_of_tree(id).unwrap_or_default(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let asked = ask_the_other(&stand, kind, time);
        is_over.store(true, Ordering::Relaxed);
        (healthy.join(), asked)
    });
    let (times, wrong) = healthy.map_err(|_| "the healthy one's client panicked")??;
    turns.healthy.extend(times);
    turns.wrong += wrong;
    for (own, next) in asked? {
        turns.own.push(own);
        turns.next.push(next);
    }
    turns.processes_max = turns.processes_max.max(processes.into_inner());
    turns.resident_kb_max = turns.resident_kb_max.max(resident.into_inner());
    Ok(())
}

/// Asks the healthy one at a steady pace; a time counts from the moment at which its request was due.
fn ask_steadily(port: u16, is_over: &AtomicBool) -> Result<(Vec<f64>, u64), Trouble> {
    let (mut client, mut times, mut wrong) = (Client::to(port)?, Vec::new(), 0);
    let mut due = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        due += EVERY;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let began = due.max(Instant::now() - EVERY);
        wrong += u64::from(client.ask("healthy.test", "/")? != 200);
        times.push(millis(began.elapsed()));
    }
    Ok((times, wrong))
}

type Asked = (u16, f64);

fn ask_the_other(stand: &Stand, kind: &str, time: Duration) -> Result<Vec<(Asked, Asked)>, Trouble> {
    let (end, mut asked) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        if kind != KINDS[0] {
            asked.push((stand.ask("other.test", &format!("/{kind}"))?, stand.ask("other.test", "/")?));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(asked)
}

fn share(sorted: &[f64], share: f64) -> f64 {
    sorted
        .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

fn page((args, version): (&Args, &str), kinds: &[&str], turns: &[Turns]) -> String {
    let mut text = format!(
        "# Scripts that misbehave\n\n`cargo xtask misbehave`: {version}, one worker, an application of one process that is asked each \
         {} ms, and beside it one that misbehaves at each request, with a process and a standby, `request_time` {REQUEST_MILLIS} ms and \
         `memory` 256 MiB; {} rounds of {} s for each kind, each at a new server; {}. No core is reserved for anybody. The fork bomb has each \
         child in a session of its own, and forking too. Times in ms; those of the healthy one count from the moment at which a \
         request was due. Memory is the sum of what each process holds, so that what they share counts for each.\n\n\
         | the other one | healthy: p50 | p99 | p99.9 | longest | wrong | its own request | after | the next one, median | longest | processes | memory MB |\n\
         |---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|\n",
        EVERY.as_millis(),
        args.rounds,
        args.seconds,
        crate::bench::machine(),
    );
    for (kind, of_kind) in kinds.iter().zip(turns) {
        let sorted = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times
        };
        let healthy = sorted(of_kind.healthy.clone());
        let mut statuses: Vec<u16> = of_kind.own.iter().map(|(status, _)| *status).collect();
        statuses.sort_unstable();
        statuses.dedup();
        let own = sorted(of_kind.own.iter().map(|(_, time)| *time).collect());
        let next = sorted(of_kind.next.iter().map(|(_, time)| *time).collect());
        let words: Vec<String> = statuses.iter().map(u16::to_string).collect();
        let bad_next = of_kind.next.iter().filter(|(status, _)| *status != 200).count();
        let range = match (own.first(), own.last()) {
            (Some(first), Some(last)) => format!("{first:.0} to {last:.0}"),
            _ => "–".to_owned(),
        };
        writeln!(
            text,
            "| {kind} | {:.2} | {:.2} | {:.2} | {:.1} | {} | {} | {range} | {:.1}{} | {:.1} | {} | {} |",
            share(&healthy, 0.5),
            share(&healthy, 0.99),
            share(&healthy, 0.999),
            share(&healthy, 1.0),
            of_kind.wrong,
            if words.is_empty() { "–".to_owned() } else { words.join(", ") },
            share(&next, 0.5),
            if bad_next > 0 { format!(" ({bad_next} failed)") } else { String::new() },
            share(&next, 1.0),
            of_kind.processes_max,
            of_kind.resident_kb_max / 1024,
        )
        .ok();
    }
    text.replace("NaN", "–")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_row_for_each_kind() {
        let args = Args { larder: None, rounds: 1, seconds: 1, dry: true };
        let calm = Turns { healthy: vec![1.0, 2.0, 3.0], processes_max: 4, resident_kb_max: 4096, ..Turns::default() };
        let hung = Turns {
            healthy: vec![5.0],
            wrong: 1,
            own: vec![(504, 201.0), (504, 210.4)],
            next: vec![(200, 1.0), (503, 2.0)],
            ..Turns::default()
        };
        let page = page((&args, "larder 1"), &KINDS[..2], &[calm, hung]);
        assert!(page.contains("| none | 2.00 | 3.00 | 3.00 | 3.0 | 0 | – | – | – | – | 4 | 4 |"), "{page}");
        assert!(
            page.contains("| hang | 5.00 | 5.00 | 5.00 | 5.0 | 1 | 504 | 201 to 210 | 2.0 (1 failed) | 2.0 |"),
            "{page}"
        );
    }
}
