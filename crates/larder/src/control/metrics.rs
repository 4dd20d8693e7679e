//! The metrics in Prometheus' text format, by its conventions: base units, `_total` for what only grows, labels from
//! fixed sets. `docs/metrics.md` is made from the table here.

mod cluster;

use super::Admin;
use super::api::{self, OfOrigin};
use super::origins::{self, OfGroup, OfMember, Origins};
use super::proc_files::resident_bytes;
use super::{icap, limits, lists, neighbours};
use crate::diagnostics;
use crate::helper::PoolCounts;
use crate::latency::{BOUNDS_MICROS, BUCKETS};
use crate::lists::ListState;
use crate::record::IcapDid;
use crate::trace::Counts;
use std::cell::OnceCell;
use std::fmt::{Display, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

mod applications;
mod certificates;
mod compression;

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
    origins: OnceCell<Rc<Origins>>,
}

impl Samples {
    fn one(&mut self, value: impl Display) {
        let _ = writeln!(self.out, "{} {value}", self.name);
    }

    fn labelled(&mut self, label: &str, of: &str, value: impl Display) {
        let _ = writeln!(self.out, "{}{{{label}=\"{}\"}} {value}", self.name, escape(of));
    }

    fn limits(&mut self, counts: [(&str, u64); 6]) {
        counts.iter().for_each(|(limit, count)| self.labelled("limit", limit, count));
    }

    /// `labels` are those that all samples of it have.
    fn histogram(&mut self, labels: &str, buckets: &[u64; BUCKETS], seconds: f64) {
        let name = self.name;
        let mut below = 0;
        for (bound, many) in BOUNDS_MICROS.iter().zip(buckets) {
            below += many;
            let bound = *bound as f64 / 1e6;
            let _ = writeln!(self.out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let all: u64 = buckets.iter().sum();
        let _ = writeln!(self.out, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}");
        let _ = writeln!(self.out, "{name}_sum{{{labels}}} {seconds}");
        let _ = writeln!(self.out, "{name}_count{{{labels}}} {all}");
    }

    fn origins(&mut self, admin: &Admin, value: fn(&OfOrigin) -> u64) {
        for origin in api::origins(admin) {
            self.labelled("origin", &origin.origin, value(&origin));
        }
    }

    fn lists(&mut self, admin: &Admin, value: impl Fn(&ListState) -> Option<u64>) {
        for state in admin.common.lists.states() {
            if let Some(value) = value(&state) {
                self.labelled("list", &state.name, value);
            }
        }
    }

    /// The groups of origins, asked for once: each report takes the lock under which members are chosen.
    fn of_origins(&self, admin: &Admin) -> Rc<Origins> {
        Rc::clone(self.origins.get_or_init(|| Rc::new(origins::all(admin))))
    }

    fn groups(&mut self, admin: &Admin, value: fn(&OfGroup) -> u64) {
        for group in &self.of_origins(admin).groups {
            self.labelled("group", &group.name, value(group));
        }
    }

    fn members(&mut self, admin: &Admin, value: fn(&OfMember) -> f64) {
        for group in &self.of_origins(admin).groups {
            for member in &group.members {
                let (of, name) = (escape(&group.name), escape(&member.name));
                let _ = writeln!(self.out, "{}{{group=\"{of}\",member=\"{name}\"}} {}", self.name, value(member));
            }
        }
    }

    fn helpers(&mut self, admin: &Admin, value: fn(&PoolCounts) -> u64) {
        for pool in admin.common.people.helpers.all() {
            self.labelled("helper", &pool.config().name, value(&pool.counts));
        }
    }
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

/// The metrics that stand in no table of their own.
static FAMILIES: &[Family] = &[
    gauge("larder_build_info", "1, with the version as a label.", |_, samples| {
        samples.labelled("version", env!("CARGO_PKG_VERSION"), 1);
    }),
    gauge("larder_start_time_seconds", "When the server started, in seconds since 1970.", |admin, samples| {
        samples.one(admin.started.as_secs_f64());
    }),
    certificates::ENDS,
    certificates::MISSING,
    certificates::ORDERS,
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
    counter("larder_http2_connections_total", "Client connections that spoke HTTP/2.", count!(http2_connections)),
    counter(
        "larder_http2_streams_refused_total",
        "Requests of HTTP/2 refused because their connection had too many streams.",
        count!(http2_streams_refused),
    ),
    counter(
        "larder_http2_limits_total",
        "Connections of HTTP/2 ended by a limit ([http2.md](http2.md)).",
        |admin, samples| samples.limits(limits::of_http2(&admin.common.counters)),
    ),
    counter("larder_http3_connections_total", "Client connections that spoke HTTP/3.", count!(http3_connections)),
    counter(
        "larder_http3_moves_total",
        "Connections of HTTP/3 ended because a request came from another address than the handshake.",
        count!(http3_moves),
    ),
    counter(
        "larder_http3_limits_total",
        "Clients of HTTP/3 that met a limit ([http3.md](http3.md)).",
        |admin, samples| samples.limits(limits::of_http3(&admin.common.counters)),
    ),
    counter("larder_requests_total", "Requests answered, by outcome.", |admin, samples| {
        for sums in admin.common.counters.measures.by_outcome() {
            samples.labelled("outcome", sums.class, sums.requests());
        }
    }),
    counter(
        "larder_logins_total",
        "Credentials that were checked and right or wrong, and requests that were refused because their client had failed too often (limited).",
        |admin, samples| {
            let counts = &admin.common.people.counts;
            for (result, count) in [("right", &counts.right), ("wrong", &counts.wrong), ("limited", &counts.limited)] {
                samples.labelled("result", result, count.load(Ordering::Relaxed));
            }
        },
    ),
    counter("larder_helper_questions_total", "Questions that helpers were asked.", |admin, samples| {
        samples.helpers(admin, |counts| counts.asked.load(Ordering::Relaxed));
    }),
    counter(
        "larder_helper_remembered_total",
        "Questions to helpers whose answers were remembered.",
        |admin, samples| {
            samples.helpers(admin, |counts| counts.remembered.load(Ordering::Relaxed));
        },
    ),
    counter("larder_helper_failures_total", "Questions that helpers have not answered.", |admin, samples| {
        samples.helpers(admin, |counts| counts.failed.load(Ordering::Relaxed));
    }),
    counter("larder_helper_processes_started_total", "Processes of helpers started.", |admin, samples| {
        samples.helpers(admin, |counts| counts.started.load(Ordering::Relaxed));
    }),
    gauge("larder_helper_processes", "Processes of helpers.", |admin, samples| {
        samples.helpers(admin, |counts| counts.running.load(Ordering::Relaxed) as u64);
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
            for sums in admin.common.counters.measures.by_outcome() {
                samples.histogram(&format!("outcome=\"{}\"", sums.class), &sums.buckets, sums.micros as f64 / 1e6);
            }
        },
    },
    counter(
        "larder_bandwidth_waits_total",
        "Pieces of answers and tunnels that waited under a limit of bandwidth.",
        count!(bandwidth_waits),
    ),
    counter(
        "larder_proxy_headers_refused_total",
        "Connections of balancers that were closed for want of a proper header of the PROXY protocol.",
        count!(proxy_headers_refused),
    ),
    counter(
        "larder_transparent_refused_total",
        "Connections to a transparent listener that were closed: without another destination, or with no request and no ClientHello.",
        count!(transparent_refused),
    ),
    counter("larder_pass_through_refused_total", "TLS that no site passes through.", count!(pass_through_refused)),
    counter(
        "larder_socks_refused_total",
        "Connections to a listener of SOCKS that were closed because they broke its protocol, or wanted more of it than is offered.",
        count!(socks_refused),
    ),
    counter("larder_rule_denials_total", "Requests that a rule refused.", count!(rule_denials)),
    counter(
        "larder_rule_refusals_total",
        "Requests that a rule refused, by the rule (its name with file and line); from the 257th rule on as `further rules`.",
        |admin, samples| {
            for (rule, refusals) in admin.common.counters.refused.lock().iter() {
                samples.labelled("rule", rule, refusals.count);
            }
        },
    ),
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
    compression::BODIES,
    compression::READ,
    compression::WRITTEN,
    compression::SECONDS,
    compression::REFUSED,
    compression::UNDER_WAY,
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
    gauge("larder_store_disk_folders_behind", "Folders whose disk is behind with its writes.", disk!(folders_behind)),
    counter(
        "larder_store_disk_passed_by_total",
        "Bodies that were not written to disk because it was behind.",
        disk!(passed_by),
    ),
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
    gauge("larder_upstream_http2_connections", "Those of them that speak HTTP/2.", |admin, samples| {
        samples.origins(admin, |origin| origin.http2_connections as u64);
    }),
    gauge("larder_upstream_http2_streams", "Requests under way at origins by HTTP/2.", |admin, samples| {
        samples.origins(admin, |origin| origin.http2_streams as u64);
    }),
    gauge("larder_upstream_requests_waiting", "Requests that wait for a connection to an origin.", |admin, samples| {
        samples.origins(admin, |origin| origin.waiting as u64);
    }),
    gauge("larder_upstream_workers_behind", "Workers whose requests wait too long for an origin.", |admin, samples| {
        samples.origins(admin, |origin| origin.workers_behind as u64);
    }),
    gauge("larder_workers_behind", "Workers that come too late to their work.", |admin, samples| {
        samples.one(admin.common.workers_behind.load(Ordering::Relaxed));
    }),
    counter(
        "larder_overload_refused_total",
        "Requests answered 503 under overload, by reason: the queue for their origin, the share of their client, their low priority.",
        |admin, samples| {
            let counters = &admin.common.counters;
            samples.labelled("reason", "busy", counters.refused_busy.load(Ordering::Relaxed));
            samples.labelled("reason", "client-busy", counters.refused_client_busy.load(Ordering::Relaxed));
            samples.labelled("reason", "shed", counters.refused_shed.load(Ordering::Relaxed));
        },
    ),
    counter("larder_upstream_connections_opened_total", "Connections to origins opened.", |admin, samples| {
        samples.origins(admin, |origin| origin.opened);
    }),
    counter(
        "larder_upstream_connections_reused_total",
        "Requests to origins on a connection that had served before.",
        |admin, samples| samples.origins(admin, |origin| origin.reused),
    ),
    counter("larder_upstream_proxy_headers_total", "Connections to origins with a PROXY header.", |admin, samples| {
        samples.origins(admin, |origin| origin.proxy_headers);
    }),
    counter("larder_upstream_http2_requests_total", "Requests to origins sent by HTTP/2.", |admin, samples| {
        samples.origins(admin, |origin| origin.http2_requests);
    }),
    counter(
        "larder_upstream_http2_unprocessed_total",
        "Requests by HTTP/2 that their origin said it had not processed, and that were sent again.",
        |admin, samples| samples.origins(admin, |origin| origin.http2_unprocessed),
    ),
    counter(
        "larder_upstream_http2_faults_total",
        "Connections of HTTP/2 ended for a fault of the origin, or at a limit ([http2.md](http2.md#origins)).",
        |admin, samples| samples.origins(admin, |origin| origin.http2_faults),
    ),
    counter(
        "larder_upstream_connections_failed_total",
        "Attempts to open a connection to an origin that failed.",
        |admin, samples| samples.origins(admin, |origin| origin.failed),
    ),
    gauge(
        "larder_origin_member_up",
        "1 for a member of a group that gets requests, its share in its slow start, else 0.",
        |admin, samples| {
            samples.members(admin, |member| match member.state.as_str() {
                "up" | "slow-start" | "suspect" => member.share,
                _ => 0.0,
            });
        },
    ),
    gauge("larder_origin_member_requests_under_way", "Requests under way at a member of a group.", |admin, samples| {
        samples.members(admin, |member| member.under_way as f64);
    }),
    gauge(
        "larder_origin_member_response_seconds",
        "The moving average of a member's time from a request to the head of the answer; 0 before the first.",
        |admin, samples| {
            samples.members(admin, |member| member.response_micros.map_or(0.0, |micros| micros as f64 / 1e6))
        },
    ),
    counter(
        "larder_origin_member_requests_total",
        "Requests that were sent to a member of a group.",
        |admin, samples| {
            samples.members(admin, |member| member.requests as f64);
        },
    ),
    counter("larder_origin_member_failures_total", "Requests to a member of a group that failed.", |admin, samples| {
        samples.members(admin, |member| member.failures as f64);
    }),
    counter("larder_origin_member_ejections_total", "Ejections of a member of a group.", |admin, samples| {
        samples.members(admin, |member| member.ejections as f64);
    }),
    counter(
        "larder_origin_member_ejections_spared_total",
        "Failures for which a member was not ejected because too many others are.",
        |admin, samples| {
            samples.members(admin, |member| member.ejections_spared as f64);
        },
    ),
    counter("larder_origin_member_checks_failed_total", "Active checks of a member that failed.", |admin, samples| {
        samples.members(admin, |member| member.checks_failed as f64);
    }),
    counter(
        "larder_origin_group_requests_total",
        "Requests to a group of origins, without further tries and hedges.",
        |admin, samples| {
            samples.groups(admin, |group| group.requests);
        },
    ),
    counter(
        "larder_origin_group_retries_total",
        "Further tries of requests to a group that failed.",
        |admin, samples| {
            samples.groups(admin, |group| group.retries);
        },
    ),
    counter("larder_origin_group_hedges_total", "Second requests to a group beside late ones.", |admin, samples| {
        samples.groups(admin, |group| group.hedges);
    }),
    counter(
        "larder_origin_group_refused_total",
        "Requests to a group for which no member could be asked.",
        |admin, samples| {
            samples.groups(admin, |group| group.refused);
        },
    ),
    gauge("larder_list_entries", "Entries of a list that is in force.", |admin, samples| {
        samples.lists(admin, |state| state.is_loaded.then_some(state.entries));
    }),
    gauge(
        "larder_list_age_seconds",
        "Seconds since the source of a list was last found to be as it is in force.",
        |admin, samples| samples.lists(admin, lists::age),
    ),
    gauge("larder_list_memory_bytes", "Memory of a list.", |admin, samples| {
        samples.lists(admin, |state| Some(state.memory_bytes as u64));
    }),
    counter("larder_list_looks_total", "Looks at the source of a list.", |admin, samples| {
        samples.lists(admin, |state| Some(state.looks));
    }),
    counter("larder_list_failures_total", "Looks at the source of a list that failed.", |admin, samples| {
        samples.lists(admin, |state| Some(state.failures));
    }),
    counter(
        "larder_list_changes_total",
        "Looks at the source of a list that brought another content.",
        |admin, samples| {
            samples.lists(admin, |state| Some(state.changes));
        },
    ),
    counter("larder_icap_messages_total", "Messages by ICAP service and result.", |admin, samples| {
        for service in icap::all(admin) {
            for did in IcapDid::ALL {
                let (family, name) = (samples.name, escape(&service.settings.name));
                let (result, many) = (did.as_str(), service.counts.of(did));
                let _ = writeln!(samples.out, "{family}{{service=\"{name}\",result=\"{result}\"}} {many}");
            }
        }
    }),
    counter("larder_icap_wait_seconds_total", "Time that messages waited for an ICAP service.", |admin, samples| {
        for service in icap::all(admin) {
            samples.labelled("service", &service.settings.name, icap::seconds(&service));
        }
    }),
    gauge("larder_icap_connections", "Open connections to an ICAP service.", |admin, samples| {
        for service in icap::all(admin) {
            let open = service.servers.iter().map(|server| server.report()).map(|report| report.busy + report.idle);
            samples.labelled("service", &service.settings.name, open.sum::<usize>());
        }
    }),
    gauge(
        "larder_icap_servers_resting",
        "Servers of an ICAP service that failed and are not asked for a while.",
        |admin, samples| {
            for service in icap::all(admin) {
                let resting = service.servers.iter().filter(|server| server.report().rests.is_some()).count();
                samples.labelled("service", &service.settings.name, resting);
            }
        },
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
            samples.labelled("thread", "neighbours", admin.neighbours.restarts.load(Ordering::Relaxed));
            samples.labelled("thread", "lists", admin.list_keeper.restarts());
            samples.labelled("thread", "acme", admin.acme.restarts());
            let traces = admin.common.traces.as_ref().map_or(0, |it| it.counts().restarts.load(Ordering::Relaxed));
            samples.labelled("thread", "traces", traces);
            let cluster = admin.common.cluster.as_ref().map_or(0, |it| it.restarts.load(Ordering::Relaxed));
            samples.labelled("thread", "cluster", cluster);
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
    counter(
        "larder_neighbour_questions_total",
        "Datagrams of neighbouring caches (ICP, HTCP), by answer.",
        |admin, samples| {
            let counts = &admin.neighbours;
            for (answer, count) in [
                ("hit", &counts.hits),
                ("miss", &counts.misses),
                ("denied", &counts.denied),
                ("cleared", &counts.cleared),
                ("unread", &counts.unread),
                ("late", &counts.late),
                ("stranger", &counts.strangers),
            ] {
                samples.labelled("answer", answer, count.load(Ordering::Relaxed));
            }
        },
    ),
    counter(
        "larder_neighbour_answers_total",
        "Answers of siblings and parents that were asked by ICP or HTCP, by what they said.",
        |admin, samples| {
            let counts = &admin.common.neighbour_healths.counts;
            for (answer, count) in [
                ("hit", &counts.hits),
                ("miss", &counts.misses),
                ("refused", &counts.refusals),
                ("silent", &counts.silent),
                ("dead", &counts.dead),
                ("unexpected", &counts.unexpected),
                ("false-hit", &counts.false_hits),
            ] {
                samples.labelled("answer", answer, count.load(Ordering::Relaxed));
            }
        },
    ),
    counter(
        "larder_parent_connections_total",
        "Connections through parents, by parent and result: opened, failed (it could not be connected to), refused (it did not connect to the origin), left-out (not tried, because it had failed of late).",
        |admin, samples| {
            for (parent, report) in neighbours::all(admin) {
                let counts = report.counts;
                for (result, count) in [
                    ("opened", counts.opened),
                    ("failed", counts.failed),
                    ("refused", counts.refused),
                    ("left-out", counts.left_out),
                ] {
                    let (name, of) = (samples.name, escape(&parent.name));
                    let _ = writeln!(samples.out, "{name}{{parent=\"{of}\",result=\"{result}\"}} {count}");
                }
            }
        },
    ),
    gauge(
        "larder_parent_up",
        "0 while a parent is left out because it could not be connected to, else 1.",
        |admin, samples| {
            for (parent, report) in neighbours::all(admin) {
                samples.labelled("parent", &parent.name, u8::from(report.rests_for.is_none()));
            }
        },
    ),
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

/// All metrics, once.
pub fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain(applications::FAMILIES).chain(cluster::FAMILIES)
}

/// All metrics as they are now.
pub(super) fn text(admin: &Admin) -> String {
    let mut samples = Samples { name: "", out: String::with_capacity(32 * 1024), origins: OnceCell::new() };
    for family in families() {
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
    for Family { name, kind, about, .. } in families() {
        let _ = writeln!(out, "| `{name}` | {kind} | {about} |");
    }
    out
}
