//! Bytes that are passed on without being understood: CONNECT, WebSocket and other upgrades; and the CONNECT
//! that is opened instead, with a certificate of the local CA.

use crate::access::{self, Ask, Verdict};
use crate::clock;
use crate::fetch;
use crate::journey::{self, First};
use crate::listen;
use crate::page::Page;
use crate::record::{Cause, Notes, Outcome, Record, Reuse};
use crate::respond::{self, Answer};
use crate::session::Session;
use crate::socket::Socket;
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use crate::tls::hello::{self, Peek};
use crate::upstream::{Connection, Fresh, UpstreamFault, UpstreamFaultKind};
use crate::wire::{Rewound, Wire};
use crate::worker::Worker;
use bytes::BytesMut;
use larder_cache::entry::Arrival;
use larder_wire::framing::{self, Framing};
use larder_wire::{Fault, FaultKind, Host, RequestHead, ResponseHead, Version, encode, hop};
use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How long a client may stay silent in a fresh tunnel before it is taken for one whose server speaks first.
const FIRST_WORDS: Duration = Duration::from_secs(3);

/// A ClientHello is shorter than this.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// Serves a CONNECT.
pub async fn connect(mut session: Box<Session>, request: RequestHead) {
    let mut record = session.worker.begin_record(&request, session.peer, &session.door);
    let (host, port) = match access::judge(&session, &request) {
        Verdict::Tunnel(host, port) => (host, port),
        Verdict::Answer(page) => return answer(session, &request, page.closing(), record).await,
        Verdict::Allow(_) | Verdict::Purge(_) | Verdict::Echo => return,
    };
    record.url = format!("{host}:{port}");
    if framing::of_request(&request) != Ok(Framing::None) {
        let page = Page::new(400, "connect-body", "A CONNECT has no body.", "Send the bytes once the tunnel is open.");
        return answer(session, &request, page.closing(), record).await;
    }
    let opens =
        session.door.intercept && session.worker.shared.pass.find(session.peer.ip(), &host, clock::now()).is_none();
    if opens {
        return Box::pin(open(session, host, port, record)).await;
    }
    match session.worker.upstreams.tunnel(&host, port).await {
        Ok(stream) => {
            session.outbox.own(|out| out.extend_from_slice(ESTABLISHED));
            pass(session, Wire::Tcp(stream), BytesMut::new(), record).await;
        }
        Err(fault) => answer(session, &request, page_of(&fault, &mut record), record).await,
    }
}

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Answers the CONNECT, looks at the client's first bytes, and serves what is inside if it is HTTP in TLS.
async fn open(mut session: Box<Session>, host: Host, port: u16, record: Box<Record>) {
    session.outbox.own(|out| out.extend_from_slice(ESTABLISHED));
    if session.flush().await.is_err() {
        return;
    }
    let (worker, door, peer) = (Rc::clone(&session.worker), session.door.clone(), session.peer);
    let run = door.run.clone();
    let (wire, mut first) = session.into_parts();
    let Wire::Client(mut stream) = wire else { return };
    let looked = look(&worker, &mut stream, &mut first).await;
    let Looked::Tls(hello) = looked else {
        return pass_unopened(worker, stream, first, (host, port), record, run.as_deref()).await;
    };
    if !hello.speaks_http_1_1() {
        return pass_unopened(worker, stream, first, (host, port), record, run.as_deref()).await;
    }
    // A client that connected to an address names the host inside.
    let inside = if host.ip().is_some() { hello.host(&host) } else { host.clone() };
    let config = match worker.shared.authority().and_then(|ca| ca.server_config(&hello.host(&host), clock::now())) {
        Ok(config) => config,
        Err(error) => return tracing::error!(%error, "cannot open a tunnel: is the store folder writable?"),
    };
    match listen::shake_hands(&worker, config, Rewound::new(first.to_vec(), stream)).await {
        Ok(wire) => {
            let mut session = Session::new(worker, door, peer, wire, BytesMut::new());
            session.inside = Some((inside, port));
            journey::serve(session, First::Rest).await;
        }
        Err(HandshakeTrouble::ClientRejectsCa) => {
            tracing::info!(%host, client = %peer.ip(), "a client does not trust the local CA: its tunnels to this host stay closed for an hour");
            worker.shared.pass.learn(peer.ip(), &host, clock::now());
        }
        Err(trouble) => tracing::debug!(%host, trouble = trouble.as_str(), "no TLS inside the tunnel"),
    }
}

enum Looked {
    Tls(hello::Hello),
    Other,
}

async fn look(worker: &Rc<Worker>, stream: &mut (impl AsyncRead + Unpin), first: &mut BytesMut) -> Looked {
    let timer = worker.ticker.timer();
    loop {
        match hello::peek(first) {
            Peek::Hello(hello) => return Looked::Tls(hello),
            Peek::NotTls => return Looked::Other,
            Peek::NeedMore if first.len() > HELLO_BYTES_MAX => return Looked::Other,
            Peek::NeedMore => {}
        }
        match timer.limit(FIRST_WORDS, Wait::Busy, stream.read_buf(first)).await {
            Ok(Ok(1..)) => {}
            _ => return Looked::Other,
        }
    }
}

async fn pass_unopened(
    worker: Rc<Worker>,
    stream: Socket,
    first: BytesMut,
    (host, port): (Host, u16),
    record: Box<Record>,
    run: Option<&crate::record::Run>,
) {
    // The client was told that the tunnel stands; all that is left on a failure is to end it.
    if let Ok(origin) = worker.upstreams.tunnel(&host, port).await {
        splice(&worker, (Wire::Client(stream), first), (Wire::Tcp(origin), BytesMut::new()), record, run).await;
    }
}

/// Serves a request that wants to leave HTTP (RFC 9110 section 7.8). Gives the session back when it stays with HTTP.
pub async fn upgrade(mut session: Box<Session>, request: RequestHead) -> Option<Box<Session>> {
    let mut record = session.worker.begin_record(&request, session.peer, &session.door);
    let ask = match access::judge(&session, &request) {
        Verdict::Allow(ask) => ask,
        Verdict::Answer(page) => {
            answer(session, &request, page.closing(), record).await;
            return None;
        }
        Verdict::Tunnel(..) | Verdict::Purge(_) | Verdict::Echo => return None,
    };
    record.url = ask.url.to_string();
    record.trail.rule = Some(ask.rule);
    record.trail.edition = session.worker.edition();
    let _ = session.flush().await;
    let notes = record.notes();
    record.leads(&notes);
    let asked = ask_upgrade(&session, &request, &ask, &notes).await;
    if let Some(traces) = &session.worker.shared.traces {
        traces.end_fetch(&request.method, &ask.url_at_origin(), &notes, &session.worker.tally.spans);
    }
    match asked {
        Err(fault) => answer(session, &request, page_of(&fault, &mut record), record).await,
        Ok((Switch::To(protocols), head, connection)) => switch(session, protocols, head, connection, record).await,
        Ok((Switch::No, head, connection)) => return stay(session, request, ask, head, connection, record).await,
    }
    None
}

/// What an origin does that was offered other protocols.
enum Switch {
    /// It goes on in these.
    To(String),
    /// It stays with HTTP.
    No,
}

async fn switch(
    mut session: Box<Session>,
    protocols: String,
    mut head: ResponseHead,
    connection: Connection,
    mut record: Box<Record>,
) {
    hop::strip(&mut head.fields);
    head.fields.push("Connection", "upgrade");
    head.fields.push("Upgrade", protocols);
    session.outbox.own(|out| encode::response_head(out, &head));
    record.status = 101;
    // One of the origin's connections until the tunnel ends, as any other.
    let (wire, read, held) = connection.into_tunnel();
    pass(session, wire, read, record).await;
    drop(held);
}

/// Asks as a fetch asks, and offers the client's protocols.
async fn ask_upgrade(
    session: &Session,
    request: &RequestHead,
    ask: &Ask,
    notes: &Notes,
) -> Result<(Switch, ResponseHead, Connection), UpstreamFault> {
    let now = notes.attempt();
    let mut connection = session.worker.upstreams.connection_at(ask.connects_to(), Fresh::NewOnly, now.into()).await?;
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
    mut session: Box<Session>,
    request: RequestHead,
    ask: Ask,
    head: ResponseHead,
    connection: Connection,
    mut record: Box<Record>,
) -> Option<Box<Session>> {
    let mut key = Vec::new();
    ask.key(&session.worker.shared.cache, &mut key);
    let (mut reader, writer) = session.worker.shared.cache.alone(&key);
    session.worker.shared.forget_unsafe(&request.method, &ask, &head);
    fetch::adopt(writer, head, connection, &request.method);
    let Arrival::Head(kept) = reader.arrival().await else { return None };
    let entry = Answer::Entry { reader, kept, outcome: Outcome::Miss(Cause::Upgrade), verbatim: true, refill: None };
    let next = respond::respond(&mut session, &request, entry, &mut None, &mut record).await;
    tell(&session, record);
    match next {
        respond::Next::Continue => return Some(session),
        respond::Next::Close => session.close().await,
        respond::Next::Cut => {}
    }
    None
}

fn page_of(fault: &UpstreamFault, record: &mut Record) -> Page {
    let failure = fetch::failure(fault);
    record.outcome = Outcome::Failed(failure.word);
    let what = format!("No way to the origin: {}.", failure.detail);
    Page::new(failure.status, failure.word, what, "Check the name and the port, or try again.").closing()
}

async fn answer(mut session: Box<Session>, request: &RequestHead, page: Page, mut record: Box<Record>) {
    respond::respond_page(&mut session, request, &page, false, &mut record);
    tell(&session, record);
    session.close().await;
}

fn tell(session: &Session, record: Box<Record>) {
    session.worker.tell(session.door.run.as_deref(), record);
}

async fn pass(mut session: Box<Session>, origin: Wire, read: BytesMut, record: Box<Record>) {
    if session.flush().await.is_err() {
        return;
    }
    let (worker, run) = (Rc::clone(&session.worker), session.door.run.clone());
    let (client, first) = session.into_parts();
    splice(&worker, (client, first), (origin, read), record, run.as_deref()).await;
}

/// Carries bytes both ways until both sides are done, or neither has said anything for `timeouts.tunnel_idle`.
async fn splice(
    worker: &Rc<Worker>,
    (client, from_client): (Wire, BytesMut),
    (origin, from_origin): (Wire, BytesMut),
    mut record: Box<Record>,
    run: Option<&crate::record::Run>,
) {
    let moved = Cell::new(0u64);
    let down = Cell::new(0u64);
    let (client_reads, client_writes) = tokio::io::split(client);
    let (origin_reads, origin_writes) = tokio::io::split(origin);
    let up = carry(from_client, client_reads, origin_writes, |bytes| moved.set(moved.get() + bytes));
    let back = carry(from_origin, origin_reads, client_writes, |bytes| {
        moved.set(moved.get() + bytes);
        down.set(down.get() + bytes);
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
    record.complete = tokio::select! {
        whole = both(worker, up, back) => whole,
        _ = watch => false,
    };
    record.bytes = down.get();
    record.outcome = Outcome::Tunnel;
    if record.status == 0 {
        record.status = 200;
    }
    worker.tell(run, record);
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
