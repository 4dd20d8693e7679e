//! A server of this process with an origin behind it, and a client.

use larder::config::{Config, Loaded};
use larder::server::Server;
use larder::shared::StartError;
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long anything may take.
pub const WITHIN: Duration = Duration::from_secs(10);

/// An origin that answers every path: `/fresh…` may be kept for a minute, `/none…` may not, the body is the path.
pub fn origin() -> SocketAddr {
    origin_that(serve)
}

/// An origin that does this with each connection, on a thread of its own.
pub fn origin_that(serve: fn(&TcpStream) -> Option<()>) -> SocketAddr {
    origin_at(([127, 0, 0, 1], 0).into(), serve)
}

/// Copies one direction of a tunnel to its end, and hands that on too.
pub fn pass_on(from: &mut impl Read, mut to: &TcpStream) -> Option<()> {
    let copied = std::io::copy(from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    copied.is_ok().then_some(())
}

/// Reads the head of a request without a body; gives its first line.
pub fn read_request(lines: &mut impl BufRead) -> Option<String> {
    let (mut first, mut line) = (String::new(), String::new());
    lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
    }
    Some(first)
}

/// Reads the head of a request, as it came.
pub fn read_head(lines: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        lines.read_line(&mut head).ok().filter(|&read| read > 0)?;
    }
    Some(head)
}

/// [`origin_that`] at this address.
pub fn origin_at(address: SocketAddr, serve: fn(&TcpStream) -> Option<()>) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream));
        }
    });
    address
}

fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut first = String::new();
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            if line == "\r\n" {
                break;
            }
        }
        let path = first.split(' ').nth(1)?.to_owned();
        let control = if path.contains("none") { "no-store" } else { "max-age=60" };
        let cookie = if path.contains("cookie") { "Set-Cookie: crumbs=1\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 200 OK\r\n{cookie}Content-Type: text/plain; charset=utf-8\r\nCache-Control: {control}\r\nContent-Length: {}\r\n\r\n",
            path.len()
        );
        (&*stream).write_all((head + &path).as_bytes()).ok()?;
    }
}

/// A configuration for tests: free ports, a folder of its own, `text` besides.
pub fn config(folder: &Path, text: &str) -> Config {
    let loaded = Loaded::parse("test", text, &[]).unwrap_or_else(|report| panic!("{report}"));
    let mut config = Config { store: Some(folder.to_owned()), workers: 2, ..loaded.config };
    if !loaded.sources.contains_key("listen") {
        config.listens[0].address = ([127, 0, 0, 1], 0).into();
    }
    if !loaded.sources.contains_key("admin") {
        config.admin = Some(([127, 0, 0, 1], 0).into());
    }
    // Tests leave tunnels and connections behind, and wait for none of them.
    if !loaded.sources.contains_key("timeouts.drain") {
        config.timeouts.drain = Duration::from_secs(1);
    }
    config
}

/// A server with that configuration. The lock of a folder whose server has just stopped may be held for a moment by a process that
/// another test is starting: it has a copy of all descriptors until it runs its program.
pub fn server(folder: &Path, text: &str) -> Server {
    let config = config(folder, text);
    started(|| Server::start(config.clone()))
}

/// A server, once its folder is free.
pub fn started(begin: impl Fn() -> Result<Server, StartError>) -> Server {
    let end = Instant::now() + WITHIN;
    loop {
        match begin() {
            Ok(server) => return server,
            Err(error) if error.to_string().contains("another larder uses") && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// One request on a connection of its own, and the whole answer.
pub fn exchange(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A connection from this address.
pub fn connect_from(from: impl Into<IpAddr>, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from.into(), 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream
}

/// A connection on which requests are sent one after the other, as browsers do: verdicts are remembered for it.
pub struct Kept(BufReader<TcpStream>);

impl Kept {
    pub fn to(address: SocketAddr) -> Kept {
        Kept::from(([127, 0, 0, 1], 0).into(), address)
    }

    /// From an address of this machine, so that it is another client.
    pub fn from(source: SocketAddr, address: SocketAddr) -> Kept {
        Kept(BufReader::new(connect_from(source.ip(), address)))
    }

    /// Head and body of the answer.
    pub fn ask(&mut self, request: &str) -> (String, String) {
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let head = read_head(&mut self.0).unwrap();
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut body).unwrap();
        (head, String::from_utf8_lossy(&body).into_owned())
    }
}

/// A GET through the proxy.
pub fn get(proxy: SocketAddr, url: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    exchange(proxy, &format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: test\r\nConnection: close\r\n\r\n"))
}

/// A GET at the admin listener.
pub fn ask(admin: SocketAddr, path: &str) -> String {
    exchange(admin, &format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n"))
}

/// The body of an answer.
pub fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}

/// Looks until it is so.
pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN * 3;
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program that another package has; without it a test is skipped on a desk, and fails where all must run.
pub fn program(name: &str) -> Option<Command> {
    if Command::new("sh").args(["-c", &format!("command -v {name}")]).output().is_ok_and(|found| found.status.success())
    {
        return Some(Command::new(name));
    }
    let in_ci = std::env::var("CI").is_ok_and(|value| !matches!(value.as_str(), "" | "false" | "0"));
    assert!(!in_ci, "{name} is not installed: .ci/run installs it");
    println!("skipped: {name} is not installed (.ci/run installs it)");
    None
}
