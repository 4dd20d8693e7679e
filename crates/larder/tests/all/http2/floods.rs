//! Limits of one connection: each ends it by ENHANCE_YOUR_CALM, has a line in the log and a metric.

use super::client::{Client, connect, get, write_request};
use super::{log, site};
use larder_wire::h2::ErrorCode;
use larder_wire::h2::frame::{self, Settings};
use std::net::TcpStream;

type Wave = fn(&mut Vec<u8>, u32);

/// Waves of frames, each of which is one event or more; the limit; and how many waves are more than enough.
fn floods() -> Vec<(&'static str, Wave, u32)> {
    vec![
        (
            "http2-rapid-reset",
            |out, wave| {
                write_request(out, 2 * wave + 1, &get("/stuck"), true);
                frame::write_reset(out, 2 * wave + 1, ErrorCode::Cancel);
            },
            400,
        ),
        (
            "http2-made-reset",
            |out, wave| {
                write_request(out, 2 * wave + 1, &get("/stuck"), true);
                frame::write_window_update(out, 2 * wave + 1, i32::MAX as u32);
            },
            200,
        ),
        (
            "http2-made-reset",
            |out, wave| write_request(out, 2 * wave + 1, &[(":method", "GET"), (":path", "/")], true),
            200,
        ),
        ("http2-control-frames", |out, _| frame::write_ping(out, [0; 8]), 2_000),
        ("http2-control-frames", |out, _| frame::write_settings(out, &Settings::default()), 2_000),
        ("http2-control-frames", |out, _| frame::write_settings_ack(out), 2_000),
        ("http2-control-frames", |out, _| out.extend_from_slice(b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10"), 2_000),
        ("http2-control-frames", |out, _| out.extend_from_slice(b"\0\0\0\xfe\0\0\0\0\0"), 2_000),
        ("http2-control-frames", |out, wave| post_then(out, wave, b""), 2_000),
        ("http2-small-data", |out, wave| post_then(out, wave, b"a"), 30_000),
        ("http2-window-updates", |out, _| frame::write_window_update(out, 0, 1), 30_000),
        (
            "http2-field-block",
            |out, wave| match wave {
                0 => out.extend_from_slice(b"\0\0\x01\x01\0\0\0\0\x01\x82"),
                _ => out.extend_from_slice(b"\0\0\0\x09\0\0\0\0\x01"),
            },
            100,
        ),
        (
            "http2-field-block",
            |out, wave| {
                out.extend_from_slice(&[0, 0x40, 0, if wave == 0 { 1 } else { 9 }, 0, 0, 0, 0, 1]);
                out.extend_from_slice(&[0x82; 0x4000]);
            },
            10,
        ),
    ]
}

/// A body that goes on by pieces of these bytes.
fn post_then(out: &mut Vec<u8>, wave: u32, bytes: &[u8]) {
    if wave == 0 {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "site.test"), (":path", "/sum")];
        write_request(out, 1, &fields, false);
    }
    frame::write_data_head(out, 1, bytes.len(), false);
    out.extend_from_slice(bytes);
}

fn flood(client: &mut Client<TcpStream>, wave: Wave, waves: u32) {
    for first in (0..waves).step_by(50) {
        client.send(|out| (first..waves.min(first + 50)).for_each(|number| wave(out, number)));
    }
    client.read_until(|client| client.left.is_some());
}

#[test]
fn floods_end_their_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let cases = floods();
    for (word, wave, waves) in &cases {
        let mut client = connect(address);
        flood(&mut client, *wave, *waves);
        assert_eq!(client.left.map(|left| left.1), Some(ErrorCode::EnhanceYourCalm), "{word}");
        // Other connections are served.
        assert_eq!(connect(address).ask(1, "/fresh").text(), "bytes");
    }
    let shared = std::sync::Arc::clone(server.shared());
    let log = log(server, folder.path());
    for (word, _, _) in &cases {
        let expected = cases.iter().filter(|(other, _, _)| other == word).count();
        assert_eq!(log.matches(&format!(" {word} ")).count(), expected, "{word}: {log}");
    }
    let counted: u64 = shared
        .common
        .counters
        .each()
        .iter()
        .filter(|(name, _, _)| name.starts_with("http2_") && (name.ends_with("resets") || name.ends_with("floods")))
        .map(|(_, _, count)| count)
        .sum();
    assert_eq!(counted, cases.len() as u64);
}

/// Streams that wait beside others count as connections of their client.
#[test]
fn streams_that_wait_are_counted_by_client() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "[limits]\nconnections_per_client_max = 4\n");
    let mut client = connect(address);
    assert_eq!(client.ask(1, "/fresh").text(), "bytes");
    client.send(|out| (3..15).step_by(2).for_each(|stream| write_request(out, stream, &get("/slow"), true)));
    client.read_until(|client| client.answers.values().filter(|answer| answer.has_ended).count() == 7);
    let of = |status: &str| client.answers.values().filter(|answer| answer.status() == status).count();
    assert_eq!((of("200"), of("503")), (5, 2), "one for the connection, three beside it, and two too many");
    // The permits are given back; a hit needs none.
    assert_eq!(client.ask(15, "/slow").text(), "slow");
    let log = log(server, folder.path());
    assert_eq!(log.matches(" connections-per-client-max ").count(), 2, "{log}");
}

/// A list that is longer than permitted is decoded, refused, and spoils nothing.
#[test]
fn long_field_lists_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "[limits]\nhead_bytes_max = \"8KiB\"\n");
    let mut client = connect(address);
    let long = "a".repeat(6_000);
    let mut fields = get("/echo");
    fields.extend([("x-a", &*long), ("x-b", &*long)]);
    client.request(1, &fields, true);
    let answer = client.answer(1);
    assert_eq!(answer.status(), "431", "{answer:?}");
    assert_eq!(client.ask(3, "/fresh").text(), "bytes");
    assert_eq!(client.settings.and_then(|settings| settings.list_bytes_max), Some(8 * 1024));
}

/// Frames of other streams, and of none, at wrong moments.
#[test]
fn faults_of_the_protocol_end_their_connection() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "");
    let cases: [(&[u8], ErrorCode); 8] = [
        (b"\0\0\0\0\0\0\0\0\x01", ErrorCode::Protocol),
        (b"\0\0\x04\x08\0\0\0\0\x05\0\0\0\x01", ErrorCode::Protocol),
        (b"\0\0\x04\x03\0\0\0\0\x05\0\0\0\x08", ErrorCode::Protocol),
        (b"\0\0\0\x09\x04\0\0\0\x01", ErrorCode::Protocol),
        (b"\0\0\x01\x01\x05\0\0\0\x02\x82", ErrorCode::Protocol),
        (b"\0\0\x01\x01\x05\0\0\0\x01\xff", ErrorCode::Compression),
        (b"\xff\xff\xff\0\0\0\0\0\x01", ErrorCode::FrameSize),
        (b"\0\0\x04\x05\x04\0\0\0\x01\0\0\0\x02", ErrorCode::Protocol),
    ];
    for (bytes, code) in cases {
        let mut client = connect(address);
        client.send(|out| out.extend_from_slice(bytes));
        client.read_until(|client| client.is_closed);
        assert_eq!(client.left.map(|left| left.1), Some(code), "{bytes:x?}");
    }
}
