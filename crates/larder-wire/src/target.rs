//! Request targets and URLs: what is asked for, and the spelling under which it is kept.
//!
//! Path and query are forwarded as they were received (RFC 9110 section 7.7 forbids a proxy to rewrite them), and stand in
//! the cache key as they were received ([`Url::key_text`]).
//!
//! Bytes of a target: all of printable ASCII but space and `#`. RFC 3986 permits fewer, yet browsers and
//! tools send ``" < > \ ^ ` { | }`` as they are. None of those separates anything in our reading of a URL,
//! so they pass through as received. A control byte or a space could end the request line for the next
//! reader, a fragment is no part of a request, and of non-ASCII bytes nobody knows the charset: refused.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::decimal::{Decimal, decimal};
use crate::fields::byte_set;
use crate::{Fault, FaultKind, Method};

/// A URL scheme that a cache serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// Over TLS.
    Https,
    /// Files of an FTP server (RFC 1738 section 3.2), through a gateway: asked for at a forward proxy alone.
    Ftp,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 3] = [Scheme::Http, Scheme::Https, Scheme::Ftp];

    /// The scheme in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Ftp => "ftp",
        }
    }

    /// The scheme and `://`, as a URL begins with them.
    fn before_authority(self) -> &'static str {
        match self {
            Scheme::Http => "http://",
            Scheme::Https => "https://",
            Scheme::Ftp => "ftp://",
        }
    }

    /// The port that an authority without one means.
    pub fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
            Scheme::Ftp => 21,
        }
    }
}

/// A host as in a URL's authority: lower case; an IPv6 address keeps its brackets.
/// A copy shares its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(Arc<str>);

impl Host {
    /// A registered name, IPv4 or bracketed IPv6 address; `None` for what RFC 3986 section 3.2.2 does not permit
    /// or for more than 255 bytes. Percent-encoded hosts are refused: no resolver knows them.
    pub fn parse(text: &str) -> Option<Host> {
        is_host(text).then(|| Host::lower(text))
    }

    /// Like [`Host::parse`], for a text that is known to be a host.
    fn lower(text: &str) -> Host {
        match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            false => Host(text.into()),
            true => Host(text.to_ascii_lowercase().into()),
        }
    }

    /// The same of bytes.
    pub(crate) fn of_ascii(host: &[u8]) -> Option<Host> {
        std::str::from_utf8(host).ok().map(Host::lower)
    }

    /// The name of an origin on this machine that is no host: a socket, an application. It has a colon and no bracket, as no
    /// host has that [`Host::parse`] gives, so that no text from a network is ever equal to it.
    ///
    /// # Panics
    /// Where the name has no colon or begins with a bracket.
    pub fn local(name: &str) -> Host {
        let host = Host(name.into());
        assert!(host.is_local(), "{name} could be a host");
        host
    }

    /// Whether it is the name of an origin on this machine, made by [`Host::local`].
    pub fn is_local(&self) -> bool {
        !self.0.starts_with('[') && self.0.contains(':')
    }

    /// The host as it stands in a URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, when the host is one.
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        self.0.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }

    /// The one spelling of an IPv6 address, and of an IPv4 address that is written as one of IPv6 (RFC 4291 section 2.5.5.2, RFC 5952): both
    /// reach the same machine. Nothing for all other hosts, which have one spelling.
    pub fn spelled_plainly(&self) -> Option<Host> {
        if !self.0.starts_with('[') {
            return None;
        }
        self.ip().map(|address| Host::from(address.to_canonical()))
    }
}

impl From<std::net::IpAddr> for Host {
    fn from(address: std::net::IpAddr) -> Host {
        match address {
            std::net::IpAddr::V4(address) => Host(address.to_string().into()),
            std::net::IpAddr::V6(address) => Host(format!("[{address}]").into()),
        }
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
    /// http, https, or ftp.
    pub scheme: Scheme,
    /// The host in lower case.
    pub host: Host,
    /// The port, filled in when the URL had none.
    pub port: u16,
    /// Path and query as received; never empty, begins with `/` (or is `*` for OPTIONS).
    pub path: Box<str>,
}

impl Url {
    /// An absolute http or https URL. `None` for another scheme, for user information (credentials in a URL mislead
    /// people and are forbidden in requests: RFC 9110 section 4.2.4), for a fragment, and for a byte that no
    /// target may have. An empty port is the scheme's own; an empty path becomes `/`.
    pub fn parse(text: &str) -> Option<Url> {
        Url::parse_as(text, &[Scheme::Http, Scheme::Https])
    }

    /// A URL that a forward proxy may be asked for: as [`Url::parse`], and ftp URLs.
    pub fn parse_asked(text: &str) -> Option<Url> {
        Url::parse_as(text, &Scheme::ALL)
    }

    fn parse_as(text: &str, schemes: &[Scheme]) -> Option<Url> {
        let (scheme, rest) = split_scheme(text, schemes)?;
        let (authority, path) = rest.split_at(authority_len(rest));
        let (host, port) = split_authority(authority)?;
        if !is_target(path.as_bytes()) {
            return None;
        }
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}").into() };
        Some(Url { scheme, host: Host::lower(host), port: port.unwrap_or(scheme.default_port()), path })
    }

    /// Host, and the port where it is not the scheme's own: the value of a `Host` field.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.default_port() {
            self.host.as_str().to_owned()
        } else {
            let mut text = String::with_capacity(self.host.as_str().len() + ":65535".len());
            text.push_str(self.host.as_str());
            text.push(':');
            Decimal::of(self.port.into()).push_to(&mut text);
            text
        }
    }

    /// Whether this is its [`Url::authority`].
    pub fn has_authority(&self, text: &[u8]) -> bool {
        let is_usual = self.port == self.scheme.default_port();
        match text.strip_prefix(self.host.as_str().as_bytes()) {
            Some([]) => is_usual,
            Some([b':', port @ ..]) => !is_usual && port == Decimal::of(self.port.into()).as_bytes(),
            _ => false,
        }
    }

    /// Appends what [`Display`](fmt::Display) shows.
    pub fn write_to(&self, out: &mut String) {
        out.reserve("https://".len() + self.host.as_str().len() + ":65535".len() + self.path.len());
        out.push_str(self.scheme.before_authority());
        out.push_str(self.host.as_str());
        if self.port != self.scheme.default_port() {
            out.push(':');
            Decimal::of(self.port.into()).push_to(out);
        }
        if &*self.path != "*" {
            out.push_str(&self.path);
        }
    }

    /// The same as [`Url::key_text`] for who has written the URL with [`Url::write_to`] already; most often that is it.
    pub fn key_text_of(&self, written: &str, out: &mut Vec<u8>) {
        match written.is_empty() || &*self.path == "*" {
            false => out.extend_from_slice(written.as_bytes()),
            true => self.key_text(out),
        }
    }

    /// Writes the spelling under which the URL is kept: that in which an origin is asked for it. Scheme and host are in
    /// lower case and the default port is left out, there as here; path and query stay as they were received. A
    /// response to one spelling of a path is never used for another, although RFC 3986 section 6.2.2.2 calls some of
    /// them equivalent: origins exist that tell them apart.
    pub fn key_text(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.scheme.before_authority().as_bytes());
        out.extend_from_slice(self.host.as_str().as_bytes());
        if self.port != self.scheme.default_port() {
            out.push(b':');
            decimal(out, self.port.into());
        }
        out.extend_from_slice(self.path.as_bytes());
    }
}

/// A URL, or the beginning of one, in a spelling that equivalent URLs share (RFC 3986 sections 6.2.2.1 and 6.2.2.2):
/// encodings of unreserved characters are decoded, the others in upper case. A `%` that begins no encoding stays.
/// For whoever means all spellings at once, as a purge of a prefix does; no key is made of it.
pub fn common_spelling(url: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'%', url).is_none() {
        return Cow::Borrowed(url);
    }
    let (mut out, mut rest) = (Vec::with_capacity(url.len()), url);
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let Some((high, low)) = hex(rest.get(1)).zip(hex(rest.get(2))) else {
            out.push(b'%');
            rest = &rest[1..];
            continue;
        };
        let byte = high << 4 | low;
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', rest[1].to_ascii_uppercase(), rest[2].to_ascii_uppercase()]);
        }
        rest = &rest[3..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

/// As an absolute target. The path `*` is left out: that is how a proxy is asked about a whole server (RFC 9112
/// section 3.2.4).
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if &*self.path == "*" { "" } else { &self.path };
        write!(f, "{}://{}{path}", self.scheme.as_str(), self.authority())
    }
}

/// As in a request line.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Origin(path) => f.write_str(path),
            Target::Absolute(url) => url.fmt(f),
            Target::Authority(host, port) => write!(f, "{host}:{port}"),
            Target::Asterisk => f.write_str("*"),
        }
    }
}

impl Target {
    /// The path of another target of a GET that is in the same form and has the same scheme, host and port, each written as
    /// usual. A target that this function does not recognise need not be wrong.
    pub(crate) fn path_in<'a>(&self, other: &'a [u8]) -> Option<&'a str> {
        let rest = match self {
            Target::Origin(_) => other,
            Target::Absolute(url) => {
                let start = other.strip_prefix(url.scheme.before_authority().as_bytes())?;
                let rest = start.strip_prefix(url.host.as_str().as_bytes())?;
                match url.port == url.scheme.default_port() {
                    true => rest,
                    false => rest.strip_prefix(b":")?.strip_prefix(Decimal::of(url.port.into()).as_bytes())?,
                }
            }
            Target::Authority(..) | Target::Asterisk => return None,
        };
        let is_path = rest.starts_with(b"/") && is_target(rest);
        std::str::from_utf8(rest).ok().filter(|_| is_path)
    }

    /// Asks for this path instead; see [`Target::path_in`].
    pub(crate) fn set_path(&mut self, path: &str) {
        match self {
            Target::Origin(old) | Target::Absolute(Url { path: old, .. }) => *old = path.into(),
            Target::Authority(..) | Target::Asterisk => {}
        }
    }

    /// Appends what [`Display`](fmt::Display) shows.
    pub fn write_to(&self, out: &mut String) {
        match self {
            Target::Origin(path) => out.push_str(path),
            Target::Absolute(url) => url.write_to(out),
            Target::Authority(host, port) => {
                out.push_str(host.as_str());
                out.push(':');
                Decimal::of((*port).into()).push_to(out);
            }
            Target::Asterisk => out.push('*'),
        }
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

/// The URL that a reference such as a `Location` means (RFC 3986 section 5.2), without its fragment. `None` when
/// it is none that a cache serves.
pub fn resolve(base: &Url, reference: &str) -> Option<Url> {
    let reference = &reference[..reference.find('#').unwrap_or(reference.len())];
    if has_scheme(reference) {
        let url = Url::parse(reference)?;
        return Some(Url { path: without_dots(&url.path), ..url });
    }
    if reference.starts_with("//") {
        let url = Url::parse(&format!("{}:{reference}", base.scheme.as_str()))?;
        return Some(Url { path: without_dots(&url.path), ..url });
    }
    if !is_target(reference.as_bytes()) {
        return None;
    }
    let base_path = if base.path.starts_with('/') { &base.path } else { "/" };
    let (base_only_path, _) = split_query(base_path);
    let path = match reference.as_bytes().first() {
        None => base_path.into(),
        Some(b'?') => format!("{base_only_path}{reference}").into(),
        Some(b'/') => without_dots(reference),
        Some(_) => {
            let folder = &base_only_path[..base_only_path.rfind('/').map_or(0, |slash| slash + 1)];
            without_dots(&format!("{folder}{reference}"))
        }
    };
    Some(Url { path, ..base.clone() })
}

/// The target of a request line in the form that this method asks for (RFC 9112 section 3.2).
pub(crate) fn of_method(method: &Method, target: &[u8]) -> Result<Target, Fault> {
    let refuse = |detail| Err(Fault::client(FaultKind::Target, detail));
    let text = match std::str::from_utf8(target) {
        Ok(text) if is_target(target) => text,
        _ if target.contains(&b'#') => return refuse("a fragment in the target"),
        _ => return refuse("a control byte or a byte above 126 in the target"),
    };
    if *method == Method::Connect {
        return match split_authority(text).and_then(|(host, port)| Host::parse(host).zip(port)) {
            Some((host, port)) => Ok(Target::Authority(host, port)),
            None => refuse("the target of CONNECT is not host:port"),
        };
    }
    if text.starts_with('/') {
        return Ok(Target::Origin(text.into()));
    }
    match (text, Url::parse_asked(text)) {
        ("*", _) if *method == Method::Options => Ok(Target::Asterisk),
        ("*", _) => refuse("the target * is for OPTIONS only"),
        // An OPTIONS of a whole server, asked through a proxy (RFC 9112 section 3.2.4).
        (_, Some(url)) if *method == Method::Options && has_no_path(text) => {
            Ok(Target::Absolute(Url { path: "*".into(), ..url }))
        }
        (_, Some(url)) => Ok(Target::Absolute(url)),
        (_, None) if has_user_information(text) => {
            refuse("the URL has user information, which no request may have; send the login as Authorization")
        }
        (_, None) => refuse("the target is neither a path nor an absolute http, https or ftp URL"),
    }
}

/// `host[:port]` as in a URL's authority or a `Host` field; `None` when it is not exactly that. An empty
/// port is none (RFC 3986 section 3.2.3).
pub(crate) fn split_authority(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = authority_parts(text.as_bytes())?;
    Some((text.get(..host.len())?, port))
}

/// The same of bytes; the host is ASCII.
pub(crate) fn authority_parts(bytes: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let (host, rest) = match bytes {
        [b'[', ..] => {
            let parts = bytes.split_at(memchr::memchr(b']', bytes)? + 1);
            std::str::from_utf8(parts.0).is_ok_and(is_host).then_some(parts)?
        }
        _ => {
            let end = bytes.iter().position(|&byte| !HOST_BYTES[usize::from(byte)]).unwrap_or(bytes.len());
            (1..=HOST_LEN_MAX).contains(&end).then(|| bytes.split_at(end))?
        }
    };
    let port = match rest {
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(parse_port(digits)?),
        _ => return None,
    };
    Some((host, port))
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if digits.len() > 5 {
        return None;
    }
    let (port, is_number) = digits.iter().fold((0, true), |(port, is_number), &byte| {
        let digit = u32::from(byte ^ b'0');
        (port * 10 + digit, is_number & (digit < 10))
    });
    u16::try_from(port).ok().filter(|&port| is_number && port != 0)
}

static HOST_BYTES: [bool; 256] = byte_set(b"-._~!$&'()*+,;=");

const HOST_LEN_MAX: usize = 255;

fn is_host(text: &str) -> bool {
    if !(1..=HOST_LEN_MAX).contains(&text.len()) {
        return false;
    }
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inside) => inside.parse::<std::net::Ipv6Addr>().is_ok(),
        None => text.bytes().all(|byte| HOST_BYTES[usize::from(byte)]),
    }
}

/// Without early exit, so that the compiler takes many bytes at a time.
fn is_target(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |bad, &byte| bad | !(0x21..=0x7e).contains(&byte) | (byte == b'#'))
}

/// How much of what follows `scheme://` is before the path.
fn authority_len(rest: &str) -> usize {
    rest.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len())
}

fn split_scheme<'a>(text: &'a str, schemes: &[Scheme]) -> Option<(Scheme, &'a str)> {
    schemes.iter().find_map(|&scheme| {
        let prefix = scheme.before_authority();
        let (start, rest) = text.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some((scheme, rest))
    })
}

/// True when a reference is absolute: letters, digits, `+-.` and then a colon (RFC 3986 section 4.2).
fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Whether the authority has an `@` (RFC 3986 section 3.2.1).
fn has_user_information(absolute: &str) -> bool {
    split_scheme(absolute, &Scheme::ALL).is_some_and(|(_, rest)| rest[..authority_len(rest)].contains('@'))
}

fn has_no_path(absolute: &str) -> bool {
    split_scheme(absolute, &Scheme::ALL).is_some_and(|(_, rest)| !rest.contains(['/', '?']))
}

/// The path, and the query with its question mark.
fn split_query(path: &str) -> (&str, &str) {
    path.split_at(path.find('?').unwrap_or(path.len()))
}

/// Takes `.` and `..` out of the path, not out of the query (RFC 3986 section 5.2.4).
fn without_dots(path: &str) -> Box<str> {
    let (path, query) = split_query(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." => {}
            ".." => drop(segments.pop()),
            _ => {
                segments.push(part);
                continue;
            }
        }
        if last {
            segments.push("");
        }
    }
    format!("/{}{query}", segments.join("/")).into()
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
    fn keys_keep_the_path_as_it_was_received() {
        assert_eq!(key("A.Example", 80, "/%7Euser/%2f?q=%c3%a9"), "http://a.example/%7Euser/%2f?q=%c3%a9");
        assert_eq!(key("a.example", 8080, "/a/../b"), "http://a.example:8080/a/../b");
        assert_eq!(key("[::1]", 80, "/%zz%4"), "http://[::1]/%zz%4");
        for (one, other) in [("/~", "/%7E"), ("/%7E", "/%7e"), ("/a", "//a"), ("/a", "/./a"), ("/%%341", "/%4%31")] {
            assert_ne!(key("a", 80, one), key("a", 80, other));
        }
    }

    #[test]
    fn equivalent_urls_share_a_spelling() {
        let common = |url: &str| String::from_utf8(common_spelling(url.as_bytes()).into_owned()).unwrap();
        assert_eq!(common("http://a/%7Euser/%2f?q=%c3%a9"), "http://a/~user/%2F?q=%C3%A9");
        assert_eq!(common("http://a/%7Euser/%zz%4"), "http://a/~user/%zz%4");
        assert_eq!(common("http://a/a/../b"), "http://a/a/../b");
    }

    #[test]
    fn hosts_that_are_no_hosts_are_refused() {
        for bad in ["", "a b", "a/b", "a@b", "[::1", "::1", "[x]", "a%41", "a:80"] {
            assert!(Host::parse(bad).is_none(), "{bad}");
        }
    }
}
