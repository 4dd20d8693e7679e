//! Which of many texts another text has in it. Each of them is told once, however often it is there: a client chooses how often.

use aho_corasick::{AhoCorasick, MatchKind};
use std::collections::HashMap;

/// Texts, each once, with the values that each stands for.
#[derive(Clone, Debug)]
pub(crate) struct TextFinder<T> {
    automaton: AhoCorasick,
    values: Vec<Vec<T>>,
}

impl<T: Copy> TextFinder<T> {
    /// `None` where there are no texts; `Err` says why they can't be put together. `in_any_case` is about ASCII letters.
    pub(crate) fn new(texts: Vec<(String, T)>, in_any_case: bool) -> Result<Option<TextFinder<T>>, String> {
        let (mut numbers, mut each, mut values) = (HashMap::new(), Vec::new(), Vec::<Vec<T>>::new());
        for (text, value) in texts {
            let text = if in_any_case { text.to_ascii_lowercase() } else { text };
            let number = *numbers.entry(text).or_insert_with_key(|text| {
                each.push(text.clone());
                values.push(Vec::new());
                values.len() - 1
            });
            values.get_mut(number).into_iter().for_each(|values| values.push(value));
        }
        if each.is_empty() {
            return Ok(None);
        }
        let automaton =
            AhoCorasick::builder().ascii_case_insensitive(in_any_case).match_kind(MatchKind::Standard).build(&each);
        Ok(Some(TextFinder { automaton: automaton.map_err(|error| error.to_string())?, values }))
    }

    /// Calls with each value of which the text is found.
    pub(crate) fn each_in(&self, text: &[u8], mut found: impl FnMut(T)) {
        let (mut seen, mut left) = (Vec::new(), self.values.len());
        for at in self.automaton.find_overlapping_iter(text) {
            let at = at.pattern().as_usize();
            // Most requests have none of the texts in them.
            if seen.is_empty() {
                seen.resize(self.values.len(), false);
            }
            let (Some(seen), Some(values)) = (seen.get_mut(at), self.values.get(at)) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            values.iter().for_each(|value| found(*value));
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_told_once() {
        let texts = [("ab", 1), ("b", 2), ("AB", 3), ("xyz", 4), ("ab", 5)];
        let texts = || texts.map(|(text, value)| (text.to_owned(), value)).to_vec();
        for (in_any_case, wanted) in [(false, vec![1, 5, 2]), (true, vec![1, 3, 5, 2])] {
            let finder = TextFinder::new(texts(), in_any_case).unwrap().unwrap();
            let mut found = Vec::new();
            finder.each_in("ab".repeat(1_024).as_bytes(), |value| found.push(value));
            assert_eq!(found, wanted, "{in_any_case}");
        }
        assert!(TextFinder::<u16>::new(Vec::new(), false).unwrap().is_none());
    }
}
