//! The store folder: may it be written, is there room, how fast is it.

use super::Finding;
use crate::config::Config;
use crate::config::units::show_size;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// What is written to see how fast the disk is.
const PROBE_BYTES: usize = 16 << 20;

/// Slower than this, misses wait for the disk.
const POOR_BYTES_PER_SECOND: f64 = 20e6;

pub(super) fn store(config: &Config) -> Vec<Finding> {
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
            let share = config.disk_bytes.unwrap_or(0) / folders.len().max(1) as u64;
            [pace(speed)].into_iter().chain(folders.iter().map(|folder| room(folder, share))).collect()
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

/// Whether the budget fits beside what is there; the folder may be one that is yet to be made.
fn room(folder: &Path, budget: u64) -> Finding {
    let existing = folder.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let stat = match rustix::fs::statvfs(existing) {
        Ok(stat) => stat,
        Err(error) => return Finding::poor("disk space", format!("not known: {error}"), "look at `df`"),
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let held: u64 = fs::read_dir(folder)
        .map_or(0, |entries| entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|data| data.len()).sum());
    let says = format!("{} free at {}, the budget is {}", rounded(free), folder.display(), show_size(budget));
    match budget > free.saturating_add(held) {
        true => {
            Finding::bad("disk space", says, format!("set `disk` to {} or less, or make room", rounded(free / 10 * 9)))
        }
        false => Finding::well("disk space", says),
    }
}

/// Whole gigabytes or megabytes are enough for people.
fn rounded(bytes: u64) -> String {
    let unit = if bytes >= 10_000_000_000 { 1_000_000_000 } else { 1_000_000 };
    show_size(bytes / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn a_budget_beyond_the_disk_is_bad_and_the_probe_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config { store: Some(folder.path().to_owned()), ..Config::default() };
        assert!(store(&config).iter().all(|finding| finding.state < State::Bad));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        config.disk_bytes = Some(1 << 60);
        assert_eq!(super::super::worst(&store(&config)), State::Bad);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        config.store = Some(file);
        assert_eq!(super::super::worst(&store(&config)), State::Bad, "a file is no folder");
    }

    #[test]
    fn a_slow_disk_is_poor() {
        assert_eq!(pace(1e6).state, State::Poor);
        assert_eq!(pace(500e6).state, State::Well);
    }
}
