//! The kernel's figures of processes: CPU time, memory and bytes written, of one and all below it.

use crate::shell::Trouble;
use std::collections::BTreeMap;

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// In programs.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

impl Cpu {
    /// Both.
    pub fn total(self) -> f64 {
        self.user + self.system
    }

    /// The time since an earlier reading.
    pub fn since(self, earlier: Cpu) -> Cpu {
        Cpu { user: self.user - earlier.user, system: self.system - earlier.system }
    }

    /// This process and the load generators that it ran.
    pub fn own_and_waited_for() -> Result<Cpu, Trouble> {
        let text = std::fs::read_to_string("/proc/self/stat").map_err(|error| format!("reading /proc: {error}"))?;
        let process = read_stat(&text).ok_or("/proc/self/stat has another form")?;
        let Process { cpu, waited_for, .. } = process;
        Ok(Cpu { user: cpu.user + waited_for.user, system: cpu.system + waited_for.system })
    }

    /// A process and all below it: what the scheduler counted, in nanoseconds, shared out as the ticks say.
    pub fn of_tree(root: u32) -> Result<Cpu, Trouble> {
        let (table, mut sum) = (processes()?, Cpu::default());
        for id in tree(&table, root) {
            let Some(process) = table.get(&id) else { continue };
            let cpu = scheduled_seconds(id).map_or(process.cpu, |seconds| process.cpu.refined(seconds));
            sum.user += cpu.user;
            sum.system += cpu.system;
        }
        Ok(sum)
    }

    /// Ticks are short by up to two; where they say more than that, threads ended that the finer count has lost.
    fn refined(self, seconds: f64) -> Cpu {
        if self.total() <= 0.0 || self.total() > seconds + 2.0 / ticks_per_second() {
            return self;
        }
        let scale = seconds / self.total();
        Cpu { user: self.user * scale, system: self.system * scale }
    }
}

/// How often threads of a process and of all below it went to sleep by themselves.
pub fn voluntary_switches(root: u32) -> Result<u64, Trouble> {
    let mut sum = 0;
    for id in tree(&processes()?, root) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{id}/task")) else { continue };
        for task in tasks.flatten() {
            let text = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum += count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(sum)
}

/// Time on a core of all threads that a process has (the first number of `/proc/PID/task/TID/schedstat`).
fn scheduled_seconds(id: u32) -> Option<f64> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).ok()?;
    let nanos = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some(tasks.flatten().filter_map(nanos).sum::<f64>() / 1e9)
}

/// Bytes that a process and all below it had written to a device, or have in the page cache for it (proc_pid_io(5)).
pub fn written_bytes_of_tree(root: u32) -> Result<u64, Trouble> {
    sum_of_tree(root, "io", "write_bytes:")
}

/// A process and all below it, by their number.
pub fn count_of_tree(root: u32) -> Result<usize, Trouble> {
    Ok(tree(&processes()?, root).len())
}

/// Ends a process and all below it by SIGKILL.
pub fn kill_tree(root: u32) -> Result<(), Trouble> {
    let all = tree(&processes()?, root);
    for id in all.iter().filter_map(|id| i32::try_from(*id).ok()).filter_map(rustix::process::Pid::from_raw) {
        // One that has ended meanwhile is no trouble.
        rustix::process::kill_process(id, rustix::process::Signal::KILL).ok();
    }
    Ok(())
}

/// Memory of a process and all below it now, each by itself, in kB; shared memory counts for each.
pub fn resident_kb_of_tree(root: u32) -> Result<u64, Trouble> {
    sum_of_tree(root, "status", "VmRSS:")
}

/// The most memory that a process and all below it ever had, each by itself, in kB; what they share counts for each.
pub fn resident_kb_max_of_tree(root: u32) -> Result<u64, Trouble> {
    sum_of_tree(root, "status", "VmHWM:")
}

fn sum_of_tree(root: u32, file: &str, label: &str) -> Result<u64, Trouble> {
    let value = |id: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{id}/{file}")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse::<u64>().ok())
    };
    let values: Vec<u64> = tree(&processes()?, root).iter().filter_map(value).collect();
    if values.is_empty() { Err(format!("no {label} of process {root}")) } else { Ok(values.iter().sum()) }
}

fn tree(table: &BTreeMap<u32, Process>, root: u32) -> Vec<u32> {
    let (mut ids, mut next) = (vec![root], 0);
    while let Some(above) = ids.get(next).copied() {
        ids.extend(table.iter().filter(|(_, process)| process.parent == above).map(|(id, _)| *id));
        next += 1;
    }
    ids
}

struct Process {
    parent: u32,
    cpu: Cpu,
    /// Of children that ended and were waited for.
    waited_for: Cpu,
}

fn processes() -> Result<BTreeMap<u32, Process>, Trouble> {
    let folder = std::fs::read_dir("/proc").map_err(|error| format!("reading /proc: {error}"))?;
    let ids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // A process may end between the listing and the reading.
    Ok(ids
        .filter_map(|id| Some((id, read_stat(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?)))
        .collect())
}

/// Fields 4 and 14 to 17 of proc_pid_stat(5); the name in brackets may hold spaces.
fn read_stat(text: &str) -> Option<Process> {
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / ticks_per_second());
    let cpu = Cpu { user: seconds(11)?, system: seconds(12)? };
    let waited_for = Cpu { user: seconds(13)?, system: seconds(14)? };
    Some(Process { parent: fields.get(1)?.parse().ok()?, cpu, waited_for })
}

/// The unit of CPU times in `/proc`.
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_all_generations_once() {
        let process = |parent| Process { parent, cpu: Cpu::default(), waited_for: Cpu::default() };
        let table =
            BTreeMap::from([(1, process(0)), (2, process(1)), (3, process(2)), (4, process(1)), (5, process(0))]);
        assert_eq!(tree(&table, 1), [1, 2, 4, 3]);
    }

    #[test]
    fn finer_counts_are_taken_unless_threads_ended() {
        let cpu = Cpu { user: 0.3, system: 0.1 };
        assert!((cpu.refined(0.404).user - 0.303).abs() < 1e-9);
        assert_eq!(cpu.refined(0.2).total(), cpu.total());
        assert!(scheduled_seconds(std::process::id()).is_some());
    }

    #[test]
    fn this_process_has_memory() {
        assert!(resident_kb_of_tree(std::process::id()).unwrap() > 100);
        assert!(resident_kb_max_of_tree(std::process::id()).unwrap() > 100);
    }

    #[test]
    fn a_process_name_with_spaces_and_brackets_is_read() {
        let line = "42 (a b) c) S 7 1 1 0 -1 4194304 102 0 0 0 250 50 0 0 20 0 1 0 158172 3133440";
        let process = read_stat(line).unwrap();
        assert_eq!(process.parent, 7);
        assert!((process.cpu.user / process.cpu.system - 5.0).abs() < 1e-9);
    }
}
