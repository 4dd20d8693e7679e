//! An exchange: one request and its answer, from the head to the end of the record, on any transport. [`Exchange::run`]
//! serves every request that `h1::quick` did not answer at once; [`Exchange::leave`] serves CONNECT and upgrades.

mod away;
mod by_table;
pub mod deliver;
mod docs;
mod head_alone;
mod hooked;
pub mod icap;
mod learn;
pub mod leave;
mod links;
mod log_in;
pub mod lookup;
mod mirror;
pub mod of_node;
mod offline;
pub mod pace;
mod posted;
pub mod presence;
pub mod relay;
pub mod stream;
pub mod upload;
pub mod why;

#[cfg(test)]
pub mod broken;

use crate::box_in_place::box_in_place;
use crate::caught::caught;
use crate::clock;
use crate::digest;
use crate::env::{Env, PeerFacts, RecordGuard};
use crate::page::Page;
use crate::purge;
use crate::record::Record;
use crate::request_body::RequestBody;
use crate::rules::{self, Ask, HookedAnswer, Verdict};
use crate::ticker::{Wait, WaitEnd};
use deliver::{AnswerSource, Ended, Manner};
use hooked::{Responded, Responding};
use larder_cache::policy;
use larder_wire::credential::is_credential;
use larder_wire::{Fault, FaultKind, Method, RequestHead, ResponseHead};
use learn::Lesson;
use leave::LeaveOutcome;
use std::rc::Rc;
use std::time::Duration;
use stream::ClientStream;
use upload::Upload;

/// A request that is under way.
pub struct Exchange {
    /// The head of the request.
    pub request: Rc<RequestHead>,
    /// The record of the request; its guard finishes it however the exchange ends.
    pub record: RecordGuard,
    /// The verdict of the rules, where they judged the request already.
    pub verdict: Option<Verdict>,
    /// The key of the request, where it was looked up already.
    pub key: Option<Vec<u8>>,
    /// The body of the request as its head declares it, or the fault in that declaration.
    pub body: Result<RequestBody, Fault>,
}

/// The end of an exchange whose request wanted to leave HTTP.
pub struct Leaving {
    /// How the connection goes on.
    pub outcome: LeaveOutcome,
    /// The record, where a tunnel that begins now has to finish it.
    pub record: Option<RecordGuard>,
}

impl Exchange {
    /// Answers the request, within the limits of a request.
    pub async fn run<S: ClientStream>(self, stream: &mut S) -> Ended {
        let Exchange { request, mut record, verdict, key, body } = self;
        let work = async |stream: &mut S, record: &mut Record| {
            LeaveOutcome::Answered(answer(stream, &request, (verdict, key), body, record).await)
        };
        let outcome = within_limits(stream, &request, &mut record, work).await;
        record.finish();
        match outcome {
            LeaveOutcome::Answered(ended) => ended,
            LeaveOutcome::Tunnel { .. } | LeaveOutcome::Intercept(..) => Ended::Broken,
        }
    }

    /// Serves a CONNECT or an upgrade. Until the client was told that it may leave HTTP, a time limit or a broken invariant
    /// ends the request as it ends any other.
    pub async fn leave<S: ClientStream>(mut self, stream: &mut S) -> Leaving {
        let verdict = self.verdict.take().unwrap_or_else(|| rules::judge(stream.env(), stream.peer(), &self.request));
        if self.request.method != Method::Connect && !matches!(verdict, Verdict::Allow(_) | Verdict::Needs(..)) {
            // The offer to upgrade is ignored, and the request is answered without it (RFC 9110 section 7.8).
            self.verdict = Some(verdict);
            return Leaving { outcome: LeaveOutcome::Answered(self.run(stream).await), record: None };
        }
        let Exchange { request, mut record, body, .. } = self;
        let work = async |stream: &mut S, record: &mut Record| {
            #[cfg(test)]
            broken::may_break("leave", &request);
            let verdict =
                rules::judge_and_wait(stream.env(), stream.peer(), (&request, record.number), Some(verdict)).await;
            match request.method {
                Method::Connect => leave::connect(stream, &request, verdict, &body, record).await,
                _ if !matches!(verdict, Verdict::Allow(_)) => {
                    LeaveOutcome::Answered(answer(stream, &request, (Some(verdict), None), body, record).await)
                }
                _ => leave::upgrade(stream, &request, verdict, record).await,
            }
        };
        let outcome = within_limits(stream, &request, &mut record, work).await;
        match outcome {
            LeaveOutcome::Answered(_) => {
                record.finish();
                Leaving { outcome, record: None }
            }
            LeaveOutcome::Tunnel { .. } | LeaveOutcome::Intercept(..) => Leaving { outcome, record: Some(record) },
        }
    }
}

/// The answer to a request, from the rules to the end of its delivery.
async fn answer<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    (verdict, key): (Option<Verdict>, Option<Vec<u8>>),
    body: Result<RequestBody, Fault>,
    record: &mut Record,
) -> Ended {
    #[cfg(test)]
    broken::may_break("travel", request);
    let verdict = match &body {
        Err(fault) => Verdict::Answer(rules::fault_page(fault.kind, fault.detail)),
        Ok(RequestBody::Known(length)) if is_too_long(stream.env(), *length) => {
            Verdict::Answer(rules::fault_page(FaultKind::BodyTooLong, "the body is longer than permitted"))
        }
        Ok(_) => rules::judge_and_wait(stream.env(), stream.peer(), (request, record.number), verdict).await,
    };
    let body = body.unwrap_or(RequestBody::None);
    let without_cookies = match &verdict {
        Verdict::Allow(ask) => ask.without_cookies(),
        _ => None,
    };
    let request = without_cookies.as_ref().unwrap_or(request);
    match verdict {
        // Boxed, because it is rare.
        Verdict::Allow(ask) if icap::is_asked(stream.env(), &request.method, &ask) => {
            Box::pin(icap::answer(stream, request, (ask, key), body, record)).await
        }
        Verdict::Mirror(mirrored) if icap::is_asked(stream.env(), &request.method, &mirrored.ask) => {
            deliver::deliver_page(stream, request, &icap::not_for_mirror(), record)
        }
        verdict => by_verdict(stream, request, (verdict, key), body, (None, record)).await,
    }
}

/// The answer to a request that was judged; `upload` has its body where that comes by way of a service.
async fn by_verdict<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    (verdict, key): (Verdict, Option<Vec<u8>>),
    body: RequestBody,
    (mut upload, record): (Option<Upload>, &mut Record),
) -> Ended {
    let (mut lesson, mut limits) = (None, None);
    let Responded { answer, given } = match verdict {
        Verdict::Allow(ask) => {
            if key.is_none() {
                note(stream.env(), &ask, record);
            }
            let changed = ask.changed_by_hook(request).map(Rc::new);
            let request = changed.as_ref().unwrap_or(request);
            lesson = Lesson::of(stream, request, &ask);
            let noted = is_noted(stream, &ask).then(|| ask.clone());
            let (responding, sending) = (Responding::of(&ask), icap::SendStage::of(stream, request, &ask));
            let changes = ask.by_table.as_ref().and_then(|by_table| by_table.answer.clone());
            let is_by_cookie = ask.is_by_cookie();
            limits = ask.limits();
            let answer = lookup::look_up(stream, request, ask, key, body, &mut upload, record).await;
            if let (Some(ask), AnswerSource::Entry { stored, .. }) = (noted, &answer) {
                note_redirection(stream, request, &ask, &stored.head);
            }
            if let Some(lesson) = &mut lesson {
                lesson.answered_by(&answer);
            }
            let responded = match responding {
                None => answer.into(),
                Some(responding) => Box::pin(responding.respond(stream, request, answer, record)).await,
            };
            let Responded { answer, given } = match changes {
                None => responded,
                Some(changes) => by_table::change(&changes, responded),
            };
            let answer = if is_by_cookie { by_table::for_person(answer) } else { answer };
            match sending {
                None => Responded { answer, given },
                Some(sending) => {
                    let answer = Box::pin(sending.send(stream, request, answer, record)).await;
                    Responded { answer, given }
                }
            }
        }
        Verdict::Mirror(mirrored) => {
            return Box::pin(mirror::answer(stream, request, *mirrored, body, record)).await;
        }
        Verdict::Answer(page) => AnswerSource::Page(page).into(),
        Verdict::Hooked(answer) => AnswerSource::Page(note_answer(stream.env(), *answer, record)).into(),
        Verdict::Purge(ask) => {
            let common = std::sync::Arc::clone(&stream.env().common);
            // A purge is on disk before it is answered, and earlier answers of the connection do not wait for that.
            let _ = stream.flush().await;
            AnswerSource::Page(purge::of_request(&common, request, &ask).await).into()
        }
        Verdict::LogIn(form) => AnswerSource::Page(Box::pin(log_in::page(stream, &form, body)).await).into(),
        Verdict::Manager(path) => AnswerSource::Page(manager_page(stream.env(), &path)).into(),
        Verdict::Echo => AnswerSource::Page(echo(request)).into(),
        Verdict::Tunnel(..) | Verdict::Needs(..) => {
            AnswerSource::Page(rules::fault_page(FaultKind::Target, "not a CONNECT")).into()
        }
    };
    let ended =
        deliver::deliver(stream, request, (answer, Manner { given: &given, limits }), &mut upload, record).await;
    if let Some(lesson) = lesson {
        (*lesson).begin(stream.env(), ended);
    }
    ended
}

/// Whether store rules count for the request, so that a redirection may hand out a URL whose signature is known.
fn is_noted<S: ClientStream>(stream: &S, ask: &Ask) -> bool {
    let (config, for_run) = (stream.env().config(), stream.peer().listener.run.is_some());
    !ask.route.is_to_destination() && !rules::store_rules(&config, &ask.route, for_run).is_empty()
}

/// Remembers the URL that a redirection hands out, from its origin or from the store.
fn note_redirection<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask, answer: &ResponseHead) {
    let is_read = matches!(request.method, Method::Get | Method::Head);
    if is_read && matches!(answer.status, 301..=303 | 307 | 308) {
        let (env, for_run) = (stream.env(), stream.peer().listener.run.is_some());
        let config = env.config();
        let rules = rules::store_rules(&config, &ask.route, for_run);
        ask.note_redirection(rules, request, answer, &env.common.handed_out, clock::instant());
        if let Some(to) = rules::leads_to(&ask.url, answer) {
            let client = stream.peer().address.ip();
            let by_url = digest::in_url(&ask.url.path).filter(|_| !learn::is_of_browser(request));
            env.common.index_digests.redirected(&ask.url, &to, client, by_url, clock::instant());
        }
    }
}

/// Notes in the record by which rule and edition of the settings the request is served, and its URL if a reader wants it.
pub fn note(env: &Env, ask: &Ask, record: &mut Record) {
    record.trail.rule = Some(ask.rule);
    record.trail.edition = env.edition();
    if record.is_read() {
        ask.client_url().write_to(&mut record.url);
    }
    if let Some(by_table) = &ask.by_table {
        record.note_rules(&by_table.note);
    }
    if let Some(user) = ask.user() {
        record.note_user(&user.name);
    }
    if let Some(people) = &ask.people {
        record.note_helpers(&people.helpers);
    }
    if let Some(note) = &ask.hook_note {
        record.note_hook((**note).clone());
    }
}

/// Notes in the record that a hook answered the request, or failed; gives the answer.
pub fn note_answer(env: &Env, answer: HookedAnswer, record: &mut Record) -> Page {
    record.trail.rule = Some(answer.rule);
    record.trail.edition = env.edition();
    if record.is_read() {
        answer.url.write_to(&mut record.url);
    }
    answer.note.into_iter().for_each(|note| record.note_hook(note));
    answer.page
}

/// Begins the record of a request, in a guard.
pub fn begin(env: &Rc<Env>, peer: &PeerFacts, request: &RequestHead) -> RecordGuard {
    env.begin_guarded(request, peer)
}

/// Whether a plain GET with these fields may be answered by a whole stored response, without a wait.
pub fn is_plain_get(request: &RequestHead) -> bool {
    request.method == Method::Get && deliver::is_plain(&request.fields) && policy::answerable(request)
}

fn is_too_long(env: &Env, length: u64) -> bool {
    env.config().limits.body_bytes_max.is_some_and(|max| length > max)
}

/// The answer to TRACE (RFC 9110 section 9.3.8), without the fields that may hold credentials.
fn echo(request: &RequestHead) -> Page {
    let mut text = format!("{} ", request.method);
    for (name, value) in request.fields.iter().filter(|(name, _)| !is_credential(name)) {
        text.push_str(&format!("{name}: {}; ", String::from_utf8_lossy(value)));
    }
    Page::new(200, "trace", text, "This is what arrived here.")
}

fn manager_page(env: &Env, path: &str) -> Page {
    match env.common.manager_pages.get().and_then(|page| page(path)) {
        Some(text) => Page::text("manager", text),
        None => Page::new(404, "manager", "The cache manager has no such page.", "`mgr:menu` lists all."),
    }
}

/// Runs a part of an exchange. A broken invariant ends one request, not the worker, and so does `timeouts.request`. A client
/// to which no answer has begun gets an error page; otherwise the answer breaks off.
async fn within_limits<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    record: &mut Record,
    work: impl AsyncFnOnce(&mut S, &mut Record) -> LeaveOutcome,
) -> LeaveOutcome {
    let (env, limit) = (Rc::clone(stream.env()), stream.env().config().timeouts.request);
    let result = {
        let caught = caught(box_in_place(|| work(stream, record)));
        env.ticker.timer().limit(limit.unwrap_or(Duration::MAX), Wait::Request, caught).await
    };
    let page = match result {
        Ok(Some(outcome)) => return outcome,
        Ok(None) => {
            env.tally.panics.add(1);
            broken_page()
        }
        Err(WaitEnd::Ending | WaitEnd::Draining) => {
            let what = "This cache is going down, and does not wait for the request any longer.";
            Page::new(503, "going-down", what, "Send it again in a moment.").closing().with("Retry-After", "5")
        }
        // The request's body was not whole yet, so the client was late, not the origin.
        Err(WaitEnd::Late) if !stream.body_is_over() => {
            out_of_time(408, "The request did not come to its end in time.")
        }
        Err(WaitEnd::Late) => {
            out_of_time(504, "There was no answer within the time that a request may take as a whole.")
        }
    };
    LeaveOutcome::Answered(end_early(stream, request, &page, record))
}

/// Ends a request before its answer is whole: by this page, if no answer has begun.
fn end_early<S: ClientStream>(stream: &mut S, request: &RequestHead, page: &Page, record: &mut Record) -> Ended {
    if !stream.answer_has_begun() {
        return deliver::deliver_page(stream, request, page, record);
    }
    record.breaks_off(page.word, &page.what);
    stream.break_off();
    Ended::Broken
}

fn out_of_time(status: u16, what: &str) -> Page {
    Page::new(status, "request-time", what, "Try again; the administrator can raise timeouts.request.").closing()
}

/// The error page for a broken invariant.
pub fn broken_page() -> Page {
    let what = "This cache met a mistake of its own while it served the request.";
    Page::new(500, "panic", what, "Try again, and tell the administrator: the diagnostics say more.").closing()
}
