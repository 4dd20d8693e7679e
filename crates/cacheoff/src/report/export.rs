//! Figures for machines: CSV, Prometheus text, and the ledger itself as plain JSON.

use super::metric::METRICS;
use super::summary::Summary;
use crate::ledger::{Histogram, Ledger};
use serde_json::{Value, json};
use std::fmt::Write;

/// A row per run, a column per metric, in base units (microseconds, bytes, shares of 1).
pub fn csv(ledgers: &[Ledger]) -> String {
    let mut out = "workload,label,round,started_unix,seed,phase,protocol,counts,findings".to_owned();
    for metric in METRICS {
        let _ = write!(out, ",{}", metric.key);
    }
    out.push('\n');
    for summary in ledgers.iter().map(Summary::of) {
        let run = &summary.ledger.run;
        let findings: Vec<String> =
            summary.findings.iter().map(|finding| format!("{}: {}", finding.weight.as_str(), finding.text)).collect();
        let _ = write!(
            out,
            "{},{},{},{},{},{},{},{},{}",
            quoted(&run.workload.name),
            quoted(&run.label),
            run.round,
            run.started_unix,
            run.seed,
            quoted(&summary.phase_name),
            run.protocol,
            if summary.counts() { "yes" } else { "no" },
            quoted(&findings.join("; ")),
        );
        for metric in METRICS {
            let _ = match metric.of(&summary) {
                Some(value) => write!(out, ",{}", plain(value)),
                None => write!(out, ","),
            };
        }
        out.push('\n');
    }
    out
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Six digits are more than any figure here is good for.
fn plain(value: f64) -> String {
    let places = (5 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The metrics as gauges, for a text-file collector.
pub fn prometheus(ledgers: &[Ledger]) -> String {
    let summaries: Vec<Summary<'_>> = ledgers.iter().map(Summary::of).collect();
    let mut out = String::new();
    for metric in METRICS {
        let rows: Vec<(&Summary<'_>, f64)> =
            summaries.iter().filter_map(|summary| Some((summary, metric.of(summary)?))).collect();
        if rows.is_empty() {
            continue;
        }
        let name = format!("cacheoff_{}", metric.key.replace('.', "_"));
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} gauge", metric.sentence);
        for (summary, value) in rows {
            let _ = writeln!(out, "{name}{{{}}} {}", labels(summary), plain(value));
        }
    }
    out
}

fn labels(summary: &Summary<'_>) -> String {
    let run = &summary.ledger.run;
    let text = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    // Figures over HTTP/1 keep the labels that they always had.
    let protocol = if run.is_http2() { format!(",protocol=\"{}\"", run.protocol) } else { String::new() };
    let (workload, label) = (text(&run.workload.name), text(&run.label));
    format!("workload=\"{workload}\",label=\"{label}\",round=\"{}\"{protocol}", run.round)
}

/// The whole ledger as one JSON document; histograms are lists of `[lowest, highest, count]`.
pub fn json(ledger: &Ledger) -> Value {
    let mut whole = json!({
        "run": ledger.run,
        "phases": ledger.phases,
        "intervals": ledger.intervals,
        "downtimes": ledger.downtimes,
        "notes": ledger.notes,
        "end": ledger.end,
    });
    expand(&mut whole);
    whole
}

/// Replaces each packed histogram by its figures.
fn expand(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(expand),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match is_histogram(name) {
                    true => unpack(field),
                    false => expand(field),
                }
            }
        }
        _ => {}
    }
}

fn is_histogram(field: &str) -> bool {
    [
        "response",
        "size",
        "hit",
        "miss",
        "all",
        "first_byte",
        "wait",
        "connect",
        "lateness",
        "think",
        "service",
        "alone",
        "beside_large",
        "measured",
    ]
    .contains(&field)
}

fn unpack(field: &mut Value) {
    // The classes `hit`, `miss` and `all` have the names of histograms and are objects.
    match serde_json::from_value::<Histogram>(field.clone()) {
        Ok(histogram) => {
            *field = json!({
                "count": histogram.count(),
                "sum": histogram.sum(),
                "min": histogram.min(),
                "max": histogram.max(),
                "buckets": histogram.buckets().map(|(low, high, count)| json!([low, high, count])).collect::<Vec<_>>(),
            });
        }
        Err(_) => expand(field),
    }
}
