//! The state of a connection: frames in, requests out; answers in, frames out. No socket and no clock but that of the meters.

mod receive;
#[cfg(test)]
mod tests;

use super::meters::{Flood, Meters};
use crate::multiplexed::priority::{URGENCY_AT_FIRST, urgency};
use crate::outbox::Outbox;
use crate::request_body::Piece;
use crate::wakers::{register, wake};
use bytes::{Bytes, BytesMut};
use larder_wire::Fields;
use larder_wire::h2::flow::{WINDOW_AT_FIRST, Window};
use larder_wire::h2::frame::{self, PAYLOAD_BYTES_MAX_AT_FIRST, Settings};
use larder_wire::h2::hpack::{self, Decoder, FieldList};
use larder_wire::h2::{ErrorCode, H2Fault};
use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};
use tokio::task::AbortHandle;

/// Streams that a client may have open at once (SETTINGS_MAX_CONCURRENT_STREAMS).
pub const STREAMS_MAX: usize = 100;
/// Bytes of a request's body that a client may send before any of it is taken (SETTINGS_INITIAL_WINDOW_SIZE). With [`STREAMS_MAX`] it
/// bounds the memory of one connection: the window of the connection as a whole is opened again as soon as bytes have come, so that a
/// body that nobody takes holds up no other one.
pub const STREAM_WINDOW_BYTES: u32 = WINDOW_AT_FIRST;
/// The window of a stream whose bytes are taken as fast as they come: 64 KiB for each round trip are little on a long way.
const STREAM_WINDOW_BYTES_MAX: u32 = 1 << 20;
/// Bytes by which the windows of all streams of a connection may be larger than [`STREAM_WINDOW_BYTES`], together.
const SPARE_BYTES: u32 = 4 << 20;
/// The window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Frames of answers that wait to be written. The rest of their bodies waits in the streams, so that a stream of higher urgency has not
/// many bytes of others ahead.
const OUTBOX_BYTES_MAX: usize = 128 * 1024;
/// Bytes of heads and of replies to control frames that may wait for a client that does not read; then none of its frames is read.
const OUTBOX_OWN_BYTES_MAX: usize = 256 * 1024;
/// Each so many bytes of DATA explain a WINDOW_UPDATE: there are clients that send two for each 4 KiB.
const WINDOW_UPDATE_BYTES: u32 = 2 * 1024;
/// The urgencies of RFC 9218.
const URGENCIES: usize = 8;
/// Streams that ended, which are remembered for frames that come late.
const ENDED_STREAMS_MAX: usize = 256;

/// The state of one connection.
pub struct State {
    /// Frames that wait to be written.
    pub outbox: Outbox,
    /// The fields of the request that was read last.
    pub fields: FieldList,
    /// A buffer for heads as HTTP/1.1 writes them.
    pub text: Vec<u8>,
    /// Bytes of DATA that were made frames of so far.
    pub framed_bytes: u64,
    inbox: BytesMut,
    expects: Expects,
    decoder: Decoder,
    block: Option<Block>,
    list_bytes_max: usize,
    /// Boxed: the table moves its entries at each request.
    streams: BTreeMap<u32, Box<StreamState>>,
    ended: VecDeque<(u32, EndedBy)>,
    last_stream: u32,
    is_leaving: bool,
    has_written_block: bool,
    /// Bytes of DATA that the client takes on all streams together.
    window: Window,
    client_window_bytes: u32,
    payload_bytes_max: u32,
    receive_window: Window,
    owed_bytes: u32,
    /// The rest of [`SPARE_BYTES`].
    spare_bytes: u32,
    /// Streams with frames to send, by urgency.
    ready: [VecDeque<u32>; URGENCIES],
    meters: Meters,
    refused: u64,
}

/// The next bytes of the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expects {
    Preface,
    Settings,
    Frames,
}

/// A field block that is not whole yet.
struct Block {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
    frames: usize,
}

/// The end of a stream, for frames that come after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndedBy {
    /// The client ended or reset it: it may send no more.
    Client,
    /// Larder reset it: frames may be on their way.
    Larder,
    /// Larder reset it because its request turned out to be malformed.
    Fault,
}

/// A stream.
pub struct StreamState {
    /// The task of its exchange.
    task: Option<AbortHandle>,
    body: BytesMut,
    body_has_ended: bool,
    trailers: Option<Fields>,
    /// The bytes that are still to come by `Content-Length`.
    expected_bytes: Option<u64>,
    receive_window: Window,
    /// The size of that window.
    window_bytes: u32,
    owed_bytes: u32,
    body_waker: Option<Waker>,
    window: Window,
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    /// The bytes of the body that are not framed yet, where its length is known.
    remaining_bytes: Option<u64>,
    /// The body ends with the queue, with these trailer fields.
    ends: Option<Fields>,
    is_answered: bool,
    /// It carries bytes of a tunnel, in no frames but DATA.
    is_tunnel: bool,
    is_ready: bool,
    urgency: u8,
    flush_waker: Option<Waker>,
}

/// The events in the client's bytes.
pub enum Event {
    /// A request: its fields are in [`State::fields`].
    Request {
        /// Its stream.
        stream: u32,
        /// It has no body.
        ends_stream: bool,
    },
    /// More bytes are needed.
    NeedsBytes,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A fault of the client.
    Fault(H2Fault),
    /// A limit that the client has reached.
    Flood(Flood),
}

impl From<H2Fault> for Trouble {
    fn from(fault: H2Fault) -> Trouble {
        Trouble::Fault(fault)
    }
}

impl From<Flood> for Trouble {
    fn from(flood: Flood) -> Trouble {
        Trouble::Flood(flood)
    }
}

/// The stream is no more: its client has reset it, or the connection has ended.
#[derive(Debug)]
pub struct StreamGone;

/// How far the bytes of a stream have been made frames of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All of them.
    Whole,
    /// Some more of them than before: so many.
    Some(usize),
}

impl State {
    /// The state of a connection on which these bytes were read. SETTINGS wait to be written.
    pub fn new(inbox: BytesMut, list_bytes_max: usize) -> State {
        let mut outbox = Outbox::default();
        let settings = Settings {
            streams_max: Some(STREAMS_MAX as u32),
            window: Some(STREAM_WINDOW_BYTES),
            list_bytes_max: Some(u32::try_from(list_bytes_max).unwrap_or(u32::MAX)),
            takes_connect_protocol: Some(true),
            has_no_old_priorities: Some(true),
            ..Settings::default()
        };
        outbox.own(|out| {
            frame::write_settings(out, &settings);
            frame::write_window_update(out, 0, CONNECTION_WINDOW_BYTES - WINDOW_AT_FIRST);
        });
        State {
            outbox,
            fields: FieldList::default(),
            text: Vec::new(),
            framed_bytes: 0,
            inbox,
            expects: Expects::Preface,
            decoder: Decoder::new(),
            block: None,
            list_bytes_max,
            streams: BTreeMap::new(),
            ended: VecDeque::new(),
            last_stream: 0,
            is_leaving: false,
            has_written_block: false,
            window: Window::of(WINDOW_AT_FIRST),
            client_window_bytes: WINDOW_AT_FIRST,
            payload_bytes_max: PAYLOAD_BYTES_MAX_AT_FIRST,
            receive_window: Window::of(CONNECTION_WINDOW_BYTES),
            owed_bytes: 0,
            spare_bytes: SPARE_BYTES,
            ready: std::array::from_fn(|_| VecDeque::new()),
            meters: Meters::default(),
            refused: 0,
        }
    }

    /// Puts bytes of the client behind those that wait.
    pub fn take(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
    }

    /// Whether the client may send more: it reads what it makes Larder write.
    pub fn may_read(&self) -> bool {
        self.outbox.own_bytes() < OUTBOX_OWN_BYTES_MAX
    }

    /// Whether the preface or a field block has begun and is not whole.
    pub fn is_in_head(&self) -> bool {
        self.block.is_some() || self.expects != Expects::Frames
    }

    /// Bytes that the field block which is not whole yet takes.
    pub fn block_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes.capacity())
    }

    /// Whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// The number of streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether GOAWAY was sent.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// The streams that were refused since the last call, because there were too many.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Writes that no further streams are served.
    pub fn leave(&mut self, code: ErrorCode, detail: &str) {
        let last = self.last_stream;
        self.is_leaving = true;
        self.outbox.own(|out| frame::write_go_away(out, last, code, detail));
    }

    /// Ends all streams.
    pub fn end_streams(&mut self) {
        std::mem::take(&mut self.streams).into_values().for_each(|state| state.end());
    }

    /// Whether a stream is open.
    pub fn has(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Names the task that answers a stream, and its urgency.
    pub fn served_by(&mut self, stream: u32, task: AbortHandle) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.task = Some(task);
        }
    }

    /// The task that answers a stream is about to end by itself.
    pub fn disown(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.task = None;
        }
    }

    /// Notes facts of a request's head: the length that it states, and the value of `Priority` (RFC 9218).
    pub fn begin(&mut self, stream: u32, length: Option<u64>, priority: Option<&[u8]>) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.expected_bytes = length;
            state.urgency = priority.and_then(urgency).unwrap_or(URGENCY_AT_FIRST);
        }
    }

    /// Counts an event against a limit.
    pub fn note(&mut self, kind: Flood) -> Result<(), Trouble> {
        self.meters.note(kind).map_err(Trouble::Flood)
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.outbox.own(|out| frame::write_reset(out, stream, code));
        if let Some(state) = self.remove(stream) {
            state.end();
        }
        self.note_end(stream, EndedBy::Larder);
    }

    /// Resets a stream for a fault within it. Its exchange ends by itself where it reads the body, and has the word in its record.
    fn reset_for_fault(&mut self, stream: u32, code: ErrorCode) {
        if let Some(state) = self.streams.get_mut(&stream).filter(|state| !state.body_has_ended && !state.is_tunnel) {
            state.task = None;
        }
        self.reset(stream, code);
        if let Some((_, by)) = self.ended.back_mut() {
            *by = EndedBy::Fault;
        }
    }

    /// Whether a stream was reset because its request turned out to be malformed.
    pub fn is_malformed(&self, stream: u32) -> bool {
        self.ended_by(stream) == Some(EndedBy::Fault)
    }

    fn remove(&mut self, stream: u32) -> Option<Box<StreamState>> {
        let state = self.streams.remove(&stream)?;
        self.spare_bytes += state.window_bytes - STREAM_WINDOW_BYTES;
        Some(state)
    }

    fn note_end(&mut self, stream: u32, by: EndedBy) {
        if self.ended.len() == ENDED_STREAMS_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((stream, by));
    }

    /// Writes a field block. The size of its list is not looked at: the client's limit is advice (RFC 9113 section 6.5.2).
    pub fn write_block<T>(&mut self, stream: u32, ends_stream: bool, fields: impl FnOnce(&mut Vec<u8>) -> T) {
        let mut block = Vec::with_capacity(512);
        if !std::mem::replace(&mut self.has_written_block, true) {
            hpack::write_no_table(&mut block);
        }
        fields(&mut block);
        let payload_bytes_max = self.payload_bytes_max;
        self.outbox.own(|out| frame::write_block(out, stream, &block, ends_stream, payload_bytes_max));
    }

    /// An answer has begun: a body of so many bytes follows its head, or one of unknown length (`None`), or none at all (0).
    pub fn expect_body(&mut self, stream: u32, bytes: Option<u64>) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.remaining_bytes = bytes;
        if bytes == Some(0) {
            self.answered(stream);
        }
    }

    /// Puts a piece of a body behind those that wait for the window.
    pub fn queue(&mut self, stream: u32, piece: Bytes) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if piece.is_empty() || state.is_answered {
            return;
        }
        state.queued_bytes += piece.len();
        state.queue.push_back(piece);
        self.make_ready(stream);
    }

    /// A body of unknown length ends with the pieces that wait.
    pub fn end_body(&mut self, stream: u32, trailers: Fields) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if state.remaining_bytes.is_none() && !state.is_answered {
            state.ends = Some(trailers);
            self.make_ready(stream);
        }
    }

    fn make_ready(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream)
            && !std::mem::replace(&mut state.is_ready, true)
        {
            self.ready[usize::from(state.urgency) % URGENCIES].push_back(stream);
        }
    }

    /// The number of bytes of a stream that wait for the window.
    pub fn queued_bytes(&self, stream: u32) -> usize {
        self.streams.get(&stream).map_or(0, |state| state.queued_bytes)
    }

    /// Whether a stream's client gives it no room to send.
    pub fn is_held_by_client(&self, stream: u32) -> bool {
        self.window.room() == 0 || self.streams.get(&stream).is_some_and(|state| state.window.room() == 0)
    }

    /// Makes frames of what waits in the streams, the most urgent first, those of one urgency in turns.
    pub fn pump(&mut self) {
        while self.outbox.len() < OUTBOX_BYTES_MAX {
            let Some(queue) = self.ready.iter_mut().find(|queue| !queue.is_empty()) else { return };
            let Some(stream) = queue.pop_front() else { return };
            let Some(state) = self.streams.get_mut(&stream) else { continue };
            if state.queue.is_empty() {
                state.is_ready = false;
                self.end_stream(stream);
                continue;
            }
            if self.window.room() == 0 {
                // All others wait for the same.
                return queue.push_front(stream);
            }
            state.is_ready = false;
            let room = state.window.room().min(self.window.room()).min(PAYLOAD_BYTES_MAX_AT_FIRST) as usize;
            if room == 0 {
                continue;
            }
            self.write_data(stream, room);
        }
    }

    fn write_data(&mut self, stream: u32, room: usize) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        let bytes = room.min(state.queued_bytes);
        let is_last = state.write_data(stream, bytes, &mut self.outbox);
        let taken = u32::try_from(bytes).unwrap_or(u32::MAX);
        // `room` is no more than either window has.
        let _ = state.window.take(taken, larder_wire::h2::Scope::Connection);
        let _ = self.window.take(taken, larder_wire::h2::Scope::Connection);
        let goes_on = !state.queue.is_empty() || (state.ends.is_some() && !is_last);
        wake(&mut state.flush_waker);
        self.framed_bytes += bytes as u64;
        self.meters.forgive(Flood::WindowUpdate, taken / WINDOW_UPDATE_BYTES);
        if is_last {
            self.answered(stream);
        } else if goes_on {
            self.make_ready(stream);
        }
    }

    /// Writes the end of a body whose pieces are all written.
    fn end_stream(&mut self, stream: u32) {
        let Some(trailers) = self.streams.get_mut(&stream).and_then(|state| state.ends.take()) else { return };
        match trailers.is_empty() {
            true => self.outbox.own(|out| frame::write_data_head(out, stream, 0, true)),
            false => self.write_block(stream, true, |out| {
                trailers.iter().for_each(|(name, value)| hpack::write_field(out, name.as_bytes(), value, false));
            }),
        }
        self.answered(stream);
    }

    fn answered(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.is_answered = true;
        // Bytes beyond the length that the head stated would follow the end of the stream.
        state.queue.clear();
        state.queued_bytes = 0;
        wake(&mut state.flush_waker);
        if state.task.is_none() && !state.is_tunnel {
            self.finish(stream);
        }
    }

    /// The exchange of a stream is over. The rest of its answer is sent; where the client has not ended its body, it is told that
    /// the rest is not wanted (RFC 9113 section 8.1).
    pub fn finish(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.task = None;
        if !state.is_answered {
            return;
        }
        let has_ended = state.body_has_ended;
        self.remove(stream);
        if has_ended {
            self.note_end(stream, EndedBy::Client);
        } else {
            self.reset(stream, ErrorCode::NoError);
        }
    }

    /// Whether an answer was made frames of to its end.
    pub fn is_answered(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_none_or(|state| state.is_answered)
    }

    /// Waits until more of a stream's bytes than `before` are framed, or all of them.
    pub fn poll_flushed(&mut self, stream: u32, before: usize, cx: &Context<'_>) -> Poll<Result<Flushed, StreamGone>> {
        let Some(state) = self.streams.get_mut(&stream) else { return Poll::Ready(Err(StreamGone)) };
        let is_ending = state.ends.is_some() && !state.is_answered;
        match state.queued_bytes {
            0 if !is_ending => Poll::Ready(Ok(Flushed::Whole)),
            queued if queued < before => Poll::Ready(Ok(Flushed::Some(before - queued))),
            _ => {
                register(&mut state.flush_waker, cx);
                Poll::Pending
            }
        }
    }

    /// A tunnel takes the stream over from its exchange: nothing gives it up but its own end.
    pub fn begin_tunnel(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.task = None;
            state.is_tunnel = true;
        }
    }

    /// The tunnel of a stream is over. Unless both sides have come to their ends, the stream is reset.
    pub fn end_tunnel(&mut self, stream: u32, code: ErrorCode) {
        match self.streams.get(&stream) {
            Some(state) if state.body_has_ended && state.is_answered => self.finish(stream),
            Some(_) => self.reset(stream, code),
            None => {}
        }
    }

    /// Waits until fewer than so many bytes of a stream wait for the client's window; gives the room.
    pub fn poll_room(&mut self, stream: u32, bytes_max: usize, cx: &Context<'_>) -> Poll<Result<usize, StreamGone>> {
        let Some(state) = self.streams.get_mut(&stream) else { return Poll::Ready(Err(StreamGone)) };
        match bytes_max.saturating_sub(state.queued_bytes) {
            0 => {
                register(&mut state.flush_waker, cx);
                Poll::Pending
            }
            room => Poll::Ready(Ok(room)),
        }
    }

    /// The next part of a request's body, of so many bytes at most.
    pub fn poll_body(&mut self, stream: u32, bytes_max: usize, cx: &Context<'_>) -> Poll<Result<Piece, StreamGone>> {
        let Some(state) = self.streams.get_mut(&stream) else { return Poll::Ready(Err(StreamGone)) };
        // An origin that had the last bytes would have the whole request, which may turn out to be malformed before its stream ends.
        let holds_back = state.expected_bytes == Some(0) && !state.body_has_ended;
        if !state.body.is_empty() && !holds_back {
            let piece = state.body.split_to(state.body.len().min(bytes_max)).freeze();
            let bytes = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            state.grant(stream, bytes, &mut self.spare_bytes, &mut self.outbox);
            return Poll::Ready(Ok(Piece::Data(piece)));
        }
        if state.body_has_ended {
            return Poll::Ready(Ok(Piece::End(state.trailers.take().unwrap_or_default())));
        }
        register(&mut state.body_waker, cx);
        Poll::Pending
    }

    /// Whether a request's body was read to its end.
    pub fn body_is_over(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_none_or(|state| state.body_has_ended && state.body.is_empty())
    }
}

impl StreamState {
    fn new(window_bytes: u32, ends_stream: bool) -> StreamState {
        StreamState {
            task: None,
            body: BytesMut::new(),
            body_has_ended: ends_stream,
            trailers: None,
            expected_bytes: None,
            receive_window: Window::of(STREAM_WINDOW_BYTES),
            window_bytes: STREAM_WINDOW_BYTES,
            owed_bytes: 0,
            body_waker: None,
            window: Window::of(window_bytes),
            queue: VecDeque::new(),
            queued_bytes: 0,
            remaining_bytes: None,
            ends: None,
            is_answered: false,
            is_tunnel: false,
            is_ready: false,
            urgency: URGENCY_AT_FIRST,
            flush_waker: None,
        }
    }

    /// Gives up the exchange, as when a client of HTTP/1.1 leaves.
    fn end(mut self: Box<Self>) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        // A tunnel ends by itself once it sees that its stream is gone.
        wake(&mut self.body_waker);
        wake(&mut self.flush_waker);
    }

    /// Writes so many bytes as a frame; whether it ends the stream.
    fn write_data(&mut self, stream: u32, bytes: usize, outbox: &mut Outbox) -> bool {
        let is_whole = bytes == self.queued_bytes;
        let is_last = match &mut self.remaining_bytes {
            Some(remaining) => {
                *remaining = remaining.saturating_sub(bytes as u64);
                *remaining == 0
            }
            None => is_whole && self.ends.as_ref().is_some_and(Fields::is_empty),
        };
        outbox.own(|out| frame::write_data_head(out, stream, bytes, is_last));
        let mut left = bytes;
        while left > 0
            && let Some(mut piece) = self.queue.pop_front()
        {
            if piece.len() > left {
                let rest = piece.split_off(left);
                self.queue.push_front(rest);
            }
            left -= piece.len();
            outbox.shared(piece);
        }
        self.queued_bytes -= bytes;
        is_last
    }

    /// Opens the window of a body by bytes that were taken, once they are many; where all that came was taken, it grows.
    fn grant(&mut self, stream: u32, bytes: u32, spare_bytes: &mut u32, outbox: &mut Outbox) {
        self.owed_bytes += bytes;
        if self.owed_bytes < self.window_bytes / 2 || self.body_has_ended {
            return;
        }
        let mut bytes = std::mem::take(&mut self.owed_bytes);
        let has_rest = self.expected_bytes.is_none_or(|rest| rest > u64::from(self.window_bytes));
        if self.body.is_empty() && has_rest {
            let more = self.window_bytes.min(STREAM_WINDOW_BYTES_MAX - self.window_bytes).min(*spare_bytes);
            self.window_bytes += more;
            *spare_bytes -= more;
            bytes += more;
        }
        // No more than was taken from it, up to its size.
        let _ = self.receive_window.grow(bytes, larder_wire::h2::Scope::Connection);
        outbox.own(|out| frame::write_window_update(out, stream, bytes));
    }
}
