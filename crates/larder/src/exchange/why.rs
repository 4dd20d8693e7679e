//! Why a request was answered as it was: the one cause of each request to an origin, and notes for `explain`.

use crate::record::{Cause, Detail, Notes, Record, Variant};
use crate::rules::Ask;
use larder_cache::cache::{Absent, Cache, Disk, Fate, Found, Joins, Peek};
use larder_cache::key::Key;
use larder_cache::policy::{self, Asked, Usable, ValidateWhy};
use larder_wire::RequestHead;
use larder_wire::date::Stamp;
use std::rc::Rc;

/// Notes what store rules made of the request.
pub fn note_rules(ask: &Ask, record: &mut Record) {
    if ask.by_rule.is_none() {
        return;
    }
    if let Some(detail) = record.detail() {
        detail.by_rule = ask.words();
    }
}

/// Notes the result of a lookup in the record, and gives the cause that is counted if an origin is asked.
pub(super) fn note(
    cache: &Cache,
    key: &[u8],
    request: &RequestHead,
    found: &Found,
    (disk, now): (Disk, Stamp),
    lost: bool,
    record: &mut Record,
) -> Cause {
    let asked = record.trail.asked().unwrap_or_default();
    weigh(found, now, record);
    let needed = !found.is_hit() || record.is_kept();
    let peek = if needed { cache.peek(key, request, now) } else { Peek::default() };
    if record.trail.weighed.is_none()
        && let Some(terms) = peek.selected().and_then(|stored| stored.head.terms.as_ref())
    {
        let usable = policy::usable(terms, &asked, now, &cache.settings().policy);
        record.trail.weigh(Some(terms), now, usable);
    }
    if let Some(detail) = record.detail() {
        look(detail, key, &peek, found, now);
        detail.disk_asked |= disk == Disk::Seen;
    }
    match found {
        _ if lost => Cause::Lost,
        Found::Validate(_, why, ..) => of_validation(*why, &peek),
        Found::Missing(_, _, Absent::Key) => of_nothing(&peek),
        Found::Missing(_, _, Absent::Variant) => Cause::Vary,
        Found::Pass(..) if peek.not_stored.is_some() && peek.variants.is_empty() => Cause::NotStored,
        _ => of(&peek, &asked, now, &cache.settings().policy),
    }
}

/// Notes in the record that a fetch begins.
pub(super) fn begins(record: &mut Record, cause: Cause, notes: &Rc<Notes>) {
    record.trail.cause = Some(cause);
    record.leads(notes);
    if let Some(detail) = record.detail() {
        detail.fetches.push(cause, Rc::clone(notes));
    }
}

/// Why the responses that are stored under a key do not answer a request.
pub fn of(peek: &Peek, asked: &Asked, now: Stamp, settings: &policy::Settings) -> Cause {
    let terms = peek.selected().and_then(|stored| stored.head.terms.as_ref());
    match terms.map(|terms| policy::usable(terms, asked, now, settings)) {
        Some(Usable::Validate(why)) => of_validation(why, peek),
        // A stored response could have been used, but its body could not be read.
        Some(_) => Cause::Lost,
        None if !peek.variants.is_empty() => Cause::Vary,
        None => of_nothing(peek),
    }
}

/// Whether the last answer under this key was not stored, so that a request is passed on by itself.
pub fn is_passed(peek: &Peek, joins: Joins) -> bool {
    joins != Joins::No && peek.not_stored.is_some()
}

fn of_validation(why: ValidateWhy, peek: &Peek) -> Cause {
    match why {
        ValidateWhy::RequestNoCache | ValidateWhy::RequestMaxAge | ValidateWhy::RequestMinFresh => Cause::Request,
        ValidateWhy::NoCache => Cause::NoCache,
        ValidateWhy::Apart => Cause::Apart,
        ValidateWhy::Stale | ValidateWhy::MustRevalidate | ValidateWhy::Clock => {
            // A response that was validated after the purge is merely stale.
            let received = peek.selected().map(|stored| stored.head.received);
            let purged = peek.fate.is_some_and(|(fate, at)| fate == Fate::Expired && Some(at) >= received);
            if purged { Cause::Purged } else { Cause::Stale }
        }
    }
}

/// The cause of a miss under whose key nothing is stored. A last answer that was not stored is newer than the fate of the
/// response that was stored before it.
fn of_nothing(peek: &Peek) -> Cause {
    if peek.not_stored.is_some() {
        return Cause::NotStored;
    }
    match peek.fate {
        None => Cause::Uri,
        Some((fate, _)) => match fate {
            Fate::Evicted | Fate::ToDisk => Cause::Evicted,
            Fate::NotAdmitted => Cause::NotAdmitted,
            Fate::Purged | Fate::Expired => Cause::Purged,
            Fate::Invalidated => Cause::Invalidated,
            Fate::Changed => Cause::Changed,
            Fate::Corrupt => Cause::NotStored,
            Fate::TooLong => Cause::NotStored,
            Fate::DiskBehind => Cause::DiskBehind,
        },
    }
}

fn weigh(found: &Found, now: Stamp, record: &mut Record) {
    let (hit, usable) = match found {
        Found::Fresh(hit) => (hit, Usable::Fresh),
        Found::Stale(hit, why) => (hit, Usable::Stale(*why)),
        Found::Revalidate(hit, _) => (hit, Usable::Revalidate),
        Found::Validate(hit, why, ..) => (hit, Usable::Validate(*why)),
        _ => return,
    };
    record.trail.weigh(hit.stored.terms.as_ref(), now, usable);
}

fn look(detail: &mut Detail, key: &[u8], peek: &Peek, found: &Found, now: Stamp) {
    detail.key = Some(found.key().unwrap_or_else(|| Key::from_text(key.to_vec())));
    detail.looks += 1;
    detail.found = found.as_str();
    (detail.variants, detail.variants_more) = Variant::all_of(peek, now);
    detail.fate = peek.fate;
    detail.not_stored_before = peek.not_stored;
    detail.followed |= matches!(found, Found::InFlight(_));
}
