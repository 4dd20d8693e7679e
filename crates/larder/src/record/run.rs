//! Sums over the requests that came through the listener of one `larder run`, for its summary.

use super::run_hosts::{Hosts, host};
use super::{Outcome, Record, RunHost};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Hits whose answers were older than their lifetime, because the network was not to be used or was down.
    pub outdated: u64,
    /// Requests that were answered from the store because no connection to their origins came about.
    pub network_away: u64,
    /// Those of them where the network answered with a page of its own, as before a login.
    pub portal: u64,
    /// Requests that found nothing while there was no network, to be sent later.
    pub missing: Vec<LaterRequest>,
    /// The hosts, those with the most bytes first.
    pub hosts: Vec<RunHost>,
    /// The first requests, in the order in which they ended.
    pub exchanges: Vec<RunExchange>,
}

/// A request of a run in a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunExchange {
    /// Its method.
    pub method: String,
    /// Its URL without its query, which may have a signature or a token in it.
    pub url: String,
    /// The status of the answer.
    pub status: u16,
    /// Body bytes that were sent.
    pub bytes: u64,
    /// How long all of it took.
    pub micros: u64,
    /// How the answer came about: the word of the log.
    pub outcome: String,
    /// Why the answer was not stored, where it could have been.
    pub not_stored: Option<String>,
    /// For how many seconds the stored response was fresh, and by what.
    pub lifetime: Option<(u64, String)>,
    /// How many seconds old it was.
    pub age: Option<u64>,
}

/// A GET that an offline run could not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaterRequest {
    /// Its URL.
    pub url: String,
    /// Its fields, without those of its connection, of conditions and of ranges.
    pub fields: Vec<(String, String)>,
    /// The range that was asked for, as the request had it. The whole is fetched all the same: a part is kept only where its origin
    /// names a strong validator, and a tool that asks for one part asks for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

impl LaterRequest {
    /// Whether both bring the same response. The part that was asked for does not count.
    pub fn is_same(&self, other: &LaterRequest) -> bool {
        self.url == other.url && self.fields == other.fields
    }
}

/// Whether a run uses the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// As any client does.
    #[default]
    Used,
    /// Never: what is stored, however old, or an error page at once.
    Untouched,
}

/// How the tools of a run get to Larder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By the variables of a proxy; TLS is opened.
    #[default]
    Proxy,
    /// By the URL of a mirror in place of their index; no TLS is opened, and there is no CA.
    Mirror,
}

/// Requests of an offline run that are remembered for later.
const MISSING_MAX: usize = 10_000;

/// Bytes of their URLs and fields together: the answer that ends a run stays far below what is read of it.
const MISSING_BYTES_MAX: usize = 4 << 20;

/// Requests of a run that are told one by one.
const EXCHANGES_MAX: usize = 1_000;

/// The longest URL of one of them.
const URL_BYTES_MAX: usize = 1_000;

/// Requests of a run for which origins were asked for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunMiss {
    /// Why the store had no answer: the word of the log.
    pub cause: String,
    /// Why the origin's answer was not kept, if it was not.
    pub not_stored: Option<String>,
    /// How many.
    pub requests: u64,
    /// Body bytes that were sent for them.
    pub bytes: u64,
    /// The host of the largest of them.
    pub host: String,
}

/// The counters of one `larder run`.
#[derive(Debug, Default)]
pub struct Run {
    /// Its name.
    pub id: String,
    /// Whether it uses the network.
    pub network: Network,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    stats: RunStats,
    misses: BTreeMap<(&'static str, Option<&'static str>), Misses>,
    refused: BTreeMap<&'static str, u64>,
    failed: BTreeMap<&'static str, u64>,
    missing: BTreeSet<LaterRequest>,
    missing_bytes: usize,
    hosts: Hosts,
    exchanges: Vec<RunExchange>,
}

/// Misses for one reason.
#[derive(Debug, Default)]
struct Misses {
    requests: u64,
    bytes: u64,
    largest: u64,
    host: String,
}

impl Misses {
    fn count(&mut self, record: &Record) {
        self.requests += 1;
        self.bytes += record.bytes;
        if self.requests == 1 || record.bytes > self.largest {
            self.largest = record.bytes;
            host(&record.url).clone_into(&mut self.host);
        }
    }
}

impl Run {
    /// A run of which nothing came yet.
    pub fn new(id: String, network: Network) -> Run {
        Run { id, network, sums: Mutex::default() }
    }

    /// Remembers a request that found nothing.
    pub fn send_later(&self, request: LaterRequest) {
        let sums = &mut *self.sums.lock();
        let fields = request.fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let bytes = request.url.len() + fields + request.part.as_ref().map_or(0, String::len);
        // They are sorted by URL and fields, and the one without a part is the first.
        let first = LaterRequest { part: None, ..request.clone() };
        if sums.missing.range(&first..).next().is_some_and(|listed| listed.is_same(&request)) {
            return;
        }
        if sums.missing.len() < MISSING_MAX
            && sums.missing_bytes + bytes <= MISSING_BYTES_MAX
            && sums.missing.insert(request)
        {
            sums.missing_bytes += bytes;
        }
    }

    /// Counts a request that is answered from the store because its origin is out of reach, or a captive portal answers in its place.
    pub fn network_was_away(&self, is_portal: bool) {
        let stats = &mut self.sums.lock().stats;
        stats.network_away += 1;
        stats.portal += u64::from(is_portal);
    }

    /// Counts one request. A CONNECT whose tunnel was opened is not counted: the requests inside are.
    pub fn count(&self, record: &Record) {
        if record.outcome == Outcome::Opened {
            return;
        }
        let mut sums = self.sums.lock();
        let sums = &mut *sums;
        sums.stats.requests += 1;
        sums.hosts.count(record);
        if sums.exchanges.len() < EXCHANGES_MAX {
            sums.exchanges.push(exchange(record));
        }
        match record.outcome {
            Outcome::Miss(cause) => {
                sums.stats.bytes_fetched += record.bytes;
                sums.misses.entry((cause.as_str(), record.not_stored)).or_default().count(record);
            }
            Outcome::Tunnel => {
                sums.stats.tunnels += 1;
                sums.stats.bytes_tunnelled += record.bytes;
            }
            Outcome::Own(word) => *sums.refused.entry(word).or_default() += 1,
            Outcome::Failed(word) => *sums.failed.entry(word).or_default() += 1,
            outcome => {
                sums.stats.outdated += u64::from(matches!(outcome, Outcome::HitStale | Outcome::HitError));
                sums.stats.hits += 1;
                sums.stats.bytes_from_store += record.bytes;
            }
        }
    }

    /// All that came.
    pub fn stats(&self) -> RunStats {
        let sums = self.sums.lock();
        let misses = sums.misses.iter().map(|(&(cause, not_stored), misses)| RunMiss {
            cause: cause.to_owned(),
            not_stored: not_stored.map(str::to_owned),
            requests: misses.requests,
            bytes: misses.bytes,
            host: misses.host.clone(),
        });
        let mut misses: Vec<RunMiss> = misses.collect();
        misses.sort_by_key(|miss| std::cmp::Reverse((miss.bytes, miss.requests)));
        let words = |of: &BTreeMap<&str, u64>| of.iter().map(|(word, many)| ((*word).to_owned(), *many)).collect();
        RunStats {
            misses,
            refused: words(&sums.refused),
            failed: words(&sums.failed),
            missing: sums.missing.iter().cloned().collect(),
            hosts: sums.hosts.sums(),
            exchanges: sums.exchanges.clone(),
            ..sums.stats.clone()
        }
    }
}

/// Bytes of a method that are told; those of RFC 9110 and WebDAV have 16 at most.
const METHOD_BYTES_MAX: usize = 64;

fn exchange(record: &Record) -> RunExchange {
    let weighed = record.trail.weighed.as_ref().map(|(weighed, _)| weighed);
    let url = record.url.split('?').next().unwrap_or_default();
    RunExchange {
        method: super::ring::beginning(record.method.as_ref().map_or("-", |method| method.as_str()), METHOD_BYTES_MAX)
            .to_owned(),
        url: super::ring::beginning(url, URL_BYTES_MAX).to_owned(),
        status: record.status,
        bytes: record.bytes,
        micros: record.micros(),
        outcome: record.outcome.as_str().to_owned(),
        not_stored: record.not_stored.map(str::to_owned),
        lifetime: weighed.map(|weighed| (weighed.lifetime, weighed.source.as_str().to_owned())),
        age: weighed.map(|weighed| weighed.age()),
    }
}
