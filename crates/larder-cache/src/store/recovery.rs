//! The reading of a store at its start: the head of each segment, then the summaries, the newest first, by several threads. A segment
//! without a summary is read record by record. Lookups are served meanwhile.
//!
//! A record that cannot be read must not bring back what it had replaced (decision 029). A record whose header tells its name
//! takes its older copies along. The head of a segment is told by its first record; where that is damaged too, nobody
//! knows what was there, and a rule has everything older validated before its next use.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::ObjectId;
use super::locations::{Location, Name};
use super::purges::{Purge, PurgeLog, Reach, Tombstone, Tombstones};
use super::record::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, Record};
use super::rules::{Force, Rule, Scope};
use super::segment::{HEAD_BYTES, SegmentHead, TRAILER_BYTES, Trailer};
use super::segment_reader::{SegmentReader, count};
use super::segment_writer::{LogSettings, SegmentWriter};
use super::superblock::Numbers;

/// A folder whose index is to be read.
pub struct Recovery {
    pub(super) reader: Arc<SegmentReader>,
    pub(super) settings: LogSettings,
    /// The first numbers that this opening may give.
    pub(super) numbers: Numbers,
    /// Segments that each data file has room for.
    pub(super) file_segments: Vec<u32>,
    pub(super) purge_log: PurgeLog,
    /// Removals whose records must not come back.
    pub(super) tombstones: Tombstones,
    /// The number of the rule that has everything validated, if one is needed.
    pub(super) doubt_rule: u64,
}

/// The description of a segment in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) sequence: u64,
    pub(super) segment: u32,
    pub(super) ids_below: u64,
    pub(super) rules_below: u64,
}

/// The records that were read of a segment.
struct Content {
    records: Vec<Location>,
    /// Heads of which the header alone is sound: what they replaced goes with them.
    lost: Vec<Location>,
    epoch_min: u64,
    id_max: u64,
    sealed: bool,
}

/// The end of a segment that is read in one go: trailer and the summary of most.
const TAIL_BYTES: u64 = 128 << 10;

impl Recovery {
    /// The read side; it can be asked already.
    pub fn reader(&self) -> &Arc<SegmentReader> {
        &self.reader
    }

    /// The first id and the first rule that this opening may give.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Raises the numbers of this opening to those of another folder of the same store.
    pub fn raise_numbers(&mut self, other: Numbers) -> io::Result<()> {
        let raised = self.numbers.max(other);
        if raised != self.numbers {
            raised.write(&*self.reader.medium)?;
            self.numbers = raised;
        }
        Ok(())
    }

    /// Reads it all, by so many threads, and hands out the write side. `progress` is called now and then, and at the end.
    pub fn run(self, threads: usize, progress: impl Fn() + Sync) -> SegmentWriter {
        let survey = survey(&self.reader, &self.file_segments, threads.max(1));
        for life in &survey.lives {
            self.reader.set_sequence(life.segment, life.sequence);
        }
        if survey.damaged > 0 || !survey.unreadable.is_empty() {
            self.doubt_everything();
        }
        let contents = self.read_all(&survey.lives, threads.max(1), &progress);
        self.bury(&survey.lives, &contents);
        self.reader.set_recovered_from(0);
        progress();
        self.into_writer(&survey, contents)
    }

    /// Nobody knows what a segment held: what it had replaced may come back, and is not used before it is validated. The
    /// rule is in force even where it cannot be written; then the next start finds the same damage.
    fn doubt_everything(&self) {
        let rule = Rule { number: self.doubt_rule, scope: Scope::All, force: Force::Validate };
        self.reader.rules.add(&rule);
        if self.purge_log.append(&[Purge::Rule(rule)]).is_err() {
            count(&self.reader.counters.write_errors, 1);
        }
    }

    /// Heads that are lost go, and so does what they replaced, at later starts too.
    fn bury(&self, lives: &[Life], contents: &[Option<Content>]) {
        let mut tombstones = Vec::new();
        for (life, content) in lives.iter().zip(contents) {
            for lost in content.iter().flat_map(|content| &content.lost) {
                self.reader.remove(*lost);
                let (sequence, offset, name) = (life.sequence, lost.offset() as u32, lost.name().0);
                tombstones.push(Purge::Tombstone(Tombstone { sequence, offset, name, reach: Reach::Variant }));
            }
        }
        if self.purge_log.append(&tombstones).is_err() {
            count(&self.reader.counters.write_errors, 1);
        }
    }

    fn read_all(&self, lives: &[Life], threads: usize, progress: &(impl Fn() + Sync)) -> Vec<Option<Content>> {
        let reading = Reading {
            lives,
            next: Mutex::new(0),
            cut: AtomicU64::new(0),
            progress: Mutex::new(Progress { done: 0, contents: lives.iter().map(|_| None).collect() }),
        };
        let mut sheet = Sheet::new(self.reader.locations.shards());
        self.reserve_after_first(&reading, &mut sheet);
        progress();
        let work = || {
            let mut sheet = Sheet::new(self.reader.locations.shards());
            while self.read_batch(&reading, &mut sheet).is_some() {
                progress();
            }
        };
        std::thread::scope(|scope| {
            for number in 1..threads {
                let builder = std::thread::Builder::new().name(format!("recovery-{number}"));
                // Without another thread this one reads all.
                let _ = builder.spawn_scoped(scope, work);
            }
            work();
        });
        self.leave_out(lives, reading.cut.into_inner());
        reading.progress.into_inner().contents
    }

    /// The first few segments tell how large the index will be: tables that need not grow fill twice as fast.
    fn reserve_after_first(&self, reading: &Reading<'_>, sheet: &mut Sheet) {
        let (mut segments, mut records) = (0, 0);
        while segments < SEGMENTS_SAMPLED {
            let Some((read, found)) = self.read_batch(reading, sheet) else { return };
            segments += read;
            records += found;
        }
        let expected = records as u64 * reading.lives.len() as u64 / segments as u64;
        self.reader.locations.reserve(expected / 10 * 9, self.settings.index_bytes_max);
    }

    /// Reads the next segments and enters their records; says how many of both.
    fn read_batch(&self, reading: &Reading<'_>, sheet: &mut Sheet) -> Option<(usize, usize)> {
        let batch = reading.take_batch()?;
        let contents: Vec<Content> = batch.iter().map(|life| self.read_segment(*life)).collect();
        let records = contents.iter().map(|content| content.records.len()).sum();
        if !self.enter(batch, &contents, reading, sheet) {
            // Together they do not fit into the index; some of them may.
            for (life, content) in batch.iter().zip(&contents) {
                let (life, content) = (std::slice::from_ref(life), std::slice::from_ref(content));
                if !self.enter(life, content, reading, sheet) {
                    reading.cut.fetch_max(life[0].sequence, Ordering::Relaxed);
                    break;
                }
            }
        }
        reading.progress.lock().note(reading.lives, batch, contents, &self.reader);
        Some((batch.len(), records))
    }

    /// `false`: the index has no room for them.
    fn enter(&self, lives: &[Life], contents: &[Content], reading: &Reading<'_>, sheet: &mut Sheet) -> bool {
        let index = &self.reader.locations;
        sheet.shards.iter_mut().for_each(Vec::clear);
        for (life, content) in lives.iter().zip(contents) {
            for location in content.records.iter().chain(&content.lost).filter(|each| self.is_alive(life, **each)) {
                sheet.shards[index.shard_of(location.name())].push(*location);
            }
        }
        for (shard, locations) in sheet.shards.iter().enumerate() {
            let newest = lives.first().map_or(0, |life| life.sequence);
            if newest <= reading.cut.load(Ordering::Relaxed) {
                return true;
            }
            if index.many_would_pass(shard, locations.len(), self.settings.index_bytes_max) {
                return false;
            }
            self.reader.insert_many(shard, locations);
        }
        true
    }

    fn is_alive(&self, life: &Life, location: Location) -> bool {
        let (name, offset) = (location.name().0, location.offset() as u32);
        location.kind() == Kind::Extent || !self.tombstones.cover(name, life.sequence, offset)
    }

    /// Segments that do not fit into the index go as if they had been recycled.
    fn leave_out(&self, lives: &[Life], cut: u64) {
        if cut == 0 {
            return;
        }
        self.reader.remove_segments(|segment| self.reader.sequence(segment) <= cut);
        for life in lives.iter().filter(|life| life.sequence <= cut) {
            self.reader.set_sequence(life.segment, 0);
        }
    }

    fn read_segment(&self, life: Life) -> Content {
        self.read_sealed(life).unwrap_or_else(|| self.read_unsealed(life))
    }

    fn read_sealed(&self, life: Life) -> Option<Content> {
        let geometry = &self.reader.geometry;
        let (file, start) = geometry.place(life.segment);
        let file = self.reader.file(file)?;
        let mut tail = vec![0; TAIL_BYTES.min(geometry.segment_bytes) as usize];
        let end = start + geometry.segment_bytes;
        file.read_at(end - tail.len() as u64, &mut tail).ok()?;
        let trailer = Trailer::decode(&tail[tail.len() - TRAILER_BYTES as usize..])?;
        let wanted = trailer.summary_bytes() + TRAILER_BYTES;
        if trailer.sequence != life.sequence || wanted > geometry.segment_bytes {
            return None;
        }
        if wanted > tail.len() as u64 {
            tail = vec![0; wanted as usize];
            file.read_at(end - wanted, &mut tail).ok()?;
        }
        let summary = &tail[tail.len() - wanted as usize..tail.len() - TRAILER_BYTES as usize];
        let records = trailer.records(summary, life.segment, geometry)?;
        let (epoch_min, id_max) = (trailer.epoch_min, trailer.id_max);
        Some(Content { records, lost: Vec::new(), epoch_min, id_max, sealed: true })
    }

    fn read_unsealed(&self, life: Life) -> Content {
        let geometry = &self.reader.geometry;
        let (file, start) = geometry.place(life.segment);
        let mut content =
            Content { records: Vec::new(), lost: Vec::new(), epoch_min: u64::MAX, id_max: 0, sealed: false };
        let mut bytes = vec![0; geometry.segment_bytes as usize];
        let count = self.reader.file(file).map(|file| file.read_at(start, &mut bytes));
        let Some(Ok(count)) = count else {
            count_bad(&self.reader);
            self.doubt_everything();
            return content;
        };
        bytes.truncate(count);
        let bytes = Bytes::from(bytes);
        let mut at = HEAD_BYTES;
        while let Some((place, header, is_sound)) = next_record(&bytes, at, life.sequence) {
            if !geometry.fits(place, content.records.len(), header.record_bytes()) {
                break;
            }
            let location = self.location(&header, life.segment, place);
            if is_sound {
                content.add(&header, location);
            } else {
                count_bad(&self.reader);
                content.lost.extend(Some(location).filter(|each| each.kind() != Kind::Extent));
            }
            at = place + header.record_bytes();
        }
        content
    }

    fn location(&self, header: &Header, segment: u32, at: u64) -> Location {
        let name = match header.kind {
            Kind::Extent => Name::of_extent(self.reader.identity.hash_seed, ObjectId(header.id), header.offset),
            Kind::Head | Kind::WholeHead => Name::of_head(header.key_hash, header.variant),
        };
        Location::new(name, header.kind, header.id, segment, at, header.exact_bytes())
    }

    fn into_writer(self, survey: &Survey, contents: Vec<Option<Content>>) -> SegmentWriter {
        let mut writer = SegmentWriter::new(Arc::clone(&self.reader), self.settings);
        writer.sequence_next = self.numbers.sequence;
        writer.numbers_below = self.numbers.of_next_opening();
        writer.purge_log = Some(self.purge_log);
        let taken = survey.lives.iter().map(|life| life.segment).chain(survey.unreadable.iter().copied());
        let taken: HashSet<u32> = taken.collect();
        writer.free.extend(all_segments(&self.reader, &self.file_segments).filter(|segment| !taken.contains(segment)));
        writer.file_segments = self.file_segments;
        for segment in &survey.unreadable {
            // Nobody knows what it would bring back. Writing often mends what cannot be read.
            writer.on_disk.insert(0, 0);
            writer.leave_behind(*segment, 0);
        }
        for (life, content) in survey.lives.iter().zip(contents).rev() {
            writer.on_disk.insert(life.sequence, content.as_ref().map_or(0, |content| content.epoch_min));
            match content {
                Some(content) if writer.reader.sequence(life.segment) > 0 => writer.take_over(life, &content),
                _ => writer.free_left_out(life),
            }
        }
        writer.note_free();
        writer
    }
}

impl SegmentWriter {
    fn take_over(&mut self, life: &Life, content: &Content) {
        self.sealed.push_back(life.segment);
        if !content.sealed {
            // If that fails it is read record by record at the next start, too.
            let _ = self.seal_as(life.segment, life.sequence, content.epoch_min, content.id_max, &content.records);
        }
    }

    fn free_left_out(&mut self, life: &Life) {
        self.leave_behind(life.segment, life.sequence);
    }
}

/// Segments read before the size of the index is guessed.
const SEGMENTS_SAMPLED: usize = 4;
/// Segments whose records are entered together.
const BATCH_SEGMENTS_MAX: usize = 32;

/// The state that the threads of a recovery share.
struct Reading<'a> {
    lives: &'a [Life],
    next: Mutex<usize>,
    /// This life and all older ones found no room in the index.
    cut: AtomicU64,
    progress: Mutex<Progress>,
}

impl<'a> Reading<'a> {
    /// The first ones alone, so that something is found soon; then more at a time.
    fn take_batch(&self) -> Option<&'a [Life]> {
        let mut next = self.next.lock();
        let start = *next;
        let end = (start + (start / 4).clamp(1, BATCH_SEGMENTS_MAX)).min(self.lives.len());
        *next = end;
        Some(&self.lives[start..end]).filter(|batch| !batch.is_empty())
    }
}

/// Records by shard.
struct Sheet {
    shards: Vec<Vec<Location>>,
}

impl Sheet {
    fn new(shards: usize) -> Sheet {
        Sheet { shards: vec![Vec::new(); shards] }
    }
}

impl Content {
    fn add(&mut self, header: &Header, location: Location) {
        if header.kind != Kind::Extent {
            self.epoch_min = self.epoch_min.min(header.epoch);
        }
        self.id_max = self.id_max.max(header.id);
        self.records.push(location);
    }
}

struct Progress {
    /// So many of the newest are in the index without a gap.
    done: usize,
    contents: Vec<Option<Content>>,
}

impl Progress {
    fn note(&mut self, lives: &[Life], batch: &[Life], contents: Vec<Content>, reader: &SegmentReader) {
        let newest = batch.first().map_or(0, |life| life.sequence);
        let start = lives.partition_point(|life| life.sequence > newest);
        for (place, content) in self.contents[start..].iter_mut().zip(contents) {
            // Those of a sealed segment are in its summary whenever they are wanted.
            let records = if content.sealed { Vec::new() } else { content.records };
            *place = Some(Content { records, ..content });
        }
        while self.contents.get(self.done).is_some_and(Option::is_some) {
            reader.set_recovered_from(lives[self.done].sequence);
            self.done += 1;
        }
    }
}

fn sound_record(bytes: &Bytes, at: u64, sequence: u64) -> Option<Record> {
    let rest = bytes.slice(usize::try_from(at).ok().filter(|at| *at + HEADER_BYTES <= bytes.len())?..);
    debug_assert!(at.is_multiple_of(ALIGN_BYTES));
    let payload = rest.slice(HEADER_BYTES..);
    Record::verify(&rest, payload, sequence)
}

/// The header of a record of which not everything is sound: of one bit of the header or of anything behind it. A record that was
/// being written when the power went looks the same.
fn damaged_record(bytes: &Bytes, at: u64, sequence: u64) -> Option<Header> {
    let rest = bytes.get(usize::try_from(at).ok()?..)?;
    let header = Header::decode(rest).or_else(|| Header::decode_with_one_bit_wrong(rest))?;
    (header.sequence == sequence).then_some(header)
}

/// The record of this life that begins at a place, or else the next sound one behind it: where, its header, and whether all
/// of it is sound.
fn next_record(bytes: &Bytes, at: u64, sequence: u64) -> Option<(u64, Header, bool)> {
    if let Some(record) = sound_record(bytes, at, sequence) {
        return Some((at, record.header, true));
    }
    if let Some(header) = damaged_record(bytes, at, sequence) {
        return Some((at, header, false));
    }
    let mut places = (at + ALIGN_BYTES..bytes.len() as u64).step_by(ALIGN_BYTES as usize);
    places.find_map(|place| {
        // Most of what lies there is no header: it is not looked at twice.
        Header::decode(&bytes[place as usize..]).filter(|header| header.sequence == sequence)?;
        sound_record(bytes, place, sequence).map(|record| (place, record.header, true))
    })
}

fn count_bad(reader: &SegmentReader) {
    count(&reader.counters.bad_records, 1);
}

/// The facts in the heads of all segments.
pub(super) struct Survey {
    /// The newest first.
    pub(super) lives: Vec<Life>,
    /// Segments whose head could not be read.
    unreadable: Vec<u32>,
    /// How many segments have a head and a first record that are not sound.
    damaged: u32,
}

fn all_segments(reader: &SegmentReader, file_segments: &[u32]) -> impl Iterator<Item = u32> {
    let per_file = reader.geometry.segments_per_file();
    (0u32..).zip(file_segments).flat_map(move |(file, segments)| file * per_file..file * per_file + segments)
}

/// Reads the heads of all segments, by so many threads.
pub(super) fn survey(reader: &SegmentReader, file_segments: &[u32], threads: usize) -> Survey {
    let all: Vec<u32> = all_segments(reader, file_segments).collect();
    let found = Mutex::new(Survey { lives: Vec::new(), unreadable: Vec::new(), damaged: 0 });
    let read = |part: &[u32]| {
        for segment in part {
            match read_head(reader, *segment) {
                Ok(Head::Free) => {}
                Ok(Head::Life(life)) => found.lock().lives.push(life),
                Ok(Head::Damaged) => found.lock().damaged += 1,
                Err(_) => {
                    count(&reader.counters.read_errors, 1);
                    found.lock().unreadable.push(*segment);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for part in all.chunks(all.len().div_ceil(threads).max(1)) {
            if std::thread::Builder::new().spawn_scoped(scope, || read(part)).is_err() {
                read(part);
            }
        }
    });
    let mut survey = found.into_inner();
    survey.lives.sort_by_key(|life| std::cmp::Reverse(life.sequence));
    survey
}

/// The outcome of reading the beginning of a segment.
enum Head {
    /// Nothing was written there, or by another store.
    Free,
    Life(Life),
    /// Something was written there, and nobody knows what.
    Damaged,
}

fn read_head(reader: &SegmentReader, segment: u32) -> io::Result<Head> {
    let (file, start) = reader.geometry.place(segment);
    let Some(file) = reader.file(file) else { return Ok(Head::Free) };
    // The first record's header is in the same sector: they were written together.
    let mut bytes = [0; HEAD_BYTES as usize + HEADER_BYTES];
    file.read_at(start, &mut bytes)?;
    let (head, first) = bytes.split_at(HEAD_BYTES as usize);
    if let Some(head) = SegmentHead::decode(head) {
        let ours = head.identity == reader.identity && head.sequence > 0;
        let (ids_below, rules_below) = (head.ids_below, head.rules_below);
        let life = Life { sequence: head.sequence, segment, ids_below, rules_below };
        return Ok(if ours { Head::Life(life) } else { Head::Free });
    }
    if head.iter().all(|&byte| byte == 0) && Header::decode(first).is_none() {
        return Ok(Head::Free);
    }
    count_bad(reader);
    let Some(first) = Header::decode(first).filter(|first| first.sequence > 0) else { return Ok(Head::Damaged) };
    let below = Numbers { id: first.id, sequence: first.sequence, rule: first.epoch }.of_next_opening();
    Ok(Head::Life(Life { sequence: first.sequence, segment, ids_below: below.id, rules_below: below.rule }))
}
