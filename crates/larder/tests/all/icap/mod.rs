//! Services of ICAP that look at requests and responses: what clients get, what is stored, and what becomes of both when a
//! service is slow, wrong or gone.

mod real;
mod requests;
mod responses;
mod service;
mod trouble;

use crate::seen::stand;
use larder::server::Server;
use service::Service;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// A proxy with one service in front of an origin.
pub struct Stage {
    pub server: Server,
    pub origin: Origin,
    pub folder: TempDir,
}

/// The answer to a request, taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    fn of(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        Answer { status, head: head.to_owned(), body }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn is_hit(&self) -> bool {
        self.field("Cache-Status").is_some_and(|status| status.contains("; hit"))
    }
}

/// The content of a chunked body, up to where it breaks off, with `…` there.
fn unchunked(mut text: &str) -> String {
    let mut body = String::new();
    loop {
        let Some((size, rest)) = text.split_once("\r\n") else { return body + "…" };
        let size = usize::from_str_radix(size, 16).unwrap_or(usize::MAX);
        match (size, rest.get(..size)) {
            (0, _) => return body,
            (_, Some(chunk)) => body.push_str(chunk),
            (_, None) => return body + rest + "…",
        }
        text = rest.get(size + 2..).unwrap_or_default();
    }
}

impl Stage {
    /// `icap` has further settings of the `[[icap]]`.
    pub fn new(service: &Service, icap: &str) -> Stage {
        Stage::with(&[(&service.url(), icap)], "")
    }

    pub fn with(services: &[(&str, &str)], text: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let server = Stage::server(&folder, services, text);
        Stage { server, origin: Origin::start(), folder }
    }

    fn server(folder: &TempDir, services: &[(&str, &str)], text: &str) -> Server {
        let disk = if text.contains("disk") { "" } else { "disk = 0\n" };
        let mut whole = format!("{disk}{text}\n");
        for (at, (url, more)) in services.iter().enumerate() {
            whole += &format!("[[icap]]\nname = \"s{at}\"\nurls = [\"{url}\"]\n{more}\n");
        }
        stand::server(folder.path(), &whole)
    }

    pub fn proxy(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    pub fn ask(&self, method: &str, path: &str, fields: &str, body: &str) -> Answer {
        let origin = self.origin.address;
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!(
            "{method} http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n{fields}{length}\r\n"
        );
        Answer::of(&stand::exchange(self.proxy(), &(head + body)))
    }

    /// A count of the metrics.
    pub fn counted(&self, did: &str) -> u64 {
        let text = stand::ask(self.server.admin().unwrap(), "/metrics");
        let line = format!("larder_icap_messages_total{{service=\"s0\",result=\"{did}\"}} ");
        text.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.trim().parse().unwrap())
    }
}

/// An origin whose answers the path describes: `/SIZE`, with `none` not stored, with `chunked` of unknown length, with `etag`
/// under a strong tag, with `tagged` under a tag for purges.
pub struct Origin {
    pub address: SocketAddr,
    pub requests: Arc<Mutex<Vec<String>>>,
    pub count: Arc<AtomicUsize>,
}

impl Origin {
    fn start() -> Origin {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let origin =
            Origin { address: listener.local_addr().unwrap(), requests: Arc::default(), count: Arc::default() };
        let (requests, count) = (Arc::clone(&origin.requests), Arc::clone(&origin.count));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, count) = (Arc::clone(&requests), Arc::clone(&count));
                std::thread::spawn(move || while serve(&stream, &requests, &count).is_some() {});
            }
        });
        origin
    }

    pub fn asked(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// The last request, with its body.
    pub fn last(&self) -> String {
        self.requests.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

/// A body of so many bytes that is nowhere the same.
pub fn body_of(bytes: usize) -> String {
    let mut body = String::new();
    let mut at = 0;
    while body.len() < bytes {
        body += &format!("line {at} of the body\n");
        at += 1;
    }
    body.truncate(bytes);
    body
}

fn serve(mut stream: &std::net::TcpStream, requests: &Mutex<Vec<String>>, count: &AtomicUsize) -> Option<()> {
    use std::io::{Read, Write};
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let mut request = String::from_utf8(head).unwrap();
    let field = |name: &str| {
        let mut lines = request.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let (length, chunked) =
        (field("Content-Length").map_or(0, |text| text.parse().unwrap()), field("Transfer-Encoding"));
    let none_match = field("If-None-Match");
    if chunked.is_some() {
        let mut body = Vec::new();
        while !body.ends_with(b"0\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            body.push(byte[0]);
        }
        request += &unchunked(std::str::from_utf8(&body).unwrap());
    } else {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        request += std::str::from_utf8(&body).unwrap();
    }
    let (path, is_head) = (request.split(' ').nth(1)?.to_owned(), request.starts_with("HEAD "));
    count.fetch_add(1, Ordering::SeqCst);
    requests.lock().unwrap().push(request);
    let bytes = path.split(['/', '?', '-']).find_map(|part| part.parse().ok()).unwrap_or(20);
    let body = if path.contains("eicar") { eicar() } else { body_of(bytes) };
    let control = if path.contains("none") { "no-store" } else { "max-age=60" };
    let etag =
        if path.contains("etag") { "ETag: \"strong\"\r\nLast-Modified: Sat, 21 Nov 2026 11:53:43 GMT\r\n" } else { "" };
    let tags = if path.contains("tagged") { "Surrogate-Key: own\r\n" } else { "" };
    let start = format!("Content-Type: text/plain\r\nCache-Control: {control}\r\n{etag}{tags}");
    if none_match.is_some_and(|tag| tag.contains("strong")) {
        return stream.write_all(format!("HTTP/1.1 304 Not Modified\r\n{start}\r\n").as_bytes()).ok();
    }
    if path.contains("chunked") {
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{start}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).ok()?;
        for piece in body.as_bytes().chunks(5_000) {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).ok()?;
            stream.write_all(piece).ok()?;
            stream.write_all(b"\r\n").ok()?;
        }
        return stream.write_all(b"0\r\n\r\n").ok();
    }
    let broken = if path.contains("broken") { 10 } else { 0 };
    let head = format!("HTTP/1.1 200 OK\r\n{start}Content-Length: {}\r\n\r\n", body.len() + broken);
    let head = if is_head { head } else { head + &body };
    stream.write_all(head.as_bytes()).ok()?;
    if broken > 0 {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
    Some(())
}

/// The file that every scanner takes for a virus; put together here, so that none takes this file for one.
pub fn eicar() -> String {
    ["X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-", "STANDARD-ANTIVIRUS-", "TEST-FILE!$H+H*"].concat()
}
