//! Control groups (version 2): each process gets one of its own, where the system lets the server make them. They bound the number
//! of its children and their memory together, and end all of them at once, even those that have left everything else behind.

use rustix::fs::getxattr;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The beginning of the name of the group that the groups of a server's processes lie in.
const NAME: &str = "larder-";

/// Threads that a process may have beside those of requests: numeric libraries start one for each core.
const THREADS_BESIDE: usize = 128;

/// The control groups of one server.
pub(super) struct ControlGroups {
    folder: PathBuf,
    /// Groups whose last process is about to end.
    leaving: Rc<RefCell<Vec<PathBuf>>>,
}

/// The limits of one group.
pub(super) struct GroupLimits {
    pub children_max: usize,
    pub threads: usize,
    pub memory_bytes_max: Option<u64>,
}

/// The control group of one process and of all that it starts. Ended when this is dropped.
pub(super) struct ControlGroup {
    path: PathBuf,
    leaving: Rc<RefCell<Vec<PathBuf>>>,
    /// The limits that hold, for people.
    pub holds: Vec<String>,
}

impl ControlGroups {
    /// Makes the group of this server. The error says why there is none, for people.
    pub fn make() -> Result<ControlGroups, String> {
        let own = own_group().map(delegated).ok_or("there are no control groups of version 2")?;
        end_those_of_dead_servers(&own);
        /// A program may have several servers, as tests do.
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let server = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = own.join(format!("{NAME}{}-{}-{server}", pid_namespace(), std::process::id()));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", folder.display()));
            }
            _ => {}
        }
        // As root, or in a group without processes of its own that was delegated; elsewhere the groups only end processes.
        for group in [&own, &folder] {
            for controller in ["+pids", "+memory"] {
                let _ = fs::write(group.join("cgroup.subtree_control"), controller);
            }
        }
        if !folder.join("cgroup.kill").exists() {
            let _ = fs::remove_dir(&folder);
            return Err("the kernel can't end a control group (Linux 5.14 can)".to_owned());
        }
        Ok(ControlGroups { folder, leaving: Rc::default() })
    }

    /// Puts a process that has just begun into a group of its own.
    pub fn take(&self, number: u64, pid: u32, limits: &GroupLimits) -> io::Result<ControlGroup> {
        let path = self.folder.join(number.to_string());
        fs::create_dir_all(&path)?;
        let mut group = ControlGroup { path, leaving: Rc::clone(&self.leaving), holds: Vec::new() };
        let tasks = limits.children_max + limits.threads + THREADS_BESIDE;
        if group.set("pids.max", tasks as u64) {
            group.holds.push(format!("{tasks} processes and threads together"));
        }
        if let Some(bytes) = limits.memory_bytes_max
            && group.set("memory.max", bytes.saturating_mul(2))
        {
            let _ = fs::write(group.path.join("memory.swap.max"), "0");
            group.holds.push(format!("memory {} bytes for all of them", bytes.saturating_mul(2)));
        }
        fs::write(group.path.join("cgroup.procs"), pid.to_string())?;
        group.holds.push("a control group that ends with it".to_owned());
        Ok(group)
    }

    /// Whether they bound how many processes one of them has.
    pub fn bounds_children(&self) -> bool {
        let controllers = fs::read_to_string(self.folder.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == "pids")
    }

    /// Removes groups whose processes have ended.
    pub fn tidy(&self) {
        self.leaving.borrow_mut().retain(|path| fs::remove_dir(path).is_err() && path.exists());
    }
}

impl Drop for ControlGroups {
    fn drop(&mut self) {
        self.tidy();
        let _ = fs::remove_dir(&self.folder);
    }
}

impl ControlGroup {
    fn set(&self, file: &str, value: u64) -> bool {
        fs::write(self.path.join(file), value.to_string()).is_ok()
    }

    /// The way to kill all processes in it; says whether that was possible.
    pub fn killer(&self) -> impl FnOnce() -> bool + use<> {
        let path = self.path.join("cgroup.kill");
        move || fs::write(path, "1").is_ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        self.killer()();
        if fs::remove_dir(&self.path).is_err() {
            self.leaving.borrow_mut().push(self.path.clone());
        }
    }
}

/// The folder of the control group that this server is in.
fn own_group() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_folder(&mounts, &groups)
}

/// The group above, where systemd has delegated that (`Delegate=`) and put the server into a group of its own within it
/// (`DelegateSubgroup=`): only a group without processes gives limits to those below. Else the group itself.
fn delegated(own: PathBuf) -> PathBuf {
    let mut mark = [0; 1];
    match own.parent() {
        Some(above) if getxattr(above, "user.delegate", &mut mark).is_ok_and(|read| read == 1) && mark == *b"1" => {
            above.to_owned()
        }
        _ => own,
    }
}

/// [`own_group`], by the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn group_folder(mounts: &str, groups: &str) -> Option<PathBuf> {
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut words = line.split(' ').skip(3);
    let (root, mounted_at) = (words.next()?, words.next()?);
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // Groups above the root of the mount are not to be seen here.
    let below = Path::new(own).strip_prefix(root).ok()?;
    (!own.contains("..")).then(|| Path::new(mounted_at).join(below))
}

/// Ends the processes that servers left behind which were killed.
fn end_those_of_dead_servers(own: &Path) {
    let Ok(entries) = fs::read_dir(own) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if server_of(&name.to_string_lossy(), pid_namespace()).is_some_and(has_ended) {
            let _ = fs::write(entry.path().join("cgroup.kill"), "1");
            for group in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(group.path());
            }
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn has_ended(server: u32) -> bool {
    !Path::new(&format!("/proc/{server}")).exists()
}

/// The server that has made a group of this name, where it belongs to this namespace of process numbers: whether a server of
/// another container lives is not known here.
fn server_of(name: &str, namespace: u64) -> Option<u32> {
    let mut numbers = name.strip_prefix(NAME)?.split('-');
    let (of, server) = (numbers.next()?.parse::<u64>().ok()?, numbers.next()?.parse().ok()?);
    (of == namespace).then_some(server)
}

/// The number of the namespace in which this server's processes have their numbers; 0 where the system has none.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_the_server_is_found_where_it_is_mounted() {
        let mounts = "30 20 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      31 20 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        let folder = |mounts, groups| group_folder(mounts, groups).map(|path| path.display().to_string());
        let groups = "8:pids:/\n0::/system.slice/larder.service\n";
        assert_eq!(folder(mounts, groups).as_deref(), Some("/sys/fs/cgroup/unified/system.slice/larder.service"));
        let within = "31 20 0:27 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(folder(within, "0::/docker/x/y\n").as_deref(), Some("/sys/fs/cgroup/y"));
        for (mounts, groups) in
            [(within, "0::/other\n"), (mounts, "0::/../x\n"), ("", "0::/\n"), (mounts, "8:pids:/\n")]
        {
            assert_eq!(folder(mounts, groups), None, "{mounts}{groups}");
        }
    }

    #[test]
    fn groups_of_servers_in_other_containers_are_left_alone() {
        assert_eq!(server_of("larder-4026531836-17-0", 4_026_531_836), Some(17));
        for other in ["larder-4026531999-17-0", "larder-17-0", "larder-", "larder-x-17-0", "other-4026531836-17-0"] {
            assert_eq!(server_of(other, 4_026_531_836), None, "{other}");
        }
    }

    #[test]
    fn a_process_in_a_group_ends_with_it() {
        let Ok(groups) = ControlGroups::make() else { return };
        let mut process = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let limits = GroupLimits { children_max: 1, threads: 1, memory_bytes_max: Some(1 << 30) };
        let group = groups.take(7, process.id(), &limits).unwrap();
        let path = group.path.clone();
        drop(group);
        assert!(!process.wait().unwrap().success());
        groups.tidy();
        assert!(!path.exists());
    }
}
