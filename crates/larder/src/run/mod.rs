//! `larder run -- CMD …`: runs a command whose downloads come through a Larder, and changes nothing else.
//!
//! A running Larder is joined through its control socket, else one is started in this process for the time
//! of the command. The child alone gets the variables of [`environment`]; what they point to lies in a temporary
//! folder that goes at the end. [`control`] has the messages of the control socket, which the server answers.

mod child;
pub mod control;
pub mod download;
pub mod environment;
pub(crate) mod folder;
pub mod gather;
pub mod history;
mod java;
pub mod later;
mod locked;
pub mod mirrored;
pub(crate) mod summary;

use crate::clock;
use crate::config::proxy_variables::ProxyVariables;
use crate::config::{Config, Listen, Sites};
use crate::diagnostics;
use crate::record::RunStats;
use crate::tls::{TlsError, bundle};
use control::{Network, RunStarted, Way};
use history::{History, PastRun, saved_time};
use later::Later;
use mirrored::{Told, ToolIndex};
use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use summary::Ended;

/// The exit status of a shell for a command that is not found.
const NOT_FOUND: u8 = 127;
/// The exit status of a shell for a command that cannot be run.
const NOT_EXECUTABLE: u8 = 126;

/// A command to run.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments; never empty.
    pub words: Vec<OsString>,
    /// Whether there is no summary at the end.
    pub quiet: bool,
    /// The file for its summary as JSON.
    pub json: Option<PathBuf>,
    /// Whether it uses the network.
    pub network: Network,
    /// The indexes of tools that are asked for through the mirror, where TLS is not to be opened.
    pub mirrored: Option<Vec<ToolIndex>>,
}

/// A Larder in this process, for one run.
pub struct Own {
    /// The addresses and certificates that the child needs.
    pub started: RunStarted,
    /// Whether the next run finds the files that this one fetches.
    pub keeps: bool,
    /// Stops it, and counts.
    pub finish: Box<dyn FnOnce() -> RunStats>,
}

/// Why a command was not run.
#[derive(Debug)]
pub enum RunError {
    /// No Larder could be started.
    Start(Box<dyn std::error::Error + Send + Sync>),
    /// The bundle of certificates could not be read or written.
    Tls(TlsError),
    /// The temporary folder could not be made.
    Folder(std::io::Error),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Start(_) => f.write_str("cannot start a Larder for the command"),
            RunError::Tls(_) => f.write_str("cannot give the command the certificates to trust"),
            RunError::Folder(_) => f.write_str("cannot make a temporary folder"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Start(source) => Some(&**source),
            RunError::Tls(source) => Some(source),
            RunError::Folder(source) => Some(source),
        }
    }
}

/// Runs `command` with the Larder of `config`: the one that runs already, else what `start` makes. Returns the
/// exit status of the command (128 + n when signal n ended it).
pub fn run(
    command: &Command,
    config: Config,
    start: impl FnOnce(Config) -> Result<Own, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<u8, RunError> {
    let folder = config.store_folder();
    let way = if command.mirrored.is_some() { Way::Mirror } else { Way::Proxy };
    let (larder, started) = open(config, command.network, way, start)?;
    let keeps = larder.keeps();
    let begin = Instant::now();
    let (status, told) = match &command.mirrored {
        Some(indexes) => with_mirror(command, &started, indexes),
        None => (with_environment(command, &started), Vec::new()),
    };
    let took = begin.elapsed();
    let stats = larder.finish();
    if let (Some(stats), Some(folder)) = (&stats, &folder)
        && let Err(error) = Later::of(folder).add(&stats.missing)
    {
        diagnostics::say(format_args!("larder: what was missing is not noted for later: {error}"));
    }
    let saved = stats.as_ref().and_then(|stats| note(stats, took, command.network, folder.as_deref()));
    let ended = Ended { stats: stats.as_ref(), took, saved, keeps, told: &told };
    if let (Some(file), Ok(status)) = (&command.json, &status)
        && let Err(error) = write_json(file, &ended.json(*status))
    {
        diagnostics::say(format_args!("larder: {}: the summary is not written: {error}", file.display()));
    }
    if !command.quiet && status.is_ok() {
        diagnostics::say_text(ended.text());
    }
    status
}

/// Adds the run to those of the last days; gives how much longer it would have taken without the store. A folder that can't be
/// written to has no history.
fn note(stats: &RunStats, took: Duration, network: Network, folder: Option<&Path>) -> Option<Duration> {
    let history = History::of(folder?);
    let saved = saved_time(stats, &history.read().unwrap_or_default());
    if stats.requests > 0 {
        let _ = history.add(&PastRun::of(stats, took, saved, network, clock::now().0));
    }
    saved
}

/// URLs may tell much about the user: a file that is made for them can be read by nobody else.
fn write_json(file: &Path, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

/// Has `work` done with the proxy of a run, for this process itself.
pub fn with_proxy<T>(
    config: Config,
    start: impl FnOnce(Config) -> Result<Own, Box<dyn std::error::Error + Send + Sync>>,
    work: impl FnOnce(SocketAddr) -> T,
) -> Result<T, RunError> {
    let (larder, started) = open(config, Network::Used, Way::Proxy, start)?;
    let done = work(started.proxy);
    larder.finish();
    Ok(done)
}

/// The Larder that runs already, else one in this process.
fn open(
    config: Config,
    network: Network,
    way: Way,
    start: impl FnOnce(Config) -> Result<Own, Box<dyn std::error::Error + Send + Sync>>,
) -> Result<(Larder, RunStarted), RunError> {
    Ok(match join(&config, network, way) {
        Some((client, started)) => (Larder::Joined(client, started.id.clone()), started),
        None => {
            let config = config_of_own(config, way);
            // Of this process, which is not given the proxy of the run: that is for the command.
            let variables = match network {
                Network::Used => ProxyVariables::of_this_process(),
                Network::Untouched => ProxyVariables::default(),
            };
            let config =
                config.with_parents_of_environment(&variables).map_err(|trouble| RunError::Start(trouble.into()))?;
            check_hooks(&config).map_err(|trouble| RunError::Start(trouble.into()))?;
            let own = start(config).map_err(RunError::Start)?;
            (Larder::Own { finish: own.finish, keeps: own.keeps }, own.started)
        }
    })
}

enum Larder {
    Joined(control::Client, String),
    Own { finish: Box<dyn FnOnce() -> RunStats>, keeps: bool },
}

impl Larder {
    /// Closes the run's listener and gives its counts; `None` where the server went away during the run.
    fn finish(self) -> Option<RunStats> {
        match self {
            Larder::Joined(client, id) => client.finish(&id).ok(),
            Larder::Own { finish, .. } => Some(finish()),
        }
    }

    /// Whether the next run finds what this one fetches. A server that is joined has it at least in memory.
    fn keeps(&self) -> bool {
        match self {
            Larder::Joined(..) => true,
            Larder::Own { keeps, .. } => *keeps,
        }
    }
}

/// The Larder that runs already, when there is one that answers.
fn join(config: &Config, network: Network, way: Way) -> Option<(control::Client, RunStarted)> {
    let client = control::Client::new(control::socket(&config.store_folder()?));
    let started = client.start_with(network, way).ok()?;
    Some((client, started))
}

/// One listener on a free port, for this machine only.
pub(crate) fn config_of_own(config: Config, way: Way) -> Config {
    let listen = Listen { intercept: way == Way::Proxy, ..Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))) };
    // Of applications and hooks only those of the forward proxy have work here, by the way of the mirror too: its listener also answers
    // clients that use it as a proxy, and hooks that are gone would deny them.
    let mut mounts = config.mounts;
    mounts.retain(|mount| config.forward.hooked_by.as_ref() == Some(&mount.host));
    Config { listens: vec![listen], admin: None, sites: Sites::default(), mounts, ..config }
}

/// A source tree that somebody else wrote does not configure the way of its own downloads, nor does it bring the hooks on that way.
fn check_hooks(config: &Config) -> Result<(), String> {
    match config.mounts.iter().find(|mount| mount.python.folder.is_relative()) {
        None => Ok(()),
        Some(mount) => Err(format!(
            "{} of [forward] would be taken from the current folder, whoever wrote what lies there: give the `folder` of its [[python]] as an absolute path (where it has none, that is `.`)",
            mount.application.name
        )),
    }
}

fn with_environment(command: &Command, started: &RunStarted) -> Result<u8, RunError> {
    let folder = folder::Temporary::new().map_err(RunError::Folder)?;
    let user = environment::User::of_this_process();
    let variables = prepare(folder.path(), started, &user)?;
    Ok(play(command, &variables))
}

/// Tells the tools of the mirror, and nothing else.
fn with_mirror(command: &Command, started: &RunStarted, indexes: &[ToolIndex]) -> (Result<u8, RunError>, Vec<Told>) {
    let (mut variables, told) = mirrored::tell(started.proxy, indexes);
    variables.extend(environment::User::of_this_process().past_proxy(started.proxy.ip()));
    (Ok(play(command, &variables)), told)
}

fn play(command: &Command, variables: &[(&'static str, OsString)]) -> u8 {
    child::run(&command.words, variables).unwrap_or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => complain(command, "command not found", NOT_FOUND),
        _ => complain(command, &error.to_string(), NOT_EXECUTABLE),
    })
}

/// Writes the files that the variables point to.
fn prepare(
    folder: &Path,
    started: &RunStarted,
    user: &environment::User,
) -> Result<Vec<(&'static str, OsString)>, RunError> {
    let files = environment::Files::below(folder);
    let no_bundle = || std::io::Error::new(std::io::ErrorKind::NotFound, "the server named no certificates to trust");
    let ca_bundle = started.ca_bundle.as_ref().ok_or_else(no_bundle).map_err(RunError::Folder)?;
    let certificates = bundle::read(ca_bundle).map_err(RunError::Tls)?;
    let extra = user.certificate_files();
    bundle::write(&files.bundle, certificates, extra.iter().map(|path| &**path)).map_err(RunError::Tls)?;
    bundle::write_file(&files.wgetrc, &user.wgetrc(started.proxy, &files.bundle), 0o600).map_err(RunError::Tls)?;
    bundle::write_file(&files.apt_conf, &user.apt_conf(started.proxy, &files.bundle), 0o600).map_err(RunError::Tls)?;
    let all = bundle::read(&files.bundle).map_err(RunError::Tls)?;
    bundle::write_file(&files.trust_store, &java::trust_store(&all), 0o644).map_err(RunError::Tls)?;
    let mut variables = environment::variables(started.proxy, &files);
    variables.push((environment::JAVA_OPTIONS, user.java_options(started.proxy, &files.trust_store)));
    Ok(variables)
}

fn complain(command: &Command, what: &str, status: u8) -> u8 {
    let program = command.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    diagnostics::say(format_args!("larder: {program}: {what}"));
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;

    #[test]
    fn a_run_has_the_hooks_of_the_forward_proxy_alone_and_none_of_the_current_folder() {
        let config = |folder: &str| {
            let text = format!(
                "[forward]\nhooks = [\"proxy.py\"]\n[[python]]\nname = \"p\"\nfolder = \"{folder}\"\n\
                 [[site]]\nhosts = [\"a.example\"]\norigin = \"wsgi:app\"\nhooks = [\"site.py\"]\n"
            );
            let loaded = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(loaded.config.mounts.len(), 3);
            config_of_own(loaded.config, Way::Proxy)
        };
        let own = config("/srv/hooks");
        let names: Vec<&str> = own.mounts.iter().map(|mount| mount.application.name.as_str()).collect();
        assert_eq!((names, check_hooks(&own)), (vec!["hooks:proxy.py"], Ok(())));
        assert!(check_hooks(&config(".")).unwrap_err().contains("hooks:proxy.py of [forward]"));
        let none = "[forward]\nhooks = [\"proxy.py\"]\n[[python]]\nname = \"p\"\n";
        let none =
            config_of_own(Loaded::parse("test", none, &[]).unwrap_or_else(|it| panic!("{it}")).config, Way::Mirror);
        assert!(check_hooks(&none).unwrap_err().contains("where it has none, that is `.`"));
        assert_eq!(check_hooks(&config_of_own(Config::default(), Way::Proxy)), Ok(()));
    }
}
