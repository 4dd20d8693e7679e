//! Gzip (RFC 1952): how origins encode a variant, and how robots read what a cache has encoded by itself.
//!
//! Origins write stored blocks (RFC 1951 section 3.2.4), so that any part of an encoded body can be made alone, as the body
//! itself can. Robots read any blocks.

use crate::object::Body;

/// Bytes of the member's head: deflate, no name, no time, no system.
const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// Bytes of data in a stored block.
const BLOCK: u64 = 32 * 1024;
/// A block's head: whether it is the last, its length, its length inverted.
const BLOCK_HEAD: u64 = 5;
/// Checksum and length.
const TAIL: u64 = 8;

/// A body as origins encode it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    body: Body,
    sum: u32,
}

impl Encoded {
    /// Encodes a body; this reads all of it, for its checksum.
    pub fn of(body: Body) -> Self {
        let (mut sum, mut at, mut buffer) = (Crc::default(), 0, [0; 4096]);
        while at < body.size {
            let len = (body.size - at).min(buffer.len() as u64) as usize;
            body.fill(at, &mut buffer[..len]);
            sum.take(&buffer[..len]);
            at += len as u64;
        }
        Self { body, sum: sum.value() }
    }

    /// Bytes that a body of this size takes.
    pub fn len_of(size: u64) -> u64 {
        HEAD.len() as u64 + size.div_ceil(BLOCK).max(1) * BLOCK_HEAD + size + TAIL
    }

    /// Writes the bytes from `at` on into the whole of `out`.
    pub fn fill(&self, at: u64, out: &mut [u8]) {
        let (mut at, mut done) = (at, 0);
        while done < out.len() {
            let written = self.piece(at, &mut out[done..]);
            if written == 0 {
                return;
            }
            (at, done) = (at + written as u64, done + written);
        }
    }

    fn piece(&self, at: u64, out: &mut [u8]) -> usize {
        let head = HEAD.len() as u64;
        if at < head {
            return copy(&HEAD, at, out);
        }
        let (blocks, at) = (self.body.size.div_ceil(BLOCK).max(1), at - head);
        let (number, inside) = (at / (BLOCK + BLOCK_HEAD), at % (BLOCK + BLOCK_HEAD));
        let data = self.body.size.saturating_sub(number.saturating_mul(BLOCK)).min(BLOCK);
        if number >= blocks || inside >= BLOCK_HEAD + data {
            let tail = at - (blocks * BLOCK_HEAD + self.body.size);
            let bytes = u64::from(self.sum) | (self.body.size & 0xffff_ffff) << 32;
            return copy(&bytes.to_le_bytes(), tail, out);
        }
        if inside < BLOCK_HEAD {
            let [low, high] = (data as u16).to_le_bytes();
            return copy(&[u8::from(number + 1 == blocks), low, high, !low, !high], inside, out);
        }
        let len = ((BLOCK_HEAD + data - inside) as usize).min(out.len());
        self.body.fill(number * BLOCK + inside - BLOCK_HEAD, &mut out[..len]);
        len
    }
}

fn copy(from: &[u8], at: u64, to: &mut [u8]) -> usize {
    let from = from.get(at as usize..).unwrap_or_default();
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    len
}

/// The checksum of gzip, eight bytes at a time.
#[derive(Clone, Copy, Debug)]
struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Self(!0)
    }
}

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

impl Crc {
    fn take(&mut self, bytes: &[u8]) {
        let mut sum = self.0;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let low = sum ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let of = |table: usize, byte: u32| TABLES[table][(byte & 0xff) as usize];
            let byte = |place: usize| TABLES[7 - place][usize::from(word[place])];
            sum = of(7, low)
                ^ of(6, low >> 8)
                ^ of(5, low >> 16)
                ^ of(4, low >> 24)
                ^ byte(4)
                ^ byte(5)
                ^ byte(6)
                ^ byte(7);
        }
        for byte in words.remainder() {
            sum = sum >> 8 ^ TABLES[0][((sum ^ u32::from(*byte)) & 0xff) as usize];
        }
        self.0 = sum;
    }

    fn value(self) -> u32 {
        !self.0
    }
}

/// Bytes that a gzip stream may refer back to.
const WINDOW: usize = 32 * 1024;
/// Bytes that are given out at once.
const FLUSH: usize = 4096;
/// Input that is taken at once; while a symbol or a table is not whole it is kept, and the longest table of a block takes less.
const INPUT_BYTES_MAX: usize = 1024;
/// Bytes of a member's head: 10, an extra field of 65,537 at most (RFC 1952 section 2.3.1.1), and a name and a comment, for
/// which the format knows no limit. A longer head is an attack on the memory of the reader.
const HEAD_BYTES_MAX: usize = 80_000;
/// Bits of the longest code (RFC 1951 section 3.2.7).
const CODE_BITS_MAX: usize = 15;

/// Reads a gzip stream as it arrives.
#[derive(Clone, Debug)]
pub struct Reader {
    input: Vec<u8>,
    /// Bits of `input` that were read.
    at: usize,
    state: State,
    window: Vec<u8>,
    sum: Crc,
    total: u64,
}

#[derive(Clone, Debug)]
enum State {
    Head,
    Block,
    Stored {
        left: usize,
        last: bool,
    },
    Coded {
        codes: Box<(Codes, Codes)>,
        last: bool,
    },
    Tail,
    End,
    /// It is no gzip, for this reason; nothing is kept any more.
    Broken(&'static str),
}

/// A canonical Huffman code (RFC 1951 section 3.2.2): how many codes of each length there are, and their symbols in order.
#[derive(Clone, Debug, Default)]
struct Codes {
    counts: [u16; CODE_BITS_MAX + 1],
    symbols: Vec<u16>,
}

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The rest has not come.
    More,
    /// It is no gzip.
    Broken(&'static str),
}

impl Default for Reader {
    fn default() -> Self {
        Self { input: Vec::new(), at: 0, state: State::Head, window: Vec::new(), sum: Crc::default(), total: 0 }
    }
}

impl Reader {
    /// Takes bytes in and gives what they hold to `out`, piece by piece; `Err` says why they are no gzip, of all that follows
    /// too. It keeps less than 200 kB, whatever comes.
    pub fn take(&mut self, bytes: &[u8], out: impl FnMut(&[u8])) -> Result<(), &'static str> {
        if let State::Broken(why) = self.state {
            return Err(why);
        }
        self.read_on(bytes, out).inspect_err(|why| {
            self.rest();
            self.state = State::Broken(why);
        })
    }

    fn read_on(&mut self, bytes: &[u8], mut out: impl FnMut(&[u8])) -> Result<(), &'static str> {
        for piece in bytes.chunks(INPUT_BYTES_MAX) {
            self.input.extend_from_slice(piece);
            loop {
                let made = self.window.len();
                let stop = loop {
                    match self.step() {
                        // All content is given out before the checksum at the end is read.
                        Ok(()) if self.window.len() < made + FLUSH && !matches!(self.state, State::Tail) => {}
                        other => break other,
                    }
                };
                if self.window.len() > made {
                    out(&self.window[made..]);
                    self.sum.take(&self.window[made..]);
                    self.total += (self.window.len() - made) as u64;
                }
                if self.window.len() > WINDOW + WINDOW / 2 {
                    self.window.drain(..self.window.len() - WINDOW);
                }
                match stop {
                    Ok(()) => {}
                    Err(Stop::More) => break,
                    Err(Stop::Broken(why)) => return Err(why),
                }
            }
            self.input.drain(..self.at / 8);
            self.at %= 8;
            if self.input.len() > HEAD_BYTES_MAX {
                return Err("a gzip head without an end");
            }
        }
        Ok(())
    }

    /// Nothing more will come: gives the memory back. Only [`Self::is_whole`] has a meaning from here on.
    pub fn rest(&mut self) {
        (self.input, self.window, self.at) = (Vec::new(), Vec::new(), 0);
        if !self.is_whole() {
            self.state = State::Broken("the stream was over");
        }
    }

    /// Bytes of memory that it holds.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        let codes = match &self.state {
            State::Coded { codes, .. } => 2 * (codes.0.symbols.capacity() + codes.1.symbols.capacity()),
            _ => 0,
        };
        self.input.capacity() + self.window.capacity() + codes + size_of::<Self>()
    }

    /// Whether the stream is over.
    pub fn is_whole(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Reads one thing: a head, a symbol, as much of a stored block as there is. Of a thing that is not whole nothing
    /// is consumed.
    fn step(&mut self) -> Result<(), Stop> {
        let before = self.at;
        let done = self.read();
        if done == Err(Stop::More) {
            self.at = before;
        }
        done
    }

    fn read(&mut self) -> Result<(), Stop> {
        match self.state {
            State::Head => self.head(),
            State::Block => self.block(),
            State::Stored { left: 0, last } => {
                self.state = if last { State::Tail } else { State::Block };
                Ok(())
            }
            State::Stored { left, last } => {
                let from = self.at / 8;
                let len = left.min(self.input.len() - from);
                if len == 0 {
                    return Err(Stop::More);
                }
                self.window.extend_from_slice(&self.input[from..from + len]);
                self.at += 8 * len;
                self.state = State::Stored { left: left - len, last };
                Ok(())
            }
            State::Coded { .. } => self.symbol(),
            State::Tail => self.tail(),
            State::End if self.at / 8 < self.input.len() => {
                Err(Stop::Broken("bytes behind the end of the gzip stream"))
            }
            State::End => Err(Stop::More),
            State::Broken(why) => Err(Stop::Broken(why)),
        }
    }

    fn bits(&mut self, count: usize) -> Result<usize, Stop> {
        let mut value = 0;
        for bit in 0..count {
            let place = self.at + bit;
            let byte = *self.input.get(place / 8).ok_or(Stop::More)?;
            value |= usize::from(byte >> (place % 8) & 1) << bit;
        }
        self.at += count;
        Ok(value)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = *self.input.get(self.at / 8).ok_or(Stop::More)?;
        self.at += 8;
        Ok(byte)
    }

    fn head(&mut self) -> Result<(), Stop> {
        let mut head = [0; 10];
        for place in &mut head {
            *place = self.byte()?;
        }
        if head[..3] != HEAD[..3] {
            return Err(Stop::Broken("no gzip head"));
        }
        let flags = head[3];
        if flags & 4 != 0 {
            let len = usize::from(self.byte()?) | usize::from(self.byte()?) << 8;
            (0..len).try_for_each(|_| self.byte().map(drop))?;
        }
        for text in [8, 16] {
            while flags & text != 0 && self.byte()? != 0 {}
        }
        if flags & 2 != 0 {
            (0..2).try_for_each(|_| self.byte().map(drop))?;
        }
        self.state = State::Block;
        Ok(())
    }

    fn block(&mut self) -> Result<(), Stop> {
        let (last, kind) = (self.bits(1)? == 1, self.bits(2)?);
        self.state = match kind {
            0 => {
                self.at = self.at.next_multiple_of(8);
                let (len, inverse) = (self.bits(16)?, self.bits(16)?);
                if len ^ inverse != 0xffff {
                    return Err(Stop::Broken("the length of a stored block contradicts itself"));
                }
                State::Stored { left: len, last }
            }
            1 => State::Coded { codes: Box::new(fixed_codes()), last },
            2 => State::Coded { codes: Box::new(self.codes()?), last },
            _ => return Err(Stop::Broken("a block of no kind")),
        };
        Ok(())
    }

    /// The codes of a block (RFC 1951 section 3.2.7).
    fn codes(&mut self) -> Result<(Codes, Codes), Stop> {
        const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let (literals, distances, count) = (self.bits(5)? + 257, self.bits(5)? + 1, self.bits(4)? + 4);
        let mut lengths = [0; 19];
        for place in &ORDER[..count] {
            lengths[*place] = self.bits(3)? as u8;
        }
        let code = Codes::of(&lengths);
        let mut all: Vec<u8> = Vec::with_capacity(literals + distances);
        while all.len() < literals + distances {
            let (value, times) = match self.decode(&code)? {
                16 => {
                    let last = *all.last().ok_or(Stop::Broken("a repetition of nothing"))?;
                    (last, 3 + self.bits(2)?)
                }
                17 => (0, 3 + self.bits(3)?),
                18 => (0, 11 + self.bits(7)?),
                length => (length as u8, 1),
            };
            all.extend(std::iter::repeat_n(value, times));
        }
        if all.len() > literals + distances {
            return Err(Stop::Broken("more code lengths than codes"));
        }
        Ok((Codes::of(&all[..literals]), Codes::of(&all[literals..])))
    }

    fn decode(&mut self, codes: &Codes) -> Result<u16, Stop> {
        let (mut code, mut first, mut index) = (0_i32, 0_i32, 0_i32);
        for count in &codes.counts[1..] {
            code |= self.bits(1)? as i32;
            let count = i32::from(*count);
            if code - count < first {
                return Ok(codes.symbols[(index + code - first) as usize]);
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Stop::Broken("a code of no symbol"))
    }

    fn symbol(&mut self) -> Result<(), Stop> {
        const BASE: [u16; 29] = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
            227, 258,
        ];
        const EXTRA: [u8; 29] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
        let state = std::mem::replace(&mut self.state, State::End);
        let State::Coded { codes, last } = state else { return Err(Stop::Broken("no codes")) };
        let found = (|| match self.decode(&codes.0)? {
            256 => Ok(Some(0)),
            literal @ 0..256 => {
                self.window.push(literal as u8);
                Ok(None)
            }
            length => {
                let place = usize::from(length - 257);
                let base = *BASE.get(place).ok_or(Stop::Broken("a length of no meaning"))?;
                let length = usize::from(base) + self.bits(usize::from(EXTRA[place]))?;
                let place = usize::from(self.decode(&codes.1)?);
                if place > 29 {
                    return Err(Stop::Broken("a distance of no meaning"));
                }
                let extra = (place / 2).saturating_sub(1);
                let base = if place < 4 { place + 1 } else { 1 + ((2 + place % 2) << extra) };
                let distance = base + self.bits(extra)?;
                let from =
                    self.window.len().checked_sub(distance).ok_or(Stop::Broken("a reference before the start"))?;
                (from..from + length).for_each(|place| self.window.push(self.window[place]));
                Ok(None)
            }
        })();
        self.state = match found {
            Ok(Some(_)) if last => State::Tail,
            Ok(Some(_)) => State::Block,
            _ => State::Coded { codes, last },
        };
        found.map(drop)
    }

    fn tail(&mut self) -> Result<(), Stop> {
        self.at = self.at.next_multiple_of(8);
        let mut tail = [0; 8];
        for place in &mut tail {
            *place = self.byte()?;
        }
        let tail = u64::from_le_bytes(tail);
        if tail as u32 != self.sum.value() {
            return Err(Stop::Broken("the checksum of the gzip stream is wrong"));
        }
        if tail >> 32 != self.total & 0xffff_ffff {
            return Err(Stop::Broken("the length in the gzip stream is wrong"));
        }
        self.state = State::End;
        Ok(())
    }
}

impl Codes {
    fn of(lengths: &[u8]) -> Self {
        let mut codes = Self { counts: [0; CODE_BITS_MAX + 1], symbols: Vec::with_capacity(lengths.len()) };
        for length in lengths {
            codes.counts[usize::from(*length)] += 1;
        }
        codes.counts[0] = 0;
        for wanted in 1..=CODE_BITS_MAX {
            let of_length = lengths.iter().enumerate().filter(|(_, length)| usize::from(**length) == wanted);
            codes.symbols.extend(of_length.map(|(symbol, _)| symbol as u16));
        }
        codes
    }
}

/// The codes of RFC 1951 section 3.2.6.
fn fixed_codes() -> (Codes, Codes) {
    let length = |symbol| match symbol {
        0..144 => 8,
        144..256 => 9,
        256..280 => 7,
        _ => 8,
    };
    let literals: Vec<u8> = (0..288).map(length).collect();
    (Codes::of(&literals), Codes::of(&[5; 30]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made by gzip 1.12 and zlib 1.2.13 of `abc` eight times, with the fixed codes, and of some lines, with their own.
    const FIXED: &[u8] = &[
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x4b, 0x4c, 0x4a, 0x4e, 0xc4, 0x86, 0x00, 0x37,
        0x0f, 0x20, 0x01, 0x18, 0x00, 0x00, 0x00,
    ];
    const TABLED: &[u8] = &[
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x8d, 0xd1, 0x4d, 0x0a, 0x80, 0x20, 0x10, 0x05,
        0xe0, 0x7d, 0xa7, 0x78, 0x07, 0x68, 0xa1, 0xa6, 0x66, 0xc7, 0x09, 0x32, 0x12, 0x2a, 0x21, 0x85, 0x3a, 0x7e,
        0xc4, 0xd8, 0x7a, 0x66, 0xff, 0x31, 0x3f, 0xef, 0xed, 0xe9, 0x8c, 0x50, 0xc8, 0x2b, 0x66, 0xd4, 0xf8, 0x54,
        0xdc, 0xa9, 0x6e, 0x28, 0xf9, 0x88, 0xb8, 0xf3, 0xb5, 0x14, 0xa4, 0x13, 0xa9, 0xf6, 0x50, 0xdd, 0xfe, 0x49,
        0xcd, 0x4b, 0x4d, 0xd2, 0xf2, 0xd2, 0x90, 0x9c, 0x78, 0x39, 0xb4, 0xed, 0x9e, 0xa7, 0x96, 0xa8, 0x71, 0x3c,
        0x75, 0x44, 0x07, 0xc1, 0x54, 0xdf, 0x9e, 0x12, 0xdc, 0x3a, 0x12, 0xf5, 0x82, 0x00, 0x02, 0xd1, 0x20, 0x48,
        0x75, 0x6a, 0x09, 0x28, 0x41, 0x57, 0xfa, 0x2f, 0xcb, 0x48, 0xea, 0xd2, 0xdd, 0x0b, 0x33, 0xed, 0x54, 0xcd,
        0x04, 0x02, 0x00, 0x00,
    ];

    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, bool), &'static str> {
        let (mut reader, mut out) = (Reader::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            reader.take(piece, |part| out.extend_from_slice(part))?;
        }
        Ok((out, reader.is_whole()))
    }

    proptest! {
        #[test]
        fn what_origins_encode_is_read_back_and_any_part_can_be_made(
            size in 0u64..80_000, piece in 1usize..5_000, a in 0u64..90_000, b in 0u64..90_000,
        ) {
            let body = Body { seed: 7, generation: 1, size };
            let (encoded, len) = (Encoded::of(body), Encoded::len_of(size));
            let (mut all, mut plain) = (vec![0; len as usize], vec![0; size as usize]);
            encoded.fill(0, &mut all);
            body.fill(0, &mut plain);
            prop_assert_eq!(read(&all, piece), Ok((plain, true)));
            let (from, to) = (a.min(b).min(len), a.max(b).min(len));
            let mut part = vec![0; (to - from) as usize];
            encoded.fill(from, &mut part);
            prop_assert_eq!(&part[..], &all[from as usize..to as usize]);
            prop_assert_eq!(read(&all[..all.len() - 1], piece).map(|(_, whole)| whole), Ok(false));
        }

        #[test]
        fn any_bytes_can_be_read(bytes: Vec<u8>, piece in 1usize..9) {
            let _ = read(&bytes, piece);
            let _ = read(&[&HEAD[..], &bytes].concat(), piece);
        }
    }

    #[test]
    fn memory_is_bounded_whatever_comes_and_given_back_at_the_end() {
        const BOUND: usize = 200_000;
        let endless_name = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0][..], &[b'a'; 1 << 20]].concat();
        let no_gzip = vec![7; 1 << 20];
        for (bytes, why) in [(&endless_name, "without an end"), (&no_gzip, "no gzip head")] {
            let (mut reader, mut said) = (Reader::default(), Ok(()));
            for piece in bytes.chunks(1_000) {
                said = reader.take(piece, |_| {});
                assert!(reader.held_bytes() < BOUND, "{why}: {}", reader.held_bytes());
            }
            assert!(said.is_err_and(|reason| reason.contains(why)), "{said:?}");
            assert!(reader.held_bytes() < 1_000, "{why}: {}", reader.held_bytes());
        }
        let body = Body { seed: 7, generation: 1, size: 1 << 20 };
        let mut all = vec![0; Encoded::len_of(body.size) as usize];
        Encoded::of(body).fill(0, &mut all);
        for (bytes, whole) in [(&all[..], true), (&all[..all.len() / 2], false)] {
            let mut reader = Reader::default();
            reader.take(bytes, |_| {}).unwrap();
            assert!(reader.held_bytes() > WINDOW && reader.held_bytes() < BOUND, "{}", reader.held_bytes());
            reader.rest();
            assert!(reader.held_bytes() < 1_000 && reader.is_whole() == whole, "{}", reader.held_bytes());
        }
    }

    #[test]
    fn what_others_compress_is_read() {
        let lines = |number: u32| format!("line {} of a text with some words in it, {number}\n", number * number);
        let lines: String = (0..12).map(lines).collect();
        for piece in [1, 7, 1_000] {
            assert_eq!(read(FIXED, piece), Ok((b"abc".repeat(8), true)));
            assert_eq!(read(TABLED, piece), Ok((lines.clone().into_bytes(), true)));
        }
        let mut damaged = TABLED.to_vec();
        damaged[60] ^= 1;
        assert!(read(&damaged, 7).is_err());
    }

    #[test]
    fn checksums_are_the_published_ones() {
        let mut sum = Crc::default();
        sum.take(b"123456789");
        assert_eq!(sum.value(), 0xcbf4_3926);
    }
}
