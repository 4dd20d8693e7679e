//! Which requests may have a stored response, and when: RFC 9111 sections 4, 4.2.4 and 5.2.1, RFC 5861, RFC 8246.

use super::policy_words;

use larder_cache::policy::{self, Asked, Settings};
use larder_wire::date::Stamp;
use policy_words::{NOW, Rows, T0, private, request, shared, terms, terms_for};

/// Section, response, request, seconds since it arrived, verdict.
type Row<'a> = (&'a str, &'a str, &'a str, u64, &'a str);

fn check(settings: &Settings, table: &[Row]) {
    let mut rows = Rows::default();
    for (section, stored, asked, after, expected) in table {
        let terms = terms_for("", stored, NOW, settings);
        let usable = policy::usable(&terms, &Asked::of(&request(asked)), Stamp(T0 + after), settings);
        rows.check(&format!("[{section}] {stored} <- {asked} after {after}"), usable.as_str(), expected);
    }
}

const MINUTE: &str = "200 | Cache-Control: max-age=60";
const MUST: &str = "200 | Cache-Control: max-age=60, must-revalidate";
const WINDOW: &str = "200 | Cache-Control: max-age=60, stale-while-revalidate=30";

#[test]
fn fresh_until_the_lifetime_is_over() {
    check(
        &shared(),
        &[
            ("9111 4.2", MINUTE, "", 0, "fresh"),
            ("9111 4.2", MINUTE, "", 59, "fresh"),
            ("9111 4.2", MINUTE, "", 60, "stale"),
            ("9111 4.2", MINUTE, "", 6000, "stale"),
            ("9111 4.2.3", "200 | Cache-Control: max-age=60 | Age: 50", "", 9, "fresh"),
            ("9111 4.2.3", "200 | Cache-Control: max-age=60 | Age: 50", "", 10, "stale"),
            ("9111 4.2.3", "200 | Cache-Control: max-age=60 | Date: {-50}", "", 10, "stale"),
            ("9111 5.2.2.4", "200 | Cache-Control: no-cache, max-age=60 | ETag: \"a\"", "", 0, "no-cache"),
            ("9111 5.2.2.4", "200 | Cache-Control: no-cache=\"X\", max-age=60", "", 0, "fresh"),
            ("9111 5.3", "200 | Expires: 0 | ETag: \"a\"", "", 0, "stale"),
            ("9111 4.2.2", "200 | Date: {0} | Last-Modified: {-1000}", "", 99, "fresh"),
            ("9111 4.2.2", "200 | Date: {0} | Last-Modified: {-1000}", "", 100, "stale"),
            ("8246 2", "200 | Cache-Control: max-age=60, immutable", "", 59, "fresh"),
            ("8246 2", "200 | Cache-Control: max-age=60, immutable", "", 60, "stale"),
        ],
    );
}

/// A clock that was ahead and was set right: nobody knows how old the answer is, so the origin is asked, whatever the client
/// would take. Where the origin can't be reached it serves as any stale one does.
#[test]
fn what_arrived_in_the_future_is_validated() {
    let stale = "200 | Cache-Control: max-age=60, stale-while-revalidate=99999, stale-if-error=99999";
    for (line, asked) in [(MINUTE, ""), (MINUTE, "GET | Cache-Control: max-stale"), (stale, "")] {
        let (terms, asked) = (terms(line), Asked::of(&request(asked)));
        for (behind, word) in [(0, "fresh"), (2, "fresh"), (3, "clock"), (3600, "clock"), (86_400, "clock")] {
            let now = Stamp(T0 - behind);
            assert_eq!(policy::usable(&terms, &asked, now, &shared()).as_str(), word, "{line}, {behind} s behind");
            assert_eq!(terms.is_fresh(now), behind <= 2);
            assert_eq!(terms.remaining(now) > 0, behind <= 2);
            assert_eq!(policy::stale_if_error(&terms, &asked, now, &shared()), behind <= 2);
            assert!(policy::disconnected(&terms, &asked, now));
        }
    }
    let must = terms(MUST);
    assert!(!policy::disconnected(&must, &Asked::default(), Stamp(T0 - 86_400)));
}

#[test]
fn what_the_client_asks() {
    check(
        &shared(),
        &[
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=10", 10, "fresh"),
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=10", 11, "request-max-age"),
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=0", 0, "request-max-age"),
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=0", 1, "request-max-age"),
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=100", 70, "stale"),
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=100, max-stale", 70, "max-stale"),
            ("9111 5.2.1.1", MINUTE, "GET | Cache-Control: max-age=x", 1, "request-max-age"),
            ("9111 5.2.1.2", MINUTE, "GET | Cache-Control: max-stale", 59, "fresh"),
            ("9111 5.2.1.2", MINUTE, "GET | Cache-Control: max-stale", 6000, "max-stale"),
            ("9111 5.2.1.2", MINUTE, "GET | Cache-Control: max-stale=10", 70, "max-stale"),
            ("9111 5.2.1.2", MINUTE, "GET | Cache-Control: max-stale=10", 71, "stale"),
            ("9111 5.2.1.2", MINUTE, "GET | Cache-Control: max-stale=x", 61, "stale"),
            ("9111 5.2.1.3", MINUTE, "GET | Cache-Control: min-fresh=10", 50, "fresh"),
            ("9111 5.2.1.3", MINUTE, "GET | Cache-Control: min-fresh=10", 51, "request-min-fresh"),
            ("9111 5.2.1.3", MINUTE, "GET | Cache-Control: min-fresh=61", 0, "request-min-fresh"),
            ("9111 5.2.1.4", MINUTE, "GET | Cache-Control: no-cache", 0, "request-no-cache"),
            ("9111 5.2.1.4", MINUTE, "GET | Cache-Control: no-cache, max-stale", 0, "request-no-cache"),
            ("9111 5.2.1.5", MINUTE, "GET | Cache-Control: no-store", 0, "fresh"),
            ("9111 5.2.1.6", MINUTE, "GET | Cache-Control: no-transform", 0, "fresh"),
            ("9111 5.2.1.7", MINUTE, "GET | Cache-Control: only-if-cached", 0, "fresh"),
            ("9111 5.2.1.7", MINUTE, "GET | Cache-Control: only-if-cached", 60, "stale"),
            ("9111 5.4", MINUTE, "GET | Pragma: no-cache", 0, "request-no-cache"),
            ("9111 5.4", MINUTE, "GET | Pragma: foo, No-Cache", 0, "request-no-cache"),
            ("9111 5.4", MINUTE, "GET | Pragma: no-cache | Cache-Control: max-age=9", 0, "fresh"),
            ("9111 5.4", MINUTE, "GET | Pragma: foo", 0, "fresh"),
            ("9111 5.2.3", MINUTE, "GET | Cache-Control: foo", 0, "fresh"),
            (
                "8246 2",
                "200 | Cache-Control: max-age=60, immutable",
                "GET | Cache-Control: no-cache",
                0,
                "request-no-cache",
            ),
        ],
    );
}

#[test]
fn what_forbids_serving_stale() {
    let stale = "GET | Cache-Control: max-stale";
    check(
        &shared(),
        &[
            ("9111 5.2.2.2", MUST, stale, 59, "fresh"),
            ("9111 5.2.2.2", MUST, stale, 60, "must-revalidate"),
            ("9111 5.2.2.8", "200 | Cache-Control: max-age=60, proxy-revalidate", stale, 60, "must-revalidate"),
            ("9111 5.2.2.10", "200 | Cache-Control: s-maxage=60", stale, 60, "must-revalidate"),
            ("9111 5.2.2.4", "200 | Cache-Control: no-cache | ETag: \"a\"", stale, 60, "no-cache"),
            (
                "9111 4.2.4",
                "200 | Cache-Control: max-age=60, must-revalidate, stale-while-revalidate=9",
                "",
                60,
                "must-revalidate",
            ),
        ],
    );
    check(
        &private(),
        &[
            ("9111 5.2.2.8", "200 | Cache-Control: max-age=60, proxy-revalidate", stale, 60, "max-stale"),
            ("9111 5.2.2.2", MUST, stale, 60, "must-revalidate"),
            ("9111 5.2.2.10", "200 | Cache-Control: max-age=60, s-maxage=60", stale, 60, "max-stale"),
        ],
    );
}

#[test]
fn stale_while_it_is_validated() {
    check(
        &shared(),
        &[
            ("5861 3", WINDOW, "", 59, "fresh"),
            ("5861 3", WINDOW, "", 60, "stale-while-revalidate"),
            ("5861 3", WINDOW, "", 89, "stale-while-revalidate"),
            ("5861 3", WINDOW, "", 90, "stale"),
            ("5861 3", WINDOW, "GET | Cache-Control: no-cache", 60, "request-no-cache"),
            ("9111 5.2.1.1", WINDOW, "GET | Cache-Control: max-age=600", 60, "stale"),
            ("9111 5.2.1.3", WINDOW, "GET | Cache-Control: min-fresh=1", 60, "request-min-fresh"),
            ("9111 5.2.1.2", WINDOW, "GET | Cache-Control: max-stale", 60, "max-stale"),
            ("9111 5.2.1.2", WINDOW, "GET | Cache-Control: max-stale=5", 70, "stale-while-revalidate"),
        ],
    );
    let settings = Settings { stale_while_revalidate_seconds: Some(5), ..shared() };
    check(
        &settings,
        &[
            ("9111 4.2.4", MINUTE, "", 64, "stale-while-revalidate"),
            ("9111 4.2.4", MINUTE, "", 65, "stale"),
            ("9111 4.2.4", WINDOW, "", 89, "stale-while-revalidate"),
            ("9111 4.2.4", MUST, "", 60, "must-revalidate"),
        ],
    );
}

#[test]
fn stale_in_place_of_an_error() {
    let by_origin = "200 | Cache-Control: max-age=60, stale-if-error=30";
    let insists = "200 | Cache-Control: max-age=60, stale-if-error=30, must-revalidate";
    let set = Settings { stale_if_error_seconds: Some(10), ..shared() };
    // Response, request, seconds since it arrived, settings, permitted on an error, permitted when cut off.
    let table = [
        (by_origin, "", 59, shared(), true, true),
        (by_origin, "", 89, shared(), true, true),
        (by_origin, "", 90, shared(), false, true),
        (MINUTE, "", 60, shared(), false, true),
        (MINUTE, "GET | Cache-Control: stale-if-error=5", 64, shared(), true, true),
        (MINUTE, "GET | Cache-Control: stale-if-error=5", 65, shared(), false, true),
        (MINUTE, "", 69, set.clone(), true, true),
        (MINUTE, "", 70, set.clone(), false, true),
        ("200 | Cache-Control: max-age=60, stale-if-error=0", "", 60, set.clone(), false, true),
        // RFC 9111 section 4.2.4: whoever insists on validation gets an error.
        (insists, "", 60, set.clone(), false, false),
        (insists, "", 59, set.clone(), true, true),
        ("200 | Cache-Control: s-maxage=60, stale-if-error=30", "", 60, set.clone(), false, false),
        ("200 | Cache-Control: no-cache, stale-if-error=30 | ETag: \"a\"", "", 0, set.clone(), false, false),
        (by_origin, "GET | Cache-Control: no-cache", 0, set.clone(), false, false),
        // A client that names an age takes nothing that is past it, unless it names this case.
        (by_origin, "GET | Cache-Control: max-age=0", 0, set.clone(), false, false),
        (by_origin, "GET | Cache-Control: max-age=100", 59, set.clone(), true, true),
        (by_origin, "GET | Cache-Control: max-age=100", 60, set.clone(), false, false),
        (by_origin, "GET | Cache-Control: max-age=100, max-stale=5", 65, set.clone(), true, true),
        (by_origin, "GET | Cache-Control: max-age=100, max-stale=5", 66, set.clone(), false, false),
        (by_origin, "GET | Cache-Control: max-stale=5", 66, set.clone(), false, false),
        (by_origin, "GET | Cache-Control: max-stale", 100, set.clone(), false, true),
        (by_origin, "GET | Cache-Control: min-fresh=10", 50, set.clone(), true, true),
        (by_origin, "GET | Cache-Control: min-fresh=10", 51, set.clone(), false, false),
        (by_origin, "GET | Cache-Control: max-age=0, stale-if-error=5", 64, set.clone(), true, false),
        (insists, "GET | Cache-Control: max-age=0, stale-if-error=5", 64, set, false, false),
    ];
    for (stored, asked, after, settings, on_error, cut_off) in table {
        let (terms, asked_of, now) = (terms(stored), Asked::of(&request(asked)), Stamp(T0 + after));
        let found =
            (policy::stale_if_error(&terms, &asked_of, now, &settings), policy::disconnected(&terms, &asked_of, now));
        assert_eq!(found, (on_error, cut_off), "{stored} <- {asked} after {after}");
    }
}

#[test]
fn requests_that_a_stored_response_can_answer() {
    let table = [
        ("GET", true),
        ("HEAD", true),
        ("GET | Content-Length: 0", true),
        ("GET | Content-Length: 1", false),
        ("GET | Transfer-Encoding: chunked", false),
        ("POST", false),
        ("PUT", false),
        ("OPTIONS", false),
        ("TRACE", false),
        ("BREW", false),
    ];
    for (line, expected) in table {
        assert_eq!(policy::answerable(&request(line)), expected, "{line}");
    }
}

#[test]
fn a_soft_purge_makes_stale_and_stays_so() {
    let mut terms = terms(WINDOW);
    terms.expire(Stamp(T0 + 5));
    let usable = |after| policy::usable(&terms, &Asked::default(), Stamp(T0 + after), &shared()).as_str();
    assert_eq!(usable(5), "stale-while-revalidate");
    assert_eq!(usable(35), "stale");
}
