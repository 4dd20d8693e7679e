//! The ways from robots through the cache to origins, tried before the run: a megabyte each, so that a link that is missing
//! or slow is named before figures are made over it.

use super::message::Way;
use crate::ledger::Mode;
use crate::robot::Route;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a transfer.
const BYTES: usize = 1 << 20;
/// A transfer that takes longer is broken off, and its speed is that until then.
const LONG: Duration = Duration::from_secs(3);
/// How often the responder looks for connections.
const LOOK: Duration = Duration::from_millis(5);

/// Answers probes on the sockets of the origins until the run begins.
pub(super) struct Responder {
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Responder {
    /// On copies of these sockets.
    pub fn start(sockets: &[TcpListener]) -> io::Result<Self> {
        let sockets = sockets.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
        let ends = Arc::new(AtomicBool::new(false));
        let asked = ends.clone();
        let thread = std::thread::spawn(move || {
            while !asked.load(Relaxed) {
                let mut quiet = true;
                for socket in &sockets {
                    if let Ok((stream, _)) = socket.accept() {
                        quiet = false;
                        // One after the other: probes come one after the other too.
                        let _ = respond(stream);
                    }
                }
                if quiet {
                    std::thread::sleep(LOOK);
                }
            }
        });
        Ok(Self { ends, thread: Some(thread) })
    }

    /// The sockets are the origins' again.
    pub fn end(mut self) {
        self.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
    }
}

fn respond(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    let (mut head, mut piece, begun) = (Vec::new(), [0; 1024], Instant::now());
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            // Byte by byte a client would hold up the agent, which answers one after the other.
            _ if begun.elapsed() > LONG => return Err(ErrorKind::TimedOut.into()),
            len if head.len() + len <= 16 << 10 => head.extend_from_slice(&piece[..len]),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: {BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let (begun, zeros) = (Instant::now(), vec![0; 64 << 10]);
    for _ in 0..BYTES / zeros.len() {
        stream.write_all(&zeros)?;
        if begun.elapsed() > LONG {
            break;
        }
    }
    Ok(())
}

/// The way to an origin: through the cache where it is a forward proxy, which is told where to; else straight.
pub(super) fn probe(route: &Route, origin: SocketAddr) -> Result<Way, String> {
    let through = route.address.filter(|_| route.mode == Mode::Forward);
    let fetch = || -> io::Result<Way> {
        let begun = Instant::now();
        let mut stream = TcpStream::connect_timeout(&through.unwrap_or(origin), LONG)?;
        let connect_us = begun.elapsed().as_micros() as u64;
        stream.set_read_timeout(Some(LONG))?;
        stream.set_write_timeout(Some(LONG))?;
        let target =
            if through.is_some() { format!("http://{origin}/cacheoff-way") } else { "/cacheoff-way".to_owned() };
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n")?;
        let (begun, mut piece, mut bytes) = (Instant::now(), vec![0; 64 << 10], 0);
        let mut start = Vec::new();
        while begun.elapsed() < LONG && bytes < BYTES {
            match stream.read(&mut piece)? {
                0 => break,
                len => {
                    start.extend(piece[..len].iter().take(12_usize.saturating_sub(start.len())));
                    bytes += len;
                }
            }
        }
        if !start.starts_with(b"HTTP/1.") || !start.ends_with(b" 200") {
            return Err(io::Error::other(format!("answered {:?}", String::from_utf8_lossy(&start))));
        }
        Ok(Way { connect_us, bytes_per_s: bytes as f64 / begun.elapsed().as_secs_f64().max(1e-6) })
    };
    fetch().map_err(|error| error.to_string())
}
