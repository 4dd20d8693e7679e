//! The numbers behind a decision on freshness, small enough to be noted at each hit.

use larder_wire::date::Stamp;

use super::{Asked, Grace, LifetimeSource, Settings, Terms, Usable, Vary, usable};

/// All that [`usable`](fn@usable) looked at in a stored response, and when. The decision can be made again from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshnessFacts {
    /// When the decision was made.
    pub now: Stamp,
    /// See [`Terms::received`].
    pub received: Stamp,
    /// See [`Terms::initial_age`].
    pub initial_age: u64,
    /// See [`Terms::date`].
    pub date: Stamp,
    /// See [`Terms::lifetime`].
    pub lifetime: u64,
    /// See [`Terms::source`].
    pub source: LifetimeSource,
    /// See [`Terms::must_revalidate`].
    pub must_revalidate: bool,
    /// See [`Terms::no_cache`].
    pub no_cache: bool,
    /// See [`Terms::grace`].
    pub grace: Option<Box<Grace>>,
}

impl FreshnessFacts {
    /// The facts of a stored response that count at `now`.
    pub fn of(terms: &Terms, now: Stamp) -> FreshnessFacts {
        FreshnessFacts {
            now,
            received: terms.received,
            initial_age: terms.initial_age,
            date: terms.date,
            lifetime: terms.lifetime,
            source: terms.source,
            must_revalidate: terms.must_revalidate,
            no_cache: terms.no_cache,
            grace: terms.grace.clone(),
        }
    }

    /// How old the response was.
    pub fn age(&self) -> u64 {
        self.initial_age.saturating_add(self.now.since(self.received))
    }

    /// How long it was to be fresh still; below 0 how long it had been stale.
    pub fn remaining(&self) -> i64 {
        let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        signed(self.lifetime).saturating_sub(signed(self.age()))
    }

    /// The decision, made again.
    pub fn usable(&self, asked: &Asked, settings: &Settings) -> Usable {
        usable(&self.terms(), asked, self.now, settings)
    }

    /// Terms that decide the same: what tells variants and representations apart plays no part in it.
    fn terms(&self) -> Terms {
        Terms {
            received: self.received,
            initial_age: self.initial_age,
            date: self.date,
            lifetime: self.lifetime,
            source: self.source,
            must_revalidate: self.must_revalidate,
            no_cache: self.no_cache,
            grace: self.grace.clone(),
            immutable: false,
            etag: None,
            last_modified: None,
            vary: Vary::default(),
            coded: None,
        }
    }
}
