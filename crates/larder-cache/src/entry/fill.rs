//! Brings one hole of a stored response.

use super::busy::Filling;
use super::spool::Spool;
use super::{Entry, Failure, Room, State};
use crate::cache::Cache;
use bytes::Bytes;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The one who fills a hole. Whoever needs its bytes waits for it. Dropping it before its end tells them that
/// the rest does not come.
#[must_use]
pub struct Fill {
    entry: Arc<Entry>,
    number: u64,
    hole: Range<u64>,
    at: u64,
    spool: Option<Spool>,
    failure: Failure,
}

impl Fill {
    pub(super) fn begin(entry: &Arc<Entry>, hole: &Range<u64>) -> Option<Fill> {
        let mut state = entry.state.lock();
        let overlaps = |range: &Range<u64>| range.start < hole.end && hole.start < range.end;
        let taken = state.fills().iter().any(|fill| overlaps(&fill.range));
        if taken || hole.is_empty() || !state.is_mendable() || state.body.present_from(hole.start) > 0 {
            return None;
        }
        let number = state.busy().begin_fill(hole.clone());
        let failure = Failure { status: 502, word: "changed", detail: "the object has changed at its origin".into() };
        let spool = state.disk.as_deref().map(|disk| Spool::new(disk.clone(), hole.start));
        Some(Fill { entry: Arc::clone(entry), number, hole: hole.clone(), at: hole.start, spool, failure })
    }

    /// The entry.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The number under which the entry knows it.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The bytes to ask for.
    pub fn hole(&self) -> Range<u64> {
        self.hole.clone()
    }

    /// The origin has the same representation still, and sends these bytes of it; false when they do not begin
    /// where the hole begins.
    pub fn confirm(&mut self, bytes: &Range<u64>) -> bool {
        if bytes.start != self.hole.start {
            return false;
        }
        let mut state = self.entry.state.lock();
        if let Some(own) = state.filling(self.number) {
            own.confirmed = true;
            own.range.end = own.range.end.min(bytes.end);
        }
        self.hole.end = self.hole.end.min(bytes.end);
        state.wake_readers();
        true
    }

    /// Waits until the next piece may be pushed.
    pub async fn room(&mut self, cache: &Cache) -> Room {
        poll_fn(|cx| self.poll_room(cx, cache)).await
    }

    /// Says whether the next piece may be pushed; wakes the task when it may. A hole whose clients all left is
    /// filled when little is missing of it.
    pub fn poll_room(&mut self, cx: &mut Context<'_>, cache: &Cache) -> Poll<Room> {
        if self.poll_disk(cx, cache).is_pending() {
            return Poll::Pending;
        }
        let mut state = self.entry.state.lock();
        let (done, missing) = (self.at - self.hole.start, self.hole.end.saturating_sub(self.at));
        if missing == 0 {
            return Poll::Ready(Room::Gone);
        }
        if state.seated() == 0 {
            let worth = missing <= cache.settings().abandoned_bytes_max.max(done);
            return Poll::Ready(if worth { Room::Go } else { Room::Gone });
        }
        let ahead = self.at.saturating_sub(state.slowest());
        if state.body.bytes() < cache.object_bytes_max(false) || ahead < cache.settings().window_bytes {
            return Poll::Ready(Room::Go);
        }
        if let Some(own) = state.filling(self.number) {
            own.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// What does not stay in memory waits for the disk.
    fn poll_disk(&mut self, cx: &mut Context<'_>, cache: &Cache) -> Poll<()> {
        let Some(spool) = &mut self.spool else { return Poll::Ready(()) };
        let written: Vec<Range<u64>> = std::iter::from_fn(|| spool.poll_written(cx)).collect();
        let mut state = self.entry.state.lock();
        if spool.is_refused() {
            return Poll::Ready(());
        }
        if !state.large {
            drop(state);
            return spool.poll_room(cx);
        }
        written.into_iter().for_each(|range| {
            state.body.remove(range);
        });
        self.entry.settle_charge(&mut state);
        drop(state);
        let full = spool.writing_bytes() >= cache.settings().window_bytes;
        if full || spool.poll_room(cx).is_pending() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Puts a piece in its place and wakes the readers.
    pub fn push(&mut self, cache: &Cache, mut piece: Bytes) {
        let missing = usize::try_from(self.hole.end - self.at).unwrap_or(usize::MAX);
        piece.truncate(missing);
        let taken = piece.len() as u64;
        // A short piece must not keep the whole buffer alive that it was read into.
        let piece = if piece.len() < OWN_BYTES_MAX { Bytes::copy_from_slice(&piece) } else { piece };
        if let Some(spool) = &mut self.spool {
            spool.push(piece.clone());
        }
        {
            let mut state = self.entry.state.lock();
            state.body.insert(self.at, piece);
            self.at += taken;
            let at = self.at;
            if let Some(own) = state.filling(self.number) {
                own.range.start = at;
            }
            if state.body.bytes() > cache.object_bytes_max(false) {
                self.shed(&mut state);
            }
            self.entry.settle_charge(&mut state);
            state.wake_readers();
        }
        if !cache.make_room() {
            let mut state = self.entry.state.lock();
            // From now on its bytes leave memory as soon as they are on disk.
            state.large |= self.spool.is_some();
            self.shed(&mut state);
            self.entry.settle_charge(&mut state);
        }
    }

    /// What every reader has taken goes, but not what is only on its way to the disk: it would be fetched twice.
    fn shed(&self, state: &mut State) {
        if self.spool.as_ref().is_some_and(|spool| !spool.is_refused()) {
            state.shed_written();
        } else {
            state.shed();
        }
    }

    /// Every byte of the hole is here.
    pub fn is_full(&self) -> bool {
        self.at >= self.hole.end
    }

    /// How many wait for something of this entry.
    pub fn readers(&self) -> usize {
        self.entry.readers()
    }

    /// Ends it as if it had not been begun: whoever waits for its bytes may ask for them.
    pub fn give_back(mut self) {
        self.hole.end = self.at;
    }

    /// Ends it, saying why the rest does not come.
    pub fn fail(mut self, failure: Failure) {
        self.failure = failure;
    }
}

/// Pieces below this are copied.
const OWN_BYTES_MAX: usize = 16 * 1024;

impl State {
    fn filling(&mut self, number: u64) -> Option<&mut Filling> {
        self.busy.as_mut()?.fills.iter_mut().find(|fill| fill.number == number)
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut state = self.entry.state.lock();
        state.add_puts(self.spool.iter_mut().flat_map(Spool::finish));
        state.busy().fills.retain(|fill| fill.number != self.number);
        if self.at < self.hole.end {
            state.fail_readers(&(self.at..self.hole.end), &self.failure);
        }
        state.wake_readers();
        state.rest();
    }
}
