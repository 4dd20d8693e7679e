//! Hooks of the forward proxy, with a real interpreter: in clear text, for CONNECT, inside opened tunnels and in a `larder run`.

use super::hooks::{read_head, status};
use super::reload::{Steered, base};
use super::schemes;
use super::schemes::{HERE, secured, tunnel, write_pair};
use super::stand::{self, WITHIN, body, exchange};
use larder::config::CertificateFiles;
use larder::run::control::{self, Client};
use larder::tls::server::Certificates;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConnection, StreamOwned};
use serde_json::Value;
use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static ANSWERS: AtomicU32 = AtomicU32::new(0);

static CLOSED: AtomicU32 = AtomicU32::new(0);

static CLEAR: AtomicU32 = AtomicU32::new(0);

/// Origins that nothing may reach, each of one test.
fn closed(_: &TcpStream) -> Option<()> {
    CLOSED.fetch_add(1, Ordering::Relaxed);
    None
}

fn clear(stream: &TcpStream) -> Option<()> {
    let mut first = [0];
    (&*stream).read_exact(&mut first).ok()?;
    // A record of TLS begins with 22.
    CLEAR.fetch_add(u32::from(first[0].is_ascii_alphabetic()), Ordering::Relaxed);
    None
}

/// An origin that tells what it was asked, by whom and how often, and is fresh for a minute below `/kept`.
fn telling(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (first, fields) = read_head(&mut lines)?;
        let (mut words, number) = (first.split(' '), ANSWERS.fetch_add(1, Ordering::Relaxed));
        let (method, target) = (words.next()?, words.next()?);
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let told = ["host", "cookie", "authorization", "x-user"].map(|name| format!("{name}={}", field(name)));
        let text = format!("{method} {target} {} #{number}", told.join(" "));
        let control = match target {
            target if target.contains("private") => "Cache-Control: private\r\n",
            target if target.contains("kept") => "Cache-Control: max-age=60\r\n",
            _ => "",
        };
        let length = text.len();
        let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
        names.sort_unstable();
        let seen = names.join(" ");
        let head =
            format!("HTTP/1.1 200 OK\r\n{control}Server: secret\r\nX-Seen: {seen}\r\nContent-Length: {length}\r\n\r\n");
        (&*stream).write_all((head + &text).as_bytes()).ok()?;
    }
}

/// The body without the number of the answer.
fn told(answer: &str) -> &str {
    body(answer).split(" #").next().unwrap_or_default()
}

struct Proxy {
    steered: Steered,
    proxy: SocketAddr,
    folder: tempfile::TempDir,
}

const HOOKS: &str = "[forward]\nhooks = [\"policy.py\"]\n";

impl Proxy {
    fn start(policy: &str, more: &str) -> Proxy {
        Proxy::at("[[listen]]\naddress = \"127.0.0.1:0\"\n", policy, more)
    }

    fn at(listen: &str, policy: &str, more: &str) -> Proxy {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.py"), policy).unwrap();
        let steered = Steered::start(folder.path(), &Proxy::text(folder.path(), listen, more));
        let proxy = ([127, 0, 0, 1], steered.server.addresses()[0].port()).into();
        Proxy { steered, proxy, folder }
    }

    fn text(folder: &Path, listen: &str, more: &str) -> String {
        let base = base(folder).replace("admin = \"none\"", "admin = \"127.0.0.1:0\"\nadmin_token = \"correct horse\"");
        let folder = folder.display();
        format!(
            "{base}{listen}{HOOKS}[[python]]\nname = \"p\"\nfolder = \"{folder}\"\nprocesses = 1\nhook_time = \"500ms\"\n\
             [records]\nname_answers = true\n{more}"
        )
    }

    fn ask(&self, url: &str, fields: &str) -> String {
        ask(self.proxy, "GET", url, fields)
    }

    fn connect(&self, authority: &str) -> String {
        exchange(self.proxy, &format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"))
    }

    /// The failures that `larder scripts` shows.
    fn failures(&self) -> Vec<String> {
        let mounts = self.steered.server.shared().nursery.mounts();
        mounts.all().iter().flat_map(|mount| mount.report().failures).map(|failure| failure.traceback).collect()
    }

    fn admin(&self, path: &str) -> Value {
        let admin = self.steered.server.admin().unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer correct horse\r\nConnection: close\r\n\r\n"
        );
        let answer = exchange(admin, &request);
        serde_json::from_str(body(&answer)).unwrap_or_else(|_| panic!("{answer}"))
    }

    /// The work of hooks, in the explanation of the request that had this answer.
    fn hooks_of(&self, answer: &str) -> Vec<Value> {
        let name = answer.lines().find_map(|line| line.strip_prefix("Larder-Request: "));
        hooks_in(&self.admin(&format!("/requests/{}", name.unwrap_or_else(|| panic!("{answer}")))))
    }
}

fn hooks_in(shown: &Value) -> Vec<Value> {
    let steps = shown["steps"].as_array().unwrap_or_else(|| panic!("{shown}"));
    steps.iter().filter(|step| step["step"] == "hook").map(|step| step["values"]["hook"].clone()).collect()
}

fn ask(proxy: SocketAddr, method: &str, url: &str, fields: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    exchange(proxy, &format!("{method} {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"))
}

const STAGES: &str = r#"
import larder

@larder.request(path="/kept/**")
def strip(req):
    req.query.drop("utm_*")

@larder.request(path="/deny/**")
def refuse(req):
    return larder.deny("not here")

@larder.page("/hello")
def hello(req):
    return f"Hello from {req.host}!"

@larder.found(path="/kept/**", field="x-fresh")
def found(req, found):
    return larder.miss()

@larder.fetched(path="/kept/**", status=200)
def fetched(req, resp):
    resp.tags.add("kept")
    del resp.headers["server"]

@larder.respond(path="/kept/**")
def respond(req, resp):
    resp.headers["x-client"] = req.client
"#;

#[test]
fn all_stages_work_for_requests_of_the_forward_proxy() {
    let proxy = Proxy::start(STAGES, "");
    let origin = stand::origin_that(telling);
    let url = |path: &str| format!("http://{origin}{path}");
    let first = proxy.ask(&url("/kept/a?utm_source=x&id=1"), "");
    assert_eq!(told(&first), format!("GET /kept/a?id=1 host={origin} cookie= authorization= x-user="));
    assert!(first.contains("x-client: 127.0.0.1") && !first.contains("Server: secret"), "{first}");
    let hit = proxy.ask(&url("/kept/a?id=1&utm_medium=y"), "");
    assert!(hit.contains("; hit") && body(&hit) == body(&first), "{hit}");
    let fresh = proxy.ask(&url("/kept/a?id=1"), "X-Fresh: 1\r\n");
    assert!(!fresh.contains("; hit") && body(&fresh) != body(&first), "{fresh}");
    let denied = proxy.ask(&url("/deny/x"), "");
    assert!(status(&denied) == "403" && body(&denied) == "not here", "{denied}");
    assert_eq!(body(&proxy.ask("http://nowhere.invalid/hello", "")), "Hello from nowhere.invalid!");
    let by = |answer: &str| {
        let text = |hook: &Value| format!("{} {} {}", hook["stage"], hook["hook"], hook["did"]).replace('"', "");
        proxy.hooks_of(answer).iter().map(text).collect::<Vec<_>>()
    };
    let wanted = [
        "request strip changes the query",
        "fetched fetched tag kept, removes server",
        "respond respond sets x-client",
    ];
    assert_eq!(by(&first), wanted);
    assert_eq!(by(&denied), ["request refuse answers 403"]);
    // A path that readers disagree about may be one that a hook denies.
    for path in ["/x/../deny/x", "/%64eny/x", "//deny/x"] {
        assert!(matches!(status(&proxy.ask(&url(path), "")), "400" | "403"), "{path}");
    }
    let ahead = hooks_in(&proxy.admin(&format!("/explain?url={}", url("/kept/a"))));
    let named: Vec<&str> = ahead.iter().filter_map(|hook| hook["hook"].as_str()).collect();
    assert_eq!(named, ["strip", "fetched", "respond"]);
    // The command that purges a URL finds it under whatever hooks have added to the key.
    let run = Client::new(control::socket(&proxy.folder.path().join("store"))).start().unwrap();
    let through_run = ask(run.proxy, "GET", &url("/kept/b?utm_source=x"), "");
    assert!(told(&through_run).starts_with("GET /kept/b host="), "a run has the hooks too: {through_run}");
}

const ELSEWHERE: &str = r#"
import larder

@larder.request(path="/to/**")
def to(req):
    req.url = "http://" + req.headers["x-to"] + req.path.replace("/to/", "/kept/")

@larder.request(path="/with/**")
def with_credentials(req):
    req.host, req.port = req.headers["x-to"].rsplit(":", 1)[0], int(req.headers["x-to"].rsplit(":", 1)[1])
    req.headers["x-user"] = req.cookies.get("user", "nobody")

@larder.request(path="/route/**")
def route(req):
    req.route = "b" * 1  # a name that is written out is looked up when the file is loaded

@larder.request(path="/climb/**")
def climb(req):
    req.path = "/../x"
"#;

#[test]
fn a_hook_sends_a_request_to_another_origin_under_that_ones_key() {
    let proxy = Proxy::start(ELSEWHERE, "");
    let (one, other) = (stand::origin_that(telling), stand::origin_that(telling));
    let to_other = format!("X-To: {other}\r\n");
    let with_user = format!("{to_other}Cookie: user=anna\r\nAuthorization: Basic x\r\n");
    let moved = proxy.ask(&format!("http://{one}/to/a?b=1"), &with_user);
    assert_eq!(told(&moved), format!("GET /kept/a host={other} cookie= authorization= x-user="), "{moved}");
    let hooks = proxy.hooks_of(&moved);
    assert_eq!(hooks[0]["asks_for"], format!("http://{other}/kept/a"), "{hooks:?}");
    let direct = proxy.ask(&format!("http://{other}/kept/a"), "");
    assert!(direct.contains("; hit") && body(&direct) == body(&moved), "one URL, one response: {direct}");
    let of_one = proxy.ask(&format!("http://{one}/kept/a"), "");
    assert!(told(&of_one).contains(&format!("host={one} ")), "its own answer: {of_one}");
    // A field by which a hook tells the other origin of the client keeps clients apart.
    for user in ["anna", "ben"] {
        let fields = format!("{to_other}Cookie: user={user}\r\n");
        for round in 0..2 {
            let answer = proxy.ask(&format!("http://{one}/with/kept"), &fields);
            assert!(told(&answer).ends_with(&format!("cookie= authorization= x-user={user}")), "{answer}");
            assert_eq!(answer.contains("; hit"), round > 0, "{answer}");
        }
    }
    for (path, why) in [("/route/x", "the forward proxy has none"), ("/climb/x", "readers disagree about the path")] {
        let answer = proxy.ask(&format!("http://{one}{path}"), "");
        assert!(status(&answer) == "500" && answer.contains("hook-failed"), "{answer}");
        let failures = proxy.failures();
        assert!(failures.iter().any(|failure| failure.contains(why)), "{path}: {failures:?}");
    }
}

const PEOPLE: &str = r#"
import larder

@larder.request(path="/to/**")
def to(req):
    req.url = "http://" + req.headers["x-to"] + req.path.replace("/to/", "/kept/")
    if req.path.endswith("/mine"):
        req.headers["x-api-key"] = "the house's own"
"#;

#[test]
fn no_field_that_may_say_who_asks_goes_to_another_origin() {
    let proxy = Proxy::start(PEOPLE, "[[rule]]\ndo = { set = \"Authorization: of the rules\" }\n");
    let (one, other) = (stand::origin_that(telling), stand::origin_that(telling));
    let fields = format!(
        "X-To: {other}\r\nPRIVATE-TOKEN: t\r\nX-Api-Key: k\r\nReferer: http://{one}/secret\r\nOrigin: http://{one}\r\n\
         Cookie: a=b\r\nX-Unheard-Of: x\r\nAccept-Language: de\r\nUser-Agent: test\r\n"
    );
    let seen = |path: &str, fields: &str| {
        let answer = proxy.ask(&format!("http://{one}{path}"), fields);
        let line = answer.lines().find_map(|line| line.strip_prefix("X-Seen: "));
        line.unwrap_or_else(|| panic!("{answer}")).split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let personal =
        ["authorization", "cookie", "origin", "private-token", "referer", "x-api-key", "x-to", "x-unheard-of"];
    let at_one = seen("/x", &fields);
    assert!(personal.iter().all(|name| at_one.iter().any(|seen| seen == name)), "{at_one:?}");
    let at_other = seen("/to/x", &fields);
    assert!(!personal.iter().any(|name| at_other.iter().any(|seen| seen == name)), "{at_other:?}");
    assert!(["accept-language", "user-agent"].iter().all(|name| at_other.iter().any(|seen| seen == name)));
    assert!(seen("/to/mine", &fields).contains(&"x-api-key".to_owned()), "the hook has set it");
}

#[test]
fn a_rule_refuses_the_url_of_another_origin_that_a_hook_has_chosen() {
    let rules = "[[rule]]\nwhen = { path = \"/kept/refused\" }\ndo = { deny = true }\n\
                 [[rule]]\nwhen = { path = \"/kept/away\" }\ndo = { redirect = \"https://away.test/\", status = 302 }\n\
                 [[rule]]\nwhen = { path = \"/kept/seldom*\" }\ndo = { rate = \"2/h\", burst = 2 }\n";
    let proxy = Proxy::start(PEOPLE, rules);
    let (one, other) = (stand::origin_that(telling), stand::origin_that(telling));
    let through = |path: &str| {
        let answer = proxy.ask(&format!("http://{one}/to/{path}"), &format!("X-To: {other}\r\n"));
        status(&answer).to_owned()
    };
    assert_eq!(status(&proxy.ask(&format!("http://{other}/kept/refused"), "")), "403");
    assert_eq!([through("refused"), through("away"), through("permitted")], ["403", "302", "200"]);
    assert_eq!(["seldom", "seldom2", "seldom3"].map(through), ["200", "200", "429"]);
}

#[test]
fn a_hook_leads_no_client_of_another_machine_to_closed_addresses() {
    let listen = "[[listen]]\naddress = \"0.0.0.0:0\"\nforward = true\n";
    let proxy = Proxy::at(listen, ELSEWHERE, "[upstream]\nresolver = \"system\"\n");
    let port = stand::origin_that(closed).port();
    for host in [
        "127.0.0.1",
        "localhost",
        "x.localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "169.254.169.254",
        // Names to us, and addresses to the resolver of the system: judged when they are connected to.
        "2130706433",
        "127.1",
    ] {
        for path in ["/to/x", "/with/kept"] {
            let answer = proxy.ask(&format!("http://example.com{path}"), &format!("X-To: {host}:{port}\r\n"));
            assert!(status(&answer) == "403" && answer.contains("out-of-reach"), "{host}: {answer}");
        }
    }
    let own = format!("X-To: 127.0.0.1:{}\r\n", proxy.proxy.port());
    assert_eq!(status(&proxy.ask("http://example.com/to/x", &own)), "403", "the proxy itself");
    assert_eq!(proxy.failures(), [""; 0], "a client does not fill the list of failures");
    let by_name = proxy.ask("http://example.com/to/x", &format!("X-To: localhost:{port}\r\n"));
    assert_eq!(proxy.hooks_of(&by_name)[0]["did"], "leads where this client may not go");
    assert_eq!(CLOSED.load(Ordering::Relaxed), 0, "nothing was connected to");
}

const TUNNELS: &str = r#"
import larder

@larder.request(host="bad.example")
def bad(req):
    return larder.deny("not " + req.host)

@larder.request(method="CONNECT", host="*.open.example")
def opens(req):
    return larder.Response("hello")

@larder.request(method="CONNECT", host="moved.example")
def moves(req):
    req.host = "localhost"
    req.key.add("x")

@larder.request(host="broken.example")
def broken(req):
    raise KeyError(req.method + req.path)

@larder.request(path="/**", host="localhost")
def of_paths(req):
    return larder.deny("a tunnel has no path")
"#;

#[test]
fn a_hook_denies_a_connect_and_does_nothing_else_to_it() {
    let proxy = Proxy::start(TUNNELS, "[access]\nconnect_ports = []\n");
    let denied = proxy.connect("bad.example:443");
    assert!(status(&denied) == "403" && body(&denied) == "not bad.example", "{denied}");
    assert!(denied.contains("Connection: close"), "{denied}");
    let shown = proxy.hooks_of(&denied);
    assert_eq!((&shown[0]["hook"], &shown[0]["did"]), (&"bad".into(), &"answers 403".into()));
    // For the client that would be a tunnel.
    let opened = proxy.connect("a.open.example:443");
    assert_eq!(status(&opened), "500", "{opened}");
    assert!(proxy.failures()[0].contains("200 opens a tunnel"), "{:?}", proxy.failures());
    let failed = proxy.connect("broken.example:443");
    assert_eq!(status(&failed), "500", "{failed}");
    stand::wait_for("its traceback", || proxy.failures().iter().any(|it| it.contains("KeyError: 'CONNECT/'")));
    // It is led nowhere else: there is no such host.
    let moved = proxy.connect("moved.example:443");
    assert!(matches!(status(&moved), "502" | "504"), "{moved}");
    let origin = stand::origin_that(telling);
    let mut tunnel = TcpStream::connect(proxy.proxy).unwrap();
    tunnel.set_read_timeout(Some(WITHIN)).unwrap();
    write!(tunnel, "CONNECT localhost:{0} HTTP/1.1\r\nHost: localhost:{0}\r\n\r\n", origin.port()).unwrap();
    let mut answer = [0; 12];
    tunnel.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200", "no filter of paths lets a tunnel through");
    // A path that a hook for one host may misread is no matter for others.
    let climbs = |host: &str| proxy.ask(&format!("http://{host}:{}/x/../y", origin.port()), "");
    assert_eq!((status(&climbs("127.0.0.1")), status(&climbs("localhost"))), ("200", "400"));
    let ahead = hooks_in(&proxy.admin("/explain?url=https://bad.example/x"));
    assert_eq!((ahead.len(), &ahead[0]["hook"]), (1, &"bad".into()), "{ahead:?}");
}

#[test]
fn where_hooks_may_fail_a_tunnel_is_opened() {
    let proxy = Proxy::start(TUNNELS, "[access]\nconnect_ports = []\n");
    let text =
        Proxy::text(proxy.folder.path(), "[[listen]]\naddress = \"127.0.0.1:0\"\n", "[access]\nconnect_ports = []\n");
    proxy.steered.reload(&text.replace("hook_time", "on_failure = \"pass\"\nhook_time")).unwrap();
    stand::wait_for("the name is looked up", || matches!(status(&proxy.connect("broken.example:443")), "502" | "504"));
}

/// An origin over TLS that tells its certificate's name and what it was asked.
pub fn tls_origin(folder: &Path, name: &'static str) -> (SocketAddr, CertificateDer<'static>) {
    let root = write_pair(folder, name);
    let files = CertificateFiles { chain: folder.join("chain.pem"), key: folder.join("key.pem") };
    let config = std::sync::Arc::new(Certificates::load(&[files]).unwrap()).config(None, false).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || {
                let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config).unwrap(), stream));
                while let Some((first, _)) = read_head(&mut stream) {
                    let text = format!("{name} {}", first.split(' ').nth(1).unwrap_or_default());
                    let length = text.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {length}\r\n\r\n{text}"
                    );
                    if stream.get_mut().write_all(head.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, root)
}

const INSIDE: &str = r#"
import larder

@larder.request(path="/moved/**")
def moved(req):
    req.host, req.port = "127.0.0.1", int(req.path.split("/")[2])
    req.path = "/" + req.path.split("/")[3]

@larder.request(path="/clear/**")
def clear(req):
    req.url = "http://127.0.0.1:%s/x" % req.path.split("/")[2]

@larder.request(path="/strip")
def strip(req):
    req.query.drop("utm_*")
"#;

#[test]
fn inside_an_opened_tunnel_another_hosts_bytes_come_under_its_own_key_and_certificate() {
    let (folder, certificates) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut roots = Vec::new();
    let mut origin = |at: &str, name, is_trusted: bool| {
        let folder = certificates.path().join(at);
        fs::create_dir(&folder).unwrap();
        let (address, _) = tls_origin(&folder, name);
        if is_trusted {
            roots.push(format!("{:?}", folder.join("chain.pem")));
        }
        address.port()
    };
    let (one, other) = (origin("one", "localhost", true), origin("other", "127.0.0.1", true));
    // The one has a certificate for another name, the other one that nobody trusts.
    let (misnamed, untrusted) = (origin("misnamed", "localhost", true), origin("untrusted", "127.0.0.1", false));
    let clear = stand::origin_that(clear).port();
    fs::write(folder.path().join("policy.py"), INSIDE).unwrap();
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\nintercept = true\n";
    let more = format!("[access]\nconnect_ports = []\n[upstream]\nextra_roots = [{}]\n", roots.join(", "));
    let steered = Steered::start(folder.path(), &Proxy::text(folder.path(), listen, &more));
    let proxy = Proxy { proxy: steered.server.addresses()[0], steered, folder };
    let root = proxy.steered.server.shared().interception.authority().unwrap().certificate().clone();
    let open = |host: &str, port: u16| {
        let authority = format!("{host}:{port}");
        secured(tunnel(HERE, proxy.proxy, &authority), root.clone(), host).unwrap()
    };
    let host = format!("localhost:{one}");
    let mut inside = open("localhost", one);
    assert_eq!(schemes::ask(&mut inside, "/strip?utm_source=x&id=1", &host), "200 localhost /strip?id=1");
    assert_eq!(schemes::ask(&mut inside, "/strip?id=1&utm_medium=y", &host), "200 localhost /strip?id=1 hit");
    assert_eq!(schemes::ask(&mut inside, "/a", &host), "200 localhost /a");
    assert_eq!(schemes::ask(&mut inside, &format!("/moved/{other}/a"), &host), "200 127.0.0.1 /a");
    assert_eq!(schemes::ask(&mut inside, "/a", &host), "200 localhost /a hit", "its own bytes, under its own key");
    let mut direct = open("127.0.0.1", other);
    let own = format!("127.0.0.1:{other}");
    assert_eq!(schemes::ask(&mut direct, "/a", &own), "200 127.0.0.1 /a hit", "what was fetched is the other's");
    for port in [misnamed, untrusted, clear] {
        assert_eq!(schemes::ask(&mut inside, &format!("/moved/{port}/a"), &host), "502", "{port}");
    }
    assert_eq!(schemes::ask(&mut inside, &format!("/clear/{clear}"), &host), "500");
    let failures = proxy.failures();
    assert!(failures.len() == 1 && failures[0].contains("https can't become one for http"), "{failures:?}");
    assert_eq!(CLEAR.load(Ordering::Relaxed), 0, "nothing was asked for in clear text");
}

const LIFETIMES: &str = r#"
import larder

@larder.fetched(path="/ttl/**", status=200)
def ttl(req, resp):
    resp.ttl, resp.grace = 600, 60

@larder.fetched(path="/kept/never")
def never(req, resp):
    return larder.pass_()

@larder.fetched(path="/kept/broken")
def broken(req, resp):
    raise ValueError("no")

@larder.request(path="/ttl/bare")
def bare(req):
    del req.headers["cookie"]
"#;

#[test]
fn a_lifetime_by_a_hook_holds_for_all_and_for_nobody_who_may_say_who_asks() {
    let proxy = Proxy::start(LIFETIMES, "");
    let origin = stand::origin_that(telling);
    let ask = |path: &str, fields: &str| proxy.ask(&format!("http://{origin}{path}"), fields);
    let (miss, hit) = (ask("/ttl/a", ""), ask("/ttl/a", ""));
    let ttl: u32 = hit.split("; hit; ttl=").nth(1).and_then(|rest| rest.lines().next()?.parse().ok()).expect(&hit);
    assert!((590..=600).contains(&ttl) && body(&hit) == body(&miss), "{hit}");
    assert!(
        !hit.contains("CDN-Cache-Control") && !hit.contains("max-age"),
        "the client sees what the origin said: {hit}"
    );
    // A stored answer that the hook alone made fresh is not for one who may be answered otherwise.
    for fields in ["Cookie: user=anna\r\n", "Authorization: Basic x\r\n"] {
        for path in ["/ttl/a", "/ttl/b"] {
            assert!(!ask(path, fields).contains("; hit"), "{path} {fields}");
        }
        assert!(!ask("/ttl/b", "").contains("; hit"), "nor is his answer for others: {fields}");
        ask("/ttl/b", "");
        assert!(ask("/ttl/b", "").contains("; hit"));
        proxy
            .steered
            .server
            .shared()
            .common
            .cache
            .purge([larder_cache::store::rules::Scope::All], larder_cache::store::rules::Force::Hard);
        ask("/ttl/a", "");
    }
    ask("/ttl/bare", "Cookie: user=anna\r\n");
    assert!(ask("/ttl/bare", "Cookie: user=ben\r\n").contains("; hit"), "no origin has seen who asked");
    for path in ["/ttl/private", "/kept/never", "/kept/broken"] {
        (0..2).for_each(|_| assert!(!ask(path, "").contains("; hit"), "{path}"));
    }
    assert!(!ask("/other", "").contains("; hit") && !ask("/other", "").contains("; hit"), "no hook speaks of it");
}

#[test]
fn a_lifetime_by_a_hook_counts_before_one_by_a_rule() {
    let proxy = Proxy::start(LIFETIMES, "[[rule]]\ndo = { lifetime = \"30s\" }\n");
    let origin = stand::origin_that(telling);
    for (path, longest) in [("/ttl/a", 600_u32), ("/other", 30)] {
        let url = format!("http://{origin}{path}");
        proxy.ask(&url, "");
        let hit = proxy.ask(&url, "");
        let ttl: u32 = hit.split("; hit; ttl=").nth(1).and_then(|rest| rest.lines().next()?.parse().ok()).expect(&hit);
        assert!((longest - 10..=longest).contains(&ttl), "{hit}");
    }
}

/// Hooks that do one of many things, as the request's own field says: origin, path, query, fields, key.
const RANDOM: &str = r#"
import larder

@larder.request
def anything(req):
    draw = int(req.headers["x-draw"])
    del req.headers["x-draw"]
    if draw & 1:
        req.query.drop("a", "b")
    if draw & 2:
        req.headers["x-user"] = req.cookies.get("user", "none")
    if draw & 4:
        del req.headers["cookie"]
    if draw & 8:
        req.key.add(req.cookies.get("user", ""))
    if draw & 16:
        req.path = "/kept/p%d" % (draw % 3)
    if draw & 32:
        req.host, req.port = req.headers["x-to"].rsplit(":", 1)[0], int(req.headers["x-to"].rsplit(":", 1)[1])
    if draw & 64:
        return larder.pass_()

@larder.fetched(status=200)
def keep(req, resp):
    resp.ttl = 60
"#;

/// Each answer tells the host, target and fields that its request had at the origin. The answer that comes is one
/// to exactly that which random hooks made of the request.
#[test]
fn no_byte_of_one_key_reaches_another_whatever_hooks_do() {
    let proxy = Proxy::start(RANDOM, "");
    let origins = [stand::origin_that(telling), stand::origin_that(telling)];
    let hosts = [origins[0].to_string(), origins[1].to_string(), format!("localhost:{}", origins[0].port())];
    let (mut hits, mut moved) = (0, 0);
    for round in 0..1_000_u32 {
        let seed = round.wrapping_mul(2_654_435_761) >> 5;
        let (draw, user, path) = (seed % 128, seed / 128 % 3, seed / 384 % 2);
        let (at, to) = ((seed / 768 % 3) as usize, (seed / 2_304 % 3) as usize);
        let query = ["", "?a=1", "?c=2&b=3"][(seed / 6_912 % 3) as usize];
        let cookie = if seed / 20_736 % 2 == 0 { format!("Cookie: user=u{user}\r\n") } else { String::new() };
        let fields = format!("X-Draw: {draw}\r\nX-To: {}\r\n{cookie}", hosts[to]);
        let answer = proxy.ask(&format!("http://{}/kept/x{path}{query}", hosts[at]), &fields);
        assert_eq!(status(&answer), "200", "{fields}{answer}");
        let has = |bit: u32| draw & bit != 0;
        let user = if cookie.is_empty() { "none".to_owned() } else { format!("u{user}") };
        let host = if has(32) { &hosts[to] } else { &hosts[at] };
        let is_moved = has(32) && hosts[to] != hosts[at];
        let path = if has(16) { format!("/kept/p{}", draw % 3) } else { format!("/kept/x{path}") };
        let query = match query {
            "?a=1" if has(1) => "",
            "?c=2&b=3" if has(1) => "?c=2",
            other => other,
        };
        let sent = if cookie.is_empty() || has(4) || is_moved { String::new() } else { format!("user={user}") };
        let told_user = if has(2) { user.as_str() } else { "" };
        let wanted = format!("GET {path}{query} host={host} cookie={sent} authorization= x-user={told_user}");
        // An origin that says `max-age` and nothing of `Vary` means one answer for all cookies.
        let is_same = |told: &str| told.split(" cookie=").next() == wanted.split(" cookie=").next();
        assert!(is_same(told(&answer)), "{fields}wanted {wanted}\n{answer}");
        let user_told = told(&answer).split(" x-user=").nth(1);
        assert_eq!(user_told, Some(told_user), "{fields}wanted {wanted}\n{answer}");
        if has(8) && !sent.is_empty() {
            // Another request of this user may have left the cookie out.
            let is_own =
                [format!(" cookie={sent} "), " cookie= ".to_owned()].iter().any(|it| told(&answer).contains(it));
            assert!(is_own, "the key has the user: {fields}{answer}");
        }
        (hits, moved) = (hits + u32::from(answer.contains("; hit")), moved + u32::from(is_moved));
    }
    assert!(hits > 100 && moved > 100, "{hits} hits, {moved} moved: they show nothing");
}

#[test]
fn a_reload_brings_hooks_of_the_forward_proxy_and_takes_them() {
    let proxy = Proxy::start(STAGES, "");
    let origin = stand::origin_that(telling);
    let url = format!("http://{origin}/deny/x");
    assert_eq!(status(&proxy.ask(&url, "")), "403");
    let with = Proxy::text(proxy.folder.path(), "[[listen]]\naddress = \"127.0.0.1:0\"\n", "");
    let (changed, waits) = proxy.steered.reload(&with.replace(HOOKS, "")).unwrap();
    assert!(changed.contains(&"forward.hooks".to_owned()) && waits.is_empty(), "{changed:?} {waits:?}");
    assert_eq!(status(&proxy.ask(&url, "")), "200");
    let refused = proxy.steered.reload(&with.replace(HOOKS, "[forward]\nhooks = [\"policy.py\"]\npython = \"q\"\n"));
    assert!(refused.unwrap_err().contains("[forward]: there is no [[python]] q"));
    let refused = proxy.steered.reload(&with.replace(HOOKS, "[forward]\npython = \"p\"\n"));
    assert!(refused.unwrap_err().contains("forward.python: it is for hooks, and there are none"));
    proxy.steered.reload(&with).unwrap();
    assert_eq!(status(&proxy.ask(&url, "")), "403");
}
