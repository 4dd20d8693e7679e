//! Patterns of the names in clients' certificates: common names, hosts, addresses of mail, URIs.

use std::fmt;

/// A name, the names of a domain, a form with wildcards, or any name. Letters of ASCII count in any case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NamePattern {
    /// `ada@office.example`: this name.
    Exact(Box<str>),
    /// `*.office.example`: every name that ends so, not `office.example` itself. Kept with its leading dot.
    Below(Box<str>),
    /// `.office.example`: this name and every name below. Kept with its leading dot.
    Tree(Box<str>),
    /// `spiffe://office/*`: each `*` stands for any letters, or none.
    Form(Box<str>),
    /// `*`: any name.
    Any,
}

impl NamePattern {
    /// `None` when the text can't be a name.
    pub fn parse(text: &str) -> Option<NamePattern> {
        let text = text.to_ascii_lowercase();
        if text.is_empty() || text.contains(char::is_control) {
            return None;
        }
        if text == "*" {
            return Some(NamePattern::Any);
        }
        let is_domain = |rest: &str| !rest.is_empty() && !rest.starts_with('.') && !rest.contains('*');
        match (text.strip_prefix("*."), text.strip_prefix('.')) {
            (Some(rest), _) if is_domain(rest) => Some(NamePattern::Below(format!(".{rest}").into())),
            (_, Some(rest)) => is_domain(rest).then(|| NamePattern::Tree(text.as_str().into())),
            _ if text.contains('*') => Some(NamePattern::Form(text.into())),
            _ => Some(NamePattern::Exact(text.into())),
        }
    }

    /// Whether a name is meant.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        match self {
            NamePattern::Exact(exact) => **exact == *name,
            NamePattern::Below(suffix) => name.len() > suffix.len() && name.ends_with(&**suffix),
            NamePattern::Tree(suffix) => {
                (name.len() > suffix.len() && name.ends_with(&**suffix)) || suffix.get(1..) == Some(&*name)
            }
            NamePattern::Form(form) => has_form(form.as_bytes(), name.as_bytes()),
            NamePattern::Any => true,
        }
    }
}

/// Whether a text has the form of a pattern in which `*` stands for any bytes. After a mismatch only the last `*` takes more, so the
/// work is at most the product of both lengths.
fn has_form(form: &[u8], text: &[u8]) -> bool {
    let (mut at_form, mut at_text) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(at_text) {
        match form.get(at_form) {
            Some(b'*') => {
                star = Some((at_form, at_text));
                at_form += 1;
            }
            Some(wanted) if wanted == byte => (at_form, at_text) = (at_form + 1, at_text + 1),
            _ => match &mut star {
                Some((of_form, of_text)) => {
                    *of_text += 1;
                    (at_form, at_text) = (*of_form + 1, *of_text);
                }
                None => return false,
            },
        }
    }
    form.get(at_form..).is_none_or(|rest| rest.iter().all(|byte| *byte == b'*'))
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamePattern::Exact(text) | NamePattern::Tree(text) | NamePattern::Form(text) => f.write_str(text),
            NamePattern::Below(suffix) => write!(f, "*{suffix}"),
            NamePattern::Any => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, name, expected) in [
            ("Ada Lovelace", "ada lovelace", true),
            ("ada@office.example", "ada@office.example", true),
            ("ada@office.example", "bada@office.example", false),
            (".office.example", "office.example", true),
            (".office.example", "a.B.office.EXAMPLE", true),
            (".office.example", "backoffice.example", false),
            (".office.example", "ada@office.example", false),
            ("*.office.example", "office.example", false),
            ("*.office.example", "pc7.office.example", true),
            ("*.office.example", ".office.example", false),
            ("*@office.example", "ada@office.example", true),
            ("*@office.example", "ada@office.example.evil.test", false),
            ("*@office.example", "@office.example", true),
            ("spiffe://office/*", "spiffe://office/print/7", true),
            ("spiffe://office/*", "spiffe://other/print", false),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "acb", false),
            ("**", "anything", true),
            ("a*", "", false),
            ("*", "anything", true),
        ] {
            assert_eq!(NamePattern::parse(pattern).unwrap().matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_is_shown_as_it_can_be_read_again() {
        for text in ["ada", ".office.example", "*.office.example", "*@office.example", "*"] {
            assert_eq!(NamePattern::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", ".", "..a", ".a*", "a\nb"] {
            assert!(NamePattern::parse(bad).is_none(), "{bad}");
        }
    }

    /// Many stars and a long name are no more work than their product.
    #[test]
    fn a_form_with_many_stars_is_no_trap() {
        let form = NamePattern::parse(&format!("{}b", "a*".repeat(60))).unwrap();
        assert!(!form.matches(&"a".repeat(255)));
    }
}
