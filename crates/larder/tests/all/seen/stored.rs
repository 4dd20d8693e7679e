//! `larder store`: what it says of a damaged store, and what goes into an archive and comes out of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder for a store and for archives.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn larder(&self, words: &[&str], more: &[&Path]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).args(words);
        command.arg("--store").arg(self.store()).args(["--disk", "100MB"]).args(more);
        command.output().unwrap()
    }

    fn import(&self, archive: &[u8]) -> Output {
        fs::write(self.file("in.warc"), archive).unwrap();
        self.larder(&["store", "import"], &[&self.file("in.warc")])
    }

    fn flip(&self, name: &str, at: usize) {
        let path = self.store().join("disk").join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn record(kind: &str, more: &str, content: &str) -> String {
    let length = content.len();
    format!(
        "WARC/1.1\r\nWARC-Type: {kind}\r\n{more}Content-Type: application/http\r\nContent-Length: {length}\r\n\r\n{content}\r\n\r\n"
    )
}

#[test]
fn a_changed_bit_in_the_log_of_purges_is_told_and_costs_no_stored_object() {
    let place = Place::new();
    let message = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nETag: \"1\"\r\n\r\nbody";
    let stored = place.import(record("response", "WARC-Target-URI: http://a.example/x\r\n", message).as_bytes());
    assert!(stored.status.success(), "{}", text(&stored));
    let sound = place.larder(&["store", "verify"], &[]);
    assert!(sound.status.success(), "{}", text(&sound));
    place.flip("purges.log", 1);
    let damaged = place.larder(&["store", "verify"], &[]);
    assert_eq!(damaged.status.code(), Some(1), "{}", text(&damaged));
    assert!(text(&damaged).contains("purges.log is damaged: 8 bytes at 0"), "{}", text(&damaged));
    assert!(text(&damaged).contains("1 objects, 1 of them whole"), "{}", text(&damaged));
    let again = place.larder(&["store", "verify"], &[]);
    assert!(again.status.success(), "it was mended: {}", text(&again));
    assert!(!place.store().join("disk/damaged-1").exists());
    place.flip("data-000", 70);
    let record = place.larder(&["store", "verify"], &[]);
    assert_eq!(record.status.code(), Some(1), "{}", text(&record));
    assert!(text(&record).contains("1 damaged records"), "{}", text(&record));
}

#[test]
fn an_archive_s_variant_and_site_are_told_when_they_are_not_known() {
    let place = Place::new();
    let vary = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nVary: Accept-Encoding\r\n\r\ngzip";
    let target = "WARC-Record-ID: <r1>\r\nWARC-Target-URI: http://a.example/x\r\n";
    let without = place.import(record("response", target, vary).as_bytes());
    assert!(text(&without).starts_with("imported 0 responses\nleft out 1: by `Vary`"), "{}", text(&without));
    let asked = "GET /x HTTP/1.1\r\nHost: a.example\r\nAccept-Encoding: gzip\r\n\r\n";
    let request = record("request", "WARC-Concurrent-To: <r1>\r\n", asked);
    let with = place.import((request + &record("response", target, vary)).as_bytes());
    assert_eq!(text(&with), "imported 1 responses\n");
    let endless = [b"WARC/1.1\r\nX: ".to_vec(), vec![b'a'; 2_000_000]].concat();
    let refused = place.import(&endless);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused).contains("at byte 10: a line of a record's head is longer than 64 KiB"),
        "{}",
        text(&refused)
    );
}

#[test]
fn a_running_larder_tells_what_is_stored() {
    let place = Place::new();
    let message = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nX-Kept: yes\r\n\r\nbody";
    let two =
        ["a", "b"].map(|name| record("response", &format!("WARC-Target-URI: http://a.example/{name}\r\n"), message));
    assert!(place.import(two.concat().as_bytes()).status.success());
    let alone = place.larder(&["store", "ls"], &[]);
    let mut server = Command::new(env!("CARGO_BIN_EXE_larder"))
        .current_dir(place.folder.path())
        .args(["--listen", "127.0.0.1:0", "--admin", "none", "--disk", "100MB", "--memory", "16MB", "--store"])
        .arg(place.store())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.as_mut().unwrap()), &mut said).unwrap();
    let asked = place.larder(&["store", "ls"], &[]);
    let some = place.larder(&["store", "ls", "http://a.example/b"], &[]);
    let got = place.larder(&["store", "get", "-i", "http://a.example/a"], &[]);
    let none = place.larder(&["store", "get", "http://a.example/"], &[]);
    server.kill().unwrap();
    server.wait().unwrap();
    let urls = |output: &Output| {
        text(output).lines().filter_map(|line| Some(line.split_whitespace().last()?.to_owned())).collect::<Vec<_>>()
    };
    assert!(asked.status.success(), "{}", text(&asked));
    assert_eq!(urls(&asked), ["http://a.example/a", "http://a.example/b"], "{}", text(&asked));
    assert_eq!(urls(&alone), urls(&asked));
    assert_eq!(urls(&some), ["http://a.example/b"]);
    assert!(text(&got).starts_with("HTTP/1.1 200\r\n") && text(&got).contains("X-Kept: yes\r\n"), "{}", text(&got));
    assert!(text(&none).contains("is not stored"), "{}", text(&none));
}
