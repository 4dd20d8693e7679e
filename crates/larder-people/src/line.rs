//! Lines to helpers, without channel and line end, which [`with_channel`] puts around them.

use crate::escape::{push, push_bare};
use std::net::IpAddr;

/// A longer line is not sent: helpers read into buffers of a fixed size.
pub const LINE_BYTES_MAX: usize = 32 << 10;

/// The facts about a request that rewriters get.
#[derive(Clone, Copy, Debug)]
pub struct Rewrite<'a> {
    /// The URL, or `host:port` of a CONNECT.
    pub url: &'a str,
    /// The client.
    pub client: IpAddr,
    /// The user, where one has logged in.
    pub user: Option<&'a str>,
    /// The method.
    pub method: &'a str,
    /// The address and port of the listener.
    pub listener: (IpAddr, u16),
}

/// The line of `url_rewrite` and `store_id`: `URL client/- user method myip=… myport=…`.
pub fn rewrite(facts: &Rewrite<'_>) -> Vec<u8> {
    let mut line = Vec::with_capacity(facts.url.len() + 64);
    push_bare(&mut line, facts.url.as_bytes());
    line.extend_from_slice(format!(" {}/- ", facts.client).as_bytes());
    match facts.user {
        Some(user) => push(&mut line, user.as_bytes()),
        None => line.push(b'-'),
    }
    line.push(b' ');
    push_bare(&mut line, facts.method.as_bytes());
    line.extend_from_slice(format!(" myip={} myport={}", facts.listener.0, facts.listener.1).as_bytes());
    line
}

/// The line of `basic`: user and password.
pub fn basic(user: &[u8], password: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(user.len() + password.len() + 1);
    push(&mut line, user);
    line.push(b' ');
    push(&mut line, password);
    line
}

/// The line of `digest`: user and realm in quotation marks. `None` where they hold one, or could end the line.
pub fn digest(user: &str, realm: &str) -> Option<Vec<u8>> {
    let is_plain = |text: &str| !text.contains(|letter: char| letter == '"' || letter == '\\' || letter.is_control());
    (is_plain(user) && is_plain(realm)).then(|| format!("\"{user}\":\"{realm}\"").into_bytes())
}

/// The line of a handshake: `YR` begins one, `KK` continues it. `None` where the token is not base64.
pub fn handshake(begins: bool, token: &str) -> Option<Vec<u8>> {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if !token.bytes().all(is_base64) {
        return None;
    }
    let word = if begins { "YR" } else { "KK" };
    Some(match token.is_empty() {
        true => word.into(),
        false => format!("{word} {token}").into_bytes(),
    })
}

/// A whole line: with the number of its channel before it, where the helper answers several at once.
pub fn with_channel(channel: Option<u32>, line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len() + 12);
    if let Some(channel) = channel {
        out.extend_from_slice(format!("{channel} ").as_bytes());
    }
    out.extend_from_slice(line);
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: Vec<u8>) -> String {
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn lines_as_helpers_read_them() {
        let facts = Rewrite {
            url: "http://a.test/x y",
            client: "192.0.2.7".parse().unwrap(),
            user: Some("ada l"),
            method: "GET",
            listener: ("127.0.0.1".parse().unwrap(), 3128),
        };
        assert_eq!(text(rewrite(&facts)), "http://a.test/x%20y 192.0.2.7/- ada%20l GET myip=127.0.0.1 myport=3128");
        let nobody = Rewrite { user: None, url: "a.test:443", method: "CONNECT", ..facts };
        assert_eq!(text(rewrite(&nobody)), "a.test:443 192.0.2.7/- - CONNECT myip=127.0.0.1 myport=3128");
        assert_eq!(text(basic(b"ada", b"se cret%\n")), "ada se%20cret%25%0A");
        assert_eq!(digest("ada", "the office").map(text).as_deref(), Some("\"ada\":\"the office\""));
        assert_eq!(digest("a\"b", "r"), None);
        assert_eq!(digest("a\nb", "r"), None);
        assert_eq!(handshake(true, "TlRM=").map(text).as_deref(), Some("YR TlRM="));
        assert_eq!(handshake(false, "a b"), None);
        assert_eq!(handshake(true, "").map(text).as_deref(), Some("YR"));
        assert_eq!(text(with_channel(Some(7), b"x")), "7 x\n");
        assert_eq!(text(with_channel(None, b"x")), "x\n");
    }
}
