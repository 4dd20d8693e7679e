//! A line of an access log, in any of the formats that people have: combined, Squid's native one, JSON.

use serde::Deserialize;
use std::borrow::Cow;
use std::net::IpAddr;

/// The parts of a log line that a rehearsal needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The client, where the line has an address.
    pub client: Option<IpAddr>,
    /// The user who had logged in.
    pub user: Option<Cow<'a, str>>,
    /// The method.
    pub method: Cow<'a, str>,
    /// A URL, or a path for a host that the line does not name.
    pub target: Cow<'a, str>,
    /// The host, where the line names it apart.
    pub host: Option<Cow<'a, str>>,
    /// The status that was answered.
    pub status: u16,
    /// The bytes that were sent.
    pub bytes: u64,
    /// The log says that the answer was not to be stored.
    pub not_stored: bool,
}

impl<'a> Line<'a> {
    /// A line that says no more.
    fn of((method, target): (&'a str, &'a str), status: u16, bytes: u64) -> Line<'a> {
        let (method, target) = (method.into(), target.into());
        Line { client: None, user: None, method, target, host: None, status, bytes, not_stored: false }
    }
}

/// Reads a line; `None` when it is in none of the formats.
pub fn parse(line: &str) -> Option<Line<'_>> {
    match line.as_bytes().first()? {
        b'{' => json(line),
        _ => squid(line).or_else(|| combined(line)),
    }
}

/// `time elapsed client code/status bytes method URL user from type`.
fn squid(line: &str) -> Option<Line<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (time, _elapsed) = (words.next()?, words.next()?.parse::<i64>().ok()?);
    time.parse::<f64>().ok()?;
    let client = words.next()?.parse().ok();
    let (_, status) = words.next()?.split_once('/')?;
    let bytes = words.next()?.parse().ok()?;
    let (method, target) = (words.next()?, words.next()?);
    let status = status.parse().ok()?;
    let user = words.next().and_then(user);
    Some(Line { client, user, ..Line::of((method, target), status, bytes) })
}

/// A name, where there is one.
fn user(text: &str) -> Option<Cow<'_, str>> {
    (!matches!(text, "-" | "")).then(|| text.into())
}

/// `client ident user [date] "METHOD target version" status bytes …`.
fn combined(line: &str) -> Option<Line<'_>> {
    let client = line.split(' ').next()?.parse().ok();
    let (before, rest) = line.split_once("] \"")?;
    // A name may have blanks.
    let user = before.rsplit_once(" [").and_then(|(before, _)| before.splitn(3, ' ').nth(2)).and_then(user);
    let (request, rest) = split_quoted(rest)?;
    let mut numbers = rest.trim_start().split(' ');
    let status = numbers.next()?.parse().ok()?;
    let bytes = numbers.next()?.parse().unwrap_or(0);
    let (method, rest) = request.split_once(' ')?;
    let target = rest.rsplit_once(' ').map_or(rest, |(target, _)| target);
    Some(Line { client, user, ..Line::of((method, target), status, bytes) })
}

/// The text before the next quotation mark that is not escaped.
fn split_quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some((&text[..at], &text[at + 1..])),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// Fields by our own names, and by those that nginx and others use.
#[derive(Deserialize)]
struct Json<'a> {
    #[serde(borrow, alias = "remote_addr", alias = "remote_ip", alias = "client_ip")]
    client: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "remote_user")]
    user: Option<Cow<'a, str>>,
    #[serde(borrow, alias = "request_method")]
    method: Cow<'a, str>,
    #[serde(borrow, alias = "request_uri", alias = "uri", alias = "path")]
    url: Cow<'a, str>,
    #[serde(borrow, alias = "http_host")]
    host: Option<Cow<'a, str>>,
    status: Number<'a>,
    #[serde(borrow, alias = "body_bytes_sent", alias = "size")]
    bytes: Option<Number<'a>>,
    #[serde(borrow, default)]
    not_stored: Option<Cow<'a, str>>,
}

/// A number, or one in quotation marks.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number<'a> {
    Is(u64),
    Says(#[serde(borrow)] Cow<'a, str>),
}

impl Number<'_> {
    fn value(&self) -> Option<u64> {
        match self {
            Number::Is(value) => Some(*value),
            Number::Says(text) => text.parse().ok(),
        }
    }
}

fn json(line: &str) -> Option<Line<'_>> {
    let json: Json<'_> = serde_json::from_str(line).ok()?;
    Some(Line {
        client: json.client.and_then(|client| client.parse().ok()),
        user: json.user.filter(|name| !matches!(&**name, "-" | "")),
        method: json.method,
        target: json.url,
        host: json.host,
        status: u16::try_from(json.status.value()?).ok()?,
        bytes: json.bytes.and_then(|bytes| bytes.value()).unwrap_or(0),
        not_stored: json.not_stored.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_that_people_have_are_read() {
        let wanted = Line {
            client: Some("10.0.0.1".parse().unwrap()),
            user: None,
            method: "GET".into(),
            target: "http://a.example/x?y".into(),
            host: None,
            status: 200,
            bytes: 1234,
            not_stored: false,
        };
        for line in [
            "784111777.123      5 10.0.0.1 TCP_MISS/200 1234 GET http://a.example/x?y - HIER_DIRECT/a.example text/html",
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET http://a.example/x?y HTTP/1.1\" 200 1234 \"-\" \"a \\\"b\\\"\" hit 12",
            "{\"client\":\"10.0.0.1\",\"method\":\"GET\",\"url\":\"http://a.example/x?y\",\"status\":200,\"bytes\":1234}",
            "{\"remote_addr\":\"10.0.0.1\",\"request_method\":\"GET\",\"request_uri\":\"http://a.example/x?y\",\"status\":\"200\",\"body_bytes_sent\":\"1234\"}",
        ] {
            assert_eq!(parse(line), Some(wanted.clone()), "{line}");
        }
        let path = parse("10.0.0.1 - me [x] \"HEAD /a\\\"b HTTP/1.1\" 304 - \"-\" \"-\"").unwrap();
        assert_eq!((&*path.target, path.bytes, path.status), ("/a\\\"b", 0, 304));
    }

    #[test]
    fn the_user_is_read_from_each_format() {
        for (line, wanted) in [
            ("784111777.123 5 10.0.0.1 TCP_MISS/200 1 GET http://a.example/ ann HIER_NONE/- -", Some("ann")),
            ("784111777.123 5 10.0.0.1 TCP_MISS/200 1 GET http://a.example/", None),
            ("10.0.0.1 - ann [x] \"GET /a HTTP/1.1\" 200 1", Some("ann")),
            ("10.0.0.1 - ann b [x] \"GET /a HTTP/1.1\" 200 1", Some("ann b")),
            ("10.0.0.1 - - [x] \"GET /a] \\\"b HTTP/1.1\" 200 1", None),
            ("{\"user\":\"ann\",\"method\":\"GET\",\"url\":\"/a\",\"status\":200}", Some("ann")),
            ("{\"remote_user\":\"\",\"method\":\"GET\",\"url\":\"/a\",\"status\":200}", None),
        ] {
            assert_eq!(parse(line).unwrap().user.as_deref(), wanted, "{line}");
        }
    }

    #[test]
    fn nonsense_is_no_line() {
        for line in ["", " ", "{", "{}", "x", "1 2 3 4", "a - - [b] \"c", "1.0 1 c TCP/x 1 GET u", "\u{0}\u{1}"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
