//! The cost of a hit in memory, and the cost that threads which hit one object have of each other:
//! `cargo bench -p larder-cache --bench hits`.
//!
//! A hit is [`Cache::fresh`] with an answer that copies the head and a body of 1 KB, as the server does. The best of several
//! rounds is printed: what else runs on the machine makes rounds slower, never faster.

use larder_cache::cache::{Cache, Disk, Found, Glance, Joins, Settings};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, Storable, Times};
use larder_wire::RequestHead;
use larder_wire::ResponseHead;
use larder_wire::date::Stamp;
use larder_wire::parse::{self, HeadLimits, Parsed};
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Instant;

const NOW: Stamp = Stamp(1_800_000_000);
const HITS: u32 = 10_000;
const ROUNDS: usize = 300;
const BODY_BYTES: usize = 1_024;
const OBJECTS: usize = 64;

fn main() {
    let cache = Cache::new(Settings::default());
    let request = request();
    (0..OBJECTS).for_each(|number| store(&cache, &request, &key(number)));
    println!("threads   objects   short hit ns   hit with a reader ns");
    for threads in [1, 2, 4] {
        for objects in [1, OBJECTS] {
            let short =
                best(|| each_of(threads, |number, hit| short_hit(&cache, &request, &key_of(number, hit, objects))));
            let read =
                best(|| each_of(threads, |number, hit| read_hit(&cache, &request, &key_of(number, hit, objects))));
            println!("{threads:<9} {objects:<9} {short:>12.1} {read:>22.1}");
        }
    }
}

/// The best of the rounds, which are taken in turn with a pause in which the scheduler settles.
fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds a hit, as each of the threads sees it.
fn each_of(threads: usize, hit: impl Fn(usize, u32) + Sync) -> f64 {
    let start = Barrier::new(threads);
    let (hit, start) = (&hit, &start);
    let nanos: Vec<u128> = std::thread::scope(|scope| {
        let run = |number| {
            move || {
                start.wait();
                let begin = Instant::now();
                (0..HITS).for_each(|each| hit(number, each));
                begin.elapsed().as_nanos()
            }
        };
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    nanos.iter().sum::<u128>() as f64 / nanos.len() as f64 / f64::from(HITS)
}

thread_local! {
    static OUT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn short_hit(cache: &Cache, request: &RequestHead, key: &[u8]) {
    let asked = Asked::of(request);
    let glance = Glance { key, request, asked: &asked, now: NOW };
    let answered = OUT.with_borrow_mut(|out| {
        out.clear();
        cache.fresh(&glance, 64 * 1024, &mut |whole| {
            whole.stored.head.fields.write_to(out);
            whole.each(|bytes, part| out.extend_from_slice(&bytes[part]));
        })
    });
    assert!(black_box(answered).is_some());
}

fn read_hit(cache: &Arc<Cache>, request: &RequestHead, key: &[u8]) {
    match cache.find(key, request, &Asked::of(request), NOW, Joins::Yes, Disk::Ask) {
        Found::Fresh(hit) => drop(black_box(hit)),
        other => panic!("{}", other.as_str()),
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("http://a.example/path/to/object-{number:03}.bin").into_bytes()
}

/// Threads begin at objects far from one another.
fn key_of(thread: usize, hit: u32, objects: usize) -> [u8; 39] {
    let number = (hit as usize + thread * objects / 4) % objects;
    let mut key = *b"http://a.example/path/to/object-000.bin";
    for (place, unit) in [(32, 100), (33, 10), (34, 1)] {
        key[place] = b'0' + (number / unit % 10) as u8;
    }
    key
}

fn request() -> RequestHead {
    let text = b"GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n";
    match parse::request(text, &HeadLimits::default()) {
        Ok(Parsed::Complete { head, .. }) => head,
        other => panic!("{other:?}"),
    }
}

fn store(cache: &Arc<Cache>, request: &RequestHead, key: &[u8]) {
    let mut head = ResponseHead::new(200);
    for (name, value) in [
        ("Content-Type", "application/octet-stream"),
        ("Cache-Control", "max-age=3600"),
        ("ETag", "\"5f3c-61a9b1c2\""),
        ("Server", "origin"),
    ] {
        head.fields.push(name, value);
    }
    policy::dated(&mut head, NOW);
    let times = Times { requested: NOW, received: NOW };
    let Storable::Yes(terms) = policy::storable(request, &head, times, &cache.settings().policy) else { panic!() };
    let (_reader, mut writer) = cache.beside(key);
    writer.store(StoredHead::new(head, Some(terms), NOW), Some(BODY_BYTES as u64));
    writer.push(vec![7; BODY_BYTES].into());
    writer.finish(None);
}
