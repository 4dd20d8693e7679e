//! A walk over the responses in memory, for lists that people look at.

use super::Cache;
use crate::entry::{Entry, PinnedEntry};
use crate::head::StoredHead;
use larder_wire::date::Stamp;
use std::sync::Arc;

impl Cache {
    /// Shows every stored response in memory with its head, in no order. Responses that a purge has made void are not shown.
    pub fn for_each_stored(&self, now: Stamp, mut each: impl FnMut(&Entry, &Arc<StoredHead>)) {
        self.index.for_each(|object| {
            let variants = {
                let mut state = object.write();
                self.judge(object.key(), &mut state, now);
                state.variants().to_vec()
            };
            variants
                .iter()
                .filter_map(|entry| Some((entry, entry.stored_head()?)))
                .for_each(|(entry, stored)| each(entry, &stored));
        });
    }

    /// The stored responses in memory under one key.
    pub fn stored_under(&self, key: &[u8], now: Stamp) -> Vec<(PinnedEntry, Arc<StoredHead>)> {
        let Some(object) = self.index.find(key) else { return Vec::new() };
        let mut state = object.write();
        self.judge(object.key(), &mut state, now);
        state
            .variants()
            .iter()
            .filter_map(|entry| Some((PinnedEntry::new(Arc::clone(entry)), entry.stored_head()?)))
            .collect()
    }
}
