//! A request's way through the rooms, from the first byte to the record. Open this one first.

use crate::access::{self, Ask, Precedent, Verdict};
use crate::caught::caught;
use crate::heads::Request;
use crate::obtain;
use crate::page::Page;
use crate::place;
use crate::purge;
use crate::record::Record;
use crate::respond::{self, Answer, Next};
use crate::session::{End, Session};
use crate::ticker::{Over, Wait};
use crate::tunnel::{self, Left};
use crate::worker::RecordGuard;
use larder_cache::cache::{Glance, Tier};
use larder_cache::policy::{self, Asked, Usable};
use larder_wire::credential::is_credential;
use larder_wire::framing::{self, Framing};
use larder_wire::{FaultKind, Method, RequestHead, Version, hop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

/// What a connection is served first.
pub enum First {
    /// What is yet to be read or written.
    Rest,
    /// A request that the store had no answer for at once.
    Request(Box<RequestHead>, Box<Begun>),
    /// A request that wants to leave HTTP.
    Leaves(Box<RequestHead>, RecordGuard),
    /// What is in the outbox, and then nothing more.
    Close,
}

/// What becomes of a connection whose requests were answered as far as that needs no wait.
pub enum Step {
    /// It waits for the next request, once the outbox is written.
    Waits,
    /// It is closed, once the outbox is written.
    Closes,
    /// It goes on by itself.
    Goes(Box<First>),
}

impl Step {
    /// Nothing more is read.
    pub fn closes(&self) -> bool {
        matches!(self, Step::Closes)
    }
}

/// Answers what was heard on a connection on which nothing else is under way.
pub fn at_once(session: &mut Session, mut heard: &[u8]) -> Step {
    let step = loop {
        let Some(mut request) = session.request_of(&mut heard) else { break Step::Goes(Box::new(First::Rest)) };
        // What was answered like this before did not leave either.
        if !request.is_settled && leaves_http(&request) {
            let record = begin(session, &request);
            break Step::Goes(Box::new(First::Leaves(request.head, record)));
        }
        let next = match quick(session, &mut request) {
            Glanced::Answered(next) => next,
            Glanced::Travels(begun) => break Step::Goes(Box::new(First::Request(request.head, begun))),
        };
        session.worker.heads.keep(session.peer, request);
        match next {
            Next::Continue if heard.is_empty() => return Step::Waits,
            // A client that sends requests and reads no answers must not fill the outbox with them.
            Next::Continue if session.is_full() => break Step::Goes(Box::new(First::Rest)),
            Next::Continue => {}
            Next::Close => break Step::Closes,
            Next::Cut => {
                session.end_by_reset();
                break Step::Closes;
            }
        }
    };
    session.keep(heard);
    step
}

/// Serves a connection to its end, or until it may wait in the lobby.
pub async fn serve(mut session: Box<Session>, first: First) -> Option<Box<Session>> {
    let mut given = match first {
        First::Rest => None,
        First::Request(request, begun) => Some((request, begun)),
        First::Leaves(request, record) => {
            session = Box::pin(leave_http(session, *request, record)).await?;
            None
        }
        First::Close => {
            session.close().await;
            return None;
        }
    };
    loop {
        let next = match given.take() {
            Some((request, begun)) => serve_one(&mut session, request, begun).await,
            None => match session.next_request().await {
                Ok(request) if leaves_http(&request) => {
                    let record = begin(&session, &request);
                    // Rare and large: boxed, so that every connection's task stays small.
                    session = Box::pin(leave_http(session, *request.head, record)).await?;
                    continue;
                }
                Ok(mut request) => match catch_unwind(AssertUnwindSafe(|| quick(&mut session, &mut request))) {
                    Ok(Glanced::Answered(next)) => {
                        session.worker.heads.keep(session.peer, request);
                        next
                    }
                    Ok(Glanced::Travels(begun)) => serve_one(&mut session, request.head, begun).await,
                    Err(_) => broken(&mut session),
                },
                Err(End::Sits) => return Some(session),
                Err(end) => {
                    Box::pin(refuse(session, &end)).await;
                    return None;
                }
            },
        };
        match next {
            // A client that sends requests and reads no answers must not fill the outbox with them.
            Next::Continue if session.flush_if_full().await.is_ok() => {}
            Next::Close => {
                session.close().await;
                return None;
            }
            Next::Continue | Next::Cut => return None,
        }
    }
}

fn leaves_http(request: &RequestHead) -> bool {
    request.method == Method::Connect || upgrades(request)
}

/// Serves a request that wants to leave HTTP; the session comes back when it stays. As long as its client can be answered, a
/// limit or a broken invariant ends it as it ends any other request.
async fn leave_http(mut session: Box<Session>, request: RequestHead, mut record: RecordGuard) -> Option<Box<Session>> {
    let request = Rc::new(request);
    let verdict = access::judge(&session, &request);
    if request.method != Method::Connect && !matches!(verdict, Verdict::Allow(_)) {
        // The offer is not taken: the request is answered as if it had made none (RFC 9110 section 7.8).
        let begun = Box::new(Begun { verdict: Some(verdict), record, key: None });
        let next = serve_one(&mut session, Box::new(Rc::unwrap_or_clone(request)), begun).await;
        return go_on(session, next).await;
    }
    let way = async |session: &mut Session, record: &mut Record| {
        #[cfg(test)]
        tests::may_break("leave", &request);
        match request.method {
            Method::Connect => tunnel::connect(session, &request, verdict, record).await,
            _ => tunnel::upgrade(session, &request, verdict, record).await,
        }
    };
    let left = within_limits(&mut session, &request, &mut record, way).await;
    match left {
        Left::Stays(next) => {
            record.tell();
            go_on(session, next).await
        }
        Left::Passes { origin, read, held } => {
            tunnel::pass(session, origin, read, record).await;
            drop(held);
            None
        }
        Left::Opens(host, port) => {
            tunnel::open(session, host, port, record).await;
            None
        }
    }
}

/// The connection after an answer: it is here for the next request, or closed, or cut.
async fn go_on(session: Box<Session>, next: Next) -> Option<Box<Session>> {
    match next {
        Next::Continue => return Some(session),
        Next::Close => session.close().await,
        Next::Cut => {}
    }
    None
}

/// A request that wants to leave HTTP. One of HTTP/1.0 can't, and one with a body would have to be read by two protocols:
/// there the offer is not taken, and the request is served as any other (RFC 9110 section 7.8). PURGE stays here.
fn upgrades(request: &RequestHead) -> bool {
    request.version == Version::Http11
        && request.method.as_str() != "PURGE"
        && hop::upgrade(&request.fields).is_some()
        && framing::of_request(request) == Ok(Framing::None)
}

/// What a glance at the store came to.
enum Glanced {
    /// The answer is in the outbox.
    Answered(Next),
    /// There is none at hand. What was found out about the request by then need not be found out again.
    Travels(Box<Begun>),
}

/// A request that is not answered at once: its record, and what was found out about it.
pub struct Begun {
    /// What the rules say, where they were asked.
    verdict: Option<Verdict>,
    record: RecordGuard,
    /// Its key, where it was looked for.
    key: Option<Vec<u8>>,
}

/// The record of a request that is not answered on the spot.
fn begin(session: &Session, request: &RequestHead) -> RecordGuard {
    session.worker.begin_guarded(request, session.peer, &session.door)
}

/// In charge of the record of a request that was looked for in vain.
fn guard(session: &Session, record: Box<Record>) -> RecordGuard {
    RecordGuard::new(&session.worker, session.door.run.as_ref(), record)
}

fn travels(record: RecordGuard, verdict: Option<Verdict>, key: Option<Vec<u8>>) -> Glanced {
    Glanced::Travels(Box::new(Begun { verdict, record, key }))
}

/// The same way for a request that the store answers on the spot: no wait, so no task state.
fn quick(session: &mut Session, request: &mut Request) -> Glanced {
    #[cfg(test)]
    tests::may_break("quick", request);
    if !request.is_settled {
        // Framing first: what could be read in two ways is refused, hit or not.
        let bare = framing::of_request(request) == Ok(Framing::None);
        if request.method != Method::Get || !bare || !respond::is_plain(&request.fields) || !policy::answerable(request)
        {
            return travels(begin(session, request), None, None);
        }
    }
    if let Some(precedent) = request.precedent.as_deref().filter(|it| request.is_settled || it.covers(&request.head))
        && let Some(path) = precedent.path_of(session, &request.head)
    {
        let asked = if request.is_settled { precedent.asked() } else { Asked::of(request) };
        let is_settled = asked == precedent.asked();
        let worker = Rc::clone(&session.worker);
        let mut record = worker.begin_record(request, session.peer, &session.door);
        (record.trail.rule, record.trail.edition) = (Some(precedent.rule()), precedent.edition());
        if record.is_read() {
            precedent.write_url(path, &mut record.url);
        }
        let mut key = worker.keys.borrow_mut();
        key.clear();
        precedent.write_key(path, &mut key);
        worker.shared.cache.settle_key(&mut key);
        return match look(session, request, asked, &key, record) {
            Ok(next) => {
                request.is_settled = is_settled;
                Glanced::Answered(next)
            }
            Err(record) => {
                let record = guard(session, record);
                travels(record, Some(access::judge(session, request)), Some(key.clone()))
            }
        };
    }
    request.is_settled = false;
    let ask = match access::judge(session, request) {
        Verdict::Allow(ask) => ask,
        Verdict::Answer(page) => return Glanced::Answered(refused(session, request, &page)),
        verdict => return travels(begin(session, request), Some(verdict), None),
    };
    let worker = Rc::clone(&session.worker);
    let mut record = worker.begin_record(request, session.peer, &session.door);
    note(session, &ask, &mut record);
    let mut key = worker.keys.borrow_mut();
    key.clear();
    ask.key_of_written(&record.url, &worker.shared.cache, &mut key);
    let asked = Asked::of(request);
    match look(session, request, asked, &key, record) {
        Ok(next) => {
            // Whose host is named a second time is named a third time.
            if request.is_host_named_again
                && let Some(precedent) = Precedent::of(session, request, &ask, asked)
            {
                (request.precedent, request.is_settled) = (Some(Box::new(precedent)), true);
            }
            Glanced::Answered(next)
        }
        Err(record) => travels(guard(session, record), Some(Verdict::Allow(ask)), Some(key.clone())),
    }
}

/// Answers a plain GET with what is stored under this key, if that is at hand; else its record comes back.
fn look(
    session: &mut Session,
    request: &RequestHead,
    asked: Asked,
    key: &[u8],
    mut record: Box<Record>,
) -> Result<Next, Box<Record>> {
    let worker = Rc::clone(&session.worker);
    let now = record.stamp();
    let glance = Glance { key, request, asked: &asked, now };
    let answered = worker.shared.cache.fresh(&glance, respond::WHOLE_BYTES_MAX, &mut |hit| {
        record.trail.asks(asked);
        record.trail.weigh(hit.kept.terms.as_ref(), now, Usable::Fresh);
        if hit.tier() == Tier::Disk
            && let Some(detail) = record.detail()
        {
            detail.read_from_disk(key, hit, now);
        }
        respond::whole(session, request, hit, &mut record)
    });
    let Some(next) = answered else { return Err(record) };
    worker.tell(session.door.run.as_deref(), record);
    Ok(next)
}

/// A request without a body that gets a page: there is nothing to wait for either.
fn refused(session: &mut Session, request: &RequestHead, page: &Page) -> Next {
    let worker = Rc::clone(&session.worker);
    let mut record = worker.begin_record(request, session.peer, &session.door);
    let keep = request.keeps_alive() && !session.is_draining();
    let next = respond::respond_page(session, request, page, keep, &mut record);
    worker.tell(session.door.run.as_deref(), record);
    next
}

/// One request, from its head to the end of its answer.
async fn travel(
    session: &mut Session,
    request: &Rc<RequestHead>,
    verdict: Option<Verdict>,
    key: Option<Vec<u8>>,
    record: &mut Record,
) -> Next {
    #[cfg(test)]
    tests::may_break("travel", request);
    let mut upload = None;
    let answer = match framing::of_request(request) {
        Err(fault) => Answer::Page(access::fault_page(fault.kind, fault.detail)),
        Ok(Framing::Length(length)) if too_long(session, length) => {
            session.begin_upload(Framing::Length(length));
            Answer::Page(access::fault_page(FaultKind::BodyTooLong, "the body is longer than permitted"))
        }
        Ok(framing) => {
            session.begin_upload(framing);
            match verdict.unwrap_or_else(|| access::judge(session, request)) {
                Verdict::Allow(ask) => {
                    if key.is_none() {
                        note(session, &ask, record);
                    }
                    obtain::obtain(session, request, ask, key, framing, &mut upload, record).await
                }
                Verdict::Answer(page) => Answer::Page(page),
                Verdict::Purge(ask) => Answer::Page(purge::of_request(&session.worker.shared, request, &ask).await),
                Verdict::Echo => Answer::Page(echo(request)),
                Verdict::Tunnel(..) => Answer::Page(access::fault_page(FaultKind::Target, "not a CONNECT")),
            }
        }
    };
    let next = respond::respond(session, request, answer, &mut upload, record).await;
    let drained = next != Next::Continue || drain(session).await;
    if drained { next } else { Next::Close }
}

/// What was asked for, and by which rule it is served.
fn note(session: &Session, ask: &Ask, record: &mut Record) {
    record.trail.rule = Some(ask.rule);
    record.trail.edition = session.worker.edition();
    if record.is_read() {
        ask.url.write_to(&mut record.url);
    }
}

fn too_long(session: &Session, length: u64) -> bool {
    session.worker.config().limits.body_bytes_max.is_some_and(|max| length > max)
}

/// The connection goes on only when the rest of the request's body is out of the way; the client gets its answer
/// before that.
async fn drain(session: &mut Session) -> bool {
    session.upload.is_none() || (session.flush().await.is_ok() && session.drain_upload().await)
}

/// RFC 9110 section 9.3.8, without the fields that may hold credentials.
fn echo(request: &RequestHead) -> Page {
    let mut text = format!("{} ", request.method);
    for (name, value) in request.fields.iter().filter(|(name, _)| !is_credential(name)) {
        text.push_str(&format!("{name}: {}; ", String::from_utf8_lossy(value)));
    }
    Page::new(200, "trace", text, "This is what arrived here.")
}

/// What was no request, or came too late, is answered and the connection closed.
async fn refuse(mut session: Box<Session>, end: &End) {
    if matches!(end, End::Fault(_)) {
        session.worker.tally.faults.add(1);
    }
    match respond::page_for_end(end) {
        Some(page) => {
            respond::page_without_request(&mut session, &page);
            session.worker.tell_refused(&session.door, session.peer, &page);
            session.close().await;
        }
        None => {
            if session.is_in_head() {
                session.worker.tell_unanswered(&session.door, session.peer, "client-gone");
            }
            let _ = session.flush().await;
        }
    }
}

/// Serves a request that is not answered at once, and tells its record.
async fn serve_one(session: &mut Session, request: Box<RequestHead>, begun: Box<Begun>) -> Next {
    let request = Rc::new(*request);
    let Begun { verdict, mut record, key } = *begun;
    let way = async |session: &mut Session, record: &mut Record| {
        Left::Stays(travel(session, &request, verdict, key, record).await)
    };
    let left = within_limits(session, &request, &mut record, way).await;
    record.tell();
    match left {
        Left::Stays(next) => next,
        Left::Passes { .. } | Left::Opens(..) => Next::Cut,
    }
}

/// Goes this way with a request. A broken invariant ends one request, not the worker (invariant 12), and one that takes too
/// long as a whole is cut where it is: where nothing was answered yet, the client is told.
async fn within_limits(
    session: &mut Session,
    request: &RequestHead,
    record: &mut Record,
    way: impl AsyncFnOnce(&mut Session, &mut Record) -> Left,
) -> Left {
    let (worker, limit) = (Rc::clone(&session.worker), session.worker.config().timeouts.request);
    let result = {
        let caught = caught(place::boxed(|| way(session, record)));
        worker.ticker.timer().limit(limit.unwrap_or(Duration::MAX), Wait::Request, caught).await
    };
    let page = match result {
        Ok(Some(left)) => return left,
        Ok(None) => {
            worker.tally.panics.add(1);
            broken_page()
        }
        Err(Over::Ending | Over::Draining) => {
            let what = "This cache is going down, and does not wait for the request any longer.";
            Page::new(503, "going-down", what, "Send it again in a moment.").closing().with("Retry-After", "5")
        }
        // Whose turn it was when the time was up.
        Err(Over::Late) if !session.upload_is_over() => {
            out_of_time(408, "The request did not come to its end in time.")
        }
        Err(Over::Late) => out_of_time(504, "There was no answer within the time that a request may take as a whole."),
    };
    Left::Stays(end_early(session, request, &page, record))
}

/// Ends a request before its answer is whole: by this page, if the client has seen nothing of an answer yet.
fn end_early(session: &mut Session, request: &RequestHead, page: &Page, record: &mut Record) -> Next {
    if !session.answer_began {
        return respond::respond_page(session, request, page, false, record);
    }
    record.breaks_off(page.word, &page.what);
    // What was said so far may be of a body that ends with the connection.
    session.end_by_reset();
    Next::Cut
}

fn out_of_time(status: u16, what: &str) -> Page {
    Page::new(status, "request-time", what, "Try again; the administrator can raise timeouts.request.").closing()
}

fn broken_page() -> Page {
    let what = "This cache met a mistake of its own while it served the request.";
    Page::new(500, "panic", what, "Try again, and tell the administrator: the diagnostics say more.").closing()
}

/// What becomes of a connection on which a request met a broken invariant before it got a task. Its record is lost with it,
/// so it has another one.
pub fn broken(session: &mut Session) -> Next {
    session.worker.tally.panics.add(1);
    let page = broken_page();
    if session.answer_began {
        session.worker.tell_unanswered(&session.door, session.peer, page.word);
        session.end_by_reset();
        return Next::Cut;
    }
    respond::page_without_request(session, &page);
    session.worker.tell_refused(&session.door, session.peer, &page);
    Next::Close
}

#[cfg(test)]
mod tests;
