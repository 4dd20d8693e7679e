//! One question to a service on one connection, and the reply: both go on side by side, for a service may answer before it has
//! all of the question.

use super::Trouble;
use super::connections::Connection;
use super::sending::Sending;
use crate::body_pieces;
use crate::request_body::Piece;
use crate::upstream::{UpstreamFault, UpstreamFaultKind};
use bytes::{Buf, Bytes, BytesMut};
use larder_wire::body::Decoder;
use larder_wire::framing::Framing;
use larder_wire::icap::{self, Reply};
use larder_wire::parse::{HeadLimits, Parsed};
use larder_wire::{Fields, Side};
use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::ReadHalf;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// A reply is read in steps of so many bytes.
const READ_BYTES: usize = 64 * 1024;

/// Pieces of a reply that may wait for the one who takes them. No more is read from the service while the queue is full.
const PIECES_MAX: usize = 4;

/// Times and limits of a reply.
#[derive(Clone, Copy)]
pub(super) struct ReplyLimits {
    pub(super) heads: HeadLimits,
    /// From the end of the question to the head of the reply.
    pub(super) answer_max: Duration,
    /// Without a byte in the middle of a reply.
    pub(super) silence_max: Duration,
}

/// A question that is under way, and its reply as far as it is here.
pub(super) struct Talk {
    connection: Connection,
    sending: Sending,
    buffer: BytesMut,
    limits: ReplyLimits,
    /// The service has begun to reply.
    has_bytes: bool,
    keeps_alive: bool,
}

impl Talk {
    pub(super) fn begin(connection: Connection, sending: Sending, limits: ReplyLimits) -> Talk {
        let buffer = BytesMut::new();
        Talk { connection, sending, buffer, limits, has_bytes: false, keeps_alive: true }
    }

    /// Whether the trouble is that of a connection which the service closed between two questions.
    pub(super) fn is_stale(&self) -> bool {
        self.connection.is_reused && !self.has_bytes && self.sending.is_intact()
    }

    /// Sends and reads until the head of the final reply is here; `100` makes the question go on. Cancel-safe.
    pub(super) async fn reply(&mut self) -> Result<Reply, Trouble> {
        loop {
            let reply = self.next_head().await?;
            let says_close = |member: &[u8]| member.eq_ignore_ascii_case(b"close");
            self.keeps_alive &= !reply.fields.members("Connection").any(says_close);
            match reply.status {
                100 if self.sending.is_paused() => self.sending.go_on(),
                100 => return Err(Trouble::Malformed("it says 100 where nothing was held back")),
                _ => return Ok(reply),
            }
        }
    }

    async fn next_head(&mut self) -> Result<Reply, Trouble> {
        loop {
            if let Some(reply) = self.parsed()? {
                return Ok(reply);
            }
            let (mut from, mut to) = self.connection.wire.split();
            let late_at = self.sending.since().map(|since| since + self.limits.answer_max);
            tokio::select! {
                biased;
                read = read(&mut from, &mut self.buffer) => match read? {
                    true => self.has_bytes = true,
                    false => return Err(Trouble::Broken("the connection ended before the reply")),
                },
                sent = self.sending.send(&mut to), if self.sending.is_active() => match sent {
                    // The reply may be on its way all the same: a service that has seen enough need not read on.
                    Err(Trouble::Broken(_)) => self.sending.give_up(),
                    sent => sent?,
                },
                () = until(late_at) => return Err(Trouble::Late),
            }
        }
    }

    fn parsed(&mut self) -> Result<Option<Reply>, Trouble> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        match icap::reply(&self.buffer, &self.limits.heads) {
            Ok(Parsed::Complete { head, len }) => {
                self.buffer.advance(len);
                Ok(Some(head))
            }
            Ok(Parsed::Partial) => Ok(None),
            Err(fault) => Err(Trouble::Malformed(fault.detail)),
        }
    }

    /// The body of the message as it was, where it is still here; the connection is closed.
    pub(super) fn into_body(self) -> Option<Box<super::Body>> {
        self.sending.into_body()
    }

    /// Ends a question whose reply has no body; gives the body of the message as it was, where it is still here.
    pub(super) fn end(self) -> Option<Box<super::Body>> {
        let is_settled = self.sending.is_settled() && self.keeps_alive && self.buffer.is_empty();
        if is_settled {
            self.connection.release();
        }
        self.sending.into_body()
    }

    /// Carries the body of the reply to whoever takes it, in a task of its own. The rest of the question is sent meanwhile.
    pub(super) fn carry(mut self, declared: Option<u64>) -> Carried {
        self.sending.forget();
        let (pieces, taken) = mpsc::channel(PIECES_MAX);
        let fault = Rc::new(OnceCell::new());
        let carried = Carried { pieces: taken, fault: Rc::clone(&fault) };
        tokio::task::spawn_local(async move {
            let closed = pieces.clone();
            tokio::select! {
                biased;
                // Nobody wants the rest.
                () = closed.closed() => {}
                ended = self.carry_to(&pieces, declared) => match ended {
                    Ok(()) => {
                        if self.sending.is_settled() && self.keeps_alive && self.buffer.is_empty() {
                            self.connection.release();
                        }
                    }
                    Err(trouble) => _ = fault.set(trouble.into_fault(&self.connection.name())),
                },
            }
        });
        carried
    }

    async fn carry_to(&mut self, pieces: &mpsc::Sender<Piece>, declared: Option<u64>) -> Result<(), Trouble> {
        let mut decoder = Decoder::new(Framing::Chunked, Side::Origin);
        let (mut end, mut bytes) = (None, 0_u64);
        let mut waiting: Option<Bytes> = None;
        let mut heard_at = Instant::now();
        loop {
            if waiting.is_none() {
                waiting = body_pieces::next(&mut decoder, &mut self.buffer, &mut end)
                    .map_err(|fault| Trouble::Malformed(fault.detail))?;
                bytes += waiting.as_ref().map_or(0, |piece| piece.len() as u64);
                if declared.is_some_and(|declared| bytes > declared) {
                    return Err(Trouble::Malformed("the body is longer than its Content-Length"));
                }
            }
            if waiting.is_none()
                && let Some(trailers) = end
            {
                return match declared {
                    Some(declared) if declared != bytes => {
                        Err(Trouble::Malformed("the body is shorter than its Content-Length"))
                    }
                    _ => self.deliver_end(pieces, trailers).await,
                };
            }
            let (mut from, mut to) = self.connection.wire.split();
            let late_at = heard_at + self.limits.silence_max;
            let has_piece = waiting.is_some();
            tokio::select! {
                biased;
                place = pieces.reserve(), if has_piece => {
                    let (Ok(place), Some(piece)) = (place, waiting.take()) else {
                        return Err(Trouble::Broken("nobody takes the reply any longer"));
                    };
                    place.send(Piece::Data(piece));
                    heard_at = Instant::now();
                }
                read = read(&mut from, &mut self.buffer), if !has_piece => match read? {
                    true => heard_at = Instant::now(),
                    false => return Err(Trouble::Broken("the connection ended in the middle of the reply")),
                },
                // A service whose reply is not taken may take no more of the question: its silence then is no fault of its own.
                sent = self.sending.send(&mut to), if self.sending.is_active() && !has_piece => match sent {
                    Err(Trouble::Broken(_)) => self.sending.give_up(),
                    sent => sent?,
                },
                () = sleep_until(late_at), if !has_piece => {
                    // The service may wait for more of the message, and so for its sender.
                    if !self.sending.waits_for_body() {
                        return Err(Trouble::Silent("it brought no byte in the middle of its reply"));
                    }
                    heard_at = Instant::now();
                }
            }
        }
    }

    async fn deliver_end(&mut self, pieces: &mpsc::Sender<Piece>, trailers: Fields) -> Result<(), Trouble> {
        // The receiver may have left, which is no trouble.
        let _ = pieces.send(Piece::End(trailers)).await;
        Ok(())
    }
}

/// The body of a reply on its way to whoever takes it.
pub struct Carried {
    /// Its pieces. A sender that is dropped before the end has left a fault.
    pub pieces: mpsc::Receiver<Piece>,
    /// Why it broke off.
    pub fault: Rc<OnceCell<UpstreamFault>>,
}

/// Reads what is here; false at the end of the connection. Cancel-safe.
async fn read(from: &mut ReadHalf<'_>, buffer: &mut BytesMut) -> Result<bool, Trouble> {
    buffer.reserve(READ_BYTES);
    match from.read_buf(buffer).await {
        Ok(bytes) => Ok(bytes > 0),
        Err(_) => Err(Trouble::Broken("the connection broke")),
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Trouble {
    /// The trouble as a fetch has it.
    pub(super) fn into_fault(self, service: &str) -> UpstreamFault {
        match self {
            Trouble::Source(fault) => fault,
            trouble => UpstreamFault::new(UpstreamFaultKind::Icap, format!("icap service {service}: {trouble}")),
        }
    }
}
