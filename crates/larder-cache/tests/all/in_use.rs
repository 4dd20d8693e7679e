//! Clients that read one body at different places, and bodies that are read though a newer response has taken their place.

use super::heads;

use heads::{request, response};
use larder_cache::cache::{Cache, Disk, Fill, Found, Joins, Settings, Writer};
use larder_cache::entry::{Reader, Room, Stop};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, Storable, Times};
use larder_cache::store::{Settings as DiskSettings, Store};
use larder_wire::date::Stamp;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const NOW: Stamp = Stamp(1_800_000_000);
const KEY: &[u8] = b"http://a.example/x";
const STRONG: &str = "Cache-Control: max-age=60\nETag: \"v1\"";
const WITHOUT_VALIDATOR: &str = "Cache-Control: max-age=60";

fn head_of(cache: &Cache, asking: &str, fields: &str) -> StoredHead {
    let mut head = response(fields);
    policy::dated(&mut head, NOW);
    let times = Times { requested: NOW, received: NOW };
    match policy::storable(&request(asking), &head, times, &cache.settings().policy) {
        Storable::Yes(terms) => StoredHead::new(head, Some(terms), NOW),
        Storable::No(why) => panic!("{why:?}"),
    }
}

fn find(cache: &Arc<Cache>, asking: &str) -> Found {
    let request = request(asking);
    cache.find(KEY, &request, &Asked::of(&request), NOW, Joins::Yes, Disk::Seen)
}

fn fresh(cache: &Arc<Cache>, asking: &str) -> Reader {
    match find(cache, asking) {
        Found::Fresh(hit) => hit.reader,
        other => panic!("{}", other.as_str()),
    }
}

fn law(range: Range<u64>) -> Vec<u8> {
    range.map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect()
}

fn part(cache: &Arc<Cache>, range: Range<u64>, length: u64) -> Fill {
    let (_, writer) = cache.beside(KEY);
    writer.store_part(head_of(cache, "", STRONG), &range, length).expect("a part of a strong answer begins a fill")
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn read(reader: &mut Reader, range: Range<u64>) -> Option<Result<Vec<u8>, Stop>> {
    let mut out = Vec::new();
    now(reader.read(range, &mut out)).map(|read| read.map(|_| out.concat()))
}

fn disk() -> (tempfile::TempDir, Arc<Store>) {
    let folder = tempfile::tempdir().unwrap();
    let disk = Store::open(&[folder.path().to_path_buf()], &DiskSettings::small()).unwrap();
    assert!(disk.heads(KEY).wait().is_empty(), "and its index is read");
    (folder, disk)
}

/// Memory takes nothing of a body of this length.
fn small_memory() -> Settings {
    Settings { memory_bytes: 4 << 20, memory_object_bytes_max: 20_000, window_bytes: 10_000, ..Settings::default() }
}

/// Pushes pieces of a part as long as there is room; says how far that went.
fn fill_up(cache: &Arc<Cache>, fill: &mut Fill, end: u64) -> u64 {
    let mut at = fill.hole().start;
    while at < end && now(fill.room(cache)) == Some(Room::Go) {
        fill.push(cache, law(at..at + 1_000).into());
        at += 1_000;
    }
    at
}

#[test]
fn without_a_reader_that_takes_it_a_part_waits_in_memory() {
    let cache = Cache::new(small_memory());
    let mut fill = part(&cache, 100_000..190_000, 200_000);
    let mut slow = fresh(&cache, "");
    assert_eq!(read(&mut slow, 100_000..200_000), None);
    assert_eq!(fill_up(&cache, &mut fill, 190_000), 120_000, "as much as memory takes of one body");
}

#[test]
fn a_part_that_goes_to_disk_is_not_held_up_by_readers() {
    let (_folder, disk) = disk();
    let cache = Cache::over(small_memory(), Some(Arc::clone(&disk)));
    let range = 100_000..190_000;
    let mut fill = part(&cache, range.clone(), 200_000);
    let mut slow = fresh(&cache, "");
    let _ = read(&mut slow, 0..200_000);
    let mut at = range.start;
    while at < range.end {
        // It may wait for the disk, and for nobody else.
        if now(fill.room(&cache)) == Some(Room::Go) {
            fill.push(&cache, law(at..at + 1_000).into());
            at += 1_000;
        } else {
            disk.sync().wait();
            assert_eq!(now(fill.room(&cache)), Some(Room::Go), "at {at}");
        }
    }
}

/// Stores a body that lies on disk alone.
fn store_on_disk(cache: &Arc<Cache>, disk: &Store, asking: &str, fields: &str, body: Vec<u8>) {
    let (_reader, mut writer): (Reader, Writer) = match find(cache, asking) {
        Found::Missing(reader, writer, _) => (reader, writer),
        _ => cache.beside(KEY),
    };
    writer.store(head_of(cache, asking, fields), Some(body.len() as u64));
    for piece in body.chunks(8_000) {
        while now(writer.room()).is_none() {
            std::thread::yield_now();
        }
        writer.push(piece.to_vec().into());
    }
    writer.finish(None);
    disk.sync().wait();
}

/// Reads a body that lies on disk to its end.
fn read_all(reader: &mut Reader) -> Result<Vec<u8>, Stop> {
    let (mut body, length) = (Vec::new(), reader.length().unwrap());
    while (body.len() as u64) < length {
        match read(reader, body.len() as u64..length) {
            Some(piece) => body.extend(piece?),
            None => std::thread::yield_now(),
        }
    }
    Ok(body)
}

/// The ways in which a response leaves the index and the disk while a client reads it.
#[test]
fn an_answer_from_disk_that_has_begun_is_read_to_its_end() {
    type Remove = fn(&Arc<Cache>, &Store);
    let removals: [(&str, Remove); 4] = [
        ("replaced", |cache, disk| store_on_disk(cache, disk, "", WITHOUT_VALIDATOR, vec![2; 200_000])),
        ("invalidated", |cache, _| _ = cache.invalidate(KEY)),
        ("purged", |cache, _| drop(cache.purge_key(KEY))),
        ("crowded out", |cache, disk| {
            for number in 0..cache.settings().variants_max {
                let asking = format!("A: {number}\r\n");
                store_on_disk(cache, disk, &asking, "Cache-Control: max-age=60\nVary: A", vec![2; 200_000]);
            }
        }),
    ];
    for (removal, remove) in removals {
        let (_folder, disk) = disk();
        let settings = Settings { variants_max: 2, ..small_memory() };
        let cache = Cache::over(settings, Some(Arc::clone(&disk)));
        store_on_disk(&cache, &disk, "", WITHOUT_VALIDATOR, law(0..200_000));
        let mut reader = fresh(&cache, "");
        assert!(reader.entry().bytes_in_memory() < 100_000, "most of it lies on disk alone");
        remove(&cache, &disk);
        disk.sync().wait();
        let extents = disk.stats().extents;
        assert!(read_all(&mut reader).as_deref() == Ok(&law(0..200_000)[..]), "{removal}");
        drop(reader);
        disk.sync().wait();
        assert_eq!(disk.stats().extents, extents - 4, "{removal}: its blocks go with its last reader");
    }
}
