//! The report as one HTML page: no network, no script, light and dark, printable, wide and narrow.

use super::compare::{Comparison, Rounds, compare};
use super::markup::{Table, escaped, folded};
use super::metric::{METRICS, Metric};
use super::{past, provenance, reading, sections};
use crate::chart::{self, Unit};
use crate::ledger::{Ledger, MissCause, Mode, Trouble};
use std::fmt::Write;

/// The page of some ledgers.
pub fn page(ledgers: &[Ledger]) -> String {
    let comparisons = compare(ledgers);
    let title = title(&comparisons);
    let mut out = head(&title);
    let _ = write!(
        out,
        "<header><p class=\"kicker\">Cacheoff report</p><h1>{}</h1><p class=\"sub\">{}</p>{}{}</header><main>",
        escaped(&title),
        escaped(&subtitle(ledgers)),
        provenance::paragraph(ledgers),
        contents(&comparisons)
    );
    if comparisons.len() > 1 {
        let _ = write!(out, "<h2 id=\"glance\">At a glance</h2>{}", glance(&comparisons));
    }
    for (place, comparison) in comparisons.iter().enumerate() {
        sections::workload(&mut out, comparison, &format!("w{place}"));
    }
    let _ = write!(out, "<h2 id=\"machine\">Machine and system</h2>{}", sections::machines(ledgers));
    let _ = write!(out, "<h2 id=\"words\">How to read this</h2>{}", words(ledgers));
    let _ = write!(
        out,
        "<h2 id=\"history\">Published figures, 2000 to 2015</h2>{}",
        folded("Show the tables", &past::section())
    );
    out.push_str("</main>");
    out.push_str(&footer(ledgers));
    out.push_str("</body></html>\n");
    out
}

/// The historical tables as a page of their own.
pub fn history_page() -> String {
    let title = "Published figures of web caches, 2000 to 2015";
    format!("{}<header><h1>{title}</h1></header><main>{}</main></body></html>\n", head(title), past::section())
}

pub(super) fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,\
         initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\"><title>{}</title>\
         <style>{}{}</style></head><body>\n",
        escaped(title),
        chart::STYLE,
        include_str!("page.css")
    )
}

/// Figures by which workloads are told at a glance, and those of a cache that was stopped and started again.
const GLANCE: [&str; 4] = ["rps", "hit.p99", "dhr", "cpu_us"];
const GLANCE_PAGES: [&str; 4] = ["rps", "p50", "p99", "cpu_us"];
const GLANCE_STOPPED: [&str; 2] = ["downtime.hit", "downtime.kept"];

/// A few figures of each workload, entries side by side; bold marks those that lead.
fn glance(comparisons: &[Comparison<'_>]) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for entry in comparisons.iter().flat_map(|comparison| &comparison.entries) {
        if !labels.contains(&entry.label.as_str()) {
            labels.push(&entry.label);
        }
    }
    let mut table = Table::plain(&[&[""], &labels[..]].concat());
    for comparison in comparisons {
        let mut headed = false;
        let stopped =
            comparison.entries.iter().flat_map(|entry| &entry.runs).any(|run| !run.ledger.downtimes.is_empty());
        let makes_pages = comparison
            .entries
            .iter()
            .flat_map(|entry| &entry.runs)
            .any(|run| run.ledger.run.target.mode == Mode::Pages);
        let keys: &[&str] = match makes_pages {
            _ if stopped => &GLANCE_STOPPED,
            true => &GLANCE_PAGES,
            false => &GLANCE,
        };
        for metric in keys.iter().filter_map(|key| Metric::named(key)) {
            let of = |label: &str| comparison.entries.iter().find(|entry| entry.label == label);
            if !labels.iter().filter_map(|label| of(label)).any(|entry| entry.spread(metric).is_some()) {
                continue;
            }
            let leaders = sections::leaders(comparison, metric);
            let cell = |label: &&str| of(label).map_or("–".to_owned(), |entry| glance_cell(entry, metric, &leaders));
            if !std::mem::replace(&mut headed, true) {
                table.heading(&escaped(&comparison.workload), labels.len() + 1);
            }
            table.row(&std::iter::once(metric.name.to_owned()).chain(labels.iter().map(cell)).collect::<Vec<_>>());
        }
    }
    table.html()
}

/// A figure of an entry; one that does not count is struck out, and says why not in a word.
fn glance_cell(entry: &Rounds<'_>, metric: &Metric, leaders: &[&str]) -> String {
    let text = entry.spread(metric).map_or("–".to_owned(), |spread| entry.text(metric, spread.median));
    match (!entry.spoils(metric), leaders.contains(&entry.label.as_str())) {
        (false, _) => {
            let word = entry.worst();
            format!("<s class=\"out\">{text}</s><small><span class=\"badge {word}\">{word}</span></small>")
        }
        (true, true) => format!("<b>{text}</b>"),
        (true, false) => text,
    }
}

fn title(comparisons: &[Comparison<'_>]) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for entry in comparisons.iter().flat_map(|comparison| &comparison.entries) {
        if !labels.contains(&entry.label.as_str()) {
            labels.push(&entry.label);
        }
    }
    match (labels.as_slice(), comparisons) {
        ([], _) => "No runs".to_owned(),
        ([label], [only]) => format!("{label}: {}", only.workload),
        ([label], _) => format!("{label}: {} workloads", comparisons.len()),
        ([first, second], _) => format!("{first} and {second}"),
        ([rest @ .., last], _) if rest.len() < 8 => format!("{} and {last}", rest.join(", ")),
        (all, _) => format!("{} entries", all.len()),
    }
}

pub(super) fn subtitle(ledgers: &[Ledger]) -> String {
    let first = ledgers.iter().map(|ledger| ledger.run.started_unix).filter(|at| *at > 0).min();
    let seconds: u64 = ledgers.iter().map(|ledger| ledger.end.at_us / 1_000_000).sum();
    let runs = match ledgers.len() {
        1 => "one run".to_owned(),
        count => format!("{count} runs"),
    };
    let when = first.map_or(String::new(), |at| format!(", begun {}", provenance::date(at)));
    format!("{runs} of {} together{when}", Unit::Elapsed.text(seconds as f64))
}

fn contents(comparisons: &[Comparison<'_>]) -> String {
    let mut out = "<nav>".to_owned();
    for (place, comparison) in comparisons.iter().enumerate() {
        let _ = write!(out, "<a href=\"#w{place}\">{}</a>", escaped(&comparison.workload));
    }
    for (name, text) in [("machine", "Machine"), ("words", "How to read this"), ("history", "Published figures")] {
        let _ = write!(out, "<a href=\"#{name}\">{text}</a>");
    }
    out + "</nav>"
}

/// Method and glossary, from the same lists that the tables are made of.
pub(super) fn words(ledgers: &[Ledger]) -> String {
    let mut metrics = Table::plain(&["figure", "key", "meaning"]);
    for metric in METRICS {
        let key = format!("<code>{}</code>", metric.key);
        let name = format!("{} ({})", metric.name, metric.group.as_str().to_lowercase());
        metrics.row(&[escaped(&name), key, escaped(metric.sentence)]);
    }
    let mut errors = Table::plain(&["error", "meaning", "rule that is broken"]);
    for trouble in Trouble::ALL {
        let kind = if trouble.is_remark() { " (a remark)" } else { "" };
        errors.row(&[escaped(trouble.as_str()) + kind, escaped(trouble.sentence()), escaped(trouble.rule())]);
    }
    let mut causes = Table::plain(&["missing hit", "meaning"]);
    for cause in MissCause::ALL {
        causes.row(&[escaped(cause.as_str()), escaped(cause.sentence())]);
    }
    let left = |html: String| html.replace("<table>", "<table class=\"text\">");
    format!(
        "{}<p><b>Validity.</b> A run is invalid if more than 0.15 cores were taken by others, if the referee was its limit or late, or \
         if cache and referee shared a core; a contest repeats it twice before it stands as invalid. Bold marks the entries that lead: \
         the best one, and those that are not distinguished from it. A reply that waited for the fetch of another request is \
         collapsed: a hit of the hit ratio, with times of its own. Every reply is checked: status, length, bytes, fields, age.</p>{}{}{}",
        reading::html(ledgers),
        folded("Figures", &left(metrics.html())),
        folded("Errors", &left(errors.html())),
        folded("Causes of missing hits", &left(causes.html()))
    )
}

pub(super) fn footer(ledgers: &[Ledger]) -> String {
    let mut versions: Vec<&str> = ledgers.iter().map(|ledger| ledger.run.cacheoff.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    format!("<footer><p>Made by cacheoff {} from ledgers alone.</p></footer>", escaped(&versions.join(", ")))
}
