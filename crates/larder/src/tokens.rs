//! Tokens of container registries: the challenge of a registry, the answer of its token server, and the tokens that are
//! still good. No socket and no clock.

use larder_wire::Url;
use parking_lot::Mutex;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens that are kept; the next one takes the place of the one that ends first.
const TOKENS_MAX: usize = 256;

/// A longer token is none: it has to fit in the head of a request.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The life of a token that says nothing about it.
const USUAL_SECONDS: u64 = 60;

/// A token is not used for the last seconds of its life: it has to last until the registry has read it.
const SPARE: Duration = Duration::from_secs(5);

/// The longest time for which a token is kept.
const LIFE_MAX: Duration = Duration::from_secs(3_600);

/// Tokens by registry, user and repository, for all workers.
#[derive(Default)]
pub struct Tokens(Mutex<HashMap<String, (Arc<str>, Instant)>>);

impl Tokens {
    /// The value of `Authorization` for a scope, if its token is still good.
    pub fn get(&self, scope: &str, now: Instant) -> Option<Arc<str>> {
        let tokens = self.0.lock();
        tokens.get(scope).filter(|(_, until)| *until > now).map(|(token, _)| Arc::clone(token))
    }

    /// Keeps a token.
    pub fn put(&self, scope: String, token: &Token, now: Instant) -> Arc<str> {
        let value: Arc<str> = format!("Bearer {}", token.text).into();
        let mut tokens = self.0.lock();
        if tokens.len() >= TOKENS_MAX && !tokens.contains_key(&scope) {
            let first = tokens.iter().min_by_key(|(_, (_, until))| *until).map(|(scope, _)| scope.clone());
            first.and_then(|scope| tokens.remove(&scope));
        }
        let until = now + token.life.min(LIFE_MAX).saturating_sub(SPARE);
        tokens.insert(scope, (Arc::clone(&value), until));
        value
    }

    /// Forgets a token that the registry does not accept.
    pub fn forget(&self, scope: &str) {
        self.0.lock().remove(scope);
    }
}

/// A token, and how long it is good.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    text: String,
    life: Duration,
}

impl Token {
    /// Reads the answer of a token server.
    pub fn read(body: &[u8]) -> Option<Token> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
            expires_in: Option<u64>,
        }
        let answer: Answer = serde_json::from_slice(body).ok()?;
        let text = answer.token.filter(|text| !text.is_empty()).or(answer.access_token)?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        let life = Duration::from_secs(answer.expires_in.unwrap_or(USUAL_SECONDS));
        (is_plain && !text.is_empty() && text.len() <= TOKEN_BYTES_MAX).then_some(Token { text, life })
    }
}

/// The demand of a registry's 401.
#[derive(Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A token from this URL.
    Bearer(Url),
    /// User and password.
    Basic,
}

impl Challenge {
    /// The first challenge of a `WWW-Authenticate` that is understood.
    pub fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Challenge> {
        values.filter_map(|value| std::str::from_utf8(value).ok()).find_map(Challenge::read)
    }

    fn read(value: &str) -> Option<Challenge> {
        let (scheme, rest) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
        if scheme.eq_ignore_ascii_case("Basic") {
            return Some(Challenge::Basic);
        }
        if !scheme.eq_ignore_ascii_case("Bearer") {
            return None;
        }
        let parameters = parameters(rest);
        let of = |wanted: &str| {
            parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
        };
        let mut text = of("realm")?.clone();
        for name in ["service", "scope"] {
            if let Some(value) = of(name) {
                text.push(if text.contains('?') { '&' } else { '?' });
                let _ = write!(text, "{name}={}", encoded(value));
            }
        }
        Url::parse(&text).map(Challenge::Bearer)
    }
}

/// `name="value"` or `name=value`, separated by commas.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((name, behind)) = rest.split_once('=') {
        let (value, next) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => behind.split_at(behind.find(',').unwrap_or(behind.len())),
        };
        all.push((name.trim_matches([' ', ',', '\t']).to_owned(), value.to_owned()));
        rest = next;
    }
    all
}

fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b':' | b',' => {
                out.push(char::from(byte));
            }
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

/// The value of `Authorization` for `user:password` (RFC 7617).
pub fn basic(credentials: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("Basic ");
    for three in credentials.as_bytes().chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit) & 63) as usize;
            out.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let of = |value: &str| match Challenge::of(std::iter::once(value.as_bytes())) {
            Some(Challenge::Bearer(url)) => url.to_string(),
            Some(Challenge::Basic) => "basic".to_owned(),
            None => "none".to_owned(),
        };
        for (value, wanted) in [
            (
                r#"Bearer realm="https://auth.test/token",service="r.test",scope="repository:a/b:pull""#,
                "https://auth.test/token?service=r.test&scope=repository:a/b:pull",
            ),
            (r#"bearer service="a b", realm="http://auth.test/t?x=1""#, "http://auth.test/t?x=1&service=a%20b"),
            ("Bearer realm=https://auth.test/token", "https://auth.test/token"),
            (r#"Bearer service="r.test""#, "none"),
            (r#"Bearer realm="ftp://auth.test""#, "none"),
            (r#"Bearer realm="https://user@auth.test/""#, "none"),
            (r#"Bearer realm="https://auth.test"#, "https://auth.test/"),
            (r#"Basic realm="r""#, "basic"),
            ("Negotiate", "none"),
            ("", "none"),
        ] {
            assert_eq!(of(value), wanted, "{value}");
        }
    }

    #[test]
    fn tokens_end() {
        let token = |text: &str| Token::read(text.as_bytes());
        assert_eq!(token(r#"{"token": ""}"#), None);
        assert_eq!(token(r#"{"token": "a b"}"#), None);
        assert_eq!(token("[]"), None);
        let (tokens, now) = (Tokens::default(), Instant::now());
        let second = token(r#"{"access_token": "abc", "expires_in": 30}"#).unwrap();
        assert_eq!(&*tokens.put("s".to_owned(), &second, now), "Bearer abc");
        assert!(tokens.get("s", now + Duration::from_secs(24)).is_some());
        assert!(tokens.get("s", now + Duration::from_secs(25)).is_none());
        assert!(tokens.get("t", now).is_none());
        (0..TOKENS_MAX + 9).for_each(|number| _ = tokens.put(number.to_string(), &second, now));
        assert_eq!(tokens.0.lock().len(), TOKENS_MAX);
    }

    #[test]
    fn credentials_are_encoded() {
        assert_eq!(basic("Aladdin:open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(basic("a:bc"), "Basic YTpiYw==");
        assert_eq!(basic("a:b"), "Basic YTpi");
    }
}
