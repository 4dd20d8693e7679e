//! Orders from `pebble`, the authority that Let's Encrypt tests clients with. It is built from the Go registry where Go is; without it
//! these tests say that they were skipped.

use super::ca::settings;
use super::{ask, free, names_of, shown, text};
use crate::seen::reload::Steered;
use crate::seen::stand;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

const MODULE: &str = "github.com/letsencrypt/pebble/v2/cmd";
/// The version that these tests were written with.
const VERSION: &str = "v2.9.0";

/// Both programs, built once; `None` where they can't be.
fn programs() -> Option<(PathBuf, PathBuf)> {
    static BUILT: OnceLock<Option<(PathBuf, PathBuf)>> = OnceLock::new();
    let build = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pebble");
        let found = (folder.join("pebble"), folder.join("pebble-challtestsrv"));
        if found.0.exists() && found.1.exists() {
            return Some(found);
        }
        let mut go = Command::new("go");
        go.arg("install").args(["pebble", "pebble-challtestsrv"].map(|name| format!("{MODULE}/{name}@{VERSION}")));
        let output = go.env("GOBIN", &folder).env("GOFLAGS", "-mod=mod").output().ok()?;
        output.status.success().then_some(found)
    };
    BUILT.get_or_init(build).clone()
}

/// One at a time: they renew by the second.
static ALONE: Mutex<()> = Mutex::new(());

struct Pebble {
    children: Vec<Child>,
    acme: String,
}

impl Pebble {
    /// An authority to which names of this machine lead at these ports, and whose certificates last so many seconds.
    fn start(
        folder: &Path,
        (plain, tls): (SocketAddr, SocketAddr),
        life_seconds: u64,
        environment: &[(&str, &str)],
    ) -> Option<Pebble> {
        let Some((pebble, names)) = programs() else {
            eprintln!("skipped: pebble can't be built, for there is no Go or no registry");
            return None;
        };
        let ((listen, management), (dns, names_management)) = (free(), free());
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let at = |name: &str| folder.join(name);
        fs::write(at("pebble.pem"), pair.cert.pem()).unwrap();
        fs::write(at("pebble.key"), pair.signing_key.serialize_pem()).unwrap();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": listen.to_string(), "managementListenAddress": management.to_string(),
            "certificate": at("pebble.pem"), "privateKey": at("pebble.key"), "httpPort": plain.port(), "tlsPort": tls.port(),
            "ocspResponderURL": "", "externalAccountBindingRequired": false, "keyAlgorithm": "ecdsa",
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": { "description": "for tests", "validityPeriod": life_seconds } },
        } });
        fs::write(at("pebble.json"), config.to_string()).unwrap();
        let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let dns_at = dns.to_string();
        let mut resolver = Command::new(names);
        resolver.args([
            "-defaultIPv6",
            "",
            "-defaultIPv4",
            "127.0.0.1",
            "-http01",
            "",
            "-https01",
            "",
            "-tlsalpn01",
            "",
            "-doh",
            "",
        ]);
        resolver.args(["-dns01", &dns_at, "-management", &names_management.to_string()]);
        let mut authority = Command::new(pebble);
        authority.arg("-config").arg(at("pebble.json")).args(["-dnsserver", &dns_at, "-strict"]);
        authority.env("PEBBLE_VA_NOSLEEP", "1").envs(environment.iter().copied());
        let children = vec![quiet(&mut resolver), quiet(&mut authority)];
        stand::wait_for("pebble", || std::net::TcpStream::connect(listen).is_ok());
        let acme = settings(&format!("https://localhost:{}/dir", listen.port()), &at("pebble.pem"));
        Some(Pebble { children, acme })
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits longer than usual: pebble takes its time, and refuses some nonces.
fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn pebble_issues_by_each_challenge_although_it_refuses_nonces() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for challenge in ["http-01", "tls-alpn-01"] {
        let (folder, ports) = (tempfile::tempdir().unwrap(), free());
        let refuses = [("PEBBLE_WFE_NONCEREJECT", "5")];
        let Some(pebble) = Pebble::start(folder.path(), ports, 86_400, &refuses) else { return };
        let acme = pebble.acme.replacen("[acme]", &format!("[acme]\nchallenge = \"{challenge}\""), 1);
        let text = text(folder.path(), &acme, ports, stand::origin(), &[&["a.test", "www.a.test"]]);
        let steered = Steered::start(folder.path(), &text);
        wait_for("a certificate", || shown(ports.1, "a.test").is_ok());
        let leaf = shown(ports.1, "www.a.test").unwrap();
        assert_eq!(names_of(&leaf), ["a.test", "www.a.test"], "{challenge}");
        assert!(ask(ports.1, "a.test").unwrap().starts_with("HTTP/1.1 200"));
        drop(pebble);
        steered.server.stop();
        let _again = Steered::start(folder.path(), &text);
        assert_eq!(shown(ports.1, "a.test").unwrap(), leaf, "kept without the authority");
    }
}

#[test]
fn pebble_renews_under_load_without_a_lost_connection() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (folder, ports) = (tempfile::tempdir().unwrap(), free());
    let Some(pebble) = Pebble::start(folder.path(), ports, 15, &[("PEBBLE_WFE_NONCEREJECT", "0")]) else { return };
    let text = text(folder.path(), &pebble.acme, ports, stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    wait_for("a certificate", || shown(ports.1, "a.test").is_ok());
    let first = shown(ports.1, "a.test").unwrap();
    let (over, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let is_good = ask(ports.1, "a.test").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
                    asked.fetch_add(1, Ordering::Relaxed);
                    failed.fetch_add(usize::from(!is_good), Ordering::Relaxed);
                }
            });
        }
        wait_for("a renewal", || shown(ports.1, "a.test").is_ok_and(|now| now != first));
        over.store(true, Ordering::Relaxed);
    });
    eprintln!(
        "{} connections during a renewal, {} failed",
        asked.load(Ordering::Relaxed),
        failed.load(Ordering::Relaxed)
    );
    assert_eq!(failed.into_inner(), 0, "of {}", asked.into_inner());
    assert_eq!(steered.server.shared().acme.counts().failed.load(Ordering::Relaxed), 0);
}

#[test]
fn pebble_refuses_a_name_that_leads_elsewhere() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (folder, ports, others) = (tempfile::tempdir().unwrap(), free(), free());
    // The names lead to ports at which nobody is.
    let Some(pebble) = Pebble::start(folder.path(), others, 86_400, &[("PEBBLE_WFE_NONCEREJECT", "0")]) else { return };
    let text = text(folder.path(), &pebble.acme, ports, stand::origin(), &[&["a.test"]]);
    let steered = Steered::start(folder.path(), &text);
    let trouble = || steered.server.shared().acme.states()[0].trouble.clone();
    wait_for("a failed order", || trouble().is_some());
    let trouble = trouble().unwrap();
    assert!(trouble.contains("could not validate a.test by http-01") && trouble.contains("refused"), "{trouble}");
    assert!(shown(ports.1, "a.test").is_err());
}
