//! The fates of keys that are not here any more, so that a miss can say why.

use crate::zeros::zeros;
use larder_wire::date::Stamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why a stored response is not here any more, or not fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It made room for others, and there is no disk below.
    Evicted,
    /// It left memory for the disk. If it is not there any more, it made room there.
    ToDisk,
    /// It made room for others in memory, and the disk had not admitted it.
    NotAdmitted,
    /// A person or a program purged it.
    Purged,
    /// A soft purge: it had to be validated.
    Expired,
    /// A request that changes things made it void (RFC 9111 section 4.4).
    Invalidated,
    /// The origin said that it has something else now, which was not stored.
    Changed,
    /// It grew longer than the store takes, or than there was memory for.
    TooLong,
    /// Its bytes were not those that its digest names.
    Corrupt,
    /// The disk was behind with its writes, and memory had no room for it.
    DiskBehind,
}

impl Fate {
    const ALL: [Fate; 10] = [
        Fate::Evicted,
        Fate::ToDisk,
        Fate::NotAdmitted,
        Fate::Purged,
        Fate::Expired,
        Fate::Invalidated,
        Fate::Changed,
        Fate::TooLong,
        Fate::Corrupt,
        Fate::DiskBehind,
    ];

    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Evicted => "evicted",
            Fate::ToDisk => "to-disk",
            Fate::NotAdmitted => "not-admitted",
            Fate::Purged => "purged",
            Fate::Expired => "expired-by-purge",
            Fate::Invalidated => "invalidated",
            Fate::Changed => "changed",
            Fate::TooLong => "too-long",
            Fate::Corrupt => "corrupt",
            Fate::DiskBehind => "disk-behind",
        }
    }
}

/// The fates of the keys that left the cache last, in constant memory: a table of fingerprints. A lost or a mistaken
/// mark costs a wrong word in an explanation, never a wrong answer.
pub(super) struct Fates {
    slots: Box<[AtomicU64]>,
    /// The time of the last request: eviction has no clock.
    now: AtomicU64,
}

/// Seconds since 1970, good for a thousand years.
const TIME_BITS: u32 = 35;
const FATE_BITS: u32 = 5;

impl Fates {
    const SLOTS: usize = 1 << 16;

    pub(super) fn new() -> Fates {
        Fates { slots: zeros(Fates::SLOTS), now: AtomicU64::new(0) }
    }

    /// Tells the time.
    pub(super) fn tick(&self, now: Stamp) {
        if self.now.load(Ordering::Relaxed) != now.0 {
            self.now.store(now.0, Ordering::Relaxed);
        }
    }

    /// From the top: 24 bits of the hash, the number of the fate (from 1), the time.
    pub(super) fn set(&self, hash: u64, fate: Fate) {
        let number = Fate::ALL.iter().position(|each| *each == fate).map_or(0, |at| at as u64 + 1);
        let time = self.now.load(Ordering::Relaxed) & ((1 << TIME_BITS) - 1);
        let mark = hash >> (TIME_BITS + FATE_BITS) << (TIME_BITS + FATE_BITS) | number << TIME_BITS | time;
        self.slot(hash).store(mark, Ordering::Relaxed);
    }

    pub(super) fn of(&self, hash: u64) -> Option<(Fate, Stamp)> {
        let mark = self.slot(hash).load(Ordering::Relaxed);
        let number = (mark >> TIME_BITS) & ((1 << FATE_BITS) - 1);
        let fate = Fate::ALL.get((number as usize).checked_sub(1)?)?;
        let same = (mark ^ hash) >> (TIME_BITS + FATE_BITS) == 0;
        same.then_some((*fate, Stamp(mark & ((1 << TIME_BITS) - 1))))
    }

    pub(super) fn clear(&self, hash: u64) {
        if self.of(hash).is_some() {
            self.slot(hash).store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize % Fates::SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fate_is_remembered_with_its_time() {
        let fates = Fates::new();
        fates.tick(Stamp(1_800_000_000));
        for (number, fate) in Fate::ALL.into_iter().enumerate() {
            let hash = 0x1234_5678_9abc_0000 + number as u64;
            assert_eq!(fates.of(hash), None);
            fates.set(hash, fate);
            assert_eq!(fates.of(hash), Some((fate, Stamp(1_800_000_000))));
            assert_eq!(fates.of(hash ^ 1 << 63), None, "another key of the same slot");
            fates.clear(hash);
            assert_eq!(fates.of(hash), None);
        }
    }
}
