//! The generated origin: a URL decides the answer, so that every way to it must bring the same bytes.

use super::draw::{Framing, Object, chunked};
use crate::shell::Trouble;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const CHUNK_BYTES: usize = 13_007;
const UPLOAD_BYTES_MAX: u64 = 16 << 20;
const IDLE_SECONDS_MAX: u64 = 30;

/// Serves the objects of `seed` on a free port, a thread per connection, until the process ends.
pub fn serve(seed: u64) -> Result<u16, Trouble> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| format!("no port for an origin: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("no port for an origin: {error}"))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that leaves in the middle ends its own connection only.
            std::thread::spawn(move || converse(stream, seed).ok());
        }
    });
    Ok(address.port())
}

struct Asked {
    method: String,
    path: String,
    is_http11: bool,
    keeps: bool,
    takes_gzip: bool,
    upload: Vec<u8>,
}

fn converse(stream: TcpStream, seed: u64) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(IDLE_SECONDS_MAX)))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read_request(&mut reader)? {
        let keeps = answer(reader.get_mut(), &asked, seed)?;
        if !keeps {
            break;
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Asked>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(path), Some(version)) = (words.next(), words.next(), words.next()) else {
        return Err(ErrorKind::InvalidData.into());
    };
    let is_http11 = version == "HTTP/1.1";
    let mut asked = Asked { method, path, is_http11, keeps: is_http11, takes_gzip: false, upload: Vec::new() };
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim().to_ascii_lowercase();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().map_err(|_| ErrorKind::InvalidData)?,
            "transfer-encoding" => is_chunked = value == "chunked",
            "connection" if value.contains("close") => asked.keeps = false,
            "connection" if value.contains("keep-alive") => asked.keeps = true,
            "accept-encoding" => asked.takes_gzip = value.contains("gzip"),
            "expect" => reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
            _ => {}
        }
    }
    asked.upload = if is_chunked { read_chunks(reader)? } else { read_bytes(reader, length)? };
    Ok(Some(asked))
}

fn read_bytes(reader: &mut impl Read, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if len > UPLOAD_BYTES_MAX || reader.take(len).read_to_end(&mut bytes)? as u64 != len {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(bytes)
}

fn read_chunks(reader: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim_end().split(';').next().unwrap_or_default(), 16);
        let size = size.map_err(|_| ErrorKind::InvalidData)?;
        body.extend(read_bytes(reader, size)?);
        let mut end = String::new();
        reader.read_line(&mut end)?;
        if size == 0 || body.len() as u64 > UPLOAD_BYTES_MAX {
            return Ok(body);
        }
    }
}

/// Answers and says whether the connection goes on.
fn answer(stream: &mut TcpStream, asked: &Asked, seed: u64) -> io::Result<bool> {
    let number = asked.path.strip_prefix("/object/").and_then(|text| text.parse().ok());
    let Some(number) = number else {
        let body = format!("{} {} bytes, sum {:016x}\n", asked.method, asked.upload.len(), sum(&asked.upload));
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: no-store\r\n", body.len());
        stream.write_all(format!("{head}{}\r\n{body}", connection(asked, true)).as_bytes())?;
        return Ok(asked.keeps);
    };
    let object = Object::of(seed, number);
    let is_coded = object.has_gzip && asked.takes_gzip;
    let body = if is_coded { gzip(&object.body()) } else { object.body() };
    let framing = match object.framing {
        Framing::Chunked if !asked.is_http11 => Framing::Close,
        framing => framing,
    };
    let keeps = asked.keeps && framing != Framing::Close;
    let mut head = head_of(&object, number, is_coded);
    match framing {
        Framing::Length => head.push_str(&format!("Content-Length: {}\r\n", body.len())),
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Close => {}
    }
    head.push_str(connection(asked, keeps));
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if asked.method != "HEAD" {
        let bytes = if framing == Framing::Chunked { chunked(&body, CHUNK_BYTES) } else { body };
        stream.write_all(&bytes)?;
    }
    Ok(keeps)
}

fn head_of(object: &Object, number: u64, is_coded: bool) -> String {
    let mut head = format!("HTTP/1.1 {} Drawn\r\nContent-Type: application/x-drawn\r\n", object.status);
    head.push_str(&format!("X-Object: {number}\r\n"));
    if let Some(value) = object.cache_control {
        head.push_str(&format!("Cache-Control: {value}\r\n"));
    }
    if object.has_etag {
        head.push_str(&format!("ETag: \"{number}{}\"\r\n", if is_coded { "-gzip" } else { "" }));
    }
    if object.has_gzip {
        head.push_str("Vary: Accept-Encoding\r\n");
    }
    if is_coded {
        head.push_str("Content-Encoding: gzip\r\n");
    }
    if object.status == 301 {
        head.push_str("Location: /object/0\r\n");
    }
    head
}

fn connection(asked: &Asked, keeps: bool) -> &'static str {
    match (asked.is_http11, asked.keeps && keeps) {
        (true, true) | (false, false) => "",
        (true, false) => "Connection: close\r\n",
        (false, true) => "Connection: keep-alive\r\n",
    }
}

/// FNV-1a: enough to tell one upload from another.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A gzip member (RFC 1952) of stored blocks (RFC 1951 section 3.2.4): valid, and no compressor needed.
pub fn gzip(body: &[u8]) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let blocks: Vec<&[u8]> = if body.is_empty() { vec![&[]] } else { body.chunks(65_535).collect() };
    for (at, block) in blocks.iter().enumerate() {
        let len = block.len() as u16;
        out.push(u8::from(at + 1 == blocks.len()));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    out.extend_from_slice(&crc32(body).to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (number, row) in table.iter_mut().enumerate() {
        *row = (0..8).fold(number as u32, |row, _| (row >> 1) ^ if row & 1 == 1 { 0xedb8_8320 } else { 0 });
    }
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 255) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc32() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn stored_blocks_hold_the_body() {
        let coded = gzip(&[b'x'; 65_536]);
        assert_eq!(&coded[10..15], [0, 255, 255, 0, 0]);
        assert_eq!(&coded[10 + 5 + 65_535..][..6], [1, 1, 0, 254, 255, b'x']);
        assert_eq!(gzip(b"").len(), 10 + 5 + 8);
    }
}
