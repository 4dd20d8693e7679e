//! Reports of panics: each is written into the folder `panics` of the store, so that it outlives the process that met it.
//!
//! A panic is a broken invariant of the program. Its message may have something of a request in it, so the folder is its owner's alone,
//! and `larder bugreport` shows the message only where requests are asked for.

use crate::clock;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reports that a process writes. The first ones say the most, and a request that causes a panic can be repeated without end.
const WRITTEN_MAX: usize = 20;

/// Reports that stay in the folder when a process begins to use it: the newest.
const KEPT_MAX: usize = 20;

/// Bytes of a message, and of a backtrace.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Bytes of a file that is read.
const FILE_BYTES_MAX: u64 = 256 << 10;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// A panic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PanicReport {
    /// The version of the program.
    pub version: String,
    /// When it happened: seconds since 1970.
    pub at: u64,
    /// The name of its thread.
    pub thread: String,
    /// The line of the source.
    pub place: String,
    /// Its message, which may have something of a request.
    pub message: String,
    /// Where it came from, if `RUST_BACKTRACE` asks for that.
    pub backtrace: Option<String>,
}

/// Where the reports of a server with this store folder are.
pub fn folder(store: &Path) -> PathBuf {
    store.join("panics")
}

/// From now on panics of this process are reported below this store folder. Only the first folder of a process counts.
pub fn report_into(store: &Path) {
    let folder = folder(store);
    forget_old(&folder);
    let _ = FOLDER.set(folder);
}

/// Writes a report. A fault of the disk is passed over, for a panic must not cause a second one.
pub fn report(thread: &str, place: String, message: &str, backtrace: Option<String>) {
    let Some(folder) = FOLDER.get() else { return };
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    if number >= WRITTEN_MAX {
        return;
    }
    let at = clock::wall();
    let report = PanicReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at: at.as_secs(),
        thread: thread.to_owned(),
        place,
        message: cut(message),
        backtrace: backtrace.as_deref().map(cut),
    };
    write(folder, &format!("{:014}-{number:02}.json", at.as_millis()), &report);
}

fn write(folder: &Path, name: &str, report: &PanicReport) {
    let _ = DirBuilder::new().mode(0o700).create(folder);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(name));
    if let (Ok(mut file), Ok(text)) = (file, serde_json::to_vec_pretty(report)) {
        let _ = file.write_all(&text);
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

/// The reports of a store folder, the newest first. A file that can't be read is passed over.
pub fn all(store: &Path) -> Vec<PanicReport> {
    let read = |path: &PathBuf| {
        let is_small = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= FILE_BYTES_MAX);
        serde_json::from_slice(&fs::read(path).ok().filter(|_| is_small)?).ok()
    };
    files(&folder(store)).iter().rev().take(KEPT_MAX).filter_map(read).collect()
}

/// The files of a folder, the oldest first, as their names begin with the time.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    files
}

fn forget_old(folder: &Path) {
    let files = files(folder);
    for old in &files[..files.len().saturating_sub(KEPT_MAX)] {
        let _ = fs::remove_file(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn panic_at(at: u64) -> PanicReport {
        PanicReport {
            version: "1".to_owned(),
            at,
            thread: "worker 0".to_owned(),
            place: "src/a.rs:1:2".to_owned(),
            message: "a message".to_owned(),
            backtrace: None,
        }
    }

    #[test]
    fn reports_are_read_as_they_were_written_and_old_ones_go() {
        let store = tempfile::tempdir().unwrap();
        let folder = folder(store.path());
        assert_eq!(all(store.path()), []);
        for at in 0..KEPT_MAX as u64 + 3 {
            write(&folder, &format!("{at:014}-00.json"), &panic_at(at));
        }
        fs::write(folder.join("00000000000099-00.json"), "{").unwrap();
        let read = all(store.path());
        assert_eq!(read.len(), KEPT_MAX - 1, "one of the newest is no report");
        assert_eq!(read[0], panic_at(KEPT_MAX as u64 + 2));
        forget_old(&folder);
        assert_eq!(files(&folder).len(), KEPT_MAX);
        assert_eq!(all(store.path()), read);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&files(&folder)[0])), (0o700, 0o600));
    }

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(cut(&"\u{e4}".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX);
        assert_eq!(cut("short"), "short");
    }
}
