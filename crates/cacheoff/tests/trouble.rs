//! What can go wrong around a run: each ends with a clear word and a ledger that a report can be made of.

use cacheoff::ledger::{Ledger, Outcome, Trouble};
use std::io::BufReader;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const CACHEOFF: &str = env!("CARGO_BIN_EXE_cacheoff");

/// A short run of `hammer`, with more words, under a shell's limits.
fn hammer(limits: &str, words: &str, ledger: &Path) -> Command {
    let line = format!(
        "{limits} exec {CACHEOFF} run hammer --set phase.warm.length=100ms --set robot.count=60 {words} --ledger {}",
        ledger.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ledger(path: &Path) -> Ledger {
    Ledger::read(BufReader::new(std::fs::File::open(path).unwrap())).unwrap()
}

fn report(path: &Path) -> String {
    let made = Command::new(CACHEOFF).arg("report").arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap()
}

fn errors(ledger: &Ledger, trouble: Trouble) -> u64 {
    ledger.intervals.iter().map(|interval| interval.errors.of(trouble)).sum()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ledger");
    let run = hammer("", "--set phase.measure.length=60s", &path).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let pid = rustix::process::Pid::from_raw(run.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(ledger(&path).end.outcome, Outcome::Interrupted);
    assert!(report(&path).contains("stopped by hand"));
}

#[test]
fn a_full_disk_ends_the_run_with_its_figures() {
    let output = hammer("", "--set phase.measure.length=30s", Path::new("/dev/full")).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output);
    assert!(text.contains("No space left"), "{text}");
}

#[test]
fn without_descriptors_the_run_is_invalid_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ledger");
    let output = hammer("ulimit -n 40;", "--set phase.measure.length=1s", &path).output().unwrap();
    let found = ledger(&path);
    assert!(errors(&found, Trouble::NoDescriptors) > 0, "{}", said(&output));
    assert!(report(&path).contains("ran out of descriptors"));
}

#[test]
fn a_proxy_that_dies_is_counted_and_the_run_goes_on_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ledger");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It takes connections for a second, answers none of them, and is gone.
    let dies = std::thread::spawn(move || {
        listener.set_nonblocking(true).unwrap();
        let (mut held, begun) = (Vec::new(), std::time::Instant::now());
        while begun.elapsed() < Duration::from_secs(1) {
            held.extend(listener.accept());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let words = format!("--proxy {address} --set phase.measure.length=3s");
    let output = hammer("", &words, &path).output().unwrap();
    dies.join().unwrap();
    let found = ledger(&path);
    assert_eq!(found.end.outcome, Outcome::Complete, "{}", said(&output));
    assert!(errors(&found, Trouble::Reset) > 0 && errors(&found, Trouble::ConnectRefused) > 0);
    assert!(report(&path).contains("of the requests failed"));
}

#[test]
fn what_cannot_be_played_is_refused_with_its_knobs_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("--set robot.protocol=http/2", "robot.protocol"),
        ("--site https://127.0.0.1:1", "--ca FILE"),
        ("--site http://127.0.0.1:1 --tls --insecure", "https://"),
        ("--site https://127.0.0.1:1 --insecure --ca-out /dev/null", "--ca-out"),
        ("--tls --ca /dev/null", "no PEM certificate"),
        ("--insecure", "--tls"),
    ];
    for (words, name) in cases {
        let output = hammer("", words, &folder.path().join("run.ledger")).output().unwrap();
        assert!(!output.status.success() && said(&output).contains(name), "{words}: {}", said(&output));
    }
}
