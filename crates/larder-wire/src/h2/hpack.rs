//! Field compression (HPACK, RFC 7541).
//!
//! The decoder has a dynamic table, as each must. The encoder uses the static one alone, so that what it writes means the same on every
//! connection at every time: a field block can be kept and sent again.

use super::{ErrorCode, H2Fault, huffman};
use crate::static_fields::{Found, by_length, find};
use std::collections::VecDeque;

/// Bytes that a field counts beside its name and value (RFC 7541 section 4.1, RFC 9113 section 10.5.1).
pub const LINE_OVERHEAD_BYTES: usize = 32;
/// The size of the dynamic table before SETTINGS say otherwise.
pub const TABLE_BYTES_AT_FIRST: u32 = 4_096;

/// The static table (RFC 7541 appendix A), from index 1 on.
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

const BY_LENGTH: [[u8; 16]; 28] = by_length(&STATIC);

/// A decoded field list: lines in their order, pseudo-fields with their colon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldList {
    pub(crate) bytes: Vec<u8>,
    lines: Vec<(u32, u32)>,
    size: usize,
    is_too_long: bool,
}

impl FieldList {
    /// The names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        self.lines.iter().map(move |(name, value)| {
            let (line_name, behind) = rest.split_at(*name as usize);
            let (line_value, behind) = behind.split_at(*value as usize);
            rest = behind;
            (line_name, line_value)
        })
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Its bytes as limits count them: names, values, and 32 bytes for each line (RFC 9113 section 10.5.1, RFC 9114 section 4.2.2).
    pub fn size(&self) -> usize {
        self.size
    }

    /// True when there is no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The list was longer than permitted, and its end is not here.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.lines.clear();
        (self.size, self.is_too_long) = (0, false);
    }

    /// Takes the bytes behind this place for a line, where the list may be so long.
    pub(crate) fn end_line(&mut self, begins: usize, name: usize, list_bytes_max: usize) {
        self.size = self.size.saturating_add(self.bytes.len() - begins + LINE_OVERHEAD_BYTES);
        if self.size > list_bytes_max || self.is_too_long {
            self.bytes.truncate(begins);
            self.is_too_long = true;
            return;
        }
        self.lines.push((name as u32, (self.bytes.len() - begins - name) as u32));
    }
}

/// The dynamic table (RFC 7541 section 2.3.2).
#[derive(Debug)]
struct Table {
    /// From the newest to the oldest.
    entries: VecDeque<Entry>,
    /// Names and values from the oldest to the newest, behind those that are gone.
    bytes: Vec<u8>,
    /// The place of the first of these bytes among all that ever were.
    begins: u64,
    size: usize,
    size_max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    name: usize,
    value: usize,
}

impl Table {
    fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        let at = usize::try_from(entry.at - self.begins).ok()?;
        let line = self.bytes.get(at..at + entry.name + entry.value)?;
        Some(line.split_at(entry.name))
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + LINE_OVERHEAD_BYTES;
        self.shrink_to(self.size_max.saturating_sub(size));
        // One that is larger than the table empties it (RFC 7541 section 4.4).
        if size > self.size_max {
            return;
        }
        let at = self.begins + self.bytes.len() as u64;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_front(Entry { at, name: name.len(), value: value.len() });
        self.size += size;
    }

    fn resize(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.shrink_to(size_max);
    }

    fn shrink_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_back() else { break };
            self.size -= oldest.name + oldest.value + LINE_OVERHEAD_BYTES;
        }
        let first = self.entries.back().map_or(self.begins + self.bytes.len() as u64, |oldest| oldest.at);
        let gone = usize::try_from(first - self.begins).unwrap_or(0).min(self.bytes.len());
        // Moved once for as many bytes as the table may have.
        if gone > self.size_max || gone == self.bytes.len() {
            self.bytes.drain(..gone);
            self.begins = first;
        }
    }
}

/// Decodes the field blocks of one side of a connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The largest table by our SETTINGS.
    table_bytes_max: usize,
    /// Our SETTINGS made the table smaller: the next block has to say so (RFC 7541 section 4.2).
    owes_update: bool,
    /// Whether any block has touched the table.
    is_touched: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder with a table of [`TABLE_BYTES_AT_FIRST`].
    pub fn new() -> Decoder {
        let size_max = TABLE_BYTES_AT_FIRST as usize;
        let table = Table { entries: VecDeque::new(), bytes: Vec::new(), begins: 0, size: 0, size_max };
        Decoder { table, table_bytes_max: size_max, owes_update: false, is_touched: false }
    }

    /// The size of the table by our SETTINGS, once the peer has acknowledged them.
    pub fn permit_table(&mut self, bytes: u32) {
        self.table_bytes_max = bytes as usize;
        self.owes_update = self.table.size_max > self.table_bytes_max;
    }

    /// The table is as it was at first, so that the same block means the same again.
    pub fn is_untouched(&self) -> bool {
        !self.is_touched
    }

    /// Decodes a whole block into an empty list. A list that is longer than permitted (RFC 9113 section 6.5.2: names, values and
    /// 32 bytes for each line) is decoded to its end, because later blocks build on it, and not kept.
    pub fn decode(&mut self, block: &[u8], list_bytes_max: usize, list: &mut FieldList) -> Result<(), H2Fault> {
        let mut input = Input(block);
        while input.0.first().is_some_and(|first| first & 0xe0 == 0x20) {
            let bytes = input.number(5)?;
            if bytes > self.table_bytes_max {
                return Err(broken("a dynamic table beyond SETTINGS_HEADER_TABLE_SIZE"));
            }
            (self.owes_update, self.is_touched) = (false, true);
            self.table.resize(bytes);
        }
        if self.owes_update && !block.is_empty() {
            return Err(broken("the size of the dynamic table was to be said first"));
        }
        while let Some(first) = input.0.first().copied() {
            match first {
                0x80.. => {
                    let index = input.number(7)?;
                    self.copy(index, list, list_bytes_max)?;
                }
                0x40.. => self.literal(&mut input, 6, true, list, list_bytes_max)?,
                0x20.. => return Err(broken("a change of the table's size within a block")),
                // 0x10: never to be indexed by anybody, which a message that is written anew holds anyway.
                _ => self.literal(&mut input, 4, false, list, list_bytes_max)?,
            }
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), H2Fault> {
        let entry = match index.checked_sub(1) {
            None => None,
            Some(at) => STATIC.get(at).copied().or_else(|| self.table.get(at - STATIC.len())),
        };
        entry.ok_or(broken("an index that no table has"))
    }

    fn copy(&self, index: usize, list: &mut FieldList, list_bytes_max: usize) -> Result<(), H2Fault> {
        let (name, value) = self.entry(index)?;
        // A byte of a block may stand for a whole table: what is not kept is not copied either.
        if list.is_too_long {
            return Ok(());
        }
        let begins = list.bytes.len();
        list.bytes.extend_from_slice(name);
        list.bytes.extend_from_slice(value);
        list.end_line(begins, name.len(), list_bytes_max);
        Ok(())
    }

    fn literal(
        &mut self,
        input: &mut Input<'_>,
        prefix: u32,
        is_inserted: bool,
        list: &mut FieldList,
        list_bytes_max: usize,
    ) -> Result<(), H2Fault> {
        let begins = list.bytes.len();
        match input.number(prefix)? {
            0 => input.string(7, &mut list.bytes)?,
            index => {
                let (name, _) = self.entry(index)?;
                list.bytes.extend_from_slice(name);
            }
        }
        let name = list.bytes.len() - begins;
        input.string(7, &mut list.bytes)?;
        if is_inserted {
            self.is_touched = true;
            let (name, value) = list.bytes[begins..].split_at(name);
            self.table.insert(name, value);
        }
        list.end_line(begins, name, list_bytes_max);
        Ok(())
    }
}

const fn broken(detail: &'static str) -> H2Fault {
    H2Fault::connection(ErrorCode::Compression, detail)
}

/// The rest of a block. QPACK has the same numbers and strings (RFC 9204 section 4.1).
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// A number whose first bits are the low ones of the next byte (RFC 7541 section 5.1).
    pub(crate) fn number(&mut self, prefix: u32) -> Result<usize, H2Fault> {
        const CUT: H2Fault = broken("a number that is cut off");
        let (first, mut rest) = self.0.split_first().ok_or(CUT)?;
        let most = (1_usize << prefix) - 1;
        let mut number = usize::from(*first) & most;
        if number == most {
            // Four more bytes: nothing that a block may have is longer.
            for shift in [0, 7, 14, 21, 28] {
                let (byte, behind) = rest.split_first().ok_or(CUT)?;
                rest = behind;
                if shift == 28 {
                    return Err(broken("a number beyond 2^28"));
                }
                number += usize::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        self.0 = rest;
        Ok(number)
    }

    /// Appends a string whose length has so many bits in the next byte, behind the one that says how it is coded (RFC 7541 section 5.2).
    pub(crate) fn string(&mut self, prefix: u32, out: &mut Vec<u8>) -> Result<(), H2Fault> {
        const CUT: H2Fault = broken("a string that is cut off");
        let is_coded = self.0.first().ok_or(CUT)? & (1 << prefix) != 0;
        let length = self.number(prefix)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        if !is_coded {
            out.extend_from_slice(text);
        } else if !huffman::decode(text, out) {
            return Err(broken("a string in no Huffman code"));
        }
        Ok(())
    }
}

/// Writes that the dynamic table is not used, once at the beginning of a connection's first block: whatever size the peer's SETTINGS
/// permit, later or at once, this is no more (RFC 7541 section 4.2).
pub fn write_no_table(out: &mut Vec<u8>) {
    out.push(0x20);
}

/// Writes a field. Its name is written in small letters; `is_secret` asks all who pass it on to keep it out of tables too (RFC 7541
/// section 7.1.3).
pub fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], is_secret: bool) {
    let named = match find(&STATIC, &BY_LENGTH, name, value) {
        Found::Field(place) if !is_secret => return write_number(out, 0x80, 7, place + 1),
        Found::Field(place) | Found::Name(place) => Some(place + 1),
        Found::Nothing => None,
    };
    let kind = if is_secret { 0x10 } else { 0 };
    match named {
        Some(index) => write_number(out, kind, 4, index),
        None => {
            out.push(kind);
            write_string(out, 0, 7, &name.to_ascii_lowercase());
        }
    }
    write_string(out, 0, 7, value);
}

pub(crate) fn write_number(out: &mut Vec<u8>, kind: u8, prefix: u32, number: usize) {
    let most = (1_usize << prefix) - 1;
    if number < most {
        return out.push(kind | number as u8);
    }
    out.push(kind | most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn write_string(out: &mut Vec<u8>, kind: u8, prefix: u32, text: &[u8]) {
    let coded = huffman::coded_len(text);
    if coded < text.len() {
        write_number(out, kind | 1 << prefix, prefix, coded);
        return huffman::encode(text, out);
    }
    write_number(out, kind, prefix, text.len());
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn lines(list: &FieldList) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        list.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
        let mut list = FieldList::default();
        decoder.decode(block, 1 << 16, &mut list).unwrap();
        lines(&list)
    }

    fn wanted(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// RFC 7541 appendices C.3 (plain) and C.4 (Huffman).
    #[test]
    fn the_requests_of_the_rfc() {
        let blocks = [
            [
                "828684410f7777772e6578616d706c652e636f6d",
                "828684be58086e6f2d6361636865",
                "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
            ],
            [
                "828684418cf1e3c2e5f23a6ba0ab90f4ff",
                "828684be5886a8eb10649cbf",
                "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
            ],
        ];
        let base = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        for [first, second, third] in blocks {
            let mut decoder = Decoder::new();
            assert!(decoder.is_untouched());
            assert_eq!(decoded(&mut decoder, &bytes(first)), wanted(&base));
            let more: Vec<_> = base.into_iter().chain([("cache-control", "no-cache")]).collect();
            assert_eq!(decoded(&mut decoder, &bytes(second)), wanted(&more));
            let last = [
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/index.html"),
                (":authority", "www.example.com"),
                ("custom-key", "custom-value"),
            ];
            assert_eq!(decoded(&mut decoder, &bytes(third)), wanted(&last));
            assert_eq!(decoder.table.size, 164);
            assert!(!decoder.is_untouched());
        }
    }

    /// RFC 7541 appendix C.6: a table of 256 bytes, from which entries go.
    #[test]
    fn the_responses_of_the_rfc() {
        let mut decoder = Decoder::new();
        decoder.permit_table(256);
        let mut first = vec![0x3f, 0xe1, 0x01];
        first.extend(bytes(
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        ));
        let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
        let location = ("location", "https://www.example.com");
        let private = ("cache-control", "private");
        assert_eq!(decoded(&mut decoder, &first), wanted(&[(":status", "302"), private, date, location]));
        assert_eq!(decoder.table.size, 222);
        let second = decoded(&mut decoder, &bytes("4883640effc1c0bf"));
        assert_eq!(second, wanted(&[(":status", "307"), private, date, location]));
        let third = bytes(
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        );
        let cookie = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
        let later = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
        let all = [(":status", "200"), private, later, location, ("content-encoding", "gzip"), cookie];
        assert_eq!(decoded(&mut decoder, &third), wanted(&all));
        assert_eq!(decoder.table.size, 215);
    }

    #[test]
    fn what_no_encoder_makes_is_refused() {
        for (block, detail) in [
            ("80", "an index that no table has"),
            ("be", "an index that no table has"),
            ("ff", "a number that is cut off"),
            ("ffffffffffff", "a number beyond 2^28"),
            ("40", "a string that is cut off"),
            ("400361", "a string that is cut off"),
            ("4081ff0161", "a string in no Huffman code"),
            ("8220", "a change of the table's size within a block"),
            ("3fe21f", "a dynamic table beyond SETTINGS_HEADER_TABLE_SIZE"),
            ("0f", "a number that is cut off"),
        ] {
            let fault = Decoder::new().decode(&bytes(block), 1 << 16, &mut FieldList::default()).unwrap_err();
            assert_eq!((fault.code, fault.detail), (ErrorCode::Compression, detail), "{block}");
        }
    }

    #[test]
    fn a_smaller_table_has_to_be_said() {
        let mut decoder = Decoder::new();
        decoder.permit_table(100);
        let fault = decoder.decode(&[0x82], 1 << 16, &mut FieldList::default()).unwrap_err();
        assert_eq!(fault.detail, "the size of the dynamic table was to be said first");
        let mut decoder = Decoder::new();
        decoder.permit_table(100);
        assert_eq!(decoded(&mut decoder, &[0x20, 0x3f, 0x45, 0x82]), wanted(&[(":method", "GET")]));
        assert_eq!(decoder.table.size_max, 100);
    }

    #[test]
    fn a_long_list_is_decoded_to_its_end_and_not_kept() {
        let mut decoder = Decoder::new();
        let mut block = Vec::new();
        // 4000 bytes into the table, and asked for a thousand times.
        block.extend([0x40, 1, b'a']);
        write_number(&mut block, 0, 7, 3_900);
        block.extend(vec![b'b'; 3_900]);
        block.extend(vec![0xbe; 1_000]);
        block.extend([0x40, 1, b'c', 1, b'd']);
        let mut list = FieldList::default();
        decoder.decode(&block, 10_000, &mut list).unwrap();
        assert!(list.is_too_long() && list.len() == 2 && list.bytes.len() < 10_000);
        // The line behind them counts for the table.
        assert_eq!(decoded(&mut decoder, &[0xbe]), wanted(&[("c", "d")]));
    }

    #[test]
    fn the_encoder_uses_the_static_table_alone() {
        let mut block = Vec::new();
        write_no_table(&mut block);
        write_field(&mut block, b":status", b"200", false);
        write_field(&mut block, b"Content-Type", b"text/html", false);
        write_field(&mut block, b"X-Odd", b"\xff\xfe", false);
        write_field(&mut block, b"set-cookie", b"", true);
        let mut decoder = Decoder::new();
        let mut list = FieldList::default();
        decoder.decode(&block, 1 << 16, &mut list).unwrap();
        let wanted: [(&[u8], &[u8]); 4] =
            [(b":status", b"200"), (b"content-type", b"text/html"), (b"x-odd", b"\xff\xfe"), (b"set-cookie", b"")];
        assert!(list.iter().eq(wanted), "{list:?}");
        assert_eq!((decoder.table.size, decoder.table.size_max), (0, 0));
        assert_eq!(block[1], 0x88);
        assert_eq!(block.last_chunk::<3>(), Some(&[0x1f, 0x28, 0]));
    }

    proptest! {
        #[test]
        fn lists_come_back(fields in prop::collection::vec(("[a-z:-]{0,20}", prop::collection::vec(any::<u8>(), 0..200), any::<bool>()), 0..20)) {
            let mut block = Vec::new();
            for (name, value, is_secret) in &fields {
                write_field(&mut block, name.as_bytes(), value, *is_secret);
            }
            let mut list = FieldList::default();
            let mut decoder = Decoder::new();
            decoder.decode(&block, usize::MAX, &mut list).unwrap();
            prop_assert!(list.iter().eq(fields.iter().map(|(name, value, _)| (name.as_bytes(), &value[..]))));
            prop_assert!(decoder.is_untouched());
        }

        #[test]
        fn no_block_is_a_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..10)) {
            let mut decoder = Decoder::new();
            for block in blocks {
                let mut list = FieldList::default();
                if decoder.decode(&block, 500, &mut list).is_err() {
                    break;
                }
                prop_assert!(decoder.table.size <= decoder.table.size_max);
                prop_assert!(decoder.table.bytes.len() <= 2 * 4_096 + 200);
            }
        }
    }
}
