//! The authority of a request, held against the listener and the certificate of its connection.

use super::head::TargetForm;
use crate::env::{Env, PeerFacts};
use crate::page::Page;
use larder_wire::{RequestHead, Scheme, Url};
use std::net::SocketAddr;

/// A request on a listener that is a forward proxy is for any URL, unless its authority is an address of this machine with the port of
/// the listener: that is asked of Larder itself. HTTP/1.1 tells the two by the form of the target, which later versions have not.
pub fn target_form(env: &Env, peer: &PeerFacts, authority: &[u8]) -> TargetForm {
    let listener = peer.listener.in_force();
    if peer.inside.is_some() || !listener.forwarding.beside(&env.config().sites) {
        return TargetForm::Origin;
    }
    let text = std::str::from_utf8(authority).ok().map(|authority| format!("http://{authority}/"));
    let is_own = text.and_then(|text| Url::parse(&text)).is_some_and(|url| {
        let own = env.own_addresses();
        let is_here = |ip| own.lead_here(SocketAddr::new(ip, url.port));
        listener.port() == Some(url.port) && (url.host.as_str() == "localhost" || url.host.ip().is_some_and(is_here))
    });
    if is_own { TargetForm::Origin } else { TargetForm::Absolute }
}

/// Whether the certificate of the connection is not valid for the host of a request (RFC 9113 section 9.1.2, RFC 9114 section 3.3): a
/// browser may send requests for several hosts on one connection.
pub fn is_misdirected(env: &Env, peer: &PeerFacts, head: &RequestHead) -> bool {
    let (Some(asked), Some(certificates), Scheme::Https) = (&peer.sni, &peer.listener.certificates, peer.scheme) else {
        return false;
    };
    if peer.inside.is_some() || peer.listener.in_force().forwarding.beside(&env.config().sites) {
        return false;
    }
    if head.fields.text("Host").is_some_and(|host| host.eq_ignore_ascii_case(asked.as_str())) {
        return false;
    }
    head.url(Scheme::Https)
        .is_ok_and(|url| url.host != **asked && !certificates.covers(asked.as_str(), url.host.as_str()))
}

/// The page for such a request.
pub fn misdirected() -> Page {
    let what = "The certificate of this connection is not valid for the host of the request.";
    Page::new(421, "misdirected", what, "Ask on a connection of its own.")
}
