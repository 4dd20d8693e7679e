//! The certificates that a listener shows: how long they count, and whether their files have changed.

use super::clients::CertificateNames;
use super::{TlsError, certificates_of};
use crate::config::{CertificateFiles, Listen};
use crate::file_state::FileState;
use larder_wire::date::{self, Stamp};
use std::path::PathBuf;

/// A certificate that ends sooner is told to the operator, in seconds: authorities that renew by themselves do so a month before.
const SOON_SECONDS: u64 = 14 * 86_400;

/// A certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedCertificate {
    /// Its file.
    pub file: PathBuf,
    /// Its first name.
    pub name: String,
    /// Its `notBefore`.
    pub not_before: Stamp,
    /// Its `notAfter`.
    pub not_after: Stamp,
}

impl ServedCertificate {
    /// Reads the first certificate of the chain; `None` where it has another form than X.509 demands.
    pub fn read(files: &CertificateFiles) -> Result<Option<ServedCertificate>, TlsError> {
        let chain = certificates_of(&files.chain)?;
        let read = chain.first().and_then(CertificateNames::read);
        Ok(read.map(|read| ServedCertificate {
            file: files.chain.clone(),
            name: read.names.first().map(|(_, name)| name.clone()).unwrap_or_default(),
            not_before: read.not_before,
            not_after: read.not_after,
        }))
    }

    /// A word to the operator, where clients refuse it or soon will.
    pub fn trouble(&self, now: Stamp) -> Option<String> {
        let day = |stamp| String::from_utf8_lossy(&date::format_date(stamp)).into_owned();
        let of = format!("the certificate of {} in {}", self.name, self.file.display());
        match self.not_after.0.checked_sub(now.0) {
            None => Some(format!("{of} has ended on {}: clients refuse it; renew it", day(self.not_after))),
            Some(_) if now < self.not_before => {
                Some(format!("{of} begins on {}: until then clients refuse it", day(self.not_before)))
            }
            Some(left) if left < SOON_SECONDS => {
                Some(format!("{of} ends in {} days, on {}: renew it", left / 86_400, day(self.not_after)))
            }
            Some(_) => None,
        }
    }
}

/// The state of each file of a listener's certificates; empty without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateStamp(Vec<Option<FileState>>);

impl CertificateStamp {
    /// Looks at the files.
    pub fn of(listen: &Listen) -> CertificateStamp {
        if !listen.is_tls() {
            return CertificateStamp::default();
        }
        let pairs = listen.tls.iter().flat_map(|files| [&files.chain, &files.key]);
        let clients = listen.clients.authorities.iter().chain(&listen.clients.revoked);
        CertificateStamp(pairs.chain(clients).map(|path| FileState::of(path)).collect())
    }

    /// Whether there are files.
    pub fn has_files(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_before_it_comes() {
        let certificate = ServedCertificate {
            file: "site.pem".into(),
            name: "www.example".to_owned(),
            not_before: Stamp(1_000_000),
            not_after: Stamp(10_000_000),
        };
        let days = |days: u64| Stamp(10_000_000 - days * 86_400);
        for (now, wanted) in [
            (days(15), None),
            (days(13), Some("ends in 13 days")),
            (Stamp(10_000_000), Some("ends in 0 days")),
            (Stamp(10_000_001), Some("has ended on")),
            (Stamp(999_999), Some("begins on")),
        ] {
            let said = certificate.trouble(now);
            assert_eq!(said.is_some(), wanted.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().contains(wanted.unwrap_or_default()), "{wanted:?}");
        }
    }
}
