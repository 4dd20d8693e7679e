//! Objects that are being asked for now: by these, a missing hit is told from one whose first copy is still on its way,
//! and a false hit from one that somebody else made true. What nobody waits for is forgotten.

use crate::ledger::MissCause;
use std::collections::{HashMap, HashSet};

/// Objects under way, of one worker.
#[derive(Debug, Default)]
pub struct Pending {
    objects: HashMap<u64, State>,
    failed: HashSet<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    askers: u32,
    /// Requests among those that were sent, and those of them that are under way now.
    sent: u32,
    under_way: u32,
    answered: bool,
}

/// Who else asks for an object when it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Company {
    /// A first copy is still on its way.
    pub overlaps: bool,
    /// Somebody is being answered, so that a cache may hold this one back.
    pub behind: bool,
}

/// Objects whose copy failed that are remembered.
const FAILED_MAX: usize = 100_000;

impl Pending {
    /// Somebody will ask for an object.
    pub fn expect(&mut self, object: u64) {
        self.objects.entry(object).or_default().askers += 1;
    }

    /// Somebody asks for it now.
    pub fn ask(&mut self, object: u64) -> Company {
        let state = self.objects.entry(object).or_default();
        state.sent += 1;
        state.under_way += 1;
        let overlaps = state.sent > 1 && !state.answered;
        Company { overlaps, behind: state.under_way > 1 }
    }

    /// Whether nobody else can have brought it into the cache.
    pub fn is_first(&self, object: u64) -> bool {
        self.objects.get(&object).is_none_or(|state| state.sent <= 1 && !state.answered)
    }

    /// What was sent is taken back, to be sent again.
    pub fn take_back(&mut self, object: u64) {
        if let Some(state) = self.objects.get_mut(&object) {
            state.sent = state.sent.saturating_sub(1);
            state.under_way = state.under_way.saturating_sub(1);
        }
    }

    /// An asker is done, with a whole copy or without one.
    pub fn done(&mut self, object: u64, whole: bool) {
        if !whole && self.failed.len() < FAILED_MAX {
            self.failed.insert(object);
        }
        if let Some(state) = self.objects.get_mut(&object) {
            state.answered |= whole;
            state.under_way = state.under_way.saturating_sub(1);
        }
        self.leave(object);
    }

    /// Somebody who was expected does not ask after all.
    pub fn leave(&mut self, object: u64) {
        let Some(state) = self.objects.get_mut(&object) else { return };
        state.askers = state.askers.saturating_sub(1);
        if state.askers == 0 {
            self.objects.remove(&object);
        }
    }

    /// Why a hit on an object that is not under way is missing, as far as it can be told; asked once.
    pub fn cause(&mut self, object: u64) -> MissCause {
        match self.failed.remove(&object) {
            true => MissCause::FirstFailed,
            false => MissCause::Evicted,
        }
    }
}
