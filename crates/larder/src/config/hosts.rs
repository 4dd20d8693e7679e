//! Patterns of host names, as sites and pass lists use them.

use larder_wire::Host;
use std::fmt;

/// A host name, all names below one, or any host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `www.example.org`: this host.
    Exact(Host),
    /// `*.example.org`: every name below, at any depth, not `example.org` itself. Kept with its leading dot.
    Below(Box<str>),
    /// `*`: any host.
    Any,
}

impl HostPattern {
    /// `None` when the text is no host and no pattern.
    pub fn parse(text: &str) -> Option<HostPattern> {
        if text == "*" {
            return Some(HostPattern::Any);
        }
        match text.strip_prefix("*.") {
            Some(rest) => name(rest).map(|host| HostPattern::Below(format!(".{host}").into())),
            None => name(text).map(HostPattern::Exact),
        }
    }

    /// Whether `host` is meant; a trailing dot (a name from the root) makes no difference.
    pub fn matches(&self, host: &Host) -> bool {
        let host = host.as_str().strip_suffix('.').unwrap_or(host.as_str());
        match self {
            HostPattern::Exact(exact) => exact.as_str() == host,
            HostPattern::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
            HostPattern::Any => true,
        }
    }
}

/// A `*` elsewhere than in front is a valid character of RFC 3986 and a mistake in a pattern.
fn name(text: &str) -> Option<Host> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.contains('*') { None } else { Host::parse(text) }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(host) => write!(f, "{host}"),
            HostPattern::Below(suffix) => write!(f, "*{suffix}"),
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
            ("example.org", "www.example.org", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "badexample.org", false),
            ("*", "anything", true),
            ("[::1]", "[::1]", true),
        ] {
            let host = Host::parse(host).unwrap();
            assert_eq!(HostPattern::parse(pattern).unwrap().matches(&host), expected, "{pattern} {host}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["", "*.", "a*.example", "*.*.example", "a b", "http://a/"] {
            assert!(HostPattern::parse(bad).is_none(), "{bad}");
        }
    }
}
