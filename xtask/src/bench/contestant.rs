//! The servers that are compared, each pinned to core 0 and configured as its own people would.

use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ourselves.
    Larder,
    /// nginx with proxy_cache in memory.
    Nginx,
    /// Varnish with malloc storage.
    Varnish,
    /// A fixed reply from a bare event loop.
    Limit,
}

impl Kind {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Larder => "larder",
            Kind::Nginx => "nginx",
            Kind::Varnish => "varnish",
            Kind::Limit => "limit",
        }
    }
}

/// A server that runs and listens.
pub struct Contestant {
    /// What it is.
    pub kind: Kind,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// Its first process; its workers are below it.
    pub id: u32,
    /// Name and version, as it says itself.
    pub version: String,
}

/// Builds what the comparison takes from this workspace.
pub fn build(root: &Path, kinds: &[Kind]) -> Result<(), Trouble> {
    let cargo = || {
        let mut command = Command::new("cargo");
        command.current_dir(root).args(["build", "--release", "--quiet"]);
        command
    };
    if kinds.contains(&Kind::Larder) {
        shell::call(cargo().args(["-p", "larder", "--bin", "larder"]))?;
    }
    shell::call(cargo().args(["-p", "xtask", "--bin", "limit"]))
}

impl Contestant {
    /// Starts a server in front of the origin.
    pub fn start(kind: Kind, root: &Path, lab: &mut Lab, origin: u16) -> Result<Contestant, Trouble> {
        let port = lab::free_port()?;
        let (mut command, version) = match kind {
            Kind::Larder => larder(root, lab, port, origin)?,
            Kind::Nginx => nginx(lab, port, origin)?,
            Kind::Varnish => varnish(lab, port, origin)?,
            Kind::Limit => {
                let mut command = on_core(0, &target(root, "limit"))?;
                command.arg(port.to_string());
                (command, "limit".to_owned())
            }
        };
        let id = lab.start(kind.as_str(), &mut command, port)?;
        Ok(Contestant { kind, port, id, version })
    }
}

/// A command that is pinned to a core.
pub fn on_core(core: usize, program: &str) -> Result<Command, Trouble> {
    let mut command = Command::new(shell::need_program("taskset")?);
    let program = if program.contains('/') { PathBuf::from(program) } else { shell::need_program(program)? };
    command.arg("-c").arg(core.to_string()).arg(program);
    Ok(command)
}

fn target(root: &Path, program: &str) -> String {
    shell::target_folder(root).join("release").join(program).display().to_string()
}

fn larder(root: &Path, lab: &Lab, port: u16, origin: u16) -> Result<(Command, String), Trouble> {
    let program = target(root, "larder");
    let version = shell::ask(Command::new(&program).arg("--version"))?;
    let mut command = on_core(0, &program)?;
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--origin", &format!("http://127.0.0.1:{origin}")]);
    command.args(["--memory", "256MB", "--disk", "0", "--workers", "1"]);
    command.args(["--admin", &format!("127.0.0.1:{}", lab::free_port()?)]);
    command.arg("--store").arg(lab.folder("larder-store")?);
    Ok((command, version.trim().to_owned()))
}

fn nginx(lab: &Lab, port: u16, origin: u16) -> Result<(Command, String), Trouble> {
    let cache = memory_folder(lab)?;
    let fill = [("port", port.to_string()), ("origin", origin.to_string()), ("cache", cache.display().to_string())];
    let conf = lab::configuration(lab, "nginx", include_str!("../../peers/nginx.conf"), &fill)?;
    let mut command = on_core(0, "nginx")?;
    command.arg("-c").arg(conf);
    Ok((command, said_version("nginx", "-v")?))
}

/// nginx keeps its cache in files: they belong into memory when memory hits are compared.
fn memory_folder(lab: &Lab) -> Result<PathBuf, Trouble> {
    let name = lab.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = Path::new("/dev/shm").join(name);
    if std::fs::create_dir_all(&folder).is_err() {
        return lab.folder("nginx-cache");
    }
    lab.remove_at_end(&folder);
    Ok(folder)
}

fn varnish(lab: &Lab, port: u16, origin: u16) -> Result<(Command, String), Trouble> {
    let fill = [("origin", origin.to_string())];
    let conf = lab::configuration(lab, "varnish", include_str!("../../peers/varnish.vcl"), &fill)?;
    let mut command = on_core(0, "varnishd")?;
    command.arg("-F").arg("-n").arg(lab.folder("varnish-work")?).arg("-f").arg(conf);
    command.args(["-a", &format!("127.0.0.1:{port}"), "-s", "malloc,256m", "-T", "none"]);
    for parameter in ["thread_pools=1", "thread_pool_min=100", "thread_pool_max=2000", "listen_depth=4096"] {
        command.args(["-p", parameter]);
    }
    Ok((command, said_version("varnishd", "-V")?))
}

/// Servers say their version on the error output.
fn said_version(program: &str, flag: &str) -> Result<String, Trouble> {
    let output = Command::new(shell::need_program(program)?).arg(flag).output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let first = text.lines().next().unwrap_or(program);
    Ok(first.trim_start_matches("nginx version: ").split(" revision").next().unwrap_or(first).replace('(', ""))
}
