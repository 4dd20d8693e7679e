//! One store rule: knowledge of things that are downloaded, as data. A rule matches requests by host, path, query and fields, and
//! says under which key the answer is stored and how long it is fresh.

use super::{HostPattern, SourceLine};
use crate::package_index::IndexFormat;
use larder_cache::policy::RuleTerms;
use larder_rules::PathPattern;
use larder_wire::fields::trim;
use larder_wire::{RequestHead, ResponseHead, Url};
use std::fmt;
use std::time::Duration;

/// One rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreRule {
    /// Hosts of the URL; empty: any.
    pub hosts: Vec<HostPattern>,
    /// Forms of the path; empty: any.
    pub paths: Vec<PathPattern>,
    /// Parameters that the query must have, all of them.
    pub query: Vec<ParameterPattern>,
    /// Fields that the request must have, all of them.
    pub fields: Vec<FieldPattern>,
    /// Media types of the answer, for what the rule says of its lifetime; empty: any.
    pub types: Vec<Box<str>>,
    /// Origins whose paths are one tree, by the operator's word; all are stored under the first. Each has the path `/`.
    pub same_tree: Vec<Url>,
    /// Parameters that say nothing of the content, by the operator's word.
    pub drop_query: Vec<ParameterPattern>,
    /// Parameters of a signature, which are left out where a redirection handed the URL out.
    pub signed_query: Vec<ParameterPattern>,
    /// The URL names its content, so that it is the same whoever asks.
    pub names_content: bool,
    /// Answers to a request with `Authorization` are stored for that credential.
    pub by_credential: bool,
    /// A request's own limits of age do not count.
    pub any_age: bool,
    /// A request's `no-cache` and `no-store` are taken off it.
    pub drop_no_cache: bool,
    /// The answer is an index of packages in this format, which names the digests of files.
    pub index: Option<IndexFormat>,
    /// How long an answer is fresh that does not say so.
    pub lifetime: Option<Duration>,
    /// How long an answer is fresh at least.
    pub lifetime_min: Option<Duration>,
    /// How long it is served stale while it is validated, if the answer does not say so.
    pub stale_while_revalidate: Option<Duration>,
    /// How long it stands in for an error, if the answer does not say so.
    pub stale_if_error: Option<Duration>,
    /// Redirections are stored for the time when their origin is out of reach.
    pub keep_redirects: bool,
    /// The answer to a HEAD is stored for later ones where no GET brings it.
    pub keep_heads: bool,
    /// The URL never has HTML: a page in its place is not the origin's word.
    pub never_html: bool,
    /// Where it stands.
    pub place: SourceLine,
    /// The preset that it belongs to.
    pub preset: Option<&'static str>,
}

/// The name of a parameter, or with a `*` at the end the beginning of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterPattern(Box<str>);

impl ParameterPattern {
    /// `None` where the text is no such pattern.
    pub fn parse(text: &str) -> Option<ParameterPattern> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"*&=#?".contains(&byte));
        is_name.then(|| ParameterPattern(text.into()))
    }

    fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == &*self.0,
        }
    }
}

impl fmt::Display for ParameterPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `Name`, or `Name: beginning` of one of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPattern {
    name: Box<str>,
    value: Option<Box<str>>,
}

impl FieldPattern {
    /// `None` where the text is no such pattern.
    pub fn parse(text: &str) -> Option<FieldPattern> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value.trim())),
            None => (text, None),
        };
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_value = value.is_none_or(|value| !value.is_empty());
        (is_name && is_value).then(|| FieldPattern { name: name.into(), value: value.map(Box::from) })
    }

    /// The name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a request has such a field.
    pub fn matches(&self, request: &RequestHead) -> bool {
        match &self.value {
            None => request.fields.contains(&self.name),
            Some(value) => request.fields.members(&self.name).any(|member| member.starts_with(value.as_bytes())),
        }
    }
}

impl fmt::Display for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => f.write_str(&self.name),
            Some(value) => write!(f, "{}: {value}", self.name),
        }
    }
}

impl StoreRule {
    /// Whether the URL is one of those that the rule is about.
    pub fn is_about(&self, url: &Url) -> bool {
        let (path, query) = split_query(&url.path);
        (self.hosts.is_empty() || self.hosts.iter().any(|host| host.matches(&url.host)))
            && (self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.matches(path)))
            && self.query.iter().all(|wanted| names(query).any(|name| wanted.matches(name)))
    }

    /// Whether the request is one of those that the rule is about.
    pub fn matches(&self, url: &Url, request: &RequestHead) -> bool {
        self.is_about(url) && self.fields.iter().all(|field| field.matches(request))
    }

    /// The URL at the first of the origins that are one tree, where it is one of these.
    pub(super) fn in_tree(&self, url: &Url) -> Option<Url> {
        let is_of_tree =
            self.same_tree.iter().any(|it| (it.scheme, &it.host, it.port) == (url.scheme, &url.host, url.port));
        let first = self.same_tree.first().filter(|_| is_of_tree)?;
        Some(Url { path: url.path.clone(), ..first.clone() })
    }

    /// Whether the rule is about answers of this media type.
    pub(super) fn is_of_type(&self, response: &ResponseHead) -> bool {
        self.types.is_empty() || {
            let value = response.fields.get("Content-Type").unwrap_or_default();
            let essence = trim(value.split(|&byte| byte == b';').next().unwrap_or_default());
            self.types.iter().any(|of| match of.strip_suffix('*') {
                Some(start) => essence.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start.as_bytes())),
                None if &**of == "none" => essence.is_empty(),
                None => essence.eq_ignore_ascii_case(of.as_bytes()),
            })
        }
    }

    pub(super) fn says_lifetimes(&self) -> bool {
        self.keep_redirects
            || [self.lifetime, self.lifetime_min, self.stale_while_revalidate, self.stale_if_error]
                .iter()
                .any(Option::is_some)
    }

    /// Whether it says anything at all.
    pub(super) fn says_anything(&self) -> bool {
        self.says_lifetimes()
            || self.any_age
            || self.keep_heads
            || self.drop_no_cache
            || self.names_content
            || self.index.is_some()
            || self.never_html
            || self.by_credential
            || !(self.drop_query.is_empty() && self.signed_query.is_empty() && self.same_tree.is_empty())
    }

    pub(super) fn terms(&self) -> RuleTerms {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs());
        RuleTerms {
            lifetime_seconds: seconds(self.lifetime),
            lifetime_min_seconds: seconds(self.lifetime_min),
            stale_while_revalidate_seconds: seconds(self.stale_while_revalidate),
            stale_if_error_seconds: seconds(self.stale_if_error),
            keeps_redirects: self.keep_redirects,
        }
    }
}

/// How people find the rule: `preset go`, or file and line.
impl fmt::Display for StoreRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.preset {
            Some(preset) => write!(f, "preset {preset}"),
            None => write!(f, "[[store_rule]] ({})", self.place),
        }
    }
}

pub(super) fn split_query(path: &str) -> (&str, Option<&str>) {
    match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    }
}

/// The names of a query's parameters as they are written. A name with an escaped letter is another one: no signer writes it so.
fn names(query: Option<&str>) -> impl Iterator<Item = &str> {
    query.into_iter().flat_map(|query| query.split('&')).map(name_of)
}

fn name_of(parameter: &str) -> &str {
    parameter.split_once('=').map_or(parameter, |(name, _)| name)
}

/// A path and query without these parameters; the others stay as they are, in their order.
pub(super) fn without(path: &str, dropped: &[ParameterPattern]) -> String {
    let (path, query) = split_query(path);
    let mut out = path.to_owned();
    let kept = query.into_iter().flat_map(|query| query.split('&'));
    let kept = kept.filter(|parameter| !dropped.iter().any(|pattern| pattern.matches(name_of(parameter))));
    for (number, parameter) in kept.enumerate() {
        out.push(if number == 0 { '?' } else { '&' });
        out.push_str(parameter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_left_out_as_they_are_written() {
        let patterns =
            |names: &[&str]| names.iter().map(|name| ParameterPattern::parse(name).unwrap()).collect::<Vec<_>>();
        for (path, dropped, wanted) in [
            ("/x?a=1&X-Amz-Date=2&b", &["X-Amz-*"][..], "/x?a=1&b"),
            ("/x?X-Amz-Date=2", &["X-Amz-*"], "/x"),
            ("/x?x-amz-date=2", &["X-Amz-*"], "/x?x-amz-date=2"),
            ("/x?X%2DAmz-Date=2", &["X-Amz-*"], "/x?X%2DAmz-Date=2"),
            ("/x?sig", &["sig"], "/x"),
            ("/x?sign=1&sig=2?&sig=3", &["sig"], "/x?sign=1"),
            ("/x?", &["sig"], "/x?"),
            ("/x?&sig=1", &["sig"], "/x?"),
            ("/x", &["sig"], "/x"),
        ] {
            assert_eq!(without(path, &patterns(dropped)), wanted, "{path} {dropped:?}");
        }
        for wrong in ["", "*", "a*b", "a&b", "a=b", "a b"] {
            assert_eq!(ParameterPattern::parse(wrong), None, "{wrong}");
        }
    }
}
