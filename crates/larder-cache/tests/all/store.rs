//! The store at work: threads, queues, purges and several folders, over real folders.

use std::collections::HashSet;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use larder_cache::store::rules::{Force, Scope, Verdict};
use larder_cache::store::{Admission, HeadToStore, NotDurable, ObjectId, OpenFault, Put, Refusal, Settings, Store};

const MIB: u64 = 1 << 20;

fn settings() -> Settings {
    Settings {
        disk_bytes: 16 * MIB,
        free_bytes_min: 0,
        index_bytes_max: 16 * MIB,
        write_block_bytes: 256 << 10,
        queue_bytes_max: 4 * MIB,
        sync_seconds: 1,
        readers: 2,
        admission: Admission::All,
    }
}

fn open(folders: &[&tempfile::TempDir], settings: &Settings) -> Arc<Store> {
    let paths: Vec<PathBuf> = folders.iter().map(|each| each.path().to_path_buf()).collect();
    Store::open(&paths, settings).expect("it opens")
}

fn head(store: &Store, key: &str, body: &str) -> HeadToStore {
    HeadToStore {
        key: Bytes::copy_from_slice(key.as_bytes()),
        variant: 0,
        id: store.new_id(),
        epoch: store.current_epoch(),
        length: Some(body.len() as u64),
        tags: vec![key.len() as u64],
        meta: Bytes::from_static(b"meta"),
        body: Some(vec![Bytes::copy_from_slice(body.as_bytes())]),
    }
}

fn put(store: &Store, key: &str, body: &str) {
    assert_eq!(store.put_head(head(store, key, body)).wait(), Put::Stored);
}

fn body(store: &Arc<Store>, key: &str) -> Option<String> {
    let heads = store.heads(key.as_bytes()).wait();
    assert!(heads.len() <= 1);
    heads.first().map(|head| String::from_utf8_lossy(head.body.as_ref().unwrap()).into_owned())
}

#[test]
fn what_is_put_is_there_before_and_after_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut last_id = ObjectId(0);
    for round in 0..3 {
        let store = open(&[&folder], &settings());
        assert!(store.new_id() > last_id);
        for number in 0..50 {
            let before = (round > 0).then(|| format!("body {number} of {}", round - 1));
            assert_eq!(body(&store, &format!("key {number}")), before);
        }
        for number in 0..50 {
            put(&store, &format!("key {number}"), &format!("body {number} of {round}"));
        }
        assert!(store.may_have(b"key 1") && !store.may_have(b"key 51"));
        let mut seen = HashSet::new();
        store.for_each_head(|head| {
            seen.insert(head.key.clone());
            if seen.len() < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        assert_eq!(seen.len(), 20);
        assert_eq!(store.stats().heads, 50);
        last_id = store.new_id();
        store.sync().wait();
        store.close();
        assert_eq!(store.put_head(head(&store, "late", "")).wait(), Put::Refused(Refusal::Closed));
    }
}

#[test]
fn extents_are_read_by_block() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&[&folder], &settings());
    let id = store.new_id();
    let long: Bytes = (0..300_000u32).map(|at| (at >> 3) as u8).collect::<Vec<u8>>().into();
    let pieces = vec![long.slice(..1000), long.slice(1000..200_000)];
    assert_eq!(store.put_extent(id, b"long", 0, pieces).wait(), Put::Stored);
    assert_eq!(store.put_extent(id, b"long", 200_000, vec![long.slice(200_000..)]).wait(), Put::Stored);
    let (mut at, mut back) = (0u64, Vec::new());
    while at < 300_000 {
        for (start, bytes) in store.read(id, b"long", at..300_000).wait() {
            assert!(start <= at, "no hole");
            back.extend_from_slice(&bytes[(at - start) as usize..]);
            at = start + bytes.len() as u64;
        }
    }
    assert_eq!(back, long);
    assert!(store.has_block(id, b"long", 4) && !store.has_block(id, b"long", 5));
    assert!(store.read(store.new_id(), b"long", 0..10).wait().is_empty());
}

#[test]
fn what_was_removed_stays_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&[&folder], &settings());
    for key in ["one", "two", "a/1", "a/2", "tagged", "soft"] {
        put(&store, key, "body");
    }
    // An older copy must not come back in place of the one that goes.
    put(&store, "one", "newer");
    assert_eq!(store.forget(b"one", None).wait(), Ok(1));
    assert_eq!(store.forget(b"one", None).wait(), Ok(0));
    assert_eq!(store.forget(b"three", Some(ObjectId(1))).wait(), Ok(0));
    store.invalidate([Scope::Prefix(b"a/"[..].into())], Force::Hard).wait().unwrap();
    store.invalidate([Scope::Tag(6)], Force::Hard).wait().unwrap();
    store.invalidate([Scope::Prefix(b"soft"[..].into())], Force::Soft).wait().unwrap();
    put(&store, "a/2", "again");
    let check = |store: &Arc<Store>| {
        let found = ["one", "two", "a/1", "a/2", "tagged"].map(|key| body(store, key));
        let expected = [None, Some("body"), None, Some("again"), None];
        assert_eq!(found, expected.map(|body| body.map(str::to_owned)));
        assert_eq!(store.heads(b"soft").wait()[0].verdict, Verdict::Stale);
        assert_eq!(store.heads(b"two").wait()[0].verdict, Verdict::Valid);
    };
    check(&store);
    drop(store);
    let store = open(&[&folder], &settings());
    check(&store);
    store.invalidate([Scope::All], Force::Hard).wait().unwrap();
    assert_eq!(body(&store, "two"), None);
    put(&store, "two", "young");
    drop(store);
    assert_eq!(body(&open(&[&folder], &settings()), "two").as_deref(), Some("young"));
}

#[test]
fn a_folder_has_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&[&folder], &settings());
    let second = Store::open(&[folder.path().to_path_buf()], &settings());
    assert!(matches!(second, Err(OpenFault::Busy(place)) if place == folder.path()));
    drop(store);
    open(&[&folder], &settings());
    assert!(matches!(Store::open(&[], &settings()), Err(OpenFault::Settings(_))));
    let nowhere = Store::open(&[PathBuf::from("/dev/null/store")], &settings());
    assert!(matches!(nowhere, Err(OpenFault::Io(..))));
}

#[test]
fn several_folders_share_the_objects() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let all: Vec<_> = folders.iter().collect();
    for _ in 0..2 {
        let store = open(&all, &settings());
        (0..300).for_each(|number| put(&store, &format!("key {number}"), "body"));
        assert_eq!((store.stats().heads, store.stats().folders_healthy), (300, 3));
        assert_eq!(store.forget(b"key 7", None).wait(), Ok(1));
        assert_eq!(body(&store, "key 7"), None);
    }
    for folder in &folders {
        let alone = open(&[folder], &settings());
        let heads = {
            alone.for_each_head(|_| ControlFlow::Continue(()));
            alone.stats().heads
        };
        assert!((50..150).contains(&heads), "{heads}");
    }
}

#[test]
fn a_full_queue_refuses_and_tells_when_it_has_room() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&[&folder], &Settings { queue_bytes_max: 200_000, ..settings() });
    let large = Bytes::from(vec![7; 60_000]);
    let id = store.new_id();
    let puttings: Vec<_> =
        (0..200).map(|number| store.put_extent(id, b"key", number * 65_536, vec![large.clone()])).collect();
    let outcomes: Vec<Put> = puttings.into_iter().map(|putting| putting.wait()).collect();
    let stored = outcomes.iter().filter(|outcome| **outcome == Put::Stored).count();
    assert!(stored >= 1, "the first always has room");
    assert!(outcomes.iter().all(|each| matches!(each, Put::Stored | Put::Refused(Refusal::QueueFull))));
    assert_eq!(store.stats().refused_queue, 200 - stored as u64);
    // An answer may come a moment before the room that its record took is given back.
    store.sync().wait();
    let cx = Context::from_waker(Waker::noop());
    assert!(store.queue_room(&cx).is_ready());
    // With waiting for room nothing is refused.
    for number in 200..400 {
        block_on(|cx| store.queue_room(cx));
        drop(store.put_extent(id, b"key", number * 65_536, vec![large.clone()]));
    }
    assert_eq!(store.stats().refused_queue, 200 - stored as u64);
    store.sync().wait();
    assert_eq!(store.stats().queue_bytes, 0);
}

fn block_on(mut poll: impl FnMut(&Context<'_>) -> Poll<()>) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(poll_fn(|cx: &mut Context<'_>| poll(cx)));
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park_timeout(std::time::Duration::from_secs(5));
    }
}

#[test]
fn a_store_that_is_closed_removes_nothing_durably() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&[&folder], &settings());
    put(&store, "one", "body");
    store.close();
    assert_eq!(store.forget(b"one", None).wait(), Err(NotDurable));
    assert_eq!(body(&store, "one").as_deref(), Some("body"), "what is cached is still read");
}

#[test]
fn what_is_seen_once_is_not_admitted() {
    let folder = tempfile::tempdir().unwrap();
    for (admission, expected) in
        [(Admission::All, [true, true]), (Admission::SeenTwice, [false, true]), (Admission::Auto, [true, true])]
    {
        let store = open(&[&folder], &Settings { admission, ..settings() });
        assert_eq!([store.admits(77), store.admits(77)], expected, "{admission:?}");
    }
}

#[test]
fn many_threads_read_while_everything_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&[&folder], &Settings { disk_bytes: 4 * MIB, ..settings() });
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..6000 {
                    let key = format!("key {}", round % 40);
                    for head in store.heads(key.as_bytes()).wait() {
                        assert_eq!(head.key, key.as_bytes());
                        let body = head.body.unwrap();
                        assert!(
                            body.chunks(8).all(|chunk| chunk == head.id.0.to_le_bytes()),
                            "bytes of another object"
                        );
                    }
                }
            });
        }
        for round in 0..6000u64 {
            block_on(|cx| store.queue_room(cx));
            let id = store.new_id();
            let body = Bytes::from(id.0.to_le_bytes().repeat(300));
            let head = head(&store, &format!("key {}", round % 40), "");
            drop(store.put_head(HeadToStore { id, body: Some(vec![body]), ..head }));
        }
    });
    let stats = store.stats();
    assert!(stats.segments_recycled > 0 && stats.bad_records == 0, "{stats:?}");
}
