//! The views of an entry that answer a hit.

use super::{Entry, Leads, PinnedEntry, Reader, State};
use crate::extents::Extents;
use crate::head::StoredHead;
use crate::policy::Terms;
use bytes::Bytes;
use parking_lot::RwLockReadGuard;
use std::ops::Range;
use std::sync::Arc;

/// A stored response that may be used.
pub struct Hit {
    /// Its body is still on its way here.
    pub filling: bool,
    /// Reads its body.
    pub reader: Reader,
    /// Its head.
    pub stored: Arc<StoredHead>,
    /// The length of its body, when known.
    pub length: Option<u64>,
}

impl Hit {
    /// Whether the head is still that of the entry: a validation, or a part, may have brought another.
    pub fn is_current(&self) -> bool {
        self.reader.entry().stored_head().is_some_and(|stored| Arc::ptr_eq(&stored, &self.stored))
    }
}

/// A stored response whose body is at hand as a whole.
pub struct Whole<'a> {
    /// Its head.
    pub stored: &'a StoredHead,
    /// The length of its body.
    pub length: u64,
    pub(crate) body: Body<'a>,
}

/// Where a whole body lies.
pub(crate) enum Body<'a> {
    Memory(&'a Extents),
    Disk(Bytes),
}

/// Where a stored response lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// In memory.
    Memory,
    /// On disk alone.
    Disk,
}

impl Whole<'_> {
    /// Where it was.
    pub fn tier(&self) -> Tier {
        match self.body {
            Body::Memory(_) => Tier::Memory,
            Body::Disk(_) => Tier::Disk,
        }
    }

    /// Shows its body: each block of bytes, and which part of it.
    pub fn each(&self, mut show: impl FnMut(&Bytes, Range<usize>)) {
        match &self.body {
            Body::Memory(body) => {
                body.each(0..self.length, show);
            }
            Body::Disk(body) => show(body, 0..body.len()),
        }
    }
}

/// The outcome of a look at a stored response.
pub(crate) enum Looked<T> {
    Answered(T),
    /// There is no answer at hand.
    Nothing,
    /// Its lock is taken.
    Busy,
}

/// Whether a lock is waited for.
#[derive(Clone, Copy)]
pub(crate) enum Patience {
    None,
    Waits,
}

impl Entry {
    /// Head and length in one look, and a reader.
    pub(crate) fn open(self: &Arc<Entry>) -> Option<Hit> {
        let opened = |state: &State, slot| {
            let stored = Arc::clone(state.life.head()?);
            let reader = Reader::new(PinnedEntry::new(Arc::clone(self)), slot, Leads::No);
            Some(Hit { filling: state.life.is_arriving(), reader, stored, length: state.length })
        };
        {
            let state = self.state.read();
            if state.activity.is_none() && state.is_whole() {
                return opened(&state, None);
            }
        }
        let mut state = self.state.write();
        state.life.head()?;
        state.drop_finished_puts();
        let slot = (!state.is_whole()).then(|| state.add_reader());
        opened(&state, slot)
    }

    /// Has a stored response answered with whose terms are as wanted and whose body is here and not longer than that.
    /// `answer` runs while hits of the same response share its lock: they don't wait for one another, but changes do.
    pub(crate) fn whole<T>(
        &self,
        wanted: impl Fn(&Terms) -> bool,
        bytes_max: u64,
        patience: Patience,
        answer: &mut impl FnMut(&Whole<'_>) -> T,
    ) -> Looked<T> {
        let Some(mut state) = self.shared_state(patience) else { return Looked::Busy };
        if state.put_count() > 0 {
            drop(state);
            if let Some(mut own) = self.state.try_write() {
                own.drop_finished_puts();
            }
            match self.shared_state(patience) {
                Some(again) => state = again,
                None => return Looked::Busy,
            }
        }
        let whole = state.length.filter(|&length| length <= bytes_max && state.is_whole()).and_then(|length| {
            let stored = state.life.head().filter(|stored| stored.terms.as_ref().is_some_and(wanted))?;
            Some(Whole { stored, length, body: Body::Memory(&state.body) })
        });
        whole.map_or(Looked::Nothing, |whole| Looked::Answered(answer(&whole)))
    }

    fn shared_state(&self, patience: Patience) -> Option<RwLockReadGuard<'_, State>> {
        match patience {
            Patience::Waits => Some(self.state.read()),
            Patience::None => self.state.try_read(),
        }
    }
}
