//! A browser that speaks HTTP/2: a page with many objects, an upload, server-sent events, and a WebSocket on a stream.

use super::tunnels::base64;
use crate::http3::write_certificate;
use crate::seen::stand;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use rcgen::{CertifiedKey, KeyPair, PublicKeyData};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Objects of the page.
const OBJECTS: usize = 200;

/// Bytes of the upload, in MiB.
const UPLOAD_MIB: usize = 48;

/// The page's own account; its last object is held until this is there, so that the browser waits with its print of the page.
static ACCOUNT: (Mutex<Option<String>>, Condvar) = (Mutex::new(None), Condvar::new());

const SCRIPT: &str = r"
const uploaded = async () => {
  const piece = new Uint8Array(1 << 20).fill(7);
  const answer = await fetch('/upload', { method: 'POST', body: new Blob(Array(MIB).fill(piece)) });
  return answer.text();
};
const events = () => new Promise((done) => {
  const [source, got] = [new EventSource('/events'), []];
  source.onmessage = (event) => { got.push(event.data); if (got.length === 3) { source.close(); done(got.join('-')); } };
});
const socket = () => new Promise((done) => {
  const socket = new WebSocket('wss://' + location.host + '/socket');
  socket.onopen = () => socket.send('ping');
  socket.onmessage = (event) => { socket.close(); done(event.data); };
  socket.onerror = () => done('error');
});
const objects = () => new Promise((done) => {
  const look = () => window.n === OBJECTS ? done(window.n) : setTimeout(look, 20);
  look();
});
Promise.all([uploaded(), events(), socket(), objects()]).then(
  (all) => fetch('/account', { method: 'POST', body: all.join(' ') }),
  (error) => fetch('/account', { method: 'POST', body: String(error) }));
";

fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::with_capacity(1 << 20, stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let answer = |kind: &str, body: &str| {
            let fields = format!("Content-Type: {kind}\r\nCache-Control: max-age=60\r\nContent-Length: {}", body.len());
            write!(&*stream, "HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}").ok()
        };
        match head.split(' ').nth(1)? {
            "/page" => {
                let objects: String =
                    (0..OBJECTS).map(|number| format!("<script async src=\"/object/{number}\"></script>")).collect();
                let script = SCRIPT.replace("MIB", &UPLOAD_MIB.to_string()).replace("OBJECTS", &OBJECTS.to_string());
                answer("text/html", &format!("<!doctype html>{objects}<img src=\"/held\"><script>{script}</script>"))?;
            }
            "/held" => {
                let account = ACCOUNT.0.lock().unwrap();
                drop(ACCOUNT.1.wait_timeout_while(account, Duration::from_secs(60), |account| account.is_none()));
                answer("image/gif", "GIF89a")?;
            }
            "/upload" => answer("text/plain", &body(&head, &mut lines, 7)?.to_string())?,
            "/account" => {
                let mut text = String::new();
                let length = length(&head)?;
                lines.by_ref().take(length).read_to_string(&mut text).ok()?;
                *ACCOUNT.0.lock().unwrap() = Some(text);
                ACCOUNT.1.notify_all();
                answer("text/plain", "")?;
            }
            "/events" => {
                let mut out = stream;
                write!(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n")
                    .ok()?;
                for number in 1..=3 {
                    write!(out, "data: {number}\n\n").ok()?;
                    std::thread::sleep(Duration::from_millis(50));
                }
                // The browser closes; an origin that did would be asked again.
                std::thread::sleep(Duration::from_secs(5));
                return None;
            }
            "/socket" => return echo_one(&head, &mut lines, stream),
            _ => answer("text/javascript", "window.n = (window.n || 0) + 1;")?,
        }
    }
}

fn length(head: &str) -> Option<u64> {
    head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
}

/// How many bytes of a body have this value.
fn body(head: &str, lines: &mut impl BufRead, value: u8) -> Option<u64> {
    let (mut left, mut right) = (length(head)?, 0);
    while left > 0 {
        let piece = lines.fill_buf().ok().filter(|piece| !piece.is_empty())?;
        let take = piece.len().min(usize::try_from(left).ok()?);
        right += piece[..take].iter().filter(|byte| **byte == value).count() as u64;
        left -= take as u64;
        lines.consume(take);
    }
    Some(right)
}

/// A WebSocket that repeats one message (RFC 6455): a short frame whose bytes are masked.
fn echo_one(head: &str, lines: &mut impl BufRead, mut out: &TcpStream) -> Option<()> {
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))?;
    let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes());
    let accept = base64(accept.as_ref());
    let fields = format!("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}");
    write!(out, "HTTP/1.1 101 Switching Protocols\r\n{fields}\r\n\r\n").ok()?;
    let (mut start, mut mask) = ([0; 2], [0; 4]);
    lines.read_exact(&mut start).ok()?;
    lines.read_exact(&mut mask).ok()?;
    let mut text = vec![0; usize::from(start[1] & 127)];
    lines.read_exact(&mut text).ok()?;
    text.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    out.write_all(&[0x81, start[1] & 127]).ok()?;
    out.write_all(&text).ok()?;
    // Until the browser closes.
    lines.read_to_end(&mut text).ok().map(drop)
}

/// A browser that believes this certificate, prints the page as it is in the end, and asks nobody else; its profile is in the
/// folder.
pub fn chromium(folder: &Path, pair: &CertifiedKey<KeyPair>) -> Option<Command> {
    let key = base64(digest(&SHA256, &pair.signing_key.subject_public_key_info()).as_ref());
    let mut browser = stand::program("chromium")?;
    browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]);
    browser.args(["--disable-background-networking", "--disable-component-update"]);
    browser.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    // One that is forced to speak QUIC to `::1`, where nobody listens, tries no other address.
    browser.arg("--host-resolver-rules=MAP localhost 127.0.0.1");
    browser.arg(format!("--ignore-certificate-errors-spki-list={key}"));
    Some(browser)
}

#[test]
fn a_browser_has_all_of_it_on_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let pair = write_certificate(path);
    let origin = stand::origin_that(serve);
    let server = stand::server(
        path,
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\ntls = [{{ chain = \"{0}/chain.pem\", key = \"{0}/key.pem\" }}]\n\
             [log]\nto = \"{0}/access.log\"\n[[site]]\nhosts = [\"localhost\"]\norigin = \"http://{origin}\"\n",
            path.display()
        ),
    );
    let port = server.addresses()[0].port();
    let Some(mut browser) = chromium(path, &pair) else { return };
    let output = browser.arg("--timeout=60000").arg(format!("https://localhost:{port}/page")).output().unwrap();
    server.stop();
    let log = std::fs::read_to_string(path.join("access.log")).unwrap();
    let account = ACCOUNT.0.lock().unwrap().take().unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(account, format!("{} 1-2-3 ping {OBJECTS}", UPLOAD_MIB << 20), "{said} {log}");
    assert!(log.matches(" HTTP/2.0\" 200").count() >= OBJECTS + 6, "{log}");
    assert!(!log.contains("HTTP/1.1\""), "{log}");
    assert!(log.lines().any(|line| line.contains("/socket HTTP/2.0\" 200")), "{log}");
}
