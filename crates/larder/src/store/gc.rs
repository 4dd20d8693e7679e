//! Housekeeping on disk: which stored responses are given up, by age, by staleness and to a size. The store evicts by itself; this is
//! for a person who wants the room now.

use super::{Object, here, site_and_url};
use larder_cache::store::Store;
use larder_wire::date::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// The responses that are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcRules {
    /// Stale for so many seconds. Until then a stale response can be validated, or be used without a network.
    pub stale_for: Option<u64>,
    /// Stored so many seconds ago, fresh or not.
    pub older_than: Option<u64>,
    /// Of the rest, those that came first, until so many bytes are left.
    pub keep_bytes: Option<u64>,
}

/// A response that is stale for so long is given up where nothing else is said: 30 days.
pub const STALE_FOR: u64 = 30 * 86_400;

impl GcRules {
    /// The rules as a query of the control socket.
    pub fn query(&self) -> String {
        let rules = [("stale-for", self.stale_for), ("older-than", self.older_than), ("keep", self.keep_bytes)];
        let given = rules.iter().filter_map(|(name, value)| Some(format!("{name}={}", (*value)?)));
        given.collect::<Vec<_>>().join("&")
    }

    /// Reads such a query.
    pub fn of_parts(parts: &[(&str, String)]) -> Result<GcRules, String> {
        let mut rules = GcRules { stale_for: None, older_than: None, keep_bytes: None };
        for (name, value) in parts {
            let number = Some(value.parse().map_err(|_| format!("{name}: a number is needed"))?);
            match *name {
                "stale-for" => rules.stale_for = number,
                "older-than" => rules.older_than = number,
                "keep" => rules.keep_bytes = number,
                other => return Err(format!("{other}: only stale-for, older-than and keep are known")),
            }
        }
        Ok(rules)
    }
}

/// The result of housekeeping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// URLs that were given up, with all their variants.
    pub objects: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// URLs that stay.
    pub kept_objects: u64,
    /// Bytes of their bodies.
    pub kept_bytes: u64,
}

/// One URL with its variants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    key: Vec<u8>,
    bytes: u64,
    /// When the newest of them came.
    received: Stamp,
    /// Seconds of freshness left of the freshest; less than 0: stale.
    fresh: i64,
}

/// The keys that are given up by these rules, and the sums.
pub fn choose(store: &Store, rules: &GcRules, now: Stamp) -> (Vec<Vec<u8>>, Collected) {
    let mut all: HashMap<Vec<u8>, Stored> = HashMap::new();
    store.for_each_head(|head| {
        let object = Object::of(head);
        let (received, fresh) = match &object {
            Some(object) => {
                let terms = object.stored.terms.as_ref();
                (object.stored.received, terms.map_or(0, |terms| terms.remaining(now)))
            }
            None => (Stamp(0), i64::MIN),
        };
        let bytes = here(store, head);
        let stored =
            all.entry(head.key.to_vec()).or_insert(Stored { key: head.key.to_vec(), bytes: 0, received, fresh });
        stored.bytes += bytes;
        stored.received = stored.received.max(received);
        stored.fresh = stored.fresh.max(fresh);
        ControlFlow::Continue(())
    });
    sift(all.into_values().collect(), rules, now)
}

fn sift(mut all: Vec<Stored>, rules: &GcRules, now: Stamp) -> (Vec<Vec<u8>>, Collected) {
    // The newest first, so that the room goes to them.
    all.sort_by(|a, b| b.received.cmp(&a.received).then_with(|| a.key.cmp(&b.key)));
    let (mut keys, mut collected) = (Vec::new(), Collected::default());
    for stored in all {
        let is_stale = |most: u64| stored.fresh < 0 && stored.fresh.unsigned_abs() >= most;
        let is_old = |most: u64| now.since(stored.received) >= most;
        // A response without a body takes room too.
        let is_too_much = |most: u64| collected.kept_bytes + stored.bytes.max(1) > most;
        if rules.stale_for.is_some_and(is_stale)
            || rules.older_than.is_some_and(is_old)
            || rules.keep_bytes.is_some_and(is_too_much)
        {
            collected.objects += 1;
            collected.bytes += stored.bytes;
            keys.push(stored.key);
        } else {
            collected.kept_objects += 1;
            collected.kept_bytes += stored.bytes;
        }
    }
    (keys, collected)
}

/// The order of a list of stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The largest first.
    Size,
    /// The oldest first: whose origin made or validated it longest ago.
    Age,
    /// Sums of each host, the largest first.
    Host,
}

impl By {
    /// The word of the command line and of the control socket.
    pub fn as_str(self) -> &'static str {
        match self {
            By::Size => "size",
            By::Age => "age",
            By::Host => "host",
        }
    }

    /// The order of a word.
    pub fn of_word(word: &str) -> Option<By> {
        [By::Size, By::Age, By::Host].into_iter().find(|by| by.as_str() == word)
    }
}

/// Responses of a host, with its port where that is not the usual one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSum {
    /// The host.
    pub host: String,
    /// Responses.
    pub objects: u64,
    /// Bytes of their bodies that are here.
    pub bytes: u64,
}

/// The sums of each host, the largest first.
pub fn hosts(items: &[super::Item]) -> Vec<HostSum> {
    let mut sums: HashMap<String, HostSum> = HashMap::new();
    for item in items {
        let (_, url) = site_and_url(item.key.as_bytes());
        let host = url.split_once("://").map_or(&*url, |(_, rest)| rest).split(['/', '?']).next().unwrap_or_default();
        let sum =
            sums.entry(host.to_owned()).or_insert_with(|| HostSum { host: host.to_owned(), ..HostSum::default() });
        sum.objects += 1;
        sum.bytes += item.bytes_here;
    }
    let mut sums: Vec<HostSum> = sums.into_values().collect();
    sums.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.host.cmp(&b.host)));
    sums
}

/// Puts a list in an order; that of hosts leaves it as it is.
pub fn sort(items: &mut [super::Item], by: By) {
    match by {
        By::Size => items.sort_by_key(|item| std::cmp::Reverse(item.bytes_here)),
        By::Age => items.sort_by_key(|item| std::cmp::Reverse(item.age)),
        By::Host => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &str, bytes: u64, received: u64, fresh: i64) -> Stored {
        Stored { key: key.as_bytes().to_vec(), bytes, received: Stamp(received), fresh }
    }

    fn given_up(rules: GcRules) -> (Vec<String>, Collected) {
        let all = Vec::from([
            stored("a", 10, 100, 50),
            stored("b", 20, 200, -5),
            stored("c", 30, 300, -500),
            stored("d", 40, 400, 9),
        ]);
        let (keys, collected) = sift(all, &rules, Stamp(1_000));
        let mut keys: Vec<String> = keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect();
        keys.sort();
        (keys, collected)
    }

    #[test]
    fn each_rule_gives_up_what_it_names() {
        let none = GcRules { stale_for: None, older_than: None, keep_bytes: None };
        assert_eq!(given_up(none).0, [""; 0]);
        assert_eq!(given_up(GcRules { stale_for: Some(100), ..none }).0, ["c"]);
        assert_eq!(given_up(GcRules { stale_for: Some(0), ..none }).0, ["b", "c"]);
        assert_eq!(given_up(GcRules { older_than: Some(800), ..none }).0, ["a", "b"]);
        // The newest stay; a smaller old one may fit beside them.
        let (keys, collected) = given_up(GcRules { keep_bytes: Some(75), ..none });
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(collected, Collected { objects: 2, bytes: 30, kept_objects: 2, kept_bytes: 70 });
        assert_eq!(given_up(GcRules { keep_bytes: Some(0), ..none }).0.len(), 4);
        let empty = sift(Vec::from([stored("e", 0, 1, 1)]), &GcRules { keep_bytes: Some(0), ..none }, Stamp(2));
        assert_eq!(empty.1.objects, 1);
        let both = GcRules { stale_for: Some(100), keep_bytes: Some(50), ..none };
        assert_eq!(given_up(both).0, ["b", "c"]);
    }

    #[test]
    fn rules_go_through_a_query() {
        let rules = GcRules { stale_for: Some(1), older_than: None, keep_bytes: Some(5) };
        assert_eq!(rules.query(), "stale-for=1&keep=5");
        let parts = [("stale-for", "1".to_owned()), ("keep", "5".to_owned())];
        assert_eq!(GcRules::of_parts(&parts), Ok(rules));
        assert!(GcRules::of_parts(&[("keep", "x".to_owned())]).is_err());
        assert!(GcRules::of_parts(&[("all", "1".to_owned())]).is_err());
    }

    #[test]
    fn hosts_are_summed() {
        let item = |key: &str, bytes_here: u64| super::super::Item {
            key: key.to_owned(),
            status: 200,
            bytes: None,
            bytes_here,
            age: bytes_here,
            fresh: 0,
            vary: Vec::new(),
        };
        let mut items = Vec::from([
            item("http://a.example/1", 1),
            item("http://b.example:81/1", 9),
            item("http://127.0.0.1:1 https://a.example/x y", 3),
        ]);
        let sum = |host: &str, objects, bytes| HostSum { host: host.to_owned(), objects, bytes };
        assert_eq!(hosts(&items[..2]), [sum("b.example:81", 1, 9), sum("a.example", 1, 1)]);
        sort(&mut items, By::Size);
        assert_eq!(items[0].bytes_here, 9);
    }
}
