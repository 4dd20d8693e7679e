//! Groups of origins as an administrator meets them: on the API and by command, in explanations and metrics; and origins that are
//! killed and come back while clients go on.

use super::admin::{DESCRIPTION, described_so, json_of};
use super::stand;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use yaml_rust2::YamlLoader;

/// The configuration of a site whose origin is the group `app` with these members, and `more` in the group.
fn group(members: &[(&str, SocketAddr)], more: &str) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, address)| format!("{{ name = \"{name}\", url = \"http://{address}\" }}")).collect();
    format!(
        "[[site]]\nhosts = [\"a.example\"]\norigin = \"app\"\n[[origin]]\nname = \"app\"\nmembers = [{}]\n{more}\n",
        members.join(", ")
    )
}

fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A GET on the site.
fn get(proxy: SocketAddr, path: &str) -> String {
    stand::exchange(proxy, &format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"))
}

fn origins(admin: SocketAddr) -> Value {
    serde_json::from_str(stand::body(&stand::ask(admin, "/origins"))).unwrap()
}

fn change(admin: SocketAddr, query: &str) -> String {
    stand::exchange(
        admin,
        &format!("POST /origins/member?{query} HTTP/1.1\r\nHost: {admin}\r\nX-Larder: 1\r\nContent-Length: 0\r\n\r\n"),
    )
}

#[test]
fn a_group_is_seen_and_steered_over_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let members = [("one", stand::origin()), ("dead", nobody()), ("two", stand::origin())];
    let server = stand::server(folder.path(), &group(&members, "balance = \"round-robin\""));
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    for number in 0..30 {
        assert!(get(proxy, &format!("/none/{number}")).starts_with("HTTP/1.1 200"));
    }
    let seen = origins(admin);
    let state = |seen: &Value, at: usize| seen["groups"][0]["members"][at]["state"].as_str().unwrap().to_owned();
    assert_eq!(
        ["one", "dead", "two"].map(str::to_owned),
        [0, 1, 2].map(|at| { seen["groups"][0]["members"][at]["name"].as_str().unwrap().to_owned() })
    );
    assert_eq!([state(&seen, 0), state(&seen, 1), state(&seen, 2)], ["up", "ejected", "up"]);
    assert_eq!(seen["groups"][0]["members"][1]["failures"], 5);
    assert!(change(admin, "group=app&member=two&state=draining").starts_with("HTTP/1.1 200"));
    let before = origins(admin)["groups"][0]["members"][2]["requests"].as_u64();
    for number in 30..40 {
        assert!(get(proxy, &format!("/none/{number}")).starts_with("HTTP/1.1 200"));
    }
    let seen = origins(admin);
    assert_eq!((state(&seen, 2).as_str(), seen["groups"][0]["members"][2]["requests"].as_u64()), ("draining", before));
    assert!(change(admin, "group=app&member=two&state=in-use").starts_with("HTTP/1.1 200"));
    assert_eq!(state(&origins(admin), 2), "up");
    for (query, trouble) in [
        ("group=web&member=two&state=draining", "there is: app"),
        ("group=app&member=three&state=draining", "it has: one, dead, two"),
        ("group=app&member=two", "state is missing"),
    ] {
        let refused = change(admin, query);
        assert!(refused.starts_with("HTTP/1.1 422") && refused.contains(trouble), "{refused}");
    }
    let description = json_of(&YamlLoader::load_from_str(DESCRIPTION).unwrap()[0]);
    described_so(&stand::ask(admin, "/origins"), &description["paths"]["/origins"]["get"], &description, "origins");
    let changed = change(admin, "group=app&member=one&state=in-use");
    described_so(&changed, &description["paths"]["/origins/member"]["post"], &description, "a member");
    let metrics = stand::ask(admin, "/metrics");
    for line in [
        "larder_origin_member_up{group=\"app\",member=\"dead\"} 0\n",
        "larder_origin_member_ejections_total{group=\"app\",member=\"dead\"} 1\n",
        "larder_origin_group_retries_total{group=\"app\"} 5\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}

#[test]
fn an_explanation_says_which_members_were_asked_and_why_not_others() {
    let folder = tempfile::tempdir().unwrap();
    let members = [("dead", nobody()), ("one", stand::origin())];
    let server = stand::server(folder.path(), &group(&members, "balance = \"round-robin\"\neject = { failures = 1 }"));
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    let explained = |path: &str| {
        assert!(get(proxy, path).starts_with("HTTP/1.1 200"));
        let mut text = String::new();
        stand::wait_for("the request is kept", || {
            let list = stand::ask(admin, &format!("/requests?url={path}"));
            let list: Value = serde_json::from_str(stand::body(&list)).unwrap();
            let Some(id) = list["requests"][0]["id"].as_str().map(str::to_owned) else { return false };
            text = stand::ask(admin, &format!("/requests/{id}"));
            true
        });
        text
    };
    let first = explained("/none/1");
    assert!(first.contains("app: dead, by its balance: refused; then one, by its balance: 200"), "{first}");
    let second = explained("/none/2");
    assert!(
        second.contains("app: one, by its balance: 200") && second.contains("passed over: dead: ejected"),
        "{second}"
    );
    let ahead = stand::ask(admin, "/explain?url=http://a.example/none/3");
    assert!(ahead.contains("A member of app would be asked"), "{ahead}");
}

#[test]
fn members_are_listed_and_drained_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &group(&[("one", stand::origin()), ("two", stand::origin())], ""));
    let larder = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(words).args(["--config", "none", "--store"]).arg(folder.path());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (status, text) = larder(&["origin", "ls"]);
    assert!(status == Some(0) && text.starts_with("app: p2c, 0 requests\nmember  state"), "{text}");
    let (status, text) = larder(&["origin", "drain", "app", "one"]);
    assert!(status == Some(0) && text.contains("one     draining"), "{text}");
    let (status, text) = larder(&["origin", "drain", "app", "two", "--maintenance"]);
    assert!(status == Some(0) && text.contains("two     maintenance"), "{text}");
    let answer = get(server.addresses()[0], "/none/1");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("drained"), "{answer}");
    let (status, text) = larder(&["origin", "undrain", "app", "one"]);
    assert!(status == Some(0) && text.contains("one     up"), "{text}");
    let (status, text) = larder(&["origin", "drain", "app", "three"]);
    assert!(status == Some(2) && text.contains("it has: one, two"), "{text}");
    let (status, text) = larder(&["origin", "ls", "web"]);
    assert!(status == Some(2) && text.contains("there is app"), "{text}");
}

/// A Larder as an origin process: it passes on what a backend of the test says.
struct OriginProcess {
    address: SocketAddr,
    child: Child,
}

impl OriginProcess {
    fn start(address: SocketAddr, backend: SocketAddr, folder: &Path) -> OriginProcess {
        let end = Instant::now() + stand::WITHIN;
        loop {
            let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
            command.args([
                "--config",
                "none",
                "--listen",
                &address.to_string(),
                "--origin",
                &format!("http://{backend}"),
            ]);
            command
                .args(["--admin", "none", "--memory", "1MB", "--disk", "0", "--workers", "1", "--store"])
                .arg(folder);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut said = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
            if let Some(rest) = said.strip_prefix("larder listens on ") {
                let address = rest.split([',', ';']).next().unwrap().trim().parse().unwrap();
                return OriginProcess { address, child };
            }
            // The port of one that was killed may be taken for a moment.
            let _ = child.wait();
            assert!(Instant::now() < end, "no origin at {address}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for OriginProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One client that asks on one connection at its pace; gives the answers that were no 200.
fn client(proxy: SocketAddr, number: usize, (ended, answered): (&AtomicBool, &AtomicU64)) -> Vec<String> {
    let mut bad = Vec::new();
    let mut stream = BufReader::new(TcpStream::connect(proxy).unwrap());
    stream.get_ref().set_read_timeout(Some(stand::WITHIN)).unwrap();
    for request in 0.. {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        let head = format!("GET /none/{number}/{request} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let (mut first, mut length, mut line) = (String::new(), 0, String::new());
        stream.read_line(&mut first).unwrap();
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "the connection ended in {first}");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        if !first.starts_with("HTTP/1.1 200") {
            bad.push(format!("{first}{}", String::from_utf8_lossy(&body)));
        }
        answered.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(7));
    }
    bad
}

#[test]
fn origins_that_are_killed_and_come_back_cost_clients_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let backend = stand::origin();
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let store = |at: usize| folder.path().join(format!("origin-{at}"));
    let mut processes: Vec<OriginProcess> = (0..3).map(|at| OriginProcess::start(free, backend, &store(at))).collect();
    let names = ["one", "two", "three"];
    let members: Vec<(&str, SocketAddr)> = names.into_iter().zip(processes.iter().map(|each| each.address)).collect();
    let text = group(&members, "eject = { time = \"300ms\" }\nslow_start = \"500ms\"");
    let server = stand::server(&folder.path().join("edge"), &text);
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    let (ended, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let bad: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn({
                    let shared = (&ended, &answered);
                    move || client(proxy, number, shared)
                })
            })
            .collect();
        for (at, name) in names.into_iter().enumerate() {
            let state = || {
                let members = origins(admin)["groups"][0]["members"].take();
                members[at]["state"].as_str().unwrap_or_default().to_owned()
            };
            stand::wait_for("all serve", || state() == "up");
            processes[at].kill();
            stand::wait_for(&format!("{name} is ejected"), || matches!(state().as_str(), "ejected" | "trial"));
            std::thread::sleep(Duration::from_millis(700));
            processes[at] = OriginProcess::start(members[at].1, backend, &store(at));
            stand::wait_for(&format!("{name} serves again"), || state() == "up");
        }
        ended.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let answered = answered.into_inner();
    assert!(bad.is_empty(), "{} of {answered} requests failed: {:?}", bad.len(), bad.first());
    assert!(answered > 100, "{answered}");
    let seen = origins(admin);
    let members = seen["groups"][0]["members"].as_array().unwrap();
    assert!(members.iter().all(|member| member["ejections"].as_u64() >= Some(1)), "{seen}");
}
