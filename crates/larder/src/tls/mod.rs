//! TLS in both roles: towards origins, on listeners, and interception with certificates of a local CA.
//!
//! The cryptographic provider is passed explicitly everywhere; nothing is set for the process. Sockets and
//! decisions are elsewhere: here are configurations, certificates and what a ClientHello says.

pub mod bundle;
pub mod ca;
pub mod clients;
pub mod hello;
pub mod interception;
pub mod pass;
pub mod served;
pub mod server;
pub mod site_certificates;

mod pem;
mod recent;
mod sessions;
mod trouble;
mod trusted;

pub use trouble::{HandshakeTrouble, TlsError};
pub use trusted::TrustedRoots;

use clients::ClientTrust;
use larder_wire::Host;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sessions::Sessions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The only application protocol that is spoken over TLS so far.
pub const ALPN_HTTP_1_1: &[u8] = b"http/1.1";

/// The protocol name of HTTP/2 over TLS (RFC 9113 section 3.2).
pub const ALPN_HTTP_2: &[u8] = b"h2";

/// The protocol name of HTTP/3 (RFC 9114 section 3.1).
pub const ALPN_HTTP_3: &[u8] = b"h3";

/// The certificates that are trusted, and the files that could not be read.
#[derive(Clone, Debug)]
pub struct Roots {
    /// All of them, in the order found.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The files that were skipped, and why; a system without any root is named here too.
    pub troubles: Vec<String>,
}

impl Roots {
    /// No origin is verified by these.
    pub fn none() -> Roots {
        Roots { certificates: Vec::new(), troubles: Vec::new() }
    }

    /// With further certificates.
    fn and(mut self, more: Vec<CertificateDer<'static>>) -> Roots {
        self.certificates.extend(more);
        if self.certificates.is_empty() {
            let remedy = "install the package ca-certificates or set SSL_CERT_FILE";
            self.troubles.push(format!("no root certificates found, no origin can be verified: {remedy}"));
        }
        self
    }

    /// The certificates as a store for a verifier. Certificates it cannot read are left out: system
    /// bundles have some that are decades old.
    pub fn store(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(self.certificates.iter().cloned());
        store
    }
}

/// The roots of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured) and those of the files in `extra`.
/// Trouble with the system's is noted; a file that was named must be readable.
pub fn roots(extra: &[PathBuf]) -> Result<Roots, TlsError> {
    Ok(system_roots().and(named_roots(extra)?))
}

fn system_roots() -> Roots {
    let native = rustls_native_certs::load_native_certs();
    Roots { certificates: native.certs, troubles: native.errors.iter().map(ToString::to_string).collect() }
}

fn named_roots(files: &[PathBuf]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = files.iter().map(|path| certificates_of(path)).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// The configuration for connections to origins: certificates verified against `roots`, http/1.1.
pub fn client_config(roots: &TrustedRoots) -> Result<Arc<ClientConfig>, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError::Rustls { what: "cannot set up TLS towards origins", source })?
        .dangerous()
        // No danger: the usual verifier, which waits for its roots.
        .with_custom_certificate_verifier(roots.verifier())
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN_HTTP_1_1.to_vec()];
    config.resumption = Resumption::store(Arc::new(Sessions::new()));
    Ok(Arc::new(config))
}

/// The name that an origin's certificate must have: the host's, or its address. `None` for hosts that no
/// certificate can name.
pub fn server_name(host: &Host) -> Option<ServerName<'static>> {
    match host.ip() {
        Some(address) => Some(ServerName::IpAddress(address.into())),
        None => ServerName::try_from(host.as_str().to_owned()).ok(),
    }
}

/// The provider of all cryptography here.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A server's configuration that answers with what `resolver` chooses, and asks clients for certificates where `clients` says so.
fn server_config(
    resolver: Arc<dyn rustls::server::ResolvesServerCert>,
    clients: Option<&ClientTrust>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError::Rustls { what: "cannot set up TLS for clients", source })?;
    let builder = match clients {
        Some(trust) => builder.with_client_cert_verifier(trust.verifier()),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = vec![ALPN_HTTP_1_1.to_vec()];
    Ok(config)
}

/// The certificates of a PEM file; at least one.
fn certificates_of(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Pem { path: path.to_owned(), what: "certificate", source };
    let found = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let certificates = found.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    match certificates.is_empty() {
        true => Err(unreadable(rustls::pki_types::pem::Error::NoItemsFound)),
        false => Ok(certificates),
    }
}
