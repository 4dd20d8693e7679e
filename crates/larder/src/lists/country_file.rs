//! The file by which countries of addresses are known (`access.country_file`): read whole, and again when it is another one.

use crate::file_state::FileState;
use larder_lists::Countries;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A longer file is not read. The largest ones that are sold, with cities, have 150 MB.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// The file that is in force.
#[derive(Clone, Debug)]
pub struct CountryFile {
    path: PathBuf,
    /// The file that was read.
    read: Option<FileState>,
    /// The file that was last seen, which may be one that can't be read.
    seen: Option<FileState>,
    countries: Arc<Countries>,
}

impl CountryFile {
    /// Reads the file; `Err` names the setting, the file and its trouble.
    pub fn read(path: &Path) -> Result<CountryFile, String> {
        let trouble = |what: &str| format!("access.country_file: {}: {what}", path.display());
        let unread = |error: io::Error| trouble(&format!("cannot be read: {error}"));
        // Looked at first: a change during the read is seen by the next look.
        let read = FileState::of(path);
        // A pipe would be waited for.
        if !fs::metadata(path).map_err(unread)?.is_file() {
            return Err(trouble("is no file"));
        }
        let mut bytes = Vec::new();
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(unread)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(trouble(&format!("is longer than {FILE_BYTES_MAX} bytes")));
        }
        let countries = Countries::read(&bytes).map_err(|what| trouble(&what))?;
        Ok(CountryFile { path: path.to_owned(), read, seen: read, countries: Arc::new(countries) })
    }

    /// The countries in it.
    pub fn countries(&self) -> &Arc<Countries> {
        &self.countries
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file at this path is the one that was read.
    pub fn is_of(&self, path: &Path) -> bool {
        self.path == path && FileState::of(path) == self.read
    }

    /// Whether the file is another one than when it was last seen.
    pub fn has_changed(&self) -> bool {
        FileState::of(&self.path) != self.seen
    }

    /// Takes the file for seen as it is now, though it could not be read.
    pub fn mark_seen(&mut self) {
        self.seen = FileState::of(&self.path);
    }
}
