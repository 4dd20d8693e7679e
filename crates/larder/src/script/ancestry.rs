//! Which processes of the machine belong to scripts: those that run them, and all that these have started. They may not command the server.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs;

/// The processes of scripts that run now, of all servers of this process; a number is in it until its process was waited for, so that it
/// means no other one.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Parents that are looked at: more than any chain has that is not made to be long.
const PARENTS_MAX: usize = 4_096;

/// A process of a script has begun.
pub(super) fn began(pid: u32) {
    RUNNING.lock().insert(pid);
}

/// It has ended and was waited for.
pub(super) fn ended(pid: u32) {
    RUNNING.lock().remove(&pid);
}

/// Whether a process is one of a script, or may be: one that has ended already tells nothing of its parents. Descendants stay below
/// the process of their script (`PR_SET_CHILD_SUBREAPER`) for as long as it lives; the nursery ends them with it.
pub fn may_be_of_script(pid: u32) -> bool {
    if RUNNING.lock().is_empty() {
        return false;
    }
    let mut at = pid;
    for _ in 0..PARENTS_MAX {
        if RUNNING.lock().contains(&at) {
            return true;
        }
        match parent(at) {
            Some(0 | 1) => return false,
            Some(parent) => at = parent,
            // A parent that has ended since was below the same process as its child is now; the process that asks has to be there.
            None => return true,
        }
    }
    true
}

/// The parent of a process, proc_pid_stat(5).
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_script_has_started_is_of_it_and_its_server_is_not() {
        let mut script =
            Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(script.stdout.take().unwrap()), &mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        began(script.id());
        assert!(may_be_of_script(script.id()) && may_be_of_script(below));
        assert!(!may_be_of_script(std::process::id()));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(below as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        script.wait().unwrap();
        assert!(may_be_of_script(below), "it has ended, and tells nothing any more");
        ended(script.id());
    }
}
