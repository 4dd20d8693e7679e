//! `larder prefetch`: lock files of several tools against registries of this process, and how disk care sees the result.

use super::stand;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

static ASKED: AtomicU64 = AtomicU64::new(0);

/// Registries of all kinds; pages vary with the coding, and files are named in them.
fn serve(stream: &TcpStream) -> Option<()> {
    let here = stream.local_addr().ok()?;
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        ASKED.fetch_add(1, Ordering::Relaxed);
        let path = first.split(' ').nth(1)?;
        let body = match path {
            "/simple/six/" => format!(
                r#"{{"files": [{{"filename": "six-1.16.0-py3-none-any.whl", "url": "/files/six-1.16.0-py3-none-any.whl", "hashes": {{}}, "core-metadata": true}},
                    {{"filename": "six-1.17.0-py3-none-any.whl", "url": "http://{here}/no", "hashes": {{}}}}]}}"#
            ),
            "/left-pad" => {
                format!(
                    r#"{{"versions": {{"1.3.0": {{"dist": {{"tarball": "http://{here}/files/left-pad-1.3.0.tgz"}}}}}}}}"#
                )
            }
            "/index/config.json" => format!(r#"{{"dl": "http://{here}/files"}}"#),
            "/no" => String::new(),
            path => path.to_owned(),
        };
        let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
        let control = if path.contains("forbidden") { "no-store" } else { "max-age=600" };
        let head = format!(
            "HTTP/1.1 {status}\r\nCache-Control: {control}\r\nVary: Accept-Encoding\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (&*stream).write_all((head + &body).as_bytes()).ok()?;
    }
}

struct Place {
    folder: tempfile::TempDir,
    origin: SocketAddr,
}

impl Place {
    fn larder(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        command.current_dir(self.folder.path()).env("HOME", self.folder.path()).args(words);
        command.args(["--store", "store"]).output().unwrap()
    }

    fn prefetch(&self, files: &[&str], index: &str) -> (Option<i32>, serde_json::Value) {
        let index = format!("http://{}{index}", self.origin);
        let words = [&["prefetch", "--json", "--python", "3.11", "--index", &index], files].concat();
        let output = self.larder(&words);
        let result = serde_json::from_slice(&output.stdout);
        (output.status.code(), result.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text.replace("ORIGIN", &self.origin.to_string())).unwrap();
    }

    fn serve(&self) -> Child {
        let mut server = Command::new(env!("CARGO_BIN_EXE_larder"))
            .current_dir(self.folder.path())
            .args(["--listen", "127.0.0.1:0", "--admin", "none", "--store", "store"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        std::io::BufRead::read_line(&mut BufReader::new(server.stdout.as_mut().unwrap()), &mut said).unwrap();
        server
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn lists_are_fetched_once_and_what_is_missing_is_said() {
    let place = Place { folder: tempfile::tempdir().unwrap(), origin: stand::origin_that(serve) };
    place.write("requirements.txt", "six==1.16.0\n");
    place.write("package-lock.json", r#"{"packages": {"node_modules/left-pad": {"version": "1.3.0"}}}"#);
    let source = "source = \"registry+https://r.example/crates.io-index\"";
    place.write("Cargo.lock", &format!("[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\n{source}\n"));
    place.write("go.sum", "a.example/X v1.0.0 h1:x=\na.example/X v1.0.0/go.mod h1:y=\n");
    place.write("list", "http://ORIGIN/files/1\nhttp://ORIGIN/files/2\n");
    // Pages are stored for the coding that the tool takes too.
    for (file, index, downloads) in [
        ("requirements.txt", "/simple", 4),
        ("package-lock.json", "", 3),
        ("Cargo.lock", "/index", 5),
        ("go.sum", "/go", 3),
        ("list", "", 2),
    ] {
        let (status, result) = place.prefetch(&[file], index);
        assert_eq!((status, &result["fetched"]), (Some(0), &downloads.into()), "{file}: {result}");
        let asked = ASKED.load(Ordering::Relaxed);
        let (status, result) = place.prefetch(&[file], index);
        assert_eq!((status, &result["already"]), (Some(0), &downloads.into()), "{file}: {result}");
        assert_eq!(ASKED.load(Ordering::Relaxed), asked, "{file}: nobody was asked again");
    }
    place.write("list", "http://ORIGIN/files/1\nhttp://ORIGIN/no\nhttp://ORIGIN/forbidden\nhttp://127.0.0.1:1/x\n");
    let (status, result) = place.prefetch(&["list"], "");
    assert_eq!((status, &result["already"]), (Some(1), &1.into()), "{result}");
    let missing = result["missing"].as_array().unwrap();
    let why = |part: &str| {
        let found = missing.iter().find(|missing| missing["what"].as_str().unwrap().contains(part)).unwrap();
        found["why"].as_str().unwrap().to_owned()
    };
    assert_eq!(missing.len(), 3);
    assert!(
        why("/no").contains("404") && why("forbidden").contains("no-store") && why("127.0.0.1:1/").contains("refused"),
        "{result}"
    );
    let wrong = place.larder(&["prefetch", "nothing.lock"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    care_for_the_disk(&place);
}

/// Lists by order, housekeeping and the purge of a host: by a running server, and then without one.
fn care_for_the_disk(place: &Place) {
    let host = place.origin.to_string();
    let mut server = place.serve();
    let said = ["host", "size", "age"].map(|by| place.larder(&["store", "ls", "--by", by]));
    let planned = place.larder(&["store", "gc", "--keep", "0", "--dry-run"]);
    let nothing = place.larder(&["store", "gc"]);
    let collected = place.larder(&["store", "gc", "--keep", "100"]);
    let other = place.larder(&["purge", "--host", "b.example"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(text(&said[0]).lines().count() == 1 && text(&said[0]).trim_end().ends_with(&host), "{}", text(&said[0]));
    let lines = |output: &Output| text(output).lines().count();
    assert!(lines(&said[1]) >= 17 && lines(&said[1]) == lines(&said[2]), "{}", text(&said[1]));
    assert!(text(&said[1]).lines().next().unwrap().ends_with("/simple/six/  (accept-encoding)"), "{}", text(&said[1]));
    assert!(text(&planned).contains("would be given up; 0 with"), "{}", text(&planned));
    assert!(text(&nothing).starts_with("0 objects"), "{}", text(&nothing));
    assert!(!text(&collected).starts_with("0 objects"), "{}", text(&collected));
    assert!(text(&other).contains("0 stored responses"), "{}", text(&other));
    let left = place.larder(&["store", "ls", "--by", "host"]);
    assert!(text(&left).contains(&host), "{}", text(&left));
    let again = place.larder(&["store", "gc", "--older-than", "0"]);
    assert!(text(&again).contains("given up; 0 with"), "{}", text(&again));
    place.write("list", "http://ORIGIN/files/1\nhttp://localhost:1/\n");
    assert_eq!(place.prefetch(&["list"], "").1["fetched"], 1);
    let purged = place.larder(&["purge", "--host", "127.0.0.1"]);
    assert!(text(&purged).contains("purged by host: 1 stored response is forgotten"), "{}", text(&purged));
    assert_eq!(text(&place.larder(&["store", "ls"])), "");
}
