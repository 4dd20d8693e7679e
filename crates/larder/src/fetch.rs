//! Asks an origin and fills an entry with the answer: the server side of the meeting place.
//!
//! A fetch is a task of its own. It outlives the client that began it when [`Writer::room`] says so, and
//! it knows that client only as the sender of a request body.

use crate::access::{Ask, Route};
use crate::clock;
use crate::session::Piece;
use crate::upstream::{Connection, Fresh, Receiver, Retry, Sender, UpstreamFault, UpstreamFaultKind};
use crate::worker::Worker;
use bytes::{Buf, Bytes};
use larder_cache::entry::{Entry, Failure, Kept, Room, Said, Writer};
use larder_cache::policy::{self, Asked, HeadSays, NotStored, Storable, Terms, Times};
use larder_wire::date::Stamp;
use larder_wire::etag::ETag;
use larder_wire::framing::{self, Framing};
use larder_wire::{Fault, FaultKind, Fields, Method, RequestHead, ResponseHead, Scheme, Version, encode, hop};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;

/// One request to an origin.
pub struct Order {
    /// The worker that fetches.
    pub worker: Rc<Worker>,
    /// What for, and where.
    pub ask: Ask,
    /// The request as the client sent it; the rules of RFC 9111 look at this one.
    pub request: Rc<RequestHead>,
    /// Who sent it.
    pub peer: SocketAddr,
    /// It came through the listener of a `larder run`.
    pub for_run: bool,
    /// On which scheme it was sent.
    pub scheme: Scheme,
    /// How it is changed on the way.
    pub errand: Errand,
    /// Where the answer goes.
    pub writer: Writer,
    /// The request's body.
    pub body: Option<mpsc::Receiver<Piece>>,
    /// Where interim heads go.
    pub interim: Option<mpsc::Sender<ResponseHead>>,
}

/// What a request is for; decides what of it the origin sees, and what becomes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// The whole object, for the store and whoever follows: ranges and conditions of the client stay here.
    Share,
    /// What the client asked, word for word; the answer is for it alone.
    Relay,
}

/// Begins a fetch on this worker.
pub fn lead(order: Order) {
    tokio::task::spawn_local(run(order));
}

async fn run(mut order: Order) {
    let plain = order.fields_for_origin();
    let mut fields = plain.clone();
    let validates = order.errand == Errand::Share && {
        let about = order.asked_about();
        policy::conditional(&mut fields, about.map(|(_, head, terms)| (head, terms)))
    };
    let mut requested = clock::now();
    let mut answer = match order.ask_origin(&fields).await {
        Ok(answer) => answer,
        Err(fault) => return give_up(order, &fault),
    };
    if validates && answer.head.status == 304 {
        let times = Times { requested, received: clock::now() };
        if let Some(entry) = freshen(&order, &answer.head, times) {
            answer.connection.release();
            return order.writer.redirect(&entry, Said::Unchanged);
        }
        // It names nothing that is stored here: the whole is asked for.
        answer.connection.release();
        requested = clock::now();
        answer = match order.ask_origin(&plain).await {
            Ok(answer) => answer,
            Err(fault) => return give_up(order, &fault),
        };
    }
    let Answer { head, connection, uplink } = answer;
    let times = Times { requested, received: clock::now() };
    if order.errand == Errand::Share
        && is_trouble(head.status)
        && let Some(stale) = order.stale_instead(policy::stale_if_error)
    {
        return order.writer.redirect(&stale, Said::StaleIfError);
    }
    order.worker.shared.forget_unsafe(&order.request.method, &order.ask, &head);
    let declared = declared_length(&head, &order.request.method, connection.framing());
    publish(&mut order, head, declared, times);
    if order.writer.readers() > 1 {
        // Everybody gets the head before the body takes the worker's time.
        tokio::task::yield_now().await;
    }
    pour(order.writer, connection, uplink).await;
}

/// A final head, the connection on which the body follows, and what is left of the request's body.
struct Answer {
    head: ResponseHead,
    connection: Connection,
    uplink: Option<Uplink>,
}

/// The part of a request's body that is still to be sent.
struct Uplink {
    pieces: mpsc::Receiver<Piece>,
    chunked: bool,
    /// Taken from the client and not yet sent.
    unsent: Unsent,
    over: bool,
}

/// A piece with its framing, or the request's head.
type Unsent = bytes::buf::Chain<bytes::buf::Chain<Bytes, Bytes>, Bytes>;

impl Uplink {
    fn new(head: Vec<u8>, pieces: mpsc::Receiver<Piece>, chunked: bool) -> Uplink {
        Uplink { pieces, chunked, unsent: framed(head, Bytes::new(), b""), over: false }
    }

    /// Sends until the body is over. Cancel-safe: what was not sent is sent by the next call.
    async fn send(&mut self, sender: &mut Sender<'_>) -> Result<(), UpstreamFault> {
        loop {
            sender.send(&mut self.unsent).await?;
            if self.over {
                return Ok(());
            }
            self.unsent = match self.pieces.recv().await {
                Some(Piece::Data(data)) if self.chunked => {
                    let mut size = Vec::with_capacity(16);
                    encode::chunk_head(&mut size, data.len());
                    framed(size, data, encode::CHUNK_END)
                }
                Some(Piece::Data(data)) => framed(Vec::new(), data, b""),
                Some(Piece::End(trailers)) => {
                    self.over = true;
                    let mut last = Vec::new();
                    if self.chunked {
                        encode::last_chunk(&mut last, &trailers);
                    }
                    framed(last, Bytes::new(), b"")
                }
                None => {
                    return Err(UpstreamFault::new(
                        UpstreamFaultKind::ClientGone,
                        "the client left before its request was complete",
                    ));
                }
            };
        }
    }
}

fn framed(before: Vec<u8>, data: Bytes, after: &'static [u8]) -> Unsent {
    Bytes::from(before).chain(data).chain(Bytes::from_static(after))
}

impl Order {
    /// Sends the request and waits for the final head. One retry, on a new connection, where RFC 9110 section
    /// 9.2.2 allows it: an idempotent request without a body whose kept-alive connection was closed unanswered.
    async fn ask_origin(&mut self, fields: &Fields) -> Result<Answer, UpstreamFault> {
        let method = self.request.method.clone();
        let repeatable = method.is_idempotent() && self.body.is_none();
        let first = if repeatable { Fresh::ReuseAllowed } else { Fresh::NewOnly };
        match self.attempt(fields, first).await {
            Err(fault) if fault.retry == Retry::Safe && repeatable => self.attempt(fields, Fresh::NewOnly).await,
            other => other,
        }
    }

    async fn attempt(&mut self, fields: &Fields, fresh: Fresh) -> Result<Answer, UpstreamFault> {
        let mut connection = self.worker.upstreams.connection(&self.ask.origin(), fresh).await?;
        let mut bytes = Vec::with_capacity(512);
        encode::request_head(&mut bytes, &self.request.method, &self.ask.target(), Version::Http11, fields);
        match self.body.take() {
            None => {
                connection.send(&bytes).await?;
                let head = self.final_head(&mut connection).await?;
                Ok(Answer { head, connection, uplink: None })
            }
            Some(pieces) => {
                let chunked = framing::of_request(&self.request) == Ok(Framing::Chunked);
                let mut uplink = Uplink::new(bytes, pieces, chunked);
                let head = self.exchange(&mut connection, &mut uplink).await?;
                let uplink = Some(uplink).filter(|uplink| !uplink.over);
                Ok(Answer { head, connection, uplink })
            }
        }
    }

    async fn final_head(&self, connection: &mut Connection) -> Result<ResponseHead, UpstreamFault> {
        loop {
            let head = connection.response(&self.request.method).await?;
            if !head.is_interim() {
                return usable_head(head);
            }
            self.tell_interim(head);
        }
    }

    /// Sends the body while watching for an early answer (RFC 9112 section 9.3). What is not sent by then is sent
    /// while the answer's body comes.
    async fn exchange(&self, connection: &mut Connection, uplink: &mut Uplink) -> Result<ResponseHead, UpstreamFault> {
        let (sender, mut receiver) = connection.split_mut();
        let mut sender = Some(sender);
        let mut broken = None;
        loop {
            tokio::select! {
                sent = send_all(uplink, sender.as_mut()), if sender.is_some() => match sent {
                    Ok(()) => {
                        if let Some(sender) = sender.take() {
                            sender.end();
                        }
                    }
                    Err(fault) if fault.kind == UpstreamFaultKind::ClientGone => return Err(fault),
                    // An origin that refuses a body answers and then closes: its answer counts more.
                    Err(fault) => {
                        broken = Some(fault);
                        sender = None;
                    }
                },
                head = receiver.response(&self.request.method) => match head {
                    Ok(head) if head.is_interim() => self.tell_interim(head),
                    Ok(head) => return usable_head(head),
                    Err(fault) => return Err(broken.unwrap_or(fault)),
                },
            }
        }
    }

    fn tell_interim(&self, mut head: ResponseHead) {
        hop::strip(&mut head.fields);
        if let Some(interim) = &self.interim {
            // A client that does not take them loses some: they are hints.
            let _ = interim.try_send(head);
        }
    }

    /// The fields as the origin gets them (RFC 9110 section 7.6).
    fn fields_for_origin(&self) -> Fields {
        let mut fields = self.request.fields.clone();
        let framing = framing::of_request(&self.request).unwrap_or(Framing::None);
        hop::strip(&mut fields);
        fields.remove("Proxy-Authorization");
        fields.set("Host", self.ask.host());
        if framing == Framing::Chunked {
            fields.push("Transfer-Encoding", "chunked");
        }
        if self.errand == Errand::Share {
            for name in ["Range", "If-Range", "If-None-Match", "If-Modified-Since"] {
                fields.remove(name);
            }
        }
        lower_max_forwards(&self.request.method, &mut fields);
        if let Route::Site { .. } = self.ask.route {
            fields.push("X-Forwarded-For", self.peer.ip().to_canonical().to_string());
            fields.set("X-Forwarded-Proto", self.scheme.as_str());
        }
        fields.push("Via", self.worker.shared.via(self.request.version));
        fields
    }

    /// The stored response that may be used although its origin is in trouble, by the rule `permits`.
    fn stale_instead(&self, permits: impl Fn(&Terms, &Asked, Stamp, &policy::Settings) -> bool) -> Option<Arc<Entry>> {
        let (asked, now) = (Asked::of(&self.request), clock::now());
        let stored = self.writer.candidates().iter();
        let terms = stored.filter_map(|(entry, kept)| Some((kept.terms.as_ref()?, (entry, kept))));
        let (entry, kept) = policy::choose(terms, &self.request)?;
        let permitted = permits(kept.terms.as_ref()?, &asked, now, self.policy());
        permitted.then(|| Arc::clone(entry))
    }

    /// What is stored under this key.
    fn stored(&self) -> impl Iterator<Item = (&Arc<Entry>, &ResponseHead, &Terms)> {
        let candidates = self.writer.candidates().iter();
        candidates.filter_map(|(entry, kept)| Some((entry, &kept.head, kept.terms.as_ref()?)))
    }

    /// The stored responses that the origin is asked about: those that this request selects. RFC 9111 section 4.3.1
    /// allows to ask about the other variants too; but servers that compress on the fly give two codings one tag,
    /// and a 304 would then name the wrong one.
    fn asked_about(&self) -> impl Iterator<Item = (&Arc<Entry>, &ResponseHead, &Terms)> {
        self.stored().filter(|(_, _, terms)| terms.vary.matches(&self.request))
    }

    /// The origin has another answer now, one that is not stored: the stored one is not served any more.
    fn forget_selected(&self) {
        for (entry, kept) in self.writer.candidates() {
            if kept.terms.as_ref().is_some_and(|terms| terms.vary.matches(&self.request)) {
                self.worker.shared.cache.drop_entry(entry);
            }
        }
    }

    /// The answer to a HEAD says something of what a GET brought (RFC 9111 section 4.3.5).
    fn learn_from_head(&self, head: &ResponseHead, times: Times) {
        let cache = &self.worker.shared.cache;
        let Some((entry, kept)) = cache.stored(self.writer.key().text(), &self.request) else { return };
        let Some(terms) = &kept.terms else { return };
        let mut stored = kept.head.clone();
        if let Some(length) = entry.length() {
            stored.fields.set("Content-Length", length.to_string());
        }
        match policy::head_says(&stored, terms, head) {
            HeadSays::Nothing => {}
            HeadSays::Invalidates => {
                let mut terms = terms.clone();
                terms.expire(times.received);
                entry.renew(Kept::new(kept.head.clone(), Some(terms), kept.received));
            }
            HeadSays::Freshens => {
                if let Ok((head, terms)) = policy::renew(&self.request, (&kept.head, terms), head, times, self.policy())
                {
                    entry.renew(Kept::new(head, Some(terms), times.received));
                }
            }
        }
    }

    /// The rules for this fetch: a site is close to its origin, as a CDN is; a run wants everything the second time.
    fn policy(&self) -> &policy::Settings {
        match self.ask.route {
            Route::Forward if self.for_run => &self.worker.shared.run_policy,
            Route::Forward => &self.worker.shared.cache.settings().policy,
            Route::Site { .. } => &self.worker.shared.site_policy,
        }
    }
}

async fn send_all(uplink: &mut Uplink, sender: Option<&mut Sender<'_>>) -> Result<(), UpstreamFault> {
    match sender {
        Some(sender) => uplink.send(sender).await,
        None => std::future::pending().await,
    }
}

/// Nobody asked for another protocol here; an origin that switches all the same is at fault (RFC 9110 section 15.2.2).
fn usable_head(head: ResponseHead) -> Result<ResponseHead, UpstreamFault> {
    if head.status != 101 {
        return Ok(head);
    }
    let fault = Fault::origin(FaultKind::StatusLine, "101 was not asked for");
    Err(UpstreamFault::new(UpstreamFaultKind::Wire(fault), "the origin switched protocols though nobody asked"))
}

fn give_up(order: Order, fault: &UpstreamFault) {
    if order.errand == Errand::Share {
        let permits = |terms: &Terms, asked: &Asked, now, settings: &policy::Settings| {
            policy::disconnected(terms, asked, now) || policy::stale_if_error(terms, asked, now, settings)
        };
        if let Some(stale) = order.stale_instead(permits) {
            return order.writer.redirect(&stale, Said::StaleIfError);
        }
    }
    tracing::debug!(url = %order.ask.url, %fault, "fetch failed");
    order.writer.fail(failure(fault));
}

/// What a fault upstream means for the client.
pub fn failure(fault: &UpstreamFault) -> Failure {
    Failure { status: fault.status(), word: fault.kind.as_str(), detail: fault.to_string().into() }
}

/// A 304: the stored responses that it names are answers still, with fields brought up to date (RFC 9111 section
/// 4.3.4). Gives the one that answers this request, if one does.
fn freshen(order: &Order, head: &ResponseHead, times: Times) -> Option<Arc<Entry>> {
    let asked: Vec<(&Arc<Entry>, &ResponseHead, &Terms)> = order.asked_about().collect();
    let set: Vec<(&ResponseHead, &Terms)> = asked.iter().map(|(_, head, terms)| (*head, *terms)).collect();
    let Some(&at) = policy::named_by(&set, head).first() else {
        let (entry, stored, terms) = *asked.iter().find(|(_, _, terms)| is_weakly_named(terms, head))?;
        let mut head = head.clone();
        head.fields.remove("ETag");
        renew(order, entry, (stored, terms), &head, times);
        return Some(Arc::clone(entry));
    };
    let chosen = asked[at].0;
    let strong = ETag::of(&head.fields).filter(|tag| !tag.weak);
    for (entry, stored, terms) in order.stored() {
        let named = strong.as_ref().is_some_and(|tag| terms.etag.as_ref().is_some_and(|own| own.strong_eq(tag)));
        if named || Arc::ptr_eq(entry, chosen) {
            renew(order, entry, (stored, terms), head, times);
        }
    }
    Some(Arc::clone(chosen))
}

fn renew(order: &Order, entry: &Arc<Entry>, stored: (&ResponseHead, &Terms), head: &ResponseHead, times: Times) {
    match policy::renew(&order.request, stored, head, times, order.policy()) {
        Ok((head, terms)) => entry.renew(Kept::new(head, Some(terms), times.received)),
        // The 304 forbids to keep it; it is the answer to those who asked before all the same.
        Err(_) => {
            order.worker.shared.cache.drop_entry(entry);
            entry.renew(Kept::new(policy::freshen(stored.0, head), Some(stored.1.clone()), times.received));
        }
    }
}

/// Servers that compress on the fly call the result `W/"x"` in a 200 and `"x"` in the 304 for it. They were asked by
/// that weak tag, with the same request fields, so their 304 means that stored response; its own tag stays.
fn is_weakly_named(terms: &Terms, head: &ResponseHead) -> bool {
    let said = ETag::of(&head.fields);
    said.is_some_and(|said| terms.etag.as_ref().is_some_and(|own| own.weak_eq(&said)))
}

/// Publishes the head: stored and shared, or for the one who asked.
fn publish(order: &mut Order, mut head: ResponseHead, declared: Option<u64>, times: Times) {
    let shared = &order.worker.shared;
    let settings = order.policy();
    policy::dated(&mut head, times.received);
    let storable = match order.errand {
        Errand::Share if head.status != 206 => policy::storable(&order.request, &head, times, settings),
        Errand::Share => Storable::No(NotStored::Partial),
        Errand::Relay => Storable::No(NotStored::Method),
    };
    let too_long = declared.is_some_and(|length| length > shared.cache.settings().object_bytes_max);
    match storable {
        Storable::Yes(_) if too_long => pass(order, head, declared, NotStored::TooLong, times),
        Storable::Yes(terms) => {
            let mut kept = policy::kept_head(&head, settings);
            hop::strip(&mut head.fields);
            for name in ["Content-Length", "Age"] {
                kept.fields.remove(name);
                head.fields.remove(name);
            }
            let withheld = kept.fields.len() < head.fields.len();
            let kept = Kept::new(kept, Some(terms), times.received);
            order.writer.store(if withheld { kept.with_first(&head) } else { kept }, declared);
        }
        Storable::No(why) => pass(order, head, declared, why, times),
    }
}

/// Publishes a head whose answer is for the one who asked, and remembers that.
fn pass(order: &mut Order, mut head: ResponseHead, declared: Option<u64>, why: NotStored, times: Times) {
    if order.errand == Errand::Share {
        order.worker.shared.cache.mark_pass(order.writer.key().text(), times.received);
        if head.status < 500 {
            order.forget_selected();
        }
    } else if order.request.method == Method::Head {
        order.learn_from_head(&head, times);
    }
    hop::strip(&mut head.fields);
    head.fields.remove("Content-Length");
    let mut kept = Kept::new(head, None, times.received);
    kept.not_stored = (order.errand == Errand::Share).then_some(why);
    order.writer.pass(kept, declared);
}

/// Carries the body from the connection to the entry, at the pace that the entry allows; what is left of the
/// request's body goes the other way meanwhile.
async fn pour(mut writer: Writer, mut connection: Connection, uplink: Option<Uplink>) {
    if let Some(uplink) = uplink {
        return pour_both(writer, connection, uplink).await;
    }
    loop {
        if writer.room().await == Room::Gone {
            return;
        }
        match connection.body().await {
            Ok(Some(piece)) => writer.push(piece),
            Ok(None) => {
                writer.finish(connection.trailers());
                return connection.release();
            }
            Err(fault) => return writer.fail(failure(&fault)),
        }
    }
}

/// The connection is not used again: whether the origin read the whole request, nobody knows.
async fn pour_both(mut writer: Writer, mut connection: Connection, mut uplink: Uplink) {
    let (sender, mut receiver) = connection.split_mut();
    let mut sender = Some(sender);
    loop {
        tokio::select! {
            sent = send_all(&mut uplink, sender.as_mut()), if sender.is_some() => {
                if let (Ok(()), Some(sender)) = (sent, sender.take()) {
                    sender.end();
                }
            }
            piece = next_piece(&mut writer, &mut receiver) => match piece {
                Ok(Some(piece)) => writer.push(piece),
                Ok(None) => return writer.finish(receiver.trailers()),
                Err(Some(fault)) => return writer.fail(failure(&fault)),
                Err(None) => return,
            },
        }
    }
}

/// Cancel-safe. `Err(None)`: nobody wants any more.
async fn next_piece(writer: &mut Writer, receiver: &mut Receiver<'_>) -> Result<Option<Bytes>, Option<UpstreamFault>> {
    if writer.room().await == Room::Gone {
        return Err(None);
    }
    receiver.body().await.map_err(Some)
}

/// The length that the head declares: of the body that follows, or that a GET would get.
fn declared_length(head: &ResponseHead, asked: &Method, framing: Framing) -> Option<u64> {
    match framing {
        Framing::Length(length) => Some(length),
        Framing::None if *asked == Method::Head => head.fields.text("Content-Length")?.parse().ok(),
        Framing::None => Some(0),
        Framing::Chunked | Framing::UntilClose => None,
    }
}

/// Statuses that mean the origin is in trouble (RFC 5861 section 4).
fn is_trouble(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// RFC 9110 section 7.6.2.
fn lower_max_forwards(method: &Method, fields: &mut Fields) {
    if !matches!(method, Method::Trace | Method::Options) {
        return;
    }
    if let Some(left) = fields.text("Max-Forwards").and_then(|text| text.parse::<u64>().ok()) {
        fields.set("Max-Forwards", left.saturating_sub(1).to_string());
    }
}

/// Takes over an answer that somebody else asked for, to be passed on to the one reader of `writer`.
pub fn adopt(mut writer: Writer, mut head: ResponseHead, connection: Connection, asked: &Method) {
    let declared = declared_length(&head, asked, connection.framing());
    let received = clock::now();
    policy::dated(&mut head, received);
    hop::strip(&mut head.fields);
    head.fields.remove("Content-Length");
    writer.pass(Kept::new(head, None, received), declared);
    tokio::task::spawn_local(pour(writer, connection, None));
}
