//! The incoming half of a connection: heads, then the body piece by piece. Reads only when asked to, so a slow
//! reader slows the origin down.

use super::super::fault::{Retry, UpstreamFault, UpstreamFaultKind};
use super::super::wait_limit::WaitLimit;
use super::link::Link;
use crate::body_pieces;
use bytes::{Buf, Bytes, BytesMut};
use larder_wire::body::Decoder;
use larder_wire::framing::{self, Framing};
use larder_wire::parse::{HeadScan, Parsed};
use larder_wire::{Fields, Method, ResponseHead, Side};
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Room for a head and the body of most answers: what is here comes in one read.
const HEAD_READ_BYTES: usize = 20 * 1024;
/// Room for a piece of a body.
const BODY_READ_BYTES: usize = 64 * 1024;
/// With less room than this left in the buffer, a new one is taken.
const ROOM_BYTES_MIN: usize = 16 * 1024;
/// Bytes that came in and were not given out yet, and how far the response is.
#[derive(Default)]
pub(super) struct Inbound {
    buffer: BytesMut,
    scan: HeadScan,
    state: State,
    framing: Option<Framing>,
    trailers: Option<Fields>,
    interim_heads: u32,
    head_since: Option<Instant>,
    /// A head said, or showed, that the connection is for one answer only.
    spent: bool,
    origin_keeps: Option<Duration>,
}

#[derive(Default)]
enum State {
    /// No final head yet.
    #[default]
    Head,
    Body(Decoder),
    /// The answer was read to its end.
    Done,
    /// The bytes that follow are no HTTP (101, or 2xx to CONNECT).
    Switched,
    Failed(UpstreamFault),
}

impl Inbound {
    pub fn framing(&self) -> Framing {
        self.framing.unwrap_or(Framing::None)
    }

    pub fn take_trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    pub fn origin_keeps(&self) -> Option<Duration> {
        self.origin_keeps
    }

    pub fn into_unread(self) -> BytesMut {
        self.buffer
    }

    /// Whether bytes follow the end of the response that belong to no response: what the next request would get would be
    /// anybody's guess.
    pub fn is_desynchronised(&self) -> bool {
        self.is_over() && !self.buffer.is_empty()
    }

    /// Whether the response was read to its end.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The connection is for no other request.
    pub fn is_for_this_alone(&mut self) {
        self.spent = true;
    }

    pub fn may_serve_again(&self) -> bool {
        self.is_over() && !self.spent && self.buffer.is_empty()
    }

    fn is_final(&self) -> bool {
        matches!(self.state, State::Body(_) | State::Done | State::Switched)
    }

    /// A head, when one is complete.
    fn head(&mut self, link: &Link, asked: &Method) -> Result<Option<ResponseHead>, UpstreamFault> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let parsed = self.scan.response(&self.buffer, &link.settings().head_limits).map_err(UpstreamFault::wire)?;
        let Parsed::Complete { head, len } = parsed else { return Ok(None) };
        self.buffer.advance(len);
        self.head_since = None;
        let framing = framing::of_response(&head, asked);
        self.spent |= !framing::reusable_after(&head, asked, &framing);
        match head.is_interim() {
            true => self.interim(link)?,
            false => self.begin(&head, asked, framing.map_err(UpstreamFault::wire)?),
        }
        Ok(Some(head))
    }

    /// A head of which something is here began when that was seen first.
    fn head_began(&mut self) {
        if !self.buffer.is_empty() {
            self.head_since.get_or_insert_with(Instant::now);
        }
    }

    fn interim(&mut self, link: &Link) -> Result<(), UpstreamFault> {
        link.waits_from(Instant::now());
        self.interim_heads += 1;
        let max = link.settings().interim_heads_max;
        if self.interim_heads <= max {
            return Ok(());
        }
        let detail = format!("more than {max} interim heads and no answer");
        Err(UpstreamFault::new(UpstreamFaultKind::TooManyInterim, detail))
    }

    fn begin(&mut self, head: &ResponseHead, asked: &Method, framing: Framing) {
        self.framing = Some(framing);
        self.origin_keeps = keep_alive_timeout(&head.fields);
        let decoder = Decoder::new(framing, Side::Origin);
        self.state = if framing::begins_tunnel(head, asked) {
            State::Switched
        } else if decoder.is_done() {
            State::Done
        } else {
            State::Body(decoder)
        };
    }

    /// The next piece that lies in the buffer already.
    fn piece(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        let State::Body(decoder) = &mut self.state else { return Ok(None) };
        let mut end = None;
        let piece = body_pieces::next(decoder, &mut self.buffer, &mut end).map_err(UpstreamFault::wire)?;
        // With its last piece a body of known length is over, without another look.
        if end.is_some() || decoder.is_done() {
            self.state = State::Done;
        }
        self.trailers = end.filter(|trailers| !trailers.is_empty());
        Ok(piece)
    }

    /// How much room the next read wants beyond what is filled: for the rest of the body, or for a large piece of it.
    fn room(&self) -> usize {
        let left = match &self.state {
            State::Body(decoder) => decoder.remaining(),
            _ => return HEAD_READ_BYTES,
        };
        let wanted =
            left.map_or(BODY_READ_BYTES, |left| usize::try_from(left).unwrap_or(usize::MAX).min(BODY_READ_BYTES));
        if self.buffer.capacity() - self.buffer.len() < wanted.min(ROOM_BYTES_MIN) { wanted } else { 0 }
    }
}

/// The incoming half of a [`Connection`](super::connection::Connection). All its futures may be dropped at any time without
/// losing a byte.
pub(in crate::upstream) struct Receiver<'a> {
    link: &'a Link,
    inbound: &'a mut Inbound,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(link: &'a Link, inbound: &'a mut Inbound) -> Receiver<'a> {
        Receiver { link, inbound }
    }

    /// The next head, interim ones too: while [`ResponseHead::is_interim`] holds, call again. `asked` is the
    /// method of the request, which decides whether a body follows. Not to be called after the final head.
    pub async fn response(&mut self, asked: &Method) -> Result<ResponseHead, UpstreamFault> {
        assert!(!self.inbound.is_final(), "a lease is for one answer");
        loop {
            self.check()?;
            match self.inbound.head(self.link, asked) {
                Ok(Some(head)) => return Ok(head),
                Ok(None) => self.inbound.head_began(),
                Err(fault) => return Err(self.fail(fault)),
            }
            if let Err(fault) = self.read_head().await {
                return Err(self.fail(fault));
            }
        }
    }

    /// The next piece of the body; `None` at its end. A piece shares its memory with others of the same read.
    pub async fn body(&mut self) -> Result<Option<Bytes>, UpstreamFault> {
        loop {
            self.check()?;
            match self.inbound.piece() {
                Ok(Some(piece)) => return Ok(Some(piece)),
                Ok(None) if !matches!(self.inbound.state, State::Body(_)) => return Ok(None),
                Ok(None) => {}
                Err(fault) => return Err(self.fail(fault)),
            }
            if let Err(fault) = self.read_body().await {
                return Err(self.fail(fault));
            }
        }
    }

    async fn read_head(&mut self) -> Result<(), UpstreamFault> {
        loop {
            let (limit, moves) = self.head_limit();
            let room = self.inbound.room();
            let reading = self.link.read(&mut self.inbound.buffer, room, BODY_READ_BYTES);
            let read = match head_wait_limit(self.link).limit(limit, reading).await {
                Ok(read) => read,
                Err(_) if moves => continue,
                Err(_) => return Err(self.head_timeout()),
            };
            return match read {
                Ok(0) => Err(self.head_cut_off(&io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {
                    self.link.answered.set(true);
                    Ok(())
                }
                Err(error) => Err(self.head_cut_off(&error)),
            };
        }
    }

    /// A head must begin in time, unless the origin may still wait for the request, and then come to its end. Whether
    /// the end of that time may move while it is waited for comes with it.
    fn head_limit(&self) -> (Duration, bool) {
        let settings = self.link.settings();
        match self.inbound.head_since {
            Some(since) => (settings.idle_timeout.saturating_sub(since.elapsed()), false),
            None if self.link.sending.get() => (self.link.first_byte_time(), true),
            None => (self.link.first_byte_in(), false),
        }
    }

    fn head_timeout(&self) -> UpstreamFault {
        let idle_timeout = self.link.settings().idle_timeout;
        match self.inbound.head_since {
            Some(_) => UpstreamFault::new(
                UpstreamFaultKind::IdleTimeout,
                format!("the answer's head was not complete {} s after its first byte", idle_timeout.as_secs_f64()),
            ),
            None => UpstreamFault::new(
                UpstreamFaultKind::FirstByteTimeout,
                format!("no answer began within {} s", self.link.first_byte_time().as_secs_f64()),
            ),
        }
    }

    fn head_cut_off(&self, error: &io::Error) -> UpstreamFault {
        let ended = error.kind() == io::ErrorKind::UnexpectedEof;
        if !self.link.answered.get() {
            let fault = match ended {
                true => {
                    UpstreamFault::new(UpstreamFaultKind::Reset, "the origin closed the connection without an answer")
                }
                false => UpstreamFault::reset(error, "waiting for the answer"),
            };
            return UpstreamFault { retry: self.link.retry_after(error), ..fault };
        }
        match ended {
            true => UpstreamFault::new(
                UpstreamFaultKind::Truncated,
                "the origin closed the connection before its answer's head was complete",
            ),
            false => UpstreamFault::reset(error, "the answer's head was read"),
        }
    }

    async fn read_body(&mut self) -> Result<(), UpstreamFault> {
        let idle = self.link.settings().idle_timeout;
        let room = self.inbound.room();
        let reading = self.link.read(&mut self.inbound.buffer, room, BODY_READ_BYTES);
        match self.link.wait_limit.limit(idle, reading).await {
            Ok(Ok(0)) => self.body_closed(),
            Ok(Ok(_)) => Ok(()),
            // TLS that ends without its own farewell: somebody may have cut the rest off (RFC 9112 section 9.8).
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(UpstreamFault::new(UpstreamFaultKind::Truncated, format!("the answer broke off: {error}")))
            }
            Ok(Err(error)) => Err(UpstreamFault::reset(&error, "the answer's body was read")),
            Err(_) => Err(UpstreamFault::new(
                UpstreamFaultKind::IdleTimeout,
                format!("no byte of the answer's body came for {} s", idle.as_secs_f64()),
            )),
        }
    }

    fn body_closed(&mut self) -> Result<(), UpstreamFault> {
        let State::Body(decoder) = &mut self.inbound.state else { return Ok(()) };
        let end = decoder.finish();
        let truncated = |fault: larder_wire::Fault| UpstreamFault::new(UpstreamFaultKind::Truncated, fault.to_string());
        end.map_err(truncated)?;
        self.inbound.state = State::Done;
        Ok(())
    }

    /// After a fault the connection gives nothing but that fault.
    fn check(&self) -> Result<(), UpstreamFault> {
        match &self.inbound.state {
            State::Failed(fault) => Err(UpstreamFault { retry: Retry::No, ..fault.clone() }),
            _ => Ok(()),
        }
    }

    fn fail(&mut self, fault: UpstreamFault) -> UpstreamFault {
        self.inbound.state = State::Failed(fault.clone());
        self.inbound.buffer = BytesMut::new();
        fault
    }
}

/// The time of a request in a process is measured exactly: for as long as it hangs, it holds a place that others wait for.
fn head_wait_limit(link: &Link) -> &WaitLimit {
    if link.is_of_process() { &WaitLimit::Exact } else { &link.wait_limit }
}

/// `Keep-Alive: timeout=5`: how long the origin says it waits for another request. Most close then, so the
/// last second is not counted on.
fn keep_alive_timeout(fields: &Fields) -> Option<Duration> {
    let of = |member: &[u8]| -> Option<u64> {
        let (name, value) = std::str::from_utf8(member).ok()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())?
    };
    let seconds = fields.members("Keep-Alive").find_map(of)?;
    Some(Duration::from_secs(seconds.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origins_own_time_is_read() {
        let table = [
            ("timeout=5, max=100", Some(4)),
            ("max=100,Timeout = 60", Some(59)),
            ("timeout=0", Some(0)),
            ("timeout=x", None),
            ("max=3", None),
        ];
        for (value, seconds) in table {
            let mut fields = Fields::new();
            fields.push("Keep-Alive", value);
            assert_eq!(keep_alive_timeout(&fields), seconds.map(Duration::from_secs), "{value}");
        }
    }
}
