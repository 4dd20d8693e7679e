//! Connections from their beginning to their end: certificates, limits, moves, reloads, the server's going down.

use super::client::{Client, WITHIN, code, control, get, headers, tls};
use super::{Site, settings, write_certificate};
use crate::seen::reload::{Steered, base};
use crate::seen::stand;
use larder::config::Loaded;
use larder_wire::h3::ErrorCode;
use quinn::ConnectionError;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn a_server_that_goes_down_lets_requests_come_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let Site { server, address, certificate } = Site::open(folder.path());
    let mut client = Client::with(address, tls(&certificate, None)).unwrap();
    client.uni(&control());
    let (_send, mut receive) = client.begin(&headers(&get("/slow")), true);
    let mut own = client.wait(client.quic.accept_uni()).unwrap();
    client.wait(receive.read_chunk(1, true)).unwrap().unwrap();
    let stopping = std::thread::spawn(move || server.stop());
    // The control stream: its kind, SETTINGS, and GOAWAY with the number behind that of the request.
    let said = client.wait(async {
        let mut said = Vec::new();
        while !said.ends_with(&[0x7, 1, 4]) {
            said.extend_from_slice(&own.read_chunk(1_000, true).await.unwrap().expect("GOAWAY").bytes);
        }
        said
    });
    assert_eq!(said[..2], [0x0, 0x4], "{said:x?}");
    // A request after that is not taken, and may be sent again elsewhere.
    let late = client.get("/fresh");
    assert!(late.reset == Some(ErrorCode::RequestRejected.number()) || late.is_lost, "{late:?}");
    let rest = client.wait(receive.read_to_end(1_000)).unwrap();
    assert!(rest.ends_with(b"slow"), "{rest:?}");
    assert_eq!(client.closed(), (ErrorCode::NoError.number(), String::new()));
    stopping.join().unwrap();
}

/// Requests behind the word that no more are taken may have crossed it on their way, and not go on for ever.
#[test]
fn rejected_requests_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let Site { server, address, certificate } = Site::open(folder.path());
    let mut client = Client::with(address, tls(&certificate, None)).unwrap();
    client.uni(&control());
    let (_send, mut receive) = client.begin(&headers(&get("/slow/10000")), true);
    client.wait(receive.read_chunk(1, true)).unwrap().unwrap();
    let stopping = std::thread::spawn(move || server.stop());
    while let Some((_send, mut receive)) = client.try_begin(&headers(&get("/fresh")), true) {
        client.answer(&mut receive);
    }
    assert_eq!(client.closed(), (ErrorCode::ExcessiveLoad.number(), "http3-control-frames".to_owned()));
    stopping.join().unwrap();
}

/// All that the server says on its control stream.
fn said(client: &Client, own: &mut quinn::RecvStream) -> Vec<u8> {
    client.wait(async {
        let mut said = Vec::new();
        while let Ok(Some(chunk)) = own.read_chunk(1_000, true).await {
            said.extend_from_slice(&chunk.bytes);
        }
        said
    })
}

#[test]
fn a_server_that_goes_down_says_so_where_no_request_came() {
    let folder = tempfile::tempdir().unwrap();
    let Site { server, address, certificate } = Site::open(folder.path());
    let mut client = Client::with(address, tls(&certificate, None)).unwrap();
    client.uni(&control());
    let mut own = client.wait(client.quic.accept_uni()).unwrap();
    let stopping = std::thread::spawn(move || server.stop());
    let said = said(&client, &mut own);
    assert!(said.ends_with(&[0x7, 1, 0]), "{said:x?}");
    assert_eq!(client.closed(), (ErrorCode::NoError.number(), String::new()));
    stopping.join().unwrap();
}

/// `timeouts.idle` counts from the end of the last answer.
#[test]
fn a_connection_is_idle_once_its_last_answer_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\nidle = \"1s\"\n");
    let client = Client::to(&site);
    assert_eq!(client.get("/slow/2500").text(), "slow");
    client.pause(500);
    assert_eq!(client.get("/fresh").status(), "200");
}

#[test]
fn connections_without_requests_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\nidle = \"300ms\"\nhead = \"300ms\"\n");
    let client = Client::to(&site);
    assert_eq!(client.get("/fresh").status(), "200");
    assert_eq!(client.closed(), (ErrorCode::NoError.number(), "no request came for timeouts.idle".to_owned()));
    // The control stream says before that no request is taken any more, where no request came.
    let client = Client::to(&site);
    let mut own = client.wait(client.quic.accept_uni()).unwrap();
    assert!(said(&client, &mut own).ends_with(&[0x7, 1, 0]));
    assert_eq!(client.closed().0, ErrorCode::NoError.number());
    // A head that does not end is given up alone, and an answer that takes longer is waited for.
    let client = Client::to(&site);
    let (_send, mut receive) = client.begin(&headers(&get("/echo"))[..10], false);
    assert_eq!(client.get("/slow").text(), "slow");
    assert_eq!(client.answer(&mut receive).reset, Some(ErrorCode::RequestIncomplete.number()));
    let log = site.log(folder.path());
    assert!(log.contains("request-timeout"), "{log}");
}

#[test]
fn a_client_has_as_many_connections_as_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[limits]\nconnections_per_client_max = 2\n");
    let first = Client::to(&site);
    assert_eq!(first.get("/fresh").status(), "200");
    let _second = Client::to(&site);
    let closed = Client::bare(&site).closed();
    assert_eq!(closed, (ErrorCode::ExcessiveLoad.number(), "connections-per-client-max".to_owned()));
    // Those over TCP count with them, and a stream that waits beside another one does.
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0);
    let slow: Vec<_> = (0..2).map(|_| first.begin(&headers(&get("/slow")), true)).collect();
    let statuses: Vec<_> =
        slow.into_iter().map(|(_, mut answer)| first.answer(&mut answer).status().to_owned()).collect();
    assert!(statuses.contains(&"503".to_owned()), "{statuses:?}");
    let log = site.log(folder.path());
    assert!(log.matches("connections-per-client-max").count() >= 3, "{log}");
}

#[test]
fn answers_over_tcp_tell_of_http3() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let ask = |protocol: &str| {
        let arguments = ["-sk", "-m", "20", protocol, "-D", "-", "-o", "/dev/null", "-H", "Host: site.test"];
        let url = format!("https://localhost:{}/fresh", site.address.port());
        let output = stand::program("curl")?.args(arguments).arg(url).output().unwrap();
        Some(String::from_utf8_lossy(&output.stdout).to_lowercase())
    };
    let wanted = format!("alt-svc: h3=\":{}\"; ma=86400\r\n", site.address.port());
    for protocol in ["--http1.1", "--http2"] {
        let Some(head) = ask(protocol) else { return eprintln!("skipped: curl is not installed") };
        assert!(head.contains(&wanted), "{protocol}: {head}");
    }
}

#[test]
fn a_reload_changes_certificates_and_ends_http3() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_certificate(folder.path());
    let with = |of_listener: &str| format!("{}{}", base(folder.path()), settings(folder.path(), of_listener, ""));
    let steered = Steered::start(folder.path(), &with("http3 = true"));
    let address = steered.server.addresses()[0];
    let connect = |pair: &rcgen::CertifiedKey<KeyPair>| Client::with(address, tls(pair.cert.der(), None));
    let before = connect(&first).unwrap();
    assert_eq!(before.get("/fresh").status(), "200");
    let second = write_certificate(folder.path());
    steered.reload(&with("http3 = true\nhttp2 = false")).unwrap();
    stand::wait_for("the new certificate", || connect(&second).is_ok());
    assert!(connect(&first).is_err());
    assert_eq!(before.get("/fresh").status(), "200", "an open connection goes on");
    let (_send, mut under_way) = before.begin(&headers(&get("/slow/3000")), true);
    before.wait(under_way.read_chunk(1, true)).unwrap().unwrap();
    steered.reload(&with("")).unwrap();
    // While an answer of before is under way, HTTP/3 is switched on again, and off.
    steered.reload(&with("http3 = true")).unwrap();
    stand::wait_for("a connection", || connect(&second).is_ok_and(|client| client.get("/fresh").status() == "200"));
    steered.reload(&with("")).unwrap();
    assert!(before.wait(under_way.read_to_end(1_000)).unwrap().ends_with(b"slow"));
    assert_eq!(before.closed().0, ErrorCode::NoError.number());
    assert!(matches!(connect(&second), Err(ConnectionError::ConnectionClosed(_))), "it is refused at once");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"\x16\x03\x01").unwrap();
    steered.reload(&with("http3 = true")).unwrap();
    stand::wait_for("a connection", || connect(&second).is_ok_and(|client| client.get("/fresh").status() == "200"));
}

#[test]
fn certificates_of_clients_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(folder.path().join("ca.pem"), params.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "ada");
    let certificate = params.signed_by(&key, &issuer).unwrap().der().clone();
    let of_listener = format!(
        "client_certificates = \"require\"\nclient_ca = \"{}/ca.pem\"\ncertificate_user = \"cn\"",
        folder.path().display()
    );
    let site = Site::with(folder.path(), &of_listener, "");
    let own = (certificate, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())));
    let client = Client::with(site.address, tls(&site.certificate, Some(own))).unwrap();
    assert_eq!(client.get("/fresh").status(), "200");
    // The server hears of the missing certificate after the client's side of the handshake is done.
    if let Ok(client) = Client::with(site.address, tls(&site.certificate, None)) {
        let ended = client.wait(client.quic.closed());
        assert!(matches!(ended, ConnectionError::ConnectionClosed(_)), "{ended}");
    }
    drop(client);
    let log = site.log(folder.path());
    assert!(log.contains(" ada [") && log.contains("tls-protocol"), "{log}");
}

#[test]
fn http3_is_for_the_sites_of_a_listener_with_tls() {
    let tls = "tls = [{ chain = \"c\", key = \"k\" }]\n";
    let site = "[[site]]\nhosts = [\"a.test\"]\norigin = \"http://b.test\"\n";
    for (listener, beside, part) in [
        ("", site, "HTTP/3 is spoken over TLS alone"),
        (tls, "", "is no forward proxy, and there is no site"),
        (&*format!("{tls}forward = true\n"), site, "has no `forward`"),
        (&*format!("{tls}intercept = true\n"), site, "has no `intercept`"),
        (&*format!("{tls}proxy_protocol = [\"10.0.0.0/8\"]\n"), site, "has no `proxy_protocol`"),
        (&*format!("{tls}activation = \"web\"\n"), site, "has no `activation`"),
        ("socks = true\n", site, "HTTP/3 is spoken over TLS alone"),
    ] {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n{listener}{beside}");
        let report = Loaded::parse("test", &text, &[]).err().map(|report| report.to_string()).unwrap_or_default();
        assert!(report.contains(part), "{text}: {report}");
    }
    let ordered = "site_certificates = true\n";
    for (listener, beside) in [(tls, site), (ordered, site), (&*format!("{tls}origin = \"http://b.test\"\n"), "")] {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n{listener}{beside}");
        assert!(Loaded::parse("test", &text, &[]).is_ok_and(|loaded| loaded.config.listens[0].http3), "{text}");
    }
}

/// A client may open no more streams than it is told, and others as these end.
#[test]
fn streams_are_as_many_as_permitted() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    let open: Vec<_> = (0..100).map(|_| client.begin(&headers(&get("/echo"))[..5], false)).collect();
    let one_more = client.runtime.block_on(async {
        tokio::time::timeout(std::time::Duration::from_millis(300), client.quic.open_bi()).await.is_ok()
    });
    assert!(!one_more);
    // A stream that is dropped would end in the middle of a frame, which is a fault of the connection.
    for (mut send, _) in open {
        send.reset(code(ErrorCode::RequestCancelled)).unwrap();
    }
    assert_eq!(client.get("/fresh").status(), "200");
}
