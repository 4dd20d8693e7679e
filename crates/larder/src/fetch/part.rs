//! Parts of an object: the requests to the origin for them, and the meaning of its responses (RFC 9110 sections 13.1.5, 14 and
//! 15.3.7).
//!
//! The rule: a client's range of an object that is not stored is requested from the origin (the first range, if there are
//! several), and so is each hole of a stored object, with `If-Range`. When at least half of an object is stored after an answer
//! and not more than `abandoned_bytes_max` are missing, the rest is fetched in the background.

use super::{Fetch, FetchKind, Keepable, OriginAnswer, start_detached};
use crate::env::Env;
use crate::rules::Ask;
use crate::upstream::RangesFound;
use larder_cache::cache::Fill;
use larder_cache::entry::{Entry, PinnedEntry};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, NotStored, Terms, Times};
use larder_wire::date::format_date;
use larder_wire::range::{self, ContentRange, RangeSpec};
use larder_wire::{Fields, RequestHead, ResponseHead};
use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

/// Whether a request has a range, and its first one is not the whole object (`bytes=0-`): then only that part is fetched.
pub fn asks_part(request: &RequestHead) -> bool {
    let Some(specs) = request.fields.get("Range").and_then(range::parse_range) else { return false };
    specs[0] != RangeSpec::From(0)
}

/// Removes conditions and ranges, to request the whole object.
pub(super) fn ask_whole(fields: &mut Fields) {
    for name in ["Range", "If-Range", "If-None-Match", "If-Modified-Since"] {
        fields.remove(name);
    }
}

/// Requests the first range that the client asks for: while the length is unknown, several can't be combined.
pub(super) fn ask_first(fields: &mut Fields) {
    fields.remove("If-None-Match");
    fields.remove("If-Modified-Since");
    let Some(specs) = fields.get("Range").and_then(range::parse_range) else { return };
    let first = match specs[0] {
        RangeSpec::Between { first, last } => format!("bytes={first}-{last}"),
        RangeSpec::From(first) => format!("bytes={first}-"),
        RangeSpec::Suffix(count) => format!("bytes=-{count}"),
    };
    fields.set("Range", first);
}

/// Requests the bytes of a hole, on condition that the representation is the same (RFC 9110 sections 13.1.1 and 13.1.5).
pub(super) fn ask_hole(fields: &mut Fields, fill: &Fill) {
    let Some(terms) = fill.entry().stored_head().and_then(|kept| kept.terms.clone()) else { return };
    let hole = fill.hole();
    fields.set("Range", format!("bytes={}-{}", hole.start, hole.end - 1));
    match (&terms.etag, terms.last_modified) {
        (Some(etag), _) => {
            let mut tag = Vec::new();
            etag.write_to(&mut tag);
            // By `If-Match` an origin answers 412 when the object has changed, rather than sending all of it.
            fields.set("If-Match", &tag);
            fields.set("If-Range", tag);
        }
        (None, Some(modified)) => fields.set("If-Range", format_date(modified)),
        (None, None) => {}
    }
}

/// The part that a 206 brings and the length of the whole, when it says both.
pub(super) fn whole_of(head: &ResponseHead) -> Option<(Range<u64>, u64)> {
    let part = head.fields.get("Content-Range").and_then(ContentRange::parse)?;
    Some((part.range(), part.len?))
}

/// The meaning of the response to a request for a hole.
pub(super) enum Filled {
    /// The bytes of the hole follow; with the head of the object for this client.
    By(Box<(Fill, StoredHead)>),
    /// The origin has another representation now, or no object: this response replaces the stored one.
    ByAnother,
    /// The response can't be used: the stored one is void, or the bytes are for this client alone.
    AskAgain,
}

/// The longest new object that is taken whole where only a part of it was asked for.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the answer to a request for a hole.
pub(super) fn fill(fetch: &Fetch, mut fill: Fill, answer: &OriginAnswer) -> Filled {
    let times = answer.times;
    // A response without `Date` gets that of its arrival (RFC 9110 section 6.6.1): `Last-Modified` is a strong validator only
    // together with a `Date`.
    let mut head = answer.head.clone();
    policy::dated(&mut head, times.received);
    let head = &head;
    let entry = fill.entry().clone();
    let keepable = fetch.keepable(answer);
    // Without readers the hole belongs to an answer that has begun, which can't be begun again with another representation.
    let may_ask_again = fetch.writer.readers() > 0;
    let is_refused = matches!(head.status, 200 | 206) && may_ask_again && is_refused(fetch, &entry, head, times);
    if is_refused && keepable != Keepable::No {
        fetch.env.common.cache.drop_entry(&entry);
    }
    if is_refused || keepable == Keepable::No || !fetch.speaks_for_all(head) {
        // Other requests that wait for these bytes fetch them for themselves. An answer that has begun fails instead: its reader
        // would request the same hole again and again.
        if fetch.writer.readers() > 0 {
            fill.give_back();
        }
        let ask_again = keepable == Keepable::No || head.status == 206 || head.status == 412;
        return if ask_again { Filled::AskAgain } else { Filled::ByAnother };
    }
    let cache = &fetch.env.common.cache;
    match head.status {
        206 => {
            // The head is updated before waiting readers are woken, so that they see its age.
            if let Some((bytes, _)) = whole_of(head).filter(|_| continues(fetch, &entry, head))
                && let Some(own) = renew(fetch, &entry, head, times)
                && fill.confirm(&bytes)
            {
                let upstreams = &fetch.env.upstreams;
                if entry.length() >= Some(upstreams.range_pace().object_bytes_min) {
                    upstreams.ranges_found(fetch.ask.connects_to(), RangesFound::Proven);
                }
                return Filled::By(Box::new((fill, own)));
            }
            cache.drop_entry(&entry);
            Filled::AskAgain
        }
        412 | 416 => {
            cache.drop_entry(&entry);
            Filled::AskAgain
        }
        // The origin sends all of the same object where only a part was asked for.
        200 if continues(fetch, &entry, head) => {
            let Some(own) = renew(fetch, &entry, head, times) else { return Filled::AskAgain };
            fill.confirm_from_start();
            Filled::By(Box::new((fill, own)))
        }
        200 => {
            cache.drop_entry(&entry);
            // A request for a part gets only a part of the new object, unless the object is short.
            let short = head.fields.text("Content-Length").and_then(|length| length.parse().ok());
            let short = short.is_some_and(|length: u64| length <= WHOLE_BYTES_MAX);
            if short || !asks_part(&fetch.request) { Filled::ByAnother } else { Filled::AskAgain }
        }
        404 | 410 => {
            cache.drop_entry(&entry);
            Filled::ByAnother
        }
        _ => Filled::ByAnother,
    }
}

/// The stored head with its `Content-Length`, as [`policy::may_combine`] needs it.
fn stored_head(entry: &Entry, kept: &StoredHead) -> ResponseHead {
    let mut head = kept.head.clone();
    if let Some(length) = entry.length() {
        head.fields.set("Content-Length", length.to_string());
    }
    head
}

fn continues(fetch: &Fetch, entry: &Entry, head: &ResponseHead) -> bool {
    fetch.may_combine_parts(head)
        && entry.stored_head().is_some_and(|kept| policy::may_combine(&stored_head(entry, &kept), head))
}

/// Whether a part says that the object may not be stored any more (`private`, `no-store`, …). Then its bytes are for this
/// client alone, and other requests that wait for them fetch them for themselves.
fn is_refused(fetch: &Fetch, entry: &Entry, head: &ResponseHead, times: Times) -> bool {
    let kept = entry.stored_head();
    let Some((kept, terms)) = kept.as_ref().and_then(|kept| Some((kept, kept.terms.as_ref()?))) else { return false };
    let stored = stored_head(entry, kept);
    // A response that depends on the authenticated user must not change what others get.
    policy::may_update(&fetch.request, head, fetch.policy()).is_ok()
        && policy::may_combine(&stored, head)
        && policy::completed(&fetch.request, (&stored, terms), head, times, fetch.policy()).is_err()
}

/// Updates the stored head by a part (RFC 9111 section 3.4), and gives the head for this client. Of a part with `Set-Cookie`
/// only its bytes, which the validator vouches for, and its age are used: the stored fields stay as they are.
fn renew(fetch: &Fetch, entry: &PinnedEntry, head: &ResponseHead, times: Times) -> Option<StoredHead> {
    let kept = entry.stored_head()?;
    let terms = kept.terms.as_ref()?;
    let by_rule = fetch.policy_by_rule(&kept.head);
    let settings = by_rule.as_ref().unwrap_or_else(|| fetch.policy());
    let (mut own, mut own_terms) = policy::answer_to_asker((&kept.head, terms), head, times, settings);
    own.fields.remove("Content-Length");
    own_terms.initial_age = own_terms.initial_age.max(terms.age(times.received));
    let cache = &fetch.env.common.cache;
    match policy::completed(&fetch.request, (&stored_head(entry, &kept), terms), head, times, settings) {
        Ok((mut head, terms)) => {
            head.fields.remove("Content-Length");
            let head = StoredHead::new(head, Some(terms), times.received);
            cache.renew_by_part(entry, head, fetch.writer.epoch());
        }
        Err(NotStored::SetCookie) => {
            let older = Terms { received: times.received, initial_age: own_terms.initial_age, ..terms.clone() };
            let head = StoredHead::new(kept.head.clone(), Some(older), times.received);
            cache.renew_by_part(entry, head, fetch.writer.epoch());
        }
        // Requests that already have the entry get these bytes, no later one does.
        Err(_) => cache.drop_entry(entry),
    }
    Some(StoredHead::new(own, Some(own_terms), times.received))
}

/// The means to fetch more of an object while it is delivered.
pub struct Refill {
    /// The context of the worker.
    pub env: Rc<Env>,
    /// The URL, and the route to its origin.
    pub ask: Ask,
    /// The request that met the hole.
    pub request: Rc<RequestHead>,
    /// The address of the client.
    pub client: SocketAddr,
    /// The address that the client connected to, where the origin may be told of it.
    pub connected_to: Option<SocketAddr>,
    /// The request came through the listener of a `larder run`.
    pub for_run: bool,
}

impl Refill {
    /// Begins to fill a hole, in a task of its own; false when that is not possible.
    pub fn begin(&self, entry: &PinnedEntry, hole: &Range<u64>) -> bool {
        let Some(fetch) = self.fetch(entry, hole) else { return false };
        start_detached(fetch);
        true
    }

    /// Begins to fetch the rest of an object where the rule at the top of this file says so.
    pub fn begin_rest(self: Box<Refill>, entry: PinnedEntry) {
        // Nearly every object is whole, and this check costs less than a task.
        if entry.is_whole() || !entry.is_mendable() {
            return;
        }
        tokio::task::spawn_local(async move {
            let bytes_max = self.env.common.cache.settings().abandoned_bytes_max;
            while let Some(hole) = entry.worthwhile_hole(bytes_max) {
                // Nobody waits for these bytes, so the fetch needs a permit.
                let Some(_leave) = self.env.upstreams.asked(self.ask.connects_to()).unread() else { return };
                let Some(mut fetch) = self.fetch(&entry, &hole) else { return };
                fetch.is_for_reader = false;
                Box::pin(super::run(fetch)).await;
                // The hole was not filled: the origin is in trouble, or has another representation.
                if entry.worthwhile_hole(bytes_max).is_some_and(|still| still.start <= hole.start) {
                    return;
                }
            }
        });
    }

    fn fetch(&self, entry: &PinnedEntry, hole: &Range<u64>) -> Option<Box<Fetch>> {
        Some(self.fetch_into(Fill::begin(entry, hole)?))
    }

    /// A fetch for a hole.
    pub(super) fn fetch_into(&self, fill: Fill) -> Box<Fetch> {
        let (_, writer) = self.env.common.cache.beside(fill.entry().key().text());
        Box::new(Fetch {
            env: Rc::clone(&self.env),
            ask: self.ask.clone(),
            request: Rc::clone(&self.request),
            client: self.client,
            connected_to: self.connected_to,
            for_run: self.for_run,
            is_for_reader: true,
            for_node: false,
            is_cold_copy: Cell::default(),
            kind: FetchKind::Hole,
            writer,
            fill: Some(fill),
            body: None,
            body_fault: None,
            posted: None,
            interim: None,
            silent_for: None,
            terms_by_hook: Cell::default(),
            notes: Rc::default(),
        })
    }
}
