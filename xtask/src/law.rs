//! Objects that follow a law, and an origin that serves them: every byte follows from the object's number, its
//! generation and its place, so nothing is stored and any range can be made and checked.

use crate::shell::Trouble;
use larder_wire::date::{Stamp, format_date};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The bytes of a range of an object.
pub fn bytes(object: u64, generation: u64, range: Range<u64>) -> Vec<u8> {
    let seed = mix(object ^ mix(generation ^ 0x6c61_7277));
    let first = range.start / 8;
    let mut out = Vec::with_capacity((range.end - range.start) as usize + 16);
    for word in first..range.end.div_ceil(8) {
        out.extend_from_slice(&mix(seed.wrapping_add(word)).to_le_bytes());
    }
    out.drain(..(range.start - first * 8) as usize);
    out.truncate((range.end - range.start) as usize);
    out
}

/// A permutation of 64-bit numbers that leaves no pattern (the finaliser of splitmix64).
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The path before `/OBJECT/LENGTH` where each value of [`VARIANT_FIELD`], a number, has bytes of its own.
pub const VARIED: &str = "varied";
/// The field that chooses the variant, as a further generation.
pub const VARIANT_FIELD: &str = "X-Variant";
/// The path before `/OBJECT/LENGTH` where the answer is not to be stored.
pub const FLEETING: &str = "fleeting";

/// An origin for `/OBJECT/LENGTH`, cachable for a day, with a strong tag of the generation; it serves ranges and
/// honours `If-Match`, `If-Range` and `If-None-Match`.
#[derive(Default)]
pub struct Origin {
    /// The version of all objects; may change at any time.
    pub generation: AtomicU64,
    /// Requests that came.
    pub requests: AtomicU64,
    /// Body bytes that went out.
    pub body_bytes: AtomicU64,
    /// HTML by path, beside the objects.
    pages: HashMap<String, Vec<u8>>,
}

impl Origin {
    /// Serves on a free port until the process ends.
    pub fn start() -> Result<(Arc<Origin>, u16), Trouble> {
        Origin::with_pages(HashMap::new())
    }

    /// The same with pages that link the objects.
    pub fn with_pages(pages: HashMap<String, Vec<u8>>) -> Result<(Arc<Origin>, u16), Trouble> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no free port: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let origin = Arc::new(Origin { pages, ..Origin::default() });
        let serving = Arc::clone(&origin);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.serve(stream).ok());
            }
        });
        Ok((origin, port))
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut out = stream.try_clone()?;
        let mut lines = BufReader::new(stream).lines();
        while let Some(first) = lines.next() {
            let mut asked = Asked::of(&first?);
            for line in lines.by_ref() {
                let line = line?;
                if line.is_empty() {
                    break;
                }
                asked.field(&line);
            }
            self.requests.fetch_add(1, Ordering::SeqCst);
            self.answer(&asked, &mut out)?;
        }
        Ok(())
    }

    fn answer(&self, asked: &Asked, out: &mut TcpStream) -> std::io::Result<()> {
        if let Some(page) = self.pages.get(&asked.path) {
            return self.answer_with_page(page, asked.head, out);
        }
        let varied = asked.path.starts_with(&format!("/{VARIED}/"));
        let variant = if varied { asked.variant } else { 0 };
        let generation = self.generation.load(Ordering::SeqCst) + variant;
        let tag = format!("\"g{generation}\"");
        let vary = if varied { format!("Vary: {VARIANT_FIELD}\r\n") } else { String::new() };
        let fleeting = asked.path.starts_with(&format!("/{FLEETING}/"));
        let control = if fleeting { "no-store" } else { "max-age=86400" };
        let fields = format!(
            "{}Cache-Control: {control}\r\nContent-Type: application/octet-stream\r\nETag: {tag}\r\n{vary}",
            date()
        );
        if asked.none_match.as_ref() == Some(&tag) {
            return out.write_all(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes());
        }
        if asked.matches.as_ref().is_some_and(|held| *held != tag) {
            return write!(out, "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
        }
        let applies = asked.if_range.as_ref().is_none_or(|held| *held == tag);
        let range = asked.range.as_deref().filter(|_| applies).and_then(|text| within(text, asked.length));
        let body = range.clone().unwrap_or(0..asked.length);
        let length = body.end - body.start;
        // Head and first piece leave in one write: an origin that dribbles would be measured along with the proxy.
        let mut piece = match &range {
            Some(part) => format!(
                "HTTP/1.1 206 Partial Content\r\n{fields}Content-Range: bytes {}-{}/{}\r\nContent-Length: {length}\r\n\r\n",
                part.start,
                part.end - 1,
                asked.length
            ),
            None => format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n"),
        }
        .into_bytes();
        let mut at = body.start;
        while at < body.end && !asked.head {
            let end = body.end.min(at + PIECE_BYTES);
            piece.extend_from_slice(&bytes(asked.object, generation, at..end));
            out.write_all(&piece)?;
            self.body_bytes.fetch_add(end - at, Ordering::SeqCst);
            piece.clear();
            at = end;
        }
        out.write_all(&piece)
    }

    fn answer_with_page(&self, page: &[u8], is_head: bool, out: &mut TcpStream) -> std::io::Result<()> {
        let head = format!(
            "HTTP/1.1 200 OK\r\n{}Cache-Control: max-age=86400\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
            date(),
            page.len()
        );
        let body = if is_head { &[] } else { page };
        out.write_all(&[head.as_bytes(), body].concat())?;
        self.body_bytes.fetch_add(body.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

/// The field that says when an answer was made; without it Squid validates each of them.
fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("Date: {}\r\n", String::from_utf8_lossy(&format_date(Stamp(now))))
}

const PIECE_BYTES: u64 = 256 * 1024;

#[derive(Default)]
struct Asked {
    head: bool,
    path: String,
    object: u64,
    length: u64,
    range: Option<String>,
    if_range: Option<String>,
    none_match: Option<String>,
    matches: Option<String>,
    variant: u64,
}

impl Asked {
    fn of(line: &str) -> Asked {
        let path = line.split(' ').nth(1).unwrap_or_default();
        let mut numbers = path.rsplit('/').map(|part| part.parse().unwrap_or(0));
        let (length, object) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Asked { head: line.starts_with("HEAD "), path: path.to_owned(), object, length, ..Asked::default() }
    }

    fn field(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else { return };
        let value = Some(value.trim().to_owned());
        match name.to_ascii_lowercase().as_str() {
            "range" => self.range = value,
            "if-range" => self.if_range = value,
            "if-match" => self.matches = value,
            "if-none-match" => self.none_match = value,
            "x-variant" => self.variant = value.and_then(|text| text.parse().ok()).unwrap_or(0),
            _ => {}
        }
    }
}

/// One range of the forms `a-b`, `a-`, `-n`.
fn within(text: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let range = match (first.parse::<u64>().ok(), last.parse::<u64>().ok()) {
        (Some(first), Some(last)) => first..(last + 1).min(length),
        (Some(first), None) => first..length,
        (None, Some(count)) => length.saturating_sub(count)..length,
        (None, None) => return None,
    };
    (range.start < range.end).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_a_part_of_the_whole() {
        let whole = bytes(7, 1, 0..100);
        for (start, end) in [(0, 100), (1, 2), (7, 9), (8, 16), (93, 100), (50, 50)] {
            assert_eq!(bytes(7, 1, start..end), whole[start as usize..end as usize], "{start}..{end}");
        }
        assert_ne!(bytes(7, 2, 0..100), whole);
        assert_ne!(bytes(8, 1, 0..100), whole);
    }

    #[test]
    fn ranges_are_read() {
        assert_eq!(within("bytes=2-4", 10), Some(2..5));
        assert_eq!(within("bytes=2-", 10), Some(2..10));
        assert_eq!(within("bytes=-4", 10), Some(6..10));
        assert_eq!(within("bytes=2-40", 10), Some(2..10));
        assert_eq!(within("bytes=10-", 10), None);
    }
}
