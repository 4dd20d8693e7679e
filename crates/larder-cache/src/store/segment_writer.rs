//! The write side of one folder: one owner, no thread inside. Records are gathered in a batch, written at the end
//! of the active segment in one call, and enter the index when that call is done.
//!
//! Which segment is written next, and what becomes of what was in it, stands in `recycle`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::fetching::Promise;
use super::locations::{Before, Location, Name};
use super::purges::{Purge, PurgeLog, Reach, Tombstone, Worth};
use super::record::{self, HEADER_BYTES, Header, Kind};
use super::segment::{HEAD_BYTES, SegmentHead, Trailer};
use super::segment_reader::{Patience, ReadOutcome, SegmentReader, count};
use super::superblock::Numbers;
use super::{BLOCK_BYTES, HeadToStore, ObjectId, Put, Refusal};

/// The limits of the log of one folder.
#[derive(Clone, Copy, Debug)]
pub struct LogSettings {
    /// The sum of the files.
    pub disk_bytes: u64,
    /// Bytes that stay free for others on the file system.
    pub free_bytes_min: u64,
    /// The index in memory.
    pub index_bytes_max: u64,
    /// How much is gathered for one write.
    pub write_block_bytes: usize,
}

/// The write side of one folder.
pub struct SegmentWriter {
    pub(super) reader: Arc<SegmentReader>,
    pub(super) settings: LogSettings,
    pub(super) active: Option<Active>,
    pub(super) batch: Batch,
    /// Oldest first.
    pub(super) sealed: VecDeque<u32>,
    pub(super) free: VecDeque<u32>,
    /// Segments that each data file has room for today.
    pub(super) file_segments: Vec<u32>,
    pub(super) sequence_next: u64,
    /// All numbers that this opening gives are below these.
    pub(super) numbers_below: Numbers,
    pub(super) purge_log: Option<PurgeLog>,
    /// Entries of the purge log at which the void ones are taken out.
    compact_at: u64,
    /// Rules up to this number are gone: heads from before it come too late.
    retired: u64,
    /// Every life that a power cut now could bring back, with the lowest epoch in it.
    pub(super) on_disk: BTreeMap<u64, u64>,
    /// The lives that lie in free segments until these are written over.
    pub(super) left_behind: BTreeMap<u32, Vec<u64>>,
    /// Lives that are written over, and gone with the next sync.
    pub(super) overwritten: Vec<u64>,
    /// Lives that were begun and whose heads are perhaps not on disk: segment and sequence.
    begun: Vec<(u32, u64)>,
    /// Data files that were written since the last sync.
    dirty: BTreeSet<u32>,
    /// Data files whose last sync failed: the system may have forgotten what was written and say so only once.
    doubted: BTreeSet<u32>,
    /// Puts that are refused before the next write is tried, after one that found no room.
    resting: u32,
}

/// The segment that is being written.
pub(super) struct Active {
    pub(super) segment: u32,
    pub(super) sequence: u64,
    /// Where the next record goes, the batch included.
    pub(super) filled: u64,
    /// Records that are written and in the index.
    pub(super) records: Vec<Location>,
    epoch_min: u64,
    id_max: u64,
    /// It is to be sealed although it has room: the index has none.
    closing: bool,
}

/// Records that are not written yet.
#[derive(Default)]
pub(super) struct Batch {
    /// Where it begins in the active segment.
    start: u64,
    /// Headers, keys, tags, meta, small bodies, zeros.
    fronts: Vec<u8>,
    pieces: Vec<Piece>,
    records: Vec<Written>,
    waiting: Vec<Promise<Put>>,
    bytes: u64,
}

/// A record of the batch.
#[derive(Clone, Copy)]
struct Written {
    location: Location,
    id: ObjectId,
    body_bytes: u64,
}

enum Piece {
    Front(Range<usize>),
    Body(Bytes),
}

/// Puts refused after a write that found no room on the file system.
const PUTS_RESTED: u32 = 256;
/// Segments tried for one record, when each fills with what is kept of the one recycled.
const SEGMENTS_TRIED_MAX: usize = 4;
/// Bodies below this are copied: a piece of a vectored write of their own costs more.
const COPIED_BYTES_MAX: usize = 1024;
/// Blocks of one body that are looked for when its head moves or goes (64 GiB of it).
const BLOCKS_PROBED_MAX: u64 = 1 << 20;
/// Where the length is not known, a body is taken to end after so many absent blocks.
const BLOCKS_ABSENT_MAX: u64 = 64;

impl SegmentWriter {
    /// Takes the write side up where recovery found it.
    pub(super) fn new(reader: Arc<SegmentReader>, settings: LogSettings) -> SegmentWriter {
        SegmentWriter {
            reader,
            settings,
            active: None,
            batch: Batch::default(),
            sealed: VecDeque::new(),
            free: VecDeque::new(),
            file_segments: Vec::new(),
            sequence_next: 1,
            numbers_below: Numbers::default(),
            purge_log: None,
            compact_at: purges_compacted_min(&settings),
            retired: 0,
            on_disk: BTreeMap::new(),
            left_behind: BTreeMap::new(),
            overwritten: Vec::new(),
            begun: Vec::new(),
            dirty: BTreeSet::new(),
            doubted: BTreeSet::new(),
            resting: 0,
        }
    }

    /// The read side.
    pub fn reader(&self) -> &Arc<SegmentReader> {
        &self.reader
    }

    /// Adds a head to the batch. It is told what became of it when the batch is written.
    pub fn append_head(&mut self, head: HeadToStore, waiting: Promise<Put>) {
        if head.epoch < self.retired {
            return self.refuse(Refusal::Outdated, waiting);
        }
        let key_hash = self.reader.key_hash(&head.key);
        let Some(header) = record::head_header(&head, key_hash) else {
            return self.refuse(Refusal::TooLarge, waiting);
        };
        let outcome = self.append(header, Some(&head));
        count(&self.reader.counters.puts_head, u64::from(outcome.is_ok()));
        self.await_batch(outcome, waiting);
    }

    /// Adds a piece of a body to the batch, cut at the borders of blocks.
    pub fn append_extent(
        &mut self,
        id: ObjectId,
        key_hash: u64,
        mut at: u64,
        bytes: Vec<Bytes>,
        waiting: Promise<Put>,
    ) {
        let mut outcome = Ok(());
        for part in cut_at_blocks(at, bytes) {
            let part_bytes = part.iter().map(Bytes::len).sum::<usize>();
            outcome = outcome.and_then(|()| self.append_piece(id, key_hash, at, &part, part_bytes));
            at = at.saturating_add(part_bytes as u64);
        }
        self.await_batch(outcome, waiting);
    }

    pub(super) fn append_piece(
        &mut self,
        id: ObjectId,
        key_hash: u64,
        at: u64,
        bytes: &[Bytes],
        length: usize,
    ) -> Result<(), Refusal> {
        if self.has_many_pieces(id, at / BLOCK_BYTES) {
            return self.merge_pieces(id, key_hash, at, bytes);
        }
        let header = record::extent_header(id, key_hash, at, length).ok_or(Refusal::TooLarge)?;
        self.append_body(header, None, bytes)?;
        count(&self.reader.counters.puts_extent, 1);
        Ok(())
    }

    fn await_batch(&mut self, outcome: Result<(), Refusal>, waiting: Promise<Put>) {
        match outcome {
            Ok(()) => self.batch.waiting.push(waiting),
            Err(why) => return self.refuse(why, waiting),
        }
        if self.batch.bytes >= self.settings.write_block_bytes as u64 {
            // The flush tells everybody who waits.
            let _ = self.flush();
        }
    }

    fn refuse(&self, why: Refusal, waiting: Promise<Put>) {
        let counter = match why {
            Refusal::TooLarge => &self.reader.counters.refused_large,
            _ => &self.reader.counters.refused_bypass,
        };
        count(counter, 1);
        waiting.give(Put::Refused(why));
    }

    pub(super) fn append(&mut self, header: Header, head: Option<&HeadToStore>) -> Result<(), Refusal> {
        let body = head.and_then(|head| head.body.as_deref()).unwrap_or_default();
        self.append_body(header, head, body)
    }

    pub(super) fn append_body(
        &mut self,
        header: Header,
        head: Option<&HeadToStore>,
        body: &[Bytes],
    ) -> Result<(), Refusal> {
        if header.record_bytes() > self.reader.geometry.record_bytes_max() {
            return Err(Refusal::TooLarge);
        }
        if !self.make_room(header.record_bytes()) {
            return Err(Refusal::Bypass);
        }
        self.push(header, head, body);
        Ok(())
    }

    /// Adds to the batch what is known to fit.
    pub(super) fn push(&mut self, header: Header, head: Option<&HeadToStore>, body: &[Bytes]) {
        let Some(active) = &mut self.active else { return };
        let name = match header.kind {
            Kind::Extent => Name::of_extent(self.reader.identity.hash_seed, ObjectId(header.id), header.offset),
            Kind::Head | Kind::WholeHead => {
                active.epoch_min = active.epoch_min.min(header.epoch);
                Name::of_head(header.key_hash, header.variant)
            }
        };
        active.id_max = active.id_max.max(header.id);
        let location = Location::new(name, header.kind, header.id, active.segment, active.filled, header.exact_bytes());
        active.filled += header.record_bytes();
        let padding = (header.record_bytes() - header.exact_bytes()) as usize;
        let sequence = active.sequence;
        self.batch.records.push(Written { location, id: ObjectId(header.id), body_bytes: header.body_bytes() });
        self.batch.bytes += header.record_bytes();
        self.batch.add_front(|fronts| record::write_front(header, head, body, sequence, fronts));
        body.iter().for_each(|piece| self.batch.add_body(piece));
        self.batch.add_front(|fronts| fronts.resize(fronts.len() + padding, 0));
    }

    /// Whether a record fits into the batch's segment, with the records before it.
    pub(super) fn fits(&self, record_bytes: u64) -> bool {
        self.active.as_ref().is_some_and(|active| {
            let records = active.records.len() + self.batch.records.len() + 1;
            !active.closing && self.reader.geometry.fits(active.filled, records, record_bytes)
        })
    }

    fn make_room(&mut self, record_bytes: u64) -> bool {
        if !self.reader.healthy() || self.resting > 0 {
            self.resting = self.resting.saturating_sub(1);
            return false;
        }
        for _ in 0..SEGMENTS_TRIED_MAX {
            if self.fits(record_bytes) {
                return true;
            }
            if self.active.is_some() {
                if self.flush().is_err() {
                    return false;
                }
                // Unsealed it counts as well; it is only slower to read at the next start.
                let _ = self.seal();
            }
            if !self.open_next() {
                return false;
            }
        }
        self.fits(record_bytes)
    }

    fn segment_head(&self, sequence: u64) -> SegmentHead {
        SegmentHead {
            identity: self.reader.identity,
            sequence,
            ids_below: self.numbers_below.id,
            rules_below: self.numbers_below.rule,
        }
    }

    /// Begins a life of a segment.
    pub(super) fn activate(&mut self, segment: u32) {
        let sequence = self.sequence_next;
        self.sequence_next += 1;
        let head = self.segment_head(sequence);
        self.batch.start = 0;
        self.batch.add_front(|fronts| fronts.extend_from_slice(&head.encode()));
        self.batch.bytes = HEAD_BYTES;
        self.active = Some(Active {
            segment,
            sequence,
            filled: HEAD_BYTES,
            records: Vec::new(),
            epoch_min: u64::MAX,
            id_max: 0,
            closing: false,
        });
        self.on_disk.insert(sequence, u64::MAX);
        self.reader.set_sequence(segment, sequence);
    }

    /// Writes the batch; what is in it is found from then on.
    pub fn flush(&mut self) -> Result<(), Refusal> {
        let Some(active) = self.active.as_ref().filter(|_| self.batch.bytes > 0) else {
            // An earlier flush wrote all the records of these callers.
            self.batch.waiting.drain(..).for_each(|waiting| waiting.give(Put::Stored));
            return Ok(());
        };
        let segment = active.segment;
        self.on_disk.insert(active.sequence, active.epoch_min);
        let mut batch = std::mem::take(&mut self.batch);
        let outcome = self.write(segment, batch.start, &batch.slices()).map_err(|_| Refusal::Bypass);
        match outcome {
            Ok(()) => self.adopt(segment, &batch),
            Err(_) => self.give_up(&batch),
        }
        count(&self.reader.counters.refused_bypass, if outcome.is_err() { batch.waiting.len() as u64 } else { 0 });
        let put = outcome.map_or_else(Put::Refused, |()| Put::Stored);
        batch.waiting.drain(..).for_each(|waiting| waiting.give(put));
        self.batch.reuse(batch, self.active.as_ref().map_or(0, |active| active.filled));
        outcome
    }

    /// The batch is written: its records enter the index.
    fn adopt(&mut self, segment: u32, batch: &Batch) {
        if batch.start == 0 {
            self.begun.push((segment, self.reader.sequence(segment)));
            self.note_overwritten(segment);
        }
        for written in &batch.records {
            self.enter(*written);
        }
        if let Some(active) = &mut self.active {
            active.records.extend(batch.records.iter().map(|written| written.location));
        }
    }

    fn enter(&mut self, written: Written) {
        let location = written.location;
        while self.reader.locations.would_pass(location.name(), self.settings.index_bytes_max) {
            if !self.recycle_oldest() {
                // The active segment alone is too much for the index: the next one makes it the oldest.
                self.active.iter_mut().for_each(|active| active.closing = true);
                break;
            }
        }
        let before = self.reader.insert(location);
        if location.kind() != Kind::Extent {
            self.reader.kept.head_has_come(written.id);
        }
        match (before, location.kind()) {
            (_, Kind::Extent) => self.drop_covered(written),
            (Before::Replaced(old), _) if old.kind() == Kind::Head && !old.may_be_of_same_id(location) => {
                self.drop_blocks_of(old);
            }
            _ => {}
        }
    }

    /// The batch is lost, and a part of it may be on disk: the segment is sealed without it, so that it never comes
    /// back when everybody believes it is not there.
    fn give_up(&mut self, batch: &Batch) {
        let Some(active) = self.active.take() else { return };
        if batch.start == 0 {
            self.reader.set_sequence(active.segment, 0);
            return self.leave_behind(active.segment, active.sequence);
        }
        self.active = Some(active);
        // Where that fails too, what is removed meanwhile is covered by its tombstone.
        let _ = self.seal().and_then(|()| self.sync());
    }

    fn note_overwritten(&mut self, segment: u32) {
        self.overwritten.extend(self.left_behind.remove(&segment).into_iter().flatten());
    }

    pub(super) fn write(&mut self, segment: u32, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        let (file, start) = self.reader.geometry.place(segment);
        let outcome = match self.reader.file(file) {
            Some(open) => open.write_at(start + offset, pieces),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        self.dirty.insert(file);
        match &outcome {
            Ok(()) => {
                count(&self.reader.counters.written_bytes, pieces.iter().map(|piece| piece.len() as u64).sum());
                self.reader.note_success();
            }
            Err(error) => self.note_write_error(error),
        }
        outcome
    }

    pub(super) fn note_write_error(&mut self, error: &io::Error) {
        count(&self.reader.counters.write_errors, 1);
        match error.kind() {
            // A full disk is no failing one.
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.resting = PUTS_RESTED,
            _ => self.reader.note_error(),
        }
    }

    /// Ends the active segment: its records to disk, then summary and trailer.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        let Some(active) = self.active.take() else { return Ok(()) };
        self.sealed.push_back(active.segment);
        self.seal_as(active.segment, active.sequence, active.epoch_min, active.id_max, &active.records)
    }

    pub(super) fn seal_as(
        &mut self,
        segment: u32,
        sequence: u64,
        epoch_min: u64,
        id_max: u64,
        records: &[Location],
    ) -> io::Result<()> {
        let (file, _) = self.reader.geometry.place(segment);
        if self.dirty.contains(&file) {
            self.sync_file(file)?;
        }
        let (start, bytes) = Trailer::write(sequence, epoch_min, id_max, records, self.reader.geometry.segment_bytes);
        self.write(segment, start, &[IoSlice::new(&bytes)])
    }

    fn sync_file(&mut self, file: u32) -> io::Result<()> {
        let outcome =
            self.begin_lives_again(file).and_then(|()| self.reader.file(file).map_or(Ok(()), |open| open.sync()));
        match &outcome {
            Ok(()) => {
                self.reader.note_success();
                self.doubted.remove(&file);
                let geometry = self.reader.geometry;
                self.begun.retain(|(segment, _)| geometry.place(*segment).0 != file);
            }
            Err(error) => {
                self.note_write_error(error);
                self.doubted.insert(file);
            }
        }
        outcome
    }

    /// After a failed sync the heads of new lives are written once more. Were one lost, the life before it could come back
    /// at some later start, with what was replaced or purged since.
    fn begin_lives_again(&mut self, file: u32) -> io::Result<()> {
        if !self.doubted.contains(&file) {
            return Ok(());
        }
        for (segment, sequence) in self.begun.clone() {
            if self.reader.geometry.place(segment).0 == file {
                self.write(segment, 0, &[IoSlice::new(&self.segment_head(sequence).encode())])?;
            }
        }
        Ok(())
    }

    /// Whether nothing waits for being written.
    pub fn batch_is_empty(&self) -> bool {
        self.batch.waiting.is_empty()
    }

    /// Whether anything was written since the last sync.
    pub fn unsynced(&self) -> bool {
        !self.dirty.is_empty() || self.batch.bytes > 0
    }

    /// Writes the batch; all that was written is on disk when this returns without an error.
    pub fn sync(&mut self) -> io::Result<()> {
        let _ = self.flush();
        for file in self.dirty.clone() {
            self.sync_file(file)?;
            self.dirty.remove(&file);
        }
        for sequence in self.overwritten.drain(..) {
            self.on_disk.remove(&sequence);
        }
        self.compact_purges();
        Ok(())
    }

    /// Brings rules and tombstones to disk; without an error they are there.
    pub fn purge(&mut self, purges: &[Purge]) -> io::Result<()> {
        let Some(log) = self.purge_log.as_mut().filter(|_| !purges.is_empty()) else { return Ok(()) };
        let outcome = log.append(purges);
        match &outcome {
            Ok(()) => self.reader.note_success(),
            Err(error) => self.note_write_error(error),
        }
        self.compact_purges();
        outcome
    }

    /// Takes out of the purge log what no power cut can make true again, when it has grown enough.
    fn compact_purges(&mut self) {
        let (oldest, epoch_min) = (self.oldest_on_disk(), self.epoch_min_on_disk());
        let Some(log) = self.purge_log.as_mut().filter(|log| log.entries() >= self.compact_at) else { return };
        self.reader.rules.retire(epoch_min);
        self.retired = self.retired.max(epoch_min.min(self.reader.rules.current_epoch()));
        let outcome = log.compact(|purge, logged| match purge {
            Purge::Rule(rule) if rule.number <= epoch_min => Worth::Void,
            Purge::Rule(rule) if logged.supersede(rule) => Worth::Superseded,
            Purge::Tombstone(tombstone) if tombstone.sequence < oldest => Worth::Void,
            _ => Worth::Needed,
        });
        self.compact_at = (log.entries() * 2).max(purges_compacted_min(&self.settings));
        if let Err(error) = outcome {
            self.note_write_error(&error);
        }
    }

    /// Seals and syncs: the next start has nothing to read record by record.
    pub fn close(&mut self) {
        let _ = self.flush();
        let _ = self.seal();
        let _ = self.sync();
    }

    /// The oldest life that a power cut could bring back: what is said of older ones is void.
    pub fn oldest_on_disk(&self) -> u64 {
        self.on_disk.keys().next().copied().unwrap_or(self.sequence_next)
    }

    /// The lowest epoch of all heads that a power cut could bring back: older rules are void.
    pub fn epoch_min_on_disk(&self) -> u64 {
        self.on_disk.values().copied().min().unwrap_or(u64::MAX)
    }

    /// Takes heads of a key out of the index, one representation's or all; says how many were this key's, and what has to
    /// be remembered. Every earlier record of them lies before the end of the log, be it in the index, recycled and not yet
    /// written over, or lost with a write that failed: whatever a start finds there is covered.
    pub fn kill(&mut self, key: &[u8], id: Option<ObjectId>) -> Killed {
        let _ = self.flush();
        let key_hash = self.reader.key_hash(key);
        let mut killed = Killed::default();
        for location in self.reader.head_locations(key_hash) {
            if id.is_some_and(|id| !location.may_be_of(id)) {
                continue;
            }
            match self.reader.read(location, Patience::Waits) {
                ReadOutcome::Ended(Some(record)) if record.key() != key => continue,
                ReadOutcome::Ended(Some(record)) if id.is_some_and(|id| record.header.id != id.0) => continue,
                ReadOutcome::Ended(Some(record)) => {
                    killed.heads += 1;
                    self.drop_blocks(ObjectId(record.header.id), record.header.length);
                    killed.records.extend(id.map(|_| self.tombstone(location.name(), Reach::Variant)));
                }
                // A record that cannot be read today may be readable tomorrow.
                _ => killed.records.push(self.tombstone(location.name(), Reach::Key)),
            }
            self.reader.remove(location);
        }
        let name = Name::of_head(key_hash, 0);
        if killed.heads > 0 && id.is_none() {
            killed.records.push(self.tombstone(name, Reach::Key));
        } else if let (true, Some((sequence, offset))) = (killed.records.is_empty(), self.hidden_until()) {
            // Of one that is not found nobody knows the variant: all are meant.
            let tombstone = Tombstone { sequence, offset, name: name.0, reach: Reach::Key };
            killed.records.push(Purge::Tombstone(tombstone));
        }
        killed
    }

    /// For what was written until now.
    fn tombstone(&self, name: Name, reach: Reach) -> Purge {
        let (sequence, offset) = self.end_of_log();
        Purge::Tombstone(Tombstone { sequence, offset, name: name.0, reach })
    }

    fn end_of_log(&self) -> (u64, u32) {
        match &self.active {
            Some(active) => (active.sequence, active.filled as u32 - 1),
            None => (self.sequence_next - 1, u32::MAX),
        }
    }

    /// How far what is on disk is perhaps not in the index: lives in free segments; after an error of the device, all. So
    /// a purge of what was never here costs an entry that is soon void, or none.
    fn hidden_until(&self) -> Option<(u64, u32)> {
        let counters = &self.reader.counters;
        let troubles = [&counters.bad_records, &counters.read_errors, &counters.write_errors];
        if troubles.into_iter().any(|count| count.load(std::sync::atomic::Ordering::Relaxed) > 0) {
            return Some(self.end_of_log());
        }
        let hidden = self.left_behind.values().flatten().chain(&self.overwritten);
        // A life that could not be read may have any number.
        if hidden.clone().any(|sequence| *sequence == 0) {
            return Some(self.end_of_log());
        }
        hidden.max().map(|sequence| (*sequence, u32::MAX))
    }

    fn drop_blocks_of(&self, head: Location) {
        // Its slot has gone, but its segment has not: nobody writes there before this writer does.
        if let ReadOutcome::Ended(Some(record)) = self.reader.read(head, Patience::Waits) {
            self.drop_blocks(ObjectId(record.header.id), record.header.length);
        }
    }

    /// Takes the blocks of a body out of the index, now or when its last reader has left.
    pub(super) fn drop_blocks(&self, id: ObjectId, length: Option<u64>) {
        if self.reader.kept.head_has_gone(id, length) {
            return;
        }
        self.each_block(id, length, |pieces| {
            pieces.into_iter().for_each(|piece| _ = self.reader.remove(piece));
            true
        });
    }

    /// Whether a body has any block here.
    pub(super) fn has_blocks(&self, id: ObjectId, length: Option<u64>) -> bool {
        let mut any = false;
        self.each_block(id, length, |_| {
            any = true;
            false
        });
        any
    }

    /// Visits the blocks that are here, until told to stop.
    fn each_block(&self, id: ObjectId, length: Option<u64>, mut visit: impl FnMut(Vec<Location>) -> bool) {
        let blocks = length.map_or(BLOCKS_PROBED_MAX, |length| length.div_ceil(BLOCK_BYTES).min(BLOCKS_PROBED_MAX));
        let mut absent = 0;
        for block in 0..blocks {
            let pieces = self.reader.piece_locations(id, block);
            if pieces.is_empty() {
                absent += 1;
                if length.is_none() && absent > BLOCKS_ABSENT_MAX {
                    return;
                }
                continue;
            }
            absent = 0;
            if !visit(pieces) {
                return;
            }
        }
    }

    /// Pieces that lie within a newer one go.
    fn drop_covered(&self, cover: Written) {
        let start = cover.location.name().offset_in_block();
        let end = start + cover.body_bytes;
        let mut covered = Vec::new();
        self.reader.locations.find(cover.location.name(), |each| {
            let each_start = each.name().offset_in_block();
            let each_end_at_most = (each_start + each.bytes() - HEADER_BYTES as u64).min(BLOCK_BYTES);
            let inside = each_start > start && each_end_at_most <= end;
            if inside && each.kind() == Kind::Extent && each.may_be_of_same_id(cover.location) {
                covered.push(each);
            }
        });
        covered.into_iter().for_each(|each| _ = self.reader.remove(each));
    }
}

/// A purge log of fewer entries is left as it is: the small files have a sixty-fourth of the folder.
fn purges_compacted_min(settings: &LogSettings) -> u64 {
    (settings.disk_bytes / 64 / 4 / PURGE_BYTES).clamp(64, 4096)
}

/// Bytes that a purge takes in the log, frame included.
const PURGE_BYTES: u64 = 40;

/// The effect of [`SegmentWriter::kill`].
#[derive(Debug, Default)]
pub struct Killed {
    /// Heads of the key that went.
    pub heads: usize,
    /// Everything that must not come back: for [`SegmentWriter::purge`].
    pub records: Vec<Purge>,
}

impl Batch {
    fn add_front(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.fronts.len();
        write(&mut self.fronts);
        let end = self.fronts.len();
        match self.pieces.last_mut() {
            _ if start == end => {}
            Some(Piece::Front(last)) if last.end == start => last.end = end,
            _ => self.pieces.push(Piece::Front(start..end)),
        }
    }

    fn add_body(&mut self, piece: &Bytes) {
        if piece.len() <= COPIED_BYTES_MAX {
            return self.add_front(|fronts| fronts.extend_from_slice(piece));
        }
        self.pieces.push(Piece::Body(piece.clone()));
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let slice = |piece| match piece {
            &Piece::Front(Range { start, end }) => IoSlice::new(&self.fronts[start..end]),
            Piece::Body(bytes) => IoSlice::new(bytes),
        };
        self.pieces.iter().map(slice).collect()
    }

    /// Begins anew at a place, with the memory of the last one.
    fn reuse(&mut self, mut last: Batch, start: u64) {
        last.fronts.clear();
        last.pieces.clear();
        last.records.clear();
        *self = Batch { start, bytes: 0, ..last };
    }
}

/// Cuts what begins at a place in a body at the borders of blocks, without copying.
fn cut_at_blocks(mut at: u64, bytes: Vec<Bytes>) -> Vec<Vec<Bytes>> {
    let mut parts: Vec<Vec<Bytes>> = Vec::new();
    for mut piece in bytes {
        while !piece.is_empty() {
            let room = BLOCK_BYTES - at % BLOCK_BYTES;
            let part = piece.split_to((room as usize).min(piece.len()));
            let begins = at.is_multiple_of(BLOCK_BYTES);
            at = at.saturating_add(part.len() as u64);
            match parts.last_mut() {
                Some(last) if !begins => last.push(part),
                _ => parts.push(vec![part]),
            }
        }
    }
    parts
}
