//! Invalidation on demand: by key, by prefix, by tag, everything.
//!
//! A key is looked up and forgotten. The other scopes are rules ([`crate::store::rules`]): nothing is enumerated, and
//! each entry is judged when somebody asks for it. With a disk both are on disk before they are acknowledged.

use super::{Cache, ObjectState};
use crate::entry::Kept;
use crate::key::Key;
use crate::store::Fetching;
use crate::store::rules::{Force, Rule, Scope, Verdict};
use larder_wire::date::Stamp;
use std::sync::atomic::Ordering;

/// An invalidation that is being made durable.
pub struct Purging {
    in_memory: usize,
    on_disk: Option<Fetching<usize>>,
    rule: Option<Fetching<bool>>,
}

/// What became of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    /// How many stored responses it was about, where they were looked up one by one.
    pub count: Option<usize>,
    /// It will hold after a power cut. False without a disk, and when the disk failed: then it holds until the restart.
    pub durable: bool,
}

impl Purging {
    /// Waits until it is on disk.
    pub async fn finish(self) -> Purged {
        if let Some(rule) = self.rule {
            return Purged { count: None, durable: rule.await };
        }
        match self.on_disk {
            Some(on_disk) => Purged { count: Some(self.in_memory + on_disk.await), durable: true },
            None => Purged { count: Some(self.in_memory), durable: false },
        }
    }
}

impl Cache {
    /// Forgets all variants of a key. It takes effect at once; to be awaited before it is acknowledged.
    pub fn purge_key(&self, key: &[u8]) -> Purging {
        let in_memory = self.forget_in_memory(key).iter().filter(|entry| entry.on_disk().is_none()).count();
        Purging { in_memory, on_disk: self.disk.as_ref().map(|disk| disk.forget(key, None)), rule: None }
    }

    /// Makes all variants of a URL stale, wherever they come from.
    pub fn expire_url(&self, url: &[u8]) -> Purging {
        self.purge(Scope::Prefix(ended(url).into()), Force::Soft)
    }

    /// Makes void all that is in a scope; a prefix is one of the URL. It takes effect at once; to be awaited before it
    /// is acknowledged.
    pub fn purge(&self, scope: Scope, force: Force) -> Purging {
        self.voided.fetch_add(1, Ordering::SeqCst);
        let rule = match &self.disk {
            Some(disk) => Some(disk.purge(scope, force)),
            None => {
                self.rules.add(&Rule { number: self.rules.next_number(), scope, force });
                None
            }
        };
        Purging { in_memory: 0, on_disk: None, rule }
    }

    /// How many stored responses in memory a scope is about: a walk over all of them.
    pub fn count(&self, scope: &Scope) -> usize {
        let mut count = 0;
        self.index.for_each(|object| {
            let url = ended(url_of(&object.key));
            let state = object.state.lock();
            count += state
                .variants
                .iter()
                .filter(|entry| match scope {
                    Scope::All => true,
                    Scope::Prefix(text) => url.starts_with(text),
                    Scope::Tag(tag) => entry.kept().is_some_and(|kept| kept.tags.contains(tag)),
                })
                .count();
        });
        count
    }

    /// Applies rules that are newer than an entry's last look at them.
    pub(super) fn judge(&self, state: &mut ObjectState, now: Stamp) {
        let epoch = self.rules.current_epoch();
        if state.variants.iter().all(|entry| entry.is_judged(epoch)) {
            return;
        }
        let gone: Vec<_> = state
            .variants
            .extract_if(.., |entry| {
                let Some(kept) = entry.kept().filter(|_| !entry.is_judged(epoch)) else { return false };
                entry.set_judged(epoch);
                match self.rules.verdict(&ended(url_of(&entry.key())), &kept.tags, entry.epoch()) {
                    Verdict::Valid => false,
                    Verdict::Gone => true,
                    Verdict::Stale => {
                        let mut terms = kept.terms.clone();
                        terms.iter_mut().for_each(|terms| terms.expire(now));
                        entry.replace_head(Kept::new(kept.head.clone(), terms, kept.received));
                        false
                    }
                }
            })
            .collect();
        let mut evict = self.evict.lock();
        for entry in gone {
            entry.listed.store(false, Ordering::Relaxed);
            evict.remove(&entry);
        }
    }
}

/// The URL of a key: what follows the origin of a site.
fn url_of(key: &Key) -> &[u8] {
    let text = key.text();
    text.iter().rposition(|&byte| byte == b' ').map_or(text, |at| &text[at + 1..])
}

/// A mark behind a URL, so that a rule can be about the whole of it and not only about its beginning.
fn ended(url: &[u8]) -> Vec<u8> {
    [url, b"\n"].concat()
}
