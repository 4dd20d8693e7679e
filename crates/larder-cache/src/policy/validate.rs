//! Asking the origin whether a stored response still holds, and taking in its answer (RFC 9111 section 4.3).

use larder_wire::date::{Stamp, format_date, parse_date};
use larder_wire::etag::ETag;
use larder_wire::{Fields, RequestHead, ResponseHead};

use super::freshness::{self, Directives};
use super::{
    NotStored, Settings, Terms, Times, Vary, by_hook, coded, head_to_store, may_update, storable, stored_head,
};

/// Fields that a 304 or the like must not change: each describes the bytes that are stored, and a wrong word in a
/// message without a body would make them unreadable (RFC 9111 section 3.2).
const NOT_FRESHENED: [&str; 6] =
    ["Content-Length", "Content-Encoding", "Content-Type", "Content-Range", "Content-Digest", "Content-MD5"];

/// Makes a request into a validation of what is stored: the client's `If-None-Match` and `If-Modified-Since` give
/// way to the entity tags of all stored variants, and to the modification time when only one is stored (RFC
/// 9111 section 4.3.1). Says whether there was anything to ask by.
///
/// `If-Match`, `If-Unmodified-Since`, `Range` and `If-Range` stay: the first two are the origin's to judge, and the
/// other two belong together and are judged after ours (RFC 9110 section 13.2.2).
pub fn conditional<'a>(fields: &mut Fields, stored: impl Iterator<Item = (&'a ResponseHead, &'a Terms)>) -> bool {
    fields.remove("If-None-Match");
    fields.remove("If-Modified-Since");
    let (mut tags, mut modified, mut count) = (Vec::new(), None, 0);
    for (_, terms) in stored {
        count += 1;
        modified = terms.last_modified;
        if let Some(etag) = &terms.etag {
            if !tags.is_empty() {
                tags.extend_from_slice(b", ");
            }
            etag.write_to(&mut tags);
        }
    }
    let modified = modified.filter(|_| count == 1);
    if let Some(modified) = modified {
        fields.push("If-Modified-Since", format_date(modified));
    }
    if !tags.is_empty() {
        fields.push("If-None-Match", &tags);
    }
    modified.is_some() || !tags.is_empty()
}

/// The places, in a set of stored responses that a validation asked about, of those that a 304 updates (RFC 9111
/// section 4.3.4): all with its strong validator; else the newest with its weak one; else, when it has no
/// validator at all, the only one there was.
pub fn named_by(set: &[(&ResponseHead, &Terms)], validation: &ResponseHead) -> Vec<usize> {
    let says = Validators::of(&validation.fields);
    if says.etag.is_none() && says.modified.is_none() {
        return if set.len() == 1 { vec![0] } else { Vec::new() };
    }
    let named = set.iter().enumerate().filter(|(_, (_, terms))| says.same(terms));
    if says.is_strong() {
        return named.map(|(at, _)| at).collect();
    }
    named.max_by_key(|(_, (_, terms))| (terms.date, terms.received)).map(|(at, _)| at).into_iter().collect()
}

/// True when a 304 updates this stored response, the only one that was asked about.
pub fn freshened_by(stored: &ResponseHead, terms: &Terms, validation: &ResponseHead) -> bool {
    !named_by(&[(stored, terms)], validation).is_empty()
}

/// The validators of a response as it arrives.
struct Validators {
    etag: Option<ETag>,
    modified: Option<Stamp>,
    date: Option<Stamp>,
}

impl Validators {
    fn of(fields: &Fields) -> Validators {
        let read = |name| fields.get(name).and_then(parse_date);
        Validators { etag: ETag::of(fields), modified: read("Last-Modified"), date: read("Date") }
    }

    fn is_strong(&self) -> bool {
        match &self.etag {
            Some(etag) => !etag.weak,
            None => self.is_strongly_dated(),
        }
    }

    fn is_strongly_dated(&self) -> bool {
        self.modified.zip(self.date).is_some_and(|(modified, date)| is_strong_date(modified, date))
    }

    /// Entity tags decide where both have one; times decide where the stored response has none.
    fn same(&self, terms: &Terms) -> bool {
        match (&self.etag, &terms.etag) {
            (Some(new), Some(held)) if !new.weak => new.strong_eq(held),
            (Some(new), Some(held)) => new.weak_eq(held),
            (Some(new), None) if !new.weak && !self.is_strongly_dated() => false,
            _ => self.modified.is_some() && self.modified == terms.last_modified,
        }
    }
}

/// A modification time is a strong validator when it lies so far before `Date` that no second change can hide in it
/// (RFC 9110 section 8.8.2.2). A minute also covers clocks that differ.
pub(super) fn is_strong_date(modified: Stamp, date: Stamp) -> bool {
    date >= modified.plus(60)
}

/// The stored head with the fields of a validation in place of its own (RFC 9111 section 3.2), except those that
/// describe the stored bytes. Without a `Date` in the validation there is none afterwards: the old one would
/// make the response look as old as before; [`super::dated`] adds the time of arrival.
pub fn freshen(stored: &ResponseHead, validation: &ResponseHead) -> ResponseHead {
    let mut update = validation.fields.clone();
    stored_head::strip_update(&mut update);
    updated(stored, update)
}

/// The stored head as the one gets it whose request brought the validation, or a part: with its fields in place of those
/// stored, also those that are for him alone. It is never stored. The terms say how old it is.
pub fn answer_to_asker(
    (stored, held): (&ResponseHead, &Terms),
    validation: &ResponseHead,
    times: Times,
    settings: &Settings,
) -> (ResponseHead, Terms) {
    let mut update = validation.fields.clone();
    stored_head::strip_hop(&mut update);
    let mut head = updated(&coded::as_of_origin(stored, held), update);
    let vary = if held.vary.is_by_choice() { held.vary.clone() } else { Vary::default() };
    let mut terms = storable::terms(None, &head, &Directives::of(&head, settings), vary, times, settings);
    terms.initial_age = freshness::initial_age(validation, terms.date, times);
    terms.coded = held.coded;
    coded::as_before(&mut head, held);
    super::dated(&mut head, times.received);
    (head, terms)
}

fn updated(stored: &ResponseHead, mut update: Fields) -> ResponseHead {
    update.retain(|name, _| !NOT_FRESHENED.iter().any(|other| other.eq_ignore_ascii_case(name)));
    let mut head = stored.clone();
    head.fields.retain(|name, _| !name.eq_ignore_ascii_case("Date") && !update.contains(name));
    for (name, value) in update.iter() {
        head.fields.push(name, value);
    }
    head
}

/// A stored response after the validation that named it: its new head, ready to be kept, and its new terms.
/// `Err` when the validation forbids keeping it on; it may then answer this request. Where it is for this request alone
/// ([`may_update`]) the stored response stays what it was, else it is dropped.
///
/// The variant stays the one it was, whoever's request brought the validation, unless the validation changed what
/// the response varies by.
pub fn renew(
    request: &RequestHead,
    (stored, terms): (&ResponseHead, &Terms),
    validation: &ResponseHead,
    times: Times,
    settings: &Settings,
) -> Result<(ResponseHead, Terms), NotStored> {
    may_update(request, validation, settings)?;
    let mut head = freshen(&coded::as_of_origin(stored, terms), validation);
    let directives = Directives::of(&head, settings);
    if let Some(why) = storable::forbidden(head.status, &directives.control, settings) {
        return Err(why);
    }
    let asked = coded::vary_as_before(Vary::of(request, &head).ok_or(NotStored::VaryAny)?, terms);
    let vary = if asked.names().eq(terms.vary.names()) { terms.vary.clone() } else { asked };
    let mut renewed = storable::terms(Some(request), &head, &directives, vary, times, settings);
    // `Age` is in the validation only: stored heads have none.
    renewed.initial_age = freshness::initial_age(validation, renewed.date, times);
    by_hook::give(&mut renewed, Some(request), &head, &directives.control, &by_hook::go_on(settings, terms));
    head = head_to_store(&head, settings);
    if terms.coded.is_some() && coded::is_forbidden(&head.fields) {
        return Err(NotStored::Coded);
    }
    renewed.coded = terms.coded;
    coded::as_before(&mut head, terms);
    super::dated(&mut head, times.received);
    Ok((head, renewed))
}

/// The verdict of the answer to a HEAD on a stored response to GET (RFC 9111 section 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSays {
    /// It still holds: [`renew`] it.
    Freshens,
    /// It has changed: [`Terms::expire`] it.
    Invalidates,
    /// Nothing: the answer was no 200, or has nothing to be compared.
    Nothing,
}

impl HeadSays {
    /// The word that logs and pages show.
    pub fn as_str(self) -> &'static str {
        match self {
            HeadSays::Freshens => "freshens",
            HeadSays::Invalidates => "invalidates",
            HeadSays::Nothing => "nothing",
        }
    }
}

/// Compares the answer to a HEAD with a stored response: every validator it has must be the stored one, and so must
/// its length. One that has neither is compared with nothing: it may be of another version, whose fields would then stand
/// beside the bytes that are stored.
pub fn head_says(stored: &ResponseHead, terms: &Terms, response: &ResponseHead) -> HeadSays {
    // The length that the origin states is not the one of a body that was coded here.
    let comparable = &["ETag", "Last-Modified", "Content-Length"][..if terms.coded.is_some() { 2 } else { 3 }];
    if response.status != 200 || !comparable.iter().any(|name| response.fields.contains(name)) {
        return HeadSays::Nothing;
    }
    let says = Validators::of(&response.fields);
    let fields = [&response.fields, &stored.fields];
    let [length, held_length] = fields.map(|fields| fields.get("Content-Length"));
    let holds = stored.status == 200
        && (!response.fields.contains("ETag") || says.etag == terms.etag)
        && (!response.fields.contains("Last-Modified") || says.modified == terms.last_modified)
        && (length.is_none() || terms.coded.is_some() || length == held_length);
    if holds { HeadSays::Freshens } else { HeadSays::Invalidates }
}
