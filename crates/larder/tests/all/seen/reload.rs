//! Another configuration for a server that runs.

use super::schemes::write_pair;
use super::stand;
use larder::config::Loaded;
use larder::server::{Plan, Server};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A server that reads `larder.toml` of a folder.
pub struct Steered {
    pub server: Server,
    file: PathBuf,
}

impl Steered {
    pub fn start(folder: &Path, text: &str) -> Steered {
        let file = folder.join("larder.toml");
        fs::write(&file, text).unwrap();
        let read = {
            let file = file.clone();
            move || Loaded::read(Some(&file), &[]).map_err(|report| report.to_string())
        };
        let Loaded { config, sources, .. } = read().unwrap();
        let begin = || {
            let (read, sources) = (read.clone(), sources.clone());
            Server::start(Plan { reread: Some(Box::new(read)), sources, ..Plan::from(config.clone()) })
        };
        let server = stand::started(begin);
        Steered { server, file }
    }

    pub fn reload(&self, text: &str) -> Result<(Vec<String>, Vec<String>), String> {
        fs::write(&self.file, text).unwrap();
        self.server.shared().reload().map(|reloaded| (reloaded.changed, reloaded.needs_restart))
    }
}

pub fn base(folder: &Path) -> String {
    format!("store = \"{}\"\nadmin = \"none\"\nworkers = 2\n", folder.join("store").display())
}

const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:0\"\n";

fn site(host: &str, origin: SocketAddr) -> String {
    format!("[[site]]\nhosts = [\"{host}\"]\norigin = \"http://{origin}\"\n")
}

fn ask(proxy: SocketAddr, host: &str) -> String {
    stand::exchange(proxy, &format!("GET /fresh HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

#[test]
fn a_reload_changes_what_it_may_and_says_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let (base, origin) = (base(folder.path()), stand::origin());
    let steered = Steered::start(folder.path(), &format!("{base}{LISTEN}{}", site("a.example", origin)));
    let proxy = steered.server.addresses()[0];
    assert!(ask(proxy, "a.example").starts_with("HTTP/1.1 200"));
    assert!(ask(proxy, "b.example").starts_with("HTTP/1.1 404"));

    let log = folder.path().join("access.log");
    let more = format!(
        "{base}memory = \"64MB\"\n{LISTEN}{}{}[log]\nto = \"{}\"\nformat = \"{{host}}\"\n[timeouts]\nidle = \"5s\"\n",
        site("a.example", origin),
        site("b.example", origin),
        log.display()
    );
    let (changed, waits) = steered.reload(&more).unwrap();
    assert_eq!(changed, ["timeouts.idle", "log.to", "log.format", "site"]);
    assert_eq!(waits, ["memory", "memory_object_bytes_max"]);
    assert!(ask(proxy, "b.example").starts_with("HTTP/1.1 200"));
    let kept = ask(proxy, "a.example");
    assert!(kept.contains("; hit"), "objects stay: {kept}");
    stand::wait_for("the log", || fs::read_to_string(&log).unwrap_or_default().contains("b.example"));
    assert_eq!(
        steered.reload(&more).unwrap(),
        (vec![], vec!["memory".to_owned(), "memory_object_bytes_max".to_owned()])
    );
}

#[test]
fn a_broken_configuration_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (base, origin) = (base(folder.path()), stand::origin());
    let good = format!("{base}{LISTEN}{}", site("a.example", origin));
    let steered = Steered::start(folder.path(), &good);
    let proxy = steered.server.addresses()[0];
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = folder.path().join("plain").display().to_string();
    fs::write(&plain, "no program").unwrap();
    let helper =
        |program: &str| format!("{good}[[helper]]\nname = \"h\"\nkind = \"url_rewrite\"\ncommand = [{program:?}]\n");
    for (wrong, words) in [
        (
            format!("{base}workrs = 3\nmemory = \"lots\""),
            vec!["did you mean workers?", "\"lots\" is not a size", "2 errors"],
        ),
        (format!("{good}[[listen]]\naddress = \"{}\"", taken.local_addr().unwrap()), vec!["is in use"]),
        (format!("{base}[log]\nto = \"/nonexistent/log\"\n{LISTEN}"), vec!["log.to: cannot open /nonexistent/log"]),
        (
            format!("{base}[[listen]]\naddress = \"127.0.0.1:0\"\ntls = [{{ chain = \"/none\", key = \"/none\" }}]"),
            vec!["the certificates are not usable"],
        ),
        (helper("/no/such/program"), vec!["helper h", "there is no program /no/such/program"]),
        (helper(&plain), vec!["helper h", "can't be executed", "chmod a+x"]),
        (helper("no-program-of-this-name"), vec!["no folder of its PATH"]),
    ] {
        let trouble = steered.reload(&wrong).unwrap_err();
        words.iter().for_each(|word| assert!(trouble.contains(word), "{word} in {trouble}"));
        assert!(ask(proxy, "a.example").starts_with("HTTP/1.1 200"));
    }
    assert_eq!(steered.server.shared().reloads.refused.load(Ordering::Relaxed), 7);
    // A start says the same.
    let refused =
        larder::server::Server::start(stand::config(&folder.path().join("other"), &helper("/no/such/program")));
    assert!(refused.err().unwrap().to_string().contains("there is no program /no/such/program"));
}

#[test]
fn listeners_open_and_close_at_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let (base, origin) = (base(folder.path()), stand::origin());
    let steered = Steered::start(folder.path(), &format!("{base}{LISTEN}"));
    let first = steered.server.addresses()[0];
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    steered.reload(&format!("{base}{LISTEN}[[listen]]\naddress = \"{free}\"\norigin = \"http://{origin}\"")).unwrap();
    assert!(ask(free, "any.example").starts_with("HTTP/1.1 200"), "a listener more");
    assert!(ask(first, "any.example").starts_with("HTTP/1.1 404"));
    steered.reload(&format!("{base}{LISTEN}origin = \"http://{origin}\"")).unwrap();
    stand::wait_for("the same socket has another origin", || ask(first, "any.example").starts_with("HTTP/1.1 200"));
    stand::wait_for("a listener less", || TcpStream::connect(free).is_err());
}

/// A kept connection on which requests go one after another; counts those that failed.
fn press(proxy: SocketAddr, over: &AtomicBool, asked: &AtomicUsize) -> usize {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    let mut failed = 0;
    let mut buffer = [0; 4096];
    while !over.load(Ordering::Relaxed) {
        stream.write_all(b"GET /fresh HTTP/1.1\r\nHost: a.example\r\n\r\n").unwrap();
        let read = stream.read(&mut buffer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&buffer[..read]);
        failed += usize::from(!answer.starts_with("HTTP/1.1 200") || !answer.ends_with("/fresh"));
        asked.fetch_add(1, Ordering::Relaxed);
    }
    failed
}

#[test]
fn a_hundred_reloads_under_load_lose_no_request_and_no_object() {
    let folder = tempfile::tempdir().unwrap();
    let (base, origin) = (base(folder.path()), stand::origin());
    let good = |idle: u32| format!("{base}{LISTEN}{}[timeouts]\nidle = \"{idle}s\"", site("a.example", origin));
    let steered = Steered::start(folder.path(), &good(60));
    let proxy = steered.server.addresses()[0];
    ask(proxy, "a.example");
    let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, asked) = (Arc::clone(&over), Arc::clone(&asked));
            std::thread::spawn(move || press(proxy, &over, &asked))
        })
        .collect();
    for round in 0..50 {
        steered.reload(&good(61 + round)).unwrap();
        steered.reload("nonsense = 1\nmemory = true").unwrap_err();
        // A connection that comes meanwhile is served too.
        assert!(ask(proxy, "a.example").contains("; hit"), "round {round}");
    }
    over.store(true, Ordering::Relaxed);
    let failed: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(failed, 0, "of {}", asked.load(Ordering::Relaxed));
    let counts = &steered.server.shared().reloads;
    assert_eq!((counts.done.load(Ordering::Relaxed), counts.refused.load(Ordering::Relaxed)), (50, 50));
}

#[test]
fn refusals_by_rules_that_are_gone_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let rule = |name: &str| {
        format!("[[rule]]\nname = \"{name}\"\nwhen = {{ host = \"a.example\" }}\ndo = {{ deny = true }}\n")
    };
    let base = format!("{}{LISTEN}", base(folder.path()));
    let steered = Steered::start(folder.path(), &format!("{base}{}", rule("old")));
    let proxy = steered.server.addresses()[0];
    let refused = || {
        let refused = steered.server.shared().common.counters.refused.lock();
        refused.iter().map(|(rule, refusals)| (rule.to_owned(), refusals.count)).collect::<Vec<_>>()
    };
    ask(proxy, "a.example");
    stand::wait_for("the refusal", || matches!(&refused()[..], [(rule, 1)] if rule.starts_with("old (")));
    steered.reload(&format!("{base}{}", rule("new"))).unwrap();
    assert_eq!(refused(), []);
    ask(proxy, "a.example");
    stand::wait_for("the next refusal", || matches!(&refused()[..], [(rule, 1)] if rule.starts_with("new (")));
}

/// A renewed certificate counts without a reload; one whose key is not there yet changes nothing.
#[test]
fn certificates_are_taken_up_when_their_files_change() {
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    write_pair(folder.path(), "a.example");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen.tls]]\nchain = {chain:?}\nkey = {key:?}\n{}",
        site("a.example", stand::origin())
    );
    let server = stand::server(&folder.path().join("store"), &text);
    let port = server.addresses()[0].port();
    let trusts = |root: &Path| {
        let mut curl = std::process::Command::new("curl");
        let resolve = format!("a.example:{port}:127.0.0.1");
        curl.args(["-sS", "--max-time", "10", "--noproxy", "*", "--resolve", &resolve, "--cacert"]).arg(root);
        curl.arg(format!("https://a.example:{port}/fresh")).output().unwrap().status.success()
    };
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    fs::create_dir(&new).unwrap();
    fs::copy(&chain, &old).unwrap();
    assert!(trusts(&old));
    // As renewal programs do it: the chain first, the key a moment later.
    write_pair(&new, "a.example");
    fs::copy(new.join("chain.pem"), &chain).unwrap();
    let listeners = &server.shared().listeners;
    let before = listeners.lock()[0].files.clone();
    stand::wait_for("the change is seen", || listeners.lock()[0].files != before);
    assert!(trusts(&old), "a chain without its key");
    fs::copy(new.join("key.pem"), &key).unwrap();
    stand::wait_for("the new pair", || trusts(&new.join("chain.pem")));
    assert!(!trusts(&old));
    let metrics = stand::ask(server.admin().unwrap(), "/metrics");
    assert!(metrics.contains("larder_certificate_end_seconds{certificate=\"127.0.0.1:0 "), "{metrics}");
}
