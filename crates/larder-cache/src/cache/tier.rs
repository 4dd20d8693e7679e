//! The disk tier: responses on disk are loaded into memory on demand, and stay on disk when memory evicts them.

use super::{Cache, Disk, Fate, Lookup, vary_of};
use crate::entry::{DiskLocation, Entry, PinnedEntry};
use crate::key::Key;
use crate::store::rules::Verdict;
use crate::store::{DiskHead, Fetching, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

/// The queue before the disk is far shorter; where the disk stands still, no more are remembered.
const ON_THE_WAY_MAX: usize = 65_536;

/// Entries that may prove themselves in memory; further ones are written when they are evicted. One that has gone takes 200 bytes
/// until it is looked at.
const UNPROVEN_MAX: usize = 16_384;

/// So many of them are looked at each time: all of them in some seconds, and 16,384 in less than a millisecond in all.
const PROVEN_LOOKS: usize = 2_048;

/// A look at the disk for all variants of a key.
pub struct Load {
    cache: Arc<Cache>,
    key: Key,
    heads: Fetching<Vec<DiskHead>>,
    voided: u64,
}

impl Load {
    /// Waits for the responses that were read, and puts them into memory.
    pub async fn finish(self) {
        let heads = self.heads.await;
        if heads.is_empty() {
            self.cache.note_purged(&self.key);
        }
        self.cache.adopt(&self.key, heads, self.voided);
    }
}

impl Cache {
    /// Takes what the disk tier holds in memory out of the budget, and looks whether the disk gets on. The index is taken out
    /// ahead, as far as it will probably grow: what is evicted later to make room for it leaves holes between other
    /// entries, which the allocator can't give back (decision 026). To be called some times a second.
    pub fn account_for_disk(&self, now: Instant) {
        if let Some(disk) = &self.disk {
            let (bytes, expected) = disk.index_bytes();
            self.budget.set_disk_tier(bytes, expected, disk.sketch_bytes());
            self.look_at_the_way();
            self.write_proven(disk);
            self.make_room();
            disk.watch(now);
        }
    }

    /// Has an entry looked at when what is on its way to the disk has had time to arrive. Most entries are not asked for
    /// before that, and hold some 500 bytes until somebody looks.
    pub fn look_later(&self, entry: &Arc<Entry>) {
        if self.disk.is_some() && entry.is_being_written() {
            let mut on_the_way = self.on_the_way.lock();
            if on_the_way.len() < ON_THE_WAY_MAX {
                on_the_way.push(Arc::downgrade(entry));
            }
        }
    }

    /// Remembers an entry that the disk did not admit. A second request for it is a hit in memory, which asks no disk and pays
    /// nothing; without a later look it would be lost with the memory.
    pub(super) fn prove_later(&self, entry: &Arc<Entry>) {
        let mut unproven = self.unproven.lock();
        if unproven.len() < UNPROVEN_MAX {
            unproven.push_back(Arc::downgrade(entry));
        }
    }

    /// Writes entries to disk that were used since they came, for as long as the disk has nothing else to do than its queue holds.
    fn write_proven(&self, disk: &Arc<Store>) {
        let looks = self.unproven.lock().len().min(PROVEN_LOOKS);
        for _ in 0..looks {
            if disk.queue_room(&Context::from_waker(Waker::noop())).is_pending() {
                return;
            }
            let Some(next) = self.unproven.lock().pop_front() else { return };
            match next.upgrade() {
                // An entry that is used again proves itself later where the disk has other things to do.
                Some(entry) if entry.was_used() && !disk.is_behind(entry.key().text()) => entry.keep_on_disk(disk),
                Some(_) => self.unproven.lock().push_back(next),
                None => {}
            }
        }
    }

    fn look_at_the_way(&self) {
        let mut on_the_way = std::mem::take(&mut *self.on_the_way.lock());
        on_the_way.retain(|entry| entry.upgrade().is_some_and(|entry| entry.is_being_written()));
        self.on_the_way.lock().append(&mut on_the_way);
    }

    /// Takes what the server holds for its clients out of the memory budget (at most a quarter of it): what one worker held
    /// when it last told, and what it holds now.
    pub fn account_for_others(&self, before: u64, now: u64) {
        if before != now {
            self.budget.adjust_server(before, now);
            self.make_room();
        }
    }

    pub(super) fn forget_on_disk(&self, entry: &Entry) {
        if let Some(disk) = entry.on_disk() {
            self.voided(disk.key.text()).fetch_add(1, Ordering::SeqCst);
            drop(disk.store.forget(disk.key.text(), Some(disk.id)));
        }
    }

    /// Removes from disk what may lie there of a key: it is older than what memory has or had.
    pub(super) fn forget_unseen(&self, key: &[u8]) {
        if let Some(disk) = self.disk.as_ref().filter(|disk| disk.may_hold(key)) {
            self.voided(key).fetch_add(1, Ordering::SeqCst);
            if let Some(object) = self.index.find(key) {
                object.read().variants().iter().for_each(|variant| variant.keep_blocks());
            }
            drop(disk.forget(key, None));
        }
    }

    /// The look at the disk that a request needs first.
    pub(super) fn load(self: &Arc<Cache>, lookup: &Lookup<'_>) -> Option<Load> {
        if lookup.disk == Disk::Ask { self.load_of(lookup.key) } else { None }
    }

    pub(super) fn load_of(self: &Arc<Cache>, key: &[u8]) -> Option<Load> {
        let disk = self.disk.as_ref().filter(|disk| disk.may_have(key))?;
        let voided = self.voided(key).load(Ordering::SeqCst);
        let (key, heads) = (Key::from_text(key.to_vec()), disk.heads(key));
        Some(Load { cache: Arc::clone(self), key, heads, voided })
    }

    /// Remembers why a key goes that may lie on disk.
    pub(super) fn note_if_on_disk(&self, key: &[u8], fate: Fate) {
        if self.disk.as_ref().is_some_and(|disk| disk.may_have(key)) {
            self.fates.set(self.index.hash_of(key), fate);
        }
    }

    /// Notes a purge as the fate of a key whose response on disk was not handed out, where a rule covers the key.
    fn note_purged(&self, key: &Key) {
        if self.verdict(key.text(), &[], 0) == Verdict::Gone {
            self.fates.set(self.index.hash_of(key.text()), Fate::Purged);
        }
    }

    /// How often something was made void under keys like this one.
    pub(super) fn voided(&self, key: &[u8]) -> &AtomicU64 {
        &self.voided[self.index.hash_of(key) as usize % self.voided.len()]
    }

    /// Takes into memory what lies on disk under a key, beside what is here already; `voided` is the count from before the
    /// look at the disk.
    fn adopt(&self, key: &Key, heads: Vec<DiskHead>, voided: u64) {
        let Some(store) = &self.disk else { return };
        let id_hash = self.index.hash_of(key.text());
        // Pinned, so that the room that is made at the end is not theirs: a request is about to look for them.
        let entries: Vec<PinnedEntry> = heads
            .into_iter()
            .filter_map(|head| {
                let location = DiskLocation { store: Arc::clone(store), id: head.id, key: key.clone() };
                let memory_max = self.object_bytes_max(false);
                Entry::from_disk(head, Arc::new(location), id_hash, memory_max, Arc::clone(&self.budget))
                    .map(|entry| PinnedEntry::new(Arc::new(entry)))
            })
            .collect();
        if entries.is_empty() {
            return;
        }
        self.with_object_of(key, |_, state| {
            // A response that was made void meanwhile must not come back.
            if state.loaded || self.voided(key.text()).load(Ordering::SeqCst) != voided {
                return;
            }
            state.loaded = true;
            for entry in &entries {
                // The one in memory is newer.
                let vary = vary_of(entry);
                if !state.variants().iter().any(|held| vary_of(held) == vary) {
                    state.change(|all| all.variants.push(Arc::clone(entry)));
                    self.evict.lock().insert(Arc::clone(entry));
                }
            }
        });
        if let Some(object) = self.index.find(key.text()) {
            self.remove_if_empty(key.text(), &object);
        }
        self.make_room();
    }

    /// An evicted entry that lies on disk stays there; another one is written there now if it was used.
    pub(super) fn leave_memory(&self, victim: &Arc<Entry>) {
        if let Some(disk) = &self.disk {
            match victim.on_disk() {
                Some(there) if victim.was_used() => there.store.used(there.key.text()),
                None if victim.was_used() => victim.keep_on_disk(disk),
                _ => {}
            }
        }
        let fate = match (&self.disk, victim.on_disk()) {
            (None, _) => Fate::Evicted,
            (Some(_), Some(_)) => Fate::ToDisk,
            (Some(_), None) => Fate::NotAdmitted,
        };
        self.fates.set(self.index.hash_of(victim.key().text()), fate);
        self.detach(victim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Settings;
    use crate::head::StoredHead;
    use crate::store::{Admission, HeadToStore, ObjectId, Put};
    use larder_wire::ResponseHead;
    use larder_wire::date::Stamp;

    fn store(folder: &tempfile::TempDir) -> Arc<Store> {
        store_that_admits(folder, Admission::All)
    }

    fn store_that_admits(folder: &tempfile::TempDir, admission: Admission) -> Arc<Store> {
        let settings = crate::store::Settings {
            disk_bytes: 64_000_000,
            free_bytes_min: 0,
            index_bytes_max: 4 << 20,
            write_block_bytes: 256 << 10,
            queue_bytes_max: 4 << 20,
            sync_seconds: 1,
            readers: 1,
            admission,
        };
        Store::open(&[folder.path().to_path_buf()], &settings).unwrap()
    }

    fn head(number: u64) -> DiskHead {
        DiskHead {
            key: format!("http://a.example/{number}").into(),
            variant: 0,
            id: ObjectId(number),
            epoch: 0,
            length: Some(1),
            tags: Vec::new(),
            meta: StoredHead::new(ResponseHead::new(200), None, Stamp(0)).encode(),
            body: Some(vec![1].into()),
            verdict: Verdict::Valid,
        }
    }

    /// The text of the key was in memory twice, and charged once.
    #[test]
    fn what_comes_from_disk_has_one_text_of_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::over(Settings::default(), Some(store(&folder)));
        let head = head(1);
        let key = Key::from_text(head.key.to_vec());
        cache.adopt(&key, vec![head], 0);
        let object = cache.index.find(key.text()).unwrap();
        let entry = Arc::clone(&object.read().variants()[0]);
        assert!(std::ptr::eq(object.key().text(), entry.key().text()));
        assert!(std::ptr::eq(object.key().text(), entry.on_disk().unwrap().key.text()));
    }

    /// A kill lost what was asked for twice: the second request was a hit in memory, and the disk was not asked again.
    #[test]
    fn what_is_asked_for_again_in_memory_is_written_to_a_disk_that_did_not_admit_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_that_admits(&folder, Admission::SeenTwice);
        let cache = Cache::over(Settings::default(), Some(Arc::clone(&store)));
        let fetched = |key: &[u8]| {
            let (reader, mut writer) = cache.beside(key);
            writer.store(StoredHead::new(ResponseHead::new(200), None, Stamp(0)), Some(1));
            writer.push(vec![1].into());
            writer.finish(None);
            Arc::clone(reader.entry())
        };
        let (once, twice) = (fetched(b"http://a.example/once"), fetched(b"http://a.example/twice"));
        cache.account_for_disk(std::time::Instant::now());
        assert!(once.on_disk().is_none() && twice.on_disk().is_none());
        twice.used();
        cache.account_for_disk(std::time::Instant::now());
        store.sync().wait();
        assert!(once.on_disk().is_none() && twice.on_disk().is_some());
        assert!(store.may_have(b"http://a.example/twice") && !store.may_have(b"http://a.example/once"));
        assert_eq!(cache.unproven.lock().len(), 1, "it is looked at until it is asked for again or goes");
    }

    #[test]
    fn the_index_is_taken_out_of_the_budget_before_it_has_grown() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let memory_bytes = 4 << 20;
        let cache = Cache::over(Settings { memory_bytes, ..Settings::default() }, Some(Arc::clone(&store)));
        let put = |numbers: std::ops::Range<u64>| {
            let putting = numbers.map(|number| {
                let DiskHead { key, variant, id, epoch, length, tags, meta, body, .. } = head(number);
                let body = body.map(|body| vec![body]);
                store.put_head(HeadToStore { key, variant, id, epoch, length, tags, meta, body })
            });
            let putting: Vec<_> = putting.collect();
            putting.into_iter().for_each(|putting| assert_eq!(putting.wait(), Put::Stored));
        };
        put(0..100);
        cache.account_for_disk(std::time::Instant::now());
        let few = cache.budget.max();
        let beside = store.sketch_bytes();
        assert_eq!(few, memory_bytes - store.index_bytes().0 - beside, "a hundred records tell nothing");
        put(100..1_100);
        cache.account_for_disk(std::time::Instant::now());
        let (now, expected) = store.index_bytes();
        assert!(expected > 4 * now, "short records fill the index: {now}, {expected}");
        assert_eq!(cache.budget.max(), memory_bytes / 8 * 5 - beside, "and at most three eighths are taken ahead");
    }
}
