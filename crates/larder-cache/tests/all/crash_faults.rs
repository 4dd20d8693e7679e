//! A write that fails in part, and a power cut later: what was put and synced after the error is there, what was refused
//! is not. The harness with its random plays asks for nothing to be there once a device has made errors.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_cache::store::log;
use larder_cache::store::segment_reader::{Patience, ReadOutcome};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::{HeadToStore, ObjectId, Put, Putting, Refusal};

const MIB: u64 = 1 << 20;

fn open(device: &SimDevice) -> SegmentWriter {
    let settings =
        LogSettings { disk_bytes: 8 * MIB, free_bytes_min: 0, index_bytes_max: MIB, write_block_bytes: 64 << 10 };
    let opened = log::open(Arc::new(device.clone()), settings, Path::new("device")).expect("it opens");
    opened.recovery.run(1, || ())
}

fn key(id: u64) -> Bytes {
    format!("http://a.example/{id}").into()
}

fn put(writer: &mut SegmentWriter, id: u64) -> Put {
    let (putting, promise) = Putting::pair();
    let head = HeadToStore {
        key: key(id),
        variant: 0,
        id: ObjectId(id),
        epoch: 0,
        length: Some(10_000),
        tags: Vec::new(),
        meta: Bytes::new(),
        body: Some(vec![vec![id as u8; 10_000].into()]),
    };
    writer.append_head(head, promise);
    let _ = writer.flush();
    putting.wait()
}

fn is_there(writer: &SegmentWriter, id: u64) -> bool {
    let ReadOutcome::Ended(heads) = writer.reader().heads(&key(id), Patience::Waits) else { panic!("it recovered") };
    heads.iter().all(|head| head.body.as_deref() == Some(&[id as u8; 10_000][..])) && heads.len() == 1
}

#[test]
fn what_is_synced_after_a_write_that_failed_is_there_after_a_power_cut() {
    for errors in 1..4 {
        let device = SimDevice::new(64 * MIB);
        let mut writer = open(&device);
        assert_eq!(put(&mut writer, 1), Put::Stored);
        writer.sync().expect("the device is sound");
        device.fail_after(0, io::ErrorKind::Other, errors);
        assert_eq!(put(&mut writer, 2), Put::Refused(Refusal::Bypass));
        device.fail_after(0, io::ErrorKind::Other, 0);
        assert_eq!(put(&mut writer, 3), Put::Stored, "{errors} errors");
        writer.sync().expect("the device is sound again");
        for seed in 0..8 {
            let writer = open(&device.crash(seed));
            let there = [1, 2, 3].map(|id| is_there(&writer, id));
            assert_eq!(there, [true, false, true], "{errors} errors, seed {seed}");
        }
    }
}
