//! Plays checks over the seeds of their fuzz targets and a thousand mutations of each, so that each build does a little of what the fuzzer
//! does. The mutations are drawn from a fixed seed: a red run is a red run everywhere. Part of the tests of the crates whose parsers are
//! fuzzed.

use super::checks::Check;
use std::path::Path;

const MUTATIONS_PER_SEED: u64 = 1000;

/// Has every check, by the name of its target, hold for every seed and its mutations, into which these pieces are spliced.
pub fn play(checks: &[Check], morsels: &[&[u8]]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, check) in checks {
        let mut files: Vec<_> = std::fs::read_dir(folder.join(name)).expect("a folder per target").flatten().collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        assert!(!files.is_empty(), "no seeds for {name}");
        for (number, file) in files.iter().enumerate() {
            let seed = std::fs::read(file.path()).expect("a seed");
            check(&seed);
            let mut draw = Draw(0x9e37_79b9_7f4a_7c15 ^ number as u64);
            for _ in 0..MUTATIONS_PER_SEED {
                let mutated = mutate(&seed, morsels, &mut draw);
                let outcome = std::panic::catch_unwind(|| check(&mutated));
                assert!(
                    outcome.is_ok(),
                    "{name}, seed {number}: {:?} ({mutated:?})",
                    String::from_utf8_lossy(&mutated)
                );
            }
        }
    }
}

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

fn mutate(seed: &[u8], morsels: &[&[u8]], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=draw.below(3) {
        let at = draw.below(bytes.len() + 1);
        match draw.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, morsels[draw.below(morsels.len())].iter().copied())),
            2 if at < bytes.len() => bytes[at] = draw.below(256) as u8,
            3 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                let end = at + draw.below(bytes.len() - at + 1);
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}
