//! The flags of all commands that start entries: which ones, where they run, what they may use, and where the ledgers and
//! the report go.

use super::{EntrySpec, Post, Servers};
use crate::report::command::Outputs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Entries and the machine that they share with the referee.
#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// Entries that come with the program, in the order of the report
    #[arg(long, value_delimiter = ',')]
    entries: Option<Vec<String>>,
    /// An entry of your own: a folder with an entry.toml, and a comments.txt if its maker comments on it
    #[arg(long, value_name = "FOLDER")]
    entry: Vec<PathBuf>,
    /// Port of the caches
    #[arg(long, default_value_t = 24_128)]
    port: u16,
    /// Port of the origins; a cache that is not started by an entry must know it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), default_value_t = 24_180)]
    origin_port: u16,
    /// Cores of the caches, such as 0 or 0,1; the first half of all cores if nothing is said
    #[arg(long, value_delimiter = ',')]
    cache_cores: Vec<usize>,
    /// Budget of memory in MB; 256, or 64 for power-cut
    #[arg(long)]
    memory_mb: Option<u64>,
    /// Budget of disk in MB; 1024, or 512 for power-cut
    #[arg(long)]
    disk_mb: Option<u64>,
    /// Folder for the ledgers; contest and official make one of their own name if nothing is said
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Where the report goes
    #[command(flatten)]
    pub outputs: Outputs,
}

/// Memory and disk in MB where no flag says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u64, pub u64);

impl Budget {
    /// The usual one.
    pub const USUAL: Self = Self(256, 1_024);
}

impl BenchArgs {
    /// Names of the entries that come with the program; these if no flag says so.
    pub fn names(&self, usual: &[&str]) -> Vec<String> {
        let usual = || usual.iter().map(|name| (*name).to_owned()).collect();
        let named = self.entries.clone().unwrap_or_else(usual);
        named.into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// Folders of the user's own entries.
    pub fn folders(&self) -> &[PathBuf] {
        &self.entry
    }

    /// The entries that the flags name.
    pub fn specs(&self) -> Result<Vec<EntrySpec>, String> {
        EntrySpec::chosen(&self.names(&[]), &self.entry)
    }

    /// Folder for the ledgers, if one was given.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Where the origins listen.
    pub fn origin(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.origin_port))
    }

    /// Where and how the caches run.
    pub fn post(&self, mode: &str, store: &str, budget: Budget) -> Post {
        Post {
            mode: mode.to_owned(),
            store: store.to_owned(),
            port: self.port,
            origin: self.origin(),
            memory_mb: self.memory_mb.unwrap_or(budget.0),
            disk_mb: self.disk_mb.unwrap_or(budget.1),
            cores: self.cores(),
            servers: Servers::default(),
            listener: crate::ledger::Listener::Http,
        }
    }

    fn cores(&self) -> Vec<usize> {
        match self.cache_cores.is_empty() {
            true => (0..(all_cores() / 2).max(1)).collect(),
            false => self.cache_cores.clone(),
        }
    }

    /// Cores that are left to the referee.
    pub fn own_cores(&self) -> Vec<usize> {
        let taken = self.cores();
        (0..all_cores()).filter(|core| !taken.contains(core)).collect()
    }
}

/// Refuses two entries of the same name, which no report could tell apart.
pub fn no_twins(entries: &[EntrySpec]) -> Result<(), String> {
    let twice = entries.iter().enumerate().find(|(i, spec)| entries[..*i].iter().any(|each| each.name == spec.name));
    match twice {
        Some((_, spec)) => Err(format!("two entries are called {:?}; give one another name", spec.name)),
        None => Ok(()),
    }
}

fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};
    use std::collections::BTreeMap;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: BenchArgs,
    }

    #[test]
    fn flags_become_a_post_with_the_budget_of_the_command_where_they_say_nothing() {
        let bench = |words: &[&str]| Line::try_parse_from([&["x"], words].concat()).unwrap().bench;
        let post = bench(&["--cache-cores", "1,3", "--disk-mb", "9"]).post("reverse", "disk", Budget(64, 512));
        assert_eq!((post.cores, post.memory_mb, post.disk_mb, post.port), (vec![1, 3], 64, 9, 24_128));
        let (none, some) = (bench(&[]), bench(&["--entries", "squid,,nginx"]));
        assert_eq!(
            (none.names(&["larder"]), some.names(&["larder"])),
            (vec!["larder".to_owned()], vec!["squid".to_owned(), "nginx".to_owned()])
        );
        assert!(bench(&["--entries", ""]).names(&["larder"]).is_empty());
    }

    /// A flag means the same, and is explained in the same words, in each command that has it.
    #[test]
    fn commands_that_start_entries_have_the_same_flags_with_the_same_words() {
        fn helps<A: clap::Args>() -> BTreeMap<String, String> {
            let command = A::augment_args(clap::Command::new("x"));
            let flags = command.get_arguments().filter_map(|flag| {
                Some((flag.get_long()?.to_owned(), flag.get_help().map(ToString::to_string).unwrap_or_default()))
            });
            flags.collect()
        }
        let shared = Line::command();
        let shared: Vec<&str> = shared.get_arguments().filter_map(clap::Arg::get_long).collect();
        let contest = helps::<super::super::command::ContestArgs>();
        assert!(shared.len() > 8, "{shared:?}");
        for (name, other) in [
            ("kill", helps::<crate::kill::command::KillArgs>()),
            ("power-cut", helps::<crate::power_cut::command::PowerCutArgs>()),
            ("official", helps::<crate::official::command::OfficialArgs>()),
        ] {
            for flag in shared.iter().filter(|flag| !["help", "version"].contains(flag)) {
                assert!(contest.contains_key(*flag), "contest has no --{flag}");
                assert_eq!(other.get(*flag), contest.get(*flag), "{name} --{flag}");
            }
        }
    }
}
