//! Whether anybody wants what a fetch brings, for the one who lets it go on.

use super::{Entry, Phase, Retention};
use std::sync::Arc;
use std::task::Context;

/// Readers that want what a fetch brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A client reads it or waits for it, or it is over.
    Read,
    /// No client does, but the store will have it, by the rule for fetches whose clients all left.
    Kept,
    /// Nobody does.
    No,
}

/// Sees who wants what a fetch brings: the entry that it makes, and the hole of another one that it fills.
pub struct Watch {
    pub(super) entry: Arc<Entry>,
    pub(super) abandoned_bytes_max: u64,
    pub(super) unattended: bool,
    pub(super) hole: Option<(Arc<Entry>, u64)>,
}

impl Watch {
    /// Who wants it now; the task is woken when a reader leaves.
    pub fn wanted(&self, cx: &Context<'_>) -> Wanted {
        let hole = self.hole.as_ref().and_then(|(entry, number)| {
            let mut state = entry.state.lock();
            let confirmed = state.fills().iter().find(|fill| fill.number == *number)?.confirmed;
            state.watch(cx);
            Some((state.seated() > 0, confirmed))
        });
        let mut state = self.entry.state.lock();
        if state.seated() > 0 || hole.is_some_and(|(read, _)| read) {
            state.watch(cx);
            return Wanted::Read;
        }
        let unattended = self.unattended || state.is_late();
        match (&state.phase, hole) {
            (_, Some((_, true))) => Wanted::Kept,
            (Phase::Waiting, _) if unattended => Wanted::Kept,
            (Phase::Waiting, _) => Wanted::No,
            (Phase::Filling, _) => match state.retention {
                Retention::Keep if unattended || state.is_worth_finishing(self.abandoned_bytes_max) => Wanted::Kept,
                Retention::Keep | Retention::Window => Wanted::No,
            },
            (Phase::Settled | Phase::Redirected(_) | Phase::Failed(_), _) => Wanted::Read,
        }
    }
}
