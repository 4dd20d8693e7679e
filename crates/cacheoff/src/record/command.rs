//! `cacheoff record`.

use super::{Source, Wish, record, table};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Prints the row of a running cache in the community's table: users, requests per second, hit ratio, CPU.
#[derive(clap::Args, Debug)]
pub struct RecordArgs {
    /// The product: squid, varnish, nginx, trafficserver or larder
    #[arg(value_parser = source)]
    product: Source,
    /// Where it tells its figures; its usual address if nothing is said
    #[arg(value_name = "ADDR:PORT")]
    address: Option<SocketAddr>,
    /// Path of the figures, if not the usual one
    #[arg(long)]
    path: Option<String>,
    /// Access log of nginx whose lines end with $upstream_cache_status
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Port of the cache itself, if its figures are on another one
    #[arg(long)]
    cache_port: Option<u16>,
    /// Seconds between the two readings
    #[arg(long, default_value_t = 10)]
    watch_s: u64,
}

fn source(word: &str) -> Result<Source, String> {
    let names: Vec<&str> = Source::ALL.iter().map(|source| source.as_str()).collect();
    let found = Source::ALL.into_iter().find(|source| source.as_str() == word);
    found.ok_or_else(|| format!("there are {}", names.join(", ")))
}

impl RecordArgs {
    /// Reads twice and prints.
    pub fn run(&self) -> Result<ExitCode, String> {
        let usual = || self.product.address().parse().map_err(|_| "no usual address".to_owned());
        let wish = Wish {
            source: self.product,
            address: self.address.map_or_else(usual, Ok)?,
            path: self.path.clone(),
            log: self.log.clone(),
            cache_port: self.cache_port,
            period: Duration::from_secs(self.watch_s),
        };
        print!("{}", table(&[record(&wish)?]));
        Ok(ExitCode::SUCCESS)
    }
}
