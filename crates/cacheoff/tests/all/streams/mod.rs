//! Robots that speak HTTP/2 to a proxy that does one thing wrong: each has its name in the report, no robot hangs, and a proxy that is
//! only unusual is accused of nothing.

mod products;
mod server;

use super::lies::{content, law, order, settings, whole};
use cacheoff::distribution::Distribution;
use cacheoff::engine::Settings;
use cacheoff::ledger::{Interval, Outcome, Side, Trouble};
use cacheoff::origin::Fault;
use cacheoff::robot::{Pace, Special, StreamSettings};
use cacheoff::run::run;
use server::Manner;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(1500);

fn played(manner: Manner, change: impl FnOnce(&mut Settings)) -> Interval {
    let mut settings = settings(law(content()), server::start(manner));
    settings.robots.streams = Some(StreamSettings::default());
    settings.robots.pace = Pace::Poisson(20.0);
    settings.robots.kinds.extend([(Special::Post, 0.1), (Special::Head, 0.1)]);
    settings.robots.post_bytes = Distribution::Uniform(1.0, 200.0);
    // On a busy machine an answer takes its time; only those that never come are to be late.
    settings.robots.timeout = Duration::from_secs(10);
    settings.origins.think = Some(Distribution::Constant(0.02));
    change(&mut settings);
    let ledger = run(order(settings, SHORT)).unwrap();
    assert_eq!(ledger.end.outcome, Outcome::Complete);
    whole(&ledger)
}

/// Errors of any kind, without the remarks.
fn errors(seen: &Interval) -> u64 {
    Trouble::ALL.iter().filter(|trouble| !trouble.is_remark()).map(|trouble| seen.errors.of(*trouble)).sum()
}

#[test]
fn a_proxy_that_is_only_unusual_is_accused_of_nothing() {
    for manner in [
        Manner::Honest,
        Manner::LeavesInOrder,
        Manner::RefusesSome,
        Manner::PermitsTwo,
        Manner::Pads,
        Manner::OpensSlowly,
    ] {
        let seen = played(manner, |settings| {
            settings.robots.abort = 0.05;
            settings.robots.expect_continue = 0.0;
        });
        assert_eq!(errors(&seen), 0, "{manner:?}: {:?}", seen.errors);
        let client = seen.connections[&Side::Client];
        assert!(seen.replies() > 50, "{manner:?}: {} replies", seen.replies());
        // Each of ten robots meets one proxy.
        match manner {
            Manner::LeavesInOrder => assert!(client.opened > 20, "{manner:?}: {}", client.opened),
            _ => assert_eq!(client.opened, 10, "{manner:?}"),
        }
        assert_eq!(client.retried > 0, matches!(manner, Manner::LeavesInOrder | Manner::RefusesSome), "{manner:?}");
    }
}

#[test]
fn requests_of_a_robot_go_side_by_side_up_to_the_limit() {
    for (streams_max, least_ms) in [(100, 0), (1, 200)] {
        let seen = played(Manner::Honest, |settings| {
            settings.robots.streams = Some(StreamSettings { streams_max, ..StreamSettings::default() });
            settings.robots.pace = Pace::Poisson(50.0);
            settings.robots.count = 2;
            settings.robots.kinds.clear();
            settings.origins.think = Some(Distribution::Constant(0.05));
        });
        assert_eq!(seen.errors.of(Trouble::Timeout), 0, "{:?}", seen.errors);
        // Fifty requests of 50 ms each second wait for each other, unless they go side by side.
        let waited = seen.wait.quantile(0.9).unwrap_or(0);
        assert_eq!(waited >= least_ms * 1_000 && waited > 0, least_ms > 0, "{streams_max}: {waited}");
    }
}

/// A manner, its name in the report, and what else may come of it.
const CASES: [(Manner, Trouble, &[Trouble]); 21] = [
    (Manner::RefusesAll, Trouble::StreamRefused, &[]),
    (Manner::SwapsStreams, Trouble::ReorderedReplies, &[Trouble::Timeout]),
    (Manner::IdleStream, Trouble::UnaskedReply, &[Trouble::ConnectionError]),
    (Manner::DataAfterEnd, Trouble::SurplusBytes, &[Trouble::ConnectionError]),
    (Manner::HeadAfterEnd, Trouble::UnaskedReply, &[Trouble::ConnectionError]),
    (Manner::Pushes, Trouble::PushedPromise, &[]),
    (Manner::LeavesInTheMiddle, Trouble::GoAway, &[]),
    (Manner::Resets, Trouble::StreamReset, &[]),
    (Manner::ResetsAtOnce, Trouble::StreamReset, &[]),
    (Manner::ShutsWindow, Trouble::WindowClosed, &[Trouble::Timeout]),
    (Manner::Silent, Trouble::Timeout, &[]),
    (Manner::NoSettings, Trouble::ConnectionError, &[]),
    (Manner::ConnectionField, Trouble::ConnectionField, &[]),
    (Manner::Capitals, Trouble::Malformed, &[]),
    (Manner::Overflows, Trouble::StreamError, &[]),
    (Manner::BodyFirst, Trouble::StreamError, &[]),
    (Manner::BreaksTable, Trouble::ConnectionError, &[]),
    (Manner::LongFrame, Trouble::ConnectionError, &[]),
    (Manner::OldVersion, Trouble::ConnectionError, &[Trouble::Reset]),
    (Manner::EndsEarly, Trouble::Truncated, &[]),
    (Manner::NoStatus, Trouble::Malformed, &[]),
];

#[test]
fn each_fault_has_its_name_and_robots_go_on() {
    let others = [
        (Manner::HangsUp, Trouble::Truncated, &[Trouble::Reset][..]),
        (Manner::BodiesForHead, Trouble::HeadBody, &[]),
        (Manner::Surplus, Trouble::SurplusBytes, &[]),
    ];
    for (manner, expected, also) in CASES.into_iter().chain(others) {
        let seen = played(manner, |settings| {
            if matches!(manner, Manner::ShutsWindow | Manner::Silent) {
                settings.robots.timeout = Duration::from_secs(1);
            }
            if manner == Manner::SwapsStreams {
                // Heads and parts have faults of their own on another stream.
                settings.robots.kinds.clear();
            }
            if manner == Manner::Overflows {
                let small = StreamSettings { stream_window_bytes: 1_000, ..StreamSettings::default() };
                settings.robots.streams = Some(small);
            }
        });
        let named = seen.errors.of(expected);
        let rest: u64 = also.iter().map(|trouble| seen.errors.of(*trouble)).sum();
        assert!(named >= 10, "{manner:?}: {named} of {:?}", seen.errors);
        assert_eq!(errors(&seen), named + rest, "{manner:?}: {:?}", seen.errors);
    }
}

/// A spoilt answer of the origin is none of the proxy's, if the proxy says so by the end of the stream.
#[test]
fn faults_of_the_origin_are_excused_where_the_proxy_passes_them_on() {
    let seen = played(Manner::EndsEarly, |settings| {
        settings.origins.faults = vec![(Fault::Truncate, 1.0)];
        settings.robots.kinds.clear();
    });
    assert_eq!((errors(&seen), seen.replies()), (0, 0), "{:?}", seen.errors);
    assert!(seen.incomplete > 20, "{}", seen.incomplete);
}
