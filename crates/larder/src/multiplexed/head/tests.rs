//! Field lists, and the heads or faults that they make.

use super::*;

fn list(fields: &[(&str, &str)]) -> FieldList {
    let mut block = Vec::new();
    for (name, value) in fields {
        larder_wire::h2::hpack::write_field(&mut block, name.as_bytes(), value.as_bytes(), false);
    }
    let mut list = FieldList::default();
    larder_wire::h2::hpack::Decoder::new().decode(&block, 16 * 1024, &mut list).unwrap();
    list
}

/// The head in lines, or the fault.
fn written(fields: &[(&str, &str)], ends_stream: bool, form: TargetForm) -> String {
    let mut text = b"what was there before".to_vec();
    match write(&list(fields), ends_stream, |_| form, &mut text) {
        Ok(()) => String::from_utf8(text).unwrap().replace("\r\n", "|"),
        Err(Malformed(detail)) => format!("malformed: {detail}"),
        Err(HeadFault::Refused(fault)) => format!("refused: {}", fault.detail),
    }
}

const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/p?q")];

fn get<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&GET[..], more].concat()
}

fn connect<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[(":method", "CONNECT"), (":authority", "a.test:443")], more].concat()
}

#[test]
fn lists_make_heads() {
    let (server, proxy) = (TargetForm::Origin, TargetForm::Absolute);
    for (fields, ends, form, expected) in [
        (get(&[]), true, server, "GET /p?q HTTP/1.1|host: a.test||"),
        (get(&[]), true, proxy, "GET https://a.test/p?q HTTP/1.1|host: a.test||"),
        (get(&[]), false, server, "GET /p?q HTTP/1.1|host: a.test|transfer-encoding: chunked||"),
        (get(&[("content-length", "3")]), false, server, "GET /p?q HTTP/1.1|host: a.test|content-length: 3||"),
        (get(&[("host", "A.test"), ("x", "")]), true, server, "GET /p?q HTTP/1.1|host: a.test|x: ||"),
        (
            get(&[("cookie", "a"), ("x", "y"), ("cookie", "b")]),
            true,
            server,
            "GET /p?q HTTP/1.1|host: a.test|x: y|cookie: a; b||",
        ),
        (connect(&[]), false, proxy, "CONNECT a.test:443 HTTP/1.1|host: a.test:443||"),
        (
            connect(&[(":protocol", "websocket"), (":scheme", "https"), (":path", "/chat")]),
            false,
            server,
            "GET /chat HTTP/1.1|host: a.test:443|connection: upgrade|upgrade: websocket||",
        ),
    ] {
        assert_eq!(written(&fields, ends, form), expected, "{fields:?}");
    }
}

#[test]
fn lists_that_are_no_requests() {
    let websocket = (":protocol", "websocket");
    for (fields, part) in [
        (get(&[("te", "gzip")]), "TE"),
        (get(&[("upgrade", "h2c")]), "about a connection"),
        (get(&[("connection", "x")]), "about a connection"),
        (get(&[("x", "a\r\nb: c")]), "CR, LF"),
        (get(&[("x", " a")]), "blanks"),
        (get(&[("host", "b.test")]), "differ"),
        (get(&[("x", "y"), (":path", "/")]), "behind a field"),
        (get(&[(":path", "/")]), "twice"),
        (get(&[(":status", "200")]), "that no request has"),
        (get(&[websocket]), ":protocol"),
        (connect(&[(":path", "/")]), "alone"),
        (connect(&[websocket]), ":scheme"),
        (connect(&[websocket, (":scheme", "https")]), ":path"),
        (connect(&[(":protocol", "a b"), (":scheme", "https"), (":path", "/")]), ":protocol"),
        (vec![(":method", "CONNECT"), websocket, (":scheme", "https"), (":path", "/")], ":protocol"),
    ] {
        let fault = written(&fields, true, TargetForm::Origin);
        assert!(fault.starts_with("malformed: ") && fault.contains(part), "{fields:?}: {fault}");
    }
}

#[test]
fn trailer_fields_are_fields_alone() {
    let trailers = |fields: &[(&str, &str)]| {
        field_list::trailers(&list(fields), larder_wire::Side::Client).ok().map(|fields| fields.iter().count())
    };
    assert_eq!(trailers(&[("x-sum", "7"), ("x", "")]), Some(2));
    assert_eq!(trailers(&[]), Some(0));
    for fields in [[(":path", "/")], [("x", "a\r\n\r\nGET / HTTP/1.1")], [("transfer-encoding", "chunked")]] {
        assert_eq!(trailers(&fields), None, "{fields:?}");
    }
}
