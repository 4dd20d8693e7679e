//! The quick path of a hit: a plain GET that the store answers without a wait, and so without the state of a task. The
//! rules and the delivery are those of every other request.

use super::Workspace;
use super::head_cache::Request;
use crate::env::{Env, RecordGuard};
#[cfg(test)]
use crate::exchange::broken;
use crate::exchange::stream::ClientStream;
use crate::exchange::{deliver, icap};
use crate::exchange::{is_plain_get, note, note_answer};
use crate::hook::{CallEnd, HookedVerdict};
use crate::page::Page;
#[cfg(test)]
use crate::planted::{self, Planted};
use crate::record::Record;
use crate::rules::{self, FactsRead, HookedAnswer, JudgeMemo, Need, RefusalMemo, Verdict};
use larder_cache::cache::{Glance, Tier};
use larder_cache::key::Key;
use larder_cache::policy::{Asked, Usable};
use larder_wire::RequestHead;
use larder_wire::framing::{self, Framing};
use std::rc::Rc;

/// The result of [`try_answer`].
pub enum Quick {
    /// The answer is handed over.
    Answered,
    /// There is no answer at hand. Verdict, record and key go along, so that they need not be made again.
    Waits(Box<Begun>),
}

/// A request that is not answered at once: its record, and the facts that were found out about it.
pub struct Begun {
    /// The verdict of the rules, where they were asked.
    pub verdict: Option<Verdict>,
    /// The record of the request.
    pub record: RecordGuard,
    /// The key of the request, where it was looked up.
    pub key: Option<Vec<u8>>,
}

impl Begun {
    /// Whether the verdict on a plain GET waits for hooks alone, so that it needs no task meanwhile. One that may last so long and no longer
    /// as a whole gets a task, which looks at the clock.
    pub fn needs_hooks_alone(&self, env: &Env) -> bool {
        matches!(self.verdict, Some(Verdict::Needs(Need::Hooks(_), _)))
            && self.key.is_none()
            && env.config().timeouts.request.is_none()
    }
}

/// Answers a request without a wait, where that is possible.
pub fn try_answer<S: ClientStream>(space: &Workspace, stream: &mut S, request: &mut Request) -> Quick {
    #[cfg(test)]
    broken::may_break("quick", request);
    if !request.memo_is_valid && !request.refusal_is_valid {
        // Framing first: a message that could be read in two ways is refused, hit or not.
        let is_bare = framing::of_request(request) == Ok(Framing::None);
        if !is_bare || !is_plain_get(request) {
            return waits(begin(space, stream, request), None, None);
        }
    }
    if let Some(memo) =
        request.memo.as_deref().filter(|it| request.memo_is_valid || it.covers_fields(&space.env, &request.head))
        && let Some(path) = memo.path_of(&space.env, stream.peer(), &request.head)
        && let Ok(hooked) = memo.hooked(&space.env, path)
    {
        // A verdict that depended on hooks is one for exactly these fields.
        let (asked, memo_is_valid) = match &hooked {
            Some(hooked) => (hooked.asked, true),
            None if request.memo_is_valid => (memo.asked(), true),
            None => (Asked::of(request), Asked::of(request) == memo.asked()),
        };
        let mut record = space.env.begin_record(request, stream.peer());
        (record.trail.rule, record.trail.edition) = (Some(memo.rule()), memo.edition());
        memo.note_rules(&mut record);
        if let Some(hooked) = &hooked {
            note_hooked(hooked, &mut record);
        }
        if record.is_read() {
            memo.write_url(path, &mut record.url);
        }
        if let Some(user) = memo.user() {
            record.note_user(user);
        }
        let mut key = space.keys.borrow_mut();
        #[cfg(test)]
        let before = planted::is(Planted::SwappedBody).then(|| key.clone()).filter(|key| !key.is_empty());
        key.clear();
        match &hooked {
            Some(hooked) => key.extend_from_slice(&hooked.key),
            None => memo.write_key(path, &mut key),
        }
        #[cfg(test)]
        if let Some(before) = before {
            *key = before;
        }
        space.env.common.cache.settle_key(&mut key);
        return match answer_if_fresh((space, stream), (&request.head, &request.head), asked, &key, record) {
            Ok(()) => {
                request.memo_is_valid = memo_is_valid;
                Quick::Answered
            }
            Err(record) => {
                let verdict = rules::judge(&space.env, stream.peer(), request);
                waits(guard(space, stream, record), Some(verdict), Some(key.clone()))
            }
        };
    }
    if let Some(page) = refused_before(space, stream, request) {
        // That the other memo was seen to hold for these fields stays true.
        request.refusal_is_valid = true;
        let record = space.env.begin_record(request, stream.peer());
        return refuse((space, stream), request, &page, record);
    }
    (request.memo_is_valid, request.refusal_is_valid) = (false, false);
    judge_and_answer(space, stream, request)
}

/// The page of an earlier refusal, where this request is refused by the same facts.
fn refused_before<S: ClientStream>(space: &Workspace, stream: &S, request: &Request) -> Option<Rc<Page>> {
    let memo = request.refusal.as_deref()?;
    let covers_fields = request.refusal_is_valid || memo.covers_fields(&request.head);
    covers_fields.then(|| memo.page_for(&space.env, stream.peer(), &request.head))?.map(Rc::clone)
}

/// Notes the work of hooks whose verdict was remembered.
fn note_hooked(hooked: &HookedVerdict, record: &mut Record) {
    if let Some(note) = &hooked.note {
        record.note_hook((**note).clone());
    }
    if hooked.is_changed
        && let Some(detail) = record.detail()
    {
        detail.key = Some(Key::from_text(hooked.key.to_vec()));
    }
}

fn judge_and_answer<S: ClientStream>(space: &Workspace, stream: &mut S, request: &mut Request) -> Quick {
    let judged = rules::judge_noting(&space.env, stream.peer(), request);
    let record = space.env.begin_record(request, stream.peer());
    answer_judged((space, stream), request, judged, record)
}

/// Answers a request that has waited for its hooks, where it needs no further wait.
pub fn answer_replied<S: ClientStream>(
    space: &Workspace,
    stream: &mut S,
    request: &mut Request,
    (Begun { verdict, record, key }, end): (Begun, CallEnd),
) -> Quick {
    // From here on without the guard: after a broken invariant there is another record.
    let record = record.into_record();
    #[cfg(test)]
    broken::may_break("replied", request);
    let Some(verdict) = verdict else { return waits(guard(space, stream, record), None, key) };
    match rules::judge_replied(&space.env, stream.peer(), request, (verdict, end)) {
        (verdict, Some(read)) => answer_judged((space, stream), request, (verdict, read), record),
        (verdict, None) => waits(guard(space, stream, record), Some(verdict), key),
    }
}

/// Answers a plain GET that was judged, where that needs no wait.
fn answer_judged<S: ClientStream>(
    (space, stream): (&Workspace, &mut S),
    request: &mut Request,
    (verdict, read): (Verdict, FactsRead),
    mut record: Box<Record>,
) -> Quick {
    let env = &space.env;
    let ask = match verdict {
        Verdict::Allow(ask) => ask,
        Verdict::Answer(page) => {
            // As for a hit, a memo pays only if the host is asked for again.
            if request.host_is_repeated
                && let Some(memo) = RefusalMemo::of(env, (stream.peer(), request), &read, &page)
            {
                (request.refusal, request.refusal_is_valid) = (Some(Box::new(memo)), true);
            }
            return refuse((space, stream), request, &page, record);
        }
        Verdict::Hooked(answer) => return answer_by_hook((space, stream), request, *answer, record),
        verdict => return waits(guard(space, stream, record), Some(verdict), None),
    };
    // An index is read beside its delivery, for the digests that it names.
    if ask.waits_for_hooks() || icap::is_asked(env, &request.method, &ask) || ask.is_index() {
        return waits(guard(space, stream, record), Some(Verdict::Allow(ask)), None);
    }
    note(env, &ask, &mut record);
    let mut key = space.keys.borrow_mut();
    key.clear();
    // The record has the URL that the client asked for, and hooks may ask for another one.
    let is_changed = ask.by_hook.is_some() || ask.by_table.is_some() || ask.people.is_some();
    let written = if is_changed { "" } else { &*record.url };
    ask.key_of_written(written, &env.common.cache, &mut key);
    // Looked up by its fields as hooks have changed them.
    let changed = is_changed.then(|| ask.changed_by_hook(request)).flatten();
    let looked_up = changed.as_ref().unwrap_or(&request.head);
    let asked = ask.weigh(Asked::of(looked_up));
    if (ask.by_rule.is_some() || is_changed)
        && let Some(detail) = record.detail()
    {
        (detail.by_rule, detail.key) = (ask.words(), Some(Key::from_text(key.clone())));
    }
    match answer_if_fresh((space, stream), (&request.head, looked_up), asked, &key, record) {
        Ok(()) => {
            // A memo pays only if the host is asked for again; a host that was named twice in a row most likely is.
            if request.host_is_repeated
                && let Some(memo) = JudgeMemo::of(env, (stream.peer(), request), &read, &ask, asked)
            {
                (request.memo, request.memo_is_valid) = (Some(Box::new(memo)), true);
            }
            Quick::Answered
        }
        Err(record) => waits(guard(space, stream, record), Some(Verdict::Allow(ask)), Some(key.clone())),
    }
}

/// Answers a plain GET with a response that is stored under this key, if it is at hand; else its record comes back. The response is chosen by
/// the fields of the second one, the request as it is looked up.
fn answer_if_fresh<S: ClientStream>(
    (space, stream): (&Workspace, &mut S),
    (request, looked_up): (&RequestHead, &RequestHead),
    asked: Asked,
    key: &[u8],
    mut record: Box<Record>,
) -> Result<(), Box<Record>> {
    let now = record.stamp();
    let glance = Glance { key, request: looked_up, asked: &asked, now };
    let answered = space.env.common.cache.fresh(&glance, deliver::WHOLE_BYTES_MAX, &mut |hit| {
        record.trail.asks(asked);
        record.trail.weigh(hit.stored.terms.as_ref(), now, Usable::Fresh);
        if hit.tier() == Tier::Disk
            && let Some(detail) = record.detail()
        {
            detail.read_from_disk(key, hit, now);
        }
        deliver::deliver_whole(stream, request, hit, &mut record);
    });
    if answered.is_none() {
        return Err(record);
    }
    space.env.finish(stream.peer().listener.run.as_deref(), record);
    Ok(())
}

/// Answers a request without a body by an error page of the rules.
fn refuse<S: ClientStream>(
    (space, stream): (&Workspace, &mut S),
    request: &RequestHead,
    page: &Page,
    mut record: Box<Record>,
) -> Quick {
    deliver::deliver_page(stream, request, page, &mut record);
    space.env.finish(stream.peer().listener.run.as_deref(), record);
    Quick::Answered
}

/// Answers a request without a body as a hook says, or by the page for one that failed.
fn answer_by_hook<S: ClientStream>(
    (space, stream): (&Workspace, &mut S),
    request: &RequestHead,
    answer: HookedAnswer,
    mut record: Box<Record>,
) -> Quick {
    let page = note_answer(&space.env, answer, &mut record);
    deliver::deliver_page(stream, request, &page, &mut record);
    space.env.finish(stream.peer().listener.run.as_deref(), record);
    Quick::Answered
}

fn begin<S: ClientStream>(space: &Workspace, stream: &S, request: &RequestHead) -> RecordGuard {
    space.env.begin_guarded(request, stream.peer())
}

/// A guard for the record of a request that goes on in a task.
fn guard<S: ClientStream>(space: &Workspace, stream: &S, record: Box<Record>) -> RecordGuard {
    RecordGuard::new(&space.env, stream.peer().listener.run.as_ref(), record)
}

fn waits(record: RecordGuard, verdict: Option<Verdict>, key: Option<Vec<u8>>) -> Quick {
    Quick::Waits(Box::new(Begun { verdict, record, key }))
}
