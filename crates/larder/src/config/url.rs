//! The URL of an origin, as a person writes it into the configuration.

use larder_wire::{Host, Scheme, Url};
use std::fmt;
use std::ops::Deref;

/// The origin of a site. It stands at the beginning of the keys of all its responses, so that beginning is made once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteOrigin {
    url: Url,
    key_start: Box<[u8]>,
}

impl SiteOrigin {
    /// The origin at this URL.
    pub fn new(url: Url) -> SiteOrigin {
        let mut key_start = Vec::new();
        url.key_text(&mut key_start);
        key_start.push(b' ');
        SiteOrigin { url, key_start: key_start.into() }
    }

    /// The beginning of the keys of all responses of this origin.
    pub fn key_start(&self) -> &[u8] {
        &self.key_start
    }
}

impl Deref for SiteOrigin {
    type Target = Url;

    fn deref(&self) -> &Url {
        &self.url
    }
}

impl fmt::Display for SiteOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// `http://host[:port][/path]` or the same with https; `None` for anything else. User, query and fragment have
/// no meaning for an origin and are refused.
pub fn parse(text: &str) -> Option<Url> {
    let (scheme, rest) = match text.split_once("://")? {
        (name, rest) if name.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
        (name, rest) if name.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if !path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\"<>\\".contains(&byte)) {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port = match port {
        None => scheme.default_port(),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|&port| port > 0)?
        }
        Some(_) => return None,
    };
    let path = if path.is_empty() { "/" } else { path };
    Some(Url { scheme, host: Host::parse(host)?, port, path: path.into() })
}

/// The shortest spelling that [`parse`] reads back.
pub fn show(url: &Url) -> String {
    let text = url.to_string();
    text.strip_suffix('/').map(str::to_owned).filter(|_| &*url.path == "/").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for (text, expected) in [
            ("http://10.0.0.5:9000", Some("http://10.0.0.5:9000")),
            ("HTTPS://Example.org", Some("https://example.org")),
            ("https://example.org:443/", Some("https://example.org")),
            ("http://[::1]:8080/base/", Some("http://[::1]:8080/base/")),
            ("http://[::1]", Some("http://[::1]")),
            ("example.org", None),
            ("ftp://example.org", None),
            ("http://", None),
            ("http://user@example.org", None),
            ("http://example.org/?q", None),
            ("http://example.org:", None),
            ("http://example.org:0", None),
            ("http://example.org:65536", None),
            ("http://example.org:+80", None),
            ("http://exa mple.org", None),
        ] {
            assert_eq!(parse(text).as_ref().map(show).as_deref(), expected, "{text}");
        }
    }
}
