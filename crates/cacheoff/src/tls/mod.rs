//! TLS on both sides of a cache: whom robots believe, the certificates of the origins, and connections that speak it.

mod authority;
mod channel;

pub use authority::Authority;
pub use channel::{Channel, Shaken};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// Sessions that a robot keeps: those of four servers, eight tickets each.
const SESSIONS_MAX: usize = 32;
/// The protocol inside (RFC 7301), the same for origins and for robots that speak HTTP/1.1.
const INSIDE: &[u8] = b"http/1.1";
/// The protocol of robots that speak HTTP/2, and nothing else (RFC 9113 section 3.2).
const HTTP2: &[u8] = b"h2";

/// TLS of a run.
#[derive(Clone, Debug)]
pub struct Tls {
    robots: Arc<ClientConfig>,
    origins: Option<Arc<Authority>>,
}

/// The certificates that robots believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that one of these has signed.
    Roots(Vec<CertificateDer<'static>>),
    /// Anybody's, unverified.
    Anybody,
}

impl Tls {
    /// TLS of robots, and of origins where they have an authority.
    pub fn new(trust: Trust, origins: Option<Authority>) -> Result<Self, String> {
        let failed = |error: rustls::Error| format!("TLS cannot be set up: {error}");
        let builder =
            ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(failed)?;
        let mut robots = match trust {
            Trust::Anybody => {
                let unverified = Arc::new(Unverified(provider()));
                builder.dangerous().with_custom_certificate_verifier(unverified).with_no_client_auth()
            }
            Trust::Roots(given) => {
                let mut roots = RootCertStore::empty();
                for root in given.into_iter().chain(origins.as_ref().map(|own| own.certificate().clone())) {
                    roots.add(root).map_err(|error| format!("a certificate of --ca cannot sign others: {error}"))?;
                }
                builder.with_root_certificates(roots).with_no_client_auth()
            }
        };
        robots.alpn_protocols = vec![INSIDE.to_vec()];
        Ok(Self { robots: Arc::new(robots), origins: origins.map(Arc::new) })
    }

    /// The configuration of one robot, with sessions of its own: robots are different people.
    pub fn robot(&self, speaks_http2: bool) -> Arc<ClientConfig> {
        let mut own = ClientConfig::clone(&self.robots);
        if speaks_http2 {
            own.alpn_protocols = vec![HTTP2.to_vec()];
        }
        own.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS_MAX)));
        Arc::new(own)
    }

    /// The authority that signs for the origins, if they speak TLS.
    pub fn origins(&self) -> Option<&Authority> {
        self.origins.as_deref()
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        let origins = [self, other].map(|tls| tls.origins.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&self.robots, &other.robots) && origins[0] == origins[1]
    }
}

impl Trust {
    /// The certificates of a PEM file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let unreadable = |error| format!("--ca {}: {error}; give a file with PEM certificates", path.display());
        let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        match all.map_err(unreadable)? {
            none if none.is_empty() => Err(format!("--ca {}: no PEM certificate in it", path.display())),
            all => Ok(Self::Roots(all)),
        }
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A client of TLS 1.3 that believes every certificate; for those who prove who they are by other means.
pub(crate) fn unverified() -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let unverified = Arc::new(Unverified(provider()));
    Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(unverified).with_no_client_auth()))
}

/// Believes every certificate; that the other end has its key is checked all the same.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
