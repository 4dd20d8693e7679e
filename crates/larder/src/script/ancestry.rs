//! Which processes of the machine belong to scripts: those that run them, and all that these have started. They may not command the server.

use super::orphans;
use crate::children;
use std::fs;

/// Parents that are looked at: more than any chain has that is not made to be long.
const PARENTS_MAX: usize = 4_096;

/// Whether a process is one of a script, or may be: one that has ended already tells nothing of its parents. Descendants stay below
/// the process of their script (`PR_SET_CHILD_SUBREAPER`) for as long as it lives, and are children of this process after that, until
/// they are ended too.
pub fn may_be_of_script(pid: u32) -> bool {
    if !children::is_any_of_script() && !orphans::are_adopted() {
        return false;
    }
    let (mut at, own) = (pid, std::process::id());
    for _ in 0..PARENTS_MAX {
        if children::is_of_script(at) {
            return true;
        }
        match parent(at) {
            Some(parent) if parent == own => return orphans::is_one(at),
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
    use crate::children::OwnChild;
    use std::process::{Command, Stdio};

    #[test]
    fn what_a_script_has_started_is_of_it_and_its_server_is_not() {
        let spawn = || Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn();
        let (mut script, own) = OwnChild::start_script(spawn, |script| Some(script.id())).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(script.stdout.take().unwrap()), &mut line).unwrap();
        let below: u32 = line.trim().parse().unwrap();
        assert!(may_be_of_script(script.id()) && may_be_of_script(below));
        assert!(!may_be_of_script(std::process::id()));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(below as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        script.wait().unwrap();
        assert!(may_be_of_script(below), "it has ended, and tells nothing any more");
        drop(own);
    }
}
