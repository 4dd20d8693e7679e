//! Sums over the requests that came through the listener of one `larder run`, for its summary.

use super::{Outcome, Record};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Sums over the requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunStats {
    /// Requests answered.
    pub requests: u64,
    /// Those answered from the store, after a validation too.
    pub hits: u64,
    /// Body bytes sent to the command that came from the store.
    pub bytes_from_store: u64,
    /// Body bytes sent to the command that origins had sent for it.
    pub bytes_fetched: u64,
    /// Requests for which origins were asked, by reason, the most frequent first.
    pub misses: Vec<RunMiss>,
    /// Tunnels that were not opened.
    pub tunnels: u64,
    /// Bytes that went through them, towards the command.
    pub bytes_tunnelled: u64,
    /// Requests that Larder answered by itself (a refusal, a limit), by the word of the log.
    pub refused: Vec<(String, u64)>,
    /// Requests whose origin could not be had, by the word of the log.
    pub failed: Vec<(String, u64)>,
}

/// Requests of a run for which origins were asked for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMiss {
    /// Why the store had no answer: the word of the log.
    pub cause: String,
    /// Why the origin's answer was not kept, if it was not.
    pub not_stored: Option<String>,
    /// How many.
    pub requests: u64,
}

/// The counters of one `larder run`.
#[derive(Debug, Default)]
pub struct Run {
    /// Its name.
    pub id: String,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    stats: RunStats,
    misses: BTreeMap<(&'static str, Option<&'static str>), u64>,
    refused: BTreeMap<&'static str, u64>,
    failed: BTreeMap<&'static str, u64>,
}

impl Run {
    /// A run of which nothing came yet.
    pub fn new(id: String) -> Run {
        Run { id, sums: Mutex::default() }
    }

    /// Counts one request. A CONNECT whose tunnel was opened is not counted: the requests inside are.
    pub fn count(&self, record: &Record) {
        if record.outcome == Outcome::Opened {
            return;
        }
        let mut sums = self.sums.lock();
        sums.stats.requests += 1;
        match record.outcome {
            Outcome::Miss(cause) => {
                sums.stats.bytes_fetched += record.bytes;
                *sums.misses.entry((cause.as_str(), record.not_stored)).or_default() += 1;
            }
            Outcome::Tunnel => {
                sums.stats.tunnels += 1;
                sums.stats.bytes_tunnelled += record.bytes;
            }
            Outcome::Own(word) => *sums.refused.entry(word).or_default() += 1,
            Outcome::Failed(word) => *sums.failed.entry(word).or_default() += 1,
            _ => {
                sums.stats.hits += 1;
                sums.stats.bytes_from_store += record.bytes;
            }
        }
    }

    /// All that came.
    pub fn stats(&self) -> RunStats {
        let sums = self.sums.lock();
        let misses = sums.misses.iter().map(|(&(cause, not_stored), &requests)| RunMiss {
            cause: cause.to_owned(),
            not_stored: not_stored.map(str::to_owned),
            requests,
        });
        let mut misses: Vec<RunMiss> = misses.collect();
        misses.sort_by_key(|miss| std::cmp::Reverse(miss.requests));
        let words = |of: &BTreeMap<&str, u64>| of.iter().map(|(word, many)| ((*word).to_owned(), *many)).collect();
        RunStats { misses, refused: words(&sums.refused), failed: words(&sums.failed), ..sums.stats.clone() }
    }
}
