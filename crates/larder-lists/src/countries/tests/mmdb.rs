//! A writer of files in the format of MaxMind, for tests. Heads of values: 0x20 pointer, 0x40 text, 0xa0 and 0xc0 numbers, 0xe0 map, each with
//! its length in the lower bits; 0 for types that the next byte names.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// A file to be written.
pub struct Mmdb<'a> {
    /// 24, 28 or 32.
    pub record_bits: u32,
    /// 4 or 6. With 6, addresses of IPv4 lie below `::/96`, and below the prefixes of [`Mmdb::aliases`].
    pub ip_version: u32,
    /// Networks with the letters of their country, as `country.iso_code`.
    pub networks: &'a [(&'a str, &'a str)],
    /// Whether the country stands as two letters in `country`, as some publishers have it.
    pub is_flat: bool,
    /// Prefixes that lead to the addresses of IPv4, too.
    pub aliases: &'a [&'a str],
}

impl Default for Mmdb<'_> {
    fn default() -> Self {
        Mmdb { record_bits: 24, ip_version: 6, networks: &[], is_flat: false, aliases: &["::ffff:0:0/96", "2002::/16"] }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Record {
    Empty,
    Node(usize),
    Data(usize),
}

impl Mmdb<'_> {
    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut nodes = vec![[Record::Empty; 2]];
        let (mut data, mut places) = (Vec::new(), BTreeMap::new());
        for (network, country) in self.networks {
            let at = *places.entry(*country).or_insert_with(|| self.data(country, &mut data));
            let (address, bits) = self.prefix(network);
            insert(&mut nodes, (address, bits), self.bits(), Record::Data(at));
        }
        if self.ip_version == 6 {
            let v4_root = find(&nodes, 96);
            for alias in self.aliases.iter().filter(|_| v4_root != Record::Empty) {
                insert(&mut nodes, self.prefix(alias), 128, v4_root);
            }
        }
        let mut file = Vec::new();
        let count = nodes.len();
        let number = |record: &Record| match record {
            Record::Empty => count as u32,
            Record::Node(node) => *node as u32,
            Record::Data(at) => (count + 16 + at) as u32,
        };
        for node in &nodes {
            let [left, right] = [number(&node[0]).to_be_bytes(), number(&node[1]).to_be_bytes()];
            match self.record_bits {
                24 => file.extend([&left[1..], &right[1..]].concat()),
                28 => file.extend([&left[1..], &[left[0] << 4 | right[0]], &right[1..]].concat()),
                _ => file.extend([left, right].concat()),
            }
        }
        file.extend([0; 16]);
        file.extend(data);
        file.extend(b"\xab\xcd\xefMaxMind.com");
        let metadata = [
            ("node_count", count as u32),
            ("record_size", self.record_bits),
            ("ip_version", self.ip_version),
            ("binary_format_major_version", 2),
            ("build_epoch", 1_700_000_000),
        ];
        file.push(0xe0 | (metadata.len() + 1) as u8);
        text("database_type", &mut file);
        text("Test-Country", &mut file);
        for (name, value) in metadata {
            text(name, &mut file);
            file.push(0xc4);
            file.extend(value.to_be_bytes());
        }
        file
    }

    fn bits(&self) -> u32 {
        if self.ip_version == 4 { 32 } else { 128 }
    }

    fn prefix(&self, text: &str) -> (u128, u32) {
        let (address, bits) = text.split_once('/').unwrap();
        match (address.parse().unwrap(), bits.parse::<u32>().unwrap()) {
            (IpAddr::V4(address), bits) => (u128::from(u32::from(address)), bits + self.bits() - 32),
            (IpAddr::V6(address), bits) => (address.into(), bits),
        }
    }

    /// The data of a country: with names that are of no interest, and a pointer to the key.
    fn data(&self, country: &str, data: &mut Vec<u8>) -> usize {
        let shared = data.len();
        text("country", data);
        let at = data.len();
        data.push(0xe0 | 3);
        text("continent", data);
        data.push(0xe0 | 1);
        text("names", data);
        // A list of a number and of true.
        data.extend([2, 4, 0xa1, 7, 1, 7]);
        data.extend([0x20 | (shared >> 8) as u8, shared as u8]);
        match self.is_flat {
            true => text(country, data),
            false => {
                data.push(0xe0 | 2);
                text("geoname_id", data);
                data.extend([0xc1, 9]);
                text("iso_code", data);
                text(country, data);
            }
        }
        text("a long value", data);
        text(&"x".repeat(300), data);
        at
    }
}

fn text(text: &str, out: &mut Vec<u8>) {
    match text.len() {
        length @ 0..29 => out.push(0x40 | length as u8),
        length @ 29..285 => out.extend([0x40 | 29, (length - 29) as u8]),
        length => out.extend([0x40 | 30, ((length - 285) >> 8) as u8, (length - 285) as u8]),
    }
    out.extend(text.as_bytes());
}

fn insert(nodes: &mut Vec<[Record; 2]>, (address, bits): (u128, u32), all: u32, record: Record) {
    let mut node = 0;
    for depth in 0..bits {
        let bit = (address >> (all - 1 - depth) & 1) as usize;
        if depth + 1 == bits {
            nodes[node][bit] = record;
            return;
        }
        node = match nodes[node][bit] {
            Record::Node(next) => next,
            above => {
                nodes.push([above; 2]);
                let new = nodes.len() - 1;
                nodes[node][bit] = Record::Node(new);
                new
            }
        };
    }
}

fn find(nodes: &[[Record; 2]], bits: u32) -> Record {
    let mut record = Record::Node(0);
    for _ in 0..bits {
        match record {
            Record::Node(node) => record = nodes[node][0],
            _ => break,
        }
    }
    record
}
