//! Connections that a load balancer passes on, with a header of the PROXY protocol before their first byte.

use super::stand;
use larder::server::Server;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tempfile::TempDir;

const LINE: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 51000 443\r\n";

/// A server with a site whose balancers are in 127.0.0.0/28, and its log.
struct Stage {
    folder: TempDir,
    server: Server,
}

impl Stage {
    fn with(listen: &str, text: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let origin = stand::origin();
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = \"127.0.0.0/28\"\n{listen}\n\
             [[site]]\nhosts = [\"a.test\"]\norigin = \"http://{origin}\"\n\
             [log]\nto = {:?}\nformat = \"{{client}} {{url}} {{outcome}}\"\n{text}",
            folder.path().join("log")
        );
        let server = stand::server(&folder.path().join("store"), &text);
        Stage { folder, server }
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// All lines of the log, at the end.
    fn log(self) -> Vec<String> {
        self.server.stop();
        fs::read_to_string(self.folder.path().join("log")).unwrap().lines().map(str::to_owned).collect()
    }
}

fn request(path: &str, connection: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: {connection}\r\n\r\n")
}

/// Sends these pieces one after the other, and reads to the end.
fn send(to: SocketAddr, from: [u8; 4], pieces: &[&[u8]]) -> String {
    let mut stream = stand::connect_from(from, to);
    stream.set_nodelay(true).unwrap();
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
        // A connection that is refused at once is closed before all is sent.
        let _ = stream.write_all(piece);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A header of version 2: command, family, addresses and TLVs.
fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([command, family, 0, body.len() as u8]);
    bytes.extend(body);
    bytes
}

const ADDRESSES: [u8; 12] = [192, 0, 2, 8, 198, 51, 100, 1, 0xc7, 0x38, 1, 0xbb];

#[test]
fn the_client_is_the_one_whom_the_header_names() {
    let stage = Stage::with("", "");
    let (to, balancer) = (stage.address(), [127, 0, 0, 2]);
    let last = request("/fresh", "close");
    let two = binary(0x21, 0x11, &ADDRESSES);
    let local = binary(0x20, 0, &[]);
    let both = [request("/fresh/1", "keep-alive"), request("/fresh/2", "close")].concat();
    let pieces: Vec<&[u8]> = LINE.as_bytes().chunks(9).collect();
    for (pieces, answers) in [
        (vec![[LINE.as_bytes(), last.as_bytes()].concat()], 1),
        (vec![LINE.as_bytes().to_vec(), last.clone().into_bytes()], 1),
        (pieces.iter().map(|piece| piece.to_vec()).chain([last.clone().into_bytes()]).collect(), 1),
        (vec![[&two[..], last.as_bytes()].concat()], 1),
        (vec![[&two[..], both.as_bytes()].concat()], 2),
        (vec![local, last.clone().into_bytes()], 1),
    ] {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let answer = send(to, balancer, &pieces);
        assert_eq!(answer.matches("HTTP/1.1 200").count(), answers, "{answer}");
    }
    // From elsewhere there is no header: it would be a malformed request.
    let elsewhere = [127, 0, 0, 20];
    assert!(send(to, elsewhere, &[last.as_bytes()]).starts_with("HTTP/1.1 200"));
    assert!(send(to, elsewhere, &[LINE.as_bytes(), last.as_bytes()]).starts_with("HTTP/1.1 400"));
    // Workers write their lines on their own.
    let mut clients: Vec<String> =
        stage.log().iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
    clients.sort_unstable();
    let (line, two) = ("192.0.2.7", "192.0.2.8");
    assert_eq!(clients, ["127.0.0.2", "127.0.0.20", "127.0.0.20", line, line, line, two, two, two]);
}

#[test]
fn a_connection_of_a_balancer_without_a_proper_header_is_closed() {
    let stage = Stage::with("", "[timeouts]\nhead = \"1s\"\n");
    let (to, balancer) = (stage.address(), [127, 0, 0, 2]);
    let endless = "x".repeat(200);
    let cases: [&[u8]; 6] = [
        b"GET /fresh HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 51000\r\nGET / HTTP/1.1\r\n\r\n",
        &[LINE.trim_end().as_bytes(), endless.as_bytes()].concat(),
        &binary(0x22, 0x11, &ADDRESSES),
        &binary(0x21, 0x11, &ADDRESSES[..11]),
        // It never comes to its end.
        b"PROXY TCP4 192.0.2.7",
    ];
    for case in cases {
        assert_eq!(send(to, balancer, &[case]), "", "{:?}", String::from_utf8_lossy(case));
    }
    // A look whether the port is open is no fault.
    drop(stand::connect_from(balancer, to));
    let counters = &stage.server.shared().common.counters;
    stand::wait_for("all are counted", || counters.proxy_headers_refused.load(Ordering::Relaxed) == 6);
    let log = stage.log();
    assert_eq!(log.len(), 6, "{log:?}");
    assert!(log.iter().all(|line| line.starts_with("127.0.0.2 ") && line.contains("proxy-protocol")), "{log:?}");
}

#[test]
fn tls_that_the_balancer_has_ended_gives_scheme_and_name() {
    let rule = "[[rule]]\nwhen = { sni = \"b.test\" }\ndo = { deny = true }\n";
    let stage = Stage::with("", rule);
    let tlv = |kind: u8, value: &[u8]| [&[kind, 0, value.len() as u8][..], value].concat();
    let ask = |tlvs: &[u8]| {
        let header = binary(0x21, 0x11, &[&ADDRESSES[..], tlvs].concat());
        send(stage.address(), [127, 0, 0, 2], &[&[&header[..], request("/fresh", "close").as_bytes()].concat()])
    };
    let by_tls = tlv(0x20, &[1, 0, 0, 0, 0]);
    assert!(ask(&[tlv(2, b"a.test"), by_tls.clone()].concat()).starts_with("HTTP/1.1 200"));
    assert!(ask(&[tlv(2, b"b.test"), by_tls].concat()).starts_with("HTTP/1.1 403"));
    assert!(ask(&tlv(2, b"a.test")).starts_with("HTTP/1.1 200"));
    let log = stage.log();
    let with = |part: &str| log.iter().filter(|line| line.contains(part)).count();
    assert_eq!((with(" https://a.test/fresh "), with(" http://a.test/fresh "), with(" rule")), (2, 1, 1), "{log:?}");
}

/// The limits and rights of a client are those of the one whom the header names, and a balancer on this machine makes nobody a program of it.
#[test]
fn limits_and_rights_are_the_client_s() {
    let origin = stand::origin();
    let stage = Stage::with(
        "forward = true",
        "[access]\nclients = [\"192.0.2.0/24\"]\n[limits]\nconnections_per_client_max = 1\n",
    );
    let (to, balancer) = (stage.address(), [127, 0, 0, 2]);
    let held = |last: u8| {
        let mut stream = stand::connect_from(balancer, to);
        let header = format!("PROXY TCP4 192.0.2.{last} 198.51.100.1 51000 443\r\n");
        stream.write_all([&header, &request("/fresh", "keep-alive")].map(String::as_str).concat().as_bytes()).unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        (stream, String::from_utf8_lossy(&start).into_owned())
    };
    let (first, second, again) = (held(1), held(2), held(1));
    assert_eq!([&*first.1, &*second.1, &*again.1], ["HTTP/1.1 200", "HTTP/1.1 200", "HTTP/1.1 503"]);
    let forward = format!("GET http://{origin}/fresh HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
    let ask = |client: &str| {
        let header = format!("PROXY TCP4 {client} 198.51.100.1 51000 443\r\n");
        send(to, balancer, &[[header, forward.clone()].concat().as_bytes()])
    };
    // Not this machine's own, whose programs reach it anyway.
    let closed = ask("192.0.2.3");
    assert!(closed.starts_with("HTTP/1.1 403") && closed.contains("access.destinations"), "{closed}");
    let foreign = ask("203.0.113.1");
    assert!(foreign.starts_with("HTTP/1.1 403") && !foreign.contains("access.destinations"), "{foreign}");
}

/// TLS begins behind the header; curl is a balancer's double.
#[test]
fn tls_begins_behind_the_header() {
    let certificates = tempfile::tempdir().unwrap();
    super::schemes::write_pair(certificates.path(), "a.test");
    let at = |name: &str| certificates.path().join(name).display().to_string();
    let tls = format!("[[listen.tls]]\nchain = {:?}\nkey = {:?}\n", at("chain.pem"), at("key.pem"));
    let stage = Stage::with(&tls, "");
    let port = stage.address().port();
    let curl = |flags: &[&str]| {
        let url = format!("https://a.test:{port}/fresh");
        let resolve = format!("a.test:{port}:127.0.0.1");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "10", "--noproxy", "*", "--cacert", &at("chain.pem"), "--resolve", &resolve]);
        String::from_utf8(curl.args(flags).arg(url).output().unwrap().stdout).unwrap()
    };
    assert_eq!(curl(&["--haproxy-protocol"]), "/fresh");
    assert_eq!(curl(&[]), "");
}

#[test]
fn check_warns_of_claims_by_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.toml");
    for (network, warns) in [("0.0.0.0/0", true), ("10.0.0.0/8", false)] {
        fs::write(&file, format!("[[listen]]\naddress = \"127.0.0.1:3128\"\nproxy_protocol = \"{network}\"\n"))
            .unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = check.args(["check", "--config"]).arg(&file).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), said.contains("anybody may claim any address")), (Some(0), warns), "{said}");
    }
}
