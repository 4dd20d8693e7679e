//! Fills one hole of a stored response.

use super::Cache;
use super::patience::Patience;
use super::spool::Spool;
use crate::entry::{Entry, Failure, FailureKind, HoleProgress, PinnedEntry, Room};
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Fills one hole; readers that need its bytes wait for it. Dropping it before its end tells them that
/// the rest does not come.
#[must_use]
pub struct Fill {
    entry: PinnedEntry,
    progress: HoleProgress,
    spool: Option<Spool>,
    patience: Patience,
    /// Bytes that come before the hole, of an origin that sends the object from its start.
    skip_bytes: u64,
    failure: Failure,
    /// Nobody has asked for these bytes so far.
    is_ahead: bool,
    /// Of a fill ahead: memory has no room for it.
    gives_way: bool,
}

impl Fill {
    /// Takes on the filling of a hole; `None` when another fetch did meanwhile, or the entry is not of a kind that can
    /// be put together from parts.
    pub fn begin(entry: &Arc<Entry>, hole: &Range<u64>) -> Option<Fill> {
        Fill::take_on(entry, hole, false)
    }

    fn take_on(entry: &Arc<Entry>, hole: &Range<u64>, is_ahead: bool) -> Option<Fill> {
        let (number, location) = entry.begin_fill(hole, is_ahead)?;
        Some(Fill {
            entry: PinnedEntry::new(Arc::clone(entry)),
            progress: HoleProgress { number, hole: hole.clone(), at: hole.start },
            spool: location.map(|location| Spool::new(location, hole.start)),
            patience: Patience::default(),
            skip_bytes: 0,
            failure: Failure {
                status: 502,
                word: "changed",
                detail: "the object has changed at its origin".into(),
                kind: FailureKind::Answer,
            },
            is_ahead,
            gives_way: false,
        })
    }

    /// Takes on a hole that nobody has asked for so far, ahead of a running download. However it ends, readers that need its bytes
    /// by then ask for them as if it had never begun; and it gives way where the body is not stored any more, or memory
    /// has no room for bytes that do not go to disk.
    pub fn begin_ahead(entry: &Arc<Entry>, hole: &Range<u64>) -> Option<Fill> {
        Fill::take_on(entry, hole, true)
    }

    /// The entry.
    pub fn entry(&self) -> &PinnedEntry {
        &self.entry
    }

    /// The number under which the entry knows it.
    pub(super) fn number(&self) -> u64 {
        self.progress.number
    }

    /// The bytes to ask for.
    pub fn hole(&self) -> Range<u64> {
        self.progress.hole.clone()
    }

    /// The origin has the same representation still, and sends these bytes of it; false when they do not begin
    /// where the hole begins.
    pub fn confirm(&mut self, bytes: &Range<u64>) -> bool {
        let hole = &mut self.progress.hole;
        if bytes.start != hole.start {
            return false;
        }
        hole.end = hole.end.min(bytes.end);
        self.entry.confirm_fill(self.progress.number, bytes.end);
        true
    }

    /// The origin has the same representation still, and sends it from its start: what comes before the hole is skipped.
    pub fn confirm_from_start(&mut self) {
        self.skip_bytes = self.progress.hole.start;
        self.entry.confirm_fill(self.progress.number, self.progress.hole.end);
    }

    /// Waits until the next piece may be pushed.
    pub async fn room(&mut self, cache: &Cache) -> Room {
        poll_fn(|cx| self.poll_room(cx, cache)).await
    }

    /// Says whether the next piece may be pushed; wakes the task when it may. A hole whose clients all left is
    /// filled when little is missing of it.
    pub fn poll_room(&mut self, cx: &mut Context<'_>, cache: &Cache) -> Poll<Room> {
        if self.is_ahead && (self.gives_way || self.entry.passes()) {
            return Poll::Ready(Room::Gone);
        }
        let Poll::Ready(pace) = self.poll_disk(cx, cache) else { return Poll::Pending };
        let mut limits = cache.limits(false);
        // Nobody waits for the hole, and more would be read for it in vain than it has worth.
        if self.skip_bytes > limits.abandoned_bytes_max && self.readers() == 0 {
            return Poll::Ready(Room::Gone);
        }
        if pace == Pace::OfDisk {
            limits.window_bytes = u64::MAX;
        }
        self.entry.poll_room_in_hole(cx, &self.progress, &limits, cache.object_bytes_max(false))
    }

    /// A body that does not stay in memory waits for the disk.
    fn poll_disk(&mut self, cx: &mut Context<'_>, cache: &Cache) -> Poll<Pace> {
        let pace = self.poll_spool(cx, cache);
        let Some(spool) = &mut self.spool else { return pace };
        if pace.is_ready() {
            self.patience.goes_on(spool.store());
        } else if cache.settings().pass_by_disk && !self.patience.waits(spool.store(), spool.key().text(), cx) {
            spool.store().pass_by(spool.key().text());
            spool.give_up();
            return Poll::Ready(Pace::OfReaders);
        }
        pace
    }

    fn poll_spool(&mut self, cx: &mut Context<'_>, cache: &Cache) -> Poll<Pace> {
        let Some(spool) = &mut self.spool else { return Poll::Ready(Pace::OfReaders) };
        let written: Vec<Range<u64>> = std::iter::from_fn(|| spool.poll_written(cx)).collect();
        if spool.is_refused() {
            return Poll::Ready(Pace::OfReaders);
        }
        let leaves_memory = self.entry.drop_written(written);
        let full = leaves_memory && spool.writing_bytes() >= cache.settings().window_bytes;
        if full || spool.poll_room(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(if leaves_memory { Pace::OfDisk } else { Pace::OfReaders })
    }

    /// The part of the next piece that belongs into the hole.
    pub fn fitting(&mut self, mut piece: Bytes) -> Bytes {
        let skipped = piece.len().min(usize::try_from(self.skip_bytes).unwrap_or(usize::MAX));
        piece.advance(skipped);
        self.skip_bytes -= skipped as u64;
        piece.truncate(usize::try_from(self.missing()).unwrap_or(usize::MAX));
        piece
    }

    /// Puts a piece in its place and wakes the readers.
    pub fn push(&mut self, cache: &Cache, piece: Bytes) {
        let piece = self.fitting(piece);
        if piece.is_empty() {
            return;
        }
        // A short piece must not keep the whole buffer alive that it was read into.
        let piece = if piece.len() < OWN_BYTES_MAX { Bytes::copy_from_slice(&piece) } else { piece };
        if let Some(spool) = &mut self.spool {
            spool.push(piece.clone());
        }
        let spooled = self.spool.as_ref().is_some_and(|spool| !spool.is_refused());
        self.entry.push_into_hole(&mut self.progress, piece, cache.object_bytes_max(false), spooled);
        if !cache.make_room() {
            self.gives_way = !spooled;
            self.entry.shrink_while_filled(self.spool.is_some(), spooled);
        }
    }

    /// How many bytes of the hole are still to come.
    fn missing(&self) -> u64 {
        self.progress.hole.end.saturating_sub(self.progress.at)
    }

    /// Every byte of the hole is here.
    pub fn is_full(&self) -> bool {
        self.progress.at >= self.progress.hole.end
    }

    /// How many readers wait for a part of this entry.
    pub fn readers(&self) -> usize {
        self.entry.readers()
    }

    /// Ends it as if it had not been begun: a request that waits for its bytes may ask for them.
    pub fn give_back(mut self) {
        self.progress.hole.end = self.progress.at;
    }

    /// Ends it, saying why the rest does not come.
    pub fn fail(mut self, failure: Failure) {
        self.failure = failure;
    }
}

/// The pace at which a hole is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The disk: what it has leaves memory, whether readers have taken it or not.
    OfDisk,
    /// The readers, as soon as memory has no room for more of the body.
    OfReaders,
}

/// Pieces below this are copied.
const OWN_BYTES_MAX: usize = 16 * 1024;

impl Drop for Fill {
    fn drop(&mut self) {
        if self.is_ahead {
            self.progress.hole.end = self.progress.at;
        }
        let puts = self.spool.iter_mut().flat_map(Spool::finish);
        self.entry.end_fill(&self.progress, puts, &self.failure);
    }
}
