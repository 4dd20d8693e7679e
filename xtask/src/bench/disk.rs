//! Caches with a store on disk, side by side: what an object costs to fill in and to serve, what is written for it,
//! and what it takes on disk. The working set is five times the memory tier, so most hits come from the store; its
//! files are in the page cache, because a device of a shared machine would be all that is measured without it.

use super::disk_report;
use super::disk_results::{CONNECTIONS, MEMORY_BYTES, Row, SET_BYTES, Sample, Size};
use crate::lab::Lab;
use crate::law::{self, Origin};
use crate::load::{Load, Outcome};
use crate::peers::{self, Kind, Peer, Play};
use crate::processes::{Cpu, written_bytes_of_tree};
use crate::shell::Trouble;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The lengths of the comparison.
pub const SIZES: [Size; 3] = [
    Size { name: "1 KB", length: 1_000 },
    Size { name: "11 KB", length: 11_000 },
    Size { name: "1 MB", length: 1_000_000 },
];

const DISK_BYTES: u64 = 2_000_000_000;

/// Plays all sizes and gives the page.
pub fn play(root: &Path, rounds: usize, seconds: u64) -> Result<(String, u64), Trouble> {
    peers::build(root)?;
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| kind.is_installed()).collect();
    stay_on_core(1)?;
    let mut versions = Vec::new();
    for kind in &kinds {
        versions.push(peers::version(*kind, root)?);
    }
    let (mut tables, mut wrong) = (Vec::new(), 0);
    for size in SIZES {
        let rows = measure(root, &kinds, size, rounds, seconds)?;
        wrong += rows.iter().flat_map(|row| row.fills.iter().chain(&row.hits)).map(|sample| sample.wrong).sum::<u64>();
        let table = disk_report::table(size, &rows);
        println!("{table}");
        tables.push(table);
    }
    Ok((disk_report::page(rounds, seconds, &versions, &tables), wrong))
}

/// The load and the origin are this process; servers start on the other core.
fn stay_on_core(core: usize) -> Result<(), Trouble> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| format!("cannot stay on core {core}: {error}"))
}

fn measure(root: &Path, kinds: &[Kind], size: Size, rounds: usize, seconds: u64) -> Result<Vec<Row>, Trouble> {
    let (origin, port) = Origin::start()?;
    let mut lab = Lab::new()?;
    let play = Play { memory_bytes: MEMORY_BYTES, disk_bytes: DISK_BYTES, core: Some(0), is_small: false };
    let (mut peers, mut rows, mut written_before) = (Vec::new(), Vec::new(), Vec::new());
    for kind in kinds {
        let peer = Peer::start(*kind, root, &mut lab, port, &play)?;
        std::thread::sleep(SETTLE);
        let space_at_start = allocated_bytes(&peer.store)?;
        written_before.push(written_bytes_of_tree(peer.id)?);
        rows.push(Row { kind: *kind, fills: vec![], hits: vec![], written: 0.0, space: 0.0, space_at_start });
        peers.push(peer);
    }
    for round in 0..rounds {
        let part = |at: usize| size.objects() * at as u64 / rounds as u64;
        for at in order(peers.len(), round) {
            let mut objects = part(round)..part(round + 1);
            rows[at].fills.push(sample(&peers[at], &origin, size, &mut || objects.next())?);
        }
    }
    for (at, peer) in peers.iter().enumerate() {
        let written = written_when_quiet(peer.id)? - written_before[at];
        rows[at].written = written as f64 / SET_BYTES as f64;
        rows[at].space =
            allocated_bytes(&peer.store)?.saturating_sub(rows[at].space_at_start) as f64 / SET_BYTES as f64;
    }
    for round in 0..=rounds {
        for at in order(peers.len(), round) {
            let (until, mut drawn) = (Instant::now() + Duration::from_secs(seconds), round as u64 * DRAWS_PER_ROUND);
            let mut next = || {
                drawn += 1;
                (Instant::now() < until).then(|| law::mix(drawn) % size.objects())
            };
            let sample = sample(&peers[at], &origin, size, &mut next)?;
            // The first one warms up.
            if round > 0 {
                rows[at].hits.push(sample);
            }
        }
    }
    Ok(rows)
}

const DRAWS_PER_ROUND: u64 = 1 << 32;
/// Work that a server does soon after a load belongs to that load.
const SETTLE: Duration = Duration::from_millis(500);

/// Another one begins each round, and every second round goes backwards.
fn order(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(round % count);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

fn sample(peer: &Peer, origin: &Origin, size: Size, next: &mut dyn FnMut() -> Option<u64>) -> Result<Sample, Trouble> {
    let (cpu, asked) = (Cpu::of_tree(peer.id)?, origin.requests.load(Ordering::SeqCst));
    let load = Load { port: peer.port, length: size.length, connections: CONNECTIONS, next: &mut &mut *next };
    let Outcome { right, compared, wrong, wall } =
        load.play().map_err(|trouble| format!("{}: {trouble}", peer.kind.as_str()))?;
    std::thread::sleep(SETTLE);
    let answers = (right + wrong).max(1) as f64;
    Ok(Sample {
        cpu_micros: Cpu::of_tree(peer.id)?.since(cpu).total() / answers * 1e6,
        rate: answers / wall.as_secs_f64(),
        origin_share: (origin.requests.load(Ordering::SeqCst) - asked) as f64 / answers,
        wrong,
        compared,
    })
}

/// Waits until nothing more was written for two seconds.
fn written_when_quiet(id: u32) -> Result<u64, Trouble> {
    let (began, mut written) = (Instant::now(), written_bytes_of_tree(id)?);
    while began.elapsed() < Duration::from_secs(12) {
        std::thread::sleep(Duration::from_secs(2));
        let now = written_bytes_of_tree(id)?;
        if now == written {
            break;
        }
        written = now;
    }
    Ok(written)
}

/// Bytes of a folder as `du` counts them.
fn allocated_bytes(folder: &Path) -> Result<u64, Trouble> {
    let wrong = |error: std::io::Error| format!("listing {}: {error}", folder.display());
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        // A file may go while it is looked at.
        let Ok(about) = entry.metadata() else { continue };
        bytes += about.blocks() * 512;
        if about.is_dir() {
            bytes += allocated_bytes(&entry.path())?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_in_each_round_and_begins_some() {
        let firsts: Vec<usize> = (0..4).map(|round| order(4, round)[0]).collect();
        assert_eq!(firsts, [0, 0, 2, 2]);
        assert!((0..4).all(|round| {
            let mut all = order(4, round);
            all.sort();
            all == [0, 1, 2, 3]
        }));
    }

    #[test]
    fn space_is_what_du_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let before = allocated_bytes(folder.path()).unwrap();
        std::fs::write(folder.path().join("a/b"), vec![1; 100_000]).unwrap();
        assert!(allocated_bytes(folder.path()).unwrap() - before >= 100_000);
    }
}
