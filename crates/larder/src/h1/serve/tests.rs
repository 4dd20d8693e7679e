//! However a request ends, its client is told as far as it can be, and it has one record: a line of the log, and one more in
//! the counters.

#![cfg(test)]

use super::*;
use crate::config::{Config, Loaded};
use crate::server::Server;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(20);

fn task_bytes<F>(_: impl Fn(Box<Connection>, Start) -> F) -> usize {
    size_of::<F>()
}

/// It is copied when a connection begins, and held for as long as one is idle.
#[test]
fn a_connection_s_task_is_small() {
    assert!(task_bytes(serve) <= 1024, "{}", task_bytes(serve));
    // The allocator has a size of 512 bytes, and the next smaller one of 448.
    assert!(size_of::<Connection>() <= 512, "{}", size_of::<Connection>());
}

/// A server of this test, its log, and what was sent to it.
pub(super) struct Stage {
    pub server: Server,
    pub proxy: SocketAddr,
    opens: SocketAddr,
    pub origin: SocketAddr,
    pub log: std::path::PathBuf,
}

impl Stage {
    pub fn open(folder: &Path, text: &str) -> Stage {
        let (origin, log) = (origin(), folder.join("access.log"));
        let text = format!(
            "{text}\n[log]\nto = \"{}\"\nformat = \"{{method}} {{url}} {{status}} {{outcome}} {{complete}}\"\n\
             [access]\nconnect_ports = [1, 443, {}]\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nintercept = true\n",
            log.display(),
            origin.port()
        );
        let loaded = Loaded::parse("test", &text, &[]).unwrap_or_else(|report| panic!("{report}"));
        let config = Config {
            admin: None,
            store: Some(folder.join("store")),
            disk_bytes: Some(0),
            workers: 2,
            memory_bytes: 32_000_000,
            ..loaded.config
        };
        let server = Server::start(config).unwrap();
        let (proxy, opens) = (server.addresses()[0], server.addresses()[1]);
        Stage { server, proxy, opens, origin, log }
    }

    fn counted(&self) -> u64 {
        self.server.shared().common.counters.requests.load(Ordering::Relaxed)
    }

    /// Stops the server and gives the lines of its log, once so many requests were counted.
    pub fn lines(self, requests: usize) -> Vec<String> {
        let end = Instant::now() + WITHIN;
        while self.counted() < requests as u64 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let shared = std::sync::Arc::clone(self.server.shared());
        self.server.stop();
        let counters = &shared.common.counters;
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let kinds = of(&counters.hits)
            + of(&counters.misses)
            + of(&counters.failures)
            + of(&counters.refusals)
            + of(&counters.tunnels);
        let by_outcome: u64 = counters.measures.by_outcome().iter().map(|sums| sums.requests()).sum();
        let log = std::fs::read_to_string(&self.log).unwrap();
        let lines: Vec<String> = log.lines().map(str::to_owned).collect();
        let counts = (of(&counters.requests), kinds, by_outcome, lines.len() as u64);
        assert_eq!(counts, (requests as u64, requests as u64, requests as u64, requests as u64), "{log}");
        lines
    }

    /// Sends these bytes, and gives all that comes back to the end of the connection.
    pub fn say(&self, to: SocketAddr, bytes: &str) -> String {
        let mut stream = self.begin(to, bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn begin(&self, to: SocketAddr, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let _ = stream.write_all(bytes.replace("ORIGIN", &self.origin.to_string()).as_bytes());
        stream
    }
}

/// An origin that answers by the first word of the path.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    address
}

fn answer(stream: &TcpStream) -> Option<()> {
    let (mut lines, mut out) = (BufReader::new(stream), stream);
    loop {
        let mut first = String::new();
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line == "\r\n" {
                break;
            }
        }
        lines.by_ref().take(length).read_to_end(&mut Vec::new()).ok()?;
        let path = first.split(' ').nth(1)?.to_owned();
        let body = if first.starts_with("HEAD") { "" } else { "bytes" };
        match path.split('/').nth(1)? {
            "fresh" => write!(out, "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 5\r\n\r\n{body}"),
            "silent" => return std::io::copy(&mut lines, &mut std::io::sink()).ok().map(drop),
            "half" => {
                write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nby").ok()?;
                return std::io::copy(&mut lines, &mut std::io::sink()).ok().map(drop);
            }
            "switch" => {
                write!(out, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhi")
                    .ok()?;
                return None;
            }
            "reset" => return None,
            _ => write!(out, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 5\r\n\r\n{body}"),
        }
        .ok()?;
    }
}

const UPGRADE: &str = "Host: ORIGIN\r\nConnection: upgrade\r\nUpgrade: echo\r\n";

/// Bytes for the plain listener, the status that comes back, and the outcome in the log, where there is only one.
fn kinds() -> Vec<(String, u16, &'static str)> {
    let get = |path: &str, more: &str| {
        format!("GET http://ORIGIN/{path} HTTP/1.1\r\nHost: ORIGIN\r\nConnection: close\r\n{more}\r\n")
    };
    let offer = |path: &str, more: &str| format!("GET http://ORIGIN/{path} HTTP/1.1\r\n{UPGRADE}{more}\r\n");
    let connect = |to: &str, more: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{more}\r\n");
    let through = "GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    vec![
        (get("fresh", ""), 200, "hit"),
        (get("none", ""), 200, "not-stored"),
        (get("none", "").replace("GET", "HEAD"), 200, "not-stored"),
        (get("fresh", "Range: bytes=0-1\r\n"), 206, "hit"),
        (get("fresh", "Cache-Control: only-if-cached\r\n"), 200, "hit"),
        (get("never", "Cache-Control: only-if-cached\r\n"), 504, "only-if-cached"),
        (get("reset", ""), 502, ""),
        (get("none", "Content-Length: 3\r\n").replace("GET", "POST") + "abc", 200, "method"),
        (get("none", "Content-Length: 3\r\n").replace("GET", "PUT") + "a", 400, "client-gone"),
        (
            "GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: close\r\n\r\n".to_owned(),
            502,
            "refused",
        ),
        ("GET /there HTTP/1.1\r\nHost: nowhere.test\r\nConnection: close\r\n\r\n".to_owned(), 404, "no-site"),
        ("GET http://ORIGIN/ HTTP/1.1\r\n\r\n".to_owned(), 400, "host"),
        ("GET  http://ORIGIN/ HTTP/1.1\r\n".to_owned(), 400, "request-line"),
        ("GET http://ORIGIN/ HTTP/1.1\r\nHos".to_owned(), 400, "client-gone"),
        (get("fresh", "X-Test-Group: friends\r\n"), 200, "hit"),
        (get("fresh", "X-Test-Group: others\r\n"), 403, "group"),
        (get("none", "X-Test-Group: friends\r\n").replace("GET", "HEAD"), 200, "not-stored"),
        (connect("ORIGIN", "X-Test-Group: others\r\n"), 403, "group"),
        (offer("switch", "X-Test-Group: friends\r\n"), 101, "tunnel"),
        (offer("switch", "X-Test-Group: others\r\nConnection: close\r\n"), 403, "group"),
        (get("x", "X-Test-Break: quick\r\n"), 500, "panic"),
        (get("x", "X-Test-Break: travel\r\n").replace("GET", "POST"), 500, "panic"),
        (offer("x", "X-Test-Break: leave\r\n"), 500, "panic"),
        (connect("ORIGIN", "X-Test-Break: leave\r\n"), 500, "panic"),
        (offer("x", "Connection: close\r\nMax-Forwards: 0\r\n").replace("GET", "TRACE"), 200, "trace"),
        (format!("GET /there HTTP/1.1\r\nHost: nowhere.test\r\n{}\r\n", &UPGRADE[14..]), 404, "no-site"),
        (offer("none", "Connection: close\r\n"), 200, "upgrade"),
        (offer("reset", ""), 502, ""),
        (offer("switch", ""), 101, "tunnel"),
        (connect("ORIGIN", "") + through, 200, "tunnel"),
        (connect("ORIGIN", "Content-Length: 3\r\n") + "abc", 400, "connect-body"),
        (connect("127.0.0.1:22", ""), 403, "connect-port"),
        (connect("127.0.0.1:1", ""), 502, "refused"),
        ("CONNECT /x HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "target"),
    ]
}

/// Rounds of all kinds that are played in CI.
const ROUNDS: usize = 80;
/// Clients that play at the same time; more of them where many requests are wanted, because the slow kinds wait.
const CLIENTS: usize = 4;
const CLIENTS_OF_MANY: usize = 48;
/// Kinds that take a second or two are played once in so many rounds.
const SLOW_ONE_IN: usize = 10;

/// Plays a request and compares the status of its answer.
fn play(stage: &Stage, (bytes, status, _): &(String, u16, &'static str)) {
    let mut stream = stage.begin(stage.proxy, bytes);
    if *status != 500 {
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}\n{answer}");
}

/// Clients that leave before the head of the answer, in its body, and in a TLS greeting, and one that waits for an origin that says
/// nothing. Gives the number of requests.
fn play_slow(stage: &Stage) -> usize {
    let get = |path: &str| format!("GET http://ORIGIN/{path} HTTP/1.1\r\nHost: ORIGIN\r\n\r\n");
    drop(stage.begin(stage.proxy, &get("silent")));
    let mut in_the_body = stage.begin(stage.proxy, &get("half"));
    let mut head = [0; 12];
    in_the_body.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    drop(in_the_body);
    let mut greeting = stage.begin(stage.opens, "CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\n\x16\x03\x01");
    greeting.read_exact(&mut head).unwrap();
    drop(greeting);
    let late = stage.say(stage.proxy, &get("silent").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    assert!(late.starts_with("HTTP/1.1 504 "), "{late}");
    4
}

/// `ENDS=1000000` plays so many requests.
#[test]
fn as_many_records_as_requests() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::open(folder.path(), "[timeouts]\nfirst_byte = \"1s\"\n");
    let kinds = kinds();
    let wanted: Option<usize> = std::env::var("ENDS").ok().and_then(|number| number.parse().ok());
    let rounds = wanted.map_or(ROUNDS, |wanted| wanted.div_ceil(kinds.len()));
    stage.say(stage.proxy, &kinds[0].0);
    let clients = if wanted.is_some() { CLIENTS_OF_MANY } else { CLIENTS };
    let client = |first: usize| {
        let mut sent = 0;
        for round in (first..rounds).step_by(clients) {
            kinds.iter().for_each(|kind| play(&stage, kind));
            sent += kinds.len() + if round % SLOW_ONE_IN == 0 { play_slow(&stage) } else { 0 };
        }
        sent
    };
    let sent = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients).map(|first| scope.spawn(move || client(first))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    });
    let shared = std::sync::Arc::clone(stage.server.shared());
    let lines = stage.lines(sent + 1);
    assert_eq!(shared.common.counters.panics.load(Ordering::Relaxed), 4 * rounds as u64);
    let is_of = |line: &str, (bytes, status, outcome): &(String, u16, &str)| {
        let method = bytes.split(' ').next().unwrap_or_default();
        let said = line.contains(&format!(" {status} {outcome}"));
        said && (line.starts_with(method) || line.starts_with('-'))
    };
    // The first one that is not stored is a miss like others.
    let found = |kind: &&(String, u16, &str)| lines.iter().filter(|line| is_of(line, kind)).count() < rounds - 1;
    let missing: Vec<_> = kinds.iter().filter(found).collect();
    let mut seen = lines.clone();
    seen.sort();
    seen.dedup();
    assert!(missing.is_empty(), "{missing:#?}\n{seen:#?}");
}

/// Sends these at once, each on a connection of its own, and gives what comes back in the same order.
fn at_once(stage: &Stage, all: &[(SocketAddr, String)]) -> Vec<String> {
    std::thread::scope(|scope| {
        let said: Vec<_> = all.iter().map(|(to, bytes)| scope.spawn(|| stage.say(*to, bytes))).collect();
        said.into_iter().map(|answer| answer.join().unwrap()).collect()
    })
}

#[test]
fn the_time_for_a_request_as_a_whole_ends_with_an_answer_or_a_cut_and_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::open(folder.path(), "[timeouts]\nrequest = \"1s\"");
    let get = |path: &str| format!("GET http://ORIGIN/{path} HTTP/1.1\r\nHost: ORIGIN\r\n\r\n");
    let upload = "POST http://ORIGIN/silent HTTP/1.1\r\nHost: ORIGIN\r\nContent-Length: 5\r\n\r\na".to_owned();
    let offer = format!("GET http://ORIGIN/silent HTTP/1.1\r\n{UPGRADE}\r\n");
    // The answer before it, which waits in the same outbox, is not lost.
    let two = get("fresh") + &get("silent");
    let all = [get("silent"), get("half"), upload, offer, two].map(|bytes| (stage.proxy, bytes));
    let answers = at_once(&stage, &all);
    assert!(answers[0].starts_with("HTTP/1.1 504 ") && answers[0].contains("timeouts.request"), "{}", answers[0]);
    assert!(answers[1].starts_with("HTTP/1.1 200 ") && answers[1].ends_with("\r\n\r\nby"), "{}", answers[1]);
    assert!(answers[2].starts_with("HTTP/1.1 408 "), "{}", answers[2]);
    assert!(answers[3].starts_with("HTTP/1.1 504 "), "{}", answers[3]);
    assert!(answers[4].starts_with("HTTP/1.1 200 ") && answers[4].contains("HTTP/1.1 504 "), "{}", answers[4]);
    let mut ends: Vec<String> = stage.lines(6).iter().map(|line| line.rsplit_once('/').unwrap().1.to_owned()).collect();
    ends.sort();
    let expected = [
        "fresh 200 uri-miss true",
        "half 200 uri-miss false",
        "silent 408 request-time true",
        "silent 504 request-time true",
        "silent 504 request-time true",
        "silent 504 request-time true",
    ];
    assert_eq!(ends, expected);
}

#[test]
fn a_drain_that_is_over_ends_with_answers_and_records() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::open(folder.path(), "[timeouts]\ndrain = \"0s\"");
    let get = |path: &str| format!("GET http://ORIGIN/{path} HTTP/1.1\r\nHost: ORIGIN\r\n\r\n");
    let mut waits = stage.begin(stage.proxy, &get("silent"));
    let mut gets = stage.begin(stage.proxy, &get("half"));
    let mut passes = stage.begin(stage.proxy, "CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\n");
    let mut head = [0; 12];
    gets.read_exact(&mut head).unwrap();
    passes.read_exact(&mut head).unwrap();
    let log = stage.log.clone();
    let shared = std::sync::Arc::clone(stage.server.shared());
    stage.server.stop();
    let mut answer = String::new();
    let _ = waits.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After"), "{answer}");
    let mut lines: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("CONNECT ") && lines[0].ends_with(" 200 tunnel false"), "{lines:?}");
    assert!(lines[1].ends_with("/half 200 uri-miss false"), "{lines:?}");
    assert!(lines[2].ends_with("/silent 503 going-down true"), "{lines:?}");
    assert_eq!(shared.common.counters.requests.load(Ordering::Relaxed), 3);
}

#[test]
fn tunnels_that_are_opened_have_one_record_each_however_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::open(folder.path(), "");
    let run = stage.server.shared().open_run(crate::record::Network::Used, crate::record::Way::Proxy).unwrap();
    let dead = "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\nno TLS";
    let none = "CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\nGET /switch HTTP/1.1\r\nHost: a\r\n\r\n";
    // A client that leaves in the middle of its handshake.
    let mut hello = b"CONNECT ORIGIN HTTP/1.1\r\nHost: ORIGIN\r\n\r\n".to_vec();
    let config =
        rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("a.example").unwrap();
    let mut client = rustls::ClientConnection::new(config.into(), name).unwrap();
    client.write_tls(&mut hello).unwrap();
    for to in [stage.opens, run.proxy] {
        assert!(stage.say(to, dead).starts_with("HTTP/1.1 200 "));
        assert!(stage.say(to, none).ends_with("\r\n\r\nhi"));
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(&hello_to(&hello, stage.origin)).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let shared = std::sync::Arc::clone(stage.server.shared());
    let mut lines = stage.lines(6);
    assert_eq!(shared.close_run(&run.id).map(|stats| stats.requests), Some(3));
    lines.sort();
    lines.dedup();
    let ends: Vec<&str> = lines.iter().map(|line| line.split_once(":").unwrap().1.split_once(' ').unwrap().1).collect();
    assert_eq!(ends, ["200 refused false", "200 tls-closed false", "200 tunnel true"]);
}

/// The bytes of a CONNECT to this origin and what follows.
fn hello_to(bytes: &[u8], origin: SocketAddr) -> Vec<u8> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&bytes[..end]).replace("ORIGIN", &origin.to_string());
    [head.as_bytes(), &bytes[end..]].concat()
}

#[test]
fn who_is_one_too_many_and_who_leaves_have_records() {
    let folder = tempfile::tempdir().unwrap();
    let stage =
        Stage::open(folder.path(), "[limits]\nconnections_per_client_max = 1\n[timeouts]\norigin_idle = \"1s\"");
    let get = |path: &str| format!("GET http://ORIGIN/{path} HTTP/1.1\r\nHost: ORIGIN\r\n\r\n");
    let mut first = stage.begin(stage.proxy, &get("half"));
    first.read_exact(&mut [0; 12]).unwrap();
    assert!(stage.say(stage.proxy, &get("fresh")).starts_with("HTTP/1.1 503 "));
    // Its answer is on the way, and nobody is there any more.
    drop(first);
    let mut lines = stage.lines(2);
    lines.sort();
    assert_eq!(lines[0], "- - 503 connections-per-client-max true");
    assert!(lines[1].ends_with("/half 200 uri-miss false"), "{lines:?}");
}
