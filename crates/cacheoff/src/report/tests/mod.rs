//! The report of invented ledgers. `REPORT=FOLDER cargo test -p cacheoff report` writes the pages there to be looked at.

mod sample;

use super::*;
use crate::chart::grouped;
use crate::ledger::{Downtime, End, Exhibit, Interval, Ledger, MissCause, Note, Outcome, Price, Stage, Trouble};
use sample::{Invented, contest, run};

const SQUID: Invented = Invented { label: "squid", hit_us: 420.0, keeps: 0.97, cpu_us: 95.0, lies: 0 };

fn value(ledger: &Ledger, key: &str) -> Option<f64> {
    Metric::named(key).unwrap().of(&Summary::of(ledger))
}

#[test]
fn figures_are_those_of_the_named_phase() {
    let ledger = run(SQUID, 1, 40.0);
    let summary = Summary::of(&ledger);
    assert_eq!((summary.phase_name.as_str(), summary.seconds()), ("top1", 60.0));
    assert!(summary.counts(), "{:?}", summary.findings);
    let near = |key: &str, expected: f64, within: f64| {
        let found = value(&ledger, key).unwrap();
        assert!((found - expected).abs() <= within, "{key}: {found}");
    };
    near("rps", 40.0, 2.0);
    near("dhr.offered", 0.55, 0.03);
    near("dhr", 0.53, 0.03);
    near("recurrence", 0.6875, 0.03);
    near("miss.mean", 260_000.0, 10_000.0);
    near("cpu_us", 95.0, 500.0);
    assert!(value(&ledger, "p50") <= value(&ledger, "p99") && value(&ledger, "p99") <= value(&ledger, "max"));
    assert_eq!(value(&ledger, "rps_per_price"), None);
}

#[test]
fn price_and_power_divide_when_they_are_given() {
    let mut ledger = run(SQUID, 1, 40.0);
    ledger.run.price = Some(Price { amount: 4_000.0, currency: "USD".to_owned() });
    ledger.run.watts = Some(80.0);
    let rps = value(&ledger, "rps").unwrap();
    assert!((value(&ledger, "rps_per_price").unwrap() - rps / 4.0).abs() < 1e-9);
    assert!((value(&ledger, "rps_per_watt").unwrap() - rps / 80.0).abs() < 1e-9);
}

/// Energy is told where every interval has it, and its absence is said.
#[test]
fn energy_is_told_where_the_machine_shows_it() {
    let mut ledger = hammered("a", 1, 1_000.0, 0.1);
    assert_eq!((value(&ledger, "energy_j"), value(&ledger, "energy_w")), (None, None));
    assert!(page(std::slice::from_ref(&ledger)).contains("not readable on this machine"));
    for interval in &mut ledger.intervals {
        interval.load.get_or_insert_default().energy_uj = Some(30 * interval.length_us);
    }
    ledger.run.machine.energy = "package-0".to_owned();
    let near = |found: Option<f64>, wanted: f64| found.is_some_and(|found| (found / wanted - 1.0).abs() < 0.001);
    assert!(near(value(&ledger, "energy_w"), 30.0), "{:?}", value(&ledger, "energy_w"));
    let joules = 30.0 / value(&ledger, "rps").expect("a rate") * 1_000.0;
    assert!(near(value(&ledger, "energy_j"), joules), "{:?} {joules}", value(&ledger, "energy_j"));
    let told = page(std::slice::from_ref(&ledger));
    assert!(told.contains("power of the machine, W") && !told.contains("not readable on this machine"));
    // Seconds without a reading leave no total.
    for interval in ledger.intervals.iter_mut().skip(1).step_by(2) {
        interval.load.get_or_insert_default().energy_uj = None;
    }
    assert_eq!(value(&ledger, "energy_w"), None);
}

fn weights(ledger: &Ledger) -> Vec<(Weight, String)> {
    Summary::of(ledger).findings.into_iter().map(|finding| (finding.weight, finding.text)).collect()
}

#[test]
fn each_reason_against_a_run_is_found() {
    let change = |change: fn(&mut Ledger)| {
        let mut ledger = run(SQUID, 1, 40.0);
        change(&mut ledger);
        weights(&ledger)
    };
    let each = |change: fn(&mut Interval)| {
        let mut ledger = run(SQUID, 1, 40.0);
        ledger.intervals.iter_mut().for_each(change);
        weights(&ledger)
    };
    let cases = [
        (change(|l| l.end.invalid = vec!["clock jumped".to_owned()]), Weight::Invalid, "clock jumped"),
        (change(|l| l.end.outcome = Outcome::Interrupted), Weight::Remark, "stopped by hand"),
        (change(|l| l.end = End::default()), Weight::Invalid, "no end"),
        (change(|l| l.end.outcome = Outcome::Failed("died".to_owned())), Weight::Failed, "could not go on: died"),
        (change(|l| l.intervals.clear()), Weight::Invalid, "not one reply"),
        (change(|l| l.run.workload.dhr_min = Some(0.9)), Weight::Failed, "the hit ratio is"),
        (each(|i| i.due *= 2), Weight::Invalid, "rate asked for was not reached"),
        (each(|i| i.sent = 2 * i.due), Weight::Invalid, "rate asked for was exceeded"),
        (each(|i| i.sent = i.issued / 2), Weight::Invalid, "of the requests that robots wanted to send were sent"),
        (each(|i| (i.issued, i.sent) = (0, i.due / 2)), Weight::Invalid, "of the requests that were due were sent"),
        (
            each(|i| (i.issued, i.sent) = (i.due * 2, i.due * 2)),
            Weight::Invalid,
            "exceeded: robots wanted to send 200 %",
        ),
        (
            each(|i| (i.sent, i.origin.service) = (i.issued * 19 / 20, [20_000_000].into_iter().collect())),
            Weight::Remark,
            "in so short a phase",
        ),
        (each(|i| (i.issued, i.sent) = (i.due * 21 / 20, i.due * 21 / 20)), Weight::Remark, "in so short a phase"),
        (each(|i| i.lateness = [50_000; 100].into_iter().collect()), Weight::Invalid, "late by 50"),
        (each(|i| i.load.as_mut().unwrap().own_thread_cpu = 0.99), Weight::Invalid, "the referee was the limit"),
        (each(both_full), Weight::Remark, "both at their limit"),
        (each(|i| i.load.as_mut().unwrap().steal = 0.4), Weight::Invalid, "0.4 by the hypervisor"),
        (each(|i| i.load.as_mut().unwrap().others_cpu = 0.4), Weight::Invalid, "0.4 by other processes"),
        (change(|l| l.run.machine.own_cores = "0".to_owned()), Weight::Invalid, "shared core 0"),
        (change(|l| l.run.machine.own_cores.clear()), Weight::Invalid, "no core of its own"),
        (change(|l| l.run.repeats = vec!["noisy".to_owned()]), Weight::Remark, "played again"),
    ];
    for (found, weight, text) in cases {
        assert!(found.iter().any(|(w, t)| *w == weight && t.contains(text)), "{text}: {found:?}");
    }
    let lying = run(Invented { lies: 2, ..SQUID }, 1, 40.0);
    assert_eq!(weights(&lying), [(Weight::Failed, "2 answers were wrong".to_owned())]);
}

fn both_full(interval: &mut Interval) {
    let load = interval.load.as_mut().unwrap();
    (load.own_thread_cpu, load.cache_cpu) = (0.97, 0.97);
}

/// A cache may use its store for a reload (RFC 9111 section 5.2.1), unless its entry says that it does not.
#[test]
fn hits_on_reloads_are_held_against_entries_that_say_that_they_honour_them() {
    for (honours, weight) in [(false, Weight::Remark), (true, Weight::Failed)] {
        let mut ledger = run(SQUID, 1, 40.0);
        ledger.run.target.entry.as_mut().unwrap().honours_reload = honours;
        let (trouble, url, detail) = (Trouble::HitOnReload, String::new(), String::new());
        let exhibit = || Exhibit { trouble, at_us: 50_200_000, url, detail };
        let shown = ledger.run.phases.iter().position(|phase| phase.name == ledger.run.workload.report_phase);
        let interval = ledger.intervals.iter_mut().find(|i| Some(usize::from(i.phase)) == shown).unwrap();
        interval.errors.add(trouble, exhibit);
        let found = weights(&ledger);
        assert!(found.iter().any(|(_, text)| text.starts_with("1 times hit-on-reload")), "{found:?}");
        assert_eq!(found.iter().map(|(weight, _)| *weight).min(), Some(weight), "{found:?}");
    }
}

#[test]
fn rounds_give_median_spread_and_ratio() {
    let ledgers = contest();
    let comparisons = compare(&ledgers);
    assert_eq!(comparisons.len(), 1);
    assert_eq!(comparisons[0].workload, "polymix-2, peak 40/s, scale 0.002");
    let labels: Vec<&str> = comparisons[0].entries.iter().map(|entry| entry.label.as_str()).collect();
    assert_eq!(labels, ["larder", "squid", "nginx", "varnish", "trafficserver"]);
    let squid = &comparisons[0].entries[1];
    let metric = Metric::named("hit.mean").unwrap();
    let spread = squid.spread(metric).unwrap();
    assert!(spread.low <= spread.median && spread.median <= spread.high && spread.rounds == 3, "{spread:?}");
    let ratio = comparisons[0].ratio(squid, metric).unwrap();
    assert!(ratio.median > 2.0 && ratio.low <= ratio.median && ratio.median <= ratio.high, "{ratio:?}");
    assert!(!comparisons[0].entries[3].counts() && !comparisons[0].entries[4].counts());
}

#[test]
fn noisy_rounds_do_not_count() {
    let mut ledgers: Vec<Ledger> = (1..=3).map(|round| run(SQUID, round, 40.0)).collect();
    ledgers[1].intervals.iter_mut().for_each(|interval| interval.load.as_mut().unwrap().steal = 0.9);
    let rounds = |ledgers: &[Ledger]| -> Vec<u32> {
        compare(ledgers)[0].entries[0].used().iter().map(|run| run.ledger.run.round).collect()
    };
    assert_eq!(rounds(&ledgers), [1, 3]);
    assert_eq!(rounds(&ledgers[..2]), [1]);
    let summary = Summary::of(&ledgers[1]);
    assert!(!summary.counts() && summary.repeatable().is_some_and(|reason| reason.starts_with("noisy: ")));
    // A play that was invalid for good is not repeated, nor is one in which the cache failed.
    ledgers[1].run.machine.own_cores = "0".to_owned();
    assert_eq!(Summary::of(&ledgers[1]).repeatable(), None);
    let mut lies = run(Invented { lies: 2, ..SQUID }, 1, 40.0);
    assert_eq!(Summary::of(&lies).repeatable(), None);
    lies.intervals.iter_mut().for_each(|interval| interval.load.as_mut().unwrap().steal = 0.9);
    assert_eq!(Summary::of(&lies).repeatable(), None, "noise excuses no wrong answer");
}

/// A round as fast as the referee can ask, or slower.
fn hammered(label: &'static str, round: u32, rate: f64, own_thread_cpu: f32) -> Ledger {
    let mut ledger = run(Invented { label, ..SQUID }, round, 40.0);
    for interval in &mut ledger.intervals {
        interval.due = 0;
        interval.length_us = (interval.length_us as f64 / rate) as u64;
        let load = interval.load.as_mut().unwrap();
        (load.own_thread_cpu, load.cache_cpu) = (own_thread_cpu, 0.99);
    }
    ledger
}

#[test]
fn a_difference_within_the_interval_is_none_and_ranks_nobody() {
    let rps = Metric::named("rps").unwrap();
    let rounds = |label, rates: [f64; 5]| -> Vec<Ledger> {
        rates.iter().zip(1..).map(|(rate, round)| hammered(label, round, *rate, 0.5)).collect()
    };
    let ledgers = [
        rounds("first", [1.0, 1.1, 1.0, 1.1, 1.0]),
        rounds("alike", [1.1, 1.0, 1.1, 1.0, 1.0]),
        rounds("twice", [2.0, 2.1, 2.2, 2.0, 2.1]),
    ]
    .concat();
    let comparison = &compare(&ledgers)[0];
    let standing = |place: usize| comparison.standing(&comparison.entries[place], rps).unwrap();
    // The ratio and its interval are said, and that they show no difference.
    assert!(standing(1).starts_with("1× (") && standing(1).ends_with("), not distinguished"), "{}", standing(1));
    assert!(standing(2).starts_with('2') && standing(2).ends_with(')'), "{}", standing(2));
    assert_eq!(comparison.leaders(rps), ["twice"]);
    assert_eq!(compare(&ledgers[..10])[0].leaders(rps), Vec::<&str>::new());
    // One round is no evidence.
    assert!(compare(&[ledgers[0].clone(), ledgers[10].clone()])[0].leaders(rps).is_empty());
}

#[test]
fn a_rate_at_the_referees_ceiling_is_said_to_be_the_referees() {
    let mut ledgers: Vec<Ledger> =
        (1..=3).flat_map(|round| [hammered("full", round, 4.0, 0.93), hammered("slow", round, 1.0, 0.5)]).collect();
    assert!(
        weights(&ledgers[0]).iter().any(|(_, text)| text.starts_with("referee and cache were both at their limit"))
    );
    ledgers[0].intervals.iter_mut().for_each(|interval| interval.load.as_mut().unwrap().cache_cpu = 0.5);
    assert!(Summary::of(&ledgers[0]).rate_is_referees() && !Summary::of(&ledgers[1]).rate_is_referees());
    assert!(weights(&ledgers[0]).iter().any(|(_, text)| text.contains("the rate is the referee's")));
    // Both forms mark it as the least, and a ratio with it as a bound.
    for (shown, bound) in [(page(&ledgers), "<td>≤ "), (markdown(&ledgers), "| relative to full | 1× | ≤ ")] {
        assert!(shown.contains("≥ ") && shown.contains(bound), "{bound}: {shown}");
    }
    assert!(text(&ledgers).contains("≥ "));
    assert!(compare(&ledgers)[0].leaders(Metric::named("rps").unwrap()).is_empty());
}

#[test]
fn the_glance_table_marks_what_does_not_count() {
    let mut ledgers: Vec<Ledger> = ["quiet", "noisy"].iter().map(|label| hammered(label, 1, 1.0, 0.5)).collect();
    ledgers[1].intervals.iter_mut().for_each(|interval| interval.load.as_mut().unwrap().others_cpu = 0.3);
    let mut other = ledgers.clone();
    other.iter_mut().for_each(|ledger| ledger.run.workload.name = "tree".to_owned());
    let whole = page(&[ledgers.clone(), other].concat());
    let glance = &whole[whole.find("At a glance").unwrap()..whole.find("id=\"w0\"").unwrap()];
    assert!(glance.matches("badge invalid").count() >= 6, "{glance}");
    // Lines of charts say it too, and so do the large figures of a page about one run.
    assert!(whole.contains("noisy (invalid)") && !whole.contains("quiet (invalid)"));
    let row = &whole[whole.find("relative to quiet").unwrap()..];
    assert!(row.starts_with("relative to quiet</th><td>1×</td><td>–</td>"), "{}", &row[..80]);
    let alone = page(&ledgers[1..]);
    assert!(
        alone.contains("<div class=\"tile\"><b><s class=\"out\">"),
        "the tiles of an invalid run are not struck out"
    );
    assert!(!page(&ledgers[..1]).contains("<div class=\"tile\"><b><s"));
}

#[test]
fn missing_hits_and_errors_are_those_of_all_rounds() {
    let mut ledgers: Vec<Ledger> = (1..=3).map(|round| run(SQUID, round, 40.0)).collect();
    let evicted = |ledgers: &[Ledger]| -> u64 {
        compare(ledgers)[0].entries[0].total(|phase| phase.missing.get(&MissCause::Evicted).copied().unwrap_or(0))
    };
    let each: Vec<u64> = ledgers.iter().map(|ledger| evicted(std::slice::from_ref(ledger))).collect();
    assert!(each.iter().all(|count| *count > 0), "{each:?}");
    assert_eq!(evicted(&ledgers), each.iter().sum::<u64>());
    let told = markdown(&ledgers);
    let row = format!("| missing hits, sum of the rounds: evicted | {} |", grouped(each.iter().sum::<u64>() as f64));
    assert!(told.contains(&row), "{row}: {told}");
    assert!(text(&ledgers).contains("Missing hits by cause, sum of the rounds"));
    // Entries of which not as many rounds count say so.
    let other = (1..=3).map(|round| run(Invented { label: "other", ..SQUID }, round, 40.0));
    let mut unequal: Vec<Ledger> = ledgers.iter().cloned().chain(other).collect();
    unequal[5].intervals.iter_mut().for_each(|interval| interval.load.as_mut().unwrap().steal = 0.9);
    assert!(markdown(&unequal).contains("| missing hits, sum of 3 / 2 rounds: evicted |"), "{}", markdown(&unequal));
    ledgers.truncate(1);
    assert!(markdown(&ledgers).contains("| missing hits: evicted |"), "one play has no sum");
}

#[test]
fn thresholds_pass_fail_and_refuse_nonsense() {
    let ledger = run(SQUID, 1, 40.0);
    let summary = Summary::of(&ledger);
    let broken = |text: &str| -> Vec<String> {
        Threshold::parse_all(text).unwrap().iter().filter_map(|threshold| threshold.broken_by(&summary)).collect()
    };
    assert!(broken("p99<20s, dhr>0.5,errors.share<=1%,rps>1").is_empty());
    assert!(broken("p99<20ms")[0].starts_with("squid p99 is "), "{:?}", broken("p99<20ms"));
    assert_eq!(broken("rps_per_watt>1"), ["squid rps_per_watt was not measured"]);
    for (text, reason) in [
        ("p99", "is not a threshold"),
        ("p98<1ms", "unknown metric \"p98\""),
        ("p99<20", "with us, ms or s"),
        ("dhr>high", "is not a number"),
        ("rps>1parsec", "is not a number"),
    ] {
        let error = Threshold::parse_all(text).err().unwrap();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn every_key_is_unique_and_every_group_is_shown() {
    for (place, metric) in METRICS.iter().enumerate() {
        assert!(METRICS[..place].iter().all(|other| other.key != metric.key), "{}", metric.key);
        assert!(Group::ALL.contains(&metric.group) && metric.sentence.ends_with('.'), "{}", metric.key);
    }
}

#[test]
fn csv_has_a_row_per_run_and_a_cell_per_column() {
    let csv = csv(&contest());
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 14);
    assert_eq!(rows[0].split(',').count(), 9 + METRICS.len());
    assert_eq!(rows[1].split(',').count(), 9 + METRICS.len());
    assert!(rows[13].contains("not installed"), "{}", rows[13]);
}

#[test]
fn prometheus_text_has_help_type_and_labels() {
    let text = prometheus(&contest()[..1]);
    assert!(text.contains("# TYPE cacheoff_hit_mean gauge\n"));
    assert!(text.contains("cacheoff_dhr{workload=\"polymix-2\",label=\"larder\",round=\"1\"} 0.5"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.rsplit_once(' ').is_some_and(|(_, number)| number.parse::<f64>().is_ok()), "{line}");
    }
}

#[test]
fn json_unpacks_histograms() {
    let value = json(&run(SQUID, 1, 4.0));
    let all = &value["intervals"][60]["classes"]["all"];
    let counted: u64 =
        all["response"]["buckets"].as_array().unwrap().iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), all["replies"].as_u64());
    assert!(value["intervals"][60]["service"]["hit"]["count"].is_u64());
}

#[test]
fn the_terminal_report_names_winners_losers_and_reasons() {
    let text = text(&contest());
    for part in [
        "larder",
        "relative to larder",
        "Missing hits by cause",
        "evicted",
        "stale-hit",
        "failed: varnish, round 2: 4 answers were wrong",
        "failed: trafficserver, round 1: could not go on",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
}

fn keep(name: &str, page: &str) {
    if let Some(folder) = std::env::var_os("REPORT") {
        std::fs::write(std::path::Path::new(&folder).join(name), page).unwrap();
    }
}

#[test]
fn the_page_stands_alone_and_shows_everything() {
    let ledgers = contest();
    let whole = page(&ledgers);
    keep("contest.html", &whole);
    for forbidden in ["<script", "http-equiv", " src=", "url(", "@import", "NaN", "<link rel=\"stylesheet"] {
        assert!(!whole.contains(forbidden), "{forbidden}");
    }
    let links = whole.match_indices("href=\"").map(|(place, _)| &whole[place + 6..place + 8]);
    assert!(links.clone().all(|start| start.starts_with('#') || start == "da"), "{:?}", links.collect::<Vec<_>>());
    for part in [
        "cache_mem 256 MB",
        "0.4/s",
        "net.core.somaxconn",
        "stale-hit",
        "not installed",
        "Cisco CE-590",
        "Response time against rate",
    ] {
        assert!(whole.contains(part), "{part}");
    }
    assert!(whole.len() < 3_000_000, "{}", whole.len());
}

#[test]
fn pages_of_one_run_of_a_kill_and_of_nothing() {
    let mut one = run(SQUID, 0, 40.0);
    one.run.watts = Some(80.0);
    keep("one.html", &page(std::slice::from_ref(&one)));
    let mut killed = run(SQUID, 0, 4.0);
    killed.downtimes.push(Downtime {
        cut: "kill -9".to_owned(),
        first_accept_us: Some(210_000),
        first_miss_us: Some(230_000),
        first_hit_us: Some(450_000),
        resolution_us: 10_000,
        dark_us: 5_000_000,
        probed: 300,
        kept: 298,
        ..Downtime::default()
    });
    let shown = page(&[killed]);
    assert!(shown.contains("After the outage") && shown.contains("450 ms"));
    assert!(page(&[]).contains("No runs"));
    assert!(page(&[Ledger::default()]).contains("not one reply was measured"));
    keep("history.html", &super::page::history_page());
}

#[test]
fn the_page_of_a_sequence_has_the_pages_of_2000() {
    let staged = |stage: Stage, entry: Invented| {
        let mut ledger = run(entry, 0, 40.0);
        (ledger.run.stage, ledger.run.cache_bytes) = (Some(stage), Some(64 << 20));
        ledger
    };
    let named = |label: &'static str| Invented { label, ..SQUID };
    let mut load = staged(Stage::Load, SQUID);
    load.run.price = Some(Price { amount: 4_000.0, currency: "USD".to_owned() });
    load.run.watts = Some(80.0);
    load.run.target.entry.as_mut().unwrap().comments = "We like <it>.".to_owned();
    let mut kill = staged(Stage::Kill, SQUID);
    kill.downtimes.push(Downtime { first_hit_us: Some(450_000), probed: 10, kept: 7, ..Downtime::default() });
    let mut watched = staged(Stage::TimeWait, SQUID);
    watched.notes.push(Note { at_us: 0, text: "TIME-WAIT lasted 60.0 s".to_owned() });
    let mut failed = Ledger::default();
    (failed.run.label, failed.run.stage) = ("late".to_owned(), Some(Stage::Fill));
    failed.end.outcome = Outcome::Failed("no such luck".to_owned());
    let ceiling = staged(Stage::Ceiling, named("generator"));
    let sequence =
        [ceiling, staged(Stage::NoProxy, named("no proxy")), watched, staged(Stage::Fill, SQUID), load, kill, failed];
    assert!(official::is_sequence(&sequence) && !official::is_sequence(&contest()));
    let shown = official::page(&sequence);
    keep("official.html", &shown);
    for part in [
        "Executive table",
        "replies/s per watt",
        "hits/s per 1,000 of price",
        "age of the cache",
        "The bench",
        "Mean response time of the fill",
        "squid, misses",
        "squid, first plateau",
        "450 ms",
        "70 %",
        "TIME-WAIT lasted 60.0 s",
        "We like &lt;it&gt;.",
        "failed before the load",
        // The facts that a figure is quoted with stand beside it.
        "replies per second",
        "replies counted",
        "wrong answers",
        "no interval can be given",
        "verdict on the kill",
        "What these rows count",
        "nobody is named (--by)",
        "<dt>Machine</dt>",
        "no such luck",
        "Sequence at 0.002 of the standard's length",
        "is no result of the standard",
        "The calibration (",
        "has the length of the load with one",
        "hits of those offered",
        "store: where, budget",
        "maximum_object_size",
        // All runs are the same one, so that the load went as fast as the generator can.
        "the generator's",
    ] {
        assert!(shown.contains(part), "{part}");
    }
    assert!(!shown.contains("<s class=\"out\">"));
    let mut plain = sequence.to_vec();
    (plain[2].intervals, plain[2].run.workload.name) = (Vec::new(), "TIME-WAIT".to_owned());
    let text = super::markdown(&plain);
    for part in [
        "# Sequence at 0.002 of the standard's length,",
        "no interval can be given",
        "is no result of the standard",
        "| after the outage: older objects asked for |",
        "| after the outage: kept of the older objects |",
        "scale 0.002, without a cache, phase",
        "- squid: TIME-WAIT lasted 60.0 s",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("not one reply was measured") && !text.contains("round 0"), "{text}");
    assert!(!text.to_lowercase().contains("official"), "a scaled sequence is not official: {text}");
    plain.iter_mut().for_each(|ledger| ledger.run.workload.scale = 1.0);
    assert!(super::markdown(&plain).starts_with("# Official sequence,"));
    let mut broken = sequence.clone();
    broken[4].end.invalid.push("a noisy machine".to_owned());
    let spoilt = official::page(&broken);
    assert!(spoilt.contains("<s class=\"out\">") && spoilt.contains("squid, load: a noisy machine"));
    let ages = cache_ages(&sequence);
    assert_eq!(ages.len(), 1, "{ages:?}");
    let stored = value(&sequence[4], "rps").unwrap();
    assert!(
        stored > 0.0 && ages[0].0 == "squid" && ages[0].1.contains(" h (") && ages[0].1.ends_with(" s)"),
        "{ages:?}"
    );
}

/// A percentile that too few replies lie beyond, and a schedule where there is none.
#[test]
fn figures_that_say_nothing_are_dashes() {
    let ledger = run(SQUID, 1, 40.0);
    let (shown, of) = (Summary::of(&ledger), |key: &str| Metric::named(key).unwrap());
    // Some 2,400 replies: 24 beyond the 99th of 100, two beyond the 999th of 1,000.
    assert!(of("p99").shown(&shown).is_some() && of("p50").shown(&shown).is_some());
    assert!(of("p99.9").of(&shown).is_some(), "a threshold still has it");
    assert_eq!((of("p99.9").shown(&shown), of("p99.99").shown(&shown)), (None, None));
    assert!(of("max").shown(&shown).is_some() && of("hit.p99").shown(&shown).is_some());
    assert!(of("asked").shown(&shown).is_some());
    let mut best_effort = ledger.clone();
    best_effort.run.phases.iter_mut().for_each(|phase| phase.rate_end = None);
    assert_eq!(of("asked").shown(&Summary::of(&best_effort)), None);
}

/// A best-effort robot's requests are due when it sends them: that is no rate that somebody asked for.
#[test]
fn a_full_referee_bounds_the_rate_of_best_effort_robots() {
    let full = |cores: &str, own_cpu: f32, own_thread_cpu: f32| {
        let mut ledger = run(SQUID, 1, 40.0);
        ledger.run.phases.iter_mut().for_each(|phase| phase.rate_end = None);
        ledger.run.machine.own_cores = cores.to_owned();
        for interval in &mut ledger.intervals {
            assert!(interval.due > 0 || interval.sent == 0);
            let load = interval.load.as_mut().unwrap();
            (load.own_cpu, load.own_thread_cpu, load.cache_cpu) = (own_cpu, own_thread_cpu, 0.5);
        }
        ledger
    };
    assert!(Summary::of(&full("1", 0.93, 0.93)).rate_is_referees());
    // Several threads fill one core as well as one does.
    assert!(Summary::of(&full("1", 0.93, 0.6)).rate_is_referees());
    assert!(!Summary::of(&full("1,2", 0.93, 0.6)).rate_is_referees());
    // A calibration measures the referee: that it is full is the aim.
    let mut calibration = full("1", 0.99, 0.99);
    assert!(!Summary::of(&calibration).counts());
    calibration.run.stage = Some(Stage::Ceiling);
    assert!(Summary::of(&calibration).counts() && !Summary::of(&calibration).rate_is_referees());
    assert_eq!(value(&full("1", 0.93, 0.6), "own_thread").map(|cores| (cores * 100.0).round()), Some(93.0));
    assert!(weights(&full("1", 0.93, 0.6)).iter().any(|(_, text)| text.contains("the rate is the referee's")));
}

/// Noise spoils times and rates; what was stored was stored.
#[test]
fn noise_strikes_out_no_numbers_of_objects() {
    let mut ledger = run(SQUID, 0, 40.0);
    ledger.downtimes.push(Downtime { first_hit_us: Some(450_000), probed: 10, kept: 7, ..Downtime::default() });
    ledger.intervals.iter_mut().for_each(|interval| interval.load.as_mut().unwrap().others_cpu = 0.4);
    let noisy = markdown(std::slice::from_ref(&ledger));
    assert!(noisy.contains("first hit | ~~450 ms~~ invalid |"), "{noisy}");
    // The figure that says why is not spoilt by its own reason.
    assert!(noisy.contains("other processes, cores | 0.4 |"), "{noisy}");
    assert!(noisy.contains("kept of the older objects | 70 % |") && noisy.contains("| wrong answers | 0 |"), "{noisy}");
    ledger.run.machine.own_cores.clear();
    ledger.end.invalid.push("the clock jumped".to_owned());
    assert!(markdown(&[ledger]).contains("kept of the older objects | ~~70 %~~ invalid |"));
}

/// Remarks stand under their own name.
#[test]
fn a_remark_is_not_listed_as_an_error() {
    let mut ledger = run(SQUID, 1, 40.0);
    let shown = ledger.run.phases.iter().position(|phase| phase.name == ledger.run.workload.report_phase);
    let interval = ledger.intervals.iter_mut().find(|i| Some(usize::from(i.phase)) == shown).unwrap();
    for trouble in [Trouble::MissingAge, Trouble::StaleHit] {
        let exhibit = || Exhibit { trouble, at_us: 1, url: String::new(), detail: String::new() };
        interval.errors.add(trouble, exhibit);
    }
    let text = markdown(&[ledger]);
    assert!(text.contains("| remarks: missing-age | 1 |") && text.contains("| errors: stale-hit | 1 |"), "{text}");
    assert!(!text.contains("errors: missing-age"), "{text}");
}

#[test]
fn dates_are_civil() {
    for (unix, text) in
        [(0, "1970-01-01 00:00 UTC"), (951_782_400, "2000-02-29 00:00 UTC"), (1_795_246_200, "2026-11-21 07:30 UTC")]
    {
        assert_eq!(super::date(unix), text);
    }
}

#[test]
fn markdown_has_every_entry_and_its_reasons_and_no_path_of_this_machine() {
    let mut ledgers = contest();
    ledgers.iter_mut().for_each(|ledger| ledger.run.command = "/opt/tools/cacheoff contest --standard".to_owned());
    let text = markdown(&ledgers);
    assert!(text.contains("- Command: `cacheoff contest --standard`"), "{text}");
    for part in [
        "## Notes on the entries",
        "- Made by: nobody is named",
        "- Played: 2026-11-21",
        "seed 42",
        "- Referee: Cacheoff 0.1.0",
        "2 cores of AMD EPYC, SMT off",
        "25.8 GB of memory",
        "larder: files in memory (tmpfs)",
        "## How to read this",
        "| rounds that count | 3 of 3 |",
        "| errors, share of requests |",
        "| busiest thread of the referee, cores |",
        "| hits of those offered |",
        "| ideal of the full-length workload |",
        "| body, mean |",
        "Browsers of 1999. Figures of phase top1, ",
        "ideal hit ratio",
        "<details><summary>polymix-2.toml</summary>\n\n```toml\n# PolyMix-2, January 2000\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    for ledger in &ledgers {
        assert!(text.contains(&format!("{} |", ledger.run.label)), "{} is missing", ledger.run.label);
    }
    // A load that is due has no such row.
    assert!(!text.contains("| relative to larder |") && text.contains("- failed: "), "{text}");
    let tables = text.lines().filter(|line| line.starts_with('|'));
    assert!(tables.clone().count() > 20);
    assert!(tables.clone().all(|line| line.ends_with('|')));
}
