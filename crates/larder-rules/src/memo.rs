//! Verdicts that are remembered by path. Everything else that a verdict depends on is compared by its owner, who gives a number to
//! all of it together (a context); this table says what the verdict is for a path in that context.

use crate::table::Matched;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Verdicts by context and path, in a table of constant size.
#[derive(Debug)]
pub struct PathMemo<V> {
    /// Empty until a verdict is remembered.
    places: Box<[Option<Remembered<V>>]>,
    seed: u64,
}

#[derive(Debug)]
struct Remembered<V> {
    context: u64,
    path: Box<str>,
    verdict: V,
}

/// Paths that are remembered at once.
pub const PATHS_MAX: usize = 8_192;
/// A longer path, with its query, is judged each time.
pub const PATH_BYTES_MAX: usize = 256;

impl<V> PathMemo<V> {
    /// An empty memo; `seed` is drawn, so that no client can choose its place.
    pub fn new(seed: u64) -> PathMemo<V> {
        PathMemo { places: Box::default(), seed }
    }

    fn place(&self, context: u64, path: &str) -> usize {
        xxh3_64_with_seed(path.as_bytes(), self.seed ^ context) as usize % PATHS_MAX
    }

    /// The verdict for this path in this context, where it is remembered.
    pub fn find(&self, context: u64, path: &str) -> Option<&V> {
        let found = self.places.get(self.place(context, path))?.as_ref()?;
        (found.context == context && *found.path == *path).then_some(&found.verdict)
    }

    /// Remembers the verdict for this path in this context, in the place of another path.
    pub fn remember(&mut self, context: u64, path: &str, verdict: V) {
        if path.len() > PATH_BYTES_MAX {
            return;
        }
        if self.places.is_empty() {
            self.places = std::iter::repeat_with(|| None).take(PATHS_MAX).collect();
        }
        let at = self.place(context, path);
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(Remembered { context, path: path.into(), verdict });
        }
    }
}

impl PathMemo<Matched> {
    /// Remembers the rules that hold for this path in this context, in the place of another path. Those that are too many for their
    /// usual room are found anew each time.
    pub fn remember_rules(&mut self, context: u64, path: &str, matched: &Matched) {
        if matched.is_inline() {
            self.remember(context, path, matched.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_found_for_its_path_and_context_alone() {
        let mut memo = PathMemo::new(7);
        let mut matched = Matched::default();
        matched.push(3, true);
        assert_eq!(memo.find(1, "/a"), None);
        memo.remember_rules(1, "/a", &matched);
        assert_eq!(memo.find(1, "/a"), Some(&matched));
        assert_eq!((memo.find(2, "/a"), memo.find(1, "/b")), (None, None));
        memo.remember_rules(1, &"/x".repeat(PATH_BYTES_MAX), &matched);
        assert_eq!(memo.find(1, &"/x".repeat(PATH_BYTES_MAX)), None);
        (4..20).for_each(|rule| matched.push(rule, false));
        memo.remember_rules(1, "/b", &matched);
        assert_eq!(memo.find(1, "/b"), None, "a verdict of many rules is made anew");
    }
}
