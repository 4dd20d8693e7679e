//! A client of HTTP/2 that sends whatever frames a test wants. Its codec is Larder's own; h2spec and curl judge that one.

use larder_wire::h2::frame::{self, Frame, Settings};
use larder_wire::h2::hpack::{self, Decoder, FieldList};
use larder_wire::h2::{ErrorCode, PREFACE};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long anything may take.
pub const WITHIN: Duration = Duration::from_secs(30);

/// The answer on a stream.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The fields of each head and of the trailers.
    pub heads: Vec<Vec<(String, String)>>,
    pub body: Vec<u8>,
    /// Bytes of the body, where it is not kept.
    pub bytes: usize,
    pub has_ended: bool,
    pub reset: Option<ErrorCode>,
}

impl Answer {
    pub fn status(&self) -> &str {
        self.heads.first().map_or("", |head| &head[0].1)
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let head = self.heads.iter().find(|head| !head[0].1.starts_with('1'))?;
        head.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn is_over(&self) -> bool {
        self.has_ended || self.reset.is_some()
    }
}

pub struct Client<S> {
    pub stream: S,
    inbox: Vec<u8>,
    decoder: Decoder,
    pub answers: BTreeMap<u32, Answer>,
    pub left: Option<(u32, ErrorCode)>,
    pub settings: Option<Settings>,
    pub pongs: usize,
    pub is_closed: bool,
    /// Opens windows again by what has come, and keeps no bodies.
    pub streams_bodies: bool,
    /// Room for DATA of requests: of the connection, and of each stream.
    pub room: i64,
    pub rooms: BTreeMap<u32, i64>,
}

pub fn connect(address: SocketAddr) -> Client<TcpStream> {
    connect_with(address, &Settings::default())
}

pub fn connect_with(address: SocketAddr, settings: &Settings) -> Client<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.set_nodelay(true).unwrap();
    Client::on(stream, settings)
}

/// The fields of a GET.
pub fn get(path: &str) -> Vec<(&str, &str)> {
    vec![(":method", "GET"), (":scheme", "http"), (":authority", "site.test"), (":path", path)]
}

impl<S: Read + Write> Client<S> {
    pub fn on(stream: S, settings: &Settings) -> Client<S> {
        let mut client = Client {
            stream,
            inbox: Vec::new(),
            decoder: Decoder::new(),
            answers: BTreeMap::new(),
            left: None,
            settings: None,
            pongs: 0,
            is_closed: false,
            streams_bodies: false,
            room: 65_535,
            rooms: BTreeMap::new(),
        };
        client.send(|out| {
            out.extend_from_slice(PREFACE);
            frame::write_settings(out, settings);
        });
        client
    }

    /// Writes frames. A server that has closed is seen when it is read from.
    pub fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        let _ = self.stream.write_all(&out);
    }

    pub fn request(&mut self, stream: u32, fields: &[(&str, &str)], ends: bool) {
        self.send(|out| write_request(out, stream, fields, ends));
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        self.send(|out| {
            frame::write_data_head(out, stream, bytes.len(), ends);
            out.extend_from_slice(bytes);
        });
    }

    /// Sends a body as fast as the windows permit.
    pub fn upload(&mut self, stream: u32, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.read_until(|client| {
                let room = client.room.min(*client.rooms.get(&stream).unwrap_or(&65_535));
                room > 0 || client.answers.get(&stream).is_some_and(Answer::is_over)
            });
            if self.answers.get(&stream).is_some_and(Answer::is_over) {
                return;
            }
            let of_stream = self.rooms.entry(stream).or_insert(65_535);
            let most = self.room.min(*of_stream).min(16_384) as usize;
            let (piece, rest) = bytes.split_at(bytes.len().min(most));
            self.room -= piece.len() as i64;
            *of_stream -= piece.len() as i64;
            self.data(stream, piece, rest.is_empty());
            bytes = rest;
        }
    }

    /// Reads frames until it is so, or the connection ends.
    pub fn read_until(&mut self, mut so: impl FnMut(&Self) -> bool) {
        let mut room = vec![0; 64 * 1024];
        while !so(self) && !self.is_closed {
            match self.stream.read(&mut room) {
                Ok(0) => self.is_closed = true,
                Ok(bytes) => self.inbox.extend_from_slice(&room[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came for too long"),
                Err(_) => self.is_closed = true,
            }
            self.take_frames();
        }
    }

    /// Waits for the end of a stream.
    pub fn answer(&mut self, stream: u32) -> Answer {
        self.read_until(|client| client.answers.get(&stream).is_some_and(Answer::is_over));
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    pub fn ask(&mut self, stream: u32, path: &str) -> Answer {
        self.request(stream, &get(path), true);
        self.answer(stream)
    }

    fn take_frames(&mut self) {
        let inbox = std::mem::take(&mut self.inbox);
        let (mut at, mut out) = (0, Vec::new());
        while let Some((frame, bytes)) = frame::read(&inbox[at..], 16_384).unwrap() {
            at += bytes;
            self.take_frame(frame, &mut out);
        }
        self.inbox = inbox[at..].to_vec();
        if !out.is_empty() {
            self.send(|to| to.extend_from_slice(&out));
        }
    }

    fn take_frame(&mut self, frame: Frame<'_>, out: &mut Vec<u8>) {
        match frame {
            Frame::Data { stream, data, flow_bytes, ends_stream } => {
                let answer = self.answers.entry(stream).or_default();
                answer.bytes += data.len();
                answer.has_ended |= ends_stream;
                if !self.streams_bodies {
                    return answer.body.extend_from_slice(data);
                }
                if flow_bytes > 0 {
                    frame::write_window_update(out, 0, flow_bytes);
                    frame::write_window_update(out, stream, flow_bytes);
                }
            }
            Frame::Headers { stream, fragment, ends_stream, ends_headers } => {
                assert!(ends_headers, "heads of these tests are short");
                let mut list = FieldList::default();
                self.decoder.decode(fragment, 1 << 20, &mut list).unwrap();
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let answer = self.answers.entry(stream).or_default();
                answer.heads.push(list.iter().map(|(name, value)| (text(name), text(value))).collect());
                answer.has_ended |= ends_stream;
            }
            Frame::Reset { stream, code } => self.answers.entry(stream).or_default().reset = Some(code),
            Frame::GoAway { last, code } => self.left = Some((last, code)),
            Frame::Settings(settings) => {
                self.settings = Some(settings);
                frame::write_settings_ack(out);
            }
            Frame::Pong(_) => self.pongs += 1,
            Frame::WindowUpdate { stream: 0, bytes } => self.room += i64::from(bytes),
            Frame::WindowUpdate { stream, bytes } => *self.rooms.entry(stream).or_insert(65_535) += i64::from(bytes),
            _ => {}
        }
    }
}

pub fn write_request(out: &mut Vec<u8>, stream: u32, fields: &[(&str, &str)], ends: bool) {
    let mut block = Vec::new();
    for (name, value) in fields {
        write_field(&mut block, name, value);
    }
    frame::write_block(out, stream, &block, ends, 16_384);
}

/// A field as it stands: a literal without a table, so that names in capitals stay so.
fn write_field(block: &mut Vec<u8>, name: &str, value: &str) {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        assert!(name.len() < 127 && value.len() < 127, "a short literal");
        block.push(0);
        for text in [name, value] {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    } else {
        hpack::write_field(block, name.as_bytes(), value.as_bytes(), false);
    }
}
