//! "Declared, ideal, measured": what a workload says of itself beside what was seen, with the interval of confidence.

use crate::engine::Settings;
use crate::ledger::{Class, Histogram, Interval, Ledger};
use crate::object::pick;
use crate::random::Stream;
use crate::workload::Workload;
use std::fmt::Write;

/// Half the width of an interval of 99 % confidence, in standard errors.
const WIDTH: f64 = 2.576;

/// Clusters that are drawn to know their sizes.
const CLUSTERS: u32 = 10_000;

/// One row.
struct Row {
    what: String,
    declared: f64,
    measured: f64,
    /// Half the width of the interval of confidence.
    around: f64,
    unit: &'static str,
}

/// The table of a run, over its logged phases. Requests that pages bring are counted in clusters, pages with what they
/// embed, so that the intervals of shares are wider than those of independent draws.
pub fn table(ledger: &Ledger, workload: &Workload, settings: &Settings) -> String {
    let mut whole = Interval::default();
    let mut robot_seconds = 0.0;
    for interval in &ledger.intervals {
        let logged = ledger.run.phases.get(usize::from(interval.phase)).is_none_or(|phase| phase.logged);
        if logged {
            robot_seconds +=
                interval.levels.robots as f64 * f64::from(interval.levels.load) * interval.length_us as f64 / 1e6;
            whole.extend(interval);
        }
    }
    let rows = rows(&whole, workload, settings, robot_seconds);
    let mut text = String::from("| what | declared | measured | ± (99 %) | within |\n|---|---|---|---|---|\n");
    for row in rows {
        let within = if (row.measured - row.declared).abs() <= row.around { "yes" } else { "NO" };
        let Row { what, declared, measured, around, unit } = row;
        let _ = writeln!(text, "| {what} | {declared:.2} {unit} | {measured:.2} {unit} | {around:.2} | {within} |");
    }
    text
}

fn rows(whole: &Interval, workload: &Workload, settings: &Settings, robot_seconds: f64) -> Vec<Row> {
    let (all, basic) = (whole.class(Class::All), whole.class(Class::Basic));
    let replies = all.replies.max(1) as f64;
    let cluster = design_effect(workload, settings);
    let share = |what: String, declared: f64, part: u64, of: f64, cluster: f64| Row {
        what,
        declared: 100.0 * declared,
        measured: 100.0 * part as f64 / of,
        around: 100.0 * WIDTH * (declared * (1.0 - declared) * cluster / of).sqrt(),
        unit: "%",
    };
    let mut rows = Vec::new();
    let shares = workload.real_shares();
    for (number, (content, declared)) in workload.contents.iter().zip(&shares).enumerate() {
        let seen = whole.class(Class::Content(number as u8)).replies;
        rows.push(share(format!("share of {}", content.name), *declared, seen, replies, cluster));
    }
    let declared =
        workload.contents.iter().zip(&shares).map(|(content, share)| content.size_mean() * share).sum::<f64>();
    rows.push(mean("mean size".into(), declared / 1024.0, &all.size, 1.0 / 1024.0, "KB", cluster));
    let cachable = workload.contents.iter().zip(&shares).map(|(content, share)| content.cachable * share).sum::<f64>();
    rows.push(share(
        "cachable".into(),
        cachable,
        whole.class(Class::Cachable).replies,
        basic.replies.max(1) as f64,
        cluster,
    ));
    let offered = settings.robots.recurrence * cachable;
    rows.push(share("offered DHR".into(), offered, basic.offered, basic.replies.max(1) as f64, cluster));
    if settings.origins.think.is_some() {
        let think = &whole.origin.think;
        rows.push(mean("mean think time".into(), workload.servers.think.mean(), think, 1e-6, "s", 1.0));
    }
    if let Some(rate) = workload.robots.pace.rate_per_s() {
        let measured = whole.due as f64 / robot_seconds.max(1e-9);
        let around = WIDTH * (rate / robot_seconds.max(1e-9)).sqrt();
        rows.push(Row { what: "rate of a robot".into(), declared: rate, measured, around, unit: "/s" });
    }
    rows
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

fn mean(what: String, declared: f64, seen: &Histogram, factor: f64, unit: &'static str, cluster: f64) -> Row {
    let (measured, deviation) = (seen.mean().unwrap_or(0.0) * factor, seen.deviation().unwrap_or(0.0) * factor);
    let around = WIDTH * deviation * (cluster / seen.count().max(1) as f64).sqrt();
    Row { what, declared, measured, around, unit }
}
