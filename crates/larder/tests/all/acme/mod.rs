//! Certificates of sites by ACME: orders, what is kept, and authorities that misbehave.

mod base64url;
mod ca;
mod orders;
mod pebble;
mod troubles;

use crate::seen::stand;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// A configuration with a listener in clear text, one that shows the certificates of sites, and these sites.
fn text(
    folder: &Path,
    acme: &str,
    (plain, tls): (SocketAddr, SocketAddr),
    origin: SocketAddr,
    sites: &[&[&str]],
) -> String {
    let mut text = format!(
        "store = {:?}\nadmin = \"none\"\nworkers = 2\ndisk = 0\n[timeouts]\ndrain = \"1s\"\n[[listen]]\naddress = \"{plain}\"\n[[listen]]\naddress = \"{tls}\"\nsite_certificates = true\n{acme}",
        folder.join("store")
    );
    for hosts in sites {
        text += &format!("[[site]]\nhosts = {hosts:?}\norigin = \"http://{origin}\"\ncertificate = \"acme\"\n");
    }
    text
}

/// Any free port.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Two ports that were free just now.
fn free() -> (SocketAddr, SocketAddr) {
    let (one, other) = (TcpListener::bind(ANY).unwrap(), TcpListener::bind(ANY).unwrap());
    (one.local_addr().unwrap(), other.local_addr().unwrap())
}

/// Takes every certificate: tests look at it themselves.
#[derive(Debug)]
struct TakesAll;

impl ServerCertVerifier for TakesAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A connection with TLS on which this name was asked for, and these protocols.
fn shake_hands(to: SocketAddr, name: &str, protocols: &[&[u8]]) -> io::Result<Tls> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(TakesAll)).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let tcp = TcpStream::connect(to)?;
    tcp.set_read_timeout(Some(stand::WITHIN))?;
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?, tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// The certificate that is shown for a name.
fn shown(tls: SocketAddr, name: &str) -> io::Result<Vec<u8>> {
    let stream = shake_hands(tls, name, &[])?;
    let shown = stream.conn.peer_certificates().and_then(|chain| chain.first());
    shown.map(|leaf| leaf.to_vec()).ok_or_else(|| io::Error::other("no certificate"))
}

/// The names in a certificate.
fn names_of(certificate: &[u8]) -> Vec<String> {
    let (_, read) = x509_parser::certificate::X509Certificate::from_der(certificate).unwrap();
    let names = &read.subject_alternative_name().unwrap().unwrap().value.general_names;
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        other => panic!("{other:?}"),
    };
    names.iter().map(name).collect()
}

/// A request over TLS, on a connection of its own.
fn ask(tls: SocketAddr, name: &str) -> io::Result<String> {
    let mut stream = shake_hands(tls, name, &[b"http/1.1"])?;
    stream.write_all(format!("GET /fresh HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The file of a challenge, as an authority asks for it (RFC 8555 section 8.3).
fn file_of(plain: SocketAddr, name: &str, token: &str) -> Option<String> {
    let request =
        format!("GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    let answer = stand::exchange(plain, &request);
    answer.starts_with("HTTP/1.1 200").then(|| stand::body(&answer).to_owned())
}

/// The proof in the certificate of a challenge, as an authority asks for it (RFC 8737 section 3).
fn proof_of(tls: SocketAddr, name: &str) -> Option<Vec<u8>> {
    let stream = shake_hands(tls, name, &[b"acme-tls/1"]).ok()?;
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    let leaf = stream.conn.peer_certificates()?.first()?.to_vec();
    assert_eq!(names_of(&leaf), [name]);
    let (_, read) = x509_parser::certificate::X509Certificate::from_der(&leaf).ok()?;
    let is_proof = |oid: &str| oid == "1.3.6.1.5.5.7.1.31";
    let proof = read.extensions().iter().find(|extension| is_proof(&extension.oid.to_id_string()))?;
    assert!(proof.critical);
    // An octet string of 32 bytes.
    proof.value.strip_prefix(&[4, 32]).map(<[u8]>::to_vec)
}
