//! One request on a connection of its own, judged: not answered, answered by the origin, answered from a store.

use super::origin::{Origin, SERIAL, body};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A head longer than this is not one of ours.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nobody took the connection.
    NoConnection,
    /// A connection, and no whole answer on it.
    NoAnswer(String),
    /// A whole answer with bytes that are not those of the object.
    WrongBytes,
    /// The origin's answer, whole.
    Miss,
    /// A stored answer, whole.
    Hit,
}

/// The cache that is asked, and the origin whose object it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// The cache.
    pub cache: SocketAddr,
    /// Whether it is a forward proxy.
    pub forward: bool,
    /// The origin.
    pub origin: &'a Origin,
    /// How long one probe may take.
    pub timeout: Duration,
}

impl Probe<'_> {
    /// Asks for one object.
    pub fn ask(&self, path: &str) -> Found {
        let before = self.origin.serial();
        let Ok(stream) = TcpStream::connect_timeout(&self.cache, self.timeout) else { return Found::NoConnection };
        match self.answer(stream, path) {
            Ok(answer) => judge(&answer, path, before),
            Err(error) => Found::NoAnswer(error.to_string()),
        }
    }

    fn answer(&self, mut stream: TcpStream, path: &str) -> std::io::Result<Vec<u8>> {
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        let host = self.origin.address();
        let target = if self.forward { format!("http://{host}{path}") } else { path.to_owned() };
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    }
}

fn judge(answer: &[u8], path: &str, before: u64) -> Found {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Found::NoAnswer("no head".to_owned());
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.get(9..12).unwrap_or("");
    if status != "200" {
        return Found::NoAnswer(format!("status {status}"));
    }
    let serial =
        head.lines().find_map(|line| line.strip_prefix(SERIAL)?.trim_start_matches([':', ' ']).parse::<u64>().ok());
    let rest = &answer[end + 4..];
    let chunked = head.lines().any(|line| line.starts_with("transfer-encoding:") && line.contains("chunked"));
    let Some(found) = (if chunked { unchunked(rest) } else { Some(rest.to_vec()) }) else {
        return Found::NoAnswer("the body has no end".to_owned());
    };
    let right = body(path);
    match serial {
        // The client sees by the length that something is missing.
        _ if found.len() < right.len() && right.starts_with(&found) => {
            Found::NoAnswer("the body ended early".to_owned())
        }
        _ if found != right => Found::WrongBytes,
        Some(serial) if serial <= before => Found::Hit,
        Some(_) => Found::Miss,
        None => Found::NoAnswer("no serial number".to_owned()),
    }
}

/// The bytes of a body in chunks; `None` without a last chunk.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_hit_only_if_its_number_is_old_and_its_bytes_are_right() {
        let answer = |status: &str, serial: &str, body: &[u8]| {
            [format!("HTTP/1.1 {status} x\r\nX-Serial: {serial}\r\n\r\n").as_bytes(), body].concat()
        };
        let right = body("/a");
        let chunked = |parts: &[&[u8]], end: &str| {
            let head = b"HTTP/1.1 200 x\r\nX-Serial: 7\r\nTransfer-Encoding: chunked\r\n\r\n";
            let one = |part: &&[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
            [&head[..], &parts.iter().flat_map(one).collect::<Vec<u8>>(), end.as_bytes()].concat()
        };
        for (bytes, found) in [
            (answer("200", "7", &right), Found::Hit),
            (answer("200", "8", &right), Found::Miss),
            (answer("200", "7", &body("/b")), Found::WrongBytes),
            (answer("200", "7", &right[..99]), Found::NoAnswer("the body ended early".to_owned())),
            (answer("200", "7", &[&right[..99], &[0; 8_093]].concat()), Found::WrongBytes),
            (chunked(&[&right[..5_000], &right[5_000..]], "0\r\n\r\n"), Found::Hit),
            (chunked(&[&right[5_000..], &right[..5_000]], "0\r\n\r\n"), Found::WrongBytes),
            (chunked(&[&right], ""), Found::NoAnswer("the body has no end".to_owned())),
            (chunked(&[&right], "ffffffffffffffff\r\n"), Found::NoAnswer("the body has no end".to_owned())),
            (answer("502", "7", &right), Found::NoAnswer("status 502".to_owned())),
            (answer("200", "", &right), Found::NoAnswer("no serial number".to_owned())),
            (b"junk".to_vec(), Found::NoAnswer("no head".to_owned())),
        ] {
            assert_eq!(judge(&bytes, "/a", 7), found);
        }
    }
}
