//! The client's conditions and ranges on a stored response, partial responses, and what unsafe methods make
//! void: RFC 9110 sections 13 to 15, RFC 9111 sections 3.4, 4.3.2 and 4.4.

use super::policy_words;

use larder_cache::policy::{self, Times};
use larder_wire::date::Stamp;
use larder_wire::{Method, Url};
use policy_words::{Rows, T0, request, response, shared, terms, text};

#[test]
fn conditions_are_judged_on_what_is_stored() {
    let tag = "200 | ETag: \"a\" | Last-Modified: {-900} | Date: {0}";
    let time = "200 | Last-Modified: {-900} | Date: {0}";
    // Section of RFC 9110 (or of 9111 where it says so), stored, request, verdict.
    let table = [
        ("13.1", tag, "GET", "proceed"),
        // If-None-Match: weak comparison.
        ("13.1.2", tag, "GET | If-None-Match: \"a\"", "not-modified"),
        ("13.1.2", tag, "HEAD | If-None-Match: \"a\"", "not-modified"),
        ("13.1.2", tag, "GET | If-None-Match: W/\"a\"", "not-modified"),
        ("13.1.2", "200 | ETag: W/\"a\"", "GET | If-None-Match: \"a\"", "not-modified"),
        ("13.1.2", tag, "GET | If-None-Match: \"b\", \"a\"", "not-modified"),
        ("13.1.2", tag, "GET | If-None-Match: \"b\" | If-None-Match: \"a\"", "not-modified"),
        ("13.1.2", tag, "GET | If-None-Match: \"b\"", "proceed"),
        ("13.1.2", tag, "GET | If-None-Match: *", "not-modified"),
        ("13.1.2", time, "GET | If-None-Match: *", "not-modified"),
        ("13.1.2", time, "GET | If-None-Match: \"a\"", "proceed"),
        ("13.1.2", tag, "GET | If-None-Match: a", "proceed"),
        ("13.1.2", tag, "POST | If-None-Match: \"a\"", "proceed"),
        // If-Modified-Since.
        ("13.1.3", time, "GET | If-Modified-Since: {-900}", "not-modified"),
        ("13.1.3", time, "GET | If-Modified-Since: {-800}", "not-modified"),
        ("13.1.3", time, "GET | If-Modified-Since: {-901}", "proceed"),
        ("13.1.3", time, "GET | If-Modified-Since: Tuesday, 14-Nov-23 21:58:20 GMT", "not-modified"),
        ("13.1.3", time, "GET | If-Modified-Since: 0", "proceed"),
        ("13.1.3", time, "GET | If-Modified-Since: {-900} | If-Modified-Since: {-900}", "proceed"),
        ("9111 4.3.2", "200 | Date: {0}", "GET | If-Modified-Since: {0}", "not-modified"),
        ("9111 4.3.2", "200 | Date: {0}", "GET | If-Modified-Since: {-1}", "proceed"),
        ("9111 4.3.2", "200 | X: 1", "GET | If-Modified-Since: {0}", "proceed"),
        // If-None-Match goes before If-Modified-Since.
        ("13.1.3", tag, "GET | If-None-Match: \"b\" | If-Modified-Since: {0}", "proceed"),
        ("13.1.3", tag, "GET | If-None-Match: \"a\" | If-Modified-Since: {-9000}", "not-modified"),
        ("13.1.3", tag, "GET | If-None-Match: junk | If-Modified-Since: {0}", "proceed"),
        // If-Match: strong comparison. If-Unmodified-Since only without it.
        ("13.1.1", tag, "GET | If-Match: \"a\"", "proceed"),
        ("13.1.1", tag, "GET | If-Match: *", "proceed"),
        ("13.1.1", tag, "GET | If-Match: \"b\"", "failed"),
        ("13.1.1", tag, "GET | If-Match: W/\"a\"", "failed"),
        ("13.1.1", time, "GET | If-Match: \"a\"", "failed"),
        ("13.1.4", time, "GET | If-Unmodified-Since: {-900}", "proceed"),
        ("13.1.4", time, "GET | If-Unmodified-Since: {-901}", "failed"),
        ("13.1.4", time, "GET | If-Unmodified-Since: soon", "proceed"),
        ("13.1.4", tag, "GET | If-Match: \"a\" | If-Unmodified-Since: {-9000}", "proceed"),
        // 13.2.2: in that order.
        ("13.2.2", tag, "GET | If-Match: \"b\" | If-None-Match: \"a\"", "failed"),
        ("13.2.2", tag, "GET | If-Match: \"a\" | If-None-Match: \"a\"", "not-modified"),
        // 13.2.1: only where the answer would succeed.
        ("13.2.1", "404 | ETag: \"a\"", "GET | If-None-Match: \"a\"", "proceed"),
        ("13.2.1", "301 | ETag: \"a\"", "GET | If-None-Match: \"a\"", "proceed"),
        ("13.2.1", "404 | ETag: \"a\"", "GET | If-Match: \"b\"", "proceed"),
    ];
    let mut rows = Rows::default();
    for (section, held, asked, expected) in table {
        let found = policy::precondition(&request(asked), &response(held));
        rows.check(&format!("[{section}] {asked} on {held}"), found.as_str(), expected);
    }
}

#[test]
fn ranges_apply_or_are_ignored() {
    let tag = "200 | ETag: \"a\" | Last-Modified: {-900} | Date: {0}";
    let ranged = "Range: bytes=0-1";
    // Section of RFC 9110, stored, request after its `Range`, applies.
    let table = [
        ("14.2", tag, "GET", true),
        ("14.2", tag, "HEAD", false),
        ("14.2", tag, "POST", false),
        ("14.2", "404 | ETag: \"a\"", "GET", false),
        ("14.2", "206 | ETag: \"a\"", "GET", true),
        ("14.2", tag, "GET | Range: bytes=4-5", false),
        ("13.1.5", tag, "GET | If-Range: \"a\"", true),
        ("13.1.5", tag, "GET | If-Range: \"b\"", false),
        ("13.1.5", tag, "GET | If-Range: W/\"a\"", false),
        ("13.1.5", "200 | ETag: W/\"a\"", "GET | If-Range: W/\"a\"", false),
        ("13.1.5", "200 | X: 1", "GET | If-Range: \"a\"", false),
        ("13.1.5", tag, "GET | If-Range: {-900}", true),
        ("13.1.5", tag, "GET | If-Range: {-899}", false),
        ("13.1.5", tag, "GET | If-Range: {-901}", false),
        ("13.1.5", tag, "GET | If-Range: junk", false),
        ("13.1.5", tag, "GET | If-Range: \"a\", \"b\"", false),
        ("13.1.5", tag, "GET | If-Range: \"a\" | If-Range: \"a\"", false),
        ("8.8.2.2", "200 | Last-Modified: {-1} | Date: {0}", "GET | If-Range: {-1}", false),
        ("8.8.2.2", "200 | Last-Modified: {-900}", "GET | If-Range: {-900}", false),
    ];
    for (section, held, asked, expected) in table {
        let asked = format!("{asked} | {ranged}");
        assert_eq!(
            policy::range_applies(&request(&asked), &response(held), false),
            expected,
            "[{section}] {asked} on {held}"
        );
    }
    assert!(!policy::range_applies(&request("GET"), &response(tag), false), "no range, no part");
}

/// A body that may be coded has one modification time for all its codings, and a tag for each.
#[test]
fn a_time_names_no_coding() {
    let dated = "200 | ETag: \"a\" | Last-Modified: {-900} | Date: {0}";
    for (held, condition, applies) in [
        (dated, "", true),
        (dated, " | If-Range: \"a\"", true),
        (dated, " | If-Range: \"b\"", false),
        (dated, " | If-Range: {-900}", false),
        (dated, " | If-Range: \"a\" | If-Range: \"a\"", false),
        ("200 | ETag: W/\"a-br\"", " | If-Range: W/\"a-br\"", false),
        ("200 | ETag: W/\"a-br\"", " | If-Range: \"a-br\"", false),
    ] {
        let asked = format!("GET | Range: bytes=0-1{condition}");
        assert_eq!(policy::range_applies(&request(&asked), &response(held), true), applies, "{asked} on {held}");
    }
}

#[test]
fn parts_of_one_representation_combine() {
    let part = "206 | Content-Range: bytes 0-9/20 | ETag: \"a\"";
    let dated = "206 | Content-Range: bytes 0-9/20 | Last-Modified: {-900} | Date: {0}";
    // Stored, new, whether they combine; RFC 9110 section 15.3.7.3.
    let table = [
        (part, "206 | Content-Range: bytes 10-19/20 | ETag: \"a\"", true),
        (part, "206 | Content-Range: bytes 10-19/* | ETag: \"a\"", true),
        (part, "206 | Content-Range: bytes 10-19/21 | ETag: \"a\"", false),
        (part, "206 | Content-Range: bytes 10-19/20 | ETag: \"b\"", false),
        (part, "206 | Content-Range: bytes 10-19/20 | ETag: W/\"a\"", false),
        (part, "206 | Content-Range: bytes 10-19/20", false),
        (part, "200 | Content-Length: 20 | ETag: \"a\"", true),
        (part, "200 | Content-Length: 21 | ETag: \"a\"", false),
        (part, "404 | ETag: \"a\"", false),
        (part, "206 | Content-Range: bytes 10-19/20 | ETag: \"a\" | Content-Encoding: gzip", false),
        ("200 | Content-Length: 20 | ETag: \"a\"", "206 | Content-Range: bytes 10-19/20 | ETag: \"a\"", true),
        (
            "206 | Content-Range: bytes 0-9/20 | ETag: W/\"a\"",
            "206 | Content-Range: bytes 10-19/20 | ETag: W/\"a\"",
            false,
        ),
        (dated, "206 | Content-Range: bytes 10-19/20 | Last-Modified: {-900} | Date: {10}", true),
        (dated, "206 | Content-Range: bytes 10-19/20 | Last-Modified: {-800} | Date: {10}", false),
        (dated, "206 | Content-Range: bytes 10-19/20 | Last-Modified: {-900}", false),
        (dated, "206 | Content-Range: bytes 10-19/20 | Last-Modified: {-900} | Date: {0} | ETag: \"a\"", false),
    ];
    for (held, new, expected) in table {
        assert_eq!(policy::may_combine(&response(held), &response(new)), expected, "{held} and {new}");
    }
}

#[test]
fn the_head_of_a_whole_comes_from_its_parts() {
    let part = response("206 | Content-Range: bytes 0-9/20 | Content-Length: 10 | ETag: \"a\" | X: 1");
    let whole = policy::whole_head(&part);
    assert_eq!((whole.status, text(&whole.fields).as_str()), (200, "ETag: \"a\" | X: 1 | Content-Length: 20"));
    let open = policy::whole_head(&response("206 | Content-Range: bytes 0-9/* | Content-Length: 10 | ETag: \"a\""));
    assert_eq!(text(&open.fields), "ETag: \"a\"");
    // RFC 9530: one field is about the part, the other one about the whole.
    let digests = policy::whole_head(&response(
        "206 | Content-Range: bytes 0-9/* | Content-Digest: sha-256=:AA==: | Content-MD5: AA== | Repr-Digest: sha-256=:AA==:",
    ));
    assert_eq!(text(&digests.fields), "Repr-Digest: sha-256=:AA==:");
    // RFC 9111 section 3.4: newer fields count; the length becomes known.
    let more = response("206 | Content-Range: bytes 10-19/20 | Content-Length: 10 | ETag: \"a\" | X: 2");
    let combined = policy::combined_head(&open, &more);
    assert_eq!((combined.status, text(&combined.fields).as_str()), (200, "ETag: \"a\" | X: 2 | Content-Length: 20"));
}

#[test]
fn a_whole_is_as_old_as_its_oldest_part() {
    // Stored at T0, part at T0 + 20; age and lifetime afterwards; RFC 9111 sections 3.4 and 4.2.3.
    let table = [
        ("200 | Cache-Control: max-age=60", "Cache-Control: max-age=60", "20 60"),
        ("200 | Cache-Control: max-age=60", "Cache-Control: max-age=60 | Age: 62", "62 60"),
        ("200 | Cache-Control: max-age=60 | Age: 30", "Cache-Control: max-age=60", "50 60"),
        ("200 | Cache-Control: max-age=60 | Age: 30", "Cache-Control: max-age=90 | Age: 10", "50 90"),
        ("200 | Cache-Control: max-age=60", "Date: {-70}", "90 60"),
        ("200 | Cache-Control: max-age=60", "Cache-Control: private", "no private"),
        ("200 | Cache-Control: max-age=60", "Set-Cookie: a=b", "no set-cookie"),
    ];
    let mut rows = Rows::default();
    let times = Times { requested: Stamp(T0 + 20), received: Stamp(T0 + 20) };
    for (held, part, expected) in table {
        let held = format!("{held} | ETag: \"a\" | Content-Length: 20");
        let (head, terms) = (response(&held), terms(&held));
        let line = format!("206 | Content-Range: bytes 10-19/20 | ETag: \"a\" | {part}");
        let asked = request("GET | Range: bytes=10-19");
        let found = match policy::completed(&asked, (&head, &terms), &response(&line), times, &shared()) {
            Ok((_, renewed)) => format!("{} {}", renewed.age(times.received), renewed.lifetime),
            Err(why) => format!("no {}", why.as_str()),
        };
        rows.check(&format!("{line} on {held}"), found, expected);
    }
}

#[test]
fn unsafe_methods_make_void() {
    // Method, response, paths or URLs that are void (of http://a.example/x/y); RFC 9111 section 4.4.
    let table = [
        ("GET", "200", ""),
        ("HEAD", "200", ""),
        ("OPTIONS", "200", ""),
        ("TRACE", "200", ""),
        ("POST", "200", "/x/y"),
        ("PUT", "204", "/x/y"),
        ("DELETE", "200", "/x/y"),
        ("PATCH", "200", "/x/y"),
        ("BREW", "200", "/x/y"),
        ("POST", "303", "/x/y"),
        ("POST", "404", ""),
        ("POST", "500", ""),
        ("POST", "100", ""),
        ("POST", "201 | Location: /z", "/x/y /z"),
        ("POST", "201 | Location: z?q", "/x/y /x/z?q"),
        ("POST", "201 | Location: http://a.example/z", "/x/y /z"),
        ("POST", "201 | Location: http://A.EXAMPLE:80/z", "/x/y /z"),
        ("POST", "200 | Content-Location: /z", "/x/y /z"),
        ("POST", "201 | Location: /z | Content-Location: /w", "/x/y /z /w"),
        ("POST", "201 | Location: /z | Content-Location: /z", "/x/y /z"),
        ("POST", "200 | Content-Location: /x/y", "/x/y"),
        ("POST", "200 | Location: /z#part", "/x/y /z"),
        // Another origin's place is not ours to empty.
        ("POST", "201 | Location: http://b.example/z", "/x/y"),
        ("POST", "201 | Location: https://a.example/z", "/x/y"),
        ("POST", "201 | Location: http://a.example:8080/z", "/x/y"),
        ("POST", "201 | Location: //b.example/z", "/x/y"),
        ("POST", "201 | Location: http://", "/x/y"),
        ("POST", "201 | Location: mailto:a@b", "/x/y"),
    ];
    let url = Url::parse("http://a.example/x/y").unwrap();
    let mut rows = Rows::default();
    for (method, answered, expected) in table {
        let void = policy::invalidated(&Method::from_token(method), &url, &response(answered));
        let paths: Vec<String> = void.iter().map(|url| url.path.to_string()).collect();
        rows.check(&format!("{method} -> {answered}"), paths.join(" "), expected);
    }
}
