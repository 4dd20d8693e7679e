//! One client connection: bytes in, requests out; answers in, bytes out.

use super::head_cache::Request;
use super::render::{self, Framed, Next};
use super::slot::Slot;
use super::{TunnelReply, Workspace};
use crate::body_pieces;
use crate::clock;
use crate::env::{Env, PeerFacts};
use crate::exchange::stream::{AnswerBody, AnswerHead, BodyEnd, ClientStream, count_upload};
use crate::manager;
use crate::outbox::Outbox;
use crate::partial_heads::{Crowded, HeadUnderWay};
use crate::pauses::Pauses;
use crate::permit::ConnectionPermit;
use crate::request_body::Piece;
use crate::socket::OtherSide;
use crate::ticker::{Timer, Wait, WaitEnd};
use crate::wire::Wire;
use bytes::{Buf, Bytes, BytesMut};
use larder_cache::cache::Tier;
use larder_wire::body::Decoder;
use larder_wire::framing::Framing;
use larder_wire::h2::PREFACE;
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{Fault, Fields, Host, RequestHead, ResponseHead, Side, Version, encode};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::num::NonZeroU16;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

/// A connection of HTTP/1.1, or of HTTP/1.0.
pub struct Connection {
    /// The state that all connections of the worker share.
    pub space: Rc<Workspace>,
    /// The facts of this connection that its requests are judged by.
    pub peer: PeerFacts,
    /// Bytes that wait to be written.
    pub outbox: Outbox,
    /// The connection counts as open for as long as this lives.
    pub permit: Option<ConnectionPermit>,
    /// Its slot among the idle connections, for as long as it may be parked there.
    pub slot: Option<Slot<Box<Connection>>>,
    /// The current request's body, as far as it has not been read.
    pub upload: Option<Decoder>,
    /// The trailer fields of that body, once it was read to its end.
    trailers: Option<Box<Fields>>,
    timer: Timer,
    wire: Wire,
    inbox: BytesMut,
    scan: HeadScan,
    has_served: bool,
    uploaded: u64,
    pauses: Pauses,
    /// Requests that the worker's list of clients was not told of yet.
    unnoted: u8,
    flushes: u8,
    /// The limit of unsent bytes that the socket has; 0 is none.
    unsent_bytes_max: u32,
    /// The outbox holds one of the few disk buffers, so it is written before the next connection is served.
    pub flush_now: bool,
    /// Some of the final answer to the current request is in the outbox or went out.
    pub answer_began: bool,
    /// The client announced that the current request is its last one.
    is_last_request: bool,
    /// The version of the current request.
    version: Version,
    /// How the body of the current answer is framed.
    framed: Framed,
    /// How the connection goes on after the current answer.
    next: Next,
    /// The status that a client's tunnel has got so far, which did not ask for it by HTTP. Until it is open nothing else goes out: such a
    /// client could read no page.
    tunnel_status: Option<NonZeroU16>,
    /// When the first bytes of the head that is being read came.
    head_began: Option<Instant>,
}

/// The allocator has a size of 512 bytes, and an idle connection takes one.
const _: () = assert!(size_of::<Connection>() <= 512);

/// Why no further request comes.
#[derive(Debug)]
pub enum End {
    /// The client is done, or was silent for too long between requests, or the server stops.
    Quiet,
    /// The connection broke.
    Broken,
    /// The client ended the connection in the middle of a head.
    Unfinished,
    /// A request was begun and not finished in time.
    Late,
    /// Nothing is under way: the connection can be parked until its next request.
    Idle,
    /// The client speaks HTTP/2.
    Http2,
    /// The heads that are not whole yet take as much memory as they may.
    Crowded,
    /// The bytes are no request.
    Fault(Fault),
}

/// Bytes that may wait to be written before a connection stops collecting pipelined answers; most of them are the store's.
const OUTBOX_BYTES_MAX: usize = 256 * 1024;

/// The limit of those bytes that are the connection's own: heads and small bodies, some 40 answers. A client that pipelines
/// and reads nothing can pin this much memory.
const OUTBOX_OWN_BYTES_MAX: usize = 32 * 1024;

/// The most that one read takes where a head is expected. Bytes that a client pipelines beyond it wait in the kernel.
pub const HEAD_READ_BYTES_MAX: usize = 16 * 1024;

/// The first size of an inbox: room for most heads.
const INBOX_BYTES: usize = 1024;

/// The largest buffer that a worker keeps for the next connection, while it keeps no other.
const LENT_BYTES_MAX: usize = 64 * 1024;

/// The number of small buffers that a worker keeps: as many connections as a batch answers before it writes.
const LENT_MAX: usize = 32;

/// The largest buffer that counts as small.
const LENT_SMALL_BYTES_MAX: usize = 4 * 1024;

/// After so many requests of one connection the worker's list of clients is told of them.
const NOTED_REQUESTS: u8 = 32;

impl Connection {
    /// A connection on which `inbox` was read already. It is boxed, because a future that passes it on by value would reserve
    /// room for it in each of its states.
    pub fn new(space: Rc<Workspace>, peer: PeerFacts, wire: Wire, inbox: BytesMut) -> Box<Connection> {
        Box::new(Connection {
            timer: space.env.ticker.timer(),
            space,
            peer,
            outbox: Outbox::default(),
            permit: None,
            slot: None,
            upload: None,
            trailers: None,
            wire,
            inbox,
            scan: HeadScan::new(),
            has_served: false,
            uploaded: 0,
            pauses: Pauses::default(),
            unnoted: 0,
            flushes: 0,
            unsent_bytes_max: 0,
            flush_now: false,
            answer_began: false,
            is_last_request: false,
            version: Version::Http11,
            framed: Framed::NoBody,
            next: Next::Close,
            tunnel_status: None,
            head_began: None,
        })
    }

    /// Has nothing go out before the client is told of its tunnel.
    pub fn asks_for_tunnel(&mut self) {
        self.tunnel_status = Some(NonZeroU16::MIN);
    }

    /// The replies for a client that still waits for a tunnel, and the status that a CONNECT would have got.
    pub fn takes_tunnel_reply(&mut self) -> Option<(TunnelReply, u16)> {
        self.tunnel_status.take().map(|status| (TunnelReply::of(&self.peer.listener), status.get()))
    }

    /// The next request. The outbox is written first, unless that request is here already: pipelined requests are answered in
    /// one write.
    pub async fn next_request(&mut self) -> Result<Request, End> {
        let mut head_under_way = HeadUnderWay::default();
        loop {
            if !self.inbox.is_empty() {
                let (space, peer) = (&self.space, self.peer.address);
                let read =
                    space.heads.read(peer, |before| self.scan.request_after(before, &self.inbox, &space.head_limits));
                match read {
                    Err(fault) => match manager::translated(&self.inbox) {
                        Some(asked) => {
                            self.inbox = BytesMut::from(&asked[..]);
                            self.scan = HeadScan::new();
                            continue;
                        }
                        None if self.begins_http2() => return Err(End::Http2),
                        None => return Err(End::Fault(fault)),
                    },
                    Ok(Parsed::Complete { head, len }) => {
                        match len == self.inbox.len() {
                            // An inbox that is cleared has all its room again.
                            true => self.inbox.clear(),
                            false => self.inbox.advance(len),
                        }
                        self.begin_request(&head);
                        return Ok(head);
                    }
                    Ok(Parsed::Partial) => {
                        let held = head_under_way.holds(&self.space.heads_under_way, self.inbox.capacity());
                        held.map_err(|Crowded| End::Crowded)?;
                    }
                }
            }
            self.flush().await.map_err(|_| End::Broken)?;
            if self.may_be_parked() {
                return Err(End::Idle);
            }
            self.leave_idle_poll();
            self.read_head_bytes().await?;
        }
    }

    /// Whether the bytes that are no request begin the preface of HTTP/2 (RFC 9113 section 3.3). The first line of it is here.
    fn begins_http2(&self) -> bool {
        let many = self.inbox.len().min(PREFACE.len());
        !self.has_served
            && self.peer.listener.in_force().http2
            && self.wire.tls_is_off()
            && self.inbox[..many] == PREFACE[..many]
    }

    fn begin_request(&mut self, head: &RequestHead) {
        self.has_served = true;
        self.unnoted += 1;
        if self.unnoted >= NOTED_REQUESTS {
            self.note();
        }
        self.uploaded = 0;
        self.answer_began = false;
        (self.version, self.framed, self.next) = (head.version, Framed::NoBody, Next::Close);
        self.pauses = Pauses::default();
        self.is_last_request = !head.keeps_alive();
        self.head_began = None;
    }

    /// Takes the next request out of bytes that were just read, while the inbox is empty. Bytes that are no request, or no whole
    /// one yet, are left to [`Connection::next_request`].
    pub fn request_of(&mut self, bytes: &mut &[u8]) -> Option<Request> {
        let (space, scan) = (&self.space, &mut self.scan);
        match space.heads.read(self.peer.address, |before| scan.request_after(before, bytes, &space.head_limits)) {
            Ok(Parsed::Complete { head, len }) => {
                *bytes = &bytes[len..];
                self.begin_request(&head);
                Some(head)
            }
            Ok(Parsed::Partial) => None,
            Err(_) => {
                self.scan = HeadScan::new();
                None
            }
        }
    }

    /// Whether the poll of the idle connections reports the socket; registers it there unless the runtime's poll has it.
    pub fn join_idle_poll(&mut self) -> bool {
        let Some(slot) = &mut self.slot else { return false };
        slot.is_registered() || self.wire.free().is_some_and(|socket| slot.register(socket))
    }

    /// Gives up the slot of a connection whose socket is registered in the runtime's poll: it can't be parked any more.
    fn leave_idle_poll(&mut self) {
        if self.wire.free().is_none() {
            self.give_up_slot();
        }
    }

    /// Whether a part of a request's head was read.
    pub fn is_in_head(&self) -> bool {
        !self.inbox.is_empty() && self.upload.is_none()
    }

    /// Frees the connection's slot: it will not be parked any more.
    pub fn give_up_slot(&mut self) {
        if let (Some(slot), Wire::Client(socket)) = (self.slot.take(), &self.wire) {
            slot.give_up(socket);
        }
    }

    /// Whether bytes of it were read before, or its socket had to wait.
    pub fn was_read_from(&mut self) -> bool {
        !self.inbox.is_empty() || self.wire.free().is_none()
    }

    /// Puts bytes that were read and not used into the inbox.
    pub fn keep_unused(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.inbox.extend_from_slice(bytes);
        }
    }

    /// Whether nothing is under way and the socket is not registered in the runtime's poll.
    fn may_be_parked(&mut self) -> bool {
        self.slot.is_some()
            && self.inbox.is_empty()
            && self.outbox.is_empty()
            && self.upload.is_none()
            && !self.is_draining()
            && self.wire.free().is_some()
    }

    /// Gives back the buffers that an idle connection does not need.
    pub fn park(&mut self) {
        self.flush_now = false;
        self.give_back_buffers();
        if let Some(socket) = self.wire.free() {
            socket.refresh();
        }
    }

    /// Reads without a wait.
    pub fn read_now(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.wire.free() {
            Some(socket) => socket.read_now(room),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes as much of the outbox as needs no wait; true when that was all.
    pub fn write_now(&mut self) -> io::Result<bool> {
        if self.outbox.is_empty() {
            return Ok(true);
        }
        self.send_at_once();
        match self.wire.free() {
            Some(socket) => self.outbox.write_now(socket),
            None => Ok(false),
        }
    }

    /// Closes the connection at once, without writing the outbox or lingering.
    pub fn drop_now(mut self: Box<Self>) {
        self.note();
        self.give_back_buffers();
        drop(self.slot.take());
    }

    /// Whether the client announced its last request and all of it was read.
    pub fn is_over(&self) -> bool {
        self.is_last_request && self.inbox.is_empty() && self.upload.is_none()
    }

    /// For how long a client may be silent before its next request.
    pub fn silence_max(&self) -> Duration {
        let timeouts = &self.space.env.config().timeouts;
        if self.has_served { timeouts.idle } else { timeouts.head }
    }

    /// Tells the worker's list of clients of the requests since the last call.
    fn note(&mut self) {
        self.space.connections.visitors.requests(self.peer.address.ip(), std::mem::take(&mut self.unnoted).into());
    }

    async fn read_head_bytes(&mut self) -> Result<(), End> {
        let read = self.read_head_bytes_in_time().await;
        if read.is_err() {
            self.note();
        }
        read
    }

    async fn read_head_bytes_in_time(&mut self) -> Result<(), End> {
        let (head, idle) = {
            let timeouts = &self.space.env.config().timeouts;
            (timeouts.head, timeouts.idle)
        };
        let waits_for_next = self.inbox.is_empty() && self.has_served;
        let (limit, wait) = match (waits_for_next, self.inbox.is_empty()) {
            (true, _) => (idle, Wait::Idle),
            (false, true) => (head, Wait::Idle),
            // For the head as a whole: a client that sends a byte now and then gains nothing.
            (false, false) => {
                let began = *self.head_began.get_or_insert_with(clock::instant);
                (head.saturating_sub(clock::instant().saturating_duration_since(began)), Wait::Busy)
            }
        };
        if self.inbox.is_empty() {
            self.give_back_buffers();
        }
        let read = self
            .timer
            .limit(limit, wait, read_some(&self.space, &mut self.wire, &mut self.inbox, HEAD_READ_BYTES_MAX))
            .await;
        match read {
            Ok(Ok(0)) if self.inbox.is_empty() => Err(End::Quiet),
            Ok(Ok(0)) => Err(End::Unfinished),
            Ok(Ok(_)) => {
                self.borrow_outbox();
                Ok(())
            }
            Ok(Err(_)) => Err(if self.inbox.is_empty() { End::Quiet } else { End::Broken }),
            Err(WaitEnd::Late) if !self.inbox.is_empty() => Err(End::Late),
            Err(_) => Err(End::Quiet),
        }
    }

    /// Gives empty buffers back to the worker, for the next connection that reads or answers: most requests then need no new
    /// ones from the allocator.
    pub fn give_back_buffers(&mut self) {
        if !(self.inbox.is_empty() && self.outbox.is_empty()) {
            return;
        }
        lend(&mut self.inbox, &self.space.inboxes, BytesMut::capacity);
        lend(&mut self.outbox, &self.space.outboxes, Outbox::room_bytes);
    }

    /// Takes a buffer for an answer that is about to be written.
    pub fn borrow_outbox(&mut self) {
        if self.outbox.is_unused()
            && let Some(outbox) = self.space.outboxes.borrow_mut().pop()
        {
            self.outbox = outbox;
        }
    }

    /// Begins to read a request's body.
    pub fn begin_upload(&mut self, framing: Framing) {
        self.trailers = None;
        self.upload = (framing != Framing::None).then(|| Decoder::new(framing, Side::Client));
    }

    /// The next part of the request's body. Cancel-safe: what was read stays in the inbox.
    async fn upload_piece(&mut self) -> Result<Piece, BodyEnd> {
        loop {
            let Some(decoder) = &mut self.upload else {
                return Ok(Piece::End(self.trailers.take().map(|trailers| *trailers).unwrap_or_default()));
            };
            let mut end = None;
            let piece = body_pieces::next(decoder, &mut self.inbox, &mut end).map_err(BodyEnd::Fault)?;
            if let Some(trailers) = end {
                self.upload = None;
                self.trailers = (!trailers.is_empty()).then(|| Box::new(trailers));
            }
            if let Some(piece) = piece {
                count_upload(&self.space.env, &mut self.uploaded, piece.len())?;
                return Ok(Piece::Data(piece));
            }
            if self.upload.is_none() {
                continue;
            }
            let limit = self.pauses.silence_left(&self.space.env.config(), self.uploaded);
            // `Silence` counts the wait of a call that is dropped too.
            let waiting = self.pauses.silence();
            let read = read_some(&self.space, &mut self.wire, &mut self.inbox, usize::MAX);
            let read = self.timer.limit(limit, Wait::Busy, read).await;
            drop(waiting);
            match read {
                Ok(Ok(0)) | Ok(Err(_)) => return Err(BodyEnd::Broken),
                Ok(Ok(_)) => {}
                Err(_) => return Err(BodyEnd::Late),
            }
        }
    }

    fn client_side(&self) -> OtherSide {
        self.wire.other_side()
    }

    /// Whether the request's body, if it has one, was read to its end.
    fn upload_is_over(&mut self) -> bool {
        if self.upload.as_ref().is_some_and(Decoder::is_done) {
            self.upload = None;
        }
        self.upload.is_none()
    }

    /// Reads and drops the rest of a request's body, if it is short; false when the connection must be closed instead.
    pub async fn drain_upload(&mut self) -> bool {
        const DRAIN_BYTES_MAX: u64 = 256 * 1024;
        let limit = self.uploaded + DRAIN_BYTES_MAX;
        while self.upload.is_some() {
            if self.uploaded > limit || self.upload_piece().await.is_err() {
                return false;
            }
        }
        true
    }

    /// Writes the whole outbox; gives the number of writes.
    async fn write_all(&mut self) -> io::Result<usize> {
        if self.outbox.is_empty() {
            return Ok(0);
        }
        if self.tunnel_status.is_some() {
            self.outbox = Outbox::default();
            return Ok(0);
        }
        self.send_at_once();
        let mut writes = 0;
        while !self.outbox.is_empty() {
            let limit = self.pauses.stall_left(&self.space.env.config());
            let began = self.space.env.ticker.wait_begins();
            let write = self.outbox.write_some(&mut self.wire);
            let written = self.timer.limit(limit, Wait::Busy, write).await;
            match written {
                Ok(written) => {
                    let waited = self.space.env.ticker.since(began);
                    self.pauses.note_stall(&self.space.env.config(), waited, written?);
                }
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
            writes += 1;
        }
        self.flush_tls().await.map(|()| writes)
    }

    /// From now on the kernel takes only so many bytes of an answer beyond those on their way to the client.
    fn limit_unsent(&mut self, bytes_max: u32) {
        if std::mem::replace(&mut self.unsent_bytes_max, bytes_max) != bytes_max {
            self.wire.limit_unsent(bytes_max);
        }
    }

    /// From the second write on, the kernel must not hold back a small one until the first is acknowledged; a
    /// connection that writes once is spared the call. TLS has made it for its handshake.
    fn send_at_once(&mut self) {
        self.flushes = self.flushes.saturating_add(1);
        if self.flushes == 2
            && let Wire::Client(socket) = &self.wire
        {
            socket.send_at_once();
        }
    }

    /// TLS keeps what it has encrypted until it is flushed; a socket keeps nothing.
    async fn flush_tls(&mut self) -> io::Result<()> {
        match &mut self.wire {
            Wire::TlsServer(stream) => {
                let limit = self.space.env.config().timeouts.write;
                let flush = self.timer.limit(limit, Wait::Busy, stream.flush()).await;
                flush.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the outbox holds as much as may be collected before a write.
    pub fn is_full(&self) -> bool {
        self.outbox.len() >= OUTBOX_BYTES_MAX || self.outbox.own_bytes() >= OUTBOX_OWN_BYTES_MAX
    }

    /// Makes the connection end by a reset: an orderly close would tell the client that the answer is whole.
    pub fn end_by_reset(&self) {
        self.wire.end_by_reset();
    }

    /// Whether the server is going down, so that this connection should not be kept.
    pub fn is_draining(&self) -> bool {
        self.space.env.ticker.is_draining()
    }

    /// Writes the outbox and closes. Unless the client announced its last request and all of it was read, bytes that it still
    /// sends are read and dropped for a moment, so that a reset does not overtake the answer (RFC 9112 section 9.6).
    pub async fn close(mut self: Box<Self>) {
        const LINGER: std::time::Duration = std::time::Duration::from_millis(500);
        const LINGER_BYTES_MAX: usize = 512 * 1024;
        self.note();
        let quiet = self.is_over();
        if self.flush().await.is_err() || (quiet && self.wire.tls_is_off()) {
            return self.give_back_buffers();
        }
        // The bytes in the inbox are not needed any more, and must not stay in memory while the connection lingers.
        self.inbox = BytesMut::new();
        let lingering = async {
            if self.wire.shutdown().await.is_err() {
                return;
            }
            let mut read = 0;
            while let Ok(bytes @ 1..) =
                read_some(&self.space, &mut self.wire, &mut self.inbox, HEAD_READ_BYTES_MAX).await
            {
                self.inbox = BytesMut::new();
                read += bytes;
                if read > LINGER_BYTES_MAX {
                    return;
                }
            }
        };
        let _ = self.timer.limit(LINGER, Wait::Busy, lingering).await;
    }

    /// The bare stream and the bytes that were read from it: no HTTP follows.
    pub fn into_parts(mut self: Box<Self>) -> (Wire, BytesMut) {
        self.note();
        self.give_up_slot();
        (self.wire, self.inbox)
    }

    /// Serves the connection by HTTP/2 to its end.
    pub fn speak_http2(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        let (space, peer) = (Rc::clone(&self.space), self.peer.clone());
        let (wire, inbox) = self.into_parts();
        (space.http2)(space, peer, wire, inbox)
    }

    /// How the connection goes on after the answer that was handed over.
    pub fn next(&self) -> Next {
        self.next
    }
}

impl ClientStream for Connection {
    fn env(&self) -> &Rc<Env> {
        &self.space.env
    }

    fn peer(&self) -> &PeerFacts {
        &self.peer
    }

    fn begin_answer(&mut self, head: &AnswerHead<'_>) {
        // An answer that comes before the request is over ends the connection: nobody knows whether the rest will come.
        let keep = !self.is_last_request && !head.is_last && !self.is_draining() && self.upload_is_over();
        self.framed = match head.body {
            AnswerBody::None(_) => Framed::NoBody,
            AnswerBody::Known(_) => Framed::ByLength,
            AnswerBody::Unknown if self.version == Version::Http11 => Framed::Chunked,
            AnswerBody::Unknown => Framed::UntilClose,
        };
        self.next = if keep && self.framed != Framed::UntilClose { Next::Continue } else { Next::Close };
        self.answer_began = true;
        self.tunnel_status = self.tunnel_status.and_then(|_| NonZeroU16::new(head.status));
        let alt_svc = self.peer.alt_svc();
        let frame = render::AnswerFrame { version: self.version, framed: self.framed, next: self.next, alt_svc };
        let space = &self.space;
        self.outbox.own(|out| render::answer_head(out, head, frame, &space.answered_by));
    }

    fn answer_has_begun(&self) -> bool {
        self.answer_began
    }

    fn refused(&self) -> Option<(u16, &'static str)> {
        None
    }

    fn interim(&mut self, head: &ResponseHead) {
        self.outbox.own(|out| encode::response_head(out, head));
    }

    fn opens_tunnel(&self, host: &Host) -> bool {
        self.space.intercepts(&self.peer, host)
    }

    fn open_tunnel(&mut self) {
        (self.answer_began, self.framed, self.next) = (true, Framed::UntilClose, Next::Close);
        if let Some((reply, _)) = self.takes_tunnel_reply() {
            self.outbox = Outbox::default();
            return self.outbox.own(|out| out.extend_from_slice(reply.opened));
        }
        self.outbox.own(|out| out.extend_from_slice(b"HTTP/1.1 200 Connection established\r\n\r\n"));
    }

    fn switch_protocols(&mut self, head: &mut ResponseHead) -> u16 {
        (self.answer_began, self.framed, self.next) = (true, Framed::UntilClose, Next::Close);
        head.fields.push("Connection", "upgrade");
        self.outbox.own(|out| encode::response_head(out, head));
        head.status
    }

    fn send(&mut self, pieces: std::vec::Drain<'_, Bytes>) {
        if self.framed != Framed::Chunked {
            return pieces.for_each(|piece| self.outbox.shared(piece));
        }
        let length = pieces.as_slice().iter().map(Bytes::len).sum();
        self.outbox.own(|own| encode::chunk_head(own, length));
        pieces.for_each(|piece| self.outbox.shared(piece));
        self.outbox.own(|own| own.extend_from_slice(encode::CHUNK_END));
    }

    #[inline]
    fn send_part(&mut self, piece: &Bytes, part: Range<usize>) {
        debug_assert!(self.framed != Framed::Chunked, "parts are of bodies whose length is known");
        self.outbox.part_of(piece, part);
    }

    fn send_copied(&mut self, bytes: &[u8]) {
        debug_assert!(self.framed != Framed::Chunked, "copied bytes are of bodies whose length is known");
        self.outbox.own(|own| own.extend_from_slice(bytes));
    }

    fn end_answer(&mut self, trailers: Option<Fields>) {
        if self.framed == Framed::Chunked {
            let trailers = trailers.unwrap_or_default();
            self.outbox.own(|own| encode::last_chunk(own, &trailers));
        }
    }

    fn break_off(&mut self) {
        self.next = Next::Cut;
        // With a length or chunks, the framing shows that the body is not whole.
        if self.framed == Framed::UntilClose {
            self.end_by_reset();
        }
    }

    fn expect_long_body(&mut self, tier: Tier) {
        let bytes_max = self.space.env.config().limits.unsent_bytes_max;
        // A write that is cut short costs a wake-up, and after it one more read of the disk; from memory a client is served best
        // in steps that stay in the cache of the processor (decision 026).
        self.limit_unsent(if tier == Tier::Disk { bytes_max } else { bytes_max / 2 });
    }

    fn unwritten_bytes(&self) -> usize {
        self.outbox.len()
    }

    async fn flush(&mut self) -> io::Result<usize> {
        self.write_all().await
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.is_full() {
            self.write_all().await?;
            // A client that pipelines without end must not hold up the others of its worker.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn flush_soon(&mut self) {
        self.flush_now = true;
    }

    fn lend_buffers(&mut self) {
        self.give_back_buffers();
    }

    fn borrow_buffer(&mut self) {
        self.borrow_outbox();
    }

    async fn next_body_piece(&mut self) -> Result<Piece, BodyEnd> {
        self.upload_piece().await
    }

    fn body_is_over(&mut self) -> bool {
        self.upload_is_over()
    }

    fn other_side(&self) -> OtherSide {
        self.client_side()
    }
}

/// Puts a buffer among those that the next connection takes, unless it is too large.
fn lend<T: Default>(buffer: &mut T, place: &RefCell<Vec<T>>, room_bytes: impl Fn(&T) -> usize) {
    let room = room_bytes(buffer);
    if room == 0 {
        return;
    }
    let buffer = std::mem::take(buffer);
    let mut lent = place.borrow_mut();
    let max = if lent.is_empty() { LENT_BYTES_MAX } else { LENT_SMALL_BYTES_MAX };
    if room <= max && lent.len() < LENT_MAX {
        lent.push(buffer);
    }
}

/// Reads into the worker's own buffer and copies from there to the inbox, so that a connection that waits holds no buffer.
/// Cancel-safe.
async fn read_some(space: &Workspace, wire: &mut Wire, inbox: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut scratch = space.scratch.borrow_mut();
        let room = scratch.len().min(bytes_max);
        let mut buf = ReadBuf::new(&mut scratch[..room]);
        std::task::ready!(Pin::new(&mut *wire).poll_read(cx, &mut buf))?;
        if inbox.capacity() == 0 {
            *inbox = space.inboxes.borrow_mut().pop().unwrap_or_default();
            inbox.reserve(INBOX_BYTES.max(buf.filled().len()));
        }
        inbox.extend_from_slice(buf.filled());
        std::task::Poll::Ready(Ok(buf.filled().len()))
    })
    .await
}
