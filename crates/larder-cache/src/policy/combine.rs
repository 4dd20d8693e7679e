//! Putting partial responses together (RFC 9111 sections 3.3 and 3.4, RFC 9110 section 15.3.7.3).

use larder_wire::date::{Stamp, parse_date};
use larder_wire::etag::ETag;
use larder_wire::range::ContentRange;
use larder_wire::{RequestHead, ResponseHead};

use super::freshness::Directives;
use super::validate::is_strong_date;
use super::{
    NotStored, Settings, Storable, Terms, Times, by_hook, coded, dated, freshen, freshness, head_to_store, may_update,
    storable,
};

/// True when the bytes of a new response (200 or 206) and those stored are of one representation: both carry the
/// same strong validator and no length says otherwise. `stored` is a head as [`whole_head`] makes it or a 206.
pub fn may_combine(stored: &ResponseHead, new: &ResponseHead) -> bool {
    let representation = |head: &ResponseHead| matches!(head.status, 200 | 206);
    if !representation(stored) || !representation(new) || coding(stored) != coding(new) {
        return false;
    }
    let lengths = complete_len(stored).zip(complete_len(new));
    lengths.is_none_or(|(held, new)| held == new) && same_strong_validator(stored, new)
}

/// The head of what is stored after a response that [`may_combine`] brought more of it: the newer fields count
/// (RFC 9111 section 3.4), the length and the status stay.
pub fn combined_head(stored: &ResponseHead, new: &ResponseHead) -> ResponseHead {
    let mut head = freshen(stored, new);
    if head.status == 200
        && !head.fields.contains("Content-Length")
        && let Some(len) = complete_len(new)
    {
        head.fields.push("Content-Length", len.to_string());
    }
    head
}

/// A stored response after a part that [`may_combine`] filled a hole of it: its new head, ready to be kept, and its new
/// terms. The newer fields count (RFC 9111 section 3.4), but it is as old as the oldest of its parts: the part does not
/// say of the others that they were validated. `Err` when the part forbids it.
pub fn completed(
    request: &RequestHead,
    (stored, terms): (&ResponseHead, &Terms),
    part: &ResponseHead,
    times: Times,
    settings: &Settings,
) -> Result<(ResponseHead, Terms), NotStored> {
    may_update(request, part, settings)?;
    let mut head = combined_head(stored, part);
    dated(&mut head, times.received);
    let settings_now = by_hook::go_on(settings, terms);
    match storable(request, &head, times, &settings_now) {
        Storable::No(why) => Err(why),
        Storable::Yes(mut renewed) => {
            renewed.vary = coded::vary_as_before(renewed.vary, terms);
            coded::as_before(&mut head, terms);
            // `Age` is in the part only: stored heads have none.
            let of_part = freshness::initial_age(part, renewed.date, times);
            let initial_age = of_part.max(terms.age(times.received));
            if settings_now.hook.is_some() {
                give_by_hook(&mut renewed, terms, initial_age, (request, &head, times), &settings_now);
            } else {
                renewed.initial_age = initial_age;
            }
            Ok((head_to_store(&head, settings), renewed))
        }
    }
}

/// Fields that are about the content of one message: those of a part say nothing of the whole (RFC 9530 section 2).
const OF_CONTENT: [&str; 4] = ["Content-Range", "Content-Length", "Content-Digest", "Content-MD5"];

/// The head of the whole representation that a 206 is a part of: a 200 with the complete length when it is known, for
/// a store that keeps extents.
pub fn whole_head(partial: &ResponseHead) -> ResponseHead {
    let mut head = ResponseHead { fields: partial.fields.clone(), version: partial.version, ..ResponseHead::new(200) };
    OF_CONTENT.iter().for_each(|name| _ = head.fields.remove(name));
    if let Some(len) = complete_len(partial) {
        head.fields.push("Content-Length", len.to_string());
    }
    head
}

/// The length of the whole, as far as the head says.
fn complete_len(head: &ResponseHead) -> Option<u64> {
    match head.status {
        206 => head.fields.get("Content-Range").and_then(ContentRange::parse).and_then(|range| range.len),
        _ => head.fields.text("Content-Length").and_then(|len| len.parse().ok()),
    }
}

fn coding(head: &ResponseHead) -> Option<&[u8]> {
    head.fields.get("Content-Encoding")
}

/// Entity tags decide when either has one; a time must be strong in both.
fn same_strong_validator(stored: &ResponseHead, new: &ResponseHead) -> bool {
    match (ETag::of(&stored.fields), ETag::of(&new.fields)) {
        (Some(held), Some(new)) => held.strong_eq(&new),
        (None, None) => {
            let times = strong_date(stored).zip(strong_date(new));
            times.is_some_and(|(held, new)| held == new)
        }
        _ => false,
    }
}

fn strong_date(head: &ResponseHead) -> Option<Stamp> {
    let read = |name| head.fields.get(name).and_then(parse_date);
    let modified = read("Last-Modified")?;
    read("Date").is_some_and(|date| is_strong_date(modified, date)).then_some(modified)
}

/// Puts the terms of hooks in force for a response of which a part arrived: `renewed` are its terms by the newer fields, and its age is
/// that of its oldest part. The time that hooks gave to the parts before is not prolonged.
fn give_by_hook(
    renewed: &mut Terms,
    stored: &Terms,
    initial_age: u64,
    (asked, head, times): (&RequestHead, &ResponseHead, Times),
    settings: &Settings,
) {
    let directives = Directives::of(head, settings);
    // As the origin gives them: hooks count from this arrival on, whatever the age is by then.
    let of_origin = Settings { hook: None, ..settings.clone() };
    *renewed = storable::terms(Some(asked), head, &directives, renewed.vary.clone(), times, &of_origin);
    renewed.initial_age = initial_age;
    by_hook::give(renewed, Some(asked), head, &directives.control, settings);
    let given_before = stored.grace.as_ref().and_then(|grace| grace.hook()).and_then(|hook| hook.ttl_seconds);
    if given_before.is_some() {
        let left = u64::try_from(stored.remaining(times.received)).unwrap_or(0);
        renewed.lifetime = renewed.lifetime.min(initial_age.saturating_add(left));
    }
}
