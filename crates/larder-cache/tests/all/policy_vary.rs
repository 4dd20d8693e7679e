//! Which stored variant answers a request: RFC 9111 section 4.1.

use super::policy_words;

use larder_cache::policy::vary::VARY_NAMES_MAX;
use larder_cache::policy::{self, Vary};
use larder_wire::date::Stamp;
use policy_words::{Rows, T0, request, response, terms};

#[test]
fn requests_match_what_varies() {
    // Vary lines, the request that was answered, another request, verdict. RFC sections in the comments.
    let table = [
        // 4.1: without Vary everything matches.
        ("X: 1", "GET | Accept: a", "GET | Accept: b", "match"),
        ("Vary:", "GET | Accept: a", "GET | Accept: b", "match"),
        // One field.
        ("Vary: X", "GET | X: 1", "GET | X: 1", "match"),
        ("Vary: X", "GET | X: 1", "GET | X: 2", "differ"),
        ("Vary: X", "GET | X: 1 | Y: 1", "GET | X: 1 | Y: 2", "match"),
        ("Vary: x", "GET | X: 1", "GET | x: 1", "match"),
        // Absent only matches absent.
        ("Vary: X", "GET", "GET", "match"),
        ("Vary: X", "GET", "GET | X: 1", "differ"),
        ("Vary: X", "GET | X: 1", "GET", "differ"),
        ("Vary: X", "GET | X:", "GET", "differ"),
        ("Vary: X", "GET | X:", "GET | X:", "match"),
        // Several fields, several lines, any order.
        ("Vary: X, Y", "GET | X: 1 | Y: 2", "GET | Y: 2 | X: 1", "match"),
        ("Vary: X, Y", "GET | X: 1 | Y: 2", "GET | X: 1 | Y: 3", "differ"),
        ("Vary: X | Vary: Y", "GET | X: 1 | Y: 2", "GET | X: 1 | Y: 3", "differ"),
        ("Vary: X, x, X", "GET | X: 1", "GET | X: 1", "match"),
        // Lines of one name are one value.
        ("Vary: X", "GET | X: 1 | X: 2", "GET | X: 1, 2", "match"),
        ("Vary: X", "GET | X: 1 | X: 2", "GET | X: 2 | X: 1", "differ"),
        // An unknown field: nothing is known of its case or white space.
        ("Vary: X", "GET | X: a", "GET | X: A", "differ"),
        ("Vary: X", "GET | X: a;b", "GET | X: a; b", "differ"),
        ("Vary: Cookie", "GET | Cookie: a=1", "GET | Cookie: a=2", "differ"),
        // Values that look like the marks of the stored form.
        ("Vary: X, Y", "GET | X: 1", "GET | X: 1 | Y:", "differ"),
        ("Vary: X", "GET | X: a:b", "GET | X: a:b", "match"),
        // 9110 12.5.3: codings have no case and no order, a weight of 1 is no weight.
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip, br", "GET | Accept-Encoding: br,gzip", "match"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip, br", "GET | Accept-Encoding: GZip,  BR", "match"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip;q=1.0", "GET | Accept-Encoding: gzip", "match"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip ; q=0.50", "GET | Accept-Encoding: gzip;q=0.5", "match"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip;q=0.5", "GET | Accept-Encoding: gzip", "differ"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip;q=0", "GET | Accept-Encoding: gzip", "differ"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip", "GET | Accept-Encoding: gzip, br", "differ"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: gzip, gzip", "GET | Accept-Encoding: gzip", "match"),
        (
            "Vary: Accept-Encoding",
            "GET | Accept-Encoding: gzip | Accept-Encoding: br",
            "GET | Accept-Encoding: br, gzip",
            "match",
        ),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding:", "GET", "differ"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: identity", "GET", "differ"),
        // 9110 8.4.1.3.
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: x-gzip", "GET | Accept-Encoding: gzip", "match"),
        ("Vary: Accept-Encoding", "GET | Accept-Encoding: x-gzipped", "GET | Accept-Encoding: gzipped", "differ"),
        // 9110 12.5.4: ranges have no case; order is kept, for some origins read it.
        (
            "Vary: Accept-Language",
            "GET | Accept-Language: de, en;q=0.8",
            "GET | Accept-Language: DE,en; q=0.80",
            "match",
        ),
        ("Vary: Accept-Language", "GET | Accept-Language: de, en", "GET | Accept-Language: en, de", "differ"),
        // 9110 12.5.1: white space only.
        ("Vary: Accept", "GET | Accept: text/html, */*;q=0.1", "GET | Accept: text/html,*/* ; q=0.1", "match"),
        ("Vary: Accept", "GET | Accept: text/html", "GET | Accept: text/plain", "differ"),
        ("Vary: Accept", "GET | Accept: a/b;c=\"d; q=1\"", "GET | Accept: a/b;c=\"d;q=1\"", "differ"),
        // A star, or no field name: no request matches.
        ("Vary: *", "GET", "GET", "never"),
        ("Vary: X, *", "GET", "GET", "never"),
        ("Vary: X Y", "GET", "GET", "never"),
    ];
    let mut rows = Rows::default();
    for (lines, first, second, expected) in table {
        let found = match Vary::of(&request(first), &response(&format!("200 | {lines}"))) {
            None => "never",
            Some(vary) if vary.matches(&request(second)) => "match",
            Some(_) => "differ",
        };
        rows.check(&format!("{lines}: {first} and {second}"), found, expected);
    }
}

#[test]
fn it_survives_a_store_and_tells_no_values() {
    let asked = request("GET | Authorization: secret | Accept-Encoding: br");
    let vary = Vary::of(&asked, &response("200 | Vary: Authorization, Accept-Encoding, X")).unwrap();
    assert_eq!(vary.names().collect::<Vec<_>>(), ["accept-encoding", "authorization", "x"]);
    let back = Vary::from_bytes(vary.as_bytes()).unwrap();
    assert_eq!(back, vary);
    assert!(back.matches(&asked));
    assert!(!format!("{vary:?}").contains("secret"));
    assert_eq!(vary.heap_bytes(), vary.as_bytes().len());
    assert!(Vary::from_bytes(b"").is_some_and(|vary| vary.is_empty()));
    for broken in [&b"x"[..], b"\n", b":\n", b"x:1\n\n"] {
        assert!(Vary::from_bytes(broken).is_none(), "{broken:?}");
    }
}

#[test]
fn of_several_matches_the_newest_counts() {
    let old = terms("200 | Date: {-10} | Cache-Control: max-age=60");
    let new = terms("200 | Date: {-5} | Cache-Control: max-age=60");
    let other = terms("200 | Date: {0} | Vary: X | Cache-Control: max-age=60");
    let chosen =
        |variants: &[(&policy::Terms, &'static str)], asked| policy::choose(variants.iter().copied(), &request(asked));
    let all = [(&old, "old"), (&new, "new"), (&other, "other")];
    assert_eq!(chosen(&all, "GET | X: 1"), Some("new"));
    assert_eq!(chosen(&all, "GET"), Some("other"));
    assert_eq!(chosen(&[(&new, "new"), (&old, "old")], "GET"), Some("new"));
    assert_eq!(chosen(&[(&other, "other")], "GET | X: 1"), None);
    assert_eq!(chosen(&[], "GET"), None);
    let mut later = old.clone();
    later.received = Stamp(T0 + 1);
    assert_eq!(chosen(&[(&later, "later"), (&old, "old")], "GET"), Some("later"));
}

#[test]
fn a_response_that_varies_by_more_than_32_names_varies_by_anything() {
    let names = |many: usize| (0..many).map(|name| format!("X-{name}")).collect::<Vec<_>>().join(", ");
    let of = |vary: &str| Vary::of(&request("GET | X-1: a"), &response(&format!("200 | Vary: {vary}")));
    assert_eq!(of(&names(VARY_NAMES_MAX)).map(|vary| vary.names().count()), Some(VARY_NAMES_MAX));
    assert!(of(&names(VARY_NAMES_MAX + 1)).is_none());
    // Names that come again count once, however many they are.
    let repeated = format!("{}, {}", names(VARY_NAMES_MAX), vec!["x-1"; 5_000].join(","));
    assert_eq!(of(&repeated).map(|vary| vary.names().count()), Some(VARY_NAMES_MAX));
    assert!(of(&names(15_500)).is_none());
}
