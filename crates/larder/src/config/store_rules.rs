//! The store rules that count for a request. `[[store_rule]]` tables are the operator's own; presets are the same tables in files of
//! the tree (`presets/`).

use super::parse::Loaded;
use super::presets::PRESETS;
use super::store_rule::{StoreRule, split_query, without};
use crate::package_index::IndexFormat;
use larder_cache::policy::RuleTerms;
use larder_wire::{RequestHead, ResponseHead, Url};
use std::sync::LazyLock;

/// The rules that count for one request: the operator's own, before those of presets. Of the rules that match, the first one that says something of the
/// key decides the key, and the first one that says something of lifetimes decides these.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreRules<'a> {
    own: &'a [StoreRule],
    presets: Presets<'a>,
}

/// The presets that count.
#[derive(Clone, Copy, Debug, Default)]
pub enum Presets<'a> {
    /// None: the request is for a site, which is known to its operator.
    #[default]
    None,
    /// Those that the configuration names.
    Named(&'a [String]),
    /// All: the request comes from a `larder run`.
    All,
}

/// A rule that makes a key.
pub struct KeyRule<'a> {
    /// The rule.
    pub rule: &'a StoreRule,
    /// The URL without the parameters that the rule leaves out, at the first of the origins that are one tree.
    pub url: Url,
    /// The parameters that are left out are a signature.
    pub is_signed: bool,
}

impl<'a> StoreRules<'a> {
    /// The rules of a configuration, with these presets.
    pub fn of(own: &'a [StoreRule], presets: Presets<'a>) -> StoreRules<'a> {
        StoreRules { own, presets }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
            && match self.presets {
                Presets::None => true,
                Presets::Named(names) => names.is_empty(),
                Presets::All => false,
            }
    }

    fn all(&self) -> impl Iterator<Item = &'a StoreRule> {
        let presets = self.presets;
        let counts = move |rule: &&StoreRule| match presets {
            Presets::None => false,
            Presets::Named(names) => rule.preset.is_some_and(|preset| names.iter().any(|name| name == preset)),
            Presets::All => true,
        };
        let of_presets: &'static [StoreRule] = if matches!(presets, Presets::None) { &[] } else { &PRESET_RULES };
        self.own.iter().chain(of_presets.iter().filter(counts))
    }

    /// The rule that makes the key of this URL: says which parameters are left out, or which origins are one tree.
    pub fn key(&self, url: &Url, request: &RequestHead) -> Option<KeyRule<'a>> {
        self.all().find_map(|rule| {
            let is_signed = !rule.signed_query.is_empty();
            let dropped = if is_signed { &rule.signed_query } else { &rule.drop_query };
            if (dropped.is_empty() && rule.same_tree.is_empty()) || !rule.matches(url, request) {
                return None;
            }
            let at_first = rule.in_tree(url);
            let path = without(&url.path, dropped);
            let says = path.len() < url.path.len() || at_first.is_some();
            let at = at_first.unwrap_or_else(|| url.clone());
            says.then(|| KeyRule { rule, url: Url { path: path.into(), ..at }, is_signed })
        })
    }

    /// Whether a rule may make the key of this URL although it has no query.
    pub fn is_in_tree(&self, url: &Url) -> bool {
        self.own.iter().any(|rule| !rule.same_tree.is_empty() && rule.in_tree(url).is_some())
    }

    /// The URL under which a rule has this one stored, whatever else stands in the request.
    pub fn at_first_of_tree(&self, url: &Url) -> Option<Url> {
        self.own.iter().find_map(|rule| rule.in_tree(url))
    }

    /// Whether a rule knows the parameters of a signature in this URL.
    pub fn is_signed(&self, url: &Url) -> bool {
        split_query(&url.path).1.is_some() && self.all().any(|rule| !rule.signed_query.is_empty() && rule.is_about(url))
    }

    /// Whether any rule has answers stored by credential.
    pub fn know_credentials(&self) -> bool {
        self.own.iter().any(|rule| rule.by_credential)
    }

    /// The rule by which the answer is stored for the credential of this request alone.
    pub fn by_credential(&self, url: &Url, request: &RequestHead) -> Option<&'a StoreRule> {
        self.own.iter().find(|rule| rule.by_credential && rule.matches(url, request))
    }

    /// The rule by which the limits of age that this request names do not count.
    pub fn any_age(&self, url: &Url, request: &RequestHead) -> Option<&'a StoreRule> {
        self.all().find(|rule| rule.any_age && rule.matches(url, request))
    }

    /// The rule by which `no-cache` and `no-store` of this request are taken off it. A rule about lifetimes that comes before it and
    /// knows this URL better, as that of versions in the making, leaves them.
    pub fn drops_no_cache(&self, url: &Url, request: &RequestHead) -> Option<&'a StoreRule> {
        let says = |rule: &&StoreRule| rule.drop_no_cache || rule.says_lifetimes();
        self.all().find(|rule| says(rule) && rule.matches(url, request)).filter(|rule| rule.drop_no_cache)
    }

    /// The rules about indexes of packages.
    pub fn indexes(&self) -> impl Iterator<Item = (&'a StoreRule, IndexFormat)> {
        self.all().filter_map(|rule| Some((rule, rule.index?)))
    }

    /// Whether a rule has redirections of this URL stored for the time when its origin is out of reach.
    pub fn keeps_redirects(&self, url: &Url, request: &RequestHead) -> bool {
        self.all()
            .find(|rule| rule.says_lifetimes() && rule.matches(url, request))
            .is_some_and(|rule| rule.keep_redirects)
    }

    /// Whether a rule has answers to HEAD stored for later ones.
    pub fn keeps_heads(&self, url: &Url, request: &RequestHead) -> bool {
        self.all().any(|rule| rule.keep_heads && rule.matches(url, request))
    }

    /// Whether a rule knows that this URL names its content.
    pub fn names_content(&self, url: &Url, request: &RequestHead) -> bool {
        self.all().any(|rule| rule.names_content && rule.matches(url, request))
    }

    /// Whether a rule knows that this URL never has HTML.
    pub fn never_html(&self, url: &Url, request: &RequestHead) -> bool {
        self.all().any(|rule| rule.never_html && rule.matches(url, request))
    }

    /// The rule that says how long this answer is fresh, and what it says.
    pub fn lifetime(
        &self,
        url: &Url,
        request: &RequestHead,
        response: &ResponseHead,
    ) -> Option<(&'a StoreRule, RuleTerms)> {
        let rule =
            self.all().find(|rule| rule.says_lifetimes() && rule.matches(url, request) && rule.is_of_type(response))?;
        Some((rule, rule.terms()))
    }
}

/// The rules of all presets. The files are compiled in and a test reads each, so one that can't be read has no rules.
static PRESET_RULES: LazyLock<Vec<StoreRule>> = LazyLock::new(|| {
    let mut rules = Vec::new();
    for (name, text) in PRESETS {
        let loaded = Loaded::parse(name, text, &[]);
        let of_preset = loaded.map(|loaded| loaded.config.store_rules).unwrap_or_default();
        rules.extend(of_preset.into_iter().map(|rule| StoreRule { preset: Some(name), ..rule }));
    }
    rules
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_a_file_of_rules_and_takes_no_operator_s_word() {
        assert!(PRESETS.is_sorted());
        for (name, text) in PRESETS {
            let loaded = Loaded::parse(name, text, &[]).unwrap_or_else(|report| panic!("{report}"));
            let rules = &loaded.config.store_rules;
            assert!(!rules.is_empty(), "{name}");
            assert_eq!(loaded.sources.keys().collect::<Vec<_>>(), [&"store_rule"], "{name}");
            for rule in rules {
                // A preset knows no host, and leaves nothing out of a key because it says so.
                assert!(rule.hosts.is_empty() && rule.drop_query.is_empty() && rule.same_tree.is_empty(), "{name}");
                assert!(!rule.by_credential, "{name}");
                assert!(!rule.paths.is_empty() || !rule.query.is_empty(), "{name}: a rule is about every URL");
            }
            assert!(text.contains("Source: "), "{name}: the source of its facts");
        }
        assert!(PRESET_RULES.iter().all(|rule| rule.preset.is_some()));
    }
}
