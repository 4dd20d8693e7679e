//! Robots that speak HTTP/2 to a proxy that does one thing wrong: each has its name in the report, no robot hangs, and a proxy that is
//! only unusual is accused of nothing.

mod products;
mod server;

use super::lies::{content, law, order, settings, whole};
use crate::official::free_port;
use cacheoff::distribution::Distribution;
use cacheoff::engine::Settings;
use cacheoff::ledger::{Class, Interval, Ledger, Outcome, Side, Trouble};
use cacheoff::origin::Fault;
use cacheoff::robot::{Pace, Special, StreamSettings};
use cacheoff::run::{route, run};
use server::Manner;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CACHEOFF: &str = env!("CARGO_BIN_EXE_cacheoff");
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
        let client = seen.connections.get(&Side::Client).copied().unwrap_or_default();
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

/// A host whose connection is full holds back the requests to it, and to no other.
#[test]
fn requests_to_one_host_do_not_wait_for_another() {
    let seen = played(Manner::SilentAtFirst, |settings| {
        let address = settings.route.address.unwrap();
        settings.route = route(None, Some((address, String::new())), 0);
        settings.robots.streams = Some(StreamSettings { streams_max: 1, ..StreamSettings::default() });
        (settings.robots.count, settings.robots.pace) = (1, Pace::Poisson(40.0));
        settings.robots.kinds.clear();
        settings.origins.think = None;
    });
    // About half of sixty are for each of the two hosts.
    assert!(seen.replies() > 5, "{} replies: {:?}", seen.replies(), seen.errors);
}

/// A connection that was never made was closed by nobody.
#[test]
fn refused_connections_are_not_counted_as_closed() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let seen = played(Manner::Honest, |settings| settings.route.address = Some(closed));
    assert!(seen.errors.of(Trouble::ConnectRefused) > 10, "{:?}", seen.errors);
    let client = seen.connections.get(&Side::Client).copied().unwrap_or_default();
    assert_eq!((client.closed, client.closed_by_cache), (0, 0));
}

/// Robots keep the connections that they have. Where there are no more files, those of others that nobody uses end.
#[test]
fn at_the_limit_of_open_files_robots_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ledger");
    let line = format!(
        "ulimit -n 100; exec {CACHEOFF} run hammer --variant open --peak 40 --proxy {} --origin-port 0 --set robot.protocol=h2c \
         --set 'robot.pace=poisson(0.6)' --set phase.warm.length=100ms --set phase.measure.length=4s --ledger {}",
        server::start(Manner::Honest),
        path.display()
    );
    let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
    assert!(path.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = whole(&Ledger::read(BufReader::new(std::fs::File::open(&path).unwrap())).unwrap());
    assert!(seen.replies() > 50, "{}", seen.replies());
    // For a moment all may be in use.
    assert!(seen.errors.of(Trouble::NoDescriptors) * 10 < seen.replies(), "{:?}", seen.errors);
}

/// An agent, until the test is over.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn agents_play_http2_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("token"), "a token of thirty-two characters").unwrap();
    std::fs::set_permissions(at("token"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut fleet = format!("token_file = \"token\"\norigin_port = {}\n", free_port());
    let mut agents = Vec::new();
    for number in 1..3 {
        let control = format!("127.0.0.1:{}", free_port());
        let words = ["agent", "--listen", &control, "--token-file"];
        let mut command = Command::new(CACHEOFF);
        command.args(words).arg(at("token")).stdin(Stdio::null()).stderr(Stdio::null());
        agents.push(Agent(command.spawn().unwrap()));
        let own = format!("[\"127.97.{}.{number}\"]", std::process::id() % 250);
        fleet +=
            &format!("[[agent]]\nname = \"m{number}\"\ncontrol = \"{control}\"\nrobots = {own}\norigins = {own}\n");
        while std::net::TcpStream::connect(&control).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    std::fs::write(at("agents.toml"), fleet).unwrap();
    let words = "run hammer --variant open --peak 80 --set robot.protocol=h2c \
                 --set phase.warm.length=200ms --set phase.measure.length=2s";
    let output = Command::new(CACHEOFF)
        .args(words.split_whitespace())
        .args(["--proxy", &server::start(Manner::Honest).to_string(), "--agents"])
        .args([at("agents.toml"), "--ledger".into(), at("all.ledger")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(at("all.ledger").exists(), "{said}");
    let ledger = Ledger::read(BufReader::new(std::fs::File::open(at("all.ledger")).unwrap())).unwrap();
    let seen = whole(&ledger);
    assert_eq!((errors(&seen), ledger.run.is_http2(), ledger.run.agents.len()), (0, true, 2), "{:?}", seen.errors);
    // The proxy stores nothing, which the notes of the other machine tell as well.
    let basic = seen.class(Class::Basic);
    assert!(basic.replies > 50 && basic.hits == 0, "{} replies, {} hits: {said}", basic.replies, basic.hits);
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
