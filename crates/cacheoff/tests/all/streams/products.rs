//! Robots speak HTTP/2 and TLS to the products that are installed here, as contests start them, and nothing is held against any.

use crate::official::free_port;
use cacheoff::contest::EntrySpec;
use cacheoff::ledger::{Ledger, Listener, Outcome, Side};
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

const CACHEOFF: &str = env!("CARGO_BIN_EXE_cacheoff");

/// Plays a short workload against an entry, and gives its ledger.
fn played(name: &str, listener: Listener, workload: &str) -> Ledger {
    let folder = tempfile::tempdir().unwrap();
    let knob = match listener {
        Listener::Http => "robot.protocol=http/1.1".to_owned(),
        Listener::Https => "robot.tls=true".to_owned(),
        Listener::H2c | Listener::H2 => format!("robot.protocol={}", listener.as_str()),
    };
    // The debug build of Larder lies beside the referee's.
    let own = Path::new(CACHEOFF).parent().unwrap().display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(CACHEOFF)
        .args([
            "contest",
            "--entries",
            name,
            "--rounds",
            "1",
            "--workload",
            &format!("{workload}:{knob}"),
            "--memory-mb",
            "64",
        ])
        .args(["--port", &free_port().to_string(), "--origin-port", &free_port().to_string(), "--folder"])
        .arg(folder.path())
        .env("PATH", path)
        .output()
        .unwrap();
    let ledgers: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "ledger"))
        .collect();
    assert_eq!(ledgers.len(), 1, "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Ledger::read(BufReader::new(std::fs::File::open(&ledgers[0]).unwrap())).unwrap()
}

const HAMMER: &str = "hammer:variant=16kb:phase.warm.length=500ms:phase.measure.length=1s";

fn each(name: &str) {
    let spec = EntrySpec::builtin(name).unwrap();
    for listener in Listener::ALL.into_iter().filter(|listener| spec.speaks(*listener).is_ok()) {
        let ledger = played(name, listener, HAMMER);
        if let Outcome::Failed(reason) = &ledger.end.outcome {
            let is_not_played =
                ["is not installed", "the machine is too busy"].iter().any(|each| reason.contains(each));
            assert!(is_not_played, "{name} {}: {reason}", listener.as_str());
            return;
        }
        let errors = ledger.intervals.iter().map(|interval| interval.errors.total()).sum::<u64>();
        let exhibits = || ledger.intervals.iter().map(|interval| &interval.errors).collect::<Vec<_>>();
        assert_eq!(errors, 0, "{name} {}: {:?}", listener.as_str(), exhibits());
        let replies = ledger.intervals.iter().map(|interval| interval.replies()).sum::<u64>();
        // Each of the fifteen robots, however busy the machine is.
        assert!(replies >= 15, "{name} {}: {replies} replies", listener.as_str());
        let robots = |of: fn(&cacheoff::ledger::Connections) -> u64| {
            let sides = ledger.intervals.iter().filter_map(|interval| interval.connections.get(&Side::Client));
            sides.map(of).sum::<u64>()
        };
        assert_eq!(robots(|side| side.handshakes) > 0, listener.is_secure(), "{name} {}", listener.as_str());
        assert_eq!(ledger.run.is_http2(), matches!(listener, Listener::H2c | Listener::H2), "{}", ledger.run.protocol);
    }
}

#[test]
fn larder() {
    each("larder");
}

#[test]
fn nginx() {
    each("nginx");
}

#[test]
fn haproxy() {
    each("haproxy");
}

#[test]
fn h2o() {
    each("h2o");
}

#[test]
fn varnish() {
    each("varnish");
}

#[test]
fn apache() {
    each("apache");
}

#[test]
fn squid() {
    each("squid");
}

#[test]
fn trafficserver() {
    each("trafficserver");
}

/// Pages with what they embed, variants, validations, uploads and replies that are broken off, on a few connections.
#[test]
fn browsers_of_today_speak_http2_to_larder() {
    let ledger = played("larder", Listener::H2, "web:peak=60:scale=0.005:server.count=2:server.per_robot=0");
    if let Outcome::Failed(reason) = &ledger.end.outcome {
        assert!(reason.contains("is not installed"), "{reason}");
        return;
    }
    let errors: Vec<_> = ledger.intervals.iter().map(|interval| &interval.errors).filter(|e| e.total() > 0).collect();
    assert!(errors.is_empty(), "{errors:?}");
}
