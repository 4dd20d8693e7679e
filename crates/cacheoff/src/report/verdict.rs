//! May the figures of a run be used? Each reason why not, or why with care, is a sentence.

use crate::chart::Unit;
use crate::ledger::{Class, Interval, Ledger, Load, Mode, Outcome, Stage, TlsFacts, Trouble};

/// The referee may be late by this much at the 99th percentile.
const LATENESS_P99_US_MAX: u64 = 10_000;
/// Of the requests that robots wanted to send, this share must have been sent.
const SENT_SHARE_MIN: f64 = 0.98;
/// More than this share is a burst of requests that waited since the phase before.
const SENT_SHARE_MAX: f64 = 1.02;
/// A page and what it embeds are asked for together and paid for one by one, partly beyond an end of the phase. By chance
/// that moves a rate by a share of so much over the root of the requests due: three standard deviations where pages embed
/// a dozen objects.
const PAGES_SPREAD: f64 = 10.0;
/// However short a phase is, chance explains no more than this share.
const PAGES_SHARE_MAX: f64 = 0.25;
/// A thread of the referee that is busier than this was a limit, unless the cache was busy as well.
const OWN_THREAD_CPU_MAX: f32 = 0.95;
/// A cache that uses less than this share of its cores beside a full referee was not the limit.
const CACHE_CPU_LIMIT: f32 = 0.9;
/// Above this share of what the referee's busiest thread could do, a rate is the referee's.
const CEILING_SHARE_MAX: f32 = 0.9;
/// Cores taken by others and by the hypervisor above which a run says nothing.
const NOISE_CORES_MAX: f32 = 0.15;

const SHORT_PHASE: &str =
    "in so short a phase, pages, what they embed and what waits for their connections lie on both sides of its ends";

/// Something to know before the figures are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub weight: Weight,
    /// The finding, in a sentence.
    pub text: String,
    /// Whether another play may be without it: the machine was at fault for a moment.
    pub passes: bool,
    /// Whether it is noise of the machine, which changes times, rates and CPU and nothing else.
    pub noise: bool,
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
    referee(ledger, phase, load, &mut all);
    cores(ledger, &mut all);
    cache(ledger, phase, &mut all);
    state(ledger, &mut all);
    if ledger.run.tls == Some(TlsFacts::Unverified) {
        add(&mut all, Weight::Remark, "robots believed every certificate (--insecure)".to_owned());
    }
    noise(ledger, load, &mut all);
    for reason in &ledger.run.repeats {
        add(&mut all, Weight::Remark, format!("played again, because the play before was not valid: {reason}"));
    }
    all.sort_by_key(|finding| finding.weight);
    all
}

fn add(all: &mut Vec<Finding>, weight: Weight, text: String) {
    all.push(Finding { weight, text, passes: false, noise: false });
}

/// A reason against this play that the next one may not have.
fn add_passing(all: &mut Vec<Finding>, text: String) {
    all.push(Finding { weight: Weight::Invalid, text, passes: true, noise: false });
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
    // While TIME-WAIT is watched nothing is asked for.
    let asks = ledger.run.stage != Some(Stage::TimeWait);
    if asks && phase.replies() == 0 && ledger.downtimes.is_empty() && !failed {
        add(all, Weight::Invalid, "not one reply was measured".to_owned());
    }
}

fn referee(ledger: &Ledger, phase: &Interval, load: Option<&Load>, all: &mut Vec<Finding>) {
    if let Some(late) = phase.lateness.quantile(0.99).filter(|late| phase.due > 0 && *late > LATENESS_P99_US_MAX) {
        let (late, limit) = (Unit::Micros.text(late as f64), Unit::Micros.text(LATENESS_P99_US_MAX as f64));
        add_passing(all, format!("the referee was late by {late} at the 99th percentile; {limit} are allowed"));
    }
    rate(ledger, phase, all);
    let own: u64 = phase.errors.counts.iter().filter(|(trouble, _)| trouble.is_own()).map(|(_, count)| count).sum();
    if own > 0 {
        add(all, Weight::Invalid, format!("the referee ran out of descriptors or ports {own} times"));
    }
    let Some(load) = load.filter(|_| !is_calibration(ledger)) else { return };
    let own = own_share(ledger, load);
    let share = Unit::Share.text(f64::from(own));
    let cores = cache_cores(ledger);
    let is_cache_full = load.cache_cpu >= CACHE_CPU_LIMIT * cores;
    if own > CEILING_SHARE_MAX && is_cache_full {
        let text = format!(
            "referee and cache were both at their limit: the referee's busiest thread used {share} of a core, the cache {:.2} of its {cores:.0}. \
             The rate is one that both reach, the least that the cache can do; times are those of both. Hit ratios, wrong answers and CPU per reply are the cache's own",
            load.cache_cpu
        );
        add(all, Weight::Remark, text);
    } else if own > OWN_THREAD_CPU_MAX {
        add_passing(all, format!("the referee was the limit: its busiest thread used {share} of a core"));
    } else if rate_is_referees(ledger, phase, Some(load)) {
        let rate = phase.replies() as f64 * 1e6 / phase.length_us.max(1) as f64;
        let (rate, ceiling) = (Unit::PerSecond.text(rate), Unit::PerSecond.text(rate / f64::from(own)));
        let text = format!(
            "the rate is the referee's, not the cache's: {rate} is {share} of the {ceiling} that it could have asked for at the same cost of a request"
        );
        add(all, Weight::Remark, text);
    }
}

/// Whether the load was the one that was asked for: robots sent what they wanted to, and wanted what was due.
fn rate(ledger: &Ledger, phase: &Interval, all: &mut Vec<Finding>) {
    if phase.due == 0 {
        return;
    }
    // Objects that are embedded in pages of robots without a rate are due at no time.
    let is_paced = is_paced(ledger, phase);
    // Ledgers of before do not say what robots wanted.
    let (wanted, what) = match phase.issued {
        issued if is_paced && issued > 0 => (issued as f64, "that robots wanted to send"),
        _ => (phase.due as f64, "that were due"),
    };
    let sent = phase.sent as f64;
    let share = Unit::Share.text(sent / wanted);
    let is_less = sent < wanted * SENT_SHARE_MIN;
    if is_less || (is_paced && sent > wanted * SENT_SHARE_MAX) {
        let limit = (SENT_SHARE_MAX - 1.0) * wanted + if phase.issued > 0 { at_origins(phase) } else { 0.0 };
        match (sent - wanted).abs() > limit {
            true => {
                let way = if is_less { "not reached" } else { "exceeded" };
                add_passing(all, format!("the rate asked for was {way}: {share} of the requests {what} were sent"));
            }
            false => add(all, Weight::Remark, format!("{share} of the requests {what} were sent: {SHORT_PHASE}")),
        }
    }
    if !is_paced || phase.issued == 0 {
        return;
    }
    let (due, apart) = (phase.due as f64, wanted / phase.due as f64 - 1.0);
    let share = Unit::Share.text(1.0 + apart);
    if apart.abs() > SENT_SHARE_MAX - 1.0 + (PAGES_SPREAD / due.sqrt()).min(PAGES_SHARE_MAX) {
        let way = if apart > 0.0 { "exceeded" } else { "not reached" };
        let text = format!(
            "the rate asked for was {way}: robots wanted to send {share} of the requests that were due, which no chance of their pages explains"
        );
        add_passing(all, text);
    } else if apart.abs() > SENT_SHARE_MAX - 1.0 {
        let text = format!("robots wanted to send {share} of the requests that were due: {SHORT_PHASE}");
        add(all, Weight::Remark, text);
    }
}

/// The share of the requests that may be missing because origins held connections.
const AT_ORIGINS_SHARE_MAX: f64 = 0.1;

/// Requests that the origins had at a time, by their number and the time that each took. About as many can wait at an end of
/// a phase for connections that these have, however fast a cache is.
fn at_origins(phase: &Interval) -> f64 {
    let open =
        phase.origin.service.mean().unwrap_or(0.0) * phase.origin.requests as f64 / phase.length_us.max(1) as f64;
    // A referee or a cache that is slow to take answers holds them open too: that excuses no more than this.
    open.min(AT_ORIGINS_SHARE_MAX * phase.issued as f64)
}

/// Cores that the cache could use, as far as it is known.
fn cache_cores(ledger: &Ledger) -> f32 {
    let entry = ledger.run.target.entry.as_ref();
    entry.map_or(1, |entry| entry.cores.split(',').filter(|core| !core.is_empty()).count().max(1)) as f32
}

/// Whether the referee was measured and no cache: a full referee is the aim of it.
fn is_calibration(ledger: &Ledger) -> bool {
    ledger.run.stage == Some(Stage::Ceiling)
}

/// Whether robots have a rate to keep. Others ask as fast as they are answered: each of their requests is due when it is sent.
pub(super) fn is_paced(ledger: &Ledger, phase: &Interval) -> bool {
    phase.due > 0
        && !is_calibration(ledger)
        && ledger.run.phases.get(usize::from(phase.phase)).is_none_or(|plan| plan.rate_end.is_some())
}

/// The part of a core that the busiest thread of the referee used; where all threads together used more of each of its cores,
/// that part, for then it had as little left.
pub(super) fn own_share(ledger: &Ledger, load: &Load) -> f32 {
    let cores = ledger.run.machine.own_cores.split(',').filter(|core| !core.is_empty()).count();
    let of_each = if cores > 0 { load.own_cpu / cores as f32 } else { 0.0 };
    load.own_thread_cpu.max(of_each)
}

/// Whether a rate says how fast the referee can ask: nobody asked for this rate, and the referee had hardly a moment left.
pub(super) fn rate_is_referees(ledger: &Ledger, phase: &Interval, load: Option<&Load>) -> bool {
    !is_calibration(ledger)
        && !is_paced(ledger, phase)
        && load.is_some_and(|load| own_share(ledger, load) > CEILING_SHARE_MAX)
}

/// Cache and referee on the same core measure each other.
fn cores(ledger: &Ledger, all: &mut Vec<Finding>) {
    let Some(entry) = ledger.run.target.entry.as_ref().filter(|entry| !entry.cores.is_empty()) else { return };
    // A kill is watched by probes that cost nothing.
    if !ledger.downtimes.is_empty() || ledger.run.machine.cores == 0 {
        return;
    }
    let own = &ledger.run.machine.own_cores;
    let shared: Vec<&str> = own.split(',').filter(|core| entry.cores.split(',').any(|other| other == *core)).collect();
    if own.is_empty() {
        add(all, Weight::Invalid, format!("the referee had no core of its own beside {} of the cache", entry.cores));
    } else if !shared.is_empty() {
        add(all, Weight::Invalid, format!("the cache and the referee shared core {}", shared.join(",")));
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
    let reloads = phase.errors.of(Trouble::HitOnReload);
    if reloads > 0 && ledger.run.target.entry.as_ref().is_some_and(|entry| entry.honours_reload) {
        let text =
            format!("{reloads} reloads were answered from the store, and the entry says that they go to the origin");
        add(all, Weight::Failed, text);
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

/// CPU that neither the cache nor the referee used. Where the processes of the cache were not seen, theirs is part of it.
fn noise(ledger: &Ledger, load: Option<&Load>, all: &mut Vec<Finding>) {
    let Some(load) = load else { return };
    let is_seen = load.cache_threads > 0 || ledger.run.target.mode == Mode::NoProxy;
    let others = if is_seen { load.others_cpu } else { 0.0 };
    if others + load.steal > NOISE_CORES_MAX {
        let cores = |cores: f32| Unit::Cores.text(f64::from(cores));
        let (all_cores, limit) = (cores(others + load.steal), cores(NOISE_CORES_MAX));
        let (others, steal) = (cores(others), cores(load.steal));
        let text = format!(
            "noisy: {all_cores} cores were taken, {others} by other processes and {steal} by the hypervisor; {limit} are allowed"
        );
        all.push(Finding { weight: Weight::Invalid, text, passes: true, noise: true });
    } else if !is_seen && load.others_cpu > NOISE_CORES_MAX {
        let text = "the processes of the cache were not seen, so that the noise of the machine is not known";
        add(all, Weight::Remark, text.to_owned());
    }
}
