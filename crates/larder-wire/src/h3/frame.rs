//! Frames: a type, a length, a payload (RFC 9114 section 7).

use super::{ErrorCode, H3Fault, varint};

/// Bytes of the longest head of a frame: type and length.
pub const HEAD_BYTES_MAX: usize = 2 * varint::BYTES_MAX;

/// Types of frames (RFC 9114 section 7.2, RFC 9218 section 7.2). Types that are not known mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    /// A piece of a body.
    Data,
    /// A field section.
    Headers,
    /// A push is not wanted.
    CancelPush,
    /// Parameters of the connection.
    Settings,
    /// A push is announced.
    PushPromise,
    /// No further requests are taken.
    GoAway,
    /// So many pushes are permitted.
    MaxPushId,
    /// The priority of a request has changed.
    PriorityOfRequest,
    /// The priority of a push has changed.
    PriorityOfPush,
    /// A type of HTTP/2 that HTTP/3 has not: a fault wherever it stands.
    OfHttp2,
    /// It means nothing here.
    Unknown,
}

impl FrameType {
    /// The type of a number.
    pub fn of(number: u64) -> FrameType {
        match number {
            0x0 => FrameType::Data,
            0x1 => FrameType::Headers,
            0x3 => FrameType::CancelPush,
            0x4 => FrameType::Settings,
            0x5 => FrameType::PushPromise,
            0x7 => FrameType::GoAway,
            0xd => FrameType::MaxPushId,
            0xf0700 => FrameType::PriorityOfRequest,
            0xf0701 => FrameType::PriorityOfPush,
            0x2 | 0x6 | 0x8 | 0x9 => FrameType::OfHttp2,
            _ => FrameType::Unknown,
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Its type.
    pub kind: FrameType,
    /// Bytes of its payload.
    pub length: u64,
}

/// Reads heads of frames whose bytes come in pieces.
#[derive(Clone, Debug, Default)]
pub struct HeadReader {
    bytes: [u8; HEAD_BYTES_MAX],
    held: usize,
}

impl HeadReader {
    /// Takes bytes up to the end of a head. Gives the head, where it is whole, and the bytes that were taken.
    pub fn read(&mut self, input: &[u8]) -> (Option<FrameHead>, usize) {
        for (at, byte) in input.iter().enumerate() {
            // A head is whole before the room ends: there is always a place for the next byte.
            if let Some(place) = self.bytes.get_mut(self.held) {
                *place = *byte;
                self.held += 1;
            }
            let Some((number, after)) = varint::read(&self.bytes[..self.held]) else { continue };
            let Some((length, _)) = varint::read(&self.bytes[after..self.held]) else { continue };
            self.held = 0;
            return (Some(FrameHead { kind: FrameType::of(number), length }), at + 1);
        }
        (None, input.len())
    }

    /// Whether a head has begun that is not whole.
    pub fn is_within(&self) -> bool {
        self.held > 0
    }
}

/// Appends the head of a frame of this type.
pub fn write_head(out: &mut Vec<u8>, number: u64, length: u64) {
    varint::write(out, number);
    varint::write(out, length);
}

/// Appends HEADERS with this field section.
pub fn write_headers(out: &mut Vec<u8>, section: &[u8]) {
    write_head(out, 0x1, section.len() as u64);
    out.extend_from_slice(section);
}

/// Appends the head of DATA with so many bytes.
pub fn write_data_head(out: &mut Vec<u8>, length: u64) {
    write_head(out, 0x0, length);
}

/// Appends GOAWAY: requests on this stream and later ones are not taken (RFC 9114 section 5.2).
pub fn write_goaway(out: &mut Vec<u8>, stream: u64) {
    let mut payload = Vec::with_capacity(varint::BYTES_MAX);
    varint::write(&mut payload, stream);
    write_head(out, 0x7, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// Parameters of a connection (RFC 9114 section 7.2.4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of the largest field section (RFC 9114 section 4.2.2).
    pub field_section_bytes_max: Option<u64>,
    /// Bytes of the largest dynamic table of QPACK (RFC 9204 section 5).
    pub table_bytes_max: u64,
    /// Streams that may wait for entries of that table.
    pub blocked_streams_max: u64,
}

/// Appends SETTINGS. A setting that is zero is left out, for it is that where nothing is said.
pub fn write_settings(out: &mut Vec<u8>, settings: &Settings) {
    let mut payload = Vec::with_capacity(32);
    let mut write = |id, value| {
        varint::write(&mut payload, id);
        varint::write(&mut payload, value);
    };
    if let Some(bytes) = settings.field_section_bytes_max {
        write(0x6, bytes);
    }
    if settings.table_bytes_max > 0 {
        write(0x1, settings.table_bytes_max);
    }
    if settings.blocked_streams_max > 0 {
        write(0x7, settings.blocked_streams_max);
    }
    write_head(out, 0x4, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// The settings in a payload. Those that are not known mean nothing; those of HTTP/2 alone, and one twice, are faults (RFC 9114 section
/// 7.2.4.1).
pub fn read_settings(payload: &[u8]) -> Result<Settings, H3Fault> {
    const BROKEN: H3Fault = H3Fault::connection(ErrorCode::Frame, "SETTINGS that are cut off");
    const fn wrong(detail: &'static str) -> H3Fault {
        H3Fault::connection(ErrorCode::Settings, detail)
    }
    let mut settings = Settings::default();
    let (mut rest, mut ids) = (payload, Vec::new());
    while !rest.is_empty() {
        let (id, len) = varint::read(rest).ok_or(BROKEN)?;
        let (value, after) = varint::read(&rest[len..]).ok_or(BROKEN)?;
        rest = &rest[len + after..];
        ids.push(id);
        match id {
            0x0 | 0x2..=0x5 => return Err(wrong("a setting of HTTP/2")),
            0x1 => settings.table_bytes_max = value,
            0x6 => settings.field_section_bytes_max = Some(value),
            0x7 => settings.blocked_streams_max = value,
            // SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220), SETTINGS_H3_DATAGRAM (RFC 9297).
            0x8 | 0x33 if value > 1 => return Err(wrong("a setting that is neither 0 nor 1")),
            _ => {}
        }
    }
    ids.sort_unstable();
    match ids.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(wrong("a setting twice")),
        false => Ok(settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_that_can_not_be() {
        for (payload, code) in [
            (&[0x6][..], ErrorCode::Frame),
            (&[0x6, 0x40], ErrorCode::Frame),
            (&[0x2, 0x0], ErrorCode::Settings),
            (&[0x0, 0x0], ErrorCode::Settings),
            (&[0x6, 0x1, 0x6, 0x1], ErrorCode::Settings),
            (&[0x33, 0x2], ErrorCode::Settings),
            (&[0x8, 0x2], ErrorCode::Settings),
        ] {
            let fault = read_settings(payload).unwrap_err();
            assert_eq!((fault.code, fault.scope), (code, super::super::Scope::Connection), "{payload:x?}");
        }
        assert_eq!(read_settings(&[0x21, 0x5, 0x33, 0x1, 0x8, 0x1]), Ok(Settings::default()));
    }

    proptest! {
        #[test]
        fn heads_come_back(kind in 0..=varint::MAX, shift in 0..62, length in 0..=varint::MAX, cut in 0_usize..16) {
            let mut bytes = Vec::new();
            write_head(&mut bytes, kind >> shift, length >> shift);
            bytes.push(7);
            let cut = cut.min(bytes.len() - 2);
            let mut reader = HeadReader::default();
            prop_assert_eq!(reader.read(&bytes[..cut]), (None, cut));
            prop_assert_eq!(reader.is_within(), cut > 0);
            let wanted = FrameHead { kind: FrameType::of(kind >> shift), length: length >> shift };
            prop_assert_eq!(reader.read(&bytes[cut..]), (Some(wanted), bytes.len() - 1 - cut));
            prop_assert!(!reader.is_within());
        }

        #[test]
        fn settings_come_back(bytes in prop::option::of(0..=varint::MAX), table in 0..=varint::MAX, blocked in 0..=varint::MAX) {
            let settings = Settings { field_section_bytes_max: bytes, table_bytes_max: table, blocked_streams_max: blocked };
            let mut out = Vec::new();
            write_settings(&mut out, &settings);
            let (head, len) = HeadReader::default().read(&out);
            prop_assert_eq!(head, Some(FrameHead { kind: FrameType::Settings, length: (out.len() - len) as u64 }));
            prop_assert_eq!(read_settings(&out[len..]), Ok(settings));
        }
    }
}
