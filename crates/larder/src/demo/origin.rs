//! The origin of the demo: HTTPS on a free port of this machine, with a CA that nobody but the demo's own Larder trusts. Its answers
//! come 20 ms late and at 100 Mbit/s, as those of a server a country away do.

use super::AnyError;
use crate::clock;
use crate::tls::ca::Authority;
use larder_wire::Host;
use larder_wire::date::format_date;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Length of the large file.
pub(super) const FILE_BYTES: usize = 24_000_000;
/// How late answers are.
pub(super) const DELAY: Duration = Duration::from_millis(20);
/// How fast they are.
pub(super) const BYTES_PER_SECOND: usize = 12_500_000;
/// Connections that are served at a time.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 16 * 1024;
/// Bytes between two looks at the clock.
const PIECE: usize = 64 * 1024;

/// Serves until it is stopped.
pub(super) struct Origin {
    address: SocketAddr,
    certificate: PathBuf,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    tls: Arc<ServerConfig>,
    asked: AtomicU64,
    connections: AtomicUsize,
    stopped: AtomicBool,
}

impl Origin {
    /// Makes a CA in `folder` and begins to serve.
    pub(super) fn start(folder: &Path) -> Result<Origin, AnyError> {
        let authority = Authority::open(folder, clock::now())?;
        let localhost = Host::parse("localhost").ok_or("localhost is no host")?;
        let shared = Arc::new(Shared {
            tls: authority.server_config(&localhost, false, clock::now())?,
            asked: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("demo origin".into()).spawn(move || accept(&listener, &shared))?
        };
        Ok(Origin { address, certificate: authority.certificate_path(), shared, accepting: Some(accepting) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate to trust.
    pub(super) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Requests that were answered.
    pub(super) fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Closes its port. Whether it did.
    pub(super) fn stop(mut self) -> bool {
        self.close()
    }

    fn close(&mut self) -> bool {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // It waits for a connection.
        let _ = TcpStream::connect(self.address);
        self.accepting.take().is_some_and(|accepting| accepting.join().is_ok())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.close();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let of_connection = Arc::clone(shared);
        let served = thread::Builder::new().name("demo connection".into()).spawn(move || {
            // A client that goes away ends its connection.
            let _ = serve(stream, &of_connection);
            of_connection.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if served.is_err() {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> Result<(), AnyError> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    stream.set_nodelay(true)?;
    let connection = ServerConnection::new(Arc::clone(&shared.tls))?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    while let Some(request) = read_request(&mut stream)? {
        let answer = answer(&request);
        shared.asked.fetch_add(1, Ordering::Relaxed);
        thread::sleep(DELAY);
        write_paced(stream.get_mut(), &answer)?;
    }
    Ok(())
}

struct Request {
    target: String,
    takes_gzip: bool,
}

/// `None` where the connection ended.
fn read_request(stream: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut stream = io::Read::take(stream, HEAD_BYTES_MAX);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let Some(target) = line.split(' ').nth(1).map(str::to_owned) else { return Ok(None) };
    let mut takes_gzip = false;
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => return Ok(Some(Request { target, takes_gzip })),
            field => {
                let field = field.to_ascii_lowercase();
                takes_gzip |= field.starts_with("accept-encoding:") && field.contains("gzip");
            }
        }
    }
}

/// Head and body of an answer.
fn answer(request: &Request) -> Vec<u8> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let redirect = |to: &str| whole("302 Found", &format!("Location: {to}\r\nCache-Control: max-age=300\r\n"), b"");
    match path {
        "/notes.txt" => whole(
            "200 OK",
            "Content-Type: text/plain\r\nCache-Control: max-age=1\r\nETag: \"notes-7\"\r\n",
            notes().as_bytes(),
        ),
        "/index.json" => {
            let fields = "Content-Type: application/json\r\nCache-Control: max-age=600\r\nVary: Accept-Encoding\r\n";
            match request.takes_gzip {
                true => {
                    let fields = format!("{fields}ETag: \"index-7-gzip\"\r\nContent-Encoding: gzip\r\n");
                    whole("200 OK", &fields, &gzip(index().as_bytes()))
                }
                false => whole("200 OK", &format!("{fields}ETag: \"index-7\"\r\n"), index().as_bytes()),
            }
        }
        "/latest" => redirect("/releases/2.4.1/tool.tar"),
        "/releases/2.4.1/tool.tar" => redirect("/storage/9f86d081?expires=1893456000&signature=c2lnbmVk"),
        "/storage/9f86d081" if query.contains("signature=c2lnbmVk") => whole(
            "200 OK",
            "Content-Type: application/x-tar\r\nCache-Control: max-age=31536000, immutable\r\nETag: \"9f86d081\"\r\n",
            &large_file(),
        ),
        _ => whole("404 Not Found", "", b""),
    }
}

fn whole(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let date = format_date(clock::now());
    let date = String::from_utf8_lossy(&date);
    let head = format!("HTTP/1.1 {status}\r\nDate: {date}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn write_paced(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let (began, mut sent) = (Instant::now(), 0);
    for piece in bytes.chunks(PIECE) {
        out.write_all(piece)?;
        sent += piece.len();
        let due = Duration::from_secs_f64(sent as f64 / BYTES_PER_SECOND as f64);
        thread::sleep(due.saturating_sub(began.elapsed()));
    }
    out.flush()
}

/// Whether a downloaded file is what the origin has.
pub(super) fn is_whole(name: &str, bytes: &[u8]) -> bool {
    match name {
        "notes.txt" => bytes == notes().as_bytes(),
        "index.json" => bytes == index().as_bytes(),
        _ => bytes == large_file(),
    }
}

fn notes() -> String {
    "Version 2.4.1 answers twice as fast the second time.\n".repeat(20)
}

fn index() -> String {
    let releases =
        (0..200).map(|minor| format!("{{\"version\":\"2.{minor}.1\",\"file\":\"/releases/2.{minor}.1/tool.tar\"}}"));
    format!("[{}]\n", releases.collect::<Vec<_>>().join(",\n"))
}

/// Bytes of a fixed sequence that no compression makes smaller.
fn large_file() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(FILE_BYTES + 8);
    while bytes.len() < FILE_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(FILE_BYTES);
    bytes
}

/// Gzip (RFC 1952) with stored blocks (RFC 1951 section 3.2.4): the index has one block's length at most.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = bytes.chunks(usize::from(u16::MAX)).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&crc32(bytes).to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_gzip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_signed_url_without_its_signature_leads_nowhere() {
        let ask = |target: &str| answer(&Request { target: target.to_owned(), takes_gzip: false });
        assert!(ask("/storage/9f86d081").starts_with(b"HTTP/1.1 404"));
        assert!(ask("/latest").starts_with(b"HTTP/1.1 302"));
        assert!(is_whole("notes.txt", notes().as_bytes()) && !is_whole("tool.tar", b""));
    }
}
