//! The cache as a whole: what requests may have, who fetches, what stays within the budget.

use super::heads;

use bytes::Bytes;
use heads::{request, response};
use larder_cache::cache::{Absent, Cache, Disk, Fill, Found, Glance, Joins, Settings, Writer};
use larder_cache::entry::{Arrival, Failure, FailureKind, Gap, Reader, ReuseReason, Room, Stop};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Asked, NotStored, Storable, Times};
use larder_cache::store::rules::{Force, Scope};
use larder_cache::store::{Admission, Settings as DiskSettings, Store};
use larder_cache::tags;
use larder_wire::RequestHead;
use larder_wire::date::Stamp;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

const NOW: Stamp = Stamp(1_800_000_000);
const KEY: &[u8] = b"http://a.example/x";

fn head_of(cache: &Cache, request: &RequestHead, fields: &str) -> StoredHead {
    let mut head = response(fields);
    policy::dated(&mut head, NOW);
    let times = Times { requested: NOW, received: NOW };
    match policy::storable(request, &head, times, &cache.settings().policy) {
        Storable::Yes(terms) => {
            StoredHead::new(policy::head_to_store(&head, &cache.settings().policy), Some(terms), NOW)
        }
        Storable::No(_) => StoredHead::new(head, None, NOW),
    }
}

fn find(cache: &Arc<Cache>, key: &[u8], request: &RequestHead, at: Stamp) -> Found {
    cache.find(key, request, &Asked::of(request), at, Joins::Yes, Disk::Ask)
}

fn miss(cache: &Arc<Cache>, key: &[u8]) -> (Reader, Writer) {
    match find(cache, key, &request(""), NOW) {
        Found::Missing(reader, writer, _) => (reader, writer),
        other => panic!("{}", other.as_str()),
    }
}

fn store(cache: &Arc<Cache>, key: &[u8], fields: &str, body: Vec<u8>) {
    let (_reader, mut writer) = miss(cache, key);
    writer.store(head_of(cache, &request(""), fields), Some(body.len() as u64));
    writer.push(body.into());
    writer.finish(None);
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn read(reader: &mut Reader, from: u64) -> Option<Result<Vec<u8>, Stop>> {
    let mut out = Vec::new();
    now(reader.read(from..u64::MAX, &mut out)).map(|read| read.map(|_| out.concat()))
}

#[test]
fn a_stored_answer_is_found_and_grows_stale() {
    let cache = Cache::new(Settings::default());
    store(&cache, KEY, "Cache-Control: max-age=60\nETag: \"v\"", b"hello".to_vec());
    let Found::Fresh(mut hit) = find(&cache, KEY, &request(""), NOW.plus(59)) else { panic!() };
    assert!(!hit.filling);
    assert_eq!(read(&mut hit.reader, 0), Some(Ok(b"hello".to_vec())));
    assert!(matches!(find(&cache, KEY, &request(""), NOW.plus(61)), Found::Validate(..)));
    assert!(matches!(find(&cache, b"http://a.example/y", &request(""), NOW), Found::Missing(_, _, Absent::Key)));
}

#[test]
fn one_asks_and_the_others_stream_along() {
    let cache = Cache::new(Settings::default());
    let (mut leader, mut writer) = miss(&cache, KEY);
    let Found::InFlight(mut follower) = find(&cache, KEY, &request(""), NOW) else { panic!() };
    assert!(now(follower.arrival()).is_none());
    writer.store(head_of(&cache, &request(""), "Cache-Control: max-age=60"), None);
    assert!(matches!(now(leader.arrival()), Some(Arrival::Head(_))));
    assert!(matches!(now(follower.arrival()), Some(Arrival::Head(_))));
    writer.push(Bytes::from_static(b"first"));
    assert_eq!(read(&mut follower, 0), Some(Ok(b"first".to_vec())));
    assert!(read(&mut follower, 5).is_none());
    let Found::Fresh(mut late) = find(&cache, KEY, &request(""), NOW) else { panic!() };
    assert!(late.filling);
    writer.push(Bytes::from_static(b" second"));
    writer.finish(None);
    assert_eq!(read(&mut follower, 5), Some(Ok(b" second".to_vec())));
    assert_eq!(read(&mut late.reader, 0), Some(Ok(b"first second".to_vec())));
    assert_eq!(late.reader.length(), Some(12));
}

#[test]
fn an_answer_for_one_sets_all_followers_free_and_is_remembered() {
    let cache = Cache::new(Settings::default());
    let (mut leader, mut writer) = miss(&cache, KEY);
    let Found::InFlight(mut follower) = find(&cache, KEY, &request(""), NOW) else { panic!() };
    cache.mark_pass(KEY, NOW, NotStored::NoStore);
    writer.pass(head_of(&cache, &request(""), "Cache-Control: no-store"), None);
    assert!(matches!(now(leader.arrival()), Some(Arrival::Head(_))));
    assert!(matches!(now(follower.arrival()), Some(Arrival::Alone)));
    let Found::Pass(..) = find(&cache, KEY, &request(""), NOW) else { panic!("not remembered") };
    let later = NOW.plus(cache.settings().pass_seconds + 1);
    assert!(matches!(find(&cache, KEY, &request(""), later), Found::Missing(..)));
}

#[test]
fn a_writer_that_is_dropped_fails_its_readers() {
    let cache = Cache::new(Settings::default());
    let (mut leader, mut writer) = miss(&cache, KEY);
    writer.store(head_of(&cache, &request(""), "Cache-Control: max-age=60"), Some(100));
    writer.push(Bytes::from_static(b"part"));
    drop(writer);
    assert_eq!(read(&mut leader, 0), Some(Ok(b"part".to_vec())));
    assert!(matches!(read(&mut leader, 4), Some(Err(_))));
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)), "a part is not an answer");
}

#[test]
fn a_window_holds_the_writer_at_the_pace_of_the_slowest() {
    let cache = Cache::new(Settings { window_bytes: 10, ..Settings::default() });
    let (mut reader, mut writer) = miss(&cache, KEY);
    writer.pass(head_of(&cache, &request(""), "Cache-Control: no-store"), None);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(Arc::clone(&bell));
    let mut cx = Context::from_waker(&waker);
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Go));
    writer.push(Bytes::from_static(b"0123456789"));
    assert_eq!(writer.poll_room(&mut cx), Poll::Pending);
    assert_eq!(read(&mut reader, 0), Some(Ok(b"0123456789".to_vec())));
    assert_eq!(bell.0.load(Ordering::Relaxed), 0, "what was handed out is not taken yet");
    assert!(read(&mut reader, 10).is_none());
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Go));
    for round in 0..1000u64 {
        writer.push(Bytes::from_static(b"abcdefghij"));
        assert_eq!(read(&mut reader, 10 + round * 10), Some(Ok(b"abcdefghij".to_vec())));
        assert!(cache.stats().memory_bytes < 3000, "{}", cache.stats().memory_bytes);
    }
    drop(reader);
    assert_eq!(writer.poll_room(&mut cx), Poll::Ready(Room::Gone));
}

#[test]
fn an_abandoned_fetch_goes_on_by_the_rule() {
    let cache = Cache::new(Settings { abandoned_bytes_max: 10, ..Settings::default() });
    let cases = [
        (Some(10), 0, Room::Go),
        (Some(100), 0, Room::Gone),
        (Some(100), 60, Room::Go),
        (None, 5, Room::Go),
        (None, 50, Room::Gone),
    ];
    for (at, (length, have, wanted)) in cases.into_iter().enumerate() {
        let (reader, mut writer) = miss(&cache, format!("http://a.example/{at}").as_bytes());
        writer.store(head_of(&cache, &request(""), "Cache-Control: max-age=60"), length);
        writer.push(vec![0; have].into());
        drop(reader);
        assert_eq!(now(writer.room()), Some(wanted), "{length:?} {have}");
    }
}

#[test]
fn variants_do_not_mix() {
    let cache = Cache::new(Settings::default());
    let (en, de) = (request("Accept-Language: en\r\n"), request("Accept-Language: de\r\n"));
    for (request, body) in [(&en, "hello"), (&de, "hallo")] {
        let (_reader, mut writer) = match find(&cache, KEY, request, NOW) {
            Found::Missing(reader, writer, _) => (reader, writer),
            other => panic!("{}", other.as_str()),
        };
        writer.store(head_of(&cache, request, "Cache-Control: max-age=60\nVary: Accept-Language"), None);
        writer.push(Bytes::copy_from_slice(body.as_bytes()));
        writer.finish(None);
    }
    for (request, body) in [(&en, "hello"), (&de, "hallo")] {
        let Found::Fresh(mut hit) = find(&cache, KEY, request, NOW) else { panic!() };
        assert_eq!(read(&mut hit.reader, 0), Some(Ok(body.as_bytes().to_vec())));
    }
    let other = request("Accept-Language: fr\r\n");
    assert!(matches!(find(&cache, KEY, &other, NOW), Found::Missing(_, _, Absent::Variant)));
}

#[test]
fn what_is_invalidated_while_it_is_fetched_is_not_stored() {
    let cache = Cache::new(Settings::default());
    let (_reader, mut writer) = miss(&cache, KEY);
    assert_eq!(cache.invalidate(KEY), 0);
    writer.store(head_of(&cache, &request(""), "Cache-Control: max-age=60"), None);
    writer.push(Bytes::from_static(b"old"));
    writer.finish(None);
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)));
}

#[test]
fn a_validation_answers_its_followers() {
    let cache = Cache::new(Settings::default());
    store(&cache, KEY, "Cache-Control: max-age=0\nETag: \"v\"", b"body".to_vec());
    let Found::Validate(_, _, mut leader, writer) = find(&cache, KEY, &request(""), NOW.plus(1)) else { panic!() };
    let Found::InFlight(mut follower) = find(&cache, KEY, &request(""), NOW.plus(1)) else { panic!() };
    let (entry, _) = writer.candidates()[0].clone();
    writer.redirect(&entry, ReuseReason::Unchanged);
    for reader in [&mut leader, &mut follower] {
        let Some(Arrival::Use(answer, ReuseReason::Unchanged, None)) = now(reader.arrival()) else { panic!() };
        assert!(Arc::ptr_eq(&answer, &entry));
    }
}

#[test]
fn the_budget_holds_at_every_step_and_all_is_given_back() {
    let budget = 200_000;
    let cache = Cache::new(Settings { memory_bytes: budget, object_bytes_max: 50_000, ..Settings::default() });
    for round in 0..500u64 {
        let length = (round * 7919 % 20_000) as usize;
        store(&cache, format!("http://a.example/{round}").as_bytes(), "Cache-Control: max-age=60", vec![1; length]);
        let used = cache.stats().memory_bytes;
        assert!(used <= budget, "round {round}: {used}");
    }
    assert!(cache.stats().evictions > 0);
    for round in 0..500u64 {
        cache.invalidate(format!("http://a.example/{round}").as_bytes());
    }
    assert_eq!((cache.stats().memory_bytes, cache.stats().objects), (0, 0));
}

#[test]
fn a_body_that_finds_no_room_passes_through() {
    let cache = Cache::new(Settings {
        memory_bytes: 100_000,
        object_bytes_max: 90_000,
        window_bytes: 8_000,
        ..Settings::default()
    });
    let (mut reader, mut writer) = miss(&cache, KEY);
    writer.store(head_of(&cache, &request(""), "Cache-Control: max-age=60"), None);
    let mut got = 0;
    for _ in 0..100 {
        assert_eq!(now(writer.room()), Some(Room::Go));
        writer.push(vec![7; 4_000].into());
        got += read(&mut reader, got).unwrap().unwrap().len() as u64;
        assert!(cache.stats().memory_bytes < 110_000, "{}", cache.stats().memory_bytes);
    }
    writer.finish(None);
    assert_eq!(got, 400_000);
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)));
}

#[test]
fn what_a_client_still_reads_is_not_counted_as_free() {
    let cache = Cache::new(Settings { memory_bytes: 100_000, object_bytes_max: 60_000, ..Settings::default() });
    store(&cache, b"http://a.example/held", "Cache-Control: max-age=60", vec![1; 50_000]);
    let Found::Fresh(held) = find(&cache, b"http://a.example/held", &request(""), NOW) else { panic!() };
    for round in 0..20 {
        store(&cache, format!("http://a.example/{round}").as_bytes(), "Cache-Control: max-age=60", vec![2; 20_000]);
        assert!(cache.stats().memory_bytes <= 100_000, "{}", cache.stats().memory_bytes);
    }
    drop(held);
}

const STRONG: &str = "Cache-Control: max-age=60\nETag: \"v1\"";

fn law(range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|at| (at.wrapping_mul(0x9e37_79b9) >> 7) as u8).collect()
}

fn part(cache: &Arc<Cache>, range: std::ops::Range<u64>, length: u64) -> Reader {
    let (reader, writer) = miss(cache, KEY);
    let head = head_of(cache, &request(""), STRONG);
    let mut fill = writer.store_part(head, &range, length).expect("a part of a strong answer begins a fill");
    fill.push(cache, law(range).into());
    reader
}

fn fresh(cache: &Arc<Cache>) -> Reader {
    match find(cache, KEY, &request(""), NOW) {
        Found::Fresh(hit) => hit.reader,
        other => panic!("{}", other.as_str()),
    }
}

#[test]
fn a_part_is_kept_and_its_holes_are_named() {
    let cache = Cache::new(Settings::default());
    drop(part(&cache, 100..200, 1000));
    let mut reader = fresh(&cache);
    assert_eq!(reader.length(), Some(1000));
    assert_eq!(read(&mut reader, 100), Some(Ok(law(100..200))));
    assert_eq!(read(&mut reader, 0), Some(Err(Stop::Hole(0..100))));
    assert_eq!(read(&mut reader, 200), Some(Err(Stop::Hole(200..1000))));
    assert_eq!(read(&mut reader, 1000), Some(Ok(Vec::new())));
    assert_eq!(now(reader.gap(120..130)), Some(Gap::None));
    assert_eq!(now(reader.gap(150..300)), Some(Gap::Hole(200..300)));
}

#[test]
fn of_two_who_need_a_hole_one_fills_it_and_the_other_waits_until_it_is_certain() {
    let cache = Cache::new(Settings::default());
    drop(part(&cache, 0..100, 1000));
    let (mut one, mut two) = (fresh(&cache), fresh(&cache));
    let mut fill = Fill::begin(one.entry(), &(100..300)).unwrap();
    assert!(Fill::begin(two.entry(), &(200..400)).is_none(), "overlaps");
    assert_eq!(now(two.gap(150..200)), None, "not confirmed yet");
    assert!(!fill.confirm(&(120..300)), "another place");
    assert!(fill.confirm(&(100..250)));
    assert_eq!(now(two.gap(150..200)), Some(Gap::None));
    assert_eq!(now(two.gap(260..300)), Some(Gap::Hole(260..300)), "the origin sends less than was asked");
    assert_eq!(read(&mut two, 100), None);
    fill.push(&cache, law(100..180).into());
    assert_eq!(read(&mut two, 100), Some(Ok(law(100..180))));
    fill.push(&cache, law(180..260).into());
    drop(fill);
    assert_eq!(read(&mut one, 170), Some(Ok(law(170..250))), "no byte past the confirmed part");
}

#[test]
fn a_fill_that_breaks_off_fails_who_waits_for_the_rest_and_nobody_else() {
    let cache = Cache::new(Settings::default());
    drop(part(&cache, 0..100, 1000));
    let (mut here, mut there) = (fresh(&cache), fresh(&cache));
    let mut fill = Fill::begin(here.entry(), &(100..300)).unwrap();
    fill.confirm(&(100..300));
    assert_eq!(read(&mut there, 200), None);
    fill.push(&cache, law(100..150).into());
    fill.fail(Failure { status: 502, word: "reset", detail: "x".into(), kind: FailureKind::Answer });
    assert!(matches!(read(&mut there, 200), Some(Err(Stop::Failed(failure))) if failure.word == "reset"));
    assert_eq!(read(&mut here, 0), Some(Ok(law(0..150))));
    assert_eq!(read(&mut here, 150), Some(Err(Stop::Hole(150..1000))), "it may be asked for again");
}

#[test]
fn a_broken_stream_leaves_its_part_when_the_rest_can_be_asked_for() {
    let cache = Cache::new(Settings::default());
    let (mut waiting, mut writer) = miss(&cache, KEY);
    writer.store(head_of(&cache, &request(""), STRONG), Some(1000));
    writer.push(law(0..600).into());
    writer.fail(Failure { status: 502, word: "reset", detail: "x".into(), kind: FailureKind::Answer });
    assert_eq!(read(&mut waiting, 0), Some(Ok(law(0..600))));
    assert!(matches!(read(&mut waiting, 600), Some(Err(Stop::Failed(_)))), "who was there when it broke is told");
    let mut later = fresh(&cache);
    assert_eq!(read(&mut later, 600), Some(Err(Stop::Hole(600..1000))));
}

#[test]
fn a_broken_stream_without_a_strong_validator_leaves_nothing() {
    for fields in ["Cache-Control: max-age=60", "Cache-Control: max-age=60\nETag: W/\"v1\""] {
        let cache = Cache::new(Settings::default());
        let (_reader, mut writer) = miss(&cache, KEY);
        writer.store(head_of(&cache, &request(""), fields), Some(1000));
        writer.push(law(0..600).into());
        drop(writer);
        assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)), "{fields}");
    }
}

#[test]
fn a_reader_far_ahead_of_the_stream_gets_a_hole_and_the_stream_ends_where_the_rest_is_here() {
    let cache = Cache::new(Settings::default());
    let (_first, mut writer) = miss(&cache, KEY);
    let length = 8_000_000;
    writer.store(head_of(&cache, &request(""), STRONG), Some(length));
    writer.push(law(0..1000).into());
    let mut ahead = fresh(&cache);
    assert_eq!(now(ahead.gap(2000..3000)), Some(Gap::None), "the stream comes there soon");
    assert_eq!(now(ahead.gap(4_000_000..length)), Some(Gap::Hole(4_000_000..length)));
    let mut fill = Fill::begin(ahead.entry(), &(4_000_000..length)).unwrap();
    fill.confirm(&(4_000_000..length));
    writer.push(law(1000..3_999_999).into());
    assert_eq!(now(writer.room()), Some(Room::Go));
    writer.push(law(3_999_999..4_000_000).into());
    assert_eq!(now(writer.room()), Some(Room::Gone), "the other fetch brings the rest");
    drop(writer);
    fill.push(&cache, law(4_000_000..length).into());
    assert!(fill.is_full());
    drop(fill);
    assert!(ahead.entry().is_whole());
}

#[test]
fn the_rest_is_worth_fetching_when_half_is_here() {
    let cache = Cache::new(Settings::default());
    let reader = part(&cache, 0..400, 1000);
    assert_eq!(reader.entry().worthwhile_hole(1000), None);
    let mut fill = Fill::begin(reader.entry(), &(400..500)).unwrap();
    fill.push(&cache, law(400..500).into());
    assert_eq!(reader.entry().worthwhile_hole(1000), None, "somebody is at it");
    drop(fill);
    assert_eq!(reader.entry().worthwhile_hole(1000), Some(500..1000));
    assert_eq!(reader.entry().worthwhile_hole(499), None);
}

#[test]
fn a_purge_by_key_takes_all_variants_and_says_how_many() {
    let cache = Cache::new(Settings::default());
    store(&cache, KEY, "Cache-Control: max-age=60\nVary: A", vec![1]);
    assert_eq!(now(cache.purge_key(KEY).finish()).unwrap().count, Some(1));
    assert_eq!(now(cache.purge_key(KEY).finish()).unwrap().count, Some(0));
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)));
}

fn glance(cache: &Cache, key: &[u8], asked: &Asked) -> Option<u64> {
    cache.fresh(&Glance { key, request: &request(""), asked, now: NOW }, u64::MAX, &mut |whole| whole.length)
}

#[test]
fn the_quick_look_gives_whole_fresh_bodies_that_fit() {
    let cache = Cache::new(Settings::default());
    store(&cache, KEY, "Cache-Control: max-age=60\nVary: Accept", vec![1, 2, 3]);
    for (fields, now, bytes_max, wanted) in [
        ("", NOW, 3, Some(3)),
        ("", NOW, 2, None),
        ("", NOW.plus(59), 3, Some(3)),
        ("", NOW.plus(60), 3, None),
        ("Cache-Control: no-cache\r\n", NOW, 3, None),
        ("Accept: text/html\r\n", NOW, 3, None),
    ] {
        let (request, mut body) = (request(fields), Vec::new());
        let asked = Asked::of(&request);
        let glance = Glance { key: KEY, request: &request, asked: &asked, now };
        let found = cache.fresh(&glance, bytes_max, &mut |whole| {
            whole.each(|bytes, part| body.extend_from_slice(&bytes[part]));
            whole.length
        });
        assert_eq!(found, wanted, "{fields:?} {now:?} {bytes_max}");
        assert_eq!(body, if wanted.is_some() { vec![1, 2, 3] } else { vec![] });
    }
}

#[test]
fn a_rule_is_about_what_came_before_it() {
    let other = b"http://a.example/other";
    for (scope, gone) in [
        (Scope::All, true),
        (Scope::Prefix(b"http://a.example/".as_slice().into()), true),
        (Scope::Prefix(b"http://a.example/y".as_slice().into()), false),
        (Scope::Tag(tags::hash(b"red")), true),
        (Scope::Tag(tags::hash(b"blue")), false),
    ] {
        let cache = Cache::new(Settings::default());
        store(&cache, KEY, "Cache-Control: max-age=60\nSurrogate-Key: green red", vec![1]);
        now(cache.purge([scope.clone()], Force::Hard).finish()).unwrap();
        let asked = Asked::of(&request(""));
        assert!(glance(&cache, KEY, &asked).is_none(), "{scope:?}: not without a judgement");
        let found = find(&cache, KEY, &request(""), NOW);
        assert_eq!(matches!(found, Found::Missing(..)), gone, "{scope:?}: {}", found.as_str());
        drop(found);
        store(&cache, other, "Cache-Control: max-age=60\nSurrogate-Key: red blue", vec![1]);
        assert!(glance(&cache, other, &asked).is_some(), "{scope:?}: what comes later stays");
    }
}

#[test]
fn many_scopes_are_counted_in_one_walk() {
    let cache = Cache::new(Settings::default());
    for number in 0..200 {
        let fields = format!("Cache-Control: max-age=60\nSurrogate-Key: all of-{} number-{number}", number % 10);
        store(&cache, format!("http://a.example/{number}").as_bytes(), &fields, vec![1]);
    }
    let tag = |text: String| Scope::Tag(tags::hash(text.as_bytes()));
    let tags: Vec<Scope> = (0..800).map(|number| tag(format!("number-{}", number * 2))).collect();
    // A step for each response, and one for each of its tags.
    assert_eq!(cache.count(&tags, 200 * 4), Some(100));
    assert_eq!(cache.count(&tags, 199 * 4), None);
    assert_eq!(cache.count(&[tag("all".into()), tag("of-3".into())], 200 * 4), Some(200), "each is counted once");
    let prefix = |text: &str| Scope::Prefix(text.as_bytes().into());
    let prefixes: Vec<Scope> = (0..800).map(|number| prefix(&format!("http://a.example/{}", number * 7))).collect();
    let expected =
        (0..200).filter(|url: &u32| (0..800).any(|each: u32| url.to_string().starts_with(&(each * 7).to_string())));
    assert_eq!(cache.count(&prefixes, 200), Some(expected.count()));
    assert_eq!(cache.count(&[Scope::All], 200), Some(200));
    now(cache.purge(tags, Force::Hard).finish()).unwrap();
    let gone = (0..200).filter(|number| {
        let key = format!("http://a.example/{number}");
        !matches!(find(&cache, key.as_bytes(), &request(""), NOW), Found::Fresh(_))
    });
    assert_eq!(gone.count(), 100);
}

#[test]
fn a_soft_rule_asks_for_a_validation_once() {
    let cache = Cache::new(Settings::default());
    store(&cache, KEY, STRONG, vec![1]);
    now(cache.expire_url(KEY).finish()).unwrap();
    let Found::Validate(hit, _, _reader, writer) = find(&cache, KEY, &request(""), NOW) else { panic!("not stale") };
    let entry = hit.reader.entry().clone();
    entry.renew(head_of(&cache, &request(""), STRONG), writer.epoch());
    writer.redirect(&entry, ReuseReason::Unchanged);
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Fresh(_)));
}

#[test]
fn a_validation_that_began_before_a_soft_rule_does_not_undo_it() {
    let cache = Cache::new(Settings::default());
    store(&cache, KEY, STRONG, vec![1]);
    let later = NOW.plus(3600);
    let Found::Validate(hit, _, _reader, writer) = find(&cache, KEY, &request(""), later) else { panic!("not stale") };
    now(cache.expire_url(KEY).finish()).unwrap();
    // Somebody looks meanwhile, and so the rule was applied before the answer comes.
    drop(find(&cache, KEY, &request(""), later));
    let entry = hit.reader.entry().clone();
    entry.renew(head_of(&cache, &request(""), STRONG), writer.epoch());
    writer.redirect(&entry, ReuseReason::Unchanged);
    let asked = Asked::of(&request(""));
    assert!(glance(&cache, KEY, &asked).is_none());
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Validate(..)));
}

#[test]
fn a_part_asked_for_after_a_purge_does_not_undo_it() {
    for (force, is_there) in [(Force::Hard, false), (Force::Soft, true)] {
        for is_looked_up in [false, true] {
            let cache = Cache::new(Settings::default());
            let mut reader = part(&cache, 0..100, 300);
            now(cache.purge([Scope::Prefix(b"http://a.example/".as_slice().into())], force).finish()).unwrap();
            if is_looked_up {
                drop(find(&cache, KEY, &request(""), NOW));
            }
            let (_, writer) = cache.beside(KEY);
            let mut fill = Fill::begin(reader.entry(), &(100..300)).unwrap();
            cache.renew_by_part(fill.entry(), head_of(&cache, &request(""), STRONG), writer.epoch());
            assert!(fill.confirm(&(100..300)));
            fill.push(&cache, law(100..300).into());
            drop(fill);
            // Its reader had it before the purge, and gets all of it.
            assert_eq!(read(&mut reader, 100), Some(Ok(law(100..300))));
            let found = find(&cache, KEY, &request(""), NOW);
            assert_eq!(matches!(found, Found::Fresh(_)), is_there, "{force:?} {is_looked_up}: {}", found.as_str());
        }
    }
}

#[test]
fn nobody_follows_a_fetch_that_began_before_a_purge() {
    let cache = Cache::new(Settings::default());
    let (_reader, mut writer) = miss(&cache, KEY);
    now(cache.purge([Scope::All], Force::Hard).finish()).unwrap();
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)), "it asks for itself");
    writer.store(head_of(&cache, &request(""), STRONG), Some(1));
    writer.push(vec![1].into());
    writer.finish(None);
    assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Missing(..)), "what it brought is void");
}

fn disk(admission: Admission) -> (tempfile::TempDir, Arc<Store>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = DiskSettings { admission, ..DiskSettings::small() };
    let disk = Store::open(&[folder.path().to_path_buf()], &settings).unwrap();
    assert!(disk.heads(KEY).wait().is_empty(), "and its index is read");
    (folder, disk)
}

#[test]
fn what_is_on_its_way_to_the_disk_is_not_missing() {
    let (_folder, disk) = disk(Admission::All);
    let cache = Cache::over(
        Settings { memory_bytes: 400_000, memory_object_bytes_max: 50_000, ..Settings::default() },
        Some(disk),
    );
    drop(part(&cache, 0..50_000, 100_000_000));
    let reader = || match cache.find(KEY, &request(""), &Asked::of(&request("")), NOW, Joins::Yes, Disk::Seen) {
        Found::Fresh(hit) => hit.reader,
        other => panic!("{}", other.as_str()),
    };
    for number in 1..60 {
        let hole = number * 50_000..(number + 1) * 50_000;
        let asking = reader();
        let mut fill = Fill::begin(asking.entry(), &hole).unwrap();
        fill.confirm(&hole);
        let mut client = reader();
        assert_eq!(read(&mut client, hole.start), None, "it waits there");
        drop(asking);
        fill.push(&cache, law(hole.clone()).into());
        drop(fill);
        let mut all = reader();
        assert_eq!(now(all.gap(0..hole.end)), Some(Gap::None), "part {number}");
    }
}

#[test]
fn a_length_without_measure_costs_no_time() {
    let (_folder, disk) = disk(Admission::All);
    let cache = Cache::over(Settings::default(), Some(disk));
    let length = u64::MAX - 1;
    drop(part(&cache, 0..100_000, length));
    let Found::Fresh(mut hit) = find(&cache, KEY, &request(""), NOW) else { panic!("a part is here") };
    // To look at each block of it would take thousands of years.
    let Some(Gap::Hole(hole)) = now(hit.reader.gap(200_000..length)) else { panic!("nobody brings it") };
    assert_eq!(hole.start, 200_000);
    assert!(hole.end > 1 << 30, "and much is asked for at once");
}

/// So much waits for the disk that the next put has to wait.
fn keep_busy(disk: &Store) {
    let id = disk.new_id();
    for block in 0..16u64 {
        drop(disk.put_extent(id, b"http://a.example/jam", block << 16, vec![vec![0; 1 << 16].into()]));
    }
}

/// So much that it is refused.
fn jam(disk: &Store) {
    for _ in 0..5 {
        keep_busy(disk);
    }
    for at in 0..300 {
        drop(disk.put_extent(disk.new_id(), b"http://a.example/jam", at, vec![vec![0].into()]));
    }
}

fn replace(cache: &Arc<Cache>, body: Vec<u8>) {
    let (_reader, mut writer) = cache.beside(KEY);
    writer.store(head_of(cache, &request(""), STRONG), Some(body.len() as u64));
    writer.push(body.into());
    writer.finish(None);
}

/// Other answers take the place in memory.
fn crowd_out(cache: &Arc<Cache>, before_each: impl Fn()) {
    for number in 0..200 {
        if cache.count(&[Scope::Prefix(KEY.into())], u64::MAX) == Some(0) {
            return;
        }
        cache.disk().unwrap().sync().wait();
        before_each();
        let other = format!("http://b.example/{number}");
        store(cache, other.as_bytes(), STRONG, vec![0; 50_000]);
        drop(find(cache, other.as_bytes(), &request(""), NOW));
    }
    panic!("it stays in memory");
}

/// A disk, and a cache with little memory over it.
fn small_over_disk(admission: Admission) -> (tempfile::TempDir, Arc<Store>, Arc<Cache>) {
    let (folder, disk) = disk(admission);
    let settings = Settings { memory_bytes: 400_000, memory_object_bytes_max: 100_000, ..Settings::default() };
    let cache = Cache::over(settings, Some(Arc::clone(&disk)));
    (folder, disk, cache)
}

#[test]
fn a_disk_that_does_not_take_the_new_does_not_bring_back_the_old() {
    for round in 0..5 {
        let (_folder, disk, cache) = small_over_disk(Admission::All);
        replace(&cache, b"old".to_vec());
        disk.sync().wait();
        jam(&disk);
        replace(&cache, b"new".to_vec());
        crowd_out(&cache, || {});
        disk.sync().wait();
        for head in disk.heads(KEY).wait() {
            assert_ne!(head.body.as_deref(), Some(b"old".as_slice()), "round {round}");
        }
    }
}

#[test]
fn a_renewed_head_that_the_disk_does_not_take_costs_no_object() {
    let (_folder, disk, cache) = small_over_disk(Admission::All);
    store(&cache, KEY, STRONG, vec![1; 1000]);
    disk.sync().wait();
    let entry = Arc::clone(fresh(&cache).entry());
    for _ in 0..20 {
        jam(&disk);
        entry.renew(head_of(&cache, &request(""), STRONG), 0);
    }
    disk.sync().wait();
    assert_eq!(disk.heads(KEY).wait().len(), 1);
}

#[test]
fn what_was_used_goes_to_the_disk_when_memory_lets_it_go() {
    for used in [true, false] {
        let (_folder, disk, cache) = small_over_disk(Admission::SeenTwice);
        store(&cache, KEY, STRONG, vec![1; 1000]);
        if used {
            assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Fresh(_)));
        }
        crowd_out(&cache, || {});
        disk.sync().wait();
        assert_eq!(disk.heads(KEY).wait().len(), usize::from(used));
    }
}

#[test]
fn what_is_on_its_way_to_the_disk_is_made_void_too() {
    for round in 0..5 {
        let (_folder, disk, cache) = small_over_disk(Admission::SeenTwice);
        // An object that is asked for a second time is here already: it goes to disk when memory lets it go.
        store(&cache, KEY, STRONG, vec![1; 1000]);
        assert!(matches!(find(&cache, KEY, &request(""), NOW), Found::Fresh(_)));
        crowd_out(&cache, || keep_busy(&disk));
        cache.invalidate(KEY);
        disk.sync().wait();
        assert!(disk.heads(KEY).wait().is_empty(), "round {round}");
    }
}

#[test]
fn what_is_made_void_elsewhere_spoils_no_look_at_the_disk() {
    for void in [false, true] {
        let (_folder, disk, cache) = small_over_disk(Admission::All);
        store(&cache, KEY, STRONG, vec![1; 1000]);
        crowd_out(&cache, || {});
        let Found::OnDisk(load) = find(&cache, KEY, &request(""), NOW) else { panic!("it lies on disk") };
        cache.invalidate(b"http://a.example/elsewhere");
        drop(cache.purge([Scope::Prefix(b"http://c.example/".as_slice().into())], Force::Hard));
        if void {
            cache.invalidate(KEY);
        }
        // Its read ends here at the latest.
        disk.sync().wait();
        until(load.finish());
        let found = find(&cache, KEY, &request(""), NOW);
        assert_eq!(matches!(found, Found::Fresh(_)), !void, "{}", found.as_str());
    }
}

#[test]
fn what_many_read_from_disk_at_once_stays_within_the_budget() {
    let (_folder, disk) = disk(Admission::All);
    let settings = Settings { memory_bytes: 4_000_000, memory_object_bytes_max: 1_000_000, ..Settings::default() };
    let keys: Vec<String> = (0..20).map(|number| format!("http://a.example/{number}")).collect();
    {
        let cache = Cache::over(settings.clone(), Some(Arc::clone(&disk)));
        for key in &keys {
            store(&cache, key.as_bytes(), STRONG, law(0..1_000_000));
            disk.sync().wait();
        }
    }
    let cache = Cache::over(settings, Some(Arc::clone(&disk)));
    let mut readers = Vec::new();
    for key in &keys {
        let Found::OnDisk(load) = find(&cache, key.as_bytes(), &request(""), NOW) else { panic!("it lies on disk") };
        until(load.finish());
        let Found::Fresh(hit) = find(&cache, key.as_bytes(), &request(""), NOW) else { panic!("and was loaded") };
        readers.push(hit.reader);
    }
    for round in 0..2 {
        for reader in &mut readers {
            let (mut at, mut body) = (0, Vec::new());
            while at < 1_000_000 {
                let mut out = Vec::new();
                at += until(reader.read(at..1_000_000, &mut out)).unwrap();
                body.extend(out.concat());
                cache.make_room();
                assert!(cache.stats().memory_bytes <= 4_300_000, "round {round}: {}", cache.stats().memory_bytes);
            }
            assert!(body == law(0..1_000_000));
        }
    }
    readers.truncate(2);
    cache.make_room();
    assert!(cache.stats().memory_bytes <= 4_000_000, "and there is room again");
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
