//! The roots by which origins are verified, while a thread may still be reading them: a system has some hundred files, and
//! right after its start, or after much traffic to its disk, each of them is a read of the disk. Clients that ask for what is
//! stored need none.

use super::{Roots, TlsError, provider};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Roots that are there, or will be soon; clones share them.
#[derive(Clone, Debug)]
pub struct TrustedRoots(Arc<OnceLock<Roots>>);

impl From<Roots> for TrustedRoots {
    fn from(roots: Roots) -> TrustedRoots {
        TrustedRoots(Arc::new(OnceLock::from(roots)))
    }
}

impl TrustedRoots {
    /// Reads the files in `extra`, and has the roots of the system read by a thread that ends with this work. A file that was
    /// named must be readable.
    pub fn read(extra: &[PathBuf]) -> Result<TrustedRoots, TlsError> {
        let own = super::named_roots(extra)?;
        let roots = TrustedRoots(Arc::new(OnceLock::new()));
        let (there, more) = (roots.clone(), own.clone());
        let thread = std::thread::Builder::new().name("roots".into()).spawn(move || there.read_system_s(more));
        if thread.is_err() {
            roots.read_system_s(own);
        }
        Ok(roots)
    }

    fn read_system_s(&self, own: Vec<CertificateDer<'static>>) {
        // Nobody may wait for ever, also where this goes wrong.
        let system = std::panic::catch_unwind(super::system_roots).unwrap_or_else(|_| Roots::none());
        let _ = self.0.set(system.and(own));
    }

    /// All of them. Waits for the thread that reads them, a third of a second where the disk is slow.
    pub fn wait(&self) -> &Roots {
        self.0.wait()
    }

    /// Verifies the certificates of servers by these roots.
    pub(super) fn verifier(&self) -> Arc<dyn ServerCertVerifier> {
        Arc::new(Verifier { roots: self.clone(), provider: provider(), ready: OnceLock::new() })
    }
}

/// The usual verifier of rustls, made for the first certificate that is to be verified.
#[derive(Debug)]
struct Verifier {
    roots: TrustedRoots,
    provider: Arc<CryptoProvider>,
    /// `None` without any root.
    ready: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
}

impl Verifier {
    fn ready(&self) -> Option<&Arc<WebPkiServerVerifier>> {
        let make = || {
            let store = Arc::new(self.roots.wait().store());
            WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&self.provider)).build().ok()
        };
        self.ready.get_or_init(make).as_ref()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = self.ready().ok_or(CertificateError::UnknownIssuer)?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
