//! The summary at the end of a run: bytes first, then the time saved, the hosts, and each reason for a fetch, in sentences with what
//! would change it. The same facts as JSON for programs.

use super::mirrored::Told;
use crate::record::{RunExchange, RunHost, RunMiss, RunStats};
use serde::Serialize;
use std::time::Duration;

/// Reasons that are listed; the rest is counted together.
const REASONS_MAX: usize = 6;

/// Hosts that are listed; the rest is counted together.
const HOSTS_MAX: usize = 5;

/// A run that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended<'a> {
    /// Its counts; `None` where the server went away.
    pub stats: Option<&'a RunStats>,
    /// How long it took.
    pub took: Duration,
    /// How much longer it would have taken without the store, as far as is known.
    pub saved: Option<Duration>,
    /// The next run finds the responses that this one fetched.
    pub keeps: bool,
    /// The tools that were told of the mirror or were not, where TLS was not opened.
    pub told: &'a [Told],
}

/// Those facts for programs.
#[derive(Serialize)]
struct Machine<'a> {
    status: u8,
    seconds: f64,
    saved_seconds: Option<f64>,
    keeps: bool,
    #[serde(skip_serializing_if = "<[Told]>::is_empty")]
    mirror: &'a [Told],
    #[serde(flatten)]
    stats: Option<&'a RunStats>,
}

impl Ended<'_> {
    /// As JSON, with the exit status of the command.
    pub(super) fn json(&self, status: u8) -> String {
        let machine = Machine {
            status,
            seconds: self.took.as_secs_f64(),
            saved_seconds: self.saved.map(|saved| saved.as_secs_f64()),
            keeps: self.keeps,
            mirror: self.told,
            stats: self.stats,
        };
        serde_json::to_string_pretty(&machine).unwrap_or_default() + "\n"
    }

    /// The lines for people, each with `larder: ` before it.
    pub(super) fn text(&self) -> String {
        let lines = match self.stats {
            None => vec!["the server that this run had joined went away, and its counts with it".to_owned()],
            Some(stats) if stats.requests == 0 && !self.told.is_empty() => vec![NOTHING_CAME_BY_MIRROR.to_owned()],
            Some(stats) if stats.requests == 0 => vec![NOTHING_CAME.to_owned()],
            Some(stats) => self.lines(stats),
        };
        let lines = [lines, told(self.told)].concat();
        lines.iter().map(|line| format!("larder: {line}\n")).collect()
    }

    fn lines(&self, stats: &RunStats) -> Vec<String> {
        let mut lines = vec![
            format!(
                "{} came from the store{}, {} from origins, in {:.1} s",
                size(stats.bytes_from_store),
                share(stats.bytes_from_store, stats.bytes_fetched),
                size(stats.bytes_fetched),
                self.took.as_secs_f64()
            ),
            format!("{} of {} answered from the store", stats.hits, requests(stats.requests)),
        ];
        if let Some(saved) = self.saved.filter(|saved| *saved >= Duration::from_millis(50)) {
            lines.push(format!("about {} saved, at the pace of earlier fetches from the same hosts", span(saved)));
        }
        lines.extend(hosts(&stats.hosts));
        if stats.network_away > 0 {
            let old = match stats.outdated {
                0 => "answers came from the store".to_owned(),
                old => format!("{} older than their lifetime", was(old, "answer")),
            };
            let away = match stats.portal {
                0 => "the network was away",
                _ => "the network answered with a page of its own, as before a login",
            };
            lines.push(format!("{away}; {old}"));
        } else if stats.outdated > 0 {
            lines.push(format!(
                "{}: older than their lifetime, used without asking the origin",
                requests(stats.outdated)
            ));
        }
        if !stats.missing.is_empty() {
            let many = counted(stats.missing.len() as u64, "download");
            lines.push(format!("{many} not in the store; `larder fetch-later` lists them"));
        }
        lines.extend(reasons(&stats.misses, self.keeps));
        if stats.tunnels > 0 {
            let what = format!("{} passed through unopened, which nothing can be kept of", size(stats.bytes_tunnelled));
            lines.push(format!("{}: {what}", counted(stats.tunnels, "tunnel")));
        }
        for (word, many) in &stats.refused {
            lines.push(format!("{} answered by Larder itself ({word})", requests(*many)));
        }
        for (word, many) in &stats.failed {
            lines.push(format!("{} failed at the origin or on the way to it ({word})", requests(*many)));
        }
        lines
    }
}

const NOTHING_CAME: &str = "no request came through Larder: the command downloaded nothing, or it does not heed the proxy \
                            variables (http_proxy, https_proxy)";

const NOTHING_CAME_BY_MIRROR: &str =
    "no request came through Larder: the command downloaded nothing, or it uses no index of these tools";

/// The tools that came through the mirror, and those that did not.
fn told(all: &[Told]) -> Vec<String> {
    let mut lines = Vec::new();
    let names: Vec<&str> = all.iter().filter(|told| told.why_not.is_none()).map(|told| told.tool).collect();
    if !names.is_empty() {
        lines.push(format!("nothing was intercepted; told of the mirror: {}", names.join(", ")));
    }
    let not = all.iter().filter_map(|told| Some((told.tool, told.why_not?)));
    lines.extend(not.map(|(tool, why)| format!("not told of the mirror: {tool}: {why}")));
    lines
}

/// A line for each host, where there is more than one.
fn hosts(hosts: &[RunHost]) -> Vec<String> {
    if hosts.len() < 2 {
        return Vec::new();
    }
    let told = hosts.iter().take(HOSTS_MAX);
    let width = told.clone().map(|host| host.host.chars().count()).max().unwrap_or(0).min(48);
    let line = |name: &str, from_store: u64, fetched: u64| {
        let (from_store, fetched) = (size(from_store), size(fetched));
        format!("  {name:width$}  {from_store:>7} from the store, {fetched:>7} fetched")
    };
    let mut lines: Vec<String> = told.map(|host| line(&host.host, host.bytes_from_store, host.bytes_fetched)).collect();
    let rest = hosts.get(HOSTS_MAX..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = |of: fn(&RunHost) -> u64| rest.iter().map(of).sum();
        let name = counted(rest.len() as u64, "other host");
        lines.push(line(&name, sum(|host| host.bytes_from_store), sum(|host| host.bytes_fetched)));
    }
    lines
}

fn reasons(misses: &[RunMiss], keeps: bool) -> Vec<String> {
    let mut lines: Vec<String> = misses
        .iter()
        .take(REASONS_MAX)
        .map(|miss| format!("{}{}: {}", requests(miss.requests), of_host(miss), reason(miss, keeps)))
        .collect();
    let rest: u64 = misses.iter().skip(REASONS_MAX).map(|miss| miss.requests).sum();
    if rest > 0 {
        lines.push(format!("{} went to origins for other reasons", requests(rest)));
    }
    lines
}

/// `, 13.9 MB, most of it from deb.example`
fn of_host(miss: &RunMiss) -> String {
    match (miss.bytes, &*miss.host, miss.requests) {
        (0, ..) => String::new(),
        (bytes, "", _) => format!(", {}", size(bytes)),
        (bytes, host, 1) => format!(", {} from {host}", size(bytes)),
        (bytes, host, _) => format!(", {}, the largest from {host}", size(bytes)),
    }
}

/// Why a request of a run was answered as it was, in a few words.
pub fn why(exchange: &RunExchange) -> String {
    let lifetime = exchange.lifetime.as_ref().map(|(seconds, by)| format!("{} ({by})", seconds_in_words(*seconds)));
    match (&*exchange.outcome, lifetime) {
        ("hit", Some(lifetime)) => format!("from the store, fresh for {lifetime}"),
        ("hit", None) => "from the store, fresh".to_owned(),
        ("hit-stale", Some(lifetime)) => {
            format!("from the store, older than its {lifetime}, used unasked")
        }
        ("hit-error", _) => "from the store, because the origin did not answer".to_owned(),
        ("hit-stale" | "hit-revalidating", _) => "from the store, past its lifetime".to_owned(),
        ("validated", _) => "from the store, after the origin said that it still holds".to_owned(),
        ("collapsed", _) => "from the fetch of another request".to_owned(),
        ("uri-miss", _) => match &exchange.not_stored {
            Some(why) => format!("fetched, and could not be kept: {}", not_kept(why)),
            None => "fetched for the first time, and kept".to_owned(),
        },
        (other, _) => format!("not from the store ({other})"),
    }
}

/// Why origins were asked, and what would change that.
pub(crate) fn reason(miss: &RunMiss, keeps: bool) -> String {
    if let Some(why) = &miss.not_stored {
        return format!("could not be kept: {}", not_kept(why));
    }
    match &*miss.cause {
        "uri-miss" if !keeps => "asked for the first time; nothing is kept for the next run",
        "uri-miss" => "asked for the first time; the next run finds them in the store",
        "vary-miss" => "stored only for requests with other fields (Vary); the next run finds these too",
        "evicted" => "had made room for others; a larger `disk` keeps more",
        "disk-behind" => {
            "could not be kept the last time: they were too long for memory, and the disk was behind with its writes"
        }
        "not-admitted" => {
            "had not been kept on disk, where only what is asked for twice goes; `disk_admission` changes that"
        }
        "purged" => "had been purged",
        "invalidated" => "had become void by a request that changes things (POST, PUT, DELETE)",
        "changed" => "had changed at the origin",
        "lost" => "were stored, and could not be read any more; `larder store verify` looks at the disk",
        "not-stored" => "could not be kept the last time either; `larder explain URL` says why",
        "stale" => "were too old to be used without asking, and the origin had something else",
        "no-cache" => "are to be validated each time, by their origin's wish, and the origin had something else",
        "request" => {
            "the command itself asked for something newer than the store has (Cache-Control: no-cache or max-age)"
        }
        "hook" => "were fetched anew because a hook of the site said so",
        "apart" => "were validated, for purges of other machines may not be known here",
        "method" => "used a method whose answers are never kept, as POST",
        "partial" => "were stored in part; the rest was fetched and is kept now",
        "condition" => "had a condition that only the origin can judge",
        "request-body" => "had a body, which no stored answer fits",
        "upgrade" => "offered to change the protocol",
        "destination" => "named another host than the one that was connected to",
        "not-shared" => "waited for an answer to another request, which was for that one alone",
        other => other,
    }
    .to_owned()
}

/// Why an answer was not stored.
fn not_kept(why: &str) -> &str {
    match why {
        "method" => "only answers to GET are",
        "request-body" => "the request had a body",
        "request-no-store" => "the command asked for that (no-store)",
        "status" | "not-explicit" => "answers of such a status are not, unless the origin says so",
        "must-understand" => "the answer demands understanding of a status that Larder does not know",
        "no-store" => "the origin forbids it (no-store)",
        "private" => "the answer is for one user (private)",
        "authorization" => "the request had credentials, and the origin does not say that others may have the answer",
        "vary-any" => "the answer is for this request alone (Vary: *)",
        "partial" => "parts without a strong validator can't be put together",
        "set-cookie" => "the answer sets a cookie",
        "no-freshness" => "the origin gives neither a lifetime nor a validator",
        "too-long" => "longer than the store takes; `object_bytes_max` changes that",
        "disk-behind" => "too long for memory, and the disk was behind with its writes",
        "other-variant" => "parts that would take the place of responses for other requests",
        "coded" => "stored coded, which its origin no longer permits",
        other => other,
    }
}

/// ` (67 % of all bytes)`; nothing of nothing has no share.
pub(crate) fn share(from_store: u64, fetched: u64) -> String {
    match from_store + fetched {
        0 => String::new(),
        all => format!(" ({} of all bytes)", percent(from_store, all)),
    }
}

/// In whole percent, rounded to the nearest; 100 and 0 only when it is all or nothing.
pub(crate) fn percent(part: u64, all: u64) -> String {
    let rounded = (part as u128 * 200 / all as u128).div_ceil(2);
    match rounded {
        100 if part < all => "over 99 %".to_owned(),
        0 if part > 0 => "under 1 %".to_owned(),
        rounded => format!("{rounded} %"),
    }
}

fn requests(many: u64) -> String {
    counted(many, "request")
}

pub(crate) fn counted(many: u64, what: &str) -> String {
    if many == 1 { format!("1 {what}") } else { format!("{many} {what}s") }
}

/// As in "1 answer was", "2 answers were".
fn was(many: u64, what: &str) -> String {
    format!("{} {}", counted(many, what), if many == 1 { "was" } else { "were" })
}

/// Three digits are enough at the end of a run.
pub(crate) fn size(bytes: u64) -> String {
    let unit = [("TB", 1_000_000_000_000u64), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    match unit.iter().find(|(_, factor)| bytes >= *factor) {
        Some((name, factor)) => {
            let value = bytes as f64 / *factor as f64;
            let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
            format!("{value:.digits$} {name}")
        }
        None => format!("{bytes} B"),
    }
}

/// A span of time with two digits or three.
pub(crate) fn span(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{} ms", time.as_millis()),
        seconds if seconds < 120.0 => format!("{seconds:.1} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}

/// A lifetime in its largest unit.
fn seconds_in_words(seconds: u64) -> String {
    let unit = [(31_536_000, "year"), (86_400, "day"), (3_600, "hour"), (60, "minute")];
    match unit.into_iter().find(|(length, _)| seconds >= *length) {
        Some((length, name)) => counted(seconds / length, name),
        None => counted(seconds, "second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cause, LaterRequest};

    fn miss(cause: &str, not_stored: Option<&str>, requests: u64) -> RunMiss {
        RunMiss { cause: cause.to_owned(), not_stored: not_stored.map(str::to_owned), requests, ..RunMiss::default() }
    }

    fn summary(stats: Option<&RunStats>, took: Duration, keeps: bool) -> String {
        Ended { stats, took, saved: None, keeps, told: &[] }.text()
    }

    #[test]
    fn bytes_come_first_then_each_reason_in_a_sentence() {
        let stats = RunStats {
            requests: 12,
            hits: 8,
            bytes_from_store: 2_000_000,
            bytes_fetched: 1_000_000,
            misses: vec![miss("uri-miss", None, 2), miss("uri-miss", Some("no-store"), 1)],
            refused: vec![("denied".to_owned(), 1)],
            ..RunStats::default()
        };
        let expected = "\
larder: 2.00 MB came from the store (67 % of all bytes), 1.00 MB from origins, in 2.5 s
larder: 8 of 12 requests answered from the store
larder: 2 requests: asked for the first time; the next run finds them in the store
larder: 1 request: could not be kept: the origin forbids it (no-store)
larder: 1 request answered by Larder itself (denied)
";
        assert_eq!(summary(Some(&stats), Duration::from_millis(2_500), true), expected);
        let forgets = summary(Some(&stats), Duration::ZERO, false);
        assert!(forgets.contains("nothing is kept for the next run") && !forgets.contains("finds them"), "{forgets}");
        assert!(summary(Some(&RunStats::default()), Duration::ZERO, true).contains("no request came"));
        assert!(summary(None, Duration::ZERO, true).contains("went away"));
        let later = LaterRequest { url: "http://a.example/".to_owned(), ..LaterRequest::default() };
        let offline = RunStats { requests: 3, hits: 2, outdated: 2, missing: vec![later], ..RunStats::default() };
        let said = summary(Some(&offline), Duration::ZERO, true);
        let away = RunStats { requests: 3, hits: 3, outdated: 2, network_away: 2, ..RunStats::default() };
        let told = summary(Some(&away), Duration::ZERO, true);
        assert!(told.contains("larder: the network was away; 2 answers were older than their lifetime\n"), "{told}");
        let portal = summary(Some(&RunStats { portal: 1, ..away }), Duration::ZERO, true);
        assert!(portal.contains("larder: the network answered with a page of its own, as before a login; 2 answers"));
        assert!(
            said.contains("2 requests: older than their lifetime") && said.contains("1 download not in the store"),
            "{said}"
        );
    }

    #[test]
    fn several_hosts_and_the_bytes_of_a_reason_are_told() {
        let host = |name: &str, from_store, fetched| RunHost {
            host: name.to_owned(),
            bytes_from_store: from_store,
            bytes_fetched: fetched,
            ..RunHost::default()
        };
        let mut hosts = vec![host("files.example", 2_000_000, 0), host("a.example", 5, 1_500)];
        hosts.extend((0..5).map(|_| host("small.example", 1, 0)));
        let miss = RunMiss { bytes: 13_900_000, host: "files.example".to_owned(), ..miss("uri-miss", None, 2) };
        let stats = RunStats { requests: 9, hits: 7, misses: vec![miss], hosts, ..RunStats::default() };
        let saved = Some(Duration::from_millis(2_340));
        let told = [
            Told { tool: "a", variables: vec!["A"], why_not: None },
            Told { tool: "b", variables: vec![], why_not: Some("no") },
        ];
        let ended = Ended { stats: Some(&stats), took: Duration::ZERO, saved, keeps: true, told: &told };
        let said = ended.text();
        for line in [
            "larder: nothing was intercepted; told of the mirror: a\n",
            "larder: not told of the mirror: b: no\n",
            "larder: about 2.3 s saved, at the pace of earlier fetches from the same hosts\n",
            "larder:   files.example  2.00 MB from the store,     0 B fetched\n",
            "larder:   2 other hosts      2 B from the store,     0 B fetched\n",
            "larder: 2 requests, 13.9 MB, the largest from files.example: asked for the first time;",
        ] {
            assert!(said.contains(line), "{said}");
        }
        let json: serde_json::Value = serde_json::from_str(&ended.json(3)).unwrap();
        assert_eq!((&json["status"], &json["saved_seconds"]), (&3.into(), &2.34.into()));
        assert_eq!(json["hosts"][0]["host"], "files.example");
    }

    #[test]
    fn an_exchange_says_why() {
        let exchange = |outcome: &str, lifetime: Option<u64>| RunExchange {
            outcome: outcome.to_owned(),
            lifetime: lifetime.map(|seconds| (seconds, "max-age".to_owned())),
            ..RunExchange::default()
        };
        assert_eq!(why(&exchange("hit", Some(600))), "from the store, fresh for 10 minutes (max-age)");
        let stale = "from the store, older than its 1 second (max-age), used unasked";
        assert_eq!(why(&exchange("hit-stale", Some(1))), stale);
        assert_eq!(why(&exchange("uri-miss", None)), "fetched for the first time, and kept");
    }

    #[test]
    fn spans_have_two_or_three_digits() {
        let said = [0.25, 2.34, 119.0, 600.0, 9_000.0].map(|seconds| span(Duration::from_secs_f64(seconds)));
        assert_eq!(said, ["250 ms", "2.3 s", "119.0 s", "10 min", "2.5 h"]);
    }

    #[test]
    fn each_cause_has_a_sentence() {
        for cause in Cause::ALL {
            let said = reason(&miss(cause.as_str(), None, 1), true);
            assert_ne!(said, cause.as_str());
        }
    }

    #[test]
    fn shares_and_sizes_are_rounded_as_people_do() {
        assert_eq!(percent(2, 3), "67 %");
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(999, 1_000), "over 99 %");
        assert_eq!(percent(1, 1_000), "under 1 %");
        assert_eq!((percent(0, 5), percent(5, 5)), ("0 %".to_owned(), "100 %".to_owned()));
        assert_eq!(
            (size(45_600_000), size(456_000_000_000), size(0)),
            ("45.6 MB".into(), "456 GB".into(), "0 B".into())
        );
    }
}
