//! A Larder as a process: the file in its folder, its signals, its end.

use super::stand;
use larder::children::OwnChild;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct Running {
    pub child: Child,
    _own: Option<OwnChild>,
    /// The line that it says first.
    pub said: String,
    /// The address of the first listener.
    pub proxy: std::net::SocketAddr,
}

impl Running {
    /// In a folder, so that its `larder.toml` is found.
    pub fn start(folder: &Path) -> Running {
        Running::of(Command::new(env!("CARGO_BIN_EXE_larder")), folder)
    }

    fn of(mut command: Command, folder: &Path) -> Running {
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Servers in this process take a confined child that they do not know for what a script has left behind.
        let (mut child, own) = OwnChild::start(|| command.spawn(), |child| Some(child.id())).unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let words = said.strip_prefix("larder listens on ").unwrap_or_else(|| panic!("{said}"));
        let proxy = words.split([',', ';']).next().unwrap().trim().parse().unwrap();
        Running { child, _own: own, said, proxy }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// The most memory that it has had resident.
    pub fn resident_bytes_max(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1_024
    }

    /// Ends it in order; gives its standard error.
    pub fn end(mut self) -> String {
        self.signal("TERM");
        assert!(self.child.wait().unwrap().success());
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

#[test]
fn a_larder_that_runs_is_steered_by_signals_and_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    let text = |idle: u32| {
        format!(
            "store = \"{}\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = 0\n[log]\nto = \"access.log\"\n[timeouts]\nidle = \"{idle}s\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n",
            folder.path().join("store").display()
        )
    };
    // Whole or not at all: the server may read at any moment after a signal.
    let put = |text: &str| {
        let new = folder.path().join("new.toml");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    };
    put(&text(50));
    let running = Running::start(folder.path());
    assert!(running.said.contains("configured by ./larder.toml"), "{}", running.said);

    let (log, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let origin = stand::origin();
    stand::get(running.proxy, &format!("http://{origin}/fresh"));
    stand::wait_for("a line", || fs::read_to_string(&log).unwrap_or_default().contains("/fresh"));
    fs::rename(&log, &moved).unwrap();
    running.signal("USR1");
    stand::wait_for("the log is opened anew", || log.exists());

    let reload = || {
        let output =
            Command::new(env!("CARGO_BIN_EXE_larder")).arg("reload").current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), said)
    };
    put(&text(40));
    assert_eq!(reload(), (0, "reloaded: changed timeouts.idle\n".to_owned()));
    put(&text(40).replace("16MB", "32MB"));
    assert!(reload().1.contains("waits for a restart: memory"));
    put("nonsense = 1");
    let (status, said) = reload();
    assert!(status == 2 && said.contains("there is no setting nonsense"), "{said}");
    running.signal("HUP");
    put(&text(30));
    running.signal("HUP");
    stand::wait_for("it still serves", || {
        stand::get(running.proxy, &format!("http://{origin}/fresh")).contains("; hit")
    });
    let said = running.end();
    assert!(said.contains("larder: letting requests end"), "{said}");
    let last = fs::read_to_string(&log).unwrap();
    assert!(last.contains(" hit "), "the last lines are written before the end: {last}");
}

/// Without its logins and rules a proxy would be open: a file that was found at the start and is gone, or empty because somebody is about to write
/// it, is no configuration.
#[test]
fn a_reload_takes_no_file_that_is_gone_or_empty() {
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin());
    let file = folder.path().join("larder.toml");
    let text = settings(folder.path(), &folder.path().join("log")) + "[access]\nclients = [\"10.0.0.0/8\"]\n";
    fs::write(&file, &text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.env("XDG_CONFIG_HOME", folder.path().join("none"));
    let mut running = Running::of(command, folder.path());
    let mut said = BufReader::new(running.child.stderr.take().unwrap());
    let mut until = |wanted: &str| {
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "{wanted}");
        }
    };
    let is_refused = || stand::get(running.proxy, &format!("http://{origin}/fresh")).starts_with("HTTP/1.1 403");
    assert!(is_refused());
    fs::remove_file(&file).unwrap();
    running.signal("HUP");
    until("the configuration is not taken, the last one holds");
    until("larder.toml");
    assert!(is_refused());
    fs::write(&file, "# soon\n").unwrap();
    running.signal("HUP");
    until("has no setting any more");
    assert!(is_refused());
    fs::write(&file, text.replace("10.0.0.0/8", "127.0.0.0/8")).unwrap();
    running.signal("HUP");
    until("reloaded: changed access.clients");
    assert!(!is_refused());
    running.signal("TERM");
    assert!(running.child.wait().unwrap().success());
}

/// A configuration for a server in this folder.
fn settings(folder: &Path, log: &Path) -> String {
    format!(
        "store = \"{}\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = 0\n[log]\nto = \"{}\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n",
        folder.join("store").display(),
        log.display()
    )
}

/// Starts one whose standard error is this.
pub fn start_with(folder: &Path, stderr: Stdio) -> Running {
    let mut child = Command::new(env!("CARGO_BIN_EXE_larder"))
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let words = said.strip_prefix("larder listens on ").unwrap_or_else(|| panic!("{said}"));
    let proxy = words.split([',', ';']).next().unwrap().trim().parse().unwrap();
    Running { child, _own: None, said, proxy }
}

#[test]
fn a_standard_error_that_takes_nothing_ends_no_server() {
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    // Nobody reads it, and nobody will: `Stdio::piped` is dropped below.
    let gone = Stdio::piped;
    // Nobody reads it, but somebody might, so that a write waits.
    let (held, stuck) = std::io::pipe().unwrap();
    let mut filler = stuck.try_clone().unwrap();
    rustix::io::ioctl_fionbio(&filler, true).unwrap();
    while std::io::Write::write(&mut filler, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&filler, false).unwrap();
    let origin = stand::origin();
    for (name, stderr) in [("full", full()), ("gone", gone()), ("stuck", Stdio::from(stuck))] {
        let folder = tempfile::tempdir().unwrap();
        // A log that has no room either: its thread has something to say.
        fs::write(folder.path().join("larder.toml"), settings(folder.path(), Path::new("/dev/full"))).unwrap();
        let mut running = start_with(folder.path(), stderr);
        drop(running.child.stderr.take());
        let get = || stand::get(running.proxy, &format!("http://{origin}/none"));
        assert!(get().starts_with("HTTP/1.1 200 "), "{name}");
        for signal in ["HUP", "USR1", "HUP", "USR1"] {
            running.signal(signal);
            assert!(get().starts_with("HTTP/1.1 200 "), "{name} {signal}");
        }
        running.signal("TERM");
        let status = running.child.wait().unwrap();
        assert!(status.success(), "{name}: {status}");
    }
    drop(held);
}

#[test]
fn a_fifo_without_a_reader_is_refused_and_one_that_loses_it_costs_lines_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (file, fifo) = (folder.path().join("larder.toml"), folder.path().join("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fs::write(&file, settings(folder.path(), &fifo)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_larder")).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("nobody reads this FIFO"), "{said}");

    let mut reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().unwrap();
    // It may not have opened its end yet.
    let mut running = None;
    stand::wait_for("a start", || {
        let mut child = Command::new(env!("CARGO_BIN_EXE_larder"))
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let Some(words) = said.strip_prefix("larder listens on ") else {
            child.wait().unwrap();
            return false;
        };
        let proxy = words.split([',', ';']).next().unwrap().trim().parse().unwrap();
        running = Some(Running { child, _own: None, said, proxy });
        true
    });
    let running = running.unwrap();
    let origin = stand::origin();
    let get = || assert!(stand::get(running.proxy, &format!("http://{origin}/none")).starts_with("HTTP/1.1 200 "));
    get();
    let mut line = String::new();
    BufReader::new(reader.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("/none"), "{line}");
    reader.kill().unwrap();
    reader.wait().unwrap();
    for signal in ["USR1", "HUP"] {
        get();
        running.signal(signal);
    }
    get();
    let said = running.end();
    assert!(said.contains("cannot write the access log"), "{said}");
}

#[test]
fn who_reads_no_further_ends_a_command_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    for words in [&["config", "--markdown"][..], &["explain", "http://a.example/"], &["doctor"], &["nonsense"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(words).env("XDG_CACHE_HOME", folder.path()).current_dir(folder.path());
        let status = command.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap();
        assert!(status.code().is_some_and(|code| code <= 2), "{words:?}: {status}");
    }
}

/// Requests of clients are not for all users of the machine; the umask takes away more, and gives nothing back.
#[test]
fn files_and_the_socket_are_closed_to_others() {
    for (umask, log) in [("000", 0o640), ("022", 0o640), ("027", 0o640), ("077", 0o600)] {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        // A folder that somebody made, open to all.
        fs::create_dir(&store).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o777)).unwrap();
        let text = format!(
            "store = \"{}\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = \"16MB\"\ndisk_free_min = 0\n[log]\nto = \"access.log\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n",
            store.display()
        );
        fs::write(folder.path().join("larder.toml"), text).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask {umask} && exec {}", env!("CARGO_BIN_EXE_larder"))]);
        let running = Running::of(shell, folder.path());
        let mode = |path: &str| fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("access.log"), log, "umask {umask}");
        assert_eq!(mode("store/larder.sock"), 0o600, "umask {umask}");
        fs::rename(folder.path().join("access.log"), folder.path().join("moved")).unwrap();
        running.signal("USR1");
        stand::wait_for("the log is opened anew", || folder.path().join("access.log").exists());
        assert_eq!(mode("access.log"), log, "umask {umask}, opened anew");
        running.end();
    }
}

#[test]
fn clients_are_served_while_the_roots_of_the_system_are_read() {
    let folder = tempfile::tempdir().unwrap();
    super::schemes::write_pair(folder.path(), "localhost");
    let path = folder.path().display();
    let origin = stand::origin();
    let secured = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\ntls = [{{ chain = \"{path}/chain.pem\", key = \"{path}/key.pem\" }}]\n\
         [[site]]\nhosts = [\"localhost\"]\norigin = \"http://{origin}\"\n",
        super::reload::base(folder.path()),
    );
    let secured = stand::server(folder.path(), &secured);
    let (roots, own) = (folder.path().join("roots"), folder.path().join("own"));
    fs::create_dir(&own).unwrap();
    let text = format!(
        "store = \"{}/store\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = 0\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[site]]\nhosts = [\"www.example\"]\norigin = \"https://localhost:{}\"\nhost = \"origin\"\n\
         [[site]]\nhosts = [\"plain.example\"]\norigin = \"http://{origin}\"\n",
        own.display(),
        secured.addresses()[0].port(),
    );
    fs::write(own.join("larder.toml"), text).unwrap();
    // Nobody writes to it for the time being: who reads it waits.
    assert!(Command::new("mkfifo").arg(&roots).status().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.env("SSL_CERT_FILE", &roots).env_remove("SSL_CERT_DIR");
    let running = Running::of(command, &own);
    let get = |host: &str| {
        stand::exchange(running.proxy, &format!("GET /fresh HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    };
    for how in ["uri-miss", "hit"] {
        let answer = get("plain.example");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(how), "{answer}");
    }
    fs::write(&roots, fs::read(folder.path().join("chain.pem")).unwrap()).unwrap();
    let answer = get("www.example");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    running.end();
}

#[test]
fn readiness_is_told_to_the_service_manager_and_to_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        "admin = \"none\"\nmemory = \"16MB\"\ndisk = 0\nstore = \"store\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n";
    fs::write(folder.path().join("larder.toml"), config).unwrap();
    let notified = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let next = || {
        let mut text = [0; 64];
        let length = notified.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let ready = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.current_dir(folder.path()).arg("ready").output().unwrap().status.code()
    };
    assert_eq!(ready(), Some(1));

    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    let running = Running::of(command, folder.path());
    assert_eq!(next(), "READY=1");
    stand::wait_for("all workers serve", || ready() == Some(0));
    running.end();
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(ready(), Some(1));
}
