//! The durable log of invalidations: rules, and the places of heads that were removed one by one.
//!
//! One file, `purges.log`, append-only:
//!
//! ```text
//! | magic 8 | frame | frame | …      frame: magic u32, body bytes u32, crc u32, entries u32, body, zeros to 8
//! ```
//!
//! [`PurgeLog::append`] returns when its entries are on disk; many that wait at a time share one frame and one sync.
//! Where a start finds anything that is no sound frame (a changed byte, a part that cannot be read, bytes behind the
//! last frame, no file beside stored objects), it cannot know whether that was acknowledged. A rule takes its place that
//! has everything older validated before its next use, and the sound frames are kept. The new file takes the damaged
//! one's name in one step, so no power cut hides the damage. When most of the file is void, [`PurgeLog::compact`] writes
//! the rest anew beside it (decision 029).

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::medium::{Medium, MediumFile};
pub use super::purge_frames::Lost;
use super::purge_frames::{self as frames, BODY_BYTES_WANTED, Frames, MAGIC, PREFIX_BYTES_MAX, is_begun};
use super::record::{u32_at, u64_at};
use super::rules::{Force, RULES_MAX, Rule, Rules, Scope};

/// Heads that were removed: those of a name, or of all variants of a key, written before a place of the log. Copies that
/// no index knows any more may lie there still; none of them may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// A life of a segment: older ones are meant whole.
    pub sequence: u64,
    /// Within that life, what begins at or before this place is meant.
    pub offset: u32,
    /// The name in the index.
    pub name: u64,
    /// The part of the name that counts.
    pub reach: Reach,
}

/// The records that a tombstone covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One variant.
    Variant,
    /// All variants: the tag of the name does not count.
    Key,
}

/// All tombstones that a start has to heed.
#[derive(Debug, Default)]
pub struct Tombstones {
    variants: HashMap<u64, (u64, u32)>,
    keys: HashMap<u64, (u64, u32)>,
}

impl Tombstones {
    /// One more.
    pub fn add(&mut self, tombstone: &Tombstone) {
        let (map, name) = match tombstone.reach {
            Reach::Variant => (&mut self.variants, tombstone.name),
            Reach::Key => (&mut self.keys, tombstone.name & !TAG_MASK),
        };
        let youngest = map.entry(name).or_default();
        *youngest = (*youngest).max((tombstone.sequence, tombstone.offset));
    }

    /// Whether a head was removed.
    pub fn cover(&self, name: u64, sequence: u64, offset: u32) -> bool {
        let covers = |youngest: Option<&(u64, u32)>| youngest.is_some_and(|youngest| (sequence, offset) <= *youngest);
        covers(self.variants.get(&name)) || covers(self.keys.get(&(name & !TAG_MASK)))
    }
}

/// The tag of a name: which variant.
const TAG_MASK: u64 = 0xffff;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// A rule.
    Rule(Rule),
    /// Removed heads.
    Tombstone(Tombstone),
}

/// The worth of an entry of the log, today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// Something stored may be in its scope.
    Needed,
    /// Nothing stored is as old as what it is about.
    Void,
    /// A later entry says the same and more.
    Superseded,
}

/// Whether a folder has to hold a log of purges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Everything that is stored there was stored after its log was begun.
    Yes,
    /// Nothing is stored there yet.
    No,
}

/// The log, open for appending by any number of threads. It keeps nothing in memory of what it holds.
pub struct PurgeLog {
    medium: Arc<dyn Medium>,
    gathering: Mutex<Gathering>,
    turned: Condvar,
    end: Mutex<End>,
}

/// Purges that wait for the next sync.
#[derive(Default)]
struct Gathering {
    bytes: Vec<u8>,
    entries: u32,
    batch: Arc<Mutex<Option<Outcome>>>,
    /// Somebody writes the batch before.
    writing: bool,
}

/// An error's kind and text: each of those who wait gets one.
type Outcome = Result<(), (io::ErrorKind, String)>;

/// Where the next frame goes.
struct End {
    file: Arc<dyn MediumFile>,
    at: u64,
    entries: u64,
    highest_rule: u64,
    /// A new file has its name, but perhaps not on disk.
    names_unsynced: bool,
}

/// The file.
pub const NAME: &str = "purges.log";
/// The file that is to take its place.
pub const NEW_NAME: &str = "purges.new";

impl PurgeLog {
    /// Opens the log, or begins one; tells what it holds, and what of it is lost. `wanted` says that there has to be one,
    /// since the folder holds what was stored after the log was begun.
    ///
    /// `rule_next` is above the numbers of all rules that were ever given: what takes the place of lost ones has it.
    pub fn open(
        medium: Arc<dyn Medium>,
        wanted: Wanted,
        rule_next: u64,
        mut each: impl FnMut(Purge),
    ) -> io::Result<(PurgeLog, Option<Lost>)> {
        let file = medium.open(NAME)?;
        let mut end = End { file, at: MAGIC.len() as u64, entries: 0, highest_rule: 0, names_unsynced: false };
        let begun = is_begun(&*end.file);
        let file = Arc::clone(&end.file);
        let mut frames = Frames::of(&*file)?;
        let mut lost = Lost::default();
        while let Some(frame) = frames.next_sound() {
            lost.note(end.at, frame.at);
            end.at = frames.at;
            each_entry(&frame.body, |purge| {
                end.note(&purge);
                each(purge);
            });
        }
        lost.note(end.at, file.len()?);
        lost.unreadable |= frames.unreadable;
        if !begun && (wanted == Wanted::Yes || end.entries > 0) {
            lost.note(0, MAGIC.len() as u64);
        }
        let nothing_yet = !begun && wanted == Wanted::No && end.entries == 0;
        let log = PurgeLog { medium, gathering: Mutex::default(), turned: Condvar::new(), end: Mutex::new(end) };
        if nothing_yet {
            log.end.lock().begin()?;
            log.medium.sync_names()?;
            return Ok((log, None));
        }
        if lost == Lost::default() {
            log.medium.sync_names()?;
            return Ok((log, None));
        }
        let number = rule_next.max(log.end.lock().highest_rule + 1);
        let rule = Purge::Rule(Rule { number, scope: Scope::All, force: Force::Validate });
        log.write_anew(&mut log.end.lock(), |_| Worth::Needed, Some(&rule))?;
        each(rule);
        Ok((log, Some(lost)))
    }

    /// Writes entries; they are on disk when this returns. After an error none of them counts as written (but some may
    /// come back at the next start, which makes more void than was asked for, never less).
    pub fn append(&self, purges: &[Purge]) -> io::Result<()> {
        if purges.iter().any(is_too_long) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a prefix longer than 64 KiB matches no URL"));
        }
        let mut rest = purges;
        while !rest.is_empty() {
            rest = self.append_some(rest)?;
        }
        Ok(())
    }

    /// As many as fit into one frame with what others wrote; gives those that did not.
    fn append_some<'a>(&self, purges: &'a [Purge]) -> io::Result<&'a [Purge]> {
        let mut gathering = self.gathering.lock();
        while gathering.bytes.len() > BODY_BYTES_WANTED {
            self.turned.wait(&mut gathering);
        }
        let mut taken = 0;
        for purge in purges {
            if gathering.bytes.len() > BODY_BYTES_WANTED {
                break;
            }
            write_entry(&mut gathering.bytes, purge);
            taken += 1;
        }
        gathering.entries += taken as u32;
        let batch = Arc::clone(&gathering.batch);
        while gathering.writing && batch.lock().is_none() {
            self.turned.wait(&mut gathering);
        }
        if batch.lock().is_none() {
            // The first of a batch that finds nobody writing writes for all.
            gathering.writing = true;
            let full = std::mem::take(&mut *gathering);
            gathering.writing = true;
            drop(gathering);
            let highest = highest_rule(&full.bytes);
            let outcome = self.end.lock().write_frame(&*self.medium, &full.bytes, full.entries, highest);
            *batch.lock() = Some(outcome.map_err(|error| (error.kind(), error.to_string())));
            self.gathering.lock().writing = false;
            self.turned.notify_all();
        }
        let outcome = batch.lock().clone();
        match outcome {
            Some(Err((kind, text))) => Err(io::Error::new(kind, text)),
            _ => Ok(&purges[taken..]),
        }
    }

    /// How many entries the file has.
    pub fn entries(&self) -> u64 {
        self.end.lock().entries
    }

    /// The file's length.
    pub fn bytes(&self) -> u64 {
        self.end.lock().at
    }

    /// Writes the entries that are still needed anew; the old file stays in force until the new one is whole on disk. In
    /// place of the void rules stands one hard rule for everything with the highest of their numbers: nothing stored is
    /// that old, and the number is never given again.
    ///
    /// `judge` is also given the rules of this log: what is in force and not on disk (it waits, or its write failed)
    /// takes the place of none of them. Where an entry cannot be read any more the file is left to the next start.
    pub fn compact(&self, judge: impl Fn(&Purge, &Rules) -> Worth) -> io::Result<()> {
        let mut end = self.end.lock();
        let (logged, sound) = end.rules()?;
        if !sound {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "purges.log cannot be read any more: start anew"));
        }
        self.write_anew(&mut end, |purge| judge(purge, &logged), None)
    }

    /// `more` is added to what is kept.
    fn write_anew(&self, end: &mut End, judge: impl Fn(&Purge) -> Worth, more: Option<&Purge>) -> io::Result<()> {
        let file = self.medium.open(NEW_NAME)?;
        file.truncate(0)?;
        file.write_at(0, &[IoSlice::new(MAGIC)])?;
        let mut new = End { file, at: MAGIC.len() as u64, entries: 0, highest_rule: 0, names_unsynced: true };
        let mut kept = Vec::new();
        let mut gone = 0;
        let mut entries = 0;
        let mut frames = end.frames()?;
        while let Some(frame) = frames.next_sound() {
            each_entry(&frame.body, |purge| match (judge(&purge), &purge) {
                (Worth::Needed, _) => {
                    entries += 1;
                    write_entry(&mut kept, &purge);
                }
                (Worth::Void, Purge::Rule(rule)) => gone = rule.number.max(gone),
                _ => {}
            });
            if kept.len() > BODY_BYTES_WANTED {
                new.put_frame(&kept, entries)?;
                kept.clear();
                entries = 0;
            }
        }
        if gone > 0 {
            write_entry(&mut kept, &Purge::Rule(Rule { number: gone, scope: Scope::All, force: Force::Hard }));
            entries += 1;
        }
        new.highest_rule = end.highest_rule;
        if let Some(more) = more {
            write_entry(&mut kept, more);
            entries += 1;
            new.highest_rule = highest_rule(&kept).max(end.highest_rule);
        }
        new.put_frame(&kept, entries)?;
        new.file.sync()?;
        self.medium.rename(NEW_NAME, NAME)?;
        drop(frames);
        *end = new;
        end.sync_names(&*self.medium)
    }
}

impl End {
    fn note(&mut self, purge: &Purge) {
        self.entries += 1;
        if let Purge::Rule(rule) = purge {
            self.highest_rule = self.highest_rule.max(rule.number);
        }
    }

    /// Makes a file that has not begun.
    fn begin(&mut self) -> io::Result<()> {
        self.file.truncate(0)?;
        self.file.write_at(0, &[IoSlice::new(MAGIC)])?;
        self.file.sync()
    }

    /// The frames that were acknowledged.
    fn frames(&self) -> io::Result<Frames<'_>> {
        let mut frames = Frames::of(&*self.file)?;
        frames.length = frames.length.min(self.at);
        Ok(frames)
    }

    /// The rules that can be read, and whether that is all that was acknowledged.
    fn rules(&self) -> io::Result<(Rules, bool)> {
        let (rules, mut sound) = (Rules::new(RULES_MAX), true);
        let mut frames = self.frames()?;
        let mut at = frames.at;
        while let Some(frame) = frames.next_sound() {
            sound &= frame.at == at;
            at = frames.at;
            each_entry(&frame.body, |purge| {
                if let Purge::Rule(rule) = purge {
                    rules.add(&rule);
                }
            });
        }
        Ok((rules, sound && is_begun(&*self.file) && frames.at == self.at))
    }

    fn write_frame(&mut self, medium: &dyn Medium, body: &[u8], entries: u32, highest: u64) -> io::Result<()> {
        self.sync_names(medium)?;
        let start = self.at;
        let written = self.put_frame(body, entries).and_then(|()| self.file.sync());
        if written.is_err() {
            // The part of it that reached the file must not count after a restart.
            let _ = self.file.truncate(start);
            self.at = start;
            self.entries -= u64::from(entries).min(self.entries);
            return written;
        }
        self.highest_rule = self.highest_rule.max(highest);
        Ok(())
    }

    fn put_frame(&mut self, body: &[u8], entries: u32) -> io::Result<()> {
        let frame = frames::frame(body, entries);
        self.at += frame.len() as u64;
        self.entries += u64::from(entries);
        self.file.write_at(self.at - frame.len() as u64, &[IoSlice::new(&frame)])
    }

    /// While the old file could have the name after a power cut, nothing is acknowledged in the new one.
    fn sync_names(&mut self, medium: &dyn Medium) -> io::Result<()> {
        if self.names_unsynced {
            medium.sync_names()?;
            self.names_unsynced = false;
        }
        Ok(())
    }
}

const FORCE_SOFT: u8 = 0;
const FORCE_HARD: u8 = 1;
const FORCE_VALIDATE: u8 = 2;
const KIND_TOMBSTONE: u8 = 1;
const KIND_ALL: u8 = 2;
const KIND_TAG: u8 = 3;
const KIND_PREFIX: u8 = 4;
const KIND_KEY_TOMBSTONE: u8 = 5;
/// Kind, force, two bytes of zero, bytes of the prefix, a number, and one more of tag or name.
const ENTRY_BYTES: usize = 24;

fn is_too_long(purge: &Purge) -> bool {
    matches!(purge, Purge::Rule(Rule { scope: Scope::Prefix(text), .. }) if text.len() > PREFIX_BYTES_MAX)
}

fn write_entry(out: &mut Vec<u8>, purge: &Purge) {
    let mut entry = [0; ENTRY_BYTES];
    match purge {
        Purge::Tombstone(tombstone) => {
            entry[0] = if tombstone.reach == Reach::Key { KIND_KEY_TOMBSTONE } else { KIND_TOMBSTONE };
            entry[4..8].copy_from_slice(&tombstone.offset.to_le_bytes());
            entry[8..16].copy_from_slice(&tombstone.sequence.to_le_bytes());
            entry[16..].copy_from_slice(&tombstone.name.to_le_bytes());
            out.extend_from_slice(&entry);
        }
        Purge::Rule(rule) => {
            entry[1] = match rule.force {
                Force::Soft => FORCE_SOFT,
                Force::Hard => FORCE_HARD,
                Force::Validate => FORCE_VALIDATE,
            };
            entry[8..16].copy_from_slice(&rule.number.to_le_bytes());
            let (kind, prefix) = match &rule.scope {
                Scope::All => (KIND_ALL, &b""[..]),
                Scope::Tag(tag) => {
                    entry[16..].copy_from_slice(&tag.to_le_bytes());
                    (KIND_TAG, &b""[..])
                }
                Scope::Prefix(text) => (KIND_PREFIX, &text[..]),
            };
            entry[0] = kind;
            entry[4..8].copy_from_slice(&(prefix.len() as u32).to_le_bytes());
            out.extend_from_slice(&entry);
            out.extend_from_slice(prefix);
        }
    }
}

/// Entries of a sound frame. One of a kind that this program does not know would be a later format's.
fn each_entry(mut body: &[u8], mut each: impl FnMut(Purge)) {
    while let Some((entry, rest)) = body.split_at_checked(ENTRY_BYTES) {
        let (kind, small) = (entry[0], u32_at(entry, 4));
        let (number, word) = (u64_at(entry, 8), u64_at(entry, 16));
        let prefix_bytes = if kind == KIND_PREFIX { small as usize } else { 0 };
        let Some((prefix, rest)) = rest.split_at_checked(prefix_bytes) else { return };
        body = rest;
        let scope = match kind {
            KIND_ALL => Scope::All,
            KIND_TAG => Scope::Tag(word),
            KIND_PREFIX => Scope::Prefix(prefix.into()),
            KIND_TOMBSTONE | KIND_KEY_TOMBSTONE => {
                let reach = if kind == KIND_TOMBSTONE { Reach::Variant } else { Reach::Key };
                each(Purge::Tombstone(Tombstone { sequence: number, offset: small, name: word, reach }));
                continue;
            }
            _ => return,
        };
        let force = match entry[1] {
            FORCE_SOFT => Force::Soft,
            FORCE_VALIDATE => Force::Validate,
            _ => Force::Hard,
        };
        each(Purge::Rule(Rule { number, scope, force }));
    }
}

fn highest_rule(body: &[u8]) -> u64 {
    let mut highest = 0;
    each_entry(body, |purge| {
        if let Purge::Rule(rule) = purge {
            highest = rule.number.max(highest);
        }
    });
    highest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sim::SimDevice;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::purge_frames::HEADER_BYTES as FRAME_HEADER_BYTES;

    const ROOM: u64 = 64 << 20;

    fn rule(number: u64, scope: Scope, force: Force) -> Purge {
        Purge::Rule(Rule { number, scope, force })
    }

    fn tombstone(number: u64) -> Purge {
        Purge::Tombstone(Tombstone { sequence: number, offset: 4096, name: number << 20, reach: Reach::Variant })
    }

    fn samples() -> Vec<Purge> {
        vec![
            Purge::Tombstone(Tombstone { sequence: 3, offset: 64, name: 7, reach: Reach::Key }),
            rule(1, Scope::All, Force::Soft),
            rule(2, Scope::Tag(u64::MAX), Force::Hard),
            rule(3, Scope::Prefix(b"http://a/b".as_slice().into()), Force::Hard),
        ]
    }

    fn open(device: &SimDevice) -> (PurgeLog, Vec<Purge>) {
        let (log, purges, _) = open_wanted(device, Wanted::No);
        (log, purges)
    }

    fn open_wanted(device: &SimDevice, wanted: Wanted) -> (PurgeLog, Vec<Purge>, Option<Lost>) {
        let mut purges = Vec::new();
        let opened = PurgeLog::open(Arc::new(device.clone()), wanted, 100, |purge| purges.push(purge));
        let (log, lost) = opened.unwrap();
        (log, purges, lost)
    }

    fn validate_all() -> Purge {
        rule(100, Scope::All, Force::Validate)
    }

    fn of_bytes(bytes: &[u8]) -> SimDevice {
        let device = SimDevice::new(ROOM);
        device.put(NAME, bytes);
        device
    }

    /// A log with a frame for each sample.
    fn sample_log() -> Vec<u8> {
        let device = SimDevice::new(ROOM);
        let (log, _) = open(&device);
        samples().iter().for_each(|purge| log.append(std::slice::from_ref(purge)).unwrap());
        device.bytes(NAME)
    }

    #[test]
    fn what_was_appended_is_there_after_a_power_cut() {
        let device = SimDevice::new(ROOM);
        let (log, empty) = open(&device);
        assert!(empty.is_empty());
        log.append(&samples()[..2]).unwrap();
        log.append(&samples()[2..]).unwrap();
        for seed in 0..20 {
            let (again, read) = open(&device.crash(seed));
            assert_eq!(read, samples());
            assert_eq!((again.entries(), again.bytes()), (4, log.bytes()));
        }
        let long = rule(9, Scope::Prefix(vec![b'a'; PREFIX_BYTES_MAX + 1].into()), Force::Hard);
        assert_eq!(log.append(&[tombstone(1), long]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(log.entries(), 4);
    }

    #[test]
    fn a_tombstone_covers_what_is_older() {
        let mut tombstones = Tombstones::default();
        let name = 0xabcd_0000;
        tombstones.add(&Tombstone { sequence: 5, offset: 100, name: name | 1, reach: Reach::Variant });
        tombstones.add(&Tombstone { sequence: 3, offset: 100, name: name | 9, reach: Reach::Key });
        let covered = [(1, 5, 100), (1, 4, 900), (2, 3, 100), (2, 2, 900)];
        let spared = [(1, 5, 101), (1, 6, 0), (2, 3, 101), (2, 5, 0)];
        assert!(covered.into_iter().all(|(tag, sequence, offset)| tombstones.cover(name | tag, sequence, offset)));
        assert!(!spared.into_iter().any(|(tag, sequence, offset)| tombstones.cover(name | tag, sequence, offset)));
        assert!(!tombstones.cover(name + (1 << 16), 1, 0));
    }

    #[test]
    fn bytes_behind_the_last_sound_frame_are_taken_for_a_lost_purge() {
        let device = SimDevice::new(ROOM);
        let (log, _) = open(&device);
        // Where a frame ends: without the zeros behind it, and with them.
        let mut ends = vec![(MAGIC.len(), MAGIC.len())];
        for purge in samples() {
            let mut entry = Vec::new();
            write_entry(&mut entry, &purge);
            let start = device.bytes(NAME).len();
            log.append(&[purge]).unwrap();
            ends.push((start + FRAME_HEADER_BYTES + entry.len(), device.bytes(NAME).len()));
        }
        let whole = device.bytes(NAME);
        for cut in 0..=whole.len() {
            for garbage in [&b""[..], &[0; 40], &[0xff; 9]] {
                let bytes = [&whole[..cut], garbage].concat();
                let device = of_bytes(&bytes);
                let (log, read, lost) = open_wanted(&device, Wanted::Yes);
                let sound = garbage.is_empty() && ends.iter().any(|(end, padded)| (*end..=*padded).contains(&cut));
                assert_eq!(lost.is_none(), sound, "cut at {cut}, {garbage:?}");
                assert_eq!(read.last() == Some(&validate_all()), !sound, "cut at {cut}, {garbage:?}");
                log.append(&samples()[3..]).unwrap();
                assert_eq!(open(&device.crash(1)).1, [&read[..], &samples()[3..]].concat(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_changed_bit_anywhere_has_everything_validated_and_keeps_what_can_be_read() {
        let whole = sample_log();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let device = of_bytes(&bytes);
                let (log, read, lost) = open_wanted(&device, Wanted::Yes);
                let Some(lost) = lost else {
                    assert_eq!((read, whole[at]), (samples(), 0), "only zeros behind an entry say nothing: {at}");
                    continue;
                };
                assert!((lost.at..lost.at + lost.bytes).contains(&(at as u64)), "{lost:?} at {at}");
                let frames_lost = usize::from(at >= MAGIC.len());
                assert_eq!(read.len(), samples().len() - frames_lost + 1, "flipped at {at}");
                assert_eq!(read.last(), Some(&validate_all()));
                drop(log);
                let (_, again, lost) = open_wanted(&device.crash(at as u64), Wanted::Yes);
                assert_eq!((again, lost), (read, None), "the second start finds a sound file");
            }
        }
    }

    #[test]
    fn a_log_that_is_gone_or_cannot_be_read_has_everything_validated() {
        let lost_all = |device: &SimDevice| {
            let (_, read, lost) = open_wanted(device, Wanted::Yes);
            assert_eq!(read.last(), Some(&validate_all()));
            lost.unwrap()
        };
        assert_eq!(lost_all(&SimDevice::new(ROOM)).at, 0);
        let unreadable = of_bytes(&sample_log());
        unreadable.fail_reads_after(0, io::ErrorKind::Other, 1_000);
        lost_all(&unreadable);
        let (_, nothing, lost) = open_wanted(&SimDevice::new(ROOM), Wanted::No);
        assert!(nothing.is_empty() && lost.is_none(), "a new folder");
    }

    #[test]
    fn no_power_cut_hides_the_damage() {
        let mut damaged = sample_log();
        let last = damaged.len() - ENTRY_BYTES;
        damaged[last] ^= 1;
        for cut in 0..20 {
            let device = of_bytes(&damaged);
            device.power_off_after(cut);
            let _ = PurgeLog::open(Arc::new(device.clone()), Wanted::Yes, 100, |_| {});
            for seed in 0..8 {
                let (_, read, _) = open_wanted(&device.crash(seed), Wanted::Yes);
                assert_eq!(read.last(), Some(&validate_all()), "cut at {cut}, seed {seed}");
            }
        }
    }

    #[test]
    fn compaction_keeps_what_it_is_told_to_and_the_numbers() {
        let device = SimDevice::new(ROOM);
        let (log, _) = open(&device);
        log.append(&samples()).unwrap();
        log.compact(|purge, _| match purge {
            Purge::Rule(rule) if rule.number == 1 => Worth::Superseded,
            Purge::Rule(rule) if rule.number == 2 => Worth::Needed,
            _ => Worth::Void,
        })
        .unwrap();
        log.append(&samples()[..1]).unwrap();
        let everything = rule(3, Scope::All, Force::Hard);
        let (again, read) = open(&device.crash(1));
        assert_eq!(read, [&samples()[2..3], std::slice::from_ref(&everything), &samples()[..1]].concat());
        assert_eq!(again.entries(), 3);
        again.compact(|_, _| Worth::Void).unwrap();
        assert_eq!(open(&device.crash(2)).1.last(), Some(&samples()[0]), "another device");
    }

    #[test]
    fn what_is_lost_while_the_log_is_open_is_not_written_off() {
        let device = SimDevice::new(ROOM);
        let (log, _) = open(&device);
        samples().iter().for_each(|purge| log.append(std::slice::from_ref(purge)).unwrap());
        let whole = device.bytes(NAME);
        for at in MAGIC.len()..whole.len() {
            let device = SimDevice::new(ROOM);
            device.put(NAME, &whole);
            let (log, read) = open(&device);
            assert_eq!(read, samples());
            device.open(NAME).unwrap().write_at(at as u64, &[IoSlice::new(&[whole[at] ^ 0x10])]).unwrap();
            let padding = log.compact(|_, _| Worth::Needed).is_ok();
            let expected = if padding { samples().pop() } else { Some(validate_all()) };
            assert_eq!(open(&device).1.last().cloned(), expected, "flipped at {at}");
            assert!(!padding || whole[at] == 0, "flipped at {at}");
        }
    }

    #[test]
    fn acknowledged_purges_outlive_a_power_cut_at_any_moment() {
        for crash_at in 0..90 {
            let device = SimDevice::new(ROOM);
            device.power_off_after(crash_at);
            let mut acknowledged = Vec::new();
            if let Ok((log, _)) = PurgeLog::open(Arc::new(device.clone()), Wanted::No, 100, |_| {}) {
                for number in 1..30 {
                    if log.append(&[tombstone(number)]).is_ok() {
                        acknowledged.push(tombstone(number));
                    }
                    if number % 10 == 0 {
                        let _ = log.compact(|_, _| Worth::Needed);
                    }
                }
            }
            for seed in 0..8 {
                let (_, read) = open(&device.crash(seed));
                assert!(read.starts_with(&acknowledged), "crash at {crash_at}, seed {seed}");
                // One that was not acknowledged, or the rule that stands for it.
                assert!(read.len() <= acknowledged.len() + 1);
            }
        }
    }

    #[test]
    fn after_an_error_the_log_goes_on() {
        for times in 1..4 {
            let device = SimDevice::new(ROOM);
            let (log, _) = open(&device);
            log.append(&[tombstone(1)]).unwrap();
            device.fail_after(0, io::ErrorKind::Other, times);
            let mut expected = vec![tombstone(1)];
            for number in 2..8 {
                if log.append(&[tombstone(number)]).is_ok() {
                    expected.push(tombstone(number));
                }
            }
            assert!(expected.len() > 4);
            assert_eq!(log.entries(), expected.len() as u64);
            for seed in 0..8 {
                assert_eq!(open(&device.crash(seed)).1, expected, "{times} errors");
            }
        }
    }

    #[test]
    fn many_that_wait_share_a_sync() {
        let device = SimDevice::new(ROOM);
        let (log, _) = open(&device);
        device.sync_takes(std::time::Duration::from_millis(5));
        let before = device.syncs();
        let next = AtomicU64::new(1);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        log.append(&[tombstone(next.fetch_add(1, Ordering::Relaxed))]).unwrap();
                    }
                });
            }
        });
        let syncs = device.syncs() - before;
        assert!(syncs < 80, "{syncs} syncs of 160 purges");
        let (_, read) = open(&device.crash(3));
        assert_eq!(read.len(), 160);
    }

    #[test]
    fn many_purges_slow_nothing_down() {
        let device = SimDevice::new(ROOM);
        let (log, _) = open(&device);
        let purges: Vec<Purge> = (1..=1_000).map(tombstone).collect();
        let operations = device.operations();
        for _ in 0..100 {
            log.append(&purges).unwrap();
        }
        // A frame and a sync for each thousand, at the last as at the first.
        assert_eq!(device.operations() - operations, 200);
        assert_eq!(log.entries(), 100_000);
        assert!(log.bytes() < 100_000 * (ENTRY_BYTES as u64 + 1));
        log.compact(|purge, _| match purge {
            Purge::Tombstone(tombstone) if tombstone.sequence > 999 => Worth::Needed,
            _ => Worth::Void,
        })
        .unwrap();
        assert_eq!(log.entries(), 100);
        assert_eq!(open(&device.crash(1)).1.len(), 100);
    }
}
