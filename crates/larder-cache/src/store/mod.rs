//! The disk tier: keys, ids and bytes in segments of a log, found by a small index in memory.
//!
//! It knows nothing of HTTP, of the memory tier, of sockets or of a runtime: threads of its own write and read,
//! and futures ([`Fetching`], [`Putting`]) tell their outcome to whoever awaits them. Nothing leaves the store
//! before its checksum was compared; trouble of a disk is a miss and a counter, never an error.
//!
//! [`medium`] is what it stands on.

pub mod medium;
pub mod purges;
pub mod rules;
#[doc(hidden)]
pub mod sim;
pub mod sketch;

mod fetching;
#[doc(hidden)]
pub mod locations;
#[doc(hidden)]
pub mod log;
mod merge;
#[doc(hidden)]
pub mod pen;
#[doc(hidden)]
pub mod record;
#[doc(hidden)]
pub mod recovery;
mod recycle;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod shelf;
#[doc(hidden)]
pub mod superblock;

use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

pub use fetching::{Fetching, Giving, Putting};

/// A body of at most this many bytes that is whole lies in the record of its head.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;
/// Bodies are cut at multiples of this; an extent record never reaches over one.
pub const BLOCK_BYTES: u64 = 64 * 1024;

/// What a store may use. Everything is per folder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The sum of the store's files in one folder.
    pub disk_bytes: u64,
    /// What stays free for others on the file system: the store's files stop growing there.
    pub free_bytes_min: u64,
    /// The index in memory; beyond it the oldest segments are recycled.
    pub index_bytes_max: u64,
    /// How much is gathered for one write.
    pub write_block_bytes: usize,
    /// What may wait for being written; puts beyond it are refused.
    pub queue_bytes_max: u64,
    /// What a power cut may lose, in time.
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
    /// The folder has files of the store's names that are none of a store.
    NotAStore(PathBuf),
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
            OpenFault::NotAStore(folder) => {
                write!(f, "{} has files that are not of a store: choose an empty folder with --store", folder.display())
            }
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
pub struct StoredHead {
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
}

/// What became of a put.
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
    /// Reads answered from the page cache without waiting.
    pub reads_cached: u64,
    /// Reads that went through the reader threads.
    pub reads_waited: u64,
    /// Records that failed their checks and were dropped.
    pub bad_records: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Folders in service.
    pub folders_healthy: u64,
    /// Folders that are out of service.
    pub folders_failed: u64,
    /// Whether the index is still being read from disk.
    pub recovering: bool,
}

/// Folders of one store, open and locked.
pub struct Store {
    _settings: Settings,
}

impl Store {
    /// Opens the folders; returns as soon as it can serve, while the index is still being read.
    pub fn open(folders: &[PathBuf], settings: &Settings) -> Result<Arc<Store>, OpenFault> {
        if folders.is_empty() {
            return Err(OpenFault::Settings("the disk store has no folder: name one with --store"));
        }
        Ok(Arc::new(Store { _settings: settings.clone() }))
    }

    /// A new id.
    pub fn new_id(&self) -> ObjectId {
        ObjectId(0)
    }

    /// Whether heads of a key may be here: a probe of the index, tens of nanoseconds. Yes while it is still being read.
    pub fn may_have(&self, _key: &[u8]) -> bool {
        false
    }

    /// The heads of all variants of a key.
    pub fn heads(self: &Arc<Self>, _key: &[u8]) -> Fetching<Vec<StoredHead>> {
        Fetching::ready(Vec::new())
    }

    /// Whether some of a block of a body is here: a probe of the index.
    pub fn has_block(&self, _id: ObjectId, _key: &[u8], _block: u64) -> bool {
        false
    }

    /// The pieces that overlap a range within its first block, each with its place in the body; none: a hole.
    pub fn read(self: &Arc<Self>, _id: ObjectId, _key: &[u8], _range: Range<u64>) -> Fetching<Vec<(u64, Bytes)>> {
        Fetching::ready(Vec::new())
    }

    /// Queues a head. A newer one of the same key and variant replaces the older one.
    pub fn put_head(&self, _head: HeadToStore) -> Putting {
        Putting::refused(Refusal::Bypass)
    }

    /// Queues a piece of a body, of any length.
    pub fn put_extent(&self, _id: ObjectId, _key: &[u8], _at: u64, _bytes: Vec<Bytes>) -> Putting {
        Putting::refused(Refusal::Bypass)
    }

    /// Ready when the queue has room, or when the store refuses puts anyway.
    pub fn queue_room(&self, _cx: &Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Removes one representation of a key or all; on disk when it resolves, with the number of heads that went.
    pub fn forget(&self, _key: &[u8], _id: Option<ObjectId>) -> Fetching<usize> {
        Fetching::ready(0)
    }

    /// Counts a use of an object that was answered from memory and lies here too.
    pub fn used(&self, _key: &[u8]) {}

    /// Whether an object is worth writing now.
    pub fn admits(&self, _key_hash: u64) -> bool {
        true
    }

    /// Everything queued before is on disk when it resolves.
    pub fn sync(&self) -> Fetching<()> {
        Fetching::ready(())
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Writes what is queued, seals, syncs and ends the threads. Dropping the store does the same.
    pub fn close(&self) {}

    /// Reads all heads, in no order, until told to stop. It waits for the disk.
    pub fn for_each_head(&self, _each: impl FnMut(&StoredHead) -> ControlFlow<()>) {}
}
