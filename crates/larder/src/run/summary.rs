//! The summary at the end of a run: bytes first, then each reason for a fetch, in sentences, with what would change it.

use crate::record::{RunMiss, RunStats};
use std::time::Duration;

/// Reasons that are listed; the rest is counted together.
const REASONS_MAX: usize = 6;

/// The lines printed at the end of a run, each with `larder: ` before it. `keeps`: the next run finds what this one fetched.
pub(super) fn summary(stats: Option<&RunStats>, took: Duration, keeps: bool) -> String {
    let lines = match stats {
        None => vec!["the server that this run had joined went away, and its counts with it".to_owned()],
        Some(stats) if stats.requests == 0 => vec![NOTHING_CAME.to_owned()],
        Some(stats) => lines(stats, took, keeps),
    };
    lines.iter().map(|line| format!("larder: {line}\n")).collect()
}

const NOTHING_CAME: &str = "no request came through Larder: the command downloaded nothing, or it does not heed the proxy \
                            variables (http_proxy, https_proxy)";

fn lines(stats: &RunStats, took: Duration, keeps: bool) -> Vec<String> {
    let all = stats.bytes_from_store + stats.bytes_fetched;
    let share = match all {
        0 => String::new(),
        all => format!(" ({} of all bytes)", percent(stats.bytes_from_store, all)),
    };
    let mut lines = vec![
        format!(
            "{} came from the store{share}, {} from origins, in {:.1} s",
            size(stats.bytes_from_store),
            size(stats.bytes_fetched),
            took.as_secs_f64()
        ),
        format!("{} of {} answered from the store", stats.hits, requests(stats.requests)),
    ];
    if stats.network_away > 0 {
        let old = match stats.outdated {
            0 => "answers came from the store".to_owned(),
            old => format!("{} older than their lifetime", was(old, "answer")),
        };
        lines.push(format!("the network was away; {old}"));
    } else if stats.outdated > 0 {
        lines.push(format!("{}: older than their lifetime, used without asking the origin", requests(stats.outdated)));
    }
    if !stats.missing.is_empty() {
        let many = counted(stats.missing.len() as u64, "download");
        lines.push(format!("{many} not in the store; `larder fetch-later` lists them"));
    }
    let told = stats.misses.iter().take(REASONS_MAX);
    lines.extend(told.map(|miss| format!("{}: {}", requests(miss.requests), reason(miss, keeps))));
    let rest: u64 = stats.misses.iter().skip(REASONS_MAX).map(|miss| miss.requests).sum();
    if rest > 0 {
        lines.push(format!("{} went to origins for other reasons", requests(rest)));
    }
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

/// Why origins were asked, and what would change that.
fn reason(miss: &RunMiss, keeps: bool) -> String {
    if let Some(why) = &miss.not_stored {
        return format!("could not be kept: {}", not_kept(why));
    }
    match &*miss.cause {
        "uri-miss" if !keeps => "asked for the first time; nothing is kept for the next run",
        "uri-miss" => "asked for the first time; the next run finds them in the store",
        "vary-miss" => "stored only for requests with other fields (Vary); the next run finds these too",
        "evicted" => "had made room for others; a larger `disk` keeps more",
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
        "method" => "used a method whose answers are never kept, as POST",
        "partial" => "were stored in part; the rest was fetched and is kept now",
        "condition" => "had a condition that only the origin can judge",
        "request-body" => "had a body, which no stored answer fits",
        "upgrade" => "offered to change the protocol",
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
        other => other,
    }
}

/// In whole percent, rounded to the nearest; 100 and 0 only when it is all or nothing.
fn percent(part: u64, all: u64) -> String {
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

fn counted(many: u64, what: &str) -> String {
    if many == 1 { format!("1 {what}") } else { format!("{many} {what}s") }
}

/// As in "1 answer was", "2 answers were".
fn was(many: u64, what: &str) -> String {
    format!("{} {}", counted(many, what), if many == 1 { "was" } else { "were" })
}

/// Three digits are enough at the end of a run.
fn size(bytes: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Cause, LaterRequest};

    fn miss(cause: &str, not_stored: Option<&str>, requests: u64) -> RunMiss {
        RunMiss { cause: cause.to_owned(), not_stored: not_stored.map(str::to_owned), requests }
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
        assert!(
            said.contains("2 requests: older than their lifetime") && said.contains("1 download not in the store"),
            "{said}"
        );
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
