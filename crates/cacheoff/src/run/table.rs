//! "Declared, ideal, measured": what a workload says of itself beside what was seen, with the interval of confidence.

use crate::distribution::Distribution;
use crate::engine::Settings;
use crate::ledger::{Class, Histogram, Interval, Kind, Ledger, Levels};
use crate::object::{Lifetime, pick};
use crate::random::Stream;
use crate::robot::Special;
use crate::workload::{Content, Mix, Workload};
use std::fmt::Write;

/// Half the width of an interval of 99 % confidence, in standard errors.
const WIDTH: f64 = 2.576;

/// Longer than any run.
pub(super) const DAY_S: u64 = 86_400;
/// Clusters that are drawn to know their sizes.
const CLUSTERS: u32 = 10_000;

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The quantity.
    pub what: String,
    /// The declared value of the workload.
    pub declared: f64,
    /// The value that follows from it: pages bring what they embed.
    pub ideal: f64,
    /// The measured value.
    pub measured: f64,
    /// Half the width of the interval of confidence.
    pub around: f64,
    /// The unit of all four.
    pub unit: &'static str,
}

impl Row {
    /// Whether what was seen lies in the interval of confidence around the ideal.
    pub fn holds(&self) -> bool {
        (self.measured - self.ideal).abs() <= self.around
    }
}

/// The table of a run, over its logged phases; empty if nothing is declared.
pub fn table(ledger: &Ledger, workload: &Workload, settings: &Settings) -> String {
    let mut text =
        String::from("| what | declared | ideal | measured | ± (99 %) | within |\n|---|---|---|---|---|---|\n");
    let rows = rows(ledger, workload, settings);
    if rows.is_empty() {
        return String::new();
    }
    for row in rows {
        let within = if row.holds() { "yes" } else { "NO" };
        let Row { what, declared, ideal, measured, around, unit } = row;
        let _ = writeln!(
            text,
            "| {what} | {declared:.2} {unit} | {ideal:.2} {unit} | {measured:.2} {unit} | {around:.2} | {within} |"
        );
    }
    text
}

/// All logged phases as one, and the seconds of robots at full rate in them.
pub fn logged(ledger: &Ledger) -> (Interval, f64) {
    let mut whole = Interval::default();
    let mut robot_seconds = 0.0;
    let mut before = None;
    for interval in &ledger.intervals {
        let logged = ledger.run.phases.get(usize::from(interval.phase)).is_none_or(|phase| phase.logged);
        if logged {
            robot_seconds +=
                interval.levels.robots as f64 * f64::from(interval.levels.load) * interval.length_us as f64 / 1e6;
        }
        // A phase as a whole may be more exact than its intervals.
        if logged && before.replace(interval.phase) != Some(interval.phase) {
            whole.extend(&ledger.phase(interval.phase));
        }
    }
    (whole, robot_seconds)
}

/// The mean of a factor of the schedule in the logged phases, by their replies of a class.
fn factor(ledger: &Ledger, class: Class, of: impl Fn(&Levels) -> f32) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for interval in &ledger.intervals {
        let logged = ledger.run.phases.get(usize::from(interval.phase)).is_none_or(|phase| phase.logged);
        let replies = if logged { interval.class(class).replies as f64 } else { 0.0 };
        (sum, weight) = (sum + replies * f64::from(of(&interval.levels)), weight + replies);
    }
    if weight > 0.0 { sum / weight } else { 1.0 }
}

/// How much less requests say of objects than as many different ones would, by the same measure: the share `again` of them
/// repeats one that is there already, and an object that has been there for long was repeated often.
fn repeats(again: f64) -> f64 {
    1.0 + 2.0 * again / (1.0 - again).max(0.01)
}

/// Whether what is asked for is as large as the objects that there are: neither popular ones of a fixed set, nor small ones
/// by choice, nor parts.
fn is_plain(settings: &Settings) -> bool {
    let robots = &settings.robots;
    let parts = robots.kinds.iter().any(|(kind, _)| *kind == Special::Part);
    let whole = !parts && robots.ranges.parallel == Distribution::Constant(1.0);
    whole && settings.preset.is_none() && robots.discrimination == 0.0
}

/// Whether what was asked for once is a hit ever after, so that a product of shares says how many hits are offered. Where
/// lifetimes or variants decide it, the plan draws a sample, and reports show both.
fn is_lasting(workload: &Workload) -> bool {
    workload.contents.iter().all(|content| {
        let lasts = Lifetime::of(&content.cache_control).is_none_or(|lifetime| lifetime.fresh_s >= DAY_S);
        lasts && (content.variants == 1 || workload.requests.accept_gzip == 0.0)
    })
}

/// The rows of a run. Requests that pages bring are counted in clusters, pages with what they embed, so that the
/// intervals of shares are wider than those of independent draws. These are formulas, good to a third or so; a proof
/// rehearses instead (decision 019).
pub fn rows(ledger: &Ledger, workload: &Workload, settings: &Settings) -> Vec<Row> {
    // A log says nothing of itself beforehand.
    if !settings.log.is_empty() {
        return Vec::new();
    }
    let (whole, robot_seconds) = logged(ledger);
    let basic = whole.class(Class::Basic);
    let cluster = design_effect(workload, settings);
    let contents = &workload.contents;
    let declared: Vec<f64> = contents.iter().map(|content| content.share).collect();
    let special = factor(ledger, Class::All, |levels| levels.special);
    let mix = workload.mix(special);
    let weighed = |of: fn(&Content) -> f64| {
        let sum = |shares: &[f64]| contents.iter().zip(shares).map(|(content, share)| of(content) * share).sum::<f64>();
        (sum(&declared), sum(&mix.basic))
    };
    let mut rows = of_requests(workload, &mix, special, &whole, cluster);
    if workload.interest.public < 1.0 && settings.preset.is_none() {
        let private = 1.0 - workload.interest.public;
        let seen = (whole.fresh_private, whole.fresh_urls);
        rows.push(share("private, of what is new", (private, private), seen, cluster));
    }
    let again = workload.interest.recurrence;
    let cluster = cluster * repeats(again);
    if is_plain(settings) {
        let (planned, likely) = weighed(Content::size_mean);
        rows.push(mean("mean size", (planned / 1024.0, likely / 1024.0), &basic.size, 1.0 / 1024.0, "KB", cluster));
    }
    if settings.preset.is_none() && basic.replies > 0 {
        let cachable = (whole.class(Class::Cachable).replies, basic.replies);
        rows.push(share("cachable", weighed(|content| content.cachable), cachable, cluster));
    }
    if settings.preset.is_none() && basic.replies > 0 && is_lasting(workload) {
        let again = again * factor(ledger, Class::Basic, |levels| levels.recurrence);
        let (planned, likely) = weighed(Content::offerable);
        let of_anybody = again * (1.0 - workload.requests.logged_in);
        let offered = (of_anybody * planned, of_anybody * likely);
        rows.push(share("offered DHR", offered, (basic.offered, basic.replies), cluster));
    }
    if settings.origins.think.is_some() {
        let think = workload.servers.think.mean();
        rows.push(mean("mean think time", (think, think), &whole.origin.think, 1e-6, "s", 1.0));
    }
    if let Some(rate) = workload.robots.pace.rate_per_s() {
        let measured = whole.due as f64 / robot_seconds.max(1e-9);
        let around = WIDTH * (rate / robot_seconds.max(1e-9)).sqrt();
        rows.push(Row { what: "rate of a robot".into(), declared: rate, ideal: rate, measured, around, unit: "/s" });
    }
    rows
}

/// A row of a share: what is declared and what follows, and how many of how many were seen.
fn share(what: &str, (declared, ideal): (f64, f64), (part, of): (u64, u64), cluster: f64) -> Row {
    let of = of.max(1) as f64;
    Row {
        what: what.to_owned(),
        declared: 100.0 * declared,
        ideal: 100.0 * ideal,
        measured: 100.0 * part as f64 / of,
        around: 100.0 * WIDTH * (ideal * (1.0 - ideal) * cluster / of).sqrt(),
        unit: "%",
    }
}

/// Shares of all replies: content types, kinds of request.
fn of_requests(workload: &Workload, mix: &Mix, special: f64, whole: &Interval, cluster: f64) -> Vec<Row> {
    let replies = whole.replies();
    let mut rows = Vec::new();
    for (number, content) in workload.contents.iter().enumerate() {
        let seen = whole.class(Class::Content(number as u8)).replies;
        let shares = (content.share, mix.contents[number]);
        rows.push(share(&format!("share of {}", content.name), shares, (seen, replies), cluster));
    }
    for (what, class, kind, declared) in kinds(workload) {
        let shares = (declared * special, mix.of(kind));
        rows.push(share(what, shares, (whole.class(class).replies, replies), cluster));
    }
    let abort = workload.robots.abort;
    if abort > 0.0 {
        let shares = (abort, abort * (1.0 - mix.bodiless));
        rows.push(share("broken off by robots", shares, (whole.class(Class::Aborted).replies, replies), 1.0));
    }
    rows
}

/// The kinds of request besides basic ones that a workload has: what a row calls them, and their declared share. Parts that
/// divide an object are as many as it is large, so they are left out.
fn kinds(workload: &Workload) -> Vec<(&'static str, Class, Kind, f64)> {
    let requests = &workload.requests;
    let validations = requests.ims_200 + requests.ims_304 + requests.if_none_match;
    let all = [
        ("validations", Class::Validation, Kind::Validation, validations),
        ("reloads", Class::Reload, Kind::Reload, requests.reload),
        ("parts", Class::Range, Kind::Range, requests.range),
        ("POST and PUT", Class::Upload, Kind::Upload, requests.post + requests.put),
        ("HEAD", Class::Head, Kind::Head, requests.head),
    ];
    let divides = requests.parallel_ranges != Distribution::Constant(1.0);
    all.into_iter().filter(|(.., share)| *share > 0.0 && !divides).collect()
}

/// How much less requests say than as many independent ones would: they come in clusters, a page with what it embeds.
/// It is the mean square of the clusters' sizes over their mean (Kish), by drawing pages.
fn design_effect(workload: &Workload, settings: &Settings) -> f64 {
    let mut stream = Stream::new(settings.law.seed, 0xC1);
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..CLUSTERS {
        let content = &workload.contents[usize::from(pick(&settings.robots.direct, &mut stream))];
        let size = 1.0 + content.embeds.as_ref().map_or(0.0, |embeds| embeds.count.draw(&mut stream));
        (sum, squares) = (sum + size, squares + size * size);
    }
    squares / sum
}

fn mean(
    what: &str,
    (declared, ideal): (f64, f64),
    seen: &Histogram,
    factor: f64,
    unit: &'static str,
    cluster: f64,
) -> Row {
    let (measured, deviation) = (seen.mean().unwrap_or(0.0) * factor, seen.deviation().unwrap_or(0.0) * factor);
    let around = WIDTH * deviation * (cluster / seen.count().max(1) as f64).sqrt();
    Row { what: what.to_owned(), declared, ideal, measured, around, unit }
}
