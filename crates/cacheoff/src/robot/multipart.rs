//! The body of an answer with several parts (RFC 9110 section 14.6), taken apart as it arrives.

use larder_wire::range::ContentRange;
use std::ops::Range;

/// Reads `multipart/byteranges`.
#[derive(Clone, Debug)]
pub(super) struct Multipart {
    /// The end of a line, two hyphens, the boundary.
    delimiter: Vec<u8>,
    input: Vec<u8>,
    state: State,
    /// Bytes of the whole object.
    size: u64,
    /// The parts whose heads came.
    parts: Vec<Range<u64>>,
}

#[derive(Clone, Debug)]
enum State {
    Delimiter,
    Head,
    Data(Range<u64>),
    End,
}

/// The head of a part is no larger.
const HEAD_BYTES_MAX: usize = 8 * 1024;

impl Multipart {
    /// Reads the body of an answer with this `Content-Type`, about an object of this size; `None` if it is no such body.
    pub fn of(media: &[u8], size: u64) -> Option<Self> {
        let text = std::str::from_utf8(media).ok()?;
        let (essence, parameters) = text.split_once(';')?;
        if !essence.trim().eq_ignore_ascii_case("multipart/byteranges") {
            return None;
        }
        let boundary = parameters.split(';').find_map(|each| {
            let (name, value) = each.split_once('=')?;
            name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
        })?;
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter may be the first line.
        Some(Self { delimiter, input: b"\r\n".to_vec(), state: State::Delimiter, size, parts: Vec::new() })
    }

    /// Takes bytes in and gives the content of parts, with its place in the object, to `out`; `Err` says what is wrong, and
    /// nothing is kept or read after it.
    pub fn take(&mut self, bytes: &[u8], out: impl FnMut(u64, &[u8])) -> Result<(), String> {
        self.read_on(bytes, out).inspect_err(|_| {
            self.state = State::End;
            self.rest();
        })
    }

    /// Nothing more will come: gives the memory back.
    pub fn rest(&mut self) {
        self.input = Vec::new();
    }

    fn read_on(&mut self, bytes: &[u8], mut out: impl FnMut(u64, &[u8])) -> Result<(), String> {
        self.input.extend_from_slice(bytes);
        loop {
            match &mut self.state {
                State::Delimiter => {
                    let Some(at) = find(&self.input, &self.delimiter) else {
                        let kept = self.delimiter.len().min(self.input.len());
                        if kept < self.input.len() && !self.parts.is_empty() {
                            return Err("bytes behind a part that was over".to_owned());
                        }
                        self.input.drain(..self.input.len() - kept);
                        return Ok(());
                    };
                    // Text may stand before the first delimiter alone (RFC 2046 section 5.1.1).
                    if at > 0 && !self.parts.is_empty() {
                        return Err(format!("{at} bytes behind a part that was over"));
                    }
                    let end = at + self.delimiter.len();
                    let Some(next) = self.input.get(end..end + 2) else { return Ok(()) };
                    self.state = if next == b"--" { State::End } else { State::Head };
                    self.input.drain(..end);
                }
                State::Head => {
                    let Some(end) = find(&self.input, b"\r\n\r\n") else {
                        let fits = self.input.len() <= HEAD_BYTES_MAX;
                        return fits.then_some(()).ok_or_else(|| "the head of a part has no end".to_owned());
                    };
                    let range = self.part(end)?;
                    self.parts.push(range.clone());
                    self.input.drain(..end + 4);
                    self.state = State::Data(range);
                }
                State::Data(range) if range.is_empty() => self.state = State::Delimiter,
                State::Data(_) if self.input.is_empty() => return Ok(()),
                State::Data(range) => {
                    let len = self.input.len().min(usize::try_from(range.end - range.start).unwrap_or(usize::MAX));
                    out(range.start, &self.input[..len]);
                    range.start += len as u64;
                    self.input.drain(..len);
                }
                State::End => {
                    self.input.clear();
                    return Ok(());
                }
            }
        }
    }

    /// The range in the head of a part that ends here.
    fn part(&self, end: usize) -> Result<Range<u64>, String> {
        let head = String::from_utf8_lossy(&self.input[..end]).into_owned();
        let value = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("Content-Range").then(|| value.trim().to_owned())
        });
        let found = value.as_deref().and_then(|value| ContentRange::parse(value.as_bytes()));
        let found = found.ok_or_else(|| format!("a part without a range: {head:?}"))?;
        match found.len {
            Some(total) if total != self.size => {
                Err(format!("a part of {total} bytes, but the object has {}", self.size))
            }
            _ => Ok(found.range()),
        }
    }

    /// The fault of the parts that came, now that the body is over: each must have been asked for, in any order; parts that
    /// lie side by side may have become one, and some may be left out (RFC 9110 section 15.3.7).
    pub fn fault(&self, asked: &[Range<u64>]) -> Option<String> {
        if !matches!(self.state, State::End) {
            return Some("the last delimiter did not come".to_owned());
        }
        let is_asked = |part: &Range<u64>| {
            let begins = asked.iter().any(|asked| asked.start == part.start);
            begins && asked.iter().any(|asked| asked.end == part.end)
        };
        match self.parts.iter().find(|part| !is_asked(part)) {
            Some(part) => Some(format!("bytes {part:?} came, which are none of {asked:?}")),
            None => self.parts.is_empty().then(|| "no part came".to_owned()),
        }
    }

    /// Bytes of the parts whose heads came.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Body;
    use crate::origin::Parts;
    use proptest::prelude::*;

    const SIZE: u64 = 5_000;

    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<(u64, u8)>, Multipart), String> {
        let mut reader = Multipart::of(b"multipart/byteranges; boundary=\"xyz\"", SIZE).unwrap();
        let mut seen = Vec::new();
        for piece in bytes.chunks(piece) {
            reader.take(piece, |at, bytes| seen.extend((at..).zip(bytes.iter().copied())))?;
        }
        Ok((seen, reader))
    }

    #[test]
    fn after_an_error_nothing_is_kept() {
        let mut reader = Multipart::of(b"multipart/byteranges; boundary=xyz", SIZE).unwrap();
        assert!(reader.take(&[b"--xyz\r\n".as_slice(), &vec![b'a'; 20_000]].concat(), |_, _| {}).is_err());
        (0..100).for_each(|_| reader.take(&[b'a'; 10_000], |_, _| {}).unwrap());
        assert!(reader.input.capacity() < 20_000, "{}", reader.input.capacity());
    }

    proptest! {
        #[test]
        fn what_an_origin_writes_is_read_in_any_pieces(
            cuts in proptest::collection::vec(0..SIZE, 4..9), piece in 1usize..700, at in 0usize..300,
        ) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            cuts.dedup();
            let ranges: Vec<Range<u64>> = cuts.chunks_exact(2).map(|two| two[0]..two[1]).collect();
            prop_assume!(!ranges.is_empty());
            let body = Body { seed: 9, generation: 1, size: SIZE };
            let parts = Parts::of(body, &ranges, "text/html", "xyz");
            let mut bytes = vec![0; parts.bytes() as usize];
            let at = at.min(bytes.len());
            parts.fill(0, &mut bytes[..at]);
            let rest = at as u64;
            parts.fill(rest, &mut bytes[at..]);
            let (seen, reader) = read(&bytes, piece).unwrap();
            prop_assert_eq!(reader.fault(&ranges), None);
            prop_assert_eq!(reader.bytes(), seen.len() as u64);
            prop_assert!(reader.fault(std::slice::from_ref(&(SIZE..SIZE + 1))).is_some());
            prop_assert_eq!(seen.len() as u64, ranges.iter().map(|range| range.end - range.start).sum::<u64>());
            for (at, byte) in seen {
                prop_assert!(body.check(at, &[byte]));
            }
            let (_, short) = read(&bytes[..bytes.len() - 8], piece).unwrap();
            prop_assert!(short.fault(&ranges).is_some());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, piece in 1usize..50) {
            let _ = read(&[b"--xyz\r\nContent-Range: bytes 0-9/5000\r\n\r\n", &bytes[..]].concat(), piece);
        }
    }

    #[test]
    fn a_part_has_no_more_bytes_than_it_says() {
        let part = "--xyz\r\nContent-Range: bytes 0-9/5000\r\n\r\n0123456789";
        for piece in [1, 7, 500] {
            assert!(read(format!("before\r\n{part}\r\n--xyz--").as_bytes(), piece).is_ok());
            assert!(read(format!("{part}0\r\n--xyz--").as_bytes(), piece).is_err(), "{piece}");
            assert!(read(format!("{part}{}", "0".repeat(90)).as_bytes(), piece).is_err(), "{piece}");
        }
    }

    #[test]
    fn parts_of_another_object_and_parts_without_a_range_are_refused() {
        for head in ["Content-Range: bytes 0-9/4999", "Content-Range: lines 0-9/5000", "Content-Type: text/html"] {
            assert!(read(format!("--xyz\r\n{head}\r\n\r\n0123456789\r\n--xyz--").as_bytes(), 9).is_err(), "{head}");
        }
        assert!(Multipart::of(b"text/html; boundary=x", 1).is_none());
    }
}
