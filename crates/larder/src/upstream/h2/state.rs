//! The state of a connection: requests in, frames out; frames in, responses out. No socket, and no clock but that of the meters.

mod receive;
#[cfg(test)]
mod tests;

use super::super::fault::{Retry, UpstreamFault, UpstreamFaultKind};
use super::meters::{Flood, Meters};
use crate::outbox::Outbox;
use crate::wakers::{register, wake};
use bytes::{Bytes, BytesMut};
use larder_wire::h2::flow::{WINDOW_AT_FIRST, WINDOW_MAX, Window};
use larder_wire::h2::frame::{self, PAYLOAD_BYTES_MAX_AT_FIRST, Settings};
use larder_wire::h2::hpack::{self, Decoder, FieldList};
use larder_wire::h2::{ErrorCode, H2Fault, PREFACE, Scope};
use larder_wire::parse::HeadLimits;
use larder_wire::{Fault, FaultKind, Fields, Method, ResponseHead};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::task::{Context, Poll, Waker};

/// Requests of one connection at once, where the origin permits as many or says nothing (SETTINGS_MAX_CONCURRENT_STREAMS).
const STREAMS_MAX: usize = 100;
/// Bytes of a response's body that may come before any of it is taken (SETTINGS_INITIAL_WINDOW_SIZE). The window of the connection as a
/// whole is opened again as soon as bytes have come, so that a body that nobody takes holds up no other one.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// The window of a stream whose bytes are taken as fast as they come.
const STREAM_WINDOW_BYTES_MAX: u32 = 4 << 20;
/// Bytes by which the windows of all streams of a connection may be larger than [`STREAM_WINDOW_BYTES`], together.
const SPARE_BYTES: u32 = 12 << 20;
/// The window of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// The longest payload of a frame that an origin may send (SETTINGS_MAX_FRAME_SIZE).
const PAYLOAD_BYTES_MAX: u32 = 64 * 1024;
/// Frames of requests that wait to be written. The rest of their bodies waits in the streams.
const OUTBOX_BYTES_MAX: usize = 128 * 1024;
/// Bytes of heads and of replies to control frames that may wait for an origin that does not read; then none of its frames is read.
const OUTBOX_OWN_BYTES_MAX: usize = 4 << 20;
/// Each so many bytes of DATA explain a WINDOW_UPDATE.
const WINDOW_UPDATE_BYTES: u32 = 2 * 1024;
/// Streams that ended, which are remembered for frames that come late.
const ENDED_STREAMS_MAX: usize = 1_024;
/// Heads and resets that may come for a stream that Larder has reset.
const LATE_FRAMES_MAX: u8 = 8;
/// Bytes of a request's body that wait for the origin's window.
pub const QUEUED_BYTES_MAX: usize = 64 * 1024;

/// The limits of what an origin may send.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Of heads.
    pub heads: HeadLimits,
    /// Interim heads of one response.
    pub interim_heads_max: u32,
}

/// The state of one connection.
pub struct State {
    /// Frames that wait to be written.
    pub outbox: Outbox,
    /// Bytes that were read, and are no whole frame yet.
    pub inbox: BytesMut,
    /// The text of a PING that was sent and not answered.
    pub ping: Option<[u8; 8]>,
    /// The origin has said that it wants HTTP/1.1 (HTTP_1_1_REQUIRED).
    pub needs_http11: bool,
    limits: Limits,
    decoder: Decoder,
    fields: FieldList,
    /// A buffer for heads as HTTP/1.1 writes them.
    text: Vec<u8>,
    block: Option<Block>,
    streams: BTreeMap<u32, StreamState>,
    ended: VecDeque<(u32, EndedBy)>,
    /// The number of the next stream.
    next: u32,
    pings: u64,
    has_settings: bool,
    is_leaving: bool,
    has_written_block: bool,
    origin_streams_max: u32,
    /// Bytes of DATA that the origin takes on all streams together.
    window: Window,
    origin_window_bytes: u32,
    payload_bytes_max: u32,
    receive_window: Window,
    owed_bytes: u32,
    /// The rest of [`SPARE_BYTES`].
    spare_bytes: u32,
    /// Streams with frames to send, in turns.
    ready: VecDeque<u32>,
    meters: Meters,
}

/// A field block that is not whole yet.
struct Block {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
    frames: usize,
}

/// The end of a stream, for frames that come after it.
#[derive(Clone, Copy)]
enum EndedBy {
    /// The origin has ended it: it may send no more.
    Origin,
    /// Larder reset it. Frames may be on their way: DATA within this window, and so many others.
    Larder(Window, u8),
}

/// The stream of a request, until its fetch lets it go.
struct StreamState {
    method: Method,
    /// It is not the first of its connection.
    is_reused: bool,
    interims: VecDeque<ResponseHead>,
    interim_heads: u32,
    head: Option<ResponseHead>,
    /// A byte of a head has come.
    is_answered: bool,
    /// The final head has come.
    has_head: bool,
    /// The response has no body, whatever its fields say.
    has_no_body: bool,
    /// The bytes that are still to come by `Content-Length`.
    expected_bytes: Option<u64>,
    pieces: VecDeque<Bytes>,
    /// Small pieces behind those, put together.
    tail: BytesMut,
    body_has_ended: bool,
    trailers: Option<Fields>,
    /// No frame comes or goes any more.
    fault: Option<UpstreamFault>,
    receive_window: Window,
    /// The size of that window.
    window_bytes: u32,
    owed_bytes: u32,
    read_waker: Option<Waker>,
    window: Window,
    queue: VecDeque<Bytes>,
    queued_bytes: usize,
    /// The request ends with the queue, with these trailer fields.
    ends: Option<Fields>,
    /// All of the request is in frames, or no more of it is wanted.
    is_sent: bool,
    is_ready: bool,
    send_waker: Option<Waker>,
}

/// Why a connection ends.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// A fault of the origin.
    Fault(H2Fault),
    /// A limit that the origin has reached.
    Flood(Flood),
    /// The origin has closed it.
    Closed,
    /// It broke.
    Broken(io::ErrorKind, String),
    /// A PING had no answer.
    Silent,
    /// This side ends it.
    Ours,
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

impl Trouble {
    /// The fault of a request that has come so far.
    fn fault(&self, state: &StreamState) -> UpstreamFault {
        let (kind, detail) = match self {
            Trouble::Fault(fault) => return wire_fault(fault.detail),
            Trouble::Flood(flood) => return wire_fault(flood.as_str()),
            Trouble::Closed if state.is_answered => (
                UpstreamFaultKind::Truncated,
                "the origin closed the connection before its answer was whole".to_owned(),
            ),
            Trouble::Closed => {
                (UpstreamFaultKind::Reset, "the origin closed the connection without an answer".to_owned())
            }
            Trouble::Broken(io::ErrorKind::UnexpectedEof, error) if state.is_answered => {
                (UpstreamFaultKind::Truncated, format!("the answer broke off: {error}"))
            }
            Trouble::Broken(_, error) => (UpstreamFaultKind::Reset, format!("the connection broke: {error}")),
            Trouble::Silent => (UpstreamFaultKind::Reset, "the origin did not answer a PING in time".to_owned()),
            Trouble::Ours => (UpstreamFaultKind::Reset, "the connection was ended by this side".to_owned()),
        };
        let retry = if state.is_answered || !state.is_reused { Retry::No } else { Retry::IfIdempotent };
        UpstreamFault { retry, ..UpstreamFault::new(kind, detail) }
    }
}

/// The fault of an origin that breaks the rules of HTTP/2.
pub fn wire_fault(detail: &'static str) -> UpstreamFault {
    UpstreamFault::wire(Fault::origin(FaultKind::Http2, detail))
}

/// The origin has not processed the request: it may be sent again, whatever its method.
pub fn unprocessed(detail: impl Into<String>) -> UpstreamFault {
    UpstreamFault { retry: Retry::Unprocessed, ..UpstreamFault::new(UpstreamFaultKind::Reset, detail) }
}

impl State {
    /// The state of a new connection. Preface and SETTINGS wait to be written.
    pub fn new(limits: Limits) -> State {
        let mut outbox = Outbox::default();
        let settings = Settings {
            takes_pushes: Some(false),
            window: Some(STREAM_WINDOW_BYTES),
            payload_bytes_max: Some(PAYLOAD_BYTES_MAX),
            list_bytes_max: Some(u32::try_from(limits.heads.head_bytes_max).unwrap_or(u32::MAX)),
            ..Settings::default()
        };
        outbox.own(|out| {
            out.extend_from_slice(PREFACE);
            frame::write_settings(out, &settings);
            frame::write_window_update(out, 0, CONNECTION_WINDOW_BYTES - WINDOW_AT_FIRST);
        });
        State {
            outbox,
            inbox: BytesMut::new(),
            ping: None,
            needs_http11: false,
            limits,
            decoder: Decoder::new(),
            fields: FieldList::default(),
            text: Vec::new(),
            block: None,
            streams: BTreeMap::new(),
            ended: VecDeque::new(),
            next: 1,
            pings: 0,
            has_settings: false,
            is_leaving: false,
            has_written_block: false,
            origin_streams_max: u32::MAX,
            window: Window::of(WINDOW_AT_FIRST),
            origin_window_bytes: WINDOW_AT_FIRST,
            payload_bytes_max: PAYLOAD_BYTES_MAX_AT_FIRST,
            receive_window: Window::of(CONNECTION_WINDOW_BYTES),
            owed_bytes: 0,
            spare_bytes: SPARE_BYTES,
            ready: VecDeque::new(),
            meters: Meters::default(),
        }
    }

    /// Whether the origin has said its SETTINGS.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Whether the origin reads what it makes Larder write.
    pub fn may_read(&self) -> bool {
        self.outbox.own_bytes() < OUTBOX_OWN_BYTES_MAX
    }

    /// The requests that may be under way at once; none where the connection takes no further ones.
    pub fn streams_max(&self) -> usize {
        match self.is_leaving || self.next > WINDOW_MAX {
            true => 0,
            false => STREAMS_MAX.min(usize::try_from(self.origin_streams_max).unwrap_or(usize::MAX)),
        }
    }

    /// Whether no further requests are taken.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether no request has a stream.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Takes no further requests, and says so to the origin.
    pub fn leave(&mut self, code: ErrorCode, detail: &str) {
        self.is_leaving = true;
        // A server that pushes nothing has no streams.
        self.outbox.own(|out| frame::write_go_away(out, 0, code, detail));
    }

    /// Asks whether the origin is there, unless that was asked already.
    pub fn ask_for_life(&mut self) {
        if self.ping.is_none() {
            self.pings += 1;
            let text = self.pings.to_be_bytes();
            self.ping = Some(text);
            self.outbox.own(|out| frame::write_ping(out, text));
        }
    }

    /// Sends the head of a request; gives the number of its stream. A fault where the connection takes no request any more.
    pub fn begin(
        &mut self,
        method: &Method,
        ends_stream: bool,
        fields: impl FnOnce(&mut Vec<u8>),
    ) -> Result<u32, UpstreamFault> {
        if self.is_leaving || self.next > WINDOW_MAX {
            return Err(unprocessed("the connection takes no request any more"));
        }
        let number = self.next;
        self.next += 2;
        let state = StreamState::new(method.clone(), number > 1, self.origin_window_bytes, ends_stream);
        self.streams.insert(number, state);
        self.write_block(number, ends_stream, fields);
        Ok(number)
    }

    fn write_block(&mut self, stream: u32, ends_stream: bool, fields: impl FnOnce(&mut Vec<u8>)) {
        let mut block = Vec::with_capacity(256);
        if !std::mem::replace(&mut self.has_written_block, true) {
            hpack::write_no_table(&mut block);
        }
        fields(&mut block);
        let payload_bytes_max = self.payload_bytes_max;
        self.outbox.own(|out| frame::write_block(out, stream, &block, ends_stream, payload_bytes_max));
    }

    /// Lets a stream go. One that is not over is reset.
    pub fn end(&mut self, number: u32) {
        let Some(state) = self.streams.remove(&number) else { return };
        self.spare_bytes += state.window_bytes - STREAM_WINDOW_BYTES;
        let is_over = state.fault.is_some() || (state.body_has_ended && state.is_sent);
        if !is_over {
            self.outbox.own(|out| frame::write_reset(out, number, ErrorCode::Cancel));
        }
        // One with a fault was noted as it met it.
        if state.fault.is_none() {
            let by = if state.body_has_ended {
                EndedBy::Origin
            } else {
                EndedBy::Larder(state.receive_window, LATE_FRAMES_MAX)
            };
            self.note_end(number, by);
        }
    }

    fn note_end(&mut self, number: u32, by: EndedBy) {
        if self.ended.len() == ENDED_STREAMS_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((number, by));
    }

    /// A request fails; its stream is over. `code` is for the origin, where it has not ended the stream itself.
    fn fail(&mut self, number: u32, fault: UpstreamFault, code: Option<ErrorCode>) {
        let Some(state) = self.streams.get_mut(&number).filter(|state| state.fault.is_none()) else { return };
        let window = state.receive_window;
        state.end(fault);
        match code {
            Some(code) => {
                self.outbox.own(|out| frame::write_reset(out, number, code));
                self.note_end(number, EndedBy::Larder(window, LATE_FRAMES_MAX));
            }
            None => self.note_end(number, EndedBy::Origin),
        }
    }

    /// The connection is over: all requests whose responses are not whole fail.
    pub fn end_streams(&mut self, trouble: &Trouble) {
        self.is_leaving = true;
        for state in self.streams.values_mut() {
            if state.body_has_ended {
                state.is_sent = true;
                wake(&mut state.send_waker);
            } else if state.fault.is_none() {
                let fault = trouble.fault(state);
                state.end(fault);
            }
        }
    }

    /// The next head of a response, interim ones first.
    pub fn poll_head(&mut self, number: u32, cx: &Context<'_>) -> Poll<Result<ResponseHead, UpstreamFault>> {
        let Some(state) = self.streams.get_mut(&number) else { return Poll::Ready(Err(gone())) };
        if let Some(head) = state.interims.pop_front().or_else(|| state.head.take()) {
            return Poll::Ready(Ok(head));
        }
        if let Some(fault) = &state.fault {
            return Poll::Ready(Err(fault.clone()));
        }
        register(&mut state.read_waker, cx);
        Poll::Pending
    }

    /// The next piece of a response's body; `None` at its end. The origin's window is opened by it.
    pub fn poll_piece(&mut self, number: u32, cx: &Context<'_>) -> Poll<Result<Option<Bytes>, UpstreamFault>> {
        let Some(state) = self.streams.get_mut(&number) else { return Poll::Ready(Err(gone())) };
        if let Some(piece) = state.take_piece() {
            let bytes = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            if state.fault.is_none() {
                state.grant(number, bytes, &mut self.spare_bytes, &mut self.outbox);
            }
            return Poll::Ready(Ok(Some(piece)));
        }
        if state.body_has_ended {
            return Poll::Ready(Ok(None));
        }
        if let Some(fault) = &state.fault {
            return Poll::Ready(Err(UpstreamFault { retry: Retry::No, ..fault.clone() }));
        }
        register(&mut state.read_waker, cx);
        Poll::Pending
    }

    /// Whether the response was taken to its end.
    pub fn is_over(&self, number: u32) -> bool {
        self.streams.get(&number).is_some_and(|state| {
            state.has_head && state.body_has_ended && state.pieces.is_empty() && state.tail.is_empty()
        })
    }

    /// The length of the body by its head.
    pub fn expected_bytes(&self, number: u32) -> Option<u64> {
        let state = self.streams.get(&number)?;
        match state.has_no_body {
            true => Some(0),
            false => state.expected_bytes.map(|rest| rest + state.held_bytes()),
        }
    }

    /// The trailer fields of the response.
    pub fn take_trailers(&mut self, number: u32) -> Option<Fields> {
        self.streams.get_mut(&number)?.trailers.take()
    }

    /// Waits until fewer bytes of a request than [`QUEUED_BYTES_MAX`] wait for the origin's window; false where no more of it is wanted.
    pub fn poll_room(&mut self, number: u32, cx: &Context<'_>) -> Poll<bool> {
        self.poll_queue(number, QUEUED_BYTES_MAX - 1, cx)
    }

    /// Waits until all of a request is in frames, or no more of it is wanted.
    pub fn poll_sent(&mut self, number: u32, cx: &Context<'_>) -> Poll<()> {
        match self.streams.get_mut(&number) {
            Some(state) if !state.is_sent => {
                register(&mut state.send_waker, cx);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    fn poll_queue(&mut self, number: u32, bytes_max: usize, cx: &Context<'_>) -> Poll<bool> {
        match self.streams.get_mut(&number) {
            Some(state) if state.is_sent => Poll::Ready(false),
            Some(state) if state.queued_bytes > bytes_max => {
                register(&mut state.send_waker, cx);
                Poll::Pending
            }
            Some(_) => Poll::Ready(true),
            None => Poll::Ready(false),
        }
    }

    /// Bytes of a request that wait for the origin's window.
    pub fn queued_bytes(&self, number: u32) -> usize {
        self.streams.get(&number).map_or(0, |state| state.queued_bytes)
    }

    /// Puts a piece of a request's body behind those that wait.
    pub fn queue(&mut self, number: u32, piece: Bytes) {
        let Some(state) = self.streams.get_mut(&number).filter(|state| !state.is_sent) else { return };
        if piece.is_empty() {
            return;
        }
        state.queued_bytes += piece.len();
        state.queue.push_back(piece);
        self.make_ready(number);
    }

    /// A request ends with the pieces that wait.
    pub fn end_body(&mut self, number: u32, trailers: Fields) {
        let Some(state) = self.streams.get_mut(&number).filter(|state| !state.is_sent) else { return };
        state.ends = Some(trailers);
        self.make_ready(number);
    }

    fn make_ready(&mut self, number: u32) {
        if let Some(state) = self.streams.get_mut(&number)
            && !state.is_sent
            && !std::mem::replace(&mut state.is_ready, true)
        {
            self.ready.push_back(number);
        }
    }

    /// Makes frames of what waits in the streams, one after the other.
    pub fn pump(&mut self) {
        while self.outbox.len() < OUTBOX_BYTES_MAX {
            let Some(number) = self.ready.pop_front() else { return };
            let Some(state) = self.streams.get_mut(&number).filter(|state| !state.is_sent) else { continue };
            if state.queue.is_empty() {
                state.is_ready = false;
                self.end_request(number);
                continue;
            }
            if self.window.room() == 0 {
                // All others wait for the same.
                return self.ready.push_front(number);
            }
            state.is_ready = false;
            let room = state.window.room().min(self.window.room()).min(self.payload_bytes_max) as usize;
            if room > 0 {
                self.write_data(number, room);
            }
        }
    }

    fn write_data(&mut self, number: u32, room: usize) {
        let Some(state) = self.streams.get_mut(&number) else { return };
        let bytes = room.min(state.queued_bytes);
        let is_last = bytes == state.queued_bytes && state.ends.as_ref().is_some_and(Fields::is_empty);
        self.outbox.own(|out| frame::write_data_head(out, number, bytes, is_last));
        let mut left = bytes;
        while left > 0
            && let Some(mut piece) = state.queue.pop_front()
        {
            if piece.len() > left {
                let rest = piece.split_off(left);
                state.queue.push_front(rest);
            }
            left -= piece.len();
            self.outbox.shared(piece);
        }
        state.queued_bytes -= bytes;
        let taken = u32::try_from(bytes).unwrap_or(u32::MAX);
        // `room` is no more than either window has.
        let _ = state.window.take(taken, Scope::Connection);
        let _ = self.window.take(taken, Scope::Connection);
        state.is_sent |= is_last;
        let goes_on = !state.queue.is_empty() || state.ends.is_some();
        wake(&mut state.send_waker);
        self.meters.forgive(Flood::WindowUpdate, taken / WINDOW_UPDATE_BYTES);
        if goes_on {
            self.make_ready(number);
        }
    }

    /// Writes the end of a request whose pieces are all written.
    fn end_request(&mut self, number: u32) {
        let Some(trailers) = self.streams.get_mut(&number).and_then(|state| state.ends.take()) else { return };
        match trailers.is_empty() {
            true => self.outbox.own(|out| frame::write_data_head(out, number, 0, true)),
            false => self.write_block(number, true, |out| {
                trailers.iter().for_each(|(name, value)| hpack::write_field(out, name.as_bytes(), value, false));
            }),
        }
        if let Some(state) = self.streams.get_mut(&number) {
            state.is_sent = true;
            wake(&mut state.send_waker);
        }
    }
}

impl StreamState {
    fn new(method: Method, is_reused: bool, window_bytes: u32, is_sent: bool) -> StreamState {
        StreamState {
            method,
            is_reused,
            interims: VecDeque::new(),
            interim_heads: 0,
            head: None,
            is_answered: false,
            has_head: false,
            has_no_body: false,
            expected_bytes: None,
            pieces: VecDeque::new(),
            tail: BytesMut::new(),
            body_has_ended: false,
            trailers: None,
            fault: None,
            receive_window: Window::of(STREAM_WINDOW_BYTES),
            window_bytes: STREAM_WINDOW_BYTES,
            owed_bytes: 0,
            read_waker: None,
            window: Window::of(window_bytes),
            queue: VecDeque::new(),
            queued_bytes: 0,
            ends: None,
            is_sent,
            is_ready: false,
            send_waker: None,
        }
    }

    /// No frame comes or goes any more.
    fn end(&mut self, fault: UpstreamFault) {
        self.fault = Some(fault);
        self.stop_sending();
        wake(&mut self.read_waker);
    }

    /// No more of the request is wanted.
    fn stop_sending(&mut self) {
        self.is_sent = true;
        self.queue.clear();
        self.queued_bytes = 0;
        wake(&mut self.send_waker);
    }

    fn take_piece(&mut self) -> Option<Bytes> {
        self.pieces.pop_front().or_else(|| (!self.tail.is_empty()).then(|| self.tail.split().freeze()))
    }

    fn held_bytes(&self) -> u64 {
        self.pieces.iter().map(Bytes::len).sum::<usize>() as u64 + self.tail.len() as u64
    }

    /// Opens the window of a body by bytes that were taken, once they are many; where all that came was taken, it grows.
    fn grant(&mut self, number: u32, bytes: u32, spare_bytes: &mut u32, outbox: &mut Outbox) {
        self.owed_bytes += bytes;
        if self.owed_bytes < self.window_bytes / 2 || self.body_has_ended {
            return;
        }
        let mut bytes = std::mem::take(&mut self.owed_bytes);
        let has_rest = self.expected_bytes.is_none_or(|rest| rest > u64::from(self.window_bytes));
        if self.pieces.is_empty() && self.tail.is_empty() && has_rest {
            let more = self.window_bytes.min(STREAM_WINDOW_BYTES_MAX - self.window_bytes).min(*spare_bytes);
            self.window_bytes += more;
            *spare_bytes -= more;
            bytes += more;
        }
        // No more than was taken from it, up to its size.
        let _ = self.receive_window.grow(bytes, Scope::Connection);
        outbox.own(|out| frame::write_window_update(out, number, bytes));
    }
}

/// The connection has ended, and its requests have their faults.
fn gone() -> UpstreamFault {
    UpstreamFault::new(UpstreamFaultKind::Reset, "the stream is over")
}
