//! The scheme of what is stored is that of the connection it was asked on; and whose tunnels stay closed.

use super::reload::base;
use super::stand;
use larder::server::Server;
use larder::tls::{Roots, client_config, server_name};
use larder_wire::Host;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// An origin's part: the scheme that it was told, and how often it was asked.
fn tells_scheme(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let (mut line, mut scheme) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).ok().filter(|&read| read > 0)?;
            if let Some(told) = line.strip_prefix("X-Forwarded-Proto: ") {
                scheme += told.trim();
            }
        }
        let head =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{scheme}", scheme.len());
        (&*stream).write_all(head.as_bytes()).ok()?;
    }
}

/// TLS on top of a connection, with this one root.
pub(super) fn secured<S: Read + Write>(
    mut stream: S,
    root: CertificateDer<'static>,
    name: &str,
) -> io::Result<StreamOwned<ClientConnection, S>> {
    let config = client_config(&Roots { certificates: vec![root], troubles: Vec::new() }.into()).unwrap();
    let mut tls = ClientConnection::new(config, server_name(&Host::parse(name).unwrap()).unwrap()).unwrap();
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut stream) {
            // The alert that says why.
            let _ = tls.write_tls(&mut stream);
            return Err(error);
        }
    }
    Ok(StreamOwned::new(tls, stream))
}

/// The status of an answer and its body, or the status alone.
pub fn ask(stream: &mut (impl Read + Write), target: &str, host: &str) -> String {
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut body = vec![0; field("Content-Length: ").parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let status = &head["HTTP/1.1 ".len()..][..3];
    let hit = if field("Cache-Status: ").contains("; hit") { " hit" } else { "" };
    match status {
        "200" => format!("200 {}{hit}", String::from_utf8(body).unwrap()),
        _ => status.to_owned(),
    }
}

pub fn write_pair(folder: &Path, name: &str) -> CertificateDer<'static> {
    let pair = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    std::fs::write(folder.join("chain.pem"), pair.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    CertificateDer::from_pem_slice(pair.cert.pem().as_bytes()).unwrap()
}

pub(super) const HERE: [u8; 4] = [127, 0, 0, 1];
const THERE: [u8; 4] = [127, 0, 0, 2];

#[test]
fn a_client_does_not_choose_the_scheme_of_a_site() {
    let folder = tempfile::tempdir().unwrap();
    let root = write_pair(folder.path(), "www.example");
    let origin = stand::origin_that(tells_scheme);
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         tls = [{{ chain = \"{1}/chain.pem\", key = \"{1}/key.pem\" }}]\n\
         [[site]]\nhosts = [\"www.example\"]\norigin = \"http://{origin}\"\n",
        base(folder.path()),
        folder.path().display(),
    );
    let server = stand::server(folder.path(), &text);
    let [clear, tls] = server.addresses()[..] else { panic!("two listeners") };
    let mut clear = stand::connect_from(HERE, clear);
    let mut secure = secured(stand::connect_from(HERE, tls), root, "www.example").unwrap();
    // Thrice: what was judged before is not judged again.
    for round in 0..3 {
        let hit = if round > 0 { " hit" } else { "" };
        assert_eq!(ask(&mut clear, "https://www.example/a", "www.example"), "421");
        assert_eq!(ask(&mut clear, "/a", "www.example"), format!("200 http{hit}"));
        assert_eq!(ask(&mut clear, "http://www.example/a", "www.example"), "200 http hit");
        assert_eq!(ask(&mut secure, "http://www.example/a", "www.example"), "421");
        assert_eq!(ask(&mut secure, "/a", "www.example"), format!("200 https{hit}"));
        assert_eq!(ask(&mut secure, "https://www.example/a", "www.example"), "200 https hit");
        assert_eq!(ask(&mut clear, "https://www.example/a", "www.example"), "421");
    }
}

/// A CONNECT, up to the answer that says that the tunnel stands.
pub(super) fn tunnel(from: [u8; 4], proxy: SocketAddr, authority: &str) -> TcpStream {
    let mut stream = stand::connect_from(from, proxy);
    stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).unwrap();
    let mut head = [0; b"HTTP/1.1 200 Connection established\r\n\r\n".len()];
    stream.read_exact(&mut head).unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

fn intercepting(folder: &Path, more: &str) -> Server {
    let text = format!("{}{more}[[listen]]\naddress = \"127.0.0.1:0\"\nintercept = true\n", base(folder));
    stand::server(folder, &text)
}

#[test]
fn an_opened_tunnel_leads_to_its_host_port_and_scheme_alone() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin();
    let server = intercepting(folder.path(), &format!("[access]\nconnect_ports = [{}]\n", origin.port()));
    let root = server.shared().interception.authority().unwrap().certificate().clone();
    let port = origin.port();
    let host = format!("localhost:{port}");
    let mut inside = secured(tunnel(HERE, server.addresses()[0], &host), root, "localhost").unwrap();
    for _ in 0..2 {
        for (target, host) in [
            (format!("http://localhost:{port}/fresh"), host.as_str()),
            (format!("http://127.0.0.1:{port}/fresh"), host.as_str()),
            ("https://localhost/fresh".to_owned(), host.as_str()),
            (format!("https://other.example:{port}/fresh"), host.as_str()),
            ("/fresh".to_owned(), "localhost"),
            ("/fresh".to_owned(), "localhost:443"),
            ("/fresh".to_owned(), "other.example"),
        ] {
            assert_eq!(ask(&mut inside, &target, host), "421", "{target} {host}");
        }
    }
    // The origin speaks no TLS: what is asked by the right name fails there, and is not asked for in clear text.
    assert_eq!(ask(&mut inside, "/fresh", &host), "502");
    assert_eq!(ask(&mut inside, &format!("https://{host}/fresh"), &host), "502");
}

/// An origin's part: some bytes at once, in a protocol of its own.
fn speaks_first(stream: &TcpStream) -> Option<()> {
    (&*stream).write_all(b"the origin").ok()?;
    let mut bytes = [0; 1024];
    while (&*stream).read(&mut bytes).ok()? > 0 {}
    Some(())
}

/// Whether a client that trusts our CA alone gets a certificate of it; else what it says is carried to the origin.
fn is_opened(from: [u8; 4], proxy: SocketAddr, authority: &str, root: &CertificateDer<'static>) -> bool {
    let mut stream = tunnel(from, proxy, authority);
    let mut first = [0; 4];
    stream.write_all(&hello(root)).unwrap();
    stream.read_exact(&mut first).unwrap();
    match &first {
        // A record of TLS: a handshake.
        [22, ..] => true,
        b"the " => false,
        other => panic!("{other:?}"),
    }
}

/// A client's ClientHello.
fn hello(root: &CertificateDer<'static>) -> Vec<u8> {
    let config = client_config(&Roots { certificates: vec![root.clone()], troubles: Vec::new() }.into()).unwrap();
    let mut tls = ClientConnection::new(config, server_name(&Host::parse("localhost").unwrap()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut bytes).unwrap();
    }
    bytes
}

#[test]
fn a_client_that_refuses_the_ca_closes_its_own_tunnels_alone() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(speaks_first);
    let other = stand::origin_that(speaks_first);
    let ports =
        format!("[access]\nclients = [\"127.0.0.0/8\"]\nconnect_ports = [{}, {}]\n", origin.port(), other.port());
    let server = intercepting(folder.path(), &ports);
    let proxy = server.addresses()[0];
    let root = server.shared().interception.authority().unwrap().certificate().clone();
    let stranger = write_pair(folder.path(), "localhost");
    let host = format!("localhost:{}", origin.port());
    assert!(is_opened(THERE, proxy, &host, &root), "nobody refused anything yet");
    assert!(secured(tunnel(THERE, proxy, &host), stranger, "localhost").is_err(), "it has another root");
    stand::wait_for("the refusal is remembered", || !is_opened(THERE, proxy, &host, &root));
    assert!(is_opened(HERE, proxy, &host, &root), "another client's tunnel to the same host is opened");
    let by_address = format!("127.0.0.1:{}", other.port());
    assert!(!is_opened(THERE, proxy, &by_address, &root), "the client names the same host inside");
    assert!(is_opened(HERE, proxy, &by_address, &root), "another client does, too");
}

#[test]
fn a_tunnel_to_an_address_stays_closed_by_the_name_that_is_said_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(speaks_first);
    let ports = format!("[access]\nconnect_ports = [{}]\n", origin.port());
    let server = intercepting(folder.path(), &format!("{ports}[intercept]\npass = [\"localhost\"]\n"));
    let root = server.shared().interception.authority().unwrap().certificate().clone();
    for host in ["localhost", "127.0.0.1"] {
        let authority = format!("{host}:{}", origin.port());
        assert!(!is_opened(HERE, server.addresses()[0], &authority, &root), "{authority}");
    }
}
