//! Expressions of VCL: conditions about requests, and texts.

use super::parse::Token;
use crate::bound::{Bound, Cond};
use crate::nginx::condition::capitals;
use larder_rules::values::{FieldTest, Pattern, is_field_name};
use larder_rules::{HostPattern, PathPattern};
use std::collections::BTreeMap;

/// The networks of the source's ACLs, by name: those that are in it, and those that are not.
pub type Acls = BTreeMap<String, Cond>;

/// A condition of the source: as rules say it best, and between two others where that is not the same. Refusals go by these.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// As rules say it best.
    pub likely: Cond,
    /// Between these it lies.
    pub bound: Bound,
}

impl Known {
    /// All three the same.
    pub fn exact(cond: Cond) -> Known {
        Known { likely: cond.clone(), bound: Bound::exact(cond) }
    }

    /// One of which nothing is known: for what is not refused it never holds.
    pub fn unknown() -> Known {
        Known { likely: Cond::False, bound: Bound::unknown() }
    }

    /// Whether rules say it exactly.
    pub fn is_exact(&self) -> bool {
        self.bound.is_exact()
    }

    /// Holds where this one does not.
    #[must_use]
    pub fn negated(self) -> Known {
        Known { likely: self.likely.negated(), bound: self.bound.negated() }
    }

    /// All of these.
    pub fn all(each: impl IntoIterator<Item = Known>) -> Known {
        let (likely, bounds): (Vec<Cond>, Vec<Bound>) =
            each.into_iter().map(|known| (known.likely, known.bound)).unzip();
        Known { likely: Cond::all(likely), bound: Bound::all(bounds) }
    }

    /// One of these.
    pub fn any(each: impl IntoIterator<Item = Known>) -> Known {
        let (likely, bounds): (Vec<Cond>, Vec<Bound>) =
            each.into_iter().map(|known| (known.likely, known.bound)).unzip();
        Known { likely: Cond::any(likely), bound: Bound::any(bounds) }
    }
}

/// A condition; `None` where it is about something else than the request.
pub fn condition(tokens: &[Token], acls: &Acls) -> Option<Known> {
    let mut parser = Parser { tokens, at: 0, acls, depth: 0 };
    let bound = parser.or()?;
    (parser.at == tokens.len()).then_some(bound)
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    acls: &'a Acls,
    depth: usize,
}

/// Brackets are nested no deeper.
const NESTED_MAX: usize = 32;

impl Parser<'_> {
    fn sign(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.tokens.get(self.at), Some(Token::Sign(known)) if *known == sign);
        self.at += usize::from(is_it);
        is_it
    }

    fn or(&mut self) -> Option<Known> {
        let mut any = vec![self.and()?];
        while self.sign("||") {
            any.push(self.and()?);
        }
        Some(Known::any(any))
    }

    fn and(&mut self) -> Option<Known> {
        let mut all = vec![self.not()?];
        while self.sign("&&") {
            all.push(self.not()?);
        }
        Some(Known::all(all))
    }

    fn not(&mut self) -> Option<Known> {
        self.depth += 1;
        if self.depth > NESTED_MAX {
            return None;
        }
        let bound = if self.sign("!") {
            self.not()?.negated()
        } else if self.sign("(") {
            let bound = self.or()?;
            if !self.sign(")") {
                return None;
            }
            bound
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Some(bound)
    }

    fn comparison(&mut self) -> Option<Known> {
        let Some(Token::Name(name)) = self.tokens.get(self.at).cloned() else { return None };
        self.at += 1;
        let operator = match self.tokens.get(self.at) {
            Some(Token::Sign(sign @ ("==" | "!=" | "~" | "!~"))) => *sign,
            // `req.http.X` alone is a field that is there.
            _ => return there(&name),
        };
        self.at += 1;
        let value = self.tokens.get(self.at).cloned()?;
        self.at += 1;
        let bound = match (&value, operator) {
            (Token::Name(acl), "~" | "!~") if name == "client.ip" => Known::exact(self.acls.get(acl)?.clone()),
            (Token::Text(text), _) => compared(&name, operator.ends_with('~'), text)?,
            // How often a request was begun anew: here it never is.
            (Token::Name(number), "==" | "!=") if name == "req.restarts" || name == "req.esi_level" => {
                Known::exact(if number == "0" { Cond::True } else { Cond::False })
            }
            (Token::Name(port), "==") if name == "server.port" || name.starts_with("std.port") => {
                Known::exact(Cond::atom("listener", [format!(":{port}")]))
            }
            _ => return None,
        };
        let is_negated = operator.starts_with('!');
        Some(if is_negated { bound.negated() } else { bound })
    }
}

/// The name of a field of the request, where a variable is one.
pub fn field(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("req.http.").or_else(|| variable.strip_prefix("bereq.http."))?;
    is_field_name(name)
        .then(|| if name.chars().any(|letter| letter.is_ascii_uppercase()) { name.to_owned() } else { capitals(name) })
}

fn there(name: &str) -> Option<Known> {
    match name {
        "true" => Some(Known::exact(Cond::True)),
        "false" => Some(Known::exact(Cond::False)),
        "req.restarts" | "req.esi_level" => Some(Known::exact(Cond::False)),
        _ => field(name).map(|name| Known::exact(Cond::atom_of("field", &name, ["*"]))),
    }
}

fn compared(name: &str, is_regex: bool, text: &str) -> Option<Known> {
    if is_regex {
        Pattern::parse(text).ok()?;
    }
    let exact = |cond: Cond| Some(Known::exact(cond));
    match name {
        "req.method" | "req.request" | "bereq.method" | "bereq.request" => {
            let inner =
                text.trim_start_matches('^').trim_end_matches('$').trim_start_matches('(').trim_end_matches(')');
            let methods: Vec<&str> = if is_regex { inner.split('|').collect() } else { vec![text] };
            let is_method = |method: &&str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
            methods.iter().all(is_method).then(|| Known::exact(Cond::atom("method", methods)))
        }
        "req.url" | "bereq.url" => url(text, is_regex),
        "req.proto" => None,
        "req.http.host" | "req.http.Host" | "bereq.http.host" | "bereq.http.Host" => match is_regex {
            false => (HostPattern::parse(text).is_some() && !text.contains('*'))
                .then(|| Known::exact(Cond::atom("host", [text.to_ascii_lowercase()]))),
            true => hosts(text).and_then(|hosts| exact(Cond::atom("host", hosts))),
        },
        _ => {
            let name = field(name)?;
            let test = if is_regex { format!("~{text}") } else { text.to_owned() };
            if !is_regex && (text.ends_with('*') || text.starts_with('~') || text.is_empty()) {
                return None;
            }
            FieldTest::parse(&test).ok()?;
            exact(Cond::atom_of("field", &name, [test]))
        }
    }
}

/// `(?i)^(www\.)?example\.com$` and its like.
fn hosts(text: &str) -> Option<Vec<String>> {
    let text = text.strip_prefix("(?i)").unwrap_or(text);
    crate::squid::expression::hosts(text)
}

/// A URL of VCL is path and query; rules see the path.
fn url(text: &str, is_regex: bool) -> Option<Known> {
    if !is_regex {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        if query.is_some() || path.contains(['*', '{', '}']) {
            return None;
        }
        let cond = PathPattern::parse(path).map(|_| Cond::atom("path", [path]))?;
        // With a query it is another URL in VCL.
        return Some(Known { likely: cond.clone(), bound: Bound { must: Cond::False, may: cond } });
    }
    if text.contains("\\?") || text.contains("[?") {
        // `\.(css|js)(\?.*)?$` is about the end of the path.
        let path = text
            .strip_suffix("(\\?.*)?$")
            .or_else(|| text.strip_suffix("(\\?.*|)$"))
            .or_else(|| text.strip_suffix("(\\?|$)"))?;
        let regex = format!("{path}$");
        return Pattern::parse(&regex).ok().map(|_| Known::exact(Cond::atom("path_regex", [regex])));
    }
    let cond = Cond::atom("path_regex", [text]);
    let body = text.strip_prefix("(?i)").unwrap_or(text);
    let is_of_path = body.starts_with("^/") && !body.contains('|') || body.starts_with("^/(") && body.ends_with(')');
    let may = if is_of_path { cond.clone() } else { Cond::True };
    // A path has no query at its end.
    let must = if body.ends_with('$') { Cond::False } else { cond.clone() };
    let bound = if is_of_path && !body.ends_with('$') { Bound::exact(cond.clone()) } else { Bound { must, may } };
    Some(Known { likely: cond, bound })
}

/// A text of literals and variables as one with placeholders.
pub fn template(tokens: &[Token]) -> Option<String> {
    let mut out = String::new();
    for token in tokens {
        match token {
            Token::Text(text) => out.push_str(&text.replace('{', "{{").replace('}', "}}")),
            Token::Sign("+") => {}
            Token::Name(name) => out.push_str(match name.as_str() {
                "req.http.host" | "req.http.Host" => "{host}",
                "req.url" => "{path}{query}",
                "client.ip" => "{client}",
                _ => return None,
            }),
            Token::Sign(_) => return None,
        }
    }
    let is_clean = !out.chars().any(char::is_control);
    (is_clean && larder_rules::template::Template::parse(&out).is_ok()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use crate::varnish::parse;

    fn read(text: &str) -> Option<Known> {
        let all = parse::parse(&format!("sub a {{ if ({text}) {{ }} }}"));
        let acls = Acls::from([("purge".to_owned(), Cond::atom("client", ["10.0.0.0/8"]))]);
        condition(&all[0].body[0].tokens[1..], &acls)
    }

    fn shown(bound: Option<Known>) -> String {
        bound.and_then(|known| known.likely.when()).map_or("none".to_owned(), |when| Value::from(when).to_string())
    }

    #[test]
    fn conditions_about_requests() {
        for (text, wanted) in [
            ("req.method == \"PURGE\"", "{ method = \"PURGE\" }"),
            (
                "req.method != \"GET\" && req.method != \"HEAD\"",
                "{ not = [{ method = \"GET\" }, { method = \"HEAD\" }] }",
            ),
            ("req.method ~ \"^(PUT|POST)$\"", "{ method = [\"PUT\", \"POST\"] }"),
            ("!client.ip ~ purge", "{ not = { client = \"10.0.0.0/8\" } }"),
            ("req.url ~ \"^/admin\"", "{ path_regex = \"^/admin\" }"),
            (
                "req.http.Authorization || req.http.Cookie",
                "{ any = [{ field = { Authorization = \"*\" } }, { field = { Cookie = \"*\" } }] }",
            ),
            ("req.http.host == \"A.test\"", "{ host = \"a.test\" }"),
            ("req.http.host ~ \"^(www\\.)?a\\.test$\"", "{ host = [\"a.test\", \"www.a.test\"] }"),
            ("req.http.X ~ \"a\" && (req.restarts == 0)", "{ field = { X = \"~a\" } }"),
            ("req.url ~ \"\\.(css|js)(\\?.*)?$\"", "{ path_regex = '\\.(css|js)$' }"),
            ("beresp.status == 404", "none"),
            ("req.url ~ \"(\"", "none"),
            ("(((req.http.X", "none"),
        ] {
            assert_eq!(shown(read(text)), wanted, "{text}");
        }
        assert_eq!(read("req.url ~ \"admin\"").unwrap().bound.may, Cond::True);
        assert!(read("req.url ~ \"^/admin\"").unwrap().is_exact());
        assert_eq!(read(&format!("{}req.http.X", "(".repeat(100_000))), None);
    }

    #[test]
    fn texts() {
        let all = parse::parse("sub a { set x = \"https://\" + req.http.host + req.url; }");
        assert_eq!(template(&all[0].body[0].tokens[3..]).as_deref(), Some("https://{host}{path}{query}"));
        assert_eq!(template(&[Token::Name("now".to_owned())]), None);
    }
}
