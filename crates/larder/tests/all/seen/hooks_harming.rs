//! Hooks that write into whatever their process has open, or that close it: such a process is ended and replaced, and nobody else is harmed.

use super::hooks::status;
use super::hooks_answers::Stage;
use super::metrics::samples;
use super::stand::{self, body, wait_for};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A hook for each way to harm, which then goes on or hangs.
const HARMING: &str = r#"
import larder, os, signal, stat, struct, sys, threading, time

def attempt(work, *arguments):
    try:
        work(*arguments)
    except OSError:
        pass

def all_descriptors(work, *arguments):
    for fd in range(3, 64):
        attempt(work, fd, *arguments)

@larder.request(path="/garbage")
def garbage(req):
    all_descriptors(os.write, b"\xff" * 4096)

@larder.request(path="/garbage/hangs")
def garbage_and_hangs(req):
    note_pid()
    all_descriptors(os.write, b"\xff" * 4096)
    while True:
        pass

@larder.request(path="/garbage/small")
def small_garbage_and_hangs(req):
    note_pid()
    all_descriptors(os.pwrite, b"\xff" * 16, 0)
    while True:
        pass

@larder.request(path="/closes")
def closes(req):
    all_descriptors(os.close)

@larder.request(path="/closes/hangs")
def closes_and_hangs(req):
    note_pid()
    all_descriptors(os.close)
    while True:
        pass

def running():
    frame = sys._getframe()
    while "running" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["running"]

@larder.request(path="/lies")
def lies(req):
    note_pid()
    note = running()
    number = struct.unpack_from("<I", note, 8)[0]
    while True:
        struct.pack_into("<QIHH", note, 0, time.perf_counter_ns(), number, 0, 0)
        time.sleep(0.0001)

@larder.request(path="/lies/wildly")
def lies_wildly(req):
    note_pid()
    running()[:] = b"\xff" * 16
    while True:
        pass

@larder.request(path="/forges")
def forges(req):
    all_descriptors(write_report, b'\n{"failed": {"traceback": "forged"}}\n')

def write_report(fd, text):
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.write(fd, text)

@larder.request(path="/dies")
def dies(req):
    os.kill(os.getpid(), signal.SIGKILL)

def note_pid():
    with open("culprit", "w") as file:
        file.write(str(os.getpid()))
"#;

fn stage(python: &str) -> Stage {
    Stage::open(HARMING, python, |text| {
        assert!(text.contains("workers = 2\n"), "{text}");
        text.replace("admin = \"none\"", "admin = \"127.0.0.1:0\"")
    })
}

fn shown(stage: &Stage) -> Value {
    let text = stand::ask(stage.steered.server.admin().unwrap(), "/scripts");
    serde_json::from_str::<Value>(body(&text)).unwrap()["applications"][0].clone()
}

fn pids(stage: &Stage) -> Vec<u64> {
    let processes = shown(stage)["processes"].as_array().unwrap().clone();
    processes.iter().map(|process| process["pid"].as_u64().unwrap()).collect()
}

/// Waits until a process serves that is none of these.
fn replaced(stage: &Stage, before: &[u64]) {
    wait_for("another process serves", || {
        let now = pids(stage);
        now.len() == 1 && !now.iter().any(|pid| before.contains(pid))
    });
}

/// The answer of the program to a command.
fn larder(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.args(words).arg("--config").arg(folder.join("larder.toml")).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// Waits until the process that noted its number has ended.
fn culprit_is_gone(stage: &Stage) {
    let pid = std::fs::read_to_string(stage.folder.path().join("culprit")).unwrap();
    wait_for("the process ends", || !Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_process_that_wrote_garbage_or_closed_its_connections_is_replaced_and_told() {
    let stage = stage("standby = 1\nhook_time = \"2s\"\n");
    for path in ["/garbage", "/closes"] {
        assert_eq!(status(&stage.ask("/other", "")), "200");
        let before = pids(&stage);
        stage.ask(path, "");
        replaced(&stage, &before);
        for _ in 0..4 {
            assert_eq!(status(&stage.ask("/other", "")), "200", "after {path}");
        }
    }
    let counts = || shown(&stage)["counts"].clone();
    // The one that closed all of its descriptors ends by itself most likely, which is known a moment later.
    wait_for("both are counted", || {
        let count = |name: &str| counts()[name].as_u64().unwrap();
        count("broken") >= 1 && count("broken") + count("ended") >= 2 && count("hung") == 0
    });
    let failures = stage.failures();
    assert!(failures.iter().any(|text| text.contains("it wrote what is no reply to a call")), "{failures:?}");
    let metrics = samples(body(&stand::ask(stage.steered.server.admin().unwrap(), "/metrics")));
    let broken = "larder_script_processes_ended_total{application=\"hooks:policy.py\",reason=\"broken\"}";
    assert!(metrics.get(broken).is_some_and(|count| *count >= 1.0), "{metrics:?}");
    let text = larder(stage.folder.path(), &["scripts", "policy.py"]);
    assert!(
        text.contains("because their connections broke ") && text.contains("was ended: it wrote what is no"),
        "{text}"
    );
}

/// Also where it has written into the note by which a call that hangs is known.
#[test]
fn no_call_goes_on_past_its_time_whatever_it_has_written() {
    // Without a bound of its own, a note that lies would hold for twenty times that, the patience of a request.
    let stage = stage("standby = 1\nhook_time = \"400ms\"\n");
    assert_eq!(status(&stage.ask("/other", "")), "200");
    for path in ["/garbage/hangs", "/garbage/small", "/closes/hangs", "/lies", "/lies/wildly"] {
        let before = pids(&stage);
        let asked = Instant::now();
        let answer = stage.ask(path, "");
        assert!(asked.elapsed() < Duration::from_secs(7), "{path}: the note was believed");
        assert!(status(&answer).starts_with('5'), "{path}: {answer}");
        culprit_is_gone(&stage);
        replaced(&stage, &before);
        assert_eq!(status(&stage.ask("/other", "")), "200", "after {path}");
    }
    let failures = stage.failures();
    assert!(failures.iter().any(|text| text.contains("it closed a connection and did not end")), "{failures:?}");
    assert!(failures.iter().any(|text| text.contains("can't be true")), "{failures:?}");
}

/// It says that it can't be loaded, which is the word of a process that has not served yet.
#[test]
fn a_process_that_served_and_says_that_it_can_not_be_loaded_is_replaced_and_told() {
    let stage = stage("standby = 1\nhook_time = \"2s\"\n");
    assert_eq!(status(&stage.ask("/other", "")), "200");
    let before = pids(&stage);
    stage.ask("/forges", "");
    replaced(&stage, &before);
    assert_eq!(status(&stage.ask("/other", "")), "200");
    let failures = stage.failures();
    let told = "was ended: it said that it can't be loaded, though it served";
    assert!(failures.iter().any(|text| text.contains(told)), "{failures:?}");
    let shown = shown(&stage);
    assert!(shown["counts"]["broken"].as_u64() >= Some(1) && shown["state"] == "serving", "{shown}");
}

/// Its first process puts a pipe in the place of its socket before it says that it is ready: whichever worker asks first is refused.
const DEAF: &str = r#"
import larder, os, socket

if not os.path.exists("was_deaf"):
    open("was_deaf", "w").close()
    for fd in range(3, 64):
        try:
            with socket.socket(fileno=os.dup(fd)) as sock:
                accepts = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError:
            continue
        if accepts:
            os.dup2(os.pipe()[0], fd)

@larder.page("/page")
def page(req):
    return "a page"
"#;

#[test]
fn a_process_that_has_closed_its_socket_is_found_and_replaced() {
    let stage = Stage::open(DEAF, "hook_time = \"2s\"\n", |text| text);
    let answer = stage.ask("/page", "");
    assert!(status(&answer) == "200" && body(&answer) == "a page", "{answer}");
    let failures = stage.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("was ended: it closed its socket and did not end"), "{failures:?}");
}

/// The system closes the sockets of a process before anybody can know that it has ended.
#[test]
fn a_process_that_ends_is_not_said_to_have_closed_its_socket() {
    let stage = stage("standby = 2\nhook_time = \"2s\"\n");
    let proxy = stage.proxy;
    let ask = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
        stand::exchange(proxy, &head)
    };
    for _ in 0..4 {
        let before = pids(&stage);
        std::thread::scope(|scope| {
            // Each on a connection of its own, so that both workers ask.
            scope.spawn(|| ask("/dies"));
            (0..16).for_each(|_| drop(scope.spawn(|| ask("/other"))));
        });
        wait_for("another process serves", || pids(&stage).first().is_some_and(|pid| !before.contains(pid)));
    }
    let failures = stage.failures();
    assert!(!failures.iter().any(|text| text.contains("it closed")), "{failures:?}");
    let counts = shown(&stage)["counts"].clone();
    assert_eq!((counts["broken"].as_u64(), counts["ended"].as_u64() >= Some(4)), (Some(0), true), "{counts}");
}
