//! One key: its stored variants and its fetches under way.

use crate::entry::Entry;
use crate::index::Named;
use parking_lot::RwLock;
use std::sync::Arc;

/// A key and what is under it.
pub(super) type Object = Named<RwLock<ObjectState>>;

/// The responses and fetches under a key. Most keys have one response and no fetch: these take no list.
#[derive(Default)]
pub(super) struct ObjectState {
    /// The one variant; the list has none then.
    only: Option<Arc<Entry>>,
    lists: Option<Box<Lists>>,
    /// All that lies on disk under this key is among the variants.
    pub(super) loaded: bool,
    /// Taken out of the index: a caller that still holds it must look the key up again.
    pub(super) dead: bool,
}

/// All variants and fetches, to be changed.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) variants: Vec<Arc<Entry>>,
    pub(super) pending: Vec<Pending>,
}

/// A fetch under way.
pub(super) struct Pending {
    pub(super) entry: Arc<Entry>,
    pub(super) followed: Followed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Followed {
    ByAll,
    ByNobody,
}

impl ObjectState {
    /// The stored responses, the oldest first.
    pub(super) fn variants(&self) -> &[Arc<Entry>] {
        match (&self.only, &self.lists) {
            (Some(only), _) => std::slice::from_ref(only),
            (None, lists) => lists.as_ref().map_or(&[], |lists| &lists.variants),
        }
    }

    /// The fetches under way.
    pub(super) fn pending(&self) -> &[Pending] {
        self.lists.as_ref().map_or(&[], |lists| &lists.pending)
    }

    /// There is no variant and no fetch.
    pub(super) fn is_empty(&self) -> bool {
        self.variants().is_empty() && self.pending().is_empty()
    }

    /// Changes what is here.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Lists) -> T) -> T {
        let mut lists = self.lists.take().unwrap_or_default();
        lists.variants.extend(self.only.take());
        let changed = change(&mut lists);
        if lists.variants.len() == 1 {
            self.only = lists.variants.pop();
        }
        if !lists.variants.is_empty() || !lists.pending.is_empty() {
            self.lists = Some(lists);
        }
        changed
    }
}

impl Lists {
    /// Takes out the fetch that fills this entry.
    pub(super) fn take_pending(&mut self, entry: &Arc<Entry>) -> Option<Pending> {
        let at = self.pending.iter().position(|pending| Arc::ptr_eq(&pending.entry, entry))?;
        Some(self.pending.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::key::Key;

    #[test]
    fn a_key_with_one_response_takes_64_bytes() {
        assert!(size_of::<Object>() <= 48, "{}", size_of::<Object>());
    }

    #[test]
    fn one_response_takes_no_list() {
        let budget = Arc::new(Budget::of(0));
        let key = Key::from_text(b"http://a.example/".to_vec());
        let entry = || Arc::new(Entry::new(key.clone(), 0, 0, Arc::clone(&budget)));
        let (first, second) = (entry(), entry());
        let mut state = ObjectState::default();
        assert!(state.is_empty());
        state.change(|all| all.pending.push(Pending { entry: Arc::clone(&first), followed: Followed::ByAll }));
        assert_eq!((state.variants().len(), state.pending().len()), (0, 1));
        state.change(|all| all.take_pending(&first).map(|pending| all.variants.push(pending.entry)));
        assert!(state.lists.is_none() && Arc::ptr_eq(&state.variants()[0], &first));
        state.change(|all| all.variants.push(Arc::clone(&second)));
        assert!(Arc::ptr_eq(&state.variants()[1], &second) && state.variants().len() == 2);
        state.change(|all| all.variants.retain(|variant| !Arc::ptr_eq(variant, &first)));
        assert!(state.lists.is_none() && Arc::ptr_eq(&state.variants()[0], &second));
    }
}
