//! A disk that is full or fails: puts are refused and counted, what can be read is read, and nothing panics.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use larder_cache::store::log;
use larder_cache::store::medium::Medium;
use larder_cache::store::rules::{Force, Scope};
use larder_cache::store::segment_reader::{Patience, ReadOutcome, VARIANTS_READ_MAX};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::{HeadToStore, ObjectId, Put, Putting, Refusal, Settings, Stats, Store};

const MIB: u64 = 1 << 20;

fn open(device: &SimDevice, disk_bytes: u64, free_bytes_min: u64) -> SegmentWriter {
    let settings = LogSettings { disk_bytes, free_bytes_min, index_bytes_max: MIB, write_block_bytes: 64 << 10 };
    let opened = log::open(Arc::new(device.clone()), settings, Path::new("device")).expect("it opens");
    opened.recovery.run(1, || ())
}

fn put_variant(writer: &mut SegmentWriter, key: &str, variant: u64, id: u64, bytes: usize) -> Put {
    let (putting, promise) = Putting::pair();
    let head = HeadToStore {
        key: Bytes::copy_from_slice(key.as_bytes()),
        variant,
        id: ObjectId(id),
        epoch: 0,
        length: Some(bytes as u64),
        tags: Vec::new(),
        meta: Bytes::new(),
        body: Some(vec![vec![id as u8; bytes].into()]),
    };
    writer.append_head(head, promise);
    let _ = writer.flush();
    putting.wait()
}

fn put(writer: &mut SegmentWriter, id: u64) -> Put {
    put_variant(writer, &format!("key {id}"), 0, id, 10_000)
}

fn is_there(writer: &SegmentWriter, id: u64) -> bool {
    let found = writer.reader().heads(format!("key {id}").as_bytes(), Patience::Waits);
    matches!(found, ReadOutcome::Ended(heads) if heads.len() == 1)
}

fn stats(writer: &SegmentWriter) -> Stats {
    let mut stats = Stats::default();
    writer.reader().add_to(&mut stats);
    stats
}

#[test]
fn a_full_disk_is_bypassed_until_it_has_room() {
    let device = SimDevice::new(64 * MIB);
    let mut writer = open(&device, 8 * MIB, 0);
    assert_eq!(put(&mut writer, 1), Put::Stored);
    device.fail_after(0, io::ErrorKind::StorageFull, 1);
    assert_eq!(put(&mut writer, 2), Put::Refused(Refusal::Bypass));
    let mut refused = 1;
    while put(&mut writer, 3) == Put::Refused(Refusal::Bypass) {
        refused += 1;
        assert!(refused < 1000, "it never tried again");
    }
    assert!(is_there(&writer, 1) && !is_there(&writer, 2) && is_there(&writer, 3));
    let now = stats(&writer);
    assert_eq!((now.refused_bypass, now.write_errors, now.folders_healthy), (refused, 1, 1));
}

#[test]
fn a_disk_that_fails_is_taken_out_of_service() {
    let device = SimDevice::new(64 * MIB);
    let mut writer = open(&device, 8 * MIB, 0);
    assert_eq!(put(&mut writer, 1), Put::Stored);
    device.fail_after(0, io::ErrorKind::Other, 1_000_000);
    let tries =
        (2..100).take_while(|id| put(&mut writer, *id) == Put::Refused(Refusal::Bypass) && writer.reader().healthy());
    assert!(tries.count() <= 8);
    assert!(!writer.reader().healthy());
    let errors = stats(&writer).write_errors;
    assert_eq!(put(&mut writer, 200), Put::Refused(Refusal::Bypass));
    assert_eq!(stats(&writer).write_errors, errors, "it is not tried any more");
    assert_eq!(stats(&writer).folders_failed, 1);
    assert!(is_there(&writer, 1), "reading has no part in this");
}

#[test]
fn reads_that_fail_find_nothing_and_are_counted() {
    let device = SimDevice::new(64 * MIB);
    let mut writer = open(&device, 8 * MIB, 0);
    assert_eq!(put(&mut writer, 1), Put::Stored);
    device.fail_reads_after(0, io::ErrorKind::Other, 2);
    assert!(!is_there(&writer, 1) && !is_there(&writer, 1));
    assert!(is_there(&writer, 1), "an error is not a damaged record");
    let now = stats(&writer);
    assert_eq!((now.read_errors, now.bad_records, now.folders_healthy), (2, 0, 1));
    device.fail_reads_after(0, io::ErrorKind::Other, 8);
    (0..8).for_each(|_| assert!(!is_there(&writer, 1)));
    assert!(!writer.reader().healthy());
}

#[test]
fn what_is_to_stay_free_stays_free() {
    let device = SimDevice::new(8 * MIB);
    let mut writer = open(&device, 64 * MIB, 3 * MIB);
    for id in 1..=2000 {
        assert_eq!(put(&mut writer, id), Put::Stored, "what there is of segments is recycled");
    }
    assert!(device.bytes_max() <= 5 * MIB, "{}", device.bytes_max());
    assert!(is_there(&writer, 2000) && stats(&writer).segments_recycled > 0);
}

#[test]
fn without_any_room_everything_is_refused() {
    let device = SimDevice::new(8 * MIB);
    let mut writer = open(&device, 64 * MIB, 100 * MIB);
    assert_eq!(put(&mut writer, 1), Put::Refused(Refusal::Bypass));
    assert!(!is_there(&writer, 1) && writer.reader().healthy());
    assert_eq!(stats(&writer).refused_bypass, 1);
}

#[test]
fn many_variants_make_a_look_up_no_slower() {
    let device = SimDevice::new(64 * MIB);
    let mut writer = open(&device, 32 * MIB, 0);
    let many = VARIANTS_READ_MAX as u64 * 3;
    for variant in 1..=many {
        assert_eq!(put_variant(&mut writer, "key", variant, variant, 10), Put::Stored);
    }
    let ReadOutcome::Ended(heads) = writer.reader().heads(b"key", Patience::Waits) else { panic!("it recovers") };
    assert_eq!(heads.len(), VARIANTS_READ_MAX);
    assert!(heads.iter().all(|head| head.variant > many - VARIANTS_READ_MAX as u64), "the newest");
    assert_eq!(writer.kill(b"key", None).heads as u64, many, "a removal is one of all");
}

fn store_on(device: &SimDevice) -> Arc<Store> {
    let medium: Arc<dyn Medium> = Arc::new(device.clone());
    Store::open_media(&[(PathBuf::from("device"), medium)], &Settings::small()).expect("it opens")
}

fn put_in(store: &Store, number: u64, epoch: u64) -> Put {
    let head = HeadToStore {
        key: Bytes::from(format!("http://a/{number}")),
        variant: 0,
        id: store.new_id(),
        epoch,
        length: Some(3_000),
        tags: vec![number % 3],
        meta: Bytes::new(),
        body: Some(vec![vec![number as u8; 3_000].into()]),
    };
    store.put_head(head).wait()
}

/// Whether an object is found; its bytes are then the right ones.
fn finds(store: &Arc<Store>, number: u64) -> bool {
    let heads = store.heads(format!("http://a/{number}").as_bytes()).wait();
    heads.iter().for_each(|head| assert_eq!(head.body.as_deref(), Some(&vec![number as u8; 3_000][..])));
    assert!(heads.len() <= 1);
    heads.len() == 1
}

/// The answer that a caller got about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Stored,
    Removed,
    /// The writer was lost before it could say.
    Nothing,
}

fn assert_kept(store: &Arc<Store>, told: &[Told], point: u64) {
    for (number, told) in told.iter().enumerate() {
        let found = finds(store, number as u64);
        let as_told = match told {
            Told::Stored => found,
            Told::Removed => !found,
            Told::Nothing => true,
        };
        assert!(as_told, "object {number} of point {point} is {told:?}, found: {found}");
    }
}

#[test]
fn a_writer_that_meets_a_broken_invariant_is_begun_anew_and_nothing_is_lost_or_comes_back() {
    let mut broken = 0;
    for point in (0..60).step_by(3) {
        let device = SimDevice::new(64 * MIB);
        let store = store_on(&device);
        let mut told: Vec<Told> = (0..20).map(|_| Told::Stored).collect();
        (0..20).for_each(|number| assert_eq!(put_in(&store, number, 0), Put::Stored));
        let before = device.operations();
        device.panic_after(point, 1);
        for step in 20..60 {
            let outcome = put_in(&store, step, store.current_epoch());
            assert!(matches!(outcome, Put::Stored | Put::Refused(Refusal::Closed)), "{outcome:?}");
            told.push(if outcome == Put::Stored { Told::Stored } else { Told::Nothing });
            if step % 4 == 0 {
                let number = step / 3;
                let removed = store.forget(format!("http://a/{number}").as_bytes(), None).wait();
                told[number as usize] = removed.map_or(Told::Nothing, |_| Told::Removed);
            }
            if step % 16 == 0 {
                let ruled = store.invalidate([Scope::Tag(1)], Force::Hard).wait();
                // In force at once, and on disk only if it is said.
                let after = if ruled.is_ok() { Told::Removed } else { Told::Nothing };
                told.iter_mut().skip(1).step_by(3).for_each(|told| *told = after);
            }
            if step % 5 == 0 {
                store.sync().wait();
            }
        }
        assert_kept(&store, &told, point);
        // Tasks that were queued before it are done when it resolves, and not counted any more.
        store.sync().wait();
        assert_eq!(store.stats().queue_bytes, 0, "{point}");
        let stats = store.stats();
        let restarts = u64::from(device.operations() > before + point);
        assert_eq!((stats.writer_restarts, stats.folders_healthy, stats.recovering), (restarts, 1, false), "{point}");
        broken += restarts;
        assert_eq!(put_in(&store, 60, store.current_epoch()), Put::Stored);
        told.push(Told::Stored);
        store.close();
        assert_kept(&store_on(&device), &told, point);
    }
    assert!(broken > 15, "the points lie within the work: {broken}");
}

#[test]
fn a_writer_that_breaks_again_and_again_leaves_its_folder_out_of_service() {
    let device = SimDevice::new(64 * MIB);
    let store = store_on(&device);
    assert_eq!(put_in(&store, 1, 0), Put::Stored);
    device.panic_after(0, 1_000);
    assert_eq!(put_in(&store, 2, 0), Put::Refused(Refusal::Closed));
    while store.stats().folders_failed == 0 {
        std::thread::yield_now();
    }
    assert_eq!(store.stats().writer_restarts, 9);
    assert_eq!(put_in(&store, 3, 0), Put::Refused(Refusal::Bypass));
    assert!(!finds(&store, 1), "nobody waits for an index that nobody reads");
    store.close();
    device.panic_after(0, 0);
    let store = store_on(&device);
    assert!(finds(&store, 1), "a start reads it anew");
    assert_eq!(put_in(&store, 4, 0), Put::Stored);
}
