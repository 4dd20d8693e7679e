//! A table of constant size with one number for each key: the moment at which the key has used up what it may.

use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Moments of keys. Where a place is full, the key that waited longest is forgotten, so that a flood of keys can only make limits
/// milder for others.
#[derive(Debug)]
pub(crate) struct Moments {
    shards: Box<[Mutex<Box<[Bucket]>>]>,
    seed: u64,
}

/// Keys of one place: a hash, and a moment in the unit of the caller.
type Bucket = [(u64, u64); BUCKET];

const BUCKET: usize = 4;
const SHARDS: usize = 64;
const BUCKETS_PER_SHARD: usize = 256;

/// Keys that are known at once.
#[cfg(test)]
pub(crate) const KEYS_MAX: usize = SHARDS * BUCKETS_PER_SHARD * BUCKET;

impl Moments {
    /// An empty table; `seed` is drawn, so that nobody can choose a place.
    pub(crate) fn new(seed: u64) -> Moments {
        let shard = || Mutex::new(vec![Bucket::default(); BUCKETS_PER_SHARD].into_boxed_slice());
        Moments { shards: (0..SHARDS).map(|_| shard()).collect(), seed }
    }

    /// Looks at the moment of a key under a name, which is 0 where the key is not known, and may change it.
    pub(crate) fn with<T>(&self, (name, key): (&str, &[u8]), work: impl FnOnce(&mut u64) -> T) -> T {
        let hash = xxh3_64_with_seed(key, xxh3_64_with_seed(name.as_bytes(), self.seed)) | 1;
        let (shard, bucket) = ((hash >> 8) as usize % SHARDS, (hash >> 16) as usize % BUCKETS_PER_SHARD);
        let Some(shard) = self.shards.get(shard) else { return work(&mut 0) };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = shard.get_mut(bucket) else { return work(&mut 0) };
        let place = match bucket.iter().position(|(known, _)| *known == hash) {
            Some(place) => place,
            None => {
                let longest = bucket.iter().enumerate().min_by_key(|(_, (_, moment))| *moment);
                longest.map_or(0, |(place, _)| place)
            }
        };
        let Some((known, moment)) = bucket.get_mut(place) else { return work(&mut 0) };
        if *known != hash {
            (*known, *moment) = (hash, 0);
        }
        work(moment)
    }
}
