//! The guides of `docs/cacheoff.md` work: their files are read, their workload is played, their flags exist.

use cacheoff::contest::{EntrySpec, Post, Prepared, Servers};
use std::path::Path;
use std::process::{Command, Output};

const CACHEOFF: &str = env!("CARGO_BIN_EXE_cacheoff");

fn guide() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cacheoff.md")).unwrap()
}

/// Blocks of code in some language, without their indentation.
fn blocks(language: &str) -> Vec<String> {
    let (mut found, mut open): (Vec<String>, Option<usize>) = (Vec::new(), None);
    for line in guide().lines() {
        let bare = line.trim_start();
        match (open, bare.strip_prefix("```")) {
            (None, Some(word)) => {
                open = Some(line.len() - bare.len());
                found.push(format!("{word}\n"));
            }
            (Some(_), Some(_)) => open = None,
            (Some(indent), None) => {
                let block = found.last_mut().unwrap();
                block.push_str(line.get(indent..).unwrap_or_default());
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    let of = |block: String| block.strip_prefix(&format!("{language}\n")).map(str::to_owned);
    found.into_iter().filter_map(of).collect()
}

fn block(language: &str, start: &str) -> String {
    blocks(language).into_iter().find(|block| block.starts_with(start)).unwrap()
}

fn call(folder: &Path, words: &[&str]) -> Output {
    Command::new(CACHEOFF).args(words).current_dir(folder).output().unwrap()
}

#[test]
fn the_workload_of_the_guide_is_checked_and_played_and_judged() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine.toml"), block("toml", "# mine.toml")).unwrap();
    let check = call(folder.path(), &["check", "./mine.toml"]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let play =
        |conditions: &str| call(folder.path(), &["run", "./mine.toml", "--scale", "0.02", "--threshold", conditions]);
    let fine = play("lies<1");
    assert_eq!(fine.status.code(), Some(0), "{}", String::from_utf8_lossy(&fine.stderr));
    let broken = play("rps<0.001");
    let said = String::from_utf8_lossy(&broken.stderr).into_owned();
    assert!(broken.status.code() == Some(1) && said.contains("threshold of mine: no-proxy rps is "), "{said}");
    let nonsense = play("speed>1");
    assert_eq!(nonsense.status.code(), Some(2), "before anything is played");
}

#[test]
fn the_entry_of_the_guide_is_laid_out() {
    let folder = tempfile::tempdir().unwrap();
    // Some program that is installed stands for the cache.
    let entry = block("toml", "# entry.toml").replace("\"mycached\"", "\"sh\"");
    std::fs::write(folder.path().join("entry.toml"), entry).unwrap();
    std::fs::write(folder.path().join("mycache.conf"), block("", "listen")).unwrap();
    for store in ["memory", "disk"] {
        let post = Post {
            mode: "reverse".to_owned(),
            store: store.to_owned(),
            port: 4,
            origin: "127.0.0.1:9".parse().unwrap(),
            memory_mb: 64,
            disk_mb: 256,
            cores: vec![0],
            servers: Servers::default(),
            listener: cacheoff::ledger::Listener::Http,
        };
        let prepared = Prepared::new(EntrySpec::folder(folder.path()).unwrap(), post).unwrap();
        let text = std::fs::read_to_string(prepared.folder().join("mycache.conf")).unwrap();
        assert!(text.contains("listen 127.0.0.1:4\norigin 127.0.0.1:9\nworkers 1\n") && text.contains(store), "{text}");
    }
}

#[test]
fn the_flags_of_the_guide_exist() {
    let lines: Vec<String> = blocks("sh")
        .iter()
        .flat_map(|block| {
            let whole = block.replace("\\\n", " ");
            whole.lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|line| line.starts_with("cacheoff "))
        .collect();
    assert!(lines.len() >= 7, "{lines:?}");
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let help = call(Path::new("."), &[words[1], "--help"]);
        assert!(help.status.success(), "{line}");
        let help = String::from_utf8(help.stdout).unwrap();
        for flag in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "{line}: there is no {flag}");
        }
    }
}
