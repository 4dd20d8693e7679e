//! Keys that turned out uncachable.

use larder_wire::date::Stamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which keys turned out uncachable, in constant memory: a table of fingerprints with an expiry time.
/// A lost or a mistaken mark costs a little waiting or a little coalescing, never a wrong answer.
pub(super) struct PassMarks {
    slots: Box<[AtomicU64]>,
}

impl PassMarks {
    const SLOTS: usize = 1 << 14;

    pub(super) fn new() -> PassMarks {
        PassMarks { slots: (0..PassMarks::SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize % PassMarks::SLOTS]
    }

    /// Upper half: fingerprint; lower half: end of the mark in seconds since 1970 (good until 2106).
    pub(super) fn set(&self, hash: u64, until: Stamp) {
        self.slot(hash).store(hash & !0xffff_ffff | until.0 & 0xffff_ffff, Ordering::Relaxed);
    }

    pub(super) fn holds(&self, hash: u64, now: Stamp) -> bool {
        let mark = self.slot(hash).load(Ordering::Relaxed);
        (mark ^ hash) >> 32 == 0 && mark & 0xffff_ffff > now.0
    }

    pub(super) fn clear(&self, hash: u64) {
        if self.slot(hash).load(Ordering::Relaxed) != 0 {
            self.slot(hash).store(0, Ordering::Relaxed);
        }
    }
}
