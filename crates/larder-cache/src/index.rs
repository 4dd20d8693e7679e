//! Finds objects by key: a hash table in shards, each under its own lock, shared by all workers.
//!
//! A look-up takes the read lock of one shard for a hash probe and one comparison of texts, and
//! allocates nothing. The index knows nothing of freshness, bodies or eviction; its values are
//! whatever meets here.
//!
//! Cost in memory: a slot is 16 bytes (hash and value) and a control byte. A table doubles when it
//! is 7/8 full, so an object costs between 20 and 39 bytes here, beside its key's text (with 16
//! bytes before it) and the value. [`Index::heap_bytes`] says what is held now.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::RwLock;

use crate::key::{Key, KeySeed};

/// A sharded map from key text to shared values.
pub struct Index<V> {
    seed: KeySeed,
    /// A power of two of them.
    shards: Box<[Shard<V>]>,
    totals: Totals,
}

/// A value with the key under which it is found.
#[derive(Debug)]
pub struct Named<V> {
    key: Key,
    value: V,
}

impl<V> Named<V> {
    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }
}

impl<V> Deref for Named<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> Index<V> {
    /// An empty index. `shards` is rounded up to a power of two (64 are plenty for 16 workers);
    /// `seed` should be random in a server, so that nobody can prepare keys that collide.
    pub fn new(shards: usize, seed: u64) -> Index<V> {
        let count = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let shards = (0..count).map(|_| Shard { table: RwLock::new(HashTable::new()) }).collect();
        Index { seed: KeySeed::new(seed), shards, totals: Totals::default() }
    }

    /// The hash that this index gives a key's text; good as an object's identity for eviction's ghost.
    pub fn hash_of(&self, key_text: &[u8]) -> u64 {
        self.seed.hash(key_text)
    }

    /// The value under this key.
    pub fn find(&self, key_text: &[u8]) -> Option<Arc<Named<V>>> {
        self.find_hashed(self.hash_of(key_text), key_text)
    }

    /// The value under this key, where the caller knows the [hash](Index::hash_of) of the key's text.
    pub fn find_hashed(&self, hash: u64, key_text: &[u8]) -> Option<Arc<Named<V>>> {
        let table = self.shard(hash).table.read();
        table.find(hash, |slot| slot.is(hash, key_text)).map(|slot| slot.value.clone())
    }

    /// Calls `look` with the value under this key and returns its result. `look` runs under the shard's read lock: it must be short, must not call the
    /// index, and must not wait for a lock under which somebody else calls it.
    pub fn look<T>(&self, key_text: &[u8], look: impl FnOnce(&Arc<Named<V>>) -> T) -> Option<T> {
        let hash = self.hash_of(key_text);
        let table = self.shard(hash).table.read();
        table.find(hash, |slot| slot.is(hash, key_text)).map(|slot| look(&slot.value))
    }

    /// The value under this key, made now if there was none; the second part says whether it was made.
    /// Of any number of simultaneous callers exactly one makes it. `make` runs under the shard's write
    /// lock: it must be short and must not call the index.
    pub fn find_or_insert_with(&self, key: &Key, make: impl FnOnce() -> V) -> (Arc<Named<V>>, bool) {
        let hash = self.hash_of(key.text());
        let mut table = self.shard(hash).table.write();
        let held_before = table.allocation_size();
        match table.entry(hash, |slot| slot.is(hash, key.text()), |slot| slot.hash) {
            Entry::Occupied(there) => (there.get().value.clone(), false),
            Entry::Vacant(free) => {
                let value = Arc::new(Named { key: key.clone(), value: make() });
                free.insert(Slot { hash, value: value.clone() });
                self.totals.len.fetch_add(1, Ordering::Relaxed);
                self.totals.key_bytes.fetch_add(key.heap_bytes(), Ordering::Relaxed);
                self.totals.table_resized(held_before, table.allocation_size());
                (value, true)
            }
        }
    }

    /// Takes out the value under this key if it is that very one (not a successor under the same key)
    /// and `really` agrees; says whether it did. `really` runs under the shard's write lock, so nobody
    /// can find the value between the question and the removal.
    pub fn remove_if(&self, key_text: &[u8], same: &Arc<Named<V>>, really: impl FnOnce(&V) -> bool) -> bool {
        let hash = self.hash_of(key_text);
        let mut table = self.shard(hash).table.write();
        let Ok(there) = table.find_entry(hash, |slot| slot.is(hash, key_text)) else { return false };
        if !Arc::ptr_eq(&there.get().value, same) || !really(same) {
            return false;
        }
        let (slot, _) = there.remove();
        self.totals.forget(&slot);
        self.shrink_if_sparse(&mut table);
        drop(table); // before the slot and what may be the value's last reference
        true
    }

    /// Keeps the values that `keep` wants, shard by shard; returns how many went. `keep` runs under the
    /// write lock of one shard: it must be short and must not call the index.
    pub fn retain(&self, mut keep: impl FnMut(&Key, &V) -> bool) -> usize {
        let mut gone_count = 0;
        for shard in &self.shards {
            let mut table = shard.table.write();
            let gone: Vec<_> = table.extract_if(|slot| !keep(&slot.value.key, &slot.value)).collect();
            self.shrink_if_sparse(&mut table);
            drop(table); // before the values: freeing large bodies takes a while
            gone.iter().for_each(|slot| self.totals.forget(slot));
            gone_count += gone.len();
        }
        gone_count
    }

    /// Shows every value, shard by shard, with no lock held meanwhile, so `each` may use the index and
    /// take its time. A value that comes or goes during the walk may be seen or not.
    pub fn for_each(&self, mut each: impl FnMut(&Arc<Named<V>>)) {
        let mut values = Vec::new();
        for shard in &self.shards {
            values.extend(shard.table.read().iter().map(|slot| slot.value.clone()));
            values.drain(..).for_each(|value| each(&value));
        }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.totals.len.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the index holds on the heap: shards, tables as they are allocated, and the keys' texts, but
    /// not the values. Takes no lock.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.shards)
            + self.totals.table_bytes.load(Ordering::Relaxed)
            + self.totals.key_bytes.load(Ordering::Relaxed)
    }

    /// Shards go by the upper half: a table uses the lowest bits for the bucket and the top seven as tag.
    fn shard(&self, hash: u64) -> &Shard<V> {
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }

    /// A table that was once large gives its memory back when seven eighths of it are unused.
    fn shrink_if_sparse(&self, table: &mut HashTable<Slot<V>>) {
        if table.capacity() < SHRINK_SLOTS_MIN || table.len() * 8 > table.capacity() {
            return;
        }
        let held_before = table.allocation_size();
        table.shrink_to(table.len() * 2, |slot| slot.hash);
        self.totals.table_resized(held_before, table.allocation_size());
    }
}

/// The shard number is taken from 25 bits of the hash; far fewer are useful.
const SHARDS_MAX: usize = 1 << 16;

/// Tables below this size are not worth a rehash.
const SHRINK_SLOTS_MIN: usize = 64;

/// Two cache lines apart (the prefetcher fetches pairs), so that locking one shard does not slow its neighbours.
#[repr(align(128))]
struct Shard<V> {
    table: RwLock<HashTable<Slot<V>>>,
}

/// The hash is kept so that a growing table need not read every key under its write lock.
struct Slot<V> {
    hash: u64,
    value: Arc<Named<V>>,
}

impl<V> Slot<V> {
    fn is(&self, hash: u64, key_text: &[u8]) -> bool {
        self.hash == hash && self.value.key.text() == key_text
    }
}

/// Sums over all shards, kept while changes are made; away from the fields that every look-up reads.
#[derive(Default)]
#[repr(align(128))]
struct Totals {
    len: AtomicUsize,
    table_bytes: AtomicUsize,
    key_bytes: AtomicUsize,
}

impl Totals {
    fn forget<V>(&self, slot: &Slot<V>) {
        self.len.fetch_sub(1, Ordering::Relaxed);
        self.key_bytes.fetch_sub(slot.value.key.heap_bytes(), Ordering::Relaxed);
    }

    fn table_resized(&self, before: usize, after: usize) {
        if after > before {
            self.table_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.table_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
