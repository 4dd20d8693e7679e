//! Neighbouring caches that ask by ICP and HTCP what is stored here: by hand, and a real Squid as a sibling.

use super::stand;
use larder_wire::htcp::{self, Envelope, Specifier};
use larder_wire::icp::{self, Message, Opcode};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

/// A port of UDP below those that the system gives to sockets by itself, and given once.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 1_000) as u16 * 10;
    let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 5_000);
    ports.take(5_000).find(|port| UdpSocket::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

struct Neighbour {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Neighbour {
    fn of(port: u16) -> Neighbour {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(stand::WITHIN)).unwrap();
        Neighbour { socket, to: ([127, 0, 0, 1], port).into() }
    }

    fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.to).unwrap();
    }

    fn answer(&self) -> Vec<u8> {
        let mut buffer = vec![0; icp::DATAGRAM_BYTES_MAX];
        let (len, from) = self.socket.recv_from(&mut buffer).expect("no answer came");
        assert_eq!(from, self.to);
        buffer.truncate(len);
        buffer
    }

    fn icp(&self, number: u32, url: &str) -> Opcode {
        let mut query = Vec::new();
        assert!(Message { opcode: Opcode::Query, number, url }.write_to(&mut query));
        self.send(&query);
        let answer = self.answer();
        let answer = icp::message(&answer).expect("the answer is no ICP");
        assert_eq!((answer.number, answer.url), (number, url));
        answer.opcode
    }

    fn htcp(&self, message: htcp::Message<'_>) -> String {
        let mut datagram = Vec::new();
        assert!(Envelope { transaction: 99, wants_answer: true, message }.write_to(&mut datagram));
        self.send(&datagram);
        let answer = self.answer();
        let answer = htcp::envelope(&answer).expect("the answer is no HTCP");
        assert_eq!(answer.transaction, 99);
        match answer.message {
            htcp::Message::Found { response, .. } => format!("found {}", String::from_utf8_lossy(response).trim()),
            other => format!("{other:?}"),
        }
    }
}

fn specifier<'a>(url: &'a str, fields: &'a [u8]) -> Specifier<'a> {
    Specifier { method: "GET", url, version: "1.1", fields }
}

#[test]
fn a_neighbour_is_told_of_fresh_responses_alone() {
    let (folder, icp_port, htcp_port) = (tempfile::tempdir().unwrap(), free_port(), free_port());
    let text = format!(
        "[access]\npurge = [\"127.0.0.1\"]\n[neighbours]\nicp = \"127.0.0.1:{icp_port}\"\nhtcp = \"127.0.0.1:{htcp_port}\"\nfrom = [\"127.0.0.1\"]\n"
    );
    let server = stand::server(folder.path(), &text);
    let (proxy, origin) = (server.addresses()[0], stand::origin());
    let (fresh, none, unknown) =
        (format!("http://{origin}/fresh"), format!("http://{origin}/none"), format!("http://{origin}/fresh-2"));
    for url in [&fresh, &none] {
        stand::get(proxy, url);
    }
    let icp = Neighbour::of(icp_port);
    assert_eq!(icp.icp(1, &fresh), Opcode::Hit);
    assert_eq!(icp.icp(2, &none), Opcode::Miss);
    assert_eq!(icp.icp(3, &unknown), Opcode::Miss);
    assert_eq!(icp.icp(4, "gopher://a/"), Opcode::Err);
    // A datagram that is no message gets no answer, and the next one does.
    icp.send(b"nonsense");
    icp.send(&[]);
    icp.send(&[0xff; 20_000]);
    assert_eq!(icp.icp(5, &fresh), Opcode::Hit);
    let htcp = Neighbour::of(htcp_port);
    assert_eq!(htcp.htcp(htcp::Message::Test(specifier(&unknown, b""))), "NotFound");
    let found = htcp.htcp(htcp::Message::Test(specifier(&fresh, b"Accept: */*\r\n")));
    assert!(found.starts_with("found Age: "), "{found}");
    // The fields count: this client wants it validated.
    let anew = htcp::Message::Test(specifier(&fresh, b"Cache-Control: no-cache\r\n"));
    assert_eq!(htcp.htcp(anew), "NotFound");
    assert_eq!(htcp.htcp(htcp::Message::Clear(specifier(&fresh, b""))), "Cleared(true)");
    assert_eq!(htcp.htcp(htcp::Message::Clear(specifier(&fresh, b""))), "Cleared(false)");
    assert_eq!(icp.icp(6, &fresh), Opcode::Miss);
    let metrics = stand::ask(server.admin().unwrap(), "/metrics");
    for line in ["{answer=\"hit\"} 3", "{answer=\"cleared\"} 2", "{answer=\"stranger\"} 0"] {
        assert!(metrics.contains(&format!("larder_neighbour_questions_total{line}")), "{line} in {metrics}");
    }
}

#[test]
fn others_get_no_answer_and_may_not_purge() {
    let (folder, icp_port, htcp_port) = (tempfile::tempdir().unwrap(), free_port(), free_port());
    let text = format!(
        "[neighbours]\nicp = \"127.0.0.1:{icp_port}\"\nhtcp = \"127.0.0.1:{htcp_port}\"\nfrom = [\"127.0.0.1\"]\n"
    );
    let server = stand::server(folder.path(), &text);
    let (proxy, origin) = (server.addresses()[0], stand::origin());
    let fresh = format!("http://{origin}/fresh");
    stand::get(proxy, &fresh);
    // Without `access.purge` an order to forget is not obeyed, and not answered.
    let htcp = Neighbour::of(htcp_port);
    let mut clear = Vec::new();
    let message = htcp::Message::Clear(specifier(&fresh, b""));
    assert!(Envelope { transaction: 1, wants_answer: true, message }.write_to(&mut clear));
    htcp.send(&clear);
    assert!(htcp.htcp(htcp::Message::Test(specifier(&fresh, b""))).starts_with("found"));
    let stranger = tempfile::tempdir().unwrap();
    let port = free_port();
    let text = format!("[neighbours]\nicp = \"127.0.0.1:{port}\"\nfrom = [\"192.0.2.1\"]\n");
    let server = stand::server(stranger.path(), &text);
    stand::get(server.addresses()[0], &fresh);
    let icp = Neighbour::of(port);
    let mut query = Vec::new();
    assert!(Message { opcode: Opcode::Query, number: 1, url: &fresh }.write_to(&mut query));
    icp.send(&query);
    stand::wait_for("the stranger to be counted", || {
        stand::ask(server.admin().unwrap(), "/metrics")
            .contains("larder_neighbour_questions_total{answer=\"stranger\"} 1")
    });
    icp.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(icp.socket.recv_from(&mut [0; 64]).is_err());
}

/// Requests that reached the origin.
static ASKED: AtomicUsize = AtomicUsize::new(0);

fn counting(stream: &TcpStream) -> Option<()> {
    use std::io::{BufReader, Write};
    let mut lines = BufReader::new(stream);
    loop {
        stand::read_request(&mut lines)?;
        ASKED.fetch_add(1, Ordering::SeqCst);
        let answer = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 5\r\n\r\nbytes";
        let mut stream = stream;
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

struct Squid {
    child: Child,
    port: u16,
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Squid that asks this sibling, and otherwise the origin. Its datagrams come from 127.0.0.2: it takes those of its own address for an
/// echo. And it would go to an origin so near by itself.
fn squid(folder: &Path, larder: SocketAddr, question_port: u16, options: &str) -> Option<Squid> {
    let mut program = stand::program("squid")?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = folder.display();
    let text = format!(
        "http_port 127.0.0.1:{port}\nicp_port {}\nhtcp_port {}\nhttp_access allow all\nicp_access allow all\nhtcp_access allow all\n\
         cache_peer 127.0.0.1 sibling {} {question_port} proxy-only no-digest {options}\n\
         minimum_direct_rtt 0\nminimum_direct_hops 0\nicp_query_timeout 5000\nudp_incoming_address 127.0.0.2\ncache_mem 8 MB\naccess_log stdio:{dir}/access.log\ncache_log {dir}/cache.log\npid_filename {dir}/pid\n\
         coredump_dir {dir}\nvisible_hostname neighbour\ndns_nameservers 127.0.0.1\npinger_enable off\nshutdown_lifetime 0 seconds\n",
        free_port(),
        free_port(),
        larder.port(),
    );
    std::fs::write(folder.join("squid.conf"), text).unwrap();
    // Names of its shared memory hang on the service name, which another Squid of this machine may have.
    let child = program.args(["-N", "-n", &format!("test{}", port), "-f"]).arg(folder.join("squid.conf"));
    let child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let squid = Squid { child, port };
    stand::wait_for("Squid", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some(squid)
}

#[test]
fn a_squid_gets_from_its_sibling_what_it_stored() {
    if stand::program("squid").is_none() {
        return;
    }
    let origin = stand::origin_that(counting);
    for (number, (setting, options)) in [("icp", ""), ("htcp", "htcp")].into_iter().enumerate() {
        let (folder, of_squid) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let port = free_port();
        let text = format!("[neighbours]\n{setting} = \"127.0.0.1:{port}\"\nfrom = [\"127.0.0.0/8\"]\n");
        let server = stand::server(folder.path(), &text);
        let proxy = server.addresses()[0];
        let Some(squid) = squid(of_squid.path(), proxy, port, options) else { return };
        let url = format!("http://{origin}/{setting}");
        let before = ASKED.load(Ordering::SeqCst);
        assert!(stand::get(proxy, &url).ends_with("bytes"));
        let squid_address = ([127, 0, 0, 1], squid.port).into();
        assert!(stand::get(squid_address, &url).ends_with("bytes"), "{setting}");
        assert_eq!(ASKED.load(Ordering::SeqCst), before + 1, "{setting}: the sibling's copy was not used");
        // Larder does not have it: Squid asks the origin by itself, and Larder stores nothing for it.
        let other = format!("http://{origin}/{setting}-other-{number}");
        assert!(stand::get(squid_address, &other).ends_with("bytes"));
        let log = || std::fs::read_to_string(of_squid.path().join("access.log")).unwrap_or_default();
        stand::wait_for("Squid's log", || log().lines().count() >= 2);
        let log = log();
        assert!(log.contains("SIBLING_HIT/") && log.contains("HIER_DIRECT/"), "{setting}: {log}");
        let metrics = stand::ask(server.admin().unwrap(), "/metrics");
        assert!(metrics.contains("larder_neighbour_questions_total{answer=\"hit\"} 1\n"), "{metrics}");
    }
}
