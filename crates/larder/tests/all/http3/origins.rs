//! Requests over HTTP/3 as origins get them.

use super::client::{Client, code, data, get, headers, tls};
use super::{Site, write_certificate};
use crate::http2::came_whole;
use crate::seen::stand;
use larder_wire::h3::ErrorCode;

/// HEADERS of a POST with these fields beside.
fn post(more: &[(&'static str, &'static str)]) -> Vec<u8> {
    let mut fields = get("/echo");
    fields[0].1 = "POST";
    fields.extend_from_slice(more);
    headers(&fields)
}

/// The request that an origin of HTTP/1.1 gets.
#[test]
fn an_origin_gets_one_plain_request() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    let fields = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers"), ("x-a", ""), ("host", "SITE.test")];
    let text = client.play(&[post(&fields), data(b"one"), data(b"two")].concat()).text().to_lowercase();
    assert!(text.starts_with("post /echo http/1.1\r\n"), "{text}");
    assert!(text.contains("\r\ncookie: a=1; b=2\r\n") && text.matches("cookie:").count() == 1, "{text}");
    assert!(text.contains("\r\nvia: 3.0 ") && text.ends_with("\r\n\r\nonetwo"), "{text}");
    assert_eq!(
        text.matches("transfer-encoding: chunked").count() + text.matches("content-length: 6").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("\r\nhost:").count(), 1, "{text}");
    // A body that would be a chunk's end and another request, had it been written as it came.
    let smuggled = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: site.test\r\n\r\n";
    for fields in [&[][..], &[("content-length", "48")]] {
        assert_eq!(smuggled.len(), 48);
        let text = client.play(&[post(fields), data(smuggled)].concat()).text();
        assert!(text.starts_with("POST /echo ") && text.ends_with("Host: site.test\r\n\r\n"), "{text}");
        let next = client.get("/echo/next").text();
        assert!(next.starts_with("GET /echo/next HTTP/1.1\r\n"), "{next}");
    }
    let log = site.log(folder.path());
    assert!(!log.contains("smuggled"), "{log}");
}

#[test]
fn bodies_are_as_long_as_content_length_says() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    for (length, pieces, is_right) in [
        ("3", &["abc"][..], true),
        ("3", &["a", "bc"], true),
        ("0", &[], true),
        ("3", &["ab"], false),
        ("3", &["abcd"], false),
        ("0", &["a"], false),
        ("2", &["ab", "c"], false),
        ("3", &[], false),
    ] {
        let client = Client::to(&site);
        let mut bytes = post(&[("content-length", length)]);
        pieces.iter().for_each(|piece| bytes.extend(data(piece.as_bytes())));
        let answer = client.play(&bytes);
        let expected = (!is_right).then_some(ErrorCode::Message.number());
        assert_eq!(answer.reset, expected, "{length} {pieces:?}: {answer:?}");
        assert!(!is_right || answer.text().ends_with(&format!("\r\n\r\n{}", pieces.concat())), "{answer:?}");
    }
}

/// An origin that speaks HTTP/2 is asked by that for clients of HTTP/3 too.
#[test]
fn origins_may_speak_http2() {
    let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (back, origin) = crate::http2::site(behind.path(), "");
    let certificate = write_certificate(before.path()).cert.der().clone();
    let server = stand::server(
        before.path(),
        &format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nhttp3 = true\n\
             tls = [{{ chain = \"{0}/chain.pem\", key = \"{0}/key.pem\" }}]\n\
             [[site]]\nhosts = [\"site.test\"]\norigin = \"http://{origin}\"\nhttp2 = \"prior-knowledge\"\n",
            before.path().display()
        ),
    );
    let client = Client::with(server.addresses()[0], tls(&certificate, None)).unwrap();
    for _ in 0..2 {
        assert_eq!(client.get("/fresh").text(), "bytes");
    }
    let text = client.play(&[post(&[("x-a", "b")]), data(b"body")].concat()).text();
    assert!(text.starts_with("POST /echo ") && text.ends_with("\r\n\r\nbody"), "{text}");
    let trailers = client.get("/trailers");
    assert_eq!(trailers.trailers, [("x-sum".to_owned(), "7".to_owned())], "{trailers:?}");
    let broken = client.get("/half");
    assert_eq!(broken.reset, Some(ErrorCode::Internal.number()), "{broken:?}");
    server.stop();
    let seen = crate::http2::log(back, behind.path());
    assert!(seen.lines().count() == 4 && seen.lines().all(|line| line.contains("HTTP/2.0\"")), "{seen}");
}

/// A request that turns out to be malformed behind all the bytes that its length promised does not reach its origin whole, and has the
/// word in the log.
#[test]
fn a_body_whose_end_is_malformed_reaches_no_origin_whole() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let client = Client::to(&site);
    let post = |path| {
        let mut fields = get(path);
        (fields[0].1, fields[3].1) = ("POST", path);
        fields.push(("content-length", "3"));
        [headers(&fields), data(b"abc")].concat()
    };
    let cases = ["/whole/3/more", "/whole/3/trailers", "/whole/3/reset"];
    for path in cases {
        let (mut send, mut receive) = client.begin(&post(path), false);
        client.pause(300);
        match path {
            "/whole/3/more" => client.wait(send.write_all(&data(b"d"))).unwrap(),
            "/whole/3/trailers" => client.wait(send.write_all(&headers(&[(":path", "/evil")]))).unwrap(),
            _ => send.reset(code(ErrorCode::RequestCancelled)).unwrap(),
        }
        assert!(client.answer(&mut receive).reset.is_some(), "{path}");
    }
    let (mut send, mut receive) = client.begin(&post("/whole/3"), false);
    client.pause(100);
    send.finish().unwrap();
    assert_eq!(client.answer(&mut receive).status(), "200");
    assert!(came_whole("/whole/3"));
    for path in cases {
        assert!(!came_whole(path), "{path}");
    }
    drop(client);
    let log = site.log(folder.path());
    assert_eq!(log.matches("http3-malformed").count(), 2, "{log}");
}

/// Larder serves the site at the listener's port, so the origin's word about other ports is not for clients.
#[test]
fn an_alt_svc_of_the_origin_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path());
    let answer = Client::to(&site).get("/elsewhere");
    let all: Vec<_> = answer.heads[0].iter().filter(|(name, _)| name == "alt-svc").map(|(_, value)| &**value).collect();
    assert_eq!(all, [format!("h3=\":{}\"; ma=86400", site.address.port())], "{answer:?}");
}
