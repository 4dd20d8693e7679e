//! The one who fills an entry from its start.

use super::{Entry, Failure, Fill, Kept, Phase, Retention, Said, State};
use crate::cache::Cache;
use crate::key::Key;
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
    candidates: Vec<(Arc<Entry>, Arc<Kept>)>,
    /// Fills behind an answer that was already given, so it goes on without readers.
    unattended: bool,
    done: bool,
}

impl Writer {
    pub(crate) fn new(
        cache: Arc<Cache>,
        entry: Arc<Entry>,
        candidates: Vec<(Arc<Entry>, Arc<Kept>)>,
        unattended: bool,
    ) -> Writer {
        Writer { cache, entry, candidates, unattended, done: false }
    }

    /// Stored responses that a validation may name.
    pub fn candidates(&self) -> &[(Arc<Entry>, Arc<Kept>)] {
        &self.candidates
    }

    /// How many wait for it.
    pub fn readers(&self) -> usize {
        self.entry.state.lock().seated
    }

    /// The key of the entry.
    pub fn key(&self) -> Key {
        self.entry.key()
    }

    /// Nobody waits for this fetch: it refreshes behind an answer already given.
    pub fn is_unattended(&self) -> bool {
        self.unattended
    }

    /// Publishes a head whose response is stored and shared; `length` where the origin said it. A body too long
    /// for the store passes through a window instead, and the answer is then for the asking request alone.
    pub fn store(&mut self, kept: Kept, length: Option<u64>) {
        if length.is_some_and(|length| length > self.cache.settings.object_bytes_max) {
            return self.pass(kept, length);
        }
        self.cache.rename(&self.entry, no_vary_search(&kept.head.fields));
        {
            let mut state = self.entry.state.lock();
            state.kept = Some(Arc::new(kept));
            state.length = length;
            state.phase = Phase::Filling;
            self.entry.settle_charge(&mut state);
        }
        self.cache.install(&self.entry);
        self.entry.state.lock().wake_readers();
    }

    /// Publishes the head of a whole of which only this part follows, into the fill that it gives back. The caller has
    /// seen to it that more can be asked for: the length is known and the validator strong.
    pub fn store_part(mut self, kept: Kept, part: &Range<u64>, length: u64) -> Option<Fill> {
        self.done = true;
        self.cache.rename(&self.entry, no_vary_search(&kept.head.fields));
        {
            let mut state = self.entry.state.lock();
            state.kept = Some(Arc::new(kept));
            state.length = Some(length);
            state.phase = Phase::Settled;
            self.entry.settle_charge(&mut state);
        }
        let mut fill = Fill::begin(&self.entry, part);
        if let Some(fill) = &mut fill {
            fill.confirm(part);
        }
        self.cache.install(&self.entry);
        self.cache.admit(&self.entry);
        self.entry.state.lock().wake_readers();
        fill
    }

    /// Publishes a head whose response is for the asking request alone; whoever followed is set free.
    pub fn pass(&mut self, kept: Kept, length: Option<u64>) {
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.kept = Some(Arc::new(kept));
        state.length = length;
        state.phase = Phase::Filling;
        state.shared = false;
        state.retention = Retention::Window(self.cache.settings.window_bytes);
        self.entry.settle_charge(&mut state);
        state.wake_readers();
    }

    /// Waits until the next piece may be pushed.
    pub async fn room(&mut self) -> Room {
        poll_fn(|cx| self.poll_room(cx)).await
    }

    /// Says whether the next piece may be pushed; wakes the task when it may.
    pub fn poll_room(&mut self, cx: &Context<'_>) -> Poll<Room> {
        let mut state = self.entry.state.lock();
        match state.retention {
            Retention::Keep if state.rest_comes_otherwise() => Poll::Ready(Room::Gone),
            Retention::Keep if state.seated > 0 || self.unattended || self.worth_finishing(&state) => {
                Poll::Ready(Room::Go)
            }
            Retention::Keep => Poll::Ready(Room::Gone),
            Retention::Window(_) if state.seated == 0 => Poll::Ready(Room::Gone),
            Retention::Window(bytes) => {
                if state.received - state.slowest().min(state.received) < bytes {
                    return Poll::Ready(Room::Go);
                }
                state.writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Appends a piece of the body and wakes the readers.
    pub fn push(&mut self, piece: Bytes) {
        let keeps = {
            let mut state = self.entry.state.lock();
            let at = state.received;
            state.received += piece.len() as u64;
            state.body.insert(at, piece);
            state.slide();
            self.entry.settle_charge(&mut state);
            state.wake_readers();
            state.retention == Retention::Keep
        };
        if keeps {
            self.make_room();
        }
    }

    /// The body is whole.
    pub fn finish(mut self, trailers: Option<Fields>) {
        self.done = true;
        let keeps = {
            let mut state = self.entry.state.lock();
            state.phase = Phase::Settled;
            // The answer to a HEAD declares a length and has no body.
            state.length = state.length.or(Some(state.received));
            state.trailers = trailers;
            let keeps = state.retention == Retention::Keep;
            if keeps {
                state.body.compact();
                state.readers.shrink_to_fit();
                self.entry.settle_charge(&mut state);
            }
            state.wake_readers();
            keeps
        };
        if keeps {
            self.cache.admit(&self.entry);
        }
    }

    /// A validation said that `entry` is still the answer.
    pub fn redirect(mut self, entry: &Arc<Entry>, said: Said) {
        self.done = true;
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.phase = Phase::Redirected(Arc::clone(entry), said);
        state.wake_readers();
    }

    /// There will be no answer, or no more of it.
    pub fn fail(mut self, failure: Failure) {
        self.end_failed(failure);
    }

    /// The rule for a fetch whose clients all left: it goes on when the answer is stored and at most
    /// `abandoned_bytes_max` are missing, or less than half of it.
    fn worth_finishing(&self, state: &State) -> bool {
        let limit = self.cache.settings.abandoned_bytes_max;
        let (have, length) = (state.received, state.length);
        match length {
            Some(length) => length - have.min(length) <= limit.max(have),
            None => have <= limit,
        }
    }

    /// The budget holds at once: others go, or, when there is nobody left to go, this body stops being kept.
    fn make_room(&self) {
        let cache = &self.cache;
        let too_long = self.entry.state.lock().received > cache.settings.object_bytes_max;
        if !too_long && cache.make_room() {
            return;
        }
        cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.retention = Retention::Window(cache.settings.window_bytes);
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
            let keeps = filling && state.is_mendable() && !state.body.is_empty();
            if keeps {
                state.phase = Phase::Settled;
            }
            if keeps && !otherwise {
                state.fail_readers(&(0..u64::MAX), &failure);
            }
            keeps
        };
        if keeps {
            return self.cache.admit(&self.entry);
        }
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.phase = Phase::Failed(failure);
        state.wake_readers();
    }
}

/// A stream ends early when so much of what follows is here or on its way.
const SPARED_BYTES_MIN: u64 = 1024 * 1024;

impl State {
    /// What the stream would bring next is here already, or other fetches are bringing it.
    fn rest_comes_otherwise(&self) -> bool {
        let Some(length) = self.length.filter(|&length| self.received < length) else { return false };
        let enough = length.min(self.received.saturating_add(SPARED_BYTES_MIN));
        let mut next = self.received;
        while next < enough {
            let present = self.body.present_from(next);
            let coming = self.fills.iter().find(|fill| fill.confirmed && fill.range.contains(&next));
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
