//! Processes of scripts that outlive the process of their script: this server is the reaper of its descendants, so that they become its
//! children, where they are found, ended and waited for.

use super::descendants::{self, Descendant, children_of, pid_of};
use crate::children;
use parking_lot::Mutex;
use rustix::process::{WaitIdOptions, set_child_subreaper, waitid};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether orphans become children of this process.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// In a program that has a server in it, processes that have ended and are not known are waited for after this time: until then whoever
/// started them may. In this program only orphans, as those of helpers, are not known, so the second look is early enough.
const LEFT_FOR: Duration = Duration::from_secs(60);

/// The children that had ended at the last look and are not known, and since when they are seen.
static ENDED_BEFORE: Mutex<BTreeMap<u32, Instant>> = Mutex::new(BTreeMap::new());

/// Has the orphans below this process become its children. Where the system can't, they become those of another reaper.
pub(super) fn adopt() -> io::Result<()> {
    set_child_subreaper(pid_of(std::process::id()))?;
    ADOPTS.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether orphans become children of this process.
pub(super) fn are_adopted() -> bool {
    ADOPTS.load(Ordering::Relaxed)
}

/// Whether a child of this process is an orphan of a script, or of a command or helper that bounds its own processes so: the system does
/// not tell whose child it was.
pub(super) fn is_one(child: u32) -> bool {
    are_adopted() && !children::is_own(child) && is_confined(child)
}

/// A child of this process is confined as scripts are where this process itself is not: nothing takes that from a process.
fn is_confined(child: u32) -> bool {
    let (Some(own), Some(its)) = (Confinement::of(std::process::id()), Confinement::of(child)) else { return false };
    its.no_new_privs > own.no_new_privs || its.filters > own.filters
}

/// The bounds of a process, as proc_pid_status(5) says them.
struct Confinement {
    no_new_privs: u32,
    filters: u32,
}

impl Confinement {
    fn of(pid: u32) -> Option<Confinement> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
        };
        Some(Confinement { no_new_privs: number("NoNewPrivs:"), filters: number("Seccomp_filters:") })
    }
}

/// Ends the orphans that there are, with all that is below them, and waits for those that have ended. Searches, and may take a moment.
pub(super) fn end_all() {
    if are_adopted() {
        end_those_found(&mut ENDED_BEFORE.lock());
    }
}

/// Does that on a thread of its own, unless such a search is under way.
pub(super) fn end_all_beside() {
    if are_adopted() {
        tokio::task::spawn_blocking(|| ENDED_BEFORE.try_lock().map(|mut before| end_those_found(&mut before)));
    }
}

fn end_those_found(ended_before: &mut BTreeMap<u32, Instant>) {
    let (mut orphans, mut ended) = (Vec::new(), BTreeMap::new());
    for child in children::not_own(|| children_of(std::process::id())) {
        match (is_confined(child), Descendant::at(child)) {
            (true, Some(living)) => orphans.push(living),
            (true, None) => wait_for(child),
            (false, None) => {
                let since = ended_before.get(&child).copied();
                match since.is_some_and(|since| children::are_all_known() || since.elapsed() >= LEFT_FOR) {
                    true => wait_for(child),
                    false => drop(ended.insert(child, since.unwrap_or_else(crate::clock::instant))),
                }
            }
            (false, Some(_)) => {}
        }
    }
    if !orphans.is_empty() {
        descendants::kill(None, &orphans);
    }
    *ended_before = ended;
}

fn wait_for(child: u32) {
    if let Some(pid) = pid_of(child) {
        let _ = waitid(rustix::process::WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_child_is_no_orphan() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(!is_one(child.id()), "not before this process adopts any");
        assert!(!is_confined(child.id()) && !is_confined(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
