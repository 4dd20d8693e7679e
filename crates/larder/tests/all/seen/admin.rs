//! The admin listener: what it says, to whom, and that its description is true.

use super::stand::{self, ask, body, exchange};
use larder::control::{ROUTES, families, metrics_reference};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

pub const DESCRIPTION: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.yaml"));

fn post(admin: SocketAddr, path: &str, fields: &str) -> String {
    exchange(admin, &format!("POST {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 0\r\n{fields}\r\n"))
}

fn head(admin: SocketAddr, path: &str) -> String {
    exchange(admin, &format!("HEAD {path} HTTP/1.1\r\nHost: {admin}\r\n\r\n"))
}

pub fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

fn content_type(answer: &str) -> &str {
    let line = answer.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap_or_default();
    line.split(';').next().unwrap_or_default()
}

pub fn json_of(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::String(text) => text.as_str().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(flag) => (*flag).into(),
        Yaml::Array(items) => items.iter().map(json_of).collect(),
        Yaml::Hash(members) => {
            members.iter().map(|(name, value)| (name.as_str().unwrap().to_owned(), json_of(value))).collect()
        }
        other => panic!("{other:?} is not used here"),
    }
}

#[test]
fn the_description_of_the_api_is_true() {
    let description = json_of(&YamlLoader::load_from_str(DESCRIPTION).unwrap()[0]);
    let paths = description["paths"].as_object().unwrap();
    let mut described: Vec<(String, String)> = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let admin = server.admin().unwrap();
    stand::get(server.addresses()[0], &format!("http://{}/fresh", stand::origin()));
    stand::wait_for("ready", || server.shared().is_ready());
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            described.push((method.to_uppercase(), routed(path)));
            let path = &with_examples(path, operation);
            let answers = match method.as_str() {
                // It would not end.
                "get" if path == "/events" => vec![head(admin, path)],
                "get" => vec![ask(admin, path)],
                _ => vec![post(admin, path, ""), post(admin, path, "X-Larder: 1\r\n")],
            };
            answers
                .iter()
                .for_each(|answer| described_so(answer, operation, &description, &format!("{method} {path}")));
        }
    }
    let about = |path: &str, real: String| {
        described_so(&ask(admin, &real), &paths[path]["get"], &description, &real);
        body(&ask(admin, &real)).to_owned()
    };
    let url = format!("http://{}/fresh", stand::origin());
    stand::get(server.addresses()[0], &url);
    let listed: Value = serde_json::from_str(&about("/requests", "/requests?limit=2&outcome=miss".to_owned())).unwrap();
    let id = listed["requests"][0]["id"].as_str().unwrap();
    about("/requests/{id}", format!("/requests/{id}"));
    about("/explain", format!("/explain?url={url}&header=Cache-Control:no-cache"));
    let public = ROUTES.iter().filter(|route| route.is_public() && !route.path.starts_with("/squid-internal-mgr"));
    let served: Vec<(String, String)> = public.map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    described.sort();
    let mut served = served;
    served.sort();
    assert_eq!(described, served, "docs/openapi.yaml describes what is served, and nothing else");
}

/// `{name}` in the description is `*` in the routes.
fn routed(path: &str) -> String {
    path.split('/').map(|part| if part.starts_with('{') { "*" } else { part }).collect::<Vec<_>>().join("/")
}

fn with_examples(path: &str, operation: &Value) -> String {
    let mut path = path.to_owned();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        if let (Some(name), Some(example)) = (parameter["name"].as_str(), parameter["example"].as_str()) {
            path = path.replace(&format!("{{{name}}}"), example);
        }
    }
    path
}

pub fn described_so(answer: &str, operation: &Value, description: &Value, asked: &str) {
    let content = &operation["responses"][status(answer)]["content"][content_type(answer)];
    assert!(content.is_object(), "{asked} is not described:\n{answer}");
    if let Some(schema) = content.get("schema") {
        check(&serde_json::from_str(body(answer)).unwrap(), schema, description, asked);
    }
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{other} is not known here"),
    }
}

/// As much of JSON Schema as the description uses.
fn check(value: &Value, schema: &Value, description: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = description.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("no {reference}"));
        return check(value, found, description, at);
    }
    if let Some(kinds) = schema["type"].as_array() {
        let fits = |kind: &Value| is_a(value, kind.as_str().unwrap());
        assert!(kinds.iter().any(fits), "{at}: {value} is not {schema}");
        return;
    }
    let right = is_a(value, schema["type"].as_str().unwrap());
    assert!(right, "{at}: {value} is not {schema}");
    if let Some(words) = schema["enum"].as_array() {
        assert!(words.contains(value), "{at}: {value} is none of {words:?}");
    }
    if let Some(items) = value.as_array() {
        items.iter().for_each(|item| check(item, &schema["items"], description, at));
    }
    if let Some(members) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            assert!(members.contains_key(name.as_str().unwrap()), "{at}: {name} is missing");
        }
        for (name, member) in members {
            let inner = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
            if inner == &Value::Bool(true) {
                continue;
            }
            assert!(inner.is_object(), "{at}: {name} is not described");
            check(member, inner, description, &format!("{at} {name}"));
        }
    }
}

#[test]
fn events_come_every_second() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let admin = server.admin().unwrap();
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {admin}\r\n\r\n").unwrap();
    let description = json_of(&YamlLoader::load_from_str(DESCRIPTION).unwrap()[0]);
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let data = lines.filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let mut at = 0;
    for data in data.take(3) {
        let now: Value = serde_json::from_str(&data).unwrap();
        check(&now, &description["components"]["schemas"]["Now"], &description, "now");
        let ended = now["second"]["at"].as_u64().unwrap();
        assert!(at == 0 || ended > at, "{data}");
        at = ended;
    }
}

#[test]
fn stored_objects_are_found_and_shown_without_cookies() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "[policy]\nset_cookie = \"keep\"\n");
    let (proxy, admin, origin) = (server.addresses()[0], server.admin().unwrap(), stand::origin());
    for path in ["fresh/a", "fresh/b", "fresh/cookie", "none"] {
        stand::get(proxy, &format!("http://{origin}/{path}"));
    }
    let json = |path: &str| serde_json::from_str::<Value>(body(&ask(admin, path))).unwrap();
    for prefix in [format!("{origin}/fresh"), format!("http://{origin}/fresh")] {
        let listing = json(&format!("/store/objects?prefix={prefix}&limit=2"));
        let urls: Vec<_> = listing["items"].as_array().unwrap().iter().map(|item| item["url"].clone()).collect();
        assert_eq!(urls, ["a", "b"].map(|name| format!("http://{origin}/fresh/{name}")), "{prefix}");
        assert!(listing["found"].as_u64() >= Some(3) && listing["complete"] == true, "{listing}");
    }
    assert_eq!(json("/store/objects?prefix=elsewhere")["found"], 0);
    let opened = json(&format!("/store/object?key=http://{origin}/fresh/cookie"));
    let fields = opened[0]["fields"].to_string();
    assert!(fields.contains("[\"Set-Cookie\",\"(hidden)\"]") && !fields.contains("crumbs"), "{opened}");
    for wrong in ["/store/objects?limit=0", "/store/objects?limit=501", "/store/objects?x=1", "/store/object"] {
        assert_eq!(status(&ask(admin, wrong)), "422", "{wrong}");
    }
}

#[test]
fn the_page_is_open_where_all_else_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "admin_token = \"long-and-secret-enough\"\n");
    let admin = server.admin().unwrap();
    for (path, wanted) in
        [("/", "200"), ("/page/page.js", "200"), ("/page/none", "404"), ("/now", "401"), ("/events", "401")]
    {
        assert_eq!(status(&ask(admin, path)), wanted, "{path}");
    }
    let page = ask(admin, "/");
    assert!(page.contains("script-src 'self'") && !page.contains("unsafe-inline"), "{page}");
}

/// `UPDATE_EXPECTED=1 cargo test -p larder --test all seen` writes the page anew.
#[test]
fn the_reference_of_the_metrics_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&path, metrics_reference()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == metrics_reference(), "docs/metrics.md differs: run this test with UPDATE_EXPECTED=1");
    assert!(families().all(|family| family.about.ends_with('.')));
}

#[test]
fn with_a_token_nobody_else_is_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "admin_token = \"correct horse\"");
    let admin = server.admin().unwrap();
    let with = |path: &str, fields: &str| {
        let answer = exchange(admin, &format!("GET {path} HTTP/1.1\r\nHost: cache.example\r\n{fields}\r\n"));
        status(&answer).to_owned()
    };
    assert_eq!(with("/stats", "Authorization: Bearer correct horse\r\n"), "200");
    // any:correct horse
    assert_eq!(with("/stats", "Authorization: Basic YW55OmNvcnJlY3QgaG9yc2U=\r\n"), "200");
    for wrong in ["", "Authorization: Bearer correct hors\r\n", "Authorization: Basic YTpi\r\n", "Authorization: x\r\n"]
    {
        assert_eq!(with("/stats", wrong), "401", "{wrong}");
        assert_eq!(with("/metrics", wrong), "401", "{wrong}");
    }
    assert_eq!(status(&ask(admin, "/healthz")), "200");
    let shown = exchange(
        admin,
        &format!("GET /config HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer correct horse\r\n\r\n"),
    );
    assert!(shown.contains("admin_token") && !shown.contains("correct"), "{shown}");
}

#[test]
fn web_pages_elsewhere_cannot_ask_or_change_anything() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let admin = server.admin().unwrap();
    let rebound = exchange(admin, "GET /stats HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(status(&rebound), "403", "DNS rebinding");
    let form = post(admin, "/log/reopen", "Content-Type: application/x-www-form-urlencoded\r\n");
    assert_eq!(status(&form), "403", "a form");
    assert_eq!(status(&post(admin, "/log/reopen", "X-Larder: 1\r\n")), "200");
    assert_eq!(status(&post(admin, "/runs", "X-Larder: 1\r\n")), "404", "runs are for the owner of the folder");
    assert_eq!(status(&ask(admin, "/reload")), "405");
    assert_eq!(status(&ask(admin, "/nothing")), "404");
    let preflight = exchange(admin, &format!("OPTIONS /log/reopen HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    assert!(status(&preflight) == "405" && preflight.contains("\r\nAllow: POST\r\n"), "{preflight}");
    assert!(post(admin, "/stats", "X-Larder: 1\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
    let head = exchange(admin, &format!("HEAD /stats HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    assert!(status(&head) == "200" && body(&head).is_empty(), "{head}");
}

#[test]
fn a_page_elsewhere_holds_no_seats() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let admin = server.admin().unwrap();
    let with = |path: &str, fields: &str| {
        let answer = exchange(admin, &format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n{fields}\r\n"));
        status(&answer).to_owned()
    };
    let own = format!("Origin: http://{admin}\r\n");
    for (path, fields, wanted) in [
        ("/now", "Sec-Fetch-Site: cross-site\r\n", "403"),
        ("/now", "Sec-Fetch-Site: same-site\r\n", "403"),
        ("/events", "Sec-Fetch-Site: cross-site\r\n", "403"),
        ("/events", "Origin: http://evil.example\r\n", "403"),
        ("/now", "Origin: null\r\n", "403"),
        ("/now", &own, "200"),
        ("/now", "Sec-Fetch-Site: same-origin\r\n", "200"),
        ("/now", "Sec-Fetch-Site: none\r\n", "200"),
        // A link to the page, and what the page is made of.
        ("/", "Sec-Fetch-Site: cross-site\r\n", "200"),
        ("/page/page.js", &own, "200"),
    ] {
        assert_eq!(with(path, fields), wanted, "{path} {fields}");
    }
    assert_eq!(status(&post(admin, "/purge?all=", "X-Larder: 1\r\nOrigin: http://evil.example\r\n")), "403");
}

/// Connections that say nothing, or half of something, and answers that nobody reads: whoever looks whether the server is
/// well is answered all the while, by either way in.
#[test]
fn the_silent_and_the_slow_shut_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let admin = server.admin().unwrap();
    let path = larder::run::control::socket(folder.path());
    let mut slow: Vec<Box<dyn Write>> = Vec::new();
    for number in 0..600 {
        let said: &[u8] = match number % 3 {
            0 => b"",
            1 => b"G",
            _ => b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        };
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.write_all(said).unwrap();
        slow.push(Box::new(stream));
        let mut stream = UnixStream::connect(&path).unwrap();
        // A connection that the server has closed already cannot be written to.
        let _ = stream.write_all(said);
        slow.push(Box::new(stream));
        if number % 20 == 0 {
            assert_eq!(status(&ask(admin, "/healthz")), "200", "after {number}");
        }
    }
    let socket = larder::run::control::Client::new(path);
    let done = socket.change::<Value>("/log/reopen");
    assert!(matches!(&done, Ok(Ok(value)) if value["done"] == true), "{:?}", done.map_err(|error| error.to_string()));
    assert_eq!(status(&ask(admin, "/requests")), "200");
    drop(slow);
    assert_eq!(status(&ask(admin, "/healthz")), "200");
}

/// Parameters that are not understood are refused.
#[test]
fn parameters_that_mean_nothing_here_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let (proxy, admin, origin) = (server.addresses()[0], server.admin().unwrap(), stand::origin());
    let url = format!("http://{origin}/fresh");
    (0..2).for_each(|_| drop(stand::get(proxy, &url)));
    for path in [
        "/purge?all=false",
        "/purge?all=no",
        "/purge?all=0",
        "/purge?all=none",
        "/purge?soft",
        "/purge?all&dry-run",
        "/purge?all&all",
        "/purge?tag=a&soft=maybe",
        "/reload?dry-run=true",
        "/log/reopen?no",
    ] {
        let answer = post(admin, path, "X-Larder: 1\r\n");
        assert!(status(&answer) == "422" && answer.contains("\"error\""), "{path}: {answer}");
        assert!(stand::get(proxy, &url).contains("; hit"), "{path} purged");
    }
    for path in [
        "/now?x",
        "/stats?x=1",
        "/metrics?name=a",
        "/config?x",
        "/requests?limit=1&limit=2",
        "/store/objects?prefix=a&prefix=b",
    ] {
        assert_eq!(status(&ask(admin, path)), "422", "{path}");
    }
    for path in ["/healthz?probe=1", "/?from=elsewhere", "/page/page.js?1"] {
        assert_eq!(status(&ask(admin, path)), "200", "{path}");
    }
    assert_eq!(status(&post(admin, "/purge?all=true", "X-Larder: 1\r\n")), "200");
    assert!(!stand::get(proxy, &url).contains("; hit"));
}

/// Where others can connect to a listener, the page is for those who know the token, and what a proxy passed on never is.
#[test]
fn the_page_is_closed_where_others_can_connect_and_to_what_a_proxy_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let open = "[[listen]]\naddress = \"0.0.0.0:0\"\n";
    let server = stand::server(folder.path(), open);
    let admin = server.admin().unwrap();
    for path in ["/", "/stats", "/metrics", "/requests", "/config", "/events", "/squid-internal-mgr/info"] {
        let answer = ask(admin, path);
        assert!(status(&answer) == "403" && answer.contains("admin_token"), "{path}: {answer}");
    }
    assert_eq!(status(&post(admin, "/purge?all", "X-Larder: 1\r\n")), "403");
    assert_eq!(status(&ask(admin, "/healthz")), "200");
    let by_socket = larder::run::control::Client::new(larder::run::control::socket(folder.path()));
    assert!(by_socket.read::<Value>("/stats").is_ok());
    let manager = "GET /squid-internal-mgr/info HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
    let proxy = SocketAddr::from(([127, 0, 0, 1], server.addresses()[0].port()));
    assert_eq!(status(&exchange(proxy, manager)), "403", "the pages of the cache manager");

    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let (admin, proxy) = (server.admin().unwrap(), server.addresses()[0]);
    for via in ["1.1 elsewhere", "", "2 a, 1.0 b"] {
        for path in ["/stats", "/healthz", "/"] {
            let passed = exchange(admin, &format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nVia: {via}\r\n\r\n"));
            assert_eq!(status(&passed), "403", "{path} by {via}");
        }
    }
    let passed_on = "GET /squid-internal-mgr/info HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    assert_eq!(status(&exchange(proxy, passed_on)), "403", "what a server in front passed on");
    // A site of the operator's that leads to the page says who passed it on.
    let folder = tempfile::tempdir().unwrap();
    let site =
        stand::server(folder.path(), &format!("[[listen]]\naddress = \"127.0.0.1:0\"\norigin = \"http://{admin}\"\n"));
    let through =
        exchange(site.addresses()[0], &format!("GET /stats HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n"));
    assert_eq!(status(&through), "403");
}

#[test]
fn of_five_hundred_listeners_some_are_told_and_the_rest_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), "");
    let admin = server.admin().unwrap();
    let slow: Vec<_> = (0..500)
        .filter_map(|_| {
            let mut stream = TcpStream::connect(admin).ok()?;
            stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {admin}\r\n\r\n").as_bytes()).ok()?;
            Some(stream)
        })
        .collect();
    stand::wait_for("others are answered all the while", || status(&ask(admin, "/now")) == "200");
    assert_eq!(status(&ask(admin, "/events")), "503");
    drop(slow);
    stand::wait_for("seats are free again", || {
        let head = exchange(admin, &format!("HEAD /events HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
        status(&head) == "200"
    });
}

/// The credentials of a request stand nowhere, and with `hide_query` no value of its query does.
#[test]
fn secrets_are_told_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let server = stand::server(folder.path(), "[records]\nhide_query = true\nname_answers = true\n");
    stand::wait_for("ready", || server.shared().is_ready());
    let (admin, proxy) = (server.admin().unwrap(), server.addresses()[0]);
    let mut names = Vec::new();
    for path in ["fresh", "fresh", "none", "none", "cookie"] {
        let secrets = "Authorization: Bearer s3cret\r\nCookie: id=s3cret\r\nReferer: http://r.example/?t=s3cret\r\n\
                       Proxy-Authorization: Basic s3cret\r\nX-Api-Key: s3cret\r\n\
                       PRIVATE-TOKEN: s3cret\r\nX-Auth-Token: s3cret\r\nX-Session-Id: s3cret\r\n";
        let answer = exchange(
            proxy,
            &format!(
                "GET http://{origin}/{path}?key=s3cret HTTP/1.1\r\nHost: {origin}\r\n{secrets}Connection: close\r\n\r\n"
            ),
        );
        assert_eq!(status(&answer), "200", "{answer}");
        let name = answer.lines().find_map(|line| line.strip_prefix("Larder-Request: ")).unwrap();
        names.push(format!("/requests/{name}"));
    }
    let told = ["/requests", "/hot", "/now", "/stats", "/metrics", "/squid-internal-mgr/client_list", "/config"];
    for path in told.into_iter().map(str::to_owned).chain(names) {
        let answer = ask(admin, &path);
        assert!(status(&answer) == "200" && !answer.contains("s3cret"), "{path}: {answer}");
    }
}
