//! Recognises requests for the pages of Squid's cache manager. The admin side renders the pages.

use larder_wire::{Host, RequestHead};

/// The prefix of the pages' paths.
pub const PREFIX: &str = "/squid-internal-mgr/";

/// Older squidclients send `GET cache_object://host/info@password`. Gives that request with a target in origin form, as newer
/// ones send it; `None` when the bytes are no such request, or their target is not whole.
pub fn translated(read: &[u8]) -> Option<Vec<u8>> {
    let rest = read.strip_prefix(b"GET cache_object://")?;
    let end = memchr::memchr(b' ', rest)?;
    let target = std::str::from_utf8(&rest[..end]).ok()?;
    let page = target.split_once('/').map_or("", |(_, page)| page);
    let page = page.split('@').next().unwrap_or_default();
    let mut out = format!("GET {PREFIX}{page}").into_bytes();
    out.extend_from_slice(&rest[end..]);
    Some(out)
}

/// Whether the request names this server by an address or as `localhost`, as no web page elsewhere can make a browser do.
pub fn names_an_address(request: &RequestHead) -> bool {
    host(request).is_some_and(|host| host.ip().is_some() || host.as_str() == "localhost")
}

/// Whether the request names this server by one of these names.
pub fn names_one_of(request: &RequestHead, names: &[Host]) -> bool {
    host(request).is_some_and(|host| names.contains(&host))
}

/// The field `Host` without its port.
fn host(request: &RequestHead) -> Option<Host> {
    let host = request.fields.text("Host").unwrap_or_default();
    let name = match host.rfind(':') {
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
    };
    Host::parse(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_older_squidclients_are_understood() {
        let asked = b"GET cache_object://127.0.0.1/info@secret HTTP/1.0\r\nHost: x\r\n\r\n";
        let wanted = b"GET /squid-internal-mgr/info HTTP/1.0\r\nHost: x\r\n\r\n";
        assert_eq!(translated(asked).as_deref(), Some(&wanted[..]));
        for other in
            [&b"GET cache_object://a/info"[..], b"GET http://a/ HTTP/1.0\r\n\r\n", b"", b"GET cache_object://\xff/ "]
        {
            assert_eq!(translated(other), None);
        }
    }
}
