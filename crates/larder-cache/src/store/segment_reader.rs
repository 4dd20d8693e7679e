//! The read side of one folder, shared by all threads: index, segments and files; and what is counted.
//!
//! A look-up probes the index, reads the place and verifies what it finds; no lock is held meanwhile. A segment may
//! be recycled during a read: its slots went first and its sequence changed, so such a read finds nothing.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::kept::KeptBodies;
use super::locations::{Before, Location, Locations, Name};
use super::medium::{Medium, MediumFile};
use super::record::{HEADER_BYTES, Kind, Record};
use super::rules::{RULES_MAX, Rules, Verdict};
use super::segment::Geometry;
use super::spare::Room;
use super::superblock::Identity;
use super::{BLOCK_BYTES, DiskHead, ObjectId, Stats};

/// The read side of one folder.
pub struct SegmentReader {
    /// Where the files are.
    pub medium: Arc<dyn Medium>,
    /// The facts that are fixed for the life of this store.
    pub identity: Identity,
    /// How its budget is cut.
    pub geometry: Geometry,
    /// The index.
    pub locations: Locations,
    /// Invalidations of other scopes than single keys.
    pub rules: Rules,
    /// Counters and gauges.
    pub counters: Counters,
    files: Box<[OnceLock<Arc<dyn MediumFile>>]>,
    segments: Box<[Segment]>,
    /// While the index is read from disk: all lives from this one on are in it.
    recovered_from: AtomicU64,
    errors_in_row: AtomicU32,
    failed: AtomicBool,
    /// Keys whose heads are being removed, and how often.
    hidden: Mutex<HashMap<u64, usize>>,
    hidden_count: AtomicUsize,
    /// Bodies that are read though their heads may have gone.
    pub(super) kept: KeptBodies,
}

/// The facts about a segment that memory holds.
#[derive(Default)]
struct Segment {
    /// 0: nothing in it counts.
    sequence: AtomicU64,
    live_bytes: AtomicU32,
    hot_bytes: AtomicU32,
}

/// How long a read may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Only from the page cache.
    Cached,
    /// It waits for the device.
    Waits,
}

/// While it lives, the heads of a key are not found.
pub struct Hiding {
    reader: Arc<SegmentReader>,
    key_hash: u64,
}

impl Drop for Hiding {
    fn drop(&mut self) {
        let mut hidden = self.reader.hidden.lock();
        if let Some(count) = hidden.get_mut(&self.key_hash) {
            *count -= 1;
            if *count == 0 {
                hidden.remove(&self.key_hash);
            }
        }
        self.reader.hidden_count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The outcome of a look.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadOutcome<T> {
    /// It ended.
    Ended(T),
    /// It would wait for the device.
    WouldWait,
    /// Nothing yet, and the index is still being read.
    Recovering,
}

/// Errors of the device in a row that take a folder out of service.
pub const ERRORS_IN_ROW_MAX: u32 = 8;

/// Variants of one key that a look-up reads, the newest: whoever sends many different requests makes it no slower.
pub const VARIANTS_READ_MAX: usize = 64;

/// Counters since the start.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each has its sentence in `Stats`")]
pub struct Counters {
    pub heads: AtomicU64,
    pub extents: AtomicU64,
    pub live_bytes: AtomicU64,
    pub allocated_bytes: AtomicU64,
    pub segments_free: AtomicU64,
    pub segments_recycled: AtomicU64,
    pub puts_head: AtomicU64,
    pub puts_extent: AtomicU64,
    pub refused_large: AtomicU64,
    pub refused_bypass: AtomicU64,
    pub written_bytes: AtomicU64,
    pub rewritten_bytes: AtomicU64,
    pub bad_records: AtomicU64,
    pub read_errors: AtomicU64,
    pub reader_restarts: AtomicU64,
    pub writer_restarts: AtomicU64,
    pub write_errors: AtomicU64,
    pub aside_bytes: AtomicU64,
}

/// Bytes behind the header of a record; for a head, up to 63 bytes more.
fn payload_bytes_max(location: Location) -> usize {
    let bytes = if location.kind() == Kind::Extent { location.extent_bytes() } else { location.bytes() };
    bytes.saturating_sub(HEADER_BYTES as u64) as usize
}

fn read_waiting(file: &dyn MediumFile, at: u64, header: &mut [u8], payload: &mut [u8]) -> io::Result<usize> {
    let count = file.read_at(at, header)?;
    if count < header.len() { Ok(count) } else { Ok(count + file.read_at(at + count as u64, payload)?) }
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl SegmentReader {
    /// An empty one; recovery fills it.
    pub fn new(medium: Arc<dyn Medium>, identity: Identity, geometry: Geometry, shards: usize) -> SegmentReader {
        SegmentReader {
            medium,
            identity,
            geometry,
            locations: Locations::new(shards),
            rules: Rules::new(RULES_MAX),
            counters: Counters::default(),
            files: (0..geometry.files()).map(|_| OnceLock::new()).collect(),
            segments: (0..geometry.segments).map(|_| Segment::default()).collect(),
            recovered_from: AtomicU64::new(u64::MAX),
            errors_in_row: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            hidden: Mutex::default(),
            hidden_count: AtomicUsize::new(0),
            kept: KeptBodies::default(),
        }
    }

    /// Hides the heads of a key until the guard is dropped: they are being removed.
    pub fn hide(self: &Arc<SegmentReader>, key: &[u8]) -> Hiding {
        let key_hash = self.key_hash(key);
        *self.hidden.lock().entry(key_hash).or_default() += 1;
        self.hidden_count.fetch_add(1, Ordering::SeqCst);
        Hiding { reader: Arc::clone(self), key_hash }
    }

    fn is_hidden(&self, key_hash: u64) -> bool {
        self.hidden_count.load(Ordering::SeqCst) > 0 && self.hidden.lock().contains_key(&key_hash)
    }

    /// The hash of a key in this store.
    pub fn key_hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.identity.hash_seed)
    }

    /// Whether a key may have heads here that can be found.
    pub fn may_have(&self, key: &[u8]) -> bool {
        !self.is_hidden(self.key_hash(key)) && self.may_hold(key)
    }

    /// Whether a key may have heads here, hidden or not.
    pub fn may_hold(&self, key: &[u8]) -> bool {
        let name = Name::of_head(self.key_hash(key), 0);
        self.recovering() || self.locations.any(name, |each| each.kind() != Kind::Extent)
    }

    /// The heads of all variants of a key.
    pub fn heads(&self, key: &[u8], patience: Patience) -> ReadOutcome<Vec<DiskHead>> {
        let key_hash = self.key_hash(key);
        if self.is_hidden(key_hash) {
            return ReadOutcome::Ended(Vec::new());
        }
        let recovered_from = self.recovered_from.load(Ordering::Acquire);
        let mut found = Vec::new();
        let mut locations = self.head_locations(key_hash);
        if locations.len() > VARIANTS_READ_MAX {
            locations.sort_by_key(|each| std::cmp::Reverse((self.sequence(each.segment()), each.offset())));
            locations.truncate(VARIANTS_READ_MAX);
        }
        for location in locations {
            // During recovery an older copy may be seen before the newer one that replaced it.
            if self.sequence(location.segment()) < recovered_from {
                continue;
            }
            match self.read(location, patience) {
                ReadOutcome::Ended(Some(record)) if record.key() == key => found.extend(self.judge(location, record)),
                ReadOutcome::Ended(_) => {}
                wait => return wait.map_none(),
            }
        }
        if found.is_empty() && recovered_from > 0 { ReadOutcome::Recovering } else { ReadOutcome::Ended(found) }
    }

    /// The head of a key with its whole body, where that is all there is to say of the key: one head, cached, valid and
    /// found in an index that is read.
    pub(super) fn only(&self, key: &[u8], room: Room<'_>) -> Option<DiskHead> {
        let key_hash = self.key_hash(key);
        if self.is_hidden(key_hash) || self.recovering() {
            return None;
        }
        let (mut heads, mut last) = (0, None);
        self.locations.find(Name::of_head(key_hash, 0), |each| {
            if each.kind() != Kind::Extent {
                (heads, last) = (heads + 1, Some(each));
            }
        });
        let location = last.filter(|each| heads == 1 && each.kind() == Kind::WholeHead)?;
        match self.read_into(location, Patience::Cached, room) {
            ReadOutcome::Ended(Some(record)) if record.key() == key => {
                self.judge(location, record).filter(|head| head.verdict == Verdict::Valid)
            }
            _ => None,
        }
    }

    /// The head that was read, unless a rule has removed it.
    fn judge(&self, location: Location, record: Record) -> Option<DiskHead> {
        let mut head = record.into_head();
        head.verdict = self.rules.verdict(&head.key, &head.tags, head.epoch);
        if head.verdict == Verdict::Gone {
            self.remove(location);
            return None;
        }
        self.count_use(location);
        Some(head)
    }

    /// Whether a block of a representation has a piece here.
    pub fn has_block(&self, id: ObjectId, block: u64) -> bool {
        let name = Name::of_block(self.identity.hash_seed, id, block);
        self.locations.any(name, |each| each.kind() == Kind::Extent && each.may_be_of(id))
    }

    /// Where the pieces of a block lie, sorted, as the index knows them.
    pub fn extents(&self, id: ObjectId, block: u64) -> Vec<Range<u64>> {
        let range = |location: &Location| {
            let start = block * BLOCK_BYTES + location.name().offset_in_block();
            start..start + location.extent_bytes() - HEADER_BYTES as u64
        };
        let mut ranges: Vec<Range<u64>> = self.piece_locations(id, block).iter().map(range).collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// The pieces of a representation that overlap a range within its first block.
    pub fn pieces(&self, id: ObjectId, range: &Range<u64>, patience: Patience) -> ReadOutcome<Vec<(u64, Bytes)>> {
        self.pieces_into(id, range, patience, Room::Own)
    }

    /// [`SegmentReader::pieces`], read into such room.
    pub(super) fn pieces_into(
        &self,
        id: ObjectId,
        range: &Range<u64>,
        patience: Patience,
        room: Room<'_>,
    ) -> ReadOutcome<Vec<(u64, Bytes)>> {
        let block = range.start / BLOCK_BYTES;
        let recovering = self.recovering();
        let mut found = Vec::new();
        for location in self.piece_locations(id, block) {
            let start = block * BLOCK_BYTES + location.name().offset_in_block();
            let end_at_most = start + location.bytes() - HEADER_BYTES as u64;
            if start >= range.end || end_at_most <= range.start {
                continue;
            }
            match self.read_into(location, patience, room) {
                ReadOutcome::Ended(Some(record)) if record.header.id == id.0 && record.header.offset == start => {
                    if record.header.body_range().end > range.start {
                        self.count_use(location);
                        found.push((start, record.body()));
                    }
                }
                ReadOutcome::Ended(_) => {}
                wait => return wait.map_none(),
            }
        }
        if found.is_empty() && recovering {
            return ReadOutcome::Recovering;
        }
        found.sort_by_key(|(start, _)| *start);
        ReadOutcome::Ended(found)
    }

    /// Where heads of a key may lie.
    pub fn head_locations(&self, key_hash: u64) -> Vec<Location> {
        let mut locations = Vec::new();
        self.locations.find(Name::of_head(key_hash, 0), |each| {
            if each.kind() != Kind::Extent {
                locations.push(each);
            }
        });
        locations
    }

    /// Where pieces of a block may lie.
    pub fn piece_locations(&self, id: ObjectId, block: u64) -> Vec<Location> {
        let mut locations = Vec::new();
        self.locations.find(Name::of_block(self.identity.hash_seed, id, block), |each| {
            if each.kind() == Kind::Extent && each.may_be_of(id) {
                locations.push(each);
            }
        });
        locations
    }

    /// Reads and verifies the record at a location. A record that is not sound goes out of the index.
    pub fn read(&self, location: Location, patience: Patience) -> ReadOutcome<Option<Record>> {
        self.read_into(location, patience, Room::Own)
    }

    fn read_into(&self, location: Location, patience: Patience, room: Room<'_>) -> ReadOutcome<Option<Record>> {
        let sequence = self.sequence(location.segment());
        let (file, start) = self.geometry.place(location.segment());
        let (Some(file), true) = (self.file(file), sequence > 0) else { return ReadOutcome::Ended(None) };
        // Apart, so that a whole block takes an allocation of exactly its length.
        let (mut header, mut payload) = ([0; HEADER_BYTES], room.buffer(payload_bytes_max(location)));
        let at = start + location.offset();
        let outcome = match patience {
            Patience::Waits => read_waiting(file.as_ref(), at, &mut header, payload.bytes()).map(Some),
            Patience::Cached => {
                file.read_cached(at, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(payload.bytes())])
            }
        };
        match outcome {
            Ok(Some(count)) => {
                self.errors_in_row.store(0, Ordering::Relaxed);
                let payload = payload.into_bytes(count.saturating_sub(HEADER_BYTES));
                let record = Record::verify(&header, payload, sequence);
                // Not in the index any more: its segment was recycled meanwhile, which is nobody's fault.
                if record.is_none() && self.remove(location).is_some() {
                    count_one(&self.counters.bad_records);
                }
                ReadOutcome::Ended(record)
            }
            Ok(None) => ReadOutcome::WouldWait,
            Err(_) => {
                count_one(&self.counters.read_errors);
                self.note_error();
                ReadOutcome::Ended(None)
            }
        }
    }

    /// Counts a use of a record.
    pub fn count_use(&self, location: Location) {
        if self.locations.count_use(location) {
            self.segment(location).hot_bytes.fetch_add(location.bytes() as u32, Ordering::Relaxed);
        }
    }

    /// Counts a use of all that a key has here.
    pub fn used(&self, key: &[u8]) {
        for location in self.head_locations(self.key_hash(key)) {
            self.count_use(location);
        }
    }

    /// Enters a record, unless the index has a newer one of its name.
    pub fn insert(&self, location: Location) -> Before {
        let before = self.locations.put(location, |old| self.outlasts(old, location));
        if before != Before::Newer {
            self.account(location);
        }
        if let Before::Replaced(old) = before {
            self.unaccount(old);
        }
        before
    }

    /// Whether a record stays when another one of its name comes: it is the newer one or, of two pieces of one body that begin
    /// at one byte, the longer one. Two requests for one body bring such pieces, in either order.
    fn outlasts(&self, old: Location, new: Location) -> bool {
        let are_pieces = old.kind() == Kind::Extent && new.kind() == Kind::Extent && old.may_be_of_same_id(new);
        if are_pieces && old.extent_bytes() != new.extent_bytes() {
            return old.extent_bytes() > new.extent_bytes();
        }
        let age = |each: Location| (self.sequence(each.segment()), each.offset());
        age(old) > age(new)
    }

    /// Enters many records of one shard.
    pub(super) fn insert_many(&self, shard: usize, locations: &[Location]) {
        let is_older = |location, old| self.outlasts(old, location);
        let (mut heads, mut extents, mut live_bytes) = (0, 0, 0);
        self.locations.put_many(shard, locations, is_older, |location, before| {
            if before == Before::Newer {
                return;
            }
            let gauge = if location.kind() == Kind::Extent { &mut extents } else { &mut heads };
            *gauge += 1;
            live_bytes += location.bytes();
            self.segment(location).live_bytes.fetch_add(location.bytes() as u32, Ordering::Relaxed);
            if let Before::Replaced(old) = before {
                self.unaccount(old);
            }
        });
        count(&self.counters.heads, heads);
        count(&self.counters.extents, extents);
        count(&self.counters.live_bytes, live_bytes);
    }

    /// Takes a record out of the index.
    pub fn remove(&self, location: Location) -> Option<Location> {
        let removed = self.locations.remove(location)?;
        self.unaccount(removed);
        Some(removed)
    }

    /// Takes all of some segments out of the index by looking at all slots.
    pub(super) fn remove_segments(&self, are: impl Fn(u32) -> bool) {
        self.locations.remove_where(|each| are(each.segment()), |each| self.unaccount(each));
    }

    fn account(&self, location: Location) {
        count(self.kind_gauge(location), 1);
        count(&self.counters.live_bytes, location.bytes());
        self.segment(location).live_bytes.fetch_add(location.bytes() as u32, Ordering::Relaxed);
    }

    fn unaccount(&self, location: Location) {
        self.kind_gauge(location).fetch_sub(1, Ordering::Relaxed);
        self.counters.live_bytes.fetch_sub(location.bytes(), Ordering::Relaxed);
        let segment = self.segment(location);
        segment.live_bytes.fetch_sub(location.bytes() as u32, Ordering::Relaxed);
        if location.uses() > 0 {
            segment.hot_bytes.fetch_sub(location.bytes() as u32, Ordering::Relaxed);
        }
    }

    fn kind_gauge(&self, location: Location) -> &AtomicU64 {
        if location.kind() == Kind::Extent { &self.counters.extents } else { &self.counters.heads }
    }

    /// Whether the index is still being read from disk.
    pub fn recovering(&self) -> bool {
        self.recovered_from.load(Ordering::Acquire) > 0
    }

    /// All lives from this one on are in the index; 0: all.
    pub(super) fn set_recovered_from(&self, sequence: u64) {
        self.recovered_from.store(sequence, Ordering::Release);
    }

    /// The life of a segment; 0 if nothing in it counts.
    pub fn sequence(&self, segment: u32) -> u64 {
        self.segments.get(segment as usize).map_or(0, |each| each.sequence.load(Ordering::Acquire))
    }

    /// Begins or ends the life of a segment.
    pub(super) fn set_sequence(&self, segment: u32, sequence: u64) {
        self.segments[segment as usize].sequence.store(sequence, Ordering::Release);
    }

    /// Bytes of a segment that the index knows, and those of them that were used since they were written.
    pub fn live_and_hot(&self, segment: u32) -> (u64, u64) {
        let segment = &self.segments[segment as usize];
        let number = |of: &AtomicU32| u64::from(of.load(Ordering::Relaxed));
        (number(&segment.live_bytes), number(&segment.hot_bytes))
    }

    fn segment(&self, location: Location) -> &Segment {
        &self.segments[location.segment() as usize]
    }

    /// A data file, if it exists.
    pub fn file(&self, file: u32) -> Option<&Arc<dyn MediumFile>> {
        self.files.get(file as usize)?.get()
    }

    /// A data file, made when there is none.
    pub(super) fn open_file(&self, file: u32) -> io::Result<&Arc<dyn MediumFile>> {
        let place = &self.files[file as usize];
        if let Some(open) = place.get() {
            return Ok(open);
        }
        let opened = self.medium.open(&super::segment::file_name(file))?;
        Ok(place.get_or_init(|| opened))
    }

    /// Whether something can be written without something else going.
    pub fn has_room(&self) -> bool {
        let allocated = self.counters.allocated_bytes.load(Ordering::Relaxed) / self.geometry.segment_bytes;
        // The last free segment is always kept.
        let free = self.counters.segments_free.load(Ordering::Relaxed);
        free > 1 || allocated < u64::from(self.geometry.segments)
    }

    /// Whether the folder is in service.
    pub fn healthy(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    /// The device failed once more.
    pub(super) fn note_error(&self) {
        if self.errors_in_row.fetch_add(1, Ordering::Relaxed) + 1 >= ERRORS_IN_ROW_MAX {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Empties the index for a recovery that follows: until that has read a record again, look-ups wait for it.
    pub(super) fn forget_index(&self) {
        self.set_recovered_from(u64::MAX);
        for segment in 0..self.geometry.segments {
            self.set_sequence(segment, 0);
        }
        self.remove_segments(|_| true);
    }

    /// The folder has no writer any more: nothing is written to it until the next start.
    pub(super) fn lose_writer(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The device did what it was asked.
    pub(super) fn note_success(&self) {
        self.errors_in_row.store(0, Ordering::Relaxed);
    }

    /// Adds what is counted here.
    pub fn add_to(&self, stats: &mut Stats) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        stats.heads += of(&counters.heads);
        stats.extents += of(&counters.extents);
        stats.live_bytes += of(&counters.live_bytes);
        stats.allocated_bytes += of(&counters.allocated_bytes);
        stats.index_bytes += self.locations.heap_bytes();
        stats.segments += of(&counters.allocated_bytes) / self.geometry.segment_bytes;
        stats.segments_free += of(&counters.segments_free);
        stats.segments_recycled += of(&counters.segments_recycled);
        stats.puts_head += of(&counters.puts_head);
        stats.puts_extent += of(&counters.puts_extent);
        stats.refused_large += of(&counters.refused_large);
        stats.refused_bypass += of(&counters.refused_bypass);
        stats.written_bytes += of(&counters.written_bytes);
        stats.rewritten_bytes += of(&counters.rewritten_bytes);
        stats.bad_records += of(&counters.bad_records);
        stats.read_errors += of(&counters.read_errors);
        stats.reader_restarts += of(&counters.reader_restarts);
        stats.writer_restarts += of(&counters.writer_restarts);
        stats.write_errors += of(&counters.write_errors);
        stats.aside_bytes += of(&counters.aside_bytes);
        let healthy = u64::from(self.healthy());
        stats.folders_healthy += healthy;
        stats.folders_failed += 1 - healthy;
        stats.recovering |= self.recovering();
    }
}

impl<T> ReadOutcome<T> {
    fn map_none<U>(self) -> ReadOutcome<U> {
        match self {
            ReadOutcome::Recovering => ReadOutcome::Recovering,
            _ => ReadOutcome::WouldWait,
        }
    }
}

fn count_one(counter: &AtomicU64) {
    count(counter, 1);
}
