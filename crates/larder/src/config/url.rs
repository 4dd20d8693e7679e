//! The URL of an origin, as a person writes it into the configuration.

use super::application::{Application, ORIGIN_GROUP, SOCKET};
use super::origin::OriginHttp2;
use larder_wire::proxy_protocol::ProxyVersion;
use larder_wire::{Host, Scheme, Url};
use std::fmt;
use std::ops::Deref;
use std::path::Path;

/// The origin of a site. It stands at the beginning of the keys of all its responses, so that beginning is made once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteOrigin {
    url: Url,
    key_start: Box<[u8]>,
    /// Whether it is asked by HTTP/2; as `upstream.http2` says where `None`.
    pub http2: Option<OriginHttp2>,
    /// The version of the PROXY protocol by which it is told of the client.
    pub proxy_protocol: Option<ProxyVersion>,
}

impl SiteOrigin {
    /// The origin at this URL.
    pub fn new(url: Url) -> SiteOrigin {
        let mut key_start = Vec::new();
        url.key_text(&mut key_start);
        key_start.push(b' ');
        SiteOrigin { url, key_start: key_start.into(), http2: None, proxy_protocol: None }
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
        match self.url.host.is_local() {
            true => f.write_str(&show(&self.url)),
            false => self.url.fmt(f),
        }
    }
}

/// The origin of a site: a URL as [`parse`] reads it, `http+unix:/run/app.sock` for a server behind a Unix socket, or an
/// application in Python that this server runs (`wsgi:package.module:name`, `asgi:…`), or the name of a group.
pub fn parse_origin(text: &str) -> Option<Url> {
    if is_group_name(text) {
        return Some(local(&format!("{ORIGIN_GROUP}{text}")));
    }
    if let Some(socket) = text.strip_prefix("http+unix:") {
        return is_socket_path(socket).then(|| local(&format!("{SOCKET}{socket}")));
    }
    match Application::parse(text) {
        Some(_) => Some(local(text)),
        None => parse(text),
    }
}

/// A member of a group: a URL without a path, or a server behind a Unix socket.
pub fn parse_member(text: &str) -> Option<Url> {
    match text.starts_with("http+unix:") {
        true => parse_origin(text),
        false => parse(text).filter(|url| &*url.path == "/"),
    }
}

/// Whether a group can have this name: one that is no URL, no application and no number.
pub fn is_group_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 64 && text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_plain)
}

/// The name of the group that an origin is.
pub fn group_name(host: &Host) -> Option<&str> {
    host.as_str().strip_prefix(ORIGIN_GROUP).filter(|_| host.is_local())
}

/// The path of the Unix socket that an origin is behind.
pub fn socket_path(host: &Host) -> Option<&Path> {
    host.as_str().strip_prefix(SOCKET).filter(|_| host.is_local()).map(Path::new)
}

/// A path that the system takes for a socket: absolute, and no longer than its 108 bytes with the last one 0.
pub(super) fn is_socket_path(path: &str) -> bool {
    path.starts_with('/') && path.len() < 108 && !path.ends_with('/') && !path.contains(['#', '\0', '\n', '\r', ' '])
}

/// The URL of an origin on this machine that is no host.
pub(super) fn local(name: &str) -> Url {
    Url { scheme: Scheme::Http, host: Host::local(name), port: Scheme::Http.default_port(), path: "/".into() }
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

/// How the configuration names an origin of this machine that is no host: a socket or an application.
pub fn show_local(host: &Host) -> Option<String> {
    let name = Some(host.as_str()).filter(|_| host.is_local())?;
    Some(match (name.strip_prefix(SOCKET), name.strip_prefix(ORIGIN_GROUP)) {
        (Some(_), _) => format!("http+{name}"),
        (_, Some(group)) => group.to_owned(),
        (None, None) => name.split('#').next().unwrap_or(name).to_owned(),
    })
}

/// The shortest spelling that [`parse_origin`] reads back.
pub fn show(url: &Url) -> String {
    if let Some(name) = show_local(&url.host) {
        return name;
    }
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

    #[test]
    fn origins_on_this_machine() {
        for text in
            ["http+unix:/run/app.sock", "wsgi:bbs.app:application", "asgi:app", "wsgi:site.wsgi:make_app()", "app-1.eu"]
        {
            let url = parse_origin(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(show(&url), text);
            assert_eq!(SiteOrigin::new(url.clone()).to_string(), text);
            assert!(url.host.is_local(), "{text}");
            // A URL may be written like the name, and never has its host or key.
            let key = |url: &Url| {
                let mut key = Vec::new();
                url.key_text(&mut key);
                key
            };
            assert!(
                Url::parse(&url.to_string()).is_none_or(|like| like.host != url.host && key(&like) != key(&url)),
                "{text}"
            );
        }
        for text in [
            "http+unix:run/app.sock",
            "http+unix:/run/",
            "http+unix:",
            "http+unix:/a#b",
            "wsgi:",
            "wsgi:a b",
            "asgi:.a",
            "wsgi:a::b",
            "wsgi:a:b:c",
            "asgi:a:()",
            "wsgi:a#b",
            "wsgi:a:b()()",
            "wsgi:1a",
            "1app",
            "10.0.0.5",
            "app/x",
            "app:80",
        ] {
            assert_eq!(parse_origin(text), None, "{text}");
        }
        let long = format!("http+unix:/{}", "a".repeat(107));
        assert_eq!(parse_origin(&long), None);
        assert_eq!(socket_path(&Host::parse("unix").unwrap()), None);
        assert_eq!(socket_path(&parse_origin("http+unix:/x").unwrap().host), Some(Path::new("/x")));
    }
}
