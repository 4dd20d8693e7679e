//! A way between a cache and an origin that hears what is asked for: so another generator can ask for the very object
//! that the referee's robots asked for, which the cache has by then.

use crate::shell::Trouble;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

const BUFFER_BYTES: usize = 16 << 10;

/// Passes bytes on between a port, where a cache takes it for its origin, and the port of the origin. Dropping it ends it.
pub struct Ear {
    port: u16,
    heard: Arc<Mutex<Option<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ear {
    /// Listens on `port` of 127.0.0.1; whether anybody listens on `origin` shows when a cache asks.
    pub fn start(port: u16, origin: u16) -> Result<Ear, Trouble> {
        let listener = TcpListener::bind(("127.0.0.1", port));
        let listener = listener.map_err(|error| format!("port {port} for the way to the origin: {error}"))?;
        let (heard, is_over) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (hears, sees) = (heard.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if sees.load(Relaxed) {
                    return;
                }
                let heard = hears.clone();
                // It ends with either side; a side that breaks is the other's to notice.
                std::thread::spawn(move || pass_on(client, origin, &heard).ok());
            }
        });
        Ok(Ear { port, heard, is_over, thread: Some(thread) })
    }

    /// The path of the last object that was asked for.
    pub fn heard(&self) -> Option<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Somebody must come, or it goes on waiting for somebody.
        if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            self.thread.take().map(JoinHandle::join);
        }
    }
}

fn pass_on(mut client: TcpStream, origin: u16, heard: &Mutex<Option<String>>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", origin))?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        io::copy(&mut answers, &mut back).ok();
        back.shutdown(Shutdown::Both).ok();
    });
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return server.shutdown(Shutdown::Both);
        }
        if let Some(path) = path_of(&buffer[..length]) {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(path.to_owned());
        }
        server.write_all(&buffer[..length])?;
    }
}

/// Of an object: the root is what those ask for who look whether somebody is there.
fn path_of(request: &[u8]) -> Option<&str> {
    let line = request.strip_prefix(b"GET ")?.split(|byte| *byte == b'\r').next()?;
    let path = std::str::from_utf8(line).ok()?.strip_suffix(" HTTP/1.1")?;
    (path.starts_with('/') && path.len() > 1).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{http, lab};

    #[test]
    fn paths_of_objects_are_heard() {
        assert_eq!(path_of(b"GET /a/b?c HTTP/1.1\r\nHost: x\r\n\r\n"), Some("/a/b?c"));
        for other in
            ["GET / HTTP/1.1\r\n\r\n", "POST /a HTTP/1.1\r\n\r\n", "GET /half-a-li", "", "GET http://a/ HTTP/1.1\r\n"]
        {
            assert_eq!(path_of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_asked_is_passed_on_and_heard() {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = lab::free_port().unwrap();
        let ear = Ear::start(port, origin.local_addr().unwrap().port()).unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = origin.accept().unwrap();
            let length = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            length
        });
        assert_eq!(ear.heard(), None);
        assert_eq!(http::get(port, "/object").unwrap().body, b"ok");
        assert_eq!(ear.heard().as_deref(), Some("/object"));
        assert!(answering.join().unwrap() > 0);
        drop(ear);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it listens no more");
    }
}
