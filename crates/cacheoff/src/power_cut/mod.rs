//! The power cut: an entry whose whole folder lies on a block device of the test loses its power while it stores. Its
//! unsynced writes are lost or torn; then the file system is mounted and the cache started again. How long until the first
//! hit with the right bytes, how many objects are there, does any of them have wrong bytes?
//!
//! Load, probes and ledger are those of `kill`.

pub mod command;
mod device;
mod disk;
mod fuse;

use crate::contest::{EntrySpec, Post, Prepared, Running};
use crate::kill::origin::Origin;
use crate::kill::{Means, Settings, Subject, failed, outage};
use crate::ledger::Ledger;
use device::{Device, Recovery};
use std::cell::RefCell;

/// The name of the test.
const TEST: &str = "power-cut";
/// Room on the device besides the store: files of the entry, logs, the file system's own.
const SPARE_MB: u64 = 192;
/// Traffic Server has no smaller store.
const STORE_MB_MIN: u64 = 512;

/// How the power is cut.
struct Cut<'a> {
    settings: &'a Settings,
    seed: u64,
}

impl Cut<'_> {
    /// Plays one entry; its device is gone afterwards.
    fn play(&self, spec: EntrySpec, post: Post, origin: &Origin, tell: &mut dyn FnMut(&str)) -> Ledger {
        let label = spec.name.clone();
        let bytes = (post.disk_mb.max(STORE_MB_MIN) + SPARE_MB) << 20;
        let device = match Device::new(bytes) {
            Ok(device) => RefCell::new(device),
            Err(reason) => return failed(TEST, &label, reason),
        };
        let ledger = match self.on(&device, spec, post, origin, tell) {
            Ok(ledger) => ledger,
            Err(reason) => failed(TEST, &label, reason),
        };
        if let Err(reason) = device.into_inner().end() {
            tell(&format!("not all was unmounted: {reason}"));
        }
        ledger
    }

    fn on(
        &self,
        device: &RefCell<Device>,
        spec: EntrySpec,
        post: Post,
        origin: &Origin,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Ledger, String> {
        let (label, forward) = (spec.name.clone(), post.mode == "forward");
        let store = device.borrow().store();
        let entry = Prepared::new_in(spec, post, &store)?;
        entry.prepare()?;
        // The machine has been installed for long: only what the cache writes from here on can be lost.
        device.borrow().sync()?;
        let running = entry.start()?;
        let mut stop = |running: Running| {
            let fates = device.borrow_mut().cut(self.seed);
            running.kill();
            let recovery = device.borrow_mut().boot(fates)?;
            Ok(vec![sentence(&recovery)])
        };
        let words = format!("the device lost its power, unsynced writes by seed {}", self.seed);
        let means = Means { test: TEST, words, stop: &mut stop };
        let subject = Subject { entry: &entry, running: Some(running), forward, origin, label: &label };
        Ok(outage(subject, means, self.settings, tell))
    }
}

/// The cut and the mount after it, in words.
fn sentence(recovery: &Recovery) -> String {
    let fates = recovery.fates;
    let repaired = if recovery.repaired { " after a repair by e2fsck" } else { "" };
    format!(
        "{} writes of the device were not synced: {} kept, {} lost, {} torn, {} bytes gone, after {} flushes; ext4 was mounted again in {:.0} ms{repaired}",
        fates.kept + fates.lost + fates.torn,
        fates.kept,
        fates.lost,
        fates.torn,
        fates.lost_bytes,
        fates.flushes,
        recovery.mount.as_secs_f64() * 1e3,
    )
}
