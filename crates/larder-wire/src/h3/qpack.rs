//! Field compression (QPACK, RFC 9204) by the static table alone: a dynamic table of 0 bytes is announced, and none is used. So field
//! sections wait for no other stream, and each means the same on every connection at every time.

use super::static_table::{Found, STATIC, find};
use super::{ErrorCode, H3Fault};
use crate::h2::H2Fault;
use crate::h2::hpack::{FieldList, Input, write_number, write_string};

/// Decodes a whole section into an empty list. A list that is longer than permitted (RFC 9114 section 4.2.2: names, values and 32 bytes
/// for each line) is not kept to its end.
pub fn decode(section: &[u8], list_bytes_max: usize, list: &mut FieldList) -> Result<(), H3Fault> {
    let mut input = Input(section);
    let required = input.number(8).map_err(broken_by)?;
    let is_base_before = input.0.first().is_some_and(|first| first & 0x80 != 0);
    input.number(7).map_err(broken_by)?;
    if required != 0 || is_base_before {
        return Err(broken("a section that needs the dynamic table, which has no entries"));
    }
    while let Some(first) = input.0.first().copied() {
        let begins = list.bytes.len();
        let name = match first {
            0xc0.. => {
                let (name, value) = entry(input.number(6).map_err(broken_by)?)?;
                // A byte of a section may stand for a long field: what is not kept is not copied either.
                if !list.is_too_long() {
                    list.bytes.extend_from_slice(name);
                    list.bytes.extend_from_slice(value);
                    list.end_line(begins, name.len(), list_bytes_max);
                }
                continue;
            }
            0x50..=0x5f | 0x70..=0x7f => {
                let (name, _) = entry(input.number(4).map_err(broken_by)?)?;
                list.bytes.extend_from_slice(name);
                name.len()
            }
            // With or without 0x10: never to be indexed by anybody, which a message that is written anew holds anyway.
            0x20..=0x3f => {
                input.string(3, &mut list.bytes).map_err(broken_by)?;
                list.bytes.len() - begins
            }
            _ => return Err(broken("a line that refers to the dynamic table, which has no entries")),
        };
        input.string(7, &mut list.bytes).map_err(broken_by)?;
        list.end_line(begins, name, list_bytes_max);
    }
    Ok(())
}

fn entry(index: usize) -> Result<(&'static [u8], &'static [u8]), H3Fault> {
    STATIC.get(index).copied().ok_or(broken("an index that the static table has not"))
}

const fn broken(detail: &'static str) -> H3Fault {
    H3Fault::connection(ErrorCode::QpackDecompression, detail)
}

fn broken_by(fault: H2Fault) -> H3Fault {
    broken(fault.detail)
}

/// Writes what a section begins with: it needs no entry of the dynamic table (RFC 9204 section 4.5.1).
pub fn write_prefix(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Writes a field. Its name is written in small letters; `is_secret` asks all who pass it on to keep it out of tables too (RFC 9204
/// section 7.1.3).
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], is_secret: bool) {
    let never = |bit: u8| if is_secret { bit } else { 0 };
    match find(name, value) {
        Found::Field(index) if !is_secret => return write_number(out, 0xc0, 6, index),
        Found::Field(index) | Found::Name(index) => write_number(out, 0x50 | never(0x20), 4, index),
        Found::Nothing => write_string(out, 0x20 | never(0x10), 3, &name.to_ascii_lowercase()),
    }
    write_string(out, 0, 7, value);
}

/// Instructions on a stream of the peer's QPACK, whose bytes come in pieces. An encoder has nothing to insert, and a decoder nothing to
/// acknowledge, where there is no dynamic table.
#[derive(Clone, Debug)]
pub struct Instructions {
    side: InstructionSide,
    /// A number has begun that is not whole: bytes of it that came.
    number_bytes: usize,
}

/// The side that sends the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSide {
    /// Those of the peer's encoder (RFC 9204 section 4.3).
    Encoder,
    /// Those of its decoder (RFC 9204 section 4.4).
    Decoder,
}

/// Bytes of the longest number of a stream, which has 62 bits.
const NUMBER_BYTES_MAX: usize = 10;

impl Instructions {
    /// None have come.
    pub fn new(side: InstructionSide) -> Instructions {
        Instructions { side, number_bytes: 0 }
    }

    /// Reads instructions; gives how many were whole. The only ones that may come mean nothing: a table of 0 bytes, and the end of a
    /// stream whose section was not decoded.
    pub fn read(&mut self, input: &[u8]) -> Result<usize, H3Fault> {
        let mut whole = 0;
        for byte in input {
            let is_last = match (self.number_bytes, self.side) {
                (1.., _) => byte & 0x80 == 0,
                (0, InstructionSide::Encoder) if *byte == 0x20 => true,
                (0, InstructionSide::Encoder) => {
                    return Err(wrong(ErrorCode::QpackEncoderStream, "an entry for a dynamic table of 0 bytes"));
                }
                (0, InstructionSide::Decoder) if byte & 0xc0 == 0x40 => byte & 0x3f != 0x3f,
                (0, InstructionSide::Decoder) => {
                    let detail = "a word about entries that were not sent";
                    return Err(wrong(ErrorCode::QpackDecoderStream, detail));
                }
            };
            self.number_bytes += 1;
            if is_last {
                (self.number_bytes, whole) = (0, whole + 1);
            } else if self.number_bytes > NUMBER_BYTES_MAX {
                return Err(wrong(ErrorCode::QpackDecoderStream, "the number of a stream beyond 2^62"));
            }
        }
        Ok(whole)
    }
}

const fn wrong(code: ErrorCode, detail: &'static str) -> H3Fault {
    H3Fault::connection(code, detail)
}

#[cfg(test)]
mod tests {
    use super::super::Scope;
    use super::*;
    use proptest::prelude::*;

    fn decoded(section: &[u8]) -> Result<Vec<(String, String)>, H3Fault> {
        let mut list = FieldList::default();
        decode(section, 1 << 16, &mut list)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok(list.iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 9204 appendix B.1: a literal with a name of the static table.
        let section = [&[0x00, 0x00, 0x51, 0x0b][..], b"/index.html"].concat();
        assert_eq!(decoded(&section).unwrap(), [(":path".to_owned(), "/index.html".to_owned())]);
        let mut written = Vec::new();
        write_prefix(&mut written);
        write_field(&mut written, b":path", b"/index.html", false);
        assert_eq!(decoded(&written), decoded(&section));
    }

    #[test]
    fn each_entry_of_the_static_table_is_one_or_two_bytes() {
        for (index, (name, value)) in STATIC.iter().enumerate() {
            let mut section = Vec::new();
            write_prefix(&mut section);
            write_field(&mut section, name, value, false);
            assert_eq!(section.len(), if index < 63 { 3 } else { 4 }, "{index}");
            assert_eq!(section[2], 0xc0 | index.min(63) as u8, "{index}");
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(decoded(&section).unwrap(), [(text(name), text(value))]);
        }
    }

    #[test]
    fn sections_that_can_not_be() {
        for (section, detail) in [
            (&[][..], "a number that is cut off"),
            (&[0], "a number that is cut off"),
            (&[1, 0], "a section that needs the dynamic table, which has no entries"),
            (&[0, 0x80], "a section that needs the dynamic table, which has no entries"),
            (&[0, 0, 0x80], "a line that refers to the dynamic table, which has no entries"),
            (&[0, 0, 0x10], "a line that refers to the dynamic table, which has no entries"),
            (&[0, 0, 0x00, 0], "a line that refers to the dynamic table, which has no entries"),
            (&[0, 0, 0x40, 0], "a line that refers to the dynamic table, which has no entries"),
            (&[0, 0, 0x60, 0], "a line that refers to the dynamic table, which has no entries"),
            (&[0, 0, 0xff, 36], "an index that the static table has not"),
            (&[0, 0, 0x5f, 84, 0], "an index that the static table has not"),
            (&[0, 0, 0x51, 5, b'a'], "a string that is cut off"),
            (&[0, 0, 0x23, b'a'], "a string that is cut off"),
            (&[0, 0, 0x51], "a string that is cut off"),
            (&[0, 0, 0x51, 0x81, 0x18], "a string in no Huffman code"),
            (&[0, 0, 0x51, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], "a number beyond 2^28"),
        ] {
            let fault = decoded(section).unwrap_err();
            let wanted = (Scope::Connection, ErrorCode::QpackDecompression, detail);
            assert_eq!((fault.scope, fault.code, fault.detail), wanted, "{section:x?}");
        }
        assert_eq!(decoded(&[0, 7]).unwrap(), []);
    }

    #[test]
    fn a_long_list_is_not_kept() {
        let mut section = Vec::new();
        write_prefix(&mut section);
        // 85 is a long entry of the table, named by two bytes.
        section.extend([0xff, 85 - 63].repeat(10_000));
        let mut list = FieldList::default();
        decode(&section, 10_000, &mut list).unwrap();
        assert!(list.is_too_long() && list.bytes.len() <= 10_000, "{}", list.bytes.len());
    }

    #[test]
    fn instructions() {
        let read = |side, input: &[u8]| {
            let whole = Instructions::new(side).read(input);
            let mut pieces = Instructions::new(side);
            let piecewise = input.iter().try_fold(0, |sum, byte| Ok(sum + pieces.read(&[*byte])?));
            assert_eq!(whole, piecewise, "{input:x?}");
            whole.map_err(|fault| fault.code)
        };
        let (encoder, decoder) = (InstructionSide::Encoder, InstructionSide::Decoder);
        assert_eq!(read(encoder, &[0x20, 0x20]), Ok(2));
        // An insertion of each kind, a larger table.
        for first in [0x80, 0xc1, 0x41, 0x00, 0x21, 0x3f] {
            assert_eq!(read(encoder, &[first]), Err(ErrorCode::QpackEncoderStream), "{first:x}");
        }
        assert_eq!(read(decoder, &[0x40, 0x7e, 0x7f, 0x80, 0x00]), Ok(3));
        for first in [0x80, 0x00, 0x01] {
            assert_eq!(read(decoder, &[first]), Err(ErrorCode::QpackDecoderStream), "{first:x}");
        }
        assert_eq!(read(decoder, &[0x7f; 1]), Ok(0));
        assert_eq!(read(decoder, &[&[0x7f][..], &[0x80; 11]].concat()), Err(ErrorCode::QpackDecoderStream));
    }

    proptest! {
        #[test]
        fn lists_come_back(fields in prop::collection::vec(("[a-z:-]{0,30}", prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 0..20)) {
            let mut section = Vec::new();
            write_prefix(&mut section);
            for (name, value, is_secret) in &fields {
                write_field(&mut section, name.as_bytes(), value, *is_secret);
            }
            let mut list = FieldList::default();
            decode(&section, usize::MAX, &mut list).unwrap();
            prop_assert!(list.iter().eq(fields.iter().map(|(name, value, _)| (name.as_bytes(), &value[..]))));
        }

        #[test]
        fn no_section_is_a_panic(section in prop::collection::vec(any::<u8>(), 0..100)) {
            let section = [&[0, 0][..], &section].concat();
            let mut list = FieldList::default();
            let _ = decode(&section, 500, &mut list);
            let _ = Instructions::new(InstructionSide::Decoder).read(&section);
        }
    }
}
