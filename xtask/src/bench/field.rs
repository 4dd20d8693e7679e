//! The servers of the table, each pinned to core 0 and configured as its own people would, with all the doors that
//! the cells ask at.

use crate::lab::{self, Lab};
use crate::peers::{self, Peer, Play, TrafficServer};
use crate::shell::{self, Trouble};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Ourselves.
    Larder,
    /// An earlier build of ourselves.
    Before,
    /// nginx with `proxy_cache`.
    Nginx,
    /// Varnish.
    Varnish,
    /// HAProxy with its cache.
    Haproxy,
    /// Apache Traffic Server.
    TrafficServer,
    /// A fixed reply from a bare event loop.
    Limit,
    /// A bare event loop between two sockets.
    Relay,
}

impl Kind {
    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Larder => "larder",
            Kind::Before => "larder before",
            Kind::Nginx => "nginx",
            Kind::Varnish => "varnish",
            Kind::Haproxy => "haproxy",
            Kind::TrafficServer => "trafficserver",
            Kind::Limit => "limit",
            Kind::Relay => "relay",
        }
    }

    /// Whether it is a cache of somebody else.
    pub fn is_peer(self) -> bool {
        !matches!(self, Kind::Larder | Kind::Limit | Kind::Relay)
    }
}

/// Where what is cached lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// All of it in memory.
    Memory,
    /// On disk, its files in the page cache: the memory tier is too small for the set.
    Disk,
}

/// Ports on 127.0.0.1, whether the server uses them all or not.
#[derive(Clone, Copy, Debug)]
pub struct Doors {
    /// A reverse proxy of the origin.
    pub plain: u16,
    /// A forward proxy.
    pub forward: u16,
    /// On `[::1]`: a forward proxy that refuses.
    pub refusing: u16,
    /// The reverse proxy over TLS.
    pub tls: u16,
    /// Metrics, of those that have a port for them.
    pub admin: u16,
}

/// Switches of Larder; others have none.
#[derive(Clone, Debug)]
pub struct Extras {
    /// Whether there is an access log.
    pub log: bool,
    /// How many of the last requests are kept to be explained.
    pub records: u32,
    /// The memory store.
    pub memory: &'static str,
    /// The disk store.
    pub disk: &'static str,
    /// Client networks and sites that stand before the ones that fit.
    pub rules: usize,
    /// Entries of the table of rules, none of which holds for what is asked, and 5 million names that the last of them looks up.
    pub table: usize,
    /// Its workers, and the cores that these have between them.
    pub workers: usize,
    /// See `workers`.
    pub cores: &'static str,
}

/// The defaults, with as much memory as the cells need.
pub const USUAL: Extras =
    Extras { log: true, records: 4000, memory: "1GB", disk: "0", rules: 0, table: 0, workers: 1, cores: "0" };
const DISK_MEMORY_BYTES: u64 = 4_000_000;
const DISK_BYTES: u64 = 2_000_000_000;
/// Larder's share of it where hits come from disk.
const ON_DISK: Extras = Extras { memory: "4MB", disk: "2GB", ..USUAL };

/// A server that runs and listens.
pub struct Contestant {
    /// The kind of server.
    pub kind: Kind,
    /// Where it listens.
    pub doors: Doors,
    /// Its first process; its workers are below it.
    pub id: u32,
    /// Name and version, as it says itself.
    pub version: String,
    /// The access log, where there is one: it grows by the gigabyte.
    pub log: Option<PathBuf>,
}

/// Builds what the comparison takes from this workspace.
pub fn build(root: &Path) -> Result<(), Trouble> {
    shell::build_published(root, "larder", &["larder"])?;
    shell::build_published(root, "xtask", &["limit", "relay"])
}

/// A certificate for all: ECDSA on P-256, what a site takes today. HAProxy wants it in one file with its key.
pub fn make_certificate(lab: &Lab) -> Result<(), Trouble> {
    let (key, chain) = (lab.path().join("leaf.key"), lab.path().join("leaf.pem"));
    let mut openssl = Command::new(shell::need_program("openssl")?);
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    // A server's own: a client that is strict takes none of an authority.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    shell::ask(openssl.arg("-keyout").arg(&key).arg("-out").arg(&chain))?;
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()));
    lab.write("both.pem", [read(&chain)?, read(&key)?].concat())?;
    Ok(())
}

/// A configuration without the lines that set what a program's table of settings does not name: an earlier build of
/// Larder does by itself, or without a limit, what is asked for there.
fn known_to(settings: &str, template: &str) -> String {
    let is_known = |line: &&str| match line.split_once(" = ") {
        Some((name, _)) => settings.contains(&format!("`{name}`")),
        None => true,
    };
    template.split_inclusive('\n').filter(is_known).collect()
}

/// A command that is pinned to a core.
pub fn on_core(core: usize, program: &str) -> Result<Command, Trouble> {
    on_cores(&core.to_string(), program)
}

fn on_cores(cores: &str, program: &str) -> Result<Command, Trouble> {
    let mut command = Command::new(shell::need_program("taskset")?);
    let program = if program.contains('/') { PathBuf::from(program) } else { shell::need_program(program)? };
    command.arg("-c").arg(cores).arg(program);
    Ok(command)
}

impl Contestant {
    /// Starts a server in front of the origin.
    pub fn start(
        kind: Kind,
        stage: Stage,
        root: &Path,
        lab: &mut Lab,
        origin: u16,
        before: Option<&Path>,
    ) -> Result<Contestant, Trouble> {
        match (kind, stage) {
            (Kind::Before, stage) => {
                let program = before.ok_or("no earlier build is given: --against PATH")?;
                let extras = if stage == Stage::Memory { &USUAL } else { &ON_DISK };
                let started = Contestant::start_program("before", program, extras, lab, origin)?;
                Ok(Contestant { kind, ..started })
            }
            (Kind::Larder, Stage::Memory) => Contestant::start_larder("larder", &USUAL, root, lab, origin),
            (Kind::Larder, Stage::Disk) => Contestant::start_larder("larder", &ON_DISK, root, lab, origin),
            (Kind::Nginx, Stage::Disk) => Contestant::on_disk(kind, peers::Kind::Nginx, root, lab, origin),
            (Kind::TrafficServer, Stage::Disk) => {
                Contestant::on_disk(kind, peers::Kind::TrafficServer, root, lab, origin)
            }
            _ => Contestant::start_other(kind, stage, root, lab, origin),
        }
    }

    /// Starts Larder with its switches set; `name` is that of its folder in the lab.
    pub fn start_larder(
        name: &str,
        extras: &Extras,
        root: &Path,
        lab: &mut Lab,
        origin: u16,
    ) -> Result<Contestant, Trouble> {
        Contestant::start_program(name, Path::new(&built(root, "larder")), extras, lab, origin)
    }

    fn start_program(
        name: &str,
        program: &Path,
        extras: &Extras,
        lab: &mut Lab,
        origin: u16,
    ) -> Result<Contestant, Trouble> {
        let doors = Doors::free()?;
        let log = extras.log.then(|| lab.path().join(name).join("access.log"));
        let site = Site { lab, origin, doors };
        let fill = [
            ("memory", extras.memory.to_owned()),
            ("disk", extras.disk.to_owned()),
            ("records", extras.records.to_string()),
            ("workers", extras.workers.to_string()),
            ("admin", doors.admin.to_string()),
            ("clients", client_networks(extras.rules)),
            ("sites", sites(extras.rules, origin) + &table(extras.table, lab)?),
            ("log", log.as_ref().map_or("none".to_owned(), |path| path.display().to_string())),
        ];
        let mut template = include_str!("../../peers/bench-larder.toml").to_owned();
        if name == "before" {
            let settings = shell::ask(Command::new(program).args(["config", "--markdown"]))?;
            template = known_to(&settings, &template);
        }
        let conf = site.fill(name, &template, &fill)?;
        let version = shell::ask(Command::new(program).arg("--version"))?.trim().to_owned();
        let mut command = on_cores(extras.cores, &program.to_string_lossy())?;
        command.arg("--config").arg(conf);
        let id = lab.start(name, &mut command, doors.plain)?;
        Ok(Contestant { kind: Kind::Larder, doors, id, version, log })
    }

    fn on_disk(kind: Kind, peer: peers::Kind, root: &Path, lab: &mut Lab, origin: u16) -> Result<Contestant, Trouble> {
        let play = Play { memory_bytes: DISK_MEMORY_BYTES, disk_bytes: DISK_BYTES, core: Some(0), is_small: false };
        let version = peers::version(peer, root)?;
        let peer = Peer::start(peer, root, lab, origin, &play)?;
        let doors = Doors { plain: peer.port, ..Doors::free()? };
        Ok(Contestant { kind, doors, id: peer.id, version, log: None })
    }

    fn start_other(kind: Kind, stage: Stage, root: &Path, lab: &mut Lab, origin: u16) -> Result<Contestant, Trouble> {
        let doors = Doors::free()?;
        let site = Site { lab, origin, doors };
        let (mut command, version) = match kind {
            Kind::Nginx => (site.nginx()?, said_version("nginx", "-v")?),
            Kind::Varnish => (site.varnish(stage)?, said_version("varnishd", "-V")?),
            Kind::Haproxy => (site.haproxy()?, said_version("haproxy", "-v")?),
            Kind::TrafficServer => (site.traffic_server()?, said_version("traffic_server", "--version")?),
            Kind::Limit | Kind::Larder | Kind::Before => {
                (site.bare(root, "limit", &[doors.plain])?, "xtask's limit".to_owned())
            }
            Kind::Relay => (site.bare(root, "relay", &[doors.plain, origin])?, "xtask's relay".to_owned()),
        };
        let id = lab.start(kind.as_str(), &mut command, doors.plain)?;
        Ok(Contestant { kind, doors, id, version, log: None })
    }

    /// Empties the access log: nobody reads it, and writing it back to the device would be noise.
    pub fn empty_log(&self) {
        let opened = self.log.as_ref().map(|path| std::fs::OpenOptions::new().write(true).open(path));
        if let Some(Ok(file)) = opened {
            file.set_len(0).ok();
        }
    }
}

impl Doors {
    /// Ports that nobody listens on.
    pub(super) fn free() -> Result<Doors, Trouble> {
        let free = lab::free_port;
        Ok(Doors { plain: free()?, forward: free()?, refusing: free()?, tls: free()?, admin: free()? })
    }
}

/// How many files a process may have open here.
pub fn descriptors() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(65_536)
}

/// Networks of others.
fn client_networks(count: usize) -> String {
    (0..count).map(|at| format!("\"10.{}.{}.0/24\", ", at / 256 % 256, at % 256)).collect()
}

/// Sites that nobody asks for.
fn sites(count: usize, origin: u16) -> String {
    let site = |at| format!("\n[[site]]\nhosts = [\"www.s{at}.test\"]\norigin = \"http://127.0.0.1:{origin}\"\n");
    (0..count).map(site).collect()
}

/// Names of the list beside the table of rules.
pub(super) const NAMES: usize = 5_000_000;

/// Rules of all kinds that hold for nothing that is asked, a list, and a rule that denies one path with a page of 600 bytes.
fn table(count: usize, lab: &Lab) -> Result<String, Trouble> {
    if count == 0 {
        return Ok(String::new());
    }
    let (names, page) = (lab.path().join("names"), lab.path().join("page.html"));
    let lines: String = (0..NAMES).map(|at| format!("n{at}.listed.test\n")).collect();
    std::fs::write(&names, lines).map_err(|error| format!("cannot write {}: {error}", names.display()))?;
    std::fs::write(&page, "x".repeat(600)).map_err(|error| format!("cannot write {}: {error}", page.display()))?;
    let rule = |at: usize| {
        let when = match at % 10 {
            0 => format!("host = \"*.h{at}.test\""),
            1 => format!("path = \"/p{at}/**\""),
            2 => format!("path_regex = \"^/r{at}/[0-9]+$\""),
            3 => format!("user_agent = \"agent-{at}\""),
            4 => format!("client = \"10.{}.{}.0/24\"", at / 256 % 256, at % 256),
            5 => format!("port = {}", 20_000 + at),
            6 => format!("query = \"q{at}=1\""),
            7 => format!("field = {{ X-Kind = \"kind-{at}\" }}"),
            8 => format!("method = \"POST\", content_type = \"application/x-{at}\""),
            _ => format!("host = \"h{at}.test\", path = \"/**/*.x{at}\""),
        };
        format!("[[rule]]\nwhen = {{ {when} }}\ndo = {{ deny = true }}\n")
    };
    let rules: String = (0..count).map(rule).collect();
    Ok(format!(
        "\n[[list]]\nname = \"names\"\nformat = \"domains\"\nsource = {names:?}\n{rules}\
         [[rule]]\nwhen = {{ list = \"names\" }}\ndo = {{ deny = true }}\n\
         [[rule]]\nwhen = {{ path = \"/denied\" }}\ndo = {{ deny = true, page = {page:?} }}\n"
    ))
}

pub(super) fn built(root: &Path, program: &str) -> String {
    shell::published(root, program).display().to_string()
}

/// The values that the commands need.
struct Site<'a> {
    lab: &'a Lab,
    origin: u16,
    doors: Doors,
}

impl Site<'_> {
    fn nginx(&self) -> Result<Command, Trouble> {
        let cache = memory_folder(self.lab)?.display().to_string();
        let descriptors = descriptors();
        let fill = [
            ("cache", cache),
            ("descriptors", descriptors.to_string()),
            ("open", descriptors.saturating_sub(5_000).clamp(1_000, 200_000).to_string()),
        ];
        let conf = self.fill("nginx", include_str!("../../peers/bench-nginx.conf"), &fill)?;
        let mut command = on_core(0, "nginx")?;
        command.arg("-c").arg(conf);
        Ok(command)
    }

    fn varnish(&self, stage: Stage) -> Result<Command, Trouble> {
        let conf = self.fill("varnish", include_str!("../../peers/varnish.vcl"), &[])?;
        let storage = match stage {
            Stage::Memory => "malloc,1g".to_owned(),
            Stage::Disk => format!("file,{},2g", self.lab.path().join("varnish-file").display()),
        };
        let mut command = on_core(0, "varnishd")?;
        command.arg("-F").arg("-n").arg(self.lab.folder("varnish-work")?).arg("-f").arg(conf);
        command.args(["-a", &format!("127.0.0.1:{}", self.doors.plain), "-s", &storage, "-T", "none"]);
        for parameter in ["thread_pools=1", "thread_pool_min=100", "thread_pool_max=2000", "listen_depth=4096"] {
            command.args(["-p", parameter]);
        }
        Ok(command)
    }

    fn haproxy(&self) -> Result<Command, Trouble> {
        let conf = self.fill("haproxy", include_str!("../../peers/bench-haproxy.cfg"), &[])?;
        let mut command = on_core(0, "haproxy")?;
        command.arg("-db").arg("-f").arg(conf);
        Ok(command)
    }

    fn traffic_server(&self) -> Result<Command, Trouble> {
        let records = self.fill("trafficserver", include_str!("../../peers/bench-trafficserver.config"), &[])?;
        let store = self.lab.folder("trafficserver-store")?;
        let layout = TrafficServer {
            records: &records,
            remap: format!(
                "map / http://127.0.0.1:{}/\nmap https://127.0.0.1:{}/ http://127.0.0.1:{}/\n",
                self.origin, self.doors.tls, self.origin
            ),
            storage: format!("{} {DISK_BYTES}\n", store.display()),
            certificates: "dest_ip=* ssl_cert_name=leaf.pem ssl_key_name=leaf.key\n".to_owned(),
        };
        let layout = layout.write(self.lab)?;
        let mut command = on_core(0, "traffic_server")?;
        command.arg(format!("--run-root={}", layout.display()));
        Ok(command)
    }

    fn bare(&self, root: &Path, program: &str, ports: &[u16]) -> Result<Command, Trouble> {
        let mut command = on_core(0, &built(root, program))?;
        command.args(ports.iter().map(u16::to_string));
        Ok(command)
    }

    fn fill(&self, name: &str, template: &str, more: &[(&str, String)]) -> Result<PathBuf, Trouble> {
        let own = [
            ("origin", self.origin.to_string()),
            ("plain", self.doors.plain.to_string()),
            ("forward", self.doors.forward.to_string()),
            ("refusing", self.doors.refusing.to_string()),
            ("tls", self.doors.tls.to_string()),
            ("lab", self.lab.path().display().to_string()),
        ];
        lab::configuration(self.lab, name, template, &[&own[..], more].concat())
    }
}

/// nginx keeps its cache in files: they belong into memory when memory hits are compared.
pub(super) fn memory_folder(lab: &Lab) -> Result<PathBuf, Trouble> {
    let name = lab.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = Path::new("/dev/shm").join(name);
    if std::fs::create_dir_all(&folder).is_err() {
        return lab.folder("nginx-cache");
    }
    lab.remove_at_end(&folder);
    Ok(folder)
}

/// Servers say their version on either output.
pub(super) fn said_version(program: &str, flag: &str) -> Result<String, Trouble> {
    let output = Command::new(shell::need_program(program)?).arg(flag).output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let words = text.lines().next().unwrap_or(program).trim_start_matches("nginx version: ");
    let digit = words.find(|c: char| c.is_ascii_digit()).unwrap_or(words.len());
    let end = words[digit..].find([' ', ')']).map_or(words.len(), |length| digit + length);
    Ok(words[..end].replace('(', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_build_is_not_told_of_settings_that_it_does_not_have() {
        let template = "memory = \"1MB\"\n\n[limits]\nconnections_max = 5\nshare = 100\n{sites}";
        let known = known_to("| `memory` | size |\n| `connections_max` | number |\n", template);
        assert_eq!(known, "memory = \"1MB\"\n\n[limits]\nconnections_max = 5\n{sites}");
    }
}
