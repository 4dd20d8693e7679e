//! Fields of a message, and what stands in them: lists, directives, entity tags, ranges. Written for the model from
//! RFC 9110, RFC 9111 and RFC 8941, without a look at the program's own parsers.

use std::ops::Range;

/// Names in lower case, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// The first field of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All lines of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All lines of that name as one list; `None` where there is none.
    pub fn joined(&self, name: &str) -> Option<String> {
        let lines: Vec<&str> = self.all(name).collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }

    /// Adds a field.
    pub fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_ascii_lowercase(), value.into()));
    }
}

/// Splits a list at commas outside quotes (RFC 9110 section 5.6.1); empty members are left out.
pub fn members(text: &str) -> Vec<&str> {
    let (mut members, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                members.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    members.push(&text[start..]);
    members.into_iter().map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty()).collect()
}

/// An entity tag (RFC 9110 section 8.8.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Whether it begins with `W/`.
    pub weak: bool,
    /// The characters between the quotes.
    pub opaque: String,
}

impl Tag {
    /// Reads one.
    pub fn read(text: &str) -> Option<Tag> {
        let (weak, quoted) = text.strip_prefix("W/").map_or((false, text), |rest| (true, rest));
        let opaque = quoted.strip_prefix('"')?.strip_suffix('"')?;
        (!opaque.contains('"')).then(|| Tag { weak, opaque: opaque.to_owned() })
    }

    /// Both strong and the same.
    pub fn is_strongly(&self, other: &Tag) -> bool {
        !self.weak && self == other
    }

    /// The same but for weakness.
    pub fn is_weakly(&self, other: &Tag) -> bool {
        self.opaque == other.opaque
    }
}

/// Whether a condition (`If-None-Match`, `If-Match`) names a tag: `*` names any.
pub fn names_tag(list: &str, tag: Option<&Tag>, strongly: bool) -> bool {
    if list.trim() == "*" {
        return true;
    }
    let same = |held: &Tag, other: &Tag| if strongly { held.is_strongly(other) } else { held.is_weakly(other) };
    tag.is_some_and(|tag| members(list).iter().filter_map(|text| Tag::read(text)).any(|other| same(tag, &other)))
}

/// The meaning of `Range` for a representation of a length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing, or nothing that can be read: the whole.
    Whole,
    /// These bytes, in order.
    Parts(Vec<Range<u64>>),
    /// Bytes that it does not have: 416.
    None,
}

/// Reads `Range` (RFC 9110 section 14.1.2).
pub fn ranges(text: Option<&str>, length: u64) -> Asked {
    let Some(set) = text.and_then(|text| text.strip_prefix("bytes=")) else { return Asked::Whole };
    let mut parts = Vec::new();
    for member in members(set) {
        let Some((first, last)) = member.split_once('-') else { return Asked::Whole };
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok());
        let (Some(first), Some(last)) = (number(first.trim()), number(last.trim())) else { return Asked::Whole };
        let part = match (first, last) {
            (Some(first), Some(last)) if first > last => return Asked::Whole,
            (Some(first), Some(last)) => first..length.min(last.saturating_add(1)),
            (Some(first), None) => first..length,
            (None, Some(count)) => length.saturating_sub(count)..length,
            (None, None) => return Asked::Whole,
        };
        if part.start < part.end {
            parts.push(part);
        }
    }
    if parts.is_empty() { Asked::None } else { Asked::Parts(parts) }
}

/// `bytes 0-4/10`; the length is `None` where it is `*`.
pub fn content_range(text: &str) -> Option<(Range<u64>, Option<u64>)> {
    let (place, length) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = place.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let length = if length == "*" { None } else { Some(length.parse().ok()?) };
    (first <= last).then_some((first..last + 1, length))
}

/// A directive: its name in lower case, and its argument.
pub type Directive = (String, Option<Argument>);

/// An argument of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Without quotes.
    pub text: String,
    /// Whether it stood in quotes.
    pub quoted: bool,
    /// Whether it is written as the grammar wants it, without blanks about the `=`.
    pub exact: bool,
}

/// The directives of `Cache-Control` (RFC 9111 section 5.2).
pub fn directives(list: &str) -> Vec<Directive> {
    let read = |member: &str| {
        let Some((name, argument)) = member.split_once('=') else { return (member.to_ascii_lowercase(), None) };
        let exact = name.trim_end() == name && argument.trim_start() == argument;
        let argument = argument.trim();
        let inner = argument.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let text = inner.unwrap_or(argument).to_owned();
        (name.trim().to_ascii_lowercase(), Some(Argument { text, quoted: inner.is_some(), exact }))
    };
    members(list).into_iter().map(read).collect()
}

/// A targeted field (RFC 9213): a dictionary of RFC 8941. `None` where it can't be read or is empty, so that it does
/// not count. Of a key that comes twice the last counts. Written for the values that a cache looks at.
pub fn dictionary(list: &str) -> Option<Vec<Directive>> {
    let mut read: Vec<Directive> = Vec::new();
    let parts = members(list);
    // An empty member is an error, unlike in a list of RFC 9110.
    if parts.is_empty() || list.split(',').any(|member| member.trim().is_empty()) {
        return None;
    }
    for member in parts {
        let (name, value) = member.split_once('=').map_or((member, None), |(name, value)| (name, Some(value)));
        let value = value.map(|value| value.split(';').next().unwrap_or_default());
        let name = name.split(';').next().unwrap_or_default();
        let mut letters = name.chars();
        let begins = letters.next().is_some_and(|first| first.is_ascii_lowercase() || first == '*');
        if !begins || !letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c)) {
            return None;
        }
        read.retain(|(known, _)| known != name);
        match value {
            None | Some("?1") => read.push((name.to_owned(), None)),
            Some("?0") => {}
            Some(value) => read.push((name.to_owned(), Some(item(value)?))),
        }
    }
    Some(read)
}

fn item(value: &str) -> Option<Argument> {
    let first = value.chars().next()?;
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let number = value.strip_prefix('-').unwrap_or(value);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && number.len() <= 15;
    let is_token = first.is_ascii_alphabetic() || first == '*';
    let text = inner.unwrap_or(value).to_owned();
    (inner.is_some() || is_number || is_token).then_some(Argument { text, quoted: inner.is_some(), exact: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_directives() {
        assert_eq!(members(" a, ,\"b,c\" ,d"), ["a", "\"b,c\"", "d"]);
        let read = directives("Max-Age=60, private=\"a, b\", no-store");
        let argument = |text: &str, quoted| Some(Argument { text: text.into(), quoted, exact: true });
        let wanted = [("max-age", argument("60", false)), ("private", argument("a, b", true)), ("no-store", None)];
        assert_eq!(read, wanted.map(|(name, value)| (name.to_owned(), value)));
        assert!(dictionary("max-age=60, private").is_some());
        assert!(dictionary("Max-Age=60").is_none() && dictionary("max-age=60,,a").is_none());
    }

    #[test]
    fn tags_and_ranges() {
        let tag = Tag::read("W/\"a\"").unwrap();
        assert!(names_tag("\"b\", \"a\"", Some(&tag), false) && !names_tag("\"a\"", Some(&tag), true));
        assert!(names_tag("*", Some(&tag), true) && Tag::read("a").is_none());
        assert_eq!(ranges(Some("bytes=2-4,8-"), 10), Asked::Parts(vec![2..5, 8..10]));
        assert_eq!(ranges(Some("bytes=-4,0-0"), 10), Asked::Parts(vec![6..10, 0..1]));
        assert_eq!(ranges(Some("bytes=10-"), 10), Asked::None);
        assert_eq!(ranges(Some("bytes=4-2"), 10), Asked::Whole);
        assert_eq!(content_range("bytes 2-4/10"), Some((2..5, Some(10))));
    }
}
