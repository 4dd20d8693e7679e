//! The processes that this one has started itself and waits for: those that run scripts, and others. Each other child of it is one that
//! it has adopted.

use parking_lot::Mutex;
use std::collections::BTreeSet;

/// The processes of scripts that run now, of all servers of this process; a number is in it until its process was waited for, so that it
/// means no other one.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Further children that this process has started itself, and waits for.
static HELPERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A child of this process that is of no script; it is known as one for as long as this lives.
pub struct OwnChild(u32);

impl OwnChild {
    /// The child of this number.
    pub fn of(pid: u32) -> OwnChild {
        HELPERS.lock().insert(pid);
        OwnChild(pid)
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        HELPERS.lock().remove(&self.0);
    }
}

/// Whether this process has started a child itself.
pub(super) fn is_own(pid: u32) -> bool {
    RUNNING.lock().contains(&pid) || HELPERS.lock().contains(&pid)
}

/// A process of a script has begun.
pub(super) fn began(pid: u32) {
    RUNNING.lock().insert(pid);
}

/// It has ended and was waited for.
pub(super) fn ended(pid: u32) {
    RUNNING.lock().remove(&pid);
}

/// Whether a process runs a script.
pub(super) fn is_of_script(pid: u32) -> bool {
    RUNNING.lock().contains(&pid)
}

/// Whether any process runs a script.
pub(super) fn is_any_of_script() -> bool {
    !RUNNING.lock().is_empty()
}
