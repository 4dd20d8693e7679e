//! Nodes that ask one another: the home of a key asks the origin for all, and nothing that befalls it becomes a client's error.

use super::stage::{Nats, Node, all_met, free_port, wait_for};
use aws_lc_rs::hmac;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Clients of all nodes together that want one object.
const CLIENTS: usize = 99;

/// An origin that counts the requests for each path. Its answers name the path, the language that was asked for, and their edition.
#[derive(Clone)]
struct Counting {
    address: SocketAddr,
    asked: Arc<Mutex<HashMap<String, u64>>>,
    edition: Arc<AtomicU64>,
    wait: Duration,
}

impl Counting {
    fn start(wait: Duration) -> Counting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let origin = Counting { address, asked: Arc::default(), edition: Arc::default(), wait };
        let of_thread = origin.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let origin = of_thread.clone();
                thread::spawn(move || origin.serve(&stream));
            }
        });
        origin
    }

    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let head = read_head(&mut lines)?;
            let path = head.split(' ').nth(1)?.to_owned();
            *self.asked.lock().unwrap().entry(path.clone()).or_default() += 1;
            thread::sleep(self.wait);
            if head.starts_with("POST") {
                self.edition.fetch_add(1, Ordering::SeqCst);
            }
            let body = self.body(&path, field(&head, "accept-language"));
            let caching = if path.starts_with("/private") { "private" } else { "max-age=3600" };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: {caching}\r\nVary: Accept-Language\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            (&*stream).write_all(answer.as_bytes()).ok()?;
        }
    }

    fn body(&self, path: &str, language: &str) -> String {
        format!("{path} in {language}, edition {}", self.edition.load(Ordering::SeqCst))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self, path: &str) -> u64 {
        self.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    /// All that it was asked.
    fn total(&self) -> u64 {
        self.asked.lock().unwrap().values().sum()
    }
}

fn read_head(lines: &mut impl BufRead) -> Option<String> {
    let (mut head, mut line) = (String::new(), String::new());
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
        head.push_str(&line);
    }
    Some(head)
}

fn field<'h>(head: &'h str, name: &str) -> &'h str {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    values.next().unwrap_or_default()
}

/// Nodes whose keys have homes.
struct Homed {
    nats: Nats,
    nodes: Vec<Node>,
    ports: Vec<u16>,
    _secret: tempfile::TempDir,
}

impl Homed {
    fn start(names: &[&str]) -> Option<Homed> {
        Homed::start_with(names, "home_wait = \"5s\"")
    }

    fn start_with(names: &[&str], more: &str) -> Option<Homed> {
        let nats = Nats::start()?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, SECRET).unwrap();
        let ports: Vec<u16> = names.iter().map(|_| free_port()).collect();
        let settings =
            |port: u16| format!("listen = \"127.0.0.1:{port}\"\nsecret_file = \"{}\"\n{more}", file.display());
        let start = |(name, port): (&&str, &u16)| Node::start(&nats, name, &settings(*port));
        let nodes: Vec<Node> = names.iter().zip(&ports).map(start).collect();
        let homed = Homed { nats, nodes, ports, _secret: folder };
        homed.all_ask(names.len());
        Some(homed)
    }

    /// Waits until every node knows so many that answer, and asks them.
    fn all_ask(&self, many: usize) {
        let nodes: Vec<&Node> = self.nodes.iter().collect();
        if nodes.len() == many {
            all_met(&nodes);
        }
        for node in nodes {
            wait_for("homes", || {
                let status = node.status();
                let is_home = |member: &&serde_json::Value| member["keys_permille"].is_u64();
                let homes = status["members"].as_array().unwrap().iter().filter(is_home).count();
                homes == many && status["homes"]["asks"] == true
            });
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.nodes.iter().map(|node| node.status()["homes"][name].as_u64().unwrap()).sum()
    }
}

/// Sends a request with these fields; gives the whole answer.
fn send(port: u16, method: &str, url: &str, fields: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return String::new() };
    stream.set_read_timeout(Some(super::stage::WITHIN)).unwrap();
    let host = url.strip_prefix("http://").map_or("127.0.0.1", |rest| rest.split('/').next().unwrap());
    let request = format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or(answer, |(_, body)| body)
}

#[test]
fn clients_of_three_nodes_make_one_request_at_the_origin() {
    let Some(homed) = Homed::start(&["a", "b", "c"]) else { return };
    let origin = Counting::start(Duration::from_millis(300));
    for turn in 0..6 {
        let path = format!("/new/{turn}");
        let url = origin.url(&path);
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (port, url, path, origin) = (homed.nodes[client % 3].proxy, &url, &path, &origin);
                scope.spawn(move || {
                    let answer = send(port, "GET", url, "Accept-Language: de\r\n");
                    assert_eq!(body(&answer), origin.body(path, "de"), "{answer}");
                });
            }
        });
        assert_eq!(origin.asked(&path), 1, "{path}");
    }
    // Two nodes of three asked for each.
    assert!(homed.count("answered") >= 12 && homed.count("failed") == 0, "{:?}", homed.nodes[0].status());
    // Another variant is another response, and each is fetched once.
    for node in &homed.nodes {
        for language in ["en", "fr"] {
            let answer = send(node.proxy, "GET", &origin.url("/new/0"), &format!("Accept-Language: {language}\r\n"));
            assert_eq!(body(&answer), origin.body("/new/0", language));
        }
    }
    assert_eq!(origin.asked("/new/0"), 3);
}

#[test]
fn a_response_that_is_asked_for_again_and_again_is_kept_by_all() {
    let Some(homed) = Homed::start(&["a", "b"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    for path in (0..8).map(|number| format!("/x/{number}")) {
        for node in &homed.nodes {
            (0..6).for_each(|_| {
                assert_eq!(body(&send(node.proxy, "GET", &origin.url(&path), "")), origin.body(&path, ""))
            });
        }
        assert_eq!(origin.asked(&path), 1);
    }
    // Each path was asked for six times at the node that is not its home: the fourth answer stays there.
    let asked = homed.count("answered");
    assert!((8 * 4..8 * 6).contains(&asked), "{asked}");
}

#[test]
fn what_is_for_one_client_is_asked_of_no_node() {
    let Some(homed) = Homed::start(&["a", "b"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    for path in (0..4).map(|number| format!("/own/{number}")) {
        for fields in ["Cookie: a=b\r\n", "Authorization: Basic YTpi\r\n", "Range: bytes=0-1\r\n"] {
            homed.nodes.iter().for_each(|node| _ = send(node.proxy, "GET", &origin.url(&path), fields));
        }
        homed.nodes.iter().for_each(|node| _ = send(node.proxy, "HEAD", &origin.url(&path), ""));
    }
    assert_eq!((homed.count("answered"), homed.count("served")), (0, 0));
    // One that the origin calls private passes through the home, which keeps none of it.
    for turn in 1..=3 {
        let answer = send(homed.nodes[0].proxy, "GET", &origin.url("/private"), "");
        assert_eq!(body(&answer), origin.body("/private", ""));
        assert_eq!(origin.asked("/private"), turn);
    }
}

#[test]
fn a_home_that_dies_is_no_client_s_error() {
    let Some(mut homed) = Homed::start(&["a", "b", "c"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let (ends, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut third = homed.nodes.pop().unwrap();
    thread::scope(|scope| {
        for node in &homed.nodes {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ends.load(Ordering::SeqCst) {
                        let path = format!("/load/{}", next.fetch_add(1, Ordering::SeqCst) / 2);
                        let answer = send(node.proxy, "GET", &origin.url(&path), "");
                        assert_eq!(body(&answer), origin.body(&path, ""), "{answer}");
                    }
                });
            }
        }
        let more = |many| {
            let from = next.load(Ordering::SeqCst);
            wait_for("requests", || next.load(Ordering::SeqCst) >= from + many);
        };
        more(200);
        third.kill();
        more(400);
        third.go_on();
        third.is_ready();
        more(200);
        // One that ends in good order says so first.
        third.stop();
        more(200);
        ends.store(true, Ordering::SeqCst);
    });
    assert!(homed.count("answered") > 0);
    homed.all_ask(2);
}

#[test]
fn nothing_that_was_purged_comes_back_from_another_node() {
    let Some(homed) = Homed::start(&["a", "b", "c"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let prefix = origin.url("/purged/");
    for turn in 0..24_usize {
        let path = format!("/purged/{}", turn % 5);
        let url = origin.url(&path);
        homed
            .nodes
            .iter()
            .for_each(|node| assert_eq!(body(&send(node.proxy, "GET", &url, "")), origin.body(&path, "")));
        origin.edition.fetch_add(1, Ordering::SeqCst);
        let words: &[&str] = match turn % 4 {
            0 => &[&url],
            1 => &[&url, "--soft"],
            2 => &["--prefix", &prefix],
            _ => &["--all"],
        };
        let (status, said) = homed.nodes[turn % 3].purge(words);
        assert!(status == 0 && said.contains("applied on 3 of 3 nodes"), "{words:?}: {said}");
        homed
            .nodes
            .iter()
            .for_each(|node| assert_eq!(body(&send(node.proxy, "GET", &url, "")), origin.body(&path, "")));
    }
    // A node sees what a POST by way of it has changed, whoever is the home.
    for path in (0..6).map(|number| format!("/posted/{number}")) {
        let url = origin.url(&path);
        homed
            .nodes
            .iter()
            .for_each(|node| assert_eq!(body(&send(node.proxy, "GET", &url, "")), origin.body(&path, "")));
        let node = &homed.nodes[1];
        send(node.proxy, "POST", &url, "Content-Length: 0\r\n");
        assert_eq!(body(&send(node.proxy, "GET", &url, "")), origin.body(&path, ""));
    }
}

#[test]
fn purges_that_wait_for_nats_hold_where_they_were_made() {
    let Some(mut homed) = Homed::start(&["a", "b"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let paths: Vec<String> = (0..6).map(|number| format!("/q/{number}")).collect();
    for path in &paths {
        homed.nodes.iter().for_each(|node| _ = send(node.proxy, "GET", &origin.url(path), ""));
    }
    homed.nats.kill();
    origin.edition.fetch_add(1, Ordering::SeqCst);
    for path in &paths {
        let (status, said) = homed.nodes[0].purge(&[&origin.url(path)]);
        assert!(status == 0 && said.contains("queued"), "{said}");
        assert_eq!(body(&send(homed.nodes[0].proxy, "GET", &origin.url(path), "")), origin.body(path, ""));
    }
    homed.nats.go_on();
    for node in &homed.nodes {
        wait_for("the outbox", || node.status()["outbox"] == 0 && node.status()["applied"] == paths.len());
    }
    homed.all_ask(2);
    for path in &paths {
        let is_new = |node: &Node| body(&send(node.proxy, "GET", &origin.url(path), "")) == origin.body(path, "");
        assert!(homed.nodes.iter().all(is_new), "{path}");
    }
}

#[test]
fn a_stranger_gets_nothing_by_the_address_for_nodes() {
    let Some(homed) = Homed::start(&["a"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let url = origin.url("/x");
    assert_eq!(body(&send(homed.nodes[0].proxy, "GET", &url, "")), origin.body("/x", ""));
    let before = origin.total();
    let port = homed.ports[0];
    let forged = format!("Larder-Node: 1 b a 1764370000 1f 0 {} {}\r\n", "0".repeat(32), "0".repeat(64));
    let mut refused = 0;
    for (method, target) in
        [("GET", &*url), ("GET", "/x"), ("PURGE", &url), ("POST", &url), ("HEAD", &url), ("OPTIONS", "*")]
    {
        for fields in ["", &forged, "Larder-Node: behind\r\n"] {
            let answer = send(port, method, target, fields);
            assert!(answer.starts_with("HTTP/1.1 403"), "{method} {target}: {answer}");
            assert!(!answer.contains("edition"), "{answer}");
            refused += 1;
        }
    }
    let connect = send(port, "CONNECT", &origin.address.to_string(), "");
    assert!(connect.starts_with("HTTP/1.1 403"), "{connect}");
    assert_eq!(origin.total(), before, "the origin was asked for a stranger");
    assert!(homed.count("strangers") > refused);
    // Nor by the proxy of a node.
    let by_proxy = send(homed.nodes[0].proxy, "GET", &format!("http://127.0.0.1:{port}/x"), "");
    assert!(by_proxy.starts_with("HTTP/1.1 403"), "{by_proxy}");
}

/// A node that has the secret, is heard of, and answers as `lie` says; gives how often it was asked.
fn liar(homed: &Homed, ends: &Arc<AtomicBool>, lie: fn(u64, &str) -> String) -> Arc<AtomicU64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            thread::spawn(move || {
                let head = read_head(&mut BufReader::new(&stream)).unwrap_or_default();
                let proof = field(&head, "Larder-Node").rsplit(' ').next().unwrap_or_default().to_owned();
                let number = count.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(lie(number, &proof).as_bytes());
            });
        }
    });
    let stream = homed.nodes[0].status()["stream"]["incarnation"].as_str().unwrap().to_owned();
    let port = homed.nats.port;
    let ends = Arc::clone(ends);
    thread::spawn(move || {
        while !ends.load(Ordering::SeqCst) {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
            let beat = format!(
                "{{\"v\":1,\"name\":\"liar\",\"instance\":\"l\",\"address\":\"\",\"zone\":\"\",\"requests_per_second\":0,\"stream\":\"{stream}\",\
                 \"applied\":0,\"digest\":0,\"apart\":\"validate\",\"settings\":1,\"version\":\"0\",\"sent_millis\":{now},\"leaves\":false,\
                 \"home\":\"{address}\",\"capacity\":1000000000000}}"
            );
            super::stage::publish_to(port, "larder.members.liar", &beat);
            thread::sleep(Duration::from_millis(300));
        }
    });
    wait_for("the liar", || {
        let status = homed.nodes[0].status();
        status["members"]
            .as_array()
            .unwrap()
            .iter()
            .any(|member| member["name"] == "liar" && member["keys_permille"].is_u64())
    });
    asked
}

fn proved(proof: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, format!("larder-node-answer 1 {proof}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("Larder-Node: 1 {hex}\r\n")
}

#[test]
fn a_home_that_lies_can_only_fail() {
    let Some(homed) = Homed::start_with(&["a"], "home_wait = \"300ms\"") else { return };
    let (origin, ends) = (Counting::start(Duration::ZERO), Arc::default());
    let asked = liar(&homed, &ends, |number, proof| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n";
        match number % 8 {
            0 => format!("{head}Content-Length: 3\r\n\r\nlie"),
            1 => format!("{head}Larder-Node: 1 {}\r\nContent-Length: 3\r\n\r\nlie", "0".repeat(64)),
            // The answer to another question.
            2 => format!("{head}{}Content-Length: 3\r\n\r\nlie", proved(&"0".repeat(64))),
            // The proof of the question is none of the answer.
            3 => format!("{head}Larder-Node: 1 {proof}\r\nContent-Length: 3\r\n\r\nlie"),
            // Proved, and shorter than it says.
            4 => format!("{head}{}Content-Length: 300\r\n\r\nlie", proved(proof)),
            5 => format!("{head}{}Content-Length: 3\r\nContent-Length: 4\r\n\r\nlie", proved(proof)),
            6 => "lie\r\n\r\n".to_owned(),
            _ => String::new(),
        }
    });
    let mut number = 0;
    // After each failure the liar is left alone for a second.
    wait_for("eight lies", || {
        number += 1;
        let path = format!("/true/{number}");
        let answer = send(homed.nodes[0].proxy, "GET", &origin.url(&path), "");
        assert_eq!(body(&answer), origin.body(&path, ""), "{answer}");
        thread::sleep(Duration::from_millis(20));
        asked.load(Ordering::SeqCst) >= 9
    });
    ends.store(true, Ordering::SeqCst);
    assert_eq!(homed.count("answered"), 0);
    assert!(homed.count("failed") >= 8);
}

#[test]
fn a_home_that_hangs_holds_nobody_up_for_long() {
    let Some(homed) = Homed::start_with(&["a"], "home_wait = \"100ms\"") else { return };
    let (origin, ends) = (Counting::start(Duration::ZERO), Arc::default());
    let asked = liar(&homed, &ends, |_, _| {
        thread::sleep(Duration::from_secs(60));
        String::new()
    });
    for number in 0..40 {
        let path = format!("/hung/{number}");
        let answer = send(homed.nodes[0].proxy, "GET", &origin.url(&path), "");
        assert_eq!(body(&answer), origin.body(&path, ""), "{answer}");
    }
    ends.store(true, Ordering::SeqCst);
    assert!(asked.load(Ordering::SeqCst) >= 1 && homed.count("hedged") >= 1);
}
