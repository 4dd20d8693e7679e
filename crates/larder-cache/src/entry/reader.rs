//! A client's view of an entry.

use super::activity::Contact;
use super::life::Life;
use super::{DiskLocation, Entry, Failure, Leads, PinnedEntry, ReuseReason, State};
use crate::head::StoredHead;
use crate::store::{Fetching, Stay};
use bytes::Bytes;
use larder_wire::Fields;
use parking_lot::RwLockWriteGuard;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The outcome of waiting for the head.
#[derive(Debug)]
pub enum Arrival {
    /// The head of the answer.
    Head(Arc<StoredHead>),
    /// A validation found this stored entry to be the answer; with this head, for the request that was validated.
    Use(PinnedEntry, ReuseReason, Option<Arc<StoredHead>>),
    /// The answer turned out to be for its own request alone: this request has to ask for itself.
    Alone,
    /// There is no answer.
    Failed(Failure),
}

/// Why no byte can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// These bytes are not here, and nobody is bringing them: see [`Fill::begin`](crate::cache::Fill::begin).
    Hole(Range<u64>),
    /// They will not come.
    Failed(Failure),
}

/// The first part of a range that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Nothing that is not on its way.
    None,
    /// This part is not here, and nobody is bringing it.
    Hole(Range<u64>),
    /// The origin has another representation now, or none.
    Void,
}

/// A client's view of an entry. Dropping it may end a fetch that nobody else wants.
pub struct Reader {
    entry: PinnedEntry,
    /// Its slot in an entry that was not whole when the reader was made.
    slot: Option<usize>,
    leads: Leads,
    disk: Option<Box<FromDisk>>,
}

/// The block that a reader reads from disk.
struct FromDisk {
    /// Whether the bytes stay in memory, decided once for a body.
    stay: Stay,
    /// There were buffers for more than one block when it was read.
    gathers: bool,
    reading: Option<Fetching<Vec<(u64, Bytes)>>>,
    held: Vec<(u64, Bytes)>,
    /// This byte is not there, though others of its block may be.
    missed: Option<u64>,
}

impl FromDisk {
    fn new(stay: Stay) -> FromDisk {
        FromDisk { stay, gathers: false, reading: None, held: Vec::new(), missed: None }
    }
}

impl Reader {
    pub(super) fn new(entry: PinnedEntry, slot: Option<usize>, leads: Leads) -> Reader {
        Reader { entry, slot, leads, disk: None }
    }

    /// A reader of an entry that is not whole.
    pub(super) fn waiting(entry: &Arc<Entry>, leads: Leads) -> Reader {
        let slot = Some(entry.state.write().add_reader());
        Reader::new(PinnedEntry::new(Arc::clone(entry)), slot, leads)
    }

    /// Waits for the head.
    pub async fn arrival(&mut self) -> Arrival {
        poll_fn(|cx| self.poll_arrival(cx)).await
    }

    /// Looks for the head; wakes the task when there is news.
    pub fn poll_arrival(&mut self, cx: &Context<'_>) -> Poll<Arrival> {
        let mut state = self.entry.state.write();
        if self.leads == Leads::No && !state.life.is_shared() {
            return Poll::Ready(Arrival::Alone);
        }
        match &state.life {
            Life::Redirected(to) => {
                let own = to.own.as_ref().filter(|_| self.leads == Leads::Yes);
                return Poll::Ready(Arrival::Use(to.entry.clone(), to.reason, own.map(Arc::clone)));
            }
            Life::Failed(failed) if failed.response.is_none() => {
                return Poll::Ready(Arrival::Failed(failed.failure.clone()));
            }
            _ => {}
        }
        if let Some(stored) = state.life.head() {
            return Poll::Ready(Arrival::Head(Arc::clone(stored)));
        }
        state.wait(self.slot, cx);
        Poll::Pending
    }

    /// How far this fetch came towards its origin, as far as is known.
    pub fn contact(&self) -> Contact {
        self.entry.state.read().activity.as_ref().map(|activity| activity.contact).unwrap_or_default()
    }

    /// Some client of this fetch was answered with a stored response because the origin was silent.
    pub fn is_late(&self) -> bool {
        self.entry.is_late()
    }

    /// A stored response is sent instead of this one's: the fetch goes on without readers.
    pub fn leave_late(&self) {
        self.entry.state.write().activity().is_late = true;
    }

    /// The client takes the body at a limited pace: unless another reader wants more, the fetch goes no further than 256 KiB ahead of it.
    pub fn hold_back(&self) {
        if self.slot.is_some() {
            self.entry.state.write().hold_back(self.slot);
        }
    }

    /// The length of the whole body, when it is known by now.
    pub fn length(&self) -> Option<u64> {
        self.entry.state.read().length
    }

    /// The first byte of this range is here.
    pub fn is_ready(&self, range: &Range<u64>) -> bool {
        self.entry.state.read().first_missing(range) != Some(range.start)
    }

    /// Why some of this range will not come, once that is certain.
    pub fn lost(&self, range: &Range<u64>) -> Option<Failure> {
        let state = self.entry.state.read();
        let failure = self.failed(&state)?;
        state.first_missing(range).map(|_| failure)
    }

    /// Says what must be asked for before an answer with this range can begin, once that is certain.
    pub async fn gap(&mut self, range: Range<u64>) -> Gap {
        poll_fn(|cx| self.poll_gap(cx, &range)).await
    }

    /// Whether [`Reader::gap`] has to wait for an origin that may still have the same representation.
    pub fn waits_for_gap(&self, range: &Range<u64>) -> bool {
        let state = self.entry.state.read();
        let Some(first) = state.first_missing(range) else { return false };
        self.failed(&state).is_none() && matches!(state.comes(first), Comes::Perhaps)
    }

    fn poll_gap(&mut self, cx: &Context<'_>, range: &Range<u64>) -> Poll<Gap> {
        let mut state = self.entry.state.write();
        let Some(first) = state.first_missing(range) else { return Poll::Ready(Gap::None) };
        if self.failed(&state).is_some() {
            return Poll::Ready(Gap::Void);
        }
        match state.comes(first) {
            Comes::Certain => Poll::Ready(Gap::None),
            Comes::Perhaps => {
                state.wait(self.slot, cx);
                Poll::Pending
            }
            Comes::Never => Poll::Ready(Gap::Hole(state.hole(first, range.end))),
        }
    }

    /// Waits for body bytes; see [`Reader::poll_read`].
    pub async fn read(&mut self, range: Range<u64>, out: &mut Vec<Bytes>) -> Result<u64, Stop> {
        poll_fn(|cx| self.poll_read(cx, range.clone(), out)).await
    }

    /// Appends to `out` what is present from `range.start` on, up to `range.end`, and says how many bytes
    /// that were; 0 at the end of the body. Bytes before `range.start` will not be asked for again.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        range: Range<u64>,
        out: &mut Vec<Bytes>,
    ) -> Poll<Result<u64, Stop>> {
        loop {
            if let Some(disk) = &mut self.disk
                && let Some(reading) = &mut disk.reading
            {
                let Poll::Ready(pieces) = Pin::new(reading).poll(cx) else { return Poll::Pending };
                if disk.stay == Stay::Long {
                    self.entry.promote(&pieces);
                }
                disk.missed = (!pieces.iter().any(|piece| slice(piece, &range).is_some())).then_some(range.start);
                (disk.reading, disk.held) = (None, pieces);
            }
            match self.look(cx, &range, out) {
                NextBytes::Known(answer) => return answer,
                NextBytes::OnDisk(from) => {
                    let disk = self.disk.get_or_insert_with(|| Box::new(FromDisk::new(self.entry.stay())));
                    // The last block is let go first: most often its buffer is the next one.
                    disk.held.clear();
                    disk.gathers = disk.stay == Stay::Brief && from.store.has_buffers();
                    disk.reading = Some(from.store.read_to(from.id, from.key.text(), range.clone(), disk.stay));
                }
            }
        }
    }

    fn look(&self, cx: &Context<'_>, range: &Range<u64>, out: &mut Vec<Bytes>) -> NextBytes {
        // Readers of a whole body share its lock.
        if self.slot.is_none() {
            let read = self.entry.state.read().body.slices(range.clone(), out);
            if read > 0 {
                return NextBytes::Known(Poll::Ready(Ok(read)));
            }
        }
        let mut state = self.entry.state.write();
        self.take_up_to(&mut state, range.start);
        let read = state.body.slices(range.clone(), out);
        if read > 0 || range.is_empty() || state.length.is_some_and(|length| range.start >= length) {
            return NextBytes::Known(Poll::Ready(Ok(read)));
        }
        let mut missed = false;
        if let Some(disk) = &self.disk {
            if let Some(piece) = disk.held.iter().find_map(|piece| slice(piece, range)) {
                let read = piece.len() as u64;
                out.push(piece);
                return NextBytes::Known(Poll::Ready(Ok(read)));
            }
            missed = disk.missed == Some(range.start);
        }
        let location = state.on_disk.location().filter(|_| !missed);
        if let Some(location) = location.filter(|location| location.here_from(range.start) > 0) {
            return NextBytes::OnDisk(Arc::clone(location));
        }
        if let Some(failure) = self.failed(&state) {
            return NextBytes::Known(Poll::Ready(Err(Stop::Failed(failure))));
        }
        NextBytes::Known(match state.comes(range.start) {
            Comes::Never => Poll::Ready(Err(Stop::Hole(self.up_to_held(state.hole(range.start, range.end))))),
            Comes::Certain | Comes::Perhaps => {
                state.wait(self.slot, cx);
                Poll::Pending
            }
        })
    }

    /// A hole within a block of which pieces are held ends where the next of them begins.
    fn up_to_held(&self, hole: Range<u64>) -> Range<u64> {
        let held = self.disk.iter().flat_map(|disk| &disk.held).map(|(at, _)| *at);
        hole.start..held.filter(|&at| at > hole.start).min().map_or(hole.end, |at| at.min(hole.end))
    }

    /// The hole that begins with the first byte of this range, as far as it goes within it.
    pub fn hole(&self, range: Range<u64>) -> Range<u64> {
        self.entry.state.read().hole(range.start, range.end)
    }

    /// It reads blocks from disk, and there are buffers for several: they may be sent together. Where there are none, a slow
    /// client holds one block and no more.
    pub fn gathers(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.gathers)
    }

    /// The bytes that it gave last came from disk.
    pub fn reads_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// The body was still on its way, or not whole, when this reader was made.
    pub fn began_incomplete(&self) -> bool {
        self.slot.is_some()
    }

    /// The trailer fields, once the body has been read to its end.
    pub fn trailers(&self) -> Option<Fields> {
        self.entry.state.read().activity.as_ref()?.trailers.as_deref().cloned()
    }

    /// The entry that this reader reads.
    pub fn entry(&self) -> &PinnedEntry {
        &self.entry
    }

    fn failed(&self, state: &State) -> Option<Failure> {
        if let Some(failure) = state.life.failure() {
            return Some(failure.clone());
        }
        state.reader(self.slot)?.failed.clone()
    }

    fn take_up_to(&self, state: &mut RwLockWriteGuard<'_, State>, position: u64) {
        let Some(own) = state.reader_mut(self.slot) else { return };
        if own.position == position {
            return;
        }
        own.position = position;
        if state.slide() {
            self.entry.settle_charge(state);
        }
        state.wake_writers();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let mut state = self.entry.state.write();
        state.remove_reader(slot);
        if state.slide() {
            self.entry.settle_charge(&state);
        }
        state.wake_writers();
        state.rest();
    }
}

/// The outcome of a look for the next bytes.
enum NextBytes {
    /// They are here, or the reader waits for them, or they don't come.
    Known(Poll<Result<u64, Stop>>),
    /// They are to be read from disk.
    OnDisk(Arc<DiskLocation>),
}

/// The part of a piece that lies in a range, if it has the range's first byte.
fn slice((at, bytes): &(u64, Bytes), range: &Range<u64>) -> Option<Bytes> {
    let skip = usize::try_from(range.start.checked_sub(*at)?).ok().filter(|&skip| skip < bytes.len())?;
    let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    Some(bytes.slice(skip..bytes.len().min(skip.saturating_add(wanted))))
}

/// Whether a byte that is not here is on its way.
enum Comes {
    /// From the origin's answer that the entry is made of.
    Certain,
    /// When the origin still has the same representation.
    Perhaps,
    Never,
}

/// A reader this far ahead of the stream has its part fetched for itself.
const AHEAD_BYTES_MAX: u64 = 1024 * 1024;

impl State {
    /// The first byte of the range that is not here; past the end of the body nothing is missing.
    pub(super) fn first_missing(&self, range: &Range<u64>) -> Option<u64> {
        let end = range.end.min(self.length.unwrap_or(u64::MAX));
        let mut at = range.start;
        while at < end {
            match self.here_from(at) {
                0 => return Some(at),
                here => at += here,
            }
        }
        None
    }

    fn comes(&self, at: u64) -> Comes {
        match self.fills().iter().find(|fill| fill.range.contains(&at)) {
            Some(fill) if fill.confirmed => return Comes::Certain,
            Some(_) => return Comes::Perhaps,
            None => {}
        }
        match self.life {
            Life::Waiting => Comes::Perhaps,
            Life::Arriving(_) => {
                let received = self.received();
                let far = at > received.saturating_add(AHEAD_BYTES_MAX);
                // Bytes that passed and were let go do not come again.
                if at >= received && !(far && self.is_mendable()) { Comes::Certain } else { Comes::Never }
            }
            Life::Settled(_) | Life::Redirected(_) | Life::Failed(_) => Comes::Never,
        }
    }

    /// The hole that begins with this byte, up to what is here or on its way, or `end`.
    pub(super) fn hole(&self, first: u64, end: u64) -> Range<u64> {
        let end = end.min(self.length.unwrap_or(u64::MAX));
        let end = self.body.holes(first..end).next().map_or(end, |hole| hole.end);
        let begun = self.fills().iter().map(|fill| fill.range.start).filter(|&start| start > first);
        let end = begun.min().map_or(end, |start| start.min(end));
        first..self.on_disk.location().map_or(end, |location| location.next_after(first, end))
    }
}
