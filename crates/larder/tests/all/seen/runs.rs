//! Answers of the store to a `larder run`, where origins say nothing of how long their answers live.

use super::stand;
use larder::run::control::{self, Client};
use larder::run::download::BodyUse;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// Says nothing of freshness; the type follows from the path, and the body counts the answers.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
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

static ASKED_OF_OFFLINE: AtomicU64 = AtomicU64::new(0);

/// Its answers are stale at once, each with another permission to use them so.
fn serve_stale(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        ASKED_OF_OFFLINE.fetch_add(1, Ordering::Relaxed);
        let control = match first.split(' ').nth(1)? {
            "/must" => "max-age=0, must-revalidate",
            "/no-cache" => "no-cache",
            "/private" => "private",
            _ => "max-age=0",
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nETag: \"v\"\r\nContent-Type: application/zip\r\nContent-Length: 10\r\n\r\n"
        );
        (&*stream).write_all((head + "0123456789").as_bytes()).ok()?;
    }
}

#[test]
fn an_offline_run_uses_what_is_stored_and_never_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let client = Client::new(control::socket(folder.path()));
    let origin = stand::origin_that(serve_stale);
    let ask = |proxy: SocketAddr, method: &str, path: &str, fields: &str| {
        let request = format!(
            "{method} http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nUser-Agent: test\r\n{fields}Connection: close\r\n\r\n"
        );
        stand::exchange(proxy, &request)
    };
    let online = client.start().unwrap();
    for path in ["/plain", "/must", "/no-cache", "/private"] {
        assert!(ask(online.proxy, "GET", path, "").starts_with("HTTP/1.1 200"), "{path}");
    }
    client.finish(&online.id).unwrap();
    let asked = ASKED_OF_OFFLINE.load(Ordering::Relaxed);

    let offline = client.start_with(control::Network::Untouched, control::Way::Proxy).unwrap();
    let get = |path: &str, fields: &str| ask(offline.proxy, "GET", path, fields);
    for (path, fields) in [
        ("/plain", ""),
        ("/plain", "Cache-Control: no-cache\r\n"),
        ("/plain", "Cache-Control: max-age=0\r\n"),
        ("/plain", "Pragma: no-cache\r\n"),
    ] {
        let answer = get(path, fields);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("0123456789"), "{path} {fields}: {answer}");
        assert!(answer.contains("larder; hit"), "{path} {fields}: {answer}");
    }
    assert!(get("/plain", "If-None-Match: \"v\"\r\n").starts_with("HTTP/1.1 304"));
    assert!(get("/plain", "Range: bytes=2-3\r\n").ends_with("\r\n\r\n23"));
    assert!(ask(offline.proxy, "HEAD", "/plain", "").starts_with("HTTP/1.1 200"));
    for (method, path, fields) in [
        ("GET", "/private", ""),
        // Their origin may have meant: only to those whom it lets have it.
        ("GET", "/must", ""),
        ("GET", "/no-cache", ""),
        ("GET", "/never-seen", "Accept: a/b\r\n"),
        ("GET", "/never-seen", "Accept: a/b\r\n"),
        ("HEAD", "/never-seen", ""),
        ("GET", "/mine", "X-Api-Key: secret\r\n"),
        ("GET", "/mine", "Authorization: Bearer secret\r\n"),
        ("GET", "/never-seen", "Accept: a/b\r\nRange: bytes=0-1\r\nIf-Match: \"v\"\r\n"),
        ("POST", "/plain", "Content-Length: 0\r\n"),
        ("DELETE", "/plain", ""),
        ("GET", "/plain", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
    ] {
        let answer = ask(offline.proxy, method, path, fields);
        let is_upgrade = fields.contains("Upgrade");
        assert!(answer.starts_with("HTTP/1.1 504"), "{method} {path} {fields}: {answer}");
        let has_page = !is_upgrade && method != "HEAD";
        assert!(!has_page || answer.contains("This run is offline"), "{method} {path}: {answer}");
    }
    let stats = client.finish(&offline.id).unwrap();
    assert_eq!(ASKED_OF_OFFLINE.load(Ordering::Relaxed), asked, "the network was left alone");
    let missing: Vec<(String, usize)> =
        stats.missing.iter().map(|request| (request.url.clone(), request.fields.len())).collect();
    let url = |path: &str| format!("http://{origin}{path}");
    let listed = [("/must", 1), ("/never-seen", 2), ("/no-cache", 1), ("/private", 1)];
    let listed: Vec<(String, usize)> = listed.iter().map(|(path, fields)| (url(path), *fields)).collect();
    assert_eq!(missing, listed, "each once, and none that says who asks");
    assert!(stats.outdated >= 4 && stats.misses.is_empty(), "{stats:?}");
}

/// Redirects to another origin, and says there which fields came.
fn redirects(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        lines.read_line(&mut head).ok().filter(|&read| read > 0)?;
    }
    let port = stream.local_addr().ok()?.port();
    let answer = match head.split(' ').nth(1)? {
        "/there.zip" => format!("HTTP/1.1 302 Found\r\nLocation: http://localhost:{port}/here.zip\r\nContent-Length: 0\r\n\r\n"),
        _ if head.contains("User-Agent") => "HTTP/1.1 404 Told too much\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok".to_owned(),
    };
    (&*stream).write_all(answer.as_bytes()).ok()
}

#[test]
fn a_request_of_the_list_follows_redirections_and_tells_another_origin_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let client = Client::new(control::socket(folder.path()));
    let origin = stand::origin_that(redirects);
    let fields = [("Accept", "*/*"), ("User-Agent", "tool/1"), ("X\r\nInjected", "1")];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let request = control::LaterRequest { url: format!("http://{origin}/there.zip"), fields, part: None };
    let run = client.start().unwrap();
    let fetched = larder::run::download::fetch(run.proxy, &request, BodyUse::Counted).unwrap();
    assert_eq!((fetched.status, fetched.bytes), (200, 2));
    client.finish(&run.id).unwrap();
    let offline = client.start_with(control::Network::Untouched, control::Way::Proxy).unwrap();
    let here = format!("http://localhost:{}/here.zip", origin.port());
    let ask = format!("GET {here} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", origin.port());
    assert!(stand::exchange(offline.proxy, &ask).ends_with("\r\n\r\nok"), "it is in the store now");
}

/// An origin that a test takes away and brings back at the same address.
struct Movable {
    address: SocketAddr,
    is_up: std::sync::Arc<std::sync::atomic::AtomicBool>,
    asked: std::sync::Arc<AtomicU64>,
}

impl Movable {
    /// Its answers are stale at once.
    fn new() -> Movable {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let movable = Movable { address, is_up: std::sync::Arc::default(), asked: std::sync::Arc::default() };
        movable.serve(listener);
        movable
    }

    fn serve(&self, listener: std::net::TcpListener) {
        let (is_up, asked) = (std::sync::Arc::clone(&self.is_up), std::sync::Arc::clone(&self.asked));
        is_up.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if !is_up.load(Ordering::SeqCst) {
                    return;
                }
                let Some(first) = stand::read_request(&mut BufReader::new(&stream)) else { continue };
                asked.fetch_add(1, Ordering::SeqCst);
                let control = match first.split(' ').nth(1) {
                    Some("/must") => "max-age=0, must-revalidate",
                    Some("/no-cache") => "no-cache",
                    _ => "max-age=0",
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nETag: \"v\"\r\nContent-Type: application/zip\r\nContent-Length: 3\r\nConnection: close\r\n\r\nzip"
                );
                let _ = stream.write_all(head.as_bytes());
            }
        });
    }

    /// From now on connections are refused.
    fn leave(&self) {
        self.is_up.store(false, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        stand::wait_for("the port is closed", || TcpStream::connect(self.address).is_err());
    }

    /// Connections are accepted again.
    fn come_back(&self) {
        let mut bound = None;
        stand::wait_for("the port is free", || {
            bound = std::net::TcpListener::bind(self.address).ok();
            bound.is_some()
        });
        self.serve(bound.unwrap());
    }

    fn ask(&self, proxy: SocketAddr, method: &str, path: &str, fields: &str) -> String {
        let origin = self.address;
        let request = format!(
            "{method} http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\nUser-Agent: test\r\n{fields}Connection: close\r\n\r\n"
        );
        stand::exchange(proxy, &request)
    }
}

/// The run was not told that there is no network: its origin refuses connections, and comes back.
#[test]
fn a_run_goes_on_while_its_origin_is_out_of_reach_and_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "[[listen]]\naddress = \"127.0.0.1:0\"\n");
    let ordinary = server.addresses()[0];
    let client = Client::new(control::socket(folder.path()));
    let run = client.start().unwrap();
    let origin = Movable::new();
    for path in ["/a", "/must", "/no-cache"] {
        assert!(origin.ask(run.proxy, "GET", path, "").starts_with("HTTP/1.1 200"), "{path}");
    }
    origin.leave();
    for turn in 0..3 {
        for fields in ["", "Cache-Control: max-age=0\r\n", "Cache-Control: no-cache\r\n"] {
            let answer = origin.ask(run.proxy, "GET", "/a", fields);
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("zip"), "{turn} {fields}: {answer}");
            // RFC 9111 holds for everybody else: a client that wants a validated answer gets no other one.
            if !fields.is_empty() {
                let answer = origin.ask(ordinary, "GET", "/a", fields);
                assert!(answer.starts_with("HTTP/1.1 502"), "{turn} {fields}: {answer}");
            }
        }
        assert!(origin.ask(run.proxy, "HEAD", "/a", "Cache-Control: no-cache\r\n").starts_with("HTTP/1.1 200"));
        // The word of the origin holds, and what is not stored is an error as before.
        for path in ["/must", "/no-cache", "/never-seen"] {
            let answer = origin.ask(run.proxy, "GET", path, "");
            assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("refused"), "{turn} {path}: {answer}");
        }
    }
    origin.come_back();
    let before = origin.asked.load(Ordering::SeqCst);
    stand::wait_for("the origin is asked again", || {
        origin.ask(run.proxy, "GET", "/a", "Cache-Control: max-age=0\r\n");
        origin.asked.load(Ordering::SeqCst) > before
    });
    let before = origin.asked.load(Ordering::SeqCst);
    origin.ask(run.proxy, "GET", "/a", "Cache-Control: max-age=0\r\n");
    assert_eq!(origin.asked.load(Ordering::SeqCst), before + 1, "and each time from then on");
    let stats = client.finish(&run.id).unwrap();
    assert!(stats.network_away >= 12 && stats.outdated >= 12, "{stats:?}");
    let missing: Vec<&str> = stats.missing.iter().filter_map(|request| request.url.rsplit('/').next()).collect();
    assert_eq!(missing, ["must", "never-seen", "no-cache"]);
}

/// Speaks no TLS and has no proper certificate: whoever answers there, it is not the origin.
#[test]
fn a_run_gets_no_old_content_behind_a_wrong_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let _server = stand::server(folder.path(), "");
    let client = Client::new(control::socket(folder.path()));
    let run = client.start().unwrap();
    let origin = stand::origin_that(|stream| {
        let _ = (&*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\nportal");
        Some(())
    });
    for _ in 0..3 {
        let ask = format!("GET https://{origin}/a HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\n\r\n");
        let answer = stand::exchange(run.proxy, &ask);
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("tls"), "{answer}");
    }
    let stats = client.finish(&run.id).unwrap();
    assert_eq!((stats.network_away, stats.missing.len()), (0, 0), "somebody was there: {stats:?}");
}
