//! A certificate that the authority has issued, with its key.

use crate::tls::clients::CertificateNames;
use crate::tls::served::ServedCertificate;
use crate::tls::server::{is_valid_for, signed_key};
use aws_lc_rs::digest;
use larder_wire::date::Stamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::PathBuf;
use std::sync::Arc;

/// Certificates in a chain; longer ones are refused.
const CHAIN_MAX: usize = 10;

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(super) struct Issued {
    /// The chain and the key, as TLS uses them.
    pub key: Arc<CertifiedKey>,
    /// Its `notBefore`.
    pub not_before: Stamp,
    /// Its `notAfter`.
    pub not_after: Stamp,
    /// The certificate itself.
    pub leaf: CertificateDer<'static>,
    /// A number of this certificate.
    pub draw: u64,
}

impl Issued {
    /// Reads a key and a chain, all PEM. A certificate that is not for all of these names, or not for this key, is refused with the reason.
    pub(super) fn read(pem: &[u8], names: &[Arc<str>]) -> Result<Issued, String> {
        let chain = CertificateDer::pem_slice_iter(pem).take(CHAIN_MAX + 1).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("its certificates are no PEM: {error}"))?;
        let leaf = match chain.first() {
            Some(leaf) if chain.len() <= CHAIN_MAX => leaf.clone(),
            Some(_) => return Err(format!("its chain has more than {CHAIN_MAX} certificates")),
            None => return Err("there is no certificate in it".to_owned()),
        };
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("its key is no PEM: {error}"))?;
        let key = signed_key(chain, key).map_err(|error| format!("key and certificate are not usable: {error}"))?;
        if let Some(name) = names.iter().find(|name| !is_valid_for(&key, name)) {
            return Err(format!("the certificate is not for {name}"));
        }
        let read = CertificateNames::read(&leaf).ok_or("the certificate has another form than X.509 demands")?;
        let hash = digest::digest(&digest::SHA256, &leaf);
        let draw = hash.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Issued { key: Arc::new(key), not_before: read.not_before, not_after: read.not_after, leaf, draw })
    }

    /// Whether it should have been renewed for some time already: five sixths of its life are over.
    pub(super) fn is_late(&self, now: Stamp) -> bool {
        let life = self.not_after.0.saturating_sub(self.not_before.0);
        now.0 >= self.not_before.0.saturating_add(life / 6 * 5)
    }

    /// The certificate, as operators are told of it.
    pub(super) fn served(&self, file: PathBuf, names: &[Arc<str>]) -> ServedCertificate {
        ServedCertificate {
            file,
            name: names.first().map(ToString::to_string).unwrap_or_default(),
            not_before: self.not_before,
            not_after: self.not_after,
        }
    }
}
