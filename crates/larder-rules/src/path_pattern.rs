//! Patterns of paths, as rules and store rules use them: segments of literal text, with wildcards that are found without going back and forth.

use crate::facts::PATH_BYTES_MAX;
use std::fmt;

/// A pattern of a whole path, without its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    segments: Box<[Segment]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// `**`: any number of segments, also none.
    Any,
    One(Box<[Token]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(Box<[u8]>),
    /// `*`: any text, also none.
    Star,
    /// `{digit}`: one digit.
    Digit,
    /// `{hex}`: a digest in hexadecimal digits.
    Hex,
}

/// The digits of a digest: those of SHA-1 at least, those of SHA-512 at most.
const HEX_DIGITS_MIN: usize = 40;
const HEX_DIGITS_MAX: usize = 128;

impl PathPattern {
    /// `None` where the text is no pattern.
    pub fn parse(text: &str) -> Option<PathPattern> {
        let mut segments = Vec::new();
        for segment in text.strip_prefix('/')?.split('/') {
            segments.push(match segment {
                "**" => Segment::Any,
                other => Segment::One(tokens(other)?.into()),
            });
        }
        let is_path = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        is_path.then(|| PathPattern { text: text.into(), segments: segments.into() })
    }

    /// Whether a path as it was received, without its query, has this form. A path longer than [`PATH_BYTES_MAX`] has none, so that the
    /// work for one request has a bound.
    pub fn matches(&self, path: &str) -> bool {
        self.matches_bytes(path.as_bytes())
    }

    /// [`PathPattern::matches`] for a path whose encodings are undone, which need not be text.
    pub fn matches_bytes(&self, path: &[u8]) -> bool {
        let Some(path) = path.strip_prefix(b"/").filter(|path| path.len() <= PATH_BYTES_MAX) else { return false };
        if let [Segment::Any] = *self.segments {
            return true;
        }
        // The segments that are left of the path; `None` behind the last one. They are cut off as they are looked at: a list of them would
        // take memory for each look, and hooks and rules look many times for each request.
        let (mut at, mut left) = (0, Some(path));
        // Where the last `**` stands, and what it leaves: as much as possible, one segment less after each failure.
        let mut last = None;
        loop {
            match (self.segments.get(at), left) {
                (Some(Segment::Any), _) => {
                    last = Some((at, left));
                    at += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(Segment::One(tokens)), Some(text)) => {
                    let (segment, behind) = first_segment(text);
                    if fits(tokens, segment) {
                        (at, left) = (at + 1, behind);
                        continue;
                    }
                }
                (None, Some(_)) | (Some(Segment::One(_)), None) => {}
            }
            let Some((star, Some(text))) = last else { return false };
            let (_, behind) = first_segment(text);
            last = Some((star, behind));
            (at, left) = (star + 1, behind);
        }
    }
}

/// The first segment of a path, and those behind it, where there are any.
fn first_segment(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|byte| *byte == b'/') {
        Some(end) => (&path[..end], Some(&path[end + 1..])),
        None => (path, None),
    }
}

impl PathPattern {
    /// Whether a path below this one, which is a path of a folder without a slash at its end, can have this form.
    pub fn may_match_below(&self, folder: &str) -> bool {
        let mut pattern = self.segments.iter();
        for segment in folder.split('/').skip(1) {
            match pattern.next() {
                Some(Segment::Any) => return true,
                Some(Segment::One(tokens)) if fits(tokens, segment.as_bytes()) => {}
                _ => return false,
            }
        }
        pattern.next().is_some()
    }
}

impl PathPattern {
    /// The path, where the pattern has no wildcard.
    pub(crate) fn whole(&self) -> Option<&str> {
        (!self.text.contains(['*', '{'])).then_some(&*self.text)
    }

    /// The longest text that every path of this form has in it. A `**` may take no segment at all, and then a slash beside it is not there
    /// either.
    pub(crate) fn longest_text(&self) -> Option<&str> {
        let bytes = self.text.as_bytes();
        let (mut longest, mut begin) = ("", 0);
        for at in 0..=bytes.len() {
            if matches!(bytes.get(at), None | Some(b'*' | b'{' | b'}')) {
                let text = self.text.get(begin..at).unwrap_or_default().trim_matches('/');
                let is_name = at > begin && matches!(bytes.get(at), Some(b'}')) && self.text[..begin].ends_with('{');
                if text.len() > longest.len() && !is_name {
                    longest = text;
                }
                begin = at + 1;
            }
        }
        (!longest.is_empty()).then_some(longest)
    }

    /// The folder that the pattern means with all below it, where it has that form: `/a/**`.
    pub(crate) fn folder(&self) -> Option<&str> {
        self.text.strip_suffix("/**").filter(|folder| !folder.contains(['*', '{']))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn tokens(mut text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    while !text.is_empty() {
        let (token, rest) = if let Some(rest) = text.strip_prefix('*') {
            (Token::Star, rest)
        } else if let Some(rest) = text.strip_prefix("{hex}") {
            (Token::Hex, rest)
        } else if let Some(rest) = text.strip_prefix("{digit}") {
            (Token::Digit, rest)
        } else {
            let end = text.find(['*', '{']).unwrap_or(text.len());
            if end == 0 || text[..end].contains('}') {
                return None;
            }
            (Token::Literal(text.as_bytes()[..end].into()), &text[end..])
        };
        if token == Token::Star && tokens.last() == Some(&Token::Star) {
            return None;
        }
        tokens.push(token);
        text = rest;
    }
    Some(tokens)
}

/// Whether a segment has the form of these tokens. Only a `*` has more than one way to match, and only the last one is tried
/// again, which is enough: an earlier one that takes more leaves less for the rest.
fn fits(tokens: &[Token], text: &[u8]) -> bool {
    let (mut at, mut seen, mut last) = (0, 0, None);
    loop {
        let rest = &text[seen..];
        let taken = match tokens.get(at) {
            Some(Token::Star) => {
                last = Some((at, seen));
                Some(0)
            }
            Some(Token::Literal(literal)) => rest.starts_with(literal).then_some(literal.len()),
            Some(Token::Digit) => rest.first().is_some_and(u8::is_ascii_digit).then_some(1),
            Some(Token::Hex) => hex_digits(rest),
            None if rest.is_empty() => return true,
            None => None,
        };
        match (taken, last) {
            (Some(taken), _) => (at, seen) = (at + 1, seen + taken),
            (None, Some((star, begin))) if begin < text.len() => {
                last = Some((star, begin + 1));
                (at, seen) = (star + 1, begin + 1);
            }
            _ => return false,
        }
    }
}

/// The length of the digest that the text begins with.
fn hex_digits(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take(HEX_DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_hexdigit()).count();
    (HEX_DIGITS_MIN..=HEX_DIGITS_MAX).contains(&digits).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_patterns() {
        let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let blob = format!("/v2/library/alpine/blobs/sha256:{digest}");
        for (pattern, path, matches) in [
            ("/simple/*/", "/simple/six/", true),
            ("/simple/*/", "/simple/six", false),
            ("/simple/*/", "/simple/six/x", false),
            ("/**/simple/*/", "/simple/six/", true),
            ("/**/simple/*/", "/user/index/simple/six/", true),
            ("/**/simple/*/", "/simple/simple/six/", true),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/**/a/**/b", "/a/b", true),
            ("/**/a/**/b", "/x/a/y/z/b", true),
            ("/**/a/**/b", "/x/a/y/z/c", false),
            ("/**/v2/**/blobs/sha256:{hex}", &blob, true),
            ("/**/v2/**/blobs/sha256:{hex}", &format!("{blob}0"), true),
            ("/**/v2/**/blobs/sha256:{hex}", &format!("{blob}x"), false),
            ("/**/v2/**/blobs/sha256:{hex}", "/v2/library/alpine/blobs/sha256:9f86", false),
            ("/*-{digit}*.whl", "/six-1.16.0-py2.py3-none-any.whl", true),
            ("/*-{digit}*.whl", "/six-latest.whl", false),
            ("/*-{digit}*.whl", "/six-latest-1.whl", true),
            ("/*.tar.gz", "/a.tar.gz.tar.gz", true),
            ("/*.tar.gz", "/a.tar.gz.asc", false),
            ("/a*b*c", "/abbbc", true),
            ("/a*b*c", "/abbb", false),
            ("/", "/", true),
            ("/", "", false),
            ("/a", "*", false),
        ] {
            let parsed = PathPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(path), matches, "{pattern} {path}");
            assert_eq!(parsed.to_string(), pattern);
        }
        for wrong in ["", "a", "/a?b", "/{hex", "/{other}", "/a***", "/a b", "/a#", "/x}"] {
            assert_eq!(PathPattern::parse(wrong), None, "{wrong}");
        }
        assert_eq!(PathPattern::parse("/***"), None);
    }

    /// Whether segments have the form of a pattern, by the definition: `**` stands for each number of segments in turn.
    fn have_form(pattern: &[&str], segments: &[&str]) -> bool {
        match pattern {
            [] => segments.is_empty(),
            ["**", rest @ ..] => (0..=segments.len()).any(|taken| have_form(rest, &segments[taken..])),
            [one, rest @ ..] => {
                let is_it =
                    |segment: &&str| *one == "*" || one == segment || (*one == "a*" && segment.starts_with('a'));
                segments.split_first().is_some_and(|(first, others)| is_it(first) && have_form(rest, others))
            }
        }
    }

    /// All lists of up to so many of these words, one of them at least.
    fn lists<'a>(words: &[&'a str], longest: usize) -> Vec<Vec<&'a str>> {
        let mut lists: Vec<Vec<&str>> = vec![Vec::new()];
        let mut begin = 0;
        for _ in 0..longest {
            let end = lists.len();
            for at in begin..end {
                for word in words {
                    lists.push(lists[at].iter().chain([word]).copied().collect());
                }
            }
            begin = end;
        }
        lists.split_off(1)
    }

    #[test]
    fn every_short_path_matches_by_the_definition() {
        let paths = lists(&["", "a", "ab", "b"], 4);
        for segments in lists(&["**", "*", "a", "a*", ""], 4) {
            let pattern = PathPattern::parse(&format!("/{}", segments.join("/"))).unwrap();
            for path in &paths {
                let text = format!("/{}", path.join("/"));
                assert_eq!(pattern.matches(&text), have_form(&segments, path), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn a_folder_may_have_what_matches_below_it() {
        for (pattern, folder, may) in [
            ("/*.html", "", true),
            ("/*.html", "/a", false),
            ("/a/*", "/a", true),
            ("/a/*", "/b", false),
            ("/a/*", "/a/b", false),
            ("/**/a", "/x/y", true),
            ("/a/**/b", "/a/x/y", true),
            ("/a/**", "/b/a", false),
        ] {
            assert_eq!(PathPattern::parse(pattern).unwrap().may_match_below(folder), may, "{pattern} {folder}");
        }
    }

    #[test]
    fn a_path_made_to_be_slow_is_not() {
        let pattern = PathPattern::parse("/**/*a*{hex}*b/**/*c*{hex}/**/d").unwrap();
        for path in [format!("/{}", "a".repeat(PATH_BYTES_MAX)), format!("/{}", "a/".repeat(PATH_BYTES_MAX / 2))] {
            assert!(!pattern.matches(&path));
        }
    }
}
