//! A block device whose unsynced writes can be lost: a loop device on the one file of our own file system ([`super::fuse`]),
//! with ext4 on it. Everything is mounted in a mount namespace of the test, so that the machine's other processes see
//! nothing of it, and in a namespace of processes: when the test has gone, however it went, the kernel ends its caches, takes
//! away the mounts and frees the loop device.
//!
//! Mounting is left to the system's own programs: mount(8), umount(8), losetup(8), mkfs.ext4(8), e2fsck(8), unshare(1).

use super::disk::{Disk, Fates};
use super::fuse::{self, Server};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Programs that it needs, with the packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
];
/// A program may take this long.
const PROGRAM_MAX: Duration = Duration::from_secs(60);
/// Processes that were killed may hold a mount for this long.
const BUSY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Why no power can be cut here, in words that say what is missing; nothing if it can.
pub fn missing() -> Option<String> {
    let absent: Vec<String> = PROGRAMS
        .iter()
        .filter(|(name, _)| find(name).is_none())
        .map(|(name, package)| format!("{name} (package {package})"))
        .collect();
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let knows = |name: &str| kernel.lines().any(|line| line.split_whitespace().next_back() == Some(name));
    let reason = if !rustix::process::geteuid().is_root() {
        "mounting needs root: run it as root, or in a virtual machine".to_owned()
    } else if let Some(path) = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|path| !Path::new(path).exists()) {
        format!("{path} is not there: load the kernel's module, or give the container the device")
    } else if let Some(name) = ["fuse", "ext4"].into_iter().find(|name| !knows(name)) {
        format!("the kernel has no {name} (/proc/filesystems): load its module")
    } else if !absent.is_empty() {
        format!("not installed: {}", absent.join(", "))
    } else {
        return None;
    };
    Some(format!(
        "a loss of power cannot be simulated here: {reason}. `cacheoff kill` needs none of this; it loses only what processes had in memory"
    ))
}

/// A mounted file system on a disk that can lose its power. Dropping it unmounts everything.
pub struct Device {
    folder: tempfile::TempDir,
    server: Option<Server>,
    /// The loop device, while it is attached.
    attached: Option<String>,
    is_mounted: bool,
}

/// The mount after the power came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The fate of what was not synced.
    pub fates: Fates,
    /// How long the kernel took to mount the file system, its journal read.
    pub mount: Duration,
    /// Whether the file system had to be repaired first.
    pub repaired: bool,
}

impl Device {
    /// Makes an empty file system of so many bytes.
    pub fn new(bytes: u64) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("cacheoff-power-").tempdir();
        let folder = folder.map_err(|error| format!("no folder for the device: {error}"))?;
        // Caches that run as other users reach the store through it.
        let passable = fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755));
        passable.map_err(|error| format!("no folder for the device: {error}"))?;
        let mut device = Self { folder, server: None, attached: None, is_mounted: false };
        for path in [device.image_folder(), device.store()] {
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let target = text(&device.image_folder());
        let server = Server::start(Disk::new(bytes), |connection| {
            let options = "fd=0,rootmode=40700,user_id=0,group_id=0,nosuid,nodev";
            run_with(&["mount", "-i", "-t", "fuse", "-o", options, "cacheoff", &target], Stdio::from(connection))
                .map(drop)
        })?;
        device.server = Some(server);
        device.attach()?;
        let Some(node) = device.attached.clone() else { return Err("no loop device".to_owned()) };
        // A file system that finds an error must never stop this machine.
        run(&["mkfs.ext4", "-q", "-F", "-e", "remount-ro", "-E", "lazy_itable_init=1,nodiscard", &node])?;
        device.mount()?;
        Ok(device)
    }

    /// The folder for the store.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Makes all that was written durable: the machine before the test begins.
    pub fn sync(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the file system cannot be synced: {error}");
        let folder = File::open(self.store()).map_err(failed)?;
        rustix::fs::syncfs(folder).map_err(|error| failed(error.into()))
    }

    /// The power goes. Processes that use the device live on until somebody ends them, and no byte of theirs is kept.
    pub fn cut(&mut self, seed: u64) -> Fates {
        self.server.as_ref().map_or_else(Fates::default, |server| server.disk().cut(seed))
    }

    /// The power is back, and the file system is mounted again as after a boot. No process may use it any more.
    pub fn boot(&mut self, fates: Fates) -> Result<Recovery, String> {
        self.unmount()?;
        self.detach()?;
        if let Some(server) = &self.server {
            server.disk().power_on();
        }
        self.attach()?;
        let begun = Instant::now();
        let mut repaired = false;
        if self.mount().is_err() {
            let node = self.attached.clone().unwrap_or_default();
            repaired = true;
            // A superblock that was torn between two sectors is not mounted, for one. The status says that something was
            // repaired; the mount says whether that was enough.
            let _ = run(&["e2fsck", "-f", "-y", &node]);
            self.mount()?;
        }
        Ok(Recovery { fates, mount: begun.elapsed(), repaired })
    }

    /// Unmounts everything, and says what could not be.
    pub fn end(mut self) -> Result<(), String> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), String> {
        let unmounted = self.unmount();
        let detached = self.detach();
        let Some(server) = self.server.take() else { return unmounted.and(detached) };
        let image = until_free(&["umount", &text(&self.image_folder())]);
        if image.is_ok() {
            server.join();
        }
        unmounted.and(detached).and(image)
    }

    fn image_folder(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn attach(&mut self) -> Result<(), String> {
        let image = text(&self.image_folder().join(fuse::NAME));
        let node = run(&["losetup", "--find", "--show", "--sector-size", "512", &image])?;
        self.attached = Some(node.trim().to_owned());
        Ok(())
    }

    fn detach(&mut self) -> Result<(), String> {
        let Some(node) = self.attached.take() else { return Ok(()) };
        // Done already if it was mounted; the kernel detaches when the last user is gone.
        let _ = run(&["losetup", "--detach", &node]);
        let begun = Instant::now();
        let backing = format!("/sys/block/{}/loop/backing_file", node.trim_start_matches("/dev/"));
        let own = text(&self.image_folder().join(fuse::NAME));
        // Another test may have got the device meanwhile.
        while fs::read_to_string(&backing).is_ok_and(|file| file.trim_end() == own) {
            if begun.elapsed() > BUSY_MAX {
                return Err(format!("{node} is still in use"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn mount(&mut self) -> Result<(), String> {
        let node = self.attached.clone().unwrap_or_default();
        run(&["mount", "-t", "ext4", "-o", "noatime,nosuid,nodev,errors=remount-ro", &node, &text(&self.store())])?;
        self.is_mounted = true;
        // It stays as long as it is mounted, and no longer. If that is refused, `detach` frees it at the end.
        let _ = run(&["losetup", "--detach", &node]);
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.is_mounted) {
            until_free(&["umount", &text(&self.store())])?;
        }
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(reason) = self.take_away() {
            eprintln!("power-cut: {reason}; the kernel takes it away when the last process of the test has ended");
        }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The path of a program, also where the `sbin` folders are not in `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).collect::<Vec<_>>().into_iter();
    folders.chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a program until it succeeds or its mount has been busy for too long.
fn until_free(words: &[&str]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match run(words) {
            Ok(_) => return Ok(()),
            Err(reason) if begun.elapsed() > BUSY_MAX => return Err(reason),
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    run_with(words, Stdio::null())
}

/// Runs a program to its end and gives its output. A signal from the terminal does not reach it, so that nothing is left
/// half mounted.
fn run_with(words: &[&str], input: Stdio) -> Result<String, String> {
    use std::os::unix::process::CommandExt;
    let failed = |reason: String| format!("{:?} failed: {reason}", words.join(" "));
    let [name, arguments @ ..] = words else { return Ok(String::new()) };
    let program = find(name).ok_or_else(|| failed("it is not installed".to_owned()))?;
    let output = tempfile::tempfile().and_then(|file| Ok((file.try_clone()?, file.try_clone()?, file)));
    let (out, errors, mut said) = output.map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(input).stdout(out).stderr(errors).process_group(0);
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| failed(error.to_string()))? {
            Some(status) => break status,
            None if begun.elapsed() > PROGRAM_MAX => {
                let _ = child.kill();
                return Err(failed(format!("it took more than {} s", PROGRAM_MAX.as_secs())));
            }
            None => std::thread::sleep(POLL / 5),
        }
    };
    let text = {
        use std::io::{Read, Seek};
        let mut text = String::new();
        let _ = said.rewind().and_then(|()| said.read_to_string(&mut text));
        text
    };
    if status.success() { Ok(text) } else { Err(failed(format!("{status}: {}", text.trim()))) }
}
