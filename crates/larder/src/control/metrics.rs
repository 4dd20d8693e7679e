//! The metrics in Prometheus' text format, by its conventions: base units, `_total` for what only grows, labels from
//! fixed sets. `docs/metrics.md` is made from the table here.

use super::Admin;
use super::api::{self, OfOrigin};
use super::proc_files::resident_bytes;
use super::scripts;
use crate::diagnostics;
use crate::mount::{MountCounts, MountState};
use crate::record::{BOUNDS_MICROS, OutcomeSums};
use crate::trace::Counts;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// One metric.
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// One sentence.
    pub about: &'static str,
    samples: fn(&Admin, &mut Samples),
}

/// Writes the samples of one metric.
struct Samples {
    name: &'static str,
    out: String,
}

impl Samples {
    fn one(&mut self, value: impl Display) {
        let _ = writeln!(self.out, "{} {value}", self.name);
    }

    fn labelled(&mut self, label: &str, of: &str, value: impl Display) {
        let _ = writeln!(self.out, "{}{{{label}=\"{}\"}} {value}", self.name, escape(of));
    }

    fn histogram(&mut self, sums: &OutcomeSums) {
        let (name, class) = (self.name, sums.class);
        let mut below = 0;
        for (bound, many) in BOUNDS_MICROS.iter().zip(sums.buckets) {
            below += many;
            let bound = *bound as f64 / 1e6;
            let _ = writeln!(self.out, "{name}_bucket{{outcome=\"{class}\",le=\"{bound}\"}} {below}");
        }
        let all = sums.requests();
        let _ = writeln!(self.out, "{name}_bucket{{outcome=\"{class}\",le=\"+Inf\"}} {all}");
        let _ = writeln!(self.out, "{name}_sum{{outcome=\"{class}\"}} {}", sums.micros as f64 / 1e6);
        let _ = writeln!(self.out, "{name}_count{{outcome=\"{class}\"}} {all}");
    }

    fn origins(&mut self, admin: &Admin, value: fn(&OfOrigin) -> u64) {
        for origin in api::origins(admin) {
            self.labelled("origin", &origin.origin, value(&origin));
        }
    }

    fn applications<V: Display + Default + AddAssign>(&mut self, admin: &Admin, value: impl Fn(&MountState) -> V) {
        for (name, sum) in by_application(admin, value) {
            self.labelled("application", &name, sum);
        }
    }

    fn application_counts(&mut self, admin: &Admin, count: fn(&MountCounts) -> &AtomicU64) {
        self.applications(admin, |state| count(&state.counts).load(Ordering::Relaxed));
    }
}

/// The same application in several `[[python]]` is one, which has their sum.
fn by_application<V: Default + AddAssign>(admin: &Admin, value: impl Fn(&MountState) -> V) -> BTreeMap<String, V> {
    let mut sums: BTreeMap<String, V> = BTreeMap::new();
    for state in admin.nursery.mounts().all() {
        *sums.entry(state.mount().application.name.clone()).or_default() += value(&state);
    }
    sums
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const fn counter(name: &'static str, about: &'static str, samples: fn(&Admin, &mut Samples)) -> Family {
    Family { name, kind: "counter", about, samples }
}

const fn gauge(name: &'static str, about: &'static str, samples: fn(&Admin, &mut Samples)) -> Family {
    Family { name, kind: "gauge", about, samples }
}

macro_rules! count {
    ($name:ident) => {
        |admin, samples| samples.one(admin.common.counters.$name.load(Ordering::Relaxed))
    };
}

/// 0 without a disk store.
macro_rules! disk {
    ($name:ident) => {
        |admin, samples| samples.one(admin.common.cache.disk().map_or(0, |disk| disk.stats().$name))
    };
}

/// All metrics, once.
pub static FAMILIES: &[Family] = &[
    gauge("larder_build_info", "1, with the version as a label.", |_, samples| {
        samples.labelled("version", env!("CARGO_PKG_VERSION"), 1);
    }),
    gauge("larder_start_time_seconds", "When the server started, in seconds since 1970.", |admin, samples| {
        samples.one(admin.started.as_secs_f64());
    }),
    gauge("larder_workers", "Worker threads that serve.", |admin, samples| samples.one(admin.upstream.lock().len())),
    gauge("larder_connections", "Client connections that are open.", |admin, samples| {
        samples.one(admin.connections.count());
    }),
    counter("larder_connections_accepted_total", "Client connections accepted.", count!(connections)),
    counter(
        "larder_connections_refused_total",
        "Client connections refused because there were too many.",
        count!(connections_refused),
    ),
    counter(
        "larder_tls_handshakes_failed_total",
        "TLS handshakes with clients that failed.",
        count!(handshakes_failed),
    ),
    counter("larder_requests_total", "Requests answered, by outcome.", |admin, samples| {
        for sums in admin.common.counters.measures.by_outcome() {
            samples.labelled("outcome", sums.class, sums.requests());
        }
    }),
    counter("larder_misses_total", "Requests for which an origin was asked, by cause.", |admin, samples| {
        for (cause, many) in admin.common.counters.measures.by_cause() {
            samples.labelled("cause", cause, many);
        }
    }),
    counter("larder_response_body_bytes_total", "Body bytes sent to clients, by outcome.", |admin, samples| {
        for sums in admin.common.counters.measures.by_outcome() {
            samples.labelled("outcome", sums.class, sums.bytes);
        }
    }),
    Family {
        name: "larder_request_duration_seconds",
        kind: "histogram",
        about: "From the head of a request to the end of its answer, by outcome.",
        samples: |admin, samples| {
            admin.common.counters.measures.by_outcome().iter().for_each(|sums| samples.histogram(sums));
        },
    },
    counter(
        "larder_malformed_requests_total",
        "Requests refused because their bytes were no proper HTTP.",
        count!(faults),
    ),
    counter(
        "larder_digests_checked_total",
        "Bodies from origins that were held against the digest that was named for them, by result.",
        |admin, samples| {
            let counters = &admin.common.counters;
            samples.labelled("result", "matched", counters.digests_matched.load(Ordering::Relaxed));
            samples.labelled("result", "wrong", counters.digests_wrong.load(Ordering::Relaxed));
        },
    ),
    counter(
        "larder_package_indexes_total",
        "Indexes of packages that clients got and that were to be read for the digests that they name, by result.",
        |admin, samples| {
            let counters = &admin.common.counters;
            samples.labelled("result", "read", counters.indexes_read.load(Ordering::Relaxed));
            samples.labelled("result", "unread", counters.indexes_unread.load(Ordering::Relaxed));
        },
    ),
    counter(
        "larder_parallel_requests_total",
        "Range requests that were sent ahead of a running download.",
        count!(parallel_requests),
    ),
    counter("larder_parallel_bytes_total", "Body bytes that such requests brought.", count!(parallel_bytes)),
    counter(
        "larder_parallel_stops_total",
        "Downloads whose further range requests were ended by an error, a refusal or a changed object.",
        count!(parallel_stops),
    ),
    counter("larder_panics_total", "Requests that met a broken invariant and were answered 500.", count!(panics)),
    gauge("larder_store_objects", "Keys with something stored or under way.", |admin, samples| {
        samples.one(admin.common.cache.stats().objects);
    }),
    gauge("larder_store_memory_bytes", "Bytes that the memory store holds.", |admin, samples| {
        samples.one(admin.common.cache.stats().memory_bytes);
    }),
    gauge("larder_store_memory_limit_bytes", "Budget of the memory store.", |admin, samples| {
        samples.one(admin.common.config.memory_bytes);
    }),
    counter("larder_store_evictions_total", "Stored responses that made room for others.", |admin, samples| {
        samples.one(admin.common.cache.stats().evictions);
    }),
    gauge("larder_store_disk_objects", "Stored responses that the disk store knows.", disk!(heads)),
    gauge("larder_store_disk_live_bytes", "Bytes on disk that can still be served.", disk!(live_bytes)),
    gauge("larder_store_disk_bytes", "Bytes of the disk store's files.", disk!(allocated_bytes)),
    gauge("larder_store_disk_limit_bytes", "Budget of the disk store.", |admin, samples| {
        samples.one(admin.common.config.disk_bytes.unwrap_or(0));
    }),
    gauge("larder_store_disk_index_bytes", "Memory of the disk store's index.", disk!(index_bytes)),
    gauge("larder_store_disk_queue_bytes", "Bytes that wait to be written to disk.", disk!(queue_bytes)),
    counter("larder_store_disk_written_bytes_total", "Bytes written to disk, also again.", disk!(written_bytes)),
    counter(
        "larder_store_disk_rewritten_bytes_total",
        "Bytes written again because they were in use when their segment was recycled.",
        disk!(rewritten_bytes),
    ),
    counter("larder_store_disk_refused_total", "Puts that the disk store refused, by reason.", |admin, samples| {
        let stats = admin.common.cache.disk().map(|disk| disk.stats()).unwrap_or_default();
        samples.labelled("reason", "queue", stats.refused_queue);
        samples.labelled("reason", "large", stats.refused_large);
        samples.labelled("reason", "bypass", stats.refused_bypass);
    }),
    counter(
        "larder_store_disk_bad_records_total",
        "Records that failed their checks and were dropped.",
        disk!(bad_records),
    ),
    counter("larder_store_disk_read_errors_total", "Reads from disk that failed.", disk!(read_errors)),
    gauge("larder_upstream_connections", "Connections to origins that are open.", |admin, samples| {
        samples.origins(admin, |origin| origin.open as u64);
    }),
    gauge("larder_upstream_connections_idle", "Those of them that are idle.", |admin, samples| {
        samples.origins(admin, |origin| origin.idle as u64);
    }),
    gauge("larder_upstream_requests_waiting", "Requests that wait for a connection to an origin.", |admin, samples| {
        samples.origins(admin, |origin| origin.waiting as u64);
    }),
    counter("larder_upstream_connections_opened_total", "Connections to origins opened.", |admin, samples| {
        samples.origins(admin, |origin| origin.opened);
    }),
    counter(
        "larder_upstream_connections_reused_total",
        "Requests to origins on a connection that had served before.",
        |admin, samples| samples.origins(admin, |origin| origin.reused),
    ),
    counter(
        "larder_upstream_connections_failed_total",
        "Attempts to open a connection to an origin that failed.",
        |admin, samples| samples.origins(admin, |origin| origin.failed),
    ),
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
    counter("larder_script_errors_total", "Requests that raised an exception in an application.", |admin, samples| {
        samples.application_counts(admin, |counts| &counts.errors);
    }),
    counter("larder_script_processes_started_total", "Processes of an application started.", |admin, samples| {
        samples.application_counts(admin, |counts| &counts.started);
    }),
    counter(
        "larder_script_processes_ended_total",
        "Processes of an application that ended by themselves, or were ended because a request hung, by reason.",
        |admin, samples| {
            let family = samples.name;
            let ended = by_application(admin, |state| state.counts.ended.load(Ordering::Relaxed));
            let hung = by_application(admin, |state| state.counts.hung.load(Ordering::Relaxed));
            for (reason, sums) in [("ended", ended), ("hung", hung)] {
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
    counter(
        "larder_log_lines_dropped_total",
        "Lines of the access log that were lost: too slow a sink, a full disk, nobody who reads.",
        |admin, samples| {
            samples.one(admin.common.log.dropped());
        },
    ),
    counter(
        "larder_diagnostics_dropped_total",
        "Warnings and other texts for standard error that were lost because nobody took them.",
        |_, samples| samples.one(diagnostics::dropped()),
    ),
    counter(
        "larder_thread_restarts_total",
        "How often a thread met a broken invariant outside any request and went on, by thread.",
        |admin, samples| {
            samples.labelled("thread", "worker", admin.common.worker_restarts.load(Ordering::Relaxed));
            samples.labelled("thread", "control", admin.control_restarts.load(Ordering::Relaxed));
            samples.labelled("thread", "log", admin.common.log.restarts());
            let traces = admin.common.traces.as_ref().map_or(0, |it| it.counts().restarts.load(Ordering::Relaxed));
            samples.labelled("thread", "traces", traces);
            samples.labelled(
                "thread",
                "disk",
                admin.common.cache.disk().map_or(0, |disk| {
                    let stats = disk.stats();
                    stats.reader_restarts + stats.writer_restarts
                }),
            );
        },
    ),
    counter("larder_trace_spans_exported_total", "Spans that the collector of traces took.", |admin, samples| {
        samples.one(admin.common.traces.as_ref().map_or(0, |traces| traces.counts().exported.load(Ordering::Relaxed)));
    }),
    counter("larder_trace_spans_dropped_total", "Spans that were lost, by reason.", |admin, samples| {
        let count = |of: fn(&Counts) -> &AtomicU64| {
            admin.common.traces.as_ref().map_or(0, |traces| of(traces.counts()).load(Ordering::Relaxed))
        };
        samples.labelled("reason", "queue", count(|counts| &counts.dropped_queue));
        samples.labelled("reason", "collector", count(|counts| &counts.dropped_collector));
    }),
    counter("larder_reloads_total", "Reloads of the configuration, by result.", |admin, samples| {
        samples.labelled("result", "done", admin.reloads.done.load(Ordering::Relaxed));
        samples.labelled("result", "refused", admin.reloads.refused.load(Ordering::Relaxed));
    }),
    gauge("process_resident_memory_bytes", "Memory of the process.", |_, samples| {
        if let Some(bytes) = resident_bytes(None) {
            samples.one(bytes);
        }
    }),
    gauge("process_open_fds", "Open descriptors of the process.", |_, samples| {
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            samples.one(open.count());
        }
    }),
    gauge("process_max_fds", "How many descriptors the process may open.", |_, samples| {
        if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
            samples.one(limit);
        }
    }),
];

/// All metrics as they are now.
pub(super) fn text(admin: &Admin) -> String {
    let mut samples = Samples { name: "", out: String::with_capacity(32 * 1024) };
    for family in FAMILIES {
        let Family { name, kind, about, .. } = family;
        let _ = writeln!(samples.out, "# HELP {name} {about}\n# TYPE {name} {kind}");
        samples.name = name;
        (family.samples)(admin, &mut samples);
    }
    samples.out
}

/// The reference, as it stands in `docs/metrics.md`.
pub fn markdown() -> String {
    let mut out = "# Metrics\n\nThis page is made from the table in `control/metrics.rs`. `/metrics` of the admin address serves them in \
                   Prometheus' text format.\n\nThe sets of labels are fixed: outcomes and causes are the words of the access log; at most \
                   100 origins are told apart, the others are `origin=\"other\"`.\n\n| metric | type | |\n|---|---|---|\n"
        .to_owned();
    for Family { name, kind, about, .. } in FAMILIES {
        let _ = writeln!(out, "| `{name}` | {kind} | {about} |");
    }
    out
}
