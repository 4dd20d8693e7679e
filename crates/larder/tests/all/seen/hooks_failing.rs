//! Hooks that fail, are slow, hang or can't be loaded: what clients get, and what people are told.

use super::hooks::status;
use super::hooks_answers::Stage;
use super::metrics::samples;
use super::stand::{self, body, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A hook for each way to fail at each stage.
const FAILING: &str = r#"
import larder, time

def fail(req):
    how = req.path.rsplit("/", 1)[1]
    if how == "raises":
        raise KeyError("the secret of the day")
    while how == "hangs":
        pass
    return 5 if how == "returns" else None

@larder.request(path="/request/*")
def at_request(req):
    return fail(req)

@larder.page(["/page/raises", "/page/hangs", "/page/returns"])
def at_page(req):
    return fail(req)

@larder.found(path="/found/*")
def at_found(req, found):
    return fail(req)

@larder.fetched(path="/fetched/*")
def at_fetched(req, resp):
    del resp.headers["server"]
    return fail(req)

@larder.respond(path="/respond/*")
def at_respond(req, resp):
    del resp.headers["server"]
    return fail(req)
"#;

fn stage(policy: &str, python: &str) -> Stage {
    Stage::open(policy, &format!("hook_time = \"300ms\"\n{python}"), |text| {
        let log = text.split('"').nth(1).unwrap().replace("/store", "/access.log");
        let records = "[records]\nname_answers = true\n";
        text.replace("admin = \"none\"", "admin = \"127.0.0.1:0\"")
            + &format!("{records}[log]\nto = \"{log}\"\nformat = \"json\"\n")
    })
}

/// Waits until a process serves: a machine that is busy may take its time.
fn ready(stage: &Stage) {
    let state = &stage.steered.server.shared().nursery.mounts().all()[0];
    wait_for("a process serves", || state.serves());
}

fn asked(stage: &Stage, path: &str) -> Value {
    serde_json::from_str(body(&stand::ask(stage.steered.server.admin().unwrap(), path))).unwrap()
}

/// The list of hooks as the API shows it, described as it is.
fn shown(stage: &Stage) -> Value {
    asked(stage, "/scripts")["applications"][0].clone()
}

fn larder(folder: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(words)
        .arg("--config")
        .arg(folder.join("larder.toml"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

/// The table in docs/python.md, row by row.
#[test]
fn each_stage_fails_as_the_guide_says_and_its_hook_is_named() {
    for (on_failure, is_pass) in [("", false), ("on_failure = \"pass\"\n", true)] {
        let stage = stage(FAILING, on_failure);
        let mut lines = 0;
        for (how, denied) in [("raises", "500"), ("returns", "500"), ("hangs", "504")] {
            for of in ["request", "page", "found", "fetched", "respond"] {
                let path = format!("/{of}/{how}");
                if of == "found" {
                    ready(&stage);
                    assert_eq!(status(&stage.ask(&path, "")), "200", "nothing is stored yet");
                    lines += 1;
                }
                ready(&stage);
                let answer = stage.ask(&path, "");
                lines += 1;
                let goes_on = is_pass || of == "fetched";
                assert_eq!(status(&answer), if goes_on { "200" } else { denied }, "{path}: {answer}");
                assert!(!answer.contains("the day"), "{answer}");
                // As it came from the origin, or from the store: nothing that the hook did before counts.
                assert_eq!(answer.contains("Server: secret"), goes_on, "{path}: {answer}");
                let name = answer.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).unwrap();
                let explained = asked(&stage, &format!("/requests/{name}"));
                let stage_word = if of == "page" { "request" } else { of };
                let word = if how == "hangs" { "hook-late" } else { "hook-failed" };
                let wanted = format!("at_{of} (policy.py:");
                let steps = explained["steps"].as_array().unwrap();
                let is_named = |step: &&Value| step["says"].as_str().is_some_and(|says| says.starts_with(&wanted));
                let step = steps.iter().find(is_named).unwrap_or_else(|| panic!("{path}: {explained}"));
                let says = step["says"].as_str().unwrap();
                assert!(says.contains(&format!(", {stage_word}: {word}")), "{path}: {says}");
                if of == "fetched" {
                    ready(&stage);
                    let again = stage.ask(&path, "");
                    assert!(!again.contains("; hit"), "the answer is not stored: {again}");
                    lines += 1;
                }
            }
        }
        let log = stage.folder.path().join("access.log");
        wait_for("the log", || fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == lines));
        let text = fs::read_to_string(&log).unwrap();
        for line in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let url = line["url"].as_str().unwrap();
            let is_first_of_found = url.contains("/found/") && line["outcome"] == "uri-miss";
            if !is_first_of_found {
                let wanted = format!("at_{}", url.split('/').nth(3).unwrap());
                assert_eq!((&line["hook"], &line["hook_script"]), (&wanted.into(), &"policy.py".into()), "{line}");
                assert!(line["hook_line"].as_u64() > Some(0) && line["hook_micros"].as_u64() > Some(0), "{line}");
            }
        }
    }
}

const TIMED: &str = r#"
import larder, time

@larder.request
def quick(req):
    pass

@larder.request(path=["/slow/**", "/raises", "/hangs"])
def slow(req):
    time.sleep(0.03)
    if req.path == "/raises":
        raise ValueError("no")
    while req.path == "/hangs":
        pass

@larder.request(path="/returns")
def returns(req):
    return 5

@larder.respond(path="/slow/**", remember="60s")
def stamp(req, resp):
    resp.headers["x-stamp"] = "1"
"#;

#[test]
fn calls_and_times_of_each_hook_are_shown_and_each_failure_counts_once() {
    let stage = stage(TIMED, "");
    ready(&stage);
    for path in ["/slow/a", "/slow/b", "/slow/c", "/other", "/raises", "/returns", "/returns", "/hangs"] {
        stage.ask(path, "");
    }
    let hooks = || shown(&stage)["hooks"].as_array().unwrap().clone();
    wait_for("the hook that hung", || hooks()[1]["late"] == 1);
    wait_for("the place where it hung", || stage.failures().iter().any(|text| text.contains("it was here")));
    let facts = |hook: &Value| {
        let text = |name: &str| hook[name].as_str().unwrap().to_owned();
        let count = |name: &str| hook[name].as_u64().unwrap();
        (text("name"), text("stage"), count("line"), count("calls"), count("failed"), count("late"))
    };
    let all = hooks();
    let expected = [
        ("quick", "request", 4, 7, 0, 0),
        ("slow", "request", 8, 5, 1, 1),
        ("returns", "request", 16, 2, 2, 0),
        ("stamp", "respond", 20, all[3]["calls"].as_u64().unwrap(), 0, 0),
    ];
    let expected = expected
        .map(|(name, stage, line, calls, failed, late)| (name.to_owned(), stage.to_owned(), line, calls, failed, late));
    assert_eq!(all.iter().map(facts).collect::<Vec<_>>(), expected);
    // Each of the two workers asks once and remembers.
    assert!((1..=2).contains(&all[3]["calls"].as_u64().unwrap()), "{all:?}");
    let micros = |name: &str| all[1][name].as_f64().unwrap();
    assert!(micros("mean_micros") >= 30_000.0 && micros("median_micros") >= 25_000.0, "{all:?}");
    assert!(micros("p99_micros") >= micros("median_micros"), "{all:?}");
    assert!(all[0]["mean_micros"].as_f64() < Some(30_000.0), "{all:?}");

    let scripts = shown(&stage);
    assert_eq!(scripts["counts"]["errors"], 4, "{scripts}");
    let failures = scripts["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 4, "{scripts}");
    let late = failures.iter().find(|failure| failure["target"] == "/hangs").unwrap()["traceback"].as_str().unwrap();
    assert!(late.starts_with("slow (policy.py:8): a call took longer"), "{late}");
    assert!(late.contains("\nit was here: policy.py, line 1"), "{late}");
    assert!(late.ends_with(", in slow (hook slow (policy.py:8))"), "{late}");

    let metrics = samples(body(&stand::ask(stage.steered.server.admin().unwrap(), "/metrics")));
    let of = |family: &str, hook: &str, more: &str| {
        let labels = "application=\"hooks:policy.py\",script=\"policy.py\"";
        let name = format!("larder_hook_{family}{{{labels},hook=\"{hook}\",stage=\"request\"{more}}}");
        *metrics.get(&name).unwrap_or_else(|| {
            panic!("{name}: {:?}", metrics.keys().filter(|key| key.contains("hook")).collect::<Vec<_>>())
        })
    };
    assert_eq!((of("duration_seconds_count", "slow", ""), of("duration_seconds_count", "quick", "")), (5.0, 7.0));
    assert!(of("duration_seconds_sum", "slow", "") >= 0.12);
    assert_eq!(of("duration_seconds_bucket", "slow", ",le=\"0.025\""), 0.0);
    assert_eq!(of("duration_seconds_bucket", "slow", ",le=\"+Inf\""), 5.0);
    assert_eq!(of("failures_total", "slow", ",reason=\"late\""), 1.0);
    assert_eq!(of("failures_total", "returns", ",reason=\"failed\""), 2.0);

    let (exit, text) = larder(stage.folder.path(), &["scripts"]);
    let row = text.lines().find(|line| line.starts_with("slow (policy.py:8)")).unwrap_or_else(|| panic!("{text}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((exit, &cells[2..7]), (Some(0), &["request", "5", "1", "1", "0"][..]), "{text}");
    assert!(row.contains(" ≤ "), "counted times are upper bounds: {text}");
}

/// A version that can't be loaded takes nothing from the one that serves, whatever becomes of its processes.
#[test]
fn a_process_that_ends_is_replaced_by_the_version_that_was_good() {
    let policy = r#"
import larder
import words

@larder.request(path="/p/**")
def plans(req):
    while req.path == "/p/hangs":
        pass
    req.query.drop(words.DROPPED)
"#;
    let stage = Stage::open("", "hook_time = \"200ms\"\nreload = \"on-change\"\n", |text| {
        // Before the server starts: the folder is that of its settings.
        let folder = Path::new(text.split('"').nth(1).unwrap()).parent().unwrap();
        fs::write(folder.join("policy.py"), policy).unwrap();
        fs::write(folder.join("words.py"), "DROPPED = 'utm_*'\n").unwrap();
        text.replace("admin = \"none\"", "admin = \"127.0.0.1:0\"")
    });
    let write = |name: &str, text: &str| fs::write(stage.folder.path().join(name), text).unwrap();
    let asks_for = |path: &str| body(&stage.ask(path, "")).split(' ').next().unwrap_or_default().to_owned();
    assert_eq!(asks_for("/p/a?utm_a=1&id=1"), "/p/a?id=1");
    let state = |wanted: &str| {
        wait_for(wanted, || {
            let now = shown(&stage);
            now["state"] == wanted && now["processes"].as_array().unwrap().len() == 1
        });
    };
    write("words.py", "DROPPED = [\n");
    state("serving-old");
    for round in 0..3 {
        assert_eq!(status(&stage.ask("/p/hangs", "")), "504");
        ready(&stage);
        assert_eq!(asks_for(&format!("/p/b{round}?utm_a=1&id=1")), format!("/p/b{round}?id=1"), "the old one decides");
        assert_eq!(status(&stage.ask(&format!("/other{round}"), "")), "200");
    }
    state("serving-old");
    let failure = shown(&stage)["load_failure"]["traceback"].as_str().unwrap().to_owned();
    assert!(failure.contains("words.py\", line 1") && failure.contains("SyntaxError"), "its trouble stays: {failure}");
    write("words.py", "DROPPED = 'fbclid'\n");
    state("serving");
    assert_eq!(asks_for("/p/c?fbclid=1&utm_a=2"), "/p/c?utm_a=2");
    // Also where nothing in the folder is left.
    fs::remove_file(stage.folder.path().join("words.py")).unwrap();
    fs::remove_file(stage.folder.path().join("policy.py")).unwrap();
    state("serving-old");
    assert_eq!(status(&stage.ask("/p/hangs", "")), "504");
    assert_eq!(asks_for("/p/d?fbclid=1&utm_a=2"), "/p/d?utm_a=2");
}

/// Where no process can be had, requests go on that no filter lets through.
#[test]
fn without_a_process_the_filters_of_the_last_version_count() {
    let policy = "import larder, os\nif os.path.exists('full'): raise MemoryError('no room')\n\
                  @larder.request(path='/p/**')\ndef plans(req):\n    os._exit(3) if req.path == '/p/ends' else None\n";
    let stage = stage(policy, "");
    ready(&stage);
    assert_eq!(status(&stage.ask("/p/a", "")), "200");
    fs::write(stage.folder.path().join("full"), "").unwrap();
    stage.ask("/p/ends", "");
    wait_for("no process is left", || shown(&stage)["state"] == "failed");
    let denied = stage.ask("/p/b", "");
    assert!(
        status(&denied) == "500" && denied.contains("hook-not-loaded") && denied.contains("can&#39;t be loaded"),
        "{denied}"
    );
    assert_eq!(status(&stage.ask("/other", "")), "200");
    let name = denied.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).unwrap();
    let explained = asked(&stage, &format!("/requests/{name}")).to_string();
    assert!(explained.contains("plans (policy.py:3), request: hook-not-loaded"), "{explained}");
    let ahead = asked(&stage, "/explain?url=http://shop.example/p/c");
    assert_eq!(ahead["request"]["status"], 500, "{ahead}");
    assert!(ahead.to_string().contains("policy.py:2: MemoryError: no room"), "{ahead}");
    fs::remove_file(stage.folder.path().join("full")).unwrap();
    wait_for("it is tried again", || status(&stage.ask("/p/a", "")) == "200");
}

#[test]
fn a_reload_and_a_check_name_what_cannot_be_loaded() {
    let stage = Stage::open(TIMED, "", |text| text);
    let folder = stage.folder.path();
    let write = |text: &str| fs::write(folder.join("policy.py"), text).unwrap();
    assert_eq!(status(&stage.ask("/other", "")), "200");
    let (exit, text) = larder(folder, &["reload"]);
    assert!(exit == Some(0) && text.contains("no file has changed: hooks:policy.py"), "{exit:?} {text}");
    assert_eq!(larder(folder, &["check"]).0, Some(0));
    write(&TIMED.replace("0.03", "0.02"));
    let (exit, text) = larder(folder, &["reload"]);
    assert!(exit == Some(0) && text.contains("loaded anew: hooks:policy.py"), "{exit:?} {text}");
    for (broken, line) in [
        ("import larder\ndef broken(:\n", "policy.py:2: SyntaxError: "),
        (
            "import larder\n\nimport no_such_module\n",
            "policy.py:3: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "import larder\n@larder.request(pth='/x')\ndef x(req): pass\n",
            "policy.py:2: @larder.request has no filter 'pth'",
        ),
        (
            "import larder\n@larder.request\ndef x(req):\n    req.route = 'zz'\n",
            "policy.py:4: there is no route \"zz\"",
        ),
    ] {
        write(broken);
        let (exit, text) = larder(folder, &["reload"]);
        assert!(exit == Some(1) && text.contains(line), "{line}: {exit:?} {text}");
        assert!(text.starts_with("reloaded the settings, but not every script: "), "{text}");
        assert!(
            text.contains("error: hooks:policy.py can't be loaded as it is now, and the version before goes on: "),
            "{text}"
        );
        let (exit, text) = larder(folder, &["check"]);
        assert!(exit == Some(2) && text.contains(line), "{line}: {exit:?} {text}");
        assert_eq!(text.matches("can't be loaded").count(), 1, "it is said once: {text}");
        let (exit, text) = larder(folder, &["check", "--request", "GET http://shop.example/a"]);
        assert!(
            exit == Some(1) && text.contains(line) && text.contains("500 hook-not-loaded"),
            "{line}: {exit:?} {text}"
        );
        assert_eq!(status(&stage.ask("/other", "")), "200", "the version before goes on");
    }
    fs::remove_file(folder.join("policy.py")).unwrap();
    let (exit, text) = larder(folder, &["reload"]);
    assert!(exit == Some(1) && text.contains("there is no file"), "{exit:?} {text}");
    write(TIMED);
    assert_eq!(larder(folder, &["reload"]).0, Some(0));
}

#[test]
fn what_is_said_ahead_of_hooks_says_so() {
    let policy = "import larder\n@larder.request(path='/page')\ndef no_utm(req):\n    req.query.drop('utm_*')\n\
                  @larder.found(path='/news')\ndef fresh(req, found):\n    return larder.miss()\n";
    let stage = stage(policy, "");
    let answer = stage.ask("/page?utm_source=a&id=9", "");
    stage.ask("/news", "");
    let ahead = |path: &str| asked(&stage, &format!("/explain?url=http://shop.example{path}"));
    let page = ahead("/page?utm_source=b%26id=9");
    let says = page["says"].as_str().unwrap();
    assert!(says.starts_with("Without its hooks the origin would be asked."), "{page}");
    assert!(says.contains("Its hooks: no_utm (policy.py:2)."), "{page}");
    let step = |shown: &Value, wanted: &str| {
        let steps = shown["steps"].as_array().unwrap();
        steps.iter().find(|step| step["step"] == wanted).unwrap_or_else(|| panic!("{shown}"))["says"].to_string()
    };
    for word in ["key", "origin", "answer"] {
        assert!(step(&page, word).starts_with("\"without its hooks: "), "{page}");
    }
    let news = ahead("/news");
    assert!(
        news["says"].as_str().unwrap().starts_with("Without its hooks it would be answered from the store"),
        "{news}"
    );
    assert!(!step(&news, "key").contains("without its hooks"), "{news}");
    let other = ahead("/other");
    assert!(other["says"].as_str().unwrap().starts_with("The origin would be asked."), "{other}");

    let name = answer.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).unwrap();
    let explained = asked(&stage, &format!("/requests/{name}"));
    let key = step(&explained, "key");
    assert!(key.contains("the URL that hooks ask for") && !key.contains("No-Vary-Search"), "{explained}");
    let (exit, text) = larder(stage.folder.path(), &["purge", "http://shop.example/page?utm_source=b&id=9"]);
    assert!(exit == Some(0) && text.contains("hooks change URLs here") && !text.contains("explain URL"), "{text}");
    let (_, text) = larder(stage.folder.path(), &["purge", "http://shop.example/page?id=9"]);
    assert!(text.contains("1 stored response is forgotten"), "{text}");
}

/// A process that is slow to begin serves what the first one of its version has read, whatever stands in the files by then.
#[test]
fn all_processes_of_a_version_run_the_same_code() {
    let policy = "import larder, os, time\n\
                  try: os.close(os.open('first', os.O_CREAT | os.O_EXCL | os.O_WRONLY))\n\
                  except FileExistsError: time.sleep(1)\nimport words\n\
                  @larder.request(path='/ver')\ndef ver(req): return larder.Response(words.TEXT)\n";
    let stage = Stage::open(policy, "processes = 2\nreload = \"on-reload\"\n", |text| {
        fs::write(Path::new(text.split('"').nth(1).unwrap()).parent().unwrap().join("words.py"), "TEXT = 'one'\n")
            .unwrap();
        text.replace("admin = \"none\"", "admin = \"127.0.0.1:0\"").replacen("processes = 1\n", "", 1)
    });
    ready(&stage);
    fs::write(stage.folder.path().join("words.py"), "TEXT = 'other'\n").unwrap();
    wait_for("both serve", || {
        shown(&stage)["processes"].as_array().is_some_and(|all| all.len() == 2) && shown(&stage)["state"] == "serving"
    });
    // The first one ends, so that the other answers.
    let first = shown(&stage)["processes"].as_array().unwrap().iter().map(|process| process["pid"].as_u64()).min();
    let ended = Command::new("kill").args(["-9", &first.flatten().unwrap().to_string()]).status();
    assert!(ended.is_ok_and(|status| status.success()));
    for _ in 0..4 {
        let answer = stage.ask("/ver", "");
        assert!(answer.ends_with("one") || answer.contains("hook-ended"), "{answer}");
    }
}
