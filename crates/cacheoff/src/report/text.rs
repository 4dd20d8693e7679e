//! The report for a terminal: the executive table, findings, errors and missing hits.

use super::compare::{Comparison, Rounds, compare};
use super::metric::{Group, METRICS, Metric};
use crate::chart::{Unit, grouped};
use crate::ledger::{Ledger, MissCause, Trouble};
use std::fmt::Write;

/// Groups that a terminal shows; the page shows all.
const SHOWN: [Group; 8] = [
    Group::Downtime,
    Group::Throughput,
    Group::Response,
    Group::Streams,
    Group::Hits,
    Group::Errors,
    Group::Cost,
    Group::Normalised,
];
const COLUMN: usize = 15;
const NAMES: usize = 36;

/// The report as plain text.
pub fn text(ledgers: &[Ledger]) -> String {
    compare(ledgers).iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(comparison: &Comparison<'_>) -> String {
    let mut out = String::new();
    let phase = comparison.entries.iter().find_map(|entry| Some(entry.typical()?.phase_name.clone()));
    let _ = writeln!(out, "{}, phase {}", comparison.workload, phase.unwrap_or_default());
    let _ = write!(out, "{:NAMES$}", "");
    for entry in &comparison.entries {
        let _ = write!(out, "{:>COLUMN$}", cut(&entry.label));
    }
    out.push('\n');
    if comparison.entries.iter().any(|entry| !entry.counts()) {
        row(&mut out, "counts", comparison, |entry| if entry.counts() { "yes" } else { entry.worst() }.to_owned());
    }
    for group in SHOWN {
        table(&mut out, comparison, group);
    }
    causes(&mut out, comparison);
    findings(&mut out, comparison);
    out
}

fn cut(label: &str) -> String {
    cut_to(label, COLUMN - 1)
}

fn cut_to(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}

fn table(out: &mut String, comparison: &Comparison<'_>, group: Group) {
    let metrics = METRICS.iter().filter(|metric| metric.group == group);
    let shown: Vec<&Metric> =
        metrics.filter(|metric| comparison.entries.iter().any(|entry| entry.spread(metric).is_some())).collect();
    if shown.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", group.as_str());
    for metric in shown {
        row(out, metric.name, comparison, |entry| {
            entry.spread(metric).map_or("–".to_owned(), |spread| entry.text(metric, spread.median))
        });
        if metric.key == "rps" && comparison.entries.len() > 1 {
            // A column is too narrow for the interval: a question mark says that the two are not distinguished.
            let first = &comparison.entries[0];
            let ratio = |entry: &Rounds<'_>| {
                let is_open = entry.label != first.label && !entry.differs(first, metric);
                let both_least = entry.label != first.label && entry.is_least(metric) && first.is_least(metric);
                match comparison.ratio(entry, metric).filter(|_| !both_least) {
                    None => "–".to_owned(),
                    Some(ratio) => format!("{}{}", Unit::Ratio.text(ratio.median), if is_open { " ?" } else { "" }),
                }
            };
            row(out, &cut_to(&format!("relative to {}", first.label), NAMES - 3), comparison, ratio);
        }
    }
}

fn row(out: &mut String, name: &str, comparison: &Comparison<'_>, cell: impl Fn(&Rounds<'_>) -> String) {
    let _ = write!(out, "  {name:width$}", width = NAMES - 2);
    for entry in &comparison.entries {
        let _ = write!(out, "{:>COLUMN$}", cell(entry));
    }
    out.push('\n');
}

fn causes(out: &mut String, comparison: &Comparison<'_>) {
    let missing = |entry: &Rounds<'_>, cause: MissCause| -> u64 {
        entry.total(|phase| phase.missing.get(&cause).copied().unwrap_or(0))
    };
    counted(out, &comparison.summed("Missing hits by cause"), comparison, MissCause::ALL, MissCause::as_str, missing);
    let errors = |entry: &Rounds<'_>, trouble| entry.total(|phase| phase.errors.of(trouble));
    counted(out, &comparison.summed("Errors and remarks by kind"), comparison, Trouble::ALL, Trouble::as_str, errors);
}

fn counted<T: Copy>(
    out: &mut String,
    heading: &str,
    comparison: &Comparison<'_>,
    all: &[T],
    name: fn(T) -> &'static str,
    count: impl Fn(&Rounds<'_>, T) -> u64,
) {
    let seen = |each: &T| comparison.entries.iter().any(|entry| count(entry, *each) > 0);
    let shown: Vec<T> = all.iter().copied().filter(seen).collect();
    if shown.is_empty() {
        return;
    }
    let _ = writeln!(out, "{heading}");
    for each in shown {
        row(out, name(each), comparison, |entry| grouped(count(entry, each) as f64));
    }
}

fn findings(out: &mut String, comparison: &Comparison<'_>) {
    for entry in &comparison.entries {
        for run in &entry.runs {
            for finding in &run.findings {
                let round = match run.ledger.run.round {
                    0 => String::new(),
                    round => format!(", round {round}"),
                };
                let _ = writeln!(out, "{}: {}{round}: {}", finding.weight.as_str(), entry.label, finding.text);
            }
        }
    }
}
