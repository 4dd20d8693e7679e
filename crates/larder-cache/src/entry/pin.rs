//! Entries that are in use.

use super::Entry;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A pin on an entry, which is not evicted for as long as the pin lives: while a client reads a response, or a fetch
/// fills or validates it, evicting it would give no memory back, and what it brings would be stored nowhere.
pub struct PinnedEntry(Arc<Entry>);

impl PinnedEntry {
    /// Pins an entry.
    pub(crate) fn new(entry: Arc<Entry>) -> PinnedEntry {
        entry.pins.fetch_add(1, Ordering::Relaxed);
        PinnedEntry(entry)
    }
}

impl Entry {
    /// A client or a fetch uses it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Relaxed) > 0
    }
}

impl Clone for PinnedEntry {
    fn clone(&self) -> PinnedEntry {
        PinnedEntry::new(Arc::clone(&self.0))
    }
}

impl Drop for PinnedEntry {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for PinnedEntry {
    type Target = Arc<Entry>;

    fn deref(&self) -> &Arc<Entry> {
        &self.0
    }
}

impl fmt::Debug for PinnedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
