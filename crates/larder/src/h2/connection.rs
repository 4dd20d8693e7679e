//! The task of a connection: bytes in, requests begun; frames out.

use super::Link;
use super::meters::Flood;
use super::request;
use super::state::{Event, State, Trouble};
use super::stream::Stream;
use crate::env::PeerFacts;
use crate::h1::Workspace;
use crate::partial_heads::{Crowded, HeadUnderWay};
use crate::ticker::{Timer, Wait, WaitEnd};
use crate::wire::Wire;
use bytes::BytesMut;
use larder_wire::h2::ErrorCode;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// How long a connection that ends waits until its last frames are written, and then for its client to close.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes that a client may send after the last frame, which are read so that a reset does not overtake that frame.
const LINGER_BYTES_MAX: usize = 512 * 1024;

/// Requests that one connection begins before the others of its worker have their turn: a read may hold thousands of small heads.
const TURN_REQUESTS_MAX: usize = 32;

/// After so many requests of one connection the worker's list of clients is told of them.
const NOTED_REQUESTS: u64 = 32;

/// Serves a connection to its end. These bytes of the client were read already.
pub fn serve(space: Rc<Workspace>, peer: PeerFacts, wire: Wire, inbox: BytesMut) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let env = Rc::clone(&space.env);
        env.tally.http2_connections.add(1);
        wire.send_at_once();
        wire.limit_unsent(env.config().limits.unsent_bytes_max);
        let state = State::new(inbox, space.head_limits.head_bytes_max);
        let (timer, now) = (env.ticker.timer(), env.ticker.wait_begins());
        let link =
            Rc::new(Link { space, peer, state: RefCell::new(state), changes: crate::wakers::Changes::default() });
        let mut connection = Connection {
            link,
            wire,
            answered: Vec::new(),
            unnoted: 0,
            gives_way: false,
            is_unflushed: false,
            block: None,
            idle_since: now,
            head_since: now,
            written_at: now,
        };
        let end = connection.run(&timer).await;
        connection.end(end, &timer).await;
    })
}

struct Connection {
    link: Rc<Link>,
    wire: Wire,
    /// Streams of requests that were answered at once, until their frames are made.
    answered: Vec<(u32, Stream)>,
    /// Requests that the worker's list of clients was not told of yet.
    unnoted: u64,
    /// Other tasks run before the next turn.
    gives_way: bool,
    /// TLS may hold bytes that it has encrypted.
    is_unflushed: bool,
    /// Counts the field block that is not whole yet.
    block: Option<HeadUnderWay>,
    /// The tick since which no stream is open.
    idle_since: u64,
    /// The tick since which the preface or a field block has been on its way.
    head_since: u64,
    /// The tick of the last write, or of the last moment when nothing waited to be written.
    written_at: u64,
}

/// Why a connection ends.
enum End {
    /// The client is gone.
    Gone,
    /// Nothing came for too long.
    Idle,
    /// The preface or a field block did not come to its end in time.
    LateHead,
    /// Field blocks and heads that are not whole take as much memory as they may, and this client's is long.
    Crowded,
    /// The client reads nothing.
    Stalled,
    /// The server goes down, and all streams are done.
    Drained,
    /// The client's fault.
    Trouble(Trouble),
}

/// The result of a turn of reading and writing has done.
enum Turn {
    Read,
    Wrote,
    /// Streams have changed the state.
    Changed,
    Closed,
}

impl Connection {
    async fn run(&mut self, timer: &Timer) -> End {
        loop {
            let has_more = match self.begin_requests() {
                Ok(has_more) => has_more,
                Err(trouble) => return End::Trouble(trouble),
            };
            self.gives_way |= has_more;
            if self.count_block().is_err() {
                return End::Crowded;
            }
            // After a read the exchanges run before their answers are written, so that these go out together; and a client that sends
            // without end, or takes a large answer as fast as it is written, must not hold up the others of its worker.
            if std::mem::take(&mut self.gives_way) {
                tokio::task::yield_now().await;
            }
            let (limit, late) = self.limit();
            let wait = if self.link.state.borrow().is_leaving() { Wait::Busy } else { Wait::Idle };
            let turn = timer.limit(limit, wait, poll_fn(|cx| self.poll_turn(cx, has_more))).await;
            match turn {
                Ok(Ok(Turn::Closed)) | Ok(Err(_)) => return End::Gone,
                Ok(Ok(Turn::Read)) => self.gives_way = true,
                Ok(Ok(Turn::Wrote)) => self.gives_way = !self.link.state.borrow().outbox.is_empty(),
                Ok(Ok(Turn::Changed)) => {}
                Err(WaitEnd::Draining | WaitEnd::Ending) => {
                    self.link.state.borrow_mut().leave(ErrorCode::NoError, "the server goes down");
                }
                Err(WaitEnd::Late) => return late,
            }
            let state = self.link.state.borrow();
            if state.is_leaving() && state.is_idle() && state.outbox.is_empty() {
                return End::Drained;
            }
        }
    }

    /// Begins requests that have come, and makes frames of what waits. Whether more may have come.
    fn begin_requests(&mut self) -> Result<bool, Trouble> {
        let mut begun = 0;
        let has_more = loop {
            if begun == TURN_REQUESTS_MAX || !self.link.state.borrow().may_read() {
                break true;
            }
            let event = self.link.state.borrow_mut().next_event();
            match event? {
                Event::NeedsBytes => break false,
                Event::Request { stream, ends_stream } => {
                    (begun, self.unnoted) = (begun + 1, self.unnoted + 1);
                    if let Some(answered) = request::begin(&self.link, stream, ends_stream)? {
                        self.answered.push((stream, answered));
                    }
                }
            }
        };
        let mut state = self.link.state.borrow_mut();
        state.pump();
        let tally = &self.link.space.env.tally;
        tally.http2_streams_refused.add(state.take_refused());
        drop(state);
        for (number, stream) in self.answered.drain(..) {
            // A client whose windows are too small for the answer.
            if self.link.state.borrow().has(number) {
                request::finish(&self.link, number, stream);
            }
        }
        if self.unnoted >= NOTED_REQUESTS {
            self.note_requests();
        }
        Ok(has_more)
    }

    /// Counts a field block that is not whole among the heads under way, as a head of HTTP/1.1 is.
    fn count_block(&mut self) -> Result<(), Crowded> {
        let bytes = self.link.state.borrow().block_bytes();
        match bytes {
            0 => self.block = None,
            bytes => self.block.get_or_insert_default().holds(&self.link.space.heads_under_way, bytes)?,
        }
        Ok(())
    }

    /// Tells the worker's list of clients of the requests since the last call.
    fn note_requests(&mut self) {
        let visitors = &self.link.space.connections.visitors;
        visitors.requests(self.link.peer.address.ip(), std::mem::take(&mut self.unnoted));
    }

    /// The time that the connection may now let pass, and how it ends after that.
    fn limit(&mut self) -> (Duration, End) {
        let ticker = &self.link.space.env.ticker;
        let now = ticker.wait_begins();
        let config = self.link.space.env.config();
        let state = self.link.state.borrow();
        if !state.is_idle() {
            self.idle_since = now;
        }
        if !state.is_in_head() {
            self.head_since = now;
        }
        if state.outbox.is_empty() {
            self.written_at = now;
        }
        let left = |limit: Duration, since: u64| limit.saturating_sub(ticker.since(since));
        let mut limit = (Duration::MAX, End::Idle);
        if state.is_in_head() {
            limit = (left(config.timeouts.head, self.head_since), End::LateHead);
        } else if state.is_idle() {
            limit = (left(config.timeouts.idle, self.idle_since), End::Idle);
        }
        if !state.outbox.is_empty() && left(config.timeouts.write, self.written_at) < limit.0 {
            limit = (left(config.timeouts.write, self.written_at), End::Stalled);
        }
        limit
    }

    /// Writes what waits, and reads what has come, unless bytes that were read wait still.
    fn poll_turn(&mut self, cx: &mut Context<'_>, has_more: bool) -> Poll<io::Result<Turn>> {
        if self.link.changes.take(cx) {
            return Poll::Ready(Ok(Turn::Changed));
        }
        let mut state = self.link.state.borrow_mut();
        if !state.outbox.is_empty() {
            if let Poll::Ready(written) = state.outbox.poll_write_some(cx, &mut self.wire) {
                written?;
                self.is_unflushed = !self.wire.tls_is_off();
                self.written_at = self.link.space.env.ticker.wait_begins();
                return Poll::Ready(Ok(Turn::Wrote));
            }
        } else if self.is_unflushed && Pin::new(&mut self.wire).poll_flush(cx)?.is_ready() {
            self.is_unflushed = false;
        }
        if !state.may_read() {
            return Poll::Pending;
        }
        if has_more {
            return Poll::Ready(Ok(Turn::Changed));
        }
        let mut scratch = self.link.space.scratch.borrow_mut();
        let mut room = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.wire).poll_read(cx, &mut room))?;
        if room.filled().is_empty() {
            return Poll::Ready(Ok(Turn::Closed));
        }
        state.take(room.filled());
        Poll::Ready(Ok(Turn::Read))
    }

    /// Tells the client why the connection ends, as far as it still reads, and ends all streams.
    async fn end(mut self, end: End, timer: &Timer) {
        let link = Rc::clone(&self.link);
        link.state.borrow_mut().end_streams();
        let (code, detail) = match &end {
            End::Gone | End::Stalled => return,
            End::Drained => (ErrorCode::NoError, ""),
            End::Idle => (ErrorCode::NoError, "no request came for timeouts.idle"),
            End::Crowded => (ErrorCode::EnhanceYourCalm, "heads under way take as much memory as they may"),
            End::LateHead => (ErrorCode::EnhanceYourCalm, "the request did not come to its end within timeouts.head"),
            End::Trouble(Trouble::Flood(flood)) => (ErrorCode::EnhanceYourCalm, flood.as_str()),
            End::Trouble(Trouble::Fault(fault)) => (fault.code, fault.detail),
        };
        match end {
            End::Trouble(Trouble::Flood(flood)) => self.note_flood(flood),
            End::Trouble(Trouble::Fault(fault)) => {
                tracing::debug!(client = %link.peer.address, %fault, "a connection of HTTP/2 ends");
                self.note_end("http2-fault");
            }
            End::LateHead => self.note_end("request-timeout"),
            End::Crowded => self.note_end("heads-bytes-max"),
            _ => {}
        }
        if !matches!(end, End::Drained) {
            link.state.borrow_mut().leave(code, detail);
        }
        let closing = async {
            loop {
                let written = poll_fn(|cx| {
                    let mut state = link.state.borrow_mut();
                    if state.outbox.is_empty() {
                        return Poll::Ready(Ok(0));
                    }
                    state.outbox.poll_write_some(cx, &mut self.wire)
                });
                match written.await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
            if self.wire.flush().await.is_err() || self.wire.shutdown().await.is_err() {
                return;
            }
            let (mut read, mut room) = (0, [0; 1024]);
            while let Ok(bytes @ 1..) = self.wire.read(&mut room).await {
                read += bytes;
                if read > LINGER_BYTES_MAX {
                    return;
                }
            }
        };
        let _ = timer.limit(LINGER, Wait::Busy, closing).await;
    }

    fn note_flood(&self, flood: Flood) {
        tracing::info!(client = %self.link.peer.address, limit = flood.as_str(), "a connection of HTTP/2 is ended at a limit");
        let tally = &self.link.space.env.tally;
        let counted = match flood {
            Flood::RapidReset => &tally.http2_rapid_resets,
            Flood::MadeReset => &tally.http2_made_resets,
            Flood::Control => &tally.http2_control_floods,
            Flood::SmallData => &tally.http2_small_data_floods,
            Flood::WindowUpdate => &tally.http2_window_floods,
            Flood::FieldBlock => &tally.http2_block_floods,
        };
        counted.add(1);
        self.note_end(flood.as_str());
    }

    /// Has a line in the log for a connection that was ended, and counts it among the faults.
    fn note_end(&self, word: &'static str) {
        let (env, peer) = (&self.link.space.env, &self.link.peer);
        env.tally.faults.add(1);
        env.finish_unanswered(&peer.listener, peer.address, word);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.note_requests();
        self.link.state.borrow_mut().end_streams();
    }
}
