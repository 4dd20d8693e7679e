//! Regular expressions about hosts, paths and URLs.
//!
//! Rules have no expression for hosts and none that sees the query, but lists do: an expression there is matched against `scheme://host/path?query`
//! of each request that is no tunnel. Where a tunnel may be meant, all tunnels are.

use super::translated::{LIST, Translated};
use crate::bound::{Bound, Cond};
use larder_rules::HostPattern;
use larder_rules::values::Pattern;

/// The part of a request that an expression is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The host of the URL.
    Host,
    /// The path with the query.
    Path,
    /// The whole URL; of a tunnel `host:port`.
    Url,
}

/// The condition of one expression.
pub fn translate(text: &str, folds_case: bool, reach: Reach, has_lists: bool) -> Translated {
    if text == "." || text == ".*" {
        return Translated { bound: Bound::exact(Cond::True), why: None, expressions: Vec::new() };
    }
    if reach == Reach::Host
        && let Some(hosts) = hosts(text)
    {
        return Translated { bound: Bound::exact(Cond::atom("host", hosts)), why: None, expressions: Vec::new() };
    }
    let unknown =
        |why: &str| Translated { bound: Bound::unknown(), why: Some(why.to_owned()), expressions: Vec::new() };
    let Some(expressions) = listed(text, reach) else {
        return unknown("an expression that Larder can't say");
    };
    if !has_lists {
        return unknown("an expression belongs into a list: give --out FILE, so that one can be written");
    }
    let list = Cond::atom("list", [LIST]);
    let connect = Cond::atom("method", ["CONNECT"]);
    let (must, may, why) = match reach {
        Reach::Path => {
            let why = "by a list, in both cases of letters; percent-encoded letters of a query are not undone";
            let plain = Cond::atom("path_regex", [format!("(?i){text}")]);
            (Cond::False, Cond::any([list.clone(), plain]), why)
        }
        Reach::Url if needs_slash(text) => {
            let why = "by a list, in both cases of letters; percent-encoded letters are not undone";
            (Cond::False, list.clone(), why)
        }
        _ => {
            let why =
                "by a list, which does not see the hosts of tunnels: a tunnel (CONNECT) is taken for one that is meant";
            (Cond::False, Cond::any([list.clone(), connect]), why)
        }
    };
    let must = if folds_case && reach != Reach::Host { list } else { must };
    Translated { bound: Bound { must, may }, why: Some(why.to_owned()), expressions }
}

/// The hosts that an expression means, where it means a name or all below one: `^a\.b$`, `\.b$`, `(^|\.)b$`.
pub fn hosts(text: &str) -> Option<Vec<String>> {
    let body = text.strip_suffix('$')?;
    let (body, exact, below) = if let Some(body) = body.strip_prefix("(^|\\.)").or_else(|| body.strip_prefix("(\\.|^)"))
    {
        (body, true, true)
    } else if let Some(body) = body.strip_prefix("^(.*\\.)?").or_else(|| body.strip_prefix("^(.+\\.)?")) {
        (body, true, true)
    } else if let Some(body) = body.strip_prefix("^(www\\.)?") {
        let name = literal(body)?;
        return Some(vec![name.clone(), format!("www.{name}")]);
    } else if let Some(body) = body.strip_prefix('^') {
        (body, true, false)
    } else {
        (body.strip_prefix("\\.")?, false, true)
    };
    let name = literal(body)?;
    let mut hosts = Vec::new();
    hosts.extend(exact.then(|| name.clone()));
    hosts.extend(below.then(|| format!("*.{name}")));
    Some(hosts)
}

/// The text of an expression without operators, if it is a name of a host.
fn literal(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                escaped @ ('.' | '-') => out.push(escaped),
                _ => return None,
            },
            letter if letter.is_ascii_alphanumeric() || letter == '-' || letter == '_' => out.push(letter),
            _ => return None,
        }
    }
    let name = out.to_ascii_lowercase();
    (!name.is_empty() && HostPattern::parse(&name).is_some()).then_some(name)
}

/// Whether all texts of an expression have a slash in them, as no `host:port` of a tunnel has.
fn needs_slash(text: &str) -> bool {
    let Some(alternatives) = alternatives(text) else { return false };
    alternatives.iter().all(|one| {
        let mut depth = 0_usize;
        let bytes = one.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\\' => at += 1,
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth = depth.saturating_sub(1),
                b'/' if depth == 0 && !matches!(bytes.get(at + 1), Some(b'?' | b'*' | b'{')) => return true,
                _ => {}
            }
            at += 1;
        }
        false
    })
}

/// The letters of an expression that stand for themselves or are operators: those in brackets and behind a `\` are left out.
struct Operators<'t> {
    letters: std::str::CharIndices<'t>,
    in_class: bool,
    escaped: bool,
}

impl Operators<'_> {
    fn of(text: &str) -> Operators<'_> {
        Operators { letters: text.char_indices(), in_class: false, escaped: false }
    }

    /// Whether neither brackets nor a `\` are open at the end.
    fn is_closed(&self) -> bool {
        !self.in_class && !self.escaped
    }
}

impl Iterator for Operators<'_> {
    type Item = (usize, char);

    fn next(&mut self) -> Option<(usize, char)> {
        loop {
            let (at, letter) = self.letters.next()?;
            match letter {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '[' if !self.in_class => self.in_class = true,
                ']' if self.in_class => self.in_class = false,
                _ if self.in_class => {}
                _ => return Some((at, letter)),
            }
        }
    }
}

/// The alternatives of an expression that stand in no group. `None` where its brackets do not close.
fn alternatives(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    let mut operators = Operators::of(text);
    for (at, letter) in operators.by_ref() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            '|' if depth == 0 => {
                parts.push(text.get(begin..at)?);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(begin..)?);
    (depth == 0 && operators.is_closed()).then_some(parts)
}

/// Expressions over `scheme://host/path?query`, one of which is found where the source's is found in its part.
fn listed(text: &str, reach: Reach) -> Option<Vec<String>> {
    if text.contains(['\n', '\r', '\0']) || text.starts_with('#') || Pattern::parse(text).is_err() {
        return None;
    }
    let mut out = Vec::new();
    for one in alternatives(text)? {
        let (body, is_anchored) = one.strip_prefix('^').map_or((one, false), |body| (body, true));
        if has_inner_anchor(body) {
            return None;
        }
        match reach {
            Reach::Url => out.push(one.to_owned()),
            Reach::Path if is_anchored => out.push(format!("^[a-z]+://[^/]*(?:{body})")),
            Reach::Path => {
                out.push(format!("^[a-z]+://[^/]*/.*(?:{body})"));
                if body.starts_with(['/', '(', '[', '.']) {
                    out.push(format!("^[a-z]+://[^/]*(?:{body})"));
                }
            }
            Reach::Host => {
                let (body, end) = body.strip_suffix('$').map_or((body, ""), |body| (body, "\\.?/"));
                let start = if is_anchored { "" } else { "[^/]*" };
                out.push(format!("^[a-z]+://{start}(?:{body}){end}"));
            }
        }
    }
    out.iter().all(|one| Pattern::parse(one).is_ok()).then_some(out)
}

/// A `^` that is no anchor of the whole, or a `$` inside a group, can't be moved.
fn has_inner_anchor(body: &str) -> bool {
    Operators::of(body).any(|(at, letter)| letter == '^' || (letter == '$' && at + 1 < body.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_expressions() {
        for (text, wanted) in [
            ("^www\\.example\\.com$", Some(vec!["www.example.com"])),
            ("\\.example\\.com$", Some(vec!["*.example.com"])),
            ("(^|\\.)example\\.com$", Some(vec!["example.com", "*.example.com"])),
            ("^(www\\.)?example\\.com$", Some(vec!["example.com", "www.example.com"])),
            ("example\\.com$", None),
            (".example.com$", None),
            ("^example\\.com", None),
            ("sex", None),
        ] {
            let wanted = wanted.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(hosts(text), wanted, "{text}");
        }
    }

    #[test]
    fn expressions_of_lists() {
        let found = |text: &str, reach, url: &str| {
            let all = listed(text, reach).unwrap_or_else(|| panic!("{text}"));
            all.iter().any(|one| Pattern::parse(&format!("(?i){one}")).unwrap().is_in(url.as_bytes()))
        };
        for (text, reach, url, wanted) in [
            ("^/ads/", Reach::Path, "http://a.test/ads/x", true),
            ("^/ads/", Reach::Path, "http://a.test/x/ads/", false),
            ("/ads", Reach::Path, "http://a.test/ads", true),
            ("/ads", Reach::Path, "http://a.test/x/ads", true),
            ("\\.mp3$", Reach::Path, "http://a.test/x.mp3", true),
            ("\\.mp3$", Reach::Path, "http://a.mp3/x?y=.MP3", true),
            ("\\.mp3$", Reach::Path, "http://a.mp3/", false),
            ("^/a|b$", Reach::Path, "http://x.test/qb", true),
            ("[/x]ads", Reach::Path, "http://a.test/ads", true),
            ("porn", Reach::Url, "http://porn.test/", true),
            ("^foo", Reach::Host, "http://foo.test/", true),
            ("^foo", Reach::Host, "http://a.foo/foo", false),
            ("foo$", Reach::Host, "http://a.foo/x", true),
            ("foo$", Reach::Host, "http://a.test/foo", false),
        ] {
            assert_eq!(found(text, reach, url), wanted, "{text} {url}");
        }
        for text in ["(", "a(^b)", "a$b", "#x", "a|(b"] {
            assert_eq!(listed(text, Reach::Path), None, "{text}");
        }
    }

    #[test]
    fn tunnels_are_meant_where_they_may_be() {
        for (text, reach, may_be_tunnel) in [
            ("porn", Reach::Url, true),
            ("^http://a", Reach::Url, false),
            ("/ads/", Reach::Url, false),
            ("a|/b", Reach::Url, true),
            ("(/b)", Reach::Url, true),
            ("a/?", Reach::Url, true),
            ("porn", Reach::Path, false),
            ("porn", Reach::Host, true),
        ] {
            let translated = translate(text, true, reach, true);
            assert_eq!(translated.bound.may.has("method"), may_be_tunnel, "{text}");
            assert!(translated.bound.may.has("list") && translated.why.is_some());
        }
        assert_eq!(translate("porn", true, Reach::Url, false).bound, Bound::unknown());
        assert_eq!(translate(".", false, Reach::Url, false).bound, Bound::exact(Cond::True));
    }
}
