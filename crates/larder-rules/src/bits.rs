//! Sets of rules, as bits. A table has at most [`RULES_MAX`] rules, so that a set lies on the stack.

/// A table with more rules is refused: names belong into lists.
pub const RULES_MAX: usize = 4_096;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = RULES_MAX / WORD_BITS;

/// Numbers of rules that some value selects.
pub(crate) type RuleList = Vec<u16>;

/// A set of rules of one table; only the words that the table needs are ever looked at.
#[derive(Clone)]
pub(crate) struct RuleSet {
    words: [u64; WORDS],
    used: usize,
}

impl RuleSet {
    /// The empty set, for a table with so many rules.
    pub(crate) fn none(rules: usize) -> RuleSet {
        RuleSet { words: [0; WORDS], used: rules.min(RULES_MAX).div_ceil(WORD_BITS) }
    }

    /// The set with all of them.
    pub(crate) fn all(rules: usize) -> RuleSet {
        let mut set = RuleSet::none(rules);
        (0..rules.min(RULES_MAX)).for_each(|rule| set.add(rule as u16));
        set
    }

    pub(crate) fn add(&mut self, rule: u16) {
        if let Some(word) = self.words.get_mut(usize::from(rule) / WORD_BITS) {
            *word |= 1 << (usize::from(rule) % WORD_BITS);
        }
    }

    pub(crate) fn add_all(&mut self, rules: &[u16]) {
        rules.iter().for_each(|rule| self.add(*rule));
    }

    pub(crate) fn has(&self, rule: u16) -> bool {
        self.words
            .get(usize::from(rule) / WORD_BITS)
            .is_some_and(|word| word & 1 << (usize::from(rule) % WORD_BITS) != 0)
    }

    /// Leaves those that `other` has too.
    pub(crate) fn keep(&mut self, other: &RuleSet) {
        self.words.iter_mut().zip(&other.words).take(self.used).for_each(|(word, other)| *word &= other);
    }

    /// The first one with at least this number.
    pub(crate) fn next(&self, from: u16) -> Option<u16> {
        let first = usize::from(from) / WORD_BITS;
        let mut word = self.words.get(first)? & u64::MAX << (usize::from(from) % WORD_BITS);
        for at in first..self.used {
            if word != 0 {
                return u16::try_from(at * WORD_BITS + word.trailing_zeros() as usize).ok();
            }
            word = self.words.get(at + 1).copied().unwrap_or(0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_walked_in_order() {
        for rules in [1, 63, 64, 65, 200, RULES_MAX] {
            let mut set = RuleSet::none(rules);
            let last = rules as u16 - 1;
            [0, last / 2, last].iter().for_each(|rule| set.add(*rule));
            let mut walked = Vec::new();
            let mut at = 0;
            while let Some(rule) = set.next(at) {
                walked.push(rule);
                at = rule + 1;
            }
            let mut wanted = vec![0, last / 2, last];
            wanted.dedup();
            assert_eq!(walked, wanted, "{rules}");
            assert!(RuleSet::all(rules).has(last) && !RuleSet::all(rules).has(last + 1));
        }
    }
}
