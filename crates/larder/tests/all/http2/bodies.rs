//! Streams beside each other: windows, resets, and the ends of connections.

use super::client::{Answer, Client, connect, connect_with, get};
use super::{log, site};
use larder_wire::h2::ErrorCode;
use larder_wire::h2::frame::{self, Settings};
use std::io::{Read, Write};
use std::time::Duration;

const BIG: usize = 100_000_000;

#[test]
fn two_hundred_requests_come_at_once_and_a_hundred_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let mut client = connect(address);
    client.send(|out| {
        for stream in (1..400).step_by(2) {
            super::client::write_request(out, stream, &get("/slow"), true);
        }
    });
    client.read_until(|client| client.answers.values().filter(|answer| answer.is_over()).count() == 200);
    let served = client.answers.values().filter(|answer| answer.text() == "slow").count();
    let refused = |answer: &&Answer| answer.reset == Some(ErrorCode::RefusedStream);
    assert_eq!((served, client.answers.values().filter(refused).count()), (100, 100));
    // As many as are permitted, one after the other's end.
    let mut client = connect(address);
    for first in (1..400).step_by(200) {
        client.send(|out| {
            (first..first + 200).step_by(2).for_each(|id| super::client::write_request(out, id, &get("/fresh"), true))
        });
        client.read_until(|client| {
            client.answers.values().filter(|answer| answer.has_ended).count() as u32 >= first / 2 + 100
        });
    }
    assert!(client.answers.values().all(|answer| answer.text() == "bytes"), "{:?}", client.answers);
    assert_eq!(log(server, folder.path()).matches("\" 200 4 ").count(), 100);
}

#[test]
fn a_hundred_megabytes_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "");
    let mut client = connect(address);
    client.streams_bodies = true;
    let answer = client.ask(1, &format!("/big/{BIG}"));
    assert_eq!((answer.bytes, answer.has_ended), (BIG, true));
    let body: Vec<u8> = (0..BIG).map(|at| (at % 251) as u8).collect();
    let sum = body.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    client.streams_bodies = false;
    client.request(
        3,
        &[(":method", "POST"), (":scheme", "http"), (":authority", "site.test"), (":path", "/sum")],
        false,
    );
    client.upload(3, &body);
    assert_eq!(client.answer(3).text(), format!("{BIG} {sum}"));
}

#[test]
fn a_slow_stream_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "");
    let mut client = connect_with(address, &Settings { window: Some(1_000), ..Settings::default() });
    // The connection has room, the first stream has none beyond its first thousand bytes.
    client.send(|out| frame::write_window_update(out, 0, 10_000_000));
    client.request(1, &get("/big/1000000"), true);
    client.read_until(|client| client.answers.get(&1).is_some_and(|answer| answer.bytes == 1_000));
    for stream in [3, 5] {
        assert_eq!(client.ask(stream, "/fresh").text(), "bytes");
    }
    client.request(7, &get("/big/500000"), true);
    client.send(|out| frame::write_window_update(out, 7, 1_000_000));
    assert_eq!(client.answer(7).bytes, 500_000);
    assert_eq!(client.answers[&1].bytes, 1_000);
    client.send(|out| frame::write_window_update(out, 1, 1_000_000));
    assert_eq!(client.answer(1).bytes, 1_000_000);
    // A body that the origin does not take: as many bytes as the window has, and others go on.
    let post = |path| [(":method", "POST"), (":scheme", "http"), (":authority", "site.test"), (":path", path)];
    client.request(9, &post("/stuck"), false);
    for _ in 0..3 {
        client.data(9, &[b'a'; 16_000], false);
    }
    client.request(11, &post("/sum"), false);
    client.rooms.insert(11, 65_535);
    client.upload(11, &vec![b'a'; 3_000_000]);
    assert!(client.answer(11).text().starts_with("3000000 "));
}

#[test]
fn small_windows_are_held() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let mut client = connect_with(address, &Settings { window: Some(0), ..Settings::default() });
    client.request(1, &get("/fresh"), true);
    client.read_until(|client| client.answers.contains_key(&1));
    for bytes in 1..=5 {
        assert!(!client.answers[&1].has_ended);
        client.send(|out| frame::write_window_update(out, 1, 1));
        client.read_until(|client| client.answers[&1].bytes == bytes);
    }
    assert_eq!(client.answer(1).text(), "bytes");
    // SETTINGS open the windows of streams that wait.
    client.request(3, &get("/fresh"), true);
    client.read_until(|client| client.answers.contains_key(&3));
    client.send(|out| frame::write_settings(out, &Settings { window: Some(100), ..Settings::default() }));
    assert_eq!(client.answer(3).text(), "bytes");
    // More DATA than the window has.
    client.request(
        5,
        &[(":method", "POST"), (":scheme", "http"), (":authority", "site.test"), (":path", "/stuck")],
        false,
    );
    // The origin takes none of it, beyond the buffers on the way.
    client.send(|out| {
        for _ in 0..2_000 {
            frame::write_data_head(out, 5, 16_000, false);
            out.extend_from_slice(&[0; 16_000]);
        }
    });
    assert!(matches!(client.answer(5).reset, Some(ErrorCode::FlowControl)), "{:?}", client.answers[&5]);
    drop(client);
    // The request itself was well-formed.
    let log = log(server, folder.path());
    assert!(log.contains("/stuck") && !log.contains("http2-malformed"), "{log}");
}

/// The time limits of slow clients hold for each stream.
#[test]
fn a_window_that_stays_closed_ends_its_stream_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "[timeouts]\nwrite = \"300ms\"\nbody = \"300ms\"\n");
    let mut client = connect_with(address, &Settings { window: Some(10), ..Settings::default() });
    client.request(1, &get("/big/1000000"), true);
    assert_eq!(client.answer(1).reset, Some(ErrorCode::Cancel));
    client.request(3, &get("/echo/this"), true);
    client.send(|out| frame::write_window_update(out, 3, 10_000));
    assert_eq!(client.answer(3).status(), "200");
    // A request whose body does not come to its end.
    client.request(
        5,
        &[(":method", "POST"), (":scheme", "http"), (":authority", "site.test"), (":path", "/echo")],
        false,
    );
    client.send(|out| frame::write_window_update(out, 5, 10_000));
    assert_eq!(client.answer(5).status(), "408");
}

#[test]
fn a_reset_gives_up_the_exchange_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let mut client = connect(address);
    client.request(1, &get("/big/50000000"), true);
    client.read_until(|client| client.answers.get(&1).is_some_and(|answer| answer.bytes > 0));
    client.send(|out| frame::write_reset(out, 1, ErrorCode::Cancel));
    client.send(|out| frame::write_window_update(out, 0, 1_000_000));
    assert_eq!(client.ask(3, "/echo").status(), "200");
    assert!(!client.answers[&1].is_over());
    drop(client);
    let log = log(server, folder.path());
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn a_server_that_goes_down_lets_streams_come_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let mut client = connect(address);
    client.request(1, &get("/slow"), true);
    client.read_until(|client| client.answers.contains_key(&1));
    let stopping = std::thread::spawn(move || server.stop());
    client.read_until(|client| client.left.is_some());
    assert_eq!(client.left, Some((1, ErrorCode::NoError)));
    assert_eq!(client.answer(1).text(), "slow");
    client.read_until(|client| client.is_closed);
    stopping.join().unwrap();
}

#[test]
fn connections_that_wait_too_long_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "[timeouts]\nidle = \"300ms\"\nhead = \"300ms\"\n");
    let mut client = connect(address);
    client.ask(1, "/fresh");
    client.read_until(|client| client.is_closed);
    assert_eq!(client.left, Some((1, ErrorCode::NoError)));
    // A field block that does not end.
    let mut client = connect(address);
    client.read_until(|client| client.settings.is_some());
    client.send(|out| out.extend_from_slice(b"\0\0\x01\x01\0\0\0\0\x01\x82"));
    client.read_until(|client| client.is_closed);
    assert_eq!(client.left.map(|left| left.1), Some(ErrorCode::EnhanceYourCalm));
    // A preface that does not end.
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
}

#[test]
fn a_site_over_tls_agrees_on_http2_and_serves_the_hosts_of_its_certificate_alone() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["site.test", "other.test"].map(str::to_owned).to_vec();
    let pair = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.path().join("chain.pem"), pair.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    let listen = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\ntls = [{{ chain = \"{0}/chain.pem\", key = \"{0}/key.pem\" }}]\n",
        folder.path().display()
    );
    let (server, address) = site(folder.path(), &listen);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pair.cert.der().clone()).unwrap();
    let config = |protocols: &[&[u8]]| {
        let mut config = rustls::ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config
    };
    let connect = |protocols: &[&[u8]]| {
        let name = rustls::pki_types::ServerName::try_from("site.test").unwrap();
        let mut tls = rustls::ClientConnection::new(config(protocols).into(), name).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(super::client::WITHIN)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).unwrap();
        }
        rustls::StreamOwned::new(tls, stream)
    };
    let mut stream = connect(&[b"http/1.1", b"h2"]);
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Client::on(stream, &Settings::default());
    let ask = |host| [(":method", "GET"), (":scheme", "https"), (":authority", host), (":path", "/fresh")];
    for (stream, host, status) in
        [(1, "site.test", "200"), (3, "other.test", "200"), (5, "third.test", "421"), (7, "SITE.test", "200")]
    {
        client.request(stream, &ask(host), true);
        assert_eq!(client.answer(stream).status(), status, "{host}");
    }
    stream = connect(&[b"http/1.1"]);
    stream.write_all(b"GET /fresh HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let log = log(server, folder.path());
    assert!(log.contains("\"GET https://site.test/fresh HTTP/2.0\" 200"), "{log}");
    assert!(log.contains("421"), "{log}");
}
