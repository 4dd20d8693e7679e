//! Files, ports and programs that a configuration names: the needs of a server with it.

use super::connections::{self, Connections};
use crate::config::list::ListSource;
use crate::config::{Config, LogTo, ResolverKind};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of the system that every server reads: names, roots of certificates, time zones, and the kernel's view of the machine.
const OF_SYSTEM: [&str; 28] = [
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/var/lib/ca-certificates",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/transparent_hugepage",
    "/dev/urandom",
    "/dev/random",
];

/// Where the C library finds the plug-ins that it asks for names.
const LIBRARIES: [&str; 6] = ["/etc/ld.so.cache", "/etc/passwd", "/lib", "/lib64", "/usr/lib", "/usr/lib64"];

/// Processes of scripts may write there (`python/larder/_confine.py`), and the server makes control groups for them.
const OF_SCRIPTS: [&str; 12] = [
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/dev/mqueue",
    "/dev/pts",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/sys/fs/cgroup",
];

/// How far the programs reach that a server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Programs {
    /// It starts none.
    None,
    /// Processes of scripts: they read and start anything, and write where scripts may.
    Scripts,
    /// Programs that were written for no bounds.
    Any,
}

/// The needs of a configuration.
#[derive(Clone, Debug)]
pub(super) struct Named {
    /// Files and folders that are read.
    pub read: BTreeSet<PathBuf>,
    /// Files and folders that are read and written.
    pub write: BTreeSet<PathBuf>,
    /// Folders in which Unix sockets are made.
    pub sockets: BTreeSet<PathBuf>,
    /// TCP ports that are listened on.
    pub listened: BTreeSet<u16>,
    /// TCP ports that are connected to.
    pub connected: Connections,
    /// How far programs reach.
    pub programs: Programs,
    /// The names of the settings that start programs, for people.
    pub program_names: Vec<String>,
}

impl Named {
    /// Those of a configuration that was read from these files.
    pub fn of(config: &Config, files: &[PathBuf]) -> Named {
        let (programs, program_names) = programs(config);
        Named {
            read: read(config, files),
            write: written(config, programs),
            sockets: config.listens.iter().filter_map(|listen| listen.socket.as_deref().map(folder_of)).collect(),
            listened: listened(config),
            connected: connections::of(config),
            programs,
            program_names,
        }
    }

    /// Leaves out paths that are not there, which no kernel can keep open, and symbolic links.
    pub fn resolve(&mut self) {
        for paths in [&mut self.read, &mut self.write, &mut self.sockets] {
            *paths = paths.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
        }
    }

    /// The paths among those that are read that are not of every system, for people.
    pub fn own_read(&self) -> impl Iterator<Item = &PathBuf> {
        let of_system = OF_SYSTEM.iter().chain(&LIBRARIES).filter_map(|path| fs::canonicalize(path).ok());
        let of_system: BTreeSet<PathBuf> = of_system.collect();
        self.read.iter().filter(move |path| !of_system.contains(*path))
    }
}

/// Whether a configuration starts programs, and the names of its parts that do.
fn programs(config: &Config) -> (Programs, Vec<String>) {
    let scripts = config.mounts.iter().map(|mount| mount.application.name.clone());
    let helpers = config.helpers.iter().map(|helper| format!("[[helper]] {}", helper.name));
    let names: Vec<String> = scripts.chain(helpers).collect();
    let writes_anywhere =
        config.mounts.iter().any(|mount| mount.python.write.iter().any(|path| path == Path::new("/")));
    let programs = match (config.helpers.is_empty() && !writes_anywhere, config.mounts.is_empty()) {
        (false, _) => Programs::Any,
        (true, false) => Programs::Scripts,
        (true, true) => Programs::None,
    };
    (programs, names)
}

fn read(config: &Config, files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut read: BTreeSet<PathBuf> = OF_SYSTEM.iter().map(PathBuf::from).collect();
    if config.upstream.resolver == ResolverKind::System {
        read.extend(LIBRARIES.iter().map(PathBuf::from));
    }
    let mut of_settings: Vec<PathBuf> = files.to_vec();
    of_settings.extend(config.cluster.files().map(|(_, file)| file.clone()));
    for listen in &config.listens {
        of_settings.extend(listen.tls.iter().flat_map(|pair| [pair.chain.clone(), pair.key.clone()]));
        of_settings.extend(listen.clients.authorities.clone());
        of_settings.extend(listen.clients.revoked.clone());
    }
    for login in &config.logins {
        of_settings.extend(login.file.iter().chain(&login.groups).chain(&login.ldap.password_file).cloned());
    }
    of_settings.extend(config.rules.iter().filter_map(|rule| rule.does.page.clone()));
    of_settings.extend(config.access.country_file.clone());
    of_settings.extend(config.upstream.extra_roots.iter().cloned());
    of_settings.extend(std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
    read.extend(std::env::var_os("SSL_CERT_DIR").map(PathBuf::from));
    for list in &config.lists {
        match &list.source {
            ListSource::Path(path) if path.is_dir() => read.extend([path.clone()]),
            ListSource::Path(path) => of_settings.push(path.clone()),
            ListSource::Url(_) => {}
        }
    }
    read.extend(of_settings.iter().flat_map(|file| folders_of(file)));
    read
}

/// Programs that change a file put another one in its place: its folder is left, not the file alone. Where the file is a symbolic link,
/// as those of certbot are, the folder that it leads to is left too.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let led_to = fs::canonicalize(file).ok().map(|file| folder_of(&file));
    [folder_of(file)].into_iter().chain(led_to).collect()
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn written(config: &Config, programs: Programs) -> BTreeSet<PathBuf> {
    let mut written: BTreeSet<PathBuf> = [PathBuf::from("/dev/null")].into();
    written.extend(own_folders(config));
    if let Some(LogTo::File(path)) = config.log.as_ref().map(|log| &log.to) {
        // A device, a pipe and a FIFO stay; a file is moved away and made anew.
        let is_rotated = fs::metadata(path).map_or(true, |found| found.is_file());
        written.extend(if is_rotated { folders_of(path) } else { vec![path.clone()] });
    }
    if programs == Programs::Scripts {
        written.extend(OF_SCRIPTS.iter().map(PathBuf::from));
        written.extend(std::env::var_os("TMPDIR").map(PathBuf::from));
        for mount in &config.mounts {
            let temporary = mount.python.environment.iter().filter_map(|text| text.strip_prefix("TMPDIR="));
            written.extend(temporary.map(PathBuf::from).chain(mount.python.write.iter().cloned()));
            written.insert(mount.python.folder.clone());
        }
    }
    written
}

/// The folders that Larder makes where they are not there.
pub(super) fn own_folders(config: &Config) -> Vec<PathBuf> {
    let store = config.store_folder();
    let beside = match config.store {
        Some(_) => [None, None],
        // Without a store the local CA and certificates lie in another folder of the user.
        None => [config.authority_folder(), config.acme_folder()],
    };
    let mut folders: Vec<PathBuf> = store.into_iter().chain(beside.into_iter().flatten()).collect();
    folders.extend(config.disk_folders());
    // `disk = 0` has no folder of its own to make.
    if config.disk_bytes == Some(0) && config.disk.folders.is_empty() {
        folders.retain(|folder| Some(folder) != config.disk_folders().first());
    }
    folders
}

fn listened(config: &Config) -> BTreeSet<u16> {
    let of_listeners = config.listens.iter().filter(|listen| listen.socket.is_none() && listen.activation.is_none());
    let addresses = of_listeners.map(|listen| listen.address).chain(config.admin).chain(config.cluster.listen);
    // Port 0 is any that is free: the listeners of runs have one, and so has a connection from a given address.
    addresses.map(|address| address.port()).chain([0]).collect()
}
