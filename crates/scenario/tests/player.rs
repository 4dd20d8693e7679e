//! The player judged by proxies that are known to lie: a relay in which one thing at a time is wrong, and the
//! script that must catch it. An honest relay must pass.

use scenario::{Script, Target, Way};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A change that the tiny proxy makes to the bytes of an answer.
type Lie = fn(Vec<u8>) -> Vec<u8>;

/// A change that the tiny proxy makes to the bytes of a request.
type RequestLie = fn(String) -> String;

/// Relays one request after the other: each on a client connection of its own, each answered until the origin's
/// message is whole by its Content-Length.
fn proxy(origin: SocketAddr, count: usize, request_lie: RequestLie, lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for _ in 0..count {
            let Ok((mut client, _)) = listener.accept() else { return };
            let request = request_lie(String::from_utf8_lossy(&message(&mut client)).into_owned());
            let mut upstream = TcpStream::connect(origin).expect("the origin listens");
            if upstream.write_all(request.as_bytes()).is_err() {
                return;
            }
            let answer = lie(message(&mut upstream));
            let _ = client.write_all(&answer);
        }
    });
    address
}

fn message(stream: &mut TcpStream) -> Vec<u8> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        if is_whole(&bytes) {
            return bytes;
        }
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
            _ => return bytes,
        }
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
    bytes.len() >= head.len() + 4 + length.unwrap_or(0)
}

const STORY: &str = r#"# A GET with a body of 300 bytes, for a relay.
origin s1
  expect GET /a
    Accept: text/plain
    lacks Keep-Alive
  reply 200
    ETag: "v1"
    X-One: 1
    X-Two: 2
    body bytes 300
client c1
  get /a
    Accept: text/plain
  got 200
    ETag: "v1"
    order X-One X-Two
    body bytes 300
"#;

fn same_request(request: String) -> String {
    request
}

fn same(answer: Vec<u8>) -> Vec<u8> {
    answer
}

fn edit(answer: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    String::from_utf8_lossy(&answer).replace(from, to).into_bytes()
}

/// Plays `story` through a relay with these lies; the failure as text, empty when there was none.
fn play(story: &str, request_lie: RequestLie, lie: Lie) -> String {
    let script = Script::parse("story.scn", story).expect("a story without error");
    let stage = script.open().expect("free ports");
    let proxy = proxy(stage.origins()[0].1, 4, request_lie, lie);
    match stage.play(&Target { way: Way::Reverse, proxy }) {
        Ok(()) => String::new(),
        Err(failure) => format!("{}: {}: {}", failure.party, failure.step, failure.what),
    }
}

#[test]
fn an_honest_relay_passes() {
    assert_eq!(play(STORY, same_request, same), "");
}

#[test]
fn lies_about_the_answer_are_caught() {
    let table: [(&str, Lie, &str); 14] = [
        ("another status", |a| edit(a, "200 OK", "206 OK"), "expected status 200"),
        ("a field lost", |a| edit(a, "ETag: \"v1\"\r\n", ""), "got no ETag"),
        ("a field changed", |a| edit(a, "\"v1\"", "\"v2\""), "got `ETag: \"v2\"`"),
        ("fields swapped", |a| edit(edit(a, "X-One", "X-Two"), "X-Two: 2", "X-One: 2"), "X-Two is missing"),
        (
            "a body byte changed",
            |mut a| {
                *a.last_mut().expect("bytes") = b'!';
                a
            },
            "bodies differ at byte 299",
        ),
        (
            "the body cut",
            |mut a| {
                a.truncate(a.len() - 9);
                a
            },
            "cut short after 291 of 300",
        ),
        (
            "the length hidden",
            |mut a| {
                a.pop();
                edit(a, "Content-Length: 300\r\n", "")
            },
            "bodies differ at byte 299",
        ),
        ("bytes after the body", |a| [a, b"more".to_vec()].concat(), "after the last answer"),
        ("a bare LF", |a| edit(a, "X-One: 1\r\n", "X-One: 1\n"), "bare LF"),
        ("two lengths", |a| edit(a, "X-One: 1", "Content-Length: 300"), "2 Content-Length lines"),
        ("both framings", |a| edit(a, "X-One: 1", "Transfer-Encoding: chunked"), "both Content-Length"),
        ("space before a colon", |a| edit(a, "X-One:", "X-One :"), "no token"),
        ("garbage", |_| b"hello\r\n\r\n".to_vec(), "expected status 200, got `hello`"),
        ("nothing", |_| Vec::new(), "the connection was closed"),
    ];
    for (name, lie, expected) in table {
        let failure = play(STORY, same_request, lie);
        assert!(failure.contains(expected), "{name}: expected `{expected}` in `{failure}`");
    }
}

#[test]
fn lies_about_the_request_are_caught() {
    let table: [(&str, RequestLie, &str); 7] = [
        ("another path", |r| r.replace("/a ", "/b "), "expected `GET /a`, got `GET /b HTTP/1.1`"),
        ("another method", |r| r.replace("GET", "HEAD"), "expected `GET /a`"),
        ("absolute form", |r| r.replace("/a ", "http://s1.test/a "), "expected `GET /a`"),
        ("no host", |r| r.replace("Host: s1.test\r\n", ""), "0 Host lines"),
        ("a field lost", |r| r.replace("Accept: text/plain\r\n", ""), "got no Accept"),
        ("a hop field sent", |r| r.replace("Accept", "Keep-Alive: 5\r\nAccept"), "expected no Keep-Alive"),
        ("a request smuggled", |r| format!("{r}GET /x HTTP/1.1\r\nHost: s1\r\n\r\n"), "was asked `GET /x"),
    ];
    for (name, lie, expected) in table {
        let failure = play(STORY, lie, same);
        assert!(failure.contains(expected), "{name}: expected `{expected}` in `{failure}`");
    }
}

#[test]
fn a_cache_that_asks_again_is_caught() {
    let story = STORY.to_string() + "client c2\n  get /a\n    Accept: text/plain\n  got 200\n";
    let failure = play(&story, same_request, same);
    assert!(failure.contains("which the script does not expect"), "{failure}");
}

#[test]
fn truncation_must_not_look_whole() {
    let story = "# A cut answer\norigin s1\n  expect GET /a\n  begin 200\n    Content-Length: 10\n  send \"abc\"\n  close\n\
                 client c1\n  get /a\n  failed\n";
    assert_eq!(play(story, same_request, same), "");
    let failure = play(story, same_request, |a| edit(a, "Length: 10", "Length: 3"));
    assert!(failure.contains("as if it were whole"), "{failure}");
}

#[test]
fn errors_of_a_script_name_the_line() {
    let table = [
        ("origin s1\n", 1, "begins with a comment"),
        ("# x\nclient c1\n  get /a\n", 2, "at least one origin"),
        ("# x\norigin s1\n  expct GET /a\n", 3, "`expct` is no step of an origin"),
        ("# x\norigin s1\nclient c1\n  reply 200\n", 4, "no step of a client"),
        ("# x\norigin s1\n  reply 200\n    boddy \"x\"\n", 4, "`boddy`"),
        ("# x\norigin s1\n  reply 200\n    body \"x\n", 4, "closing quote"),
        ("# x\norigin s1\n  reply 200\n    X: $s2\n", 4, "unknown variable $s2"),
        ("# x\norigin s1\n   reply 200\n", 3, "3 spaces"),
        ("# x\norigin s1\n  pause 5\n", 3, "is no time"),
        ("# x\norigin s1\n  barrier a\n  barrier a\n", 4, "twice"),
        ("# x\norigin s1\nwait c1\n", 0, "in the background"),
        ("# x\nvia sideways\n", 2, "`via` is"),
        ("# x\norigin s1\n  close\n    X: y\n", 4, "takes no detail"),
    ];
    for (source, line, what) in table {
        let error = Script::parse("x.scn", source).expect_err(source);
        assert_eq!(error.line, line, "{source}{error}");
        assert!(error.to_string().contains(what), "{source}{error}");
    }
}

#[test]
fn concurrent_clients_meet_the_origin_at_a_barrier() {
    let story = "# Two clients at once, answered in the other order\norigin s1\n  expect GET /1 as first\n  barrier sent\n  \
                 expect GET /2 as second\n  reply 200\n    body \"2\"\n  with first\n  reply 200\n    body \"1\"\n\
                 client c1 background\n  get /1\n  got 200\n    body \"1\"\n\
                 client c2\n  barrier sent\n  get /2\n  got 200\n    body \"2\"\nwait c1\n";
    let script = Script::parse("x.scn", story).expect("a story without error");
    let proxy = SocketAddr::from(([127, 0, 0, 1], 0));
    script.open().expect("ports").play(&Target { way: Way::Direct, proxy }).expect("as written");
}

#[test]
fn every_script_of_the_library_can_be_read() {
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut count = 0;
    for area in std::fs::read_dir(library).expect("the library") {
        for file in std::fs::read_dir(area.expect("an area").path()).expect("its scripts") {
            let script = Script::load(file.expect("a file").path()).unwrap_or_else(|error| panic!("{error}"));
            assert!(!script.about().is_empty());
            count += 1;
        }
    }
    assert!(count >= 180, "only {count} scripts");
}
