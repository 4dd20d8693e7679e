//! Hits from disk while memory is full: answered without a place in memory, from bytes that were verified, and with the
//! same right as hits in memory.

use super::heads;

use bytes::Bytes;
use heads::{request, response};
use larder_cache::cache::{Cache, Disk, Found, Glance, Joins, Settings, Tier};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, Storable, Times};
use larder_cache::store::rules::{Force, Scope};
use larder_cache::store::{Admission, HeadToStore, Put, Settings as DiskSettings, Store};
use larder_wire::RequestHead;
use larder_wire::date::Stamp;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const NOW: Stamp = Stamp(1_800_000_000);
const KEY: &[u8] = b"http://a.example/x";
const BODY_BYTES: usize = 11_000;
const USUAL: &str = "Cache-Control: max-age=60";

fn head_of(fields: &str) -> StoredHead {
    let mut head = response(fields);
    policy::dated(&mut head, NOW);
    let times = Times { requested: NOW, received: NOW };
    match policy::storable(&request(""), &head, times, &policy::Settings::default()) {
        Storable::Yes(terms) => StoredHead::new(head, Some(terms), NOW),
        Storable::No(why) => panic!("{why:?}"),
    }
}

struct Lab {
    folder: tempfile::TempDir,
    disk: Arc<Store>,
    cache: Arc<Cache>,
}

impl Lab {
    /// A disk, and a memory that has no room at all.
    fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let settings = DiskSettings {
            disk_bytes: 8_000_000,
            free_bytes_min: 0,
            index_bytes_max: 1 << 20,
            write_block_bytes: 256 << 10,
            queue_bytes_max: 1 << 20,
            sync_seconds: 1,
            readers: 1,
            admission: Admission::All,
        };
        let disk = Store::open(&[folder.path().to_path_buf()], &settings).unwrap();
        assert!(disk.heads(KEY).wait().is_empty(), "and its index is read");
        let cache = Cache::over(Settings { memory_bytes: 0, ..Settings::default() }, Some(Arc::clone(&disk)));
        Lab { folder, disk, cache }
    }

    fn put(&self, key: &[u8], fields: &str, body: Vec<u8>) {
        let stored = head_of(fields);
        let head = HeadToStore {
            key: Bytes::copy_from_slice(key),
            variant: stored.variant(),
            id: self.disk.new_id(),
            epoch: self.disk.current_epoch(),
            length: Some(body.len() as u64),
            tags: stored.tags().to_vec(),
            meta: stored.encode(),
            body: Some(vec![body.into()]),
        };
        assert_eq!(self.disk.put_head(head).wait(), Put::Stored);
    }

    /// A quick look; the turns of what is to be taken up are skipped.
    fn look(&self, request: &RequestHead, at: Stamp) -> Option<Bytes> {
        (0..3).find_map(|_| self.look_once(request, at))
    }

    fn look_once(&self, request: &RequestHead, at: Stamp) -> Option<Bytes> {
        let asked = Asked::of(request);
        let glance = Glance { key: KEY, request, asked: &asked, now: at };
        let (length, pieces) = self.cache.fresh(&glance, BODY_BYTES as u64, &mut |whole| {
            assert_eq!(whole.tier(), Tier::Disk);
            let mut pieces = Vec::new();
            whole.each(|bytes, part| pieces.push(bytes.slice(part)));
            (whole.length, pieces)
        })?;
        assert_eq!(self.cache.count(&[Scope::All], u64::MAX), Some(0), "it takes no place in memory");
        let [body] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
        assert_eq!(length, body.len() as u64);
        Some(body.clone())
    }
}

fn law(seed: u64) -> Vec<u8> {
    (0..BODY_BYTES as u64).map(|at| (at.wrapping_mul(seed + 7) >> 3) as u8).collect()
}

#[test]
fn a_fresh_response_is_answered_from_where_it_lies() {
    let other = "Vary: Accept\nCache-Control: max-age=60";
    for (stored, fields, at, wanted) in [
        (USUAL, "", NOW, true),
        (USUAL, "", NOW.plus(59), true),
        (USUAL, "", NOW.plus(60), false),
        (USUAL, "Cache-Control: no-cache\r\n", NOW, false),
        (other, "", NOW, true),
        (other, "Accept: text/html\r\n", NOW, false),
    ] {
        let lab = Lab::new();
        lab.put(KEY, stored, law(1));
        let found = lab.look(&request(fields), at);
        assert_eq!(found, wanted.then(|| law(1).into()), "{stored:?} {fields:?} {at:?}");
    }
}

#[test]
fn what_is_longer_than_wanted_or_not_alone_goes_the_long_way() {
    let lab = Lab::new();
    lab.put(KEY, USUAL, vec![1; BODY_BYTES + 1]);
    assert_eq!(lab.look(&request(""), NOW), None);
    lab.put(KEY, USUAL, law(2));
    assert_eq!(lab.look(&request(""), NOW).as_deref(), Some(&law(2)[..]), "the newer one");
    lab.put(KEY, "Vary: Accept\nCache-Control: max-age=60", law(3));
    assert_eq!(lab.look(&request(""), NOW), None, "which of the two is decided elsewhere");
}

#[test]
fn what_is_asked_for_often_comes_to_memory() {
    let lab = Lab::new();
    lab.put(KEY, USUAL, law(1));
    let request = request("");
    let taken_up = (0..1600).filter(|_| lab.look_once(&request, NOW).is_none()).count();
    assert!((90..=110).contains(&taken_up), "one in 16: {taken_up}");
}

#[test]
fn what_is_purged_is_not_answered() {
    for (scope, force) in [
        (Scope::All, Force::Hard),
        (Scope::All, Force::Soft),
        (Scope::Prefix(b"http://a.example/".as_slice().into()), Force::Hard),
    ] {
        let lab = Lab::new();
        lab.put(KEY, USUAL, law(1));
        assert!(lab.look(&request(""), NOW).is_some());
        lab.disk.invalidate([scope.clone()], force).wait().unwrap();
        assert_eq!(lab.look(&request(""), NOW), None, "{scope:?} {force:?}");
    }
    let lab = Lab::new();
    lab.put(KEY, USUAL, law(1));
    lab.cache.invalidate(KEY);
    assert_eq!(lab.look(&request(""), NOW), None);
}

#[test]
fn a_byte_that_changed_on_disk_is_noticed() {
    let lab = Lab::new();
    lab.put(KEY, USUAL, law(1));
    lab.disk.sync().wait();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(lab.folder.path().join("data-000")).unwrap();
    let text = std::fs::read(lab.folder.path().join("data-000")).unwrap();
    let at = text.windows(64).position(|window| window == &law(1)[5000..5064]).unwrap() as u64;
    file.write_all_at(&[text[at as usize] ^ 1], at).unwrap();
    assert_eq!(lab.look(&request(""), NOW), None);
    assert_eq!(lab.disk.stats().bad_records, 1);
}

/// The place on disk is written anew while a client has not taken all yet.
#[test]
fn what_a_slow_client_holds_does_not_change_when_its_place_is_recycled() {
    let lab = Lab::new();
    lab.put(KEY, USUAL, law(1));
    let held = lab.look(&request(""), NOW).unwrap();
    let recycled = || lab.disk.stats().segments_recycled;
    for round in 0..2_000u64 {
        let key = format!("http://b.example/{round}");
        lab.put(key.as_bytes(), USUAL, law(round));
        if recycled() > 40 {
            break;
        }
    }
    assert!(recycled() > 40, "each place was written twice: {}", recycled());
    assert_eq!(held, law(1));
}

/// Blocks of a long body that is read again and again: the buffers change hands, never what a client holds.
#[test]
fn blocks_that_pass_are_right_while_others_read() {
    let lab = Lab::new();
    let id = lab.disk.new_id();
    let block = |number: u64| -> Bytes { (0..65_536u64).map(|at| (at * 31 + number * 7) as u8).collect() };
    let stored = head_of(USUAL);
    let head = HeadToStore {
        key: Bytes::from_static(KEY),
        variant: 0,
        id,
        epoch: 0,
        length: Some(8 << 16),
        tags: Vec::new(),
        meta: stored.encode(),
        body: None,
    };
    assert_eq!(lab.disk.put_head(head).wait(), Put::Stored);
    for number in 0..8 {
        assert_eq!(lab.disk.put_extent(id, KEY, number << 16, vec![block(number)]).wait(), Put::Stored);
    }
    let mut readers: Vec<_> = (0..12).map(|_| lab.hit().reader).collect();
    let mut held = Vec::new();
    for number in 0..8 {
        for reader in &mut readers {
            let mut pieces = Vec::new();
            assert_eq!(until(reader.read(number << 16..8 << 16, &mut pieces)), Ok(65_536));
            held.push((number, pieces.remove(0)));
        }
        let gathering = readers.iter().filter(|reader| reader.gathers()).count();
        match number {
            // The first block is lent a place in memory, and the first reader was to take up what it reads.
            1 => assert!(gathering >= 7, "there are buffers for many: {gathering}"),
            3 => assert_eq!(gathering, 0, "most are in somebody's hands"),
            _ => {}
        }
        if number == 5 {
            held.drain(..).for_each(|(number, piece)| assert_eq!(piece, block(number)));
        }
    }
    held.drain(..).for_each(|(number, piece)| assert_eq!(piece, block(number)));
}

impl Lab {
    fn hit(&self) -> larder_cache::cache::Hit {
        let request = request("");
        let find = |disk| self.cache.find(KEY, &request, &Asked::of(&request), NOW, Joins::Yes, disk);
        // Memory has no room: what is taken up goes again, unless a client has it.
        let held = match find(Disk::Ask) {
            Found::Fresh(hit) => return hit,
            Found::OnDisk(load) => load,
            other => panic!("{}", other.as_str()),
        };
        until(held.finish());
        match find(Disk::Seen) {
            Found::Fresh(hit) => hit,
            other => panic!("{}", other.as_str()),
        }
    }
}

fn until<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
