//! Certificates of clients: which authorities a listener trusts, and the names in a certificate that was verified.

use super::{TlsError, certificates_of, provider};
use crate::config::{CertificateDemand, CertificateUser, ClientCertificates};
use aws_lc_rs::digest;
use larder_wire::date::Stamp;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Names that are taken from one certificate.
const NAMES_MAX: usize = 32;

/// A longer name is left out, in bytes: lines of the log and rules see all of it or nothing.
const NAME_BYTES_MAX: usize = 512;

/// The certificates of clients that a listener takes.
#[derive(Debug)]
pub struct ClientTrust {
    settings: ClientCertificates,
    verifier: Arc<dyn ClientCertVerifier>,
    /// The certificates of the authorities and the revocation lists.
    content: Vec<Vec<u8>>,
}

impl ClientTrust {
    /// Reads the files that a listener names; `None` where it asks for no certificates.
    pub fn load(settings: &ClientCertificates) -> Result<Option<Arc<ClientTrust>>, TlsError> {
        let (CertificateDemand::Request | CertificateDemand::Require, Some(path)) =
            (settings.demand, &settings.authorities)
        else {
            return Ok(None);
        };
        let unusable = |source| TlsError::Unusable { path: path.clone(), what: "authority for client_ca", source };
        let mut roots = RootCertStore::empty();
        let mut content = Vec::new();
        for certificate in certificates_of(path)? {
            content.push(certificate.to_vec());
            roots.add(certificate).map_err(unusable)?;
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        if let Some(path) = &settings.revoked {
            let unreadable = |source| TlsError::Pem { path: path.clone(), what: "revocation list", source };
            let lists = CertificateRevocationListDer::pem_file_iter(path).map_err(unreadable)?;
            let lists = lists.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
            if lists.is_empty() {
                return Err(unreadable(rustls::pki_types::pem::Error::NoItemsFound));
            }
            content.extend(lists.iter().map(|list| list.to_vec()));
            builder = builder.with_crls(lists).enforce_revocation_expiration();
        }
        if settings.demand == CertificateDemand::Request {
            builder = builder.allow_unauthenticated();
        }
        let verifier = builder.build().map_err(|error| TlsError::Unusable {
            path: settings.revoked.clone().unwrap_or_else(|| path.clone()),
            what: "file for certificates of clients",
            source: rustls::Error::General(error.to_string()),
        })?;
        Ok(Some(Arc::new(ClientTrust { settings: settings.clone(), verifier, content })))
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Whether a certificate that one of them has let in counts for the same as one that the other lets in now.
    pub fn is_same(&self, other: &ClientTrust) -> bool {
        self.settings == other.settings && self.content == other.content
    }

    /// The kind of name that is the user.
    pub fn user(&self) -> CertificateUser {
        self.settings.user
    }
}

/// The names in a certificate, and the second after which it counts no more.
#[derive(Debug, PartialEq, Eq)]
pub struct CertificateNames {
    /// The names with their kinds, at least one: a certificate without any has the SHA-256 of its bytes.
    pub names: Vec<(CertificateUser, String)>,
    /// Its `notBefore`.
    pub not_before: Stamp,
    /// Its `notAfter`.
    pub not_after: Stamp,
}

impl CertificateNames {
    /// Reads a certificate that the handshake has verified; `None` where it has another form than X.509 demands.
    pub fn read(certificate: &CertificateDer<'_>) -> Option<CertificateNames> {
        let (_, read) = X509Certificate::from_der(certificate).ok()?;
        let common = read.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        let alternatives = read.subject_alternative_name().ok()?;
        let alternatives =
            alternatives.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
                GeneralName::RFC822Name(text) => Some((CertificateUser::Email, *text)),
                GeneralName::DNSName(text) => Some((CertificateUser::Dns, *text)),
                GeneralName::URI(text) => Some((CertificateUser::Uri, *text)),
                _ => None,
            });
        let mut names: Vec<(CertificateUser, String)> = common
            .map(|text| (CertificateUser::Cn, text))
            .chain(alternatives)
            .filter(|(_, text)| is_usable(text))
            .take(NAMES_MAX)
            .map(|(kind, text)| (kind, text.to_owned()))
            .collect();
        if names.is_empty() {
            let hash = digest::digest(&digest::SHA256, certificate);
            let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            names.push((CertificateUser::None, format!("sha256:{hex}")));
        }
        let stamp = |seconds: i64| Stamp(u64::try_from(seconds).unwrap_or(0));
        let (not_before, not_after) = (read.validity().not_before, read.validity().not_after);
        Some(CertificateNames {
            names,
            not_before: stamp(not_before.timestamp()),
            not_after: stamp(not_after.timestamp()),
        })
    }
}

fn is_usable(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains(char::is_control)
}
