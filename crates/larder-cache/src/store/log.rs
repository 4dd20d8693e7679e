//! Opening one folder: what is there is judged, taken over, repaired or set aside, and cut to its budget; what comes
//! out is a [`Recovery`], which reads the index and hands out the write side ([`super::segment_writer::SegmentWriter`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::OpenFault;
use super::medium::{ASIDE_PREFIX, Medium};
use super::purges::{self, Lost, Purge, PurgeLog, Tombstones, Wanted};
use super::recovery::{Life, Recovery, survey};
use super::segment::{Geometry, HEAD_BYTES, SegmentHead, file_name, file_number};
use super::segment_reader::{SegmentReader, count};
use super::segment_writer::LogSettings;
use super::superblock::{FORMAT_VERSION, Identity, NUMBERS_NAME, Numbers, SUPERBLOCK_NAME, Superblock};

/// A repair of a folder that was not as it should be; the caller tells people of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The superblock was damaged and has been written again.
    Repaired,
    /// The store was damaged; its files are in this folder within the store's, and a new store begins.
    SetAside(String),
    /// Data that was set aside in this folder took more than its share of the budget and was removed.
    Removed(String),
    /// A part of the purge log is lost: everything stored before is validated before its next use.
    PurgesLost(Lost),
    /// The budget is too small for the segments that were there; a new store begins.
    CutAnew,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Repaired => write!(f, "{SUPERBLOCK_NAME} was damaged and has been written again; nothing is lost"),
            Notice::SetAside(folder) => {
                write!(
                    f,
                    "the store was damaged; its files are in {folder} (remove it when you like), and a new store begins"
                )
            }
            Notice::Removed(folder) => {
                write!(f, "{folder} took more than half of the budget (`disk`) and was removed")
            }
            Notice::PurgesLost(Lost { at, bytes, unreadable }) => {
                let device = if *unreadable { ", which the device does not read" } else { "" };
                write!(
                    f,
                    "{} is damaged: {bytes} bytes at {at}{device}; what was purged there is not known, so everything stored before is validated before its next use",
                    purges::NAME
                )
            }
            Notice::CutAnew => {
                f.write_str("the budget (`disk`) is too small for the segments that were there; a new store begins")
            }
        }
    }
}

impl Notice {
    /// Whether something was damaged.
    pub fn is_damage(&self) -> bool {
        *self != Notice::CutAnew
    }
}

/// One folder, opened.
pub struct Opened {
    /// To be run.
    pub recovery: Recovery,
    /// Repairs that people should know of.
    pub notices: Vec<Notice>,
}

/// Opens one folder; `place` is for messages.
pub fn open(medium: Arc<dyn Medium>, mut settings: LogSettings, place: &Path) -> Result<Opened, OpenFault> {
    let wrong = |error| OpenFault::Io(place.to_path_buf(), error);
    let fits = |budget| {
        let too_small = "the disk budget is too small for a store: give it 2MB or more, or 0 for none";
        Geometry::new(budget, None).ok_or(OpenFault::Settings(too_small))
    };
    fits(settings.disk_bytes)?;
    let mut notices = Vec::new();
    let judged = judge(&medium, &mut notices).map_err(wrong)?;
    let aside_bytes = match judged {
        Judged::Future(_) => 0,
        _ => bound_what_is_aside(&*medium, settings.disk_bytes / 2, &mut notices).map_err(wrong)?,
    };
    settings.disk_bytes = settings.disk_bytes.saturating_sub(aside_bytes);
    let fitting = fits(settings.disk_bytes).map_err(|_| {
        OpenFault::Settings("what was set aside in damaged-1 and so on uses the disk budget up: remove these folders")
    })?;
    let identity = match judged {
        Judged::Store(identity) => identity,
        Judged::Future(found) => {
            return Err(OpenFault::FutureVersion { folder: place.to_path_buf(), found, known: FORMAT_VERSION });
        }
        Judged::Nothing => begin(&*medium, &fitting).map_err(wrong)?,
    };
    let (identity, geometry) = match Geometry::new(settings.disk_bytes, Some(identity.segment_bytes)) {
        Some(geometry) => (identity, geometry),
        None => {
            notices.push(Notice::CutAnew);
            remove_data(&*medium, |_| true).map_err(wrong)?;
            (begin(&*medium, &fitting).map_err(wrong)?, fitting)
        }
    };
    let (recovery, lost) = take_over(medium, settings, identity, geometry).map_err(wrong)?;
    count(&recovery.reader.counters.aside_bytes, aside_bytes);
    notices.extend(lost.map(Notice::PurgesLost));
    Ok(Opened { recovery, notices })
}

enum Judged {
    Store(Identity),
    Future(u32),
    Nothing,
}

fn judge(medium: &Arc<dyn Medium>, notices: &mut Vec<Notice>) -> io::Result<Judged> {
    let names = medium.list()?;
    let data: Vec<&String> = names.iter().filter(|name| file_number(name).is_some()).collect();
    match Superblock::read(&**medium, &names)? {
        Superblock::Known(identity) => return Ok(Judged::Store(identity)),
        Superblock::Future(version) => return Ok(Judged::Future(version)),
        // A start that was cut short, or a new folder.
        Superblock::Absent | Superblock::Damaged if data.is_empty() => return Ok(Judged::Nothing),
        Superblock::Absent | Superblock::Damaged => {}
    }
    for name in &data {
        let mut bytes = [0; HEAD_BYTES as usize];
        medium.open(name)?.read_at(0, &mut bytes)?;
        let head = SegmentHead::decode(&bytes);
        if let Some(head) = head {
            Superblock::write(&**medium, &head.identity)?;
            notices.push(Notice::Repaired);
            return Ok(Judged::Store(head.identity));
        }
    }
    notices.push(Notice::SetAside(set_aside(&**medium, &names)?));
    Ok(Judged::Nothing)
}

fn set_aside(medium: &dyn Medium, names: &[String]) -> io::Result<String> {
    let numbers = names.iter().filter_map(|name| aside_number(name));
    let folder = format!("{ASIDE_PREFIX}{}", numbers.max().unwrap_or(0) + 1);
    for name in names.iter().filter(|name| is_ours(name)) {
        medium.rename(name, &format!("{folder}/{name}"))?;
    }
    medium.sync_names()?;
    Ok(folder)
}

/// The folder in which a file of a damaged store lies, by its number.
fn aside_number(name: &str) -> Option<u32> {
    name.split('/').next()?.strip_prefix(ASIDE_PREFIX)?.parse().ok()
}

/// Has what was set aside take at most so many bytes: the oldest folder goes first. One that holds no file that only a
/// store has may be somebody else's, and stays. Gives the bytes of what is left.
fn bound_what_is_aside(medium: &dyn Medium, bytes_max: u64, notices: &mut Vec<Notice>) -> io::Result<u64> {
    let mut folders: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for name in medium.list()?.into_iter().filter(|name| name.contains('/')) {
        if let Some(number) = aside_number(&name) {
            folders.entry(number).or_default().push(name);
        }
    }
    let mut sized = Vec::new();
    for (number, files) in folders {
        let mut bytes = 0;
        for file in &files {
            bytes += medium.open(file)?.len()?;
        }
        sized.push((number, files, bytes));
    }
    let mut left: u64 = sized.iter().map(|(_, _, bytes)| bytes).sum();
    let is_a_store = |file: &String| [SUPERBLOCK_NAME, NUMBERS_NAME].iter().any(|own| file.ends_with(own));
    for (number, files, bytes) in sized.iter().filter(|(_, files, _)| files.iter().any(is_a_store)) {
        if left > bytes_max {
            for file in files {
                medium.remove(file)?;
            }
            left -= bytes;
            notices.push(Notice::Removed(format!("{ASIDE_PREFIX}{number}")));
        }
    }
    if !notices.is_empty() {
        medium.sync_names()?;
    }
    Ok(left)
}

fn is_ours(name: &str) -> bool {
    file_number(name).is_some() || [SUPERBLOCK_NAME, NUMBERS_NAME, purges::NAME, purges::NEW_NAME].contains(&name)
}

/// Makes a new store where there is none.
fn begin(medium: &dyn Medium, geometry: &Geometry) -> io::Result<Identity> {
    let identity = Identity::draw(geometry.segment_bytes);
    Superblock::write(medium, &identity)?;
    Ok(identity)
}

fn remove_data(medium: &dyn Medium, which: impl Fn(u32) -> bool) -> io::Result<()> {
    for name in medium.list()? {
        if file_number(&name).is_some_and(&which) {
            medium.remove(&name)?;
        }
    }
    medium.sync_names()
}

fn take_over(
    medium: Arc<dyn Medium>,
    settings: LogSettings,
    identity: Identity,
    geometry: Geometry,
) -> io::Result<(Recovery, Option<Lost>)> {
    remove_data(&*medium, |file| file >= geometry.files())?;
    let names = medium.list()?;
    let reader = Arc::new(SegmentReader::new(
        medium,
        identity,
        geometry,
        shards_for(settings.disk_bytes, settings.index_bytes_max),
    ));
    let mut file_segments = vec![0; geometry.files() as usize];
    for file in names.iter().filter_map(|name| file_number(name)).filter(|file| *file < geometry.files()) {
        file_segments[file as usize] = cut_file(&reader, file)?;
    }
    prepare(reader, settings, &names, file_segments, 0)
}

/// Prepares the recovery of a folder whose writer met a broken invariant, as a start of the program does: the files are
/// believed, and nothing that the writer held in memory. `next_rule` is the number that the next invalidation rule is to have;
/// it must not be given to anybody meanwhile. The numbers of the recovery say which one is next afterwards.
pub(super) fn reopen(reader: &Arc<SegmentReader>, settings: LogSettings, next_rule: u64) -> io::Result<Recovery> {
    reader.forget_index();
    let names = reader.medium.list()?;
    let mut file_segments = Vec::new();
    for file in 0..reader.geometry.files() {
        let bytes = reader.file(file).map_or(Ok(0), |open| open.len())?;
        file_segments.push((bytes / reader.geometry.segment_bytes) as u32);
    }
    // A part of the purge log that is lost voids everything by a rule, which is in force when this returns.
    prepare(Arc::clone(reader), settings, &names, file_segments, next_rule).map(|(recovery, _)| recovery)
}

/// Takes numbers for what will be written, and reads the purge log.
fn prepare(
    reader: Arc<SegmentReader>,
    settings: LogSettings,
    names: &[String],
    file_segments: Vec<u32>,
    next_rule: u64,
) -> io::Result<(Recovery, Option<Lost>)> {
    let numbers = match Numbers::take(&*reader.medium, names)? {
        Some(numbers) => numbers,
        None => {
            let lives = survey(&reader, &file_segments, 1).lives;
            let highest = |of: fn(&Life) -> u64| lives.iter().map(of).max().unwrap_or(0);
            let given = Numbers {
                id: highest(|life| life.ids_below),
                sequence: highest(|life| life.sequence),
                rule: highest(|life| life.rules_below),
            };
            given.take_above(&*reader.medium)?
        }
    };
    let first_rule = numbers.rule.max(next_rule);
    let mut tombstones = Tombstones::default();
    let wanted = if file_segments.iter().any(|segments| *segments > 0) { Wanted::Yes } else { Wanted::No };
    let (purge_log, lost) = PurgeLog::open(Arc::clone(&reader.medium), wanted, first_rule, |purge| match purge {
        Purge::Rule(rule) => reader.rules.add(&rule),
        Purge::Tombstone(each) => tombstones.add(&each),
    })?;
    let doubt_rule = first_rule.max(reader.rules.current_epoch() + 1);
    let numbers = Numbers { rule: doubt_rule + 1, ..numbers };
    Ok((Recovery { reader, settings, numbers, file_segments, purge_log, tombstones, doubt_rule }, lost))
}

/// Cuts a data file to whole segments within the budget; says how many.
fn cut_file(reader: &SegmentReader, file: u32) -> io::Result<u32> {
    let geometry = &reader.geometry;
    let per_file = geometry.segments_per_file();
    let most = per_file.min(geometry.segments - file * per_file);
    let open = reader.open_file(file)?;
    let length = open.len()?;
    let segments = (length / geometry.segment_bytes).min(u64::from(most));
    let kept = segments * geometry.segment_bytes;
    if kept != length {
        open.truncate(kept)?;
        open.sync()?;
    }
    count(&reader.counters.allocated_bytes, kept);
    Ok(segments as u32)
}

/// One for so much of the disk: a shard that is nearly empty costs more for each object than it saves in waiting.
fn shards_for(disk_bytes: u64, index_bytes_max: u64) -> usize {
    let by_disk = (disk_bytes / (64 << 20)).next_power_of_two().clamp(16, 256);
    if index_bytes_max < 4 << 20 { 16 } else { by_disk as usize }
}

/// The name of a data file, for tests and tools.
pub fn data_file(number: u32) -> String {
    file_name(number)
}
