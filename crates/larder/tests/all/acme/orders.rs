//! Orders that go well: by each challenge, kept over restarts and kills, renewed under load, for sites that come and go.

use super::ca::Ca;
use super::{ANY, ask, file_of, free, names_of, proof_of, shake_hands, shown, text};
use crate::seen::reload::Steered;
use crate::seen::stand;
use larder::server::Server;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn addresses(server: &Server) -> (SocketAddr, SocketAddr) {
    (server.addresses()[0], server.addresses()[1])
}

fn wait_for_certificate(tls: SocketAddr, name: &str) -> Vec<u8> {
    stand::wait_for(&format!("a certificate for {name}"), || shown(tls, name).is_ok());
    shown(tls, name).unwrap()
}

#[test]
fn a_certificate_is_had_by_each_challenge_and_kept() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::start(folder.path());
        let acme = ca.settings().replacen("[acme]", &format!("[acme]\nchallenge = \"{challenge}\""), 1);
        let text = text(folder.path(), &acme, (ANY, ANY), stand::origin(), &[&["a.test", "www.a.test"], &["b.test"]]);
        let steered = Steered::start(folder.path(), &text);
        let (plain, tls) = addresses(&steered.server);
        // Memos of judgements that were made before are no answers to challenges.
        let ready = |path: &str| {
            stand::exchange(plain, &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"))
        };
        assert!(ready("/fresh").starts_with("HTTP/1.1 200") && ready("/fresh").contains("; hit"));
        ca.leads_to(plain, tls);
        let first = wait_for_certificate(tls, "a.test");
        assert_eq!(names_of(&first), ["a.test", "www.a.test"]);
        assert_eq!(shown(tls, "www.a.test").unwrap(), first);
        assert_eq!(names_of(&wait_for_certificate(tls, "b.test")), ["b.test"]);
        let answer = ask(tls, "a.test").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/fresh"), "{answer}");
        // Nothing is left open.
        assert!(file_of(plain, "a.test", "token-3").is_none_or(|body| body.starts_with("/.well-known")));
        assert_eq!(proof_of(tls, "a.test"), None);
        assert_eq!(ca.contacts(), [serde_json::json!(["mailto:ops@a.test"])]);
        assert_eq!(ca.orders(), 2);
        is_closed_to_others(&folder.path().join("store/acme"));
        steered.server.stop();

        let asked = ca.asked();
        let again = Steered::start(folder.path(), &text);
        let (_, tls) = addresses(&again.server);
        assert_eq!(shown(tls, "www.a.test").unwrap(), first, "it is there from the start");
        assert_eq!(ca.asked(), asked, "nobody was asked for it");
    }
}

fn is_closed_to_others(folder: &Path) {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700);
    let inner = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    assert_eq!(mode(&inner), 0o700);
    let files: Vec<_> = fs::read_dir(inner).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 3, "an account and two certificates, nothing half-written: {files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600));
}

#[test]
fn a_handshake_that_validates_a_name_is_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let (plain, tls) = addresses(&steered.server);
    // Neither before there is a certificate nor afterwards is anything shown to it while no challenge is open.
    assert!(shake_hands(tls, "a.test", &[b"acme-tls/1"]).is_err());
    ca.leads_to(plain, tls);
    wait_for_certificate(tls, "a.test");
    assert!(shake_hands(tls, "a.test", &[b"acme-tls/1"]).is_err());
    // A client that can speak HTTP too does so.
    let stream = shake_hands(tls, "a.test", &[b"acme-tls/1", b"http/1.1"]).unwrap();
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[test]
fn a_certificate_is_renewed_under_load_without_a_lost_connection() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    // Two thirds of it are over after four seconds.
    ca.issues_for(Duration::from_secs(6));
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let (plain, tls) = addresses(&steered.server);
    ca.leads_to(plain, tls);
    let first = wait_for_certificate(tls, "a.test");
    let (over, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let is_good = ask(tls, "a.test").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
                    asked.fetch_add(1, Ordering::Relaxed);
                    failed.fetch_add(usize::from(!is_good), Ordering::Relaxed);
                }
            });
        }
        stand::wait_for("a renewal", || shown(tls, "a.test").is_ok_and(|now| now != first));
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(failed.into_inner(), 0, "of {}", asked.into_inner());
    let counts = steered.server.shared().acme.counts();
    assert!(counts.issued.load(Ordering::Relaxed) >= 2);
    assert_eq!(counts.failed.load(Ordering::Relaxed), 0);
}

#[test]
fn sites_come_and_go_with_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    let ports = free();
    let text = |sites: &[&[&str]]| text(folder.path(), &ca.settings(), ports, stand::origin(), sites);
    let steered = Steered::start(folder.path(), &text(&[&["a.test"]]));
    let (plain, tls) = ports;
    ca.leads_to(plain, tls);
    let first = wait_for_certificate(tls, "a.test");
    steered.reload(&text(&[&["a.test"], &["b.test"]])).unwrap();
    wait_for_certificate(tls, "b.test");
    stand::wait_for("the certificate of b.test", || names_of(&shown(tls, "b.test").unwrap()) == ["b.test"]);
    assert_eq!(shown(tls, "a.test").unwrap(), first);
    steered.reload(&text(&[&["b.test"]])).unwrap();
    assert_eq!(names_of(&shown(tls, "a.test").unwrap()), ["b.test"], "a stranger gets the first one");
    // A site that comes back has its certificate still.
    steered.reload(&text(&[&["b.test"], &["a.test"]])).unwrap();
    assert_eq!(shown(tls, "a.test").unwrap(), first);
    assert_eq!(ca.orders(), 2);
    // An authority that has forgotten the account gets a new one.
    ca.forgets_accounts();
    steered.reload(&text(&[&["b.test"], &["a.test"], &["c.test"]])).unwrap();
    stand::wait_for("the certificate of c.test", || {
        shown(tls, "c.test").is_ok_and(|leaf| names_of(&leaf) == ["c.test"])
    });
    assert_eq!(ca.contacts().len(), 2);
    // And a new address of mail, with the next order.
    steered.reload(&text(&[&["d.test"]]).replace("ops@a.test", "help@a.test")).unwrap();
    stand::wait_for("the certificate of d.test", || {
        shown(tls, "d.test").is_ok_and(|leaf| names_of(&leaf) == ["d.test"])
    });
    assert_eq!(ca.contacts().last(), Some(&serde_json::json!(["mailto:help@a.test"])));
}

#[test]
fn files_of_a_listener_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    let pair = rcgen::generate_simple_self_signed(["own.test".to_owned()]).unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("own.pem"), pair.cert.pem()).unwrap();
    fs::write(at("own.key"), pair.signing_key.serialize_pem()).unwrap();
    let files =
        format!("site_certificates = true\ntls = [{{ chain = {:?}, key = {:?} }}]", at("own.pem"), at("own.key"));
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test", "own.test"]]);
    let steered = Steered::start(folder.path(), &text.replace("site_certificates = true", &files));
    let (plain, tls) = addresses(&steered.server);
    assert!(shown(tls, "a.test").is_err(), "another certificate would only be refused");
    ca.leads_to(plain, tls);
    assert_eq!(names_of(&wait_for_certificate(tls, "a.test")), ["a.test", "own.test"]);
    for name in ["own.test", "stranger.test"] {
        assert_eq!(names_of(&shown(tls, name).unwrap()), ["own.test"], "{name}");
    }
}

struct Running {
    child: Child,
    plain: SocketAddr,
    tls: SocketAddr,
}

impl Running {
    fn start(folder: &Path, text: &str) -> Running {
        fs::write(folder.join("larder.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let mut child = command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let words = said.strip_prefix("larder listens on ").unwrap_or_else(|| panic!("{said}"));
        let mut words = words.split([',', ';']).map(|word| word.trim().parse().unwrap());
        Running { plain: words.next().unwrap(), tls: words.next().unwrap(), child }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn key_and_certificate_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    let running = Running::start(folder.path(), &text);
    ca.leads_to(running.plain, running.tls);
    let first = wait_for_certificate(running.tls, "a.test");
    // The process is killed.
    drop(running);
    let orders = ca.orders();
    drop(ca);
    let again = Running::start(folder.path(), &text);
    assert_eq!(shown(again.tls, "a.test").unwrap(), first);
    assert_eq!(orders, 1);
}

#[test]
fn a_server_that_is_killed_again_and_again_orders_no_more_often() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::start(folder.path());
    let text = text(folder.path(), &ca.settings(), (ANY, ANY), stand::origin(), &[&["a.test"]]);
    for _ in 0..3 {
        let _running = Running::start(folder.path(), &text);
        // The authority waits for the place to which the name leads: the order is under way when the process is killed.
        stand::wait_for("an order", || ca.orders() > 0);
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(ca.orders(), 1);
}
