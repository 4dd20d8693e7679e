//! Clients that come again.

use super::Site;
use super::client::Client;
use crate::seen::stand;
use quinn::ClientConfig;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts certificates that are shown: in a session that is resumed there are none.
#[derive(Debug)]
struct Counted(Arc<WebPkiServerVerifier>, AtomicUsize);

impl ServerCertVerifier for Counted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.verify_server_cert(certificate, between, name, status, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A session is resumed, and no request comes before the handshake is done (RFC 8470).
#[test]
fn sessions_are_resumed_without_early_data() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let mut roots = RootCertStore::empty();
    roots.add(site.certificate.clone()).unwrap();
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build().unwrap();
    let counted = Arc::new(Counted(verifier, AtomicUsize::new(0)));
    let builder = rustls::ClientConfig::builder().dangerous();
    let mut config = builder.with_custom_certificate_verifier(Arc::<Counted>::clone(&counted)).with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    config.enable_early_data = true;
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let client = Client::with(site.address, config.clone()).unwrap();
    assert_eq!((client.get("/fresh").status(), counted.1.load(Ordering::SeqCst)), ("200", 1));
    stand::wait_for("a session that is resumed", || {
        let before = counted.1.load(Ordering::SeqCst);
        client.wait(async {
            let connecting = client.endpoint.connect_with(config.clone(), site.address, "site.test").unwrap();
            match connecting.into_0rtt() {
                Ok(_) => panic!("early data would be sent"),
                Err(connecting) => connecting.await.unwrap(),
            }
        });
        counted.1.load(Ordering::SeqCst) == before
    });
}
