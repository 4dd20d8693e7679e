//! The task of a connection: bytes in, responses further; frames out.

use super::super::connect::Opened;
use super::super::fault::{UpstreamFault, UpstreamFaultKind};
use super::super::wait_limit::WaitLimit;
use super::super::{Origin, Shared};
use super::Link;
use super::connections::Connections;
use super::state::{Limits, State, Trouble, wire_fault};
use crate::wire::Wire;
use bytes::{BufMut, BytesMut};
use larder_wire::h2::ErrorCode;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// How long a connection that ends waits until its last frames are written.
const LINGER: Duration = Duration::from_millis(500);
/// Room for a read.
const READ_BYTES: usize = 128 * 1024;
/// With less room than this left in the buffer, a new one is taken.
const ROOM_BYTES_MIN: usize = 16 * 1024;

/// A connection whose origin has said its SETTINGS.
pub(in crate::upstream) struct Ready(Driver);

/// Begins HTTP/2 on an open connection: it is ready once the origin's SETTINGS are here, so that no request is sent that they forbid, and
/// none to a server that speaks something else. The caller limits the time.
pub(in crate::upstream) async fn open(opened: Opened, shared: &Rc<Shared>) -> Result<Ready, UpstreamFault> {
    let Opened { wire, peer, .. } = opened;
    let settings = &shared.settings;
    let limits = Limits { heads: settings.head_limits, interim_heads_max: settings.interim_heads_max };
    let link = Rc::new(Link::new(Rc::clone(shared), peer, State::new(limits)));
    let mut driver = Driver { link, wire, is_unflushed: false, gives_way: false };
    loop {
        let turn = poll_fn(|cx| driver.poll_turn(cx)).await;
        let taken = match turn {
            Ok(Turn::Closed) => Err(Trouble::Closed),
            Ok(_) => driver.link.state.borrow_mut().read_frames(),
            Err(error) => Err(Trouble::Broken(error.kind(), error.to_string())),
        };
        match taken {
            Err(Trouble::Fault(fault)) => {
                let detail = format!("{peer} does not speak HTTP/2, or not well: {}", fault.detail);
                return Err(UpstreamFault { detail, ..wire_fault(fault.detail) });
            }
            Err(Trouble::Flood(flood)) => return Err(wire_fault(flood.as_str())),
            Err(_) => {
                let detail = format!("{peer} closed the connection before its SETTINGS; does it speak HTTP/2?");
                return Err(UpstreamFault::new(UpstreamFaultKind::Reset, detail).after_contact());
            }
            Ok(()) if driver.link.state.borrow().has_settings() => return Ok(Ready(driver)),
            Ok(()) => {}
        }
    }
}

impl Ready {
    /// Has the connection serve requests for this origin, in a task of its own. A fault where the origin takes none.
    pub fn serve(self, connections: &Rc<Connections>, origin: &Origin) -> Result<Rc<Link>, UpstreamFault> {
        let Ready(driver) = self;
        let link = Rc::clone(&driver.link);
        if link.state.borrow().streams_max() == 0 {
            let detail = "the origin takes no streams (SETTINGS_MAX_CONCURRENT_STREAMS is 0)";
            return Err(UpstreamFault::new(UpstreamFaultKind::Busy, detail));
        }
        connections.add(&link);
        let connection = Connection { driver, connections: Rc::clone(connections), origin: origin.clone() };
        tokio::task::spawn_local(connection.run());
        Ok(link)
    }
}

struct Connection {
    driver: Driver,
    /// Those to the same origin.
    connections: Rc<Connections>,
    origin: Origin,
}

struct Driver {
    link: Rc<Link>,
    wire: Wire,
    /// TLS may hold bytes that it has encrypted.
    is_unflushed: bool,
    /// Other tasks run before the next turn.
    gives_way: bool,
}

/// The result of a turn of reading and writing.
enum Turn {
    Read,
    Wrote,
    /// Requests have changed the state.
    Changed,
    Closed,
}

impl Connection {
    async fn run(mut self) {
        let trouble = self.drive().await;
        self.connections.remove(&self.driver.link);
        let link = Rc::clone(&self.driver.link);
        link.state.borrow_mut().end_streams(&trouble);
        let (code, detail) = match &trouble {
            Trouble::Fault(fault) => (fault.code, fault.detail),
            Trouble::Flood(flood) => (ErrorCode::EnhanceYourCalm, flood.as_str()),
            Trouble::Ours => (ErrorCode::NoError, ""),
            Trouble::Closed | Trouble::Broken(..) | Trouble::Silent => return,
        };
        if !matches!(trouble, Trouble::Ours) {
            self.connections.note_fault();
            tracing::info!(origin = %self.origin, peer = %link.peer, code = code.as_str(), detail, "a connection of HTTP/2 to an origin is ended for a fault of the origin");
        }
        link.state.borrow_mut().leave(code, detail);
        let _ = timeout(LINGER, self.driver.close()).await;
    }

    /// Serves requests until the connection ends.
    async fn drive(&mut self) -> Trouble {
        let link = Rc::clone(&self.driver.link);
        let wait_limit = link.shared.clock.wait_limit();
        let mut idle_since = Instant::now();
        loop {
            if let Err(trouble) = self.take_frames() {
                return trouble;
            }
            // After a read the requests run before more is written, so that frames go out together.
            if std::mem::take(&mut self.driver.gives_way) {
                tokio::task::yield_now().await;
            }
            link.state.borrow_mut().pump();
            let is_idle = link.leases.get() == 0 && link.state.borrow().is_idle();
            if is_idle && link.state.borrow().inbox.is_empty() {
                link.state.borrow_mut().inbox = BytesMut::new();
            }
            if is_idle && link.state.borrow().is_leaving() {
                return Trouble::Ours;
            }
            if !is_idle {
                idle_since = Instant::now();
            }
            let (limit, late) = self.limit(is_idle, idle_since);
            match self.turn(&wait_limit, limit).await {
                None => return late,
                Some(Ok(Turn::Closed)) => return Trouble::Closed,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Trouble::Broken(error.kind(), error.to_string()),
            }
        }
    }

    async fn turn(&mut self, wait_limit: &WaitLimit, limit: Option<Duration>) -> Option<io::Result<Turn>> {
        let turn = poll_fn(|cx| self.driver.poll_turn(cx));
        match limit {
            Some(limit) => wait_limit.limit(limit, turn).await.ok(),
            None => Some(turn.await),
        }
    }

    /// The time that the connection may now let pass, and how it ends after that.
    fn limit(&self, is_idle: bool, idle_since: Instant) -> (Option<Duration>, Trouble) {
        let Link { shared, state, answer_by, .. } = &*self.driver.link;
        if is_idle {
            return (Some(shared.settings.keep_alive.saturating_sub(idle_since.elapsed())), Trouble::Ours);
        }
        match state.borrow().ping {
            Some(_) => (Some(answer_by.get().saturating_duration_since(Instant::now())), Trouble::Silent),
            None => (None, Trouble::Silent),
        }
    }

    fn take_frames(&mut self) -> Result<(), Trouble> {
        let link = &self.driver.link;
        let mut state = link.state.borrow_mut();
        state.read_frames()?;
        if std::mem::take(&mut state.needs_http11) {
            self.connections.speaks_http11(Instant::now());
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A task that is dropped with its runtime has requests, which are not over.
        self.connections.remove(&self.driver.link);
        self.driver.link.state.borrow_mut().end_streams(&Trouble::Ours);
    }
}

impl Driver {
    /// Writes what waits, and reads what has come.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Turn>> {
        if self.link.changes.take(cx) {
            return Poll::Ready(Ok(Turn::Changed));
        }
        let mut state = self.link.state.borrow_mut();
        if !state.outbox.is_empty() {
            if let Poll::Ready(written) = state.outbox.poll_write_some(cx, &mut self.wire) {
                written?;
                self.is_unflushed = !self.wire.tls_is_off();
                return Poll::Ready(Ok(Turn::Wrote));
            }
        } else if self.is_unflushed && Pin::new(&mut self.wire).poll_flush(cx)?.is_ready() {
            self.is_unflushed = false;
        }
        if !state.may_read() {
            return Poll::Pending;
        }
        if let Wire::Tcp(stream) = &self.wire {
            // A connection that waits holds no room.
            ready!(stream.poll_read_ready(cx))?;
        }
        let inbox = &mut state.inbox;
        if inbox.capacity() - inbox.len() < ROOM_BYTES_MIN {
            inbox.reserve(READ_BYTES);
        }
        let read = ready!(pin!(self.wire.read_buf(&mut (&mut *inbox).limit(READ_BYTES))).poll(cx))?;
        if read == 0 {
            return Poll::Ready(Ok(Turn::Closed));
        }
        state.ping = None;
        self.link.heard_at.set(Instant::now());
        self.gives_way = true;
        Poll::Ready(Ok(Turn::Read))
    }

    /// Writes what waits, and closes the connection.
    async fn close(&mut self) {
        let link = Rc::clone(&self.link);
        while !link.state.borrow().outbox.is_empty() {
            let written = poll_fn(|cx| link.state.borrow_mut().outbox.poll_write_some(cx, &mut self.wire)).await;
            if written.is_err() {
                return;
            }
        }
        let _ = self.wire.flush().await;
        let _ = self.wire.shutdown().await;
    }
}
