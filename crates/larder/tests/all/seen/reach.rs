//! Access through the forward proxy: the clients that may use it, and the addresses that it reaches for them.

use super::admin::status;
use super::reload::{Steered, base};
use super::stand;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

fn connect(proxy: SocketAddr, to: &str) -> String {
    stand::exchange(proxy, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"))
}

/// A client whose connection stays.
struct Kept(TcpStream);

impl Kept {
    fn to(proxy: SocketAddr) -> Kept {
        let stream = TcpStream::connect(proxy).unwrap();
        stream.set_read_timeout(Some(stand::WITHIN)).unwrap();
        Kept(stream)
    }

    /// The head of the answer to a GET in absolute form.
    fn get(&mut self, url: &str) -> String {
        let host = url.split('/').nth(2).unwrap();
        write!(self.0, "GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") && self.0.read(&mut byte).unwrap_or(0) > 0 {
            answer.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&answer).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap_or("0");
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        head
    }
}

#[test]
fn a_server_of_sites_is_no_forward_proxy_unless_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let site = format!("[[site]]\nhosts = [\"a.example\"]\norigin = \"http://{origin}\"\n");
    let settings = |forward: &str, site: &str| {
        format!("{}[[listen]]\naddress = \"127.0.0.1:0\"\n{forward}{site}", base(folder.path()))
    };
    let steered = Steered::start(folder.path(), &settings("", ""));
    let proxy = steered.server.addresses()[0];
    let elsewhere = format!("http://{origin}/fresh");
    let mut kept = Kept::to(proxy);
    // Asked often enough that the judgement is remembered.
    (0..4).for_each(|_| assert_eq!(status(&kept.get(&elsewhere)), "200"));
    let cases = [("", &*site, "403"), ("forward = true\n", &site, "200"), ("forward = false\n", "", "403")];
    for (forward, site, wanted) in cases {
        steered.reload(&settings(forward, site)).unwrap();
        (0..4).for_each(|_| assert_eq!(status(&kept.get(&elsewhere)), wanted, "{forward:?} {site:?}, kept"));
        assert_eq!(status(&stand::get(proxy, &elsewhere)), wanted, "{forward:?} {site:?}");
        let tunnel = connect(proxy, &origin.to_string());
        assert_eq!(status(&tunnel), wanted, "{forward:?} {site:?}, CONNECT");
    }
    steered.reload(&settings("", &site)).unwrap();
    assert_eq!(status(&stand::get(proxy, "http://a.example/fresh")), "200", "a site is served, however it is asked");
    let refused = stand::get(proxy, &elsewhere);
    assert!(refused.contains("forward-off") && refused.contains("forward = true"), "{refused}");
    let unknown = stand::exchange(proxy, "GET /fresh HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n");
    assert!(status(&unknown) == "404" && !unknown.contains("curl -x"), "{unknown}");
}

/// A server that anybody can connect to, on a port that is free and with the page on another.
struct Open {
    steered: Steered,
    proxy: SocketAddr,
    admin: SocketAddr,
    text: String,
}

/// A port that is free, below those that the kernel gives to others meanwhile.
fn free_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let is_free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    (first..32_000).find(is_free).unwrap()
}

impl Open {
    fn start(folder: &std::path::Path, more: &str) -> Open {
        let store = folder.join("store").display().to_string();
        let text = format!(
            "store = \"{store}\"\nadmin = \"127.0.0.1:0\"\nadmin_token = \"correct horse\"\nworkers = 2\n\
             [[listen]]\naddress = \"0.0.0.0:0\"\n{more}"
        );
        let steered = Steered::start(folder, &text);
        let proxy = ([127, 0, 0, 1], steered.server.addresses()[0].port()).into();
        let admin = steered.server.admin().unwrap();
        Open { steered, proxy, admin, text }
    }
}

fn refused(answer: &str) -> bool {
    status(answer) == "403" && answer.contains("out-of-reach")
}

/// A URL that leads to an address of this machine or its link, however it is written, is refused by GET, CONNECT and
/// Upgrade.
#[test]
fn closed_addresses_are_refused_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let open = Open::start(folder.path(), "[access]\nconnect_ports = []\n[upstream]\nresolver = \"system\"\n");
    let port = stand::origin().port();
    for host in [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "localhost",
        "localhost.",
        "x.localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "[fe80::1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "224.0.0.1",
        "255.255.255.255",
        // Names to us, and addresses to the resolver of the system.
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "017700000001",
    ] {
        let url = format!("http://{host}:{port}/fresh");
        let got = stand::get(open.proxy, &url);
        assert!(refused(&got) && !got.contains("127.0.0.1") && !got.contains("access.clients"), "{url}: {got}");
        let tunnel = connect(open.proxy, &format!("{host}:{port}"));
        assert!(refused(&tunnel), "CONNECT {host}: {tunnel}");
        let upgrade = stand::exchange(
            open.proxy,
            &format!(
                "GET {url} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n"
            ),
        );
        assert!(refused(&upgrade), "Upgrade {url}: {upgrade}");
    }
}

#[test]
fn one_setting_opens_networks_and_a_reload_closes_them() {
    let folder = tempfile::tempdir().unwrap();
    let open = Open::start(folder.path(), "");
    let origin = stand::origin();
    let (url, name) = (format!("http://{origin}/fresh"), format!("http://x.localhost:{}/fresh", origin.port()));
    let mut kept = Kept::to(open.proxy);
    for (more, wanted) in [
        ("", "403"),
        ("[access]\ndestinations = [\"127.0.0.0/8\"]\n", "200"),
        ("[access]\ndestinations = [\"169.254.0.0/16\"]\n", "403"),
    ] {
        open.steered.reload(&(open.text.clone() + more)).unwrap();
        // It is stored by then, and the judgement of its host is remembered; a connection to it is idle.
        for _ in 0..4 {
            assert_eq!(status(&kept.get(&url)), wanted, "{more}");
            assert_eq!(status(&stand::get(open.proxy, &name)), wanted, "{more}");
            let post =
                format!("POST {url} HTTP/1.1\r\nHost: {origin}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            assert_eq!(status(&stand::exchange(open.proxy, &post)), wanted, "{more}");
        }
    }
}

#[test]
fn a_tunnel_of_others_leads_to_https_alone() {
    let folder = tempfile::tempdir().unwrap();
    let opened = "[access]\ndestinations = [\"127.0.0.0/8\"]\n";
    let open = Open::start(folder.path(), "");
    open.steered.reload(&format!("{}{opened}", open.text)).unwrap();
    let origin = stand::origin().to_string();
    let refused = connect(open.proxy, &origin);
    assert!(status(&refused) == "403" && refused.contains("connect-port") && refused.contains("access.connect_ports"));
    open.steered.reload(&format!("{}{opened}connect_ports = []\n", open.text)).unwrap();
    assert_eq!(status(&connect(open.proxy, &origin)), "200");
    open.steered.reload(&format!("{}{opened}connect_ports = [1]\n", open.text)).unwrap();
    assert!(connect(open.proxy, &origin).contains("connect-port"));
}

/// Nobody reaches by the proxy what this server listens on: not from this machine, not by any address of it, not with all
/// networks open. So nothing goes round in tunnels, and the page sees no client of the proxy.
#[test]
fn own_listeners_are_out_of_reach_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let all = "[access]\ndestinations = [\"0.0.0.0/0\", \"::/0\"]\nconnect_ports = []\n";
    let open = Open::start(folder.path(), "[[listen]]\naddress = \"127.0.0.1:0\"\n");
    let local = open.steered.server.addresses()[1];
    let run = open.steered.server.shared().open_run(Default::default(), Default::default()).unwrap();
    let later = free_port();
    let more = format!("[[listen]]\naddress = \"127.0.0.1:{later}\"\n{all}");
    open.steered.reload(&format!("{}{more}", open.text)).unwrap();
    let ports = [open.proxy.port(), open.admin.port(), local.port(), run.proxy.port(), later];
    for proxy in [open.proxy, local, run.proxy] {
        for port in ports {
            for host in ["127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"] {
                let got = stand::get(proxy, &format!("http://{host}:{port}/stats"));
                assert!(refused(&got), "{proxy} to {host}:{port}: {got}");
                let tunnel = connect(proxy, &format!("{host}:{port}"));
                assert!(refused(&tunnel), "{proxy} to {host}:{port}: {tunnel}");
            }
            // One of its addresses is ours, and the other is nobody's.
            let got = stand::get(proxy, &format!("http://localhost:{port}/stats"));
            assert!(refused(&got) || got.contains("detail=refused"), "{proxy} to {port}: {got}");
        }
    }
    // A listener on all addresses has each of this machine's.
    let got = stand::get(local, &format!("http://127.5.5.5:{}/", open.proxy.port()));
    assert!(refused(&got), "{got}");
    // Addresses elsewhere are reached.
    let origin = stand::origin();
    for proxy in [open.proxy, local, run.proxy] {
        assert_eq!(status(&stand::get(proxy, &format!("http://{origin}/none"))), "200", "{proxy}");
    }
    open.steered.server.shared().close_run(&run.id).unwrap();
    stand::wait_for("the run's port is free", || std::net::TcpListener::bind(run.proxy).is_ok());
    let taken = stand::origin_at(run.proxy, |mut stream| stream.write_all(b"HTTP/1.1 204 \r\n\r\n").ok());
    assert_eq!(status(&stand::get(local, &format!("http://{taken}/"))), "204", "a port that is another's now");
}

/// Responses that clients of this machine had stored, and connections that they left idle, are not for clients
/// elsewhere.
#[test]
fn clients_elsewhere_get_nothing_by_way_of_those_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let more = "[[listen]]\naddress = \"127.0.0.1:0\"\n[upstream]\nresolver = \"system\"\n";
    let open = Open::start(folder.path(), more);
    let local = open.steered.server.addresses()[1];
    let port = stand::origin().port();
    for (host, is_kept) in [("127.0.0.1", true), ("localhost", true), ("127.1", false), ("0x7f.1", false)] {
        let url = format!("http://{host}:{port}/fresh/{host}");
        for _ in 0..3 {
            let here = stand::get(local, &url);
            assert_eq!(status(&here), "200", "{url}");
        }
        assert_eq!(stand::get(local, &url).contains("; hit"), is_kept, "{url}");
        for proxy in [open.proxy, local, open.proxy] {
            assert_eq!(refused(&stand::get(proxy, &url)), proxy == open.proxy, "{url} at {proxy}");
        }
        let cached = format!(
            "GET {url} HTTP/1.1\r\nHost: {host}:{port}\r\nCache-Control: only-if-cached\r\nConnection: close\r\n\r\n"
        );
        assert!(matches!(status(&stand::exchange(open.proxy, &cached)), "403" | "504"), "{url}");
    }
}

/// Origins of sites are the operator's own word.
#[test]
fn origins_of_the_configuration_are_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let open = Open::start(
        folder.path(),
        &format!("forward = true\n[[site]]\nhosts = [\"a.example\", \"127.0.0.1\"]\norigin = \"http://{origin}\"\n"),
    );
    assert_eq!(status(&stand::get(open.proxy, "http://a.example/none")), "200");
    // The connection that is idle now is one of the site, and of the same origin.
    let named = stand::origin();
    assert!(refused(&stand::get(open.proxy, &format!("http://localhost:{}/none", origin.port()))));
    assert!(refused(&stand::get(open.proxy, &format!("http://[::1]:{}/none", named.port()))));
}
