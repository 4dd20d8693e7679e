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

/// The rules, by key text up to the query.
#[derive(Default)]
pub struct Searches {
    /// Nobody pays for this before the first rule is learned.
    any: AtomicBool,
    rules: RwLock<HashMap<Box<[u8]>, NoVarySearch>>,
}

impl Searches {
    /// Takes over what a response for this key says.
    pub fn learn(&self, key: &[u8], rule: Option<NoVarySearch>) {
        let (path, _) = split(key);
        match rule {
            Some(rule) => {
                let mut rules = self.rules.write();
                if rules.len() < PATHS_MAX || rules.contains_key(path) {
                    rules.insert(path.into(), rule);
                    self.any.store(true, Ordering::Relaxed);
                }
            }
            None if self.any.load(Ordering::Relaxed) => {
                self.rules.write().remove(path);
            }
            None => {}
        }
    }

    /// Brings a key's query to the form that all equal ones share.
    pub fn apply(&self, key: &mut Vec<u8>) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let (path, query) = split(key);
        let normal = match (self.rules.read().get(path), query.map(std::str::from_utf8)) {
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
        assert_eq!(searches.rules.read().len(), PATHS_MAX);
    }
}
