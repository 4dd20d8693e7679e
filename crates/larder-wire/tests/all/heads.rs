//! Tables of heads: what is accepted and how it reads, what is refused and why, and every limit.

use larder_wire::parse::{HeadLimits, HeadScan, Parsed, request, response};
use larder_wire::{FaultKind, Method, RequestHead, ResponseHead, Target, Version};

fn read_request(text: &[u8]) -> Result<(RequestHead, usize), FaultKind> {
    match request(text, &HeadLimits::default()) {
        Ok(Parsed::Complete { head, len }) => Ok((head, len)),
        Ok(Parsed::Partial) => panic!("partial: {}", String::from_utf8_lossy(text)),
        Err(fault) => {
            assert!(fault.status() == 400 || fault.kind == FaultKind::Version, "{fault}");
            Err(fault.kind)
        }
    }
}

fn read_response(text: &[u8]) -> Result<(ResponseHead, usize), FaultKind> {
    match response(text, &HeadLimits::default()) {
        Ok(Parsed::Complete { head, len }) => Ok((head, len)),
        Ok(Parsed::Partial) => panic!("partial: {}", String::from_utf8_lossy(text)),
        Err(fault) => {
            assert_eq!(fault.status(), 502);
            Err(fault.kind)
        }
    }
}

#[test]
fn refused_start_lines_of_requests() {
    use FaultKind::{LineEnd, RequestLine, Target, Version};
    let table: &[(&[u8], FaultKind)] = &[
        (b"GET /", RequestLine),
        (b"GET", RequestLine),
        (b"GET / ", RequestLine),
        (b"GET  / HTTP/1.1", RequestLine),
        (b"GET /  HTTP/1.1", RequestLine),
        (b"GET / HTTP/1.1 ", RequestLine),
        (b"GET /a b HTTP/1.1", RequestLine),
        (b" GET / HTTP/1.1", RequestLine),
        (b"\tGET / HTTP/1.1", RequestLine),
        (b"GET\t/ HTTP/1.1", RequestLine),
        (b"GET  HTTP/1.1", RequestLine),
        (b"G(T / HTTP/1.1", RequestLine),
        (b"G\x00T / HTTP/1.1", RequestLine),
        (b"\xc3\xa4 / HTTP/1.1", RequestLine),
        (b"\"GET\" / HTTP/1.1", RequestLine),
        (b"\x16\x03\x01 / HTTP/1.1", RequestLine),
        (b"GET / http/1.1", RequestLine),
        (b"GET / Http/1.1", RequestLine),
        (b"GET / HTTP/1", RequestLine),
        (b"GET / HTTP/1.", RequestLine),
        (b"GET / HTTP/1.10", RequestLine),
        (b"GET / HTTP/11.1", RequestLine),
        (b"GET / HTTP/ 1.1", RequestLine),
        (b"GET / HTTP/1,1", RequestLine),
        (b"GET / HTTP/+1.1", RequestLine),
        (b"GET / HTTPS/1.1", RequestLine),
        (b"GET / ICY/1.1", RequestLine),
        (b"GET / HTTP/1.1x", RequestLine),
        (b"GET / HTTP/0.9", Version),
        (b"GET / HTTP/2.0", Version),
        (b"GET / HTTP/3.1", Version),
        (b"PRI * HTTP/2.0", Version),
        (b"GET /a\rb HTTP/1.1", LineEnd),
        (b"GET / HTTP/1.1\r", LineEnd),
        (b"GET a HTTP/1.1", Target),
        (b"GET a.example/b HTTP/1.1", Target),
        (b"GET a.example:80 HTTP/1.1", Target),
        (b"GET ?q HTTP/1.1", Target),
        (b"GET \\a HTTP/1.1", Target),
        (b"GET /a#b HTTP/1.1", Target),
        (b"GET http://a/#b HTTP/1.1", Target),
        (b"GET /a\x00 HTTP/1.1", Target),
        (b"GET /a\tb HTTP/1.1", Target),
        (b"GET /a\x7f HTTP/1.1", Target),
        (b"GET /\xc3\xa4 HTTP/1.1", Target),
        (b"GET /\xff HTTP/1.1", Target),
        (b"GET * HTTP/1.1", Target),
        (b"OPTIONS ** HTTP/1.1", Target),
        (b"GET gopher://a/ HTTP/1.1", Target),
        (b"GET ftp:///a HTTP/1.1", Target),
        (b"GET ftp://u:p@a/ HTTP/1.1", Target),
        (b"GET ftp://a:0/ HTTP/1.1", Target),
        (b"CONNECT ftp://a:21 HTTP/1.1", Target),
        (b"GET file:///etc/passwd HTTP/1.1", Target),
        (b"GET urn:x HTTP/1.1", Target),
        (b"GET http:/a HTTP/1.1", Target),
        (b"GET http:a HTTP/1.1", Target),
        (b"GET http:///a HTTP/1.1", Target),
        (b"GET http:// HTTP/1.1", Target),
        (b"GET http://u@a/ HTTP/1.1", Target),
        (b"GET http://u:p@a/ HTTP/1.1", Target),
        (b"GET http://a:0/ HTTP/1.1", Target),
        (b"GET http://a:65536/ HTTP/1.1", Target),
        (b"GET http://a:+80/ HTTP/1.1", Target),
        (b"GET http://a:x/ HTTP/1.1", Target),
        (b"GET http://a:80:80/ HTTP/1.1", Target),
        (b"GET http://[::1/ HTTP/1.1", Target),
        (b"GET http://[::1]x/ HTTP/1.1", Target),
        (b"GET http://::1/ HTTP/1.1", Target),
        (b"GET http://a%41/ HTTP/1.1", Target),
        (b"GET http://a\\b/ HTTP/1.1", Target),
        (b"CONNECT / HTTP/1.1", Target),
        (b"CONNECT a HTTP/1.1", Target),
        (b"CONNECT a: HTTP/1.1", Target),
        (b"CONNECT a:0 HTTP/1.1", Target),
        (b"CONNECT a:99999 HTTP/1.1", Target),
        (b"CONNECT :443 HTTP/1.1", Target),
        (b"CONNECT u@a:443 HTTP/1.1", Target),
        (b"CONNECT a:443/ HTTP/1.1", Target),
        (b"CONNECT http://a:443 HTTP/1.1", Target),
        (b"CONNECT * HTTP/1.1", Target),
    ];
    for (line, kind) in table {
        let message = [line, &b"\r\nHost: a\r\n\r\n"[..]].concat();
        assert_eq!(read_request(&message), Err(*kind), "{}", String::from_utf8_lossy(line));
    }
}

/// Field lines that no head may have, whichever side sends it.
const BAD_FIELDS: &[(&[u8], FaultKind)] = &[
    (b"A : b", FaultKind::FieldLine),
    (b"A\t: b", FaultKind::FieldLine),
    (b" A: b", FaultKind::FieldLine),
    (b"\tA: b", FaultKind::FieldLine),
    (b"X: a\r\n b", FaultKind::FieldLine),
    (b"X: a\r\n\tb", FaultKind::FieldLine),
    (b"X: a\r\n ", FaultKind::FieldLine),
    (b": b", FaultKind::FieldLine),
    (b"A", FaultKind::FieldLine),
    (b"A b", FaultKind::FieldLine),
    (b"A b: c", FaultKind::FieldLine),
    (b"A(: b", FaultKind::FieldLine),
    (b"\"A\": b", FaultKind::FieldLine),
    (b"A/B: c", FaultKind::FieldLine),
    (b"A\x00: b", FaultKind::FieldLine),
    (b"A\x7f: b", FaultKind::FieldLine),
    (b"\xc3\xa4: b", FaultKind::FieldLine),
    (b"A: b\x00", FaultKind::FieldLine),
    (b"A: \x00b", FaultKind::FieldLine),
    (b"A:\x01", FaultKind::FieldLine),
    (b"A: b\x0bc", FaultKind::FieldLine),
    (b"A: b\x7fc", FaultKind::FieldLine),
    (b"A: b\x1bc", FaultKind::FieldLine),
    (b"A: b\nContent-Length: 5", FaultKind::LineEnd),
    (b"A: b\n", FaultKind::LineEnd),
    (b"A: b\n\n", FaultKind::LineEnd),
    (b"\nA: b", FaultKind::LineEnd),
    (b"\n", FaultKind::LineEnd),
    (b"A:\n b", FaultKind::LineEnd),
    (b"A: b\rc", FaultKind::LineEnd),
    (b"A: b\r", FaultKind::LineEnd),
    (b"A\r: b", FaultKind::LineEnd),
    (b"A:\rb", FaultKind::LineEnd),
    (b"\rA: b", FaultKind::LineEnd),
];

#[test]
fn refused_fields_of_either_side() {
    for (line, kind) in BAD_FIELDS {
        for (before, after) in [("", ""), ("Y: 1\r\n", "Z: 2\r\n")] {
            let fields = [before.as_bytes(), line, b"\r\n", after.as_bytes(), b"\r\n"].concat();
            let asked = [b"GET / HTTP/1.1\r\nHost: a\r\n", &fields[..]].concat();
            assert_eq!(read_request(&asked), Err(*kind), "{}", String::from_utf8_lossy(line));
            let answer = [b"HTTP/1.1 200 OK\r\n", &fields[..]].concat();
            assert_eq!(read_response(&answer), Err(*kind), "{}", String::from_utf8_lossy(line));
        }
    }
}

#[test]
fn refused_hosts() {
    let table: &[&[u8]] = &[
        b"",
        b"Host:\r\n",
        b"Host:  \r\n",
        b"Host: a\r\nHost: a\r\n",
        b"Host: a\r\nhOST: b\r\n",
        b"Host: a b\r\n",
        b"Host: a/b\r\n",
        b"Host: u@a\r\n",
        b"Host: a,b:80:90\r\n",
        b"Host: a:x\r\n",
        b"Host: a:0\r\n",
        b"Host: a:65536\r\n",
        b"Host: a:-1\r\n",
        b"Host: a:+1\r\n",
        b"Host: a: 80\r\n",
        b"Host: a:080000\r\n",
        b"Host: :80\r\n",
        b"Host: [::1\r\n",
        b"Host: ::1\r\n",
        b"Host: [x]\r\n",
        b"Host: [::1]80\r\n",
        b"Host: a?b\r\n",
        b"Host: a#b\r\n",
        b"Host: a\\b\r\n",
        b"Host: http://a\r\n",
        b"Host: a%2eb\r\n",
        b"Host: \xc3\xa4\r\n",
        b"Host: a\tb\r\n",
        b"Host: <a>\r\n",
        b"X: Host\r\n",
    ];
    for fields in table {
        for start in
            ["GET / HTTP/1.1\r\n", "GET http://b/ HTTP/1.1\r\n", "CONNECT b:1 HTTP/1.1\r\n", "GET / HTTP/1.0\r\n"]
        {
            let allowed = start.contains("1.0") && !fields.starts_with(b"Host");
            let message = [start.as_bytes(), fields, b"\r\n"].concat();
            match read_request(&message) {
                Ok(_) if allowed => {}
                got => assert_eq!(got, Err(FaultKind::Host), "{}", String::from_utf8_lossy(&message)),
            }
        }
    }
}

#[test]
fn refused_status_lines() {
    use FaultKind::{LineEnd, StatusLine, Version};
    let table: &[(&[u8], FaultKind)] = &[
        (b"", StatusLine),
        (b"200 OK", StatusLine),
        (b" HTTP/1.1 200 OK", StatusLine),
        (b"http/1.1 200 OK", StatusLine),
        (b"ICY 200 OK", StatusLine),
        (b"HTTP/1.1", StatusLine),
        (b"HTTP/1.1 ", StatusLine),
        (b"HTTP/1.1 20", StatusLine),
        (b"HTTP/1.1 2000", StatusLine),
        (b"HTTP/1.1 099 x", StatusLine),
        (b"HTTP/1.1 000 x", StatusLine),
        (b"HTTP/1.1 +20 x", StatusLine),
        (b"HTTP/1.1 -20 x", StatusLine),
        (b"HTTP/1.1 2x0 x", StatusLine),
        (b"HTTP/1.1 0x2 x", StatusLine),
        (b"HTTP/1.1  200 OK", StatusLine),
        (b"HTTP/1.1\t200 OK", StatusLine),
        (b"HTTP/1.1 200\tOK", StatusLine),
        (b"HTTP/1.1 200OK", StatusLine),
        (b"HTTP/1.1200 OK", StatusLine),
        (b"HTTP/1.1 200 O\x00K", StatusLine),
        (b"HTTP/1.1 200 O\x1bK", StatusLine),
        (b"HTTP/1.1 200 O\x7fK", StatusLine),
        (b"HTTP/1.1 200 O\rK", LineEnd),
        (b"HTTP/1.1 200 OK\r", LineEnd),
        (b"HTTP/1.1 200 OK\nA: b", LineEnd),
        (b"HTTP/1. 200 OK", StatusLine),
        (b"HTTP/1.1.1 200 OK", StatusLine),
        (b"HTTP/1.10 200 OK", StatusLine),
        (b"HTTP/2.0 200 OK", Version),
        (b"HTTP/0.9 200 OK", Version),
    ];
    for (line, kind) in table {
        let message = [line, &b"\r\nDate: x\r\n\r\n"[..]].concat();
        assert_eq!(read_response(&message), Err(*kind), "{}", String::from_utf8_lossy(line));
    }
}

#[test]
fn accepted_requests() {
    let origin = |path: &str| Target::Origin(path.into());
    let absolute = |url: &str| Target::Absolute(larder_wire::Url::parse(url).unwrap());
    let authority = |host: &str, port| Target::Authority(larder_wire::Host::parse(host).unwrap(), port);
    let table: &[(&str, Method, Target, Version)] = &[
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, origin("/"), Version::Http11),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Method::Get, origin("/"), Version::Http11),
        ("GET / HTTP/1.0\r\n\r\n", Method::Get, origin("/"), Version::Http10),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, origin("/"), Version::Http11),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, origin("/"), Version::Http11),
        ("GET //b/../c?d?e HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, origin("//b/../c?d?e"), Version::Http11),
        ("GET /\"<>\\^`{|}%zz HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, origin("/\"<>\\^`{|}%zz"), Version::Http11),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", Method::Other("get".into()), origin("/"), Version::Http11),
        ("M-SEARCH /x HTTP/1.1\r\nHost: a\r\n\r\n", Method::Other("M-SEARCH".into()), origin("/x"), Version::Http11),
        ("GET http://b HTTP/1.1\r\nHost: a\r\n\r\n", Method::Get, absolute("http://b/"), Version::Http11),
        (
            "GET HTTPS://B:8443?q HTTP/1.1\r\nHost: a\r\n\r\n",
            Method::Get,
            absolute("https://b:8443/?q"),
            Version::Http11,
        ),
        ("GET http://b:/x HTTP/1.0\r\n\r\n", Method::Get, absolute("http://b/x"), Version::Http10),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Method::Options, Target::Asterisk, Version::Http11),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Method::Connect, authority("a", 443), Version::Http11),
        ("CONNECT [::1]:1 HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", Method::Connect, authority("[::1]", 1), Version::Http11),
    ];
    for (text, method, target, version) in table {
        let (head, len) = read_request(text.as_bytes()).unwrap_or_else(|kind| panic!("{kind:?}: {text}"));
        assert_eq!((&head.method, &head.target, head.version, len), (method, target, *version, text.len()), "{text}");
    }
}

#[test]
fn an_options_of_a_whole_server_keeps_its_meaning_through_a_proxy() {
    let (head, _) = read_request(b"OPTIONS http://b:81 HTTP/1.1\r\nHost: b:81\r\n\r\n").unwrap();
    let url = head.url(larder_wire::Scheme::Http).unwrap();
    assert_eq!((&*url.path, url.to_string().as_str()), ("*", "http://b:81"));
    let (head, _) = read_request(b"OPTIONS http://b/ HTTP/1.1\r\nHost: b\r\n\r\n").unwrap();
    assert_eq!(&*head.url(larder_wire::Scheme::Http).unwrap().path, "/");
}

#[test]
fn accepted_fields_keep_case_order_and_bytes() {
    let text = b"GET / HTTP/1.1\r\nhOsT:a:\r\nX:\r\nY:  \t \r\nZ: \ta, b\xe4\t c \t\r\n!#$%&'*+-.^_`|~9: \"q\"\r\nX: 2\r\n\r\nrest";
    let (head, len) = read_request(text).unwrap();
    assert_eq!(&text[len..], b"rest");
    let lines: Vec<(&str, &[u8])> = head.fields.iter().collect();
    let wanted: [(&str, &[u8]); 6] =
        [("hOsT", b"a:"), ("X", b""), ("Y", b""), ("Z", b"a, b\xe4\t c"), ("!#$%&'*+-.^_`|~9", b"\"q\""), ("X", b"2")];
    assert_eq!(lines, wanted);
}

#[test]
fn accepted_status_lines() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.0 404 Not  Found ", 404, "Not  Found "),
        ("HTTP/1.3 999 x\ty", 999, "x\ty"),
        ("HTTP/1.1 100 Continue", 100, "Continue"),
    ] {
        let (head, _) = read_response(format!("{line}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!((head.status, &*head.reason), (status, reason), "{line}");
    }
    let (head, _) = read_response(b"HTTP/1.1 200 caf\xe9\r\n\r\n").unwrap();
    assert_eq!(&*head.reason, "caf\u{fffd}");
}

#[test]
fn empty_lines_before_a_request_are_crlf_and_two_at_most() {
    let limits = HeadLimits::default();
    for (text, wanted) in [
        ("\r\n\r\n\r\nGET / HTTP/1.1\r\n", FaultKind::RequestLine),
        ("\nGET / HTTP/1.1\r\n", FaultKind::LineEnd),
        ("\r\n\nGET / HTTP/1.1\r\n", FaultKind::LineEnd),
        ("\rGET / HTTP/1.1\r\n", FaultKind::LineEnd),
    ] {
        assert_eq!(request(text.as_bytes(), &limits).unwrap_err().kind, wanted, "{text:?}");
    }
    for text in ["", "\r", "\r\n", "\r\n\r", "\r\n\r\n"] {
        assert_eq!(request(text.as_bytes(), &limits), Ok(Parsed::Partial), "{text:?}");
    }
    assert_eq!(response(b"\r\nHTTP/1.1 200 OK\r\n\r\n", &limits).unwrap_err().kind, FaultKind::StatusLine);
}

#[test]
fn what_can_become_nothing_good_is_refused_before_the_head_is_complete() {
    let limits = HeadLimits::default();
    let early: &[(&[u8], FaultKind)] = &[
        (b"\x16", FaultKind::RequestLine),
        (b"\x00", FaultKind::RequestLine),
        (b"GET / HTTP/1.1\n", FaultKind::LineEnd),
        (b"GET / HTTP/1.1\r\nA: b\n", FaultKind::LineEnd),
        (b"GET / HTTP/2.0\r\n", FaultKind::Version),
        (b"GET /#a HTTP/1.1\r\nHo", FaultKind::Target),
    ];
    for (text, kind) in early {
        assert_eq!(request(text, &limits).unwrap_err().kind, *kind);
    }
    assert_eq!(response(b"SSH-2.0", &limits).unwrap_err().kind, FaultKind::StatusLine);
    assert_eq!(response(b"HTTP/1.1 abc\r\n", &limits).unwrap_err().kind, FaultKind::StatusLine);
}

/// A request of exactly `len` bytes.
fn request_of(len: usize) -> Vec<u8> {
    let mut text = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
    text.resize(len - 4, b'x');
    text.extend_from_slice(b"\r\n\r\n");
    text
}

#[test]
fn head_bytes_max_holds_for_whole_and_unfinished_heads() {
    let limits = HeadLimits { head_bytes_max: 100, ..HeadLimits::default() };
    assert!(matches!(request(&request_of(100), &limits), Ok(Parsed::Complete { len: 100, .. })));
    let long = request_of(101);
    assert_eq!(request(&long, &limits).unwrap_err().status(), 431);
    assert_eq!(request(&long[..99], &limits), Ok(Parsed::Partial));
    assert_eq!(request(&long[..100], &limits).unwrap_err().kind, FaultKind::HeadTooLong);
    let answer = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; 100]].concat();
    assert_eq!(response(&answer, &limits).unwrap_err().kind, FaultKind::HeadTooLong);
    let defaults = HeadLimits::default();
    assert!(matches!(request(&request_of(65536), &defaults), Ok(Parsed::Complete { .. })));
    assert_eq!(request(&request_of(65537), &defaults).unwrap_err().kind, FaultKind::HeadTooLong);
}

#[test]
fn target_bytes_max_holds_for_whole_and_unfinished_start_lines() {
    let limits = HeadLimits { target_bytes_max: 20, ..HeadLimits::default() };
    let line = |path: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "p".repeat(path));
    assert!(matches!(request(line(6).as_bytes(), &limits), Ok(Parsed::Complete { .. })));
    let fault = request(line(7).as_bytes(), &limits).unwrap_err();
    assert_eq!((fault.kind, fault.status()), (FaultKind::TargetTooLong, 414));
    assert_eq!(request(&line(50).as_bytes()[..21], &limits), Ok(Parsed::Partial));
    assert_eq!(request(&line(50).as_bytes()[..22], &limits).unwrap_err().kind, FaultKind::TargetTooLong);
    let answer = format!("HTTP/1.1 200 {}\r\n\r\n", "r".repeat(8));
    assert_eq!(response(answer.as_bytes(), &limits).unwrap_err().kind, FaultKind::HeadTooLong);
}

#[test]
fn fields_max_holds_as_soon_as_one_is_too_many() {
    let limits = HeadLimits { fields_max: 3, ..HeadLimits::default() };
    let three = "GET / HTTP/1.1\r\nHost: a\r\nB: 1\r\nC: 2\r\n";
    assert!(matches!(request(format!("{three}\r\n").as_bytes(), &limits), Ok(Parsed::Complete { .. })));
    let fault = request(format!("{three}D: 3\r\n").as_bytes(), &limits).unwrap_err();
    assert_eq!((fault.kind, fault.status()), (FaultKind::TooManyFields, 431));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(128));
    assert_eq!(read_response(many.as_bytes()).unwrap().0.fields.len(), 128);
    let more = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(129));
    assert_eq!(read_response(more.as_bytes()), Err(FaultKind::TooManyFields));
}

#[test]
fn pipelined_requests_come_one_after_the_other_from_one_scan() {
    let all = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut scan, mut from, mut targets) = (HeadScan::new(), 0, Vec::new());
    for to in 0..=all.len() {
        if let Parsed::Complete { head, len } = scan.request(&all[from..to], &HeadLimits::default()).unwrap() {
            from += len;
            targets.push(head.target.to_string());
        }
    }
    assert_eq!((targets.join(" ").as_str(), from), ("/1 /2 /3", all.len()));
}
