//! Origins that are told of the client: nginx behind Larder, HAProxy before it, and what a site or a member may say.

use super::{free, haproxy, nginx};
use crate::seen::stand::{self, Kept};
use larder::server::Server;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;

/// The words of nginx about a connection: the client and the address that it connected to, as the header has them, and who connected to nginx.
const SAYS: &str = "location / { add_header Cache-Control no-store; return 200 \
     \"$proxy_protocol_addr:$proxy_protocol_port to $proxy_protocol_server_addr:$proxy_protocol_server_port from $remote_addr $connection\"; }";

fn site(origin: &str, version: &str, more: &str) -> String {
    format!("[[site]]\nhosts = [\"site.test\"]\norigin = \"{origin}\"\nproxy_protocol = \"{version}\"\n{more}")
}

const GET: &str = "GET / HTTP/1.1\r\nHost: site.test\r\n\r\n";

fn metric(server: &Server, name: &str) -> u64 {
    let metrics = stand::ask(server.admin().unwrap(), "/metrics");
    let of = |line: &str| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<u64>().ok();
    metrics.lines().filter_map(of).sum()
}

/// Asks twice on one connection; gives the client's own address and what nginx said.
fn asked_twice(from: [u8; 4], to: SocketAddr) -> (SocketAddr, [String; 2]) {
    let mut stream = stand::connect_from(from, to);
    let own = stream.local_addr().unwrap();
    let mut ask = || {
        stream.write_all(GET.as_bytes()).unwrap();
        let mut lines = BufReader::new(&stream);
        let head = stand::read_head(&mut lines).unwrap();
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or_else(|| panic!("{head}"))];
        lines.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    };
    let said = [ask(), ask()];
    (own, said)
}

/// Over a socket too, and before TLS.
#[test]
fn nginx_believes_the_header_in_both_versions_with_and_without_tls() {
    let folder = tempfile::tempdir().unwrap();
    crate::seen::write_pair(folder.path(), "localhost");
    let (clear, secure, at) = (free(), free(), folder.path().display());
    let servers = format!(
        "server {{ listen {clear} proxy_protocol; {SAYS} }}\n\
         server {{ listen unix:{at}/socket proxy_protocol; {SAYS} }}\n\
         server {{ listen {secure} ssl proxy_protocol; ssl_certificate {at}/chain.pem; ssl_certificate_key {at}/key.pem; {SAYS} }}"
    );
    let Some(_nginx) = nginx(&folder.path().join("nginx"), clear, &servers) else { return };
    let origins =
        [format!("http://{clear}"), format!("https://localhost:{}", secure.port()), format!("http+unix:{at}/socket")];
    for (number, (origin, version)) in origins.iter().flat_map(|origin| [(origin, "v1"), (origin, "v2")]).enumerate() {
        let text = format!("{}[upstream]\nextra_roots = [\"{at}/chain.pem\"]\n", site(origin, version, ""));
        let server = stand::server(&folder.path().join(format!("store{number}")), &text);
        let to = server.addresses()[0];
        let (first, said) = asked_twice([127, 0, 0, 2], to);
        let (second, other) = asked_twice([127, 0, 0, 3], to);
        let wanted = |client: SocketAddr| format!("{client} to {to} from ");
        for said in &said {
            assert!(said.starts_with(&wanted(first)), "{origin} {version}: {said}");
        }
        assert!(other[0].starts_with(&wanted(second)), "{origin} {version}: {}", other[0]);
        let connection = |said: &str| said.rsplit_once(' ').unwrap().1.to_owned();
        assert_eq!(connection(&said[0]), connection(&said[1]), "a client's connection serves that client again");
        assert_ne!(connection(&said[0]), connection(&other[0]), "and no other");
        stand::wait_for("headers are counted", || metric(&server, "larder_upstream_proxy_headers_total") == 2);
        server.stop();
    }
}

/// HAProxy says whose connection it passes on, and nginx behind Larder hears of that client and of the address at HAProxy.
#[test]
fn the_client_before_haproxy_is_the_one_that_nginx_sees() {
    let folder = tempfile::tempdir().unwrap();
    let origin = free();
    let servers = format!("server {{ listen {origin} proxy_protocol; {SAYS} }}");
    let Some(_nginx) = nginx(&folder.path().join("nginx"), origin, &servers) else { return };
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = [\"127.0.0.1\"]\n";
    let text = format!("{listen}{}", site(&format!("http://{origin}"), "v2", ""));
    let server = stand::server(&folder.path().join("store"), &text);
    for (number, send) in ["send-proxy", "send-proxy-v2"].into_iter().enumerate() {
        let front = free();
        let sections = format!(
            "listen larder\n  mode tcp\n  bind {front}\n  server larder {} {send} source 127.0.0.1\n",
            server.addresses()[0]
        );
        let Some(_haproxy) = haproxy(&folder.path().join(format!("haproxy{number}")), front, &sections) else { return };
        let (client, said) = asked_twice([127, 0, 0, 9], front);
        assert!(said[0].starts_with(&format!("{client} to {front} from 127.0.0.1 ")), "{send}: {said:?}");
    }
    server.stop();
}

/// An origin that keeps the first line of each connection, and answers one request.
fn tells_first_lines() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (said, first_lines) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, said) = (stream.unwrap(), said.clone());
            std::thread::spawn(move || answer(&stream, &said));
        }
    });
    (address, first_lines)
}

fn answer(stream: &TcpStream, said: &mpsc::Sender<String>) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    std::io::BufRead::read_line(&mut lines, &mut first).ok()?;
    let _ = said.send(first.trim_end().to_owned());
    loop {
        let head = stand::read_head(&mut lines)?;
        let upgrades = head.to_lowercase().contains("upgrade: websocket");
        let answer = match upgrades {
            true => {
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhello".to_owned()
            }
            false => {
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=0, stale-while-revalidate=60\r\nContent-Length: 2\r\n\r\nok"
                    .to_owned()
            }
        };
        (&mut &*stream).write_all(answer.as_bytes()).ok()?;
        if upgrades {
            return None;
        }
    }
}

fn server(folder: &Path, text: &str) -> (Server, SocketAddr) {
    let server = stand::server(folder, text);
    let address = server.addresses()[0];
    (server, address)
}

/// Checks are Larder's own; requests name their client, by each member as it says itself.
#[test]
fn members_of_a_group_say_it_themselves_and_checks_are_larder_s_own() {
    let folder = tempfile::tempdir().unwrap();
    let (member, said) = tells_first_lines();
    let text = format!(
        "[[site]]\nhosts = [\"site.test\"]\norigin = \"app\"\n[[origin]]\nname = \"app\"\ncheck = {{ path = \"/up\" }}\n\
         members = [{{ url = \"http://{member}\", proxy_protocol = \"v1\" }}]\n"
    );
    let (server, to) = server(folder.path(), &text);
    assert_eq!(said.recv().unwrap(), "PROXY UNKNOWN", "the check");
    let mut client = Kept::to(to);
    assert_eq!(client.ask(GET).1, "ok");
    let first = said.recv().unwrap();
    assert!(
        first.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 ") && first.ends_with(&format!(" {}", to.port())),
        "{first}"
    );
    server.stop();
}

#[test]
fn a_refresh_behind_the_answer_is_larder_s_own_and_an_upgrade_is_its_client_s() {
    let folder = tempfile::tempdir().unwrap();
    let (origin, said) = tells_first_lines();
    let (server, to) = server(folder.path(), &site(&format!("http://{origin}"), "v1", ""));
    let mut client = Kept::to(to);
    let named = |line: &str| line.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 ");
    assert_eq!(client.ask(GET).1, "ok");
    assert!(named(&said.recv().unwrap()));
    // Stale at once: the client is answered, and the response is refreshed behind that.
    assert_eq!(client.ask(GET).1, "ok");
    assert_eq!(said.recv().unwrap(), "PROXY UNKNOWN");
    let upgrade = "GET /chat HTTP/1.1\r\nHost: site.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut stream = TcpStream::connect(to).unwrap();
    stream.write_all(upgrade.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("hello"), "{answer}");
    let line = said.recv().unwrap();
    let port = stream.local_addr().unwrap().port();
    assert!(named(&line) && line.contains(&format!(" {port} ")), "{line}");
    server.stop();
}
