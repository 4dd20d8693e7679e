//! One download through a proxy, as the chores of this program do it: `larder fetch-later --run` and `larder prefetch`.

use super::control::LaterRequest;
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::target::resolve;
use larder_wire::{Fields, ResponseHead, Url};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Redirections that are followed for one request.
const REDIRECTIONS_MAX: usize = 8;
/// How long an answer may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// An answer that was fetched, through all redirections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its status.
    pub status: u16,
    /// The bytes of its body.
    pub bytes: u64,
    /// Its URL, after all redirections.
    pub url: String,
    /// Whether the store has it now.
    pub kept: Kept,
    /// Whether a request with another `Accept-Encoding` may get another one.
    pub codings: Codings,
    /// The body, where that was asked for.
    pub body: Vec<u8>,
}

/// Whether the store has an answer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It had it before.
    Already,
    /// It has it now.
    Now,
    /// It has it not, for this reason.
    No(String),
}

/// Whether an answer depends on `Accept-Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codings {
    /// It does not say so.
    One,
    /// Its `Vary` says so.
    Several,
}

/// The use of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyUse {
    /// Its bytes are counted.
    #[default]
    Counted,
    /// It is read; one with more bytes is an error.
    Read(usize),
}

/// Sends a request through a proxy and reads the answer to its end; redirections are followed, so that all of them are stored.
pub fn fetch(proxy: SocketAddr, request: &LaterRequest, body_use: BodyUse) -> io::Result<Fetched> {
    let mut url = Url::parse(&request.url).ok_or_else(|| invalid("it is no URL"))?;
    let mut fields = request.fields.clone();
    // A list that somebody wrote into must not make other requests than it shows.
    fields.retain(|(name, value)| {
        let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        is_token && !name.is_empty() && !value.bytes().any(|byte| byte.is_ascii_control())
    });
    let mut kept = Kept::Already;
    for _ in 0..REDIRECTIONS_MAX {
        let (head, body) = fetch_one(proxy, &url, &fields, body_use)?;
        kept = kept.and(kept_of(&head.fields));
        let target = head.fields.text("Location").filter(|_| matches!(head.status, 301 | 302 | 303 | 307 | 308));
        match target.and_then(|target| resolve(&url, target)) {
            Some(next) => {
                // Another origin is told what kinds of answers are taken, and nothing else.
                if next.authority() != url.authority() || next.scheme != url.scheme {
                    fields.retain(|(name, _)| name.to_ascii_lowercase().starts_with("accept"));
                }
                url = next;
            }
            None => {
                return Ok(Fetched {
                    status: head.status,
                    bytes: body.bytes,
                    url: url.to_string(),
                    kept,
                    codings: codings(&head.fields),
                    body: if body_use == BodyUse::Counted { Vec::new() } else { plain(&head, body.content)? },
                });
            }
        }
    }
    Err(invalid("it is redirected too often"))
}

impl Kept {
    /// The word about two answers that are needed both: a file behind a redirection that is not stored can't be had offline.
    fn and(self, next: Kept) -> Kept {
        match (self, next) {
            (Kept::No(why), _) | (_, Kept::No(why)) => Kept::No(why),
            (Kept::Now, _) | (_, Kept::Now) => Kept::Now,
            _ => Kept::Already,
        }
    }
}

/// Reads the member of `Cache-Status` (RFC 9211) that this program adds, which is the last one.
fn kept_of(fields: &Fields) -> Kept {
    let Some(last) = fields.members("Cache-Status").last() else {
        return Kept::No("no proxy answered".to_owned());
    };
    let last = String::from_utf8_lossy(last);
    let mut parameters = last.split(';').map(str::trim).skip(1);
    let mut detail = None;
    let (mut hit, mut stored, mut shared) = (false, false, false);
    for parameter in parameters.by_ref() {
        match parameter.split_once('=').unwrap_or((parameter, "")) {
            ("hit", _) | ("fwd-status", "304") => hit = true,
            ("stored", _) => stored = true,
            ("collapsed", _) => shared = true,
            ("detail" | "fwd", why) => detail = Some(why.to_owned()),
            _ => {}
        }
    }
    match (hit, stored || shared) {
        (true, _) => Kept::Already,
        (_, true) => Kept::Now,
        _ => Kept::No(detail.unwrap_or_else(|| "it was not stored".to_owned())),
    }
}

fn codings(fields: &Fields) -> Codings {
    match fields.has_member("Vary", "accept-encoding") {
        true => Codings::Several,
        false => Codings::One,
    }
}

/// The body of an answer without a coding, which was not asked for.
fn plain(head: &ResponseHead, content: Vec<u8>) -> io::Result<Vec<u8>> {
    match head.fields.text("Content-Encoding") {
        None | Some("identity") => Ok(content),
        Some(_) => Err(invalid("it came compressed, though that was not asked for")),
    }
}

fn fetch_one(
    proxy: SocketAddr,
    url: &Url,
    fields: &[(String, String)],
    body_use: BodyUse,
) -> io::Result<(ResponseHead, Body)> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut ask = format!("GET {url} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", url.authority());
    for (name, value) in fields {
        ask.push_str(&format!("{name}: {value}\r\n"));
    }
    ask.push_str("\r\n");
    stream.write_all(ask.as_bytes())?;
    let mut read = Vec::new();
    let (head, used) = loop {
        match parse::response(&read, &HeadLimits::default()) {
            Ok(Parsed::Complete { head, len }) if head.is_interim() => _ = read.drain(..len),
            Ok(Parsed::Complete { head, len }) => break (head, len),
            Ok(Parsed::Partial) => {
                let mut some = [0; 16 * 1024];
                match stream.read(&mut some)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    length => read.extend_from_slice(&some[..length]),
                }
            }
            Err(fault) => return Err(invalid(fault.detail)),
        }
    };
    let mut body = Body { body_use, ..Body::default() };
    body.add(&read[used..])?;
    let mut some = vec![0; 256 * 1024];
    loop {
        match stream.read(&mut some)? {
            0 => break,
            length => body.add(&some[..length])?,
        }
    }
    if !body.is_whole(&head) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if head.fields.contains("Transfer-Encoding") && body_use != BodyUse::Counted {
        body.content = unchunked(&body.content).ok_or_else(|| invalid("its chunks are malformed"))?;
    }
    Ok((head, body))
}

/// A body of which the length and the end are remembered, and the whole where that was asked for.
#[derive(Default)]
struct Body {
    body_use: BodyUse,
    bytes: u64,
    end: Vec<u8>,
    content: Vec<u8>,
}

impl Body {
    fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.bytes += piece.len() as u64;
        self.end.extend_from_slice(piece);
        let superfluous = self.end.len().saturating_sub(LAST_CHUNK.len());
        self.end.drain(..superfluous);
        if let BodyUse::Read(most) = self.body_use {
            if self.content.len() + piece.len() > most {
                return Err(invalid("it is longer than an index"));
            }
            self.content.extend_from_slice(piece);
        }
        Ok(())
    }

    /// As the framing of the head says (RFC 9112 section 6.3); the proxy sends no trailers that nobody asks for.
    fn is_whole(&self, head: &ResponseHead) -> bool {
        match head.fields.text("Content-Length").and_then(|length| length.parse::<u64>().ok()) {
            Some(length) => self.bytes == length,
            None => !head.fields.contains("Transfer-Encoding") || self.end.ends_with(LAST_CHUNK),
        }
    }
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The content of chunks (RFC 9112 section 7.1).
fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&bytes[..end]).ok()?;
        let length = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        if length == 0 {
            return Some(out);
        }
        let begin = end + 2;
        out.extend_from_slice(bytes.get(begin..begin.checked_add(length)?)?);
        bytes = bytes.get(begin + length + 2..)?;
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_of_the_proxy_says_what_became_of_an_answer() {
        let kept = |value: &str| {
            let mut fields = Fields::new();
            fields.push("Cache-Status", value);
            kept_of(&fields)
        };
        let no = |why: &str| Kept::No(why.to_owned());
        for (value, wanted) in [
            ("larder; hit; ttl=3", Kept::Already),
            ("larder; fwd=stale; fwd-status=304; ttl=3", Kept::Already),
            ("larder; fwd=uri-miss; fwd-status=200; stored; ttl=3", Kept::Now),
            ("larder; fwd=uri-miss; collapsed", Kept::Now),
            ("larder; fwd=uri-miss; fwd-status=200; detail=no-store", no("no-store")),
            ("larder; detail=refused", no("refused")),
            ("other; hit, larder; fwd=miss", no("miss")),
        ] {
            assert_eq!(kept(value), wanted, "{value}");
        }
        assert!(matches!(kept_of(&Fields::new()), Kept::No(_)));
    }

    #[test]
    fn a_file_behind_a_redirection_that_is_not_stored_is_not_had() {
        let no = || Kept::No("no-store".to_owned());
        for (hops, all) in [
            (vec![Kept::Already, Kept::Already], Kept::Already),
            (vec![Kept::Already, Kept::Now, Kept::Already], Kept::Now),
            (vec![no(), Kept::Now], no()),
            (vec![Kept::Now, no()], no()),
        ] {
            assert_eq!(hops.into_iter().fold(Kept::Already, Kept::and), all);
        }
    }

    #[test]
    fn chunks_are_put_together_or_refused() {
        assert_eq!(unchunked(b"3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n").as_deref(), Some(&b"abcde"[..]));
        for wrong in [&b""[..], b"3\r\nab", b"x\r\n", b"ffffffffffffffff\r\nab\r\n", b"3\r\nabc"] {
            assert_eq!(unchunked(wrong), None);
        }
    }
}
