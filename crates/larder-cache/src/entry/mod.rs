//! The meeting place of the client side and the server side: one response, as far as it is here.
//!
//! A fetch owns the one [`Writer`] of an entry; every client that gets this response holds a
//! [`Reader`]. Neither knows the other. A hit, a follower of a fetch, a range and an answer that is
//! merely passed on differ only in where the reader came from. What is missing of a stored response is
//! brought by [`Fill`]s, each for one hole.
//!
//! An entry keeps its body or lets it pass through a window of fixed size; in a window the slowest reader holds the writer back, so memory never
//! depends on the length of a body. Waiting is done with plain [`std::task`] wakers: this crate knows
//! no runtime.

use crate::cache::{Body, Budget, Hit, Looked, Patience, Whole};
use crate::evict::{Seat, Weighed};
use crate::extents::Extents;
use crate::head::StoredHead;
use crate::key::Key;
use crate::policy::Terms;
use crate::store::{DiskHead, HeadToStore, INLINE_BYTES_MAX, Put, Stay, Store};
use busy::Busy;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

mod busy;
mod fill;
mod reader;
mod spool;
mod watch;
mod writer;

pub use fill::Fill;
pub use reader::{Arrival, Gap, Reader, Stop};
pub(crate) use spool::OnDisk;
pub use watch::{Wanted, Watch};
pub use writer::{Room, Writer};

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
enum Retention {
    /// All of it stays, for later readers too.
    Keep,
    /// Only what the slowest reader has not taken yet, at most about as much as the settings say.
    Window,
}

/// How far a response is.
#[derive(Clone, Debug)]
enum Phase {
    /// Asked for; no head yet.
    Waiting,
    /// The head is here, the body arrives from its start on.
    Filling,
    /// The stream from the start is over: what is here is here, and holes are filled on demand.
    Settled,
    /// A 304 said that this other entry is the answer.
    Redirected(Box<Redirection>),
    /// It will never be complete.
    Failed(Box<Failure>),
}

/// Which stored response is the answer.
#[derive(Clone, Debug)]
struct Redirection {
    entry: Arc<Entry>,
    said: Said,
    /// The head of the answer to the one whose request was validated; without it, that of the entry.
    own: Option<Arc<StoredHead>>,
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
    pub(crate) id_hash: u64,
    seat: Seat,
    /// Asked for again since it is here; the seat forgets its hits as it uses them up.
    was_used: AtomicBool,
    /// What the budget is charged with for it.
    weight: AtomicU64,
    /// In the index, or on its way there; cleared when it is replaced, invalidated or found unfit.
    pub(crate) listed: AtomicBool,
    /// The number of the last invalidation rule when its fetch began, or its last validation.
    epoch: AtomicU64,
    /// The number of the last rule that was applied to it.
    judged: AtomicU64,
    budget: Arc<Budget>,
    state: Mutex<State>,
}

struct State {
    /// Changes at most once, before the entry can be found: see [`crate::cache::Cache::rename`].
    key: Key,
    phase: Phase,
    retention: Retention,
    /// Followers may join and stay; false as soon as the answer is found to be for one request alone.
    shared: bool,
    /// Some of what went to disk was not taken.
    refused: bool,
    /// Its body stays in memory only until it is on disk.
    large: bool,
    head: Option<Arc<StoredHead>>,
    length: Option<u64>,
    body: Extents,
    disk: Option<Arc<OnDisk>>,
    busy: Option<Box<Busy>>,
}

/// What an entry weighs beyond head and body: itself and its place in index and eviction queue. What an object takes in
/// all is measured by `cargo xtask bench curves`.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 384;

/// One byte in so many is charged for the room between entries that came and went, which the allocator has and can't
/// use: 14 % of what they take once all memory was used several times over (docs/decisions/012).
const UNUSED_PART: u64 = 8;

/// A body from disk that is less than so many times what was read with it is copied, to have only its own bytes in memory.
const OWN_PARTS_MIN: usize = 8;

impl Entry {
    pub(crate) fn new(key: Key, id_hash: u64, epoch: u64, budget: Arc<Budget>) -> Entry {
        Entry {
            id_hash,
            seat: Seat::new(),
            was_used: AtomicBool::new(false),
            weight: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            epoch: AtomicU64::new(epoch),
            judged: AtomicU64::new(epoch),
            budget,
            state: Mutex::new(State {
                key,
                phase: Phase::Waiting,
                retention: Retention::Keep,
                shared: true,
                refused: false,
                large: false,
                head: None,
                length: None,
                body: Extents::default(),
                disk: None,
                busy: None,
            }),
        }
    }

    /// A stored response as it lies on disk; `None` when its head can't be read.
    pub(crate) fn from_disk(
        head: DiskHead,
        disk: OnDisk,
        id_hash: u64,
        large_bytes_min: u64,
        budget: Arc<Budget>,
    ) -> Option<Entry> {
        let mut stored = StoredHead::decode_tagged(&head.meta, head.tags.clone()).ok()?;
        stored.head.fields.shrink();
        let entry = Entry::new(disk.key.clone(), id_hash, head.epoch, budget);
        {
            let mut state = entry.state.lock();
            state.phase = Phase::Settled;
            state.head = Some(Arc::new(stored));
            state.length = head.length;
            state.large = head.length.is_none_or(|length| length > large_bytes_min);
            if let Some(body) = head.body {
                state.length = Some(body.len() as u64);
                // It is a part of what was read, which had these before it.
                let before_bytes = head.key.len() + head.tags.len() * size_of::<u64>() + head.meta.len();
                let record_bytes = before_bytes + body.len();
                let is_small = body.len() < OWN_PARTS_MIN * before_bytes;
                state.body.insert_part_of(0, body, record_bytes);
                if is_small {
                    state.body.compact();
                }
            }
            state.disk = Some(Arc::new(disk));
            entry.settle_charge(&mut state);
        }
        entry.listed.store(true, Ordering::Relaxed);
        Some(entry)
    }

    /// The name under which it is found.
    pub fn key(&self) -> Key {
        self.state.lock().key.clone()
    }

    pub(crate) fn set_key(&self, key: Key) {
        self.state.lock().key = key;
    }

    /// The head, when it is here.
    pub fn stored_head(&self) -> Option<Arc<StoredHead>> {
        self.state.lock().head.clone()
    }

    /// Puts a refreshed head in the place of the old one (RFC 9111 section 4.3.4), after a validation at this epoch
    /// ([`Writer::epoch`]).
    pub fn renew(&self, stored: StoredHead, epoch: u64) {
        let epoch = self.epoch.fetch_max(epoch, Ordering::Relaxed).max(epoch);
        let mut state = self.replace_head_in(stored);
        // What this head is younger than need not be held against it; what came later was, but against the old one.
        self.set_judged(epoch);
        if state.disk.is_some() {
            self.write_head(&mut state);
        }
    }

    /// The same in memory alone.
    pub(crate) fn replace_head(&self, stored: StoredHead) {
        drop(self.replace_head_in(stored));
    }

    fn replace_head_in(&self, stored: StoredHead) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.head = Some(Arc::new(stored));
        self.settle_charge(&mut state);
        state
    }

    /// The number of the last invalidation rule when its fetch began, or its last validation.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// All rules up to this one were applied to it.
    pub(crate) fn is_judged(&self, epoch: u64) -> bool {
        self.judged.load(Ordering::Relaxed) >= epoch
    }

    pub(crate) fn set_judged(&self, epoch: u64) {
        self.judged.store(epoch, Ordering::Relaxed);
    }

    /// Writes the head to where the entry lies on disk, with the body when that is whole and short; says at once if it is
    /// refused.
    fn write_head(&self, state: &mut State) -> Put {
        let (Some(disk), Some(stored)) = (state.disk.clone(), &state.head) else { return Put::Stored };
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
            key: Bytes::copy_from_slice(disk.key.text()),
            variant: stored.variant(),
            id: disk.id,
            epoch: self.epoch(),
            length: state.length,
            tags: stored.tags().to_vec(),
            meta: stored.encode(),
            body,
        };
        let mut putting = disk.store.put_head(head);
        let mut cx = Context::from_waker(Waker::noop());
        let put = match Pin::new(&mut putting).poll(&mut cx) {
            Poll::Ready(put) => put,
            Poll::Pending => {
                state.add_puts([putting]);
                Put::Stored
            }
        };
        state.refused |= put != Put::Stored;
        // Whoever made it void meanwhile may not have seen that head.
        if !self.listed.load(Ordering::Relaxed) {
            drop(disk.store.forget(disk.key.text(), Some(disk.id)));
        }
        put
    }

    /// The same for a head that takes the place of what lies there. When it can't, that goes all the same: it is older, and
    /// must not be the answer when memory has let go of this one.
    fn write_first_head(&self, state: &mut State) {
        let put = self.write_head(state);
        if let (Some(disk), Put::Refused(_)) = (&state.disk, put)
            && disk.store.may_have(disk.key.text())
        {
            drop(disk.store.forget(disk.key.text(), None));
        }
    }

    /// Where it lies on disk.
    pub(crate) fn on_disk(&self) -> Option<OnDisk> {
        self.state.lock().disk.as_deref().cloned()
    }

    /// Gives the entry a place on disk and writes what is here of it, as far as that is a whole short object.
    pub(crate) fn keep_on_disk(&self, store: &Arc<Store>) {
        let mut state = self.state.lock();
        let short = state.length.is_some_and(|length| length <= INLINE_BYTES_MAX as u64);
        if state.disk.is_none() && state.is_whole() && short {
            let disk = OnDisk { store: Arc::clone(store), id: store.new_id(), key: state.key.clone() };
            state.disk = Some(Arc::new(disk));
            self.write_first_head(&mut state);
        }
    }

    /// It is on its way to the disk and not to be found there yet.
    pub(crate) fn is_being_written(&self) -> bool {
        let mut state = self.state.lock();
        state.look_at_puts();
        // What the disk did not take is in memory alone.
        if std::mem::take(&mut state.refused) && !state.large {
            state.disk = None;
        }
        state.puts() > 0
    }

    /// What is to become of bytes that are read from disk now.
    fn stay(&self) -> Stay {
        if self.state.lock().large || !self.budget.takes_up() { Stay::Brief } else { Stay::Long }
    }

    /// Puts bytes that were read from disk into memory, unless the entry is too large to stay there, or clients hold so
    /// much of memory that nothing else can leave it.
    fn promote(&self, pieces: &[(u64, Bytes)]) {
        let bytes = pieces.iter().map(|(_, piece)| piece.len() as u64).sum();
        let mut state = self.state.lock();
        if state.large || !self.budget.lends(bytes) {
            return;
        }
        for (at, piece) in pieces {
            state.body.insert(*at, piece.clone());
        }
        self.settle_charge(&mut state);
    }

    /// Parts of it can be asked for, and put to what is here.
    pub fn is_mendable(&self) -> bool {
        self.state.lock().is_mendable()
    }

    /// How many clients wait for some of it.
    pub fn readers(&self) -> usize {
        self.state.lock().seated()
    }

    /// The length of the body, when it is known.
    pub fn length(&self) -> Option<u64> {
        self.state.lock().length
    }

    /// How much of the body is in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        self.state.lock().body.bytes()
    }

    /// True when these bytes of the body are here, in memory or on disk.
    pub(crate) fn has(&self, range: &Range<u64>) -> bool {
        self.state.lock().first_missing(range).is_none()
    }

    /// True once the whole body is here.
    pub fn is_whole(&self) -> bool {
        self.state.lock().is_whole()
    }

    /// True for a stored response whose stream from the start is over, whole or not: what a validation may name.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Settled)
    }

    /// True while it may still become, or already is, a whole and shared response.
    pub(crate) fn is_useful(&self) -> bool {
        let state = self.state.lock();
        state.shared && state.retention == Retention::Keep && !matches!(state.phase, Phase::Failed(_))
    }

    /// Head and length in one look, and a reader: what a hit needs.
    pub(crate) fn open(self: &Arc<Entry>) -> Option<Hit> {
        let mut state = self.state.lock();
        let stored = Arc::clone(state.head.as_ref()?);
        let (length, filling) = (state.length, matches!(state.phase, Phase::Filling));
        state.look_at_puts();
        let seat = (!state.is_whole()).then(|| state.sit());
        drop(state);
        Some(Hit { filling, reader: Reader::new(Arc::clone(self), seat, Leads::No), stored, length })
    }

    /// Has a stored response answered with whose terms are as wanted and whose body is here and not longer than that.
    pub(crate) fn whole<T>(
        &self,
        wanted: impl Fn(&Terms) -> bool,
        bytes_max: u64,
        patience: Patience,
        answer: &mut impl FnMut(&Whole<'_>) -> T,
    ) -> Looked<T> {
        let state = match patience {
            Patience::Waits => Some(self.state.lock()),
            Patience::None => self.state.try_lock(),
        };
        let Some(mut state) = state else { return Looked::Busy };
        state.look_at_puts();
        let whole = state.length.filter(|&length| length <= bytes_max && state.is_whole()).and_then(|length| {
            let stored = state.head.as_ref().filter(|stored| stored.terms.as_ref().is_some_and(wanted))?;
            Some(Whole { stored, length, body: Body::Memory(&state.body) })
        });
        whole.map_or(Looked::Nothing, |whole| Looked::Answered(answer(&whole)))
    }

    /// The next hole, when the rest is worth having though nobody has asked for it: at least half is here, and not
    /// more than `bytes_max` are missing.
    pub fn worthwhile_hole(&self, bytes_max: u64) -> Option<Range<u64>> {
        let state = self.state.lock();
        let length = state.length.filter(|_| state.is_mendable() && matches!(state.phase, Phase::Settled))?;
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

    /// Takes on the filling of a hole; `None` when somebody did meanwhile, or what is here is not of a kind that can
    /// be put together from parts.
    pub fn begin_fill(self: &Arc<Entry>, hole: &Range<u64>) -> Option<Fill> {
        Fill::begin(self, hole)
    }

    pub(crate) fn follow(self: &Arc<Entry>) -> Reader {
        let seat = Some(self.state.lock().sit());
        Reader::new(Arc::clone(self), seat, Leads::No)
    }

    pub(crate) fn lead(self: &Arc<Entry>) -> Reader {
        let seat = Some(self.state.lock().sit());
        Reader::new(Arc::clone(self), seat, Leads::Yes)
    }

    /// Whether anybody asked for it again since it is in memory.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// Counts a use, for eviction; takes no lock.
    pub(crate) fn used(&self) {
        self.seat.hit();
        // Written once, so that its cache line stays shared between cores.
        if !self.was_used() {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// Brings the budget up to what the entry holds now.
    fn settle_charge(&self, state: &mut MutexGuard<'_, State>) {
        let head = state.head.as_ref().map_or(0, |stored| stored.heap_bytes() as u64);
        let taken = ENTRY_OVERHEAD_BYTES + state.key.heap_bytes() as u64 + head + state.body.heap_bytes();
        let now = taken + taken / UNUSED_PART;
        self.budget.adjust(self.weight.swap(now, Ordering::Relaxed), now);
    }
}

/// Whether a reader's own request began the fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leads {
    Yes,
    No,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.budget.adjust(*self.weight.get_mut(), 0);
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.state.try_lock() {
            Some(state) => write!(f, "Entry({})", state.key),
            None => f.write_str("Entry"),
        }
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
    /// Settled, and no byte is missing.
    fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Settled) && self.length.is_some_and(|length| self.body.covers(0..length))
    }

    /// Different answers for this URL can be told apart, so that parts of one can be put together (RFC 9111 section 3.4).
    fn is_mendable(&self) -> bool {
        let strong = |stored: &Arc<StoredHead>| stored.terms.as_ref().is_some_and(Terms::has_strong_validator);
        self.shared
            && self.retention == Retention::Keep
            && self.length.is_some()
            && self.head.as_ref().is_some_and(|stored| stored.head.status == 200 && strong(stored))
    }

    /// In a window, lets go of what every reader has taken.
    fn slide(&mut self) -> bool {
        if self.retention != Retention::Window {
            return false;
        }
        self.shed()
    }

    /// Lets go of what every reader has taken.
    fn shed(&mut self) -> bool {
        let slowest = self.slowest();
        slowest != u64::MAX && self.body.drop_before(slowest) > 0
    }

    /// The same of what is on disk.
    fn shed_written(&mut self) {
        let slowest = self.slowest();
        let Some(disk) = self.disk.clone().filter(|_| slowest != u64::MAX) else { return };
        let mut at = 0;
        while at < slowest {
            let end = slowest.min(at + self.body.present_from(at));
            if at == end {
                at = self.body.holes(at..slowest).next().map_or(slowest, |hole| hole.end);
                continue;
            }
            match disk.here_from(at).min(end - at) {
                0 => at = disk.next_after(at, end),
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
    use crate::cache::Cache;
    use crate::policy;
    use crate::store::{Admission, Settings};
    use larder_wire::ResponseHead;
    use larder_wire::date::Stamp;

    /// There are millions of them; an allocator gives 192 bytes for one with its counts.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 176, "{}", size_of::<Entry>());
        let taken = size_of::<Entry>() + 16 + size_of::<Busy>();
        assert!(ENTRY_OVERHEAD_BYTES as usize > taken, "what is charged for an entry covers it: {taken}");
    }

    fn store() -> (tempfile::TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            disk_bytes: 64_000_000,
            free_bytes_min: 0,
            index_bytes_max: 1 << 20,
            write_block_bytes: 256 << 10,
            queue_bytes_max: 4 << 20,
            sync_seconds: 1,
            readers: 1,
            admission: Admission::All,
        };
        let store = Store::open(&[folder.path().to_path_buf()], &settings).unwrap();
        (folder, store)
    }

    /// What an entry needs while it is filled and written is larger than the entry itself.
    #[test]
    fn an_entry_that_nobody_asks_for_holds_nothing_more_once_it_is_on_disk() {
        let (_folder, store) = store();
        let cache = Cache::over(crate::cache::Settings::default(), Some(Arc::clone(&store)));
        let (reader, mut writer) = cache.beside(b"http://a.example/x");
        let entry = Arc::clone(reader.entry());
        writer.store(StoredHead::new(ResponseHead::new(200), None, Stamp(0)), Some(1));
        writer.push(vec![1].into());
        writer.finish(None);
        drop(reader);
        store.sync().wait();
        assert!(entry.on_disk().is_some());
        cache.account_for_disk();
        assert!(entry.state.lock().busy.is_none());
    }

    /// An entry of a part is left when its body and its head are on disk.
    #[test]
    fn a_part_that_nobody_asks_for_holds_nothing_more_once_it_is_on_disk() {
        let (_folder, store) = store();
        let cache = Cache::over(crate::cache::Settings::default(), Some(Arc::clone(&store)));
        let (reader, writer) = cache.beside(b"http://a.example/x");
        let entry = Arc::clone(reader.entry());
        let mut head = ResponseHead::new(200);
        head.fields.push("ETag", "\"v1\"");
        head.fields.push("Cache-Control", "max-age=60");
        let request = larder_wire::parse::request(b"GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n", &Default::default());
        let Ok(larder_wire::parse::Parsed::Complete { head: request, .. }) = request else { panic!("{request:?}") };
        let times = policy::Times { requested: Stamp(9), received: Stamp(9) };
        let storable = policy::storable(&request, &head, times, &policy::Settings::default());
        let policy::Storable::Yes(terms) = storable else { panic!("{storable:?}") };
        let fill = writer.store_part(StoredHead::new(head, Some(terms), Stamp(9)), &(3..4), 10);
        let mut fill = fill.expect("a strong tag permits a part");
        fill.push(&cache, vec![1].into());
        drop(fill);
        cache.look_later(&entry);
        drop(reader);
        store.sync().wait();
        cache.account_for_disk();
        assert!(entry.on_disk().is_some());
        assert!(entry.state.lock().busy.is_none());
    }

    #[test]
    fn what_is_written_is_not_remembered_for_ever() {
        let (_folder, store) = store();
        let key = Key::from_text(b"http://a.example/x".to_vec());
        let entry = Entry::new(key.clone(), 0, 0, Arc::new(Budget::of(1 << 20)));
        entry.listed.store(true, Ordering::Relaxed);
        let disk = OnDisk { store: Arc::clone(&store), id: store.new_id(), key };
        entry.state.lock().disk = Some(Arc::new(disk));
        for _ in 0..100 {
            entry.renew(StoredHead::new(ResponseHead::new(200), None, Stamp(0)), 0);
            store.sync().wait();
        }
        assert!(entry.state.lock().puts() <= 1, "one that is validated often would grow for ever");
    }
}
