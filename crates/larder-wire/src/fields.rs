//! The header fields of a message: an ordered list that keeps every line's case and place.
//!
//! All names and values lie in one buffer, so a head of any number of fields costs two allocations
//! and a copy of it two `memcpy`. A received head is taken over as one block, colons and line ends
//! included: four spare bytes a line are cheaper than twenty small copies. Look-up is a scan:
//! messages have about ten fields, and a scan of ten lengths beats a hash. A kept head lies as it is
//! sent, in one allocation; its lines are found again when somebody asks for them.

use memchr::{memchr, memchr_iter};
use std::fmt;
use std::ops::Range;

/// An ordered list of field lines (RFC 9110 section 5). Names compare without case.
#[derive(Clone, Default)]
pub struct Fields {
    bytes: Vec<u8>,
    /// Empty for a kept head: see `is_wire`.
    lines: Vec<Line>,
    /// A bit for each name that is or was here, by its length and its ends: most questions are about fields that a
    /// message does not have, and this answers nearly all of those without a scan.
    marks: u32,
    /// The buffer is what [`Fields::write_to`] writes, and nothing else: a kept head is sent from it as it lies, and its
    /// line ends say where the lines are.
    is_wire: bool,
    /// The buffer is a block that was received, its last empty line included, and the lines are all that are in it.
    is_received: bool,
}

/// Where one field line lies in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    name_at: u32,
    name_len: u32,
    value_at: u32,
    value_len: u32,
}

impl Line {
    /// From its name to the end behind its value, if it lies as it is sent.
    fn whole(&self) -> Range<usize> {
        self.name_at as usize..self.value_end() + LINE_END.len()
    }

    fn value_end(&self) -> usize {
        (self.value_at + self.value_len) as usize
    }

    /// A received line may have other white space than ours around its value.
    fn lies_as_sent(&self, bytes: &[u8]) -> bool {
        let name_end = (self.name_at + self.name_len) as usize;
        self.value_at as usize == name_end + NAME_END.len()
            && bytes.get(name_end..).is_some_and(|rest| rest.starts_with(NAME_END))
            && bytes.get(self.value_end()..).is_some_and(|rest| rest.starts_with(LINE_END))
    }

    fn write_to(&self, bytes: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(name_of(bytes, self));
        out.extend_from_slice(NAME_END);
        out.extend_from_slice(value_of(bytes, self));
        out.extend_from_slice(LINE_END);
    }
}

impl Fields {
    /// An empty list.
    pub fn new() -> Fields {
        Fields::default()
    }

    /// An empty list with room for `bytes` of names and values in `lines` field lines.
    pub fn with_capacity(bytes: usize, lines: usize) -> Fields {
        Fields { bytes: Vec::with_capacity(bytes), lines: Vec::with_capacity(lines), ..Fields::default() }
    }

    /// A copy with room for so many more bytes and lines.
    pub fn with_room(&self, bytes: usize, lines: usize) -> Fields {
        let mut copy = Fields::with_capacity(self.bytes.len() + bytes, self.lines.len() + lines);
        copy.bytes.extend_from_slice(&self.bytes);
        copy.lines.extend_from_slice(&self.lines);
        Fields { marks: self.marks, is_wire: self.is_wire, ..copy }
    }

    /// An empty list as a kept head has it, laid out as it is sent, with room for so many bytes.
    pub fn kept(wire_bytes: usize) -> Fields {
        Fields { bytes: Vec::with_capacity(wire_bytes), is_wire: true, ..Fields::default() }
    }

    /// Adds a line to such a list as it lies; false, and nothing is added, for what is no line: a name that is no token, or
    /// a value with a CR, LF or NUL.
    pub fn push_kept(&mut self, name: &[u8], value: &[u8]) -> bool {
        let value = trim(value);
        // Without an early end, so that many bytes are looked at in one step.
        let ends_line = value.iter().fold(false, |ends, byte| ends | matches!(byte, b'\r' | b'\n' | 0));
        if ends_line || !is_token(name) {
            return false;
        }
        if !self.is_wire {
            let line = self.append(name, value);
            self.lines.push(line);
            self.is_received = false;
            return true;
        }
        self.marks |= mark(name);
        for part in [name, b": ", value, b"\r\n"] {
            self.bytes.extend_from_slice(part);
        }
        true
    }

    /// The fields of a received block, whose names and values are slices of that block. They have passed
    /// the tokeniser, so there is nothing to clean.
    pub(crate) fn from_block(block: &[u8], headers: &[httparse::Header<'_>]) -> Fields {
        let mut marks = 0;
        // All that is in it lies below this.
        offset(block.len());
        let lines = headers.iter().map(|header| {
            marks |= mark(header.name.as_bytes());
            Line {
                name_at: place_in(block, header.name.as_bytes()),
                name_len: header.name.len() as u32,
                value_at: place_in(block, header.value),
                value_len: header.value.len() as u32,
            }
        });
        Fields { lines: lines.collect(), bytes: block.to_vec(), marks, is_wire: false, is_received: true }
    }

    /// The number of field lines.
    pub fn len(&self) -> usize {
        if self.is_wire { memchr_iter(b'\n', &self.bytes).count() } else { self.lines.len() }
    }

    /// True when there is no field line.
    pub fn is_empty(&self) -> bool {
        if self.is_wire { self.bytes.is_empty() } else { self.lines.is_empty() }
    }

    /// Bytes on the heap that this list holds, for exact budgets.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.lines.capacity() * size_of::<Line>()
    }

    /// Gives back what was reserved beyond need or has been replaced since, and lays the lines out as they are sent;
    /// for heads that are kept.
    pub fn shrink(&mut self) {
        if self.is_wire {
            return self.bytes.shrink_to_fit();
        }
        let mut wire = Vec::with_capacity(self.wire_len());
        self.write_to(&mut wire);
        *self = Fields { bytes: wire, lines: Vec::new(), marks: self.marks, is_wire: true, is_received: false };
    }

    /// Makes the list of lines of a kept head again, before it is changed.
    fn open(&mut self) {
        if self.is_wire {
            self.lines = self.lines().collect();
            self.is_wire = false;
        }
        self.is_received = false;
    }

    /// Adds a line at the end. White space around the value is dropped; a CR, LF or NUL inside it
    /// becomes SP (RFC 9110 section 5.5), so no value that passes here can end a line.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) {
        debug_assert!(is_token(name.as_bytes()), "field name {name:?}");
        self.open();
        let line = self.append(name.as_bytes(), value.as_ref());
        self.lines.push(line);
    }

    /// Sets a field to one value: the first line of that name is replaced in its place, the others go.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.open();
        match self.position(name) {
            None => self.push(name, value),
            Some(at) => {
                let line = self.append(name.as_bytes(), value.as_ref());
                self.lines[at] = line;
                self.take_from(at + 1, name);
            }
        }
    }

    /// Takes away all lines of that name; says how many there were.
    #[inline]
    pub fn remove(&mut self, name: &str) -> usize {
        if self.contains(name) { self.take_away(name) } else { 0 }
    }

    fn take_away(&mut self, name: &str) -> usize {
        self.open();
        self.position(name).map_or(0, |first| self.take_from(first, name))
    }

    /// Takes away the lines of that name at this place and behind it; says how many there were.
    fn take_from(&mut self, first: usize, name: &str) -> usize {
        let (bytes, before) = (&self.bytes, self.lines.len());
        let mut place = 0;
        self.lines.retain(|line| {
            place += 1;
            place <= first || !is_named(bytes, line, name.as_bytes())
        });
        before - self.lines.len()
    }

    /// Keeps the lines for which `keep(name, value)` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &[u8]) -> bool) {
        self.open();
        let bytes = &self.bytes;
        self.lines.retain(|line| keep(as_name(name_of(bytes, line)), value_of(bytes, line)));
    }

    /// True when there is a line of that name.
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// The value of the first line of that name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.first(name).map(|line| value_of(&self.bytes, &line))
    }

    /// The value of the first line of that name, when it is UTF-8 (in practice: ASCII).
    #[inline]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The value of that name in a received head, if there is just one.
    pub(crate) fn only(&self, name: &str) -> Only<'_> {
        let mut found = Only::None;
        for line in &self.lines {
            if is_named(&self.bytes, line, name.as_bytes()) {
                match found {
                    Only::None => found = Only::One(value_of(&self.bytes, line)),
                    _ => return Only::Several,
                }
            }
        }
        found
    }

    /// The bytes of a received head with the empty line that ends it, if no line was changed since.
    pub(crate) fn block(&self) -> Option<&[u8]> {
        self.is_received.then_some(&self.bytes)
    }

    /// The values of all lines of that name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.named(name).map(|line| value_of(&self.bytes, &line))
    }

    /// How many lines of that name there are.
    pub fn count(&self, name: &str) -> usize {
        self.get_all(name).count()
    }

    /// All lines as (name, value), in order, names in their own case.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.lines().map(|line| (as_name(name_of(&self.bytes, &line)), value_of(&self.bytes, &line)))
    }

    /// The members of a comma-separated list over all lines of that name (RFC 9110 section 5.6.1).
    /// Commas inside quoted strings do not separate; empty members are skipped.
    pub fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.get_all(name).flat_map(Members::new)
    }

    /// True when a list field has this token as a member, without case.
    #[inline]
    pub fn has_member(&self, name: &str, token: &str) -> bool {
        !self.lacks(name) && self.lists(name, token)
    }

    fn lists(&self, name: &str, token: &str) -> bool {
        let is_list = |value: &[u8]| value.iter().any(|&byte| matches!(byte, b',' | b'"'));
        self.get_all(name).any(|value| match is_list(value) {
            false => trim(value).eq_ignore_ascii_case(token.as_bytes()),
            true => Members::new(value).any(|member| member.eq_ignore_ascii_case(token.as_bytes())),
        })
    }

    /// Appends `name: value CR LF` for every line to `out`.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        if self.is_wire {
            return out.extend_from_slice(&self.bytes);
        }
        // Lines that lie one behind the other as they are sent are copied as one.
        let mut run = 0..0;
        for line in &self.lines {
            let whole = line.whole();
            if !line.lies_as_sent(&self.bytes) {
                out.extend_from_slice(&self.bytes[std::mem::take(&mut run)]);
                line.write_to(&self.bytes, out);
            } else if whole.start == run.end {
                run.end = whole.end;
            } else {
                out.extend_from_slice(&self.bytes[std::mem::replace(&mut run, whole)]);
            }
        }
        out.extend_from_slice(&self.bytes[run]);
    }

    /// How many bytes [`Fields::write_to`] appends.
    pub fn wire_len(&self) -> usize {
        if self.is_wire {
            return self.bytes.len();
        }
        self.lines.iter().map(|line| (line.name_len + line.value_len) as usize + 4).sum()
    }

    /// Where the lines lie.
    fn lines(&self) -> Lines<'_> {
        let wire = if self.is_wire { &self.bytes[..] } else { &[] };
        Lines { known: self.lines.iter(), wire, at: 0 }
    }

    /// No line has that name, as far as the marks tell.
    #[inline(always)]
    fn lacks(&self, name: &str) -> bool {
        self.marks & mark(name.as_bytes()) == 0
    }

    /// The first line of that name. Inlined, so that asking for a name that is absent, as most are, costs the caller no
    /// call.
    #[inline]
    fn first(&self, name: &str) -> Option<Line> {
        if self.lacks(name) { None } else { self.seek(name) }
    }

    #[inline(never)]
    fn seek(&self, name: &str) -> Option<Line> {
        if self.is_wire {
            return self.lines().find(|line| is_named(&self.bytes, line, name.as_bytes()));
        }
        self.lines.iter().find(|line| is_named(&self.bytes, line, name.as_bytes())).copied()
    }

    /// The lines of that name, in order.
    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Line> + 'a {
        let lines = if self.lacks(name) { Lines { known: [].iter(), wire: &[], at: 0 } } else { self.lines() };
        lines.filter(move |line| is_named(&self.bytes, line, name.as_bytes()))
    }

    /// The place of the first line of that name in the list.
    fn position(&self, name: &str) -> Option<usize> {
        if self.lacks(name) {
            return None;
        }
        self.lines.iter().position(|line| is_named(&self.bytes, line, name.as_bytes()))
    }

    fn append(&mut self, name: &[u8], value: &[u8]) -> Line {
        let value = trim(value);
        self.marks |= mark(name);
        let name_at = offset(self.bytes.len());
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(NAME_END);
        let value_at = offset(self.bytes.len());
        self.bytes.extend_from_slice(value);
        for byte in &mut self.bytes[value_at as usize..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
        self.bytes.extend_from_slice(LINE_END);
        Line { name_at, name_len: offset(name.len()), value_at, value_len: offset(value.len()) }
    }
}

/// The lines of a name of which one is expected.
pub(crate) enum Only<'a> {
    None,
    One(&'a [u8]),
    Several,
}

/// Walks the lines: those of the list, or those that are found in a kept head.
struct Lines<'a> {
    known: std::slice::Iter<'a, Line>,
    wire: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    #[inline]
    fn next(&mut self) -> Option<Line> {
        match self.known.next() {
            Some(line) => Some(*line),
            None if self.wire.is_empty() => None,
            None => self.next_in_wire(),
        }
    }
}

impl Lines<'_> {
    fn next_in_wire(&mut self) -> Option<Line> {
        let rest = self.wire.get(self.at..).filter(|rest| !rest.is_empty())?;
        // As `write_to` has written it: no name holds a colon, and no value the end of a line.
        let colon = memchr(b':', rest)?;
        let end = colon + memchr(b'\n', &rest[colon..])?;
        let (name_at, value_at) = (self.at, self.at + colon + ": ".len());
        self.at += end + 1;
        Some(Line {
            name_at: offset(name_at),
            name_len: offset(colon),
            value_at: offset(value_at),
            value_len: offset(self.at.saturating_sub(value_at + "\r\n".len())),
        })
    }
}

/// The same lines in the same order; names with their case. How they lie in the buffer does not count.
impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value))))
            .finish()
    }
}

/// The members of one list value; see [`Fields::members`].
pub struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Members<'a> {
    /// Walks one field value.
    pub fn new(value: &'a [u8]) -> Members<'a> {
        Members { rest: value }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = member_end(self.rest);
            let member = trim(&self.rest[..end]);
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    }
}

/// The place of the first comma outside quotes, or the end.
fn member_end(value: &[u8]) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    value.len()
}

/// The value without white space (SP and HTAB) at both ends (RFC 9110 section 5.6.3).
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// True for a non-empty token (RFC 9110 section 5.6.2).
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// True for a byte that a token may have.
pub fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[byte as usize]
}

/// Every token byte's place is true.
static TOKEN_BYTES: [bool; 256] = byte_set(b"!#$%&'*+-.^_`|~");

/// The set of letters, digits and these, as a table: the parsers ask for every byte of a message.
pub(crate) const fn byte_set(others: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        set[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        set[others[at] as usize] = true;
        at += 1;
    }
    set
}

/// The bytes between a name and its value, and those behind the value, in a stored line; they are the bytes that are
/// sent.
const NAME_END: &[u8; 2] = b": ";
const LINE_END: &[u8; 2] = b"\r\n";

/// The bit of a name, whatever its case. Where the name is written in the program, the compiler works it out.
#[inline(always)]
fn mark(name: &[u8]) -> u32 {
    let ends = match name {
        [] => 0,
        [first, .., last] => ends_of(*first, *last),
        [only] => ends_of(*only, *only),
    };
    1 << ((name.len() + ends) % 32)
}

/// Only the bits that both cases of a letter share.
#[inline]
fn ends_of(first: u8, last: u8) -> usize {
    3 * usize::from(first & 0x1f) + 7 * usize::from(last & 0x1f)
}

/// Most names are written as everybody writes them.
#[inline]
fn is_named(bytes: &[u8], line: &Line, wanted: &[u8]) -> bool {
    if line.name_len as usize != wanted.len() {
        return false;
    }
    let name = name_of(bytes, line);
    name == wanted || name.eq_ignore_ascii_case(wanted)
}

fn name_of<'a>(bytes: &'a [u8], line: &Line) -> &'a [u8] {
    &bytes[line.name_at as usize..(line.name_at + line.name_len) as usize]
}

fn value_of<'a>(bytes: &'a [u8], line: &Line) -> &'a [u8] {
    &bytes[line.value_at as usize..(line.value_at + line.value_len) as usize]
}

/// Names are tokens, so they are ASCII; a name that is not shows as empty rather than ending the program.
fn as_name(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}

/// Where `part`, a slice of `block`, begins in it. The block is smaller than 4 GiB.
fn place_in(block: &[u8], part: &[u8]) -> u32 {
    let at = (part.as_ptr() as usize).wrapping_sub(block.as_ptr() as usize);
    assert!(at <= block.len() && part.len() <= block.len() - at, "a slice of this block");
    at as u32
}

/// Heads are limited far below 4 GiB (`head_bytes_max`); a list that grew past it is a bug of ours.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a head is smaller than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Fields {
        let mut fields = Fields::new();
        fields.push("Host", "a.example");
        fields.push("Accept", " text/html , \"a,b\" ");
        fields.push("ACCEPT", "*/*");
        fields
    }

    #[test]
    fn looks_up_without_case_and_keeps_order_and_case() {
        let fields = sample();
        assert_eq!(fields.text("host"), Some("a.example"));
        assert_eq!(fields.count("accept"), 2);
        let names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "Accept", "ACCEPT"]);
    }

    #[test]
    fn a_kept_head_takes_lines_and_nothing_else() {
        for mut fields in [Fields::kept(0), Fields::new()] {
            let lines: [(&[u8], &[u8], bool); 6] = [
                (b"Host", b"a.example", true),
                (b"Accept", b" text/html , \"a,b\" ", true),
                (b"a:b", b"c", false),
                (b"", b"c", false),
                (b"Name", b"a\nB: c", false),
                (b"ACCEPT", b"*/*", true),
            ];
            for (name, value, taken) in lines {
                assert_eq!(fields.push_kept(name, value), taken, "{name:?} {value:?}");
            }
            assert_eq!(fields, sample());
            let written = |fields: &Fields| {
                let mut out = Vec::new();
                fields.write_to(&mut out);
                out
            };
            assert_eq!(written(&fields), written(&sample()));
        }
    }

    #[test]
    fn members_respect_quotes_and_skip_empty_ones() {
        let mut fields = sample();
        fields.push("accept", ", ,z,");
        let members: Vec<&[u8]> = fields.members("accept").collect();
        assert_eq!(members, [&b"text/html"[..], b"\"a,b\"", b"*/*", b"z"]);
        assert!(fields.has_member("accept", "Z"));
    }

    #[test]
    fn set_replaces_in_place_and_drops_the_others() {
        let mut fields = sample();
        fields.push("X", "1");
        fields.set("accept", "q");
        let mut out = Vec::new();
        fields.write_to(&mut out);
        assert_eq!(out, b"Host: a.example\r\naccept: q\r\nX: 1\r\n");
        assert_eq!(fields.remove("ACCEPT"), 1);
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn shrinking_keeps_the_lines_and_drops_what_was_replaced() {
        let mut fields = sample();
        fields.set("Host", "a-much-longer-name.example");
        fields.set("Host", "b");
        let before = fields.clone();
        fields.shrink();
        assert_eq!(fields, before);
        let wire = "Host: b\r\nAccept: text/html , \"a,b\"\r\nACCEPT: */*\r\n";
        assert_eq!(fields.heap_bytes(), wire.len());
        assert_eq!((fields.len(), fields.get("accept")), (3, Some(&b"text/html , \"a,b\""[..])));
        assert_eq!(fields.get_all("accept").count(), 2);
    }

    #[test]
    fn what_was_shrunk_and_changed_is_written_as_it_is_now() {
        let written = |fields: &Fields| {
            let mut out = Vec::new();
            fields.write_to(&mut out);
            String::from_utf8(out).unwrap()
        };
        let changes: [fn(&mut Fields); 5] = [
            |_| {},
            |fields| fields.push("X", "1"),
            |fields| fields.set("host", "c"),
            |fields| assert_eq!(fields.remove("accept"), 2),
            |fields| fields.retain(|name, _| name == "Accept"),
        ];
        for change in changes {
            let (mut loose, mut laid_out) = (sample(), sample());
            laid_out.shrink();
            change(&mut loose);
            change(&mut laid_out);
            assert_eq!(written(&loose), written(&laid_out));
            assert_eq!(written(&laid_out).len(), laid_out.wire_len());
        }
    }

    #[test]
    fn received_lines_are_written_in_one_form_whatever_lay_between_them() {
        let block = b"A: 1\r\nB:2\r\nC: \t3 \t\r\nD:  4\r\nE: 5\r\nF: 6\r\nG:\r\nH: \r\n\r\n";
        let fields = crate::parse::tokenise(block, 8).unwrap();
        let one_form = |fields: &Fields| {
            let lines = fields.iter().map(|(name, value)| format!("{name}: {}\r\n", String::from_utf8_lossy(value)));
            lines.collect::<String>()
        };
        let changes: [fn(&mut Fields); 5] = [
            |_| {},
            |fields| assert_eq!(fields.remove("e"), 1),
            |fields| fields.set("F", "seven"),
            |fields| fields.push("I", "9"),
            |fields| fields.retain(|name, _| name > "C"),
        ];
        for change in changes {
            let mut fields = fields.clone();
            change(&mut fields);
            let mut out = Vec::new();
            fields.write_to(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), one_form(&fields));
        }
    }

    #[test]
    fn a_mark_never_hides_a_field() {
        for name in ["a", "Te", "ETag", "x-forwarded-proto", "!", "#$%&'*+-.^_`|~"] {
            let mut fields = Fields::new();
            fields.push(name, "1");
            for asked in [name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                assert_eq!(fields.get(&asked), Some(&b"1"[..]), "{asked}");
                assert!(fields.has_member(&asked, "1") && fields.get_all(&asked).count() == 1);
            }
        }
        assert!(!Fields::new().contains(""));
    }

    #[test]
    fn no_value_can_end_a_line() {
        let mut fields = Fields::new();
        fields.push("X", "a\r\nEvil: 1\0");
        assert_eq!(fields.get("x"), Some(&b"a  Evil: 1 "[..]));
    }
}
