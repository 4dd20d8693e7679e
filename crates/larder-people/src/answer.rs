//! Lines from helpers, in the forms of today (`OK key=value …`, `ERR`, `BH`, `TT`) and in older ones (a bare URL, `302:URL`, `AF`, `NA`,
//! a bare hash), which helpers still write.

use crate::escape;
use crate::kind::Kind;
use std::fmt;

/// The longest line that is taken from a helper, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Pairs of one answer; further ones are passed over.
const PAIRS_MAX: usize = 64;

/// An answer of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its result.
    pub result: Outcome,
    /// Its pairs, such as `user=`, in their order.
    pub pairs: Vec<(String, String)>,
}

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Yes, or a new URL.
    Ok,
    /// No, or no new URL.
    Err,
    /// The helper could not find it out.
    Broken,
    /// The handshake goes on, with the pair `token`.
    Continues,
}

impl Answer {
    /// The first value with this key, if it is not empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(key))?;
        Some(&*found.1).filter(|value| !value.is_empty())
    }

    /// All values with this key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| &**value)
    }

    /// Bytes that it holds, about.
    pub fn bytes(&self) -> usize {
        size_of::<Answer>()
            + self.pairs.iter().map(|(key, value)| key.len() + value.len() + 2 * size_of::<String>()).sum::<usize>()
    }
}

/// Why a line is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// It lacks the number of its channel.
    NoChannel,
    /// It is none of the protocol's.
    Unknown,
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AnswerFault::NoChannel => "the answer lacks the number of its channel: set `concurrency = 0`, the helper answers one line after the other",
            AnswerFault::Unknown => "the answer is none of the helper protocol's",
        })
    }
}

impl std::error::Error for AnswerFault {}

/// Reads a line without its end. With `has_channel` the number of the channel stands before the answer.
pub fn parse(line: &[u8], kind: Kind, has_channel: bool) -> Result<(Option<u32>, Answer), AnswerFault> {
    let line = line.trim_ascii();
    if !has_channel {
        return Ok((None, answer(line, kind)?));
    }
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (number, rest) = line.split_at(end);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(number).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    let channel: u32 = number.ok_or(AnswerFault::NoChannel)?;
    Ok((Some(channel), answer(rest.trim_ascii_start(), kind)?))
}

fn answer(line: &[u8], kind: Kind) -> Result<Answer, AnswerFault> {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let (first, rest) = line.split_at(end);
    let rest = rest.trim_ascii_start();
    let pair = |key: &str, value: &[u8]| (key.to_owned(), text(value));
    match (first, kind) {
        (b"OK", _) => Ok(with_pairs(Outcome::Ok, rest)),
        (b"ERR", _) => Ok(with_pairs(Outcome::Err, rest)),
        (b"BH", _) => Ok(with_pairs(Outcome::Broken, rest)),
        (b"TT", Kind::Negotiate | Kind::Ntlm) => {
            let mut answer = with_pairs(Outcome::Continues, rest);
            if answer.get("token").is_none() {
                answer.pairs = vec![pair("token", first_word(rest))];
            }
            Ok(answer)
        }
        // Here the name of the user is all of the rest, spaces and `DOMAIN\` included.
        (b"AF", Kind::Ntlm) => Ok(Answer { result: Outcome::Ok, pairs: vec![pair("user", rest)] }),
        (b"AF", Kind::Negotiate) => {
            let token = first_word(rest);
            let user = rest.get(token.len()..).unwrap_or_default().trim_ascii();
            Ok(Answer { result: Outcome::Ok, pairs: vec![pair("token", token), pair("user", user)] })
        }
        (b"NA", Kind::Negotiate) => {
            let token = first_word(rest);
            let message = rest.get(token.len()..).unwrap_or_default().trim_ascii();
            Ok(Answer { result: Outcome::Err, pairs: vec![pair("token", token), pair("message", message)] })
        }
        (b"NA", Kind::Ntlm) => Ok(Answer { result: Outcome::Err, pairs: vec![pair("message", rest)] }),
        (b"", Kind::UrlRewrite | Kind::StoreId) => Ok(Answer { result: Outcome::Err, pairs: Vec::new() }),
        (url, Kind::UrlRewrite) => old_rewrite(url).ok_or(AnswerFault::Unknown),
        (url, Kind::StoreId) if is_url(url) => Ok(Answer { result: Outcome::Ok, pairs: vec![pair("store-id", url)] }),
        (hash, Kind::Digest) if matches!(hash.len(), 32 | 64) && hash.iter().all(u8::is_ascii_hexdigit) => {
            Ok(Answer { result: Outcome::Ok, pairs: vec![pair("ha1", hash)] })
        }
        _ => Err(AnswerFault::Unknown),
    }
}

/// `URL`, or `302:URL` for a redirection. Fields behind it, which old rewriters repeat, say nothing.
fn old_rewrite(first: &[u8]) -> Option<Answer> {
    if let Some((status, url)) = first.split_at_checked(3)
        && status.iter().all(u8::is_ascii_digit)
        && let Some(url) = url.strip_prefix(b":")
    {
        let pairs = vec![("status".to_owned(), text(status)), ("url".to_owned(), text(url))];
        return is_url(url).then_some(Answer { result: Outcome::Ok, pairs });
    }
    // A CONNECT is answered by host and port.
    let is_authority = || {
        first.iter().rposition(|byte| *byte == b':').is_some_and(|at| {
            let port = first.get(at + 1..).unwrap_or_default();
            at > 0 && !port.is_empty() && port.iter().all(u8::is_ascii_digit)
        })
    };
    (is_url(first) || is_authority())
        .then(|| Answer { result: Outcome::Ok, pairs: vec![("rewrite-url".to_owned(), text(first))] })
}

fn is_url(text: &[u8]) -> bool {
    text.windows(3).position(|part| part == b"://").is_some_and(|at| at > 0 && at < 8)
}

/// Reads pairs to the first word that is none. The rest is a message, as older helpers write one.
fn with_pairs(result: Outcome, line: &[u8]) -> Answer {
    let mut pairs = Vec::new();
    let mut rest = line;
    while !rest.is_empty() && pairs.len() < PAIRS_MAX {
        let Some((key, after)) = key_of(rest) else { break };
        let Some((value, is_quoted, further)) = escape::word(after) else { break };
        let value = match is_quoted || is_url(&value) {
            true => value,
            false => escape::decode(&value),
        };
        pairs.push((key, text(&value)));
        rest = further;
    }
    if pairs.is_empty() && !rest.is_empty() {
        pairs.push(("message".to_owned(), text(rest)));
    }
    Answer { result, pairs }
}

/// The key before an equals sign, and the rest behind that.
fn key_of(line: &[u8]) -> Option<(String, &[u8])> {
    let end = line.iter().position(|byte| matches!(byte, b'=' | b' ' | b'"'))?;
    let (key, rest) = line.split_at(end);
    let rest = rest.strip_prefix(b"=")?;
    let is_key =
        !key.is_empty() && key.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    is_key.then(|| (text(key), rest))
}

fn first_word(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b' ').next().unwrap_or_default()
}

/// Text without control characters: it goes into pages, logs and fields.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(line: &str, kind: Kind, has_channel: bool) -> String {
        match parse(line.as_bytes(), kind, has_channel) {
            Ok((channel, answer)) => {
                let pairs: Vec<String> = answer.pairs.iter().map(|(key, value)| format!(" {key}={value}")).collect();
                let channel = channel.map(|number| format!("{number}: ")).unwrap_or_default();
                format!("{channel}{:?}{}", answer.result, pairs.concat())
            }
            Err(fault) => format!("{fault:?}"),
        }
    }

    #[test]
    fn answers_of_rewriters() {
        for (line, wanted) in [
            ("", "Err"),
            ("ERR", "Err"),
            ("OK", "Ok"),
            ("OK rewrite-url=\"http://b.test/a b\"", "Ok rewrite-url=http://b.test/a b"),
            ("OK rewrite-url=http://b.test/a%20b", "Ok rewrite-url=http://b.test/a%20b"),
            ("OK rewrite-url=http%3A//b.test/", "Ok rewrite-url=http://b.test/"),
            ("OK status=302 url=\"http://b.test/\"", "Ok status=302 url=http://b.test/"),
            ("302:http://b.test/", "Ok status=302 url=http://b.test/"),
            ("http://b.test/ 1.2.3.4/- - GET", "Ok rewrite-url=http://b.test/"),
            ("b.test:443", "Ok rewrite-url=b.test:443"),
            ("BH message=\"no database\"", "Broken message=no database"),
            ("302:", "Unknown"),
            ("nonsense", "Unknown"),
            (":443", "Unknown"),
        ] {
            assert_eq!(said(line, Kind::UrlRewrite, false), wanted, "{line:?}");
        }
        assert_eq!(said("OK store-id=http://m.internal/x", Kind::StoreId, false), "Ok store-id=http://m.internal/x");
        assert_eq!(said("http://m.internal/x", Kind::StoreId, false), "Ok store-id=http://m.internal/x");
    }

    #[test]
    fn answers_with_channels() {
        assert_eq!(said("7 OK", Kind::UrlRewrite, true), "7: Ok");
        assert_eq!(said("7", Kind::UrlRewrite, true), "7: Err");
        assert_eq!(said("12 ERR message=x", Kind::ExternalAcl, true), "12: Err message=x");
        // squidGuard answers so, whatever it was asked with.
        for line in ["ERR", "OK", "", "-1 OK", "99999999999 OK", "x OK", "http://a.test/ OK"] {
            assert_eq!(said(line, Kind::UrlRewrite, true), "NoChannel", "{line:?}");
        }
    }

    #[test]
    fn answers_of_access_rules_and_logins() {
        for (kind, line, wanted) in [
            (Kind::ExternalAcl, "OK user=ada tag=staff log=x%20y", "Ok user=ada tag=staff log=x y"),
            (Kind::ExternalAcl, r#"OK user="a \"b\"" group=x group=y"#, r#"Ok user=a "b" group=x group=y"#),
            (Kind::ExternalAcl, "", "Unknown"),
            (Kind::ExternalAcl, "okay", "Unknown"),
            (Kind::Basic, "OK", "Ok"),
            (Kind::Basic, "ERR No such user", "Err message=No such user"),
            (Kind::Basic, "ERR message=\"Wrong password\"", "Err message=Wrong password"),
            (Kind::Digest, "OK ha1=\"0123456789abcdef0123456789abcdef\"", "Ok ha1=0123456789abcdef0123456789abcdef"),
            (Kind::Digest, "0123456789abcdef0123456789abcdef", "Ok ha1=0123456789abcdef0123456789abcdef"),
            (Kind::Digest, "ERR", "Err"),
            (Kind::Ntlm, "TT TlRM==", "Continues token=TlRM=="),
            (Kind::Ntlm, "TT token=TlRM", "Continues token=TlRM"),
            (Kind::Ntlm, r"AF OFFICE\ada", r"Ok user=OFFICE\ada"),
            (Kind::Ntlm, "NA Logon Failure", "Err message=Logon Failure"),
            (Kind::Negotiate, "AF oYGF ada@OFFICE.TEST", "Ok token=oYGF user=ada@OFFICE.TEST"),
            (Kind::Negotiate, "NA = refused", "Err token== message=refused"),
            (Kind::Negotiate, "OK token=oYGF user=ada", "Ok token=oYGF user=ada"),
            (Kind::Negotiate, "BH no keytab", "Broken message=no keytab"),
            (Kind::Basic, "TT x", "Unknown"),
        ] {
            assert_eq!(said(line, kind, false), wanted, "{kind:?} {line:?}");
        }
    }

    #[test]
    fn an_answer_has_no_control_characters() {
        let (_, answer) = parse(b"OK user=a%0ab message=\"x\x01\ry\"", Kind::ExternalAcl, false).unwrap();
        assert_eq!((answer.get("user"), answer.get("message")), (Some("ab"), Some("xy")));
        assert_eq!(answer.get("nothing"), None);
    }

    proptest! {
        #[test]
        fn random_bytes_are_answers_or_faults(line: Vec<u8>, has_channel: bool) {
            for kind in Kind::ALL {
                if let Ok((channel, answer)) = parse(&line, kind, has_channel) {
                    prop_assert_eq!(channel.is_some(), has_channel);
                    prop_assert!(answer.pairs.len() <= PAIRS_MAX);
                }
            }
        }
    }
}
