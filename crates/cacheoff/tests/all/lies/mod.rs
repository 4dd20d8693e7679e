//! A cache that lies is caught at each of its lies, and one that does not is never accused. Runs are short and real:
//! robots, sockets, origins, a ledger.

mod cache;
mod http;

use cache::{Cache, Habit, Lie, Manner};
use cacheoff::distribution::Distribution;
use cacheoff::engine::{Seal, Settings};
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

/// Answers of two seconds ago are surely old after this long.
const MIDDLE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(1500);
/// Versions of a second each are surely stale after this long.
const LONG: Duration = Duration::from_secs(7);

pub(super) fn content() -> Content {
    Content { cachable: 0.8, ..Content::plain("page", "text/html", Distribution::Constant(3_001.0), 1 << 20) }
}

pub(super) fn law(content: Content) -> Law {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Law { seed: 7, tag: 0xCAFE, epoch, contents: vec![content], ..Law::default() }
}

pub(super) fn settings(law: Law, cache: SocketAddr) -> Settings {
    let origins = OriginSettings { servers: 2, idle: Duration::from_secs(5), ..OriginSettings::default() };
    let robots = RobotSettings {
        count: 10,
        pace: Pace::Poisson(12.0),
        recurrence: 0.7,
        kinds: vec![(Special::Reload, 0.15), (Special::Part, 0.15)],
        ranges: Ranges { bytes: Distribution::Uniform(1.0, 2000.0), suffix: 0.2, ..RobotSettings::default().ranges },
        accepts_gzip: 0.5,
        timeout: Duration::from_secs(5),
        ..RobotSettings::default()
    };
    Settings {
        law,
        seal: Seal::random(),
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

pub(super) fn order(settings: Settings, length: Duration) -> Order {
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

pub(super) fn whole(ledger: &Ledger) -> Interval {
    let mut whole = Interval::default();
    ledger.intervals.iter().for_each(|interval| whole.extend(interval));
    whole
}

fn played(lie: Lie, content: Content, length: Duration) -> Interval {
    played_with(Manner { lie, habit: Habit::None }, content, length, |_| {})
}

fn played_with(manner: Manner, content: Content, length: Duration, change: impl FnOnce(&mut Settings)) -> Interval {
    let cache = Cache::with(manner);
    let mut settings = settings(law(content), cache.address);
    change(&mut settings);
    let ledger = run(order(settings, length)).unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    whole(&ledger)
}

/// The lie is caught under its own name, and nothing else is said of the cache.
fn caught(lie: Lie, content: Content, length: Duration, expected: Trouble) {
    caught_with(lie, content, length, expected, |_| {});
}

fn caught_with(lie: Lie, content: Content, length: Duration, expected: Trouble, change: impl FnOnce(&mut Settings)) {
    let seen = played_with(Manner { lie, habit: Habit::None }, content, length, change);
    assert!(seen.errors.of(expected) > 0, "{lie:?} was not caught: {:?}", seen.errors);
    // A lie may leave something to remark besides.
    let remarks = if expected.is_remark() { 0 } else { seen.errors.remarks() };
    assert_eq!(held_against(&seen), seen.errors.of(expected) + remarks, "{lie:?}: {:?}", seen.errors);
    assert!(seen.errors.exhibits.iter().all(|exhibit| !exhibit.detail.is_empty()));
}

/// Troubles that say something of the cache; that a machine is too slow for the rate says nothing.
fn held_against(seen: &Interval) -> u64 {
    let slow = [Trouble::GaveUp, Trouble::Timeout];
    seen.errors.counts.iter().filter(|(trouble, _)| !slow.contains(trouble)).map(|(_, count)| count).sum()
}

/// Four at a time: most of the time they wait.
const TOGETHER: usize = 4;

fn all_caught(cases: &[(Lie, Content, Duration, Trouble)], change: impl Fn(&mut Settings) + Sync) {
    for cases in cases.chunks(TOGETHER) {
        std::thread::scope(|scope| {
            for (lie, content, length, expected) in cases {
                let change = &change;
                scope.spawn(move || caught_with(*lie, content.clone(), *length, *expected, change));
            }
        });
    }
}

#[test]
fn an_honest_cache_is_not_accused_and_gets_its_hits() {
    let two = Content { variants: 2, ..content() };
    for content in [content(), two] {
        let seen = played(Lie::None, content, SHORT);
        assert!(seen.errors.is_empty(), "{:?}", seen.errors);
        let basic = seen.class(Class::Basic);
        assert!(seen.replies() > 50 && basic.hits > 10, "{} replies, {} hits", seen.replies(), basic.hits);
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
fn parts_that_nobody_asked_for_are_caught_among_several() {
    caught_with(Lie::MovesParts, content(), SHORT, Trouble::WrongRange, |settings| {
        settings.robots.kinds = vec![(Special::Part, 0.5)];
        settings.robots.ranges.parts = Distribution::Uniform(1.0, 5.0);
        settings.robots.ranges.bytes = Distribution::Uniform(1.0, 300.0);
    });
}

#[test]
fn mixed_answers_without_tags_are_caught_by_their_bytes() {
    caught(Lie::MixesAnswers, Content { etag: false, ..content() }, SHORT, Trouble::WrongBytes);
}

#[test]
fn hits_that_must_not_be_are_caught() {
    caught(Lie::KeepsUncachable, content(), SHORT, Trouble::HitOnUncachable);
    caught(Lie::IgnoresReload, content(), SHORT, Trouble::HitOnReload);
    let manner = Manner { lie: Lie::InventsHits, habit: Habit::StoresNothing };
    let seen = played_with(manner, Content { cachable: 1.0, ..content() }, MIDDLE, |_| {});
    let forged = seen.errors.of(Trouble::ForgedEcho);
    assert!(forged > 0 && forged == held_against(&seen), "{:?}", seen.errors);
    assert_eq!(seen.class(Class::All).hits, 0, "what the origin answered is no hit, whatever its echo");
}

#[test]
fn wrong_variants_are_caught_with_tags_and_without() {
    for etag in [true, false] {
        caught(Lie::IgnoresVary, Content { variants: 2, etag, ..content() }, SHORT, Trouble::WrongVariant);
    }
}

#[test]
fn answers_that_are_not_the_origin_s_are_caught() {
    caught(Lie::OtherRun, content(), SHORT, Trouble::ForeignReply);
    caught(Lie::ForgesEchoes, content(), SHORT, Trouble::ForgedEcho);
    caught(Lie::BlamesTheOrigin, content(), SHORT, Trouble::ForgedFault);
    caught(Lie::OwnPage, content(), SHORT, Trouble::WrongHeader);
    caught(Lie::Refuses, content(), SHORT, Trouble::Refused);
    caught(Lie::Babbles, content(), SHORT, Trouble::Malformed);
    caught(Lie::HangsUp, content(), SHORT, Trouble::Reset);
}

#[test]
fn fields_of_hits_that_are_lost_or_changed_are_caught() {
    let long = Content { cache_control: "public, max-age=600".into(), ..content() };
    let two = Content { variants: 2, ..content() };
    let cases = [
        (Lie::Drops("Content-Type"), content(), SHORT, Trouble::LostField),
        (Lie::Sets("Content-Type", "text/plain"), content(), SHORT, Trouble::ChangedField),
        (Lie::Drops("ETag"), content(), SHORT, Trouble::LostField),
        (Lie::Sets("ETag", "\"another\""), content(), SHORT, Trouble::ChangedField),
        (Lie::Drops("Last-Modified"), content(), SHORT, Trouble::LostField),
        (Lie::Sets("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT"), content(), SHORT, Trouble::ChangedField),
        (Lie::Drops("Expires"), content(), SHORT, Trouble::LostField),
        (Lie::Sets("Expires", "Fri, 31 Dec 2100 00:00:00 GMT"), content(), SHORT, Trouble::ExtendedLifetime),
        (Lie::Sets("Expires", "Sat, 01 Jan 2000 00:00:00 GMT"), content(), SHORT, Trouble::ChangedField),
        (Lie::Drops("Cache-Control"), content(), SHORT, Trouble::LostField),
        (Lie::Sets("Cache-Control", "public, max-age=6000"), long.clone(), SHORT, Trouble::ExtendedLifetime),
        (Lie::Sets("Cache-Control", "public, max-age=6"), long.clone(), SHORT, Trouble::ChangedField),
        (Lie::Drops("Vary"), two, SHORT, Trouble::LostField),
        (Lie::Drops("Date"), content(), SHORT, Trouble::LostField),
        (Lie::Adds("Set-Cookie", "track=1"), content(), SHORT, Trouble::InjectedCookie),
    ];
    all_caught(&cases, |_| {});
}

#[test]
fn ages_and_dates_that_are_invented_are_caught() {
    let long = Content { cache_control: "public, max-age=600".into(), ..content() };
    let cases = [
        (Lie::InventsAge, content(), SHORT, Trouble::WrongAge),
        (Lie::DeniesAge, content(), MIDDLE, Trouble::WrongAge),
        (Lie::DropsAge, content(), MIDDLE, Trouble::MissingAge),
        (Lie::HidesAge, long, MIDDLE, Trouble::ExtendedLifetime),
        (Lie::HidesAge, content(), MIDDLE, Trouble::MissingAge),
        (Lie::InventsDate, content(), 2 * LONG, Trouble::WrongDate),
        (Lie::Sets("Date", "Fri, 31 Dec 2060 00:00:00 GMT"), content(), SHORT, Trouble::WrongDate),
    ];
    // Few objects, so that most hits are old.
    all_caught(&cases, |settings| settings.preset = Some(20));
}

#[test]
fn bytes_that_nobody_asked_for_are_caught() {
    let cases = [
        (Lie::BodiesForHead, content(), SHORT, Trouble::HeadBody),
        (Lie::SecondReply, content(), SHORT, Trouble::UnaskedReply),
        (Lie::InventsTotals, content(), SHORT, Trouble::WrongRange),
    ];
    all_caught(&cases, |settings| settings.robots.kinds.push((Special::Head, 0.2)));
    caught(Lie::Surplus, content(), SHORT, Trouble::SurplusBytes);
}

#[test]
fn what_is_lost_or_changed_on_the_way_up_is_caught() {
    let cases = [
        (Lie::Strips("Cookie"), content(), SHORT, Trouble::LostCredentials),
        (Lie::Strips("Authorization"), content(), SHORT, Trouble::LostCredentials),
        (Lie::Mixes("Cookie"), content(), SHORT, Trouble::MixedCredentials),
        (Lie::Mixes("Authorization"), content(), SHORT, Trouble::MixedCredentials),
        (Lie::AltersPosts, content(), SHORT, Trouble::AlteredBody),
        (Lie::ShortensPosts, content(), SHORT, Trouble::AlteredBody),
        (Lie::RepeatsPosts, content(), SHORT, Trouble::RepeatedPost),
        (Lie::FetchesTwice, content(), SHORT, Trouble::DoubledFetch),
    ];
    all_caught(&cases, carries);
}

#[test]
fn what_is_for_one_client_is_given_to_no_other() {
    let private = Content { personal: true, cachable: 1.0, cache_control: "private, max-age=600".into(), ..content() };
    let varying = Content { personal: true, cache_control: "public, max-age=600".into(), ..content() };
    let untagged = Content { etag: false, ..varying.clone() };
    let cases = [
        (Lie::KeepsPrivate, private.clone(), SHORT, Trouble::HitOnPrivate),
        (Lie::ReplaysCookies, private.clone(), SHORT, Trouble::InjectedCookie),
        (Lie::IgnoresVary, varying.clone(), SHORT, Trouble::MixedUsers),
        (Lie::IgnoresVary, untagged, SHORT, Trouble::MixedUsers),
    ];
    let shows = |settings: &mut Settings| {
        (settings.robots.cookie, settings.robots.kinds, settings.preset) = (0.5, Vec::new(), Some(20));
        settings.robots.accepts_gzip = 0.0;
    };
    all_caught(&cases, shows);
    let manner = |lie| Manner { lie, habit: Habit::None };
    let merged = played_with(manner(Lie::KeepsUncachable), private.clone(), SHORT, shows);
    assert!(merged.errors.of(Trouble::MixedUsers) > 0, "{:?}", merged.errors);
    for content in [private, varying] {
        let seen = played_with(manner(Lie::None), content, SHORT, shows);
        assert!(seen.errors.is_empty() && seen.replies() > 100, "{:?}", seen.errors);
    }
}

/// Robots show who they are, and send bodies.
fn carries(settings: &mut Settings) {
    (settings.robots.cookie, settings.robots.logged_in) = (0.5, 0.2);
    settings.robots.kinds = vec![(Special::Post, 0.2)];
    settings.robots.post_bytes = Distribution::Uniform(1.0, 9_000.0);
}

#[test]
fn validations_that_nobody_needs_are_told() {
    caught(Lie::ValidatesAlways, content(), SHORT, Trouble::NeedlessValidation);
    let short = Content { cache_control: "public, max-age=1".into(), ..content() };
    let seen = played(Lie::ValidatesAlways, short, SHORT);
    assert!(seen.errors.is_empty(), "what may be stale may be validated: {:?}", seen.errors);
}

#[test]
fn habits_that_the_rules_permit_are_not_held_against_a_cache() {
    let behind = Content { cache_control: "public, max-age=0, stale-while-revalidate=600".into(), ..content() };
    let long = Content { cache_control: "public, max-age=600".into(), ..content() };
    let cases = [
        (Habit::None, content()),
        (Habit::None, Content { variants: 2, ..content() }),
        (Habit::Compresses, content()),
        (Habit::Compresses, Content { etag: false, ..content() }),
        (Habit::RewritesDate, content()),
        (Habit::RewritesDate, long.clone()),
        (Habit::ReversesFields, content()),
        (Habit::LowerCase, content()),
        (Habit::OldOrigin, content()),
        (Habit::Collapses, content()),
        (Habit::Chunks, content()),
        (Habit::AddsFields, content()),
        (Habit::StoresNothing, content()),
        (Habit::Rephrases, long),
        (Habit::FetchesWhole, content()),
        (Habit::IgnoresRange, content()),
        (Habit::GivesOnePart, content()),
        (Habit::RoundsAgeUp, content()),
        (Habit::SaysContinue, content()),
        (Habit::RefreshesBehind, behind),
    ];
    for cases in cases.chunks(TOGETHER) {
        std::thread::scope(|scope| {
            for (habit, content) in cases {
                scope.spawn(|| is_not_accused(*habit, content.clone()));
            }
        });
    }
}

fn is_not_accused(habit: Habit, content: Content) {
    let seen = played_with(Manner { lie: Lie::None, habit }, content, MIDDLE, |settings| {
        carries(settings);
        let more = [(Special::Head, 0.1), (Special::Reload, 0.1), (Special::Part, 0.15)];
        settings.robots.kinds.extend(more);
        settings.robots.kinds.push((Special::Put, 0.05));
        settings.robots.expect_continue = 0.1;
        settings.robots.ranges.parts = Distribution::Uniform(1.0, 4.0);
    });
    assert_eq!(held_against(&seen), 0, "{habit:?}: {:?}", seen.errors);
    let hits = seen.class(Class::Basic).hits;
    assert!(seen.replies() > 100 && (hits > 10 || habit == Habit::StoresNothing), "{habit:?}: {hits} hits");
}

#[test]
fn a_reply_that_waited_for_another_s_fetch_is_collapsed_and_has_its_own_times() {
    let manner = Manner { lie: Lie::None, habit: Habit::Collapses };
    let seen = played_with(manner, Content { cachable: 1.0, ..content() }, MIDDLE, |settings| {
        settings.origins.think = Some(Distribution::Constant(0.3));
        settings.robots.kinds = Vec::new();
        settings.robots.popularity = cacheoff::robot::Popularity::Recent(2.0);
        settings.robots.pace = Pace::Poisson(20.0);
    });
    assert_eq!(held_against(&seen), 0, "{:?}", seen.errors);
    let (basic, waited) = (seen.class(Class::Basic), seen.class(Class::Collapsed));
    let (hit, miss) = (seen.class(Class::Hit), seen.class(Class::Miss));
    assert!(waited.replies > 10 && hit.replies > 10 && miss.replies > 10, "{}", waited.replies);
    assert_eq!(hit.replies + waited.replies + miss.replies, basic.replies);
    assert_eq!((basic.hits, basic.collapsed), (hit.replies + waited.replies, waited.replies));
    let median = |of: &cacheoff::ledger::Histogram| of.quantile(0.5).unwrap_or(0);
    let (hits, waits) = (median(&seen.service.hit), median(&seen.service.collapsed));
    assert!(hits < 50_000 && waits > hits, "{hits} {waits}");
    assert!(seen.service.miss.min().unwrap_or(0) >= 300_000);
}

/// One connection for each robot, and more requests than it can carry one after the other.
fn pipelined(settings: &mut Settings) {
    settings.origins.think = Some(Distribution::Constant(0.03));
    settings.robots.kinds = vec![(Special::Head, 0.1), (Special::TagMatch, 0.1)];
    settings.robots.pace = Pace::Poisson(40.0);
    (settings.robots.connections_max, settings.robots.pipeline) = (1, 4);
    settings.robots.accepts_gzip = 0.0;
}

#[test]
fn replies_in_another_order_than_the_requests_of_a_connection_are_caught() {
    for etag in [true, false] {
        let manner = Manner { lie: Lie::ReordersReplies, habit: Habit::KeepsConnections };
        let content = Content { etag, size: Distribution::Uniform(500.0, 3_000.0), ..content() };
        let seen = played_with(manner, content, SHORT, |settings| {
            pipelined(settings);
            // Where a body is mistaken for a head, nothing that follows is HTTP.
            settings.robots.kinds = Vec::new();
        });
        let reordered = seen.errors.of(Trouble::ReorderedReplies);
        assert!(reordered > 20 && reordered * 10 > held_against(&seen) * 9, "{:?}", seen.errors);
    }
}

#[test]
fn requests_one_behind_the_other_get_their_replies_also_from_those_that_close_early() {
    for habit in [Habit::KeepsConnections, Habit::ClosesEarly, Habit::None] {
        let seen = played_with(Manner { lie: Lie::None, habit }, content(), SHORT, pipelined);
        assert_eq!(held_against(&seen), 0, "{habit:?}: {:?}", seen.errors);
        let client = seen.connections[&cacheoff::ledger::Side::Client];
        let (reused, retried) = (client.reused, client.retried);
        assert!(seen.replies() > 200 && reused > 50, "{habit:?}: {} replies, {reused}", seen.replies());
        assert_eq!(retried > 0, habit != Habit::KeepsConnections, "{habit:?}: {retried}");
    }
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
