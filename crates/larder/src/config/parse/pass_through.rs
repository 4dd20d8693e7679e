//! Settings that a site whose TLS is passed through can't have, and the listeners that do that.

use super::Parser;
use crate::config::{HostHeader, Listen, OriginHttp2, Site, SiteCertificate};
use larder_wire::Scheme;
use std::ops::Range;

impl Parser {
    /// Of such a site Larder sees the name and bytes: all that is about requests has no place in it.
    pub(super) fn check_passed_site(&mut self, site: &Site) {
        if !site.pass_through {
            return;
        }
        let is_said = [
            ("certificate", site.certificate != SiteCertificate::None),
            ("prefix", site.prefix != "/"),
            ("host", site.host_header != HostHeader::Client),
            ("http2", site.http2.is_some_and(|http2| http2 != OriginHttp2::Off)),
            ("python", !site.python.is_empty()),
            ("hooks", !site.hooks.is_empty()),
            ("route", !site.routes.is_empty()),
            ("login", !site.login.is_empty()),
            ("external", !site.external.is_empty()),
            ("url_rewrite", !site.url_rewrite.is_empty()),
            ("store_id", !site.store_id.is_empty()),
        ];
        if let Some((name, _)) = is_said.iter().find(|(_, is_said)| *is_said) {
            let message = format!("{}: `{name}` is about requests, and `pass_through` opens none", site.place);
            self.conflict("site", &message, Some(&format!("leave out `{name}` or `pass_through`")));
        }
        let origin = &site.origin;
        if origin.host.is_local() || origin.scheme != Scheme::Https || &*origin.path != "/" {
            let message =
                format!("{}: the origin of a site with `pass_through` is a host and a port that speak TLS", site.place);
            self.conflict("site", &message, Some("write origin = \"https://10.0.0.5:8443\""));
        }
        if !self.loaded.config.listens.iter().any(|listen| listen.pass_through) {
            let message = format!("{}: no listener has `pass_through = true`", site.place);
            self.conflict("site", &message, Some("write it into the [[listen]] where TLS to this site comes"));
        }
    }

    /// Only a listener of sites can pass their TLS through.
    pub(super) fn check_pass_through(&mut self, span: &Range<usize>, listen: &Listen) {
        let wrong = match listen.pass_through {
            false => return,
            true if listen.origin.is_some() => "origin",
            true if listen.transparent.is_on() => "transparent",
            true if listen.socks => "socks",
            true => return,
        };
        let message = format!("a listener with `pass_through` serves sites by the names in TLS: it has no `{wrong}`");
        self.problem(span.clone(), message, Some(format!("leave out `{wrong}`, or give it a listener of its own")));
    }
}
