//! Listening sockets that Larder is started with.

use super::stand;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// systemd's own tool with one socket of this name; `None` where it is not installed.
fn activated(folder: &Path, name: &str, at: SocketAddr, config: &str) -> Option<Program> {
    let mut command = stand::program("systemd-socket-activate")?;
    fs::write(folder.join("larder.toml"), config).unwrap();
    let said = fs::File::create(folder.join("said")).unwrap();
    command.args([&format!("--fdname={name}"), "-l", &at.to_string(), LARDER]).arg("--config");
    command.arg(folder.join("larder.toml")).args(["--admin", "none", "--memory", "16MB", "--disk", "0", "--store"]);
    let child = command.arg(folder.join("store")).stdin(Stdio::null()).stderr(said).spawn().unwrap();
    Some(Program(child))
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The first connection starts the program, and waits for it.
fn ask(to: SocketAddr, request: &str) -> String {
    let end = Instant::now() + Duration::from_secs(20);
    let mut stream = loop {
        match TcpStream::connect(to) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_listener_takes_the_socket_of_its_name() {
    let (folder, at, origin) = (tempfile::tempdir().unwrap(), free(), stand::origin());
    let config = format!(
        "workers = 2\n[[listen]]\naddress = \"127.0.0.1:1\"\nactivation = \"web\"\n\
         [[site]]\nhosts = [\"a.test\"]\norigin = \"http://{origin}\"\n"
    );
    let Some(_program) = activated(folder.path(), "web", at, &config) else { return };
    for _ in 0..8 {
        let answer = ask(at, "GET /fresh HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn a_socket_that_was_not_passed_ends_the_start() {
    let (folder, at) = (tempfile::tempdir().unwrap(), free());
    let config = "[[listen]]\naddress = \"127.0.0.1:1\"\nactivation = \"web\"\n";
    let Some(_program) = activated(folder.path(), "other", at, config) else { return };
    let _ = ask(at, "GET / HTTP/1.1\r\n\r\n");
    let said = || fs::read_to_string(folder.path().join("said")).unwrap();
    stand::wait_for("the start fails", || said().contains("no socket \"web\" was passed"));
}
