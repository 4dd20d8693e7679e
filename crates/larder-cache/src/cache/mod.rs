//! The cache as a whole: it answers which stored response a request may have, and stores the answers of origins.
//!
//! [`Cache::find`] is the only question the server asks. It answers with a reader in every case but
//! one, and with a writer when it is this request's turn to ask the origin. An object is one key with
//! its stored variants and its fetches under way; all three live under one short lock.

use crate::budget::Budget;
use crate::entry::{Entry, Failure, Limits, PinnedEntry, Reader};
use crate::evict::{Evict, S3Fifo};
use crate::head::StoredHead;
use crate::index::Index;
use crate::key::Key;
use crate::policy::{self, Asked, NotStored, StaleWhy, StandIn, Usable, ValidateWhy, Vary};
use crate::search::Searches;
use crate::store::Store;
use crate::store::rules::{RULES_MAX, Rules};
use crate::zeros::zeros;
use fates::Fates;
use larder_wire::date::Stamp;
use larder_wire::structured::NoVarySearch;
use larder_wire::{RequestHead, Url};
use object::{Followed, Object, ObjectState, Pending};
use parking_lot::{Mutex, RwLock};
use passes::PassMarks;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

mod fates;
mod fill;
mod gate;
mod glance;
mod object;
mod passes;
mod patience;
mod peek;
mod purge;
mod spool;
mod tier;
mod walk;
mod writer;

pub use crate::entry::{Hit, Tier, Whole};
pub use fates::Fate;
pub use fill::Fill;
pub use gate::Gate;
pub use glance::Glance;
pub use peek::{Peek, StoredVariant};
pub use purge::{Purged, Purging};
pub use tier::Load;
pub use writer::{Admitted, Writer};

/// Settings of a cache. All sizes are in bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Heads, bodies and bookkeeping together stay below this.
    pub memory_bytes: u64,
    /// A longer body is not kept in memory.
    pub memory_object_bytes_max: u64,
    /// A longer body is not kept at all.
    pub object_bytes_max: u64,
    /// How much of a body that is not kept may wait for its reader.
    pub window_bytes: u64,
    /// How much of an abandoned fetch is still worth fetching.
    pub abandoned_bytes_max: u64,
    /// Variants of one key; the oldest goes first.
    pub variants_max: usize,
    /// How long a key that turned out uncachable is asked for without making others wait.
    pub pass_seconds: u64,
    /// The rules of RFC 9111 that leave a choice.
    pub policy: policy::Settings,
    /// Whether bodies pass by a disk that is behind; else they wait for it.
    pub pass_by_disk: bool,
    /// Seed of the index, against chosen collisions.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            memory_bytes: 256_000_000,
            memory_object_bytes_max: 64_000_000,
            object_bytes_max: u64::MAX,
            window_bytes: 128 * 1024,
            abandoned_bytes_max: 16_000_000,
            variants_max: 64,
            pass_seconds: 120,
            policy: policy::Settings::default(),
            pass_by_disk: true,
            seed: 0,
        }
    }
}

/// The answer to a lookup.
pub enum Found {
    /// A stored response that may be sent without asking the origin.
    Fresh(Hit),
    /// A stale one that the client accepts (`max-stale`).
    Stale(Hit, StaleWhy),
    /// A stale one that is sent at once; the request that gets the writer validates it in the background.
    Revalidate(Hit, Option<Writer>),
    /// A stored one that must be validated first, by this request.
    Validate(Hit, ValidateWhy, Reader, Writer),
    /// Another request is asking the origin: its answer may serve this one too.
    InFlight(Reader),
    /// Nothing usable is stored; this request asks the origin, and others follow.
    Missing(Reader, Writer, Absent),
    /// The last answer for this key was for one request alone: ask without making others wait.
    Pass(Reader, Writer),
    /// Nothing usable is stored and the client wants nothing else (`only-if-cached`).
    Unsatisfiable,
    /// A response under this key may lie on disk: load it, and ask again.
    OnDisk(Load),
}

/// The part of an object that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Anything under the key.
    Key,
    /// A response to this request's fields: those that are stored are for others (`Vary`).
    Variant,
}

impl Found {
    /// It is answered from the store at once.
    pub fn is_hit(&self) -> bool {
        matches!(self, Found::Fresh(_) | Found::Stale(..) | Found::Revalidate(..))
    }

    /// The key of what was found, where that has an entry.
    pub fn key(&self) -> Option<Key> {
        let reader = match self {
            Found::Fresh(hit) | Found::Stale(hit, _) | Found::Revalidate(hit, _) => &hit.reader,
            Found::Validate(_, _, reader, _) | Found::Missing(reader, ..) | Found::Pass(reader, _) => reader,
            Found::InFlight(reader) => reader,
            Found::Unsatisfiable | Found::OnDisk(_) => return None,
        };
        Some(reader.entry().key())
    }

    /// The word that logs and pages show.
    pub fn as_str(&self) -> &'static str {
        match self {
            Found::Fresh(_) => "fresh",
            Found::Stale(..) => "stale",
            Found::Revalidate(..) => "revalidate",
            Found::Validate(..) => "validate",
            Found::InFlight(_) => "in-flight",
            Found::Missing(..) => "missing",
            Found::Pass(..) => "pass",
            Found::Unsatisfiable => "unsatisfiable",
            Found::OnDisk(_) => "on-disk",
        }
    }
}

/// All that is stored, and all that is being fetched to be stored.
pub struct Cache {
    settings: Settings,
    budget: Arc<Budget>,
    index: Index<RwLock<ObjectState>>,
    evict: Mutex<Box<dyn Evict<Entry>>>,
    passes: PassMarks,
    fates: Fates,
    searches: Searches,
    evictions: AtomicU64,
    disk: Option<Arc<Store>>,
    /// Entries of which something is on its way to the disk: what they hold for that alone goes when it is there.
    on_the_way: Mutex<Vec<Weak<Entry>>>,
    /// Entries that the disk did not admit when they were asked for once: those that are used again are written there.
    unproven: Mutex<VecDeque<Weak<Entry>>>,
    /// Counts of invalidations, by the hash of the key.
    voided: Box<[AtomicU64]>,
    /// The purge rules of a cache without a disk; with one, the rules of the disk count.
    rules: Rules,
    ruling: Mutex<()>,
    gate: Gate,
}

/// Numbers about the whole cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys with something stored or under way.
    pub objects: u64,
    /// Bytes held.
    pub memory_bytes: u64,
    /// Stored responses that made room for others.
    pub evictions: u64,
}

impl Cache {
    /// An empty cache in memory.
    pub fn new(settings: Settings) -> Arc<Cache> {
        Cache::over(settings, None)
    }

    /// A cache in memory over a disk, where there is one.
    pub fn over(settings: Settings, disk: Option<Arc<Store>>) -> Arc<Cache> {
        Arc::new(Cache {
            budget: Arc::new(Budget::of(settings.memory_bytes)),
            index: Index::new(64, settings.seed),
            evict: Mutex::new(Box::new(S3Fifo::new())),
            passes: PassMarks::new(settings.pass_seconds),
            fates: Fates::new(),
            searches: Searches::default(),
            evictions: AtomicU64::new(0),
            rules: Rules::new(RULES_MAX),
            ruling: Mutex::new(()),
            gate: Gate::default(),
            on_the_way: Mutex::default(),
            unproven: Mutex::default(),
            disk,
            voided: zeros(VOIDED_COUNTS),
            settings,
        })
    }

    /// The disk tier.
    pub fn disk(&self) -> Option<&Arc<Store>> {
        self.disk.as_ref()
    }

    /// Whether purges that were made elsewhere are known here.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The limits of a stream.
    fn limits(&self, unattended: bool) -> Limits {
        let Settings { window_bytes, abandoned_bytes_max, .. } = self.settings;
        Limits { window_bytes, abandoned_bytes_max, unattended }
    }

    /// The longest body that is kept: in memory, or on disk.
    fn object_bytes_max(&self, on_disk: bool) -> u64 {
        let max = self.settings.object_bytes_max;
        if on_disk { max } else { max.min(self.settings.memory_object_bytes_max) }
    }

    /// The settings that this cache was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Numbers about the whole cache.
    pub fn stats(&self) -> Stats {
        Stats {
            objects: self.index.len() as u64,
            memory_bytes: self.budget.used(),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Looks up what a GET or HEAD for this key may have at `now`.
    pub fn find(
        self: &Arc<Cache>,
        key: &[u8],
        request: &RequestHead,
        asked: &Asked,
        now: Stamp,
        joins: Joins,
        disk: Disk,
    ) -> Found {
        let hash = self.index.hash_of(key);
        let is_apart = self.gate.is_shut(now);
        // A fetch that is under way may bring what was purged since it began: each request asks for itself.
        let joins = if is_apart && joins == Joins::Yes { Joins::Apart } else { joins };
        let lookup = Lookup { key, hash, request, asked, now, joins, disk, is_apart };
        self.fates.tick(now);
        if let Some(object) = self.index.find_hashed(hash, key) {
            if !is_apart && let Some(hit) = self.find_fresh(&object.read(), &lookup) {
                return hit;
            }
            let mut state = object.write();
            if !state.dead {
                return self.find_in(object.key(), &mut state, &lookup);
            }
        }
        if let Some(load) = self.load(&lookup) {
            return Found::OnDisk(load);
        }
        if asked.only_if_cached() {
            return Found::Unsatisfiable;
        }
        if joins == Joins::No {
            let (reader, writer) = self.alone(key);
            return Found::Pass(reader, writer);
        }
        self.with_object(key, |key, state| self.find_in(key, state, &lookup))
    }

    /// The key under which a URL is looked for: its own, less what `No-Vary-Search` said of its path. `written` is what
    /// [`Url::write_to`] wrote of it, or nothing.
    pub fn key_of(&self, url: &Url, written: &str, key: &mut Vec<u8>) {
        url.key_text_of(written, key);
        self.settle_key(key);
    }

    /// [`Cache::key_of`] for a caller that has written the key up to what `No-Vary-Search` says.
    pub fn settle_key(&self, key: &mut Vec<u8>) {
        self.searches.apply(key);
    }

    /// A reader and a writer that nobody else sees: for requests whose answers are never shared.
    pub fn alone(self: &Arc<Cache>, key: &[u8]) -> (Reader, Writer) {
        let entry = Arc::new(Entry::new(Key::from_text(key.to_vec()), 0, self.epoch(), Arc::clone(&self.budget)));
        (entry.lead(), Writer::new(Arc::clone(self), PinnedEntry::new(entry), Vec::new(), false))
    }

    /// A writer for an answer that takes the place of what is stored, and a reader on it; nobody follows.
    pub fn beside(self: &Arc<Cache>, key: &[u8]) -> (Reader, Writer) {
        self.with_object(key, |key, state| self.begin(key, state, Followed::ByNobody, false))
    }

    /// Forgets all variants of a key and what is being fetched for it; says how many variants were in memory.
    pub fn invalidate(&self, key: &[u8]) -> usize {
        self.note_if_on_disk(key, Fate::Invalidated);
        let hiding = self.disk.as_ref().map(|disk| disk.hide(key));
        let variants = self.forget_in_memory(key, Fate::Invalidated);
        if let Some(disk) = self.disk.as_ref().filter(|disk| disk.may_get(key)) {
            drop(disk.forget(key, None));
        }
        drop(hiding);
        variants.len()
    }

    /// A caller that also removes it from disk hides it there first: a look at the disk began before and sees the count, or finds
    /// nothing.
    fn forget_in_memory(&self, key: &[u8], fate: Fate) -> Vec<Arc<Entry>> {
        self.voided(key).fetch_add(1, Ordering::SeqCst);
        let Some(object) = self.index.find(key) else { return Vec::new() };
        let (variants, pending) = {
            let mut state = object.write();
            state.dead = true;
            state.change(|all| (std::mem::take(&mut all.variants), std::mem::take(&mut all.pending)))
        };
        self.index.remove_if(key, &object, |_| true);
        if !variants.is_empty() {
            self.fates.set(self.index.hash_of(key), fate);
        }
        for entry in pending.iter().map(|pending| &pending.entry).chain(&variants) {
            entry.listed.store(false, Ordering::Relaxed);
            entry.keep_blocks();
        }
        let mut evict = self.evict.lock();
        for entry in &variants {
            evict.remove(entry);
        }
        variants
    }

    /// A reader on an entry as it is now; `None` while it has no head.
    pub fn open(&self, entry: &Arc<Entry>) -> Option<Hit> {
        entry.open()
    }

    /// The stored response that this request selects, whether it may be used or not.
    pub fn stored(&self, key: &[u8], request: &RequestHead) -> Option<(PinnedEntry, Arc<StoredHead>)> {
        let found = choose(&self.index.find(key)?.read(), request);
        let (entry, stored) = found.filter(|(entry, _)| entry.is_judged(self.epoch()))?;
        Some((PinnedEntry::new(entry), stored))
    }

    /// The stored response that may stand in for an answer to this request, and why it may.
    pub fn stand_in(
        &self,
        key: &[u8],
        request: &RequestHead,
        asked: &Asked,
        now: Stamp,
        policy: &policy::Settings,
    ) -> Option<(PinnedEntry, StandIn)> {
        if self.gate.is_shut(now) {
            return None;
        }
        let object = self.index.find(key)?;
        let mut state = object.write();
        if state.dead || state.variants().is_empty() {
            return None;
        }
        self.judge(object.key(), &mut state, now);
        let (entry, stored) = choose(&state, request).filter(|(entry, _)| entry.is_settled())?;
        let why = policy::stands_in(stored.terms.as_ref()?, asked, now, policy)?;
        Some((PinnedEntry::new(entry), why))
    }

    /// Whether this response is stored still, after all that was made void meanwhile.
    pub fn is_stored(&self, entry: &Arc<Entry>, now: Stamp) -> bool {
        let Some(object) = self.index.find(entry.key().text()) else { return false };
        let mut state = object.write();
        self.judge(object.key(), &mut state, now);
        !state.dead && state.variants().iter().any(|variant| Arc::ptr_eq(variant, entry))
    }

    /// Forgets one stored response: the origin has something else now.
    pub fn drop_entry(&self, entry: &Arc<Entry>) {
        let key = entry.key();
        self.fates.set(self.index.hash_of(key.text()), Fate::Changed);
        let _hiding = self.disk.as_ref().map(|disk| disk.hide(key.text()));
        self.voided(key.text()).fetch_add(1, Ordering::SeqCst);
        self.detach(entry);
        match entry.on_disk() {
            Some(_) => self.forget_on_disk(entry),
            None => self.forget_unseen(key.text()),
        }
    }

    /// Forgets a response whose bytes are not those that its digest names. Its readers get no more of it.
    pub fn refuse(&self, entry: &Arc<Entry>, failure: Failure) {
        // An entry that is in no index, because its answer is for one request alone, must not take along what is stored.
        if entry.listed.load(Ordering::Relaxed) {
            self.drop_entry(entry);
        }
        self.fates.set(self.index.hash_of(entry.key().text()), Fate::Corrupt);
        entry.fail(failure);
    }

    /// Remembers that answers for this key are for one request alone, and why.
    pub fn mark_pass(&self, key: &[u8], now: Stamp, why: NotStored) {
        self.passes.set(self.index.hash_of(key), now, why);
    }

    /// The hit that most lookups are: hits of one key share its lock.
    fn find_fresh(&self, state: &ObjectState, lookup: &Lookup<'_>) -> Option<Found> {
        let epoch = self.epoch();
        let judged = state.variants().iter().all(|entry| entry.is_judged(epoch));
        let (entry, stored) = choose(state, lookup.request).filter(|_| judged && !state.dead)?;
        if !self.has_seen_better(state, lookup, &stored) {
            return None;
        }
        let usable = policy::usable(stored.terms.as_ref()?, lookup.asked, lookup.now, &self.settings.policy);
        if usable != Usable::Fresh {
            return None;
        }
        let hit = self.open(&entry)?;
        entry.used();
        Some(Found::Fresh(hit))
    }

    /// Whether no better answer to the request can lie on disk unseen: where a part is taken from a response that is meant for others, the one for
    /// this request may.
    fn has_seen_better(&self, state: &ObjectState, lookup: &Lookup<'_>, chosen: &StoredHead) -> bool {
        state.loaded
            || self.disk.is_none()
            || lookup.disk == Disk::Seen
            // Without a range nothing is taken in part: it is the response for this request.
            || !lookup.request.fields.contains("Range")
            || chosen.terms.as_ref().is_some_and(|terms| terms.answers(lookup.request))
    }

    fn find_in(self: &Arc<Cache>, key: &Key, state: &mut ObjectState, lookup: &Lookup<'_>) -> Found {
        self.judge(key, state, lookup.now);
        let chosen = choose(state, lookup.request);
        if chosen.as_ref().is_none_or(|(_, stored)| !self.has_seen_better(state, lookup, stored))
            && let Some(load) = self.load(lookup).filter(|_| !state.loaded)
        {
            return Found::OnDisk(load);
        }
        let Some((entry, stored)) = chosen else { return self.find_missing(key, state, lookup) };
        let Some(terms) = stored.terms.as_ref() else { return self.find_missing(key, state, lookup) };
        let usable = match policy::usable(terms, lookup.asked, lookup.now, &self.settings.policy) {
            usable @ Usable::Validate(_) => usable,
            _ if lookup.is_apart => Usable::Validate(ValidateWhy::Apart),
            usable => usable,
        };
        if let Usable::Validate(why) = usable {
            return self.find_invalid(key, state, lookup, &entry, why);
        }
        let Some(hit) = self.open(&entry) else { return self.find_missing(key, state, lookup) };
        entry.used();
        match usable {
            Usable::Stale(why) => Found::Stale(hit, why),
            // A HEAD, or a request whose answer is not to be stored, refreshes nothing, and one that wants stored answers only
            // has no origin asked: the next one will.
            Usable::Revalidate
                if state.pending().is_empty() && lookup.joins == Joins::Yes && !lookup.asked.only_if_cached() =>
            {
                let (_, writer) = self.begin(key, state, Followed::ByAll, true);
                Found::Revalidate(hit, Some(writer))
            }
            Usable::Revalidate => Found::Revalidate(hit, None),
            Usable::Fresh | Usable::Validate(_) => Found::Fresh(hit),
        }
    }

    /// The answer to a lookup that the store can't answer and that does not begin a shared fetch.
    fn without_asking(self: &Arc<Cache>, state: &ObjectState, lookup: &Lookup<'_>) -> Option<Found> {
        if lookup.asked.only_if_cached() {
            return Some(Found::Unsatisfiable);
        }
        if lookup.joins == Joins::No {
            let (reader, writer) = self.alone(lookup.key);
            return Some(Found::Pass(reader, writer));
        }
        follow(state, lookup.joins, self.epoch()).map(Found::InFlight)
    }

    fn find_invalid(
        self: &Arc<Cache>,
        key: &Key,
        state: &mut ObjectState,
        lookup: &Lookup<'_>,
        entry: &Arc<Entry>,
        why: ValidateWhy,
    ) -> Found {
        // A response with `no-cache` is not served without a validation by the very request (RFC 9111 section 5.2.2.4).
        // Where the last validation was for the one who asked, waiting for the next one is in vain.
        let for_one = self.passes.holds(lookup.hash, lookup.now).is_some_and(|why| why != NotStored::Authorization);
        let apart = (why == ValidateWhy::NoCache || for_one) && lookup.joins == Joins::Yes;
        let lookup = &Lookup { joins: if apart { Joins::Apart } else { lookup.joins }, ..*lookup };
        if let Some(found) = self.without_asking(state, lookup) {
            return found;
        }
        let Some(hit) = self.open(entry) else { return self.find_missing(key, state, lookup) };
        let (reader, writer) = self.begin(key, state, lookup.joins.followed(), false);
        Found::Validate(hit, why, reader, writer)
    }

    fn find_missing(self: &Arc<Cache>, key: &Key, state: &mut ObjectState, lookup: &Lookup<'_>) -> Found {
        if let Some(found) = self.without_asking(state, lookup) {
            return found;
        }
        if self.passes.holds(lookup.hash, lookup.now).is_some() {
            let (reader, writer) = self.begin(key, state, Followed::ByNobody, false);
            return Found::Pass(reader, writer);
        }
        let absent = if state.variants().is_empty() { Absent::Key } else { Absent::Variant };
        let (reader, writer) = self.begin(key, state, lookup.joins.followed(), false);
        Found::Missing(reader, writer, absent)
    }

    fn begin(
        self: &Arc<Cache>,
        key: &Key,
        state: &mut ObjectState,
        followed: Followed,
        unattended: bool,
    ) -> (Reader, Writer) {
        let hash = self.index.hash_of(key.text());
        let entry = Arc::new(Entry::new(key.clone(), hash, self.epoch(), Arc::clone(&self.budget)));
        entry.listed.store(true, Ordering::Relaxed);
        state.change(|all| all.pending.push(Pending { entry: Arc::clone(&entry), followed }));
        let candidates = state
            .variants()
            .iter()
            .filter(|variant| variant.is_settled())
            .filter_map(|variant| Some((PinnedEntry::new(Arc::clone(variant)), variant.stored_head()?)))
            .collect();
        let reader = entry.lead();
        (reader, Writer::new(Arc::clone(self), PinnedEntry::new(entry), candidates, unattended))
    }

    /// Moves a fetch to the key that all equal queries share, where its response says which are equal.
    fn rename(&self, entry: &Arc<Entry>, rule: Option<NoVarySearch>) {
        let old = entry.key();
        let mut text = old.text().to_vec();
        self.searches.learn(&text, rule);
        self.searches.apply(&mut text);
        if text == old.text() {
            return;
        }
        let Some(object) = self.index.find(old.text()) else { return };
        let pending = {
            let mut state = object.write();
            state.change(|all| all.take_pending(entry))
        };
        let Some(mut pending) = pending else { return };
        self.remove_if_empty(old.text(), &object);
        pending.followed = Followed::ByNobody;
        let mut pending = Some(pending);
        self.with_object(&text, |key, state| {
            entry.set_key(key.clone());
            state.change(|all| all.pending.extend(pending.take()));
        });
    }

    fn remove_if_empty(&self, key: &[u8], object: &Arc<Object>) {
        self.index.remove_if(key, object, |object| {
            let mut state = object.write();
            state.dead = state.is_empty();
            state.dead
        });
    }

    /// A head arrived and may be shared: the entry becomes a variant of its key, in the place of the one
    /// that the same requests selected.
    fn install(&self, entry: &Arc<Entry>, on_disk: bool) {
        let Some(object) = self.index.find(entry.key().text()) else { return };
        let mut state = object.write();
        let variants_max = self.settings.variants_max;
        let gone = state.change(|all| {
            all.take_pending(entry)?;
            let vary = vary_of(entry);
            let replaced: Vec<Arc<Entry>> = all.variants.extract_if(.., |old| vary_of(old) == vary).collect();
            let crowded_out = (all.variants.len() >= variants_max).then(|| all.variants.remove(0));
            // A head that the disk refuses takes those of all variants along.
            replaced.iter().chain(&crowded_out).chain(&all.variants).for_each(|old| old.keep_blocks());
            all.variants.push(Arc::clone(entry));
            Some((replaced, crowded_out))
        });
        let Some((replaced, crowded_out)) = gone else { return };
        let loaded = state.loaded;
        drop(state);
        self.passes.clear(self.index.hash_of(entry.key().text()));
        self.fates.clear(self.index.hash_of(entry.key().text()));
        for old in replaced.iter().chain(&crowded_out) {
            old.listed.store(false, Ordering::Relaxed);
            self.evict.lock().remove(old);
        }
        // On disk a new head of the same variant replaces the old one by itself.
        for old in replaced.iter().filter(|_| !on_disk).chain(&crowded_out) {
            self.forget_on_disk(old);
        }
        if !on_disk && !loaded {
            self.forget_unseen(entry.key().text());
        }
    }

    /// The stream of a stored body is over: from now on it may be evicted.
    fn admit(&self, entry: &Arc<Entry>) {
        if let Some(object) = self.index.find(entry.key().text()) {
            let state = object.write();
            if state.variants().iter().any(|variant| Arc::ptr_eq(variant, entry)) {
                self.evict.lock().insert(Arc::clone(entry));
            }
        }
        self.look_later(entry);
        self.make_room();
    }

    /// Remembers why a body was not kept to its end.
    fn note_passed(&self, entry: &Entry, why: Fate) {
        self.fates.set(self.index.hash_of(entry.key().text()), why);
    }

    /// Takes an entry out of the index, wherever it stands in it.
    fn detach(&self, entry: &Arc<Entry>) {
        if !entry.listed.swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(object) = self.index.find(entry.key().text()) else { return };
        let (was_stored, empty) = {
            let mut state = object.write();
            let was_stored = state.change(|all| {
                all.pending.retain(|pending| !Arc::ptr_eq(&pending.entry, entry));
                let before = all.variants.len();
                all.variants.retain(|variant| !Arc::ptr_eq(variant, entry));
                all.variants.len() < before
            });
            // It may lie on disk still, so the next lookup asks the disk again.
            state.loaded &= !was_stored;
            (was_stored, state.is_empty())
        };
        if entry.is_pinned() {
            entry.keep_blocks();
        }
        if was_stored {
            self.evict.lock().remove(entry);
        }
        if empty {
            self.remove_if_empty(entry.key().text(), &object);
        }
    }

    /// Evicts until the budget holds. False when no entry is left that may be evicted: all the rest is being
    /// fetched, or being read by clients. To be called after bytes were read that may have come from disk.
    pub fn make_room(&self) -> bool {
        let mut busy = 0;
        while self.budget.is_exceeded() {
            let Some(victim) = self.evict.lock().evict() else { return false };
            // An entry in use frees its memory when its last user leaves, not now; one that is not on disk yet would be fetched
            // twice.
            if victim.is_pinned() || victim.is_being_written() {
                busy += 1;
                self.evict.lock().insert(Arc::clone(&victim));
                if !victim.listed.load(Ordering::Relaxed) {
                    self.evict.lock().remove(&victim);
                }
                if busy > PINNED_TRIES {
                    return false;
                }
                continue;
            }
            self.evictions.fetch_add(1, Ordering::Relaxed);
            self.leave_memory(&victim);
        }
        true
    }

    fn with_object<T>(&self, key: &[u8], with: impl FnMut(&Key, &mut ObjectState) -> T) -> T {
        self.with_object_of(&Key::from_text(key.to_vec()), with)
    }

    /// [`Cache::with_object`] with a key whose text is shared with the object, where that is made now.
    fn with_object_of<T>(&self, key: &Key, mut with: impl FnMut(&Key, &mut ObjectState) -> T) -> T {
        loop {
            let (object, _) = self.index.find_or_insert_with(key, RwLock::default);
            let mut state = object.write();
            if !state.dead {
                return with(key, &mut state);
            }
        }
    }
}

/// Keys share a count by their hash: what is made void elsewhere rarely spoils a look at the disk.
const VOIDED_COUNTS: usize = 1024;

/// How many entries in a row may be in clients' hands before eviction gives up for now.
const PINNED_TRIES: u32 = 64;

/// Whether a request that finds nothing takes part in fetches that others share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// It leads or follows one.
    Yes,
    /// It asks for itself, but its answer is stored if it may be: a request with credentials, whose answer is
    /// probably for it alone.
    Apart,
    /// It asks for itself alone: HEAD, a range far into an object, a request that is not to be stored.
    No,
}

impl Joins {
    fn followed(self) -> Followed {
        if self == Joins::Yes { Followed::ByAll } else { Followed::ByNobody }
    }
}

/// Whether a request has been told what lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// It has not: [`Found::OnDisk`] may be the answer.
    Ask,
    /// It has looked there.
    Seen,
}

struct Lookup<'a> {
    key: &'a [u8],
    /// The hash of the key.
    hash: u64,
    request: &'a RequestHead,
    asked: &'a Asked,
    now: Stamp,
    joins: Joins,
    disk: Disk,
    /// The gate is shut.
    is_apart: bool,
}

fn vary_of(entry: &Entry) -> Option<Vary> {
    Some(entry.stored_head()?.terms.as_ref()?.vary.clone())
}

/// The stored response that this request selects (RFC 9111 section 4.1).
fn choose(state: &ObjectState, request: &RequestHead) -> Option<(Arc<Entry>, Arc<StoredHead>)> {
    let heads: Vec<(Arc<Entry>, Arc<StoredHead>)> = match state.variants() {
        [] => return None,
        [only] => {
            let stored = only.stored_head()?;
            let terms = stored.terms.as_ref();
            let matches = terms.is_some_and(|terms| terms.answers(request) || terms.answers_in_part(request));
            return matches.then(|| (Arc::clone(only), stored));
        }
        several => several.iter().filter_map(|variant| Some((Arc::clone(variant), variant.stored_head()?))).collect(),
    };
    let terms = heads.iter().enumerate().filter_map(|(at, (_, stored))| Some((stored.terms.as_ref()?, at)));
    let best = policy::choose(terms, request)?;
    heads.into_iter().nth(best)
}

/// A reader on a fetch under way that others may follow.
fn follow(state: &ObjectState, joins: Joins, epoch: u64) -> Option<Reader> {
    if joins != Joins::Yes {
        return None;
    }
    let pending = state.pending().iter().find(|pending| pending.followed == Followed::ByAll)?;
    // A fetch that began before a rule may bring what the rule made void.
    (pending.entry.is_useful() && pending.entry.epoch() == epoch).then(|| pending.entry.follow())
}
