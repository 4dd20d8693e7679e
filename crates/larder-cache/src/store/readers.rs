//! Reads that must wait: for the device, by the reader threads of a folder; or for the index, while it is being read.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::fetching::Promise;
use super::segment_reader::{Patience, ReadOutcome, SegmentReader};
use super::{DiskHead, ObjectId};

/// A read that waits.
pub(super) enum Wanted {
    /// The heads of a key.
    Heads { key: Bytes, waiting: Promise<Vec<DiskHead>> },
    /// Pieces of a body.
    Pieces { id: ObjectId, range: Range<u64>, waiting: Promise<Vec<(u64, Bytes)>> },
}

/// The reads of one folder.
#[derive(Default)]
pub(super) struct Reads {
    waited: AtomicU64,
    inner: Mutex<Inner>,
    work: Condvar,
    index_grown: Condvar,
}

#[derive(Default)]
struct Inner {
    wanted: VecDeque<Wanted>,
    /// Those that wait for more of the index.
    parked: Vec<Wanted>,
    closed: bool,
}

/// Reads that wait at a time; one more finds nothing.
const READS_WAITING_MAX: usize = 65_536;

impl Reads {
    /// Adds a read. Dropped, it resolves as absent.
    pub(super) fn push(&self, wanted: Wanted) {
        self.waited.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.inner.lock();
        if inner.closed || inner.wanted.len() + inner.parked.len() >= READS_WAITING_MAX {
            drop(inner);
            return drop(wanted);
        }
        inner.wanted.push_back(wanted);
        drop(inner);
        self.work.notify_one();
    }

    /// More of the index is read: those who wait for it look again.
    pub(super) fn look_again(&self) {
        let mut inner = self.inner.lock();
        let parked = std::mem::take(&mut inner.parked);
        inner.wanted.extend(parked);
        drop(inner);
        self.work.notify_all();
        self.index_grown.notify_all();
    }

    /// Waits on this thread until the index is read, or the store closed.
    pub(super) fn await_recovery(&self, reader: &SegmentReader) {
        let mut inner = self.inner.lock();
        while reader.recovering() && !inner.closed {
            self.index_grown.wait(&mut inner);
        }
    }

    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        let left = (std::mem::take(&mut inner.wanted), std::mem::take(&mut inner.parked));
        drop(inner);
        // Outside the lock: whoever is woken may read again at once.
        drop(left);
        self.work.notify_all();
        self.index_grown.notify_all();
    }

    pub(super) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// The work of a reader thread until the store closes.
    pub(super) fn serve(&self, reader: &SegmentReader) {
        while let Some(wanted) = self.take() {
            self.serve_one(reader, wanted);
        }
    }

    /// Does the first read that waits; false where none does.
    pub(super) fn serve_next(&self, reader: &SegmentReader) -> bool {
        let wanted = self.inner.lock().wanted.pop_front();
        wanted.map(|wanted| self.serve_one(reader, wanted)).is_some()
    }

    fn serve_one(&self, reader: &SegmentReader, wanted: Wanted) {
        // One that meets a broken invariant finds nothing, and the next ones go on.
        match catch_unwind(AssertUnwindSafe(|| perform(reader, wanted))) {
            Ok(Some(again)) => self.park(reader, again),
            Ok(None) => {}
            Err(_) => {
                reader.counters.reader_restarts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&self) -> Option<Wanted> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(wanted) = inner.wanted.pop_front() {
                return Some(wanted);
            }
            if inner.closed {
                return None;
            }
            self.work.wait(&mut inner);
        }
    }

    fn park(&self, reader: &SegmentReader, wanted: Wanted) {
        let mut inner = self.inner.lock();
        match (inner.closed, reader.recovering()) {
            (true, _) => {
                drop(inner);
                drop(wanted);
            }
            (false, true) => inner.parked.push(wanted),
            // It ended between the look and now.
            (false, false) => inner.wanted.push_front(wanted),
        }
    }
}

fn perform(reader: &SegmentReader, wanted: Wanted) -> Option<Wanted> {
    match wanted {
        Wanted::Heads { key, waiting } => match reader.heads(&key, Patience::Waits) {
            ReadOutcome::Recovering => return Some(Wanted::Heads { key, waiting }),
            ReadOutcome::Ended(heads) => waiting.give(heads),
            ReadOutcome::WouldWait => {}
        },
        Wanted::Pieces { id, range, waiting } => match reader.pieces(id, &range, Patience::Waits) {
            ReadOutcome::Recovering => return Some(Wanted::Pieces { id, range, waiting }),
            ReadOutcome::Ended(pieces) => waiting.give(pieces),
            ReadOutcome::WouldWait => {}
        },
    }
    None
}
