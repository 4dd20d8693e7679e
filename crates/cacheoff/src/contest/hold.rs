//! `cacheoff hold`: an entry that runs as in a contest, for others than robots to ask.

use super::{EntrySpec, Post, Prepared, Servers};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::channel;

/// Starts an entry as a contest does, says its process, address and product, and ends it when the input ends.
#[derive(clap::Args, Debug)]
pub struct HoldArgs {
    /// An entry that comes with the program
    entry: String,
    /// Port of the cache
    #[arg(long)]
    port: u16,
    /// Port of the origins
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    origin_port: u16,
    /// Cores of the cache, such as 0 or 0,1
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Budget of memory in MB
    #[arg(long, default_value_t = 256)]
    memory_mb: u64,
    #[command(flatten)]
    servers: Servers,
}

impl HoldArgs {
    /// Returns when the input has ended, or on Ctrl-C or SIGTERM, and the cache with it.
    pub fn run(&self) -> Result<ExitCode, String> {
        // Before the start, so that no signal leaves the cache behind.
        let mut ends = Ends::catch()?;
        let spec = EntrySpec::builtin(&self.entry)?;
        let mode = if spec.makes_pages() { Post::PAGES } else { "reverse" };
        let prepared = Prepared::new(spec, self.post(mode))?;
        prepared.prepare()?;
        let running = prepared.start()?;
        let pid = running.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let mut output = std::io::stdout();
        let said = writeln!(output, "{pid}\t{}\t{}", running.address, prepared.product()).and_then(|()| output.flush());
        // A closed standard output means that no command waits for the cache any more.
        if said.is_ok() {
            ends.wait();
        }
        running.stop();
        Ok(ExitCode::SUCCESS)
    }

    fn post(&self, mode: &str) -> Post {
        Post {
            mode: mode.to_owned(),
            store: "memory".to_owned(),
            port: self.port,
            origin: SocketAddr::from((Ipv4Addr::LOCALHOST, self.origin_port)),
            memory_mb: self.memory_mb,
            disk_mb: 0,
            cores: self.cores.clone(),
            servers: self.servers.clone(),
            listener: crate::ledger::Listener::Http,
        }
    }
}

/// The events that end a held cache. The cache is in a process group of its own, which a terminal's Ctrl-C does not
/// reach.
struct Ends {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
}

impl Ends {
    fn catch() -> Result<Ends, String> {
        let runtime = Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(|error| format!("signals cannot be waited for: {error}"))?;
        let caught = |kind| signal(kind).map_err(|error| format!("signals cannot be waited for: {error}"));
        let guard = runtime.enter();
        let (interrupt, terminate) = (caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?);
        drop(guard);
        Ok(Ends { runtime, interrupt, terminate })
    }

    fn wait(&mut self) {
        let (tell, told) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while std::io::stdin().read(&mut buffer).is_ok_and(|length| length > 0) {}
            let _ = tell.send(());
        });
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                _ = told => {}
            }
        });
    }
}
