//! Purges: by key, by prefix, by tag, or of everything.
//!
//! A key is looked up and forgotten. The other scopes are rules ([`crate::store::rules`]): nothing is enumerated, and
//! each entry is judged when somebody asks for it. With a disk both are on disk before they are acknowledged.

use super::{Cache, Fate, ObjectState};
use crate::entry::Entry;
use crate::head::StoredHead;
use crate::key::Key;
use crate::store::rules::{self, Force, Rule, Scope, Verdict};
use crate::store::{Fetching, NotDurable};
use larder_wire::date::Stamp;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An invalidation that is being made durable.
pub struct Purging {
    in_memory: usize,
    /// How many heads went there.
    on_disk: Option<Fetching<Result<usize, NotDurable>>>,
    by: By,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Key,
    Rule,
}

/// The outcome of an invalidation.
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
        let on_disk = match self.on_disk {
            Some(on_disk) => on_disk.await.ok(),
            None => None,
        };
        let count = (self.by == By::Key).then_some(self.in_memory + on_disk.unwrap_or(0));
        Purged { count, durable: on_disk.is_some() }
    }
}

/// All scopes of a question, in a form in which many responses are compared with them quickly.
#[derive(Default)]
struct Sought<'s> {
    all: bool,
    prefixes: Vec<&'s [u8]>,
    tags: HashSet<u64>,
}

impl<'s> Sought<'s> {
    fn of(scopes: &'s [Scope]) -> Sought<'s> {
        let mut sought = Sought::default();
        for scope in scopes {
            match scope {
                Scope::All => sought.all = true,
                Scope::Prefix(text) => sought.prefixes.push(text),
                Scope::Tag(tag) => _ = sought.tags.insert(*tag),
            }
        }
        // Of prefixes of one another the shortest says it all: those that are left are found by a binary search.
        sought.prefixes.sort_unstable();
        sought.prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter));
        sought
    }

    /// Whether a response is meant. Each comparison is a step.
    fn has(&self, url: &[u8], entry: &Entry, steps: &mut u64) -> bool {
        *steps += 1;
        let before = self.prefixes.partition_point(|prefix| *prefix <= url);
        if self.all || before > 0 && url.starts_with(self.prefixes[before - 1]) {
            return true;
        }
        let Some(stored) = entry.stored_head().filter(|_| !self.tags.is_empty()) else { return false };
        *steps += stored.tags().len() as u64;
        stored.tags().iter().any(|tag| self.tags.contains(tag))
    }
}

impl Cache {
    /// Forgets all variants of a key. It takes effect at once; to be awaited before it is acknowledged.
    pub fn purge_key(&self, key: &[u8]) -> Purging {
        self.note_if_on_disk(key, Fate::Purged);
        let _hiding = self.disk.as_ref().map(|disk| disk.hide(key));
        let forgotten = self.forget_in_memory(key, Fate::Purged);
        let in_memory = forgotten.iter().filter(|entry| entry.on_disk().is_none()).count();
        Purging { in_memory, on_disk: self.disk.as_ref().map(|disk| disk.forget(key, None)), by: By::Key }
    }

    /// Makes all variants of a URL stale, wherever they come from.
    pub fn expire_url(&self, url: &[u8]) -> Purging {
        self.purge([Scope::Prefix(rules::whole(url).into())], Force::Soft)
    }

    /// Makes void all that is in one of some scopes; a prefix is one of the URL. It takes effect at once; to be awaited
    /// before it is acknowledged.
    pub fn purge(&self, scopes: impl IntoIterator<Item = Scope>, force: Force) -> Purging {
        let on_disk = match &self.disk {
            Some(disk) => Some(disk.invalidate(scopes, force)),
            None => {
                let _in_order = self.ruling.lock();
                let numbered = (self.rules.next_number()..).zip(scopes);
                let rules: Vec<Rule> = numbered.map(|(number, scope)| Rule { number, scope, force }).collect();
                self.rules.add_all(&rules);
                None
            }
        };
        Purging { in_memory: 0, on_disk, by: By::Rule }
    }

    /// How many stored responses in memory are in one of some scopes: one walk over all of them, whatever the number of
    /// scopes, with no lock held while a response is compared. `None` where that would take more than `steps_max` steps.
    /// It takes its time: it is not for the thread of a worker.
    pub fn count(&self, scopes: &[Scope], steps_max: u64) -> Option<usize> {
        let sought = Sought::of(scopes);
        let (mut count, mut steps) = (0, 0);
        let mut within = true;
        self.index.for_each(|object| {
            if !within {
                return;
            }
            let variants = object.read().variants().to_vec();
            let url = if sought.prefixes.is_empty() { Vec::new() } else { rules::subject(object.key().text()) };
            for entry in variants {
                count += usize::from(sought.has(&url, &entry, &mut steps));
            }
            within = steps <= steps_max;
        });
        within.then_some(count)
    }

    /// The number of the newest rule.
    pub(super) fn epoch(&self) -> u64 {
        self.disk.as_ref().map_or_else(|| self.rules.current_epoch(), |disk| disk.current_epoch())
    }

    pub(super) fn verdict(&self, key: &[u8], tags: &[u64], epoch: u64) -> Verdict {
        match &self.disk {
            Some(disk) => disk.verdict(key, tags, epoch),
            None => self.rules.verdict(key, tags, epoch),
        }
    }

    /// Puts a head in the place of that of a response of which the origin has sent a part, asked for at this epoch: it has the
    /// representation still. A response that a hard rule made void since it came is forgotten instead, and its readers go on:
    /// a part says that it is current, and not that somebody who purged it was wrong.
    pub fn renew_by_part(&self, entry: &Arc<Entry>, head: StoredHead, epoch: u64) {
        let kept = entry.stored_head();
        let tags = kept.as_ref().map_or(&[][..], |kept| kept.tags());
        if self.verdict(entry.key().text(), tags, entry.epoch()) == Verdict::Gone {
            // Not `drop_entry`: what came after the purge may lie on disk under its key.
            self.detach(entry);
            self.forget_on_disk(entry);
            self.fates.set(self.index.hash_of(entry.key().text()), Fate::Purged);
            return;
        }
        entry.renew(head, epoch);
    }

    /// Applies rules that are newer than an entry's last look at them.
    pub(super) fn judge(&self, key: &Key, state: &mut ObjectState, now: Stamp) {
        let epoch = self.epoch();
        if state.variants().iter().all(|entry| entry.is_judged(epoch)) {
            return;
        }
        let gone: Vec<_> = state.change(|all| {
            let voided = all.variants.extract_if(.., |entry| {
                let Some(stored) = entry.stored_head().filter(|_| !entry.is_judged(epoch)) else { return false };
                entry.set_judged(epoch);
                match self.verdict(entry.key().text(), stored.tags(), entry.epoch()) {
                    Verdict::Valid => false,
                    Verdict::Gone => {
                        self.fates.set(self.index.hash_of(key.text()), Fate::Purged);
                        true
                    }
                    verdict @ (Verdict::Stale | Verdict::Validate) => {
                        self.fates.set(self.index.hash_of(key.text()), Fate::Expired);
                        let mut terms = stored.terms.clone();
                        terms.iter_mut().for_each(|terms| match verdict {
                            Verdict::Validate => terms.distrust(),
                            _ => terms.expire(now),
                        });
                        entry.replace_head(StoredHead::new(stored.head.clone(), terms, stored.received));
                        false
                    }
                }
            });
            voided.collect()
        });
        let mut evict = self.evict.lock();
        for entry in gone {
            entry.listed.store(false, Ordering::Relaxed);
            entry.keep_blocks();
            evict.remove(&entry);
        }
    }
}
