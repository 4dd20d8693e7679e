//! The stream of a request: HEADERS, any DATA, HEADERS again for trailer fields (RFC 9114 section 4.1), and frames that mean nothing
//! between them. Bytes come in any pieces.

use super::frame::{FrameHead, FrameType, HeadReader};
use super::{ErrorCode, H3Fault};

/// Reads the messages of a client, one on each stream.
#[derive(Debug)]
pub struct MessageReader {
    section_bytes_max: usize,
    head: HeadReader,
    within: Within,
    phase: Phase,
    section: Vec<u8>,
}

/// The payload that the next bytes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// None: the head of a frame comes.
    Head,
    /// A field section, of which so many bytes are to come.
    Section(usize),
    /// DATA.
    Data(u64),
    /// A frame that means nothing, or a section that is too long.
    Skipped(u64),
}

/// How far the message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    Body,
    Trailed,
}

/// DATA of fewer bytes is small: a body in many of them costs more than it carries.
pub const SMALL_DATA_BYTES: u64 = 64;

/// The meaning of the bytes that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A part of a frame, of which more has to come.
    Some,
    /// A frame that means nothing begins, or DATA without bytes.
    Idle,
    /// DATA of fewer than [`SMALL_DATA_BYTES`] begins.
    SmallData,
    /// The section of the head is whole.
    Head,
    /// A section longer than permitted begins; its bytes are left out.
    TooLong,
    /// The bytes are a piece of the body.
    Data,
    /// The section of the trailer fields is whole.
    Trailers,
}

const fn unexpected(detail: &'static str) -> H3Fault {
    H3Fault::connection(ErrorCode::FrameUnexpected, detail)
}

impl MessageReader {
    /// The beginning of a stream. A field section may have so many bytes as it is coded.
    pub fn new(section_bytes_max: usize) -> MessageReader {
        MessageReader {
            section_bytes_max,
            head: HeadReader::default(),
            within: Within::Head,
            phase: Phase::Begins,
            section: Vec::new(),
        }
    }

    /// Takes bytes up to the end of one step, at least one of an input that has any.
    pub fn read(&mut self, input: &[u8]) -> Result<(Step, usize), H3Fault> {
        let within = match self.within {
            Within::Head => {
                let (head, taken) = self.head.read(input);
                return Ok((head.map_or(Ok(Step::Some), |head| self.begin(head))?, taken));
            }
            within => within,
        };
        match within {
            Within::Head => Ok((Step::Some, 0)),
            Within::Section(left) => {
                let taken = left.min(input.len());
                self.section.extend_from_slice(&input[..taken]);
                self.within = Within::Section(left - taken);
                Ok((if taken == left { self.end_section() } else { Step::Some }, taken))
            }
            Within::Data(left) => {
                let (rest, taken) = part(left, input.len());
                self.within = if rest == 0 { Within::Head } else { Within::Data(rest) };
                Ok((Step::Data, taken))
            }
            Within::Skipped(left) => {
                let (rest, taken) = part(left, input.len());
                self.within = if rest == 0 { Within::Head } else { Within::Skipped(rest) };
                Ok((Step::Some, taken))
            }
        }
    }

    fn begin(&mut self, head: FrameHead) -> Result<Step, H3Fault> {
        let skipped = if head.length == 0 { Within::Head } else { Within::Skipped(head.length) };
        match head.kind {
            FrameType::Headers if self.phase == Phase::Trailed => Err(unexpected("HEADERS behind trailer fields")),
            FrameType::Headers => match usize::try_from(head.length) {
                Ok(0) => Ok(self.end_section()),
                Ok(length) if length <= self.section_bytes_max => {
                    self.within = Within::Section(length);
                    Ok(Step::Some)
                }
                _ => {
                    self.within = skipped;
                    self.advance();
                    Ok(Step::TooLong)
                }
            },
            FrameType::Data if self.phase == Phase::Begins => Err(unexpected("DATA before HEADERS")),
            FrameType::Data if self.phase == Phase::Trailed => Err(unexpected("DATA behind trailer fields")),
            FrameType::Data if head.length == 0 => Ok(Step::Idle),
            FrameType::Data => {
                self.within = Within::Data(head.length);
                Ok(if head.length < SMALL_DATA_BYTES { Step::SmallData } else { Step::Some })
            }
            FrameType::Unknown => {
                self.within = skipped;
                Ok(Step::Idle)
            }
            FrameType::PushPromise => Err(unexpected("PUSH_PROMISE of a client")),
            FrameType::OfHttp2 => Err(unexpected("a frame of HTTP/2")),
            _ => Err(unexpected("a frame of the control stream on that of a request")),
        }
    }

    fn end_section(&mut self) -> Step {
        self.within = Within::Head;
        self.advance();
        if self.phase == Phase::Body { Step::Head } else { Step::Trailers }
    }

    fn advance(&mut self) {
        self.phase = if self.phase == Phase::Begins { Phase::Body } else { Phase::Trailed };
    }

    /// The section that is whole.
    pub fn section(&self) -> &[u8] {
        &self.section
    }

    /// Bytes of a section that are held.
    pub fn section_bytes(&self) -> usize {
        self.section.len()
    }

    /// Lets a section go that was decoded.
    pub fn forget_section(&mut self) {
        self.section = Vec::new();
    }

    /// The stream has ended here.
    pub fn end(&self) -> Result<(), H3Fault> {
        if self.within != Within::Head || self.head.is_within() {
            return Err(H3Fault::connection(ErrorCode::Frame, "a frame that is cut off"));
        }
        match self.phase {
            Phase::Begins => Err(H3Fault::stream(ErrorCode::RequestIncomplete, "a stream without a request")),
            Phase::Body | Phase::Trailed => Ok(()),
        }
    }
}

/// The rest of a payload behind so many bytes, and the bytes of it that are here.
fn part(left: u64, here: usize) -> (u64, usize) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(here);
    (left - taken as u64, taken)
}

#[cfg(test)]
mod tests {
    use super::super::frame::{write_data_head, write_head, write_headers};
    use super::*;

    /// Reads all of a stream in pieces: the steps that mean something, the bytes of the body, and the fault or the end.
    fn played(bytes: &[u8], piece: usize) -> (Vec<Step>, Vec<u8>, Result<(), ErrorCode>) {
        let mut reader = MessageReader::new(100);
        let (mut steps, mut body) = (Vec::new(), Vec::new());
        for mut rest in bytes.chunks(piece) {
            while !rest.is_empty() {
                match reader.read(rest) {
                    Ok((step, taken)) => {
                        assert!(taken > 0);
                        match step {
                            Step::Some => {}
                            Step::Data => body.extend_from_slice(&rest[..taken]),
                            step => steps.push(step),
                        }
                        rest = &rest[taken..];
                        if matches!(step, Step::Head | Step::Trailers) {
                            reader.forget_section();
                        }
                    }
                    Err(fault) => return (steps, body, Err(fault.code)),
                }
            }
        }
        (steps, body, reader.end().map_err(|fault| fault.code))
    }

    fn stream(parts: &[(u64, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, payload) in parts {
            write_head(&mut bytes, *number, payload.len() as u64);
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    #[test]
    fn messages_in_pieces() {
        use ErrorCode::{Frame, FrameUnexpected, RequestIncomplete};
        use Step::{Head, Idle, SmallData, TooLong, Trailers};
        let (long, large) = ([7; 101], [9; 70]);
        for (parts, steps, body, end) in [
            (&[(1, &b"abc"[..])][..], &[Head][..], &b""[..], Ok(())),
            (&[(0x21, b"zz"), (1, b"abc"), (0, b""), (0x40, b"")], &[Idle, Head, Idle, Idle], b"", Ok(())),
            (
                &[(1, b"abc"), (0, b"de"), (0, &large), (1, b"t")],
                &[Head, SmallData, Trailers],
                &{
                    let mut body = b"de".to_vec();
                    body.extend(large);
                    body
                },
                Ok(()),
            ),
            (&[(1, b"")], &[Head], b"", Ok(())),
            (&[(1, &long), (0, b"a")], &[TooLong, SmallData], b"a", Ok(())),
            (&[], &[], b"", Err(RequestIncomplete)),
            (&[(0x21, b"zz")], &[Idle], b"", Err(RequestIncomplete)),
            (&[(0, b"a")], &[], b"", Err(FrameUnexpected)),
            (&[(1, b"a"), (1, b"b"), (0, b"c")], &[Head, Trailers], b"", Err(FrameUnexpected)),
            (&[(1, b"a"), (1, b"b"), (1, b"c")], &[Head, Trailers], b"", Err(FrameUnexpected)),
        ] {
            for piece in [1, 2, 3, 1_000] {
                let wanted = (steps.to_vec(), body.to_vec(), end);
                assert_eq!(played(&stream(parts), piece), wanted, "{parts:?} in pieces of {piece}");
            }
        }
        for kind in [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd, 0xf0700, 0xf0701] {
            let (_, _, end) = played(&stream(&[(1, b"a"), (kind, b"")]), 1);
            assert_eq!(end, Err(FrameUnexpected), "{kind:x}");
        }
        // Cut within a head, a section, DATA and a frame that means nothing.
        let whole = stream(&[(1, b"abc"), (0, b"de"), (0x21, b"fg")]);
        for cut in (1..whole.len()).filter(|cut| ![5, 9].contains(cut)) {
            assert_eq!(played(&whole[..cut], 4).2, Err(Frame), "{cut}");
        }
    }

    #[test]
    fn a_length_beyond_all_memory() {
        let mut bytes = Vec::new();
        write_headers(&mut bytes, b"a");
        write_data_head(&mut bytes, super::super::varint::MAX);
        bytes.extend([5; 300]);
        let (steps, body, end) = played(&bytes, 11);
        assert_eq!((steps, body.len(), end), (vec![Step::Head], 300, Err(ErrorCode::Frame)));
    }
}
