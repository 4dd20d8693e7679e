//! A compiled list: one block of bytes with a checksum at its end, and the lookup in it.
//!
//! ```text
//! magic and version   8 bytes
//! header length       4 bytes; tables begin at the next multiple of 64
//! header              key of the hashes, provenance, counts, and of each side (covers, excepts):
//!                     entries and bytes of four tables, ranges of IPv4 and of IPv6, bytes of expressions and
//!                     of filters
//! tables              of each side: exact names, names below, trees, URLs (`table`)
//! ranges              of each side: IPv4 as pairs of 4 bytes, IPv6 as pairs of 16 bytes
//! expressions         of each side: one a line; then filters for web browsers
//! checksum            8 bytes: XXH3 of all before it
//! ```
//!
//! Numbers are little-endian.

use crate::draft::{Draft, Gathered};
use crate::entry::{NameReach, Side};
use crate::expressions::machine;
use crate::filters::{Filters, Opinion};
use crate::hash::HashKey;
use crate::name::Name;
use crate::network::{AddressRange, Ranges, address};
use crate::table::{self, LINE_BYTES};
use crate::url::NormalUrl;
use regex_automata::meta::Regex;
use std::fmt;
use std::io::{self, Write};
use std::net::IpAddr;
use std::ops::Range;
use xxhash_rust::xxh3::Xxh3;

const MAGIC: &[u8; 8] = b"larderL1";
const SUM_BYTES: usize = 8;
const TABLES: usize = 4;
/// A longer header is none of ours.
const HEADER_BYTES_MAX: usize = 1 << 20;

/// Where a compiled list comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The settings that decide what is compiled: another value makes it another list.
    pub settings: String,
    /// The entity tag that the source came with; empty: none.
    pub etag: String,
    /// Its `Last-Modified`, or what a file had; empty: none.
    pub last_modified: String,
    /// When the source was read, in seconds since 1970.
    pub read_at_seconds: u64,
}

/// A question to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'s> {
    /// A host, as it stands in a URL.
    Host(&'s str),
    /// A URL: its scheme, its host, and its path with the query.
    Url {
        /// `http` or `https`.
        scheme: &'s str,
        /// The host, without a port.
        host: &'s str,
        /// Path and query.
        path: &'s str,
    },
    /// The address of a client or an origin.
    Address(IpAddr),
}

/// The entry that covers a subject, as far as hashes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The name itself.
    Name,
    /// A name above it, which begins at this byte.
    NameAbove(usize),
    /// So many bytes of the normal form of the URL.
    Url(usize),
    /// A range of addresses.
    Addresses(AddressRange),
    /// The expression of this number, from 0.
    Expression(usize),
    /// A filter for web browsers.
    Filter,
}

/// Why bytes are no compiled list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompiledFault {
    /// They begin otherwise, as another version does.
    Unknown,
    /// They end too early, or something was changed.
    Damaged,
}

impl fmt::Display for CompiledFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompiledFault::Unknown => "it was written by another version",
            CompiledFault::Damaged => "it is damaged",
        })
    }
}

impl std::error::Error for CompiledFault {}

/// One table inside the block.
#[derive(Clone, Debug, Default)]
struct Table {
    entries: usize,
    at: Range<usize>,
}

/// One side of a list.
#[derive(Debug, Default)]
struct Searched {
    names: [Table; 3],
    urls: Table,
    ranges: Ranges,
    expressions: Vec<String>,
    machine: Option<Regex>,
    filters: Option<Filters>,
}

/// A list that is looked up.
#[derive(Debug)]
pub struct Compiled {
    /// The bytes from `begin` on are the block: it begins at a border of the processor's cache lines, and so does each line of a table.
    bytes: Vec<u8>,
    begin: usize,
    key: HashKey,
    sides: [Searched; 2],
    has_exceptions: bool,
    about: About,
}

/// The facts about a compiled list beside its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Where it comes from.
    pub provenance: Provenance,
    /// The format that its source has.
    pub format: String,
    /// The first malformed lines, one a line.
    pub samples: String,
    /// Entries, exceptions included.
    pub entries: u64,
    /// Lines of the source.
    pub lines: u64,
    /// Lines that a proxy can't decide.
    pub left_out: u64,
    /// Lines that are not right.
    pub malformed: u64,
}

impl Default for Compiled {
    fn default() -> Compiled {
        let sides = Default::default();
        let (bytes, about) = (Vec::new(), About::default());
        Compiled { bytes, begin: 0, key: HashKey::of([0; 16]), sides, has_exceptions: false, about }
    }
}

/// Writes to another one and sums what was written.
struct Summing<W> {
    to: W,
    sum: Xxh3,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Draft {
    /// Writes the compiled list.
    pub fn write(&self, provenance: &Provenance, out: &mut impl Write) -> io::Result<()> {
        write(self, provenance, out)
    }

    /// The compiled list, in memory.
    pub fn compile(self) -> Compiled {
        let mut bytes = Vec::new();
        let written = self.write(&Provenance::default(), &mut bytes);
        debug_assert!(written.is_ok(), "memory takes all bytes");
        Compiled::of(bytes).unwrap_or_default()
    }
}

/// Writes a compiled list.
fn write(draft: &Draft, provenance: &Provenance, out: &mut impl Write) -> io::Result<()> {
    let mut out = Summing { to: out, sum: Xxh3::new() };
    let header = header(draft, provenance)?;
    out.write_all(MAGIC)?;
    out.write_all(&u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes())?;
    out.write_all(&header)?;
    let before = MAGIC.len() + 4 + header.len();
    out.write_all(&vec![0; before.next_multiple_of(LINE_BYTES) - before])?;
    for side in &draft.sides {
        for hashes in side.names.iter().chain([&side.urls]) {
            table::write(hashes, &mut out)?;
        }
    }
    for side in &draft.sides {
        for (first, last) in &side.ranges.v4 {
            out.write_all(&first.to_le_bytes())?;
            out.write_all(&last.to_le_bytes())?;
        }
        for (first, last) in &side.ranges.v6 {
            out.write_all(&first.to_le_bytes())?;
            out.write_all(&last.to_le_bytes())?;
        }
    }
    for side in &draft.sides {
        for text in &side.expressions {
            out.write_all(text.as_bytes())?;
            out.write_all(b"\n")?;
        }
        out.write_all(side.filters.as_bytes())?;
    }
    let sum = out.sum.digest();
    out.to.write_all(&sum.to_le_bytes())
}

fn header(draft: &Draft, provenance: &Provenance) -> io::Result<Vec<u8>> {
    let mut header = draft.key.bytes().to_vec();
    let samples: Vec<String> = draft.tally.samples.iter().map(|sample| sample.to_string().replace('\n', " ")).collect();
    let Provenance { settings, etag, last_modified, read_at_seconds } = provenance;
    for text in [settings, etag, last_modified, draft.format.as_str(), &samples.join("\n")] {
        header.extend(u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes());
        header.extend(text.as_bytes());
    }
    let tally = &draft.tally;
    for number in [*read_at_seconds, draft.entries(), tally.lines, tally.left_out, tally.malformed] {
        header.extend(number.to_le_bytes());
    }
    for side in &draft.sides {
        side_numbers(side)?.iter().for_each(|number| header.extend(number.to_le_bytes()));
    }
    Ok(header)
}

fn side_numbers(side: &Gathered) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for hashes in side.names.iter().chain([&side.urls]) {
        numbers.push(hashes.len() as u64);
        numbers.push(table::write(hashes, &mut io::sink())?);
    }
    let expressions: usize = side.expressions.iter().map(|text| text.len() + 1).sum();
    let filters = side.filters.len();
    numbers.extend([side.ranges.v4.len() as u64, side.ranges.v6.len() as u64, expressions as u64, filters as u64]);
    Ok(numbers)
}

/// Reads numbers and texts one after the other.
struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn count(&mut self) -> Option<usize> {
        self.number().and_then(|number| usize::try_from(number).ok())
    }

    fn text(&mut self) -> Option<String> {
        let bytes = u32::from_le_bytes(*self.take(4)?.first_chunk()?);
        String::from_utf8(self.take(usize::try_from(bytes).ok()?)?.to_vec()).ok()
    }
}

impl Compiled {
    /// The list of a block that was written by [`Draft::write`].
    pub fn of(bytes: Vec<u8>) -> Result<Compiled, CompiledFault> {
        Compiled::behind(bytes, 0)
    }

    /// The list of a block that stands behind the first `begin` bytes, which align it.
    pub fn behind(bytes: Vec<u8>, begin: usize) -> Result<Compiled, CompiledFault> {
        let block = bytes.get(begin..).unwrap_or_default();
        if !block.starts_with(MAGIC) {
            return Err(CompiledFault::Unknown);
        }
        let at = block.len().checked_sub(SUM_BYTES).ok_or(CompiledFault::Damaged)?;
        let (summed, sum) = block.split_at(at);
        if xxhash_rust::xxh3::xxh3_64(summed).to_le_bytes() != *sum {
            return Err(CompiledFault::Damaged);
        }
        let (key, about, sides) = parse(summed).ok_or(CompiledFault::Damaged)?;
        let has_exceptions = sides[Side::Excepts as usize].has_entries();
        Ok(Compiled { bytes, begin, key, sides, has_exceptions, about })
    }

    /// The facts about it beside its entries.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Bytes in memory, but for expressions.
    pub fn memory_bytes(&self) -> usize {
        let ranges = |side: &Searched| {
            side.ranges.v4.len() * size_of::<(u32, u32)>() + side.ranges.v6.len() * size_of::<(u128, u128)>()
        };
        self.bytes.len() + self.sides.iter().map(ranges).sum::<usize>()
    }

    /// Whether an entry covers the subject, and no exception takes it out.
    pub fn covers(&self, subject: Subject<'_>) -> bool {
        self.find(subject).is_some()
    }

    /// Whether it has URLs or expressions: then the spelling of a path counts.
    pub fn asks_path(&self) -> bool {
        self.sides.iter().any(|side| side.urls.entries > 0 || side.machine.is_some())
    }

    /// The entry that covers the subject, where no exception takes it out.
    pub fn find(&self, subject: Subject<'_>) -> Option<Found> {
        if let (Some(filters), Subject::Url { scheme, host, path }) = (&self.sides[0].filters, subject) {
            match filters.judge(&format!("{scheme}://{host}{path}")) {
                Opinion::Excepted => return None,
                Opinion::Covered => return Some(self.find_on(Side::Covers, subject).unwrap_or(Found::Filter)),
                Opinion::None => {}
            }
        }
        let found = self.find_on(Side::Covers, subject)?;
        (!self.has_exceptions || self.excepts(subject).is_none()).then_some(found)
    }

    /// The exception that takes the subject out.
    pub fn excepts(&self, subject: Subject<'_>) -> Option<Found> {
        self.find_on(Side::Excepts, subject)
    }

    fn find_on(&self, side: Side, subject: Subject<'_>) -> Option<Found> {
        let side = &self.sides[side as usize];
        match subject {
            Subject::Address(address) => side.ranges.find(address).map(Found::Addresses),
            Subject::Host(host) => self.find_host(side, host),
            Subject::Url { scheme, host, path } => self
                .find_host(side, host)
                .or_else(|| self.find_url(side, host, path))
                .or_else(|| find_expression(side, scheme, host, path)),
        }
    }

    fn find_host(&self, side: &Searched, host: &str) -> Option<Found> {
        // The last letter tells most names from addresses.
        let may_be_address =
            side.ranges.len() > 0 && host.ends_with(|last: char| last.is_ascii_digit() || last == ']' || last == '.');
        if may_be_address && let Some(address) = address(host.trim_end_matches('.')) {
            return side.ranges.find(address).map(Found::Addresses);
        }
        if side.names.iter().all(|table| table.entries == 0) {
            return None;
        }
        let name = Name::lowered(host.as_bytes())?;
        let [exact, below, tree] = NameReach::ALL.map(|reach| &side.names[reach as usize]);
        let whole = name.as_bytes();
        if exact.entries + tree.entries > 0 {
            let hash = self.key.hash(whole);
            if self.has(exact, hash) || self.has(tree, hash) {
                return Some(Found::Name);
            }
        }
        if below.entries + tree.entries == 0 {
            return None;
        }
        name.above().find_map(|from| {
            let hash = self.key.hash(whole.get(from..)?);
            (self.has(tree, hash) || self.has(below, hash)).then_some(Found::NameAbove(from))
        })
    }

    fn find_url(&self, side: &Searched, host: &str, path: &str) -> Option<Found> {
        if side.urls.entries == 0 {
            return None;
        }
        let url = NormalUrl::of(host.as_bytes(), path.as_bytes())?;
        let found = url.prefixes().find(|prefix| self.has(&side.urls, self.key.hash(prefix)));
        found.map(|prefix| Found::Url(prefix.len()))
    }

    fn has(&self, table: &Table, hash: u64) -> bool {
        let block = self.bytes.get(self.begin..).unwrap_or_default();
        table.entries > 0 && block.get(table.at.clone()).is_some_and(|lines| table::has(lines, table.entries, hash))
    }

    /// The entry that was found, as far as hashes tell how it was written; empty for a filter for web browsers.
    pub fn entry(&self, found: Found, side: Side, subject: Subject<'_>) -> String {
        let (host, path) = match subject {
            Subject::Host(host) => (host, ""),
            Subject::Url { host, path, .. } => (host, path),
            Subject::Address(_) => ("", ""),
        };
        let part = |from: usize| {
            let name = Name::lowered(host.as_bytes());
            name.and_then(|name| Some(String::from_utf8_lossy(name.as_bytes().get(from..)?).into_owned()))
                .unwrap_or_default()
        };
        match found {
            Found::Name => part(0),
            Found::NameAbove(from) => part(from),
            Found::Url(bytes) => {
                let url = NormalUrl::of(host.as_bytes(), path.as_bytes()).unwrap_or_default();
                String::from_utf8_lossy(url.text.get(..bytes).unwrap_or_default()).into_owned()
            }
            Found::Addresses(range) if range.first() == range.last() => range.first().to_string(),
            Found::Addresses(range) => format!("{} to {}", range.first(), range.last()),
            Found::Expression(number) => self.sides[side as usize].expressions.get(number).cloned().unwrap_or_default(),
            Found::Filter => String::new(),
        }
    }

    /// Says of a found entry, in words, which it is.
    pub fn describe(&self, found: Found, side: Side, subject: Subject<'_>) -> String {
        let entry = self.entry(found, side, subject);
        match (found, subject) {
            (Found::Name, _) => format!("the name `{entry}` itself"),
            (Found::NameAbove(_), _) => format!("the name above it `{entry}`"),
            (Found::Url(bytes), Subject::Url { host, path, .. })
                if NormalUrl::of(host.as_bytes(), path.as_bytes()).is_some_and(|url| url.text.len() > bytes) =>
            {
                format!("the URL above it `{entry}`")
            }
            (Found::Url(_), _) => format!("the URL `{entry}` itself"),
            (Found::Addresses(range), _) if range.first() == range.last() => format!("the address {entry}"),
            (Found::Addresses(_), _) => format!("the addresses {entry}"),
            (Found::Filter, _) => "a filter for web browsers".to_owned(),
            (Found::Expression(_), _) => format!("the expression `{entry}`"),
        }
    }
}

impl Searched {
    fn has_entries(&self) -> bool {
        let tables = self.names.iter().chain([&self.urls]).any(|table| table.entries > 0);
        tables || self.ranges.len() > 0 || self.machine.is_some()
    }
}

fn find_expression(side: &Searched, scheme: &str, host: &str, path: &str) -> Option<Found> {
    let machine = side.machine.as_ref()?;
    let url = format!("{scheme}://{host}{path}");
    let found = machine.search_half(&regex_automata::Input::new(&url).earliest(true))?;
    Some(Found::Expression(found.pattern().as_usize()))
}

fn parse(summed: &[u8]) -> Option<(HashKey, About, [Searched; 2])> {
    let mut cursor = Cursor(summed.get(MAGIC.len()..)?);
    let header_bytes = usize::try_from(u32::from_le_bytes(*cursor.take(4)?.first_chunk()?)).ok()?;
    if header_bytes > HEADER_BYTES_MAX {
        return None;
    }
    let mut header = Cursor(cursor.take(header_bytes)?);
    let key = HashKey::of(*header.take(16)?.first_chunk()?);
    let [settings, etag, last_modified, format, samples] =
        [header.text()?, header.text()?, header.text()?, header.text()?, header.text()?];
    let read_at_seconds = header.number()?;
    let provenance = Provenance { settings, etag, last_modified, read_at_seconds };
    let [entries, lines, left_out, malformed] =
        [header.number()?, header.number()?, header.number()?, header.number()?];
    let about = About { provenance, format, samples, entries, lines, left_out, malformed };
    let mut sides: [Searched; 2] = Default::default();
    let mut later = [(0, 0, 0, 0); 2];
    let mut at = (MAGIC.len() + 4 + header_bytes).next_multiple_of(LINE_BYTES);
    for (side, later) in sides.iter_mut().zip(&mut later) {
        for number in 0..TABLES {
            let (entries, bytes) = (header.count()?, header.count()?);
            if !table::may_hold(bytes, entries) {
                return None;
            }
            let table = Table { entries, at: at..at.checked_add(bytes)? };
            at = table.at.end;
            match side.names.get_mut(number) {
                Some(names) => *names = table,
                None => side.urls = table,
            }
        }
        *later = (header.count()?, header.count()?, header.count()?, header.count()?);
    }
    let mut rest = Cursor(summed.get(at..)?);
    for (side, (v4, v6, ..)) in sides.iter_mut().zip(&later) {
        let taken = rest.take(v4.checked_mul(8)?)?;
        let pair =
            |pair: &[u8]| Some((u32::from_le_bytes(*pair.first_chunk()?), u32::from_le_bytes(*pair.last_chunk()?)));
        side.ranges.v4 = taken.chunks_exact(8).filter_map(pair).collect();
        let taken = rest.take(v6.checked_mul(32)?)?;
        let pair =
            |pair: &[u8]| Some((u128::from_le_bytes(*pair.first_chunk()?), u128::from_le_bytes(*pair.last_chunk()?)));
        side.ranges.v6 = taken.chunks_exact(32).filter_map(pair).collect();
    }
    for (side, (_, _, bytes, filters)) in sides.iter_mut().zip(&later) {
        let text = std::str::from_utf8(rest.take(*bytes)?).ok()?;
        side.expressions = text.lines().map(str::to_owned).collect();
        if !side.expressions.is_empty() {
            side.machine = Some(machine(&side.expressions).ok()?);
        }
        side.filters = Filters::from_text(std::str::from_utf8(rest.take(*filters)?).ok()?);
    }
    Some((key, about, sides))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{Builder, Options};

    /// A checksum says that bytes are as they were written, not that they were right.
    #[test]
    fn a_table_that_is_too_short_for_its_entries_is_damage() {
        let mut builder = Builder::new(Options::default(), HashKey::of([7; 16]));
        builder.read(&b"ads.example\n"[..], "test").unwrap();
        let mut bytes = Vec::new();
        builder.finish().unwrap().write(&Provenance::default(), &mut bytes).unwrap();
        // The key, five texts of which the format is the only one that is not empty, and five numbers.
        let entries_at = MAGIC.len() + 4 + 16 + 5 * 4 + "domains".len() + 5 * 8;
        assert_eq!(bytes[entries_at..entries_at + 8], 1_u64.to_le_bytes());
        for (entries, wanted) in [(1, true), (8, true), (9, false), (1 << 40, false), (u64::MAX, false)] {
            bytes[entries_at..entries_at + 8].copy_from_slice(&entries.to_le_bytes());
            let at = bytes.len() - SUM_BYTES;
            let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..at]);
            bytes[at..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(Compiled::of(bytes.clone()).is_ok(), wanted, "{entries} entries");
        }
    }
}
