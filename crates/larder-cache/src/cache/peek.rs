//! Facts about a key, for explanations: nothing is counted, begun or made void by looking.

use super::{Cache, Fate, Followed, choose};
use crate::entry::Entry;
use crate::head::StoredHead;
use crate::policy::NotStored;
use larder_wire::RequestHead;
use larder_wire::date::Stamp;
use std::ops::Range;
use std::sync::Arc;

/// Facts about a key at a moment.
#[derive(Clone, Debug, Default)]
pub struct Peek {
    /// The stored responses that are in memory or were taken up from disk, in the order in which they came.
    pub variants: Vec<StoredVariant>,
    /// The one that the request selects.
    pub chosen: Option<usize>,
    /// Fetches under way.
    pub fetching: usize,
    /// A request like this one would wait for one of them.
    pub followed: bool,
    /// The fate of what was stored under the key once.
    pub fate: Option<(Fate, Stamp)>,
    /// Why the last answer was not stored, while others are not made to wait because of that.
    pub not_stored: Option<NotStored>,
    /// Something under this key may lie on disk that was not looked at.
    pub may_be_on_disk: bool,
}

/// One stored response.
#[derive(Clone, Debug)]
pub struct StoredVariant {
    /// Its head and its terms.
    pub head: Arc<StoredHead>,
    /// It answers the request's fields.
    pub matches: bool,
    /// The length of its body, where it is known.
    pub length: Option<u64>,
    /// All of the body is in memory.
    pub in_memory: bool,
    /// It lies on disk.
    pub on_disk: bool,
    /// Its body is still on its way here.
    pub filling: bool,
    entry: Arc<Entry>,
}

impl StoredVariant {
    /// True when these bytes of its body are here, in memory or on disk.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.entry.has(range)
    }
}

impl Peek {
    /// The stored response that the request selects.
    pub fn selected(&self) -> Option<&StoredVariant> {
        self.variants.get(self.chosen?)
    }
}

impl Cache {
    /// Collects the facts about a key.
    pub fn peek(&self, key: &[u8], request: &RequestHead, now: Stamp) -> Peek {
        let hash = self.index.hash_of(key);
        let mut peek = Peek {
            fate: self.fates.of(hash),
            not_stored: self.passes.holds(hash, now),
            may_be_on_disk: self.disk.as_ref().is_some_and(|disk| disk.may_have(key)),
            ..Peek::default()
        };
        let Some(object) = self.index.find_hashed(hash, key) else { return peek };
        let mut state = object.write();
        self.judge(object.key(), &mut state, now);
        let chosen = choose(&state, request).map(|(entry, _)| entry);
        for entry in state.variants() {
            let Some(stored) = entry.stored_head() else { continue };
            if chosen.as_ref().is_some_and(|chosen| Arc::ptr_eq(chosen, entry)) {
                peek.chosen = Some(peek.variants.len());
            }
            peek.variants.push(StoredVariant {
                matches: stored.terms.as_ref().is_some_and(|terms| terms.answers(request)),
                length: entry.length(),
                in_memory: entry.is_whole(),
                on_disk: entry.on_disk().is_some(),
                filling: !entry.is_settled(),
                entry: Arc::clone(entry),
                head: stored,
            });
        }
        peek.fetching = state.pending().len();
        let followed = |pending: &super::Pending| pending.followed == Followed::ByAll && pending.entry.is_useful();
        peek.followed = state.pending().iter().any(followed);
        peek.may_be_on_disk &= !state.loaded;
        peek
    }

    /// Takes up what lies on disk under a key, so that a look sees it.
    pub async fn take_up(self: &Arc<Cache>, key: &[u8]) {
        if let Some(load) = self.load_of(key) {
            load.finish().await;
        }
    }
}
