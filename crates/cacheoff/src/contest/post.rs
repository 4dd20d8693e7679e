//! Where and how an entry runs.

use crate::ledger::Listener;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where and how an entry runs.
#[derive(Clone, Debug)]
pub struct Post {
    /// `forward`, `reverse` or `pages`.
    pub mode: String,
    /// `memory`, `disk` or `pass`.
    pub store: String,
    /// Port on 127.0.0.1.
    pub port: u16,
    /// Origins for a reverse proxy.
    pub origin: SocketAddr,
    /// Budget of memory in MB.
    pub memory_mb: u64,
    /// Budget of disk in MB.
    pub disk_mb: u64,
    /// Cores of the cache; empty: not bound, one worker.
    pub cores: Vec<usize>,
    /// How servers that make pages are started.
    pub servers: Servers,
    /// The protocol of the entry's listener.
    pub listener: Listener,
}

impl Post {
    /// The mode of servers that make pages.
    pub const PAGES: &str = "pages";

    /// Whether it is a server that makes pages, not a cache.
    pub fn makes_pages(&self) -> bool {
        self.mode == Self::PAGES
    }
}

/// How servers that make pages are started.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Processes of the application in each entry that makes pages
    #[arg(long, default_value_t = Servers::PROCESSES, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub processes: u32,
    /// A Python virtual environment, for entries that make pages: servers in Python are looked for in it, and its
    /// interpreter runs the applications that choose theirs
    #[arg(long, value_name = "FOLDER")]
    pub python: Option<PathBuf>,
}

impl Default for Servers {
    fn default() -> Self {
        Self { processes: Self::PROCESSES, python: None }
    }
}

impl Servers {
    const PROCESSES: u32 = 2;
}
