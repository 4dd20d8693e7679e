//! Clients that make work for nothing.

use super::Site;
use super::client::{Client, code, data, get, headers};
use super::forger::Forger;
use crate::seen::stand;
use larder_wire::h3::ErrorCode;
use larder_wire::h3::frame::write_head;
use quinn::{ConnectionError, ReadError, ReadToEndError};
use std::time::Duration;

/// Does something of no use, on and on, until the connection has ended.
type Flood = fn(&mut Client);

/// The word of the limit, and what makes it count.
const FLOODS: [(&str, Flood); 6] = [
    ("http3-rapid-reset", |client| {
        let Some((mut send, mut receive)) = client.try_begin(&headers(&get("/slow")), true) else { return };
        let _ = send.reset(code(ErrorCode::RequestCancelled));
        let _ = receive.stop(code(ErrorCode::RequestCancelled));
    }),
    ("http3-rapid-reset", |client| {
        let Some((mut send, _receive)) = client.try_begin(&headers(&get("/slow"))[..5], false) else { return };
        let _ = send.reset(code(ErrorCode::RequestCancelled));
    }),
    ("http3-made-reset", |client| {
        if let Some((_send, mut receive)) = client.try_begin(&headers(&[(":method", "GET")]), true) {
            client.answer(&mut receive);
        }
    }),
    ("http3-control-frames", |client| {
        let mut frames = Vec::new();
        (0..100).for_each(|_| write_head(&mut frames, 0x21, 0));
        if let Some(control) = client.unis.first_mut() {
            let _ = client.runtime.block_on(control.write_all(&frames));
        }
    }),
    ("http3-control-frames", |client| {
        if let Ok(Ok(mut stream)) = client
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(5), client.quic.open_uni()).await })
        {
            let _ = client.runtime.block_on(stream.write_all(&[0x21]));
            let _ = stream.finish();
        }
    }),
    ("http3-small-data", |client| {
        let mut fields = get("/sum");
        fields[0].1 = "POST";
        let (mut send, _receive) = client.begin(&headers(&fields), false);
        let small = data(b"a").repeat(25_000);
        let _ = client.runtime.block_on(send.write_all(&small));
        client.runtime.block_on(async {
            let _ = tokio::time::timeout(Duration::from_secs(5), client.quic.closed()).await;
        });
    }),
];

/// More than any limit permits.
const WAVES: usize = 2_000;

#[test]
fn floods_end_their_connection() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    for (word, flood) in FLOODS {
        let mut client = Client::to(&site);
        for _ in 0..WAVES {
            if client.quic.close_reason().is_some() {
                break;
            }
            flood(&mut client);
        }
        // Where the word was lost, the client hears by a stateless reset that there is no such connection (RFC 9000 section 10.3).
        if !matches!(client.wait(client.quic.closed()), ConnectionError::Reset) {
            assert_eq!(client.closed(), (ErrorCode::ExcessiveLoad.number(), word.to_owned()));
        }
        // Other connections are served.
        assert_eq!(Client::to(&site).get("/fresh").text(), "bytes");
    }
    let names = ["http3_rapid_resets", "http3_made_resets", "http3_control_floods", "http3_small_data_floods"];
    stand::wait_for("their counts", || names.map(|name| site.count(name)) == [2, 1, 2, 1]);
    let log = site.log(folder.path());
    for (word, _) in FLOODS {
        let wanted = FLOODS.iter().filter(|(other, _)| *other == word).count();
        assert_eq!(log.matches(&format!(" {word} ")).count(), wanted, "{word}: {log}");
    }
}

/// Clients that may not be where they say make no others wait: beyond some, clients prove their addresses.
#[test]
fn many_handshakes_make_clients_prove_their_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let mut forger = Forger::of(100, &site.certificate);
    stand::wait_for("clients that are told to prove their addresses", || {
        forger.send(site.address);
        site.count("http3_retries") > 0
    });
    let client = Client::to(&site);
    assert_eq!(client.get("/fresh").status(), "200");
    stand::wait_for("the count", || site.count("http3_connections") == 1);
    assert_eq!(site.count("http3_handshakes_ignored"), 0);
    let came = forger.came_bytes();
    assert!(came > 0 && came <= 3 * forger.sent_bytes, "{came} bytes for {}", forger.sent_bytes);
}

/// A handshake that does not go on ends, and has a line in the log.
#[test]
fn handshakes_that_are_left_end() {
    const CLIENTS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\nhead = \"300ms\"\n");
    let mut forger = Forger::of(CLIENTS, &site.certificate);
    forger.send(site.address);
    stand::wait_for("their ends", || site.count("handshakes_failed") == CLIENTS as u64);
    assert_eq!(Client::to(&site).get("/fresh").status(), "200");
    stand::wait_for("the count", || site.count("http3_connections") == 1);
    let log = site.log(folder.path());
    assert_eq!(log.matches("tls-late").count(), CLIENTS, "{log}");
}

/// Heads whose fields are here, but not the end of their requests, take memory as those do that are not whole.
#[test]
fn heads_that_wait_for_their_end_count_as_heads_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[limits]\nheads_bytes_max = \"128KiB\"\n");
    let client = Client::to(&site);
    let long = "a".repeat(8_000);
    let mut fields = get("/echo");
    fields.push(("x-long", &long));
    let mut waiting: Vec<_> = (0..20).map(|_| client.begin(&headers(&fields), false)).collect();
    // Those that came last most likely: the order in which streams are served is not that of their numbers.
    let refused = waiting.iter_mut().rev().find_map(|(_, receive)| {
        let ends = async { tokio::time::timeout(Duration::from_secs(1), receive.read_to_end(1 << 20)).await.ok() };
        client.runtime.block_on(ends)
    });
    let Some(Err(ReadToEndError::Read(ReadError::Reset(code)))) = refused else { panic!("{refused:?}") };
    assert_eq!(code.into_inner(), ErrorCode::ExcessiveLoad.number());
    // One with too many lines is refused before its end.
    let many: Vec<(String, &str)> = (0..200).map(|number| (format!("x-{number}"), "a")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    let (_send, mut receive) = client.begin(&headers(&[&get("/echo")[..], &many].concat()), false);
    assert_eq!(client.answer(&mut receive).status(), "431");
    drop(waiting);
    drop(client);
    let log = site.log(folder.path());
    assert!(log.contains("heads-bytes-max"), "{log}");
}
