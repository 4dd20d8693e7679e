//! The processes that this one has started itself and waits for: those that run scripts, and others. Each other child of it is one that
//! it has adopted.

use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The processes of scripts that run now, of all servers of this process; a number is in it until its process was waited for, so that it
/// means no other one.
static OF_SCRIPTS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Further children that this process has started itself, and waits for.
static OTHERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Held while a child begins, so that nobody looks at it before it is known.
static STARTING: RwLock<()> = RwLock::new(());

/// Whether all children that this process starts are known here.
static ARE_ALL_KNOWN: AtomicBool = AtomicBool::new(false);

/// A child that this process has started itself; it is known as one for as long as this lives, which has to be until it was waited for.
#[derive(Debug)]
pub struct OwnChild {
    pid: u32,
    of: &'static Mutex<BTreeSet<u32>>,
}

impl OwnChild {
    /// Starts a child that is of no script.
    pub fn start<C>(
        spawn: impl FnOnce() -> io::Result<C>,
        pid: impl FnOnce(&C) -> Option<u32>,
    ) -> io::Result<(C, Option<OwnChild>)> {
        OwnChild::start_as(&OTHERS, spawn, pid)
    }

    /// Starts a child that runs a script.
    pub fn start_script<C>(
        spawn: impl FnOnce() -> io::Result<C>,
        pid: impl FnOnce(&C) -> Option<u32>,
    ) -> io::Result<(C, Option<OwnChild>)> {
        OwnChild::start_as(&OF_SCRIPTS, spawn, pid)
    }

    fn start_as<C>(
        of: &'static Mutex<BTreeSet<u32>>,
        spawn: impl FnOnce() -> io::Result<C>,
        pid: impl FnOnce(&C) -> Option<u32>,
    ) -> io::Result<(C, Option<OwnChild>)> {
        let _starting = STARTING.read();
        let child = spawn()?;
        let own = pid(&child).map(|pid| {
            of.lock().insert(pid);
            OwnChild { pid, of }
        });
        Ok((child, own))
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        self.of.lock().remove(&self.pid);
    }
}

/// Whether this process has started a child itself.
pub fn is_own(pid: u32) -> bool {
    is_of_script(pid) || OTHERS.lock().contains(&pid)
}

/// Those of the children that `list` finds that this process has not started itself. None begins meanwhile.
pub fn not_own(list: impl FnOnce() -> Vec<u32>) -> Vec<u32> {
    let _starting = STARTING.write();
    let mut children = list();
    children.retain(|child| !is_own(*child));
    children
}

/// Whether a process runs a script.
pub fn is_of_script(pid: u32) -> bool {
    OF_SCRIPTS.lock().contains(&pid)
}

/// Whether any process runs a script.
pub fn is_any_of_script() -> bool {
    !OF_SCRIPTS.lock().is_empty()
}

/// This process is the program: while scripts run below it, each child that it starts is an [`OwnChild`]. Another program that has a
/// server in it may start children, and wait for them, without a word.
pub fn all_are_known() {
    ARE_ALL_KNOWN.store(true, Ordering::Relaxed);
}

/// Whether all children that this process starts are known here.
pub fn are_all_known() -> bool {
    ARE_ALL_KNOWN.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_known_before_anybody_looks_and_until_it_was_waited_for() {
        let spawn = || std::process::Command::new("sleep").arg("600").spawn();
        let (mut child, own) = OwnChild::start(spawn, |child| Some(child.id())).unwrap();
        let pid = child.id();
        assert!(is_own(pid) && !is_of_script(pid));
        assert_eq!(not_own(|| vec![pid, 1]), [1]);
        let (looks, looked) = std::sync::mpsc::channel();
        let (mut other, own_other) = OwnChild::start(
            || {
                let looker = std::thread::spawn(move || {
                    looks.send(not_own(|| vec![pid])).unwrap();
                });
                assert!(looked.try_recv().is_err(), "not while one begins");
                spawn().map(|child| (child, looker))
            },
            |(child, _)| Some(child.id()),
        )
        .map(|((child, looker), own)| {
            looker.join().unwrap();
            (child, own)
        })
        .unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        other.kill().and_then(|()| other.wait()).unwrap();
        drop((own, own_other));
        assert!(!is_own(pid) && !is_own(other.id()));
    }
}
