//! The memory budget of entries, and the bytes that they hold of it now.

use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that entries hold, counted to the byte of what they asked for.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicU64,
    max: u64,
    /// Bytes of it that the index of the disk tier holds.
    disk_index: AtomicU64,
    /// Bytes of it that the server holds for clients: heads under way.
    server: AtomicU64,
    /// Reads from disk that found memory full.
    reads_when_full: AtomicU64,
}

impl Budget {
    /// A budget of so many bytes, all of them free.
    pub(crate) fn of(max: u64) -> Budget {
        Budget {
            used: AtomicU64::new(0),
            max,
            disk_index: AtomicU64::new(0),
            server: AtomicU64::new(0),
            reads_when_full: AtomicU64::new(0),
        }
    }

    /// An entry that held `from` bytes holds `to` now.
    pub(crate) fn adjust(&self, from: u64, to: u64) {
        if to >= from {
            self.used.fetch_add(to - from, Ordering::Relaxed);
        } else {
            self.used.fetch_sub(from - to, Ordering::Relaxed);
        }
    }

    /// Takes out of the budget what the disk tier holds in memory: its index, as large as it is now or, up to three eighths
    /// of the budget, as large as it is expected to grow; and its frequency sketch. At most half of the budget.
    pub(crate) fn set_disk_tier(&self, index: u64, index_expected: u64, sketch: u64) {
        let index = index.max(index_expected.min(self.max / 8 * 3));
        self.disk_index.store((index + sketch).min(self.max / 2), Ordering::Relaxed);
    }

    /// The server held `before` bytes for clients and holds `now`. At most a quarter of the budget counts.
    pub(crate) fn adjust_server(&self, before: u64, now: u64) {
        self.server.fetch_add(now, Ordering::Relaxed);
        self.server.fetch_sub(before, Ordering::Relaxed);
    }

    /// Whether so many bytes may be taken before room is made for them.
    pub(crate) fn lends(&self, bytes: u64) -> bool {
        let most = self.max();
        self.used() + bytes <= most + (most / 16).max(LENT_BYTES_MIN)
    }

    /// Whether what is read from disk now should stay in memory. While there is room, yes. In a full memory others are
    /// evicted for it, so one read in [`TAKEN_UP_ONE_IN`] stays: what is asked for often comes to stay soon, and what is
    /// asked for once evicts nothing most of the time.
    pub(crate) fn takes_up(&self) -> bool {
        let most = self.max();
        if self.used() < most - most / FULL_PART {
            return true;
        }
        // Spread evenly and without a period, so that no pattern of requests always has its turn, or never.
        let turn = self.reads_when_full.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN_RATIO);
        turn < u64::MAX / TAKEN_UP_ONE_IN
    }

    /// Bytes held now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that entries may hold.
    pub(crate) fn max(&self) -> u64 {
        let taken = self.disk_index.load(Ordering::Relaxed) + self.server.load(Ordering::Relaxed).min(self.max / 4);
        self.max.saturating_sub(taken)
    }

    /// Entries hold more than they may.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.used() > self.max()
    }
}

/// Memory of which less than this part is free is full.
const FULL_PART: u64 = 8;

/// Of the reads that find memory full, one in so many stays.
const TAKEN_UP_ONE_IN: u64 = 16;
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// One block of a body, and its overhead.
const LENT_BYTES_MIN: u64 = 128 * 1024;
