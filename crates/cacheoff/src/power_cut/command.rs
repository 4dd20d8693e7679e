//! `cacheoff power-cut`.

use super::device::missing;
use super::{Cut, TEST};
use crate::contest::bench::{BenchArgs, Budget};
use crate::contest::{Discipline, EntrySpec, Post};
use crate::kill::origin::Origin;
use crate::kill::{Settings, failed, keep};
use crate::ledger::Ledger;
use crate::stop;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

/// A small one: the device is made in the memory of this machine.
const BUDGET: Budget = Budget(64, 512);

/// Cuts the power under the store of a cache, on a device made by the test, and measures what is left and how soon it is
/// served. Needs root, /dev/fuse and a loop device; everything is mounted in a namespace of its own.
#[derive(clap::Args, Debug)]
pub struct PowerCutArgs {
    /// Entries, and the machine that they share with the referee
    #[command(flatten)]
    bench: BenchArgs,
    /// How the cache is asked
    #[arg(long, default_value = "reverse", value_parser = ["forward", "reverse"])]
    mode: String,
    /// Objects that are stored before the cut
    #[arg(long, default_value_t = 2_000)]
    objects: u32,
    /// Seconds of load before the cut, in which new objects are stored until the last moment; Linux itself writes after 35
    #[arg(long, default_value_t = 60)]
    load_s: u64,
    /// Seconds without power
    #[arg(long, default_value_t = 5)]
    dark_s: u64,
    /// Seconds from the start until the objects kept are counted, for stores that read their index behind their first answers
    #[arg(long, default_value_t = 30)]
    settle_s: u64,
    /// Which of the unsynced writes are lost or torn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This process is in the mount namespace of the test
    #[arg(long, hide = true)]
    in_namespace: bool,
}

impl PowerCutArgs {
    /// Tests one entry after the other and gives the report.
    pub fn run(&self) -> Result<ExitCode, String> {
        let specs = self.specs()?;
        self.bench.outputs.check()?;
        if let Some(reason) = missing() {
            return Err(reason);
        }
        if !self.in_namespace {
            return in_namespace();
        }
        let address = self.bench.origin();
        let origin =
            Origin::start(address).map_err(|error| format!("the origin cannot listen on {address}: {error}"))?;
        let settings = Settings {
            objects: self.objects,
            load: Duration::from_secs(self.load_s),
            dark: Duration::from_secs(self.dark_s),
            settle: Duration::from_secs(self.settle_s),
            ..Settings::default()
        };
        let mut ledgers = Vec::new();
        for spec in specs {
            if stop::is_asked() {
                eprintln!("{TEST}: stopped, the entries that are left are not played");
                break;
            }
            let label = spec.name.clone();
            let mut tell = |text: &str| eprintln!("{TEST}: {label}: {text}");
            let cut = Cut { settings: &settings, seed: self.seed };
            let ledger = match spec.can(&self.mode, "disk") {
                Ok(()) => cut.play(spec, self.post(&origin), &origin, &mut tell),
                Err(reason) => failed(TEST, &label, reason),
            };
            if let Some(folder) = self.bench.folder() {
                keep(folder, TEST, &label, &ledger)?;
            }
            ledger.notes.iter().for_each(|note| println!("{label}: {}", note.text));
            ledgers.push(ledger);
        }
        let done = self.bench.outputs.give(&ledgers)?;
        let wrong = ledgers.iter().flat_map(|ledger| &ledger.downtimes).any(|found| found.wrong > 0);
        Ok(if wrong { ExitCode::FAILURE } else { done })
    }

    fn specs(&self) -> Result<Vec<EntrySpec>, String> {
        let specs = self.bench.specs()?;
        if specs.is_empty() {
            return Err("no cache: give --entries or --entry".to_owned());
        }
        match specs.iter().find(|spec| spec.program.is_empty()) {
            Some(asked) => Err(format!("{} is not started by its entry, so that its power cannot be cut", asked.name)),
            None => Ok(specs),
        }
    }

    fn post(&self, origin: &Origin) -> Post {
        // The store has to be on the disk, not in memory.
        Post { origin: origin.address(), ..self.bench.post(&self.mode, "disk", BUDGET) }
    }
}

/// Flags of this command that a discipline of a contest may change, as `power-cut:load_s=30`.
const KNOBS: [&str; 5] = ["objects", "load_s", "dark_s", "settle_s", "seed"];

/// Whether the power can be cut here, as this discipline wants it.
pub fn check(discipline: &Discipline) -> Result<(), String> {
    let wrong = discipline.changes.iter().find(|(knob, value)| {
        let fits = value.parse::<u64>().is_ok_and(|number| knob != "objects" || u32::try_from(number).is_ok());
        !KNOBS.contains(&knob.as_str()) || !fits
    });
    match wrong {
        Some((knob, value)) => {
            Err(format!("{TEST}:{knob}={value}: it has {}, each with a whole number", KNOBS.join(", ")))
        }
        None => missing().map_or(Ok(()), Err),
    }
}

/// Cuts the power of an entry of a contest: by this command in a process of its own, since mounts and caches are in
/// namespaces of it. The seed is the round unless the discipline has one.
pub fn cut_entry(discipline: &Discipline, spec: &EntrySpec, post: &Post, round: u32) -> Ledger {
    let title = discipline.title();
    let ledger = if spec.program.is_empty() {
        Err("it is not started by its entry, so that its power cannot be cut".to_owned())
    } else {
        cut_by_command(discipline, spec, post, round)
    };
    let mut ledger = ledger.unwrap_or_else(|reason| failed(TEST, &spec.name, reason));
    (ledger.run.workload.name, ledger.run.label) = (title, spec.name.clone());
    ledger
}

fn cut_by_command(discipline: &Discipline, spec: &EntrySpec, post: &Post, round: u32) -> Result<Ledger, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for its ledger: {error}"))?;
    let own = std::env::current_exe().map_err(|error| format!("the own program is not found: {error}"))?;
    let cores: Vec<String> = post.cores.iter().map(usize::to_string).collect();
    let mut command = Command::new(own);
    command.args([TEST, "--mode", &post.mode, "--cache-cores", &cores.join(",")]);
    command.args(["--port", &post.port.to_string(), "--origin-port", &post.origin.port().to_string()]);
    command.args(["--memory-mb", &post.memory_mb.to_string(), "--disk-mb", &post.disk_mb.to_string()]);
    match &spec.source {
        Some(source) if spec.name.contains('/') => {
            return Err(format!("{}: the power of an own entry is cut in its usual tuning alone", source.display()));
        }
        Some(source) => command.args(["--entries", ""]).arg("--entry").arg(source),
        None => command.args(["--entries", &spec.name]),
    };
    if !discipline.changes.iter().any(|(knob, _)| knob == "seed") {
        command.args(["--seed", &round.to_string()]);
    }
    for (knob, value) in &discipline.changes {
        command.args([&format!("--{}", knob.replace('_', "-")), value]);
    }
    command.arg("--folder").arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    // Its status tells of wrong answers, which the ledger has as well.
    let status = wait(command.process_group(0))?;
    let mut files = std::fs::read_dir(folder.path()).map_err(|error| format!("no ledger: {error}"))?.flatten();
    let file = files.next().ok_or_else(|| format!("it ended without a ledger: {status}"))?.path();
    let unreadable = |error: &dyn std::fmt::Display| format!("its ledger cannot be read: {error}");
    let file = std::fs::File::open(file).map_err(|error| unreadable(&error))?;
    Ledger::read(std::io::BufReader::new(file)).map_err(|error| unreadable(&error))
}

/// Runs this very command again in a mount namespace of its own, hands signals on, and gives its status.
fn in_namespace() -> Result<ExitCode, String> {
    let failed = |error: std::io::Error| format!("no mount namespace: {error}");
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new("unshare");
    // With a namespace of processes too: when its first process has gone, however it went, the kernel ends all others, and
    // with them the last users of the mounts.
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.arg(own).args(std::env::args_os().skip(1));
    // In a process group of its own, so that every signal comes to it once, by this process.
    let status = wait(command.arg("--in-namespace").process_group(0))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2);
    Ok(ExitCode::from(code))
}

/// Runs a command that leads its own process group to its end, and hands on a request to stop.
fn wait(command: &mut Command) -> Result<ExitStatus, String> {
    let name = command.get_program().display().to_string();
    let failed = |error: std::io::Error| format!("{name} cannot be run: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if stop::is_asked() && !std::mem::replace(&mut told, true) {
            let _ = Pid::from_raw(child.id().cast_signed()).map(|group| kill_process_group(group, Signal::TERM));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
