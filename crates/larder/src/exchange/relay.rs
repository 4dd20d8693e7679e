//! A request that is passed on for its client alone, and the parts of a fetch that each request needs.

use super::deliver::{self, AnswerSource};
use super::offline;
use super::posted::ReadBody;
use super::presence::Presence;
use super::stream::{BodyEnd, ClientStream};
use super::upload::Upload;
use super::why;
use crate::env::{Env, PeerFacts};
use crate::fetch::{self, Fetch, FetchKind, Interim, Posted};
use crate::page::Page;
use crate::record::{Cause, Notes, Outcome, Record};
use crate::request_body::{Piece, RequestBody};
use crate::rules::Ask;
use crate::upstream::OutgoingBody;
use larder_cache::cache::{Cache, Writer};
use larder_cache::entry::{Arrival, Failure, Reader};
use larder_cache::policy::{self, Asked};
use larder_wire::{Method, RequestHead, ResponseHead, Version};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Answers a request that no stored response can answer: its origin does, if it may be asked. `read` is the part of its body that was
/// read already.
pub(super) async fn without_store<S: ClientStream>(
    stream: &mut S,
    request: &Rc<RequestHead>,
    (ask, body, read): (Ask, RequestBody, Option<ReadBody>),
    upload: &mut Option<Upload>,
    record: &mut Record,
) -> AnswerSource {
    if stream.peer().listener.is_offline() {
        return AnswerSource::Page(offline::not_a_download());
    }
    if wants_stored_only(request) {
        return AnswerSource::Page(only_if_cached());
    }
    let cause = if ask.route.is_to_destination() { Cause::Destination } else { unasked(request) };
    let (body, posted) = match read {
        None => (body, None),
        Some(ReadBody::Whole(posted)) => (RequestBody::None, Some(posted)),
        Some(ReadBody::Begun(pieces)) => {
            let (sending, pieces) = Upload::after(pieces);
            *upload = Some(sending);
            let relay = Relay { request, ask, body, posted: None, cause };
            return relay.answer_with(Some(pieces), stream, upload, record).await;
        }
    };
    Relay { request, ask, body, posted, cause }.answer(stream, upload, record).await
}

pub(super) fn key_of(ask: &Ask, cache: &Cache) -> Vec<u8> {
    let mut key = Vec::with_capacity(128);
    ask.key(cache, &mut key);
    key
}

/// A client of HTTP/1.0 gets no interim heads (RFC 9110 section 15.2).
pub(super) fn take_interim(fetch: &mut Fetch) -> Rc<Interim> {
    let interim = Rc::default();
    fetch.interim = (fetch.request.version != Version::Http10).then(|| Rc::clone(&interim));
    interim
}

/// An event of a fetch for the request that began it.
pub(super) enum FetchEvent {
    Interim(ResponseHead),
    Arrival(Arrival),
}

pub(super) fn news(interim: &Interim, reader: &mut Reader, cx: &Context<'_>) -> Poll<FetchEvent> {
    match interim.next() {
        Some(head) => Poll::Ready(FetchEvent::Interim(head)),
        None => reader.poll_arrival(cx).map(FetchEvent::Arrival),
    }
}

/// Passes a request on unchanged; the answer is for its client alone.
pub(super) struct Relay<'a> {
    pub(super) request: &'a Rc<RequestHead>,
    pub(super) ask: Ask,
    pub(super) body: RequestBody,
    /// The body, where it was read already.
    pub(super) posted: Option<Rc<Posted>>,
    pub(super) cause: Cause,
}

impl Relay<'_> {
    pub(super) async fn answer<S: ClientStream>(
        self,
        stream: &mut S,
        upload: &mut Option<Upload>,
        record: &mut Record,
    ) -> AnswerSource {
        let pieces = self.begin_upload(upload);
        self.answer_with(pieces, stream, upload, record).await
    }

    /// [`Relay::answer`] where the upload was begun: these are the pieces for the origin.
    async fn answer_with<S: ClientStream>(
        self,
        pieces: Option<mpsc::Receiver<Piece>>,
        stream: &mut S,
        upload: &mut Option<Upload>,
        record: &mut Record,
    ) -> AnswerSource {
        let cache = &stream.env().common.cache;
        let (reader, writer) = cache.alone(&key_of(&self.ask, cache));
        self.send(reader, (writer, pieces), stream, upload, record).await
    }

    /// Begins to take the body from the client; gives the origin's end of it.
    fn begin_upload(&self, upload: &mut Option<Upload>) -> Option<mpsc::Receiver<Piece>> {
        if let Some(pieces) = upload.as_mut().and_then(Upload::take_looked_at) {
            return Some(pieces);
        }
        (self.body != RequestBody::None).then(|| {
            let (sending, pieces) = Upload::new();
            *upload = Some(sending);
            pieces
        })
    }

    pub(super) async fn answer_into<S: ClientStream>(
        self,
        reader: Reader,
        writer: Writer,
        stream: &mut S,
        upload: &mut Option<Upload>,
        record: &mut Record,
    ) -> AnswerSource {
        let pieces = self.begin_upload(upload);
        self.send(reader, (writer, pieces), stream, upload, record).await
    }

    async fn send<S: ClientStream>(
        self,
        mut reader: Reader,
        (writer, pieces): (Writer, Option<mpsc::Receiver<Piece>>),
        stream: &mut S,
        upload: &mut Option<Upload>,
        record: &mut Record,
    ) -> AnswerSource {
        let what = (self.ask, FetchKind::Relay, self.posted.as_ref());
        let mut fetch = new_fetch(stream.env(), stream.peer(), self.request, what, writer, record.notes());
        let interim = take_interim(&mut fetch);
        why::begins(record, self.cause, &fetch.notes);
        fetch.body_fault = upload.as_ref().and_then(Upload::fault);
        fetch.body = pieces.map(|pieces| OutgoingBody { pieces: pieces.into(), length: self.body, is_gathered: false });
        let mut attached = fetch::attach(fetch);
        let _ = attached.beside(stream.flush()).await;
        let mut presence = Presence::new(stream.env());
        loop {
            let step = attached.beside(async {
                tokio::select! {
                    biased;
                    step = poll_fn(|cx| news(&interim, &mut reader, cx)) => Ok(step),
                    more = step(upload, stream) => Err(more),
                }
            });
            let step = match presence.until_look(step).await {
                Some(Ok(step)) => step,
                None if presence.is_gone(stream) => return AnswerSource::Page(deliver::client_gone()),
                None | Some(Err(Ok(true))) => continue,
                Some(Err(Ok(false))) => {
                    *upload = None;
                    continue;
                }
                Some(Err(Err(end))) => {
                    return AnswerSource::Page(deliver::page_for_body(&end));
                }
            };
            match step {
                FetchEvent::Interim(head) => {
                    stream.interim(&head);
                    if attached.beside(stream.flush()).await.is_err() {
                        return AnswerSource::Page(deliver::client_gone());
                    }
                }
                FetchEvent::Arrival(Arrival::Head(stored)) => {
                    return AnswerSource::Entry {
                        reader,
                        stored,
                        outcome: Outcome::Miss(self.cause),
                        verbatim: true,
                        refill: None,
                    };
                }
                FetchEvent::Arrival(Arrival::Failed(failure)) => return failed(&failure, record),
                FetchEvent::Arrival(Arrival::Use(..) | Arrival::Alone) => {
                    return AnswerSource::Page(deliver::client_gone());
                }
            }
        }
    }
}

async fn step<S: ClientStream>(upload: &mut Option<Upload>, stream: &mut S) -> Result<bool, BodyEnd> {
    match upload {
        Some(upload) => upload.step(stream).await,
        None => std::future::pending().await,
    }
}

pub(super) fn new_fetch(
    env: &Rc<Env>,
    peer: &PeerFacts,
    request: &Rc<RequestHead>,
    (ask, kind, posted): (Ask, FetchKind, Option<&Rc<Posted>>),
    writer: Writer,
    notes: Rc<Notes>,
) -> Box<Fetch> {
    Box::new(Fetch {
        env: Rc::clone(env),
        ask,
        request: Rc::clone(request),
        client: peer.address,
        connected_to: peer.proxied().map(|proxied| proxied.destination),
        for_run: peer.listener.run.is_some(),
        is_for_reader: true,
        for_node: peer.listener.serves_nodes,
        is_cold_copy: Cell::default(),
        kind,
        writer,
        fill: None,
        body: None,
        body_fault: None,
        posted: posted.cloned(),
        interim: None,
        silent_for: None,
        terms_by_hook: Cell::default(),
        notes,
    })
}

/// The cause of a miss whose request is never looked up.
pub fn unasked(request: &RequestHead) -> Cause {
    match request.method {
        Method::Get | Method::Head if !policy::answerable(request) => Cause::Body,
        Method::Get | Method::Head => Cause::Condition,
        _ => Cause::Method,
    }
}

/// Whether a request has `only-if-cached`, so that the origin is not asked even where the store can't be (RFC 9111 section
/// 5.2.1.7).
pub fn wants_stored_only(request: &RequestHead) -> bool {
    matches!(request.method, Method::Get | Method::Head) && Asked::of(request).only_if_cached()
}

pub(super) fn failed(failure: &Failure, record: &mut Record) -> AnswerSource {
    AnswerSource::Page(deliver::failed(failure, record))
}

pub(super) fn only_if_cached() -> Page {
    let what = "The request asks for a stored answer only, and there is none.";
    Page::new(504, "only-if-cached", what, "Ask without `only-if-cached`.")
}
