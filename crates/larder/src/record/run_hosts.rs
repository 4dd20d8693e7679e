//! The hosts of a run: what came from the store, what was fetched, and for how long the command waited for either.

use super::{Outcome, Record};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Hosts of a run that are counted one by one; all others are counted together.
const HOSTS_MAX: usize = 256;
/// The name under which they are.
const OTHERS: &str = "other hosts";
/// Spans of time of a host that may still be joined with others. Requests end in about the order in which they began.
const SPANS_MAX: usize = 64;

/// Sums over the requests of a run to one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunHost {
    /// Its name.
    pub host: String,
    /// Requests answered.
    pub requests: u64,
    /// Those answered from the store, after a validation too.
    pub hits: u64,
    /// Body bytes that came from the store.
    pub bytes_from_store: u64,
    /// Body bytes that the origin had sent.
    pub bytes_fetched: u64,
    /// Microseconds during which at least one answer of the store was under way.
    pub store_micros: u64,
    /// Microseconds during which at least one answer of the origin was under way.
    pub fetch_micros: u64,
}

/// The hosts of a run, while it lasts.
#[derive(Debug, Default)]
pub(super) struct Hosts(HashMap<String, Host>);

#[derive(Debug, Default)]
struct Host {
    sums: RunHost,
    store: Busy,
    fetch: Busy,
}

impl Hosts {
    pub(super) fn count(&mut self, record: &Record) {
        let name = host(&record.url);
        if name.is_empty() {
            return;
        }
        let name = if self.0.len() < HOSTS_MAX || self.0.contains_key(name) { name } else { OTHERS };
        let host = match self.0.get_mut(name) {
            Some(host) => host,
            None => self.0.entry(name.to_owned()).or_default(),
        };
        host.sums.requests += 1;
        let begin = u64::try_from(record.at.as_micros()).unwrap_or(u64::MAX);
        let end = begin.saturating_add(record.micros());
        if record.outcome.is_from_store() {
            host.sums.hits += 1;
            host.sums.bytes_from_store += record.bytes;
            host.store.add(begin, end);
        } else if matches!(record.outcome, Outcome::Miss(_)) {
            host.sums.bytes_fetched += record.bytes;
            host.fetch.add(begin, end);
        }
    }

    /// Those with the most bytes first.
    pub(super) fn sums(&self) -> Vec<RunHost> {
        let hosts = self.0.iter().map(|(name, host)| RunHost {
            host: name.clone(),
            store_micros: host.store.micros(),
            fetch_micros: host.fetch.micros(),
            ..host.sums.clone()
        });
        let mut hosts: Vec<RunHost> = hosts.collect();
        hosts.sort_by(|one, other| {
            let weight = |host: &RunHost| (host.bytes_from_store + host.bytes_fetched, host.requests);
            weight(other).cmp(&weight(one)).then_with(|| one.host.cmp(&other.host))
        });
        hosts
    }
}

/// The host in a URL, without its port.
pub(super) fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => &authority[..colon],
        _ => authority,
    }
}

/// How long something was under way, where spans of time that overlap count once: a tool that fetches ten files at a time does not
/// wait ten times as long.
#[derive(Debug, Default)]
struct Busy {
    /// In order, none touching another.
    spans: Vec<(u64, u64)>,
    settled: u64,
    settled_until: u64,
}

impl Busy {
    fn add(&mut self, begin: u64, end: u64) {
        let begin = begin.max(self.settled_until);
        if end <= begin {
            return;
        }
        let from = self.spans.partition_point(|span| span.1 < begin);
        let to = self.spans.partition_point(|span| span.0 <= end);
        let joined = self.spans[from..to].iter().fold((begin, end), |all, span| (all.0.min(span.0), all.1.max(span.1)));
        self.spans.splice(from..to, [joined]);
        if self.spans.len() > SPANS_MAX {
            let (begin, end) = self.spans.remove(0);
            self.settled += end - begin;
            self.settled_until = end;
        }
    }

    fn micros(&self) -> u64 {
        self.settled + self.spans.iter().map(|(begin, end)| end - begin).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_overlap_count_once() {
        let mut busy = Busy::default();
        for (begin, end) in [(10, 20), (15, 30), (40, 50), (29, 41), (60, 60), (5, 6)] {
            busy.add(begin, end);
        }
        assert_eq!((busy.micros(), busy.spans.len()), (41, 2));
    }

    #[test]
    fn spans_are_bounded_and_their_sum_is_not() {
        let mut busy = Busy::default();
        for number in 0..1_000 {
            busy.add(number * 10, number * 10 + 3);
        }
        assert_eq!((busy.micros(), busy.spans.len()), (3_000, SPANS_MAX));
        busy.add(0, 1);
        assert_eq!(busy.micros(), 3_000, "time that was counted is not counted again");
    }

    #[test]
    fn the_host_of_a_url_has_no_port() {
        for (url, wanted) in [
            ("https://a.example:8443/x?y", "a.example"),
            ("http://[::1]:80/", "[::1]"),
            ("a.example:443", "a.example"),
            ("https://a.example?q", "a.example"),
            ("", ""),
        ] {
            assert_eq!(host(url), wanted);
        }
    }
}
