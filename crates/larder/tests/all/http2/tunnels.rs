//! Streams that leave HTTP: CONNECT, what is inside of tunnels that are intercepted, and WebSockets.

use super::client::{Answer, Client, connect, connect_with, get};
use super::log;
use crate::seen::hooks_forward::tls_origin;
use crate::seen::stand;
use larder::server::Server;
use larder_wire::h2::ErrorCode;
use larder_wire::h2::frame::{self, Settings};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// An origin of no protocol: it repeats all bytes, and says goodbye behind the last one.
fn repeats(mut stream: &TcpStream) -> Option<()> {
    let mut room = [0; 16_384];
    loop {
        match stream.read(&mut room).ok()? {
            0 => break,
            bytes => stream.write_all(&room[..bytes]).ok()?,
        }
    }
    stream.write_all(b"goodbye").ok()?;
    stream.shutdown(Shutdown::Write).ok()
}

/// An origin that tells `told` how the connection ended for it.
fn listens(told: std::sync::mpsc::Sender<Option<io::ErrorKind>>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"here").unwrap();
        let mut bytes = Vec::new();
        told.send(stream.read_to_end(&mut bytes).err().map(|error| error.kind())).unwrap();
    });
    address
}

fn proxy(folder: &Path, more: &str) -> (Server, SocketAddr) {
    let text = format!("{more}\n[log]\nto = \"{}\"\n", folder.join("access.log").display());
    let server = stand::server(folder, &text);
    let address = server.addresses()[0];
    (server, address)
}

fn open<S: Read + Write>(client: &mut Client<S>, stream: u32, authority: &str) -> String {
    client.request(stream, &[(":method", "CONNECT"), (":authority", authority)], false);
    client.read_until(|client| client.answers.get(&stream).is_some_and(|answer| !answer.heads.is_empty()));
    client.answers[&stream].status().to_owned()
}

#[test]
fn a_tunnel_is_a_stream_beside_others() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = proxy(folder.path(), "");
    let to = stand::origin_that(repeats).to_string();
    let site = stand::origin().to_string();
    let mut client = connect(address);
    assert_eq!(open(&mut client, 1, &to), "200");
    assert_eq!(open(&mut client, 3, &to), "200");
    assert!(
        client.answers[&1].field("transfer-encoding").is_none() && client.answers[&1].field("content-length").is_none()
    );
    client.data(3, b"three", false);
    client.data(1, b"one", false);
    client.read_until(|client| client.answers[&1].bytes == 3 && client.answers[&3].bytes == 5);
    client.request(5, &[(":method", "GET"), (":scheme", "http"), (":authority", &site), (":path", "/fresh")], true);
    assert_eq!(client.answer(5).text(), "/fresh");
    // The client's end is passed on, and what the origin sends after it comes back.
    client.data(1, b"", true);
    let answer = client.answer(1);
    assert_eq!((answer.text(), answer.has_ended, answer.reset), ("onegoodbye".to_owned(), true, None));
    client.data(3, b"more", true);
    assert_eq!(client.answer(3).text(), "threemoregoodbye");
    drop(client);
    let log = log(server, folder.path());
    let lines: Vec<_> = log.lines().filter(|line| line.contains(&format!("\"CONNECT {to} HTTP/2.0\" 200"))).collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines.iter().all(|line| line.contains(" tunnel ")), "{log}");
}

#[test]
fn windows_hold_both_directions_of_a_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = proxy(folder.path(), "");
    let to = stand::origin_that(repeats).to_string();
    let mut client = connect_with(address, &Settings { window: Some(10), ..Settings::default() });
    assert_eq!(open(&mut client, 1, &to), "200");
    client.data(1, b"more than ten bytes", false);
    client.read_until(|client| client.answers[&1].bytes == 10);
    client.send(|out| frame::write_window_update(out, 1, 9));
    client.read_until(|client| client.answers[&1].bytes == 19);
    // A client that takes nothing gives no room to send after some megabytes, which sockets and queues hold.
    let mut client = connect_with(address, &Settings { window: Some(0), ..Settings::default() });
    assert_eq!(open(&mut client, 1, &to), "200");
    client.rooms.insert(1, 65_535);
    let block = vec![b'a'; 16_000];
    let mut sent = 0;
    while client.rooms[&1].min(client.room) >= 16_000 && sent < 100_000_000 {
        client.room -= 16_000;
        *client.rooms.get_mut(&1).unwrap() -= 16_000;
        client.data(1, &block, false);
        sent += block.len();
        client.send(|out| frame::write_ping(out, *b"roundtri"));
        let pongs = client.pongs;
        client.read_until(|client| client.pongs > pongs);
        // The tunnel may still be taking bytes.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(sent < 100_000_000, "the window stays open");
    // Large bodies go both ways.
    let mut client = connect_with(address, &Settings { window: Some(1 << 30), ..Settings::default() });
    client.send(|out| frame::write_window_update(out, 0, 1 << 30));
    assert_eq!(open(&mut client, 1, &to), "200");
    let body: Vec<u8> = (0..20_000_000).map(|at: u32| (at % 251) as u8).collect();
    client.upload(1, &body);
    let answer = client.answer(1);
    assert!(answer.body == [&body[..], b"goodbye"].concat(), "{} bytes", answer.bytes);
}

#[test]
fn the_ends_of_a_tunnel_are_seen_on_the_other_side() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = proxy(folder.path(), "");
    let (told, hears) = std::sync::mpsc::channel();
    let mut client = connect(address);
    let to = listens(told.clone()).to_string();
    assert_eq!(open(&mut client, 1, &to), "200");
    client.read_until(|client| client.answers[&1].bytes == 4);
    client.send(|out| frame::write_reset(out, 1, ErrorCode::Cancel));
    assert_eq!(hears.recv_timeout(stand::WITHIN).unwrap(), Some(io::ErrorKind::ConnectionReset));
    // The end of the connection is the end of all its tunnels.
    let to = listens(told.clone()).to_string();
    assert_eq!(open(&mut client, 3, &to), "200");
    client.read_until(|client| client.answers[&3].bytes == 4);
    drop(client);
    assert_eq!(hears.recv_timeout(stand::WITHIN).unwrap(), Some(io::ErrorKind::ConnectionReset));
    // Another frame than DATA.
    let mut client = connect(address);
    let to = listens(told).to_string();
    assert_eq!(open(&mut client, 1, &to), "200");
    client.request(1, &[("x-a", "b")], true);
    assert_eq!(client.answer(1).reset, Some(ErrorCode::Protocol));
    assert_eq!(hears.recv_timeout(stand::WITHIN).unwrap(), Some(io::ErrorKind::ConnectionReset));
    // An origin that resets.
    let resets =
        stand::origin_that(|stream| socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO)).ok());
    assert_eq!(open(&mut client, 3, &resets.to_string()), "200");
    assert_eq!(client.answer(3).reset, Some(ErrorCode::Connect));
    drop(client);
    assert_eq!(log(server, folder.path()).matches(" HTTP/2.0\" 200 ").count(), 4);
}

#[test]
fn a_connect_is_judged_as_over_http_1_1() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "[[rule]]\nwhen = { host = \"denied.test\" }\ndo = { deny = true }\n";
    let (_server, address) = proxy(folder.path(), rule);
    let closed = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() }.to_string();
    let mut client = connect(address);
    for (number, (authority, status)) in
        [("denied.test:443", "403"), (&*closed, "502"), ("nothing.invalid:443", "502"), ("no-port", "400")]
            .into_iter()
            .enumerate()
    {
        let stream = 2 * number as u32 + 1;
        client.request(stream, &[(":method", "CONNECT"), (":authority", authority)], false);
        let over_http_1_1 =
            stand::exchange(address, &format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        assert!(over_http_1_1.starts_with(&format!("HTTP/1.1 {status} ")), "{over_http_1_1}");
        assert_eq!(client.answer(stream).status(), status, "{authority}");
    }
}

/// The bytes of a stream as a socket.
struct OnStream {
    client: Client<TcpStream>,
    stream: u32,
    read: usize,
}

impl Read for OnStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (stream, read) = (self.stream, self.read);
        self.client.read_until(|client| client.answers[&stream].body.len() > read || client.answers[&stream].is_over());
        let bytes = (&self.client.answers[&stream].body[read..]).read(room)?;
        self.read += bytes;
        Ok(bytes)
    }
}

impl Write for OnStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.client.data(self.stream, bytes, false);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn tls<S: Read + Write>(
    server: &Server,
    mut stream: S,
    protocols: &[&[u8]],
) -> rustls::StreamOwned<rustls::ClientConnection, S> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.shared().interception.authority().unwrap().certificate().clone()).unwrap();
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream).unwrap();
    }
    rustls::StreamOwned::new(tls, stream)
}

/// A proxy that intercepts, and the authority of an origin over TLS.
fn intercepting(folder: &Path, more: &str) -> (Server, SocketAddr, String) {
    let papers = folder.join("origin");
    std::fs::create_dir(&papers).unwrap();
    let (origin, _) = tls_origin(&papers, "localhost");
    let roots = papers.join("chain.pem");
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nintercept = true\n{more}[access]\nconnect_ports = []\n[upstream]\nextra_roots = [{roots:?}]\n"
    );
    let (server, address) = proxy(folder, &text);
    (server, address, format!("localhost:{}", origin.port()))
}

/// The stream inside a tunnel over HTTP/1.1.
fn over_http_1_1(proxy: SocketAddr, to: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(super::client::WITHIN)).unwrap();
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let head = stand::read_head(&mut BufReader::with_capacity(1, &stream)).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    stream
}

#[test]
fn http2_is_spoken_in_tunnels_of_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address, to) = intercepting(folder.path(), "");
    let https = |path| [(":method", "GET"), (":scheme", "https"), (":authority", &*to), (":path", path)];
    let over_http2 = || {
        let mut client = connect(address);
        assert_eq!(open(&mut client, 1, &to), "200");
        OnStream { client, stream: 1, read: 0 }
    };
    let stream = tls(&server, over_http_1_1(address, &to), &[b"h2", b"http/1.1"]);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    let mut inside = Client::on(stream, &Settings::default());
    inside.request(1, &https("/fresh"), true);
    assert_eq!((inside.answer(1).status(), inside.answer(1).text()), ("200", "localhost /fresh".to_owned()));
    inside.request(3, &get("/fresh"), true);
    assert_eq!(inside.answer(3).status(), "421", "a scheme that is not the connection's");
    inside.request(
        5,
        &[(":method", "GET"), (":scheme", "https"), (":authority", "other.test"), (":path", "/fresh")],
        true,
    );
    assert_eq!(inside.answer(5).status(), "421", "a host that is not the tunnel's");
    inside.request(7, &[(":method", "CONNECT"), (":authority", &to)], false);
    assert_eq!(inside.answer(7).status(), "403", "a tunnel inside a tunnel");
    let stream = tls(&server, over_http2(), &[b"http/1.1", b"h2"]);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    let mut inside = Client::on(stream, &Settings::default());
    inside.request(1, &https("/fresh"), true);
    assert_eq!((inside.answer(1).status(), inside.answer(1).text()), ("200", "localhost /fresh".to_owned()));
    let long = format!("/{}", "a".repeat(6_000));
    inside.request(3, &https(&long), true);
    assert_eq!(inside.answer(3).text(), format!("localhost {long}"));
    drop(inside);
    let mut stream = tls(&server, over_http2(), &[b"http/1.1"]);
    write!(stream, "GET /fresh HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(
        answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"localhost /fresh"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    drop(stream);
    let log = log(server, folder.path());
    assert_eq!(log.matches(&format!("\"GET https://{to}/fresh HTTP/2.0\" 200")).count(), 2, "{log}");
    assert_eq!(log.matches(&format!("\"CONNECT {to} HTTP/2.0\" 200")).count(), 2, "{log}");
    assert_eq!(log.matches(&format!("\"CONNECT {to} HTTP/1.1\" 200")).count(), 1, "{log}");
}

#[test]
fn a_listener_without_http2_speaks_none_in_its_tunnels() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address, to) = intercepting(folder.path(), "http2 = false\n");
    let stream = tls(&server, over_http_1_1(address, &to), &[b"h2", b"http/1.1"]);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
}

/// An origin that opens a WebSocket and repeats its bytes; `/plain` is answered otherwise, `/wrong` without the proof that the key was read.
fn websocket(stream: &TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let head = stand::read_head(&mut lines)?;
    let mut out = stream;
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    let Some(key) = key.filter(|_| !head.starts_with("GET /plain")) else {
        return write!(out, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nplain").ok();
    };
    let lower = head.to_lowercase();
    assert!(lower.contains("\r\nupgrade: websocket\r\n") && lower.contains("\r\nconnection: "), "{head}");
    assert!(lower.contains("\r\nsec-websocket-version: 13\r\n") && !lower.contains(":protocol"), "{head}");
    let key = if head.starts_with("GET /wrong") { "wrong" } else { key };
    let digest = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11").as_bytes(),
    );
    let accept = base64(digest.as_ref());
    write!(
        out,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
    )
    .ok()?;
    let buffered = lines.fill_buf().ok()?.to_vec();
    lines.consume(buffered.len());
    out.write_all(&buffered).ok()?;
    repeats(stream)
}

pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letters = (0..bytes.len() * 8).step_by(6).map(|bit| {
        let pair = u16::from(bytes[bit / 8]) << 8 | bytes.get(bit / 8 + 1).map_or(0, |byte| u16::from(*byte));
        char::from(LETTERS[usize::from(pair >> (10 - bit % 8) & 63)])
    });
    let text: String = letters.collect();
    format!("{text:=<width$}", width = text.len().next_multiple_of(4))
}

fn extended<'a>(authority: &'a str, protocol: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":authority", authority),
        (":path", path),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
    ]
}

#[test]
fn an_origin_that_opens_nothing_in_time_is_late_and_not_its_client() {
    let folder = tempfile::tempdir().unwrap();
    // It takes the connection, and never answers.
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = origin.local_addr().unwrap();
    let site = format!("[timeouts]\nrequest = \"1s\"\n[[site]]\nhosts = [\"chat.test\"]\norigin = \"http://{to}\"\n");
    let (_server, address) = proxy(folder.path(), &site);
    let mut client = connect(address);
    client.request(1, &extended("chat.test", "websocket", "/ws"), false);
    assert_eq!(client.answer(1).status(), "504");
}

#[test]
fn a_websocket_is_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(websocket);
    let (server, address) =
        proxy(folder.path(), &format!("[[site]]\nhosts = [\"chat.test\"]\norigin = \"http://{origin}\"\n"));
    let mut client = connect(address);
    client.read_until(|client| client.settings.is_some());
    assert_eq!(client.settings.as_ref().and_then(|settings| settings.takes_connect_protocol), Some(true));
    client.request(1, &extended("chat.test", "websocket", "/chat"), false);
    client.data(1, b"frames", false);
    client.read_until(|client| client.answers.get(&1).is_some_and(|answer| answer.bytes == 6 || answer.is_over()));
    let answer = &client.answers[&1];
    assert_eq!((answer.status(), answer.text()), ("200", "frames".to_owned()), "{answer:?}");
    assert_eq!(answer.field("sec-websocket-protocol"), Some("chat"));
    assert!(
        ["sec-websocket-accept", "upgrade", "connection"].iter().all(|name| answer.field(name).is_none()),
        "{answer:?}"
    );
    client.data(1, b"", true);
    assert_eq!(client.answer(1).text(), "framesgoodbye");
    // Answers that open nothing.
    let mut ask = |stream, fields: Vec<(&str, &str)>| -> Answer {
        client.request(stream, &fields, false);
        client.answer(stream)
    };
    for (stream, path) in [(3, "/plain"), (5, "/wrong")] {
        let answer = ask(stream, extended("chat.test", "websocket", path));
        assert!(answer.status() == "502" && answer.text().contains("has not opened"), "{path}: {}", answer.text());
    }
    assert_eq!(ask(7, extended("chat.test", "connect-udp", "/chat")).status(), "501");
    let mut fields = extended("chat.test", "websocket", "/chat");
    fields[0].1 = "GET";
    assert_eq!(ask(9, fields).reset, Some(ErrorCode::Protocol));
    let mut fields = extended("chat.test", "websocket", "/chat");
    fields.push(("content-length", "6"));
    assert_eq!(ask(11, fields).status(), "400");
    drop(client);
    let log = log(server, folder.path());
    for (path, status) in [("chat", 200), ("plain", 502), ("wrong", 502)] {
        assert!(log.contains(&format!("\"GET http://chat.test/{path} HTTP/2.0\" {status} ")), "{log}");
    }
}

/// A request to the proxy itself is no request for a URL: there is no line about the listener in the forward proxy's answer.
#[test]
fn a_listener_on_a_free_port_knows_its_own_address() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = proxy(folder.path(), "");
    let over_http_1_1 =
        stand::exchange(address, &format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"));
    let mut client = connect(address);
    for (stream, authority) in [(1, address.to_string()), (3, format!("localhost:{}", address.port()))] {
        client.request(
            stream,
            &[(":method", "GET"), (":scheme", "http"), (":authority", &authority), (":path", "/")],
            true,
        );
        let answer = client.answer(stream);
        assert_eq!(answer.status(), &over_http_1_1["HTTP/1.1 ".len()..][..3], "{answer:?}");
    }
}
