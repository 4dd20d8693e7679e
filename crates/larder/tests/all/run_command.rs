//! `larder run`: what the child gets, what comes back, and that nothing is left behind.

use larder::clock;
use larder::config::Config;
use larder::run::control::{self, RunStarted, RunStats};
use larder::run::{Command, Own, run};
use larder::tls::bundle;
use larder::tls::ca::Authority;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A folder with a bundle, and what a Larder with it would say.
struct Stage {
    folder: TempDir,
    started: RunStarted,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(&folder.path().join("ca"), clock::now()).unwrap();
        let ca_bundle = folder.path().join("bundle.pem");
        bundle::write(&ca_bundle, [authority.certificate().clone()], []).unwrap();
        let started =
            RunStarted { id: "r1".to_owned(), proxy: "127.0.0.1:4321".parse().unwrap(), ca_bundle: Some(ca_bundle) };
        Stage { folder, started }
    }

    fn config(&self) -> Config {
        Config { store: Some(self.folder.path().to_owned()), ..Config::default() }
    }

    /// Runs `script` in a shell with a Larder that is none.
    fn shell(&self, script: &str) -> u8 {
        self.command(&["sh", "-c", script])
    }

    fn command(&self, words: &[&str]) -> u8 {
        let command = Command {
            words: words.iter().map(Into::into).collect(),
            quiet: true,
            json: None,
            network: Default::default(),
            mirrored: None,
        };
        let started = self.started.clone();
        let start = move |config: Config| {
            assert!(config.listens.len() == 1 && config.listens[0].intercept && config.admin.is_none());
            Ok(Own { started, keeps: true, finish: Box::new(RunStats::default) })
        };
        run(&command, self.config(), start).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn variables(text: &str) -> HashMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once('=')).collect()
}

#[test]
fn the_child_gets_proxy_and_certificates() {
    let stage = Stage::new();
    let (env, copy) = (stage.path("env"), stage.path("copy"));
    let script = format!(
        "env > {env}; mkdir {copy}; cp $SSL_CERT_FILE {copy}/bundle; cp $WGETRC {copy}/wgetrc; cp $APT_CONFIG {copy}/apt; \
         stat -c '%a' $(dirname $SSL_CERT_FILE) $SSL_CERT_FILE $WGETRC > {copy}/modes",
        env = env.display(),
        copy = copy.display()
    );
    assert_eq!(stage.shell(&script), 0);
    let text = std::fs::read_to_string(&env).unwrap();
    let found = variables(&text);
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "CARGO_HTTP_PROXY", "npm_config_proxy"] {
        assert_eq!(found.get(name), Some(&"http://127.0.0.1:4321"), "{name}");
    }
    let bundle = found["SSL_CERT_FILE"];
    for name in [
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "CARGO_HTTP_CAINFO",
        "GIT_SSL_CAINFO",
        "CURL_CA_BUNDLE",
    ] {
        assert_eq!(found.get(name), Some(&bundle), "{name}");
    }
    assert_eq!(found.get("NO_PROXY").map(|value| (*value).to_owned()), std::env::var("NO_PROXY").ok());
    assert!(!Path::new(bundle).exists(), "the folder is left behind");
    assert_eq!(std::env::var_os("CARGO_HTTP_CAINFO").as_deref(), None, "this process is left alone");

    let read = |name: &str| std::fs::read_to_string(copy.join(name)).unwrap();
    let certificate = std::fs::read_to_string(stage.path("ca/certificate.pem")).unwrap();
    assert!(read("bundle").contains(&certificate));
    assert!(read("wgetrc").ends_with(&format!("https_proxy = http://127.0.0.1:4321\nca_certificate = {bundle}\n")));
    assert!(read("apt").contains("Acquire::http::Proxy \"http://127.0.0.1:4321\";"));
    assert_eq!(read("modes"), "711\n644\n600\n");
}

#[test]
fn the_exit_status_is_kept() {
    let stage = Stage::new();
    assert_eq!(stage.shell("exit 0"), 0);
    assert_eq!(stage.shell("exit 37"), 37);
    assert_eq!(stage.shell("kill -KILL $$"), 128 + 9);
    assert_eq!(stage.shell("kill -TERM $$"), 128 + 15);
    assert_eq!(stage.command(&["/nonexistent/command"]), 127);
    assert_eq!(stage.command(&["/"]), 126);
}

#[test]
fn a_server_that_does_not_start_is_an_error() {
    let stage = Stage::new();
    let command =
        Command { words: vec!["true".into()], quiet: true, json: None, network: Default::default(), mirrored: None };
    let error = run(&command, stage.config(), |_| Err("no ports left".into())).unwrap_err();
    assert_eq!(error.to_string(), "cannot start a Larder for the command");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no ports left");
}

#[test]
fn a_larder_that_runs_is_joined() {
    let stage = Stage::new();
    let listener = UnixListener::bind(control::socket(stage.folder.path())).unwrap();
    let started = serde_json::to_string(&stage.started).unwrap();
    let server = std::thread::spawn(move || {
        let stats = serde_json::to_string(&RunStats { requests: 3, ..RunStats::default() }).unwrap();
        [started, stats].map(|answer| answer_one(&listener, &answer))
    });
    let command = Command {
        words: ["sh", "-c", "test $http_proxy = http://127.0.0.1:4321"].map(Into::into).into(),
        quiet: true,
        json: None,
        network: Default::default(),
        mirrored: None,
    };
    let status = run(&command, stage.config(), |_| panic!("one is started although one runs")).unwrap();
    assert_eq!(status, 0);
    assert_eq!(server.join().unwrap(), ["POST /runs HTTP/1.1\r\n", "DELETE /runs/r1 HTTP/1.1\r\n"]);
}

/// Answers one request and returns its first line.
fn answer_one(listener: &UnixListener, body: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut line) = (String::new(), String::new());
    lines.read_line(&mut first).unwrap();
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    first
}

#[test]
fn a_socket_that_nobody_serves_is_passed_over() {
    let stage = Stage::new();
    drop(UnixListener::bind(control::socket(stage.folder.path())).unwrap());
    assert_eq!(stage.shell("exit 5"), 5);
}
