//! How a list is, for people and metrics.

use super::LoadedList;
use crate::config;
use std::time::Duration;

/// How a list is.
#[derive(Clone, Debug, Default)]
pub struct ListState {
    /// Its name.
    pub name: String,
    /// Its source.
    pub source: String,
    /// Where its table stands.
    pub place: String,
    /// Its format: that of the configuration until it was loaded, then the one that was found.
    pub format: String,
    /// Whether it is looked up: it was loaded once.
    pub is_loaded: bool,
    /// Entries, exceptions of the source included.
    pub entries: u64,
    /// Lines of the source that a proxy can't decide.
    pub left_out: u64,
    /// Lines that are not right.
    pub malformed: u64,
    /// The first of these, one a line.
    pub samples: String,
    /// Its bytes in memory.
    pub memory_bytes: usize,
    /// When the source that is in force was read, since 1970.
    pub read_at: Option<Duration>,
    /// When the source was last found to be as it is in force, since 1970.
    pub checked_at: Option<Duration>,
    /// When the source is looked at again, since 1970.
    pub next_at: Option<Duration>,
    /// Why the last look at the source failed; `None`: it did not.
    pub error: Option<String>,
    /// Looks at the source since the start, however they ended.
    pub looks: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// Those of them that brought another content.
    pub changes: u64,
}

impl ListState {
    /// A list of which nothing is known yet.
    pub(super) fn of(list: &config::List) -> ListState {
        ListState {
            name: list.name.clone(),
            source: list.source.to_string(),
            place: list.place.to_string(),
            format: list.format.as_str().to_owned(),
            ..ListState::default()
        }
    }

    /// Takes what is known of a list that was loaded.
    pub(super) fn loaded(&mut self, list: &LoadedList) {
        let about = list.compiled.about();
        self.is_loaded = true;
        self.format.clone_from(&about.format);
        (self.entries, self.left_out, self.malformed) = (about.entries, about.left_out, about.malformed);
        self.samples.clone_from(&about.samples);
        self.memory_bytes = list.compiled.memory_bytes();
        self.read_at = Some(Duration::from_secs(about.provenance.read_at_seconds));
    }

    /// `loading`, `good`, `stale` (the last look failed, and what was read before is in force) or `failed`.
    pub fn as_str(&self) -> &'static str {
        match (self.is_loaded, &self.error) {
            (true, None) => "good",
            (true, Some(_)) => "stale",
            (false, None) => "loading",
            (false, Some(_)) => "failed",
        }
    }
}
