//! Ways through parents that fail, and what is done about them.

use super::parents::{Parent, nowhere};
use super::stand;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

/// Refuses each request with this status.
fn refuses(status: u16) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stand::read_request(&mut BufReader::new(&stream));
            let head = format!("HTTP/1.1 {status} No\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret");
            let _ = (&stream).write_all(head.as_bytes());
        }
    });
    address
}

/// A server with these parents, in this order, and `more` behind them.
pub fn tables(parents: &[(&str, SocketAddr)], more: &str) -> String {
    let tables: String = parents
        .iter()
        .map(|(name, address)| format!("[[parent]]\nname = \"{name}\"\nurl = \"http://{address}\"\n"))
        .collect();
    let names: Vec<&str> = parents.iter().map(|(name, _)| *name).collect();
    format!("{tables}[forward]\nparents = {names:?}\n{more}")
}

/// A CONNECT for this authority, and a byte through the tunnel.
pub fn connect(proxy: SocketAddr, authority: &str) -> String {
    stand::exchange(proxy, &format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\na"))
}

/// Answers a byte with the next one.
pub fn echo(stream: &TcpStream) -> Option<()> {
    let mut byte = [0];
    let mut stream = stream;
    stream.read_exact(&mut byte).ok()?;
    stream.write_all(&[byte[0] + 1]).ok()
}

/// The log line of a format of one's own about the first request with this text.
fn logged(path: &Path, text: &str) -> String {
    let found = || std::fs::read_to_string(path).ok()?.lines().find(|line| line.contains(text)).map(str::to_owned);
    stand::wait_for(text, || found().is_some());
    found().unwrap()
}

const PORTS: &str = "[access]\nconnect_ports = []\n";

#[test]
fn the_next_parent_is_asked_where_one_refuses_a_tunnel() {
    let good = Parent::start(stand::origin_that(echo), false);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs_up = stand::origin_that(|_| None);
    let nonsense = stand::origin_that(|stream| {
        stand::read_request(&mut BufReader::new(stream))?;
        (&*stream).write_all(b"SSH-2.0-nonsense\r\n\r\n").ok()
    });
    for (what, first) in [
        ("403", refuses(403)),
        ("503", refuses(503)),
        ("302", refuses(302)),
        ("hangs up", hangs_up),
        ("nonsense", nonsense),
        ("silent", silent.local_addr().unwrap()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = tables(&[("first", first), ("good", good.address)], PORTS) + "[timeouts]\nconnect = \"2s\"\n";
        let log = folder.path().join("log");
        let log_text = format!("[log]\nto = {log:?}\nformat = \"{{url}} {{way}} {{squid_from}}\"\n");
        let server = stand::server(folder.path(), &(text + &log_text));
        let answer = connect(server.addresses()[0], "far.example:443");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nb"), "{what}: {answer}");
        let line = logged(&log, "far.example");
        assert_eq!(line, "far.example:443 parent good FIRSTUP_PARENT/127.0.0.1", "{what}");
        let admin = server.admin().unwrap();
        let metrics = stand::ask(admin, "/metrics");
        // One that is silent is asked about itself meanwhile, and is left out.
        let up = "larder_parent_up{parent=\"first\"} 1";
        for sample in [
            "larder_parent_connections_total{parent=\"first\",result=\"refused\"} 1",
            "larder_parent_connections_total{parent=\"good\",result=\"opened\"} 1",
            if what == "silent" { "larder_parent_up" } else { up },
        ] {
            assert!(metrics.contains(sample), "{what}: {sample}\n{metrics}");
        }
    }
}

#[test]
fn a_login_that_is_wanted_is_named_and_no_other_parent_is_asked() {
    let (wants, other) = (Parent::start(nowhere(), true), Parent::start(nowhere(), false));
    let folder = tempfile::tempdir().unwrap();
    let text = tables(&[("office", wants.address), ("other", other.address)], PORTS);
    let server = stand::server(folder.path(), &text);
    let answer = connect(server.addresses()[0], "far.example:443");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("wants a login"), "{answer}");
    assert!(!answer.contains("Proxy-Authenticate"), "{answer}");
    assert_eq!(other.heads(), Vec::<String>::new());
}

#[test]
fn where_all_refuse_the_last_one_is_named_and_nothing_goes_past_them() {
    let origin = stand::origin_that(echo);
    let folder = tempfile::tempdir().unwrap();
    let text = tables(&[("one", refuses(403)), ("two", refuses(502))], PORTS);
    let server = stand::server(folder.path(), &text);
    // An address that a direct request would reach.
    let answer = connect(server.addresses()[0], &format!("127.0.0.1.example:{}", origin.port()));
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("two answered 502"), "{answer}");
    assert!(!answer.contains("secret"), "{answer}");
}

/// With `direct` as the last name the origin is asked where no parent leads to it, and addresses are judged as for any direct request.
#[test]
fn direct_is_the_last_way_where_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let head = tables(&[("gone", nowhere())], "").replace("[\"gone\"]", "[\"gone\", \"direct\"]");
    let text = format!(
        "{head}[log]\nto = {log:?}\nformat = \"{{url}} {{way}} {{squid_from}}\"\n[upstream]\nresolver = \"system\"\n"
    );
    let server = stand::server(folder.path(), &text);
    let (proxy, origin) = (server.addresses()[0], stand::origin());
    // No form of this machine's address, and yet an address of it.
    let url = format!("http://127.1:{}/fresh", origin.port());
    let answer = stand::get(proxy, &url);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("/fresh"), "{answer}");
    let line = logged(&log, "/fresh");
    assert_eq!(line, format!("{url} direct HIER_DIRECT/127.1"));
}

/// A parent that accepts connections and requests, and says nothing: after a question about itself, which it does not answer either, requests
/// that may be repeated go another way, and it is left out.
#[test]
fn a_parent_that_accepts_and_hangs_is_left_out() {
    let good = Parent::start(stand::origin_that(echo), false);
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let text = tables(&[("hangs", hangs.local_addr().unwrap()), ("good", good.address)], PORTS);
    let more = format!("[timeouts]\nconnect = \"1s\"\n[log]\nto = {log:?}\nformat = \"{{url}} {{way}}\"\n");
    let server = stand::server(folder.path(), &(text + &more));
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    let answer = stand::get(proxy, "http://far.example/first");
    assert!(answer.contains("by the parent"), "{answer}");
    for sample in ["larder_parent_up{parent=\"hangs\"} 0", "larder_parent_up{parent=\"good\"} 1"] {
        assert!(stand::ask(admin, "/metrics").contains(sample), "{sample}");
    }
    // It is not tried now, for requests and for tunnels.
    assert!(stand::get(proxy, "http://far.example/second").contains("by the parent"));
    assert!(connect(proxy, "far.example:443").ends_with("\r\n\r\nb"));
    assert!(stand::ask(admin, "/metrics").contains("{parent=\"hangs\",result=\"left-out\"}"));
    // A POST is sent to nobody a second time.
    let alone = stand::server(
        tempfile::tempdir().unwrap().path(),
        &(tables(&[("hangs", hangs.local_addr().unwrap())], "")
            + "[timeouts]\nconnect = \"1s\"\nfirst_byte = \"3s\"\n"),
    );
    let post =
        "POST http://far.example/p HTTP/1.1\r\nHost: far.example\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let answer = stand::exchange(alone.addresses()[0], post);
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    let line = logged(&log, "far.example:443");
    assert_eq!(line, "far.example:443 parent good");
}

/// An origin takes its time, and the parent that waits for it answers a question about itself: nothing is sent twice, nobody is left out.
#[test]
fn a_parent_that_waits_for_a_slow_origin_is_no_parent_that_hangs() {
    static REQUESTS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let slow = stand::origin_that(|stream| {
        let first = stand::read_request(&mut BufReader::new(stream))?;
        let is_slow = !first.starts_with("OPTIONS");
        REQUESTS.lock().unwrap().push(first);
        if is_slow {
            // Until it was asked about itself, and a while longer than requests look.
            stand::wait_for("a question", || REQUESTS.lock().unwrap().iter().any(|it| it.starts_with("OPTIONS * ")));
            std::thread::sleep(std::time::Duration::from_millis(1_200));
        }
        (&*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nslow").ok()
    });
    let other = Parent::start(nowhere(), false);
    let folder = tempfile::tempdir().unwrap();
    let text = tables(&[("slow", slow), ("other", other.address)], "[timeouts]\nconnect = \"1s\"\n");
    let server = stand::server(folder.path(), &text);
    let answer = stand::get(server.addresses()[0], "http://far.example/a");
    assert!(answer.ends_with("slow"), "{answer}");
    let requests = REQUESTS.lock().unwrap().clone();
    assert_eq!(requests.iter().filter(|first| first.starts_with("GET ")).count(), 1, "{requests:?}");
    assert_eq!(other.heads(), Vec::<String>::new());
    assert!(stand::ask(server.admin().unwrap(), "/metrics").contains("larder_parent_up{parent=\"slow\"} 1"));
}

/// A parent that can't be connected to is left out after three failures, and all are used where none is left.
#[test]
fn a_parent_that_is_away_is_left_out_and_used_all_the_same_where_all_are_dead() {
    let good = Parent::start(nowhere(), false);
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &tables(&[("gone", nowhere()), ("good", good.address)], ""));
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    for host in 0..6 {
        let answer = stand::get(proxy, &format!("http://far{host}.example/none"));
        assert!(answer.contains("by the parent"), "{answer}");
    }
    let metrics = stand::ask(admin, "/metrics");
    for sample in [
        "larder_parent_connections_total{parent=\"gone\",result=\"failed\"} 3",
        "larder_parent_connections_total{parent=\"gone\",result=\"left-out\"} 3",
        "larder_parent_connections_total{parent=\"good\",result=\"opened\"} 6",
        "larder_parent_up{parent=\"gone\"} 0",
        "larder_parent_up{parent=\"good\"} 1",
    ] {
        assert!(metrics.contains(sample), "{sample}\n{metrics}");
    }
    let view = stand::ask(admin, "/neighbours");
    let view: serde_json::Value = serde_json::from_str(stand::body(&view)).unwrap();
    assert_eq!(view["parents"][0]["state"], "left-out", "{view}");
    assert_eq!(view["parents"][1]["state"], "up", "{view}");
    let requests = stand::ask(admin, "/requests?host=far5.example");
    let requests: serde_json::Value = serde_json::from_str(stand::body(&requests)).unwrap();
    let id = requests["requests"][0]["id"].as_str().unwrap().to_owned();
    let told = stand::ask(admin, &format!("/requests/{id}"));
    assert!(told.contains("parent good") && told.contains("left out, because they had failed of late: gone"), "{told}");
    // The only parent is dead, and then it is there again: the next request goes through it, whatever was thought of it.
    let address = nowhere();
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &tables(&[("only", address)], ""));
    let proxy = server.addresses()[0];
    for host in 0..5 {
        let answer = stand::get(proxy, &format!("http://far{host}.example/none"));
        assert!(
            answer.starts_with("HTTP/1.1 502") && answer.contains("no way on to the origin: the parent only"),
            "{answer}"
        );
        assert!(!answer.contains(&address.to_string()), "the address of a parent is none of a client's: {answer}");
    }
    let _back = Parent::start_at(address, nowhere(), false);
    let answer = stand::get(proxy, "http://far.example/none");
    assert!(answer.contains("by the parent"), "{answer}");
}

#[test]
fn a_parent_that_is_this_larder_itself_is_refused() {
    let (folder, address) = (tempfile::tempdir().unwrap(), nowhere());
    let text = tables(&[("self", address)], &format!("[[listen]]\naddress = \"{address}\"\n"));
    let server = stand::server(folder.path(), &text);
    let answer = stand::get(server.addresses()[0], "http://far.example/a");
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("self is this Larder itself"), "{answer}");
}

/// Rules choose parents: by host, by client and for tunnels; what is left out is not tried, and where nothing is left nothing is asked.
#[test]
fn rules_choose_parents() {
    let (one, two) = (Parent::start(stand::origin_that(echo), false), Parent::start(stand::origin_that(echo), false));
    let (folder, origin) = (tempfile::tempdir().unwrap(), stand::origin());
    let rules = format!(
        "{PORTS}[upstream]\nresolver = \"system\"\n\
         [[rule]]\nwhen = {{ host = \"two.example\" }}\ndo = {{ parents = [\"two\"] }}\n\
         [[rule]]\nwhen = {{ host = \"127.1\" }}\ndo = {{ parents = \"direct\" }}\n\
         [[rule]]\nname = \"no one\"\nwhen = {{ host = \"other.example\" }}\ndo = {{ parents_except = \"one\" }}\n\
         [[rule]]\nwhen = {{ host = \"closed.example\" }}\ndo = {{ parents_except = [\"one\", \"direct\", \"two\"] }}\n"
    );
    let server = stand::server(folder.path(), &tables(&[("one", one.address), ("two", two.address)], &rules));
    let (proxy, admin) = (server.addresses()[0], server.admin().unwrap());
    let heads = || (one.heads().len(), two.heads().len());
    for (url, wanted) in [
        ("http://far.example/a", (1, 0)),
        ("http://two.example/a", (1, 1)),
        ("http://other.example/a", (1, 2)),
        ("http://far.example/b", (2, 2)),
    ] {
        assert!(stand::get(proxy, url).ends_with(url), "{url}");
        assert_eq!(heads(), wanted, "{url}");
    }
    for (authority, wanted) in [("far.example:443", (3, 2)), ("two.example:443", (3, 3)), ("other.example:443", (3, 4))]
    {
        assert!(connect(proxy, authority).ends_with("\r\n\r\nb"), "{authority}");
        assert_eq!(heads(), wanted, "{authority}");
    }
    let direct = stand::get(proxy, &format!("http://127.1:{}/fresh", origin.port()));
    assert!(direct.ends_with("/fresh"), "{direct}");
    for answer in [stand::get(proxy, "http://closed.example/a"), connect(proxy, "closed.example:443")] {
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("rules leave no parent"), "{answer}");
    }
    assert_eq!(heads(), (3, 4));
    let told = stand::ask(admin, "/explain?url=http://other.example/x");
    assert!(told.contains("no one (test:") && told.contains("without parent one"), "{told}");
    assert!(told.contains("two would be tried"), "{told}");
    let told = stand::ask(admin, "/explain?url=http://closed.example/x");
    assert!(told.contains("rules leave no parent"), "{told}");
    let told = stand::ask(admin, "/explain?url=https://two.example/x");
    assert!(told.contains("two would be tried"), "{told}");
}

/// `larder run` goes through the proxy that the environment names, with its login, and shows that login nowhere.
#[test]
fn a_run_goes_through_the_proxy_of_the_environment() {
    let Some(_) = stand::program("curl") else { return };
    let (parent, folder) = (Parent::start(nowhere(), true), tempfile::tempdir().unwrap());
    let run_to = |url: &str, variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_larder"));
        for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(name).env_remove(name.to_ascii_uppercase());
        }
        for name in ["XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).env("HOME", folder.path()).current_dir(folder.path());
        let output = command.args(["run", "--", "curl", "-sS", "--noproxy", "", url]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let run = |path: &str, variables: &[(&str, &str)]| run_to(&format!("http://far.example/{path}"), variables);
    let url = format!("http://joe:pear@{}/", parent.address);
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy"] {
        let (status, out, said) = run(name, &[(name, &url)]);
        assert_eq!((status, out), (Some(0), format!("by the parent: http://far.example/{name}")), "{said}");
        assert!(!said.contains("pear"), "{said}");
    }
    assert_eq!(parent.heads().len(), 3);
    let (status, out, said) = run("wrong", &[("https_proxy", "ftp://joe:pear@proxy.example")]);
    assert!(status != Some(0) && said.contains("https_proxy") && !said.contains("pear"), "{status:?} {out} {said}");
    // A host that the environment excepts is asked itself.
    let origin = stand::origin_that(|stream| {
        stand::read_request(&mut BufReader::new(stream))?;
        (&*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nitself").ok()
    });
    let variables = [("http_proxy", &url[..]), ("no_proxy", "127.0.0.1")];
    let (_, out, said) = run_to(&format!("http://{origin}/excepted"), &variables);
    assert_eq!(out, "itself", "{said}");
    assert_eq!(parent.heads().len(), 3);
}

/// A reload may give a name and a place to another proxy: connections that are left from the first one carry nothing for it.
#[test]
fn after_a_reload_nothing_goes_over_connections_to_the_parent_before() {
    let (before, after) = (Parent::start(nowhere(), false), Parent::start(nowhere(), false));
    let folder = tempfile::tempdir().unwrap();
    let text = |parent: &Parent| {
        let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\n";
        format!("{}{listen}{}", super::reload::base(folder.path()), tables(&[("office", parent.address)], ""))
    };
    // One worker, so that the same one has the connection and the next request.
    let one_worker = |text: String| text.replace("workers = 2", "workers = 1");
    let steered = super::reload::Steered::start(folder.path(), &one_worker(text(&before)));
    let proxy = steered.server.addresses()[0];
    for path in ["a", "b"] {
        assert!(stand::get(proxy, &format!("http://far.example/{path}")).contains("by the parent"));
    }
    assert_eq!((before.heads().len(), after.heads().len()), (2, 0));
    steered.reload(&one_worker(text(&after))).unwrap();
    assert!(stand::get(proxy, "http://far.example/c").contains("by the parent"));
    assert_eq!((before.heads().len(), after.heads().len()), (2, 1));
}
