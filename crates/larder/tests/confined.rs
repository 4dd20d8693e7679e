//! Orders that an intruder would give, carried out inside the process of a confined server: each is refused, and the server goes on.
//!
//! This program is both sides. Started by the tests it is the judge; the child that it starts is a server, which carries out the
//! orders of its standard input. It has no harness, for a process gives up its files while it has one thread.

use larder::activation::PassedSockets;
use larder::config::Loaded;
use larder::sandbox::{self, Sandbox};
use larder::server::{Plan, Server};
use rustix::process::Pid;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The folder of a child.
const INSIDE: &str = "LARDER_CONFINED_IN";

fn main() {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return serve(Path::new(&folder));
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let name = "an_intruder_is_refused_and_the_server_goes_on";
    if words.iter().any(|word| word == "--list") {
        return println!("{name}: test");
    }
    if words.iter().any(|word| !word.starts_with('-') && !name.contains(word.as_str())) {
        return println!("test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
    }
    refused(false);
    refused(true);
    println!("test {name} ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

/// The orders, the part of the confinement that refuses each, and whether any user may do it who is not confined.
const ORDERS: [(&str, Part, bool); 24] = [
    ("read FOLDER/elsewhere/secret", Part::Files, true),
    ("read FOLDER/store/link", Part::Files, true),
    // The whole file system once more, below the process's own root.
    (concat!("read /proc/self/", "root", "/etc/passwd"), Part::Files, true),
    ("read /proc/PARENT/environ", Part::Files, true),
    ("list FOLDER/elsewhere", Part::Files, true),
    ("write FOLDER/elsewhere/new", Part::Files, true),
    ("write FOLDER/settings/larder.toml", Part::Files, true),
    ("link FOLDER/elsewhere/secret", Part::Files, true),
    ("rename FOLDER/elsewhere/moved", Part::Files, true),
    ("device FOLDER/store/device", Part::Files, false),
    ("listen 127.0.0.1:PORT", Part::Ports, true),
    ("connect ELSEWHERE", Part::Ports, true),
    ("begin ELSEWHERE", Part::Calls, true),
    ("signal PARENT", Part::Signals, true),
    ("limit PARENT", Part::Calls, true),
    ("start /bin/true", Part::Calls, true),
    ("become /bin/true", Part::Calls, true),
    ("packets", Part::Calls, false),
    ("vsock", Part::Calls, false),
    ("mptcp", Part::Calls, false),
    ("owner FOLDER/store/link", Part::Calls, false),
    ("chroot FOLDER/store", Part::Calls, false),
    ("descriptor PARENT", Part::Calls, false),
    ("namespace", Part::Calls, false),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Files,
    Ports,
    Signals,
    Calls,
}

impl Part {
    /// A word of the report where this system lacks it.
    fn word(self) -> &'static str {
        match self {
            Part::Files => "reading below",
            Part::Ports => "TCP: listening",
            Part::Signals => "signals to",
            Part::Calls => "(seccomp)",
        }
    }
}

/// The judge. Without the confinement the same orders have their effect.
fn refused(sandbox: bool) {
    let folder = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(folder.path()).unwrap();
    for name in ["elsewhere", "settings", "store", "log"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::write(folder.join("elsewhere/secret"), "secret").unwrap();
    std::os::unix::fs::symlink("../elsewhere/secret", folder.join("store/link")).unwrap();
    let (origin, elsewhere) = (origin(), origin());
    let text = format!(
        "store = \"{0}/store\"\nadmin = \"none\"\nmemory = \"16MB\"\ndisk = \"32MB\"\ndisk_free_min = 0\nsandbox = {sandbox}\n\
         [log]\nto = \"{0}/log/access.log\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[site]]\nhosts = [\"a.example\"]\norigin = \"http://{origin}\"\n",
        folder.display()
    );
    fs::write(folder.join("settings/larder.toml"), text).unwrap();
    let mut inside = Inside::start(&folder);
    let lacks = inside.ask("lacks");
    inside.hits();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (order, part, is_of_any_user) in ORDERS {
        let order = order.replace("FOLDER", &folder.display().to_string());
        let order = order.replace("PORT", &free.port().to_string()).replace("ELSEWHERE", &elsewhere.to_string());
        let order = order.replace("PARENT", &std::process::id().to_string());
        if sandbox && lacks.contains(part.word()) {
            println!("skipped, for this system lacks it: {order}: {lacks}");
            continue;
        }
        // Without the confinement the process would be another program then.
        let is_end = order.starts_with("become");
        match sandbox {
            true => {
                let said = inside.ask(&order);
                assert!(said == "refused", "{order}: {said}");
            }
            false if is_of_any_user && !is_end => {
                let said = inside.ask(&order);
                assert_eq!(said, "done", "{order}");
            }
            false => {}
        }
    }
    inside.hits();
    inside.end(sandbox);
    let _ = fs::remove_dir_all(&folder);
}

/// A child that is a server.
struct Inside {
    child: Child,
    orders: ChildStdin,
    said: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Inside {
    fn start(folder: &Path) -> Inside {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(INSIDE, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, mut said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        Inside { child, orders, said, address: line.trim().parse().unwrap() }
    }

    fn ask(&mut self, order: &str) -> String {
        self.orders.write_all(format!("{order}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// A response from memory, and one that a new connection to the origin brings.
    fn hits(&self) {
        let get = |path: &str| {
            let mut stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        for _ in 0..2 {
            let answer = get("/fresh");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        assert!(get("/fresh").contains("; hit"));
        assert!(get("/none").starts_with("HTTP/1.1 200"));
    }

    fn end(mut self, sandbox: bool) {
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap() {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let is_confined = status.contains("NoNewPrivs:\t1\n") && status.contains("Seccomp:\t2\n");
            assert_eq!(is_confined, sandbox, "{status}");
        }
        drop(self.orders);
        assert!(self.child.wait().unwrap().success());
    }
}

/// An origin whose `/fresh` may be kept for a minute.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(&stream);
                let (mut head, mut wants) = (String::new(), String::new());
                while lines.read_line(&mut head).is_ok_and(|read| read > 0) {
                    if head.ends_with("\r\n\r\n") {
                        wants.clear();
                        let control = if head.starts_with("GET /fresh") { "max-age=60" } else { "no-store" };
                        let answer =
                            format!("HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nContent-Length: 2\r\n\r\nok");
                        (&stream).write_all(answer.as_bytes()).ok()?;
                        head.clear();
                    }
                }
                Some(())
            });
        }
    });
    address
}

/// The server. It carries out orders on a thread that began after everything was given up, and on the first one.
fn serve(folder: &Path) {
    let loaded = Loaded::read(Some(&folder.join("settings/larder.toml")), &[]).unwrap();
    let sandbox = Sandbox::enter(&loaded);
    let Loaded { config, sources, .. } = loaded;
    let server = Server::start(Plan { config, sources, reread: None, passed: PassedSockets::default() }).unwrap();
    if let Some(sandbox) = sandbox {
        sandbox.close();
    }
    println!("{}", server.addresses()[0]);
    for order in io::stdin().lines().map_while(Result::ok) {
        if order == "lacks" {
            println!("{}", sandbox::report().lacks.join("; "));
            continue;
        }
        let words = order.clone();
        let elsewhere = std::thread::spawn(move || in_a_word(&carry_out(&words))).join().unwrap();
        let here = in_a_word(&carry_out(&order));
        println!("{}", if here == elsewhere { here } else { format!("{here} by one thread, {elsewhere} by another") });
    }
    server.stop();
}

fn in_a_word(outcome: &io::Result<()>) -> String {
    match outcome {
        Ok(()) => "done".to_owned(),
        // A name in a folder with other rights is refused as one on another file system.
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::CrossesDevices) => {
            "refused".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

fn carry_out(order: &str) -> io::Result<()> {
    let (word, about) = order.split_once(' ').unwrap_or((order, ""));
    let process = || about.parse().ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput);
    match word {
        "read" => fs::read(about).map(drop),
        "list" => fs::read_dir(about).map(drop),
        "write" => fs::OpenOptions::new().append(true).create(true).open(about).map(drop),
        // A file from elsewhere gets a name in the store.
        "link" => {
            let link = Path::new(about).parent().unwrap().join("../store/stolen");
            let _ = fs::remove_file(&link);
            fs::hard_link(about, link)
        }
        // A file of the store gets a name elsewhere.
        "rename" => {
            let own = Path::new(about).parent().unwrap().join("../store/own");
            fs::write(&own, "own")?;
            fs::rename(own, about)
        }
        // The first disk, as a file of the store.
        "device" => {
            let _ = fs::remove_file(about);
            let (kind, mode) = (rustix::fs::FileType::BlockDevice, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, about, kind, mode, rustix::fs::makedev(8, 0)).map_err(Into::into)
        }
        "limit" => {
            let none = rustix::process::Rlimit { current: Some(0), maximum: None };
            let core = rustix::process::Resource::Core;
            rustix::process::prlimit(Some(process()?), core, none).map(drop).map_err(Into::into)
        }
        "listen" => TcpListener::bind(about).map(drop),
        "connect" => TcpStream::connect(about).map(drop),
        // A connection that begins with data (TCP Fast Open).
        "begin" => {
            let address: SocketAddr = about.parse().map_err(io::Error::other)?;
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.send_to_with_flags(b"GET / HTTP/1.1\r\n\r\n", &address.into(), 0x2000_0000).map(drop)
        }
        "signal" => rustix::process::test_kill_process(process()?).map_err(Into::into),
        "start" => Command::new(about).status().map(drop),
        "become" => Err(Command::new(about).exec()),
        "packets" => socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None).map(drop),
        "vsock" => socket2::Socket::new(socket2::Domain::VSOCK, socket2::Type::STREAM, None).map(drop),
        // TCP under another number, of which Landlock knows no ports.
        "mptcp" => {
            let protocol = Some(socket2::Protocol::from(262));
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, protocol).map(drop)
        }
        "owner" => std::os::unix::fs::chown(about, None, None),
        "chroot" => rustix::process::chroot(about).map_err(Into::into),
        "descriptor" => {
            let process = rustix::process::pidfd_open(process()?, rustix::process::PidfdFlags::empty())?;
            rustix::process::pidfd_getfd(process, 1, rustix::process::PidfdGetfdFlags::empty())
                .map(drop)
                .map_err(Into::into)
        }
        "namespace" => {
            let own = File::open("/proc/self/ns/uts")?;
            let kind = Some(rustix::thread::LinkNameSpaceType::HostNameAndNISDomainName);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&own), kind).map_err(Into::into)
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}
