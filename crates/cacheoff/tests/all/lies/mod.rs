//! A cache that lies is caught at each of its lies, and one that does not is never accused. Runs are short and real:
//! robots, sockets, origins, a ledger.

mod cache;

use cache::{Cache, Lie};
use cacheoff::distribution::Distribution;
use cacheoff::engine::Settings;
use cacheoff::ledger::{Class, Interval, Ledger, MissCause, Outcome, Run, Trouble};
use cacheoff::object::{Content, Law, Life};
use cacheoff::origin::OriginSettings;
use cacheoff::proc::Watched;
use cacheoff::robot::{Pace, Ranges, RobotSettings, Route, Special};
use cacheoff::run::{Order, route, run};
use cacheoff::schedule::{Goal, Phase};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SHORT: Duration = Duration::from_millis(1500);
/// Versions of a second each are surely stale after this long.
const LONG: Duration = Duration::from_secs(7);

fn content() -> Content {
    Content {
        name: "page".into(),
        media: "text/html".into(),
        size: Distribution::Constant(3_001.0),
        size_bytes_max: 1 << 20,
        cachable: 0.8,
        endings: Vec::new(),
        embeds: None,
        life: Life::Static,
        variants: 1,
        etag: true,
        cache_control: "public".into(),
    }
}

fn law(content: Content) -> Law {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Law { seed: 7, tag: 0xCAFE, epoch, contents: vec![content], ..Law::default() }
}

fn settings(law: Law, cache: SocketAddr) -> Settings {
    let origins = OriginSettings { servers: 2, idle: Duration::from_secs(5), ..OriginSettings::default() };
    let robots = RobotSettings {
        count: 10,
        pace: Pace::Poisson(20.0),
        recurrence: 0.7,
        kinds: vec![(Special::Reload, 0.15), (Special::Part, 0.15)],
        ranges: Ranges { bytes: Distribution::Uniform(1.0, 2000.0), suffix: 0.2, ..RobotSettings::default().ranges },
        accepts_gzip: 0.5,
        timeout: Duration::from_secs(5),
        ..RobotSettings::default()
    };
    Settings {
        law,
        origins,
        robots,
        route: route(Some(cache), None, 0),
        freeze_at: None,
        freeze_after: None,
        preset: None,
        log: [].into(),
        tls: None,
        workers: 1,
        drain: Duration::from_secs(2),
    }
}

fn order(settings: Settings, length: Duration) -> Order {
    let phase = Phase::flat("all", Goal::Time(length));
    Order {
        settings,
        phases: vec![phase],
        head: Run::default(),
        ledger: None,
        watched: Watched::Nobody,
        cores: Vec::new(),
        power: None,
        shows: false,
        stop: Arc::new(AtomicBool::new(false)),
    }
}

fn whole(ledger: &Ledger) -> Interval {
    let mut whole = Interval::default();
    ledger.intervals.iter().for_each(|interval| whole.extend(interval));
    whole
}

fn played(lie: Lie, content: Content, length: Duration) -> Interval {
    let cache = Cache::start(lie);
    let ledger = run(order(settings(law(content), cache.address), length)).unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    whole(&ledger)
}

/// The lie is caught under its own name, and nothing else is said of the cache.
fn caught(lie: Lie, content: Content, length: Duration, expected: Trouble) {
    let seen = played(lie, content, length);
    assert!(seen.errors.of(expected) > 0, "{lie:?} was not caught: {:?}", seen.errors);
    assert_eq!(seen.errors.of(expected), seen.errors.total(), "{lie:?}: {:?}", seen.errors);
    assert!(seen.errors.exhibits.iter().all(|exhibit| !exhibit.detail.is_empty()));
}

#[test]
fn an_honest_cache_is_not_accused_and_gets_its_hits() {
    let two = Content { variants: 2, ..content() };
    for content in [content(), two] {
        let seen = played(Lie::None, content, SHORT);
        assert!(seen.errors.is_empty(), "{:?}", seen.errors);
        let basic = seen.class(Class::Basic);
        assert!(seen.replies() > 100 && basic.hits > 20, "{} replies, {} hits", seen.replies(), basic.hits);
        assert!(basic.hits <= basic.offered);
    }
}

#[test]
fn what_expires_at_once_is_no_hit_and_no_lie() {
    let seen = played(Lie::None, Content { life: brief(), ..content() }, SHORT);
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    assert_eq!(seen.class(Class::Basic).hits, 0);
}

#[test]
fn what_is_fresh_by_its_lifetime_is_no_stale_hit() {
    let content = Content { life: brief(), cache_control: "public, max-age=60".into(), ..content() };
    let seen = played(Lie::Stale, content, LONG);
    assert!(seen.errors.is_empty() && seen.class(Class::Basic).hits > 20, "{:?}", seen.errors);
}

fn brief() -> Life {
    Life::Cycle { length: Distribution::Constant(1.0), variance: 0.0, with_modified: 1.0, expires_after: 0.0 }
}

#[test]
fn stale_hits_are_caught_with_tags_and_without() {
    for etag in [true, false] {
        caught(Lie::Stale, Content { life: brief(), etag, ..content() }, LONG, Trouble::StaleHit);
    }
}

#[test]
fn wrong_bodies_are_caught() {
    caught(Lie::Truncates, content(), SHORT, Trouble::Truncated);
    caught(Lie::MixesBodies, content(), SHORT, Trouble::WrongBytes);
    caught(Lie::MixesAnswers, content(), SHORT, Trouble::WrongBytes);
    caught(Lie::FlipsABit, content(), SHORT, Trouble::WrongBytes);
    caught(Lie::Shortens, content(), SHORT, Trouble::WrongLength);
    caught(Lie::ShiftsRanges, content(), SHORT, Trouble::WrongRange);
}

#[test]
fn mixed_answers_without_tags_are_caught_by_their_bytes() {
    caught(Lie::MixesAnswers, Content { etag: false, ..content() }, SHORT, Trouble::WrongBytes);
}

#[test]
fn hits_that_must_not_be_are_caught() {
    caught(Lie::KeepsUncachable, content(), SHORT, Trouble::HitOnUncachable);
    caught(Lie::IgnoresReload, content(), SHORT, Trouble::HitOnReload);
    let seen = played(Lie::InventsHits, Content { cachable: 1.0, ..content() }, SHORT);
    let on_new = seen.errors.of(Trouble::FalseHit);
    assert!(on_new > 0 && on_new + seen.errors.of(Trouble::HitOnReload) == seen.errors.total(), "{:?}", seen.errors);
}

#[test]
fn wrong_variants_are_caught_with_tags_and_without() {
    for etag in [true, false] {
        caught(Lie::IgnoresVary, Content { variants: 2, etag, ..content() }, SHORT, Trouble::WrongVariant);
    }
}

#[test]
fn wrong_heads_are_caught() {
    caught(Lie::InventsAge, content(), SHORT, Trouble::WrongHeader);
    caught(Lie::OtherRun, content(), SHORT, Trouble::ForeignReply);
    caught(Lie::OwnPage, content(), SHORT, Trouble::WrongHeader);
    caught(Lie::Refuses, content(), SHORT, Trouble::Refused);
    caught(Lie::Babbles, content(), SHORT, Trouble::Malformed);
    caught(Lie::HangsUp, content(), SHORT, Trouble::Reset);
}

/// A few objects, asked for again and again and purged now and then.
fn purged(lie: Lie) -> Interval {
    let cache = Cache::start(lie);
    let mut settings = settings(law(Content { cachable: 1.0, ..content() }), cache.address);
    settings.route = Route { purge: "PURGE".into(), ..settings.route };
    settings.preset = Some(20);
    settings.robots.kinds = vec![(Special::Purge, 0.1)];
    settings.robots.accepts_gzip = 0.0;
    let ledger = run(order(settings, 2 * SHORT)).unwrap();
    whole(&ledger)
}

#[test]
fn what_was_purged_is_missed_and_comes_back() {
    let seen = purged(Lie::None);
    assert!(seen.errors.is_empty(), "{:?}", seen.errors);
    let (basic, purges) = (seen.class(Class::Basic), seen.class(Class::Purge).replies);
    assert!(purges > 20 && basic.hits > 100, "{purges} purges, {} hits", basic.hits);
    let missing = |cause| seen.missing.get(&cause).copied().unwrap_or(0);
    let (void, gone) = (missing(MissCause::Purged), missing(MissCause::Evicted));
    assert!(void > 10 && gone <= void / 10, "{void} purged, {gone} evicted");
}

#[test]
fn purges_that_are_not_obeyed_are_caught() {
    for (lie, trouble) in [
        (Lie::KeepsPurged, Trouble::PurgedHit),
        (Lie::PassesPurges, Trouble::WrongStatus),
        (Lie::RefusesPurges, Trouble::Refused),
    ] {
        let seen = purged(lie);
        assert!(seen.errors.of(trouble) > 10, "{lie:?}: {:?}", seen.errors);
        assert_eq!(seen.errors.of(trouble), seen.errors.total(), "{lie:?}: {:?}", seen.errors);
    }
}

#[test]
fn a_cache_that_is_down_is_said_to_be() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ledger = run(order(settings(law(content()), address), SHORT)).unwrap();
    let seen = whole(&ledger);
    assert!(seen.errors.of(Trouble::ConnectRefused) > 50, "{:?}", seen.errors);
    assert_eq!(seen.errors.of(Trouble::ConnectRefused), seen.errors.total());
    assert!(seen.errors.exhibits.iter().all(|exhibit| exhibit.detail.contains("refused")));
}

#[test]
fn a_cache_that_dies_in_mid_run_leaves_a_ledger_with_both_halves() {
    let cache = Cache::start(Lie::None);
    let order = order(settings(law(content()), cache.address), 2 * SHORT);
    let (asked, ledger) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            while cache.asked.load(Relaxed) < 100 {
                std::thread::sleep(Duration::from_millis(5));
            }
            cache.die();
            cache.asked.load(Relaxed)
        });
        let ledger = run(order).unwrap();
        (killer.join().unwrap(), ledger)
    });
    let seen = whole(&ledger);
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    assert!(seen.replies() as usize >= asked - 10 && seen.errors.of(Trouble::ConnectRefused) > 50, "{:?}", seen.errors);
    assert_eq!(seen.errors.lies(), 0, "{:?}", seen.errors);
}

#[test]
fn a_port_that_is_taken_is_named_with_its_remedy() {
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let mut order = order(settings(law(content()), taken.local_addr().unwrap()), SHORT);
    order.settings.origins.port = taken.local_addr().unwrap().port();
    let error = run(order).unwrap_err();
    assert!(error.contains("--origin-port") && error.contains(&order_port(&taken)), "{error}");
}

fn order_port(listener: &std::net::TcpListener) -> String {
    listener.local_addr().unwrap().port().to_string()
}

#[test]
fn a_run_that_is_stopped_leaves_a_valid_partial_ledger() {
    let cache = Cache::start(Lie::None);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stopped.ledger");
    let mut order = order(settings(law(content()), cache.address), Duration::from_secs(60));
    order.ledger = Some(path.clone());
    let stop = order.stop.clone();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        stop.store(true, Relaxed);
    });
    let ledger = run(order).unwrap();
    killer.join().unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Interrupted);
    assert!(ledger.end.at_us < 20_000_000 && whole(&ledger).replies() > 50);
    let kept = Ledger::read(std::io::BufReader::new(std::fs::File::open(&path).unwrap())).unwrap();
    assert_eq!(kept.end.outcome, Outcome::Interrupted);
    assert_eq!(whole(&kept).replies(), whole(&ledger).replies());
}
