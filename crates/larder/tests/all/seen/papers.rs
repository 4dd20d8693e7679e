//! Tests of the command itself: completions, manual pages, references.

use std::process::{Command, Output};

fn larder(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn completions_are_taken_by_their_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = larder(&["completions", shell]);
        assert!(output.status.success() && text(&output).contains("replay"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("larder.bash");
    std::fs::write(&file, larder(&["completions", "bash"]).stdout).unwrap();
    let script = format!(
        ". {} && COMP_WORDS=(larder rel) COMP_CWORD=1 && _larder larder rel larder && echo \"${{COMPREPLY[*]}}\"",
        file.display()
    );
    let bash = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(text(&bash).trim(), "reload");
    assert_eq!(larder(&["completions", "nonsense"]).status.code(), Some(2));
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let output = larder(&["man", folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output));
    for (page, words) in [("larder.1", ".TH larder 1"), ("larder-run.1", "larder-run"), ("larder-check.1", "replay")] {
        let page = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(page.contains(words) || page.contains(&words.replace('-', "\\-")), "{words} in {page}");
    }
    assert_eq!(larder(&["man", "/dev/null/x"]).status.code(), Some(1));
}

#[test]
fn the_doctor_says_what_to_change() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let store = folder.path().to_str().unwrap();
    let output = larder(&["doctor", "--config", "none", "--store", store, "--listen", &address, "--admin", "none"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("BAD   listen {address}")) && said.contains("→ stop the other program"), "{said}");
    for word in ["open files", "memory", "disk speed", "disk space", "clock", "DNS", "roots"] {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[test]
fn settings_are_explained_by_help() {
    let output = larder(&["config", "--config", "none", "--help", "memory"]);
    assert!(output.status.success() && text(&output).contains("Budget of the memory store"), "{}", text(&output));
    for (table, setting) in [("tls", "listen.tls.chain"), ("listen.tls", "listen.tls.key"), ("tracing", "tracing.otlp")]
    {
        let output = larder(&["config", "--config", "none", table]);
        assert!(output.status.success() && text(&output).contains(setting), "{}", text(&output));
    }
    let output = larder(&["config", "--config", "none", "memry"]);
    assert!(output.status.code() == Some(2) && text(&output).contains("did you mean memory?"), "{}", text(&output));
    let output = larder(&["config", "--config", "none", "cache_mem"]);
    assert!(text(&output).contains("a word of Squid; here it is `memory`"), "{}", text(&output));
    assert!(text(&larder(&["config", "--help"])).contains("--markdown"));
    assert!(text(&larder(&["--help"])).contains("Exit status: 0 all went well"));
    let output = larder(&["reload", "--config", "none", "--store", "/nonexistent"]);
    assert!(output.status.code() == Some(1) && text(&output).contains("no larder answers in /nonexistent"));
}
