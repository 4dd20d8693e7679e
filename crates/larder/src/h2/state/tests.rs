//! The state against clients that send anything, in any order, and exchanges that do anything.

use super::*;
use larder_wire::h2::PREFACE;
use larder_wire::h2::frame::Frame;
use std::collections::BTreeMap;
use std::task::Waker;

/// Draws that are the same for each seed (xorshift).
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

const LIST_BYTES_MAX: usize = 4 * 1024;

/// A stream as the client has seen it.
#[derive(Default)]
struct Seen {
    heads: usize,
    has_ended: bool,
    is_reset: bool,
    room: i64,
}

/// A connection whose client and exchanges are drawn.
struct Play {
    draw: Draw,
    state: State,
    next_stream: u32,
    seen: BTreeMap<u32, Seen>,
    /// Bytes that the client takes on all streams together, and on a new one.
    room: i64,
    window: i64,
}

impl Play {
    fn new(seed: u64) -> Play {
        let mut inbox = BytesMut::from(PREFACE);
        let mut out = Vec::new();
        let window = 1 << (seed % 18);
        frame::write_settings(&mut out, &Settings { window: Some(window), ..Settings::default() });
        inbox.extend_from_slice(&out);
        let state = State::new(inbox, LIST_BYTES_MAX);
        let (room, window) = (i64::from(WINDOW_AT_FIRST), i64::from(window));
        Play { draw: Draw(seed * 2 + 1), state, next_stream: 1, seen: BTreeMap::new(), room, window }
    }

    fn any_stream(&mut self) -> u32 {
        match self.draw.below(2_000) {
            0 => 0,
            1 => self.next_stream + 2,
            _ => u32::try_from(self.draw.below(u64::from(self.next_stream))).unwrap() | 1,
        }
    }

    fn client_sends(&mut self) {
        let mut out = Vec::new();
        let stream = self.any_stream();
        let bytes = self.draw.below(20_000) as usize;
        let ends = self.draw.below(3) == 0;
        // Frames on streams that were never opened end the connection: they are rare.
        let is_known = self.seen.contains_key(&stream) || self.draw.below(300) == 0;
        match self.draw.below(if is_known { 14 } else { 4 }) {
            0..=3 => {
                let mut block = Vec::new();
                hpack::write_field(&mut block, b":method", b"GET", false);
                let stream = self.next_stream;
                self.next_stream += 2;
                self.seen.insert(stream, Seen { room: self.window, ..Seen::default() });
                frame::write_block(&mut out, stream, &block, ends, 16_384);
            }
            4..=6 => {
                frame::write_data_head(&mut out, stream, bytes.min(16_384), ends);
                out.resize(out.len() + bytes.min(16_384), 0);
            }
            7..=9 => {
                let stream = if self.draw.below(3) == 0 { 0 } else { stream };
                let more = 1 + self.draw.below(40_000) as u32;
                frame::write_window_update(&mut out, stream, more);
                match self.seen.get_mut(&stream) {
                    Some(seen) => seen.room += i64::from(more),
                    None if stream == 0 => self.room += i64::from(more),
                    None => {}
                }
            }
            10 => frame::write_reset(&mut out, stream, ErrorCode::Cancel),
            11 => frame::write_ping(&mut out, *b"12345678"),
            12 if self.draw.below(40) == 0 => {
                // No frame at all.
                let noise: Vec<u8> = (0..30).map(|_| self.draw.below(256) as u8).collect();
                out.extend_from_slice(&noise);
            }
            _ if self.state.has(stream) || self.draw.below(100) == 0 => {
                frame::write_block(&mut out, stream, b"\x40\x01a\x01b", true, 16_384);
            }
            _ => {}
        }
        self.state.take(&out);
    }

    fn exchange_acts(&mut self) {
        let stream = self.any_stream();
        if !self.state.has(stream) {
            return;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        match self.draw.below(9) {
            0 => self.state.begin_tunnel(stream),
            1 => {
                let _ = self.state.poll_body(stream, self.draw.below(70_000) as usize + 1, cx);
            }
            2 => self.state.end_body(stream, Fields::default()),
            3 => self.state.finish(stream),
            4 => self.state.end_tunnel(stream, ErrorCode::Connect),
            5 => {
                let _ = self.state.poll_flushed(stream, 1, cx);
            }
            _ => {
                if let Poll::Ready(Ok(room)) = self.state.poll_room(stream, 64 * 1024, cx) {
                    let bytes = room.min(self.draw.below(30_000) as usize);
                    self.state.queue(stream, Bytes::from(vec![0; bytes]));
                }
            }
        }
    }

    /// Handles what has come; an end of the connection is one.
    fn handle(&mut self) -> Result<(), Trouble> {
        while self.state.may_read() {
            match self.state.next_event()? {
                Event::NeedsBytes => break,
                Event::Request { stream, .. } => {
                    self.state.write_block(stream, false, |out| hpack::write_field(out, b":status", b"200", false));
                    let length = [None, Some(70_000), Some(1)][self.draw.below(3) as usize];
                    self.state.expect_body(stream, length);
                }
            }
        }
        self.state.pump();
        Ok(())
    }

    fn check_bounds(&self) {
        let state = &self.state;
        assert!(state.inbox.len() < 3 * (16_384 + 9), "{} bytes wait to be read", state.inbox.len());
        assert!(state.streams.len() <= 2 * STREAMS_MAX && state.ended.len() <= ENDED_STREAMS_MAX);
        assert!(state.outbox.len() < OUTBOX_BYTES_MAX + OUTBOX_OWN_BYTES_MAX + 20_000, "{}", state.outbox.len());
        let mut windows = 0;
        for stream in state.streams.values() {
            assert!(stream.body.len() <= stream.window_bytes as usize, "more than the window");
            windows += stream.window_bytes - STREAM_WINDOW_BYTES;
        }
        assert_eq!(windows + state.spare_bytes, SPARE_BYTES);
    }

    /// Reads what the client gets.
    fn client_reads(&mut self) {
        let mut bytes = Vec::new();
        while !self.state.outbox.is_empty() {
            let cx = &mut Context::from_waker(Waker::noop());
            let _ = self.state.outbox.poll_write_some(cx, &mut bytes);
        }
        let mut at = 0;
        while let Some((frame, length)) = frame::read(&bytes[at..], 16_384).unwrap() {
            at += length;
            self.see(&frame);
        }
        assert_eq!(at, bytes.len(), "whole frames");
    }

    fn see(&mut self, frame: &Frame<'_>) {
        match *frame {
            Frame::Headers { stream, ends_stream, .. } => {
                let seen = self.seen.get_mut(&stream).unwrap();
                assert!(!seen.has_ended && !seen.is_reset, "HEADERS behind the end of {stream}");
                seen.heads += 1;
                seen.has_ended |= ends_stream;
                assert_eq!(seen.heads, 1, "one answer on {stream}");
            }
            Frame::Data { stream, flow_bytes, ends_stream, .. } => {
                let seen = self.seen.get_mut(&stream).unwrap();
                assert!(seen.heads == 1 && !seen.has_ended && !seen.is_reset, "DATA outside of an answer on {stream}");
                seen.has_ended |= ends_stream;
                seen.room -= i64::from(flow_bytes);
                self.room -= i64::from(flow_bytes);
                assert!(flow_bytes == 0 || (seen.room >= 0 && self.room >= 0), "more than the windows of {stream}");
            }
            Frame::Reset { stream, .. } => self.seen.entry(stream).or_default().is_reset = true,
            _ => {}
        }
    }
}

#[test]
fn no_client_and_no_exchange_breaks_the_state_or_its_limits() {
    let (mut ended, mut answered) = (0, 0);
    for seed in 1..400 {
        let mut play = Play::new(seed);
        for _ in 0..600 {
            match play.draw.below(4) {
                // Nothing is read of a client that reads nothing.
                0 if play.state.may_read() => play.client_sends(),
                1 => play.client_reads(),
                _ => play.exchange_acts(),
            }
            if let Err(trouble) = play.handle() {
                play.state.leave(ErrorCode::Protocol, "");
                play.client_reads();
                play.state.end_streams();
                assert!(matches!(trouble, Trouble::Fault(_) | Trouble::Flood(_)), "seed {seed}");
                ended += 1;
                break;
            }
            play.check_bounds();
        }
        answered += play.seen.values().filter(|seen| seen.has_ended).count();
    }
    assert!(ended > 50 && answered > 500, "{ended} connections ended, {answered} answers: the draws reach too little");
}

/// The window of a body that is taken as it comes grows, within what all streams share; one that is not taken stays as it is.
#[test]
fn windows_grow_where_bodies_are_taken() {
    let mut play = Play::new(17);
    let granted = |play: &mut Play, stream: u32, takes: bool| {
        let mut out = Vec::new();
        frame::write_data_head(&mut out, stream, 16_000, false);
        out.resize(out.len() + 16_000, 0);
        play.state.take(&out);
        play.handle().unwrap();
        if takes {
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(matches!(play.state.poll_body(stream, usize::MAX, cx), Poll::Ready(Ok(Piece::Data(_)))));
        }
        play.check_bounds();
        play.client_reads();
        play.state.streams[&stream].window_bytes
    };
    let open = |play: &mut Play| {
        let (mut out, mut block, stream) = (Vec::new(), Vec::new(), play.next_stream);
        play.next_stream += 2;
        play.seen.insert(stream, Seen::default());
        hpack::write_field(&mut block, b":method", b"POST", false);
        frame::write_block(&mut out, stream, &block, false, 16_384);
        play.state.take(&out);
        play.handle().unwrap();
        stream
    };
    let idle = open(&mut play);
    (0..4).for_each(|_| assert_eq!(granted(&mut play, idle, false), STREAM_WINDOW_BYTES));
    let mut sizes = Vec::new();
    for _ in 0..8 {
        let stream = open(&mut play);
        sizes.push((0..200).map(|_| granted(&mut play, stream, true)).last().unwrap());
    }
    assert_eq!(sizes[..4], [STREAM_WINDOW_BYTES_MAX; 4]);
    assert_eq!(sizes[7], STREAM_WINDOW_BYTES, "the others have all of it");
    play.state.reset(3, ErrorCode::Cancel);
    let stream = open(&mut play);
    let size = (0..200).map(|_| granted(&mut play, stream, true)).last().unwrap();
    assert!(size > STREAM_WINDOW_BYTES, "a stream that is over leaves its part to others");
}
