//! Requests of the forward proxy that go through a parent: one that the tests play, and a real Squid.

use super::hooks_forward::tls_origin;
use super::schemes::write_pair;
use super::stand;
use larder::config::CertificateFiles;
use larder::tls::server::Certificates;
use larder_wire::date::{Stamp, format_date};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

/// A parent that answers requests in clear text by itself, and connects each tunnel to one address.
pub struct Parent {
    pub address: SocketAddr,
    /// The heads that it got.
    heads: Arc<Mutex<Vec<String>>>,
}

/// The login that the played parent asks for: joe:pear.
const LOGIN: &str = "Proxy-Authorization: Basic am9lOnBlYXI=";

impl Parent {
    pub fn start(tunnels_to: SocketAddr, wants_login: bool) -> Parent {
        Parent::start_at(([127, 0, 0, 1], 0).into(), tunnels_to, wants_login)
    }

    pub fn start_at(address: SocketAddr, tunnels_to: SocketAddr, wants_login: bool) -> Parent {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || pass_on(&stream, &noted, (tunnels_to, wants_login)));
            }
        });
        Parent { address, heads }
    }

    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    fn table(&self, more: &str) -> String {
        format!(
            "[[parent]]\nname = \"office\"\nurl = \"http://{}\"\n{more}[forward]\nparents = [\"office\"]\n",
            self.address
        )
    }
}

fn pass_on(stream: &TcpStream, noted: &Mutex<Vec<String>>, (to, wants_login): (SocketAddr, bool)) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let head = stand::read_head(&mut lines)?;
        noted.lock().unwrap().push(head.clone());
        if wants_login && !head.contains(LOGIN) {
            let refusal =
                "HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic realm=\"office\"\r\nContent-Length: 0\r\n\r\n";
            (&*stream).write_all(refusal.as_bytes()).ok()?;
            continue;
        }
        if head.starts_with("CONNECT refused") {
            (&*stream).write_all(b"HTTP/1.1 403 No\r\nContent-Length: 6\r\n\r\nsecret").ok()?;
            return None;
        }
        if head.starts_with("CONNECT banner") {
            (&*stream).write_all(b"HTTP/1.1 200 Connected\r\n\r\nSSH-2.0-banner\r\n").ok()?;
            return None;
        }
        if head.starts_with("CONNECT ") {
            let far = TcpStream::connect(to).ok()?;
            (&*stream).write_all(b"HTTP/1.1 200 Connected\r\n\r\n").ok()?;
            let (from, mut back) = (stream.try_clone().ok()?, far.try_clone().ok()?);
            std::thread::spawn(move || stand::pass_on(&mut back, &from));
            return stand::pass_on(&mut lines, &far);
        }
        let text = format!("by the parent: {}", head.split(' ').nth(1)?);
        let answer =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        (&*stream).write_all(answer.as_bytes()).ok()?;
    }
}

pub fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A parent may read such a name as an address, or as the name that a rule denies.
#[test]
fn no_parent_is_asked_for_a_name_that_others_read_otherwise() {
    let parent = Parent::start(nowhere(), false);
    let rule = "[[rule]]\nwhen = { host = [\"bad.test\", \"127.0.0.5\"] }\ndo = { deny = true }\n";
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &parent.table(rule));
    let proxy = server.addresses()[0];
    for host in ["127.0.5", "127.0.0.5.", "0x7f.5", "2130706437", "127.0.0.0x5", "bad.test..", "a..b", "bad.test."] {
        let answer = stand::get(proxy, &format!("http://{host}/"));
        let tunnel = stand::exchange(proxy, &format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n"));
        for answer in [answer, tunnel] {
            assert!(["400", "403"].contains(&&answer[9..12]), "{host}: {answer}");
        }
    }
    assert!(parent.heads().is_empty(), "{:?}", parent.heads());
    for host in ["good.test.", "1.example", "192.0.2.6"] {
        assert!(stand::get(proxy, &format!("http://{host}/")).contains("by the parent"), "{host}");
    }
}

/// A dot at the end of a name leads past no rule about hosts, expressions included.
#[test]
fn dots_at_the_end_of_a_name_lead_past_no_rule() {
    let parent = Parent::start(nowhere(), false);
    let rules = "[[rule]]\nwhen = { host_regex = \"^bad[.]test$\" }\ndo = { deny = true }\n\
                 [[rule]]\nwhen = { host = \"worse.test\" }\ndo = { deny = true }\n";
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &parent.table(rules));
    let proxy = server.addresses()[0];
    for host in ["bad.test", "bad.test.", "worse.test.", "worse.test.."] {
        let answer = stand::get(proxy, &format!("http://{host}/"));
        let tunnel = stand::exchange(proxy, &format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n"));
        for answer in [answer, tunnel] {
            assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("detail=rule"), "{host}: {answer}");
        }
    }
    assert!(stand::get(proxy, "http://good.test./").contains("by the parent"));
}

#[test]
fn a_request_in_clear_text_goes_in_absolute_form_and_its_answer_is_stored() {
    let parent = Parent::start(nowhere(), true);
    let login = "user = \"joe\"\npassword = \"pear\"\n";
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &parent.table(login));
    let proxy = server.addresses()[0];
    for round in ["first", "again"] {
        let answer = stand::get(proxy, "http://far.example/a?b");
        assert!(answer.ends_with("by the parent: http://far.example/a?b"), "{round}: {answer}");
        assert_eq!(answer.contains("; hit"), round == "again", "{round}: {answer}");
    }
    let other = stand::get(proxy, "http://far.example:8080/c");
    assert!(other.ends_with("http://far.example:8080/c"), "{other}");
    let heads = parent.heads();
    assert_eq!(heads.len(), 2, "{heads:?}");
    assert!(heads.iter().all(|head| head.contains(LOGIN) && head.contains("\r\nHost: far.example")), "{heads:?}");
    // The client's own login for a proxy is Larder's business, and none of the parent's.
    let request = "GET http://far.example/own HTTP/1.1\r\nHost: far.example\r\nProxy-Authorization: Basic eDp5\r\nConnection: close\r\n\r\n";
    assert!(stand::exchange(proxy, request).contains("by the parent"));
    assert!(!parent.heads().iter().any(|head| head.contains("eDp5")), "{:?}", parent.heads());
    let shown = stand::ask(server.admin().unwrap(), "/config");
    assert!(!shown.contains("pear"), "the password is shown nowhere");
}

#[test]
fn what_a_parent_refuses_is_no_answer_of_the_origin() {
    let parent = Parent::start(nowhere(), true);
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &parent.table(""));
    let proxy = server.addresses()[0];
    for _ in 0..2 {
        let answer = stand::get(proxy, "http://far.example/a");
        assert!(answer.starts_with("HTTP/1.1 502") && !answer.contains("Proxy-Authenticate"), "{answer}");
        assert!(answer.contains("office") && answer.contains("wants a login") && !answer.contains("; hit"), "{answer}");
    }
    let parent = Parent::start(nowhere(), false);
    let server = stand::server(tempfile::tempdir().unwrap().path(), &parent.table(""));
    let refused = stand::exchange(
        server.addresses()[0],
        "CONNECT refused.example:443 HTTP/1.1\r\nHost: refused.example:443\r\n\r\n",
    );
    assert!(refused.starts_with("HTTP/1.1 502") && !refused.contains("secret"), "{refused}");
    // No parent, and no way past it.
    let gone =
        format!("[[parent]]\nname = \"gone\"\nurl = \"http://{}\"\n[forward]\nparents = [\"gone\"]\n", nowhere());
    let server = stand::server(tempfile::tempdir().unwrap().path(), &gone);
    let answer = stand::get(server.addresses()[0], "http://far.example/a");
    assert!(answer.starts_with("HTTP/1.1 50") && answer.contains("parent gone"), "{answer}");
}

/// A parent over TLS: its certificate is verified, its login goes inside, and TLS to an origin within TLS to the parent.
#[test]
fn a_parent_is_spoken_to_over_tls() {
    let (folder, certificates) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| {
        let folder = certificates.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let (far, proxy_folder) = (at("far"), at("proxy"));
    let (origin, _) = tls_origin(&far, "far.example");
    let inner = Parent::start(origin, true);
    let outer = tls_before(&proxy_folder, inner.address);
    let text = |host: &str, roots: &[&Path]| {
        let roots: Vec<_> = roots.iter().map(|folder| folder.join("chain.pem")).collect();
        format!(
            "[[parent]]\nname = \"office\"\nurl = \"https://{host}:{}\"\nuser = \"joe\"\npassword = \"pear\"\n\
             [forward]\nparents = [\"office\"]\n[upstream]\nextra_roots = {roots:?}\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\nmirror = \"all\"\nforward = true\n",
            outer.port()
        )
    };
    let server = stand::server(folder.path(), &text("localhost", &[&far, &proxy_folder]));
    let proxy = server.addresses()[0];
    for round in ["first", "again"] {
        let answer = stand::get(proxy, &format!("http://far.example/{round}"));
        assert!(answer.ends_with(&format!("by the parent: http://far.example/{round}")), "{answer}");
    }
    let ask = |path: &str| {
        stand::exchange(proxy, &format!("GET {path} HTTP/1.1\r\nHost: {proxy}\r\nConnection: close\r\n\r\n"))
    };
    assert!(ask("/https://far.example/x").ends_with("far.example /x"));
    let misnamed = ask("/https://near.example/x");
    assert!(misnamed.starts_with("HTTP/1.1 502") && misnamed.contains("certificate"), "{misnamed}");
    let closed = stand::exchange(proxy, "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example\r\n\r\n\0");
    assert!(closed.starts_with("HTTP/1.1 200"), "{closed}");
    assert!(inner.heads().iter().all(|head| head.contains(LOGIN)), "{:?}", inner.heads());
    let asked = inner.heads().len();
    // Nobody gets the login who can't prove to be the parent: by an unknown authority, or by another name.
    // Where the parent stands is none of the client's business.
    for (host, roots, word) in [
        ("localhost", &[&*far][..], "certificate-bad-signature"),
        ("127.0.0.1", &[&*far, &*proxy_folder][..], "certificate-wrong-name"),
    ] {
        let server = stand::server(tempfile::tempdir().unwrap().path(), &text(host, roots));
        let answer = stand::get(server.addresses()[0], "http://far.example/secret");
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("parent office"), "{host}: {answer}");
        assert!(answer.contains(word) && !answer.contains(host), "{host}: {answer}");
    }
    assert_eq!(inner.heads().len(), asked);
}

/// TLS for `localhost` before a proxy in clear text.
fn tls_before(folder: &Path, to: SocketAddr) -> SocketAddr {
    write_pair(folder, "localhost");
    let files = CertificateFiles { chain: folder.join("chain.pem"), key: folder.join("key.pem") };
    let config = std::sync::Arc::new(Certificates::load(&[files]).unwrap()).config(None, false).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&config));
                tokio::spawn(async move {
                    let mut outer = acceptor.accept(stream).await.ok()?;
                    let mut inner = tokio::net::TcpStream::connect(to).await.ok()?;
                    tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok()
                });
            }
        });
    });
    address
}

#[test]
fn the_second_parent_is_asked_where_the_first_is_away_and_direct_hosts_without_one() {
    let parent = Parent::start(nowhere(), false);
    let text = format!(
        "[[parent]]\nname = \"gone\"\nurl = \"http://{}\"\n[[parent]]\nname = \"office\"\nurl = \"http://{}\"\n\
         [forward]\nparents = [\"gone\", \"office\"]\ndirect = [\"*.corp.example\"]\n",
        nowhere(),
        parent.address
    );
    let folder = tempfile::tempdir().unwrap();
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    assert!(stand::get(proxy, "http://far.example/a").contains("by the parent"));
    let origin = stand::origin();
    let direct = stand::get(proxy, &format!("http://{origin}/fresh"));
    assert!(direct.ends_with("/fresh") && !direct.contains("by the parent"), "{direct}");
    assert_eq!(parent.heads().len(), 1, "{:?}", parent.heads());
}

/// By CARP each URL has a parent, and those of one that is away go to the next one in the URL's own order.
#[test]
fn each_url_has_its_parent_by_carp() {
    let (parents, folder) = ([0; 2].map(|_| Parent::start(nowhere(), false)), tempfile::tempdir().unwrap());
    let addresses = [parents[0].address, nowhere(), parents[1].address];
    let names = ["one", "gone", "three"];
    let tables: String = names
        .iter()
        .zip(addresses)
        .map(|(name, address)| format!("[[parent]]\nname = \"{name}\"\nurl = \"http://{address}\"\n"))
        .collect();
    let text = format!("{tables}[forward]\nparents = {names:?}\nparents_by = \"carp\"\n");
    let server = stand::server(folder.path(), &text);
    let carp = larder_balance::Carp::new(&names.map(|name| (name, 1)));
    let (mut wanted, mut first) = ([0; 2], [0; 3]);
    for number in 0..30 {
        let url = format!("http://far{}.example/{number}", number % 4);
        assert!(stand::get(server.addresses()[0], &url).ends_with(&format!("by the parent: {url}")), "{url}");
        let order = carp.order(&url);
        first[order[0]] += 1;
        let place = order.into_iter().find(|place| *place != 1).unwrap();
        wanted[place / 2] += 1;
        let asked = parents[place / 2].heads();
        assert!(asked.last().unwrap().starts_with(&format!("GET {url} ")), "{url}: {asked:?}");
    }
    assert_eq!(parents.each_ref().map(|parent| parent.heads().len()), wanted);
    assert!(first.iter().all(|count| *count > 0), "all have some: {first:?}");
}

#[test]
fn tls_goes_through_a_tunnel_and_the_origin_s_certificate_is_verified() {
    let (folder, certificates) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (origin, _) = tls_origin(certificates.path(), "far.example");
    let parent = Parent::start(origin, true);
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\nmirror = \"all\"\nforward = true\n[upstream]\nextra_roots = [{:?}]\n",
        parent.table("user = \"joe\"\npassword = \"pear\"\n"),
        certificates.path().join("chain.pem")
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let ask = |path: &str| {
        stand::exchange(proxy, &format!("GET {path} HTTP/1.1\r\nHost: {proxy}\r\nConnection: close\r\n\r\n"))
    };
    for round in ["first", "again"] {
        let answer = ask("/https://far.example/x");
        assert!(answer.ends_with("far.example /x"), "{round}: {answer}");
        assert_eq!(answer.contains("; hit"), round == "again", "{round}: {answer}");
    }
    assert!(ask("/https://far.example/y").ends_with("far.example /y"));
    let misnamed = ask("/https://near.example/x");
    assert!(misnamed.starts_with("HTTP/1.1 502") && misnamed.contains("certificate"), "{misnamed}");
    let heads = parent.heads();
    assert!(heads.iter().all(|head| head.starts_with("CONNECT ") && head.contains(LOGIN)), "{heads:?}");
    // A tunnel that stays closed.
    let echo = stand::origin_that(|stream| {
        let mut byte = [0];
        (&*stream).read_exact(&mut byte).ok()?;
        (&*stream).write_all(&[byte[0] + 1]).ok()
    });
    let parent = Parent::start(echo, false);
    let server = stand::server(
        tempfile::tempdir().unwrap().path(),
        &format!("{}[access]\nconnect_ports = []\n", parent.table("")),
    );
    let answer =
        stand::exchange(server.addresses()[0], "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\na");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nb"), "{answer}");
    assert!(parent.heads()[0].starts_with("CONNECT far.example:443 HTTP/1.1\r\n"));
    // A server that speaks first has greeted together with the parent's answer.
    let greeted =
        stand::exchange(server.addresses()[0], "CONNECT banner.example:22 HTTP/1.1\r\nHost: banner.example:22\r\n\r\n");
    assert!(greeted.starts_with("HTTP/1.1 200") && greeted.ends_with("\r\n\r\nSSH-2.0-banner\r\n"), "{greeted}");
}

pub struct Squid {
    child: Child,
    pub address: SocketAddr,
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Squid to which `far.example` is this machine.
pub fn squid(folder: &Path, more: &str) -> Option<Squid> {
    let mut program = stand::program("squid")?;
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let address = nowhere();
    let dir = folder.display();
    std::fs::write(folder.join("hosts"), "127.0.0.1 far.example\n").unwrap();
    let text = format!(
        "http_port {address}\nhttp_access allow all\nhosts_file {dir}/hosts\ncache_mem 8 MB\naccess_log stdio:{dir}/access.log\n\
         cache_log {dir}/cache.log\npid_filename {dir}/pid\ncoredump_dir {dir}\nvisible_hostname parent\ndns_nameservers 127.0.0.1\n\
         pinger_enable off\nshutdown_lifetime 0 seconds\n{more}"
    );
    std::fs::write(folder.join("squid.conf"), text).unwrap();
    // Names of its shared memory hang on the service name, which another Squid of this machine may have.
    let child = program.args(["-N", "-n", &format!("test{}", address.port()), "-f"]).arg(folder.join("squid.conf"));
    let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let squid = Squid { child, address };
    stand::wait_for("Squid", || TcpStream::connect(address).is_ok());
    Some(squid)
}

/// An origin whose answers have a date, which Squid wants.
pub fn dated(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let first = stand::read_request(&mut lines)?;
        let path = first.split(' ').nth(1)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
        let date = String::from_utf8_lossy(&format_date(Stamp(now))).into_owned();
        let length = path.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nDate: {date}\r\nCache-Control: max-age=600\r\nContent-Length: {length}\r\n\r\n{path}"
        );
        (&*stream).write_all(head.as_bytes()).ok()?;
    }
}

#[test]
fn a_squid_is_a_parent_and_a_child() {
    let (folder, of_squid) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(parent) = squid(of_squid.path(), "") else { return };
    let port = stand::origin_that(dated).port();
    let text = format!(
        "[[parent]]\nname = \"squid\"\nurl = \"http://{}\"\n[forward]\nparents = [\"squid\"]\n",
        parent.address
    );
    let server = stand::server(folder.path(), &text);
    let proxy = server.addresses()[0];
    let url = format!("http://far.example:{port}/fresh-1");
    let log = |folder: &Path| std::fs::read_to_string(folder.join("access.log")).unwrap_or_default();
    let straight = stand::get(parent.address, &url);
    assert!(straight.ends_with("/fresh-1"), "{straight}");
    for round in ["a hit of Squid's", "a hit of Larder's"] {
        let answer = stand::get(proxy, &url);
        assert_eq!(stand::body(&answer), stand::body(&straight), "{round}: {answer}");
    }
    let asked = |log: &str| log.lines().filter(|line| line.contains("GET")).count();
    stand::wait_for("Squid's log", || asked(&log(of_squid.path())) >= 2);
    let of_parent = log(of_squid.path());
    assert!(of_parent.contains("_HIT/200") && asked(&of_parent) == 2, "{of_parent}");
    // The other way round: Squid asks Larder, and nobody else.
    let (folder, of_squid) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = stand::server(folder.path(), "");
    let larder = server.addresses()[0];
    let more =
        format!("cache_peer 127.0.0.1 parent {} 0 no-query no-digest default\nnever_direct allow all\n", larder.port());
    let Some(child) = squid(of_squid.path(), &more) else { return };
    let url = format!("http://127.0.0.1:{port}/fresh-2");
    let stored = stand::get(larder, &url);
    let answer = stand::get(child.address, &url);
    assert!(answer.contains("Cache-Status: larder; hit") && stand::body(&answer) == stand::body(&stored), "{answer}");
    stand::wait_for("Squid's log", || log(of_squid.path()).contains("_PARENT/"));
}
