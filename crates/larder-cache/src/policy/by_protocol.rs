//! Responses whose protocol says how long they hold, where their fields say less or something else: answers to a POST among them
//! (RFC 9110 section 9.3.3 lets a cache keep those that say so; for these, the operator or the user of a run says so).

use larder_wire::{RequestHead, ResponseHead};

use super::freshness::{Directives, LifetimeSource};
use super::storable::{forbidden, terms};
use super::{Asked, NotStored, Settings, Storable, Terms, Times, Vary, may_say_who_asks};

/// Decides whether a response may be kept that its protocol makes the same for all, for so many seconds; 0 keeps it for those who
/// can't reach its origin. The word of the origin that it is for one client, or for no store, counts; its word about lifetimes and
/// validation does not, for it knows only that names change.
pub fn storable_by_protocol(
    request: &RequestHead,
    response: &ResponseHead,
    times: Times,
    settings: &Settings,
    lifetime: u64,
) -> Storable {
    let directives = Directives::of(response, settings);
    let refusal = match () {
        () if Asked::of(request).no_store() => Some(NotStored::RequestNoStore),
        () if response.status != 200 => Some(NotStored::Status),
        () if may_say_who_asks(&request.fields) => Some(NotStored::Authorization),
        () if response.fields.contains("Set-Cookie") => Some(NotStored::SetCookie),
        () => forbidden(response.status, &directives.control, settings),
    };
    let vary = match (refusal, Vary::of(request, response)) {
        (Some(why), _) => return Storable::No(why),
        (None, None) => return Storable::No(NotStored::VaryAny),
        (None, Some(vary)) => vary,
    };
    let by_fields = terms(Some(request), response, &directives, vary, times, settings);
    Storable::Yes(Terms {
        lifetime: if lifetime == 0 { 0 } else { by_fields.initial_age.saturating_add(lifetime) },
        source: LifetimeSource::Protocol,
        must_revalidate: false,
        no_cache: false,
        grace: None,
        immutable: lifetime > 0,
        etag: None,
        last_modified: None,
        ..by_fields
    })
}
