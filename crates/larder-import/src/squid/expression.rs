//! Regular expressions about hosts, paths and URLs.
//!
//! Squid's expressions are those of POSIX, extended, with the additions of the GNU library; Larder's are those of the crate `regex`. Rules have
//! matchers that see the same texts as Squid's: `host_regex`, `target_regex` (the path with its query, encodings undone once) and `url_regex`
//! (the URL likewise; of a tunnel `host:port`).

use super::translated::Translated;
use crate::bound::Cond;
use larder_rules::HostPattern;
use larder_rules::values::Pattern;
use std::fmt::Write;

/// The part of a request that an expression is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The host of the URL.
    Host,
    /// The path with the query.
    Path,
    /// The whole URL; of a tunnel `host:port`.
    Url,
}

impl Reach {
    /// The matcher that sees the same.
    fn key(self) -> &'static str {
        match self {
            Reach::Host => "host_regex",
            Reach::Path => "target_regex",
            Reach::Url => "url_regex",
        }
    }
}

/// The condition of one expression.
pub fn translate(text: &str, folds_case: bool, reach: Reach) -> Translated {
    if (text == "." || text == ".*") && reach != Reach::Path {
        return Translated::exact(Cond::True);
    }
    if reach == Reach::Host
        && let Some(hosts) = hosts(text)
    {
        return Translated::exact(Cond::atom("host", hosts));
    }
    match same(text).map(|same| if folds_case { format!("(?i){same}") } else { same }) {
        Some(same) if Pattern::parse(&same).is_ok() => Translated::exact(Cond::atom(reach.key(), [same])),
        _ => Translated::unknown(&format!("the expression {} can't be said in Larder's syntax", shown(text))),
    }
}

fn shown(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(60).collect()
}

/// The hosts that an expression means, where it means a name or all below one: `^a\.b$`, `\.b$`, `(^|\.)b$`.
pub fn hosts(text: &str) -> Option<Vec<String>> {
    let body = text.strip_suffix('$')?;
    let (body, exact, below) = if let Some(body) = body.strip_prefix("(^|\\.)").or_else(|| body.strip_prefix("(\\.|^)"))
    {
        (body, true, true)
    } else if let Some(body) = body.strip_prefix("^(.*\\.)?").or_else(|| body.strip_prefix("^(.+\\.)?")) {
        (body, true, true)
    } else if let Some(body) = body.strip_prefix("^(www\\.)?") {
        let name = literal(body)?;
        return Some(vec![name.clone(), format!("www.{name}")]);
    } else if let Some(body) = body.strip_prefix('^') {
        (body, true, false)
    } else {
        (body.strip_prefix("\\.")?, false, true)
    };
    let name = literal(body)?;
    let mut hosts = Vec::new();
    hosts.extend(exact.then(|| name.clone()));
    hosts.extend(below.then(|| format!("*.{name}")));
    Some(hosts)
}

/// The text of an expression without operators, if it is a name of a host.
fn literal(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                escaped @ ('.' | '-') => out.push(escaped),
                _ => return None,
            },
            letter if letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '_' => {
                out.push(letter);
            }
            _ => return None,
        }
    }
    (!out.is_empty() && HostPattern::parse(&out).is_some()).then_some(out)
}

/// The expression in the syntax of the crate `regex` that is found in the same texts; `None` where there is none, or where POSIX leaves open
/// what it means.
pub fn same(text: &str) -> Option<String> {
    if text.contains(['\n', '\r', '\0']) {
        return None;
    }
    let mut out = String::new();
    let mut rest = text;
    // Whether something stands before that can be repeated.
    let mut is_repeatable = false;
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        (rest, is_repeatable) = match letter {
            '\\' => (escaped(behind, &mut out)?, true),
            '[' => (class(behind, &mut out)?, true),
            '*' | '+' | '?' | '{' if !is_repeatable => return None,
            '*' | '+' | '?' => (repetition(rest, &mut out)?, false),
            '{' => (interval(behind, &mut out)?, false),
            '(' | '|' => {
                out.push(letter);
                (behind, false)
            }
            '^' => {
                out.push('^');
                (behind, false)
            }
            '$' => {
                out.push('$');
                (behind, false)
            }
            '}' | ']' => {
                _ = write!(out, "\\{letter}");
                (behind, true)
            }
            letter => {
                out.push(letter);
                (behind, true)
            }
        };
    }
    Some(out)
}

/// Behind a `\`: the additions of GNU, or a letter that stands for itself.
fn escaped<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let letter = text.chars().next()?;
    match letter {
        'w' | 'W' | 's' | 'S' | 'b' | 'B' => _ = write!(out, "\\{letter}"),
        '<' => out.push_str("\\b{start}"),
        '>' => out.push_str("\\b{end}"),
        '`' => out.push_str("\\A"),
        '\'' => out.push_str("\\z"),
        // Back references take time without bound.
        '1'..='9' => return None,
        letter => out.push_str(&regex_letter(letter)),
    }
    Some(&text[letter.len_utf8()..])
}

/// A letter that stands for itself.
fn regex_letter(letter: char) -> String {
    match "\\.+*?()|[]{}^$#&-~".contains(letter) {
        true => format!("\\{letter}"),
        false => letter.to_string(),
    }
}

/// One repetition, or several that mean one together: `*?` is `*`.
fn repetition<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let rest = text.trim_start_matches(['*', '+', '?']);
    let all = &text[..text.len() - rest.len()];
    out.push(match (all.contains(['*', '?']), all.contains(['*', '+'])) {
        (true, true) => '*',
        (true, false) => '?',
        _ => '+',
    });
    (!rest.starts_with('{')).then_some(rest)
}

/// `{2}`, `{2,}`, `{2,5}`, `{,5}`, behind its `{`.
fn interval<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    let (inner, rest) = text.split_once('}')?;
    let is_number = |text: &str| !text.is_empty() && text.len() < 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    match inner.split_once(',') {
        None if is_number(inner) => _ = write!(out, "{{{inner}}}"),
        Some(("", most)) if is_number(most) => _ = write!(out, "{{0,{most}}}"),
        Some((least, "")) if is_number(least) => _ = write!(out, "{{{least},}}"),
        Some((least, most)) if is_number(least) && is_number(most) => _ = write!(out, "{{{least},{most}}}"),
        _ => return None,
    }
    (!rest.starts_with(['*', '+', '?', '{'])).then_some(rest)
}

/// A class of letters, behind its `[`. A `\` is a letter in it.
fn class<'t>(text: &'t str, out: &mut String) -> Option<&'t str> {
    out.push('[');
    let mut rest = text;
    if let Some(behind) = rest.strip_prefix('^') {
        out.push('^');
        rest = behind;
    }
    let mut is_first = true;
    loop {
        let letter = rest.chars().next()?;
        let behind = &rest[letter.len_utf8()..];
        rest = match letter {
            ']' if !is_first => {
                out.push(']');
                return Some(behind);
            }
            // Equivalence classes and names of letters depend on the locale.
            '[' if behind.starts_with(['.', '=']) => return None,
            '[' if behind.starts_with(':') => {
                let (name, behind) = behind.strip_prefix(':')?.split_once(":]")?;
                _ = write!(out, "[:{name}:]");
                behind
            }
            '-' => {
                // At an end it is a letter, in between it makes a range.
                out.push_str(if is_first || behind.starts_with(']') { "\\-" } else { "-" });
                behind
            }
            letter => {
                if "\\[]^&~".contains(letter) {
                    out.push('\\');
                }
                out.push(letter);
                behind
            }
        };
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_expressions() {
        for (text, wanted) in [
            ("^www\\.example\\.com$", Some(vec!["www.example.com"])),
            ("\\.example\\.com$", Some(vec!["*.example.com"])),
            ("(^|\\.)example\\.com$", Some(vec!["example.com", "*.example.com"])),
            ("^(www\\.)?example\\.com$", Some(vec!["example.com", "www.example.com"])),
            ("example\\.com$", None),
            (".example.com$", None),
            ("^example\\.com", None),
            ("^Example\\.com$", None),
            ("sex", None),
        ] {
            let wanted = wanted.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(hosts(text), wanted, "{text}");
        }
    }

    #[test]
    fn expressions_in_another_syntax() {
        for (text, wanted) in [
            ("casino", Some("casino")),
            ("^https?://[^/]*\\.mp3$", Some("^https?://[^/]*\\.mp3$")),
            ("(a|b)+?c*+", Some("(a|b)*c*")),
            ("a\\d\\/\\.", Some("ad/\\.")),
            ("[\\w]x{,2}", Some("[\\\\w]x{0,2}")),
            ("[]a-c-][^[:digit:]&&]", Some("[\\]a-c\\-][^[:digit:]\\&\\&]")),
            ("\\<ads\\>", Some("\\b{start}ads\\b{end}")),
            ("a}]", Some("a\\}\\]")),
            ("(a)\\1", None),
            ("[[.a.]]", None),
            ("*a", None),
            ("(?i)a", None),
            ("a{b", None),
            ("a{2}*", None),
            ("[a", None),
            ("a\\", None),
            ("a\nb", None),
        ] {
            let found = same(text);
            assert_eq!(found.as_deref(), wanted, "{text}");
            assert!(found.is_none_or(|found| Pattern::parse(&found).is_ok()), "{text}");
        }
    }

    #[test]
    fn each_part_has_its_matcher() {
        for (text, reach, key) in [
            ("^http://a", Reach::Url, "url_regex"),
            ("\\.mp3$", Reach::Path, "target_regex"),
            ("^ads", Reach::Host, "host_regex"),
            ("^ads\\.test$", Reach::Host, "host"),
        ] {
            let translated = translate(text, true, reach);
            assert!(translated.bound.is_exact() && translated.bound.must.has(key), "{translated:?}");
        }
        assert_eq!(translate("porn", true, Reach::Url).bound.must, Cond::atom("url_regex", ["(?i)porn"]));
        assert_eq!(translate(".", false, Reach::Url).bound.must, Cond::True);
        for unknown in ["(a)\\1", "(", "a)"] {
            let translated = translate(unknown, false, Reach::Url);
            assert!(translated.bound.may == Cond::True && translated.why.is_some(), "{unknown}");
        }
    }
}
