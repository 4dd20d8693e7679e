//! `cacheoff ceiling`: what the generator itself can do, against a fixed responder on another core, beside wrk and ab in
//! the same minutes. Every reply that the robots get is verified; those of the others are counted.

mod responder;

use crate::contest::Discipline;
use crate::engine::Settings;
use crate::ledger::{Interval, Ledger, Load, Run, Side, WorkloadFacts};
use crate::object::{Name, World};
use crate::origin::{Departure, Manner, answer};
use crate::proc::{Watched, machine, own_command, system_tuning};
use crate::run::command::read;
use crate::run::{Order, Wanted, bind_to, derive, robot_count, route, run_since};
use crate::stop;
use crate::wire::{Burden, Clock, ECHO, HEAD_LIMITS, Xact};
use crate::workload::Workload;
use larder_wire::parse::{HeadScan, Parsed};
pub use responder::ResponderArgs;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const READY: Duration = Duration::from_secs(5);
/// How often it is looked whether another generator is through.
const LOOK: Duration = Duration::from_millis(20);
/// Memory is stated for so many robots.
const MANY: u32 = 10_000;

/// Measures what the generator itself can do.
#[derive(clap::Args, Debug)]
pub struct CeilingArgs {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Connections
    #[arg(long, default_value_t = 15)]
    connections: u32,
    /// Bytes of the body
    #[arg(long, default_value_t = 600)]
    bytes: u64,
    /// Core of the responder
    #[arg(long, default_value_t = 0)]
    responder_core: usize,
    /// Core of the generators
    #[arg(long, default_value_t = 1)]
    core: usize,
    /// Port of the responder
    #[arg(long, default_value_t = 24_128)]
    port: u16,
    /// Write the table into this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// One generator's figures.
struct Figure {
    name: String,
    replies: f64,
    seconds: f64,
    /// Cores that it used, and the responder.
    cpu: f64,
    responder_cpu: Option<f64>,
    note: String,
}

impl CeilingArgs {
    /// Measures, prints the table.
    pub fn run(&self) -> Result<ExitCode, String> {
        let mut figures = vec![self.robots(self.connections)?.0];
        let others: [fn(&Self) -> Option<Figure>; 2] = [Self::wrk, Self::ab];
        figures.extend(others.iter().filter(|_| !stop::is_asked()).filter_map(|other| other(self)));
        let many = if stop::is_asked() { None } else { Some(self.robots(MANY)?) };
        let load = many.map(|(figure, load)| {
            figures.push(figure);
            load
        });
        let text = self.table(&figures, load.as_ref());
        println!("{text}");
        if stop::is_asked() {
            eprintln!("ceiling: stopped, the measurements that are left are not made");
        }
        // A table that is not whole takes no other one's place.
        if let Some(file) = self.out.as_ref().filter(|_| !stop::is_asked()) {
            std::fs::write(file, &text).map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Verified replies of so many robots, as a ledger.
    fn play(&self, count: u32) -> Result<Ledger, String> {
        let change = |knob: &str, value: String| (knob.to_owned(), value);
        let changes = vec![
            change("robot.count", count.to_string()),
            change("interest.working_set", "fixed(1)".to_owned()),
            change("content.page.size", format!("{}B", self.bytes)),
            change("phase.measure.length", format!("{}s", self.seconds)),
        ];
        let workload = read(&Discipline { changes, ..Discipline::of("hammer") }, 1.0)?.workload;
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let route = route(None, Some((self.address(), self.address().to_string())), 0);
        let wanted = Wanted { peak: None, seed: 1, epoch, route, workers: 1, cache_bytes: None, log: None, tls: None };
        let (mut settings, phases) = derive(&workload, &wanted)?;
        settings.origins.are_asked = false;
        let mut responder = Responder::start(self, &reply(&settings)?)?;
        let order = Order {
            settings,
            phases,
            head: self.head(count, epoch),
            ledger: None,
            watched: Watched::Tree(responder.child.id()),
            cores: vec![self.core],
            power: None,
            shows: false,
            stop: stop::flag(),
        };
        let ledger = run_since(order, Some(epoch))?;
        responder.end();
        Ok(ledger)
    }

    fn head(&self, count: u32, epoch: u64) -> Run {
        let name = format!("ceiling of the generator, {count} robots, {} bytes", self.bytes);
        Run {
            cacheoff: env!("CARGO_PKG_VERSION").to_owned(),
            label: "built-in server".to_owned(),
            command: own_command(),
            workload: WorkloadFacts { name, scale: 1.0, ..WorkloadFacts::default() },
            machine: machine(&self.core.to_string()),
            tuning: system_tuning(),
            seed: 1,
            started_unix: epoch,
            ..Run::default()
        }
    }

    fn robots(&self, count: u32) -> Result<(Figure, Load), String> {
        let ledger = self.play(count)?;
        let (whole, load) = measured(&ledger);
        // That a fixed reply says no Age is right of it.
        if let Some(exhibit) = whole.errors.exhibits.iter().find(|exhibit| !exhibit.trouble.is_remark()) {
            return Err(format!("{} errors, the first at {}: {}", whole.errors.total(), exhibit.url, exhibit.detail));
        }
        let open = whole.connections.get(&Side::Client).map_or(0, |side| side.open);
        let figure = Figure {
            name: format!("cacheoff, {count} robots"),
            replies: whole.replies() as f64,
            seconds: whole.length_us as f64 / 1e6,
            cpu: f64::from(load.own_cpu),
            responder_cpu: Some(f64::from(load.cache_cpu)),
            note: format!("every reply verified; {open} connections, {:.1} MB", load.own_memory as f64 / 1e6),
        };
        Ok((figure, load))
    }

    /// wrk, if it is installed.
    fn wrk(&self) -> Option<Figure> {
        let words = ["-t1", &format!("-c{}", self.connections), &format!("-d{}s", self.seconds)];
        let (text, seconds, cpu) = self.other("wrk", &[&words[..], &[&self.url()]].concat())?;
        let replies = number_before(&text, " requests in")?;
        let (name, note) = ("wrk, one thread".to_owned(), "counts replies".to_owned());
        Some(Figure { name, replies, seconds, cpu, responder_cpu: None, note })
    }

    /// ab, if it is installed.
    fn ab(&self) -> Option<Figure> {
        let limit = self.seconds.to_string();
        let words = ["-q", "-k", "-t", &limit, "-n", "100000000", "-c", &self.connections.to_string(), &self.url()];
        let (text, seconds, cpu) = self.other("ab", &words)?;
        let replies = text.lines().find_map(|line| line.strip_prefix("Complete requests:"))?.trim().parse().ok()?;
        let (name, note) = ("ab -k".to_owned(), "counts replies".to_owned());
        Some(Figure { name, replies, seconds, cpu, responder_cpu: None, note })
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address())
    }

    /// Runs another generator on the same core against the same reply; says what it printed, how long it took, and the
    /// cores it used.
    fn other(&self, program: &str, words: &[&str]) -> Option<(String, f64, f64)> {
        let body = vec![b'c'; self.bytes as usize];
        let head = format!("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: {}\r\n\r\n", body.len());
        let mut responder = Responder::start(self, &[head.as_bytes(), &body].concat()).ok()?;
        let (before, begun) = (children_cpu_s(), Instant::now());
        let core = self.core;
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let program = program.to_owned();
        let output = std::thread::spawn(move || {
            bind_to(Some(core));
            let mut command = Command::new(program);
            until_stopped(command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()))
        });
        let output = output.join().ok()??;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = (children_cpu_s() - before) / seconds;
        responder.end();
        Some((String::from_utf8_lossy(&output.stdout).into_owned(), seconds, cpu))
    }

    fn table(&self, figures: &[Figure], many: Option<&Load>) -> String {
        let machine = machine("");
        let mut text = format!(
            "# Capacity of the generator\n\nMade by `cacheoff ceiling --seconds {} --connections {} --bytes {}`: a fixed responder on core {}, the generators on core {}, one \
             after the other.\nMachine: {} cores of {}, {}{}.\n\n\
             | generator | replies/s | its CPU, cores | replies/s for each core of its own | µs of CPU a reply | responder, cores | |\n|---|---|---|---|---|---|---|\n",
            self.seconds,
            self.connections,
            self.bytes,
            self.responder_core,
            self.core,
            machine.cores,
            machine.processor,
            machine.kernel,
            if machine.virtual_machine { ", virtual" } else { "" },
        );
        for figure in figures {
            let rate = figure.replies / figure.seconds.max(1e-9);
            let responder = figure.responder_cpu.map_or("–".to_owned(), |cpu| format!("{cpu:.2}"));
            let per_core = rate / figure.cpu.max(1e-9);
            let _ = writeln!(
                text,
                "| {} | {rate:.0} | {:.2} | {per_core:.0} | {:.2} | {responder} | {} |",
                figure.name,
                figure.cpu,
                1e6 / per_core.max(1e-9),
                figure.note,
            );
        }
        let Some(many) = many else { return text };
        let _ = writeln!(
            text,
            "\nMemory of {MANY} robots with a connection each: {:.1} MB, {:.2} MB for 1,000.",
            many.own_memory as f64 / 1e6,
            many.own_memory as f64 / 1e6 / f64::from(MANY) * 1e3,
        );
        text
    }
}

/// Measures one thread of the generator on one core, the responder on another, with as many robots and as large bodies as the load has:
/// the ledger of a short run.
pub fn of_generator(
    load: &Workload,
    peak: f64,
    seconds: u64,
    cores: (usize, usize),
    port: u16,
) -> Result<Ledger, String> {
    let (robots, bytes) = (robot_count(load, Some(peak))?, load.body_mean().round().max(1.0) as u64);
    let (core, responder_core) = cores;
    CeilingArgs { seconds, connections: robots, bytes, responder_core, core, port, out: None }.play(robots)
}

/// The reply that the origin would give for the only object, as a cache would give it again.
fn reply(settings: &Settings) -> Result<Vec<u8>, String> {
    let law = &settings.law;
    let name = Name { server: 0, content: 0, world: World::Public { worker: 0 }, number: 1, embedded: false };
    let facts = law.facts(&name);
    let mut request = b"GET ".to_vec();
    law.path(&name, &facts, &mut request);
    request.extend_from_slice(format!(" HTTP/1.1\r\nHost: any\r\n{ECHO}: ").as_bytes());
    Xact { tag: law.tag, number: u64::MAX }.write(Burden::default(), &mut request);
    request.extend_from_slice(b"\r\n\r\n");
    let parsed = HeadScan::new().request(&request, &HEAD_LIMITS).map_err(|fault| fault.to_string())?;
    let Parsed::Complete { head, .. } = parsed else { return Err("the request is not whole".to_owned()) };
    let mut out = Vec::new();
    let clock = Clock::at(law.epoch);
    let departure = Departure { clock: &clock, at: Duration::ZERO, seal: &settings.seal };
    let given = answer(&head, law, departure, Manner::default(), &mut out);
    if let Some((body, range)) = given.body {
        let at = out.len();
        out.resize(at + (range.end - range.start) as usize, 0);
        body.fill(range.start, &mut out[at..]);
    }
    Ok(out)
}

/// All logged phases as one, with means of the load.
fn measured(ledger: &Ledger) -> (Interval, Load) {
    let summary = crate::report::Summary::of(ledger);
    let load = summary.load.unwrap_or_default();
    (summary.phase, load)
}

/// The responder as a process of its own, so that its CPU is told from ours. Dropping it ends it.
struct Responder {
    child: Child,
    _reply: tempfile::NamedTempFile,
}

impl Responder {
    fn start(args: &CeilingArgs, bytes: &[u8]) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the responder cannot be started: {error}");
        let file = tempfile::NamedTempFile::new().map_err(failed)?;
        std::fs::write(file.path(), bytes).map_err(failed)?;
        let (own, core) = (std::env::current_exe().map_err(failed)?, args.responder_core);
        let mut command = Command::new(own);
        command.arg("responder").arg(args.address().to_string()).arg(file.path()).stdin(Stdio::null());
        let child = std::thread::spawn(move || {
            bind_to(Some(core));
            stop::start(|| command.spawn())
        });
        let child = child.join().map_err(|_| "the responder cannot be started".to_owned())?.map_err(failed)?;
        let mut started = Self { child, _reply: file };
        let begun = Instant::now();
        while TcpStream::connect(args.address()).is_err() {
            if begun.elapsed() > READY || matches!(started.child.try_wait(), Ok(Some(_))) {
                return Err(format!("the responder does not listen on {}: choose another --port", args.address()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(started)
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        stop::ended(self.child.id());
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.end();
    }
}

/// The output of a program, which is ended by a signal to this one.
fn until_stopped(command: &mut Command) -> Option<Output> {
    let mut child = stop::start(|| command.spawn()).ok()?;
    let pid = child.id();
    while matches!(child.try_wait(), Ok(None)) {
        if stop::is_asked() {
            let _ = child.kill();
        }
        std::thread::sleep(LOOK);
    }
    let output = child.wait_with_output().ok();
    stop::ended(pid);
    output.filter(|_| !stop::is_asked())
}

/// CPU of children that ended and were waited for, in seconds.
fn children_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(13).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The number that stands before some words.
fn number_before(text: &str, words: &str) -> Option<f64> {
    text[..text.find(words)?].split_whitespace().next_back()?.parse().ok()
}
