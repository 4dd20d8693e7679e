//! Clients that mean harm, against a process with little memory, while good ones go on.

use super::client::{Client, code, get, headers, tls};
use super::forger::Forger;
use super::{start, write_certificate};
use crate::seen::process::Running;
use crate::seen::stand;
use larder_wire::h3::ErrorCode;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use tempfile::TempDir;

/// More memory than before an attack: the budget of the store and a tenth, and what is promised beside it (decision 012).
const MORE_BYTES_MAX: u64 = 16_000_000 / 10 * 11 + 24_000_000;

struct Stage {
    folder: TempDir,
    running: Running,
    admin: SocketAddr,
    certificate: CertificateDer<'static>,
    /// Resident before the attack.
    before_bytes: u64,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let certificate = write_certificate(folder.path()).cert.der().clone();
        let running = start(folder.path(), "");
        let page = running.said.split_once("http://").unwrap().1;
        let admin = page.split('/').next().unwrap().parse().unwrap();
        let mut stage = Stage { folder, running, admin, certificate, before_bytes: 0 };
        stage.good_clients_are_served();
        stage.before_bytes = stage.running.resident_bytes_max();
        stage
    }

    fn client(&self) -> Client {
        let mut client = Client::with(self.running.proxy, tls(&self.certificate, None)).unwrap();
        client.uni(&super::client::control());
        client
    }

    /// A miss and a hit, each on a connection of its own.
    fn good_clients_are_served(&self) {
        assert_eq!(self.client().get("/echo").status(), "200");
        assert_eq!(self.client().get("/fresh").text(), "bytes");
    }

    /// Clients that met a limit so far, by its word.
    fn limited(&self, word: &str) -> u64 {
        let metrics = stand::ask(self.admin, "/metrics");
        let of =
            |line: &str| line.strip_prefix(&format!("larder_http3_limits_total{{limit=\"{word}\"}} "))?.parse().ok();
        metrics.lines().find_map(of).unwrap_or_else(|| panic!("{word}: {metrics}"))
    }

    /// The attack is over: good clients are served, and the memory was bounded.
    fn end(self, name: &str) {
        self.good_clients_are_served();
        let more = self.running.resident_bytes_max() - self.before_bytes;
        println!("{name}: {more} bytes more than {} were resident", self.before_bytes);
        assert!(more <= MORE_BYTES_MAX, "{name}: {more} bytes more than {}", self.before_bytes);
        self.running.end();
        drop(self.folder);
    }
}

/// Without a Retry each of these would hold the state of a handshake for `timeouts.head`.
#[test]
fn spoofed_first_packets() {
    let stage = Stage::new();
    let mut forger = Forger::of(1_000, &stage.certificate);
    stand::wait_for("packets that are answered by a Retry", || {
        forger.send(stage.running.proxy);
        stage.good_clients_are_served();
        stage.limited("retry") >= 1_000
    });
    let came = forger.came_bytes();
    assert!(came <= 3 * forger.sent_bytes, "{came} bytes for {}", forger.sent_bytes);
    stage.end("spoofed first packets");
}

#[test]
fn streams_that_are_opened_and_reset() {
    const CONNECTIONS: u64 = 20;
    let stage = Stage::new();
    for _ in 0..CONNECTIONS {
        let client = stage.client();
        while client.quic.close_reason().is_none() {
            let Some((mut send, mut receive)) = client.try_begin(&headers(&get("/slow")), true) else { break };
            let _ = send.reset(code(ErrorCode::RequestCancelled));
            let _ = receive.stop(code(ErrorCode::RequestCancelled));
        }
        assert_eq!(client.closed(), (ErrorCode::ExcessiveLoad.number(), "http3-rapid-reset".to_owned()));
    }
    stand::wait_for("their count", || stage.limited("http3-rapid-reset") == CONNECTIONS);
    stage.end("streams that are opened and reset");
}

/// A hundred long answers on each connection, of which nothing is read.
#[test]
fn answers_that_are_not_read() {
    let stage = Stage::new();
    let clients: Vec<_> = (0..10).map(|_| stage.client()).collect();
    let mut unread = Vec::new();
    for client in &clients {
        unread.extend((0..100).map(|_| client.begin(&headers(&get("/big/50000000")), true)));
        // The client's side of the connection goes on for a while.
        client.pause(200);
    }
    drop(unread);
    for client in clients {
        client.quic.close(code(ErrorCode::NoError), b"");
        client.wait(client.endpoint.wait_idle());
    }
    stage.end("answers that are not read");
}
