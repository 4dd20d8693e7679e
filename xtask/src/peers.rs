//! Larder and packaged caches with a store on disk, each configured as its own people would, all in front of one
//! origin of ours. Where they run and with how much memory is the play's to say.

use crate::lab::{self, Lab};
use crate::shell::{self, Trouble};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cache with a store on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ourselves.
    Larder,
    /// nginx with `proxy_cache`.
    Nginx,
    /// Squid with a rock store.
    Squid,
    /// Apache Traffic Server.
    TrafficServer,
}

impl Kind {
    /// All of them, ourselves first.
    pub const ALL: [Kind; 4] = [Kind::Larder, Kind::Nginx, Kind::Squid, Kind::TrafficServer];

    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Larder => "larder",
            Kind::Nginx => "nginx",
            Kind::Squid => "squid",
            Kind::TrafficServer => "trafficserver",
        }
    }

    /// Whether it can be started here; Larder is built when it is needed.
    pub fn is_installed(self) -> bool {
        match self {
            Kind::Larder => true,
            Kind::Nginx => shell::find_program("nginx").is_some(),
            Kind::Squid => shell::find_program("squid").is_some(),
            Kind::TrafficServer => shell::find_program("traffic_server").is_some(),
        }
    }
}

/// How much it gets, and where it runs.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// The memory tier, of those that have one.
    pub memory_bytes: u64,
    /// The store on disk.
    pub disk_bytes: u64,
    /// The core it is bound to; `None` is wherever the system likes.
    pub core: Option<usize>,
    /// Buffers and indexes of the smallest useful size instead of those for speed.
    pub is_small: bool,
}

/// A cache that runs and listens.
pub struct Peer {
    /// The kind of cache.
    pub kind: Kind,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    /// Its first process; its workers are below it.
    pub id: u32,
    /// The folder of its disk store.
    pub store: PathBuf,
}

/// The published build of Larder.
pub fn build(root: &Path) -> Result<(), Trouble> {
    shell::build_published(root, "larder", &["larder"])
}

impl Peer {
    /// Starts a cache with an empty store in front of the origin.
    pub fn start(kind: Kind, root: &Path, lab: &mut Lab, origin: u16, play: &Play) -> Result<Peer, Trouble> {
        let port = lab::free_port()?;
        let store = lab.folder(&format!("{}-store", kind.as_str()))?;
        let site = Site { lab, port, origin, store: &store, play };
        let mut command = match kind {
            Kind::Larder => site.larder(root)?,
            Kind::Nginx => site.nginx()?,
            Kind::Squid => site.squid()?,
            Kind::TrafficServer => site.traffic_server()?,
        };
        let id = lab.start(kind.as_str(), &mut command, port)?;
        Ok(Peer { kind, port, id, store })
    }
}

/// Name and version, as the program says itself.
pub fn version(kind: Kind, root: &Path) -> Result<String, Trouble> {
    let (program, flag) = match kind {
        Kind::Larder => (shell::published(root, "larder"), "--version"),
        Kind::Nginx => (shell::need_program("nginx")?, "-v"),
        Kind::Squid => (shell::need_program("squid")?, "-v"),
        Kind::TrafficServer => (shell::need_program("traffic_server")?, "--version"),
    };
    let output = Command::new(&program).arg(flag).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&said).into_owned();
    let words = text.lines().next().unwrap_or_default().trim_start_matches("nginx version: ");
    let end = words.find(|c: char| c.is_ascii_digit()).and_then(|at| Some(at + words[at..].find(' ')?));
    Ok(words[..end.unwrap_or(words.len())].to_owned())
}

/// The files of a Traffic Server that is installed elsewhere and runs in a lab.
pub struct TrafficServer<'a> {
    /// records.config, filled in.
    pub records: &'a Path,
    /// remap.config.
    pub remap: String,
    /// storage.config.
    pub storage: String,
    /// ssl_multicert.config.
    pub certificates: String,
}

impl TrafficServer<'_> {
    /// Lays them out in the lab; gives the file for `--run-root`.
    pub fn write(&self, lab: &Lab) -> Result<PathBuf, Trouble> {
        let name = "trafficserver";
        for part in ["run", "log"] {
            lab.folder(&format!("{name}/{part}"))?;
        }
        let records =
            std::fs::read(self.records).map_err(|error| format!("reading {}: {error}", self.records.display()))?;
        lab.write(&format!("{name}/etc/records.config"), records)?;
        lab.write(&format!("{name}/etc/remap.config"), &self.remap)?;
        lab.write(&format!("{name}/etc/storage.config"), &self.storage)?;
        lab.write(&format!("{name}/etc/ssl_multicert.config"), &self.certificates)?;
        let allowed = "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n";
        lab.write(&format!("{name}/etc/ip_allow.yaml"), allowed)?;
        let folder = lab.path().join(name).display().to_string();
        let layout = format!(
            "prefix: {folder}\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\nsysconfdir: {folder}/etc\n\
             datadir: {folder}/run\nlibdir: /usr/lib\nlibexecdir: /usr/lib/trafficserver/modules\n\
             localstatedir: {folder}/run\nruntimedir: {folder}/run\nlogdir: {folder}/log\ncachedir: {folder}/run\n"
        );
        lab.write(&format!("{name}/runroot.yaml"), layout)
    }
}

/// The values that the commands need.
struct Site<'a> {
    lab: &'a Lab,
    port: u16,
    origin: u16,
    store: &'a Path,
    play: &'a Play,
}

impl Site<'_> {
    fn larder(&self, root: &Path) -> Result<Command, Trouble> {
        let mut command = self.on_core(shell::published(root, "larder"))?;
        command.args(["--listen", &format!("127.0.0.1:{}", self.port), "--admin", "none", "--workers", "1"]);
        command.args(["--origin", &format!("http://127.0.0.1:{}", self.origin)]);
        command.args(["--memory", &format!("{}B", self.play.memory_bytes)]);
        command.args(["--disk", &format!("{}B", self.play.disk_bytes)]).arg("--store").arg(self.store);
        Ok(command)
    }

    fn nginx(&self) -> Result<Command, Trouble> {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(65_536);
        let (zone, buffers) = if self.play.is_small { ("1m", "8 4k") } else { ("64m", "16 32k") };
        let open = if self.play.is_small { 100 } else { descriptors.saturating_sub(5_000).max(1_000) };
        let conf = self.fill(
            "nginx",
            include_str!("../peers/nginx-disk.conf"),
            &[
                ("zone", zone.to_owned()),
                ("buffers", buffers.to_owned()),
                ("descriptors", descriptors.to_string()),
                ("open", open.to_string()),
                ("disk", self.play.disk_bytes.to_string()),
            ],
        )?;
        let mut command = self.on_core(shell::need_program("nginx")?)?;
        command.arg("-c").arg(conf);
        Ok(command)
    }

    fn squid(&self) -> Result<Command, Trouble> {
        let conf = self.fill(
            "squid",
            include_str!("../peers/squid-disk.conf"),
            &[
                ("memory", format!("{} KB", self.play.memory_bytes / 1024)),
                ("disk", (self.play.disk_bytes >> 20).to_string()),
            ],
        )?;
        // Names of its shared memory hang on the service name.
        let service = format!("lab{}", self.port);
        let program = shell::need_program("squid")?;
        shell::ask(Command::new(&program).args(["-n", &service, "-N", "-z", "-f"]).arg(&conf))?;
        let mut command = self.on_core(program)?;
        command.args(["-n", &service, "-N", "-f"]).arg(conf);
        Ok(command)
    }

    fn traffic_server(&self) -> Result<Command, Trouble> {
        let records = include_str!("../peers/trafficserver.config");
        let records = self.fill("trafficserver", records, &[("memory", self.play.memory_bytes.to_string())])?;
        let layout = TrafficServer {
            records: &records,
            remap: format!("map / http://127.0.0.1:{}/\n", self.origin),
            storage: format!("{} {}\n", self.store.display(), self.play.disk_bytes),
            certificates: String::new(),
        };
        let layout = layout.write(self.lab)?;
        let mut command = self.on_core(shell::need_program("traffic_server")?)?;
        command.arg(format!("--run-root={}", layout.display()));
        Ok(command)
    }

    fn fill(&self, name: &str, template: &str, more: &[(&str, String)]) -> Result<PathBuf, Trouble> {
        let own = [
            ("port", self.port.to_string()),
            ("origin", self.origin.to_string()),
            ("cache", self.store.display().to_string()),
        ];
        lab::configuration(self.lab, name, template, &[&own[..], more].concat())
    }

    fn on_core(&self, program: PathBuf) -> Result<Command, Trouble> {
        let Some(core) = self.play.core else { return Ok(Command::new(program)) };
        let mut command = Command::new(shell::need_program("taskset")?);
        command.arg("-c").arg(core.to_string()).arg(program);
        Ok(command)
    }
}
