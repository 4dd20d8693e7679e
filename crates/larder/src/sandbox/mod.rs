//! Confinement of the server's own process (`sandbox`, docs/sandbox.md): files that its settings do not name it cannot read or write, it
//! listens on their ports alone, and it starts no programs. A bound that the kernel lacks is told of, and the server goes on without it.
//!
//! Rights of files (`files`) hold for a thread and for those that it starts, so they are given up before there is a second one.
//! System calls (`calls`) are given up by all threads at once, when everything is open. Neither comes back, so a reload that needs
//! more is refused ([`covers`]). Scripts and helpers are programs that need a system: with one of them more is left open.

mod calls;
mod connections;
mod files;
mod named;

use crate::config::{Config, Loaded};
use named::{Named, Programs};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The state of the confinement, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// Whether it is asked for.
    pub is_on: bool,
    /// The bounds that are in force.
    pub holds: Vec<String>,
    /// Bounds that this system lacks, with the reason.
    pub lacks: Vec<String>,
    /// Scripts and helpers, for whose sake programs may be started and more files are open.
    pub programs: Vec<String>,
}

/// The needs that this process has kept the rights for, known as soon as it gives up the rest: a reload may come before all is open. A process has one
/// confinement, whatever runs in it.
static KEPT: OnceLock<Named> = OnceLock::new();

static REPORT: OnceLock<SandboxReport> = OnceLock::new();

/// The state of the confinement of this process.
pub fn report() -> SandboxReport {
    REPORT.get().cloned().unwrap_or_default()
}

/// A process that has given up its rights to files, and keeps system calls until everything is open.
#[must_use = "system calls are given up by `close`"]
pub struct Sandbox {
    report: SandboxReport,
}

impl Sandbox {
    /// Gives up rights to privileges, core dumps and files, as far as the system can; `None` where `sandbox` is off. To be called while
    /// the process has one thread.
    pub fn enter(loaded: &Loaded) -> Option<Sandbox> {
        if !loaded.config.sandbox {
            return None;
        }
        let mut named = Named::of(&loaded.config, &loaded.files);
        let mut report =
            SandboxReport { is_on: true, programs: named.program_names.clone(), ..SandboxReport::default() };
        report.note("no new privileges", no_new_privileges());
        report.note("no core dumps", no_core_dumps());
        files::prepare_folders(&loaded.config, &mut named);
        named.resolve();
        for bound in files::give_up(&named) {
            report.note(&bound.words, bound.enforced);
        }
        // Programs that are started while the rest is opened have the bounds too.
        if named.programs != Programs::None {
            report.note(calls::WITH_PROGRAMS, calls::give_up(&named));
        }
        let _ = KEPT.set(named);
        Some(Sandbox { report })
    }

    /// Gives up the system calls that a server without programs does not need, in all threads.
    pub fn close(self) {
        let Sandbox { mut report } = self;
        if let Some(named) = KEPT.get().filter(|named| named.programs == Programs::None) {
            report.note(calls::ALONE, calls::give_up(named));
        }
        for lack in &report.lacks {
            tracing::warn!("sandbox: not in force: {lack}");
        }
        if !report.programs.is_empty() {
            tracing::warn!(
                "sandbox: programs may be started and more files are open, for {}",
                report.programs.join(", ")
            );
        }
        tracing::info!("sandbox: {}", report.holds.join("; "));
        let _ = REPORT.set(report);
    }
}

impl SandboxReport {
    fn note(&mut self, bound: &str, enforced: Result<(), String>) {
        match enforced {
            Ok(()) => self.holds.push(bound.to_owned()),
            Err(why) => self.lacks.push(format!("{bound}: {why}")),
        }
    }
}

/// Whether settings that were read from these files need no more than this process has kept. The error says what they need, and the remedy.
pub fn covers(config: &Config, files: &[PathBuf]) -> Result<(), String> {
    let Some(kept) = KEPT.get() else { return Ok(()) };
    let beyond = beyond(kept, &Named::of(config, files));
    match beyond.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "error: the sandbox has given up what these settings need: {}\nhint: {REMEDY}",
            beyond.join("; ")
        )),
    }
}

/// An error of reading the configuration, with the remedy where the reason may be that the file's folder was given up.
pub fn with_remedy(trouble: String) -> String {
    /// As the system says EACCES.
    const DENIED: &str = "ermission denied";
    match KEPT.get() {
        Some(_) if trouble.contains(DENIED) => {
            format!(
                "{}\nhint: the sandbox has given up files that the settings did not name: {REMEDY}",
                trouble.trim_end()
            )
        }
        _ => trouble,
    }
}

/// The reason why a command can't join this server, whose requests would lead to any port.
pub fn refuses_runs() -> Option<String> {
    let connections::Connections::To(ports) = &KEPT.get()?.connected else { return None };
    let ports = connections::list(ports);
    Some(format!(
        "the sandbox of this server leaves it connections to the ports {ports} alone: name another store with --store"
    ))
}

const REMEDY: &str = "restart Larder to have them in force; the settings of before hold until then";

/// The needs of `wanted` that `kept` does not have.
fn beyond(kept: &Named, wanted: &Named) -> Vec<String> {
    let mut beyond = Vec::new();
    if wanted.programs > kept.programs {
        beyond.push(format!("programs for {}", wanted.program_names.join(", ")));
    }
    if kept.programs == Programs::Any {
        return beyond;
    }
    if kept.programs == Programs::None {
        let left: Vec<&PathBuf> = kept.read.iter().chain(&kept.write).chain(&kept.sockets).collect();
        beyond.extend(paths_beyond(&left, &wanted.read).iter().map(|path| format!("reading below {path}")));
        let ports: Vec<String> = wanted.listened.difference(&kept.listened).map(u16::to_string).collect();
        if !ports.is_empty() {
            beyond.push(format!("listening on TCP port {}", ports.join(", ")));
        }
        if !wanted.connected.are_within(&kept.connected) {
            beyond.push(format!("connections to TCP ports {}", wanted.connected));
        }
    }
    beyond.extend(
        paths_beyond(&kept.write.iter().collect::<Vec<_>>(), &wanted.write)
            .iter()
            .map(|path| format!("writing below {path}")),
    );
    let left: Vec<&PathBuf> = kept.write.iter().chain(&kept.sockets).collect();
    beyond.extend(paths_beyond(&left, &wanted.sockets).iter().map(|path| format!("Unix sockets in {path}")));
    beyond
}

/// The paths that lie below none of those that are left. One that is not there is no matter of rights.
fn paths_beyond(left: &[&PathBuf], wanted: &BTreeSet<PathBuf>) -> Vec<String> {
    let is_beyond =
        |path: &PathBuf| fs::canonicalize(path).is_ok_and(|path| !left.iter().any(|left| path.starts_with(left)));
    wanted.iter().filter(|path| is_beyond(path)).map(|path| path.display().to_string()).collect()
}

/// A program that is started has no more rights than this process, whatever bits its file has.
fn no_new_privileges() -> Result<(), String> {
    in_words(rustix::thread::set_no_new_privs(true))
}

/// A dump would have keys, credentials and requests of clients. Not being dumpable, the process is not traced by its own user either.
fn no_core_dumps() -> Result<(), String> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    in_words(rustix::process::setrlimit(Resource::Core, none))?;
    in_words(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable))
}

fn in_words(done: rustix::io::Result<()>) -> Result<(), String> {
    done.map_err(|error| io::Error::from(error).to_string())
}
