//! Landlock: files and ports that the settings do not name are closed.

use super::connections::{self, Connections};
use super::named::{self, Named, Programs};
use crate::config::Config;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::Access as Permission;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Of the newest kernel whose bounds are known here; an older one has fewer.
const NEWEST: ABI = ABI::V6;

/// A bound, in words, and whether it is in force.
pub(super) struct Bound {
    pub words: String,
    pub enforced: Result<(), String>,
}

impl Bound {
    fn new(words: String, enforced: Result<(), String>) -> Bound {
        Bound { words, enforced }
    }
}

/// Makes the folders that Larder makes where they are missing: a folder that is not there can't be named. A store whose folder can't be
/// used, or that has none, has a temporary one.
pub(super) fn prepare_folders(config: &Config, named: &mut Named) {
    let is_usable = |folder: &PathBuf| {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.is_ok() && rustix::fs::access(folder, Permission::WRITE_OK).is_ok()
    };
    let unusable: Vec<PathBuf> = named::own_folders(config).into_iter().filter(|folder| !is_usable(folder)).collect();
    if config.store_folder().is_none_or(|store| unusable.contains(&store)) {
        named.write.insert(std::env::temp_dir());
    }
}

/// Closes all other files and ports to this thread and those that it starts. Gives the bounds.
pub(super) fn give_up(named: &Named) -> Vec<Bound> {
    let words = [files_in_words(named), ports_in_words(named), "signals to its own processes alone".to_owned()];
    let of_version = [(ABI::V2, "5.19"), (ABI::V4, "6.7"), (ABI::V6, "6.12")];
    let version = match threads() {
        Some(1) => restrict(named).map_err(|error| error.to_string()),
        _ => Err("there are threads already, which it would not hold for".to_owned()),
    };
    let bounds = words.into_iter().zip(of_version).filter(|(words, _)| !words.is_empty());
    let enforced = |needed: ABI, linux: &str| match &version {
        Ok(version) if *version >= needed => Ok(()),
        Ok(_) => Err(format!("it needs Landlock of Linux {linux} or newer")),
        Err(why) => Err(why.clone()),
    };
    bounds.map(|(words, (needed, linux))| Bound::new(words + " (Landlock)", enforced(needed, linux))).collect()
}

/// Gives the version of the kernel's Landlock whose bounds are in force.
fn restrict(named: &Named) -> Result<ABI, RulesetError> {
    let ruleset = match named.programs {
        Programs::None => bounded(named)?,
        Programs::Scripts => bounded_writes(named)?,
        Programs::Any => Ruleset::default().scope(Scope::Signal)?.create()?,
    };
    Ok(match ruleset.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => ABI::Unsupported,
    })
}

/// Files, ports and signals.
fn bounded(named: &Named) -> Result<RulesetCreated, RulesetError> {
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let sockets = read | AccessFs::MakeSock | AccessFs::RemoveFile;
    let ruleset = with_refer()?.handle_access(AccessFs::from_all(NEWEST))?.handle_access(AccessNet::BindTcp)?;
    let (ruleset, connected) = match &named.connected {
        Connections::To(ports) => (ruleset.handle_access(AccessNet::ConnectTcp)?, ports.clone()),
        Connections::Anywhere(_) => (ruleset, BTreeSet::new()),
    };
    ruleset
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(&named.read, read))?
        .add_rules(path_beneath_rules(&named.sockets, sockets))?
        .add_rules(path_beneath_rules(&named.write, AccessFs::from_all(NEWEST) & !AccessFs::Execute & !devices()))?
        .add_rules(ports(&named.listened, AccessNet::BindTcp))?
        .add_rules(ports(&connected, AccessNet::ConnectTcp))
}

/// Writing and signals: programs read and start anything.
fn bounded_writes(named: &Named) -> Result<RulesetCreated, RulesetError> {
    let write = AccessFs::from_write(NEWEST) & !AccessFs::IoctlDev;
    with_refer()?
        .handle_access(write)?
        .scope(Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(&named.sockets, AccessFs::MakeSock | AccessFs::RemoveFile))?
        .add_rules(path_beneath_rules(&named.write, write & !devices()))
}

/// Making a device: where the server may, it would be any disk of the machine.
fn devices() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock
}

/// A kernel whose Landlock does not know moves between folders forbids them all, and a store moves files.
fn with_refer() -> Result<Ruleset, RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer)?;
    Ok(ruleset.set_compatibility(CompatLevel::BestEffort))
}

fn ports(ports: &BTreeSet<u16>, access: AccessNet) -> impl Iterator<Item = Result<NetPort, RulesetError>> {
    ports.iter().map(move |&port| Ok(NetPort::new(port, access)))
}

/// Empty where files are not bounded.
fn files_in_words(named: &Named) -> String {
    let written = shown(named.write.iter().chain(&named.sockets));
    match named.programs {
        Programs::None => {
            format!("writing below {written} alone, reading below {} and of the system", shown(named.own_read()))
        }
        Programs::Scripts => format!("writing below {written} alone"),
        Programs::Any => String::new(),
    }
}

/// Empty where ports are not bounded.
fn ports_in_words(named: &Named) -> String {
    let listened = || named.listened.iter().copied().filter(|&port| port != 0).collect();
    match (named.programs, &named.connected) {
        (Programs::None, connected @ Connections::To(_)) => {
            format!("TCP: listening on {}, connections to {connected}", connections::list(&listened()))
        }
        (Programs::None, Connections::Anywhere(why)) => {
            format!("TCP: listening on {} (connections to any port for {why})", connections::list(&listened()))
        }
        (Programs::Scripts | Programs::Any, _) => String::new(),
    }
}

fn shown<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    let paths: BTreeSet<&Path> = paths.map(PathBuf::as_path).collect();
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The number of threads of this process.
fn threads() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}
