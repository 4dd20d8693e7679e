//! Patterns of host names, as rules, sites and pass lists use them.

use larder_wire::Host;
use std::fmt;

/// A host name, all names below one, both of these, or any host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `www.example.org`: this host.
    Exact(Host),
    /// `*.example.org`: every name below, at any depth, not `example.org` itself. Kept with its leading dot.
    Below(Box<str>),
    /// `.example.org`: this host and every name below, as in Squid's `dstdomain` and in lists. Kept with its leading dot.
    Tree(Box<str>),
    /// `*`: any host.
    Any,
}

impl HostPattern {
    /// `None` when the text is no host and no pattern.
    pub fn parse(text: &str) -> Option<HostPattern> {
        if text == "*" {
            return Some(HostPattern::Any);
        }
        match (text.strip_prefix("*."), text.strip_prefix('.')) {
            (Some(rest), _) => below(rest).map(HostPattern::Below),
            (_, Some(rest)) => below(rest).map(HostPattern::Tree),
            (None, None) => name(text).map(HostPattern::Exact),
        }
    }

    /// Whether `host` is meant; dots at its end (a name from the root) make no difference, nor does the spelling of an address.
    pub fn matches(&self, host: &Host) -> bool {
        let plain = host.spelled_plainly();
        let host = plain.as_ref().unwrap_or(host);
        let host = host.as_str().trim_end_matches('.');
        match self {
            HostPattern::Exact(exact) => exact.as_str() == host,
            HostPattern::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
            HostPattern::Tree(suffix) => host.ends_with(&**suffix) || suffix.get(1..) == Some(host),
            HostPattern::Any => true,
        }
    }
}

/// A `*` elsewhere than in front is a valid character of RFC 3986 and a mistake in a pattern.
fn name(text: &str) -> Option<Host> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let host = if text.contains('*') || text.starts_with('.') { None } else { Host::parse(text) }?;
    Some(host.spelled_plainly().unwrap_or(host))
}

/// The names below a name, as a suffix with its dot. An address has none.
fn below(text: &str) -> Option<Box<str>> {
    name(text).filter(|host| host.ip().is_none()).map(|host| format!(".{host}").into())
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(host) => write!(f, "{host}"),
            HostPattern::Below(suffix) => write!(f, "*{suffix}"),
            HostPattern::Tree(suffix) => f.write_str(suffix),
            HostPattern::Any => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, host, expected) in [
            ("example.org", "EXAMPLE.org", true),
            ("example.org", "example.org.", true),
            ("example.org", "example.org..", true),
            ("example.org", "www.example.org", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "badexample.org", false),
            (".example.org", "example.org", true),
            (".example.org", "a.b.EXAMPLE.org.", true),
            (".example.org", "badexample.org", false),
            (".example.org", "org", false),
            ("127.0.0.9", "[::ffff:127.0.0.9]", true),
            ("127.0.0.9", "[::FFFF:7f00:9]", true),
            ("127.0.0.9", "[::ffff:127.0.0.8]", false),
            ("[::ffff:127.0.0.9]", "127.0.0.9", true),
            ("[0:0:0:0:0:0:0:1]", "[::1]", true),
            ("[2001:db8::1]", "[2001:0DB8:0::0001]", true),
            ("*", "anything", true),
            ("[::1]", "[::1]", true),
        ] {
            let host = Host::parse(host).unwrap();
            assert_eq!(HostPattern::parse(pattern).unwrap().matches(&host), expected, "{pattern} {host}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in [
            "",
            "*.",
            ".",
            "..a",
            "*..a",
            ".*.a",
            "*.[::1]",
            ".127.0.0.1",
            "a*.example",
            "*.*.example",
            "a b",
            "http://a/",
        ] {
            assert!(HostPattern::parse(bad).is_none(), "{bad}");
        }
    }
}
