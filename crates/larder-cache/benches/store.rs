//! The costs of the disk tier: `cargo bench -p larder-cache --bench store [-- recover N | -- FOLDER]`.
//!
//! Without arguments: appending, reading what the page cache has, index bytes an object, hits while a full store is
//! filled on, recovery of a million objects. `recover N` measures recovery alone. The store of the recovery is sparse: heads, summaries and trailers of
//! its segments are real, and so is one record in each; the other records are holes, which recovery does not read.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_cache::store::locations::{Location, Locations, Name};
use larder_cache::store::medium::{Files, Medium};
use larder_cache::store::record::{self, Kind};
use larder_cache::store::segment::{Geometry, HEAD_BYTES, SegmentHead, Trailer, file_name};
use larder_cache::store::superblock::{Identity, Superblock};
use larder_cache::store::{Admission, Fetching, HeadToStore, ObjectId, Promise, Put, Putting, Settings, Store};
use xxhash_rust::xxh3::xxh3_64_with_seed;

type Outcome<T> = Result<T, Box<dyn Error>>;

const MIB: u64 = 1 << 20;
/// About the bytes of a head of a web answer.
const META_BYTES: usize = 250;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|each| !each.starts_with("--")).collect();
    if let [what, objects] = &arguments[..]
        && what == "recover"
    {
        return recovery(objects.parse()?);
    }
    for bytes in [1 << 10, 11 << 10, 1 << 20] {
        append_and_read(bytes)?;
    }
    thread_hop()?;
    index();
    latency_under_fill()?;
    recovery(1_000_000)
}

fn settings(disk_bytes: u64) -> Settings {
    Settings {
        disk_bytes,
        free_bytes_min: 0,
        index_bytes_max: 1 << 30,
        write_block_bytes: MIB as usize,
        queue_bytes_max: 32 * MIB,
        sync_seconds: 5,
        readers: 4,
        admission: Admission::All,
    }
}

fn key(number: u64) -> Bytes {
    format!("http://bench.example/path/of/object-{number}.bin").into()
}

fn head(number: u64, body: Option<Bytes>, length: u64) -> HeadToStore {
    HeadToStore {
        key: key(number),
        variant: 0,
        id: ObjectId(number + 1),
        epoch: 0,
        length: Some(length),
        tags: Vec::new(),
        meta: Bytes::from(vec![b'm'; META_BYTES]),
        body: body.map(|body| vec![body]),
    }
}

/// Appends 512 MiB (the budget has room for all), reads at random what the page cache has, then what it has not.
fn append_and_read(bytes: usize) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(&[folder.path().to_path_buf()], &settings(1 << 30))?;
    let objects = 512 * MIB / bytes as u64;
    let body = Bytes::from(vec![0x5a; bytes]);
    let inline = bytes <= 64 << 10;
    let started = Instant::now();
    let mut under_way = VecDeque::new();
    for number in 0..objects {
        // So much waits at a time as fits into the queue. Half of it is awaited at once, or this thread and the writer
        // would wake each other for each object.
        if under_way.len() as u64 * bytes as u64 > 16 * MIB {
            let half = under_way.len() / 2;
            under_way.drain(..half).rev().try_for_each(|putting| expect_stored(Some(putting)))?;
        }
        under_way.push_back(store.put_head(head(number, inline.then(|| body.clone()), bytes as u64)));
        if !inline {
            under_way.push_back(store.put_extent(ObjectId(number + 1), &key(number), 0, vec![body.clone()]));
        }
    }
    while !under_way.is_empty() {
        expect_stored(under_way.pop_front())?;
    }
    store.sync().wait();
    let seconds = started.elapsed().as_secs_f64();
    let written = store.stats().written_bytes as f64;
    println!(
        "append {bytes:>8} B: {:>8.0} objects/s  {:>6.0} MB/s  written {:.3} x bodies",
        objects as f64 / seconds,
        (objects * bytes as u64) as f64 / seconds / 1e6,
        written / (objects * bytes as u64) as f64
    );
    for (what, cold) in [("cached", false), ("cold", true)] {
        if cold {
            drop_caches(folder.path())?;
        }
        let reads = if cold { 2_000 } else { 100_000 }.min(objects * 20);
        let before = store.stats();
        let (seconds, moved) = read_at_random(&store, objects, reads, inline, bytes as u64);
        let after = store.stats();
        println!(
            "  read {what:>6}: {:>8.0} reads/s  {:>6.0} MB/s  {:>7.2} us each; inline {}, by threads {}",
            reads as f64 / seconds,
            moved as f64 / seconds / 1e6,
            seconds / reads as f64 * 1e6,
            after.reads_cached - before.reads_cached,
            after.reads_waited - before.reads_waited
        );
    }
    Ok(())
}

fn expect_stored(putting: Option<Putting>) -> Outcome<()> {
    match putting.map(Putting::wait) {
        None | Some(Put::Stored) => Ok(()),
        Some(refused) => Err(format!("a put was not stored: {refused:?}").into()),
    }
}

fn read_at_random(store: &Arc<Store>, objects: u64, reads: u64, inline: bool, length: u64) -> (f64, u64) {
    let mut state = 88_172_645_463_325_252u64;
    let mut moved = 0;
    let started = Instant::now();
    for _ in 0..reads {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = state % objects;
        if inline {
            let heads = store.heads(&key(number)).wait();
            moved += heads.iter().filter_map(|head| head.body.as_ref()).map(|body| body.len() as u64).sum::<u64>();
            black_box(heads);
        } else {
            let at = (state >> 20) % (length / 65_536) * 65_536;
            let pieces = store.read(ObjectId(number + 1), &key(number), at..length).wait();
            moved += pieces.iter().map(|(_, piece)| piece.len() as u64).sum::<u64>();
            black_box(pieces);
        }
    }
    (started.elapsed().as_secs_f64(), moved)
}

/// Hits on a small hot set, alone, and while another thread fills a store that has to recycle for it.
fn latency_under_fill() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let store = Store::open(&[folder.path().to_path_buf()], &settings(256 * MIB))?;
    let hot = 2_000;
    let body = Bytes::from(vec![0x5a; 1024]);
    for number in 0..hot {
        expect_stored(Some(store.put_head(head(number, Some(body.clone()), 1024))))?;
    }
    for what in ["alone", "filling"] {
        let stop = AtomicBool::new(false);
        let recycled = store.stats().segments_recycled;
        let (mut waits, mut misses) = (Vec::new(), 0);
        std::thread::scope(|scope| {
            if what == "filling" {
                scope.spawn(|| fill(&store, hot, &stop));
            }
            let (started, mut number) = (Instant::now(), 0u64);
            while started.elapsed() < Duration::from_secs(5) {
                number = (number + 7919) % hot;
                let key = key(number);
                let asked = Instant::now();
                misses += usize::from(store.heads(&key).wait().is_empty());
                waits.push(asked.elapsed());
            }
            stop.store(true, Ordering::Relaxed);
        });
        waits.sort();
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        println!(
            "hits {what:>7}: {:>8} reads, p50 {:.1} us, p99.9 {:.0} us, longest {:.0} us; {misses} missed, {} segments recycled",
            waits.len(),
            at(0.5),
            at(0.999),
            at(1.0),
            store.stats().segments_recycled - recycled
        );
    }
    Ok(())
}

/// Puts as fast as the queue has room.
fn fill(store: &Arc<Store>, first: u64, stop: &AtomicBool) {
    let body = Bytes::from(vec![0x5a; 11 << 10]);
    let mut last = None;
    for number in first.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let putting = store.put_head(head(number, Some(body.clone()), 11 << 10));
        if number % 1000 == 0 {
            // The put that is waited for is one of a while ago.
            last.replace(putting).map(Putting::wait);
        }
    }
}

/// The cost of going through another thread and back, without the read.
fn thread_hop() -> Outcome<()> {
    let (sender, receiver) = mpsc::channel::<Promise<u64>>();
    let thread = std::thread::spawn(move || receiver.iter().for_each(|promise| promise.give(7)));
    let hops = 50_000;
    let started = Instant::now();
    for _ in 0..hops {
        let (fetching, promise) = Fetching::pair(0);
        sender.send(promise)?;
        black_box(fetching.wait());
    }
    println!("there and back through a thread: {:.2} us", started.elapsed().as_secs_f64() / f64::from(hops) * 1e6);
    drop(sender);
    thread.join().map_err(|_| "the other thread ended badly".into())
}

fn index() {
    let locations = Locations::new(256);
    let mut most = 0.0f64;
    let started = Instant::now();
    for number in 0..1_000_000u64 {
        let name = Name::of_head(xxh3_64_with_seed(&number.to_le_bytes(), 1), 0);
        locations.put(Location::new(name, Kind::WholeHead, number, 1, 8, 1000), |_| false);
        if number > 10_000 && number % 1000 == 0 {
            most = most.max(locations.heap_bytes() as f64 / number as f64);
        }
    }
    let insert = started.elapsed();
    let started = Instant::now();
    let found = (0..1_000_000u64)
        .filter(|number| {
            let name = Name::of_head(xxh3_64_with_seed(&(number.wrapping_mul(7919) % 2_000_000).to_le_bytes(), 1), 0);
            locations.any(name, |_| true)
        })
        .count();
    println!(
        "index of 1000000: {:.1} bytes an object ({most:.1} at the worst size), insert {} ns, probe {} ns ({found} found)",
        locations.heap_bytes() as f64 / 1e6,
        insert.as_nanos() / 1_000_000,
        started.elapsed().as_nanos() / 1_000_000
    );
}

fn recovery(objects: u64) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let record_bytes = sample_record_bytes();
    let disk_bytes = (objects * record_bytes * 21 / 20).max(64 * MIB);
    drop(Store::open(&[folder.path().to_path_buf()], &settings(disk_bytes))?);
    let sample = lay_out(folder.path(), objects, disk_bytes)?;
    for what in ["cold", "cached"] {
        if what == "cold" {
            drop_caches(folder.path())?;
        }
        let resident = resident_bytes();
        let started = Instant::now();
        let store = Store::open(&[folder.path().to_path_buf()], &settings(disk_bytes))?;
        let opened = started.elapsed();
        let (newest, oldest) = (sample[sample.len() - 1], sample[0]);
        let hit = |number: u64| store.heads(&key(number)).wait().len() == 1;
        if !hit(newest) {
            return Err("the newest object is not there".into());
        }
        let first = started.elapsed();
        while store.stats().recovering {
            std::thread::sleep(Duration::from_micros(200));
        }
        let whole = started.elapsed();
        if !hit(oldest) {
            return Err("the oldest object is not there".into());
        }
        let stats = store.stats();
        println!(
            "recovery of {} objects ({what}, sparse): opened {:.3} s, first verified hit {:.3} s, whole {:.3} s; index {:.1} bytes an object; resident +{} MiB",
            stats.heads,
            opened.as_secs_f64(),
            first.as_secs_f64(),
            whole.as_secs_f64(),
            stats.index_bytes as f64 / stats.heads as f64,
            resident_bytes().saturating_sub(resident) / MIB
        );
    }
    Ok(())
}

fn sample_record_bytes() -> u64 {
    let head = head(10_000_000, Some(Bytes::from(vec![0; 1024])), 1024);
    record::head_header(&head, 0).map_or(0, |header| header.record_bytes())
}

/// Writes a store of so many objects without most of their records; gives those that have one, the oldest first.
fn lay_out(folder: &Path, objects: u64, disk_bytes: u64) -> Outcome<Vec<u64>> {
    let medium = Files::take(folder)?;
    let Superblock::Known(identity) = Superblock::read(&medium, &medium.list()?)? else {
        return Err("no superblock".into());
    };
    let geometry = Geometry::new(disk_bytes, Some(identity.segment_bytes)).ok_or("the budget is too small")?;
    let (mut next, mut sample) = (0, Vec::new());
    for segment in 0..geometry.segments {
        let (file, start) = geometry.place(segment);
        let file = File::options().write(true).create(true).truncate(false).open(folder.join(file_name(file)))?;
        file.set_len(file.metadata()?.len().max(start + geometry.segment_bytes))?;
        if next < objects {
            sample.push(next);
            next = lay_segment(&file, start, segment, next, objects, &identity, &geometry)?;
        }
        if segment % 128 == 0 || next == objects {
            file.sync_data()?;
        }
    }
    assert_eq!(next, objects, "the budget holds them all");
    Ok(sample)
}

fn lay_segment(
    file: &File,
    start: u64,
    segment: u32,
    first: u64,
    objects: u64,
    identity: &Identity,
    geometry: &Geometry,
) -> Outcome<u64> {
    let sequence = u64::from(segment) + 1;
    let segment_head = SegmentHead { identity: *identity, sequence, ids_below: 1 << 40, rules_below: 1 << 32 };
    let (mut at, mut next, mut records) = (HEAD_BYTES, first, Vec::new());
    let body = Bytes::from(vec![0x5a; 1024]);
    while next < objects {
        let head = head(next, Some(body.clone()), 1024);
        let key_hash = xxh3_64_with_seed(&head.key, identity.hash_seed);
        let header = record::head_header(&head, key_hash).ok_or("too large")?;
        if !geometry.fits(at, records.len(), header.record_bytes()) {
            break;
        }
        if next == first {
            let mut bytes = segment_head.encode().to_vec();
            record::write_front(header, Some(&head), std::slice::from_ref(&body), sequence, &mut bytes);
            bytes.extend_from_slice(&body);
            file.write_all_at(&bytes, start)?;
        }
        let name = Name::of_head(key_hash, 0);
        records.push(Location::new(name, Kind::WholeHead, head.id.0, segment, at, header.exact_bytes()));
        at += header.record_bytes();
        next += 1;
    }
    let (summary_at, bytes) = Trailer::write(sequence, 0, next, &records, geometry.segment_bytes);
    file.write_all_at(&bytes, start + summary_at)?;
    Ok(next)
}

/// Takes what is on disk out of the page cache.
fn drop_caches(folder: &Path) -> Outcome<()> {
    for each in std::fs::read_dir(folder)? {
        let file = File::open(each?.path())?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    std::io::stdout().flush()?;
    Ok(())
}

fn resident_bytes() -> u64 {
    let Ok(status) = File::open("/proc/self/status") else { return 0 };
    let lines = std::io::BufReader::new(status).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
