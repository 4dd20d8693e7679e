//! A place for experiments: a temporary folder, servers that end with it, free ports. Used by every chore
//! that runs Larder or another server.

use crate::shell::Trouble;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A temporary folder and the servers started in it. Dropping it ends the servers, last one first.
pub struct Lab {
    servers: Vec<Server>,
    folder: TempDir,
    elsewhere: RefCell<Vec<PathBuf>>,
}

/// A server process that is ended when this is dropped.
pub struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

const STOP_SECONDS_MAX: u64 = 5;
const START_SECONDS_MAX: u64 = 20;

impl Lab {
    /// An empty folder that other users may read: servers started by root drop their rights.
    pub fn new() -> Result<Lab, Trouble> {
        let folder = tempfile::Builder::new().prefix("larder-lab-").tempdir();
        let folder = folder.map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        open_to_all(folder.path())?;
        Ok(Lab { servers: Vec::new(), folder, elsewhere: RefCell::default() })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file below the folder.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<PathBuf, Trouble> {
        let path = self.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| format!("making {}: {error}", parent.display()))?;
        }
        std::fs::write(&path, bytes).map_err(|error| format!("writing {}: {error}", path.display()))?;
        Ok(path)
    }

    /// Makes a folder below the folder that every user may write.
    pub fn folder(&self, name: &str) -> Result<PathBuf, Trouble> {
        let path = self.path().join(name);
        std::fs::create_dir_all(&path).map_err(|error| format!("making {}: {error}", path.display()))?;
        open_to_all(&path)?;
        Ok(path)
    }

    /// A folder outside the lab that goes with it.
    pub fn remove_at_end(&self, folder: &Path) {
        self.elsewhere.borrow_mut().push(folder.to_owned());
    }

    /// Starts a server and waits until it accepts connections on `port`; gives its process id.
    pub fn start(&mut self, name: &str, command: &mut Command, port: u16) -> Result<u32, Trouble> {
        let log = self.path().join(format!("{name}.log"));
        let file = File::create(&log).map_err(|error| format!("writing {}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| format!("writing {}: {error}", log.display()))?;
        let command = command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let mut server = Server { name: name.to_owned(), child, log };
        server.wait_until_it_listens(port)?;
        let id = server.child.id();
        self.servers.push(server);
        Ok(id)
    }

    /// Ends the server that was started last.
    pub fn end_last(&mut self) {
        self.servers.pop();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        while self.servers.pop().is_some() {}
        for folder in self.elsewhere.borrow().iter() {
            std::fs::remove_dir_all(folder).ok();
        }
    }
}

impl Server {
    fn wait_until_it_listens(&mut self, port: u16) -> Result<(), Trouble> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(START_SECONDS_MAX) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended at its start with {status}: {}", self.name, self.last_words()));
            }
            if TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} does not listen on port {port}: {}", self.name, self.last_words()))
    }

    fn last_words(&self) -> String {
        let mut text = String::new();
        let read = File::open(&self.log).and_then(|mut file| file.read_to_string(&mut text));
        if read.is_err() { "its log cannot be read".into() } else { crate::shell::last_lines(&text, 15) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            rustix::process::kill_process(id, rustix::process::Signal::TERM).ok();
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(STOP_SECONDS_MAX) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Fills the `{names}` of a template and writes it into the server's own folder of the lab.
pub fn configuration(lab: &Lab, name: &str, template: &str, fill: &[(&str, String)]) -> Result<PathBuf, Trouble> {
    let folder = lab.folder(name)?;
    let mut text = template.replace("{dir}", &folder.display().to_string());
    // Started by root, nginx would give up its rights and then not read the lab.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    text = text.replace("{user}", user);
    for (key, value) in fill {
        text = text.replace(&format!("{{{key}}}"), value);
    }
    lab.write(&format!("{name}/conf"), text)
}

/// Starts the Larder of the workspace on a free port, everything of it in the lab; gives the port.
pub fn start_larder(lab: &mut Lab, root: &Path, name: &str, flags: &[&str]) -> Result<u16, Trouble> {
    start_larder_program(lab, &crate::shell::built_larder(root), name, flags)
}

/// Like [`start_larder`], for any build of Larder.
pub fn start_larder_program(lab: &mut Lab, program: &Path, name: &str, flags: &[&str]) -> Result<u16, Trouble> {
    let port = free_port()?;
    let mut command = Command::new(program);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--admin", &format!("127.0.0.1:{}", free_port()?)]);
    command.arg("--store").arg(lab.folder(&format!("{name}-store"))?);
    for (flag, default) in [("--memory", "128MB"), ("--disk", "0")] {
        if !flags.iter().any(|given| given.starts_with(flag)) {
            command.args([flag, default]);
        }
    }
    lab.start(name, command.args(flags), port)?;
    Ok(port)
}

/// A port of this machine that nothing listens on, and that this process has given nobody before. It is outside
/// of the range that the kernel gives to connections by itself, so none of those takes it before its server does.
pub fn free_port() -> Result<u16, Trouble> {
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 20_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Chores that run at the same time look at different places first.
    let place = std::process::id().wrapping_mul(100);
    for _ in 0..PORTS {
        let next = place.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(FIRST + next).map_err(|error| error.to_string())?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(format!("no free port from {FIRST} on"))
}

fn open_to_all(folder: &Path) -> Result<(), Trouble> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777))
        .map_err(|error| format!("opening {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_its_start_is_reported_with_its_last_words() {
        let mut lab = Lab::new().unwrap();
        let port = free_port().unwrap();
        let trouble =
            lab.start("short", Command::new("sh").args(["-c", "echo out of milk; exit 3"]), port).unwrap_err();
        assert!(trouble.contains("exit status: 3") && trouble.contains("out of milk"), "{trouble}");
    }

    #[test]
    fn no_port_is_given_twice() {
        let ports: std::collections::HashSet<u16> = (0..1_000).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 1_000);
    }

    #[test]
    fn templates_are_filled() {
        let lab = Lab::new().unwrap();
        let file = configuration(&lab, "one", "listen {port}; in {dir}; x {}", &[("port", "80".into())]).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(text, format!("listen 80; in {}; x {{}}", lab.path().join("one").display()));
    }

    #[test]
    fn a_lab_takes_its_files_with_it() {
        let lab = Lab::new().unwrap();
        let path = lab.write("a/b", "text").unwrap();
        assert!(path.is_file());
        drop(lab);
        assert!(!path.exists());
    }
}
