//! A cache that is running: started from its entry, bound to its cores, ready, and ended with all that it started.

use super::applications::application;
use super::entry::{EntrySpec, Stop, Values};
use super::names;
use super::post::Post;
use super::programs::{find_program, run_to_end};
use super::servers::{Database, check_needs, interpreter};
use super::stand_in::StandIn;
use super::tuning::{Advantage, Setting};
use crate::ledger::{self, Listener};
use crate::proc::{self, distribution, file_system};
use crate::report::date;
use crate::stop;
use crate::tls::{Authority, Tls, Trust};
use larder_wire::h2::PREFACE;
use larder_wire::h2::frame::{HEAD_BYTES, Settings, write_settings};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long an ended cache may take before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// How long what it started may live on after it.
const ORPHANS: Duration = Duration::from_millis(500);
/// Of a failed cache's own words, this much is kept for the reason.
const SAID_BYTES_MAX: usize = 600;
/// Objects up to this size are stored by every entry that can, and none takes more than half of its memory.
const OBJECT_BYTES_MAX: u64 = 64 << 20;
/// Names of the visible servers, in the entry's own folder.
const HOSTS: &str = "hosts";
/// The certificate of an entry whose listener speaks TLS, its key, and both in one file, as some products want them.
const CHAIN: &str = "chain.pem";
const KEY: &str = "key.pem";
const CHAIN_AND_KEY: &str = "chain-and-key.pem";
const POLL: Duration = Duration::from_millis(10);

/// An entry with its files in place; it can be started, ended and started again.
pub struct Prepared {
    spec: EntrySpec,
    program: PathBuf,
    values: Values,
    post: Post,
    database: Option<Database>,
    files: Vec<(String, String)>,
    preparations: Vec<Vec<String>>,
    version: String,
    store_at: String,
    authority: Option<Authority>,
    folder: tempfile::TempDir,
    _memory_folder: Option<tempfile::TempDir>,
}

/// A running cache. Dropping it ends it.
pub struct Running {
    child: Option<Child>,
    family: Vec<u32>,
    stop: Stop,
    /// Where it is asked.
    pub address: SocketAddr,
    /// The entry as the ledger's head names it.
    pub entry: ledger::Entry,
}

impl Prepared {
    /// Writes the files of an entry into a folder of its own and runs the commands before the start.
    pub fn new(spec: EntrySpec, post: Post) -> Result<Self, String> {
        Self::new_in(spec, post, &std::env::temp_dir())
    }

    /// Like [`Prepared::new`], with the entry's own folder in another one.
    pub fn new_in(spec: EntrySpec, post: Post, parent: &Path) -> Result<Self, String> {
        spec.can(&post.mode, &post.store)?;
        spec.speaks(post.listener)?;
        let folder = tempfile::Builder::new()
            .prefix("cacheoff-")
            .tempdir_in(parent)
            .map_err(|e| format!("no folder for {}: {e}", spec.name))?;
        let program = program(&spec, &post)?;
        check_needs(&spec.needed(post.listener))?;
        let owner = owner(&spec);
        let mut given = placeholders(&post, folder.path(), &program, &owner);
        let memory_folder = memory_folder(&spec, &post)?;
        let store_folder = memory_folder.as_ref().filter(|_| is_store_in_memory(&spec, &post));
        let cache_dir = store_folder.unwrap_or(&folder).path().join("cache");
        given.insert("cache_dir".to_owned(), cache_dir.display().to_string());
        let memory_dir = memory_folder.as_ref().map_or(folder.path(), |shm| shm.path());
        given.insert("memory_dir".to_owned(), memory_dir.display().to_string());
        let mut database = None;
        if post.makes_pages() && !spec.program.is_empty() {
            let interpreter = interpreter(&post.servers)?;
            let path = memory_folder.as_ref().map_or(folder.path(), |shm| shm.path()).join("board.db");
            given.insert("interpreter".to_owned(), interpreter.display().to_string());
            given.insert("database".to_owned(), path.display().to_string());
            database = Some(Database { path, interpreter, owner: owner.ids });
        }
        let values = spec.values((&post.mode, &post.store, post.listener), given);
        let mut files = spec.written(&values)?;
        for name in &spec.applications {
            files.push((name.clone(), application(name)?.to_owned()));
        }
        if !spec.hosts.is_empty() {
            let path = folder.path().join(HOSTS);
            fs::write(&path, &spec.hosts).map_err(|e| format!("no names for {}: {e}", spec.name))?;
        }
        lay_out(&spec, folder.path(), memory_folder.as_ref().map(|shm| shm.path()), &files, &owner)?;
        let authority = post.listener.is_secure().then(Authority::new).transpose()?;
        if let Some(authority) = &authority {
            certify(authority, folder.path(), &owner)
                .map_err(|error| format!("no certificate for {}: {error}", spec.name))?;
        }
        let preparations = spec.preparations(&post.mode, &post.store);
        let preparations = preparations.iter().map(|command| values.fill_all(command)).collect::<Result<_, _>>()?;
        let said = said_of_itself(&spec, &program);
        let version = version_in(&said);
        let version = match (version.is_empty(), origin_of(&program, &said)) {
            (false, Some(origin)) => format!("{version} ({origin})"),
            _ => version,
        };
        let store_at = store_at(&spec, &post, store_folder.unwrap_or(&folder).path());
        Ok(Self {
            spec,
            program,
            values,
            post,
            database,
            files,
            preparations,
            version,
            store_at,
            authority,
            folder,
            _memory_folder: memory_folder,
        })
    }

    /// The file that it sees as `/etc/hosts`.
    fn hosts(&self) -> PathBuf {
        self.folder.path().join(HOSTS)
    }

    /// Product and version.
    pub fn product(&self) -> String {
        format!("{} {}", self.spec.product, self.version).trim_end().to_owned()
    }

    /// Budget of the store in bytes; none where it stores nothing.
    pub fn cache_bytes(&self) -> Option<u64> {
        match self.post.store.as_str() {
            _ if self.post.makes_pages() => None,
            "memory" => Some(self.post.memory_mb << 20),
            "disk" => Some(self.post.disk_mb << 20),
            _ => None,
        }
    }

    /// The authority that signed for the entry, where its listener speaks TLS: it is made for this entry alone.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_ref()
    }

    /// The entry's own folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the commands before the first start.
    pub fn prepare(&self) -> Result<(), String> {
        if let Some(database) = &self.database {
            database.make(&self.spec, self.folder.path())?;
        }
        for words in &self.preparations {
            run_to_end(&self.spec.name, words, self.folder.path())?;
        }
        Ok(())
    }

    /// Starts the program without waiting for it.
    pub fn launch(&self) -> Result<Running, String> {
        let address = self.address()?;
        if self.spec.program.is_empty() {
            return Ok(Running {
                child: None,
                family: Vec::new(),
                stop: self.spec.stop,
                address,
                entry: self.facts(&[], &[]),
            });
        }
        if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
            return Err(format!("{address} is taken: something listens there already; choose another --port"));
        }
        let program = self.program.clone();
        let arguments = self.values.fill_all(&self.spec.start)?;
        let log = fs::File::create(self.folder.path().join("out.log"))
            .map_err(|e| format!("no log for {}: {e}", self.spec.name))?;
        let errors = log.try_clone().map_err(|e| format!("no log for {}: {e}", self.spec.name))?;
        let beside = self.beside()?;
        let (first, words) = accompanied(&program, &arguments, &beside);
        let mut command = match self.spec.hosts.is_empty() {
            true => Command::new(&first),
            false => names::seeing(&first, &self.hosts()),
        };
        command.args(words).current_dir(self.folder.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        for (name, value) in &self.spec.environment {
            command.env(name, self.values.fill(value)?);
        }
        let child = stop::start(|| on_cores(&self.post.cores, || command.spawn()))
            .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
        let line: Vec<String> = std::iter::once(program.display().to_string()).chain(arguments).collect();
        Ok(Running {
            child: Some(child),
            family: Vec::new(),
            stop: self.spec.stop,
            address,
            entry: self.facts(&line, &beside),
        })
    }

    /// The commands that run beside the program.
    fn beside(&self) -> Result<Vec<Vec<String>>, String> {
        let fill = |words: &Vec<String>| {
            let mut words = self.values.fill_all(words)?;
            // Where `needs` finds it, too: the PATH of a user may have no sbin.
            if let Some(first) = words.first_mut().filter(|first| !first.contains('/'))
                && let Ok(found) = find_program(first, "", [])
            {
                *first = found.display().to_string();
            }
            Ok(words)
        };
        self.spec.companions(self.post.listener).iter().map(fill).collect()
    }

    /// Starts the program and waits until it answers.
    pub fn start(&self) -> Result<Running, String> {
        let _stand_in = StandIn::start(self.post.origin);
        let mut running = self.launch()?;
        let limit = Duration::from_secs(if self.spec.ready_s > 0 { self.spec.ready_s } else { EntrySpec::READY_S });
        let begun = Instant::now();
        loop {
            if stop::is_asked() {
                return Err(format!("stopped while {} was started", self.spec.name));
            }
            if let Some(status) = running.ended() {
                return Err(format!("{} ended at once ({status}): {}", self.spec.name, self.said()));
            }
            match answers(running.address, &self.post) {
                Some(status) if !self.spec.ready_refuses.contains(&status) => break,
                _ if begun.elapsed() > limit => {
                    let seconds = limit.as_secs();
                    return Err(format!("{} was not ready after {seconds} s: {}", self.spec.name, self.said()));
                }
                _ => std::thread::sleep(POLL),
            }
        }
        running.meet_family();
        Ok(running)
    }

    fn address(&self) -> Result<SocketAddr, String> {
        let text = match self.spec.address.as_str() {
            "" => format!("127.0.0.1:{}", self.post.port),
            address => self.values.fill(address)?,
        };
        text.parse().map_err(|_| format!("entry {}: {text:?} is not ADDRESS:PORT", self.spec.name))
    }

    fn facts(&self, line: &[String], beside: &[Vec<String>]) -> ledger::Entry {
        let all = self.preparations.iter().chain(beside);
        let mut commands: Vec<String> = all.map(|words| words.join(" ")).collect();
        if !line.is_empty() {
            commands.push(line.join(" "));
        }
        let cores: Vec<String> = self.post.cores.iter().map(usize::to_string).collect();
        let hidden = |text: &str| text.replace(&self.folder.path().display().to_string(), "DIR");
        let settings = self.spec.settings.iter().filter(|setting| setting.is_of(&self.spec.tuning));
        let reasons = settings.clone().map(Setting::remark);
        let has = |setting: &Setting| setting.gives.iter().chain(&setting.built_in).any(|a| *a == Advantage::Reload);
        ledger::Entry {
            name: self.spec.name.clone(),
            store: if self.post.makes_pages() { String::new() } else { self.post.store.clone() },
            store_at: self.store_at.clone(),
            commands: commands.iter().map(|command| hidden(command)).collect(),
            files: self.files.iter().map(|(name, text)| (name.clone(), hidden(text))).collect(),
            tuning: self.spec.tuning.clone(),
            notes: self.spec.notes.iter().cloned().chain(reasons).collect(),
            honours_reload: settings.clone().any(has),
            comments: self.spec.comments.clone(),
            cores: cores.join(","),
        }
    }

    /// The end of what the cache said: its output and the logs in its folder.
    fn said(&self) -> String {
        let logs = ["out.log", "error.log", "log/cache.log", "log/diags.log"];
        let texts = logs.iter().filter_map(|log| fs::read(self.folder.path().join(log)).ok());
        let all: Vec<u8> = texts.flatten().collect();
        let text = String::from_utf8_lossy(&all[all.len().saturating_sub(SAID_BYTES_MAX)..]).into_owned();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.is_empty() { "it said nothing".to_owned() } else { text }
    }
}

impl Running {
    /// The first process, if one was started.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<String> {
        self.child.as_mut()?.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Remembers the processes that were started by it, so that all can be ended.
    fn meet_family(&mut self) {
        self.family = self.pid().map_or_else(Vec::new, proc::tree);
    }

    /// SIGKILL to every process at once.
    pub fn kill(mut self) {
        self.end(Signal::KILL);
    }

    /// Ends it in order.
    pub fn stop(mut self) {
        let signal = match self.stop {
            Stop::Term => Signal::TERM,
            Stop::Int => Signal::INT,
            Stop::Quit => Signal::QUIT,
        };
        self.end(signal);
    }

    fn end(&mut self, first: Signal) {
        let Some(root) = self.pid() else { return };
        self.family.extend(proc::tree(root));
        self.family.sort_unstable();
        self.family.dedup();
        let Some(mut child) = self.child.take() else { return };
        match first {
            Signal::KILL => self.signal(Signal::KILL),
            // The others follow their parent; those that do not are killed below.
            polite => signal_one(root, polite),
        }
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && begun.elapsed() < GRACE {
            std::thread::sleep(POLL);
        }
        if first != Signal::KILL {
            let parted = Instant::now();
            while self.family.iter().any(|pid| *pid != root && alive(*pid)) && parted.elapsed() < ORPHANS {
                std::thread::sleep(POLL);
            }
            self.signal(Signal::KILL);
        }
        let _ = child.wait();
        stop::ended(root);
        // A killed process is there until the kernel comes to it, with its port and its files: the next start must not meet it.
        let killed = Instant::now();
        while self.family.iter().any(|pid| *pid != root && alive(*pid)) && killed.elapsed() < GRACE {
            std::thread::sleep(POLL);
        }
    }

    /// To all processes of the family that still run the program they ran before.
    fn signal(&self, signal: Signal) {
        self.family.iter().filter(|pid| alive(**pid)).for_each(|pid| signal_one(*pid, signal));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Signal::TERM);
    }
}

fn signal_one(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process exists and is no zombie.
fn alive(pid: u32) -> bool {
    is_alive(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())
}

/// A killed process with many threads is a zombie by its first one while the others still hold its sockets.
fn is_alive(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let threads: u32 = fields.get(17).and_then(|threads| threads.parse().ok()).unwrap_or(0);
    fields.first().is_some_and(|state| !state.starts_with(['Z', 'X'])) || threads > 1
}

/// A program, and its arguments, that starts other commands and then becomes the given one: they are its children, so that
/// they are counted with it and end with it.
fn accompanied(program: &Path, arguments: &[String], beside: &[Vec<String>]) -> (PathBuf, Vec<String>) {
    if beside.is_empty() {
        return (program.to_owned(), arguments.to_vec());
    }
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    let started = beside.iter().map(|words| words.iter().map(quoted).collect::<Vec<_>>().join(" ") + " &\n");
    let script = started.collect::<String>() + "exec \"$@\"";
    let words = ["-c".to_owned(), script, "sh".to_owned(), program.display().to_string()];
    ("/bin/sh".into(), words.into_iter().chain(arguments.iter().cloned()).collect())
}

/// Runs `start` with this thread bound to some cores, so that the child is born there.
fn on_cores<T>(cores: &[usize], start: impl FnOnce() -> std::io::Result<T>) -> std::io::Result<T> {
    if cores.is_empty() {
        return start();
    }
    let before = sched_getaffinity(None)?;
    let mut wanted = CpuSet::new();
    cores.iter().for_each(|core| wanted.set(*core));
    sched_setaffinity(None, &wanted)?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

/// Writes the certificate of an entry's listener and its key, which the entry's user alone may read.
fn certify(authority: &Authority, folder: &Path, owner: &Owner) -> Result<(), String> {
    let (chain, key) = authority.pair(IpAddr::V4(Ipv4Addr::LOCALHOST), "localhost")?;
    for (name, text) in [(CHAIN, chain.clone()), (KEY, key.clone()), (CHAIN_AND_KEY, format!("{chain}{key}"))] {
        let path = folder.join(name);
        let write = || {
            // Nobody else reads it, not even for a moment.
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(text.as_bytes())?;
            match owner.ids {
                Some((user, group)) => std::os::unix::fs::chown(&path, Some(user), Some(group)),
                None => Ok(()),
            }
        };
        write().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The status of an answer of any kind on the port; of a listener of HTTP/2 in the clear, 200 once its SETTINGS come.
fn answers(address: SocketAddr, post: &Post) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    if post.listener == Listener::H2c {
        let mut hello = PREFACE.to_vec();
        write_settings(&mut hello, &Settings::default());
        stream.write_all(&hello).ok()?;
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).ok()?;
        // The type of SETTINGS (RFC 9113 section 6.5).
        return (head[3] == 4).then_some(200);
    }
    let target = if post.mode == "forward" { format!("http://{}/", post.origin) } else { "/".to_owned() };
    let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", post.origin);
    match post.listener.is_secure() {
        false => status(&mut stream, &request),
        // Each of them speaks HTTP/1.1 too, as entries/README.md asks. The certificate is judged by the robots.
        true => {
            let config = Tls::new(Trust::Anybody, None).ok()?.robot(false);
            let name = ServerName::IpAddress(address.ip().into());
            let mut stream = StreamOwned::new(ClientConnection::new(config, name).ok()?, stream);
            status(&mut stream, &request)
        }
    }
}

/// The status of the answer to a request.
fn status(stream: &mut (impl Read + Write), request: &str) -> Option<u16> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).ok()?;
    std::str::from_utf8(&start).ok()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

/// The placeholders that every entry has.
fn placeholders(post: &Post, folder: &Path, program: &Path, owner: &Owner) -> BTreeMap<String, String> {
    let values = [
        ("dir", folder.display().to_string()),
        ("program", program.display().to_string()),
        ("port", post.port.to_string()),
        ("origin", post.origin.to_string()),
        ("origin_host", post.origin.ip().to_string()),
        ("origin_port", post.origin.port().to_string()),
        ("memory_mb", post.memory_mb.to_string()),
        ("disk_mb", post.disk_mb.to_string()),
        ("workers", post.cores.len().max(1).to_string()),
        ("processes", post.servers.processes.to_string()),
        ("connections_max", proc::connections_max(2).to_string()),
        ("object_bytes_max", OBJECT_BYTES_MAX.min(post.memory_mb << 19).to_string()),
        ("user", owner.user.clone()),
        ("group", owner.group.clone()),
        ("chain", folder.join(CHAIN).display().to_string()),
        ("key", folder.join(KEY).display().to_string()),
        ("chain_and_key", folder.join(CHAIN_AND_KEY).display().to_string()),
    ];
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The program's path.
fn program(spec: &EntrySpec, post: &Post) -> Result<PathBuf, String> {
    if spec.program.contains('/') || spec.program.is_empty() {
        return Ok(PathBuf::from(&spec.program));
    }
    let first = post.servers.python.iter().filter(|_| spec.virtual_environment).map(|folder| folder.join("bin"));
    find_program(&spec.program, &spec.package, first)
}

/// The words of the program about its version.
fn said_of_itself(spec: &EntrySpec, program: &Path) -> String {
    if spec.version.is_empty() || spec.program.is_empty() {
        return String::new();
    }
    let Ok(said) = Command::new(program).args(&spec.version).stdin(Stdio::null()).output() else {
        return String::new();
    };
    String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
}

/// The first number with dots.
fn version_in(text: &str) -> String {
    let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').map(|number| number.trim_matches('.'));
    numbers.into_iter().find(|number| number.contains('.')).unwrap_or("").to_owned()
}

/// A commit alone in parentheses, as `(b1cd3a890000-dirty)`.
fn commit_in(text: &str) -> Option<&str> {
    let within = text.split('(').skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    within.into_iter().find(|word| {
        let digits = word.strip_suffix("-dirty").unwrap_or(word);
        digits.len() >= 7 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Where a program comes from, with the day of its file: the package with its version, if the system's packages have the
/// program, else its commit if it says one. Packages keep the day on which they were built, which is not that of the release.
fn origin_of(program: &Path, said: &str) -> Option<String> {
    let day = day_of(program)?;
    match package_of(program) {
        Some(package) => {
            let system = distribution();
            let system = system.split_once(" (").map_or(system.as_str(), |(name, _)| name);
            Some(format!("{system}, package {package} of {day}"))
        }
        None => Some(match commit_in(said) {
            Some(commit) => format!("commit {commit}, program file of {day}"),
            None => format!("program file of {day}"),
        }),
    }
}

/// The version of the package that a program belongs to, as `5.7-2+deb12u6`. Systems without dpkg name none.
fn package_of(program: &Path) -> Option<String> {
    let said = |words: &[&str]| {
        let output = Command::new("dpkg-query").args(words).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let file = fs::canonicalize(program).ok()?;
    let owner = said(&["-S", file.to_str()?])?;
    let name = owner.split_once(": ")?.0.split(", ").next()?.to_owned();
    said(&["-W", "-f", "${Version}", &name]).filter(|version| !version.is_empty())
}

/// The place of the store: in the processes, or in files of a folder on some file system. Stores of other names than these say
/// it themselves.
fn store_at(spec: &EntrySpec, post: &Post, folder: &Path) -> String {
    let is_known = !post.makes_pages() && spec.store.contains_key(&post.store);
    match post.store.as_str() {
        "memory" if is_known && !is_store_in_memory(spec, post) => "memory of its processes".to_owned(),
        "memory" | "disk" if is_known => match file_system(folder) {
            kind if kind == "tmpfs" => "files in memory (tmpfs)".to_owned(),
            kind => format!("files on {kind}").trim_end_matches(" on ").to_owned(),
        },
        _ => String::new(),
    }
}

/// The day of the program's file, as `2026-04-04`.
fn day_of(program: &Path) -> Option<String> {
    let changed = program.metadata().and_then(|facts| facts.modified()).ok()?;
    let unix = changed.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    date(unix).split(' ').next().map(str::to_owned)
}

/// The user that a cache runs as.
struct Owner {
    user: String,
    group: String,
    ids: Option<(u32, u32)>,
}

/// The first of the entry's users that exists, when we are root; else whoever we are.
fn owner(spec: &EntrySpec) -> Owner {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let row = |table: &str, column: usize, value: &str| -> Option<Vec<String>> {
        let rows = table.lines().map(|line| line.split(':').map(str::to_owned).collect::<Vec<_>>());
        rows.into_iter().find(|row| row.get(column).is_some_and(|cell| cell == value))
    };
    let own = rustix::process::getuid();
    let wanted = spec.users.iter().filter(|_| own.is_root()).find_map(|name| row(&users, 0, name));
    let entry = wanted.or_else(|| row(&users, 2, &own.as_raw().to_string()));
    let cell = |index: usize| entry.as_ref().and_then(|row| row.get(index)).cloned().unwrap_or_default();
    let group = row(&groups, 2, &cell(3)).map_or_else(|| cell(3), |row| row[0].clone());
    let ids = cell(2).parse().ok().zip(cell(3).parse().ok()).filter(|_| own.is_root());
    Owner { user: cell(0), group, ids }
}

/// Whether the store is a folder in memory.
fn is_store_in_memory(spec: &EntrySpec, post: &Post) -> bool {
    let variation = spec.store.get(&post.store);
    variation.and_then(|v| v.get("folder")).and_then(toml::Value::as_str) == Some("shm")
}

/// A folder in memory for caches that are files, and for what other caches keep in files beside their store.
fn memory_folder(spec: &EntrySpec, post: &Post) -> Result<Option<tempfile::TempDir>, String> {
    if !(spec.memory_dir || post.makes_pages() || is_store_in_memory(spec, post)) || !Path::new("/dev/shm").is_dir() {
        return Ok(None);
    }
    let made = tempfile::Builder::new().prefix("cacheoff-").tempdir_in("/dev/shm");
    made.map(Some).map_err(|error| format!("no folder in /dev/shm for {}: {error}", spec.name))
}

fn lay_out(
    spec: &EntrySpec,
    folder: &Path,
    memory: Option<&Path>,
    files: &[(String, String)],
    owner: &Owner,
) -> Result<(), String> {
    let fail = |path: &Path, error: std::io::Error| format!("entry {}: {}: {error}", spec.name, path.display());
    let own = |path: &Path| match owner.ids {
        Some((user, group)) => std::os::unix::fs::chown(path, Some(user), Some(group)),
        None => Ok(()),
    };
    let cache = memory.map(|memory| memory.join("cache"));
    let folders = spec.folders.iter().map(|name| folder.join(name)).chain(cache.clone());
    let folders: Vec<PathBuf> =
        std::iter::once(folder.to_path_buf()).chain(memory.map(Path::to_path_buf)).chain(folders).collect();
    for path in &folders {
        fs::create_dir_all(path).map_err(|error| fail(path, error))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|error| fail(path, error))?;
        own(path).map_err(|error| fail(path, error))?;
    }
    for (name, text) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| fail(parent, error))?;
        }
        fs::write(&path, text).and_then(|()| own(&path)).map_err(|error| fail(&path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_lives_as_long_as_its_threads() {
        let stat =
            |state: &str, threads: u32| format!("7 (a) b) {state} 1 7 7 0 -1 4 0 0 0 0 1 2 3 4 20 0 {threads} 0 99");
        assert!(is_alive(&stat("S", 1)) && is_alive(&stat("Z", 12)));
        assert!(!is_alive(&stat("Z", 1)) && !is_alive(&stat("X", 0)) && !is_alive(""));
        assert!(alive(std::process::id()));
    }

    /// The key is its user's alone from the first moment on, and is never written over another file.
    #[test]
    fn a_key_is_readable_for_its_user_alone() {
        let (folder, owner) =
            (tempfile::tempdir().unwrap(), Owner { user: String::new(), group: String::new(), ids: None });
        let authority = Authority::new().unwrap();
        certify(&authority, folder.path(), &owner).unwrap();
        for name in [CHAIN, KEY, CHAIN_AND_KEY] {
            let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(certify(&authority, folder.path(), &owner).unwrap_err().contains("exists"));
    }

    /// The commands that an entry starts beside its program are children of it.
    #[test]
    fn a_program_with_company_is_one_family() {
        let own = |text: &str| text.to_owned();
        assert_eq!(accompanied(Path::new("/a"), &[own("b c")], &[]), ("/a".into(), vec![own("b c")]));
        let beside = [vec![own("sleep"), own("61.0")], vec![own("sh"), own("-c"), own("sleep '62.0'; exit 1")]];
        let (first, words) = accompanied(Path::new("sleep"), &[own("60.0")], &beside);
        let mut child = Command::new(first).args(words).spawn().unwrap();
        let line =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        let begun = Instant::now();
        let expected = ["sh -c sleep '62.0'; exit 1 ", "sleep 60.0 ", "sleep 61.0 ", "sleep 62.0 "];
        // A process that was forked a moment ago still has the line of its parent.
        let mut lines: Vec<String> = Vec::new();
        while begun.elapsed() < GRACE && lines != expected {
            lines = proc::tree(child.id()).iter().map(line).collect();
            lines.sort();
        }
        let family = proc::tree(child.id());
        family.iter().for_each(|pid| signal_one(*pid, Signal::KILL));
        child.wait().unwrap();
        assert_eq!(lines, expected);
    }

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, version) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("Squid Cache: Version 5.7\nService Name: squid", "5.7"),
            ("varnishd (varnish-7.1.1 revision 7cee1c581bead20e88d101ab3d72afb29f14d87a)", "7.1.1"),
            ("Traffic Server 9.2.5 Apr  4 2026", "9.2.5"),
            ("Server version: Apache/2.4.71 (Debian)", "2.4.71"),
            ("larder 0.1.0 (b1cd3a890000)", "0.1.0"),
            ("a thing.", ""),
        ] {
            assert_eq!(version_in(said), version);
        }
        for (said, commit) in [
            ("larder 0.1.0 (b1cd3a890000-dirty)\n", Some("b1cd3a890000-dirty")),
            ("Apache/2.4.71 (Debian) (accede)", None),
            ("9.9 (b1cd3a890000", None),
        ] {
            assert_eq!(commit_in(said), commit);
        }
    }
}
