//! Decodes bodies into pieces, for bodies of clients and of origins.

use bytes::{Buf, Bytes, BytesMut};
use larder_wire::body::{Decoder, Event};
use larder_wire::{Fault, Fields};

/// A chunk of at least so many bytes is handed on without a copy. Smaller ones are copied together, so that a body in tiny
/// chunks does not become thousands of pieces that each pin a whole buffer.
const SMALL_BYTES: usize = 2 * 1024;

/// Small chunks are put together until they are so many bytes.
const GATHERED_BYTES: usize = 16 * 1024;

/// Takes the next piece of content out of the buffer; `None` when the buffer has none, or the body is over. At the end of the
/// body, `end` gets the trailer fields, together with the last piece if there is one. Content before a fault is returned first;
/// the next call returns the fault.
pub fn next(decoder: &mut Decoder, buffer: &mut BytesMut, end: &mut Option<Fields>) -> Result<Option<Bytes>, Fault> {
    let mut small = BytesMut::new();
    while end.is_none() {
        let step = match decoder.decode(buffer) {
            Ok(step) => step,
            Err(_) if !small.is_empty() => break,
            Err(fault) => return Err(fault),
        };
        match step.event {
            Event::NeedMore => {
                buffer.advance(step.consumed);
                break;
            }
            Event::End(trailers) => {
                buffer.advance(step.consumed);
                *end = Some(trailers);
            }
            Event::Data(range) if small.is_empty() && range.len() >= SMALL_BYTES => {
                let mut taken = buffer.split_to(step.consumed);
                taken.truncate(range.end);
                taken.advance(range.start);
                return Ok(Some(taken.freeze()));
            }
            Event::Data(range) => {
                if small.capacity() == 0 {
                    small = BytesMut::with_capacity(range.len());
                }
                small.extend_from_slice(&buffer[range]);
                buffer.advance(step.consumed);
                if small.len() >= GATHERED_BYTES {
                    break;
                }
            }
        }
    }
    Ok((!small.is_empty()).then(|| small.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Side;
    use larder_wire::framing::Framing;

    #[test]
    fn small_chunks_are_put_together_and_the_end_comes_after_them() {
        let mut decoder = Decoder::new(Framing::Chunked, Side::Client);
        let mut buffer = BytesMut::from(&b"1\r\na\r\n".repeat(20_000)[..]);
        buffer.extend_from_slice(b"0\r\nX-Sum: 7\r\n\r\nrest");
        let (mut end, mut lengths) = (None, Vec::new());
        while let Some(piece) = next(&mut decoder, &mut buffer, &mut end).unwrap() {
            assert!(piece.iter().all(|&byte| byte == b'a'));
            lengths.push(piece.len());
        }
        assert_eq!(lengths, [16_384, 3_616]);
        assert_eq!(end.unwrap().text("X-Sum"), Some("7"));
        assert_eq!(buffer, "rest");
    }

    #[test]
    fn content_comes_before_a_fault_and_the_fault_after_it() {
        let mut decoder = Decoder::new(Framing::Chunked, Side::Client);
        let mut buffer = BytesMut::from(&b"2\r\nab\r\nzz\r\n"[..]);
        let mut end = None;
        assert_eq!(next(&mut decoder, &mut buffer, &mut end).unwrap().as_deref(), Some(&b"ab"[..]));
        assert!(next(&mut decoder, &mut buffer, &mut end).is_err() && end.is_none());
    }
}
