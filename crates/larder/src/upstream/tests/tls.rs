//! Origins over TLS: whom we believe, what we offer, and how an end is told from a cut.

use super::h2_play::{H2Peer, get_h2, locally};
use super::play::*;
use crate::upstream::{CertificateTrouble, Origin, TlsTrouble, UpstreamFaultKind, Upstreams};
use larder_wire::Scheme;
use larder_wire::h2::frame;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An authority of the tests' own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

fn authority() -> Authority {
    authority_named("an authority")
}

fn authority_named(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    Authority { issuer: Issuer::new(params, key), certificate }
}

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    fn upstreams(&self) -> Upstreams {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        upstreams(|settings| settings.tls = trust(roots))
    }
}

/// An origin's behaviour after an answer.
#[derive(Clone, Copy)]
enum Habit {
    Stay(&'static str),
    Cut(&'static str),
    Close(&'static str),
}

async fn secure_origin((certificate, key): Identity, habit: Habit) -> SocketAddr {
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, habit).await;
                }
            });
        }
    });
    address
}

async fn serve(stream: TlsStream<TcpStream>, habit: Habit) {
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(stream.get_ref().1.server_name(), Some("localhost"));
    let mut peer = Peer { stream, number: 0 };
    match habit {
        Habit::Stay(answer) => peer.answer_all(answer).await,
        Habit::Cut(answer) => {
            peer.request().await;
            peer.say(answer).await;
        }
        Habit::Close(answer) => {
            peer.request().await;
            peer.say(answer).await;
            let _ = peer.stream.shutdown().await;
        }
    }
}

fn secure(host: &str, address: SocketAddr) -> Origin {
    Origin { scheme: Scheme::Https, ..named(host, address.port()) }
}

#[tokio::test]
async fn a_session_with_a_trusted_origin_serves_again() {
    let authority = authority();
    let origin = secure("localhost", secure_origin(authority.issue("localhost", |_| ()), Habit::Stay(OK)).await);
    let upstreams = authority.upstreams();
    assert_eq!(exchange(&upstreams, &origin, GET).await.unwrap(), b"ok");
    let mut connection = lease(&upstreams, &origin).await.unwrap();
    assert!(connection.is_reused());
    ask(&mut connection, GET).await.unwrap();
    assert_eq!(whole_body(&mut connection).await.unwrap(), b"ok");
    connection.release();
    assert_eq!(upstreams.stats().total().opened, 1);
}

#[tokio::test]
async fn an_origin_that_cannot_prove_itself_is_refused_with_the_reason() {
    let (ours, theirs, impostor) = (authority(), authority_named("another authority"), authority());
    let past = rcgen::date_time_ymd(2001, 1, 1);
    let far = rcgen::date_time_ymd(2999, 1, 1);
    let table = [
        (ours.issue("localhost", |params| params.not_after = past), CertificateTrouble::Expired),
        (ours.issue("localhost", |params| params.not_before = far), CertificateTrouble::NotYetValid),
        (ours.issue("other.example", |_| ()), CertificateTrouble::WrongName),
        (theirs.issue("localhost", |_| ()), CertificateTrouble::UnknownIssuer),
        (impostor.issue("localhost", |_| ()), CertificateTrouble::BadSignature),
        (self_signed(), CertificateTrouble::SelfSigned),
    ];
    let upstreams = ours.upstreams();
    for (identity, why) in table {
        let origin = secure("localhost", secure_origin(identity, Habit::Stay(OK)).await);
        let fault = lease(&upstreams, &origin).await.err().unwrap();
        let wanted = UpstreamFaultKind::Tls(TlsTrouble::CertificateInvalid { why });
        assert_eq!((fault.kind.clone(), fault.status()), (wanted, 502), "{fault}");
        assert!(fault.detail.contains("localhost"), "{fault}");
        assert_eq!(fault.as_str(), why.as_str());
    }
}

fn self_signed() -> Identity {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

#[tokio::test]
async fn an_origin_that_speaks_no_tls_fails_the_handshake() {
    let address = origin(|mut peer| async move {
        peer.say("HTTP/1.1 400 Bad Request\r\n\r\n").await;
        peer.wait_for_close().await;
    })
    .await;
    let fault = lease(&authority().upstreams(), &secure("localhost", address)).await.err().unwrap();
    assert_eq!(fault.kind, UpstreamFaultKind::Tls(TlsTrouble::Handshake), "{fault}");
}

/// An origin that speaks the protocol which the handshake chose, by these; answers with its name.
async fn origin_of_protocols((certificate, key): Identity, protocols: &[&[u8]]) -> SocketAddr {
    let mut config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            tokio::spawn(async move {
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    let mut peer = Peer { stream, number: 0 };
                    return peer.answer_all("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold").await;
                }
                let mut peer = H2Peer::on(stream, 0, Vec::new());
                peer.say(|out| frame::write_settings(out, &frame::Settings::default())).await;
                while let Some((stream, _)) = peer.request().await {
                    peer.answer(stream, b"new").await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn the_handshake_chooses_the_protocol() {
    let authority = authority();
    for (protocols, body, by_http2) in
        [(&[&b"h2"[..], b"http/1.1"][..], b"new", 3), (&[b"http/1.1"], b"old", 0), (&[], b"old", 0)]
    {
        let address = origin_of_protocols(authority.issue("localhost", |_| ()), protocols).await;
        let (upstreams, origin) = (authority.upstreams(), secure("localhost", address));
        locally(async {
            for _ in 0..3 {
                assert_eq!(get_h2(&upstreams, &origin, "/").await.unwrap().1, body);
            }
        })
        .await;
        let total = upstreams.stats().total();
        assert_eq!((total.opened, total.reused, total.http2_requests), (1, 2, by_http2), "{protocols:?}");
    }
    // One that can't prove itself is refused as ever.
    let impostor = authority_named("another authority");
    let address = origin_of_protocols(impostor.issue("localhost", |_| ()), &[b"h2"]).await;
    let fault = locally(get_h2(&authority.upstreams(), &secure("localhost", address), "/")).await.unwrap_err();
    assert_eq!(fault.as_str(), "certificate-unknown-issuer");
}

#[tokio::test]
async fn a_body_until_the_close_needs_the_farewell() {
    let authority = authority();
    let upstreams = authority.upstreams();
    let answer = "HTTP/1.0 200 OK\r\n\r\nall of it";
    let address = secure_origin(authority.issue("localhost", |_| ()), Habit::Close(answer)).await;
    assert_eq!(exchange(&upstreams, &secure("localhost", address), GET).await.unwrap(), b"all of it");

    let address = secure_origin(authority.issue("localhost", |_| ()), Habit::Cut(answer)).await;
    let fault = exchange(&upstreams, &secure("localhost", address), GET).await.unwrap_err();
    assert_eq!(fault.kind, UpstreamFaultKind::Truncated, "{fault}");
}

#[tokio::test]
async fn an_idle_session_that_ended_or_spoke_is_not_used_again() {
    let authority = authority();
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n";
    for habit in [Habit::Close(OK), Habit::Stay(twice)] {
        let upstreams = authority.upstreams();
        let origin = secure("localhost", secure_origin(authority.issue("localhost", |_| ()), habit).await);
        assert_eq!(exchange(&upstreams, &origin, GET).await.unwrap(), b"ok");
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(!lease(&upstreams, &origin).await.unwrap().is_reused());
    }
}
