//! Texts with placeholders, such as `https://{host}{path}`: where a client is sent, what a URL becomes, the values of fields, pages.

use std::fmt::{self, Write};

/// A text with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Value(Placeholder),
}

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// `{client}`: the client's address.
    Client,
    /// `{host}`: the host of the URL.
    Host,
    /// `{path}`: the path without its query.
    Path,
    /// `{port}`: the port of the URL.
    Port,
    /// `{query}`: the query with its `?`, where there is one.
    Query,
    /// `{request}`: the name of the request, as the log has it.
    Request,
    /// `{rule}`: the name and place of the rule.
    Rule,
    /// `{scheme}`: the scheme of the URL.
    Scheme,
    /// `{url}`: the URL.
    Url,
    /// `{user}`: the user, or nothing.
    User,
    /// `{1}` to `{9}`: a group of the rule's expression.
    Group(u8),
}

const NAMED: [(&str, Placeholder); 10] = [
    ("client", Placeholder::Client),
    ("host", Placeholder::Host),
    ("path", Placeholder::Path),
    ("port", Placeholder::Port),
    ("query", Placeholder::Query),
    ("request", Placeholder::Request),
    ("rule", Placeholder::Rule),
    ("scheme", Placeholder::Scheme),
    ("url", Placeholder::Url),
    ("user", Placeholder::User),
];

impl Template {
    /// `Err` says which placeholder is unknown. `{{` and `}}` are braces.
    pub fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            if let Some(behind) = behind.strip_prefix(brace) {
                plain.push_str(brace);
                rest = behind;
                continue;
            }
            let (name, behind) = match (brace, behind.split_once('}')) {
                ("{", Some(split)) => split,
                _ => return Err("a brace alone is written twice".to_owned()),
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(Part::Value(placeholder(name)?));
            rest = behind;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Template { text: text.into(), parts: parts.into() })
    }

    /// The text with its placeholders filled in.
    pub fn fill(&self, mut value: impl FnMut(Placeholder, &mut String)) -> String {
        let mut out = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Value(placeholder) => value(*placeholder, &mut out),
            }
        }
        out
    }

    /// The text, where it has no placeholder.
    pub fn plain(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether it has this placeholder.
    pub fn names(&self, placeholder: Placeholder) -> bool {
        self.parts.contains(&Part::Value(placeholder))
    }

    /// Whether it reads the same for each request for which the same rules hold, but for `{request}`.
    pub fn is_repeatable(&self) -> bool {
        let is_same = |part: &Part| match part {
            Part::Text(_) => true,
            Part::Value(placeholder) => matches!(placeholder, Placeholder::Request | Placeholder::Rule),
        };
        self.parts.iter().all(is_same)
    }

    /// The number of the last group that it names.
    pub fn groups_len(&self) -> usize {
        let group = |part: &Part| match part {
            Part::Value(Placeholder::Group(number)) => usize::from(*number),
            _ => 0,
        };
        self.parts.iter().map(group).max().unwrap_or(0)
    }

    /// Whether it has a value that differs from request to request where all facts of a memo are the same.
    pub fn reads_request(&self) -> bool {
        let differs = |value: &Placeholder| {
            !matches!(value, Placeholder::Rule | Placeholder::Scheme | Placeholder::Host | Placeholder::Port)
        };
        self.parts.iter().any(|part| matches!(part, Part::Value(value) if differs(value)))
    }
}

fn placeholder(name: &str) -> Result<Placeholder, String> {
    if let Some((_, value)) = NAMED.iter().find(|(known, _)| *known == name) {
        return Ok(*value);
    }
    match name.as_bytes() {
        [digit @ b'1'..=b'9'] => Ok(Placeholder::Group(digit - b'0')),
        _ => {
            let mut known = String::new();
            NAMED.iter().for_each(|(name, _)| _ = write!(known, "{{{name}}} "));
            Err(format!("there is no placeholder {{{name}}}: there are {known}and {{1}} to {{9}}"))
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let template = Template::parse(text).unwrap();
        template.fill(|value, out| match value {
            Placeholder::Host => out.push_str("a.test"),
            Placeholder::Group(number) => _ = write!(out, "<{number}>"),
            _ => out.push('?'),
        })
    }

    #[test]
    fn placeholders_are_filled_in() {
        for (text, wanted) in [
            ("https://{host}/x", "https://a.test/x"),
            ("{1}{2}", "<1><2>"),
            ("a {{b}} {path}", "a {b} ?"),
            ("", ""),
            ("}}{{", "}{"),
        ] {
            assert_eq!(filled(text), wanted, "{text}");
            assert_eq!(Template::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["{", "}", "{nothing}", "{0}", "{10}", "{host"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Template::parse("{2}{1}").unwrap().groups_len(), 2);
        assert_eq!(Template::parse("a{{").unwrap().plain(), Some("a{"));
    }
}
