//! Opening one folder: what is there is judged, taken over, repaired or set aside, and cut to its budget; what comes
//! out is a [`Recovery`], which reads the index and hands out the write side ([`super::pen::Pen`]).

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::OpenFault;
use super::medium::Medium;
use super::pen::LogSettings;
use super::purges::{self, Purge, PurgeLog, Tombstones};
use super::recovery::{Life, Recovery, survey};
use super::segment::{Geometry, HEAD_BYTES, SegmentHead, file_name, file_number};
use super::shelf::{Shelf, count};
use super::superblock::{FORMAT_VERSION, Identity, NUMBERS_NAME, Numbers, SUPERBLOCK_NAME, Superblock};

/// What was done to a folder that was not as it should be; the caller tells it to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The superblock was damaged and has been written again.
    Repaired,
    /// The store was damaged; its files are in this folder within the store's, and a new store begins.
    SetAside(String),
    /// The budget is too small for the segments that were there; a new store begins.
    CutAnew,
}

/// One folder, opened.
pub struct Opened {
    /// To be run.
    pub recovery: Recovery,
    /// What people should know.
    pub notices: Vec<Notice>,
}

/// Opens one folder; `place` is for messages.
pub fn open(medium: Arc<dyn Medium>, settings: LogSettings, place: &Path) -> Result<Opened, OpenFault> {
    let wrong = |error| OpenFault::Io(place.to_path_buf(), error);
    let fitting = Geometry::new(settings.disk_bytes, None)
        .ok_or(OpenFault::Settings("the disk budget is too small for a store: give it 2MB or more, or 0 for none"))?;
    let mut notices = Vec::new();
    let identity = match judge(&medium, &mut notices).map_err(wrong)? {
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
    let recovery = take_over(medium, settings, identity, geometry).map_err(wrong)?;
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
        Superblock::Known(identity) if purges_are_sound(medium, &names)? => return Ok(Judged::Store(identity)),
        // What was purged cannot be told from what was not.
        Superblock::Known(_) => {
            notices.push(Notice::SetAside(set_aside(&**medium, &names)?));
            return Ok(Judged::Nothing);
        }
        Superblock::Future(version) => return Ok(Judged::Future(version)),
        // A start that was cut short, or a new folder.
        Superblock::Absent | Superblock::Damaged if data.is_empty() => return Ok(Judged::Nothing),
        Superblock::Absent | Superblock::Damaged => {}
    }
    for name in &data {
        let mut bytes = [0; HEAD_BYTES as usize];
        medium.open(name)?.read_at(0, &mut bytes)?;
        let head = SegmentHead::decode(&bytes);
        if let Some(head) = head.filter(|_| purges_are_sound(medium, &names).unwrap_or(false)) {
            Superblock::write(&**medium, &head.identity)?;
            notices.push(Notice::Repaired);
            return Ok(Judged::Store(head.identity));
        }
    }
    notices.push(Notice::SetAside(set_aside(&**medium, &names)?));
    Ok(Judged::Nothing)
}

fn purges_are_sound(medium: &Arc<dyn Medium>, names: &[String]) -> io::Result<bool> {
    if !names.iter().any(|name| name == purges::NAME) {
        return Ok(true);
    }
    match purges::check(&**medium) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

fn set_aside(medium: &dyn Medium, names: &[String]) -> io::Result<String> {
    let taken = |folder: &str| names.iter().any(|name| name.split('/').next() == Some(folder));
    let folder = (1..).map(|number: u32| format!("damaged-{number}")).find(|folder| !taken(folder)).unwrap_or_default();
    for name in names.iter().filter(|name| is_ours(name)) {
        medium.rename(name, &format!("{folder}/{name}"))?;
    }
    medium.sync_names()?;
    Ok(folder)
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
) -> io::Result<Recovery> {
    remove_data(&*medium, |file| file >= geometry.files())?;
    let names = medium.list()?;
    let shelf =
        Arc::new(Shelf::new(medium, identity, geometry, shards_for(settings.disk_bytes, settings.index_bytes_max)));
    let mut file_segments = vec![0; geometry.files() as usize];
    for file in names.iter().filter_map(|name| file_number(name)).filter(|file| *file < geometry.files()) {
        file_segments[file as usize] = cut_file(&shelf, file)?;
    }
    let numbers = match Numbers::take(&*shelf.medium, &names)? {
        Some(numbers) => numbers,
        None => {
            let lives = survey(&shelf, &file_segments, 1).lives;
            let highest = |of: fn(&Life) -> u64| lives.iter().map(of).max().unwrap_or(0);
            let given = Numbers {
                id: highest(|life| life.ids_below),
                sequence: highest(|life| life.sequence),
                rule: highest(|life| life.rules_below),
            };
            given.take_above(&*shelf.medium)?
        }
    };
    let mut tombstones = Tombstones::default();
    let purge_log = PurgeLog::open(Arc::clone(&shelf.medium), numbers.rule, |purge| match purge {
        Purge::Rule(rule) => shelf.rules.add(&rule),
        Purge::Tombstone(each) => tombstones.add(&each),
    })?;
    let numbers = Numbers { rule: numbers.rule.max(shelf.rules.current_epoch() + 1), ..numbers };
    Ok(Recovery { shelf, settings, numbers, file_segments, purge_log, tombstones })
}

/// Cuts a data file to whole segments within the budget; says how many.
fn cut_file(shelf: &Shelf, file: u32) -> io::Result<u32> {
    let geometry = &shelf.geometry;
    let per_file = geometry.segments_per_file();
    let most = per_file.min(geometry.segments - file * per_file);
    let open = shelf.open_file(file)?;
    let length = open.len()?;
    let segments = (length / geometry.segment_bytes).min(u64::from(most));
    let kept = segments * geometry.segment_bytes;
    if kept != length {
        open.truncate(kept)?;
        open.sync()?;
    }
    count(&shelf.counters.allocated_bytes, kept);
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
