//! Whether a request may have a stored response, fresh or stale (RFC 9111 sections 4, 4.2.4 and 5.2.1).

use larder_wire::date::Stamp;
use larder_wire::directives::{CacheControl, MaxStale};
use larder_wire::{Method, RequestHead};

use super::{Settings, Terms};

/// The demands of a request on caches; read once per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The greatest age wanted.
    pub max_age: Option<u64>,
    /// The least freshness wanted.
    pub min_fresh: Option<u64>,
    /// The staleness taken.
    pub max_stale: Option<MaxStale>,
    /// Only a validated response is wanted.
    pub no_cache: bool,
    /// Nothing of this exchange is to be kept.
    pub no_store: bool,
    /// Only what is in the cache is wanted; else 504 (RFC 9111 section 5.2.1.7).
    pub only_if_cached: bool,
    /// A stale response is taken in place of an error so long (RFC 5861 section 4).
    pub stale_if_error: Option<u64>,
    /// The user works offline: what is stored, however old it is and whatever the request says of ages and validation. The word of
    /// the origin counts: it may be what keeps an answer from those who may not have it (RFC 9111 section 3.5).
    pub offline: bool,
}

impl Asked {
    /// Reads the request's directives. `Pragma: no-cache` counts when there is no `Cache-Control` (RFC 9111
    /// section 5.4); in responses it means nothing.
    pub fn of(request: &RequestHead) -> Asked {
        let fields = &request.fields;
        if !fields.contains("Cache-Control") {
            return Asked { no_cache: fields.has_member("Pragma", "no-cache"), ..Asked::default() };
        }
        let directives = CacheControl::of(fields);
        Asked {
            max_age: directives.max_age,
            min_fresh: directives.min_fresh,
            max_stale: directives.max_stale,
            no_cache: directives.no_cache.is_some(),
            no_store: directives.no_store,
            only_if_cached: directives.only_if_cached,
            stale_if_error: directives.stale_if_error,
            offline: false,
        }
    }

    /// The same request by a user who works offline.
    pub fn offline(self) -> Asked {
        Asked { only_if_cached: true, offline: true, ..self }
    }

    /// The same request by a user whose network is away: the origin is asked where the store has nothing.
    pub fn without_network(self) -> Asked {
        Asked { offline: true, ..self }
    }

    /// True when nothing of this exchange may be kept; what is kept already may be served.
    pub fn no_store(&self) -> bool {
        self.no_store
    }

    /// True when the origin must not be asked: what the cache has, or 504.
    pub fn only_if_cached(&self) -> bool {
        self.only_if_cached
    }
}

/// True when a stored response can answer such a request at all: GET, or HEAD from what a GET brought (RFC 9110
/// section 9.3.2), and without a body, which no key knows of.
pub fn answerable(request: &RequestHead) -> bool {
    matches!(request.method, Method::Get | Method::Head) && !has_body(request)
}

pub(super) fn has_body(request: &RequestHead) -> bool {
    request.fields.contains("Transfer-Encoding") || request.fields.get("Content-Length").is_some_and(|len| len != b"0")
}

/// Whether a stored response may be served to a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usable {
    /// Serve it.
    Fresh,
    /// Serve it though it is stale.
    Stale(StaleWhy),
    /// Serve it though it is stale, and validate it behind the client's back (RFC 5861 section 3).
    Revalidate,
    /// Ask the origin first.
    Validate(ValidateWhy),
}

impl Usable {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Usable::Fresh => "fresh",
            Usable::Stale(why) => why.as_str(),
            Usable::Revalidate => "stale-while-revalidate",
            Usable::Validate(why) => why.as_str(),
        }
    }
}

/// The permission to serve a stale response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleWhy {
    /// The client takes it (RFC 9111 section 5.2.1.2).
    MaxStale,
    /// The user works offline.
    Offline,
}

impl StaleWhy {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            StaleWhy::MaxStale => "max-stale",
            StaleWhy::Offline => "offline",
        }
    }
}

/// Why the origin must be asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidateWhy {
    /// It is stale, and neither request, response nor settings permit that.
    Stale,
    /// The response said `no-cache`.
    NoCache,
    /// It is stale, and the response forbids serving it so.
    MustRevalidate,
    /// The request said `no-cache`.
    RequestNoCache,
    /// It is older than the request takes.
    RequestMaxAge,
    /// It is not fresh for as long as the request wants.
    RequestMinFresh,
    /// By our clock it arrives later than now: the clock was set back since, and how old it is nobody knows.
    Clock,
    /// Purges that were made on other machines may not be known here.
    Apart,
}

impl ValidateWhy {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            ValidateWhy::Stale => "stale",
            ValidateWhy::NoCache => "no-cache",
            ValidateWhy::MustRevalidate => "must-revalidate",
            ValidateWhy::RequestNoCache => "request-no-cache",
            ValidateWhy::RequestMaxAge => "request-max-age",
            ValidateWhy::RequestMinFresh => "request-min-fresh",
            ValidateWhy::Clock => "clock",
            ValidateWhy::Apart => "apart",
        }
    }
}

/// Decides whether a stored response may be served to a request now. Allocates nothing.
///
/// The client's directives are obeyed even against `immutable`: RFC 8246 section 2 lets a client's own word count.
pub fn usable(terms: &Terms, asked: &Asked, now: Stamp, settings: &Settings) -> Usable {
    if terms.no_cache {
        return Usable::Validate(ValidateWhy::NoCache);
    }
    if asked.offline {
        return match terms.is_fresh(now) {
            true => Usable::Fresh,
            false if terms.must_revalidate => Usable::Validate(ValidateWhy::MustRevalidate),
            false => Usable::Stale(StaleWhy::Offline),
        };
    }
    if asked.no_cache {
        return Usable::Validate(ValidateWhy::RequestNoCache);
    }
    if terms.is_from_the_future(now) {
        return Usable::Validate(ValidateWhy::Clock);
    }
    let age = terms.age(now);
    // An answer's age is counted in whole seconds, so 0 may be nearly one: `max-age=0` always asks the origin.
    if asked.max_age.is_some_and(|max_age| age > max_age || max_age == 0) {
        return Usable::Validate(ValidateWhy::RequestMaxAge);
    }
    let wanted = asked.min_fresh.unwrap_or(0);
    match terms.lifetime > age {
        true if terms.lifetime - age >= wanted => Usable::Fresh,
        true => Usable::Validate(ValidateWhy::RequestMinFresh),
        false => usable_stale(terms, asked, age - terms.lifetime, settings),
    }
}

/// `overdue` seconds past its lifetime (RFC 9111 section 4.2.4).
fn usable_stale(terms: &Terms, asked: &Asked, overdue: u64, settings: &Settings) -> Usable {
    if terms.must_revalidate {
        return Usable::Validate(ValidateWhy::MustRevalidate);
    }
    if asked.min_fresh.is_some() {
        return Usable::Validate(ValidateWhy::RequestMinFresh);
    }
    match asked.max_stale {
        Some(MaxStale::Any) => return Usable::Stale(StaleWhy::MaxStale),
        Some(MaxStale::Seconds(most)) if overdue <= most => return Usable::Stale(StaleWhy::MaxStale),
        Some(MaxStale::Seconds(_)) | None => {}
    }
    // A client that names a greatest age takes nothing stale (RFC 9111 section 5.2.1.1).
    let window = terms.stale_while_revalidate().or(settings.stale_while_revalidate_seconds).unwrap_or(0);
    if asked.max_age.is_none() && overdue < window {
        return Usable::Revalidate;
    }
    Usable::Validate(ValidateWhy::Stale)
}

/// Whether a stored response may stand in for an error (500, 502, 503, 504, or no answer) of the origin: within the
/// longest window that the origin, the client or else the settings give (RFC 5861 section 4), unless the origin
/// or the client insists on validation (RFC 9111 section 4.2.4) or names an age that it is past.
pub fn stale_if_error(terms: &Terms, asked: &Asked, now: Stamp, settings: &Settings) -> bool {
    // Of what arrived in the future nobody knows how far past its lifetime it is.
    if !may_go_unvalidated(terms, asked, now) || terms.is_from_the_future(now) {
        return false;
    }
    let overdue = terms.age(now).saturating_sub(terms.lifetime);
    if asked.stale_if_error.is_some_and(|window| overdue < window) {
        return true;
    }
    let by_origin = terms.stale_if_error().or(settings.stale_if_error_seconds);
    is_taken(terms, asked, now) && (terms.is_fresh(now) || by_origin.is_some_and(|window| overdue < window))
}

/// Whether a stored response may be served however stale while the origin cannot be reached at all; RFC 9111
/// section 4.2.4 permits that to a disconnected cache unless origin or client insists on validation, or the client names an
/// age that it is past.
pub fn disconnected(terms: &Terms, asked: &Asked, now: Stamp) -> bool {
    may_go_unvalidated(terms, asked, now) && is_taken(terms, asked, now)
}

/// The permission for a stored response to stand in for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandIn {
    /// See [`stale_if_error`]: for any trouble of the origin.
    OnError,
    /// See [`disconnected`]: only while the origin is out of reach.
    OutOfReach,
}

/// Whether a stored response may stand in for an answer that the origin does not give.
pub fn stands_in(terms: &Terms, asked: &Asked, now: Stamp, settings: &Settings) -> Option<StandIn> {
    if stale_if_error(terms, asked, now, settings) {
        return Some(StandIn::OnError);
    }
    disconnected(terms, asked, now).then_some(StandIn::OutOfReach)
}

/// Neither origin nor client insists on validation.
fn may_go_unvalidated(terms: &Terms, asked: &Asked, now: Stamp) -> bool {
    !terms.no_cache && (asked.offline || !asked.no_cache) && (terms.is_fresh(now) || !terms.must_revalidate)
}

/// The ages that the request names, where it names any, leave room for this response (RFC 9111 section 5.2.1).
fn is_taken(terms: &Terms, asked: &Asked, now: Stamp) -> bool {
    if asked.offline {
        return true;
    }
    let age = terms.age(now);
    let names_age = asked.max_age.is_some() || asked.min_fresh.is_some();
    if names_age && terms.is_from_the_future(now) {
        return false;
    }
    if asked.max_age.is_some_and(|max_age| age > max_age || max_age == 0) {
        return false;
    }
    if asked.min_fresh.is_some_and(|wanted| terms.lifetime.saturating_sub(age) < wanted) {
        return false;
    }
    match asked.max_stale {
        Some(MaxStale::Any) => true,
        Some(MaxStale::Seconds(most)) => age.saturating_sub(terms.lifetime) <= most,
        // A client that names a greatest age takes nothing stale.
        None => asked.max_age.is_none() || terms.is_fresh(now),
    }
}
