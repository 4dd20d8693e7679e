//! Runs every check of `checks` over a corpus of seeds and a few thousand mutations of it, so that each build does
//! a little of what the fuzzer does. The mutations are drawn from a fixed seed: a red run is a red run everywhere.

use super::checks;

const MUTATIONS_PER_SEED: u64 = 1000;

/// Pieces that a mutation splices in: what separates, what declares, what counts.
const MORSELS: [&[u8]; 24] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"0\r\n\r\n",
    b"\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: a\r\n",
    b"chunked",
    b"HTTP/1.0",
    b"ffffffffffffffff",
    b"%2e%2E/",
    b"../",
    b"[::1]",
    b"@",
    b"#",
    b"\xff",
    b"Connection: close, x\r\n",
];

fn seeds() -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(&folder).expect("the folder fuzz/seeds") {
        let target = entry.expect("an entry").path();
        let name = target.file_name().expect("a name").to_string_lossy().into_owned();
        for file in std::fs::read_dir(&target).expect("a folder per target") {
            let path = file.expect("an entry").path();
            seeds.push((name.clone(), std::fs::read(path).expect("a seed")));
        }
    }
    seeds.sort();
    seeds
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

fn mutate(seed: &[u8], draw: &mut Draw) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=draw.below(3) {
        let at = draw.below(bytes.len() + 1);
        match draw.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, MORSELS[draw.below(MORSELS.len())].iter().copied())),
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

#[test]
fn every_check_holds_for_every_seed_and_its_mutations() {
    let seeds = seeds();
    for (name, check) in checks::ALL {
        assert!(seeds.iter().any(|(target, _)| target == name), "no seeds for {name}");
        for (number, (_, seed)) in seeds.iter().filter(|(target, _)| target == name).enumerate() {
            check(seed);
            let mut draw = Draw(0x9e37_79b9_7f4a_7c15 ^ number as u64);
            for _ in 0..MUTATIONS_PER_SEED {
                let mutated = mutate(seed, &mut draw);
                let outcome = std::panic::catch_unwind(|| check(&mutated));
                assert!(outcome.is_ok(), "{name}, seed {number}: {:?}", String::from_utf8_lossy(&mutated));
            }
        }
    }
}
