//! The origin behind the attacked server: right for good requests, and as bad as an attack wants it for its own.

use crate::shell::Trouble;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The body of every good answer.
pub const BODY: &str =
    "a good answer for a good client, always the same; a good answer for a good client, always the same";
/// The path of an object that is stored.
pub const HIT: &str = "/hit";
/// The length of `/big`.
pub const BIG_BYTES: usize = 8_000_000;

const STACK_BYTES: usize = 96 * 1024;
const HEAD_BYTES_MAX: u64 = 128 * 1024;

/// A listening origin; its thread ends with the process.
pub struct Origin {
    /// Where it listens.
    pub port: u16,
    lets_go: AtomicBool,
    /// Requests that it had.
    pub requests: AtomicUsize,
}

impl Origin {
    /// Begins to serve.
    pub fn start() -> Result<Arc<Origin>, Trouble> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no free port: {error}"))?;
        rustix::net::listen(&listener, 4_096).map_err(|error| format!("listening: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let origin = Arc::new(Origin { port, lets_go: AtomicBool::new(false), requests: AtomicUsize::new(0) });
        let serving = Arc::clone(&origin);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let origin = Arc::clone(&serving);
                let served = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || origin.serve(stream));
                if served.is_err() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        });
        Ok(origin)
    }

    /// Ends the requests that hang.
    pub fn let_go(&self) {
        self.lets_go.store(true, Ordering::Relaxed);
    }

    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let Ok(mut answers) = stream.try_clone() else { return };
        let mut requests = BufReader::with_capacity(4_096, stream);
        while let Some(request) = Request::read(&mut requests) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            if self.answer(&request, &mut answers).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request, to: &mut TcpStream) -> std::io::Result<()> {
        let path = request.path.split('/').nth(1).unwrap_or_default();
        match path {
            "hang" => self.hang(to),
            "upgrade" => {
                to.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")?;
                self.hang(to)
            }
            "vary" => {
                // 62 kB of names that no other answer has.
                let number = request.path.rsplit('/').next().unwrap_or_default();
                let names: Vec<String> = (0..4_000).map(|name| format!("X-{number}-{name:05}")).collect();
                plain(to, &format!("Vary: {}\r\nCache-Control: max-age=600\r\n", names.join(",")), BODY.as_bytes())
            }
            "variant" => plain(to, "Vary: X-Variant\r\nCache-Control: max-age=600\r\n", &[b'v'; 1_000]),
            "big" => {
                to.write_all(
                    format!("HTTP/1.1 200 OK\r\nETag: \"big\"\r\nCache-Control: max-age=600\r\nContent-Length: {BIG_BYTES}\r\n\r\n")
                        .as_bytes(),
                )?;
                let block = vec![b'b'; 64 * 1024];
                let mut left = BIG_BYTES;
                while left > 0 {
                    let part = left.min(block.len());
                    to.write_all(&block[..part])?;
                    left -= part;
                }
                Ok(())
            }
            "tags" => {
                let tags: Vec<String> = (0..800).map(|tag| format!("t{tag}")).collect();
                plain(
                    to,
                    &format!("Surrogate-Key: {}\r\nCache-Control: max-age=600\r\n", tags.join(" ")),
                    BODY.as_bytes(),
                )
            }
            _ => plain(to, "Cache-Control: max-age=600\r\n", BODY.as_bytes()),
        }
    }

    fn hang(&self, to: &TcpStream) -> std::io::Result<()> {
        to.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut room = [0; 256];
        let mut from = to;
        while !self.lets_go.load(Ordering::Relaxed) {
            match from.read(&mut room) {
                Ok(0) => break,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        Err(std::io::ErrorKind::ConnectionAborted.into())
    }
}

fn plain(to: &mut TcpStream, fields: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    to.write_all(&[head.as_bytes(), body].concat())
}

struct Request {
    path: String,
}

impl Request {
    /// The next request, its body read away; `None` at the end or where nothing can be made of it.
    fn read(from: &mut BufReader<TcpStream>) -> Option<Request> {
        let mut lines = from.by_ref().take(HEAD_BYTES_MAX);
        let (mut line, mut path, mut length, mut chunked) = (String::new(), None, 0_u64, false);
        loop {
            line.clear();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let text = line.trim_end();
            if path.is_none() {
                path = Some(text.split(' ').nth(1)?.to_owned());
            } else if text.is_empty() {
                break;
            } else if let Some((name, value)) = text.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().ok()?;
                }
                chunked |= name.eq_ignore_ascii_case("transfer-encoding");
            }
        }
        if chunked {
            skip_chunks(from)?;
        }
        std::io::copy(&mut from.by_ref().take(length), &mut std::io::sink()).ok()?;
        Some(Request { path: path? })
    }
}

fn skip_chunks(from: &mut BufReader<TcpStream>) -> Option<()> {
    loop {
        let mut line = String::new();
        from.by_ref().take(1_024).read_line(&mut line).ok()?;
        let length = u64::from_str_radix(line.trim_end().split(';').next()?, 16).ok()?;
        if length == 0 {
            line.clear();
            from.by_ref().take(1_024).read_line(&mut line).ok()?;
            return Some(());
        }
        std::io::copy(&mut from.by_ref().take(length + 2), &mut std::io::sink()).ok()?;
    }
}
