//! A group of three origins at a fixed rate while they fail one after the other and all at once: one is killed, one is slow, one
//! answers 500. Which errors do clients see, when is the p99 back, and what does an origin get that has just recovered?
//!
//! Requests are due at fixed times and counted from then, so that a pause counts for all that it holds up. Nothing is cachable.

use crate::crowd::raise_descriptors;
use crate::http::Connection;
use crate::lab::{self, Lab};
use crate::results;
use crate::shell::{self, Trouble};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How fast, and for how long.
#[derive(clap::Args)]
pub struct Args {
    /// Requests a second.
    #[arg(long, default_value_t = 2_000)]
    rate: u64,
    /// Seconds of each phase with a fault; each is followed by as many without.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The binary to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

/// Clients: enough for all requests that are under way while the slow origin is the only one.
const CLIENTS: usize = 768;
const STACK_BYTES: usize = 128 * 1024;
const QUICK: Duration = Duration::from_millis(2);
const SLOW: Duration = Duration::from_millis(200);
/// The time after which the p99 is to be back.
const BACK_WITHIN: Duration = Duration::from_secs(3);
/// The most errors that clients may see, as a part of a phase's requests.
const ERRORS_MAX: f64 = 0.001;
/// The most of the requests of one of its first two seconds that a recovered origin may get: half of its share.
const FIRST_SHARE_MAX: f64 = 0.5 / 3.0;

/// The behaviour of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Habit {
    Well,
    Slow,
    Lies,
    Dead,
}

const HABITS: [Habit; 4] = [Habit::Well, Habit::Slow, Habit::Lies, Habit::Dead];
use Habit::{Dead, Lies, Slow, Well};

/// Names of phases with the behaviour of the three origins.
const PHASES: [(&str, [Habit; 3]); 9] = [
    ("all well", [Well, Well, Well]),
    ("one killed", [Dead, Well, Well]),
    ("it is back", [Well, Well, Well]),
    ("one slow", [Well, Slow, Well]),
    ("it is quick again", [Well, Well, Well]),
    ("one answers 500", [Well, Well, Lies]),
    ("it is well again", [Well, Well, Well]),
    ("all three at once", [Dead, Slow, Lies]),
    ("all are back", [Well, Well, Well]),
];

/// Plays it, prints the table, and says whether the bounds hold.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    raise_descriptors()?;
    let program = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    let origins = [Origin::start()?, Origin::start()?, Origin::start()?];
    let members: Vec<String> =
        origins.iter().map(|each| format!("{{ url = \"http://127.0.0.1:{}\" }}", each.port)).collect();
    let mut lab = Lab::new()?;
    let text = format!(
        "workers = 2\n[[site]]\nhosts = [\"*\"]\norigin = \"app\"\n[[origin]]\nname = \"app\"\nmembers = [{}]\n[upstream]\nconnections_per_origin_max = 1024\n",
        members.join(", ")
    );
    let config = lab.write("larder.toml", text)?;
    let port = lab::start_larder_program(&mut lab, &program, "larder", &["--config", &config.display().to_string()])?;
    let seen = play(args, port, &origins)?;
    let table = table(args, &seen);
    print!("{table}");
    if !args.dry {
        results::publish(&root, "origins", &format!("# A group of three origins in trouble\n\n{ABOUT}\n{table}"))?;
    }
    judge(args, &seen)
}

const ABOUT: &str = "`cargo xtask origins`; loopback, Larder with two workers and the settings of a group as they are, clients and origins on the same cores. A well origin takes 2 ms, a slow one 200 ms; requests are due at fixed times and counted from then.
`after 3 s` leaves out the first three seconds of a phase. `first seconds` is the share of requests that the origin which was in trouble before got in the first second in which it got more than a trial, or in the one after that, whichever is larger: a third would be all of its share.
";

/// One request, for its phase.
#[derive(Clone, Copy)]
struct Sample {
    due: Duration,
    took: Duration,
    is_good: bool,
}

struct Seen {
    samples: Vec<Sample>,
    /// Requests at each origin, by second.
    seconds: Vec<[u64; 3]>,
}

fn play(args: &Args, port: u16, origins: &[Origin; 3]) -> Result<Seen, Trouble> {
    let all = args.rate * args.seconds * PHASES.len() as u64;
    let (next, began) = (AtomicU64::new(0), Instant::now() + Duration::from_millis(500));
    let samples = Mutex::new(Vec::new());
    let mut seconds = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let client = || {
                let own = client(port, args.rate, (&next, all), began);
                samples.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
            };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, client);
            thread.map_err(|error| format!("a client: {error}"))?;
        }
        let mut before = [0; 3];
        for second in 0..args.seconds * PHASES.len() as u64 {
            wait_until(began + Duration::from_secs(second));
            let (_, habits) = PHASES[usize::try_from(second / args.seconds).unwrap_or(0)];
            origins.iter().zip(habits).for_each(|(origin, habit)| origin.becomes(habit));
            wait_until(began + Duration::from_secs(second) + Duration::from_millis(990));
            let now = [0, 1, 2].map(|at: usize| origins[at].shared.requests.load(Ordering::Relaxed));
            seconds.push([0, 1, 2].map(|at: usize| now[at] - before[at]));
            before = now;
        }
        Ok::<(), Trouble>(())
    })?;
    Ok(Seen { samples: samples.into_inner().unwrap_or_else(PoisonError::into_inner), seconds })
}

fn wait_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// Sends the requests that no other client took; an answer that is no 200 and a connection that breaks are errors.
fn client(port: u16, rate: u64, (next, all): (&AtomicU64, u64), began: Instant) -> Vec<Sample> {
    let (mut samples, mut connection) = (Vec::new(), None);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= all {
            return samples;
        }
        let due = Duration::from_nanos(number * 1_000_000_000 / rate);
        wait_until(began + due);
        let request = format!("GET /{number} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let answer = match connection.take().map_or_else(|| Connection::open(port), Ok) {
            Ok(mut open) => open.ask(request.as_bytes(), false).map(|answer| (answer, open)),
            Err(trouble) => Err(trouble),
        };
        let took = (began + due).elapsed();
        let is_good = answer.as_ref().is_ok_and(|(answer, _)| answer.status == 200);
        connection = answer.ok().filter(|(answer, _)| answer.keeps).map(|(_, open)| open);
        samples.push(Sample { due, took, is_good });
    }
}

/// The figures of one phase.
struct Row {
    requests: usize,
    errors: usize,
    p50: Duration,
    p99: Duration,
    p99_later: Duration,
    /// Of the phases in which one comes back; `Some(None)` where it did not.
    first_share: Option<Option<f64>>,
}

fn rows(args: &Args, seen: &Seen) -> Vec<Row> {
    let phase = Duration::from_secs(args.seconds);
    let row = |at: usize| {
        let begin = phase * u32::try_from(at).unwrap_or(0);
        let of: Vec<&Sample> = seen.samples.iter().filter(|it| (begin..begin + phase).contains(&it.due)).collect();
        let times = |from: Duration| {
            let mut times: Vec<Duration> = of.iter().filter(|it| it.due >= from).map(|it| it.took).collect();
            times.sort_unstable();
            times
        };
        let part = |times: &[Duration], percent: usize| {
            let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            times.get(at).copied().unwrap_or_default()
        };
        let (all, later) = (times(begin), times(begin + BACK_WITHIN));
        Row {
            requests: of.len(),
            errors: of.iter().filter(|it| !it.is_good).count(),
            p50: part(&all, 50),
            p99: part(&all, 99),
            p99_later: part(&later, 99),
            first_share: returned(at).map(|origin| first_share(args, seen, at, origin)),
        }
    };
    (0..PHASES.len()).map(row).collect()
}

/// The origin that was ejected in the phase before, and is well in this one.
fn returned(phase: usize) -> Option<usize> {
    let before = PHASES.get(phase.checked_sub(1)?)?.1;
    let is_alone = before.iter().filter(|habit| **habit != Well).count() == 1;
    before.iter().position(|habit| matches!(habit, Dead | Lies)).filter(|_| is_alone)
}

/// The share of requests that a returned origin got in the first second in which it got more than a trial, or in the one after it where
/// that is larger: it may have come back at the end of the first. `None` where it never came back.
fn first_share(args: &Args, seen: &Seen, phase: usize, origin: usize) -> Option<f64> {
    let length = usize::try_from(args.seconds).unwrap_or(0);
    let seconds = seen.seconds.iter().skip(phase * length).take(length);
    let shares = seconds.map(|second| second[origin] as f64 / second.iter().sum::<u64>().max(1) as f64);
    shares.skip_while(|share| *share < 0.002).take(2).max_by(f64::total_cmp)
}

fn table(args: &Args, seen: &Seen) -> String {
    let mut out = format!(
        "{} requests a second, {} s each.\n\n| phase | requests | errors | p50 ms | p99 ms | p99 after 3 s | first seconds |\n|---|---|---|---|---|---|---|\n",
        args.rate, args.seconds
    );
    for ((name, _), row) in PHASES.iter().zip(rows(args, seen)) {
        let Row { requests, errors, p50, p99, p99_later, first_share } = row;
        let millis = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
        let share = match first_share {
            None => "-".to_owned(),
            Some(None) => "never".to_owned(),
            Some(Some(share)) => format!("{:.1} %", share * 100.0),
        };
        let (p50, p99, later) = (millis(p50), millis(p99), millis(p99_later));
        out += &format!("| {name} | {requests} | {errors} | {p50} | {p99} | {later} | {share} |\n");
    }
    out
}

fn judge(args: &Args, seen: &Seen) -> Result<(), Trouble> {
    let rows = rows(args, seen);
    let quiet = rows.first().map_or(Duration::ZERO, |row| row.p99_later);
    let mut troubles = Vec::new();
    for ((name, habits), row) in PHASES.iter().zip(&rows) {
        let errors = row.errors as f64 / row.requests.max(1) as f64;
        if errors >= ERRORS_MAX {
            troubles.push(format!("{name}: {:.2} % errors", errors * 100.0));
        }
        let is_slow_alone = habits.iter().all(|habit| *habit != Well);
        let bound = if is_slow_alone { SLOW + 4 * quiet } else { 2 * quiet + Duration::from_millis(5) };
        if row.p99_later > bound {
            troubles.push(format!("{name}: the p99 is {:.1} ms after 3 s", row.p99_later.as_secs_f64() * 1e3));
        }
        match row.first_share {
            Some(None) => troubles.push(format!("{name}: the origin never got its requests back")),
            Some(Some(share)) if share > FIRST_SHARE_MAX => {
                troubles.push(format!("{name}: the origin got {:.1} % of the requests at once", share * 100.0));
            }
            _ => {}
        }
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
}

/// An origin whose behaviour changes.
struct Origin {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    habit: AtomicU8,
    requests: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn habit(&self) -> Habit {
        HABITS[usize::from(self.habit.load(Ordering::Relaxed)).min(3)]
    }
}

impl Origin {
    fn start() -> Result<Origin, Trouble> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no free port: {error}"))?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        std::thread::spawn(move || accept(&own, Some(listener), address));
        Ok(Origin { port: address.port(), shared })
    }

    /// One that dies closes its connections.
    fn becomes(&self, habit: Habit) {
        self.shared.habit.store(habit as u8, Ordering::Relaxed);
        if habit == Dead {
            let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.drain(..).for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Both)));
        }
    }
}

/// Accepts connections, and none while the origin is dead: then nobody listens.
fn accept(shared: &Arc<Shared>, mut listener: Option<TcpListener>, address: SocketAddr) {
    loop {
        if shared.habit() == Dead {
            listener = None;
        } else if listener.is_none() {
            listener = TcpListener::bind(address).ok();
        }
        let accepted =
            listener.as_ref().map(|listener| listener.set_nonblocking(true).and_then(|()| listener.accept()));
        match accepted {
            Some(Ok((stream, _))) => {
                let own = Arc::clone(shared);
                if let (Ok(()), Ok(copy)) = (stream.set_nonblocking(false), stream.try_clone()) {
                    shared.open.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
                    let serving =
                        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(&own, &stream));
                    drop(serving);
                }
            }
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => std::thread::sleep(QUICK),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn serve(shared: &Shared, stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
        }
        shared.requests.fetch_add(1, Ordering::Relaxed);
        let (time, status) = match shared.habit() {
            Dead => return None,
            Slow => (SLOW, "200 OK"),
            Lies => (Duration::ZERO, "500 Internal Server Error"),
            Well => (QUICK, "200 OK"),
        };
        std::thread::sleep(time);
        let answer = format!("HTTP/1.1 {status}\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok");
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}
