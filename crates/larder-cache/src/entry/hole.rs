//! Holes of a stored response: the ways in which a fill changes an entry.

use super::activity::HoleFill;
use super::{DiskLocation, Entry, Failure, Limits, Room, State};
use crate::store::Putting;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How far a fill is.
pub(crate) struct HoleProgress {
    /// The number under which the entry knows it.
    pub(crate) number: u64,
    /// The bytes to bring.
    pub(crate) hole: Range<u64>,
    /// The next byte.
    pub(crate) at: u64,
}

impl Entry {
    /// Takes on the filling of a hole: returns the number under which the entry knows it, and where the entry lies on disk.
    /// `None` when another fetch took it on meanwhile, or the entry is not one that can be put together from parts.
    pub(crate) fn begin_fill(&self, hole: &Range<u64>, is_ahead: bool) -> Option<(u64, Option<Arc<DiskLocation>>)> {
        let mut state = self.state.write();
        let overlaps = |range: &Range<u64>| range.start < hole.end && hole.start < range.end;
        let taken = state.fills().iter().any(|fill| overlaps(&fill.range));
        if taken || hole.is_empty() || !state.is_mendable() || state.body.present_from(hole.start) > 0 {
            return None;
        }
        let number = state.activity().begin_fill(hole.clone(), is_ahead);
        Some((number, state.on_disk.location().cloned()))
    }

    /// The origin has the same representation still, and sends this hole up to `end`.
    pub(crate) fn confirm_fill(&self, number: u64, end: u64) {
        let mut state = self.state.write();
        if let Some(own) = state.hole_fill(number) {
            own.confirmed = true;
            own.range.end = own.range.end.min(end);
        }
        state.wake_readers();
    }

    /// Says whether the next piece of a hole may be pushed; wakes the task when it may. A hole whose clients all left is
    /// filled when little is missing of it.
    pub(crate) fn poll_room_in_hole(
        &self,
        cx: &Context<'_>,
        fill: &HoleProgress,
        limits: &Limits,
        memory_object_bytes_max: u64,
    ) -> Poll<Room> {
        let mut state = self.state.write();
        let (done, missing) = (fill.at - fill.hole.start, fill.hole.end.saturating_sub(fill.at));
        if missing == 0 {
            return Poll::Ready(Room::Gone);
        }
        if state.reader_count() == 0 {
            let worth = missing <= limits.abandoned_bytes_max.max(done) && !state.is_left_held();
            return Poll::Ready(if worth { Room::Go } else { Room::Gone });
        }
        let ahead = fill.at.saturating_sub(state.slowest());
        let has_room = state.body.bytes() < memory_object_bytes_max || ahead < limits.window_bytes;
        if has_room && !state.is_held_back(fill.at) {
            return Poll::Ready(Room::Go);
        }
        if let Some(own) = state.hole_fill(fill.number) {
            own.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Puts the next piece of a hole in its place and wakes the readers. `spooled`: the disk gets it too.
    pub(crate) fn push_into_hole(
        &self,
        fill: &mut HoleProgress,
        piece: Bytes,
        memory_object_bytes_max: u64,
        spooled: bool,
    ) {
        let taken = piece.len() as u64;
        let mut state = self.state.write();
        state.body.insert(fill.at, piece);
        fill.at += taken;
        if let Some(own) = state.hole_fill(fill.number) {
            own.range.start = fill.at;
        }
        state.activity().brought += taken;
        if state.body.bytes() > memory_object_bytes_max {
            state.shed_of_hole(spooled);
        }
        self.settle_charge(&state);
        state.wake_readers();
    }

    /// There is no room for more of its body: from here on its bytes leave memory as soon as they are on disk, or, where
    /// they do not go there, as soon as every reader has taken them.
    pub(crate) fn shrink_while_filled(&self, has_spool: bool, spooled: bool) {
        let mut state = self.state.write();
        if has_spool {
            state.on_disk.go_alone();
        }
        state.shed_of_hole(spooled);
        self.settle_charge(&state);
    }

    /// A fill is over. Where it stopped before its end, readers that wait for the rest are told why.
    pub(crate) fn end_fill(&self, fill: &HoleProgress, puts: impl IntoIterator<Item = Putting>, failure: &Failure) {
        let mut state = self.state.write();
        state.add_puts(puts);
        state.activity().fills.retain(|each| each.number != fill.number);
        if fill.at < fill.hole.end {
            state.fail_readers(&(fill.at..fill.hole.end), failure);
        }
        state.wake_readers();
        state.rest();
    }

    /// How many bytes of its body came so far, of the stream and of all fills; 0 once nothing is under way.
    pub fn brought(&self) -> u64 {
        self.state.read().activity.as_ref().map_or(0, |activity| activity.brought)
    }

    /// The next byte of the stream from the start; `None` when that is over.
    pub fn stream_position(&self) -> Option<u64> {
        let state = self.state.read();
        state.life.is_arriving().then(|| state.received())
    }

    /// The first part from `from` on that is neither here nor on its way by a fill, up to `end`. The stream from the start is
    /// not looked at: it will come to these bytes if nobody brings them before.
    pub fn next_unfilled(&self, from: u64, end: u64) -> Option<Range<u64>> {
        let state = self.state.read();
        let end = state.length.filter(|_| state.is_mendable())?.min(end);
        let mut at = from;
        while let Some(first) = state.first_missing(&(at..end)) {
            match state.fills().iter().find(|fill| fill.range.contains(&first)) {
                Some(fill) => at = fill.range.end,
                None => return Some(state.hole(first, end)),
            }
        }
        None
    }

    /// The next hole, when the rest is worth having though nobody has asked for it: at least half is here, and not
    /// more than `bytes_max` are missing.
    pub fn worthwhile_hole(&self, bytes_max: u64) -> Option<Range<u64>> {
        let state = self.state.read();
        let length = state.length.filter(|_| state.is_mendable() && state.life.is_settled())?;
        // More than twice that can't be half here and lack no more; and the look at each block stays short.
        if !state.fills().is_empty() || length > bytes_max.saturating_mul(2) {
            return None;
        }
        let mut missing = 0;
        let mut first = None;
        let mut at = 0;
        while let Some(start) = state.first_missing(&(at..length)) {
            let hole = state.hole(start, length);
            (missing, at) = (missing + (hole.end - hole.start), hole.end);
            first.get_or_insert(hole);
        }
        first.filter(|_| missing <= bytes_max.min(length - missing))
    }
}

impl State {
    fn hole_fill(&mut self, number: u64) -> Option<&mut HoleFill> {
        self.activity.as_mut()?.fills.iter_mut().find(|fill| fill.number == number)
    }

    /// Lets go of what every reader has taken, but not of what is only on its way to the disk: it would be fetched twice.
    fn shed_of_hole(&mut self, spooled: bool) {
        if spooled {
            self.shed_written();
        } else {
            self.shed();
        }
    }
}
