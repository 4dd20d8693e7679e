//! What happens now, as server-sent events: once a second the numbers, and some of the requests that ended.

use super::history::{Of, Sample};
use crate::clock;
use crate::explain::{self, Summary};
use crate::record::{Number, Record};
use crate::server::Shared;
use larder_wire::date;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How often there is news.
const EVERY: Duration = Duration::from_secs(1);
/// Requests that are told at a time; of more, the last ones.
const REQUESTS_MAX: usize = 20;
/// A listener that takes nothing for so long is gone.
const WRITE_WITHIN: Duration = Duration::from_secs(5);

/// The numbers of the last second, and totals.
#[derive(Serialize)]
pub(super) struct Now {
    at_millis: u64,
    uptime_seconds: u64,
    /// Over which time the rates are.
    seconds: f64,
    requests_per_second: f64,
    hits_per_second: f64,
    misses_per_second: f64,
    errors_per_second: f64,
    bytes_sent_per_second: f64,
    bytes_from_store_per_second: f64,
    bytes_fetched_per_second: f64,
    hit_percent: f64,
    byte_percent: f64,
    latency_micros: Latency,
    totals: Totals,
    misses_by_cause: BTreeMap<&'static str, u64>,
    connections_open: usize,
    objects: u64,
    memory_bytes: u64,
    memory_bytes_max: u64,
    disk_bytes: Option<u64>,
    disk_bytes_max: Option<u64>,
    evictions: u64,
}

/// Upper bounds of the buckets in which these shares of the last second's requests lie; 0 when there were none.
#[derive(Serialize)]
struct Latency {
    p50: u64,
    p95: u64,
    p99: u64,
}

#[derive(Serialize)]
struct Totals {
    requests: u64,
    hits: u64,
    misses: u64,
    errors: u64,
    bytes_sent: u64,
    bytes_from_store: u64,
    bytes_fetched: u64,
}

/// Tells until the listener leaves, or the server goes down.
pub(super) async fn tell<S: AsyncWrite + Unpin>(shared: &Arc<Shared>, stream: &mut S) -> io::Result<()> {
    write(stream, head().as_bytes()).await?;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut earlier = Sample::now(shared);
    let mut since = clock::wall();
    write(stream, event("now", &now(shared, &earlier, &earlier)).as_bytes()).await?;
    while !shared.is_draining() {
        ticks.tick().await;
        let sample = Sample::now(shared);
        let mut text = event("now", &now(shared, &sample, &earlier));
        let until = clock::wall();
        for request in ended(shared, since, until).await {
            text += &event("request", &request);
        }
        (earlier, since) = (sample, until);
        write(stream, text.as_bytes()).await?;
    }
    Ok(())
}

/// A page that reads along is not to be buffered on the way; it asks again by itself after a second.
fn head() -> String {
    let date = String::from_utf8_lossy(&date::format_date(clock::now())).into_owned();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nDate: {date}\r\n\
         X-Content-Type-Options: nosniff\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\nretry: 1000\n\n"
    )
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> io::Result<()> {
    let write = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    timeout(WRITE_WITHIN, write).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn event(name: &str, value: &impl Serialize) -> String {
    format!("event: {name}\ndata: {}\n\n", serde_json::to_string(value).unwrap_or_default())
}

/// The last requests that ended between two moments.
async fn ended(shared: &Arc<Shared>, since: Duration, until: Duration) -> Vec<Summary> {
    let names = shared.names.clone();
    let pick = move |record: &Record| {
        let end = record.at + Duration::from_micros(record.micros());
        (since < end && end <= until).then(|| (record.number, explain::summary(record, &names)))
    };
    let found = shared.look(move |ring| ring.pick(REQUESTS_MAX, &pick)).await;
    let mut found: Vec<(Number, Summary)> = found.into_iter().flatten().collect();
    found.sort_by_key(|(_, request)| request.at_millis);
    let surplus = found.len().saturating_sub(REQUESTS_MAX);
    found.into_iter().skip(surplus).map(|(_, request)| request).collect()
}

pub(super) fn now(shared: &Shared, sample: &Sample, earlier: &Sample) -> Now {
    let last = sample.since(earlier);
    let seconds = last.at.as_secs_f64();
    let rate = |many: u64| if seconds > 0.0 { many as f64 / seconds } else { 0.0 };
    let micros = |percent| (last.quantile_seconds(Of::All, percent) * 1e6) as u64;
    let cache = shared.cache.stats();
    let disk = shared.cache.disk().map(|disk| disk.stats());
    Now {
        at_millis: u64::try_from(sample.at.as_millis()).unwrap_or(u64::MAX),
        uptime_seconds: sample.at.saturating_sub(shared.started).as_secs(),
        seconds,
        requests_per_second: rate(last.requests),
        hits_per_second: rate(last.hits),
        misses_per_second: rate(last.misses),
        errors_per_second: rate(last.errors),
        bytes_sent_per_second: rate(last.bytes_sent),
        bytes_from_store_per_second: rate(last.bytes_from_store),
        bytes_fetched_per_second: rate(last.bytes_fetched),
        hit_percent: last.hit_percent(),
        byte_percent: last.byte_percent(),
        latency_micros: Latency { p50: micros(50), p95: micros(95), p99: micros(99) },
        totals: Totals {
            requests: sample.requests,
            hits: sample.hits,
            misses: sample.misses,
            errors: sample.errors,
            bytes_sent: sample.bytes_sent,
            bytes_from_store: sample.bytes_from_store,
            bytes_fetched: sample.bytes_fetched,
        },
        misses_by_cause: shared.counters.measures.by_cause().into_iter().collect(),
        connections_open: shared.connections.load(Ordering::Relaxed),
        objects: cache.objects,
        memory_bytes: cache.memory_bytes,
        memory_bytes_max: shared.config.memory_bytes,
        disk_bytes: disk.as_ref().map(|stats| stats.allocated_bytes),
        disk_bytes_max: disk.is_some().then_some(shared.config.disk_bytes).flatten(),
        evictions: cache.evictions,
    }
}
