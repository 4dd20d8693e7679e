//! The limit of a miss: an event loop that copies bytes between a client's connection and one of its own to the
//! origin, and looks at none of them. What a proxy needs beyond this is its own.
//!
//! `relay PORT ORIGIN_PORT`, both on 127.0.0.1.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

const LISTENER: u64 = u64::MAX;
const READ_BYTES: usize = 64 * 1024;

fn main() -> io::Result<()> {
    let port = |at: usize| std::env::args().nth(at).and_then(|text| text.parse().ok());
    let usage = || io::Error::new(ErrorKind::InvalidInput, "usage: relay PORT ORIGIN_PORT");
    Loop::new(port(1).ok_or_else(usage)?, port(2).ok_or_else(usage)?)?.run()
}

struct Loop {
    poll: OwnedFd,
    listener: TcpListener,
    origin: u16,
    /// By number; a free place is `None`.
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

/// A client and its connection to the origin.
struct Pair {
    client: Side,
    origin: Side,
}

struct Side {
    stream: TcpStream,
    /// What the socket did not take at once.
    unsent: Vec<u8>,
}

impl Loop {
    fn new(port: u16, origin: u16) -> io::Result<Loop> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Loop { poll, listener, origin, pairs: Vec::new(), free: Vec::new(), buffer: vec![0; READ_BYTES] })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            match epoll::wait(&self.poll, spare_capacity(&mut events), None) {
                Err(rustix::io::Errno::INTR) => continue,
                outcome => outcome?,
            };
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    data => self.turn((data / 2) as usize, data % 2 == 0),
                }
            }
        }
    }

    fn accept(&mut self) {
        // An error here is "no more of them" or a client that left: both end the batch.
        while let Ok((client, _)) = self.listener.accept() {
            let number = self.free.pop().unwrap_or(self.pairs.len());
            let Ok(pair) = self.pair(client, number) else {
                self.free.push(number);
                continue;
            };
            match self.pairs.get_mut(number) {
                Some(place) => *place = Some(pair),
                None => self.pairs.push(Some(pair)),
            }
        }
    }

    fn pair(&self, client: TcpStream, number: usize) -> io::Result<Pair> {
        let origin = TcpStream::connect(("127.0.0.1", self.origin))?;
        for (stream, side) in [(&client, 0), (&origin, 1)] {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let events = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            epoll::add(&self.poll, stream, EventData::new_u64(number as u64 * 2 + side), events)?;
        }
        let side = |stream| Side { stream, unsent: Vec::new() };
        Ok(Pair { client: side(client), origin: side(origin) })
    }

    /// Something happened at one side of a pair.
    fn turn(&mut self, number: usize, is_client: bool) {
        let Some(pair) = self.pairs.get_mut(number).and_then(Option::as_mut) else { return };
        let (here, there) =
            if is_client { (&mut pair.client, &mut pair.origin) } else { (&mut pair.origin, &mut pair.client) };
        if pass(here, there, &mut self.buffer).is_err() {
            // Closing the sockets takes them out of the poll too.
            self.pairs[number] = None;
            self.free.push(number);
        }
    }
}

fn pass(here: &mut Side, there: &mut Side, buffer: &mut [u8]) -> io::Result<()> {
    let was_full = !here.unsent.is_empty();
    if was_full {
        here.send_the_rest()?;
    }
    copy(here, there, buffer)?;
    // What this side can take again, the other one may have kept.
    if was_full { copy(there, here, buffer) } else { Ok(()) }
}

/// Copies what there is. Reads nothing while the receiver is full; a short read says that there is no more.
fn copy(from: &mut Side, to: &mut Side, buffer: &mut [u8]) -> io::Result<()> {
    while to.unsent.is_empty() {
        match from.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                to.send(&buffer[..count])?;
                if count < buffer.len() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Side {
    fn send_the_rest(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.unsent = bytes.to_vec();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
