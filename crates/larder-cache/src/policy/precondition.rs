//! The client's own conditions, judged on a stored response (RFC 9111 section 4.3.2, RFC 9110 section 13).

use larder_wire::date::parse_date;
use larder_wire::etag::{ETag, ETagList};
use larder_wire::{Fields, Method, RequestHead, ResponseHead};

use super::validate::is_strong_date;

/// The outcome of a request's conditions for the response that would answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Send it.
    Proceed,
    /// The client has it: send 304.
    NotModified,
    /// `If-Match` or `If-Unmodified-Since` does not hold for what is stored. These are the origin's to judge, for what
    /// is stored may be the older one: forward the request; 412 is not a cache's answer (RFC 9110 section 13.2.2).
    Failed,
}

impl Precondition {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            Precondition::Proceed => "proceed",
            Precondition::NotModified => "not-modified",
            Precondition::Failed => "failed",
        }
    }
}

/// Judges the conditions of a GET or HEAD in the order of RFC 9110 section 13.2.2. They count only for a stored
/// response that would succeed (section 13.2.1).
pub fn precondition(request: &RequestHead, stored: &ResponseHead) -> Precondition {
    let fields = &request.fields;
    if !(200..300).contains(&stored.status) || !matches!(request.method, Method::Get | Method::Head) {
        return Precondition::Proceed;
    }
    let has_not_changed = match ETagList::of(fields, "If-Match") {
        Some(list) => list.matches_strong(ETag::of(&stored.fields).as_ref()),
        None => !is_modified_after(fields, "If-Unmodified-Since", &stored.fields, Otherwise::Unknown),
    };
    if !has_not_changed {
        return Precondition::Failed;
    }
    let has_it = match ETagList::of(fields, "If-None-Match") {
        Some(list) => list.matches_weak(ETag::of(&stored.fields).as_ref()),
        None => {
            only(fields, "If-Modified-Since").and_then(parse_date).is_some()
                && !is_modified_after(fields, "If-Modified-Since", &stored.fields, Otherwise::Date)
        }
    };
    if has_it { Precondition::NotModified } else { Precondition::Proceed }
}

/// Whether a `Range` may be answered with a part of a stored response: it is a GET, the stored response is the
/// representation, and `If-Range`, when there is one, names it by a strong validator (RFC 9110 sections 13.1.5 and
/// 14.2). Otherwise the range is ignored and the whole is sent.
///
/// `by_choice`: the stored response is coded by this cache, or might have been ([`super::Vary::is_by_choice`]).
pub fn range_applies(request: &RequestHead, stored: &ResponseHead, by_choice: bool) -> bool {
    let fields = &request.fields;
    let asked = request.method == Method::Get && only(fields, "Range").is_some();
    if !asked || !matches!(stored.status, 200 | 206) {
        return false;
    }
    if by_choice {
        // One modification time is that of all codings of a body.
        return names_strongly(fields, ETag::of(&stored.fields).as_ref());
    }
    if !fields.contains("If-Range") {
        return true;
    }
    let Some(condition) = only(fields, "If-Range") else { return false };
    if let Some(tag) = ETag::parse(condition) {
        return ETag::of(&stored.fields).is_some_and(|held| tag.strong_eq(&held));
    }
    let read = |name| only(&stored.fields, name).and_then(parse_date);
    match (parse_date(condition), read("Last-Modified"), read("Date")) {
        (Some(condition), Some(modified), Some(date)) => condition == modified && is_strong_date(modified, date),
        _ => false,
    }
}

/// Whether `If-Range` names a response that has this entity tag, or there is none.
pub(super) fn names_strongly(fields: &Fields, tag: Option<&ETag>) -> bool {
    let named = || ETag::parse(only(fields, "If-Range")?);
    !fields.contains("If-Range") || named().zip(tag).is_some_and(|(named, tag)| named.strong_eq(tag))
}

/// The time of change that counts for a response without `Last-Modified`.
enum Otherwise {
    /// Nothing, so that it has changed.
    Unknown,
    /// Its `Date` (RFC 9111 section 4.3.2).
    Date,
}

/// True when the condition has a valid time and the stored response changed after it. A time that is none, or
/// several, is no condition (RFC 9110 sections 13.1.3 and 13.1.4).
fn is_modified_after(fields: &Fields, condition: &str, stored: &Fields, otherwise: Otherwise) -> bool {
    let Some(since) = only(fields, condition).and_then(parse_date) else { return false };
    let read = |name| stored.get(name).and_then(parse_date);
    let changed = match otherwise {
        Otherwise::Unknown => read("Last-Modified"),
        Otherwise::Date => read("Last-Modified").or_else(|| read("Date")),
    };
    changed.is_none_or(|changed| changed > since)
}

/// The value of a field that stands on exactly one line.
fn only<'a>(fields: &'a Fields, name: &str) -> Option<&'a [u8]> {
    fields.get(name).filter(|_| fields.count(name) == 1)
}
