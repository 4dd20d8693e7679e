//! The copy of an entry on disk: where it lies, and how it is written.

use super::{Entry, State};
use crate::key::Key;
use crate::store::{BLOCK_BYTES, HeadToStore, INLINE_BYTES_MAX, ObjectId, Put, Putting, Stay, Store};
use bytes::Bytes;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

/// Where a response lies on disk.
pub(crate) struct DiskLocation {
    pub(crate) store: Arc<Store>,
    pub(crate) id: ObjectId,
    pub(crate) key: Key,
}

impl DiskLocation {
    /// A place that nothing was written to so far.
    pub(crate) fn new(store: &Arc<Store>, key: Key) -> Arc<DiskLocation> {
        Arc::new(DiskLocation { store: Arc::clone(store), id: store.new_id(), key })
    }

    /// Queues a piece of the body.
    pub(crate) fn put_extent(&self, at: u64, pieces: Vec<Bytes>) -> Putting {
        self.store.put_extent(self.id, self.key.text(), at, pieces)
    }

    fn extents(&self, at: u64) -> Vec<Range<u64>> {
        self.store.extents(self.id, self.key.text(), at / BLOCK_BYTES)
    }

    /// How many bytes are there from this one on, within its block.
    pub(super) fn here_from(&self, at: u64) -> u64 {
        let mut next = at;
        for range in self.extents(at) {
            if range.start <= next {
                next = next.max(range.end);
            }
        }
        next - at
    }

    /// Where the next bytes after this one begin, if they do before `end`; or how far it looked.
    pub(super) fn next_after(&self, at: u64, end: u64) -> u64 {
        let end = end.min(at.saturating_add(LOOK_BYTES_MAX));
        for block in at / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            if !self.store.has_block(self.id, self.key.text(), block) {
                continue;
            }
            let starts = self.extents(block * BLOCK_BYTES).into_iter().map(|range| range.start);
            if let Some(start) = starts.filter(|&start| start > at).min() {
                return start.min(end);
            }
        }
        end
    }
}

/// The index is looked at block by block, and an origin may call any length its object's: a longer hole counts as several.
const LOOK_BYTES_MAX: u64 = 1 << 30;

/// The part that the disk has of a response.
pub(super) enum OnDisk {
    /// Nothing, and nothing is on its way there.
    No,
    /// Nothing so far. The body is to lie there alone, because it is too large for memory.
    Planned,
    /// A copy of what is in memory; memory may have less.
    Copy(Arc<DiskLocation>),
    /// A copy of which the store did not take all: from the next look on it counts as [`OnDisk::No`].
    Refused(Arc<DiskLocation>),
    /// The body: it stays in memory only until it is on disk.
    Alone(Arc<DiskLocation>),
}

impl OnDisk {
    pub(super) fn location(&self) -> Option<&Arc<DiskLocation>> {
        match self {
            OnDisk::No | OnDisk::Planned => None,
            OnDisk::Copy(location) | OnDisk::Refused(location) | OnDisk::Alone(location) => Some(location),
        }
    }

    /// The body does not stay in memory.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self, OnDisk::Planned | OnDisk::Alone(_))
    }

    /// From here on it has this place.
    pub(super) fn set_location(&mut self, location: Arc<DiskLocation>) {
        *self = if self.is_alone() { OnDisk::Alone(location) } else { OnDisk::Copy(location) };
    }

    /// From here on the body does not stay in memory.
    pub(super) fn go_alone(&mut self) {
        *self = match std::mem::replace(self, OnDisk::No) {
            OnDisk::No | OnDisk::Planned => OnDisk::Planned,
            OnDisk::Copy(location) | OnDisk::Refused(location) | OnDisk::Alone(location) => OnDisk::Alone(location),
        };
    }

    /// The store did not take some of it.
    pub(super) fn refuse(&mut self) {
        if let OnDisk::Copy(location) = self {
            *self = OnDisk::Refused(Arc::clone(location));
        }
    }

    /// A copy that is not whole counts no more. Gives back where it was.
    fn drop_refused(&mut self) -> Option<Arc<DiskLocation>> {
        let OnDisk::Refused(location) = self else { return None };
        let location = Arc::clone(location);
        *self = OnDisk::No;
        Some(location)
    }
}

impl Entry {
    /// Writes the head to where the entry lies on disk, with the body when that is whole and short; returns at once whether
    /// it was refused.
    pub(super) fn write_head(&self, state: &mut State) -> Put {
        let Some(location) = state.on_disk.location().cloned() else { return Put::Stored };
        let Some(stored) = state.life.head() else { return Put::Stored };
        if !self.listed.load(Ordering::Relaxed) {
            return Put::Stored;
        }
        let body = state.length.filter(|&length| length <= INLINE_BYTES_MAX as u64 && state.body.covers(0..length));
        let body = body.map(|length| {
            let mut pieces = Vec::new();
            state.body.slices(0..length, &mut pieces);
            pieces
        });
        let head = HeadToStore {
            key: Bytes::copy_from_slice(location.key.text()),
            variant: stored.variant(),
            id: location.id,
            epoch: self.epoch(),
            length: state.length,
            tags: stored.tags().to_vec(),
            meta: stored.encode(),
            body,
        };
        let mut putting = location.store.put_head(head);
        let mut cx = Context::from_waker(Waker::noop());
        let put = match Pin::new(&mut putting).poll(&mut cx) {
            Poll::Ready(put) => put,
            Poll::Pending => {
                state.add_puts([putting]);
                Put::Stored
            }
        };
        if put != Put::Stored {
            state.on_disk.refuse();
        }
        // A purge that came meanwhile may not have seen that head.
        if !self.listed.load(Ordering::Relaxed) {
            drop(location.store.forget(location.key.text(), Some(location.id)));
        }
        put
    }

    /// [`Entry::write_head`] of a head that takes the place of what lies there. When it is refused, the old one is removed
    /// all the same: it must not be the answer when memory has let go of this one.
    pub(super) fn write_first_head(&self, state: &mut State) {
        let put = self.write_head(state);
        if let (Some(location), Put::Refused(_)) = (state.on_disk.location(), put)
            && location.store.may_have(location.key.text())
        {
            drop(location.store.forget(location.key.text(), None));
        }
    }

    /// Writes the head of a response of which a part was stored. Not before the entry is in the index: a renewal of the
    /// entry that it replaces would write over it.
    pub(crate) fn write_head_of_part(&self) {
        self.write_first_head(&mut self.state.write());
    }

    /// Where it lies on disk.
    pub(crate) fn on_disk(&self) -> Option<Arc<DiskLocation>> {
        self.state.read().on_disk.location().cloned()
    }

    /// Gives the entry a place on disk and writes it there, if it is whole and short.
    pub(crate) fn keep_on_disk(&self, store: &Arc<Store>) {
        let mut state = self.state.write();
        let short = state.length.is_some_and(|length| length <= INLINE_BYTES_MAX as u64);
        if state.on_disk.location().is_none() && state.is_whole() && short {
            let location = DiskLocation::new(store, state.key.clone());
            state.on_disk.set_location(location);
            self.write_first_head(&mut state);
        }
    }

    /// It is on its way to the disk and not to be found there yet.
    pub(crate) fn is_being_written(&self) -> bool {
        let mut state = self.state.write();
        state.drop_finished_puts();
        if let Some(location) = state.on_disk.drop_refused()
            && self.keeps_blocks.swap(false, Ordering::Relaxed)
        {
            location.store.release_blocks(location.id);
        }
        state.put_count() > 0
    }

    /// It can't be found any more, or its head on disk is about to go: blocks of its body that lie on disk alone stay until its
    /// last user leaves, so that an answer which has begun does not break off.
    pub(crate) fn keep_blocks(&self) {
        let state = self.state.read();
        let Some(location) = state.on_disk.location().filter(|_| !state.is_whole()) else { return };
        if !self.keeps_blocks.swap(true, Ordering::Relaxed) {
            location.store.keep_blocks(location.id);
        }
    }

    /// Whether bytes that are read from disk now are to stay in memory.
    pub(super) fn stay(&self) -> Stay {
        if self.state.read().on_disk.is_alone() || !self.budget.takes_up() { Stay::Brief } else { Stay::Long }
    }

    /// Puts bytes that were read from disk into memory, unless the entry is too large to stay there, or clients hold so
    /// much of memory that nothing else can leave it.
    pub(super) fn promote(&self, pieces: &[(u64, Bytes)]) {
        let bytes = pieces.iter().map(|(_, piece)| piece.len() as u64).sum();
        let mut state = self.state.write();
        if state.on_disk.is_alone() || !self.budget.lends(bytes) {
            return;
        }
        for (at, piece) in pieces {
            state.body.insert(*at, piece.clone());
        }
        self.settle_charge(&state);
    }
}

impl State {
    /// How many bytes are here from `at` on, on disk as far as its index tells; 0 for the beginning of a hole.
    pub(super) fn here_from(&self, at: u64) -> u64 {
        match (self.body.present_from(at), self.on_disk.location()) {
            (0, Some(location)) => location.here_from(at),
            (present, _) => present,
        }
    }

    /// Lets go of what every reader has taken and the disk has.
    pub(super) fn shed_written(&mut self) {
        let slowest = self.slowest();
        let Some(location) = self.on_disk.location().cloned().filter(|_| slowest != u64::MAX) else { return };
        let mut at = 0;
        while at < slowest {
            let end = slowest.min(at + self.body.present_from(at));
            if at == end {
                at = self.body.holes(at..slowest).next().map_or(slowest, |hole| hole.end);
                continue;
            }
            match location.here_from(at).min(end - at) {
                0 => at = location.next_after(at, end),
                here => {
                    self.body.remove(at..at + here);
                    at += here;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::head::StoredHead;
    use crate::store::Settings;
    use larder_wire::ResponseHead;
    use larder_wire::date::Stamp;

    #[test]
    fn what_is_written_is_not_remembered_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&[folder.path().to_path_buf()], &Settings::small()).unwrap();
        let key = Key::from_text(b"http://a.example/x".to_vec());
        let entry = Entry::new(key.clone(), 0, 0, Arc::new(Budget::of(1 << 20)));
        entry.listed.store(true, Ordering::Relaxed);
        let head = || StoredHead::new(ResponseHead::new(200), None, Stamp(0));
        entry.begin_in_parts(head(), 10, Some(DiskLocation::new(&store, key)), false);
        for _ in 0..100 {
            entry.renew(head(), 0);
            store.sync().wait();
        }
        let puts = entry.state.read().put_count();
        assert!(puts <= 1, "one that is validated often would grow for ever: {puts}");
    }

    #[test]
    fn a_refused_copy_is_none_and_a_body_that_is_nowhere_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&[folder.path().to_path_buf()], &Settings::small()).unwrap();
        let location = || DiskLocation::new(&store, Key::from_text(b"http://a.example/x".to_vec()));
        let mut on_disk = OnDisk::No;
        on_disk.refuse();
        assert!(on_disk.location().is_none() && !on_disk.is_alone());
        on_disk.set_location(location());
        on_disk.refuse();
        assert!(on_disk.location().is_some(), "until somebody looks");
        on_disk.drop_refused();
        assert!(on_disk.location().is_none());
        on_disk.go_alone();
        assert!(on_disk.is_alone() && on_disk.location().is_none());
        on_disk.set_location(location());
        on_disk.refuse();
        on_disk.drop_refused();
        assert!(on_disk.is_alone() && on_disk.location().is_some());
    }
}
