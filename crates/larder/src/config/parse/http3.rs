//! Listeners with HTTP/3: it serves sites over TLS, and nothing else.

use super::Parser;
use crate::config::Listen;
use std::ops::Range;

impl Parser {
    /// QUIC is TLS to whoever has opened the connection, so that all that brings connections of others to a listener is refused.
    pub(super) fn check_http3(&mut self, span: &Range<usize>, listen: &Listen) {
        let wrong = match listen.http3 {
            false => return,
            _ if !listen.is_tls() => {
                let hint =
                    "add `tls = [{ chain = \"…\", key = \"…\" }]` or `site_certificates = true`, or leave out `http3`";
                let message = "HTTP/3 is spoken over TLS alone, and this listener has no certificates".to_owned();
                return self.problem(span.clone(), message, Some(hint.to_owned()));
            }
            _ if listen.socket.is_some() => {
                let message = "HTTP/3 is spoken over UDP, and this listener has a Unix socket".to_owned();
                return self.problem(span.clone(), message, Some("leave out `http3`".to_owned()));
            }
            _ if !listen.proxy_protocol.is_empty() => "proxy_protocol",
            _ if listen.transparent.is_on() => "transparent",
            _ if listen.socks => "socks",
            _ if listen.pass_through => "pass_through",
            _ if listen.activation.is_some() => "activation",
            _ if listen.intercept => "intercept",
            _ if listen.forward == Some(true) => "forward",
            _ => return,
        };
        let message = format!("a listener with `http3` serves the sites of its own certificates: it has no `{wrong}`");
        self.problem(span.clone(), message, Some(format!("leave out `{wrong}`, or give it a listener of its own")));
    }

    /// Without sites a listener is a forward proxy.
    pub(super) fn check_http3_sites(&mut self) {
        let config = &self.loaded.config;
        let forwards = |listen: &Listen| listen.http3 && listen.forward.is_none() && listen.origin.is_none();
        if config.sites.is_empty() && config.listens.iter().any(forwards) {
            let hint = "add a [[site]] or an `origin`, or `forward = false`";
            self.conflict("listen", "a listener with `http3` is no forward proxy, and there is no site", Some(hint));
        }
    }
}
