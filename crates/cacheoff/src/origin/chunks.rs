//! A body in chunks (RFC 9112 section 7.1), any part of which can be written alone.

/// Bytes of a chunk's data.
const DATA: u64 = 8192;
/// A whole chunk: the line with its size, the data, the end of the line.
const WHOLE: u64 = DATA + 8;
const SIZE_LINE: &[u8] = b"2000\r\n";
const LAST: &[u8] = b"0\r\n\r\n";

/// Bytes that a body takes with its chunks; one that is broken off has no last chunk.
pub fn framed_len(body: u64, whole: bool) -> u64 {
    let rest = body % DATA;
    let partial = if rest == 0 { 0 } else { size_line(rest).len() as u64 + rest + 2 };
    body / DATA * WHOLE + partial + if whole { LAST.len() as u64 } else { 0 }
}

/// Writes the bytes from `at` on, as many as there are and fit; `fill` writes the body from one of its places on.
pub fn write(body: u64, at: u64, out: &mut [u8], fill: impl Fn(u64, &mut [u8])) -> usize {
    let (mut at, mut written) = (at, 0);
    while written < out.len() {
        let (chunk, inside) = (at / WHOLE, at % WHOLE);
        let data = body.saturating_sub(chunk * DATA).min(DATA);
        let line = if data == DATA { SIZE_LINE.to_vec() } else { size_line(data) };
        let (begins, ends) = (line.len() as u64, line.len() as u64 + data);
        let room = &mut out[written..];
        let part: usize = if data == 0 || inside >= ends + 2 {
            copy(LAST, (inside - if data == 0 { 0 } else { ends + 2 }) as usize, room)
        } else if inside < begins {
            copy(&line, inside as usize, room)
        } else if inside < ends {
            let len = ((ends - inside) as usize).min(room.len());
            fill(chunk * DATA + inside - begins, &mut room[..len]);
            len
        } else {
            copy(b"\r\n", (inside - ends) as usize, room)
        };
        if part == 0 {
            break;
        }
        (at, written) = (at + part as u64, written + part);
    }
    written
}

fn size_line(size: u64) -> Vec<u8> {
    format!("{size:x}\r\n").into_bytes()
}

fn copy(from: &[u8], at: usize, to: &mut [u8]) -> usize {
    let from = from.get(at..).unwrap_or_default();
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::body::{Decoder, Event};
    use larder_wire::framing::Framing;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_body_in_any_pieces_comes_back(body in 0u64..40_000, piece in 1usize..9_000) {
            let byte = |at: u64| (at % 251) as u8;
            let fill = |at: u64, out: &mut [u8]| out.iter_mut().zip(at..).for_each(|(out, at)| *out = byte(at));
            let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
            loop {
                let left = (framed_len(body, true) - all.len() as u64).min(piece as u64) as usize;
                let len = write(body, all.len() as u64, &mut buffer[..left], fill);
                all.extend_from_slice(&buffer[..len]);
                if left == 0 {
                    break;
                }
                prop_assert!(len > 0);
            }
            let (mut decoder, mut at, mut found) = (Decoder::new(Framing::Chunked, larder_wire::Side::Origin), 0, Vec::new());
            loop {
                let step = decoder.decode(&all[at..]).unwrap();
                match step.event {
                    Event::Data(range) => found.extend_from_slice(&all[at + range.start..at + range.end]),
                    Event::End(_) => break,
                    Event::NeedMore => prop_assert!(false, "not whole"),
                }
                at += step.consumed;
            }
            prop_assert_eq!(found.len() as u64, body);
            prop_assert!(found.iter().zip(0..).all(|(found, at)| *found == byte(at)));
        }
    }
}
