//! The summary that `larder run --json` writes, read back.

use crate::shell::Trouble;
use serde::Deserialize;
use std::fmt;
use std::path::Path;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// Requests answered.
    pub requests: u64,
    /// Those of them from the store.
    pub hits: u64,
    /// The next run finds what this one fetched.
    pub keeps: bool,
    bytes_from_store: u64,
    bytes_fetched: u64,
    /// Bytes through tunnels that stayed closed: nothing of them can be kept.
    bytes_tunnelled: u64,
    misses: Vec<Miss>,
    refused: Vec<(String, u64)>,
    failed: Vec<(String, u64)>,
    exchanges: Vec<Exchange>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Miss {
    cause: String,
    not_stored: Option<String>,
    requests: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Exchange {
    micros: u64,
    method: String,
    url: String,
    status: u16,
    bytes: u64,
    outcome: String,
    not_stored: Option<String>,
}

impl Saved {
    /// Reads the file of a run.
    pub fn read(file: &Path) -> Result<Saved, Trouble> {
        let trouble = |error: &dyn fmt::Display| format!("the summary of the run can't be read: {error}");
        let text = std::fs::read(file).map_err(|error| trouble(&error))?;
        serde_json::from_slice(&text).map_err(|error| trouble(&error))
    }

    /// Of all bytes; nothing at all is nothing from the store, and validations and redirections without a body count by requests.
    pub fn share_from_store(&self) -> f64 {
        let all = self.bytes_from_store + self.bytes_fetched + self.bytes_tunnelled;
        match (all, self.requests) {
            (0, 0) => 0.0,
            (0, requests) => self.hits as f64 / requests as f64,
            (all, _) => self.bytes_from_store as f64 / all as f64,
        }
    }

    /// How long the first answer took, in seconds.
    pub fn first_answer(&self) -> Option<f64> {
        self.exchanges.first().map(|exchange| exchange.micros as f64 / 1e6)
    }

    /// A line for each exchange.
    pub fn exchanges(&self) -> String {
        let lines = self.exchanges.iter().map(|one| {
            let why = one.not_stored.as_ref().map(|why| format!(", not kept: {why}")).unwrap_or_default();
            format!("  {} {} {}: {} bytes, {}{why}\n", one.status, one.method, one.url, one.bytes, one.outcome)
        });
        lines.collect()
    }

    /// Why origins were asked and what went wrong, in words of the log.
    pub fn reasons(&self) -> Option<String> {
        let misses = self.misses.iter().map(|miss| {
            let why = miss.not_stored.as_ref().map(|why| format!(", not kept: {why}")).unwrap_or_default();
            format!("{} × {} ({} kB{why})", miss.requests, miss.cause, miss.bytes / 1_000)
        });
        let words = self.refused.iter().chain(&self.failed).map(|(word, many)| format!("{many} × {word}"));
        let all: Vec<String> = misses.chain(words).take(4).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl fmt::Display for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.share_from_store() * 100.0;
        write!(f, "{} requests, {} hits, {percent:.1} % of bytes from the store", self.requests, self.hits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let saved: Saved = serde_json::from_str(
            r#"{"status":0,"seconds":2.5,"requests":12,"hits":9,"bytes_from_store":1230000,"bytes_fetched":999,
                "misses":[{"cause":"uri-miss","not_stored":"no-store","requests":2,"bytes":900,"host":"a.example"}],
                "failed":[["connect",1]],"exchanges":[{"micros":1500,"url":"http://a.example/"}]}"#,
        )
        .unwrap();
        assert!(saved.share_from_store() > 0.999);
        assert_eq!(saved.first_answer(), Some(0.0015));
        let reasons = "2 × uri-miss (0 kB, not kept: no-store); 1 × connect";
        assert_eq!(saved.reasons().as_deref(), Some(reasons));
        assert_eq!(Saved::default().share_from_store(), 0.0);
        assert_eq!(Saved { requests: 4, hits: 3, ..Saved::default() }.share_from_store(), 0.75);
    }
}
