//! A body that arrives from its start on: the ways in which the fetch of an entry changes it.

use super::activity::Contact;
use super::life::{Audience, Life, Redirection};
use super::{DiskLocation, Entry, Failure, FailureKind, PinnedEntry, ReuseReason, State};
use crate::head::StoredHead;
use crate::store::Putting;
use bytes::Bytes;
use larder_wire::Fields;
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

/// The limits of a stream.
pub(crate) struct Limits {
    /// So much of a body that passes may wait for its slowest reader.
    pub(crate) window_bytes: u64,
    /// A fetch whose clients all left goes on when at most so much is missing.
    pub(crate) abandoned_bytes_max: u64,
    /// The fetch refreshes behind an answer that was already given.
    pub(crate) unattended: bool,
}

/// The state of a body after a piece was added.
pub(crate) struct Appended {
    /// Body bytes that came so far.
    pub(crate) received: u64,
    /// The body is stored; otherwise it passes through a window.
    pub(crate) is_stored: bool,
}

impl Entry {
    /// A client of the fetch was answered with a stored response, because the origin was silent.
    pub(crate) fn is_late(&self) -> bool {
        self.state.read().is_late()
    }

    /// Says how far the fetch came towards its origin, as far as is known.
    pub(crate) fn set_contact(&self, contact: Contact) {
        self.state.write().activity().contact = contact;
    }

    /// The head of a stored response is here; its body follows, and stays in memory or not.
    pub(crate) fn begin(&self, stored: StoredHead, length: Option<u64>, is_alone_on_disk: bool) {
        let mut state = self.state.write();
        state.life.begin(stored, Audience::Everybody);
        state.length = length;
        if is_alone_on_disk {
            state.on_disk.go_alone();
        }
        self.settle_charge(&state);
    }

    /// The head of a stored response is here, whose body comes in parts: there is no stream from its start.
    pub(crate) fn begin_in_parts(
        &self,
        stored: StoredHead,
        length: u64,
        location: Option<Arc<DiskLocation>>,
        is_alone_on_disk: bool,
    ) {
        let mut state = self.state.write();
        state.life.begin(stored, Audience::Everybody);
        state.life.settle();
        state.length = Some(length);
        if is_alone_on_disk {
            state.on_disk.go_alone();
        }
        if let Some(location) = location {
            state.on_disk.set_location(location);
        }
        self.settle_charge(&state);
    }

    /// The head of an answer to the asking request alone is here; requests that followed are set free.
    pub(crate) fn pass(&self, stored: StoredHead, length: Option<u64>) {
        let mut state = self.state.write();
        state.life.begin(stored, Audience::Asker);
        state.length = length;
        self.settle_charge(&state);
        state.wake_readers();
    }

    /// Gives the entry its place on disk and writes its head there, with the body when that is whole and short.
    pub(crate) fn put_on_disk(&self, location: Arc<DiskLocation>) {
        let mut state = self.state.write();
        state.on_disk.set_location(location);
        self.write_first_head(&mut state);
    }

    /// Gives the entry its place on disk and writes its head there; returns the pieces of the body that are here.
    pub(crate) fn begin_on_disk(&self, location: Arc<DiskLocation>) -> Vec<Bytes> {
        let mut state = self.state.write();
        state.on_disk.set_location(location);
        self.write_first_head(&mut state);
        let mut here = Vec::new();
        state.body.slices(0..u64::MAX, &mut here);
        here
    }

    /// Wakes all tasks that wait for a part of it.
    pub(crate) fn wake_readers(&self) {
        self.state.write().wake_readers();
    }

    /// Says whether the next piece may be pushed; wakes the task when it may.
    pub(crate) fn poll_room(&self, cx: &Context<'_>, limits: &Limits) -> Poll<Room> {
        let mut state = self.state.write();
        if !state.life.passes() {
            let is_wanted = state.reader_count() > 0 || limits.unattended || state.is_late();
            let goes_on = is_wanted || (!state.is_left_held() && state.is_worth_finishing(limits.abandoned_bytes_max));
            if !goes_on || state.rest_comes_otherwise() {
                return Poll::Ready(Room::Gone);
            }
            if !state.is_held_back(state.received()) {
                return Poll::Ready(Room::Go);
            }
            state.activity().writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if state.reader_count() == 0 {
            return Poll::Ready(Room::Gone);
        }
        if state.received().saturating_sub(state.slowest()) < limits.window_bytes {
            return Poll::Ready(Room::Go);
        }
        state.activity().writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Appends a piece of the body and wakes the readers.
    pub(crate) fn append(&self, piece: Bytes) -> Appended {
        let mut state = self.state.write();
        let at = state.received();
        let received = at + piece.len() as u64;
        let activity = state.activity();
        activity.received = received;
        activity.brought += received - at;
        state.body.insert(at, piece);
        state.slide();
        self.settle_charge(&state);
        state.wake_readers();
        Appended { received, is_stored: !state.life.passes() }
    }

    /// Lets go of what is written of a body that does not stay in memory; false for a body that does, or that passes.
    pub(crate) fn drop_written(&self, written: Vec<Range<u64>>) -> bool {
        let mut state = self.state.write();
        if !state.is_stored_on_disk_alone() {
            return false;
        }
        written.into_iter().for_each(|range| {
            state.body.remove(range);
        });
        self.settle_charge(&state);
        true
    }

    /// It is stored, and its body does not stay in memory.
    pub(crate) fn is_stored_on_disk_alone(&self) -> bool {
        self.state.read().is_stored_on_disk_alone()
    }

    /// The body is to leave memory as soon as it is on disk.
    pub(crate) fn is_alone_on_disk(&self) -> bool {
        self.state.read().on_disk.is_alone()
    }

    /// From here on the body leaves memory as soon as it is on disk.
    pub(crate) fn go_alone(&self) {
        self.state.write().on_disk.go_alone();
    }

    /// Keeps the body no more: its readers get it through a window.
    pub(crate) fn let_pass(&self) {
        let mut state = self.state.write();
        state.life.let_pass();
        state.slide();
        self.settle_charge(&state);
    }

    /// The body is whole. Says whether it is stored.
    pub(crate) fn settle(&self, trailers: Option<Fields>) -> bool {
        let mut state = self.state.write();
        if !state.life.settle() {
            state.life.fail(Failure {
                status: 502,
                word: "abandoned",
                detail: "the fetch brought no head".into(),
                kind: FailureKind::Answer,
            });
        }
        // The answer to a HEAD declares a length and has no body.
        state.length = state.length.or(Some(state.received()));
        if let Some(trailers) = trailers {
            state.activity().trailers = Some(Box::new(trailers));
        }
        let is_stored = state.life.stored().is_some();
        if is_stored {
            state.body.compact();
            self.settle_charge(&state);
        }
        state.wake_readers();
        state.rest();
        is_stored
    }

    /// Remembers the last blocks of its body while they are on their way to the disk, and writes the head again if its
    /// length was not known before.
    pub(crate) fn finish_on_disk(&self, puts: impl IntoIterator<Item = Putting>) {
        let mut state = self.state.write();
        state.add_puts(puts);
        self.write_head(&mut state);
    }

    /// Remembers writes while they are on their way to the disk.
    pub(crate) fn add_puts(&self, puts: impl IntoIterator<Item = Putting>) {
        self.state.write().add_puts(puts);
    }

    /// A validation found another entry to be the answer: for the requests that followed too, or (not `shared`) for the
    /// asking request alone, and those that followed ask for themselves.
    pub(crate) fn redirect(&self, to: PinnedEntry, reason: ReuseReason, own: Option<Arc<StoredHead>>, shared: bool) {
        let audience = if shared { Audience::Everybody } else { Audience::Asker };
        let mut state = self.state.write();
        state.life = Life::Redirected(Box::new(Redirection { entry: to, reason, own, audience }));
        state.wake_readers();
    }

    /// The stream broke off. The part of a stored answer that came stays, if the rest of the same can be asked for; says whether it
    /// does.
    pub(crate) fn settle_in_part(&self, failure: &Failure) -> bool {
        let mut state = self.state.write();
        let arriving = state.life.is_arriving();
        let otherwise = arriving && state.rest_comes_otherwise();
        let stays = arriving && state.is_mendable() && state.received() > 0 && state.life.settle();
        if stays && !otherwise {
            state.fail_readers(&(0..u64::MAX), failure);
        }
        // Bytes that come by other fetches may end just before the byte that a reader waits for.
        state.wake_readers();
        stays
    }

    /// There will be no answer, or no more of it.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state.write();
        state.life.fail(failure);
        state.wake_readers();
    }
}

/// A stream ends early when so much of what follows is here or on its way.
const SPARED_BYTES_MIN: u64 = 1024 * 1024;

impl State {
    fn is_stored_on_disk_alone(&self) -> bool {
        self.on_disk.is_alone() && !self.life.passes()
    }

    /// The rule for a fetch whose clients all left: it goes on when the answer is stored and at most so many bytes are
    /// missing, or less than half of it.
    pub(super) fn is_worth_finishing(&self, abandoned_bytes_max: u64) -> bool {
        let (have, length) = (self.received(), self.length);
        match length {
            Some(length) => length - have.min(length) <= abandoned_bytes_max.max(have),
            None => have <= abandoned_bytes_max,
        }
    }

    /// The next bytes of the stream are here already, or other fetches are bringing it.
    fn rest_comes_otherwise(&self) -> bool {
        let received = self.received();
        let Some(length) = self.length.filter(|&length| received < length) else { return false };
        // Where several requests bring one download, whoever asked for what follows asks for more behind it.
        let spared = if self.fills().iter().any(|fill| fill.is_ahead) { 1 } else { SPARED_BYTES_MIN };
        let enough = length.min(received.saturating_add(spared));
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
