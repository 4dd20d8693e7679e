//! A small proxy that speaks HTTP/2 in the clear and stores nothing: it asks the origin for each request, and does one thing wrong.

use larder_wire::h2::frame::{self, Frame, Settings};
use larder_wire::h2::hpack::{Decoder, FieldList, write_field, write_no_table};
use larder_wire::h2::{ErrorCode, PREFACE};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A thing that the proxy does wrong, or does as few others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Nothing.
    Honest,
    /// Says GOAWAY behind each fifth reply, and closes when all is answered.
    LeavesInOrder,
    /// Refuses every second stream.
    RefusesSome,
    /// Permits two streams.
    PermitsTwo,
    /// Cuts bodies into many frames with padding, and has trailer fields.
    Pads,
    /// Opens windows by ten bytes each.
    OpensSlowly,
    /// Refuses all streams.
    RefusesAll,
    /// Two replies, each on the stream of the other.
    SwapsStreams,
    /// A reply on a stream that nobody opened.
    IdleStream,
    /// DATA behind END_STREAM.
    DataAfterEnd,
    /// A second reply behind END_STREAM.
    HeadAfterEnd,
    /// A promise.
    Pushes,
    /// GOAWAY in the middle of the reply, and the end.
    LeavesInTheMiddle,
    /// RST_STREAM in the middle of the body.
    Resets,
    /// RST_STREAM before the head.
    ResetsAtOnce,
    /// Never opens the window for a request's body.
    ShutsWindow,
    /// Answers nothing.
    Silent,
    /// Answers nothing on its first connection.
    SilentAtFirst,
    /// Sends no SETTINGS.
    NoSettings,
    /// Has a field of HTTP/1.1's connections.
    ConnectionField,
    /// Has a name in capital letters.
    Capitals,
    /// Sends more than the window permits.
    Overflows,
    /// Sends DATA before the head.
    BodyFirst,
    /// Names an entry of the table that is not there.
    BreaksTable,
    /// Sends a frame longer than it may.
    LongFrame,
    /// Answers in HTTP/1.1.
    OldVersion,
    /// Ends the stream in the middle of the body.
    EndsEarly,
    /// Closes in the middle of the body.
    HangsUp,
    /// Sends a body with the reply to HEAD.
    BodiesForHead,
    /// Sends more than Content-Length says.
    Surplus,
    /// Replies with no :status.
    NoStatus,
}

/// Starts it.
pub fn start(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let manner = match (manner, number) {
                (Manner::SilentAtFirst, 0) => Manner::Silent,
                (Manner::SilentAtFirst, _) => Manner::Honest,
                (other, _) => other,
            };
            std::thread::spawn(move || serve(stream, manner));
        }
    });
    address
}

/// A reply of an origin.
struct Reply {
    stream: u32,
    is_head: bool,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Request {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

/// The side that writes.
struct Writer {
    stream: TcpStream,
    manner: Manner,
    has_written: bool,
    answered: u32,
    held: Option<Reply>,
}

fn serve(mut stream: TcpStream, manner: Manner) -> io::Result<()> {
    let mut bytes = vec![0; PREFACE.len()];
    stream.read_exact(&mut bytes)?;
    if bytes != PREFACE {
        return pass_on(stream, bytes);
    }
    bytes.clear();
    if manner == Manner::OldVersion {
        return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    }
    let mut settings = Settings { streams_max: Some(100), ..Settings::default() };
    match manner {
        Manner::PermitsTwo => settings.streams_max = Some(2),
        Manner::ShutsWindow => settings.window = Some(0),
        Manner::OpensSlowly => settings.window = Some(10),
        _ => {}
    }
    let mut out = Vec::new();
    if manner != Manner::NoSettings {
        frame::write_settings(&mut out, &settings);
    }
    stream.write_all(&out)?;
    let writer = Writer { stream: stream.try_clone()?, manner, has_written: false, answered: 0, held: None };
    let writer = Arc::new(Mutex::new(writer));
    let (mut decoder, mut open) = (Decoder::new(), BTreeMap::<u32, Request>::new());
    let mut piece = vec![0; 64 * 1024];
    loop {
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&piece[..len]);
        while let Ok(Some((frame, taken))) = frame::read(&bytes, 1 << 20) {
            let mut out = Vec::new();
            let whole = match frame {
                Frame::Headers { stream, fragment, ends_stream, .. } => {
                    let mut list = FieldList::default();
                    decoder.decode(fragment, 1 << 20, &mut list).map_err(io::Error::other)?;
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let fields = list.iter().map(|(name, value)| (text(name), text(value))).collect();
                    open.insert(stream, Request { fields, body: Vec::new() });
                    ends_stream.then_some(stream)
                }
                Frame::Data { stream, data, ends_stream, flow_bytes } => {
                    if manner == Manner::OpensSlowly && !ends_stream {
                        frame::write_window_update(&mut out, stream, 10);
                    }
                    if flow_bytes > 0 {
                        frame::write_window_update(&mut out, 0, flow_bytes);
                    }
                    if let Some(request) = open.get_mut(&stream) {
                        request.body.extend_from_slice(data);
                    }
                    ends_stream.then_some(stream)
                }
                Frame::Settings(_) => {
                    frame::write_settings_ack(&mut out);
                    None
                }
                _ => None,
            };
            stream.write_all(&out)?;
            bytes.drain(..taken);
            let Some((number, request)) = whole.and_then(|number| Some((number, open.remove(&number)?))) else {
                continue;
            };
            let writer = writer.clone();
            std::thread::spawn(move || {
                let reply = fetch(number, &request);
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                reply.and_then(|reply| writer.answer(reply))
            });
        }
    }
}

/// One request of HTTP/1.1, by which agents try their ways.
fn pass_on(mut client: TcpStream, mut head: Vec<u8>) -> io::Result<()> {
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let url = head.split(' ').nth(1).and_then(|url| url.strip_prefix("http://")).unwrap_or_default();
    let host = url.split('/').next().unwrap_or_default();
    let mut origin = TcpStream::connect(host)?;
    origin.write_all(head.replacen(&format!("http://{host}"), "", 1).as_bytes())?;
    io::copy(&mut origin, &mut client).map(drop)
}

/// Asks the origin, over HTTP/1.0.
fn fetch(stream: u32, request: &Request) -> io::Result<Reply> {
    let field = |name: &str| request.fields.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value);
    let (method, path, host) = (field(":method"), field(":path"), field(":authority"));
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\n");
    for (name, value) in request.fields.iter().filter(|(name, _)| !name.starts_with(':')) {
        assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name}");
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let mut origin = TcpStream::connect(host)?;
    origin.write_all(head.as_bytes())?;
    origin.write_all(&request.body)?;
    let mut bytes = Vec::new();
    origin.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields = fields.filter(|(name, _)| !name.eq_ignore_ascii_case("Connection"));
    let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let fields = std::iter::once((":status".to_owned(), status)).chain(fields).collect();
    Ok(Reply { stream, is_head: method == "HEAD", fields, body })
}

impl Writer {
    fn answer(&mut self, reply: Reply) -> io::Result<()> {
        self.answered += 1;
        let number = reply.stream;
        match self.manner {
            Manner::Silent => return Ok(()),
            Manner::RefusesAll => return self.reset(number, ErrorCode::RefusedStream),
            Manner::RefusesSome if self.answered.is_multiple_of(2) => {
                return self.reset(number, ErrorCode::RefusedStream);
            }
            Manner::ResetsAtOnce => return self.reset(number, ErrorCode::Internal),
            Manner::SwapsStreams => {
                let Some(mut other) = self.held.take() else {
                    self.held = Some(reply);
                    return Ok(());
                };
                let mut reply = reply;
                std::mem::swap(&mut reply.stream, &mut other.stream);
                self.whole(&reply)?;
                return self.whole(&other);
            }
            _ => self.whole(&reply)?,
        }
        if self.manner == Manner::LeavesInOrder && self.answered == 5 {
            let mut out = Vec::new();
            frame::write_go_away(&mut out, number, ErrorCode::NoError, "enough");
            self.stream.write_all(&out)?;
        }
        Ok(())
    }

    fn reset(&mut self, stream: u32, code: ErrorCode) -> io::Result<()> {
        let mut out = Vec::new();
        frame::write_reset(&mut out, stream, code);
        self.stream.write_all(&out)
    }

    fn head(&mut self, reply: &Reply, stream: u32, ends: bool, out: &mut Vec<u8>) {
        let mut block = Vec::new();
        if !std::mem::replace(&mut self.has_written, true) {
            write_no_table(&mut block);
        }
        for (name, value) in
            reply.fields.iter().filter(|(name, _)| name != ":status" || self.manner != Manner::NoStatus)
        {
            write_field(&mut block, name.as_bytes(), value.as_bytes(), false);
        }
        match self.manner {
            Manner::ConnectionField => write_field(&mut block, b"connection", b"keep-alive", false),
            // A literal whose name stands as it is (RFC 7541 section 6.2.2).
            Manner::Capitals => block.extend_from_slice(b"\x00\x07X-Upper\x01a"),
            // An index beyond both tables.
            Manner::BreaksTable => block.push(0xff - 1),
            _ => {}
        }
        frame::write_block(out, stream, &block, ends, 16_384);
    }

    /// A reply with all that is wrong with it.
    fn whole(&mut self, reply: &Reply) -> io::Result<()> {
        let (number, manner) = (reply.stream, self.manner);
        let mut out = Vec::new();
        let has_body = !reply.is_head && !reply.body.is_empty();
        let half = reply.body.len() / 2;
        match manner {
            Manner::IdleStream => self.head(reply, number + 1_000, false, &mut out),
            Manner::BodyFirst => data(number, b"early", false, &mut out),
            Manner::Pushes => {
                // PUSH_PROMISE of stream 2, with an empty block (RFC 9113 section 6.6).
                out.extend_from_slice(&[0, 0, 4, 5, 4]);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&2_u32.to_be_bytes());
            }
            Manner::LongFrame => out.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 1]),
            _ => {}
        }
        self.head(reply, number, !has_body && manner != Manner::BodiesForHead, &mut out);
        match manner {
            Manner::BodiesForHead if reply.is_head => data(number, b"a body", true, &mut out),
            Manner::BodiesForHead if !has_body => data(number, b"", true, &mut out),
            _ if !has_body => {}
            Manner::LeavesInTheMiddle | Manner::HangsUp | Manner::Resets => {
                data(number, &reply.body[..half], false, &mut out);
                if manner == Manner::LeavesInTheMiddle {
                    frame::write_go_away(&mut out, number, ErrorCode::Internal, "away");
                }
                self.stream.write_all(&out)?;
                return match manner {
                    Manner::Resets => self.reset(number, ErrorCode::Internal),
                    _ => self.stream.shutdown(std::net::Shutdown::Write),
                };
            }
            Manner::EndsEarly => data(number, &reply.body[..half], true, &mut out),
            Manner::Surplus => {
                data(number, &reply.body, false, &mut out);
                data(number, b"more", true, &mut out);
            }
            Manner::Pads => {
                for piece in reply.body.chunks(700) {
                    // Ten bytes of padding (RFC 9113 section 6.1).
                    let length = piece.len() as u32 + 11;
                    out.extend_from_slice(&length.to_be_bytes()[1..]);
                    out.extend_from_slice(&[0, 8]);
                    out.extend_from_slice(&number.to_be_bytes());
                    out.push(10);
                    out.extend_from_slice(piece);
                    out.extend_from_slice(&[0; 10]);
                }
                let mut block = Vec::new();
                write_field(&mut block, b"x-trailer", b"a", false);
                frame::write_block(&mut out, number, &block, true, 16_384);
            }
            _ => data(number, &reply.body, true, &mut out),
        }
        if manner == Manner::DataAfterEnd {
            data(number, b"more", false, &mut out);
        }
        if manner == Manner::HeadAfterEnd {
            self.head(reply, number, true, &mut out);
        }
        self.stream.write_all(&out)
    }
}

fn data(stream: u32, bytes: &[u8], ends: bool, out: &mut Vec<u8>) {
    let pieces = bytes.chunks(16_384).collect::<Vec<_>>();
    if pieces.is_empty() {
        frame::write_data_head(out, stream, 0, ends);
    }
    for (place, piece) in pieces.iter().enumerate() {
        frame::write_data_head(out, stream, piece.len(), ends && place + 1 == pieces.len());
        out.extend_from_slice(piece);
    }
}
