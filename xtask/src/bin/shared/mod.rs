//! Code that the limits share: a listener and a poll, and sending as much as a socket takes.

// The server's own, so that the limit is told of connections in the way that the server is.
#[path = "../../../../crates/larder/src/deferred.rs"]
mod deferred;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// The token of the listener's events.
pub const LISTENER: u64 = u64::MAX;

/// A listener and the poll that knows it.
pub struct Gate {
    poll: OwnedFd,
    listener: TcpListener,
}

impl Gate {
    /// Listens on a port of 127.0.0.1.
    pub fn open(port: u16) -> io::Result<Gate> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        deferred::until_spoken(&listener)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Gate { poll, listener })
    }

    /// The next client that waits. An error is "no more of them" or a client that left: both end the batch.
    pub fn accept(&self) -> Option<TcpStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }

    /// Has a stream's events told, with this number. Closing it ends that.
    pub fn watch(&self, stream: &TcpStream, number: u64) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        Ok(epoll::add(&self.poll, stream, EventData::new_u64(number), events)?)
    }

    /// Waits for events.
    pub fn wait(&self, events: &mut Vec<Event>) -> io::Result<()> {
        match epoll::wait(&self.poll, spare_capacity(events), None) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            outcome => Ok(outcome.map(drop)?),
        }
    }
}

/// Sends; what the socket does not take at once is left in `unsent`.
pub fn send(stream: &mut TcpStream, mut bytes: &[u8], unsent: &mut Vec<u8>) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                *unsent = bytes.to_vec();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
