//! Countries of addresses, from a file in the format of MaxMind (MMDB), in which MaxMind, DB-IP and IP2Location publish them.
//!
//! The whole file is read once, its tree flattened to sorted ranges of addresses with one country each. So everything that is wrong with it is
//! found before it is used, a lookup is one binary search, and cities or names in it take no memory.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// The two letters of a country, in capitals (ISO 3166-1 alpha-2).
pub type Country = [u8; 2];

/// The country of addresses that a file has none for: the user-assigned code that CLDR uses for an unknown region.
pub const UNKNOWN: Country = *b"ZZ";

/// The two letters of a country, in any case.
pub fn country(text: &str) -> Option<Country> {
    let code: Country = text.as_bytes().try_into().ok()?;
    code.iter().all(u8::is_ascii_alphabetic).then(|| code.map(|letter| letter.to_ascii_uppercase()))
}

/// The countries of all addresses.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Countries {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
    kind: Box<str>,
    built: u64,
}

/// Ranges of addresses from zero on, each up to the next one.
#[derive(Clone, Default, PartialEq, Eq)]
struct Ranges<A> {
    starts: Vec<A>,
    countries: Vec<Country>,
}

impl<A: Copy + Ord> Ranges<A> {
    fn push(&mut self, start: A, country: Country) {
        if self.countries.last() != Some(&country) {
            self.starts.push(start);
            self.countries.push(country);
        }
    }

    fn find(&self, address: A) -> Option<Country> {
        let after = self.starts.partition_point(|start| *start <= address);
        self.countries.get(after.checked_sub(1)?).copied()
    }

    fn shrink(&mut self) {
        self.starts.shrink_to_fit();
        self.countries.shrink_to_fit();
    }
}

impl fmt::Debug for Countries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Countries({}, {} ranges)", self.kind, self.ranges_len())
    }
}

impl Countries {
    /// Reads a whole file; `Err` says what is wrong with it.
    pub fn read(file: &[u8]) -> Result<Countries, String> {
        let metadata = Metadata::find(file)?;
        let tree = Tree::of(file, &metadata)?;
        let mut countries = Countries { kind: metadata.kind.into(), built: metadata.built, ..Countries::default() };
        let mut walk = Walk { tree: &tree, known: HashMap::new(), nodes_left: tree.nodes_walked_max() };
        let (v4, depth) = tree.v4_root();
        walk.flatten((v4, depth), None, |start, country| countries.v4.push(start as u32, country))?;
        if tree.bits == 128 {
            // The addresses of IPv4 lie below `::/96`, and often below other prefixes too. They have ranges of their own.
            let skipped = Some(v4).filter(|record| *record < tree.nodes);
            walk.flatten((0, 0), skipped, |start, country| countries.v6.push(start, country))?;
        }
        countries.v4.shrink();
        countries.v6.shrink();
        if countries.codes().next().is_none() {
            return Err(format!(
                "no record of it names a country (it is a {:?}): take a file of countries or cities",
                countries.kind
            ));
        }
        Ok(countries)
    }

    /// The country of an address, [`UNKNOWN`] where the file has none.
    pub fn of(&self, address: IpAddr) -> Country {
        let found = match address.to_canonical() {
            IpAddr::V4(address) => self.v4.find(address.into()),
            IpAddr::V6(address) => self.v6.find(address.into()),
        };
        found.unwrap_or(UNKNOWN)
    }

    /// Whether any address is of this country.
    pub fn has(&self, country: Country) -> bool {
        country == UNKNOWN || self.codes().any(|code| *code == country)
    }

    fn codes(&self) -> impl Iterator<Item = &Country> {
        self.v4.countries.iter().chain(&self.v6.countries).filter(|code| **code != UNKNOWN)
    }

    /// How many ranges of addresses it has.
    pub fn ranges_len(&self) -> usize {
        self.v4.starts.len() + self.v6.starts.len()
    }

    /// The kind of the file by its own word: `GeoLite2-Country`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// When the file was made, in seconds since 1970; 0 where it does not say.
    pub fn built(&self) -> u64 {
        self.built
    }
}

/// The text that the metadata begin behind.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";

/// The metadata begin in this last part of the file.
const METADATA_BYTES_MAX: usize = 128 << 10;

/// Zero bytes between the tree and the data.
const GAP: usize = 16;

#[derive(Default)]
struct Metadata {
    nodes: u64,
    record_bits: u64,
    ip_version: u64,
    format: u64,
    kind: String,
    built: u64,
}

impl Metadata {
    fn find(file: &[u8]) -> Result<Metadata, String> {
        if file.starts_with(b"\x1f\x8b") {
            return Err("it is compressed: unpack it with gunzip or tar first".to_owned());
        }
        let tail = file.get(file.len().saturating_sub(METADATA_BYTES_MAX)..).unwrap_or(file);
        let at = tail.windows(MARKER.len()).rposition(|window| window == MARKER);
        let Some(section) = at.and_then(|at| tail.get(at + MARKER.len()..)) else {
            let end = "take the MMDB form of a database of countries, and the whole file";
            return Err(format!("it is no MMDB file, or its end is missing: {end}"));
        };
        let mut metadata = Metadata::default();
        let data = Data { section };
        let fault = |fault: DataFault| format!("its metadata are {fault}");
        let mut at = 0;
        let Value::Map(pairs) = data.value(&mut at).map_err(fault)? else {
            return Err("its metadata are no map of values".to_owned());
        };
        for _ in 0..pairs {
            let key = data.key(&mut at).map_err(fault)?;
            let mut value_at = at;
            let value = data.value(&mut value_at).map_err(fault)?;
            match (key, value) {
                (b"node_count", Value::Number(number)) => metadata.nodes = number,
                (b"record_size", Value::Number(number)) => metadata.record_bits = number,
                (b"ip_version", Value::Number(number)) => metadata.ip_version = number,
                (b"binary_format_major_version", Value::Number(number)) => metadata.format = number,
                (b"build_epoch", Value::Number(number)) => metadata.built = number,
                (b"database_type", Value::Text(text)) => {
                    let text = text.get(..text.len().min(KIND_BYTES_MAX)).unwrap_or_default();
                    metadata.kind = String::from_utf8_lossy(text).into_owned();
                }
                _ => {}
            }
            data.skip(&mut at).map_err(fault)?;
        }
        Ok(metadata)
    }
}

/// Of a longer `database_type` the beginning is kept.
const KIND_BYTES_MAX: usize = 64;

/// The search tree: a bit of the address chooses one of the two records of a node.
struct Tree<'f> {
    bytes: &'f [u8],
    nodes: u32,
    node_bytes: usize,
    /// The bits of an address.
    bits: u8,
    data: Data<'f>,
}

impl<'f> Tree<'f> {
    fn of(file: &'f [u8], metadata: &Metadata) -> Result<Tree<'f>, String> {
        let Metadata { nodes, record_bits, ip_version, format, .. } = *metadata;
        if format != 2 {
            return Err(format!("it is of version {format} of the format, and version 2 is known"));
        }
        if !matches!(record_bits, 24 | 28 | 32) {
            return Err(format!("its metadata say that records have {record_bits} bits, not 24, 28 or 32"));
        }
        let bits = match ip_version {
            4 => 32,
            6 => 128,
            other => return Err(format!("its metadata say that addresses are of IP version {other}, not 4 or 6")),
        };
        let truncated =
            || format!("it is truncated: its metadata tell of {nodes} nodes, and it ends before the last one");
        let count = u32::try_from(nodes).map_err(|_| truncated())?;
        if count == 0 {
            return Err("its metadata tell of no node".to_owned());
        }
        let node_bytes = record_bits as usize / 4;
        let tree_bytes = (count as usize).checked_mul(node_bytes).ok_or_else(truncated)?;
        let bytes = file.get(..tree_bytes).ok_or_else(truncated)?;
        let section = file.get(tree_bytes + GAP..).ok_or_else(truncated)?;
        Ok(Tree { bytes, nodes: count, node_bytes, bits, data: Data { section } })
    }

    /// The record of a node for a bit.
    fn record(&self, node: u32, bit: bool) -> u32 {
        let at = node as usize * self.node_bytes;
        let bytes = self.bytes.get(at..at + self.node_bytes).unwrap_or_default();
        match *bytes {
            [a, b, c, _, _, _] if !bit => u32::from_be_bytes([0, a, b, c]),
            [_, _, _, a, b, c] => u32::from_be_bytes([0, a, b, c]),
            [a, b, c, high, _, _, _] if !bit => u32::from_be_bytes([high >> 4, a, b, c]),
            [_, _, _, high, a, b, c] => u32::from_be_bytes([high & 0xf, a, b, c]),
            [a, b, c, d, _, _, _, _] if !bit => u32::from_be_bytes([a, b, c, d]),
            [_, _, _, _, a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
            _ => self.nodes,
        }
    }

    /// The record below which the addresses of IPv4 lie, and the bits that are used up there.
    fn v4_root(&self) -> (u32, u8) {
        let mut record = 0;
        let up = self.bits - 32;
        for _ in 0..up {
            if record >= self.nodes {
                break;
            }
            record = self.record(record, false);
        }
        (record, up)
    }

    /// A tree whose nodes are reached more often than that is none.
    fn nodes_walked_max(&self) -> u64 {
        u64::from(self.nodes) * 2 + 1_024
    }
}

/// One way through the tree.
struct Walk<'t, 'f> {
    tree: &'t Tree<'f>,
    /// The countries of records that were read.
    known: HashMap<u32, Country>,
    nodes_left: u64,
}

impl Walk<'_, '_> {
    /// Tells of each range below a record, in the order of addresses, whose country is another one than that of the range before.
    fn flatten(
        &mut self,
        (root, depth): (u32, u8),
        skipped: Option<u32>,
        mut tell: impl FnMut(u128, Country),
    ) -> Result<(), String> {
        let tree = self.tree;
        let mut budget = tree.data.section.len() as u64 * WORK_FACTOR + (1 << 20);
        let mut left: Vec<(u32, u8, u128)> = vec![(root, depth, 0)];
        while let Some((record, depth, start)) = left.pop() {
            if record >= tree.nodes || Some(record) == skipped {
                let country = match record {
                    record if record <= tree.nodes => UNKNOWN,
                    record => self.country(record, &mut budget)?,
                };
                tell(start, country);
                continue;
            }
            if depth >= tree.bits {
                return Err(format!("its tree is deeper than addresses are, at node {record}: it has a circle"));
            }
            self.nodes_left =
                self.nodes_left.checked_sub(1).ok_or("its tree leads to the same nodes again and again")?;
            let upper = start | 1 << (tree.bits - 1 - depth);
            left.push((tree.record(record, true), depth + 1, upper));
            left.push((tree.record(record, false), depth + 1, start));
        }
        Ok(())
    }

    /// The country that the data of a record name.
    fn country(&mut self, record: u32, budget: &mut u64) -> Result<Country, String> {
        if let Some(known) = self.known.get(&record) {
            return Ok(*known);
        }
        let Some(at) = (record - self.tree.nodes).checked_sub(GAP as u32) else {
            return Err(format!("its tree leads to data before their beginning, by the record {record}"));
        };
        let data = &self.tree.data;
        let found = data.country(at as usize, budget).map_err(|fault| format!("its data at {at} are {fault}"))?;
        self.known.insert(record, found.unwrap_or(UNKNOWN));
        Ok(found.unwrap_or(UNKNOWN))
    }
}

/// So often may the data be read through, all records together: values that are shared are read for each of them.
const WORK_FACTOR: u64 = 32;

/// A section of values, which refer to each other by their place in it.
struct Data<'f> {
    section: &'f [u8],
}

/// The trouble with the data, as the end of a sentence.
enum DataFault {
    Truncated,
    Circular,
    Unknown(u64),
    NoKey,
    Costly,
}

impl fmt::Display for DataFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataFault::Truncated => f.write_str("truncated: a value goes past the end"),
            DataFault::Circular => f.write_str("broken: a pointer leads to a pointer"),
            DataFault::Unknown(kind) => write!(f, "broken: there is no type {kind} of values"),
            DataFault::NoKey => f.write_str("broken: the key of a map is no text"),
            DataFault::Costly => f.write_str("broken: records refer to the same large values again and again"),
        }
    }
}

/// A value; of a map or a list its length, with the place behind its head.
enum Value<'f> {
    Map(usize),
    List(usize),
    Text(&'f [u8]),
    Number(u64),
    Other,
    /// It stands elsewhere.
    At(usize),
}

impl<'f> Data<'f> {
    /// The value at `at`, which moves behind its head, and behind the value unless it is a map or a list.
    fn head(&self, at: &mut usize) -> Result<Value<'f>, DataFault> {
        let control = self.number(at, 1)? as u8;
        let kind = match control >> 5 {
            0 => 7 + self.number(at, 1)?,
            kind => kind.into(),
        };
        if kind == 1 {
            let high = usize::from(control & 7);
            let bytes = usize::from(control >> 3 & 3) + 1;
            let low = self.number(at, bytes)? as usize;
            return Ok(Value::At(match bytes {
                1 => high << 8 | low,
                2 => (high << 16 | low) + 2_048,
                3 => (high << 24 | low) + 526_336,
                _ => low,
            }));
        }
        let length = match control & 31 {
            29 => 29 + self.number(at, 1)? as usize,
            30 => 285 + self.number(at, 2)? as usize,
            31 => 65_821 + self.number(at, 3)? as usize,
            length => usize::from(length),
        };
        Ok(match kind {
            7 => Value::Map(length),
            11 => Value::List(length),
            2 => Value::Text(self.take(at, length)?),
            5 | 6 | 9 if length <= 8 => Value::Number(self.number(at, length)?),
            3 | 4 | 8 | 10 | 15 => {
                self.take(at, length)?;
                Value::Other
            }
            // Its length is its value.
            14 => Value::Other,
            other => return Err(DataFault::Unknown(other)),
        })
    }

    /// The value at `at`, wherever it stands; `at` moves to the first part of a map or list.
    fn value(&self, at: &mut usize) -> Result<Value<'f>, DataFault> {
        match self.head(at)? {
            Value::At(place) => {
                *at = place;
                match self.head(at)? {
                    Value::At(_) => Err(DataFault::Circular),
                    value => Ok(value),
                }
            }
            value => Ok(value),
        }
    }

    /// The key at `at`, which moves behind it.
    fn key(&self, at: &mut usize) -> Result<&'f [u8], DataFault> {
        let key = match self.head(at)? {
            Value::At(mut place) => self.value(&mut place)?,
            value => value,
        };
        match key {
            Value::Text(text) => Ok(text),
            _ => Err(DataFault::NoKey),
        }
    }

    /// Moves `at` behind the value that begins there.
    fn skip(&self, at: &mut usize) -> Result<(), DataFault> {
        let mut left = 1usize;
        while left > 0 {
            left -= 1;
            let parts = match self.head(at)? {
                Value::Map(pairs) => 2 * pairs,
                Value::List(values) => values,
                _ => 0,
            };
            left = left.saturating_add(parts);
        }
        Ok(())
    }

    /// The country that the map at `at` names: in `country`, as a map with `iso_code` or as two letters, else in `country_code`.
    fn country(&self, at: usize, budget: &mut u64) -> Result<Option<Country>, DataFault> {
        let mut found = None;
        self.each_of_map(at, budget, |data, key, at, budget| {
            let mut behind_head = at;
            match (key, data.value(&mut behind_head)?) {
                (b"country", Value::Map(_)) => {
                    let mut code = None;
                    data.each_of_map(at, budget, |data, key, mut at, _| {
                        if let (b"iso_code", Value::Text(text)) = (key, data.value(&mut at)?) {
                            code = letters(text);
                        }
                        Ok(())
                    })?;
                    found = code.or(found);
                }
                (b"country" | b"country_code", Value::Text(text)) => found = letters(text).or(found),
                _ => {}
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `each` with each key of the map at `at` and the place of its value. Another value than a map has no keys.
    fn each_of_map(
        &self,
        mut at: usize,
        budget: &mut u64,
        mut each: impl FnMut(&Self, &[u8], usize, &mut u64) -> Result<(), DataFault>,
    ) -> Result<(), DataFault> {
        let Value::Map(pairs) = self.value(&mut at)? else { return Ok(()) };
        for _ in 0..pairs {
            let begin = at;
            let key = self.key(&mut at)?;
            each(self, key, at, budget)?;
            self.skip(&mut at)?;
            *budget = budget.checked_sub((at - begin) as u64).ok_or(DataFault::Costly)?;
        }
        Ok(())
    }

    fn number(&self, at: &mut usize, bytes: usize) -> Result<u64, DataFault> {
        Ok(self.take(at, bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn take(&self, at: &mut usize, bytes: usize) -> Result<&'f [u8], DataFault> {
        let end = at.checked_add(bytes).ok_or(DataFault::Truncated)?;
        let taken = self.section.get(*at..end).ok_or(DataFault::Truncated)?;
        *at = end;
        Ok(taken)
    }
}

fn letters(text: &[u8]) -> Option<Country> {
    std::str::from_utf8(text).ok().and_then(country)
}

#[cfg(test)]
mod tests;
