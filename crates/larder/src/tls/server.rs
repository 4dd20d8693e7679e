//! Certificates of a listener: PEM files, chosen by the name that the client asks for.

use super::clients::ClientTrust;
use super::site_certificates::{ALPN_ACME_TLS_1, SiteCertificates};
use super::{ALPN_HTTP_2, ALPN_HTTP_3, TlsError, certificates_of, provider, server_config};
use crate::config::CertificateFiles;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::Arc;

/// All certificates of one listener, in the order of the configuration.
#[derive(Debug)]
pub struct Certificates {
    keys: Vec<Arc<CertifiedKey>>,
    /// Those of sites, where the listener shows them.
    of_sites: Option<Arc<SiteCertificates>>,
}

impl Certificates {
    /// Reads the files. A key that does not belong to its certificate is refused here.
    pub fn load(files: &[CertificateFiles]) -> Result<Certificates, TlsError> {
        let keys = files.iter().map(load).collect::<Result<_, _>>()?;
        Ok(Certificates { keys, of_sites: None })
    }

    /// These, and behind them those of sites.
    pub fn and_of_sites(self, of_sites: Arc<SiteCertificates>) -> Certificates {
        Certificates { of_sites: Some(of_sites), ..self }
    }

    /// The first certificate that is valid for `name`, else the first one: old clients and those that
    /// ask for an address name nobody.
    pub fn choose(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let named = name.and_then(|name| self.keys.iter().find(|key| is_valid_for(key, name)));
        let of_sites = self.of_sites.as_ref();
        match (named, name) {
            (Some(key), _) => Some(Arc::clone(key)),
            (None, Some(name)) if of_sites.is_some_and(|sites| sites.has(name)) => of_sites?.find(Some(name)),
            (None, _) => self.keys.first().cloned().or_else(|| of_sites?.find(None)),
        }
    }

    /// The configuration of a listener, which asks clients for certificates where `clients` says so. Its tickets are its own: no session
    /// of another listener, or of one before a reload, is resumed with it. With `http2` it offers HTTP/2 before HTTP/1.1.
    pub fn config(self: &Arc<Self>, clients: Option<&ClientTrust>, http2: bool) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = server_config(Arc::<Certificates>::clone(self), clients)?;
        if http2 {
            config.alpn_protocols.insert(0, ALPN_HTTP_2.to_vec());
        }
        if self.of_sites.is_some() {
            // Last: a client that can speak HTTP does so.
            config.alpn_protocols.push(ALPN_ACME_TLS_1.to_vec());
        }
        config.ticketer = ticketer()?;
        Ok(Arc::new(config))
    }

    /// Like [`Certificates::config`], for QUIC, which carries HTTP/3 alone. There is no early data (RFC 8470): a request that could be played again by others is
    /// never read.
    pub fn quic_config(self: &Arc<Self>, clients: Option<&ClientTrust>) -> Result<Arc<QuicServerConfig>, TlsError> {
        let mut config = server_config(Arc::<Certificates>::clone(self), clients)?;
        config.alpn_protocols = vec![ALPN_HTTP_3.to_vec()];
        config.max_early_data_size = 0;
        config.ticketer = ticketer()?;
        QuicServerConfig::try_from(config).map(Arc::new).map_err(|_| TlsError::Rustls {
            what: "cannot set up QUIC",
            source: rustls::Error::General("its first cipher suite is missing".to_owned()),
        })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A handshake by which an authority validates a name offers this protocol alone (RFC 8737 section 3).
        let mut offered = hello.alpn().into_iter().flatten();
        if let (Some(sites), Some(ALPN_ACME_TLS_1), None) = (&self.of_sites, offered.next(), offered.next()) {
            return sites.challenge(hello.server_name()?);
        }
        self.choose(hello.server_name())
    }
}

/// Keys of session tickets, which nobody else has.
fn ticketer() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    rustls::crypto::aws_lc_rs::Ticketer::new()
        .map_err(|source| TlsError::Rustls { what: "cannot set up TLS session tickets", source })
}

fn load(files: &CertificateFiles) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates_of(&files.chain)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Pem {
        path: files.key.clone(),
        what: "private key",
        source,
    })?;
    signed_key(chain, key).map(Arc::new).map_err(|source| TlsError::Pair { chain: files.chain.clone(), source })
}

/// A chain with its key; an error where they do not belong together.
pub(crate) fn signed_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    CertifiedKey::from_der(chain, key, &provider())
}

impl Certificates {
    /// Whether the certificate for `asked`, the name in a client's handshake, is valid for this host too (RFC 9113 section 9.1.1).
    pub fn covers(&self, asked: &str, host: &str) -> bool {
        self.choose(Some(asked)).is_some_and(|key| is_valid_for(&key, host))
    }
}

/// The same rule by which clients accept a name, wildcards included.
pub(crate) fn is_valid_for(key: &CertifiedKey, name: &str) -> bool {
    let Ok(leaf) = key.end_entity_cert().and_then(ParsedCertificate::try_from) else {
        return false;
    };
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(&leaf, &name).is_ok())
}
