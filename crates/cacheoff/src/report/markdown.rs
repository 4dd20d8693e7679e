//! The report as Markdown, to be kept beside the source: what ran where, and each comparison as a table of medians with
//! their spread.

use super::compare::{Comparison, Rounds, compare};
use super::metric::{Group, METRICS, Metric};
use super::official::{cache_ages, is_sequence};
use super::provenance::command;
use super::sections::referees;
use crate::chart::{grouped, three_digits};
use crate::ledger::{Ledger, MissCause, Stage, Trouble};
use larder_wire::date::{Stamp, format_date};
use std::fmt::Write;

/// Groups that are kept; the page shows all.
const SHOWN: [Group; 7] =
    [Group::Downtime, Group::Throughput, Group::Response, Group::Hits, Group::Errors, Group::Cost, Group::Trust];

/// The report of some runs.
pub fn markdown(ledgers: &[Ledger]) -> String {
    // One that never began knows nothing of the machine.
    let began = ledgers.iter().filter(|ledger| !ledger.phases.is_empty()).map(|ledger| &ledger.run);
    let Some(first) = began.min_by_key(|run| run.started_unix).or(ledgers.first().map(|ledger| &ledger.run)) else {
        return String::new();
    };
    let day = format_date(Stamp(first.started_unix));
    let day = String::from_utf8_lossy(&day[5..16]).into_owned();
    let machine = &first.machine;
    let is_sequence = is_sequence(ledgers);
    let what = if is_sequence { "Official sequence" } else { "Contest" };
    let mut out = format!(
        "# {what} of {day}\n\nMade by `{}`.\n\nMachine: {} cores of {}, {}{}; the referee had core {}.\n",
        command(&first.command),
        machine.cores,
        machine.processor,
        machine.kernel,
        if machine.virtual_machine { ", virtual" } else { "" },
        if machine.own_cores.is_empty() { "any" } else { &machine.own_cores },
    );
    products(ledgers, &mut out);
    if is_sequence {
        out.push_str(&sequence(ledgers));
    } else {
        out.push_str(ROUNDS);
    }
    for comparison in &compare(ledgers) {
        table(comparison, &mut out);
        remarks(comparison, &mut out);
    }
    out
}

const ROUNDS: &str = "\nFigures are medians of the rounds that count, with the interval in which 95 of 100 medians lie when the rounds are drawn anew. Each round \
         has a seed of its own and began with another entry. \"None\" is a difference to the first entry that lies within the interval; \
         a figure that does not count is struck out.\n";

/// The words before the stages of a sequence, and the age of each cache.
fn sequence(ledgers: &[Ledger]) -> String {
    let mut out = "\nEach stage was played once, for each entry on one cache that was not restarted before its kill: no interval can be given. A figure \
         that does not count is struck out.\n"
        .to_owned();
    let of_load = ledgers.iter().filter(|ledger| ledger.run.stage == Some(Stage::Load));
    if let Some(scale) = of_load.map(|ledger| ledger.run.workload.scale).find(|scale| *scale != 1.0) {
        let _ = writeln!(
            out,
            "\n**Phases are {} of the standard.** The working set is as much smaller and think times are not: this shows how the \
             caches behave in the sequence, and is no official result.",
            three_digits(scale)
        );
    }
    let ages: Vec<String> = cache_ages(ledgers).into_iter().map(|(label, age)| format!("{label} {age}")).collect();
    if !ages.is_empty() {
        let _ = writeln!(
            out,
            "\nAge of the caches, their budget divided by what misses store per second at peak: {}.",
            ages.join("; ")
        );
    }
    out
}

/// TIME-WAIT has no figures, only what was seen.
fn notes(comparison: &Comparison<'_>, out: &mut String) {
    for entry in &comparison.entries {
        for note in entry.runs.iter().flat_map(|run| &run.ledger.notes) {
            let _ = writeln!(out, "- {}: {}", entry.label, note.text);
        }
    }
}

fn products(ledgers: &[Ledger], out: &mut String) {
    let mut seen: Vec<(String, String)> = Vec::new();
    for run in ledgers.iter().map(|ledger| &ledger.run).filter(|run| !run.target.product.is_empty()) {
        let one = (run.label.clone(), run.target.product.clone());
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    let list: Vec<String> = seen.iter().map(|(label, product)| format!("{label}: {product}")).collect();
    let _ = writeln!(out, "\nEntries: {}. Their configuration is in `crates/cacheoff/entries/`.", list.join("; "));
}

fn table(comparison: &Comparison<'_>, out: &mut String) {
    let runs = || comparison.entries.iter().flat_map(|entry| &entry.runs);
    if runs().any(|run| run.ledger.run.stage == Some(Stage::TimeWait)) {
        let _ = writeln!(out, "\n## {}\n", comparison.workload);
        return notes(comparison, out);
    }
    let phase = comparison.entries.iter().find_map(|entry| Some(entry.typical()?.phase_name.clone()));
    let _ = writeln!(out, "\n## {}, phase {}\n", comparison.workload, phase.unwrap_or_default());
    let labels: Vec<&str> = comparison.entries.iter().map(|entry| entry.label.as_str()).collect();
    let _ = writeln!(out, "| | {} |\n|---|{}", labels.join(" | "), "---|".repeat(labels.len()));
    let shown = SHOWN.iter().flat_map(|group| METRICS.iter().filter(move |metric| metric.group == *group));
    for metric in shown {
        if comparison.entries.iter().all(|entry| entry.spread(metric).is_none()) {
            continue;
        }
        let cells: Vec<String> = comparison.entries.iter().map(|entry| cell(entry, metric)).collect();
        let _ = writeln!(out, "| {} | {} |", name(metric), cells.join(" | "));
        if metric.key == "rps" && labels.len() > 1 {
            let ratio = |entry| comparison.standing(entry, metric).unwrap_or_else(|| "–".to_owned());
            let cells: Vec<String> = comparison.entries.iter().map(ratio).collect();
            let _ = writeln!(out, "| to the first | {} |", cells.join(" | "));
        }
    }
    let missing = |entry: &Rounds<'_>, cause: MissCause| {
        entry.typical().map_or(0, |run| run.phase.missing.get(&cause).copied().unwrap_or(0))
    };
    counted(comparison, "missing hits", MissCause::ALL, MissCause::as_str, missing, out);
    let errors = |entry: &Rounds<'_>, trouble| entry.typical().map_or(0, |run| run.phase.errors.of(trouble));
    counted(comparison, "errors", Trouble::ALL, Trouble::as_str, errors, out);
}

/// Names that stand under a heading elsewhere.
fn name(metric: &Metric) -> String {
    match metric.group {
        Group::Response => format!("response, {}", metric.name),
        Group::Downtime => format!("after the outage: {}", metric.name),
        _ => metric.name.to_owned(),
    }
}

fn cell(entry: &Rounds<'_>, metric: &Metric) -> String {
    let Some(spread) = entry.spread(metric) else { return "–".to_owned() };
    let (median, low, high) =
        (metric.unit.text(spread.median), metric.unit.text(spread.low), metric.unit.text(spread.high));
    let text = if spread.rounds < 2 || low == high { median } else { format!("{median} ({low} to {high})") };
    match (entry.counts(), referees(entry, metric).is_empty()) {
        (false, _) => format!("~~{text}~~ {}", entry.worst()),
        (true, true) => text,
        (true, false) => format!("{text}, the referee's"),
    }
}

fn counted<T: Copy>(
    comparison: &Comparison<'_>,
    what: &str,
    all: &[T],
    word: fn(T) -> &'static str,
    count: impl Fn(&Rounds<'_>, T) -> u64,
    out: &mut String,
) {
    for each in all {
        let counts: Vec<u64> = comparison.entries.iter().map(|entry| count(entry, *each)).collect();
        if counts.iter().any(|count| *count > 0) {
            let cells: Vec<String> = counts.iter().map(|count| grouped(*count as f64)).collect();
            let _ = writeln!(out, "| {what}: {} | {} |", word(*each), cells.join(" | "));
        }
    }
}

fn remarks(comparison: &Comparison<'_>, out: &mut String) {
    let runs = comparison.entries.iter().flat_map(|entry| entry.runs.iter().map(move |run| (&entry.label, run)));
    let lines: Vec<String> = runs
        .flat_map(|(label, run)| {
            // Outside of a contest there is one play and no number.
            let round = Some(run.ledger.run.round).filter(|round| *round > 0);
            let of = round.map_or_else(|| label.to_string(), |round| format!("{label}, round {round}"));
            run.findings.iter().map(move |finding| format!("- {}: {of}: {}", finding.weight.as_str(), finding.text))
        })
        .collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "\n{}", lines.join("\n"));
    }
}
