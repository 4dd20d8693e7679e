//! The login page of a site: a signed cookie is a user for a time. Forged, foreign and replayed cookies, forms of other pages and paths that
//! lead astray get nothing, and no cookie of Larder's reaches an origin.

use super::reload::{Steered, base};
use super::schemes::{secured, write_pair};
use super::stand::{self, Kept};
use crate::http2::client::{Client, connect};
use larder_people::form::encoded;
use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// `ada:secret` and `bob:secret`.
const USERS: &str = "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\nbob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n";
/// `secret` with another salt.
const OTHER_HASH: &str = "$apr1$hgfedcba$o8Q2WhJCLJT8vYynfKxrM0";
const PAGE: &str = "/.larder/login";
const LOGOUT: &str = "/.larder/logout";
const BROWSER: &str = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n";

static ANSWERS: AtomicU64 = AtomicU64::new(0);
static ORDERS: AtomicU64 = AtomicU64::new(0);

/// An origin that says how many-th its answer is, and which cookies and credentials it got.
fn serve(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok()).unwrap_or(0);
        lines.by_ref().take(length).read_to_end(&mut Vec::new()).ok()?;
        let number = ANSWERS.fetch_add(1, Ordering::SeqCst);
        let path = head.split(' ').nth(1)?;
        ORDERS.fetch_add(u64::from(path == "/order"), Ordering::SeqCst);
        let is_seen =
            |line: &&str| ["cookie:", "authorization:"].iter().any(|name| line.to_lowercase().starts_with(name));
        let seen: Vec<&str> = head.lines().filter(is_seen).collect();
        let control = if path.contains("public") { "public, max-age=60" } else { "max-age=60" };
        let vary = if path.contains("vary") { "Vary: Cookie\r\n" } else { "" };
        let body = format!("answer {number} path {path} [{}]", seen.join("|"));
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {control}\r\n{vary}ETag: \"1\"\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

fn login(folder: &Path, more: &str) -> String {
    format!(
        "[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = {:?}\ngroups = {:?}\nfailures = 4\nfailure_period = \"1h\"\n\
         [[login]]\nname = \"web\"\nscheme = \"form\"\nrealm = \"The <site>\"\nusers = \"office\"\n{more}",
        folder.join("users"),
        folder.join("groups"),
    )
}

fn settings(folder: &Path, origin: SocketAddr, more: &str) -> String {
    format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n{}\
         [[site]]\nhosts = [\"a.test\", \"b.test\"]\norigin = \"http://{origin}\"\nlogin = \"web\"\n\
         [[site]]\nhosts = [\"a.test\"]\nprefix = \"/open/\"\norigin = \"http://{origin}\"\n\
         [log]\nto = {:?}\nformat = \"{{client}} {{user}} {{status}} {{outcome}} {{url}}\"\n{more}",
        base(folder),
        login(folder, ""),
        folder.join("access.log")
    )
}

fn write_users(folder: &Path, users: &str, groups: &str) {
    std::fs::write(folder.join("groups"), groups).unwrap();
    std::fs::write(folder.join("users"), users).unwrap();
}

/// A browser: it keeps cookies and sends them back.
#[derive(Clone)]
struct Browser {
    to: SocketAddr,
    host: String,
    source: SocketAddr,
    jar: BTreeMap<String, String>,
    /// The lines of the last `Set-Cookie`.
    set: Vec<String>,
}

impl Browser {
    fn at(to: SocketAddr, host: &str) -> Browser {
        Browser { to, host: host.to_owned(), source: ([127, 0, 0, 1], 0).into(), jar: BTreeMap::new(), set: Vec::new() }
    }

    fn cookies(&self) -> String {
        let pairs: Vec<String> = self.jar.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if pairs.is_empty() { String::new() } else { format!("Cookie: {}\r\n", pairs.join("; ")) }
    }

    fn take(&mut self, head: &str) {
        self.set = head.lines().filter_map(|line| line.strip_prefix("Set-Cookie: ")).map(str::to_owned).collect();
        for line in &self.set {
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            match line.contains("Max-Age=0") {
                true => _ = self.jar.remove(name),
                false => _ = self.jar.insert(name.to_owned(), value.to_owned()),
            }
        }
    }

    fn send(&mut self, line: &str, fields: &str, body: &str) -> (String, String) {
        let (host, cookies) = (&self.host, self.cookies());
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let request =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\n{cookies}{length}{fields}Connection: close\r\n\r\n{body}");
        let mut stream = stand::connect_from(self.source.ip(), self.to);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        self.take(head);
        (head.to_owned(), body.to_owned())
    }

    fn get(&mut self, path: &str) -> (String, String) {
        self.send(&format!("GET {path}"), BROWSER, "")
    }

    fn status(&mut self, path: &str) -> String {
        self.get(path).0[9..12].to_owned()
    }

    fn post(&mut self, path: &str, form: &str, fields: &str) -> (String, String) {
        let own = format!("Origin: http://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n", self.host);
        let own = if fields.contains("Origin") { "" } else { &own };
        self.send(&format!("POST {path}"), &format!("{BROWSER}{own}{fields}"), form)
    }

    /// Fills in the form that leads back to this path.
    fn log_in(&mut self, user: &str, password: &str, to: &str) -> (String, String) {
        let (_, page) = self.get(&format!("{PAGE}?to={}", encoded(to)));
        self.post(PAGE, &format!("{}&user={user}&password={password}", fields_of(&page)), "")
    }

    fn session(&self) -> String {
        self.jar["larder-login.web"].clone()
    }

    /// The same browser with this session.
    fn with(&self, session: &str) -> Browser {
        let mut other = self.clone();
        other.jar.insert("larder-login.web".to_owned(), session.to_owned());
        other
    }
}

/// The hidden fields of a page as its form sends them.
fn fields_of(page: &str) -> String {
    let fields = page.split("<input type=\"hidden\" name=\"").skip(1);
    let fields = fields.map(|field| {
        let (name, rest) = field.split_once("\" value=\"").unwrap();
        let value = rest.split('"').next().unwrap().replace("&#39;", "'").replace("&amp;", "&");
        format!("{name}={}", encoded(&value))
    });
    fields.collect::<Vec<_>>().join("&")
}

fn field<'h>(head: &'h str, name: &str) -> &'h str {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or("")
}

#[test]
fn a_cookie_is_the_user_who_has_logged_in() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "staff: bob\n");
    let origin = stand::origin_that(serve);
    let rules = "[[rule]]\nwhen = { group = \"staff\", path = \"/ada/**\" }\ndo = { deny = true, status = 410 }\n\
                 [[rule]]\nwhen = { path = \"/told\" }\ndo = { set = \"X-Cookie: {user}\" }\n";
    let steered = Steered::start(folder.path(), &settings(folder.path(), origin, rules));
    let to = steered.server.addresses()[0];
    let [mut ada, mut bob, mut nobody] = ["a.test"; 3].map(|host| Browser::at(to, host));
    ada.jar.insert("own".to_owned(), "1".to_owned());
    // A browser is led to the page and back.
    let (head, _) = ada.get("/a'x?b=%22&c=d");
    assert!(head.starts_with("HTTP/1.1 303") && field(&head, "Cache-Control") == "no-store", "{head}");
    let link = field(&head, "Location").to_owned();
    assert_eq!(link, "/.larder/login?to=/a%27x%3Fb%3D%2522%26c%3Dd");
    let (head, page) = ada.get(&link);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("frame-ancestors 'none'"), "{head}");
    assert!(page.contains("The &lt;site&gt;") && !page.contains("<site>"), "{page}");
    assert!(ada.set[0].starts_with("larder-form.web=") && ada.set[0].ends_with("; Path=/; HttpOnly; SameSite=Lax"));
    let (head, _) = ada.post(PAGE, &format!("{}&user=ada&password=secret", fields_of(&page)), "");
    assert!(head.starts_with("HTTP/1.1 303"), "{head}");
    assert_eq!(field(&head, "Location"), "http://a.test/a'x?b=%22&c=d");
    assert!(ada.set[0].ends_with("; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax"), "{:?}", ada.set);
    // The origin sees the browser's own cookies and none of Larder's, and `Authorization` is its own.
    let (head, body) = ada.send("GET /a", &format!("{BROWSER}Authorization: Bearer x\r\n"), "");
    assert!(body.ends_with("[Authorization: Bearer x|Cookie: own=1]"), "{body}");
    assert!(head.contains("Cache-Control: max-age=60\r\n"), "{head}");
    assert!(head.contains("Cache-Control: private"), "caches between keep it for its reader: {head}");
    // Stored answers are for all who are let in, and for nobody else.
    assert!(bob.log_in("bob", "secret", "/").0.starts_with("HTTP/1.1 303"));
    let (_, first) = ada.get("/shared");
    assert!(first.ends_with("[Cookie: own=1]"), "{first}");
    let (head, second) = bob.get("/shared");
    assert!(second == first && head.contains("; hit") && head.contains("Cache-Control: private"), "{head}");
    assert_eq!([ada.get("/vary").1.contains("own=1"), bob.get("/vary").1.ends_with("[]")], [true, true]);
    bob.jar.insert("own".to_owned(), "1".to_owned());
    assert!(bob.get("/vary").0.contains("; hit"), "sessions make no variants");
    let (head, _) = bob.get("/public");
    assert_eq!(field(&head, "Cache-Control"), "public, max-age=60", "{head}");
    assert!(!head.contains("private"), "its origin shares it: {head}");
    assert_eq!(nobody.status("/shared"), "303");
    // Rules see the user and the groups.
    assert_eq!([ada.status("/ada/x"), bob.status("/ada/x")], ["200", "410"]);
    assert_ne!(ada.get("/told").1, bob.get("/told").1, "what a rule tells the origin is a part of the key");
    steered.server.stop();
}

#[test]
fn methods_parts_and_other_places_are_those_of_any_site() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "");
    let origin = stand::origin_that(serve);
    let steered = Steered::start(folder.path(), &settings(folder.path(), origin, ""));
    let to = steered.server.addresses()[0];
    let [mut ada, mut bob, mut nobody] = ["a.test"; 3].map(|host| Browser::at(to, host));
    ada.jar.insert("own".to_owned(), "1".to_owned());
    ada.log_in("ada", "secret", "/");
    bob.log_in("bob", "secret", "/");
    assert!(ada.get("/shared").1.starts_with("answer"));
    let (head, body) = ada.send("HEAD /shared", BROWSER, "");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty(), "{head}");
    let (head, body) = ada.send("GET /shared", &format!("{BROWSER}Range: bytes=0-5\r\n"), "");
    assert_eq!((&head[9..12], &*body), ("206", "answer"));
    let (head, _) = ada.send("GET /shared", &format!("{BROWSER}If-None-Match: \"1\"\r\n"), "");
    assert!(head.starts_with("HTTP/1.1 304") && head.contains("Cache-Control: private"), "{head}");
    // A part of the site that asks nobody passes no cookie on either.
    assert!(ada.get("/open/x").1.ends_with("[Cookie: own=1]"));
    assert!(nobody.get("/open/x").0.contains("; hit"));
    assert!(ada.get("/open/x").0.contains("; hit"));
    // Out again: the cookie is nothing any more, and the other browser goes on.
    let old = ada.session();
    let (head, body) = ada.post(LOGOUT, "", "");
    assert!(body.contains("not logged in") && field(&head, "Clear-Site-Data") == "\"cache\"", "{head}{body}");
    assert!(!ada.jar.contains_key("larder-login.web"));
    assert_eq!([ada.status("/shared"), ada.with(&old).status("/shared"), bob.status("/shared")], ["303", "303", "200"]);
    stand::wait_for("the user in the log", || {
        let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap_or_default();
        assert!(!log.contains("secret") && !log.contains(&old), "{log}");
        log.contains("127.0.0.1 bob 200 hit http://a.test/shared") && log.contains("127.0.0.1 ada 303 login-page")
    });
    steered.server.stop();
}

#[test]
fn a_program_gets_an_error_and_nothing_is_sent_again_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "");
    let origin = stand::origin_that(serve);
    let steered = Steered::start(folder.path(), &settings(folder.path(), origin, ""));
    let mut client = Browser::at(steered.server.addresses()[0], "a.test");
    let script = "Sec-Fetch-Mode: cors\r\n";
    for (line, fields, status) in [
        ("GET /x", "", "401"),
        ("GET /x", "Accept: */*\r\n", "401"),
        ("GET /x", "Accept: application/json\r\n", "401"),
        ("GET /x", "Accept: text/html;q=0\r\n", "401"),
        ("GET /x", "Accept: text/html, */*\r\nX-Requested-With: XMLHttpRequest\r\n", "401"),
        ("GET /x", &format!("{BROWSER}{script}"), "401"),
        ("GET /x", "Accept: */*\r\nSec-Fetch-Mode: navigate\r\n", "303"),
        ("GET /x", BROWSER, "303"),
        ("HEAD /x", BROWSER, "303"),
        ("HEAD /x", "", "401"),
        ("DELETE /x", BROWSER, "401"),
        ("OPTIONS /x", "", "401"),
        ("GET /.larder/login", "Accept: application/json\r\n", "200"),
        ("PUT /.larder/login", "", "405"),
    ] {
        let (head, _) = client.send(line, fields, "");
        assert_eq!(&head[9..12], status, "{line} {fields}: {head}");
        if status == "401" {
            let challenge =
                "Cookie realm=\"The <site>\", form-action=\"/.larder/login\", cookie-name=\"larder-login.web\"";
            assert_eq!(field(&head, "WWW-Authenticate"), challenge);
        }
    }
    // A form of the site whose session has ended: its origin is not asked, and its reader is told so.
    let (head, page) = client.post("/order", "count=1", "");
    assert!(
        head.starts_with("HTTP/1.1 401") && page.contains("was not passed on") && page.contains("_blank"),
        "{head}{page}"
    );
    client.log_in("ada", "secret", "/order");
    let mut other = client.clone();
    assert_eq!(ORDERS.load(Ordering::SeqCst), 0, "it was not sent after the login either");
    assert!(other.post("/order", "count=1", "").1.contains("path /order []"));
    steered.server.stop();
}

#[test]
fn forged_foreign_and_replayed_cookies_let_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "");
    let origin = stand::origin_that(serve);
    let steered = Steered::start(folder.path(), &settings(folder.path(), origin, ""));
    let to = steered.server.addresses()[0];
    let [mut ada, mut bob] = ["a.test"; 2].map(|host| Browser::at(to, host));
    ada.log_in("ada", "secret", "/");
    bob.log_in("bob", "secret", "/");
    assert_eq!([ada.status("/x"), bob.status("/x")], ["200", "200"]);
    let session = ada.session();
    let mut letters = session.clone().into_bytes();
    letters[60] = if letters[60] == b'0' { b'1' } else { b'0' };
    let forged = String::from_utf8(letters).unwrap();
    let mixed = format!("{}{}", &session[..48], &bob.session()[48..]);
    for value in [
        "",
        "0",
        &session[..111],
        &session[1..],
        &format!("{session}0"),
        &session.to_uppercase(),
        &forged,
        &mixed,
        &"f".repeat(112),
        &"f".repeat(8_000),
        &format!("\"{session}\""),
        "ada",
    ] {
        assert_eq!(ada.with(value).status("/x"), "303", "{value:.30}");
    }
    // The name counts by its case, the one for TLS is another one, and of two values none counts.
    for cookies in [
        format!("Larder-Login.web={session}"),
        format!("larder-login.WEB={session}"),
        format!("__Host-larder-login.web={session}"),
        format!("larder-login.office={session}"),
        format!("larder-login.web={session}; larder-login.web={forged}"),
    ] {
        let (head, _) = Browser::at(to, "a.test").send("GET /x", &format!("{BROWSER}Cookie: {cookies}\r\n"), "");
        assert!(head.starts_with("HTTP/1.1 303"), "{cookies}: {head}");
    }
    let split = format!("{BROWSER}Cookie: x=1\r\nCookie: larder-login.web={session}\r\nCookie: y=2\r\n");
    let (_, body) = Browser::at(to, "a.test").send("GET /none", &split, "");
    assert!(body.ends_with("[Cookie: x=1|Cookie: y=2]"), "{body}");
    // Another site with the same login, and another port.
    let mut other = Browser { host: "b.test".to_owned(), ..ada.clone() };
    assert_eq!(other.status("/x"), "303");
    let mut ported = Browser { host: "a.test:8080".to_owned(), ..ada.clone() };
    ported.jar.insert("larder-login.web.8080".to_owned(), session.clone());
    assert_eq!(ported.status("/x"), "303");
    steered.server.stop();
}

#[test]
fn a_session_ends_with_the_password_and_the_groups_of_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "staff: ada\n");
    let origin = stand::origin_that(serve);
    let text = settings(folder.path(), origin, "").replace("failures = 4", "failures = 10000");
    let steered = Steered::start(folder.path(), &text);
    let to = steered.server.addresses()[0];
    let [mut ada, mut bob] = ["a.test"; 2].map(|host| Browser::at(to, host));
    ada.log_in("ada", "secret", "/");
    bob.log_in("bob", "secret", "/");
    // A user more ends nobody's session; another password, another group and no user end that user's.
    std::fs::write(folder.path().join("users"), format!("{USERS}cyd:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n")).unwrap();
    let mut cyd = Browser::at(to, "a.test");
    stand::wait_for("the new user", || cyd.log_in("cyd", "secret", "/").0.starts_with("HTTP/1.1 303"));
    assert_eq!([ada.status("/x"), bob.status("/x")], ["200", "200"]);
    let mut kept = Kept::to(to);
    let request = format!("GET /x HTTP/1.1\r\nHost: a.test\r\n{BROWSER}{}\r\n", ada.cookies());
    for _ in 0..3 {
        assert_eq!(&kept.ask(&request).0[9..12], "200");
    }
    write_users(
        folder.path(),
        &format!("ada:{OTHER_HASH}\nbob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n"),
        "staff: ada\n",
    );
    stand::wait_for("the new password", || kept.ask(&request).0.starts_with("HTTP/1.1 303"));
    assert_eq!([ada.status("/x"), bob.status("/x"), cyd.status("/x")], ["303", "200", "303"]);
    std::fs::write(folder.path().join("groups"), "staff: ada bob\n").unwrap();
    stand::wait_for("the new group", || bob.status("/x") == "303");
    steered.server.stop();
}

#[test]
fn forms_of_other_pages_and_guesses_get_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "");
    let origin = stand::origin_that(serve);
    let steered = Steered::start(folder.path(), &settings(folder.path(), origin, ""));
    let to = steered.server.addresses()[0];
    let right = "user=ada&password=secret";
    let (mut one, mut two) = (Browser::at(to, "a.test"), Browser::at(to, "a.test"));
    let (own, of_two) = (fields_of(&one.get(PAGE).1), fields_of(&two.get(PAGE).1));
    let elsewhere = fields_of(&Browser { host: "b.test".to_owned(), ..one.clone() }.get(PAGE).1);
    for (form, fields, status) in [
        (right.to_owned(), "", "403"),
        (format!("form=&{right}"), "", "403"),
        (format!("{of_two}&{right}"), "", "403"),
        (format!("{elsewhere}&{right}"), "", "403"),
        (format!("{own}&{right}"), "Origin: http://evil.test\r\n", "403"),
        (format!("{own}&{right}"), "Origin: https://a.test\r\n", "403"),
        (format!("{own}&{right}"), "Origin: null\r\n", "403"),
        (format!("{own}&{right}"), "Sec-Fetch-Site: same-site\r\n", "403"),
        (format!("{own}&{right}&user=bob"), "", "400"),
        (format!("{own}&user=%ff&password=secret"), "", "400"),
        (format!("{own}&{right}&more={}", "x".repeat(20_000)), "", "400"),
    ] {
        let (head, body) = one.post(PAGE, &form, fields);
        assert_eq!(&head[9..12], status, "{form:.120} {fields}: {body}");
        assert!(!one.jar.contains_key("larder-login.web"), "{form:.120} {fields}");
    }
    let mut blocks = one.clone();
    blocks.jar.clear();
    assert!(blocks.post(PAGE, &format!("{own}&{right}"), "").1.contains("has to take cookies"));
    // Back to paths of this site alone.
    for path in
        ["//evil.test", "https://evil.test/", "/\\evil.test", "javascript:alert(1)", "/.larder/login", "/x\r\nA: b"]
    {
        let (head, page) = two.get(&format!("{PAGE}?to={}", encoded(path)));
        assert!(
            head.starts_with("HTTP/1.1 200") && !page.contains("evil") && !page.contains("alert"),
            "{path}: {page}"
        );
        let form = format!("{}&to={}&{right}", fields_of(&page), encoded(path));
        let (head, _) = two.post(PAGE, &form, "");
        assert_eq!((&head[9..12], field(&head, "Location")), ("303", "http://a.test/"), "{path}");
        assert!(!two.get(&format!("{PAGE}?to={}", encoded(path))).1.contains("evil"), "{path}");
        two.post(LOGOUT, "", "");
    }
    // A session that somebody has put there is not the one of the user who logs in, and ends.
    let mut eve = Browser::at(to, "a.test");
    eve.log_in("bob", "secret", "/");
    let planted = eve.session();
    let mut victim = two.with(&planted);
    let page = Browser { jar: two.jar.clone(), ..victim.clone() }.get(PAGE).1;
    victim.post(PAGE, &format!("{}&{right}", fields_of(&page)), "");
    assert_ne!(victim.session(), planted);
    assert_eq!([eve.status("/x"), victim.status("/x")], ["303", "200"]);
    // Another page logs nobody out, nor has the browser forget anything.
    let (head, _) = Browser::at(to, "a.test").get(LOGOUT);
    assert!(
        head.starts_with("HTTP/1.1 200") && !head.contains("Clear-Site-Data") && !head.contains("Set-Cookie"),
        "{head}"
    );
    assert_eq!(&victim.post(LOGOUT, "", "Origin: http://evil.test\r\n").0[9..12], "403");
    assert_eq!(victim.status("/x"), "200");
    // Names count as they are, and failed logins of a client are limited, those of others are not touched.
    one.source = ([127, 0, 0, 2], 0).into();
    let statuses: Vec<String> =
        [("Ada", "secret"), ("ada", "x"), ("ada ", "secret"), ("", "secret"), ("ada", "y"), ("ada", "secret")]
            .map(|(user, password)| one.log_in(&encoded(user), password, "/").0[9..12].to_owned())
            .into();
    assert_eq!(statuses, ["403", "403", "403", "403", "429", "429"]);
    assert!(two.log_in("ada", "secret", "/").0.starts_with("HTTP/1.1 303"));
    steered.server.stop();
}

#[test]
fn sessions_go_on_after_a_restart_and_end_with_their_key() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "staff: ada\n");
    let origin = stand::origin_that(serve);
    let rule = "[[rule]]\nwhen = { group = \"staff\", path = \"/ada\" }\ndo = { deny = true, status = 410 }\n";
    let text = settings(folder.path(), origin, rule);
    let steered = Steered::start(folder.path(), &text);
    let to = steered.server.addresses()[0];
    let [mut ada, mut bob] = ["a.test"; 2].map(|host| Browser::at(to, host));
    ada.log_in("ada", "secret", "/");
    bob.log_in("bob", "secret", "/");
    let left = bob.clone();
    bob.post(LOGOUT, "", "");
    steered.server.stop();
    let steered = Steered::start(folder.path(), &text);
    let to = steered.server.addresses()[0];
    let at = |browser: &Browser| Browser { to, ..browser.clone() };
    assert_eq!([at(&ada).status("/x"), at(&ada).status("/ada"), at(&left).status("/x")], ["200", "410", "303"]);
    // Settings that say nothing else of the login end no session, and neither does another lifetime.
    steered.reload(&text.replace("realm = \"The <site>\"", "realm = \"x\"\nsession = \"20h\"")).unwrap();
    assert_eq!(at(&ada).status("/x"), "200");
    let files: Vec<_> = ["login.key", "login.sessions"].map(|name| folder.path().join("store").join(name)).into();
    let text_of = |at: usize| std::fs::read_to_string(&files[at]).unwrap();
    assert!(!text_of(1).contains(&ada.session()[..48]), "nobody makes a cookie of the file");
    std::fs::remove_file(&files[0]).unwrap();
    steered.reload(&text).unwrap();
    assert_eq!(at(&ada).status("/x"), "303");
    assert!(files[0].exists());
    steered.server.stop();
}

#[test]
fn over_tls_the_cookie_is_the_host_s_alone_and_streams_of_http2_share_it() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "");
    let root = write_pair(folder.path(), "a.test");
    let origin = stand::origin_that(serve);
    let tls = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\ntls = [{{ chain = {:?}, key = {:?} }}]\n",
        folder.path().join("chain.pem"),
        folder.path().join("key.pem")
    );
    let steered = Steered::start(folder.path(), &settings(folder.path(), origin, &tls));
    let [clear, to] = [0, 1].map(|at| steered.server.addresses()[at]);
    let ask = |request: &str| {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        let mut stream = secured(stream, root.clone(), "a.test").unwrap();
        stream.write_all(request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let mut browser = Browser::at(to, "a.test");
    let page = ask("GET /.larder/login HTTP/1.1\r\nHost: a.test\r\n\r\n");
    browser.take(&page);
    assert!(browser.set[0].starts_with("__Host-larder-form.web=") && browser.set[0].ends_with("; Secure"), "{page}");
    let form = format!("{}&user=ada&password=secret", fields_of(&page));
    let fields =
        format!("Host: a.test\r\nOrigin: https://a.test\r\n{}Content-Length: {}", browser.cookies(), form.len());
    let head = format!("POST /.larder/login HTTP/1.1\r\n{fields}\r\n\r\n");
    let answer = ask(&(head + &form));
    browser.take(&answer);
    let name = "__Host-larder-login.web";
    assert!(
        browser.set[0].starts_with(&format!("{name}=")) && browser.set[0].ends_with("SameSite=Lax; Secure"),
        "{answer}"
    );
    let got = ask(&format!("GET /tls HTTP/1.1\r\nHost: a.test\r\n{}\r\n", browser.cookies()));
    assert!(got.starts_with("HTTP/1.1 200") && got.ends_with("[]"), "{got}");
    // In clear text it is nothing, under both names.
    let session = browser.jar[name].clone();
    let mut other = Browser { to: clear, ..browser.clone() };
    assert_eq!([other.status("/tls"), other.with(&session).status("/tls")], ["303", "303"]);
    // HTTP/2: cookies come in crumbs.
    let mut plain = Browser::at(clear, "a.test");
    plain.log_in("ada", "secret", "/");
    let session = format!("larder-login.web={}", plain.session());
    let get = |path: &'static str| [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", path)];
    let mut client: Client<TcpStream> = connect(clear);
    for stream in [1, 3] {
        let fields = [&get("/h2")[..], &[("cookie", "own=1"), ("cookie", &session), ("cookie", "b=2")]].concat();
        client.request(stream, &fields, true);
        let answer = client.answer(stream);
        assert!(
            answer.status() == "200" && answer.text().to_lowercase().ends_with("[cookie: own=1; b=2]"),
            "{answer:?}"
        );
    }
    client.request(5, &[&get("/h2")[..], &[("accept", "text/html")]].concat(), true);
    let answer = client.answer(5);
    assert_eq!((answer.status(), answer.field("location")), ("303", Some("/.larder/login?to=/h2")));
    client.request(7, &[&get("/h2")[..], &[("cookie", "larder-login.web=x")]].concat(), true);
    assert_eq!(client.answer(7).status(), "401");
    steered.server.stop();
}

#[test]
fn a_rule_asks_for_it_on_a_part_of_a_site() {
    let folder = tempfile::tempdir().unwrap();
    write_users(folder.path(), USERS, "");
    let origin = stand::origin_that(serve);
    let rule = "[[rule]]\nwhen = { path = \"/admin/**\" }\ndo = { login = \"web\" }\n";
    let text = settings(folder.path(), origin, rule).replace("login = \"web\"\n[[site]]", "[[site]]");
    let text = text.replace("address = \"127.0.0.1:0\"\n", "address = \"127.0.0.1:0\"\nforward = true\n");
    let steered = Steered::start(folder.path(), &text);
    let to = steered.server.addresses()[0];
    let mut ada = Browser::at(to, "a.test");
    assert_eq!(ada.status("/x"), "200");
    let (head, _) = ada.get("/admin/x");
    let link = field(&head, "Location").to_owned();
    assert_eq!(link, "/.larder/login?login=web&to=/admin/x");
    let page = ada.get(&link).1;
    let path = page.split("action=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    assert_eq!(path, "/.larder/login?login=web");
    let (head, _) = ada.post(&path, &format!("{}&user=ada&password=secret", fields_of(&page)), "");
    assert_eq!(field(&head, "Location"), "http://a.test/admin/x");
    assert_eq!([ada.status("/admin/x"), ada.status("/x")], ["200", "200"]);
    assert!(ada.get("/x2").1.ends_with("[]"), "the part without a login gets no cookie either");
    // Through the proxy there is no such page, and cookies of such names are another server's.
    let (head, _) = ada.send(&format!("GET http://{origin}/admin/x"), BROWSER, "");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let (_, body) = ada.send(&format!("GET http://{origin}/free"), "", "");
    assert!(body.contains("larder-login.web="), "{body}");
    steered.server.stop();
}

#[test]
fn a_form_that_lets_nobody_in_is_named() {
    let users = "[[login]]\nname = \"office\"\nscheme = \"basic\"\nfile = \"/etc/users\"\n";
    let form = "[[login]]\nname = \"web\"\nscheme = \"form\"\nusers = \"office\"\n";
    let site = "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:9\"\nlogin = \"web\"\n";
    for (text, wanted) in [
        (format!("{form}{site}"), "users: there is no [[login]] office"),
        (format!("{users}{}{site}", form.replace("users = \"office\"\n", "")), "a login of form needs `users`"),
        (format!("{users}{form}url = \"http://login.test\"\n{site}"), "`url` is for a login of page"),
        (format!("{users}{form}file = \"/etc/users\"\n{site}"), "are those of the login that `users` names"),
        (format!("{users}{form}forward = true\n{site}"), "origins never get the cookie of a form"),
        (format!("{users}{}{site}", form.replace("\"office\"", "\"web\"")), "is one of form, not of basic"),
        (format!("{users}{form}[access]\nlogin = \"web\"\n"), "access.login: a login of form is for sites"),
        (
            format!("{users}{form}[[rule]]\ndo = {{ login = \"web\" }}\n"),
            "a login of form is for sites, and there is none",
        ),
        (format!("{users}{form}idle = \"1s\"\n{site}"), "login.idle"),
    ] {
        let report = larder::config::Loaded::parse("p.toml", &text, &[]).unwrap_err().to_string();
        assert!(report.contains(wanted) && report.contains("p.toml"), "{text}\n{report}");
    }
    let two = format!("{users}{form}forward = true\nurl = \"http://a.test\"\n{site}");
    let report = larder::config::Loaded::parse("p.toml", &two, &[]).unwrap_err().to_string();
    assert!(report.contains("`url` is for") && report.contains("never get the cookie"), "all at once: {report}");
    larder::config::Loaded::parse("p.toml", &format!("{users}{form}{site}"), &[])
        .unwrap_or_else(|report| panic!("{report}"));
}
