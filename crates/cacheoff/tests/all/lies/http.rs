//! As much of HTTP as a small cache needs, slowly.

use larder_wire::date::{Stamp, format_date, parse_date};
use std::io::{self, Read};
use std::net::TcpStream;

/// A request or a reply.
#[derive(Clone, Default)]
pub struct Message {
    /// Its first line.
    pub start: String,
    /// Its fields in order.
    pub fields: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Message {
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    pub fn url(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    pub fn status(&self) -> u16 {
        self.url().parse().unwrap_or(0)
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
    }

    pub fn remove(&mut self, name: &str) {
        self.fields.retain(|(found, _)| !found.eq_ignore_ascii_case(name));
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.remove(name);
        self.fields.push((name.to_owned(), value.to_owned()));
    }

    pub fn set_date(&mut self, name: &str, unix: u64) {
        self.set(name, &String::from_utf8_lossy(&format_date(Stamp(unix))));
    }

    pub fn head(&self) -> Vec<u8> {
        let lines: String = self.fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{}\r\n{lines}\r\n", self.start).into_bytes()
    }
}

/// Reads a message, after which nothing comes; the body of a reply ends with the connection.
pub fn read_message(stream: &mut TcpStream, is_reply: bool) -> io::Result<Message> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&piece[..len]),
        }
    };
    let body = bytes.split_off(end);
    let mut message = message(bytes, body)?;
    if is_reply {
        stream.read_to_end(&mut message.body)?;
    } else if let Some(length) = message.get("Content-Length").and_then(|length| length.parse().ok()) {
        let come = message.body.len();
        message.body.resize(length, 0);
        stream.read_exact(&mut message.body[come..])?;
    }
    Ok(message)
}

/// Requests without bodies that come on one connection.
pub struct Heads {
    pub client: TcpStream,
    bytes: Vec<u8>,
}

impl Heads {
    pub fn of(client: TcpStream) -> Self {
        Self { client, bytes: Vec::new() }
    }

    /// Waits until at least one is whole, and gives those that are; none if no more come.
    pub fn wait(&mut self) -> io::Result<Vec<Message>> {
        let mut piece = [0; 16 * 1024];
        loop {
            let mut found = Vec::new();
            while let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.bytes.drain(..end + 4).collect();
                found.push(message(head, Vec::new())?);
            }
            if !found.is_empty() {
                return Ok(found);
            }
            match self.client.read(&mut piece)? {
                0 => return Ok(Vec::new()),
                len => self.bytes.extend_from_slice(&piece[..len]),
            }
        }
    }
}

/// A head and what came with it.
fn message(head: Vec<u8>, body: Vec<u8>) -> io::Result<Message> {
    let head = String::from_utf8(head).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let mut lines = head.lines();
    let start = lines.next().unwrap_or_default().to_owned();
    let field = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Message { start, fields: lines.filter_map(field).collect(), body })
}

/// The date in a field, in seconds since 1970.
pub fn field_seconds(message: &Message, name: &str) -> Option<u64> {
    parse_date(message.get(name)?.as_bytes()).map(|date| date.0)
}

/// As gzip (RFC 1952) with stored blocks (RFC 1951 section 3.2.4).
pub fn compressed(body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut blocks = body.chunks(1_000).peekable();
    if blocks.peek().is_none() {
        out.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend(len.to_le_bytes());
        out.extend((!len).to_le_bytes());
        out.extend(block);
    }
    out.extend(crc32(body).to_le_bytes());
    out.extend((body.len() as u32).to_le_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}
