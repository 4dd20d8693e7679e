//! The meeting place of the client side and the server side: one response, as far as it is here.
//!
//! A fetch owns the one [`Writer`](crate::cache::Writer) of an entry; every client that gets this response holds a
//! [`Reader`]. Neither knows the other. A hit, a follower of a fetch, a range and an answer that is
//! merely passed on differ only in where the reader came from. Missing parts of a stored response are
//! brought by [`Fill`](crate::cache::Fill)s, each for one hole.
//!
//! An entry keeps its body or lets it pass through a window of fixed size; in a window the slowest reader holds the writer
//! back, so memory never depends on the length of a body. Waiting is done with plain [`std::task`] wakers: this crate knows
//! no runtime.
//!
//! `life` says how far an entry is; `stream` and `hole` are the ways to change it. Writers and fills stand one floor
//! higher, in [`crate::cache`], because they make room there; an entry knows neither index nor eviction.

use crate::budget::Budget;
use crate::evict::{Evictable, EvictionMark};
use crate::extents::Extents;
use crate::head::StoredHead;
use crate::key::Key;
use crate::policy::Terms;
use crate::store::DiskHead;
use activity::Activity;
use disk::OnDisk;
use life::{Audience, Life, Response};
use parking_lot::{RwLock, RwLockWriteGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

mod activity;
mod disk;
mod hit;
mod hole;
mod life;
mod pin;
mod reader;
mod stream;
mod watch;

pub use activity::Contact;
pub(crate) use disk::DiskLocation;
pub(crate) use hit::{Body, Looked, Patience};
pub use hit::{Hit, Tier, Whole};
pub(crate) use hole::HoleProgress;
pub use life::ReuseReason;
pub use pin::PinnedEntry;
pub use reader::{Arrival, Gap, Reader, Stop};
pub(crate) use stream::Limits;
pub use stream::Room;
pub use watch::{Wanted, Watch};

/// Why a response cannot be had: what the client is told and the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status to answer when nothing was sent yet: 502, 503, 504 or 500.
    pub status: u16,
    /// One word for logs, such as `connect-refused`.
    pub word: &'static str,
    /// One sentence for the person who reads the error page.
    pub detail: Arc<str>,
    /// The distance that the fetch got: it decides which stored response may stand in.
    pub kind: FailureKind,
}

/// How far a fetch got that failed, from far to near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// Somebody answered who may not be the origin: nothing that is stored may look as if it came from there now.
    Identity,
    /// The origin's answer was no good, or our own limits kept the request here: what may stand in for an error (RFC 5861
    /// section 4).
    #[default]
    Answer,
    /// The way to the origin broke: what a disconnected cache may send, too (RFC 9111 section 4.2.4).
    Disconnected,
    /// No connection came about at all.
    OutOfReach,
}

/// One response: head, body and the tasks that wait for more of it.
pub struct Entry {
    pub(crate) id_hash: u64,
    mark: EvictionMark,
    /// Asked for again since it is here; eviction uses up the hits in the mark.
    was_used: AtomicBool,
    /// The bytes that the budget is charged with for it.
    weight: AtomicU64,
    /// In the index, or on its way there; cleared when it is replaced, invalidated or found unfit.
    pub(crate) listed: AtomicBool,
    /// Its blocks on disk stay until it is dropped ([`Entry::keep_blocks`]).
    keeps_blocks: AtomicBool,
    /// How many [`PinnedEntry`] there are of it.
    pins: AtomicU32,
    /// The number of the last invalidation rule when its fetch began, or its last validation.
    epoch: AtomicU64,
    /// The number of the last rule that was applied to it.
    judged: AtomicU64,
    budget: Arc<Budget>,
    /// Hits of a whole response share it: the head is written under it.
    state: RwLock<State>,
}

struct State {
    /// Changes at most once, before the entry can be found: a response that says `No-Vary-Search` moves to another key.
    key: Key,
    life: Life,
    length: Option<u64>,
    body: Extents,
    on_disk: OnDisk,
    activity: Option<Box<Activity>>,
}

/// Bytes that an entry weighs beyond head and body: itself and its place in index and eviction queue. `cargo xtask bench curves`
/// measures what an object takes in all.
const ENTRY_OVERHEAD_BYTES: u64 = 384;

/// One byte in so many is charged for the room between entries that came and went, which the allocator has and can't
/// use: 14 % of what they take once all memory was used several times over (docs/decisions/012).
const UNUSED_PART: u64 = 8;

/// A body from disk that is less than so many times what was read with it is copied, to have only its own bytes in memory.
const OWN_PARTS_MIN: usize = 8;

impl Entry {
    pub(crate) fn new(key: Key, id_hash: u64, epoch: u64, budget: Arc<Budget>) -> Entry {
        Entry {
            id_hash,
            mark: EvictionMark::new(),
            was_used: AtomicBool::new(false),
            weight: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            keeps_blocks: AtomicBool::new(false),
            pins: AtomicU32::new(0),
            epoch: AtomicU64::new(epoch),
            judged: AtomicU64::new(epoch),
            budget,
            state: RwLock::new(State {
                key,
                life: Life::Waiting,
                length: None,
                body: Extents::default(),
                on_disk: OnDisk::No,
                activity: None,
            }),
        }
    }

    /// A stored response as it lies on disk; `None` when its head can't be read.
    pub(crate) fn from_disk(
        head: DiskHead,
        location: Arc<DiskLocation>,
        id_hash: u64,
        memory_object_bytes_max: u64,
        budget: Arc<Budget>,
    ) -> Option<Entry> {
        let mut stored = StoredHead::decode_tagged(&head.meta, head.tags.clone()).ok()?;
        stored.head.fields.shrink();
        let entry = Entry::new(location.key.clone(), id_hash, head.epoch, budget);
        {
            let mut state = entry.state.write();
            state.life = Life::Settled(Response { head: Arc::new(stored), audience: Audience::Everybody });
            state.length = head.length;
            if head.length.is_none_or(|length| length > memory_object_bytes_max) {
                state.on_disk.go_alone();
            }
            state.on_disk.set_location(location);
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
            entry.settle_charge(&state);
        }
        entry.listed.store(true, Ordering::Relaxed);
        Some(entry)
    }

    /// The name under which it is found.
    pub fn key(&self) -> Key {
        self.state.read().key.clone()
    }

    pub(crate) fn set_key(&self, key: Key) {
        self.state.write().key = key;
    }

    /// The head, when it is here.
    pub fn stored_head(&self) -> Option<Arc<StoredHead>> {
        self.state.read().life.head().cloned()
    }

    /// Puts a refreshed head in the place of the old one (RFC 9111 section 4.3.4), after a validation at this epoch
    /// ([`Writer::epoch`](crate::cache::Writer::epoch)).
    pub fn renew(&self, stored: StoredHead, epoch: u64) {
        let epoch = self.epoch.fetch_max(epoch, Ordering::Relaxed).max(epoch);
        let mut state = self.replace_head_in(stored);
        // Rules from before the validation count for it no more; later ones were applied to the old head only.
        self.set_judged(epoch);
        self.write_head(&mut state);
    }

    /// [`Entry::renew`] in memory alone.
    pub(crate) fn replace_head(&self, stored: StoredHead) {
        drop(self.replace_head_in(stored));
    }

    fn replace_head_in(&self, stored: StoredHead) -> RwLockWriteGuard<'_, State> {
        let mut state = self.state.write();
        state.life.replace_head(stored);
        self.settle_charge(&state);
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

    /// Parts of it can be asked for, and put to what is here.
    pub fn is_mendable(&self) -> bool {
        self.state.read().is_mendable()
    }

    /// How many clients wait for some of it.
    pub fn readers(&self) -> usize {
        self.state.read().reader_count()
    }

    /// How many readers came since its fetch began, those included that have left.
    pub fn readers_ever(&self) -> usize {
        self.state.read().readers_ever()
    }

    /// The length of the body, when it is known.
    pub fn length(&self) -> Option<u64> {
        self.state.read().length
    }

    /// How much of the body is in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        self.state.read().body.bytes()
    }

    /// True when these bytes of the body are here, in memory or on disk.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.state.read().first_missing(range).is_none()
    }

    /// True when these bytes are all that is missing of a body whose length is known.
    pub fn lacks_only(&self, range: &Range<u64>) -> bool {
        let state = self.state.read();
        // Of a body that comes in order the rest is missing, so that is looked at first.
        let is_here = |range: Range<u64>| state.first_missing(&range).is_none();
        state.length.is_some_and(|length| is_here(range.end..length) && is_here(0..range.start))
    }

    /// True once the whole body is in memory.
    pub fn is_whole(&self) -> bool {
        self.state.read().is_whole()
    }

    /// True where the body passes through a window: bytes that every reader has taken are not kept.
    pub fn passes(&self) -> bool {
        self.state.read().life.passes()
    }

    /// True for a response whose stream from the start is over, whole or not: a validation may name it.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.read().life.is_settled()
    }

    /// True while it may still become, or already is, a whole and shared response.
    pub(crate) fn is_useful(&self) -> bool {
        self.state.read().life.is_useful()
    }

    /// A reader for a request that follows the fetch of another.
    pub(crate) fn follow(self: &Arc<Entry>) -> Reader {
        Reader::waiting(self, Leads::No)
    }

    /// The reader of the request that caused the fetch.
    pub(crate) fn lead(self: &Arc<Entry>) -> Reader {
        Reader::waiting(self, Leads::Yes)
    }

    /// Whether anybody asked for it again since it is in memory.
    pub(crate) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// Counts a use, for eviction; takes no lock.
    pub(crate) fn used(&self) {
        self.mark.hit();
        // Written once, so that its cache line stays shared between cores.
        if !self.was_used() {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// Brings the budget up to what the entry holds now.
    fn settle_charge(&self, state: &State) {
        let head = state.life.head().map_or(0, |stored| stored.heap_bytes() as u64);
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
        if *self.keeps_blocks.get_mut()
            && let Some(location) = self.state.get_mut().on_disk.location()
        {
            location.store.release_blocks(location.id);
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.state.try_read() {
            Some(state) => write!(f, "Entry({})", state.key),
            None => f.write_str("Entry"),
        }
    }
}

impl Evictable for Entry {
    fn bytes(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    fn mark(&self) -> &EvictionMark {
        &self.mark
    }

    fn id_hash(&self) -> u64 {
        self.id_hash
    }
}

impl State {
    /// Settled, and no byte is missing in memory.
    fn is_whole(&self) -> bool {
        self.life.is_settled() && self.length.is_some_and(|length| self.body.covers(0..length))
    }

    /// Different answers for this URL can be told apart, so that parts of one can be put together (RFC 9111 section 3.4).
    fn is_mendable(&self) -> bool {
        let is_strong = |stored: &StoredHead| stored.terms.as_ref().is_some_and(Terms::has_strong_validator);
        self.length.is_some() && self.life.stored().is_some_and(|stored| stored.head.status == 200 && is_strong(stored))
    }

    /// In a window, lets go of what every reader has taken.
    fn slide(&mut self) -> bool {
        self.life.passes() && self.shed()
    }

    /// Lets go of what every reader has taken.
    fn shed(&mut self) -> bool {
        let slowest = self.slowest();
        slowest != u64::MAX && self.body.drop_before(slowest) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are millions of them; an allocator gives 192 bytes for one with its counts.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 176, "{}", size_of::<Entry>());
        let taken = size_of::<Entry>() + 16 + size_of::<Activity>();
        assert!(ENTRY_OVERHEAD_BYTES as usize > taken, "what is charged for an entry covers it: {taken}");
    }
}
