//! The log of one folder against a model: what was put is found, byte by byte, or it was evicted; nothing else is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use larder_cache::store::log::{self, Notice};
use larder_cache::store::medium::{Files, Medium};
use larder_cache::store::segment_reader::{Patience, ReadOutcome};
use larder_cache::store::segment_writer::{LogSettings, SegmentWriter};
use larder_cache::store::{BLOCK_BYTES, DiskHead, HeadToStore, ObjectId, OpenFault, Put, Putting, Refusal, Stats};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn settings(disk_bytes: u64) -> LogSettings {
    LogSettings { disk_bytes, free_bytes_min: 0, index_bytes_max: 64 * MIB, write_block_bytes: 128 << 10 }
}

fn open_with(folder: &Path, settings: LogSettings) -> (SegmentWriter, Vec<Notice>) {
    let files: Arc<dyn Medium> = Arc::new(Files::take(folder).expect("the folder is free"));
    let opened = log::open(files, settings, folder).expect("it opens");
    (opened.recovery.run(2, || ()), opened.notices)
}

fn open(folder: &Path, disk_bytes: u64) -> SegmentWriter {
    open_with(folder, settings(disk_bytes)).0
}

/// Bytes that only this object has.
fn law(id: u64, range: std::ops::Range<u64>) -> Bytes {
    range.map(|at| (id.wrapping_mul(31) ^ at ^ at >> 8) as u8).collect::<Vec<u8>>().into()
}

fn head(key: &str, variant: u64, id: u64, body: Option<u64>) -> HeadToStore {
    HeadToStore {
        key: Bytes::copy_from_slice(key.as_bytes()),
        variant,
        id: ObjectId(id),
        epoch: id % 7,
        length: body,
        tags: vec![id, 5],
        meta: law(id, 0..40),
        body: body.map(|length| vec![law(id, 0..length / 2), law(id, length / 2..length)]),
    }
}

fn put_head(writer: &mut SegmentWriter, head: HeadToStore) -> Put {
    let (putting, promise) = Putting::pair();
    writer.append_head(head, promise);
    let _ = writer.flush();
    putting.wait()
}

fn put_extent(writer: &mut SegmentWriter, key: &str, id: u64, range: std::ops::Range<u64>) -> Put {
    let (putting, promise) = Putting::pair();
    let hash = writer.reader().key_hash(key.as_bytes());
    writer.append_extent(ObjectId(id), hash, range.start, vec![law(id, range)], promise);
    let _ = writer.flush();
    putting.wait()
}

fn heads(writer: &SegmentWriter, key: &str) -> Vec<DiskHead> {
    match writer.reader().heads(key.as_bytes(), Patience::Waits) {
        ReadOutcome::Ended(heads) => heads,
        other => panic!("{other:?}"),
    }
}

fn pieces(writer: &SegmentWriter, id: u64, range: std::ops::Range<u64>) -> Vec<(u64, Bytes)> {
    match writer.reader().pieces(ObjectId(id), &range, Patience::Waits) {
        ReadOutcome::Ended(pieces) => pieces,
        other => panic!("{other:?}"),
    }
}

fn stats(writer: &SegmentWriter) -> Stats {
    let mut stats = Stats::default();
    writer.reader().add_to(&mut stats);
    stats
}

#[test]
fn a_head_with_its_body_is_found_before_and_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    assert_eq!(put_head(&mut writer, head("a", 0, 1, Some(1000))), Put::Stored);
    assert_eq!(put_head(&mut writer, head("a", 9, 2, Some(2000))), Put::Stored);
    for _ in 0..2 {
        let mut found = heads(&writer, "a");
        found.sort_by_key(|head| head.id);
        assert_eq!(found.iter().map(|head| (head.id.0, head.variant)).collect::<Vec<_>>(), [(1, 0), (2, 9)]);
        assert_eq!(found[1].body.as_ref().unwrap(), &law(2, 0..2000));
        assert_eq!((found[1].length, &found[1].tags[..]), (Some(2000), &[2, 5][..]));
        assert!(heads(&writer, "b").is_empty() && !writer.reader().may_have(b"b"));
        writer.close();
        drop(writer);
        writer = open(folder.path(), 4 * MIB);
    }
}

#[test]
fn a_start_without_a_close_reads_record_by_record() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    for id in 1..=100 {
        put_head(&mut writer, head(&format!("key-{id}"), 0, id, Some(500)));
    }
    drop(writer);
    let writer = open(folder.path(), 4 * MIB);
    for id in 1..=100 {
        assert_eq!(heads(&writer, &format!("key-{id}"))[0].body.as_ref().unwrap(), &law(id, 0..500));
    }
    assert_eq!(stats(&writer).heads, 100);
}

#[test]
fn a_newer_head_replaces_an_older_one_and_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 8 * MIB);
    let long = HeadToStore { length: Some(200_000), body: None, ..head("a", 0, 1, None) };
    put_head(&mut writer, long);
    put_extent(&mut writer, "a", 1, 0..200_000);
    assert_eq!(stats(&writer).extents, 4);
    let same = HeadToStore { length: Some(200_000), ..head("a", 0, 1, None) };
    put_head(&mut writer, same);
    assert!(writer.reader().has_block(ObjectId(1), 3) && !writer.reader().has_block(ObjectId(1), 4));
    put_head(&mut writer, head("a", 0, 2, Some(10)));
    assert_eq!((stats(&writer).heads, stats(&writer).extents), (1, 0));
    drop(writer);
    let writer = open(folder.path(), 8 * MIB);
    assert_eq!(heads(&writer, "a").iter().map(|head| head.id.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn pieces_of_a_body_leave_holes_and_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 8 * MIB);
    put_extent(&mut writer, "a", 1, 100..200);
    put_extent(&mut writer, "a", 1, BLOCK_BYTES - 10..BLOCK_BYTES + 10);
    let places = |writer: &SegmentWriter, range| {
        pieces(writer, 1, range).iter().map(|(at, b)| (*at, b.len())).collect::<Vec<_>>()
    };
    assert_eq!(places(&writer, 0..BLOCK_BYTES * 4), [(100, 100), (BLOCK_BYTES - 10, 10)]);
    assert_eq!(places(&writer, 150..151), [(100, 100)]);
    assert_eq!(places(&writer, 200..300), []);
    assert_eq!(places(&writer, BLOCK_BYTES..BLOCK_BYTES + 1), [(BLOCK_BYTES, 10)]);
    for at in 2..30 {
        put_extent(&mut writer, "a", 1, at * 100..at * 100 + 100);
    }
    let few = pieces(&writer, 1, 0..BLOCK_BYTES);
    assert!(few.len() <= 9, "{}", few.len());
    let mut seen = vec![false; BLOCK_BYTES as usize];
    for (at, bytes) in few {
        assert_eq!(bytes, law(1, at..at + bytes.len() as u64));
        seen[at as usize..at as usize + bytes.len()].fill(true);
    }
    assert!(seen[100..3000].iter().all(|seen| *seen) && !seen[3000]);
    put_extent(&mut writer, "a", 1, 0..BLOCK_BYTES);
    assert_eq!(places(&writer, 0..BLOCK_BYTES), [(0, BLOCK_BYTES as usize)]);
}

#[test]
fn of_pieces_that_begin_at_one_byte_the_longest_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 8 * MIB);
    let length = |writer: &SegmentWriter, block: u64| {
        let at = block * BLOCK_BYTES;
        pieces(writer, 1, at..at + BLOCK_BYTES).iter().map(|(_, bytes)| bytes.len() as u64).collect::<Vec<_>>()
    };
    put_head(&mut writer, HeadToStore { length: Some(4 * BLOCK_BYTES), body: None, ..head("a", 0, 1, None) });
    // Each on disk before the next, and both in one write.
    put_extent(&mut writer, "a", 1, 0..BLOCK_BYTES);
    put_extent(&mut writer, "a", 1, 0..1000);
    put_extent(&mut writer, "a", 1, BLOCK_BYTES..BLOCK_BYTES + 1000);
    put_extent(&mut writer, "a", 1, BLOCK_BYTES..2 * BLOCK_BYTES);
    let hash = writer.reader().key_hash(b"a");
    let at = 2 * BLOCK_BYTES;
    for end in [at + 2000, at + BLOCK_BYTES, at + 1000] {
        writer.append_extent(ObjectId(1), hash, at, vec![law(1, at..end)], Putting::pair().1);
    }
    let _ = writer.flush();
    for block in 0..3 {
        assert_eq!(length(&writer, block), [BLOCK_BYTES], "block {block}");
    }
    assert_eq!(stats(&writer).extents, 3);
    drop(writer);
    let writer = open(folder.path(), 8 * MIB);
    for block in 0..3 {
        assert_eq!(length(&writer, block), [BLOCK_BYTES], "block {block}, after a restart");
    }
}

#[test]
fn the_oldest_goes_and_what_is_used_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    put_head(&mut writer, HeadToStore { length: Some(70_000), body: None, ..head("long", 0, 5000, None) });
    put_extent(&mut writer, "long", 5000, 0..70_000);
    for id in 1..=4000 {
        assert_eq!(put_head(&mut writer, head(&format!("key-{id}"), 0, id, Some(2000))), Put::Stored);
        assert_eq!(heads(&writer, "key-1").len(), 1, "it is used again and again, so it stays ({id})");
        assert_eq!(pieces(&writer, 5000, 0..10).len(), 1, "so does a block in use, and with it its head");
        assert_eq!(heads(&writer, "long").len(), 1);
    }
    assert!(heads(&writer, "key-2").is_empty());
    assert_eq!(heads(&writer, "key-3999").len(), 1);
    let now = stats(&writer);
    assert!(now.segments_recycled > 10 && now.rewritten_bytes > 0 && now.bad_records == 0, "{now:?}");
    let size: u64 = std::fs::read_dir(folder.path()).unwrap().map(|each| each.unwrap().metadata().unwrap().len()).sum();
    assert!(size <= 4 * MIB, "{size}");
}

#[test]
fn what_was_killed_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    put_head(&mut writer, HeadToStore { length: Some(70_000), body: None, ..head("a", 0, 1, None) });
    put_extent(&mut writer, "a", 1, 0..70_000);
    put_head(&mut writer, head("a", 1, 2, Some(10)));
    put_head(&mut writer, head("b", 1, 3, Some(10)));
    assert_eq!(writer.kill(b"a", Some(ObjectId(9))).heads, 0);
    assert_eq!(writer.kill(b"a", Some(ObjectId(1))).heads, 1);
    assert_eq!((stats(&writer).heads, stats(&writer).extents), (2, 0));
    let killed = writer.kill(b"a", None);
    assert_eq!((killed.heads, killed.records.len()), (1, 1));
    assert!(heads(&writer, "a").is_empty() && !heads(&writer, "b").is_empty());
}

#[test]
fn a_changed_byte_is_noticed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    put_head(&mut writer, head("a", 0, 1, Some(1000)));
    writer.close();
    let path = folder.path().join("data-000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(heads(&writer, "a").is_empty());
    assert_eq!((stats(&writer).bad_records, stats(&writer).heads), (1, 0));
}

#[test]
fn what_is_too_large_for_a_record_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    let huge = HeadToStore { meta: vec![1; 200_000].into(), ..head("a", 0, 1, None) };
    assert_eq!(put_head(&mut writer, huge), Put::Refused(Refusal::TooLarge));
    assert_eq!(put_head(&mut writer, head("a", 0, 1, Some(10))), Put::Stored);
}

#[test]
fn a_smaller_budget_holds_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 8 * MIB);
    for id in 1..=3000 {
        put_head(&mut writer, head(&format!("key-{id}"), 0, id, Some(2000)));
    }
    writer.close();
    drop(writer);
    let size = |folder: &Path| -> u64 {
        std::fs::read_dir(folder).unwrap().map(|each| each.unwrap().metadata().unwrap().len()).sum()
    };
    for budget in [4 * MIB, 3 * MIB] {
        let mut writer = open(folder.path(), budget);
        assert!(size(folder.path()) <= budget);
        let here = (1..=3000).filter(|id| !heads(&writer, &format!("key-{id}")).is_empty()).count();
        assert!(here > 200, "{here}");
        for id in 4001..=5000 {
            assert_eq!(put_head(&mut writer, head(&format!("key-{id}"), 0, id, Some(2000))), Put::Stored);
        }
        assert!(size(folder.path()) <= budget);
    }
}

#[test]
fn a_budget_below_the_old_segments_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    put_head(&mut open(folder.path(), 256 * MIB), head("a", 0, 1, Some(10)));
    let (mut writer, notices) = open_with(folder.path(), settings(4 * MIB));
    assert_eq!(notices, [Notice::CutAnew]);
    assert!(heads(&writer, "a").is_empty());
    assert_eq!(put_head(&mut writer, head("a", 0, 1, Some(10))), Put::Stored);
}

#[test]
fn the_index_keeps_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 256 << 10;
    let (mut writer, _) = open_with(folder.path(), LogSettings { index_bytes_max: limit, ..settings(16 * MIB) });
    for id in 1..=20_000 {
        assert_eq!(put_head(&mut writer, head(&format!("key-{id}"), 0, id, Some(100))), Put::Stored);
        assert!(stats(&writer).index_bytes <= limit, "{id}: {:?}", stats(&writer));
    }
    assert_eq!(heads(&writer, "key-20000").len(), 1);
    assert!(stats(&writer).heads > 1000, "{:?}", stats(&writer));
}

#[test]
fn a_damaged_superblock_is_repaired_or_the_store_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), 4 * MIB);
    put_head(&mut writer, head("a", 0, 1, Some(10)));
    writer.close();
    drop(writer);
    std::fs::write(folder.path().join("larder.store"), b"?").unwrap();
    let (writer, notices) = open_with(folder.path(), settings(4 * MIB));
    assert_eq!((notices, heads(&writer, "a").len()), (vec![Notice::Repaired], 1));
    drop(writer);
    std::fs::remove_file(folder.path().join("larder.store")).unwrap();
    std::fs::write(folder.path().join("data-000"), [7; 1 << 20]).unwrap();
    let (mut writer, notices) = open_with(folder.path(), settings(4 * MIB));
    assert_eq!((notices, heads(&writer, "a").len()), (vec![Notice::SetAside("damaged-1".into())], 0));
    assert_eq!(put_head(&mut writer, head("a", 0, 1, Some(10))), Put::Stored);
    assert!(folder.path().join("damaged-1/data-000").exists());
}

#[test]
fn what_is_set_aside_counts_in_the_budget_and_takes_half_of_it_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let size = |folder: &Path| -> u64 {
        let files = std::fs::read_dir(folder).unwrap().map(|each| each.unwrap().metadata().unwrap());
        files.filter(|data| data.is_file()).map(|data| data.len()).sum()
    };
    for round in 1..=6 {
        let (mut writer, notices) = open_with(folder.path(), settings(4 * MIB));
        for id in 1..=1500 {
            put_head(&mut writer, head(&format!("key-{id}"), 0, id, Some(2000)));
        }
        let aside = (0..=round).map(|number| folder.path().join(format!("damaged-{number}")));
        let aside: u64 = aside.filter(|each| each.exists()).map(|each| size(&each)).sum();
        assert!(aside <= 2 * MIB, "{aside} bytes are set aside: {notices:?}");
        assert!(size(folder.path()) + aside <= 4 * MIB, "{round}: {notices:?}");
        assert_eq!(stats(&writer).aside_bytes, aside);
        let damage = |each: &Notice| matches!(each, Notice::SetAside(_) | Notice::Removed(_));
        assert!((round == 1) != notices.iter().any(damage), "{notices:?}");
        assert_eq!(heads(&writer, "key-1500").len(), 1);
        writer.close();
        drop(writer);
        std::fs::write(folder.path().join("larder.store"), b"?").unwrap();
        let data = std::fs::OpenOptions::new().write(true).open(folder.path().join("data-000")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&data, &[7; 4096], 0).unwrap();
        // So little is left of the store that it can be kept beside the new one, or so much that it can't.
        data.set_len(if round % 2 == 0 { MIB } else { 4 * MIB }).unwrap();
    }
}

#[test]
fn a_folder_of_the_future_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), 4 * MIB));
    let path = folder.path().join("larder.store");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let files = Arc::new(Files::take(folder.path()).unwrap());
    let fault = log::open(files, settings(4 * MIB), folder.path()).err().expect("refused");
    assert!(matches!(fault, OpenFault::FutureVersion { found: 9, known: 1, .. }));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[test]
fn ids_and_lives_are_never_given_twice_even_without_the_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..6 {
        if round % 2 == 1 {
            std::fs::remove_file(folder.path().join("larder.numbers")).unwrap();
        }
        let files = Arc::new(Files::take(folder.path()).unwrap());
        let recovery = log::open(files, settings(4 * MIB), folder.path()).unwrap().recovery;
        let first = recovery.numbers().id;
        assert!(first > last, "{first} {last}");
        last = first + 1000;
        let mut writer = recovery.run(1, || ());
        put_head(&mut writer, head("a", 0, last, Some(10)));
        assert_eq!(heads(&writer, "a")[0].id.0, last, "the newest wins");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u64, variant: u64, body: u64 },
    Extent { key: u64, from: u64, length: u64 },
    Kill { key: u64 },
    Use { key: u64 },
    Sync,
    Close,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0u64..25, 0u64..2, prop_oneof![0u64..3000, 20_000u64..65_536])
            .prop_map(|(key, variant, body)| Step::Put { key, variant, body }),
        10 => (0u64..25, 0u64..300_000, prop_oneof![1u64..500, 1000u64..150_000])
            .prop_map(|(key, from, length)| Step::Extent { key, from, length }),
        2 => (0u64..25).prop_map(|key| Step::Kill { key }),
        4 => (0u64..25).prop_map(|key| Step::Use { key }),
        1 => Just(Step::Sync),
        1 => Just(Step::Close),
        1 => Just(Step::Crash),
    ]
}

/// The records that a key should have: by variant the id and the length, and the id of its long object.
#[derive(Default)]
struct Model {
    small: HashMap<(u64, u64), (u64, u64)>,
    long: HashMap<u64, u64>,
}

/// The variant of the long object of a key.
const LONG: u64 = 77;

fn run(steps: Vec<Step>, disk_bytes: u64, evicts: bool) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = open(folder.path(), disk_bytes);
    let mut model = Model::default();
    for (number, step) in (1u64..).zip(steps) {
        let name = |key: u64| format!("key-{key}");
        match step {
            Step::Put { key, variant, body } => {
                assert_eq!(put_head(&mut writer, head(&name(key), variant, number, Some(body))), Put::Stored);
                model.small.insert((key, variant), (number, body));
            }
            Step::Extent { key, from, length } => {
                let id = *model.long.entry(key).or_insert_with(|| {
                    put_head(
                        &mut writer,
                        HeadToStore { length: Some(450_000), ..head(&name(key), LONG, number, None) },
                    );
                    number
                });
                assert_eq!(put_extent(&mut writer, &name(key), id, from..from + length), Put::Stored);
            }
            Step::Kill { key } => {
                writer.kill(name(key).as_bytes(), None);
                model.small.retain(|(other, _), _| *other != key);
                model.long.remove(&key);
                assert!(heads(&writer, &name(key)).is_empty());
            }
            Step::Use { key } => writer.reader().used(name(key).as_bytes()),
            Step::Sync => writer.sync().unwrap(),
            Step::Close => writer.close(),
            // Killed keys are remembered by the purge log, which is not part of this test.
            Step::Crash if model.small.is_empty() => {}
            Step::Crash => {
                drop(writer);
                writer = open(folder.path(), disk_bytes);
                for key in 0..25 {
                    let here = heads(&writer, &name(key));
                    let gone = here.iter().filter(|head| {
                        head.variant != LONG && !model.small.contains_key(&(key, head.variant))
                            || head.variant == LONG && !model.long.contains_key(&key)
                    });
                    gone.for_each(|head| drop(writer.kill(name(key).as_bytes(), Some(head.id))));
                }
            }
        }
        check(&writer, &model, evicts);
    }
}

fn check(writer: &SegmentWriter, model: &Model, evicts: bool) {
    for key in 0..25 {
        let found = heads(writer, &format!("key-{key}"));
        for head in &found {
            let id = head.id.0;
            if head.variant == LONG {
                assert_eq!(model.long.get(&key), Some(&id));
                (0..7).for_each(|block| check_block(writer, id, block));
            } else {
                assert_eq!(model.small.get(&(key, head.variant)), Some(&(id, head.length.unwrap())));
                assert_eq!(head.body.as_ref().unwrap(), &law(id, 0..head.length.unwrap()));
            }
        }
        let expected = model.small.keys().filter(|(other, _)| *other == key).count();
        let expected = expected + usize::from(model.long.contains_key(&key));
        assert!(evicts || found.len() == expected, "key {key}: {} of {expected}", found.len());
    }
    assert_eq!(stats(writer).bad_records, 0);
}

fn check_block(writer: &SegmentWriter, id: u64, block: u64) {
    for (at, bytes) in pieces(writer, id, block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES) {
        assert_eq!(bytes, law(id, at..at + bytes.len() as u64));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn with_room_for_all_nothing_is_lost(steps in prop::collection::vec(step(), 0..60)) {
        run(steps, 128 * MIB, false);
    }

    #[test]
    fn with_little_room_nothing_is_wrong(steps in prop::collection::vec(step(), 0..200)) {
        run(steps, 2 * MIB, true);
    }
}
