//! Fields that are structured (RFC 9651): targeted cache control (RFC 9213), `No-Vary-Search`, digests (RFC 9530), and the
//! writing of `Cache-Status` (RFC 9211). The syntax is the library's; the meaning is here.

use std::borrow::Cow;
use std::fmt::{self, Write};

use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::Fields;
use crate::directives::{Argument, CacheControl};

/// The directives of the first of the named fields that is valid and not empty; they stand in place of
/// `Cache-Control` and `Expires` (RFC 9213 section 2.2). A field with a syntax error is as if absent.
pub fn targeted(fields: &Fields, names: &[impl AsRef<str>]) -> Option<CacheControl> {
    names.iter().find_map(|name| targeted_by(fields, name.as_ref()))
}

fn targeted_by(fields: &Fields, name: &str) -> Option<CacheControl> {
    let members = dictionary(fields, name).filter(|members| !members.is_empty())?;
    let mut directives = CacheControl::default();
    for (key, entry) in &members {
        if let Some(argument) = argument(key.as_str(), entry) {
            directives.take(key.as_str().as_bytes(), &argument);
        }
    }
    Some(directives)
}

/// The argument a member carries; `None` leaves the directive out, as a value of the wrong type does
/// (RFC 9213 section 2.1). `?0` is the one value that unsays a flag.
fn argument<'a>(key: &str, entry: &'a ListEntry) -> Option<Argument<'a>> {
    let ListEntry::Item(item) = entry else { return Some(Argument::Bad).filter(|_| !is_delta(key)) };
    match &item.bare_item {
        BareItem::Boolean(false) => None,
        BareItem::Boolean(true) if is_delta(key) => None,
        BareItem::Boolean(true) => Some(Argument::None),
        // A negative lifetime is no lifetime, hence `Bad`: over at once.
        BareItem::Integer(number) => Some(match u64::try_from(i64::from(*number)) {
            Ok(seconds) => Argument::Text(Cow::Owned(seconds.to_string().into_bytes())),
            Err(_) => Argument::Bad,
        }),
        _ if is_delta(key) => None,
        BareItem::String(text) => Some(Argument::Text(Cow::Borrowed(text.as_str().as_bytes()))),
        BareItem::Token(text) => Some(Argument::Text(Cow::Borrowed(text.as_str().as_bytes()))),
        _ => Some(Argument::Bad),
    }
}

fn is_delta(key: &str) -> bool {
    matches!(key, "max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error")
}

/// All lines of a field as one dictionary; `None` when there is no line or the syntax is wrong.
fn dictionary(fields: &Fields, name: &str) -> Option<Dictionary> {
    let mut lines = fields.get_all(name);
    let first = lines.next()?;
    let joined = lines.fold(first.to_vec(), |mut joined, line| {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(line);
        joined
    });
    Parser::new(&joined).parse().ok()
}

/// The byte sequence that a field, read as a dictionary, has under the first of these keys that it has; as in `Repr-Digest`
/// (RFC 9530). A field with a syntax error is as if absent.
pub fn byte_sequence<'k>(fields: &Fields, name: &str, keys: &[&'k str]) -> Option<(&'k str, Vec<u8>)> {
    let members = dictionary(fields, name)?;
    keys.iter().find_map(|key| match members.get(*key)? {
        ListEntry::Item(item) => Some((*key, item.bare_item.as_byte_sequence()?.to_vec())),
        ListEntry::InnerList(_) => None,
    })
}

/// Which differences between two queries an origin says do not matter (`No-Vary-Search`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVarySearch {
    ignored: Ignored,
    order_matters: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ignored {
    These(Vec<String>),
    AllBut(Vec<String>),
}

/// Every name is compared with every parameter of a query, and rules are remembered: a response that lists more names or
/// more bytes of them than this is read as if the field were not there, which makes more keys and never a wrong answer.
const NAMES_MAX: usize = 64;
const NAMES_BYTES_MAX: usize = 2 * 1024;

impl Ignored {
    fn names(&self) -> &[String] {
        match self {
            Ignored::These(names) | Ignored::AllBut(names) => names,
        }
    }

    fn is_bounded(&self) -> bool {
        self.names().len() <= NAMES_MAX && self.names().iter().map(String::len).sum::<usize>() <= NAMES_BYTES_MAX
    }
}

/// Reads `No-Vary-Search`; `None` when it is absent, malformed, or says no more than what holds anyway.
pub fn no_vary_search(fields: &Fields) -> Option<NoVarySearch> {
    let members = dictionary(fields, "No-Vary-Search")?;
    let order_matters = match members.get("key-order") {
        None => true,
        Some(entry) => !boolean(entry)?,
    };
    let ignored = match (members.get("params"), members.get("except")) {
        (None, None) => Ignored::These(Vec::new()),
        (Some(params), None) => match boolean(params) {
            Some(true) => Ignored::AllBut(Vec::new()),
            Some(false) => Ignored::These(Vec::new()),
            None => Ignored::These(strings(params)?),
        },
        (Some(params), Some(except)) if boolean(params) == Some(true) => Ignored::AllBut(strings(except)?),
        (_, Some(_)) => return None,
    };
    if !ignored.is_bounded() {
        return None;
    }
    let rule = NoVarySearch { ignored, order_matters };
    let nothing = order_matters && rule.ignored == Ignored::These(Vec::new());
    (!nothing).then_some(rule)
}

impl NoVarySearch {
    /// Bytes on the heap, for exact budgets.
    pub fn heap_bytes(&self) -> usize {
        let names = self.ignored.names();
        size_of_val(names) + names.iter().map(String::capacity).sum::<usize>()
    }

    /// True when two queries (without their `?`) ask for the same.
    pub fn same(&self, query_a: &str, query_b: &str) -> bool {
        self.significant(query_a) == self.significant(query_b)
    }

    /// The one spelling of all queries that ask for the same: significant pairs, in a fixed order when order
    /// does not matter, everything but letters, digits and `-._~` percent-encoded.
    pub fn normalise(&self, query: &str) -> String {
        let mut out = String::with_capacity(query.len());
        for (key, value) in self.significant(query) {
            if !out.is_empty() {
                out.push('&');
            }
            encode(&key, &mut out);
            out.push('=');
            encode(&value, &mut out);
        }
        out
    }

    fn significant(&self, query: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        let mut pairs: Vec<_> = pairs.filter(|(key, _)| !self.ignores(key)).collect();
        if !self.order_matters {
            // Stable: values of one key keep their order.
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        pairs
    }

    fn ignores(&self, key: &[u8]) -> bool {
        let among = |names: &[String]| names.iter().any(|name| name.as_bytes() == key);
        match &self.ignored {
            Ignored::These(names) => among(names),
            Ignored::AllBut(names) => !among(names),
        }
    }
}

fn boolean(entry: &ListEntry) -> Option<bool> {
    match entry {
        ListEntry::Item(item) => item.bare_item.as_boolean(),
        ListEntry::InnerList(_) => None,
    }
}

/// The names of an inner list of strings, form-decoded as the keys they are compared with.
fn strings(entry: &ListEntry) -> Option<Vec<String>> {
    let ListEntry::InnerList(list) = entry else { return None };
    list.items
        .iter()
        .map(|item| item.bare_item.as_string().and_then(|text| String::from_utf8(decode(text.as_str())).ok()))
        .collect()
}

/// Decodes a part of a form-encoded query: `+` is a space, `%41` a byte; a lone `%` stands for itself.
fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let hex = |at: usize| after.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                rest = &after[2..];
                continue;
            }
            (b'+', _, _) => out.push(b' '),
            _ => out.push(*byte),
        }
        rest = after;
    }
    out
}

fn encode(bytes: &[u8], out: &mut String) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// One cache's member of a `Cache-Status` field (RFC 9211 section 2); what is not set is not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// The cache's own name.
    pub cache: &'a str,
    /// Answered from the store alone.
    pub hit: bool,
    /// Why the request went forward: `uri-miss`, `vary-miss`, `stale`, `bypass`, …
    pub fwd: Option<&'a str>,
    /// The status that came back, when it differs from the one sent.
    pub fwd_status: Option<u16>,
    /// Seconds of freshness left; negative when stale.
    pub ttl: Option<i64>,
    /// The response was stored.
    pub stored: bool,
    /// The request waited for another's fetch.
    pub collapsed: bool,
    /// The key under which it is kept.
    pub key: Option<&'a str>,
    /// Anything more, for people.
    pub detail: Option<&'a str>,
}

impl fmt::Display for CacheStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&token_or_quoted(self.cache))?;
        if self.hit {
            f.write_str("; hit")?;
        }
        if let Some(fwd) = self.fwd {
            write!(f, "; fwd={}", token_or_quoted(fwd))?;
        }
        if let Some(status) = self.fwd_status {
            write!(f, "; fwd-status={status}")?;
        }
        if let Some(ttl) = self.ttl {
            write!(f, "; ttl={}", ttl.clamp(-INTEGER_MAX, INTEGER_MAX))?;
        }
        if self.stored {
            f.write_str("; stored")?;
        }
        if self.collapsed {
            f.write_str("; collapsed")?;
        }
        if let Some(key) = self.key {
            write!(f, "; key={}", quoted(key))?;
        }
        match self.detail {
            Some(detail) => write!(f, "; detail={}", token_or_quoted(detail)),
            None => Ok(()),
        }
    }
}

/// The greatest structured integer (RFC 9651 section 3.3.1).
const INTEGER_MAX: i64 = 999_999_999_999_999;

/// A text as a structured string (RFC 9651 section 3.3.3); what a string cannot hold becomes `?`.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            ' '..='~' => out.push(letter),
            _ => out.push('?'),
        }
    }
    out.push('"');
    out
}

/// A text as a structured token where it can be one (RFC 9651 section 3.3.4), else as a string.
pub fn token_or_quoted(text: &str) -> Cow<'_, str> {
    match sfv::TokenRef::from_str(text) {
        Ok(_) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(quoted(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directives::Names;
    use proptest::prelude::*;

    fn fields(name: &str, lines: &str) -> Fields {
        let mut fields = Fields::new();
        lines.split('|').for_each(|line| fields.push(name, line));
        fields
    }

    #[test]
    fn reads_targeted_fields() {
        let none = CacheControl::default;
        // RFC 9213 section 2.1; `None` means that the field is as if absent.
        let rows = [
            ("max-age=60", Some(CacheControl { max_age: Some(60), ..none() })),
            ("max-age=60|no-store", Some(CacheControl { max_age: Some(60), no_store: true, ..none() })),
            ("max-age=60;x=1", Some(CacheControl { max_age: Some(60), ..none() })),
            ("max-age=1, max-age=2", Some(CacheControl { max_age: Some(2), ..none() })),
            ("max-age=-1", Some(CacheControl { max_age: Some(0), ..none() })),
            ("private=\"a\"", Some(CacheControl { private: Some(Names::Fields(vec!["a".into()])), ..none() })),
            ("no-store=?0, public", Some(CacheControl { public: true, ..none() })),
            // Values of the wrong type are not consumed.
            ("max-age=\"60\"", Some(none())),
            ("max-age=60.5", Some(none())),
            ("max-age", Some(none())),
            ("s-maxage=(1 2)", Some(none())),
            ("no-cache=(a)", Some(CacheControl { no_cache: Some(Names::All), ..none() })),
            // Empty or no dictionary.
            ("", None),
            ("Max-Age=60", None),
            ("max-age=60,", None),
            ("max-age =60", None),
            ("max-age=60, &", None),
        ];
        for (lines, expected) in rows {
            assert_eq!(targeted(&fields("CDN-Cache-Control", lines), &["CDN-Cache-Control"]), expected, "{lines}");
        }
    }

    #[test]
    fn the_first_valid_targeted_field_wins() {
        let mut both = fields("CDN-Cache-Control", "max-age=1");
        both.push("Larder-Cache-Control", "max-age=2");
        let names = ["Larder-Cache-Control", "CDN-Cache-Control"];
        assert_eq!(targeted(&both, &names).and_then(|control| control.max_age), Some(2));
        both.set("Larder-Cache-Control", "");
        assert_eq!(targeted(&both, &names).and_then(|control| control.max_age), Some(1));
        assert_eq!(targeted(&both, &[] as &[&str]), None);
    }

    #[test]
    fn reads_no_vary_search() {
        // Field, two queries, whether they ask for the same (draft-ietf-httpbis-no-vary-search).
        let rows = [
            ("key-order", "a=1&b=2", "b=2&a=1", "same"),
            ("key-order", "a=1&a=2", "a=2&a=1", "differ"),
            ("key-order=?0", "a=1", "a=1", "default"),
            ("params", "a=1&b=2", "", "same"),
            ("params=?0", "a=1", "a=1", "default"),
            ("params=(\"a\")", "a=1&b=2", "b=2", "same"),
            ("params=(\"a\")", "a=1&b=2", "b=3", "differ"),
            ("params=(\"a\")", "b=1&c=2", "c=2&b=1", "differ"),
            ("params=(\"a\"), key-order", "b=1&c=2&a", "c=2&b=1", "same"),
            ("params=(\"%c3%a9\")", "%C3%A9=1&b=2", "b=2", "same"),
            ("params=(\"a+b\")", "a%20b=1&c", "c=", "same"),
            ("params, except=(\"a\")", "a=1&b=2", "b=3&a=1", "same"),
            ("params, except=(\"a\")", "a=1", "a=2", "differ"),
            ("except=(\"a\")", "a", "a", "default"),
            ("params=(\"a\"), except=(\"b\")", "a", "a", "default"),
            ("params=(a)", "a", "a", "default"),
            ("params=\"a\"", "a", "a", "default"),
            ("key-order=1", "a", "a", "default"),
            ("params=(", "a", "a", "default"),
            ("x", "a", "a", "default"),
        ];
        for (value, a, b, expected) in rows {
            let equal = match no_vary_search(&fields("No-Vary-Search", value)) {
                None => "default",
                Some(search) if search.same(a, b) => "same",
                Some(_) => "differ",
            };
            assert_eq!(equal, expected, "{value}: {a} and {b}");
        }
    }

    #[test]
    fn a_flood_of_names_in_no_vary_search_is_no_rule() {
        let read = |many: usize, name: &str| {
            no_vary_search(&fields(
                "No-Vary-Search",
                &format!("params=({})", vec![format!("\"{name}\""); many].join(" ")),
            ))
        };
        assert!(read(NAMES_MAX, "a").is_some() && read(NAMES_MAX + 1, "a").is_none());
        assert!(read(2, &"n".repeat(NAMES_BYTES_MAX / 2)).is_some());
        assert!(read(2, &"n".repeat(NAMES_BYTES_MAX / 2 + 1)).is_none());
        let most = read(NAMES_MAX, &"n".repeat(NAMES_BYTES_MAX / NAMES_MAX)).map(|rule| rule.heap_bytes());
        assert!(most.is_some_and(|bytes| bytes <= 8 * 1024), "{most:?}");
    }

    #[test]
    fn writes_cache_status() {
        // RFC 9211 section 2.
        let hit = CacheStatus { cache: "larder", hit: true, ttl: Some(376), ..CacheStatus::default() };
        assert_eq!(hit.to_string(), "larder; hit; ttl=376");
        let miss = CacheStatus {
            cache: "my cache",
            fwd: Some("stale"),
            fwd_status: Some(304),
            ttl: Some(-5),
            stored: true,
            collapsed: true,
            key: Some("http://a/\"é"),
            detail: Some("no room"),
            ..CacheStatus::default()
        };
        let expected = "\"my cache\"; fwd=stale; fwd-status=304; ttl=-5; stored; collapsed; \
                        key=\"http://a/\\\"?\"; detail=\"no room\"";
        assert_eq!(miss.to_string(), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_a_valid_member(cache in "\\PC{0,12}", key in "\\PC{0,20}", ttl in any::<i64>()) {
            let status =
                CacheStatus { cache: &cache, key: Some(&key), ttl: Some(ttl), ..CacheStatus::default() }.to_string();
            prop_assert!(Parser::new(&status).parse::<sfv::List>().is_ok(), "{}", status);
        }

        #[test]
        fn normal_queries_are_the_same_exactly_when_the_queries_are(
            a in "[ab%2=&+]{0,10}", b in "[ab%2=&+]{0,10}", order: bool
        ) {
            let value = if order { "params=(\"a\"), key-order" } else { "params=(\"a\")" };
            let search = no_vary_search(&fields("No-Vary-Search", value)).unwrap();
            prop_assert_eq!(search.same(&a, &b), search.normalise(&a) == search.normalise(&b));
            prop_assert!(search.same(&a, &search.normalise(&a)));
        }

        #[test]
        fn never_panics(value in "[ -~]{0,40}") {
            no_vary_search(&fields("No-Vary-Search", &value.replace('|', "")));
            targeted(&fields("X", &value.replace('|', "")), &["X"]);
        }
    }
}
