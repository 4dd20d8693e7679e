//! Which segment is written next. When the budget is used up, the oldest is recycled: what was used since it was
//! written moves to the active one, the rest goes.
//!
//! It is always the oldest, never the emptiest: so a newer record never goes before an older one of its name, and
//! nothing that was replaced or removed can come back at the next start. One segment is free at any time, as the
//! place to move to.

use super::locations::Location;
use super::record::{Kind, Record};
use super::rules::Verdict;
use super::segment::{TRAILER_BYTES, Trailer};
use super::segment_reader::{Patience, ReadOutcome, count};
use super::segment_writer::SegmentWriter;
use super::{ObjectId, record};

/// Room is taken from the file system in steps of about this.
const GROW_BYTES: u64 = 64 << 20;

impl SegmentWriter {
    /// Begins the next segment, and sees that one more is free.
    pub(super) fn open_next(&mut self) -> bool {
        if self.free.is_empty() && !self.grow() && !self.recycle_oldest() {
            return false;
        }
        let Some(segment) = self.free.pop_front() else { return false };
        self.activate(segment);
        if self.free.is_empty() && !self.grow() {
            self.recycle_keeping();
        }
        self.note_free();
        true
    }

    pub(super) fn note_free(&self) {
        let free = self.free.len() as u64;
        self.reader.counters.segments_free.store(free, std::sync::atomic::Ordering::Relaxed);
    }

    /// Takes room for more segments; `false` if the budget or the file system has none.
    fn grow(&mut self) -> bool {
        let geometry = self.reader.geometry;
        let per_file = geometry.segments_per_file();
        let Some(file) = (0..geometry.files()).find(|file| {
            let most = per_file.min(geometry.segments - file * per_file);
            self.file_segments[*file as usize] < most
        }) else {
            return false;
        };
        let present = self.file_segments[file as usize];
        let most = per_file.min(geometry.segments - file * per_file);
        let step = ((GROW_BYTES / geometry.segment_bytes) as u32).clamp(1, most - present);
        [step, 1].into_iter().any(|step| self.grow_file(file, present, step))
    }

    fn grow_file(&mut self, file: u32, present: u32, step: u32) -> bool {
        let geometry = self.reader.geometry;
        let more = u64::from(step) * geometry.segment_bytes;
        let free = self.reader.medium.free_bytes().unwrap_or(0);
        if free.saturating_sub(more) < self.settings.free_bytes_min {
            return false;
        }
        let before = u64::from(present) * geometry.segment_bytes;
        let outcome = self.reader.open_file(file).and_then(|open| {
            open.allocate(before + more).inspect_err(|_| drop(open.truncate(before)))?;
            self.reader.medium.sync_names()
        });
        if let Err(error) = outcome {
            // Without more room the segments that exist are recycled; that is no failure of the device.
            if error.kind() != std::io::ErrorKind::StorageFull {
                self.note_write_error(&error);
            }
            return false;
        }
        self.file_segments[file as usize] += step;
        count(&self.reader.counters.allocated_bytes, more);
        let first = file * geometry.segments_per_file() + present;
        self.free.extend(first..first + step);
        true
    }

    /// Frees the oldest segment with all that is in it.
    pub(super) fn recycle_oldest(&mut self) -> bool {
        let Some(victim) = self.sealed.pop_front() else { return false };
        let records = self.records_of(victim);
        self.release(victim, &records);
        true
    }

    /// Frees the oldest segment; what is in use moves to the active one.
    fn recycle_keeping(&mut self) {
        let Some(victim) = self.sealed.pop_front() else { return };
        let records = self.records_of(victim);
        let mut room = self.reader.geometry.segment_bytes / 2;
        for location in self.worth_keeping(&records) {
            if let Some(kept) = self.move_record(location, room) {
                room -= kept;
            }
        }
        // Lost is what could not be moved; its old place is given up all the same.
        let _ = self.flush();
        self.release(victim, &records);
    }

    /// Heads whose blocks are elsewhere first, for without them these are lost; then what was used, small before large.
    fn worth_keeping(&self, records: &[Location]) -> Vec<Location> {
        let present = records.iter().filter_map(|each| self.reader.locations.present(*each));
        let mut kept: Vec<_> = present.filter(|each| each.kind() == Kind::Head || each.uses() > 0).collect();
        kept.sort_by_key(|each| (each.kind() != Kind::Head, each.bytes()));
        kept
    }

    /// Adds a record to the batch again; says what it took.
    fn move_record(&mut self, location: Location, room: u64) -> Option<u64> {
        let ReadOutcome::Ended(Some(found)) = self.reader.read(location, Patience::Waits) else { return None };
        let bytes = found.header.record_bytes();
        if bytes > room || !self.fits(bytes) || !self.has_purpose(&found) {
            return None;
        }
        count(&self.reader.counters.rewritten_bytes, bytes);
        let header = found.header;
        if header.kind == Kind::Extent {
            self.push(header, None, &[found.body()]);
        } else {
            let head = found.into_head_to_store();
            let header = record::head_header(&head, header.key_hash)?;
            self.push(header, Some(&head), head.body.as_deref().unwrap_or_default());
        }
        Some(bytes)
    }

    /// A head has one while any of its body is here, and a block while its head is.
    fn has_purpose(&self, found: &Record) -> bool {
        let id = ObjectId(found.header.id);
        let gone = || self.reader.rules.verdict(found.key(), &found.tags(), found.header.epoch) == Verdict::Gone;
        match found.header.kind {
            Kind::WholeHead => !gone(),
            Kind::Head => !gone() && self.has_blocks(id, found.header.length),
            Kind::Extent => {
                let heads = self.reader.head_locations(found.header.key_hash);
                heads.into_iter().any(|head| head.kind() == Kind::Head && head.may_be_of(id))
            }
        }
    }

    /// First its slots go, then its life ends, then it may be written over.
    fn release(&mut self, segment: u32, records: &[Location]) {
        for location in records {
            self.reader.remove(*location);
        }
        let sequence = self.reader.sequence(segment);
        self.reader.set_sequence(segment, 0);
        self.leave_behind(segment, sequence);
        self.note_free();
        count(&self.reader.counters.segments_recycled, 1);
    }

    /// A segment is free. Its records may still come back after a power cut, until it is written over: a record that was moved
    /// from there is perhaps not on disk yet. A record that is removed meanwhile is covered by its tombstone or rule.
    pub(super) fn leave_behind(&mut self, segment: u32, sequence: u64) {
        self.left_behind.entry(segment).or_default().push(sequence);
        self.free.push_back(segment);
    }

    fn records_of(&self, segment: u32) -> Vec<Location> {
        let index = &self.reader.locations;
        self.read_summary(segment).unwrap_or_else(|| {
            let all = (0..index.shards()).flat_map(|shard| index.shard_content(shard));
            all.filter(|each| each.segment() == segment).collect()
        })
    }

    fn read_summary(&self, segment: u32) -> Option<Vec<Location>> {
        let geometry = &self.reader.geometry;
        let (file, start) = geometry.place(segment);
        let file = self.reader.file(file)?;
        let mut end = [0; TRAILER_BYTES as usize];
        let trailer_at = start + geometry.segment_bytes - TRAILER_BYTES;
        file.read_at(trailer_at, &mut end).ok()?;
        let trailer = Trailer::decode(&end).filter(|trailer| trailer.sequence == self.reader.sequence(segment))?;
        let summary_bytes = trailer.summary_bytes();
        if summary_bytes > geometry.segment_bytes - TRAILER_BYTES {
            return None;
        }
        let mut summary = vec![0; summary_bytes as usize];
        file.read_at(trailer_at - summary_bytes, &mut summary).ok()?;
        trailer.records(&summary, segment, geometry)
    }
}
