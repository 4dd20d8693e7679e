//! A stream: the transport of one exchange.

use super::Link;
use super::state::{Flushed, StreamGone};
use super::tunnel::Tunnel;
use super::websocket;
use crate::env::{Env, PeerFacts};
use crate::exchange::stream::{AnswerBody, AnswerHead, BodyEnd, ClientStream, count_upload};
use crate::multiplexed::{QUEUED_BYTES_MAX, render};
use crate::pauses::Pauses;
use crate::request_body::Piece;
use crate::socket::OtherSide;
use crate::ticker::{Timer, Wait};
use crate::wire::Wire;
use bytes::Bytes;
use larder_cache::cache::Tier;
use larder_wire::h2::ErrorCode;
use larder_wire::h2::hpack::write_field;
use larder_wire::{Fields, Host, ResponseHead};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// A stream of a connection, which the exchange holds.
pub struct Stream {
    link: Rc<Link>,
    number: u32,
    /// The timer of its waits; most answers need none.
    timer: Option<Timer>,
    answer_began: bool,
    /// The request has no body: bytes that come belong to the tunnel that it asks for.
    has_no_body: bool,
    /// The key that was sent to the origin of a WebSocket, by which it proves that it speaks that protocol.
    websocket_key: Option<String>,
    uploaded: u64,
    pauses: Pauses,
}

impl Stream {
    /// The stream of this number.
    pub fn new(link: &Rc<Link>, number: u32) -> Stream {
        Stream {
            timer: None,
            link: Rc::clone(link),
            number,
            answer_began: false,
            has_no_body: false,
            websocket_key: None,
            uploaded: 0,
            pauses: Pauses::default(),
        }
    }

    /// The stream of a request for a tunnel; the origin of a WebSocket is sent this key.
    pub fn of_tunnel(self, websocket_key: Option<String>) -> Stream {
        Stream { has_no_body: true, websocket_key, ..self }
    }

    /// The stream as one of bytes: its answer has begun, and is a tunnel.
    pub fn into_wire(self) -> Wire {
        Wire::Stream(Box::new(Tunnel::on(&self.link, self.number)))
    }

    /// Waits until the client has taken the answer, and ends the stream.
    pub async fn finish(mut self) {
        let flushed = self.flush().await;
        let mut state = self.link.state.borrow_mut();
        state.disown(self.number);
        if flushed.is_ok() && state.is_answered(self.number) {
            state.finish(self.number);
        } else if state.has(self.number) {
            state.reset(self.number, ErrorCode::Internal);
        }
        drop(state);
        self.link.wake();
    }

    /// Ends the stream at once; its exchange goes on to its end.
    fn reset(&mut self, code: ErrorCode) {
        let mut state = self.link.state.borrow_mut();
        if state.has(self.number) {
            state.disown(self.number);
            state.reset(self.number, code);
        }
        drop(state);
        self.link.wake();
    }

    /// Waits for the next part of the request's body, within the limits of a slow client.
    async fn part(&mut self) -> Result<Piece, BodyEnd> {
        let config = self.link.space.env.config();
        let limit = self.pauses.silence_left(&config, self.uploaded);
        let (link, number) = (Rc::clone(&self.link), self.number);
        let timer = self.timer.get_or_insert_with(|| self.link.space.env.ticker.timer());
        let waiting = self.pauses.silence();
        let part = poll_fn(|cx| {
            let part = link.state.borrow_mut().poll_body(number, usize::MAX, cx);
            // A window may have been opened.
            if part.is_ready() {
                link.wake();
            }
            part
        });
        let part = timer.limit(limit, Wait::Busy, part).await;
        drop(waiting);
        match part {
            Ok(Ok(part)) => Ok(part),
            Ok(Err(StreamGone)) if self.link.state.borrow().is_malformed(self.number) => {
                Err(BodyEnd::Malformed("http2-malformed"))
            }
            Ok(Err(StreamGone)) => Err(BodyEnd::Broken),
            Err(_) => Err(BodyEnd::Late),
        }
    }
}

impl ClientStream for Stream {
    fn env(&self) -> &Rc<Env> {
        &self.link.space.env
    }

    fn peer(&self) -> &PeerFacts {
        &self.link.peer
    }

    fn begin_answer(&mut self, head: &AnswerHead<'_>) {
        self.answer_began = true;
        if self.websocket_key.is_some() && (200..300).contains(&head.status) {
            // The client would take it for the WebSocket that the origin has not opened.
            return self.reset(ErrorCode::Connect);
        }
        let bytes = match head.body {
            AnswerBody::None(_) => Some(0),
            AnswerBody::Known(bytes) => Some(bytes),
            AnswerBody::Unknown => None,
        };
        let mut state = self.link.state.borrow_mut();
        if state.has(self.number) {
            let mut text = std::mem::take(&mut state.text);
            let (answered_by, alt_svc) = (&self.link.space.answered_by, self.link.peer.alt_svc());
            state.write_block(self.number, bytes == Some(0), |out| {
                render::answer_head(out, write_field, head, &mut text, answered_by, alt_svc);
            });
            state.text = text;
            state.expect_body(self.number, bytes);
        }
        drop(state);
        self.link.wake();
    }

    fn answer_has_begun(&self) -> bool {
        self.answer_began
    }

    fn refused(&self) -> Option<(u16, &'static str)> {
        None
    }

    fn interim(&mut self, head: &ResponseHead) {
        let mut state = self.link.state.borrow_mut();
        if state.has(self.number) && !self.answer_began {
            state.write_block(self.number, false, |out| render::interim_head(out, write_field, head));
        }
        drop(state);
        self.link.wake();
    }

    fn opens_tunnel(&self, host: &Host) -> bool {
        self.link.space.intercepts(&self.link.peer, host)
    }

    fn open_tunnel(&mut self) {
        self.answer_began = true;
        let mut state = self.link.state.borrow_mut();
        if state.has(self.number) {
            state.write_block(self.number, false, |out| render::status(out, write_field, 200));
            state.expect_body(self.number, None);
        }
        drop(state);
        self.link.wake();
    }

    fn may_pass_on(&self, head: &ResponseHead) -> bool {
        let Some(key) = &self.websocket_key else { return true };
        match head.status {
            101 => websocket::accepts(head, key),
            status => !(200..300).contains(&status),
        }
    }

    fn switch_protocols(&mut self, head: &mut ResponseHead) -> u16 {
        self.answer_began = true;
        websocket::to_http2(head);
        let mut state = self.link.state.borrow_mut();
        if state.has(self.number) {
            state.write_block(self.number, false, |out| render::interim_head(out, write_field, head));
            state.expect_body(self.number, None);
        }
        drop(state);
        self.link.wake();
        head.status
    }

    fn send(&mut self, pieces: std::vec::Drain<'_, Bytes>) {
        let mut state = self.link.state.borrow_mut();
        pieces.for_each(|piece| state.queue(self.number, piece));
        drop(state);
        self.link.wake();
    }

    fn send_part(&mut self, piece: &Bytes, part: Range<usize>) {
        self.link.state.borrow_mut().queue(self.number, piece.slice(part));
        self.link.wake();
    }

    fn send_copied(&mut self, bytes: &[u8]) {
        self.link.state.borrow_mut().queue(self.number, Bytes::copy_from_slice(bytes));
        self.link.wake();
    }

    fn end_answer(&mut self, trailers: Option<Fields>) {
        self.link.state.borrow_mut().end_body(self.number, trailers.unwrap_or_default());
        self.link.wake();
    }

    fn break_off(&mut self) {
        self.reset(ErrorCode::Internal);
    }

    fn expect_long_body(&mut self, _: Tier) {
        // The socket of the connection is limited from its beginning.
    }

    fn unwritten_bytes(&self) -> usize {
        self.link.state.borrow().queued_bytes(self.number)
    }

    /// Waits until all bytes are in frames that the connection writes next. A client that gives the stream no room for longer than
    /// `timeouts.write` at once, or `timeouts.download_stall` in all, loses it.
    async fn flush(&mut self) -> io::Result<usize> {
        let mut waits = 1;
        let mut before = self.unwritten_bytes();
        loop {
            let env = Rc::clone(&self.link.space.env);
            let limit = self.pauses.stall_left(&env.config());
            let began = env.ticker.wait_begins();
            let framed_before = self.link.state.borrow().framed_bytes;
            let flushed = poll_fn(|cx| {
                let flushed = self.link.state.borrow_mut().poll_flushed(self.number, before, cx);
                if flushed.is_pending() {
                    self.link.wake();
                }
                flushed
            });
            let timer = self.timer.get_or_insert_with(|| env.ticker.timer());
            match timer.limit(limit, Wait::Busy, flushed).await {
                Ok(Ok(Flushed::Whole)) => {
                    self.pauses.note_stall(&env.config(), env.ticker.since(began), before);
                    return Ok(waits);
                }
                Ok(Ok(Flushed::Some(bytes))) => {
                    self.pauses.note_stall(&env.config(), env.ticker.since(began), bytes);
                    (waits, before) = (2, before.saturating_sub(bytes));
                }
                Ok(Err(StreamGone)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(_) => {
                    let state = self.link.state.borrow();
                    // Others may have had their turns meanwhile, which is no fault of the client's.
                    let is_late = state.is_held_by_client(self.number) || state.framed_bytes == framed_before;
                    drop(state);
                    if is_late {
                        self.reset(ErrorCode::Cancel);
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
            }
        }
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        // The rest of an answer is sent when its exchange is over: `Stream::finish` waits for that.
        if self.unwritten_bytes() >= QUEUED_BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    fn flush_soon(&mut self) {}

    fn lend_buffers(&mut self) {}

    fn borrow_buffer(&mut self) {}

    async fn next_body_piece(&mut self) -> Result<Piece, BodyEnd> {
        let piece = self.part().await?;
        if let Piece::Data(bytes) = &piece {
            count_upload(&self.link.space.env, &mut self.uploaded, bytes.len())?;
        }
        Ok(piece)
    }

    fn body_is_over(&mut self) -> bool {
        self.has_no_body || self.link.state.borrow().body_is_over(self.number)
    }

    fn other_side(&self) -> OtherSide {
        match self.link.state.borrow().has(self.number) {
            true => OtherSide::Open,
            false => OtherSide::Closed,
        }
    }
}
