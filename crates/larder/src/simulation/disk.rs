//! The disk of a run: the device of the crash tests, of which some reads must wait, and a store whose work is done step by step.

use super::draw::Draw;
use super::plan::DiskPlan;
use super::world::World;
use larder_cache::store::medium::{Medium, MediumFile};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::{Settings, Steps, Store};
use std::io::{self, IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Opens the store of a run.
pub fn open(plan: &DiskPlan) -> (Arc<Store>, Vec<Steps>) {
    let device = SimDevice::new(plan.bytes * 2);
    let medium: Arc<dyn Medium> = Arc::new(Cold { device: device.clone(), reads: Arc::default() });
    let settings = Settings {
        disk_bytes: plan.bytes,
        queue_bytes_max: plan.queue_bytes_max,
        write_block_bytes: 64 << 10,
        ..Settings::small()
    };
    let opened = Store::open_stepped(&[(PathBuf::from("device"), medium)], &settings).expect("a store");
    if let Some(operations) = plan.fails_after {
        device.fail_after(operations, io::ErrorKind::Other, 3);
        device.fail_reads_after(operations, io::ErrorKind::Other, 3);
    }
    opened
}

/// Does the work of a store, a step at a time.
pub async fn work(world: Rc<World>, plan: DiskPlan, mut steps: Vec<Steps>) {
    let mut draw = Draw::new(world.plan.seed ^ 0xd15c);
    loop {
        tokio::time::sleep(Duration::from_millis(draw.between(1, plan.step_millis_max))).await;
        for folder in &mut steps {
            match draw.below(10) {
                0 => folder.sync(),
                1..5 => drop(folder.write()),
                _ => drop(folder.read()),
            }
        }
    }
}

/// A device of which each third read waits.
struct Cold {
    device: SimDevice,
    reads: Arc<AtomicU64>,
}

struct ColdFile {
    file: Arc<dyn MediumFile>,
    reads: Arc<AtomicU64>,
}

impl Medium for Cold {
    fn open(&self, name: &str) -> io::Result<Arc<dyn MediumFile>> {
        Ok(Arc::new(ColdFile { file: self.device.open(name)?, reads: Arc::clone(&self.reads) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.device.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.device.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.device.rename(from, to)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.device.sync_names()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.device.free_bytes()
    }
}

impl MediumFile for ColdFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(at, into)
    }

    fn read_cached(&self, at: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match self.reads.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Ok(None),
            _ => self.file.read_cached(at, into),
        }
    }

    fn write_at(&self, at: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.file.write_at(at, pieces)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
