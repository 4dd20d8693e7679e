//! ICAP services in an exchange: `reqmod` before the lookup, `respmod-send` on the answer for one client. Those that look at
//! answers before they are stored are asked by the fetch.

use super::deliver::{self, AnswerSource, Ended, Manner};
use super::presence::Presence;
use super::relay::key_of;
use super::stream::ClientStream;
use super::upload::Upload;
use super::{by_verdict, note};
use crate::config::python::OnFailure;
use crate::config::{Icap, IcapStage};
use crate::env::Env;
use crate::fetch::{self, WithoutService};
use crate::icap::{self, AuthorizationFor, Body, ChangedTo, Failed, Judged, Origin, Question, Service, Trouble, Word};
use crate::page::Page;
use crate::record::{IcapDid, Outcome, Record};
use crate::request_body::{Piece, RequestBody};
use crate::rules::{self, Ask, Verdict};
use crate::upstream::{BodySource, UpstreamFaultKind};
use larder_cache::entry::{Arrival, PinnedEntry, Reader, Stop};
use larder_cache::head::StoredHead;
use larder_wire::{Host, Method, RequestHead, ResponseHead, Target, Url};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The word of pages and records.
pub(super) const WORD: &str = "icap";

/// Whether a service is asked about such a request, or about the answer for its client: then no stored response is handed over
/// at once.
pub fn is_asked(env: &Env, method: &Method, ask: &Ask) -> bool {
    let config = env.config();
    let is_meant = |icap: &Arc<Icap>| icap.stage != IcapStage::RespmodStore && icap.is_for(method, &ask.url.host);
    !config.icaps.is_empty() && config.icaps.iter().any(is_meant)
}

/// Whether a service is asked about such a request.
pub(super) fn is_request_asked(env: &Env, method: &Method, ask: &Ask) -> bool {
    !env.config().icaps.is_empty() && !fetch::icap_services(env, IcapStage::Reqmod, method, ask).is_empty()
}

/// Answers a request that the rules allow, with the services that are asked about it.
pub(super) async fn answer<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    (ask, key): (Ask, Option<Vec<u8>>),
    body: RequestBody,
    record: &mut Record,
) -> Ended {
    if key.is_none() {
        note(stream.env(), &ask, record);
    }
    let key = key.unwrap_or_else(|| key_of(&ask, &stream.env().common.cache));
    let mut upload = None;
    let asked = reqmod(stream, request, &ask, body, &mut upload, record).await;
    match asked {
        Asked::Unchanged => by_verdict(stream, request, (Verdict::Allow(ask), Some(key)), body, (upload, record)).await,
        asked => after_change(stream, request, (asked, &ask), (upload, record)).await,
    }
}

/// Answers a request that was allowed as `ask`, and that a service changed or answered.
pub(super) async fn after_change<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    (asked, ask): (Asked, &Ask),
    (mut upload, record): (Option<Upload>, &mut Record),
) -> Ended {
    let (changed, body) = match asked {
        Asked::Changed(changed, body) => (Rc::new(*changed), body),
        Asked::Answered(answer) => {
            return deliver::deliver(stream, request, (answer, Manner::default()), &mut upload, record).await;
        }
        Asked::Unchanged => return deliver::deliver_page(stream, request, &changed_elsewhere(), record),
    };
    // A changed request is judged like one that came so: where it leads, and by whose key it is stored.
    let verdict = rules::judge_changed_and_wait(stream.env(), stream.peer(), (&changed, record.number), ask).await;
    let verdict = match verdict {
        Verdict::Allow(ask) => {
            let key = key_of(&ask, &stream.env().common.cache);
            (Verdict::Allow(ask), Some(key))
        }
        verdict @ (Verdict::Answer(_) | Verdict::Hooked(_)) => (verdict, None),
        _ => (Verdict::Answer(changed_elsewhere()), None),
    };
    if let (Verdict::Allow(ask), _) = &verdict {
        record.url.clear();
        note(stream.env(), ask, record);
    }
    by_verdict(stream, &changed, verdict, body, (upload, record)).await
}

/// A request after the services that are asked about requests.
pub(super) enum Asked {
    /// It goes on as it is.
    Unchanged,
    /// This one goes on in its place, with a body of this length.
    Changed(Box<RequestHead>, RequestBody),
    /// It is answered.
    Answered(AnswerSource),
}

/// Asks all services about a request, one after the other.
pub(super) async fn reqmod<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    ask: &Ask,
    length: RequestBody,
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> Asked {
    let services = fetch::icap_services(stream.env(), IcapStage::Reqmod, &request.method, ask);
    let mut asking = Asking {
        client_url: ask.client_url().clone(),
        authorization: authorization_of(ask),
        url: ask.client_url().clone(),
        changed: None,
        length,
        body: None,
    };
    // The answer to an earlier request of the connection does not wait for a service.
    let _ = stream.flush().await;
    for icap in services {
        let service = stream.env().common.icap.of(&icap);
        if let Some(answer) = asking.ask(stream, (request, &service), upload, record).await {
            return Asked::Answered(answer);
        }
    }
    if let Some(body) = asking.body.filter(|_| length != RequestBody::None || asking.changed.is_some()) {
        let is_empty = body.is_empty() && matches!(body.origin, Origin::None);
        if !is_empty {
            let fault = body.fault.clone();
            *upload = Some(Upload::by_way_of(upload.take(), into_pieces(body), fault));
        }
    }
    match asking.changed {
        None => Asked::Unchanged,
        Some(changed) => Asked::Changed(changed, asking.length),
    }
}

/// Asks the services that look at requests for a tunnel. Gives the end of the request where no tunnel may begin.
pub(super) async fn tunnel<S: ClientStream>(
    stream: &mut S,
    request: &RequestHead,
    (host, port): (&Host, u16),
    record: &mut Record,
) -> Option<Ended> {
    let config = stream.env().config();
    let services: Vec<_> = config.icaps.iter().filter(|icap| icap.is_for_tunnel(host)).cloned().collect();
    let _ = stream.flush().await;
    for icap in services {
        let service = stream.env().common.icap.of(&icap);
        let seen = icap::request_for_service(request, AuthorizationFor::Origin);
        let target = format!("{host}:{port}");
        let client = icap.send_client.then(|| stream.peer().address.ip());
        let question = Question { request: &seen, target: &target, response: None, client };
        let env = Rc::clone(stream.env());
        let (note, word) = match beside(stream, &mut None, service.ask(&env.upstreams, &question, Body::none())).await {
            Ok(asked) => asked,
            Err(page) => return Some(deliver::deliver_page(stream, request, &page, record)),
        };
        record.note_icap(note);
        let page = match word.map(|word| word.judged) {
            Ok(Judged::Unchanged(_)) => continue,
            Ok(Judged::Request(head, _)) if head.target == request.target => continue,
            Ok(Judged::Request(..)) => changed_elsewhere(),
            // To the client that would be a tunnel, with the page as what comes out of it.
            Ok(Judged::Response(head, _)) if matches!(head.status, 200..=299) => {
                let why = "it answered a CONNECT with the status of a tunnel that is open";
                record.note_icap(service.note(IcapDid::Failed, Instant::now(), false, Some(why)));
                refused(&icap, why)
            }
            Ok(Judged::Response(head, carried)) => {
                let body = fetch::source_of_reply(&head, &request.method, carried);
                let target = format!("http://{target}/").into_bytes();
                let parts = (without_framing(*head), body);
                let passing = Passing { key: &target, of: None, outcome: Outcome::Own(WORD) };
                let answer = passed_on(stream, request, passing, parts, record).await;
                return Some(deliver::deliver(stream, request, (answer, Manner::default()), &mut None, record).await);
            }
            Err(_) if icap.on_failure == OnFailure::Pass => {
                let why = Some("it goes on unjudged");
                record.note_icap(service.note(IcapDid::Bypassed, Instant::now(), false, why));
                continue;
            }
            Err(failed) => refused(&icap, &failed.trouble.to_string()),
        };
        return Some(deliver::deliver_page(stream, request, &page.closing(), record));
    }
    None
}

fn without_framing(mut head: ResponseHead) -> ResponseHead {
    head.fields.remove("Trailer");
    head
}

/// For whom the `Authorization` is that the client sent; hooks and rules may give the origin another one, of which services hear nothing.
fn authorization_of(ask: &Ask) -> AuthorizationFor {
    match ask.people.as_ref().is_some_and(|people| people.consumes_authorization) {
        true => AuthorizationFor::Larder,
        false => AuthorizationFor::Origin,
    }
}

/// A request on its way through the services.
struct Asking {
    client_url: Url,
    authorization: AuthorizationFor,
    url: Url,
    changed: Option<Box<RequestHead>>,
    length: RequestBody,
    body: Option<Body>,
}

impl Asking {
    /// Asks one service. Gives the answer to the request where it does not go on.
    async fn ask<S: ClientStream>(
        &mut self,
        stream: &mut S,
        (request, service): (&RequestHead, &Service),
        upload: &mut Option<Upload>,
        record: &mut Record,
    ) -> Option<AnswerSource> {
        let icap = &*service.settings;
        let current = self.changed.as_deref().unwrap_or(request);
        let length = match self.length {
            RequestBody::Known(length) => Some(length),
            RequestBody::None => Some(0),
            RequestBody::Unknown => None,
        };
        let began = Instant::now();
        if let Err(without) = fetch::before_question(icap, current.fields.get("Content-Type"), length) {
            let why = match without {
                WithoutService::NotMeant => return None,
                WithoutService::Denied(_) => return Some(AnswerSource::Page(too_long())),
                WithoutService::TooLong | WithoutService::Passes => "its body is longer than `body_bytes_max`",
            };
            record.note_icap(service.note(IcapDid::Bypassed, began, false, Some(why)));
            return None;
        }
        let body = self.body.take().unwrap_or_else(|| match self.length {
            RequestBody::None => Body::none(),
            _ => {
                let (sending, pieces) = Upload::new();
                *upload = Some(sending);
                Body::of_pieces(pieces, length)
            }
        });
        let (seen, target) = (icap::request_for_service(current, self.authorization), self.url.to_string());
        let client = icap.send_client.then(|| stream.peer().address.ip());
        let question = Question { request: &seen, target: &target, response: None, client };
        let env = Rc::clone(stream.env());
        let (note, word) = match beside(stream, upload, service.ask(&env.upstreams, &question, body)).await {
            Ok(asked) => asked,
            Err(page) => return Some(AnswerSource::Page(page)),
        };
        record.note_icap(note);
        match word {
            Ok(Word { judged, .. }) => self.after_word(stream, (request, service), judged, record).await,
            Err(failed) => self.after_failure(service, failed, record),
        }
    }

    async fn after_word<S: ClientStream>(
        &mut self,
        stream: &mut S,
        (request, service): (&RequestHead, &Service),
        judged: Judged,
        record: &mut Record,
    ) -> Option<AnswerSource> {
        match judged {
            Judged::Unchanged(body) => self.body = Some(body),
            Judged::Response(head, carried) => {
                let body = fetch::source_of_reply(&head, &request.method, carried);
                return Some(of_service(stream, request, (*head, body), &self.url, record).await);
            }
            Judged::Request(mut head, carried) => {
                let declared = carried.is_some().then(|| icap::content_length(&head.fields));
                icap::mend_request(&mut head, declared);
                let (url, mut head) = match retargeted(request, &self.url, *head) {
                    Ok(changed) => changed,
                    Err(why) => {
                        record.note_icap(service.note(IcapDid::Failed, Instant::now(), false, Some(why)));
                        return Some(AnswerSource::Page(refused(&service.settings, why)));
                    }
                };
                let to = match is_same_origin(&self.client_url, &url) {
                    true => ChangedTo::SameOrigin,
                    false => ChangedTo::AnotherOrigin,
                };
                icap::restore_credentials(request, &mut head.fields, (self.authorization, to));
                self.length = match declared {
                    None => RequestBody::None,
                    Some(Some(length)) => RequestBody::Known(length),
                    Some(None) => RequestBody::Unknown,
                };
                let length = declared.unwrap_or(Some(0));
                self.body = Some(
                    carried.map_or_else(Body::none, |carried| Body::of_reply(carried.pieces, carried.fault, length)),
                );
                (self.url, self.changed) = (url, Some(Box::new(head)));
            }
        }
        None
    }

    fn after_failure(&mut self, service: &Service, failed: Failed, record: &mut Record) -> Option<AnswerSource> {
        let icap = &*service.settings;
        let Failed { trouble, body } = failed;
        match (icap.on_failure, &trouble, body) {
            (_, Trouble::TooLong, _) => Some(AnswerSource::Page(too_long())),
            (_, Trouble::Source(fault), _) if fault.kind != UpstreamFaultKind::Icap => {
                Some(AnswerSource::Page(deliver::client_gone()))
            }
            (OnFailure::Pass, _, Some(body)) => {
                self.body = Some(*body);
                let why = "it goes on unjudged";
                record.note_icap(service.note(IcapDid::Bypassed, Instant::now(), false, Some(why)));
                None
            }
            (_, trouble, _) => Some(AnswerSource::Page(refused(icap, &trouble.to_string()))),
        }
    }
}

/// Carries the client's body on while `work` is under way, until that is done or the client is gone.
async fn beside<T, S: ClientStream>(
    stream: &mut S,
    upload: &mut Option<Upload>,
    work: impl Future<Output = T>,
) -> Result<T, Page> {
    let mut work = std::pin::pin!(work);
    let mut presence = Presence::new(stream.env());
    loop {
        let step = async {
            tokio::select! {
                biased;
                done = &mut work => Ok(done),
                more = async {
                    match upload.as_mut() {
                        Some(upload) => upload.step(stream).await,
                        None => std::future::pending().await,
                    }
                } => Err(more),
            }
        };
        match presence.until_look(step).await {
            Some(Ok(done)) => return Ok(done),
            None if presence.is_gone(stream) => return Err(deliver::client_gone()),
            None | Some(Err(Ok(true))) => {}
            Some(Err(Ok(false))) => *upload = None,
            Some(Err(Err(end))) => return Err(deliver::page_for_body(&end)),
        }
    }
}

fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme == other.scheme && one.host == other.host && one.port == other.port
}

/// The changed request with its target in the form of the client's, and its URL; or why it can't take the place of the client's. One
/// for another host names it. The method and the version of a request say how its answer is framed on the client's connection: the version
/// stays, and so does whether it is a HEAD.
fn retargeted(request: &RequestHead, url: &Url, changed: RequestHead) -> Result<(Url, RequestHead), &'static str> {
    let RequestHead { method, target, mut fields, .. } = changed;
    if method == Method::Connect || (method == Method::Head) != (request.method == Method::Head) {
        return Err("it changed the method of the request to one whose answer the client would not understand");
    }
    let to = match target {
        Target::Absolute(to) => to,
        Target::Origin(path) => Url { path, ..url.clone() },
        Target::Authority(..) | Target::Asterisk => {
            return Err("it changed the request to one that names no URL");
        }
    };
    let is_same_host = is_same_origin(&to, url);
    let target = match request.target {
        Target::Absolute(_) => Target::Absolute(to.clone()),
        _ if is_same_host => Target::Origin(to.path.clone()),
        _ => Target::Absolute(to.clone()),
    };
    if !is_same_host || !fields.contains("Host") {
        fields.set("Host", to.authority());
    }
    Ok((to, RequestHead::new(method, target, request.version, fields)))
}

/// The pieces of a body for the one who sends it on.
fn into_pieces(mut body: Body) -> mpsc::Receiver<Piece> {
    if body.held.is_empty()
        && body.end.is_none()
        && let Origin::Pieces(pieces) = body.origin
    {
        return pieces;
    }
    let (sender, pieces) = mpsc::channel(1);
    tokio::task::spawn_local(async move {
        while let Ok(Some(piece)) = body.next().await {
            if sender.send(Piece::Data(piece)).await.is_err() {
                return;
            }
        }
        // Without an end the fetch learns that the body broke off.
        if let Some(trailers) = body.end.take() {
            let _ = sender.send(Piece::End(trailers)).await;
        }
    });
    pieces
}

/// The answer that a service gave to a request: for this client alone.
async fn of_service<S: ClientStream>(
    stream: &S,
    request: &RequestHead,
    (head, body): (ResponseHead, BodySource),
    url: &Url,
    record: &mut Record,
) -> AnswerSource {
    let mut key = Vec::new();
    url.key_text(&mut key);
    let passing = Passing { key: &key, of: None, outcome: Outcome::Own(WORD) };
    passed_on(stream, request, passing, (without_framing(head), body), record).await
}

/// An answer that is not stored, beside its head and its body.
struct Passing<'a> {
    key: &'a [u8],
    /// The answer in whose place it goes to the client, and whose age it has.
    of: Option<&'a StoredHead>,
    outcome: Outcome,
}

/// An answer that is not stored, made of a head and a body.
async fn passed_on<S: ClientStream>(
    stream: &S,
    request: &RequestHead,
    Passing { key, of, outcome }: Passing<'_>,
    (head, body): (ResponseHead, BodySource),
    record: &mut Record,
) -> AnswerSource {
    let (mut reader, writer) = stream.env().common.cache.alone(key);
    match of {
        Some(of) => fetch::adopt_instead(writer, (head, of), body, &request.method),
        None => fetch::adopt(writer, head, body, &request.method),
    }
    match reader.arrival().await {
        Arrival::Head(stored) => AnswerSource::Entry { reader, stored, outcome, verbatim: true, refill: None },
        Arrival::Failed(failure) => AnswerSource::Page(deliver::failed(&failure, record)),
        Arrival::Use(..) | Arrival::Alone => AnswerSource::Page(super::broken_page()),
    }
}

/// The services that look at the answer for one client.
pub(super) struct SendStage {
    services: Vec<Arc<Icap>>,
    url: Url,
    /// The request as the services see it.
    seen: RequestHead,
}

impl SendStage {
    /// For a request whose answer a service looks at.
    pub(super) fn of<S: ClientStream>(stream: &S, request: &RequestHead, ask: &Ask) -> Option<Box<SendStage>> {
        if request.method == Method::Head || stream.env().config().icaps.is_empty() {
            return None;
        }
        let services = fetch::icap_services(stream.env(), IcapStage::RespmodSend, &request.method, ask);
        let seen = || fetch::request_for_service(request, ask);
        (!services.is_empty()).then(|| Box::new(SendStage { services, url: ask.client_url().clone(), seen: seen() }))
    }

    /// Lets the services look at an answer. Pages of Larder's own go as they are.
    pub(super) async fn send<S: ClientStream>(
        &self,
        stream: &mut S,
        request: &RequestHead,
        mut answer: AnswerSource,
        record: &mut Record,
    ) -> AnswerSource {
        for icap in &self.services {
            let service = stream.env().common.icap.of(icap);
            answer = self.ask(stream, (request, &service), answer, record).await;
        }
        answer
    }

    async fn ask<S: ClientStream>(
        &self,
        stream: &mut S,
        (request, service): (&RequestHead, &Service),
        answer: AnswerSource,
        record: &mut Record,
    ) -> AnswerSource {
        let AnswerSource::Entry { reader, stored, outcome, verbatim, refill } = answer else { return answer };
        let unasked = |reader, stored| AnswerSource::Entry { reader, stored, outcome, verbatim, refill };
        let head = deliver::head_for_client(&stored, outcome).clone();
        let has_body = verbatim || !deliver::needed(request, &stored, reader.length()).is_empty();
        if !has_body || head.status == 304 {
            return unasked(reader, stored);
        }
        let (icap, began) = (&*service.settings, Instant::now());
        match before_send(icap, &head, reader.length()) {
            Ok(()) => {}
            Err(WithoutService::NotMeant) => return unasked(reader, stored),
            Err(WithoutService::Denied(fault)) => return AnswerSource::Page(refused(icap, &fault.detail)),
            Err(WithoutService::TooLong | WithoutService::Passes) => {
                let why = Some("it can't be judged, and goes on");
                record.note_icap(service.note(IcapDid::Bypassed, began, true, why));
                return unasked(reader, stored);
            }
        }
        let entry = reader.entry().clone();
        let (length, key) = (reader.length(), reader.entry().key().text().to_vec());
        let target = self.url.to_string();
        let response = icap::response_for_service(&head);
        let client = icap.send_client.then(|| stream.peer().address.ip());
        let question = Question { request: &self.seen, target: &target, response: Some(&response), client };
        let env = Rc::clone(stream.env());
        let asking = service.ask(&env.upstreams, &question, Body::of_pieces(read(reader), length));
        let unasked_again = |reader, stored| AnswerSource::Entry { reader, stored, outcome, verbatim, refill: None };
        let (note, word) = match beside(stream, &mut None, asking).await {
            Ok(asked) => asked,
            Err(page) => return AnswerSource::Page(page),
        };
        record.note_icap(note);
        let (judged, is_passed) = match word {
            Ok(Word { judged, .. }) => (judged, false),
            Err(Failed { body, trouble }) => {
                let may_pass = icap.on_failure == OnFailure::Pass && trouble != Trouble::TooLong;
                match body.filter(|_| may_pass) {
                    Some(body) => (Judged::Unchanged(*body), true),
                    None => match again(&env, &entry).filter(|_| may_pass) {
                        Some(reader) => return unasked_again(reader, stored),
                        None => return AnswerSource::Page(refused(icap, &trouble.to_string())),
                    },
                }
            }
        };
        if is_passed {
            record.note_icap(service.note(IcapDid::Bypassed, began, true, Some("it goes on unjudged")));
        }
        let (head, body) = match judged {
            Judged::Unchanged(body) => match again(&env, &entry) {
                Some(reader) => return unasked_again(reader, stored),
                None => (head, fetch::source_of(body)),
            },
            Judged::Response(mut changed, carried) => {
                icap::mend_response(&head, &mut changed);
                let body = fetch::source_of_reply(&changed, &request.method, carried);
                (*changed, body)
            }
            Judged::Request(..) => return AnswerSource::Page(refused(icap, "it gave a request for a response")),
        };
        let passing = Passing { key: &key, of: Some(&stored), outcome };
        passed_on(stream, request, passing, (head, body), record).await
    }
}

/// A stored response from its start: parts of it can be had, and it is not copied.
fn again(env: &Env, entry: &PinnedEntry) -> Option<Reader> {
    env.common.cache.open(entry).filter(|_| entry.is_whole()).map(|hit| hit.reader)
}

/// Whether a service is to be asked about an answer.
fn before_send(icap: &Icap, head: &ResponseHead, length: Option<u64>) -> Result<(), WithoutService> {
    match head.status {
        206 if icap.on_failure == OnFailure::Pass => Err(WithoutService::Passes),
        206 => Err(WithoutService::Denied(fetch::fault_of(icap, "a part of an object can't be judged"))),
        _ => fetch::before_question(icap, head.fields.get("Content-Type"), length),
    }
}

/// Reads a response for a service, in a task of its own.
fn read(mut reader: Reader) -> mpsc::Receiver<Piece> {
    /// So much is read at once.
    const READ_BYTES: u64 = 256 * 1024;
    let (sender, pieces) = mpsc::channel(4);
    tokio::task::spawn_local(async move {
        let (mut at, mut read) = (0, Vec::new());
        let end = reader.length().unwrap_or(u64::MAX);
        while at < end {
            let step: Result<u64, Stop> = reader.read(at..end.min(at + READ_BYTES), &mut read).await;
            match step {
                Ok(0) if end == u64::MAX => break,
                Ok(0) | Err(_) => return,
                Ok(bytes) => at += bytes,
            }
            for piece in read.drain(..) {
                if sender.send(Piece::Data(piece)).await.is_err() {
                    return;
                }
            }
        }
        let trailers = reader.trailers().unwrap_or_default();
        let _ = sender.send(Piece::End(trailers)).await;
    });
    pieces
}

/// The page for a request or an answer that a service could not be asked about.
pub(super) fn refused(icap: &Icap, why: &str) -> Page {
    let what = format!(
        "A service that looks at what comes through this cache gave no usable word (icap {}): {why}.",
        icap.name
    );
    let remedy = "Try again in a moment, or tell the administrator of this cache.";
    Page::new(503, WORD, what, remedy).with("Retry-After", "5")
}

fn too_long() -> Page {
    let what = "The body is longer than a service takes that looks at what comes through this cache.";
    Page::new(413, WORD, what, "Ask the administrator of this cache, who can raise `body_bytes_max` of the [[icap]].")
}

fn changed_elsewhere() -> Page {
    let what = "A service that looks at requests changed this one to one that leads nowhere.";
    Page::new(403, WORD, what, "Tell the administrator of this cache.")
}

/// The page for a path that is a URL, where a service looks at requests or at each answer: such paths do not pass it.
pub(super) fn not_for_mirror() -> Page {
    let what =
        "A service looks at requests to this host or at each answer, and does not see those whose path is a URL.";
    Page::new(403, WORD, what, "Use this address as a proxy.")
}
