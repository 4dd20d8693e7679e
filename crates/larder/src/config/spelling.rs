//! Suggestions for misspelt words.

/// The candidate that takes the fewest changes, when these are few for the word's length.
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    within(1 + word.len() / 4, word, candidates)
}

/// The candidate that takes the fewest changes, when it takes no more than so many.
pub fn within<'a>(changes: usize, word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = candidates.map(|candidate| (distance(word, candidate), candidate));
    let (distance, candidate) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= changes).then_some(candidate)
}

/// Letters to insert, delete or replace (Levenshtein); a long word is no misspelling of anything.
fn distance(left: &str, right: &str) -> usize {
    if left.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        assert_eq!(closest("memry", ["disk", "memory"].into_iter()), Some("memory"));
        assert_eq!(closest("colour", ["disk", "memory"].into_iter()), None);
    }
}
