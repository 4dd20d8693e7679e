//! The pages of Squid's cache manager, for `squidclient mgr:…` and the scripts built on it: the same names of pages and
//! of lines, with Larder's figures. Figures that Larder has no counterpart of stand as 0 where scripts look for them.

use super::Admin;
use super::api;
use super::history::{Of, Sample, percent};
use crate::client::ShownAddress;
use crate::clock;
use crate::config::Loaded;
use crate::config::manual;
use crate::manager::PREFIX;
use larder_wire::date::{self, Stamp};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FIVE_MINUTES: Duration = Duration::from_secs(300);
const SIXTY_MINUTES: Duration = Duration::from_secs(3_600);

/// A page: its name, a sentence for the menu, and how it is made.
type Page = (&'static str, &'static str, fn(&Admin) -> String);

/// All pages.
static PAGES: &[Page] = &[
    ("menu", "Cache Manager Menu", |_| menu()),
    ("info", "General Runtime Information", info),
    ("counters", "Traffic and Resource Counters", counters),
    ("5min", "5 Minute Average of Counters", |admin| rates(&admin.history.last(FIVE_MINUTES, admin))),
    ("60min", "60 Minute Average of Counters", |admin| rates(&admin.history.last(SIXTY_MINUTES, admin))),
    ("utilization", "Cache Utilization", utilization),
    ("client_list", "Cache Client List", client_list),
    ("server_list", "Peer Cache Statistics", server_list),
    ("config", "Current Configuration", config),
];

/// The page of this path; `None` when there is no such page.
pub fn page(admin: &Admin, path: &str) -> Option<String> {
    let name = path.strip_prefix(PREFIX)?.split(['?', '@']).next()?;
    let name = if matches!(name, "" | "index") { "menu" } else { name };
    PAGES.iter().find(|(page, ..)| *page == name).map(|(.., make)| make(admin))
}

fn menu() -> String {
    let line = |(name, about, _): &Page| format!(" {name:<22}\t{about:<32}\tpublic\n");
    PAGES.iter().map(line).collect()
}

fn http_date(at: Duration) -> String {
    String::from_utf8_lossy(&date::format_date(Stamp(at.as_secs()))).into_owned()
}

fn info(admin: &Admin) -> String {
    let now = Sample::now(admin);
    let (five, sixty) = (admin.history.last(FIVE_MINUTES, admin), admin.history.last(SIXTY_MINUTES, admin));
    let mut out = String::with_capacity(4096);
    connections(admin, &now, &mut out);
    cache(admin, &five, &sixty, &mut out);
    medians(&five, &sixty, &mut out);
    resources(admin, [&now, &five, &sixty], &mut out);
    out
}

fn uptime_seconds(admin: &Admin) -> f64 {
    clock::wall().saturating_sub(admin.started).as_secs_f64().max(1e-3)
}

fn connections(admin: &Admin, now: &Sample, out: &mut String) {
    let failures = now.errors as f64 / (now.hits.max(1)) as f64;
    let _ = write!(
        out,
        "Squid Object Cache: Version larder-{}\nBuild Info: Larder answers as a cache manager does\nService Name: larder\n\
         Start Time:\t{}\nCurrent Time:\t{}\nConnection information for larder:\n\
         \tNumber of clients accessing cache:\t{}\n\tNumber of HTTP requests received:\t{}\n\
         \tNumber of ICP messages received:\t0\n\tNumber of ICP messages sent:\t0\n\tNumber of queued ICP replies:\t0\n\
         \tNumber of HTCP messages received:\t0\n\tNumber of HTCP messages sent:\t0\n\
         \tRequest failure ratio:\t{failures:5.2}\n\
         \tAverage HTTP requests per minute since start:\t{:.1}\n\tAverage ICP messages per minute since start:\t0.0\n\
         \tSelect loop called: 0 times, 0.000 ms avg\n",
        env!("CARGO_PKG_VERSION"),
        http_date(admin.started),
        http_date(now.at),
        admin.visitors().len(),
        now.requests,
        now.requests as f64 * 60.0 / uptime_seconds(admin),
    );
}

fn cache(admin: &Admin, five: &Sample, sixty: &Sample, out: &mut String) {
    let stats = admin.common.cache.stats();
    let memory = percent(stats.memory_bytes, admin.common.config.memory_bytes);
    let disk = admin.common.cache.disk().map(|disk| disk.stats()).unwrap_or_default();
    let disk_budget = admin.common.config.disk_bytes.unwrap_or(0);
    let swap = percent(disk.live_bytes, disk_budget);
    let mean = if stats.objects == 0 { 0.0 } else { stats.memory_bytes as f64 / 1024.0 / stats.objects as f64 };
    let _ = write!(
        out,
        "Cache information for larder:\n\
         \tHits as % of all requests:\t5min: {:.1}%, 60min: {:.1}%\n\
         \tHits as % of bytes sent:\t5min: {:.1}%, 60min: {:.1}%\n\
         \tStorage Swap size:\t{} KB\n\tStorage Swap capacity:\t{swap:4.1}% used, {:4.1}% free\n\
         \tStorage Mem size:\t{} KB\n\tStorage Mem capacity:\t{memory:4.1}% used, {:4.1}% free\n\
         \tMean Object Size:\t{mean:.2} KB\n\tRequests given to unlinkd:\t0\n",
        five.hit_percent(),
        sixty.hit_percent(),
        five.byte_percent(),
        sixty.byte_percent(),
        disk.live_bytes.div_ceil(1024),
        if disk_budget == 0 { 0.0 } else { (100.0 - swap).max(0.0) },
        stats.memory_bytes.div_ceil(1024),
        (100.0 - memory).max(0.0),
    );
}

fn medians(five: &Sample, sixty: &Sample, out: &mut String) {
    out.push_str("Median Service Times (seconds)  5 min    60 min:\n");
    for (label, of) in [
        ("HTTP Requests (All):", Some(Of::All)),
        ("Cache Misses:", Some(Of::Misses)),
        ("Cache Hits:", Some(Of::Hits)),
        ("Near Hits:", None),
        ("Not-Modified Replies:", Some(Of::Validated)),
        ("DNS Lookups:", None),
        ("ICP Queries:", None),
    ] {
        let median = |sample: &Sample| of.map_or(0.0, |of| sample.median_seconds(of));
        let _ = writeln!(out, "\t{label:<21} {:8.5} {:8.5}", median(five), median(sixty));
    }
}

fn resources(admin: &Admin, [now, five, sixty]: [&Sample; 3], out: &mut String) {
    let up = uptime_seconds(admin);
    let usage = |sample: &Sample| 100.0 * sample.cpu_seconds / sample.at.as_secs_f64().max(1e-3);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(0);
    let objects = admin.common.cache.stats().objects;
    let on_disk = admin.common.cache.disk().map_or(0, |disk| disk.stats().heads);
    let _ = write!(
        out,
        "Resource usage for larder:\n\tUP Time:\t{up:.3} seconds\n\tCPU Time:\t{:.3} seconds\n\tCPU Usage:\t{:.2}%\n\
         \tCPU Usage, 5 minute avg:\t{:.2}%\n\tCPU Usage, 60 minute avg:\t{:.2}%\n\
         File descriptor usage for larder:\n\tMaximum number of file descriptors:   {limit}\n\
         \tNumber of file desc currently in use: {open:4}\n\
         Internal Data Structures:\n\t{objects:6} StoreEntries\n\t{objects:6} StoreEntries with MemObjects\n\
         \t{on_disk:6} on-disk objects\n",
        now.cpu_seconds,
        100.0 * now.cpu_seconds / up,
        usage(five),
        usage(sixty),
    );
}

fn counters(admin: &Admin) -> String {
    let now = Sample::now(admin);
    let kib = |bytes: u64| bytes / 1024;
    let mut out = format!("sample_time = {}.{:06} ({})\n", now.at.as_secs(), now.at.subsec_micros(), http_date(now.at));
    for (name, value) in [
        ("client_http.requests", now.requests),
        ("client_http.hits", now.hits),
        ("client_http.errors", now.errors),
        ("client_http.kbytes_in", 0),
        ("client_http.kbytes_out", kib(now.bytes_sent)),
        ("client_http.hit_kbytes_out", kib(now.bytes_from_store)),
        ("server.all.requests", now.upstream_requests),
        ("server.all.errors", now.errors),
        ("server.all.kbytes_in", kib(now.bytes_fetched)),
        ("server.all.kbytes_out", 0),
        ("server.http.requests", now.upstream_requests),
        ("server.http.errors", now.errors),
        ("server.http.kbytes_in", kib(now.bytes_fetched)),
        ("server.http.kbytes_out", 0),
        ("icp.pkts_sent", 0),
        ("icp.pkts_recv", 0),
        ("swap.outs", 0),
        ("swap.ins", 0),
    ] {
        let _ = writeln!(out, "{name} = {value}");
    }
    let _ = writeln!(
        out,
        "cpu_time = {:.6}\nwall_time = {:.6}",
        now.cpu_seconds,
        (now.at - admin.started.min(now.at)).as_secs_f64()
    );
    out
}

/// Averages over the time of a sample.
fn rates(sample: &Sample) -> String {
    let seconds = sample.at.as_secs_f64().max(1e-3);
    let end = clock::wall();
    let begin = end.saturating_sub(sample.at);
    let mut out = String::new();
    for (name, at) in [("sample_start_time", begin), ("sample_end_time", end)] {
        let _ = writeln!(out, "{name} = {}.{:06} ({})", at.as_secs(), at.subsec_micros(), http_date(at));
    }
    for (name, value) in [
        ("client_http.requests", sample.requests as f64),
        ("client_http.hits", sample.hits as f64),
        ("client_http.errors", sample.errors as f64),
        ("client_http.kbytes_in", 0.0),
        ("client_http.kbytes_out", sample.bytes_sent as f64 / 1024.0),
    ] {
        let _ = writeln!(out, "{name} = {:.6}/sec", value / seconds);
    }
    for (name, of) in [("all", Of::All), ("miss", Of::Misses), ("nm", Of::Validated), ("hit", Of::Hits)] {
        let _ = writeln!(out, "client_http.{name}_median_svc_time = {:.6} seconds", sample.median_seconds(of));
    }
    for name in ["all", "http"] {
        let _ = writeln!(out, "server.{name}.requests = {:.6}/sec", sample.upstream_requests as f64 / seconds);
        let _ = writeln!(out, "server.{name}.errors = {:.6}/sec", sample.errors as f64 / seconds);
        let _ = writeln!(out, "server.{name}.kbytes_in = {:.6}/sec", sample.bytes_fetched as f64 / 1024.0 / seconds);
        let _ = writeln!(out, "server.{name}.kbytes_out = 0.000000/sec");
    }
    let usage = 100.0 * sample.cpu_seconds / seconds;
    let _ = writeln!(
        out,
        "cpu_time = {:.6} seconds\nwall_time = {seconds:.6} seconds\ncpu_usage = {usage:.6}%",
        sample.cpu_seconds
    );
    out
}

fn utilization(admin: &Admin) -> String {
    let five = rates(&admin.history.last(FIVE_MINUTES, admin));
    let sixty = rates(&admin.history.last(SIXTY_MINUTES, admin));
    let all = counters(admin);
    format!("Cache Utilisation:\n\nLast 5 minutes:\n{five}\nLast hour:\n{sixty}\nTotals since cache startup:\n{all}")
}

fn client_list(admin: &Admin) -> String {
    let mut out = "Cache Clients:\n".to_owned();
    let visitors = admin.visitors();
    let (mut requests, many) = (0, visitors.len());
    for (address, visitor) in visitors {
        requests += visitor.requests;
        let address = ShownAddress(address);
        let _ = write!(
            out,
            "Address: {address}\nName:    {address}\nCurrently established connections: {}\n    ICP  Requests 0\n    HTTP Requests {}\n\n",
            visitor.open, visitor.requests
        );
    }
    let _ = write!(
        out,
        "TOTALS\nICP : 0 Queries, 0 Hits (  0%)\nHTTP: {requests} Requests, {} Hits\nClients: {many}\n",
        admin.common.counters.hits.load(Ordering::Relaxed)
    );
    out
}

fn server_list(admin: &Admin) -> String {
    let mut out = "There are no neighbors installed. Origins:\n\n".to_owned();
    for origin in api::origins(admin) {
        let _ = write!(
            out,
            "Origin     : {}\nOPEN CONNS AVAILABLE: {}\nOPEN CONNS : {}\nFETCHES    : {}\nFAILED     : {}\n\n",
            origin.origin,
            origin.idle,
            origin.open,
            origin.opened + origin.reused,
            origin.failed
        );
    }
    out
}

fn config(admin: &Admin) -> String {
    let config = (*admin.common.live.value()).clone();
    manual::dump(&Loaded { config, sources: admin.sources.lock().clone(), file: None, files: Vec::new() })
}
