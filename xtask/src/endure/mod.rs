//! A server that lives on while its surroundings fail in turn, under load: standard error, the log, names, the disk and the
//! clock. It needs root, for a mount namespace in which nothing of this machine is touched.
//!
//! Nothing may end the server or one of its threads, no answer may be wrong, memory stays within its promise, and at the end
//! SIGTERM still lets it go in order.

mod clients;
mod names;
mod troubles;

use crate::attack::horde::raise_descriptors;
use crate::lab::{self, Lab};
use crate::law::Origin;
use crate::processes::resident_kb_of_tree;
use crate::results;
use crate::shell::{self, Trouble};
use clients::Counts;
use names::NameServer;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use troubles::{TROUBLES, Trouble as Failing};

/// How long.
#[derive(clap::Args)]
pub struct Args {
    /// Minutes in all.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seconds of each trouble; as long again passes without one.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The binary to test; without it the published build (`--profile dist`) of this workspace is made and taken.
    #[arg(long)]
    larder: Option<PathBuf>,
    /// Show the table only; otherwise it is written to docs/results/.
    #[arg(long)]
    dry: bool,
}

const MEMORY_BYTES: u64 = 64_000_000;
/// The budget and a tenth, what lies beside it, and what the library that moves the clock takes.
const RESIDENT_BYTES_MAX: u64 = MEMORY_BYTES / 10 * 11 + 24_000_000 + 4_000_000;
const CLIENTS: usize = 6;
/// How long a client may wait while something fails; what takes longer counts as silence.
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// Plays it and prints what came of each trouble.
pub fn run(args: &Args) -> Result<(), Trouble> {
    if !rustix::process::geteuid().is_root() {
        return Err("this needs root, for a mount namespace of its own".into());
    }
    let root = shell::workspace()?;
    let program = shell::given_or_published_larder(&root, args.larder.as_ref())?;
    raise_descriptors()?;
    let story = play(&program, args)?;
    let text = story.page();
    println!("{text}");
    if !args.dry {
        results::publish(&root, "endure", &format!("# Surroundings that fail in turn\n\n{ABOUT}\n{text}"))?;
    }
    let broken = story.broken();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

const ABOUT: &str = "`cargo xtask endure`; two shared virtual cores, loopback, Larder with two workers, `memory = 64MB` and a disk store on a file system of 96 MB; the log on one of 4 MB; six
clients ask for 3,000 objects of three hosts by name. `unanswered`: requests that ended without a whole answer; `refused`: those that got an error page.
";

/// The server under test, in a mount namespace of its own.
pub struct Subject {
    /// Its process.
    pub id: u32,
    child: Child,
    /// Its folder, seen from here.
    pub seen: PathBuf,
    /// The file that says what time it is for it, if the library for that is here.
    pub clock: Option<PathBuf>,
    /// The name server of this Larder.
    pub names: NameServer,
}

fn play(program: &Path, args: &Args) -> Result<Story, Trouble> {
    let mut lab = Lab::new()?;
    let (_origin, origin_port) = Origin::start()?;
    let port = lab::free_port()?;
    let subject = start(&mut lab, program, port)?;
    let began_with = threads(subject.id)?;
    let (goes_on, counts) = (AtomicBool::new(true), Counts::default());
    let mut story = Story::default();
    std::thread::scope(|scope| -> Result<(), Trouble> {
        for number in 0..CLIENTS {
            let (goes_on, counts) = (&goes_on, &counts);
            scope.spawn(move || clients::ask_on(number, port, origin_port, goes_on, counts));
        }
        let end = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
        let mut turns = TROUBLES.iter().cycle();
        let mut watched = Ok(());
        while Instant::now() < end && watched.is_ok() {
            let Some(trouble) = turns.next() else { break };
            let before = counts.read();
            let told = (trouble.begin)(&subject);
            watched = story.watch(&subject, args.seconds);
            (trouble.end)(&subject);
            let during = counts.read().since(before);
            story.turn(trouble, told, during);
            watched = watched.and_then(|()| story.watch(&subject, args.seconds));
        }
        goes_on.store(false, Ordering::Relaxed);
        watched
    })?;
    story.counts = counts.read();
    story.lost_threads = lost(&began_with, &threads(subject.id)?);
    story.end = Some(stop(subject)?);
    Ok(story)
}

/// Its standard error is a pipe that nobody reads from the first moment on.
fn start(lab: &mut Lab, program: &Path, port: u16) -> Result<Subject, Trouble> {
    let folder = lab.path().to_owned();
    let names = NameServer::start()?;
    lab.write("resolv.conf", format!("nameserver {}\noptions timeout:1 attempts:1\n", names.address))?;
    let text = format!(
        "memory = {MEMORY_BYTES}\ndisk = \"64MB\"\ndisk_free_min = \"8MB\"\nworkers = 2\nadmin = \"127.0.0.1:{}\"\nstore = {:?}\n\
         [[listen]]\naddress = \"127.0.0.1:{port}\"\n[log]\nto = {:?}\n[timeouts]\ndrain = \"10s\"\n",
        lab::free_port()?,
        folder.join("store"),
        folder.join("log/access.log"),
    );
    lab.write("larder.toml", text)?;
    std::fs::create_dir_all(folder.join("store")).map_err(|error| error.to_string())?;
    std::fs::create_dir_all(folder.join("log")).map_err(|error| error.to_string())?;
    let clock = lab.write("clock", "+0\n")?;
    let library = faketime();
    let dir = folder.display();
    let script = format!(
        "mount -t tmpfs -o size=96m tmpfs {dir}/store && mount -t tmpfs -o size=4m tmpfs {dir}/log && \
         mount --bind {dir}/resolv.conf /etc/resolv.conf && exec \"$0\" --config {dir}/larder.toml"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]).arg(program);
    command.env("LARDER_LOG", "larder=debug,warn").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(library) = &library {
        command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &clock);
        command.envs([("FAKETIME_NO_CACHE", "1"), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
    }
    let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    let wait = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > wait || !matches!(child.try_wait(), Ok(None)) {
            let mut said = String::new();
            child.kill().ok();
            if let Some(mut errors) = child.stderr.take() {
                std::io::Read::read_to_string(&mut errors, &mut said).ok();
            }
            return Err(format!("larder does not listen: {}", shell::last_lines(&said, 15)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(child.stderr.take());
    let id = child.id();
    let seen = PathBuf::from(format!("/proc/{id}/root{}", folder.display()));
    Ok(Subject { id, child, seen, clock: library.map(|_| clock), names })
}

/// The library that gives a program another time, as Debian installs it.
fn faketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join("faketime"));
    folders
        .chain([PathBuf::from("/usr/lib/faketime")])
        .map(|folder| folder.join("libfaketime.so.1"))
        .find(|file| file.is_file())
}

/// Names of threads and how many have each.
fn threads(id: u32) -> Result<BTreeMap<String, usize>, Trouble> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).map_err(|error| format!("larder has ended: {error}"))?;
    let mut names = BTreeMap::new();
    for task in tasks.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        *names.entry(name.trim().to_owned()).or_default() += 1;
    }
    Ok(names)
}

/// Threads that were there and are not. The runtime's pool of helpers comes and goes.
fn lost(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>) -> Vec<String> {
    let gone = |(name, many): (&String, &usize)| {
        let left = after.get(name).copied().unwrap_or(0);
        (left < *many && !name.starts_with("tokio")).then(|| format!("{name}: {left} of {many}"))
    };
    before.iter().filter_map(gone).collect()
}

fn stop(mut subject: Subject) -> Result<(ExitStatus, Duration), Trouble> {
    let began = Instant::now();
    subject.signal(rustix::process::Signal::TERM);
    while began.elapsed() < STOP_WITHIN {
        if let Some(status) = subject.child.try_wait().map_err(|error| error.to_string())? {
            return Ok((status, began.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("SIGTERM did not end it".into())
}

impl Subject {
    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(id) = rustix::process::Pid::from_raw(self.id as i32) {
            rustix::process::kill_process(id, signal).ok();
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The results of the run.
#[derive(Default)]
struct Story {
    turns: BTreeMap<&'static str, Turn>,
    counts: clients::Reading,
    resident_kb_max: u64,
    lost_threads: Vec<String>,
    end: Option<(ExitStatus, Duration)>,
}

#[derive(Default)]
struct Turn {
    times: usize,
    skipped: Option<String>,
    counts: clients::Reading,
}

impl Story {
    fn watch(&mut self, subject: &Subject, seconds: u64) -> Result<(), Trouble> {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
            let resident = resident_kb_of_tree(subject.id).map_err(|error| format!("larder has ended: {error}"))?;
            self.resident_kb_max = self.resident_kb_max.max(resident);
        }
        Ok(())
    }

    fn turn(&mut self, trouble: &Failing, told: Result<(), Trouble>, counts: clients::Reading) {
        let turn = self.turns.entry(trouble.name).or_default();
        turn.times += 1;
        turn.skipped = told.err();
        turn.counts = turn.counts.plus(counts);
    }

    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.counts.wrong > 0 {
            broken.push(format!("{} wrong answers", self.counts.wrong));
        }
        if self.counts.answered == 0 {
            broken.push("nothing was answered".to_owned());
        }
        let unanswered = self.counts.unanswered;
        if unanswered * 10_000 > self.counts.answered {
            broken.push(format!("{unanswered} requests without an answer"));
        }
        if !self.lost_threads.is_empty() {
            broken.push(format!("threads lost: {}", self.lost_threads.join(", ")));
        }
        let resident = self.resident_kb_max * 1_024;
        if resident > RESIDENT_BYTES_MAX {
            broken.push(format!("{resident} bytes resident, {RESIDENT_BYTES_MAX} promised"));
        }
        match &self.end {
            Some((status, _)) if status.success() => {}
            Some((status, _)) => broken.push(format!("it ended with {status} (signal {:?})", status.signal())),
            None => broken.push("it did not end in order".to_owned()),
        }
        broken
    }

    fn page(&self) -> String {
        let mut text = String::from(
            "| failing | times | answered | refused | unanswered | wrong |\n|---|---:|---:|---:|---:|---:|\n",
        );
        for (name, turn) in &self.turns {
            let clients::Reading { answered, refused, unanswered, wrong } = turn.counts;
            let skipped = turn.skipped.as_ref().map(|why| format!(" (not played: {why})")).unwrap_or_default();
            writeln!(text, "| {name}{skipped} | {} | {answered} | {refused} | {unanswered} | {wrong} |", turn.times)
                .ok();
        }
        let clients::Reading { answered, refused, unanswered, wrong } = self.counts;
        writeln!(text, "| all, with the times between | | {answered} | {refused} | {unanswered} | {wrong} |").ok();
        let end = self
            .end
            .as_ref()
            .map_or("never".to_owned(), |(status, took)| format!("{status} after {:.1} s", took.as_secs_f64()));
        let lost = if self.lost_threads.is_empty() { "none".to_owned() } else { self.lost_threads.join(", ") };
        write!(
            text,
            "\nMost memory resident {:.1} MB (promised {:.1}); threads lost: {lost}; SIGTERM: {end}.\n",
            self.resident_kb_max as f64 * 1.024 / 1e3,
            RESIDENT_BYTES_MAX as f64 / 1e6
        )
        .ok();
        text
    }
}
