//! The work of store rules on a request: its key, and which of its directives count. Lifetimes are a fetch's, which sees the answer.

use super::credential::Credential;
use crate::config::{StoreRule, StoreRules};
use crate::credential_secret::CredentialSecret;
use crate::handed_out::HandedOut;
use crate::package_index::IndexFormat;
use larder_cache::policy::{self, Asked};
use larder_wire::{Method, RequestHead, Url};
use std::sync::Arc;
use std::time::Instant;

/// The work of store rules on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByRule {
    /// The key that a rule makes.
    pub key: Option<KeyByRule>,
    /// The credential for which the answer is stored.
    pub credential: Option<Credential>,
    /// The rule by which the ages that the request names do not count.
    pub any_age: Option<Box<str>>,
    /// The rule by which the request's `no-cache` and `no-store` are taken off it.
    pub drops_no_cache: Option<Box<str>>,
    /// The format of the index of packages that is asked for, and the rule that says so.
    pub index: Option<(IndexFormat, Box<str>)>,
}

/// A key that leaves a part of the query out, or has another origin of the same tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyByRule {
    /// The rule, as people find it.
    pub rule: Box<str>,
    /// The URL as it stands in the key.
    pub url: Url,
    /// Another origin than that of the request stands there.
    pub is_at_first: bool,
    /// The URL whose redirection handed this one out, where the part is a signature. It stands in the key.
    pub handed_out_by: Option<Arc<str>>,
}

/// Between the URL of a redirection and the URL that it handed out, in a key. No URL has a space, and a site's key has a URL after its
/// first one, so no other key looks like this.
const HANDED_OUT: &str = " => ";

impl KeyByRule {
    /// Writes what stands before the URL in the key. A query's `?` would be taken for the end of the path
    /// (`No-Vary-Search`), so a space takes its place.
    pub(super) fn begin_key(&self, key: &mut Vec<u8>) {
        if let Some(from) = &self.handed_out_by {
            key.extend(from.bytes().map(|byte| if byte == b'?' { b' ' } else { byte }));
            key.extend_from_slice(HANDED_OUT.as_bytes());
        }
    }
}

impl ByRule {
    /// Applies the rules to a request with a query or limits of age; `None` where no rule says anything.
    pub(super) fn of(
        rules: StoreRules<'_>,
        url: &Url,
        request: &RequestHead,
        handed_out: Option<(&HandedOut, Instant)>,
        secret: Option<&CredentialSecret>,
    ) -> Option<Box<ByRule>> {
        let rule = rules.by_credential(url, request).map(|rule| rule.to_string().into());
        let credential = rule.and_then(|rule| Credential::of(request, rule, secret));
        let key = rules.key(url, request).and_then(|found| {
            let handed_out_by = match found.is_signed {
                false => None,
                // An answer to one who may say who asks may be his alone, whatever his URL permits.
                true if policy::may_say_who_asks(&request.fields) => return None,
                true => {
                    let (table, now) = handed_out?;
                    Some(table.by(&url.to_string(), now)?)
                }
            };
            let is_at_first = (found.url.scheme, &found.url.host, found.url.port) != (url.scheme, &url.host, url.port);
            Some(KeyByRule { rule: found.rule.to_string().into(), url: found.url, is_at_first, handed_out_by })
        });
        let asked = Asked::of(request);
        let names_age = asked.max_age.is_some() || asked.min_fresh.is_some();
        let any_age = names_age.then(|| rules.any_age(url, request)).flatten();
        // With `no-store`, one who may be known by his request says that nothing of his is to be kept.
        let reads = matches!(request.method, Method::Get | Method::Head);
        let is_habit = reads && (asked.no_cache || asked.no_store) && !policy::may_say_who_asks(&request.fields);
        let drops_no_cache = is_habit.then(|| rules.drops_no_cache(url, request)).flatten();
        let words = |rule: &StoreRule| rule.to_string().into();
        let by_rule = ByRule {
            key,
            credential,
            any_age: any_age.map(words),
            drops_no_cache: drops_no_cache.map(words),
            index: None,
        };
        (by_rule != ByRule::default()).then(|| Box::new(by_rule))
    }

    /// Adds that an index of packages is asked for.
    pub(super) fn with_index(by_rule: Option<Box<ByRule>>, rule: &StoreRule, format: IndexFormat) -> Box<ByRule> {
        let index = Some((format, rule.to_string().into()));
        Box::new(ByRule { index, ..by_rule.map(|by_rule| *by_rule).unwrap_or_default() })
    }

    /// The rules in words, for explanations.
    pub fn words(&self) -> Vec<String> {
        let key = self.key.as_ref().map(|key| match &key.handed_out_by {
            Some(_) => format!("the key lacks the signature, by {}: a redirection handed the URL out", key.rule),
            None if key.is_at_first => {
                let mut first = String::new();
                Url { path: "/".into(), ..key.url.clone() }.write_to(&mut first);
                format!("the key has {first}, whose paths are the same, by {}", key.rule)
            }
            None => format!("the key leaves a part of the query out, by {}", key.rule),
        });
        let age = self.any_age.as_ref().map(|rule| format!("the ages that the request names do not count, by {rule}"));
        let no_cache = self.drops_no_cache.as_ref();
        let no_cache =
            no_cache.map(|rule| format!("`no-cache` and `no-store` of the request were taken off it, by {rule}"));
        let index = self.index.as_ref().map(|(format, rule)| {
            format!("an index of packages ({format}), by {rule}: files have to have the digests that it names for them")
        });
        let credential = self.credential.as_ref();
        let credential = credential
            .map(|one| format!("the answer is for this credential, whose hash begins the key, by {}", one.rule));
        key.into_iter().chain(credential).chain(age).chain(no_cache).chain(index).collect()
    }
}
