//! The report as Markdown, to be kept beside the source: what ran where, and each comparison as a table of medians with
//! their spread.

use super::compare::{Comparison, Rounds, compare};
use super::metric::{Group, METRICS, Metric};
use super::official::{bench_remark, cache_ages, heading, is_sequence, scale_remark};
use super::provenance::{list, store};
use super::reading;
use super::sections::conditions;
use super::verdict::is_paced;
use crate::chart::grouped;
use crate::ledger::{Ledger, MissCause, Stage, Trouble};
use larder_wire::date::{Stamp, format_date};
use std::fmt::Write;

/// Groups that are kept; the page shows all.
const SHOWN: [Group; 10] = [
    Group::Downtime,
    Group::Throughput,
    Group::Response,
    Group::Service,
    Group::Streams,
    Group::Hits,
    Group::Origin,
    Group::Errors,
    Group::Cost,
    Group::Trust,
];

/// The report of some runs.
pub fn markdown(ledgers: &[Ledger]) -> String {
    // One that never began knows nothing of the machine.
    let began = ledgers.iter().filter(|ledger| !ledger.phases.is_empty()).map(|ledger| &ledger.run);
    let Some(first) = began.min_by_key(|run| run.started_unix).or(ledgers.first().map(|ledger| &ledger.run)) else {
        return String::new();
    };
    let day = format_date(Stamp(first.started_unix));
    let day = String::from_utf8_lossy(&day[5..16]).into_owned();
    let mut out = format!("# {}, {day}\n\n{}", heading(ledgers), list(ledgers));
    if is_sequence(ledgers) {
        out.push_str(&sequence(ledgers));
    }
    out.push_str(&reading::markdown(ledgers));
    out.push_str(&entries(ledgers));
    let compared = compare(ledgers);
    for comparison in &compared {
        table(comparison, &mut out);
        remarks(comparison, &mut out);
    }
    meanings(&compared, &mut out);
    out
}

/// The words of each entry about itself and its settings, with the maker's comments, one folded list for each.
fn entries(ledgers: &[Ledger]) -> String {
    let mut lists: Vec<String> = Vec::new();
    for ledger in ledgers {
        let Some(entry) = ledger.run.target.entry.as_ref().filter(|entry| !entry.notes.is_empty()) else { continue };
        let tuning = if entry.tuning.is_empty() { String::new() } else { format!(", tuning {}", entry.tuning) };
        let mut said: String = entry.notes.iter().map(|note| format!("- {note}\n")).collect();
        if !entry.comments.is_empty() {
            let _ = writeln!(
                said,
                "- Its maker's comments: {}",
                entry.comments.split_whitespace().collect::<Vec<_>>().join(" ")
            );
        }
        let list = format!("<details><summary>{}{tuning}</summary>\n\n{said}\n</details>\n", ledger.run.label);
        if !lists.contains(&list) {
            lists.push(list);
        }
    }
    match lists.is_empty() {
        true => String::new(),
        false => format!(
            "\n## Notes on the entries\n\nThe configurations are written by the authors of the referee, who are Larder's, by each product's manual; each setting \
             has its reason here and in `crates/cacheoff/entries/`, for the makers to dispute; a maker's comments stand here too, where it has given some.\n\n{}",
            lists.concat()
        ),
    }
}

/// The meaning of each row that some table has.
fn meanings(compared: &[Comparison<'_>], out: &mut String) {
    let tables = || compared.iter().filter(|comparison| !is_time_wait(comparison));
    let is_there =
        |metric: &Metric| tables().any(|table| table.entries.iter().any(|entry| entry.spread(metric).is_some()));
    let shown = SHOWN.iter().flat_map(|group| METRICS.iter().filter(move |metric| metric.group == *group));
    let lines: Vec<String> = shown
        .filter(|metric| is_there(metric))
        .map(|metric| format!("- **{}**: {}\n", name(metric), metric.sentence))
        .collect();
    if !lines.is_empty() {
        let _ = write!(out, "\n## The rows\n\n{}", lines.concat());
    }
}

/// Whether a comparison has no figures, only what was seen of TIME-WAIT.
fn is_time_wait(comparison: &Comparison<'_>) -> bool {
    let mut runs = comparison.entries.iter().flat_map(|entry| &entry.runs);
    runs.any(|run| run.ledger.run.stage == Some(Stage::TimeWait))
}

/// The words before the stages of a sequence, and the age of each cache.
fn sequence(ledgers: &[Ledger]) -> String {
    let mut out = "\nEach stage was played once, for each entry on one cache that was not restarted before its kill: no interval can be \
         given.\n"
        .to_owned();
    for remark in [scale_remark(ledgers), bench_remark(ledgers)].into_iter().flatten() {
        let _ = writeln!(out, "\n{remark}");
    }
    let ages: Vec<String> = cache_ages(ledgers).into_iter().map(|(label, age)| format!("{label} {age}")).collect();
    if !ages.is_empty() {
        let _ = writeln!(
            out,
            "\nAge of the caches, their budget divided by what misses would store per second at peak, if each were stored: {}. Differences of a few in a \
             hundred may be chance.",
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

fn table(comparison: &Comparison<'_>, out: &mut String) {
    if is_time_wait(comparison) {
        let _ = writeln!(out, "\n## {}\n", comparison.workload);
        return notes(comparison, out);
    }
    let phase = comparison.entries.iter().find_map(|entry| Some(entry.typical()?.phase_name.clone()));
    let _ = writeln!(out, "\n## {}, phase {}\n", comparison.workload, phase.unwrap_or_default());
    workload(comparison, out);
    let labels: Vec<&str> = comparison.entries.iter().map(|entry| entry.label.as_str()).collect();
    let _ = writeln!(out, "| | {} |\n|---|{}", labels.join(" | "), "---|".repeat(labels.len()));
    words(comparison, out);
    let shown = SHOWN.iter().flat_map(|group| METRICS.iter().filter(move |metric| metric.group == *group));
    for metric in shown {
        if comparison.entries.iter().all(|entry| entry.spread(metric).is_none()) {
            continue;
        }
        let cells: Vec<String> = comparison.entries.iter().map(|entry| cell(entry, metric)).collect();
        let _ = writeln!(out, "| {} | {} |", name(metric), cells.join(" | "));
        // A load that is due arrives alike everywhere.
        let is_paced =
            comparison.entries.iter().filter_map(Rounds::typical).any(|run| is_paced(run.ledger, &run.phase));
        if metric.key == "rps" && labels.len() > 1 && !is_paced {
            // A ratio with a rate that does not count says nothing.
            let counts = |entry: &&Rounds<'_>| entry.counts() && comparison.entries[0].counts();
            let standing = |entry| comparison.standing(entry, metric);
            let ratio = |entry| Some(entry).filter(counts).and_then(standing).unwrap_or_else(|| "–".to_owned());
            let cells: Vec<String> = comparison.entries.iter().map(ratio).collect();
            let _ = writeln!(out, "| relative to {} | {} |", labels[0], cells.join(" | "));
        }
    }
    let missing =
        |entry: &Rounds<'_>, cause: MissCause| entry.total(|phase| phase.missing.get(&cause).copied().unwrap_or(0));
    counted(comparison, &comparison.summed("missing hits"), MissCause::ALL, MissCause::as_str, missing, out);
    let errors = |entry: &Rounds<'_>, trouble| entry.total(|phase| phase.errors.of(trouble));
    let (remarks, wrong): (Vec<Trouble>, Vec<Trouble>) = Trouble::ALL.iter().partition(|trouble| trouble.is_remark());
    counted(comparison, &comparison.summed("errors"), &wrong, Trouble::as_str, errors, out);
    counted(comparison, &comparison.summed("remarks"), &remarks, Trouble::as_str, errors, out);
}

/// The load that was played: in a sentence, with its conditions, and its file to the letter.
fn workload(comparison: &Comparison<'_>, out: &mut String) {
    let Some(run) = comparison.entries.iter().find_map(Rounds::typical) else { return };
    let facts = &run.ledger.run.workload;
    let about: Option<String> =
        facts.text.parse::<toml::Table>().ok().and_then(|file| Some(file.get("about")?.as_str()?.to_owned() + " "));
    let _ = writeln!(out, "{}{}.\n", about.unwrap_or_default(), conditions(comparison, run));
    for note in &facts.scale_notes {
        let _ = writeln!(out, "- {note}");
    }
    if !facts.text.is_empty() {
        // The settings of this play stand in brackets behind the name.
        let (name, set) = facts.name.split_once(" (").unwrap_or((&facts.name, ""));
        let set = if set.is_empty() { "" } else { ", without what is set in the heading" };
        let text = facts.text.trim_end();
        let _ = writeln!(out, "<details><summary>{name}.toml{set}</summary>\n\n```toml\n{text}\n```\n\n</details>\n");
    }
}

/// Rows that are words: the store, how the entry was asked, and the rounds that count.
fn words(comparison: &Comparison<'_>, out: &mut String) {
    let stores: Vec<String> = comparison
        .entries
        .iter()
        .map(|entry| entry.runs.first().map_or_else(String::new, |run| store(run.ledger)))
        .collect();
    if stores.iter().any(|store| !store.is_empty()) {
        let cells: Vec<&str> = stores.iter().map(|store| if store.is_empty() { "–" } else { store }).collect();
        let _ = writeln!(out, "| store: where, budget | {} |", cells.join(" | "));
    }
    let modes: Vec<&str> = comparison
        .entries
        .iter()
        .map(|entry| entry.runs.first().map_or("–", |run| run.ledger.run.target.mode.in_words()))
        .collect();
    let _ = writeln!(out, "| asked as | {} |", modes.join(" | "));
    let first = comparison.entries.iter().map(|entry| entry.runs.first());
    let protocols: Vec<String> =
        first.map(|run| run.map_or_else(String::new, |run| run.ledger.run.protocol_in_words())).collect();
    if protocols.iter().any(|protocol| !protocol.is_empty()) {
        let cells: Vec<&str> = protocols.iter().map(|text| if text.is_empty() { "–" } else { text }).collect();
        let _ = writeln!(out, "| protocol | {} |", cells.join(" | "));
    }
    if comparison.entries.iter().any(|entry| entry.runs.len() > 1) {
        let count = |entry: &Rounds<'_>| entry.runs.iter().filter(|run| run.counts()).count();
        let cells: Vec<String> =
            comparison.entries.iter().map(|entry| format!("{} of {}", count(entry), entry.runs.len())).collect();
        let _ = writeln!(out, "| rounds that count | {} |", cells.join(" | "));
    }
}

/// Names that stand under a heading elsewhere.
fn name(metric: &Metric) -> String {
    match metric.group {
        Group::Response => format!("response, {}", metric.name),
        Group::Service if metric.key.starts_with("service.") => format!("service, {}", metric.name),
        Group::Origin => format!("origins: {}", metric.name),
        Group::Downtime => format!("after the outage: {}", metric.name),
        _ => metric.name.to_owned(),
    }
}

fn cell(entry: &Rounds<'_>, metric: &Metric) -> String {
    let Some(spread) = entry.spread(metric) else { return "–".to_owned() };
    let (median, low, high) =
        (entry.text(metric, spread.median), metric.unit.text(spread.low), metric.unit.text(spread.high));
    let text = if spread.rounds < 2 || low == high { median } else { format!("{median} ({low} to {high})") };
    if entry.spoils(metric) { format!("~~{text}~~ {}", entry.worst()) } else { text }
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
