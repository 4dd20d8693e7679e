//! The head that is kept of a response (RFC 9111 section 3.1).

use larder_wire::date::{Stamp, format_date, parse_date};
use larder_wire::directives::{CacheControl, Names};
use larder_wire::names::NameSet;
use larder_wire::{Fields, ResponseHead};

use super::freshness::Directives;
use super::{Mode, SetCookie, Settings};

/// Fields of one connection or one hop (RFC 9110 section 7.6.1), of the proxy that was asked (RFC 9111
/// section 3.1), of trailers that are not kept, those that are computed anew at every answer (`Age`), and
/// `Warning`, which is obsolete (RFC 9111 section 5.5).
const NEVER_KEPT: [&str; 12] = [
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Proxy-Authenticate",
    "Proxy-Authentication-Info",
    "Proxy-Authorization",
    "Age",
    "Warning",
];

/// The part of a response's head that is stored. Fields that `no-cache="…"` names are left out, for without validation
/// nobody may have them; in a shared cache also those that `private="…"` names; and `Set-Cookie`, unless the settings say
/// that all may have it.
pub fn head_to_store(response: &ResponseHead, settings: &Settings) -> ResponseHead {
    let control = Directives::of(response, settings).control;
    let mut stored = response.clone();
    let shared = settings.mode == Mode::Shared;
    if settings.set_cookie != SetCookie::Keep {
        stored.fields.remove("Set-Cookie");
    }
    strip(&mut stored.fields, [control.no_cache.as_ref(), control.private.as_ref().filter(|_| shared)]);
    stored
}

/// Takes out what is never kept and what the qualified directives name. The names are a set: thousands of them in a head of
/// many fields must not cost their product.
fn strip(fields: &mut Fields, named: [Option<&Names>; 2]) {
    let directives = named.into_iter().flatten().flat_map(|names| match names {
        Names::All => &[][..],
        Names::Fields(names) => names,
    });
    let dropped: NameSet = fields.members("Connection").chain(directives.map(|name| name.as_bytes())).collect();
    fields
        .retain(|name, _| !NEVER_KEPT.iter().any(|other| other.eq_ignore_ascii_case(name)) && !dropped.contains(name));
}

/// Takes from a 304 what must not reach a stored head: the same as [`head_to_store`], for either mode, and a cookie whatever
/// the settings say, for it was set for the one who asked.
pub(super) fn strip_update(fields: &mut Fields) {
    let control = CacheControl::of(fields);
    fields.remove("Set-Cookie");
    strip(fields, [control.no_cache.as_ref(), control.private.as_ref()]);
}

/// Takes from a 304 what must not reach any client.
pub(super) fn strip_hop(fields: &mut Fields) {
    strip(fields, [None, None]);
}

/// Gives a head the `Date` it lacks: when it arrived (RFC 9110 section 6.6.1).
pub fn dated(head: &mut ResponseHead, received: Stamp) {
    if head.fields.get("Date").and_then(parse_date).is_none() {
        head.fields.set("Date", format_date(received));
    }
}
