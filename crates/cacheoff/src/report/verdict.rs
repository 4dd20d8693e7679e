//! May the figures of a run be used? Each reason why not, or why with care, is a sentence.

use crate::chart::Unit;
use crate::ledger::{Class, Interval, Ledger, Load, Outcome, TlsFacts, Trouble};

/// The referee may be late by this much at the 99th percentile.
const LATENESS_P99_US_MAX: u64 = 10_000;
/// Of the requests that were due, this share must have been sent.
const SENT_SHARE_MIN: f64 = 0.98;
/// More than this share is a burst of requests that were due before the phase.
const SENT_SHARE_MAX: f64 = 1.02;
/// A thread of the referee that is busier than this was a limit, unless the cache was busy as well.
const OWN_THREAD_CPU_MAX: f32 = 0.95;
/// A cache that uses less than this share of a core beside a full referee was not the limit.
const CACHE_CPU_LIMIT: f32 = 0.9;
/// Cores taken by others or by the hypervisor that make a round noisy.
const NOISE_CORES_MAX: f32 = 0.15;

/// Something to know before the figures are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub weight: Weight,
    /// The finding, in a sentence.
    pub text: String,
}

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The referee or the machine failed: the figures say nothing about the cache.
    Invalid,
    /// The cache failed: it broke a rule of the workload or answered wrongly.
    Failed,
    /// The figures stand, with this remark.
    Remark,
}

impl Weight {
    /// The word of reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Failed => "failed",
            Self::Remark => "remark",
        }
    }

    /// Whether a result with it counts.
    pub fn spoils(self) -> bool {
        self != Self::Remark
    }
}

/// Everything that is found about the reported phase of a run.
pub(super) fn findings(ledger: &Ledger, phase: &Interval, load: Option<&Load>) -> Vec<Finding> {
    let mut all = Vec::new();
    ending(ledger, phase, &mut all);
    referee(phase, load, &mut all);
    cache(ledger, phase, &mut all);
    state(ledger, &mut all);
    if ledger.run.tls == Some(TlsFacts::Unverified) {
        add(&mut all, Weight::Remark, "robots believed every certificate (--insecure)".to_owned());
    }
    noise(load, &mut all);
    all.sort_by_key(|finding| finding.weight);
    all
}

fn add(all: &mut Vec<Finding>, weight: Weight, text: String) {
    all.push(Finding { weight, text });
}

fn ending(ledger: &Ledger, phase: &Interval, all: &mut Vec<Finding>) {
    for reason in &ledger.end.invalid {
        add(all, Weight::Invalid, reason.clone());
    }
    match &ledger.end.outcome {
        Outcome::Complete => {}
        Outcome::Interrupted => {
            add(all, Weight::Remark, "stopped by hand: the figures are those of the time before".to_owned());
        }
        Outcome::Failed(reason) => add(all, Weight::Failed, format!("could not go on: {reason}")),
        Outcome::Unfinished => {
            add(all, Weight::Invalid, "the ledger has no end: the referee was killed, or its disk was full".to_owned())
        }
    }
    let failed = matches!(ledger.end.outcome, Outcome::Failed(_));
    if phase.replies() == 0 && ledger.downtimes.is_empty() && !failed {
        add(all, Weight::Invalid, "not one reply was measured".to_owned());
    }
}

fn referee(phase: &Interval, load: Option<&Load>, all: &mut Vec<Finding>) {
    if let Some(late) = phase.lateness.quantile(0.99).filter(|late| phase.due > 0 && *late > LATENESS_P99_US_MAX) {
        let (late, limit) = (Unit::Micros.text(late as f64), Unit::Micros.text(LATENESS_P99_US_MAX as f64));
        add(
            all,
            Weight::Invalid,
            format!("the referee was late by {late} at the 99th percentile; {limit} are allowed"),
        );
    }
    if phase.due > 0 && (phase.sent as f64) < phase.due as f64 * SENT_SHARE_MIN {
        let share = Unit::Share.text(phase.sent as f64 / phase.due as f64);
        add(
            all,
            Weight::Invalid,
            format!("the rate asked for was not reached: {share} of the requests that were due were sent"),
        );
    }
    if phase.due > 0 && (phase.sent as f64) > phase.due as f64 * SENT_SHARE_MAX {
        let share = Unit::Share.text(phase.sent as f64 / phase.due as f64);
        add(
            all,
            Weight::Invalid,
            format!("the rate asked for was exceeded: {share} of the requests that were due were sent"),
        );
    }
    let own: u64 = phase.errors.counts.iter().filter(|(trouble, _)| trouble.is_own()).map(|(_, count)| count).sum();
    if own > 0 {
        add(all, Weight::Invalid, format!("the referee ran out of descriptors or ports {own} times"));
    }
    let Some(load) = load else { return };
    if load.own_thread_cpu > OWN_THREAD_CPU_MAX && load.cache_cpu < CACHE_CPU_LIMIT {
        let share = Unit::Share.text(f64::from(load.own_thread_cpu));
        add(all, Weight::Invalid, format!("the referee was the limit: its busiest thread used {share} of a core"));
    }
}

fn cache(ledger: &Ledger, phase: &Interval, all: &mut Vec<Finding>) {
    let lies = phase.errors.lies();
    if lies > 0 {
        add(all, Weight::Failed, format!("{lies} answers were wrong"));
    }
    for remark in Trouble::ALL.iter().filter(|trouble| trouble.is_remark() && phase.errors.of(**trouble) > 0) {
        let (count, word) = (phase.errors.of(*remark), remark.as_str());
        add(all, Weight::Remark, format!("{count} times {word}: {}", remark.sentence()));
    }
    let basic = phase.class(Class::Basic);
    let (errors, replies) = (phase.errors.total(), phase.replies());
    let share = errors as f64 / (errors + replies).max(1) as f64;
    if let Some(limit) = ledger.run.workload.errors_max.filter(|limit| share > *limit) {
        let (share, limit) = (Unit::Share.text(share), Unit::Share.text(limit));
        add(all, Weight::Failed, format!("{share} of the requests failed; the workload allows {limit}"));
    }
    let dhr = basic.hits as f64 / basic.replies.max(1) as f64;
    if let Some(limit) = ledger.run.workload.dhr_min.filter(|limit| basic.replies > 0 && dhr < *limit) {
        let (dhr, limit) = (Unit::Share.text(dhr), Unit::Share.text(limit));
        add(all, Weight::Failed, format!("the hit ratio is {dhr}; the workload asks for {limit}"));
    }
}

/// Findings about the store after a kill or a power cut.
fn state(ledger: &Ledger, all: &mut Vec<Finding>) {
    for found in ledger.downtimes.iter().filter(|found| found.first_hit_us.is_none()) {
        let text = match found.probed {
            0 => "nothing had been stored before the cache was stopped, so there was no hit to come".to_owned(),
            _ => "nothing of what was stored was served after the cache was started again".to_owned(),
        };
        add(all, Weight::Remark, text);
    }
}

fn noise(load: Option<&Load>, all: &mut Vec<Finding>) {
    let Some(load) = load else { return };
    if load.steal > NOISE_CORES_MAX {
        let cores = Unit::Cores.text(f64::from(load.steal));
        add(all, Weight::Remark, format!("noisy: the hypervisor gave {cores} cores to somebody else"));
    }
    if load.others_cpu > NOISE_CORES_MAX {
        let cores = Unit::Cores.text(f64::from(load.others_cpu));
        add(all, Weight::Remark, format!("noisy: other processes used {cores} cores"));
    }
}

/// Whether the machine was noisy in a round.
pub(super) fn is_noisy(load: Option<&Load>) -> bool {
    load.is_some_and(|load| load.steal + load.others_cpu > NOISE_CORES_MAX)
}
