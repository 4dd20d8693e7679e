//! The command line: flags become a [`Config`], a command calls its module, and the outcome is an exit status.
//!
//! Exit status: 0 all went well, 1 trouble, 2 a wrong command line or configuration. `larder run` ends with the
//! status of its command, 127 when that was not found and 126 when it could not be run.

mod bugreport;
mod check;
mod cluster;
mod columns;
mod demo;
mod docs;
mod explaining;
mod fetch_later;
mod import;
mod intercept;
mod list;
mod new;
mod origin;
mod papers;
mod prefetch;
mod purge;
mod ready;
mod recipes;
mod reload;
mod running;
mod scripts;
mod serve;
mod stats;
mod store;
mod testing;
mod tools;
mod top;

use crate::activation::PassedSockets;
use crate::allocator;
use crate::children;
use crate::clock;
use crate::config::places::{self, Here};
use crate::config::{Config, DiskAdmission, Flag, Loaded, Report, ValueSource, foreign_hint, manual};
use crate::diagnostics::{self, Diagnostics};
use crate::doctor::{self, State};
use crate::run::control::{Network, Way};
use crate::run::{self, Own};
use crate::sandbox::Sandbox;
use crate::server::{Plan, Server};
use crate::settle::settle;
use crate::shared::{Reread, StartError};
use crate::tls::ca::Authority;
use crate::troubles;
use clap::{Args, CommandFactory, Parser, Subcommand};
use larder_cache::store::OpenFault;
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Exit status when something went wrong while running.
const TROUBLE: u8 = 1;
/// Exit status of a wrong command line or configuration, as clap has it.
const WRONG: u8 = 2;

type AnyError = Box<dyn Error + Send + Sync>;

/// Reads the command line of this process and does what it says.
pub fn main() -> ExitCode {
    diagnostics::tell_panics();
    children::all_are_known();
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if let Some(hint) = squid_option(&words).filter(|_| error.use_stderr()) {
            diagnostics::say(format_args!("{hint}"));
        }
        error.exit()
    });
    log_to_stderr(match cli.command {
        // It says itself what can't be loaded.
        Some(Command::Check(_)) => "larder=info,larder::script=off,warn",
        _ => "larder=info,warn",
    });
    let status = match cli.command {
        None => serve(&cli.flags),
        Some(Command::Serve(flags)) => serve(&flags),
        Some(Command::Registry(flags)) => serve(&flags.flags()),
        Some(Command::Run(flags)) => run(flags),
        Some(Command::Demo(flags)) => demo::demo(&flags),
        Some(Command::Stats(flags)) => stats::stats(&flags),
        Some(Command::FetchLater(flags)) => fetch_later::fetch_later(flags),
        Some(Command::Prefetch(flags)) => prefetch::prefetch(&flags),
        Some(Command::Check(flags)) => check::check(&flags),
        Some(Command::Explain(flags)) => explaining::explain(&flags),
        Some(Command::Config(flags)) => config(&flags),
        Some(Command::Purge(flags)) => purge::purge(&flags),
        Some(Command::Store(command)) => store::store(&command),
        Some(Command::Top(flags)) => top::top(&flags),
        Some(Command::List(flags)) => list::list(&flags),
        Some(Command::Scripts(flags)) => scripts::scripts(&flags),
        Some(Command::Origin(command)) => origin::origin(&command),
        Some(Command::Cluster(command)) => cluster::cluster(&command),
        Some(Command::Import(flags)) => import::run(&flags),
        Some(Command::New(command)) => new::new(&command),
        Some(Command::Test(flags)) => testing::test(&flags),
        Some(Command::Reload(flags)) => reload::reload(&flags),
        Some(Command::Ready(flags)) => ready::ready(&flags),
        Some(Command::Doctor(flags)) => doctor(&flags),
        Some(Command::Docs(flags)) => docs::docs(&flags),
        Some(Command::Bugreport(flags)) => bugreport::bugreport(&flags),
        Some(Command::Completions { shell }) => papers::completions(shell),
        Some(Command::Man { folder }) => papers::manual(&folder),
        Some(Command::Ca(flags)) => ca(&flags),
        Some(Command::Intercept(flags)) => intercept::intercept(&flags),
    };
    diagnostics::finish();
    ExitCode::from(status)
}

/// The command that does what this one of Squid does.
fn squid_option(words: &[String]) -> Option<String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (squid, here) = match words[..] {
        ["-k", "parse" | "check", ..] => ("`squid -k parse`", "`larder check`"),
        ["-k", "reconfigure", ..] => ("`squid -k reconfigure`", "`larder reload`"),
        ["-k", "rotate", ..] => ("`squid -k rotate`", "the signal SIGUSR1, after the log was renamed"),
        ["-k", "shutdown" | "interrupt" | "kill", ..] => ("`squid -k shutdown`", "the signal SIGTERM"),
        ["-z", ..] => ("`squid -z`", "not needed: the store is made at the start"),
        ["-v", ..] => ("`squid -v`", "`larder --version`"),
        ["-f", file, ..] if file.ends_with(".conf") => {
            return Some(format!(
                "note: `larder import {file} --out larder.toml` translates a squid.conf; then `larder --config larder.toml`"
            ));
        }
        ["-f", ..] => ("`squid -f FILE`", "`larder --config FILE`"),
        [flag, ..] if flag.starts_with("-N") => {
            ("`squid -N`", "what `larder` does by itself: it stays in the foreground")
        }
        _ => return None,
    };
    Some(format!("note: {squid} is here {here}; see docs/coming-from-squid.md"))
}

/// The version, and of a release the commit that it is built from.
const VERSION: &str = match option_env!("VERSION_AND_COMMIT") {
    Some(text) => text,
    None => env!("CARGO_PKG_VERSION"),
};

#[derive(Parser)]
#[command(
    name = "larder",
    version = VERSION,
    about = "A web cache: forward proxy, reverse proxy and interceptor",
    before_help = "\
To begin with:
  larder run -- CMD …                           run a command; what it downloads is kept
  larder demo                                   see it work, in ten seconds
  larder                                        a proxy on 127.0.0.1:3128 for everything
  larder --listen ADDR:PORT --origin URL        a caching reverse proxy of one site",
    after_help = "\
Exit status: 0 all went well; 1 trouble (also: `larder doctor` found something bad, `larder check --request` would be
refused, `larder scripts` shows an application that can't be loaded); 2 a wrong command line or configuration, nothing was changed. `larder run` ends with that of its command, 126
when it could not be run, 127 when it was not found. LARDER_LOG=debug says more on standard error.",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve; the same as no command
    Serve(Flags),
    /// Serve a pull-through mirror of container registries, for Docker, containerd and podman
    Registry(RegistryFlags),
    /// Run a command with its downloads through a Larder, joining one that runs already
    Run(RunFlags),
    /// See it work: the same downloads twice, the second time without a network; nothing is left behind
    Demo(demo::DemoFlags),
    /// Show what all runs of the last days saved, and what keeps missing
    Stats(stats::StatsFlags),
    /// Show what runs with --offline did not find, or fetch it now
    FetchLater(fetch_later::FetchLaterFlags),
    /// Download all that lock files and lists of URLs name, for a run without a network
    Prefetch(prefetch::PrefetchFlags),
    /// Look for mistakes in the configuration; ask what it would do with a request, or with all of a log
    Check(check::CheckFlags),
    /// Say why a request was answered as it was, or how one would be answered now
    Explain(explaining::ExplainFlags),
    /// Show what is configured and where it was said, or explain settings
    Config(ConfigFlags),
    /// Have the running Larder forget a URL, a prefix, a tag or everything
    Purge(purge::PurgeFlags),
    /// Look at what lies on disk, check it, archive it
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Watch the running Larder: requests, what is hot, what misses and why
    Top(top::TopFlags),
    /// Show the lists of hosts, URLs and networks: state, entries, age; ask whether one covers something
    List(list::ListFlags),
    /// Show the applications in Python that the running Larder has: state, processes, errors, tracebacks
    Scripts(scripts::ScriptsFlags),
    /// Look at the groups of origins that the running Larder has, and take members out of them
    #[command(subcommand)]
    Origin(origin::OriginCommand),
    /// Look at the nodes of the cluster that the running Larder is one of
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Translate a configuration of Squid, nginx or Varnish into a larder.toml, with a word for each line
    Import(import::ImportFlags),
    /// Write files to begin with: hooks in Python and their tests
    #[command(subcommand)]
    New(new::NewCommand),
    /// Run tests of hooks, without a server and without a network
    Test(testing::TestFlags),
    /// Have the running Larder read its configuration again; SIGHUP does the same
    Reload(Flags),
    /// Say whether the running Larder serves requests: exit status 0 if it does, for health checks
    Ready(Flags),
    /// Look at the surroundings (ports, limits, memory, disk, clock, names, trust) and say what to change
    Doctor(Flags),
    /// Read the documentation, which is in the program; the running Larder has it at /docs of its page
    Docs(docs::DocsFlags),
    /// Write an archive for a report of trouble: version, findings, settings, metrics, messages; no secret, URL or client
    Bugreport(bugreport::BugreportFlags),
    /// Print completions for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write manual pages to a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
    /// Show the local CA that interception uses; clients must trust it
    Ca(CaFlags),
    /// Print the rules of the kernel that bring connections of clients to the transparent listeners
    Intercept(intercept::InterceptFlags),
}

#[derive(Args, Clone, Default)]
struct Flags {
    /// Configuration file (TOML), or none; else the first of ./larder.toml, ~/.config/larder/larder.toml and
    /// /etc/larder/larder.toml. `larder config --markdown` describes it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve clients here; may be repeated, replaces the listeners of the file
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Serve this origin on all listeners, as a reverse proxy
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
    /// Folder for what is kept
    #[arg(long, value_name = "DIR")]
    store: Option<String>,
    /// Budget of the memory store, like 256MB
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Budget of the disk store, like 20GB; 0 keeps everything in memory
    #[arg(long, value_name = "SIZE")]
    disk: Option<String>,
    /// Status page and metrics here, or none
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<String>,
    /// Worker threads; one per core is the default
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Give up files, ports, programs and system calls that the settings do not name
    #[arg(long)]
    sandbox: bool,
    /// Container registries that are mirrored beside those of the file.
    #[arg(skip)]
    registries: Vec<String>,
}

#[derive(Args)]
struct RegistryFlags {
    /// The registry, as https://registry.example; may be repeated, `/v2/…` without a name leads to the first
    #[arg(required = true, value_name = "URL")]
    registries: Vec<String>,
    #[command(flatten)]
    flags: Flags,
}

impl RegistryFlags {
    fn flags(self) -> Flags {
        Flags { registries: self.registries, ..self.flags }
    }
}

#[derive(Args)]
struct RunFlags {
    /// Configuration file (TOML) of the Larder that is started when none runs
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the Larder to join, or of the one to start
    #[arg(long, value_name = "DIR")]
    store: Option<String>,
    /// Budget of the memory store, like 256MB
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Say nothing at the end
    #[arg(long, short)]
    quiet: bool,
    /// Write the summary as JSON to this file, hosts and requests one by one; /dev/fd/3 is a file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave the network alone: what is stored is used however old it is, and all else fails at once and is noted for
    /// `larder fetch-later`
    #[arg(long)]
    offline: bool,
    /// Open no TLS and make no CA: pip, npm and Go are told by variables that their index is one of Larder's mirror, all else goes
    /// past it
    #[arg(long)]
    no_intercept: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    words: Vec<OsString>,
}

#[derive(Args)]
#[command(disable_help_flag = true)]
struct ConfigFlags {
    #[command(flatten)]
    flags: Flags,
    /// Explain a setting; alone it prints this help
    #[arg(long, short = 'h', value_name = "NAME", num_args = 0..)]
    help: Option<Vec<String>>,
    /// Print the reference of all settings
    #[arg(long)]
    markdown: bool,
    /// Settings to explain
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Args)]
struct CaFlags {
    #[command(flatten)]
    flags: Flags,
    /// Print the certificate as PEM
    #[arg(long)]
    pem: bool,
}

impl Flags {
    fn load(&self) -> Result<Loaded, u8> {
        self.read(Here::Looked).map_err(|report| {
            diagnostics::say_text(format_args!("{report}"));
            WRONG
        })
    }

    fn read(&self, here: Here) -> Result<Loaded, Report> {
        let (loaded, report) = self.examine(here);
        report.map_or(Ok(loaded), Err)
    }

    /// Gives the values that could be read also where something is wrong.
    fn examine(&self, here: Here) -> (Loaded, Option<Report>) {
        let settings = [
            ("store", &self.store),
            ("memory", &self.memory),
            ("disk", &self.disk),
            ("admin", &self.admin),
            ("workers", &self.workers),
            ("sandbox", &self.sandbox.then(|| "true".to_owned())),
        ];
        let settings = settings.into_iter().filter_map(|(name, text)| Some(Flag::Setting(name, text.clone()?)));
        let listens = self.listen.iter().cloned().map(Flag::Listen);
        let flags: Vec<Flag> = settings
            .chain(listens)
            .chain(self.origin.clone().map(Flag::Origin))
            .chain(self.registries.iter().cloned().map(Flag::Registry))
            .collect();
        let usual = places::usual(here);
        let file = match self.config.as_deref() {
            Some(none) if none.as_os_str() == "none" => None,
            Some(file) => Some(file),
            None => places::first(&usual),
        };
        Loaded::examine(file, &flags)
    }
}

fn serve(flags: &Flags) -> u8 {
    let loaded = match flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let reread = rereading(flags, &loaded);
    let loaded = prepared(loaded, Notes::Told);
    // Before the first thread, which is that of messages: rights that are given up are those of threads to come.
    let sandbox = Sandbox::enter(&loaded);
    diagnostics::begin();
    let Loaded { config, sources, file, .. } = loaded;
    let passed = match PassedSockets::take() {
        Ok(passed) => passed,
        Err(error) => {
            diagnostics::say(format_args!("error: {error}"));
            return TROUBLE;
        }
    };
    let plan = Plan { config, sources, reread: Some(reread), passed };
    allocator::fit(plan.config.memory_bytes);
    status(
        &serve::until_signal(plan, file.as_deref(), sandbox)
            .map(|()| 0)
            .map_err(|error| diagnostics::in_one_line(&*error)),
    )
}

/// Reads the configuration again for a reload. The file that was found at the start has to be there, with settings if it had any: else a
/// file that somebody is just about to write would take logins and rules away.
fn rereading(flags: &Flags, loaded: &Loaded) -> Reread {
    let again = Flags { config: loaded.file.clone().or_else(|| flags.config.clone()), ..flags.clone() };
    let of_file = |loaded: &Loaded| loaded.sources.values().any(|source| matches!(source, ValueSource::Line(..)));
    let had_settings = of_file(loaded);
    Box::new(move || {
        let loaded = again.read(Here::Looked).map_err(|report| report.to_string())?;
        if let Some(file) = loaded.file.as_ref().filter(|_| had_settings && !of_file(&loaded)) {
            let file = file.display();
            return Err(format!("error: {file} has no setting any more; Larder without any needs a restart"));
        }
        Ok(prepared(loaded, Notes::Silent))
    })
}

fn run(flags: RunFlags) -> u8 {
    allocator::begin_with_children();
    diagnostics::begin();
    let of_server = Flags { config: flags.config, store: flags.store, memory: flags.memory, ..Flags::default() };
    let loaded = match of_server.read(Here::PassedOver) {
        Ok(loaded) => loaded,
        Err(report) => {
            diagnostics::say_text(format_args!("{report}"));
            return WRONG;
        }
    };
    let network = if flags.offline { Network::Untouched } else { Network::Used };
    let mirrored = flags.no_intercept.then(tools::mirrorable);
    let way = if flags.no_intercept { Way::Mirror } else { Way::Proxy };
    let command = run::Command { words: flags.words, quiet: flags.quiet, json: flags.json, network, mirrored };
    let keeps_all = !loaded.sources.contains_key("disk_admission");
    let waits_for_disk = !loaded.sources.contains_key("overload.pass_by_disk");
    let config = loaded.config.clone();
    let notes = if flags.quiet { Notes::Silent } else { Notes::Told };
    let start = |config| {
        // These settings hold for a Larder in this process alone; a running one that is joined has its own.
        let mut config = prepared(Loaded { config, ..loaded }, notes).config;
        if keeps_all {
            config.disk.admission = DiskAdmission::All;
        }
        config.overload.pass_by_disk &= !waits_for_disk;
        let own = serve_a_run(start_or_without_disk(config)?, network, way)?;
        if !own.keeps && notes == Notes::Told {
            diagnostics::say(format_args!("larder: what this command downloads is not kept for the next run"));
        }
        Ok(own)
    };
    status(&run::run(&command, config, start).map_err(|error| diagnostics::in_one_line(&error)))
}

fn config(flags: &ConfigFlags) -> u8 {
    if flags.markdown {
        return print(manual::markdown());
    }
    let names: Vec<&String> = flags.names.iter().chain(flags.help.iter().flatten()).collect();
    if flags.help.is_some() && names.is_empty() {
        return print(help_of("config"));
    }
    let loaded = match flags.flags.load() {
        Ok(loaded) => prepared(loaded, Notes::Silent),
        Err(status) => return status,
    };
    if names.is_empty() {
        return print(manual::dump(&loaded));
    }
    names.into_iter().map(|name| explain_setting(name, &loaded)).max().unwrap_or_default()
}

fn explain_setting(name: &str, loaded: &Loaded) -> u8 {
    if let Some(text) = manual::explain(name, loaded) {
        return print(text);
    }
    let remedy = match (foreign_hint(name), manual::nearest(name)) {
        (Some(hint), _) => hint,
        (None, Some(nearest)) => format!("did you mean {nearest}?"),
        (None, None) => "`larder config` lists all".to_owned(),
    };
    diagnostics::say(format_args!("error: there is no setting {name}: {remedy}"));
    WRONG
}

fn help_of(command: &str) -> String {
    let mut all = Cli::command();
    all.build();
    all.find_subcommand_mut(command).map(|found| found.render_help().to_string()).unwrap_or_default()
}

fn doctor(flags: &Flags) -> u8 {
    let loaded = match flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let file = loaded.file.as_ref().map_or("no file, so all defaults".to_owned(), |file| file.display().to_string());
    let findings = doctor::examine(&loaded);
    let text: String = findings.iter().map(ToString::to_string).collect();
    let status = print(format!("ok    configuration          {file}\n{text}"));
    match doctor::worst(&findings) {
        State::Bad => TROUBLE,
        State::Well | State::Poor => status,
    }
}

fn ca(flags: &CaFlags) -> u8 {
    let loaded = match flags.flags.load() {
        Ok(loaded) => loaded,
        Err(status) => return status,
    };
    let Some(folder) = loaded.config.authority_folder() else {
        diagnostics::say(format_args!("error: there is no folder for the local CA: give one with --store DIR"));
        return TROUBLE;
    };
    match Authority::open(&folder, clock::now()) {
        Ok(authority) if flags.pem => print(authority.pem()),
        Ok(authority) => {
            let (path, fingerprint) = (authority.certificate_path(), authority.fingerprint());
            print(format!("certificate  {}\nSHA-256      {fingerprint}\n", path.display()))
        }
        Err(error) => {
            diagnostics::say(format_args!("error: {}", diagnostics::in_one_line(&error)));
            TROUBLE
        }
    }
}

/// Begins to serve for one run, in this process.
fn start_for_a_run(config: Config, network: Network, way: Way) -> Result<Own, AnyError> {
    serve_a_run(Server::start(config)?, network, way)
}

fn serve_a_run(server: Server, network: Network, way: Way) -> Result<Own, AnyError> {
    server.shared().common.cache.disk().into_iter().for_each(|disk| tell_notices(disk));
    let started = server.shared().open_run(network, way)?;
    let keeps = server.shared().common.cache.disk().is_some();
    let id = started.id.clone();
    let finish = move || {
        let stats = server.shared().close_run(&id).unwrap_or_default();
        server.stop();
        stats
    };
    Ok(Own { started, keeps, finish: Box::new(finish) })
}

/// The server of a command's run. A store of a later version, which the cache of a CI may bring along, costs the run what is stored there, and
/// not its command.
fn start_or_without_disk(config: Config) -> Result<Server, StartError> {
    let without_disk = Config { disk_bytes: Some(0), ..config.clone() };
    match Server::start(config) {
        Err(StartError::Disk(fault @ OpenFault::FutureVersion { .. })) => {
            diagnostics::say(format_args!("warning: {fault}. This run keeps nothing on disk"));
            Server::start(without_disk)
        }
        started => started,
    }
}

/// Reports damage that was found when the store was opened, and its repair.
fn tell_notices(store: &larder_cache::store::Store) {
    for notice in crate::store::notices(store) {
        diagnostics::say(format_args!("warning: {notice}"));
    }
}

/// Computes the defaults that depend on this process and machine, and reports what a person should know.
fn prepared(mut loaded: Loaded, notes: Notes) -> Loaded {
    for note in settle(&mut loaded) {
        if notes == Notes::Told {
            diagnostics::say(format_args!("larder: {note}"));
        }
    }
    loaded
}

/// Whether settings that had to be lowered are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notes {
    Told,
    Silent,
}

fn status(outcome: &Result<u8, String>) -> u8 {
    match outcome {
        Ok(status) => *status,
        Err(trouble) => {
            diagnostics::say(format_args!("larder: {trouble}"));
            TROUBLE
        }
    }
}

/// A reader that has seen enough (`larder config | head`) is no trouble.
fn print(text: impl Display) -> u8 {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            diagnostics::say(format_args!("larder: cannot write to standard output: {error}"));
            TROUBLE
        }
        _ => 0,
    }
}

/// Diagnostics go to standard error, those that `LARDER_LOG` lets through, else these; a second call, as in tests, changes nothing.
fn log_to_stderr(filter: &str) {
    let filter = EnvFilter::try_from_env("LARDER_LOG").unwrap_or_else(|_| EnvFilter::new(filter));
    // Escape codes of colours would make a file or a journal hard to read.
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Diagnostics)
        .with_target(false)
        .log_internal_errors(false)
        .with_ansi(io::stderr().is_terminal());
    let _ = lines.finish().with(troubles::Remember).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_squid_lead_to_commands() {
        let hint = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let texts: Vec<&str> = words.iter().map(String::as_str).collect();
            assert!(parse(&texts).is_err(), "{line} is an option of Larder");
            squid_option(&words).unwrap_or_default()
        };
        for (line, wanted) in [
            ("-k parse", "`larder check`"),
            ("-k reconfigure", "`larder reload`"),
            ("-k rotate", "SIGUSR1"),
            ("-f /etc/squid/squid.conf", "larder import /etc/squid/squid.conf --out larder.toml"),
            ("-f x.toml", "`larder --config FILE`"),
            ("-z", "not needed"),
            ("-NCd1", "foreground"),
            ("-v", "`larder --version`"),
        ] {
            assert!(hint(line).contains(wanted), "{line}: {}", hint(line));
        }
        assert_eq!(hint("--nonsense"), "");
    }

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["larder"].iter().chain(words))
    }

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_work_with_and_without_serve() {
        for words in
            [&["--listen", "127.0.0.1:1", "--memory", "1GB"][..], &["serve", "--listen", "127.0.0.1:1", "--memory=1GB"]]
        {
            let cli = parse(words).unwrap();
            let flags = match cli.command {
                Some(Command::Serve(flags)) => flags,
                None => cli.flags,
                Some(_) => panic!("another command"),
            };
            let config = flags.load().unwrap().config;
            assert_eq!((config.memory_bytes, config.listens[0].address.port()), (1_000_000_000, 1));
        }
    }

    #[test]
    fn a_command_keeps_its_own_flags() {
        let cli = parse(&["run", "--quiet", "--", "pip", "install", "--quiet", "--", "x"]).unwrap();
        let Some(Command::Run(flags)) = cli.command else { panic!("another command") };
        assert_eq!(flags.words, ["pip", "install", "--quiet", "--", "x"]);
        assert!(flags.quiet);
        let cli = parse(&["run", "curl", "-q"]).unwrap();
        let Some(Command::Run(flags)) = cli.command else { panic!("another command") };
        assert_eq!((flags.words.len(), flags.quiet), (2, false));
    }

    #[test]
    fn wrong_command_lines_are_status_2() {
        for words in [
            &["run"][..],
            &["run", "--online", "--", "true"],
            &["run", "-x", "true"],
            &["nonsense"],
            &["--listen"],
            &["--origin", "a", "serve"],
        ] {
            assert_eq!(parse(words).err().map(|error| error.exit_code()), Some(2), "{words:?}");
        }
        let flags = Flags { memory: Some("lots".to_owned()), ..Flags::default() };
        assert_eq!(flags.load().unwrap_err(), WRONG);
    }

    #[test]
    fn help_begins_with_what_people_need() {
        let help = Cli::command().render_help().to_string();
        assert!(help.starts_with("To begin with:\n  larder run -- CMD …"), "{help}");
    }
}
