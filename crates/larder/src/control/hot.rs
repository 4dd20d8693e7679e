//! The URLs asked for most, and the hosts that miss: sums over the requests that are remembered.

use crate::record::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

/// Rows of each list.
const ROWS_MAX: usize = 20;

/// The most requested URLs and the hosts with most misses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hot {
    /// How many requests this is of.
    pub requests: u64,
    /// When the first of them came: milliseconds since 1970; 0 when there is none.
    #[serde(default)]
    pub since_millis: u64,
    /// URLs, those with the most requests first.
    pub urls: Vec<Row>,
    /// Hosts, those with the most misses first.
    pub hosts: Vec<Row>,
}

/// Requests of one URL or of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The URL or the host.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Of these from the store.
    pub from_store: u64,
    /// Requests for which an origin was asked.
    pub misses: u64,
    /// Body bytes sent.
    pub bytes: u64,
}

impl Row {
    fn count(&mut self, outcome: Outcome, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
        match outcome {
            Outcome::Miss(_) => self.misses += 1,
            outcome if outcome.is_from_store() => self.from_store += 1,
            _ => {}
        }
    }

    fn add(&mut self, other: &Row) {
        self.requests += other.requests;
        self.from_store += other.from_store;
        self.misses += other.misses;
        self.bytes += other.bytes;
    }
}

/// Sums of one worker; those of several workers can be added.
#[derive(Debug, Default)]
pub(super) struct Sums {
    requests: u64,
    since: Option<Duration>,
    urls: HashMap<String, Row>,
    hosts: HashMap<String, Row>,
}

impl Sums {
    /// Counts a request that came then.
    pub(super) fn count(&mut self, at: Duration, url: &str, outcome: Outcome, bytes: u64) {
        self.requests += 1;
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
        row(&mut self.urls, url).count(outcome, bytes);
        row(&mut self.hosts, host(url)).count(outcome, bytes);
    }

    /// Adds the sums of another worker.
    pub(super) fn add(&mut self, other: Sums) {
        self.requests += other.requests;
        self.since = [self.since, other.since].into_iter().flatten().min();
        for (ours, theirs) in [(&mut self.urls, other.urls), (&mut self.hosts, other.hosts)] {
            theirs.into_iter().for_each(|(name, theirs)| row(ours, &name).add(&theirs));
        }
    }

    /// The first rows of each list.
    pub(super) fn hot(self) -> Hot {
        let (urls, hosts) = (first(self.urls, |row| row.requests), first(self.hosts, |row| row.misses));
        let since_millis = self.since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Hot { requests: self.requests, since_millis, urls, hosts }
    }
}

fn row<'m>(rows: &'m mut HashMap<String, Row>, name: &str) -> &'m mut Row {
    rows.entry(name.to_owned()).or_default()
}

/// The host of a URL with its port; of a tunnel's target that is all of it.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

fn first(rows: HashMap<String, Row>, by: fn(&Row) -> u64) -> Vec<Row> {
    let mut rows: Vec<(String, Row)> = rows.into_iter().filter(|(name, _)| !name.is_empty()).collect();
    rows.sort_by(|(a, one), (b, other)| by(other).cmp(&by(one)).then(other.requests.cmp(&one.requests)).then(a.cmp(b)));
    rows.truncate(ROWS_MAX);
    rows.into_iter().map(|(name, row)| Row { name, ..row }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cause;

    #[test]
    fn urls_go_by_requests_and_hosts_by_misses() {
        let requests = [
            ("http://a/x", Outcome::Hit, 5),
            ("http://a/x", Outcome::Validated, 5),
            ("http://b:81/y?q", Outcome::Miss(Cause::Uri), 7),
            ("c:443", Outcome::Tunnel, 1),
            ("", Outcome::Own("malformed"), 0),
        ];
        let (mut sums, mut of_another_worker) = (Sums::default(), Sums::default());
        requests[..1]
            .iter()
            .for_each(|(url, outcome, bytes)| sums.count(Duration::from_secs(8), url, *outcome, *bytes));
        requests[1..]
            .iter()
            .for_each(|(url, outcome, bytes)| of_another_worker.count(Duration::from_secs(7), url, *outcome, *bytes));
        sums.add(of_another_worker);
        let hot = sums.hot();
        let names = |rows: &[Row]| rows.iter().map(|row| (row.name.clone(), row.requests)).collect::<Vec<_>>();
        let row = |name: &str, requests| (name.to_owned(), requests);
        assert_eq!(names(&hot.urls), [row("http://a/x", 2), row("c:443", 1), row("http://b:81/y?q", 1)]);
        assert_eq!(names(&hot.hosts), [row("b:81", 1), row("a", 2), row("c:443", 1)]);
        assert_eq!(hot.since_millis, 7_000, "the first of all workers' requests");
        assert_eq!((hot.requests, hot.urls[0].from_store, hot.urls[0].bytes, hot.hosts[0].misses), (5, 2, 10, 1));
    }

    #[test]
    fn lists_are_bounded() {
        let mut sums = Sums::default();
        (0..1000).for_each(|number| sums.count(Duration::ZERO, &format!("http://h{number}/"), Outcome::Hit, 0));
        let hot = sums.hot();
        assert_eq!((hot.requests, hot.urls.len(), hot.hosts.len()), (1000, ROWS_MAX, ROWS_MAX));
    }
}
