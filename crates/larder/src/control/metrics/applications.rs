//! The metrics of applications in Python and their hooks.

use super::{Family, Samples, counter, escape, gauge};
use crate::control::{Admin, scripts};
use crate::mount::{HookSums, MountCounts, MountState};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

impl Samples {
    fn applications<V: Display + Default + AddAssign>(&mut self, admin: &Admin, value: impl Fn(&MountState) -> V) {
        for (name, sum) in by_application(admin, value) {
            self.labelled("application", &name, sum);
        }
    }

    fn application_counts(&mut self, admin: &Admin, count: fn(&MountCounts) -> &AtomicU64) {
        self.applications(admin, |state| count(&state.counts).load(Ordering::Relaxed));
    }
}

/// The hooks of all applications with their labels. The same hook of the same files in several `[[python]]` is one, which has their sum.
fn by_hook(admin: &Admin) -> BTreeMap<String, HookSums> {
    let mut sums: BTreeMap<String, HookSums> = BTreeMap::new();
    for state in admin.nursery.mounts().all() {
        let application = escape(&state.mount().application.name);
        for (hook, counted) in state.hook_book.all() {
            let (name, script, stage) = (escape(&hook.name), escape(&hook.script), hook.stage.as_str());
            let labels = format!("application=\"{application}\",script=\"{script}\",hook=\"{name}\",stage=\"{stage}\"");
            sums.entry(labels).or_default().add(&counted);
        }
    }
    sums
}

/// The same application in several `[[python]]` is one, which has their sum.
fn by_application<V: Default + AddAssign>(admin: &Admin, value: impl Fn(&MountState) -> V) -> BTreeMap<String, V> {
    let mut sums: BTreeMap<String, V> = BTreeMap::new();
    for state in admin.nursery.mounts().all() {
        *sums.entry(state.mount().application.name.clone()).or_default() += value(&state);
    }
    sums
}

/// All of them.
pub(super) const FAMILIES: &[Family] = &[
    gauge("larder_script_processes", "Processes that serve an application in Python.", |admin, samples| {
        samples.applications(admin, |state| state.processes().len());
    }),
    counter("larder_script_requests_total", "Requests that got a process of an application.", |admin, samples| {
        samples.application_counts(admin, |counts| &counts.requests);
    }),
    gauge("larder_script_requests_waiting", "Requests that wait for a process of an application.", |admin, samples| {
        samples.applications(admin, MountState::waiting);
    }),
    gauge(
        "larder_script_requests_under_way",
        "Requests under way in processes of an application.",
        |admin, samples| {
            samples.applications(admin, |state| {
                state.processes().iter().map(|process| process.under_way()).sum::<usize>()
            });
        },
    ),
    counter(
        "larder_script_errors_total",
        "Requests that raised an exception in an application or its hooks, were late, or ended their process.",
        |admin, samples| {
            samples.application_counts(admin, |counts| &counts.errors);
        },
    ),
    counter("larder_script_processes_started_total", "Processes of an application started.", |admin, samples| {
        samples.application_counts(admin, |counts| &counts.started);
    }),
    counter(
        "larder_script_processes_ended_total",
        "Processes of an application that ended by themselves (ended), or were ended because a request hung (hung), or because they wrote what is no reply or report, or closed a connection or their socket (broken), by reason.",
        |admin, samples| {
            let family = samples.name;
            let ended = by_application(admin, |state| state.counts.ended.load(Ordering::Relaxed));
            let hung = by_application(admin, |state| state.counts.hung.load(Ordering::Relaxed));
            let broken = by_application(admin, |state| state.counts.broken.load(Ordering::Relaxed));
            for (reason, sums) in [("ended", ended), ("hung", hung), ("broken", broken)] {
                for (name, many) in sums {
                    let application = escape(&name);
                    let labels = format!("application=\"{application}\",reason=\"{reason}\"");
                    let _ = writeln!(samples.out, "{family}{{{labels}}} {many}");
                }
            }
        },
    ),
    counter(
        "larder_script_load_failures_total",
        "Versions of an application that could not be loaded.",
        |admin, samples| samples.application_counts(admin, |counts| &counts.load_failures),
    ),
    counter(
        "larder_script_log_bytes_left_out_total",
        "Bytes that an application wrote beyond what is passed on to the log.",
        |admin, samples| samples.applications(admin, |state| state.log.left_out()),
    ),
    gauge(
        "larder_script_memory_bytes",
        "Resident memory of the processes that serve an application.",
        |admin, samples| {
            samples.applications(admin, scripts::memory_bytes);
        },
    ),
    counter(
        "larder_script_cpu_seconds_total",
        "User and system time of the processes that serve an application, and of those that have ended, as last looked at.",
        |admin, samples| samples.applications(admin, |state| admin.script_cpu.of(state).as_secs_f64()),
    ),
    Family {
        name: "larder_hook_duration_seconds",
        kind: "histogram",
        about: "How long calls of a hook took in its process. A decision that was remembered is no call. A call that was late, or in which the process ended, counts with its time until then.",
        samples: |admin, samples| {
            for (labels, sums) in by_hook(admin) {
                samples.histogram(&labels, &sums.buckets, sums.nanos as f64 / 1e9);
            }
        },
    },
    counter(
        "larder_hook_failures_total",
        "Calls of a hook that raised an exception or decided what can't be done (failed), took longer than `hook_time` (late), or in which the process ended by itself (ended), by reason.",
        |admin, samples| {
            let family = samples.name;
            for (labels, sums) in by_hook(admin) {
                for (reason, many) in [("failed", sums.failed), ("late", sums.late), ("ended", sums.ended)] {
                    let _ = writeln!(samples.out, "{family}{{{labels},reason=\"{reason}\"}} {many}");
                }
            }
        },
    ),
];
