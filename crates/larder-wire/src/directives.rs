//! Cache-Control as a value (RFC 9111 section 5.2).
//!
//! One reading serves requests and responses. Doubtful directives are read so that nothing is kept longer or
//! given to more people than was meant (RFC 9111 section 4.2.1): of a repeated directive the first counts; a
//! lifetime that is no number is 0, so the response is stale at once; names that cannot be read mean all
//! fields. Quoted and unquoted arguments are both taken (section 5.2).

use memchr::memchr;
use std::borrow::Cow;

use crate::Fields;
use crate::date::delta_seconds;
use crate::fields::{Members, is_token, trim};

/// The directives of one message. A directive that is absent is `None` or `false`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `max-age`: in a response its lifetime, in a request the greatest age that is wanted.
    pub max_age: Option<u64>,
    /// `s-maxage`: the lifetime in shared caches.
    pub s_maxage: Option<u64>,
    /// `no-store`.
    pub no_store: bool,
    /// `no-cache`, for the whole message or for the fields it names.
    pub no_cache: Option<Names>,
    /// `private`, for the whole message or for the fields it names.
    pub private: Option<Names>,
    /// `public`.
    pub public: bool,
    /// `must-revalidate`.
    pub must_revalidate: bool,
    /// `proxy-revalidate`.
    pub proxy_revalidate: bool,
    /// `must-understand`.
    pub must_understand: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `immutable` (RFC 8246).
    pub immutable: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `max-stale`.
    pub max_stale: Option<MaxStale>,
    /// `min-fresh`.
    pub min_fresh: Option<u64>,
    /// `stale-while-revalidate` (RFC 5861 section 3).
    pub stale_while_revalidate: Option<u64>,
    /// `stale-if-error` (RFC 5861 section 4).
    pub stale_if_error: Option<u64>,
    /// How many directives were of no known name. They change nothing (RFC 9111 section 5.2.3).
    pub unknown: u16,
}

/// The part of a message that `no-cache` or `private` applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// The whole message.
    All,
    /// These fields, in lower case; never empty.
    Fields(Vec<Box<str>>),
}

impl Names {
    /// True when the directive speaks of this field alone or of the whole message.
    pub fn names(&self, field: &str) -> bool {
        match self {
            Names::All => true,
            Names::Fields(names) => names.iter().any(|name| name.eq_ignore_ascii_case(field)),
        }
    }
}

/// How stale a response the client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxStale {
    /// However stale.
    Any,
    /// By at most so many seconds.
    Seconds(u64),
}

impl CacheControl {
    /// The directives of `Cache-Control`.
    pub fn of(fields: &Fields) -> CacheControl {
        CacheControl::parse(fields, "Cache-Control")
    }

    /// The directives of another field of the same syntax.
    pub fn parse(fields: &Fields, name: &str) -> CacheControl {
        let mut directives = CacheControl::default();
        for value in fields.get_all(name) {
            directives.take_value(value);
        }
        directives
    }

    /// A quote that nothing closes would hide all that follows it, `no-store` perhaps; such a value is read
    /// as if quotes were ordinary.
    fn take_value(&mut self, value: &[u8]) {
        // Most have no quotes: then members end where commas are.
        if memchr(b'"', value).is_some() && quotes_close(value) {
            Members::new(value).for_each(|member| self.take_member(member));
        } else {
            value.split(|&byte| byte == b',').map(trim).for_each(|member| self.take_member(member));
        }
    }

    fn take_member(&mut self, member: &[u8]) {
        let mut parts = member.splitn(2, |&byte| byte == b'=');
        let name = parts.next().unwrap_or_default();
        let argument = match parts.next() {
            None => Argument::None,
            Some(text) if trim(name) == name => unquoted(text),
            // White space is not permitted around `=`, so nobody knows what was meant.
            Some(_) => Argument::Bad,
        };
        if !trim(name).is_empty() {
            self.take(trim(name), &argument);
        }
    }

    /// Takes one directive in; flags stand whatever their argument.
    pub(crate) fn take(&mut self, name: &[u8], argument: &Argument) {
        // On the stack: each answer has some of them.
        let mut lower = [0; NAME_BYTES_MAX];
        let Some(lower) = lower.get_mut(..name.len()) else {
            self.unknown = self.unknown.saturating_add(1);
            return;
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        match &*lower {
            b"max-age" => first(&mut self.max_age, argument.lifetime()),
            b"s-maxage" => first(&mut self.s_maxage, argument.lifetime()),
            b"stale-while-revalidate" => first(&mut self.stale_while_revalidate, argument.lifetime()),
            b"stale-if-error" => first(&mut self.stale_if_error, argument.lifetime()),
            b"no-store" => self.no_store = true,
            b"no-cache" => add_names(&mut self.no_cache, argument),
            b"private" => add_names(&mut self.private, argument),
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"no-transform" => self.no_transform = true,
            b"immutable" => self.immutable = true,
            b"only-if-cached" => self.only_if_cached = true,
            // A request directive whose value cannot be read is ignored.
            b"min-fresh" => argument.seconds().into_iter().for_each(|seconds| first(&mut self.min_fresh, seconds)),
            b"max-stale" => argument.staleness().into_iter().for_each(|stale| first(&mut self.max_stale, stale)),
            _ => self.unknown = self.unknown.saturating_add(1),
        }
    }
}

/// No directive that is known has a longer name.
const NAME_BYTES_MAX: usize = 24;

/// The argument of a directive: the part behind the `=`.
pub(crate) enum Argument<'a> {
    /// There is no `=`.
    None,
    /// Something malformed.
    Bad,
    /// A token or the inside of a quoted string.
    Text(Cow<'a, [u8]>),
}

impl Argument<'_> {
    fn seconds(&self) -> Option<u64> {
        match self {
            Argument::Text(text) => delta_seconds(text),
            Argument::None | Argument::Bad => None,
        }
    }

    /// A lifetime that is no number is over (RFC 9111 section 4.2.1).
    fn lifetime(&self) -> u64 {
        self.seconds().unwrap_or(0)
    }

    fn staleness(&self) -> Option<MaxStale> {
        match self {
            Argument::None => Some(MaxStale::Any),
            Argument::Bad | Argument::Text(_) => self.seconds().map(MaxStale::Seconds),
        }
    }

    /// The fields named; `All` when there is no name or one that is none.
    fn names(&self) -> Names {
        let Argument::Text(text) = self else { return Names::All };
        let parts: Vec<&[u8]> = text.split(|&byte| byte == b',').map(trim).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() || !parts.iter().all(|part| is_token(part)) {
            return Names::All;
        }
        Names::Fields(parts.iter().map(|part| String::from_utf8_lossy(part).to_ascii_lowercase().into()).collect())
    }
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

/// Names add up; the unqualified form is the stricter and wins.
fn add_names(slot: &mut Option<Names>, argument: &Argument) {
    match (slot.as_mut(), argument.names()) {
        (Some(Names::Fields(held)), Names::Fields(more)) => held.extend(more),
        (Some(Names::All), _) => {}
        (_, names) => *slot = Some(names),
    }
}

fn unquoted(text: &[u8]) -> Argument<'_> {
    let Some(inside) = text.strip_prefix(b"\"") else {
        return if text.contains(&b'"') { Argument::Bad } else { Argument::Text(Cow::Borrowed(text)) };
    };
    let Some(inside) = inside.strip_suffix(b"\"") else { return Argument::Bad };
    if !inside.contains(&b'\\') {
        return Argument::Text(Cow::Borrowed(inside));
    }
    let mut escaped = false;
    let bytes = inside.iter().copied().filter(|&byte| {
        escaped = byte == b'\\' && !escaped;
        !escaped
    });
    Argument::Text(Cow::Owned(bytes.collect()))
}

fn quotes_close(value: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for &byte in value {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    !quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &str) -> CacheControl {
        let mut fields = Fields::new();
        lines.split('|').for_each(|line| fields.push("Cache-Control", line));
        CacheControl::of(&fields)
    }

    fn names(list: &[&str]) -> Option<Names> {
        Some(Names::Fields(list.iter().map(|&name| name.into()).collect()))
    }

    #[test]
    fn reads_directives() {
        let none = CacheControl::default;
        // Lines (`|` between them) and what they say; RFC 9111 sections in the comments.
        let rows = [
            // 5.2: names without case, any order, empty members.
            ("Max-Age=60", CacheControl { max_age: Some(60), ..none() }),
            (", max-age=60,,PUBLIC ,", CacheControl { max_age: Some(60), public: true, ..none() }),
            ("max-age=60|no-store", CacheControl { max_age: Some(60), no_store: true, ..none() }),
            // 5.2: both argument forms.
            ("max-age=\"60\"", CacheControl { max_age: Some(60), ..none() }),
            ("s-maxage=\"6\\0\"", CacheControl { s_maxage: Some(60), ..none() }),
            ("private=x-a", CacheControl { private: names(&["x-a"]), ..none() }),
            // 4.2.1: first of several, and stale when it is no number.
            ("max-age=1, max-age=9", CacheControl { max_age: Some(1), ..none() }),
            ("max-age=x", CacheControl { max_age: Some(0), ..none() }),
            ("max-age", CacheControl { max_age: Some(0), ..none() }),
            ("max-age=", CacheControl { max_age: Some(0), ..none() }),
            ("max-age=-1", CacheControl { max_age: Some(0), ..none() }),
            ("max-age=1.5", CacheControl { max_age: Some(0), ..none() }),
            ("max-age='60'", CacheControl { max_age: Some(0), ..none() }),
            ("max-age =60", CacheControl { max_age: Some(0), ..none() }),
            ("max-age= 60", CacheControl { max_age: Some(0), ..none() }),
            ("s-maxage=a", CacheControl { s_maxage: Some(0), ..none() }),
            // 1.2.2: too large.
            ("max-age=99999999999999999999", CacheControl { max_age: Some(1 << 31), ..none() }),
            // 5.2.2.4, 5.2.2.7: qualified and unqualified.
            ("no-cache", CacheControl { no_cache: Some(Names::All), ..none() }),
            ("no-cache=\"Set-Cookie, X\"", CacheControl { no_cache: names(&["set-cookie", "x"]), ..none() }),
            ("private=\"A\", private=\"b\"", CacheControl { private: names(&["a", "b"]), ..none() }),
            ("private=\"a\", private", CacheControl { private: Some(Names::All), ..none() }),
            ("private, private=\"a\"", CacheControl { private: Some(Names::All), ..none() }),
            ("private=\"\"", CacheControl { private: Some(Names::All), ..none() }),
            ("private=\"a b\"", CacheControl { private: Some(Names::All), ..none() }),
            // An open quote hides nothing.
            ("private=\"a, no-store", CacheControl { private: Some(Names::All), no_store: true, ..none() }),
            // A comma within quotes begins no directive.
            ("x=\"a, no-store\"", CacheControl { unknown: 1, ..none() }),
            // 5.2.1: requests.
            ("max-stale", CacheControl { max_stale: Some(MaxStale::Any), ..none() }),
            ("max-stale=5", CacheControl { max_stale: Some(MaxStale::Seconds(5)), ..none() }),
            ("max-stale=x, min-fresh=x", none()),
            ("min-fresh=7", CacheControl { min_fresh: Some(7), ..none() }),
            ("only-if-cached", CacheControl { only_if_cached: true, ..none() }),
            // 5.2.2.
            ("must-revalidate", CacheControl { must_revalidate: true, ..none() }),
            ("proxy-revalidate", CacheControl { proxy_revalidate: true, ..none() }),
            ("must-understand", CacheControl { must_understand: true, ..none() }),
            ("no-transform", CacheControl { no_transform: true, ..none() }),
            ("immutable", CacheControl { immutable: true, ..none() }),
            ("no-store=1", CacheControl { no_store: true, ..none() }),
            // RFC 5861.
            ("stale-while-revalidate=30", CacheControl { stale_while_revalidate: Some(30), ..none() }),
            ("stale-if-error=x", CacheControl { stale_if_error: Some(0), ..none() }),
            // 5.2.3.
            ("community=\"UCI\", foo", CacheControl { unknown: 2, ..none() }),
            ("", none()),
            ("=", none()),
        ];
        for (lines, expected) in rows {
            assert_eq!(read(lines), expected, "{lines}");
        }
    }

    proptest! {
        #[test]
        fn a_strict_directive_is_never_hidden(
            before in "[a-z=0-9 ;]{0,20}", strict in "(no-store|No-Store)", after in "[ -~]{0,20}"
        ) {
            let strictest = read(&format!("{before},{strict},{after}").replace('|', " "));
            prop_assert!(strictest.no_store);
        }

        #[test]
        fn never_panics(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut fields = Fields::new();
            fields.push("Cache-Control", value);
            CacheControl::of(&fields);
        }
    }
}
