//! More is to be stored than the disk takes: answers pass by it rather than wait, and what memory has stays as it is.

use super::heads;

use bytes::Bytes;
use heads::{request, response};
use larder_cache::cache::{Admitted, Cache, Disk, Fate, Found, Joins, Settings, Writer};
use larder_cache::entry::{Reader, Room};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, Storable, Times};
use larder_cache::store::medium::Medium;
use larder_cache::store::sim::SimDevice;
use larder_cache::store::{Settings as DiskSettings, Steps, Store};
use larder_wire::date::Stamp;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const NOW: Stamp = Stamp(1_800_000_000);
const BODY_BYTES: usize = 50_000;

/// A cache over a disk that writes when it is told to, and a clock that ticks ten times a second.
struct Lab {
    cache: Arc<Cache>,
    store: Arc<Store>,
    disk: Steps,
    begun: Instant,
    ticks: u32,
}

impl Lab {
    fn new(memory: Settings) -> Lab {
        let medium: Arc<dyn Medium> = Arc::new(SimDevice::new(200_000_000));
        let settings = DiskSettings { queue_bytes_max: 2_000_000, ..DiskSettings::small() };
        let (store, mut steps) = Store::open_stepped(&[(PathBuf::from("device"), medium)], &settings).unwrap();
        let cache = Cache::over(memory, Some(Arc::clone(&store)));
        Lab { cache, store, disk: steps.remove(0), begun: Instant::now(), ticks: 0 }
    }

    /// A tenth of a second goes by; the disk writes all that waits once every two seconds.
    fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(20) {
            self.disk.write();
        }
        self.cache.account_for_disk(self.begun + Duration::from_millis(100) * self.ticks);
    }

    fn miss(&self, key: &str) -> (Reader, Writer) {
        let asked = Asked::of(&request(""));
        match self.cache.find(key.as_bytes(), &request(""), &asked, NOW, Joins::Yes, Disk::Seen) {
            Found::Missing(reader, writer, _) => (reader, writer),
            other => panic!("{key}: {}", other.as_str()),
        }
    }

    fn head(&self) -> StoredHead {
        let head = response("Cache-Control: max-age=600");
        let times = Times { requested: NOW, received: NOW };
        let settings = &self.cache.settings().policy;
        let Storable::Yes(terms) = policy::storable(&request(""), &head, times, settings) else { panic!() };
        StoredHead::new(policy::head_to_store(&head, settings), Some(terms), NOW)
    }

    /// One miss whose answer comes at once; gives whether it had to wait for the disk, and whether it goes there.
    fn fetch(&self, key: &str) -> (bool, Option<Admitted>) {
        let (_reader, mut writer) = self.miss(key);
        writer.store(self.head(), Some(BODY_BYTES as u64));
        let waits = writer.poll_room(&mut noop()).is_pending();
        let admitted = writer.admitted();
        writer.push(vec![b'x'; BODY_BYTES].into());
        writer.finish(None);
        (waits, admitted)
    }
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn read(reader: &mut Reader, from: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let polled = pin!(reader.read(from..u64::MAX, &mut out)).poll(&mut noop());
    assert!(matches!(polled, Poll::Ready(Ok(_))), "{polled:?}");
    out.concat()
}

/// Three times as many bytes come as the disk takes, for a minute; then a third of what it takes.
#[test]
fn misses_pass_by_a_disk_that_is_behind_and_none_waits() {
    let mut lab = Lab::new(Settings::default());
    let (mut behind, mut waits, mut to_disk, mut passed) = (Vec::new(), 0, 0, 0u64);
    for second in 0..60 {
        for tick in 0..10 {
            for number in 0..6 {
                let (waited, admitted) = lab.fetch(&format!("http://a.example/{second}/{tick}/{number}"));
                waits += usize::from(waited && second >= 5);
                to_disk += usize::from(admitted == Some(Admitted::Yes));
                passed += u64::from(admitted == Some(Admitted::Behind));
            }
            lab.tick();
        }
        behind.push(lab.store.stats().folders_behind);
    }
    let first = behind.iter().position(|behind| *behind == 1).expect("it is behind");
    assert!(first < 5 && behind[first..].iter().all(|behind| *behind == 1), "it does not come and go: {behind:?}");
    assert_eq!(waits, 0, "none waits for the disk");
    assert!(to_disk > 250 && passed > 2_500, "{to_disk} go to disk, {passed} pass by");
    assert_eq!(lab.store.stats().passed_by, passed);
    // Answers that passed by the disk are in memory all the same.
    let asked = Asked::of(&request(""));
    for number in 0..6 {
        let key = format!("http://a.example/59/9/{number}");
        let found = lab.cache.find(key.as_bytes(), &request(""), &asked, NOW, Joins::Yes, Disk::Seen);
        assert!(matches!(found, Found::Fresh(_)), "{key}: {}", found.as_str());
    }
    let passed = lab.store.stats().passed_by;
    for tick in 0..200 {
        if tick % 4 == 0 {
            lab.fetch(&format!("http://a.example/calm/{tick}"));
        }
        lab.tick();
    }
    let stats = lab.store.stats();
    assert_eq!((stats.folders_behind, stats.passed_by), (0, passed), "it has caught up, and takes all that comes");
}

/// A cache that is there to store waits for its disk.
#[test]
fn none_passes_by_where_that_is_not_wanted() {
    let mut lab = Lab::new(Settings { pass_by_disk: false, ..Settings::default() });
    let mut waits = 0;
    for second in 0..10 {
        for tick in 0..10 {
            for number in 0..6 {
                let (waited, admitted) = lab.fetch(&format!("http://a.example/{second}/{tick}/{number}"));
                waits += usize::from(waited);
                assert_eq!(admitted, Some(Admitted::Yes));
            }
            lab.tick();
        }
    }
    assert!(waits > 100, "{waits}");
    assert_eq!(lab.store.stats().passed_by, 0);
}

/// Another one in its place would be the answer again once memory has let go of the new one.
#[test]
fn an_answer_that_passes_by_takes_the_older_one_off_the_disk() {
    let mut lab = Lab::new(Settings::default());
    let key = "http://a.example/old";
    lab.fetch(key);
    lab.disk.write();
    assert!(lab.store.may_have(key.as_bytes()));
    // The queue is full, and stays so.
    let mut number = 0;
    while lab.store.queue_room(&noop()).is_ready() {
        number += 1;
        lab.fetch(&format!("http://a.example/{number}"));
    }
    let (_reader, mut writer) = lab.cache.beside(key.as_bytes());
    writer.store(lab.head(), None);
    let mut waited = 0;
    while writer.poll_room(&mut noop()).is_pending() {
        lab.ticks += 1;
        lab.cache.account_for_disk(lab.begun + Duration::from_millis(100) * lab.ticks);
        waited += 1;
    }
    assert_eq!(waited, 11, "it is behind after a second, and this is more than half a second and a quarter");
    assert_eq!(writer.admitted(), Some(Admitted::Behind));
    writer.push(vec![b'y'; 10].into());
    writer.finish(None);
    lab.disk.write();
    assert!(!lab.store.may_have(key.as_bytes()), "neither the new one nor the old one");
}

/// A body that is too long for memory, on a disk that has stopped: its reader gets all of it.
#[test]
fn a_long_body_goes_on_without_a_disk_that_hangs() {
    let window_bytes = 100_000;
    let mut lab = Lab::new(Settings { memory_object_bytes_max: 200_000, window_bytes, ..Settings::default() });
    let key = "http://a.example/long";
    let (mut reader, mut writer) = lab.miss(key);
    let pieces = 40;
    writer.store(lab.head(), Some(pieces * BODY_BYTES as u64));
    assert!(pin!(reader.arrival()).as_mut().poll(&mut noop()).is_ready());
    let (mut at, mut waited) = (0, 0);
    for number in 0..pieces {
        loop {
            match writer.poll_room(&mut noop()) {
                Poll::Ready(room) => break assert_eq!(room, Room::Go),
                Poll::Pending => {
                    waited += 1;
                    assert!(waited < 100, "it waits for ever");
                    lab.ticks += 1;
                    lab.cache.account_for_disk(lab.begun + Duration::from_millis(100) * lab.ticks);
                }
            }
        }
        writer.push(Bytes::from(vec![u8::try_from(number).unwrap(); BODY_BYTES]));
        let piece = read(&mut reader, at);
        at += piece.len() as u64;
        assert!(piece.iter().all(|byte| u64::from(*byte) == number), "piece {number}");
    }
    writer.finish(None);
    assert_eq!((at, waited), (pieces * BODY_BYTES as u64, 21), "it does nothing for two seconds");
    assert_eq!(lab.store.stats().passed_by, 1);
    let peek = lab.cache.peek(key.as_bytes(), &request(""), NOW);
    assert_eq!(peek.fate.map(|(fate, _)| fate), Some(Fate::DiskBehind), "the next miss can say why");
}
