//! Requests and answers as fields: malformed ones, and those that must not become something else over HTTP/1.1.

use super::client::{connect, get};
use super::{came_whole, log, site};
use crate::seen::stand;
use larder_wire::h2::ErrorCode;
use larder_wire::h2::frame;

/// Fields instead of, or behind, those of a GET.
fn with<'a>(base: &str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = match base {
        "" => Vec::new(),
        "post" => vec![(":method", "POST"), (":scheme", "http"), (":authority", "site.test"), (":path", "/echo")],
        _ => get("/echo"),
    };
    fields.extend_from_slice(more);
    fields
}

/// Requests that end in a reset by PROTOCOL_ERROR.
pub fn malformed() -> Vec<Vec<(&'static str, &'static str)>> {
    let (method, scheme, authority, path) =
        ((":method", "GET"), (":scheme", "http"), (":authority", "site.test"), (":path", "/echo"));
    let of_path = |path| vec![method, scheme, authority, (":path", path)];
    let of_authority = |name| vec![method, scheme, (":authority", name), path];
    vec![
        with("get", &[("connection", "close")]),
        with("get", &[("keep-alive", "1")]),
        with("get", &[("proxy-connection", "close")]),
        with("get", &[("transfer-encoding", "chunked")]),
        with("get", &[("upgrade", "h2c")]),
        with("get", &[("te", "gzip")]),
        with("get", &[("X-Capital", "a")]),
        with("get", &[("x a", "b")]),
        with("get", &[("x:a", "b")]),
        with("get", &[("", "b")]),
        with("get", &[("x-a", "b\r\nx-smuggled: c")]),
        with("get", &[("x-a", "b\nx-smuggled: c")]),
        with("get", &[("x-a", "b\rc")]),
        with("get", &[("x-a", "b\0c")]),
        with("get", &[("x-a", " b")]),
        with("get", &[("x-a", "b\t")]),
        with("get", &[("x-a\r\nx-b", "c")]),
        with("get", &[("host", "evil.test")]),
        with("get", &[("host", "site.test"), ("host", "site.test")]),
        with("get", &[(":path", "/other")]),
        with("get", &[(":status", "200")]),
        with("get", &[(":protocol", "websocket")]),
        with("get", &[(":unknown", "a")]),
        with("get", &[("x-a", "b"), (":extra", "c")]),
        vec![method, scheme, authority],
        vec![method, authority, path],
        vec![scheme, authority, path],
        vec![method, method, scheme, authority, path],
        vec![method, scheme, authority, ("x-a", "b"), path],
        vec![method, (":scheme", "gopher"), authority, path],
        vec![(":method", "GE T"), scheme, authority, path],
        vec![(":method", "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\nGET"), scheme, authority, path],
        of_path(""),
        of_path("*"),
        of_path("http://site.test/echo"),
        of_path("echo"),
        of_path("/a b"),
        of_path("/a HTTP/1.1\r\nx: y"),
        of_path("/a\tb"),
        of_authority("site.test/evil"),
        of_authority("user@site.test"),
        of_authority("site.test?x"),
        of_authority("site.test#x"),
        of_authority("site.test\\x"),
        of_authority("site.test evil"),
        vec![(":method", "CONNECT"), authority, path],
        vec![(":method", "CONNECT"), scheme, authority],
        vec![(":method", "CONNECT")],
    ]
}

#[test]
fn malformed_requests_are_reset_and_reach_no_origin() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let cases = malformed();
    for fields in &cases {
        let mut client = connect(address);
        client.request(1, fields, true);
        let answer = client.answer(1);
        assert_eq!(answer.reset, Some(ErrorCode::Protocol), "{fields:?}: {answer:?}");
        // The connection goes on.
        assert_eq!(client.ask(3, "/echo").status(), "200", "{fields:?}");
    }
    let log = log(server, folder.path());
    assert_eq!(log.matches("http2-malformed").count(), cases.len(), "{log}");
    assert_eq!(log.matches("GET http://site.test/echo HTTP/2.0\" 200").count(), cases.len(), "{log}");
    assert!(!log.contains("smuggled") && !log.contains("evil"), "{log}");
}

/// Requests that the parser of HTTP/1.1 refuses get its error page.
#[test]
fn the_strict_parser_judges_requests_of_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "[limits]\ntarget_bytes_max = \"1KiB\"\n");
    let long = format!("/{}", "a".repeat(2_000));
    let many: Vec<(String, &str)> = (0..200).map(|number| (format!("x-{number}"), "a")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, *value)).collect();
    let cases = [
        (get(&long), "414"),
        (with("get", &many), "431"),
        (vec![(":method", "GET"), (":scheme", "http"), (":path", "/")], "400"),
        (with("get", &[("content-length", "x")]), "400"),
        (with("get", &[("content-length", "0"), ("content-length", "0")]), "400"),
        (vec![(":method", "GET"), (":scheme", "http"), (":authority", "a..b"), (":path", "/")], "404"),
        (vec![(":method", "CONNECT"), (":authority", "site.test:443")], "403"),
    ];
    for (fields, status) in cases {
        let mut client = connect(address);
        client.request(1, &fields, true);
        assert_eq!(client.answer(1).status(), status, "{fields:?}");
    }
}

#[test]
fn bodies_are_as_long_as_content_length_says() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "");
    for (length, pieces, is_right) in [
        ("3", &["abc"][..], true),
        ("3", &["a", "bc"], true),
        ("3", &["ab"], false),
        ("3", &["abcd"], false),
        ("0", &["a"], false),
        ("2", &["ab", "c"], false),
    ] {
        let mut client = connect(address);
        client.request(1, &with("post", &[("content-length", length)]), false);
        for (number, piece) in pieces.iter().enumerate() {
            client.data(1, piece.as_bytes(), number + 1 == pieces.len());
        }
        let answer = client.answer(1);
        let expected = (!is_right).then_some(ErrorCode::Protocol);
        assert_eq!(answer.reset, expected, "{length} {pieces:?}: {answer:?}");
        assert!(!is_right || answer.text().ends_with("\r\n\r\nabc"), "{answer:?}");
    }
    // A length and no DATA.
    let mut client = connect(address);
    client.request(1, &with("post", &[("content-length", "3")]), true);
    assert_eq!(client.answer(1).reset, Some(ErrorCode::Protocol));
}

/// The request that an origin of HTTP/1.1 gets.
#[test]
fn an_origin_gets_one_plain_request() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let mut client = connect(address);
    let fields = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers"), ("x-a", ""), ("host", "SITE.test")];
    client.request(1, &with("post", &fields), false);
    client.data(1, b"one", false);
    client.data(1, b"two", true);
    let text = client.answer(1).text().to_lowercase();
    assert!(text.starts_with("post /echo http/1.1\r\n"), "{text}");
    assert!(text.contains("\r\ncookie: a=1; b=2\r\n") && text.matches("cookie:").count() == 1, "{text}");
    assert!(text.contains("\r\nvia: 2.0 ") && text.ends_with("\r\n\r\nonetwo"), "{text}");
    assert_eq!(
        text.matches("transfer-encoding: chunked").count() + text.matches("content-length: 6").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("\r\nhost:").count(), 1, "{text}");
    // Trailer fields of the request go on where chunks do, and a pseudo-field among them is malformed.
    client.request(3, &with("post", &[]), false);
    client.data(3, b"body", false);
    client.request(3, &[("x-sum", "7")], true);
    assert!(client.answer(3).text().contains("body"));
    client.request(5, &with("post", &[]), false);
    client.request(5, &[(":path", "/evil")], true);
    assert_eq!(client.answer(5).reset, Some(ErrorCode::Protocol));
    client.request(7, &with("post", &[]), false);
    client.request(7, &[("x-sum", "7")], false);
    assert_eq!(client.answer(7).reset, Some(ErrorCode::Protocol));
    assert!(log(server, folder.path()).contains("\"POST http://site.test/echo HTTP/2.0\" 200"));
}

#[test]
fn answers_have_their_heads_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = site(folder.path(), "");
    let mut client = connect(address);
    let early = client.ask(1, "/early");
    assert_eq!(early.heads.iter().map(|head| &*head[0].1).collect::<Vec<_>>(), ["103", "200"], "{early:?}");
    assert_eq!((early.text(), early.has_ended), ("ok".to_owned(), true));
    let trailers = client.ask(3, "/trailers");
    assert_eq!(trailers.text(), "ok");
    assert_eq!(trailers.heads[1], [("x-sum".to_owned(), "7".to_owned())], "{trailers:?}");
    assert!(trailers.field("transfer-encoding").is_none() && trailers.field("connection").is_none());
    for (stream, path) in [(5, "/fresh"), (7, "/fresh")] {
        let answer = client.ask(stream, path);
        assert_eq!((answer.status(), answer.text()), ("200", "bytes".to_owned()));
        assert_eq!(answer.field("content-length"), Some("5"));
    }
    client.request(
        9,
        &[(":method", "HEAD"), (":scheme", "http"), (":authority", "site.test"), (":path", "/fresh")],
        true,
    );
    let head = client.answer(9);
    assert_eq!((head.status(), head.bytes, head.field("content-length")), ("200", 0, Some("5")));
    let ranged: Vec<_> = get("/fresh").into_iter().chain([("range", "bytes=1-2")]).collect();
    client.request(13, &ranged, true);
    assert_eq!((client.answer(13).status(), client.answer(13).text()), ("206", "yt".to_owned()));
    // An answer that breaks off is no whole one.
    let half = client.ask(15, "/half");
    assert_eq!((half.text(), half.has_ended, half.reset.is_some()), ("ha".to_owned(), false, true));
    client.send(|out| frame::write_ping(out, *b"12345678"));
    client.read_until(|client| client.pongs == 1);
    assert_eq!(client.pongs, 1);
}

#[test]
fn a_forward_proxy_gets_whole_urls() {
    let folder = tempfile::tempdir().unwrap();
    let origin = stand::origin_that(super::serve);
    let server = stand::server(folder.path(), "");
    let mut client = connect(server.addresses()[0]);
    let host = origin.to_string();
    client.request(1, &[(":method", "GET"), (":scheme", "http"), (":authority", &host), (":path", "/echo")], true);
    let answer = client.answer(1);
    assert!(answer.text().starts_with("GET /echo HTTP/1.1\r\n"), "{answer:?}");
}

#[test]
fn a_listener_may_speak_http_1_1_alone() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "[[listen]]\naddress = \"127.0.0.1:0\"\nhttp2 = false\n";
    let (_server, address) = site(folder.path(), listen);
    let answer = stand::exchange(address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 505 ") || answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// A request that turns out to be malformed behind all the bytes that its length promised does not reach its origin whole, and has the
/// word in the log.
#[test]
fn a_body_whose_end_is_malformed_reaches_no_origin_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (server, address) = site(folder.path(), "");
    let mut client = connect(address);
    let cases = ["/whole/2/more", "/whole/2/trailers", "/whole/2/reset"];
    for (stream, path) in (1..).step_by(2).zip(cases) {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "site.test"),
            (":path", path),
            ("content-length", "3"),
        ];
        client.request(stream, &fields, false);
        client.data(stream, b"abc", false);
        std::thread::sleep(std::time::Duration::from_millis(300));
        match path {
            "/whole/2/more" => client.data(stream, b"d", true),
            "/whole/2/trailers" => client.request(stream, &[(":path", "/evil")], true),
            _ => client.send(|out| frame::write_reset(out, stream, ErrorCode::Cancel)),
        }
    }
    assert_eq!(client.ask(7, "/fresh").status(), "200");
    let right = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "site.test"),
        (":path", "/whole/2"),
        ("content-length", "3"),
    ];
    client.request(9, &right, false);
    client.data(9, b"abc", false);
    std::thread::sleep(std::time::Duration::from_millis(100));
    client.data(9, b"", true);
    assert_eq!(client.answer(9).status(), "200");
    assert!(came_whole("/whole/2"));
    for path in cases {
        assert!(!came_whole(path), "{path}");
    }
    let log = log(server, folder.path());
    assert_eq!(log.matches("http2-malformed").count(), 2, "{log}");
}
