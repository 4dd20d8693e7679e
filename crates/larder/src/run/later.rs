//! The requests that offline runs could not answer: a file in the store folder, and the chore of sending them once there is a network.

use super::control::LaterRequest;
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::target::resolve;
use larder_wire::{ResponseHead, Url};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests that the list holds; more are not noted.
const LISTED_MAX: usize = 10_000;
/// A longer list is not read: several runs may each add 4 MB.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Redirections that are followed for one request.
const REDIRECTIONS_MAX: usize = 8;
/// How long an answer may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// The list: a line of JSON for each request, in a file that its owner alone can read.
pub struct Later(PathBuf);

impl Later {
    /// The one of a store folder.
    pub fn of(folder: &Path) -> Later {
        Later(folder.join("fetch-later.jsonl"))
    }

    /// The requests, in the order in which they were missed. Lines that are none are left out.
    pub fn read(&self) -> io::Result<Vec<LaterRequest>> {
        let file = match fs::File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(LIST_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LIST_BYTES_MAX {
            return Err(invalid("it is too long"));
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Adds requests that are not in it yet.
    pub fn add(&self, missing: &[LaterRequest]) -> io::Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let mut all = self.read()?;
        for request in missing {
            if all.len() < LISTED_MAX && !all.contains(request) {
                all.push(request.clone());
            }
        }
        self.write(&all)
    }

    /// Takes requests out of it that were sent. Those that came in meanwhile stay.
    pub fn remove(&self, sent: &[LaterRequest]) -> io::Result<()> {
        let mut all = self.read()?;
        all.retain(|request| !sent.contains(request));
        self.write(&all)
    }

    /// Writes the whole list anew; an empty one is no file. A power cut leaves the old or the new one.
    pub fn write(&self, all: &[LaterRequest]) -> io::Result<()> {
        if all.is_empty() {
            return match fs::remove_file(&self.0) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let new = self.0.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        for request in all {
            let line = serde_json::to_string(request).map_err(io::Error::other)?;
            writeln!(file, "{line}")?;
        }
        file.sync_all()?;
        fs::rename(new, &self.0)
    }
}

/// An answer that was fetched, through all redirections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its status.
    pub status: u16,
    /// The bytes of its body.
    pub bytes: u64,
}

/// Sends a request through a proxy and reads the answer to its end; redirections are followed, so that all of them are stored.
pub fn fetch(proxy: SocketAddr, request: &LaterRequest) -> io::Result<Fetched> {
    let mut url = Url::parse(&request.url).ok_or_else(|| invalid("it is no URL"))?;
    let mut fields = request.fields.clone();
    // A list that somebody wrote into must not make other requests than it shows.
    fields.retain(|(name, value)| {
        let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        is_token && !name.is_empty() && !value.bytes().any(|byte| byte.is_ascii_control())
    });
    for _ in 0..REDIRECTIONS_MAX {
        let (head, bytes) = fetch_one(proxy, &url, &fields)?;
        let target = head.fields.text("Location").filter(|_| matches!(head.status, 301 | 302 | 303 | 307 | 308));
        match target.and_then(|target| resolve(&url, target)) {
            Some(next) => {
                // Another origin is told what kinds of answers are taken, and nothing else.
                if next.authority() != url.authority() || next.scheme != url.scheme {
                    fields.retain(|(name, _)| name.to_ascii_lowercase().starts_with("accept"));
                }
                url = next;
            }
            None => return Ok(Fetched { status: head.status, bytes }),
        }
    }
    Err(invalid("it is redirected too often"))
}

fn fetch_one(proxy: SocketAddr, url: &Url, fields: &[(String, String)]) -> io::Result<(ResponseHead, u64)> {
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
    let mut body = Body { bytes: (read.len() - used) as u64, end: read[used..].to_vec() };
    let mut some = vec![0; 256 * 1024];
    loop {
        match stream.read(&mut some)? {
            0 => break,
            length => body.add(&some[..length]),
        }
    }
    if body.is_whole(&head) { Ok((head, body.bytes)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// A body of which only the length and the end are remembered.
struct Body {
    bytes: u64,
    end: Vec<u8>,
}

impl Body {
    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.end.extend_from_slice(piece);
        let superfluous = self.end.len().saturating_sub(LAST_CHUNK.len());
        self.end.drain(..superfluous);
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

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str) -> LaterRequest {
        LaterRequest { url: url.to_owned(), fields: Vec::from([("Accept".to_owned(), "*/*".to_owned())]) }
    }

    #[test]
    fn the_list_has_each_request_once_and_belongs_to_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let later = Later::of(folder.path());
        assert_eq!(later.read().unwrap(), []);
        later.add(&[request("http://a.example/1"), request("http://a.example/2")]).unwrap();
        later.add(&[request("http://a.example/2"), request("http://a.example/3")]).unwrap();
        let urls: Vec<String> = later.read().unwrap().into_iter().map(|request| request.url).collect();
        assert_eq!(urls, ["http://a.example/1", "http://a.example/2", "http://a.example/3"]);
        assert_eq!(fs::metadata(&later.0).unwrap().permissions().mode() & 0o777, 0o600);
        // A line that somebody broke costs that line.
        let text = fs::read_to_string(&later.0).unwrap().replacen("{\"url\"", "{url", 1);
        fs::write(&later.0, text).unwrap();
        assert_eq!(later.read().unwrap().len(), 2);
        later.write(&[]).unwrap();
        assert!(!later.0.exists());
        later.write(&[]).unwrap();
    }
}
