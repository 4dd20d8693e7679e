//! Tables for the one question that decides what a proxy is worth: where does this message end?

use FaultKind::{ContentLength, TransferEncoding};
use larder_wire::framing::{Framing, begins_tunnel, of_request, of_response, reusable};
use larder_wire::parse::{HeadLimits, Parsed, request, response};
use larder_wire::{FaultKind, Method, RequestHead, ResponseHead};

fn request_with(start: &str, fields: &str) -> RequestHead {
    match request(format!("{start}\r\nHost: a\r\n{fields}\r\n").as_bytes(), &HeadLimits::default()) {
        Ok(Parsed::Complete { head, .. }) => head,
        other => panic!("{other:?}"),
    }
}

fn response_with(start: &str, fields: &str) -> ResponseHead {
    match response(format!("{start}\r\n{fields}\r\n").as_bytes(), &HeadLimits::default()) {
        Ok(Parsed::Complete { head, .. }) => head,
        other => panic!("{other:?}"),
    }
}

/// Fields that no message of either side may have.
const REFUSED: &[(&str, FaultKind)] = &[
    ("Content-Length:\r\n", ContentLength),
    ("Content-Length: -1\r\n", ContentLength),
    ("Content-Length: +5\r\n", ContentLength),
    ("Content-Length: 0x5\r\n", ContentLength),
    ("Content-Length: a\r\n", ContentLength),
    ("Content-Length: 5a\r\n", ContentLength),
    ("Content-Length: 5.0\r\n", ContentLength),
    ("Content-Length: 1e3\r\n", ContentLength),
    ("Content-Length: 1_000\r\n", ContentLength),
    ("Content-Length: 5 5\r\n", ContentLength),
    ("Content-Length: 5, 5\r\n", ContentLength),
    ("Content-Length: 5, 6\r\n", ContentLength),
    ("Content-Length: 5,\r\n", ContentLength),
    ("Content-Length: ,5\r\n", ContentLength),
    ("Content-Length: \"5\"\r\n", ContentLength),
    ("Content-Length: 5;\r\n", ContentLength),
    ("Content-Length: \u{665}\r\n", ContentLength),
    ("Content-Length: 9223372036854775808\r\n", ContentLength),
    ("Content-Length: 18446744073709551616\r\n", ContentLength),
    ("Content-Length: 99999999999999999999999999999\r\n", ContentLength),
    ("Content-Length: 5\r\nContent-Length: 5\r\n", ContentLength),
    ("Content-Length: 5\r\ncontent-length: 6\r\n", ContentLength),
    ("Content-Length: 0\r\nContent-Length:\r\n", ContentLength),
    ("Transfer-Encoding:\r\n", TransferEncoding),
    ("Transfer-Encoding: ,\r\n", TransferEncoding),
    ("Transfer-Encoding: identity\r\n", TransferEncoding),
    ("Transfer-Encoding: gzip\r\n", TransferEncoding),
    ("Transfer-Encoding: xchunked\r\n", TransferEncoding),
    ("Transfer-Encoding: chunkedx\r\n", TransferEncoding),
    ("Transfer-Encoding: \"chunked\"\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked;q=1\r\n", TransferEncoding),
    ("Transfer-Encoding: gzip, chunked\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked, gzip\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked, identity\r\n", TransferEncoding),
    ("Transfer-Encoding: identity, chunked\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked, chunked\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked,\r\n", TransferEncoding),
    ("Transfer-Encoding: , chunked\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", TransferEncoding),
    ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n", TransferEncoding),
    ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", TransferEncoding),
    ("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", TransferEncoding),
    ("Content-Length: x\r\ntransfer-encoding: identity\r\n", TransferEncoding),
];

#[test]
fn refused_framings_of_either_side() {
    for (fields, kind) in REFUSED {
        for start in ["POST / HTTP/1.1", "GET / HTTP/1.1", "POST / HTTP/1.0", "CONNECT a:1 HTTP/1.1"] {
            let fault = of_request(&request_with(start, fields)).unwrap_err();
            assert_eq!((fault.kind, fault.status()), (*kind, 400), "{start} {fields}");
        }
        for start in ["HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 304 x", "HTTP/1.1 204 x", "HTTP/1.1 103 x"] {
            for asked in [Method::Get, Method::Head] {
                let head = response_with(start, fields);
                assert!(!reusable(&head, &asked), "{start} {fields}");
                let has_body = asked == Method::Get && start.ends_with("200 OK");
                if !has_body && !head.fields.contains("Content-Length") {
                    // RFC 9112 section 6.3, the first rule: there is none, whatever the coding.
                    assert_eq!(of_response(&head, &asked), Ok(Framing::None), "{start} {fields}");
                    continue;
                }
                let fault = of_response(&head, &asked).unwrap_err();
                assert_eq!((fault.kind, fault.status()), (*kind, 502), "{start} {fields}");
            }
        }
    }
}

#[test]
fn chunks_are_unknown_to_http_10() {
    let fields = "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n";
    assert_eq!(of_request(&request_with("POST / HTTP/1.0", fields)).unwrap_err().kind, TransferEncoding);
    let head = response_with("HTTP/1.0 200 OK", fields);
    assert_eq!(of_response(&head, &Method::Get).unwrap_err().kind, TransferEncoding);
}

#[test]
fn framings_of_requests() {
    for (start, fields, framing) in [
        ("GET / HTTP/1.1", "", Framing::None),
        ("POST / HTTP/1.1", "", Framing::None),
        ("POST / HTTP/1.1", "Content-Length: 0\r\n", Framing::Length(0)),
        ("GET / HTTP/1.1", "content-length: 007\r\n", Framing::Length(7)),
        ("POST / HTTP/1.0", "Content-Length: 5\r\n", Framing::Length(5)),
        ("POST / HTTP/1.1", "Content-Length: 9223372036854775807\r\n", Framing::Length(i64::MAX as u64)),
        ("PUT / HTTP/1.1", "Transfer-Encoding: chunked\r\n", Framing::Chunked),
        ("DELETE / HTTP/1.1", "transfer-encoding:\tCHUNKED \r\n", Framing::Chunked),
        ("CONNECT a:1 HTTP/1.1", "", Framing::None),
        ("CONNECT a:1 HTTP/1.1", "Content-Length: 0\r\n", Framing::None),
    ] {
        assert_eq!(of_request(&request_with(start, fields)), Ok(framing), "{start} {fields}");
    }
    for fields in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        assert!(of_request(&request_with("CONNECT a:1 HTTP/1.1", fields)).is_err(), "{fields}");
    }
}

#[test]
fn framings_of_responses_and_what_becomes_of_the_connection() {
    let (get, head, connect) = (Method::Get, Method::Head, Method::Connect);
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    for (start, fields, asked, framing, again) in [
        ("HTTP/1.1 200 OK", length, &get, Framing::Length(5), true),
        ("HTTP/1.1 200 OK", chunked, &get, Framing::Chunked, true),
        ("HTTP/1.1 200 OK", "", &get, Framing::UntilClose, false),
        ("HTTP/1.1 205 OK", "Content-Length: 0\r\n", &get, Framing::Length(0), true),
        ("HTTP/1.1 200 OK", "Content-Length: 5\r\nConnection: close\r\n", &get, Framing::Length(5), false),
        ("HTTP/1.0 200 OK", length, &get, Framing::Length(5), false),
        ("HTTP/1.0 200 OK", "Content-Length: 5\r\nConnection: keep-alive\r\n", &get, Framing::Length(5), true),
        ("HTTP/1.1 200 OK", length, &head, Framing::None, true),
        ("HTTP/1.1 200 OK", chunked, &head, Framing::None, true),
        ("HTTP/1.1 200 OK", "", &head, Framing::None, true),
        ("HTTP/1.1 304 x", length, &get, Framing::None, true),
        ("HTTP/1.1 304 x", chunked, &get, Framing::None, true),
        ("HTTP/1.1 204 x", "", &get, Framing::None, true),
        ("HTTP/1.1 204 x", "Content-Length: 0\r\n", &get, Framing::None, true),
        ("HTTP/1.1 204 x", length, &get, Framing::None, false),
        ("HTTP/1.1 204 x", chunked, &get, Framing::None, false),
        ("HTTP/1.1 100 x", "", &get, Framing::None, true),
        ("HTTP/1.1 103 x", "Connection: close\r\n", &get, Framing::None, true),
        ("HTTP/1.1 103 x", length, &get, Framing::None, false),
        ("HTTP/1.1 100 x", chunked, &get, Framing::None, false),
        ("HTTP/1.1 101 x", length, &get, Framing::None, false),
        ("HTTP/1.1 200 x", "", &connect, Framing::None, false),
        ("HTTP/1.1 299 x", "Content-Length: 5\r\nTransfer-Encoding: gzip\r\n", &connect, Framing::None, false),
        ("HTTP/1.1 407 x", length, &connect, Framing::Length(5), true),
        ("HTTP/1.1 502 x", "", &connect, Framing::UntilClose, false),
    ] {
        let answer = response_with(start, fields);
        assert_eq!(of_response(&answer, asked), Ok(framing), "{start} {fields} {asked}");
        assert_eq!(reusable(&answer, asked), again, "{start} {fields} {asked}");
    }
    assert!(begins_tunnel(&response_with("HTTP/1.1 101 x", ""), &get));
    assert!(!begins_tunnel(&response_with("HTTP/1.1 200 x", ""), &get));
}
