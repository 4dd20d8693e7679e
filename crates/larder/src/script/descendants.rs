//! The processes that a process has started, also those that have left its group: found by `/proc`, counted, and ended with it.
//! The runtime has asked the system that they stay below their process when their own parent ends
//! (`PR_SET_CHILD_SUBREAPER`).

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::fs;

/// How often processes that go on starting others are looked for before those that were found are killed.
const PASSES_MAX: u32 = 64;

/// Processes that are looked at in one pass, so that no fork bomb keeps the nursery from its work.
const FOUND_MAX: usize = 20_000;

/// A process: its number, and when it began, in the system's unit. Numbers are given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Descendant {
    pid: u32,
    began: u64,
}

impl Descendant {
    /// The process that has this number now; `None` where it has ended, even if nobody has waited for it yet.
    pub fn at(pid: u32) -> Option<Descendant> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program, which stands between parentheses, may have spaces.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let state = fields.next()?;
        let began = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Descendant { pid, began })
    }

    /// Whether it has memory still: the system takes that from a process that ends before it closes what the process had open.
    pub fn has_memory(self) -> bool {
        let pages = fs::read_to_string(format!("/proc/{}/statm", self.pid)).unwrap_or_default();
        pages.split(' ').next().is_some_and(|pages| !matches!(pages, "" | "0"))
    }

    /// Sends a signal, and to no other process that has its number by now.
    fn signal(self, signal: Signal) {
        let Some(pid) = pid_of(self.pid) else { return };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            // A system without such descriptors.
            if Descendant::at(self.pid) == Some(self) {
                let _ = kill_process(pid, signal);
            }
            return;
        };
        // Asked when the descriptor is there: it keeps meaning this process.
        if Descendant::at(self.pid) == Some(self) {
            let _ = pidfd_send_signal(&process, signal);
        }
    }
}

/// The system's number of a process that has not been waited for yet.
pub(super) fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The processes below these, at most so many. Empty where the system does not tell.
pub(super) fn below(pids: impl IntoIterator<Item = u32>, max: usize) -> Vec<Descendant> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut to_look_at: Vec<u32> = pids.into_iter().collect();
    while let Some(pid) = to_look_at.pop() {
        for child in children_of(pid) {
            if found.len() >= max {
                return found;
            }
            if seen.insert(child)
                && let Some(child) = Descendant::at(child)
            {
                found.push(child);
                to_look_at.push(child.pid);
            }
        }
    }
    found
}

/// The children of a process, those that ended and were not waited for included. Empty where the system does not tell.
pub(super) fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let children = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |text: String| text.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<u32>>();
    children.flat_map(numbers).collect()
}

/// Kills a process with all that it has started. `known` were below it a moment ago. Without the process, those that it has left
/// when it ended.
pub(super) fn kill(pid: Option<u32>, known: &[Descendant]) {
    let signal_group = |signal| {
        if let Some(pid) = pid.and_then(pid_of) {
            let _ = kill_process_group(pid, signal);
        }
    };
    // Stopped first, all of them: one that is killed while its parent still runs is replaced.
    signal_group(Signal::STOP);
    let mut stopped: HashSet<Descendant> = HashSet::new();
    for _ in 0..PASSES_MAX {
        let roots = known.iter().chain(&stopped).filter(|process| Descendant::at(process.pid) == Some(**process));
        let roots: Vec<Descendant> = roots.copied().collect();
        let mut found = below(roots.iter().map(|process| process.pid).chain(pid), FOUND_MAX);
        found.extend(roots);
        found.retain(|process| stopped.insert(*process));
        if found.is_empty() {
            break;
        }
        found.iter().for_each(|process| process.signal(Signal::STOP));
    }
    stopped.iter().for_each(|process| process.signal(Signal::KILL));
    signal_group(Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn wait_for(mut so: impl FnMut() -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while !so() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    #[test]
    fn children_that_have_left_the_group_are_found_and_end_with_their_process() {
        if fs::metadata(format!("/proc/self/task/{}/children", std::process::id())).is_err() {
            return;
        }
        // A child, one in a session of its own, and one below that.
        let script = "sleep 600 & setsid sh -c 'sleep 600 & sleep 600' & echo ready; wait";
        let mut process =
            Command::new("sh").args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let pid = process.id();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(wait_for(|| below([pid], 100).len() == 4), "{:?}", below([pid], 100));
        assert_eq!(below([pid], 2).len(), 2);
        let known = below([pid], 100);
        kill(Some(pid), &[]);
        process.wait().unwrap();
        assert!(wait_for(|| known.iter().all(|process| Descendant::at(process.pid) != Some(*process))));
        assert_eq!(below([pid], 100), []);
    }

    #[test]
    fn those_of_a_process_that_has_ended_are_known_by_their_beginning() {
        if Descendant::at(std::process::id()).is_none() {
            // No `/proc`.
            return;
        }
        let mut own = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Descendant::at(own.id()).unwrap();
        kill(None, &[Descendant { began: process.began + 1, ..process }]);
        assert_eq!(Descendant::at(own.id()), Some(process), "another process that had this number");
        kill(None, &[process]);
        own.wait().unwrap();
        assert_eq!(Descendant::at(process.pid), None);
    }
}
