//! Checks of the store folder: whether it can be written, its free space, its speed.

use super::Finding;
use crate::config::{Loaded, ValueSource};
use crate::settle::{free_bytes, held_bytes, rounded};
use larder_cache::store::medium::ASIDE_PREFIX;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// Bytes that are written to see how fast the disk is.
const PROBE_BYTES: usize = 16 << 20;

/// Slower than this, misses wait for the disk.
const POOR_BYTES_PER_SECOND: f64 = 20e6;

pub(super) fn store(loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let Some(folder) = config.store_folder() else {
        return vec![Finding::poor(
            "store",
            "there is no folder for the local CA and the control socket",
            "set HOME, or name one with `store`",
        )];
    };
    let name = format!("store {}", folder.display());
    match prepared(&folder).and_then(|()| speed(&folder)) {
        Err(error) => vec![Finding::bad(
            name,
            format!("cannot be written: {error}"),
            "change its owner, or choose another with `store`",
        )],
        Ok(speed) => {
            let folders = config.disk_folders();
            let share = match (config.disk_bytes.unwrap_or(0), loaded.sources.get("disk")) {
                (0, Some(ValueSource::Computed(reason))) => {
                    return vec![
                        pace(speed),
                        Finding::poor("disk space", format!("nothing is kept on disk: {reason}"), REMEDY),
                    ];
                }
                (0, _) => return vec![pace(speed), Finding::well("disk space", "no disk store, as `disk = 0` says")],
                (bytes, _) => bytes / folders.len().max(1) as u64,
            };
            let rooms = folders.iter().map(|folder| room(folder, share, config.disk.free_bytes_min));
            let aside = folders.iter().filter_map(|folder| set_aside(folder));
            [pace(speed)].into_iter().chain(rooms).chain(aside).collect()
        }
    }
}

fn prepared(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Bytes a second, written and synced.
fn speed(folder: &Path) -> io::Result<f64> {
    let path = folder.join(format!("doctor-{}.tmp", std::process::id()));
    let began = Instant::now();
    let written = write_probe(&path);
    let took = began.elapsed().as_secs_f64();
    let removed = fs::remove_file(&path);
    written.and(removed).map(|()| PROBE_BYTES as f64 / took.max(1e-6))
}

fn write_probe(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0x5a; 1 << 20];
    for _ in 0..PROBE_BYTES / block.len() {
        file.write_all(&block)?;
    }
    file.sync_all()
}

fn pace(bytes_per_second: f64) -> Finding {
    let says = format!("writes {:.0} MB/s, synced", bytes_per_second / 1e6);
    match bytes_per_second < POOR_BYTES_PER_SECOND {
        true => Finding::poor("disk speed", says, "put `store` on a faster disk"),
        false => Finding::well("disk speed", says),
    }
}

/// The remedy where there is no room for a disk store.
const REMEDY: &str = "make room, name another folder with `store`, or say `disk = 0` if memory is enough";

/// Whether the budget fits beside the files that are there and the space that is to stay free; the folder may be one
/// that is yet to be made.
fn room(folder: &Path, budget: u64, free_min: u64) -> Finding {
    let Some(free) = free_bytes(folder) else {
        return Finding::poor("disk space", "it is not known how much is free", "look at `df`");
    };
    let usable = free.saturating_add(held_bytes(folder));
    let says = format!("{} free at {}, the budget is {}", rounded(free), folder.display(), rounded(budget));
    if budget > usable {
        let fits = rounded(usable.saturating_sub(free_min) / 10 * 9);
        return Finding::bad("disk space", says, format!("set `disk` to {fits} or less, or make room"));
    }
    if budget.saturating_add(free_min) > usable {
        let says = format!("{says}, and `disk_free_min` keeps {} free", rounded(free_min));
        return Finding::poor("disk space", says, "make room, or lower `disk` or `disk_free_min`");
    }
    Finding::well("disk space", says)
}

/// Stores that were damaged so much that a new one was begun: they take their part of the budget until they are removed.
fn set_aside(folder: &Path) -> Option<Finding> {
    let mut names = Vec::new();
    let mut bytes = 0;
    for each in fs::read_dir(folder).ok()?.flatten() {
        let name = each.file_name().to_string_lossy().into_owned();
        if name.starts_with(ASIDE_PREFIX) && each.path().is_dir() {
            bytes += held_bytes(&each.path());
            names.push(name);
        }
    }
    names.sort();
    let says = format!("{} of a damaged store in {}, of the disk budget", rounded(bytes), names.join(", "));
    let remedy = format!("remove {} in {}", names.join(", "), folder.display());
    (!names.is_empty()).then(|| Finding::poor("disk set aside", says, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_budget_beyond_the_disk_is_bad_and_the_probe_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let mut loaded = Loaded::parse("larder.toml", "disk = \"16MB\"", &[]).unwrap();
        loaded.config.store = Some(folder.path().to_owned());
        assert!(store(&loaded).iter().all(|finding| finding.state < State::Bad));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::create_dir(folder.path().join("damaged-1")).unwrap();
        fs::write(folder.path().join("damaged-1/data-000"), [0; 2_000_000]).unwrap();
        let aside = set_aside(folder.path()).unwrap();
        assert_eq!(aside.state, State::Poor);
        fs::remove_dir_all(folder.path().join("damaged-1")).unwrap();
        assert!(set_aside(folder.path()).is_none());
        loaded.config.disk_bytes = Some(1 << 60);
        assert_eq!(super::super::worst(&store(&loaded)), State::Bad);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        loaded.config.store = Some(file);
        assert_eq!(super::super::worst(&store(&loaded)), State::Bad, "a file is no folder");
    }

    #[test]
    fn a_disk_store_that_is_off_for_want_of_room_is_not_called_well() {
        let folder = tempfile::tempdir().unwrap();
        let mut loaded = Loaded::parse("larder.toml", "disk = 0", &[]).unwrap();
        loaded.config.store = Some(folder.path().to_owned());
        assert_eq!(super::super::worst(&store(&loaded)), State::Well, "as it was asked for");
        loaded.sources.insert("disk", ValueSource::Computed("there are only 3MB free".into()));
        let findings = store(&loaded);
        assert!(
            findings.iter().any(|each| each.state == State::Poor && each.says.contains("only 3MB")),
            "{findings:?}"
        );
    }

    #[test]
    fn a_slow_disk_is_poor() {
        assert_eq!(pace(1e6).state, State::Poor);
        assert_eq!(pace(500e6).state, State::Well);
    }
}
