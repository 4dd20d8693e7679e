//! The parts of the page.

use super::compare::{Comparison, Rounds};
use super::figures;
use super::markup::{Table, escaped, folded, verbatim};
use super::metric::{Group, METRICS, Metric, is_carried};
use super::provenance::{self, date};
use super::summary::Summary;
use super::verdict::{Finding, is_paced};
use crate::chart::{Unit, grouped};
use crate::ledger::{Class, Entry, Interval, Ledger, MissCause, Trouble};
use std::fmt::Write;

/// A word about a run.
type Fact = fn(&Ledger) -> String;
/// Metrics that are shown as bars where entries are compared.
const BARS: [&str; 8] = ["downtime.miss", "downtime.hit", "rps", "mean", "p99", "dhr", "cpu_us", "memory"];
/// Metrics that head the page of a single run.
const TILES: [&str; 8] = ["rps", "mean", "p50", "p99", "max", "dhr", "errors", "cpu_us"];
/// Metrics of the executive table; the whole list stands folded below it.
const EXECUTIVE: [&str; 42] = [
    "downtime.accept",
    "rps",
    "bps",
    "mean",
    "hit.mean",
    "collapsed.mean",
    "miss.mean",
    "p50",
    "p99",
    "p99.9",
    "max",
    "dhr",
    "dhr.collapsed",
    "dhr.offered",
    "dhr.of_offered",
    "bhr",
    "urls",
    "recurrence",
    "errors",
    "errors.share",
    "lies",
    "cpu_us",
    "memory",
    "processes",
    "threads",
    "rps_per_price",
    "hits_per_price",
    "rps_per_watt",
    "downtime.miss",
    "downtime.hit",
    "downtime.kept",
    "downtime.asked",
    "downtime.late",
    "downtime.late_asked",
    "downtime.exact",
    "downtime.dark",
    "downtime.wrong",
    "duration",
    "robots",
    "body",
    "objects",
    "own_thread",
];
/// Words longer than this are broken into lines, so that they do not widen a column of numbers.
const NARROW_MAX: usize = 22;
/// More remarks than these are folded.
const REMARKS_OPEN: usize = 3;

/// One workload with all its entries: the executive table first.
pub(super) fn workload(out: &mut String, comparison: &Comparison<'_>, id: &str) {
    let _ = write!(out, "<h2 id=\"{id}\">{}</h2>", escaped(&comparison.workload));
    let Some(first) = comparison.entries.iter().find_map(Rounds::typical) else { return };
    let mut sub = conditions(comparison, first);
    if first.ledger.run.seed > 0 {
        let _ = write!(sub, "; seed of the round shown in detail {}", first.ledger.run.seed);
    }
    let _ = write!(out, "<p class=\"sub\">{}</p>", escaped(&sub));
    if comparison.entries.len() == 1 {
        tiles(out, &comparison.entries[0]);
    }
    findings(out, comparison);
    out.push_str(&executive(comparison));
    counts(out, comparison);
    let bars: String = BARS
        .iter()
        .filter_map(|key| figures::bars(comparison, Metric::named(key)?))
        .map(|bars| format!("<figure>{}</figure>", bars.svg()))
        .collect();
    let is_load = first.ledger.downtimes.is_empty();
    let overlays = if comparison.entries.len() > 1 && is_load { figures::of_entries(comparison) } else { Vec::new() };
    if !bars.is_empty() || !overlays.is_empty() {
        let _ = write!(out, "<h3>Entries compared</h3><div class=\"figures\">{bars}{}</div>", svgs(&overlays));
    }
    match comparison.entries.as_slice() {
        [only] => out.push_str(&details(only)),
        several => {
            out.push_str("<h3>Each entry in detail</h3>");
            for (place, entry) in several.iter().enumerate() {
                let name = format!("{}{}", key(place), escaped(&entry.label));
                out.push_str(&folded(&name, &details(entry)));
            }
        }
    }
    plan(out, first);
}

fn svgs(charts: &[crate::chart::Chart]) -> String {
    charts.iter().map(|chart| format!("<figure>{}</figure>", chart.svg())).collect()
}

fn key(place: usize) -> String {
    format!("<span class=\"key k{}\"></span>", place % 8)
}

/// Phase, plan and links in a sentence or two.
pub(super) fn conditions(comparison: &Comparison<'_>, run: &Summary<'_>) -> String {
    let plays = comparison.entries.iter().map(|entry| entry.runs.len()).max().unwrap_or(0);
    let mut seconds: Vec<f64> =
        comparison.entries.iter().flat_map(|entry| entry.runs.iter().map(Summary::seconds)).collect();
    seconds.sort_by(f64::total_cmp);
    let (least, most) = (seconds.first().copied().unwrap_or(0.0), seconds.last().copied().unwrap_or(0.0));
    let (least, most) = (Unit::Elapsed.text(least), Unit::Elapsed.text(most));
    let seconds = if least == most { least } else { format!("between {least} and {most}") };
    let mut parts = vec![format!("Figures of phase {}, which lasted {seconds}", run.phase_name)];
    parts.push(provenance::rounds(plays));
    if run.ledger.run.round > 0 {
        parts.push("each round has a seed of its own, the same for all entries".to_owned());
    }
    let ideal = &run.ledger.run.ideal;
    if let Some(dhr) = ideal.dhr {
        parts.push(format!("ideal hit ratio {}", Unit::Share.text(dhr)));
    }
    if let Some(response) = ideal.response_us.filter(|us| *us > 0.0) {
        parts.push(format!(
            "mean response as planned, with waits of the network and of origins alone, {}",
            Unit::Micros.text(response)
        ));
    }
    for link in run.ledger.run.links.iter().filter(|link| link.delay_us > 0 || link.loss > 0.0) {
        let side = link.side.map_or("both sides", |side| side.as_str());
        let (delay, loss) = (Unit::Micros.text(link.delay_us as f64), Unit::Share.text(link.loss));
        parts.push(format!("{side} side {delay} each way and {loss} loss ({})", link.model));
    }
    parts.join("; ")
}

fn tiles(out: &mut String, entry: &Rounds<'_>) {
    out.push_str("<div class=\"tiles\">");
    for metric in TILES.iter().filter_map(|key| Metric::named(key)) {
        if let Some(spread) = entry.spread(metric) {
            let name = if metric.group == Group::Response {
                format!("response, {}", metric.name)
            } else {
                metric.name.to_owned()
            };
            let text = entry.text(metric, spread.median);
            let text = if entry.spoils(metric) { format!("<s class=\"out\">{text}</s>") } else { text };
            let _ = write!(out, "<div class=\"tile\"><b>{text}</b><span>{}</span></div>", escaped(&name));
        }
    }
    out.push_str("</div>");
}

fn findings(out: &mut String, comparison: &Comparison<'_>) {
    let mut all: Vec<(&Finding, String)> = Vec::new();
    for entry in &comparison.entries {
        for run in &entry.runs {
            all.extend(run.findings.iter().map(|finding| (finding, format!("{}{}", entry.label, round(run)))));
        }
    }
    let list = |spoils: bool| -> Vec<String> {
        let wanted = all.iter().filter(|(finding, _)| finding.weight.spoils() == spoils);
        let item = |(finding, of): &(&Finding, String)| {
            let word = finding.weight.as_str();
            let text = escaped(&finding.text);
            format!("<li><span class=\"badge {word}\">{word}</span>{}: {text}</li>", escaped(of))
        };
        wanted.map(item).collect()
    };
    let (mut spoilt, remarks) = (list(true), list(false));
    if spoilt.is_empty() {
        spoilt.push(
            "<li><span class=\"badge fine\">valid</span>Every run counts: the referee alone was not the limit, the rate asked \
             for was reached, no answer was wrong.</li>"
                .to_owned(),
        );
    }
    let as_list = |items: &[String]| format!("<ul class=\"findings\">{}</ul>", items.concat());
    match remarks.len() {
        0..=REMARKS_OPEN => out.push_str(&as_list(&[spoilt, remarks].concat())),
        count => out.push_str(&(as_list(&spoilt) + &folded(&format!("{count} remarks"), &as_list(&remarks)))),
    }
}

fn round(run: &Summary<'_>) -> String {
    match run.ledger.run.round {
        0 => String::new(),
        round => format!(", round {round}"),
    }
}

/// The executive table, entries as columns; below it every metric that any entry has.
fn executive(comparison: &Comparison<'_>) -> String {
    let short = |metric: &Metric| EXECUTIVE.contains(&metric.key);
    if let [only] = comparison.entries.as_slice() {
        return alone(comparison, only);
    }
    let mut table = Table::new(&headings(comparison));
    for group in Group::ALL {
        group_rows(&mut table, comparison, group, short);
    }
    facts(&mut table, comparison);
    let mut whole = Table::new(&headings(comparison));
    for group in Group::ALL {
        group_rows(&mut whole, comparison, group, |_| true);
    }
    table.html() + &folded("Every figure", &whole.html())
}

/// One entry: its groups beside each other instead of one long column.
fn alone(comparison: &Comparison<'_>, only: &Rounds<'_>) -> String {
    let mut out = "<div class=\"groups\">".to_owned();
    for group in Group::ALL {
        let mut table = Table::plain(&[group.as_str(), ""]);
        for metric in METRICS.iter().filter(|metric| metric.group == group && only.spread(metric).is_some()) {
            row(&mut table, comparison, metric);
        }
        out.push_str(&table.html());
    }
    let mut table = Table::plain(&["Run", ""]);
    facts(&mut table, comparison);
    out + &table.html() + "</div>"
}

fn headings(comparison: &Comparison<'_>) -> Vec<String> {
    let mut headings = vec![String::new()];
    for (place, entry) in comparison.entries.iter().enumerate() {
        let badge = match entry.counts() {
            true => String::new(),
            false => format!("<br><span class=\"badge {0}\">{0}</span>", entry.worst()),
        };
        headings.push(format!("{}{}{badge}", key(place), escaped(&entry.label)));
    }
    headings
}

fn group_rows(table: &mut Table, comparison: &Comparison<'_>, group: Group, wanted: impl Fn(&Metric) -> bool) {
    let of_group = METRICS.iter().filter(|metric| metric.group == group && wanted(metric));
    let shown: Vec<&Metric> = of_group.filter(|m| comparison.entries.iter().any(|e| e.spread(m).is_some())).collect();
    if !shown.is_empty() {
        table.heading(group.as_str(), comparison.entries.len() + 1);
    }
    shown.into_iter().for_each(|metric| row(table, comparison, metric));
}

fn row(table: &mut Table, comparison: &Comparison<'_>, metric: &Metric) {
    let leaders = leaders(comparison, metric);
    let name = format!("<span title=\"{}\">{}</span>", escaped(metric.sentence), escaped(metric.name));
    let mut cells = vec![name];
    for entry in &comparison.entries {
        let Some(spread) = entry.spread(metric) else {
            cells.push("–".to_owned());
            continue;
        };
        let text = entry.text(metric, spread.median);
        let text = if leaders.contains(&entry.label.as_str()) { format!("<b>{text}</b>") } else { text };
        let text = if entry.spoils(metric) { format!("<s class=\"out\">{text}</s>") } else { text };
        // Ends that look the same say nothing.
        let has_width = metric.unit.text(spread.low) != metric.unit.text(spread.high);
        cells.push(match spread.rounds > 1 && has_width {
            true => {
                format!("{text}<small>{}</small>", range(metric.unit, spread.low, spread.high))
            }
            false => text,
        });
    }
    table.row(&cells);
    if metric.key == "rps" && comparison.entries.len() > 1 {
        let mut cells = vec![format!("relative to {}", escaped(&comparison.entries[0].label))];
        // A ratio with a rate that does not count says nothing.
        let counts = |entry: &&Rounds<'_>| entry.counts() && comparison.entries[0].counts();
        let standing = |entry| comparison.standing(entry, metric);
        let ratio = |entry| match Some(entry).filter(counts).and_then(standing) {
            None => "–".to_owned(),
            // The interval stands below, as those of other rows.
            Some(text) => match text.split_once(" (") {
                Some((ratio, rest)) => format!("{ratio}<small>{}</small>", rest.replacen(')', "", 1)),
                None if text.len() <= NARROW_MAX => text,
                None => format!("<span class=\"narrow\">{text}</span>"),
            },
        };
        cells.extend(comparison.entries.iter().map(ratio));
        table.row(&cells);
    }
}

/// Two numbers that share their unit: `116–118 ms`.
fn range(unit: Unit, low: f64, high: f64) -> String {
    let (low, high) = (unit.text(low), unit.text(high));
    let split = |text: &str| text.rfind(|c: char| c.is_ascii_digit()).map_or(0, |place| place + 1);
    let same = low[split(&low)..] == high[split(&high)..];
    let low = if same { &low[..split(&low)] } else { &low };
    format!("{low}–{high}")
}

/// The entries that lead, in bold. A rate that was asked for is no merit.
pub(super) fn leaders<'c>(comparison: &'c Comparison<'_>, metric: &Metric) -> Vec<&'c str> {
    let paced = comparison.entries.iter().filter_map(Rounds::typical).any(|run| run.is_paced());
    match paced && metric.group == Group::Throughput {
        true => Vec::new(),
        false => comparison.leaders(metric),
    }
}

/// Rows that are words: product, store, rounds, start.
fn facts(table: &mut Table, comparison: &Comparison<'_>) {
    let of_first = |entry: &Rounds<'_>, of: Fact| {
        let text = entry.runs.first().map_or(String::new(), |run| escaped(&of(run.ledger)));
        if text.len() <= NARROW_MAX {
            return text;
        }
        // A date is not broken at its hyphens.
        let whole = |word: &str| match word.contains('-') {
            true => format!("<span class=\"whole\">{word}</span>"),
            false => word.to_owned(),
        };
        let words: Vec<String> = text.split(' ').map(whole).collect();
        format!("<span class=\"narrow\">{}</span>", words.join(" "))
    };
    let rows: [(&str, Fact); 8] = [
        ("product", |ledger| provenance::product(ledger).to_owned()),
        ("asked as", |ledger| ledger.run.target.mode.as_str().to_owned()),
        ("protocol", |ledger| ledger.run.protocol_in_words()),
        ("tuning", |ledger| entry_of(ledger).map_or(String::new(), |entry| entry.tuning.clone())),
        ("store: where, budget", provenance::store),
        ("cores", |ledger| entry_of(ledger).map_or(String::new(), |entry| entry.cores.clone())),
        ("price", |ledger| {
            ledger.run.price.as_ref().map_or(String::new(), |p| format!("{} {}", grouped(p.amount), p.currency))
        }),
        ("begun", |ledger| if ledger.run.started_unix > 0 { date(ledger.run.started_unix) } else { String::new() }),
    ];
    if comparison.entries.len() > 1 {
        table.heading("Runs", comparison.entries.len() + 1);
    }
    let rounds = |entry: &Rounds<'_>| match (entry.used().len(), entry.runs.len()) {
        (used, all) if used == all => all.to_string(),
        (used, all) => format!("{used} of {all}"),
    };
    table.row(&row_of("rounds used", comparison, rounds));
    let length =
        |entry: &Rounds<'_>| entry.runs.first().map_or(String::new(), |run| Unit::Elapsed.text(run.run_seconds()));
    table.row(&row_of("length of a run", comparison, length));
    for (name, of) in rows {
        let mut cells = row_of(name, comparison, |entry| of_first(entry, of));
        if name == "begun" {
            let second_line = |cell: &mut String| *cell = cell.replacen(' ', "<small>", 1) + "</small>";
            cells.iter_mut().skip(1).filter(|cell| !cell.is_empty()).for_each(second_line);
        }
        if cells[1..].iter().any(|cell| !cell.is_empty()) {
            table.row(&cells);
        }
    }
}

fn row_of(name: &str, comparison: &Comparison<'_>, cell: impl Fn(&Rounds<'_>) -> String) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(comparison.entries.iter().map(cell)).collect()
}

fn entry_of(ledger: &Ledger) -> Option<&Entry> {
    ledger.run.target.entry.as_ref()
}

/// Missing hits and errors, with a column per entry.
fn counts(out: &mut String, comparison: &Comparison<'_>) {
    let missing =
        |entry: &Rounds<'_>, cause: MissCause| entry.total(|phase| phase.missing.get(&cause).copied().unwrap_or(0));
    counted(
        out,
        &comparison.summed("Missing hits by cause"),
        comparison,
        MissCause::ALL,
        |c| (c.as_str(), c.sentence()),
        missing,
    );
    let errors = |entry: &Rounds<'_>, trouble: Trouble| entry.total(|phase| phase.errors.of(trouble));
    counted(
        out,
        &comparison.summed("Errors and remarks by kind"),
        comparison,
        Trouble::ALL,
        |t| (t.as_str(), t.sentence()),
        errors,
    );
}

fn counted<T: Copy>(
    out: &mut String,
    heading: &str,
    comparison: &Comparison<'_>,
    all: &[T],
    words: fn(T) -> (&'static str, &'static str),
    count: impl Fn(&Rounds<'_>, T) -> u64,
) {
    let mut headings = vec![String::new()];
    headings.extend(comparison.entries.iter().map(|entry| escaped(&entry.label)));
    let mut table = Table::new(&headings);
    let seen = |each: &&T| comparison.entries.iter().any(|entry| count(entry, **each) > 0);
    for each in all.iter().filter(seen) {
        let (word, sentence) = words(*each);
        let name = format!("<span title=\"{}\">{word}</span>", escaped(sentence));
        table.row(&row_of(&name, comparison, |entry| grouped(count(entry, *each) as f64)));
    }
    let html = table.html();
    if !html.is_empty() {
        let _ = write!(out, "<h3>{heading}</h3>{html}");
    }
}

/// Everything about one entry: all figures of its typical round, its classes, phases, errors and configuration.
fn details(entry: &Rounds<'_>) -> String {
    let mut out = String::new();
    let Some(run) = entry.typical() else { return out };
    if entry.runs.len() > 1 {
        let _ = write!(
            out,
            "<h4>Rounds</h4>{}<p class=\"sub\">The figures below are those of round {}.</p>",
            rounds(entry),
            run.ledger.run.round
        );
    }
    for (name, charts) in figures::of_run(run) {
        let _ = write!(out, "<h4>{name}</h4><div class=\"figures\">{}</div>", svgs(&charts));
    }
    for (name, html) in [
        ("Classes of replies in the reported phase", classes(run)),
        ("Phases", phases(run.ledger)),
        ("Errors in full", exhibits(run)),
    ] {
        if !html.is_empty() {
            let _ = write!(out, "<h4>{name}</h4>{html}");
        }
    }
    out.push_str(&notes(run.ledger));
    if let Some(entry) = entry_of(run.ledger) {
        out.push_str(&folded("Configuration and tuning of the cache", &configuration(entry)));
    }
    out
}

fn rounds(entry: &Rounds<'_>) -> String {
    let metrics: Vec<&Metric> = ["rps", "mean", "p99", "dhr", "errors", "cpu_us", "steal", "others"]
        .iter()
        .filter_map(|key| Metric::named(key))
        .collect();
    let mut headings = vec!["round"];
    headings.extend(metrics.iter().map(|metric| metric.name));
    headings.push("counts");
    let mut table = Table::plain(&headings);
    for run in &entry.runs {
        let mut cells = vec![run.ledger.run.round.to_string()];
        cells.extend(
            metrics.iter().map(|metric| metric.shown(run).map_or("–".to_owned(), |value| metric.unit.text(value))),
        );
        cells.push(if run.counts() { "yes" } else { "no" }.to_owned());
        table.row(&cells);
    }
    table.html()
}

fn classes(run: &Summary<'_>) -> String {
    let mut table = Table::plain(&[
        "class",
        "replies",
        "share",
        "hits",
        "collapsed",
        "mean size",
        "mean",
        "50 %",
        "90 %",
        "99 %",
        "99.9 %",
        "max",
    ]);
    let all = run.phase.replies().max(1) as f64;
    for (class, figures) in &run.phase.classes {
        let time = |part| {
            let carried =
                figures.response.quantile(part).filter(|_| part == 1.0 || is_carried(&figures.response, part));
            carried.map_or("–".to_owned(), |us| Unit::Micros.text(us as f64))
        };
        let mean = |value: Option<f64>, unit: Unit| value.map_or("–".to_owned(), |value| unit.text(value));
        let name = figures::class_name(run.ledger, *class);
        let name = if matches!(class, Class::Status(_)) { format!("status {name}") } else { name };
        table.row(&[
            escaped(&name),
            grouped(figures.replies as f64),
            Unit::Share.text(figures.replies as f64 / all),
            Unit::Share.text(figures.hits as f64 / figures.replies.max(1) as f64),
            Unit::Share.text(figures.collapsed as f64 / figures.replies.max(1) as f64),
            mean(figures.size.mean(), Unit::Bytes),
            mean(figures.response.mean(), Unit::Micros),
            time(0.5),
            time(0.9),
            time(0.99),
            time(0.999),
            time(1.0),
        ]);
    }
    table.html()
}

fn phases(ledger: &Ledger) -> String {
    let mut table = Table::plain(&["phase", "start", "length", "due/s", "replies/s", "mean", "DHR", "errors", "goal"]);
    for start in &ledger.phases {
        let Some(plan) = ledger.run.phases.get(usize::from(start.phase)) else { continue };
        let phase = ledger.phase(start.phase);
        let seconds = (phase.length_us as f64 / 1e6).max(1e-6);
        let basic = phase.class(Class::Basic);
        let name = if plan.logged { plan.name.clone() } else { format!("{} (not reported)", plan.name) };
        table.row(&[
            escaped(&name),
            Unit::Elapsed.text(start.at_us as f64 / 1e6),
            Unit::Elapsed.text(seconds),
            if is_paced(ledger, &phase) { grouped(phase.due as f64 / seconds) } else { "–".to_owned() },
            grouped(phase.replies() as f64 / seconds),
            phase.class(Class::All).response.mean().map_or("–".to_owned(), |us| Unit::Micros.text(us)),
            Unit::Share.text(basic.hits as f64 / basic.replies as f64),
            grouped(phase.errors.total() as f64),
            escaped(&plan.goal),
        ]);
    }
    table.html()
}

fn exhibits(run: &Summary<'_>) -> String {
    let mut table = Table::plain(&["error or remark", "time", "URL", "expected and found"]);
    for exhibit in &run.phase.errors.exhibits {
        table.row(&[
            escaped(exhibit.trouble.as_str()),
            Unit::Elapsed.text(exhibit.at_us as f64 / 1e6),
            format!("<code>{}</code>", escaped(&exhibit.url)),
            escaped(&exhibit.detail),
        ]);
    }
    table.html().replace("<table>", "<table class=\"text\">")
}

fn notes(ledger: &Ledger) -> String {
    let item = |note: &crate::ledger::Note| {
        format!("<li>{}: {}</li>", Unit::Elapsed.text(note.at_us as f64 / 1e6), escaped(&note.text))
    };
    let items: String = ledger.notes.iter().map(item).collect();
    if items.is_empty() { items } else { format!("<h4>Remarks during the run</h4><ul>{items}</ul>") }
}

/// How a cache was configured and started.
pub(super) fn configuration(entry: &Entry) -> String {
    let mut out = String::new();
    let notes: String = entry.notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
    if !notes.is_empty() {
        let _ = write!(out, "<ul>{notes}</ul>");
    }
    if !entry.commands.is_empty() {
        let _ = write!(out, "<h4>Commands</h4>{}", verbatim(&entry.commands.join("\n")));
    }
    for (name, text) in &entry.files {
        let _ = write!(out, "<h4>{}</h4>{}", escaped(name), verbatim(text));
    }
    out
}

/// The workload and what was planned for it.
fn plan(out: &mut String, run: &Summary<'_>) {
    let facts = &run.ledger.run.workload;
    let mut html = String::new();
    let ideal = &run.ledger.run.ideal;
    let mut table = Table::plain(&["an ideal cache", ""]);
    let rows = [
        ("document hit ratio", ideal.dhr, Unit::Share),
        ("byte hit ratio", ideal.bhr, Unit::Share),
        ("mean response time", ideal.response_us, Unit::Micros),
        ("bytes to store per second at peak", ideal.fill_bytes_per_s, Unit::Bytes),
        ("working set", ideal.working_set_bytes, Unit::Bytes),
        ("cache size for 99 % of the hits under LRU", ideal.lru_99_bytes, Unit::Bytes),
    ];
    for (name, value, unit) in rows {
        if let Some(value) = value {
            table.row(&[name.to_owned(), unit.text(value)]);
        }
    }
    html.push_str(&table.html());
    html.push_str(&worlds(&run.phase));
    let changes: String = facts.scale_notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
    if !changes.is_empty() {
        let _ = write!(html, "<h4>What the scale changes</h4><ul>{changes}</ul>");
    }
    html.push_str(&links(run.ledger));
    if !facts.text.is_empty() {
        let _ = write!(html, "<h4>{}.toml</h4>{}", escaped(&facts.name), verbatim(&facts.text));
    }
    let _ = write!(html, "<p class=\"sub\">Made by <code>{}</code></p>", escaped(&run.ledger.run.command));
    out.push_str("<h3>The workload</h3>");
    out.push_str(&folded("Plan, links and file", &html));
}

/// The objects that were asked for: how much of the interest robots had in common, and in how many worlds it lay.
fn worlds(phase: &Interval) -> String {
    let mut table = Table::plain(&["interest in the reported phase", ""]);
    let of = |part: u64, whole: u64| Unit::Share.text(part as f64 / whole.max(1) as f64);
    for (name, value) in [
        ("requests for what one robot alone asks for", of(phase.private, phase.sent)),
        ("requests for new objects, those of one robot alone", of(phase.fresh_private, phase.fresh_urls)),
        ("worlds with objects that may be asked for again, at its end", Unit::Count.text(phase.levels.worlds as f64)),
        ("objects in them, without what pages embed", Unit::Count.text(phase.levels.working_set as f64)),
    ] {
        table.row(&[name.to_owned(), value]);
    }
    table.html()
}

fn links(ledger: &Ledger) -> String {
    let mut table = Table::plain(&[
        "link",
        "model",
        "delay each way",
        "jitter",
        "bandwidth",
        "loss",
        "round trip measured before the run",
    ]);
    for link in &ledger.run.links {
        let micros = |us: u64| Unit::Micros.text(us as f64);
        let measured = match (link.measured.quantile(0.5), link.measured.quantile(0.99)) {
            (Some(half), Some(most)) => format!("median {}, 99 % {}", micros(half), micros(most)),
            _ => "–".to_owned(),
        };
        table.row(&[
            link.side.map_or("both sides", |side| side.as_str()).to_owned(),
            escaped(&link.model),
            micros(link.delay_us),
            micros(link.jitter_us),
            if link.bits_per_s == 0 { "not limited".to_owned() } else { Unit::Bits.text(link.bits_per_s as f64) },
            Unit::Share.text(link.loss),
            measured,
        ]);
    }
    table.html()
}

/// Machines and settings; those of several runs once if they are the same.
pub(super) fn machines(ledgers: &[Ledger]) -> String {
    let mut seen: Vec<&Ledger> = Vec::new();
    for ledger in ledgers {
        if !seen.iter().any(|other| other.run.machine == ledger.run.machine && other.run.tuning == ledger.run.tuning) {
            seen.push(ledger);
        }
    }
    seen.into_iter().map(machine).collect()
}

fn machine(ledger: &Ledger) -> String {
    let machine = &ledger.run.machine;
    let virtual_machine = if machine.virtual_machine { ", virtual machine" } else { "" };
    let own = if machine.own_cores.is_empty() { "all".to_owned() } else { machine.own_cores.clone() };
    let mut table = Table::plain(&["machine", ""]);
    for (name, value) in [
        ("processor", format!("{}{virtual_machine}", machine.processor)),
        ("cores", format!("{}; of the referee: {own}", machine.cores)),
        ("memory", Unit::Bytes.text(machine.memory as f64)),
        ("kernel", machine.kernel.clone()),
        (
            "energy counters",
            if machine.energy.is_empty() { "not readable on this machine".to_owned() } else { machine.energy.clone() },
        ),
        ("power supply", if machine.power.is_empty() { "not told here".to_owned() } else { machine.power.clone() }),
    ] {
        table.row(&[name.to_owned(), escaped(&value)]);
    }
    let mut tuning = Table::plain(&["setting", "value", "of"]);
    for each in &ledger.run.tuning {
        tuning.row(&[format!("<code>{}</code>", escaped(&each.name)), escaped(&each.value), escaped(&each.whose)]);
    }
    let left = |html: String| html.replace("<table>", "<table class=\"text\">");
    left(table.html()) + &folded("Settings of the system and of both sides", &left(tuning.html()))
}
