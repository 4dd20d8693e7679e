//! The URL of a request as `url_regex` and `target_regex` see it: as it was sent, with its encodings undone once and nothing else. Squid's
//! `url_regex` and `urlpath_regex` see the same.

use crate::facts::{Facts, Stop};
use larder_wire::{Host, Method};

/// Path and query; `None` for a CONNECT.
pub(crate) fn target(facts: &impl Facts) -> Result<Option<Vec<u8>>, Stop> {
    let Some(path) = facts.sent_path()? else { return Ok(None) };
    let query = facts.query();
    let mut sent = Vec::with_capacity(path.len() + query.map_or(0, |query| query.len() + 1));
    sent.extend_from_slice(path.as_bytes());
    if let Some(query) = query {
        sent.push(b'?');
        sent.extend_from_slice(query.as_bytes());
    }
    undo(&mut sent);
    Ok(Some(sent))
}

/// `scheme://host/path?query`, with a port that is not the usual one of the scheme; `host:port` for a CONNECT.
pub(crate) fn url(facts: &impl Facts) -> Result<Vec<u8>, Stop> {
    let host = written(facts.host());
    let Some(target) = (if *facts.method() == Method::Connect { None } else { target(facts)? }) else {
        return Ok(format!("{host}:{}", facts.port()).into_bytes());
    };
    let (scheme, port) = (facts.scheme(), facts.port());
    let mut url = match port == scheme.default_port() {
        true => format!("{}://{host}", scheme.as_str()),
        false => format!("{}://{host}:{port}", scheme.as_str()),
    }
    .into_bytes();
    url.extend_from_slice(&target);
    Ok(url)
}

/// The name as expressions see it: dots at its end say nothing.
pub(crate) fn written(host: &Host) -> &str {
    host.as_str().trim_end_matches('.')
}

/// Undoes `%XX` once, and writes `%%` as `%`; `%00` stays as it is, as all do that are no encodings.
fn undo(text: &mut Vec<u8>) {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (mut read, mut write) = (0, 0);
    while let Some(&byte) = text.get(read) {
        let (byte, len) = match (byte, digit(text.get(read + 1)), digit(text.get(read + 2))) {
            (b'%', ..) if text.get(read + 1) == Some(&b'%') => (b'%', 2),
            (b'%', Some(high), Some(low)) if high | low > 0 => (high << 4 | low, 3),
            _ => (byte, 1),
        };
        if let Some(place) = text.get_mut(write) {
            *place = byte;
        }
        (read, write) = (read + len, write + 1);
    }
    text.truncate(write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_undone_once() {
        for (sent, wanted) in [
            ("/casino", "/casino"),
            ("/%63asino", "/casino"),
            ("/;%63%61x?q=%2f", "/;cax?q=/"),
            ("/%2563asino", "/%63asino"),
            ("/%%63asino", "/%63asino"),
            ("/a%00b%zz%6", "/a%00b%zz%6"),
            ("%", "%"),
            ("%%", "%"),
        ] {
            let mut text = sent.as_bytes().to_vec();
            undo(&mut text);
            assert_eq!(String::from_utf8_lossy(&text), wanted, "{sent}");
        }
    }
}
