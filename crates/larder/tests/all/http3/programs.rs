//! Programs of others that speak HTTP/3: two libraries of Python, and a browser.

use super::{Site, write_certificate};
use crate::http2::browser::chromium;
use crate::seen::stand;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has these clients, in a folder that stays between runs; nothing where they can't be had.
fn python() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("http3-clients");
    let python = folder.join("bin/python");
    let has_them = || {
        let found = Command::new(&python).args(["-c", "import aioquic, niquests"]).output();
        found.is_ok_and(|found| found.status.success())
    };
    if !has_them() {
        let made = stand::program("python3")?.args(["-m", "venv"]).arg(&folder).output();
        let install = ["-m", "pip", "install", "--quiet", "aioquic", "niquests"];
        let done = made.is_ok_and(|made| made.status.success())
            && Command::new(&python).args(install).output().is_ok_and(|done| done.status.success());
        if !done || !has_them() {
            eprintln!("skipped: pip can't install aioquic and niquests");
            return None;
        }
    }
    Some(python)
}

/// Bytes of the long bodies, in millions. These clients take seconds for ten; a client of these tests sends and gets a hundred.
const MILLIONS: &str = "10";

#[test]
fn clients_in_python_are_served() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    for (script, checks) in [("aioquic_client.py", 6), ("niquests_client.py", 3)] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/http3").join(script);
        let mut command = Command::new(&python);
        command.arg(&script).arg(site.address.port().to_string()).arg(folder.path().join("chain.pem")).arg(MILLIONS);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.lines().count() == checks, "{}: {said} {complaint}", script.display());
    }
    let log = site.log(folder.path());
    assert!(log.contains("/fresh?aioquic HTTP/3.0\" 200") && log.contains("/fresh?niquests HTTP/3.0\" 200"), "{log}");
}

/// Objects of the page.
const OBJECTS: usize = 200;

/// An origin of a page with many objects, each of which counts itself.
fn serve_page(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let path = head.split(' ').nth(1)?;
        let (kind, body) = match path {
            "/page" => {
                let objects: String =
                    (0..OBJECTS).map(|number| format!("<script src=\"/object/{number}\"></script>")).collect();
                ("text/html", format!("<!doctype html><p id=count>0</p>{objects}"))
            }
            _ => {
                let count = "document.getElementById('count').textContent = window.n = (window.n || 0) + 1;";
                ("text/javascript", count.to_owned())
            }
        };
        let fields = format!("Content-Type: {kind}\r\nCache-Control: max-age=60\r\nContent-Length: {}", body.len());
        write!(&*stream, "HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}").ok()?;
    }
}

#[test]
fn a_browser_loads_a_page_with_many_objects() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let pair = write_certificate(path);
    let origin = stand::origin_that(serve_page);
    let server = stand::server(
        path,
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n\
             tls = [{{ chain = \"{0}/chain.pem\", key = \"{0}/key.pem\" }}]\n\
             [log]\nto = \"{0}/access.log\"\n[[site]]\nhosts = [\"localhost\"]\norigin = \"http://{origin}\"\n",
            path.display()
        ),
    );
    let port = server.addresses()[0].port();
    let Some(mut browser) = chromium(path, &pair) else { return };
    browser.args([format!("--origin-to-force-quic-on=localhost:{port}"), "--timeout=30000".to_owned()]);
    browser.arg(format!("https://localhost:{port}/page"));
    let output = browser.output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    server.stop();
    let log = std::fs::read_to_string(path.join("access.log")).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(page.contains(&format!("<p id=\"count\">{OBJECTS}</p>")), "{page} {said} {log}");
    assert!(log.matches(" HTTP/3.0\" 200").count() > OBJECTS, "{log}");
    assert!(!log.contains("HTTP/2.0") && !log.contains("HTTP/1.1"), "{log}");
}
