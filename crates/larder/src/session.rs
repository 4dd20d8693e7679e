//! One client connection: bytes in, requests out; answers in, bytes out.

use crate::control;
use crate::heads::Request;
use crate::listen::{Door, Guest};
use crate::lobby::Place;
use crate::outbox::Outbox;
use crate::partial_heads::{Crowded, HeadUnderWay};
use crate::socket::{OtherSide, Socket};
use crate::ticker::{Over, Timer, Wait};
use crate::wire::Wire;
use crate::worker::Worker;
use bytes::{Buf, Bytes, BytesMut};
use larder_wire::body::{Decoder, Event};
use larder_wire::framing::Framing;
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{Fault, FaultKind, Fields, Host, RequestHead, Scheme, Side};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};

/// A client's connection and what is known of it.
pub struct Session {
    /// The worker on which it lives and dies.
    pub worker: Rc<Worker>,
    /// The listener it came through.
    pub door: Arc<Door>,
    /// The client's address.
    pub peer: SocketAddr,
    /// What URLs of origin-form requests begin with.
    pub scheme: Scheme,
    /// The host and port of the CONNECT inside which this connection was opened.
    pub inside: Option<(Host, u16)>,
    /// What waits to be written.
    pub outbox: Outbox,
    /// It counts as an open connection for as long as this lives.
    pub guest: Option<Guest>,
    /// Its place in the lobby, for as long as it may wait there.
    pub place: Option<Place>,
    /// The current request's body, as far as it has not been read.
    pub upload: Option<Decoder>,
    timer: Timer,
    wire: Wire,
    inbox: BytesMut,
    scan: HeadScan,
    served: u64,
    uploaded: u64,
    /// For how long the client was silent within this request's body.
    silent_millis: u32,
    /// For how long it took nothing of its answers, less what it has earned since.
    stalled_millis: u32,
    /// Requests of which the worker's list of clients does not know.
    unnoted: u8,
    flushes: u8,
    unsent_is_limited: bool,
    /// An answer lies in a buffer of which there are few: it is the next one's as soon as this is written.
    pub hurries: bool,
    /// The head of the final answer to the current request, or some of it, is in the outbox or went out: another answer
    /// would be taken for its rest. Set before a head is written, by whoever writes one.
    pub answer_began: bool,
    /// The client said that its last request is the last one.
    last_said: bool,
    /// When the first bytes of the head that is being read came.
    head_began: Option<Instant>,
}

/// Why no further request comes.
#[derive(Debug)]
pub enum End {
    /// The client is done, or was silent for too long between requests, or we go down.
    Quiet,
    /// The connection broke.
    Broken,
    /// The client ended the connection in the middle of a head.
    Unfinished,
    /// A request was begun and not finished in time.
    Late,
    /// It waits for the next one in the lobby.
    Sits,
    /// Heads under way hold too much for so long a one.
    Crowded,
    /// What came is no request.
    Fault(Fault),
}

/// A part of a request's body.
#[derive(Debug)]
pub enum Piece {
    /// Some bytes of it.
    Data(Bytes),
    /// Its end, with the trailer fields.
    End(Fields),
}

/// Bytes that may wait to be written before a connection stops collecting pipelined answers; most of them are the store's.
const OUTBOX_BYTES_MAX: usize = 256 * 1024;

/// The part of these that are bytes of the connection's own: heads and small bodies, some 40 answers. A client that
/// pipelines and reads nothing pins so much memory.
const OUTBOX_OWN_BYTES_MAX: usize = 32 * 1024;

/// What is read at once where a head is expected. What a client pipelines beyond it waits in the kernel.
pub const HEAD_READ_BYTES_MAX: usize = 16 * 1024;

/// Room for most heads.
const INBOX_BYTES: usize = 1024;

/// A larger buffer is not worth keeping.
const LENT_BYTES_MAX: usize = 64 * 1024;

/// So many small ones are kept: as many connections are answered before the first of them is written to.
const LENT_MAX: usize = 32;

/// What a small one has at most.
const LENT_SMALL_BYTES_MAX: usize = 4 * 1024;

/// After so many requests a connection that stays open is noted in between.
const NOTED_REQUESTS: u8 = 32;

impl Session {
    /// A connection on which nothing was read yet but `inbox`. Boxed: a task that hands it on would have a place for it
    /// in each of its states.
    pub fn new(worker: Rc<Worker>, door: Arc<Door>, peer: SocketAddr, wire: Wire, inbox: BytesMut) -> Box<Session> {
        let scheme = if matches!(wire, Wire::TlsServer(_)) { Scheme::Https } else { Scheme::Http };
        Box::new(Session {
            timer: worker.ticker.timer(),
            worker,
            door,
            peer,
            scheme,
            inside: None,
            outbox: Outbox::default(),
            guest: None,
            place: None,
            upload: None,
            wire,
            inbox,
            scan: HeadScan::new(),
            served: 0,
            uploaded: 0,
            silent_millis: 0,
            stalled_millis: 0,
            unnoted: 0,
            flushes: 0,
            unsent_is_limited: false,
            hurries: false,
            answer_began: false,
            last_said: false,
            head_began: None,
        })
    }

    /// The next request. What is in the outbox is written first, unless the next request is here already:
    /// pipelined requests are answered in one write.
    pub async fn next_request(&mut self) -> Result<Request, End> {
        let mut head_under_way = HeadUnderWay::default();
        loop {
            if !self.inbox.is_empty() {
                let (worker, peer) = (&self.worker, self.peer);
                let read =
                    worker.heads.read(peer, |before| self.scan.request_after(before, &self.inbox, &worker.head_limits));
                match read {
                    Err(fault) => match control::translated(&self.inbox) {
                        Some(asked) => {
                            self.inbox = BytesMut::from(&asked[..]);
                            self.scan = HeadScan::new();
                            continue;
                        }
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
                        let held = head_under_way.holds(&self.worker, self.inbox.capacity());
                        held.map_err(|Crowded| End::Crowded)?;
                    }
                }
            }
            self.flush().await.map_err(|_| End::Broken)?;
            if self.may_sit() {
                return Err(End::Sits);
            }
            self.stay_outside();
            self.read_head_bytes().await?;
        }
    }

    fn begin_request(&mut self, head: &RequestHead) {
        self.served += 1;
        self.unnoted += 1;
        if self.unnoted >= NOTED_REQUESTS {
            self.note();
        }
        self.uploaded = 0;
        self.answer_began = false;
        (self.silent_millis, self.stalled_millis) = (0, 0);
        self.last_said = !head.keeps_alive();
        self.head_began = None;
    }

    /// The next request of what was read just now, while nothing else waits to be read. What is no request, or none yet,
    /// is left to [`Session::next_request`].
    pub fn request_of(&mut self, heard: &mut &[u8]) -> Option<Request> {
        let (worker, scan) = (&self.worker, &mut self.scan);
        match worker.heads.read(self.peer, |before| scan.request_after(before, heard, &worker.head_limits)) {
            Ok(Parsed::Complete { head, len }) => {
                *heard = &heard[len..];
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

    /// The lobby hears no more of a socket that is waited for elsewhere.
    fn stay_outside(&mut self) {
        if self.wire.free().is_none() {
            self.give_up_place();
        }
    }

    /// Some of a request's head was read, and no more.
    pub fn is_in_head(&self) -> bool {
        !self.inbox.is_empty() && self.upload.is_none()
    }

    /// It does not wait in the lobby any more.
    pub fn give_up_place(&mut self) {
        if let (Some(place), Wire::Client(socket)) = (self.place.take(), &self.wire) {
            place.give_up(socket);
        }
    }

    /// What was read and not used up.
    pub fn keep(&mut self, heard: &[u8]) {
        if !heard.is_empty() {
            self.inbox.extend_from_slice(heard);
        }
    }

    /// Nothing is under way, and the socket can be waited for without a task.
    fn may_sit(&mut self) -> bool {
        self.place.is_some()
            && self.inbox.is_empty()
            && self.outbox.is_empty()
            && self.upload.is_none()
            && !self.is_draining()
            && self.wire.free().is_some()
    }

    /// Holds nothing more than it must while it waits.
    pub fn rest(&mut self) {
        self.hurries = false;
        self.lend_buffers();
        if let Some(socket) = self.wire.free() {
            socket.refresh();
        }
    }

    /// The socket, if it can be used without a wait.
    pub fn free(&mut self) -> Option<&mut Socket> {
        self.wire.free()
    }

    /// Reads what is here.
    pub fn read_now(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self.wire.free() {
            Some(socket) => socket.read_now(room),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes what waits to be written, as far as that needs no wait; says whether that was all.
    pub fn flush_now(&mut self) -> io::Result<bool> {
        if self.outbox.is_empty() {
            return Ok(true);
        }
        self.send_at_once();
        match self.wire.free() {
            Some(socket) => self.outbox.write_now(socket),
            None => Ok(false),
        }
    }

    /// It is closed now, without a farewell: nothing waits to be read or written, or nobody is there.
    pub fn leave(mut self: Box<Self>) {
        self.note();
        self.lend_buffers();
        drop(self.place.take());
    }

    /// The client announced its last request, and all of it was read.
    pub fn is_over(&self) -> bool {
        self.last_said && self.inbox.is_empty() && self.upload.is_none()
    }

    /// For how long a client may be silent before its next request.
    pub fn silence_max(&self) -> Duration {
        let timeouts = &self.worker.config().timeouts;
        if self.served > 0 { timeouts.idle } else { timeouts.head }
    }

    /// Tells the worker's list of clients what came since it was told last.
    fn note(&mut self) {
        self.worker.visitors.requests(self.peer.ip(), std::mem::take(&mut self.unnoted).into());
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
            let timeouts = &self.worker.config().timeouts;
            (timeouts.head, timeouts.idle)
        };
        let waits_for_next = self.inbox.is_empty() && self.served > 0;
        let (limit, wait) = match (waits_for_next, self.inbox.is_empty()) {
            (true, _) => (idle, Wait::Idle),
            (false, true) => (head, Wait::Idle),
            // For the head as a whole: a client that sends a byte now and then gains nothing.
            (false, false) => {
                let began = *self.head_began.get_or_insert_with(Instant::now);
                (head.saturating_sub(began.elapsed()), Wait::Busy)
            }
        };
        if self.inbox.is_empty() {
            self.lend_buffers();
        }
        let read = self
            .timer
            .limit(limit, wait, read_some(&self.worker, &mut self.wire, &mut self.inbox, HEAD_READ_BYTES_MAX))
            .await;
        match read {
            Ok(Ok(0)) if self.inbox.is_empty() => Err(End::Quiet),
            Ok(Ok(0)) => Err(End::Unfinished),
            Ok(Ok(_)) => {
                self.borrow_outbox();
                Ok(())
            }
            Ok(Err(_)) => Err(if self.inbox.is_empty() { End::Quiet } else { End::Broken }),
            Err(Over::Late) if !self.inbox.is_empty() => Err(End::Late),
            Err(_) => Err(End::Quiet),
        }
    }

    /// A connection that waits holds no buffers: the worker has them for whoever reads next, which spares most requests
    /// to ask the allocator for new ones.
    pub fn lend_buffers(&mut self) {
        if !(self.inbox.is_empty() && self.outbox.is_empty()) {
            return;
        }
        lend(&mut self.inbox, &self.worker.inbox, BytesMut::capacity);
        lend(&mut self.outbox, &self.worker.outbox, Outbox::room_bytes);
    }

    /// Takes a buffer for an answer that is about to be written.
    pub fn borrow_outbox(&mut self) {
        if self.outbox.is_unused()
            && let Some(outbox) = self.worker.outbox.borrow_mut().pop()
        {
            self.outbox = outbox;
        }
    }

    /// Begins to read a request's body.
    pub fn begin_upload(&mut self, framing: Framing) {
        self.upload = (framing != Framing::None).then(|| Decoder::new(framing, Side::Client));
    }

    /// The next part of the request's body. Cancel-safe: what was read stays in the inbox.
    pub async fn upload_piece(&mut self) -> Result<Piece, End> {
        loop {
            let Some(decoder) = &mut self.upload else { return Ok(Piece::End(Fields::new())) };
            let step = decoder.decode(&self.inbox).map_err(End::Fault)?;
            match step.event {
                Event::Data(range) => {
                    let mut taken = self.inbox.split_to(step.consumed);
                    taken.truncate(range.end);
                    taken.advance(range.start);
                    self.uploaded += taken.len() as u64;
                    let max = self.worker.config().limits.body_bytes_max;
                    if max.is_some_and(|max| self.uploaded > max) {
                        return Err(End::Fault(Fault::client(
                            FaultKind::BodyTooLong,
                            "the body is longer than permitted",
                        )));
                    }
                    return Ok(Piece::Data(taken.freeze()));
                }
                Event::End(trailers) => {
                    self.inbox.advance(step.consumed);
                    self.upload = None;
                    return Ok(Piece::End(trailers));
                }
                Event::NeedMore => self.inbox.advance(step.consumed),
            }
            let limit = self.silence_left();
            // What a dropped call waited counts too.
            let waiting = Silence { began: Instant::now(), millis: &mut self.silent_millis };
            let read = read_some(&self.worker, &mut self.wire, &mut self.inbox, usize::MAX);
            let read = self.timer.limit(limit, Wait::Busy, read).await;
            drop(waiting);
            match read {
                Ok(Ok(0)) | Ok(Err(_)) => return Err(End::Broken),
                Ok(Ok(_)) => {}
                Err(_) => return Err(End::Late),
            }
        }
    }

    /// For how long a client may be silent now within its request's body: each pause has a limit, and all pauses together
    /// have one that grows with what was sent.
    fn silence_left(&self) -> Duration {
        let config = self.worker.config();
        let earned = time_for(self.uploaded, config.limits.upload_bytes_per_second_min);
        let silent = Duration::from_millis(self.silent_millis.into());
        config.timeouts.upload_silence.saturating_add(earned).saturating_sub(silent).min(config.timeouts.body)
    }

    /// For how long a client may take nothing of its answer now.
    fn stall_left(&self) -> Duration {
        let timeouts = &self.worker.config().timeouts;
        let stalled = Duration::from_millis(self.stalled_millis.into());
        timeouts.download_stall.saturating_sub(stalled).min(timeouts.write)
    }

    /// A write took so long, and then so many bytes went.
    fn note_stall(&mut self, waited: Duration, written: usize) {
        if self.stalled_millis == 0 && waited.is_zero() {
            return;
        }
        let earned = time_for(written as u64, self.worker.config().limits.download_bytes_per_second_min);
        let stalled = Duration::from_millis(self.stalled_millis.into()) + waited;
        self.stalled_millis = millis(stalled.saturating_sub(earned));
    }

    /// What the client did with its side of the connection.
    pub fn other_side(&self) -> OtherSide {
        match &self.wire {
            Wire::Client(socket) => socket.other_side(),
            Wire::TlsServer(stream) => stream.get_ref().0.socket().other_side(),
            Wire::Tcp(_) | Wire::Unix(_) | Wire::TlsClient(_) => OtherSide::Open,
        }
    }

    /// The request's body, if it has one, was read to its end.
    pub fn upload_is_over(&mut self) -> bool {
        if self.upload.as_ref().is_some_and(Decoder::is_done) {
            self.upload = None;
        }
        self.upload.is_none()
    }

    /// Reads away what is left of a request's body, if that is little; false when the connection must
    /// be closed instead.
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

    /// Writes all that waits to be written.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.flush_counting().await.map(drop)
    }

    /// The same; says how many writes it took. A client that reads as fast as we write needs one.
    pub async fn flush_counting(&mut self) -> io::Result<usize> {
        if self.outbox.is_empty() {
            return Ok(0);
        }
        self.send_at_once();
        let mut writes = 0;
        while !self.outbox.is_empty() {
            let (limit, began) = (self.stall_left(), self.worker.ticker.wait_begins());
            let write = self.outbox.write_some(&mut self.wire);
            let written = self.timer.limit(limit, Wait::Busy, write).await;
            match written {
                Ok(written) => self.note_stall(self.worker.ticker.since(began), written?),
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            }
            writes += 1;
        }
        self.flush_tls().await.map(|()| writes)
    }

    /// A long answer begins: from here on the kernel takes only so much of it beyond what is on its way to the client.
    pub fn limit_unsent(&mut self) {
        if !std::mem::replace(&mut self.unsent_is_limited, true) {
            let bytes_max = self.worker.config().limits.unsent_bytes_max;
            match &self.wire {
                Wire::Client(socket) => socket.limit_unsent(bytes_max),
                Wire::TlsServer(stream) => stream.get_ref().0.socket().limit_unsent(bytes_max),
                Wire::Tcp(_) | Wire::Unix(_) | Wire::TlsClient(_) => {}
            }
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
                let limit = self.worker.config().timeouts.write;
                let flush = self.timer.limit(limit, Wait::Busy, stream.flush()).await;
                flush.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            }
            _ => Ok(()),
        }
    }

    /// Enough has come together.
    pub fn is_full(&self) -> bool {
        self.outbox.len() >= OUTBOX_BYTES_MAX || self.outbox.own_bytes() >= OUTBOX_OWN_BYTES_MAX
    }

    /// Writes when enough has come together.
    pub async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.is_full() {
            self.flush().await?;
            // A client that pipelines without end must not hold up the others of its worker.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// What was written is not whole and nothing in it says so: the connection ends by a reset in place of an orderly close,
    /// which would mean that it is.
    pub fn end_by_reset(&self) {
        match &self.wire {
            Wire::Client(socket) => socket.end_by_reset(),
            Wire::TlsServer(stream) => stream.get_ref().0.socket().end_by_reset(),
            Wire::Tcp(_) | Wire::Unix(_) | Wire::TlsClient(_) => {}
        }
    }

    /// Whether the server is going down, so that this connection should not be kept.
    pub fn is_draining(&self) -> bool {
        self.worker.ticker.is_draining()
    }

    /// Writes what is left and closes. Unless the client announced its last request and all of it was read, what
    /// it still sends is read away for a moment, so that a reset does not overtake the answer (RFC 9112 section 9.6).
    pub async fn close(mut self: Box<Self>) {
        const LINGER: std::time::Duration = std::time::Duration::from_millis(500);
        const LINGER_BYTES_MAX: usize = 512 * 1024;
        self.note();
        let quiet = self.is_over();
        if self.flush().await.is_err() || (quiet && self.wire.tls_is_off()) {
            return self.lend_buffers();
        }
        // Nothing of what was read is needed any more, and a client that lingers must not pin it.
        self.inbox = BytesMut::new();
        let lingering = async {
            if self.wire.shutdown().await.is_err() {
                return;
            }
            let mut read = 0;
            while let Ok(bytes @ 1..) =
                read_some(&self.worker, &mut self.wire, &mut self.inbox, HEAD_READ_BYTES_MAX).await
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

    /// The bare stream and what was read from it: what follows is no HTTP.
    pub fn into_parts(mut self: Box<Self>) -> (Wire, BytesMut) {
        self.note();
        self.give_up_place();
        (self.wire, self.inbox)
    }
}

/// Adds what a wait for a client's body took to its silence, also when the wait is given up.
struct Silence<'a> {
    began: Instant,
    millis: &'a mut u32,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        *self.millis = self.millis.saturating_add(millis(self.began.elapsed()));
    }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The time that so many bytes may take at this rate; no end of it where there is no rate.
fn time_for(bytes: u64, per_second: u64) -> Duration {
    bytes.saturating_mul(1000).checked_div(per_second).map_or(Duration::MAX, Duration::from_millis)
}

/// Puts a buffer where the next one is taken from, unless it is too large to be kept.
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

/// Reads what is there into the worker's own buffer and from there to the inbox, so that a connection that
/// waits holds no buffer. Cancel-safe.
async fn read_some(worker: &Worker, wire: &mut Wire, inbox: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut scratch = worker.scratch.borrow_mut();
        let room = scratch.len().min(bytes_max);
        let mut buf = ReadBuf::new(&mut scratch[..room]);
        std::task::ready!(Pin::new(&mut *wire).poll_read(cx, &mut buf))?;
        if inbox.capacity() == 0 {
            *inbox = worker.inbox.borrow_mut().pop().unwrap_or_default();
            inbox.reserve(INBOX_BYTES.max(buf.filled().len()));
        }
        inbox.extend_from_slice(buf.filled());
        std::task::Poll::Ready(Ok(buf.filled().len()))
    })
    .await
}
