//! The row of a running cache in the community's table of records: users, requests per second, hit ratio, CPU.
//!
//! The columns are defined as on the Squid benchmark page: users are the clients that access the cache; requests per second
//! are all "average … per minute since start" over 60; the hit ratio is that of five and of sixty minutes; CPU usage is the
//! cache's own word where it has one. Products that only count are read twice, and the difference is taken.

pub mod command;
mod fetch;
mod read;

use crate::chart::Unit;
use crate::proc::{Sampler, Watched};
use crate::stop;
pub use read::{Counts, Source};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A row of the table. A figure that a product does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The product and its version.
    pub product: String,
    /// Clients that access it.
    pub users: Option<u64>,
    /// Requests per second.
    pub rps: Option<f64>,
    /// Hits among requests of the last five minutes.
    pub hits_5min: Option<f64>,
    /// The same of the last sixty minutes.
    pub hits_60min: Option<f64>,
    /// Hits among the requests between the two readings.
    pub hits_now: Option<f64>,
    /// Share of a core that it uses.
    pub cpu: Option<f64>,
    /// The scope of `cpu` and `rps`.
    pub covers: String,
}

/// The sources of a row.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The product.
    pub source: Source,
    /// Where it tells its figures, if over HTTP.
    pub address: SocketAddr,
    /// Path of the figures, if not the usual one.
    pub path: Option<String>,
    /// The access log, for nginx, which counts neither users nor hits.
    pub log: Option<PathBuf>,
    /// Port of the cache, by which its processes are found; that of `address` if nothing else is said.
    pub cache_port: Option<u16>,
    /// Time between two readings.
    pub period: Duration,
}

/// Reads a running cache.
pub fn record(wish: &Wish) -> Result<Row, String> {
    let port = wish.cache_port.unwrap_or(wish.address.port());
    let mut sampler = Sampler::new(Watched::Port(port));
    let begun = Instant::now();
    let before = read(wish)?;
    // A signal makes the watch shorter; its figures are still those of the time between the readings.
    stop::pause(wish.period);
    let after = read(wish)?;
    let load = sampler.sample();
    let seconds = begun.elapsed().as_secs_f64();
    let seen = (load.cache_threads > 0).then_some(f64::from(load.cache_cpu));
    Ok(row(&before, &after, seconds, seen))
}

fn read(wish: &Wish) -> Result<Counts, String> {
    let mut counts = match wish.source.command() {
        Some(command) => wish.source.read(&fetch::command(command)?)?,
        None => {
            let path = wish.path.as_deref().unwrap_or(wish.source.path());
            wish.source.read(&fetch::http(wish.address, path)?)?
        }
    };
    if let Some(log) = &wish.log {
        let text = fetch::tail(log)?;
        counts.add_log(&text);
    }
    Ok(counts)
}

/// Two readings as a row. Figures of the product itself go before computed ones.
fn row(before: &Counts, after: &Counts, seconds: f64, cpu: Option<f64>) -> Row {
    let rise = |of: fn(&Counts) -> Option<u64>| Some(of(after)?.saturating_sub(of(before)?) as f64);
    let requests = rise(|counts| counts.requests);
    let hits_now = match (rise(|counts| counts.hits), requests) {
        (Some(hits), Some(requests)) if requests > 0.0 => Some(hits / requests),
        _ => None,
    };
    let since_start = after.rps_since_start;
    Row {
        product: after.product.clone(),
        users: after.users,
        rps: since_start.or(requests.map(|requests| requests / seconds)),
        hits_5min: after.hits_5min,
        hits_60min: after.hits_60min,
        hits_now,
        cpu: after.cpu.or(cpu),
        covers: match since_start {
            Some(_) => "since its start".to_owned(),
            None => format!("{} of watching", Unit::Elapsed.text(seconds.round())),
        },
    }
}

impl Row {
    const COLUMNS: [&'static str; 8] =
        ["product", "users", "requests/s", "hits, 5 min", "hits, 60 min", "hits, watched", "CPU", "covers"];

    fn cells(&self) -> [String; 8] {
        let text = |value: Option<f64>, unit: Unit| value.map_or_else(|| "–".to_owned(), |value| unit.text(value));
        [
            self.product.clone(),
            text(self.users.map(|users| users as f64), Unit::Count),
            text(self.rps, Unit::Count),
            text(self.hits_5min, Unit::Share),
            text(self.hits_60min, Unit::Share),
            text(self.hits_now, Unit::Share),
            text(self.cpu, Unit::Share),
            self.covers.clone(),
        ]
    }
}

/// The table, in the form that wikis and issue trackers show.
pub fn table(rows: &[Row]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = Row::COLUMNS.map(str::to_owned).to_vec();
    let rule = format!("|{}\n", "---|".repeat(Row::COLUMNS.len()));
    line(&head) + &rule + &rows.iter().map(|row| line(&row.cells())).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_product_says_goes_before_what_is_computed() {
        let counts = |requests, hits| Counts { requests: Some(requests), hits: Some(hits), ..Counts::default() };
        let counted = row(&counts(100, 50), &counts(300, 200), 10.0, Some(0.25));
        assert_eq!((counted.rps, counted.hits_now, counted.cpu), (Some(20.0), Some(0.75), Some(0.25)));
        let says = Counts { rps_since_start: Some(7.0), cpu: Some(0.5), ..counts(300, 200) };
        let said = row(&counts(100, 50), &says, 10.0, Some(0.25));
        assert_eq!((said.rps, said.cpu, said.covers.as_str()), (Some(7.0), Some(0.5), "since its start"));
        assert_eq!(row(&counts(5, 5), &counts(5, 5), 1.0, None).hits_now, None);
        assert_eq!(
            row(&counts(9, 9), &counts(0, 0), 1.0, None).rps,
            Some(0.0),
            "a restart in between is no negative rate"
        );
    }

    #[test]
    fn the_table_has_a_cell_for_each_column() {
        let row = Row { product: "squid 5.7".to_owned(), users: Some(54), rps: Some(615.0), ..Row::default() };
        let text = table(&[row]);
        let bars: Vec<usize> = text.lines().map(|line| line.matches('|').count()).collect();
        assert_eq!(bars, [9, 9, 9]);
        assert!(text.contains("| squid 5.7 | 54 | 615 | – |"), "{text}");
    }
}
