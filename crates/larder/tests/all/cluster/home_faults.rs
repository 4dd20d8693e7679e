//! Homes of keys where something is amiss: rules that close addresses, purges that one node alone knows, clients whose requests no home can
//! answer, and strangers on NATS.

use super::homes::{Counting, Homed, SECRET, body, send};
use super::stage::{Nats, Node, free_port, wait_for};
use aws_lc_rs::{digest, hmac};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Paths that are tried until one is found whose home is the other node: half of them are.
const TRIES: usize = 40;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(message: &[u8]) -> String {
    hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), message).as_ref())
}

fn add(message: &mut Vec<u8>, part: &[u8]) {
    message.extend_from_slice(&(part.len() as u64).to_le_bytes());
    message.extend_from_slice(part);
}

/// A question to the first node, as a node `asker` would ask it; gives the whole answer.
fn ask_as_node(homed: &Homed, url: &str, more: &[(&str, &str)]) -> String {
    let stream = homed.nodes[0].status()["stream"]["incarnation"].as_str().unwrap().to_owned();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let key = hex(&digest::digest(&digest::SHA256, url.as_bytes()).as_ref()[..16]);
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let mut message = Vec::new();
    for part in ["larder-node-question", "1", "GET", url, "asker", "a", &stream, &key] {
        add(&mut message, part.as_bytes());
    }
    add(&mut message, &at.to_le_bytes());
    add(&mut message, &0_u64.to_le_bytes());
    let mut fields = String::new();
    for (name, value) in [("Host", host), ("Connection", "close")].iter().chain(more) {
        add(&mut message, name.to_ascii_lowercase().as_bytes());
        add(&mut message, value.as_bytes());
        if !["Host", "Connection"].contains(name) {
            fields += &format!("{name}: {value}\r\n");
        }
    }
    fields += &format!("Larder-Node: 1 asker a {at} {stream} 0 {key} {}\r\n", sign(&message));
    send(homed.ports[0], "GET", url, &fields)
}

/// Paths under this one whose home is the other one of two nodes, as the first node sees it.
fn paths_of_the_other(homed: &Homed, origin: &Counting, under: &str) -> Vec<String> {
    let is_of_the_other = |path: &String| {
        let before = homed.count("answered");
        assert_eq!(body(&send(homed.nodes[0].proxy, "GET", &origin.url(path), "")), origin.body(path, ""));
        homed.count("answered") > before
    };
    let found: Vec<String> = (0..TRIES).map(|number| format!("{under}/{number}")).filter(is_of_the_other).collect();
    assert!(found.len() > 4, "{found:?}");
    found
}

/// A home looks names up itself, and its asker can't see where they led: nothing comes by a home that the asker would not store.
#[test]
fn a_home_gives_nothing_of_an_address_that_is_closed_to_some() {
    let rule = "[upstream]\nresolver = \"system\"\n\
                [[rule]]\nname = \"inner\"\nwhen = { client = \"10.0.0.0/8\", destination = [\"127.0.0.0/8\", \"::1\"] }\ndo = { deny = true }\n";
    let Some(homed) = Homed::start_with(&["a"], rule) else { return };
    let origin = Counting::start(Duration::ZERO);
    let by_name = format!("http://127.1:{}/x", origin.address.port());
    // The key is known as one that is for one client alone from the second time on, and conditions are then passed on.
    let condition: &[(&str, &str)] = &[("If-None-Match", "\"v1\"")];
    for fields in [&[], &[], condition, condition] {
        let answer = ask_as_node(&homed, &by_name, fields);
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("Larder-Node: refused"), "{fields:?}: {answer}");
        assert!(!answer.contains("edition"), "{answer}");
    }
    let answer = ask_as_node(&homed, &origin.url("/y"), &[]);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("Larder-Node: 1 "), "{answer}");
    assert_eq!((homed.count("served"), homed.count("served_refused")), (1, 4));
}

#[test]
fn a_post_makes_all_variants_void_at_the_home() {
    let Some(homed) = Homed::start(&["a", "b", "c"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let get = |node: &Node, path: &str, language: &str| {
        let answer = send(node.proxy, "GET", &origin.url(path), &format!("Accept-Language: {language}\r\n"));
        assert_eq!(body(&answer), origin.body(path, language), "{answer}");
    };
    for path in (0..6).map(|number| format!("/posted/{number}")) {
        for node in &homed.nodes {
            ["de", "en"].iter().for_each(|language| get(node, &path, language));
        }
        send(homed.nodes[1].proxy, "POST", &origin.url(&path), "Content-Length: 0\r\n");
        // The answer for one language says nothing of the other one.
        ["de", "de", "en", "fr"].iter().for_each(|language| get(&homed.nodes[1], &path, language));
        // Told once, the home has what is new, and gives it.
        let asked = origin.asked(&path);
        ["de", "en", "fr"].iter().for_each(|language| get(&homed.nodes[1], &path, language));
        assert_eq!(origin.asked(&path), asked);
    }
}

#[test]
fn a_word_that_a_key_is_void_counts_from_a_node_alone() {
    let Some(homed) = Homed::start(&["a", "b"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    for path in (0..8).map(|number| format!("/x/{number}")) {
        for _ in 0..3 {
            let answer = send(homed.nodes[0].proxy, "GET", &origin.url(&path), "Larder-Void: 1\r\n");
            assert_eq!(body(&answer), origin.body(&path, ""));
        }
        assert_eq!(origin.asked(&path), 1, "{path}");
    }
    // A node's word counts.
    let url = origin.url("/y");
    for _ in 0..2 {
        ask_as_node(&homed, &url, &[]);
    }
    assert_eq!(origin.asked("/y"), 1);
    let answer = ask_as_node(&homed, &url, &[("Larder-Void", "1")]);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(origin.asked("/y"), 2);
}

/// A purge that could not be queued while there was no node holds here alone, for as long as the process lives.
#[test]
fn a_purge_that_was_refused_before_the_node_began_keeps_it_alone() {
    let Some(nats) = Nats::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    let settings = || format!("listen = \"127.0.0.1:{}\"\nsecret_file = \"{}\"\n", free_port(), secret.display());
    let other = Node::start(&nats, "b", &settings());
    let mut node = Node::prepare(&nats, "a", &(settings() + "credentials = \"nats.creds\""));
    let file = node.folder().join("nats.creds");
    fs::write(&file, "no credentials").unwrap();
    // No file can be made where a folder is.
    fs::create_dir_all(node.store().join("cluster.outbox")).unwrap();
    node.go_on();
    let origin = Counting::start(Duration::ZERO);
    wait_for("a refusal", || node.purge(&[&origin.url("/x")]).1.contains("refused"));
    fs::write(&file, super::creds()).unwrap();
    node.is_ready();
    wait_for("the other one's question", || other.status()["homes"]["asks"] == true);
    wait_for("answers", || node.status()["homes"]["answers"] == true);
    for number in 0..20 {
        let path = format!("/x/{number}");
        assert_eq!(body(&send(node.proxy, "GET", &origin.url(&path), "")), origin.body(&path, ""));
    }
    let status = node.status();
    assert_eq!((&status["homes"]["asks"], &status["homes"]["answered"]), (&false.into(), &0.into()), "{status}");
    let (_, said) = node.command(&["cluster", "status"]);
    assert!(said.contains("or one was refused"), "{said}");
}

/// A heartbeat of a node `liar` that is the home of nearly all keys.
struct Beat<'a> {
    secret: &'a str,
    digest: u64,
    home: &'a str,
}

impl Beat<'_> {
    fn publish(&self, homed: &Homed) {
        let status = homed.nodes[0].status();
        let (stream, applied) =
            (status["stream"]["incarnation"].as_str().unwrap(), status["applied"].as_u64().unwrap());
        let text = super::homes::liars_beat((stream, applied), self.digest, self.home, self.secret);
        super::stage::publish_to(homed.nats.port, "larder.members.liar", &text);
    }
}

fn is_home(homed: &Homed, name: &str) -> bool {
    let status = homed.nodes[0].status();
    let members = status["members"].as_array().unwrap();
    members.iter().any(|member| member["name"] == name && member["keys_permille"].is_u64())
}

/// A URL may be a secret: a stranger on NATS gets none by calling itself a home.
#[test]
fn a_heartbeat_without_the_secret_makes_no_home() {
    let Some(homed) = Homed::start(&["a"]) else { return };
    let home = format!("127.0.0.1:{}", free_port());
    let refused = || homed.nodes[0].status()["refused"]["unproved"].as_u64().unwrap_or(0);
    for secret in ["another secret of the same length", "no-proof"] {
        let before = refused();
        Beat { secret, digest: 0, home: &home }.publish(&homed);
        wait_for("a refusal", || refused() > before);
        assert!(!is_home(&homed, "liar"));
    }
    let status = homed.nodes[0].status();
    let is_liar = |member: &&serde_json::Value| member["name"] == "liar" && member["state"] == "alive";
    assert_eq!(status["members"].as_array().unwrap().iter().filter(is_liar).count(), 1, "it is heard of all the same");
    Beat { secret: SECRET, digest: 0, home: &home }.publish(&homed);
    wait_for("a home", || is_home(&homed, "liar"));
}

/// A node that lacked a purge may have found that out, and have read the stream again, before the nodes that it answered compare.
#[test]
fn a_node_validates_all_where_a_home_knew_other_purges_for_a_moment() {
    let Some(homed) = Homed::start(&["a"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let (url, home) = (origin.url("/x"), format!("127.0.0.1:{}", free_port()));
    let get = || assert_eq!(body(&send(homed.nodes[0].proxy, "GET", &url, "")), origin.body("/x", ""));
    (0..3).for_each(|_| get());
    assert_eq!(origin.asked("/x"), 1);
    Beat { secret: SECRET, digest: 0, home: &home }.publish(&homed);
    wait_for("a home", || is_home(&homed, "liar"));
    Beat { secret: SECRET, digest: 1, home: &home }.publish(&homed);
    wait_for("the difference", || !is_home(&homed, "liar"));
    Beat { secret: SECRET, digest: 0, home: &home }.publish(&homed);
    wait_for("a validation", || {
        get();
        origin.asked("/x") > 1
    });
}

#[test]
fn a_request_that_is_too_long_for_a_home_stops_no_other_question() {
    let Some(homed) = Homed::start(&["a", "b"]) else { return };
    let origin = Counting::start(Duration::ZERO);
    let theirs = paths_of_the_other(&homed, &origin, "/short");
    let long = format!("X-Long: {}\r\n", "x".repeat((64 << 10) - 250));
    let is_refused = |number: &usize| {
        let path = format!("/long/{number}");
        let before = homed.count("refused");
        let answer = send(homed.nodes[0].proxy, "GET", &origin.url(&path), &long);
        assert_eq!(body(&answer), origin.body(&path, ""), "{answer}");
        homed.count("refused") > before
    };
    assert!((0..TRIES).any(|number| is_refused(&number)), "{}", homed.nodes[0].status());
    let before = homed.count("answered");
    send(homed.nodes[0].proxy, "GET", &origin.url(&theirs[0]), "");
    assert_eq!((homed.count("answered"), homed.count("failed")), (before + 1, 0));
}

#[test]
fn a_response_that_takes_long_at_its_origin_stops_no_other_question() {
    let Some(homed) = Homed::start_with(&["a", "b"], "home_wait = \"100ms\"") else { return };
    let origin = Counting::start(Duration::ZERO);
    let theirs = paths_of_the_other(&homed, &origin, "/fast");
    let is_hedged = |path: &str| {
        let before = homed.count("hedged");
        let answer = send(homed.nodes[0].proxy, "GET", &origin.url(path), "");
        assert_eq!(body(&answer), origin.body(path, ""), "{answer}");
        homed.count("hedged") > before
    };
    // The origin answers the second question first.
    assert!((0..TRIES).any(|number| is_hedged(&format!("/slow-first/{number}"))));
    let before = homed.count("answered");
    send(homed.nodes[0].proxy, "GET", &origin.url(&theirs[0]), "");
    assert_eq!(homed.count("answered"), before + 1);
    // The home answers first, though the origin was asked beside it.
    assert!((0..TRIES).any(|number| is_hedged(&format!("/slow-later/{number}"))));
    assert_eq!(homed.count("answered"), before + 2);
    let (_, said) = homed.nodes[0].command(&["explain", "--last"]);
    let asked = said.lines().find(|line| line.contains("asked because")).unwrap_or_default();
    assert!(asked.contains("node b") && !asked.contains(&origin.address.to_string()), "{said}");
}

/// A zone is a place with a line of its own: its nodes ask none of another one.
#[test]
fn a_node_of_another_zone_is_no_home() {
    let Some(homed) = Homed::start_with(&["a"], "zone = \"east\"") else { return };
    let home = format!("127.0.0.1:{}", free_port());
    Beat { secret: SECRET, digest: 0, home: &home }.publish(&homed);
    let is_heard = || {
        let status = homed.nodes[0].status();
        status["members"]
            .as_array()
            .unwrap()
            .iter()
            .any(|member| member["name"] == "liar" && member["state"] == "alive")
    };
    wait_for("a heartbeat", is_heard);
    // Long enough for several tables of homes.
    for _ in 0..10 {
        assert!(!is_home(&homed, "liar"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(is_heard());
}
