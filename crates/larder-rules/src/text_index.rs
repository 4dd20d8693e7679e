//! Texts and expressions of many rules, all held against one text at once: whole texts by a hash, beginnings by their order, parts by
//! one automaton, expressions by one set.

use crate::bits::{RuleList, RuleSet};
use crate::interned::Interned;
use crate::prefixes::Prefixes;
use crate::text_finder::TextFinder;
use regex::bytes::{RegexSet, RegexSetBuilder};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Texts and expressions, with the rules that have each.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextIndex {
    always: RuleList,
    whole: HashMap<Box<[u8]>, RuleList>,
    begins: Prefixes,
    parts: Option<TextFinder<u16>>,
    regexes: Option<(Arc<RegexSet>, Vec<u16>)>,
}

/// Texts and expressions that an index is made of.
#[derive(Default)]
pub(crate) struct Texts {
    always: RuleList,
    whole: HashMap<Box<[u8]>, RuleList>,
    begins: Vec<(Box<[u8]>, u16)>,
    parts: Vec<(String, u16)>,
    regexes: Vec<(String, u16)>,
}

/// Memory for the states of one set of expressions, per thread that uses it.
const REGEX_STATES_BYTES_MAX: usize = 32 << 20;
/// The compiled expressions of one set.
const REGEX_SET_BYTES_MAX: usize = 64 << 20;

static SETS: LazyLock<Interned<Vec<String>, RegexSet>> = LazyLock::new(Interned::new);

impl Texts {
    /// A rule that any text satisfies.
    pub(crate) fn always(&mut self, rule: u16) {
        self.always.push(rule);
    }

    pub(crate) fn whole(&mut self, text: &[u8], rule: u16) {
        let rules = self.whole.entry(text.into()).or_default();
        if rules.last() != Some(&rule) {
            rules.push(rule);
        }
    }

    pub(crate) fn begins(&mut self, text: &[u8], rule: u16) {
        self.begins.push((text.into(), rule));
    }

    /// A part of the text, in any case.
    pub(crate) fn part(&mut self, text: &str, rule: u16) {
        self.parts.push((text.to_owned(), rule));
    }

    pub(crate) fn regex(&mut self, regex: &str, rule: u16) {
        self.regexes.push((regex.to_owned(), rule));
    }

    /// `Err` says why they can't be put together.
    pub(crate) fn compile(self) -> Result<TextIndex, String> {
        let regexes = match self.regexes.is_empty() {
            true => None,
            false => {
                let (texts, rules): (Vec<String>, Vec<u16>) = self.regexes.into_iter().unzip();
                let set = SETS.get(&texts[..], |texts| {
                    RegexSetBuilder::new(texts)
                        .unicode(false)
                        .dot_matches_new_line(true)
                        .size_limit(REGEX_SET_BYTES_MAX)
                        .dfa_size_limit(REGEX_STATES_BYTES_MAX)
                        .build()
                });
                Some((
                    set.map_err(|_| {
                        format!(
                            "the regular expressions of the rules need more than {} MB together",
                            REGEX_SET_BYTES_MAX >> 20
                        )
                    })?,
                    rules,
                ))
            }
        };
        let begins = Prefixes::new(self.begins);
        let parts = TextFinder::new(self.parts, true)?;
        Ok(TextIndex { always: self.always, whole: self.whole, begins, parts, regexes })
    }
}

impl TextIndex {
    /// Adds the rules that have this as a whole text or as a beginning.
    pub(crate) fn select_text(&self, text: &[u8], into: &mut RuleSet) {
        if let Some(rules) = self.whole.get(text) {
            into.add_all(rules);
        }
        if !self.begins.is_empty() {
            self.begins.each_in(text, |rules| into.add_all(rules));
        }
    }

    /// Adds the rules that have this as a whole text.
    pub(crate) fn select_whole(&self, text: &[u8], into: &mut RuleSet) {
        if let Some(rules) = self.whole.get(text) {
            into.add_all(rules);
        }
    }

    /// Adds the rules of which a part or an expression is found in this text, and those that any text satisfies.
    pub(crate) fn select_found(&self, text: &[u8], into: &mut RuleSet) {
        into.add_all(&self.always);
        if let Some(parts) = &self.parts {
            parts.each_in(text, |rule| into.add(rule));
        }
        if let Some((set, rules)) = &self.regexes {
            set.matches(text).iter().filter_map(|at| rules.get(at)).for_each(|rule| into.add(*rule));
        }
    }

    /// Whether whole texts and beginnings are asked about.
    pub(crate) fn has_texts(&self) -> bool {
        !self.whole.is_empty() || !self.begins.is_empty()
    }
}
