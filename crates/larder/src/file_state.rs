//! By which a file is known to have changed, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Inode, length and time of change of a file: another value says that the file is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState(u64, u64, i64, i64);

impl FileState {
    /// Looks at the file; `None` where there is none, or none that may be looked at.
    pub fn of(path: &Path) -> Option<FileState> {
        let facts = fs::metadata(path).ok()?;
        Some(FileState(facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
    }
}
