//! The limit of a machine: an event loop that answers every request with a fixed reply and does nothing else.
//! The work of a real server beyond this is what the comparison shows.
//!
//! `limit PORT`: `/16k` gets 16,384 bytes of body, `/1m` 1,048,576, everything else 600.

mod shared;

use shared::{Gate, LISTENER};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

const HEAD_BYTES_MAX: usize = 16 * 1024;

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let port: u16 = port.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "usage: limit PORT"))?;
    Loop::new(port)?.run()
}

struct Loop {
    gate: Gate,
    /// By number; a free place is `None`.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    replies: Replies,
}

struct Replies {
    small: Reply,
    medium: Reply,
    large: Reply,
}

/// The same answer for a connection that stays and for one that ends.
struct Reply {
    keep: Vec<u8>,
    close: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    head: Vec<u8>,
    /// Bytes that the socket did not take at once.
    unsent: Vec<u8>,
    closing: bool,
}

impl Reply {
    fn of(body_len: usize) -> Reply {
        let text = |last: &str| {
            let head = format!(
                "HTTP/1.1 200 OK\r\nServer: limit\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\n\
                 Content-Length: {body_len}\r\nCache-Control: max-age=86400\r\nAge: 1\r\n{last}\r\n"
            );
            [head.into_bytes(), vec![b'x'; body_len]].concat()
        };
        Reply { keep: text(""), close: text("Connection: close\r\n") }
    }
}

impl Replies {
    fn to(&self, head: &[u8]) -> &Reply {
        match head {
            head if head.starts_with(b"GET /16k ") => &self.medium,
            head if head.starts_with(b"GET /1m ") => &self.large,
            _ => &self.small,
        }
    }
}

impl Loop {
    fn new(port: u16) -> io::Result<Loop> {
        let replies = Replies { small: Reply::of(600), medium: Reply::of(16_384), large: Reply::of(1 << 20) };
        Ok(Loop { gate: Gate::open(port)?, connections: Vec::new(), free: Vec::new(), replies })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.gate.wait(&mut events)?;
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    number => self.serve(number as usize),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Some(stream) = self.gate.accept() {
            let number = self.free.pop().unwrap_or(self.connections.len());
            if self.gate.watch(&stream, number as u64).is_err() {
                self.free.push(number);
                continue;
            }
            let connection = Connection { stream, head: Vec::new(), unsent: Vec::new(), closing: false };
            match self.connections.get_mut(number) {
                Some(place) => *place = Some(connection),
                None => self.connections.push(Some(connection)),
            }
        }
    }

    fn serve(&mut self, number: usize) {
        let Some(connection) = self.connections.get_mut(number).and_then(Option::as_mut) else { return };
        if connection.turn(&self.replies).is_ok() {
            return;
        }
        // Closing the socket takes it out of the poll too.
        self.connections[number] = None;
        self.free.push(number);
    }
}

/// `ab` speaks HTTP/1.0, whose connections end without a word.
fn ends_with_its_answer(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or(head);
    line.ends_with(b" HTTP/1.0") || head.windows(17).any(|window| window.eq_ignore_ascii_case(b"Connection: close"))
}

impl Connection {
    /// Sends what is left, reads what came, answers whole heads. An error ends the connection.
    fn turn(&mut self, replies: &Replies) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)?;
        let mut buffer = [0; 8192];
        loop {
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.head.extend_from_slice(&buffer[..count]);
            self.answer(replies)?;
            if count < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Answers the whole heads that are there: one as it lies, several in one write.
    fn answer(&mut self, replies: &Replies) -> io::Result<()> {
        let (mut at, mut waiting, mut batch) = (0, None, Vec::new());
        while let Some(end) = self.head[at..].windows(4).position(|window| window == b"\r\n\r\n") {
            let head = &self.head[at..at + end + 4];
            at += head.len();
            self.closing = ends_with_its_answer(head);
            let reply = replies.to(head);
            let reply: &[u8] = if self.closing { &reply.close } else { &reply.keep };
            if let Some(before) = waiting.replace(reply) {
                batch.extend_from_slice(before);
            }
        }
        self.head.drain(..at);
        match waiting {
            Some(last) if batch.is_empty() => self.send(last)?,
            Some(last) => {
                batch.extend_from_slice(last);
                self.send(&batch)?;
            }
            None => {}
        }
        if self.head.len() > HEAD_BYTES_MAX { Err(ErrorKind::InvalidData.into()) } else { Ok(()) }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        shared::send(&mut self.stream, bytes, &mut self.unsent)?;
        if self.closing && self.unsent.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}
