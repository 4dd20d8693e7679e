//! The disk store as the configuration wants it.

use crate::config::{Config, DiskAdmission};
use larder_cache::store::{self, Admission, OpenFault, Store};
use std::sync::Arc;

/// Opens the disk store; `None` when there is to be none.
pub fn open(config: &Config) -> Result<Option<Arc<Store>>, OpenFault> {
    let folders = config.disk_folders();
    match config.disk_bytes.unwrap_or(0) {
        0 => Ok(None),
        _ if folders.is_empty() => Ok(None),
        bytes => Store::open(&folders, &settings(config, bytes / folders.len() as u64)).map(Some),
    }
}

/// With little memory, little of it is lent to the disk.
fn settings(config: &Config, bytes_of_each: u64) -> store::Settings {
    let memory = config.memory_bytes;
    store::Settings {
        disk_bytes: bytes_of_each,
        free_bytes_min: config.disk.free_bytes_min,
        index_bytes_max: (memory / 2).max(INDEX_BYTES_MIN),
        write_block_bytes: (memory / 64).clamp(64 * 1024, 1024 * 1024) as usize,
        queue_bytes_max: (memory / 16).clamp(128 * 1024, 16 * 1024 * 1024),
        sync_seconds: config.disk.sync.as_secs().max(1),
        readers: READERS,
        admission: match config.disk.admission {
            DiskAdmission::All => Admission::All,
            DiskAdmission::SeenTwice => Admission::SeenTwice,
            DiskAdmission::Auto => Admission::Auto,
        },
    }
}

/// The index always gets this much, enough for some 300,000 objects.
const INDEX_BYTES_MIN: u64 = 8_000_000;

/// Threads that wait for a device; one object is read by one of them at a time.
const READERS: usize = 4;
