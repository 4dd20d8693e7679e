//! Parts of an object: what is asked of the origin for them, and what its answers mean (RFC 9110 sections 13.1.5, 14 and
//! 15.3.7).
//!
//! The rule for what is fetched: a client's range of an object that is not stored goes to the origin as it is asked (the
//! first of several), and so does each hole of a stored one, guarded by `If-Range`. When at least half of an object
//! is here after an answer and not more than `abandoned_bytes_max` are missing, the rest is fetched behind it.

use super::{Fetch, FetchKind, Keepable, OriginAnswer, start_detached};
use crate::env::Env;
use crate::rules::Ask;
use larder_cache::cache::Fill;
use larder_cache::entry::{Entry, PinnedEntry};
use larder_cache::head::StoredHead;
use larder_cache::policy::{self, NotStored, Terms, Times};
use larder_wire::date::format_date;
use larder_wire::range::{self, ContentRange, RangeSpec};
use larder_wire::{Fields, RequestHead, ResponseHead};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;

/// True when the request is for a part of an object, and asking for that part is enough.
pub fn asks_part(request: &RequestHead) -> bool {
    let Some(specs) = request.fields.get("Range").and_then(range::parse_range) else { return false };
    specs[0] != RangeSpec::From(0)
}

/// No conditions and no ranges.
pub(super) fn ask_whole(fields: &mut Fields) {
    for name in ["Range", "If-Range", "If-None-Match", "If-Modified-Since"] {
        fields.remove(name);
    }
}

/// The first range that the client asks for: the length is not known yet, so several can't be put together.
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

/// The bytes of a hole, as long as they are of the same representation (RFC 9110 sections 13.1.1 and 13.1.5).
pub(super) fn ask_hole(fields: &mut Fields, fill: &Fill) {
    let Some(terms) = fill.entry().stored_head().and_then(|kept| kept.terms.clone()) else { return };
    let hole = fill.hole();
    fields.set("Range", format!("bytes={}-{}", hole.start, hole.end - 1));
    match (&terms.etag, terms.last_modified) {
        (Some(etag), _) => {
            let mut tag = Vec::new();
            etag.write_to(&mut tag);
            // An origin that knows `If-Match` says 412 to it when the object has changed, rather than sending all of it.
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

/// What the answer to a request for a hole means.
pub(super) enum Filled {
    /// These are its bytes, and this is the head of the object for the one who asked.
    By(Box<(Fill, StoredHead)>),
    /// The origin has another representation now, or no object: this answer takes the place of what is stored.
    ByAnother,
    /// The answer is of no use: what is stored is void, or the bytes are for the one who asked alone.
    AskAgain,
}

/// A new object that is not longer is taken whole where a part of it was asked for.
const WHOLE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the answer to a request for a hole.
pub(super) fn fill(fetch: &Fetch, mut fill: Fill, answer: &OriginAnswer) -> Filled {
    let times = answer.times;
    // Its time is that of its arrival where the origin says none, as for every other answer (RFC 9110 section 6.6.1): a time
    // of change is a strong validator beside it only.
    let mut head = answer.head.clone();
    policy::dated(&mut head, times.received);
    let head = &head;
    let entry = fill.entry().clone();
    let keepable = fetch.keepable(&answer.connection);
    // An answer that has begun goes on with these bytes: it can't be begun anew.
    let may_ask_again = fetch.writer.readers() > 0;
    let is_refused = head.status == 206 && may_ask_again && is_refused(fetch, &entry, head, times);
    if is_refused && keepable != Keepable::No {
        fetch.env.common.cache.drop_entry(&entry);
    }
    if is_refused || keepable == Keepable::No || !fetch.speaks_for_all(head) {
        // Others who wait for these bytes ask for themselves. The rest of an answer that has begun is not to be had: who
        // reads it would ask for it again and again.
        if fetch.writer.readers() > 0 {
            fill.give_back();
        }
        let ask_again = keepable == Keepable::No || head.status == 206 || head.status == 412;
        return if ask_again { Filled::AskAgain } else { Filled::ByAnother };
    }
    let cache = &fetch.env.common.cache;
    match head.status {
        206 => {
            // The head is renewed before those who wait are woken, so that they see its age.
            if let Some((bytes, _)) = whole_of(head).filter(|_| continues(&entry, head))
                && let Some(own) = renew(fetch, &entry, head, times)
                && fill.confirm(&bytes)
            {
                return Filled::By(Box::new((fill, own)));
            }
            cache.drop_entry(&entry);
            Filled::AskAgain
        }
        412 | 416 => {
            cache.drop_entry(&entry);
            Filled::AskAgain
        }
        200 => {
            cache.drop_entry(&entry);
            // A part of the new one is enough for who asks for a part, unless all of it is short.
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

/// The stored head as [`policy::may_combine`] wants it: with its length.
fn stored_head(entry: &Entry, kept: &StoredHead) -> ResponseHead {
    let mut head = kept.head.clone();
    if let Some(length) = entry.length() {
        head.fields.set("Content-Length", length.to_string());
    }
    head
}

fn continues(entry: &Entry, head: &ResponseHead) -> bool {
    entry.stored_head().is_some_and(|kept| policy::may_combine(&stored_head(entry, &kept), head))
}

/// Whether a part says that the object may not be stored any more (`private`, `no-store`, …). Then its bytes are for the one
/// who asked alone, and those who wait for them too ask for themselves.
fn is_refused(fetch: &Fetch, entry: &Entry, head: &ResponseHead, times: Times) -> bool {
    let kept = entry.stored_head();
    let Some((kept, terms)) = kept.as_ref().and_then(|kept| Some((kept, kept.terms.as_ref()?))) else { return false };
    let stored = stored_head(entry, kept);
    // What an answer says because of who asked says nothing of what others have.
    policy::may_update(&fetch.request, head, fetch.policy()).is_ok()
        && policy::may_combine(&stored, head)
        && policy::completed(&fetch.request, (&stored, terms), head, times, fetch.policy()).is_err()
}

/// Brings the stored head up to date (RFC 9111 section 3.4), and gives the one for who asked. A part that sets a cookie
/// brings its bytes, which the validator vouches for, and its age: all fields stay what they were.
fn renew(fetch: &Fetch, entry: &PinnedEntry, head: &ResponseHead, times: Times) -> Option<StoredHead> {
    let kept = entry.stored_head()?;
    let terms = kept.terms.as_ref()?;
    let settings = fetch.policy();
    let (mut own, mut own_terms) = policy::answer_to_asker(&kept.head, head, times, settings);
    own.fields.remove("Content-Length");
    own_terms.initial_age = own_terms.initial_age.max(terms.age(times.received));
    match policy::completed(&fetch.request, (&stored_head(entry, &kept), terms), head, times, settings) {
        Ok((mut head, terms)) => {
            head.fields.remove("Content-Length");
            entry.renew(StoredHead::new(head, Some(terms), times.received), fetch.writer.epoch());
        }
        Err(NotStored::SetCookie) => {
            let older = Terms { received: times.received, initial_age: own_terms.initial_age, ..terms.clone() };
            entry.renew(StoredHead::new(kept.head.clone(), Some(older), times.received), fetch.writer.epoch());
        }
        // It is the answer to those who asked before; nobody else gets it.
        Err(_) => fetch.env.common.cache.drop_entry(entry),
    }
    Some(StoredHead::new(own, Some(own_terms), times.received))
}

/// All that it takes to ask for more of an object while it is delivered.
pub struct Refill {
    /// The worker that fetches.
    pub env: Rc<Env>,
    /// What for, and where.
    pub ask: Ask,
    /// The request that met the hole.
    pub request: Rc<RequestHead>,
    /// Who sent it.
    pub client: SocketAddr,
    /// It came through the listener of a `larder run`.
    pub for_run: bool,
}

impl Refill {
    /// Has a hole filled, behind whoever waits for it. False when it can't be.
    pub fn begin(&self, entry: &PinnedEntry, hole: &Range<u64>) -> bool {
        let Some(fetch) = self.fetch(entry, hole) else { return false };
        start_detached(fetch);
        true
    }

    /// Has the rest of an object fetched when the rule says that it pays.
    pub fn begin_rest(self: Box<Refill>, entry: PinnedEntry) {
        // So it is for nearly all, and a task costs more than the question.
        if entry.is_whole() || !entry.is_mendable() {
            return;
        }
        tokio::task::spawn_local(async move {
            let bytes_max = self.env.common.cache.settings().abandoned_bytes_max;
            while let Some(hole) = entry.worthwhile_hole(bytes_max) {
                // Nobody waits for it.
                let Some(_leave) = self.env.upstreams.asked(self.ask.connects_to()).unread() else { return };
                let Some(fetch) = self.fetch(&entry, &hole) else { return };
                Box::pin(super::run(fetch)).await;
                // It was not filled: the origin is in trouble, or has something else now.
                if entry.worthwhile_hole(bytes_max).is_some_and(|still| still.start <= hole.start) {
                    return;
                }
            }
        });
    }

    fn fetch(&self, entry: &PinnedEntry, hole: &Range<u64>) -> Option<Box<Fetch>> {
        let fill = Fill::begin(entry, hole)?;
        let (_, writer) = self.env.common.cache.beside(entry.key().text());
        Some(Box::new(Fetch {
            env: Rc::clone(&self.env),
            ask: self.ask.clone(),
            request: Rc::clone(&self.request),
            client: self.client,
            for_run: self.for_run,
            kind: FetchKind::Hole,
            writer,
            fill: Some(fill),
            body: None,
            interim: None,
            silent_for: None,
            notes: Rc::default(),
        }))
    }
}
