//! Answers of the store to a `larder run`, where origins say nothing of how long their answers live.

use super::stand;
use larder::run::control::{self, Client};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// Says nothing of freshness; the type follows from the path, and the body counts the answers.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut first = String::new();
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
        }
        let media = match first.split(' ').nth(1)? {
            path if path.contains("/api/") => "application/json",
            path if path.contains("/page") => "text/html",
            path if path.contains("/simple/") => "application/vnd.pypi.simple.v1+json",
            _ => "application/octet-stream",
        };
        let cookie = if first.contains("cookie") { "Set-Cookie: a=b\r\n" } else { "" };
        let body = ANSWERS.fetch_add(1, Ordering::Relaxed).to_string();
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n{cookie}Content-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + &body).as_bytes()).ok()?;
    }
}

/// Asks for a path through the proxy with these field lines, and gives the body.
fn get(proxy: SocketAddr, origin: SocketAddr, path: &str, fields: &str) -> String {
    let request = format!(
        "GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nUser-Agent: test\r\nAccept: */*\r\n{fields}Connection: close\r\n\r\n"
    );
    stand::body(&stand::exchange(proxy, &request)).to_owned()
}

#[test]
fn a_run_keeps_files_that_say_nothing_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let run = Client::new(control::socket(folder.path())).start().unwrap();
    let origin = stand::origin_that(serve);
    let ask = |path: &str, fields: &str| get(run.proxy, origin, path, fields);

    for path in ["/six-1.16.0-py3-none-any.whl", "/debian/x_1.0_amd64.deb", "/app.zip", "/simple/six/"] {
        assert_eq!(ask(path, ""), ask(path, ""), "{path}");
    }
    for path in ["/api/status", "/api/x-1.0.zip", "/page", "/job/42", "/app.zip?token=1", "/cookie.zip"] {
        assert_ne!(ask(path, ""), ask(path, ""), "{path}");
    }
    for fields in ["Cookie: id=1\r\n", "Authorization: Bearer x\r\n", "X-Api-Key: x\r\n", "Unheard-Of: x\r\n"] {
        let path = format!("/of-{}.zip", &fields[..4]);
        assert_ne!(ask(&path, fields), ask(&path, fields), "{fields}");
        // Nor is one who may say who he is answered with what others got.
        let anonymous = ask("/shared.zip", "");
        assert_ne!(ask("/shared.zip", fields), anonymous, "{fields}");
        assert_eq!(ask("/shared.zip", ""), anonymous);
    }
}

/// A file with a version in its name does not expire with the index that names it.
#[test]
fn a_run_keeps_named_files_for_months() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let run = Client::new(control::socket(folder.path())).start().unwrap();
    let origin = stand::origin_that(serve);
    let ttl = |path: &str| {
        let ask = format!("GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
        stand::exchange(run.proxy, &ask);
        let answer = stand::exchange(run.proxy, &ask);
        let (_, rest) = answer.split_once("; hit; ttl=").unwrap_or_else(|| panic!("{path}: {answer}"));
        rest.lines().next().and_then(|seconds| seconds.parse::<u64>().ok()).unwrap()
    };
    let within = |ttl: u64, most: u64| ttl <= most && ttl > most - 60;
    assert!(within(ttl("/six-1.16.0-py3-none-any.whl"), 90 * 86_400));
    assert!(within(ttl("/simple/six/"), 600));
    assert!(within(ttl("/six-latest.zip"), 600));
}
