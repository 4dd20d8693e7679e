//! Slow clients of a WSGI application: they hold none of its processes, and every byte of theirs comes as it was sent.

use super::mounts::{get, settings, status, with};
use super::reload::Steered;
use super::stand::{body, wait_for};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// 20 MB in blocks that differ; bodies that are counted; an answer whose second piece waits for the test.
const APPLICATION: &str = r#"
import os, time
def application(environ, start_response):
    path = environ["PATH_INFO"]
    body = environ["wsgi.input"].read()
    if path == "/length":
        start_response("200 OK", [])
        return [b"%d %s" % (len(body), environ.get("CONTENT_LENGTH", "none").encode())]
    if path == "/large":
        start_response("200 OK", [("Content-Length", "20000000"), ("Cache-Control", "no-store")])
        return (bytes([65 + block]) * 1000000 for block in range(20))
    if path == "/breaks":
        start_response("200 OK", [("Content-Length", "20000000"), ("Cache-Control", "max-age=60")])
        def pieces():
            for block in range(12):
                yield bytes([65 + block]) * 1000000
            os._exit(1)
        return pieces()
    if path == "/events":
        start_response("200 OK", [("Content-Type", "text/event-stream")])
        def events():
            yield b"first\n"
            while not os.path.exists("heard"):
                time.sleep(0.005)
            yield b"second\n"
        return events()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]
"#;

const BYTES: usize = 20_000_000;

fn started(folder: &Path, python: &str) -> (Steered, SocketAddr) {
    fs::write(folder.join("app.py"), APPLICATION).unwrap();
    let steered = Steered::start(folder, &settings(folder, python));
    let proxy = steered.server.addresses()[0];
    assert_eq!(status(&get(proxy, "/")), "200");
    (steered, proxy)
}

/// Sends the beginning of a request; the rest is the test's.
fn begun(proxy: SocketAddr, head: &str, beginning: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(proxy).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    client.write_all(format!("{head}Host: app.example\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    client.write_all(beginning).unwrap();
    client
}

/// A client that has taken the first bytes of an answer and takes no more for now.
fn slow_reader(proxy: SocketAddr, path: &str) -> (TcpStream, Vec<u8>) {
    let mut client = begun(proxy, &format!("GET {path} HTTP/1.1\r\n"), b"");
    let mut read = vec![0; 10_000];
    client.read_exact(&mut read).unwrap();
    (client, read)
}

fn rest(mut client: TcpStream, mut read: Vec<u8>) -> Vec<u8> {
    let _ = client.read_to_end(&mut read);
    read
}

fn content(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    &answer[end + 4..]
}

fn is_as_made(content: &[u8]) -> bool {
    content.iter().enumerate().all(|(at, byte)| usize::from(*byte) == 65 + at / 1_000_000)
}

fn places_taken(steered: &Steered) -> usize {
    steered.server.shared().nursery.mounts().all()[0].processes().iter().map(|process| process.under_way()).sum()
}

#[test]
fn slow_readers_and_slow_uploaders_hold_no_process_of_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "");
    let readers = [slow_reader(proxy, "/large"), slow_reader(proxy, "/large")];
    let head = "POST /length HTTP/1.1\r\nContent-Length: 1000000\r\n";
    let uploaders = [begun(proxy, head, &[b'u'; 1_000]), begun(proxy, head, &[b'u'; 300_000])];
    for number in 0..20 {
        let began = Instant::now();
        assert_eq!(body(&get(proxy, "/")), "hello");
        // The time for two answers of 20 MB to be made, with room for a busy machine; ten seconds were the limit before.
        assert!(began.elapsed() < Duration::from_secs(5), "request {number}: {:?}", began.elapsed());
    }
    wait_for("all processes are free", || places_taken(&steered) == 0);
    for (mut client, sent) in uploaders.into_iter().zip([1_000, 300_000]) {
        client.write_all(&vec![b'u'; 1_000_000 - sent]).unwrap();
        assert!(String::from_utf8(rest(client, Vec::new())).unwrap().ends_with("1000000 1000000"));
    }
    for (client, read) in readers {
        let answer = rest(client, read);
        assert!(content(&answer).len() == BYTES && is_as_made(content(&answer)), "{}", answer.len());
    }
    let mounts = steered.server.shared().nursery.mounts();
    wait_for("the buffers are empty", || mounts.all()[0].buffers.bytes() == 0);
}

#[test]
fn a_gathered_body_has_a_length_and_leave_to_be_sent_is_given_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "processes = 1\n");
    let chunks = "7d0\r\n".to_owned() + &"c".repeat(2_000) + "\r\n3\r\nabc\r\n0\r\n\r\n";
    let answer = with(proxy, "POST /length", "Transfer-Encoding: chunked\r\n", &chunks);
    assert!(answer.ends_with("2003 2003"), "{answer}");
    let empty = with(proxy, "POST /length", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n");
    assert!(empty.ends_with("0 0"), "{empty}");
    let head = "POST /length HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n";
    let mut client = begun(proxy, head, b"");
    let mut interim = [0; 25];
    client.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"12345").unwrap();
    let answer = String::from_utf8(rest(client, Vec::new())).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("5 5"), "{answer}");
}

#[test]
fn events_pass_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (_steered, proxy) = started(folder.path(), "");
    let mut client = begun(proxy, "GET /events HTTP/1.1\r\n", b"");
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("first") {
        let mut piece = [0; 1_000];
        let count = client.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..count]);
    }
    fs::write(folder.path().join("heard"), "").unwrap();
    assert!(String::from_utf8(rest(client, read)).unwrap().contains("second"));
}

#[test]
fn more_than_the_buffers_take_passes_at_the_pace_of_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "request_buffer = \"100kB\"\nanswer_buffer = \"1MB\"\n");
    let length = "Content-Length: 1000000\r\n";
    assert!(with(proxy, "POST /length", length, &"z".repeat(1_000_000)).ends_with("1000000 1000000"));
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 700_000, "z".repeat(700_000));
    let answer = with(proxy, "POST /length", "Transfer-Encoding: chunked\r\n", &chunk);
    assert!(answer.ends_with("700000 none"), "{answer}");
    let (client, read) = slow_reader(proxy, "/large");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(places_taken(&steered), 1, "the rest of the answer is not made yet");
    let answer = rest(client, read);
    assert!(content(&answer).len() == BYTES && is_as_made(content(&answer)));
    let (mut changed, _) = steered.reload(&settings(folder.path(), "request_buffer = 0\nanswer_buffer = 0\n")).unwrap();
    assert_eq!(changed.pop().as_deref(), Some("python"));
    wait_for("the new settings hold", || {
        with(proxy, "POST /length", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n").ends_with("3 none")
    });
    let (client, read) = slow_reader(proxy, "/large");
    assert!(is_as_made(content(&rest(client, read))));
}

#[test]
fn an_answer_that_breaks_off_in_the_buffer_is_not_taken_for_a_whole_one() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "");
    let (client, read) = slow_reader(proxy, "/breaks");
    let mounts = steered.server.shared().nursery.mounts();
    let state = &mounts.all()[0];
    wait_for("the process has ended", || state.counts.ended.load(Ordering::Relaxed) == 1);
    let answer = rest(client, read);
    let content = content(&answer);
    assert!(content.len() < BYTES && is_as_made(content), "{}", content.len());
    wait_for("two processes serve again", || state.processes().len() == 2);
    let again = begun(proxy, "HEAD /breaks HTTP/1.1\r\n", b"");
    assert!(!String::from_utf8(rest(again, Vec::new())).unwrap().contains("; hit"), "a part is not stored");
}

#[test]
fn a_client_that_leaves_is_no_request_and_gives_its_buffer_back() {
    let folder = tempfile::tempdir().unwrap();
    let (steered, proxy) = started(folder.path(), "");
    let mounts = steered.server.shared().nursery.mounts();
    let state = &mounts.all()[0];
    let before = state.counts.requests.load(Ordering::Relaxed);
    let head = "POST /length HTTP/1.1\r\nContent-Length: 1000000\r\n";
    let uploader = begun(proxy, head, &[b'u'; 500_000]);
    wait_for("its body is gathered", || state.buffers.bytes() > 0);
    drop(uploader);
    wait_for("its bytes are free", || state.buffers.bytes() == 0);
    assert_eq!(state.counts.requests.load(Ordering::Relaxed), before);
    let (reader, _) = slow_reader(proxy, "/large");
    wait_for("its answer is buffered", || state.buffers.bytes() > 1_000_000);
    drop(reader);
    wait_for("its bytes are free", || state.buffers.bytes() == 0);
    // The process gives its place back once it has ended the request, which is after that.
    wait_for("its place is free", || places_taken(&steered) == 0);
}
