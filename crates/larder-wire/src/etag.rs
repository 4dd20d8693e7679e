//! Entity tags and the lists of them that conditions carry (RFC 9110 sections 8.8.3, 13.1.1 and 13.1.2).

use crate::Fields;

/// An entity tag. Comparing has two meanings, so there is no `==` for it in policy: say which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ETag {
    /// Marked `W/`: equal tags promise equal meaning, not equal bytes.
    pub weak: bool,
    /// The characters between the quotes.
    pub opaque: Box<[u8]>,
}

impl ETag {
    /// Reads one whole field value; `None` for anything that is not exactly one entity tag.
    pub fn parse(value: &[u8]) -> Option<ETag> {
        match ETag::read(value) {
            Some((tag, [])) => Some(tag),
            _ => None,
        }
    }

    /// The tag of an `ETag` field; `None` also when there are several.
    pub fn of(fields: &Fields) -> Option<ETag> {
        let mut values = fields.get_all("ETag");
        let tag = ETag::parse(values.next()?)?;
        values.all(|other| ETag::parse(other).as_ref() == Some(&tag)).then_some(tag)
    }

    /// Both strong and the same: the bytes are equal (RFC 9110 section 8.8.3.2).
    pub fn strong_eq(&self, other: &ETag) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// The same but for the mark `W/` (RFC 9110 section 8.8.3.2).
    pub fn weak_eq(&self, other: &ETag) -> bool {
        self.opaque == other.opaque
    }

    /// Appends the tag as it goes on the wire.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        if self.weak {
            out.extend_from_slice(b"W/");
        }
        out.push(b'"');
        out.extend_from_slice(&self.opaque);
        out.push(b'"');
    }

    /// The tag at the beginning and what follows it. A backslash is an ordinary byte here.
    fn read(value: &[u8]) -> Option<(ETag, &[u8])> {
        let (weak, quoted) = match value.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let inside = quoted.strip_prefix(b"\"")?;
        let end = inside.iter().position(|&byte| byte == b'"')?;
        let valid = inside[..end].iter().all(|&byte| byte > b' ' && byte != 0x7f);
        valid.then(|| (ETag { weak, opaque: inside[..end].into() }, &inside[end + 1..]))
    }
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ETagList {
    /// `*`: whatever there is.
    Any,
    /// These tags. Tags that could not be read are left out and so match nothing.
    Tags(Vec<ETag>),
}

impl ETagList {
    /// Reads all lines of the field of that name; `None` when there is no such line.
    pub fn of(fields: &Fields, name: &str) -> Option<ETagList> {
        let mut lines = fields.get_all(name).peekable();
        lines.peek()?;
        let mut tags = Vec::new();
        for line in lines {
            if line == b"*" {
                return Some(ETagList::Any);
            }
            read_tags(line, &mut tags);
        }
        Some(ETagList::Tags(tags))
    }

    /// True when the list has a tag that is the same by weak comparison, or is `*`.
    pub fn matches_weak(&self, tag: Option<&ETag>) -> bool {
        self.matches(tag, ETag::weak_eq)
    }

    /// True when the list has a tag that is the same by strong comparison, or is `*`.
    pub fn matches_strong(&self, tag: Option<&ETag>) -> bool {
        self.matches(tag, ETag::strong_eq)
    }

    fn matches(&self, tag: Option<&ETag>, same: fn(&ETag, &ETag) -> bool) -> bool {
        match self {
            ETagList::Any => true,
            ETagList::Tags(tags) => tag.is_some_and(|tag| tags.iter().any(|listed| same(listed, tag))),
        }
    }
}

fn read_tags(line: &[u8], tags: &mut Vec<ETag>) {
    let mut rest = line;
    while !rest.is_empty() {
        match rest[0] {
            b' ' | b'\t' | b',' => rest = &rest[1..],
            _ => match ETag::read(rest) {
                Some((tag, after)) if ends_member(after) => {
                    tags.push(tag);
                    rest = after;
                }
                _ => rest = after_comma(rest),
            },
        }
    }
}

fn ends_member(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !matches!(byte, b' ' | b'\t')).is_none_or(|&byte| byte == b',')
}

fn after_comma(rest: &[u8]) -> &[u8] {
    memchr::memchr(b',', rest).map_or(&[], |at| &rest[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(lines: &str) -> String {
        let mut fields = Fields::new();
        lines.split('|').for_each(|line| fields.push("If-None-Match", line));
        match ETagList::of(&fields, "if-none-match") {
            None => "none".to_owned(),
            Some(ETagList::Any) => "*".to_owned(),
            Some(ETagList::Tags(tags)) => {
                let mut out = Vec::new();
                for tag in tags {
                    tag.write_to(&mut out);
                    out.push(b' ');
                }
                String::from_utf8_lossy(&out).trim_end().to_owned()
            }
        }
    }

    #[test]
    fn reads_lists() {
        // RFC 9110 sections 8.8.3 and 13.1.2.
        let rows = [
            (r#""a""#, r#""a""#),
            (r#""a", W/"b" ,"""#, r#""a" W/"b" """#),
            (r#""a"|"b""#, r#""a" "b""#),
            (r#""a,b","c""#, r#""a,b" "c""#),
            (r#""a\","c""#, r#""a\" "c""#),
            (",, \"a\",", r#""a""#),
            ("*", "*"),
            (r#""a"|*"#, "*"),
            // Not tags: no quotes, small w, a space inside, text after the quote.
            (r#"a, "b""#, r#""b""#),
            (r#"w/"a", "b""#, r#""b""#),
            (r#""a b", "c""#, r#""c""#),
            (r#""a"x, "c""#, r#""c""#),
            (r#""a"#, ""),
            ("", ""),
        ];
        for (lines, expected) in rows {
            assert_eq!(list(lines), expected, "{lines}");
        }
        assert_eq!(ETagList::of(&Fields::new(), "If-Match"), None);
    }

    #[test]
    fn compares_as_the_table_of_rfc_9110_8_8_3_2() {
        let rows = [
            (r#"W/"1""#, r#"W/"1""#, false, true),
            (r#"W/"1""#, r#"W/"2""#, false, false),
            (r#"W/"1""#, r#""1""#, false, true),
            (r#""1""#, r#""1""#, true, true),
            (r#""1""#, r#""A""#, false, false),
        ];
        for (a, b, strong, weak) in rows {
            let (a, b) = (ETag::parse(a.as_bytes()).unwrap(), ETag::parse(b.as_bytes()).unwrap());
            assert_eq!((a.strong_eq(&b), a.weak_eq(&b)), (strong, weak));
        }
    }

    #[test]
    fn several_different_tags_are_none() {
        let mut fields = Fields::new();
        fields.push("ETag", "\"a\"");
        assert!(ETag::of(&fields).is_some());
        fields.push("ETag", "\"a\"");
        assert!(ETag::of(&fields).is_some());
        fields.push("ETag", "\"b\"");
        assert!(ETag::of(&fields).is_none());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(weak: bool, opaque in "[!#-~]{0,20}") {
            let tag = ETag { weak, opaque: opaque.into_bytes().into() };
            let mut out = Vec::new();
            tag.write_to(&mut out);
            prop_assert_eq!(ETag::parse(&out), Some(tag));
        }

        #[test]
        fn lists_end(value in "[\"W/*, a\\\\]{0,40}") {
            list(&value);
        }
    }
}
