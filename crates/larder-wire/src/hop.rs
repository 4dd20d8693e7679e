//! Fields that belong to one connection and not to the message (RFC 9110 section 7.6.1).

use crate::Fields;
use crate::names::NameSet;

/// Takes away what an intermediary must not pass on: `Connection`, the fields it names, and the known fields of
/// that kind. `Trailer` stays, because trailers are passed on too; who sends the body with a length
/// removes it.
///
/// A `Connection` that names a field meant for all recipients is an error of its sender, or an attack: it would
/// strip `Authorization`, `Cookie` or `X-Forwarded-For` on the way to an origin, or `Cache-Control` on the way to
/// another cache. RFC 9110 forbids to send that; such a name is ignored and its field stays.
pub fn strip(fields: &mut Fields) {
    let named = named_by_connection(fields);
    if !named.is_empty() {
        fields.retain(|name, _| !named.contains(name));
    }
    for name in PER_CONNECTION {
        fields.remove(name);
    }
}

/// Forgets the fields of a request that its `Connection` names, before anybody looks at them: the origin will not get them ([`strip`]), so they
/// must not make a variant or a key. Their names leave `Connection` too, or a field of that name which is set later would be stripped with
/// them. Fields that the connection itself needs stay, and the login at this proxy.
pub fn forget_named(fields: &mut Fields) {
    if !fields.contains("Connection") {
        return;
    }
    let named = named_by_connection(fields);
    let is_needed = |name: &str| {
        let mut needed = ["close", "Proxy-Authorization"].iter().chain(&PER_CONNECTION);
        needed.any(|needed| needed.eq_ignore_ascii_case(name))
    };
    let is_forgotten = |name: &str| named.contains(name) && !is_needed(name);
    let is_option = |member: &&[u8]| !std::str::from_utf8(member).is_ok_and(is_forgotten);
    let members = fields.members("Connection").count();
    let left: Vec<&[u8]> = fields.members("Connection").filter(is_option).collect();
    if left.len() == members {
        return;
    }
    let left = left.join(&b", "[..]);
    fields.retain(|name, _| !is_forgotten(name));
    match left.is_empty() {
        true => drop(fields.remove("Connection")),
        false => fields.set("Connection", left),
    }
}

/// The protocols that a message offers or switches to: the `Upgrade` field, if `Connection` names it. Ask
/// before [`strip`]. Other versions of HTTP and TLS are left out: past such a switch nobody could check the
/// messages, and requests could be hidden from the rules of this proxy.
pub fn upgrade(fields: &Fields) -> Option<String> {
    if !fields.contains("Upgrade") || !fields.has_member("Connection", "upgrade") {
        return None;
    }
    let protocols: Vec<&str> = fields
        .members("Upgrade")
        .filter_map(|member| std::str::from_utf8(member).ok())
        .filter(|protocol| passes_through(protocol))
        .collect();
    (!protocols.is_empty()).then(|| protocols.join(", "))
}

/// The protocols that a 101 switches to, if its fields say so as they must and each of them was in the `offer` ([`upgrade`]
/// of the request). A server must not switch to anything else (RFC 9110 section 7.8).
pub fn switched(fields: &Fields, offer: &str) -> Option<String> {
    if !fields.has_member("Connection", "upgrade") {
        return None;
    }
    let taken = |protocol: &str| offer.split(',').any(|offered| is_same_protocol(offered.trim(), protocol));
    let mut protocols = Vec::new();
    for member in fields.members("Upgrade") {
        protocols.push(std::str::from_utf8(member).ok().filter(|protocol| taken(protocol))?);
    }
    (!protocols.is_empty()).then(|| protocols.join(", "))
}

/// Names without regard to case; versions where both say one.
fn is_same_protocol(offered: &str, taken: &str) -> bool {
    let parts =
        |protocol| str::split_once(protocol, '/').map_or((protocol, None), |(name, version)| (name, Some(version)));
    let ((offered, of), (taken, version)) = (parts(offered), parts(taken));
    offered.eq_ignore_ascii_case(taken) && (of.is_none() || version.is_none() || of == version)
}

/// Removed whether `Connection` names them or not.
const PER_CONNECTION: [&str; 7] =
    ["Connection", "Keep-Alive", "Proxy-Connection", "TE", "Transfer-Encoding", "Upgrade", "HTTP2-Settings"];

/// Never removed because `Connection` names them: framing, routing, authentication, caching, content and
/// the forwarding fields that origins trust.
const END_TO_END: [&str; 47] = [
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Accept-Ranges",
    "Age",
    "Allow",
    "Authorization",
    "Cache-Control",
    "Cache-Status",
    "CDN-Cache-Control",
    "CDN-Loop",
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-Location",
    "Content-Range",
    "Content-Type",
    "Cookie",
    "Date",
    "ETag",
    "Expect",
    "Expires",
    "Forwarded",
    "From",
    "Host",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Last-Modified",
    "Location",
    "Max-Forwards",
    "Origin",
    "Pragma",
    "Range",
    "Referer",
    "Retry-After",
    "Server",
    "Set-Cookie",
    "Trailer",
    "User-Agent",
    "Vary",
    "Via",
    "Warning",
    "WWW-Authenticate",
    "X-Real-IP",
];

/// The names that `Connection` has and that may be removed for it. A set: a `Connection` of thousands of names in a head
/// of many fields must not cost their product.
fn named_by_connection(fields: &Fields) -> NameSet {
    // Nearly all say just this, which names nothing.
    let plain = |value: &[u8]| value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close");
    if fields.get_all("Connection").all(plain) {
        return NameSet::default();
    }
    let is_removed = |name: &&[u8]| std::str::from_utf8(name).is_ok_and(|name| !is_end_to_end(name));
    fields.members("Connection").filter(is_removed).collect()
}

fn is_end_to_end(name: &str) -> bool {
    let forwarding = name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case("X-Forwarded-"));
    forwarding || END_TO_END.iter().any(|other| other.eq_ignore_ascii_case(name))
}

fn passes_through(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default();
    !["h2c", "h2", "HTTP", "TLS"].iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_fields_are_forgotten_and_cannot_take_later_ones_along() {
        for (lines, left) in [
            (&[("Connection", "X-User"), ("X-User", "eve"), ("Accept", "a")][..], "Accept: a\r\n"),
            (&[("Connection", "close, x-user"), ("X-User", "eve")], "Connection: close\r\n"),
            (
                &[("Connection", "close"), ("Connection", "X-User, upgrade"), ("Upgrade", "a")],
                "Connection: close, upgrade\r\nUpgrade: a\r\n",
            ),
            (
                &[("Connection", "Host, Cookie, X-User"), ("Host", "a"), ("Cookie", "b")],
                "Connection: Host, Cookie\r\nHost: a\r\nCookie: b\r\n",
            ),
            (
                &[("Connection", "Proxy-Authorization, TE"), ("TE", "trailers")],
                "Connection: Proxy-Authorization, TE\r\nTE: trailers\r\n",
            ),
            (&[("Connection", "keep-alive"), ("X-User", "ada")], "Connection: keep-alive\r\nX-User: ada\r\n"),
            (&[("X-User", "ada")], "X-User: ada\r\n"),
        ] {
            let mut fields = Fields::new();
            lines.iter().for_each(|(name, value)| fields.push(name, value));
            forget_named(&mut fields);
            let mut text = Vec::new();
            fields.write_to(&mut text);
            assert_eq!(String::from_utf8(text).unwrap(), left, "{lines:?}");
            fields.push("X-User", "set later");
            strip(&mut fields);
            assert!(fields.contains("X-User"), "{lines:?}");
        }
    }

    #[test]
    fn a_switch_is_to_what_was_offered() {
        let switch = |lines: &[(&str, &str)]| {
            let mut fields = Fields::new();
            lines.iter().for_each(|(name, value)| fields.push(name, value));
            switched(&fields, "websocket, IRC/6.9")
        };
        let upgrade = ("Connection", "Upgrade");
        assert_eq!(switch(&[upgrade, ("Upgrade", "WebSocket")]).as_deref(), Some("WebSocket"));
        assert_eq!(switch(&[upgrade, ("Upgrade", "irc/6.9, websocket/13")]).as_deref(), Some("irc/6.9, websocket/13"));
        for wrong in [
            &[][..],
            &[upgrade],
            &[("Upgrade", "websocket")],
            &[upgrade, ("Upgrade", "h2c")],
            &[upgrade, ("Upgrade", "websocket, h2c")],
            &[upgrade, ("Upgrade", "websocket"), ("Upgrade", "h2c")],
            &[upgrade, ("Upgrade", "irc/7")],
            &[upgrade, ("Upgrade", "web")],
            &[upgrade, ("Upgrade", "")],
        ] {
            assert_eq!(switch(wrong), None, "{wrong:?}");
        }
    }
}
