//! Streams of a connection that carry no request: the client's control stream, and the kinds of streams in one direction (RFC 9114
//! section 6.2).

use super::frame::{FrameHead, FrameType, HeadReader, Settings, read_settings};
use super::{ErrorCode, H3Fault, varint};

/// The kind of a stream in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniKind {
    /// SETTINGS and what is about the connection.
    Control,
    /// A push, which a client has not.
    Push,
    /// Instructions of the QPACK encoder.
    QpackEncoder,
    /// Instructions of the QPACK decoder.
    QpackDecoder,
    /// It means nothing here.
    Unknown,
}

impl UniKind {
    /// The kind of a number.
    pub fn of(number: u64) -> UniKind {
        match number {
            0x0 => UniKind::Control,
            0x1 => UniKind::Push,
            0x2 => UniKind::QpackEncoder,
            0x3 => UniKind::QpackDecoder,
            _ => UniKind::Unknown,
        }
    }

    /// Appends the beginning of a control stream.
    pub fn write_control(out: &mut Vec<u8>) {
        varint::write(out, 0x0);
    }
}

/// A frame of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The parameters of the client.
    Settings(Settings),
    /// The client takes no pushes from this one on.
    GoAway(u64),
    /// The client permits pushes below this one.
    MaxPushId(u64),
    /// The value of `Priority` that counts for the request on this stream from now on (RFC 9218 section 7.2).
    Priority(u64, Vec<u8>),
    /// A frame that means nothing.
    Nothing,
}

/// Bytes of the payload of a control frame that has a meaning.
const PAYLOAD_BYTES_MAX: u64 = 1_024;

/// Reads the control stream of a client, whose bytes come in pieces.
#[derive(Debug, Default)]
pub struct ControlReader {
    head: HeadReader,
    within: Option<(FrameHead, u64)>,
    payload: Vec<u8>,
    has_settings: bool,
    max_push_id: Option<u64>,
    goaway: Option<u64>,
}

const fn fault(code: ErrorCode, detail: &'static str) -> H3Fault {
    H3Fault::connection(code, detail)
}

impl ControlReader {
    /// Takes bytes up to the end of one frame. Gives the frame, where it is whole, and the bytes that were taken: at least one of an
    /// input that has any.
    pub fn read(&mut self, input: &[u8]) -> Result<(Option<Control>, usize), H3Fault> {
        let Some((head, left)) = self.within else {
            let (head, taken) = self.head.read(input);
            return Ok((head.map_or(Ok(None), |head| self.begin(head))?, taken));
        };
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let left = left - taken as u64;
        if head.kind != FrameType::Unknown {
            self.payload.extend_from_slice(&input[..taken]);
        }
        if left > 0 {
            self.within = Some((head, left));
            return Ok((None, taken));
        }
        Ok((Some(self.end(head.kind)?), taken))
    }

    fn begin(&mut self, head: FrameHead) -> Result<Option<Control>, H3Fault> {
        match head.kind {
            FrameType::Settings if self.has_settings => {
                return Err(fault(ErrorCode::FrameUnexpected, "SETTINGS a second time"));
            }
            FrameType::Settings => {}
            _ if !self.has_settings => {
                return Err(fault(ErrorCode::MissingSettings, "another frame before SETTINGS"));
            }
            FrameType::Data | FrameType::Headers | FrameType::PushPromise => {
                return Err(fault(ErrorCode::FrameUnexpected, "a frame of requests on the control stream"));
            }
            FrameType::OfHttp2 => return Err(fault(ErrorCode::FrameUnexpected, "a frame of HTTP/2")),
            _ => {}
        }
        if head.kind != FrameType::Unknown && head.length > PAYLOAD_BYTES_MAX {
            return Err(fault(ErrorCode::ExcessiveLoad, "a long frame on the control stream"));
        }
        if head.length > 0 {
            self.within = Some((head, head.length));
            return Ok(None);
        }
        self.end(head.kind).map(Some)
    }

    fn end(&mut self, kind: FrameType) -> Result<Control, H3Fault> {
        self.within = None;
        let payload = std::mem::take(&mut self.payload);
        match kind {
            FrameType::Settings => {
                self.has_settings = true;
                read_settings(&payload).map(Control::Settings)
            }
            FrameType::GoAway => {
                let id = number(&payload)?;
                if self.goaway.replace(id).is_some_and(|before| before < id) {
                    return Err(fault(ErrorCode::Id, "a GOAWAY that takes more pushes than the one before"));
                }
                Ok(Control::GoAway(id))
            }
            FrameType::MaxPushId => {
                let id = number(&payload)?;
                if self.max_push_id.replace(id).is_some_and(|before| before > id) {
                    return Err(fault(ErrorCode::Id, "a MAX_PUSH_ID below the one before"));
                }
                Ok(Control::MaxPushId(id))
            }
            FrameType::CancelPush => {
                number(&payload)?;
                Err(fault(ErrorCode::Id, "CANCEL_PUSH of a push that was not promised"))
            }
            FrameType::PriorityOfRequest => {
                let (id, len) = varint::read(&payload).ok_or(fault(ErrorCode::Frame, "a PRIORITY_UPDATE cut off"))?;
                // The streams that a client opens in both directions (RFC 9000 section 2.1).
                if !id.is_multiple_of(4) {
                    return Err(fault(ErrorCode::Id, "the priority of a stream that carries no request"));
                }
                Ok(Control::Priority(id, payload[len..].to_vec()))
            }
            FrameType::PriorityOfPush => Err(fault(ErrorCode::Id, "the priority of a push that was not promised")),
            _ => Ok(Control::Nothing),
        }
    }
}

/// The number that is the whole payload.
fn number(payload: &[u8]) -> Result<u64, H3Fault> {
    match varint::read(payload) {
        Some((number, len)) if len == payload.len() => Ok(number),
        _ => Err(fault(ErrorCode::Frame, "a payload that is no number alone")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::write_head;
    use super::*;

    fn played(bytes: &[u8], piece: usize) -> (Vec<Control>, Result<(), ErrorCode>) {
        let (mut reader, mut frames) = (ControlReader::default(), Vec::new());
        for mut rest in bytes.chunks(piece) {
            while !rest.is_empty() {
                match reader.read(rest) {
                    Ok((frame, taken)) => {
                        assert!(taken > 0);
                        frames.extend(frame);
                        rest = &rest[taken..];
                    }
                    Err(fault) => return (frames, Err(fault.code)),
                }
            }
        }
        (frames, Ok(()))
    }

    #[test]
    fn control_streams_in_pieces() {
        use ErrorCode::{ExcessiveLoad, Frame, FrameUnexpected, Id, MissingSettings};
        let long = [0; 1_025];
        for (parts, end) in [
            (&[(0x7, &[0_u8][..]), (0xd, &[3]), (0xd, &[3]), (0x21, &long)][..], Ok(())),
            (&[(0xf0700, b"\x04u=3,i")], Ok(())),
            (&[(0x4, &[])], Err(FrameUnexpected)),
            (&[(0x0, &[])], Err(FrameUnexpected)),
            (&[(0x1, &[])], Err(FrameUnexpected)),
            (&[(0x5, &[])], Err(FrameUnexpected)),
            (&[(0x6, &[])], Err(FrameUnexpected)),
            (&[(0x7, &[])], Err(Frame)),
            (&[(0x7, &[0, 0])], Err(Frame)),
            (&[(0xd, &[0x40])], Err(Frame)),
            (&[(0x7, &[0]), (0x7, &[4])], Err(Id)),
            (&[(0xd, &[3]), (0xd, &[2])], Err(Id)),
            (&[(0x3, &[0])], Err(Id)),
            (&[(0xf0700, &[1])], Err(Id)),
            (&[(0xf0700, &[])], Err(Frame)),
            (&[(0xf0701, &[0])], Err(Id)),
            (&[(0xf0700, &long)], Err(ExcessiveLoad)),
        ] {
            let mut bytes = vec![4, 0];
            for (number, payload) in parts {
                write_head(&mut bytes, *number, payload.len() as u64);
                bytes.extend_from_slice(payload);
            }
            for piece in [1, 3, 5_000] {
                let (frames, played_end) = played(&bytes, piece);
                assert_eq!(played_end, end, "{parts:?}");
                assert_eq!(frames[0], Control::Settings(Settings::default()));
            }
        }
        assert_eq!(played(&[7, 1, 0], 1).1, Err(MissingSettings));
        assert_eq!(played(&[0x21, 0], 1).1, Err(MissingSettings));
        let priority = played(b"\x04\x00\x80\x0f\x07\x00\x04\x08u=0", 2).0;
        assert_eq!(priority[1], Control::Priority(8, b"u=0".to_vec()));
    }
}
