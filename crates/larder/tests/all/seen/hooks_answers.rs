//! Hooks that work on answers, with a real interpreter: `found`, `respond`, and origins chosen by `route`.

use super::hooks::{settings, status};
use super::reload::Steered;
use super::stand::{self, WITHIN, body, exchange, wait_for};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A site with these hooks.
pub(super) struct Stage {
    pub steered: Steered,
    pub proxy: SocketAddr,
    pub folder: tempfile::TempDir,
}

impl Stage {
    pub fn open(policy: &str, python: &str, change: impl Fn(String) -> String) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.py"), policy).unwrap();
        let text = change(settings(folder.path(), stand::origin_that(counting), python));
        let steered = Steered::start(folder.path(), &text);
        let proxy = steered.server.addresses()[0];
        Stage { steered, proxy, folder }
    }

    pub fn ask(&self, path: &str, fields: &str) -> String {
        self.send("GET", path, fields)
    }

    pub fn send(&self, method: &str, path: &str, fields: &str) -> String {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\n");
        exchange(self.proxy, &head)
    }

    /// The failures that `larder scripts` shows.
    pub fn failures(&self) -> Vec<String> {
        let mounts = self.steered.server.shared().nursery.mounts();
        mounts.all().iter().flat_map(|mount| mount.report().failures).map(|failure| failure.traceback).collect()
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// An origin each of whose answers has another number in its body, and some fields that no client is to have.
fn counting(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut first, mut line) = (String::new(), String::new());
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
        }
        let number = ANSWERS.fetch_add(1, Ordering::Relaxed);
        let target = first.split(' ').nth(1)?.to_owned();
        if target.contains("slow") {
            std::thread::sleep(Duration::from_millis(400));
        }
        let text = format!("{target} {number}");
        let (length, is_head) = (text.len(), first.starts_with("HEAD"));
        let tag = if target.contains("tagged") { "ETag: \"t\"\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{tag}Surrogate-Key: news all\r\nServer: secret\r\nContent-Length: {length}\r\n\r\n"
        );
        (&*stream).write_all((head + if is_head { "" } else { &text }).as_bytes()).ok()?;
    }
}

fn field<'a>(answer: &'a str, name: &str) -> Vec<&'a str> {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

const FOUND: &str = r#"
import larder

@larder.found(path="/news/**")
def news(req, found):
    with open("seen", "a") as seen:
        seen.write(f"{found.status} {found.age} {found.ttl} {found.stale} {found.headers['cache-control']} {found.tags}\n")
    if "x-fresh" in req.headers:
        return larder.miss()
    if "x-alone" in req.headers:
        return larder.pass_()
    if "x-deny" in req.headers:
        return larder.deny("not this one")

@larder.found(path="/broken")
def broken(req, found):
    return found.age / 0
"#;

#[test]
fn a_found_hook_decides_about_each_use_of_a_stored_response() {
    let stage = Stage::open(FOUND, "", |text| text);
    let first = stage.ask("/news/a", "");
    assert!(first.contains("uri-miss"), "{first}");
    assert!(stage.lines("seen").is_empty(), "nothing was stored, so there was nothing to ask about");
    let hit = stage.ask("/news/a", "");
    assert!(hit.contains("; hit") && body(&hit) == body(&first), "{hit}");
    let seen = stage.lines("seen");
    assert!(
        seen.len() == 1 && seen[0].starts_with("200 ") && seen[0].contains(" False max-age=60 ('news', 'all')"),
        "{seen:?}"
    );

    let fresh = stage.ask("/news/a", "X-Fresh: 1\r\n");
    assert!(body(&fresh) != body(&first) && !fresh.contains("; hit"), "{fresh}");
    assert_eq!(body(&stage.ask("/news/a", "")), body(&fresh), "what a miss brought is stored");
    let alone = stage.ask("/news/a", "X-Alone: 1\r\n");
    assert_ne!(body(&alone), body(&fresh));
    assert_eq!(body(&stage.ask("/news/a", "")), body(&fresh), "what is passed is not stored");
    let denied = stage.ask("/news/a", "X-Deny: 1\r\n");
    assert!(status(&denied) == "403" && body(&denied) == "not this one", "{denied}");
    // Requests for a part, for the head and with a condition are asked about as well.
    for fields in ["Range: bytes=0-3\r\n", "If-Modified-Since: Mon, 02 Nov 2026 00:00:00 GMT\r\n"] {
        assert_eq!(status(&stage.ask("/news/a", &format!("{fields}X-Deny: 1\r\n"))), "403", "{fields}");
    }
    assert_eq!(status(&stage.send("HEAD", "/news/a", "X-Deny: 1\r\n")), "403");
    let part = stage.ask("/news/a", "Range: bytes=0-4\r\n");
    assert!(status(&part) == "206" && body(&part) == "/news", "{part}");
    let other = stage.ask("/other", "X-Deny: 1\r\n");
    assert_eq!(
        (status(&other), status(&stage.ask("/other", "X-Deny: 1\r\n"))),
        ("200", "200"),
        "no filter lets it through"
    );
}

#[test]
fn misses_that_hooks_decide_are_collapsed() {
    let stage = Stage::open(FOUND, "", |text| text);
    stage.ask("/news/slow", "");
    let bodies: Vec<String> = std::thread::scope(|scope| {
        let ask = || body(&stage.ask("/news/slow", "X-Fresh: 1\r\n")).to_owned();
        let asking: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|each| each.join().unwrap()).collect()
    });
    let mut different = bodies.clone();
    different.sort();
    different.dedup();
    assert!(different.len() <= 2, "six misses at once asked the origin more than twice: {bodies:?}");
}

#[test]
fn a_found_hook_that_fails_denies_or_lets_the_response_be_used() {
    for (python, wanted) in [("", "500"), ("on_failure = \"pass\"\n", "200")] {
        let stage = Stage::open(FOUND, python, |text| text);
        assert_eq!(status(&stage.ask("/broken", "")), "200", "nothing is stored");
        let answer = stage.ask("/broken", "");
        assert!(status(&answer) == wanted && !answer.contains("ZeroDivisionError"), "{answer}");
        wait_for("the traceback", || stage.failures().iter().any(|text| text.contains("ZeroDivisionError")));
    }
}

const RESPOND: &str = r#"
import larder

@larder.respond(path="/me/**", field="x-user")
def stamp(req, resp):
    resp.headers["X-For"] = req.headers["x-user"]
    resp.headers.add("set-cookie", "seen=" + req.headers["x-user"])
    del resp.headers["server"]
    del resp.headers["surrogate-key"]

@larder.respond(path="/broken")
def broken(req, resp):
    resp.headers["content-length"] = "5"

@larder.respond(path="/tag")
def tag(req, resp):
    del resp.headers["etag"]

@larder.respond(path="/hang")
def hang(req, resp):
    while True:
        pass

@larder.request(path="/page")
def page(req):
    return larder.Response("a page", headers={"server": "mine"})

@larder.respond
def everywhere(req, resp):
    resp.headers["x-everywhere"] = str(resp.status)
"#;

#[test]
fn each_client_gets_its_own_fields_and_the_store_has_none_of_them() {
    let stage = Stage::open(RESPOND, "", |text| text);
    for round in 0..3 {
        for user in ["anna", "ben", "carl"] {
            let answer = stage.ask("/me/page", &format!("X-User: {user}\r\n"));
            assert_eq!(field(&answer, "x-for"), [user], "{answer}");
            assert_eq!(field(&answer, "set-cookie"), [format!("seen={user}")], "{answer}");
            assert!(field(&answer, "server").is_empty() && field(&answer, "surrogate-key").is_empty(), "{answer}");
            let control = field(&answer, "cache-control").join(", ");
            assert!(control.contains("private"), "a cookie for one client is kept from caches behind: {answer}");
            assert_eq!(answer.contains("; hit"), round > 0 || user != "anna", "{answer}");
        }
    }
    let plain = stage.ask("/me/page", "");
    assert!(
        plain.contains("; hit") && field(&plain, "x-for").is_empty() && field(&plain, "set-cookie").is_empty(),
        "{plain}"
    );
    assert_eq!((field(&plain, "server"), field(&plain, "cache-control")), (vec!["secret"], vec!["max-age=60"]));
    // Its purge by tag shows that the store has the fields that the hook takes off.
    let head = stage.send("HEAD", "/me/page", "X-User: dora\r\n");
    assert!(field(&head, "x-for") == ["dora"] && body(&head).is_empty(), "{head}");
    let part = stage.ask("/me/page", "X-User: emil\r\nRange: bytes=1-2\r\n");
    assert!(status(&part) == "206" && field(&part, "x-for") == ["emil"] && body(&part) == "me", "{part}");
    stage.ask("/me/tagged", "");
    let unchanged = stage.ask("/me/tagged", "X-User: fritz\r\nIf-None-Match: \"t\"\r\n");
    assert!(status(&unchanged) == "304" && field(&unchanged, "x-for") == ["fritz"], "{unchanged}");
    assert_eq!(field(&unchanged, "set-cookie"), ["seen=fritz"]);
    assert!(field(&unchanged, "server").is_empty() && field(&unchanged, "x-everywhere") == ["200"], "{unchanged}");
}

#[test]
fn clients_that_wait_for_one_response_get_fields_of_their_own() {
    let stage = Stage::open(RESPOND, "", |text| text);
    let users = ["anna", "ben", "carl", "dora", "emil", "fritz"];
    let answers: Vec<String> = std::thread::scope(|scope| {
        let stage = &stage;
        let ask = |user: &'static str| move || stage.ask("/me/slow", &format!("X-User: {user}\r\n"));
        let asking: Vec<_> = users.iter().map(|user| scope.spawn(ask(user))).collect();
        asking.into_iter().map(|each| each.join().unwrap()).collect()
    });
    for (user, answer) in users.iter().zip(&answers) {
        assert_eq!(
            (field(answer, "x-for"), field(answer, "set-cookie")),
            (vec![*user], vec![&*format!("seen={user}")])
        );
    }
    assert!(answers.iter().any(|answer| answer.contains("collapsed")), "nobody waited for another's: {answers:?}");
}

#[test]
fn requests_of_one_connection_get_fields_of_their_own() {
    let stage = Stage::open(RESPOND, "", |text| text);
    let mut stream = TcpStream::connect(stage.proxy).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let one =
        |user: &str, more: &str| format!("GET /me/kept HTTP/1.1\r\nHost: shop.example\r\nX-User: {user}\r\n{more}\r\n");
    let all: String = ["anna", "ben", "anna", "carl"].iter().map(|user| one(user, "")).collect();
    stream.write_all((all + &one("dora", "Connection: close\r\n")).as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    let users: Vec<&str> = answers.lines().filter_map(|line| line.strip_prefix("x-for: ")).collect();
    assert_eq!(users, ["anna", "ben", "anna", "carl", "dora"], "{answers}");
}

#[test]
fn pages_are_not_changed_and_fields_of_the_body_can_t_be() {
    let stage = Stage::open(RESPOND, "hook_time = \"200ms\"\n", |text| text);
    let page = stage.ask("/page", "");
    assert!(
        body(&page) == "a page" && field(&page, "x-everywhere").is_empty() && field(&page, "server") == ["mine"],
        "{page}"
    );
    let ambiguous = stage.ask("/x/../y", "");
    assert!(status(&ambiguous) == "400" && field(&ambiguous, "x-everywhere").is_empty(), "{ambiguous}");
    for (path, wanted, line) in [
        ("/broken", "500", "policy.py\", line 13, in broken"),
        ("/tag", "500", "policy.py\", line 17, in tag"),
        ("/hang", "504", "hook_time"),
    ] {
        for _ in 0..2 {
            let answer = stage.ask(path, "");
            assert!(status(&answer) == wanted && !answer.contains("secret"), "{path}: {answer}");
        }
        wait_for(line, || stage.failures().iter().any(|text| text.contains(line)));
    }
    assert_eq!(field(&stage.ask("/other", ""), "x-everywhere"), ["200"], "others are served");
}

#[test]
fn a_client_that_leaves_while_its_respond_hook_runs_harms_nobody() {
    let stage = Stage::open(RESPOND, "hook_time = \"500ms\"\n", |text| text);
    for _ in 0..3 {
        let mut stream = TcpStream::connect(stage.proxy).unwrap();
        stream.write_all(b"GET /hang HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for("others are served", || field(&stage.ask("/me/x", "X-User: anna\r\n"), "x-for") == ["anna"]);
}

/// Anything may be asked for by anybody at once; an answer has the fields that were made for its own request and no other's.
#[test]
fn no_field_for_one_client_reaches_another_whatever_hooks_do() {
    let random = r#"
import larder, zlib

def draw(req):
    return zlib.crc32((req.headers.get("x-draw", "") + req.path).encode())

@larder.request
def before(req):
    if draw(req) % 3 == 0:
        req.key.add(req.headers["x-user"])
    if draw(req) % 5 == 0:
        req.path = "/p%d" % (draw(req) % 4)

@larder.found
def found(req, found):
    if draw(req) % 7 == 0:
        return larder.miss()
    if draw(req) % 7 == 1:
        return larder.pass_()
    if draw(req) % 7 == 2:
        return larder.Response("own", headers={"x-for": req.headers["x-user"]})

@larder.respond(remember="60s")
def respond(req, resp):
    resp.headers["x-for"] = req.headers["x-user"]
    if req.headers.get("x-draw") == "1":
        resp.headers.add("set-cookie", "u=" + req.headers["x-user"])
"#;
    let stage = Stage::open(random, "hook_time = \"2s\"\n", |text| text);
    let hits = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (stage, hits) = (&stage, &hits);
            scope.spawn(move || {
                for round in 0..120_u32 {
                    let seed = (round * 4 + thread).wrapping_mul(2_654_435_761) >> 7;
                    let (draw, user, path) = (seed % 6, format!("u{}", seed / 6 % 5), seed / 30 % 4);
                    let answer = stage.ask(&format!("/x{path}"), &format!("X-User: {user}\r\nX-Draw: {draw}\r\n"));
                    assert_eq!((status(&answer), field(&answer, "x-for")), ("200", vec![&*user]), "{answer}");
                    let cookies = field(&answer, "set-cookie");
                    assert!(cookies.iter().all(|cookie| *cookie == format!("u={user}")), "{answer}");
                    hits.fetch_add(u32::from(answer.contains("; hit")), Ordering::Relaxed);
                }
            });
        }
    });
    let hits = hits.into_inner();
    assert!(hits > 40, "{hits} hits show nothing");
}

fn named(stream: &TcpStream, name: &str) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let text = format!("{name} {}", first.split(' ').nth(1)?);
        let length = text.len();
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + &text).as_bytes()).ok()?;
    }
}

fn origin_b(stream: &TcpStream) -> Option<()> {
    named(stream, "b")
}

const ROUTES: &str = r#"
import larder

@larder.request(path="/way/**")
def way(req):
    if "x-way" in req.headers:
        req.route = req.headers["x-way"]
"#;

fn with_routes(text: String) -> String {
    let b = stand::origin_that(origin_b);
    text.replace("[[python]]", &format!(
        "[[site.route]]\nname = \"b\"\norigin = \"http://{b}\"\n[[site.route]]\nname = \"b-too\"\norigin = \"http://{b}\"\n[[python]]"
    ))
}

#[test]
fn a_route_leads_to_another_origin_and_is_a_part_of_the_key() {
    let stage = Stage::open(ROUTES, "[access]\npurge = [\"127.0.0.0/8\"]\n", with_routes);
    let own = stage.ask("/way/x", "");
    assert!(body(&own).starts_with("/way/x "), "{own}");
    let other = stage.ask("/way/x", "X-Way: b\r\n");
    assert!(body(&other) == "b /way/x" && other.contains("uri-miss"), "{other}");
    let too = stage.ask("/way/x", "X-Way: b-too\r\n");
    assert!(body(&too) == "b /way/x" && too.contains("uri-miss"), "two routes to one origin are apart: {too}");
    for fields in ["", "X-Way: b\r\n", "X-Way: b-too\r\n"] {
        assert!(stage.ask("/way/x", fields).contains("; hit"), "{fields}");
    }
    let purged = stage.send("PURGE", "/way/x", "");
    assert_eq!(status(&purged), "200", "{purged}");
    for fields in ["", "X-Way: b\r\n", "X-Way: b-too\r\n"] {
        assert!(!stage.ask("/way/x", fields).contains("; hit"), "a purge covers {fields}");
    }
    stage.send("POST", "/way/x", "X-Way: b\r\nContent-Length: 0\r\n");
    for fields in ["", "X-Way: b\r\n"] {
        assert!(!stage.ask("/way/x", fields).contains("; hit"), "a POST voids {fields}");
    }
    let unknown = stage.ask("/way/x", "X-Way: nowhere\r\n");
    assert_eq!(status(&unknown), "500", "{unknown}");
    let wanted = "policy.py:7: way: there is no route \"nowhere\": the site has b, b-too";
    assert!(stage.failures().iter().any(|text| text == wanted), "{:?}", stage.failures());
}

#[test]
fn a_route_that_does_not_exist_is_found_at_load() {
    let policy = ROUTES.replace("req.headers[\"x-way\"]\n", "\"backend-b\"\n");
    let stage = Stage::open(&policy, "", with_routes);
    let answer = stage.ask("/way/x", "");
    assert!(status(&answer) == "500" && answer.contains("hook-not-loaded"), "{answer}");
    let mounts = stage.steered.server.shared().nursery.mounts();
    let failure = mounts.all()[0].report().load_failure.unwrap();
    let wanted = "policy.py:7: there is no route \"backend-b\": the sites with these hooks have b, b-too";
    assert_eq!(failure.traceback, wanted);
    fs::write(stage.folder.path().join("policy.py"), policy.replace("backend-b", "b")).unwrap();
    let text = fs::read_to_string(stage.folder.path().join("larder.toml")).unwrap();
    stage.steered.reload(&text).unwrap();
    wait_for("the route exists", || body(&stage.ask("/way/y", "X-Way: 1\r\n")) == "b /way/y");
}

#[test]
fn routes_are_checked_where_they_are_configured() {
    let folder = Path::new("/nowhere");
    let site = "[[site]]\nhosts = [\"a.example\"]\norigin = \"http://127.0.0.1:1\"\n";
    let route = "[[site.route]]\nname = \"b\"\norigin = \"http://127.0.0.1:2\"\n";
    let hooks = "hooks = [\"policy.py\"]\n";
    let report = |text: String| match larder::config::Loaded::parse("test", &text, &[]) {
        Ok(_) => "right".to_owned(),
        Err(report) => report.to_string(),
    };
    assert_eq!(report(format!("{site}{hooks}{route}")), "right", "{}", folder.display());
    for (text, wanted) in [
        (format!("{site}{route}"), "a route is chosen by hooks, and the site has none"),
        (format!("{site}{hooks}{route}{route}"), "the site has a route b already"),
        (format!("{site}{hooks}[[site.route]]\nname = \"b\"\n"), "`origin` is missing"),
        (format!("{site}{hooks}[[site.route]]\nname = \"a b\"\norigin = \"http://127.0.0.1:2\"\n"), "site.route.name"),
        (format!("{site}{hooks}[site.route]\nb = \"http://127.0.0.1:2\"\n"), "site.route is a list of tables"),
        (format!("{site}{hooks}{}", route.replace("http://", "ftp://")), "site.route.origin"),
    ] {
        let report = report(text.clone());
        assert!(report.contains(wanted) && report.contains("test:"), "{text}{report}");
    }
}

/// Fields of a request, by name in lower case.
pub(super) fn head_of(lines: &mut impl BufRead) -> Option<(String, HashMap<String, String>)> {
    let (mut first, mut fields) = (String::new(), HashMap::new());
    lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some((first, fields)) };
        fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
}
