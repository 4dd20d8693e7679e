//! Patterns of paths with wildcards: one automaton finds which of their texts a path has in it, and only these patterns are tried.

use crate::PathPattern;
use crate::bits::RuleSet;
use crate::text_finder::TextFinder;

/// Patterns, with the rule of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobIndex {
    patterns: Vec<(u16, PathPattern)>,
    /// The texts, and the patterns of each.
    texts: Option<TextFinder<u32>>,
    /// Patterns without a text.
    always: Vec<u32>,
}

impl GlobIndex {
    /// `Err` says why they can't be put together.
    pub(crate) fn new(patterns: Vec<(u16, PathPattern)>) -> Result<GlobIndex, String> {
        let (mut texts, mut always) = (Vec::new(), Vec::new());
        for (number, (_, pattern)) in (0..).zip(&patterns) {
            match pattern.longest_text() {
                Some(text) => texts.push((text.to_owned(), number)),
                None => always.push(number),
            }
        }
        Ok(GlobIndex { patterns, texts: TextFinder::new(texts, false)?, always })
    }

    /// Adds the rules of which a pattern has the form of this path; those that are not live are left out. Each pattern is tried once at
    /// most.
    pub(crate) fn select(&self, path: &[u8], live: &RuleSet, into: &mut RuleSet) {
        let mut attempt = |number: u32| {
            if let Some((rule, pattern)) = self.patterns.get(number as usize)
                && live.has(*rule)
                && !into.has(*rule)
                && pattern.matches_bytes(path)
            {
                into.add(*rule);
            }
        };
        self.always.iter().for_each(|number| attempt(*number));
        if let Some(texts) = &self.texts {
            texts.each_in(path, attempt);
        }
    }
}
