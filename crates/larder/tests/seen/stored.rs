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
