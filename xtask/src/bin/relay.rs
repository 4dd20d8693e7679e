//! The limit of a miss: an event loop that copies bytes between a client's connection and one of its own to the
//! origin, and looks at none of them. The work of a real proxy beyond this is what the comparison shows.
//!
//! `relay PORT ORIGIN_PORT`, both on 127.0.0.1.

mod shared;

use shared::{Gate, LISTENER};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

const READ_BYTES: usize = 64 * 1024;

fn main() -> io::Result<()> {
    let port = |at: usize| std::env::args().nth(at).and_then(|text| text.parse().ok());
    let usage = || io::Error::new(ErrorKind::InvalidInput, "usage: relay PORT ORIGIN_PORT");
    Loop::new(port(1).ok_or_else(usage)?, port(2).ok_or_else(usage)?)?.run()
}

struct Loop {
    gate: Gate,
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
    /// Bytes that the socket did not take at once.
    unsent: Vec<u8>,
}

impl Loop {
    fn new(port: u16, origin: u16) -> io::Result<Loop> {
        let gate = Gate::open(port)?;
        Ok(Loop { gate, origin, pairs: Vec::new(), free: Vec::new(), buffer: vec![0; READ_BYTES] })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.gate.wait(&mut events)?;
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    data => self.turn((data / 2) as usize, data % 2 == 0),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Some(client) = self.gate.accept() {
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
            self.gate.watch(stream, number as u64 * 2 + side)?;
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
    // This side has room again, so bytes that were left unread at the other side can follow.
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

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        shared::send(&mut self.stream, bytes, &mut self.unsent)
    }
}
