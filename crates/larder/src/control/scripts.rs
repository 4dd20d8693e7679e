//! Applications in Python: how they are, and what went wrong in them.

use super::proc_files::{cpu_time, resident_bytes};
use super::{Admin, Reply, api};
use crate::clock;
use crate::latency::bound;
use crate::mount::{
    Condition, FailedLoad, Failure, Hook, LateLoad, MountCounts, MountReport, MountState, Mounts, Process,
};
use crate::purge::parts;
use crate::record::{Query, shortened};
use crate::run::control::{LoadOutcome, RELOAD_WAIT, ReloadedScript};
use crate::script::{self, Loading};
use larder_wire::Host;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the CPU times of processes are noted: what a process takes after that, before it ends, is not counted.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// All applications.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scripts {
    /// In the order of their names.
    pub applications: Vec<OfApplication>,
}

/// One application.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfApplication {
    /// The name that sites have as their origin.
    pub name: String,
    /// Its `[[python]]`; empty where there is none.
    pub python: String,
    /// Where its modules are.
    pub folder: String,
    /// The interpreter that new processes get.
    pub interpreter: String,
    /// The version of Python; empty before a process was ready.
    pub version: String,
    /// How often its processes have begun anew, from 1.
    pub generation: u64,
    /// `loading`, `serving`, `failed` or `serving-old`.
    pub state: String,
    /// When the version that serves was loaded, in milliseconds since 1970.
    pub loaded_at_millis: Option<u64>,
    /// The processes that serve.
    pub processes: Vec<OfProcess>,
    /// How many are to serve.
    pub processes_max: usize,
    /// The bounds of the processes that are in force.
    #[serde(default)]
    pub confined: Vec<String>,
    /// Bounds that the system lacks.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Bytes of requests and answers in buffers, because their clients are slow.
    #[serde(default)]
    pub buffered_bytes: u64,
    /// Requests that wait for a process.
    pub waiting: usize,
    /// Counts since the start.
    pub counts: OfCounts,
    /// Its hooks in the order in which they run; none where it is an application, or was never loaded.
    #[serde(default)]
    pub hooks: Vec<OfHook>,
    /// Why the application, or its newest version, could not be loaded.
    pub load_failure: Option<OfLoad>,
    /// A process that is importing the application for long; nothing where there is none.
    #[serde(default)]
    pub late_load: Option<OfLateLoad>,
    /// Bytes of the application's own log that were left out, because it wrote too many.
    #[serde(default)]
    pub log_bytes_left_out: u64,
    /// The last of these requests, the newest last.
    pub failures: Vec<OfFailure>,
}

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfProcess {
    /// The system's number.
    pub pid: u32,
    /// Requests under way in it.
    pub under_way: usize,
    /// How many it may have.
    pub requests_max: usize,
    /// Seconds since it was ready.
    pub age_seconds: u64,
    /// Its memory, where that is known.
    pub memory_bytes: Option<u64>,
    /// Its CPU time, where that is known.
    pub cpu_millis: Option<u64>,
}

/// One hook, with counts and times since the start, those of earlier versions of its file included. Requests for which its decision
/// was remembered are no calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfHook {
    /// The name of the function.
    pub name: String,
    /// The name of its file.
    pub script: String,
    /// The line where it begins.
    pub line: u32,
    /// When it is called.
    pub stage: String,
    /// Calls, whatever came of them.
    pub calls: u64,
    /// Those of them that raised an exception, or decided what can't be done.
    pub failed: u64,
    /// Those that took longer than `hook_time`, so that the process was ended.
    pub late: u64,
    /// Those in which the process ended by itself.
    #[serde(default)]
    pub ended: u64,
    /// The mean time of a call, in microseconds; nothing before the first. A call that was cut counts with its time until then.
    pub mean_micros: Option<f64>,
    /// An upper bound of the time of half of the calls; nothing before the first, and beyond the last bound of the histogram.
    pub median_micros: Option<u64>,
    /// Like [`median_micros`](Self::median_micros), of 99 of a hundred calls.
    pub p99_micros: Option<u64>,
}

impl From<&Hook> for OfHook {
    fn from(hook: &Hook) -> OfHook {
        let sums = hook.counts.sums();
        OfHook {
            name: hook.place.name.clone(),
            script: hook.place.script.clone(),
            line: hook.place.line,
            stage: hook.stage.as_str().to_owned(),
            calls: sums.calls(),
            failed: sums.failed,
            late: sums.late,
            ended: sums.ended,
            // To a tenth of a microsecond.
            mean_micros: sums.mean().map(|mean| (mean.as_nanos() as f64 / 100.0).round() / 10.0),
            median_micros: bound(&sums.buckets, 500),
            p99_micros: bound(&sums.buckets, 990),
        }
    }
}

/// Counts of one application since the start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct OfCounts {
    /// Requests that got a process.
    pub requests: u64,
    /// Requests that raised an exception, were late, or ended their process.
    pub errors: u64,
    /// Processes started.
    pub started: u64,
    /// Processes that ended by themselves.
    pub ended: u64,
    /// Processes that were killed because a request hung.
    pub hung: u64,
    /// Processes that were killed because they wrote what is no reply or report, or closed a connection or their socket without
    /// an end.
    #[serde(default)]
    pub broken: u64,
    /// Versions that could not be loaded.
    pub load_failures: u64,
}

/// A version that could not be loaded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfLoad {
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// The probable remedy; empty where none is known.
    pub hint: String,
    /// The traceback.
    pub traceback: String,
}

/// A process that is importing its application for long.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfLateLoad {
    /// The system's number.
    pub pid: u32,
    /// When it was started, in milliseconds since 1970.
    pub since_millis: u64,
    /// The line where it was; empty where that is not known.
    pub place: String,
}

/// A request that raised an exception.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OfFailure {
    /// When, in milliseconds since 1970.
    pub at_millis: u64,
    /// Its name.
    pub request: String,
    /// Its method.
    pub method: String,
    /// Its target, without the values of its query where `records.hide_query` says so.
    pub target: String,
    /// The traceback.
    pub traceback: String,
}

/// `GET /scripts`.
pub(super) fn list(admin: &Admin, query: &str) -> Reply {
    let wanted = match ScriptsQuery::of_query(query) {
        Ok(wanted) => wanted,
        Err(error) => return Reply::json(422, &api::Refused { error }),
    };
    let query = Query::hidden_if(admin.common.config.records.hide_query);
    let all = admin.nursery.mounts().all();
    let applications = all.iter().map(|state| application(state, query, wanted.failures_max)).collect();
    Reply::json(200, &Scripts { applications })
}

struct ScriptsQuery {
    failures_max: usize,
}

impl ScriptsQuery {
    fn of_query(query: &str) -> Result<ScriptsQuery, String> {
        let mut wanted = ScriptsQuery { failures_max: usize::MAX };
        for (name, value) in parts(query, &[])? {
            match name {
                "failures" => {
                    wanted.failures_max = value.parse().map_err(|_| "failures: a number is needed".to_owned())?;
                }
                other => return Err(format!("{other}: only failures is known")),
            }
        }
        Ok(wanted)
    }
}

fn application(state: &MountState, query: Query, failures_max: usize) -> OfApplication {
    let (mount, processes) = (state.mount(), state.processes());
    let MountReport { python, generation, loaded_at, load_failure, confined, lacks, late_load, failures, .. } =
        state.report();
    let surplus = failures.len().saturating_sub(failures_max);
    OfApplication {
        name: mount.application.name.clone(),
        python: mount.python.name.clone(),
        folder: mount.python.folder.display().to_string(),
        interpreter: script::interpreter(&mount).display().to_string(),
        version: python,
        generation,
        state: state.condition().as_str().to_owned(),
        loaded_at_millis: loaded_at.map(millis),
        processes: processes.iter().map(|process| OfProcess::from(&**process)).collect(),
        processes_max: mount.python.processes,
        confined,
        lacks,
        buffered_bytes: state.buffers.bytes(),
        waiting: state.waiting(),
        counts: OfCounts::from(&state.counts),
        hooks: state.hooks().iter().flat_map(|hooks| hooks.iter().map(OfHook::from)).collect(),
        load_failure: load_failure.map(OfLoad::from),
        late_load: late_load.map(OfLateLoad::from),
        log_bytes_left_out: state.log.left_out(),
        failures: failures.iter().skip(surplus).map(|failure| OfFailure::of(failure.clone(), query)).collect(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<&Process> for OfProcess {
    fn from(process: &Process) -> OfProcess {
        OfProcess {
            pid: process.pid,
            under_way: process.under_way(),
            requests_max: process.requests_max,
            age_seconds: clock::wall().saturating_sub(process.ready_at).as_secs(),
            memory_bytes: resident_bytes(Some(process.pid)),
            cpu_millis: cpu_time(Some(process.pid)).map(millis),
        }
    }
}

impl From<&MountCounts> for OfCounts {
    fn from(counts: &MountCounts) -> OfCounts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        OfCounts {
            requests: count(&counts.requests),
            errors: count(&counts.errors),
            started: count(&counts.started),
            ended: count(&counts.ended),
            hung: count(&counts.hung),
            broken: count(&counts.broken),
            load_failures: count(&counts.load_failures),
        }
    }
}

impl From<FailedLoad> for OfLoad {
    fn from(FailedLoad { traceback, hint, at }: FailedLoad) -> OfLoad {
        OfLoad { at_millis: millis(at), hint, traceback }
    }
}

impl From<LateLoad> for OfLateLoad {
    fn from(LateLoad { pid, since, place }: LateLoad) -> OfLateLoad {
        OfLateLoad { pid, since_millis: millis(since), place }
    }
}

impl OfFailure {
    fn of(failure: Failure, query: Query) -> OfFailure {
        let Failure { request, method, target, traceback, at, .. } = failure;
        OfFailure { at_millis: millis(at), request, method, target: shortened(&target, query), traceback }
    }
}

/// The versions of applications before a reload.
pub(super) fn generations(admin: &Admin) -> BTreeMap<Host, u64> {
    admin.nursery.mounts().all().iter().map(|state| (state.mount().host.clone(), state.newest())).collect()
}

/// Waits until it is known of each application whether a reload could load it; `before` are the versions before that.
pub(super) fn outcomes(admin: &Admin, before: &BTreeMap<Host, u64>) -> Vec<ReloadedScript> {
    /// How often it is looked.
    const PAUSE: Duration = Duration::from_millis(20);
    let began = clock::instant();
    let loading = admin.nursery.loading();
    let is_known = |it: &Loading| it.state.outcome_of(it.generation).is_some();
    // An application that takes longer is loaded behind the answer.
    while began.elapsed() < RELOAD_WAIT && !loading.iter().all(is_known) {
        std::thread::sleep(PAUSE);
    }
    let outcome = |Loading { state, generation }: Loading| {
        let mount = state.mount();
        let is_new = before.get(&mount.host).is_none_or(|before| *before < generation);
        let (outcome, trouble) = match state.outcome_of(generation) {
            None => (LoadOutcome::Loading, None),
            Some(Ok(())) if is_new => (LoadOutcome::Loaded, None),
            Some(Ok(())) => (LoadOutcome::Unchanged, None),
            Some(Err(failure)) if state.serves() => (LoadOutcome::OldGoesOn, Some(failure)),
            Some(Err(failure)) => (LoadOutcome::Failed, Some(failure)),
        };
        let trouble = trouble.map(|failure| failure.in_one_line(&mount.python.folder));
        let late = || state.report().late_load.map(|late| late.place).filter(|place| !place.is_empty());
        let trouble = trouble.or_else(|| late().filter(|_| outcome == LoadOutcome::Loading));
        let meanwhile = (outcome == LoadOutcome::Loading).then(|| state.condition().of_requests().to_owned());
        ReloadedScript { name: mount.application.name.clone(), outcome, trouble, meanwhile }
    };
    loading.into_iter().map(outcome).collect()
}

impl OfApplication {
    /// Whether the application, or its newest version, can't be loaded, or does not come to an end of it.
    pub fn is_in_trouble(&self) -> bool {
        self.late_load.is_some()
            || [Condition::Failed, Condition::ServingOld].iter().any(|condition| self.state == condition.as_str())
    }
}

/// Memory of the processes that serve an application.
pub(super) fn memory_bytes(state: &MountState) -> u64 {
    state.processes().iter().filter_map(|process| resident_bytes(Some(process.pid))).sum()
}

/// CPU times of applications, those of processes that have ended included: a sum of the living ones alone could fall.
#[derive(Default)]
pub(super) struct CpuSums(Mutex<BTreeMap<Host, CpuSum>>);

#[derive(Default)]
struct CpuSum {
    /// Of processes that serve no more, as they were noted last.
    ended: Duration,
    /// Of those that serve, by their numbers.
    serving: BTreeMap<u64, Duration>,
}

impl CpuSums {
    /// Notes the times of all processes.
    pub(super) fn note(&self, mounts: &Mounts) {
        let all = mounts.all();
        self.0.lock().retain(|host, _| all.iter().any(|state| state.mount().host == *host));
        for state in all {
            let _ = self.of(&state);
        }
    }

    /// The time of an application until now.
    pub(super) fn of(&self, state: &MountState) -> Duration {
        let processes = state.processes();
        let mut sums = self.0.lock();
        let sum = sums.entry(state.mount().host.clone()).or_default();
        sum.take(processes.iter().filter_map(|process| Some((process.number, cpu_time(Some(process.pid))?))))
    }
}

impl CpuSum {
    /// Takes the times of the processes that serve now, by their numbers; gives the sum.
    fn take(&mut self, now: impl Iterator<Item = (u64, Duration)>) -> Duration {
        let before = std::mem::replace(&mut self.serving, now.collect());
        let gone = before.iter().filter(|(number, _)| !self.serving.contains_key(number));
        self.ended += gone.map(|(_, time)| *time).sum::<Duration>();
        self.ended + self.serving.values().sum::<Duration>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_that_has_ended_stays_in_the_sum() {
        let mut sum = CpuSum::default();
        let mut take = |now: &[(u64, u64)]| {
            sum.take(now.iter().map(|(number, seconds)| (*number, Duration::from_secs(*seconds)))).as_secs()
        };
        assert_eq!(take(&[(1, 5), (2, 7)]), 12);
        assert_eq!(take(&[(1, 6), (3, 1)]), 14);
        assert_eq!(take(&[]), 14);
        assert_eq!(take(&[(4, 2)]), 16);
    }

    #[test]
    fn queries_of_the_list() {
        let read = |query| ScriptsQuery::of_query(query).map(|wanted| wanted.failures_max);
        assert_eq!((read(""), read("failures=0")), (Ok(usize::MAX), Ok(0)));
        for wrong in ["failures=x", "failures=-1", "x=1", "failures=1&failures=2"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
