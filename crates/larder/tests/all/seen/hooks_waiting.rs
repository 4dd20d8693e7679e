//! Calls of hooks that wait in a process for others: their time does not count, and what another call does to the process is not theirs.

use super::hooks::status;
use super::hooks_answers::Stage;
use super::stand::{self, body, wait_for};
use serde_json::Value;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const SHARED: &str = r#"
import larder, os, re, time

@larder.request
def quick(req):
    time.sleep(0.01)

@larder.request(path="/hangs/**")
def hangs(req):
    while True:
        pass

@larder.request(path="/regex/**")
def in_regex(req):
    re.match(r"(a+)+$", "a" * 40 + "b")

@larder.request(path="/ends/**")
def ends(req):
    time.sleep(0.3)
    os._exit(3)
"#;

/// Two workers share one process, so that calls wait for those of the other worker, too.
fn stage(hook_time: &str) -> Stage {
    Stage::open(SHARED, &format!("hook_time = \"{hook_time}\"\nstandby = 1\n"), |text| {
        assert!(text.contains("workers = 2\n"), "{text}");
        text.replace("admin = \"none\"", "admin = \"127.0.0.1:0\"")
    })
}

/// So many requests at once, whose statuses are wanted to be 200.
fn ask_at_once(stage: &Stage, many: usize, name: &str) {
    let all = Barrier::new(many);
    thread::scope(|scope| {
        for number in 0..many {
            let all = &all;
            scope.spawn(move || {
                all.wait();
                let answer = stage.ask(&format!("/{name}/{number}"), "");
                assert_eq!(status(&answer), "200", "{name} {number}: {answer}");
            });
        }
    });
}

fn shown(stage: &Stage) -> Value {
    let text = stand::ask(stage.steered.server.admin().unwrap(), "/scripts");
    serde_json::from_str::<Value>(body(&text)).unwrap()["applications"][0].clone()
}

/// Name, calls that were late, and calls in which the process ended.
fn cut(stage: &Stage) -> Vec<(String, u64, u64)> {
    let hooks = shown(stage)["hooks"].as_array().unwrap().clone();
    let count = |hook: &Value, name: &str| hook[name].as_u64().unwrap();
    hooks
        .iter()
        .map(|hook| (hook["name"].as_str().unwrap().to_owned(), count(hook, "late"), count(hook, "ended")))
        .collect()
}

fn expected(late: &str, ended: &str) -> Vec<(String, u64, u64)> {
    let names = ["quick", "hangs", "in_regex", "ends"];
    names.map(|name| (name.to_owned(), u64::from(name == late), u64::from(name == ended))).to_vec()
}

#[test]
fn the_time_that_a_call_waits_for_others_does_not_count() {
    let stage = stage("100ms");
    // The first one waits for the process to begin.
    ask_at_once(&stage, 1, "first");
    ask_at_once(&stage, 60, "many");
    let scripts = shown(&stage);
    assert_eq!((&scripts["counts"]["hung"], &scripts["counts"]["errors"]), (&0.into(), &0.into()), "{scripts}");
    assert_eq!(cut(&stage), expected("", ""));
}

#[test]
fn calls_behind_one_that_hangs_go_to_another_process_and_are_not_blamed() {
    for (path, hook, line) in [("/hangs/x", "hangs", 8), ("/regex/x", "in_regex", 13)] {
        let stage = stage("400ms");
        ask_at_once(&stage, 1, "first");
        thread::scope(|scope| {
            let hangs = scope.spawn(|| stage.ask(path, ""));
            thread::sleep(Duration::from_millis(100));
            ask_at_once(&stage, 24, "behind");
            let answer = hangs.join().unwrap();
            assert_eq!(status(&answer), "504", "{answer}");
        });
        wait_for("the place where it hung", || stage.failures().iter().any(|text| text.contains("it was here")));
        assert_eq!(cut(&stage), expected(hook, ""));
        let failures = stage.failures();
        let is_of_hook =
            failures[0].starts_with(&format!("{hook} (policy.py:{line}): a call took longer than hook_time"));
        assert!(failures.len() == 1 && is_of_hook, "{failures:?}");
        assert_eq!(shown(&stage)["counts"]["hung"], 1);
    }
}

#[test]
fn calls_behind_one_that_ends_the_process_go_to_another_one_and_are_not_blamed() {
    let stage = stage("2s");
    ask_at_once(&stage, 1, "first");
    thread::scope(|scope| {
        let ends = scope.spawn(|| stage.ask("/ends/x", ""));
        thread::sleep(Duration::from_millis(100));
        ask_at_once(&stage, 24, "behind");
        let answer = ends.join().unwrap();
        assert_eq!(status(&answer), "500", "{answer}");
    });
    assert_eq!(cut(&stage), expected("", "ends"));
    let failures = stage.failures();
    assert!(failures.len() == 1 && failures[0].starts_with("ends (policy.py:17): the process ended"), "{failures:?}");
}
