//! How the path of a request target can be read. RFC 3986 section 6.2.2 lets everybody decode unreserved characters and
//! remove dot segments; servers and frameworks go further: they decode once more, take `%2F` and `\` for `/`, join empty
//! segments, cut parameters (`;v=1`) off, drop dots and spaces at the end of a name. A proxy that chooses an origin by
//! the path must not choose by one reading where that origin acts by another.

use std::borrow::Cow;

/// A path without its query, as the reader sees it who undoes all that anybody undoes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// One path. A prefix that any reader finds at its beginning, segment by segment, is found at the beginning of this one,
    /// if that prefix was resolved in the same way: each reader undoes some of what is undone here, and
    /// nothing that is undone makes a segment begin elsewhere but at its own place.
    Path(Cow<'a, [u8]>),
    /// For some reader it goes up by a `..`: from where to where, readers disagree.
    Climbs,
    /// Nobody knows how it is read: it has an encoding that no reader should accept (`%zz`, `%u002f`, a zero byte, an overlong
    /// character), or a `\` or an encoded `/` within a parameter (`/a;\b`), where some readers end the parameter and others
    /// do not.
    Unreadable,
}

impl<'a> Reading<'a> {
    /// Of a path with or without its query.
    pub fn of(target: &'a str) -> Reading<'a> {
        let path = &target[..target.find('?').unwrap_or(target.len())];
        if is_plain(path) {
            return Reading::Path(Cow::Borrowed(path.as_bytes()));
        }
        match decoded(path.as_bytes()).map(|decoded| resolved(&decoded)) {
            Some(Reading::Path(_)) if has_divided_parameter(path) => Reading::Unreadable,
            Some(reading) => reading,
            None => Reading::Unreadable,
        }
    }
}

/// Whether all readers of a target agree on its path.
pub fn is_plain(target: &str) -> bool {
    let mut before = 0;
    for byte in target.bytes() {
        match byte {
            b'?' => break,
            b'%' | b'\\' | b';' => return false,
            // An empty segment, or one that begins or ends with a dot.
            b'/' | b'.' if before == b'/' => return false,
            b'/' if before == b'.' => return false,
            _ => before = byte,
        }
    }
    before != b'.'
}

/// Decoded until nothing is left to decode.
fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let is_stray = |at: usize| !path[at..].get(1..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    if memchr::memchr_iter(b'%', path).any(is_stray) {
        return None;
    }
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        out.push(byte);
        // The decoded byte may be the last digit of another encoding.
        while let [.., b'%', high, low] = out[..]
            && let Some((high, low)) = hex(high).zip(hex(low))
        {
            let byte = high << 4 | low;
            // Zero ends a text for some; these two begin no character, only longer spellings of an ASCII one.
            if matches!(byte, 0 | 0xc0 | 0xc1) {
                return None;
            }
            out.truncate(out.len() - 3);
            out.push(byte);
        }
    }
    Some(out)
}

/// Whether something that only some readers take for a `/` stands in a parameter: they end the parameter there, the others at
/// the next `/` that was written as one.
fn has_divided_parameter(path: &str) -> bool {
    path.split('/').filter_map(|segment| decoded(segment.as_bytes())).any(|segment| {
        let mut parameters = segment.iter().skip_while(|&&byte| byte != b';');
        parameters.any(|byte| matches!(byte, b'/' | b'\\'))
    })
}

fn resolved(path: &[u8]) -> Reading<'static> {
    let mut out = Vec::with_capacity(path.len() + 1);
    let mut ends_open = false;
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        let end = segment.iter().position(|byte| matches!(byte, b';' | b'?' | b'#')).unwrap_or(segment.len());
        let name = &segment[..end];
        let is_tail = |byte: &u8| matches!(byte, b'.' | b' ');
        let kept = name.len() - name.iter().rev().take_while(|byte| is_tail(byte)).count();
        if kept == 0 && name.iter().filter(|&&byte| byte == b'.').count() > 1 {
            return Reading::Climbs;
        }
        ends_open = kept == 0;
        if kept > 0 {
            out.push(b'/');
            out.extend_from_slice(&name[..kept]);
        }
    }
    if ends_open || out.is_empty() {
        out.push(b'/');
    }
    Reading::Path(Cow::Owned(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(target: &str) -> String {
        match Reading::of(target) {
            Reading::Path(path) => String::from_utf8_lossy(&path).into_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn all_that_anybody_undoes_is_undone() {
        for (target, wanted) in [
            ("/", "/"),
            ("/a/b.c?x=%zz/../", "/a/b.c"),
            ("/%70rivate/x", "/private/x"),
            ("/%2570rivate/x", "/private/x"),
            ("/%25%37%30rivate", "/private"),
            ("//private//x/", "/private/x/"),
            ("/./private/.", "/private/"),
            ("/private;a=b/x;c", "/private/x"),
            ("/;a/private", "/private"),
            ("/private%2Fx", "/private/x"),
            ("/private%5cx", "/private/x"),
            ("/private\\x", "/private/x"),
            ("/private%3fx", "/private"),
            ("/private./x%20", "/private/x"),
            ("/.well-known/x", "/.well-known/x"),
            ("/100%25", "/100%"),
            ("/100%25/x", "/100%/x"),
            ("/caf%C3%A9", "/café"),
            ("%2f", "/"),
            ("/a/../b", "Climbs"),
            ("/..", "Climbs"),
            ("/a/%2e%2E/b", "Climbs"),
            ("/a/.%252e/b", "Climbs"),
            ("/a%2f..%2fb", "Climbs"),
            ("/a\\..\\b", "Climbs"),
            ("/a/..;/b", "Climbs"),
            ("/a/...", "Climbs"),
            ("/a/.. /b", "Climbs"),
            ("/a..b/c..", "/a..b/c"),
            ("/a;\\..", "Climbs"),
            ("/a;\\b//c", "Unreadable"),
            ("/a;%2fb//c", "Unreadable"),
            ("/a%3b%252fb//c", "Unreadable"),
            ("/a\\b;c/d", "/a/b/d"),
            ("/%zz", "Unreadable"),
            ("/%", "Unreadable"),
            ("/%u0070", "Unreadable"),
            ("/a%00", "Unreadable"),
            ("/a%2500", "Unreadable"),
            ("/%c0%ae", "Unreadable"),
        ] {
            assert_eq!(path(target), wanted, "{target}");
        }
    }

    /// The path as one reader sees it, careful or careless: some of what [`Reading::of`] undoes, in some order.
    fn read(path: &[u8], steps: &[u8]) -> Vec<u8> {
        steps.iter().fold(path.to_vec(), |path, step| match step % 7 {
            0 => decode_once(&path, |_| true),
            1 => decode_once(&path, |byte| byte.is_ascii_alphanumeric()),
            6 => decode_once(&path, |byte| !matches!(byte, b'/' | b'\\')),
            2 => path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect(),
            3 => by_segments(&path, |segment| !segment.is_empty()),
            4 => by_segments(&path, |segment| segment != b"."),
            _ => path
                .split(|&byte| byte == b'/')
                .map(|part| part.split(|&byte| byte == b';').next().unwrap())
                .collect::<Vec<_>>()
                .join(&b'/'),
        })
    }

    fn decode_once(path: &[u8], which: impl Fn(u8) -> bool) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), path);
        while let Some(&byte) = rest.first() {
            let code = rest.get(1..3).and_then(|two| std::str::from_utf8(two).ok());
            match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|&code| byte == b'%' && which(code)) {
                Some(code) => {
                    out.push(code);
                    rest = &rest[3..];
                }
                None => {
                    out.push(byte);
                    rest = &rest[1..];
                }
            }
        }
        out
    }

    fn by_segments(path: &[u8], keep: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let kept: Vec<&[u8]> = path.split(|&byte| byte == b'/').skip(1).filter(|part| keep(part)).collect();
        [b"/", &kept.join(&b'/')[..]].concat()
    }

    fn under(path: &[u8], prefix: &[u8]) -> bool {
        path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }

    proptest! {
        /// No reader finds a prefix that is not found here, and what is found in the text itself is found here too.
        #[test]
        fn no_reader_finds_a_prefix_that_this_reading_has_not(
            path in "/((ab|a|b|%61|%2561|%62|%2f|%5C|%2e|%3b|\\.|;|;b|//|/|\\\\){0,10})",
            steps in prop::collection::vec(any::<u8>(), 0..6),
        ) {
            if let Reading::Path(resolved) = Reading::of(&path) {
                let reader = read(path.as_bytes(), &steps);
                for prefix in [&b"/a"[..], b"/ab", b"/a/b", b"/b/a"] {
                    prop_assert!(!under(&reader, prefix) || under(&resolved, prefix), "{path} {:?}", reader);
                }
            }
            prop_assert_eq!(is_plain(&path), matches!(Reading::of(&path), Reading::Path(Cow::Borrowed(_))));
        }
    }
}
