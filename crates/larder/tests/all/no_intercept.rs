//! `larder run --no-intercept` with a real pip, and Python's own server as the origin.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Makes a wheel; its second argument is the place.
const WHEEL: &str = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('tiny.py', 'x = 1')
    wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.0.dist-info/RECORD', '')
";

const FILE: &str = "tiny-1.0-py3-none-any.whl";

struct Origin {
    child: Child,
    port: u16,
}

impl Origin {
    /// Serves a folder and writes its log to `log`.
    fn new(folder: &Path, log: &Path) -> Origin {
        let mut command = Command::new("python3");
        command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]).arg(folder);
        let log = fs::File::create(log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split_whitespace().skip_while(|word| *word != "port").nth(1).unwrap().parse().unwrap();
        Origin { child, port }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn download(folder: &Path, port: u16, more: &[&str], to: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["run", "--no-intercept", "--config", "none", "--store"]).arg(folder.join("store")).args(more);
    command.args(["--", "pip", "download", "--no-cache-dir", "--no-deps", "-d"]).arg(folder.join(to)).arg("tiny==1.0");
    ["PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_PROXY", "http_proxy", "HTTP_PROXY"]
        .iter()
        .for_each(|name| _ = command.env_remove(name));
    command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_INDEX_URL", format!("http://127.0.0.1:{port}/simple"));
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn pip_downloads_through_the_mirror_without_a_ca() {
    if Command::new("pip").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let folder = tempfile::tempdir().unwrap();
        let (folder, site) = (folder.path(), folder.path().join("site"));
        fs::create_dir_all(site.join("simple/tiny")).unwrap();
        fs::create_dir(site.join("files")).unwrap();
        let made = Command::new("python3").args(["-c", WHEEL]).arg(site.join("files").join(FILE)).status().unwrap();
        assert!(made.success());
        let origin = Origin::new(&site, &folder.join("log"));
        // An absolute link: without rewriting pip would get the file past the mirror.
        let link = format!("<a href=\"http://127.0.0.1:{}/files/{FILE}\">{FILE}</a>", origin.port);
        fs::write(site.join("simple/tiny/index.html"), link).unwrap();
        let port = origin.port;
        let play = |more: &[&str], to: &str| {
            let output = download(folder, port, more, to);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && folder.join(to).join(FILE).is_file(), "{to}: {said}");
            said
        };
        let said = play(&[], "first");
        assert!(said.contains("larder: nothing was intercepted; told of the mirror: pip"), "{said}");
        play(&[], "second");
        let log = fs::read_to_string(folder.join("log")).unwrap();
        assert_eq!(log.matches(&format!("GET /files/{FILE}")).count(), 1, "{log}");
        drop(origin);
        play(&["--offline"], "third");
        assert!(!folder.join("store/ca").exists(), "no CA is made");
    } else {
        eprintln!("there is no pip here");
    }
}
