//! An origin that stands in while a cache starts. The real ones listen when the run begins; a cache that finds nobody
//! before that takes its origin for dead and refuses the first requests of the run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_millis(500);
const ANSWER: &[u8] =
    b"HTTP/1.1 404 Not Found\r\nCache-Control: no-store\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Answers anything with 404, not to be stored; dropping it frees the port.
pub struct StandIn {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Listens, unless somebody does already.
    pub fn start(address: SocketAddr) -> Option<Self> {
        let listener = TcpListener::bind(address).ok()?;
        listener.set_nonblocking(true).ok()?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Relaxed) {
                match listener.accept() {
                    // A connection that breaks is the cache's choice.
                    Ok((stream, _)) => drop(answer(stream)),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Some(Self { stop, thread: Some(thread) })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if stream.read(&mut [0; 4096])? > 0 {
        stream.write_all(ANSWER)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_frees_its_port_and_lets_others_be() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(StandIn::start(other.local_addr().unwrap()).is_none());
        let address = {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap()
        };
        let stand_in = StandIn::start(address).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 404"), "{reply}");
        drop(stand_in);
        assert!(TcpListener::bind(address).is_ok());
    }
}
