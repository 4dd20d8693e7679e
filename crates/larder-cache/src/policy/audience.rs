//! The audience of an answer: everybody whose request selects it, or the one who asked.
//!
//! RFC 9111 draws this line at two places: what answers a request with `Authorization` (section 3.5), and the qualified
//! directives. `Set-Cookie` is a third one by custom, not by the RFC (section 7.3): an answer that begins a session for one
//! user must not begin it for the next.

use larder_wire::directives::{CacheControl, Names};
use larder_wire::{Fields, RequestHead, ResponseHead};

use super::freshness::Directives;
use super::{Mode, Settings};

/// The treatment of an answer that could be stored if it set no cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// It is for the one who asked, unless the origin says that others may have the rest of it: `public`, or
    /// `no-cache="Set-Cookie"`.
    #[default]
    Pass,
    /// It is stored without that field.
    Strip,
    /// It is stored with that field: everybody gets that cookie.
    Keep,
}

/// Whether an answer may be shared that has a `Set-Cookie`, and what becomes of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    /// There is none, or it is stored with the rest.
    Stays,
    /// The rest is stored.
    Goes,
    /// The whole is for the one who asked.
    ForOne,
}

pub(super) fn cookie(fields: &Fields, control: &CacheControl, settings: &Settings) -> Cookie {
    if !fields.contains("Set-Cookie") {
        return Cookie::Stays;
    }
    let names_it = |names: &Option<Names>| matches!(names, Some(names @ Names::Fields(_)) if names.names("Set-Cookie"));
    let rest_is_for_all = control.public || names_it(&control.no_cache) || names_it(&control.private);
    match settings.set_cookie {
        SetCookie::Keep => Cookie::Stays,
        SetCookie::Strip => Cookie::Goes,
        SetCookie::Pass if rest_is_for_all => Cookie::Goes,
        // One user may have his own answer again; but the cookie of then may be older than the one he has by now.
        SetCookie::Pass if settings.mode == Mode::Private => Cookie::Goes,
        SetCookie::Pass => Cookie::ForOne,
    }
}

/// Whether others than the one who authenticated may have the answer (RFC 9111 section 3.5).
pub(super) fn permits_authorized(control: &CacheControl) -> bool {
    control.public || control.must_revalidate || control.s_maxage.is_some()
}

/// True when the request had `Authorization` and its answer does not say that others may have it.
pub(super) fn is_for_authorized(request: &RequestHead, control: &CacheControl, settings: &Settings) -> bool {
    settings.mode == Mode::Shared && request.fields.contains("Authorization") && !permits_authorized(control)
}

/// Whether the parts of a stored response may be fetched with the request of one who authenticates: what its origin said
/// of it tells what it will say of the parts.
pub fn shares_with_authorized(request: &RequestHead, stored: &ResponseHead, settings: &Settings) -> bool {
    !is_for_authorized(request, &Directives::of(stored, settings).control, settings)
}
