//! Frames (RFC 9113 sections 4 and 6): read one by one out of what has come, and written.
//!
//! A frame is judged here by itself: its size, its stream, its padding, its values. Its place among the others is the matter of
//! whoever keeps the streams.

use super::flow::WINDOW_MAX;
use super::{ErrorCode, H2Fault};

/// Bytes of a frame's head.
pub const HEAD_BYTES: usize = 9;
/// The longest payload that a receiver takes before it says otherwise, and the least that it may say.
pub const PAYLOAD_BYTES_MAX_AT_FIRST: u32 = 1 << 14;
/// The most that it may say.
pub const PAYLOAD_BYTES_MAX: u32 = (1 << 24) - 1;

const END_STREAM: u8 = 0x1;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The types of frames that are known.
mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    /// RFC 9218 section 7.1.
    pub const PRIORITY_UPDATE: u8 = 16;
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Bytes of a body.
    Data {
        /// Its stream.
        stream: u32,
        /// The bytes without padding.
        data: &'a [u8],
        /// The bytes that it takes from the windows: padding counts.
        flow_bytes: u32,
        /// Nothing follows on this side of the stream.
        ends_stream: bool,
    },
    /// The first part of a field block.
    Headers {
        /// Its stream.
        stream: u32,
        /// A part of the block.
        fragment: &'a [u8],
        /// Nothing follows on this side of the stream.
        ends_stream: bool,
        /// The block is whole.
        ends_headers: bool,
    },
    /// A further part of it.
    Continuation {
        /// Its stream.
        stream: u32,
        /// A part of the block.
        fragment: &'a [u8],
        /// The block is whole.
        ends_headers: bool,
    },
    /// A priority of the kind that nobody uses any more (RFC 9113 section 5.3.2).
    Priority {
        /// The stream it is about.
        stream: u32,
    },
    /// A priority of the kind of RFC 9218, for a stream.
    PriorityUpdate {
        /// The stream it is about.
        stream: u32,
        /// The text of the field `Priority`.
        value: &'a [u8],
    },
    /// The end of a stream by its peer.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// Settings of the peer.
    Settings(Settings),
    /// The peer has applied ours.
    SettingsAck,
    /// A promised stream, which only servers send.
    PushPromise,
    /// A question whether anybody is there.
    Ping([u8; 8]),
    /// Its answer.
    Pong([u8; 8]),
    /// The peer begins to leave.
    GoAway {
        /// The last stream that it works on.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
    /// More room in a window: that of the connection where the stream is 0.
    WindowUpdate {
        /// The stream.
        stream: u32,
        /// Bytes.
        bytes: u32,
    },
    /// A frame of a type that is not known, which is passed over (RFC 9113 section 5.5).
    Unknown,
}

/// The settings that a SETTINGS frame names (RFC 9113 section 6.5.2, RFC 8441, RFC 9218); of one that stands twice the last counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub table_bytes: Option<u32>,
    /// SETTINGS_ENABLE_PUSH.
    pub takes_pushes: Option<bool>,
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub streams_max: Option<u32>,
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub window: Option<u32>,
    /// SETTINGS_MAX_FRAME_SIZE.
    pub payload_bytes_max: Option<u32>,
    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub list_bytes_max: Option<u32>,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 section 3).
    pub takes_connect_protocol: Option<bool>,
    /// SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 section 2.1).
    pub has_no_old_priorities: Option<bool>,
}

/// Reads the first frame; with it comes the number of bytes that it takes. `None`: it is not whole yet.
/// A fault of a stream takes its frame along too: [`frame_len`] says how long it is.
pub fn read(bytes: &[u8], payload_bytes_max: u32) -> Result<Option<(Frame<'_>, usize)>, H2Fault> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    if length > payload_bytes_max {
        return Err(H2Fault::connection(ErrorCode::FrameSize, "a frame longer than SETTINGS_MAX_FRAME_SIZE"));
    }
    let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
    // The highest bit is reserved and means nothing (RFC 9113 section 4.1).
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & WINDOW_MAX;
    let frame = judge(head[3], head[4], stream, payload)?;
    Ok(Some((frame, HEAD_BYTES + payload.len())))
}

/// The length of the first frame, head and payload, if its head is here.
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<3>()?;
    Some(HEAD_BYTES + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize)
}

fn judge(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<Frame<'_>, H2Fault> {
    let size = |detail| Err(H2Fault::connection(ErrorCode::FrameSize, detail));
    let protocol = |detail| Err(H2Fault::connection(ErrorCode::Protocol, detail));
    let ends_stream = flags & END_STREAM != 0;
    let ends_headers = flags & END_HEADERS != 0;
    match kind {
        kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION if stream == 0 => {
            protocol("a frame of a stream on stream 0")
        }
        kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE if stream != 0 => {
            protocol("a frame of the connection on a stream")
        }
        kind::DATA => {
            let data = unpadded(payload, flags)?;
            Ok(Frame::Data { stream, data, flow_bytes: payload.len() as u32, ends_stream })
        }
        kind::HEADERS => {
            let mut fragment = unpadded(payload, flags)?;
            if flags & PRIORITY != 0 {
                let Some((priority, rest)) = fragment.split_first_chunk::<5>() else {
                    return size("HEADERS too short for their priority");
                };
                not_of_itself(stream, priority)?;
                fragment = rest;
            }
            Ok(Frame::Headers { stream, fragment, ends_stream, ends_headers })
        }
        kind::CONTINUATION => Ok(Frame::Continuation { stream, fragment: payload, ends_headers }),
        kind::PRIORITY => match payload.try_into() {
            Ok(priority) => not_of_itself(stream, &priority).map(|()| Frame::Priority { stream }),
            Err(_) => Err(H2Fault::stream(stream, ErrorCode::FrameSize, "PRIORITY has 5 bytes")),
        },
        kind::RST_STREAM => match word(payload) {
            Some(code) if payload.len() == 4 => Ok(Frame::Reset { stream, code: ErrorCode::of(code) }),
            _ => size("RST_STREAM has 4 bytes"),
        },
        kind::SETTINGS if flags & ACK != 0 && payload.is_empty() => Ok(Frame::SettingsAck),
        kind::SETTINGS if flags & ACK != 0 => size("an acknowledgement of SETTINGS is empty"),
        kind::SETTINGS => settings(payload).map(Frame::Settings),
        kind::PUSH_PROMISE => Ok(Frame::PushPromise),
        kind::PING => match payload.try_into() {
            Ok(text) if flags & ACK != 0 => Ok(Frame::Pong(text)),
            Ok(text) => Ok(Frame::Ping(text)),
            Err(_) => size("PING has 8 bytes"),
        },
        kind::GOAWAY => match (word(payload), payload.get(4..).and_then(word)) {
            (Some(last), Some(code)) => Ok(Frame::GoAway { last: last & WINDOW_MAX, code: ErrorCode::of(code) }),
            _ => size("GOAWAY has 8 bytes at least"),
        },
        kind::WINDOW_UPDATE => match word(payload).filter(|_| payload.len() == 4).map(|bytes| bytes & WINDOW_MAX) {
            None => size("WINDOW_UPDATE has 4 bytes"),
            Some(0) if stream == 0 => protocol("a WINDOW_UPDATE by nothing"),
            Some(0) => Err(H2Fault::stream(stream, ErrorCode::Protocol, "a WINDOW_UPDATE by nothing")),
            Some(bytes) => Ok(Frame::WindowUpdate { stream, bytes }),
        },
        kind::PRIORITY_UPDATE => match payload.split_first_chunk::<4>() {
            None => size("PRIORITY_UPDATE has 4 bytes at least"),
            Some((stream, value)) => match u32::from_be_bytes(*stream) & WINDOW_MAX {
                0 => protocol("a PRIORITY_UPDATE for stream 0"),
                stream => Ok(Frame::PriorityUpdate { stream, value }),
            },
        },
        _ => Ok(Frame::Unknown),
    }
}

/// The payload without the length of the padding and the padding (RFC 9113 section 6.1).
fn unpadded(payload: &[u8], flags: u8) -> Result<&[u8], H2Fault> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let Some((padding, rest)) = payload.split_first() else {
        return Err(H2Fault::connection(ErrorCode::FrameSize, "a padded frame without the length of its padding"));
    };
    let length = rest.len().checked_sub(usize::from(*padding));
    let data = length.and_then(|length| rest.get(..length));
    data.ok_or(H2Fault::connection(ErrorCode::Protocol, "padding longer than its frame"))
}

/// No stream depends on itself (RFC 7540 section 5.3.1), which costs nothing to hold.
fn not_of_itself(stream: u32, priority: &[u8; 5]) -> Result<(), H2Fault> {
    match word(priority).map(|word| word & WINDOW_MAX) {
        Some(on) if on == stream => Err(H2Fault::stream(stream, ErrorCode::Protocol, "a stream depends on itself")),
        _ => Ok(()),
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_be_bytes(*word))
}

fn settings(payload: &[u8]) -> Result<Settings, H2Fault> {
    let protocol = |detail| H2Fault::connection(ErrorCode::Protocol, detail);
    let (pairs, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() {
        return Err(H2Fault::connection(ErrorCode::FrameSize, "SETTINGS are pairs of 6 bytes"));
    }
    let mut settings = Settings::default();
    for pair in pairs {
        let value = u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]);
        let flag = || match value {
            0 => Ok(Some(false)),
            1 => Ok(Some(true)),
            _ => Err(protocol("a setting that is 0 or 1 has another value")),
        };
        match u16::from_be_bytes([pair[0], pair[1]]) {
            1 => settings.table_bytes = Some(value),
            2 => settings.takes_pushes = flag()?,
            3 => settings.streams_max = Some(value),
            4 if value > WINDOW_MAX => {
                return Err(H2Fault::connection(
                    ErrorCode::FlowControl,
                    "SETTINGS_INITIAL_WINDOW_SIZE beyond 2^31 - 1",
                ));
            }
            4 => settings.window = Some(value),
            5 if !(PAYLOAD_BYTES_MAX_AT_FIRST..=PAYLOAD_BYTES_MAX).contains(&value) => {
                return Err(protocol("SETTINGS_MAX_FRAME_SIZE is 2^14 to 2^24 - 1"));
            }
            5 => settings.payload_bytes_max = Some(value),
            6 => settings.list_bytes_max = Some(value),
            8 => settings.takes_connect_protocol = flag()?,
            9 => settings.has_no_old_priorities = flag()?,
            _ => {}
        }
    }
    Ok(settings)
}

fn head(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    debug_assert!(length <= PAYLOAD_BYTES_MAX as usize, "a frame of {length} bytes");
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Writes a DATA frame's head; its bytes follow.
pub fn write_data_head(out: &mut Vec<u8>, stream: u32, length: usize, ends_stream: bool) {
    head(out, kind::DATA, if ends_stream { END_STREAM } else { 0 }, stream, length);
}

/// Writes a field block as HEADERS, and CONTINUATION where it is longer than a frame may be.
pub fn write_block(out: &mut Vec<u8>, stream: u32, block: &[u8], ends_stream: bool, payload_bytes_max: u32) {
    let flags = if ends_stream { END_STREAM } else { 0 };
    let (mut kind, mut flags, mut rest) = (kind::HEADERS, flags, block);
    loop {
        let (fragment, behind) = rest.split_at(rest.len().min(payload_bytes_max as usize));
        head(out, kind, if behind.is_empty() { flags | END_HEADERS } else { flags }, stream, fragment.len());
        out.extend_from_slice(fragment);
        if behind.is_empty() {
            return;
        }
        (kind, flags, rest) = (kind::CONTINUATION, 0, behind);
    }
}

/// Writes a SETTINGS frame with what is set.
pub fn write_settings(out: &mut Vec<u8>, settings: &Settings) {
    let flag = |flag: Option<bool>| flag.map(u32::from);
    let pairs = [
        (1, settings.table_bytes),
        (2, flag(settings.takes_pushes)),
        (3, settings.streams_max),
        (4, settings.window),
        (5, settings.payload_bytes_max),
        (6, settings.list_bytes_max),
        (8, flag(settings.takes_connect_protocol)),
        (9, flag(settings.has_no_old_priorities)),
    ];
    head(out, kind::SETTINGS, 0, 0, pairs.iter().filter(|pair| pair.1.is_some()).count() * 6);
    for (number, value) in pairs.into_iter().filter_map(|(number, value): (u16, _)| Some((number, value?))) {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Writes the acknowledgement of the peer's SETTINGS.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    head(out, kind::SETTINGS, ACK, 0, 0);
}

/// Writes a question whether anybody is there.
pub fn write_ping(out: &mut Vec<u8>, text: [u8; 8]) {
    head(out, kind::PING, 0, 0, text.len());
    out.extend_from_slice(&text);
}

/// Writes the answer to a PING.
pub fn write_pong(out: &mut Vec<u8>, text: [u8; 8]) {
    head(out, kind::PING, ACK, 0, text.len());
    out.extend_from_slice(&text);
}

/// Writes the end of a stream.
pub fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    head(out, kind::RST_STREAM, 0, stream, 4);
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

/// Writes that this side leaves, and the last stream that it works on.
pub fn write_go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode, detail: &str) {
    let detail = detail.as_bytes();
    head(out, kind::GOAWAY, 0, 0, 8 + detail.len());
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
    out.extend_from_slice(detail);
}

/// Writes more room in a window: that of the connection where the stream is 0.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    head(out, kind::WINDOW_UPDATE, 0, stream, 4);
    out.extend_from_slice(&bytes.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::Scope;
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head(&mut out, kind, flags, stream, payload.len());
        out.extend_from_slice(payload);
        out
    }

    fn fault(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> (Scope, ErrorCode) {
        let bytes = frame(kind, flags, stream, payload);
        let fault = read(&bytes, PAYLOAD_BYTES_MAX_AT_FIRST).unwrap_err();
        (fault.scope, fault.code)
    }

    #[test]
    fn frames_are_read_as_they_are_written() {
        let settings = Settings {
            streams_max: Some(100),
            window: Some(1 << 20),
            takes_pushes: Some(false),
            ..Settings::default()
        };
        let mut out = Vec::new();
        write_settings(&mut out, &settings);
        write_settings_ack(&mut out);
        write_block(&mut out, 1, b"block", true, 3);
        write_data_head(&mut out, 1, 2, false);
        out.extend_from_slice(b"ab");
        write_ping(&mut out, *b"abcdefgh");
        write_pong(&mut out, *b"abcdefgh");
        write_reset(&mut out, 3, ErrorCode::Cancel);
        write_window_update(&mut out, 0, 5);
        write_go_away(&mut out, 7, ErrorCode::EnhanceYourCalm, "too much");
        let wanted = [
            Frame::Settings(settings),
            Frame::SettingsAck,
            Frame::Headers { stream: 1, fragment: b"blo", ends_stream: true, ends_headers: false },
            Frame::Continuation { stream: 1, fragment: b"ck", ends_headers: true },
            Frame::Data { stream: 1, data: b"ab", flow_bytes: 2, ends_stream: false },
            Frame::Ping(*b"abcdefgh"),
            Frame::Pong(*b"abcdefgh"),
            Frame::Reset { stream: 3, code: ErrorCode::Cancel },
            Frame::WindowUpdate { stream: 0, bytes: 5 },
            Frame::GoAway { last: 7, code: ErrorCode::EnhanceYourCalm },
        ];
        let mut rest = &out[..];
        for wanted in wanted {
            // No beginning of a frame is one.
            let whole = frame_len(rest).unwrap();
            for cut in 0..whole {
                assert_eq!(read(&rest[..cut], PAYLOAD_BYTES_MAX), Ok(None), "{wanted:?} {cut}");
            }
            assert_eq!(read(rest, PAYLOAD_BYTES_MAX), Ok(Some((wanted, whole))));
            rest = &rest[whole..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn padding_counts_for_the_window_and_is_no_data() {
        let bytes = frame(kind::DATA, PADDED | END_STREAM, 5, b"\x02ab\0\0");
        let wanted = Frame::Data { stream: 5, data: b"ab", flow_bytes: 5, ends_stream: true };
        assert_eq!(read(&bytes, 100), Ok(Some((wanted, bytes.len()))));
        let bytes = frame(kind::HEADERS, PADDED | PRIORITY | END_HEADERS, 5, b"\x01\0\0\0\x03\x10x\0");
        let wanted = Frame::Headers { stream: 5, fragment: b"x", ends_stream: false, ends_headers: true };
        assert_eq!(read(&bytes, 100), Ok(Some((wanted, bytes.len()))));
        // All of it may be padding.
        let bytes = frame(kind::DATA, PADDED, 5, b"\x02\0\0");
        assert!(matches!(read(&bytes, 100), Ok(Some((Frame::Data { data: b"", flow_bytes: 3, .. }, 12)))));
    }

    /// Type, flags, stream and payload; scope and code of the fault.
    type Case<'a> = (u8, u8, u32, &'a [u8], Scope, ErrorCode);

    #[test]
    fn faults_have_the_codes_of_the_rfc() {
        let (connection, stream) = (Scope::Connection, Scope::Stream);
        let cases: [Case<'_>; 30] = [
            (kind::DATA, 0, 0, b"a", connection, ErrorCode::Protocol),
            (kind::DATA, PADDED, 1, b"", connection, ErrorCode::FrameSize),
            (kind::DATA, PADDED, 1, b"\x01", connection, ErrorCode::Protocol),
            (kind::HEADERS, 0, 0, b"a", connection, ErrorCode::Protocol),
            (kind::HEADERS, PADDED, 1, b"\x05a", connection, ErrorCode::Protocol),
            (kind::HEADERS, PRIORITY, 1, b"\0\0\0\0", connection, ErrorCode::FrameSize),
            (kind::HEADERS, PRIORITY, 1, b"\0\0\0\x01\0", stream(1), ErrorCode::Protocol),
            (kind::PRIORITY, 0, 0, b"\0\0\0\x03\0", connection, ErrorCode::Protocol),
            (kind::PRIORITY, 0, 1, b"\0\0\0\x03", stream(1), ErrorCode::FrameSize),
            (kind::PRIORITY, 0, 1, b"\x80\0\0\x01\0", stream(1), ErrorCode::Protocol),
            (kind::RST_STREAM, 0, 0, b"\0\0\0\x08", connection, ErrorCode::Protocol),
            (kind::RST_STREAM, 0, 1, b"\0\0\0", connection, ErrorCode::FrameSize),
            (kind::RST_STREAM, 0, 1, b"\0\0\0\0\0", connection, ErrorCode::FrameSize),
            (kind::SETTINGS, 0, 1, b"", connection, ErrorCode::Protocol),
            (kind::SETTINGS, ACK, 0, b"\0\x01\0\0\0\0", connection, ErrorCode::FrameSize),
            (kind::SETTINGS, 0, 0, b"\0\x01\0", connection, ErrorCode::FrameSize),
            (kind::SETTINGS, 0, 0, b"\0\x02\0\0\0\x02", connection, ErrorCode::Protocol),
            (kind::SETTINGS, 0, 0, b"\0\x04\x80\0\0\0", connection, ErrorCode::FlowControl),
            (kind::SETTINGS, 0, 0, b"\0\x05\0\0\x3f\xff", connection, ErrorCode::Protocol),
            (kind::SETTINGS, 0, 0, b"\0\x05\x01\0\0\0", connection, ErrorCode::Protocol),
            (kind::SETTINGS, 0, 0, b"\0\x08\0\0\0\x02", connection, ErrorCode::Protocol),
            (kind::PING, 0, 1, b"abcdefgh", connection, ErrorCode::Protocol),
            (kind::PING, 0, 0, b"abcdefg", connection, ErrorCode::FrameSize),
            (kind::GOAWAY, 0, 1, b"\0\0\0\0\0\0\0\0", connection, ErrorCode::Protocol),
            (kind::GOAWAY, 0, 0, b"\0\0\0\0\0\0\0", connection, ErrorCode::FrameSize),
            (kind::WINDOW_UPDATE, 0, 0, b"\0\0\0\0", connection, ErrorCode::Protocol),
            (kind::WINDOW_UPDATE, 0, 1, b"\x80\0\0\0", stream(1), ErrorCode::Protocol),
            (kind::WINDOW_UPDATE, 0, 1, b"\0\0\0", connection, ErrorCode::FrameSize),
            (kind::CONTINUATION, 0, 0, b"", connection, ErrorCode::Protocol),
            (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=1", connection, ErrorCode::Protocol),
        ];
        for (kind, flags, stream, payload, scope, code) in cases {
            assert_eq!(fault(kind, flags, stream, payload), (scope, code), "{kind} {flags:x} {stream} {payload:x?}");
        }
        let long = frame(kind::DATA, 0, 1, &[0; 17]);
        assert_eq!(read(&long, 16).unwrap_err().code, ErrorCode::FrameSize);
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        for bytes in [frame(0xfe, 0xff, 9, b"abc"), frame(10, 0, 0, b"")] {
            assert_eq!(read(&bytes, 100), Ok(Some((Frame::Unknown, bytes.len()))));
        }
        let bytes = frame(kind::SETTINGS, 0, 0, b"\xff\x01\xff\xff\xff\xff\0\x03\0\0\0\x01\0\x03\0\0\0\x02");
        let wanted = Settings { streams_max: Some(2), ..Settings::default() };
        assert_eq!(read(&bytes, 100), Ok(Some((Frame::Settings(wanted), bytes.len()))));
        // The reserved bit of a stream's number means nothing.
        let bytes = frame(kind::DATA, 0, 1 << 31 | 1, b"");
        assert!(matches!(read(&bytes, 100), Ok(Some((Frame::Data { stream: 1, .. }, _)))));
    }
}
