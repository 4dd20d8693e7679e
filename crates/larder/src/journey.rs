//! A request's way through the rooms, from the first byte to the record. Open this one first.

use crate::access::{self, Ask, Verdict};
use crate::fetch::{self, Errand, Order};
use crate::page::Page;
use crate::record::{Cause, Outcome, Record};
use crate::respond::{self, Answer, Next};
use crate::session::{End, Session};
use crate::ticker::Wait;
use crate::tunnel;
use crate::upload::Upload;
use larder_cache::cache::{Absent, Found, Hit, Joins};
use larder_cache::entry::{Arrival, Failure, Reader, Said, Writer};
use larder_cache::policy::{self, Asked, ValidateWhy};
use larder_wire::framing::{self, Framing};
use larder_wire::range::{self, RangeSpec};
use larder_wire::{FaultKind, Method, RequestHead, ResponseHead, Version, hop};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::mpsc;

/// Serves a connection to its end.
pub async fn serve(mut session: Session) {
    loop {
        let request = match session.next_request().await {
            Ok(request) => request,
            Err(end) => return Box::pin(refuse(session, &end)).await,
        };
        match request.method {
            // Rare and large: boxed, so that every connection's task stays small.
            Method::Connect => return Box::pin(tunnel::connect(session, request)).await,
            _ if upgrades(&request) => match Box::pin(tunnel::upgrade(session, request)).await {
                Some(still) => {
                    session = still;
                    continue;
                }
                None => return,
            },
            _ => {}
        }
        if let Some(next) = quick(&mut session, &request) {
            match next {
                Next::Continue if session.flush_if_full().await.is_ok() => continue,
                Next::Close => return session.close().await,
                Next::Continue | Next::Cut => return,
            }
        }
        match caught(&mut session, request).await {
            // A client that sends requests and reads no answers must not fill the outbox with them.
            Next::Continue if session.flush_if_full().await.is_ok() => {}
            Next::Close => return session.close().await,
            Next::Continue | Next::Cut => return,
        }
    }
}

/// A request that wants to leave HTTP. One of HTTP/1.0 can't, and one with a body would have to be read by two protocols:
/// there the offer is not taken, and the request is served as any other (RFC 9110 section 7.8).
fn upgrades(request: &RequestHead) -> bool {
    request.version == Version::Http11
        && hop::upgrade(&request.fields).is_some()
        && framing::of_request(request) == Ok(Framing::None)
}

/// The same way for a request that the store answers on the spot: no wait, so no task state. `None` leaves all
/// as it was, for [`travel`].
fn quick(session: &mut Session, request: &RequestHead) -> Option<Next> {
    // Framing first: what could be read in two ways is refused, hit or not.
    let bare = framing::of_request(request) == Ok(Framing::None);
    if request.method != Method::Get || !bare || !respond::is_plain(&request.fields) || !policy::answerable(request) {
        return None;
    }
    let Verdict::Allow(ask) = access::judge(session, request) else { return None };
    let shared = Arc::clone(&session.worker.shared);
    let mut record = Record::begin(request, session.peer, shared.logs());
    let mut key = session.worker.keys.take();
    key.clear();
    ask.key(&shared.cache, &mut key);
    let hit = shared.cache.fresh(&key, request, &Asked::of(request), record.stamp());
    session.worker.keys.set(key);
    let next = respond::whole(session, request, hit?, &mut record)?;
    if shared.logs() {
        record.url = ask.url.to_string();
    }
    shared.tell(&session.worker.tally, session.door.run.as_deref(), record);
    Some(next)
}

/// One request, from its head to its record.
pub async fn travel(session: &mut Session, request: RequestHead) -> Next {
    let request = Rc::new(request);
    let mut record = Record::begin(&request, session.peer, session.worker.shared.logs());
    let mut upload = None;
    let answer = match framing::of_request(&request) {
        Err(fault) => Answer::Page(access::fault_page(fault.kind, fault.detail)),
        Ok(Framing::Length(length)) if too_long(session, length) => {
            session.begin_upload(Framing::Length(length));
            Answer::Page(access::fault_page(FaultKind::BodyTooLong, "the body is longer than permitted"))
        }
        Ok(framing) => {
            session.begin_upload(framing);
            match access::judge(session, &request) {
                Verdict::Allow(ask) => {
                    if session.worker.shared.logs() {
                        record.url = ask.url.to_string();
                    }
                    obtain(session, &request, ask, framing, &mut upload, &mut record).await
                }
                Verdict::Answer(page) => Answer::Page(page),
                Verdict::Echo => Answer::Page(echo(&request)),
                Verdict::Tunnel(..) => Answer::Page(access::fault_page(FaultKind::Target, "not a CONNECT")),
            }
        }
    };
    let next = respond::respond(session, &request, answer, &mut upload, &mut record).await;
    let drained = next != Next::Continue || drain(session).await;
    session.worker.shared.tell(&session.worker.tally, session.door.run.as_deref(), record);
    if drained { next } else { Next::Close }
}

fn too_long(session: &Session, length: u64) -> bool {
    session.worker.config().limits.body_bytes_max.is_some_and(|max| length > max)
}

/// The connection goes on only when the rest of the request's body is out of the way; the client gets its answer
/// before that.
async fn drain(session: &mut Session) -> bool {
    session.upload.is_none() || (session.flush().await.is_ok() && session.drain_upload().await)
}

/// What the request may have: from the store, from a fetch that is under way, or from one that begins now.
async fn obtain(
    session: &mut Session,
    request: &Rc<RequestHead>,
    ask: Ask,
    framing: Framing,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Answer {
    let Some((asked, joins)) = lookup(request, framing) else {
        let cause = if matches!(request.method, Method::Get | Method::Head) { Cause::Bypass } else { Cause::Method };
        return Relay { request, ask, framing, cause }.answer(session, upload, record).await;
    };
    let cache = Arc::clone(&session.worker.shared.cache);
    let mut key = Vec::with_capacity(128);
    ask.key(&cache, &mut key);
    for _ in 0..TURNS_MAX {
        let (reader, writer, cause) = match cache.find(&key, request, &asked, record.stamp(), joins) {
            Found::Fresh(hit) => {
                let outcome = if hit.filling { Outcome::Collapsed } else { Outcome::Hit };
                return stored(hit, outcome);
            }
            Found::Stale(hit, _) => return stored(hit, Outcome::HitStale),
            Found::Revalidate(hit, writer) => {
                if let Some(writer) = writer {
                    fetch::lead(order(session, request, ask, Errand::Share, writer));
                }
                return stored(hit, Outcome::HitRevalidating);
            }
            Found::Unsatisfiable => return Answer::Page(only_if_cached()),
            Found::InFlight(reader) => {
                let _ = session.flush().await;
                let follower = Follower { request, cache: &cache };
                match follower.answer(reader, record).await {
                    Some(answer) => return answer,
                    None => continue,
                }
            }
            Found::Validate(_, why, reader, writer) => {
                let cause = if why == ValidateWhy::Stale { Cause::Stale } else { cause_of(why) };
                (reader, writer, cause)
            }
            Found::Missing(reader, writer, absent) => {
                (reader, writer, if absent == Absent::Key { Cause::Uri } else { Cause::Vary })
            }
            Found::Pass(reader, writer) if joins == Joins::No => {
                let cause = if request.fields.contains("Range") { Cause::Range } else { Cause::Uri };
                let relay = Relay { request, ask, framing, cause };
                return relay.answer_into(reader, writer, session, upload, record).await;
            }
            // What is not stored is asked for as the client asks: a condition or a range spares the rest.
            Found::Pass(reader, writer) if !respond::is_plain(&request.fields) => {
                let relay = Relay { request, ask, framing, cause: Cause::Pass };
                return relay.answer_into(reader, writer, session, upload, record).await;
            }
            Found::Pass(reader, writer) => (reader, writer, Cause::Pass),
        };
        let order = order(session, request, ask.clone(), Errand::Share, writer);
        match leader(session, order, reader, cause, record).await {
            Some(answer) => return answer,
            None => continue,
        }
    }
    Relay { request, ask, framing, cause: Cause::Vary }.answer(session, upload, record).await
}

/// How often a follower looks again before it asks for itself. Once is usual: what it followed was for others.
const TURNS_MAX: usize = 3;

/// Begins a fetch and waits for its answer.
async fn leader(
    session: &mut Session,
    mut order: Order,
    mut reader: Reader,
    cause: Cause,
    record: &mut Record,
) -> Option<Answer> {
    let mut interim = take_interim(&mut order);
    fetch::lead(order);
    // Whoever waits for an origin first gets what is ready.
    let _ = session.flush().await;
    let arrival = loop {
        tokio::select! {
            biased;
            Some(head) = interim.recv() => {
                respond::interim(session, &head);
                let _ = session.flush().await;
            }
            arrival = reader.arrival() => break arrival,
        }
    };
    match arrival {
        Arrival::Head(kept) => Some(Answer::Entry { reader, kept, outcome: Outcome::Miss(cause), verbatim: false }),
        Arrival::Use(entry, said) => {
            let hit = session.worker.shared.cache.open(&entry)?;
            let outcome = if said == Said::Unchanged { Outcome::Validated } else { Outcome::HitError };
            Some(stored(hit, outcome))
        }
        Arrival::Failed(failure) => Some(failed(&failure, record)),
        Arrival::Alone => None,
    }
}

/// Interim heads are for HTTP/1.1 clients only (RFC 9110 section 15.2).
fn take_interim(order: &mut Order) -> mpsc::Receiver<ResponseHead> {
    let (tell, interim) = mpsc::channel(INTERIM_MAX);
    order.interim = (order.request.version == Version::Http11).then_some(tell);
    interim
}

/// A request that waits for another one's fetch.
struct Follower<'a> {
    request: &'a RequestHead,
    cache: &'a Arc<larder_cache::cache::Cache>,
}

impl Follower<'_> {
    /// The answer, if that fetch's answer is one for this request too.
    async fn answer(&self, mut reader: Reader, record: &mut Record) -> Option<Answer> {
        match reader.arrival().await {
            Arrival::Head(kept) => {
                // `no-cache`: each request has its own validation (RFC 9111 section 5.2.2.4).
                let fits = kept.terms.as_ref().is_some_and(|terms| !terms.no_cache && terms.vary.matches(self.request));
                fits.then_some(Answer::Entry { reader, kept, outcome: Outcome::Collapsed, verbatim: false })
            }
            Arrival::Use(entry, said) => {
                let hit = self.cache.open(&entry)?;
                let fits = hit.kept.terms.as_ref().is_some_and(|terms| terms.vary.matches(self.request));
                let outcome = if said == Said::Unchanged { Outcome::Collapsed } else { Outcome::HitError };
                fits.then(|| stored(hit, outcome))
            }
            Arrival::Failed(failure) => Some(failed(&failure, record)),
            Arrival::Alone => None,
        }
    }
}

/// Passes the request on as it is; the answer is for it alone.
struct Relay<'a> {
    request: &'a Rc<RequestHead>,
    ask: Ask,
    framing: Framing,
    cause: Cause,
}

impl Relay<'_> {
    async fn answer(self, session: &mut Session, upload: &mut Option<Upload>, record: &mut Record) -> Answer {
        let cache = &session.worker.shared.cache;
        let mut key = Vec::new();
        self.ask.key(cache, &mut key);
        let (reader, writer) = cache.alone(&key);
        self.answer_into(reader, writer, session, upload, record).await
    }

    async fn answer_into(
        self,
        mut reader: Reader,
        writer: Writer,
        session: &mut Session,
        upload: &mut Option<Upload>,
        record: &mut Record,
    ) -> Answer {
        let mut order = order(session, self.request, self.ask, Errand::Relay, writer);
        let mut interim = take_interim(&mut order);
        if self.framing != Framing::None {
            let (sending, body) = Upload::new();
            order.body = Some(body);
            *upload = Some(sending);
        }
        fetch::lead(order);
        let _ = session.flush().await;
        loop {
            let step = tokio::select! {
                biased;
                Some(head) = interim.recv() => Step::Interim(head),
                arrival = reader.arrival() => Step::Arrival(arrival),
                more = step(upload, session) => Step::Uploaded(more),
            };
            match step {
                Step::Interim(head) => {
                    respond::interim(session, &head);
                    if session.flush().await.is_err() {
                        return Answer::Page(gone());
                    }
                }
                Step::Uploaded(Ok(true)) => {}
                Step::Uploaded(Ok(false)) => *upload = None,
                Step::Uploaded(Err(end)) => return Answer::Page(respond::page_for_end(&end).unwrap_or_else(gone)),
                Step::Arrival(Arrival::Head(kept)) => {
                    return Answer::Entry { reader, kept, outcome: Outcome::Miss(self.cause), verbatim: true };
                }
                Step::Arrival(Arrival::Failed(failure)) => return failed(&failure, record),
                Step::Arrival(Arrival::Use(..) | Arrival::Alone) => return Answer::Page(gone()),
            }
        }
    }
}

/// Interim heads that wait for the client; more are dropped, for they are hints.
const INTERIM_MAX: usize = 4;

enum Step {
    Interim(ResponseHead),
    Arrival(Arrival),
    Uploaded(Result<bool, End>),
}

async fn step(upload: &mut Option<Upload>, session: &mut Session) -> Result<bool, End> {
    match upload {
        Some(upload) => upload.step(session).await,
        None => std::future::pending().await,
    }
}

/// Whether the store is asked for this request at all, and whether it takes part in shared fetches.
fn lookup(request: &RequestHead, framing: Framing) -> Option<(Asked, Joins)> {
    let readable = policy::answerable(request) && matches!(framing, Framing::None | Framing::Length(0));
    let fields = &request.fields;
    // These conditions guard a change at the origin; only it can tell (RFC 9110 section 13.2.1).
    if !readable || fields.contains("If-Match") || fields.contains("If-Unmodified-Since") {
        return None;
    }
    let asked = Asked::of(request);
    let joins = match request.method {
        Method::Get if !asked.no_store() && fetches_whole(request) => {
            if fields.contains("Authorization") {
                Joins::Apart
            } else {
                Joins::Yes
            }
        }
        _ => Joins::No,
    };
    Some((asked, joins))
}

/// A range that begins within this many bytes of the start is answered from a fetch of the whole object.
const RANGE_START_MAX: u64 = 256 * 1024;

/// The rule for ranges that are not stored: when all begin near the start, the whole is fetched and shared; others
/// are passed on as they are.
fn fetches_whole(request: &RequestHead) -> bool {
    let Some(value) = request.fields.get("Range") else { return true };
    let near = |spec: &RangeSpec| match spec {
        RangeSpec::Between { first, .. } | RangeSpec::From(first) => *first <= RANGE_START_MAX,
        RangeSpec::Suffix(_) => false,
    };
    range::parse_range(value).is_none_or(|specs| specs.iter().all(near))
}

fn order(session: &Session, request: &Rc<RequestHead>, ask: Ask, errand: Errand, writer: Writer) -> Order {
    Order {
        worker: Rc::clone(&session.worker),
        ask,
        request: Rc::clone(request),
        peer: session.peer,
        for_run: session.door.run.is_some(),
        scheme: session.scheme,
        errand,
        writer,
        body: None,
        interim: None,
    }
}

fn stored(hit: Hit, outcome: Outcome) -> Answer {
    Answer::Entry { reader: hit.reader, kept: hit.kept, outcome, verbatim: false }
}

fn cause_of(why: ValidateWhy) -> Cause {
    match why {
        ValidateWhy::RequestNoCache | ValidateWhy::RequestMaxAge | ValidateWhy::RequestMinFresh => Cause::Request,
        _ => Cause::Stale,
    }
}

fn failed(failure: &Failure, record: &mut Record) -> Answer {
    record.outcome = Outcome::Failed(failure.word);
    let remedy = "The cache itself is well. Try again, or ask the administrator of the origin.";
    Answer::Page(Page::new(
        failure.status,
        failure.word,
        format!("The origin gave no usable answer: {}.", failure.detail),
        remedy,
    ))
}

fn only_if_cached() -> Page {
    let what = "The request asks for a stored answer only, and there is none.";
    Page::new(504, "only-if-cached", what, "Ask without `only-if-cached`.")
}

fn gone() -> Page {
    Page::new(400, "client-gone", "The request did not come to its end.", "Send it again.").closing()
}

/// RFC 9110 section 9.3.8, without the fields that carry secrets.
fn echo(request: &RequestHead) -> Page {
    let mut text = format!("{} ", request.method);
    for (name, value) in request.fields.iter() {
        let secret =
            ["authorization", "proxy-authorization", "cookie"].iter().any(|other| name.eq_ignore_ascii_case(other));
        if !secret {
            text.push_str(&format!("{name}: {}; ", String::from_utf8_lossy(value)));
        }
    }
    Page::new(200, "trace", text, "This is what arrived here.")
}

/// What was no request, or came too late, is answered and the connection closed.
async fn refuse(mut session: Session, end: &End) {
    if matches!(end, End::Fault(_)) {
        session.worker.tally.faults.add(1);
    }
    match respond::page_for_end(end) {
        Some(page) => {
            respond::page_without_request(&mut session, &page);
            session.worker.shared.tell_refused(&session, &page);
            session.close().await;
        }
        None => {
            let _ = session.flush().await;
        }
    }
}

/// A broken invariant ends one request, not the worker: it is answered 500 and counted (invariant 12).
async fn caught(session: &mut Session, request: RequestHead) -> Next {
    let (worker, limit) = (Rc::clone(&session.worker), session.worker.config().timeouts.request);
    let result = {
        let mut travelling = Box::pin(travel(session, request));
        let caught = std::future::poll_fn(|cx| {
            match std::panic::catch_unwind(AssertUnwindSafe(|| travelling.as_mut().poll(cx))) {
                Ok(Poll::Ready(next)) => Poll::Ready(Some(next)),
                Ok(Poll::Pending) => Poll::Pending,
                Err(_) => Poll::Ready(None),
            }
        });
        match limit {
            None => caught.await,
            // A request that takes too long as a whole is cut where it is.
            Some(limit) => match worker.ticker.timer().limit(limit, Wait::Busy, caught).await {
                Ok(result) => result,
                Err(_) => return Next::Cut,
            },
        }
    };
    result.unwrap_or_else(|| {
        session.worker.tally.panics.add(1);
        Next::Cut
    })
}
