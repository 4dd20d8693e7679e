//! Tests of trouble around a run: each ends with a clear word and a ledger that a report can be made of.

use super::official::free_port;
use cacheoff::ledger::{Class, Ledger, Outcome, Trouble};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
fn ctrl_c_and_a_request_to_end_keep_what_was_measured() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ledger");
        let run = hammer("", "--set phase.measure.length=60s", &path).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(3));
        kill_process(Pid::from_raw(run.id() as i32).unwrap(), signal).unwrap();
        let output = run.wait_with_output().unwrap();
        assert!(output.status.success(), "{signal:?}: {}", said(&output));
        assert_eq!(ledger(&path).end.outcome, Outcome::Interrupted);
        assert!(report(&path).contains("stopped by hand"));
    }
}

/// An entry of which nothing is known but how it is started: it sleeps, so that it is never ready.
fn entry_that_sleeps(folder: &Path) {
    let text = "name = \"sleeper\"\nproduct = \"x\"\nprogram = \"sh\"\nversion = [\"-c\", \"echo 1\"]\n\
                start = [\"-c\", \"echo $$ > @dir@/../pid-of-sleeper; exec sleep 600\"]\nready_s = 600\n\
                [mode.reverse]\n[store.memory]\n";
    std::fs::write(folder.join("entry.toml"), text).unwrap();
}

/// The process of the entry, once it runs; each entry has a folder of its own below `folder`.
fn pid_in(folder: &Path) -> i32 {
    for _ in 0..1_200 {
        std::thread::sleep(Duration::from_millis(50));
        let text = std::fs::read_to_string(folder.join("pid-of-sleeper")).unwrap_or_default();
        if let Ok(pid) = text.trim().parse() {
            return pid;
        }
    }
    panic!("the entry was not started");
}

/// A signal while a cache is started, or at any other time, leaves none behind.
#[test]
fn signals_end_the_caches_of_a_contest_too() {
    for signals in [&[Signal::TERM][..], &[Signal::INT], &[Signal::TERM, Signal::TERM]] {
        let folder = tempfile::tempdir().unwrap();
        entry_that_sleeps(folder.path());
        let contest = Command::new(CACHEOFF)
            .args(["contest", "--entries", "", "--port", &free_port().to_string(), "--workload", "hammer", "--entry"])
            .arg(folder.path())
            .arg("--folder")
            .arg(folder.path().join("ledgers"))
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let cache = pid_in(folder.path());
        for signal in signals {
            let _ = kill_process(Pid::from_raw(contest.id() as i32).unwrap(), *signal);
        }
        let output = contest.wait_with_output().unwrap();
        // A killed process stays in the table until the kernel removes it.
        let runs = || std::fs::read_to_string(format!("/proc/{cache}/stat")).is_ok_and(|stat| !stat.contains(") Z"));
        let goes_on = (0..200).all(|_| {
            std::thread::sleep(Duration::from_millis(20));
            runs()
        });
        assert!(!goes_on, "{signals:?}: the cache goes on; {}", said(&output));
    }
}

/// Started with these words, it gets the signal when `is_ready`; gives its status and all that it said.
fn ended_by(signal: Signal, words: &[&str], is_ready: impl Fn() -> bool) -> (Option<i32>, String) {
    let command = Command::new(CACHEOFF)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ready = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        is_ready()
    });
    assert!(ready, "{words:?} did not begin");
    kill_process(Pid::from_raw(command.id() as i32).unwrap(), signal).unwrap();
    let output = command.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output))
}

#[test]
fn signals_end_what_only_measures_in_order() {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = || asked.swap(false, Relaxed);
    let figures =
        "Active connections: 1 \nserver accepts handled requests\n 7 7 9 \nReading: 0 Writing: 1 Waiting: 0 \n";
    let answer = format!("HTTP/1.0 200 OK\r\n\r\n{figures}");
    for signal in [Signal::INT, Signal::TERM] {
        // A server that closes after each answer: both commands wait for a minute after their first.
        let address = closer(answer.clone(), Arc::clone(&asked)).to_string();
        let (status, text) = ended_by(signal, &["record", "nginx", &address, "--watch-s", "60"], seen);
        assert_eq!(status, Some(0), "{signal:?}: {text}");
        assert!(text.contains("stopping; ") && text.contains("| nginx"), "{signal:?}: {text}");
        let (status, text) = ended_by(signal, &["msl", &address, "--watch-s", "60"], seen);
        assert_eq!(status, Some(1), "{signal:?}: {text}");
        assert!(text.contains("watched for"), "{signal:?}: {text}");
        let port = free_port();
        let words = ["ceiling", "--seconds", "60", "--core", "0", "--port", &port.to_string()];
        let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let (status, text) = ended_by(signal, &words, answers);
        assert_eq!(status, Some(0), "{signal:?}: {text}");
        assert!(text.contains("| cacheoff, 15 robots |") && text.contains("are not made"), "{signal:?}: {text}");
        assert!(!answers(), "{signal:?}: the responder goes on");
    }
}

/// Answers each connection with this, ends it, and says so.
fn closer(answer: String, asked: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            drop(stream);
            asked.store(true, Relaxed);
        }
    });
    address
}

/// Answers whatever is asked with these bytes, until the test is over.
fn responder(reply: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|len| len > 0) {
                    let _ = stream.write_all(reply.as_bytes());
                }
            });
        }
    });
    address
}

#[test]
fn wrong_answers_and_refusals_fail_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = responder("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong");
    let refuses = responder("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    for (proxy, reason) in [(wrong, "answers were wrong"), (refuses, "failed"), (nobody, "failed")] {
        let words = format!("--proxy {proxy} --set phase.measure.length=500ms");
        let output = hammer("", &words, &folder.path().join("run.ledger")).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{proxy}: {}", said(&output));
        assert!(said(&output).contains(reason), "{}", said(&output));
    }
    let output = hammer("", "--set phase.measure.length=500ms", &folder.path().join("run.ledger")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_is_wrong_with_the_flags_of_a_contest_is_said_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    entry_that_sleeps(folder.path());
    let cases = [
        (&["--threshold", "p99<<20ms"][..], "threshold"),
        (&["--threshold", "speed>1"], "unknown metric"),
        (&["--html", "/nowhere/at/all.html"], "/nowhere/at"),
        (&["--workload", "hammer:robot.cuont=2"], "robot.cuont"),
        (&["--workload", "no-such-workload"], "no-such-workload"),
    ];
    for (words, reason) in cases {
        let contest = Command::new(CACHEOFF)
            .args(["contest", "--entries", "", "--folder"])
            .arg(folder.path().join("ledgers"))
            .arg("--entry")
            .arg(folder.path())
            .args(words)
            .env("TMPDIR", folder.path())
            .output()
            .unwrap();
        assert_eq!(contest.status.code(), Some(2), "{words:?}: {}", said(&contest));
        assert!(said(&contest).contains(reason), "{words:?}: {}", said(&contest));
        assert!(!folder.path().join("pid-of-sleeper").exists(), "{words:?}: a cache was started");
    }
}

/// Thousands of requests wait for a cache that says nothing; when it dies, each of them fails to connect, at once and one
/// after the other.
#[test]
fn thousands_of_failing_connects_in_a_row_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ledger");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dies = std::thread::spawn(move || {
        let held = listener.accept();
        std::thread::sleep(Duration::from_secs(4));
        drop(held);
    });
    let words = format!(
        "--variant open --peak 3000 --proxy {address} --set robot.count=1 --set robot.pace='poisson(3000)' \
         --set phase.measure.length=6s"
    );
    let output = hammer("", &words, &path).output().unwrap();
    dies.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let found = ledger(&path);
    assert_eq!(found.end.outcome, Outcome::Complete, "{}", said(&output));
    let refused = errors(&found, Trouble::ConnectRefused);
    assert!(refused > 5_000, "{refused} were refused");
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
    // It takes connections for a second from the first on, answers none of them, and is gone.
    let dies = std::thread::spawn(move || {
        let mut held = vec![listener.accept().unwrap()];
        listener.set_nonblocking(true).unwrap();
        let begun = std::time::Instant::now();
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
        ("--set robot.protocol=h2c", "robot.protocol h2c or h2 without a cache"),
        ("--site http://127.0.0.1:1 --set robot.protocol=h2", "write the --site as https://"),
        ("--proxy 127.0.0.1:1 --set robot.protocol=h2 --insecure", "through tunnels"),
        ("--site https://127.0.0.1:1 --insecure --set robot.protocol=h2c", "h2c over TLS"),
        ("--proxy 127.0.0.1:1 --set robot.protocol=h2c --set robot.pipeline=2", "robot.pipeline"),
        ("--proxy 127.0.0.1:1 --set robot.protocol=h2c --variant close", "robot.connection_uses 1 over HTTP/2"),
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

/// Robots of a fill keep a connection to each server that they have met. With few open files the oldest ones end, and no request fails;
/// with far too few the run is invalid, and the referee does not try again without a pause.
#[test]
fn a_low_limit_of_open_files_costs_connections_and_not_requests() {
    let folder = tempfile::tempdir().unwrap();
    let fill = |files: u32, bytes: u32| {
        let path = folder.path().join(format!("{files}.ledger"));
        let line = format!(
            "ulimit -n {files}; exec {CACHEOFF} run polyfill-2 --peak 200 --scale 0.0005 --cache-bytes {bytes} --seed 7 \
             --origin-port 0 --ledger {}",
            path.display()
        );
        let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
        assert!(path.exists(), "{}", said(&output));
        ledger(&path)
    };
    let few = fill(1_600, 6_000_000);
    assert!(few.intervals.iter().map(|interval| interval.class(Class::All).replies).sum::<u64>() > 500);
    assert_eq!(errors(&few, Trouble::NoDescriptors), 0);
    let too_few = fill(130, 200_000);
    assert!(errors(&too_few, Trouble::NoDescriptors) < 20_000, "{}", errors(&too_few, Trouble::NoDescriptors));
    // The times of the machine could be read all the time: nobody used more of it than it has.
    let cores = std::thread::available_parallelism().unwrap().get() as f32;
    let loads = |ledger: &Ledger| ledger.intervals.iter().filter_map(|interval| interval.load).collect::<Vec<_>>();
    for load in loads(&few).into_iter().chain(loads(&too_few)) {
        assert!(load.others_cpu <= 2.0 * cores, "{} cores were taken by others", load.others_cpu);
    }
}
