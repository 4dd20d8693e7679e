//! HTTP/3 with clients (RFC 9114): a transport of exchanges over QUIC, whose packets, windows and handshakes are those of `quinn`.
//!
//! A listener has one UDP socket, which one worker serves (`listen`). A connection is a task that takes streams (`connection`); each
//! stream of a request is an exchange in a task of its own on the same worker (`request`, `stream`).

mod acknowledged;
mod connection;
mod control;
mod inbound;
mod listen;
mod meters;
mod request;
mod section;
mod stream;
mod turns;

pub use listen::accept;
pub use meters::Flood;

use crate::env::{Env, PeerFacts};
use crate::h1::Workspace;
use acknowledged::Acknowledged;
use larder_wire::h2::hpack::FieldList;
use larder_wire::h3::{ErrorCode, H3Fault, Scope};
use meters::Meters;
use quinn::{RecvStream, SendStream, VarInt};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::Notify;
use turns::Turns;

/// Requests that a client may have open on one connection.
const STREAMS_MAX: u32 = 100;

/// The distance between the numbers of streams that a client opens one after the other for requests (RFC 9000 section 2.1).
const STREAM_STEP: u64 = 4;

/// The state of a connection, which its task and the tasks of its streams share.
struct Link {
    space: Rc<Workspace>,
    quic: quinn::Connection,
    /// The facts of this connection that its requests are judged by, with the address that its handshake has proved.
    peer: Rc<PeerFacts>,
    /// Streams of requests that are open, at most [`STREAMS_MAX`].
    open: RefCell<Vec<u64>>,
    /// The number of the stream behind the last one that a request was taken from.
    next_request: Cell<u64>,
    /// Wakes the task of the connection when such a stream has ended.
    stream_ended: Notify,
    meters: RefCell<Meters>,
    /// The order in which its streams write.
    turns: Rc<Turns>,
    /// Bytes that the client has acknowledged.
    acknowledged: Acknowledged,
    /// Answers that were given up. Room in QUIC that others have of these is no sign of a client that takes something.
    given_up: Cell<u64>,
    /// Urgencies that PRIORITY_UPDATE has set, by stream, and that its stream has not taken up yet: of streams that are open, and of as
    /// many as may still be opened.
    urgencies: RefCell<HashMap<u64, u8>>,
    /// Bytes of the largest field section that the client takes (RFC 9114 section 4.2.2).
    section_bytes_max: Cell<u64>,
    /// Buffers for a head as HTTP/1.1 writes it, and for the fields of a request.
    text: RefCell<Vec<u8>>,
    fields: RefCell<FieldList>,
    /// The connection ends, for a reason that was told.
    has_ended: Cell<bool>,
}

impl Link {
    fn env(&self) -> &Rc<Env> {
        &self.space.env
    }

    /// Whether the client's last packets came from another IP address than its handshake. QUIC takes the address of any packet for the
    /// client's before the client has proved that it is there (RFC 9000 section 9.3), so no request is judged by it.
    fn is_elsewhere(&self) -> bool {
        self.quic.remote_address().ip() != self.peer.address.ip()
    }

    /// Counts the end of this connection because its client has moved.
    fn note_move(&self) {
        let (client, from) = (self.peer.address, self.quic.remote_address());
        self.env().tally.http3_moves.add(1);
        tracing::info!(%client, %from, "a request over HTTP/3 came from another address than the handshake, so its connection ends");
    }

    /// Takes no request of this stream: the client may send it again elsewhere (RFC 9114 section 4.1.1).
    fn reject(&self, mut send: SendStream, mut receive: RecvStream) {
        self.note(Flood::Control);
        let _ = send.reset(number(ErrorCode::RequestRejected));
        let _ = receive.stop(number(ErrorCode::RequestRejected));
    }

    /// Counts an event that costs the server more than the client; one too many ends the connection.
    fn note(&self, kind: Flood) {
        if !self.meters.borrow_mut().is_flooded_by(kind) || self.has_ended.get() {
            return;
        }
        let tally = &self.env().tally;
        let counted = match kind {
            Flood::RapidReset => &tally.http3_rapid_resets,
            Flood::MadeReset => &tally.http3_made_resets,
            Flood::Control => &tally.http3_control_floods,
            Flood::SmallData => &tally.http3_small_data_floods,
        };
        counted.add(1);
        let client = self.peer.address;
        tracing::info!(%client, limit = kind.as_str(), "a connection of HTTP/3 is ended at a limit");
        self.end(ErrorCode::ExcessiveLoad, kind.as_str(), Some(kind.as_str()));
    }

    /// An answer is given up, and what QUIC held of it.
    fn gives_up(&self) {
        self.given_up.set(self.given_up.get() + 1);
    }

    /// Ends what a fault of the client ends: the connection, or a stream that the caller resets.
    fn fault(&self, fault: H3Fault) {
        let client = self.peer.address;
        tracing::debug!(%client, %fault, "a fault of a client of HTTP/3");
        match fault.scope {
            Scope::Connection => self.end(fault.code, fault.detail, Some("http3-fault")),
            Scope::Stream => self.note(Flood::MadeReset),
        }
    }

    /// Closes the connection, once. With a word it has a line in the log, and counts among the faults.
    fn end(&self, code: ErrorCode, detail: &str, word: Option<&'static str>) {
        if self.has_ended.replace(true) {
            return;
        }
        self.quic.close(number(code), detail.as_bytes());
        if let Some(word) = word {
            self.env().tally.faults.add(1);
            self.env().finish_unanswered(&self.peer.listener, self.peer.address, word);
        }
    }

    /// The number of streams of requests that are open.
    fn streams(&self) -> usize {
        self.open.borrow().len()
    }

    /// Keeps the urgency of a stream until that takes it up. Nothing is kept of one that is over; one that the client can't open yet is a
    /// fault (RFC 9218 section 7.2). It may have [`STREAMS_MAX`] more than are over, and no more are over than were taken.
    fn prioritise(&self, stream: u64, urgency: u8) -> Result<(), H3Fault> {
        let next = self.next_request.get();
        if stream >= next.saturating_add(STREAM_STEP * u64::from(STREAMS_MAX)) {
            return Err(H3Fault::connection(ErrorCode::Id, "the priority of a stream beyond the limit"));
        }
        if stream >= next || self.open.borrow().contains(&stream) {
            self.urgencies.borrow_mut().insert(stream, urgency);
        }
        Ok(())
    }

    /// A stream with a request is open.
    fn begins(&self, stream: u64) {
        self.open.borrow_mut().push(stream);
        self.next_request.set(stream.saturating_add(STREAM_STEP));
    }

    /// The stream is over.
    fn ends(&self, stream: u64) {
        let mut open = self.open.borrow_mut();
        if let Some(at) = open.iter().position(|other| *other == stream) {
            open.swap_remove(at);
        }
        let mut urgencies = self.urgencies.borrow_mut();
        if !urgencies.is_empty() {
            urgencies.remove(&stream);
        }
        self.stream_ended.notify_one();
    }
}

/// A code as QUIC carries it.
fn number(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.number()).unwrap_or_default()
}

/// The number of a stream, as frames carry it.
fn stream_number(id: quinn::StreamId) -> u64 {
    VarInt::from(id).into_inner()
}
