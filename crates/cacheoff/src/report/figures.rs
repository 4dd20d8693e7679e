//! The figures of a report: one run in detail, or several entries over each other.

use super::compare::Comparison;
use super::metric::{Better, Metric};
use super::summary::Summary;
use crate::chart::{Axis, Band, Bar, Bars, Chart, Scale, Shape, Tone, Unit};
use crate::ledger::{Class, Histogram, Interval, Ledger, Load, Side};

/// A value of an interval.
type Of = fn(&Interval) -> f64;
/// Whether a class is of a sort.
type Belongs = fn(&Class) -> bool;

/// Figures of one run, grouped by a heading.
pub(super) fn of_run(summary: &Summary<'_>) -> Vec<(&'static str, Vec<Chart>)> {
    let ledger = summary.ledger;
    let groups = vec![
        ("Over time", vec![load(ledger), responses(ledger), ratios(ledger), against_rate(ledger), errors(ledger)]),
        ("Response times of the reported phase", percentiles_of(&summary.phase)),
        (
            "Connections, requests, robots",
            vec![connections(ledger), transactions(ledger), population(ledger), origin(ledger)],
        ),
        ("Machine", vec![processors(ledger), memory(ledger), lateness(&summary.phase)]),
        ("By class", by_class(summary)),
    ];
    let shown = groups.into_iter().map(|(name, charts)| (name, kept(charts)));
    shown.filter(|(_, charts)| !charts.is_empty()).collect()
}

/// Figures that lay the typical rounds of all entries over each other.
pub(super) fn of_entries(comparison: &Comparison<'_>) -> Vec<Chart> {
    let typical: Vec<(usize, &Summary<'_>)> =
        comparison.entries.iter().enumerate().filter_map(|(place, entry)| Some((place, entry.typical()?))).collect();
    let over = |chart: Chart, points: &dyn Fn(&Summary<'_>) -> Vec<(f64, f64)>| {
        typical.iter().fold(chart, |chart, (place, run)| {
            let (entry, label) = (&comparison.entries[*place], &run.ledger.run.label);
            // A line that does not count must not look as if it did.
            let name = match entry.counts() {
                true => label.clone(),
                false => format!("{label} ({})", entry.worst()),
            };
            chart.with(&name, Shape::Line, Tone::Nth(*place), points(run))
        })
    };
    let by_percentile = |title: &str, class: Class| {
        over(percentile_axes(title), &|run| percentile_curve(&run.phase.class(class).response))
    };
    let by_time = |title: &str, label: &str, unit: Unit, of: Of| {
        over(Chart::new(title, time_axis(), Axis::new(label, unit)), &|run| trace(run.ledger, of))
    };
    kept(vec![
        by_percentile("Response time by percentile, all", Class::All),
        by_percentile("Response time by percentile, hits", Class::Hit),
        by_percentile("Response time by percentile, misses", Class::Miss),
        by_time("Replies over time", "replies/s", Unit::PerSecond, rate),
        by_time("Mean response time over time", "response time", Unit::Micros, mean(Class::All)),
        by_time("Hit ratio over time", "document hit ratio", Unit::Share, dhr),
        by_time("Memory over time", "memory of the cache", Unit::Bytes, |i| of_cache(i, |l| l.cache_memory as f64)),
    ])
}

/// Bars of one metric over the entries; nothing if fewer than two have it.
pub(super) fn bars(comparison: &Comparison<'_>, metric: &Metric) -> Option<Bars> {
    let bars: Vec<Bar> = comparison
        .entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.counts())
        .filter_map(|(place, entry)| {
            let spread = entry.spread(metric)?;
            let tone = Tone::Nth(place);
            Some(Bar { name: entry.label.clone(), tone, value: spread.median, spread: Some((spread.low, spread.high)) })
        })
        .collect();
    let direction = match metric.better {
        Better::More => "more is better",
        Better::Less => "less is better",
        Better::Neither => "neither end is better",
    };
    let title = format!("{}: {}", metric.group.as_str(), metric.name);
    (bars.len() > 1).then(|| Bars { title, remark: direction.to_owned(), unit: metric.unit, bars })
}

fn kept(charts: Vec<Chart>) -> Vec<Chart> {
    charts.into_iter().filter(|chart| !chart.is_empty()).collect()
}

fn time_axis() -> Axis {
    Axis::new("time since the start", Unit::Elapsed)
}

/// Phases that were measured, as stretches of time.
fn bands(ledger: &Ledger) -> Vec<Band> {
    let starts = ledger.phases.iter();
    let ends = ledger.phases.iter().skip(1).map(|phase| phase.at_us).chain([last_us(ledger)]);
    starts
        .zip(ends)
        .filter_map(|(start, end)| {
            let plan = ledger.run.phases.get(usize::from(start.phase))?;
            Some(Band { name: plan.name.clone(), from: start.at_us as f64 / 1e6, to: end as f64 / 1e6 })
        })
        .collect()
}

fn last_us(ledger: &Ledger) -> u64 {
    ledger.intervals.last().map_or(0, |interval| interval.at_us + interval.length_us)
}

fn over_time(ledger: &Ledger, title: &str, label: &str, unit: Unit) -> Chart {
    Chart::new(title, time_axis(), Axis::new(label, unit)).banded(&bands(ledger))
}

/// A value of each interval, at its middle.
fn trace(ledger: &Ledger, of: Of) -> Vec<(f64, f64)> {
    let middle = |interval: &Interval| (interval.at_us as f64 + interval.length_us as f64 / 2.0) / 1e6;
    ledger.intervals.iter().map(|interval| (middle(interval), of(interval))).collect()
}

/// A trace that is left out where it is zero throughout.
fn some_trace(ledger: &Ledger, of: Of) -> Vec<(f64, f64)> {
    let points = trace(ledger, of);
    if points.iter().any(|(_, y)| *y > 0.0) { points } else { Vec::new() }
}

fn per_second(interval: &Interval, count: u64) -> f64 {
    if interval.length_us == 0 { f64::NAN } else { count as f64 * 1e6 / interval.length_us as f64 }
}

fn rate(interval: &Interval) -> f64 {
    per_second(interval, interval.replies())
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { f64::NAN } else { part as f64 / whole as f64 }
}

fn dhr(interval: &Interval) -> f64 {
    let basic = interval.class(Class::Basic);
    share(basic.hits, basic.replies)
}

fn mean(class: Class) -> Of {
    match class {
        Class::Hit => |interval| interval.class(Class::Hit).response.mean().unwrap_or(f64::NAN),
        Class::Miss => |interval| interval.class(Class::Miss).response.mean().unwrap_or(f64::NAN),
        _ => |interval| interval.class(Class::All).response.mean().unwrap_or(f64::NAN),
    }
}

fn of_load(interval: &Interval, of: impl Fn(&Load) -> f64) -> f64 {
    interval.load.as_ref().map_or(f64::NAN, of)
}

fn of_cache(interval: &Interval, of: impl Fn(&Load) -> f64) -> f64 {
    interval.load.as_ref().filter(|load| load.cache_threads > 0).map_or(f64::NAN, of)
}

fn of_side(interval: &Interval, side: Side, of: fn(&crate::ledger::Connections) -> u64) -> u64 {
    interval.connections.get(&side).map_or(0, of)
}

fn load(ledger: &Ledger) -> Chart {
    over_time(ledger, "Load", "per second", Unit::PerSecond)
        .with("due", Shape::Step, Tone::Ideal, some_trace(ledger, |i| per_second(i, i.due)))
        .with("replies", Shape::Line, Tone::Ink, trace(ledger, rate))
        .with("hits", Shape::Line, Tone::HIT, some_trace(ledger, |i| per_second(i, i.class(Class::Hit).replies)))
        .with("misses", Shape::Line, Tone::MISS, some_trace(ledger, |i| per_second(i, i.class(Class::Miss).replies)))
}

fn responses(ledger: &Ledger) -> Chart {
    let mut chart = over_time(ledger, "Mean response time", "from the intended start", Unit::Micros)
        .with("all", Shape::Line, Tone::Ink, trace(ledger, mean(Class::All)))
        .with("hits", Shape::Line, Tone::HIT, trace(ledger, mean(Class::Hit)))
        .with("misses", Shape::Line, Tone::MISS, trace(ledger, mean(Class::Miss)));
    chart.y.scale = Scale::Log;
    chart
}

fn ratios(ledger: &Ledger) -> Chart {
    let bhr: Of = |i| share(i.class(Class::Basic).hit_bytes, i.class(Class::Basic).bytes);
    let offered: Of = |i| share(i.class(Class::Basic).offered, i.class(Class::Basic).replies);
    let mut chart = over_time(ledger, "Hit ratios", "share of basic replies", Unit::Share)
        .with("offered DHR", Shape::Line, Tone::Ideal, trace(ledger, offered))
        .with("DHR", Shape::Line, Tone::HIT, trace(ledger, dhr))
        .with("BHR", Shape::Line, Tone::Nth(2), trace(ledger, bhr));
    chart.y.high = Some(1.0);
    chart
}

fn errors(ledger: &Ledger) -> Chart {
    over_time(ledger, "Errors", "per second", Unit::PerSecond)
        .with("all", Shape::Line, Tone::MISS, some_trace(ledger, |i| per_second(i, i.errors.total())))
        .with("wrong answers", Shape::Line, Tone::Nth(3), some_trace(ledger, |i| per_second(i, i.errors.lies())))
}

fn percentile_axes(title: &str) -> Chart {
    Chart::new(
        title,
        Axis::new("percentile", Unit::Share).scaled(Scale::Nines),
        Axis::new("response time", Unit::Micros).scaled(Scale::Log),
    )
}

/// Response times at evenly spaced nines, as far as there are replies for them.
fn percentile_curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let nines = (histogram.count() as f64).log10().min(5.0);
    let parts = (0..=100).map(|step| 1.0 - 10_f64.powf(-nines * f64::from(step) / 100.0));
    parts.filter_map(|part| Some((part, histogram.quantile(part)?.max(1) as f64))).collect()
}

fn percentiles_of(phase: &Interval) -> Vec<Chart> {
    let classes =
        [("all", Class::All, Tone::Ink), ("hits", Class::Hit, Tone::HIT), ("misses", Class::Miss, Tone::MISS)];
    let over = |chart: Chart, points: fn(&Histogram) -> Vec<(f64, f64)>, shape| {
        classes.iter().fold(chart, |chart, (name, class, tone)| {
            chart.with(name, shape, *tone, points(&phase.class(*class).response))
        })
    };
    let curve = over(percentile_axes("By percentile"), percentile_curve, Shape::Line).with(
        "all, from the first byte sent",
        Shape::Line,
        Tone::Ideal,
        percentile_curve(&phase.service.all),
    );
    vec![
        curve,
        over(cumulative_axes("Cumulative", "response time", Unit::Micros), cumulative, Shape::Step),
        density(phase.class(Class::Hit), phase.class(Class::Miss)),
        waiting(phase),
    ]
}

fn cumulative_axes(title: &str, label: &str, unit: Unit) -> Chart {
    let shares = Axis::new("share of replies", Unit::Share).up_to(1.0);
    Chart::new(title, Axis::new(label, unit).scaled(Scale::Log), shares)
}

/// Share of the values up to each tenth of a decade.
fn cumulative(histogram: &Histogram) -> Vec<(f64, f64)> {
    let total = histogram.count().max(1) as f64;
    decades(histogram)
        .into_iter()
        .scan(0.0, |sum, (_, to, count)| {
            *sum += count;
            Some((to, *sum / total))
        })
        .collect()
}

/// Counts by tenths of a decade: from, to, count.
fn decades(histogram: &Histogram) -> Vec<(f64, f64, f64)> {
    let tenth = |value: f64| (value.max(1.0).log10() * 10.0).floor() as i32;
    let (Some(low), Some(high)) = (histogram.min(), histogram.max()) else { return Vec::new() };
    let (first, last) = (tenth(low as f64), tenth(high as f64));
    let mut counts = vec![0.0; (last - first + 1) as usize];
    for (from, to, count) in histogram.buckets() {
        let place = (tenth((from + to) as f64 / 2.0) - first).clamp(0, last - first);
        counts[place as usize] += count as f64;
    }
    let edge = |tenths: i32| 10_f64.powf(f64::from(tenths) / 10.0);
    counts.into_iter().zip(first..).map(|(count, place)| (edge(place), edge(place + 1), count)).collect()
}

fn density(hit: &crate::ledger::Figures, miss: &crate::ledger::Figures) -> Chart {
    let total = (hit.replies + miss.replies).max(1) as f64;
    let bars = |histogram: &Histogram| -> Vec<(f64, f64)> {
        let tenths = decades(histogram);
        let end = tenths.last().map(|(_, to, _)| (*to, 0.0));
        tenths.into_iter().map(|(from, _, count)| (from, count / total)).chain(end).collect()
    };
    Chart::new(
        "Distribution",
        Axis::new("response time, tenths of a decade", Unit::Micros).scaled(Scale::Log),
        Axis::new("share of basic replies", Unit::Share),
    )
    .with("hits", Shape::Histogram, Tone::HIT, bars(&hit.response))
    .with("misses", Shape::Histogram, Tone::MISS, bars(&miss.response))
}

/// Only where requests did wait.
fn waiting(phase: &Interval) -> Chart {
    const NOTABLE_US: u64 = 1_000;
    let waited = phase.wait.max().unwrap_or(0) > NOTABLE_US;
    let points = if waited { cumulative(&phase.wait) } else { Vec::new() };
    cumulative_axes("Waiting for a connection, cumulative", "wait", Unit::Micros).with(
        "wait",
        Shape::Step,
        Tone::Nth(4),
        points,
    )
}

/// Each interval as a point; only where the rate changed enough for a picture.
fn against_rate(ledger: &Ledger) -> Chart {
    let points = |class: Class| -> Vec<(f64, f64)> {
        let of = mean(class);
        ledger.intervals.iter().map(|interval| (rate(interval), of(interval))).collect()
    };
    let rates = ledger.intervals.iter().map(rate).filter(|rate| *rate > 0.0);
    let (low, high) = rates.fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
    let chart = Chart::new(
        "Response time against rate",
        Axis::new("replies per second", Unit::PerSecond),
        Axis::new("mean response time of an interval", Unit::Micros).scaled(Scale::Log),
    );
    if high < low * 1.5 {
        return chart;
    }
    chart.with("misses", Shape::Points, Tone::MISS, points(Class::Miss)).with(
        "hits",
        Shape::Points,
        Tone::HIT,
        points(Class::Hit),
    )
}

fn connections(ledger: &Ledger) -> Chart {
    over_time(ledger, "Open connections", "at the end of each interval", Unit::Count)
        .with(
            "client side",
            Shape::Line,
            Tone::Nth(0),
            some_trace(ledger, |i| of_side(i, Side::Client, |c| c.open) as f64),
        )
        .with(
            "server side",
            Shape::Line,
            Tone::Nth(1),
            some_trace(ledger, |i| of_side(i, Side::Server, |c| c.open) as f64),
        )
        .with(
            "idle, client side",
            Shape::Line,
            Tone::Nth(2),
            some_trace(ledger, |i| of_side(i, Side::Client, |c| c.idle) as f64),
        )
}

fn transactions(ledger: &Ledger) -> Chart {
    over_time(ledger, "Requests under way", "at the end of each interval", Unit::Count)
        .with("under way", Shape::Line, Tone::Ink, some_trace(ledger, |i| i.levels.under_way as f64))
        .with("waiting for a connection", Shape::Line, Tone::MISS, some_trace(ledger, |i| i.levels.waiting as f64))
}

fn population(ledger: &Ledger) -> Chart {
    over_time(ledger, "Population", "alive", Unit::Count).with(
        "robots",
        Shape::Line,
        Tone::Nth(0),
        some_trace(ledger, |i| i.levels.robots as f64),
    )
}

fn origin(ledger: &Ledger) -> Chart {
    let opened: Of = |i| per_second(i, of_side(i, Side::Server, |c| c.opened));
    over_time(ledger, "Requests at the origins", "per second", Unit::PerSecond)
        .with("requests", Shape::Line, Tone::MISS, some_trace(ledger, |i| per_second(i, i.origin.requests)))
        .with("answered 304", Shape::Line, Tone::Nth(2), some_trace(ledger, |i| per_second(i, i.origin.not_modified)))
        .with("connections opened", Shape::Line, Tone::Nth(3), some_trace(ledger, opened))
}

fn processors(ledger: &Ledger) -> Chart {
    over_time(ledger, "Processor", "cores", Unit::Cores)
        .with("cache", Shape::Line, Tone::Nth(0), some_trace(ledger, |i| of_cache(i, |l| f64::from(l.cache_cpu))))
        .with("referee", Shape::Line, Tone::Ink, some_trace(ledger, |i| of_load(i, |l| f64::from(l.own_cpu))))
        .with(
            "other processes",
            Shape::Line,
            Tone::Nth(4),
            some_trace(ledger, |i| of_load(i, |l| f64::from(l.others_cpu))),
        )
        .with("stolen", Shape::Line, Tone::MISS, some_trace(ledger, |i| of_load(i, |l| f64::from(l.steal))))
}

fn memory(ledger: &Ledger) -> Chart {
    over_time(ledger, "Memory", "of all processes", Unit::Bytes)
        .with("cache", Shape::Area, Tone::Nth(0), some_trace(ledger, |i| of_cache(i, |l| l.cache_memory as f64)))
        .with("referee", Shape::Line, Tone::Ink, some_trace(ledger, |i| of_load(i, |l| l.own_memory as f64)))
}

fn lateness(phase: &Interval) -> Chart {
    cumulative_axes("Lateness of the referee, cumulative", "from the intended to the real start", Unit::Micros).with(
        "lateness",
        Shape::Step,
        Tone::Ink,
        cumulative(&phase.lateness),
    )
}

/// Response times and sizes by content type, by kind and by status; a chart needs two classes to say something.
fn by_class(summary: &Summary<'_>) -> Vec<Chart> {
    const SHOWN_MAX: usize = 8;
    let contents: Belongs = |class| matches!(class, Class::Content(_));
    let statuses: Belongs = |class| matches!(class, Class::Status(_));
    let kinds: Belongs = |class| *class >= Class::Cachable && *class <= Class::Aborted;
    let groups: [(&str, Belongs); 3] = [("content type", contents), ("kind of request", kinds), ("status", statuses)];
    let mut charts = Vec::new();
    for (name, belongs) in groups {
        let classes: Vec<Class> =
            summary.phase.classes.keys().filter(|class| belongs(class)).copied().take(SHOWN_MAX).collect();
        if classes.len() < 2 {
            continue;
        }
        let over = |chart: Chart, of: fn(&crate::ledger::Figures) -> &Histogram| {
            classes.iter().enumerate().fold(chart, |chart, (place, class)| {
                let points = cumulative(of(summary.phase.class(*class)));
                chart.with(&class_name(summary.ledger, *class), Shape::Step, Tone::Nth(place), points)
            })
        };
        let times = cumulative_axes(&format!("Response time by {name}"), "response time", Unit::Micros);
        let sizes = cumulative_axes(&format!("Size by {name}"), "size of the body", Unit::Bytes);
        charts.extend([over(times, |figures| &figures.response), over(sizes, |figures| &figures.size)]);
    }
    charts
}

/// The name of a class, content types by theirs.
pub(super) fn class_name(ledger: &Ledger, class: Class) -> String {
    match class {
        Class::Content(number) => {
            ledger.run.contents.get(usize::from(number)).cloned().unwrap_or_else(|| format!("content {number}"))
        }
        Class::Status(status) => status.to_string(),
        named => named.to_string(),
    }
}
