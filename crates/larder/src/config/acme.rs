//! Certificates of sites, and the authority that issues them: the table `[acme]` (RFC 8555, docs/acme.md).

use super::url;
use super::{Config, HostPattern, Site};
use larder_wire::{Scheme, Url};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Let's Encrypt takes no more names in one certificate, nor does any other authority in wide use.
pub const NAMES_PER_CERTIFICATE_MAX: usize = 100;

/// Authorities that have a short name, with their directories.
const DIRECTORIES: [(&str, &str); 2] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory"),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory"),
];

/// The authority, and the account there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The URL of its directory (RFC 8555 section 7.1.1); always https.
    pub directory: Url,
    /// Addresses of mail that it may write to.
    pub contact: Vec<String>,
    /// Whether the operator has agreed to its terms of service.
    pub terms_agreed: bool,
    /// How it is shown that a name leads here.
    pub challenge: AcmeChallenge,
}

impl Default for Acme {
    fn default() -> Acme {
        Acme {
            directory: Url::parse(DIRECTORIES[0].1).expect("a valid URL"),
            contact: Vec::new(),
            terms_agreed: false,
            challenge: AcmeChallenge::Auto,
        }
    }
}

impl Acme {
    /// Takes a directory by its name or its URL, which has to be protected (RFC 8555 section 6.1).
    pub(super) fn take_directory(&mut self, text: &str) -> bool {
        let known = DIRECTORIES.iter().find(|(name, _)| *name == text).map_or(text, |(_, url)| url);
        let url = url::parse(known).filter(|url| url.scheme == Scheme::Https);
        let is_taken = url.is_some();
        self.directory = url.unwrap_or_else(|| self.directory.clone());
        is_taken
    }

    /// The name of the directory, or its URL.
    pub fn directory_text(&self) -> String {
        let url = self.directory.to_string();
        DIRECTORIES.iter().find(|(_, known)| *known == url).map_or(url, |(name, _)| (*name).to_owned())
    }
}

/// How it is shown that a name leads here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// By those that the listeners permit, one after the other where one fails.
    #[default]
    Auto,
    /// By a file that clear text at port 80 gives (RFC 8555 section 8.3).
    Http01,
    /// By a certificate that TLS at port 443 shows (RFC 8737).
    TlsAlpn01,
}

impl AcmeChallenge {
    /// All of them.
    pub const ALL: [AcmeChallenge; 3] = [AcmeChallenge::Auto, AcmeChallenge::Http01, AcmeChallenge::TlsAlpn01];

    /// The word in the configuration, which is the name in RFC 8555 but for `auto`.
    pub fn as_str(self) -> &'static str {
        match self {
            AcmeChallenge::Auto => "auto",
            AcmeChallenge::Http01 => "http-01",
            AcmeChallenge::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

/// Where the certificate of a site comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SiteCertificate {
    /// From the files of its listener, if it has TLS.
    #[default]
    None,
    /// From the authority of `[acme]`.
    Acme,
}

impl SiteCertificate {
    /// All of them.
    pub const ALL: [SiteCertificate; 2] = [SiteCertificate::None, SiteCertificate::Acme];

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            SiteCertificate::None => "none",
            SiteCertificate::Acme => "acme",
        }
    }
}

impl Site {
    /// The names for which its certificate is to be, in alphabetical order; none where it has no certificate of its own.
    pub fn certificate_names(&self) -> Vec<Arc<str>> {
        if self.certificate == SiteCertificate::None {
            return Vec::new();
        }
        let name = |host: &HostPattern| match host {
            HostPattern::Exact(host) if host.ip().is_none() => Some(Arc::from(host.as_str().trim_end_matches('.'))),
            _ => None,
        };
        let names: BTreeSet<Arc<str>> = self.hosts.iter().filter_map(name).collect();
        names.into_iter().collect()
    }
}

impl Config {
    /// The names of each certificate that sites ask the authority for. Sites that have the same names share one.
    pub fn acme_certificates(&self) -> Vec<Vec<Arc<str>>> {
        let all: BTreeSet<Vec<Arc<str>>> = self.sites.iter().map(Site::certificate_names).collect();
        all.into_iter().filter(|names| !names.is_empty()).collect()
    }

    /// The challenges that the listeners permit, the one to begin with first.
    pub fn acme_challenges(&self) -> Vec<AcmeChallenge> {
        let is_plain = |listen: &super::Listen| !listen.is_tls() && !listen.socks && !listen.transparent.is_on();
        let of_http = self.listens.iter().any(is_plain).then_some(AcmeChallenge::Http01);
        let of_tls = self.listens.iter().any(|listen| listen.site_certificates).then_some(AcmeChallenge::TlsAlpn01);
        let is_asked =
            |each: &AcmeChallenge| self.acme.challenge == AcmeChallenge::Auto || self.acme.challenge == *each;
        of_http.into_iter().chain(of_tls).filter(is_asked).collect()
    }
}
