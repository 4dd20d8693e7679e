//! The certificates of sites, which listeners show by the name that a client asks for, and challenges of their authority that are open.
//! All listeners share them: a certificate that was renewed is shown from the next handshake on, and no listener changes.

use super::provider;
use crate::clock;
use aws_lc_rs::digest;
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The protocol name of a handshake by which an authority validates a name (RFC 8737 section 4).
pub const ALPN_ACME_TLS_1: &[u8] = b"acme-tls/1";

/// The beginning of the paths of challenges (RFC 8555 section 8.3).
pub const CHALLENGE_PATHS: &str = "/.well-known/acme-challenge/";

/// A longer token is refused. Those of authorities have 43 letters.
pub const TOKEN_BYTES_MAX: usize = 256;

/// Challenges that are open at once: those of one certificate.
const OPEN_MAX: usize = 256;

/// Certificates of sites, and open challenges.
#[derive(Debug, Default)]
pub struct SiteCertificates {
    table: Mutex<Table>,
    challenges: Mutex<OpenChallenges>,
    /// How many challenges of HTTP are open, so that nearly no request takes the lock.
    open: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    /// By name; `None` where the certificate is not there yet.
    by_name: HashMap<Arc<str>, Option<Arc<CertifiedKey>>>,
    /// For clients that ask for no name, or one that no site has.
    first: Option<Arc<CertifiedKey>>,
}

#[derive(Debug, Default)]
struct OpenChallenges {
    /// Key authorizations (RFC 8555 section 8.1), by token.
    http: HashMap<Box<str>, Arc<str>>,
    /// Certificates that show one (RFC 8737 section 3), by name.
    tls: HashMap<Arc<str>, Arc<CertifiedKey>>,
}

/// A certificate for one or more names; without a key where it is not there yet.
pub type NamedKey = (Vec<Arc<str>>, Option<Arc<CertifiedKey>>);

impl SiteCertificates {
    /// From now on these certificates are shown, and no others.
    pub fn replace(&self, certificates: &[NamedKey]) {
        let mut table = Table::default();
        for (names, key) in certificates {
            for name in names {
                let known = table.by_name.entry(Arc::clone(name)).or_default();
                if known.is_none() {
                    known.clone_from(key);
                }
            }
            table.first = table.first.take().or_else(|| key.clone());
        }
        *self.table.lock() = table;
    }

    /// The certificate for this name. A site whose certificate is not there yet has none: that of another site would only be refused by the
    /// client. Clients that ask for no name, or one that no site has, get the first one.
    pub fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let table = self.table.lock();
        match name.and_then(|name| table.by_name.get(name.trim_end_matches('.'))) {
            Some(of_site) => of_site.clone(),
            None => table.first.clone(),
        }
    }

    /// Whether a site has this name.
    pub fn has(&self, name: &str) -> bool {
        self.table.lock().by_name.contains_key(name.trim_end_matches('.'))
    }

    /// The certificate for a handshake by which the authority validates a name, while that is open.
    pub fn challenge(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.challenges.lock().tls.get(name).cloned()
    }

    /// Whether challenges are open that a request may ask for.
    pub fn has_open(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// The key authorization of an open challenge, by the path of a request.
    pub fn answer(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(CHALLENGE_PATHS)?;
        self.challenges.lock().http.get(token).cloned()
    }

    /// Opens a challenge for requests; `None` where the token is none, or too many are open. It closes with the value.
    pub fn open_http(self: &Arc<Self>, token: &str, authorization: &str) -> Option<OpenChallenge> {
        // A token from outside becomes part of a path: nothing but the letters that RFC 8555 section 8.3 permits.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_plain) {
            return None;
        }
        let mut challenges = self.challenges.lock();
        if challenges.http.len() >= OPEN_MAX {
            return None;
        }
        challenges.http.insert(token.into(), authorization.into());
        self.open.store(challenges.http.len(), Ordering::Release);
        Some(OpenChallenge { of: Arc::clone(self), key: ChallengeKey::Token(token.into()) })
    }

    /// Opens a challenge for handshakes with this name; `None` where its certificate can't be made, or too many are open. It closes with the
    /// value.
    pub fn open_tls(self: &Arc<Self>, name: &Arc<str>, authorization: &str) -> Option<OpenChallenge> {
        let key = challenge_certificate(name, authorization)?;
        let mut challenges = self.challenges.lock();
        if challenges.tls.len() >= OPEN_MAX {
            return None;
        }
        challenges.tls.insert(Arc::clone(name), key);
        Some(OpenChallenge { of: Arc::clone(self), key: ChallengeKey::Name(Arc::clone(name)) })
    }
}

/// A challenge that is open for as long as this lives.
#[must_use]
#[derive(Debug)]
pub struct OpenChallenge {
    of: Arc<SiteCertificates>,
    key: ChallengeKey,
}

#[derive(Debug)]
enum ChallengeKey {
    Token(Box<str>),
    Name(Arc<str>),
}

impl Drop for OpenChallenge {
    fn drop(&mut self) {
        let mut challenges = self.of.challenges.lock();
        match &self.key {
            ChallengeKey::Token(token) => {
                challenges.http.remove(token);
            }
            ChallengeKey::Name(name) => {
                challenges.tls.remove(name);
            }
        }
        self.of.open.store(challenges.http.len(), Ordering::Release);
    }
}

/// The self-signed certificate with the SHA-256 of the key authorization (RFC 8737 section 3).
fn challenge_certificate(name: &str, authorization: &str) -> Option<Arc<CertifiedKey>> {
    let hash = digest::digest(&digest::SHA256, authorization.as_bytes());
    let mut params = CertificateParams::new([name.to_owned()]).ok()?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = clock::now().0;
    params.not_before = epoch + std::time::Duration::from_secs(now.saturating_sub(DAY_SECONDS));
    params.not_after = epoch + std::time::Duration::from_secs(now + DAY_SECONDS);
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).ok()?;
    let certificate = params.self_signed(&key).ok()?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    // Not by `from_der`, which knows no critical extension of this kind.
    let key = provider().key_provider.load_private_key(key).ok()?;
    Some(Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key)))
}

/// A certificate of a challenge counts from a day ago to a day from now.
const DAY_SECONDS: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<CertifiedKey> {
        challenge_certificate(name, "authorization").expect("a certificate")
    }

    #[test]
    fn names_without_a_certificate_get_none_and_strangers_the_first() {
        let certificates = SiteCertificates::default();
        assert!(certificates.find(Some("a.example")).is_none() && certificates.find(None).is_none());
        let there = key("a.example");
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>();
        certificates.replace(&[
            (names(&["late.example"]), None),
            (names(&["a.example", "b.example"]), Some(Arc::clone(&there))),
        ]);
        let found = |name| certificates.find(name).is_some_and(|key| Arc::ptr_eq(&key, &there));
        assert!(found(Some("a.example")) && found(Some("b.example.")) && found(Some("other.example")) && found(None));
        assert!(certificates.find(Some("late.example")).is_none());
        assert!(certificates.has("late.example") && !certificates.has("other.example"));
        certificates.replace(&[]);
        assert!(certificates.find(Some("a.example")).is_none());
    }

    #[test]
    fn challenges_answer_while_they_are_open() {
        let certificates = Arc::new(SiteCertificates::default());
        assert!(!certificates.has_open());
        let open = certificates.open_http("tok-en_1", "tok-en_1.thumb").unwrap();
        assert!(certificates.has_open());
        let answer = |path: &str| certificates.answer(path).map(|answer| answer.to_string());
        assert_eq!(answer("/.well-known/acme-challenge/tok-en_1").as_deref(), Some("tok-en_1.thumb"));
        for other in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/tok-en_1?a",
            "/.well-known/acme-challenge/tok-en_2",
            "/tok-en_1",
        ] {
            assert_eq!(answer(other), None, "{other}");
        }
        drop(open);
        assert!(!certificates.has_open() && answer("/.well-known/acme-challenge/tok-en_1").is_none());
        for bad in ["", "a/b", "a b", "../x", "é", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(certificates.open_http(bad, "x").is_none(), "{bad}");
        }
        let name: Arc<str> = "a.example".into();
        let open = certificates.open_tls(&name, "token.thumb").unwrap();
        assert!(certificates.challenge("a.example").is_some() && certificates.challenge("b.example").is_none());
        drop(open);
        assert!(certificates.challenge("a.example").is_none());
    }

    #[test]
    fn open_challenges_have_a_limit() {
        let certificates = Arc::new(SiteCertificates::default());
        let open: Vec<_> = (0..OPEN_MAX + 1).map(|number| certificates.open_http(&number.to_string(), "x")).collect();
        assert_eq!(open.iter().flatten().count(), OPEN_MAX);
    }
}
