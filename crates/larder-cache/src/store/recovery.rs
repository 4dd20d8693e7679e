//! What a start reads: the head of each segment, then the summaries, the newest first, by several threads. A segment
//! without a summary is read record by record until the first that is not sound. Look-ups are served meanwhile.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::ObjectId;
use super::locations::{Location, Name};
use super::pen::{LogSettings, Pen};
use super::purges::PurgeLog;
use super::record::{ALIGN_BYTES, HEADER_BYTES, Header, Kind, Record};
use super::segment::{HEAD_BYTES, SegmentHead, TRAILER_BYTES, Trailer};
use super::shelf::{Shelf, count};
use super::superblock::Numbers;

/// A folder whose index is to be read.
pub struct Recovery {
    pub(super) shelf: Arc<Shelf>,
    pub(super) settings: LogSettings,
    /// What this opening may give.
    pub(super) numbers: Numbers,
    /// Segments that each data file has room for.
    pub(super) file_segments: Vec<u32>,
    pub(super) purge_log: PurgeLog,
    /// By name, the youngest record that must not come back, nor any older one.
    pub(super) tombstones: HashMap<u64, (u64, u64)>,
}

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) sequence: u64,
    pub(super) segment: u32,
    pub(super) ids_below: u64,
    pub(super) rules_below: u64,
}

/// What was read of a segment.
struct Content {
    records: Vec<Location>,
    epoch_min: u64,
    id_max: u64,
    sealed: bool,
}

/// The end of a segment that is read in one go: trailer and the summary of most.
const TAIL_BYTES: u64 = 128 << 10;

impl Recovery {
    /// The read side; it can be asked already.
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// The first id and the first rule that this opening may give.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Raises the numbers of this opening to those of another folder of the same store.
    pub fn raise_numbers(&mut self, other: Numbers) -> io::Result<()> {
        let raised = self.numbers.max(other);
        if raised != self.numbers {
            raised.write(&*self.shelf.medium)?;
            self.numbers = raised;
        }
        Ok(())
    }

    /// Reads it all, by so many threads, and hands out the write side.
    pub fn run(self, threads: usize) -> Pen {
        let lives = survey(&self.shelf, &self.file_segments);
        for life in &lives {
            self.shelf.set_sequence(life.segment, life.sequence);
        }
        let contents = self.read_all(&lives, threads.max(1));
        self.shelf.set_recovered_from(0);
        self.into_pen(&lives, contents)
    }

    fn read_all(&self, lives: &[Life], threads: usize) -> Vec<Option<Content>> {
        let next = AtomicUsize::new(0);
        // This life and all older ones found no room in the index.
        let cut = AtomicU64::new(0);
        let contents: Mutex<Progress> =
            Mutex::new(Progress { done: 0, contents: lives.iter().map(|_| None).collect() });
        let work = || {
            while let Some(life) = lives.get(next.fetch_add(1, Ordering::Relaxed)) {
                let content = self.read_segment(*life);
                self.enter_all(life, &content.records, &cut);
                let content = Content { records: if content.sealed { Vec::new() } else { content.records }, ..content };
                contents.lock().note(lives, life, content, &self.shelf);
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
        self.leave_out(lives, cut.into_inner());
        contents.into_inner().contents
    }

    fn enter_all(&self, life: &Life, records: &[Location], cut: &AtomicU64) {
        for location in records {
            if self.shelf.locations.would_pass(location.name(), self.settings.index_bytes_max) {
                cut.fetch_max(life.sequence, Ordering::Relaxed);
            }
            if life.sequence <= cut.load(Ordering::Relaxed) {
                return;
            }
            let killed = self.tombstones.get(&location.name().0);
            if killed.is_none_or(|youngest| *youngest < (life.sequence, location.offset())) {
                self.shelf.insert(*location);
            }
        }
    }

    /// What does not fit into the index goes as if it had been recycled.
    fn leave_out(&self, lives: &[Life], cut: u64) {
        if cut == 0 {
            return;
        }
        self.shelf.remove_segments(|segment| self.shelf.sequence(segment) <= cut);
        for life in lives.iter().filter(|life| life.sequence <= cut) {
            self.shelf.set_sequence(life.segment, 0);
        }
    }

    fn read_segment(&self, life: Life) -> Content {
        self.read_sealed(life).unwrap_or_else(|| self.read_unsealed(life))
    }

    fn read_sealed(&self, life: Life) -> Option<Content> {
        let geometry = &self.shelf.geometry;
        let (file, start) = geometry.place(life.segment);
        let file = self.shelf.file(file)?;
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
        Some(Content { records, epoch_min: trailer.epoch_min, id_max: trailer.id_max, sealed: true })
    }

    fn read_unsealed(&self, life: Life) -> Content {
        let geometry = &self.shelf.geometry;
        let (file, start) = geometry.place(life.segment);
        let mut content = Content { records: Vec::new(), epoch_min: u64::MAX, id_max: 0, sealed: false };
        let mut bytes = vec![0; geometry.segment_bytes as usize];
        let count = self.shelf.file(file).map(|file| file.read_at(start, &mut bytes));
        let Some(Ok(count)) = count else { return content };
        bytes.truncate(count);
        let bytes = Bytes::from(bytes);
        let mut at = HEAD_BYTES;
        while let Some(record) = sound_record(&bytes, at, life.sequence) {
            let header = record.header;
            if !geometry.fits(at, content.records.len(), header.record_bytes()) {
                break;
            }
            content.add(&header, self.location(&header, life.segment, at));
            at += header.record_bytes();
        }
        content
    }

    fn location(&self, header: &Header, segment: u32, at: u64) -> Location {
        let name = match header.kind {
            Kind::Extent => Name::of_extent(self.shelf.identity.hash_seed, ObjectId(header.id), header.offset),
            Kind::Head | Kind::WholeHead => Name::of_head(header.key_hash, header.variant),
        };
        Location::new(name, header.kind, header.id, segment, at, header.exact_bytes())
    }

    fn into_pen(self, lives: &[Life], contents: Vec<Option<Content>>) -> Pen {
        let mut pen = Pen::new(Arc::clone(&self.shelf), self.settings);
        pen.sequence_next = self.numbers.sequence;
        pen.numbers_below = self.numbers.of_next_opening();
        pen.purge_log = Some(self.purge_log);
        let alive: std::collections::HashSet<u32> = lives.iter().map(|life| life.segment).collect();
        let per_file = self.shelf.geometry.segments_per_file();
        for (file, segments) in (0..).zip(&self.file_segments) {
            let first = file * per_file;
            pen.free.extend((first..first + segments).filter(|segment| !alive.contains(segment)));
        }
        pen.file_segments = self.file_segments;
        for (life, content) in lives.iter().zip(contents).rev() {
            let epoch_min = content.as_ref().map_or(0, |content| content.epoch_min);
            pen.on_disk.insert(life.sequence, epoch_min);
            if pen.shelf.sequence(life.segment) == 0 {
                pen.left_behind.entry(life.segment).or_default().push(life.sequence);
                pen.free.push_back(life.segment);
                continue;
            }
            pen.sealed.push_back(life.segment);
            if let Some(content) = content.filter(|content| !content.sealed) {
                pen.seal_as(life.segment, life.sequence, content.epoch_min, content.id_max, &content.records);
            }
        }
        pen.note_free();
        pen
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
    fn note(&mut self, lives: &[Life], life: &Life, content: Content, shelf: &Shelf) {
        if let Ok(at) =
            lives.binary_search_by_key(&std::cmp::Reverse(life.sequence), |each| std::cmp::Reverse(each.sequence))
        {
            self.contents[at] = Some(content);
        }
        while self.contents.get(self.done).is_some_and(Option::is_some) {
            shelf.set_recovered_from(lives[self.done].sequence);
            self.done += 1;
        }
    }
}

fn sound_record(bytes: &Bytes, at: u64, sequence: u64) -> Option<Record> {
    let rest = bytes.slice(usize::try_from(at).ok().filter(|at| *at + HEADER_BYTES <= bytes.len())?..);
    debug_assert!(at.is_multiple_of(ALIGN_BYTES));
    Record::verify(rest, sequence)
}

/// The lives of all segments, the newest first.
pub(super) fn survey(shelf: &Shelf, file_segments: &[u32]) -> Vec<Life> {
    let per_file = shelf.geometry.segments_per_file();
    let mut lives = Vec::new();
    for (file, segments) in (0u32..).zip(file_segments) {
        for segment in file * per_file..file * per_file + segments {
            lives.extend(read_head(shelf, segment));
        }
    }
    lives.sort_by_key(|life| std::cmp::Reverse(life.sequence));
    lives
}

fn read_head(shelf: &Shelf, segment: u32) -> Option<Life> {
    let (file, start) = shelf.geometry.place(segment);
    let mut bytes = [0; HEAD_BYTES as usize];
    let outcome = shelf.file(file)?.read_at(start, &mut bytes);
    if outcome.is_err() {
        count(&shelf.counters.read_errors, 1);
    }
    let head = SegmentHead::decode(&bytes).filter(|head| head.identity == shelf.identity && head.sequence > 0)?;
    Some(Life { sequence: head.sequence, segment, ids_below: head.ids_below, rules_below: head.rules_below })
}
