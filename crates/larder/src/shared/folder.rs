//! The folder of one server.

use super::StartError;
use crate::config::Config;
use crate::run;
use crate::run::folder::Temporary;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The folder of one server, locked for as long as this lives.
pub struct StoreFolder {
    path: PathBuf,
    _lock: File,
    /// A temporary folder in place of one that can't be used; removed when the server ends.
    _temporary: Option<Temporary>,
}

impl StoreFolder {
    /// The configured folder. Where there is none, or where it can't be written, a temporary one takes its place and nothing is
    /// stored on disk: a cache without a disk store is better than one that does not start.
    pub fn of(config: &mut Config) -> Result<StoreFolder, StartError> {
        let trouble = match config.store_folder().map(StoreFolder::take) {
            Some(Err(StartError::File(path, error))) => {
                format!("{} cannot be used: {error}; choose another folder with --store", path.display())
            }
            Some(taken) => return taken,
            None => {
                "neither HOME nor XDG_CACHE_HOME is set, so there is no folder for the store; name one with --store"
                    .to_owned()
            }
        };
        let temporary = Temporary::new().map_err(|error| StartError::File(std::env::temp_dir(), error))?;
        let path = temporary.path().join("store");
        tracing::warn!("{trouble}. Until then nothing is kept on disk, and {} stands in", path.display());
        config.store = Some(path.clone());
        if config.disk.folders.is_empty() {
            config.disk_bytes = Some(0);
        }
        let mut folder = StoreFolder::take(path)?;
        folder._temporary = Some(temporary);
        Ok(folder)
    }

    /// Makes this folder, where it is missing, and locks it.
    pub fn take(path: PathBuf) -> Result<StoreFolder, StartError> {
        let wrong = |error| StartError::File(path.clone(), error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(wrong)?;
        let lock = File::create(path.join("larder.lock")).map_err(wrong)?;
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&lock, operation).map_err(|_| StartError::InUse(path.clone()))?;
        Ok(StoreFolder { path, _lock: lock, _temporary: None })
    }

    /// Its path: where the control socket is, and files of runs.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds the control socket.
    pub fn control_socket(&self) -> Result<UnixListener, StartError> {
        let path = run::control::socket(&self.path);
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(|error| StartError::File(path.clone(), error))?;
        // A folder that existed may be open to others, and the umask may open a new one.
        let closed = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
        closed.and_then(|()| listener.set_nonblocking(true)).map_err(|error| StartError::File(path, error))?;
        Ok(listener)
    }
}

impl Drop for StoreFolder {
    fn drop(&mut self) {
        let _ = fs::remove_file(run::control::socket(&self.path));
    }
}
