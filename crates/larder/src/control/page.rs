//! The page: plain totals for people.

use crate::record::Counters;
use crate::server::Shared;
use std::sync::atomic::Ordering;

/// The page as it is now.
pub(super) fn page(shared: &Shared) -> String {
    let Counters { requests, hits, bytes_from_store, bytes_fetched, .. } = &shared.counters;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let share = |part: u64, rest: u64| if part + rest == 0 { 0.0 } else { 100.0 * part as f64 / (part + rest) as f64 };
    let cache = shared.cache.stats();
    let (store, fetched) = (of(bytes_from_store), of(bytes_fetched));
    let rows = [
        ("Requests", of(requests).to_string()),
        (
            "Answered from the store",
            format!("{} ({:.1} %)", of(hits), share(of(hits), of(requests).saturating_sub(of(hits)))),
        ),
        ("Bytes from the store", format!("{} ({:.1} %)", size(store), share(store, fetched))),
        ("Bytes fetched", size(fetched)),
        ("Objects", cache.objects.to_string()),
        ("Memory", format!("{} of {}", size(cache.memory_bytes), size(shared.config.memory_bytes))),
        ("Evicted", cache.evictions.to_string()),
        ("Open connections", shared.connections.load(Ordering::Relaxed).to_string()),
    ];
    let rows: String =
        rows.iter().map(|(name, value)| format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"refresh\" content=\"5\"><title>Larder</title>\n<style>{STYLE}</style>\n<main><h1>Larder</h1>\n\
         <table>{rows}</table>\n<p>For programs: /stats (JSON), /metrics (Prometheus), /healthz.</p></main></html>\n"
    )
}

const STYLE: &str = ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:0;display:grid;\
place-items:start center}main{padding:1.5rem;min-width:min(30rem,90vw)}table{border-collapse:collapse;width:100%}\
th{text-align:left;font-weight:400;opacity:.8}td{text-align:right;font-variant-numeric:tabular-nums}\
th,td{padding:.45rem 0;border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}p{opacity:.7;font-size:.9rem}";

/// Bytes as people read them.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}
