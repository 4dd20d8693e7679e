//! Which responses are kept, and for how long they are fresh: RFC 9111 sections 3 and 4.2, row by row.

use super::policy_words;

use larder_cache::policy::{self, Settings, Storable, Times};
use larder_wire::date::Stamp;
use policy_words::{NOW, Rows, T0, private, request, response, shared, terms_for};

/// `no <why>` or `<lifetime> <source>`.
fn verdict(asked: &str, answered: &str, settings: &Settings) -> String {
    match policy::storable(&request(asked), &response(answered), NOW, settings) {
        Storable::Yes(terms) => format!("{} {}", terms.lifetime, terms.source.as_str()),
        Storable::No(why) => format!("no {}", why.as_str()),
    }
}

/// Section, request, response, verdict.
type Row<'a> = (&'a str, &'a str, &'a str, &'a str);

fn check(settings: &Settings, table: &[Row]) {
    let mut rows = Rows::default();
    for (section, asked, answered, expected) in table {
        rows.check(&format!("[{section}] {asked} -> {answered}"), verdict(asked, answered, settings), expected);
    }
}

#[test]
fn a_shared_cache_keeps() {
    check(
        &shared(),
        &[
            // Methods.
            ("9111 3", "GET", "200 | Cache-Control: max-age=60", "60 max-age"),
            ("9111 3", "HEAD", "200 | Cache-Control: max-age=60", "no method"),
            ("9110 9.3.3", "POST", "200 | Cache-Control: max-age=60", "no method"),
            ("9110 9.3.4", "PUT", "200 | Cache-Control: max-age=60", "no method"),
            ("9110 9.3.5", "DELETE", "200 | Cache-Control: max-age=60", "no method"),
            ("9110 9.3.7", "OPTIONS", "200 | Cache-Control: max-age=60", "no method"),
            ("9111 3", "BREW", "200 | Cache-Control: max-age=60", "no method"),
            ("9111 3", "get", "200 | Cache-Control: max-age=60", "no method"),
            ("9110 9.3.1", "GET | Content-Length: 3", "200 | Cache-Control: max-age=60", "no request-body"),
            ("9110 9.3.1", "GET | Transfer-Encoding: chunked", "200 | Cache-Control: max-age=60", "no request-body"),
            ("9110 9.3.1", "GET | Content-Length: 0", "200 | Cache-Control: max-age=60", "60 max-age"),
            // Final statuses, and what the cache understands of them.
            ("9111 3", "", "100 | Cache-Control: max-age=60", "no status"),
            ("9111 3", "", "103 | Cache-Control: max-age=60", "no status"),
            ("9111 3", "", "304 | Cache-Control: max-age=60", "no status"),
            ("9111 3", "", "201 | Cache-Control: max-age=60", "60 max-age"),
            ("9111 3", "", "302 | Cache-Control: max-age=60", "60 max-age"),
            ("9111 3", "", "307 | Expires: {60} | Date: {0}", "60 expires"),
            ("9111 3", "", "403 | Cache-Control: max-age=60", "60 max-age"),
            ("9111 3", "", "500 | Cache-Control: max-age=60", "60 max-age"),
            ("9111 3", "", "599 | Cache-Control: max-age=60", "60 max-age"),
            ("9110 15.5.17", "GET | Range: bytes=9-", "416 | Cache-Control: max-age=60", "no status"),
            ("9110 15.5.13", "GET | If-Match: \"a\"", "412 | Cache-Control: max-age=60", "no status"),
            ("6585 3", "", "428 | Cache-Control: max-age=60", "no status"),
            ("6585 4", "", "429 | Cache-Control: max-age=60", "no status"),
            ("6585 5", "", "431 | Cache-Control: max-age=60", "no status"),
            ("6585 6", "", "511 | Cache-Control: max-age=60", "no status"),
            // Cacheable by default or not.
            ("9110 15.1", "", "200 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "203 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "204 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "300 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "301 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "308 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "404 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "405 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "410 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "414 | ETag: \"a\"", "0 none"),
            ("9110 15.1", "", "501 | ETag: \"a\"", "0 none"),
            ("9111 3", "", "201 | ETag: \"a\"", "no not-explicit"),
            ("9111 3", "", "302 | ETag: \"a\"", "no not-explicit"),
            ("9111 3", "", "403 | ETag: \"a\"", "no not-explicit"),
            ("9111 3", "", "500 | ETag: \"a\"", "no not-explicit"),
            ("9111 3", "", "302 | Cache-Control: public | ETag: \"a\"", "0 none"),
            ("9111 3", "", "302 | Cache-Control: no-cache | ETag: \"a\"", "no not-explicit"),
            // no-store.
            ("9111 5.2.2.5", "", "200 | Cache-Control: no-store, max-age=60", "no no-store"),
            ("9111 5.2.2.5", "", "200 | Cache-Control: max-age=60 | Cache-Control: No-Store", "no no-store"),
            ("9111 5.2.1.5", "GET | Cache-Control: no-store", "200 | Cache-Control: max-age=60", "no request-no-store"),
            ("9111 5.2.1.4", "GET | Cache-Control: no-cache", "200 | Cache-Control: max-age=60", "60 max-age"),
            // must-understand.
            ("9111 5.2.2.3", "", "200 | Cache-Control: must-understand, no-store, max-age=60", "60 max-age"),
            ("9111 5.2.2.3", "", "299 | Cache-Control: must-understand, max-age=60", "no must-understand"),
            ("9111 5.2.2.3", "", "299 | Cache-Control: must-understand, no-store, max-age=60", "no must-understand"),
            ("9111 5.2.2.3", "", "299 | Cache-Control: max-age=60", "60 max-age"),
            // private, public.
            ("9111 5.2.2.7", "", "200 | Cache-Control: private, max-age=60", "no private"),
            ("9111 5.2.2.7", "", "200 | Cache-Control: private=\"X-A\", max-age=60", "60 max-age"),
            ("9111 5.2.2.7", "", "200 | Cache-Control: private=\"\", max-age=60", "no private"),
            ("9111 5.2.2.7", "", "200 | Cache-Control: private, public, max-age=60", "no private"),
            ("9111 5.2.2.9", "", "200 | Cache-Control: public | ETag: \"a\"", "0 none"),
            // Authorization.
            ("9111 3.5", "GET | Authorization: Basic eA==", "200 | Cache-Control: max-age=60", "no authorization"),
            ("9111 3.5", "GET | Authorization: Basic eA==", "200 | ETag: \"a\"", "no authorization"),
            ("9111 3.5", "GET | Authorization: x", "200 | Cache-Control: public, max-age=60", "60 max-age"),
            ("9111 3.5", "GET | Authorization: x", "200 | Cache-Control: must-revalidate, max-age=60", "60 max-age"),
            ("9111 3.5", "GET | Authorization: x", "200 | Cache-Control: s-maxage=60", "60 s-maxage"),
            (
                "9111 3.5",
                "GET | Authorization: x",
                "200 | Cache-Control: proxy-revalidate, max-age=60",
                "no authorization",
            ),
            // Vary.
            ("9111 4.1", "", "200 | Vary: * | Cache-Control: max-age=60", "no vary-any"),
            ("9111 4.1", "", "200 | Vary: Accept, * | Cache-Control: max-age=60", "no vary-any"),
            ("9111 4.1", "", "200 | Vary: Accept | Cache-Control: max-age=60", "60 max-age"),
            // Cookies.
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Cache-Control: max-age=60", "no set-cookie"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Cache-Control: s-maxage=60", "no set-cookie"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Cache-Control: no-cache", "no set-cookie"),
            (
                "9111 7.3",
                "",
                "200 | Set-Cookie: a=b | Cache-Control: max-age=60, no-cache=\"Set-Cookie\"",
                "60 max-age",
            ),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Cache-Control: max-age=60, private=\"set-cookie\"", "60 max-age"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Cache-Control: max-age=60, no-cache=\"X\"", "no set-cookie"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Cache-Control: max-age=60, public", "60 max-age"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | ETag: \"a\" | Cache-Control: public", "0 none"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | ETag: \"a\"", "no set-cookie"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | Last-Modified: {-1000}", "no set-cookie"),
            ("9111 7.3", "GET | Cookie: a=b", "200 | Cache-Control: max-age=60", "60 max-age"),
            // Of no use: stale at once, and no way to ask.
            ("9111 3", "", "200", "no no-freshness"),
            ("9111 3", "", "200 | Cache-Control: max-age=0", "no no-freshness"),
            ("9111 3", "", "200 | Cache-Control: max-age=60 | Age: 60", "no no-freshness"),
            ("9111 3", "", "200 | Cache-Control: max-age=60, no-cache", "no no-freshness"),
            ("9111 3", "", "200 | Cache-Control: max-age=60, no-cache | ETag: \"a\"", "60 max-age"),
            ("9111 3", "", "200 | Cache-Control: max-age=0 | ETag: \"a\"", "0 max-age"),
            ("9111 3", "", "200 | Cache-Control: max-age=0 | Last-Modified: {-9}", "0 max-age"),
            ("5861 3", "", "200 | Cache-Control: max-age=0, stale-while-revalidate=9", "0 max-age"),
            ("5861 4", "", "200 | Cache-Control: max-age=0, stale-if-error=9", "0 max-age"),
            ("9111 4.2.4", "", "200 | Cache-Control: max-age=0, stale-if-error=9, must-revalidate", "no no-freshness"),
            // Pragma means nothing in a response.
            ("9111 5.4", "", "200 | Pragma: no-cache | Cache-Control: max-age=60", "60 max-age"),
            ("9111 5.4", "", "200 | Pragma: no-cache | Last-Modified: {-1000} | Date: {0}", "100 heuristic"),
        ],
    );
}

#[test]
fn a_206_is_kept_when_its_bytes_have_a_place() {
    let ranged = "GET | Range: bytes=0-9";
    check(
        &shared(),
        &[
            (
                "9111 3.3",
                ranged,
                "206 | Content-Range: bytes 0-9/20 | ETag: \"a\" | Cache-Control: max-age=9",
                "9 max-age",
            ),
            (
                "9111 3.3",
                ranged,
                "206 | Content-Range: bytes 0-9/* | ETag: \"a\" | Cache-Control: max-age=9",
                "9 max-age",
            ),
            (
                "9111 3.4",
                ranged,
                "206 | Content-Range: bytes 0-9/20 | ETag: W/\"a\" | Cache-Control: max-age=9",
                "no partial",
            ),
            ("9111 3.4", ranged, "206 | Content-Range: bytes 0-9/20 | Cache-Control: max-age=9", "no partial"),
            (
                "9110 8.8.2.2",
                ranged,
                "206 | Content-Range: bytes 0-9/20 | Date: {0} | Last-Modified: {-3600} | Cache-Control: max-age=9",
                "9 max-age",
            ),
            (
                "9110 8.8.2.2",
                ranged,
                "206 | Content-Range: bytes 0-9/20 | Date: {0} | Last-Modified: {0} | Cache-Control: max-age=9",
                "no partial",
            ),
            ("9110 15.3.7", ranged, "206 | ETag: \"a\" | Cache-Control: max-age=9", "no partial"),
            (
                "9110 14.4",
                ranged,
                "206 | Content-Range: bytes 9-0/20 | ETag: \"a\" | Cache-Control: max-age=9",
                "no partial",
            ),
            (
                "9110 14.4",
                ranged,
                "206 | Content-Range: bytes */20 | ETag: \"a\" | Cache-Control: max-age=9",
                "no partial",
            ),
            (
                "9110 15.3.7.2",
                ranged,
                "206 | Content-Type: multipart/byteranges; boundary=x | ETag: \"a\" | Cache-Control: max-age=9",
                "no partial",
            ),
            (
                "9110 15.3.7",
                "GET",
                "206 | Content-Range: bytes 0-9/20 | ETag: \"a\" | Cache-Control: max-age=9",
                "no partial",
            ),
            ("9110 14.2", ranged, "200 | Cache-Control: max-age=9", "9 max-age"),
        ],
    );
}

#[test]
fn a_private_cache_keeps() {
    check(
        &private(),
        &[
            ("9111 5.2.2.7", "", "200 | Cache-Control: private, max-age=60", "60 max-age"),
            ("9111 3", "", "302 | Cache-Control: private | ETag: \"a\"", "0 none"),
            ("9111 3.5", "GET | Authorization: x", "200 | Cache-Control: max-age=60", "60 max-age"),
            ("9111 5.2.2.10", "", "200 | Cache-Control: s-maxage=10, max-age=60", "60 max-age"),
            ("9111 3", "", "302 | Cache-Control: s-maxage=10 | ETag: \"a\"", "no not-explicit"),
            ("9111 5.2.2.5", "", "200 | Cache-Control: no-store, max-age=60", "no no-store"),
            ("9111 7.3", "", "200 | Set-Cookie: a=b | ETag: \"a\"", "0 none"),
            ("9111 4.1", "", "200 | Vary: * | Cache-Control: max-age=60", "no vary-any"),
        ],
    );
}

#[test]
fn lifetimes_come_from_the_first_source_that_is_there() {
    check(
        &shared(),
        &[
            ("9111 4.2.1", "", "200 | Cache-Control: s-maxage=1, max-age=2 | Expires: {3} | ETag: \"a\"", "1 s-maxage"),
            ("9111 4.2.1", "", "200 | Cache-Control: max-age=2 | Expires: {3} | ETag: \"a\"", "2 max-age"),
            ("9111 5.3", "", "200 | Cache-Control: public | Expires: {30} | Date: {0}", "30 expires"),
            ("9111 4.2.1", "", "200 | Cache-Control: max-age=0 | Expires: {300} | ETag: \"a\"", "0 max-age"),
            // From Date, not from the time of arrival.
            ("9111 4.2.1", "", "200 | Date: {-10} | Expires: {20}", "30 expires"),
            ("9111 4.2.1", "", "200 | Date: {10} | Expires: {20}", "10 expires"),
            ("9110 6.6.1", "", "200 | Expires: {20}", "20 expires"),
            ("9110 6.6.1", "", "200 | Date: yesterday | Expires: {20}", "20 expires"),
            // In the past, invalid.
            ("9111 5.3", "", "200 | Expires: 0 | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: -1 | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: never | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: {-10} | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: 0 | Last-Modified: {-1000}", "0 expires"),
            ("9111 4.2", "", "200 | Expires: Tue, 14 Nov 2023 23:13:20 EST | ETag: \"a\"", "0 expires"),
            ("9111 4.2", "", "200 | Expires: tue, 14 nov 2023 23:13:20 gmt", "3600 expires"),
            ("9110 5.6.7", "", "200 | Expires: Tuesday, 14-Nov-23 23:13:20 GMT", "3600 expires"),
            ("9110 5.6.7", "", "200 | Expires: Tue Nov 14 23:13:20 2023", "3600 expires"),
            // Of none of the three forms.
            ("9111 5.3", "", "200 | Expires: Tue, 14 Nov 23 23:13:20 GMT | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: Tue, 14 Nov  2023 23:13:20 GMT | ETag: \"a\"", "0 expires"),
            ("9111 5.3", "", "200 | Expires: Tue, 14-Nov-2023 23:13:20 GMT | ETag: \"a\"", "0 expires"),
            // Two digits mean a year by our clock, whatever the origin's says.
            (
                "9110 5.6.7",
                "",
                "200 | Expires: Sunday, 14-Nov-60 23:13:20 GMT | Date: Mon, 01 Jan 1990 00:00:00 GMT | ETag: \"a\"",
                "2236547600 expires",
            ),
            // Several, conflicting, unreadable.
            ("9111 4.2.1", "", "200 | Expires: {30} | Expires: {30}", "30 expires"),
            ("9111 4.2.1", "", "200 | Expires: {30} | Expires: {60}", "30 expires"),
            ("9111 4.2.1", "", "200 | Cache-Control: max-age=10, max-age=20", "10 max-age"),
            ("9111 4.2.1", "", "200 | Cache-Control: max-age=a | Expires: {30} | ETag: \"a\"", "0 max-age"),
            ("9111 4.2.1", "", "200 | Cache-Control: s-maxage=a, max-age=60 | ETag: \"a\"", "0 s-maxage"),
            ("9111 5.2", "", "200 | Cache-Control: MAX-AGE=\"60\"", "60 max-age"),
            ("9111 1.2.2", "", "200 | Cache-Control: max-age=99999999999", "2147483648 max-age"),
            ("9111 5.2.3", "", "200 | Cache-Control: foo=\"max-age=9\", max-age=60", "60 max-age"),
            // Heuristics: a tenth of the time since the last modification, a day at most.
            ("9111 4.2.2", "", "200 | Date: {0} | Last-Modified: {-1000}", "100 heuristic"),
            ("9111 4.2.2", "", "404 | Date: {0} | Last-Modified: {-1000}", "100 heuristic"),
            ("9111 4.2.2", "", "200 | Date: {0} | Last-Modified: {-100000000}", "86400 heuristic"),
            ("9111 4.2.2", "", "200 | Date: {0} | Last-Modified: {100}", "0 none"),
            ("9111 4.2.2", "", "200 | Date: {0} | Last-Modified: long ago | ETag: \"a\"", "0 none"),
            ("9111 4.2.2", "", "302 | Date: {0} | Last-Modified: {-1000}", "no not-explicit"),
            ("9111 4.2.2", "", "302 | Cache-Control: public | Date: {0} | Last-Modified: {-1000}", "100 heuristic"),
            ("9111 4.2.2", "", "200 | Cache-Control: max-age=0 | Date: {0} | Last-Modified: {-1000}", "0 max-age"),
        ],
    );
}

#[test]
fn targeted_fields_stand_in_place_of_the_others() {
    let settings = Settings { targeted: vec!["Larder-Cache-Control".into(), "CDN-Cache-Control".into()], ..shared() };
    check(
        &settings,
        &[
            ("9213 2.2", "", "200 | CDN-Cache-Control: max-age=60 | Cache-Control: max-age=1", "60 targeted"),
            ("9213 2.2", "", "200 | CDN-Cache-Control: max-age=60 | Cache-Control: no-store", "60 targeted"),
            ("9213 2.2", "", "200 | CDN-Cache-Control: no-store | Cache-Control: max-age=60", "no no-store"),
            ("9213 2.2", "", "200 | CDN-Cache-Control: private | Cache-Control: max-age=60", "no private"),
            ("9213 2.2", "", "200 | CDN-Cache-Control: max-age=60 | Larder-Cache-Control: max-age=9", "9 targeted"),
            ("9213 2.2", "", "200 | CDN-Cache-Control: public | Expires: {60} | ETag: \"a\"", "0 none"),
            ("9213 2.1", "", "200 | CDN-Cache-Control: | Cache-Control: max-age=1", "1 max-age"),
            ("9213 2.1", "", "200 | CDN-Cache-Control: max-age=60, | Cache-Control: max-age=1", "1 max-age"),
            (
                "9213 2.1",
                "",
                "200 | CDN-Cache-Control: max-age=\"60\" | Cache-Control: max-age=1 | ETag: \"a\"",
                "0 none",
            ),
        ],
    );
    let unheeded = ("9213 2", "", "200 | CDN-Cache-Control: max-age=60 | Cache-Control: max-age=1", "1 max-age");
    check(&shared(), &[unheeded]);
}

#[test]
fn errors_that_say_nothing_are_kept_as_long_as_was_set() {
    let settings = Settings { negative_seconds: 30, ..shared() };
    check(
        &settings,
        &[
            ("9111 4.2.2", "", "404", "30 negative"),
            ("9111 4.2.2", "", "410 | Last-Modified: {-9000}", "30 negative"),
            ("9111 4.2.2", "", "404 | Cache-Control: max-age=1", "1 max-age"),
            ("9111 4.2.2", "", "404 | Cache-Control: no-store", "no no-store"),
            ("9111 4.2.2", "", "200", "no no-freshness"),
            ("9111 4.2.2", "", "500", "no not-explicit"),
        ],
    );
}

#[test]
fn ages() {
    // Response, seconds on the way, age on arrival; RFC 9111 sections 4.2.3 and 5.1.
    let table = [
        ("200 | Date: {0}", 0, 0),
        ("200 | Date: {-5}", 0, 5),
        ("200 | Date: {5}", 0, 0),
        ("200 | Date: {0} | Age: 7", 0, 7),
        ("200 | Date: {0} | Age: 7", 3, 10),
        ("200 | Date: {-20} | Age: 7", 3, 20),
        ("200 | Age: 7", 0, 7),
        ("200", 4, 4),
        ("200 | Age: 7, 9", 0, 7),
        ("200 | Age: 7 | Age: 9", 0, 7),
        ("200 | Age: x, 9", 0, 0),
        ("200 | Age: -7", 0, 0),
        ("200 | Age: 7.5", 0, 0),
        ("200 | Age: 99999999999", 0, 1 << 31),
    ];
    for (line, way, expected) in table {
        let line = format!("{line} | ETag: \"a\" | Cache-Control: max-age=60");
        let times = Times { requested: Stamp(T0 - way), received: Stamp(T0) };
        let terms = terms_for("", &line, times, &shared());
        assert_eq!(terms.initial_age, expected, "{line}, {way} s on the way");
        assert_eq!(terms.age(Stamp(T0 + 11)), expected + 11, "{line}");
        assert_eq!(terms.age(Stamp(T0 - 11)), expected, "a clock set back makes nothing younger");
        assert_eq!(terms.remaining(Stamp(T0)), 60 - i64::try_from(expected).unwrap());
    }
}

#[test]
fn kept_heads() {
    // Response, kept in a shared cache, kept in a private one; RFC 9111 section 3.1.
    let table = [
        ("200 | X: 1 | Age: 5 | Warning: 110 - x", "X: 1", "X: 1"),
        ("200 | Connection: X, close | X: 1 | Y: 2 | Keep-Alive: 5", "Y: 2", "Y: 2"),
        ("200 | Transfer-Encoding: chunked | TE: trailers | Upgrade: x | Trailer: T | A: 1", "A: 1", "A: 1"),
        ("200 | Proxy-Authenticate: Basic | Proxy-Authentication-Info: x | Proxy-Connection: x | A: 1", "A: 1", "A: 1"),
        ("200 | Set-Cookie: a=b | Set-Cookie: c=d | Unheard-Of: 1", "Unheard-Of: 1", "Unheard-Of: 1"),
        (
            "200 | Cache-Control: no-cache=\"X\" | X: 1 | Y: 2",
            "Cache-Control: no-cache=\"X\" | Y: 2",
            "Cache-Control: no-cache=\"X\" | Y: 2",
        ),
        (
            "200 | Cache-Control: private=\"X\" | X: 1 | Y: 2",
            "Cache-Control: private=\"X\" | Y: 2",
            "Cache-Control: private=\"X\" | X: 1 | Y: 2",
        ),
        ("200 | Cache-Control: no-cache | X: 1", "Cache-Control: no-cache | X: 1", "Cache-Control: no-cache | X: 1"),
    ];
    let mut rows = Rows::default();
    for (line, in_shared, in_private) in table {
        let kept = |settings: &Settings| policy_words::text(&policy::head_to_store(&response(line), settings).fields);
        rows.check(line, kept(&shared()), in_shared);
        rows.check(line, kept(&private()), in_private);
    }
}
