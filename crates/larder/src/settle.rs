//! Values that depend on this machine: computed once for each start, with the reason for each, and shown as computed.
//!
//! Values that a file or a flag gives are left as they are. [`settle`] is called by everything that shows or uses a
//! configuration, so that `larder config`, `larder doctor`, `larder run` and the server agree on what holds.

use crate::config::units::show_size;
use crate::config::{Config, Loaded, ValueSource, container, descriptors};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size of the disk store when nobody gives one.
const DISK_BYTES_DEFAULT: u64 = 20_000_000_000;
/// Less than this is no disk store worth opening; nothing is kept on disk then.
const DISK_BYTES_MIN: u64 = 16_000_000;
/// A disk store with a default size takes at most this part of what is free, with what it already holds.
const DISK_SHARE: u64 = 2;
/// By default at most this part of the file system stays free.
const FREE_SHARE: u64 = 4;
/// A default that was lowered below this many connections is reported.
const FEW_CONNECTIONS: usize = 1_000;

/// Puts computed values in the place of those that are not configured. Returns notes for people.
pub fn settle(loaded: &mut Loaded) -> Vec<String> {
    let mut notes = Vec::new();
    let Loaded { config, sources, .. } = loaded;
    let given = |name: &str| matches!(sources.get(name), Some(ValueSource::Line(..) | ValueSource::Flag(_)));
    let mut computed: Vec<(&'static str, String)> = Vec::new();

    let memory_before = config.memory_bytes;
    let objects = given("memory_object_bytes_max").then_some(config.memory_object_bytes_max);
    notes.extend(container::fit(config, given("memory")));
    if config.memory_bytes != memory_before {
        computed.push(("memory", "half of what this container has".to_owned()));
    }
    match objects {
        Some(bytes) => config.memory_object_bytes_max = bytes.min(config.memory_bytes),
        None => computed.push(("memory_object_bytes_max", "a quarter of `memory`".to_owned())),
    }

    let room = Room::of(config);
    if !given("disk_free_min")
        && let Ok(room) = &room
        && room.usable_bytes / FREE_SHARE < config.disk.free_bytes_min
    {
        config.disk.free_bytes_min = in_megabytes(room.usable_bytes / FREE_SHARE);
        computed.push(("disk_free_min", format!("a quarter of {room}")));
    }
    if given("disk") {
        notes.extend(room.as_ref().ok().and_then(|room| no_growth(config, room)));
    } else {
        let (bytes, reason) = disk_budget(&room);
        if bytes == 0 {
            notes.push(format!("nothing is kept on disk: {reason}"));
        }
        config.disk_bytes = Some(bytes);
        computed.push(("disk", reason));
    }
    if !given("object_bytes_max") {
        config.object_bytes_max = Config::object_bytes_max_for(config.disk_bytes);
        let reason = match config.disk_bytes {
            Some(0) | None => "without a disk store, all that memory takes",
            Some(_) => "a quarter of `disk`",
        };
        computed.push(("object_bytes_max", reason.to_owned()));
    }

    let connections_given = given("limits.connections_max");
    let note = descriptors::fit(config);
    if note.is_some() {
        computed.push(("limits.connections_max", "what the limit of open files allows".to_owned()));
    }
    notes.extend(note.filter(|_| connections_given || config.limits.connections_max < FEW_CONNECTIONS));

    for (name, reason) in computed {
        sources.insert(name, ValueSource::Computed(reason.into()));
    }
    notes
}

/// The budget of a disk store without a configured size, and the reason for it; 0: there is no disk store.
fn disk_budget(room: &Result<Room, String>) -> (u64, String) {
    let room = match room {
        Ok(room) => room,
        Err(reason) => return (0, reason.clone()),
    };
    let half = in_megabytes(room.usable_bytes / DISK_SHARE);
    match half {
        ..DISK_BYTES_MIN => {
            (0, format!("there are only {room}: make room there, or choose another folder with --store"))
        }
        DISK_BYTES_DEFAULT.. => (DISK_BYTES_DEFAULT, format!("at most half of {room}")),
        half => (half, format!("half of {room}")),
    }
}

/// A warning where a configured budget can't be filled.
fn no_growth(config: &Config, room: &Room) -> Option<String> {
    let budget = config.disk_bytes.filter(|&bytes| bytes > 0)?;
    let can_hold = room.usable_bytes.saturating_sub(config.disk.free_bytes_min);
    (can_hold < budget.min(DISK_BYTES_MIN)).then(|| {
        format!(
            "the disk store holds {} of {} at most: there are {room}, and `disk_free_min` keeps {} free; make room, or lower \
             `disk_free_min`",
            rounded(can_hold),
            show_size(budget),
            show_size(config.disk.free_bytes_min)
        )
    })
}

/// The room that a disk store may have on a file system.
struct Room {
    folder: PathBuf,
    /// Free bytes, and those that the store holds already.
    usable_bytes: u64,
}

impl Room {
    /// The room of the folder with the least; `Err` says why there is none.
    fn of(config: &Config) -> Result<Room, String> {
        let folders = config.disk_folders();
        if folders.is_empty() {
            return Err("there is no folder for it: set HOME, or name one with --store".to_owned());
        }
        let rooms = folders.into_iter().filter_map(|folder| {
            let usable_bytes = free_bytes(&folder)?.saturating_add(held_bytes(&folder));
            Some(Room { folder, usable_bytes })
        });
        rooms.min_by_key(|room| room.usable_bytes).ok_or_else(|| "it is not known how much room there is".to_owned())
    }
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} free or used by the store at {}", rounded(self.usable_bytes), self.folder.display())
    }
}

/// Free bytes on the file system of a folder, which need not exist yet.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    // The last ancestor of a relative path is empty and means the current folder.
    let named = |each: &Path| if each.as_os_str().is_empty() { PathBuf::from(".") } else { each.to_owned() };
    let existing = folder.ancestors().map(named).find(|each| each.is_dir())?;
    let system = rustix::fs::statvfs(existing).ok()?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Bytes that the files of a folder take, and those of the folders in it.
pub fn held_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => held_bytes(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |data| data.blocks().saturating_mul(512)),
        _ => 0,
    };
    entries.flatten().map(size).sum()
}

fn in_megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000 * 1_000_000
}

/// Two or three digits are enough for people.
pub fn rounded(bytes: u64) -> String {
    let unit = match bytes {
        0..10_000_000 => 1_000,
        10_000_000..10_000_000_000 => 1_000_000,
        _ => 1_000_000_000,
    };
    show_size(bytes / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(usable_bytes: u64) -> Result<Room, String> {
        Ok(Room { folder: "/var/cache".into(), usable_bytes })
    }

    #[test]
    fn a_folder_that_does_not_exist_has_the_room_of_the_one_it_will_be_in() {
        for folder in ["no-such-folder", "no-such-folder/disk", "./no/such", "/no/such/folder"] {
            assert!(free_bytes(Path::new(folder)).is_some_and(|bytes| bytes > 0), "{folder}");
        }
    }

    #[test]
    fn little_room_makes_a_small_store_and_no_room_says_why() {
        assert_eq!(disk_budget(&room(1 << 50)).0, DISK_BYTES_DEFAULT);
        let (bytes, reason) = disk_budget(&room(800_000_000));
        assert_eq!(bytes, 400_000_000);
        assert_eq!(reason, "half of 800MB free or used by the store at /var/cache");
        let (bytes, reason) = disk_budget(&room(20_000_000));
        assert_eq!(bytes, 0);
        assert!(reason.contains("only 20MB free") && reason.contains("--store"), "{reason}");
        let (bytes, reason) = disk_budget(&Err("there is no folder".to_owned()));
        assert_eq!((bytes, &*reason), (0, "there is no folder"));
    }

    #[test]
    fn what_is_computed_is_said_to_be_and_what_is_given_stays() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("store = {:?}\ndisk = \"64MB\"\nmemory = \"1MB\"\n", folder.path());
        let mut loaded = Loaded::parse("larder.toml", &text, &[]).unwrap();
        settle(&mut loaded);
        assert_eq!(loaded.config.disk_bytes, Some(64_000_000));
        assert!(matches!(loaded.sources["disk"], ValueSource::Line(..)));
        assert_eq!(loaded.config.object_bytes_max, 16_000_000);
        assert_eq!(loaded.sources["object_bytes_max"], ValueSource::Computed("a quarter of `disk`".into()));
        let once = loaded.config.clone();
        settle(&mut loaded);
        assert_eq!(loaded.config, once, "settled twice is settled once");
    }

    #[test]
    fn a_store_does_not_shrink_because_it_holds_something() {
        let folder = tempfile::tempdir().unwrap();
        let before = held_bytes(folder.path());
        std::fs::create_dir(folder.path().join("damaged-1")).unwrap();
        std::fs::write(folder.path().join("damaged-1/log"), vec![1; 100_000]).unwrap();
        assert!(held_bytes(folder.path()) >= before + 100_000);
    }

    #[test]
    fn a_budget_that_cannot_be_filled_is_warned_of() {
        let mut config = Config { disk_bytes: Some(1_000_000_000), ..Config::default() };
        let little = room(900_000_000).unwrap();
        let note = no_growth(&config, &little).unwrap();
        assert!(note.contains("`disk_free_min` keeps 1GB free"), "{note}");
        config.disk.free_bytes_min = 100_000_000;
        assert_eq!(no_growth(&config, &little), None);
    }
}
