//! Hit ratio of three nodes, each with a third of the memory, beside that of one node with all of it: the same requests, which Zipf's law and a
//! seed draw. A request is a hit where the origin is not asked for it.

use super::homes::{ask_for, serve_origin, start_nodes};
use super::start_nats_at;
use crate::http::Connection;
use crate::lab::Lab;
use crate::law;
use crate::shell::Trouble;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Objects, of which the memory of all nodes together has room for about a quarter.
const OBJECTS: usize = 20_000;
const OBJECT_BYTES: usize = 10_000;
const MEMORY_MEGABYTES: u64 = 51;

/// Requests that fill the memories, and those that count.
const FILLING: u64 = 60_000;
const COUNTED: u64 = 90_000;

const EXPONENT: f64 = 0.8;
const SEED: u64 = 1;

/// Measures both, and prints them.
pub fn run(program: &Path, nats: &Path) -> Result<(), Trouble> {
    let one = measure(program, nats, &["all"])?;
    let three = measure(program, nats, &["a", "b", "c"])?;
    println!("seed {SEED}: {COUNTED} requests for {OBJECTS} objects of {OBJECT_BYTES} bytes, exponent {EXPONENT}");
    println!("| nodes | memory of each, MB | hits, % |\n|---|---|---|");
    println!("| 1 | {MEMORY_MEGABYTES} | {:.2} |\n| 3 | {} | {:.2} |", one, MEMORY_MEGABYTES / 3, three);
    println!("difference: {:+.2} points", three - one);
    Ok(())
}

/// The share of hits in hundredths, of requests that come to these nodes in turns of chance.
fn measure(program: &Path, nats: &Path, names: &[&str]) -> Result<f64, Trouble> {
    let mut lab = Lab::new()?;
    let port = start_nats_at(&mut lab, nats, "2m")?;
    let secret = lab.write("secret", "0123456789abcdef0123456789abcdef")?;
    let (origin, asked) = serve_origin(OBJECT_BYTES)?;
    let memory = MEMORY_MEGABYTES / names.len() as u64;
    let nodes = start_nodes(&mut lab, program, names, (port, &secret), memory)?;
    let mut connections = Vec::new();
    for node in &nodes {
        connections.push(Connection::open(node.proxy)?);
    }
    let mut draws = Draws::new();
    let mut before = 0;
    for number in 0..FILLING + COUNTED {
        if number == FILLING {
            before = asked.load(Ordering::Relaxed);
        }
        let (object, client) = (draws.object(), draws.below(3) as usize % connections.len());
        ask_for(&mut connections[client], origin, object, OBJECT_BYTES)?;
    }
    let misses = asked.load(Ordering::Relaxed) - before;
    Ok(100.0 * (1.0 - misses as f64 / COUNTED as f64))
}

/// Objects by their popularity.
struct Draws {
    state: u64,
    /// Of each object, the share of the requests that it and all more popular ones have.
    shares: Vec<f64>,
}

impl Draws {
    fn new() -> Draws {
        let weights = (1..=OBJECTS).map(|rank| (rank as f64).powf(-EXPONENT));
        let sums: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or(1.0);
        Draws { state: law::mix(SEED), shares: sums.into_iter().map(|sum| sum / total).collect() }
    }

    fn next(&mut self) -> u64 {
        self.state = law::mix(self.state);
        self.state
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn object(&mut self) -> u64 {
        let drawn = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        self.shares.partition_point(|share| *share <= drawn) as u64
    }
}
