//! Tables of bodies, their limits, and the encoder beside the decoder.

use FaultKind::{Chunk, Trailer};
use larder_wire::body::{Decoder, EXTENSION_BYTES_MAX, Event, TRAILER_BYTES_MAX, TRAILER_FIELDS_MAX};
use larder_wire::framing::Framing;
use larder_wire::{FaultKind, Fields, Method, Reason, ResponseHead, Side, Version, encode, hop};

/// Content and trailers as text; what is left over.
fn decode(framing: Framing, mut input: &[u8]) -> Result<(String, String, String), FaultKind> {
    let mut decoder = Decoder::new(framing, Side::Client);
    let mut content = Vec::new();
    loop {
        let step = decoder.decode(input).map_err(|fault| fault.kind)?;
        if let Event::Data(range) = &step.event {
            content.extend_from_slice(&input[range.clone()]);
        }
        input = &input[step.consumed..];
        let mut trailers = Vec::new();
        match step.event {
            Event::Data(_) => continue,
            Event::NeedMore => decoder.finish().map_err(|fault| fault.kind)?,
            Event::End(fields) => fields.write_to(&mut trailers),
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Ok((text(&content), text(&trailers), text(input)));
    }
}

#[test]
fn refused_chunks() {
    let table: &[(&[u8], FaultKind)] = &[
        (b"\r\nhello\r\n0\r\n\r\n", Chunk),
        (b" 5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5 \r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5\t\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5 ;a\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"+5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"-5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"0x5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5h\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5_0\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5,5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"\"5\"\r\nhello\r\n0\r\n\r\n", Chunk),
        (b";a=5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"00000000000000005\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"10000000000000005\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"\xb5\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5\nhello\r\n0\r\n\r\n", Chunk),
        (b"5\rhello\r\n0\r\n\r\n", Chunk),
        (b"5\r\rhello\r\n0\r\n\r\n", Chunk),
        (b"5\0\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5\r\nhello0\r\n\r\n", Chunk),
        (b"5\r\nhello\n0\r\n\r\n", Chunk),
        (b"5\r\nhello\r0\r\n\r\n", Chunk),
        (b"5\r\nhelloX\r\n0\r\n\r\n", Chunk),
        (b"4\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5\r\nhello\r\n\r\n0\r\n\r\n", Chunk),
        (b"5;a\nb\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5;a\rb\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5;a=\"\x00\"\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"5;\x7f\r\nhello\r\n0\r\n\r\n", Chunk),
        (b"0\n\r\n", Chunk),
        (b"0\r\r\n", Chunk),
        (b"0 \r\n\r\n", Chunk),
        (b"0\r\n\n", Trailer),
        (b"0\r\nX: y\n\r\n", Trailer),
        (b"0\r\nX: y\r\n\n", Trailer),
        (b"0\r\nX: y\rz\r\n\r\n", Trailer),
        (b"0\r\nX : y\r\n\r\n", Trailer),
        (b"0\r\nX: y\r\n z\r\n\r\n", Trailer),
        (b"0\r\n X: y\r\n\r\n", Trailer),
        (b"0\r\nno colon\r\n\r\n", Trailer),
        (b"0\r\n: y\r\n\r\n", Trailer),
        (b"0\r\nX: \x00\r\n\r\n", Trailer),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", Trailer),
        (b"5\r\nhello", FaultKind::Truncated),
        (b"5\r\nhello\r\n", FaultKind::Truncated),
        (b"5\r\nhello\r\n0\r\n", FaultKind::Truncated),
        (b"5\r\nhello\r\n0\r\nX: y\r\n", FaultKind::Truncated),
        (b"", FaultKind::Truncated),
        (b"ffffffffffffffff\r\nhello", FaultKind::Truncated),
    ];
    for (body, kind) in table {
        assert_eq!(decode(Framing::Chunked, body), Err(*kind), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn accepted_bodies() {
    for (framing, body, content, trailers, rest) in [
        (Framing::None, "next", "", "", "next"),
        (Framing::Length(0), "next", "", "", "next"),
        (Framing::Length(5), "hellonext", "hello", "", "next"),
        (Framing::UntilClose, "hello", "hello", "", ""),
        (Framing::UntilClose, "", "", "", ""),
        (Framing::Chunked, "0\r\n\r\nnext", "", "", "next"),
        (Framing::Chunked, "5\r\nhello\r\n0\r\n\r\n", "hello", "", ""),
        (Framing::Chunked, "2\r\nhe\r\n03\r\nllo\r\n0000\r\n\r\n\r\n", "hello", "", "\r\n"),
        (Framing::Chunked, "a\r\n0\r\n\r\n67890\r\n0\r\n\r\n", "0\r\n\r\n67890", "", ""),
        (Framing::Chunked, "A;x=\"y; z\";w\r\n0123456789\r\n0;last\t=1\r\n\r\n", "0123456789", "", ""),
        (Framing::Chunked, "0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", "", ""),
        (Framing::Chunked, "0\r\nx: 1\r\nY:2 \r\n\r\nn", "", "x: 1\r\nY: 2\r\n", "n"),
        (Framing::Chunked, "0\r\nContent-Length: 9\r\nhost: b\r\nX: 1\r\nSet-Cookie: c\r\n\r\n", "", "X: 1\r\n", ""),
    ] {
        let wanted = Ok((content.to_owned(), trailers.to_owned(), rest.to_owned()));
        assert_eq!(decode(framing, body.as_bytes()), wanted, "{framing:?} {body:?}");
    }
    assert_eq!(decode(Framing::Length(6), b"hello"), Err(FaultKind::Truncated));
}

#[test]
fn the_end_shows_itself_once_all_bytes_are_there() {
    let mut decoder = Decoder::new(Framing::Length(5), Side::Origin);
    assert_eq!(decoder.decode(b"hel").unwrap().event, Event::Data(0..3));
    assert_eq!((decoder.remaining(), decoder.is_done()), (Some(2), false));
    assert_eq!(decoder.decode(b"lo!").unwrap().consumed, 2);
    assert_eq!((decoder.remaining(), decoder.is_done()), (Some(0), true));
    assert_eq!(decoder.decode(b"!").unwrap().event, Event::End(Fields::new()));
    assert_eq!(decoder.framing(), Framing::Length(5));
    let mut decoder = Decoder::new(Framing::UntilClose, Side::Origin);
    assert!(!decoder.is_done() && decoder.finish().is_ok() && decoder.is_done());
    let mut decoder = Decoder::new(Framing::Chunked, Side::Origin);
    assert_eq!(decoder.finish().unwrap_err().status(), 502);
    assert_eq!(decoder.decode(b"0\r\n\r\n").unwrap_err().kind, FaultKind::Truncated);
}

#[test]
fn chunk_extensions_are_limited_and_content_earns_more() {
    let max = EXTENSION_BYTES_MAX as usize;
    let chunk = |extension: usize| format!("1;{}\r\nx\r\n", "e".repeat(extension - 1));
    let last = "0\r\n\r\n";
    assert!(decode(Framing::Chunked, format!("{}{last}", chunk(max)).as_bytes()).is_ok());
    assert_eq!(decode(Framing::Chunked, format!("{}{last}", chunk(max + 1)).as_bytes()), Err(Chunk));
    let half = chunk(max / 2);
    assert!(decode(Framing::Chunked, format!("{half}{half}{last}").as_bytes()).is_ok());
    assert_eq!(decode(Framing::Chunked, format!("{half}{half}{half}{last}").as_bytes()), Err(Chunk));
    let content = format!("{max:x}\r\n{}\r\n", "x".repeat(max));
    let earned = format!("{half}{content}{half}{content}{half}{content}{last}");
    assert!(decode(Framing::Chunked, earned.as_bytes()).is_ok());
}

#[test]
fn trailers_are_limited_in_bytes_and_number() {
    let lines = |number: usize| format!("0\r\n{}\r\n", "X: y\r\n".repeat(number));
    assert!(decode(Framing::Chunked, lines(TRAILER_FIELDS_MAX).as_bytes()).is_ok());
    assert_eq!(decode(Framing::Chunked, lines(TRAILER_FIELDS_MAX + 1).as_bytes()), Err(Trailer));
    let bytes = |number: usize| format!("0\r\nX: {}\r\n\r\n", "y".repeat(number - "X: \r\n\r\n".len()));
    assert!(decode(Framing::Chunked, bytes(TRAILER_BYTES_MAX).as_bytes()).is_ok());
    assert_eq!(decode(Framing::Chunked, bytes(TRAILER_BYTES_MAX + 1).as_bytes()), Err(Trailer));
    let unfinished = format!("0\r\n{}", "y".repeat(TRAILER_BYTES_MAX + 1));
    assert_eq!(decode(Framing::Chunked, unfinished.as_bytes()), Err(Trailer));
}

#[test]
fn heads_are_written_as_they_are_read() {
    let mut fields = Fields::new();
    fields.push("hOST", "a:81");
    fields.push("X-Y", " z ");
    let mut out = Vec::new();
    encode::request_head(&mut out, &Method::Get, "/a b\r\nc\u{e4}", Version::Http10, &fields);
    assert_eq!(String::from_utf8_lossy(&out), "GET /a%20b%0D%0Ac%C3%A4 HTTP/1.0\r\nhOST: a:81\r\nX-Y: z\r\n\r\n");
    out.clear();
    let head =
        ResponseHead { reason: Reason::of(207, "O\r\nK"), version: Version::Http10, fields, ..ResponseHead::new(207) };
    encode::response_head(&mut out, &head);
    assert_eq!(String::from_utf8_lossy(&out), "HTTP/1.1 207 O  K\r\nhOST: a:81\r\nX-Y: z\r\n\r\n");
}

#[test]
fn numbers_are_written_as_the_library_writes_them() {
    let powers = (0..20).map(|power| 10u64.pow(power)).flat_map(|power| [power - 1, power, power + 1]);
    for value in powers.chain([u64::MAX]) {
        let mut out = Vec::new();
        encode::decimal(&mut out, value);
        let mut text = String::new();
        encode::Decimal::of(value).push_to(&mut text);
        assert_eq!((String::from_utf8(out).unwrap(), text), (value.to_string(), value.to_string()));
    }
}

#[test]
fn addresses_are_written_as_the_library_writes_them() {
    for text in ["0.0.0.0", "127.0.0.1", "10.99.100.255", "255.255.255.255", "::1", "fe80::a:0:0:1", "::ffff:10.0.0.1"]
    {
        let mut out = Vec::new();
        encode::address(&mut out, text.parse().unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}

#[test]
fn chunk_heads_are_hexadecimal_without_leading_zeros() {
    for len in [1, 9, 10, 15, 16, 255, 256, 65_535, 65_536, 0xdead_beef, usize::MAX] {
        let mut out = Vec::new();
        encode::chunk_head(&mut out, len);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{len:x}\r\n"));
    }
}

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    lines.iter().for_each(|(name, value)| fields.push(name, value));
    fields
}

#[test]
fn what_belongs_to_one_connection_goes_and_the_rest_stays() {
    let mut message = fields(&[
        ("Host", "a"),
        ("Connection", "close, x-one"),
        ("connection", "X-TWO, Host, Content-Length, cache-control, Authorization, X-Forwarded-For, \"q\""),
        ("X-One", "1"),
        ("X-Two", "2"),
        ("X-Three", "3"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "websocket"),
        ("HTTP2-Settings", "x"),
        ("Content-Length", "5"),
        ("Cache-Control", "private"),
        ("Authorization", "x"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Trailer", "X"),
    ]);
    hop::strip(&mut message);
    let left: Vec<&str> = message.iter().map(|(name, _)| name).collect();
    let wanted = ["Host", "X-Three", "Content-Length", "Cache-Control", "Authorization", "X-Forwarded-For", "Trailer"];
    assert_eq!(left, wanted);
}

#[test]
fn a_connection_field_of_thousands_of_names_takes_away_what_it_names_once() {
    let listed: Vec<String> = (0..20_000).map(|name| format!("x-{}", name % 10_000)).collect();
    let mut message = fields(&[("Connection", &listed.join(",")), ("X-9999", "1"), ("X-10000", "2"), ("x-0", "3")]);
    hop::strip(&mut message);
    assert_eq!(message.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["X-10000"]);
}

#[test]
fn an_upgrade_counts_when_connection_names_it_and_http_and_tls_are_left_out() {
    for (connection, upgrade, wanted) in [
        ("Upgrade", "websocket", Some("websocket")),
        ("keep-alive, upgrade", "websocket , foo/2", Some("websocket, foo/2")),
        ("Upgrade", "h2c, websocket, TLS/1.0, HTTP/2.0", Some("websocket")),
        ("Upgrade, HTTP2-Settings", "H2C", None),
        ("close", "websocket", None),
        ("Upgrade", "", None),
    ] {
        let message = fields(&[("Connection", connection), ("Upgrade", upgrade)]);
        assert_eq!(hop::upgrade(&message).as_deref(), wanted, "{connection} {upgrade}");
    }
}
