//! Troubles with TLS: with files at the start, and with a peer in a handshake.

use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Trouble with certificates, keys or their files.
#[derive(Debug)]
pub enum TlsError {
    /// A file that must have PEM in it.
    Pem {
        /// Which file.
        path: PathBuf,
        /// The content that was looked for.
        what: &'static str,
        /// The error of the reader.
        source: rustls::pki_types::pem::Error,
    },
    /// A file or folder that could not be read or made.
    File {
        /// Which one.
        path: PathBuf,
        /// The attempted action.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The CA's key can be read by others.
    KeyIsOpen {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A certificate and a key that rustls does not take.
    Pair {
        /// The file of the chain.
        chain: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// Something else that rustls does not take.
    Rustls {
        /// The attempted action.
        what: &'static str,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// A file whose content rustls does not take.
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Its purpose.
        what: &'static str,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// A certificate that could not be made.
    Make {
        /// For whom.
        what: String,
        /// The error of rcgen.
        source: rcgen::Error,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Pem { path, what, .. } => {
                write!(f, "cannot read a {what} from {} (PEM is expected)", path.display())
            }
            TlsError::File { path, what, .. } => write!(f, "cannot {what} {}", path.display()),
            TlsError::KeyIsOpen { path, mode } => write!(
                f,
                "the CA's key {0} can be read by others (mode {mode:04o}): run `chmod 600 {0}`, or delete the file for a new CA",
                path.display()
            ),
            TlsError::Pair { chain, .. } => write!(f, "the certificate {} and its key are not usable", chain.display()),
            TlsError::Rustls { what, .. } => f.write_str(what),
            TlsError::Unusable { path, what, .. } => write!(f, "{} is not usable as {what}", path.display()),
            TlsError::Make { what, .. } => write!(f, "cannot make a certificate for {what}"),
        }
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TlsError::Pem { source, .. } => Some(source),
            TlsError::File { source, .. } => Some(source),
            TlsError::KeyIsOpen { .. } => None,
            TlsError::Pair { source, .. } | TlsError::Rustls { source, .. } | TlsError::Unusable { source, .. } => {
                Some(source)
            }
            TlsError::Make { source, .. } => Some(source),
        }
    }
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeTrouble {
    /// The client does not accept a certificate of the local CA: it has its own roots, or pins. The
    /// host had better be tunnelled the next time.
    ClientRejectsCa,
    /// The origin's certificate is not valid; the words say why.
    OriginNotTrusted(String),
    /// The client's certificate is not valid, or it has none where one is demanded; the word of records, and the reason.
    ClientNotTrusted(&'static str, String),
    /// The peer ended the connection.
    Closed,
    /// The peers have no common version or cipher, or one of them broke the protocol.
    Protocol(String),
    /// The connection failed.
    Broken(io::ErrorKind),
    /// The client did not finish it in time.
    Late,
}

impl HandshakeTrouble {
    /// Reads what tokio-rustls and rustls wrap into an I/O error.
    pub fn of(error: &io::Error) -> HandshakeTrouble {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::AlertReceived(alert)) if rejects_certificate(*alert) => {
                HandshakeTrouble::ClientRejectsCa
            }
            Some(rustls::Error::InvalidCertificate(why)) => HandshakeTrouble::OriginNotTrusted(why.to_string()),
            Some(other) => HandshakeTrouble::Protocol(other.to_string()),
            None => match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    HandshakeTrouble::Closed
                }
                kind => HandshakeTrouble::Broken(kind),
            },
        }
    }

    /// [`of`](HandshakeTrouble::of) on the side of a listener: a certificate that is not valid is the client's.
    pub fn of_client(error: &io::Error) -> HandshakeTrouble {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(rustls::Error::InvalidCertificate(why)) => {
                HandshakeTrouble::ClientNotTrusted(word_of_client_certificate(why), why.to_string())
            }
            Some(rustls::Error::NoCertificatesPresented) => {
                HandshakeTrouble::ClientNotTrusted("client-certificate-missing", "it has shown none".to_owned())
            }
            _ => HandshakeTrouble::of(error),
        }
    }

    /// The word in records and logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            HandshakeTrouble::ClientRejectsCa => "client-rejects-ca",
            HandshakeTrouble::OriginNotTrusted(_) => "origin-not-trusted",
            HandshakeTrouble::ClientNotTrusted(word, _) => word,
            HandshakeTrouble::Closed => "tls-closed",
            HandshakeTrouble::Protocol(_) => "tls-protocol",
            HandshakeTrouble::Broken(_) => "tls-broken",
            HandshakeTrouble::Late => "tls-late",
        }
    }
}

/// The word for a certificate of a client that is not valid.
fn word_of_client_certificate(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "client-certificate-expired",
        CertificateError::Revoked => "client-certificate-revoked",
        CertificateError::UnknownIssuer => "client-certificate-foreign",
        CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => "client-certificate-unknown-status",
        _ => "client-certificate-wrong",
    }
}

/// The alerts by which clients say that they do not trust a certificate (RFC 8446 section 6.2): OpenSSL and
/// rustls say unknown_ca, Go bad_certificate, Java certificate_unknown, others access_denied.
fn rejects_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_told_apart() {
        let wrapped = |error: rustls::Error| HandshakeTrouble::of(&io::Error::new(io::ErrorKind::InvalidData, error));
        let alert = |alert| wrapped(rustls::Error::AlertReceived(alert));
        assert_eq!(alert(AlertDescription::UnknownCA), HandshakeTrouble::ClientRejectsCa);
        assert_eq!(alert(AlertDescription::CertificateUnknown), HandshakeTrouble::ClientRejectsCa);
        assert_eq!(alert(AlertDescription::NoApplicationProtocol).as_str(), "tls-protocol");
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert_eq!(wrapped(untrusted).as_str(), "origin-not-trusted");
        assert_eq!(HandshakeTrouble::of(&io::ErrorKind::UnexpectedEof.into()), HandshakeTrouble::Closed);
        assert_eq!(HandshakeTrouble::of(&io::ErrorKind::TimedOut.into()).as_str(), "tls-broken");
    }
}
