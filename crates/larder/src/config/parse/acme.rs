//! Settings of `[acme]`, sites and listeners that have to go together, so that a certificate can be had.

use super::Parser;
use crate::config::acme::{AcmeChallenge, NAMES_PER_CERTIFICATE_MAX, SiteCertificate};
use crate::config::{HostPattern, Site};

impl Parser {
    /// Reports sites for which no authority would issue a certificate, and settings without which none is ordered.
    pub(super) fn check_acme(&mut self) {
        let sites = self.loaded.config.sites.to_vec();
        let sites: Vec<Site> = sites.into_iter().filter(|site| site.certificate == SiteCertificate::Acme).collect();
        sites.iter().for_each(|site| self.check_site_certificate(site));
        if sites.is_empty() {
            return;
        }
        let config = &self.loaded.config;
        if !config.acme.terms_agreed {
            let hint =
                format!("read the terms of {}, then write terms_agreed = true in [acme]", config.acme.directory_text());
            self.conflict(
                "acme.terms_agreed",
                "a certificate needs an agreement to the terms of the authority",
                Some(&hint),
            );
        }
        let config = &self.loaded.config;
        if !config.listens.iter().any(|listen| listen.site_certificates) {
            let message = "certificate = \"acme\" needs a listener that shows the certificates of sites";
            let hint = "write a [[listen]] with address = \"0.0.0.0:443\" and site_certificates = true";
            self.conflict("site", message, Some(hint));
        } else if config.acme_challenges().is_empty() {
            let message = match config.acme.challenge {
                AcmeChallenge::Http01 => "http-01 needs a listener in clear text",
                _ => "no listener can answer a challenge of the authority",
            };
            self.conflict("acme.challenge", message, Some("write a [[listen]] with address = \"0.0.0.0:80\""));
        }
    }

    fn check_site_certificate(&mut self, site: &Site) {
        let place = site.place.to_string();
        let mut conflict = |message: String, hint: &str| {
            self.conflict("site", &format!("{place}: {message}"), Some(hint));
        };
        for host in &site.hosts {
            match host {
                HostPattern::Exact(host) if host.ip().is_some() => {
                    let hint = "name its certificate in a [[listen]]: tls = [{ chain = \"…\", key = \"…\" }]";
                    conflict(format!("certificate = \"acme\" is for names, and {host} is an address"), hint);
                }
                HostPattern::Exact(_) => {}
                _ => {
                    let hint = "name each host (www.example.org), or name the files of a certificate in a [[listen]]";
                    conflict(
                        format!(
                            "certificate = \"acme\" is not for {host}: the authority wants a proof by the DNS for a wildcard"
                        ),
                        hint,
                    );
                }
            }
        }
        if site.certificate_names().len() > NAMES_PER_CERTIFICATE_MAX {
            let message = format!("a certificate has at most {NAMES_PER_CERTIFICATE_MAX} names");
            conflict(message, "divide the hosts among several sites");
        }
    }
}
