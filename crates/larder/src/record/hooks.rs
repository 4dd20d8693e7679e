//! The work of hooks on a request, stage by stage. Few requests have any, so it lies apart from the record.

use super::ring::{Query, shortened};
use crate::hook::HookNote;

/// The work of hooks on a request, in the order in which they were asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookTrail(Vec<HookNote>);

/// More are not noted: a request meets each stage once, and `fetched` stands in the notes of its fetch.
const NOTES_MAX: usize = 4;

impl HookTrail {
    /// Adds the work of one stage.
    pub fn push(&mut self, note: HookNote) {
        if self.0.len() < NOTES_MAX {
            self.0.push(note);
        }
    }

    /// Whether no hook was asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it.
    pub fn iter(&self) -> impl Iterator<Item = &HookNote> {
        self.0.iter()
    }

    /// The note of the hooks that did something last; the first one where none did.
    pub fn last_work(&self) -> Option<&HookNote> {
        self.0.iter().rev().find(|note| !note.did.is_empty()).or(self.0.first())
    }

    /// How long the request waited for hooks, in microseconds.
    pub fn micros(&self) -> u64 {
        self.0.iter().map(|note| note.micros).fold(0, u64::saturating_add)
    }

    /// Whether every decision was remembered.
    pub fn is_remembered(&self) -> bool {
        self.0.iter().all(|note| note.remembered)
    }

    /// Hides the values of queries, where these are not kept.
    pub(super) fn bound(&mut self, query: Query) {
        for target in self.0.iter_mut().filter_map(|note| note.target.as_mut()) {
            *target = shortened(target, query).into();
        }
    }

    /// Bytes that it holds.
    pub(super) fn count_bytes(&self) -> usize {
        let texts: usize = self.0.iter().map(HookNote::heap_bytes).sum();
        self.0.capacity() * size_of::<HookNote>() + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{Hooks, Stage};

    fn note(did: &str, micros: u64, remembered: bool) -> HookNote {
        let note = HookNote::begin(Stage::Request, &Hooks::default(), &[]).did(did);
        HookNote { micros, remembered, ..note }
    }

    #[test]
    fn the_last_that_did_something_stands_for_all() {
        let mut trail = HookTrail::default();
        for (did, micros, remembered) in [("", 5, true), ("a", 7, true), ("b", 1, false), ("", 2, true)] {
            trail.push(note(did, micros, remembered));
        }
        assert_eq!(trail.last_work().map(|note| &*note.did), Some("b"));
        assert_eq!((trail.micros(), trail.is_remembered()), (15, false));
        for _ in 0..20 {
            trail.push(note("x", 1, true));
        }
        assert_eq!(trail.iter().count(), NOTES_MAX);
    }

    #[test]
    fn values_of_a_query_that_a_hook_made_are_hidden_with_the_others() {
        let mut trail = HookTrail::default();
        trail.push(note("", 0, true).asks_for("/a?token=secret&b"));
        trail.bound(Query::Kept);
        assert_eq!(trail.iter().next().unwrap().target.as_deref(), Some("/a?token=secret&b"));
        trail.bound(Query::Hidden);
        assert_eq!(trail.iter().next().unwrap().target.as_deref(), Some("/a?token=\u{2026}&\u{2026}"));
    }
}
