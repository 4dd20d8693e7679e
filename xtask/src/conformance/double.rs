//! A proxy that stands in for a cache: an honest one that stores nothing, and liars. The cases of the tree must tell
//! them apart, or they would be worth nothing.

use super::cases::{self, Case};
use super::client;
use super::judge::{self, Outcome};
use super::origin::Origin;
use super::text::Attempt;
use super::wire::{self, Reply};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// How the double treats the RFCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Forwards everything and stores nothing.
    Honest,
    /// Stores every response to a path for ever, and asks nobody again.
    Hoards,
    /// Gives every response a new length, as if it had come whole.
    Mends,
    /// Forwards all fields, also those of its own connection.
    Leaks,
}

type Store = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Starts a double in front of an origin; gives its port. Its threads end with the tests.
fn start(manner: Manner, origin: u16) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let store = Store::default();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let store = store.clone();
            std::thread::spawn(move || serve(stream, manner, origin, &store));
        }
    });
    port
}

fn serve(mut client: TcpStream, manner: Manner, origin: u16, store: &Store) -> Option<()> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let (asked, used) = loop {
        let length = client.read(&mut piece).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&piece[..length]);
        if let Some(found) = wire::read_request(&bytes) {
            break found;
        }
    };
    if manner == Manner::Hoards
        && let Some(kept) = store.lock().unwrap().get(&asked.target)
    {
        return client.write_all(kept).ok();
    }
    let mut upstream = TcpStream::connect(("127.0.0.1", origin)).ok()?;
    upstream.write_all(&bytes[..used]).ok()?;
    upstream.shutdown(std::net::Shutdown::Write).ok()?;
    let mut came = Vec::new();
    upstream.read_to_end(&mut came).ok()?;
    let (reply, _) = wire::read_reply(&came, asked.method == "HEAD", true)?;
    let answer = write(&reply, manner);
    store.lock().unwrap().insert(asked.target, answer.clone());
    client.write_all(&answer).ok()
}

fn write(reply: &Reply, manner: Manner) -> Vec<u8> {
    let named = reply.fields.joined("connection").unwrap_or_default().to_ascii_lowercase();
    let is_hop = |name: &str| {
        let name = name.to_ascii_lowercase();
        manner != Manner::Leaks && (name == "connection" || named.split(',').any(|option| option.trim() == name))
    };
    let is_framing =
        |name: &str| name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding");
    let mut text = format!("HTTP/1.1 {} Double\r\nConnection: close\r\n", reply.status);
    for (name, value) in reply.fields.0.iter().filter(|(name, _)| !is_hop(name) && !is_framing(name)) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let is_whole = reply.whole || manner == Manner::Mends;
    let length = reply.content.len() + usize::from(!is_whole);
    if !matches!(reply.status, 204 | 304) {
        text.push_str(&format!("Content-Length: {length}\r\n"));
    }
    [format!("{text}\r\n").into_bytes(), reply.content.clone()].concat()
}

/// The outcome of a case of the tree when a double of that manner is the proxy.
fn outcome(manner: Manner, case: &Case) -> Outcome {
    let origin = Origin::start().unwrap();
    let port = start(manner, origin.port);
    let (scene, seen) = client::play(case, port, &origin, Attempt::First);
    judge::judge(case, &seen, scene.variables())
}

fn find(id: &str) -> Case {
    let sets = cases::load(&crate::shell::workspace().unwrap()).unwrap();
    sets.into_iter().flat_map(|set| set.cases).find(|case| case.id == id).unwrap()
}

#[test]
fn a_cache_that_hoards_is_caught() {
    for id in [
        "no-store",
        "private",
        "lifetime-zero",
        "vary-other-value",
        "authorization-not-shared",
        "post-invalidates",
        "put-not-from-store",
        "max-age-over",
        "age-field-counts",
    ] {
        let case = find(id);
        assert_eq!(outcome(Manner::Honest, &case), Outcome::Passed, "{id}");
        let caught = outcome(Manner::Hoards, &case);
        assert!(matches!(caught, Outcome::Failed(_)), "{id}: {caught:?}");
    }
}

#[test]
fn a_proxy_that_makes_broken_responses_look_whole_is_caught() {
    for id in ["short-content-length", "short-chunked"] {
        let case = find(id);
        assert_eq!(outcome(Manner::Honest, &case), Outcome::Passed, "{id}");
        let caught = outcome(Manner::Mends, &case);
        assert!(matches!(caught, Outcome::Failed(_)), "{id}: {caught:?}");
    }
}

#[test]
fn a_proxy_that_forwards_fields_of_its_connection_is_caught() {
    let case = find("connection-options-of-response");
    assert_eq!(outcome(Manner::Honest, &case), Outcome::Passed);
    let caught = outcome(Manner::Leaks, &case);
    assert!(matches!(caught, Outcome::Failed(_)), "{caught:?}");
}

#[test]
fn what_is_optional_is_yes_or_no_and_what_was_not_put_to_the_test_is_neither() {
    let reuse = find("reuse");
    assert_eq!(outcome(Manner::Hoards, &reuse), Outcome::Yes);
    assert!(matches!(outcome(Manner::Honest, &reuse), Outcome::No(_)));
    let stored = find("unknown-fields-stored");
    assert_eq!(outcome(Manner::Hoards, &stored), Outcome::Passed);
    assert!(matches!(outcome(Manner::Honest, &stored), Outcome::NoPremise(_)));
}
