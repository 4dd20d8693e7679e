//! The load of processes and of the machine, from /proc: CPU, memory, open files, threads, device traffic, steal.
//!
//! Reading is done here, arithmetic on the texts beside it, so that tests need no process. Where the kernel does not
//! tell something (another user's process, no /proc), it counts as zero and the report leaves the figure out.

mod descriptors;
mod energy;
mod machine;
mod text;

use crate::ledger::Load;
pub use descriptors::connections_max;
pub use machine::{distribution, file_system, machine, system_tuning};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Processes that are watched together are at most this many; a runaway tree is cut off here.
const PROCESSES_MAX: usize = 4_096;

/// The command that started this process, so that a shell takes it.
pub fn own_command() -> String {
    text::command(std::env::args())
}

/// A process and all that descend from it, now.
pub fn tree(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for pid in all_pids() {
        if let Some(stat) = read(pid, "stat").as_deref().and_then(text::stat) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (vec![root], 0);
    while next < found.len() && found.len() < PROCESSES_MAX {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

/// Processes of this user or of all, if we are root, that listen on a TCP port.
pub fn listeners(port: u16) -> Vec<u32> {
    let mut sockets = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        sockets.extend(text::listening(&fs::read_to_string(table).unwrap_or_default(), port));
    }
    let holds = |pid: &u32| descriptors(*pid).iter().any(|link| sockets.contains(link.as_str()));
    all_pids().into_iter().filter(|pid| !sockets.is_empty() && holds(pid)).collect()
}

/// The session of a process, by which daemons that left their parent are still found.
pub fn session(pids: &[u32]) -> Vec<u32> {
    let session_of = |pid: u32| read(pid, "stat").as_deref().and_then(text::stat).map(|stat| stat.session);
    let own = session_of(std::process::id());
    let wanted: BTreeSet<u32> = pids.iter().filter_map(|pid| session_of(*pid)).filter(|id| Some(*id) != own).collect();
    let mut found: BTreeSet<u32> = pids.iter().copied().collect();
    found.extend(all_pids().into_iter().filter(|pid| session_of(*pid).is_some_and(|id| wanted.contains(&id))));
    found.into_iter().collect()
}

fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn read(pid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

fn descriptors(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// Which processes are the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// None are known: a remote cache, or no proxy.
    Nobody,
    /// A process with its descendants.
    Tree(u32),
    /// The process that listens on a port, with the rest of its session.
    Port(u16),
}

/// Takes samples and gives the differences between them.
#[derive(Debug)]
pub struct Sampler {
    /// The times of the machine.
    stat: Option<fs::File>,
    watched: Watched,
    before: Sample,
    energy: energy::Counters,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    cache: text::Process,
    /// CPU seconds of the cache's processes by their program.
    programs: BTreeMap<PathBuf, f64>,
    own: text::Process,
    own_thread: BTreeMap<String, f64>,
    machine: text::MachineTimes,
}

impl Sampler {
    /// Begins now.
    pub fn new(watched: Watched) -> Self {
        Self::with(watched, Path::new(energy::FOLDER))
    }

    fn with(watched: Watched, powercap: &Path) -> Self {
        let stat = fs::File::open("/proc/stat").ok();
        Self { before: Sample::take(&watched, stat.as_ref()), energy: energy::Counters::new(powercap), watched, stat }
    }

    /// Watches other processes from now on, after the cache was restarted.
    pub fn watch(&mut self, watched: Watched) {
        *self = Self::new(watched);
    }

    /// The load since the last sample.
    pub fn sample(&mut self) -> Load {
        let now = Sample::take(&self.watched, self.stat.as_ref());
        let load = Load { energy_uj: self.energy.since(), ..now.since(&self.before) };
        self.before = now;
        load
    }
}

impl Sample {
    fn take(watched: &Watched, stat: Option<&fs::File>) -> Self {
        let own = std::process::id();
        let pids = match watched {
            Watched::Nobody => Vec::new(),
            Watched::Tree(root) => tree(*root),
            Watched::Port(port) => session(&listeners(*port)),
        };
        let pids: Vec<u32> = pids.into_iter().filter(|pid| *pid != own).collect();
        let own_process = process(own);
        // Compilers and helpers that a cache starts may begin and end between two samples, and so may the cache itself, which
        // is a child of this process: what they used is the cache's, not that of others.
        let ended = if matches!(watched, Watched::Tree(_)) { own_process.ended() } else { text::Process::default() };
        Self {
            at: Instant::now(),
            programs: programs(&pids),
            cache: pids.iter().map(|pid| process(*pid).with_ended()).fold(ended, text::Process::plus),
            own: own_process,
            own_thread: thread_times(own),
            machine: text::machine_times(&stat.map(again).unwrap_or_default()),
        }
    }

    fn since(&self, before: &Self) -> Load {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-6);
        let cores = |now: f64, then: f64| ((now - then).max(0.0) / seconds) as f32;
        let cache_cpu = cores(self.cache.cpu(), before.cache.cpu());
        let kernel = cores(self.cache.kernel_s, before.cache.kernel_s);
        let own_cpu = cores(self.own.cpu(), before.own.cpu());
        let busy = cores(self.machine.busy_s, before.machine.busy_s);
        let busiest_s = busiest(&self.own_thread, &before.own_thread, self.own.cpu() - before.own.cpu());
        Load {
            own_cpu,
            own_thread_cpu: cores(busiest_s, 0.0),
            cache_cpu,
            cache_helpers: cores(helpers(&self.programs, &before.programs), 0.0),
            cache_kernel: if cache_cpu > 0.0 { (kernel / cache_cpu).min(1.0) } else { 0.0 },
            cache_memory: self.cache.memory,
            cache_descriptors: self.cache.descriptors,
            cache_processes: self.cache.processes,
            cache_threads: self.cache.threads,
            cache_written: self.cache.written.saturating_sub(before.cache.written),
            cache_read: self.cache.read.saturating_sub(before.cache.read),
            others_cpu: (busy - own_cpu - cache_cpu).max(0.0),
            steal: cores(self.machine.steal_s, before.machine.steal_s),
            own_descriptors: self.own.descriptors,
            own_memory: self.own.memory,
            energy_uj: None,
        }
    }
}

/// CPU seconds of processes by their program; those whose program cannot be read are of the program without a name.
fn programs(pids: &[u32]) -> BTreeMap<PathBuf, f64> {
    let mut all = BTreeMap::new();
    for pid in pids {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        *all.entry(program).or_default() += process_cpu(*pid);
    }
    all
}

fn process_cpu(pid: u32) -> f64 {
    read(pid, "stat").as_deref().and_then(text::stat).map_or(0.0, |stat| stat.user_s + stat.kernel_s)
}

/// CPU seconds between two looks of all programs but the one that has worked most since its start, which is the cache itself.
fn helpers(now: &BTreeMap<PathBuf, f64>, before: &BTreeMap<PathBuf, f64>) -> f64 {
    let main = now.iter().max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(program, _)| program);
    let others = now.iter().filter(|(program, _)| Some(*program) != main);
    others.map(|(program, cpu)| (cpu - before.get(program).unwrap_or(&0.0)).max(0.0)).sum()
}

/// CPU seconds of the busiest thread between two looks at a process. A thread that ended in between is seen no more, but its time
/// is in that of the process: else the last second of a phase would look idle.
fn busiest(now: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>, all_s: f64) -> f64 {
    let used = |(name, cpu): (&String, &f64)| (cpu - before.get(name).unwrap_or(&0.0)).max(0.0);
    let alive = now.iter().map(used).fold(0.0, f64::max);
    let ended = before.keys().filter(|name| !now.contains_key(*name)).count();
    match ended {
        0 => alive,
        count => alive.max((all_s - now.iter().map(used).sum::<f64>()) / count as f64),
    }
}

/// The text of a file that stays open: one that is opened for each look is not there once all descriptors are used, and times since
/// the start of the machine would be taken for those of a second.
fn again(file: &fs::File) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 4_096]);
    while let Ok(read @ 1..) = file.read_at(&mut buffer, text.len() as u64) {
        text.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8(text).unwrap_or_default()
}

fn process(pid: u32) -> text::Process {
    let Some(stat) = read(pid, "stat").as_deref().and_then(text::stat) else { return text::Process::default() };
    let pss = read(pid, "smaps_rollup").as_deref().and_then(|rollup| text::field(rollup, "Pss:"));
    let rss = || read(pid, "status").as_deref().and_then(|status| text::field(status, "VmRSS:"));
    let io = read(pid, "io").unwrap_or_default();
    text::Process {
        user_s: stat.user_s,
        kernel_s: stat.kernel_s,
        ended_user_s: stat.ended_user_s,
        ended_kernel_s: stat.ended_kernel_s,
        memory: pss.or_else(rss).unwrap_or(0) * 1_024,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64),
        processes: 1,
        threads: stat.threads,
        written: text::field(&io, "write_bytes:").unwrap_or(0),
        read: text::field(&io, "read_bytes:").unwrap_or(0),
    }
}

/// CPU seconds of each thread of a process.
fn thread_times(pid: u32) -> BTreeMap<String, f64> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
    let times = names.filter_map(|task| {
        let stat = text::stat(&fs::read_to_string(format!("/proc/{pid}/task/{task}/stat")).ok()?)?;
        Some((task, stat.user_s + stat.kernel_s))
    });
    times.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    /// A helper that came and went between two samples is the cache's, and so is the last work of a cache that was killed.
    #[test]
    fn what_ended_children_used_is_not_taken_for_the_work_of_others() {
        // Works for some tens of milliseconds in a process of its own at each line, then says so.
        let script = "while read line; do (i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done); echo done; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut cache = command.spawn().unwrap();
        let mut said = std::io::BufReader::new(cache.stdout.take().unwrap());
        let mut lines = cache.stdin.take().unwrap();
        let mut work = || {
            let mut line = String::new();
            writeln!(lines, "go").and_then(|()| std::io::BufRead::read_line(&mut said, &mut line)).unwrap();
        };
        let mut sampler = Sampler::new(Watched::Tree(cache.id()));
        work();
        assert_eq!(tree(cache.id()).len(), 1, "the helper has ended");
        let alive = sampler.sample();
        assert!(alive.cache_cpu > 0.0, "{alive:?}");
        work();
        cache.kill().unwrap();
        cache.wait().unwrap();
        let killed = sampler.sample();
        assert!(killed.cache_cpu > 0.0, "{killed:?}");
    }

    #[test]
    fn threads_that_began_or_ended_between_two_looks_are_as_busy_as_they_were() {
        let times = |all: &[(&str, f64)]| all.iter().map(|(name, cpu)| ((*name).to_owned(), *cpu)).collect();
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        let before = times(&[("main", 1.0), ("worker", 5.0)]);
        near(busiest(&times(&[("main", 1.1), ("worker", 5.9)]), &before, 1.0), 0.9);
        // The worker ended after 0.8 s.
        near(busiest(&times(&[("main", 1.1)]), &before, 0.9), 0.8);
        near(busiest(&times(&[("main", 1.1), ("worker", 5.2), ("new", 0.7)]), &before, 1.0), 0.7);
        near(busiest(&before, &before, 0.0), 0.0);
    }

    #[test]
    fn a_cleaner_is_no_work_of_the_cache_itself() {
        let times = |all: &[(&str, f64)]| all.iter().map(|(name, cpu)| (PathBuf::from(name), *cpu)).collect();
        let before = times(&[("/usr/sbin/cache", 5.0), ("/usr/bin/cleaner", 1.0)]);
        let now = times(&[("/usr/sbin/cache", 5.1), ("/usr/bin/cleaner", 1.4), ("/usr/bin/helper", 0.2)]);
        assert!((helpers(&now, &before) - 0.6).abs() < 1e-9, "{}", helpers(&now, &before));
        assert_eq!(helpers(&times(&[("/usr/sbin/cache", 9.0)]), &before), 0.0);
        assert_eq!(helpers(&times(&[]), &before), 0.0);
        // Processes that run: this one, and one of another program.
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let found = programs(&[std::process::id(), other.id()]);
        other.kill().and_then(|()| other.wait()).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn this_process_is_found_by_its_port_and_its_load_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listeners(port), [std::process::id()]);
        assert!(tree(std::process::id()).contains(&std::process::id()));
        let mut sampler = Sampler::new(Watched::Nobody);
        let load = sampler.sample();
        assert!(load.own_memory > 0 && load.own_descriptors > 2 && load.cache_cpu == 0.0, "{load:?}");
        let zone = tempfile::tempdir().unwrap();
        let set = |file: &str, text: &str| fs::write(zone.path().join("intel-rapl:0").join(file), text).unwrap();
        fs::create_dir(zone.path().join("intel-rapl:0")).unwrap();
        for (file, text) in [("name", "package-0"), ("max_energy_range_uj", "99"), ("energy_uj", "5")] {
            set(file, text);
        }
        let mut sampler = Sampler::with(Watched::Nobody, zone.path());
        set("energy_uj", "47");
        assert_eq!(sampler.sample().energy_uj, Some(42));
    }
}
