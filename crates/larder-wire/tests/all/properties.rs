//! Laws over whole connections that are made, not guessed: what was written is read back, whatever was sent
//! together and however it was cut.

use super::checks;
use larder_wire::body::{Decoder, Event};
use larder_wire::framing::{self, Framing};
use larder_wire::parse::{HeadLimits, HeadScan, Parsed};
use larder_wire::{Fields, Method, Reason, RequestHead, ResponseHead, Side, Target, Version, encode};
use proptest::prelude::*;

/// A message as it was meant: the head, the content of the body, the trailers of a chunked one.
#[derive(Clone, Debug, PartialEq)]
struct Message<H> {
    head: H,
    content: Vec<u8>,
    trailers: Fields,
}

fn name() -> impl Strategy<Value = String> {
    "X-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}"
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let visible = prop_oneof![0x20u8..0x7f, Just(b'\t'), 0x80u8..=0xff];
    proptest::collection::vec(visible, 0..30).prop_map(|value| larder_wire::fields::trim(&value).to_vec())
}

fn fields(most: usize) -> impl Strategy<Value = Fields> {
    proptest::collection::vec((name(), value()), 0..most).prop_map(|lines| {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name, value));
        fields
    })
}

/// How a body is sent: not at all, with a length, or in chunks of this size.
fn body() -> impl Strategy<Value = Option<(Vec<u8>, Option<usize>, Fields)>> {
    let content = proptest::collection::vec(any::<u8>(), 0..300);
    proptest::option::of((content, proptest::option::of(1usize..80), fields(3)))
}

/// Completes the fields and gives the message with its bytes after the head.
fn with_body(fields: &mut Fields, body: Option<(Vec<u8>, Option<usize>, Fields)>) -> (Vec<u8>, Fields, Vec<u8>) {
    let mut wire = Vec::new();
    match body {
        None => (Vec::new(), Fields::new(), wire),
        Some((content, None, _)) => {
            fields.push("Content-Length", content.len().to_string());
            wire.extend_from_slice(&content);
            (content, Fields::new(), wire)
        }
        Some((content, Some(size), trailers)) => {
            fields.push("Transfer-Encoding", "chunked");
            for chunk in content.chunks(size) {
                encode::chunk_head(&mut wire, chunk.len());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(encode::CHUNK_END);
            }
            encode::last_chunk(&mut wire, &trailers);
            (content, trailers, wire)
        }
    }
}

fn asked() -> impl Strategy<Value = (Message<RequestHead>, Vec<u8>)> {
    let method = prop_oneof![Just(Method::Get), Just(Method::Post), Just(Method::Other("X-DO".into()))];
    (method, "/[!$-~]{0,30}", fields(8), body()).prop_map(|(method, path, mut fields, body)| {
        fields.push("Host", "a.example:81");
        let (content, trailers, bytes) = with_body(&mut fields, body);
        let head = RequestHead::new(method, Target::Origin(path.into()), Version::Http11, fields);
        let mut wire = Vec::new();
        encode::request_head(&mut wire, &head.method, &head.target.to_string(), head.version, &head.fields);
        wire.extend_from_slice(&bytes);
        (Message { head, content, trailers }, wire)
    })
}

fn answered() -> impl Strategy<Value = (Message<ResponseHead>, Vec<u8>)> {
    (200u16..=999, "[ -~]{0,20}", fields(8), body()).prop_map(|(status, reason, mut fields, body)| {
        let body = body.filter(|_| status != 204 && status != 304).or(match status {
            204 | 304 => None,
            _ => Some((Vec::new(), None, Fields::new())),
        });
        let (content, trailers, bytes) = with_body(&mut fields, body);
        let head = ResponseHead { status, reason: Reason::of(status, &reason), version: Version::Http11, fields };
        let mut wire = Vec::new();
        encode::response_head(&mut wire, &head);
        wire.extend_from_slice(&bytes);
        (Message { head, content, trailers }, wire)
    })
}

/// The operations of [`Connection`] that differ between the two kinds of head.
trait Head: Sized {
    fn parse(scan: &mut HeadScan, buf: &[u8]) -> Parsed<Self>;
    fn framing(&self) -> Framing;
}

impl Head for RequestHead {
    fn parse(scan: &mut HeadScan, buf: &[u8]) -> Parsed<Self> {
        scan.request(buf, &HeadLimits::default()).expect("a request")
    }

    fn framing(&self) -> Framing {
        framing::of_request(self).expect("a framing")
    }
}

impl Head for ResponseHead {
    fn parse(scan: &mut HeadScan, buf: &[u8]) -> Parsed<Self> {
        scan.response(buf, &HeadLimits::default()).expect("a response")
    }

    fn framing(&self) -> Framing {
        framing::of_response(self, &Method::Get).expect("a framing")
    }
}

/// Reads messages as a connection does: from a buffer that grows by what arrives.
struct Connection<H> {
    buf: Vec<u8>,
    scan: HeadScan,
    reading: Option<(Message<H>, Decoder)>,
    read: Vec<Message<H>>,
}

impl<H: Head> Connection<H> {
    fn new() -> Connection<H> {
        Connection { buf: Vec::new(), scan: HeadScan::new(), reading: None, read: Vec::new() }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        while self.advance() {}
    }

    /// False when more bytes are needed.
    fn advance(&mut self) -> bool {
        let Some((mut message, mut decoder)) = self.reading.take() else { return self.head() };
        let step = decoder.decode(&self.buf).expect("a body");
        let rest = self.buf.split_off(step.consumed);
        let taken = std::mem::replace(&mut self.buf, rest);
        match step.event {
            Event::End(trailers) => {
                message.trailers = trailers;
                self.read.push(message);
                return true;
            }
            Event::Data(range) => message.content.extend_from_slice(&taken[range]),
            Event::NeedMore => {
                self.reading = Some((message, decoder));
                return false;
            }
        }
        self.reading = Some((message, decoder));
        true
    }

    fn head(&mut self) -> bool {
        let Parsed::Complete { head, len } = H::parse(&mut self.scan, &self.buf) else { return false };
        self.buf.drain(..len);
        let decoder = Decoder::new(head.framing(), Side::Client);
        self.reading = Some((Message { head, content: Vec::new(), trailers: Fields::new() }, decoder));
        true
    }
}

/// Sends everything on one connection, cut at these places.
fn read_back<H: Head>(wires: &[&[u8]], cuts: &[usize]) -> (Vec<Message<H>>, usize) {
    let all = wires.concat();
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (all.len() + 1)).chain([0, all.len()]).collect();
    places.sort_unstable();
    let mut connection = Connection::new();
    for pair in places.windows(2) {
        connection.receive(&all[pair[0]..pair[1]]);
    }
    (connection.read, connection.buf.len())
}

proptest! {
    #[test]
    fn requests_sent_together_are_read_one_by_one(
        sent in proptest::collection::vec(asked(), 1..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let wires: Vec<&[u8]> = sent.iter().map(|(_, wire)| &wire[..]).collect();
        let messages: Vec<_> = sent.iter().map(|(message, _)| message.clone()).collect();
        prop_assert_eq!(read_back(&wires, &cuts), (messages, 0));
    }

    #[test]
    fn responses_sent_together_are_read_one_by_one(
        sent in proptest::collection::vec(answered(), 1..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..40),
    ) {
        let wires: Vec<&[u8]> = sent.iter().map(|(_, wire)| &wire[..]).collect();
        let messages: Vec<_> = sent.iter().map(|(message, _)| message.clone()).collect();
        prop_assert_eq!(read_back(&wires, &cuts), (messages, 0));
    }

    #[test]
    fn every_byte_alone_is_enough(sent in proptest::collection::vec(asked(), 1..3)) {
        let wires: Vec<&[u8]> = sent.iter().map(|(_, wire)| &wire[..]).collect();
        let cuts: Vec<usize> = (0..wires.concat().len()).collect();
        let messages: Vec<_> = sent.iter().map(|(message, _)| message.clone()).collect();
        prop_assert_eq!(read_back(&wires, &cuts), (messages, 0));
    }

    #[test]
    fn a_head_with_one_byte_changed_is_read_one_way_or_refused(
        (_, wire) in asked(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut wire = wire;
        let at = at.index(wire.len());
        wire[at] = byte;
        checks::request(&wire);
    }
}
