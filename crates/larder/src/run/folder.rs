//! A folder for the time of a run.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Names that are tried before giving up.
const TRIES_MAX: u32 = 16;

/// Removed with all that is in it when dropped.
pub(crate) struct Temporary(PathBuf);

impl Temporary {
    /// Mode 0711: others cannot list it, but can read the bundle, as apt must that downloads as a user of
    /// its own. Files with anything of the user's are 0600.
    pub(crate) fn new() -> io::Result<Temporary> {
        let mut trouble = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..TRIES_MAX {
            let name = format!("larder-run-{}-{}", std::process::id(), crate::clock::wall().as_nanos());
            let path = std::env::temp_dir().join(name);
            // Creating a folder fails when the name exists, so nobody else can have prepared it.
            match DirBuilder::new().mode(0o711).create(&path) {
                Ok(()) => return Ok(Temporary(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => trouble = error,
                Err(error) => return Err(error),
            }
        }
        Err(trouble)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
