//! Hooks are named where they decided: in explanations, in the access log and in `larder scripts`; and requests that hooks would
//! judge in two ways.

use super::hooks::status;
use super::hooks_answers::{Stage, head_of};
use super::stand::{self, WITHIN, body, wait_for};
use serde_json::Value;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

const POLICY: &str = r#"
import larder, os, time

@larder.request(path="/shop/**", remember="60s")
def plans(req):
    req.query.drop("utm_*")
    req.key.add(req.headers.get("x-plan", "free"))

@larder.request(path="/old/**")
def moved(req):
    req.path = "/new" + req.path[4:]

@larder.request(path="/login")
def login(req):
    return larder.redirect("/welcome", 303)

@larder.page("/hello")
def hello(req):
    return "Hello!"

@larder.request(path="/boom")
def boom(req):
    raise KeyError("x")

@larder.request(path="/hang")
def hang(req):
    while True:
        pass

@larder.request(path="/exit")
def leaves(req):
    os._exit(3)

@larder.request(path="/bad")
def bad(req):
    req.headers["content-length"] = "5"

@larder.request(path="/who/**")
def who(req):
    req.key.add(req.cookies.get("user", "nobody"))

@larder.found(path="/shop/**")
def news(req, found):
    if "x-fresh" in req.headers:
        return larder.miss()

@larder.respond(path="/shop/**")
def stamp(req, resp):
    resp.headers["x-plan"] = req.headers.get("x-plan", "free")
    if "x-by-cookie" in req.headers:
        resp.headers["x-user"] = req.cookies["user"]

@larder.fetched(path="/shop/**")
def keep(req, resp):
    resp.tags.add("shop")
"#;

fn stage(python: &str) -> Stage {
    Stage::open(POLICY, &format!("hook_time = \"300ms\"\n{python}"), |text| {
        text.replace("admin = \"none\"", "admin = \"127.0.0.1:0\"") + "[records]\nname_answers = true\n"
    })
}

/// The decisions of hooks in the explanation of the request that had this answer, and its whole text.
fn explained(stage: &Stage, answer: &str) -> (Vec<Value>, Value) {
    let name =
        answer.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).unwrap_or_else(|| panic!("{answer}"));
    let admin = stage.steered.server.admin().unwrap();
    let shown: Value = serde_json::from_str(body(&stand::ask(admin, &format!("/requests/{name}")))).unwrap();
    let steps = shown["steps"].as_array().unwrap_or_else(|| panic!("{shown}"));
    let hooks = steps.iter().filter(|step| step["step"] == "hook").map(|step| step["values"]["hook"].clone());
    (hooks.collect(), shown)
}

fn place(hook: &Value) -> String {
    let text = |name: &str| hook[name].as_str().unwrap_or_default().to_owned();
    format!("{} {} {}:{}", text("stage"), text("hook"), text("hook_script"), hook["hook_line"])
}

#[test]
fn explanations_name_the_hooks_that_worked() {
    let stage = stage("");
    let miss = stage.ask("/shop/a?utm_source=x&id=1", "X-Plan: gold\r\n");
    let (hooks, shown) = explained(&stage, &miss);
    let places: Vec<String> = hooks.iter().map(place).collect();
    assert_eq!(
        places,
        ["request plans policy.py:7", "fetched keep policy.py:55", "respond stamp policy.py:49"],
        "{shown}"
    );
    assert_eq!(
        (&hooks[0]["did"], &hooks[0]["hook_remembered"]),
        (&"changes the query, key \"gold\"".into(), &false.into())
    );
    assert!(hooks[0]["hook_micros"].as_u64() > Some(0), "{shown}");
    assert_eq!(hooks[0]["asks_for"], "/shop/a?id=1");
    assert_eq!(
        shown["request"]["url"], "http://shop.example/shop/a?utm_source=x&id=1",
        "the URL that the client asked for"
    );

    let fresh = stage.ask("/shop/a?id=1", "X-Plan: gold\r\nX-Fresh: 1\r\n");
    let (hooks, shown) = explained(&stage, &fresh);
    let found = hooks.iter().find(|hook| hook["stage"] == "found").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!((place(found), &found["did"]), ("found news policy.py:45".to_owned(), &"a miss".into()));
    assert_eq!(shown["request"]["cause"], "hook", "{shown}");

    let moved = stage.ask("/old/x", "");
    let (hooks, shown) = explained(&stage, &moved);
    assert!(body(&moved).starts_with("/new/x ") && hooks[0]["asks_for"] == "/new/x", "{moved}{shown}");
    assert_eq!(shown["request"]["url"], "http://shop.example/old/x");
}

#[test]
fn a_hook_that_answers_is_named_with_its_site() {
    let stage = stage("");
    for (path, wanted, words) in [
        ("/login", "request login policy.py:15", "answers 303"),
        ("/hello", "request hello policy.py:17", "answers 200"),
        ("/boom", "request boom policy.py:23", "hook-failed by KeyError; `larder scripts` has the traceback"),
        ("/bad", "request bad policy.py:36", "hook-failed by ValueError; `larder scripts` has the traceback"),
    ] {
        let answer = stage.ask(path, "");
        let (hooks, shown) = explained(&stage, &answer);
        assert_eq!((hooks.len(), place(&hooks[0]), &hooks[0]["did"]), (1, wanted.to_owned(), &words.into()), "{shown}");
        assert_eq!(
            (&shown["request"]["host"], &shown["request"]["url"]),
            (&"shop.example".into(), &format!("http://shop.example{path}").into())
        );
        assert!(shown.to_string().contains("[[site]] shop.example"), "{shown}");
    }
}

#[test]
fn an_explanation_ahead_names_the_hooks_whose_filters_match() {
    let stage = stage("");
    stage.ask("/hello", "");
    let admin = stage.steered.server.admin().unwrap();
    let ahead = |url: &str| {
        let shown: Value = serde_json::from_str(body(&stand::ask(admin, &format!("/explain?url={url}")))).unwrap();
        let steps = shown["steps"].as_array().cloned().unwrap_or_else(|| panic!("{shown}"));
        let hooks = steps.iter().filter(|step| step["step"] == "hook").map(|step| place(&step["values"]["hook"]));
        hooks.collect::<Vec<_>>()
    };
    assert_eq!(
        ahead("http://shop.example/shop/a"),
        [
            "request plans policy.py:4",
            "found news policy.py:42",
            "fetched keep policy.py:53",
            "respond stamp policy.py:47"
        ]
    );
    assert!(ahead("http://shop.example/other").is_empty());
}

#[test]
fn a_check_of_a_request_loads_the_hooks_for_their_filters() {
    let folder = tempfile::tempdir().unwrap();
    let check = |policy: &str| {
        fs::write(folder.path().join("policy.py"), policy).unwrap();
        let file = folder.path().join("larder.toml");
        let origin = ([127, 0, 0, 1], 9).into();
        fs::write(&file, super::hooks::settings(folder.path(), origin, "")).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_larder"));
        command.args(["check", "--request", "GET http://shop.example/shop/a", "--config"]).arg(&file);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let said = check(POLICY);
    for place in ["plans (policy.py:4), request", "news (policy.py:42), found", "stamp (policy.py:47), respond"] {
        let wanted = format!("{place}: would be asked; all that is said here leaves its work out");
        assert!(said.contains(&wanted), "{place}: {said}");
    }
    assert!(!said.contains("boom"), "{said}");
    let broken = check("import no_such_module\n");
    assert!(broken.contains("note: hooks:policy.py can't be loaded") && broken.contains("no_such_module"), "{broken}");
}

#[test]
fn the_access_log_has_the_hook_its_line_and_its_time() {
    let stage = Stage::open(POLICY, "", |text| {
        let log = text.split('"').nth(1).unwrap().replace("/store", "/access.log");
        format!("{text}[log]\nto = \"{log}\"\nformat = \"json\"\n")
    });
    stage.ask("/shop/a?utm_source=x", "");
    stage.ask("/login", "");
    stage.ask("/other", "");
    let path = stage.folder.path().join("access.log");
    wait_for("three lines", || fs::read_to_string(&path).is_ok_and(|text| text.lines().count() >= 3));
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |end: &str| {
        let found = lines.iter().find(|line| line["url"].as_str().is_some_and(|url| url.ends_with(end)));
        found.unwrap_or_else(|| panic!("{end}: {text}"))
    };
    let login = of("http://shop.example/login");
    assert_eq!(
        (&login["hook"], &login["hook_script"], &login["hook_line"]),
        (&"login".into(), &"policy.py".into(), &15.into())
    );
    assert!(login["hook_micros"].as_u64() > Some(0) && login["hook_remembered"] == false, "{login}");
    assert_eq!(of("/shop/a?utm_source=x")["hook"], "stamp", "the last one that changed something");
    assert!(of("/other").get("hook").is_none());
}

#[test]
fn calls_that_come_to_nothing_are_remembered_as_tracebacks_are() {
    let stage = stage("");
    let wants = |path: &str, wanted: &str, words: &[&str]| {
        assert_eq!(status(&stage.ask(path, "")), wanted, "{path}");
        let is_told = |text: &String| words.iter().all(|word| text.contains(word));
        wait_for(path, || stage.failures().iter().any(is_told));
    };
    wants("/boom", "500", &["Traceback", "KeyError"]);
    wants("/bad", "500", &["policy.py\", line 36, in bad", "the field 'content-length' is Larder's"]);
    wants("/hang", "504", &["hang (policy.py:25)", "hook_time (300 ms)"]);
    wants("/exit", "500", &["leaves (policy.py:30)", "ended during a call"]);
    let mounts = stage.steered.server.shared().nursery.mounts();
    let report = mounts.all()[0].report();
    let hang = report.failures.iter().find(|failure| failure.target == "/hang").unwrap();
    assert!(!hang.request.is_empty() && hang.method == "GET", "{hang:?}");
}

#[test]
fn a_cookie_that_readers_disagree_about_is_decided_by_no_hook() {
    for python in ["", "on_failure = \"pass\"\n"] {
        let stage = stage(python);
        for cookies in ["Cookie: user=anna; user=ben\r\n", "Cookie: user=anna\r\nCookie: user=ben\r\n"] {
            let answer = stage.ask("/who/x", cookies);
            assert!(
                status(&answer) == "400" && answer.contains("ambiguous-cookie") && answer.contains("user"),
                "{answer}"
            );
            assert_eq!(status(&stage.ask("/other", cookies)), "200", "no hook looks at it");
            let late = stage.ask("/shop/x", &format!("X-By-Cookie: 1\r\n{cookies}"));
            assert_eq!(status(&late), "400", "{late}");
        }
        for cookies in
            ["", "Cookie: user=anna\r\n", "Cookie: user=anna; user=anna\r\n", "Cookie: a=1; a=2; user=anna\r\n"]
        {
            assert_eq!(status(&stage.ask("/who/x", cookies)), "200", "{cookies}");
        }
        assert!(stage.failures().is_empty(), "a client can't fill the list of failures: {:?}", stage.failures());
    }
}

/// An origin that switches to an echo for requests with the field that a hook sets, and answers 403 without.
fn echoes_for_users(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (first, fields) = head_of(&mut lines)?;
        let user = fields.get("x-user").cloned().unwrap_or_default();
        if user.is_empty() || fields.contains_key("cookie") || !first.contains("/chat") {
            (&*stream).write_all(b"HTTP/1.1 403 No\r\nServer: secret\r\nContent-Length: 0\r\n\r\n").ok()?;
            continue;
        }
        let head =
            format!("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Hello: {user}\r\n\r\n");
        (&*stream).write_all(head.as_bytes()).ok()?;
        let mut bytes = [0; 64];
        loop {
            let read = lines.read(&mut bytes).ok().filter(|&read| read > 0)?;
            (&*stream).write_all(&bytes[..read]).ok()?;
        }
    }
}

#[test]
fn a_web_socket_gets_the_fields_the_path_and_the_refusals_of_hooks() {
    let policy = r#"
import larder

@larder.request(path="/ws/**")
def socket(req):
    user = req.cookies.get("user")
    if user is None:
        return larder.deny("log in")
    req.headers["x-user"] = user
    del req.headers["cookie"]
    req.path = "/chat" if user != "nobody" else "/none"

@larder.respond
def stamp(req, resp):
    resp.headers["x-stamp"] = req.headers.get("x-user", "?")
    del resp.headers["server"]
"#;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policy.py"), policy).unwrap();
    let text = super::hooks::settings(folder.path(), stand::origin_that(echoes_for_users), "");
    let steered = super::reload::Steered::start(folder.path(), &text);
    let proxy = steered.server.addresses()[0];
    let head = |fields: &str| {
        format!("GET /ws/a HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{fields}\r\n")
    };
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(head("Cookie: user=anna\r\n").as_bytes()).unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    let said = String::from_utf8(said).unwrap();
    assert!(said.starts_with("HTTP/1.1 101") && said.contains("X-Hello: anna"), "{said}");
    stream.write_all(b"hello").unwrap();
    let mut echo = [0; 5];
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"hello");
    drop(stream);

    let refused = stand::exchange(proxy, &head(""));
    assert!(status(&refused) == "403" && refused.contains("log in"), "{refused}");
    let ambiguous = stand::exchange(proxy, &head("Cookie: user=anna; user=ben\r\n"));
    assert_eq!(status(&ambiguous), "400", "{ambiguous}");
    // The origin stays with HTTP: an ordinary answer, which has its respond hook.
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(head("Cookie: user=nobody\r\n").as_bytes()).unwrap();
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(status(&answer) == "403" && answer.contains("x-stamp: nobody") && !answer.contains("secret"), "{answer}");
}
