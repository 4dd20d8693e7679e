//! Replies that wait.

use super::attribution::Closed;
use crate::journal::Journal;
use crate::robot::Report;
use std::collections::VecDeque;
use std::time::Duration;

/// A reply that waits for the notes of origins on other machines.
pub(super) struct Held {
    /// The reply.
    pub report: Box<Report>,
    /// Its meaning for others.
    pub closed: Closed,
    /// When it was whole.
    pub at: Duration,
    /// The second, since 1970.
    pub unix: u64,
}

/// Replies that wait for the notes of other machines; more are judged by their echoes alone. The journal knows 32,768
/// transactions of a worker, and each reply that waits holds its head and its judge.
const HELD_MAX: usize = 1 << 14;

/// The replies of a worker that wait, in the order in which they ended.
#[derive(Default)]
pub(super) struct HeldReplies(VecDeque<Held>);

impl HeldReplies {
    pub(super) fn push(&mut self, held: Held) {
        self.0.push_back(held);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next reply of which all origins have told what they did. Where too many wait, and at the very end, also one of which
    /// they have not: the journal counts it.
    pub(super) fn take_next(&mut self, journal: &Journal, at_end: bool) -> Option<Held> {
        let is_known = journal.knows(self.0.front()?.at);
        if !is_known && !at_end && self.0.len() <= HELD_MAX {
            return None;
        }
        if !is_known {
            journal.count_judged_by_echo();
        }
        self.0.pop_front()
    }
}
