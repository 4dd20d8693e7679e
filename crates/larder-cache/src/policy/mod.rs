//! RFC 9111 as pure functions of values and `now`.
//!
//! These functions decide what may be kept, how long it is fresh, who may have it, what a validation says, what a change makes
//! void. No socket, no async, no clock: a request, a response and a time go in, a decision comes out that
//! has a word for logs and pages. Nothing here keeps state; the prepared values ([`Terms`] per stored
//! response, [`Asked`] per request) make the decision at a hit a handful of comparisons.
//!
//! Read in this order: [`storable`](fn@storable) (may it be kept, and on which [`Terms`]),
//! [`freshness`] (how old, how long), [`usable`](fn@usable) (may this request have it),
//! [`vary`] (is it the right variant), [`audience`] (is it for others at all), [`validate`] (asking the origin, and its answer),
//! [`precondition`](fn@precondition) (the client's own conditions), [`combine`] (partial
//! responses), [`invalidate`] (what unsafe methods make void).
//!
//! Choices where the RFC leaves one, each more careful than it has to be: POST responses are not kept,
//! but those of a protocol that only asks by POST ([`storable_by_protocol`]);
//! a heuristic never keeps a `Set-Cookie` in a shared cache; 412, 416 and other answers to one request's
//! own fields are never kept; a GET with a body is passed.

pub mod audience;
mod by_hook;
mod by_protocol;
pub mod by_rule;
pub mod coded;
pub mod coding;
pub mod combine;
mod credentials;
mod file_kind;
pub mod freshness;
pub mod freshness_facts;
pub mod invalidate;
pub mod precondition;
pub mod request;
pub mod storable;
pub mod stored_head;
pub mod validate;
pub mod vary;
mod weight;

use larder_wire::date::Stamp;
use larder_wire::etag::ETag;
use larder_wire::range::parse_range;
use larder_wire::{Method, RequestHead};

pub use audience::{SetCookie, shares_with_authorized};
pub use by_hook::HookTerms;
pub use by_protocol::storable_by_protocol;
pub use by_rule::RuleTerms;
pub use coding::{Coding, Offer};
pub use combine::{combined_head, completed, may_combine, whole_head};
pub use credentials::{may_be_credential, may_say_who_asks};
pub use freshness::LifetimeSource;
pub use freshness_facts::FreshnessFacts;
pub use invalidate::invalidated;
pub use precondition::{Precondition, precondition, range_applies};
pub use request::{
    Asked, StaleWhy, StandIn, Usable, ValidateWhy, answerable, disconnected, stale_if_error, stands_in, usable,
};
pub use storable::{NotStored, Storable, may_update, storable};
pub use stored_head::{dated, head_to_store};
pub use validate::{HeadSays, answer_to_asker, conditional, freshen, freshened_by, head_says, named_by, renew};
pub use vary::{Vary, choose};

/// One user or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Many users: `private` is not kept, `s-maxage` counts.
    Shared,
    /// One user.
    Private,
}

/// The choices that an administrator has; everything else is the RFC's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// One user or many.
    pub mode: Mode,
    /// Heuristic freshness: this part of the time since the last modification (RFC 9111 section 4.2.2).
    pub heuristic_percent: u32,
    /// Heuristic freshness is never longer.
    pub heuristic_max_seconds: u64,
    /// How long an error that is cacheable by default (404, 405, 410, 414, 501) is fresh when the origin says
    /// nothing; 0 leaves it to the heuristic.
    pub negative_seconds: u64,
    /// How long a 200 is fresh that says nothing at all of its freshness: no `Cache-Control`, `Expires`, `Pragma`,
    /// `Last-Modified` or `ETag`. 0 does not keep it. Never for a request that may say who asks.
    pub unlabelled_seconds: u64,
    /// [`Settings::unlabelled_seconds`] for files: packages, archives, images, indexes of packages.
    pub unlabelled_file_seconds: u64,
    /// [`Settings::unlabelled_seconds`] for files whose name has a version or a digest.
    pub unlabelled_named_seconds: u64,
    /// The treatment of answers that set a cookie.
    pub set_cookie: SetCookie,
    /// Targeted fields to obey, the most specific first, such as `CDN-Cache-Control` (RFC 9213); empty for a
    /// cache that does not act for the origin.
    pub targeted: Vec<String>,
    /// Stale responses may stand in for an error so long when the origin does not say how long.
    pub stale_if_error_seconds: Option<u64>,
    /// Stale responses may be served during a validation so long when the origin does not say how long.
    pub stale_while_revalidate_seconds: Option<u64>,
    /// The terms of the store rule that the request matches, if one does.
    pub rule: Option<RuleTerms>,
    /// The terms that hooks of the forward proxy give to the answer, if any do.
    pub hook: Option<HookTerms>,
    /// Answers of `git-upload-pack` are kept.
    pub git: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: Mode::Shared,
            heuristic_percent: 10,
            heuristic_max_seconds: 86_400,
            negative_seconds: 0,
            unlabelled_seconds: 0,
            unlabelled_file_seconds: 0,
            unlabelled_named_seconds: 0,
            set_cookie: SetCookie::Pass,
            targeted: Vec::new(),
            stale_if_error_seconds: None,
            stale_while_revalidate_seconds: None,
            rule: None,
            hook: None,
            git: false,
        }
    }
}

/// When a request left and its response came, by the cache's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The request was sent.
    pub requested: Stamp,
    /// The response's head arrived.
    pub received: Stamp,
}

/// On which terms a response is kept: all that policy needs to know of it from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// When the response arrived.
    pub received: Stamp,
    /// How old it was then (RFC 9111 section 4.2.3). Kept apart from `received`, so no age is too great and a
    /// clock set back makes nothing younger than it arrived.
    pub initial_age: u64,
    /// The `Date` of the response, or when it arrived; the newest of several matches is chosen by it.
    pub date: Stamp,
    /// Seconds of freshness from age 0 (RFC 9111 section 4.2.1).
    pub lifetime: u64,
    /// The source of the lifetime.
    pub source: LifetimeSource,
    /// Once stale, never served without validation, not even to a client that would take it.
    pub must_revalidate: bool,
    /// Never served without validation.
    pub no_cache: bool,
    /// For how long past freshness it serves still, when the origin says.
    pub grace: Option<Box<Grace>>,
    /// The origin promises that it does not change while fresh (RFC 8246).
    pub immutable: bool,
    /// Its entity tag.
    pub etag: Option<ETag>,
    /// Its modification time.
    pub last_modified: Option<Stamp>,
    /// Which requests it answers.
    pub vary: Vary,
    /// The coding that this cache gave its body. `etag` is the origin's, and its clients get another one.
    pub coded: Option<Coding>,
}

/// For how long past freshness a response serves still. Few origins say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    stale_while_revalidate: Option<u64>,
    stale_if_error: Option<u64>,
    hook: Option<HookTerms>,
}

impl Grace {
    /// The grace that an origin grants; `None` where it grants none.
    pub fn of(stale_while_revalidate: Option<u64>, stale_if_error: Option<u64>) -> Option<Box<Grace>> {
        let grace = Grace { stale_while_revalidate, stale_if_error, hook: None };
        (stale_while_revalidate.is_some() || stale_if_error.is_some()).then(|| Box::new(grace))
    }

    /// A grace as the origin grants it, with what hooks of the forward proxy say in its place.
    pub fn with_hook(grace: Option<&Grace>, hook: HookTerms) -> Box<Grace> {
        let of_origin = |seconds: fn(&Grace) -> Option<u64>| grace.and_then(seconds);
        Box::new(Grace {
            stale_while_revalidate: hook.grace_seconds.or(of_origin(Grace::stale_while_revalidate)),
            stale_if_error: hook.grace_seconds.or(of_origin(Grace::stale_if_error)),
            hook: Some(hook),
        })
    }

    /// The terms that hooks gave, also where the lifetime has been cut short since.
    pub fn hook(&self) -> Option<HookTerms> {
        self.hook
    }

    /// Seconds past freshness during which it is served while it is validated (RFC 5861 section 3).
    pub fn stale_while_revalidate(&self) -> Option<u64> {
        self.stale_while_revalidate
    }

    /// Seconds past freshness during which it may stand in for an error (RFC 5861 section 4).
    pub fn stale_if_error(&self) -> Option<u64> {
        self.stale_if_error
    }
}

/// An answer may be so many seconds ahead of a request that looks for it: one that waited while it arrived knows the time of
/// its own beginning.
const AHEAD_SECONDS_MAX: u64 = 2;

impl Terms {
    /// Seconds past freshness during which it is served while it is validated (RFC 5861 section 3), when the origin says.
    pub fn stale_while_revalidate(&self) -> Option<u64> {
        self.grace.as_ref()?.stale_while_revalidate()
    }

    /// Seconds past freshness during which it may stand in for an error (RFC 5861 section 4), when the origin says.
    pub fn stale_if_error(&self) -> Option<u64> {
        self.grace.as_ref()?.stale_if_error()
    }

    /// Seconds since the origin made or validated it (RFC 9111 section 4.2.3): the value of `Age`.
    pub fn age(&self, now: Stamp) -> u64 {
        self.initial_age.saturating_add(now.since(self.received))
    }

    /// Seconds of freshness left; 0 or less when it is stale.
    pub fn remaining(&self, now: Stamp) -> i64 {
        let signed = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
        let left = signed(self.lifetime).saturating_sub(signed(self.age(now)));
        if self.is_from_the_future(now) { left.min(0) } else { left }
    }

    /// True when this request would have brought the same response, and may have it: a lifetime that the origin did not give counts
    /// for nobody who may say who he is, for his answer may be another one.
    pub fn answers(&self, request: &RequestHead) -> bool {
        self.vary.matches(request) && (!self.source.is_ours() || !may_say_who_asks(&request.fields))
    }

    /// True when a part of this response is an answer to the request, although another one is meant for it: it is the response without a coding
    /// where the request would get one, for which nothing is stored. A coded body is not fetched in parts, so that the part would come from the
    /// origin without a coding too. `If-Range` has to name this response.
    pub fn answers_in_part(&self, request: &RequestHead) -> bool {
        let fields = &request.fields;
        request.method == Method::Get
            && fields.get("Range").is_some_and(|range| parse_range(range).is_some())
            && self.vary.matches_uncoded(request)
            && (!self.source.is_ours() || !may_say_who_asks(fields))
            && coding::accepts_uncoded(fields)
            && precondition::names_strongly(fields, self.etag.as_ref())
    }

    /// True when it is the response for requests that get a coding, and has none because there was no room for a coder.
    pub fn lacks_coding(&self) -> bool {
        self.coded.is_none() && self.vary.is_for_coding()
    }

    /// True while the age is below the lifetime (RFC 9111 section 4.2).
    pub fn is_fresh(&self, now: Stamp) -> bool {
        self.lifetime > self.age(now) && !self.is_from_the_future(now)
    }

    /// True when it arrived at a time that is yet to come: our clock was ahead then and has been set back since, so that
    /// its age is unknown (RFC 9111 section 4.2.3 counts with a clock that goes on).
    pub fn is_from_the_future(&self, now: Stamp) -> bool {
        self.received.0 > now.0.saturating_add(AHEAD_SECONDS_MAX)
    }

    /// True when the origin can be asked whether it still holds.
    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// True when equal validators mean equal bytes, so that ranges can be put together (RFC 9110 section 8.8.1).
    pub fn has_strong_validator(&self) -> bool {
        // The origin's tag says nothing of bytes that it has not sent.
        if self.coded.is_some() {
            return false;
        }
        match &self.etag {
            Some(etag) => !etag.weak,
            None => self.last_modified.is_some_and(|modified| validate::is_strong_date(modified, self.date)),
        }
    }

    /// Makes it stale from `now` on, without forgetting how it is validated: a soft purge.
    pub fn expire(&mut self, now: Stamp) {
        self.lifetime = self.lifetime.min(self.age(now));
    }

    /// Permits no use before its origin has validated it: neither stale, nor for an error, nor while the origin is out of
    /// reach, and whatever the clock says.
    pub fn distrust(&mut self) {
        self.lifetime = 0;
        self.must_revalidate = true;
        self.grace = None;
        self.immutable = false;
    }

    /// Bytes on the heap, for exact budgets.
    pub fn heap_bytes(&self) -> usize {
        let grace = self.grace.as_ref().map_or(0, |_| size_of::<Grace>());
        self.etag.as_ref().map_or(0, |etag| etag.opaque.len()) + self.vary.heap_bytes() + grace
    }
}
