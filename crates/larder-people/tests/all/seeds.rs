//! Runs every check of `checks` over the seeds of its fuzz target and mutations of them, drawn from a fixed seed.

use super::checks;

const MUTATIONS_PER_SEED: u64 = 1000;

/// Pieces that a mutation splices in: lengths, tags, and syntax of filters and names.
const MORSELS: [&[u8]; 16] = [
    b"\x30\x84\xff\xff\xff\xff",
    b"\x30\x82",
    b"\x04\x00",
    b"\x0a\x01\x00",
    b"\x80",
    b"\xff",
    b"\0",
    b"(",
    b")",
    b"(|",
    b"*",
    b"\\2a",
    b"{user}",
    b"{dn}",
    b",ou=admins",
    b"\xc3\xbc",
];

/// xorshift64*: enough for mutations, and the same everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }
}

fn mutate(seed: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=draw.below(3) {
        let at = draw.below(bytes.len() + 1);
        match draw.below(4) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, MORSELS[draw.below(MORSELS.len())].iter().copied())),
            2 if at < bytes.len() => bytes[at] = draw.below(256) as u8,
            _ if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.push(0),
        }
    }
    bytes
}

#[test]
fn every_check_holds_for_every_seed_and_its_mutations() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, check) in checks::ALL {
        let mut files: Vec<_> = std::fs::read_dir(folder.join(name)).expect("a folder per target").flatten().collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        assert!(!files.is_empty(), "no seeds for {name}");
        for (number, file) in files.iter().enumerate() {
            let seed = std::fs::read(file.path()).expect("a seed");
            check(&seed);
            let mut draw = Draw(0x9e37_79b9_7f4a_7c15 ^ number as u64);
            for _ in 0..MUTATIONS_PER_SEED {
                let mutated = mutate(&seed, &mut draw);
                let outcome = std::panic::catch_unwind(|| check(&mutated));
                assert!(outcome.is_ok(), "{name}, seed {number}: {mutated:?}");
            }
        }
    }
}
