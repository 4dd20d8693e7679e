//! Patterns of hosts, found by the labels of a name: a lookup costs one hash per label, however many patterns there are.

use crate::HostPattern;
use crate::bits::{RuleList, RuleSet};
use larder_wire::Host;
use std::collections::HashMap;

/// Patterns of hosts, with the rules that have each.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostIndex {
    exact: HashMap<Box<str>, RuleList>,
    /// By the suffix behind the first dot.
    below: HashMap<Box<str>, RuleList>,
    any: RuleList,
}

impl HostIndex {
    pub(crate) fn add(&mut self, pattern: &HostPattern, rule: u16) {
        let note = |rules: &mut RuleList| {
            if rules.last() != Some(&rule) {
                rules.push(rule);
            }
        };
        let named = |suffix: &str| suffix.trim_start_matches('.').into();
        match pattern {
            HostPattern::Exact(host) => note(self.exact.entry(host.as_str().into()).or_default()),
            HostPattern::Below(suffix) => note(self.below.entry(named(suffix)).or_default()),
            HostPattern::Tree(suffix) => {
                note(self.exact.entry(named(suffix)).or_default());
                note(self.below.entry(named(suffix)).or_default());
            }
            HostPattern::Any => note(&mut self.any),
        }
    }

    /// Adds the rules that have a pattern for this host.
    pub(crate) fn select(&self, host: &Host, into: &mut RuleSet) {
        let plain = host.spelled_plainly();
        self.select_name(plain.as_ref().unwrap_or(host).as_str(), into);
    }

    /// [`HostIndex::select`] for a name in lower case.
    pub(crate) fn select_name(&self, host: &str, into: &mut RuleSet) {
        let host = host.trim_end_matches('.');
        into.add_all(&self.any);
        if let Some(rules) = self.exact.get(host) {
            into.add_all(rules);
        }
        if self.below.is_empty() {
            return;
        }
        for (dot, _) in host.match_indices('.').filter(|(dot, _)| *dot > 0) {
            if let Some(rules) = host.get(dot + 1..).and_then(|suffix| self.below.get(suffix)) {
                into.add_all(rules);
            }
        }
    }
}
