//! The entries that are installed on this machine really start, cache, keep the origin's bytes, and end without a rest.
//!
//! An entry that is not installed is passed over: that its absence is reported is tested with the contest.

use cacheoff::contest::{EntrySpec, Post, Prepared};
use cacheoff::kill::origin::Origin;
use cacheoff::kill::probe::{Found, Probe};
use std::time::Duration;

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Whether the second request for an object is a hit: where the entry has a cache.
fn second_is_a_hit(name: &str, store: &str) -> bool {
    name != "h2o" && store != "pass"
}

fn play(name: &str, mode: &str, store: &str) -> Result<(), String> {
    let origin = Origin::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let post = Post {
        mode: mode.to_owned(),
        store: store.to_owned(),
        port: free_port(),
        origin: origin.address(),
        memory_mb: 64,
        disk_mb: 256,
        cores: vec![0],
    };
    let prepared = Prepared::new(EntrySpec::builtin(name)?, post)?;
    prepared.prepare()?;
    let running = prepared.start()?;
    let pid = running.pid().unwrap();
    let probe =
        Probe { cache: running.address, forward: mode == "forward", origin: &origin, timeout: Duration::from_secs(5) };
    let expect = |found: Found, wanted: &Found, what: &str| match found == *wanted {
        true => Ok(()),
        false => Err(format!("{name} {mode} {store}, {what}: {found:?} instead of {wanted:?}")),
    };
    // Traffic Server opens its disk store a moment after it answers.
    let second = if second_is_a_hit(name, store) { Found::Hit } else { Found::Miss };
    for turn in 0..20 {
        let found = probe.ask(&format!("/warm/{}", turn / 4));
        match found == second {
            true => break,
            false if turn == 19 => return Err(format!("{name} {mode} {store} stored nothing: {found:?}")),
            false => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    // A store may leave an object out when the machine is busy, not one after the other.
    let seconds = (0..10).map(|turn| {
        let object = format!("/a/{turn}");
        expect(probe.ask(&object), &Found::Miss, "the first request")?;
        std::thread::sleep(Duration::from_millis(50));
        expect(probe.ask(&object), &second, "the second request")
    });
    first_good(seconds)?;
    expect(probe.ask("/b"), &Found::Miss, "another object")?;
    let family = cacheoff::proc::tree(pid);
    running.stop();
    let runs = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    match family.iter().any(runs) {
        true => Err(format!("{name}: {family:?} is left behind")),
        false => Ok(()),
    }
}

/// Good when one of them is; else what the last one says.
fn first_good(mut tries: impl Iterator<Item = Result<(), String>>) -> Result<(), String> {
    let mut said = Ok(());
    tries.any(|tried| {
        said = tried;
        said.is_ok()
    });
    said
}

fn each(name: &str) {
    let spec = EntrySpec::builtin(name).unwrap();
    let mut failures = Vec::new();
    for (mode, store) in spec.mode.keys().flat_map(|mode| spec.store.keys().map(move |store| (mode, store))) {
        match play(name, mode, store) {
            Ok(()) => {}
            Err(reason) if reason.contains("is not installed") => return,
            Err(reason) => failures.push(reason),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn squid() {
    each("squid");
}

#[test]
fn nginx() {
    each("nginx");
}

#[test]
fn varnish() {
    each("varnish");
}

#[test]
fn trafficserver() {
    each("trafficserver");
}

#[test]
fn haproxy() {
    each("haproxy");
}

#[test]
fn apache() {
    each("apache");
}

#[test]
fn h2o() {
    each("h2o");
}

#[test]
fn larder() {
    each("larder");
}
