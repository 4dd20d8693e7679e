//! Locks of files that several runs change, for a bounded time: a process that was stopped must not keep others from ending.

use std::fs::{File, TryLockError};
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long another process may hold a file.
const HELD_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Waits until no other process holds the lock of this file, which is given back when the file is dropped.
pub(super) fn locked(file: File) -> io::Result<File> {
    let until = Instant::now() + HELD_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds it"));
            }
            Err(TryLockError::WouldBlock) => sleep(LOOK_AGAIN),
        }
    }
}
