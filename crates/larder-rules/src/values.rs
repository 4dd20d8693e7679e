//! Values that matchers have: ports, listeners, parameters of a query, values of a field, media types, regular expressions.

use crate::interned::Interned;
use larder_wire::fields::{Members, is_token, trim};
use regex::bytes::{Regex, RegexBuilder};
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

/// A port, or a range of ports: `443`, `8000-8999`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl PortRange {
    /// `None` where the text is no such range.
    pub fn parse(text: &str) -> Option<PortRange> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let range = PortRange { first: port(first)?, last: port(last)? };
        (range.first <= range.last).then_some(range)
    }

    /// Whether the port is one of them.
    pub fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// A listener by its address, `127.0.0.1:3128`, or by its port alone, `:3128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerPattern {
    address: Option<IpAddr>,
    port: u16,
}

impl ListenerPattern {
    /// `None` where the text is no such pattern.
    pub fn parse(text: &str) -> Option<ListenerPattern> {
        match text.strip_prefix(':') {
            Some(port) => Some(ListenerPattern { address: None, port: port.parse().ok()? }),
            None => {
                let address: SocketAddr = text.parse().ok()?;
                Some(ListenerPattern { address: Some(address.ip()), port: address.port() })
            }
        }
    }

    /// Whether this listener is meant.
    pub fn matches(&self, listener: SocketAddr) -> bool {
        self.port == listener.port() && self.address.is_none_or(|address| address == listener.ip())
    }
}

impl fmt::Display for ListenerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{}", SocketAddr::new(address, self.port)),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// A parameter of a query: `name`, `name=value`, or with a `*` at the end the beginning of either. Names and values are compared with
/// their encodings undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPattern {
    /// The text up to a `*`.
    pub(crate) text: Box<str>,
    pub(crate) is_prefix: bool,
}

impl QueryPattern {
    /// `None` where the text is no such pattern.
    pub fn parse(text: &str) -> Option<QueryPattern> {
        let start = text.strip_suffix('*').unwrap_or(text);
        let is_clean = !start.is_empty() && !start.starts_with('=') && !start.contains(['&', '#', '*']);
        is_clean.then(|| QueryPattern { text: start.into(), is_prefix: start.len() < text.len() })
    }

    /// Whether a query has such a parameter.
    pub fn matches(&self, query: &str) -> bool {
        parameters(query).any(|(whole, name)| match self.is_prefix {
            true => whole.starts_with(self.text.as_bytes()),
            false => name == self.text.as_bytes() || *whole == *self.text.as_bytes(),
        })
    }
}

impl fmt::Display for QueryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

/// The parameters of a query, each whole (`name=value`) and by its name, with encodings undone.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, [u8]>, Cow<'_, [u8]>)> {
    query.split(['&', ';']).filter(|parameter| !parameter.is_empty()).map(|parameter| {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
        (decoded(parameter), decoded(name))
    })
}

/// A part of a query with `%XX` and `+` undone once, as forms write them.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(text.as_bytes());
    }
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, digit(behind.first()), digit(behind.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                rest = behind.get(2..).unwrap_or_default();
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
}

/// A value of a field: `*` for any, a text that a member of its list is, `text*` that one begins with, or `~REGEX` that is found in a
/// line.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldTest {
    /// The field is there.
    Present,
    /// One of its members is this text, in any case.
    Equal(Box<str>),
    /// One of its members begins with this text, in any case.
    Begins(Box<str>),
    /// The expression is found in one of its lines.
    Regex(Pattern),
}

impl FieldTest {
    /// `Err` says why the text is no such value.
    pub fn parse(text: &str) -> Result<FieldTest, String> {
        Ok(match (text.strip_prefix('~'), text.strip_suffix('*')) {
            (Some(regex), _) => FieldTest::Regex(Pattern::parse(regex)?),
            (None, Some("")) => FieldTest::Present,
            (None, Some(start)) => FieldTest::Begins(start.to_ascii_lowercase().into()),
            (None, None) if text.is_empty() => return Err("a value is a text, and * stands for any".to_owned()),
            (None, None) => FieldTest::Equal(text.to_ascii_lowercase().into()),
        })
    }

    /// Whether one line of the field has such a value.
    pub fn matches_line(&self, line: &[u8]) -> bool {
        match self {
            FieldTest::Present => true,
            FieldTest::Regex(pattern) => pattern.is_in(line),
            FieldTest::Equal(text) => {
                trim(line).eq_ignore_ascii_case(text.as_bytes())
                    || Members::new(line).any(|member| member.eq_ignore_ascii_case(text.as_bytes()))
            }
            FieldTest::Begins(text) => {
                let begins =
                    |value: &[u8]| value.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text.as_bytes()));
                begins(trim(line)) || Members::new(line).any(begins)
            }
        }
    }
}

impl fmt::Display for FieldTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldTest::Present => f.write_str("*"),
            FieldTest::Equal(text) => f.write_str(text),
            FieldTest::Begins(text) => write!(f, "{text}*"),
            FieldTest::Regex(pattern) => write!(f, "~{pattern}"),
        }
    }
}

/// Whether the text can be the name of a field.
pub fn is_field_name(text: &str) -> bool {
    is_token(text.as_bytes()) && text.len() <= 256
}

/// Whether rules may change a field of this name.
pub fn may_change(name: &str) -> bool {
    is_field_name(name) && !NOT_CHANGED.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// Fields of a connection, of a framing, of a condition or of a part, which say what other bytes mean: no rule changes them.
const NOT_CHANGED: [&str; 23] = [
    "Age",
    "Cache-Status",
    "Connection",
    "Content-Length",
    "Content-Range",
    "Expect",
    "Host",
    "If-Match",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "If-Unmodified-Since",
    "Keep-Alive",
    "Max-Forwards",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Range",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Via",
];

/// A media type: `image/png`, `image/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaPattern(Box<str>);

impl MediaPattern {
    /// `None` where the text is no such pattern.
    pub fn parse(text: &str) -> Option<MediaPattern> {
        let (kind, subtype) = text.split_once('/')?;
        let is_good = is_token(kind.as_bytes()) && (subtype == "*" || is_token(subtype.as_bytes()));
        is_good.then(|| MediaPattern(text.to_ascii_lowercase().into()))
    }

    /// The text that a type is or, up to a `*`, begins with.
    pub(crate) fn parts(&self) -> (&str, bool) {
        self.0.strip_suffix('*').map_or((&self.0, false), |start| (start, true))
    }

    /// Whether the value of a `Content-Type` is of this type.
    pub fn matches(&self, value: &[u8]) -> bool {
        let (text, is_prefix) = self.parts();
        let essence = essence(value);
        match is_prefix {
            true => essence.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text.as_bytes())),
            false => essence.eq_ignore_ascii_case(text.as_bytes()),
        }
    }
}

impl fmt::Display for MediaPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A `Content-Type` without its parameters.
pub(crate) fn essence(value: &[u8]) -> &[u8] {
    trim(value.split(|&byte| byte == b';').next().unwrap_or_default())
}

/// A regular expression in the syntax of the crate `regex`: it takes time in proportion to the text, whatever the expression.
#[derive(Clone, Debug)]
pub struct Pattern(Arc<Regex>);

static PATTERNS: LazyLock<Interned<String, Regex>> = LazyLock::new(Interned::new);

/// A larger expression, once compiled, is refused.
pub(crate) const REGEX_BYTES_MAX: usize = 1 << 20;

impl Pattern {
    /// `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        let built = PATTERNS.get(text, |text| {
            // A path that was decoded may have a newline, which leads past no rule.
            let mut builder = RegexBuilder::new(text);
            builder.unicode(false).dot_matches_new_line(true).size_limit(REGEX_BYTES_MAX).build()
        });
        built.map(Pattern).map_err(|error| match error {
            regex::Error::CompiledTooBig(bytes) => format!("it needs more than {bytes} bytes"),
            other => other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        })
    }

    /// Whether it is found in the text.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }

    /// The bytes of its groups where it is found, the whole first; `None` where it is not found.
    pub fn groups<'t>(&self, text: &'t [u8]) -> Option<Vec<&'t [u8]>> {
        let found = self.0.captures(text)?;
        Some(found.iter().map(|group| group.map_or(&[][..], |group| group.as_bytes())).collect())
    }

    /// How many groups it has, without the whole.
    pub fn groups_len(&self) -> usize {
        self.0.captures_len() - 1
    }

    /// The expression.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.as_str() == other.as_str()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newline_is_any_letter() {
        let pattern = Pattern::parse("^/secret/.*$").unwrap();
        assert!(pattern.0.is_match(b"/secret/a\nb") && pattern.0.is_match(b"/secret/\n"));
    }

    #[test]
    fn parameters_match_with_their_encodings_undone() {
        for (pattern, query, wanted) in [
            ("utm_*", "a=1&utm_source=x", true),
            ("utm_*", "a=utm_", false),
            ("id=7", "id=7", true),
            ("id=7", "id=77", false),
            ("id=7*", "id=77", true),
            ("id", "%69d=9", true),
            ("q=a b", "q=a+b", true),
            ("q=a b", "q=a%20b", true),
            ("id", "idx=1", false),
            ("id", "", false),
            ("b", "a=1;b=2", true),
        ] {
            assert_eq!(QueryPattern::parse(pattern).unwrap().matches(query), wanted, "{pattern} {query}");
        }
        for wrong in ["", "*", "a&b", "=1", "a*b"] {
            assert_eq!(QueryPattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_of_fields_match_members_in_any_case() {
        for (test, line, wanted) in [
            ("*", "", true),
            ("gzip", "br, GZIP", true),
            ("gzip", "gzipped", false),
            ("application/*", "text/html, Application/json", true),
            ("Mozilla/5.0 (X, y)", "mozilla/5.0 (X, y)", true),
            ("~^a+$", "aaa", true),
            ("~^a+$", "aab", false),
        ] {
            assert_eq!(FieldTest::parse(test).unwrap().matches_line(line.as_bytes()), wanted, "{test} {line}");
        }
        assert!(FieldTest::parse("~(").unwrap_err().contains("unclosed"));
        assert!(FieldTest::parse("").is_err() && FieldTest::parse("~a{99999}{99999}").is_err());
    }

    #[test]
    fn ports_listeners_and_types() {
        let listener = |text: &str| ListenerPattern::parse(text).unwrap();
        let address = "10.0.0.1:3128".parse().unwrap();
        assert!(listener(":3128").matches(address) && listener("10.0.0.1:3128").matches(address));
        assert!(!listener("10.0.0.2:3128").matches(address) && !listener(":80").matches(address));
        assert!(PortRange::parse("80-90").unwrap().has(85) && !PortRange::parse("80").unwrap().has(81));
        assert!(["90-80", "0", "x", "", "1-70000"].iter().all(|text| PortRange::parse(text).is_none()));
        let media = |text: &str, value: &str| MediaPattern::parse(text).unwrap().matches(value.as_bytes());
        assert!(
            media("image/*", "Image/PNG") && media("text/html", "text/html; charset=x") && !media("text/x", "text/xml")
        );
    }
}
