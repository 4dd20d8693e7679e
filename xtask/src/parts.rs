//! Ranges out of one long object: are all bytes right, and how many move from the origin?
//!
//! Random single ranges, suffixes and several ranges at once, from two clients. Half-way the object changes at its
//! origin; every answer must be of one version, whole.

use crate::http::{Answer, Connection};
use crate::lab::{self, Lab};
use crate::law::{self, Origin};
use crate::shell::{self, Trouble};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How many, out of what.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long, default_value_t = 1_000)]
    requests: usize,
    /// Length of the object in bytes.
    #[arg(long, default_value_t = 10_000_000_000)]
    length: u64,
    /// Seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Flags for Larder, such as `--disk=1GB`.
    #[arg(last = true)]
    flags: Vec<String>,
}

/// The ranges of a request, drawn: most are short, some long, one in ten is a suffix, one in ten asks for three.
fn draw(state: &mut u64, length: u64) -> (String, Vec<Range<u64>>) {
    let mut next = |below: u64| {
        *state = law::mix(*state);
        *state % below.max(1)
    };
    let kind = next(10);
    let size = 1 + if next(8) == 0 { next(2_000_000) } else { next(20_000) };
    if kind == 0 {
        let size = size.min(100_000);
        let end = length - size..length;
        return (format!("bytes=-{size}"), Vec::from([end]));
    }
    // Some ranges meet earlier ones: a tenth of the object is asked for more often.
    let span = if next(2) == 0 { length / 1_000 } else { length - size };
    let count = if kind == 1 { 3 } else { 1 };
    let mut ranges: Vec<Range<u64>> = Vec::new();
    while ranges.len() < count {
        let size = size.min(50_000 + next(1_000));
        let start = next(span.min(length - size));
        let range = start..start + size;
        if ranges.iter().all(|other| other.end + 1 < range.start || range.end + 1 < other.start) {
            ranges.push(range);
        }
    }
    let text: Vec<String> = ranges.iter().map(|range| format!("{}-{}", range.start, range.end - 1)).collect();
    (format!("bytes={}", text.join(", ")), ranges)
}

/// Plays the requests and prints what moved.
pub fn run(args: &Args) -> Result<(), Trouble> {
    let root = shell::workspace()?;
    shell::build(&root)?;
    let (origin, origin_port) = Origin::start()?;
    let mut lab = Lab::new()?;
    let url = format!("http://127.0.0.1:{origin_port}");
    let mut flags = vec!["--origin", &url];
    flags.extend(args.flags.iter().map(String::as_str));
    let port = lab::start_larder(&mut lab, &root, "larder", &flags)?;
    let mut play = Play { origin, length: args.length, clients: Vec::new(), state: args.seed, asked: Vec::new() };
    for _ in 0..2 {
        play.clients.push(Connection::open(port)?);
    }
    let first = play.half(args.requests / 2, 0)?;
    play.origin.generation.fetch_add(1, Ordering::SeqCst);
    let second = play.half(args.requests - args.requests / 2, 1)?;
    println!("| version | requests | bytes asked (union) | bytes from the origin | ratio | requests to the origin |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, half) in [("first", &first), ("after the change", &second)] {
        println!(
            "| {name} | {} | {} | {} | {:.3} | {} |",
            half.requests,
            half.union,
            half.moved,
            half.ratio(),
            half.asked_of_origin
        );
    }
    let ratio = first.ratio().max(second.ratio());
    if ratio <= RATIO_MAX { Ok(()) } else { Err(format!("{ratio:.3} times the bytes that were asked moved")) }
}

/// The most bytes that may move, as a ratio to those that were asked for.
const RATIO_MAX: f64 = 1.05;

struct Half {
    requests: usize,
    union: u64,
    moved: u64,
    asked_of_origin: u64,
}

impl Half {
    fn ratio(&self) -> f64 {
        self.moved as f64 / self.union.max(1) as f64
    }
}

struct Play {
    origin: Arc<Origin>,
    length: u64,
    clients: Vec<Connection>,
    state: u64,
    asked: Vec<Range<u64>>,
}

impl Play {
    fn half(&mut self, requests: usize, generation: u64) -> Result<Half, Trouble> {
        self.asked.clear();
        let moved = self.origin.body_bytes.load(Ordering::SeqCst);
        let before = self.origin.requests.load(Ordering::SeqCst);
        let mut old = 0;
        for number in 0..requests {
            let (text, ranges) = draw(&mut self.state, self.length);
            let request = format!("GET /1/{} HTTP/1.1\r\nHost: parts.test\r\nRange: {text}\r\n\r\n", self.length);
            let clients = self.clients.len();
            let answer = self.clients[number % clients].ask(request.as_bytes(), false)?;
            let served = self.check(&answer, &ranges, &text)?;
            // The parts of the old version that are here are fresh, and may be served until a hole shows that it has
            // gone.
            if served == generation {
                self.asked.extend(ranges)
            } else {
                old += 1
            }
            if served != generation && old > requests {
                return Err(format!("the old version is still served after {number} requests"));
            }
        }
        Ok(Half {
            requests,
            union: union(&mut self.asked),
            moved: self.origin.body_bytes.load(Ordering::SeqCst) - moved,
            asked_of_origin: self.origin.requests.load(Ordering::SeqCst) - before,
        })
    }

    /// Compares an answer byte by byte; gives the version it is of.
    fn check(&self, answer: &Answer, ranges: &[Range<u64>], text: &str) -> Result<u64, Trouble> {
        let tag = answer.field("etag").unwrap_or_default().trim_matches(['"', 'g']).to_owned();
        let generation: u64 = tag.parse().map_err(|_| format!("{text}: no tag of ours: {tag:?}"))?;
        let bytes = |range: &Range<u64>| law::bytes(1, generation, range.clone());
        let right = match ranges {
            [one] => answer.status == 206 && answer.body == bytes(one),
            several => {
                // In the order in which they were asked, or sorted; each part is found by its own bytes.
                answer.status == 206 && several.iter().all(|range| has(&answer.body, &bytes(range)))
            }
        };
        if right { Ok(generation) } else { Err(format!("{text}: status {} and wrong bytes", answer.status)) }
    }
}

fn has(body: &[u8], part: &[u8]) -> bool {
    let head = &part[..part.len().min(16)];
    body.windows(head.len()).enumerate().any(|(at, window)| window == head && body[at..].starts_with(part))
}

fn union(ranges: &mut [Range<u64>]) -> u64 {
    ranges.sort_by_key(|range| range.start);
    let (mut total, mut end) = (0, 0);
    for range in ranges.iter() {
        total += range.end.saturating_sub(range.start.max(end));
        end = end.max(range.end);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_counts_each_byte_once() {
        assert_eq!(union(&mut [5..10, 0..3, 8..12, 2..4]), 11);
        assert_eq!(union(&mut []), 0);
    }

    #[test]
    fn draws_stay_within_the_object_and_apart() {
        let mut state = 3;
        for _ in 0..500 {
            let (_, ranges) = draw(&mut state, 10_000_000_000);
            assert!(ranges.iter().all(|range| range.start < range.end && range.end <= 10_000_000_000));
        }
    }
}
