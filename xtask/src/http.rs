//! A small blocking HTTP/1 client for chores: it sends what it is told and reads any answer it can make
//! sense of. It is no model of a good client, and it takes nothing from the crates under test.

use crate::shell::Trouble;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

/// An answer, its body without transfer coding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Names in lower case, in order.
    pub fields: Vec<(String, String)>,
    /// The content as received, content coding kept.
    pub body: Vec<u8>,
    /// Whether the connection may be used again.
    pub keeps: bool,
}

impl Answer {
    /// The first field of that (lower case) name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A connection to a server on this machine.
pub struct Connection {
    reader: BufReader<TcpStream>,
}

const PATIENCE_SECONDS: u64 = 20;
const BODY_BYTES_MAX: usize = 64 << 20;

/// One request on a connection of its own.
pub fn get(port: u16, path: &str) -> Result<Answer, Trouble> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    Connection::open(port)?.ask(request.as_bytes(), false)
}

impl Connection {
    /// Connects to a port of 127.0.0.1.
    pub fn open(port: u16) -> Result<Connection, Trouble> {
        Connection::open_at(Ipv4Addr::LOCALHOST.into(), port)
    }

    /// Connects to a port of an address of this machine.
    pub fn open_at(address: IpAddr, port: u16) -> Result<Connection, Trouble> {
        let stream = TcpStream::connect((address, port)).map_err(|error| format!("port {port}: {error}"))?;
        let patience = Some(Duration::from_secs(PATIENCE_SECONDS));
        let set = stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience));
        set.and_then(|()| stream.set_nodelay(true)).map_err(|error| format!("port {port}: {error}"))?;
        Ok(Connection { reader: BufReader::with_capacity(64 << 10, stream) })
    }

    /// Sends a whole request and reads its answer.
    pub fn ask(&mut self, request: &[u8], is_head: bool) -> Result<Answer, Trouble> {
        self.reader.get_mut().write_all(request).map_err(|error| format!("sending: {error}"))?;
        self.read_answer(is_head)
    }

    fn read_answer(&mut self, is_head: bool) -> Result<Answer, Trouble> {
        loop {
            let status_line = self.line()?;
            let (version, status) = read_status_line(&status_line)?;
            let mut fields = Vec::new();
            loop {
                let line = self.line()?;
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(':').ok_or_else(|| format!("a field without colon: {line:?}"))?;
                fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            // Interim answers come before the one that counts.
            if (100..200).contains(&status) {
                continue;
            }
            let mut answer = Answer { status, fields, body: Vec::new(), keeps: false };
            let framed = self.read_body(&mut answer, is_head)?;
            let connection = answer.field("connection").unwrap_or_default().to_ascii_lowercase();
            let wants = if version == "HTTP/1.1" { connection != "close" } else { connection == "keep-alive" };
            answer.keeps = framed && wants;
            return Ok(answer);
        }
    }

    /// Reads the body; false when only the end of the connection ends it.
    fn read_body(&mut self, answer: &mut Answer, is_head: bool) -> Result<bool, Trouble> {
        if is_head || matches!(answer.status, 204 | 304) {
            return Ok(true);
        }
        if answer.field("transfer-encoding").is_some() {
            self.read_chunks(&mut answer.body)?;
            return Ok(true);
        }
        let Some(length) = answer.field("content-length") else {
            self.read_exactly(&mut answer.body, None)?;
            return Ok(false);
        };
        let length: usize = length.parse().map_err(|_| format!("a strange content-length: {length:?}"))?;
        self.read_exactly(&mut answer.body, Some(length))?;
        Ok(true)
    }

    fn read_chunks(&mut self, body: &mut Vec<u8>) -> Result<(), Trouble> {
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(digits, 16).map_err(|_| format!("a strange chunk size: {line:?}"))?;
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(());
            }
            self.read_exactly(body, Some(size))?;
            if !self.line()?.is_empty() {
                return Err("bytes between the end of a chunk and its line end".into());
            }
        }
    }

    fn read_exactly(&mut self, body: &mut Vec<u8>, len: Option<usize>) -> Result<(), Trouble> {
        let limit = len.unwrap_or(BODY_BYTES_MAX);
        if body.len() + limit > 2 * BODY_BYTES_MAX {
            return Err(format!("a body of more than {BODY_BYTES_MAX} bytes"));
        }
        let read = self.reader.by_ref().take(limit as u64).read_to_end(body);
        let read = read.map_err(|error| format!("reading a body: {error}"))?;
        if len.is_some_and(|len| len != read) {
            return Err(format!("the body ended after {read} of {limit} bytes"));
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String, Trouble> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).map_err(|error| format!("reading a head: {error}"))?;
        if line.pop() != Some(b'\n') {
            return Err("the connection ended within a head".into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

fn read_status_line(line: &str) -> Result<(&str, u16), Trouble> {
    let mut words = line.split(' ');
    let (version, status) = (words.next(), words.next().and_then(|word| word.parse().ok()));
    version.zip(status).ok_or_else(|| format!("not a status line: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answers(bytes: &'static [u8], count: usize) -> Vec<Result<Answer, Trouble>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(bytes).unwrap());
        let mut connection = Connection::open(port).unwrap();
        let read = (0..count).map(|_| connection.read_answer(false)).collect();
        server.join().unwrap();
        read
    }

    #[test]
    fn framings_are_read() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n1\r\nd\r\n0\r\nT: 1\r\n\r\n\
                      HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nefHTTP/1.0 200 OK\r\n\r\nghi";
        let read: Vec<_> =
            answers(bytes, 4).into_iter().map(|a| a.map(|a| (a.status, a.body, a.keeps)).unwrap()).collect();
        let wanted: [(u16, &[u8], bool); 4] =
            [(200, b"abcd", true), (304, b"", true), (200, b"ef", true), (200, b"ghi", false)];
        assert_eq!(read, wanted.map(|(status, body, keeps)| (status, body.to_vec(), keeps)));
    }

    #[test]
    fn a_short_body_is_an_error() {
        let read = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 1);
        assert_eq!(read[0], Err("the body ended after 3 of 5 bytes".into()));
    }
}
