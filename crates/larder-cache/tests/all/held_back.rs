//! Fetches whose readers take the body at a limited pace.

use super::heads;

use heads::{request, response};
use larder_cache::cache::{Cache, Disk, Found, Joins, Settings};
use larder_cache::entry::{Reader, Room};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, Storable, Times};
use larder_wire::date::Stamp;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const NOW: Stamp = Stamp(1_800_000_000);
const KEY: &[u8] = b"http://a.example/x";
/// A fetch that is held back is so far ahead.
const HELD: usize = 256 * 1024;

fn head_of(cache: &Cache) -> StoredHead {
    let mut head = response("Cache-Control: max-age=60");
    policy::dated(&mut head, NOW);
    let times = Times { requested: NOW, received: NOW };
    match policy::storable(&request(""), &head, times, &cache.settings().policy) {
        Storable::Yes(terms) => StoredHead::new(head, Some(terms), NOW),
        Storable::No(why) => panic!("{why:?}"),
    }
}

fn find(cache: &Arc<Cache>) -> Found {
    let request = request("");
    cache.find(KEY, &request, &Asked::of(&request), NOW, Joins::Yes, Disk::Ask)
}

/// The number of bytes that a reader gets from here on, if there are any.
fn read(reader: &mut Reader, from: u64) -> Option<u64> {
    let mut out = Vec::new();
    match pin!(reader.read(from..u64::MAX, &mut out)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(read) => Some(read.unwrap()),
        Poll::Pending => None,
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_at_a_limited_pace_hold_their_fetch_back_and_others_do_not() {
    let cache = Cache::new(Settings::default());
    let Found::Missing(mut slow, mut writer, _) = find(&cache) else { panic!() };
    writer.store(head_of(&cache), Some(10 * HELD as u64));
    slow.hold_back();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut cx = Context::from_waker(&waker);
    let rings = || bell.0.swap(0, Ordering::Relaxed);
    writer.push(vec![0; HELD - 1].into());
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Go));
    writer.push(vec![0; 1].into());
    assert_eq!(writer.poll_room(&mut cx), Poll::Pending);
    // Its reader goes on, and so does the fetch.
    assert_eq!((read(&mut slow, 1), rings()), (Some(HELD as u64 - 1), 1));
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Go));
    writer.push(vec![0; HELD].into());
    assert_eq!(writer.poll_room(&mut cx), Poll::Pending);
    // A client without a limit wants it too: nobody waits for the slow one.
    let Found::Fresh(quick) = find(&cache) else { panic!() };
    assert_eq!(rings(), 1);
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Go));
    drop(quick);
    assert_eq!(writer.poll_room(&mut cx), Poll::Pending);
    // Of two that are limited the faster one counts.
    let Found::Fresh(mut other) = find(&cache) else { panic!() };
    other.reader.hold_back();
    assert_eq!(writer.poll_room(&mut cx), Poll::Pending);
    rings();
    assert!(read(&mut other.reader, HELD as u64 + 1).is_some() && rings() > 0);
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Go));
    // Nobody is left who could hold it back, so it ends.
    (0..4).for_each(|_| writer.push(vec![0; HELD].into()));
    assert_eq!(writer.poll_room(&mut cx), Poll::Pending);
    drop((slow, other));
    assert!(rings() > 0);
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Gone));
}
