//! The store against power cuts: a driver writes, replaces, purges and recycles on a simulated device, the power goes at
//! an operation that a seed chooses, what was not synced is kept, lost or torn, and everything is read back.
//!
//! `CRASH_POINTS=10000` tries so many; `CRASH_SEED=7` tries one again.

use super::crash_model;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crash_model::{Attempt, Draw, KEYS, Model, VARIANTS, body, body_bytes, is_inline, key_text, prefix, tags};
use larder_cache::store::log::{self, Notice};
use larder_cache::store::purges::Purge;
use larder_cache::store::rules::{Force, Rule, Scope};
use larder_cache::store::segment_reader::{Patience, ReadOutcome};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::superblock::{Identity, Superblock};
use larder_cache::store::{BLOCK_BYTES, ObjectId, Put, Putting, Stats};

const MIB: u64 = 1 << 20;
/// Cuts that one device lives through, one after the other.
const CUTS: u64 = 4;
const POINTS: u64 = 400;
const STEPS: u64 = 120;

#[test]
fn nothing_wrong_is_ever_read_back_after_a_power_cut() {
    if let Some(seed) = number_in("CRASH_SEED") {
        return live(seed);
    }
    for seed in 0..number_in("CRASH_POINTS").unwrap_or(POINTS).div_ceil(CUTS) {
        let told = Told(seed);
        live(seed);
        drop(told);
    }
}

fn number_in(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Says which seed it was when a run ends in a panic.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again: CRASH_SEED={} cargo test -p larder-cache --test all crash::", self.0);
        }
    }
}

/// How a device is used.
#[derive(Clone, Copy)]
struct Habits {
    disk_bytes: u64,
    index_bytes: u64,
    faults: bool,
}

/// The life of a device: used, cut off, opened, read back, and again.
fn live(seed: u64) {
    let mut draw = Draw(seed.wrapping_mul(0x1000_0001));
    let roomy = draw.one_in(2);
    let habits = Habits {
        disk_bytes: if roomy { 32 * MIB } else { (2 + draw.below(2)) * MIB },
        index_bytes: if !roomy && draw.one_in(4) { 24 << 10 } else { 16 * MIB },
        faults: draw.one_in(4),
    };
    let mut model = Model::default();
    model.roomy = roomy;
    let mut device = SimDevice::new(64 * MIB);
    // A seed of the hashes that is not drawn anew in each run.
    let identity = Identity { uuid: 1, hash_seed: seed, segment_bytes: 256 << 10 };
    Superblock::write(&device, &identity).expect("an empty device takes it");
    for _ in 0..CUTS {
        let cut_at = if draw.one_in(8) { draw.below(12) } else { draw.below(260) };
        device.power_off_after(cut_at);
        if let Some(mut play) = Play::begin(device.clone(), habits, &mut model) {
            play.run(&mut draw);
        }
        device = device.crash(draw.next());
        model.restarted();
        let mut play = Play::begin(device.clone(), habits, &mut model).expect("it opens after a power cut");
        // Those that were being written when the power went.
        let torn = play.stats().bad_records;
        play.model.torn = torn > 0;
        play.read_all(true);
        // Where a segment was being written over, its last life may come back with what is left of it.
        let spared = play.model.faults || !play.model.roomy;
        assert!(spared || play.stats().bad_records == torn, "{:?}", play.stats());
    }
}

/// Devices that live until a clean end or a power cut, and are then opened with one bit changed, again and again.
const FLIPPED: u64 = 8;
/// Bits changed in each of the files, beside those in the heads and trailers of segments.
const FLIPS: u64 = 40;

#[test]
fn nothing_purged_or_replaced_comes_back_unvalidated_after_a_changed_bit() {
    if let Some(seed) = number_in("CRASH_SEED") {
        return flip(seed);
    }
    for seed in 0..number_in("FLIPPED").unwrap_or(FLIPPED) {
        let told = Told(seed);
        flip(seed);
        drop(told);
    }
}

fn flip(seed: u64) {
    let mut draw = Draw(seed.wrapping_mul(0x2000_0003));
    let habits =
        Habits { disk_bytes: if draw.one_in(2) { 32 * MIB } else { 2 * MIB }, index_bytes: 16 * MIB, faults: false };
    let mut model = Model::default();
    let device = SimDevice::new(64 * MIB);
    let identity = Identity { uuid: 1, hash_seed: seed, segment_bytes: 256 << 10 };
    Superblock::write(&device, &identity).expect("an empty device takes it");
    let mut play = Play::begin(device.clone(), habits, &mut model).expect("it opens");
    play.run(&mut draw);
    play.storm(&mut draw);
    play.run(&mut draw);
    if draw.one_in(2) {
        play.flush();
        play.writer.close();
        play.tell_all();
    }
    drop(play);
    let crash = draw.next();
    let sound = device.crash(crash);
    model.restarted();
    // The records that a start finds without a changed bit: nothing older may come back with one.
    let mut play = Play::begin(device.crash(crash), habits, &mut model).expect("it opens after a power cut");
    play.model.torn = play.stats().bad_records > 0;
    play.read_all(true);
    drop(play);
    for name in sound.names() {
        let bytes = sound.bytes(&name);
        let used: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
        let drawn: Vec<usize> = (0..FLIPS).map(|_| used[draw.below(used.len() as u64) as usize]).collect();
        let heads = heads_of(&bytes).filter(|_| name.starts_with("data-"));
        let places = drawn.into_iter().chain(heads);
        for at in places {
            let device = device.crash(crash);
            let mut changed = bytes.clone();
            changed[at] ^= 1 << draw.below(8);
            device.put(&name, &changed);
            let mut model = model.clone();
            model.restarted();
            model.damaged = true;
            let told = Flipped(&name, at);
            Play::begin(device, habits, &mut model).expect("it opens").read_all(true);
            drop(told);
        }
    }
}

/// Some bytes of the head and of the trailer of each segment.
fn heads_of(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let segments = (0..bytes.len()).step_by(256 << 10).filter(|&start| bytes[start] != 0);
    segments.flat_map(|start| [start + 1, start + 20, start + 38, start + 62, start + (256 << 10) - 50])
}

/// Says which byte it was when a run ends in a panic.
struct Flipped<'a>(&'a str, usize);

impl Drop for Flipped<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("byte {} of {} was changed", self.1, self.0);
        }
    }
}

/// A store at work, as the threads of a folder use it.
struct Play<'a> {
    device: SimDevice,
    writer: SegmentWriter,
    model: &'a mut Model,
    habits: Habits,
    next_id: u64,
    next_rule: u64,
    waiting: Vec<(Putting, Given)>,
}

/// A put whose outcome is not told yet.
enum Given {
    Head(Attempt),
    Piece(ObjectId, Range<u64>),
}

impl<'a> Play<'a> {
    fn begin(device: SimDevice, habits: Habits, model: &'a mut Model) -> Option<Play<'a>> {
        let settings = LogSettings {
            disk_bytes: habits.disk_bytes,
            free_bytes_min: 0,
            index_bytes_max: habits.index_bytes,
            write_block_bytes: 48 << 10,
        };
        let opened = match log::open(Arc::new(device.clone()), settings, Path::new("device")) {
            Ok(opened) => opened,
            Err(fault) => {
                assert!(device.is_off(), "{fault}: {fault:?}");
                return None;
            }
        };
        // An entry of the purge log that was being written cannot be told from a damaged one.
        let expected = |notice: &Notice| matches!(notice, Notice::Repaired | Notice::PurgesLost(_));
        assert!(opened.notices.iter().all(expected) || device.is_off(), "{:?}", opened.notices);
        let numbers = opened.recovery.numbers();
        let writer = opened.recovery.run(1, || ());
        let play =
            Play { device, writer, model, habits, next_id: numbers.id, next_rule: numbers.rule, waiting: Vec::new() };
        play.check_size();
        Some(play)
    }

    fn run(&mut self, draw: &mut Draw) {
        if self.habits.faults {
            let kind = if draw.one_in(2) { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
            self.device.fail_after(draw.below(120), kind, 1 + draw.below(4));
            self.device.fail_reads_after(draw.below(1000), io::ErrorKind::Other, draw.below(4));
            self.model.faults = true;
        }
        for _ in 0..STEPS {
            self.step(draw);
            self.check_size();
            if self.device.is_off() {
                return;
            }
        }
        if draw.one_in(4) {
            self.flush();
            self.writer.close();
            self.tell_all();
        }
    }

    fn step(&mut self, draw: &mut Draw) {
        match draw.below(100) {
            0..45 => self.put_head(draw),
            45..63 => self.put_piece(draw),
            63..68 => self.put_again(draw),
            68..78 => self.flush(),
            78..83 => self.sync(),
            83..87 => self.kill(draw),
            87..91 => self.rule(draw),
            91..95 => self.writer.reader().used(&key_text(draw.below(KEYS))),
            95..99 => self.read(draw.below(KEYS), false),
            _ if draw.one_in(2) => self.storm(draw),
            _ => self.read_all(false),
        }
    }

    /// The epoch of a fetch that ends now: it may have begun a while ago.
    fn epoch(&self, draw: &mut Draw) -> u64 {
        let now = self.writer.reader().rules.current_epoch();
        if draw.one_in(5) { now.saturating_sub(draw.below(3)) } else { now }
    }

    fn put_head(&mut self, draw: &mut Draw) {
        let id = ObjectId(self.next_id);
        self.next_id += 1;
        let epoch = self.epoch(draw);
        let attempt = self.model.attempt(draw.below(KEYS), draw.below(VARIANTS), id, epoch);
        self.put(attempt);
        if !is_inline(id) && draw.one_in(2) {
            self.put_range(&attempt, 0..body_bytes(id));
        }
    }

    fn put(&mut self, attempt: Attempt) {
        let (putting, promise) = Putting::pair();
        self.writer.append_head(attempt.head(), promise);
        self.waiting.push((putting, Given::Head(attempt)));
    }

    /// A head that was validated is written again with what it has of a body.
    fn put_again(&mut self, draw: &mut Draw) {
        self.flush();
        let Some(present) = self.model.some_latest(draw, false) else { return };
        let epoch = self.epoch(draw);
        let again = self.model.attempt(present.key, present.variant, present.id, epoch);
        self.put(again);
    }

    fn put_piece(&mut self, draw: &mut Draw) {
        let Some(present) = self.model.some_latest(draw, true) else { return };
        let length = body_bytes(present.id);
        let start =
            if draw.one_in(2) { draw.below(length / BLOCK_BYTES + 1) * BLOCK_BYTES } else { draw.below(length) };
        let most = if draw.one_in(2) { 3000 } else { 2 * BLOCK_BYTES };
        let end = (start + 1 + draw.below(most)).min(length);
        if start < end {
            self.put_range(&present, start..end);
        }
    }

    fn put_range(&mut self, attempt: &Attempt, range: Range<u64>) {
        let (putting, promise) = Putting::pair();
        let hash = self.writer.reader().key_hash(&key_text(attempt.key));
        let middle = (range.start + range.end) / 2;
        let parts = vec![body(attempt.id, range.start..middle), body(attempt.id, middle..range.end)];
        self.model.asked_piece(attempt.id, &range);
        self.writer.append_extent(attempt.id, hash, range.start, parts, promise);
        self.waiting.push((putting, Given::Piece(attempt.id, range)));
    }

    fn flush(&mut self) {
        let _ = self.writer.flush();
        self.tell_all();
    }

    /// The batch was written or given up: all who wait are told.
    fn tell_all(&mut self) {
        for (putting, given) in self.waiting.drain(..) {
            match (putting.wait(), given) {
                (Put::Stored, Given::Head(attempt)) => self.model.stored(attempt),
                (Put::Stored, Given::Piece(id, range)) => self.model.stored_piece(id, &range),
                _ => {}
            }
        }
    }

    fn sync(&mut self) {
        self.flush();
        if self.writer.sync().is_ok() {
            self.model.synced();
        }
    }

    fn kill(&mut self, draw: &mut Draw) {
        self.flush();
        let present = self.model.some_latest(draw, false).filter(|_| draw.one_in(2));
        let key = present.map_or_else(|| draw.below(KEYS), |present| present.key);
        let id = present.map(|present| present.id).filter(|_| draw.one_in(2));
        let killed = self.writer.kill(&key_text(key), id);
        let outcome = self.writer.purge(&killed.records);
        self.model.killed(key, id, outcome.is_ok(), killed.heads > 0);
    }

    fn rule(&mut self, draw: &mut Draw) {
        self.flush();
        let scope = match draw.below(12) {
            0 => Scope::All,
            1..5 => Scope::Prefix(prefix(draw.next())),
            _ => Scope::Tag(tags(draw.below(KEYS))[0]),
        };
        let force = if draw.one_in(2) { Force::Soft } else { Force::Hard };
        let rule = Rule { number: self.next_rule, scope, force };
        self.next_rule += 1;
        self.writer.reader().rules.add(&rule);
        let outcome = self.writer.purge(&[Purge::Rule(rule.clone())]);
        self.model.ruled(rule, outcome.is_ok());
    }

    /// So many purges that the log of them is written anew.
    fn storm(&mut self, draw: &mut Draw) {
        for _ in 0..150 {
            if draw.one_in(4) {
                self.kill(draw)
            } else {
                self.rule(draw)
            }
            if self.device.is_off() {
                return;
            }
        }
    }

    fn read_all(&mut self, started: bool) {
        (0..KEYS).for_each(|key| self.read(key, started));
    }

    fn read(&mut self, key: u64, started: bool) {
        self.flush();
        if self.device.is_off() {
            return;
        }
        let reader = Arc::clone(self.writer.reader());
        let ReadOutcome::Ended(found) = reader.heads(&key_text(key), Patience::Waits) else {
            panic!("it still recovers")
        };
        for attempt in self.model.judge(key, &found, started) {
            if is_inline(attempt.id) {
                continue;
            }
            let mut pieces = Vec::new();
            for block in 0..body_bytes(attempt.id).div_ceil(BLOCK_BYTES) {
                let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                let ReadOutcome::Ended(found) = reader.pieces(attempt.id, &range, Patience::Waits) else {
                    panic!("it recovers")
                };
                pieces.extend(found);
            }
            self.model.judge_pieces(&attempt, &pieces, started);
        }
    }

    fn check_size(&self) {
        assert!(self.device.bytes_used() <= self.habits.disk_bytes, "{} bytes on disk", self.device.bytes_used());
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.writer.reader().add_to(&mut stats);
        stats
    }
}
