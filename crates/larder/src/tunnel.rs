//! Bytes that are passed on without being understood: CONNECT, WebSocket and other upgrades; and the CONNECT
//! that is opened instead, with a certificate of the local CA.

use crate::access::{self, Ask, Verdict};
use crate::client::Client;
use crate::clock;
use crate::fetch;
use crate::journey::{self, First};
use crate::listen::{self, Door};
use crate::page::Page;
use crate::partial_heads::HeadUnderWay;
use crate::record::{Cause, Notes, Outcome, Record, Reuse};
use crate::respond::{self, Answer, Next};
use crate::session::Session;
use crate::socket::Socket;
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use crate::tls::hello::{self, Peek};
use crate::upstream::{Connection, Fresh, HeldConnection, UpstreamFault, UpstreamFaultKind};
use crate::wire::{Rewound, Wire};
use crate::worker::{RecordGuard, Worker};
use bytes::BytesMut;
use larder_cache::entry::Arrival;
use larder_wire::framing::{self, Framing};
use larder_wire::{Fault, FaultKind, Host, RequestHead, ResponseHead, Version, encode, hop};
use std::cell::{Cell, RefCell};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a client may stay silent in a fresh tunnel before it is taken for one whose server speaks first.
const FIRST_WORDS: Duration = Duration::from_secs(3);

/// A ClientHello is shorter than this.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// What becomes of a request that wanted to leave HTTP.
pub enum Left {
    /// It was answered, and the connection stays with HTTP as far as it stays.
    Stays(Next),
    /// Bytes are passed on to and from an origin.
    Passes {
        /// The stream.
        origin: Wire,
        /// What was read from it already.
        read: BytesMut,
        /// It is one of the origin's connections until the tunnel ends, as any other.
        held: Option<HeldConnection>,
    },
    /// The client is told that it has a tunnel to this host and port, and what it says there is looked at.
    Opens(Host, u16),
}

/// Judges a CONNECT and gets its origin, as far as the client can still be told that it has no tunnel.
pub async fn connect(session: &mut Session, request: &RequestHead, verdict: Verdict, record: &mut Record) -> Left {
    let (host, port) = match verdict {
        Verdict::Tunnel(host, port) => (host, port),
        Verdict::Answer(page) => return answer(session, request, page, record),
        Verdict::Allow(_) | Verdict::Purge(_) | Verdict::Echo => {
            let page = access::fault_page(FaultKind::Target, "a CONNECT names a host and a port");
            return answer(session, request, page, record);
        }
    };
    record.url = format!("{host}:{port}");
    if framing::of_request(request) != Ok(Framing::None) {
        let page = Page::new(400, "connect-body", "A CONNECT has no body.", "Send the bytes once the tunnel is open.");
        return answer(session, request, page, record);
    }
    let opens =
        session.door.intercept && session.worker.shared.pass.find(session.peer.ip(), &host, clock::now()).is_none();
    if opens {
        return Left::Opens(host, port);
    }
    // Whoever waits for an origin first gets what is ready.
    let _ = session.flush().await;
    let reach = session.worker.reach(Some(session.door.asker));
    match session.worker.upstreams.tunnel(&host, port, &reach).await {
        Ok(stream) => {
            established(session, record);
            Left::Passes { origin: Wire::Tcp(stream), read: BytesMut::new(), held: None }
        }
        Err(fault) => answer(session, request, page_of(&fault, record), record),
    }
}

fn established(session: &mut Session, record: &mut Record) {
    record.status = 200;
    session.answer_began = true;
    session.outbox.own(|out| out.extend_from_slice(ESTABLISHED));
}

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Answers the CONNECT, looks at the client's first bytes, and serves what is inside if it is HTTP in TLS.
pub async fn open(mut session: Box<Session>, host: Host, port: u16, mut record: RecordGuard) {
    established(&mut session, &mut record);
    if session.flush().await.is_err() {
        return record.breaks_off("client-gone", "the client left before the tunnel stood");
    }
    let (worker, door, peer) = (Rc::clone(&session.worker), session.door.clone(), session.peer);
    let (wire, mut first) = session.into_parts();
    let Wire::Client(mut stream) = wire else {
        return record.breaks_off("nested-connect", "there is a tunnel inside a tunnel");
    };
    let hello = match look(&worker, &mut stream, &mut first).await {
        Looked::Tls(hello) if hello.speaks_http_1_1() => hello,
        Looked::Tls(_) | Looked::Other => {
            return pass_unopened(worker, stream, first, (host, port), record, &door).await;
        }
    };
    // A client that connected to an address names the host inside, and the lists of closed tunnels hold for that name too.
    let named = hello.host(&host);
    if worker.shared.pass.find(peer.ip(), &named, clock::now()).is_some() {
        return pass_unopened(worker, stream, first, (host, port), record, &door).await;
    }
    let inside = if host.ip().is_some() { named.clone() } else { host.clone() };
    let config = match worker.shared.authority().and_then(|ca| ca.server_config(&named, clock::now())) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "cannot open a tunnel: is the store folder writable?");
            return record.breaks_off("no-certificate", "there is no certificate for the host of the tunnel");
        }
    };
    match listen::shake_hands(&worker, config, Rewound::new(first.to_vec(), stream)).await {
        Ok(wire) => {
            (record.outcome, record.complete) = (Outcome::Opened, true);
            record.tell();
            let mut session = Session::new(worker, door, peer, wire, BytesMut::new());
            session.inside = Some((inside, port));
            journey::serve(session, First::Rest).await;
        }
        Err(trouble) => {
            match trouble {
                HandshakeTrouble::ClientRejectsCa => {
                    tracing::info!(host = %named, client = %peer.ip(), "a client does not trust the local CA: its tunnels to this host stay closed for an hour");
                    worker.shared.pass.learn(peer.ip(), &named, clock::now());
                }
                _ => tracing::debug!(%host, trouble = trouble.as_str(), "no TLS inside the tunnel"),
            }
            record.breaks_off(trouble.as_str(), "there was no TLS inside the tunnel");
        }
    }
}

enum Looked {
    Tls(hello::Hello),
    Other,
}

async fn look(worker: &Rc<Worker>, stream: &mut (impl AsyncRead + Unpin), first: &mut BytesMut) -> Looked {
    let timer = worker.ticker.timer();
    // These bytes are held as those of a head are.
    let mut held = HeadUnderWay::default();
    loop {
        match hello::peek(first) {
            Peek::Hello(hello) => return Looked::Tls(hello),
            Peek::NotTls => return Looked::Other,
            Peek::NeedMore if first.len() > HELLO_BYTES_MAX => return Looked::Other,
            Peek::NeedMore if held.holds(worker, first.capacity()).is_err() => return Looked::Other,
            Peek::NeedMore => {}
        }
        match timer.limit(FIRST_WORDS, Wait::Busy, stream.read_buf(first)).await {
            Ok(Ok(1..)) => {}
            _ => return Looked::Other,
        }
    }
}

/// The client was told that the tunnel stands. Where there is no way to its origin, all that is left is to end it, in a way
/// that can't be taken for the origin's own end.
async fn pass_unopened(
    worker: Rc<Worker>,
    stream: Socket,
    first: BytesMut,
    (host, port): (Host, u16),
    mut record: RecordGuard,
    door: &Door,
) {
    let reach = worker.reach(Some(door.asker));
    match worker.upstreams.tunnel(&host, port, &reach).await {
        Ok(origin) => {
            splice(&worker, (Wire::Client(stream), first), (Wire::Tcp(origin), BytesMut::new()), record).await
        }
        Err(fault) => {
            page_of(&fault, &mut record);
            stream.end_by_reset();
        }
    }
}

/// Asks the origin of a request that wants to leave HTTP (RFC 9110 section 7.8).
pub async fn upgrade(session: &mut Session, request: &RequestHead, verdict: Verdict, record: &mut Record) -> Left {
    let Verdict::Allow(ask) = verdict else {
        // Any other verdict is served like a request without an offer.
        return answer(session, request, access::fault_page(FaultKind::Target, "there is nothing to upgrade"), record);
    };
    record.url = ask.url.to_string();
    record.trail.rule = Some(ask.rule);
    record.trail.edition = session.worker.edition();
    let _ = session.flush().await;
    let notes = record.notes();
    record.leads(&notes);
    let asked = ask_upgrade(session, request, &ask, &notes).await;
    if let Some(traces) = &session.worker.shared.traces {
        traces.end_fetch(&request.method, &ask.url_at_origin(), &notes, &session.worker.tally.spans);
    }
    match asked {
        Err(fault) => answer(session, request, page_of(&fault, record), record),
        Ok((Switch::To(protocols), head, connection)) => switch(session, protocols, head, connection, record),
        Ok((Switch::No, head, connection)) => stay(session, request, ask, head, connection, record).await,
    }
}

/// What an origin does that was offered other protocols.
enum Switch {
    /// It goes on in these.
    To(String),
    /// It stays with HTTP.
    No,
}

fn switch(
    session: &mut Session,
    protocols: String,
    mut head: ResponseHead,
    connection: Connection,
    record: &mut Record,
) -> Left {
    hop::strip(&mut head.fields);
    head.fields.push("Connection", "upgrade");
    head.fields.push("Upgrade", protocols);
    session.answer_began = true;
    session.outbox.own(|out| encode::response_head(out, &head));
    record.status = 101;
    let (origin, read, held) = connection.into_tunnel();
    Left::Passes { origin, read, held: Some(held) }
}

/// Asks as a fetch asks, and offers the client's protocols.
async fn ask_upgrade(
    session: &Session,
    request: &RequestHead,
    ask: &Ask,
    notes: &Notes,
) -> Result<(Switch, ResponseHead, Connection), UpstreamFault> {
    let (now, reach) = (notes.attempt(), session.worker.reach(ask.asker()));
    let (upstreams, client) = (&session.worker.upstreams, Some(Client::at(session.peer.ip())));
    let mut connection = upstreams.connection_at(ask.connects_to(), Fresh::NewOnly, &reach, now.into(), client).await?;
    notes.connected(connection.leased_at().into_std(), connection.peer(), Reuse::New);
    let offer = hop::upgrade(&request.fields).unwrap_or_default();
    let mut fields = fetch::forwarded(&session.worker, request, ask, session.peer, notes);
    fields.push("Connection", "upgrade");
    fields.push("Upgrade", &offer);
    let mut bytes = Vec::new();
    encode::request_head(&mut bytes, &request.method, &ask.target(), Version::Http11, &fields);
    connection.send(&bytes).await?;
    loop {
        let head = connection.response(&request.method).await?;
        if head.is_interim() {
            continue;
        }
        notes.answered(Instant::now(), head.status);
        if head.status != 101 {
            return Ok((Switch::No, head, connection));
        }
        return match hop::switched(&head.fields, &offer) {
            Some(protocols) => Ok((Switch::To(protocols), head, connection)),
            None => Err(unasked_switch()),
        };
    }
}

fn unasked_switch() -> UpstreamFault {
    let fault = Fault::origin(FaultKind::StatusLine, "101 without a protocol that was offered");
    UpstreamFault::new(UpstreamFaultKind::Wire(fault), "the origin switched to a protocol that nobody offered")
}

/// The origin stays with HTTP: its answer is passed on, and so may be the next request.
async fn stay(
    session: &mut Session,
    request: &RequestHead,
    ask: Ask,
    head: ResponseHead,
    connection: Connection,
    record: &mut Record,
) -> Left {
    let mut key = Vec::new();
    ask.key(&session.worker.shared.cache, &mut key);
    let (mut reader, writer) = session.worker.shared.cache.alone(&key);
    session.worker.shared.forget_unsafe(&request.method, &ask, &head);
    fetch::adopt(writer, head, connection, &request.method);
    let entry = match reader.arrival().await {
        Arrival::Head(kept) => {
            Answer::Entry { reader, kept, outcome: Outcome::Miss(Cause::Upgrade), verbatim: true, refill: None }
        }
        Arrival::Failed(failure) => Answer::Page(respond::failed(&failure, record)),
        Arrival::Use(..) | Arrival::Alone => {
            let what = "The origin's answer to an offer to change the protocol can't be passed on.";
            Answer::Page(Page::new(502, "upgrade", what, "Ask without `Upgrade`.").closing())
        }
    };
    Left::Stays(respond::respond(session, request, entry, &mut None, record).await)
}

fn page_of(fault: &UpstreamFault, record: &mut Record) -> Page {
    let failure = fetch::failure(fault);
    record.outcome = Outcome::Failed(failure.word);
    if fault.kind == UpstreamFaultKind::OutOfReach {
        return access::out_of_reach().closing();
    }
    let what = format!("No way to the origin: {}.", failure.detail);
    Page::new(failure.status, failure.word, what, "Check the name and the port, or try again.").closing()
}

fn answer(session: &mut Session, request: &RequestHead, page: Page, record: &mut Record) -> Left {
    Left::Stays(respond::respond_page(session, request, &page.closing(), false, record))
}

/// Sends what waits to be written, and passes bytes on from then on.
pub async fn pass(mut session: Box<Session>, origin: Wire, read: BytesMut, mut record: RecordGuard) {
    if session.flush().await.is_err() {
        return record.breaks_off("client-gone", "the client left before the tunnel stood");
    }
    let worker = Rc::clone(&session.worker);
    let (client, first) = session.into_parts();
    splice(&worker, (client, first), (origin, read), record).await;
}

/// Carries bytes both ways until both sides are done, or neither has said anything for `timeouts.tunnel_idle`.
async fn splice(
    worker: &Rc<Worker>,
    (client, from_client): (Wire, BytesMut),
    (origin, from_origin): (Wire, BytesMut),
    mut record: RecordGuard,
) {
    record.outcome = Outcome::Tunnel;
    // It is told as it stands when the server goes down meanwhile.
    let record = RefCell::new(record);
    let moved = Cell::new(0u64);
    let (client_reads, client_writes) = tokio::io::split(client);
    let (origin_reads, origin_writes) = tokio::io::split(origin);
    let up = carry(from_client, client_reads, origin_writes, |bytes| moved.set(moved.get() + bytes));
    let back = carry(from_origin, origin_reads, client_writes, |bytes| {
        moved.set(moved.get() + bytes);
        record.borrow_mut().bytes += bytes;
    });
    let idle = worker.config().timeouts.tunnel_idle;
    let watch = async {
        let timer = worker.ticker.timer();
        loop {
            let before = moved.get();
            let _ = timer.limit(idle, Wait::Idle, std::future::pending::<()>()).await;
            if moved.get() == before || worker.ticker.is_draining() {
                return;
            }
        }
    };
    let whole = tokio::select! {
        whole = both(worker, up, back) => whole,
        _ = watch => false,
    };
    let mut record = record.into_inner();
    record.complete = whole;
    record.tell();
}

/// How long the other direction goes on when one is broken: what was on its way may still arrive, but a peer that is
/// gone must not hold two sockets until the tunnel counts as idle.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Both directions to their ends; false when one of them broke.
async fn both(
    worker: &Worker,
    up: impl Future<Output = io::Result<()>>,
    back: impl Future<Output = io::Result<()>>,
) -> bool {
    let (mut up, mut back) = (pin!(up), pin!(back));
    tokio::select! {
        done = &mut up => other(worker, &done, back).await,
        done = &mut back => other(worker, &done, up).await,
    }
}

/// The direction that is left when one is `done`.
async fn other(worker: &Worker, done: &io::Result<()>, left: impl Future<Output = io::Result<()>>) -> bool {
    if done.is_ok() {
        return left.await.is_ok();
    }
    let _ = worker.ticker.timer().limit(LAST_WORDS, Wait::Busy, left).await;
    false
}

const CARRY_BYTES: usize = 32 * 1024;

async fn carry(
    first: BytesMut,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: impl Fn(u64),
) -> io::Result<()> {
    let mut buffer = first;
    loop {
        if !buffer.is_empty() {
            to.write_all(&buffer).await?;
            Pin::new(&mut to).flush().await?;
            moved(buffer.len() as u64);
            buffer.clear();
        }
        buffer.reserve(CARRY_BYTES);
        if from.read_buf(&mut buffer).await? == 0 {
            return to.shutdown().await;
        }
    }
}
