//! URLs, references, and which URL a request asks for.

use larder_wire::parse::{HeadLimits, Parsed, request};
use larder_wire::target::resolve;
use larder_wire::{FaultKind, Scheme, Url};

#[test]
fn absolute_urls() {
    for (text, wanted) in [
        ("http://a", "http://a/"),
        ("HTTP://A.Example:80", "http://a.example/"),
        ("https://a:443/b", "https://a/b"),
        ("https://a:80/b", "https://a:80/b"),
        ("http://a:/b", "http://a/b"),
        ("http://a?b=http://c@d:e", "http://a/?b=http://c@d:e"),
        ("http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080/"),
        ("http://127.0.0.1/../a/./", "http://127.0.0.1/../a/./"),
        ("http://a/@:", "http://a/@:"),
    ] {
        assert_eq!(Url::parse(text).map(|url| url.to_string()).as_deref(), Some(wanted), "{text}");
    }
    for text in [
        "",
        "a",
        "/a",
        "//a/b",
        "http:",
        "http:/",
        "http://",
        "http:///a",
        "http://?a",
        "http:a",
        "ftp://a/",
        "httpx://a/",
        "http ://a/",
        " http://a/",
        "http://a/ ",
        "http://a b/",
        "http://a/b c",
        "http://u@a/",
        "http://u:p@a/",
        "http://a@/",
        "http://:80/",
        "http://a:0/",
        "http://a:65536/",
        "http://a:-1/",
        "http://a:1x/",
        "http://a:000080/",
        "http://a/#",
        "http://a#b",
        "http://[::1",
        "http://::1/",
        "http://[::1]a/",
        "http://[a]/",
        "http://[]/",
        "http://a\\b/",
        "http://a%20b/",
        "http://\u{e4}/",
        "http://a/\u{e4}",
        "http://a/\n",
        "http://a/\0",
        "http://a/\x7f",
    ] {
        assert_eq!(Url::parse(text), None, "{text}");
    }
}

#[test]
fn references_resolve_as_rfc_3986_section_5_4_says() {
    let base = Url::parse("http://a/b/c/d;p?q").unwrap();
    for (reference, wanted) in [
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        ("#s", "http://a/b/c/d;p?q"),
        ("g#s", "http://a/b/c/g"),
        ("g?y#s", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("g;x", "http://a/b/c/g;x"),
        ("g;x?y#s", "http://a/b/c/g;x?y"),
        ("", "http://a/b/c/d;p?q"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("../../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        (".g", "http://a/b/c/.g"),
        ("g..", "http://a/b/c/g.."),
        ("..g", "http://a/b/c/..g"),
        ("./../g", "http://a/b/g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/./h", "http://a/b/c/g/h"),
        ("g/../h", "http://a/b/c/h"),
        ("g;x=1/./y", "http://a/b/c/g;x=1/y"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("g?y/./x", "http://a/b/c/g?y/./x"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
        ("g#s/./x", "http://a/b/c/g"),
        ("/a//../b", "http://a/a/b"),
        ("HTTPS://X:444/./y/..", "https://x:444/"),
        ("//g:81/../h?i", "http://g:81/h?i"),
        ("?a:b", "http://a/b/c/d;p?a:b"),
        ("./a:b", "http://a/b/c/a:b"),
    ] {
        assert_eq!(resolve(&base, reference).map(|url| url.to_string()).as_deref(), Some(wanted), "{reference}");
    }
    for reference in ["g:h", "http:g", "mailto:a@b", "//", "///g", "//u@g", "http://", "a b", "\u{e4}", "//g:0"] {
        assert_eq!(resolve(&base, reference), None, "{reference}");
    }
}

fn asked(text: &str, scheme: Scheme) -> Result<String, FaultKind> {
    match request(text.as_bytes(), &HeadLimits::default()) {
        Ok(Parsed::Complete { head, .. }) => match head.url(scheme) {
            Ok(url) => Ok(format!("{url} {}", url.path)),
            Err(fault) => Err(fault.kind),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_url_of_a_request() {
    use Scheme::{Http, Https};
    for (text, scheme, wanted) in [
        ("GET /x HTTP/1.1\r\nHost: A\r\n\r\n", Http, Ok("http://a/x /x")),
        ("GET /x HTTP/1.1\r\nHost: a:80\r\n\r\n", Https, Ok("https://a:80/x /x")),
        ("GET /x HTTP/1.1\r\nHost: a:443\r\n\r\n", Https, Ok("https://a/x /x")),
        ("GET /x HTTP/1.1\r\nHost: [::1]:8\r\n\r\n", Http, Ok("http://[::1]:8/x /x")),
        ("GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", Https, Ok("http://b/x /x")),
        ("GET https://b:81 HTTP/1.0\r\n\r\n", Http, Ok("https://b:81/ /")),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Http, Ok("http://a *")),
        ("GET /x HTTP/1.0\r\n\r\n", Http, Err(FaultKind::Host)),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Http, Err(FaultKind::Target)),
    ] {
        assert_eq!(asked(text, scheme), wanted.map(str::to_owned), "{text}");
    }
}

#[test]
fn ftp_is_for_requests_alone() {
    for text in ["ftp://a/", "FTP://A:21/", "ftp://a"] {
        assert_eq!(Url::parse(text), None, "{text}");
        let url = Url::parse_asked(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!((url.to_string().as_str(), url.port, url.authority().as_str()), ("ftp://a/", 21, "a"), "{text}");
    }
    assert_eq!(
        Url::parse_asked("ftp://a:2121/b;type=i").map(|url| url.to_string()).as_deref(),
        Some("ftp://a:2121/b;type=i")
    );
    for text in ["ftp://u@a/", "ftps://a/", "ftp:/a", "ftp://a/#b"] {
        assert_eq!(Url::parse_asked(text), None, "{text}");
    }
}
