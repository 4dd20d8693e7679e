//! Bodies that Larder codes, as clients see them: decoded they are what the origin sent, whatever a client accepts.

use super::stand::{self, ask, body, wait_for};
use larder::server::Server;
use larder_cache::policy::{Coding, Offer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The body of a path like `/SEED/LENGTH`: lines of few words, as text is.
fn text_of(path: &str) -> Option<Vec<u8>> {
    let mut parts = path.split('/').skip(1);
    let (seed, length) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<usize>().ok()?);
    Some(words(seed, length))
}

/// So many bytes of text.
pub fn words(mut seed: u64, length: usize) -> Vec<u8> {
    let words = ["larder ", "keeps ", "what ", "was ", "fetched ", "once\n", "\u{e9}t\u{e9} ", "0123456789 "];
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend_from_slice(words[(seed >> 61) as usize].as_bytes());
    }
    text.truncate(length);
    text
}

/// An origin that codes nothing. Paths that end with `/chunked` come in chunks, of which some are late.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let path = first.split(' ').nth(1)?;
        let text = text_of(path)?;
        let mut to = stream;
        let fields = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nETag: \"v1\"\r\n";
        if !path.ends_with("/chunked") {
            write!(to, "{fields}Content-Length: {}\r\n\r\n", text.len()).ok()?;
            to.write_all(&text).ok()?;
            continue;
        }
        write!(to, "{fields}Transfer-Encoding: chunked\r\n\r\n").ok()?;
        for (number, piece) in text.chunks(1 + text.len() / 3).enumerate() {
            std::thread::sleep(Duration::from_millis(if number == 1 { 80 } else { 0 }));
            write!(to, "{:x}\r\n", piece.len()).ok()?;
            to.write_all(piece).ok()?;
            to.write_all(b"\r\n").ok()?;
        }
        to.write_all(b"0\r\n\r\n").ok()?;
    }
}

fn server(folder: &Path) -> (Server, SocketAddr) {
    let origin = stand::origin_that(serve);
    let text = format!(
        "[log]\nto = \"{}\"\nformat = \"{{outcome}} {{compression}}\"\n[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\n\
         compression = [\"zstd\", \"br\", \"gzip\"]\ncompression_bytes_min = \"100B\"\n",
        folder.join("log").display()
    );
    let server = stand::server(folder, &text);
    let address = server.addresses()[0];
    (server, address)
}

/// Head and body of the answer. A client of HTTP/1.0 gets no chunks.
pub fn get(server: SocketAddr, method: &str, path: &str, fields: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: site.test\r\n{fields}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end..].to_vec())
}

fn coding_of(head: &str) -> Option<Coding> {
    let name = head.lines().find_map(|line| line.strip_prefix("Content-Encoding: "));
    name.map(|name| Coding::parse(name.as_bytes()).expect("one that Larder gives"))
}

pub fn decoded(coding: Option<Coding>, coded: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    match coding {
        None => body.extend_from_slice(coded),
        Some(Coding::Gzip) => _ = flate2::read::GzDecoder::new(coded).read_to_end(&mut body).expect("gzip"),
        Some(Coding::Brotli) => _ = brotli::Decompressor::new(coded, 4096).read_to_end(&mut body).expect("br"),
        Some(Coding::Zstd) => zstd::stream::copy_decode(coded, &mut body).expect("zstd"),
    }
    body
}

#[test]
fn any_client_gets_the_body_of_the_origin() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = server(folder.path());
    let weight = "(;q=(0|1|0\\.[0-9]{1,3}))?";
    let member = format!("(gzip|br|zstd|x-gzip|identity|deflate|\\*){weight}");
    let accepts = format!("{member}(, ?{member}){{0,4}}");
    let mut offer = Offer::default();
    [Coding::Zstd, Coding::Brotli, Coding::Gzip].into_iter().for_each(|coding| _ = offer.push(coding));
    let case = (
        prop::option::of(prop::string::string_regex(&accepts).unwrap()),
        0u64..1_000_000,
        prop::sample::select(vec![0, 99, 100, 5_000, 70_000, 300_000]),
        any::<bool>(),
    );
    let mut runner = TestRunner::new(Config { cases: 40, failure_persistence: None, ..Config::default() });
    let run = runner.run(&case, |(accepts, seed, length, is_chunked)| {
        let path = format!("/{seed}/{length}{}", if is_chunked { "/chunked" } else { "" });
        let text = text_of(&path).unwrap();
        let fields = accepts.map(|value| format!("Accept-Encoding: {value}\r\n")).unwrap_or_default();
        let mut wanted = larder_wire::Fields::new();
        if let Some((name, value)) = fields.trim_end().split_once(": ") {
            wanted.push(name, value);
        }
        let expected = offer.chosen(&wanted).filter(|_| is_chunked || length >= 100);
        for _ in 0..2 {
            let (head, body) = get(address, "GET", &path, &fields);
            prop_assert!(head.starts_with("HTTP/1.1 200"), "{}", head);
            prop_assert_eq!(coding_of(&head), expected, "{}{}", fields, head);
            prop_assert_eq!(decoded(expected, &body), &text[..]);
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn ranges_are_of_the_coded_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = server(folder.path());
    for name in ["gzip", "br", "zstd"] {
        let fields = format!("Accept-Encoding: {name}\r\n");
        let path = "/7/200000";
        let (head, coded) = get(address, "GET", path, &fields);
        assert_eq!(decoded(coding_of(&head), &coded), text_of(path).unwrap());
        let length = coded.len();
        let range = |said: &str| get(address, "GET", path, &format!("{fields}Range: bytes={said}\r\n"));
        let (head, part) = range("10-99");
        assert!(head.contains(&format!("Content-Range: bytes 10-99/{length}\r\n")), "{head}");
        assert!(head.contains(&format!("Content-Encoding: {name}\r\n")), "{head}");
        assert_eq!(part, &coded[10..100], "{name}");
        let (head, part) = range("-5");
        assert!(head.starts_with("HTTP/1.1 206"), "{head}");
        assert_eq!(part, &coded[length - 5..], "{name}");
        let (_, parts) = range("0-0,20-29");
        assert!(parts.windows(10).any(|window| window == &coded[20..30]), "{name}");
    }
}

#[test]
fn curl_decodes_each_coding() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = server(folder.path());
    let path = "/1/100000";
    let url = format!("http://{address}{path}");
    for (name, turn) in ["gzip", "br", "zstd"].into_iter().flat_map(|name| [(name, "first"), (name, "again")]) {
        let Some(mut curl) = stand::program("curl") else { return };
        let accepts = format!("Accept-Encoding: {name}");
        let output = curl
            .args(["-s", "-m", "20", "--compressed", "-H", "Host: site.test", "-H", &accepts, &url])
            .output()
            .unwrap();
        assert_eq!(output.stdout, text_of(path).unwrap(), "{name} {turn}");
    }
    let admin = server.admin().expect("an admin address");
    let mut text = String::new();
    wait_for("the bodies are counted", || {
        text = ask(admin, "/metrics");
        ["gzip", "br", "zstd"]
            .iter()
            .all(|name| text.contains(&format!("larder_compression_bodies_total{{coding=\"{name}\"}} 1\n")))
    });
    assert!(text.contains("larder_compression_read_bytes_total{coding=\"br\"} 100000\n"), "{}", body(&text));
    assert!(text.contains("larder_compression_under_way 0\n"), "{}", body(&text));
    for name in ["gzip", "br", "zstd"] {
        let explained = ask(admin, &format!("/explain?url=http://site.test{path}&header=Accept-Encoding:{name}"));
        assert!(explained.contains(&format!("coded as {name} by Larder")), "{explained}");
    }
    server.stop();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    // Each worker hands over lines of its own.
    let mut lines: Vec<&str> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["hit br", "hit gzip", "hit zstd", "uri-miss gzip", "vary-miss br", "vary-miss zstd"], "{log}");
}

/// It says from the first validation on that its bodies must not be transformed.
fn serve_and_forbid(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let mut to = stream;
        let fields = "ETag: \"v1\"\r\nContent-Type: text/plain\r\n";
        if head.to_ascii_lowercase().contains("if-none-match:") {
            FORBIDS.store(true, Ordering::SeqCst);
            write!(to, "HTTP/1.1 304 Not Modified\r\n{fields}Cache-Control: max-age=60, no-transform\r\n\r\n").ok()?;
            continue;
        }
        let caching = if FORBIDS.load(Ordering::SeqCst) { "max-age=60, no-transform" } else { "max-age=0" };
        write!(to, "HTTP/1.1 200 OK\r\n{fields}Cache-Control: {caching}\r\nContent-Length: 5000\r\n\r\n").ok()?;
        to.write_all(&words(1, 5000)).ok()?;
    }
}

static FORBIDS: AtomicBool = AtomicBool::new(false);

/// The record of the request that brought the 304 says why nothing is stored afterwards, and the next answer is stored as it comes.
#[test]
fn a_304_that_forbids_the_coding_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(serve_and_forbid);
    let text = format!("[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\ncompression = [\"gzip\"]\n");
    let server = stand::server(folder.path(), &text);
    let address = server.addresses()[0];
    let mut codings = Vec::new();
    for turn in 0..4 {
        let (head, coded) = get(address, "GET", "/a", "Accept-Encoding: gzip\r\n");
        codings.push(coding_of(&head));
        assert_eq!(decoded(coding_of(&head), &coded), words(1, 5000), "{turn}: {head}");
    }
    assert_eq!(codings, [Some(Coding::Gzip), Some(Coding::Gzip), None, None]);
    let admin = server.admin().expect("an admin address");
    let mut recorded = Vec::new();
    wait_for("the requests are recorded", || {
        let listed: serde_json::Value = serde_json::from_str(body(&ask(admin, "/requests"))).unwrap();
        recorded = listed["requests"].as_array().unwrap().clone();
        recorded.len() == 4
    });
    let mut words: Vec<&str> = recorded.iter().map(|request| request["outcome"].as_str().unwrap()).collect();
    words.sort_unstable();
    assert_eq!(words, ["hit", "miss", "miss", "validated"]);
    let validated = recorded.iter().find(|request| request["outcome"] == "validated").unwrap();
    let told = ask(admin, &format!("/requests/{}", validated["id"].as_str().unwrap()));
    assert!(told.contains("and its origin no longer permits that (coded)"), "{told}");
}

/// The origin still sends a little when the client has got some of it.
static ENOUGH: AtomicBool = AtomicBool::new(false);

fn dribble(stream: &TcpStream) -> Option<()> {
    let mut to = stream;
    stand::read_request(&mut BufReader::new(stream))?;
    to.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
    // Seven seconds at most.
    for _ in 0..350 {
        if ENOUGH.load(Ordering::SeqCst) {
            break;
        }
        to.write_all(b"5\r\nlittl\r\n").ok()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    let end: &[u8] = if ENOUGH.load(Ordering::SeqCst) { b"6\r\nenough\r\n0\r\n\r\n" } else { b"0\r\n\r\n" };
    to.write_all(end).ok()
}

/// None of its pauses is long enough to be one.
#[test]
fn an_origin_that_sends_a_little_all_the_time_keeps_no_client_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(dribble);
    let text = format!("[[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\ncompression = [\"gzip\"]\n");
    let server = stand::server(folder.path(), &text);
    let mut stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    stream.write_all(b"GET /a HTTP/1.0\r\nHost: site.test\r\nAccept-Encoding: gzip\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    stand::read_head(&mut stream).unwrap();
    let mut coded = vec![0; 12];
    stream.read_exact(&mut coded).unwrap();
    ENOUGH.store(true, Ordering::SeqCst);
    stream.read_to_end(&mut coded).unwrap();
    let body = decoded(Some(Coding::Gzip), &coded);
    assert!(body.ends_with(b"enough"), "{}", String::from_utf8_lossy(&body));
}
