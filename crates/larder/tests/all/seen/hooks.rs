//! Hooks of a site, with a real interpreter.

use super::reload::{Steered, base};
use super::stand::{self, body, exchange, wait_for};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// Hooks that do what is asked for by path or field.
const POLICY: &str = r#"
import larder, time, os

@larder.request(path="/shop/**")
def shop(req):
    req.query.drop("utm_*")
    if "x-plan" in req.headers:
        req.key.add(req.headers["x-plan"])

@larder.request(path="/remembered/**", remember="60s")
def remembered(req):
    with open("calls", "a") as calls:
        calls.write("x")
    req.key.add(req.headers.get("x-plan", "free"))

@larder.request(path="/kept/**", remember="60s")
def kept(req):
    req.query.drop("utm_*")
    req.key.add(req.headers.get("x-plan", "free"))

@larder.request(path="/user/**")
def user(req):
    req.headers["x-user"] = req.cookies.get("user", "nobody")
    del req.headers["cookie"]

@larder.request(path="/login")
def login(req):
    return larder.redirect("/welcome", 303)

@larder.page("/hello")
def hello(req):
    return "Hello, %s!" % req.headers.get("x-name", "World")

@larder.request(path="/private/**")
def private(req):
    return larder.pass_()

@larder.request(path="/admin/**")
def admin(req):
    return larder.deny("not for you")

@larder.request(path="/raise")
def fails(req):
    raise KeyError("the secret of the day")

@larder.request(path="/hang")
def hangs(req):
    while True:
        pass

@larder.request(path="/exit")
def ends(req):
    os._exit(3)

@larder.request(path="/climb")
def climbs(req):
    req.path = "/../other"

@larder.fetched(path="/api/**", status=200)
def api(req, resp):
    resp.ttl = 60
    resp.tags.add("api")
    resp.headers["x-seen"] = "yes"
    del resp.headers["server"]

@larder.fetched(path="/badfetch")
def badfetch(req, resp):
    raise ValueError("no")
"#;

pub(super) fn settings(folder: &Path, origin: SocketAddr, python: &str) -> String {
    format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[site]]\nhosts = [\"shop.example\"]\norigin = \"http://{origin}\"\nhooks = [\"policy.py\"]\n\
         [[python]]\nname = \"policy\"\nfolder = \"{}\"\nprocesses = 1\n{python}",
        base(folder),
        folder.display()
    )
}

/// Reads the head of a request: its first line, and its fields by their names in lower case. `None` at the end.
pub(super) fn read_head(lines: &mut impl BufRead) -> Option<(String, HashMap<String, String>)> {
    let (mut first, mut fields) = (String::new(), HashMap::new());
    lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { return Some((first, fields)) };
        fields.insert(name.to_ascii_lowercase(), value.to_owned());
    }
}

/// An origin that tells what it was asked: the target, and the fields that hooks set.
fn echo(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (first, fields) = read_head(&mut lines)?;
        let target = first.split(' ').nth(1)?.to_owned();
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let text = format!("{target} user={} cookie={}", field("x-user"), field("cookie"));
        let control = if target.starts_with("/api") || target.starts_with("/badfetch") {
            ""
        } else {
            "Cache-Control: max-age=60\r\n"
        };
        let more = if target.contains("private") { "Cache-Control: private\r\n" } else { control };
        let length = text.len();
        let head = format!("HTTP/1.1 200 OK\r\n{more}Server: origin\r\nContent-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + &text).as_bytes()).ok()?;
    }
}

struct Play {
    steered: Steered,
    proxy: SocketAddr,
    folder: tempfile::TempDir,
}

fn play(python: &str) -> Play {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.py"), POLICY).unwrap();
    let steered = Steered::start(folder.path(), &settings(folder.path(), stand::origin_that(echo), python));
    let proxy = steered.server.addresses()[0];
    Play { steered, proxy, folder }
}

impl Play {
    fn ask(&self, path: &str, fields: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}\r\n");
        exchange(self.proxy, &head)
    }

    fn is_hit(&self, path: &str, fields: &str) -> bool {
        self.ask(path, fields).contains("; hit")
    }
}

pub(super) fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or_default()
}

#[test]
fn a_hook_changes_the_query_and_adds_to_the_key() {
    let play = play("");
    let first = play.ask("/shop/a?id=1&utm_source=x", "X-Plan: gold\r\n");
    assert!(body(&first).starts_with("/shop/a?id=1 "), "{first}");
    assert!(play.is_hit("/shop/a?utm_medium=y&id=1", "X-Plan: gold\r\n"), "one key without the parameter");
    assert!(!play.is_hit("/shop/a?id=1", "X-Plan: free\r\n"), "another plan, another answer");
    assert!(!play.is_hit("/shop/a?id=1", ""));
    assert!(play.is_hit("/shop/a?id=1", "X-Plan: free\r\n"));
    assert!(play.ask("/other", "").contains("uri-miss") && play.is_hit("/other", ""), "no filter lets it through");
}

#[test]
fn a_remembered_decision_is_asked_for_once_for_the_same_facts() {
    let play = play("");
    let calls = || fs::read_to_string(play.folder.path().join("calls")).unwrap_or_default().len();
    for _ in 0..20 {
        play.ask("/remembered/a", "X-Plan: gold\r\n");
        play.ask("/remembered/b", "X-Plan: gold\r\n");
    }
    // Each of the two workers has a memo of its own.
    assert!((1..=2).contains(&calls()), "{} calls", calls());
    assert!(play.is_hit("/remembered/a", "X-Plan: gold\r\n"));
    let before = calls();
    assert!(!play.is_hit("/remembered/a", "X-Plan: silver\r\n") && calls() > before);
}

/// One connection that is kept.
struct Kept(BufReader<TcpStream>);

impl Kept {
    fn to(proxy: SocketAddr) -> Kept {
        Kept(BufReader::new(TcpStream::connect(proxy).unwrap()))
    }

    /// Whether the answer is a hit, and its body.
    fn ask(&mut self, path: &str, fields: &str) -> (bool, String) {
        let head = format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n");
        self.0.get_mut().write_all(head.as_bytes()).unwrap();
        let (_, answer) = read_head(&mut self.0).unwrap();
        let mut body = vec![0; answer["content-length"].parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (answer["cache-status"].contains("; hit"), String::from_utf8(body).unwrap())
    }
}

/// The worker remembers the verdict on a request whose hooks have decided: for the same fields, each path by itself, and no longer
/// than the decision.
#[test]
fn a_remembered_verdict_is_for_the_same_fields_and_path_alone() {
    let play = play("");
    let mut kept = Kept::to(play.proxy);
    let plans = ["gold", "silver"].map(|plan| (plan, format!("X-Plan: {plan}\r\nCookie: of={plan}\r\n")));
    let [x, y] = ["x", "y"].map(|from| ["shop", "kept"].map(|folder| format!("/{folder}/a?id=1&utm_source={from}")));
    let paths = ["/remembered/a", "/remembered/b", "/other", &x[0], &y[0], &x[1], &y[1]];
    for round in 0..5 {
        for path in paths {
            for (plan, fields) in &plans {
                let (is_hit, body) = kept.ask(path, fields);
                if path == "/other" {
                    // No hook has a say: it is one page for all.
                    assert!(is_hit || round == 0 && *plan == "gold", "{round} {path} {plan}");
                    continue;
                }
                let asked = path.split("&utm").next().unwrap();
                assert_eq!(body, format!("{asked} user= cookie=of={plan}"), "{path}");
                assert_eq!(is_hit, round > 0 || path.ends_with("source=y"), "{round} {path} {plan}");
            }
        }
        // The same plan several times in a row, then a path that nobody has asked for yet.
        for _ in 0..3 {
            assert!(kept.ask("/remembered/a", &plans[0].1).0);
        }
        let new = format!("/remembered/new{round}");
        assert!(!kept.ask(&new, &plans[0].1).0 && kept.ask(&new, &plans[0].1).0);
        assert!(!kept.ask(&new, &plans[1].1).0, "of another plan");
    }
    let other = Kept::to(play.proxy).ask("/remembered/a", "X-Plan: bronze\r\nCookie: of=bronze\r\n");
    assert_eq!(other, (false, "/remembered/a user= cookie=of=bronze".to_owned()), "by another connection");
}

/// The hook's decision is remembered for an hour, and what a helper has said for a moment.
#[test]
fn a_verdict_of_hooks_is_no_verdict_of_helpers() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.py"), POLICY.replace("60s", "1h")).unwrap();
    let refused = folder.path().join("refused");
    let script = format!("while read -r line; do [ -e {} ] && echo ERR || echo OK; done", refused.display());
    let text =
        settings(folder.path(), stand::origin_that(echo), "").replace("hooks = [", "external = [\"h\"]\nhooks = [");
    let helper = format!(
        "[[helper]]\nname = \"h\"\nkind = \"external_acl\"\ncommand = [\"sh\", \"-c\", {script:?}]\nformat = \"%SRC\"\nttl = \"200ms\"\n"
    );
    let steered = Steered::start(folder.path(), &(text + &helper));
    let mut client = BufReader::new(TcpStream::connect(steered.server.addresses()[0]).unwrap());
    let mut ask = || {
        client.get_mut().write_all(b"GET /remembered/a HTTP/1.1\r\nHost: shop.example\r\n\r\n").unwrap();
        let (first, answer) = read_head(&mut client).unwrap();
        let mut body = vec![0; answer["content-length"].parse().unwrap()];
        client.read_exact(&mut body).unwrap();
        status(&first).to_owned()
    };
    for _ in 0..10 {
        assert_eq!(ask(), "200");
    }
    fs::write(&refused, "").unwrap();
    wait_for("the helper's refusal counts", || ask() == "403");
}

#[test]
fn a_remembered_verdict_ends_with_the_decision_and_with_the_version_of_the_hooks() {
    let play = play("reload = \"on-change\"\n");
    let mut kept = Kept::to(play.proxy);
    let file = play.folder.path().join("policy.py");
    let mut kept_asks = |path: &str| kept.ask(path, "X-Plan: gold\r\n").0;
    assert!(!kept_asks("/remembered/a") && kept_asks("/remembered/a") && kept_asks("/remembered/a"));
    // The next version remembers for a moment, and another key each second.
    let rule = "    import time\n    req.key.add(str(time.time()))";
    let text = POLICY.replace("    req.key.add(req.headers.get(\"x-plan\", \"free\"))", rule);
    fs::write(&file, text.replace("remember=\"60s\"", "remember=\"300ms\"")).unwrap();
    wait_for("the new version decides", || !kept_asks("/remembered/a"));
    assert!((0..100).any(|_| kept_asks("/remembered/a")), "it is remembered for a moment");
    wait_for("the decision ends", || !kept_asks("/remembered/a"));
}

#[test]
fn a_field_that_a_hook_makes_of_a_cookie_keeps_users_apart_and_is_hidden() {
    let play = play("");
    for round in 0..3 {
        for user in ["anna", "ben", "carl"] {
            let answer = play.ask("/user/page", &format!("Cookie: user={user}\r\n"));
            assert_eq!(body(&answer), format!("/user/page user={user} cookie="), "{answer}");
            assert_eq!(answer.contains("; hit"), round > 0, "{answer}");
        }
    }
    let stored = fs::read_dir(play.folder.path().join("store")).unwrap().flatten();
    let files = stored.filter(|entry| entry.path().is_file()).map(|entry| fs::read(entry.path()).unwrap_or_default());
    for bytes in files {
        assert!(!String::from_utf8_lossy(&bytes).contains("is4:anna"), "the value of a field stands in a key");
    }
}

#[test]
fn a_purge_covers_all_that_hooks_make_of_a_url() {
    let play = play("[access]\npurge = [\"127.0.0.0/8\"]\n");
    for plan in ["gold", "free"] {
        let fields = format!("X-Plan: {plan}\r\n");
        play.ask("/shop/p", &fields);
        assert!(play.is_hit("/shop/p", &fields));
    }
    let purged = exchange(play.proxy, "PURGE /shop/p HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    assert_eq!(status(&purged), "200", "{purged}");
    for plan in ["gold", "free"] {
        assert!(!play.is_hit("/shop/p", &format!("X-Plan: {plan}\r\n")), "{plan}");
    }
}

#[test]
fn a_hook_answers_and_passes() {
    let play = play("");
    let redirected = play.ask("/login", "");
    assert!(
        status(&redirected) == "303" && redirected.to_ascii_lowercase().contains("location: /welcome"),
        "{redirected}"
    );
    assert_eq!(body(&play.ask("/hello", "X-Name: Anna\r\n")), "Hello, Anna!");
    assert_eq!(body(&play.ask("/hello", "")), "Hello, World!");
    for _ in 0..3 {
        assert!(!play.is_hit("/private/x", ""));
    }
}

#[test]
fn no_spelling_of_a_path_goes_past_a_hook() {
    let play = play("");
    for path in ["/admin/x", "/%61dmin/x", "/admin%2fx", "//admin/x", "/admin//x", "/%61%64min/%78"] {
        assert_eq!(status(&play.ask(path, "")), "403", "{path}");
    }
    for path in ["/x/../admin/x", "/x/%2e%2e/admin/x", "/./../admin/x"] {
        assert_eq!(status(&play.ask(path, "")), "400", "{path}: readers disagree about it");
    }
    for path in ["/administrator/x", "/y/admin/x", "/adm%69nx/x"] {
        assert_eq!(status(&play.ask(path, "")), "200", "{path}");
    }
}

#[test]
fn a_hook_that_fails_denies_its_request_alone() {
    let play = play("hook_time = \"200ms\"\n");
    for (path, wanted) in [("/raise", "500"), ("/climb", "500"), ("/exit", "500"), ("/hang", "504"), ("/raise", "500")]
    {
        let answer = play.ask(path, "");
        assert_eq!(status(&answer), wanted, "{path}: {answer}");
        assert!(!answer.contains("secret"), "{answer}");
        assert_eq!(status(&play.ask("/login", "")), "303", "after {path}");
        assert_eq!(status(&play.ask("/other", "")), "200", "after {path}");
    }
    let mounts = play.steered.server.shared().nursery.mounts();
    let failures = mounts.all()[0].report().failures;
    assert!(failures.iter().any(|failure| failure.traceback.contains("the secret of the day")), "{failures:?}");
}

#[test]
fn where_hooks_may_fail_the_request_goes_on() {
    let play = play("on_failure = \"pass\"\n");
    assert_eq!(body(&play.ask("/raise", "")), "/raise user= cookie=");
}

#[test]
fn a_hook_gives_an_answer_its_lifetime_and_never_against_the_origin() {
    let play = play("");
    let first = play.ask("/api/a", "");
    assert!(first.contains("x-seen: yes") && !first.contains("Server: origin"), "{first}");
    assert!(play.is_hit("/api/a", ""));
    assert!(
        !play.ask("/api/private", "").contains("; hit") && !play.is_hit("/api/private", ""),
        "the origin keeps it to one"
    );
    assert!(!play.ask("/api/b", "Authorization: Basic x\r\n").contains("; hit"));
    assert!(!play.is_hit("/api/b", ""), "an answer to somebody who logged in is not for others");
    assert_eq!(status(&play.ask("/badfetch", "")), "200");
    assert!(!play.is_hit("/badfetch", ""), "what the hook would have said is not known");
}

#[test]
fn changed_hooks_are_taken_up_and_broken_ones_are_not() {
    let play = play("reload = \"on-change\"\n");
    let page = || body(&play.ask("/hello", "")).to_owned();
    assert_eq!(page(), "Hello, World!");
    let write = |text: &str| fs::write(play.folder.path().join("policy.py"), text).unwrap();
    write(&POLICY.replace("Hello, %s", "Good day, %s"));
    wait_for("the new hooks decide", || page() == "Good day, World!");
    write("import larder\n@larder.request(paths=3)\ndef x(req): pass\n");
    let mounts = play.steered.server.shared().nursery.mounts();
    wait_for("the broken file is refused", || mounts.all()[0].report().load_failure.is_some());
    assert_eq!(page(), "Good day, World!");
}

#[test]
fn hooks_that_cannot_be_loaded_deny() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.py"), "import no_such_module\n").unwrap();
    let steered = Steered::start(folder.path(), &settings(folder.path(), stand::origin_that(echo), ""));
    let answer =
        exchange(steered.server.addresses()[0], "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    assert!(status(&answer) == "500" && answer.contains("hook-not-loaded"), "{answer}");
}

/// A hook does one of many things, drawn by the request. The answer that comes is one that an origin gave for a request that the
/// hook had made the same of.
#[test]
fn no_answer_of_one_key_reaches_another_whatever_hooks_do() {
    let random = r#"
import larder, zlib
@larder.request
def anything(req):
    draw = zlib.crc32((req.headers.get("x-draw", "") + req.path).encode())
    if draw % 2:
        req.query.drop("a", "b")
    if draw // 2 % 2:
        req.headers["x-user"] = req.cookies.get("user", "none")
    if draw // 4 % 2:
        del req.headers["cookie"]
    if draw // 8 % 3 == 0:
        req.key.add(req.cookies.get("user", ""))
    if draw // 24 % 5 == 0:
        return larder.pass_()
    if draw // 120 % 4 == 0:
        req.path = "/p%d" % (draw % 7)
"#;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.py"), random).unwrap();
    let steered = Steered::start(folder.path(), &settings(folder.path(), stand::origin_that(said_back), ""));
    let proxy = steered.server.addresses()[0];
    let mut hits = 0;
    for round in 0..600_u32 {
        let seed = round.wrapping_mul(2_654_435_761) >> 7;
        let (draw, user, path, query) = (seed % 40, seed / 40 % 4, seed / 160 % 3, seed / 480 % 3);
        let query = ["", "?a=1", "?c=2&b=3"][query as usize];
        let request = format!(
            "GET /x{path}{query} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nX-Draw: {draw}\r\nCookie: user=u{user}\r\n\r\n"
        );
        let answer = exchange(proxy, &request);
        assert_eq!(status(&answer), "200", "{request}{answer}");
        hits += u32::from(answer.contains("; hit"));
        // The origin varies by what it was asked, and says nothing of it but its target and the field that the hook sets.
        let said = body(&answer);
        let field = said.split("x-user=").nth(1).unwrap_or_default();
        assert!(field.is_empty() || field == format!("u{user}"), "an answer of another user: {request}{answer}");
    }
    assert!(hits > 50, "{hits} hits show nothing");
}

/// An origin whose answers depend on a field that hooks set, without a word of `Vary`.
fn said_back(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut first, mut user, mut line) = (String::new(), String::new(), String::new());
        lines.read_line(&mut first).ok().filter(|&read| read > 0)?;
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("x-user: ") {
                value.trim().clone_into(&mut user);
            }
        }
        let text = format!("{} x-user={user}", first.split(' ').nth(1)?);
        let length = text.len();
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + &text).as_bytes()).ok()?;
    }
}
