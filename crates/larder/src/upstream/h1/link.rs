//! The stream of a connection, which both directions share, and the outgoing direction. Nothing of the response is known here but
//! whether a byte of it has come.

use super::super::fault::{Retry, UpstreamFault, UpstreamFaultKind};
use super::super::parents::ThroughParent;
use super::super::wait_limit::WaitLimit;
use super::super::{Settings, Shared};
use crate::record::Peer;
use crate::wire::Wire;
use bytes::{Buf, BufMut, BytesMut};
use larder_wire::proxy_protocol::SentHeader;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// The part that both halves share. The stream is borrowed for the time of one poll and never across an await.
pub(super) struct Link {
    pub wire: RefCell<Wire>,
    pub peer: Peer,
    /// The parent through which it leads, where one does.
    pub parent: Option<ThroughParent>,
    /// The header of the PROXY protocol with which it began.
    pub header: Option<Box<SentHeader>>,
    pub acknowledged_within: Cell<Option<Duration>>,
    pub shared: Rc<Shared>,
    /// For what is received, and for a request that is sent whole.
    pub wait_limit: WaitLimit,
    pub leased_at: Instant,
    /// It has served before, so the origin may close it just now, and rightly so.
    pub reused: bool,
    /// A byte of the answer has come.
    pub answered: Cell<bool>,
    /// A [`Sender`] lives: the origin may wait for the rest of the request.
    pub sending: Cell<bool>,
    /// The request was sent to its end.
    pub request_whole: Cell<bool>,
    /// Since when the first byte of an answer is waited for; `None` before the first such wait, so that one that
    /// follows the request at once need not ask what time it is.
    pub waiting_since: Cell<Option<Instant>>,
}

/// The outgoing half of a connection.
pub(in crate::upstream) struct Sender<'a> {
    link: &'a Link,
    wait_limit: WaitLimit,
}

impl Sender<'_> {
    pub(super) fn new(link: &Link) -> Sender<'_> {
        link.sending.set(true);
        link.request_whole.set(false);
        Sender { link, wait_limit: link.shared.clock.wait_limit() }
    }

    /// Sends what is in `bytes`, taking off what was sent: when the future is dropped, the rest is still there
    /// and can be sent by another call. Several pieces (`Buf::chain`: chunk head, content, chunk end) go out
    /// in one write. On a fault, look for an answer before giving up: an origin that refuses a body
    /// early answers and then closes.
    pub async fn send(&mut self, bytes: &mut impl Buf) -> Result<(), UpstreamFault> {
        self.link.send(bytes, &self.wait_limit).await
    }

    /// The request is complete.
    pub fn end(self) {
        self.link.request_whole.set(true);
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        self.link.sending.set(false);
        self.link.waits_from(Instant::now());
    }
}

impl Link {
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Whether the far end is a process of an application that this server runs.
    pub fn is_of_process(&self) -> bool {
        matches!(&*self.wire.borrow(), Wire::Mount(_))
    }

    /// The first byte of an answer is waited for from here on.
    pub fn waits_from(&self, now: Instant) {
        self.waiting_since.set(Some(now));
    }

    /// From the end of the request to the first byte of the answer: applications have times of their own.
    pub fn first_byte_time(&self) -> Duration {
        match &*self.wire.borrow() {
            Wire::Mount(stream) => stream.request_time(),
            _ => None,
        }
        .unwrap_or(self.settings().first_byte_timeout)
    }

    /// How much is left of the time for the first byte. All of it, where nothing was waited for yet.
    pub fn first_byte_in(&self) -> Duration {
        let time = self.first_byte_time();
        match self.waiting_since.get() {
            Some(since) => time.saturating_sub(since.elapsed()),
            None => {
                self.waits_from(self.leased_at);
                time
            }
        }
    }

    /// Sends what is in `bytes`, taking off what was sent.
    pub async fn send(&self, bytes: &mut impl Buf, wait_limit: &WaitLimit) -> Result<(), UpstreamFault> {
        while bytes.has_remaining() {
            let wrote = self.progress(wait_limit, poll_fn(|cx| self.poll_write(cx, bytes))).await?;
            if wrote == 0 {
                return Err(self.broken(&io::ErrorKind::WriteZero.into()));
            }
        }
        // A socket keeps nothing back; TLS keeps what it has encrypted.
        if self.wire.borrow().tls_is_off() {
            return Ok(());
        }
        self.progress(wait_limit, poll_fn(|cx| pin!(self.wire.borrow_mut().flush()).poll(cx))).await
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

    async fn progress<T>(
        &self,
        wait_limit: &WaitLimit,
        work: impl Future<Output = io::Result<T>>,
    ) -> Result<T, UpstreamFault> {
        let idle = self.settings().idle_timeout;
        match wait_limit.limit(idle, work).await {
            Ok(done) => done.map_err(|error| self.broken(&error)),
            Err(_) => Err(UpstreamFault::new(
                UpstreamFaultKind::IdleTimeout,
                format!("the origin took no byte of the request for {} s", idle.as_secs_f64()),
            )),
        }
    }

    /// Whether a request may be sent again whose connection broke before a byte of its answer. A Unix socket that is closed with
    /// unread bytes in it tells that by a reset, and takes no further ones; one whose bytes were read ends.
    pub fn retry_after(&self, error: &io::Error) -> Retry {
        match (error.kind(), &*self.wire.borrow()) {
            (io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe, Wire::Mount(_)) => Retry::Unread,
            // It was reading no other request than this one, and the next process would most likely end by it too.
            (_, Wire::Mount(stream)) if stream.process().serves_one_at_a_time() => Retry::No,
            _ if self.reused => Retry::IfIdempotent,
            _ => Retry::No,
        }
    }

    fn broken(&self, error: &io::Error) -> UpstreamFault {
        let retry = if self.answered.get() { Retry::No } else { self.retry_after(error) };
        UpstreamFault { retry, ..UpstreamFault::reset(error, "the request was sent") }
    }

    /// Appends what the origin has sent to `buffer`, `bytes_max` of it. Room is made when there is something to read: a
    /// connection that waits holds none. Cancel-safe: bytes are taken and appended in one poll.
    pub async fn read(&self, buffer: &mut BytesMut, room: usize, bytes_max: usize) -> io::Result<usize> {
        poll_fn(|cx| {
            let mut wire = self.wire.borrow_mut();
            if let Wire::Tcp(stream) = &*wire {
                ready!(stream.poll_read_ready(cx))?;
            }
            if buffer.capacity() == 0 {
                *buffer = self.shared.spare.take();
            }
            buffer.reserve(room);
            pin!(wire.read_buf(&mut (&mut *buffer).limit(bytes_max))).poll(cx)
        })
        .await
    }
}
