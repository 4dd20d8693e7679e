//! Tunnels: bytes that are copied both ways, and the interception of TLS in a CONNECT tunnel with a certificate of the local
//! CA. The client's side is a connection or a stream of one.

use crate::client::ShownAddress;
use crate::clock;
use crate::env::{Env, PeerFacts, RecordGuard};
use crate::exchange::leave::{Intercepted, page_of};
use crate::exchange::pace::Pace;
use crate::handshake::shake_hands;
use crate::partial_heads::{HeadUnderWay, HeadsUnderWay};
use crate::people::ConnectionLogin;
use crate::record::Outcome;
use crate::socket::OtherSide;
use crate::ticker::Wait;
use crate::tls::HandshakeTrouble;
use crate::tls::hello::{self, Peek};
use crate::tls::interception::Interception;
use crate::wire::{Rewound, Wire};
use bytes::{BufMut, BytesMut};
use larder_wire::{Host, Scheme};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How long a client may stay silent in a fresh tunnel before it is taken for one whose server speaks first.
const FIRST_BYTES_WAIT: Duration = Duration::from_secs(3);

/// A ClientHello is shorter than this.
const HELLO_BYTES_MAX: usize = 64 * 1024;

/// The context in which TLS in a tunnel is intercepted.
pub struct Opening<'a> {
    /// The context of the worker.
    pub env: &'a Rc<Env>,
    /// The limit of heads that are not whole yet, which the first bytes of a tunnel share.
    pub heads: &'a Rc<HeadsUnderWay>,
    /// The local CA, and the hosts whose tunnels are not intercepted.
    pub interception: &'a Interception,
}

impl Opening<'_> {
    /// Reads the client's first bytes. If they begin TLS that offers HTTP/1.1, maybe beside HTTP/2, gives the stream inside the tunnel,
    /// with the facts by which requests on it are judged; otherwise copies the bytes to and from the origin until the tunnel ends. A
    /// client that offers HTTP/2 alone, as gRPC does, needs an origin that is asked by it.
    pub async fn open(
        self,
        peer: &PeerFacts,
        (mut stream, mut first): (Wire, BytesMut),
        (host, port): (Host, u16),
        (tunnel, mut record): (&Intercepted, RecordGuard),
    ) -> Option<(Wire, PeerFacts)> {
        let http2 = peer.listener.in_force().http2;
        let hello = match first_bytes(self.env, self.heads, FIRST_BYTES_WAIT, (&mut stream, &mut first)).await {
            FirstBytes::Tls(hello) if hello.speaks_http_1_1() => hello,
            FirstBytes::Tls(_) | FirstBytes::Other | FirstBytes::NotWhole => {
                self.pass_unopened(peer, (stream, first), (host, port), (tunnel, record)).await;
                return None;
            }
        };
        // A client that sent CONNECT for an address names the host in its ClientHello, and the lists of hosts that are not
        // intercepted apply to that name too.
        let named = hello.host(&host);
        let pass = &self.interception.pass;
        if pass.find(peer.address.ip(), &named, clock::now()).is_some() {
            self.pass_unopened(peer, (stream, first), (host, port), (tunnel, record)).await;
            return None;
        }
        let inside = if host.ip().is_some() { named.clone() } else { host.clone() };
        let config = match self.interception.authority().and_then(|ca| ca.server_config(&named, http2, clock::now())) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "cannot open a tunnel: is the store folder writable?");
                record.breaks_off("no-certificate", "there is no certificate for the host of the tunnel");
                return None;
            }
        };
        match shake_hands(self.env, config, Rewound::new(first.to_vec(), stream)).await {
            Ok(wire) => {
                (record.outcome, record.complete) = (Outcome::Opened, true);
                record.finish();
                let peer = peer_inside(peer, (inside, port), tunnel, &wire);
                Some((wire, peer))
            }
            Err(trouble) => {
                match trouble {
                    HandshakeTrouble::ClientRejectsCa => {
                        tracing::info!(host = %named, client = %ShownAddress(peer.address.ip()), "a client does not trust the local CA: its tunnels to this host stay closed for an hour");
                        pass.learn(peer.address.ip(), &named, clock::now());
                    }
                    _ => tracing::debug!(%host, trouble = trouble.as_str(), "no TLS inside the tunnel"),
                }
                record.breaks_off(trouble.as_str(), "there was no TLS inside the tunnel");
                None
            }
        }
    }

    /// Connects to the origin and copies bytes. The client has its 200 already, so where the origin can't be reached the
    /// connection is reset: an orderly close could be taken for the origin's.
    async fn pass_unopened(
        &self,
        peer: &PeerFacts,
        (stream, first): (Wire, BytesMut),
        (host, port): (Host, u16),
        (tunnel, mut record): (&Intercepted, RecordGuard),
    ) {
        if peer.listener.is_offline() {
            record.breaks_off("offline", "the run is offline, and the tunnel is not one that is opened");
            return stream.end_by_reset();
        }
        let reach = self.env.reach(Some(peer.listener.asker)).by_rule(tunnel.reach.clone());
        let way = Cell::new(None);
        let (to, to_port) = peer.tunnel_end(&host, port);
        let opened = self.env.upstreams.tunnel(&to, to_port, &reach, &|note| way.set(Some(note))).await;
        way.take().into_iter().for_each(|note| record.note_way(note));
        match opened {
            Ok(origin) => {
                let (client, origin) = ((stream, first), (origin, BytesMut::new()));
                let pace = tunnel.limits.as_ref().and_then(|limits| Pace::under(self.env, limits));
                splice(self.env, client, origin, pace, record).await;
            }
            Err(fault) => {
                page_of(&fault, &mut record);
                stream.end_by_reset();
            }
        }
    }
}

/// The facts about the connection inside a tunnel that was opened.
fn peer_inside(outside: &PeerFacts, inside: (Host, u16), tunnel: &Intercepted, wire: &Wire) -> PeerFacts {
    let login = tunnel.user.clone().map(|user| Arc::new(ConnectionLogin::in_tunnel_of(user)));
    PeerFacts {
        scheme: Scheme::Https,
        inside: Some(Box::new(inside)),
        sni: wire.server_name(),
        login: login.map_or_else(OnceCell::new, OnceCell::from),
        ..outside.clone()
    }
}

/// The first bytes of a client in a tunnel.
pub enum FirstBytes {
    /// A whole ClientHello.
    Tls(hello::Hello),
    /// Something else.
    Other,
    /// Nothing, or the beginning of a ClientHello: its end did not come in time, is too far away, or had no room.
    NotWhole,
}

/// Reads the client's first bytes behind those that are here, until they are a whole ClientHello or can't be one; a client may be silent
/// for `wait` before each further one.
pub async fn first_bytes(
    env: &Env,
    heads: &Rc<HeadsUnderWay>,
    wait: Duration,
    (stream, first): (&mut (impl AsyncRead + Unpin), &mut BytesMut),
) -> FirstBytes {
    let timer = env.ticker.timer();
    // These bytes count as those of a head do.
    let mut held = HeadUnderWay::default();
    loop {
        match hello::peek(first) {
            Peek::Hello(hello) => return FirstBytes::Tls(hello),
            Peek::NotTls => return FirstBytes::Other,
            Peek::NeedMore if first.len() > HELLO_BYTES_MAX => return FirstBytes::NotWhole,
            Peek::NeedMore if held.holds(heads, first.capacity()).is_err() => return FirstBytes::NotWhole,
            Peek::NeedMore => {}
        }
        match timer.limit(wait, Wait::Busy, stream.read_buf(first)).await {
            Ok(Ok(1..)) => {}
            _ => return FirstBytes::NotWhole,
        }
    }
}

/// Copies bytes both ways until both sides are done, or neither has sent any for `timeouts.tunnel_idle`.
pub async fn splice(
    env: &Env,
    (client, from_client): (Wire, BytesMut),
    (origin, from_origin): (Wire, BytesMut),
    mut pace: Option<Pace>,
    mut record: RecordGuard,
) {
    record.outcome = Outcome::Tunnel;
    // If the server stops meanwhile, dropping this finishes the record as it stands.
    let record = RefCell::new(record);
    let moved = Cell::new(0u64);
    let (client, origin) = (Side::of(client), Side::of(origin));
    let mut at_once = None;
    let up = carry(from_client, client.clone(), origin.clone(), &mut at_once, |bytes| moved.set(moved.get() + bytes));
    let back = carry(from_origin, origin.clone(), client.clone(), &mut pace, |bytes| {
        moved.set(moved.get() + bytes);
        record.borrow_mut().bytes += bytes;
    });
    let idle = env.config().timeouts.tunnel_idle;
    let watch = async {
        let timer = env.ticker.timer();
        loop {
            let before = moved.get();
            let _ = timer.limit(idle, Wait::Idle, std::future::pending::<()>()).await;
            if moved.get() == before || env.ticker.is_draining() {
                return;
            }
        }
    };
    let whole = tokio::select! {
        biased;
        whole = both(env, up, back) => whole,
        _ = watch => false,
    };
    if !whole {
        client.break_off(&origin);
    }
    let mut record = record.into_inner();
    if let Some(pace) = pace {
        record.note_waited(pace.waited());
    }
    record.complete = whole;
    record.finish();
}

/// A side of a tunnel, which both directions use.
#[derive(Clone)]
struct Side(Rc<RefCell<Wire>>);

impl Side {
    fn of(wire: Wire) -> Side {
        Side(Rc::new(RefCell::new(wire)))
    }

    /// Ends a tunnel of this client that broke. One on a stream ends by a reset, and where the client has reset it, so does the
    /// connection to the origin (RFC 9113 section 8.5). Two connections are closed: bytes may be on their way still.
    fn break_off(&self, origin: &Side) {
        let client = self.0.borrow();
        if let Wire::Stream(stream) = &*client {
            if stream.other_side() == OtherSide::Closed {
                origin.0.borrow().reset_origin();
            }
            stream.end_by_reset();
        }
    }
}

impl AsyncRead for Side {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Side {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)
    }
}

/// How long the other direction goes on when one is broken: what was on its way may still arrive, but a peer that is
/// gone must not hold two sockets until the tunnel counts as idle.
const OTHER_DIRECTION_WAIT: Duration = Duration::from_secs(1);

/// Both directions to their ends; false when one of them broke.
async fn both(env: &Env, up: impl Future<Output = io::Result<()>>, back: impl Future<Output = io::Result<()>>) -> bool {
    let (mut up, mut back) = (pin!(up), pin!(back));
    tokio::select! {
        biased;
        done = &mut up => other(env, &done, back).await,
        done = &mut back => other(env, &done, up).await,
    }
}

/// Waits for the direction that is left when the other one is `done`.
async fn other(env: &Env, done: &io::Result<()>, left: impl Future<Output = io::Result<()>>) -> bool {
    if done.is_ok() {
        return left.await.is_ok();
    }
    let _ = env.ticker.timer().limit(OTHER_DIRECTION_WAIT, Wait::Busy, left).await;
    false
}

const CARRY_BYTES: usize = 32 * 1024;

async fn carry(
    first: BytesMut,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    pace: &mut Option<Pace>,
    moved: impl Fn(u64),
) -> io::Result<()> {
    let mut buffer = first;
    loop {
        if !buffer.is_empty() {
            if let Some(pace) = pace {
                pace.wait(buffer.len() as u64).await;
            }
            to.write_all(&buffer).await?;
            Pin::new(&mut to).flush().await?;
            moved(buffer.len() as u64);
            buffer.clear();
        }
        let most = pace.as_ref().map_or(CARRY_BYTES, |pace| usize::try_from(pace.piece_bytes()).unwrap_or(CARRY_BYTES));
        let most = most.min(CARRY_BYTES);
        buffer.reserve(most);
        if from.read_buf(&mut (&mut buffer).limit(most)).await? == 0 {
            return to.shutdown().await;
        }
    }
}
