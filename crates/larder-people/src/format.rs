//! The fields of a line of an `external_acl` helper (`%SRC %LOGIN …`): the names that Squid's manual gives them, old and new.

use crate::escape::push;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Codes of one format; more are an error.
const CODES_MAX: usize = 64;

/// A format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    text: String,
    words: Vec<Word>,
}

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Literal(String),
    Code(Code),
}

/// The value that takes the place of a code.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Code {
    Login,
    Client,
    ClientPort,
    Host,
    Port,
    Url,
    Path,
    Scheme,
    Method,
    ListenerAddress,
    ListenerPort,
    /// A field of the request.
    Field(String),
    /// All fields.
    Head,
    /// The name of the helper.
    Name,
    /// The words of the setting `arguments`.
    Data,
}

/// Codes and their names. `%{Name}` and `%>{Name}` are fields beside these.
const CODES: &[(&[&str], Code)] = &[
    (&["%LOGIN", "%un", "%ul", "%EXT_USER", "%ue"], Code::Login),
    (&["%SRC", "%>a"], Code::Client),
    (&["%SRCPORT", "%>p"], Code::ClientPort),
    (&["%DST", "%>rd"], Code::Host),
    (&["%PORT", "%>rP"], Code::Port),
    (&["%URI", "%>ru", "%ru"], Code::Url),
    (&["%PATH", "%>rp", "%rp"], Code::Path),
    (&["%PROTO", "%>rs"], Code::Scheme),
    (&["%METHOD", "%>rm", "%rm"], Code::Method),
    (&["%MYADDR", "%la"], Code::ListenerAddress),
    (&["%MYPORT", "%lp"], Code::ListenerPort),
    (&["%>ha"], Code::Head),
    (&["%ACL"], Code::Name),
    (&["%DATA"], Code::Data),
];

/// A format that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatFault(String);

impl fmt::Display for FormatFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormatFault {}

/// The facts that a line may hold.
pub struct FormatFacts<'a> {
    /// The user, where one has logged in.
    pub user: Option<&'a str>,
    /// The client.
    pub client: SocketAddr,
    /// The host of the URL.
    pub host: &'a str,
    /// Its port.
    pub port: u16,
    /// The URL, or `host:port` of a CONNECT.
    pub url: &'a str,
    /// Its path with the query.
    pub path: &'a str,
    /// Its scheme; empty for a CONNECT.
    pub scheme: &'a str,
    /// The method.
    pub method: &'a str,
    /// The address and port of the listener.
    pub listener: (IpAddr, u16),
    /// All values of a field, one after the other.
    pub field: &'a dyn Fn(&str) -> Option<Vec<u8>>,
    /// All fields, as lines.
    pub head: &'a dyn Fn() -> Vec<u8>,
    /// The name of the helper.
    pub name: &'a str,
    /// The words of the setting `arguments`.
    pub arguments: &'a [String],
}

impl Format {
    /// Reads a format. A code that is not known is an error, because a helper that gets another field in its place decides something
    /// else.
    pub fn parse(text: &str) -> Result<Format, FormatFault> {
        let mut words = Vec::new();
        for word in text.split_ascii_whitespace() {
            words.push(read_word(word)?);
        }
        if words.len() > CODES_MAX {
            return Err(FormatFault(format!("a format has at most {CODES_MAX} words")));
        }
        // As in Squid: arguments come last where the format does not place them.
        if !words.contains(&Word::Code(Code::Data)) {
            words.push(Word::Code(Code::Data));
        }
        Ok(Format { text: text.to_owned(), words })
    }

    /// The text that it was read from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the line holds the user, so that a login is needed.
    pub fn asks_user(&self) -> bool {
        self.words.contains(&Word::Code(Code::Login))
    }

    /// The line about one request.
    pub fn line(&self, facts: &FormatFacts<'_>) -> Vec<u8> {
        let mut line = Vec::with_capacity(128);
        for word in &self.words {
            if !line.is_empty() {
                line.push(b' ');
            }
            match word {
                Word::Literal(text) => push(&mut line, text.as_bytes()),
                Word::Code(code) => code.push_to(facts, &mut line),
            }
        }
        line
    }
}

impl Code {
    fn push_to(&self, facts: &FormatFacts<'_>, line: &mut Vec<u8>) {
        let mut value = |value: &[u8]| match value.is_empty() {
            true => line.push(b'-'),
            false => push(line, value),
        };
        match self {
            Code::Login => value(facts.user.unwrap_or_default().as_bytes()),
            Code::Client => value(facts.client.ip().to_canonical().to_string().as_bytes()),
            Code::ClientPort => value(facts.client.port().to_string().as_bytes()),
            Code::Host => value(facts.host.as_bytes()),
            Code::Port => value(facts.port.to_string().as_bytes()),
            Code::Url => value(facts.url.as_bytes()),
            Code::Path => value(facts.path.as_bytes()),
            Code::Scheme => value(facts.scheme.as_bytes()),
            Code::Method => value(facts.method.as_bytes()),
            Code::ListenerAddress => value(facts.listener.0.to_canonical().to_string().as_bytes()),
            Code::ListenerPort => value(facts.listener.1.to_string().as_bytes()),
            Code::Field(name) => value(&(facts.field)(name).unwrap_or_default()),
            Code::Head => value(&(facts.head)()),
            Code::Name => value(facts.name.as_bytes()),
            Code::Data if facts.arguments.is_empty() => line.push(b'-'),
            Code::Data => {
                for (number, argument) in facts.arguments.iter().enumerate() {
                    if number > 0 {
                        line.push(b' ');
                    }
                    push(line, argument.as_bytes());
                }
            }
        }
    }
}

fn read_word(word: &str) -> Result<Word, FormatFault> {
    if !word.starts_with('%') {
        return match word.contains('%') {
            true => Err(FormatFault(format!("{word}: a code is a word by itself"))),
            false => Ok(Word::Literal(word.to_owned())),
        };
    }
    if let Some((_, code)) = CODES.iter().find(|(names, _)| names.contains(&word)) {
        return Ok(Word::Code(code.clone()));
    }
    let name = word.strip_prefix("%{").or_else(|| word.strip_prefix("%>{"));
    let name = name.and_then(|rest| rest.strip_suffix('}').or_else(|| rest.strip_suffix("}>h")));
    match name {
        Some(name) if is_token(name) => Ok(Word::Code(Code::Field(name.to_owned()))),
        _ => {
            let known: Vec<&str> = CODES.iter().filter_map(|(names, _)| names.first().copied()).collect();
            Err(FormatFault(format!("there is no code {word}; there are {} and %{{Field}}", known.join(" "))))
        }
    }
}

/// Whether a field can have this name (RFC 9110 section 5.6.2).
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: &str, user: Option<&str>, arguments: &[String]) -> String {
        let facts = FormatFacts {
            user,
            client: "192.0.2.7:4711".parse().unwrap(),
            host: "a.test",
            port: 80,
            url: "http://a.test/x?y=z w",
            path: "/x?y=z",
            scheme: "http",
            method: "GET",
            listener: ("127.0.0.1".parse().unwrap(), 3128),
            field: &|name| name.eq_ignore_ascii_case("user-agent").then(|| b"Mozilla/5 (X)".to_vec()),
            head: &|| b"Host: a.test\r\n".to_vec(),
            name: "office",
            arguments,
        };
        String::from_utf8(Format::parse(format).unwrap().line(&facts)).unwrap()
    }

    #[test]
    fn formats_and_their_lines() {
        let two = ["staff".to_owned(), "a b".to_owned()];
        for (format, arguments, wanted) in [
            ("%SRC %LOGIN", &[][..], "192.0.2.7 ada%20l -"),
            ("%>a %un", &two[..], "192.0.2.7 ada%20l staff a%20b"),
            ("%DATA %LOGIN", &two[..], "staff a%20b ada%20l"),
            ("%URI %PATH %METHOD %PROTO", &[][..], "http://a.test/x?y=z%20w /x?y=z GET http -"),
            ("%DST %PORT %SRCPORT %MYADDR %MYPORT", &[][..], "a.test 80 4711 127.0.0.1 3128 -"),
            ("%{User-Agent} %>{X-No}", &[][..], "Mozilla/5%20(X) - -"),
            ("%{User-Agent}>h %ACL fixed", &[][..], "Mozilla/5%20(X) office fixed -"),
            ("%>ha", &[][..], "Host:%20a.test%0D%0A -"),
        ] {
            assert_eq!(line(format, Some("ada l"), arguments), wanted, "{format}");
        }
        assert_eq!(line("%LOGIN", None, &[]), "- -");
    }

    #[test]
    fn an_unknown_code_is_an_error() {
        for format in ["%IDENT", "%SRC%LOGIN", "x%SRC", "%{a b}", "%{}", "%", "%%", "%src", "%{A:b}"] {
            assert!(Format::parse(format).is_err(), "{format}");
        }
        let fault = Format::parse("%IDENT").unwrap_err().to_string();
        assert!(fault.contains("no code %IDENT") && fault.contains("%LOGIN"), "{fault}");
        assert!(Format::parse("%SRC %LOGIN").unwrap().asks_user() && !Format::parse("%SRC").unwrap().asks_user());
    }
}
