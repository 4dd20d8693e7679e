//! Whether a response may be kept, and on which terms (RFC 9111 section 3); and whether it may change what is stored.

use larder_wire::directives::{CacheControl, Names};
use larder_wire::etag::ETag;
use larder_wire::range::ContentRange;
use larder_wire::{Method, RequestHead, ResponseHead};

use super::audience::{self, Cookie};
use super::freshness::{self, Directives, LifetimeSource};
use super::request::has_body;
use super::{Asked, Mode, Settings, Terms, Times, Vary};
use super::{by_hook, by_rule};

/// The decision on a response that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storable {
    /// Keep it on these terms. A 206 is kept as the bytes it holds.
    Yes(Terms),
    /// Do not keep it.
    No(NotStored),
}

/// Why a response is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// Only answers to GET are kept; that POST responses could be is not used (RFC 9110 section 9.3.3).
    Method,
    /// The request had a body, which no key knows of (RFC 9110 section 9.3.1).
    RequestBody,
    /// The request said `no-store` (RFC 9111 section 5.2.1.5).
    RequestNoStore,
    /// The status is not final, an answer to this request's own fields, or forbidden (RFC 6585).
    Status,
    /// The response said `must-understand` and its status is unknown (RFC 9111 section 5.2.2.3).
    MustUnderstand,
    /// The response said `no-store` (RFC 9111 section 5.2.2.5).
    NoStore,
    /// The response is for one user (RFC 9111 section 5.2.2.7).
    Private,
    /// The request had `Authorization` and the response does not say that others may have it (RFC 9111 section 3.5).
    Authorization,
    /// `Vary: *` (RFC 9111 section 4.1).
    VaryAny,
    /// A 206 whose bytes cannot be placed or put together: no single valid `Content-Range`, no strong validator
    /// (RFC 9111 section 3.4).
    Partial,
    /// The status is not cacheable by default and the origin says nothing (RFC 9111 section 3).
    NotExplicit,
    /// It sets a cookie, and neither the origin nor the settings say that others may have the rest of it.
    SetCookie,
    /// It is stale at once and cannot be validated: of no use.
    NoFreshness,
    /// It is longer than the store takes.
    TooLong,
    /// The disk is behind with its writes, and memory has no room for it.
    DiskBehind,
    /// The name led to an address that is closed to other clients, who would find the answer by its name.
    Address,
    /// It is a page in the place of a file, as a captive portal sends it.
    Portal,
    /// A hook of the operator's says so, or failed.
    Hook,
    /// A service of ICAP changed or answered it in a way that is not for all, or was not asked.
    Icap,
    /// A part that would take the place of a variant that its request did not select.
    OtherVariant,
    /// A validation forbids the coding that this cache gave to the stored response ([`super::coded::is_forbidden`]).
    Coded,
}

impl NotStored {
    /// All reasons.
    pub const ALL: &[NotStored] = &[
        NotStored::Method,
        NotStored::RequestBody,
        NotStored::RequestNoStore,
        NotStored::Status,
        NotStored::MustUnderstand,
        NotStored::NoStore,
        NotStored::Private,
        NotStored::Authorization,
        NotStored::VaryAny,
        NotStored::Partial,
        NotStored::NotExplicit,
        NotStored::SetCookie,
        NotStored::NoFreshness,
        NotStored::TooLong,
        NotStored::DiskBehind,
        NotStored::Address,
        NotStored::Portal,
        NotStored::Hook,
        NotStored::Icap,
        NotStored::OtherVariant,
        NotStored::Coded,
    ];

    /// Whether it says something of the next answer under the same key: a portal's page says nothing of the URL, a disk that is behind
    /// nothing of later, a part that another variant stands in the way of nothing of what others ask for, and the next answer is stored
    /// without the coding that the last one had.
    pub fn is_of_key(self) -> bool {
        !matches!(self, NotStored::Portal | NotStored::DiskBehind | NotStored::OtherVariant | NotStored::Coded)
    }

    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            NotStored::Method => "method",
            NotStored::RequestBody => "request-body",
            NotStored::RequestNoStore => "request-no-store",
            NotStored::Status => "status",
            NotStored::MustUnderstand => "must-understand",
            NotStored::NoStore => "no-store",
            NotStored::Private => "private",
            NotStored::Authorization => "authorization",
            NotStored::VaryAny => "vary-any",
            NotStored::Partial => "partial",
            NotStored::NotExplicit => "not-explicit",
            NotStored::SetCookie => "set-cookie",
            NotStored::NoFreshness => "no-freshness",
            NotStored::TooLong => "too-long",
            NotStored::DiskBehind => "disk-behind",
            NotStored::OtherVariant => "other-variant",
            NotStored::Coded => "coded",
            NotStored::Address => "address",
            NotStored::Portal => "portal",
            NotStored::Hook => "hook",
            NotStored::Icap => "icap",
        }
    }
}

/// Decides whether the response to a request may be kept, and on which terms.
///
/// A shared cache leaves what sets a cookie to the one who asked, unless the origin or the settings say otherwise (see
/// [`audience`]).
pub fn storable(request: &RequestHead, response: &ResponseHead, times: Times, settings: &Settings) -> Storable {
    let directives = Directives::of(response, settings);
    if let Err(why) = may_store(request, response, &directives.control, settings) {
        return Storable::No(why);
    }
    match Vary::of(request, response) {
        None => Storable::No(NotStored::VaryAny),
        Some(vary) => worth_keeping(
            response,
            &directives,
            terms(Some(request), response, &directives, vary, times, settings),
            settings,
        ),
    }
}

/// The terms of a response as its fields give them, permitted or not.
pub(super) fn terms(
    asked: Option<&RequestHead>,
    response: &ResponseHead,
    directives: &Directives,
    vary: Vary,
    times: Times,
    settings: &Settings,
) -> Terms {
    let control = &directives.control;
    let shared = settings.mode == Mode::Shared;
    let date = freshness::date(&response.fields, times.received);
    let (lifetime, source) = freshness::lifetime(asked, response, directives, (date, times.received), settings);
    let grace = by_rule::grace(asked, source, response, control, settings);
    let mut terms = Terms {
        received: times.received,
        initial_age: freshness::initial_age(response, date, times),
        date,
        lifetime,
        source,
        // `s-maxage` implies `proxy-revalidate` (RFC 9111 section 5.2.2.10).
        must_revalidate: control.must_revalidate
            || (shared && (control.proxy_revalidate || control.s_maxage.is_some())),
        no_cache: control.no_cache == Some(Names::All),
        grace,
        immutable: control.immutable,
        etag: ETag::of(&response.fields),
        last_modified: freshness::last_modified(&response.fields, times.received),
        vary,
        coded: None,
    };
    by_hook::give(&mut terms, asked, response, control, settings);
    terms
}

/// The reason that forbids keeping a response whatever its terms; a validated response must not have got one either.
pub(super) fn forbidden(status: u16, control: &CacheControl, settings: &Settings) -> Option<NotStored> {
    if control.must_understand && !is_understood(status) {
        return Some(NotStored::MustUnderstand);
    }
    // A cache that understands the status may overlook the `no-store` beside `must-understand` (RFC 9111 section 5.2.2.3).
    if control.no_store && !control.must_understand {
        return Some(NotStored::NoStore);
    }
    let private = settings.mode == Mode::Shared && control.private == Some(Names::All);
    private.then_some(NotStored::Private)
}

fn may_store(
    request: &RequestHead,
    response: &ResponseHead,
    control: &CacheControl,
    settings: &Settings,
) -> Result<(), NotStored> {
    if request.method != Method::Get {
        return Err(NotStored::Method);
    }
    if has_body(request) {
        return Err(NotStored::RequestBody);
    }
    if request.fields.contains("Cache-Control") && CacheControl::of(&request.fields).no_store {
        return Err(NotStored::RequestNoStore);
    }
    if !is_keepable(response.status) {
        return Err(NotStored::Status);
    }
    if let Some(why) = forbidden(response.status, control, settings) {
        return Err(why);
    }
    if audience::is_for_authorized(request, control, settings) {
        return Err(NotStored::Authorization);
    }
    if response.status == 206 && !is_one_range(request, response) {
        return Err(NotStored::Partial);
    }
    Ok(())
}

/// Whether the answer to a request may change what is stored for everybody: a 304, the answer to a HEAD, a part of it. An
/// answer that would not be stored for others because of who asked or what cookie it sets does not reach them through
/// the head of a stored one either. The answer to an unsafe method is exempt: by RFC 9111 section 4.4 it makes void
/// what is stored, whichever client sent the request.
pub fn may_update(request: &RequestHead, response: &ResponseHead, settings: &Settings) -> Result<(), NotStored> {
    let control = Directives::of(response, settings).control;
    if audience::is_for_authorized(request, &control, settings) {
        return Err(NotStored::Authorization);
    }
    // No part of the answer to such a request is to be stored, its fields neither (RFC 9111 section 5.2.1.5).
    if Asked::of(request).no_store() {
        return Err(NotStored::RequestNoStore);
    }
    match audience::cookie(&response.fields, &control, settings) {
        Cookie::ForOne => Err(NotStored::SetCookie),
        Cookie::Stays | Cookie::Goes => Ok(()),
    }
}

/// The last condition of RFC 9111 section 3, and whether keeping is of any use.
fn worth_keeping(response: &ResponseHead, directives: &Directives, terms: Terms, settings: &Settings) -> Storable {
    let private = settings.mode == Mode::Private && directives.control.private.is_some();
    let explicit = directives.control.public || private || terms.source.is_explicit();
    let is_given = matches!(terms.source, LifetimeSource::Rule | LifetimeSource::Hook);
    if !explicit && !is_given && !freshness::is_heuristic_status(response.status) {
        return Storable::No(NotStored::NotExplicit);
    }
    let unlabelled = settings.mode == Mode::Shared && !explicit && response.fields.contains("Set-Cookie");
    if unlabelled || audience::cookie(&response.fields, &directives.control, settings) == Cookie::ForOne {
        return Storable::No(NotStored::SetCookie);
    }
    if response.status == 206 && !terms.has_strong_validator() {
        return Storable::No(NotStored::Partial);
    }
    if !terms.has_validator() && !is_ever_served(&terms, settings) {
        return Storable::No(NotStored::NoFreshness);
    }
    Storable::Yes(terms)
}

/// Without a validator a response is served while fresh, or stale within a window, or never.
fn is_ever_served(terms: &Terms, settings: &Settings) -> bool {
    let grace = match terms.must_revalidate {
        true => 0,
        false => {
            let on_error = terms.stale_if_error().or(settings.stale_if_error_seconds);
            let behind = terms.stale_while_revalidate().or(settings.stale_while_revalidate_seconds);
            on_error.max(behind).unwrap_or(0)
        }
    };
    !terms.no_cache && terms.lifetime.saturating_add(grace) > terms.initial_age
        // A negative entry of no time, or a heuristic of none, has nothing to be served by.
        && (terms.source != LifetimeSource::None || grace > 0)
}

/// A final status whose response answers the URL, not one request's own fields: 304, 412, 416 and 417 are
/// about conditions, ranges and expectations, 407, 408, 421 and 425 about a connection; 428, 429, 431 and
/// 511 must not be kept (RFC 6585).
fn is_keepable(status: u16) -> bool {
    (200..1000).contains(&status)
        && !matches!(status, 304 | 407 | 408 | 412 | 416 | 417 | 421 | 425 | 428 | 429 | 431 | 511)
}

/// The statuses of RFC 9110 (and 451) that [`is_keepable`]: their caching rules are obeyed here.
fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=206 | 300..=303 | 305..=308 | 400..=406 | 409..=411 | 413..=415 | 422 | 426 | 451 | 500..=505
    )
}

/// One range that was asked for and whose place is known; of a multipart answer no byte is kept.
fn is_one_range(request: &RequestHead, response: &ResponseHead) -> bool {
    request.fields.contains("Range")
        && response.fields.count("Content-Range") == 1
        && response.fields.get("Content-Range").and_then(ContentRange::parse).is_some()
}
