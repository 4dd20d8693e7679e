//! The certificate that a client has shown in the TLS handshake of its connection, as rules see it.

use super::User;
use crate::clock;
use crate::config::CertificateUser;
use crate::tls::HandshakeTrouble;
use crate::tls::clients::{CertificateNames, ClientTrust};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;

/// A certificate of a client that was verified.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ClientCertificate {
    /// The names in it, at least one.
    names: Box<[Arc<str>]>,
    user: Option<Arc<User>>,
}

impl ClientCertificate {
    /// Reads the certificate that the handshake of a listener with this trust has verified. A session that is resumed was verified when it
    /// began, so the end of the certificate is looked at again.
    pub fn of(certificate: &CertificateDer<'_>, trust: &ClientTrust) -> Result<ClientCertificate, HandshakeTrouble> {
        let refused = |word, why: &str| HandshakeTrouble::ClientNotTrusted(word, why.to_owned());
        let read = CertificateNames::read(certificate)
            .ok_or_else(|| refused("client-certificate-wrong", "its names can't be read"))?;
        if read.not_after < clock::now() {
            return Err(refused("client-certificate-expired", "it has expired since the session began"));
        }
        let kind = trust.user();
        let user = read.names.iter().find(|(of, _)| kind != CertificateUser::None && *of == kind);
        let user = user.map(|(_, name)| user_named(name));
        let names = read.names.into_iter().map(|(_, name)| name.into()).collect();
        Ok(ClientCertificate { names, user })
    }

    /// A certificate with these names, of which the first one is the user where the listener takes one: for questions about requests that
    /// nobody sent. `None` without a name.
    pub fn suppose(names: &[String], user: CertificateUser) -> Option<ClientCertificate> {
        let first = names.first()?;
        let user = (user != CertificateUser::None).then(|| user_named(first));
        Some(ClientCertificate { names: names.iter().map(|name| name.as_str().into()).collect(), user })
    }

    /// The names in it.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The name in logs: the common name of its subject, else the first other one.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.names.first()
    }

    /// The user, where the listener takes a name of the certificate for one.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }
}

/// No login knows the user.
fn user_named(name: &str) -> Arc<User> {
    Arc::new(User { name: name.into(), groups: Box::default(), login: "".into() })
}
