//! A disk that is full or fails: puts are refused and counted, what can be read is read, and nothing panics.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_cache::store::log;
use larder_cache::store::segment_reader::{Patience, ReadOutcome, VARIANTS_READ_MAX};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::{HeadToStore, ObjectId, Put, Putting, Refusal, Stats};

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
