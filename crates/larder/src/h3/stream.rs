//! A stream: the transport of one exchange.

use super::inbound::{Inbound, ReadEnd};
use super::meters::Flood;
use super::section::Section;
use super::turns::Place;
use super::{Link, number, stream_number};
use crate::env::{Env, PeerFacts};
use crate::exchange::stream::{AnswerBody, AnswerHead, BodyEnd, ClientStream, count_upload};
use crate::multiplexed::priority::{URGENCY_AT_FIRST, urgency};
use crate::multiplexed::{QUEUED_BYTES_MAX, render};
use crate::pauses::Pauses;
use crate::request_body::Piece;
use crate::socket::OtherSide;
use crate::ticker::{Timer, Wait};
use bytes::Bytes;
use larder_cache::cache::Tier;
use larder_wire::h3::{ErrorCode, Scope, frame};
use larder_wire::{Fields, Host, ResponseHead};
use quinn::{RecvStream, SendStream, WriteError, Written};
use std::future::{Future, pending, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};

/// A stream of a connection, which the exchange holds. Dropped before its answer is whole, it resets the stream: the client must not take
/// the end of what was sent for that of the answer.
pub struct Stream {
    link: Rc<Link>,
    send: SendStream,
    /// The client's side.
    pub inbound: Inbound,
    answer: Answer,
    /// Frames that wait to be handed over to QUIC.
    queue: Vec<Bytes>,
    queued_bytes: usize,
    /// When it may write.
    place: Place,
    /// The timer of its waits; most answers need none.
    timer: Option<Timer>,
    uploaded: u64,
    pauses: Pauses,
}

/// How far the answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It has not begun.
    Waited,
    /// Its head is written; of its body so many bytes are still to come, where that is known.
    Begun(Option<u64>),
    /// All of it is in the queue.
    Whole,
    /// The client takes no head as long as that of the answer: a small one is in the queue, and no body follows.
    Refused,
    /// The stream has its end: QUIC sends what is left, or it was reset.
    Ended,
}

impl Stream {
    /// The stream of a request whose bytes may come.
    pub fn new(link: &Rc<Link>, send: SendStream, receive: RecvStream) -> Stream {
        Stream {
            inbound: Inbound::new(link, receive),
            place: link.turns.place(URGENCY_AT_FIRST),
            link: Rc::clone(link),
            send,
            answer: Answer::Waited,
            queue: Vec::new(),
            queued_bytes: 0,
            timer: None,
            uploaded: 0,
            pauses: Pauses::default(),
        }
    }

    /// Sends the answer with the urgency of its request (RFC 9218), in which 0 goes first.
    pub fn prioritise(&mut self, priority: Option<&[u8]>) {
        if let Some(urgency) = priority.and_then(urgency) {
            self.have_urgency(urgency);
        }
        self.take_up_urgency();
    }

    fn have_urgency(&mut self, urgency: u8) {
        self.place.have_urgency(urgency);
        let _ = self.send.set_priority(i32::from(URGENCY_AT_FIRST) - i32::from(urgency));
    }

    /// Takes up what PRIORITY_UPDATE has said of the stream.
    fn take_up_urgency(&mut self) {
        let mut urgencies = self.link.urgencies.borrow_mut();
        if urgencies.is_empty() {
            return;
        }
        let urgency = urgencies.remove(&stream_number(self.send.id()));
        drop(urgencies);
        if let Some(urgency) = urgency {
            self.have_urgency(urgency);
        }
    }

    /// Waits until the client has the answer, and ends the stream.
    pub async fn finish(mut self) {
        if self.write().await.is_err() || !matches!(self.answer, Answer::Whole | Answer::Refused) {
            return self.reset(ErrorCode::Internal);
        }
        self.answer = Answer::Ended;
        if self.send.finish().is_err() {
            return;
        }
        // The rest of a request that nobody reads is not wanted (RFC 9114 section 4.1).
        self.inbound.stop(ErrorCode::NoError);
        // A connection that is closed loses what was not acknowledged.
        self.until_acknowledged().await;
    }

    /// Waits until the client has acknowledged the whole answer, which goes on at its pace: time counts against the client while it
    /// acknowledges nothing of any stream of the connection. Once all of it is acknowledged `request::serve` drops the stream.
    async fn until_acknowledged(&mut self) {
        let env = Rc::clone(self.env());
        let timer = self.timer.get_or_insert_with(|| env.ticker.timer());
        loop {
            let limit = self.pauses.stall_left(&env.config());
            let (began, before) = (env.ticker.wait_begins(), self.link.acknowledged.bytes());
            let _ = timer.limit(limit, Wait::Busy, pending::<()>()).await;
            let progress = self.link.acknowledged.bytes() - before;
            if progress == 0 {
                self.link.gives_up();
                let _ = self.send.reset(number(ErrorCode::RequestCancelled));
                return;
            }
            self.pauses.note_stall(&env.config(), env.ticker.since(began), progress as usize);
        }
    }

    /// Ends the stream at once, as incomplete.
    pub fn reset(&mut self, code: ErrorCode) {
        if self.answer != Answer::Ended {
            self.answer = Answer::Ended;
            self.link.gives_up();
            let _ = self.send.reset(number(code));
            self.inbound.stop(code);
            self.queue.clear();
            self.queued_bytes = 0;
            self.place.leave();
        }
    }

    /// Puts bytes behind those that wait.
    fn queue(&mut self, mut bytes: Bytes) {
        self.queued_bytes += bytes.len();
        while bytes.len() > TURN_BYTES {
            self.queue.push(bytes.split_to(TURN_BYTES));
        }
        self.queue.push(bytes);
    }

    /// Puts HEADERS behind the bytes that wait, and the head of DATA for a body of so many bytes.
    fn queue_headers(&mut self, section: &[u8], body: Option<u64>) {
        let mut bytes = Vec::with_capacity(section.len() + 2 * frame::HEAD_BYTES_MAX);
        frame::write_headers(&mut bytes, section);
        if let Some(length @ 1..) = body {
            frame::write_data_head(&mut bytes, length);
        }
        self.queue(bytes.into());
    }

    /// Gives a small head in place of one that is longer than the client takes. It would refuse that.
    fn refused_head(&self) -> Vec<u8> {
        let client = self.link.peer.address;
        tracing::info!(%client, "an answer's head is longer than a client of HTTP/3 takes");
        let (mut bytes, section) = (Section::begin(), Section::default());
        section.write(&mut bytes, b":status", REFUSED_STATUS.to_string().as_bytes(), false);
        section.write(&mut bytes, b"content-length", b"0", false);
        bytes
    }

    /// Begins DATA for so many bytes, where the head has not done that for the body as a whole. Gives the bytes that may follow.
    fn begin_data(&mut self, bytes: usize) -> usize {
        match &mut self.answer {
            Answer::Begun(Some(left)) => {
                // Bytes beyond the length that the head stated would be taken for frames.
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes);
                *left -= taken as u64;
                if *left == 0 {
                    self.answer = Answer::Whole;
                }
                taken
            }
            Answer::Begun(None) if bytes > 0 => {
                let mut head = Vec::with_capacity(frame::HEAD_BYTES_MAX);
                frame::write_data_head(&mut head, bytes as u64);
                self.queue(head.into());
                bytes
            }
            _ => 0,
        }
    }

    /// Waits until QUIC has taken all bytes. A client that gives the stream no room for longer than `timeouts.write` at once, or
    /// `timeouts.download_stall` in all, loses it. While others have their turns, the client is as slow as it is on all of them.
    async fn write(&mut self) -> io::Result<()> {
        let env = Rc::clone(&self.link.space.env);
        while !self.queue.is_empty() {
            self.take_up_urgency();
            let limit = self.pauses.stall_left(&env.config());
            let (began, before) = (env.ticker.wait_begins(), self.link.acknowledged.bytes());
            let given_up = self.link.given_up.get();
            let timer = self.timer.get_or_insert_with(|| env.ticker.timer());
            let writing = write_in_turn(&mut self.place, &mut self.send, &mut self.queue);
            let wrote = timer.limit(limit, Wait::Busy, writing).await;
            let progress = || (self.link.acknowledged.bytes() - before) as usize;
            match wrote {
                Ok(Ok(Wrote { written, was_passed_over })) => {
                    let progress = match was_passed_over {
                        true => written.bytes,
                        // There is room because other answers were given up, it may be, and not by anything that the client did.
                        false if self.link.given_up.get() != given_up => progress(),
                        false => progress().max(written.bytes),
                    };
                    self.queue.drain(..written.chunks);
                    self.queued_bytes -= written.bytes;
                    self.pauses.note_stall(&env.config(), env.ticker.since(began), progress);
                }
                Ok(Err(_)) => {
                    self.reset(ErrorCode::RequestCancelled);
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Err(_) if progress() > 0 && !self.place.was_passed_over() => {
                    self.pauses.note_stall(&env.config(), env.ticker.since(began), progress());
                }
                Err(_) => {
                    self.reset(ErrorCode::RequestCancelled);
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        Ok(())
    }

    /// Waits for the next part of the request's body, within the limits of a slow client.
    async fn part(&mut self) -> Result<Piece, BodyEnd> {
        let env = Rc::clone(&self.link.space.env);
        let limit = self.pauses.silence_left(&env.config(), self.uploaded);
        let timer = self.timer.get_or_insert_with(|| env.ticker.timer());
        let waiting = self.pauses.silence();
        let part = timer.limit(limit, Wait::Busy, self.inbound.body_part()).await;
        drop(waiting);
        match part {
            Ok(Ok(part)) => Ok(part),
            Ok(Err(ReadEnd::Fault(fault))) => {
                self.link.fault(fault);
                self.reset(fault.code);
                Err(match fault.scope {
                    Scope::Stream => BodyEnd::Malformed("http3-malformed"),
                    Scope::Connection => BodyEnd::Broken,
                })
            }
            Ok(Err(ReadEnd::GivenUp)) => {
                self.link.note(Flood::RapidReset);
                // An answer that has begun is broken off by its exchange.
                if self.answer == Answer::Waited {
                    self.reset(ErrorCode::RequestIncomplete);
                }
                Err(BodyEnd::Broken)
            }
            Ok(Err(ReadEnd::Gone | ReadEnd::Crowded)) => Err(BodyEnd::Broken),
            Err(_) => Err(BodyEnd::Late),
        }
    }
}

/// The status of an answer whose head is longer than the client takes.
const REFUSED_STATUS: u16 = 502;

/// Bytes that a stream may write before the others have their turns.
const TURN_BYTES: usize = 32 * 1024;

/// The end of a turn.
struct Wrote {
    written: Written,
    /// Since this stream's last turn, one that was behind it has had a turn.
    was_passed_over: bool,
}

/// A stream that waits for its turn, until this is dropped.
struct Turn<'a>(&'a mut Place);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Writes the first of these pieces, as many as fit in one turn, when that comes. Cancel-safe.
async fn write_in_turn(place: &mut Place, send: &mut SendStream, queue: &mut [Bytes]) -> Result<Wrote, WriteError> {
    let mut bytes = 0;
    let fits = |piece: &&Bytes| {
        bytes += piece.len();
        bytes <= TURN_BYTES
    };
    let pieces = queue.iter().take_while(fits).count().max(1);
    let turn = Turn(place);
    poll_fn(|cx| {
        ready!(turn.0.poll(cx));
        match pin!(send.write_chunks(&mut queue[..pieces])).poll(cx) {
            Poll::Ready(written) => {
                let was_passed_over = turn.0.was_passed_over();
                turn.0.took();
                Poll::Ready(written.map(|written| Wrote { written, was_passed_over }))
            }
            Poll::Pending => {
                turn.0.found_no_room();
                Poll::Pending
            }
        }
    })
    .await
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reset(ErrorCode::RequestCancelled);
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
        if self.answer != Answer::Waited {
            return;
        }
        let mut body = match head.body {
            AnswerBody::None(_) => Some(0),
            AnswerBody::Known(bytes) => Some(bytes),
            AnswerBody::Unknown => None,
        };
        let link = Rc::clone(&self.link);
        let section = Section::default();
        let mut bytes = Section::begin();
        render::answer_head(
            &mut bytes,
            |out, name, value, is_secret| section.write(out, name, value, is_secret),
            head,
            &mut link.text.borrow_mut(),
            &link.space.answered_by,
            link.peer.alt_svc(),
        );
        self.answer = match body {
            Some(0) => Answer::Whole,
            body => Answer::Begun(body),
        };
        if !section.fits(&link) {
            (self.answer, bytes, body) = (Answer::Refused, self.refused_head(), None);
        }
        self.queue_headers(&bytes, body);
    }

    fn refused(&self) -> Option<(u16, &'static str)> {
        (self.answer == Answer::Refused).then_some((REFUSED_STATUS, "http3-head-too-long"))
    }

    fn answer_has_begun(&self) -> bool {
        self.answer != Answer::Waited
    }

    fn interim(&mut self, head: &ResponseHead) {
        if self.answer == Answer::Waited {
            let section = Section::default();
            let mut bytes = Section::begin();
            let write = |out: &mut Vec<u8>, name: &[u8], value: &[u8], is_secret| {
                section.write(out, name, value, is_secret);
            };
            render::interim_head(&mut bytes, write, head);
            if section.fits(&self.link) {
                self.queue_headers(&bytes, None);
            }
        }
    }

    fn opens_tunnel(&self, _: &Host) -> bool {
        false
    }

    fn open_tunnel(&mut self) {
        // A CONNECT is answered before it gets here.
        self.reset(ErrorCode::Connect);
    }

    fn switch_protocols(&mut self, _: &mut ResponseHead) -> u16 {
        // Nobody can ask for it: a field `upgrade` is malformed.
        self.reset(ErrorCode::Connect);
        502
    }

    fn send(&mut self, pieces: std::vec::Drain<'_, Bytes>) {
        let bytes = pieces.as_slice().iter().map(Bytes::len).sum();
        let mut left = self.begin_data(bytes);
        for mut piece in pieces {
            piece.truncate(left);
            left -= piece.len();
            if !piece.is_empty() {
                self.queue(piece);
            }
        }
    }

    fn send_part(&mut self, piece: &Bytes, part: Range<usize>) {
        let bytes = self.begin_data(part.len());
        if bytes > 0 {
            self.queue(piece.slice(part.start..part.start + bytes));
        }
    }

    fn send_copied(&mut self, bytes: &[u8]) {
        let taken = self.begin_data(bytes.len());
        if taken > 0 {
            self.queue(Bytes::copy_from_slice(&bytes[..taken]));
        }
    }

    fn end_answer(&mut self, trailers: Option<Fields>) {
        if self.answer != Answer::Begun(None) {
            return;
        }
        self.answer = Answer::Whole;
        if let Some(trailers) = trailers.filter(|trailers| !trailers.is_empty()) {
            let section = Section::default();
            let mut bytes = Section::begin();
            trailers.iter().for_each(|(name, value)| section.write(&mut bytes, name.as_bytes(), value, false));
            if section.fits(&self.link) {
                self.queue_headers(&bytes, None);
            }
        }
    }

    fn break_off(&mut self) {
        // The client gets the small head all the same.
        if self.answer != Answer::Refused {
            self.reset(ErrorCode::Internal);
        }
    }

    fn expect_long_body(&mut self, _: Tier) {
        // QUIC holds no more of it than its windows say.
    }

    fn unwritten_bytes(&self) -> usize {
        self.queued_bytes
    }

    async fn flush(&mut self) -> io::Result<usize> {
        self.write().await?;
        match self.answer {
            // No more of a body is wanted that no client takes.
            Answer::Refused => Err(io::ErrorKind::BrokenPipe.into()),
            // Of an answer in larger steps more would wait here, for a hundred streams at once.
            _ => Ok(2),
        }
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        // The rest of an answer is sent when its exchange is over: `Stream::finish` waits for that.
        if self.queued_bytes >= QUEUED_BYTES_MAX {
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
        self.inbound.is_over()
    }

    fn other_side(&self) -> OtherSide {
        match self.answer == Answer::Ended || self.link.quic.close_reason().is_some() {
            true => OtherSide::Closed,
            false => OtherSide::Open,
        }
    }
}
