//! The page of an official sequence: the pages of the report of the second cache-off (January 2000) first, then every
//! stage in full as any other report has it.

use super::compare::compare;
use super::markup::{Table, escaped, folded};
use super::metric::{Metric, is_carried};
use super::page::{footer, head, subtitle, words};
use super::summary::Summary;
use super::{figures, past, provenance, sections};
use crate::chart::{Axis, Chart, Scale, Shape, Tone, Unit, grouped, three_digits};
use crate::ledger::{Class, Figures, Interval, Ledger, Outcome, Stage};
use std::fmt::Write;

/// Points of a curve over the load.
const LOADS: usize = 12;
/// Above this share of what the generator can do, a rate is that of the generator.
const CEILING_SHARE: f64 = 0.9;
/// Sizes that are further apart than this share are not those of the same load.
const SIZE_APART_MAX: f64 = 0.2;
/// The phases that are compared with each other, and their meaning.
const STATES: [(&str, &str); 3] =
    [("top1", "first plateau"), ("idle", "idle, at a tenth of the load"), ("top2", "second plateau")];

/// Whether some ledgers are those of an official sequence.
pub(super) fn is_sequence(ledgers: &[Ledger]) -> bool {
    ledgers.iter().any(|ledger| ledger.run.stage.is_some())
}

/// An entry with its stages.
struct Entry<'a> {
    label: &'a str,
    stages: Vec<(Stage, Summary<'a>)>,
}

impl<'a> Entry<'a> {
    fn stage(&self, stage: Stage) -> Option<&Summary<'a>> {
        self.stages.iter().find(|(of, _)| *of == stage).map(|(_, summary)| summary)
    }

    /// Any of its ledgers, for what all of them say.
    fn any(&self) -> Option<&Summary<'a>> {
        self.stage(Stage::Load).or_else(|| self.stages.first().map(|(_, summary)| summary))
    }
}

/// The stages of a sequence by entry.
struct Sequence<'a> {
    ceiling: Option<Summary<'a>>,
    no_proxy: Option<Summary<'a>>,
    entries: Vec<Entry<'a>>,
}

impl<'a> Sequence<'a> {
    fn of(ledgers: &'a [Ledger]) -> Self {
        let (mut ceiling, mut no_proxy, mut entries) = (None, None, Vec::<Entry<'a>>::new());
        for ledger in ledgers {
            let (label, summary) = (ledger.run.label.as_str(), Summary::of(ledger));
            match ledger.run.stage {
                None => {}
                Some(Stage::Ceiling) => ceiling = Some(summary),
                Some(Stage::NoProxy) => no_proxy = Some(summary),
                Some(stage) => match entries.iter_mut().find(|entry| entry.label == label) {
                    Some(entry) => entry.stages.push((stage, summary)),
                    None => entries.push(Entry { label, stages: vec![(stage, summary)] }),
                },
            }
        }
        Self { ceiling, no_proxy, entries }
    }
}

/// How long a cache holds what its load stores at peak, by entry: its budget divided by the fill rate of the plateau.
pub fn cache_ages(ledgers: &[Ledger]) -> Vec<(String, String)> {
    let sequence = Sequence::of(ledgers);
    let age = |entry: &Entry<'_>| Some((entry.label.to_owned(), age_text(age_s(entry)?)));
    sequence.entries.iter().filter_map(age).collect()
}

/// In hours, as the report of 2000, and as a time.
fn age_text(seconds: f64) -> String {
    format!("{} h ({})", three_digits(seconds / 3_600.0), duration(seconds))
}

/// A time in words, which nobody takes for a clock.
fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let (hours, minutes, rest) = (whole / 3_600, whole / 60 % 60, whole % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes} min {rest} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

fn age_s(entry: &Entry<'_>) -> Option<f64> {
    let load = entry.stage(Stage::Load)?;
    let per_second = load.per_second(load.phase.class(Class::Fill).bytes as f64).filter(|rate| *rate > 0.0)?;
    Some(load.ledger.run.cache_bytes? as f64 / per_second)
}

/// The whole page.
pub(super) fn page(ledgers: &[Ledger]) -> String {
    let sequence = Sequence::of(ledgers);
    let names: Vec<&str> = sequence.entries.iter().map(|entry| entry.label).collect();
    let title = format!("{}: {}", heading(ledgers), names.join(", "));
    let parts: [(&str, &str, String); 9] = [
        ("executive", "Executive table", executive(&sequence, ledgers)),
        ("bench", "The bench", bench(&sequence, ledgers)),
        ("load", "Response against load", against_load(&sequence)),
        ("fill", "Fill", fill(&sequence)),
        ("times", "Hit and miss times", times(&sequence)),
        ("idle", "Idle against busy", idle_and_busy(&sequence)),
        ("downtime", "Downtime", downtime(&sequence)),
        ("time-wait", "TIME-WAIT", time_wait(&sequence)),
        ("configuration", "Configurations and comments", configurations(&sequence)),
    ];
    let mut out = head(&title);
    let links: String = parts.iter().map(|(id, name, _)| format!("<a href=\"#{id}\">{name}</a>")).collect();
    let _ = write!(
        out,
        "<header><p class=\"kicker\">Cacheoff report</p><h1>{}</h1><p class=\"sub\">{}</p>{}<nav>{links}<a href=\"#stages\">Every \
         stage</a><a href=\"#machine\">Machine</a><a href=\"#words\">How to read this</a></nav></header><main>",
        escaped(&title),
        escaped(&subtitle(ledgers)),
        provenance::paragraph(ledgers)
    );
    for (id, name, html) in parts {
        let _ = write!(out, "<h2 id=\"{id}\">{name}</h2>{html}");
    }
    out.push_str("<h2 id=\"stages\">Every stage in full</h2>");
    for (place, comparison) in compare(ledgers).iter().enumerate() {
        let mut stage = String::new();
        sections::workload(&mut stage, comparison, &format!("w{place}"));
        out.push_str(&folded(&escaped(&comparison.workload), &stage));
    }
    let _ = write!(
        out,
        "<h2 id=\"machine\">Machine and system</h2>{}<h2 id=\"words\">How to read this</h2>{}<h2 id=\"history\">Published \
         figures, 2000 to 2015</h2>{}</main>{}</body></html>",
        sections::machines(ledgers),
        words(ledgers),
        folded("Show the tables", &past::section()),
        footer(ledgers)
    );
    out + "\n"
}

fn cell(value: Option<f64>, unit: Unit) -> String {
    value.filter(|value| value.is_finite()).map_or("–".to_owned(), |value| unit.text(value))
}

/// A table with a column per entry.
fn by_entry(sequence: &Sequence<'_>) -> Table {
    let labels = sequence.entries.iter().map(|entry| escaped(entry.label));
    Table::new(&std::iter::once(String::new()).chain(labels).collect::<Vec<_>>())
}

fn row(table: &mut Table, sequence: &Sequence<'_>, name: &str, of: impl Fn(&Entry<'_>) -> String) {
    let cells: Vec<String> = sequence.entries.iter().map(of).collect();
    if cells.iter().any(|cell| !cell.is_empty() && cell != "–") {
        table.row(&std::iter::once(escaped(name)).chain(cells).collect::<Vec<_>>());
    }
}

/// A metric of a stage, struck out where the stage does not count.
fn metric(entry: &Entry<'_>, stage: Stage, key: &str) -> String {
    let Some((metric, summary)) = Metric::named(key).zip(entry.stage(stage)) else { return "–".to_owned() };
    let is_out = !summary.counts() && (metric.is_spoilt_by_noise() || !summary.is_only_noisy());
    match metric.shown(summary) {
        Some(value) if is_out => format!("<s class=\"out\">{}</s>", cell(Some(value), metric.unit)),
        value => cell(value, metric.unit),
    }
}

/// The columns of the executive summary of 2000, and what it did not have.
fn executive(sequence: &Sequence<'_>, ledgers: &[Ledger]) -> String {
    let scale_html = scale_remark(ledgers).map_or_else(String::new, |text| format!("<p>{}</p>", escaped(&text)));
    let mut table = by_entry(sequence);
    let fact = |of: &dyn Fn(&Ledger) -> String, entry: &Entry<'_>| {
        let text = started(entry).map(|ledger| escaped(&of(ledger))).filter(|text| !text.is_empty());
        text.unwrap_or_else(|| "–".to_owned())
    };
    let of_entry = |of: fn(&crate::ledger::Entry) -> &str, ledger: &Ledger| {
        ledger.run.target.entry.as_ref().map_or(String::new(), |known| of(known).to_owned())
    };
    // Of all texts this is the longest, and would push the last columns out of the window.
    row(&mut table, sequence, "product", |entry| {
        format!("<span class=\"narrow\">{}</span>", fact(&|ledger| provenance::product(ledger).to_owned(), entry))
    });
    row(&mut table, sequence, "asked as", |entry| fact(&|ledger| ledger.run.target.mode.as_str().to_owned(), entry));
    row(&mut table, sequence, "protocol", |entry| fact(&|ledger| ledger.run.protocol_in_words(), entry));
    row(&mut table, sequence, "store: where, budget", |entry| {
        if started(entry).is_none() {
            return "–".to_owned();
        }
        format!("<span class=\"narrow\">{}</span>", fact(&provenance::store, entry))
    });
    row(&mut table, sequence, "tuning", |entry| fact(&|ledger| of_entry(|known| &known.tuning, ledger), entry));
    row(&mut table, sequence, "cores of the cache", |entry| {
        fact(&|ledger| of_entry(|known| &known.cores, ledger), entry)
    });
    row(&mut table, sequence, "price", |entry| {
        let price =
            |ledger: &Ledger| ledger.run.price.as_ref().map(|p| format!("{} {}", grouped(p.amount), p.currency));
        fact(&|ledger| price(ledger).unwrap_or_default(), entry)
    });
    row(&mut table, sequence, "peak asked for", |entry| {
        cell(entry.stage(Stage::Load).and_then(|load| load.ledger.run.workload.peak), Unit::PerSecond)
    });
    for (name, key) in OF_LOAD {
        row(&mut table, sequence, name, |entry| metric(entry, Stage::Load, key));
    }
    row(&mut table, sequence, AGE, |entry| {
        // In two lines, or the columns of many entries are wider than the page.
        let age = age_s(entry).map_or("–".to_owned(), |age| age_text(age).replace(" (", "<br>("));
        let is_out = age != "–" && entry.stage(Stage::Load).is_some_and(|load| !load.counts());
        if is_out { format!("<s class=\"out\">{age}</s>") } else { age }
    });
    row(&mut table, sequence, "verdict on the load", |entry| verdict(sequence, entry));
    for (name, key) in OF_KILL {
        row(&mut table, sequence, name, |entry| metric(entry, Stage::Kill, key));
    }
    row(&mut table, sequence, "verdict on the kill", |entry| entry.stage(Stage::Kill).map_or("–".to_owned(), badge));
    let remark = "<p class=\"sub\">Figures of the second plateau (top2) of PolyMix-2, after the store was filled twice, on one \
                  cache that was not restarted; those after a kill are of the last stage. Each stage was played once: no interval \
                  can be given, and a difference of two entries is not shown to be more than chance; \
                  a contest of several rounds can show that. A figure that does not count is struck out, and the list below says why.</p>";
    scale_html + &table.html() + remark + &folded("What these rows count", &meanings()) + &findings(sequence)
}

/// A ledger of an entry that was started: that of one which was not knows nothing of it.
fn started<'a>(entry: &Entry<'a>) -> Option<&'a Ledger> {
    entry.any().map(|summary| summary.ledger).filter(|ledger| ledger.run.target.entry.is_some())
}

/// Rows of the executive table from the load, and their metrics.
const OF_LOAD: [(&str, &str); 22] = [
    ("replies per second", "rps"),
    ("replies counted", "replies"),
    ("in a phase of", "duration"),
    ("body, mean", "body"),
    ("traffic", "bps"),
    ("response, mean", "mean"),
    ("response, mean of hits", "hit.mean"),
    ("response, mean of misses", "miss.mean"),
    ("response, median", "p50"),
    ("response, 99 %", "p99"),
    ("document hit ratio", "dhr"),
    ("offered", "dhr.offered"),
    ("hits of those offered", "dhr.of_offered"),
    ("byte hit ratio", "bhr"),
    ("replies/s per 1,000 of price", "rps_per_price"),
    ("hits/s per 1,000 of price", "hits_per_price"),
    ("replies/s per watt", "rps_per_watt"),
    ("CPU per reply", "cpu_us"),
    ("memory", "memory"),
    ("energy of the machine per 1,000 replies, J", "energy_j"),
    ("errors, share of requests", "errors.share"),
    ("wrong answers", "lies"),
];
/// Rows of the executive table from the kill, and their metrics.
const OF_KILL: [(&str, &str); 3] = [
    ("first miss after a kill", "downtime.miss"),
    ("first hit after a kill", "downtime.hit"),
    ("objects kept after a kill", "downtime.kept"),
];
const AGE: &str = "age of the cache, in peak fill";

/// The sentence of each row of the executive table that is a measurement.
fn meanings() -> String {
    let mut table = Table::plain(&["row", "what it counts"]);
    for (name, key) in OF_LOAD.iter().chain(&OF_KILL) {
        if let Some(metric) = Metric::named(key) {
            table.row(&[escaped(name), escaped(metric.sentence)]);
        }
    }
    let age = "The budget of the store divided by what misses store per second at peak: so long an object that nobody asks for can stay.";
    table.row(&[escaped(AGE), escaped(age)]);
    table.html().replace("<table>", "<table class=\"text\">")
}

/// Whether the figures of a stage count, in a word.
fn badge(summary: &Summary<'_>) -> String {
    let worst = summary.findings.iter().map(|finding| finding.weight).min().filter(|weight| weight.spoils());
    let (class, word) = worst.map_or(("fine", "valid"), |weight| (weight.as_str(), weight.as_str()));
    format!("<span class=\"badge {class}\">{word}</span>")
}

/// The length of a sequence relative to the standard's, if it is another one.
fn scale(ledgers: &[Ledger]) -> Option<f64> {
    let of_load = ledgers.iter().filter(|ledger| ledger.run.stage == Some(Stage::Load));
    of_load.map(|ledger| ledger.run.workload.scale).find(|scale| *scale != 1.0)
}

/// The heading of a report; the word official is that of the full length.
pub(super) fn heading(ledgers: &[Ledger]) -> String {
    match (is_sequence(ledgers), scale(ledgers)) {
        (false, _) => "Contest".to_owned(),
        (true, None) => "Official sequence".to_owned(),
        (true, Some(scale)) => format!("Sequence at {} of the standard's length", three_digits(scale)),
    }
}

/// A shortened sequence is no result, and says so first.
pub(super) fn scale_remark(ledgers: &[Ledger]) -> Option<String> {
    scale(ledgers).map(|scale| {
        format!(
            "Phases are {} of the standard. The working set is as much smaller and think times are not: this shows how the caches behave \
             in the sequence, and is no result of the standard.",
            three_digits(scale)
        )
    })
}

/// The sizes of the calibration and of the load that it bounds, and the length of the load without a cache.
pub(super) fn bench_remark(ledgers: &[Ledger]) -> Option<String> {
    let of = |stage: Stage| ledgers.iter().find(|ledger| ledger.run.stage == Some(stage)).map(Summary::of);
    let (ceiling, load, bare) = (of(Stage::Ceiling), of(Stage::Load), of(Stage::NoProxy));
    let size = |summary: &Summary<'_>| {
        let body = summary.phase.class(Class::All).size.mean().unwrap_or(0.0);
        // At the end of a play, robots have left.
        let robots = summary.ledger.intervals.iter().map(|interval| interval.levels.robots).max();
        (robots.unwrap_or(0) as f64, body)
    };
    let text = |(robots, body): (f64, f64)| {
        format!("{} robots, bodies of {} on average", grouped(robots), Unit::Bytes.text(body))
    };
    let mut parts = Vec::new();
    if let Some((ceiling, load)) =
        ceiling.as_ref().zip(load.as_ref()).map(|(ceiling, load)| (size(ceiling), size(load)))
    {
        let is_alike = |one: f64, other: f64| (one - other).abs() <= SIZE_APART_MAX * one.max(other);
        parts.push(match is_alike(ceiling.0, load.0) && is_alike(ceiling.1, load.1) {
            true => format!(
                "The calibration ({}) has about the size of the load ({}; replies without a body count there).",
                text(ceiling),
                text(load)
            ),
            false => format!(
                "The calibration ({}) is of another size than the load ({}): it says roughly how fast the generator can ask, and bounds no \
                 rate of another size.",
                text(ceiling),
                text(load)
            ),
        });
    }
    if let Some((bare, load)) = bare.as_ref().zip(load.as_ref()) {
        let scales = (bare.ledger.run.workload.scale, load.ledger.run.workload.scale);
        parts.push(match scales.0 == scales.1 {
            true => "The load without a cache has the length of the load with one.".to_owned(),
            false => format!(
                "The load without a cache was played at {} of the length of the load with one: there is no store whose state would build up.",
                three_digits(scales.0 / scales.1)
            ),
        });
    }
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Whether the figures of an entry count, in a word.
fn verdict(sequence: &Sequence<'_>, entry: &Entry<'_>) -> String {
    let Some(load) = entry.stage(Stage::Load) else { return "failed before the load".to_owned() };
    match load.counts() && at_ceiling(sequence, load) {
        true => "the generator's".to_owned(),
        false => badge(load),
    }
}

fn ceiling_rate(sequence: &Sequence<'_>) -> Option<f64> {
    let ceiling = sequence.ceiling.as_ref()?;
    ceiling.per_second(ceiling.phase.replies() as f64)
}

fn at_ceiling(sequence: &Sequence<'_>, load: &Summary<'_>) -> bool {
    let rate = load.per_second(load.phase.replies() as f64);
    rate.zip(ceiling_rate(sequence)).is_some_and(|(rate, ceiling)| rate > ceiling * CEILING_SHARE)
}

/// All that a reader must know, stage by stage.
fn findings(sequence: &Sequence<'_>) -> String {
    let mut items = String::new();
    for entry in &sequence.entries {
        for (stage, summary) in &entry.stages {
            // Nothing is asked for while TIME-WAIT is watched.
            for finding in summary.findings.iter().filter(|_| *stage != Stage::TimeWait) {
                let (word, name) = (finding.weight.as_str(), stage_name(*stage));
                let (label, text) = (escaped(entry.label), escaped(&finding.text));
                let _ = write!(items, "<li><span class=\"badge {word}\">{word}</span>{label}, {name}: {text}</li>");
            }
        }
    }
    if items.is_empty() { items } else { format!("<ul class=\"findings\">{items}</ul>") }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Ceiling => "calibration",
        Stage::NoProxy => "no proxy",
        Stage::TimeWait => "TIME-WAIT",
        Stage::Fill => "fill",
        Stage::Load => "load",
        Stage::Kill => "kill",
    }
}

/// The bench without a cache: the bounds within which the figures above mean something.
fn bench(sequence: &Sequence<'_>, ledgers: &[Ledger]) -> String {
    let mut table = Table::plain(&["the bench alone", ""]);
    let mut add = |name: &str, value: String| table.row(&[escaped(name), value]);
    if let Some(ceiling) = &sequence.ceiling {
        let cpu = ceiling.load.map(|load| f64::from(load.own_cpu));
        add(
            "verified replies per second, one thread, against the built-in server",
            cell(ceiling_rate(sequence), Unit::PerSecond),
        );
        add("CPU of it for them, in cores", cell(cpu, Unit::Cores));
    }
    if let Some(bare) = &sequence.no_proxy {
        let of = |key: &str| Metric::named(key).map_or("–".to_owned(), |m| cell(m.of(bare), m.unit));
        for (name, key) in [
            ("load without a cache: replies", "rps"),
            ("asked for", "asked"),
            ("mean response", "mean"),
            ("99 %", "p99"),
            ("errors", "errors"),
            ("lateness of the generator, 99 %", "lateness.p99"),
            ("CPU of the generator and its origins, in cores", "own_cpu"),
        ] {
            add(name, of(key));
        }
        add("mean response that an ideal cache would have", cell(bare.ledger.run.ideal.response_us, Unit::Micros));
    }
    let limit = three_digits(CEILING_SHARE);
    table.html()
        + &format!(
            "<p class=\"sub\">A rate above {limit} of what the generator itself can do is the generator's and no result of a cache. {}</p>",
            escaped(&bench_remark(ledgers).unwrap_or_default())
        )
}

/// Mean response time over the rate, by twelfths of the peak: what the intervals of all phases say of each load.
fn against_load(sequence: &Sequence<'_>) -> String {
    let chart = |title: &str, class: Class| {
        let axes = Chart::new(
            title,
            Axis::new("replies per second", Unit::PerSecond),
            Axis::new("mean response time", Unit::Micros).scaled(Scale::Log),
        );
        let charted = sequence.entries.iter().enumerate().fold(axes, |chart, (place, entry)| {
            let points = entry.stage(Stage::Load).map_or_else(Vec::new, |load| by_load(load.ledger, class));
            chart.with(entry.label, Shape::Line, Tone::Nth(place), points)
        });
        match &sequence.no_proxy {
            Some(bare) if class != Class::Hit => {
                charted.with("no proxy", Shape::Line, Tone::Ideal, by_load(bare.ledger, class))
            }
            _ => charted,
        }
    };
    let all = [("All replies", Class::All), ("Hits", Class::Hit), ("Misses", Class::Miss)];
    figures_of(all.map(|(title, class)| chart(title, class)))
}

fn by_load(ledger: &Ledger, class: Class) -> Vec<(f64, f64)> {
    let rate = |interval: &Interval| interval.replies() as f64 * 1e6 / interval.length_us.max(1) as f64;
    let logged =
        |interval: &&Interval| ledger.run.phases.get(usize::from(interval.phase)).is_none_or(|plan| plan.logged);
    let peak = ledger.intervals.iter().map(rate).fold(0.0, f64::max);
    let mut loads = vec![Interval::default(); LOADS];
    for interval in ledger.intervals.iter().filter(logged) {
        let place = (rate(interval) / peak.max(1e-9) * LOADS as f64) as usize;
        loads[place.min(LOADS - 1)].extend(interval);
    }
    let point = |load: &Interval| Some((rate(load), load.class(class).response.mean()?));
    loads.iter().filter_map(point).collect()
}

fn figures_of(charts: impl IntoIterator<Item = Chart>) -> String {
    let shown = charts.into_iter().filter(|chart| !chart.is_empty());
    let html: String = shown.map(|chart| format!("<figure>{}</figure>", chart.svg())).collect();
    if html.is_empty() { "<p>Not measured.</p>".to_owned() } else { format!("<div class=\"figures\">{html}</div>") }
}

fn fill(sequence: &Sequence<'_>) -> String {
    let mut table = by_entry(sequence);
    let stored = |entry: &Entry<'_>| entry.stage(Stage::Fill).map(|fill| filled(fill.ledger));
    row(&mut table, sequence, "stored by misses", |entry| cell(stored(entry), Unit::Bytes));
    row(&mut table, sequence, "of the budget", |entry| {
        let budget = entry.stage(Stage::Fill).and_then(|fill| fill.ledger.run.cache_bytes);
        cell(stored(entry).zip(budget).map(|(stored, budget)| stored / budget.max(1) as f64), Unit::Share)
    });
    row(&mut table, sequence, "bytes per second", |entry| {
        let seconds = entry.stage(Stage::Fill).map(Summary::seconds).filter(|seconds| *seconds > 0.0);
        let fill = entry.stage(Stage::Fill).map(|fill| fill.phase.class(Class::Fill).bytes as f64);
        cell(fill.zip(seconds).map(|(bytes, seconds)| bytes / seconds), Unit::Bytes)
    });
    for (name, key) in [
        ("duration", "duration"),
        ("replies per second", "rps"),
        ("response, mean", "mean"),
        ("response, 99 %", "p99"),
        ("errors", "errors"),
        ("CPU per reply", "cpu_us"),
        ("written to files", "written"),
    ] {
        row(&mut table, sequence, name, |entry| metric(entry, Stage::Fill, key));
    }
    let over = |title: &str, unit: Unit, of: &dyn Fn(&Interval) -> f64| {
        let axes = Chart::new(title, Axis::new("time since the start", Unit::Elapsed), Axis::new("", unit));
        sequence.entries.iter().enumerate().fold(axes, |chart, (place, entry)| {
            let fill = entry.stage(Stage::Fill).map_or(&[][..], |fill| &fill.ledger.intervals);
            let points = fill.iter().map(|interval| (interval.at_us as f64 / 1e6, of(interval)));
            chart.with(entry.label, Shape::Line, Tone::Nth(place), points.collect())
        })
    };
    let seconds = |interval: &Interval| interval.length_us.max(1) as f64 / 1e6;
    let charts = [
        over("Bytes stored per second", Unit::Bytes, &|i| i.class(Class::Fill).bytes as f64 / seconds(i)),
        over("Mean response time of the fill", Unit::Micros, &|i| {
            i.class(Class::All).response.mean().unwrap_or(f64::NAN)
        }),
    ];
    table.html() + &figures_of(charts)
}

/// Bytes that the misses of a fill stored, in all its phases.
fn filled(ledger: &Ledger) -> f64 {
    ledger.intervals.iter().map(|interval| interval.class(Class::Fill).bytes as f64).sum()
}

fn times(sequence: &Sequence<'_>) -> String {
    let mut table = Table::plain(&["", "replies", "mean", "median", "90 %", "99 %", "99.9 %", "maximum"]);
    for entry in &sequence.entries {
        let Some(load) = entry.stage(Stage::Load) else { continue };
        for (word, class) in [("hits", Class::Hit), ("collapsed", Class::Collapsed), ("misses", Class::Miss)] {
            let figures: &Figures = load.phase.class(class);
            if figures.replies == 0 {
                continue;
            }
            let part = |part: f64| {
                let carried = part == 1.0 || is_carried(&figures.response, part);
                cell(figures.response.quantile(part).filter(|_| carried).map(|us| us as f64), Unit::Micros)
            };
            let mut cells = vec![format!("{}, {word}", escaped(entry.label)), grouped(figures.replies as f64)];
            cells.push(cell(figures.response.mean(), Unit::Micros));
            cells.extend([0.5, 0.9, 0.99, 0.999, 1.0].map(part));
            table.row(&cells);
        }
    }
    let loads: Vec<Ledger> =
        sequence.entries.iter().filter_map(|entry| Some(entry.stage(Stage::Load)?.ledger.clone())).collect();
    let comparisons = compare(&loads);
    let curves: Vec<Chart> = comparisons.iter().flat_map(figures::of_entries).collect();
    table.html() + &figures_of(curves)
}

/// A phase of the load as one interval.
fn state(load: &Summary<'_>, name: &str) -> Option<Interval> {
    let number = load.ledger.run.phases.iter().position(|plan| plan.name == name)?;
    Some(load.ledger.phase(number as u16)).filter(|phase| phase.length_us > 0)
}

fn idle_and_busy(sequence: &Sequence<'_>) -> String {
    let mut table = Table::plain(&["", "replies", "mean", "hits", "misses", "DHR", "errors", "CPU of the cache"]);
    for entry in &sequence.entries {
        let Some(load) = entry.stage(Stage::Load) else { continue };
        for (name, meaning) in STATES {
            let Some(phase) = state(load, name) else { continue };
            let seconds = phase.length_us as f64 / 1e6;
            let mean = |class: Class| cell(phase.class(class).response.mean(), Unit::Micros);
            let basic = phase.class(Class::Basic);
            let number = load.ledger.run.phases.iter().position(|plan| plan.name == name);
            let of_phase = |interval: &&Interval| Some(usize::from(interval.phase)) == number;
            let cores = load.ledger.intervals.iter().filter(of_phase).filter_map(|interval| {
                let used = interval.load.as_ref().filter(|load| load.cache_threads > 0)?;
                Some(f64::from(used.cache_cpu) * interval.length_us as f64)
            });
            let cores: f64 = cores.sum::<f64>() / phase.length_us as f64;
            table.row(&[
                format!("{}, {}", escaped(entry.label), escaped(meaning)),
                cell(Some(phase.replies() as f64 / seconds), Unit::PerSecond),
                mean(Class::All),
                mean(Class::Hit),
                mean(Class::Miss),
                cell(Some(basic.hits as f64 / basic.replies as f64), Unit::Share),
                grouped(phase.errors.total() as f64),
                cell(Some(cores), Unit::Cores),
            ]);
        }
    }
    table.html()
        + "<p class=\"sub\">A cache that is slower when idle than when busy waits for batches; one whose second plateau is slower \
           than its first gets slower as its store ages.</p>"
}

fn downtime(sequence: &Sequence<'_>) -> String {
    let mut table = by_entry(sequence);
    for (name, key) in [
        ("first connection", "downtime.accept"),
        ("first miss", "downtime.miss"),
        ("first hit on what was stored before", "downtime.hit"),
        ("objects kept", "downtime.kept"),
        ("kept of those of the last 5 s", "downtime.late"),
        ("answers with wrong bytes", "downtime.wrong"),
    ] {
        row(&mut table, sequence, name, |entry| metric(entry, Stage::Kill, key));
    }
    let found = |entry: &Entry<'_>| entry.stage(Stage::Kill).and_then(|kill| kill.ledger.downtimes.first().cloned());
    row(&mut table, sequence, "objects asked for, to tell what is kept", |entry| {
        found(entry).map_or("–".to_owned(), |found| grouped(found.probed as f64))
    });
    row(&mut table, sequence, "times after the start are exact to", |entry| {
        let seen = found(entry).filter(|found| found.first_accept_us.is_some() && found.resolution_us > 0);
        cell(seen.map(|found| found.resolution_us as f64), Unit::Micros)
    });
    row(&mut table, sequence, "stopped by", |entry| {
        found(entry).map_or("–".to_owned(), |found| format!("<span class=\"narrow\">{}</span>", escaped(&found.cut)))
    });
    table.html()
        + "<p class=\"sub\">Times count from the command that starts the cache again. A kill loses what processes had in memory, \
           nothing that the system had taken: for a loss of power see cacheoff power-cut. In 2000 the machine itself was \
           switched off, and its boot was part of the time.</p>"
}

fn time_wait(sequence: &Sequence<'_>) -> String {
    let mut table = Table::plain(&["", "how long the cache's side remembers a connection that it closed"]);
    for entry in &sequence.entries {
        let Some(found) = entry.stage(Stage::TimeWait) else { continue };
        for note in &found.ledger.notes {
            table.row(&[escaped(entry.label), escaped(&note.text)]);
        }
    }
    table.html().replace("<table>", "<table class=\"text\">")
}

fn configurations(sequence: &Sequence<'_>) -> String {
    let mut out = String::new();
    for entry in &sequence.entries {
        let Some(any) = entry.any() else { continue };
        let _ = write!(out, "<h3>{}</h3>", escaped(entry.label));
        let known = any.ledger.run.target.entry.as_ref();
        match known.map(|known| known.comments.trim()).filter(|comments| !comments.is_empty()) {
            Some(comments) => {
                let paragraph = |text: &str| format!("<p>{}</p>", escaped(text));
                let _ = write!(
                    out,
                    "<h4>Comments of the maker</h4>{}",
                    comments.lines().map(paragraph).collect::<String>()
                );
            }
            None => out.push_str("<p class=\"sub\">Its maker has not commented (comments.txt beside the entry).</p>"),
        }
        let lived = |(stage, summary): &(Stage, Summary<'_>)| {
            let first = summary.ledger.notes.first().filter(|_| *stage != Stage::TimeWait)?;
            Some(format!("<li>{}: {}</li>", stage_name(*stage), escaped(&first.text)))
        };
        let lives: String = entry.stages.iter().filter_map(lived).collect();
        let _ = write!(out, "<ul>{lives}</ul>");
        for (stage, summary) in &entry.stages {
            if let Outcome::Failed(reason) = &summary.ledger.end.outcome {
                let _ = write!(out, "<p>{} failed: {}</p>", stage_name(*stage), escaped(reason));
            }
        }
        if let Some(known) = known {
            out.push_str(&folded("Commands and files", &sections::configuration(known)));
        }
    }
    out
}
