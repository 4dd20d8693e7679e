//! Purges that are written while the log of them is written anew: whatever was acknowledged holds after a power cut,
//! also where a later rule that says the same never reached the disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_cache::store::log;
use larder_cache::store::purges::{self, Purge};
use larder_cache::store::rules::{Force, RULES_MAX, Rule, Scope};
use larder_cache::store::segment_reader::{Patience, ReadOutcome};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::sim::SimDevice;
use larder_cache::store::{HeadToStore, ObjectId, Put, Putting};

const MIB: u64 = 1 << 20;
const KEY: &[u8] = b"http://a.example/x";
const TAG: u64 = 7;

fn open(device: &SimDevice) -> SegmentWriter {
    let settings =
        LogSettings { disk_bytes: 2 * MIB, free_bytes_min: 0, index_bytes_max: MIB, write_block_bytes: 64 << 10 };
    let opened = log::open(Arc::new(device.clone()), settings, Path::new("device")).expect("it opens");
    opened.recovery.run(1, || ())
}

/// A head that is older than any rule, on disk.
fn put_old_head(writer: &mut SegmentWriter) {
    let (putting, promise) = Putting::pair();
    let head = HeadToStore {
        key: Bytes::from_static(KEY),
        variant: 0,
        id: ObjectId(1),
        epoch: 0,
        length: Some(3),
        tags: vec![TAG],
        meta: Bytes::new(),
        body: Some(vec![Bytes::from_static(b"abc")]),
    };
    writer.append_head(head, promise);
    writer.sync().expect("the device is sound");
    assert_eq!(putting.wait(), Put::Stored);
}

fn rule(number: u64, scope: Scope) -> Rule {
    Rule { number, scope, force: Force::Hard }
}

/// As a store does it: in force first, then on disk.
fn invalidate(writer: &mut SegmentWriter, rules: &[Rule]) -> io::Result<()> {
    rules.iter().for_each(|rule| writer.reader().rules.add(rule));
    writer.purge(&rules.iter().cloned().map(Purge::Rule).collect::<Vec<_>>())
}

/// So many rules of one other scope that the log is written anew.
fn have_log_written_anew(writer: &mut SegmentWriter, device: &SimDevice, first: u64) {
    let before = device.bytes(purges::NAME).len();
    for number in first..first + 400 {
        invalidate(writer, &[rule(number, Scope::Tag(1000))]).expect("the device is sound");
    }
    let grown = device.bytes(purges::NAME).len() - before.min(device.bytes(purges::NAME).len());
    assert!(grown < 400 * 40, "it was not written anew");
}

fn is_there_after_a_power_cut(device: &SimDevice, seed: u64) -> bool {
    let writer = open(&device.crash(seed));
    let ReadOutcome::Ended(heads) = writer.reader().heads(KEY, Patience::Waits) else { panic!("it recovered") };
    !heads.is_empty()
}

#[test]
fn a_rule_that_never_reached_the_disk_takes_no_other_from_it() {
    for errors in 0..4 {
        let device = SimDevice::new(64 * MIB);
        let mut writer = open(&device);
        put_old_head(&mut writer);
        invalidate(&mut writer, &[rule(1, Scope::Tag(TAG))]).expect("this one is acknowledged");
        match errors {
            // In force, and still in the queue of the writer.
            0 => writer.reader().rules.add(&rule(2, Scope::Tag(TAG))),
            _ => {
                device.fail_after(0, io::ErrorKind::Other, errors);
                invalidate(&mut writer, &[rule(2, Scope::Tag(TAG))]).expect_err("the device fails");
                device.fail_after(0, io::ErrorKind::Other, 0);
            }
        }
        have_log_written_anew(&mut writer, &device, 3);
        for seed in 0..4 {
            assert!(!is_there_after_a_power_cut(&device, seed), "{errors} errors, seed {seed}");
        }
    }
}

#[test]
fn what_is_folded_in_memory_takes_nothing_from_the_disk() {
    let device = SimDevice::new(64 * MIB);
    let mut writer = open(&device);
    put_old_head(&mut writer);
    invalidate(&mut writer, &[rule(1, Scope::Tag(TAG))]).expect("the device is sound");
    let half = RULES_MAX as u64 / 2;
    let prefix = |number: u64| match number {
        // Shorter than an origin: in memory it becomes a rule for everything when it is folded.
        _ if number == half => rule(number, Scope::Prefix(b"ftp".as_slice().into())),
        _ => rule(number, Scope::Prefix(format!("http://b.example/{number}/").into_bytes().into())),
    };
    let prefixes: Vec<Rule> = (2..RULES_MAX as u64 + 100).map(prefix).collect();
    // Of this size the last of them has the log written anew.
    prefixes.chunks(10_000).for_each(|some| invalidate(&mut writer, some).expect("the device is sound"));
    assert!(writer.reader().rules.len() < RULES_MAX, "they were folded");
    assert!(!is_there_after_a_power_cut(&device, 1));
}
