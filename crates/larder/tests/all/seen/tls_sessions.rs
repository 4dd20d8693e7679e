//! Handshakes with a listener: sessions are resumed by whichever worker takes the connection, and keys are agreed on with ML-KEM.

use super::reload::{Steered, base};
use super::schemes::write_pair;
use super::stand;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

/// A request on a connection of its own: how the handshake went, and the group of its keys.
fn ask(to: SocketAddr, config: &Arc<ClientConfig>) -> (Option<HandshakeKind>, Option<NamedGroup>) {
    let name = ServerName::try_from("a.example").unwrap();
    let client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut stream = StreamOwned::new(client, TcpStream::connect(to).unwrap());
    stream.write_all(b"GET /fresh HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // The tickets come with the answer.
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    (stream.conn.handshake_kind(), stream.conn.negotiated_key_exchange_group().map(|group| group.name()))
}

#[test]
fn sessions_are_resumed_by_every_worker() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = write_pair(folder.path(), "a.example");
    let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
    let text = format!(
        "{}[[listen]]\naddress = \"127.0.0.1:0\"\ntls = [{{ chain = {chain:?}, key = {key:?} }}]\n[[site]]\nhosts = [\"a.example\"]\norigin = \"http://{}\"\n",
        base(folder.path()),
        stand::origin()
    );
    let steered = Steered::start(folder.path(), &text);
    let to = steered.server.addresses()[0];
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[version]);
        let config = Arc::new(builder.unwrap().with_root_certificates(roots.clone()).with_no_client_auth());
        let (first, group) = ask(to, &config);
        assert!(matches!(first, Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)), "{first:?}");
        if version.version == rustls::ProtocolVersion::TLSv1_3 {
            // A recording of today is not opened by a quantum computer of tomorrow.
            assert_eq!(group, Some(NamedGroup::X25519MLKEM768));
        }
        // The kernel spreads connections over both workers.
        for connection in 0..24 {
            assert_eq!(ask(to, &config).0, Some(HandshakeKind::Resumed), "{version:?}, connection {connection}");
        }
    }
}
