//! Takes in a 304: the stored responses that it updates (RFC 9111 section 4.3.4).

use super::ask::OriginAnswer;
use super::{Fetch, Keepable};
use crate::icap::validation_of_judged;
use crate::record::Keeping;
use larder_cache::entry::PinnedEntry;
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, Terms, Times};
use larder_wire::ResponseHead;
use larder_wire::etag::ETag;
use std::sync::Arc;

/// The result of a 304.
pub(super) struct Validated {
    /// The stored response that answers the request.
    pub(super) entry: PinnedEntry,
    /// The head for the client that asked.
    pub(super) own: StoredHead,
    /// The stored response was updated, so that it answers other clients too.
    pub(super) for_all: bool,
}

/// Updates the stored responses that a 304 selects (RFC 9111 section 4.3.4). Gives the one that answers this request, if one
/// does.
pub(super) fn freshen(fetch: &Fetch, answer: &OriginAnswer) -> Option<Validated> {
    if fetch.keepable(answer) == Keepable::No {
        return None;
    }
    let (head, times) = (&answer.head, answer.times);
    let asked: Vec<(&PinnedEntry, &ResponseHead, &Terms)> = fetch.asked_about().collect();
    let set: Vec<(&ResponseHead, &Terms)> = asked.iter().map(|(_, head, terms)| (*head, *terms)).collect();
    let own = |stored: (&ResponseHead, &Terms), head| {
        let head = validation_of_judged(stored.0, head);
        let (head, terms) = policy::answer_to_asker(stored, &head, times, fetch.policy());
        StoredHead::new(head, Some(terms), times.received)
    };
    let Some(&at) = policy::named_by(&set, head).first() else {
        let (entry, stored, terms) = *asked.iter().find(|(_, _, terms)| is_weakly_named(terms, head))?;
        let mut head = head.clone();
        head.fields.remove("ETag");
        let for_all = renew(fetch, entry, (stored, terms), &head, times);
        return Some(Validated { entry: entry.clone(), own: own((stored, terms), &head), for_all });
    };
    let (chosen, stored_of_chosen, terms_of_chosen) = asked[at];
    let strong = ETag::of(&head.fields).filter(|tag| !tag.weak);
    let mut for_all = true;
    for (entry, stored, terms) in fetch.stored() {
        let named = strong.as_ref().is_some_and(|tag| terms.etag.as_ref().is_some_and(|own| own.strong_eq(tag)));
        if (named && !fetch.is_to_be_coded(terms)) || Arc::ptr_eq(entry, chosen) {
            for_all &= renew(fetch, entry, (stored, terms), head, times);
        }
    }
    Some(Validated { entry: chosen.clone(), own: own((stored_of_chosen, terms_of_chosen), head), for_all })
}

/// Updates one stored response by a 304; false when the 304 is for this client alone.
fn renew(
    fetch: &Fetch,
    entry: &PinnedEntry,
    stored: (&ResponseHead, &Terms),
    head: &ResponseHead,
    times: Times,
) -> bool {
    let by_rule = fetch.policy_by_rule(stored.0);
    let settings = by_rule.as_ref().unwrap_or_else(|| fetch.policy());
    let said = validation_of_judged(stored.0, head);
    let why = match policy::renew(&fetch.request, stored, &said, times, settings) {
        Ok((head, terms)) => {
            entry.renew(StoredHead::new(head, Some(terms), times.received), fetch.writer.epoch());
            return true;
        }
        Err(why) => why,
    };
    let cache = &fetch.env.common.cache;
    fetch.notes.keeping.replace(Some(Keeping::Not(why)));
    if why.is_of_key() {
        cache.mark_pass(fetch.writer.key().text(), times.received, why);
    }
    // A 304 for one user must not change what others get. One for all that forbids storing removes the stored response; this client gets its
    // body once more, coded or not.
    if policy::may_update(&fetch.request, &said, settings).is_ok() {
        cache.drop_entry(entry);
    }
    false
}

/// Servers that compress on the fly send `W/"x"` with a 200 and `"x"` with the 304 for it. The request had the weak tag and
/// the same fields as before, so the 304 means that stored response, which keeps its own tag.
fn is_weakly_named(terms: &Terms, head: &ResponseHead) -> bool {
    let said = ETag::of(&head.fields);
    said.is_some_and(|said| terms.etag.as_ref().is_some_and(|own| own.weak_eq(&said)))
}
