//! Asks an origin and fills an entry with the answer: the server side of the meeting place.
//!
//! A fetch is a task of its own. It outlives the client that began it when [`Writer::room`] says so, and
//! it knows that client only as the sender of a request body.

use crate::access::{Ask, Route};
use crate::clock;
use crate::session::Piece;
use crate::upstream::{Connection, Fresh, Retry, UpstreamFault, UpstreamFaultKind};
use crate::worker::Worker;
use bytes::{Buf, Bytes};
use larder_cache::entry::{Entry, Failure, Kept, Room, Said, Writer};
use larder_cache::policy::{self, Asked, NotStored, Storable, Times};
use larder_wire::date::{Stamp, format_date};
use larder_wire::framing::{self, Framing};
use larder_wire::{Fields, Method, RequestHead, ResponseHead, Scheme, Version, encode, hop};
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
    let fields = order.fields_for_origin();
    let validates = order.errand == Errand::Share && !order.writer.candidates().is_empty();
    let requested = clock::now();
    let answer = match order.ask_origin(&fields).await {
        Ok(answer) => answer,
        Err(fault) => return give_up(order, &fault),
    };
    let Answer { head, connection } = answer;
    let times = Times { requested, received: clock::now() };
    if validates && head.status == 304 {
        return freshen(order, head, connection, times);
    }
    if validates && is_trouble(head.status) {
        if let Some(stale) = order.stale_instead(Disconnected::No) {
            return order.writer.redirect(&stale, None, Said::StaleIfError);
        }
    }
    order.worker.shared.forget_unsafe(&order.request.method, &order.ask.url, &head);
    let declared = declared_length(&head, &order.request.method, connection.framing());
    publish(&mut order, head, declared, times);
    pour(order.writer, connection).await;
}

struct Answer {
    head: ResponseHead,
    connection: Connection,
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
        let head = match self.body.take() {
            None => {
                connection.send(&bytes).await?;
                self.final_head(&mut connection).await?
            }
            Some(body) => self.exchange(&mut connection, bytes, body).await?,
        };
        Ok(Answer { head, connection })
    }

    async fn final_head(&self, connection: &mut Connection) -> Result<ResponseHead, UpstreamFault> {
        loop {
            let head = connection.response(&self.request.method).await?;
            if !head.is_interim() {
                return Ok(head);
            }
            self.tell_interim(head);
        }
    }

    /// Sends the body while watching for an early answer (RFC 9112 section 9.3). An answer that comes before the
    /// body is over ends the sending; the client is told by its closed channel.
    async fn exchange(
        &self,
        connection: &mut Connection,
        head: Vec<u8>,
        mut body: mpsc::Receiver<Piece>,
    ) -> Result<ResponseHead, UpstreamFault> {
        let chunked = framing::of_request(&self.request) == Ok(Framing::Chunked);
        let (mut sender, mut receiver) = connection.split_mut();
        let sending = async move {
            sender.send(&mut Bytes::from(head)).await?;
            while let Some(piece) = body.recv().await {
                match piece {
                    Piece::Data(data) if chunked => {
                        let mut size = Vec::with_capacity(16);
                        encode::chunk_head(&mut size, data.len());
                        let mut chunk = Bytes::from(size).chain(data).chain(encode::CHUNK_END);
                        sender.send(&mut chunk).await?;
                    }
                    Piece::Data(mut data) => sender.send(&mut data).await?,
                    Piece::End(trailers) => {
                        if chunked {
                            let mut last = Vec::new();
                            encode::last_chunk(&mut last, &trailers);
                            sender.send(&mut Bytes::from(last)).await?;
                        }
                        sender.end();
                        return Ok(());
                    }
                }
            }
            Err(UpstreamFault::new(UpstreamFaultKind::Reset, "the client left before its request was complete"))
        };
        tokio::pin!(sending);
        let mut sent: Option<Result<(), UpstreamFault>> = None;
        loop {
            tokio::select! {
                result = &mut sending, if sent.is_none() => {
                    // An origin that refuses a body answers and then closes: its answer counts more.
                    if let Err(fault) = &result {
                        if fault.kind == UpstreamFaultKind::Reset && !fault.detail.contains("client left") {
                            sent = Some(result);
                            continue;
                        }
                        return Err(fault.clone());
                    }
                    sent = Some(result);
                }
                head = receiver.response(&self.request.method) => match (head, sent) {
                    (Ok(head), again) if head.is_interim() => {
                        self.tell_interim(head);
                        sent = again;
                    }
                    (Ok(head), _) => return Ok(head),
                    (Err(_), Some(Err(fault))) => return Err(fault),
                    (Err(fault), _) => return Err(fault),
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
            let stored = self.writer.candidates().iter();
            policy::conditional(&mut fields, stored.filter_map(|(_, kept)| Some((&kept.head, kept.terms.as_ref()?))));
        }
        lower_max_forwards(&self.request.method, &mut fields);
        if let Route::Site { .. } = self.ask.route {
            fields.push("X-Forwarded-For", self.peer.ip().to_canonical().to_string());
            fields.set("X-Forwarded-Proto", self.scheme.as_str());
        }
        fields.push("Via", self.worker.shared.via(self.request.version));
        fields
    }

    /// The stored response that may be used although its origin is in trouble (RFC 5861 section 4; RFC 9111
    /// section 4.2.4 for an origin that cannot be reached).
    fn stale_instead(&self, disconnected: Disconnected) -> Option<Arc<Entry>> {
        let asked = Asked::of(&self.request);
        let mut settings = self.worker.shared.cache.settings().policy.clone();
        if disconnected == Disconnected::Yes {
            settings.stale_if_error_seconds = Some(u64::MAX);
        }
        let now = clock::now();
        let usable = |kept: &Kept| {
            kept.terms.as_ref().is_some_and(|terms| {
                terms.vary.matches(&self.request) && policy::stale_if_error(terms, &asked, now, &settings)
            })
        };
        let found = self.writer.candidates().iter().find(|(_, kept)| usable(kept));
        found.map(|(entry, _)| Arc::clone(entry))
    }
}

/// Whether the origin could not be reached at all, as opposed to answering with an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disconnected {
    Yes,
    No,
}

fn give_up(order: Order, fault: &UpstreamFault) {
    if order.errand == Errand::Share {
        if let Some(stale) = order.stale_instead(Disconnected::Yes) {
            return order.writer.redirect(&stale, None, Said::StaleIfError);
        }
    }
    tracing::debug!(url = %order.ask.url, %fault, "fetch failed");
    order.writer.fail(failure(fault));
}

/// What a fault upstream means for the client.
pub fn failure(fault: &UpstreamFault) -> Failure {
    Failure { status: fault.status(), word: fault.kind.as_str(), detail: fault.to_string().into() }
}

/// A 304: the stored response that it names is the answer still, with fields brought up to date (RFC 9111
/// section 4.3.4).
fn freshen(order: Order, head: ResponseHead, connection: Connection, times: Times) {
    connection.release();
    let settings = &order.worker.shared.cache.settings().policy;
    let named = |kept: &Kept| kept.terms.as_ref().is_some_and(|terms| policy::freshened_by(&kept.head, terms, &head));
    let Some((entry, kept)) = order.writer.candidates().iter().find(|(_, kept)| named(kept)).cloned() else {
        let detail = "the origin said `not modified` of something that was not asked about";
        return order.writer.fail(Failure { status: 502, word: "stray-304", detail: detail.into() });
    };
    let mut fresh = policy::freshen(&kept.head, &head);
    complete_head(&mut fresh, times.received);
    let terms = match policy::storable(&order.request, &fresh, times, settings) {
        Storable::Yes(terms) => Some(terms),
        Storable::No(_) => None,
    };
    let remains = terms.is_some();
    // A 304 that now forbids storing is still the answer to this one request.
    let terms = terms.or_else(|| kept.terms.clone());
    let head = Kept::new(policy::kept_head(&fresh, settings), terms, times.received);
    order.writer.redirect(&entry, Some(head), Said::Unchanged);
    if !remains {
        order.worker.shared.cache.drop_entry(&entry);
    }
}

/// Publishes the head: stored and shared, or for the one who asked.
fn publish(order: &mut Order, mut head: ResponseHead, declared: Option<u64>, times: Times) {
    let shared = &order.worker.shared;
    let settings = &shared.cache.settings().policy;
    complete_head(&mut head, times.received);
    let storable = match order.errand {
        Errand::Share if head.status != 206 => policy::storable(&order.request, &head, times, settings),
        Errand::Share => Storable::No(NotStored::Partial),
        Errand::Relay => Storable::No(NotStored::Method),
    };
    match storable {
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
        Storable::No(why) => {
            hop::strip(&mut head.fields);
            head.fields.remove("Content-Length");
            let mut kept = Kept::new(head, None, times.received);
            if order.errand == Errand::Share {
                kept.not_stored = Some(why);
                shared.cache.mark_pass(order.writer.key(), times.received);
            }
            order.writer.pass(kept, declared);
        }
    }
}

/// Carries the body from the connection to the entry, at the pace that the entry allows.
async fn pour(mut writer: Writer, mut connection: Connection) {
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

/// A response without `Date` gets one on arrival (RFC 9110 section 6.6.1).
fn complete_head(head: &mut ResponseHead, received: Stamp) {
    if !head.fields.contains("Date") {
        head.fields.push("Date", format_date(received));
    }
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
    complete_head(&mut head, received);
    hop::strip(&mut head.fields);
    head.fields.remove("Content-Length");
    writer.pass(Kept::new(head, None, received), declared);
    tokio::task::spawn_local(pour(writer, connection));
}
