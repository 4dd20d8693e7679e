//! Objects that are being asked for now: by these, a missing hit is told from one whose first copy is still on its way,
//! and a false hit from one whose object another robot brought. Objects that nobody waits for are forgotten.

use crate::ledger::MissCause;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Objects under way, of one worker.
#[derive(Debug, Default)]
pub struct Pending {
    objects: HashMap<u64, State>,
    /// Objects that were asked for and of which no whole copy has passed, so that no cache can have kept one.
    never_whole: HashSet<u64>,
    /// There were more of them than are remembered.
    forgets: bool,
    purged: HashMap<u64, Purge>,
    /// Until which second since 1970 short-lived objects are fresh.
    fresh_until: HashMap<u64, u64>,
}

/// An object that was invalidated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// When the last invalidation was sent.
    sent: Duration,
    /// The second, since 1970, in which the last one was sent that the cache acknowledged.
    acknowledged: Option<u64>,
    /// Whether it was brought in again since.
    is_back: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    askers: u32,
    /// Requests among those that were sent, and those of them that are under way now.
    sent: u32,
    under_way: u32,
    answered: bool,
}

/// Other requests for an object at the time of a request for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// A first copy is still on its way.
    pub overlaps: bool,
    /// Another robot is being answered, so that a cache may hold this one back.
    pub behind: bool,
}

/// Objects without a whole copy that are remembered.
const NEVER_WHOLE_MAX: usize = 100_000;
/// Short-lived objects that are remembered; that others expired is not known.
const BRIEF_MAX: usize = 1_000_000;
/// A lifetime longer than this is not taken for expired.
const BRIEF_S: u64 = 86_400;
/// Invalidated objects that are remembered; hits on others are not held against their purges.
const PURGED_MAX: usize = 1_000_000;

impl Pending {
    /// A robot will ask for an object.
    pub fn expect(&mut self, object: u64) {
        self.objects.entry(object).or_default().askers += 1;
    }

    /// A robot asks for it now.
    pub fn ask(&mut self, object: u64) -> Company {
        let state = self.objects.entry(object).or_default();
        state.sent += 1;
        state.under_way += 1;
        let overlaps = state.sent > 1 && !state.answered;
        Company { overlaps, behind: state.under_way > 1 }
    }

    /// Whether no other request can have brought it into the cache.
    pub fn is_first(&self, object: u64) -> bool {
        self.objects.get(&object).is_none_or(|state| state.sent <= 1 && !state.answered)
    }

    /// Takes a request back that was counted as sent, for it will be sent again.
    pub fn take_back(&mut self, object: u64) {
        if let Some(state) = self.objects.get_mut(&object) {
            state.sent = state.sent.saturating_sub(1);
            state.under_way = state.under_way.saturating_sub(1);
        }
    }

    /// An asker is done, with a whole copy or without one; `first`: nobody had asked before.
    pub fn done(&mut self, object: u64, whole: bool, first: bool) {
        match whole {
            true => drop(self.never_whole.remove(&object)),
            false if first => self.note_never_whole(object),
            false => {}
        }
        if let Some(state) = self.objects.get_mut(&object) {
            state.answered |= whole;
            state.under_way = state.under_way.saturating_sub(1);
        }
        self.leave(object);
    }

    /// A robot that was expected to ask does not; `first`: it would have brought a first copy.
    pub fn forgo(&mut self, object: u64, first: bool) {
        if first {
            self.note_never_whole(object);
        }
        self.leave(object);
    }

    fn note_never_whole(&mut self, object: u64) {
        match self.never_whole.len() < NEVER_WHOLE_MAX {
            true => drop(self.never_whole.insert(object)),
            false => self.forgets = true,
        }
    }

    /// A robot that was expected to ask does not after all.
    pub fn leave(&mut self, object: u64) {
        let Some(state) = self.objects.get_mut(&object) else { return };
        state.askers = state.askers.saturating_sub(1);
        if state.askers == 0 {
            self.objects.remove(&object);
        }
    }

    /// An invalidation of an object is being sent.
    pub fn purge(&mut self, object: u64, now: Duration) {
        if self.purged.len() < PURGED_MAX || self.purged.contains_key(&object) {
            let purge = self.purged.entry(object).or_default();
            (purge.sent, purge.is_back) = (now, false);
        }
    }

    /// The cache acknowledged an invalidation that was sent in this second since 1970.
    pub fn purged(&mut self, object: u64, sent_unix: u64) {
        if let Some(purge) = self.purged.get_mut(&object) {
            purge.acknowledged = purge.acknowledged.max(Some(sent_unix));
        }
    }

    /// The second, since 1970, of the acknowledged purge: answers that the origin dated before it must not be served
    /// any more.
    pub fn purged_at(&self, object: u64) -> Option<u64> {
        self.purged.get(&object)?.acknowledged
    }

    /// A whole copy came from the origin that is fresh from this second, since 1970, for so many.
    pub fn fresh(&mut self, object: u64, unix: u64, lifetime_s: u64) {
        let known = self.fresh_until.len() < BRIEF_MAX || self.fresh_until.contains_key(&object);
        if known && lifetime_s <= BRIEF_S {
            self.fresh_until.insert(object, unix + lifetime_s);
        }
    }

    /// Whether the copy that a cache may have is no longer fresh, or will not be within a second: a part of one is all that
    /// clocks in whole seconds may be off by.
    pub fn is_expired(&self, object: u64, unix: u64) -> bool {
        self.fresh_until.get(&object).is_some_and(|until| *until <= unix + 1)
    }

    /// A whole copy came from the origin for a request of this time.
    pub fn brought(&mut self, object: u64, asked: Duration) {
        if let Some(purge) = self.purged.get_mut(&object) {
            purge.is_back |= asked > purge.sent;
        }
    }

    /// Whether an object was invalidated, and not brought in again since.
    pub fn is_void(&self, object: u64) -> bool {
        self.purged.get(&object).is_some_and(|purge| !purge.is_back)
    }

    /// Why a hit on an object that is not under way is missing, as far as it can be told: evicted is said only of what a
    /// cache can have kept.
    pub fn cause(&self, object: u64) -> MissCause {
        match self.never_whole.contains(&object) {
            true => MissCause::FirstFailed,
            false if self.forgets => MissCause::Unknown,
            false => MissCause::Evicted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_purged_stays_void_until_a_later_request_brings_it_back() {
        let (mut pending, second) = (Pending::default(), Duration::from_secs);
        pending.purge(1, second(10));
        assert_eq!((pending.is_void(1), pending.purged_at(1)), (true, None));
        pending.purged(1, 1_010);
        pending.brought(1, second(9));
        assert_eq!((pending.is_void(1), pending.purged_at(1)), (true, Some(1_010)));
        pending.brought(1, second(11));
        assert_eq!((pending.is_void(1), pending.purged_at(1)), (false, Some(1_010)));
        pending.purge(1, second(20));
        assert_eq!((pending.is_void(1), pending.purged_at(1), pending.is_void(2)), (true, Some(1_010), false));
    }

    #[test]
    fn what_no_whole_copy_has_passed_of_is_not_said_to_be_evicted() {
        let mut pending = Pending::default();
        pending.expect(1);
        pending.forgo(1, true);
        assert_eq!([pending.cause(1), pending.cause(1)], [MissCause::FirstFailed; 2]);
        pending.expect(1);
        pending.ask(1);
        pending.done(1, true, false);
        assert_eq!(pending.cause(1), MissCause::Evicted);
        pending.done(1, false, false);
        assert_eq!(pending.cause(1), MissCause::Evicted, "a later failure does not undo the copy");
    }
}
