//! HTTP/2 to origins, around whole servers: another Larder, which speaks both versions on its port, and nginx.

use super::{client, log, serve, site};
use crate::seen::reload::{Steered, base};
use crate::seen::stand;
use larder::server::Server;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// A server whose site comes by HTTP/2 in clear text from this origin.
fn front(folder: &Path, origin: SocketAddr) -> (Server, SocketAddr) {
    let text = format!(
        "[log]\nto = \"{}\"\n[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\nhttp2 = \"prior-knowledge\"\n",
        folder.join("access.log").display()
    );
    let server = stand::server(folder, &text);
    let address = server.addresses()[0];
    (server, address)
}

fn get(address: SocketAddr, path: &str) -> String {
    stand::exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n"))
}

fn metric(server: &Server, name: &str) -> u64 {
    let metrics = stand::ask(server.admin().unwrap(), "/metrics");
    let of = |line: &str| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<u64>().ok();
    metrics.lines().filter_map(of).sum()
}

#[test]
fn messages_of_all_kinds_come_as_over_http11() {
    let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (back, origin) = site(behind.path(), "");
    let (server, address) = front(before.path(), origin);
    let answer = get(address, "/fresh");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nbytes"), "{answer}");
    // The second one is a hit: what came by HTTP/2 is stored as ever.
    let again = get(address, "/fresh");
    assert!(again.contains("; hit") && again.ends_with("bytes"), "{again}");
    let early = get(address, "/early");
    assert!(early.starts_with("HTTP/1.1 103 Early Hints\r\n") && early.contains("preload"), "{early}");
    let trailers = get(address, "/trailers");
    assert!(trailers.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{trailers}");
    assert!(get(address, "/slow").ends_with("slow"));
    // A body that breaks off is never whole.
    let half = get(address, "/half");
    assert!(half.ends_with("\r\n\r\nha") && half.to_lowercase().contains("content-length: 4"), "{half}");
    let head = stand::exchange(address, "HEAD /x HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    let big = get(address, "/big/20000000");
    assert_eq!(stand::body(&big).len(), 20_000_000);
    let post = "POST /sum HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert!(stand::exchange(address, post).ends_with("3 96354"));
    stand::wait_for("statistics are handed over", || metric(&server, "larder_upstream_http2_requests_total") == 8);
    assert_eq!(metric(&server, "larder_upstream_http2_faults_total"), 0);
    server.stop();
    let seen = log(back, behind.path());
    let by_http2 = seen.lines().filter(|line| line.contains("HTTP/2.0\"")).count();
    assert!(by_http2 == 8 && !seen.contains("HTTP/1.1\""), "{seen}");
}

#[test]
fn an_upload_goes_on_while_it_is_taken() {
    const BYTES: usize = 30_000_000;
    let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_back, origin) = site(behind.path(), "");
    let (_server, address) = front(before.path(), origin);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(client::WITHIN)).unwrap();
    let body: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let sum = body.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    write!(stream, "POST /sum HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nContent-Length: {BYTES}\r\n\r\n")
        .unwrap();
    stream.write_all(&body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&format!("{BYTES} {sum}")), "{answer}");
}

#[test]
fn an_upgrade_goes_by_http11() {
    let origin = stand::origin_that(|stream| {
        let mut lines = BufReader::new(stream);
        let head = stand::read_head(&mut lines)?;
        let mut out = stream;
        match head.to_lowercase().contains("upgrade: echo") {
            true => {
                write!(out, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").ok()?
            }
            false => write!(out, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").ok()?,
        }
        let mut said = [0; 5];
        lines.read_exact(&mut said).ok()?;
        out.write_all(&said).ok()
    });
    let before = tempfile::tempdir().unwrap();
    let (_server, address) = front(before.path(), origin);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(client::WITHIN)).unwrap();
    let upgrade = "GET /ws HTTP/1.1\r\nHost: site.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(upgrade.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let head = stand::read_head(&mut lines).unwrap();
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"hello").unwrap();
    let mut said = [0; 5];
    lines.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"hello");
}

#[test]
fn a_member_that_speaks_no_http2_is_left_for_another() {
    let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_back, speaks) = site(behind.path(), "");
    let silent = stand::origin_that(|stream| {
        let mut out = stream;
        let mut first = [0; 24];
        BufReader::new(stream).read_exact(&mut first).ok()?;
        out.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").ok()
    });
    let text = format!(
        "[[origin]]\nname = \"app\"\nbalance = \"round-robin\"\nmembers = [\n  {{ url = \"http://{silent}\", http2 = \"prior-knowledge\" }},\n  {{ url = \"http://{speaks}\", http2 = \"prior-knowledge\" }},\n]\n[[site]]\nhosts = [\"site.test\"]\norigin = \"app\"\n"
    );
    let server = stand::server(before.path(), &text);
    for at in 0..4 {
        let answer = get(server.addresses()[0], &format!("/path{at}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[test]
fn a_reload_switches_it_on_and_off() {
    let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (back, origin) = site(behind.path(), "");
    let text = |http2: &str| {
        format!(
            "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\nhttp2 = \"{http2}\"\n",
            base(before.path())
        )
    };
    let steered = Steered::start(before.path(), &text("off"));
    let address = steered.server.addresses()[0];
    for (http2, path) in [("off", "/a"), ("prior-knowledge", "/b"), ("off", "/c")] {
        let (_, needs_restart) = steered.reload(&text(http2)).unwrap();
        assert!(needs_restart.is_empty(), "{needs_restart:?}");
        assert!(get(address, path).starts_with("HTTP/1.1 200"));
    }
    steered.server.stop();
    let seen = log(back, behind.path());
    // Workers write their lines one after the other, in no order.
    for (path, is_by_http2) in [("/a ", false), ("/b ", true), ("/c ", false)] {
        let line = seen.lines().find(|line| line.contains(path)).unwrap_or_default();
        assert_eq!(line.contains("HTTP/2.0\""), is_by_http2, "{seen}");
    }
}

/// nginx with HTTP/2 in clear text before a folder of files.
struct Nginx(Child);

impl Nginx {
    fn before(folder: &Path) -> Option<(Nginx, SocketAddr)> {
        let mut command = stand::program("nginx")?;
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            "daemon off; worker_processes 1; pid {0}/pid; error_log {0}/errors;\nevents {{ worker_connections 256; }}\n\
             http {{ access_log off; client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c; uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;\n\
             server {{ listen {address} http2; root {0}/files; }} }}\n",
            folder.display()
        );
        std::fs::create_dir_all(folder.join("files")).unwrap();
        std::fs::write(folder.join("nginx.conf"), text).unwrap();
        command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let nginx = Nginx(child);
        stand::wait_for("nginx listens", || TcpStream::connect(address).is_ok());
        Some((nginx, address))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nginx_is_asked_by_http2() {
    let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some((_nginx, origin)) = Nginx::before(behind.path()) else { return };
    let bytes: Vec<u8> = (0..3_000_000).map(|at| b'a' + (at % 23) as u8).collect();
    std::fs::write(behind.path().join("files/large"), &bytes).unwrap();
    for at in 0..20 {
        std::fs::write(behind.path().join(format!("files/{at}")), format!("file {at}")).unwrap();
    }
    let (server, address) = front(before.path(), origin);
    let asked: Vec<_> = (0..20).map(|at| std::thread::spawn(move || get(address, &format!("/{at}")))).collect();
    for (at, asked) in asked.into_iter().enumerate() {
        assert!(asked.join().unwrap().ends_with(&format!("\r\n\r\nfile {at}")));
    }
    let large = get(address, "/large");
    assert_eq!(stand::body(&large).as_bytes(), bytes);
    assert!(get(address, "/absent").starts_with("HTTP/1.1 404 Not Found"));
    stand::wait_for("statistics are handed over", || metric(&server, "larder_upstream_http2_requests_total") == 22);
    // One for each worker, at most.
    assert!(metric(&server, "larder_upstream_connections_opened_total") <= 2);
}

#[test]
fn what_no_settings_name_stays_as_it_was() {
    let before = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(serve);
    let text = format!("[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\n");
    let server = stand::server(before.path(), &text);
    assert!(get(server.addresses()[0], "/fresh").ends_with("bytes"));
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(metric(&server, "larder_upstream_http2_requests_total"), 0);
}
