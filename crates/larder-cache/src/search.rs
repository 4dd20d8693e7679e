//! Which parameters of a query make no difference, as responses say with `No-Vary-Search`.
//!
//! The last response for a path says it for all queries of that path: equal queries get one key. A path
//! whose response says nothing goes back to its full queries.

use larder_wire::structured::NoVarySearch;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Paths whose rule is remembered; more are not, and keep their full queries.
const PATHS_MAX: usize = 4_096;

/// Bytes that all remembered paths and rules may take, beside the budget: origins choose how long both are.
const RULES_BYTES_MAX: usize = 1024 * 1024;

/// The rules, by key text up to the query.
#[derive(Default)]
pub struct Searches {
    /// Nobody pays for this before the first rule is learned.
    any: AtomicBool,
    rules: RwLock<Rules>,
}

#[derive(Default)]
struct Rules {
    by_path: HashMap<Box<[u8]>, NoVarySearch>,
    bytes: usize,
}

impl Rules {
    fn forget(&mut self, path: &[u8]) {
        if let Some(rule) = self.by_path.remove(path) {
            self.bytes -= rule_bytes(path, &rule);
        }
    }

    /// Says whether it is remembered.
    fn remember(&mut self, path: &[u8], rule: NoVarySearch) -> bool {
        self.forget(path);
        let bytes = rule_bytes(path, &rule);
        let fits = self.by_path.len() < PATHS_MAX && self.bytes + bytes <= RULES_BYTES_MAX;
        if fits {
            self.bytes += bytes;
            self.by_path.insert(path.into(), rule);
        }
        fits
    }
}

fn rule_bytes(path: &[u8], rule: &NoVarySearch) -> usize {
    path.len() + rule.heap_bytes() + 2 * size_of::<(Box<[u8]>, NoVarySearch)>()
}

impl Searches {
    /// Takes over what a response for this key says.
    pub fn learn(&self, key: &[u8], rule: Option<NoVarySearch>) {
        let (path, _) = split(key);
        match rule {
            Some(rule) => {
                let is_new = self.rules.write().remember(path, rule);
                self.any.fetch_or(is_new, Ordering::Relaxed);
            }
            None if self.any.load(Ordering::Relaxed) => self.rules.write().forget(path),
            None => {}
        }
    }

    /// Brings a key's query to the form that all equal ones share.
    pub fn apply(&self, key: &mut Vec<u8>) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let (path, query) = split(key);
        let normal = match (self.rules.read().by_path.get(path), query.map(std::str::from_utf8)) {
            (Some(rule), Some(Ok(query))) => rule.normalise(query),
            _ => return,
        };
        key.truncate(split(key).0.len());
        if !normal.is_empty() {
            key.push(b'?');
            key.extend_from_slice(normal.as_bytes());
        }
    }
}

fn split(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match key.iter().position(|&byte| byte == b'?') {
        Some(at) => (&key[..at], Some(&key[at + 1..])),
        None => (key, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Fields;
    use larder_wire::structured::no_vary_search;

    fn rule(value: &str) -> Option<NoVarySearch> {
        let mut fields = Fields::new();
        fields.push("No-Vary-Search", value);
        no_vary_search(&fields)
    }

    fn key(searches: &Searches, text: &str) -> String {
        let mut key = text.as_bytes().to_vec();
        searches.apply(&mut key);
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn equal_queries_get_one_key_and_other_paths_keep_theirs() {
        let searches = Searches::default();
        assert_eq!(key(&searches, "http://a/x?id=1&utm=y"), "http://a/x?id=1&utm=y");
        searches.learn(b"http://a/x?id=1&utm=y", rule("params=(\"utm\")"));
        assert_eq!(key(&searches, "http://a/x?id=1&utm=y"), key(&searches, "http://a/x?utm=z&id=1"));
        assert_ne!(key(&searches, "http://a/x?id=1"), key(&searches, "http://a/x?id=2"));
        assert_eq!(key(&searches, "http://a/y?id=1&utm=y"), "http://a/y?id=1&utm=y");
        searches.learn(b"http://a/x?id=3", None);
        assert_eq!(key(&searches, "http://a/x?id=1&utm=y"), "http://a/x?id=1&utm=y");
    }

    #[test]
    fn rules_are_bounded() {
        let searches = Searches::default();
        for path in 0..PATHS_MAX + 10 {
            searches.learn(format!("http://a/{path}?q").as_bytes(), rule("params"));
        }
        assert_eq!(searches.rules.read().by_path.len(), PATHS_MAX);
        let before = searches.rules.read().bytes;
        searches.learn(b"http://a/0?q", None);
        searches.learn(b"http://a/0?q", None);
        assert!(searches.rules.read().bytes < before);
    }

    #[test]
    fn long_paths_are_bounded_by_bytes() {
        let searches = Searches::default();
        for path in 0..PATHS_MAX {
            let key = format!("http://a/{}{path}?q", "x".repeat(8_000));
            searches.learn(key.as_bytes(), rule("params"));
            searches.learn(key.as_bytes(), rule("params=(\"a\")"));
        }
        let rules = searches.rules.read();
        assert!(rules.bytes <= RULES_BYTES_MAX && rules.by_path.len() > 100, "{}", rules.bytes);
    }
}
