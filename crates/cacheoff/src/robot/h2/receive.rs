//! Frames of the other end, one by one.

use super::head;
use super::state::{Block, End, EndedBy, Event, State, is_head};
use crate::ledger::Trouble;
use crate::robot::{Desk, Wrong};
use crate::wire::HEAD_LIMITS;
use larder_wire::framing::Framing;
use larder_wire::h2::frame::{self, Frame, PAYLOAD_BYTES_MAX_AT_FIRST, Settings};
use larder_wire::h2::{ErrorCode, H2Fault, Scope};

/// Frames of one field block.
const BLOCK_FRAMES_MAX: usize = 64;
/// Bytes of frames that may wait for a peer that makes the robot write and does not read.
const OUT_BYTES_MAX: usize = 4 << 20;

/// The place of a stream among those that there were.
enum Place {
    UnderWay,
    Ended(EndedBy),
    /// So long ago that nobody knows how.
    Forgotten,
    /// Nobody opened it.
    Idle,
}

impl State {
    /// Takes in bytes; what came of requests is in `events`.
    pub fn receive(&mut self, bytes: &[u8], desk: &Desk<'_>) -> Result<(), End> {
        let mut inbox = std::mem::take(&mut self.inbox);
        inbox.extend_from_slice(bytes);
        if !self.has_settings && inbox.starts_with(b"HTTP/") {
            return Err(connection(ErrorCode::Protocol, "the other end speaks HTTP/1.1"));
        }
        let mut at = 0;
        loop {
            match frame::read(&inbox[at..], PAYLOAD_BYTES_MAX_AT_FIRST) {
                Ok(None) => break,
                Ok(Some((frame, len))) => {
                    at += len;
                    self.frame(frame, desk)?;
                }
                Err(H2Fault { scope: Scope::Stream(stream), code, detail }) if self.may_pass(&inbox[at..]) => {
                    at += frame::frame_len(&inbox[at..]).unwrap_or(inbox.len() - at);
                    self.fail(stream, (Trouble::StreamError, detail.to_owned()), Some(code), desk.now);
                }
                Err(fault) => return Err(connection(fault.code, fault.detail)),
            }
            if self.out.len() > OUT_BYTES_MAX {
                return Err(connection(ErrorCode::EnhanceYourCalm, "the other end asks much and reads nothing"));
            }
        }
        inbox.drain(..at);
        self.inbox = inbox;
        Ok(())
    }

    /// Whether a frame that is wrong for its stream alone can be passed over: a field block that is not read would be missing
    /// in the table.
    fn may_pass(&self, bytes: &[u8]) -> bool {
        const HEADERS: u8 = 1;
        bytes.get(3) != Some(&HEADERS) && self.block.is_none() && self.has_settings
    }

    fn frame(&mut self, frame: Frame<'_>, desk: &Desk<'_>) -> Result<(), End> {
        if !self.has_settings && !matches!(frame, Frame::Settings(_)) {
            return Err(connection(ErrorCode::Protocol, "the first frame is not SETTINGS"));
        }
        if self.block.is_some() && !matches!(frame, Frame::Continuation { .. }) {
            return Err(connection(ErrorCode::Protocol, "another frame within a field block"));
        }
        match frame {
            Frame::Data { stream, data, flow_bytes, ends_stream } => {
                self.data(stream, data, flow_bytes, ends_stream, desk)
            }
            Frame::Headers { stream, fragment, ends_stream, ends_headers } => {
                self.block(Block { stream, ends_stream, bytes: fragment.to_vec(), frames: 1 }, ends_headers, desk)
            }
            Frame::Continuation { stream, fragment, ends_headers } => {
                let Some(mut block) = self.block.take().filter(|block| block.stream == stream) else {
                    return Err(connection(ErrorCode::Protocol, "a CONTINUATION that continues nothing"));
                };
                block.frames += 1;
                block.bytes.extend_from_slice(fragment);
                self.block(block, ends_headers, desk)
            }
            Frame::Reset { stream, code } => self.reset(stream, code, desk),
            Frame::WindowUpdate { stream, bytes } => self.window_update(stream, bytes, desk),
            Frame::PushPromise => {
                let detail = "PUSH_PROMISE, though SETTINGS_ENABLE_PUSH was 0".to_owned();
                Err(End { trouble: Trouble::PushedPromise, detail, code: Some(ErrorCode::Protocol) })
            }
            Frame::Settings(settings) => self.apply(&settings),
            Frame::Ping(text) => {
                frame::write_pong(&mut self.out, text);
                Ok(())
            }
            Frame::GoAway { last, code } => {
                let last = self.leaving.map_or(last, |(before, _)| before.min(last));
                self.leaving = Some((last, code));
                self.take_back(last);
                Ok(())
            }
            Frame::Pong(_) | Frame::Priority { .. } | Frame::PriorityUpdate { .. } => Ok(()),
            Frame::SettingsAck | Frame::Unknown => Ok(()),
        }
    }

    fn place(&self, stream: u32) -> Place {
        if self.streams.contains_key(&stream) {
            return Place::UnderWay;
        }
        if stream >= self.next || stream.is_multiple_of(2) {
            return Place::Idle;
        }
        match self.ended.iter().rfind(|(number, _)| *number == stream) {
            Some((_, by)) => Place::Ended(*by),
            None => Place::Forgotten,
        }
    }

    fn data(
        &mut self,
        number: u32,
        data: &[u8],
        flow_bytes: u32,
        ends_stream: bool,
        desk: &Desk<'_>,
    ) -> Result<(), End> {
        self.receive.take(flow_bytes, Scope::Connection).map_err(|fault| connection(fault.code, fault.detail))?;
        self.owed += flow_bytes;
        if self.owed >= self.settings.connection_window_bytes / 2 {
            // No more than was taken from it.
            let _ = self.receive.grow(self.owed, Scope::Connection);
            frame::write_window_update(&mut self.out, 0, std::mem::take(&mut self.owed));
        }
        match self.place(number) {
            Place::UnderWay => {}
            Place::Ended(EndedBy::Server) => {
                let detail = format!("{} bytes of DATA on stream {number}, after END_STREAM", data.len());
                return Err(lie(Trouble::SurplusBytes, detail, ErrorCode::StreamClosed));
            }
            Place::Ended(EndedBy::Robot) | Place::Forgotten => return Ok(()),
            Place::Idle => {
                let detail = format!("DATA on stream {number}, which nobody opened");
                return Err(lie(Trouble::UnaskedReply, detail, ErrorCode::Protocol));
            }
        }
        self.body(number, data, flow_bytes, ends_stream, desk);
        Ok(())
    }

    /// DATA of a request that is under way.
    fn body(&mut self, number: u32, data: &[u8], flow_bytes: u32, ends_stream: bool, desk: &Desk<'_>) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        stream.active = desk.now;
        if stream.receive.take(flow_bytes, Scope::Stream(number)).is_err() {
            let wrong = (Trouble::StreamError, "more DATA than the window of the stream permits".to_owned());
            return self.fail(number, wrong, Some(ErrorCode::FlowControl), desk.now);
        }
        let job = &mut stream.job;
        let was_head = is_head(job);
        let Some((judge, _)) = &mut job.reply else {
            let wrong = (Trouble::StreamError, "DATA before the head of the reply".to_owned());
            return self.fail(number, wrong, Some(ErrorCode::Protocol), desk.now);
        };
        let left = stream.expected.map(|left| left.checked_sub(data.len() as u64));
        if stream.has_no_body && !data.is_empty() {
            let kind = if was_head { Trouble::HeadBody } else { Trouble::SurplusBytes };
            judge.accuse((kind, format!("{} bytes of DATA after a head that has no body", data.len())));
        } else if left == Some(None) {
            judge.accuse((Trouble::SurplusBytes, "more DATA than Content-Length says".to_owned()));
        }
        if let Some(left) = left {
            stream.expected = Some(left.unwrap_or(0));
        }
        let breaks_off = !stream.has_no_body && job.take_body(data);
        if ends_stream {
            let complete = breaks_off || stream.has_no_body || stream.expected.unwrap_or(0) == 0;
            return self.ended_by_server(number, complete, desk);
        }
        if breaks_off {
            frame::write_reset(&mut self.out, number, ErrorCode::Cancel);
            return self.end_stream(number, EndedBy::Robot, desk.now, true);
        }
        stream.owed += flow_bytes;
        if stream.owed >= (self.settings.stream_window_bytes / 2).max(1) {
            let _ = stream.receive.grow(stream.owed, Scope::Connection);
            frame::write_window_update(&mut self.out, number, std::mem::take(&mut stream.owed));
        }
    }

    /// END_STREAM came.
    fn ended_by_server(&mut self, number: u32, complete: bool, desk: &Desk<'_>) {
        if self.streams.get(&number).is_some_and(|stream| !stream.is_sent) {
            // The rest of the request is not wanted any more (RFC 9113 section 8.1).
            frame::write_reset(&mut self.out, number, ErrorCode::Cancel);
        }
        self.end_stream(number, EndedBy::Server, desk.now, complete);
    }

    fn block(&mut self, block: Block, is_whole: bool, desk: &Desk<'_>) -> Result<(), End> {
        if block.bytes.len() > 2 * HEAD_LIMITS.head_bytes_max || block.frames > BLOCK_FRAMES_MAX {
            return Err(connection(ErrorCode::EnhanceYourCalm, "a field block that does not end"));
        }
        if !is_whole {
            self.block = Some(block);
            return Ok(());
        }
        let mut list = std::mem::take(&mut self.fields);
        list.clear();
        let decoded = self.decoder.decode(&block.bytes, HEAD_LIMITS.head_bytes_max, &mut list);
        self.fields = list;
        decoded.map_err(|fault| connection(fault.code, fault.detail))?;
        let number = block.stream;
        match self.place(number) {
            Place::UnderWay => self.list(&block, desk),
            Place::Ended(EndedBy::Server) => {
                let detail = format!("HEADERS on stream {number}, after END_STREAM");
                return Err(lie(Trouble::UnaskedReply, detail, ErrorCode::StreamClosed));
            }
            Place::Ended(EndedBy::Robot) | Place::Forgotten => {}
            Place::Idle => {
                let detail = format!("HEADERS on stream {number}, which nobody opened");
                return Err(lie(Trouble::UnaskedReply, detail, ErrorCode::Protocol));
            }
        }
        Ok(())
    }

    /// A whole field list of a request that is under way.
    fn list(&mut self, block: &Block, desk: &Desk<'_>) {
        let Some(stream) = self.streams.get_mut(&block.stream) else { return };
        stream.active = desk.now;
        stream.job.first_byte.get_or_insert(desk.now);
        stream.job.head_bytes += (block.bytes.len() + block.frames * frame::HEAD_BYTES) as u64;
        let read = match stream.job.reply.is_some() {
            true if !block.ends_stream => Err("a second head, or trailer fields without END_STREAM".to_owned()),
            true => head::trailers(&self.fields).map(|of_connection| self.trailers(block.stream, of_connection)),
            false => match head::reply(&self.fields) {
                Ok((head, _)) if head.is_interim() => self.interim(block, head.status),
                Ok((head, of_connection)) => self.head(block.stream, &head, of_connection, desk),
                Err(detail) => Err(detail),
            },
        };
        match read {
            Err(detail) => {
                self.fail(block.stream, (Trouble::Malformed, detail), Some(ErrorCode::Protocol), desk.now);
            }
            Ok(()) if block.ends_stream => {
                let stream = self.streams.get(&block.stream);
                let complete = stream.is_some_and(|stream| stream.has_no_body || stream.expected.unwrap_or(0) == 0);
                self.ended_by_server(block.stream, complete, desk);
            }
            Ok(()) => {}
        }
    }

    /// An interim head; 100 lets the body go that was held back.
    fn interim(&mut self, block: &Block, status: u16) -> Result<(), String> {
        if block.ends_stream {
            return Err("an interim head with END_STREAM".to_owned());
        }
        if let Some(stream) = self.streams.get_mut(&block.stream).filter(|_| status == 100) {
            stream.job.held = None;
        }
        Ok(())
    }

    fn trailers(&mut self, number: u32, of_connection: Option<String>) {
        let reply = self.streams.get_mut(&number).and_then(|stream| stream.job.reply.as_mut());
        if let (Some((judge, _)), Some(field)) = (reply, of_connection) {
            judge.accuse(of_a_connection(&field));
        }
    }

    fn head(
        &mut self,
        number: u32,
        head: &larder_wire::ResponseHead,
        of_connection: Option<String>,
        desk: &Desk<'_>,
    ) -> Result<(), String> {
        let turns = &*self.turns.make_contiguous();
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        let framing = stream.job.begin_reply(head, desk, turns)?;
        stream.has_no_body = framing == Framing::None;
        stream.expected = if let Framing::Length(bytes) = framing { Some(bytes) } else { None };
        if let (Some((judge, _)), Some(field)) = (&mut stream.job.reply, of_connection) {
            judge.accuse(of_a_connection(&field));
        }
        Ok(())
    }

    fn reset(&mut self, number: u32, code: ErrorCode, desk: &Desk<'_>) -> Result<(), End> {
        let Some(stream) = self.streams.get(&number) else {
            return match self.place(number) {
                Place::Idle => Err(connection(ErrorCode::Protocol, "RST_STREAM on a stream that nobody opened")),
                _ => Ok(()),
            };
        };
        let came = stream.job.body_bytes;
        if code == ErrorCode::RefusedStream && stream.job.reply.is_none() {
            if let Some(stream) = self.streams.remove(&number) {
                self.note_end(number, EndedBy::Server);
                let detail = "RST_STREAM (refused-stream), again and again".to_owned();
                self.events.push_back(Event::Again(stream.job, Trouble::StreamRefused, detail));
            }
            return Ok(());
        }
        let detail = format!("RST_STREAM ({}) after {came} bytes of the body", code.as_str());
        self.fail(number, (Trouble::StreamReset, detail), None, desk.now);
        Ok(())
    }

    fn window_update(&mut self, number: u32, bytes: u32, desk: &Desk<'_>) -> Result<(), End> {
        if number == 0 {
            let grown = self.window.grow(bytes, Scope::Connection);
            return grown.map_err(|fault| connection(fault.code, fault.detail));
        }
        let place = self.place(number);
        match (self.streams.get_mut(&number), place) {
            (Some(stream), _) => {
                if let Err(fault) = stream.window.grow(bytes, Scope::Stream(number)) {
                    let wrong = (Trouble::StreamError, fault.detail.to_owned());
                    self.fail(number, wrong, Some(fault.code), desk.now);
                }
                Ok(())
            }
            (None, Place::Idle) => Err(connection(ErrorCode::Protocol, "WINDOW_UPDATE on a stream that nobody opened")),
            (None, _) => Ok(()),
        }
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), End> {
        self.has_settings = true;
        self.streams_max = settings.streams_max.unwrap_or(self.streams_max);
        if let Some(window) = settings.window {
            let by = i64::from(window) - i64::from(std::mem::replace(&mut self.initial_window, window));
            for stream in self.streams.values_mut() {
                let shifted = stream.window.shift(by, Scope::Connection);
                shifted.map_err(|fault| connection(fault.code, fault.detail))?;
            }
        }
        frame::write_settings_ack(&mut self.out);
        Ok(())
    }
}

/// A rule that the other end broke and that ends the connection.
fn connection(code: ErrorCode, detail: &str) -> End {
    End { trouble: Trouble::ConnectionError, detail: format!("{}: {detail}", code.as_str()), code: Some(code) }
}

/// Bytes that belong to no request.
fn lie(trouble: Trouble, detail: String, code: ErrorCode) -> End {
    End { trouble, detail, code: Some(code) }
}

fn of_a_connection(field: &str) -> Wrong {
    (Trouble::ConnectionField, format!("a field of HTTP/1.1's connections: {field:?}"))
}
