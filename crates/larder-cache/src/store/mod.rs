//! The disk tier: keys, ids and bytes in segments of a log, found by a small index in memory.
//!
//! It knows nothing of HTTP, of the memory tier, of sockets or of a runtime: threads of its own write and read,
//! and futures ([`Fetching`], [`Putting`]) tell their outcome to whoever awaits them. Nothing leaves the store
//! before its checksum was compared; trouble of a disk is a miss and a counter, never an error.
//!
//! [`medium`] is what it stands on.

pub mod medium;
mod purge_frames;
pub mod purges;
pub mod rules;
#[doc(hidden)]
pub mod sim;
pub mod sketch;

mod fetching;
mod folder;
mod kept;
#[doc(hidden)]
pub mod locations;
#[doc(hidden)]
pub mod log;
mod merge;
mod queue;
mod readers;
#[doc(hidden)]
pub mod record;
#[doc(hidden)]
pub mod recovery;
mod recycle;
mod removal;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod segment_reader;
#[doc(hidden)]
pub mod segment_writer;
mod spare;
mod steps;
#[doc(hidden)]
pub mod superblock;

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use folder::Folder;
pub use log::Notice;
use medium::{Files, Medium};
use queue::Task;
use readers::Wanted;
use record::Kind;
use removal::RemovalPart;
use rules::{Force, Rule, Scope, Verdict};
use segment_reader::{Hiding, Patience, ReadOutcome, SegmentReader};
use segment_writer::LogSettings;
use sketch::Sketch;
use spare::{Room, SPARE_BYTES, Spares};

pub use fetching::{Fetching, Promise, Putting};
pub use removal::NotDurable;
pub use steps::Steps;

/// A body of at most this many bytes that is whole lies in the record of its head.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;
/// Bodies are cut at multiples of this; an extent record never reaches over one.
pub const BLOCK_BYTES: u64 = 64 * 1024;

/// The limits of a store. All of them are per folder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The sum of the store's files in one folder.
    pub disk_bytes: u64,
    /// Bytes that stay free for others on the file system: the store's files stop growing there.
    pub free_bytes_min: u64,
    /// The index in memory; beyond it the oldest segments are recycled.
    pub index_bytes_max: u64,
    /// How much is gathered for one write.
    pub write_block_bytes: usize,
    /// Bytes that may wait for being written; puts beyond it are refused.
    pub queue_bytes_max: u64,
    /// A power cut loses at most the writes of so many seconds.
    pub sync_seconds: u64,
    /// Threads for reads that must wait for a device.
    pub readers: usize,
    /// Which objects are worth a write.
    pub admission: Admission,
}

/// Which objects are worth a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Each.
    All,
    /// Those asked for a second time within what the frequency sketch remembers.
    SeenTwice,
    /// Each while there is free room, then those seen twice.
    Auto,
}

/// Why a store did not open.
#[derive(Debug)]
pub enum OpenFault {
    /// Another process has the folder.
    Busy(PathBuf),
    /// A newer version of this program wrote the folder.
    FutureVersion {
        /// The folder.
        folder: PathBuf,
        /// The version of its format.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// No folder was named, or the budget is too small for a store.
    Settings(&'static str),
    /// The folder cannot be read or written.
    Io(PathBuf, io::Error),
}

impl fmt::Display for OpenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenFault::Busy(folder) => {
                write!(f, "another larder uses {}: stop it, or choose a folder with --store", folder.display())
            }
            OpenFault::FutureVersion { folder, found, known } => write!(
                f,
                "the store in {} has format {found} and this larder knows {known}: use the newer larder, or choose a folder with --store (nothing was changed)",
                folder.display()
            ),
            OpenFault::Settings(what) => f.write_str(what),
            OpenFault::Io(folder, _) => {
                write!(
                    f,
                    "cannot use {}: check that it is a folder and that its owner may write there",
                    folder.display()
                )
            }
        }
    }
}

impl std::error::Error for OpenFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenFault::Io(_, error) => Some(error),
            _ => None,
        }
    }
}

/// One stored representation. An id is never given twice in the life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

/// A head to be written, perhaps with its body.
#[derive(Clone, Debug)]
pub struct HeadToStore {
    /// The text of the key.
    pub key: Bytes,
    /// Hash of the names and values of `Vary`; 0 when there are none.
    pub variant: u64,
    /// The representation.
    pub id: ObjectId,
    /// The number of the last invalidation rule when its fetch began.
    pub epoch: u64,
    /// The length of the whole body, where it is known.
    pub length: Option<u64>,
    /// Hashes of its tags.
    pub tags: Vec<u64>,
    /// Bytes that mean something to the caller alone.
    pub meta: Bytes,
    /// The whole body, if it has at most [`INLINE_BYTES_MAX`] bytes.
    pub body: Option<Vec<Bytes>>,
}

/// A head that was read and verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskHead {
    /// The text of the key.
    pub key: Bytes,
    /// Hash of the names and values of `Vary`; 0 when there are none.
    pub variant: u64,
    /// The representation.
    pub id: ObjectId,
    /// The number of the last invalidation rule when its fetch began.
    pub epoch: u64,
    /// The length of the whole body, where it is known.
    pub length: Option<u64>,
    /// Hashes of its tags.
    pub tags: Vec<u64>,
    /// Bytes that mean something to the caller alone.
    pub meta: Bytes,
    /// The whole body, where it was stored with the head.
    pub body: Option<Bytes>,
    /// The verdict of the invalidation rules: valid, or stale.
    pub verdict: Verdict,
}

/// The outcome of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is written and found from now on; on disk after the next sync.
    Stored,
    /// It is not.
    Refused(Refusal),
}

/// Why a put was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too much waits for being written.
    QueueFull,
    /// The record would be larger than a segment takes.
    TooLarge,
    /// The disk is full, failing or out of service.
    Bypass,
    /// It was fetched before a rule that has been carried out since.
    Outdated,
    /// The store is closed.
    Closed,
}

impl Refusal {
    /// The word for logs and pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::QueueFull => "queue full",
            Refusal::TooLarge => "too large",
            Refusal::Bypass => "bypass",
            Refusal::Outdated => "outdated",
            Refusal::Closed => "closed",
        }
    }
}

/// Counters since the start, and gauges of now; sums over all folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Heads in the index.
    pub heads: u64,
    /// Extent records in the index.
    pub extents: u64,
    /// Bytes of the records that the index knows.
    pub live_bytes: u64,
    /// Bytes of the data files.
    pub allocated_bytes: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Segments that exist.
    pub segments: u64,
    /// Segments that can be written anew.
    pub segments_free: u64,
    /// Segments recycled.
    pub segments_recycled: u64,
    /// Heads written.
    pub puts_head: u64,
    /// Extent records written.
    pub puts_extent: u64,
    /// Puts refused because too much waited.
    pub refused_queue: u64,
    /// Puts refused because the record was too large.
    pub refused_large: u64,
    /// Puts refused because the disk is full, failing or out of service.
    pub refused_bypass: u64,
    /// Bytes written, re-written ones and summaries included.
    pub written_bytes: u64,
    /// Bytes written again because they were in use when their segment was recycled.
    pub rewritten_bytes: u64,
    /// Bytes waiting for being written.
    pub queue_bytes: u64,
    /// Bodies that passed by a disk that was behind.
    pub passed_by: u64,
    /// Folders whose disk is behind.
    pub folders_behind: u64,
    /// Reads answered from the page cache without waiting.
    pub reads_cached: u64,
    /// Reads that went through the reader threads.
    pub reads_waited: u64,
    /// Records that failed their checks and were dropped.
    pub bad_records: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// How often a reader thread met a broken invariant and went on.
    pub reader_restarts: u64,
    /// How often a writer thread met a broken invariant and read its folder anew.
    pub writer_restarts: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Bytes of damaged stores that were set aside; they count in the budget.
    pub aside_bytes: u64,
    /// Folders in service.
    pub folders_healthy: u64,
    /// Folders that are out of service.
    pub folders_failed: u64,
    /// Whether the index is still being read from disk.
    pub recovering: bool,
}

/// Folders of one store, open and locked.
pub struct Store {
    settings: Settings,
    folders: Vec<Folder>,
    notices: Vec<(PathBuf, Notice)>,
    next_id: AtomicU64,
    /// The number of the next rule; held while one is put in force, so that they are so in order.
    next_rule: Arc<Mutex<u64>>,
    sketch: Sketch,
    spares: Arc<Spares>,
    reads_cached: AtomicU64,
    opened: Instant,
    watched_at: AtomicU64,
}

/// The use that is meant for bytes that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// They stay in memory: they have an allocation of their own length.
    Long,
    /// They are sent and let go. A caller that holds them longer keeps a buffer from being used again.
    Brief,
}

/// So many buffers are lent to bytes that pass: as many bytes as may wait for being written, and at least what keeps one
/// client going while others are slow. Up to 16 of them are kept when nobody has them, three quarters of those of a small store.
const SPARES_MIN: u64 = 16;
const SPARES_MAX: u64 = 64;

/// From so many records on their mean length is taken for that of those to come.
const RECORDS_TELLING_MIN: u64 = 1_000;

/// Bytes that the index takes per record, between 19 when its tables are full and 39 when they have just grown.
const INDEX_BYTES_PER_RECORD: u64 = 28;

/// Bytes of the index for one object that the frequency sketch is made for.
const INDEX_BYTES_PER_SKETCHED: u64 = 64;

impl Store {
    /// Opens the folders; returns as soon as it can serve, while the index is still being read.
    pub fn open(folders: &[PathBuf], settings: &Settings) -> Result<Arc<Store>, OpenFault> {
        if folders.is_empty() {
            return Err(OpenFault::Settings("the disk store has no folder: name one with --store"));
        }
        let take = |place: &PathBuf| match Files::take(place) {
            Ok(files) => Ok((place.clone(), Arc::new(files) as Arc<dyn Medium>)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(OpenFault::Busy(place.clone())),
            Err(error) => Err(OpenFault::Io(place.clone(), error)),
        };
        Store::open_media(&folders.iter().map(take).collect::<Result<Vec<_>, _>>()?, settings)
    }

    /// [`Store::open`] for folders of any kind, each with the name for messages.
    #[doc(hidden)]
    pub fn open_media(media: &[(PathBuf, Arc<dyn Medium>)], settings: &Settings) -> Result<Arc<Store>, OpenFault> {
        Store::open_with(media, settings, Folder::start)
    }

    /// [`Store::open_media`] with another way to start a folder.
    fn open_with(
        media: &[(PathBuf, Arc<dyn Medium>)],
        settings: &Settings,
        mut start: impl FnMut(recovery::Recovery, usize, &Settings, &Arc<Mutex<u64>>) -> io::Result<Folder>,
    ) -> Result<Arc<Store>, OpenFault> {
        let (mut recoveries, mut notices) = (Vec::new(), Vec::new());
        for (place, medium) in media {
            let opened = log::open(Arc::clone(medium), settings.log_settings(), place)?;
            notices.extend(opened.notices.into_iter().map(|notice| (place.clone(), notice)));
            recoveries.push(opened.recovery);
        }
        let numbers = recoveries.iter().map(|each| each.numbers()).fold(Default::default(), superblock::Numbers::max);
        let next_rules = recoveries.iter().map(|each| each.reader().rules.next_number());
        let next_rule = Arc::new(Mutex::new(next_rules.fold(numbers.rule, u64::max)));
        let mut started = Vec::new();
        for (number, (mut recovery, (place, _))) in recoveries.into_iter().zip(media).enumerate() {
            let wrong = |error| OpenFault::Io(place.clone(), error);
            recovery.raise_numbers(numbers).map_err(wrong)?;
            started.push(start(recovery, number, settings, &next_rule).map_err(wrong)?);
        }
        let spares = (settings.queue_bytes_max / SPARE_BYTES as u64).clamp(SPARES_MIN, SPARES_MAX);
        let sketched = settings.index_bytes_max / INDEX_BYTES_PER_SKETCHED;
        Ok(Arc::new(Store {
            folders: started,
            notices,
            next_id: AtomicU64::new(numbers.id),
            next_rule,
            sketch: Sketch::new(sketched as usize),
            spares: Spares::new(spares as usize),
            reads_cached: AtomicU64::new(0),
            opened: Instant::now(),
            watched_at: AtomicU64::new(0),
            settings: settings.clone(),
        }))
    }

    /// Repairs of folders that were not as they should be.
    pub fn notices(&self) -> &[(PathBuf, Notice)] {
        &self.notices
    }

    /// A new id.
    pub fn new_id(&self) -> ObjectId {
        ObjectId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether heads of a key may be here: a probe of the index, tens of nanoseconds. Yes while it is still being read.
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.folder(key).is_some_and(|folder| folder.reader.may_have(key))
    }

    /// Whether heads of a key may be here, be it that they are being removed.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        self.folder(key).is_some_and(|folder| folder.reader.may_hold(key))
    }

    /// Whether heads of a key may be here or on their way here: yes for each key while something waits for being written.
    pub fn may_get(&self, key: &[u8]) -> bool {
        self.folders.iter().any(|folder| folder.queue.bytes() > 0) || self.may_hold(key)
    }

    /// The heads of all variants of a key that no rule has removed.
    pub fn heads(self: &Arc<Self>, key: &[u8]) -> Fetching<Vec<DiskHead>> {
        let Some(folder) = self.folder(key) else { return Fetching::ready(Vec::new()) };
        if let ReadOutcome::Ended(heads) = folder.reader.heads(key, Patience::Cached) {
            self.reads_cached.fetch_add(1, Ordering::Relaxed);
            return Fetching::ready(heads);
        }
        let (fetching, waiting) = Fetching::pair(Vec::new());
        folder.reads.push(Wanted::Heads { key: Bytes::copy_from_slice(key), waiting });
        fetching
    }

    /// The one response of a key with its whole body, where it is valid, cached and short: a look that waits for nothing.
    /// The bytes are for an answer that is sent now.
    pub fn glance(&self, key: &[u8]) -> Option<DiskHead> {
        let head = self.folder(key)?.reader.only(key, Room::Spare(&self.spares))?;
        self.reads_cached.fetch_add(1, Ordering::Relaxed);
        Some(head)
    }

    /// Whether there are so many buffers for bytes that pass that one client may have several.
    pub fn has_buffers(&self) -> bool {
        self.spares.has_plenty()
    }

    /// Whether some of a block of a body is here: a probe of the index.
    pub fn has_block(&self, id: ObjectId, key: &[u8], block: u64) -> bool {
        self.folder(key).is_some_and(|folder| folder.reader.has_block(id, block))
    }

    /// Where the pieces of a block lie, sorted: a probe of the index.
    pub fn extents(&self, id: ObjectId, key: &[u8], block: u64) -> Vec<Range<u64>> {
        self.folder(key).map_or_else(Vec::new, |folder| folder.reader.extents(id, block))
    }

    /// The pieces that overlap a range within its first block, each with its place in the body; none: a hole.
    pub fn read(self: &Arc<Self>, id: ObjectId, key: &[u8], range: Range<u64>) -> Fetching<Vec<(u64, Bytes)>> {
        self.read_to(id, key, range, Stay::Long)
    }

    /// [`Store::read`] for bytes whose use is known.
    pub fn read_to(
        self: &Arc<Self>,
        id: ObjectId,
        key: &[u8],
        range: Range<u64>,
        stay: Stay,
    ) -> Fetching<Vec<(u64, Bytes)>> {
        let room = if stay == Stay::Brief { Room::Spare(&self.spares) } else { Room::Own };
        let Some(folder) = self.folder(key) else { return Fetching::ready(Vec::new()) };
        if let ReadOutcome::Ended(pieces) = folder.reader.pieces_into(id, &range, Patience::Cached, room) {
            self.reads_cached.fetch_add(1, Ordering::Relaxed);
            return Fetching::ready(pieces);
        }
        let (fetching, waiting) = Fetching::pair(Vec::new());
        folder.reads.push(Wanted::Pieces { id, range, waiting });
        fetching
    }

    /// Queues a head. A newer one of the same key and variant replaces the older one.
    pub fn put_head(&self, head: HeadToStore) -> Putting {
        let inline = head.body.iter().flatten().map(Bytes::len).sum::<usize>();
        if inline > INLINE_BYTES_MAX {
            return Putting::refused(Refusal::TooLarge);
        }
        let Some(folder) = self.folder(&head.key) else { return Putting::refused(Refusal::Bypass) };
        let (putting, waiting) = Putting::pair();
        folder.queue.push(Task::Head(head, waiting));
        putting
    }

    /// Queues a piece of a body, of any length.
    pub fn put_extent(&self, id: ObjectId, key: &[u8], at: u64, bytes: Vec<Bytes>) -> Putting {
        let Some(folder) = self.folder(key) else { return Putting::refused(Refusal::Bypass) };
        let (putting, waiting) = Putting::pair();
        let key_hash = folder.reader.key_hash(key);
        folder.queue.push(Task::Extent { id, key_hash, at, bytes, waiting });
        putting
    }

    /// Ready when the queues have room, or when the store refuses puts anyway.
    pub fn queue_room(&self, cx: &Context<'_>) -> Poll<()> {
        let mut healthy = self.healthy();
        if healthy.all(|folder| folder.queue.poll_room(cx).is_ready()) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Looks whether the disks get on; one that does nothing for two seconds is not waited for, nor one that is behind. To be called
    /// some times a second.
    pub fn watch(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.opened).as_millis();
        self.watched_at.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.healthy().for_each(|folder| folder.queue.watch(now));
    }

    /// Milliseconds from the opening of the store to the last [`Store::watch`].
    pub(crate) fn watched_at(&self) -> u64 {
        self.watched_at.load(Ordering::Relaxed)
    }

    /// Wakes the task at the next [`Store::watch`].
    pub(crate) fn wake_at_watch(&self, cx: &Context<'_>) {
        if let Some(folder) = self.healthy().next() {
            folder.queue.wake_at_look(cx);
        }
    }

    /// Whether the disk of a key is behind, so that bodies pass by it rather than wait for it.
    pub fn is_behind(&self, key: &[u8]) -> bool {
        self.folder(key).is_some_and(|folder| folder.queue.is_behind())
    }

    /// Whether the disk of a key does nothing.
    pub(crate) fn is_stalled(&self, key: &[u8]) -> bool {
        self.folder(key).is_some_and(|folder| folder.queue.is_stalled())
    }

    /// Whether the disk of a key takes a further body now. Where it does not, that counts as one that passed by.
    pub(crate) fn takes_body(&self, key: &[u8]) -> bool {
        self.folder(key).is_none_or(|folder| folder.queue.takes_body())
    }

    /// Counts a body that passes by the disk of its key because it would have to wait for too long.
    pub(crate) fn pass_by(&self, key: &[u8]) {
        if let Some(folder) = self.folder(key) {
            folder.queue.pass_by();
        }
    }

    /// While what this gives back lives, the heads of a key are not found.
    pub(crate) fn hide(&self, key: &[u8]) -> Vec<Hiding> {
        self.folders.iter().map(|folder| folder.reader.hide(key)).collect()
    }

    /// The blocks of a body stay until [`Store::release_blocks`], be it that its head is replaced or removed meanwhile.
    pub(crate) fn keep_blocks(&self, id: ObjectId) {
        self.folders.iter().for_each(|folder| folder.reader.kept.keep(id));
    }

    /// Ends one [`Store::keep_blocks`]. With the last one the blocks go, if the head has gone.
    pub(crate) fn release_blocks(&self, id: ObjectId) {
        for folder in &self.folders {
            if let Some(length) = folder.reader.kept.release(id) {
                folder.queue.push(Task::DropBlocks { id, length });
            }
        }
    }

    /// Removes one representation of a key or all: not found from now on, and on disk when it resolves, with the number of
    /// heads that went. An id that is not there may cost the key its other representations at the next start: more is
    /// removed rather than less.
    pub fn forget(&self, key: &[u8], id: Option<ObjectId>) -> Fetching<Result<usize, NotDurable>> {
        // While a folder was out of service its objects went to others: all are told.
        self.in_all_folders(|folder, part| {
            let hiding = folder.reader.hide(key);
            Task::Forget { key: Bytes::copy_from_slice(key), id, part, hiding }
        })
    }

    /// Puts a rule in force for each scope, at once and together; they are on disk when it resolves.
    pub fn invalidate(
        &self,
        scopes: impl IntoIterator<Item = Scope>,
        force: Force,
    ) -> Fetching<Result<usize, NotDurable>> {
        let mut next = self.next_rule.lock();
        let rules: Arc<[Rule]> = (*next..).zip(scopes).map(|(number, scope)| Rule { number, scope, force }).collect();
        *next += rules.len() as u64;
        self.folders.iter().for_each(|folder| folder.reader.rules.add_all(&rules));
        drop(next);
        self.in_all_folders(|_, part| Task::Rules(Arc::clone(&rules), part))
    }

    /// A folder out of service makes it not durable.
    fn in_all_folders(&self, task: impl Fn(&Folder, RemovalPart) -> Task) -> Fetching<Result<usize, NotDurable>> {
        let (fetching, first) = RemovalPart::first();
        for folder in &self.folders {
            let part = first.another();
            if folder.reader.healthy() {
                folder.queue.push(task(folder, part));
            }
        }
        first.report(Ok(0));
        fetching
    }

    /// The number of the newest rule: the epoch of a fetch that begins now.
    pub fn current_epoch(&self) -> u64 {
        self.folders.iter().map(|folder| folder.reader.rules.current_epoch()).max().unwrap_or(0)
    }

    /// The verdict of the rules on a response with this key and these tags that was fetched at this epoch.
    pub fn verdict(&self, key: &[u8], tags: &[u64], epoch: u64) -> Verdict {
        let verdicts = self.folders.iter().map(|folder| folder.reader.rules.verdict(key, tags, epoch));
        verdicts.max().unwrap_or(Verdict::Valid)
    }

    /// Counts a use of an object that was answered from memory and lies here too.
    pub fn used(&self, key: &[u8]) {
        if let Some(folder) = self.folder(key) {
            folder.reader.used(key);
        }
    }

    /// Whether an object is worth writing now. Each call counts as one time that it was asked for.
    pub fn admits(&self, key_hash: u64) -> bool {
        match self.settings.admission {
            Admission::All => true,
            Admission::SeenTwice => self.sketch.seen(key_hash) > 0,
            Admission::Auto => {
                let seen = self.sketch.seen(key_hash) > 0;
                seen || self.healthy().any(|folder| folder.reader.has_room())
            }
        }
    }

    /// Everything queued before is on disk when it resolves, as far as a disk takes it.
    pub fn sync(&self) -> Fetching<()> {
        let (fetching, waiting) = Fetching::pair(());
        let waiting = Arc::new(waiting);
        // Each folder holds a reference; dropping the last one resolves the future.
        for folder in self.healthy() {
            folder.queue.push(Task::Sync(Arc::clone(&waiting)));
        }
        fetching
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { reads_cached: self.reads_cached.load(Ordering::Relaxed), ..Stats::default() };
        for folder in &self.folders {
            folder.reader.add_to(&mut stats);
            stats.reads_waited += folder.reads.waited();
            stats.queue_bytes += folder.queue.bytes();
            stats.refused_queue += folder.queue.refused();
            stats.passed_by += folder.queue.passed_by();
            stats.folders_behind += u64::from(folder.queue.is_behind());
        }
        stats
    }

    /// Memory of the index: now, and when the disk is full, if records stay as long as they are.
    pub fn index_bytes(&self) -> (u64, u64) {
        let stats = self.stats();
        let (now, records) = (stats.index_bytes, stats.heads + stats.extents);
        // An allocator takes more for tables of such lengths.
        let taken = |index_bytes: u64| index_bytes + index_bytes / 8;
        if records < RECORDS_TELLING_MIN {
            return (taken(now), taken(now));
        }
        let folders = self.folders.len() as u64;
        let bytes_each = (stats.live_bytes / records).max(1);
        let expected = (self.settings.disk_bytes * folders / bytes_each).saturating_mul(INDEX_BYTES_PER_RECORD);
        (taken(now), taken(expected.min(self.settings.index_bytes_max * folders).max(now)))
    }

    /// Memory of the sketch that knows how often keys were asked for of late.
    pub fn sketch_bytes(&self) -> u64 {
        self.sketch.heap_bytes() as u64
    }

    /// Writes what is queued, seals, syncs and ends the threads. Dropping the store does the same.
    pub fn close(&self) {
        self.folders.iter().for_each(Folder::close);
    }

    /// Reads all heads, in no order, until told to stop. It waits for the index and for the disk.
    pub fn for_each_head(&self, mut each: impl FnMut(&DiskHead) -> ControlFlow<()>) {
        for folder in &self.folders {
            folder.reads.await_recovery(&folder.reader);
            if walk(&folder.reader, &mut each).is_break() {
                return;
            }
        }
    }

    fn healthy(&self) -> impl Iterator<Item = &Folder> {
        self.folders.iter().filter(|folder| folder.reader.healthy())
    }

    /// Where an object lies: of the folders in service the one whose hash with the key is the highest, so that one that
    /// fails takes only its own objects along.
    fn folder(&self, key: &[u8]) -> Option<&Folder> {
        if let [only] = &self.folders[..] {
            return Some(only).filter(|folder| folder.reader.healthy());
        }
        self.healthy().max_by_key(|folder| xxh3_64_with_seed(key, folder.reader.identity.uuid as u64))
    }
}

impl Settings {
    /// A small store that admits everything, for tests of programs that have a store.
    pub fn small() -> Settings {
        Settings {
            disk_bytes: 64_000_000,
            free_bytes_min: 0,
            index_bytes_max: 1 << 20,
            write_block_bytes: 256 << 10,
            queue_bytes_max: 4 << 20,
            sync_seconds: 1,
            readers: 1,
            admission: Admission::All,
        }
    }

    fn log_settings(&self) -> LogSettings {
        LogSettings {
            disk_bytes: self.disk_bytes,
            free_bytes_min: self.free_bytes_min,
            index_bytes_max: self.index_bytes_max,
            write_block_bytes: self.write_block_bytes,
        }
    }
}

fn walk(reader: &SegmentReader, each: &mut impl FnMut(&DiskHead) -> ControlFlow<()>) -> ControlFlow<()> {
    for shard in 0..reader.locations.shards() {
        for location in reader.locations.shard_content(shard) {
            if location.kind() == Kind::Extent {
                continue;
            }
            if let ReadOutcome::Ended(Some(record)) = reader.read(location, Patience::Waits) {
                let mut head = record.into_head();
                head.verdict = reader.rules.verdict(&head.key, &head.tags, head.epoch);
                if head.verdict != Verdict::Gone {
                    each(&head)?;
                }
            }
        }
    }
    ControlFlow::Continue(())
}
