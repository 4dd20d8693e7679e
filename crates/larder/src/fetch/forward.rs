//! The fields of a request as any origin gets them, whatever way the request takes (RFC 9110 section 7.6).

use crate::client::has_address;
use crate::config::application::Application;
use crate::env::Env;
use crate::mount::REQUEST_NAME;
use crate::record::Notes;
use crate::rules::{Ask, Route};
use larder_wire::{Fields, Method, RequestHead, encode, hop};
use std::net::SocketAddr;

/// Room for the fields that most requests get in addition: `Via`, and the forwarding fields of a site.
const ADDED_BYTES: usize = 192;
const ADDED_LINES: usize = 4;

/// The request's fields without those of the client's connection, and with Larder's own: `Host`, `Via`, the forwarding fields
/// of a site, the context of a trace.
pub fn forwarded(env: &Env, request: &RequestHead, ask: &Ask, peer: SocketAddr, notes: &Notes) -> Fields {
    let mut fields = request.fields.with_room(ADDED_BYTES, ADDED_LINES);
    hop::strip(&mut fields);
    fields.remove("Proxy-Authorization");
    if ask.consumes_authorization() {
        fields.remove("Authorization");
    }
    if let Some(credential) = ask.credential() {
        credential.put_into(&mut fields);
    }
    if !fields.get("Host").is_some_and(|said| ask.is_host(said)) {
        fields.set("Host", ask.host());
    }
    lower_max_forwards(&request.method, &mut fields);
    if let Route::Site { .. } = ask.route {
        if fields.iter().any(|(name, _)| tells_url(name)) {
            fields.retain(|name, _| !tells_url(name));
        }
        let mut address = Vec::with_capacity(40);
        match has_address(peer.ip()) {
            true => encode::address(&mut address, peer.ip().to_canonical()),
            // The last entry has to be Larder's own: an origin that believes it must not find one there that a client has written.
            false => address.extend_from_slice(b"unknown"),
        }
        fields.push("X-Forwarded-For", address);
        fields.push("X-Forwarded-Proto", ask.url.scheme.as_str());
        if Application::is_origin(&ask.connects_to().host) {
            // For tracebacks; a client's word for it counts nothing.
            fields.remove(REQUEST_NAME);
            if let Some(number) = notes.request.get() {
                fields.push(REQUEST_NAME, env.common.names.name(number).to_string());
            }
        }
    }
    fields.push("Via", env.common.via(request.version));
    if let Some(sampled) = notes.sampled.get() {
        sampled.write_to(&mut fields);
    }
    fields
}

/// Whether a field tells an origin another scheme, host, port or path than the request line and `Host`. An origin that believes
/// such a field answers for another URL than that of the key, so these fields of clients are not forwarded to a site's origin.
fn tells_url(name: &str) -> bool {
    // The first bytes rule out most names.
    let rest = match name.as_bytes() {
        [b'x' | b'X', b'-', rest @ ..] => rest,
        [b'f' | b'F', ..] => return is_any(name.as_bytes(), &["Forwarded", "Front-End-Https"]),
        _ => return false,
    };
    match rest.split_at_checked("Forwarded-".len()) {
        Some((start, what)) if start.eq_ignore_ascii_case(b"Forwarded-") => is_any(
            what,
            &["Host", "Path", "Port", "Prefix", "Proto", "Protocol", "Scheme", "Server", "Ssl", "Uri", "Url"],
        ),
        _ => is_any(
            rest,
            &[
                "Host",
                "HTTP-Host-Override",
                "Original-Host",
                "Original-URI",
                "Original-URL",
                "Rewrite-URL",
                "Scheme",
                "URL-Scheme",
            ],
        ),
    }
}

fn is_any(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

/// Decrements `Max-Forwards` (RFC 9110 section 7.6.2).
fn lower_max_forwards(method: &Method, fields: &mut Fields) {
    if !matches!(method, Method::Trace | Method::Options) {
        return;
    }
    if let Some(left) = fields.text("Max-Forwards").and_then(|text| text.parse::<u64>().ok()) {
        fields.set("Max-Forwards", left.saturating_sub(1).to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_tell_a_url_are_known_in_any_case() {
        for name in ["Forwarded", "front-end-HTTPS", "X-Forwarded-Host", "x-forwarded-proto", "X-Rewrite-Url", "x-host"]
        {
            assert!(tells_url(name), "{name}");
        }
        for name in
            ["X-Forwarded-For", "X-Forwarded-User", "X-Forwarded-", "X-", "X-Hosts", "From", "F", "Host", "X-Real-IP"]
        {
            assert!(!tells_url(name), "{name}");
        }
    }
}
