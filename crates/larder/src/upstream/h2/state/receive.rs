//! Frames of the origin, one by one.

use super::super::super::fault::{UpstreamFault, UpstreamFaultKind};
use super::super::head;
use super::{
    Block, CONNECTION_WINDOW_BYTES, EndedBy, Flood, PAYLOAD_BYTES_MAX, State, StreamState, Trouble, unprocessed, wake,
    wire_fault,
};
use bytes::Bytes;
use larder_wire::field_list;
use larder_wire::framing::{self, Framing};
use larder_wire::h2::frame::{self, Frame, HEAD_BYTES, Settings};
use larder_wire::h2::{ErrorCode, H2Fault, Scope};
use larder_wire::{Fault, FaultKind, Side};

/// DATA frames of fewer bytes are counted, unless they end their stream.
const SMALL_DATA_BYTES: usize = 64;
/// DATA of fewer bytes is copied behind the last, so that small frames do not each hold a whole buffer.
const COPIED_DATA_BYTES: usize = 4 * 1024;
/// Frames of one field block.
const BLOCK_FRAMES_MAX: usize = 16;
/// The type HEADERS among the bytes of a frame's head.
const HEADERS: u8 = 1;

const fn protocol(detail: &'static str) -> Trouble {
    Trouble::Fault(H2Fault::connection(ErrorCode::Protocol, detail))
}

impl State {
    /// Takes in all whole frames of the bytes that were read.
    pub fn read_frames(&mut self) -> Result<(), Trouble> {
        while let Some(length) = frame::frame_len(&self.inbox) {
            if length > HEAD_BYTES + PAYLOAD_BYTES_MAX as usize {
                return Err(
                    H2Fault::connection(ErrorCode::FrameSize, "a frame longer than SETTINGS_MAX_FRAME_SIZE").into()
                );
            }
            if self.inbox.len() < length || !self.may_read() {
                break;
            }
            let bytes = self.inbox.split_to(length).freeze();
            self.read_frame(&bytes)?;
        }
        Ok(())
    }

    fn read_frame(&mut self, bytes: &Bytes) -> Result<(), Trouble> {
        let frame = match frame::read(bytes, PAYLOAD_BYTES_MAX) {
            // The caller gives a whole frame.
            Ok(None) => return Ok(()),
            Ok(Some((frame, _))) => frame,
            Err(fault @ H2Fault { scope: Scope::Stream(stream), code, detail }) => {
                // The field block of a frame that was not read would be missing in the table.
                let is_of_all = bytes.get(3) == Some(&HEADERS) || self.block.is_some() || !self.has_settings;
                if is_of_all || stream >= self.next {
                    return Err(H2Fault { scope: Scope::Connection, ..fault }.into());
                }
                self.meters.note(Flood::Control)?;
                self.fail(stream, wire_fault(detail), Some(code));
                return Ok(());
            }
            Err(fault) => return Err(fault.into()),
        };
        if !self.has_settings && !matches!(frame, Frame::Settings(_)) {
            return Err(protocol("the first frame is not SETTINGS"));
        }
        if self.block.is_some() && !matches!(frame, Frame::Continuation { .. }) {
            return Err(protocol("another frame within a field block"));
        }
        self.handle(frame, bytes)
    }

    fn handle(&mut self, frame: Frame<'_>, bytes: &Bytes) -> Result<(), Trouble> {
        match frame {
            Frame::Data { stream, data, flow_bytes, ends_stream } => {
                self.data(stream, &bytes.slice_ref(data), flow_bytes, ends_stream)
            }
            Frame::Headers { stream, fragment, ends_stream, ends_headers } => {
                self.check_opened(stream, "HEADERS on a stream that was not opened")?;
                self.block(Block { stream, ends_stream, bytes: fragment.to_vec(), frames: 1 }, ends_headers)
            }
            Frame::Continuation { stream, fragment, ends_headers } => {
                let Some(mut block) = self.block.take().filter(|block| block.stream == stream) else {
                    return Err(protocol("a CONTINUATION that continues nothing"));
                };
                block.frames += 1;
                block.bytes.extend_from_slice(fragment);
                self.block(block, ends_headers)
            }
            Frame::Reset { stream, code } => self.reset_by_origin(stream, code),
            Frame::WindowUpdate { stream, bytes } => self.window_update(stream, bytes),
            Frame::PushPromise => Err(protocol("a PUSH_PROMISE, which SETTINGS_ENABLE_PUSH forbids")),
            Frame::Settings(settings) => self.apply(&settings),
            Frame::Ping(text) => {
                self.meters.note(Flood::Control)?;
                self.outbox.own(|out| frame::write_pong(out, text));
                Ok(())
            }
            Frame::Pong(text) => {
                if self.ping == Some(text) {
                    self.ping = None;
                    return Ok(());
                }
                Ok(self.meters.note(Flood::Control)?)
            }
            Frame::GoAway { last, code } => self.go_away(last, code),
            Frame::Priority { .. } | Frame::PriorityUpdate { .. } | Frame::SettingsAck | Frame::Unknown => {
                Ok(self.meters.note(Flood::Control)?)
            }
        }
    }

    /// Whether this is the number of a stream that was opened.
    fn check_opened(&self, stream: u32, detail: &'static str) -> Result<(), Trouble> {
        match stream.is_multiple_of(2) || stream >= self.next {
            true => Err(protocol(detail)),
            false => Ok(()),
        }
    }

    /// Keeps a field block until it is whole, and then decodes it.
    fn block(&mut self, block: Block, is_whole: bool) -> Result<(), Trouble> {
        // A block may be as long as the list that it makes, and no longer; empty frames are counted.
        let list_bytes_max = self.limits.heads.head_bytes_max;
        if block.bytes.len() > list_bytes_max || block.frames > BLOCK_FRAMES_MAX {
            return Err(Trouble::Flood(Flood::FieldBlock));
        }
        if !is_whole {
            self.block = Some(block);
            return Ok(());
        }
        self.fields.clear();
        self.decoder.decode(&block.bytes, list_bytes_max, &mut self.fields)?;
        let Block { stream, ends_stream, .. } = block;
        match self.streams.get_mut(&stream).filter(|state| state.fault.is_none()) {
            None => return self.late(stream, 0),
            Some(state) if state.body_has_ended => return Err(behind_end()),
            Some(_) => {}
        }
        let taken = match self.streams.get(&stream).is_some_and(|state| state.has_head) {
            true => self.trailers(stream, ends_stream),
            false => self.head(stream, ends_stream),
        };
        if let Err(fault) = taken {
            self.fail(stream, fault, Some(ErrorCode::Protocol));
        }
        Ok(())
    }

    fn head(&mut self, stream: u32, ends_stream: bool) -> Result<(), UpstreamFault> {
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(()) };
        state.is_answered = true;
        let head = head::response(&self.fields, &mut self.text, &self.limits.heads).map_err(UpstreamFault::wire)?;
        if head.is_interim() {
            if ends_stream {
                return Err(wire_fault("an interim head that ends its stream"));
            }
            state.interim_heads += 1;
            let max = self.limits.interim_heads_max;
            if state.interim_heads > max {
                let detail = format!("more than {max} interim heads and no answer");
                return Err(UpstreamFault::new(UpstreamFaultKind::TooManyInterim, detail));
            }
            state.interims.push_back(head);
            wake(&mut state.read_waker);
            return Ok(());
        }
        match framing::of_response(&head, &state.method).map_err(UpstreamFault::wire)? {
            Framing::None => state.has_no_body = true,
            Framing::Length(bytes) => state.expected_bytes = Some(bytes),
            Framing::Chunked | Framing::UntilClose => {}
        }
        state.has_head = true;
        if ends_stream {
            state.end_body()?;
        }
        state.head = Some(head);
        wake(&mut state.read_waker);
        Ok(())
    }

    fn trailers(&mut self, stream: u32, ends_stream: bool) -> Result<(), UpstreamFault> {
        if !ends_stream {
            return Err(wire_fault("trailer fields that do not end their stream"));
        }
        let trailers = field_list::trailers(&self.fields, Side::Origin).map_err(UpstreamFault::wire)?;
        let Some(state) = self.streams.get_mut(&stream) else { return Ok(()) };
        state.end_body()?;
        state.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
        Ok(())
    }

    /// A frame for a stream that is over. One that the origin has ended takes no more of it; one that Larder has reset may get what was on
    /// its way.
    fn late(&mut self, stream: u32, flow_bytes: u32) -> Result<(), Trouble> {
        let ended = self.ended.iter_mut().rev().find(|(ended, _)| *ended == stream);
        match ended {
            Some((_, EndedBy::Origin)) => Err(behind_end()),
            Some((_, EndedBy::Larder(window, _))) if flow_bytes > 0 => Ok(window.take(flow_bytes, Scope::Connection)?),
            Some((_, EndedBy::Larder(_, frames @ 1..))) => {
                *frames -= 1;
                Ok(())
            }
            _ => Ok(self.meters.note(Flood::Control)?),
        }
    }

    fn data(&mut self, stream: u32, data: &Bytes, flow_bytes: u32, ends_stream: bool) -> Result<(), Trouble> {
        self.check_opened(stream, "DATA on a stream that was not opened")?;
        self.receive_window.take(flow_bytes, Scope::Connection)?;
        self.owed_bytes += flow_bytes;
        if self.owed_bytes >= CONNECTION_WINDOW_BYTES / 2 {
            let bytes = std::mem::take(&mut self.owed_bytes);
            self.receive_window.grow(bytes, Scope::Connection)?;
            self.outbox.own(|out| frame::write_window_update(out, 0, bytes));
        }
        if !ends_stream {
            match data.len() {
                0 => self.meters.note(Flood::Control)?,
                1..SMALL_DATA_BYTES => self.meters.note(Flood::SmallData)?,
                _ => {}
            }
        }
        let Some(state) = self.streams.get_mut(&stream).filter(|state| state.fault.is_none()) else {
            return self.late(stream, flow_bytes);
        };
        if state.body_has_ended {
            return Err(behind_end());
        }
        // An origin that passes over the window of a stream would fill the memory of this side.
        state.receive_window.take(flow_bytes, Scope::Connection)?;
        let padding = flow_bytes - data.len() as u32;
        if padding > 0 {
            state.grant(stream, padding, &mut self.spare_bytes, &mut self.outbox);
        }
        if let Err(fault) = state.take_data(data, ends_stream) {
            self.fail(stream, fault, Some(ErrorCode::Protocol));
        }
        Ok(())
    }

    fn reset_by_origin(&mut self, stream: u32, code: ErrorCode) -> Result<(), Trouble> {
        self.check_opened(stream, "RST_STREAM on a stream that was not opened")?;
        let Some(state) = self.streams.get_mut(&stream).filter(|state| state.fault.is_none()) else {
            return match self.ended.iter().any(|(ended, by)| *ended == stream && matches!(by, EndedBy::Origin)) {
                // It needs no more of a request whose answer is whole.
                true => Ok(self.meters.note(Flood::Control)?),
                false => self.late(stream, 0),
            };
        };
        let word = code.as_str();
        if state.body_has_ended {
            // The response is whole; the rest of the request is not wanted (RFC 9113 section 8.1).
            state.stop_sending();
            return Ok(());
        }
        let fault = match code {
            ErrorCode::RefusedStream if !state.is_answered => unprocessed("the origin refused the stream"),
            ErrorCode::Http11Required if !state.is_answered => unprocessed(HTTP_1_1_REQUIRED),
            _ if state.is_answered => UpstreamFault::new(
                UpstreamFaultKind::Truncated,
                format!("the origin reset the stream of its answer: {word}"),
            ),
            _ => UpstreamFault::new(
                UpstreamFaultKind::Reset,
                format!("the origin reset the stream without an answer: {word}"),
            ),
        };
        self.needs_http11 |= code == ErrorCode::Http11Required;
        self.fail(stream, fault, None);
        Ok(())
    }

    fn go_away(&mut self, last: u32, code: ErrorCode) -> Result<(), Trouble> {
        self.meters.note(Flood::Control)?;
        self.is_leaving = true;
        self.needs_http11 |= code == ErrorCode::Http11Required;
        let above: Vec<u32> = self.streams.range(last.saturating_add(1)..).map(|(number, _)| *number).collect();
        for number in above {
            let detail = format!("the origin left without this request (GOAWAY, {})", code.as_str());
            self.fail(number, unprocessed(detail), None);
        }
        Ok(())
    }

    fn window_update(&mut self, stream: u32, bytes: u32) -> Result<(), Trouble> {
        self.meters.note(Flood::WindowUpdate)?;
        if stream == 0 {
            return Ok(self.window.grow(bytes, Scope::Connection)?);
        }
        self.check_opened(stream, "WINDOW_UPDATE on a stream that was not opened")?;
        let Some(state) = self.streams.get_mut(&stream).filter(|state| state.fault.is_none()) else { return Ok(()) };
        if let Err(fault) = state.window.grow(bytes, Scope::Stream(stream)) {
            self.fail(stream, wire_fault(fault.detail), Some(ErrorCode::FlowControl));
        } else if state.queued_bytes > 0 {
            self.make_ready(stream);
        }
        Ok(())
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), Trouble> {
        self.meters.note(Flood::Control)?;
        self.has_settings = true;
        if settings.takes_pushes == Some(true) {
            return Err(protocol("a server that says SETTINGS_ENABLE_PUSH"));
        }
        if let Some(max) = settings.streams_max {
            self.origin_streams_max = max;
        }
        if let Some(bytes) = settings.payload_bytes_max {
            self.payload_bytes_max = bytes.min(PAYLOAD_BYTES_MAX);
        }
        if let Some(window) = settings.window {
            let by = i64::from(window) - i64::from(self.origin_window_bytes);
            self.origin_window_bytes = window;
            let mut opened = Vec::new();
            for (stream, state) in &mut self.streams {
                state.window.shift(by, Scope::Connection)?;
                if state.queued_bytes > 0 && state.window.room() > 0 {
                    opened.push(*stream);
                }
            }
            opened.into_iter().for_each(|stream| self.make_ready(stream));
        }
        self.outbox.own(frame::write_settings_ack);
        Ok(())
    }
}

/// The reason of an origin that takes requests by HTTP/1.1 alone.
const HTTP_1_1_REQUIRED: &str = "the origin wants HTTP/1.1 for this request";

/// Bytes behind the end of a response: nobody can know which response they belong to.
fn behind_end() -> Trouble {
    Trouble::Fault(H2Fault::connection(ErrorCode::StreamClosed, "a frame behind the end of its stream"))
}

impl StreamState {
    fn take_data(&mut self, data: &Bytes, ends_stream: bool) -> Result<(), UpstreamFault> {
        if !self.has_head {
            self.is_answered = true;
            return Err(wire_fault("DATA before a head"));
        }
        let length = |detail| Err(UpstreamFault::wire(Fault::origin(FaultKind::ContentLength, detail)));
        if self.has_no_body && !data.is_empty() {
            return Err(wire_fault("DATA of a response that has no body"));
        }
        if let Some(expected) = &mut self.expected_bytes {
            match expected.checked_sub(data.len() as u64) {
                Some(rest) => *expected = rest,
                None => return length("more DATA than Content-Length says"),
            }
        }
        if data.len() >= COPIED_DATA_BYTES {
            if !self.tail.is_empty() {
                self.pieces.push_back(self.tail.split().freeze());
            }
            self.pieces.push_back(data.clone());
        } else {
            self.tail.extend_from_slice(data);
        }
        if ends_stream {
            self.end_body()?;
        }
        wake(&mut self.read_waker);
        Ok(())
    }

    fn end_body(&mut self) -> Result<(), UpstreamFault> {
        if !self.has_no_body && self.expected_bytes.is_some_and(|expected| expected > 0) {
            let fault = Fault::origin(FaultKind::ContentLength, "less DATA than Content-Length says");
            return Err(UpstreamFault::wire(fault));
        }
        self.body_has_ended = true;
        wake(&mut self.read_waker);
        Ok(())
    }
}
