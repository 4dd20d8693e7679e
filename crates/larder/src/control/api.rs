//! Values of the API's answers; `docs/openapi.yaml` describes them.

use super::Admin;
use super::pulse::{Now, Second};
use crate::clock;
use crate::config::manual::{self, InForce};
use crate::tally::Refusals;
use crate::upstream;
use serde::Serialize;
use std::collections::BTreeMap;

/// It was done.
#[derive(Serialize)]
pub(super) struct Done {
    pub(super) done: bool,
}

/// It was not done.
#[derive(Serialize)]
pub(super) struct Refused {
    pub(super) error: String,
}

/// The live figures, and the seconds before them.
#[derive(Serialize)]
pub(super) struct Lately {
    now: Now,
    seconds: Vec<Second>,
}

pub(super) fn now(admin: &Admin) -> Lately {
    Lately { now: admin.pulse.now(admin), seconds: admin.pulse.seconds() }
}

/// The totals since the start.
#[derive(Serialize)]
pub(super) struct Stats {
    version: &'static str,
    uptime_seconds: u64,
    workers: usize,
    counters: BTreeMap<&'static str, u64>,
    outcomes: BTreeMap<&'static str, OfOutcome>,
    misses: BTreeMap<&'static str, u64>,
    refused_by_rule: Vec<OfRule>,
    connections_open: usize,
    objects: u64,
    memory_bytes: u64,
    memory_bytes_max: u64,
    evictions: u64,
    log_lines_dropped: u64,
    upstream: Vec<OfOrigin>,
}

#[derive(Serialize)]
struct OfOutcome {
    requests: u64,
    body_bytes: u64,
    micros: u64,
}

/// The requests that one rule refused.
#[derive(Serialize)]
struct OfRule {
    rule: String,
    count: u64,
    /// Seconds since 1970.
    last: u64,
}

/// One origin, over all workers.
#[derive(Serialize)]
pub(super) struct OfOrigin {
    pub(super) origin: String,
    pub(super) open: usize,
    pub(super) idle: usize,
    pub(super) waiting: usize,
    pub(super) workers_behind: usize,
    pub(super) opened: u64,
    pub(super) reused: u64,
    pub(super) failed: u64,
    pub(super) desynchronised: u64,
    pub(super) proxy_headers: u64,
    pub(super) http2_connections: usize,
    pub(super) http2_streams: usize,
    pub(super) http2_requests: u64,
    pub(super) http2_unprocessed: u64,
    pub(super) http2_faults: u64,
}

pub(super) fn stats(admin: &Admin) -> Stats {
    let cache = admin.common.cache.stats();
    let of_outcome = |sums: &crate::record::OutcomeSums| OfOutcome {
        requests: sums.requests(),
        body_bytes: sums.bytes,
        micros: sums.micros,
    };
    let measures = &admin.common.counters.measures;
    let workers = admin.upstream.lock().len();
    Stats {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: clock::wall().saturating_sub(admin.started).as_secs(),
        workers,
        counters: admin.common.counters.each().into_iter().map(|(name, _, value)| (name, value)).collect(),
        outcomes: measures.by_outcome().iter().map(|sums| (sums.class, of_outcome(sums))).collect(),
        misses: measures.by_cause().into_iter().collect(),
        refused_by_rule: refused_by_rule(admin),
        connections_open: admin.connections.count(),
        objects: cache.objects,
        memory_bytes: cache.memory_bytes,
        memory_bytes_max: admin.common.config.memory_bytes,
        evictions: cache.evictions,
        log_lines_dropped: admin.common.log.dropped(),
        upstream: origins(admin),
    }
}

/// The rules that refused requests, those with the most first.
fn refused_by_rule(admin: &Admin) -> Vec<OfRule> {
    let of_rule = |(rule, refusals): (&str, Refusals)| OfRule {
        rule: rule.to_owned(),
        count: refusals.count,
        last: refusals.last.0,
    };
    let mut rules: Vec<OfRule> = admin.common.counters.refused.lock().iter().map(of_rule).collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.count));
    rules
}

/// Origins that are told apart; the others are one.
pub(super) const ORIGINS_MAX: usize = 100;

/// The origins with the most connections opened, the rest together as `other`.
pub(super) fn origins(admin: &Admin) -> Vec<OfOrigin> {
    let mut sums: BTreeMap<String, OriginSums> = BTreeMap::new();
    let mut other = OriginSums::default();
    for stats in admin.upstream.lock().values() {
        other.counts = other.counts.plus(stats.forgotten);
        for each in &stats.origins {
            let of_worker = OriginSums {
                open: each.open,
                idle: each.idle,
                waiting: each.waiting,
                http2_connections: each.http2_connections,
                http2_streams: each.http2_streams,
                workers_behind: usize::from(each.is_behind),
                counts: each.counts,
            };
            sums.entry(each.origin.to_string()).or_default().add(&of_worker);
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.counts.opened));
    for (_, sum) in sums.drain(ORIGINS_MAX.min(sums.len())..) {
        other.add(&sum);
    }
    sums.push(("other".to_owned(), other));
    let row = |(origin, sum): (String, OriginSums)| OfOrigin {
        origin,
        open: sum.open,
        idle: sum.idle,
        waiting: sum.waiting,
        workers_behind: sum.workers_behind,
        opened: sum.counts.opened,
        reused: sum.counts.reused,
        failed: sum.counts.failed,
        desynchronised: sum.counts.desynchronised,
        proxy_headers: sum.counts.proxy_headers,
        http2_connections: sum.http2_connections,
        http2_streams: sum.http2_streams,
        http2_requests: sum.counts.http2_requests,
        http2_unprocessed: sum.counts.http2_unprocessed,
        http2_faults: sum.counts.http2_faults,
    };
    sums.into_iter().map(row).collect()
}

/// The figures of one origin, of all workers together.
#[derive(Default)]
struct OriginSums {
    open: usize,
    idle: usize,
    waiting: usize,
    http2_connections: usize,
    http2_streams: usize,
    workers_behind: usize,
    counts: upstream::Counts,
}

impl OriginSums {
    fn add(&mut self, more: &OriginSums) {
        self.open += more.open;
        self.idle += more.idle;
        self.waiting += more.waiting;
        self.http2_connections += more.http2_connections;
        self.http2_streams += more.http2_streams;
        self.workers_behind += more.workers_behind;
        self.counts = self.counts.plus(more.counts);
    }
}

/// The settings that hold, each with the place where it was said.
pub(super) fn settings(admin: &Admin) -> Vec<InForce> {
    manual::in_force(&admin.common.live.value(), &admin.sources.lock())
}
