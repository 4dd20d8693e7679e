//! Requests as fields and frames: malformed ones, and frames and streams where they may not be.

use super::Site;
use super::client::{Client, code, control, control_with, data, get, headers};
use crate::http2::messages::malformed;
use larder_wire::h3::frame::{Settings, write_head};
use larder_wire::h3::{ErrorCode, varint};

fn frame(number: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_head(&mut out, number, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

#[test]
fn malformed_requests_are_reset_and_reach_no_origin() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let mut cases: Vec<Vec<u8>> = malformed().iter().map(|fields| headers(fields)).collect();
    let post = |length| {
        let mut fields = get("/echo");
        fields.extend([("content-length", length)]);
        fields[0].1 = "POST";
        headers(&fields)
    };
    // Bodies that are shorter or longer than they say, and trailer fields that are none.
    cases.push([post("5"), data(b"abc")].concat());
    cases.push([post("2"), data(b"abc")].concat());
    cases.push(post("2"));
    cases.push([post("3"), data(b"abc"), headers(&[(":path", "/evil")])].concat());
    cases.push([headers(&get("/echo")), headers(&get("/evil"))].concat());
    for bytes in &cases {
        let client = Client::to(&site);
        let answer = client.play(bytes);
        assert_eq!(answer.reset, Some(ErrorCode::Message.number()), "{}", String::from_utf8_lossy(bytes));
        // The connection goes on.
        assert_eq!(client.get("/fresh").status(), "200");
    }
    let log = site.log(folder.path());
    assert!(log.matches("http3-malformed").count() >= malformed().len(), "{log}");
    assert_eq!(log.matches("GET https://site.test/fresh HTTP/3.0\" 200").count(), cases.len(), "{log}");
    assert!(!log.contains("smuggled") && !log.contains("evil"), "{log}");
}

/// Requests that the parser of HTTP/1.1 refuses get its error page, and those that are not served one that says so.
#[test]
fn the_strict_parser_judges_requests_of_all_versions() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "[limits]\ntarget_bytes_max = \"1KiB\"\nhead_bytes_max = \"8KiB\"\nbody_bytes_max = \"1KiB\"\n";
    let site = Site::with(folder.path(), "", limits);
    let (long, huge) = (format!("/{}", "a".repeat(2_000)), "a".repeat(9_000));
    let many: Vec<(String, &str)> = (0..200).map(|number| (format!("x-{number}"), "a")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    let with = |more: &[(&'static str, &str)]| -> Vec<u8> { headers(&[&get("/echo")[..], more].concat()) };
    let mut post = get("/sum");
    post[0].1 = "POST";
    let cases = [
        ([headers(&post), data(&[b'a'; 2_000])].concat(), "413", ""),
        (headers(&get(&long)), "414", "target"),
        (headers(&[&get("/echo")[..], &many].concat()), "431", ""),
        (with(&[("x-huge", &huge)]), "431", "head_bytes_max"),
        (with(&[("content-length", "x")]), "400", ""),
        (with(&[("content-length", "0"), ("content-length", "0")]), "400", ""),
        (headers(&[(":method", "GET"), (":scheme", "https"), (":path", "/")]), "400", ""),
        (headers(&[(":method", "CONNECT"), (":authority", "site.test:443")]), "501", "no tunnels"),
        (
            headers(&[
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", "site.test"),
                (":path", "/"),
            ]),
            "501",
            "WebSocket",
        ),
        (headers(&[(":method", "GET"), (":scheme", "https"), (":authority", "third.test"), (":path", "/")]), "421", ""),
    ];
    for (bytes, status, part) in cases {
        let client = Client::to(&site);
        let answer = client.play(&bytes);
        assert_eq!(answer.status(), status, "{answer:?}");
        assert!(answer.text().contains(part), "{part}: {}", answer.text());
    }
}

#[test]
fn frames_that_mean_nothing_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let mut client = Client::bare(&site);
    client.uni(&[&control()[..], &frame(0x21, b"grease"), &frame(0xd, &[7]), &frame(0xf0700, b"\x00u=1")].concat());
    client.uni(&[0x2, 0x20]);
    client.uni(&[0x3, 0x44]);
    let post = |fields: &[(&'static str, &'static str)]| {
        let mut all = get("/echo");
        all[0].1 = "POST";
        all.extend_from_slice(fields);
        headers(&all)
    };
    let bytes = [
        frame(0x40 * 0x1f + 0x21, b"grease"),
        post(&[("cookie", "a=1"), ("cookie", "b=2"), ("priority", "u=5, i")]),
        frame(0x21, b""),
        data(b"he"),
        data(b""),
        frame(0x21, b"more"),
        data(b"llo"),
        headers(&[("x-sum", "7")]),
        frame(0x21, b"end"),
    ];
    let answer = client.play(&bytes.concat());
    assert_eq!(answer.status(), "200", "{answer:?}");
    let (text, lower) = (answer.text(), answer.text().to_lowercase());
    assert!(text.contains("hello") && text.contains("Via: 3.0 larder"), "{text}");
    assert!(lower.contains("cookie: a=1; b=2") && lower.contains("x-sum: 7"), "{text}");
    // Nothing at all on a stream is no request.
    assert_eq!(client.play(b"").reset, Some(ErrorCode::RequestIncomplete.number()));
}

/// Faults that end the connection: the stream of a request, or one in one direction, and the code.
#[test]
fn frames_and_streams_where_they_may_not_be() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let request = headers(&get("/echo"));
    let on_request = [
        (frame(0x0, b"abc"), ErrorCode::FrameUnexpected),
        (frame(0x4, b""), ErrorCode::FrameUnexpected),
        (frame(0x2, b""), ErrorCode::FrameUnexpected),
        ([&frame(0x21, b"grease")[..], &frame(0x7, &[0])].concat(), ErrorCode::FrameUnexpected),
        ([&request[..], &frame(0x5, &[0])].concat(), ErrorCode::FrameUnexpected),
        ([&request[..], &headers(&[("x-sum", "7")]), &request].concat(), ErrorCode::FrameUnexpected),
        ([&request[..], &headers(&[("x-sum", "7")]), &data(b"a")].concat(), ErrorCode::FrameUnexpected),
        (request[..request.len() - 1].to_vec(), ErrorCode::Frame),
        ([&request[..], &[0, 5, 1]].concat(), ErrorCode::Frame),
        (frame(0x1, &[0, 0, 0xff, 36]), ErrorCode::QpackDecompression),
        (frame(0x1, &[2, 0, 0x80]), ErrorCode::QpackDecompression),
    ];
    let mut words = Vec::new();
    for (bytes, code) in &on_request {
        let client = Client::to(&site);
        // A request without a body that goes on is refused before or after its answer.
        let answer = client.play(bytes);
        assert!(!answer.text().contains("abc"));
        let closed = client.closed();
        assert_eq!(closed.0, code.number(), "{bytes:x?}: {closed:?}");
        words.push(closed.1);
    }
    let with_control = |more: &[u8]| [&control()[..], more].concat();
    let on_unis: [(&[Vec<u8>], ErrorCode); 11] = [
        (&[vec![0x0, 0x7, 1, 0]], ErrorCode::MissingSettings),
        (&[with_control(&[4, 0])], ErrorCode::FrameUnexpected),
        (&[with_control(&[0, 0])], ErrorCode::FrameUnexpected),
        (&[vec![0x0, 0x4, 2, 0x2, 0]], ErrorCode::Settings),
        (&[vec![0x0, 0x4, 4, 0x6, 1, 0x6, 1]], ErrorCode::Settings),
        (&[with_control(&[0xd, 1, 3, 0xd, 1, 2])], ErrorCode::Id),
        (&[control(), control()], ErrorCode::StreamCreation),
        (&[control(), vec![0x1, 0]], ErrorCode::StreamCreation),
        (&[vec![0x2], vec![0x2]], ErrorCode::StreamCreation),
        (&[control(), vec![0x2, 0x3f, 0xe1, 0x1f]], ErrorCode::QpackEncoderStream),
        (&[control(), vec![0x3, 0x80]], ErrorCode::QpackDecoderStream),
    ];
    for (streams, code) in on_unis {
        let mut client = Client::bare(&site);
        streams.iter().for_each(|bytes| client.uni(bytes));
        let closed = client.closed();
        assert_eq!(closed.0, code.number(), "{streams:x?}: {closed:?}");
    }
    // The control stream ends, and one that means nothing may.
    let mut client = Client::to(&site);
    client.uni(&[0x21, 1, 2, 3]);
    client.unis.pop().unwrap().finish().unwrap();
    assert_eq!(client.get("/fresh").status(), "200");
    client.unis.pop().unwrap().finish().unwrap();
    assert_eq!(client.closed().0, ErrorCode::ClosedCriticalStream.number());
    let log = site.log(folder.path());
    assert_eq!(log.matches("http3-fault").count(), on_request.len() + 12, "{log}");
}

/// The server's control stream lasts as long as its connection, on both sides (RFC 9114 section 6.2.1).
#[test]
fn a_client_that_stops_the_control_stream_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    let mut own = client.wait(client.quic.accept_uni()).unwrap();
    own.stop(code(ErrorCode::NoError)).unwrap();
    assert_eq!(client.closed().0, ErrorCode::ClosedCriticalStream.number());
}

/// PRIORITY_UPDATE is for requests that are open or may still come (RFC 9218 section 7.2).
#[test]
fn priorities_are_for_streams_that_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let update = |stream: u64| {
        let mut payload = Vec::new();
        varint::write(&mut payload, stream);
        payload.extend_from_slice(b"u=1");
        frame(0xf0700, &payload)
    };
    let mut client = Client::to(&site);
    assert_eq!(client.get("/fresh").status(), "200");
    for stream in [0, 4, 8, 99 * 4] {
        client.runtime.block_on(client.unis[0].write_all(&update(stream))).unwrap();
    }
    assert_eq!(client.get("/fresh").status(), "200");
    client.runtime.block_on(client.unis[0].write_all(&update(102 * 4))).unwrap();
    assert_eq!(client.closed().0, ErrorCode::Id.number());
    drop(client.unis.pop());
}

/// A head that is longer than the client takes is not sent (RFC 9114 section 4.2.2).
#[test]
fn heads_are_no_longer_than_the_client_takes() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let mut client = Client::bare(&site);
    client.uni(&control_with(&Settings { field_section_bytes_max: Some(200), ..Settings::default() }));
    // The parameters overtake no request: they come before it.
    client.pause(200);
    // A miss, a hit, a long body of which nothing is read, parts of it, one without a body, and a page.
    let long = "/big/50000000";
    let mut head = get("/fresh");
    head[0].1 = "HEAD";
    let mut part = get("/fresh");
    part.push(("range", "bytes=0-1"));
    let mut parts = get("/fresh");
    parts.push(("range", "bytes=0-1,3-3"));
    let mut condition = get("/fresh");
    condition.push(("if-match", "\"other\""));
    let asked = [get("/fresh"), get("/fresh"), get(long), head, part, parts, condition];
    for fields in &asked {
        let answer = client.ask(fields);
        assert_eq!((answer.status(), answer.body.len()), ("502", 0), "{answer:?}");
        assert!(answer.heads[0].iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() <= 200);
    }
    drop(client);
    let log = site.log(folder.path());
    // One line for each request, of what its client got.
    assert_eq!(log.lines().count(), asked.len(), "{log}");
    assert_eq!(log.matches(" 502 0 ").count(), asked.len(), "{log}");
    assert_eq!(log.matches("http3-head-too-long").count(), asked.len(), "{log}");
}

/// The kind of a stream comes with its first byte or within `timeouts.head`.
#[test]
fn streams_without_a_kind_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(folder.path(), "", "[timeouts]\nhead = \"300ms\"\n");
    let mut client = Client::to(&site);
    client.uni(&[0x40]);
    assert!(client.wait(client.unis[1].stopped()).unwrap().is_some());
    assert_eq!(client.get("/fresh").status(), "200");
}
