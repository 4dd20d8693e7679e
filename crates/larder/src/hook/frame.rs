//! Frames between this server and a process of hooks, as values: bytes in, values out.
//!
//! A frame is a head of 12 bytes (length of the payload, number of the call, number of times, kind, 0; little-endian) and a payload. A
//! call's payload is a tuple in Python's `marshal` format of version 2, which every Python 3 reads in one step, and its number of times
//! is 0. A reply's begins with so many times, the nanoseconds that each hook took that ran, and the rest is JSON. Facts that many calls
//! have in common stand in a call as bytes, which are a `marshal` themselves (decision 058). Calls have their own numbers, so that many
//! can be under way on one connection.

use crate::mount::Stage;
use larder_wire::{Fields, RequestHead, Scheme, Url};
use std::io::Write;
use std::net::IpAddr;

/// The length of a frame's head.
pub const HEAD_BYTES: usize = 12;

/// The longest payload, in both directions.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// The length of the time of one hook.
const TIME_BYTES: usize = size_of::<u64>();

/// The facts of a call.
pub struct CallFacts<'a> {
    /// When.
    pub stage: Stage,
    /// The hooks to run, in this order, by their places in the list of the process.
    pub hooks: &'a [u16],
    /// The method of the request.
    pub method: &'a str,
    /// The scheme of its URL.
    pub scheme: Scheme,
    /// The host.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The path with its query.
    pub path_and_query: &'a str,
    /// The client.
    pub client: IpAddr,
    /// The name of the request.
    pub name: &'a str,
    /// The fields of the request.
    pub fields: &'a Fields,
    /// The status and the fields of the answer, at every stage but `request`.
    pub answer: Option<(u16, &'a Fields)>,
    /// The facts about the stored response, at the stage `found`.
    pub hit: Option<&'a HitFacts>,
}

/// The facts about a stored response that is about to be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitFacts {
    /// Its age in seconds.
    pub age: u64,
    /// Seconds of freshness that are left; below 0 since when it has been stale.
    pub ttl: i64,
    /// It is past its lifetime.
    pub stale: bool,
    /// The tags that its origin or hooks gave it.
    pub tags: Vec<String>,
}

impl<'a> CallFacts<'a> {
    /// The facts of a call about a request; those about its answer are none.
    pub fn of(
        stage: Stage,
        (request, url, client): (&'a RequestHead, &'a Url, IpAddr),
        (hooks, name): (&'a [u16], &'a str),
    ) -> CallFacts<'a> {
        CallFacts {
            stage,
            hooks,
            method: request.method.as_str(),
            scheme: url.scheme,
            host: url.host.as_str(),
            port: url.port,
            path_and_query: &url.path,
            client,
            name,
            fields: &request.fields,
            answer: None,
            hit: None,
        }
    }
}

/// Appends a call with this number; false, and nothing is appended, where it would be longer than a frame may be.
pub fn push_call(out: &mut Vec<u8>, number: u32, facts: &CallFacts<'_>) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    push_payload(out, facts);
    let length = out.len() - start - HEAD_BYTES;
    if length > PAYLOAD_BYTES_MAX {
        out.truncate(start);
        return false;
    }
    let head = &mut out[start..start + HEAD_BYTES];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..8].copy_from_slice(&number.to_le_bytes());
    head[10] = KIND_CALL;
    true
}

const KIND_CALL: u8 = 1;
const KIND_GO_ON: u8 = 2;
const KIND_DECISION: u8 = 3;
const KIND_FAILED: u8 = 4;

fn push_payload(out: &mut Vec<u8>, facts: &CallFacts<'_>) {
    let (path, query) = match facts.path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (facts.path_and_query, None),
    };
    push_tuple(out, if facts.hit.is_some() { 9 } else { 8 });
    push_text(out, facts.stage.as_str());
    push_tuple(out, facts.hooks.len());
    facts.hooks.iter().for_each(|hook| push_number(out, (*hook).into()));
    push_text(out, facts.name);
    push_text(out, path);
    match query {
        Some(query) => {
            push_text(out, query);
        }
        None => out.push(b'N'),
    }
    push_bytes(out, |out| {
        push_tuple(out, 6);
        push_text(out, facts.method);
        push_text(out, facts.scheme.as_str());
        push_text(out, facts.host);
        push_number(out, facts.port.into());
        push_client(out, facts.client);
        push_fields(out, facts.fields);
    });
    match facts.answer {
        Some((status, fields)) => {
            push_number(out, status.into());
            push_bytes(out, |out| push_fields(out, fields));
        }
        None => {
            push_number(out, 0);
            push_bytes(out, |_| {});
        }
    }
    if let Some(hit) = facts.hit {
        push_tuple(out, 4);
        push_number(out, i32::try_from(hit.age).unwrap_or(i32::MAX));
        let ttl = hit.ttl.clamp(i32::MIN.into(), i32::MAX.into());
        push_number(out, i32::try_from(ttl).unwrap_or(i32::MAX));
        push_number(out, hit.stale.into());
        push_tuple(out, hit.tags.len());
        for tag in &hit.tags {
            push_text(out, tag);
        }
    }
}

fn push_fields(out: &mut Vec<u8>, fields: &Fields) {
    push_tuple(out, fields.iter().count());
    for (name, value) in fields.iter() {
        push_tuple(out, 2);
        let at = push_text(out, name);
        out[at..].make_ascii_lowercase();
        push_latin1(out, value);
    }
}

fn push_client(out: &mut Vec<u8>, client: IpAddr) {
    push_counted(out, b'u', |out| drop(write!(out, "{}", client.to_canonical())));
}

/// Bytes that are a `marshal` themselves: the process reads them once for all calls that have the same.
fn push_bytes(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    push_counted(out, b's', write);
}

/// The bytes that `write` appends, after their length.
fn push_counted(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[kind, 0, 0, 0, 0]);
    let start = out.len();
    write(out);
    let length = (out.len() - start) as u32;
    out[start - 4..start].copy_from_slice(&length.to_le_bytes());
}

fn push_tuple(out: &mut Vec<u8>, items: usize) {
    out.push(b'(');
    out.extend_from_slice(&(items as u32).to_le_bytes());
}

fn push_number(out: &mut Vec<u8>, number: i32) {
    out.push(b'i');
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a text; gives where its bytes begin.
fn push_text(out: &mut Vec<u8>, text: &str) -> usize {
    out.push(b'u');
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    start
}

/// Bytes as a text in which each is one letter, as they are in Python's interfaces of servers.
fn push_latin1(out: &mut Vec<u8>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => push_text(out, text),
        _ => push_text(out, &bytes.iter().map(|&byte| char::from(byte)).collect::<String>()),
    };
}

/// A reply as it came.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplyFrame {
    /// The number of the call.
    pub number: u32,
    /// The reply.
    pub reply: Reply,
}

/// A reply: how long the hooks took, and what came of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The nanoseconds of each hook of the call that ran, in their order.
    pub nanos: Vec<u64>,
    /// The decision.
    pub body: ReplyBody,
}

/// The payload of a reply, JSON that is not read yet.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// Nothing is to be changed.
    GoOn(Vec<u8>),
    /// Changes, or a decision.
    Decision(Vec<u8>),
    /// A hook failed.
    Failed(Vec<u8>),
}

/// Bytes that no proper process sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFrame;

/// Takes the first whole frame out of `bytes`; `None` where it is not whole yet.
pub fn take_reply(bytes: &mut bytes::BytesMut) -> Result<Option<ReplyFrame>, BadFrame> {
    use bytes::Buf;
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let number = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let times = usize::from(u16::from_le_bytes([head[8], head[9]]));
    let (kind, zero) = (head[10], head[11]);
    let body = match kind {
        KIND_GO_ON => ReplyBody::GoOn,
        KIND_DECISION => ReplyBody::Decision,
        KIND_FAILED => ReplyBody::Failed,
        _ => return Err(BadFrame),
    };
    if length > PAYLOAD_BYTES_MAX || zero != 0 || times * TIME_BYTES > length {
        return Err(BadFrame);
    }
    if bytes.len() < HEAD_BYTES + length {
        return Ok(None);
    }
    bytes.advance(HEAD_BYTES);
    let nanos = (0..times).map(|_| bytes.get_u64_le()).collect();
    let body = body(bytes.split_to(length - times * TIME_BYTES).to_vec());
    Ok(Some(ReplyFrame { number, reply: Reply { nanos, body } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    fn facts<'a>(fields: &'a Fields, hooks: &'a [u16]) -> CallFacts<'a> {
        CallFacts {
            stage: Stage::Request,
            hooks,
            method: "GET",
            scheme: Scheme::Https,
            host: "shop.example",
            port: 443,
            path_and_query: "/a?b=1?c",
            client: "10.0.0.1".parse().unwrap(),
            name: "abc",
            fields,
            answer: None,
            hit: None,
        }
    }

    /// The payload of a call as Python prints it; `None` without a Python.
    fn read_by_python(facts: &CallFacts<'_>) -> Option<String> {
        let mut out = Vec::new();
        assert!(push_call(&mut out, 7, facts));
        let length = u32::from_le_bytes(out[..4].try_into().unwrap()) as usize;
        assert_eq!((length + HEAD_BYTES, out[4], out[10]), (out.len(), 7, 1));
        let hex: String = out[HEAD_BYTES..].iter().map(|byte| format!("{byte:02x}")).collect();
        let script = "import marshal, sys; read = lambda x: marshal.loads(x) if x else x; call = read(bytes.fromhex(sys.argv[1])); \
                      print(ascii((*call[:5], read(call[5]), call[6], read(call[7]), *call[8:])))";
        let Ok(python) = std::process::Command::new("python3").args(["-I", "-c", script, &hex]).output() else {
            println!("skipped: no python3 on this machine");
            return None;
        };
        Some(String::from_utf8(python.stdout).unwrap().trim().to_owned())
    }

    #[test]
    fn python_reads_a_call() {
        let mut fields = Fields::new();
        fields.push("X-Plan", "free");
        fields.push("X-Name", &b"caf\xe9"[..]);
        let Some(read) = read_by_python(&facts(&fields, &[0, 3])) else { return };
        let expected = "('request', (0, 3), 'abc', '/a', 'b=1?c', ('GET', 'https', 'shop.example', 443, '10.0.0.1', \
                        (('x-plan', 'free'), ('x-name', 'caf\\xe9'))), 0, b'')";
        assert_eq!(read, expected);
        let hit = HitFacts { age: u64::MAX, ttl: -5, stale: true, tags: vec!["api".to_owned(), "n\u{fc}".to_owned()] };
        let found = CallFacts {
            stage: Stage::Found,
            path_and_query: "/",
            answer: Some((200, &fields)),
            hit: Some(&hit),
            ..facts(&fields, &[1])
        };
        let wanted = "('found', (1,), 'abc', '/', None, ('GET', 'https', 'shop.example', 443, '10.0.0.1', \
                      (('x-plan', 'free'), ('x-name', 'caf\\xe9'))), 200, (('x-plan', 'free'), ('x-name', 'caf\\xe9')), \
                      (2147483647, -5, 1, ('api', 'n\\xfc')))";
        assert_eq!(read_by_python(&found).as_deref(), Some(wanted));
    }

    #[test]
    fn a_call_that_is_too_long_leaves_nothing_behind() {
        let mut fields = Fields::new();
        fields.push("X", vec![b'x'; PAYLOAD_BYTES_MAX]);
        let mut out = b"before".to_vec();
        assert!(!push_call(&mut out, 1, &facts(&fields, &[])));
        assert_eq!(out, b"before");
    }

    fn frame(number: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
        frame_with(number, kind, &[], payload)
    }

    fn frame_with(number: u32, kind: u8, nanos: &[u64], payload: &[u8]) -> Vec<u8> {
        let mut out = ((payload.len() + nanos.len() * TIME_BYTES) as u32).to_le_bytes().to_vec();
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&(nanos.len() as u16).to_le_bytes());
        out.extend_from_slice(&[kind, 0]);
        nanos.iter().for_each(|time| out.extend_from_slice(&time.to_le_bytes()));
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn replies_are_taken_whole_and_in_order() {
        let times = [vec![], vec![7], vec![1_000, u64::MAX]];
        let whole = [frame(1, 2, b""), frame_with(2, 3, &times[1], b"{}"), frame_with(3, 4, &times[2], b"x")].concat();
        for cut in 0..whole.len() {
            let mut bytes = BytesMut::from(&whole[..cut]);
            let mut taken = Vec::new();
            while let Some(reply) = take_reply(&mut bytes).unwrap() {
                taken.push(reply);
            }
            bytes.extend_from_slice(&whole[cut..]);
            while let Some(reply) = take_reply(&mut bytes).unwrap() {
                taken.push(reply);
            }
            let bodies =
                [ReplyBody::GoOn(Vec::new()), ReplyBody::Decision(b"{}".to_vec()), ReplyBody::Failed(b"x".to_vec())];
            let replies = bodies.into_iter().zip(times.clone()).map(|(body, nanos)| Reply { nanos, body });
            let expected: Vec<ReplyFrame> =
                replies.zip(1..).map(|(reply, number)| ReplyFrame { number, reply }).collect();
            assert_eq!(taken, expected, "cut at {cut}");
        }
        let long = ((PAYLOAD_BYTES_MAX as u32) + 1).to_le_bytes();
        let mut too_long = frame(1, 2, b"");
        too_long[..4].copy_from_slice(&long);
        // Two times are said to be there, and there is room for one.
        let mut too_many_times = frame_with(1, 2, &[5], b"");
        too_many_times[8] = 2;
        for bad in [frame(1, 1, b""), frame(1, 0, b""), frame(1, 9, b""), too_long, too_many_times] {
            assert_eq!(take_reply(&mut BytesMut::from(&bad[..])), Err(BadFrame));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reading_of_replies(noise in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = BytesMut::from(&noise[..]);
            while let Ok(Some(_)) = take_reply(&mut bytes) {}
        }
    }
}
