//! A small origin for state tests: any path is an object, its bytes follow from the path, each answer has a serial number.
//!
//! The serial number tells a hit from a miss without trusting the cache: an answer whose number was given out before the
//! request was sent comes from a store.

use larder_wire::date::{Stamp, format_date};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Size of every object.
pub const OBJECT_BYTES: usize = 8_192;
/// Field that carries the serial number.
pub const SERIAL: &str = "x-serial";
/// Connections that are served at once; more wait in the backlog.
const CONNECTIONS_MAX: u64 = 512;
const LINE_BYTES_MAX: u64 = 16_384;
const IDLE: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(5);

/// A running origin; dropping it stops it.
#[derive(Debug)]
pub struct Origin {
    address: SocketAddr,
    serial: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    /// Listens on an address; port 0 takes a free one.
    pub fn start(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (serial, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut origin =
            Self { address: listener.local_addr()?, serial: serial.clone(), stop: stop.clone(), thread: None };
        origin.thread = Some(std::thread::spawn(move || {
            let open = Arc::new(AtomicU64::new(0));
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                    open.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (serial, open) = (serial.clone(), open.clone());
                std::thread::spawn(move || {
                    // A connection that breaks is the cache's choice.
                    let _ = serve(stream, &serial);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }));
        Ok(origin)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The last serial number that was given out.
    pub fn serial(&self) -> u64 {
        self.serial.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return };
        // The port is free when the thread is through: the next origin may want it at once.
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < STOP_MAX {
            let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve(stream: TcpStream, serial: &AtomicU64) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_nodelay(true)?;
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let Some(Request { path, is_last }) = request(&mut lines)? else { return Ok(()) };
        let number = serial.fetch_add(1, Ordering::SeqCst) + 1;
        let body = body(&path);
        let head = format!(
            "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nCache-Control: \
             public, max-age=86400\r\nLast-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\nETag: \"v1\"\r\n{SERIAL}: {number}\r\n\r\n",
            String::from_utf8_lossy(&format_date(now())),
            body.len()
        );
        out.write_all(&[head.as_bytes(), &body].concat())?;
        if is_last {
            return Ok(());
        }
    }
}

fn now() -> Stamp {
    Stamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

struct Request {
    /// Without its scheme and authority.
    path: String,
    /// Whether the client closes the connection after it.
    is_last: bool,
}

fn request(lines: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut first = String::new();
    if limited(lines, &mut first)? == 0 {
        return Ok(None);
    }
    let target = first.split(' ').nth(1).unwrap_or("/");
    let path = target.strip_prefix("http://").map_or(target, |rest| rest.find('/').map_or("/", |slash| &rest[slash..]));
    let mut found = Request { path: path.to_owned(), is_last: false };
    let mut line = String::new();
    while limited(lines, &mut line)? > 2 {
        let line_read = std::mem::take(&mut line).to_ascii_lowercase();
        found.is_last |= line_read.starts_with("connection:") && line_read.contains("close");
    }
    Ok(Some(found))
}

fn limited(lines: &mut impl BufRead, line: &mut String) -> std::io::Result<usize> {
    std::io::Read::take(lines, LINE_BYTES_MAX).read_line(line)
}

/// The bytes of an object: its path again and again, with a count, so that no two objects share a block.
pub fn body(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OBJECT_BYTES + 64);
    let mut count = 0_u32;
    while bytes.len() < OBJECT_BYTES {
        bytes.extend(format!("{path} {count:06}\n").into_bytes());
        count += 1;
    }
    bytes.truncate(OBJECT_BYTES);
    bytes
}
