//! Requests that wait for hooks without a task: which way they go afterwards, and how they end.

#![cfg(test)]

use super::tests::Stage;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const POLICY: &str = r#"
import larder, time, zlib

@larder.request(path="/fresh/**")
def goes_on(req):
    if "x-slow" in req.headers:
        time.sleep(0.3)
    if "x-user" in req.headers:
        req.headers["x-user"] = "somebody"

@larder.page("/page")
def page(req):
    return "a page"

@larder.request(path="/none/naps")
def naps(req):
    time.sleep(2)
"#;

fn stage(folder: &Path, more: &str) -> Stage {
    std::fs::write(folder.join("policy.py"), POLICY).unwrap();
    let text = format!(
        "[forward]\nhooks = [\"policy.py\"]\n[[python]]\nname = \"policy\"\nfolder = \"{}\"\nprocesses = 1\nhook_time = \"10s\"\n{more}",
        folder.display()
    );
    Stage::open(folder, &text)
}

fn get(path: &str, more: &str) -> String {
    format!("GET http://ORIGIN/{path} HTTP/1.1\r\nHost: ORIGIN\r\n{more}\r\n")
}

fn closing(path: &str, more: &str) -> String {
    get(path, &format!("Connection: close\r\n{more}"))
}

#[test]
fn a_hit_and_a_page_are_answered_without_an_exchange_and_a_miss_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(folder.path(), "");
    let (travel, replied) = ("X-Test-Break: travel\r\n", "X-Test-Break: replied\r\n");
    let mut asked = 0;
    let mut expect = |bytes: String, start: &str, part: &str| {
        asked += 1;
        let answer = stage.say(stage.proxy, &bytes);
        assert!(answer.starts_with(&format!("HTTP/1.1 {start} ")) && answer.contains(part), "{bytes}{answer}");
    };
    expect(closing("fresh/a", ""), "200", "fwd=uri-miss");
    expect(closing("fresh/a", travel), "200", "; hit");
    expect(closing("fresh/a", replied), "500", "mistake");
    expect(closing("page", travel), "200", "a page");
    expect(closing("page", replied), "500", "mistake");
    expect(closing("fresh/b", travel), "500", "mistake");
    // A hook has changed a field, which counts in the key.
    expect(closing("fresh/a", "X-User: u\r\n"), "200", "fwd=uri-miss");
    expect(closing("fresh/a", &format!("X-User: other\r\n{travel}")), "200", "; hit");
    // Others are asked in an exchange: it reads a body, and answers conditions.
    expect(closing("fresh/a", &format!("Range: bytes=0-1\r\n{travel}")), "500", "mistake");
    expect(closing("fresh/a", "Range: bytes=0-1\r\n"), "206", "; hit");
    let shared = Arc::clone(stage.server.shared());
    let lines = stage.lines(asked);
    assert_eq!(lines.iter().filter(|line| line.contains(" 500 panic ")).count(), 4, "{lines:#?}");
    assert_eq!(shared.common.counters.panics.load(Ordering::Relaxed), 4);
}

#[test]
fn a_connection_that_has_a_task_needs_no_exchange_either() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(folder.path(), "");
    stage.say(stage.proxy, &closing("fresh/a", ""));
    for (place, status) in [("travel", "200"), ("replied", "500")] {
        // A head that comes in two pieces is waited for by a task.
        let bytes =
            closing("fresh/a", &format!("X-Test-Break: {place}\r\n")).replace("ORIGIN", &stage.origin.to_string());
        let (first, rest) = bytes.split_at(30);
        let mut stream = stage.begin(stage.proxy, first);
        thread::sleep(Duration::from_millis(100));
        stream.write_all(rest.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{place}: {answer}");
    }
    stage.lines(3);
}

#[test]
fn a_request_waits_in_a_task_where_its_time_as_a_whole_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(folder.path(), "[timeouts]\nrequest = \"1s\"\n");
    assert!(stage.say(stage.proxy, &closing("fresh/a", "")).starts_with("HTTP/1.1 200 "));
    assert!(stage.say(stage.proxy, &closing("fresh/a", "X-Test-Break: travel\r\n")).starts_with("HTTP/1.1 500 "));
    let late = stage.say(stage.proxy, &closing("none/naps", ""));
    assert!(late.starts_with("HTTP/1.1 504 ") && late.contains("request-time"), "{late}");
    stage.lines(3);
}

#[test]
fn requests_behind_one_that_waits_are_answered_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(folder.path(), "");
    stage.say(stage.proxy, &closing("fresh/a", ""));
    stage.say(stage.proxy, &closing("fresh/bb", ""));
    let all = ["fresh/a", "page", "fresh/bb"].map(|path| get(path, "")).concat() + &closing("fresh/a", "");
    let answer = stage.say(stage.proxy, &all);
    let at = |part: &str, from: usize| from + answer[from..].find(part).unwrap_or_else(|| panic!("{part}: {answer}"));
    let page = at("a page", at("; hit", 0));
    at("; hit", at("; hit", page) + 1);
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 4, "{answer}");
    // The second one comes while the first one waits.
    let mut stream = stage.begin(stage.proxy, &get("fresh/a", "X-Slow: 1\r\n"));
    thread::sleep(Duration::from_millis(100));
    let second = closing("page", "").replace("ORIGIN", &stage.origin.to_string());
    stream.write_all(second.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("a page"), "{answer}");
    stage.lines(8);
}

#[test]
fn a_client_that_leaves_while_its_request_waits_leaves_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(folder.path(), "");
    stage.say(stage.proxy, &closing("fresh/a", ""));
    drop(stage.begin(stage.proxy, &get("fresh/a", "X-Slow: 1\r\n")));
    let mut half = stage.begin(stage.proxy, &get("fresh/a", "X-Slow: 1\r\n"));
    half.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    half.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("; hit"), "{answer}");
    stage.lines(3);
}

#[test]
fn requests_that_wait_for_hooks_at_the_end_of_a_drain_are_told_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let stage = stage(folder.path(), "[timeouts]\ndrain = \"0s\"\n");
    stage.say(stage.proxy, &closing("fresh/a", ""));
    let mut waits = stage.begin(stage.proxy, &get("none/naps", ""));
    thread::sleep(Duration::from_millis(300));
    let log = stage.log.clone();
    stage.server.stop();
    let mut answer = String::new();
    waits.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After"), "{answer}");
    let lines: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect();
    assert!(lines.len() == 2 && lines[1].ends_with("/naps 503 going-down true"), "{lines:#?}");
}
