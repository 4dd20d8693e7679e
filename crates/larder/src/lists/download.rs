//! The client that brings lists: one GET at a time, on a thread that no request waits for. Other threads of that kind use its parts for
//! requests of their own.

use crate::config::list::Sha256;
use crate::tls;
use aws_lc_rs::digest;
use larder_wire::body::{Decoder, Event};
use larder_wire::directives::CacheControl;
use larder_wire::parse::{self, HeadLimits, Parsed};
use larder_wire::target::resolve;
use larder_wire::{Fields, Host, Method, ResponseHead, Scheme, Side, Url, framing};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an address may take to be connected to.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a download may take altogether.
pub const DOWNLOAD_WITHIN: Duration = Duration::from_secs(1_800);
/// Interim responses (RFC 9110 section 15.2) in front of an answer.
const INTERIM_HEADS_MAX: usize = 32;
/// Redirections that are followed.
const REDIRECTIONS_MAX: usize = 5;

/// The validators of a content that is there already (RFC 9110 section 13.1); empty ones are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// For `If-None-Match`.
    pub etag: String,
    /// For `If-Modified-Since`.
    pub last_modified: String,
}

/// The answer to a conditional GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Downloaded {
    /// 304: what is there is the newest.
    NotModified,
    /// 200: the body was written.
    Content {
        /// The validators for the next request.
        validators: Validators,
        /// The SHA-256 of the body.
        sha256: Sha256,
        /// How long it is fresh by `Cache-Control` (RFC 9111 section 5.2.2), where that says so.
        fresh_for: Option<Duration>,
    },
}

/// Fetches a URL, and writes the body to `to`. An answer that ends too early is an error, and so is a body of more bytes than `bytes_max`.
/// All of it, from the first address to the last byte, ends `within` that time: other lists wait for it.
pub fn fetch(
    within: Duration,
    url: &Url,
    validators: &Validators,
    tls: &Arc<ClientConfig>,
    bytes_max: u64,
    to: &mut impl Write,
) -> io::Result<Downloaded> {
    let end = Instant::now() + within;
    let mut url = url.clone();
    for _ in 0..=REDIRECTIONS_MAX {
        let mut answer = Answer::ask(&url, request(&url, validators).as_bytes(), tls, end)?;
        let location =
            answer.head.fields.text("Location").filter(|_| matches!(answer.head.status, 301 | 302 | 303 | 307 | 308));
        match (answer.head.status, location) {
            (200, _) => {
                let sha256 = content(&mut answer, bytes_max, to)?;
                let fields = &answer.head.fields;
                let (validators, fresh_for) = (validators_of(fields), fresh_for(fields));
                return Ok(Downloaded::Content { validators, sha256, fresh_for });
            }
            (304, _) if *validators != Validators::default() => return Ok(Downloaded::NotModified),
            (_, Some(location)) => {
                let next =
                    resolve(&url, location).ok_or_else(|| invalid("it is redirected to something that is no URL"))?;
                if (url.scheme, next.scheme) == (Scheme::Https, Scheme::Http) {
                    return Err(invalid(format!("it is redirected from https to {next}, which is not protected")));
                }
                url = next;
            }
            (status, None) => return Err(invalid(format!("{} answered {status}", url.host))),
        }
    }
    Err(invalid(format!("it is redirected more than {REDIRECTIONS_MAX} times")))
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn validators_of(fields: &Fields) -> Validators {
    let text = |name| fields.text(name).unwrap_or_default().to_owned();
    Validators { etag: text("ETag"), last_modified: text("Last-Modified") }
}

fn fresh_for(fields: &Fields) -> Option<Duration> {
    let control = CacheControl::of(fields);
    match control.no_store || control.no_cache.is_some() {
        true => Some(Duration::ZERO),
        false => control.max_age.map(Duration::from_secs),
    }
}

/// The time that is left.
fn left(end: Instant) -> io::Result<Duration> {
    match end.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long altogether")),
        left => Ok(left),
    }
}

/// A connection of which no read and no write goes on beyond the end of the download, whatever is sent through it: parts of a handshake, of
/// a head or of a body.
pub struct Timed {
    /// The connection.
    pub tcp: TcpStream,
    /// When everything on it has to have ended.
    pub end: Instant,
}

impl Timed {
    fn wait(&self) -> io::Result<Option<Duration>> {
        Ok(Some(left(self.end)?.min(SILENCE_MAX)))
    }

    /// A timeout of a socket is `WouldBlock` on Unix, which TLS would take for a pause.
    fn fault(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => left(self.end)
                .err()
                .unwrap_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the answer was silent for too long")),
            _ => error,
        }
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(self.wait()?)?;
        self.tcp.read(to).map_err(|error| self.fault(error))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(self.wait()?)?;
        self.tcp.write(bytes).map_err(|error| self.fault(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Writes the body of an answer to `to`, and gives its SHA-256.
fn content(answer: &mut Answer, bytes_max: u64, to: &mut impl Write) -> io::Result<Sha256> {
    if answer.head.fields.text("Content-Encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
        // An unpacked file may have the digest that is configured; a coding that nobody asked for changes it.
        return Err(invalid("it came in a coding that was not asked for"));
    }
    let mut sum = digest::Context::new(&digest::SHA256);
    answer.body(&Method::Get, bytes_max, |piece| {
        sum.update(piece);
        to.write_all(piece)
    })?;
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(sum.finish().as_ref());
    Ok(sha256)
}

/// An answer whose head was read.
pub struct Answer {
    stream: Box<dyn Stream>,
    /// Its head.
    pub head: ResponseHead,
    /// Bytes behind the head that were read with it.
    read: Vec<u8>,
}

impl Answer {
    /// Sends a request on a connection of its own, and reads the head of the answer. All of it, the body too, has to end before `end`.
    pub fn ask(url: &Url, request: &[u8], tls: &Arc<ClientConfig>, end: Instant) -> io::Result<Answer> {
        let tcp = Timed { tcp: connect(&url.host, url.port, end)?, end };
        let mut stream: Box<dyn Stream> = match url.scheme {
            // No list is taken from an FTP server: its URL is refused where it is configured.
            Scheme::Http | Scheme::Ftp => Box::new(tcp),
            Scheme::Https => {
                let name = tls::server_name(&url.host).ok_or_else(|| invalid("no certificate can name its host"))?;
                let client = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(client, tcp))
            }
        };
        stream.write_all(request)?;
        stream.flush()?;
        let mut read = Vec::new();
        let mut some = [0; 16 << 10];
        let mut interim_heads = 0;
        loop {
            match parse::response(&read, &HeadLimits::default()) {
                Ok(Parsed::Complete { head, len }) if head.is_interim() => {
                    read.drain(..len);
                    interim_heads += 1;
                    if interim_heads > INTERIM_HEADS_MAX {
                        return Err(invalid(format!("it has more than {INTERIM_HEADS_MAX} interim responses")));
                    }
                }
                Ok(Parsed::Complete { head, len }) => {
                    read.drain(..len);
                    return Ok(Answer { stream, head, read });
                }
                Ok(Parsed::Partial) => match read_some(&mut stream, &mut some)? {
                    0 => return Err(invalid("the connection was closed before an answer")),
                    length => read.extend_from_slice(&some[..length]),
                },
                Err(fault) => return Err(invalid(fault.detail)),
            }
        }
    }

    /// Gives the pieces of the body to `take`; one of more bytes than `bytes_max` is an error. `method` is that of the request.
    pub fn body(
        &mut self,
        method: &Method,
        bytes_max: u64,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let framing = framing::of_response(&self.head, method).map_err(|fault| invalid(fault.detail))?;
        let mut decoder = Decoder::new(framing, Side::Origin);
        let mut bytes = 0;
        let mut some = vec![0; 64 << 10];
        loop {
            let decoded = decoder.decode(&self.read).map_err(|fault| invalid(fault.detail))?;
            match decoded.event {
                Event::Data(range) => {
                    let piece = &self.read[range];
                    bytes += piece.len() as u64;
                    if bytes > bytes_max {
                        return Err(invalid(format!("it is longer than {bytes_max} bytes, the limit")));
                    }
                    take(piece)?;
                }
                Event::End(_) => return Ok(()),
                Event::NeedMore => {
                    self.read.drain(..decoded.consumed);
                    match read_some(&mut self.stream, &mut some)? {
                        0 => {
                            decoder.finish().map_err(|_| invalid("the connection was closed inside the body"))?;
                            return Ok(());
                        }
                        length => self.read.extend_from_slice(&some[..length]),
                    }
                    continue;
                }
            }
            self.read.drain(..decoded.consumed);
        }
    }
}

/// A TLS connection that is closed without a notice may have been cut by somebody else: that is an error, not an end.
fn read_some(stream: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(to) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

fn request(url: &Url, validators: &Validators) -> String {
    let mut text = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: larder/{}\r\nAccept: */*\r\nAccept-Encoding: identity\r\nConnection: close\r\n",
        url.path,
        url.authority(),
        env!("CARGO_PKG_VERSION"),
    );
    for (name, value) in [("If-None-Match", &validators.etag), ("If-Modified-Since", &validators.last_modified)] {
        if !value.is_empty() {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    text + "\r\n"
}

/// Connects to a host. The resolver of the system has time limits of its own; the addresses that it gives share what is left.
pub fn connect(host: &Host, port: u16, end: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = match host.ip() {
        Some(address) => vec![SocketAddr::new(address, port)],
        None => (host.as_str(), port).to_socket_addrs()?.collect(),
    };
    let mut trouble = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, left(end)?.min(CONNECT_WITHIN)) {
            Ok(stream) => return Ok(stream),
            Err(error) => trouble = io::Error::new(error.kind(), format!("cannot connect to {address}: {error}")),
        }
    }
    Err(trouble)
}
