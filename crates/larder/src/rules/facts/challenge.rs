//! Challenges by which the authority of certificates validates the names of sites (RFC 8555 section 8.3). Their answers come before all rules:
//! an operator who denies the world still wants a certificate.

use super::{Fact, Facts};
use crate::page::Page;
use crate::tls::site_certificates::SiteCertificates;
use larder_wire::{Method, Scheme, Target};

/// The word of records and logs.
const WORD: &str = "acme-challenge";

impl Facts<'_> {
    /// The answer to an open challenge, where this is a request for it in clear text.
    pub(in crate::rules) fn challenge(&self) -> Option<Page> {
        let open = self.scene.challenges.filter(|challenges| challenges.has_open())?;
        let path = match &self.request.target {
            _ if self.scene.inside.is_some() || self.scene.scheme != Scheme::Http => return None,
            _ if !matches!(self.request.method, Method::Get | Method::Head) => return None,
            Target::Origin(path) => &**path,
            Target::Absolute(url) => &url.path,
            _ => return None,
        };
        // So no memo is made of a verdict while a challenge is open; those of before ended with their edition when it was opened.
        self.note(Fact::Path);
        SiteCertificates::answer(open, path).map(|authorization| Page::text(WORD, authorization.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Loaded;
    use crate::reach::OwnAddresses;
    use crate::rules::{FoundFacts, Scene, Verdict};
    use larder_wire::parse::{self, HeadLimits, Parsed};
    use std::sync::Arc;

    #[test]
    fn challenges_are_answered_before_rules_that_deny_all() {
        let settings = "[[listen]]\naddress = \"127.0.0.1:8080\"\n[[rule]]\nname = \"none\"\ndo = { deny = true }\n";
        let loaded = Loaded::parse("test", settings, &[]).unwrap_or_else(|report| panic!("{report}"));
        let (config, own, found) = (&loaded.config, OwnAddresses::of(&loaded.config), FoundFacts::default());
        let challenges = Arc::new(SiteCertificates::default());
        let judge = |request: &str, scheme: Scheme| {
            let text = format!("{request} HTTP/1.1\r\nHost: a.example\r\n\r\n");
            let Ok(Parsed::Complete { head, .. }) = parse::request(text.as_bytes(), &HeadLimits::default()) else {
                panic!("{text}")
            };
            let scene = Scene {
                challenges: Some(&challenges),
                scheme,
                ..Scene::at(&config.listens[0], (config, &own, &found))
            };
            match scene.judge(&head) {
                Verdict::Answer(page) => page.text.map_or(page.word.to_owned(), |text| text.to_string()),
                other => panic!("{other:?}"),
            }
        };
        let path = "GET /.well-known/acme-challenge/token";
        assert_eq!(judge(path, Scheme::Http), "rule");
        let open = challenges.open_http("token", "token.thumb").expect("open");
        assert_eq!(judge(path, Scheme::Http), "token.thumb");
        assert_eq!(judge("GET http://a.example/.well-known/acme-challenge/token", Scheme::Http), "token.thumb");
        for other in ["GET /.well-known/acme-challenge/tokens", "POST /.well-known/acme-challenge/token", "GET /token"]
        {
            assert_eq!(judge(other, Scheme::Http), "rule", "{other}");
        }
        assert_eq!(judge(path, Scheme::Https), "rule");
        drop(open);
        assert_eq!(judge(path, Scheme::Http), "rule");
    }
}
