//! Texts of LDAP in which the name of a user stands: distinguished names (RFC 4514) and filters (RFC 4515). Names are put into a filter that
//! has been read already, so that nothing in them is syntax.

use crate::ber;

/// Parentheses within each other in a filter.
const DEPTH_MAX: usize = 16;

/// The longest filter or name that is configured, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// The values of `{user}` and `{dn}`.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The user, as typed.
    pub user: &'a str,
    /// The distinguished name of the entry.
    pub dn: &'a str,
}

/// A name by which one user is known: of printable ASCII with single spaces within. A directory takes further spaces, letters of another case
/// and many letters beyond ASCII for the same name (RFC 4518); to rules each would be somebody else. `None` for any other.
pub fn user_name(typed: &str) -> Option<String> {
    let is_plain = typed.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let has_ends = typed.starts_with(' ') || typed.ends_with(' ') || typed.contains("  ");
    (!typed.is_empty() && is_plain && !has_ends).then(|| typed.to_ascii_lowercase())
}

/// The distinguished name of a template: each `{user}` is the value, escaped.
pub fn dn_of(template: &str, user: &str) -> String {
    template.replace("{user}", &escape_dn(user))
}

/// Escapes a value of a distinguished name (RFC 4514 section 2.4).
pub fn escape_dn(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.len().saturating_sub(1);
    for (at, letter) in value.char_indices() {
        let is_special = matches!(letter, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=')
            || (letter == '#' && at == 0)
            || (letter == ' ' && (at == 0 || at == last));
        match letter {
            letter if letter.is_ascii_control() => out.push_str(&format!("\\{:02x}", u32::from(letter))),
            letter if is_special => out.extend(['\\', letter]),
            letter => out.push(letter),
        }
    }
    out
}

/// The parts of a distinguished name between its commas, each as attribute and value, in small letters of ASCII and without escapes; `None`
/// where it is none.
fn parts(dn: &str) -> Option<Vec<(String, String)>> {
    let (mut texts, mut from, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in dn.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                texts.push(dn.get(from..at)?);
                from = at + 1;
            }
            _ => {}
        }
    }
    texts.push(dn.get(from..)?);
    let part = |text: &str| {
        let (attribute, value) = text.split_once('=')?;
        Some((attribute.trim().to_ascii_lowercase(), unescape(value.trim_start(), '\\')?.trim_end().to_owned()))
    };
    texts.into_iter().map(part).collect()
}

/// The text behind escapes: two digits after the sign, or, in a name, the letter itself.
fn unescape(text: &str, sign: char) -> Option<String> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once(sign) {
        out.extend_from_slice(before.as_bytes());
        rest = match after.get(..2).filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            Some(pair) => {
                out.push(u8::from_str_radix(pair, 16).ok()?);
                after.get(2..)?
            }
            None => {
                let letter = after.chars().next()?;
                out.extend_from_slice(letter.to_string().as_bytes());
                after.get(letter.len_utf8()..)?
            }
        };
    }
    out.extend_from_slice(rest.as_bytes());
    String::from_utf8(out).ok()
}

/// The name of a group: the value of the first part of its distinguished name. `None` where that is not below `base`; an empty one is
/// above all.
pub fn group_name(dn: &str, base: &str) -> Option<String> {
    let found = parts(dn)?;
    if !base.is_empty() {
        let base = parts(base)?;
        let above = found.get(found.len().checked_sub(base.len())?..)?;
        let is_below = above.iter().zip(&base).all(|(a, b)| a.0 == b.0 && a.1.eq_ignore_ascii_case(&b.1));
        if !is_below || found.len() == base.len() {
            return None;
        }
    }
    let name = &found.first()?.1;
    (!name.is_empty() && !name.contains(char::is_control)).then(|| name.clone())
}

/// A filter (RFC 4515), with places for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    /// Tag, attribute and value: `=`, `>=`, `<=`, `~=`.
    Compare(u8, String, Vec<Piece>),
    Present(String),
    /// The values between the stars; those at the ends may be empty.
    Substrings(String, Vec<Vec<u8>>),
    Extensible {
        rule: String,
        attribute: String,
        with_dn: bool,
        value: Vec<Piece>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    User,
    Dn,
}

impl Filter {
    /// Reads a filter; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Filter, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("the filter is longer than {TEXT_BYTES_MAX} bytes"));
        }
        match node(text.trim(), 0)? {
            (node, "") => Ok(Filter(node)),
            (_, rest) => Err(format!("{rest:?} stands behind the filter")),
        }
    }

    /// Appends the filter with these names.
    pub fn push(&self, out: &mut Vec<u8>, names: Names<'_>) {
        push_node(out, &self.0, names);
    }
}

fn node(text: &str, depth: usize) -> Result<(Node, &str), String> {
    let inner = text.strip_prefix('(').ok_or_else(|| format!("{text:?} does not begin with a parenthesis"))?;
    if depth == DEPTH_MAX {
        return Err(format!("more than {DEPTH_MAX} parentheses are within each other"));
    }
    let (found, rest) = match inner.split_at_checked(1) {
        Some(("&", rest)) => nodes(rest, depth).map(|(all, rest)| (Node::All(all), rest))?,
        Some(("|", rest)) => nodes(rest, depth).map(|(any, rest)| (Node::Any(any), rest))?,
        Some(("!", rest)) => node(rest, depth + 1).map(|(not, rest)| (Node::Not(Box::new(not)), rest))?,
        _ => {
            let end = inner.find([')', '(']).ok_or("a parenthesis is not closed")?;
            let (item_text, rest) = inner.split_at(end);
            (item(item_text)?, rest)
        }
    };
    let rest = rest.strip_prefix(')').ok_or_else(|| format!("a parenthesis is not closed before {rest:?}"))?;
    Ok((found, rest))
}

fn nodes(mut text: &str, depth: usize) -> Result<(Vec<Node>, &str), String> {
    let mut found = Vec::new();
    while text.starts_with('(') {
        let (next, rest) = node(text, depth + 1)?;
        found.push(next);
        text = rest;
    }
    Ok((found, text))
}

fn item(text: &str) -> Result<Node, String> {
    let (left, value) = text.split_once('=').ok_or_else(|| format!("{text:?} has no `=`"))?;
    let (tag, left) = match left.chars().last() {
        Some('>') => (0xa5, left.strip_suffix('>')),
        Some('<') => (0xa6, left.strip_suffix('<')),
        Some('~') => (0xa8, left.strip_suffix('~')),
        Some(':') => (0xa9, left.strip_suffix(':')),
        _ => (0xa3, Some(left)),
    };
    let left = left.unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.;:".contains(&byte);
    if left.is_empty() || !left.bytes().all(is_plain) || (tag != 0xa9 && left.contains(':')) {
        return Err(format!("{left:?} is no attribute"));
    }
    if tag == 0xa9 {
        let mut words = left.split(':');
        let attribute = words.next().unwrap_or_default().to_owned();
        let (mut with_dn, mut rule) = (false, String::new());
        for word in words {
            match word.eq_ignore_ascii_case("dn") {
                true => with_dn = true,
                false => rule = word.to_owned(),
            }
        }
        return Ok(Node::Extensible { rule, attribute, with_dn, value: pieces(value)? });
    }
    if tag == 0xa3 && value == "*" {
        return Ok(Node::Present(left.to_owned()));
    }
    if tag == 0xa3 && value.contains('*') {
        if value.contains("{user}") || value.contains("{dn}") {
            return Err(format!("{text:?} has a star beside a name: others would fit too"));
        }
        let between: Result<Vec<Vec<u8>>, String> = value.split('*').map(bytes).collect();
        let between = between?;
        let ends = between.len().saturating_sub(1);
        if between.iter().enumerate().any(|(at, part)| part.is_empty() && at != 0 && at != ends) {
            return Err(format!("{text:?} has two stars side by side"));
        }
        return Ok(Node::Substrings(left.to_owned(), between));
    }
    Ok(Node::Compare(tag, left.to_owned(), pieces(value)?))
}

/// The bytes behind the escapes of RFC 4515 section 3, each a backslash with two digits.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let pair = after.get(..2).filter(|pair| pair.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
        out.push(byte.ok_or_else(|| format!("in {text:?} two hexadecimal digits have to follow a backslash"))?);
        rest = after.get(2..).unwrap_or_default();
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

fn pieces(value: &str) -> Result<Vec<Piece>, String> {
    let (mut found, mut rest) = (Vec::new(), value);
    loop {
        let next = [("{user}", Piece::User), ("{dn}", Piece::Dn)]
            .into_iter()
            .filter_map(|(word, piece)| Some((rest.find(word)?, word.len(), piece)))
            .min_by_key(|(at, ..)| *at);
        let Some((at, length, piece)) = next else {
            found.push(Piece::Bytes(bytes(rest)?));
            return Ok(found);
        };
        found.push(Piece::Bytes(bytes(rest.get(..at).unwrap_or_default())?));
        found.push(piece);
        rest = rest.get(at + length..).unwrap_or_default();
    }
}

fn value_of(pieces: &[Piece], names: Names<'_>) -> Vec<u8> {
    let each = pieces.iter().flat_map(|piece| match piece {
        Piece::Bytes(bytes) => bytes.as_slice(),
        Piece::User => names.user.as_bytes(),
        Piece::Dn => names.dn.as_bytes(),
    });
    each.copied().collect()
}

/// RFC 4511 section 4.5.1.7.
fn push_node(out: &mut Vec<u8>, node: &Node, names: Names<'_>) {
    match node {
        Node::All(all) => ber::push_with(out, 0xa0, |out| all.iter().for_each(|node| push_node(out, node, names))),
        Node::Any(any) => ber::push_with(out, 0xa1, |out| any.iter().for_each(|node| push_node(out, node, names))),
        Node::Not(not) => ber::push_with(out, 0xa2, |out| push_node(out, not, names)),
        Node::Present(attribute) => ber::push(out, 0x87, attribute.as_bytes()),
        Node::Compare(tag, attribute, value) => ber::push_with(out, *tag, |out| {
            ber::push(out, ber::OCTETS, attribute.as_bytes());
            ber::push(out, ber::OCTETS, &value_of(value, names));
        }),
        Node::Substrings(attribute, between) => ber::push_with(out, 0xa4, |out| {
            ber::push(out, ber::OCTETS, attribute.as_bytes());
            let ends = between.len().saturating_sub(1);
            ber::push_with(out, ber::SEQUENCE, |out| {
                for (at, part) in between.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
                    let tag = if at == 0 {
                        0x80
                    } else if at == ends {
                        0x82
                    } else {
                        0x81
                    };
                    ber::push(out, tag, part);
                }
            });
        }),
        Node::Extensible { rule, attribute, with_dn, value } => ber::push_with(out, 0xa9, |out| {
            if !rule.is_empty() {
                ber::push(out, 0x81, rule.as_bytes());
            }
            if !attribute.is_empty() {
                ber::push(out, 0x82, attribute.as_bytes());
            }
            ber::push(out, 0x83, &value_of(value, names));
            if *with_dn {
                ber::push(out, 0x84, &[0xff]);
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(filter: &str, user: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Filter::parse(filter).unwrap().push(&mut out, Names { user, dn: "cn=a" });
        out
    }

    /// RFC 4515 section 3.
    fn escaped(value: &str) -> String {
        let each = value.bytes().map(|byte| match byte {
            b'*' | b'(' | b')' | b'\\' | b'{' | 0 | 0x80.. => format!("\\{byte:02x}"),
            byte => char::from(byte).to_string(),
        });
        each.collect()
    }

    #[test]
    fn names_in_filters_are_values_and_no_syntax() {
        for user in ["*", "a)(uid=*", "a\\2a", "\0", "{dn}", "(|(uid=*))", "ü", &"x".repeat(3_000)] {
            let mut wanted = Vec::new();
            ber::push_with(&mut wanted, 0xa3, |out| {
                ber::push(out, ber::OCTETS, b"uid");
                ber::push(out, ber::OCTETS, user.as_bytes());
            });
            assert_eq!(encoded("(uid={user})", user), wanted, "{user}");
            assert_eq!(encoded(&format!("(uid={})", escaped(user)), "nobody"), wanted, "{user} escaped");
        }
    }

    #[test]
    fn filters_that_are_none_are_refused() {
        for filter in [
            "",
            "uid={user}",
            "(uid={user}",
            "(uid={user}))",
            "(&(uid={user})",
            "((uid=a))",
            "(uid)",
            "(=a)",
            "(u id=a)",
            "(uid={user}*)",
            "(uid=a**b)",
            "(uid=\\zz)",
            "(uid=\\2)",
            "(!)",
            &"(!".repeat(40),
        ] {
            assert!(Filter::parse(filter).is_err(), "{filter}");
        }
    }

    #[test]
    fn filters_as_their_bytes() {
        for (filter, wanted) in [
            ("(cn=*)", &[0x87, 2, b'c', b'n'][..]),
            ("(!(a=b))", &[0xa2, 8, 0xa3, 6, 4, 1, b'a', 4, 1, b'b']),
            ("(a=b*c)", &[0xa4, 11, 4, 1, b'a', 0x30, 6, 0x80, 1, b'b', 0x82, 1, b'c']),
            ("(a:1.2:=b)", &[0xa9, 11, 0x81, 3, b'1', b'.', b'2', 0x82, 1, b'a', 0x83, 1, b'b']),
            (
                "(&(a>=b)(|(a~=b)))",
                &[0xa0, 18, 0xa5, 6, 4, 1, b'a', 4, 1, b'b', 0xa1, 8, 0xa8, 6, 4, 1, b'a', 4, 1, b'b'],
            ),
        ] {
            assert_eq!(encoded(filter, ""), wanted, "{filter}");
        }
    }

    #[test]
    fn names_in_a_distinguished_name_stay_one_value() {
        for (user, wanted) in [
            ("ada", "uid=ada,ou=p"),
            ("x,ou=admins", "uid=x\\,ou\\=admins,ou=p"),
            ("#a", "uid=\\#a,ou=p"),
            (" a b ", "uid=\\ a b\\ ,ou=p"),
            ("a\0", "uid=a\\00,ou=p"),
            ("a+b\"<>;\\", "uid=a\\+b\\\"\\<\\>\\;\\\\,ou=p"),
        ] {
            assert_eq!(dn_of("uid={user},ou=p", user), wanted);
            assert_eq!(
                group_name(wanted, "ou=p"),
                Some(user.trim_end().to_owned()).filter(|name| !name.contains('\0'))
            );
        }
    }

    #[test]
    fn groups_are_named_below_their_base() {
        for (dn, base, wanted) in [
            ("cn=staff,ou=Groups,dc=example", "", Some("staff")),
            ("CN=Staff A,OU=groups, DC=Example", "ou=groups,dc=example", Some("Staff A")),
            ("cn=staff,ou=own,dc=example", "ou=groups,dc=example", None),
            ("cn=staff\\,ou=groups,dc=example", "ou=groups,dc=example", None),
            ("ou=groups,dc=example", "ou=groups,dc=example", None),
            ("cn=a\\2cb,dc=example", "dc=example", Some("a,b")),
            ("nonsense", "", None),
            ("", "", None),
        ] {
            assert_eq!(group_name(dn, base).as_deref(), wanted, "{dn}");
        }
    }

    #[test]
    fn one_user_has_one_name() {
        for (typed, wanted) in [
            ("Ada", Some("ada")),
            ("ada b", Some("ada b")),
            ("ada ", None),
            (" ada", None),
            ("a  b", None),
            ("", None),
            ("a\0", None),
            ("a\u{ad}da", None),
            ("ａｄａ", None),
        ] {
            assert_eq!(user_name(typed).as_deref(), wanted, "{typed:?}");
        }
    }

    proptest! {
        #[test]
        fn random_texts_are_read_without_a_panic(text in "[(&|!)a=*:\\\\{user}{dn}0-9ü, ]{0,60}") {
            let _ = (Filter::parse(&text), group_name(&text, "dc=a"), escape_dn(&text));
        }

        #[test]
        fn every_escaped_value_is_one_part(value in "\\PC{1,20}") {
            let dn = dn_of("cn={user},dc=a", &value);
            let found = parts(&dn);
            prop_assert_eq!(found.map(|parts| parts.len()), Some(2));
        }
    }
}
