//! More requests than their origin can answer: do hits stay fast, do replies come steadily, does a client with few requests get its
//! answers, and who is refused first?
//!
//! Requests are due at fixed times and counted from then, so that a pause counts for all that it holds up.

mod plot;

use crate::crowd::raise_descriptors;
use crate::http::Connection;
use crate::lab::{self, Lab};
use crate::results;
use crate::shell::{self, Trouble};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long.
#[derive(clap::Args)]
pub struct Args {
    /// Seconds of the overload; before and behind it is a tenth of it without.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How many times as many misses come as the origin can answer.
    #[arg(long, default_value_t = 3.0)]
    factor: f64,
    /// The binary to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

/// Requests that may be under way at the origin, and how long each takes: 400 a second.
const UNDER_WAY_MAX: u64 = 16;
const TAKES: Duration = Duration::from_millis(40);
const CAPACITY: f64 = 400.0;
/// Misses a second without overload: of an origin that is asked for all that it can, any queue grows.
const QUIET_FACTOR: f64 = 0.9;
/// Hits a second, spread over so many objects.
const HITS: f64 = 1_000.0;
const OBJECTS: u64 = 200;
/// Misses a second of the client that has few.
const FEW: f64 = 20.0;
/// One in so many misses of the client that has many is of low priority.
const LOW_EVERY: u64 = 10;
/// Seconds that are left out of a phase: its queues fill or empty in them.
const SETTLES: u64 = 10;
/// Seconds of which the picture shows one p99 of hits.
const EACH: u64 = 5;
const STACK_BYTES: usize = 128 * 1024;

/// The bounds: times the quiet p99 of hits, the variation of the replies of a second, and how much one second may say of another.
const RATIO_MAX: f64 = 2.0;
const VARIATION_MAX: f64 = 0.1;
const AUTOCORRELATION_MAX: f64 = 0.5;

/// The sorts of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Hit,
    /// Of the client that has few misses.
    Few,
    /// Of the one that has many.
    Many,
    /// Of the same, by a rule of low priority.
    Low,
}

/// One request.
#[derive(Clone, Copy)]
struct Sample {
    sort: Sort,
    due: Duration,
    took: Duration,
    status: u16,
    /// A 503 says when to come again.
    has_retry_after: bool,
}

/// A stream of requests that are due at fixed times.
struct Stream {
    sort: Sort,
    clients: usize,
    /// Requests a second: without overload, and with it.
    rates: [f64; 2],
}

/// The three phases: their ends, and whether there is overload.
#[derive(Clone, Copy)]
struct Phases {
    quiet: Duration,
    overload: Duration,
}

const NAMES: [&str; 3] = ["quiet", "overload", "quiet again"];

impl Phases {
    fn begins(self, phase: usize) -> Duration {
        [Duration::ZERO, self.quiet, self.quiet + self.overload, self.quiet * 2 + self.overload][phase]
    }

    fn lasts(self, phase: usize) -> Duration {
        self.begins(phase + 1).saturating_sub(self.begins(phase))
    }
}

/// Plays it, prints the page, and says whether the bounds hold.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    raise_descriptors()?;
    let program = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    let origin = origin()?;
    let mut lab = Lab::new()?;
    let port = start(&mut lab, &program, origin)?;
    let quiet = Duration::from_secs((args.seconds / 10).max(2 * SETTLES));
    let phases = Phases { quiet, overload: Duration::from_secs(args.seconds) };
    for number in 0..OBJECTS {
        ask(&mut None, Sort::Hit, port, number)?;
    }
    let samples = play(args, phases, port)?;
    let version = shell::ask(Command::new(&program).arg("--version"))?;
    let seen = Seen { phases, samples };
    let page = page(args, version.trim(), &seen);
    print!("{page}");
    if !args.dry {
        results::publish(&root, "overload", &page)?;
        results::publish_picture(&root, "overload", &picture(&seen))?;
    }
    judge(&seen)
}

fn start(lab: &mut Lab, program: &std::path::Path, origin: u16) -> Result<u16, Trouble> {
    let port = lab::free_port()?;
    let store = lab.folder("store")?;
    let text = format!(
        "store = \"{}\"\nadmin = \"none\"\nworkers = 2\ndisk = \"0\"\nmemory = \"64MB\"\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\n[[listen]]\naddress = \"[::1]:{port}\"\n\
         [[site]]\nhosts = [\"*\"]\norigin = \"http://127.0.0.1:{origin}\"\n\
         [[rule]]\nwhen = {{ path = \"/low/**\" }}\ndo = {{ priority = \"low\" }}\n\
         [upstream]\nconnections_per_origin_max = {UNDER_WAY_MAX}\n[limits]\norigin_share_percent = 100\n",
        store.display()
    );
    let file = lab.write("larder.toml", text)?;
    lab.start("larder", Command::new(program).arg("--config").arg(file), port)?;
    Ok(port)
}

fn streams(args: &Args) -> [Stream; 3] {
    let many = |factor: f64| CAPACITY * factor - FEW;
    [
        Stream { sort: Sort::Hit, clients: 32, rates: [HITS, HITS] },
        Stream { sort: Sort::Few, clients: 128, rates: [FEW, FEW] },
        // As many as may wait, and those that are under way.
        Stream { sort: Sort::Many, clients: 1_300, rates: [many(QUIET_FACTOR), many(args.factor)] },
    ]
}

fn play(args: &Args, phases: Phases, port: u16) -> Result<Vec<Sample>, Trouble> {
    let samples = Mutex::new(Vec::new());
    let streams = streams(args);
    let taken: Vec<AtomicU64> = streams.iter().map(|_| AtomicU64::new(0)).collect();
    let began = Instant::now() + Duration::from_secs(1);
    std::thread::scope(|scope| {
        for (stream, taken) in streams.iter().zip(&taken) {
            for _ in 0..stream.clients {
                let samples = &samples;
                let client = move || {
                    let own = client(stream, taken, phases, port, began);
                    samples.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
                };
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, client);
                thread.map_err(|error| format!("a client: {error}"))?;
            }
        }
        Ok::<(), Trouble>(())
    })?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// When the request with this number is due; `None` behind the end.
fn due(number: u64, rates: [f64; 2], phases: Phases) -> Option<Duration> {
    let mut number = number as f64;
    for phase in 0..NAMES.len() {
        let rate = rates[usize::from(phase == 1)];
        let many = rate * phases.lasts(phase).as_secs_f64();
        if number < many {
            return Some(phases.begins(phase) + Duration::from_secs_f64(number / rate));
        }
        number -= many;
    }
    None
}

/// Sends the requests that no other client of the stream took.
fn client(stream: &Stream, taken: &AtomicU64, phases: Phases, port: u16, began: Instant) -> Vec<Sample> {
    let (mut samples, mut connection) = (Vec::new(), None);
    loop {
        let number = taken.fetch_add(1, Ordering::Relaxed);
        let Some(due) = due(number, stream.rates, phases) else { return samples };
        std::thread::sleep((began + due).saturating_duration_since(Instant::now()));
        let is_low = stream.sort == Sort::Many && number.is_multiple_of(LOW_EVERY);
        let sort = if is_low { Sort::Low } else { stream.sort };
        let (status, has_retry_after) = ask(&mut connection, sort, port, number).unwrap_or_default();
        samples.push(Sample { sort, due, took: (began + due).elapsed(), status, has_retry_after });
    }
}

/// Asks on a connection that is kept; gives the status and whether the answer says when to come again.
fn ask(connection: &mut Option<Connection>, sort: Sort, port: u16, number: u64) -> Result<(u16, bool), Trouble> {
    let (address, path) = match sort {
        Sort::Hit => (IpAddr::V6(Ipv6Addr::LOCALHOST), format!("/hit/{}", number % OBJECTS)),
        Sort::Few => (IpAddr::V6(Ipv6Addr::LOCALHOST), format!("/few/{number}")),
        Sort::Many => (IpAddr::V4(Ipv4Addr::LOCALHOST), format!("/many/{number}")),
        Sort::Low => (IpAddr::V4(Ipv4Addr::LOCALHOST), format!("/low/{number}")),
    };
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open_at(address, port)?,
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let answer = open.ask(request.as_bytes(), false)?;
    if answer.keeps {
        *connection = Some(open);
    }
    Ok((answer.status, answer.field("retry-after").is_some()))
}

/// An origin that takes its time for each request, on as many connections as come.
fn origin() -> Result<u16, Trouble> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no free port: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(&stream));
        }
    });
    Ok(port)
}

fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let body = "x".repeat(1_000);
    let _ = stream.set_nodelay(true);
    loop {
        let (mut line, mut is_hit) = (String::new(), None);
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
            is_hit.get_or_insert(line.starts_with("GET /hit/"));
        }
        std::thread::sleep(TAKES);
        let control = if is_hit == Some(true) { "max-age=86400" } else { "no-store" };
        let answer = format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: 1000\r\n\r\n{body}");
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
    }
}

struct Seen {
    phases: Phases,
    samples: Vec<Sample>,
}

/// The figures of one sort in one phase.
struct Row {
    requests: usize,
    good: usize,
    p50: Duration,
    p99: Duration,
    /// The p99 of those that were refused.
    refused_p99: Duration,
}

impl Seen {
    /// The requests of a sort that were due in a phase once that had settled.
    fn of(&self, sort: Sort, phase: usize) -> impl Iterator<Item = &Sample> {
        let (begins, ends) = (self.phases.begins(phase), self.phases.begins(phase + 1));
        let begins = begins + Duration::from_secs(SETTLES);
        self.samples.iter().filter(move |sample| sample.sort == sort && (begins..ends).contains(&sample.due))
    }

    fn row(&self, sort: Sort, phase: usize) -> Row {
        let times = |is_good: bool| {
            let of = self.of(sort, phase).filter(|sample| (sample.status == 200) == is_good);
            let mut times: Vec<Duration> = of.map(|sample| sample.took).collect();
            times.sort_unstable();
            times
        };
        let part = |times: &[Duration], percent: usize| {
            times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let (good, refused) = (times(true), times(false));
        Row {
            requests: good.len() + refused.len(),
            good: good.len(),
            p50: part(&good, 50),
            p99: part(&good, 99),
            refused_p99: part(&refused, 99),
        }
    }

    /// Good answers to misses in each second of the overload once that had settled.
    fn seconds(&self) -> Vec<f64> {
        let begins = self.phases.begins(1).as_secs() + SETTLES;
        let ends = self.phases.begins(2).as_secs();
        let mut seconds = vec![0.0; usize::try_from(ends.saturating_sub(begins)).unwrap_or(0)];
        for sample in self.samples.iter().filter(|sample| sample.sort != Sort::Hit && sample.status == 200) {
            let at = (sample.due + sample.took).as_secs().checked_sub(begins).and_then(|at| usize::try_from(at).ok());
            if let Some(second) = at.and_then(|at| seconds.get_mut(at)) {
                *second += 1.0;
            }
        }
        seconds
    }

    /// Answers other than 200 and 503, and 503 that do not say when to come again.
    fn wrong(&self) -> usize {
        let is_wrong = |sample: &&Sample| match sample.status {
            200 => false,
            503 => !sample.has_retry_after,
            _ => true,
        };
        self.samples.iter().filter(is_wrong).count()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation as a part of the mean.
fn variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: Vec<f64> = values.iter().map(|value| (value - mean).powi(2)).collect();
    self::mean(&squares).sqrt() / mean.max(f64::MIN_POSITIVE)
}

/// The strongest correlation of the values with themselves some places later, from two on to a third of all, and that distance. Something
/// that swings has one near 1 at its period; what is left to chance stays below 2 / √n mostly.
fn strongest_autocorrelation(values: &[f64]) -> (usize, f64) {
    let mean = mean(values);
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let at = |lag: usize| {
        let together: f64 = values.iter().zip(values.iter().skip(lag)).map(|(a, b)| (a - mean) * (b - mean)).sum();
        (lag, together / spread.max(f64::MIN_POSITIVE))
    };
    (2..values.len() / 3).map(at).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
}

/// Answered misses and the p99 of hits through all phases.
fn picture(seen: &Seen) -> String {
    let ends = seen.phases.begins(NAMES.len()).as_secs();
    let mut answered = vec![0.0; usize::try_from(ends).unwrap_or(0)];
    let mut hits = vec![Vec::new(); usize::try_from(ends / EACH + 1).unwrap_or(1)];
    for sample in seen.samples.iter().filter(|sample| sample.status == 200) {
        let ended = usize::try_from((sample.due + sample.took).as_secs()).unwrap_or(usize::MAX);
        match (sample.sort, answered.get_mut(ended)) {
            (Sort::Hit, _) => {
                let part = usize::try_from(sample.due.as_secs() / EACH).unwrap_or(usize::MAX);
                hits.get_mut(part).into_iter().for_each(|times| times.push(sample.took));
            }
            (_, Some(second)) => *second += 1.0,
            // Answered behind the end.
            (_, None) => {}
        }
    }
    let p99 = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times.get(times.len() * 99 / 100).map(|took| took.as_secs_f64() * 1e3)
    };
    let hits =
        hits.iter_mut().enumerate().filter_map(|(part, times)| Some(((part as f64 + 0.5) * EACH as f64, p99(times)?)));
    let answered = answered.iter().enumerate().map(|(second, many)| (second as f64, *many));
    let panels = [
        plot::Panel { title: "Misses answered, requests/s".to_owned(), points: answered.collect() },
        plot::Panel { title: format!("p99 of hits in {EACH} s, ms"), points: hits.collect() },
    ];
    let bands: Vec<plot::Band> = (0..NAMES.len())
        .map(|phase| {
            let [from, to] = [phase, phase + 1].map(|phase| seen.phases.begins(phase).as_secs_f64());
            plot::Band { name: NAMES[phase], from, to }
        })
        .collect();
    plot::svg(&panels, &bands)
}

fn page(args: &Args, version: &str, seen: &Seen) -> String {
    let millis = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let mut out = format!(
        "# More requests than their origin can answer\n\n\
         `cargo xtask overload --seconds {} --factor {}`: {version} with two workers and default limits, but for {UNDER_WAY_MAX} requests under way at the origin \
         and no share for one client, so that one may have the whole queue. The origin takes {} ms for each request, which makes {CAPACITY} a second. One client asks for {HITS} hits a \
         second and {FEW} misses, another one for all other misses, one in {LOW_EVERY} of them of low priority by a rule. Without overload there are {QUIET_FACTOR} × as \
         many misses as the origin can answer, with it {} ×. Requests are due at fixed times and counted from then; clients, origin and Larder share the cores. The first \
         {SETTLES} s of each phase are left out.\n\n\
         | phase | requests | asked | answered | p50 ms | p99 ms | p99 of refusals ms |\n|---|---|---:|---:|---:|---:|---:|\n",
        args.seconds,
        args.factor,
        TAKES.as_millis(),
        args.factor,
    );
    let sorts = [
        (Sort::Hit, "hits"),
        (Sort::Few, "misses of the client that has few"),
        (Sort::Many, "misses of the client that has many"),
        (Sort::Low, "the same, of low priority"),
    ];
    for (phase, name) in NAMES.into_iter().enumerate() {
        for (sort, what) in sorts {
            let Row { requests, good, p50, p99, refused_p99 } = seen.row(sort, phase);
            let share = good as f64 / requests.max(1) as f64 * 100.0;
            let refused = if good == requests { "-".to_owned() } else { millis(refused_p99) };
            let (p50, p99) = (millis(p50), millis(p99));
            let _ = writeln!(out, "| {name} | {what} | {requests} | {share:.1} % | {p50} | {p99} | {refused} |");
        }
    }
    let seconds = seen.seconds();
    let (lag, correlation) = strongest_autocorrelation(&seconds);
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let _ = write!(
        out,
        "\nMisses answered in each of {} seconds of the overload: {:.1} in the mean, {least} to {most}; coefficient of variation {:.3}; the strongest autocorrelation is {correlation:.2}, \
         {lag} s apart (chance: {:.2}). An origin that fell over and came back would show as a correlation near 1 at its period.\n\n\
         ![misses answered and the p99 of hits through the phases](overload.svg)\n\n\
         The p99 of hits is {:.2} × that of the quiet phase. Answers other than 200 and 503, and 503 without `Retry-After`: {}.\n",
        seconds.len(),
        mean(&seconds),
        variation(&seconds),
        2.0 / (seconds.len() as f64).sqrt(),
        ratio(seen),
        seen.wrong(),
    );
    out
}

/// The p99 of hits under overload as a multiple of that without.
fn ratio(seen: &Seen) -> f64 {
    let [quiet, overload] = [0, 1].map(|phase| seen.row(Sort::Hit, phase).p99.as_secs_f64());
    overload / quiet.max(f64::MIN_POSITIVE)
}

fn judge(seen: &Seen) -> Result<(), Trouble> {
    let mut troubles = Vec::new();
    let share = |sort, phase| {
        let Row { requests, good, .. } = seen.row(sort, phase);
        good as f64 / requests.max(1) as f64
    };
    if ratio(seen) > RATIO_MAX {
        troubles.push(format!("the p99 of hits is {:.2} times the quiet one", ratio(seen)));
    }
    if (0..NAMES.len()).any(|phase| share(Sort::Hit, phase) < 1.0) {
        troubles.push("hits failed".to_owned());
    }
    let seconds = seen.seconds();
    let (lag, correlation) = strongest_autocorrelation(&seconds);
    if variation(&seconds) > VARIATION_MAX || correlation > AUTOCORRELATION_MAX {
        troubles
            .push(format!("replies vary by {:.3}, and correlate {correlation:.2} {lag} s apart", variation(&seconds)));
    }
    if share(Sort::Few, 1) < 0.99 {
        troubles.push(format!("the client that has few got {:.1} %", share(Sort::Few, 1) * 100.0));
    }
    if share(Sort::Low, 1) >= share(Sort::Many, 1) {
        troubles.push("requests of low priority got as much as others".to_owned());
    }
    if seen.wrong() > 0 {
        troubles.push(format!("{} answers were wrong", seen.wrong()));
    }
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_swings_correlates_with_itself_a_period_later() {
        let swings: Vec<f64> = (0..300).map(|at| if at % 60 < 10 { 0.0 } else { 100.0 }).collect();
        let (lag, correlation) = strongest_autocorrelation(&swings);
        assert!(lag == 60 && correlation > 0.7 || lag == 2, "{lag} {correlation}");
        assert!(correlation > AUTOCORRELATION_MAX && variation(&swings) > 0.4);
        // A sequence without an order.
        let steady: Vec<f64> =
            (0..300u64).map(|at| 400.0 + (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as f64).collect();
        let (_, correlation) = strongest_autocorrelation(&steady);
        assert!(variation(&steady) < 0.02, "{correlation}");
    }

    #[test]
    fn requests_are_due_by_the_rates_of_their_phases() {
        let phases = Phases { quiet: Duration::from_secs(10), overload: Duration::from_secs(100) };
        let at = |number| due(number, [10.0, 30.0], phases).map(|due| due.as_secs_f64());
        assert_eq!(at(50), Some(5.0));
        assert_eq!(at(100), Some(10.0));
        assert_eq!(at(130), Some(11.0));
        assert_eq!((at(3_100), at(3_200)), (Some(110.0), None));
    }
}
