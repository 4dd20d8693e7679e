//! The program as a person meets it first: a missing folder, a wrong flag, a wrong file, a question without a server.

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program with a home of its own and no configuration of this machine's.
fn larder(home: Option<&Path>, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).env_remove("XDG_CACHE_HOME").env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
    match home {
        Some(home) => command.env("HOME", home).current_dir(home),
        // An empty HOME counts as none; without the variable the system's list of users would be asked.
        None => command.env("HOME", ""),
    };
    command.output().expect("the program can be run")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_option_that_run_does_not_know_is_not_taken_for_the_command() {
    let home = tempfile::tempdir().unwrap();
    let output = larder(Some(home.path()), &["run", "--no-such-option", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("--no-such-option"), "{}", said(&output));
}

#[test]
fn a_store_that_cannot_be_written_is_told_and_the_command_runs() {
    let home = tempfile::tempdir().unwrap();
    let output = larder(Some(home.path()), &["run", "--store", "/dev/null/store", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("/dev/null/store"), "{}", said(&output));
    assert!(said(&output).contains("is not kept for the next run"), "{}", said(&output));
}

#[test]
fn without_a_home_the_command_runs_and_nothing_is_left_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["run", "--", "true"]).env_clear().env("HOME", "relative").env("PATH", "/usr/bin:/bin");
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("--store"), "{}", said(&output));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn check_shows_wrong_settings_and_missing_files_at_once() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("larder.toml");
    let text = "memory = \"lots\"\n[[listen]]\naddress = \"127.0.0.1:8443\"\n\
                tls = [{ chain = \"/nowhere/chain.pem\", key = \"/nowhere/key.pem\" }]\n\
                [log]\nto = \"/nowhere/access.log\"\n";
    std::fs::write(&file, text).unwrap();
    let output = larder(Some(home.path()), &["check"]);
    assert_eq!(output.status.code(), Some(2));
    for wanted in ["memory", "/nowhere/chain.pem", "/nowhere:", "3 errors"] {
        assert!(said(&output).contains(wanted), "{wanted} is missing in:\n{}", said(&output));
    }
}

#[test]
fn explain_without_a_server_says_what_a_run_would_do() {
    let home = tempfile::tempdir().unwrap();
    let output = larder(Some(home.path()), &["explain", "https://www.example.org/a.tar.gz"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(text.contains("opened with a certificate of the local CA"), "{text}");
    assert!(text.contains("nothing under this key"), "{text}");
    assert!(said(&output).contains("`larder run`"), "{}", said(&output));
}

#[test]
fn explain_without_a_server_follows_listeners_that_are_configured() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("larder.toml"), "[[listen]]\naddress = \"127.0.0.1:3128\"\n").unwrap();
    let output = larder(Some(home.path()), &["explain", "https://www.example.org/a.tar.gz"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("stays closed"), "{text}");
}

#[test]
fn computed_values_are_shown_as_computed_with_their_reason() {
    let home = tempfile::tempdir().unwrap();
    let output = larder(Some(home.path()), &["config"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |name: &str| text.lines().find(|line| line.contains(&format!("{name} = "))).unwrap_or_default();
    assert!(line("disk").contains("# computed: ") && line("disk").contains("free or used"), "{text}");
    assert!(line("object_bytes_max").contains("computed"), "{text}");
    assert!(!text.contains("1024TiB"), "{text}");
}

/// The first command of the README, with curl (where there is one) and without.
#[test]
fn the_demo_keeps_its_promises_and_leaves_nothing_behind() {
    let demos = [std::env::var("PATH").unwrap_or_default(), "/nowhere".to_owned()].map(|path| {
        std::thread::spawn(move || {
            let home = tempfile::tempdir().unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
            command.args(["demo", "--local"]).env("HOME", home.path()).env("TMPDIR", home.path()).env("PATH", path);
            let output = command.env("NO_PROXY", "localhost").current_dir(home.path()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(0), "{text}\n{}", said(&output));
            assert_eq!(text.matches('✓').count(), 4, "{text}");
            assert!(text.contains("200  24.0 MB") && text.contains("fresh for 1 year (max-age)"), "{text}");
            assert!(text.contains("used unasked"), "{text}");
            if text.contains("-- curl") {
                assert_eq!(shape(&text), shape(&transcript()), "README's transcript is another one than this:\n{text}");
            }
            assert!(!text.contains('\x1b'), "colours only on a terminal: {text}");
            assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "something is left behind");
        })
    });
    demos.into_iter().for_each(|demo| demo.join().unwrap());
}

/// README's transcript, without its part with a network.
fn transcript() -> String {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let (_, rest) = readme.split_once("```\nLarder: ").unwrap();
    let (whole, _) = rest.split_once("```").unwrap();
    let (before, behind) = whole.split_once("\n3  larder run").unwrap();
    let (_, behind) = behind.split_once("\n\n").unwrap();
    format!("Larder: {before}\n{behind}")
}

/// The words of a text, without what is measured or differs from machine to machine. How much faster it was is said where it is worth a word.
fn shape(text: &str) -> Vec<String> {
    let is_number = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    let word = |word: &str| match word {
        "s" | "ms" | "µs" => "TIME".to_owned(),
        word if word.ends_with("/larder") => "larder".to_owned(),
        word if word.starts_with("https://localhost:") => word.replace(|letter: char| letter.is_ascii_digit(), ""),
        word if is_number(word) && word.parse::<f64>().is_ok() => "NUMBER".to_owned(),
        word => word.to_owned(),
    };
    let lines = text.lines().map(|line| if line.starts_with("   Saved ") { "   Saved" } else { line });
    lines.flat_map(str::split_whitespace).map(word).collect()
}

/// Two runs, what they told for programs, and the sum of both.
#[test]
fn runs_are_told_to_programs_and_remembered() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("store");
    let store = store.to_str().unwrap();
    let json = home.path().join("told.json");
    let words = ["run", "--store", store, "--json", json.to_str().unwrap(), "--", "sh", "-c", "exit 4"];
    let output = larder(Some(home.path()), &words);
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&told["status"], &told["requests"], &told["keeps"]), (&4.into(), &0.into(), &true.into()));
    let stats = |words: &[&str]| {
        let output = larder(Some(home.path()), &[&["stats", "--store", store], words].concat());
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // Nothing came through Larder: nothing is remembered of that run.
    assert_eq!(stats(&[]), (Some(0), "no `larder run` in the last 30 days\n".to_owned()));
    let line = "{\"at\":4000000000,\"bytes_from_store\":2000000,\"bytes_fetched\":1000000}\n";
    std::fs::write(home.path().join("store/runs.jsonl"), line).unwrap();
    assert!(stats(&[]).1.starts_with("1 run in the last 30 days: 2.00 MB from the store (67 % of all bytes), 1.00 MB"));
    assert!(stats(&["--json"]).1.contains("\"bytes_from_store\": 2000000"));
    assert_eq!(stats(&["--clear"]), (Some(0), String::new()));
    assert_eq!(stats(&[]).1, "no `larder run` in the last 30 days\n");
}
