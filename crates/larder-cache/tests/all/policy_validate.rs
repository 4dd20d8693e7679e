//! Asking the origin and taking in its answer: RFC 9111 sections 3.2, 4.3.1, 4.3.4 and 4.3.5.

use super::policy_words;

use larder_cache::policy::{self, Coding, Mode, NotStored, SetCookie, Settings, Terms, Times};
use larder_wire::ResponseHead;
use larder_wire::date::Stamp;
use policy_words::{Rows, T0, private, request, response, shared, terms, text};

const LATER: Times = Times { requested: Stamp(T0 + 100), received: Stamp(T0 + 100) };

/// A stored response as text, made keepable whatever it says of itself.
fn stored(line: &str) -> (ResponseHead, Terms) {
    (response(line), terms(&format!("{line} | Cache-Control: max-age=60")))
}

fn pairs(set: &[(ResponseHead, Terms)]) -> Vec<(&ResponseHead, &Terms)> {
    set.iter().map(|(head, terms)| (head, terms)).collect()
}

#[test]
fn requests_become_validations() {
    // Client's request, stored responses (`&` between them), fields sent; RFC 9111 section 4.3.1.
    let table = [
        ("GET | A: 1", "200 | ETag: \"a\"", "A: 1 | If-None-Match: \"a\""),
        ("GET", "200 | ETag: W/\"a\"", "If-None-Match: W/\"a\""),
        ("GET", "200 | ETag: \"a\" & 200 | ETag: \"b\"", "If-None-Match: \"a\", \"b\""),
        ("GET", "200 | ETag: \"a\" & 200 | X: 1 & 200 | ETag: \"c\"", "If-None-Match: \"a\", \"c\""),
        ("GET", "200 | Last-Modified: {-9}", "If-Modified-Since: Tue, 14 Nov 2023 22:13:11 GMT"),
        (
            "GET",
            "200 | Last-Modified: {-9} | ETag: \"a\"",
            "If-Modified-Since: Tue, 14 Nov 2023 22:13:11 GMT | If-None-Match: \"a\"",
        ),
        ("GET", "200 | Last-Modified: {-9} & 200 | Last-Modified: {-8}", ""),
        ("GET", "200 | Last-Modified: {-9} & 200 | ETag: \"b\"", "If-None-Match: \"b\""),
        ("GET", "200 | X: 1", ""),
        ("GET", "200 | ETag: unquoted", ""),
        // The client's own give way; what is the origin's to judge stays.
        ("GET | If-None-Match: \"x\" | If-Modified-Since: {0}", "200 | ETag: \"a\"", "If-None-Match: \"a\""),
        ("GET | If-None-Match: \"x\"", "200 | X: 1", ""),
        (
            "GET | If-Match: \"x\" | Range: bytes=0-1 | If-Range: \"x\"",
            "200 | ETag: \"a\"",
            "If-Match: \"x\" | Range: bytes=0-1 | If-Range: \"x\" | If-None-Match: \"a\"",
        ),
    ];
    let mut rows = Rows::default();
    for (asked, held, expected) in table {
        let set: Vec<_> = held.split(" & ").map(stored).collect();
        let mut fields = request(asked).fields;
        let added = policy::conditional(&mut fields, pairs(&set).into_iter());
        rows.check(&format!("{asked} with {held}"), text(&fields), expected);
        assert_eq!(added, expected.contains("If-None-Match") || expected.contains("If-Modified"), "{asked}");
    }
}

#[test]
fn a_304_names_what_it_updates() {
    // Stored responses, 304, the places it names; RFC 9111 section 4.3.4.
    let table = [
        // A strong validator names all that have it, and nothing else.
        ("200 | ETag: \"a\"", "304 | ETag: \"a\"", "0"),
        ("200 | ETag: \"a\"", "304 | ETag: \"b\"", ""),
        ("200 | ETag: \"a\" & 200 | ETag: \"b\"", "304 | ETag: \"b\"", "1"),
        ("200 | ETag: \"a\" & 200 | ETag: \"a\"", "304 | ETag: \"a\"", "0 1"),
        ("200 | ETag: W/\"a\"", "304 | ETag: \"a\"", ""),
        ("200 | X: 1", "304 | ETag: \"a\"", ""),
        ("200 | Last-Modified: {-900}", "304 | Last-Modified: {-900} | Date: {0}", "0"),
        ("200 | Last-Modified: {-900} & 200 | Last-Modified: {-900}", "304 | Last-Modified: {-900} | Date: {0}", "0 1"),
        ("200 | Last-Modified: {-900}", "304 | Last-Modified: {-800} | Date: {0}", ""),
        ("200 | Last-Modified: {-900}", "304 | ETag: \"a\" | Last-Modified: {-900} | Date: {0}", "0"),
        // A weak one names the newest that has it.
        ("200 | ETag: W/\"a\"", "304 | ETag: W/\"a\"", "0"),
        ("200 | ETag: \"a\"", "304 | ETag: W/\"a\"", "0"),
        (
            "200 | ETag: W/\"a\" | Date: {-9} & 200 | ETag: W/\"a\" | Date: {-5} & 200 | ETag: W/\"a\" | Date: {-7}",
            "304 | ETag: W/\"a\"",
            "1",
        ),
        ("200 | ETag: W/\"a\"", "304 | ETag: W/\"b\"", ""),
        (
            "200 | Last-Modified: {-9} | Date: {-5} & 200 | Last-Modified: {-9} | Date: {-3}",
            "304 | Last-Modified: {-9} | Date: {0}",
            "1",
        ),
        // Entity tags that differ are not mended by equal times.
        ("200 | ETag: \"a\" | Last-Modified: {-900}", "304 | ETag: \"b\" | Last-Modified: {-900} | Date: {0}", ""),
        // None at all: the only one there was.
        ("200 | X: 1", "304", "0"),
        ("200 | X: 1 & 200 | X: 2", "304", ""),
        // Ours, beyond the letter: whose validator was the only one sent, is meant.
        ("200 | ETag: \"a\"", "304", "0"),
        ("200 | Last-Modified: {-9}", "304", "0"),
        ("200 | ETag: \"a\" & 200 | ETag: \"b\"", "304", ""),
    ];
    let mut rows = Rows::default();
    for (held, says, expected) in table {
        let set: Vec<_> = held.split(" & ").map(stored).collect();
        let named: Vec<String> = policy::named_by(&pairs(&set), &response(says)).iter().map(usize::to_string).collect();
        rows.check(&format!("{says} of {held}"), named.join(" "), expected);
        if let [(head, terms)] = set.as_slice() {
            assert_eq!(policy::freshened_by(head, terms, &response(says)), expected == "0", "{says} of {held}");
        }
    }
}

#[test]
fn fields_are_brought_up_to_date() {
    // Stored, 304, afterwards; RFC 9111 section 3.2.
    let table = [
        ("200 | A: 1 | B: 2", "304 | B: 3", "A: 1 | B: 3"),
        ("200 | A: 1 | A: 2", "304 | a: 3", "a: 3"),
        ("200 | A: 1", "304 | A: 2 | A: 3", "A: 2 | A: 3"),
        ("200 | A: 1", "304 | New: 1", "A: 1 | New: 1"),
        ("200 | Date: {-60} | A: 1", "304 | Date: {0}", "A: 1 | Date: Tue, 14 Nov 2023 22:13:20 GMT"),
        ("200 | Date: {-60} | A: 1", "304", "A: 1"),
        ("200 | ETag: \"a\"", "304 | ETag: W/\"a\"", "ETag: W/\"a\""),
        // Fields that describe the stored bytes stay.
        ("200 | Content-Length: 9", "304 | Content-Length: 0", "Content-Length: 9"),
        ("200 | Content-Encoding: gzip", "304 | Content-Encoding: br", "Content-Encoding: gzip"),
        ("200 | X: 1", "304 | Content-Encoding: br", "X: 1"),
        ("200 | Content-Type: a/b", "304 | Content-Type: text/html", "Content-Type: a/b"),
        ("200 | Content-Language: de", "304 | Content-Language: en", "Content-Language: en"),
        ("200 | X: 1", "304 | Content-Range: bytes 0-1/2", "X: 1"),
        // Fields that section 3.1 keeps out stay out.
        ("200 | A: 1", "304 | Connection: B | B: 1 | Age: 5 | Warning: x | Transfer-Encoding: chunked", "A: 1"),
        ("200 | A: 1", "304 | Cache-Control: no-cache=\"B\" | B: 1", "A: 1 | Cache-Control: no-cache=\"B\""),
    ];
    let mut rows = Rows::default();
    for (held, says, expected) in table {
        let (held, says_head) = (response(held), response(says));
        let fresh = policy::freshen(&held, &says_head);
        rows.check(&format!("{says} on {held:?}"), text(&fresh.fields), expected);
        assert_eq!(fresh.status, held.status);
    }
}

/// `no <why>`, or age, lifetime and source as at the validation.
fn renewed(asked: &str, held: &str, says: &str, settings: &Settings) -> String {
    let (head, terms) = stored(held);
    match policy::renew(&request(asked), (&head, &terms), &response(says), LATER, settings) {
        Err(why) => format!("no {}", why.as_str()),
        Ok((_, terms)) => format!("{} {} {}", terms.age(LATER.received), terms.lifetime, terms.source.as_str()),
    }
}

#[test]
fn a_validation_renews_the_terms() {
    // Request, stored at T0, 304 at T0 + 100, age and lifetime afterwards; RFC 9111 sections 4.2.3 and 4.3.4.
    let held = "200 | Date: {0} | Cache-Control: max-age=60 | ETag: \"a\"";
    let table = [
        ("", held, "304 | Date: {100}", "0 60 max-age"),
        ("", held, "304", "0 60 max-age"),
        ("", held, "304 | Date: {90}", "10 60 max-age"),
        ("", held, "304 | Date: {100} | Age: 7", "7 60 max-age"),
        ("", held, "304 | Date: {100} | Cache-Control: max-age=5", "0 5 max-age"),
        ("", held, "304 | Date: {100} | Cache-Control: s-maxage=5", "0 5 s-maxage"),
        ("", held, "304 | Date: {100} | Cache-Control: public | Expires: {300}", "0 200 expires"),
        ("", held, "304 | Cache-Control: no-store", "no no-store"),
        ("", held, "304 | Cache-Control: private", "no private"),
        ("", held, "304 | Vary: *", "no vary-any"),
        // The answer to a client that authenticates changes nothing that others have, unless it says so (section 3.5).
        ("GET | Authorization: x", held, "304", "no authorization"),
        ("GET | Authorization: x", held, "304 | Cache-Control: max-age=9", "no authorization"),
        ("GET | Authorization: x", held, "304 | Cache-Control: private", "no authorization"),
        ("GET | Authorization: x", held, "304 | Cache-Control: public, max-age=9", "0 9 max-age"),
        ("GET | Authorization: x", held, "304 | Cache-Control: s-maxage=9", "0 9 s-maxage"),
        ("GET | Authorization: x", held, "304 | Cache-Control: must-revalidate, max-age=9", "0 9 max-age"),
        ("GET | Cookie: x", held, "304", "0 60 max-age"),
        ("", held, "304 | Set-Cookie: a=b", "no set-cookie"),
        ("", held, "304 | Set-Cookie: a=b | Cache-Control: max-age=9", "no set-cookie"),
        ("", held, "304 | Set-Cookie: a=b | Cache-Control: public, max-age=9", "0 9 max-age"),
        ("", held, "304 | Set-Cookie: a=b | Cache-Control: no-cache=\"Set-Cookie\", max-age=9", "0 9 max-age"),
        ("GET | Cache-Control: no-store", held, "304", "no request-no-store"),
    ];
    let mut rows = Rows::default();
    for (asked, held, says, expected) in table {
        rows.check(&format!("{asked}: {says} on {held}"), renewed(asked, held, says, &shared()), expected);
    }
    assert_eq!(renewed("", held, "304 | Cache-Control: private, max-age=9", &private()), "0 9 max-age");
    assert_eq!(renewed("GET | Authorization: x", held, "304 | Cache-Control: max-age=9", &private()), "0 9 max-age");
    assert_eq!(renewed("", held, "304 | Set-Cookie: a=b", &private()), "0 60 max-age");
}

#[test]
fn a_validation_may_forbid_the_coding_of_what_is_stored() {
    let held = "200 | Date: {0} | Cache-Control: max-age=60 | ETag: \"a\"";
    let table = [
        ("304", "yes"),
        ("304 | Vary: X-Color", "yes"),
        // This cookie is not stored (section 3 of RFC 9111 is obeyed without it).
        ("304 | Set-Cookie: a=b | Cache-Control: public, max-age=9", "yes"),
        ("304 | Vary: Cookie", "coded"),
        ("304 | Cache-Control: max-age=9, no-transform", "coded"),
        ("304 | Cache-Control: no-store, no-transform", "no-store"),
    ];
    let mut rows = Rows::default();
    for (says, expected) in table {
        for (coded, expected) in [(Some(Coding::Gzip), expected), (None, expected.replace("coded", "yes").as_str())] {
            let (head, terms) = stored(held);
            let terms = Terms { coded, ..terms };
            let renewed = policy::renew(&request(""), (&head, &terms), &response(says), LATER, &shared());
            let came = renewed.map_or_else(NotStored::as_str, |_| "yes");
            rows.check(&format!("{says} on {coded:?}"), came, expected);
        }
    }
}

#[test]
fn a_renewed_variant_stays_the_one_it_was() {
    let head = response("200 | Vary: X | Cache-Control: max-age=60 | ETag: \"a\"");
    let asked = request("GET | X: 1");
    let terms = policy_words::terms_for(
        "GET | X: 1",
        "200 | Vary: X | Cache-Control: max-age=60 | ETag: \"a\"",
        policy_words::NOW,
        &shared(),
    );
    let other = request("GET | X: 2 | Y: 2");
    let renew = |says: &str| policy::renew(&other, (&head, &terms), &response(says), LATER, &shared()).unwrap();
    let (fresh, same) = renew("304 | ETag: \"a\"");
    assert!(same.vary.matches(&asked) && !same.vary.matches(&other));
    assert!(fresh.fields.contains("Date"), "a head that is kept has a date");
    let (_, changed) = renew("304 | ETag: \"a\" | Vary: Y");
    assert!(changed.vary.matches(&other));
}

#[test]
fn a_cookie_of_a_304_stays_with_the_one_who_asked() {
    let held = "200 | Date: {0} | Last-Modified: {-1000}";
    let head = response(held);
    let terms = terms(held);
    let cookie = |says: &str, mode: Mode, set_cookie: SetCookie| {
        let settings = Settings { mode, set_cookie, ..shared() };
        let (head, _) = policy::renew(&request(""), (&head, &terms), &response(says), LATER, &settings).unwrap();
        head.fields.contains("Set-Cookie")
    };
    let public = "304 | Set-Cookie: a=b | Cache-Control: public, max-age=9";
    for set_cookie in [SetCookie::Pass, SetCookie::Strip, SetCookie::Keep] {
        assert!(!cookie(public, Mode::Shared, set_cookie));
        assert!(!cookie("304 | Set-Cookie: a=b", Mode::Private, set_cookie));
    }
    let says = response("304 | Set-Cookie: a=b | X: 1 | Y: 1 | Connection: Y | Cache-Control: private=\"X\" | Age: 7");
    let (own, terms) = policy::answer_to_asker((&head, &terms), &says, LATER, &shared());
    let fields = ["Set-Cookie", "X", "Y", "Connection", "Age"].map(|name| own.fields.contains(name));
    assert_eq!(fields, [true, true, false, false, false]);
    assert_eq!(terms.age(LATER.received), 7);
}

#[test]
fn what_a_head_says() {
    // Stored response to GET, response to HEAD, verdict; RFC 9111 section 4.3.5.
    let full = "200 | ETag: \"a\" | Last-Modified: {-900} | Content-Length: 9";
    let table = [
        (full, "200 | ETag: \"a\" | Last-Modified: {-900} | Content-Length: 9", "freshens"),
        (full, "200 | ETag: \"a\"", "freshens"),
        (full, "200", "nothing"),
        ("200 | X: 1", "200 | X: 2", "nothing"),
        (full, "200 | Content-Length: 9", "freshens"),
        (full, "200 | ETag: \"b\"", "invalidates"),
        (full, "200 | ETag: W/\"a\"", "invalidates"),
        (full, "200 | ETag: unquoted", "invalidates"),
        (full, "200 | ETag: \"a\" | Last-Modified: {-800}", "invalidates"),
        (full, "200 | ETag: \"a\" | Content-Length: 10", "invalidates"),
        ("200 | ETag: \"a\"", "200 | ETag: \"a\" | Content-Length: 10", "invalidates"),
        ("200 | X: 1", "200 | ETag: \"a\"", "invalidates"),
        ("404 | ETag: \"a\"", "200 | ETag: \"a\"", "invalidates"),
        (full, "404", "nothing"),
        (full, "304 | ETag: \"b\"", "nothing"),
        (full, "500", "nothing"),
    ];
    let mut rows = Rows::default();
    for (held, says, expected) in table {
        let (head, terms) = stored(held);
        rows.check(&format!("{says} of {held}"), policy::head_says(&head, &terms, &response(says)).as_str(), expected);
    }
}
