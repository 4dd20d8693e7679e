//! Every figure of a summary once: its key, its name, how it is written, which direction is good, how it is found.
//!
//! The tables on the terminal and on the page, CSV, Prometheus and thresholds all come from this list.

use super::Summary;
use super::verdict::own_share;
use crate::chart::Unit;
use crate::ledger::{Class, Histogram, Mode, Side};

/// A figure of a summary.
pub struct Metric {
    /// Its name in CSV, Prometheus and thresholds.
    pub key: &'static str,
    /// Its name in tables.
    pub name: &'static str,
    /// The part of the tables that it belongs to.
    pub group: Group,
    /// How it is written.
    pub unit: Unit,
    /// Which direction is good.
    pub better: Better,
    /// Its meaning, in a sentence.
    pub sentence: &'static str,
    of: fn(&Summary<'_>) -> Option<f64>,
}

impl Metric {
    /// Its value, if the run has one.
    pub fn of(&self, summary: &Summary<'_>) -> Option<f64> {
        // The load around a kill or a power cut is a probe and no test of speed.
        let is_probe = !summary.ledger.downtimes.is_empty() && self.group.is_of_load();
        // A server that makes pages has neither a store nor an origin.
        let makes_pages = summary.ledger.run.target.mode == Mode::Pages;
        let is_of_caches = makes_pages && matches!(self.group, Group::Hits | Group::Origin);
        (self.of)(summary).filter(|value| value.is_finite() && !is_probe && !is_of_caches)
    }

    /// Its value as reports show it: a percentile that fewer than [`BEYOND_MIN`] replies lie beyond says nothing.
    pub fn shown(&self, summary: &Summary<'_>) -> Option<f64> {
        let is_carried = self.percentile().is_none_or(|part| is_carried(self.histogram(summary), part));
        self.of(summary).filter(|_| is_carried)
    }

    /// The share of replies below it, if it is a percentile.
    fn percentile(&self) -> Option<f64> {
        let number = self.key.rsplit_once(".p").map(|(_, number)| number).or_else(|| self.key.strip_prefix('p'))?;
        number.parse::<f64>().ok().map(|percent| percent / 100.0)
    }

    /// The times that a percentile is of.
    fn histogram<'s>(&self, summary: &'s Summary<'_>) -> &'s Histogram {
        match self.key.rsplit_once(".p").map_or("", |(of, _)| of) {
            "hit" => response(summary, Class::Hit),
            "collapsed" => response(summary, Class::Collapsed),
            "miss" => response(summary, Class::Miss),
            "service" => &summary.phase.service.all,
            "first_byte" => &summary.phase.first_byte,
            "lateness" => &summary.phase.lateness,
            _ => response(summary, Class::All),
        }
    }

    /// Whether noise of the machine can spoil it: times, rates and CPU, but no numbers of objects and no hit ratios.
    pub fn is_spoilt_by_noise(&self) -> bool {
        match self.group {
            Group::Response | Group::Service | Group::Streams | Group::Normalised => true,
            // These tell of the noise itself.
            Group::Trust => false,
            // The gap between probes and the length of the stop are chosen.
            Group::Downtime => matches!(self.key, "downtime.accept" | "downtime.miss" | "downtime.hit"),
            _ => {
                let is_of_time = matches!(self.unit, Unit::PerSecond | Unit::Micros | Unit::Bits | Unit::Cores);
                is_of_time || matches!(self.key, "replies" | "duration" | "energy_j" | "energy_w")
            }
        }
    }

    /// The metric of a key.
    pub fn named(key: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.key == key)
    }
}

/// Replies that must lie beyond a percentile for it to be shown.
pub(super) const BEYOND_MIN: u64 = 10;

/// Whether enough replies lie beyond a percentile.
pub(super) fn is_carried(histogram: &Histogram, part: f64) -> bool {
    // One part in a million for what binary fractions leave over.
    histogram.count() as f64 * (1.0 - part) * 1.000_001 >= BEYOND_MIN as f64
}

/// Which direction of a metric is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
    /// It describes, it does not rank.
    Neither,
}

/// Parts of the executive table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Work done.
    Throughput,
    /// From the intended start of a request to its last byte.
    Response,
    /// From the first byte sent.
    Service,
    /// Requests side by side on a connection of HTTP/2.
    Streams,
    /// Answers of the cache.
    Hits,
    /// The work of the origins.
    Origin,
    /// Errors.
    Errors,
    /// The cost for the machine.
    Cost,
    /// Divided by price or power.
    Normalised,
    /// After a kill or a power cut.
    Downtime,
    /// How far the referee and the machine can be trusted.
    Trust,
}

impl Group {
    /// The groups in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Downtime,
        Self::Throughput,
        Self::Response,
        Self::Streams,
        Self::Hits,
        Self::Errors,
        Self::Cost,
        Self::Normalised,
        Self::Service,
        Self::Origin,
        Self::Trust,
    ];

    /// Whether it says something only where a load was asked for.
    fn is_of_load(self) -> bool {
        matches!(self, Self::Throughput | Self::Response | Self::Service | Self::Streams | Self::Hits | Self::Origin)
    }

    /// The heading.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throughput => "Throughput",
            Self::Response => "Response time, from the intended start",
            Self::Service => "Service time, from the first byte sent",
            Self::Streams => "Streams of a connection, from the first byte sent",
            Self::Hits => "Hits",
            Self::Origin => "Origins",
            Self::Errors => "Errors",
            Self::Cost => "Cost of the cache",
            Self::Normalised => "Normalised",
            Self::Downtime => "After the outage",
            Self::Trust => "Trust",
        }
    }
}

macro_rules! metrics {
    ($($group:ident { $($key:literal $name:literal $unit:ident $better:ident $sentence:literal $of:expr;)+ })+) => {
        /// All metrics in the order of tables.
        pub static METRICS: &[Metric] = &[$($(Metric {
            key: $key,
            name: $name,
            group: Group::$group,
            unit: Unit::$unit,
            better: Better::$better,
            sentence: $sentence,
            of: $of,
        },)+)+];
    };
}

metrics! {
    Throughput {
        "rps" "replies" PerSecond More "Replies per second of the reported phase." |s| s.per_second(s.phase.replies() as f64);
        "bps" "traffic" Bits More "Bits of replies per second, heads included." |s| s.per_second(s.phase.class(Class::All).bytes as f64 * 8.0);
        "asked" "requests due" PerSecond Neither "Requests per second that the schedule asked for; none where robots ask as fast as they are answered." |s| s.per_second(s.phase.due as f64).filter(|_| s.phase.due > 0 && s.is_paced());
        "replies" "replies counted" Count Neither "Replies of the reported phase." |s| Some(s.phase.replies() as f64).filter(|_| s.phase.length_us > 0);
        "duration" "duration" Elapsed Neither "Length of the reported phase." |s| (s.phase.length_us > 0).then(|| s.seconds());
        "robots" "robots" Count Neither "Clients of the reported phase, where their number stayed the same." |s| s.constant(|levels| levels.robots);
        "body" "body, mean" Bytes Neither "Mean size of the bodies of all replies." |s| s.phase.class(Class::All).size.mean();
        "kept" "requests on kept connections" Share Neither "Requests of robots on a connection that had carried one before." |s| s.phase.connections.get(&Side::Client).and_then(|side| ratio(side.reused, side.reused + side.opened));
        "objects" "URLs that repeat" Count Neither "Objects that are asked for again and again, without what pages embed, where their number stayed the same in the reported phase." |s| s.constant(|levels| levels.working_set);
    }
    Response {
        "mean" "mean" Micros Less "Mean of all replies." |s| response(s, Class::All).mean();
        "hit.mean" "mean of hits" Micros Less "Mean of the basic hits from the store." |s| response(s, Class::Hit).mean();
        "collapsed.mean" "mean of collapsed" Micros Less "Mean of the basic replies that waited for a fetch under way." |s| response(s, Class::Collapsed).mean();
        "miss.mean" "mean of misses" Micros Less "Mean of basic misses." |s| response(s, Class::Miss).mean();
        "p50" "median" Micros Less "Half of all replies came within it." |s| quantile(response(s, Class::All), 0.5);
        "p90" "90 %" Micros Less "Nine of ten replies came within it." |s| quantile(response(s, Class::All), 0.9);
        "p99" "99 %" Micros Less "99 of 100 replies came within it." |s| quantile(response(s, Class::All), 0.99);
        "p99.9" "99.9 %" Micros Less "999 of 1,000 replies came within it." |s| quantile(response(s, Class::All), 0.999);
        "p99.99" "99.99 %" Micros Less "9,999 of 10,000 replies came within it." |s| quantile(response(s, Class::All), 0.9999);
        "max" "maximum" Micros Less "The slowest reply." |s| response(s, Class::All).max().map(|us| us as f64);
        "hit.p50" "median of hits" Micros Less "Half of the hits came within it." |s| quantile(response(s, Class::Hit), 0.5);
        "hit.p99" "99 % of hits" Micros Less "99 of 100 hits came within it." |s| quantile(response(s, Class::Hit), 0.99);
        "collapsed.p50" "median of collapsed" Micros Less "Half of the collapsed replies came within it." |s| quantile(response(s, Class::Collapsed), 0.5);
        "collapsed.p99" "99 % of collapsed" Micros Less "99 of 100 collapsed replies came within it." |s| quantile(response(s, Class::Collapsed), 0.99);
        "miss.p50" "median of misses" Micros Less "Half of the misses came within it." |s| quantile(response(s, Class::Miss), 0.5);
        "miss.p99" "99 % of misses" Micros Less "99 of 100 misses came within it." |s| quantile(response(s, Class::Miss), 0.99);
    }
    Service {
        "service.mean" "mean" Micros Less "Mean from the first byte sent to the last byte received." |s| s.phase.service.all.mean();
        "service.p99" "99 %" Micros Less "The same, 99 of 100 replies." |s| quantile(&s.phase.service.all, 0.99);
        "first_byte.p50" "first byte, median" Micros Less "From the first byte sent to the first byte received." |s| quantile(&s.phase.first_byte, 0.5);
        "wait.mean" "wait for a connection, mean" Micros Less "Time a request stood in the queue for a connection; part of the response time, not of the service time." |s| s.phase.wait.mean();
        "connect.mean" "connecting, mean" Micros Less "Time to make a connection." |s| s.phase.connect.mean();
        "handshake.mean" "TLS handshake, mean" Micros Less "Time of a TLS handshake; part of the response and of the service time of the first request on a connection." |s| s.phase.handshake.mean();
        "handshakes" "TLS handshakes" Count Less "Handshakes of robots that succeeded." |s| handshakes(s).map(|(all, _)| all as f64);
        "handshakes.resumed" "of those, resumed" Share More "Handshakes that took up an earlier session." |s| handshakes(s).and_then(|(all, resumed)| ratio(resumed, all));
    }
    Streams {
        "streams.alone" "small hit alone on its connection, median" Micros Less "Hits of at most 16 KB over HTTP/2, where nothing else was under way on the connection." |s| quantile(&s.phase.streams.alone, 0.5);
        "streams.beside" "small hit beside a large reply, median" Micros Less "Hits of at most 16 KB over HTTP/2 that were asked for while a reply of 1 MB and more was under way on the connection." |s| quantile(&s.phase.streams.beside_large, 0.5);
        "streams.fairness" "beside a large reply, as a multiple of alone" Ratio Less "The median time of small hits beside a large reply divided by that of small hits alone: 1 where streams do not wait for each other." |s| Some(quantile(&s.phase.streams.beside_large, 0.5)? / quantile(&s.phase.streams.alone, 0.5).filter(|us| *us > 0.0)?);
    }
    Hits {
        "dhr" "document hit ratio" Share More "Replies to basic requests without an origin transaction of their own: from the store, or collapsed." |s| hits(s, |f| (f.hits, f.replies));
        "dhr.collapsed" "of those, collapsed" Share Neither "Replies to basic requests that waited for a fetch under way, as a share of all basic replies." |s| hits(s, |f| (f.collapsed, f.replies)).filter(|share| *share > 0.0);
        "dhr.offered" "offered" Share Neither "The share that a cache which never forgets would have answered of the same requests." |s| hits(s, |f| (f.offered, f.replies));
        "dhr.of_offered" "hits of those offered" Share More "Hits divided by the hits that a cache which never forgets would have had of the same requests." |s| hits(s, |f| (f.hits, f.offered));
        "dhr.ideal" "ideal of the full-length workload" Share Neither "The document hit ratio of an ideal cache with the workload at full length, by the plan; the requests of a shorter run may offer more or less." |s| s.ledger.run.ideal.dhr;
        "bhr" "byte hit ratio" Share More "Bytes of hits among the bytes of replies to basic requests." |s| hits(s, |f| (f.hit_bytes, f.bytes));
        "bhr.offered" "offered bytes" Share Neither "Bytes that a cache that never forgets would have given." |s| hits(s, |f| (f.offered_bytes, f.bytes));
        "parts.hits" "hit ratio of parts" Share More "Hits among the replies to requests for parts." |s| {
            let parts = s.phase.class(Class::Range);
            ratio(parts.hits, parts.replies)
        };
        "urls" "new URLs" Count Neither "URLs asked for the first time in the reported phase." |s| (s.phase.fresh_urls > 0).then_some(s.phase.fresh_urls as f64);
        "recurrence" "recurrence" Share Neither "Requests that repeat an earlier one, cachable or not." |s| ratio(s.phase.repeats, s.phase.sent);
    }
    Errors {
        "errors" "errors" Count Less "Requests without a right answer." |s| Some(s.phase.errors.total() as f64).filter(|_| s.phase.length_us > 0);
        "errors.share" "errors, share of requests" Share Less "Errors among errors and replies." |s| ratio(s.phase.errors.total(), s.phase.errors.total() + s.phase.replies());
        "remarks" "remarks" Count Less "Replies and fetches that break a rule without harm to the client, or cost the origin needless work." |s| Some(s.phase.errors.remarks() as f64).filter(|count| *count > 0.0);
        "lies" "wrong answers" Count Less "Answers that came and were not right." |s| Some(s.phase.errors.lies() as f64).filter(|_| s.phase.length_us > 0);
    }
    Cost {
        "cpu_us" "CPU per reply" Micros Less "CPU time of all processes of the cache, user and system, the kernel's network work in their context included, per reply." |s| cpu_per_reply(s);
        "cpu" "CPU, cores" Cores Less "Cores that the cache kept busy." |s| cache_load(s, |l| f64::from(l.cache_cpu));
        "cpu.helpers" "of that, other programs, cores" Cores Neither "CPU of the cache's processes of other programs than the one that has worked most: helpers, and cleaners that go through the store whatever the load; only where there are such." |s| cache_load(s, |l| f64::from(l.cache_helpers)).filter(|cores| *cores > 0.0);
        "memory" "memory" Bytes Less "Largest memory of all processes of the cache, sampled once a second, shared pages counted once (PSS; RSS where the kernel does not tell it)." |s| cache_load(s, |l| l.cache_memory as f64);
        "processes" "processes" Count Neither "Most processes of the cache at a time." |s| cache_load(s, |l| l.cache_processes as f64).filter(|count| *count > 0.0);
        "threads" "threads" Count Neither "Most threads of all its processes at a time." |s| cache_load(s, |l| l.cache_threads as f64);
        "descriptors" "open files" Count Less "Most open files." |s| cache_load(s, |l| l.cache_descriptors as f64);
        "energy_j" "energy of the machine per 1,000 replies, J" Count Less "Energy of the processors and their memory by their own counters, referee included, per 1,000 replies; only where the machine shows them." |s| energy_j(s).zip(ratio(1_000, s.phase.replies())).map(|(joules, share)| joules * share);
        "energy_w" "power of the machine, W" Count Less "The same energy per second." |s| energy_j(s).filter(|_| s.phase.length_us > 0).map(|joules| joules / (s.phase.length_us as f64 / 1e6));
        "written" "written to files" Bytes Less "Bytes that the processes of the cache wrote into files in the reported phase, as the kernel counts them when pages are changed: a file that is deleted soon counts, and one in memory (tmpfs) does not." |s| cache_load(s, |l| l.cache_written as f64);
    }
    Normalised {
        "rps_per_price" "replies/s per 1,000 of price" Count More "Replies per second for 1,000 units of the price that was given." |s| per_price(s, s.per_second(s.phase.replies() as f64)?);
        "hits_per_price" "hits/s per 1,000 of price" Count More "Hits per second for 1,000 units of the price that was given." |s| per_price(s, s.per_second(s.phase.class(Class::Hit).replies as f64)?);
        "rps_per_watt" "replies/s per watt" Count More "Replies per second and watt, which is replies per joule." |s| Some(s.per_second(s.phase.replies() as f64)? / s.ledger.run.watts?);
    }
    Downtime {
        "downtime.accept" "first connection" Micros Less "From the start command to the first connection." |s| Some(s.ledger.downtimes.first()?.first_accept_us? as f64);
        "downtime.miss" "first miss" Micros Less "From the start command to the first answered miss." |s| Some(s.ledger.downtimes.first()?.first_miss_us? as f64);
        "downtime.hit" "first hit" Micros Less "From the start command to the first hit on what was stored before." |s| Some(s.ledger.downtimes.first()?.first_hit_us? as f64);
        "downtime.kept" "kept of the older objects" Share More "Of the objects stored before the load that ran until the outage, those served from the store afterwards." |s| { let d = s.ledger.downtimes.first()?; ratio(d.kept, d.probed) };
        "downtime.asked" "older objects asked for" Count Neither "Objects of before the load that were asked for after the start, to tell how many were kept." |s| Some(s.ledger.downtimes.first()?.probed as f64);
        "downtime.late" "kept of the last 5 s" Share More "Of the objects asked for the first time in the last 5 seconds before the outage, those served from the store afterwards." |s| { let d = s.ledger.downtimes.first()?; ratio(d.late_kept, d.late_probed) };
        "downtime.late_asked" "objects of the last 5 s asked for" Count Neither "Objects of the last 5 seconds that were asked for after the start, to tell how many were kept." |s| Some(s.ledger.downtimes.first()?.late_probed as f64);
        "downtime.exact" "times after the start, exact to" Micros Neither "Gap between two probes, for the first connection, miss and hit." |s| { let d = s.ledger.downtimes.first()?; d.first_accept_us.map(|_| d.resolution_us as f64) };
        "downtime.dark" "stopped for" Micros Neither "Time from the stop to the command that starts the cache again." |s| Some(s.ledger.downtimes.first()?.dark_us as f64).filter(|us| *us > 0.0);
        "downtime.wrong" "wrong bytes" Count Less "Answers after the start whose bytes were not those of the object." |s| Some(s.ledger.downtimes.first()?.wrong as f64);
    }
    Origin {
        "origin.rps" "requests" PerSecond Neither "Requests per second that reached the origins." |s| s.per_second(s.phase.origin.requests as f64).filter(|_| s.phase.origin.requests > 0);
        "origin.share" "per reply" Ratio Less "Requests to origins per reply to a robot." |s| ratio(s.phase.origin.requests, s.phase.replies()).filter(|_| s.phase.origin.requests > 0);
        "origin.trip" "round trip of their link, median" Micros Neither "As measured before the run: what a request that goes to an origin pays besides the time that the origin thinks." |s| s.ledger.run.links.iter().find(|link| link.side == Some(Side::Server)).and_then(|link| quantile(&link.measured, 0.5)).filter(|us| *us >= 1_000.0);
        "origin.opened" "connections opened" Count Less "Connections that the cache made to origins." |s| Some(s.phase.connections.get(&Side::Server)?.opened as f64);
        "origin.again" "bytes fetched again" Bytes Less "Bytes of unchanged objects that had been sent whole before." |s| Some(s.phase.origin.bytes_again as f64).filter(|bytes| *bytes > 0.0);
    }
    Trust {
        "lateness.p99" "lateness of the referee, 99 %" Micros Neither "From the intended to the real start of a request that had nothing to wait for." |s| quantile(&s.phase.lateness, 0.99);
        "own_thread" "busiest thread of the referee, cores" Cores Neither "The part of a core that the busiest thread of the referee used, or all threads of each of its cores if that is more: the limit of a rate that nobody asked for." |s| s.load.map(|l| f64::from(own_share(s.ledger, &l)));
        "own_cpu" "CPU of the referee, cores" Cores Neither "Cores that the referee kept busy." |s| s.load.map(|l| f64::from(l.own_cpu));
        "steal" "stolen, cores" Cores Neither "Cores that the hypervisor gave to somebody else." |s| s.load.map(|l| f64::from(l.steal));
        "others" "other processes, cores" Cores Neither "Cores that other processes used." |s| s.load.map(|l| f64::from(l.others_cpu));
    }
}

fn response<'s>(summary: &'s Summary<'_>, class: Class) -> &'s Histogram {
    &summary.phase.class(class).response
}

/// TLS handshakes of robots, and those of them that resumed a session.
fn handshakes(summary: &Summary<'_>) -> Option<(u64, u64)> {
    let client = summary.phase.connections.get(&Side::Client).filter(|client| client.handshakes > 0)?;
    Some((client.handshakes, client.resumed))
}

fn quantile(histogram: &Histogram, part: f64) -> Option<f64> {
    histogram.quantile(part).map(|us| us as f64)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn hits(summary: &Summary<'_>, parts: fn(&crate::ledger::Figures) -> (u64, u64)) -> Option<f64> {
    let (part, whole) = parts(summary.phase.class(Class::Basic));
    ratio(part, whole)
}

/// Load of the cache, if its processes were seen.
fn cache_load(summary: &Summary<'_>, of: fn(&crate::ledger::Load) -> f64) -> Option<f64> {
    summary.load.as_ref().filter(|load| load.cache_threads > 0).map(of)
}

/// Energy of the reported phase in joules, where the machine shows it.
fn energy_j(summary: &Summary<'_>) -> Option<f64> {
    Some(summary.load?.energy_uj? as f64 / 1e6)
}

fn cpu_per_reply(summary: &Summary<'_>) -> Option<f64> {
    let cores = cache_load(summary, |load| f64::from(load.cache_cpu))?;
    ratio(summary.phase.length_us, summary.phase.replies()).map(|us_per_reply| us_per_reply * cores)
}

fn per_price(summary: &Summary<'_>, rate: f64) -> Option<f64> {
    let price = summary.ledger.run.price.as_ref().filter(|price| price.amount > 0.0)?;
    Some(rate / price.amount * 1_000.0)
}
