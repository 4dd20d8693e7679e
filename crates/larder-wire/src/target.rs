//! Request targets and URLs: what is asked for, and the one spelling under which it is kept.
//!
//! A target is forwarded as it was received (RFC 9110 section 7.7 forbids a proxy to rewrite it);
//! only the cache key uses the normal form of [`Url::key_text`].

use std::fmt;

/// A URL scheme that a cache serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// The scheme in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port that an authority without one means.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// A host as in a URL's authority: lower case; an IPv6 address keeps its brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(Box<str>);

impl Host {
    /// A registered name, IPv4 or bracketed IPv6 address; `None` for what RFC 3986 section 3.2.2 does not permit
    /// or for more than 255 bytes. Percent-encoded hosts are refused: no resolver knows them.
    pub fn parse(text: &str) -> Option<Host> {
        let valid = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                !text.is_empty()
                    && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte))
            }
        };
        (valid && text.len() <= 255).then(|| Host(text.to_ascii_lowercase().into()))
    }

    /// The host as it stands in a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, when the host is one.
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        self.0.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An absolute URL of a request: scheme, host, port and the path with its query as received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// http or https.
    pub scheme: Scheme,
    /// The host in lower case.
    pub host: Host,
    /// The port, filled in when the URL had none.
    pub port: u16,
    /// Path and query as received; never empty, begins with `/` (or is `*` for OPTIONS).
    pub path: Box<str>,
}

impl Url {
    /// Host, and the port where it is not the scheme's own: the value of a `Host` field.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.as_str().to_owned()
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Writes the spelling under which the URL is kept: scheme and host in lower case, default port left
    /// out, percent-encodings in upper case and those of unreserved characters decoded (RFC 3986 sections
    /// 6.2.2.1 and 6.2.2.2). Dot segments stay: an origin that treats `/a/../b` unlike `/b` must not
    /// have its answers mixed.
    pub fn key_text(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme.as_str().as_bytes());
        out.extend_from_slice(b"://");
        out.extend_from_slice(self.host.as_str().as_bytes());
        if self.port != self.scheme.default_port() {
            out.push(b':');
            out.extend_from_slice(self.port.to_string().as_bytes());
        }
        normalise_path(self.path.as_bytes(), out);
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.as_str(), self.authority(), self.path)
    }
}

/// The four forms of a request target (RFC 9112 section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/path?query`: to an origin, or to a reverse proxy.
    Origin(Box<str>),
    /// `http://host/path?query`: to a forward proxy.
    Absolute(Url),
    /// `host:port`: CONNECT only.
    Authority(Host, u16),
    /// `*`: OPTIONS only.
    Asterisk,
}

fn normalise_path(path: &[u8], out: &mut Vec<u8>) {
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        match (hex(rest.get(1)), hex(rest.get(2))) {
            (Some(high), Some(low)) => {
                let byte = high << 4 | low;
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    out.push(byte);
                } else {
                    out.extend_from_slice(&[b'%', rest[1].to_ascii_uppercase(), rest[2].to_ascii_uppercase()]);
                }
                rest = &rest[3..];
            }
            _ => {
                out.push(b'%');
                rest = &rest[1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

fn hex(byte: Option<&u8>) -> Option<u8> {
    byte.and_then(|&byte| char::from(byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, port: u16, path: &str) -> String {
        let url = Url { scheme: Scheme::Http, host: Host::parse(host).unwrap(), port, path: path.into() };
        let mut out = Vec::new();
        url.key_text(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn keys_are_normal_and_keep_their_meaning() {
        assert_eq!(key("A.Example", 80, "/%7Euser/%2f?q=%c3%a9"), "http://a.example/~user/%2F?q=%C3%A9");
        assert_eq!(key("a.example", 8080, "/a/../b"), "http://a.example:8080/a/../b");
        assert_eq!(key("[::1]", 80, "/%zz%4"), "http://[::1]/%zz%4");
    }

    #[test]
    fn hosts_that_are_no_hosts_are_refused() {
        for bad in ["", "a b", "a/b", "a@b", "[::1", "::1", "[x]", "a%41", "a:80"] {
            assert!(Host::parse(bad).is_none(), "{bad}");
        }
    }
}
