//! Lists of five million names: time and memory to build, bytes a name, and the time of a lookup, beside a `HashSet`:
//! `cargo bench -p larder-lists`.
//!
//! Names have four labels and are asked for in random order, so that each lookup finds its lines outside the processor's caches. An uncovered
//! name costs a lookup for each of its labels. Medians are of rounds of a hundred lookups.

use larder_lists::{Builder, Compiled, Format, HashKey, Options, Provenance, Subject, disk};
use std::collections::HashSet;
use std::fs;
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NAMES: u64 = 5_000_000;
const LOOKUPS: usize = 400_000;
const ROUND: usize = 100;
/// How often the list is replaced under load.
const SWAPS: usize = 5;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (format, prefix) in [(Format::Hosts, "0.0.0.0 "), (Format::Domains, ".")] {
        let source = folder.path().join(format.as_str());
        write_source(&source, prefix);
        measure(&source, format);
        if format == Format::Domains {
            swaps(&source);
        }
    }
    model();
}

fn measure(source: &Path, format: Format) {
    let compiled_at = source.with_extension("list");
    let idle = resident_bytes("VmRSS");
    reset_peak();
    let begun = Instant::now();
    let mut builder = Builder::new(Options { format, ..Options::default() }, HashKey::of(*b"0123456789abcdef"));
    disk::read_source(&mut builder, source).expect("a list");
    let read = begun.elapsed();
    let draft = builder.finish().expect("a list");
    let sorted = begun.elapsed();
    disk::save(&draft, &Provenance::default(), &compiled_at).expect("room on disk");
    let saved = begun.elapsed();
    drop(draft);
    let peak = resident_bytes("VmHWM").saturating_sub(idle);
    let begun = Instant::now();
    let list = disk::load(&compiled_at).expect("a list");
    let loaded = begun.elapsed();
    println!("{} with {} names from {} MB", format.as_str(), list.about().entries, size(source) / 1_000_000);
    println!("  read {read:.2?}, sorted after {sorted:.2?}, on disk after {saved:.2?}; loaded again in {loaded:.2?}");
    println!(
        "  memory while building {} MB; loaded {:.2} bytes a name",
        peak / 1_000_000,
        list.memory_bytes() as f64 / NAMES as f64
    );
    lookups(&list);
}

/// Lookups while the list is read again and replaced, as the thread of a server does it, beside lookups with nothing of that: a reader has a
/// copy, compares a number for each lookup, and takes up the new list when it is another one.
fn swaps(source: &Path) {
    let compiled_at = source.with_extension("list");
    let live = Mutex::new(Arc::new(disk::load(&compiled_at).expect("a list")));
    let (edition, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    let asked = names(Asked::Covered);
    let read = |until: &dyn Fn(usize) -> bool| {
        let mut held = (0, Arc::clone(&live.lock().expect("no panic")));
        let mut nanos: Vec<u64> = Vec::new();
        for (number, name) in asked.iter().cycle().enumerate() {
            if until(number) {
                break;
            }
            let begun = Instant::now();
            let now = edition.load(Ordering::Acquire);
            if held.0 != now {
                held = (now, Arc::clone(&live.lock().expect("no panic")));
            }
            black_box(held.1.covers(Subject::Host(name)));
            nanos.push(begun.elapsed().as_nanos() as u64);
        }
        nanos.sort_unstable();
        nanos
    };
    let quiet = read(&|number| number >= 4 * LOOKUPS);
    let swapped = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut replaced = Vec::new();
            for _ in 0..SWAPS {
                let options = Options { format: Format::Domains, ..Options::default() };
                let mut builder = Builder::new(options, HashKey::of(*b"fedcba9876543210"));
                disk::read_source(&mut builder, source).expect("a list");
                let draft = builder.finish().expect("a list");
                disk::save(&draft, &Provenance::default(), &compiled_at).expect("room on disk");
                drop(draft);
                let new = Arc::new(disk::load(&compiled_at).expect("a list"));
                replaced.push(std::mem::replace(&mut *live.lock().expect("no panic"), new));
                edition.fetch_add(1, Ordering::Release);
                replaced.retain(|list| Arc::strong_count(list) > 1);
            }
            is_over.store(true, Ordering::Release);
        });
        read(&|_| is_over.load(Ordering::Acquire))
    });
    for (what, nanos) in [("alone", &quiet), ("while the list is replaced", &swapped)] {
        let at = |share: f64| nanos.get((nanos.len() as f64 * share) as usize).copied().unwrap_or_default();
        println!(
            "  lookups {what}: p50 {} ns, p99 {} ns, p99.9 {} ns of {}",
            at(0.5),
            at(0.99),
            at(0.999),
            nanos.len()
        );
    }
}

fn lookups(list: &Compiled) {
    let (covered, uncovered) = (names(Asked::Covered), names(Asked::Uncovered));
    report("covered, 4 labels", &covered, |name| list.covers(Subject::Host(name)));
    report("uncovered, 4 labels", &uncovered, |name| list.covers(Subject::Host(name)));
}

fn model() {
    let before = resident_bytes("VmRSS");
    let begun = Instant::now();
    let set: HashSet<String> = (0..NAMES).map(name).collect();
    let built = begun.elapsed();
    let bytes = resident_bytes("VmRSS").saturating_sub(before);
    println!("HashSet<String>: built in {built:.2?}, {:.1} bytes a name", bytes as f64 / NAMES as f64);
    let covers = |name: &str| {
        set.contains(name) || name.bytes().enumerate().any(|(at, byte)| byte == b'.' && set.contains(&name[at + 1..]))
    };
    report("covered, 4 labels", &names(Asked::Covered), covers);
    report("uncovered, 4 labels", &names(Asked::Uncovered), covers);
}

fn report(what: &str, names: &[String], covers: impl Fn(&str) -> bool) {
    let mut rounds: Vec<Duration> = Vec::new();
    let mut found = 0;
    for round in names.chunks(ROUND) {
        let begun = Instant::now();
        found += round.iter().filter(|name| black_box(covers(name))).count();
        rounds.push(begun.elapsed());
    }
    rounds.sort_unstable();
    let nanos = |at: usize| rounds[at].as_nanos() as f64 / ROUND as f64;
    println!(
        "  {what}: p50 {:.0} ns, p99 {:.0} ns, {found} of {} covered",
        nanos(rounds.len() / 2),
        nanos(rounds.len() * 99 / 100),
        names.len()
    );
}

#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Covered,
    Uncovered,
}

/// Names in random order, by a generator whose draws are the same each time.
fn names(asked: Asked) -> Vec<String> {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let shift = if asked == Asked::Covered { 0 } else { NAMES };
    (0..LOOKUPS).map(|_| name(draw() % NAMES + shift)).collect()
}

/// A name of four labels.
fn name(number: u64) -> String {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("w{}.host{number:x}.site{:x}.example", spread >> 60, spread >> 40)
}

fn write_source(path: &Path, prefix: &str) {
    let mut file = BufWriter::new(fs::File::create(path).expect("a file"));
    for number in 0..NAMES {
        writeln!(file, "{prefix}{}", name(number)).expect("room on disk");
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// A figure of /proc/self/status, in bytes; 0 where there is none.
fn resident_bytes(figure: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// The highest figure begins anew (Linux 4.0 and later).
fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}
