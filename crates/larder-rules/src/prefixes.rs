//! Texts, each of which may be the beginning of another text: all that one text begins with are found at once.

use crate::bits::RuleList;

/// Beginnings of texts, with the numbers that belong to each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes(Vec<Prefix>);

#[derive(Clone, Debug)]
struct Prefix {
    text: Box<[u8]>,
    numbers: RuleList,
    /// The longest other one that this one begins with.
    parent: Option<u32>,
}

impl Prefixes {
    /// Of texts with a number each, in any order.
    pub(crate) fn new(mut all: Vec<(Box<[u8]>, u16)>) -> Prefixes {
        all.sort();
        let mut prefixes: Vec<Prefix> = Vec::new();
        for (text, number) in all {
            match prefixes.last_mut() {
                Some(last) if last.text == text => {
                    if last.numbers.last() != Some(&number) {
                        last.numbers.push(number);
                    }
                }
                _ => {
                    let parent = parent(&prefixes, &text);
                    prefixes.push(Prefix { text, numbers: vec![number], parent });
                }
            }
        }
        Prefixes(prefixes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of all that this text begins with.
    pub(crate) fn each_in(&self, text: &[u8], mut each: impl FnMut(&[u16])) {
        // In order, every beginning of the text lies before it, and each one between begins with that beginning too: so all of them are
        // on the way up from the last one before it.
        let after = self.0.partition_point(|prefix| *prefix.text <= *text);
        let mut at = after.checked_sub(1);
        while let Some(prefix) = at.and_then(|at| self.0.get(at)) {
            if text.starts_with(&prefix.text) {
                each(&prefix.numbers);
            }
            at = prefix.parent.map(|parent| parent as usize);
        }
    }
}

fn parent(prefixes: &[Prefix], text: &[u8]) -> Option<u32> {
    let mut at = prefixes.len().checked_sub(1);
    while let Some(number) = at {
        let prefix = prefixes.get(number)?;
        if text.starts_with(&prefix.text) {
            return u32::try_from(number).ok();
        }
        at = prefix.parent.map(|parent| parent as usize);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_beginnings_are_found(all in prop::collection::vec("[ab]{0,4}", 0..30), text in "[ab]{0,6}") {
            let numbered = |(number, text): (usize, &String)| (text.as_bytes().into(), number as u16);
            let prefixes = Prefixes::new(all.iter().enumerate().map(numbered).collect());
            let mut found = Vec::new();
            prefixes.each_in(text.as_bytes(), |numbers| found.extend_from_slice(numbers));
            found.sort_unstable();
            let wanted = all.iter().enumerate().filter(|(_, prefix)| text.starts_with(prefix.as_str()));
            prop_assert_eq!(found, wanted.map(|(number, _)| number as u16).collect::<Vec<_>>());
        }
    }
}
