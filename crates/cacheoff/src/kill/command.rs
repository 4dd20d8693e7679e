//! `cacheoff kill`.

use super::origin::Origin;
use super::{Means, Settings, Subject, keep, outage};
use crate::contest::bench::{BenchArgs, Budget};
use crate::contest::{EntrySpec, Post, Prepared};
use crate::ledger::Ledger;
use crate::stop;
use std::process::ExitCode;
use std::time::Duration;

/// Kills a cache and measures how long until it serves again. Nothing that the system had taken is lost: that is the test
/// of `power-cut`.
#[derive(clap::Args, Debug)]
pub struct KillArgs {
    /// Entries, and the machine that they share with the referee
    #[command(flatten)]
    bench: BenchArgs,
    /// A command that starts a cache in the foreground; --address says where it listens
    #[arg(long, value_name = "COMMAND", requires = "address")]
    start: Option<String>,
    /// Where the cache of --start listens
    #[arg(long, value_name = "ADDR:PORT")]
    address: Option<String>,
    /// A command that stops the cache, before SIGKILL to every process of it that is left
    #[arg(long, value_name = "COMMAND")]
    cut: Option<String>,
    /// How the cache is asked
    #[arg(long, default_value = "reverse", value_parser = ["forward", "reverse"])]
    mode: String,
    /// Its store
    #[arg(long, default_value = "disk", value_parser = ["memory", "disk"])]
    store: String,
    /// Objects that are stored before the kill
    #[arg(long, default_value_t = 2_000)]
    objects: u32,
    /// Seconds of load before the kill
    #[arg(long, default_value_t = 30)]
    load_s: u64,
    /// Seconds until it is started again
    #[arg(long, default_value_t = 5)]
    dark_s: u64,
    /// Seconds from the start until the objects kept are counted, for stores that read their index behind their first answers
    #[arg(long, default_value_t = 30)]
    settle_s: u64,
}

/// Kills an entry of a contest.
pub fn kill_entry(spec: &EntrySpec, post: &Post) -> Ledger {
    let label = spec.name.clone();
    let origin = match Origin::start(post.origin) {
        Ok(origin) => origin,
        Err(error) => {
            return super::failed(Means::KILL, &label, format!("the origin cannot listen on {}: {error}", post.origin));
        }
    };
    let mut tell = |text: &str| eprintln!("kill: {label}: {text}");
    match Prepared::new(spec.clone(), post.clone()) {
        Ok(entry) => {
            let forward = post.mode == "forward";
            let subject = Subject { entry: &entry, running: None, forward, origin: &origin, label: &label };
            Means::with_kill(None, |means| outage(subject, means, &Settings::default(), &mut tell))
        }
        Err(reason) => super::failed(Means::KILL, &label, reason),
    }
}

impl KillArgs {
    /// Tests one entry after the other and gives the report.
    pub fn run(&self) -> Result<ExitCode, String> {
        let specs = self.specs()?;
        self.bench.outputs.check()?;
        let address = self.bench.origin();
        let origin =
            Origin::start(address).map_err(|error| format!("the origin cannot listen on {address}: {error}"))?;
        let mut ledgers = Vec::new();
        for spec in specs {
            if stop::is_asked() {
                eprintln!("kill: stopped, the entries that are left are not played");
                break;
            }
            let label = spec.name.clone();
            let mut tell = |text: &str| eprintln!("kill: {label}: {text}");
            let prepared = Prepared::new(spec, self.post(&origin));
            let ledger = match prepared {
                Ok(entry) => {
                    let forward = self.mode == "forward";
                    let subject = Subject { entry: &entry, running: None, forward, origin: &origin, label: &label };
                    let settings = self.settings();
                    Means::with_kill(self.cut.as_deref(), |means| outage(subject, means, &settings, &mut tell))
                }
                Err(reason) => super::failed(Means::KILL, &label, reason),
            };
            if let Some(folder) = self.bench.folder() {
                keep(folder, Means::KILL, &label, &ledger)?;
            }
            ledgers.push(ledger);
        }
        self.bench.outputs.give(&ledgers)
    }

    fn specs(&self) -> Result<Vec<EntrySpec>, String> {
        let mut specs = self.bench.specs()?;
        specs.extend(self.start.iter().zip(&self.address).map(|(start, address)| EntrySpec::command(start, address)));
        match specs.is_empty() {
            true => Err("no cache: give --entries, --entry, or --start with --address".to_owned()),
            false => Ok(specs),
        }
    }

    fn post(&self, origin: &Origin) -> Post {
        Post { origin: origin.address(), ..self.bench.post(&self.mode, &self.store, Budget::USUAL) }
    }

    fn settings(&self) -> Settings {
        Settings {
            objects: self.objects,
            load: Duration::from_secs(self.load_s),
            dark: Duration::from_secs(self.dark_s),
            settle: Duration::from_secs(self.settle_s),
            ..Settings::default()
        }
    }
}
