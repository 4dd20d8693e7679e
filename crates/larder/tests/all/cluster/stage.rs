//! A server of NATS, nodes as processes, and an origin whose answers have editions.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long anything may take: an election of NATS, a start of a process in a build for tests.
pub const WITHIN: Duration = Duration::from_secs(30);

/// How long an answer of JetStream may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The server that the tests are made with.
const NATS_SERVER: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

/// The program of NATS, built once; `None`, with a word, where there is no Go to build it.
pub fn nats_program() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats");
        let program = folder.join("nats-server");
        if program.exists() {
            return Some(program);
        }
        if Command::new("go").arg("version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: Go is missing, and nats-server is built by it");
            return None;
        }
        fs::create_dir_all(&folder).unwrap();
        let built = Command::new("go").args(["install", NATS_SERVER]).env("GOBIN", &folder).output().unwrap();
        assert!(built.status.success(), "go install {NATS_SERVER}: {}", String::from_utf8_lossy(&built.stderr));
        Some(program)
    };
    BUILT.get_or_init(build).as_deref()
}

/// A port that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !is_so() {
        assert!(Instant::now() < end, "{what} took too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that is killed when the test ends, however it ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(process: &Killed, name: &str) {
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

/// A server of NATS with JetStream.
pub struct Nats {
    program: &'static Path,
    pub port: u16,
    folder: tempfile::TempDir,
    more: Vec<String>,
    child: Option<Killed>,
}

impl Nats {
    pub fn start() -> Option<Nats> {
        let program = nats_program()?;
        let folder = tempfile::tempdir().unwrap();
        let mut nats = Nats { program, port: free_port(), folder, more: Vec::new(), child: None };
        nats.go_on();
        Some(nats)
    }

    /// Three servers that are a cluster of their own.
    pub fn start_three() -> Option<[Nats; 3]> {
        let program = nats_program()?;
        let routes = [free_port(), free_port(), free_port()];
        let all = routes.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
        Some(std::array::from_fn(|number| {
            let (name, own) = (format!("n{number}"), format!("nats://127.0.0.1:{}", routes[number]));
            let more = ["--name", &name, "--cluster_name", "three", "--cluster", &own, "--routes", &all];
            let more = more.map(str::to_owned).into();
            let folder = tempfile::tempdir().unwrap();
            let mut nats = Nats { program, port: free_port(), folder, more, child: None };
            nats.go_on();
            nats
        }))
    }

    /// Makes the stream as a node would; gives the answer.
    pub fn make_stream(&self, copies: usize) -> String {
        let settings = format!(
            "{{\"name\":\"larder-purges\",\"subjects\":[\"larder.purge.>\"],\"retention\":\"limits\",\"storage\":\"file\",\
             \"discard\":\"new\",\"max_msgs\":1000,\"max_msgs_per_subject\":1,\"max_age\":0,\"max_bytes\":-1,\"max_consumers\":-1,\
             \"num_replicas\":{copies},\"allow_rollup_hdrs\":true,\"deny_delete\":true}}"
        );
        self.publish("$JS.API.STREAM.CREATE.larder-purges", &settings, true).unwrap_or_default()
    }

    /// All that JetStream says about the stream.
    pub fn stream(&self) -> Value {
        let all = "{\"subjects_filter\":\">\"}";
        let answer = self.publish("$JS.API.STREAM.INFO.larder-purges", all, true).unwrap_or_default();
        serde_json::from_str(&answer).unwrap_or_default()
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().unwrap(), name);
    }

    /// Starts it again, with all that it has on disk.
    pub fn go_on(&mut self) {
        let mut command = Command::new(self.program);
        command.args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--jetstream", "--store_dir"]);
        command.arg(self.folder.path()).args(&self.more).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(Killed(command.spawn().unwrap()));
        let port = self.port;
        wait_for("NATS", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child = None;
    }

    /// All that it has on disk, for [`Nats::put_back`]; it must not run.
    pub fn copy(&self) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_all(self.folder.path(), copy.path());
        copy
    }

    /// Has it lose all that came since that copy was made; it must not run.
    pub fn put_back(&self, copy: &tempfile::TempDir) {
        fs::remove_dir_all(self.folder.path()).unwrap();
        fs::create_dir(self.folder.path()).unwrap();
        copy_all(copy.path(), self.folder.path());
    }

    /// Publishes one message as any client of NATS could; gives the answer where one is wanted. JetStream without a leader gives none.
    pub fn publish(&self, subject: &str, body: &str, wants_answer: bool) -> Option<String> {
        let reply = if wants_answer { "answer " } else { "" };
        self.send(&format!("PUB {subject} {reply}{}\r\n{body}", body.len()), wants_answer)
    }

    /// Puts a message with a field into the stream.
    pub fn publish_with(&self, subject: &str, field: &str, body: &str) {
        let head = format!("NATS/1.0\r\n{field}\r\n\r\n");
        let (of_head, all) = (head.len(), head.len() + body.len());
        let answer = self.send(&format!("HPUB {subject} answer {of_head} {all}\r\n{head}{body}"), true).unwrap();
        assert!(answer.contains("\"seq\""), "{answer}");
    }

    fn send(&self, message: &str, wants_answer: bool) -> Option<String> {
        send_to(self.port, message, wants_answer)
    }
}

/// Publishes one message as any client of NATS could.
pub fn publish_to(port: u16, subject: &str, body: &str) {
    send_to(port, &format!("PUB {subject} {}\r\n{body}", body.len()), false);
}

fn send_to(port: u16, message: &str, wants_answer: bool) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(ANSWER_WITHIN)).unwrap();
    let mut lines = BufReader::new(&stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let text = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\nSUB answer 1\r\n{message}\r\nPING\r\n");
    (&stream).write_all(text.as_bytes()).unwrap();
    loop {
        line.clear();
        lines.read_line(&mut line).ok()?;
        match line.trim_end() {
            "PONG" if !wants_answer => return None,
            text if text.starts_with("MSG") => {
                line.clear();
                lines.read_line(&mut line).unwrap();
                return Some(line);
            }
            text => assert!(!text.is_empty() && !text.starts_with("-ERR"), "{text}"),
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    let content = from.join(".");
    assert!(Command::new("cp").arg("-a").arg(content).arg(to).status().unwrap().success());
}

/// An origin whose answers name the edition that it has now; they may be kept for an hour.
#[derive(Clone)]
pub struct Origin {
    pub address: SocketAddr,
    edition: Arc<AtomicU64>,
}

impl Origin {
    pub fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, edition) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(1)));
        let of_thread = Arc::clone(&edition);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let edition = Arc::clone(&of_thread);
                std::thread::spawn(move || serve(&stream, &edition));
            }
        });
        Origin { address, edition }
    }

    /// All answers from now on have the next edition.
    pub fn change(&self) -> String {
        format!("edition {}", self.edition.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn serve(stream: &TcpStream, edition: &AtomicU64) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            head.push_str(&line.to_ascii_lowercase());
        }
        let edition = edition.load(Ordering::SeqCst);
        let fields = format!(
            "ETag: \"{edition}\"\r\nCache-Control: max-age=3600\r\nSurrogate-Key: all-of-it\r\nNo-Vary-Search: params=(\"utm\")\r\n"
        );
        let answer = match head.contains(&format!("if-none-match: \"{edition}\"")) {
            true => format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"),
            false => {
                let body = format!("edition {edition}");
                format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
            }
        };
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

/// A node.
pub struct Node {
    folder: tempfile::TempDir,
    pub proxy: u16,
    admin: u16,
    child: Option<Killed>,
}

impl Node {
    /// A node that has caught up.
    pub fn start(nats: &Nats, name: &str, more: &str) -> Node {
        let mut node = Node::prepare(nats, name, more);
        node.go_on();
        node.is_ready();
        node
    }

    pub fn prepare(nats: &Nats, name: &str, more: &str) -> Node {
        let folder = tempfile::tempdir().unwrap();
        let (proxy, admin) = (free_port(), free_port());
        let text = format!(
            "store = \"{}\"\nadmin = \"127.0.0.1:{admin}\"\nmemory = \"16MB\"\ndisk = \"64MB\"\ndisk_sync = \"1s\"\nworkers = 1\n\
             [access]\npurge = [\"127.0.0.1\"]\n[cluster]\nnats = [\"nats://127.0.0.1:{}\"]\nname = \"{name}\"\n{more}\n\
             [[listen]]\naddress = \"127.0.0.1:{proxy}\"\n",
            folder.path().join("store").display(),
            nats.port
        );
        fs::write(folder.path().join("larder.toml"), text).unwrap();
        Node { folder, proxy, admin, child: None }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub fn go_on(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.current_dir(self.folder.path()).stdout(Stdio::null()).stderr(log);
        self.child = Some(Killed(command.spawn().unwrap()));
        let port = self.admin;
        wait_for("a node", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    pub fn is_ready(&self) {
        wait_for("readiness", || self.ask("/readyz").contains("200"));
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child = None;
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().unwrap(), name);
    }

    /// SIGTERM, so that all is on disk.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let mut killed = self.child.take().unwrap();
        assert!(killed.0.wait().unwrap().success());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn ask(&self, path: &str) -> String {
        self.exchange(self.admin, &format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"))
    }

    fn exchange(&self, port: u16, request: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn status(&self) -> Value {
        let answer = self.ask("/cluster");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|_| panic!("{answer}"))
    }

    /// The body of an answer.
    pub fn get(&self, url: &str) -> String {
        let host = url.trim_start_matches("http://").split('/').next().unwrap();
        let answer =
            self.exchange(self.proxy, &format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        answer.split_once("\r\n\r\n").map_or(answer.clone(), |(_, body)| body.to_owned())
    }

    /// `larder purge` with these words: the exit status, and all that it said.
    pub fn purge(&self, words: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.current_dir(self.folder.path()).arg("purge").args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), said)
    }

    /// Purges so many tags by the API; gives the last answer.
    pub fn purge_tags(&self, many: usize) -> String {
        (0..many).fold(String::new(), |_, number| self.purge_by_api(&format!("tag=tag-{number}")))
    }

    /// Purges by the API; gives the answer.
    pub fn purge_by_api(&self, query: &str) -> String {
        let fields = "Host: 127.0.0.1\r\nX-Larder: 1\r\nContent-Length: 0\r\nConnection: close";
        self.exchange(self.admin, &format!("POST /purge?{query} HTTP/1.1\r\n{fields}\r\n\r\n"))
    }

    /// Purges by the method `PURGE`; gives the status line.
    pub fn purge_by_method(&self, url: &str) -> String {
        let host = url.trim_start_matches("http://").split('/').next().unwrap();
        let request = format!("PURGE {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        self.exchange(self.proxy, &request).lines().next().unwrap_or_default().to_owned()
    }
}

/// All nodes know one another.
pub fn all_met(nodes: &[&Node]) {
    for node in nodes {
        wait_for("the others", || {
            let status = node.status();
            let alive = |member: &&Value| member["state"] == "alive" || member["state"] == "self";
            status["members"].as_array().unwrap().iter().filter(alive).count() == nodes.len()
        });
    }
}
