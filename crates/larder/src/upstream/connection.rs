//! A leased connection: bytes of a request out by its [`Sender`], the answer in by its [`Receiver`], both usable
//! at once, and at the end back to the pool or closed.

use super::Settings;
use super::connect::Opened;
use super::fault::{Retry, UpstreamFault, UpstreamFaultKind};
use super::pool::{Idle, Permit, Pool};
use super::receive::{Inbound, Receiver};
use crate::wire::Wire;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use larder_wire::framing::Framing;
use larder_wire::{Fields, Method, ResponseHead};
use rustls::pki_types::CertificateDer;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// A connection to an origin, ours alone until it is dropped (which closes it) or released.
pub struct Connection {
    link: Link,
    inbound: Inbound,
    permit: Permit,
    pool: Rc<Pool>,
}

/// What both halves share. The stream is borrowed for the time of one poll and never across an await.
pub(super) struct Link {
    wire: RefCell<Wire>,
    peer: SocketAddr,
    pub settings: Rc<Settings>,
    /// It has served before, so the origin may close it just now, and rightly so.
    pub reused: bool,
    /// A byte of the answer has come.
    pub answered: Cell<bool>,
    /// A [`Sender`] lives: the origin may wait for the rest of the request.
    pub sending: Cell<bool>,
    /// The request was sent to its end.
    request_whole: Cell<bool>,
    /// When the last bytes were sent, or the last interim head came.
    pub waiting_since: Cell<Instant>,
}

impl Connection {
    pub(super) fn opened(opened: Opened, permit: Permit, pool: Rc<Pool>, settings: Rc<Settings>) -> Connection {
        Connection::with(opened.wire, opened.peer, false, permit, pool, settings)
    }

    pub(super) fn again(idle: Idle, permit: Permit, pool: Rc<Pool>, settings: Rc<Settings>) -> Connection {
        Connection::with(idle.wire, idle.peer, true, permit, pool, settings)
    }

    fn with(
        wire: Wire,
        peer: SocketAddr,
        reused: bool,
        permit: Permit,
        pool: Rc<Pool>,
        settings: Rc<Settings>,
    ) -> Connection {
        let link = Link {
            wire: RefCell::new(wire),
            peer,
            settings,
            reused,
            answered: Cell::new(false),
            sending: Cell::new(false),
            request_whole: Cell::new(false),
            waiting_since: Cell::new(Instant::now()),
        };
        Connection { link, inbound: Inbound::default(), permit, pool }
    }

    /// True when it has served an earlier request.
    pub fn reused(&self) -> bool {
        self.link.reused
    }

    /// The origin's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        Some(self.link.peer)
    }

    /// The certificates that the origin showed, its own first; `None` in clear text.
    pub fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        match &*self.link.wire.borrow() {
            Wire::TlsClient(stream) => stream.get_ref().1.peer_certificates().map(<[_]>::to_vec),
            _ => None,
        }
    }

    /// Sends a whole request: its head, and its body if that is at hand. Dropping the future half-way leaves
    /// the connection good for nothing. On a connection that had served before, a fault here says
    /// [`Retry::Safe`] whatever the method: only an idempotent request may use that. A request whose body comes bit by bit goes through [`Self::split_mut`].
    pub async fn send(&mut self, mut bytes: &[u8]) -> Result<(), UpstreamFault> {
        self.link.send(&mut bytes).await?;
        self.link.request_whole.set(true);
        Ok(())
    }

    /// The next head of the answer; see [`Receiver::response`].
    pub async fn response(&mut self, asked: &Method) -> Result<ResponseHead, UpstreamFault> {
        self.receiver().response(asked).await
    }

    /// The next piece of the answer's body; see [`Receiver::body`].
    pub async fn body(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        self.receiver().body().await
    }

    /// Where the body of the last answer ends.
    pub fn framing(&self) -> Framing {
        self.inbound.framing()
    }

    /// The trailers of the last answer, once its body was read to the end; `None` when there were none.
    pub fn trailers(&mut self) -> Option<Fields> {
        self.inbound.take_trailers()
    }

    /// Both directions at once: a request body can be sent while an early answer is watched for (RFC 9112
    /// section 9.3). The request counts as sent once [`Sender::end`] was called; without that the connection
    /// is never used again. While the sender lives, the time to the first byte does not count.
    pub fn split_mut(&mut self) -> (Sender<'_>, Receiver<'_>) {
        self.link.sending.set(true);
        self.link.request_whole.set(false);
        (Sender { link: &self.link }, Receiver::new(&self.link, &mut self.inbound))
    }

    /// Gives the connection back for another request, or closes it when it is not fit for one: the request
    /// or the answer is not over, a side does not keep alive, or bytes came behind the end of the answer.
    pub fn release(mut self) {
        let desynchronised = self.inbound.settle();
        if desynchronised {
            self.permit.slot().count(|counts| counts.desynchronised += 1);
            return;
        }
        if !self.link.request_whole.get() || !self.inbound.may_serve_again() {
            return;
        }
        let origin_keeps = self.inbound.origin_keeps();
        let idle = Idle { wire: self.link.wire.into_inner(), peer: self.link.peer, origin_keeps };
        self.pool.put(idle, self.permit);
    }

    /// The bare stream, and what was read from it behind the last head: after a 101, what follows is no HTTP.
    /// It no longer counts among the origin's connections.
    pub fn into_tunnel(self) -> (Wire, BytesMut) {
        (self.link.wire.into_inner(), self.inbound.into_unread())
    }

    fn receiver(&mut self) -> Receiver<'_> {
        Receiver::new(&self.link, &mut self.inbound)
    }
}

/// The outgoing half of a [`Connection`].
pub struct Sender<'a> {
    link: &'a Link,
}

impl Sender<'_> {
    /// Sends what is in `bytes`, taking off what was sent: when the future is dropped, the rest is still there
    /// and can be sent by another call. Several pieces (`Buf::chain`: chunk head, content, chunk end) go out
    /// in one write. On a fault, look for an answer before giving up: an origin that refuses a body
    /// early answers and then closes.
    pub async fn send(&mut self, bytes: &mut impl Buf) -> Result<(), UpstreamFault> {
        self.link.send(bytes).await
    }

    /// The request is complete.
    pub fn end(self) {
        self.link.request_whole.set(true);
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        self.link.sending.set(false);
        self.link.waiting_since.set(Instant::now());
    }
}

impl Link {
    async fn send(&self, bytes: &mut impl Buf) -> Result<(), UpstreamFault> {
        while bytes.has_remaining() {
            let wrote = self.progress(poll_fn(|cx| self.poll_write(cx, bytes))).await?;
            if wrote == 0 {
                return Err(self.broken(&io::ErrorKind::WriteZero.into()));
            }
            self.waiting_since.set(Instant::now());
        }
        // A socket keeps nothing back; TLS keeps what it has encrypted.
        if self.wire.borrow().tls_is_off() {
            return Ok(());
        }
        self.progress(poll_fn(|cx| pin!(self.wire.borrow_mut().flush()).poll(cx))).await
    }

    /// One piece goes out by the plain system call, which is the cheaper one.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &mut impl Buf) -> Poll<io::Result<usize>> {
        let mut wire = self.wire.borrow_mut();
        if bytes.chunk().len() < bytes.remaining() {
            return pin!(wire.write_buf(bytes)).poll(cx);
        }
        let wrote = ready!(Pin::new(&mut *wire).poll_write(cx, bytes.chunk()))?;
        bytes.advance(wrote);
        Poll::Ready(Ok(wrote))
    }

    async fn progress<T>(&self, work: impl Future<Output = io::Result<T>>) -> Result<T, UpstreamFault> {
        match timeout(self.settings.idle_timeout, work).await {
            Ok(done) => done.map_err(|error| self.broken(&error)),
            Err(_) => Err(UpstreamFault::new(
                UpstreamFaultKind::IdleTimeout,
                format!("the origin took no byte of the request for {} s", self.settings.idle_timeout.as_secs_f64()),
            )),
        }
    }

    fn broken(&self, error: &io::Error) -> UpstreamFault {
        let retry = if self.reused && !self.answered.get() { Retry::Safe } else { Retry::No };
        UpstreamFault { retry, ..UpstreamFault::reset(error, "the request was sent") }
    }

    /// Appends what the origin has sent to `buffer`, `bytes_max` of it. Cancel-safe: bytes are taken and appended
    /// in one poll.
    pub async fn read(&self, buffer: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
        let mut room = buffer.limit(bytes_max);
        poll_fn(|cx| pin!(self.wire.borrow_mut().read_buf(&mut room)).poll(cx)).await
    }
}
