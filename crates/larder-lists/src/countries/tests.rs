mod mmdb;

use super::*;
use mmdb::Mmdb;
use proptest::prelude::*;

const NETWORKS: &[(&str, &str)] = &[
    ("192.0.2.0/24", "DE"),
    ("192.0.2.128/25", "US"),
    ("198.51.100.7/32", "FR"),
    ("203.0.113.0/24", "fr"),
    ("2001:db8::/32", "SE"),
    ("2001:db8:1::/48", "DE"),
];

fn of(countries: &Countries, address: &str) -> String {
    String::from_utf8(countries.of(address.parse().unwrap()).to_vec()).unwrap()
}

#[test]
fn addresses_have_the_countries_of_the_file() {
    for (record_bits, is_flat) in [(24, false), (28, false), (32, true)] {
        let file = Mmdb { record_bits, is_flat, networks: NETWORKS, ..Mmdb::default() }.write();
        let countries = Countries::read(&file).unwrap();
        for (address, wanted) in [
            ("192.0.2.1", "DE"),
            ("192.0.2.127", "DE"),
            ("192.0.2.128", "US"),
            ("192.0.3.0", "ZZ"),
            ("192.0.1.255", "ZZ"),
            ("198.51.100.7", "FR"),
            ("198.51.100.6", "ZZ"),
            ("203.0.113.9", "FR"),
            ("::ffff:192.0.2.200", "US"),
            ("0.0.0.0", "ZZ"),
            ("255.255.255.255", "ZZ"),
            ("2001:db8::1", "SE"),
            ("2001:db8:1:ffff::", "DE"),
            ("2001:db9::", "ZZ"),
            ("::", "ZZ"),
            // The tree leads to the addresses of IPv4 here too, but the client's own address is one of IPv6.
            ("2002:c000:0201::1", "ZZ"),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ZZ"),
        ] {
            assert_eq!(of(&countries, address), wanted, "{address}, {record_bits} bits");
        }
        assert_eq!((countries.kind(), countries.built()), ("Test-Country", 1_700_000_000));
        assert!(countries.has(*b"SE") && countries.has(UNKNOWN) && !countries.has(*b"UK"));
        // Ranges between and around them, and no more.
        assert_eq!(countries.ranges_len(), 8 + 5, "{countries:?}");
    }
    let v4: Vec<_> = NETWORKS.iter().copied().filter(|(network, _)| network.contains('.')).collect();
    let file = Mmdb { ip_version: 4, networks: &v4, ..Mmdb::default() }.write();
    let countries = Countries::read(&file).unwrap();
    assert_eq!([of(&countries, "192.0.2.1"), of(&countries, "2001:db8::1")], ["DE", "ZZ"]);
    // One country for all.
    let file = Mmdb { networks: &[("::/1", "DE")], ..Mmdb::default() }.write();
    let countries = Countries::read(&file).unwrap();
    assert_eq!(["8.8.8.8", "::1", "8000::"].map(|address| of(&countries, address)), ["DE", "DE", "ZZ"]);
}

/// The trouble with a good file after a change.
fn trouble(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut file = Mmdb { networks: NETWORKS, ..Mmdb::default() }.write();
    change(&mut file);
    Countries::read(&file).unwrap_err()
}

/// Replaces the value that stands behind a key of the metadata.
fn metadata(file: &mut [u8], key: &str, value: u32) {
    let at = file.windows(key.len()).rposition(|window| window == key.as_bytes()).unwrap() + key.len() + 1;
    file[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[test]
fn broken_files_are_refused_with_the_reason() {
    for (wanted, found) in [
        ("no MMDB file", trouble(|file| file.clear())),
        ("its end is missing", trouble(|file| file.truncate(file.len() / 2))),
        ("unpack it with gunzip", trouble(|file| file.splice(..0, *b"\x1f\x8b\x08").for_each(drop))),
        ("metadata are truncated", trouble(|file| file.truncate(file.len() - 2))),
        (
            "is truncated: its metadata tell of 4000000000 nodes",
            trouble(|file| metadata(file, "node_count", 4_000_000_000)),
        ),
        ("tell of no node", trouble(|file| metadata(file, "node_count", 0))),
        ("records have 20 bits", trouble(|file| metadata(file, "record_size", 20))),
        ("of IP version 5", trouble(|file| metadata(file, "ip_version", 5))),
        ("is of version 3", trouble(|file| metadata(file, "binary_format_major_version", 3))),
        // The first node leads to itself.
        ("it has a circle", trouble(|file| file[..6].fill(0))),
        (
            "data before their beginning",
            trouble(|file| {
                let nodes = Tree::of(file, &Metadata::find(file).unwrap()).unwrap().nodes;
                file[3..6].copy_from_slice(&(nodes + 3).to_be_bytes()[1..]);
            }),
        ),
        ("truncated: a value goes past the end", trouble(|file| file[3..6].fill(0xff))),
        (
            "names a country (it is a \"Test-Country\")",
            trouble(|file| {
                while let Some(at) = file.windows(8).position(|window| window == b"iso_code") {
                    file[at] = b'X';
                }
            }),
        ),
        (
            "a pointer leads to a pointer",
            trouble(|file| {
                let tree_bytes = Tree::of(file, &Metadata::find(file).unwrap()).unwrap().bytes.len();
                // A pointer to itself in the place of the first data.
                let at = Mmdb { networks: NETWORKS, ..Mmdb::default() }
                    .write()
                    .windows(7)
                    .position(|it| it == b"country")
                    .unwrap()
                    + 7;
                let place = at - tree_bytes - GAP;
                file[at..at + 2].copy_from_slice(&[0x20 | (place >> 8) as u8, place as u8]);
            }),
        ),
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
}

#[test]
fn a_tree_that_leads_to_the_same_nodes_is_not_walked_for_ever() {
    // Each of 100 nodes leads to the next one twice: 2^100 ways.
    let mut file = Mmdb { networks: &[("::/100", "DE")], aliases: &[], ..Mmdb::default() }.write();
    for node in 0..99u32 {
        let at = node as usize * 6;
        for record in [at, at + 3] {
            file[record..record + 3].copy_from_slice(&(node + 1).to_be_bytes()[1..]);
        }
    }
    let found = Countries::read(&file).unwrap_err();
    assert!(found.contains("again and again"), "{found}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        end in any::<prop::sample::Index>(),
        record_bits in prop::sample::select(vec![24u32, 28, 32]),
        is_cut in any::<bool>(),
    ) {
        let mut file = Mmdb { record_bits, networks: NETWORKS, ..Mmdb::default() }.write();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if is_cut {
            file.truncate(end.index(file.len()));
        }
        if let Ok(countries) = Countries::read(&file) {
            for address in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::1", "2001:db8::1"] {
                let _ = countries.of(address.parse().unwrap());
            }
        }
    }

    #[test]
    fn ranges_are_what_the_networks_are(networks in prop::collection::vec((any::<u32>(), 1u32..=32, 0usize..4), 1..12)) {
        let codes = ["DE", "US", "FR", "SE"];
        let mut named: Vec<(u32, u32, usize)> = networks;
        // Wider networks first: the writer splits them by narrower ones.
        named.sort_by_key(|(_, bits, _)| *bits);
        let texts: Vec<(String, &str)> = named
            .iter()
            .map(|(address, bits, code)| (format!("{}/{bits}", std::net::Ipv4Addr::from(*address)), codes[*code]))
            .collect();
        let networks: Vec<(&str, &str)> = texts.iter().map(|(network, code)| (network.as_str(), *code)).collect();
        let countries = Countries::read(&Mmdb { networks: &networks, ..Mmdb::default() }.write()).unwrap();
        let near = named.iter().flat_map(|(address, bits, _)| {
            let host = u32::MAX.checked_shr(*bits).unwrap_or(0);
            let (first, last) = (address & !host, address | host);
            [first, last, *address, first.wrapping_sub(1), last.wrapping_add(1)]
        });
        for address in near {
            let holds = |(network, bits, _): &&(u32, u32, usize)| (network ^ address).checked_shr(32 - bits).unwrap_or(0) == 0;
            let wanted = named.iter().rev().find(holds).map_or("ZZ", |(_, _, code)| codes[*code]);
            prop_assert_eq!(of(&countries, &std::net::Ipv4Addr::from(address).to_string()), wanted);
        }
    }
}
