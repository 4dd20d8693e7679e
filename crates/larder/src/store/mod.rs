//! The disk store for people: totals, a list, one object, a check of everything, archives.
//!
//! The commands of `larder store` open the folders themselves; where a server runs on them it tells its totals, its list
//! and stored heads through its API.

pub mod browse;
pub mod gc;
pub mod warc;

use crate::clock;
use larder_cache::head::StoredHead;
use larder_cache::store::{BLOCK_BYTES, DiskHead, Stats, Store};
use larder_wire::date::Stamp;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;

/// One stored response, as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its URL; that of a site has its origin and a space before it.
    pub key: String,
    /// Its status.
    pub status: u16,
    /// The length of its body, where that is known.
    pub bytes: Option<u64>,
    /// How many of these are here.
    pub bytes_here: u64,
    /// Seconds since its origin made or validated it.
    pub age: u64,
    /// Seconds of freshness left; less than 0: stale.
    pub fresh: i64,
    /// The fields by which it was chosen.
    pub vary: Vec<String>,
}

/// A stored response with its head read.
pub struct Object {
    /// As it lies on disk.
    pub head: DiskHead,
    /// Its head.
    pub stored: StoredHead,
}

impl Object {
    fn of(head: &DiskHead) -> Option<Object> {
        Some(Object { stored: StoredHead::decode(&head.meta).ok()?, head: head.clone() })
    }

    /// The URL, without the origin of a site.
    pub fn url(&self) -> String {
        site_and_url(&self.head.key).1
    }

    fn item(&self, store: &Store, now: Stamp) -> Item {
        let terms = self.stored.terms.as_ref();
        Item {
            key: self.head.key.escape_ascii().to_string(),
            status: self.stored.head.status,
            bytes: self.head.length.or(self.head.body.as_ref().map(|body| body.len() as u64)),
            bytes_here: here(store, &self.head),
            age: terms.map_or(0, |terms| terms.age(now)),
            fresh: terms.map_or(0, |terms| terms.remaining(now)),
            vary: terms.map(|terms| terms.vary.names().map(str::to_owned).collect()).unwrap_or_default(),
        }
    }

    /// Hands the body over piece by piece, each checked; false when some of it is missing.
    pub fn body(
        &self,
        store: &Arc<Store>,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<bool> {
        if let Some(body) = &self.head.body {
            take(body)?;
            return Ok(true);
        }
        let Some(length) = self.head.length else { return Ok(false) };
        let mut at = 0;
        while at < length {
            let end = length.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
            let before = at;
            for (start, bytes) in store.read(self.head.id, &self.head.key, at..end).wait() {
                let skip = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
                if start <= at && skip < bytes.len() {
                    take(&bytes[skip..])?;
                    at = start + bytes.len() as u64;
                }
            }
            if at == before {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The origin of the site that a key is of, which may be none, and the URL.
fn site_and_url(key: &[u8]) -> (String, String) {
    let key = String::from_utf8_lossy(key);
    let (site, url) = key.rsplit_once(' ').unwrap_or(("", &key));
    (site.to_owned(), url.to_owned())
}

/// The index is looked at block by block, and an origin may call any length its object's.
const BLOCKS_LOOKED_AT_MAX: u64 = 1 << 20;

fn here(store: &Store, head: &DiskHead) -> u64 {
    if let Some(body) = &head.body {
        return body.len() as u64;
    }
    let blocks = head.length.unwrap_or(0).div_ceil(BLOCK_BYTES).min(BLOCKS_LOOKED_AT_MAX);
    let ranges = (0..blocks).flat_map(|block| store.extents(head.id, &head.key, block));
    ranges.map(|range| range.end - range.start).sum()
}

/// The stored responses whose URL (or key) begins so, at most this many.
pub fn list(store: &Store, prefix: &str, most: usize) -> Vec<Item> {
    let now = clock::now();
    let mut items = Vec::new();
    store.for_each_head(|head| {
        if let Some(object) = Object::of(head)
            && (object.url().starts_with(prefix) || head.key.starts_with(prefix.as_bytes()))
        {
            items.push(object.item(store, now));
        }
        if items.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    items.sort_by(|a, b| a.key.cmp(&b.key));
    items
}

/// All variants of a URL, of whatever site.
pub fn find(store: &Store, url: &str) -> Vec<Object> {
    let mut found = Vec::new();
    store.for_each_head(|head| {
        found.extend(Object::of(head).filter(|object| object.url() == url));
        ControlFlow::Continue(())
    });
    found
}

/// The counts of a check of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Stored responses that were read.
    pub objects: u64,
    /// Of these, with the whole body there.
    pub whole: u64,
    /// Body bytes that were read and compared with their checksums.
    pub bytes: u64,
    /// Heads that this program can't read.
    pub unreadable: u64,
    /// Records whose checksum was wrong; they are left out from now on.
    pub bad_records: u64,
}

/// Reads everything and compares checksums; reports its progress.
pub fn verify(store: &Arc<Store>, mut progress: impl FnMut(&Verified, u64)) -> Verified {
    let all = store.stats().heads;
    let mut verified = Verified::default();
    store.for_each_head(|head| {
        verified.objects += 1;
        match Object::of(head) {
            None => verified.unreadable += 1,
            Some(object) => {
                let bytes = &mut verified.bytes;
                let whole = object.body(store, |piece| {
                    *bytes += piece.len() as u64;
                    Ok(())
                });
                verified.whole += u64::from(matches!(whole, Ok(true)));
            }
        }
        progress(&verified, all);
        ControlFlow::Continue(())
    });
    verified.bad_records = store.stats().bad_records;
    verified
}

/// Damage that was found, and changes that were made, when the folders were opened: sentences for people.
pub fn notices(store: &Store) -> Vec<String> {
    store.notices().iter().map(|(folder, notice)| format!("{}: {notice}", folder.display())).collect()
}

/// The totals as lines for people.
pub fn summary(stats: &Stats) -> Vec<(&'static str, String)> {
    let bytes = crate::config::units::rounded_size;
    let share = |part: u64, whole: u64| format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64);
    Vec::from([
        ("objects", stats.heads.to_string()),
        ("pieces of long bodies", stats.extents.to_string()),
        (
            "bytes in use",
            format!("{} ({} of the files)", bytes(stats.live_bytes), share(stats.live_bytes, stats.allocated_bytes)),
        ),
        ("files", bytes(stats.allocated_bytes)),
        ("segments", format!("{}, {} free", stats.segments, stats.segments_free)),
        ("index in memory", bytes(stats.index_bytes)),
        ("index per object", format!("{} bytes", stats.index_bytes / (stats.heads + stats.extents).max(1))),
        ("damaged records found", stats.bad_records.to_string()),
        ("set aside as damaged", bytes(stats.aside_bytes)),
        (
            "folders in service",
            format!("{} of {}", stats.folders_healthy, stats.folders_healthy + stats.folders_failed),
        ),
    ])
}
