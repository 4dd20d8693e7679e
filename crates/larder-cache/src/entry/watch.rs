//! Whether a fetch still has readers, for the task that decides whether it goes on.

use super::life::{Audience, Life};
use super::{Limits, PinnedEntry, State};
use std::task::Context;

/// Readers that want what a fetch brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A client reads it or waits for it, or it is over.
    Read,
    /// No client does, but it is stored, by the rule for fetches whose clients all left.
    Stored,
    /// Nobody does.
    No,
}

/// Sees who wants what a fetch brings: the entry that it makes, and the hole of another one that it fills.
pub struct Watch {
    entry: PinnedEntry,
    abandoned_bytes_max: u64,
    unattended: bool,
    /// The entry whose hole the fetch fills, and the number of the fill.
    hole: Option<(PinnedEntry, u64)>,
}

impl Watch {
    pub(crate) fn new(entry: PinnedEntry, limits: &Limits, hole: Option<(PinnedEntry, u64)>) -> Watch {
        Watch { entry, abandoned_bytes_max: limits.abandoned_bytes_max, unattended: limits.unattended, hole }
    }

    /// Whether anybody wants it now; the task is woken when a reader leaves.
    pub fn wanted(&self, cx: &Context<'_>) -> Wanted {
        let hole = self.hole.as_ref().and_then(|(entry, number)| {
            let mut state = entry.state.write();
            let confirmed = state.fills().iter().find(|fill| fill.number == *number)?.confirmed;
            state.watch(cx);
            Some((state.reader_count() > 0, confirmed))
        });
        let mut state = self.entry.state.write();
        if state.reader_count() > 0 || hole.is_some_and(|(read, _)| read) {
            state.watch(cx);
            return Wanted::Read;
        }
        let unattended = self.unattended || state.is_late();
        let is_worth_it = |state: &State| unattended || state.is_worth_finishing(self.abandoned_bytes_max);
        match (&state.life, hole) {
            (_, Some((_, true))) => Wanted::Stored,
            (Life::Waiting, _) if unattended => Wanted::Stored,
            (Life::Waiting, _) => Wanted::No,
            (Life::Arriving(response), _) => match response.audience {
                Audience::Everybody if is_worth_it(&state) => Wanted::Stored,
                Audience::Everybody | Audience::Readers | Audience::Asker => Wanted::No,
            },
            (Life::Settled(_) | Life::Redirected(_) | Life::Failed(_), _) => Wanted::Read,
        }
    }
}
