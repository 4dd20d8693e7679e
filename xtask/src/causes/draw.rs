//! The requests of the chore: their kinds, how often each comes, and the outcomes that are right.

use crate::law;

/// A kind of request.
pub struct Kind {
    /// The first part of its path: the origin answers by it.
    pub path: &'static str,
    /// The method.
    pub method: &'static str,
    /// Fields, with their line ends.
    pub fields: &'static str,
    /// The content.
    pub content: &'static str,
    /// How many of a thousand requests.
    weight: u64,
    /// So many objects there are of it; 0: each request has a new one.
    objects: u64,
    /// Right outcomes, besides those of any stored object.
    allowed: &'static [&'static str],
    /// Whether it may be answered from the store.
    pub is_stored: bool,
}

/// The outcomes that are right for any stored object: it is there, or on its way, or was never here, or is gone.
const OF_STORED: &[&str] = &["hit", "collapsed", "uri-miss", "evicted", "not-admitted", "lost"];

const fn kind(path: &'static str, weight: u64, objects: u64, allowed: &'static [&'static str]) -> Kind {
    Kind { path, method: "GET", fields: "", content: "", weight, objects, allowed, is_stored: true }
}

const fn passed(path: &'static str, method: &'static str, weight: u64, allowed: &'static [&'static str]) -> Kind {
    Kind { path, method, fields: "", content: "", weight, objects: 500, allowed, is_stored: false }
}

const fn with(fields: &'static str, kind: Kind) -> Kind {
    Kind { fields, ..kind }
}

/// All of them.
pub static KINDS: &[Kind] = &[
    kind("fresh", 240, 3_000, &[]),
    kind("fresh", 60, 60_000, &[]),
    kind("once", 100, 0, &[]),
    kind("none", 60, 400, &["not-stored", "not-shared"]),
    kind("stale", 70, 2_000, &["stale", "validated"]),
    kind("nocache", 50, 2_000, &["no-cache", "validated"]),
    with("Accept-Language: de\r\n", kind("vary", 30, 1_000, &["vary-miss"])),
    with("Accept-Language: en\r\n", kind("vary", 30, 1_000, &["vary-miss"])),
    with("Accept-Language: fr\r\n", kind("vary", 10, 1_000, &["vary-miss"])),
    with("Cache-Control: no-cache\r\n", kind("fresh", 30, 3_000, &["request", "validated"])),
    with("Cache-Control: max-age=0\r\n", kind("fresh", 20, 3_000, &["request", "validated"])),
    with("Range: bytes=100-299\r\n", kind("part", 20, 300, &["partial"])),
    with("Range: bytes=20000-20999\r\n", kind("part", 20, 300, &["partial"])),
    with("Range: bytes=-500\r\n", kind("part", 10, 300, &["partial"])),
    kind("part", 10, 300, &["partial"]),
    kind("change", 40, 500, &["invalidated"]),
    kind("purge", 40, 500, &["purged"]),
    kind("background", 30, 1_000, &["stale", "hit-revalidating", "validated"]),
    kind("trouble", 30, 500, &["stale", "hit-error", "validated", "not-stored", "not-shared", "changed"]),
    kind("turns", 30, 500, &["stale", "not-stored", "not-shared", "changed", "validated"]),
    with("Authorization: Basic eDp5\r\n", kind("secret", 10, 200, &["not-stored", "not-shared"])),
    with("Cache-Control: only-if-cached\r\n", kind("fresh", 10, 60_000, &["only-if-cached"])),
    Kind { method: "HEAD", ..kind("fresh", 15, 3_000, &[]) },
    passed("change", "POST", 6, &["method"]),
    passed("purge", "PURGE", 6, &["purge-done"]),
    passed("fresh", "OPTIONS", 5, &["method"]),
    with("If-Match: \"1\"\r\n", passed("fresh", "GET", 8, &["condition"])),
    with("Connection: upgrade\r\nUpgrade: carrier-pigeon\r\n", passed("fresh", "GET", 5, &["upgrade"])),
    Kind { content: "What is this?", ..passed("fresh", "GET", 5, &["request-body"]) },
];

/// Draws kinds and objects.
pub struct Draw {
    state: u64,
    weights: u64,
}

impl Draw {
    /// The draws of one client.
    pub fn new(seed: u64) -> Draw {
        Draw { state: law::mix(seed), weights: KINDS.iter().map(|kind| kind.weight).sum() }
    }

    fn below(&mut self, many: u64) -> u64 {
        self.state = law::mix(self.state);
        self.state % many.max(1)
    }

    /// The next kind, and the request as it is sent. `fresh` is a number that no other request has.
    pub fn next(&mut self, fresh: u64) -> (u8, Vec<u8>) {
        let mut at = self.below(self.weights);
        let chosen = KINDS.iter().position(|kind| {
            let is_it = at < kind.weight;
            at = at.saturating_sub(kind.weight);
            is_it
        });
        let number = chosen.unwrap_or(0);
        let kind = &KINDS[number];
        // The square of a share: some objects are asked for much more often than others.
        let share = self.below(1_000_000) as f64 / 1e6;
        let object = if kind.objects == 0 { fresh } else { (share * share * kind.objects as f64) as u64 };
        let length = if kind.content.is_empty() && kind.method != "POST" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", kind.content.len())
        };
        let request = format!(
            "{} /{}/{object} HTTP/1.1\r\nHost: causes.test\r\n{}{length}\r\n{}",
            kind.method, kind.path, kind.fields, kind.content
        );
        (number as u8, request.into_bytes())
    }
}

/// Whether an outcome may come of a kind.
pub fn is_allowed(kind: &Kind, outcome: &str) -> bool {
    kind.allowed.contains(&outcome) || kind.is_stored && OF_STORED.contains(&outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_as_often_as_its_weight_says() {
        let mut draw = Draw::new(1);
        let mut counts = vec![0u64; KINDS.len()];
        (0..100_000).for_each(|fresh| counts[usize::from(draw.next(fresh).0)] += 1);
        for (kind, count) in KINDS.iter().zip(counts) {
            let expected = kind.weight * 100_000 / draw.weights;
            assert!(
                count.abs_diff(expected) < 60 + expected / 5,
                "{} {}: {count}, not {expected}",
                kind.method,
                kind.path
            );
        }
    }
}
