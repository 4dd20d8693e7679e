//! Keys that turned out uncachable.

use crate::policy::NotStored;
use crate::zeros::zeros;
use larder_wire::date::Stamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which keys turned out uncachable and why, in constant memory: a table of fingerprints with an expiry time.
/// A lost or a mistaken mark costs a little waiting or a little coalescing, never a wrong answer.
pub(super) struct PassMarks {
    slots: Box<[AtomicU64]>,
    /// How long a mark holds.
    seconds: u64,
}

/// Below the fingerprint: the number of the reason, and the end of the mark in seconds since 1970 (good until 2106).
const WHY_BITS: u32 = 5;
const TIME_BITS: u32 = 32;

impl PassMarks {
    const SLOTS: usize = 1 << 14;

    pub(super) fn new(seconds: u64) -> PassMarks {
        PassMarks { slots: zeros(PassMarks::SLOTS), seconds }
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.slots[hash as usize % PassMarks::SLOTS]
    }

    pub(super) fn set(&self, hash: u64, now: Stamp, why: NotStored) {
        let until = now.plus(self.seconds);
        let number = NotStored::ALL.iter().position(|each| *each == why).unwrap_or(0) as u64;
        let fingerprint = hash >> (TIME_BITS + WHY_BITS) << (TIME_BITS + WHY_BITS);
        self.slot(hash).store(fingerprint | number << TIME_BITS | until.0 & 0xffff_ffff, Ordering::Relaxed);
    }

    /// Why the last answer was not stored, while that counts.
    pub(super) fn holds(&self, hash: u64, now: Stamp) -> Option<NotStored> {
        let mark = self.slot(hash).load(Ordering::Relaxed);
        let until = mark & 0xffff_ffff;
        // One that ends later than it could if it were made now is of a clock that was ahead.
        let holds = (mark ^ hash) >> (TIME_BITS + WHY_BITS) == 0 && until > now.0 && until <= now.0 + self.seconds;
        let number = (mark >> TIME_BITS) & ((1 << WHY_BITS) - 1);
        NotStored::ALL.get(number as usize).copied().filter(|_| holds)
    }

    pub(super) fn clear(&self, hash: u64) {
        if self.slot(hash).load(Ordering::Relaxed) != 0 {
            self.slot(hash).store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_why_until_it_ends() {
        let marks = PassMarks::new(10);
        for (number, &why) in NotStored::ALL.iter().enumerate() {
            let hash = (number as u64 + 1) << 40 | number as u64;
            marks.set(hash, Stamp(90), why);
            assert_eq!(marks.holds(hash, Stamp(99)), Some(why));
            assert_eq!(marks.holds(hash, Stamp(100)), None);
            assert_eq!(marks.holds(hash, Stamp(89)), None, "the clock was set back");
            marks.clear(hash);
            assert_eq!(marks.holds(hash, Stamp(99)), None);
        }
    }
}
