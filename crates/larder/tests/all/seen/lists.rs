//! Lists of hosts, URLs and networks as people see them: `larder list`, the API, the metrics, `larder check` and a reload.

use super::admin::{DESCRIPTION, described_so, json_of};
use super::metrics::samples;
use super::stand::{self, ask, body};
use larder::server::Server;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use yaml_rust2::YamlLoader;

/// A server with a list of hosts and one of networks.
struct Stage {
    folder: tempfile::TempDir,
    server: Server,
}

const HOSTS: &str = "0.0.0.0 ads.example\n0.0.0.0 bad/name\n192.0.2.1 printer.example\n";
const NETWORKS: &str = "203.0.113.0/24\n";

fn config(folder: &tempfile::TempDir) -> String {
    let path = |name: &str| folder.path().join(name).display().to_string();
    format!(
        "[[list]]\nname = \"ads\"\nsource = \"{}\"\nsubdomains = true\nallow = [\"good.ads.example\"]\n\
         [[list]]\nname = \"nets\"\nsource = \"{}\"\nformat = \"networks\"\n",
        path("ads.hosts"),
        path("nets.txt")
    )
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ads.hosts"), HOSTS).unwrap();
        fs::write(folder.path().join("nets.txt"), NETWORKS).unwrap();
        let server = stand::server(&folder.path().join("store"), &config(&folder));
        Stage { folder, server }
    }

    /// An answer of the API, which must be as it is described.
    fn shown(&self, path: &str, described_at: &str) -> Value {
        let description = json_of(&YamlLoader::load_from_str(DESCRIPTION).unwrap()[0]);
        let answer = ask(self.server.admin().unwrap(), path);
        described_so(&answer, &description["paths"][described_at]["get"], &description, described_at);
        serde_json::from_str(body(&answer)).unwrap()
    }

    fn command(&self, words: &[&str]) -> (Option<i32>, String) {
        larder(words, &["--config", "none", "--store"], Some(self.folder.path().join("store")))
    }
}

/// The program: its exit status, and all that it printed.
fn larder(words: &[&str], more: &[&str], store: Option<PathBuf>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).args(more).args(store);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    (status.code(), text)
}

#[test]
fn lists_are_shown_and_asked() {
    let stage = Stage::new();
    let shown = stage.shown("/lists", "/lists");
    let ads = &shown["lists"][0];
    assert_eq!((&ads["name"], &ads["state"], &ads["entries"]), (&"ads".into(), &"good".into(), &1.into()), "{shown}");
    assert_eq!(
        (&ads["malformed"], &ads["left_out"], &ads["format"]),
        (&1.into(), &1.into(), &"hosts".into()),
        "{shown}"
    );
    for (of, wanted) in [
        ("www.ads.example", Ok("covered by the name above it `ads.example`")),
        ("good.ads.example", Err("not covered: `allow` has the name `good.ads.example` itself")),
        ("printer.example", Err("not covered")),
        ("https://ads.example/x?y", Ok("covered by the name `ads.example` itself")),
    ] {
        let path = format!("/lists/test?list=ads&of={}", of.replace('?', "%3F"));
        let judged = stage.shown(&path, "/lists/test");
        let (covered, why) = (wanted.is_ok(), wanted.unwrap_or_else(|why| why));
        assert_eq!((&judged["covered"], &judged["why"]), (&covered.into(), &why.into()), "{of}");
        let (exit, text) = stage.command(&["list", "test", "ads", of]);
        assert_eq!((exit, text), (Some(i32::from(!covered)), format!("{of}: {why}\n")));
    }
    let (exit, text) = stage.command(&["list", "test", "nets", "203.0.113.9"]);
    assert_eq!((exit, &*text), (Some(0), "203.0.113.9: covered by the addresses 203.0.113.0 to 203.0.113.255\n"));
    let (exit, text) = stage.command(&["list", "test", "none", "x.example"]);
    assert!(exit == Some(2) && text.contains("there is no list \"none\"; there is ads, nets"), "{text}");
    let (exit, text) = stage.command(&["list"]);
    assert!(exit == Some(0) && text.starts_with("list  state  format    entries"), "{exit:?} {text}");
    assert!(text.contains("ads.hosts:2: \"0.0.0.0 bad/name\": a word behind the address is no name"), "{text}");
    let metrics = samples(body(&ask(stage.server.admin().unwrap(), "/metrics")));
    assert_eq!(metrics["larder_list_entries{list=\"ads\"}"], 1.0);
    assert!(metrics["larder_list_age_seconds{list=\"nets\"}"] < 600.0);
    // A file that is wrong here says nothing about the server that runs; one that a flag names may be a word for another server.
    let (store, here) = (stage.folder.path().join("store"), stage.folder.path().join("here"));
    fs::create_dir(&here).unwrap();
    let text = format!("store = {:?}\nworkrs = 3\n", store.display().to_string());
    fs::write(here.join("larder.toml"), text).unwrap();
    let with_wrong = |words: &[&str]| {
        let told = Command::new(env!("CARGO_BIN_EXE_larder")).args(words).current_dir(&here).output().unwrap();
        let text = [told.stdout, told.stderr].concat();
        (told.status.code(), String::from_utf8(text).unwrap())
    };
    let (exit, text) = with_wrong(&["list", "--config", "larder.toml"]);
    assert!(exit == Some(2) && text.contains("workrs"), "{exit:?} {text}");
    let (exit, text) = with_wrong(&["list"]);
    assert!(exit == Some(0) && text.contains("note: the configuration here has an error"), "{exit:?} {text}");
    stand::get(stage.server.addresses()[0], "http://127.0.0.1:1/newest");
    let (exit, text) = with_wrong(&["explain", "--last"]);
    assert!(exit == Some(0) && text.contains("/newest") && text.contains("refused"), "{exit:?} {text}");
}

/// A URL that an origin may read as a listed one is a listed one, and one that origins read differently is refused.
#[test]
fn no_spelling_of_a_path_leads_past_a_list() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("urls"), "127.0.0.1/ads/\n").unwrap();
    fs::create_dir(folder.path().join("guard")).unwrap();
    fs::write(folder.path().join("guard/expressions"), "casino|poker\n").unwrap();
    let source = |name: &str| folder.path().join(name).display().to_string();
    let rules = format!(
        "[[list]]\nname = \"urls\"\nsource = {:?}\nformat = \"urls\"\n[[list]]\nname = \"guard\"\nsource = {:?}\nformat = \"squidguard\"\n\
         [[rule]]\nwhen = {{ list = [\"urls\", \"guard\"] }}\ndo = {{ deny = true }}\n",
        source("urls"),
        source("guard")
    );
    let (server, origin) = (stand::server(&folder.path().join("store"), &rules), stand::origin());
    let status = |target: &str| {
        let answer = stand::get(server.addresses()[0], &format!("http://{origin}{target}"));
        answer.get(9..12).unwrap_or_default().to_owned()
    };
    for denied in [
        "/ads/x",
        "/ads%2fx",
        "/%2fads/x",
        "/%61ds/x",
        "/%2561ds/x",
        "/ads\\x",
        "/ads;a=1/x",
        "/casino",
        "/%63asino",
        "/;%63asino",
        "/x?q=%63asino",
        "/x?q=casino",
    ] {
        assert_eq!(status(denied), "403", "{denied}");
    }
    stand::wait_for("the rule has its count", || {
        let metrics = samples(body(&ask(server.admin().unwrap(), "/metrics")));
        let of_rule = |name: &str| name.starts_with("larder_rule_refusals_total{rule=\"rule (test:");
        metrics.iter().any(|(name, many)| of_rule(name) && *many == 12.0)
    });
    for unclear in ["/b/..%2fads/x", "/b%2f../ads/x", "/ads/..%2fx"] {
        assert_eq!(status(unclear), "400", "{unclear}");
    }
    for other in ["/fresh", "/fresh?a=%20b", "/adserver", "/x%20y"] {
        assert!(!["400", "403"].contains(&&*status(other)), "{other}");
    }
}

#[test]
fn a_look_is_asked_for_and_its_failure_is_told() {
    let stage = Stage::new();
    let file = stage.folder.path().join("ads.hosts");
    fs::write(&file, "0.0.0.0 new.example\n").unwrap();
    let (exit, text) = stage.command(&["list", "refresh", "ads"]);
    assert!(exit == Some(0) && text.contains("ads   good"), "{exit:?} {text}");
    assert_eq!(stage.command(&["list", "test", "ads", "new.example"]).0, Some(0));
    fs::write(&file, "<!DOCTYPE html><title>Log in</title>").unwrap();
    let (exit, text) = stage.command(&["list", "refresh"]);
    assert!(
        exit == Some(1) && text.contains("it is a web page, not a list") && text.contains("stays in force"),
        "{text}"
    );
    assert_eq!(stage.command(&["list", "test", "ads", "new.example"]).0, Some(0));
    assert_eq!(stage.command(&["list"]).0, Some(1));
}

#[test]
fn a_check_names_lists_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ads.hosts"), HOSTS).unwrap();
    let file = folder.path().join("larder.toml");
    fs::write(&file, config(&folder)).unwrap();
    let check = || larder(&["check", "--config"], &[file.to_str().unwrap()], None);
    let (exit, text) = check();
    assert!(exit == Some(2) && text.contains("error: list nets ("), "{text}");
    assert!(text.contains("larder.toml:6): ") && text.contains("nets.txt: No such file"), "{text}");
    fs::write(folder.path().join("nets.txt"), NETWORKS).unwrap();
    let (exit, text) = check();
    assert!(exit == Some(0) && text.contains("note: list ads ("), "{text}");
    assert!(
        text.contains("malformed lines, which cover nothing: 1") && text.contains("ads.hosts:2: \"0.0.0.0 bad/name\""),
        "{text}"
    );
    let wrong = "[[list]]\nname = \"x\"\nsource = \"ftp://lists.example/\"\nformat = \"word\"\nrefresh = \"1s\"\nsha256 = \"12\"\nallow = [\"a b\"]\n\
                 [[list]]\nname = \"y\"\nsource = \"/a\"\n[[list]]\nname = \"y\"\nsource = \"/b\"\n[[list]]\nsource = \"/b\"\n";
    fs::write(&file, wrong).unwrap();
    let (exit, text) = check();
    assert_eq!(exit, Some(2));
    for part in [
        "list.source of x:",
        "list.format of x:",
        "list.refresh of x:",
        "list.sha256 of x:",
        "list.allow of x:",
        "there is a list y already",
        "`name` is missing",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
