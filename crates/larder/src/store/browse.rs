//! Views of a running server's store, in memory and on disk together: a search by URL, and one key with its heads.
//!
//! Both read from disk and wait for it: they are not for the thread of a worker.

use super::{here, site_and_url};
use larder_cache::cache::Cache;
use larder_cache::head::StoredHead;
use larder_wire::credential::is_credential;
use larder_wire::date::{Stamp, format_date};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long a search reads heads from disk.
const SEARCH_MAX: Duration = Duration::from_secs(2);

/// The result of a search.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The first ones in the order of their keys.
    pub items: Vec<Shown>,
    /// How many there are.
    pub found: u64,
    /// The search is complete; false when reading the disk would have taken too long.
    pub complete: bool,
}

/// One stored response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// The name under which it is stored.
    pub key: String,
    /// Its URL.
    pub url: String,
    /// The origin of the site that it is stored for; empty for a response of the forward proxy.
    pub site: String,
    /// Its status.
    pub status: u16,
    /// Its media type.
    pub content_type: String,
    /// The length of its body; null where that is not known.
    pub bytes: Option<u64>,
    /// How many of these are here.
    pub bytes_here: u64,
    /// Seconds since its origin made or validated it.
    pub age_seconds: u64,
    /// Seconds for which it is still fresh; 0 for a stale response.
    pub fresh_seconds: u64,
    /// Seconds since it became stale; 0 for a fresh response.
    pub stale_seconds: u64,
    /// When it came.
    pub received: String,
    /// The fields by which it was chosen.
    pub vary: Vec<String>,
    /// It is in memory.
    pub in_memory: bool,
    /// It is on disk.
    pub on_disk: bool,
}

/// One stored response with its head.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opened {
    /// The entry of the list.
    pub response: Shown,
    /// Names and values of its head.
    pub fields: Vec<(String, String)>,
}

impl Shown {
    fn of(key: &[u8], stored: &StoredHead, now: Stamp) -> Shown {
        let terms = stored.terms.as_ref();
        let remaining = terms.map_or(0, |terms| terms.remaining(now));
        let (site, url) = site_and_url(key);
        Shown {
            key: key.escape_ascii().to_string(),
            url,
            site,
            status: stored.head.status,
            content_type: stored.head.fields.text("Content-Type").unwrap_or_default().to_owned(),
            bytes: None,
            bytes_here: 0,
            age_seconds: terms.map_or(0, |terms| terms.age(now)),
            fresh_seconds: u64::try_from(remaining).unwrap_or(0),
            stale_seconds: u64::try_from(-remaining).unwrap_or(0),
            received: String::from_utf8_lossy(&format_date(stored.received)).into_owned(),
            vary: terms.map(|terms| terms.vary.names().map(str::to_owned).collect()).unwrap_or_default(),
            in_memory: false,
            on_disk: false,
        }
    }

    /// As a list of the store on disk shows it.
    pub fn item(&self) -> super::Item {
        let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        super::Item {
            key: self.key.clone(),
            status: self.status,
            bytes: self.bytes,
            bytes_here: self.bytes_here,
            age: self.age_seconds,
            fresh: seconds(self.fresh_seconds) - seconds(self.stale_seconds),
            vary: self.vary.clone(),
        }
    }

    fn also(&mut self, other: Shown) {
        self.bytes = self.bytes.or(other.bytes);
        self.bytes_here = self.bytes_here.max(other.bytes_here);
        self.in_memory |= other.in_memory;
        self.on_disk |= other.on_disk;
    }
}

fn fields_of(stored: &StoredHead) -> Vec<(String, String)> {
    // Fields with credentials are listed without their values.
    let fields = stored.head.fields.iter().map(|(name, value)| {
        let value = if is_credential(name) { "(hidden)".into() } else { String::from_utf8_lossy(value).into_owned() };
        (name.to_owned(), value)
    });
    fields.collect()
}

/// Looks for URLs that begin so, with their scheme or without it.
pub fn search(cache: &Cache, prefix: &str, most: usize, now: Stamp) -> Listing {
    let deadline = Instant::now() + SEARCH_MAX;
    let mut found = Found { first: BTreeMap::new(), most, more: 0 };
    let fits = |key: &[u8]| {
        let (_, url) = site_and_url(key);
        url.starts_with(prefix) || url.split_once("://").is_some_and(|(_, rest)| rest.starts_with(prefix))
    };
    cache.for_each_stored(now, |entry, stored| {
        let key = entry.key();
        if stored.terms.is_some() && fits(key.text()) {
            let here = (entry.length(), entry.bytes_in_memory());
            let shown =
                || Shown { bytes: here.0, bytes_here: here.1, in_memory: true, ..Shown::of(key.text(), stored, now) };
            found.take(key.text(), stored.variant(), || false, shown);
        }
    });
    let mut complete = true;
    if let Some(disk) = cache.disk() {
        disk.for_each_head(|head| {
            if Instant::now() > deadline {
                complete = false;
                return ControlFlow::Break(());
            }
            if fits(&head.key)
                && let Ok(stored) = StoredHead::decode(&head.meta)
            {
                let length = head.length.or(head.body.as_ref().map(|body| body.len() as u64));
                let shown = || Shown {
                    bytes: length,
                    bytes_here: here(disk, head),
                    on_disk: true,
                    ..Shown::of(&head.key, &stored, now)
                };
                let in_memory = || {
                    let there = cache.stored_under(&head.key, now);
                    there.iter().any(|(_, stored)| stored.terms.is_some() && stored.variant() == head.variant)
                };
                found.take(&head.key, head.variant, in_memory, shown);
            }
            ControlFlow::Continue(())
        });
    }
    let found_count = found.first.len() as u64 + found.more;
    Listing { items: found.first.into_values().collect(), found: found_count, complete }
}

/// The first responses in the order of their keys, and how many more there are.
struct Found {
    first: BTreeMap<(Vec<u8>, u64), Shown>,
    most: usize,
    more: u64,
}

impl Found {
    /// `counted` tells whether a response that is not among the first was counted before.
    fn take(&mut self, key: &[u8], variant: u64, counted: impl FnOnce() -> bool, shown: impl FnOnce() -> Shown) {
        let beyond = self.first.len() >= self.most;
        let name = (key.to_vec(), variant);
        if beyond && self.first.last_key_value().is_none_or(|(last, _)| *last < name) {
            self.more += u64::from(!counted());
            return;
        }
        match self.first.entry(name) {
            Slot::Occupied(mut there) => there.get_mut().also(shown()),
            Slot::Vacant(free) => {
                free.insert(shown());
            }
        }
        if self.first.len() > self.most {
            self.first.pop_last();
            self.more += 1;
        }
    }
}

/// All variants under one key, as [`Shown::key`] writes it.
pub fn open(cache: &Cache, key: &str, now: Stamp) -> Vec<Opened> {
    let key = unescaped(key);
    let mut opened: BTreeMap<u64, Opened> = BTreeMap::new();
    for (entry, stored) in cache.stored_under(&key, now) {
        let (bytes, bytes_here) = (entry.length(), entry.bytes_in_memory());
        let response = Shown { bytes, bytes_here, in_memory: true, ..Shown::of(&key, &stored, now) };
        opened.insert(stored.variant(), Opened { response, fields: fields_of(&stored) });
    }
    let Some(disk) = cache.disk() else { return opened.into_values().collect() };
    for head in disk.heads(&key).wait() {
        let Ok(stored) = StoredHead::decode(&head.meta) else { continue };
        let bytes = head.length.or(head.body.as_ref().map(|body| body.len() as u64));
        let response = Shown { bytes, bytes_here: here(disk, &head), on_disk: true, ..Shown::of(&key, &stored, now) };
        match opened.entry(head.variant) {
            Slot::Occupied(mut there) => there.get_mut().response.also(response),
            Slot::Vacant(free) => {
                free.insert(Opened { response, fields: fields_of(&stored) });
            }
        }
    }
    opened.into_values().collect()
}

/// Undoes `escape_ascii`; other characters stand for themselves.
fn unescaped(text: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let escape = (byte == b'\\').then(|| bytes.get(at + 1)).flatten();
        let hex = bytes.get(at + 2..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let (meant, long) = match escape {
            Some(b'x') => (hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()), 4),
            Some(b't') => (Some(b'\t'), 2),
            Some(b'n') => (Some(b'\n'), 2),
            Some(b'r') => (Some(b'\r'), 2),
            Some(&other) => (Some(other), 2),
            None => (None, 1),
        };
        match meant {
            Some(meant) => {
                out.push(meant);
                at += long;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_being_written() {
        for key in [&b"http://a/\\x41"[..], b"http://a/\xff\n\"'", b"http://o http://a/?q=\\", b""] {
            assert_eq!(unescaped(&key.escape_ascii().to_string()), key);
        }
        for text in ["\\", "\\x", "\\xg1", "\\x4"] {
            assert_eq!(unescaped(text), text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn the_first_keys_are_kept_whatever_the_order() {
        let stored = StoredHead::new(larder_wire::ResponseHead::new(200), None, Stamp(0));
        let mut found = Found { first: BTreeMap::new(), most: 2, more: 0 };
        for key in ["d", "b", "e", "c", "a", "a"] {
            found.take(key.as_bytes(), 0, || key == "c", || Shown::of(key.as_bytes(), &stored, Stamp(0)));
        }
        let keys: Vec<_> = found.first.values().map(|shown| shown.key.as_str()).collect();
        assert_eq!((keys, found.more), (vec!["a", "b"], 3));
    }
}
