//! Frames of the client, one by one.

use super::{
    Block, CONNECTION_WINDOW_BYTES, EndedBy, Event, Expects, Flood, STREAMS_MAX, State, StreamState, Trouble, urgency,
    wake,
};
use bytes::Buf;
use larder_wire::Side;
use larder_wire::field_list;
use larder_wire::h2::frame::{self, Frame, HEAD_BYTES, PAYLOAD_BYTES_MAX_AT_FIRST, Settings};
use larder_wire::h2::{ErrorCode, H2Fault, PREFACE, Scope};

/// DATA frames of fewer bytes are counted, unless they end their stream.
const SMALL_DATA_BYTES: usize = 64;
/// Frames of one field block.
const BLOCK_FRAMES_MAX: usize = 16;
/// The type HEADERS among the bytes of a frame's head.
const HEADERS: u8 = 1;

type Handled = Result<Option<Event>, Trouble>;

const fn protocol(detail: &'static str) -> Trouble {
    Trouble::Fault(H2Fault::connection(ErrorCode::Protocol, detail))
}

impl State {
    /// The next event in the bytes that were read.
    pub fn next_event(&mut self) -> Result<Event, Trouble> {
        if self.expects == Expects::Preface && !self.skip_preface()? {
            return Ok(Event::NeedsBytes);
        }
        // The frame borrows the bytes, and its reader changes all else.
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut at = 0;
        let event = loop {
            match self.read_frame(&inbox[at..]) {
                Ok((None, 0)) => break Ok(Event::NeedsBytes),
                Ok((None, bytes)) => at += bytes,
                Ok((Some(event), bytes)) => {
                    at += bytes;
                    break Ok(event);
                }
                Err(trouble) => break Err(trouble),
            }
        };
        match at == inbox.len() {
            true => inbox.clear(),
            false => inbox.advance(at),
        }
        self.inbox = inbox;
        event
    }

    fn skip_preface(&mut self) -> Result<bool, Trouble> {
        let many = self.inbox.len().min(PREFACE.len());
        if self.inbox[..many] != PREFACE[..many] {
            return Err(protocol("the connection does not begin with the preface"));
        }
        if many < PREFACE.len() {
            return Ok(false);
        }
        self.inbox.advance(many);
        self.expects = Expects::Settings;
        Ok(true)
    }

    /// Reads a frame; gives its bytes, none where it is not whole yet.
    fn read_frame(&mut self, bytes: &[u8]) -> Result<(Option<Event>, usize), Trouble> {
        let (frame, length) = match frame::read(bytes, PAYLOAD_BYTES_MAX_AT_FIRST) {
            Ok(None) => return Ok((None, 0)),
            Ok(Some(read)) => read,
            Err(fault @ H2Fault { scope: Scope::Stream(stream), code, detail }) => {
                // The field block of a frame that was not read would be missing in the table.
                if bytes.get(3) == Some(&HEADERS) || self.block.is_some() || self.expects != Expects::Frames {
                    return Err(H2Fault::connection(code, detail).into());
                }
                if stream > self.last_stream {
                    return Err(H2Fault { scope: Scope::Connection, ..fault }.into());
                }
                self.note(Flood::MadeReset)?;
                self.reset(stream, code);
                return Ok((None, frame::frame_len(bytes).unwrap_or(HEAD_BYTES)));
            }
            Err(fault) => return Err(fault.into()),
        };
        if self.expects == Expects::Settings {
            if !matches!(frame, Frame::Settings(_)) {
                return Err(protocol("the first frame is not SETTINGS"));
            }
            self.expects = Expects::Frames;
        }
        if self.block.is_some() && !matches!(frame, Frame::Continuation { .. }) {
            return Err(protocol("another frame within a field block"));
        }
        match self.handle(frame) {
            Ok(event) => Ok((event, length)),
            Err(Trouble::Fault(H2Fault { scope: Scope::Stream(stream), code, .. })) => {
                self.note(Flood::MadeReset)?;
                match code {
                    ErrorCode::Protocol => self.reset_for_fault(stream, code),
                    // Windows and the ends of streams say nothing of the request.
                    _ => self.reset(stream, code),
                }
                Ok((None, length))
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn handle(&mut self, frame: Frame<'_>) -> Handled {
        match frame {
            Frame::Data { stream, data, flow_bytes, ends_stream } => {
                self.data(stream, data, flow_bytes, ends_stream)?;
            }
            Frame::Headers { stream, fragment, ends_stream, ends_headers } => {
                self.check_stream(stream)?;
                let block = Block { stream, ends_stream, bytes: fragment.to_vec(), frames: 1 };
                return self.block(block, ends_headers);
            }
            Frame::Continuation { stream, fragment, ends_headers } => {
                let Some(mut block) = self.block.take().filter(|block| block.stream == stream) else {
                    return Err(protocol("a CONTINUATION that continues nothing"));
                };
                block.frames += 1;
                block.bytes.extend_from_slice(fragment);
                return self.block(block, ends_headers);
            }
            Frame::Reset { stream, .. } => self.reset_by_client(stream)?,
            Frame::WindowUpdate { stream, bytes } => self.window_update(stream, bytes)?,
            Frame::PushPromise => return Err(protocol("a client promises nothing")),
            Frame::Settings(settings) => {
                self.note(Flood::Control)?;
                self.apply(&settings)?;
                self.outbox.own(frame::write_settings_ack);
            }
            Frame::Ping(text) => {
                self.note(Flood::Control)?;
                self.outbox.own(|out| frame::write_pong(out, text));
            }
            Frame::PriorityUpdate { stream, value } => {
                self.note(Flood::Control)?;
                if let (Some(state), Some(urgency)) = (self.streams.get_mut(&stream), urgency(value)) {
                    // A stream that waits in the queue of its old urgency goes on from there.
                    state.urgency = urgency;
                }
            }
            Frame::Priority { .. } | Frame::SettingsAck | Frame::Pong(_) | Frame::GoAway { .. } | Frame::Unknown => {
                self.note(Flood::Control)?;
            }
        }
        Ok(None)
    }

    /// Whether HEADERS may come on this stream.
    fn check_stream(&mut self, stream: u32) -> Result<(), Trouble> {
        if stream.is_multiple_of(2) {
            return Err(protocol("a client opens streams of odd numbers"));
        }
        if stream > self.last_stream || self.streams.contains_key(&stream) {
            return Ok(());
        }
        match self.ended_by(stream) {
            Some(EndedBy::Larder | EndedBy::Fault) => Ok(()),
            Some(EndedBy::Client) => {
                Err(H2Fault::connection(ErrorCode::StreamClosed, "HEADERS on a stream that has ended").into())
            }
            None => Err(protocol("a stream with a lower number than an earlier one")),
        }
    }

    pub(super) fn ended_by(&self, stream: u32) -> Option<EndedBy> {
        self.ended.iter().rev().find(|(ended, _)| *ended == stream).map(|(_, by)| *by)
    }

    /// Keeps a field block until it is whole, and then decodes it.
    fn block(&mut self, block: Block, is_whole: bool) -> Handled {
        // A block may be as long as the list that it makes, and no longer; empty frames are counted.
        if block.bytes.len() > self.list_bytes_max || block.frames > BLOCK_FRAMES_MAX {
            return Err(Trouble::Flood(Flood::FieldBlock));
        }
        if !is_whole {
            self.block = Some(block);
            return Ok(None);
        }
        self.fields.clear();
        self.decoder.decode(&block.bytes, self.list_bytes_max, &mut self.fields)?;
        let Block { stream, ends_stream, .. } = block;
        if stream <= self.last_stream {
            return self.trailers(stream, ends_stream).map(|()| None);
        }
        self.last_stream = stream;
        if self.is_leaving {
            return Ok(None);
        }
        if self.is_full() {
            self.note(Flood::Control)?;
            self.refused += 1;
            self.reset(stream, ErrorCode::RefusedStream);
            return Ok(None);
        }
        self.streams.insert(stream, StreamState::new(self.client_window_bytes, ends_stream));
        Ok(Some(Event::Request { stream, ends_stream }))
    }

    /// Whether as many streams are open as may be. One whose both sides have ended does not count, but its exchange may go on for a
    /// moment.
    fn is_full(&self) -> bool {
        let is_open = |state: &&StreamState| !(state.is_answered && state.body_has_ended);
        self.streams.len() >= STREAMS_MAX
            && (self.streams.len() >= 2 * STREAMS_MAX || self.streams.values().filter(is_open).count() >= STREAMS_MAX)
    }

    fn trailers(&mut self, stream: u32, ends_stream: bool) -> Result<(), Trouble> {
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(()) };
        if state.body_has_ended {
            return Err(H2Fault::stream(stream, ErrorCode::StreamClosed, "HEADERS behind the end of a stream").into());
        }
        let malformed = |detail| Trouble::Fault(H2Fault::stream(stream, ErrorCode::Protocol, detail));
        if state.is_tunnel {
            return Err(malformed("HEADERS in a tunnel"));
        }
        if !ends_stream {
            return Err(malformed("trailer fields that do not end their stream"));
        }
        let trailers =
            field_list::trailers(&self.fields, Side::Client).map_err(|_| malformed("malformed trailer fields"))?;
        state.trailers = Some(trailers);
        state.end_body(stream)
    }

    fn data(&mut self, stream: u32, data: &[u8], flow_bytes: u32, ends_stream: bool) -> Result<(), Trouble> {
        self.receive_window.take(flow_bytes, Scope::Connection)?;
        self.owed_bytes += flow_bytes;
        if self.owed_bytes >= CONNECTION_WINDOW_BYTES / 2 {
            let bytes = std::mem::take(&mut self.owed_bytes);
            self.receive_window.grow(bytes, Scope::Connection)?;
            self.outbox.own(|out| frame::write_window_update(out, 0, bytes));
        }
        if !ends_stream {
            match data.len() {
                0 => self.note(Flood::Control)?,
                1..SMALL_DATA_BYTES => self.note(Flood::SmallData)?,
                _ => {}
            }
        }
        let closed = H2Fault::stream(stream, ErrorCode::StreamClosed, "DATA behind the end of a stream");
        let Some(state) = self.streams.get_mut(&stream) else {
            return match self.ended_by(stream) {
                _ if stream > self.last_stream => Err(protocol("DATA on a stream that was not opened")),
                Some(EndedBy::Larder | EndedBy::Fault) => Ok(()),
                _ => Err(closed.into()),
            };
        };
        if state.body_has_ended {
            return Err(closed.into());
        }
        state.receive_window.take(flow_bytes, Scope::Stream(stream))?;
        if let Some(expected) = &mut state.expected_bytes {
            let rest = expected.checked_sub(data.len() as u64);
            let detail = "more DATA than Content-Length says";
            *expected = rest.ok_or(H2Fault::stream(stream, ErrorCode::Protocol, detail))?;
        }
        state.body.extend_from_slice(data);
        let padding = flow_bytes - data.len() as u32;
        if padding > 0 {
            state.grant(stream, padding, &mut self.spare_bytes, &mut self.outbox);
        }
        if ends_stream {
            state.end_body(stream)?;
        }
        wake(&mut state.body_waker);
        Ok(())
    }

    fn reset_by_client(&mut self, stream: u32) -> Result<(), Trouble> {
        if stream > self.last_stream {
            return Err(protocol("RST_STREAM on a stream that was not opened"));
        }
        let Some(state) = self.remove(stream) else { return self.note(Flood::Control) };
        state.end();
        self.note_end(stream, EndedBy::Client);
        self.note(Flood::RapidReset)
    }

    fn window_update(&mut self, stream: u32, bytes: u32) -> Result<(), Trouble> {
        self.note(Flood::WindowUpdate)?;
        if stream == 0 {
            return Ok(self.window.grow(bytes, Scope::Connection)?);
        }
        if stream > self.last_stream {
            return Err(protocol("WINDOW_UPDATE on a stream that was not opened"));
        }
        if let Some(state) = self.streams.get_mut(&stream) {
            state.window.grow(bytes, Scope::Stream(stream))?;
            if state.queued_bytes > 0 {
                self.make_ready(stream);
            }
        }
        Ok(())
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), Trouble> {
        if let Some(bytes) = settings.payload_bytes_max {
            self.payload_bytes_max = bytes.min(PAYLOAD_BYTES_MAX_AT_FIRST);
        }
        let Some(window) = settings.window else { return Ok(()) };
        let by = i64::from(window) - i64::from(self.client_window_bytes);
        self.client_window_bytes = window;
        let mut opened = Vec::new();
        for (stream, state) in &mut self.streams {
            state.window.shift(by, Scope::Connection)?;
            if state.queued_bytes > 0 && state.window.room() > 0 {
                opened.push(*stream);
            }
        }
        opened.into_iter().for_each(|stream| self.make_ready(stream));
        Ok(())
    }
}

impl StreamState {
    fn end_body(&mut self, stream: u32) -> Result<(), Trouble> {
        if self.expected_bytes.is_some_and(|expected| expected > 0) {
            let detail = "less DATA than Content-Length says";
            return Err(H2Fault::stream(stream, ErrorCode::Protocol, detail).into());
        }
        self.body_has_ended = true;
        wake(&mut self.body_waker);
        Ok(())
    }
}
