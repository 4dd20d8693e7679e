//! An origin whose path says how its answers are to be kept. The bodies are made on the spot.

use crate::law;
use crate::shell::Trouble;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The objects of which parts are asked for are as long.
const LONG_BYTES: u64 = 40_000;
const SHORT_BYTES: u64 = 700;

/// Serves on a free port until the process ends.
pub fn start() -> Result<u16, Trouble> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("no port for an origin: {error}"))?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let turns = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let turns = Arc::clone(&turns);
            std::thread::spawn(move || serve(&stream, &turns).ok());
        }
    });
    Ok(port)
}

#[derive(Default)]
struct Asked {
    method: String,
    kind: String,
    object: u64,
    range: Option<(u64, u64)>,
    is_conditional: bool,
    length: u64,
}

fn serve(stream: &TcpStream, turns: &AtomicU64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader)? {
        let turn = law::mix(turns.fetch_add(1, Ordering::Relaxed));
        (&*stream).write_all(&answer(&asked, turn))?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut parts = path.trim_start_matches('/').split('/');
    let (kind, object) = (parts.next().unwrap_or_default(), parts.next().and_then(|text| text.parse().ok()));
    let mut asked =
        Asked { method: method.to_owned(), kind: kind.to_owned(), object: object.unwrap_or(0), ..Asked::default() };
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "range" => asked.range = within(value.trim()),
            "if-none-match" | "if-modified-since" => asked.is_conditional = true,
            "content-length" => asked.length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    io::copy(&mut reader.take(asked.length), &mut io::sink())?;
    Ok(Some(asked))
}

fn within(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first.parse::<u64>().ok(), last.parse::<u64>().ok()) {
        (Some(first), Some(last)) => (first, (last + 1).min(LONG_BYTES)),
        (Some(first), None) => (first, LONG_BYTES),
        (None, Some(many)) => (LONG_BYTES.saturating_sub(many), LONG_BYTES),
        (None, None) => return None,
    };
    (range.0 < range.1).then_some(range)
}

fn answer(asked: &Asked, turn: u64) -> Vec<u8> {
    let is_even = turn.is_multiple_of(2);
    let fields = match asked.kind.as_str() {
        "none" => "Cache-Control: no-store\r\n",
        "stale" => "Cache-Control: max-age=0\r\nETag: \"1\"\r\n",
        "nocache" => "Cache-Control: no-cache\r\nETag: \"1\"\r\n",
        "vary" => "Cache-Control: max-age=86400\r\nVary: Accept-Language\r\n",
        "background" => "Cache-Control: max-age=0, stale-while-revalidate=600\r\nETag: \"1\"\r\n",
        "trouble" => "Cache-Control: max-age=0, stale-if-error=600\r\nETag: \"1\"\r\n",
        "turns" if is_even => "Cache-Control: no-store\r\n",
        "turns" => "Cache-Control: max-age=0\r\nETag: \"1\"\r\n",
        _ => "Cache-Control: max-age=86400\r\nETag: \"1\"\r\n",
    };
    if asked.method == "POST" {
        return b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
    }
    if asked.kind == "trouble" && turn.is_multiple_of(3) {
        return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec();
    }
    // Half of the validations find that nothing has changed.
    if asked.is_conditional && is_even && asked.kind != "turns" {
        return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
    }
    let whole = if asked.kind == "part" { LONG_BYTES } else { SHORT_BYTES };
    let (first, end) = asked.range.filter(|_| asked.kind == "part").unwrap_or((0, whole));
    let status = if end - first < whole {
        format!("206 Partial Content\r\nContent-Range: bytes {first}-{}/{whole}", end - 1)
    } else {
        "200 OK".to_owned()
    };
    let mut out = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", end - first).into_bytes();
    if asked.method != "HEAD" {
        out.extend(law::bytes(asked.object, 0, first..end));
    }
    out
}
