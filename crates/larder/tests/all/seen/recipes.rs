//! The recipes for hooks, each in front of an origin.

use super::hooks::read_head;
use super::reload::{Steered, base};
use super::stand::{self, body, exchange};
use std::fs;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Numbers answers, so that two with the same number are one.
static ANSWERS: AtomicU64 = AtomicU64::new(0);

/// An origin that tells what it was asked. The path says which status it answers.
fn echo(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (first, fields) = read_head(&mut lines)?;
        let mut words = first.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let field = |name: &str| fields.get(name).map_or("-", String::as_str);
        let told = ["x-group", "x-country", "referer", "cookie", "authorization"];
        let told: Vec<String> = told.iter().map(|name| format!("{name}={}", field(name))).collect();
        let text = format!("{method} {target} {} #{}", told.join(" "), ANSWERS.fetch_add(1, Ordering::Relaxed));
        let has = |word: &str| target.contains(word);
        let status = [("refused", 403), ("absent", 404), ("error", 500), ("busy", 503)];
        let status = status.into_iter().find(|(word, _)| has(word)).map_or(200, |(_, status)| status);
        let control = match status == 200 && !has("media") {
            true => "Cache-Control: max-age=60\r\n",
            false if has("unstored") => "Cache-Control: no-store\r\n",
            false => "",
        };
        let length = text.len();
        let text = if method == "HEAD" { "" } else { &text };
        let head = format!("HTTP/1.1 {status} Said\r\n{control}X-Amz-Id-2: 7\r\nContent-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + text).as_bytes()).ok()?;
    }
}

struct Play {
    steered: Steered,
    proxy: SocketAddr,
    folder: tempfile::TempDir,
}

/// A site with a recipe, in which some texts are replaced. `None` where there is no Python.
fn play(recipe: &str, replaced: &[(&str, &str)]) -> Option<Play> {
    stand::program("python3")?;
    let folder = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../python/recipes/{recipe}.py"));
    let mut text = fs::read_to_string(path).unwrap();
    for (from, to) in replaced {
        assert!(text.contains(from), "{from} in {recipe}");
        text = text.replace(from, to);
    }
    fs::write(folder.path().join("policy.py"), text).unwrap();
    let settings = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"shop.example\"]\norigin = \"http://{}\"\nhooks = [\"policy.py\"]\n\
         [[python]]\nname = \"policy\"\nfolder = \"{}\"\nprocesses = 1\nhook_time = \"5s\"\nwatch = [\"*.key\"]\n",
        base(folder.path()),
        stand::origin_that(echo),
        folder.path().display()
    );
    let steered = Steered::start(folder.path(), &settings);
    let proxy = steered.server.addresses()[0];
    Some(Play { steered, proxy, folder })
}

impl Play {
    fn send(&self, method: &str, target: &str, fields: &str) -> String {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        exchange(
            self.proxy,
            &format!("{method} {target} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{length}{fields}\r\n"),
        )
    }

    fn get(&self, target: &str, fields: &str) -> String {
        self.send("GET", target, fields)
    }

    fn is_hit(&self, target: &str, fields: &str) -> bool {
        self.get(target, fields).contains("; hit")
    }
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let lines = answer.split("\r\n\r\n").next().unwrap_or_default().lines();
    let found = lines.filter_map(|line| line.split_once(": ")).find(|(found, _)| found.eq_ignore_ascii_case(name));
    found.map_or("", |(_, value)| value)
}

#[test]
fn strip_parameters() {
    let Some(play) = play("strip_parameters", &[]) else { return };
    let first = play.get("/a?utm_source=x&id=1", "");
    assert!(body(&first).starts_with("GET /a?id=1 "), "{first}");
    for target in ["/a?id=1", "/a?id=1&fbclid=7", "/a?%75tm_campaign=y&id=1"] {
        assert!(play.is_hit(target, ""), "{target}");
    }
    assert!(!play.is_hit("/a?id=2&utm_source=x", ""), "another page");
}

#[test]
fn token_to_cookie() {
    let Some(play) = play("token_to_cookie", &[]) else { return };
    for token in ["0123456789abcdef", "fedcba9876543210"] {
        let answer = play.get(&format!("/a?x=1&token={token}"), "");
        assert_eq!((status(&answer), field(&answer, "location")), ("303", "/a?x=1"), "{answer}");
        assert!(field(&answer, "set-cookie").starts_with(&format!("token={token}; ")), "{answer}");
    }
    let page = play.get("/a?x=1", "Cookie: token=0123456789abcdef\r\n");
    assert!(body(&page).starts_with("GET /a?x=1 ") && page.contains("cookie=token=0123456789abcdef"), "{page}");
    let elsewhere = play.get("//evil.example/a?token=0123456789abcdef", "");
    assert!(!field(&elsewhere, "location").starts_with("//"), "{elsewhere}");
    assert_eq!(status(&play.get("/a?token=0123456789abcdef%0d%0aSet-Cookie:%20a=b", "")), "400");
}

#[test]
fn ab_key() {
    let Some(play) = play("ab_key", &[]) else { return };
    for group in ["a", "b"] {
        let cookie = format!("Cookie: group={group}\r\n");
        let first = play.get("/shop/page", &cookie);
        assert!(!first.contains("; hit") && first.contains(&format!("x-group={group} ")), "{first}");
        assert!(play.is_hit("/shop/page", &cookie));
    }
    for forged in ["Cookie: group=c\r\n", "Cookie: group=\r\n", "X-Group: vip\r\n"] {
        assert!(play.is_hit("/shop/page", forged), "no copy for {forged}");
    }
}

#[test]
fn geo_header() {
    let Some(play) = play("geo_header", &[("\"192.0.2.0/24\"", "\"127.0.0.0/8\"")]) else { return };
    let first = play.get("/a", "X-Country: ch\r\nX-Forwarded-For: 198.51.100.200\r\n");
    assert!(first.contains("x-country=at "), "{first}");
    assert!(play.is_hit("/a", "X-Country: de\r\n"));
}

#[test]
fn signed_urls() {
    let Some(play) = play("signed_urls", &[]) else { return };
    assert_eq!(
        status(&play.get("/private/film?expires=99999999999&signature=0", "")),
        "500",
        "without a key nothing is shown"
    );
    fs::write(play.folder.path().join("signed_urls.key"), "0123456789abcdef0123456789abcdef\n").unwrap();
    // Signatures as the guide describes them, without the recipe.
    let sign = |query: &str| {
        let code = "import hmac, sys; print(hmac.new(b'0123456789abcdef0123456789abcdef', sys.argv[1].encode(), 'sha256').hexdigest())";
        let text = format!("shop.example\n/private/film\n{query}");
        let output = stand::program("python3").unwrap().args(["-c", code, &text]).output().unwrap();
        format!("/private/film?{query}&signature={}", String::from_utf8(output.stdout).unwrap().trim())
    };
    let is_good = || status(&play.get(&sign("expires=99999999999"), "")) == "200";
    assert!(!is_good(), "a key counts from a reload on");
    play.steered.server.shared().reload().unwrap();
    stand::wait_for("the key counts", is_good);
    // One that is no key is not taken.
    fs::write(play.folder.path().join("signed_urls.key"), "short\n").unwrap();
    let _ = play.steered.server.shared().reload();
    assert!(is_good());
    let first = play.get(&sign("expires=99999999999"), "");
    assert!(status(&first) == "200" && body(&first).starts_with("GET /private/film "), "{first}");
    assert!(play.is_hit(&sign("expires=99999999998"), ""), "one copy for all links");
    for (target, wanted) in [
        ("/private/film".to_owned(), "403"),
        ("/private/film?expires=99999999999&signature=0".to_owned(), "403"),
        (sign("expires=99999999999").replace("film", "other"), "403"),
        (sign("expires=1"), "410"),
        ("/%70rivate/film".to_owned(), "403"),
        ("//private/film".to_owned(), "403"),
    ] {
        assert_eq!(status(&play.get(&target, "")), wanted, "{target}, though the film is stored");
        assert_ne!(status(&play.send("POST", &target, "")), "200", "{target}");
    }
}

#[test]
fn maintenance() {
    let strangers = [("\"127.0.0.0/8\", ", "")];
    let Some(play) = play("maintenance", &strangers) else { return };
    play.get("/a", "");
    assert!(play.is_hit("/a", ""));
    fs::write(play.folder.path().join("maintenance.on"), "").unwrap();
    for (method, target) in [("GET", "/a"), ("POST", "/cart"), ("GET", "/new")] {
        let answer = play.send(method, target, "X-Forwarded-For: 127.0.0.1\r\n");
        assert_eq!((status(&answer), field(&answer, "retry-after")), ("503", "600"), "{answer}");
    }
    fs::remove_file(play.folder.path().join("maintenance.on")).unwrap();
    assert!(play.is_hit("/a", ""), "what was stored before is there again, and not the page");
    assert_eq!(status(&play.get("/new", "")), "200");
}

#[test]
fn maintenance_for_staff() {
    let Some(play) = play("maintenance", &[]) else { return };
    fs::write(play.folder.path().join("maintenance.on"), "").unwrap();
    for _ in 0..2 {
        let answer = play.get("/a", "");
        assert!(status(&answer) == "200" && !answer.contains("; hit"), "{answer}");
    }
}

#[test]
fn purge_on_post() {
    let Some(play) = play("purge_on_post", &[]) else { return };
    let pages = ["/", "/articles", "/articles/7?page=2", "/help"];
    let all_hit = || pages.map(|page| play.is_hit(page, ""));
    all_hit();
    assert_eq!(all_hit(), [true; 4]);
    for (method, target, wanted) in [
        ("POST", "/articles/refused", "403"),
        ("POST", "/articles/error", "500"),
        ("POST", "/login", "200"),
        ("GET", "/articles/8", "200"),
    ] {
        assert_eq!(status(&play.send(method, target, "")), wanted);
        assert_eq!(all_hit(), [true; 4], "{method} {target} purges nothing");
    }
    assert_eq!(status(&play.send("POST", "/articles/7", "")), "200");
    assert_eq!(all_hit(), [false, false, false, true], "the pages with articles, and no other");
    assert_eq!(all_hit(), [true; 4]);
}

#[test]
fn negative_caching() {
    let Some(play) = play("negative_caching", &[]) else { return };
    for (target, wanted) in [("/absent", "404"), ("/busy", "503")] {
        assert_eq!(status(&play.get(target, "")), wanted);
        let second = play.get(target, "");
        assert!(status(&second) == wanted && second.contains("; hit"), "{target}: {second}");
    }
    for target in ["/absent/unstored", "/error", "/refused"] {
        play.get(target, "");
        assert!(!play.is_hit(target, ""), "{target}");
    }
}

#[test]
fn rate_limit() {
    let Some(play) = play("rate_limit", &[]) else { return };
    let began = Instant::now();
    let statuses: Vec<String> =
        (0..60).map(|_| status(&play.get("/a", "X-Forwarded-For: 203.0.113.9\r\n")).to_owned()).collect();
    let passed = statuses.iter().filter(|status| *status == "200").count();
    let at_most = 20.0 + 5.0 * began.elapsed().as_secs_f64() + 1.0;
    assert!(statuses[..20].iter().all(|status| status == "200"), "{statuses:?}");
    assert!(passed as f64 <= at_most, "{passed} of at most {at_most}: {statuses:?}");
    let refused = play.get("/a", "");
    assert!(status(&refused) == "200" || field(&refused, "retry-after") == "1", "{refused}");
    assert!(statuses.contains(&"429".to_owned()) || at_most >= 60.0, "{statuses:?}");
}

#[test]
fn object_store() {
    let secret = [("SECRET_FILE.read_text().strip() if SECRET_FILE.exists() else \"\"", "\"s3cret\"")];
    let Some(play) = play("object_store", &secret) else { return };
    let first = play.get("/media/2026/a.png?acl", "Cookie: session=1\r\nAuthorization: Basic x\r\nReferer: guess\r\n");
    let told = "GET /shop-files/media/2026/a.png x-group=- x-country=- referer=s3cret cookie=- authorization=- ";
    assert!(body(&first).starts_with(told), "{first}");
    assert_eq!(field(&first, "x-amz-id-2"), "");
    assert!(play.is_hit("/media/2026/a.png", ""), "the same for all");
    for (target, wanted) in [
        ("/media/", "404"),
        ("/media/../x", "400"),
        ("/media/%2e%2e/x", "400"),
        ("/media/a%2fb", "404"),
        ("//media/a", "404"),
    ] {
        assert_eq!(status(&play.get(target, "")), wanted, "{target}");
    }
    assert_eq!(status(&play.send("POST", "/media/a.png", "")), "405");
}
