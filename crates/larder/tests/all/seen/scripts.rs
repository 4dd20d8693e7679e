//! Applications in Python as the API, the metrics and `larder scripts` show them.

use super::admin::{DESCRIPTION, described_so, json_of, status};
use super::metrics::samples;
use super::stand::{self, ask, body, exchange};
use larder::server::Server;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use yaml_rust2::YamlLoader;

const APPLICATION: &str = "
def render(name):
    raise LookupError(f'no template {name}')

def application(environ, start_response):
    if environ['PATH_INFO'] == '/boom':
        render('topic.html')
    start_response('200 OK', [('Content-Type', 'text/plain'), ('Cache-Control', 'no-store')])
    return [b'hello']
";

/// Raises an exception whose text is a page, commands to a terminal, and long.
const HOSTILE: &str = r"
def application(environ, start_response):
    raise ValueError('<script>alert(1)</script>\x1b[2J\x1b]0;x\x07\x9b31m\u202e\x00' + 'x' * 60_000 + '</pre><img src=x>\x1b[0m')
";

/// A server with an application; the text is that of its module.
struct Stage {
    folder: tempfile::TempDir,
    server: Server,
}

impl Stage {
    /// `None` where there is no Python.
    fn set(module: &str, more: &str) -> Option<Stage> {
        stand::program("python3")?;
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app.py"), module).unwrap();
        let config = format!(
            "{more}[[python]]\nname = \"bbs\"\nfolder = \"{}\"\n[[site]]\nhosts = [\"app.example\"]\n\
             origin = \"wsgi:app:application\"\npython = \"bbs\"\n",
            folder.path().display()
        );
        let server = stand::server(&folder.path().join("store"), &config);
        Some(Stage { folder, server })
    }

    /// Writes another module, and has it taken up.
    fn change(&self, module: &str) {
        fs::write(self.folder.path().join("app.py"), module).unwrap();
        self.server.shared().nursery.reload();
    }

    fn get(&self, target: &str) -> String {
        let request = format!("GET {target} HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n");
        exchange(self.server.addresses()[0], &request)
    }

    /// The application as the API shows it, which must be as it is described.
    fn shown(&self) -> Value {
        let description = json_of(&YamlLoader::load_from_str(DESCRIPTION).unwrap()[0]);
        let answer = ask(self.server.admin().unwrap(), "/scripts");
        described_so(&answer, &description["paths"]["/scripts"]["get"], &description, "/scripts");
        let shown: Value = serde_json::from_str(body(&answer)).unwrap();
        shown["applications"][0].clone()
    }

    /// Waits until the application is in this state, and all its processes serve if any does.
    fn wait_for(&self, state: &str) {
        stand::wait_for(state, || {
            let shown = self.shown();
            let processes = shown["processes"].as_array().map_or(0, Vec::len);
            shown["state"] == state && [0, 2].contains(&processes)
        });
    }

    fn command(&self, words: &[&str]) -> (Option<i32>, String) {
        command(&self.folder.path().join("store"), words)
    }

    fn metrics(&self) -> std::collections::BTreeMap<String, f64> {
        samples(body(&ask(self.server.admin().unwrap(), "/metrics")))
    }
}

/// `larder scripts`: its exit status, and all that it printed.
fn command(store: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["scripts", "--config", "none", "--store"]).arg(store).args(words);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    (status.code(), text)
}

#[test]
fn an_application_is_shown_before_and_after_an_exception_and_a_broken_file() {
    let Some(stage) = Stage::set(APPLICATION, "[records]\nhide_query = true\n") else { return };
    stage.wait_for("serving");
    assert!(stage.get("/").ends_with("hello"));
    let before = stage.shown();
    assert!(before["load_failure"].is_null() && before["failures"] == serde_json::json!([]), "{before}");
    let (exit, text) = stage.command(&[]);
    assert!(exit == Some(0) && text.contains("wsgi:app:application  serving        2/2"), "{exit:?} {text}");
    assert!(!text.contains("Traceback"), "{text}");

    assert_eq!(status(&stage.get("/boom?key=s3cret&plain")), "500");
    stand::wait_for("the failure", || stage.shown()["counts"]["errors"] == 1);
    let shown = stage.shown();
    let failure = &shown["failures"][0];
    assert!(failure["method"] == "GET" && failure["target"] == "/boom?key=…&…", "{failure}");
    let traceback = failure["traceback"].as_str().unwrap();
    assert!(traceback.contains("    render('topic.html')\n") && traceback.contains("no template topic.html"));
    assert_eq!((&shown["name"], &shown["python"]), (&"wsgi:app:application".into(), &"bbs".into()));
    let name = failure["request"].as_str().unwrap();
    let explained = ask(stage.server.admin().unwrap(), &format!("/requests/{name}"));
    assert!(
        explained.contains("The application was asked after") && explained.contains(", in process "),
        "{explained}"
    );
    let (exit, text) = stage.command(&[]);
    assert!(exit == Some(0) && text.contains("GET /boom?key=…&… raised an exception ("), "{exit:?} {text}");
    assert!(text.contains("\n      render('topic.html')\n") && text.contains(&format!("request {name}")), "{text}");

    stage.change("import nothing_of_this_name\n");
    stage.wait_for("serving-old");
    assert!(stage.get("/").ends_with("hello"), "the old version goes on");
    let failure = stage.shown()["load_failure"].clone();
    assert!(failure["traceback"].as_str().unwrap().contains("import nothing_of_this_name"), "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("the application imports 'nothing_of_this_name'"), "{failure}");
    let (exit, text) = stage.command(&[]);
    assert!(exit == Some(1) && text.contains("the version before goes on"), "{exit:?} {text}");
    assert!(text.contains("hint: the application imports"), "{text}");
    assert!(text.find("import nothing_of_this_name") < text.find("render("), "requests come last: {text}");

    stage.change(APPLICATION);
    stage.wait_for("serving");
    let shown = stage.shown();
    assert!(shown["load_failure"].is_null() && shown["counts"]["load_failures"].as_u64() >= Some(1), "{shown}");
    assert_eq!(stage.command(&["bbs"]).0, Some(0));
}

#[test]
fn an_application_that_never_loads_has_failed() {
    let Some(stage) = Stage::set("def application(:\n", "") else { return };
    stage.wait_for("failed");
    let shown = stage.shown();
    assert!(shown["version"] == "" && shown["loaded_at_millis"].is_null(), "{shown}");
    let answer = stage.get("/");
    assert!(status(&answer).starts_with('5'), "{answer}");
    for words in [&[][..], &["wsgi:app:application"], &["bbs"], &["--json"]] {
        let (exit, text) = stage.command(words);
        assert!(exit == Some(1) && text.contains("SyntaxError"), "{words:?} {exit:?} {text}");
    }
    let (exit, text) = stage.command(&["other"]);
    assert!(exit == Some(2) && text.contains("there is no application other; there is wsgi:app:application"), "{text}");
    assert_eq!(stage.metrics()["larder_script_load_failures_total{application=\"wsgi:app:application\"}"], 1.0);
}

#[test]
fn metrics_of_an_application() {
    let Some(stage) = Stage::set(APPLICATION, "") else { return };
    let of = |family: &str| format!("larder_script_{family}{{application=\"wsgi:app:application\"}}");
    let before = stage.metrics();
    stage.wait_for("serving");
    for target in ["/", "/", "/boom"] {
        stage.get(target);
    }
    stand::wait_for("counts", || stage.metrics()[&of("errors_total")] == 1.0);
    let now = stage.metrics();
    assert_eq!(now[&of("processes")], 2.0);
    assert_eq!((now[&of("requests_total")], now[&of("processes_started_total")]), (3.0, 2.0));
    assert_eq!((now[&of("requests_waiting")], now[&of("load_failures_total")]), (0.0, 0.0));
    assert!(now.contains_key(&of("requests_under_way")));
    for reason in ["ended", "hung"] {
        let family = "larder_script_processes_ended_total";
        assert_eq!(now[&format!("{family}{{application=\"wsgi:app:application\",reason=\"{reason}\"}}")], 0.0);
    }
    if cfg!(target_os = "linux") {
        assert!(now[&of("memory_bytes")] > 1e6 && now[&of("cpu_seconds_total")] > 0.0);
    }
    // A series that comes with the first request would be missed by `rate()`.
    let born = now.keys().filter(|name| name.contains("larder_script_") && !before.contains_key(*name));
    assert_eq!(born.collect::<Vec<_>>(), [""; 0]);
}

/// The text of an exception is the application's, and so of those who send it requests.
#[test]
fn a_hostile_traceback_steers_no_terminal_and_is_no_page() {
    let Some(stage) = Stage::set(HOSTILE, "") else { return };
    stage.wait_for("serving");
    (0..20).for_each(|_| drop(stage.get("/%1b[31m?<script>")));
    stand::wait_for("failures", || stage.shown()["counts"]["errors"] == 20);
    let answer = ask(stage.server.admin().unwrap(), "/scripts");
    assert!(
        answer.contains("\r\nContent-Type: application/json\r\n")
            && answer.contains("\r\nX-Content-Type-Options: nosniff")
    );
    assert!(answer.len() < 16 * (20 << 10), "bounded: {}", answer.len());
    let shown = stage.shown();
    let failures = shown["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 16);
    let traceback = failures[15]["traceback"].as_str().unwrap();
    assert!(traceback.contains("bytes left out") && traceback.ends_with("</pre><img src=x>\u{1b}[0m\n"));
    let few: Value = serde_json::from_str(body(&ask(stage.server.admin().unwrap(), "/scripts?failures=2"))).unwrap();
    assert_eq!(few["applications"][0]["failures"].as_array().unwrap()[..], failures[14..]);
    for words in [&[][..], &["bbs"]] {
        let (exit, text) = stage.command(words);
        assert!(exit == Some(0) && text.contains("<script>alert(1)</script>\\u{1b}[2J"), "{text}");
        let steers = |letter: &char| (letter.is_control() && *letter != '\n') || *letter == '\u{202e}';
        assert_eq!(text.chars().find(steers), None);
        assert!(text.len() < 64 << 10, "{}", text.len());
    }
}

#[test]
fn without_applications_or_a_server_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (exit, text) = command(folder.path(), &[]);
    assert!(exit == Some(1) && text.contains("no larder answers in"), "{exit:?} {text}");
    let server = stand::server(folder.path(), "");
    assert_eq!(body(&ask(server.admin().unwrap(), "/scripts")), "{\"applications\":[]}");
    for wrong in ["/scripts?x=1", "/scripts?failures=many"] {
        assert_eq!(status(&ask(server.admin().unwrap(), wrong)), "422", "{wrong}");
    }
    let (exit, text) = command(folder.path(), &[]);
    assert!(exit == Some(0) && text.contains("no application is configured"), "{exit:?} {text}");
    let (exit, text) = command(folder.path(), &["bbs"]);
    assert!(exit == Some(2) && text.contains("there is no application bbs"), "{exit:?} {text}");
    assert_eq!(command(folder.path(), &["--nonsense"]).0, Some(2));
}
