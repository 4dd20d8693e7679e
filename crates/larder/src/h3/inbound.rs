//! The client's side of a stream: a head, and the body of a request.

use super::meters::Flood;
use super::{Link, number};
use crate::partial_heads::HeadUnderWay;
use crate::request_body::Piece;
use bytes::Bytes;
use larder_wire::h2::hpack::FieldList;
use larder_wire::h3::message::{MessageReader, Step};
use larder_wire::h3::{ErrorCode, H3Fault, qpack};
use larder_wire::{Fields, Side, field_list};
use quinn::{ReadError, RecvStream};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// Bytes that are taken from QUIC at once. Some such pieces wait for the origin, beside the window of the stream.
const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// The client's side of a stream.
pub struct Inbound {
    link: Rc<Link>,
    receive: RecvStream,
    message: MessageReader,
    /// Bytes that were taken from QUIC and not read yet.
    input: Bytes,
    /// Counts the head while it is not whole.
    under_way: Option<HeadUnderWay>,
    /// A part that was read ahead.
    ahead: Option<Piece>,
    trailers: Option<Fields>,
    /// The bytes that are still to come by `Content-Length`.
    expected_bytes: Option<u64>,
    /// The piece behind which none is expected, until the stream ends there. An origin that had it would have the whole request, which
    /// may turn out to be malformed.
    last: Option<Bytes>,
    has_ended: bool,
}

/// Why no further part comes.
#[derive(Debug)]
pub enum ReadEnd {
    /// The client has reset the stream.
    GivenUp,
    /// The connection is gone.
    Gone,
    /// Heads under way take as much memory as they may, and this one is long.
    Crowded,
    /// The client's fault.
    Fault(H3Fault),
}

impl From<H3Fault> for ReadEnd {
    fn from(fault: H3Fault) -> ReadEnd {
        ReadEnd::Fault(fault)
    }
}

/// A step of a message that means something to its reader.
enum Read {
    Head,
    TooLong,
    Data(Bytes),
    End,
}

const fn malformed(detail: &'static str) -> ReadEnd {
    ReadEnd::Fault(H3Fault::stream(ErrorCode::Message, detail))
}

impl Inbound {
    /// The side of this stream.
    pub fn new(link: &Rc<Link>, receive: RecvStream) -> Inbound {
        Inbound {
            message: MessageReader::new(link.space.head_limits.head_bytes_max),
            link: Rc::clone(link),
            receive,
            input: Bytes::new(),
            under_way: None,
            ahead: None,
            trailers: None,
            expected_bytes: None,
            last: None,
            has_ended: false,
        }
    }

    /// The next step. Cancel-safe.
    async fn read(&mut self) -> Result<Read, ReadEnd> {
        loop {
            while !self.input.is_empty() {
                let (step, taken) = self.message.read(&self.input)?;
                let bytes = self.input.split_to(taken);
                match step {
                    Step::Some => self.count_head()?,
                    Step::Idle => self.link.note(Flood::Control),
                    Step::SmallData => self.link.note(Flood::SmallData),
                    Step::Head => return Ok(Read::Head),
                    Step::TooLong => return Ok(Read::TooLong),
                    Step::Data => return Ok(Read::Data(bytes)),
                    Step::Trailers => self.trailers = Some(self.decode_trailers()?),
                }
            }
            match self.receive.read_chunk(CHUNK_BYTES_MAX, true).await {
                Ok(Some(chunk)) => self.input = chunk.bytes,
                Ok(None) => {
                    self.message.end()?;
                    return Ok(Read::End);
                }
                Err(ReadError::Reset(_)) => return Err(ReadEnd::GivenUp),
                Err(_) => return Err(ReadEnd::Gone),
            }
        }
    }

    /// Counts a section that is not whole among the heads under way, as a head of HTTP/1.1 is.
    fn count_head(&mut self) -> Result<(), ReadEnd> {
        let bytes = self.message.section_bytes();
        if bytes > 0 {
            let heads = &self.link.space.heads_under_way;
            self.under_way.get_or_insert_default().holds(heads, bytes).map_err(|_| ReadEnd::Crowded)?;
        }
        Ok(())
    }

    fn decode_trailers(&mut self) -> Result<Fields, ReadEnd> {
        let mut list = FieldList::default();
        qpack::decode(self.message.section(), self.link.space.head_limits.head_bytes_max, &mut list)?;
        self.message.forget_section();
        self.under_way = None;
        field_list::trailers(&list, Side::Client).map_err(|fault| malformed(fault.detail))
    }

    /// Reads the head, and decodes its fields into the list of the connection, which the caller gives back when it has read them; `None`
    /// where they are too long.
    pub async fn head(&mut self) -> Result<Option<FieldList>, ReadEnd> {
        let read = self.read().await?;
        self.under_way = None;
        if !matches!(read, Read::Head) {
            return Ok(None);
        }
        let mut list = self.link.fields.take();
        list.clear();
        qpack::decode(self.message.section(), self.link.space.head_limits.head_bytes_max, &mut list)?;
        self.message.forget_section();
        Ok(Some(list))
    }

    /// Whether the client has ended the stream behind the head. Where it has not yet said so, this waits until it does, or has sent a
    /// part of a body, if `waits`: a head of so many bytes, which count among those of heads under way meanwhile.
    pub async fn ends_with_head(&mut self, waits: Option<usize>) -> Result<bool, ReadEnd> {
        let here = {
            let mut reading = pin!(self.body_part());
            poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await
        };
        let part = match (here, waits) {
            (Poll::Ready(part), _) => part?,
            (Poll::Pending, None) => return Ok(false),
            (Poll::Pending, Some(head_bytes)) => {
                let mut held = HeadUnderWay::default();
                held.holds(&self.link.space.heads_under_way, head_bytes).map_err(|_| ReadEnd::Crowded)?;
                self.body_part().await?
            }
        };
        self.ahead = Some(part);
        Ok(self.has_ended)
    }

    /// The length of the body by the head of its request.
    pub fn expect(&mut self, bytes: Option<u64>) -> Result<(), ReadEnd> {
        self.expected_bytes = bytes;
        match self.ahead.take() {
            Some(Piece::Data(piece)) => self.ahead = self.takes(piece)?.map(Piece::Data),
            Some(end) => {
                self.has_all()?;
                self.ahead = Some(end);
            }
            None => {}
        }
        Ok(())
    }

    /// Takes a piece; gives it, unless it is held back because it is the last one.
    fn takes(&mut self, piece: Bytes) -> Result<Option<Bytes>, ReadEnd> {
        if let Some(expected) = &mut self.expected_bytes {
            let left = expected.checked_sub(piece.len() as u64);
            *expected = left.ok_or(malformed("more DATA than Content-Length says"))?;
            if *expected == 0 {
                self.last = Some(piece);
                return Ok(None);
            }
        }
        Ok(Some(piece))
    }

    fn has_all(&self) -> Result<(), ReadEnd> {
        match self.expected_bytes {
            Some(1..) => Err(malformed("less DATA than Content-Length says")),
            _ => Ok(()),
        }
    }

    /// The next part of the body. Cancel-safe.
    pub async fn body_part(&mut self) -> Result<Piece, ReadEnd> {
        if let Some(part) = self.ahead.take() {
            return Ok(part);
        }
        loop {
            if self.has_ended {
                return Ok(Piece::End(self.trailers.take().unwrap_or_default()));
            }
            match self.read().await? {
                Read::Data(piece) => {
                    if let Some(piece) = self.takes(piece)? {
                        return Ok(Piece::Data(piece));
                    }
                }
                Read::End => {
                    self.has_all()?;
                    self.has_ended = true;
                    if let Some(last) = self.last.take() {
                        return Ok(Piece::Data(last));
                    }
                }
                Read::TooLong => return Err(malformed("trailer fields longer than head_bytes_max")),
                Read::Head => return Err(malformed("a second head")),
            }
        }
    }

    /// Whether the body was read to its end.
    pub fn is_over(&self) -> bool {
        self.has_ended && !matches!(self.ahead, Some(Piece::Data(_)))
    }

    /// Takes nothing more of the client, and tells it so.
    pub fn stop(&mut self, code: ErrorCode) {
        if !self.has_ended {
            self.has_ended = true;
            let _ = self.receive.stop(number(code));
        }
    }
}
