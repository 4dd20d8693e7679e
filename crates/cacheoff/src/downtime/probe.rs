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
    /// A connection, and no right answer on it.
    NoAnswer(String),
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
    let body_is_right =
        if head.contains("transfer-encoding") { None } else { Some(answer[end + 4..] == body(path)[..]) };
    match (serial, body_is_right) {
        (_, Some(false)) => Found::NoAnswer("the body is not that of the object".to_owned()),
        (Some(serial), _) if serial <= before => Found::Hit,
        (Some(_), _) => Found::Miss,
        (None, _) => Found::NoAnswer("no serial number".to_owned()),
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
        for (bytes, found) in [
            (answer("200", "7", &right), Found::Hit),
            (answer("200", "8", &right), Found::Miss),
            (answer("200", "7", &body("/b")), Found::NoAnswer("the body is not that of the object".to_owned())),
            (answer("200", "7", &right[..99]), Found::NoAnswer("the body is not that of the object".to_owned())),
            (answer("502", "7", &right), Found::NoAnswer("status 502".to_owned())),
            (answer("200", "", &right), Found::NoAnswer("no serial number".to_owned())),
            (b"junk".to_vec(), Found::NoAnswer("no head".to_owned())),
        ] {
            assert_eq!(judge(&bytes, "/a", 7), found);
        }
    }
}
