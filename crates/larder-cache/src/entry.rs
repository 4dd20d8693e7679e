//! The meeting place of the client side and the server side: one response, as far as it is here.
//!
//! A fetch owns the one [`Writer`] of an entry; every client that gets this response holds a
//! [`Reader`]. Neither knows the other. A hit, a follower of a fetch, a range and an answer that is
//! merely passed on differ only in where the reader came from.
//!
//! An entry keeps its body ([`Retention::Keep`]) or lets it pass through a window of fixed size
//! ([`Retention::Window`]); in a window the slowest reader holds the writer back, so memory never
//! depends on the length of a body. Waiting is done with plain [`std::task`] wakers: this crate knows
//! no runtime.

use crate::cache::{Budget, Cache};
use crate::evict::{Seat, Weighed};
use crate::extents::Extents;
use crate::key::Key;
use crate::policy::{NotStored, Terms};
use bytes::Bytes;
use larder_wire::date::Stamp;
use larder_wire::structured::no_vary_search;
use larder_wire::{Fields, ResponseHead, encode};
use parking_lot::{Mutex, MutexGuard};
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

/// A response head ready for use, with what was decided about it when it arrived.
#[derive(Debug)]
pub struct Kept {
    /// The head without hop-by-hop fields, `Age` and `Content-Length`.
    pub head: ResponseHead,
    /// Freshness and validators; `None` for an answer that is not stored.
    pub terms: Option<Terms>,
    /// Why it is not stored, where that was the question.
    pub not_stored: Option<NotStored>,
    /// Status line and fields as they go to a client of an unconditional request, up to where the
    /// fields of the moment (`Age`, `Content-Length`, `Via`, …) are added.
    pub plain: Box<[u8]>,
    /// The same for the request that caused the fetch, where that one gets fields which are not stored
    /// (`private="…"`, `no-cache="…"`).
    pub first: Option<Box<[u8]>>,
    /// When the response arrived here.
    pub received: Stamp,
}

impl Kept {
    /// Prepares a head; the caller has taken out what must not be forwarded.
    pub fn new(mut head: ResponseHead, terms: Option<Terms>, received: Stamp) -> Kept {
        head.fields.shrink();
        let plain = plain(&head);
        Kept { head, terms, not_stored: None, plain, first: None, received }
    }

    /// The same, with another head for the request that caused the fetch.
    pub fn with_first(self, head: &ResponseHead) -> Kept {
        Kept { first: Some(plain(head)), ..self }
    }

    /// Bytes this head holds in memory, itself included.
    pub fn heap_bytes(&self) -> usize {
        size_of::<Kept>()
            + self.plain.len()
            + self.first.as_ref().map_or(0, |first| first.len())
            + self.head.reason.len()
            + self.head.fields.heap_bytes()
            + self.terms.as_ref().map_or(0, Terms::heap_bytes)
    }
}

fn plain(head: &ResponseHead) -> Box<[u8]> {
    let mut plain = Vec::with_capacity(512);
    encode::status_line(&mut plain, head.status, &head.reason);
    head.fields.write_to(&mut plain);
    plain.into()
}

/// Why a response cannot be had: what the client is told and the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status to answer when nothing was sent yet: 502, 503, 504 or 500.
    pub status: u16,
    /// One word for logs, such as `connect-refused`.
    pub word: &'static str,
    /// One sentence for the person who reads the error page.
    pub detail: Arc<str>,
}

/// What happens to the body as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// All of it stays, for later readers too.
    Keep,
    /// Only what the slowest reader has not taken yet, at most about this many bytes.
    Window(u64),
}

/// How far a response is.
#[derive(Clone, Debug)]
enum Phase {
    /// Asked for; no head yet.
    Waiting,
    /// The head is here, the body arrives.
    Filling,
    /// All is here.
    Complete,
    /// A 304 said that this other entry is the answer.
    Redirected(Arc<Entry>, Said),
    /// It will never be complete.
    Failed(Failure),
}

/// What a validation said of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is the answer still.
    Unchanged,
    /// Nothing, for the origin is in trouble; the stored response may stand in (RFC 5861 section 4).
    StaleIfError,
}

/// One response: head, body and the tasks that wait for more of it.
pub struct Entry {
    /// Changes at most once, before the entry can be found: see [`Cache::rename`].
    key: Mutex<Key>,
    pub(crate) id_hash: u64,
    seat: Seat,
    weight: AtomicU64,
    /// In the index, or on its way there; cleared when it is replaced, invalidated or found unfit.
    pub(crate) listed: AtomicBool,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    retention: Retention,
    /// Followers may join and stay; false as soon as the answer is found to be for one request alone.
    shared: bool,
    kept: Option<Arc<Kept>>,
    length: Option<u64>,
    body: Extents,
    /// Body bytes that came, whether they are still here or not.
    received: u64,
    trailers: Option<Fields>,
    charged: u64,
    readers: Vec<Option<Place>>,
    seated: usize,
    writer: Option<Waker>,
}

/// One reader's place in an entry that is not complete.
#[derive(Default)]
struct Place {
    position: u64,
    waker: Option<Waker>,
}

/// What an entry weighs beyond head and body: itself and its place in index and eviction queue.
/// Measured by the `overhead` test of the memory budget.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 512;

impl Entry {
    pub(crate) fn new(key: Key, id_hash: u64, budget: Arc<Budget>) -> Entry {
        Entry {
            key: Mutex::new(key),
            id_hash,
            seat: Seat::new(),
            weight: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            budget,
            state: Mutex::new(State {
                phase: Phase::Waiting,
                retention: Retention::Keep,
                shared: true,
                kept: None,
                length: None,
                body: Extents::default(),
                received: 0,
                trailers: None,
                charged: 0,
                readers: Vec::new(),
                seated: 0,
                writer: None,
            }),
        }
    }

    /// The name under which it is found.
    pub fn key(&self) -> Key {
        self.key.lock().clone()
    }

    pub(crate) fn set_key(&self, key: Key) {
        *self.key.lock() = key;
    }

    /// The head, when it is here.
    pub fn kept(&self) -> Option<Arc<Kept>> {
        self.state.lock().kept.clone()
    }

    /// Puts a refreshed head in the place of the old one (RFC 9111 section 4.3.4).
    pub fn renew(&self, kept: Kept) {
        let mut state = self.state.lock();
        state.kept = Some(Arc::new(kept));
        self.settle_charge(&mut state);
    }

    /// The length of the body, when it is known.
    pub fn length(&self) -> Option<u64> {
        self.state.lock().length
    }

    /// True once the whole body is here.
    pub fn is_complete(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Complete)
    }

    /// True while it may still become, or already is, a whole and shared response.
    pub(crate) fn is_useful(&self) -> bool {
        let state = self.state.lock();
        state.shared && state.retention == Retention::Keep && !matches!(state.phase, Phase::Failed(_))
    }

    /// Head and length in one look, and a reader: what a hit needs.
    pub(crate) fn open(self: &Arc<Entry>) -> Option<(Arc<Kept>, Option<u64>, Reader)> {
        let mut state = self.state.lock();
        let kept = Arc::clone(state.kept.as_ref()?);
        let length = state.length;
        let seat = (!matches!(state.phase, Phase::Complete)).then(|| state.sit());
        drop(state);
        Some((kept, length, Reader { entry: Arc::clone(self), seat, leads: false }))
    }

    pub(crate) fn follow(self: &Arc<Entry>) -> Reader {
        let seat = Some(self.state.lock().sit());
        Reader { entry: Arc::clone(self), seat, leads: false }
    }

    pub(crate) fn lead(self: &Arc<Entry>) -> Reader {
        let seat = Some(self.state.lock().sit());
        Reader { entry: Arc::clone(self), seat, leads: true }
    }

    /// Counts a use, for eviction; takes no lock.
    pub(crate) fn used(&self) {
        self.seat.hit();
    }

    /// Brings the budget up to what the entry holds now.
    fn settle_charge(&self, state: &mut MutexGuard<'_, State>) {
        let kept = state.kept.as_ref().map_or(0, |kept| kept.heap_bytes() as u64);
        let now = ENTRY_OVERHEAD_BYTES + self.key.lock().heap_bytes() as u64 + kept + state.body.heap_bytes();
        self.budget.adjust(state.charged, now);
        state.charged = now;
        self.weight.store(now, Ordering::Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.budget.adjust(self.state.get_mut().charged, 0);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry({})", self.key.lock())
    }
}

impl Weighed for Entry {
    fn bytes(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn id_hash(&self) -> u64 {
        self.id_hash
    }
}

impl State {
    fn sit(&mut self) -> usize {
        self.seated += 1;
        match self.readers.iter().position(Option::is_none) {
            Some(free) if self.readers.len() > self.seated => {
                self.readers[free] = Some(Place::default());
                free
            }
            _ => {
                self.readers.push(Some(Place::default()));
                self.readers.len() - 1
            }
        }
    }

    fn wake_readers(&mut self) {
        for seat in self.readers.iter_mut().flatten() {
            if let Some(waker) = seat.waker.take() {
                waker.wake();
            }
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }

    fn wait(&mut self, seat: Option<usize>, cx: &Context<'_>) {
        if let Some(seat) = seat.and_then(|at| self.readers[at].as_mut()) {
            match &mut seat.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                empty => *empty = Some(cx.waker().clone()),
            }
        }
    }

    /// The first byte that some reader still wants.
    fn slowest(&self) -> u64 {
        self.readers.iter().flatten().map(|seat| seat.position).min().unwrap_or(u64::MAX)
    }

    /// In a window, lets go of what every reader has taken.
    fn slide(&mut self) -> bool {
        if !matches!(self.retention, Retention::Window(_)) {
            return false;
        }
        let slowest = self.slowest();
        slowest != u64::MAX && self.body.drop_before(slowest) > 0
    }
}

/// What a reader finds when it looks for the head.
#[derive(Debug)]
pub enum Arrival {
    /// The head of the answer.
    Head(Arc<Kept>),
    /// A validation found this stored entry to be the answer.
    Use(Arc<Entry>, Said),
    /// The answer turned out to be for its own request alone: ask for yourself.
    Alone,
    /// There is no answer.
    Failed(Failure),
}

/// A client's view of an entry. Dropping it may end a fetch that nobody else wants.
pub struct Reader {
    entry: Arc<Entry>,
    seat: Option<usize>,
    leads: bool,
}

impl Reader {
    /// Waits for the head.
    pub async fn arrival(&mut self) -> Arrival {
        poll_fn(|cx| self.poll_arrival(cx)).await
    }

    /// Looks for the head; wakes the task when there is news.
    pub fn poll_arrival(&mut self, cx: &Context<'_>) -> Poll<Arrival> {
        let mut state = self.entry.state.lock();
        if !self.leads && !state.shared {
            return Poll::Ready(Arrival::Alone);
        }
        if let Phase::Redirected(entry, said) = &state.phase {
            return Poll::Ready(Arrival::Use(Arc::clone(entry), *said));
        }
        if let Some(kept) = &state.kept {
            return Poll::Ready(Arrival::Head(Arc::clone(kept)));
        }
        if let Phase::Failed(failure) = &state.phase {
            return Poll::Ready(Arrival::Failed(failure.clone()));
        }
        state.wait(self.seat, cx);
        Poll::Pending
    }

    /// The length of the whole body, when it is known by now.
    pub fn length(&self) -> Option<u64> {
        self.entry.state.lock().length
    }

    /// The whole body in `out`, when all of it is here and it is not longer than that; the look that a hit takes.
    pub fn whole(&self, bytes_max: u64, out: &mut Vec<Bytes>) -> Option<u64> {
        let state = self.entry.state.lock();
        let length = state.length.filter(|_| matches!(state.phase, Phase::Complete))?;
        // Complete is not always whole: its window may have slid on between the look-up and this one.
        let whole = length <= bytes_max && state.body.covers(0..length);
        whole.then(|| state.body.slices(0..length, out))
    }

    /// Waits for body bytes; see [`Reader::poll_read`].
    pub async fn read(&mut self, range: Range<u64>, out: &mut Vec<Bytes>) -> Result<u64, Failure> {
        poll_fn(|cx| self.poll_read(cx, range.clone(), out)).await
    }

    /// Appends to `out` what is present from `range.start` on, up to `range.end`, and says how many bytes
    /// that were; 0 at the end of the body. Bytes before `range.start` will not be asked for again.
    pub fn poll_read(
        &mut self,
        cx: &Context<'_>,
        range: Range<u64>,
        out: &mut Vec<Bytes>,
    ) -> Poll<Result<u64, Failure>> {
        let mut state = self.entry.state.lock();
        self.take_up_to(&mut state, range.start);
        let read = state.body.slices(range.clone(), out);
        if read > 0 || range.is_empty() {
            return Poll::Ready(Ok(read));
        }
        match &state.phase {
            Phase::Complete => Poll::Ready(Ok(0)),
            Phase::Failed(failure) => Poll::Ready(Err(failure.clone())),
            _ => {
                state.wait(self.seat, cx);
                Poll::Pending
            }
        }
    }

    /// The body was still on its way when this reader was made.
    pub fn is_filling(&self) -> bool {
        self.seat.is_some()
    }

    /// The trailer fields, once the body has been read to its end.
    pub fn trailers(&self) -> Option<Fields> {
        self.entry.state.lock().trailers.clone()
    }

    /// The entry that this reader reads.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn take_up_to(&self, state: &mut MutexGuard<'_, State>, position: u64) {
        let Some(seat) = self.seat.and_then(|at| state.readers[at].as_mut()) else { return };
        if seat.position == position {
            return;
        }
        seat.position = position;
        if state.slide() {
            self.entry.settle_charge(state);
            state.wake_writer();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(seat) = self.seat else { return };
        let mut state = self.entry.state.lock();
        state.readers[seat] = None;
        state.seated -= 1;
        if state.slide() {
            self.entry.settle_charge(&mut state);
        }
        state.wake_writer();
    }
}

/// Whether a fetch should go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room for the next piece.
    Go,
    /// Nobody wants the rest, and it is not worth having for later.
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
            state.received += state.body.insert(at, piece);
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
            state.phase = Phase::Complete;
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

    fn end_failed(&mut self, failure: Failure) {
        self.done = true;
        self.cache.detach(&self.entry);
        let mut state = self.entry.state.lock();
        state.phase = Phase::Failed(failure);
        state.wake_readers();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.done {
            self.end_failed(Failure { status: 502, word: "abandoned", detail: "the fetch was given up".into() });
        }
    }
}
