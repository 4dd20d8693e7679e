//! URLs as lists compare them: without scheme, user, port and fragment, in lower case, without `www.`, and with one spelling of each path.
//!
//! `HTTP://www.Example.com:8080//a/./%62/?x` is `example.com/a/b?x`. Servers that tell letters by their case, or ports, may see
//! several resources where a list sees one: a list covers them all then.

use crate::network::address;

/// Path segments that are looked at; the prefixes that follow are not looked up.
const SEGMENTS_MAX: usize = 64;
/// Parameters of a query that are looked at.
const PARAMETERS_MAX: usize = 32;

/// The normal form of an entry or of a request's URL, and where its prefixes end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NormalUrl {
    /// The text.
    pub text: Vec<u8>,
    /// The ends of all prefixes under which it may be in a list: the host, the path up to each of its segments, the query up to each of
    /// its parameters.
    pub ends: Vec<usize>,
    /// Bytes of the host at the beginning.
    pub host_bytes: usize,
}

impl NormalUrl {
    /// The normal form of a URL in a list, with or without a scheme. `None` where it has no host.
    pub fn parse(text: &[u8]) -> Option<NormalUrl> {
        let rest = after_scheme(text);
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit(|&byte| byte == b'@').next()?;
        NormalUrl::of(without_port(host), path)
    }

    /// The normal form of a host and a path with its query.
    pub fn of(host: &[u8], path: &[u8]) -> Option<NormalUrl> {
        let host = host.get(..host.iter().rposition(|&byte| byte != b'.')? + 1)?;
        let mut url = NormalUrl { text: Vec::with_capacity(host.len() + path.len() + 1), ..NormalUrl::default() };
        match spelled_address(host) {
            Some(address) => url.text.extend(address.into_bytes()),
            None => url.text.extend(host.iter().map(u8::to_ascii_lowercase)),
        }
        if url.text.starts_with(b"www.") && url.text.len() > b"www.".len() {
            url.text.drain(..b"www.".len());
        }
        url.host_bytes = url.text.len();
        url.ends.push(url.text.len());
        let path = path.split(|&byte| byte == b'#').next()?;
        let query_at = path.iter().position(|&byte| byte == b'?');
        let (path, query) = path.split_at(query_at.unwrap_or(path.len()));
        url.add_path(path);
        if let [b'?', query @ ..] = query {
            url.add_query(query);
        }
        Some(url)
    }

    fn add_path(&mut self, path: &[u8]) {
        let path = unescaped(path);
        for segment in path.split(|&byte| byte == b'/') {
            match segment {
                b"" | b"." => {}
                b".." if self.ends.len() > 1 => {
                    self.ends.pop();
                    self.text.truncate(self.ends.last().copied().unwrap_or(self.host_bytes));
                }
                b".." => {}
                segment => {
                    self.text.push(b'/');
                    self.text.extend_from_slice(segment);
                    self.ends.push(self.text.len());
                }
            }
        }
        self.ends.truncate(SEGMENTS_MAX);
    }

    fn add_query(&mut self, query: &[u8]) {
        let query = unescaped(query);
        for (number, parameter) in query.split(|&byte| byte == b'&').enumerate() {
            self.text.push(if number == 0 { b'?' } else { b'&' });
            self.text.extend_from_slice(parameter);
            if number < PARAMETERS_MAX {
                self.ends.push(self.text.len());
            }
        }
    }

    /// Whether it is a host and nothing more.
    pub fn is_host(&self) -> bool {
        self.text.len() == self.host_bytes
    }

    /// The prefixes, the longest last.
    pub fn prefixes(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().filter_map(|&end| self.text.get(..end))
    }
}

/// An IPv6 address, which has many spellings, in its shortest one (RFC 5952).
fn spelled_address(host: &[u8]) -> Option<String> {
    let is_v6 = host.first() == Some(&b'[');
    let address = is_v6.then(|| std::str::from_utf8(host).ok().and_then(address)).flatten()?;
    Some(if address.is_ipv6() { format!("[{address}]") } else { address.to_string() })
}

fn after_scheme(text: &[u8]) -> &[u8] {
    let after = text.windows(3).position(|three| three == b"://");
    match after {
        Some(at) if text[..at].iter().all(|byte| byte.is_ascii_alphanumeric()) => &text[at + 3..],
        _ => text.strip_prefix(b"//").unwrap_or(text),
    }
}

/// The host in front of its port; an address in brackets has colons of its own.
fn without_port(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|&byte| byte == b':');
    match colon {
        Some(at) if !host[at..].contains(&b']') => &host[..at],
        _ => host,
    }
}

/// In lower case, with the escapes undone that stand for letters, digits and `-._~` (RFC 3986 section 6.2.2.2).
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escape = match (byte, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        match escape.filter(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) {
            Some(byte) => {
                out.push(byte.to_ascii_lowercase());
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(byte.to_ascii_lowercase());
                rest = after;
            }
        }
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms() {
        for (text, wanted) in [
            ("HTTP://www.Example.com:8080//a/./%62/?x", "example.com/a/b?x"),
            ("example.com", "example.com"),
            ("example.com./", "example.com"),
            ("https://user:secret@example.com/a", "example.com/a"),
            ("//example.com/a#b", "example.com/a"),
            ("http://[2001:DB8::1]:80/x", "[2001:db8::1]/x"),
            ("http://[2001:db8:0:0:0:0:0:1]/x", "[2001:db8::1]/x"),
            ("http://[::FFFF:192.0.2.1]/x", "192.0.2.1/x"),
            ("http://[v1.x]/x", "[v1.x]/x"),
            ("example.com/a/../../b", "example.com/b"),
            ("example.com/%2e%2E/%7Eme", "example.com/~me"),
            ("example.com/a%2Fb%zz%", "example.com/a%2fb%zz%"),
            ("example.com?a=http://x/&b", "example.com?a=http://x/&b"),
            ("www.com/x", "com/x"),
            ("www./x", "www/x"),
            ("www/x", "www/x"),
        ] {
            let url = NormalUrl::parse(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&url.text), wanted, "{text}");
        }
        for text in ["", "/", "/a", "http://", "http://user@/x", ".", "http://.:80/"] {
            assert_eq!(NormalUrl::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn prefixes_end_at_borders() {
        let url = NormalUrl::parse(b"http://example.com/a/bc/?x=1&y").unwrap();
        let prefixes: Vec<String> = url.prefixes().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        assert_eq!(
            prefixes,
            ["example.com", "example.com/a", "example.com/a/bc", "example.com/a/bc?x=1", "example.com/a/bc?x=1&y"]
        );
    }

    #[test]
    fn a_url_of_many_parts_is_looked_at_in_bounds() {
        let long = format!("example.com{}?{}", "/a".repeat(10_000), "b&".repeat(10_000));
        assert!(NormalUrl::parse(long.as_bytes()).unwrap().prefixes().count() <= SEGMENTS_MAX + PARAMETERS_MAX);
    }
}
