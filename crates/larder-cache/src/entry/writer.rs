//! The one who fills an entry from its start.

use super::spool::{OnDisk, Spool};
use super::{Entry, Failure, Fill, Phase, Redirection, Retention, Said, State, Watch};
use crate::cache::Cache;
use crate::head::StoredHead;
use crate::key::Key;
use crate::store::INLINE_BYTES_MAX;
use bytes::Bytes;
use larder_wire::Fields;
use larder_wire::structured::no_vary_search;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Whether a fetch should go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room for the next piece.
    Go,
    /// Nobody wants the rest, and it is not worth having for later; or it is here already.
    Gone,
}

/// The one who fills an entry. Dropping it before [`Writer::finish`] marks the entry failed and wakes
/// all readers.
#[must_use]
pub struct Writer {
    cache: Arc<Cache>,
    entry: Arc<Entry>,
    candidates: Vec<(Arc<Entry>, Arc<StoredHead>)>,
    /// Fills behind an answer that was already given, so it goes on without readers.
    unattended: bool,
    /// Whether the disk takes it, once that was asked.
    admitted: Option<bool>,
    /// Boxed: what passes through has none, and a writer goes from hand to hand.
    spool: Option<Box<Spool>>,
    done: bool,
}

impl Writer {
    pub(crate) fn new(
        cache: Arc<Cache>,
        entry: Arc<Entry>,
        candidates: Vec<(Arc<Entry>, Arc<StoredHead>)>,
        unattended: bool,
    ) -> Writer {
        Writer { cache, entry, candidates, unattended, admitted: None, spool: None, done: false }
    }

    /// Stored responses that a validation may name.
    pub fn candidates(&self) -> &[(Arc<Entry>, Arc<StoredHead>)] {
        &self.candidates
    }

    /// How many wait for it.
    pub fn readers(&self) -> usize {
        self.entry.readers()
    }

    /// The key of the entry.
    pub fn key(&self) -> Key {
        self.entry.key()
    }

    /// The number of the last invalidation rule when this fetch began.
    pub fn epoch(&self) -> u64 {
        self.entry.epoch()
    }

    /// Nobody waits for this fetch: it refreshes behind an answer already given.
    pub fn is_unattended(&self) -> bool {
        self.unattended || self.entry.state.lock().is_late()
    }

    /// Says whether there is a connection to the origin, as far as is known.
    pub fn reached(&self, is_reached: bool) {
        self.entry.state.lock().busy().is_reached = is_reached;
    }

    /// Sees who wants what this writer brings, and what `fill` does.
    pub fn watch(&self, fill: Option<&Fill>) -> Watch {
        Watch {
            entry: Arc::clone(&self.entry),
            abandoned_bytes_max: self.cache.settings.abandoned_bytes_max,
            unattended: self.unattended,
            hole: fill.map(|fill| (Arc::clone(fill.entry()), fill.number())),
        }
    }

    /// Whether a body of this length may be kept, in memory or on disk.
    pub fn takes(&mut self, length: u64) -> bool {
        length <= self.cache.object_bytes_max(false) || (self.admits() && length <= self.cache.object_bytes_max(true))
    }

    /// Whether it goes to disk, where that was asked and there is one.
    pub fn is_admitted(&self) -> Option<bool> {
        self.admitted.filter(|_| self.cache.disk().is_some())
    }

    /// Whether it goes to disk.
    fn admits(&mut self) -> bool {
        let (cache, entry) = (&self.cache, &self.entry);
        *self.admitted.get_or_insert_with(|| cache.disk().is_some_and(|store| store.admits(entry.id_hash)))
    }

    /// Publishes a head whose response is stored and shared; `length` where the origin said it. A body too long
    /// for the store passes through a window instead, and the answer is then for the asking request alone.
    pub fn store(&mut self, stored: StoredHead, length: Option<u64>) {
        if length.is_some_and(|length| !self.takes(length)) {
            return self.pass(stored, length);
        }
        let admitted = self.admits();
        self.cache.rename(&self.entry, no_vary_search(&stored.head.fields));
        {
            let mut state = self.entry.state.lock();
            state.head = Some(Arc::new(stored));
            state.length = length;
            state.phase = Phase::Filling;
            state.large = admitted && length.is_some_and(|length| length > self.cache.object_bytes_max(false));
            self.entry.settle_charge(&mut state);
        }
        self.cache.install(&self.entry, admitted);
        if length.is_some_and(|length| length > INLINE_BYTES_MAX as u64) {
            self.begin_spool();
        }
        self.entry.state.lock().wake_readers();
    }

    /// From here on the body goes to disk as it comes.
    fn begin_spool(&mut self) {
        let Some(disk) = self.place_on_disk() else { return };
        let mut spool = Spool::new(disk.clone(), 0);
        let mut state = self.entry.state.lock();
        state.disk = Some(Arc::new(disk));
        self.entry.write_first_head(&mut state);
        let mut here = Vec::new();
        state.body.slices(0..u64::MAX, &mut here);
        drop(state);
        here.into_iter().for_each(|piece| spool.push(piece));
        self.spool = Some(Box::new(spool));
    }

    fn place_on_disk(&mut self) -> Option<OnDisk> {
        let admitted = self.admits() && self.spool.is_none();
        let store = self.cache.disk().filter(|_| admitted)?;
        Some(OnDisk { store: Arc::clone(store), id: store.new_id(), key: self.entry.key() })
    }

    /// Publishes the head of a whole of which only this part follows, into the fill that it gives back. The caller has
    /// seen to it that more can be asked for: the length is known and the validator strong.
    pub fn store_part(mut self, stored: StoredHead, part: &Range<u64>, length: u64) -> Option<Fill> {
        self.done = true;
        self.cache.rename(&self.entry, no_vary_search(&stored.head.fields));
        let disk = self.place_on_disk();
        {
            let mut state = self.entry.state.lock();
            state.head = Some(Arc::new(stored));
            state.length = Some(length);
            state.phase = Phase::Settled;
            state.large = disk.is_some() && length > self.cache.object_bytes_max(false);
            state.disk = disk.map(Arc::new);
            self.entry.settle_charge(&mut state);
        }
        let mut fill = Fill::begin(&self.entry, part);
        if let Some(fill) = &mut fill {
            fill.confirm(part);
        }
        let admitted = self.admits();
        self.cache.install(&self.entry, admitted);
        // Not before: whoever renews the one that it replaces would write over it.
        self.entry.write_first_head(&mut self.entry.state.lock());
        self.cache.admit(&self.entry);
        self.entry.state.lock().wake_readers();
        fill
    }

    /// Publishes a head whose response is for the asking request alone; whoever followed is set free.
    pub fn pass(&mut self, stored: StoredHead, length: Option<u64>) {
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.head = Some(Arc::new(stored));
        state.length = length;
        state.phase = Phase::Filling;
        state.shared = false;
        state.retention = Retention::Window;
        self.entry.settle_charge(&mut state);
        state.wake_readers();
    }

    /// Waits until the next piece may be pushed.
    pub async fn room(&mut self) -> Room {
        poll_fn(|cx| self.poll_room(cx)).await
    }

    /// Says whether the next piece may be pushed; wakes the task when it may.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Room> {
        if self.poll_disk(cx).is_pending() {
            return Poll::Pending;
        }
        let mut state = self.entry.state.lock();
        match state.retention {
            Retention::Keep if state.rest_comes_otherwise() => Poll::Ready(Room::Gone),
            Retention::Keep if state.seated() > 0 || self.unattended || state.is_late() => Poll::Ready(Room::Go),
            Retention::Keep if state.is_worth_finishing(self.cache.settings.abandoned_bytes_max) => {
                Poll::Ready(Room::Go)
            }
            Retention::Keep => Poll::Ready(Room::Gone),
            Retention::Window if state.seated() == 0 => Poll::Ready(Room::Gone),
            Retention::Window => {
                if state.received().saturating_sub(state.slowest()) < self.cache.settings.window_bytes {
                    return Poll::Ready(Room::Go);
                }
                state.busy().writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// What does not stay in memory waits for the disk.
    fn poll_disk(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // What the queue before the disk refuses would be nowhere once it has left memory.
        let waits = self.admitted == Some(true);
        if waits && self.cache.disk().is_some_and(|store| store.queue_room(cx).is_pending()) {
            return Poll::Pending;
        }
        let Some(spool) = &mut self.spool else { return Poll::Ready(()) };
        let written: Vec<Range<u64>> = std::iter::from_fn(|| spool.poll_written(cx)).collect();
        let mut state = self.entry.state.lock();
        if !state.large || state.retention != Retention::Keep {
            return Poll::Ready(());
        }
        if spool.is_refused() {
            drop(state);
            self.let_pass();
            return Poll::Ready(());
        }
        written.into_iter().for_each(|range| {
            state.body.remove(range);
        });
        self.entry.settle_charge(&mut state);
        drop(state);
        let full = spool.writing_bytes() >= self.cache.settings.window_bytes;
        if full || spool.poll_room(cx).is_pending() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Appends a piece of the body and wakes the readers.
    pub fn push(&mut self, piece: Bytes) {
        let (keeps, received) = {
            let mut state = self.entry.state.lock();
            let at = state.received();
            let received = at + piece.len() as u64;
            state.busy().received = received;
            state.body.insert(at, piece.clone());
            state.slide();
            self.entry.settle_charge(&mut state);
            state.wake_readers();
            (state.retention == Retention::Keep, received)
        };
        if !keeps {
            return;
        }
        match &mut self.spool {
            Some(spool) => spool.push(piece),
            None if received > INLINE_BYTES_MAX as u64 => self.begin_spool(),
            None => {}
        }
        self.make_room(received);
    }

    /// The body is whole.
    pub fn finish(mut self, trailers: Option<Fields>) {
        self.done = true;
        let keeps = {
            let mut state = self.entry.state.lock();
            state.phase = Phase::Settled;
            // The answer to a HEAD declares a length and has no body.
            state.length = state.length.or(Some(state.received()));
            if let Some(trailers) = trailers {
                state.busy().trailers = Some(Box::new(trailers));
            }
            let keeps = state.retention == Retention::Keep;
            if keeps {
                state.body.compact();
                self.entry.settle_charge(&mut state);
            }
            state.wake_readers();
            state.rest();
            keeps
        };
        if keeps {
            self.finish_on_disk();
            self.cache.admit(&self.entry);
        }
    }

    /// The last block, and the head again when its length was not known; a short body goes with its head.
    fn finish_on_disk(&mut self) {
        match &mut self.spool {
            Some(spool) => {
                let mut state = self.entry.state.lock();
                state.add_puts(spool.finish());
                self.entry.write_head(&mut state);
            }
            None => {
                let Some(disk) = self.place_on_disk() else { return };
                let mut state = self.entry.state.lock();
                state.disk = Some(Arc::new(disk));
                self.entry.write_first_head(&mut state);
            }
        }
    }

    /// A validation said that `entry` is still the answer.
    pub fn redirect(self, entry: &Arc<Entry>, said: Said) {
        self.redirect_to(entry, said, None, true);
    }

    /// A validation said that `entry` is still the answer; the one who asked gets it with this head, and whoever followed
    /// with that of the entry.
    pub fn redirect_with(self, entry: &Arc<Entry>, own: StoredHead) {
        self.redirect_to(entry, Said::Unchanged, Some(Arc::new(own)), true);
    }

    /// The same where the validation was for the one who asked alone: whoever followed is set free.
    pub fn redirect_alone(self, entry: &Arc<Entry>, own: StoredHead) {
        self.redirect_to(entry, Said::Unchanged, Some(Arc::new(own)), false);
    }

    fn redirect_to(mut self, entry: &Arc<Entry>, said: Said, own: Option<Arc<StoredHead>>, shared: bool) {
        self.done = true;
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.shared = shared;
        state.phase = Phase::Redirected(Box::new(Redirection { entry: Arc::clone(entry), said, own }));
        state.wake_readers();
    }

    /// There will be no answer, or no more of it.
    pub fn fail(mut self, failure: Failure) {
        self.end_failed(failure);
    }

    /// The budget holds at once: others go, or this body leaves memory as soon as it is on disk, or, without a disk, it
    /// stops being kept.
    fn make_room(&mut self, received: u64) {
        let admitted = self.admits();
        let has_room = received <= self.cache.object_bytes_max(false) && self.cache.make_room();
        if has_room || self.entry.state.lock().large {
            return;
        }
        if !admitted || received > self.cache.object_bytes_max(true) {
            return self.let_pass();
        }
        self.entry.state.lock().large = true;
        self.begin_spool();
    }

    /// Keeps the body no more.
    fn let_pass(&mut self) {
        self.spool = None;
        self.cache.note_too_long(&self.entry);
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.retention = Retention::Window;
        state.slide();
        self.entry.settle_charge(&mut state);
    }

    /// What came of a stored answer stays, if the rest of the same can be asked for.
    fn end_failed(&mut self, failure: Failure) {
        self.done = true;
        let keeps = {
            let mut state = self.entry.state.lock();
            let filling = matches!(state.phase, Phase::Filling);
            let otherwise = filling && state.rest_comes_otherwise();
            let keeps = filling && state.is_mendable() && state.received() > 0;
            if keeps {
                state.phase = Phase::Settled;
            }
            if keeps && !otherwise {
                state.fail_readers(&(0..u64::MAX), &failure);
            }
            // What comes otherwise may end just before the byte that one of them waits for.
            state.wake_readers();
            keeps
        };
        if keeps {
            self.entry.state.lock().add_puts(self.spool.iter_mut().flat_map(|spool| spool.finish()));
            return self.cache.admit(&self.entry);
        }
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.phase = Phase::Failed(Box::new(failure));
        state.wake_readers();
    }
}

/// A stream ends early when so much of what follows is here or on its way.
const SPARED_BYTES_MIN: u64 = 1024 * 1024;

impl State {
    /// The rule for a fetch whose clients all left: it goes on when the answer is stored and at most so many bytes are
    /// missing, or less than half of it.
    pub(super) fn is_worth_finishing(&self, abandoned_bytes_max: u64) -> bool {
        let (have, length) = (self.received(), self.length);
        match length {
            Some(length) => length - have.min(length) <= abandoned_bytes_max.max(have),
            None => have <= abandoned_bytes_max,
        }
    }

    /// What the stream would bring next is here already, or other fetches are bringing it.
    fn rest_comes_otherwise(&self) -> bool {
        let received = self.received();
        let Some(length) = self.length.filter(|&length| received < length) else { return false };
        let enough = length.min(received.saturating_add(SPARED_BYTES_MIN));
        let mut next = received;
        while next < enough {
            let present = self.here_from(next);
            let coming = self.fills().iter().find(|fill| fill.confirmed && fill.range.contains(&next));
            match (present, coming) {
                (0, None) => return false,
                (0, Some(fill)) => next = fill.range.end,
                (present, _) => next += present,
            }
        }
        self.is_mendable()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.done {
            self.end_failed(Failure { status: 502, word: "abandoned", detail: "the fetch was given up".into() });
        }
    }
}
